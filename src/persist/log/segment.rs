//! A segment: one file of the log.
//!
//! ```text
//! offset bytes
//!      0     8  SEENLOG1
//!      8    16  log id
//!     24     8  number of the segment
//!     32     8  first position
//!     40    20  zeros
//!     60     4  CRC32C of bytes 0..60
//!     64        batches, one behind the other, then zeros: room that is reserved for more
//! ```
//!
//! Its file is made, reserved and synced before the manifest names it, and everything before its first position was synced
//! even before that. A segment ends where the next one begins: whatever stands behind that position counts for nothing.

use std::io;

use super::LogId;
use crate::codec::crc32c::crc32c;
use crate::persist::files::File;

/// Bytes of a segment's header.
pub const HEADER_BYTES: usize = 64;

/// Length of a segment's file. It is longer if one batch needs more.
pub const SEGMENT_BYTES: u64 = 64 << 20;

/// The highest number of a segment, so that a batch can hold it.
pub const MAX_NUMBER: u64 = u32::MAX as u64;

const MAGIC: &[u8; 8] = b"SEENLOG1";
const CRC_AT: usize = 60;

/// What a segment's header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The log.
    pub id: LogId,
    /// The segment's number in it, from 1 to [`MAX_NUMBER`].
    pub number: u64,
    /// Position of its first batch.
    pub first: u64,
}

impl Header {
    /// The header as bytes.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..24].copy_from_slice(&self.id.0);
        bytes[24..32].copy_from_slice(&self.number.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.first.to_le_bytes());
        let crc = crc32c(&bytes[..CRC_AT]);
        bytes[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// What the header at the start of a file says; if there is none, why.
    ///
    /// # Errors
    /// What is wrong, to follow the file's name.
    pub fn decode(bytes: &[u8]) -> Result<Header, &'static str> {
        let bytes = bytes.first_chunk::<HEADER_BYTES>().ok_or("is shorter than a segment's header")?;
        let u64_at = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        let id = LogId(std::array::from_fn(|i| bytes[8 + i]));
        let header = Header { id, number: u64_at(24), first: u64_at(32) };
        header.check(bytes).map(|()| header)
    }

    /// Whether a file that begins so may be a segment.
    pub fn announces(bytes: &[u8]) -> bool {
        bytes.starts_with(MAGIC)
    }

    /// Whether a file begins with this header; if not, why.
    ///
    /// # Errors
    /// What is wrong, to follow the file's name.
    pub fn check(&self, bytes: &[u8]) -> Result<(), &'static str> {
        let expected = self.encode();
        if bytes.len() < HEADER_BYTES {
            return Err("is shorter than a segment's header");
        }
        if bytes[..HEADER_BYTES] == expected {
            return Ok(());
        }
        if bytes[..8] != *MAGIC || bytes[CRC_AT..HEADER_BYTES] != crc32c(&bytes[..CRC_AT]).to_le_bytes() {
            return Err("has a damaged header");
        }
        if bytes[8..24] != self.id.0 {
            return Err("belongs to another log");
        }
        Err("is another segment than the manifest says")
    }
}

/// The file name of a segment.
pub fn file_name(number: u64) -> String {
    format!("segment-{number}.log")
}

/// The number in the file name of a segment.
pub fn number_of(name: &str) -> Option<u64> {
    let digits = name.strip_prefix("segment-")?.strip_suffix(".log")?;
    digits.parse().ok().filter(|number| *number <= MAX_NUMBER && file_name(*number) == name)
}

/// Whether there is anything in a segment's file behind its header.
///
/// # Errors
/// Those of the system.
pub fn has_records(file: &dyn File) -> io::Result<bool> {
    const PIECE_BYTES: usize = 256 << 10;
    let (mut piece, mut at) = (vec![0; PIECE_BYTES], HEADER_BYTES as u64);
    loop {
        let read = file.read_full_at(&mut piece, at)?;
        if piece[..read].iter().any(|byte| *byte != 0) {
            return Ok(true);
        }
        if read < PIECE_BYTES {
            return Ok(false);
        }
        at += read as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_tells_what_is_wrong_with_it() {
        let header = Header { id: LogId([7; 16]), number: 3, first: 1000 };
        let bytes = header.encode();
        assert_eq!(header.check(&bytes), Ok(()));
        assert_eq!(Header::decode(&bytes), Ok(header));
        assert_eq!(Header::decode(&bytes[..63]), Err("is shorter than a segment's header"));
        assert_eq!(header.check(&bytes[..63]), Err("is shorter than a segment's header"));
        for at in 0..HEADER_BYTES {
            let mut flipped = bytes;
            flipped[at] ^= 1;
            assert_eq!(header.check(&flipped), Err("has a damaged header"), "byte {at}");
            assert_eq!(Header::decode(&flipped), Err("has a damaged header"), "byte {at}");
        }
        let other = Header { id: LogId([8; 16]), ..header };
        assert_eq!(header.check(&other.encode()), Err("belongs to another log"));
        for other in [Header { number: 4, ..header }, Header { first: 1001, ..header }] {
            assert_eq!(header.check(&other.encode()), Err("is another segment than the manifest says"));
        }
    }

    #[test]
    fn names_carry_the_number() {
        assert_eq!(file_name(12), "segment-12.log");
        assert_eq!(number_of("segment-12.log"), Some(12));
        for other in [
            "segment-012.log",
            "segment-.log",
            "segment-12.log.damaged",
            "segment-+1.log",
            "segment-4294967296.log",
            "base-1.rdb",
        ] {
            assert_eq!(number_of(other), None);
        }
    }
}
