//! A d-left filter of one set in one slice of bytes, for millions of small ones.
//!
//! All integers little-endian, at any alignment:
//!
//! ```text
//! flags u8: 1 counters of 4 bits, 2 spills, 4 grows, 8 key | sub-tables u8 | cells u8 | fingerprint bits u8       4 bytes
//! error f64 | capacity u32 | buckets u24 | used u24 | items u32 | seed u64                                   30
//! factor u32 | final capacity u64 (if it grows)                                                          0 or 12
//! key (if there is one)                                                                               0 or 16
//! the factors of its permutations, u64 each
//! the cells, in whole words
//! ```
//!
//! A filter that has anything beside its cells, more than one set, or a range above 2^32 is a [`Dleft`](super::Dleft).
//!
//! The types here trust their bytes, which only [`create`] and [`pack`] make; foreign bytes lead to wrong answers or a panic on a
//! slice's end, not to worse.

use super::geometry::{Layout, MOST_SUBTABLES};
use super::permutation::Permutations;
use super::table::{Probe, Table};
use super::{DleftRef, Geometry, Growth, Inserted, Loads, Refused, SetInfo, Settings, fingerprint};
use crate::filters::PACKED_MAX_BYTES;
use crate::filters::item_hash::{HashKey, KEY_BYTES};

// Where the fields stand.
const ERROR: usize = 4;
const CAPACITY: usize = 12;
const BUCKETS: usize = 16;
const USED: usize = 19;
const ITEMS: usize = 22;
const SEED: usize = 26;
const HEAD_BYTES: usize = 34;
const GROWTH_BYTES: usize = 12;
const FACTOR_BYTES: usize = 8;

// The flags.
const WIDE: u8 = 1;
const SPILLS: u8 = 2;
const GROWS: u8 = 4;
const KEYED: u8 = 8;

const U24_MAX: u64 = (1 << 24) - 1;
/// The greatest range of permutations in this form.
const MOST_RANGE: u64 = 1 << 32;

fn head_bytes(settings: &Settings) -> usize {
    HEAD_BYTES
        + settings.growth.map_or(0, |_| GROWTH_BYTES)
        + settings.key.map_or(0, |_| KEY_BYTES)
        + settings.subtables as usize * FACTOR_BYTES
}

/// Bytes of the payload of a filter of one such set; none if it does not fit into this form.
#[must_use]
pub fn payload_len(settings: &Settings, geometry: &Geometry) -> Option<usize> {
    let length = geometry.bytes().checked_add(head_bytes(settings) as u64)?;
    let fits = length <= PACKED_MAX_BYTES as u64
        && u32::try_from(settings.capacity).is_ok()
        && geometry.buckets <= U24_MAX
        && geometry.range() <= MOST_RANGE;
    fits.then_some(length as usize)
}

/// Writes an empty filter into `payload`, which has [`payload_len`] bytes of any content; the geometry is that of the settings.
///
/// # Panics
/// If the payload is shorter.
pub fn create(payload: &mut [u8], settings: &Settings, geometry: &Geometry, seed: u64) {
    debug_assert_eq!(payload_len(settings, geometry), Some(payload.len()));
    payload.fill(0);
    let flag = |is: bool, flag: u8| if is { flag } else { 0 };
    payload[0] = flag(settings.counter_bits == 4, WIDE)
        | flag(settings.spill, SPILLS)
        | flag(settings.growth.is_some(), GROWS)
        | flag(settings.key.is_some(), KEYED);
    payload[1] = settings.subtables as u8;
    payload[2] = settings.cells as u8;
    payload[3] = geometry.fingerprint_bits as u8;
    put(payload, ERROR, &settings.error.to_le_bytes());
    put(payload, CAPACITY, &(settings.capacity as u32).to_le_bytes());
    put(payload, BUCKETS, &geometry.buckets.to_le_bytes()[..3]);
    put(payload, SEED, &seed.to_le_bytes());
    let mut at = HEAD_BYTES;
    if let Some(Growth { factor, final_capacity }) = settings.growth {
        put(payload, at, &factor.to_le_bytes());
        put(payload, at + 4, &final_capacity.to_le_bytes());
        at += GROWTH_BYTES;
    }
    if let Some(key) = &settings.key {
        put(payload, at, key);
        at += KEY_BYTES;
    }
    let permutations = Permutations::draw(seed, settings.subtables, geometry.buckets, geometry.range());
    let factors = permutations.narrow().copied().unwrap_or_default();
    for (i, factor) in factors.iter().enumerate().take(settings.subtables as usize) {
        put(payload, at + i * FACTOR_BYTES, &factor.to_le_bytes());
    }
}

/// Whether [`pack`] can write this filter, and into how many bytes.
#[must_use]
pub fn packed_len(filter: DleftRef<'_>) -> Option<usize> {
    let mut sets = filter.sets();
    let first = sets.next()?;
    let fits = sets.next().is_none() && filter.spilled().is_empty() && u32::try_from(filter.items()).is_ok();
    fits.then(|| payload_len(&filter.settings(), &first.geometry)).flatten()
}

/// Writes a filter into `payload`, which has [`packed_len`] bytes of any content.
///
/// # Panics
/// If the payload is shorter.
pub fn pack(payload: &mut [u8], filter: DleftRef<'_>) {
    let Some(set) = filter.sets().next() else { return };
    create(payload, &filter.settings(), &set.geometry, filter.seed());
    put(payload, USED, &set.used.to_le_bytes()[..3]);
    put(payload, ITEMS, &(filter.items() as u32).to_le_bytes());
    filter.copy_bytes(0, 0, &mut payload[head_bytes(&filter.settings())..]);
}

#[inline]
fn put(payload: &mut [u8], at: usize, bytes: &[u8]) {
    payload[at..at + bytes.len()].copy_from_slice(bytes);
}

#[inline]
fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

#[inline]
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes[at..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

/// A packed filter, to read.
#[derive(Clone, Copy)]
pub struct PackedDleft<'a> {
    payload: &'a [u8],
}

impl<'a> PackedDleft<'a> {
    /// The filter in `payload`, which [`create`] or [`pack`] made.
    #[inline]
    #[must_use]
    pub fn new(payload: &'a [u8]) -> Self {
        Self { payload }
    }

    #[inline]
    fn has(self, flag: u8) -> bool {
        self.payload[0] & flag != 0
    }

    #[inline]
    fn subtables(self) -> usize {
        self.payload[1].into()
    }

    fn growth(self) -> Option<Growth> {
        self.has(GROWS).then(|| Growth {
            factor: u32_at(self.payload, HEAD_BYTES),
            final_capacity: u64_at(self.payload, HEAD_BYTES + 4),
        })
    }

    #[inline]
    fn key_at(self) -> usize {
        HEAD_BYTES + if self.has(GROWS) { GROWTH_BYTES } else { 0 }
    }

    #[inline]
    fn factors_at(self) -> usize {
        self.key_at() + if self.has(KEYED) { KEY_BYTES } else { 0 }
    }

    #[inline]
    fn body_at(self) -> usize {
        self.factors_at() + self.subtables() * FACTOR_BYTES
    }

    /// The key of its hashes.
    #[inline]
    #[must_use]
    pub fn key(self) -> Option<&'a HashKey> {
        if self.has(KEYED) { self.payload[self.key_at()..].first_chunk() } else { None }
    }

    /// What it was made with.
    #[must_use]
    pub fn settings(self) -> Settings {
        Settings {
            capacity: self.capacity(),
            error: f64::from_bits(u64_at(self.payload, ERROR)),
            growth: self.growth(),
            subtables: self.payload[1].into(),
            cells: self.payload[2].into(),
            counter_bits: self.geometry().counter_bits,
            spill: self.has(SPILLS),
            key: self.key().copied(),
        }
    }

    #[inline]
    fn capacity(self) -> u64 {
        u32_at(self.payload, CAPACITY).into()
    }

    #[inline]
    fn geometry(self) -> Geometry {
        Geometry {
            subtables: self.payload[1].into(),
            buckets: (u32_at(self.payload, BUCKETS) & U24_MAX as u32).into(),
            cells: self.payload[2].into(),
            fingerprint_bits: self.payload[3].into(),
            counter_bits: if self.has(WIDE) { 4 } else { 2 },
        }
    }

    #[inline]
    fn used(self) -> u64 {
        (u32_at(self.payload, USED) & U24_MAX as u32).into()
    }

    /// Its set.
    #[must_use]
    pub fn set(self) -> SetInfo {
        SetInfo { geometry: self.geometry(), capacity: self.capacity(), used: self.used() }
    }

    /// What its multipliers were drawn from.
    #[must_use]
    pub fn seed(self) -> u64 {
        u64_at(self.payload, SEED)
    }

    /// Items added and not removed since.
    #[inline]
    #[must_use]
    pub fn items(self) -> u64 {
        u32_at(self.payload, ITEMS).into()
    }

    /// The bytes of its cells.
    #[inline]
    #[must_use]
    pub fn body(self) -> &'a [u8] {
        &self.payload[self.body_at()..]
    }

    #[inline]
    fn parts(self) -> (Layout, Permutations) {
        let layout = Layout::new(self.geometry());
        let mut factors = [0; MOST_SUBTABLES];
        let (stored, _) = self.payload[self.factors_at()..self.body_at()].as_chunks();
        factors.iter_mut().zip(stored).for_each(|(factor, bytes)| *factor = u64::from_le_bytes(*bytes));
        (layout, Permutations::from_narrow(layout.geometry.range(), factors))
    }

    #[inline]
    fn with_table<R>(self, work: impl FnOnce(Table<'_, &[u8]>) -> R) -> R {
        let (layout, permutations) = self.parts();
        work(Table { layout: &layout, permutations: &permutations, words: self.body() })
    }

    #[inline]
    pub(super) fn contains(self, hash: u64) -> bool {
        self.with_table(|table| {
            let mut probe = table.probe(fingerprint(hash, table.layout.geometry.range()));
            table.search(&mut probe).is_some()
        })
    }

    #[inline]
    pub(super) fn count(self, hash: u64) -> u64 {
        self.with_table(|table| {
            let mut probe = table.probe(fingerprint(hash, table.layout.geometry.range()));
            table.search(&mut probe).map_or(0, |found| table.copies(&probe, found))
        })
    }

    /// Buckets with so many cells used.
    #[must_use]
    pub fn loads(self) -> Loads {
        let mut loads = Loads::default();
        self.with_table(|table| table.loads().for_each(|used| loads[used as usize] += 1));
        loads
    }

    pub(super) fn entries(self) -> Vec<(u64, u64)> {
        self.with_table(|table| table.entries().map(|entry| (entry.f, entry.copies)).collect())
    }

    pub(super) fn is_sound(self) -> bool {
        self.with_table(|table| {
            let is_found = |f, at| {
                let mut probe = table.probe(f);
                table.search(&mut probe) == Some(at)
            };
            let range = table.layout.geometry.range();
            table.is_clean()
                && self.used() == table.entries().count() as u64
                && self.items() == table.entries().map(|entry| entry.copies).sum::<u64>()
                && table.entries().all(|entry| entry.f < range && is_found(entry.f, entry.at))
        })
    }
}

/// A packed filter, to write.
pub struct PackedDleftMut<'a> {
    payload: &'a mut [u8],
}

impl<'a> PackedDleftMut<'a> {
    /// The filter in `payload`, which [`create`] or [`pack`] made.
    #[inline]
    #[must_use]
    pub fn new(payload: &'a mut [u8]) -> Self {
        Self { payload }
    }

    /// The same filter, to read.
    #[inline]
    #[must_use]
    pub fn as_ref(&self) -> PackedDleft<'_> {
        PackedDleft::new(self.payload)
    }

    /// Changes the cells at the places of a fingerprint; the work returns by how many the items and the used cells change.
    #[inline]
    fn write<R>(&mut self, hash: u64, work: impl FnOnce(&mut Table<'_, &mut [u8]>, &mut Probe) -> (R, i32, i32)) -> R {
        let (filter, (layout, permutations)) = (self.as_ref(), self.as_ref().parts());
        let (body, items, used) = (filter.body_at(), filter.items(), filter.used());
        let words = &mut self.payload[body..];
        let mut table = Table { layout: &layout, permutations: &permutations, words };
        let mut probe = table.probe(fingerprint(hash, layout.geometry.range()));
        let (result, more_items, more_used) = work(&mut table, &mut probe);
        put(self.payload, ITEMS, &(items as u32).wrapping_add_signed(more_items).to_le_bytes());
        put(self.payload, USED, &(used as u32).wrapping_add_signed(more_used).to_le_bytes()[..3]);
        result
    }

    pub(super) fn insert(&mut self, hash: u64) -> Result<Inserted, Refused> {
        let filter = self.as_ref();
        let (spills, used, capacity) = (filter.has(SPILLS), filter.used(), filter.capacity());
        let growth = filter.growth();
        let refused = |refused: Refused| (Err(if spills { Refused::NeedsLarge } else { refused }), 0, 0);
        self.write(hash, |table, probe| {
            if let Some(found) = table.search(probe) {
                let (copies, ceiling) = (table.copies(probe, found), table.layout.geometry.ceiling());
                if copies == ceiling {
                    return refused(Refused::CounterFull(copies));
                }
                table.set_copies(probe, found, copies + 1);
                return (Ok(Inserted::Counted(copies + 1)), 1, 0);
            }
            match growth {
                Some(Growth { final_capacity, .. }) if used >= capacity && final_capacity > capacity => {
                    return (Err(Refused::NeedsLarge), 0, 0);
                }
                Some(_) if used >= capacity => return (Err(Refused::Full { items: used, capacity }), 0, 0),
                _ => {}
            }
            match table.place(probe) {
                Some(_) => (Ok(Inserted::New), 1, 1),
                None => refused(Refused::NoCell),
            }
        })
    }

    pub(super) fn remove(&mut self, hash: u64) -> bool {
        self.write(hash, |table, probe| {
            let Some(found) = table.search(probe) else { return (false, 0, 0) };
            let copies = table.copies(probe, found);
            if copies > 1 {
                table.set_copies(probe, found, copies - 1);
                return (true, -1, 0);
            }
            table.free(probe, found);
            (true, -1, -1)
        })
    }
}
