//! How counting filters are held by entries: packed into them while they are small, in allocations of their own from then on.
//!
//! A filter that is small as a whole is packed, with room for the counters that it has; an insert that finds none gives it more.

use super::entry::{Entry, EntryRef, Value, ValueMut, ValueRef, packs};
use crate::codec::cells_value::Cells;
use crate::codec::value::HalfCounting;
use crate::filters::bits::AllocError;
use crate::filters::counting::packed::{create, full_len, pack, payload_len};
use crate::filters::counting::{CountingBloom, CountingMut, CountingRef, Refused, Settings, Shape};

/// An empty filter, as an entry; the shape is that of the settings.
///
/// # Errors
/// [`AllocError`] when there is no memory.
pub fn empty_filter(
    name: &[u8],
    life: Option<u64>,
    settings: Settings,
    shape: Shape,
    version: u64,
) -> Result<Entry, AllocError> {
    match packed_len(name, &settings, &shape, 0) {
        Some(len) => Entry::packed_counting(name, life, len, |payload| create(payload, &settings, &shape, version)),
        None => Entry::boxed(name, life, Value::Counting(Box::new(CountingBloom::new(settings, shape, version)?))),
    }
}

/// A filter, as an entry.
///
/// # Errors
/// [`AllocError`] when there is no memory.
pub fn entry_of(name: &[u8], life: Option<u64>, filter: CountingBloom) -> Result<Entry, AllocError> {
    match packed_len(name, filter.settings(), &filter.shape(), filter.figures().nonzero) {
        Some(len) => Entry::packed_counting(name, life, len, |payload| pack(payload, CountingRef::Large(&filter))),
        None => Entry::boxed(name, life, Value::Counting(Box::new(filter))),
    }
}

/// Bytes of the payload of a filter that is packed. It is if all of its cells have room there, whatever it has now: so it never
/// changes its form.
fn packed_len(name: &[u8], settings: &Settings, shape: &Shape, nonzero: u64) -> Option<usize> {
    full_len(settings, shape).filter(|full| packs(name, *full)).and_then(|_| payload_len(settings, shape, nonzero))
}

/// The filter of an entry, to write.
///
/// # Panics
/// If the entry holds none.
fn filter_of(entry: &mut Entry) -> CountingMut<'_> {
    match entry.value_mut() {
        ValueMut::Counting(filter) => filter,
        _ => panic!("a counting filter is changed where there is none"),
    }
}

/// Count an item: whether it is new.
///
/// # Errors
/// [`Refused::Full`], or [`AllocError`]; the filter is as it was.
///
/// # Panics
/// If the entry holds no counting filter.
pub fn insert<E: From<Refused> + From<AllocError>>(entry: &mut Entry, hash: u64) -> Result<bool, E> {
    loop {
        match filter_of(entry).insert(hash) {
            Err(Refused::NeedsRoom { payload_len }) => give_room(entry, payload_len)?,
            answer => return Ok(answer?),
        }
    }
}

/// Take an item out: whether it was there.
///
/// # Panics
/// If the entry holds no counting filter.
pub fn remove(entry: &mut Entry, hash: u64) -> bool {
    filter_of(entry).remove(hash)
}

/// Have the payload of a packed filter so long at least.
fn give_room(entry: &mut Entry, payload_len: usize) -> Result<(), AllocError> {
    let old = entry.as_ref();
    let ValueRef::Counting(filter) = old.value() else { return Ok(()) };
    let new = match packs(old.name(), payload_len) {
        true => Entry::packed_counting(old.name(), old.life(), payload_len, |payload| pack(payload, filter))?,
        // Its name has become a long one since.
        false => Entry::boxed(old.name(), old.life(), Value::Counting(Box::new(filter.to_large()?)))?,
    };
    entry.succeed_with(new);
    Ok(())
}

/// Have room for as many counters as there are cells: for a merge or a load.
///
/// # Errors
/// [`AllocError`]; the filter is as it was.
///
/// # Panics
/// If the entry holds no counting filter.
pub fn give_full_room(entry: &mut Entry) -> Result<(), AllocError> {
    let filter = filter_of(entry);
    let counters = filter.as_ref().shape().cells;
    match filter.check_room(counters) {
        Err(Refused::NeedsRoom { payload_len }) => give_room(entry, payload_len),
        _ => Ok(()),
    }
}

/// A copy of a filter under another name, made at once.
///
/// # Errors
/// [`AllocError`] when there is no memory.
pub fn copied(name: &[u8], life: Option<u64>, filter: CountingRef<'_>) -> Result<Entry, AllocError> {
    let figures = filter.figures();
    match packed_len(name, &filter.settings(), &filter.shape(), figures.nonzero) {
        Some(len) => Entry::packed_counting(name, life, len, |payload| pack(payload, filter)),
        None => Entry::boxed(name, life, Value::Counting(Box::new(filter.to_large()?))),
    }
}

/// A filter that is being loaded, as an entry.
///
/// # Errors
/// [`AllocError`] when there is no memory.
pub fn half_loaded(name: &[u8], life: Option<u64>, half: HalfCounting) -> Result<Entry, AllocError> {
    Entry::boxed(name, life, Value::HalfCounting(Box::new(half)))
}

/// The filter of an entry whose load is complete, if it is one.
#[must_use]
pub fn loaded(entry: EntryRef<'_>) -> Option<&CountingBloom> {
    match entry.value() {
        ValueRef::HalfCounting(half) => match half.load.filter()? {
            Cells::Counting(filter) => Some(filter),
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
        ValueMut::HalfCounting(half) => half.load.take_filter(),
        _ => None,
    };
    let Some(Cells::Counting(filter)) = filter else { panic!("the end of a load that is not complete") };
    let old = entry.as_ref();
    let new = entry_of(old.name(), old.life(), *filter)?;
    entry.succeed_with(new);
    Ok(())
}
