//! A counting filter in one slice of bytes, for millions of small ones.
//!
//! All integers little-endian, at any alignment:
//!
//! ```text
//! flags u8: 1 counters of 8 bits, 2 strict, 4 key, 8 ranked, the upper half turns | hashes u8 | error f64 | capacity u32 | cells u24        17 bytes
//! items u64 | nonzero u24 | saturated u24 | version u64                                                     22
//! key (if there is one)                                                                                  0 or 16
//! the cells, in whole words;  or ranked, and room for more counters
//! ```
//!
//! Small filters begin with ranked cells, a bit for each and the counters that are not 0. Those take more bytes as items come: an insert that
//! finds no room says how many ([`Refused::NeedsRoom`]), and the owner [packs](pack) the filter anew. As soon as all cells fit, they
//! stand there in words.
//! A filter `0.01 50` with 20 items takes 160 bytes so, and 287 in words.
//!
//! The types here trust their bytes, which only [`create`] and [`pack`] make; foreign bytes lead to wrong answers or a panic on a
//! slice's end, not to worse.

use super::cells::Cells;
use super::ranked::{self, Ranked};
use super::{CounterBits, CountingRef, Figures, Refused, Settings, Shape};
use crate::filters::PACKED_MAX_BYTES;
use crate::filters::item_hash::{HashKey, KEY_BYTES};
use crate::filters::words::{Words, WordsMut};

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
const RANKED: u8 = 8;
const TURNS_SHIFT: u32 = 4;

fn head_bytes(key: Option<&HashKey>) -> usize {
    KEY + key.map_or(0, |_| KEY_BYTES)
}

/// Bytes of the payload of a filter of this shape whose cells stand in words; none if it does not fit into this form.
#[must_use]
pub fn full_len(settings: &Settings, shape: &Shape) -> Option<usize> {
    let length = shape.bytes().checked_add(head_bytes(settings.key.as_ref()) as u64)?;
    let fits = length <= PACKED_MAX_BYTES as u64 && u32::try_from(settings.capacity).is_ok();
    fits.then_some(length as usize)
}

/// The fewest bytes of the payload of a filter of this shape with so many cells above 0; none if it does not fit into this form.
#[must_use]
pub fn payload_len(settings: &Settings, shape: &Shape, nonzero: u64) -> Option<usize> {
    let full = full_len(settings, shape)?;
    if shape.cells > ranked::MOST_CELLS {
        return Some(full);
    }
    let ranked = head_bytes(settings.key.as_ref()) + ranked::bytes(shape, nonzero) as usize;
    Some(ranked.min(full))
}

/// Writes an empty filter into `payload`, which has any content and at least [`payload_len`] bytes.
///
/// # Panics
/// If the payload is shorter.
pub fn create(payload: &mut [u8], settings: &Settings, shape: &Shape, version: u64) {
    write_head(payload, settings, shape, &Figures { version, ..Figures::default() });
    payload[head_bytes(settings.key.as_ref())..].fill(0);
}

/// Writes a filter of either form into `payload`, which has any content and at least [`payload_len`] bytes. With [`full_len`] bytes its cells
/// stand in words; what is left of fewer is room.
///
/// # Panics
/// If the payload is shorter.
pub fn pack(payload: &mut [u8], filter: CountingRef<'_>) {
    let (settings, shape, figures) = (filter.settings(), filter.shape(), filter.figures());
    create(payload, &settings, &shape, 0);
    let (_, mut cells) = PackedCountingMut::new(payload).into_parts();
    (0..shape.words() as usize).for_each(|i| cells.set_word(i, filter.word(i)));
    put_figures(payload, &figures);
}

fn write_head(payload: &mut [u8], settings: &Settings, shape: &Shape, figures: &Figures) {
    debug_assert!(payload_len(settings, shape, figures.nonzero).is_some_and(|least| payload.len() >= least));
    let is_ranked = full_len(settings, shape).is_none_or(|full| payload.len() < full);
    let flag = |is: bool, flag: u8| if is { flag } else { 0 };
    payload[0] = flag(settings.counter_bits == CounterBits::Eight, WIDE)
        | flag(settings.strict, STRICT)
        | flag(settings.key.is_some(), KEYED)
        | flag(is_ranked, RANKED);
    payload[HASHES] = shape.hashes as u8;
    payload[ERROR..CAPACITY].copy_from_slice(&settings.error.to_le_bytes());
    payload[CAPACITY..CELLS].copy_from_slice(&(settings.capacity as u32).to_le_bytes());
    put_u24(&mut payload[CELLS..], shape.cells);
    put_figures(payload, figures);
    settings.key.iter().for_each(|key| payload[KEY..KEY + KEY_BYTES].copy_from_slice(key));
}

#[inline]
fn put_figures(payload: &mut [u8], figures: &Figures) {
    payload[0] = payload[0] & ((1 << TURNS_SHIFT) - 1) | figures.turns << TURNS_SHIFT;
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
            turns: self.payload[0] >> TURNS_SHIFT,
        }
    }

    /// The key of its hashes.
    #[inline]
    #[must_use]
    pub fn key(self) -> Option<&'a HashKey> {
        if self.has(KEYED) { self.payload[KEY..].first_chunk() } else { None }
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
    pub(super) fn cells(self) -> Cells<PackedWords<&'a [u8]>> {
        let (shape, body) = (self.shape(), &self.payload[self.head_bytes()..]);
        Cells::new(shape, PackedWords::new(self.has(RANKED), &shape, body))
    }
}

/// The cells of a packed filter.
#[derive(Clone, Copy)]
pub(super) enum PackedWords<B> {
    /// In words.
    Full(B),
    /// As few bytes as they take.
    Ranked(Ranked<B>),
}

impl<B: AsRef<[u8]>> PackedWords<B> {
    #[inline]
    fn new(is_ranked: bool, shape: &Shape, body: B) -> Self {
        if is_ranked { Self::Ranked(Ranked::new(shape, body)) } else { Self::Full(body) }
    }
}

impl<B: AsRef<[u8]>> Words for PackedWords<B> {
    #[inline(always)]
    fn word(&self, i: usize) -> u64 {
        match self {
            Self::Full(body) => body.as_ref().word(i),
            Self::Ranked(cells) => cells.word(i),
        }
    }

    #[inline(always)]
    fn ask(&self, _: usize) {}
}

impl<B: AsRef<[u8]> + AsMut<[u8]>> WordsMut for PackedWords<B> {
    #[inline(always)]
    fn set_word(&mut self, i: usize, word: u64) {
        match self {
            Self::Full(body) => body.as_mut().set_word(i, word),
            Self::Ranked(cells) => cells.set_word(i, word),
        }
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

    /// Its figures, and its cells to be written.
    #[inline]
    fn into_parts(self) -> (Figures, PackedWords<&'a mut [u8]>) {
        let filter = self.as_ref();
        let (figures, head, is_ranked) = (filter.figures(), filter.head_bytes(), filter.has(RANKED));
        (figures, PackedWords::new(is_ranked, &filter.shape(), &mut self.payload[head..]))
    }

    /// Changes cells and figures. There must be room for counters that come.
    #[inline]
    pub(super) fn write<R>(&mut self, work: impl FnOnce(&mut Cells<PackedWords<&mut [u8]>>, &mut Figures) -> R) -> R {
        let shape = self.as_ref().shape();
        let (mut figures, words) = PackedCountingMut::new(self.payload).into_parts();
        let result = work(&mut Cells::new(shape, words), &mut figures);
        put_figures(self.payload, &figures);
        result
    }

    /// Whether there is room for the counters that an item brings.
    ///
    /// # Errors
    /// [`Refused::NeedsRoom`].
    #[inline]
    pub(super) fn check_room(&self, hash: u64) -> Result<(), Refused> {
        let filter = self.as_ref();
        if !filter.has(RANKED) {
            return Ok(());
        }
        self.check_room_for(filter.cells().missing(hash))
    }

    /// The same for any number of counters.
    ///
    /// # Errors
    /// [`Refused::NeedsRoom`].
    pub(super) fn check_room_for(&self, more: u64) -> Result<(), Refused> {
        let filter = self.as_ref();
        let nonzero = (filter.figures().nonzero + more).min(filter.shape().cells);
        match payload_len(&filter.settings(), &filter.shape(), nonzero) {
            Some(payload_len) if filter.has(RANKED) && self.payload.len() < payload_len => {
                Err(Refused::NeedsRoom { payload_len })
            }
            _ => Ok(()),
        }
    }
}
