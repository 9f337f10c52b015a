//! The checksum of the append-only log.
//!
//! CRC-32C (Castagnoli): polynomial `1edc6f41`, bits reflected, all ones at the start, inverted at the end: the bytes
//! `123456789` give `e3069283`. This file is the only one that knows which crate computes it.

use crc_fast::{CrcAlgorithm, Digest};

/// The checksum of `bytes`.
pub fn crc32c(bytes: &[u8]) -> u32 {
    // The crate returns every checksum in 64 bits.
    crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// A checksum that grows with the bytes it is given.
#[derive(Clone, Debug)]
pub struct Crc32c(Digest);

impl Crc32c {
    /// The checksum of no bytes.
    pub fn new() -> Crc32c {
        Crc32c(Digest::new(CrcAlgorithm::Crc32Iscsi))
    }

    /// Takes further bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The checksum of all bytes taken so far.
    pub fn value(&self) -> u32 {
        self.0.finalize() as u32
    }
}

impl Default for Crc32c {
    fn default() -> Crc32c {
        Crc32c::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_value_comes_out_whole_and_in_pieces() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        let mut crc = Crc32c::new();
        crc.update(b"1234");
        crc.update(b"56789");
        assert_eq!(crc.value(), 0xe306_9283);
        assert_eq!(Crc32c::new().value(), crc32c(b""));
    }
}
