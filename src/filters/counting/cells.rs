//! Counters in words, wherever those are: all that is done to them.

use smallvec::SmallVec;

use super::{Figures, MOST_HASHES, Refused, Shape};
use crate::filters::item_hash::positions;
use crate::filters::words::{WORD_BYTES, Words, WordsMut};

/// Items looked at together.
pub(super) const GROUP: usize = 64;
/// Positions of an item that are asked for before any is tested: in a half-full filter they end three of four unknown items.
const FIRST: u32 = 2;
/// Smaller filters are taken to be in the cache, where asking only costs.
const ASKED_FROM_WORDS: u64 = (256 << 10) / WORD_BYTES as u64;

/// The cells of a filter.
#[derive(Clone, Copy)]
pub(super) struct Cells<W> {
    shape: Shape,
    words: W,
}

/// Positions of an item, in place.
type Positions = SmallVec<[u64; MOST_HASHES as usize]>;

impl<W: Words> Cells<W> {
    #[inline(always)]
    pub(super) fn new(shape: Shape, words: W) -> Self {
        Self { shape, words }
    }

    /// Where a cell stands: its word, and the bit of it at which it begins.
    #[inline(always)]
    fn place(&self, cell: u64) -> (usize, u32) {
        let bit = cell * u64::from(self.shape.counter_bits.bits());
        ((bit >> 6) as usize, (bit & 63) as u32)
    }

    #[inline(always)]
    fn get(&self, cell: u64) -> u64 {
        let (word, shift) = self.place(cell);
        self.words.word(word) >> shift & self.shape.counter_bits.ceiling()
    }

    #[inline(always)]
    fn positions(&self, hash: u64) -> impl Iterator<Item = u64> + use<W> {
        positions(hash, self.shape.cells, self.shape.hashes)
    }

    /// The distinct positions, whose lines are asked for.
    #[inline(always)]
    fn distinct(&self, hash: u64) -> Positions {
        let mut distinct = Positions::new();
        for position in self.positions(hash) {
            self.words.ask(self.place(position).0);
            let repeats = distinct.iter().fold(false, |repeats, other| repeats | (*other == position));
            if !repeats {
                distinct.push(position);
            }
        }
        distinct
    }

    /// How many of an item's cells are 0.
    pub(super) fn missing(&self, hash: u64) -> u64 {
        self.distinct(hash).iter().filter(|cell| self.get(**cell) == 0).count() as u64
    }

    /// Word number `i` of the cells.
    #[inline(always)]
    pub(super) fn word(&self, i: usize) -> u64 {
        self.words.word(i)
    }

    #[inline(always)]
    pub(super) fn contains(&self, hash: u64) -> bool {
        self.positions(hash).all(|cell| self.get(cell) > 0)
    }

    #[inline(always)]
    pub(super) fn count(&self, hash: u64) -> u64 {
        self.positions(hash).map(|cell| self.get(cell)).min().unwrap_or(0)
    }

    /// Asks for the lines of some of an item's positions.
    #[inline(always)]
    pub(super) fn ask(&self, hash: u64, range: std::ops::Range<u32>) {
        let (skipped, end) = (range.start as usize, range.end as usize);
        self.positions(hash).take(end).skip(skipped).for_each(|cell| self.words.ask(self.place(cell).0));
    }

    /// Asks for the lines of a group of items.
    pub(super) fn ask_all(&self, hashes: &[u64]) {
        if self.is_asked_for() {
            hashes.iter().for_each(|hash| self.ask(*hash, 0..u32::MAX));
        }
    }

    fn is_asked_for(&self) -> bool {
        self.shape.words() >= ASKED_FROM_WORDS
    }

    pub(super) fn contains_many(&self, hashes: &[u64], out: &mut [bool]) {
        for (hashes, out) in hashes.chunks(GROUP).zip(out.chunks_mut(GROUP)) {
            if self.is_asked_for() {
                self.contains_group(hashes, out);
            } else {
                hashes.iter().zip(out).for_each(|(hash, out)| *out = self.contains(*hash));
            }
        }
    }

    /// The first positions of all, then the others of those that are left.
    fn contains_group(&self, hashes: &[u64], out: &mut [bool]) {
        hashes.iter().for_each(|hash| self.ask(*hash, 0..FIRST));
        for (hash, out) in hashes.iter().zip(&mut *out) {
            // All of them, without a branch on the outcome, which no processor could guess.
            let first = self.positions(*hash).take(FIRST as usize);
            *out = first.fold(true, |found, cell| found & (self.get(cell) > 0));
        }
        let left = hashes.iter().zip(&*out).filter(|(_, found)| **found);
        left.for_each(|(hash, _)| self.ask(*hash, FIRST..u32::MAX));
        for (hash, out) in hashes.iter().zip(out).filter(|(_, found)| **found) {
            *out = self.positions(*hash).skip(FIRST as usize).all(|cell| self.get(cell) > 0);
        }
    }

    pub(super) fn count_many(&self, hashes: &[u64], out: &mut [u64]) {
        for (hashes, out) in hashes.chunks(GROUP).zip(out.chunks_mut(GROUP)) {
            self.ask_all(hashes);
            hashes.iter().zip(out).for_each(|(hash, out)| *out = self.count(*hash));
        }
    }

    /// Of each cell of a word the lowest bit: whether the cell is above 0.
    fn nonzero(&self, word: u64) -> u64 {
        let bits = self.shape.counter_bits.bits();
        // Each step looks so far again as all before it.
        let folded = std::iter::successors(Some(1), |step| Some(step * 2)).take_while(|step| *step < bits);
        folded.fold(word, |word, step| word | word >> step) & self.ones()
    }

    /// Of each cell of a word the lowest bit: whether the cell is at its ceiling.
    fn saturated(&self, word: u64) -> u64 {
        !self.nonzero(!word) & self.ones()
    }

    /// The lowest bit of each cell of a word.
    fn ones(&self) -> u64 {
        u64::MAX / self.shape.counter_bits.ceiling()
    }

    fn all_words(&self) -> impl Iterator<Item = u64> {
        (0..self.shape.words() as usize).map(|i| self.words.word(i))
    }

    /// Whether nothing stands behind the last cell.
    pub(super) fn ends_clean(&self) -> bool {
        let (word, shift) = self.place(self.shape.cells);
        shift == 0 || self.words.word(word) >> shift == 0
    }

    /// Cells above 0 and cells at their ceiling; none if something stands behind the last cell.
    pub(super) fn recount(&self) -> Option<(u64, u64)> {
        if !self.ends_clean() {
            return None;
        }
        let add = |(nonzero, saturated): (u64, u64), word: u64| {
            let ones = |bits: u64| u64::from(bits.count_ones());
            (nonzero + ones(self.nonzero(word)), saturated + ones(self.saturated(word)))
        };
        Some(self.all_words().fold((0, 0), add))
    }

    /// The sum of the counters of a word.
    fn sum(&self, word: u64) -> u64 {
        let (bits, ceiling) = (self.shape.counter_bits.bits(), self.shape.counter_bits.ceiling());
        (0..u64::BITS / bits).map(|i| word >> (i * bits) & ceiling).sum()
    }

    pub(super) fn export_bits(&self, offset: usize, out: &mut [u8]) {
        let bits = self.shape.counter_bits.bits();
        for (byte, first) in out.iter_mut().zip((offset as u64 * 8..).step_by(8)) {
            // Eight cells never straddle a word.
            let (word, shift) = self.place(first);
            let nonzero = self.nonzero(self.words.word(word)) >> shift;
            *byte = (0..8).fold(0, |byte, i| byte | (nonzero >> (i * bits) as u64 & 1) << i) as u8;
        }
    }
}

impl<W: WordsMut> Cells<W> {
    #[inline(always)]
    fn set(&mut self, cell: u64, counter: u64) {
        let (word, shift) = self.place(cell);
        let others = self.words.word(word) & !(self.shape.counter_bits.ceiling() << shift);
        self.words.set_word(word, others | counter << shift);
    }

    /// Counts an item: whether it is new. With a limit, new ones from so many items on are refused.
    #[inline(always)]
    pub(super) fn insert(&mut self, hash: u64, limit: Option<u64>, figures: &mut Figures) -> Result<bool, Refused> {
        let distinct = self.distinct(hash);
        if let Some(capacity) = limit
            && figures.items >= capacity
            && !distinct.iter().all(|cell| self.get(*cell) > 0)
        {
            return Err(Refused::Full { items: figures.items, capacity });
        }
        let ceiling = self.shape.counter_bits.ceiling();
        let mut known = true;
        for &cell in &distinct {
            let counter = self.get(cell);
            known &= counter > 0;
            if counter < ceiling {
                self.set(cell, counter + 1);
                figures.nonzero += u64::from(counter == 0);
                figures.saturated += u64::from(counter + 1 == ceiling);
            }
        }
        *figures = figures.after(1);
        Ok(!known)
    }

    /// Takes an item out: whether it was there.
    #[inline(always)]
    pub(super) fn remove(&mut self, hash: u64, figures: &mut Figures) -> bool {
        let distinct = self.distinct(hash);
        if !distinct.iter().all(|cell| self.get(*cell) > 0) {
            return false;
        }
        let ceiling = self.shape.counter_bits.ceiling();
        for &cell in &distinct {
            let counter = self.get(cell);
            if counter < ceiling {
                self.set(cell, counter - 1);
                figures.nonzero -= u64::from(counter == 1);
            }
        }
        figures.items = figures.items.saturating_sub(1);
        *figures = figures.after(0);
        true
    }

    /// Changes a word, and the figures with it.
    fn change(&mut self, i: usize, new: u64, figures: &mut Figures) {
        let old = self.words.word(i);
        if old == new {
            return;
        }
        let (nonzero, saturated) = (self.nonzero(old).count_ones(), self.saturated(old).count_ones());
        figures.nonzero = figures.nonzero + u64::from(self.nonzero(new).count_ones()) - u64::from(nonzero);
        figures.saturated = figures.saturated + u64::from(self.saturated(new).count_ones()) - u64::from(saturated);
        self.words.set_word(i, new);
    }

    /// Halves the counters of some words; returns their sum then.
    pub(super) fn decay(&mut self, words: std::ops::Range<usize>, figures: &mut Figures) -> u64 {
        // Without the bit that came from the cell above.
        let kept = self.ones() * (self.shape.counter_bits.ceiling() >> 1);
        let mut sum = 0;
        for i in words {
            let halved = self.words.word(i) >> 1 & kept;
            self.change(i, halved, figures);
            sum += self.sum(halved);
        }
        sum
    }

    pub(super) fn merge<V: Words>(&mut self, other: Cells<V>, words: std::ops::Range<usize>, figures: &mut Figures) {
        for i in words {
            let (one, two) = (self.words.word(i), other.words.word(i));
            if two != 0 {
                self.change(i, self.added(one, two), figures);
            }
        }
    }

    /// The counters of two words added, each up to the ceiling.
    fn added(&self, one: u64, two: u64) -> u64 {
        let (bits, ceiling) = (self.shape.counter_bits.bits(), self.shape.counter_bits.ceiling());
        let of = |word: u64, i: u32| word >> (i * bits) & ceiling;
        (0..u64::BITS / bits).fold(0, |sum, i| sum | (of(one, i) + of(two, i)).min(ceiling) << (i * bits))
    }

    pub(super) fn load_bytes(&mut self, offset: usize, data: &[u8], figures: &mut Figures) {
        let (mut at, mut rest) = (offset, data);
        while !rest.is_empty() {
            let (i, within) = (at / WORD_BYTES, at % WORD_BYTES);
            let (part, behind) = rest.split_at(rest.len().min(WORD_BYTES - within));
            let mut bytes = self.words.word(i).to_le_bytes();
            bytes[within..within + part.len()].copy_from_slice(part);
            self.change(i, u64::from_le_bytes(bytes), figures);
            (at, rest) = (at + part.len(), behind);
        }
    }
}
