//! The hash of an item, and the positions that follow from it: for every filter that is not RedisBloom's.
//!
//! An item is hashed once to 64 bits: XXH3-64 with seed 0, or SipHash-2-4 under a key of the filter's own, which nobody who does
//! not know the key can make collide. All else follows from that hash `h`. With `mix64` the finaliser of splitmix64 the `k`
//! positions among `m` are
//!
//! ```text
//! a = h, b = mix64(h)
//! for i in 1..=k:  position = floor(a * m / 2^64);  a += b;  b += i * ODD          (mod 2^64)
//! ```
//!
//! The large odd step matters: with steps of 1, 2, 3 … the high bits of `a`, which make the position, would hardly differ from
//! plain double hashing, whose rate in an array of 1,148 bits is a tenth too high. Measured rates stand in
//! `tests/vectors/small_filter_hashing.tsv`; test vectors in `docs/hashing.md`.
//!
//! Sources: XXH3 and SipHash as their authors specify them; double hashing: A. Kirsch and M. Mitzenmacher, "Less hashing, same
//! performance", ESA 2006; splitmix64: G. Steele, D. Lea, C. Flood, "Fast splittable pseudorandom number generators", 2014.

use std::hash::Hasher;

use siphasher::sip::SipHasher24;
use xxhash_rust::xxh3::xxh3_64;

/// Bytes of a filter's own key.
pub const KEY_BYTES: usize = 16;
/// The greatest odd number not above 2^64 divided by the golden ratio.
const ODD: u64 = 0x9e37_79b9_7f4a_7c15;

/// The key of a filter whose hashes nobody else can foresee: two little-endian words.
pub type HashKey = [u8; KEY_BYTES];

/// The hash of an item, under this key if there is one.
#[inline]
#[must_use]
pub fn hash_item(item: &[u8], key: Option<&HashKey>) -> u64 {
    match key {
        None => xxh3_64(item),
        Some(key) => {
            let mut hasher = SipHasher24::new_with_key(key);
            hasher.write(item);
            hasher.finish()
        }
    }
}

/// The finaliser of splitmix64: every bit of the result depends on every bit of `x`.
#[inline]
#[must_use]
pub fn mix64(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The positions of an item with this hash among `m`: `hashes` of them, which may repeat.
#[inline]
pub fn positions(hash: u64, m: u64, hashes: u32) -> impl Iterator<Item = u64> {
    let (mut a, mut b) = (hash, mix64(hash));
    (1..=u64::from(hashes)).map(move |i| {
        let position = ((u128::from(a) * u128::from(m)) >> 64) as u64;
        a = a.wrapping_add(b);
        b = b.wrapping_add(i.wrapping_mul(ODD));
        position
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values that the authors of both hashes publish.
    #[test]
    fn hashes_are_the_published_ones() {
        assert_eq!(hash_item(b"", None), 0x2d06_8005_38d3_94c2);
        let key: HashKey = std::array::from_fn(|i| i as u8);
        let item: Vec<u8> = (0..15).collect();
        assert_eq!(hash_item(&item, Some(&key)), 0xa129_ca61_49be_45e5);
    }

    /// The first outputs of splitmix64 from the state 0.
    #[test]
    fn the_mixer_is_that_of_splitmix64() {
        assert_eq!(
            [1, 2, 3].map(|i: u64| mix64(i.wrapping_mul(ODD))),
            [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4, 0x06c4_5d18_8009_454f]
        );
    }

    #[test]
    fn positions_are_within_and_spread() {
        let mut counts = [0u32; 7];
        for i in 0..70_000_u32 {
            positions(hash_item(&i.to_le_bytes(), None), 7, 3).for_each(|position| counts[position as usize] += 1);
        }
        assert!(counts.iter().all(|count| count.abs_diff(30_000) < 700), "{counts:?}");
    }
}
