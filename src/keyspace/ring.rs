//! How rings are held by entries: packed into them while they are small, in allocations of their own from then on.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::UNIX_EPOCH;

use super::entry::{Entry, EntryRef, RingRef, Value, ValueRef, packs};
use crate::codec::value::HalfRing;
use crate::filters::bits::AllocError;
use crate::filters::item_hash::HashKey;
use crate::filters::ring::packed::{Beyond, PackedRingMut, pack, packed_len};
use crate::filters::ring::part::most_listed;
use crate::filters::ring::{Event, InsertError, Inserted, Part, Ring, Settings, TimeError};

impl RingRef<'_> {
    /// What it was made with.
    #[must_use]
    pub fn settings(self) -> Settings {
        match self {
            Self::Packed(ring) => ring.settings(),
            Self::Large(ring) => ring.settings,
        }
    }

    /// The key of its hashes.
    #[must_use]
    pub fn key(&self) -> Option<&HashKey> {
        match self {
            Self::Packed(ring) => ring.key(),
            Self::Large(ring) => ring.settings.key.as_ref(),
        }
    }

    /// What every write sets the key's life to, in seconds.
    #[must_use]
    pub fn idle(self) -> Option<u32> {
        match self {
            Self::Packed(ring) => ring.idle(),
            Self::Large(ring) => ring.settings.idle,
        }
    }

    /// The time for whoever reads it now by the server's clock.
    #[must_use]
    pub fn reading_time(self, clock: u64) -> u64 {
        match self {
            Self::Packed(ring) => ring.reading_time(clock),
            Self::Large(ring) => ring.settings.reading_time(ring.latest, clock),
        }
    }

    /// When an item is written that comes now by the server's clock, or was met `at` a time.
    ///
    /// # Errors
    /// [`TimeError`].
    pub fn event(self, clock: u64, at: Option<u64>) -> Result<Event, TimeError> {
        match self {
            Self::Packed(ring) if !ring.is_window() && at.is_none() => Ok(Event::default()),
            Self::Packed(ring) => ring.settings().event(ring.latest(), clock, at),
            Self::Large(ring) => ring.settings.event(ring.latest, clock, at),
        }
    }

    /// Whether its time is that of its events.
    #[must_use]
    pub fn is_by_events(self) -> bool {
        match self {
            Self::Packed(ring) => ring.is_by_events(),
            Self::Large(ring) => ring.settings.is_by_events(),
        }
    }

    /// The greatest time that it has seen.
    #[must_use]
    pub fn latest(self) -> u64 {
        match self {
            Self::Packed(ring) => ring.latest(),
            Self::Large(ring) => ring.latest,
        }
    }

    /// Its version.
    #[must_use]
    pub fn version(self) -> u64 {
        match self {
            Self::Packed(ring) => ring.version(),
            Self::Large(ring) => ring.version,
        }
    }

    /// Whether an item with this hash was written to what is remembered at this time, or looks like it.
    #[inline]
    #[must_use]
    pub fn contains(self, hash: u64, now: u64) -> bool {
        match self {
            Self::Packed(ring) => ring.contains(hash, now),
            Self::Large(ring) => ring.contains(hash, now),
        }
    }

    /// Of each of these hashes in turn, whether [`contains`](Self::contains) says yes: told for up to 64 at a time, bit by bit from
    /// the lowest, so that what is done with the answers does not hold up the questions.
    pub fn contains_each(self, now: u64, hashes: impl ExactSizeIterator<Item = u64>, tell: impl FnMut(u64, usize)) {
        match self {
            Self::Packed(ring) => {
                let asked = ring.asked(now, hashes.len());
                in_words(hashes, |hash| asked.contain(hash), tell);
            }
            Self::Large(ring) => in_words(hashes, |hash| ring.contains(hash, now), tell),
        }
    }

    /// Items written to what is remembered at this time.
    #[must_use]
    pub fn items(self, now: u64) -> u64 {
        match self {
            Self::Packed(ring) => ring.items(now),
            Self::Large(ring) => ring.items(now),
        }
    }

    /// The ring with allocations of its own; bits are shared until one of the two changes.
    ///
    /// # Errors
    /// [`AllocError`] when there is no memory.
    pub fn to_ring(self) -> Result<Ring, AllocError> {
        match self {
            Self::Packed(ring) => ring.unpack(),
            Self::Large(ring) => Ok(ring.clone()),
        }
    }
}

/// Ask for each of these, and tell the answers in words of as many bits as the second number says.
fn in_words(
    mut hashes: impl ExactSizeIterator<Item = u64>,
    ask: impl Fn(u64) -> bool,
    mut tell: impl FnMut(u64, usize),
) {
    while hashes.len() > 0 {
        let count = hashes.len().min(u64::BITS as usize);
        let word = hashes.by_ref().take(count).enumerate().fold(0, |word, (i, hash)| word | u64::from(ask(hash)) << i);
        tell(word, count);
    }
}

/// A year.
const FAR_AHEAD_MICROS: u64 = 365 * 86_400_000_000;

fn now_micros() -> u64 {
    UNIX_EPOCH.elapsed().map_or(1, |time| time.as_micros() as u64)
}

/// Where the versions of new rings begin: with the time in microseconds, or above what a ring that was written faster than that
/// had reached. So a key made anew is newer than the one before.
#[derive(Default)]
pub struct Versions {
    /// The greatest version that was ahead of the clock.
    ahead: AtomicU64,
}

impl Versions {
    /// The version of a ring that is made now.
    #[must_use]
    pub fn begin(&self) -> u64 {
        now_micros().max(self.ahead.load(Ordering::Relaxed) + 1)
    }

    /// A ring has this version now, by a clock of milliseconds.
    #[inline]
    pub fn note(&self, version: u64, clock: u64) {
        // Mostly it is behind: the ring is older than a millisecond, and writes take longer than a microsecond. One from elsewhere may
        // be far ahead, and is that ring's own affair.
        if version / 1000 >= clock && version < now_micros().saturating_add(FAR_AHEAD_MICROS) {
            self.ahead.fetch_max(version, Ordering::Relaxed);
        }
    }
}

/// A ring, as an entry.
///
/// # Errors
/// [`AllocError`] when there is no memory.
pub fn entry_of(name: &[u8], life: Option<u64>, ring: Ring) -> Result<Entry, AllocError> {
    match packed_len(&ring).filter(|len| packs(name, *len)) {
        Some(len) => {
            let roomy = len + spare_bytes(&ring);
            let len = if packs(name, roomy) { roomy } else { len };
            Entry::packed_ring(name, life, len, |payload| pack(&ring, payload))
        }
        None => Entry::boxed(name, life, Value::Ring(Box::new(ring))),
    }
}

/// Room that a ring which has just begun gets for its next items. Without it each key would move within its first few items, and
/// the small allocations that it leaves stand between further lines of the key table, which are as large: their pages
/// would stay resident, half of them empty.
fn spare_bytes(ring: &Ring) -> usize {
    const FIRST_ITEMS: u64 = 3;
    let first = ring.parts.front().filter(|_| ring.parts.len() == 1);
    let more = first.map_or(0, |first| FIRST_ITEMS.min(most_listed(&first.shape)).saturating_sub(first.items));
    more as usize * size_of::<u64>()
}

/// Write an item to the ring of an entry.
///
/// # Errors
/// [`InsertError`]; the ring is as it was.
pub fn insert(entry: &mut Entry, hash: u64, event: Event) -> Result<Inserted, InsertError> {
    insert_within(entry, hash, event, |_, _| Ok(()))
}

/// The same. Before an array is made `may_have` is asked: for the bytes of all arrays then, and those of the new one.
///
/// # Errors
/// That of `may_have`, or [`InsertError`]; the ring is as it was.
pub fn insert_within<E: From<InsertError> + From<AllocError>>(
    entry: &mut Entry,
    hash: u64,
    event: Event,
    may_have: impl FnOnce(u64, u64) -> Result<(), E>,
) -> Result<Inserted, E> {
    if let Some(payload) = entry.packed_ring_mut() {
        match PackedRingMut::new(payload).try_insert(hash, event) {
            Ok(inserted) => return Ok(inserted),
            Err(Beyond::Room { payload_len }) if packs(entry.name(), payload_len) => {
                give_room(entry, payload_len)?;
                return insert_within(entry, hash, event, may_have);
            }
            Err(_) => {}
        }
    }
    change(entry, |ring| {
        if let Some(need) = ring.need(hash, event).map_err(InsertError::from)? {
            may_have(need.total, need.more)?;
        }
        Ok(ring.insert(hash, event)?)
    })
}

/// Change the ring of an entry.
///
/// # Errors
/// That of `work`, or [`AllocError`]; the ring is as it was.
///
/// # Panics
/// If the entry holds no ring.
pub fn change<R, E: From<AllocError>>(entry: &mut Entry, work: impl FnOnce(&mut Ring) -> Result<R, E>) -> Result<R, E> {
    if let Some(ring) = entry.large_ring_mut() {
        return work(ring);
    }
    let ValueRef::Ring(packed) = entry.value() else { panic!("a ring is changed where there is none") };
    let mut ring = packed.to_ring()?;
    let result = work(&mut ring)?;
    replace(entry, ring)?;
    Ok(result)
}

/// A change of an entry is over: what its ring dropped is handed out, and a ring that was emptied becomes small.
pub(super) fn settle(entry: &mut Entry) -> Vec<Part> {
    let Some(ring) = entry.large_ring_mut() else { return Vec::new() };
    let retired = ring.take_retired();
    if ring.parts.is_empty() && packed_len(ring).is_some() {
        let ring = ring.clone();
        // Without memory it stays as it is.
        let _large = replace(entry, ring);
    }
    retired
}

/// The time of the events went on to this one, though nothing was written: see [`Ring::advance`]. Tells whether that
/// changed something.
///
/// # Errors
/// [`AllocError`]; the ring is as it was.
pub fn advance(entry: &mut Entry, now: u64) -> Result<bool, AllocError> {
    match entry.value() {
        ValueRef::Ring(ring) if ring.is_by_events() && ring.latest() < now => {
            change(entry, |ring| Ok::<_, AllocError>(ring.advance(now)))
        }
        _ => Ok(false),
    }
}

/// Have the payload of a packed ring so long at least.
fn give_room(entry: &mut Entry, payload_len: usize) -> Result<(), AllocError> {
    let old = entry.as_ref();
    let Some((_, payload)) = old.packed_payload() else { return Ok(()) };
    let new = Entry::packed_ring(old.name(), old.life(), payload_len.max(payload.len()), |roomy| {
        roomy[..payload.len()].copy_from_slice(payload);
    })?;
    entry.succeed_with(new);
    Ok(())
}

/// A ring that is being loaded, as an entry.
///
/// # Errors
/// [`AllocError`] when there is no memory.
pub fn half_loaded(name: &[u8], life: Option<u64>, half: HalfRing) -> Result<Entry, AllocError> {
    Entry::boxed(name, life, Value::HalfRing(Box::new(half)))
}

/// The ring of an entry whose load is complete; the entry holds it from now on.
///
/// # Errors
/// [`AllocError`]; the entry is as it was.
///
/// # Panics
/// If the entry holds no ring that was loaded whole.
pub fn end_load(entry: &mut Entry) -> Result<(), AllocError> {
    let ring = loaded(entry.as_ref()).expect("the end of a load that is complete").clone();
    replace(entry, ring)
}

/// The ring of an entry whose load is complete, if it is one.
#[must_use]
pub fn loaded(entry: EntryRef<'_>) -> Option<&Ring> {
    match entry.value() {
        ValueRef::HalfRing(half) => half.load.ring(),
        _ => None,
    }
}

fn replace(entry: &mut Entry, ring: Ring) -> Result<(), AllocError> {
    let old = entry.as_ref();
    let new = entry_of(old.name(), old.life(), ring)?;
    entry.succeed_with(new);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A version that came from elsewhere does not move those of other rings to where they end.
    #[test]
    fn new_rings_begin_near_the_clock() {
        let (versions, clock) = (Versions::default(), now_micros() / 1000);
        versions.note(u64::MAX >> 1, clock);
        assert!(versions.begin() < now_micros() + 1000);
        let ahead = now_micros() + 5_000_000;
        versions.note(ahead, clock);
        assert_eq!(versions.begin(), ahead + 1);
    }
}
