//! d-left counting Bloom filters: items can be taken out again, and counted, in about half the bits of [`counting`](super::counting).
//!
//! **Promise.** An item is found, always, as long as every [`remove`](DleftMut::remove) was for an item whose adds were accepted and outnumber
//! its removes. To remove what was never added is noticed unless a false positive hides it, and then takes out another item. An add that was refused was
//! not done, and must not be undone.
//!
//! **How.** The filter knows an item as a number `f`, its hash scaled to `[0, M)`, and is an exact multiset of those: for every `f` one cell in
//! the whole filter stands for it, and counts it. Each of `d` sub-tables has one bucket in which `f` can stand
//! (the high part of `a_i f mod M`, whose low part is what the cell stores, with a random `a_i` for each); all are searched first, and only then
//! is the emptiest bucket chosen, the leftmost of several. That keeps buckets so even that 8 cells do where 6 are used on average.
//!
//! ```text
//! add      found: its counter + 1, refused at the ceiling;  else a cell of the emptiest bucket, refused if all are full
//! remove   not found: nothing changes;  its counter - 1;  or the cell is free again
//! ```
//!
//! **Rate.** Exactly `(different f) / M`, at capacity at most the one asked for ([`geometry`]). An item is known by 62 bits or a little
//! less: beyond about `error * 2^62` items those alone make the rate. Measured at 49,152 items in 4 x 2048 x 8 cells of 14 bits:
//! 0.0014637, formula 0.0014638 (`benches/dleft.rs`).
//!
//! **Full.** Without growth the capacity always fits: one of 1e27 buckets would need a ninth cell after any number of adds and removes. Beyond
//! it items are taken as long as they find a cell. What finds none, and copies above the ceiling, is refused, or goes to an exact set beside
//! the cells, which is limited ([`Spilled`]).
//!
//! **Growth.** When all sets of sub-tables hold their capacity, a further one is made, `factor` times as large, until the final capacity is
//! reached. All sets share the one range of `f`, large enough for the final capacity: so over the whole filter one `f` stands in one
//! cell. (Sets with ranges of their own, asked one after the other, gave 149 to 517 false negatives when tried.) A new `f` goes to the oldest set that
//! is below its capacity; a set that became empty is given back, the first excepted. Every set costs `log2(final / capacity)` bits a cell
//! more than the filter without growth has.
//!
//! **Forms.** [`packed`] stands in one slice of bytes and is one set with no more than its cells; [`large`] is everything. Both run the same
//! code over the words of either.
//!
//! ```
//! use seendb::filters::dleft::{Dleft, DleftRef, Inserted, Refused, Settings};
//!
//! let (capacity, error, growth, key) = (1000, 0.01, None, None);
//! let settings = Settings { capacity, error, growth, subtables: 4, cells: 8, counter_bits: 2, spill: false, key };
//! let mut filter = Dleft::new(settings, 1)?;
//! let hashes: Vec<u64> = (0..1000).map(|i| DleftRef::Large(&filter).hash(format!("item:{i}").as_bytes())).collect();
//! for &hash in &hashes {
//!     filter.insert(hash)?;
//! }
//! // Who was added is found, until he was removed as often.
//! assert!(hashes.iter().all(|&hash| DleftRef::Large(&filter).contains(hash)));
//! assert!(hashes.iter().all(|&hash| filter.remove(hash) == Ok(true)));
//! assert_eq!(DleftRef::Large(&filter).cells_used(), 0);
//!
//! // One item can be counted four times, and what was refused was not done.
//! let counted: Vec<_> = (0..5).map(|_| filter.insert(7)).collect();
//! assert_eq!((counted[0], counted[1]), (Ok(Inserted::New), Ok(Inserted::Counted(2))));
//! assert_eq!((counted[4], DleftRef::Large(&filter).count(7)), (Err(Refused::CounterFull(4)), 4));
//!
//! // 19.5 bits an item, half of what counters of 4 bits in a Bloom filter take at this rate.
//! assert_eq!(settings.geometry()?.bytes(), 2440);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Sources: F. Bonomi, M. Mitzenmacher, R. Panigrahy, S. Singh, G. Varghese, "An improved construction for counting Bloom filters",
//! ESA 2006; B. Vöcking, "How asymmetry helps load balancing", 1999. Their text lets the chosen bucket alone be searched for the
//! fingerprint, which can store it twice; and marks free cells by a fingerprint of 0, which changes the permutation. A count of used
//! cells in each bucket takes half a bit a cell and avoids the second.

mod check;
pub mod geometry;
pub mod large;
pub mod packed;
mod permutation;
mod spill;
mod table;
#[cfg(test)]
mod tests;

pub use check::Check;
pub use geometry::Geometry;
pub use large::{CreateError, Dleft, Image};
pub use packed::{PackedDleft, PackedDleftMut};
pub use spill::Spilled;

use super::bits::AllocError;
use super::item_hash::{HashKey, hash_item};
use permutation::high;

/// Most sets of sub-tables of a filter that grows.
pub const MOST_SETS: usize = 1024;
/// Items looked at together.
const GROUP: usize = 32;
/// The set beside the cells has one entry for so many items of the capacity, and [`LEAST_SPILLED`] at least.
const ITEMS_PER_SPILLED: u64 = 1000;
const LEAST_SPILLED: u64 = 16;

/// How a filter grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Growth {
    /// A further set is made for so many times the items of the one before; at least 1.
    pub factor: u32,
    /// Items of all sets together, at least the capacity.
    pub final_capacity: u64,
}

/// What a filter was made with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// So many different items fit into it, or into its first set if it grows.
    pub capacity: u64,
    /// The share of items never added that may be found all the same.
    pub error: f64,
    /// How it grows, if it does.
    pub growth: Option<Growth>,
    /// Sub-tables, within [`geometry::SUBTABLES`].
    pub subtables: u32,
    /// Cells of a bucket, within [`geometry::CELLS`].
    pub cells: u32,
    /// Bits of a counter, 2 or 4: an item can be counted 4 or 16 times.
    pub counter_bits: u32,
    /// What finds no free cell, or no more room in its counter, goes to an exact set beside the cells.
    pub spill: bool,
    /// The key of its hashes.
    pub key: Option<HashKey>,
}

/// No filter has such settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// A number is not in its range.
    #[error("a number is out of its range")]
    Range,
    /// More bytes than any memory has.
    #[error("the filter would be larger than any memory")]
    TooLarge,
}

impl Settings {
    /// The sizes of the first set.
    ///
    /// # Errors
    /// [`SettingsError`].
    pub fn geometry(&self) -> Result<Geometry, SettingsError> {
        let capacity = self.final_capacity();
        let grows = self.growth.is_none_or(|growth| growth.factor > 0 && growth.final_capacity >= self.capacity);
        let shape = matches!(self.counter_bits, 2 | 4) && geometry::safe_load(self.subtables, self.cells).is_some();
        let rate = self.error > 0.0 && self.error < 1.0;
        if !(self.capacity > 0 && rate && grows && shape) {
            return Err(SettingsError::Range);
        }
        // The first set has the range of all.
        let error = self.error * (self.capacity as f64 / capacity as f64);
        Geometry::sized(self.subtables, self.cells, self.counter_bits, self.capacity, error)
            .ok_or(SettingsError::TooLarge)
    }

    /// Whether a filter can have been made with these.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.geometry().is_ok()
    }

    /// So many different items fit into it in the end.
    #[must_use]
    pub fn final_capacity(&self) -> u64 {
        self.growth.map_or(self.capacity, |growth| growth.final_capacity)
    }

    /// Entries that the set beside the cells can have.
    #[must_use]
    pub fn most_spilled(&self) -> u64 {
        if self.spill { (self.capacity / ITEMS_PER_SPILLED).max(LEAST_SPILLED) } else { 0 }
    }
}

/// An item was counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inserted {
    /// It was not in the filter before.
    New,
    /// It is counted so often now.
    Counted(u64),
}

/// An item was not counted; nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// It is counted as often as it can be.
    #[error("counter is full: item is counted {0} times")]
    CounterFull(u64),
    /// All of its buckets are full.
    #[error("filter is full: no free cell for this item")]
    NoCell,
    /// The filter holds its final capacity.
    #[error("filter is full: {items} of {capacity} items")]
    Full {
        /// Different items in it.
        items: u64,
        /// Its final capacity.
        capacity: u64,
    },
    /// It can be counted once the filter has a further set: [`Dleft::grow`].
    #[error("filter has to grow")]
    NeedsGrowth,
    /// It can be counted once the filter is a large one: [`DleftRef::to_large`].
    #[error("filter has to be a large one")]
    NeedsLarge,
    /// No memory.
    #[error(transparent)]
    Memory(#[from] AllocError),
}

/// One set of sub-tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetInfo {
    /// Its sizes.
    pub geometry: Geometry,
    /// Different items it is made for.
    pub capacity: u64,
    /// Cells used.
    pub used: u64,
}

/// Buckets with 0, 1, 2 … cells used.
pub type Loads = [u64; geometry::MOST_CELLS + 1];

/// A filter in either form, to read.
#[derive(Clone, Copy)]
pub enum DleftRef<'a> {
    /// All in one slice of bytes.
    Packed(PackedDleft<'a>),
    /// With allocations of its own.
    Large(&'a Dleft),
}

impl<'a> DleftRef<'a> {
    /// What it was made with.
    #[must_use]
    pub fn settings(self) -> Settings {
        match self {
            DleftRef::Packed(filter) => filter.settings(),
            DleftRef::Large(filter) => *filter.settings(),
        }
    }

    /// What its multipliers were drawn from.
    #[must_use]
    pub fn seed(self) -> u64 {
        match self {
            DleftRef::Packed(filter) => filter.seed(),
            DleftRef::Large(filter) => filter.seed(),
        }
    }

    /// Its sets, oldest first.
    pub fn sets(self) -> impl Iterator<Item = SetInfo> + 'a {
        let (packed, large) = match self {
            DleftRef::Packed(filter) => (Some(filter.set()), None),
            DleftRef::Large(filter) => (None, Some(filter.sets())),
        };
        packed.into_iter().chain(large.into_iter().flatten())
    }

    /// Items added and not removed since.
    #[must_use]
    pub fn items(self) -> u64 {
        match self {
            DleftRef::Packed(filter) => filter.items(),
            DleftRef::Large(filter) => filter.items(),
        }
    }

    /// Cells used, in all sets.
    #[must_use]
    pub fn cells_used(self) -> u64 {
        self.sets().map(|set| set.used).sum()
    }

    /// The entries of the set beside the cells, in ascending order of fingerprints.
    #[must_use]
    pub fn spilled(self) -> &'a [Spilled] {
        match self {
            DleftRef::Packed(_) => &[],
            DleftRef::Large(filter) => filter.spilled(),
        }
    }

    /// Buckets with so many cells used, of all sets.
    #[must_use]
    pub fn loads(self) -> Loads {
        match self {
            DleftRef::Packed(filter) => filter.loads(),
            DleftRef::Large(filter) => filter.loads(),
        }
    }

    /// Cells used of the fullest bucket.
    #[must_use]
    pub fn fullest_bucket(self) -> u32 {
        self.loads().iter().rposition(|buckets| *buckets > 0).unwrap_or(0) as u32
    }

    /// The share of items never added that it would say yes to now.
    #[must_use]
    pub fn error_now(self) -> f64 {
        let (different, range) = match self {
            DleftRef::Packed(filter) => (filter.set().used, filter.set().geometry.range()),
            DleftRef::Large(filter) => (filter.different(), filter.range()),
        };
        different as f64 / range as f64
    }

    /// The hash of an item in this filter.
    #[inline]
    #[must_use]
    pub fn hash(self, item: &[u8]) -> u64 {
        match self {
            DleftRef::Packed(filter) => hash_item(item, filter.key()),
            DleftRef::Large(filter) => hash_item(item, filter.settings().key.as_ref()),
        }
    }

    /// Whether an item with this hash is in it, or looks like it.
    #[inline]
    #[must_use]
    pub fn contains(self, hash: u64) -> bool {
        match self {
            DleftRef::Packed(filter) => filter.contains(hash),
            DleftRef::Large(filter) => filter.contains(hash),
        }
    }

    /// How often an item with this hash is in it: never below the truth.
    #[inline]
    #[must_use]
    pub fn count(self, hash: u64) -> u64 {
        match self {
            DleftRef::Packed(filter) => filter.count(hash),
            DleftRef::Large(filter) => filter.count(hash),
        }
    }

    /// Asks the processor for what a question or a change with this hash will look at.
    #[inline]
    pub fn prefetch(self, hash: u64) {
        if let DleftRef::Large(filter) = self {
            filter.prefetch(hash);
        }
    }

    /// Whether each of the items is in it; much quicker than one by one where the cells are not in the cache.
    ///
    /// # Panics
    /// If the slices differ in length.
    pub fn contains_many(self, hashes: &[u64], out: &mut [bool]) {
        assert_eq!(hashes.len(), out.len());
        match self {
            DleftRef::Packed(filter) => hashes.iter().zip(out).for_each(|(hash, out)| *out = filter.contains(*hash)),
            DleftRef::Large(filter) => filter.contains_many(hashes, out),
        }
    }

    /// How often each of the items is in it.
    ///
    /// # Panics
    /// If the slices differ in length.
    pub fn count_many(self, hashes: &[u64], out: &mut [u64]) {
        assert_eq!(hashes.len(), out.len());
        for (hashes, out) in hashes.chunks(GROUP).zip(out.chunks_mut(GROUP)) {
            hashes.iter().for_each(|hash| self.prefetch(*hash));
            hashes.iter().zip(out).for_each(|(hash, out)| *out = self.count(*hash));
        }
    }

    /// All fingerprints with their copies, in no order: what the filter knows of its items.
    #[must_use]
    pub fn entries(self) -> Vec<(u64, u64)> {
        match self {
            DleftRef::Packed(filter) => filter.entries(),
            DleftRef::Large(filter) => filter.entries().collect(),
        }
    }

    /// Copies the bytes of set number `set` from `offset` on.
    ///
    /// # Panics
    /// If there is no such set, or the range does not lie inside it.
    pub fn copy_bytes(self, set: usize, offset: usize, out: &mut [u8]) {
        match self {
            DleftRef::Packed(filter) => out.copy_from_slice(&filter.body()[offset..][..out.len()]),
            DleftRef::Large(filter) => filter.copy_bytes(set, offset, out),
        }
    }

    /// The same filter with allocations of its own.
    ///
    /// # Errors
    /// [`AllocError`] when there is no memory for it.
    pub fn to_large(self) -> Result<Dleft, AllocError> {
        Dleft::copy_of(self)
    }

    /// Whether all that must hold after every change holds: what was loaded is checked by it. It takes as long as a question for each item.
    #[must_use]
    pub fn is_sound(self) -> bool {
        match self {
            DleftRef::Packed(filter) => filter.is_sound(),
            DleftRef::Large(filter) => filter.is_sound(),
        }
    }
}

/// A filter in either form, to write.
pub enum DleftMut<'a> {
    /// All in one slice of bytes.
    Packed(PackedDleftMut<'a>),
    /// With allocations of its own.
    Large(&'a mut Dleft),
}

impl DleftMut<'_> {
    /// The same filter, to read.
    #[inline]
    #[must_use]
    pub fn as_ref(&self) -> DleftRef<'_> {
        match self {
            DleftMut::Packed(filter) => DleftRef::Packed(filter.as_ref()),
            DleftMut::Large(filter) => DleftRef::Large(filter),
        }
    }

    /// Counts an item with this hash.
    ///
    /// # Errors
    /// [`Refused`]; nothing has changed then.
    #[inline]
    pub fn insert(&mut self, hash: u64) -> Result<Inserted, Refused> {
        match self {
            DleftMut::Packed(filter) => filter.insert(hash),
            DleftMut::Large(filter) => filter.insert(hash),
        }
    }

    /// Takes one item with this hash out; false if none is there, and then nothing has changed.
    ///
    /// # Errors
    /// [`AllocError`]: an entry beside the cells has to be changed, a snapshot needs it as it was, and there is no memory for both.
    #[inline]
    pub fn remove(&mut self, hash: u64) -> Result<bool, AllocError> {
        match self {
            DleftMut::Packed(filter) => Ok(filter.remove(hash)),
            DleftMut::Large(filter) => filter.remove(hash),
        }
    }

    /// Adds the items in their order until one cannot be counted without [growth](Refused::NeedsGrowth) or the
    /// [other form](Refused::NeedsLarge); returns how many have an answer.
    ///
    /// # Panics
    /// If the slices differ in length.
    pub fn insert_many(&mut self, hashes: &[u64], out: &mut [Result<Inserted, Refused>]) -> usize {
        assert_eq!(hashes.len(), out.len());
        let mut done = 0;
        for (hashes, out) in hashes.chunks(GROUP).zip(out.chunks_mut(GROUP)) {
            hashes.iter().for_each(|hash| self.as_ref().prefetch(*hash));
            for (hash, out) in hashes.iter().zip(out) {
                match self.insert(*hash) {
                    Err(Refused::NeedsGrowth | Refused::NeedsLarge) => return done,
                    answer => *out = answer,
                }
                done += 1;
            }
        }
        done
    }

    /// Removes each of the items, in their order.
    ///
    /// # Errors
    /// As [`remove`](Self::remove), for the first such item; those before it are removed.
    ///
    /// # Panics
    /// If the slices differ in length.
    pub fn remove_many(&mut self, hashes: &[u64], out: &mut [bool]) -> Result<(), AllocError> {
        assert_eq!(hashes.len(), out.len());
        for (hashes, out) in hashes.chunks(GROUP).zip(out.chunks_mut(GROUP)) {
            hashes.iter().for_each(|hash| self.as_ref().prefetch(*hash));
            for (hash, out) in hashes.iter().zip(out) {
                *out = self.remove(*hash)?;
            }
        }
        Ok(())
    }
}

/// The number as which a filter of this range knows an item with this hash.
#[inline(always)]
fn fingerprint(hash: u64, range: u64) -> u64 {
    high(hash, range)
}
