//! A ring as a value of RDB (type `seenCHAIN`), for DUMP payloads and snapshots.
//!
//! After the [module id](super::rdb) come these fields; all that carry no kind are unsigned:
//!
//! | field | there is one |
//! | --- | --- |
//! | flags: 1 a window, 2 two arrays, 4 the rate is that of a link, 8 bounded, 16 the clock of events, 32 `idle`, 64 `key` | always |
//! | links | always |
//! | capacity | always |
//! | error rate (double) | always |
//! | span of the window in milliseconds | flag 1 |
//! | threshold (double) | flag 2 |
//! | life after a write in seconds | flag 32 |
//! | two words of the hashes' key | flag 64 |
//! | version | always |
//! | the greatest time seen, in milliseconds | flag 1 |
//! | what was lost: until when, or 1 | always |
//! | number of parts | always |
//! | of each part, oldest first: slice, growth | flag 1 |
//! | capacity, bits, hashes, items | always |
//! | 0 for bits, 1 for a list | always |
//! | what it holds (string): bits, or hashes of 8 bytes, little-endian, ascending | always |
//!
//! then the end mark. Strings are read in any form that they can have. What is checked stands in
//! [`ring_fields`](super::ring_fields); besides, a string is as long as its part says.
//!
//! **Memory.** Reading takes less than 100 bytes a part, of which at least 12 are there. Only [`RingValue::build`] takes memory for what
//! they hold; [`RingValue::bytes`] says how much before.

use super::lzf::Compressor;
use super::rdb::{self, Input, Malformed, ModuleId, Reader};
use super::rdb_string::{self, RdbString};
use super::ring_fields::{ContentCheck, HAS_IDLE, HAS_KEY, PartHead, RawSettings, RingHead, push_content, put_content};
use crate::filters::bits::AllocError;
use crate::filters::item_hash::KEY_BYTES;
use crate::filters::ring::packed::PackedRing;
use crate::filters::ring::shape::ArrayShape;
use crate::filters::ring::{Part, Ring, Settings};

/// Name and encoding version of what is written.
pub const RING_ID: ModuleId = match ModuleId::new(b"seenCHAIN", 0) {
    Some(id) => id,
    None => panic!("no name of a module"),
};
const WORD_BYTES: usize = KEY_BYTES / 2;
/// The form of what a part holds.
const BITS: u64 = 0;
const LIST: u64 = 1;

/// Writes a ring in steps, as it was when the writer was made.
#[derive(Debug)]
pub struct RingWriter {
    ring: Ring,
    at: Place,
}

/// What is to be written next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Head,
    Part(usize),
    Content { part: usize, offset: usize },
    End,
    Done,
}

impl RingWriter {
    /// A writer that stands before the first byte of the value of `ring`, which is a copy: it shares its bits.
    #[must_use]
    pub fn new(ring: Ring) -> Self {
        Self { ring, at: Place::Head }
    }

    /// Bytes of the whole value.
    #[allow(clippy::len_without_is_empty, reason = "a value always has bytes")]
    #[must_use]
    pub fn len(&self) -> u64 {
        let mut fields = Vec::new();
        push_head(&mut fields, &RingHead::of(&self.ring), self.ring.parts.len());
        rdb::push_end(&mut fields);
        let mut len = fields.len() as u64;
        for part in self.ring.parts.iter().map(PartHead::of) {
            fields.clear();
            push_part(&mut fields, &part, &self.ring.settings);
            rdb::push_string_head(&mut fields, part.content_bytes());
            len += fields.len() as u64 + part.content_bytes();
        }
        len
    }

    /// Appends about `bytes` bytes, at least one and at most 32 KiB more than that, and says whether the value is whole now.
    pub fn step(&mut self, out: &mut Vec<u8>, bytes: usize) -> bool {
        let end = out.len().saturating_add(bytes.max(1));
        while self.at != Place::Done && out.len() < end {
            self.at = match self.at {
                Place::Head => {
                    push_head(out, &RingHead::of(&self.ring), self.ring.parts.len());
                    Place::Part(0)
                }
                Place::Part(index) => match self.ring.parts.get(index) {
                    Some(part) => {
                        let head = PartHead::of(part);
                        push_part(out, &head, &self.ring.settings);
                        rdb::push_string_head(out, head.content_bytes());
                        Place::Content { part: index, offset: 0 }
                    }
                    None => Place::End,
                },
                Place::Content { part, offset } => push_run(out, &self.ring.parts[part], (part, offset), end),
                Place::End => {
                    rdb::push_end(out);
                    Place::Done
                }
                Place::Done => Place::Done,
            };
        }
        self.at == Place::Done
    }
}

/// Appends what this part holds from there on, all of a list, bits up to the length `end`; tells what is next.
fn push_run(out: &mut Vec<u8>, part: &Part, (index, offset): (usize, usize), end: usize) -> Place {
    let head = PartHead::of(part);
    // What is in memory has a length that fits.
    let left = head.content_bytes() as usize - offset;
    let run = if head.listed { left } else { left.min(end - out.len()) };
    push_content(out, part, offset, run);
    if run == left { Place::Part(index + 1) } else { Place::Content { part: index, offset: offset + run } }
}

/// Appends the value of a packed ring in one go, with what its parts hold compressed where that is wanted and saves something.
///
/// # Panics
///
/// If `payload` is no packed ring, perhaps.
pub fn push_packed_ring(out: &mut Vec<u8>, payload: &[u8], mut compressor: Option<&mut Compressor>) {
    let ring = PackedRing::new(payload);
    let settings = ring.settings();
    let head = RingHead { settings, version: ring.version(), latest: ring.latest(), lost: ring.lost_until() };
    push_head(out, &head, ring.raw_parts().count());
    for part in ring.raw_parts() {
        let head = PartHead {
            slice: part.slice,
            growth: part.growth,
            shape: part.shape,
            items: part.items,
            listed: part.listed,
        };
        push_part(out, &head, &settings);
        rdb_string::push_field(out, part.content, compressor.as_deref_mut());
    }
    rdb::push_end(out);
}

fn push_head(out: &mut Vec<u8>, head: &RingHead, parts: usize) {
    let raw = RawSettings::of(&head.settings);
    rdb::push_length(out, RING_ID.code());
    [raw.flags.into(), raw.links, raw.capacity].into_iter().for_each(|field| rdb::push_unsigned(out, field));
    rdb::push_double(out, raw.error);
    if raw.is_window() {
        rdb::push_unsigned(out, raw.span_ms);
    }
    if raw.is_dual() {
        rdb::push_double(out, raw.threshold);
    }
    if raw.flags & HAS_IDLE != 0 {
        rdb::push_unsigned(out, raw.idle);
    }
    if raw.flags & HAS_KEY != 0 {
        let (words, _) = raw.key.as_chunks::<WORD_BYTES>();
        words.iter().for_each(|word| rdb::push_unsigned(out, u64::from_le_bytes(*word)));
    }
    rdb::push_unsigned(out, head.version);
    if raw.is_window() {
        rdb::push_unsigned(out, head.latest);
    }
    rdb::push_unsigned(out, head.lost);
    rdb::push_unsigned(out, parts as u64);
}

/// The fields of a part before what it holds.
fn push_part(out: &mut Vec<u8>, part: &PartHead, settings: &Settings) {
    if RawSettings::of(settings).is_window() {
        rdb::push_unsigned(out, part.slice);
        rdb::push_unsigned(out, part.growth.into());
    }
    let form = if part.listed { LIST } else { BITS };
    for field in [part.shape.capacity, part.shape.bits, part.shape.hashes.into(), part.items, form] {
        rdb::push_unsigned(out, field);
    }
}

/// A ring was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RingError {
    /// It ends early, a field is of the wrong kind, or what a part holds cannot be decompressed.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// It is of another type, or in an encoding that is not known.
    #[error("the value is of another type")]
    Type,
    /// No ring has such settings, times, or so many parts.
    #[error("the ring as a whole cannot be")]
    Ring,
    /// A part, the oldest being 0, cannot be in this ring, or cannot hold this.
    #[error("part {0} of the ring is not sound")]
    Part(usize),
    /// There is no memory for what the parts hold.
    #[error(transparent)]
    Memory(#[from] AllocError),
}

/// The fields of a ring before its parts.
#[derive(Clone, Copy, Debug)]
pub struct RingFields {
    /// The ring but for its parts.
    pub head: RingHead,
    /// Number of its parts, within what the ring can have.
    pub parts: usize,
}

impl RingFields {
    /// The fields that come after this module id.
    ///
    /// # Errors
    ///
    /// [`RingError::Type`], [`RingError::Ring`], or what the input says.
    pub fn read<I: Input, E: From<I::Error> + From<RingError>>(input: &mut I, id: ModuleId) -> Result<Self, E> {
        if id != RING_ID {
            return Err(RingError::Type.into());
        }
        let settings = read_settings(input)?.check().ok_or(RingError::Ring)?;
        let version = input.unsigned()?;
        let latest = if RawSettings::of(&settings).is_window() { input.unsigned()? } else { 0 };
        let (lost, count) = (input.unsigned()?, input.unsigned()?);
        let head = RingHead { settings, version, latest, lost };
        match usize::try_from(count).ok().filter(|parts| *parts <= head.most_parts()) {
            Some(parts) if head.is_sound() => Ok(Self { head, parts }),
            _ => Err(RingError::Ring.into()),
        }
    }

    /// The fields of the part number `index` before what it holds; `before` is the slice of the one before it, or 0.
    ///
    /// # Errors
    ///
    /// [`RingError::Part`], or what the input says.
    pub fn read_part<I, E>(&self, input: &mut I, index: usize, before: u64) -> Result<PartHead, E>
    where
        I: Input,
        E: From<I::Error> + From<RingError>,
    {
        let (mut slice, mut growth) = (0, 0);
        if RawSettings::of(&self.head.settings).is_window() {
            (slice, growth) = (input.unsigned()?, input.unsigned()?);
        }
        let (capacity, bits) = (input.unsigned()?, input.unsigned()?);
        let (hashes, items, form) = (input.unsigned()?, input.unsigned()?, input.unsigned()?);
        let wrong = RingError::Part(index);
        let hashes = u32::try_from(hashes).map_err(|_| wrong)?;
        let growth = u8::try_from(growth).map_err(|_| wrong)?;
        let part =
            PartHead { slice, growth, shape: ArrayShape { capacity, bits, hashes }, items, listed: form == LIST };
        let sound = form <= LIST && self.head.takes(&part, before);
        if sound { Ok(part) } else { Err(wrong.into()) }
    }
}

fn read_settings<I: Input>(input: &mut I) -> Result<RawSettings, I::Error> {
    let (flags, links, capacity) = (input.unsigned()?, input.unsigned()?, input.unsigned()?);
    // What does not fit has a flag that no ring has.
    let flags = u8::try_from(flags).unwrap_or(u8::MAX);
    let mut raw = RawSettings { flags, links, capacity, error: input.double()?, ..RawSettings::default() };
    if raw.is_window() {
        raw.span_ms = input.unsigned()?;
    }
    if raw.is_dual() {
        raw.threshold = input.double()?;
    }
    if flags & HAS_IDLE != 0 {
        raw.idle = input.unsigned()?;
    }
    if flags & HAS_KEY != 0 {
        for word in raw.key.as_chunks_mut::<WORD_BYTES>().0 {
            *word = input.unsigned()?.to_le_bytes();
        }
    }
    Ok(raw)
}

/// A value that was read and found sound, what its parts hold still where it stood.
#[derive(Debug)]
pub struct RingValue<'a> {
    head: RingHead,
    parts: Vec<(PartHead, RdbString<'a>)>,
}

impl<'a> RingValue<'a> {
    /// The value that is next, from its module id to its end mark.
    ///
    /// # Errors
    ///
    /// [`RingError`], but for a lack of memory.
    pub fn read(reader: &mut Reader<'a>) -> Result<Self, RingError> {
        let id = ModuleId::from_code(reader.length()?);
        let fields = RingFields::read::<_, RingError>(reader, id)?;
        let (mut parts, mut before) = (Vec::new(), 0);
        for index in 0..fields.parts {
            let part = fields.read_part::<_, RingError>(reader, index, before)?;
            reader.string_opcode()?;
            let content = reader.text()?;
            let mut check = ContentCheck::new(part);
            if content.len() != part.content_bytes() {
                return Err(RingError::Part(index));
            }
            content.pieces(|offset, piece| check.take(offset, piece))?;
            if !check.is_sound() {
                return Err(RingError::Part(index));
            }
            before = part.slice;
            parts.push((part, content));
        }
        reader.end()?;
        Ok(Self { head: fields.head, parts })
    }

    /// The ring but for its parts.
    #[must_use]
    pub fn head(&self) -> &RingHead {
        &self.head
    }

    /// Its parts but for what they hold, oldest first.
    pub fn parts(&self) -> impl ExactSizeIterator<Item = &PartHead> {
        self.parts.iter().map(|(part, _)| part)
    }

    /// Bytes of what all parts hold.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.parts().map(PartHead::content_bytes).fold(0, u64::saturating_add)
    }

    /// The ring.
    ///
    /// # Errors
    ///
    /// [`RingError::Memory`]; no memory is held then.
    pub fn build(self) -> Result<Ring, RingError> {
        let mut ring = self.head.ring();
        ring.parts.try_reserve_exact(self.parts.len()).map_err(|_| AllocError { bytes: self.bytes() })?;
        for (head, content) in self.parts {
            let mut part = head.empty()?;
            let mut put = Ok(());
            content.pieces(|offset, piece| {
                if put.is_ok() {
                    put = put_content(&mut part, offset, piece);
                }
            })?;
            put?;
            ring.parts.push_back(part);
        }
        Ok(ring)
    }
}
