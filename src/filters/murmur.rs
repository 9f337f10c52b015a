//! MurmurHash64A and MurmurHash2-32, the two hashes of RedisBloom.
//!
//! Both were written by Austin Appleby and put in the public domain. They are part of the format of every classic Bloom
//! filter here: dumps cross between servers only because each bit lands in the same place, so neither function may ever
//! change. `tests/vectors/murmur64a.tsv` pins them.
//!
//! **64A**, all arithmetic modulo 2^64, `m = 0xc6a4a7935bd1e995`, reads little-endian:
//!
//! ```text
//! h = seed ^ (len * m)
//! each 8 bytes:      k = word * m;  k ^= k >> 47;  h = (h ^ (k * m)) * m
//! tail of 1..7:      h = (h ^ tail) * m            (the tail as a little-endian integer, bytes never sign-extended)
//! end:               h ^= h >> 47;  h *= m;  h ^= h >> 47
//! ```
//!
//! **2-32** is the same idea in 32 bits with `m = 0x5bd1e995` and shifts 24, 13 and 15.
//!
//! Neither is keyed: who knows the function can make items that collide. A filter that must stand up to its clients needs
//! a keyed hash.

/// Multiplier of MurmurHash64A; RedisBloom also takes it as the seed of an item's first hash.
pub const M64: u64 = 0xc6a4_a793_5bd1_e995;
const R64: u32 = 47;

const M32: u32 = 0x5bd1_e995;
const R32: u32 = 24;

/// MurmurHash64A of `data` under `seed`.
#[inline]
pub fn murmur64a(data: &[u8], seed: u64) -> u64 {
    let mut h = seed ^ (data.len() as u64).wrapping_mul(M64);
    let (blocks, rest) = data.as_chunks::<8>();
    for block in blocks {
        h = (h ^ scramble64(u64::from_le_bytes(*block))).wrapping_mul(M64);
    }
    if !rest.is_empty() {
        h = (h ^ tail64(data, rest)).wrapping_mul(M64);
    }
    h ^= h >> R64;
    h = h.wrapping_mul(M64);
    h ^ (h >> R64)
}

#[inline(always)]
fn scramble64(word: u64) -> u64 {
    let k = word.wrapping_mul(M64);
    (k ^ (k >> R64)).wrapping_mul(M64)
}

/// The 1 to 7 bytes of `rest`, the end of `data`, as a little-endian integer. Reads whole words wherever the item is long
/// enough: a copy of a variable length costs more than the rest of a short item's hash.
#[inline(always)]
fn tail64(data: &[u8], rest: &[u8]) -> u64 {
    if let Some(last) = data.last_chunk::<8>() {
        return u64::from_le_bytes(*last) >> (8 * (8 - rest.len()));
    }
    if let (Some(low), Some(high)) = (rest.first_chunk::<4>(), rest.last_chunk::<4>()) {
        let high = u64::from(u32::from_le_bytes(*high)) << (8 * (rest.len() - 4));
        return u64::from(u32::from_le_bytes(*low)) | high;
    }
    rest.iter().rev().fold(0, |tail, &byte| tail << 8 | u64::from(byte))
}

/// MurmurHash2 (32 bits) of `data` under `seed`: the hash of RedisBloom 1.0 filters, which can still be loaded.
pub fn murmur32(data: &[u8], seed: u32) -> u32 {
    // The C code takes the length as an int: longer items hash by the low 32 bits of their length.
    let mut h = seed ^ data.len() as u32;
    let (blocks, rest) = data.as_chunks::<4>();
    for block in blocks {
        let k = u32::from_le_bytes(*block).wrapping_mul(M32);
        h = h.wrapping_mul(M32) ^ (k ^ (k >> R32)).wrapping_mul(M32);
    }
    if !rest.is_empty() {
        let tail = rest.iter().rev().fold(0, |tail, &byte| tail << 8 | u32::from(byte));
        h = (h ^ tail).wrapping_mul(M32);
    }
    h ^= h >> 13;
    h = h.wrapping_mul(M32);
    h ^ (h >> 15)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of the vector file: 44 inputs, hashed by two releases of RedisBloom and asserted against both.
    fn rows() -> Vec<Vec<String>> {
        let text = include_str!("../../tests/vectors/murmur64a.tsv");
        text.lines().skip(1).map(|line| line.split('\t').map(str::to_owned).collect()).collect()
    }

    fn unhex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.bytes().filter(|&b| b != b'-').collect();
        digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
    }

    #[test]
    fn hashes_equal_the_recorded_ones() {
        let rows = rows();
        assert_eq!(rows.len(), 44);
        for row in rows {
            let item = unhex(&row[1]);
            assert_eq!(item.len().to_string(), row[0]);
            let a = murmur64a(&item, M64);
            assert_eq!(format!("{a:016x}"), row[2], "a of {}", row[1]);
            assert_eq!(format!("{:016x}", murmur64a(&item, a)), row[3], "b of {}", row[1]);
            assert_eq!(format!("{:016x}", murmur64a(&item, 0)), row[5], "seed 0 of {}", row[1]);
            let legacy = murmur32(&item, 0x9747_b28c);
            assert_eq!(format!("{legacy:08x}"), row[8], "legacy a of {}", row[1]);
            assert_eq!(format!("{:08x}", murmur32(&item, legacy)), row[9], "legacy b of {}", row[1]);
            for (seed, column) in [(0, 10), (1, 11), (1919, 12)] {
                assert_eq!(format!("{:08x}", murmur32(&item, seed)), row[column], "seed {seed} of {}", row[1]);
            }
        }
    }
}
