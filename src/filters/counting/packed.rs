//! A counting filter in one slice of bytes, for millions of small ones.
//!
//! All integers little-endian, at any alignment:
//!
//! ```text
//! flags u8: 1 counters of 8 bits, 2 strict, 4 key | hashes u8 | error f64 | capacity u32 | cells u24        17 bytes
//! items u64 | nonzero u24 | saturated u24 | version u64                                                     22
//! key (if there is one)                                                                                  0 or 16
//! the cells, in whole words
//! ```
//!
//! The types here trust their bytes, which only [`create`] and [`pack`] make; foreign bytes lead to wrong answers or a panic on a
//! slice's end, not to worse.

use super::cells::Cells;
use super::{CounterBits, CountingRef, Figures, Settings, Shape};
use crate::filters::PACKED_MAX_BYTES;
use crate::filters::item_hash::{HashKey, KEY_BYTES};

// Where the fields stand.
const HASHES: usize = 1;
const ERROR: usize = 2;
const CAPACITY: usize = 10;
const CELLS: usize = 14;
const FIGURES: usize = 17;
const NONZERO: usize = FIGURES + 8;
const SATURATED: usize = NONZERO + 3;
const VERSION: usize = SATURATED + 3;
const KEY: usize = VERSION + 8;

// The flags.
const WIDE: u8 = 1;
const STRICT: u8 = 2;
const KEYED: u8 = 4;

fn head_bytes(key: Option<&HashKey>) -> usize {
    KEY + key.map_or(0, |_| KEY_BYTES)
}

/// Bytes of the payload of a filter of this shape; none if it does not fit into this form.
#[must_use]
pub fn payload_len(settings: &Settings, shape: &Shape) -> Option<usize> {
    let length = shape.bytes().checked_add(head_bytes(settings.key.as_ref()) as u64)?;
    let fits = length <= PACKED_MAX_BYTES as u64 && u32::try_from(settings.capacity).is_ok();
    fits.then_some(length as usize)
}

/// Writes an empty filter into `payload`, which has [`payload_len`] bytes of any content.
///
/// # Panics
/// If the payload is shorter.
pub fn create(payload: &mut [u8], settings: &Settings, shape: &Shape, version: u64) {
    write_head(payload, settings, shape, &Figures { version, ..Figures::default() });
    payload[head_bytes(settings.key.as_ref())..].fill(0);
}

/// Writes a filter of the other form into `payload`, which has [`payload_len`] bytes of any content.
///
/// # Panics
/// If the payload is shorter.
pub fn pack(payload: &mut [u8], filter: CountingRef<'_>) {
    let settings = filter.settings();
    write_head(payload, &settings, &filter.shape(), &filter.figures());
    filter.copy_bytes(0, &mut payload[head_bytes(settings.key.as_ref())..]);
}

fn write_head(payload: &mut [u8], settings: &Settings, shape: &Shape, figures: &Figures) {
    debug_assert_eq!(payload_len(settings, shape), Some(payload.len()));
    let flag = |is: bool, flag: u8| if is { flag } else { 0 };
    payload[0] = flag(settings.counter_bits == CounterBits::Eight, WIDE)
        | flag(settings.strict, STRICT)
        | flag(settings.key.is_some(), KEYED);
    payload[HASHES] = shape.hashes as u8;
    payload[ERROR..CAPACITY].copy_from_slice(&settings.error.to_le_bytes());
    payload[CAPACITY..CELLS].copy_from_slice(&(settings.capacity as u32).to_le_bytes());
    put_u24(&mut payload[CELLS..], shape.cells);
    put_figures(payload, figures);
    settings.key.iter().for_each(|key| payload[KEY..KEY + KEY_BYTES].copy_from_slice(key));
}

#[inline]
fn put_figures(payload: &mut [u8], figures: &Figures) {
    payload[FIGURES..NONZERO].copy_from_slice(&figures.items.to_le_bytes());
    put_u24(&mut payload[NONZERO..], figures.nonzero);
    put_u24(&mut payload[SATURATED..], figures.saturated);
    payload[VERSION..KEY].copy_from_slice(&figures.version.to_le_bytes());
}

#[inline]
fn put_u24(to: &mut [u8], value: u64) {
    to[..3].copy_from_slice(&value.to_le_bytes()[..3]);
}

#[inline]
fn u24(bytes: &[u8], at: usize) -> u64 {
    u64::from(bytes[at]) | u64::from(bytes[at + 1]) << 8 | u64::from(bytes[at + 2]) << 16
}

#[inline]
fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// A packed filter, to read.
#[derive(Clone, Copy)]
pub struct PackedCounting<'a> {
    payload: &'a [u8],
}

impl<'a> PackedCounting<'a> {
    /// The filter in `payload`, which [`create`] or [`pack`] made.
    #[inline]
    #[must_use]
    pub fn new(payload: &'a [u8]) -> Self {
        Self { payload }
    }

    /// What it was made with.
    #[must_use]
    pub fn settings(self) -> Settings {
        Settings {
            capacity: self.capacity(),
            error: f64::from_bits(u64_at(self.payload, ERROR)),
            counter_bits: self.counter_bits(),
            strict: self.has(STRICT),
            key: self.key().copied(),
        }
    }

    /// How large it is.
    #[inline]
    #[must_use]
    pub fn shape(self) -> Shape {
        Shape {
            cells: u24(self.payload, CELLS),
            hashes: self.payload[HASHES].into(),
            counter_bits: self.counter_bits(),
        }
    }

    /// What it counts about itself.
    #[inline]
    #[must_use]
    pub fn figures(self) -> Figures {
        Figures {
            items: u64_at(self.payload, FIGURES),
            nonzero: u24(self.payload, NONZERO),
            saturated: u24(self.payload, SATURATED),
            version: u64_at(self.payload, VERSION),
        }
    }

    /// The key of its hashes.
    #[inline]
    #[must_use]
    pub fn key(self) -> Option<&'a HashKey> {
        if self.has(KEYED) { self.payload[KEY..].first_chunk() } else { None }
    }

    /// The bytes of its cells.
    #[inline]
    #[must_use]
    pub fn body(self) -> &'a [u8] {
        &self.payload[self.head_bytes()..]
    }

    #[inline]
    fn head_bytes(self) -> usize {
        KEY + if self.has(KEYED) { KEY_BYTES } else { 0 }
    }

    #[inline]
    fn has(self, flag: u8) -> bool {
        self.payload[0] & flag != 0
    }

    #[inline]
    fn counter_bits(self) -> CounterBits {
        if self.has(WIDE) { CounterBits::Eight } else { CounterBits::Four }
    }

    #[inline]
    fn capacity(self) -> u64 {
        u64_at(self.payload, CAPACITY) & u64::from(u32::MAX)
    }

    #[inline]
    pub(super) fn limit(self) -> Option<u64> {
        self.has(STRICT).then(|| self.capacity())
    }

    #[inline]
    pub(super) fn cells(self) -> Cells<&'a [u8]> {
        Cells::new(self.shape(), self.body())
    }
}

/// A packed filter, to write.
pub struct PackedCountingMut<'a> {
    payload: &'a mut [u8],
}

impl<'a> PackedCountingMut<'a> {
    /// The filter in `payload`, which [`create`] or [`pack`] made.
    #[inline]
    #[must_use]
    pub fn new(payload: &'a mut [u8]) -> Self {
        Self { payload }
    }

    /// The same filter, to read.
    #[inline]
    #[must_use]
    pub fn as_ref(&self) -> PackedCounting<'_> {
        PackedCounting::new(self.payload)
    }

    #[inline]
    pub(super) fn write<R>(&mut self, work: impl FnOnce(&mut Cells<&mut [u8]>, &mut Figures) -> R) -> R {
        let filter = self.as_ref();
        let (shape, head, mut figures) = (filter.shape(), filter.head_bytes(), filter.figures());
        let result = work(&mut Cells::new(shape, &mut self.payload[head..]), &mut figures);
        put_figures(self.payload, &figures);
        result
    }
}
