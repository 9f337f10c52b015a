//! Doing logged effects again.
//!
//! Nothing is decided here: no default, limit, profile or clock is read, nothing expires, is evicted or refused. A record
//! that does not fit what is there means that records are missing or out of order.

use crate::codec::bloom::decode_header;
use crate::codec::payload::restore;
use crate::codec::value::{HalfCounting, HalfDleft, HalfRing};
use crate::filters;
use crate::filters::bits::AllocError;
use crate::filters::item_hash::{HashKey, hash_item};
use crate::filters::ring::{Event, InsertError, Ring};
use crate::keyspace::bloom::{copied, empty_filter, loaded_filter, push_link};
use crate::keyspace::built_filter;
use crate::keyspace::effect::Effect;
use crate::keyspace::entry::{Entry, EntryRef, ValueMut, ValueRef};
use crate::keyspace::held::Held;
use crate::keyspace::latch::Wait;
use crate::keyspace::{Cell, Keyspace, counting, dleft, ring};

/// A record could not be done again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// It speaks of a key, or of a part of one, that is not there.
    #[error("the record does not fit what is there")]
    Unfitting,
    /// There is no memory for it.
    #[error(transparent)]
    Memory(#[from] AllocError),
}

impl From<filters::counting::Refused> for ReplayError {
    fn from(_: filters::counting::Refused) -> Self {
        Self::Unfitting
    }
}

impl From<filters::dleft::Refused> for ReplayError {
    fn from(refused: filters::dleft::Refused) -> Self {
        match refused {
            filters::dleft::Refused::Memory(error) => Self::Memory(error),
            _ => Self::Unfitting,
        }
    }
}

impl From<filters::dleft::CreateError> for ReplayError {
    fn from(error: filters::dleft::CreateError) -> Self {
        match error {
            filters::dleft::CreateError::Memory(error) => Self::Memory(error),
            filters::dleft::CreateError::Settings(_) => Self::Unfitting,
        }
    }
}

impl From<Wait> for ReplayError {
    fn from(_: Wait) -> Self {
        // Nobody else uses the keyspace during a replay.
        Self::Unfitting
    }
}

/// Do an effect again. The keyspace's lives must be [held](Keyspace::hold_lives).
///
/// # Errors
/// [`ReplayError`].
pub fn apply(keyspace: &Keyspace, db: usize, name: &[u8], effect: &Effect<'_>) -> Result<(), ReplayError> {
    match *effect {
        Effect::Renamed { to } => {
            let mut held = keyspace.lock([(db, name), (db, to)].into_iter())?;
            must_exist(&mut held, db, name)?;
            Ok(held.rename(db, name, to)??)
        }
        Effect::Moved { db: other } => {
            let mut held = keyspace.lock([(db, name), (other, name)].into_iter())?;
            must_exist(&mut held, db, name)?;
            Ok(held.move_key(db, name, other)?)
        }
        Effect::Copied { db: other, to } => {
            let mut held = keyspace.lock([(db, name), (other, to)].into_iter())?;
            let copy = held.read(db, name, |entry| entry.map(|entry| copied(entry, to)))?;
            Ok(held.put(other, to, copy.ok_or(ReplayError::Unfitting)??)?)
        }
        Effect::Flushed { all } => {
            keyspace.lock_all(|_| true)?.flush((!all).then_some(db));
            Ok(())
        }
        Effect::Swapped { with } => {
            keyspace.lock_all(|_| true)?.swap(db, with);
            Ok(())
        }
        Effect::Profile { settings } => {
            keyspace.profiles().put(name, settings);
            Ok(())
        }
        _ => keyspace.write(db, name, |cell| apply_to_key(cell, effect))?,
    }
}

fn must_exist(held: &mut Held<'_>, db: usize, name: &[u8]) -> Result<(), ReplayError> {
    let exists = held.read(db, name, |entry| entry.is_some())?;
    if exists { Ok(()) } else { Err(ReplayError::Unfitting) }
}

fn apply_to_key(cell: &mut Cell<'_>, effect: &Effect<'_>) -> Result<(), ReplayError> {
    match *effect {
        Effect::BloomCreated { shape, options, growth, life } => {
            cell.replace(empty_filter(cell.name(), &shape, options, growth, life)?);
            Ok(())
        }
        Effect::RingCreated { settings, version, life } => {
            cell.replace(ring::entry_of(cell.name(), life, Ring::new(settings, version))?);
            Ok(())
        }
        Effect::RingHeader { cursor, header } => {
            let half = HalfRing::new(cursor, header, u64::MAX).map_err(|_| ReplayError::Unfitting)?;
            cell.replace(ring::half_loaded(cell.name(), None, half)?);
            Ok(())
        }
        Effect::CountingCreated { settings, shape, version, life } => {
            cell.replace(counting::empty_filter(cell.name(), life, settings, shape, version)?);
            Ok(())
        }
        Effect::CountingHeader { cursor, header } => {
            let half = HalfCounting::new(cursor, header, u64::MAX).map_err(|_| ReplayError::Unfitting)?;
            cell.replace(counting::half_loaded(cell.name(), None, half)?);
            Ok(())
        }
        Effect::DleftCreated { settings, seed, life } => {
            cell.replace(dleft::empty_filter(cell.name(), life, settings, seed)?);
            Ok(())
        }
        Effect::DleftHeader { cursor, header } => {
            let half = HalfDleft::new(cursor, header, u64::MAX).map_err(|_| ReplayError::Unfitting)?;
            cell.replace(dleft::half_loaded(cell.name(), None, half)?);
            Ok(())
        }
        Effect::BloomHeader { header } => {
            let decoded = decode_header(header, u64::MAX).map_err(|_| ReplayError::Unfitting)?;
            cell.replace(loaded_filter(cell.name(), None, decoded)?);
            Ok(())
        }
        Effect::Restored { payload, life } => {
            let built = restore(payload, u64::MAX).map_err(|_| ReplayError::Unfitting)?;
            cell.replace(built_filter(cell.name(), life, built)?);
            Ok(())
        }
        Effect::Deleted { cause } => {
            cell.delete(cause);
            Ok(())
        }
        _ => cell.change(|entry, _| change(entry, effect)).ok_or(ReplayError::Unfitting)?,
    }
}

/// Do an effect on a key that is there.
fn change(entry: &mut Entry, effect: &Effect<'_>) -> Result<(), ReplayError> {
    match *effect {
        Effect::Life { life } => Ok(entry.set_life(life)?),
        Effect::BloomGrown { shape } => Ok(push_link(entry, &shape)?),
        Effect::BloomAdded { link, items } => {
            let ValueMut::Bloom(mut bloom) = entry.value_mut() else { return Err(ReplayError::Unfitting) };
            let link = link as usize;
            if link >= bloom.as_ref().len() {
                return Err(ReplayError::Unfitting);
            }
            for item in items {
                let pair = bloom.as_ref().hash(item);
                bloom.count_in(link, pair);
            }
            Ok(())
        }
        Effect::BloomChunk { link, offset, data } => {
            let ValueMut::Bloom(mut bloom) = entry.value_mut() else { return Err(ReplayError::Unfitting) };
            let bytes = bloom.as_ref().link(link as usize).map_or(0, |link| link.shape.bytes);
            if offset.saturating_add(data.len() as u64) > bytes {
                return Err(ReplayError::Unfitting);
            }
            bloom.or_bytes(link as usize, offset as usize, data);
            Ok(())
        }
        Effect::CountingAdded { items } => each_counting(entry, items, counting::insert),
        Effect::CountingRemoved { items } => each_counting(entry, items, |entry, hash| {
            // Only what was there is recorded.
            counting::remove(entry, hash).then_some(false).ok_or(ReplayError::Unfitting)
        }),
        Effect::CountingDecayed => {
            let ValueMut::Counting(mut filter) = entry.value_mut() else { return Err(ReplayError::Unfitting) };
            filter.decay();
            Ok(())
        }
        Effect::DleftAdded { items } => {
            each_dleft(entry, items, |entry, hash| Ok(dleft::insert(entry, hash).map(drop)?))
        }
        Effect::DleftRemoved { items } => each_dleft(entry, items, |entry, hash| {
            dleft::remove(entry, hash)?.then_some(()).ok_or(ReplayError::Unfitting)
        }),
        Effect::RingAdded { event, items } => add_to_ring(entry, event, items),
        Effect::RingRotated => change_ring(entry, |ring| ring.rotate().map_err(|_| ReplayError::Unfitting)),
        Effect::RingCleared => change_ring(entry, |ring| {
            ring.clear();
            Ok(())
        }),
        Effect::RingLinks { links, now } => change_ring(entry, |ring| {
            ring.set_links(links, now);
            Ok(())
        }),
        _ => Err(ReplayError::Unfitting),
    }
}

/// What was written then is written now: which links it goes to follows from the ring and the time alone.
fn add_to_ring(entry: &mut Entry, event: Event, items: &[&[u8]]) -> Result<(), ReplayError> {
    let key = ring_key(entry.as_ref())?;
    for item in items {
        ring::insert(entry, hash_item(item, key.as_ref()), event).map_err(|error| match error {
            InsertError::Memory(error) => ReplayError::Memory(error),
            InsertError::Shape(_) => ReplayError::Unfitting,
        })?;
    }
    ring::advance(entry, event.now)?;
    Ok(())
}

/// Do something with the hash of each item of a counting filter.
fn each_counting(
    entry: &mut Entry,
    items: &[&[u8]],
    work: impl Fn(&mut Entry, u64) -> Result<bool, ReplayError>,
) -> Result<(), ReplayError> {
    items.iter().try_for_each(|item| {
        let ValueRef::Counting(filter) = entry.value() else { return Err(ReplayError::Unfitting) };
        let hash = filter.hash(item);
        work(entry, hash).map(drop)
    })
}

/// The same of a d-left filter.
fn each_dleft(
    entry: &mut Entry,
    items: &[&[u8]],
    work: impl Fn(&mut Entry, u64) -> Result<(), ReplayError>,
) -> Result<(), ReplayError> {
    items.iter().try_for_each(|item| {
        let ValueRef::Dleft(filter) = entry.value() else { return Err(ReplayError::Unfitting) };
        let hash = filter.hash(item);
        work(entry, hash)
    })
}

fn change_ring(entry: &mut Entry, work: impl FnOnce(&mut Ring) -> Result<(), ReplayError>) -> Result<(), ReplayError> {
    ring_key(entry.as_ref())?;
    ring::change(entry, work)
}

/// The key of a ring's hashes; an error if the entry holds no ring.
fn ring_key(entry: EntryRef<'_>) -> Result<Option<HashKey>, ReplayError> {
    match entry.value() {
        ValueRef::Ring(ring) => Ok(ring.key().copied()),
        _ => Err(ReplayError::Unfitting),
    }
}
