//! The checksum of RDB files and DUMP payloads.
//!
//! CRC-64 with the polynomial `ad93d23594c935a9` (D. T. Jones), bits reflected, start 0, nothing inverted at the end:
//! the bytes `123456789` give `e9c6d914c4b8d9ca`. The start of 0 means that zeros in front do not change it; it finds
//! damage, not malice. This file is the only one that knows which crate computes it.

use crc_fast::{CrcAlgorithm, Digest};

/// A checksum that grows with the bytes it is given.
#[derive(Clone, Debug)]
pub struct Crc64(Digest);

impl Crc64 {
    /// The checksum of no bytes.
    pub fn new() -> Crc64 {
        Crc64(Digest::new(CrcAlgorithm::Crc64Redis))
    }

    /// The checksum of `bytes`.
    pub fn of(bytes: &[u8]) -> u64 {
        crc_fast::checksum(CrcAlgorithm::Crc64Redis, bytes)
    }

    /// Takes further bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The checksum of all bytes taken so far.
    pub fn value(&self) -> u64 {
        self.0.finalize()
    }
}

impl Default for Crc64 {
    fn default() -> Crc64 {
        Crc64::new()
    }
}
