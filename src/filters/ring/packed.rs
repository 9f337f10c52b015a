//! A ring in one slice of bytes, for millions of small ones.
//!
//! All integers little-endian:
//!
//! ```text
//! flags u8 | parts u8 | links u16 | error f64 | capacity u32 | version u64                       24 bytes
//! threshold f64 (two arrays)  or  span u64 | latest u64 | lost u64 (a window)               0, 8 or 24
//! idle u32 (if there is one) | key (if there is one)                                     0, 4, 16 or 20
//! per part, oldest first:
//!   hashes, and 128 for a list u8 | items u24 | bits u24 | capacity u24                          10 bytes
//!   slice u48 | growth u8 (a window)                                                         0 or 7
//! what each part holds, oldest first: hashes of 8 bytes in ascending order, or bits
//! room for the newest part to grow, of any content
//! ```
//!
//! Most adds change the content of the newest part only; those are done here, in place. All others go through a [`Ring`]:
//! unpacked, changed, packed anew by the owner of the bytes. Owners give what their allocator would waste as room, which
//! lists of hashes then grow into.
//!
//! The types here trust their bytes, which only [`pack`] makes; foreign bytes lead to wrong answers or a panic on a slice's end, not to
//! worse.

use super::bits::SharedBits;
use super::part::most_listed;
use super::shape::ArrayShape;
use super::{Event, Inserted, Mode, Part, Ring, Settings, Store, Window, raised};
use crate::filters::bits::AllocError;
use crate::filters::item_hash::{HashKey, KEY_BYTES, positions};

const HEAD_BYTES: usize = 24;
const THRESHOLD_BYTES: usize = 8;
const WINDOW_BYTES: usize = 24;
const IDLE_BYTES: usize = 4;
const PART_BYTES: usize = 10;
const SLICE_BYTES: usize = 7;
pub(super) const HASH_BYTES: usize = 8;

// The flags of a ring.
const WINDOW: u8 = 1;
const DUAL: u8 = 2;
const LINK_ERROR: u8 = 4;
const BOUNDED: u8 = 8;
const BY_EVENTS: u8 = 16;
const HAS_IDLE: u8 = 32;
const HAS_KEY: u8 = 64;
/// Something was lost, of a ring without a window.
const LOST: u8 = 128;

/// The mark of a list, beside the number of hashes.
const LIST: u8 = 128;

// Where the fields stand.
const PARTS: usize = 1;
const LINKS: usize = 2;
const ERROR: usize = 4;
const CAPACITY: usize = 12;
const VERSION: usize = 16;
const LATEST: usize = HEAD_BYTES + 8;
const LOST_UNTIL: usize = HEAD_BYTES + 16;

// Where those of a part stand within it.
const ITEMS: usize = 1;
const BITS: usize = 4;
const ITS_CAPACITY: usize = 7;
const GROWTH: usize = 16;

const U24_MAX: u64 = (1 << 24) - 1;
const U48_MAX: u64 = (1 << 48) - 1;

fn head_bytes(settings: &Settings) -> usize {
    let mode = match settings.mode {
        Mode::Count => 0,
        Mode::Window(_) => WINDOW_BYTES,
        Mode::Dual { .. } => THRESHOLD_BYTES,
    };
    HEAD_BYTES + mode + settings.idle.map_or(0, |_| IDLE_BYTES) + settings.key.map_or(0, |_| KEY_BYTES)
}

fn part_bytes(settings: &Settings) -> usize {
    PART_BYTES + if matches!(settings.mode, Mode::Window(_)) { SLICE_BYTES } else { 0 }
}

fn content_bytes(part: &Part) -> usize {
    match &part.store {
        Store::List(hashes) => hashes.len() * HASH_BYTES,
        Store::Bits(bits) => bits.len(),
    }
}

/// Bytes that a ring takes in this form, without room to grow; none if a field of it is too large.
#[must_use]
pub fn packed_len(ring: &Ring) -> Option<usize> {
    let fits_part = |part: &Part| {
        part.items <= U24_MAX
            && part.shape.bits <= U24_MAX
            && part.shape.capacity <= U24_MAX
            && part.shape.hashes < u32::from(LIST)
            && part.slice <= U48_MAX
    };
    let fits = ring.settings.capacity <= u64::from(u32::MAX)
        && ring.parts.len() <= usize::from(u8::MAX)
        && ring.parts.iter().all(fits_part);
    let contents: usize = ring.parts.iter().map(content_bytes).sum();
    fits.then(|| head_bytes(&ring.settings) + ring.parts.len() * part_bytes(&ring.settings) + contents)
}

/// Write a ring into `payload`, which has at least [`packed_len`] bytes; what is left is room.
///
/// # Panics
/// If the payload is shorter.
pub fn pack(ring: &Ring, payload: &mut [u8]) {
    let settings = &ring.settings;
    let is_window = matches!(settings.mode, Mode::Window(_));
    let mut out = Writer(payload);
    out.put(&[flags(settings) | if ring.lost > 0 && !is_window { LOST } else { 0 }, ring.parts.len() as u8]);
    out.put(&settings.links.to_le_bytes());
    out.put(&settings.error.to_le_bytes());
    out.put(&(settings.capacity as u32).to_le_bytes());
    out.put(&ring.version.to_le_bytes());
    match settings.mode {
        Mode::Count => {}
        Mode::Dual { threshold } => out.put(&threshold.to_le_bytes()),
        Mode::Window(window) => {
            [window.span_ms, ring.latest, ring.lost].iter().for_each(|field| out.put(&field.to_le_bytes()));
        }
    }
    settings.idle.iter().for_each(|idle| out.put(&idle.to_le_bytes()));
    settings.key.iter().for_each(|key| out.put(key));
    for part in &ring.parts {
        out.put(&[part.shape.hashes as u8 | if matches!(part.store, Store::List(_)) { LIST } else { 0 }]);
        [part.items, part.shape.bits, part.shape.capacity].iter().for_each(|field| out.put(&field.to_le_bytes()[..3]));
        if is_window {
            out.put(&part.slice.to_le_bytes()[..6]);
            out.put(&[part.growth]);
        }
    }
    for part in &ring.parts {
        match &part.store {
            Store::List(hashes) => hashes.iter().for_each(|hash| out.put(&hash.to_le_bytes())),
            Store::Bits(bits) => bits.copy_bytes(0, out.take(bits.len())),
        }
    }
}

/// What is still to be written.
struct Writer<'a>(&'a mut [u8]);

impl<'a> Writer<'a> {
    fn take(&mut self, bytes: usize) -> &'a mut [u8] {
        let (place, rest) = std::mem::take(&mut self.0).split_at_mut(bytes);
        self.0 = rest;
        place
    }

    fn put(&mut self, bytes: &[u8]) {
        self.take(bytes.len()).copy_from_slice(bytes);
    }
}

fn flags(settings: &Settings) -> u8 {
    let mode = match settings.mode {
        Mode::Count => 0,
        Mode::Dual { .. } => DUAL,
        Mode::Window(Window { bounded, by_events, .. }) => {
            WINDOW | if bounded { BOUNDED } else { 0 } | if by_events { BY_EVENTS } else { 0 }
        }
    };
    let link_error = if settings.link_error { LINK_ERROR } else { 0 };
    let idle = if settings.idle.is_some() { HAS_IDLE } else { 0 };
    mode | link_error | idle | if settings.key.is_some() { HAS_KEY } else { 0 }
}

#[inline]
fn u24(bytes: &[u8], at: usize) -> u64 {
    u64::from(bytes[at]) | u64::from(bytes[at + 1]) << 8 | u64::from(bytes[at + 2]) << 16
}

#[inline]
fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&bytes[at..at + N]);
    field
}

/// A packed ring, to read.
#[derive(Clone, Copy)]
pub struct PackedRing<'a> {
    payload: &'a [u8],
}

/// One part, read where it stands.
#[derive(Clone, Copy)]
pub(super) struct PartRef<'a> {
    /// Its entry in the table.
    entry: &'a [u8],
    pub(super) content: &'a [u8],
}

impl<'a> PartRef<'a> {
    fn items(self) -> u64 {
        u24(self.entry, ITEMS)
    }

    #[inline]
    pub(super) fn shape(self) -> ArrayShape {
        let hashes = u32::from(self.entry[0] & !LIST);
        ArrayShape { capacity: u24(self.entry, ITS_CAPACITY), bits: u24(self.entry, BITS), hashes }
    }

    pub(super) fn is_list(self) -> bool {
        self.entry[0] & LIST != 0
    }

    fn slice(self) -> u64 {
        match self.entry.len() {
            PART_BYTES => 0,
            _ => {
                let mut slice = [0; 8];
                slice[..SLICE_BYTES - 1].copy_from_slice(&self.entry[PART_BYTES..GROWTH]);
                u64::from_le_bytes(slice)
            }
        }
    }

    #[inline]
    fn contains(self, hash: u64) -> bool {
        if self.is_list() {
            return self.place_in_list(hash).is_ok();
        }
        let ArrayShape { bits, hashes, .. } = self.shape();
        positions(hash, bits, hashes).all(|x| self.content[(x >> 3) as usize] & 1 << (x & 7) != 0)
    }

    /// Where a hash stands in the list, or should.
    fn place_in_list(self, hash: u64) -> Result<usize, usize> {
        let (hashes, _) = self.content.as_chunks::<HASH_BYTES>();
        hashes.binary_search_by(|listed| u64::from_le_bytes(*listed).cmp(&hash))
    }

    fn unpack(self) -> Result<Part, AllocError> {
        let shape = self.shape();
        let store = if self.is_list() {
            let (hashes, _) = self.content.as_chunks::<HASH_BYTES>();
            Store::List(hashes.iter().map(|hash| u64::from_le_bytes(*hash)).collect())
        } else {
            let mut bits = SharedBits::zeroed(shape.bits)?;
            bits.or_bytes(0, self.content)?;
            Store::Bits(bits)
        };
        let growth = self.entry.get(GROWTH).copied().unwrap_or(0);
        Ok(Part { slice: self.slice(), growth, shape, items: self.items(), store })
    }
}

impl<'a> PackedRing<'a> {
    /// The ring in `payload`, which [`pack`] made.
    #[inline]
    #[must_use]
    pub fn new(payload: &'a [u8]) -> Self {
        Self { payload }
    }

    fn flags(self) -> u8 {
        self.payload[0]
    }

    /// Whether it forgets by clock.
    #[must_use]
    pub fn is_window(self) -> bool {
        self.flags() & WINDOW != 0
    }

    /// Whether its time is that of its events.
    #[must_use]
    pub fn is_by_events(self) -> bool {
        self.flags() & BY_EVENTS != 0
    }

    fn links(self) -> u64 {
        u64::from(u16::from_le_bytes(field(self.payload, LINKS)))
    }

    /// Where the fields end that every ring has, and those of its mode.
    fn mode_end(self) -> usize {
        HEAD_BYTES
            + match self.flags() & (WINDOW | DUAL) {
                0 => 0,
                DUAL => THRESHOLD_BYTES,
                _ => WINDOW_BYTES,
            }
    }

    fn head_end(self) -> usize {
        let flags = self.flags();
        let idle = if flags & HAS_IDLE != 0 { IDLE_BYTES } else { 0 };
        self.mode_end() + idle + if flags & HAS_KEY != 0 { KEY_BYTES } else { 0 }
    }

    /// The key of its hashes.
    #[inline]
    #[must_use]
    pub fn key(self) -> Option<&'a HashKey> {
        match self.flags() & HAS_KEY {
            0 => None,
            _ => self.payload[..self.head_end()].last_chunk(),
        }
    }

    /// What every write sets the key's life to, in seconds.
    #[must_use]
    pub fn idle(self) -> Option<u32> {
        (self.flags() & HAS_IDLE != 0).then(|| u32::from_le_bytes(field(self.payload, self.mode_end())))
    }

    /// What it was made with.
    #[must_use]
    pub fn settings(self) -> Settings {
        let flags = self.flags();
        let mode = match flags & (WINDOW | DUAL) {
            0 => Mode::Count,
            DUAL => Mode::Dual { threshold: f64::from_le_bytes(field(self.payload, HEAD_BYTES)) },
            _ => Mode::Window(Window {
                span_ms: u64::from_le_bytes(field(self.payload, HEAD_BYTES)),
                bounded: flags & BOUNDED != 0,
                by_events: flags & BY_EVENTS != 0,
            }),
        };
        Settings {
            capacity: u32::from_le_bytes(field(self.payload, CAPACITY)).into(),
            error: f64::from_le_bytes(field(self.payload, ERROR)),
            link_error: flags & LINK_ERROR != 0,
            links: u16::from_le_bytes(field(self.payload, LINKS)),
            mode,
            idle: self.idle(),
            key: self.key().copied(),
        }
    }

    /// The greatest time that it has seen; 0 without a window.
    #[must_use]
    pub fn latest(self) -> u64 {
        if self.is_window() { u64::from_le_bytes(field(self.payload, LATEST)) } else { 0 }
    }

    /// The time for whoever reads it now by the server's clock, as [`Settings::reading_time`] gives it.
    #[must_use]
    pub fn reading_time(self, clock: u64) -> u64 {
        match (self.is_window(), self.is_by_events()) {
            (false, _) => 0,
            (true, true) => self.latest(),
            (true, false) => self.latest().max(clock),
        }
    }

    /// Its version.
    #[must_use]
    pub fn version(self) -> u64 {
        u64::from_le_bytes(field(self.payload, VERSION))
    }

    fn lost(self) -> u64 {
        match self.is_window() {
            true => u64::from_le_bytes(field(self.payload, LOST_UNTIL)),
            false => u64::from(self.flags() & LOST != 0),
        }
    }

    /// The oldest slice that counts at this time.
    fn oldest_alive(self, now: u64) -> u64 {
        match self.is_window() {
            true => (self.settings().slice_of(now) + 1).saturating_sub(self.links()),
            false => 0,
        }
    }

    /// All parts, oldest first.
    fn parts(self) -> impl Iterator<Item = PartRef<'a>> {
        let entry_bytes = if self.is_window() { PART_BYTES + SLICE_BYTES } else { PART_BYTES };
        let (entries, mut contents) = self.payload[self.head_end()..].split_at(self.table_bytes(entry_bytes));
        entries.chunks_exact(entry_bytes).map(move |entry| {
            let part = PartRef { entry, content: &[] };
            let length = if part.is_list() {
                part.items() as usize * HASH_BYTES
            } else {
                (u24(entry, BITS) as usize).div_ceil(8)
            };
            let content;
            (content, contents) = contents.split_at(length);
            PartRef { entry, content }
        })
    }

    fn table_bytes(self, entry_bytes: usize) -> usize {
        usize::from(self.payload[PARTS]) * entry_bytes
    }

    /// The parts that are asked at this time, oldest first.
    pub(super) fn alive(self, now: u64) -> impl Iterator<Item = PartRef<'a>> {
        let asked = if self.flags() & DUAL != 0 { 1 } else { usize::from(self.payload[PARTS]) };
        let oldest = self.oldest_alive(now);
        self.parts().take(asked).filter(move |part| part.slice() >= oldest)
    }

    /// Whether an item with this hash was written to what is remembered at this time, or looks like it.
    #[inline]
    #[must_use]
    pub fn contains(self, hash: u64, now: u64) -> bool {
        self.alive(now).any(|part| part.contains(hash))
    }

    /// Items written to what is remembered at this time.
    #[must_use]
    pub fn items(self, now: u64) -> u64 {
        self.alive(now).map(PartRef::items).sum()
    }

    /// The ring with allocations of its own.
    ///
    /// # Errors
    /// [`AllocError`] when there is no memory.
    pub fn unpack(self) -> Result<Ring, AllocError> {
        let mut ring = Ring::new(self.settings(), self.version()).seen(self.latest(), self.lost());
        for part in self.parts() {
            ring.parts.push_back(part.unpack()?);
        }
        Ok(ring)
    }
}

/// A write takes more than a change of what the newest part holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beyond {
    /// The same bytes with room behind them: so many in all, at least.
    Room {
        /// Length of the payload.
        payload_len: usize,
    },
    /// A change of parts, by way of a [`Ring`].
    Parts,
}

/// A packed ring, to write.
pub struct PackedRingMut<'a> {
    payload: &'a mut [u8],
}

impl<'a> PackedRingMut<'a> {
    /// The ring in `payload`, which [`pack`] made.
    #[inline]
    #[must_use]
    pub fn new(payload: &'a mut [u8]) -> Self {
        Self { payload }
    }

    /// The same ring, to read.
    #[inline]
    #[must_use]
    pub fn as_ref(&self) -> PackedRing<'_> {
        PackedRing::new(self.payload)
    }

    /// Write an item, as [`Ring::insert`] does; none if that takes more than a change of the newest part's content.
    pub fn insert(&mut self, hash: u64, event: Event) -> Option<Inserted> {
        self.try_insert(hash, event).ok()
    }

    /// The same.
    ///
    /// # Errors
    /// [`Beyond`]: what it takes; nothing has changed then.
    pub fn try_insert(&mut self, hash: u64, event: Event) -> Result<Inserted, Beyond> {
        let ring = self.as_ref();
        if ring.flags() & DUAL != 0 {
            return Err(Beyond::Parts);
        }
        let slice = if ring.is_window() { ring.settings().slice_of(event.at) } else { 0 };
        let oldest = ring.oldest_alive(event.now);
        let (mut unseen, mut written, mut last) = (true, false, None);
        for part in ring.parts() {
            let yes = part.contains(hash);
            unseen &= !(yes && part.slice() >= oldest);
            // By count only the newest part is the one that is written; with a window, all of the event's slice.
            written = yes && part.slice() == slice || written && ring.is_window();
            last = Some(part);
        }
        let last = last.filter(|part| part.slice() == slice).ok_or(Beyond::Parts)?;
        if written {
            // Time that the events carry goes on all the same.
            let moves = ring.is_by_events() && event.now > ring.latest();
            return if moves { Err(Beyond::Parts) } else { Ok(Inserted { unseen, changed: false }) };
        }
        let shape = last.shape();
        if last.items() >= shape.capacity {
            return Err(Beyond::Parts);
        }
        let start = last.content.as_ptr().addr() - ring.payload.as_ptr().addr();
        let (entry, length) = (last.entry.as_ptr().addr() - ring.payload.as_ptr().addr(), last.content.len());
        let items = last.items() + 1;
        if last.is_list() {
            let place = last.place_in_list(hash).err().ok_or(Beyond::Parts)?;
            if items > most_listed(&shape) {
                return Err(Beyond::Parts);
            }
            if self.payload.len() < start + length + HASH_BYTES {
                return Err(Beyond::Room { payload_len: start + length + HASH_BYTES });
            }
            let list = &mut self.payload[start..start + length + HASH_BYTES];
            list.copy_within(place * HASH_BYTES..length, (place + 1) * HASH_BYTES);
            list[place * HASH_BYTES..][..HASH_BYTES].copy_from_slice(&hash.to_le_bytes());
        } else {
            let bits = &mut self.payload[start..start + length];
            positions(hash, shape.bits, shape.hashes).for_each(|x| bits[(x >> 3) as usize] |= 1 << (x & 7));
        }
        self.payload[entry + ITEMS..entry + BITS].copy_from_slice(&items.to_le_bytes()[..3]);
        self.changed(event.now);
        Ok(Inserted { unseen, changed: true })
    }

    fn changed(&mut self, now: u64) {
        let version = raised(self.as_ref().version(), 1);
        self.payload[VERSION..HEAD_BYTES].copy_from_slice(&version.to_le_bytes());
        if self.as_ref().is_window() {
            let latest = self.as_ref().latest().max(now);
            self.payload[LATEST..LOST_UNTIL].copy_from_slice(&latest.to_le_bytes());
        }
    }
}

/// One part of a packed ring as its fields and the bytes of what it holds, for whoever writes it elsewhere.
#[derive(Clone, Copy, Debug)]
pub struct RawPart<'a> {
    /// The slice of time that it belongs to; 0 without a window.
    pub slice: u64,
    /// Which array of its slice it is.
    pub growth: u8,
    /// Its size.
    pub shape: ArrayShape,
    /// Items written to it.
    pub items: u64,
    /// Whether it is a list.
    pub listed: bool,
    /// The hashes of 8 bytes, or the bits.
    pub content: &'a [u8],
}

impl<'a> PackedRing<'a> {
    /// As [`Ring::lost`].
    #[must_use]
    pub fn lost_until(self) -> u64 {
        self.lost()
    }

    /// All parts, oldest first.
    pub fn raw_parts(self) -> impl Iterator<Item = RawPart<'a>> {
        self.parts().map(|part| RawPart {
            slice: part.entry.get(PART_BYTES..GROWTH).map_or(0, |slice| {
                let mut bytes = [0; 8];
                bytes[..slice.len()].copy_from_slice(slice);
                u64::from_le_bytes(bytes)
            }),
            growth: part.entry.get(GROWTH).copied().unwrap_or(0),
            shape: part.shape(),
            items: part.items(),
            listed: part.is_list(),
            content: part.content,
        })
    }
}
