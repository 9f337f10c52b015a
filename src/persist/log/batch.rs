//! A batch: what the log writes in one go, and what is kept or lost as a whole.
//!
//! ```text
//! offset bytes
//!      0     4  CRC32C of the log id (16 bytes) and bytes 4..32 of this header
//!      4     4  length of the records in bytes
//!      8     8  position: bytes of records that were logged before these, since the log began
//!     16     8  known synced: everything below this position was synced when the batch was written
//!     24     4  number of the segment, never 0
//!     28     4  CRC32C of the log id and the records
//!     32        the records, then zeros up to a multiple of 8
//! ```
//!
//! Numbers are little-endian; a batch begins at a multiple of 8. One without records is a *mark*: it only tells what is
//! known to be synced.
//!
//! Whoever looks for batches behind damage tests every such offset. The header has a checksum of its own, so that this
//! costs 32 bytes an offset, whatever lengths are found. The log id is in both checksums, and nobody outside knows it: what
//! a client has stored cannot pass for a batch, nor can blocks of another log; the number of the segment does the same for
//! blocks of this log. As it is never 0, no header is all zeros.

use super::LogId;
use crate::codec::crc32c::Crc32c;

/// Bytes of a batch's header.
pub const HEADER_BYTES: usize = 32;

/// Batches begin at multiples of this.
pub const ALIGNMENT: usize = 8;

/// A header that verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Bytes of records.
    pub length: u32,
    /// Bytes of records in the log before these.
    pub position: u64,
    /// Below this position everything was synced.
    pub known_synced: u64,
    records_crc: u32,
}

impl Header {
    /// The header of these records; `None` if their length or the position behind them does not fit.
    pub fn new(id: &LogId, position: u64, known_synced: u64, records: &[u8]) -> Option<Header> {
        position.checked_add(records.len() as u64)?;
        let records_crc = seeded(id, records);
        Some(Header { length: u32::try_from(records.len()).ok()?, position, known_synced, records_crc })
    }

    /// The header as bytes.
    pub fn encode(&self, id: &LogId, segment: u64) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[4..8].copy_from_slice(&self.length.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.position.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.known_synced.to_le_bytes());
        bytes[24..28].copy_from_slice(&(segment as u32).to_le_bytes());
        bytes[28..].copy_from_slice(&self.records_crc.to_le_bytes());
        let crc = seeded(id, &bytes[4..]);
        bytes[..4].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Read a header of this log and segment; `None` if it is none.
    pub fn decode(bytes: &[u8; HEADER_BYTES], id: &LogId, segment: u64) -> Option<Header> {
        let u32_at = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        // The cheap test first: this is asked for every offset behind damage.
        if u64::from(u32_at(24)) != segment || u32_at(0) != seeded(id, &bytes[4..]) {
            return None;
        }
        let header =
            Header { length: u32_at(4), position: u64_at(8), known_synced: u64_at(16), records_crc: u32_at(28) };
        let possible = header.known_synced <= header.position && header.checked_end().is_some();
        possible.then_some(header)
    }

    /// Whether these are the records of the header.
    pub fn verifies(&self, id: &LogId, records: &[u8]) -> bool {
        records.len() == self.length as usize && seeded(id, records) == self.records_crc
    }

    /// The position behind the records.
    pub fn end(&self) -> u64 {
        self.checked_end().unwrap_or(u64::MAX)
    }

    fn checked_end(&self) -> Option<u64> {
        self.position.checked_add(u64::from(self.length))
    }

    /// Bytes of the whole batch in its file.
    pub fn batch_bytes(&self) -> u64 {
        batch_bytes(u64::from(self.length))
    }
}

/// Bytes in the file of a batch with so many bytes of records.
pub fn batch_bytes(records: u64) -> u64 {
    HEADER_BYTES as u64 + records.next_multiple_of(ALIGNMENT as u64)
}

fn seeded(id: &LogId, bytes: &[u8]) -> u32 {
    let mut crc = Crc32c::new();
    crc.update(&id.0);
    crc.update(bytes);
    crc.value()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: LogId = LogId(*b"0123456789abcdef");

    #[test]
    fn a_header_is_read_only_in_its_own_log_and_segment() {
        let header = Header::new(&ID, 100, 90, b"records").unwrap();
        let bytes = header.encode(&ID, 7);
        assert_eq!(Header::decode(&bytes, &ID, 7), Some(header));
        assert_eq!(Header::decode(&bytes, &ID, 8), None);
        assert_eq!(Header::decode(&bytes, &LogId([0; 16]), 7), None);
        assert!(header.verifies(&ID, b"records") && !header.verifies(&ID, b"recordz") && !header.verifies(&ID, b""));
        assert_eq!((header.end(), header.batch_bytes()), (107, 40));
    }

    #[test]
    fn every_flipped_bit_of_a_header_is_seen() {
        let bytes = Header::new(&ID, 100, 90, b"records").unwrap().encode(&ID, 7);
        for bit in 0..8 * HEADER_BYTES {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Header::decode(&flipped, &ID, 7), None, "bit {bit}");
        }
    }

    #[test]
    fn impossible_numbers_are_refused() {
        let synced_ahead = Header { length: 0, position: 1, known_synced: 2, records_crc: 0 };
        assert_eq!(Header::decode(&synced_ahead.encode(&ID, 1), &ID, 1), None);
        let beyond = Header { length: 1, position: u64::MAX, known_synced: 2, records_crc: 0 };
        assert_eq!(Header::decode(&beyond.encode(&ID, 1), &ID, 1), None);
        assert_eq!(Header::new(&ID, u64::MAX, 0, b"1"), None);
        assert_eq!(Header::decode(&[0; HEADER_BYTES], &ID, 1), None);
    }

    /// The layout on disk: a change here is a change of the format's version.
    #[test]
    fn the_layout_is_fixed() {
        let bytes = Header::new(&ID, 0x0102_0304_0506_0708, 0x11, b"records").unwrap().encode(&ID, 7);
        assert_eq!(bytes[4..28], [7, 0, 0, 0, 8, 7, 6, 5, 4, 3, 2, 1, 0x11, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0]);
        let crc = |bytes: &[u8]| crate::codec::crc32c::crc32c(&[&ID.0[..], bytes].concat()).to_le_bytes();
        assert_eq!((&bytes[..4], &bytes[28..]), (&crc(&bytes[4..])[..], &crc(b"records")[..]));
    }
}
