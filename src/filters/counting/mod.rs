//! Counting Bloom filters: items can be taken out again, and counted.
//!
//! **Promise.** An item is found, always, as long as every [`remove`](CountingMut::remove) was for an item that was added more often than
//! it was removed before. To remove what was never added is noticed unless a false positive hides it, and then harms others:
//! it takes counts that are theirs.
//!
//! **How.** A Bloom filter with `m` cells that count instead of bits. An item has `k` positions ([`item_hash`](super::item_hash)), and a
//! position that comes up twice is one: the distinct ones, the same for add, remove and question.
//!
//! ```text
//! add      each cell + 1, unless it is at its ceiling
//! remove   a cell is 0: the item is not there, nothing changes;  else each cell - 1, unless it is at its ceiling
//! found    all cells above 0
//! count    the least of the cells
//! ```
//!
//! Where published descriptions differ from that, they are wrong. To decrement cell by cell and stop at 0 leaves a failed remove half
//! done. A cell at its ceiling may stand for more than it says, so to take from it can bring it to 0 while items need it:
//! it stays, and [`saturated`](Figures::saturated) tells of it. An add that does nothing when the item seems to be there
//! loses it when those go that it was mistaken for: two adds need two removes.
//!
//! **Rate.** That of a Bloom filter with `m` bits, `(1 - e^(-kn/m))^k` after `n` items: 4 or 8 times the bits for the same rate. In
//! small ones the true mean is above that formula, which [`ArrayShape`] makes up for. An item is known by 64 bits: beyond
//! about `error * 2^64` items those alone make the rate. Measured at 49,152 items, 663,552 cells, k = 9: 0.0015289 in 10,000
//! trials, formula 0.0015290 (`benches/dleft.rs`).
//!
//! **Ceiling.** With distinct items a cell of 4 bits reaches 15 about once in 10^13 cells, with eight bits never; one item added
//! fifteen times brings all of its cells there.
//!
//! **No growth.** With several stages a remove could not tell which of them holds the item.
//!
//! **Forms.** [`packed`] stands in one slice of bytes; [`large`] has an array of its own. Both run the same code, over the
//! words of either.
//!
//! ```
//! use seendb::filters::counting::{CounterBits, CountingBloom, CountingMut, Settings};
//!
//! let counter_bits = CounterBits::Four;
//! let settings = Settings { capacity: 1000, error: 0.01, counter_bits, strict: false, key: None };
//! let mut filter = CountingBloom::new(settings, settings.shape()?, 0)?;
//! let mut filter = CountingMut::Large(&mut filter);
//! let hashes: Vec<u64> = (0..1000).map(|i| settings.hash(format!("item:{i}").as_bytes())).collect();
//! for &hash in &hashes {
//!     filter.insert(hash)?;
//! }
//! // Who was added is found, until he was removed as often.
//! filter.insert(hashes[0])?;
//! assert!(hashes.iter().all(|&hash| filter.as_ref().contains(hash)) && filter.as_ref().count(hashes[0]) >= 2);
//! assert!(hashes.iter().all(|&hash| filter.remove(hash)) && filter.as_ref().contains(hashes[0]));
//! assert!(filter.remove(hashes[0]) && filter.as_ref().fill() == 0.0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Sources: L. Fan, P. Cao, J. Almeida, A. Broder, "Summary cache", IEEE/ACM Trans. Networking 8 (2000). Conservative update, which
//! increments only the least cells, counts better and was not taken: it cannot remove.

mod cells;
pub mod large;
pub mod packed;
mod ranked;
#[cfg(test)]
mod tests;

pub use large::{CountingBloom, Image};
pub use packed::{PackedCounting, PackedCountingMut};

use super::bits::AllocError;
use super::item_hash::{HashKey, hash_item};
use super::ring::shape::{ArrayShape, ShapeError};
use super::words::WORD_BYTES;
use cells::GROUP;

/// Most positions of an item: a rate of 1e-15 takes 50.
pub const MOST_HASHES: u32 = 64;
/// More cells than any memory has.
const MOST_CELLS: u64 = 1 << 56;

/// How wide a counter is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CounterBits {
    /// 4 bits, up to 15.
    Four,
    /// 8 bits, up to 255.
    Eight,
}

impl CounterBits {
    /// Counters of so many bits: 4 or 8.
    #[must_use]
    pub fn new(bits: u32) -> Option<Self> {
        match bits {
            4 => Some(Self::Four),
            8 => Some(Self::Eight),
            _ => None,
        }
    }

    /// Bits of a counter.
    #[inline(always)]
    #[must_use]
    pub fn bits(self) -> u32 {
        match self {
            Self::Four => 4,
            Self::Eight => 8,
        }
    }

    /// What a counter can say at most; it means "or more".
    #[inline(always)]
    #[must_use]
    pub fn ceiling(self) -> u64 {
        (1 << self.bits()) - 1
    }
}

/// What a filter was made with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// So many items it can hold at its error rate.
    pub capacity: u64,
    /// The share of items never added that may be found all the same.
    pub error: f64,
    /// The width of its counters.
    pub counter_bits: CounterBits,
    /// It refuses new items when it holds its capacity.
    pub strict: bool,
    /// The key of its hashes.
    pub key: Option<HashKey>,
}

impl Settings {
    /// The size that this takes: the smallest one with at most that rate.
    ///
    /// # Errors
    /// [`ShapeError`]; also for a rate that takes more than [`MOST_HASHES`].
    pub fn shape(&self) -> Result<Shape, ShapeError> {
        let array = ArrayShape::new(self.capacity, self.error)?;
        if array.hashes > MOST_HASHES {
            return Err(ShapeError::Rate);
        }
        Ok(Shape { cells: array.bits, hashes: array.hashes, counter_bits: self.counter_bits })
    }

    /// Whether a filter can have been made with these.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        (1..=MOST_CELLS).contains(&self.capacity) && self.error > 0.0 && self.error < 1.0
    }

    /// The hash of an item in this filter.
    #[inline]
    #[must_use]
    pub fn hash(&self, item: &[u8]) -> u64 {
        hash_item(item, self.key.as_ref())
    }
}

/// How large a filter is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Cells.
    pub cells: u64,
    /// Positions of an item.
    pub hashes: u32,
    /// The width of a cell.
    pub counter_bits: CounterBits,
}

impl Shape {
    /// Whether a filter can have this shape.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        (1..=MOST_CELLS).contains(&self.cells) && (1..=MOST_HASHES).contains(&self.hashes)
    }

    /// Words of all cells: cell `x` begins at bit `x * counter_bits`, least significant first. What is left of the last word is 0.
    #[must_use]
    pub fn words(&self) -> u64 {
        self.cells.div_ceil(u64::from(u64::BITS / self.counter_bits.bits()))
    }

    /// Bytes of all cells, in whole words.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.words() * WORD_BYTES as u64
    }

    /// Bytes of the Bloom filter that an export is: one bit a cell.
    #[must_use]
    pub fn export_bytes(&self) -> u64 {
        self.cells.div_ceil(8)
    }
}

/// What a filter counts about itself with every change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Items added and not removed since.
    pub items: u64,
    /// Cells above 0.
    pub nonzero: u64,
    /// Cells at their ceiling.
    pub saturated: u64,
    /// Rises with every change.
    pub version: u64,
    /// How often all counters were changed at once, by a decay or a merge, modulo [`TURNS`]: who reads the cells in pieces sees by it that
    /// pieces do not belong together.
    pub turns: u8,
}

/// So many different [`turns`](Figures::turns) are told apart.
pub const TURNS: u8 = 16;

/// The greatest number of items, and the greatest version: signed integers. They stay there.
pub const MOST_FIGURE: u64 = i64::MAX as u64;

impl Figures {
    /// What came of a change, with so many items more.
    #[must_use]
    pub fn after(self, items: u64) -> Self {
        let raised = |figure: u64, more| figure.saturating_add(more).min(MOST_FIGURE);
        Self { items: raised(self.items, items), version: raised(self.version, 1), ..self }
    }

    fn turn(&mut self) {
        *self = self.after(0);
        self.turns = (self.turns + 1) % TURNS;
    }
}

/// An item was not counted; nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// It is new, the filter is strict and holds its capacity.
    #[error("filter is full: {items} of {capacity} items")]
    Full {
        /// Items in it.
        items: u64,
        /// Its capacity.
        capacity: u64,
    },
    /// It can be counted once the filter stands in so many bytes: see [`packed::pack`].
    #[error("filter needs {payload_len} bytes")]
    NeedsRoom {
        /// Bytes of the payload, at least.
        payload_len: usize,
    },
}

/// Two filters cannot become one.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum MergeError {
    /// They were made with different settings: which, and the values of both.
    #[error("filters differ: {0} {1} and {2}")]
    Differ(&'static str, String, String),
    /// They hold more than one is made for.
    #[error("merged filter would hold about {items} items of {capacity}, use FORCE")]
    TooMany {
        /// So many, together.
        items: u64,
        /// Its capacity.
        capacity: u64,
    },
}

/// A counting filter in either form, to read.
#[derive(Clone, Copy)]
pub enum CountingRef<'a> {
    /// All in one slice of bytes.
    Packed(PackedCounting<'a>),
    /// With an allocation of its own.
    Large(&'a CountingBloom),
}

/// Does the same to either form, over its words.
macro_rules! with_cells {
    ($filter:expr, $cells:ident => $work:expr) => {
        match $filter {
            CountingRef::Packed(filter) => {
                let $cells = filter.cells();
                $work
            }
            CountingRef::Large(filter) => {
                let $cells = filter.cells();
                $work
            }
        }
    };
}

impl<'a> CountingRef<'a> {
    /// What it was made with.
    #[must_use]
    pub fn settings(self) -> Settings {
        match self {
            CountingRef::Packed(filter) => filter.settings(),
            CountingRef::Large(filter) => *filter.settings(),
        }
    }

    /// How large it is.
    #[must_use]
    pub fn shape(self) -> Shape {
        match self {
            CountingRef::Packed(filter) => filter.shape(),
            CountingRef::Large(filter) => filter.shape(),
        }
    }

    /// What it counts about itself.
    #[must_use]
    pub fn figures(self) -> Figures {
        match self {
            CountingRef::Packed(filter) => filter.figures(),
            CountingRef::Large(filter) => *filter.figures(),
        }
    }

    /// The hash of an item in this filter.
    #[inline]
    #[must_use]
    pub fn hash(self, item: &[u8]) -> u64 {
        match self {
            CountingRef::Packed(filter) => hash_item(item, filter.key()),
            CountingRef::Large(filter) => filter.settings().hash(item),
        }
    }

    /// Whether an item with this hash is in it, or looks like it.
    #[inline]
    #[must_use]
    pub fn contains(self, hash: u64) -> bool {
        with_cells!(self, cells => cells.contains(hash))
    }

    /// How often an item with this hash is in it: never below the truth up to the ceiling, which means "or more".
    #[inline]
    #[must_use]
    pub fn count(self, hash: u64) -> u64 {
        with_cells!(self, cells => cells.count(hash))
    }

    /// Asks the processor for what a question or a change with this hash will look at.
    #[inline]
    pub fn prefetch(self, hash: u64) {
        with_cells!(self, cells => cells.ask(hash, 0..u32::MAX));
    }

    /// The same for a group of items, if the filter is too large for the cache.
    fn ask_all(self, hashes: &[u64]) {
        with_cells!(self, cells => cells.ask_all(hashes));
    }

    /// Whether each of the items is in it; much quicker than one by one where the cells are not in the cache.
    ///
    /// # Panics
    /// If the slices differ in length.
    pub fn contains_many(self, hashes: &[u64], out: &mut [bool]) {
        assert_eq!(hashes.len(), out.len());
        with_cells!(self, cells => cells.contains_many(hashes, out));
    }

    /// How often each of the items is in it.
    ///
    /// # Panics
    /// If the slices differ in length.
    pub fn count_many(self, hashes: &[u64], out: &mut [u64]) {
        assert_eq!(hashes.len(), out.len());
        with_cells!(self, cells => cells.count_many(hashes, out));
    }

    /// The share of cells above 0.
    #[must_use]
    pub fn fill(self) -> f64 {
        self.figures().nonzero as f64 / self.shape().cells as f64
    }

    /// The share of items never added that it would say yes to now.
    #[must_use]
    pub fn error_now(self) -> f64 {
        self.fill().powi(self.shape().hashes as i32)
    }

    /// About as many different items make so many cells differ from 0.
    #[must_use]
    pub fn items_estimated(self) -> u64 {
        let (cells, hashes) = (self.shape().cells as f64, f64::from(self.shape().hashes));
        // When all are above 0 there is no telling; one short of it is the most that there is.
        let fill = self.fill().min(1.0 - 1.0 / (cells + 1.0));
        (-cells / hashes * (-fill).ln_1p()).round() as u64
    }

    /// Copies the bytes of its cells, as they stand in words, from `offset` on, which is a multiple of 8.
    ///
    /// # Panics
    /// If the offset is another one, or the range does not lie inside them.
    pub fn copy_bytes(self, offset: usize, out: &mut [u8]) {
        assert_eq!(offset % WORD_BYTES, 0);
        if let CountingRef::Large(filter) = self {
            return filter.array().copy_bytes(offset, out);
        }
        for (i, out) in (offset / WORD_BYTES..).zip(out.chunks_mut(WORD_BYTES)) {
            out.copy_from_slice(&self.word(i).to_le_bytes()[..out.len()]);
        }
    }

    fn word(self, i: usize) -> u64 {
        with_cells!(self, cells => cells.word(i))
    }

    /// The Bloom filter "counter above 0" from byte `offset` on: bit `x` of it, least significant first, is cell `x`.
    ///
    /// # Panics
    /// If the range does not lie inside the [`export_bytes`](Shape::export_bytes).
    pub fn export_bits(self, offset: usize, out: &mut [u8]) {
        assert!(offset as u64 + out.len() as u64 <= self.shape().export_bytes());
        with_cells!(self, cells => cells.export_bits(offset, out));
    }

    /// Whether cells and figures fit: what must hold after each change, and of whatever was loaded.
    #[must_use]
    pub fn is_sound(self) -> bool {
        let Figures { nonzero, saturated, .. } = self.figures();
        let counted = with_cells!(self, cells => cells.recount());
        counted == Some((nonzero, saturated))
    }

    /// The same filter with an allocation of its own.
    ///
    /// # Errors
    /// [`AllocError`] when there is no memory for it.
    pub fn to_large(self) -> Result<CountingBloom, AllocError> {
        CountingBloom::copy_of(self)
    }

    /// Whether this filter can take in that one; `force` lets it hold more than it is made for.
    ///
    /// # Errors
    /// [`MergeError`].
    pub fn check_merge(self, other: CountingRef<'_>, force: bool) -> Result<(), MergeError> {
        check_alike(&self.settings(), self.shape(), &other.settings(), other.shape())?;
        let items = self.figures().items.saturating_add(other.figures().items);
        let capacity = self.settings().capacity;
        if items > capacity && !force { Err(MergeError::TooMany { items, capacity }) } else { Ok(()) }
    }
}

/// A counting filter in either form, to write.
pub enum CountingMut<'a> {
    /// All in one slice of bytes.
    Packed(PackedCountingMut<'a>),
    /// With an allocation of its own.
    Large(&'a mut CountingBloom),
}

/// Does the same to either form, over words that can be written and the figures.
macro_rules! with_cells_mut {
    ($filter:expr, $cells:ident, $figures:ident => $work:expr) => {
        match $filter {
            CountingMut::Packed(filter) => filter.write(|$cells, $figures| $work),
            CountingMut::Large(filter) => filter.write(|$cells, $figures| $work),
        }
    };
}

impl CountingMut<'_> {
    /// The same filter, to read.
    #[inline]
    #[must_use]
    pub fn as_ref(&self) -> CountingRef<'_> {
        match self {
            CountingMut::Packed(filter) => CountingRef::Packed(filter.as_ref()),
            CountingMut::Large(filter) => CountingRef::Large(filter),
        }
    }

    /// Counts an item with this hash, which it always does: whether it was not in the filter before.
    ///
    /// # Errors
    /// [`Refused`]; nothing has changed then.
    #[inline]
    pub fn insert(&mut self, hash: u64) -> Result<bool, Refused> {
        let limit = self.limit();
        if let CountingMut::Packed(filter) = self {
            filter.check_room(hash)?;
        }
        with_cells_mut!(self, cells, figures => cells.insert(hash, limit, figures))
    }

    /// Takes one item with this hash out; false if none is there, and then nothing has changed.
    #[inline]
    pub fn remove(&mut self, hash: u64) -> bool {
        with_cells_mut!(self, cells, figures => cells.remove(hash, figures))
    }

    /// Adds the items in their order until one cannot be counted without [room](Refused::NeedsRoom); returns how many have an answer.
    ///
    /// # Panics
    /// If the slices differ in length.
    pub fn insert_many(&mut self, hashes: &[u64], out: &mut [Result<bool, Refused>]) -> usize {
        assert_eq!(hashes.len(), out.len());
        let mut done = 0;
        for (hashes, out) in hashes.chunks(GROUP).zip(out.chunks_mut(GROUP)) {
            self.as_ref().ask_all(hashes);
            for (hash, out) in hashes.iter().zip(out) {
                match self.insert(*hash) {
                    Err(Refused::NeedsRoom { .. }) => return done,
                    answer => *out = answer,
                }
                done += 1;
            }
        }
        done
    }

    /// Removes each of the items, in their order.
    ///
    /// # Panics
    /// If the slices differ in length.
    pub fn remove_many(&mut self, hashes: &[u64], out: &mut [bool]) {
        assert_eq!(hashes.len(), out.len());
        for (hashes, out) in hashes.chunks(GROUP).zip(out.chunks_mut(GROUP)) {
            self.as_ref().ask_all(hashes);
            hashes.iter().zip(out).for_each(|(hash, out)| *out = self.remove(*hash));
        }
    }

    /// Halves the counters of some words, rounding down, those at the ceiling too; returns the sum that is left of them. A long decay is
    /// done piece by piece; when all words were halved, [`decayed`](Self::decayed) ends it.
    ///
    /// # Panics
    /// If there are no such words.
    pub fn decay_words(&mut self, words: std::ops::Range<usize>) -> u64 {
        with_cells_mut!(self, cells, figures => cells.decay(words, figures))
    }

    /// All words were halved, which left this `sum`: the items are `sum / hashes` then, to the nearest.
    pub fn decayed(&mut self, sum: u64) {
        let hashes = u64::from(self.as_ref().shape().hashes);
        with_cells_mut!(self, _cells, figures => {
            figures.items = (sum + hashes / 2) / hashes;
            figures.turn();
        });
    }

    /// Forgets half of everything: see [`decay_words`](Self::decay_words).
    pub fn decay(&mut self) {
        let words = self.as_ref().shape().words() as usize;
        let sum = self.decay_words(0..words);
        self.decayed(sum);
    }

    /// Adds the counters of some words of another filter of the same shape, up to the ceiling. When that was done to all words,
    /// [`merged`](Self::merged) ends it. There is [room](Self::check_room) for them.
    ///
    /// # Panics
    /// If there are no such words, or there is no room.
    pub fn merge_words(&mut self, other: CountingRef<'_>, words: std::ops::Range<usize>) {
        with_cells!(other, others => with_cells_mut!(self, cells, figures => cells.merge(others, words, figures)));
    }

    /// All words of the other filter were added.
    pub fn merged(&mut self, other: CountingRef<'_>) {
        let items = other.figures().items;
        with_cells_mut!(self, _cells, figures => {
            figures.turn();
            figures.items = figures.items.saturating_add(items).min(MOST_FIGURE);
        });
    }

    /// Whether there is room for so many more counters: all that another filter brings, say. Large filters always have it, and packed ones with
    /// [`full_len`](packed::full_len) bytes.
    ///
    /// # Errors
    /// [`Refused::NeedsRoom`].
    pub fn check_room(&self, counters: u64) -> Result<(), Refused> {
        match self {
            CountingMut::Packed(filter) => filter.check_room_for(counters),
            CountingMut::Large(_) => Ok(()),
        }
    }

    /// Takes in what the other filter holds; `force` lets it hold more than it is made for. There is [room](Self::check_room) for it.
    ///
    /// # Errors
    /// [`MergeError`]; nothing has changed then.
    ///
    /// # Panics
    /// If there is no room.
    pub fn merge(&mut self, other: CountingRef<'_>, force: bool) -> Result<(), MergeError> {
        self.as_ref().check_merge(other, force)?;
        let words = self.as_ref().shape().words() as usize;
        self.merge_words(other, 0..words);
        self.merged(other);
        Ok(())
    }

    /// Puts bytes where cells are, from `offset` on, for whoever loads a filter; [`loaded`](Self::loaded) ends it. There is
    /// [room](Self::check_room) for any.
    ///
    /// # Panics
    /// If the range does not lie inside the cells, or there is no room.
    pub fn load_bytes(&mut self, offset: usize, data: &[u8]) {
        with_cells_mut!(self, cells, figures => cells.load_bytes(offset, data, figures));
    }

    /// All bytes were loaded. False if no filter of this shape can have them.
    #[must_use]
    pub fn loaded(&mut self, items: u64, version: u64, turns: u8) -> bool {
        if !with_cells!(self.as_ref(), cells => cells.ends_clean()) {
            return false;
        }
        with_cells_mut!(self, _cells, figures => *figures = Figures { items, version, turns: turns % TURNS, ..*figures });
        true
    }

    /// Items from which on new ones are refused.
    #[inline]
    fn limit(&self) -> Option<u64> {
        match self {
            CountingMut::Packed(filter) => filter.as_ref().limit(),
            CountingMut::Large(filter) => filter.settings().strict.then_some(filter.settings().capacity),
        }
    }
}

/// Whether two filters count the same items in the same cells.
///
/// # Errors
/// [`MergeError::Differ`].
pub fn check_alike(one: &Settings, own: Shape, other: &Settings, theirs: Shape) -> Result<(), MergeError> {
    let figures = [
        ("hashes", u64::from(own.hashes), u64::from(theirs.hashes)),
        ("cells", own.cells, theirs.cells),
        ("counter bits", own.counter_bits.bits().into(), theirs.counter_bits.bits().into()),
    ];
    for (what, own, theirs) in figures {
        if own != theirs {
            return Err(MergeError::Differ(what, own.to_string(), theirs.to_string()));
        }
    }
    if one.key != other.key {
        let name = |key: Option<HashKey>| if key.is_some() { "its own" } else { "none" };
        let theirs = if one.key.is_some() && other.key.is_some() { "another" } else { name(other.key) };
        return Err(MergeError::Differ("key", name(one.key).to_owned(), theirs.to_owned()));
    }
    Ok(())
}
