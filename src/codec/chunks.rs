//! What the dumps in chunks of all families share: the first bytes, checksums, cursors, errors.
//!
//! **Cursor.** A dump called with 0 gives the header. The lower 28 bits of a cursor are the number of the chunk that comes
//! next, all ones behind the last; the upper 35 are of the digest of the shape. Nothing is kept between two calls.

use super::crc64::Crc64;
use crate::filters::bits::AllocError;

/// Most bytes of a chunk other than the header.
pub const CHUNK_BYTES: usize = 1 << 20;
/// First bytes of a header.
pub const MAGIC: &[u8; 8] = b"SEENDUMP";
pub(super) const HASH_XXH3: u8 = 1;
pub(super) const HASH_SIP: u8 = 2;
pub(super) const CRC_BYTES: usize = 8;
pub(super) const NUMBER_BITS: u32 = 28;
/// The number behind the last chunk.
pub(super) const END: u64 = (1 << NUMBER_BITS) - 1;

/// What a call of a dump gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// The cursor for the next call, and for the load of these bytes; 0 at the end.
    pub cursor: u64,
    /// The bytes; none at the end.
    pub data: Vec<u8>,
}

/// A dump cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DumpError {
    /// The filter has another shape than when the dump began, or the cursor is of no dump of it.
    #[error("filter changed shape during the dump, start again at 0")]
    Changed,
    /// There is no memory for the chunk.
    #[error(transparent)]
    Memory(#[from] AllocError),
}

/// A chunk was not taken; the load is as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// It is damaged, or of another filter.
    #[error("received bad data")]
    Bad,
    /// It is not its turn.
    #[error("invalid offset, {expected} expected")]
    Offset {
        /// The cursor of the chunk whose turn it is.
        expected: u64,
    },
    /// The filter would hold more bytes than the caller allows.
    #[error("the filter would hold {bytes} bytes")]
    Limit {
        /// What it would hold.
        bytes: u64,
    },
    /// There is no memory for what it holds.
    #[error(transparent)]
    Memory(#[from] AllocError),
}

/// An empty buffer with room for so many bytes.
pub(super) fn reserved(bytes: u64) -> Result<Vec<u8>, AllocError> {
    let (failed, mut data) = (AllocError { bytes }, Vec::new());
    data.try_reserve_exact(usize::try_from(bytes).map_err(|_| failed)?).map_err(|_| failed)?;
    Ok(data)
}

/// Append the checksum of what is there.
pub(super) fn push_crc(data: &mut Vec<u8>) {
    let crc = Crc64::of(data);
    data.extend_from_slice(&crc.to_le_bytes());
}

/// What stands before a right checksum.
pub(super) fn checked(data: &[u8]) -> Option<&[u8]> {
    let (body, crc) = data.split_last_chunk::<CRC_BYTES>()?;
    (u64::from_le_bytes(*crc) == Crc64::of(body)).then_some(body)
}

/// A cursor over fields.
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    pub(super) fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(bytes)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*array)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }
}
