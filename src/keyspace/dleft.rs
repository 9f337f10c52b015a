//! How d-left filters are held by entries: packed into them while they are small and have one set, in allocations of their own
//! from then on.

use super::entry::{Entry, EntryRef, Value, ValueMut, ValueRef, packs};
use crate::codec::cells_value::Cells;
use crate::codec::value::HalfDleft;
use crate::filters::bits::{AllocError, BitArray};
use crate::filters::dleft::packed::{create, pack, packed_len, payload_len};
use crate::filters::dleft::{CreateError, Dleft, DleftMut, DleftRef, Inserted, Refused, Settings};

/// An empty filter, as an entry.
///
/// # Errors
/// [`CreateError`].
pub fn empty_filter(name: &[u8], life: Option<u64>, settings: Settings, seed: u64) -> Result<Entry, CreateError> {
    let geometry = settings.geometry()?;
    let entry = match payload_len(&settings, &geometry).filter(|len| packs(name, *len)) {
        Some(len) => Entry::packed_dleft(name, life, len, |payload| create(payload, &settings, &geometry, seed)),
        None => Entry::boxed(name, life, Value::Dleft(Box::new(Dleft::new(settings, seed)?))),
    };
    Ok(entry?)
}

/// A filter, as an entry.
///
/// # Errors
/// [`AllocError`] when there is no memory.
pub fn entry_of(name: &[u8], life: Option<u64>, filter: Dleft) -> Result<Entry, AllocError> {
    match packed_len(DleftRef::Large(&filter)).filter(|len| packs(name, *len)) {
        Some(len) => Entry::packed_dleft(name, life, len, |payload| pack(payload, DleftRef::Large(&filter))),
        None => Entry::boxed(name, life, Value::Dleft(Box::new(filter))),
    }
}

/// The filter of an entry, to write.
///
/// # Panics
/// If the entry holds none.
fn filter_of(entry: &mut Entry) -> DleftMut<'_> {
    match entry.value_mut() {
        ValueMut::Dleft(filter) => filter,
        _ => panic!("a d-left filter is changed where there is none"),
    }
}

/// Count an item. Before a set is made `may_have` is asked: for the bytes of all sets then, and those of the new one.
///
/// # Errors
/// That of `may_have`, [`Refused`], or [`AllocError`]; the filter is as it was, but perhaps for its form.
///
/// # Panics
/// If the entry holds no d-left filter.
pub fn insert_within<E: From<Refused> + From<AllocError>>(
    entry: &mut Entry,
    hash: u64,
    mut may_have: impl FnMut(u64, u64) -> Result<(), E>,
) -> Result<Inserted, E> {
    loop {
        match filter_of(entry).insert(hash) {
            Err(Refused::NeedsLarge) => make_large(entry)?,
            Err(Refused::NeedsGrowth) => grow(entry, &mut may_have)?,
            answer => return Ok(answer?),
        }
    }
}

/// The same without a limit.
///
/// # Errors
/// As [`insert_within`].
///
/// # Panics
/// If the entry holds no d-left filter.
pub fn insert(entry: &mut Entry, hash: u64) -> Result<Inserted, Refused> {
    insert_within(entry, hash, |_, _| Ok(()))
}

/// Take one item out: whether it was there.
///
/// # Errors
/// [`AllocError`]: see [`DleftMut::remove`].
///
/// # Panics
/// If the entry holds no d-left filter.
pub fn remove(entry: &mut Entry, hash: u64) -> Result<bool, AllocError> {
    filter_of(entry).remove(hash)
}

/// A change of an entry is over: the cells of sets that its filter dropped are handed out.
pub(super) fn settle(entry: &mut Entry) -> Vec<BitArray> {
    match entry.value_mut() {
        ValueMut::Dleft(DleftMut::Large(filter)) => filter.take_retired(),
        _ => Vec::new(),
    }
}

fn make_large(entry: &mut Entry) -> Result<(), AllocError> {
    let old = entry.as_ref();
    let ValueRef::Dleft(filter) = old.value() else { return Ok(()) };
    let new = Entry::boxed(old.name(), old.life(), Value::Dleft(Box::new(filter.to_large()?)))?;
    entry.succeed_with(new);
    Ok(())
}

/// Give a filter a further set, which it may have.
fn grow<E: From<AllocError>>(entry: &mut Entry, may_have: &mut impl FnMut(u64, u64) -> Result<(), E>) -> Result<(), E> {
    let DleftMut::Large(filter) = filter_of(entry) else { return Ok(make_large(entry)?) };
    let more = filter.next_geometry().map_or(u64::MAX, |geometry| geometry.bytes());
    let held = filter.sets().map(|set| set.geometry.bytes()).fold(0, u64::saturating_add);
    may_have(held.saturating_add(more), more)?;
    Ok(filter.grow()?)
}

/// A copy of a filter under another name, made at once.
///
/// # Errors
/// [`AllocError`] when there is no memory.
pub fn copied(name: &[u8], life: Option<u64>, filter: DleftRef<'_>) -> Result<Entry, AllocError> {
    match packed_len(filter).filter(|len| packs(name, *len)) {
        Some(len) => Entry::packed_dleft(name, life, len, |payload| pack(payload, filter)),
        None => Entry::boxed(name, life, Value::Dleft(Box::new(filter.to_large()?))),
    }
}

/// A filter that is being loaded, as an entry.
///
/// # Errors
/// [`AllocError`] when there is no memory.
pub fn half_loaded(name: &[u8], life: Option<u64>, half: HalfDleft) -> Result<Entry, AllocError> {
    Entry::boxed(name, life, Value::HalfDleft(Box::new(half)))
}

/// The filter of an entry whose load is complete, if it is one.
#[must_use]
pub fn loaded(entry: EntryRef<'_>) -> Option<&Dleft> {
    match entry.value() {
        ValueRef::HalfDleft(half) => match half.load.filter()? {
            Cells::Dleft(filter) => Some(filter),
            _ => None,
        },
        _ => None,
    }
}

/// The load of an entry is complete; the entry holds the filter from now on.
///
/// # Errors
/// [`AllocError`]; the entry is as it was, but for the load, which has to begin again.
///
/// # Panics
/// If the entry holds no filter that was loaded whole.
pub fn end_load(entry: &mut Entry) -> Result<(), AllocError> {
    let filter = match entry.value_mut() {
        ValueMut::HalfDleft(half) => half.load.take_filter(),
        _ => None,
    };
    let Some(Cells::Dleft(filter)) = filter else { panic!("the end of a load that is not complete") };
    let old = entry.as_ref();
    let new = entry_of(old.name(), old.life(), *filter)?;
    entry.succeed_with(new);
    Ok(())
}
