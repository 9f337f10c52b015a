//! The checksum of parts of a file.
//!
//! CRC-32C: polynomial `1edc6f41` (G. Castagnoli), bits reflected, start and end inverted: the bytes `123456789` give
//! `e3069283`. This file is the only one that knows which crate computes it.

use crc_fast::{CrcAlgorithm, Digest};

/// A checksum that grows with the bytes it is given.
#[derive(Clone, Debug)]
pub struct Crc32c(Digest);

impl Crc32c {
    /// The checksum of no bytes.
    pub fn new() -> Crc32c {
        Crc32c(Digest::new(CrcAlgorithm::Crc32Iscsi))
    }

    /// The checksum of `bytes`.
    pub fn of(bytes: &[u8]) -> u32 {
        narrow(crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes))
    }

    /// Takes further bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The checksum of all bytes taken so far.
    pub fn value(&self) -> u32 {
        narrow(self.0.finalize())
    }

    /// The checksum of bytes whose own is `first`, followed by `len` bytes whose own is `second`.
    pub fn joined(first: u32, second: u32, len: u64) -> u32 {
        narrow(crc_fast::checksum_combine(CrcAlgorithm::Crc32Iscsi, first.into(), second.into(), len))
    }
}

/// The checksum of `bytes`.
pub fn crc32c(bytes: &[u8]) -> u32 {
    Crc32c::of(bytes)
}

/// The crate gives checksums of every width as 64 bits.
fn narrow(checksum: u64) -> u32 {
    checksum as u32
}

impl Default for Crc32c {
    fn default() -> Crc32c {
        Crc32c::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The check value of the catalogue of CRC algorithms, and vectors of RFC 3720, B.4.
    #[test]
    fn published_values() {
        assert_eq!(Crc32c::of(b"123456789"), 0xe306_9283);
        assert_eq!(Crc32c::of(&[0; 32]), 0x8a91_36aa);
        assert_eq!(Crc32c::of(&[0xff; 32]), 0x62a8_ab43);
        let ascending: [u8; 32] = std::array::from_fn(|i| i as u8);
        assert_eq!(Crc32c::of(&ascending), 0x46dd_794e);
    }

    #[test]
    fn pieces_give_the_checksum_of_the_whole() {
        let bytes: Vec<u8> = (0..1000u32).map(|i| (i * 7) as u8).collect();
        for cut in [0, 1, 8, 63, 500, 999, 1000] {
            let (first, second) = bytes.split_at(cut);
            let mut crc = Crc32c::new();
            crc.update(first);
            crc.update(second);
            assert_eq!(crc.value(), Crc32c::of(&bytes));
            assert_eq!(Crc32c::joined(Crc32c::of(first), Crc32c::of(second), second.len() as u64), Crc32c::of(&bytes));
        }
    }
}
