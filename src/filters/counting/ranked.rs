//! Cells of which most are 0: one bit for each, and a counter for those that are not.
//!
//! ```text
//! bits, as many bytes for each word of cells as it has cells over 8 | the counters of cells whose bit is set, in order | room
//! ```
//!
//! That is 3 bits a cell in a filter at its capacity instead of 4, and a half of them in one with a third of its items. A counter is found by counting the
//! bits before its own, and one that comes or goes moves those behind it: so this is for small filters. An add takes about 0.8 microseconds,
//! and a question 40 nanoseconds.

use super::{CounterBits, Shape};
use crate::filters::ring::bits::count_ones;
use crate::filters::words::{Words, WordsMut};

/// Filters with more cells are not kept so.
pub(super) const MOST_CELLS: u64 = 1024;

/// Bits of the unit in which counters are moved.
const HALF_BITS: usize = 4;
/// So many of them lie in 8 bytes that begin with any of them.
const MOST_HALVES: usize = 15;

/// Bytes of such cells, of which this many are not 0.
pub(super) fn bytes(shape: &Shape, nonzero: u64) -> u64 {
    let counters = (nonzero * u64::from(shape.counter_bits.bits())).div_ceil(8);
    bits_len(shape) as u64 + counters
}

/// Bytes of the bits.
fn bits_len(shape: &Shape) -> usize {
    shape.words() as usize * bytes_of_word(shape.counter_bits)
}

/// Bytes of the bits of one word's cells.
#[inline]
fn bytes_of_word(counter_bits: CounterBits) -> usize {
    match counter_bits {
        CounterBits::Four => 2,
        CounterBits::Eight => 1,
    }
}

/// Such cells, in bytes to read or to write.
#[derive(Clone, Copy)]
pub(super) struct Ranked<B> {
    bytes: B,
    counter_bits: CounterBits,
    /// Where counters begin.
    bits_len: usize,
}

impl<B: AsRef<[u8]>> Ranked<B> {
    pub(super) fn new(shape: &Shape, bytes: B) -> Self {
        Self { bytes, counter_bits: shape.counter_bits, bits_len: bits_len(shape) }
    }

    /// The bits of a word's cells.
    #[inline]
    fn bits_of(&self, word: usize) -> u64 {
        let (bytes, each) = (self.bytes.as_ref(), bytes_of_word(self.counter_bits));
        bytes[word * each..][..each].iter().rev().fold(0, |bits, byte| bits << 8 | u64::from(*byte))
    }

    /// Counters before those of a word.
    #[inline]
    fn before(&self, word: usize) -> usize {
        count_ones(&self.bytes.as_ref()[..word * bytes_of_word(self.counter_bits)]) as usize
    }

    /// Half bytes of a counter: all lengths and places of counters below are in those.
    #[inline]
    fn halves(&self) -> usize {
        self.counter_bits.bits() as usize / HALF_BITS
    }

    /// Some of the half bytes of counters, at most [`MOST_HALVES`].
    #[inline]
    fn load(&self, at: usize, count: usize) -> u64 {
        let (counters, shift) = (&self.bytes.as_ref()[self.bits_len + at / 2..], at % 2 * HALF_BITS);
        let word = match counters.first_chunk() {
            Some(bytes) => u64::from_le_bytes(*bytes),
            None => counters.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
        };
        word >> shift & ((1 << (count * HALF_BITS)) - 1)
    }

    #[inline]
    fn read(&self, word: usize) -> u64 {
        let (mut bits, mut cells) = (self.bits_of(word), 0);
        if bits == 0 {
            return 0;
        }
        let width = self.counter_bits.bits();
        let mut at = self.before(word) * self.halves();
        while bits != 0 {
            cells |= self.load(at, self.halves()) << (bits.trailing_zeros() * width);
            at += self.halves();
            bits &= bits - 1;
        }
        cells
    }
}

impl<B: AsRef<[u8]> + AsMut<[u8]>> Ranked<B> {
    /// Puts half bytes among the counters, at most [`MOST_HALVES`].
    #[inline]
    fn store(&mut self, at: usize, count: usize, halves: u64) {
        let shift = at % 2 * HALF_BITS;
        let mask = ((1 << (count * HALF_BITS)) - 1) << shift;
        let counters = &mut self.bytes.as_mut()[self.bits_len + at / 2..];
        match counters.first_chunk_mut() {
            Some(bytes) => *bytes = (u64::from_le_bytes(*bytes) & !mask | halves << shift).to_le_bytes(),
            None => {
                for (byte, i) in counters.iter_mut().zip((0..).step_by(8)) {
                    *byte = *byte & !((mask >> i) as u8) | (halves << shift >> i) as u8;
                }
            }
        }
    }

    /// Moves the half bytes from `from` to `end` so that they begin at `to`; what becomes free is 0.
    fn shift(&mut self, from: usize, end: usize, to: usize) {
        let count = end - from;
        let blocks = (0..count).step_by(MOST_HALVES).map(|start| (start, MOST_HALVES.min(count - start)));
        let mut moves = |(start, count): (usize, usize)| {
            let halves = self.load(from + start, count);
            self.store(to + start, count, halves);
        };
        if to > from {
            return blocks.rev().for_each(moves);
        }
        blocks.for_each(&mut moves);
        (to + count..end).for_each(|at| self.store(at, 1, 0));
    }
}

impl<B: AsRef<[u8]>> Words for Ranked<B> {
    #[inline]
    fn word(&self, i: usize) -> u64 {
        self.read(i)
    }

    #[inline(always)]
    fn ask(&self, _: usize) {}
}

impl<B: AsRef<[u8]> + AsMut<[u8]>> WordsMut for Ranked<B> {
    /// There must be room for the counters that come.
    fn set_word(&mut self, i: usize, word: u64) {
        let (width, ceiling, halves) = (self.counter_bits.bits(), self.counter_bits.ceiling(), self.halves());
        let counters = (0..u64::BITS).step_by(width as usize).map(|shift| word >> shift & ceiling);
        let bits = counters.zip(0..).fold(0, |bits, (counter, cell)| bits | u64::from(counter > 0) << cell);
        let (before, now) = (self.bits_of(i).count_ones() as usize, u64::count_ones(bits) as usize);
        let mut at = self.before(i) * halves;
        if before != now {
            let end = count_ones(&self.bytes.as_ref()[..self.bits_len]) as usize * halves;
            self.shift(at + before * halves, end, at + now * halves);
        }
        let each = bytes_of_word(self.counter_bits);
        self.bytes.as_mut()[i * each..][..each].copy_from_slice(&bits.to_le_bytes()[..each]);
        let mut left = bits;
        while left != 0 {
            self.store(at, halves, word >> (left.trailing_zeros() * width) & ceiling);
            at += halves;
            left &= left - 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Random words into random places, against plain ones; the bytes that they take are those that are said.
    #[test]
    fn ranked_cells_are_what_was_written() {
        let mut random = fastrand::Rng::with_seed(9);
        for counter_bits in [CounterBits::Four, CounterBits::Eight] {
            let shape = Shape { cells: 500, hashes: 7, counter_bits };
            let words = shape.words() as usize;
            let mut plain = vec![0u64; words];
            let mut ranked = Ranked::new(&shape, vec![0; bytes(&shape, 500) as usize + 3]);
            for _ in 0..20_000 {
                let i = random.usize(..words);
                // Of every density; the last word has fewer cells.
                let mut word = (0..random.u32(..8)).fold(random.u64(..), |word, _| word & random.u64(..));
                if i == words - 1 {
                    word &= u64::MAX >> (words as u64 * u64::from(u64::BITS) - 500 * u64::from(counter_bits.bits()));
                }
                plain[i] = word;
                ranked.set_word(i, word);
                let j = random.usize(..words);
                assert_eq!((ranked.word(i), ranked.word(j)), (word, plain[j]));
            }
            plain.iter().enumerate().for_each(|(i, word)| assert_eq!(ranked.word(i), *word));
            let width = counter_bits.bits();
            let cells = plain.iter().flat_map(|word| (0..u64::BITS / width).map(move |i| word >> (i * width)));
            let nonzero = cells.filter(|cell| cell & counter_bits.ceiling() != 0).count() as u64;
            let used = bytes(&shape, nonzero) as usize;
            assert!(ranked.bytes[used..].iter().all(|byte| *byte == 0));
        }
    }
}
