//! The words of a filter, wherever they are: one set of algorithms serves both forms of a filter.
//!
//! A small filter stands in a slice of bytes at any alignment, header and all; a large one has a [`BitArray`] of its own, with huge
//! pages. Both are words of 64 bits whose bit `x` is bit `x & 63` of word `x >> 6`, least significant first, so that the
//! bytes are the same. Fields of up to 64 bits may straddle two words.
//!
//! A large filter is read while another thread, which saves it, reads it too, without a lock: so its words are atomic, read and
//! written one at a time, which costs nothing. Before a word is changed it is noted for who reads a former state
//! ([`FrozenArrays`](super::frozen::FrozenArrays)).

use std::sync::atomic::{AtomicU64, Ordering};

use super::bits::{BitArray, prefetch};
use super::frozen::Changes;

/// Bytes of a word.
pub(super) const WORD_BYTES: usize = size_of::<u64>();

/// Words to read.
pub(super) trait Words {
    /// Word number `i`.
    fn word(&self, i: usize) -> u64;

    /// Asks the processor for the line of a word.
    fn ask(&self, i: usize);

    /// The field of `count` bits, 1 to 64, from bit `at` on.
    #[inline(always)]
    fn field(&self, at: u64, count: u32) -> u64 {
        let (i, shift) = ((at >> 6) as usize, (at & 63) as u32);
        // Without a branch, which no processor could guess. If all of it is in one word, what comes from the "other" one is cut off.
        let other = i + usize::from(shift + count > u64::BITS);
        let value = self.word(i) >> shift | self.word(other) << 1 << (u64::BITS - 1 - shift);
        value & low_mask(count)
    }
}

/// Words to write.
pub(super) trait WordsMut: Words {
    /// Changes word number `i`.
    fn set_word(&mut self, i: usize, word: u64);

    /// Changes the field of `count` bits, 1 to 64, from bit `at` on.
    #[inline(always)]
    fn set_field(&mut self, at: u64, count: u32, value: u64) {
        let (i, shift, mask) = ((at >> 6) as usize, (at & 63) as u32, low_mask(count));
        self.set_word(i, self.word(i) & !(mask << shift) | value << shift);
        if shift + count > u64::BITS {
            let above = u64::BITS - shift;
            self.set_word(i + 1, self.word(i + 1) & !(mask >> above) | value >> above);
        }
    }
}

/// The lowest `count` bits, 1 to 64.
#[inline(always)]
pub(super) fn low_mask(count: u32) -> u64 {
    u64::MAX >> (u64::BITS - count)
}

impl Words for [u8] {
    #[inline(always)]
    fn word(&self, i: usize) -> u64 {
        let bytes = &self[i * WORD_BYTES..][..WORD_BYTES];
        bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }

    /// Small filters are one allocation, which the look at its header has asked for.
    #[inline(always)]
    fn ask(&self, _: usize) {}
}

impl Words for &[u8] {
    #[inline(always)]
    fn word(&self, i: usize) -> u64 {
        (**self).word(i)
    }

    #[inline(always)]
    fn ask(&self, _: usize) {}
}

impl Words for &mut [u8] {
    #[inline(always)]
    fn word(&self, i: usize) -> u64 {
        (**self).word(i)
    }

    #[inline(always)]
    fn ask(&self, _: usize) {}
}

impl WordsMut for [u8] {
    #[inline(always)]
    fn set_word(&mut self, i: usize, word: u64) {
        self[i * WORD_BYTES..][..WORD_BYTES].copy_from_slice(&word.to_le_bytes());
    }
}

impl WordsMut for &mut [u8] {
    #[inline(always)]
    fn set_word(&mut self, i: usize, word: u64) {
        (**self).set_word(i, word);
    }
}

impl Words for &[AtomicU64] {
    #[inline(always)]
    fn word(&self, i: usize) -> u64 {
        u64::from_le(self[i].load(Ordering::Relaxed))
    }

    #[inline(always)]
    fn ask(&self, i: usize) {
        prefetch(&self[i]);
    }
}

/// The words of a large filter, whose only writer has this.
pub(super) struct NotedWords<'a> {
    words: &'a [AtomicU64],
    /// Where changes are noted, and the number of the array there.
    changes: Option<(Changes<'a>, usize)>,
}

impl<'a> NotedWords<'a> {
    /// The array is the only writer's; `changes` and its number there, if a former state of it is being read.
    #[inline(always)]
    pub(super) fn new(array: &'a mut BitArray, changes: Option<(Changes<'a>, usize)>) -> Self {
        NotedWords { words: array.words(), changes }
    }
}

impl Words for NotedWords<'_> {
    #[inline(always)]
    fn word(&self, i: usize) -> u64 {
        self.words.word(i)
    }

    #[inline(always)]
    fn ask(&self, i: usize) {
        self.words.ask(i);
    }
}

impl WordsMut for NotedWords<'_> {
    #[inline(always)]
    fn set_word(&mut self, i: usize, word: u64) {
        let place = &self.words[i];
        if let Some((changes, array)) = &mut self.changes {
            changes.note(*array, i, place.load(Ordering::Relaxed));
        }
        place.store(word.to_le(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fields of every width at every place, in both forms, against bits one by one.
    #[test]
    fn fields_are_the_bits_at_their_place() {
        let mut random = fastrand::Rng::with_seed(11);
        let mut bytes = vec![0u8; 40];
        let mut array = BitArray::zeroed(40).unwrap();
        let mut model = [false; 320];
        for _ in 0..20_000 {
            let count = random.u32(1..=64);
            let at = random.u64(..=320 - u64::from(count));
            let value = random.u64(..) & low_mask(count);
            bytes[..].set_field(at, count, value);
            NotedWords::new(&mut array, None).set_field(at, count, value);
            (0..count).for_each(|i| model[at as usize + i as usize] = value >> i & 1 != 0);

            let count = random.u32(1..=64);
            let at = random.u64(..=320 - u64::from(count));
            let expected = (0..count).map(|i| u64::from(model[at as usize + i as usize]) << i).sum::<u64>();
            assert_eq!(bytes[..].field(at, count), expected);
            assert_eq!(array.words().field(at, count), expected);
        }
        let mut copy = vec![0; 40];
        array.copy_bytes(0, &mut copy);
        assert_eq!(copy, bytes);
    }
}
