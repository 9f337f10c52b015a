//! What `CHAIN.EXPORT` answers: a ring for whoever asks it without the server.
//!
//! `docs/export-format.md` describes the same with an example. All integers little-endian:
//!
//! | offset | size | field |
//! | --- | --- | --- |
//! | 0 | 8 | `SEENXPRT` |
//! | 8 | 1 | version of the format: 1 |
//! | 9 | 1 | kind of filter: 5, a ring |
//! | 10 | 1 | hash: 1 XXH3-64, 2 SipHash-2-4 |
//! | 11 | 1 | mode: 0 by count, 1 a window, 2 two arrays |
//! | 12 | 1 | clock of a window: 1 the server's, 2 that of events; otherwise 0 |
//! | 13 | 1 | 0 |
//! | 14 | 2 | links |
//! | 16 | 4 | number of parts |
//! | 20 | 4 | 0 |
//! | 24 | 8 | version of the filter |
//! | 32 | 8 | milliseconds of a slice; 0 without a window |
//! | 40 | 8 | the time that it was made for, in milliseconds since 1970; 0 without a window |
//! | 48 | 8 | capacity |
//! | 56 | 8 | error rate of the whole ring, a double |
//! | 64 | 16 | key of the hash; only with hash 2 |
//! | | 24 a part | parts, newest first: slice (8), bits (8), hashes of a list or 0 (4), positions an item (1), 1 for a list (1), two zeros |
//! | | | what each part holds, in the same order: bits, or hashes of 8 bytes in ascending order |
//! | | 8 | XXH3-64 of all before it: who reads an export has that hash |
//!
//! Only parts that are asked at that time are there; so the answers are those of the server then. Later a part no longer counts once its slice plus the
//! number of links is not above the slice of the time: [`ExportedRing::contains_at`].

use std::borrow::Borrow;
use std::ops::Range;

use xxhash_rust::xxh3::Xxh3Default;

use super::chunks::{Fields, reserved};
use super::export_frame::{CHECKSUM_BYTES, ExportError, has_all, open, push_start, read_key};
use super::ring_dump::KIND_RING;
use super::ring_fields::{HASH_BYTES, push_content};
use crate::filters::bits::AllocError;
use crate::filters::item_hash::{HashKey, hash_item};
use crate::filters::ring::{MOST_PARTS, Mode, Part, Ring, Settings, Store, Window};

const HEAD_BYTES: usize = 64;
const PART_BYTES: usize = 24;
const MOST_HASHES: u8 = 127;

const COUNT: u8 = 0;
const WINDOW: u8 = 1;
const DUAL: u8 = 2;
const NO_CLOCK: u8 = 0;
const SERVER_CLOCK: u8 = 1;
const EVENT_CLOCK: u8 = 2;

/// The export of a ring for this time, which is [that of its readers](Settings::reading_time).
///
/// # Errors
///
/// [`AllocError`] when there is no memory for it; it is about as large as the ring.
pub fn export(ring: &Ring, now: u64) -> Result<Vec<u8>, AllocError> {
    let mut writer = ExportWriter::new(ring, now);
    let mut out = writer.room()?;
    while !writer.step(&mut out, usize::MAX) {}
    debug_assert_eq!(out.len() as u64, export_len(ring, now));
    Ok(out)
}

/// Writes an export in steps. The ring is one's own copy, or nobody changes it meanwhile.
#[derive(Clone)]
pub struct ExportWriter<R> {
    ring: R,
    now: u64,
    /// The parts that are written, still to come; the last one comes next.
    left: Range<usize>,
    at: Place,
    /// Of what was appended so far.
    checksum: Xxh3Default,
}

/// What is to be written next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Head,
    /// What the next part holds, from this byte on.
    Content(usize),
    Done,
}

impl<R: Borrow<Ring>> ExportWriter<R> {
    /// A writer that stands before the first byte.
    #[must_use]
    pub fn new(ring: R, now: u64) -> Self {
        let left = ring.borrow().alive_range(now);
        Self { ring, now, left, at: Place::Head, checksum: Xxh3Default::new() }
    }

    /// An empty buffer with room for the whole export.
    ///
    /// # Errors
    ///
    /// [`AllocError`] when there is no memory for it.
    pub fn room(&self) -> Result<Vec<u8>, AllocError> {
        reserved(export_len(self.ring.borrow(), self.now))
    }

    /// Appends about `bytes` bytes, the heads of all parts and a list as a whole, and says whether the export is complete now.
    pub fn step(&mut self, out: &mut Vec<u8>, bytes: usize) -> bool {
        let (start, end) = (out.len(), out.len().saturating_add(bytes.max(1)));
        let ring = self.ring.borrow();
        if self.at == Place::Head {
            push_head(out, ring, self.now);
            ring.alive(self.now).for_each(|part| push_part(out, part));
            self.at = Place::Content(0);
        }
        while let (Place::Content(offset), true) = (self.at, out.len() < end) {
            let part = (!self.left.is_empty()).then(|| &ring.parts[self.left.end - 1]);
            let Some(part) = part else {
                self.checksum.update(&out[start..]);
                out.extend_from_slice(&self.checksum.digest().to_le_bytes());
                self.at = Place::Done;
                return true;
            };
            let left = content_bytes(part) - offset;
            let run = if matches!(part.store, Store::List(_)) { left } else { left.min(end - out.len()) };
            push_content(out, part, offset, run);
            self.at = Place::Content(if run == left { 0 } else { offset + run });
            self.left.end -= usize::from(run == left);
        }
        if self.at != Place::Done {
            self.checksum.update(&out[start..]);
        }
        self.at == Place::Done
    }
}

/// Bytes of that export.
#[must_use]
pub fn export_len(ring: &Ring, now: u64) -> u64 {
    let head = HEAD_BYTES + ring.settings.key.map_or(0, |key| key.len());
    let parts: u64 = ring.alive(now).map(|part| (PART_BYTES + content_bytes(part)) as u64).sum();
    (head + CHECKSUM_BYTES) as u64 + parts
}

/// The export of a ring that does not exist and would be made with these settings: of version 0, with nothing in it.
///
/// # Errors
///
/// As [`export`].
pub fn empty_export(settings: &Settings, now: u64) -> Result<Vec<u8>, AllocError> {
    export(&Ring::new(*settings, 0), now)
}

fn push_head(out: &mut Vec<u8>, ring: &Ring, now: u64) {
    let settings = &ring.settings;
    let (mode, clock) = match settings.mode {
        Mode::Count => (COUNT, NO_CLOCK),
        Mode::Dual { .. } => (DUAL, NO_CLOCK),
        Mode::Window(Window { by_events: false, .. }) => (WINDOW, SERVER_CLOCK),
        Mode::Window(_) => (WINDOW, EVENT_CLOCK),
    };
    let time = if mode == WINDOW { now } else { 0 };
    push_start(out, KIND_RING, settings.key.as_ref());
    out.extend_from_slice(&[mode, clock, 0]);
    out.extend_from_slice(&settings.links.to_le_bytes());
    out.extend_from_slice(&(ring.alive(now).count() as u32).to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    let error = settings.ring_error_rate().to_bits();
    for field in [ring.version, settings.slice_ms(), time, settings.capacity, error] {
        out.extend_from_slice(&field.to_le_bytes());
    }
    settings.key.iter().for_each(|key| out.extend_from_slice(key));
}

fn push_part(out: &mut Vec<u8>, part: &Part) {
    let (listed, is_list) = match &part.store {
        Store::List(hashes) => (hashes.len() as u32, 1),
        Store::Bits(_) => (0, 0),
    };
    out.extend_from_slice(&part.slice.to_le_bytes());
    out.extend_from_slice(&part.shape.bits.to_le_bytes());
    out.extend_from_slice(&listed.to_le_bytes());
    out.extend_from_slice(&[part.shape.hashes as u8, is_list, 0, 0]);
}

fn content_bytes(part: &Part) -> usize {
    match &part.store {
        Store::List(hashes) => hashes.len() * HASH_BYTES,
        Store::Bits(bits) => bits.len(),
    }
}

/// An export that was read: it answers as the server did, without it, from the bytes where they are.
///
/// ```
/// use seendb::codec::ring_export::{ExportedRing, export};
/// use seendb::filters::item_hash::hash_item;
/// use seendb::filters::ring::{Event, Mode, Ring, Settings};
///
/// // What the server has: a ring for the newest 400 items.
/// let settings =
///     Settings { capacity: 400, error: 0.01, link_error: false, links: 5, mode: Mode::Count, idle: None, key: None };
/// let mut ring = Ring::new(settings, 1);
/// for item in ["news:1", "news:2"] {
///     ring.insert(hash_item(item.as_bytes(), None), Event::default())?;
/// }
///
/// // What `CHAIN.EXPORT` sends, and what a client makes of it.
/// let bytes = export(&ring, 0)?;
/// let seen = ExportedRing::read(&bytes)?;
/// assert!(seen.contains(b"news:1") && seen.contains(b"news:2") && !seen.contains(b"news:3"));
/// assert_eq!(seen.version(), 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct ExportedRing<'a> {
    version: u64,
    links: u64,
    slice_ms: u64,
    by_events: bool,
    time: u64,
    capacity: u64,
    error: f64,
    key: Option<HashKey>,
    parts: Vec<ExportedPart<'a>>,
}

/// One part, what it holds still where it stands.
#[derive(Clone, Copy, Debug)]
struct ExportedPart<'a> {
    slice: u64,
    bits: u64,
    hashes: u32,
    listed: bool,
    content: &'a [u8],
}

impl ExportedPart<'_> {
    fn contains(&self, hash: u64) -> bool {
        if self.listed {
            let (hashes, _) = self.content.as_chunks::<HASH_BYTES>();
            return hashes.binary_search_by(|listed| u64::from_le_bytes(*listed).cmp(&hash)).is_ok();
        }
        has_all(self.content, (self.bits, self.hashes), hash)
    }
}

impl<'a> ExportedRing<'a> {
    /// The ring in these bytes.
    ///
    /// # Errors
    ///
    /// [`ExportError`].
    pub fn read(bytes: &'a [u8]) -> Result<Self, ExportError> {
        Self::read_fields(open(bytes, KIND_RING)?).ok_or(ExportError::Damaged)
    }

    fn read_fields(mut fields: Fields<'a>) -> Option<Self> {
        let [hash, mode, clock, zero] = fields.array()?;
        let links = u16::from_le_bytes(fields.array()?);
        let (count, zeros) = (fields.u32()? as usize, fields.u32()?);
        let (version, slice_ms, time) = (fields.u64()?, fields.u64()?, fields.u64()?);
        let (capacity, error) = (fields.u64()?, f64::from_bits(fields.u64()?));
        let key = read_key(&mut fields, hash)?;
        let is_window = mode == WINDOW;
        let timed = match clock {
            NO_CLOCK => matches!(mode, COUNT | DUAL) && slice_ms == 0 && time == 0,
            SERVER_CLOCK | EVENT_CLOCK => is_window && slice_ms > 0,
            _ => false,
        };
        let sound =
            timed && zero == 0 && zeros == 0 && links >= 2 && count <= MOST_PARTS && error > 0.0 && error <= 1.0;
        let mut parts = Vec::new();
        for _ in 0..if sound { count } else { return None } {
            parts.push(read_part(&mut fields, is_window)?);
        }
        for (part, bytes) in &mut parts {
            part.content = fields.bytes(usize::try_from(*bytes).ok()?)?;
        }
        let parts = parts.into_iter().map(|(part, _)| part).collect();
        let by_events = clock == EVENT_CLOCK;
        let ring = Self { version, links: links.into(), slice_ms, by_events, time, capacity, error, key, parts };
        fields.0.is_empty().then_some(ring)
    }

    /// Whether the server would have said that this item was seen.
    #[must_use]
    pub fn contains(&self, item: &[u8]) -> bool {
        self.contains_at(item, self.time)
    }

    /// Whether it would say so at this time, in milliseconds since 1970, had nothing been written since: of a window slices go
    /// meanwhile. Only an export whose clock [is that of the server](Self::by_events) gets older by itself.
    #[must_use]
    pub fn contains_at(&self, item: &[u8], now: u64) -> bool {
        let hash = hash_item(item, self.key.as_ref());
        let slice = now.checked_div(self.slice_ms).unwrap_or(0);
        self.parts.iter().any(|part| part.slice.saturating_add(self.links) > slice && part.contains(hash))
    }

    /// The version of the filter; a later one has a greater one.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The time that it was made for, in milliseconds since 1970; 0 without a window.
    #[must_use]
    pub fn time(&self) -> u64 {
        self.time
    }

    /// Whether time is the greatest that the events carried, not that of the server.
    #[must_use]
    pub fn by_events(&self) -> bool {
        self.by_events
    }

    /// So many of the newest items are remembered, or expected in the window.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// The share of items never written that are reported as seen, at most.
    #[must_use]
    pub fn error_rate(&self) -> f64 {
        self.error
    }
}

/// A part, still without what it holds, and how many bytes that are.
fn read_part<'a>(fields: &mut Fields<'_>, is_window: bool) -> Option<(ExportedPart<'a>, u64)> {
    let (slice, bits, count) = (fields.u64()?, fields.u64()?, fields.u32()?);
    let [hashes, form, zeros @ ..] = fields.array::<4>()?;
    let listed = form == 1;
    let sound = form <= 1
        && zeros == [0; 2]
        && (listed || count == 0)
        && bits > 0
        && (1..=MOST_HASHES).contains(&hashes)
        && (is_window || slice == 0);
    let bytes = if listed { u64::from(count) * HASH_BYTES as u64 } else { bits.div_ceil(8) };
    let part = ExportedPart { slice, bits, hashes: hashes.into(), listed, content: &[] };
    sound.then_some((part, bytes))
}
