//! Cells of which most are 0: one bit for each, and a counter for those that are not.
//!
//! ```text
//! bits, as many bytes for each word of cells as it has cells over 8 | the counters of cells whose bit is set, in order | room
//! ```
//!
//! That is 3 bits a cell in a filter at its capacity instead of 4, and a half of them in one with a third of its items. A counter is found by counting the
//! bits before its own, and one that comes or goes moves those behind it: so this is for small filters.

use super::{CounterBits, Shape};
use crate::filters::ring::bits::count_ones;
use crate::filters::words::{Words, WordsMut};

/// Filters with more cells are not kept so.
pub(super) const MOST_CELLS: u64 = 1024;

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

    #[inline]
    fn counter(&self, i: usize) -> u64 {
        let counters = &self.bytes.as_ref()[self.bits_len..];
        match self.counter_bits {
            CounterBits::Four => u64::from(counters[i / 2] >> (i % 2 * 4) & 15),
            CounterBits::Eight => counters[i].into(),
        }
    }

    #[inline]
    fn read(&self, word: usize) -> u64 {
        let (mut bits, mut cells) = (self.bits_of(word), 0);
        if bits == 0 {
            return 0;
        }
        for i in self.before(word).. {
            cells |= self.counter(i) << (bits.trailing_zeros() * self.counter_bits.bits());
            bits &= bits - 1;
            if bits == 0 {
                break;
            }
        }
        cells
    }
}

impl<B: AsRef<[u8]> + AsMut<[u8]>> Ranked<B> {
    fn set_counter(&mut self, i: usize, counter: u64) {
        let counters = &mut self.bytes.as_mut()[self.bits_len..];
        match self.counter_bits {
            CounterBits::Four => {
                let (byte, shift) = (&mut counters[i / 2], i % 2 * 4);
                *byte = *byte & !(15 << shift) | (counter as u8) << shift;
            }
            CounterBits::Eight => counters[i] = counter as u8,
        }
    }

    /// Moves the counters from `from` to `end` so that the first of them is number `to`; what becomes free is 0.
    fn shift(&mut self, from: usize, end: usize, to: usize) {
        if to > from {
            (from..end).rev().for_each(|i| self.set_counter(i + to - from, self.counter(i)));
        } else {
            (from..end).for_each(|i| self.set_counter(i + to - from, self.counter(i)));
            (end + to - from..end).for_each(|i| self.set_counter(i, 0));
        }
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
        let (width, ceiling) = (self.counter_bits.bits(), self.counter_bits.ceiling());
        let counters = (0..u64::BITS / width).map(|cell| (cell, word >> (cell * width) & ceiling));
        let present = counters.filter(|(_, counter)| *counter > 0);
        let bits = present.clone().fold(0, |bits, (cell, _)| bits | 1 << cell);
        let (first, before, now) = (self.before(i), self.bits_of(i).count_ones(), u64::count_ones(bits));
        if before != now {
            let end = count_ones(&self.bytes.as_ref()[..self.bits_len]) as usize;
            self.shift(first + before as usize, end, first + now as usize);
        }
        let each = bytes_of_word(self.counter_bits);
        self.bytes.as_mut()[i * each..][..each].copy_from_slice(&bits.to_le_bytes()[..each]);
        present.zip(first..).for_each(|((_, counter), i)| self.set_counter(i, counter));
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
