//! What `DUMP` answers and `RESTORE` takes.
//!
//! | bytes | what |
//! | --- | --- |
//! | 1 | object type |
//! | | the value ([`bloom_value`](super::bloom_value)) |
//! | 2 | RDB version, little-endian |
//! | 8 | [CRC64](super::crc64) of all bytes before it, little-endian |
//!
//! **Version.** 10 is written, that of Redis 7.0: nothing in the value is newer, and a server refuses versions above its own.
//! The number tells which object types and encodings a server knows; that of module values has been the same since RDB 8.
//! So all versions are read that are known to have it: up to 15 (Redis 8.10), and 80, where Valkey 9 went on counting after
//! it had left out those between. Any other may have changed it, and a wrong reading would be worse than a refusal.
//!
//! **Checksum.** Always verified. In an RDB file a checksum of 0 means that there is none; here it is wrong unless it is right.
//!
//! The frame is looked at first and as a whole, then the value, as Redis does: commands answer for [`FrameError`] that
//! version or checksum are wrong, for most of [`ValueError`] that the data is bad.

use super::bloom_value::{BloomWriter, ValueError};
use super::cells_value::{CellsRef, CellsWriter};
use super::chunks::reserved;
use super::crc64::Crc64;
use super::rdb::{Input, Reader, TYPE_MODULE_2};
use super::ring_value::RingWriter;
use super::value::{Built, Value};
use crate::filters::BloomRef;
use crate::filters::bits::AllocError;
use crate::filters::ring::Ring;

/// RDB version of the payloads written.
pub const RDB_VERSION: u16 = 10;
/// Greatest version of Redis that is read.
const MAX_REDIS_VERSION: u16 = 15;
/// Version of Valkey that is read besides those that it shares with Redis.
const VALKEY_VERSION: u16 = 80;
const VERSION_BYTES: usize = 2;
const CRC_BYTES: usize = 8;
/// Bytes appended at a time while a payload is written whole.
const STEP_BYTES: usize = 256 << 10;

/// A payload was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PayloadError {
    /// Because of its frame.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// Because of its value.
    #[error(transparent)]
    Value(#[from] ValueError),
}

/// The frame of a payload is not sound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// It has no room for version and checksum.
    #[error("the payload is too short")]
    Short,
    /// It was written by a server of a later or unknown kind.
    #[error("RDB version {0} is not known")]
    Version(u16),
    /// The checksum is another than that of the bytes.
    #[error("the checksum is wrong")]
    Checksum,
}

/// The object type and the value in `payload`.
///
/// # Errors
///
/// [`FrameError`].
pub fn open(payload: &[u8]) -> Result<&[u8], FrameError> {
    let (before, crc) = payload.split_last_chunk::<CRC_BYTES>().ok_or(FrameError::Short)?;
    let (body, version) = before.split_last_chunk::<VERSION_BYTES>().ok_or(FrameError::Short)?;
    let version = u16::from_le_bytes(*version);
    if version > MAX_REDIS_VERSION && version != VALKEY_VERSION {
        return Err(FrameError::Version(version));
    }
    if u64::from_le_bytes(*crc) != Crc64::of(before) {
        return Err(FrameError::Checksum);
    }
    Ok(body)
}

/// `payload` in a frame of another version, for a server that refuses its own. The value stays as it is, so this is only
/// sound for versions between which it was written in the same way.
///
/// # Errors
///
/// [`FrameError`], but for the version.
pub fn with_version(payload: &[u8], version: u16) -> Result<Vec<u8>, FrameError> {
    let (before, crc) = payload.split_last_chunk::<CRC_BYTES>().ok_or(FrameError::Short)?;
    let (body, _) = before.split_last_chunk::<VERSION_BYTES>().ok_or(FrameError::Short)?;
    if u64::from_le_bytes(*crc) != Crc64::of(before) {
        return Err(FrameError::Checksum);
    }
    let mut framed = Vec::with_capacity(payload.len());
    framed.extend_from_slice(body);
    framed.extend_from_slice(&version.to_le_bytes());
    let crc = Crc64::of(&framed);
    framed.extend_from_slice(&crc.to_le_bytes());
    Ok(framed)
}

/// The filter in `payload`, read and checked, before any memory is taken for its bits.
///
/// # Errors
///
/// [`PayloadError`], but for a limit or a lack of memory.
pub fn read(payload: &[u8]) -> Result<Value<'_>, PayloadError> {
    let mut reader = Reader::new(open(payload)?);
    if reader.byte().map_err(ValueError::from)? != TYPE_MODULE_2 {
        return Err(ValueError::Type.into());
    }
    let value = Value::read(&mut reader)?;
    if !reader.rest().is_empty() {
        return Err(ValueError::Trailing.into());
    }
    Ok(value)
}

/// The filter in `payload`, if its bits have at most `limit_bytes` bytes.
///
/// # Errors
///
/// [`PayloadError`]; no memory is held then.
pub fn restore(payload: &[u8], limit_bytes: u64) -> Result<Built, PayloadError> {
    Ok(read(payload)?.build(limit_bytes)?)
}

/// The payload of `bloom`, in one piece.
///
/// # Errors
///
/// [`AllocError`] when there is no memory for it; a payload is about as large as the filter.
pub fn dump(bloom: BloomRef) -> Result<Vec<u8>, AllocError> {
    let mut writer = DumpWriter::new(bloom);
    let mut payload = writer.room()?;
    while !writer.step(bloom, &mut payload, STEP_BYTES) {}
    Ok(payload)
}

/// The payload of a ring, in one piece.
///
/// # Errors
///
/// As [`dump`].
pub fn dump_ring(ring: &Ring) -> Result<Vec<u8>, AllocError> {
    let mut writer = RingDumpWriter::new(ring.clone());
    let mut payload = writer.room()?;
    while !writer.step(&mut payload, STEP_BYTES) {}
    Ok(payload)
}

/// What stands around a value.
#[derive(Debug)]
struct Frame {
    /// Of what was appended so far.
    crc: Crc64,
    begun: bool,
    done: bool,
}

impl Frame {
    const BYTES: u64 = 1 + (VERSION_BYTES + CRC_BYTES) as u64;

    fn new() -> Self {
        Self { crc: Crc64::new(), begun: false, done: false }
    }

    /// Appends what `step` appends, which says whether the value is whole then, and what stands around it.
    fn step(&mut self, out: &mut Vec<u8>, step: impl FnOnce(&mut Vec<u8>) -> bool) -> bool {
        if self.done {
            return true;
        }
        let start = out.len();
        if !self.begun {
            out.push(TYPE_MODULE_2);
            self.begun = true;
        }
        self.done = step(out);
        if self.done {
            out.extend_from_slice(&RDB_VERSION.to_le_bytes());
        }
        self.crc.update(&out[start..]);
        if self.done {
            out.extend_from_slice(&self.crc.value().to_le_bytes());
        }
        self.done
    }
}

/// Writes the payload of a ring in steps, as it was when the writer was made.
#[derive(Debug)]
pub struct RingDumpWriter {
    value: RingWriter,
    frame: Frame,
}

impl RingDumpWriter {
    /// A writer that stands before the first byte of the payload of this ring.
    #[must_use]
    pub fn new(ring: Ring) -> Self {
        Self { value: RingWriter::new(ring), frame: Frame::new() }
    }

    /// An empty buffer with room for the whole payload.
    ///
    /// # Errors
    ///
    /// [`AllocError`] when there is no memory for it.
    pub fn room(&self) -> Result<Vec<u8>, AllocError> {
        reserved(Frame::BYTES + self.value.len())
    }

    /// Appends about `bytes` bytes, and says whether the payload is whole now.
    pub fn step(&mut self, out: &mut Vec<u8>, bytes: usize) -> bool {
        let value = &mut self.value;
        self.frame.step(out, |out| value.step(out, bytes))
    }
}

/// The payload of a filter of cells, in one piece.
///
/// # Errors
///
/// As [`dump`].
pub fn dump_cells(filter: CellsRef<'_>) -> Result<Vec<u8>, AllocError> {
    let mut writer = CellsDumpWriter::new(filter);
    let mut payload = writer.room()?;
    while !writer.step(filter, &mut payload, STEP_BYTES) {}
    Ok(payload)
}

/// Writes the payload of a filter of cells in steps. Nobody may change it meanwhile.
#[derive(Debug)]
pub struct CellsDumpWriter {
    value: CellsWriter,
    frame: Frame,
}

impl CellsDumpWriter {
    /// A writer that stands before the first byte of the payload of this filter.
    #[must_use]
    pub fn new(filter: CellsRef<'_>) -> Self {
        Self { value: CellsWriter::new(&filter.head(), filter.spilled()), frame: Frame::new() }
    }

    /// An empty buffer with room for the whole payload.
    ///
    /// # Errors
    ///
    /// [`AllocError`] when there is no memory for it.
    pub fn room(&self) -> Result<Vec<u8>, AllocError> {
        reserved(Frame::BYTES + self.value.len())
    }

    /// Appends about `bytes` bytes, and says whether the payload is whole now. The filter is the one that the writer was made for.
    ///
    /// # Panics
    ///
    /// If it is another one, perhaps.
    pub fn step(&mut self, filter: CellsRef<'_>, out: &mut Vec<u8>, bytes: usize) -> bool {
        let value = &mut self.value;
        let read = |array: usize, offset: usize, out: &mut [u8]| filter.copy_bytes(array, offset, out);
        self.frame.step(out, |out| value.step(out, bytes, read))
    }
}

/// Writes the payload of a chain in steps, under the conditions of [`BloomWriter`].
#[derive(Debug)]
pub struct DumpWriter {
    value: BloomWriter,
    frame: Frame,
}

impl DumpWriter {
    /// A writer that stands before the first byte of the payload of `bloom`.
    pub fn new(bloom: BloomRef) -> DumpWriter {
        DumpWriter { value: BloomWriter::new(bloom), frame: Frame::new() }
    }

    /// An empty buffer with room for the whole payload.
    ///
    /// # Errors
    ///
    /// [`AllocError`] when there is no memory for it.
    pub fn room(&self) -> Result<Vec<u8>, AllocError> {
        reserved(self.len())
    }

    /// Bytes of the whole payload.
    #[allow(clippy::len_without_is_empty, reason = "a payload always has bytes")]
    pub fn len(&self) -> u64 {
        Frame::BYTES + self.value.len()
    }

    /// Appends about `bytes` bytes, at least one and at most 80 more than that, and says whether the payload is whole now.
    /// `bloom` is the chain that the writer was made for.
    ///
    /// # Panics
    ///
    /// As [`BloomWriter::step`].
    pub fn step(&mut self, bloom: BloomRef, out: &mut Vec<u8>, bytes: usize) -> bool {
        let value = &mut self.value;
        self.frame.step(out, |out| value.step(bloom, out, bytes))
    }
}
