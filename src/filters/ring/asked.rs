//! Asking a packed ring for many items at once.
//!
//! Links are mostly of one shape, and in arrays of one shape an item has the same positions. So these are computed once an item,
//! and looked up in all arrays side by side. For many items the arrays are first turned by a quarter: into *columns*, one byte for
//! each position with a bit for each array. Then a position costs one load, whatever the number of links.

use smallvec::SmallVec;

use super::packed::{HASH_BYTES, PackedRing};
use super::shape::ArrayShape;
use crate::filters::item_hash::positions;

/// Arrays that share a byte of the columns.
const MOST_ALIKE: usize = u8::BITS as usize;
/// So many columns are looked up whatever the first ones say: a wrong guess of the processor where to stop takes longer.
const FEW_HASHES: u32 = 8;
/// Columns are made if there are at most so many positions for each item: with five
/// links of 100 bytes a candidate of 200 then takes 29 ns, from socket to socket, instead of 46.
const POSITIONS_PER_ITEM: u64 = 16;

/// The parts of a packed ring that are asked at one time, found once for many items.
pub struct Asked<'a> {
    lists: SmallVec<[&'a [[u8; HASH_BYTES]]; 8]>,
    arrays: SmallVec<[AlikeArrays<'a>; 1]>,
}

/// Arrays of one shape.
struct AlikeArrays<'a> {
    bits: u64,
    hashes: u32,
    contents: SmallVec<[&'a [u8]; MOST_ALIKE]>,
    /// Of each position the bits of all arrays; empty if there are too few items for it.
    columns: SmallVec<[u8; 1024]>,
}

impl AlikeArrays<'_> {
    /// A bit for each array.
    fn all(&self) -> u8 {
        u8::MAX >> (MOST_ALIKE - self.contents.len())
    }

    fn turn(&mut self) {
        let bytes = (self.bits as usize).div_ceil(8);
        self.columns.resize(bytes * 8, 0);
        for (at, column) in self.columns.as_chunks_mut().0.iter_mut().enumerate() {
            let turned =
                self.contents.iter().rev().fold(0, |turned, content| turned << 1 | SPREAD[usize::from(content[at])]);
            *column = turned.to_le_bytes();
        }
    }

    #[inline]
    fn contain(&self, hash: u64) -> bool {
        // Of each array a bit, as long as it has had all positions so far.
        let mut left = self.all();
        if self.columns.is_empty() {
            return positions(hash, self.bits, self.hashes).all(|x| {
                let (byte, shift) = ((x >> 3) as usize, (x & 7) as u32);
                let set = |content: &&[u8]| content[byte] >> shift & 1;
                left &= self.contents.iter().rev().fold(0, |hits, content| hits << 1 | set(content));
                left != 0
            });
        }
        let has = |x: u64| self.columns[x as usize];
        if self.hashes <= FEW_HASHES {
            return positions(hash, self.bits, self.hashes).fold(left, |left, x| left & has(x)) != 0;
        }
        positions(hash, self.bits, self.hashes).all(|x| {
            left &= has(x);
            left != 0
        })
    }
}

/// For each byte its bit `i` as byte `i` of a word.
static SPREAD: [u64; 256] = {
    let mut words = [0; 256];
    let mut bit = 0;
    while bit < 8 * 256 {
        words[bit / 8] |= ((bit as u64 / 8) >> (bit % 8) & 1) << (bit % 8 * 8);
        bit += 1;
    }
    words
};

impl<'a> PackedRing<'a> {
    /// What is asked at this time, for about so many items.
    #[must_use]
    pub fn asked(self, now: u64, items: usize) -> Asked<'a> {
        let mut asked = Asked { lists: SmallVec::new(), arrays: SmallVec::new() };
        for part in self.alive(now) {
            if part.is_list() {
                asked.lists.push(part.content.as_chunks().0);
                continue;
            }
            let ArrayShape { bits, hashes, .. } = part.shape();
            let alike = asked
                .arrays
                .iter_mut()
                .find(|alike| (alike.bits, alike.hashes) == (bits, hashes) && alike.contents.len() < MOST_ALIKE);
            match alike {
                Some(alike) => alike.contents.push(part.content),
                None => {
                    let contents = SmallVec::from_slice(&[part.content]);
                    asked.arrays.push(AlikeArrays { bits, hashes, contents, columns: SmallVec::new() });
                }
            }
        }
        let worth = |alike: &&mut AlikeArrays<'_>| {
            alike.contents.len() > 1 && alike.bits <= POSITIONS_PER_ITEM.saturating_mul(items as u64)
        };
        asked.arrays.iter_mut().filter(worth).for_each(AlikeArrays::turn);
        asked
    }
}

impl Asked<'_> {
    /// As [`PackedRing::contains`].
    #[inline]
    #[must_use]
    pub fn contain(&self, hash: u64) -> bool {
        let listed =
            |list: &&[[u8; HASH_BYTES]]| list.binary_search_by(|listed| u64::from_le_bytes(*listed).cmp(&hash)).is_ok();
        self.lists.iter().any(listed) || self.arrays.iter().any(|alike| alike.contain(hash))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_spread_over_bytes() {
        for byte in 0..=u8::MAX {
            assert_eq!(SPREAD[usize::from(byte)].to_le_bytes(), std::array::from_fn(|i| byte >> i & 1), "{byte}");
        }
    }
}
