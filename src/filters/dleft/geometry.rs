//! How large a set of sub-tables is, and where things stand in it.
//!
//! `d` sub-tables have `B` buckets each, a bucket `C` cells, a cell a fingerprint of `r` bits and a counter. The true fingerprint of an item
//! is a number `f` below `M = B 2^r`; with `n` different ones in the filter a stranger is found with probability `n / M`. So
//!
//! ```text
//! B = ceil(n / (d load))        r = ceil(log2(n / (B error)))        bits = d B (C (r + counter) + used)
//! ```
//!
//! with `load` the cells a bucket has used on average at capacity, and `used` the bits that say how many of its cells a bucket uses. Where
//! one bit less and more buckets for it take less, they are taken. At 0.01 that makes 19.3 bits an item, at 0.001 23.3.
//!
//! **Safe loads.** What a bucket needs is not only the average: adds put an item where there is most room, but removes do not. In
//! the limit of many buckets the fraction of buckets of sub-table `j` with at least `i` cells used, `y(j, i)`, follows
//!
//! ```text
//! dy(j, i)/dt = (y(j, i-1) - y(j, i)) prod(l < j) y(l, i) prod(l > j) y(l, i-1)  -  i (y(j, i) - y(j, i+1)) B/n
//! ```
//!
//! when each add comes with a remove of any item. The safe load is the highest, in hundredths of a cell, at whose steady state at most
//! 1e-20 of the buckets would need one cell more than they have. The customary 4 sub-tables of 8 cells stay at 6, where it is 1.7e-27.

use std::ops::RangeInclusive;

use crate::filters::words::{WORD_BYTES, low_mask};

/// How many sub-tables there can be.
pub const SUBTABLES: RangeInclusive<u32> = 2..=8;
/// How many cells a bucket can have.
pub const CELLS: RangeInclusive<u32> = 4..=16;
/// The greatest [`SUBTABLES`].
pub(super) const MOST_SUBTABLES: usize = 8;
/// The greatest [`CELLS`].
pub(super) const MOST_CELLS: usize = 16;
/// Fingerprints are numbers below 2 to this at most: an item is known by 64 bits.
const MOST_RANGE_BITS: u32 = 62;
/// The ranges of further sets reach that of the first.
const MOST_FURTHER_BITS: u32 = 63;
/// With 4 bits of a counter a cell is one word at most.
const MOST_FINGERPRINT_BITS: u32 = 60;
/// Most words of a table.
const MOST_WORDS: u64 = 1 << 56;

/// Cells used of a bucket on average at capacity, in hundredths: by sub-tables (from 2) and cells (from 4).
const SAFE_LOADS: [[u16; 13]; 7] = [
    [66, 131, 207, 290, 377, 467, 559, 652, 747, 842, 938, 1034, 1131],
    [166, 256, 350, 445, 542, 639, 737, 835, 934, 1033, 1132, 1231, 1330],
    [222, 318, 414, 512, 600, 710, 809, 908, 1007, 1107, 1206, 1306, 1406],
    [256, 353, 451, 550, 649, 748, 848, 947, 1047, 1147, 1246, 1346, 1446],
    [278, 376, 475, 574, 674, 773, 873, 972, 1072, 1172, 1272, 1372, 1471],
    [294, 393, 492, 591, 691, 790, 890, 990, 1090, 1190, 1289, 1389, 1489],
    [306, 405, 504, 604, 703, 803, 903, 1003, 1103, 1203, 1302, 1402, 1502],
];

/// Hundredths of a cell that a bucket of this shape may have used on average.
pub(super) fn safe_load(subtables: u32, cells: u32) -> Option<u64> {
    let (row, column) = (subtables.checked_sub(*SUBTABLES.start())?, cells.checked_sub(*CELLS.start())?);
    SAFE_LOADS.get(row as usize)?.get(column as usize).map(|load| u64::from(*load))
}

/// The sizes of a set of sub-tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Sub-tables.
    pub subtables: u32,
    /// Buckets of a sub-table.
    pub buckets: u64,
    /// Cells of a bucket.
    pub cells: u32,
    /// Bits of a cell's fingerprint.
    pub fingerprint_bits: u32,
    /// Bits of a cell's counter.
    pub counter_bits: u32,
}

impl Geometry {
    /// The smallest set for `capacity` items of a range of at least `capacity / error`. None for a shape or a capacity that no set has.
    #[must_use]
    pub fn sized(subtables: u32, cells: u32, counter_bits: u32, capacity: u64, error: f64) -> Option<Self> {
        let wanted = capacity as f64 / error;
        let buckets = buckets_for(subtables, cells, capacity)?;
        let one =
            Self { subtables, buckets, cells, fingerprint_bits: 1, counter_bits }.with_range(wanted, MOST_RANGE_BITS);
        let fewer_bits = one.fingerprint_bits - 1;
        // The same range from more buckets: as a rule that takes more.
        let more = (wanted * 0.5_f64.powi(fewer_bits as i32)).ceil();
        let other = Self { buckets: (more as u64).max(buckets), fingerprint_bits: fewer_bits, ..one };
        let is_better = fewer_bits > 0 && more < MOST_WORDS as f64 && one.reaches(wanted);
        let smallest = if is_better && other.reaches(wanted) && other.bits() < one.bits() { other } else { one };
        (smallest.bits() < u128::from(MOST_WORDS) * 64).then_some(smallest)
    }

    /// A further set for `capacity` items, whose range is at least that of this one.
    #[must_use]
    pub fn further(&self, capacity: u64) -> Option<Self> {
        // A fingerprint has so many bits at most; the rest of the range comes from buckets.
        let least = self.range().div_ceil(1 << MOST_FINGERPRINT_BITS);
        let buckets = buckets_for(self.subtables, self.cells, capacity)?.max(least);
        let further = Self { buckets, fingerprint_bits: 1, ..*self }.with_range(self.range() as f64, MOST_FURTHER_BITS);
        (further.bits() < u128::from(MOST_WORDS) * 64 && further.range() >= self.range()).then_some(further)
    }

    /// As many bits of a fingerprint as this range takes, or as there can be.
    fn with_range(mut self, wanted: f64, most_bits: u32) -> Self {
        let bucket_bits = u64::BITS - self.buckets.leading_zeros();
        let most = most_bits.saturating_sub(bucket_bits).clamp(1, MOST_FINGERPRINT_BITS);
        while self.fingerprint_bits < most && !self.reaches(wanted) {
            self.fingerprint_bits += 1;
        }
        self
    }

    fn reaches(&self, wanted: f64) -> bool {
        self.buckets as f64 * 2.0_f64.powi(self.fingerprint_bits as i32) >= wanted
    }

    /// `M`: true fingerprints are below it.
    #[must_use]
    pub fn range(&self) -> u64 {
        self.buckets << self.fingerprint_bits
    }

    /// Bits that say how many cells of a bucket are used.
    #[inline]
    #[must_use]
    pub fn used_bits(&self) -> u32 {
        u32::BITS - self.cells.leading_zeros()
    }

    /// Bits of a cell.
    #[inline]
    #[must_use]
    pub fn cell_bits(&self) -> u32 {
        self.fingerprint_bits + self.counter_bits
    }

    /// Bits of a bucket: up to 512 it spans two cache lines at most.
    #[inline]
    #[must_use]
    pub fn bucket_bits(&self) -> u32 {
        self.used_bits() + self.cells * self.cell_bits()
    }

    fn bits(&self) -> u128 {
        u128::from(self.subtables) * u128::from(self.buckets) * u128::from(self.bucket_bits())
    }

    /// Words of the whole set. What is left of the last one is 0.
    #[must_use]
    pub fn words(&self) -> u64 {
        self.bits().div_ceil(64) as u64
    }

    /// Bytes of the whole set, in whole words.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.words() * WORD_BYTES as u64
    }

    /// A bucket begins at every multiple of so many bytes. Whoever reads a set in pieces while it is changed begins each piece at one:
    /// removes move cells inside their bucket.
    #[must_use]
    pub fn aligned_bytes(&self) -> u64 {
        u64::from(self.bucket_bits()) * WORD_BYTES as u64
    }

    /// How often an item can be counted.
    #[inline]
    #[must_use]
    pub fn ceiling(&self) -> u64 {
        1 << self.counter_bits
    }
}

/// Buckets of a sub-table for so many items.
fn buckets_for(subtables: u32, cells: u32, capacity: u64) -> Option<u64> {
    let hundredths = u128::from(safe_load(subtables, cells)?) * u128::from(subtables);
    let buckets = (u128::from(capacity) * 100).div_ceil(hundredths).max(1);
    u64::try_from(buckets).ok().filter(|buckets| *buckets < MOST_WORDS)
}

/// Where things stand in a bucket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub geometry: Geometry,
    pub used_bits: u32,
    pub cell_bits: u32,
    pub bucket_bits: u64,
    /// Whole cells of a word.
    pub group: u32,
    /// The lowest bit of each of them.
    pub ones: u64,
}

impl Layout {
    pub(super) fn new(geometry: Geometry) -> Self {
        let cell_bits = geometry.cell_bits();
        let group = u64::BITS / cell_bits;
        let ones = low_mask(group * cell_bits) / low_mask(cell_bits);
        let (used_bits, bucket_bits) = (geometry.used_bits(), u64::from(geometry.bucket_bits()));
        Self { geometry, used_bits, cell_bits, bucket_bits, group, ones }
    }
}
