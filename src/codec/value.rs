//! Values of RDB of every family that is kept here.

use std::sync::atomic::{AtomicU64, Ordering};

use super::bloom::Decoded;
use super::bloom_value::{BLOOM_ID, BloomValue, ValueError};
use super::cells_dump::{CountingLoad, DleftLoad};
use super::cells_value::{COUNTING_ID, Cells, CellsValue, DLEFT_ID};
use super::chunks::LoadError;
use super::rdb::{self, Input, ModuleId, Reader};
use super::ring_dump::RingLoad;
use super::ring_value::{RING_ID, RingError, RingValue};
use crate::filters::ring::Ring;

/// A value that was read and found sound, before any memory is taken for its bits.
#[derive(Debug)]
pub enum Value<'a> {
    /// A Bloom filter.
    Bloom(BloomValue<'a>),
    /// A ring.
    Ring(RingValue<'a>),
    /// A ring that is being loaded.
    HalfRing(HalfRing),
    /// A counting or d-left filter.
    Cells(CellsValue<'a>),
    /// A counting filter that is being loaded.
    HalfCounting(HalfCounting),
    /// A d-left filter that is being loaded.
    HalfDleft(HalfDleft),
}

/// What is taken of a dump in chunks, from its header on.
pub trait Load: Sized {
    /// The id of such a value, of which only the header is kept: see [`push_half_loaded`].
    const HALF_ID: ModuleId;
    /// Its first command, for messages.
    const COMMAND: &'static str;

    /// The load that a header begins, which came with `cursor`, of a filter of at most `limit_bytes`.
    ///
    /// # Errors
    /// [`LoadError`], but for its turn.
    fn begin(cursor: u64, header: &[u8], limit_bytes: u64) -> Result<Self, LoadError>;

    /// Bytes of what the filter will hold.
    fn bytes(&self) -> u64;

    /// So many of them were taken.
    fn taken(&self) -> u64;

    /// Whether all chunks were taken.
    fn is_whole(&self) -> bool;

    /// Bytes of the heap, each allocation counted as `size_class` says, and of memory mappings.
    fn footprint(&self, size_class: fn(usize) -> usize) -> (usize, usize);
}

/// A ring that is being loaded.
pub type HalfRing = HalfLoaded<RingLoad>;
/// A counting filter that is being loaded.
pub type HalfCounting = HalfLoaded<CountingLoad>;
/// A d-left filter that is being loaded.
pub type HalfDleft = HalfLoaded<DleftLoad>;

/// A filter that is being loaded.
#[derive(Debug)]
pub struct HalfLoaded<L> {
    /// The header of its dump.
    pub header: Box<[u8]>,
    /// The cursor that came with the header.
    pub cursor: u64,
    /// What was taken of the chunks.
    pub load: L,
    /// The save epoch that it belongs to.
    moment: AtomicU64,
}

impl<L: Load> HalfLoaded<L> {
    /// The load that a header begins.
    ///
    /// # Errors
    /// As [`Load::begin`].
    pub fn new(cursor: u64, header: &[u8], limit_bytes: u64) -> Result<Self, LoadError> {
        let load = L::begin(cursor, header, limit_bytes)?;
        Ok(Self { load, header: header.into(), cursor, moment: AtomicU64::new(0) })
    }

    /// The same load, of which nothing but the header was taken.
    ///
    /// # Errors
    /// As [`Load::begin`], which this one passed.
    pub fn begun_anew(&self) -> Result<Self, LoadError> {
        Self::new(self.cursor, &self.header, u64::MAX)
    }

    /// The save epoch that it belongs to.
    #[must_use]
    pub fn moment(&self) -> u64 {
        self.moment.load(Ordering::Relaxed)
    }

    /// It belongs to this save epoch from now on.
    pub fn set_moment(&self, epoch: u64) {
        self.moment.store(epoch, Ordering::Relaxed);
    }

    /// Bytes of the heap and of memory mappings, with those of this struct.
    #[must_use]
    pub fn footprint(&self, size_class: fn(usize) -> usize) -> (usize, usize) {
        let (heap, mapped) = self.load.footprint(size_class);
        (size_class(size_of::<Self>()) + size_class(self.header.len()) + heap, mapped)
    }
}

/// A value with the memory that it takes.
#[derive(Debug)]
pub enum Built {
    /// A Bloom filter.
    Bloom(Decoded),
    /// A ring.
    Ring(Ring),
    /// A ring that is being loaded.
    HalfRing(HalfRing),
    /// A counting or d-left filter.
    Cells(Cells),
    /// A counting filter that is being loaded.
    HalfCounting(HalfCounting),
    /// A d-left filter that is being loaded.
    HalfDleft(HalfDleft),
}

impl Built {
    /// The Bloom filter, if it is one.
    #[must_use]
    pub fn bloom(self) -> Option<Decoded> {
        match self {
            Self::Bloom(decoded) => Some(decoded),
            _ => None,
        }
    }
}

impl From<RingError> for ValueError {
    fn from(error: RingError) -> Self {
        match error {
            RingError::Malformed(error) => Self::Malformed(error),
            RingError::Type => Self::Type,
            RingError::Ring => Self::Chain,
            RingError::Part(part) => Self::Link(part),
            RingError::Memory(error) => Self::Memory(error),
        }
    }
}

/// The family of a module's value, whatever the version of its encoding.
#[must_use]
pub fn is_own(id: ModuleId) -> bool {
    [BLOOM_ID, RING_ID, COUNTING_ID, DLEFT_ID].iter().any(|own| id.name() == own.name())
}

impl<'a> Value<'a> {
    /// The value that is next, from its module id to its end mark.
    ///
    /// # Errors
    /// [`ValueError`], but for a limit or a lack of memory.
    pub fn read(reader: &mut Reader<'a>) -> Result<Self, ValueError> {
        let id = ModuleId::from_code(reader.clone().length()?);
        match id {
            RingLoad::HALF_ID => read_half_loaded(reader).map(Self::HalfRing),
            CountingLoad::HALF_ID => read_half_loaded(reader).map(Self::HalfCounting),
            DleftLoad::HALF_ID => read_half_loaded(reader).map(Self::HalfDleft),
            _ if id.name() == RING_ID.name() => Ok(Self::Ring(RingValue::read(reader)?)),
            _ if id.name() == COUNTING_ID.name() || id.name() == DLEFT_ID.name() => {
                CellsValue::read(reader).map(Self::Cells)
            }
            _ => BloomValue::read(reader).map(Self::Bloom),
        }
    }

    /// Bytes of its bits.
    #[must_use]
    pub fn bit_bytes(&self) -> u64 {
        match self {
            Self::Bloom(value) => value.bit_bytes(),
            Self::Ring(value) => value.bytes(),
            Self::HalfRing(half) => half.load.bytes(),
            Self::Cells(value) => value.head().bytes(),
            Self::HalfCounting(half) => half.load.bytes(),
            Self::HalfDleft(half) => half.load.bytes(),
        }
    }

    /// The value with its memory, if its bits have at most `limit_bytes` bytes.
    ///
    /// # Errors
    /// [`ValueError`].
    pub fn build(self, limit_bytes: u64) -> Result<Built, ValueError> {
        match self {
            Self::Bloom(value) => value.build(limit_bytes).map(Built::Bloom),
            Self::Ring(value) if value.bytes() > limit_bytes => Err(ValueError::Limit { bytes: value.bytes() }),
            Self::Ring(value) => Ok(Built::Ring(value.build()?)),
            Self::HalfRing(half) => Ok(Built::HalfRing(half)),
            Self::Cells(value) if value.head().bytes() > limit_bytes => {
                Err(ValueError::Limit { bytes: value.head().bytes() })
            }
            Self::Cells(value) => value.build().map(Built::Cells),
            Self::HalfCounting(half) => Ok(Built::HalfCounting(half)),
            Self::HalfDleft(half) => Ok(Built::HalfDleft(half)),
        }
    }
}

/// Append the value of a filter that is being loaded: the header of its dump and the cursor that came with it. The chunks that
/// were taken are not kept: who loads it begins again with the first.
pub fn push_half_loaded<L: Load>(out: &mut Vec<u8>, half: &HalfLoaded<L>) {
    rdb::push_length(out, L::HALF_ID.code());
    rdb::push_unsigned(out, half.cursor);
    super::rdb_string::push_field(out, &half.header, None);
    rdb::push_end(out);
}

fn read_half_loaded<L: Load>(reader: &mut Reader<'_>) -> Result<HalfLoaded<L>, ValueError> {
    reader.length()?;
    let cursor = reader.unsigned()?;
    reader.string_opcode()?;
    let mut scratch = Vec::new();
    let header = reader.text()?;
    let half = HalfLoaded::new(cursor, header.bytes(&mut scratch)?, u64::MAX).map_err(|_| ValueError::Chain)?;
    reader.end()?;
    Ok(half)
}
