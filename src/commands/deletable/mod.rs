//! What `CBF.*` and `DLCBF.*` have in common: all commands on items, and what is told to the log about them.
//!
//! Both families are written with the shard's exclusive lock, or in steps with the key's latch: an add or a remove changes several cells, or
//! moves some, which no other write may meet half done. Questions share the lock. Items are hashed, and their memory is
//! fetched, in groups.

mod ask;
mod create;
mod dump;
mod remove;
pub(super) mod rows;
mod write;

use super::bloom::Bounds;
use super::context::Context;
use super::dispatch::Stop;
use super::error::CommandError;
use super::options::Place;
use super::table::{Group, RUN_LENGTH, find};
use super::words::Words;
use crate::codec::cells_value::CellsRef;
use crate::codec::value::{HalfLoaded, Load};
use crate::config::Settings as Directives;
use crate::filters::bits::AllocError;
use crate::filters::item_hash::HashKey;
use crate::keyspace::effect::Effect;
use crate::keyspace::entry::{Entry, EntryRef, ValueRef};
use crate::keyspace::{Cell, Keyspace};
use crate::resp::{Args, Reply};

pub(super) use dump::Loading;

/// So many items are hashed, and their memory fetched, together.
pub(super) const GROUP: usize = RUN_LENGTH;

/// A family that one can delete from.
pub(super) trait Family: Sized + 'static {
    /// Its group in the table.
    const GROUP: Group;
    /// What a command on one item costs.
    const ONE_COST: &'static str;
    /// What a command on several items costs.
    const MANY_COST: &'static str;
    /// What a filter is made with.
    type Settings: Copy + Send + 'static;
    /// The options of the commands that make one, beside the common ones.
    type Options: FamilyOptions<Self::Settings>;
    /// A filter, to read.
    type Filter<'a>: Filter;

    /// The filter that a value is, if it is one.
    fn filter(value: ValueRef<'_>) -> Option<Self::Filter<'_>>;

    /// Why a value is none.
    fn no_filter(value: &ValueRef<'_>) -> CommandError;

    /// Greatest capacity that may be asked for.
    fn most_capacity(directives: &Directives) -> u64;

    /// What an add makes.
    fn by_settings(directives: &Directives) -> Self::Settings;

    /// The capacity and the error rate.
    fn sizes(settings: &Self::Settings) -> (u64, f64);

    /// They are to be these.
    fn set_sizes(settings: &mut Self::Settings, capacity: u64, error: f64);

    /// The hashes are to have this key.
    fn set_key(settings: &mut Self::Settings, key: HashKey);

    /// Make the filter, where there is no key.
    ///
    /// # Errors
    /// It may not be so large, or there is no memory.
    fn create(
        settings: &Self::Settings,
        life: Option<u64>,
        cell: &mut Cell<'_>,
        bounds: Bounds<'_>,
        keyspace: &Keyspace,
    ) -> Result<(), CommandError>;

    /// Count items, at most [`GROUP`], in their order until one needs more than the filter has; tell of each whether it was new, or why it
    /// was refused.
    fn insert_many(entry: &mut Entry, hashes: &[u64], tell: impl FnMut(Result<bool, CommandError>));

    /// Count an item for which the filter may become larger: whether it was new.
    ///
    /// # Errors
    /// It is refused.
    fn insert(entry: &mut Entry, hash: u64, bounds: Bounds<'_>) -> Result<bool, CommandError>;

    /// Take items out, at most [`GROUP`]; tell of each whether it was there.
    fn remove_many(entry: &mut Entry, hashes: &[u64], tell: impl FnMut(Result<bool, CommandError>));

    /// The same filter, for who writes it as bytes.
    fn cells(value: ValueRef<'_>) -> Option<CellsRef<'_>>;

    /// Make a key from the header of a dump, where there is none.
    ///
    /// # Errors
    /// It is no header of this family; the filter may not be so large, or there is no memory.
    fn begin_load(cell: &mut Cell<'_>, cursor: u64, header: &[u8], bounds: Bounds<'_>) -> Result<(), CommandError>;

    /// The load of an entry, if it is one.
    fn loading(entry: &mut Entry) -> Option<&mut dyn Loading>;

    /// The filter of an entry whose load is complete.
    fn loaded(entry: EntryRef<'_>) -> Option<CellsRef<'_>>;

    /// The entry holds it from now on.
    ///
    /// # Errors
    /// No memory.
    fn end_load(entry: &mut Entry) -> Result<(), AllocError>;

    /// The filter was written to: what it tells all others.
    fn note_version(entry: EntryRef<'_>, keyspace: &Keyspace, clock: u64);

    /// What adding these items did.
    fn added<'a>(items: &'a [&'a [u8]]) -> Effect<'a>;

    /// What removing these items did.
    fn removed<'a>(items: &'a [&'a [u8]]) -> Effect<'a>;
}

/// The options of a family.
pub(super) trait FamilyOptions<S>: Default {
    /// Take a word that is an option, and its value. Whether it was one.
    ///
    /// # Errors
    /// A value that is missing or wrong; an option given twice, or with one that excludes it.
    fn take(&mut self, word: &[u8], words: &mut Words<'_>, place: &Place<'_>) -> Result<bool, CommandError>;

    /// What is to be made: these options, and what else the settings say.
    ///
    /// # Errors
    /// An option without the one that it needs, or whose value does not fit another one.
    fn set(self, settings: &mut S, directives: &Directives) -> Result<(), CommandError>;
}

/// A filter, to read.
pub(super) trait Filter: Copy {
    /// What an item costs, in nanoseconds, measured roughly.
    fn item_ns(self) -> usize;
    /// The hash of an item.
    fn hash(self, item: &[u8]) -> u64;
    /// Whether an item is in it.
    fn contains(self, hash: u64) -> bool;
    /// How often an item is in it.
    fn count(self, hash: u64) -> u64;
    /// The first for several items.
    fn contains_many(self, hashes: &[u64], out: &mut [bool]);
    /// The second for several items.
    fn count_many(self, hashes: &[u64], out: &mut [u64]);
    /// Items added and not removed since.
    fn items(self) -> u64;
}

/// The hashes of a group, in their first places.
fn hash_group<'i>(filter: impl Filter, items: impl Iterator<Item = &'i [u8]>) -> ([u64; GROUP], usize) {
    let (mut hashes, mut count) = ([0; GROUP], 0);
    hashes.iter_mut().zip(items).for_each(|(hash, item)| {
        *hash = filter.hash(item);
        count += 1;
    });
    (hashes, count)
}

/// The filter of a key, none if there is no key.
///
/// # Errors
/// Another kind of value, or a filter that is being loaded.
pub(super) fn filter_of<F: Family>(entry: Option<EntryRef<'_>>) -> Result<Option<F::Filter<'_>>, CommandError> {
    match entry.map(EntryRef::value) {
        None => Ok(None),
        Some(value) => {
            let error = F::no_filter(&value);
            F::filter(value).map(Some).ok_or(error)
        }
    }
}

/// Look at a filter that must be there, and at the bytes that its key holds.
///
/// # Errors
/// There is no key, or another kind of value; a long command has it.
pub(super) fn read_existing<F: Family>(
    context: &mut Context<'_>,
    args: Args<'_>,
    look: impl FnOnce(F::Filter<'_>, usize) -> Reply,
) -> Result<Reply, Stop> {
    let reply = context.read(&args[1], |entry| -> Result<Reply, CommandError> {
        let bytes = entry.map_or(0, EntryRef::allocated_bytes);
        filter_of::<F>(entry)?.map(|filter| look(filter, bytes)).ok_or(CommandError::NotFound)
    })?;
    Ok(reply?)
}

/// The header of a dump begins a load of so many bytes, for which there is room.
pub(super) fn begin<L: Load>(cursor: u64, header: &[u8], bounds: Bounds<'_>) -> Result<HalfLoaded<L>, CommandError> {
    let limit = bounds.settings().max_filter_memory();
    let half = HalfLoaded::<L>::new(cursor, header, limit).map_err(|error| CommandError::of_load(error, limit))?;
    bounds.check_new(half.load.bytes())?;
    Ok(half)
}

/// The name of the command, for its errors.
fn name_of(args: Args<'_>) -> &'static str {
    args.get(0).and_then(find).map_or("", |command| command.name)
}
