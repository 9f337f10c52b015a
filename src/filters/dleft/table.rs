//! One set of sub-tables, in words, wherever those are.
//!
//! A bucket is the number of its cells that are used, then the cells, those used first; a cell is a fingerprint, then a counter, which
//! holds the copies less one. Every bit that is not in use is 0, so an empty table is all zeros, and a fingerprint of 0 is like
//! any other. Bucket `b` of sub-table `i` is number `i B + b`; they follow each other without a gap.
//!
//! **Cells side by side.** As many whole cells as fit into a word are compared at once. Of each, without its counter, the bits that
//! differ from the fingerprint are taken, and the bit above them, where the counter was, is set; less one, that bit is gone only where none
//! differed. No cell can borrow from the next.

use super::geometry::{Layout, MOST_SUBTABLES};
use super::permutation::{Inverses, Permutations};
use crate::filters::words::{Words, WordsMut, low_mask};

/// A set of sub-tables.
#[derive(Clone, Copy)]
pub(super) struct Table<'a, W> {
    pub layout: &'a Layout,
    pub permutations: &'a Permutations,
    pub words: W,
}

/// Where a fingerprint can stand.
#[derive(Clone, Copy, Default)]
pub(super) struct Probe {
    places: [Place; MOST_SUBTABLES],
}

/// Its place in one sub-table.
#[derive(Clone, Copy, Default)]
struct Place {
    /// The bit at which the bucket begins.
    bucket: u64,
    fingerprint: u64,
    /// Cells that the bucket uses, once it was looked at.
    used: u32,
}

/// The cell of a fingerprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub subtable: usize,
    pub slot: u32,
}

impl<W: Words> Table<'_, W> {
    /// The places of a fingerprint, whose lines are asked for.
    #[inline(always)]
    pub(super) fn probe(&self, f: u64) -> Probe {
        let mut probe = Probe::default();
        let geometry = &self.layout.geometry;
        let mut first = 0;
        for (i, place) in probe.places.iter_mut().enumerate().take(geometry.subtables as usize) {
            let permuted = self.permutations.apply(i, f);
            place.bucket = (first + (permuted >> geometry.fingerprint_bits)) * self.layout.bucket_bits;
            place.fingerprint = permuted & low_mask(geometry.fingerprint_bits);
            self.words.ask((place.bucket >> 6) as usize);
            self.words.ask(((place.bucket + self.layout.bucket_bits - 1) >> 6) as usize);
            first += geometry.buckets;
        }
        probe
    }

    /// The cell that stands for the fingerprint of this probe; there is one at most.
    #[inline(always)]
    pub(super) fn search(&self, probe: &mut Probe) -> Option<Found> {
        let subtables = self.layout.geometry.subtables as usize;
        probe.places.iter_mut().take(subtables).enumerate().find_map(|(subtable, place)| {
            place.used = self.used(place.bucket);
            self.slot_of(place).map(|slot| Found { subtable, slot })
        })
    }

    #[inline(always)]
    fn used(&self, bucket: u64) -> u32 {
        self.words.field(bucket, self.layout.used_bits) as u32
    }

    #[inline(always)]
    fn cell(&self, bucket: u64, slot: u32) -> u64 {
        bucket + u64::from(self.layout.used_bits + slot * self.layout.cell_bits)
    }

    /// The cell of a bucket that has this fingerprint. Only as many groups of cells are looked at as are in use: to look at all, without a
    /// branch, took longer.
    #[inline(always)]
    fn slot_of(&self, place: &Place) -> Option<u32> {
        let Layout { cell_bits, group, ones, geometry, .. } = *self.layout;
        let counters = ones << geometry.fingerprint_bits;
        let (fingerprints, wanted) = (counters - ones, ones.wrapping_mul(place.fingerprint));
        let mut first = 0;
        while first < place.used {
            let width = group.min(place.used - first) * cell_bits;
            let differ = (self.words.field(self.cell(place.bucket, first), width) ^ wanted) & fingerprints;
            let equal = !((differ | counters) - ones) & counters & low_mask(width);
            if equal != 0 {
                return Some(first + equal.trailing_zeros() / cell_bits);
            }
            first += group;
        }
        None
    }

    /// How many copies a cell counts.
    #[inline(always)]
    pub(super) fn copies(&self, probe: &Probe, found: Found) -> u64 {
        let geometry = &self.layout.geometry;
        let cell = self.cell(probe.places[found.subtable].bucket, found.slot);
        self.words.field(cell + u64::from(geometry.fingerprint_bits), geometry.counter_bits) + 1
    }

    /// Whether no bucket uses more cells than it has, and all bits that are not in use are 0.
    pub(super) fn is_clean(&self) -> bool {
        (0..self.buckets()).all(|number| self.is_clean_bucket(number)) && self.ends_clean()
    }

    /// Buckets of all sub-tables.
    pub(super) fn buckets(&self) -> u64 {
        u64::from(self.layout.geometry.subtables) * self.layout.geometry.buckets
    }

    /// Whether this bucket is so.
    pub(super) fn is_clean_bucket(&self, number: u64) -> bool {
        let Layout { geometry, cell_bits, bucket_bits, .. } = *self.layout;
        let bucket = number * bucket_bits;
        let used = self.used(bucket);
        let is_zero = |slot| self.words.field(self.cell(bucket, slot), cell_bits) == 0;
        used <= geometry.cells && (used..geometry.cells).all(is_zero)
    }

    /// Whether all bits behind the last bucket are 0.
    pub(super) fn ends_clean(&self) -> bool {
        let end = self.buckets() * self.layout.bucket_bits;
        let rest = (end.next_multiple_of(u64::BITS.into()) - end) as u32;
        rest == 0 || self.words.field(end, rest) == 0
    }

    /// The first cell that stands for the fingerprint of this probe in each of the sub-tables from this one on.
    pub(super) fn search_from(&self, subtable: usize, probe: &mut Probe) -> impl Iterator<Item = Found> {
        let subtables = self.layout.geometry.subtables as usize;
        probe.places.iter_mut().take(subtables).enumerate().skip(subtable).filter_map(|(subtable, place)| {
            place.used = self.used(place.bucket);
            self.slot_of(place).map(|slot| Found { subtable, slot })
        })
    }
}

/// What one cell holds, and where it is.
#[derive(Clone, Copy)]
pub(super) struct Entry {
    pub f: u64,
    pub copies: u64,
    pub at: Found,
}

impl<'a, W: Words + Copy + 'a> Table<'a, W> {
    /// All cells that are used, in the order in which they stand.
    pub(super) fn entries(self) -> impl Iterator<Item = Entry> + use<'a, W> {
        let inverses = self.permutations.inverses(self.layout.geometry.subtables);
        (0..self.buckets()).flat_map(move |number| self.entries_of(number, inverses))
    }

    /// Those of one bucket.
    pub(super) fn entries_of(self, number: u64, inverses: Inverses) -> impl Iterator<Item = Entry> + use<'a, W> {
        let geometry = self.layout.geometry;
        let (subtable, in_it) = ((number / geometry.buckets) as usize, number % geometry.buckets);
        let bucket = number * self.layout.bucket_bits;
        (0..self.used(bucket)).map(move |slot| {
            let cell = self.words.field(self.cell(bucket, slot), self.layout.cell_bits);
            let place = in_it << geometry.fingerprint_bits | cell & low_mask(geometry.fingerprint_bits);
            let copies = (cell >> geometry.fingerprint_bits) + 1;
            Entry { f: inverses.apply(subtable, place), copies, at: Found { subtable, slot } }
        })
    }

    /// Cells used of each bucket, in order.
    pub(super) fn loads(self) -> impl Iterator<Item = u32> + use<'a, W> {
        (0..self.buckets()).map(move |number| self.used(number * self.layout.bucket_bits))
    }
}

impl<W: WordsMut> Table<'_, W> {
    /// Counts one copy more, or less, in a cell.
    #[inline(always)]
    pub(super) fn set_copies(&mut self, probe: &Probe, found: Found, copies: u64) {
        let geometry = &self.layout.geometry;
        let cell = self.cell(probe.places[found.subtable].bucket, found.slot);
        self.words.set_field(cell + u64::from(geometry.fingerprint_bits), geometry.counter_bits, copies - 1);
    }

    /// Gives the fingerprint of a probe, which was searched and not found, a cell in its emptiest bucket, the leftmost of several.
    /// Returns the sub-table and the cells that the bucket used before; none if all are full.
    #[inline(always)]
    pub(super) fn place(&mut self, probe: &Probe) -> Option<(usize, u32)> {
        let places = probe.places.iter().enumerate().take(self.layout.geometry.subtables as usize);
        let (subtable, place) = places.min_by_key(|(_, place)| place.used)?;
        if place.used >= self.layout.geometry.cells {
            return None;
        }
        let cell = self.cell(place.bucket, place.used);
        self.words.set_field(cell, self.layout.cell_bits, place.fingerprint);
        self.words.set_field(place.bucket, self.layout.used_bits, u64::from(place.used) + 1);
        Some((subtable, place.used))
    }

    /// Frees a cell: the last one that the bucket uses takes its place. Returns the cells that the bucket used before.
    #[inline(always)]
    pub(super) fn free(&mut self, probe: &Probe, found: Found) -> u32 {
        let Place { bucket, used, .. } = probe.places[found.subtable];
        let last = self.cell(bucket, used - 1);
        let moved = self.words.field(last, self.layout.cell_bits);
        self.words.set_field(self.cell(bucket, found.slot), self.layout.cell_bits, moved);
        self.words.set_field(last, self.layout.cell_bits, 0);
        self.words.set_field(bucket, self.layout.used_bits, u64::from(used) - 1);
        used
    }
}
