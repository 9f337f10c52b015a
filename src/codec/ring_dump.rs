//! The bytes of `CHAIN.SCANDUMP` and `CHAIN.LOADCHUNK`: a header, then what the parts of the ring hold, in chunks.
//!
//! **Header**, all integers little-endian, doubles as their IEEE bits:
//!
//! | offset | size | field |
//! | --- | --- | --- |
//! | 0 | 8 | `SEENDUMP` |
//! | 8 | 1 | version of the format: 1 |
//! | 9 | 1 | kind of filter: 5, a ring |
//! | 10 | 1 | hash: 1 XXH3-64, 2 SipHash-2-4 |
//! | 11 | 1 | flags, as in [`ring_value`](super::ring_value) |
//! | 12 | 4 | links |
//! | 16 | 8 | capacity |
//! | 24 | 8 | error rate |
//! | 32 | 8 | span of the window, or 0 |
//! | 40 | 8 | threshold, or 0 |
//! | 48 | 8 | life after a write in seconds, or 0 |
//! | 56 | 16 | key of the hashes, or zeros |
//! | 72 | 8 | version of the ring |
//! | 80 | 8 | greatest time seen |
//! | 88 | 8 | what was lost |
//! | 96 | 8 | digest of the shape |
//! | 104 | 8 | bytes of all other chunks |
//! | 112 | 4 | number of other chunks |
//! | 116 | 4 | number of parts |
//! | 120 | 40 a part | parts, oldest first: slice, capacity, bits, items (8 each), hashes, growth, 1 for a list, five zeros |
//! | | 8 | [CRC64](super::crc64) of all before it |
//!
//! **Chunk**, at most [`CHUNK_BYTES`]: the digest of the shape (8), the chunk's number from 1 on (4), the number of chunks (4), pieces,
//! and the CRC64 of all before it. A piece is the number of items of its part (8), then a run of its bits, or all of its list: 8 bytes an item.
//! Which pieces stand in which chunk follows from the header: parts fill chunks in order; bits are cut where a chunk is full. A list is
//! not, and is given the room of the longest list that its part can have, so that it may grow while the dump goes on.
//!
//! **Cursor.** A dump called with 0 gives the header. The lower 28 bits of a cursor are the number of the chunk that comes
//! next, all ones behind the last; the upper 35 are of the digest. Nothing is kept between two calls.
//!
//! **Writes during a dump.** An item that was in from the dump's beginning to its end is in the dump if each part stayed at its place
//! meanwhile; then all its bits were there whenever they were read, and further bits do no harm. The *shape* is what must stay: settings, and of each
//! part slice, growth, size and whether it is a list. Rings by count need more: five full links look like five full links after a turn, but each
//! stands where another stood. There the version less the items of the active link is of the shape: adds raise both, a turn only
//! the first. Bounded windows can turn like that within a slice; there samples of those parts' bits are of it that no add reaches.
//! The slices of other windows are never the same again. With two arrays, one that has taken the place of another holds all items that were to stay.
//!
//! **Checksums.** Because nothing is kept, the last checksum cannot be that of all bytes as they were sent. Instead each chunk is
//! covered by its own, and says which it is, of how many, and of which shape; so nothing can be damaged, left out, taken twice or taken from
//! another shape without being noticed. A chunk of another dump of the same shape is as good as the right one.

pub use super::chunks::{CHUNK_BYTES, Chunk, DumpError, LoadError, MAGIC};
use super::chunks::{CRC_BYTES, END, Fields, HASH_SIP, HASH_XXH3, NUMBER_BITS, checked, push_crc, reserved};
use super::rdb::ModuleId;
use super::ring_fields::{
    ContentCheck, HASH_BYTES, MOST_ITEMS, MOST_TIME, PartHead, RawSettings, RingHead, push_content, put_content,
};
use super::value::Load;
use crate::filters::bits::AllocError;
use crate::filters::item_hash::{KEY_BYTES, hash_item};
use crate::filters::ring::part::most_listed;
use crate::filters::ring::shape::ArrayShape;
use crate::filters::ring::{Mode, Part, Ring, Store, Window};

const FORMAT: u8 = 1;
/// The number of this kind of filter in dumps and exports.
pub(super) const KIND_RING: u8 = 5;

const HEADER_BYTES: usize = 120;
const PART_BYTES: usize = 40;
/// Before the pieces of a chunk.
const CHUNK_HEAD_BYTES: usize = 16;
/// Before what a piece holds.
const PIECE_HEAD_BYTES: usize = 8;
/// Room for pieces.
const ROOM_BYTES: usize = CHUNK_BYTES - CHUNK_HEAD_BYTES - CRC_BYTES;

/// Samples of a part that does not change, and bytes of each.
const SAMPLES: usize = 8;
const SAMPLE_BYTES: usize = 32;

/// Dumps rings in chunks.
#[derive(Debug)]
pub struct RingDump;

impl RingDump {
    /// The chunk at this cursor: 0, or what came with the chunk before.
    ///
    /// # Errors
    ///
    /// [`DumpError`].
    pub fn chunk(ring: &Ring, cursor: u64) -> Result<Chunk, DumpError> {
        if cursor != 0 && cursor & END == END {
            return Ok(Chunk { cursor: 0, data: Vec::new() });
        }
        let layout = Layout::of(ring)?;
        if cursor == 0 {
            return Ok(Chunk { cursor: layout.cursor_behind(0), data: header(ring, &layout)? });
        }
        let number = cursor & END;
        if cursor != layout.cursor_of(number) || !(1..=u64::from(layout.chunks)).contains(&number) {
            return Err(DumpError::Changed);
        }
        let mut walk = Walk::to(&layout.parts, number);
        let data = content(ring, &layout, number as u32, &walk.next_chunk(&layout.parts))?;
        Ok(Chunk { cursor: layout.cursor_behind(number), data })
    }
}

impl RingDump {
    /// Whether a ring holds all that this chunk would give it, which is of a dump of a ring of its shape and no header. That
    /// is so when the ring was loaded with this chunk, and has only been added to since.
    ///
    /// # Errors
    ///
    /// [`AllocError`].
    pub fn holds(ring: &Ring, cursor: u64, data: &[u8]) -> Result<bool, AllocError> {
        let layout = Layout::of(ring)?;
        let head = RingHead::of(ring).ring();
        let load = RingLoad { layout, ring: head, next: 1, walk: Walk::default(), taken: 0 };
        let number = load.number_of(cursor).filter(|number| *number > 0);
        let Some((number, pieces)) = number.and_then(|number| Some((number, load.pieces_of(number, data)?))) else {
            return Ok(false);
        };
        let places = Walk::to(&load.layout.parts, number.into()).next_chunk(&load.layout.parts);
        let found = load.check(&places, pieces).unwrap_or_default();
        Ok(!found.is_empty() && found.iter().all(|piece| piece.is_in(&ring.parts[piece.part])))
    }
}

/// What stays the same during a dump.
#[derive(Clone, Debug)]
struct Layout {
    digest: u64,
    parts: Vec<PartHead>,
    chunks: u32,
}

impl Layout {
    fn of(ring: &Ring) -> Result<Self, AllocError> {
        let mut parts = Vec::new();
        let bytes = size_of::<PartHead>() * ring.parts.len();
        parts.try_reserve_exact(ring.parts.len()).map_err(|_| AllocError { bytes: bytes as u64 })?;
        parts.extend(ring.parts.iter().map(PartHead::of));
        let chunks = count_chunks(&parts).ok_or(AllocError { bytes: u64::MAX })?;
        Ok(Self { digest: digest(ring, &parts), parts, chunks })
    }

    fn cursor_of(&self, number: u64) -> u64 {
        (self.digest >> (NUMBER_BITS + 1)) << NUMBER_BITS | number
    }

    /// The cursor that comes with the chunk of this number, the header's being 0.
    fn cursor_behind(&self, number: u64) -> u64 {
        self.cursor_of(if number == u64::from(self.chunks) { END } else { number + 1 })
    }
}

/// The digest of the shape.
fn digest(ring: &Ring, parts: &[PartHead]) -> u64 {
    let mut bytes = Vec::with_capacity(HEADER_BYTES + parts.len() * PART_BYTES);
    push_settings(&mut bytes, &RawSettings::of(&ring.settings));
    for part in parts {
        push_part(&mut bytes, &PartHead { items: 0, ..*part });
    }
    match ring.settings.mode {
        Mode::Count => {
            let active = ring.parts.back().map_or(0, |part| part.items);
            bytes.extend_from_slice(&ring.version.wrapping_sub(active).to_le_bytes());
        }
        Mode::Window(Window { bounded: true, .. }) => {
            let next = ring.parts.iter().skip(1);
            let full = ring.parts.iter().zip(next).filter(|(part, next)| part.slice == next.slice);
            full.for_each(|(part, _)| push_samples(&mut bytes, part));
        }
        _ => {}
    }
    hash_item(&bytes, None)
}

/// Some bytes of a part to which nothing is added any more, from all over it.
fn push_samples(out: &mut Vec<u8>, part: &Part) {
    match &part.store {
        Store::List(hashes) => {
            let some = hashes.iter().take(SAMPLES * SAMPLE_BYTES / HASH_BYTES);
            some.for_each(|hash| out.extend_from_slice(&hash.to_le_bytes()));
        }
        Store::Bits(bits) => {
            let run = SAMPLE_BYTES.min(bits.len());
            for sample in 0..SAMPLES {
                push_content(out, part, (bits.len() - run) / SAMPLES * sample, run);
            }
        }
    }
}

/// A run of what a part holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    part: usize,
    offset: u64,
    /// Bytes of bits; 0 for a list.
    bytes: u64,
}

/// A place between two chunks.
#[derive(Clone, Copy, Debug, Default)]
struct Walk {
    part: usize,
    offset: u64,
}

impl Walk {
    /// The place before the chunk of this number.
    fn to(parts: &[PartHead], number: u64) -> Self {
        let (mut walk, mut passed) = (Self::default(), 1);
        while passed < number {
            passed += walk.pass(parts, number - passed);
        }
        walk
    }

    /// Steps over chunks, at least one and at most so many; tells how many. The inside of a long part is one step.
    fn pass(&mut self, parts: &[PartHead], most: u64) -> u64 {
        const RUN_BYTES: u64 = (ROOM_BYTES - PIECE_HEAD_BYTES) as u64;
        let bits = parts.get(self.part).filter(|part| !part.listed);
        let whole = bits.map_or(0, |part| (part.shape.bytes() - self.offset - 1) / RUN_BYTES);
        if whole == 0 {
            self.next_chunk(parts);
            return 1;
        }
        let chunks = whole.min(most);
        self.offset += chunks * RUN_BYTES;
        chunks
    }

    /// The pieces of the next chunk, none at the end.
    fn next_chunk(&mut self, parts: &[PartHead]) -> Vec<Piece> {
        let (mut pieces, mut room) = (Vec::new(), ROOM_BYTES as u64);
        while let Some(part) = parts.get(self.part) {
            let Some(left) = room.checked_sub(PIECE_HEAD_BYTES as u64 + 1).map(|left| left + 1) else { break };
            let Self { part: index, offset } = *self;
            if part.listed {
                let longest = room_bytes(part);
                let Some(left) = left.checked_sub(longest) else { break };
                pieces.push(Piece { part: index, offset, bytes: 0 });
                room = left;
                self.part += 1;
                continue;
            }
            let rest = part.shape.bytes() - offset;
            let bytes = rest.min(left);
            pieces.push(Piece { part: index, offset, bytes });
            room = left - bytes;
            *self = if bytes == rest {
                Self { part: index + 1, offset: 0 }
            } else {
                Self { part: index, offset: offset + bytes }
            };
        }
        pieces
    }
}

/// How many chunks these parts fill; none if more than there are numbers for.
fn count_chunks(parts: &[PartHead]) -> Option<u32> {
    let (mut walk, mut chunks) = (Walk::default(), 0u64);
    while walk.part < parts.len() {
        chunks = chunks.saturating_add(walk.pass(parts, u64::MAX));
    }
    u32::try_from(chunks).ok().filter(|_| chunks < END)
}

fn push_settings(out: &mut Vec<u8>, raw: &RawSettings) {
    out.push(raw.flags);
    out.extend_from_slice(&(raw.links as u32).to_le_bytes());
    for field in [raw.capacity, raw.error.to_bits(), raw.span_ms, raw.threshold.to_bits(), raw.idle] {
        out.extend_from_slice(&field.to_le_bytes());
    }
    out.extend_from_slice(&raw.key);
}

fn push_part(out: &mut Vec<u8>, part: &PartHead) {
    for field in [part.slice, part.shape.capacity, part.shape.bits, part.items] {
        out.extend_from_slice(&field.to_le_bytes());
    }
    out.extend_from_slice(&[part.shape.hashes as u8, part.growth, part.listed.into(), 0, 0, 0, 0, 0]);
}

fn header(ring: &Ring, layout: &Layout) -> Result<Vec<u8>, AllocError> {
    let mut data = reserved((HEADER_BYTES + layout.parts.len() * PART_BYTES + CRC_BYTES) as u64)?;
    let hash = if ring.settings.key.is_some() { HASH_SIP } else { HASH_XXH3 };
    data.extend_from_slice(MAGIC);
    data.extend_from_slice(&[FORMAT, KIND_RING, hash]);
    push_settings(&mut data, &RawSettings::of(&ring.settings));
    let head = RingHead::of(ring);
    for field in [head.version, head.latest, head.lost, layout.digest, total_bytes(&layout.parts)] {
        data.extend_from_slice(&field.to_le_bytes());
    }
    data.extend_from_slice(&layout.chunks.to_le_bytes());
    data.extend_from_slice(&(layout.parts.len() as u32).to_le_bytes());
    layout.parts.iter().for_each(|part| push_part(&mut data, part));
    push_crc(&mut data);
    Ok(data)
}

/// Bytes of what all parts hold, lists being as long as they can become.
fn total_bytes(parts: &[PartHead]) -> u64 {
    parts.iter().map(room_bytes).fold(0, u64::saturating_add)
}

fn room_bytes(part: &PartHead) -> u64 {
    if part.listed { most_listed(&part.shape) * HASH_BYTES as u64 } else { part.shape.bytes() }
}

fn content(ring: &Ring, layout: &Layout, number: u32, pieces: &[Piece]) -> Result<Vec<u8>, AllocError> {
    let of_piece = |piece: &Piece| PIECE_HEAD_BYTES as u64 + piece.bytes.max(list_bytes(&ring.parts[piece.part]));
    let bytes: u64 = pieces.iter().map(of_piece).sum();
    let mut data = reserved((CHUNK_HEAD_BYTES + CRC_BYTES) as u64 + bytes)?;
    data.extend_from_slice(&layout.digest.to_le_bytes());
    data.extend_from_slice(&number.to_le_bytes());
    data.extend_from_slice(&layout.chunks.to_le_bytes());
    for piece in pieces {
        let part = &ring.parts[piece.part];
        data.extend_from_slice(&part.items.to_le_bytes());
        push_content(&mut data, part, piece.offset as usize, piece.bytes as usize);
    }
    push_crc(&mut data);
    Ok(data)
}

fn list_bytes(part: &Part) -> u64 {
    match &part.store {
        Store::List(hashes) => (hashes.len() * HASH_BYTES) as u64,
        Store::Bits(_) => 0,
    }
}

/// A ring that is being loaded.
#[derive(Debug)]
pub struct RingLoad {
    layout: Layout,
    /// With the parts that were begun.
    ring: Ring,
    /// The chunk whose turn it is.
    next: u32,
    walk: Walk,
    taken: u64,
}

impl RingLoad {
    /// The load that this header begins, which came with `cursor`, of a ring of at most `limit_bytes`.
    ///
    /// # Errors
    ///
    /// [`LoadError::Bad`] also for a cursor that did not come with it; [`LoadError::Limit`].
    pub fn new(cursor: u64, header: &[u8], limit_bytes: u64) -> Result<Self, LoadError> {
        let load = read_header(header).ok_or(LoadError::Bad)?;
        if cursor != load.layout.cursor_behind(0) {
            return Err(LoadError::Bad);
        }
        let bytes = load.bytes();
        if bytes > limit_bytes { Err(LoadError::Limit { bytes }) } else { Ok(load) }
    }

    /// Bytes of what the ring will hold, lists being as long as they can become.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        total_bytes(&self.layout.parts)
    }

    /// So many of them were taken.
    #[must_use]
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// The ring but for its parts.
    #[must_use]
    pub fn head(&self) -> RingHead {
        RingHead::of(&self.ring)
    }

    /// Whether all chunks were taken.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.next > self.layout.chunks
    }

    /// Bytes of the heap, each allocation counted as `size_class` says.
    #[must_use]
    pub fn heap_bytes(&self, size_class: fn(usize) -> usize) -> usize {
        let parts = match self.layout.parts.capacity() {
            0 => 0,
            parts => size_class(parts * size_of::<PartHead>()),
        };
        parts + self.ring.heap_bytes(size_class)
    }

    /// Takes the chunk that came with `cursor`; one that was taken already changes nothing. Says whether the ring is whole now.
    ///
    /// # Errors
    ///
    /// [`LoadError`], but for a limit.
    pub fn take(&mut self, cursor: u64, data: &[u8]) -> Result<bool, LoadError> {
        let expected = self.layout.cursor_behind(self.next.min(self.layout.chunks).into());
        let number = self.number_of(cursor).filter(|number| *number <= self.next);
        let number = number.ok_or(LoadError::Offset { expected })?;
        if number == 0 {
            let again = read_header(data).is_some_and(|load| load.layout.digest == self.layout.digest);
            return if again { Ok(self.is_whole()) } else { Err(LoadError::Bad) };
        }
        let pieces = self.pieces_of(number, data).ok_or(LoadError::Bad)?;
        if number < self.next {
            return Ok(self.is_whole());
        }
        let mut walk = self.walk;
        let places = walk.next_chunk(&self.layout.parts);
        let found = self.check(&places, pieces).ok_or(LoadError::Bad)?;
        for piece in found {
            self.put(piece)?;
        }
        self.walk = walk;
        self.next += 1;
        self.taken += places.iter().map(|place| self.room_of(place)).sum::<u64>();
        if self.is_whole() {
            self.count_writes();
        }
        Ok(self.is_whole())
    }

    /// Chunks have what was written after the header was given; each write raised the version by one.
    fn count_writes(&mut self) {
        let heads = self.ring.parts.iter().zip(&self.layout.parts);
        let writes = heads.map(|(part, head)| part.items.saturating_sub(head.items)).fold(0, u64::saturating_add);
        self.ring.version = self.ring.version.saturating_add(writes).min(MOST_TIME);
    }

    /// The ring, if it is whole.
    #[must_use]
    pub fn ring(&self) -> Option<&Ring> {
        self.is_whole().then_some(&self.ring)
    }

    /// The same, and the end of the load.
    #[must_use]
    pub fn into_ring(self) -> Option<Ring> {
        self.is_whole().then_some(self.ring)
    }

    /// The number of the chunk that comes with this cursor.
    fn number_of(&self, cursor: u64) -> Option<u32> {
        let number = match cursor & END {
            END => self.layout.chunks,
            number => u32::try_from(number.checked_sub(1)?).ok()?,
        };
        (cursor == self.layout.cursor_behind(number.into()) && number <= self.layout.chunks).then_some(number)
    }

    /// The pieces in a chunk, if it is the one of this number and undamaged.
    fn pieces_of<'d>(&self, number: u32, data: &'d [u8]) -> Option<&'d [u8]> {
        let mut fields = Fields(checked(data)?);
        let own = fields.u64()? == self.layout.digest && fields.u32()? == number && fields.u32()? == self.layout.chunks;
        own.then_some(fields.0)
    }

    /// The pieces that belong to these places, if they are sound and nothing follows them.
    fn check<'d>(&self, places: &[Piece], data: &'d [u8]) -> Option<Vec<Found<'d>>> {
        let (mut fields, mut found) = (Fields(data), Vec::new());
        for place in places {
            let items = fields.u64().filter(|items| *items <= MOST_ITEMS)?;
            let head = PartHead { items, ..*self.layout.parts.get(place.part)? };
            let sized = !head.listed || items <= most_listed(&head.shape);
            let bytes = if head.listed { head.content_bytes() } else { place.bytes };
            let content = fields.bytes(usize::try_from(bytes).ok().filter(|_| sized)?)?;
            let offset = usize::try_from(place.offset).ok()?;
            let mut check = ContentCheck::new(head);
            check.take(offset, content);
            found.push(Found { part: place.part, head, offset, content });
            check.is_sound().then_some(())?;
        }
        fields.0.is_empty().then_some(found)
    }

    fn room_of(&self, place: &Piece) -> u64 {
        match self.layout.parts.get(place.part) {
            Some(part) if part.listed => room_bytes(part),
            _ => place.bytes,
        }
    }

    /// Puts a piece where it belongs; a second time it changes nothing.
    fn put(&mut self, piece: Found<'_>) -> Result<(), AllocError> {
        let Found { part: index, head, offset, content } = piece;
        if self.ring.parts.len() == index {
            self.ring.parts.push_back(head.empty()?);
        }
        let part = &mut self.ring.parts[index];
        part.items = head.items;
        if let Store::List(hashes) = &mut part.store {
            hashes.clear();
        }
        put_content(part, offset, content)
    }
}

/// A piece of a chunk that was found sound.
struct Found<'d> {
    part: usize,
    head: PartHead,
    offset: usize,
    content: &'d [u8],
}

impl Found<'_> {
    /// Whether a part of the same shape holds all of it.
    fn is_in(&self, part: &Part) -> bool {
        match &part.store {
            Store::List(own) => {
                let (hashes, _) = self.content.as_chunks::<HASH_BYTES>();
                hashes.iter().all(|hash| own.binary_search(&u64::from_le_bytes(*hash)).is_ok())
            }
            Store::Bits(bits) => {
                let mut own = vec![0; self.content.len()];
                bits.copy_bytes(self.offset, &mut own);
                own.iter().zip(self.content).all(|(own, given)| own & given == *given)
            }
        }
    }
}

impl Load for RingLoad {
    const HALF_ID: ModuleId = match ModuleId::new(b"seenCHAIN", 1) {
        Some(id) => id,
        None => panic!("no name of a module"),
    };
    const COMMAND: &'static str = "CHAIN.LOADCHUNK";

    fn begin(cursor: u64, header: &[u8], limit_bytes: u64) -> Result<Self, LoadError> {
        Self::new(cursor, header, limit_bytes)
    }

    fn bytes(&self) -> u64 {
        self.bytes()
    }

    fn taken(&self) -> u64 {
        self.taken()
    }

    fn is_whole(&self) -> bool {
        self.is_whole()
    }

    fn footprint(&self, size_class: fn(usize) -> usize) -> (usize, usize) {
        (self.heap_bytes(size_class), 0)
    }
}

/// The load that a header begins.
fn read_header(data: &[u8]) -> Option<RingLoad> {
    let mut fields = Fields(checked(data)?);
    let known = fields.array::<8>()? == *MAGIC && fields.array()? == [FORMAT, KIND_RING];
    let [hash, flags] = fields.array()?;
    let raw = RawSettings {
        flags,
        links: fields.u32()?.into(),
        capacity: fields.u64()?,
        error: f64::from_bits(fields.u64()?),
        span_ms: fields.u64()?,
        threshold: f64::from_bits(fields.u64()?),
        idle: fields.u64()?,
        key: fields.array::<KEY_BYTES>()?,
    };
    let settings = raw.check().filter(|_| known)?;
    let hashed = hash == if settings.key.is_some() { HASH_SIP } else { HASH_XXH3 };
    let head = RingHead { settings, version: fields.u64()?, latest: fields.u64()?, lost: fields.u64()? };
    let (digest, bytes, chunks, count) = (fields.u64()?, fields.u64()?, fields.u32()?, fields.u32()?);
    let sound = hashed && head.is_sound() && count as usize <= head.most_parts();
    let parts = read_parts(&mut fields, &head, count).filter(|_| sound && fields.0.is_empty())?;
    let right = bytes == total_bytes(&parts) && count_chunks(&parts) == Some(chunks);
    let layout = Layout { digest, parts, chunks };
    right.then(|| RingLoad { layout, ring: head.ring(), next: 1, walk: Walk::default(), taken: 0 })
}

/// So many parts; what they take grows with the bytes that are there.
fn read_parts(fields: &mut Fields<'_>, ring: &RingHead, count: u32) -> Option<Vec<PartHead>> {
    let (mut parts, mut before) = (Vec::new(), 0);
    for _ in 0..count {
        let (slice, capacity) = (fields.u64()?, fields.u64()?);
        let (bits, items) = (fields.u64()?, fields.u64()?);
        let [hashes, growth, form, zeros @ ..] = fields.array::<8>()?;
        let shape = ArrayShape { capacity, bits, hashes: hashes.into() };
        let part = PartHead { slice, growth, shape, items, listed: form == 1 };
        let sound = form <= 1 && zeros == [0; 5] && ring.takes(&part, before);
        before = slice;
        parts.push(Some(part).filter(|_| sound)?);
    }
    Some(parts)
}
