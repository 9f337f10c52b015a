//! All keys as they were at one moment, read while work goes on: the *cut*.
//!
//! [`Keyspace::snapshot`] holds all shards for an instant and raises the epoch. From then on an entry of an older epoch is *old*:
//! whoever is about to change, move or remove one first hands over its *image*, the key as it was; the walk of
//! [`Snapshot::step`] does so with all that nobody touched. The image of a small filter is a copy; that of one with
//! allocations of its own is a [`Frozen`] chain, whose bits are read later, without any lock.
//!
//! **Which entries are old.** A packed entry has one bit for it: that of the epoch's number. It can be one bit because every
//! entry has that of the current epoch when a snapshot ends, also one that is given up: the walk goes to its end all the same.
//! A large filter knows the epoch's number itself.
//!
//! **Nobody is away at the cut.** A long command has its key alone and to all others is one step; so the cut waits until no
//! key is away, as commands on whole databases do. Later ones hand over the image when they take the key.
//!
//! **Databases that change places.** SWAPDB touches no entry. It is remembered which database at the cut the tables of each
//! belonged to, and a shard in the middle of the walk is walked again.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::effect::Profile;
use super::entry::{EntryRef, Kind, RingRef, ValueRef};
use super::latch::Wait;
use super::shard::Common;
use super::table::Table;
use super::{DATABASES, Keyspace, SHARDS};
use crate::codec::value::{HalfLoaded, Load, push_half_loaded};
use crate::filters::BloomRef;
use crate::filters::counting::{self, CountingRef};
use crate::filters::dleft::{self, DleftRef};
use crate::filters::frozen::Frozen;
use crate::filters::ring::Ring;

/// What the keyspace remembers of the snapshot that is being taken.
#[derive(Default)]
pub(super) struct Saving {
    epoch: AtomicU64,
    active: AtomicBool,
    sink: Mutex<Option<Arc<Sink>>>,
}

/// Where images are handed over.
struct Sink {
    /// The database at the cut of what is in each database now.
    home: [AtomicU8; DATABASES],
    /// How often databases changed places since the cut.
    swaps: AtomicU64,
    images: Mutex<Images>,
}

/// Keys as they were at the cut.
#[derive(Default)]
pub struct Images {
    /// How many there are in all.
    count: u64,
    small: Vec<u8>,
    /// Filters whose bits are still to be read.
    pub large: Vec<LargeImage>,
    /// Whole tables that were flushed since, with their databases.
    tables: Vec<(usize, Table)>,
}

/// A small filter as it was at the cut.
#[derive(Clone, Copy)]
pub struct SmallImage<'a> {
    /// Its database.
    pub db: usize,
    /// When it ends, in milliseconds since 1970.
    pub life: Option<u64>,
    /// Its name.
    pub name: &'a [u8],
    /// What it is.
    pub kind: Kind,
    /// The packed filter; see [`packed_bloom`](crate::filters::packed_bloom), [`ring`](crate::filters::ring::packed),
    /// [`counting`](crate::filters::counting::packed) and [`dleft`](crate::filters::dleft::packed).
    pub payload: &'a [u8],
}

/// A large filter as it was at the cut.
pub struct LargeImage {
    /// Its database.
    pub db: usize,
    /// When it ends, in milliseconds since 1970.
    pub life: Option<u64>,
    /// Its name.
    pub name: Box<[u8]>,
    /// The filter.
    pub filter: LargeFilter,
}

/// A filter with allocations of its own as it was at the cut.
pub enum LargeFilter {
    /// A Bloom filter, whose bits are still to be read.
    Bloom(Arc<Frozen>),
    /// A ring, which shares its bits with the one that goes on.
    Ring(Box<Ring>),
    /// A counting filter, whose cells are still to be read.
    Counting(Box<counting::Image>),
    /// A d-left filter, whose cells are still to be read.
    Dleft(Box<dleft::Image>),
    /// A filter that is being loaded, as its value in a file.
    Half(Vec<u8>),
}

/// Database and kind, life (0 for none), length of the name, length of the payload.
const SMALL_HEAD: usize = 1 + 8 + 4 + 4;
/// The kind stands above the number of the database.
const KIND_SHIFT: u32 = 4;

/// Kinds of packed filters, by their numbers.
const KINDS: [Kind; 4] = [Kind::Bloom, Kind::Ring, Kind::Counting, Kind::Dleft];

impl Drop for LargeImage {
    /// Changes need not be noted any more, whether it was read to the end or not.
    fn drop(&mut self) {
        if let LargeFilter::Bloom(filter) = &self.filter {
            filter.end();
        }
    }
}

impl Images {
    /// Take the image of an old entry, which is current then.
    fn add(&mut self, db: usize, entry: EntryRef<'_>, epoch: u64) {
        if let Some((kind, payload)) = entry.packed_payload() {
            let (name, life) = (entry.name(), entry.life().unwrap_or(0));
            let number = KINDS.iter().position(|other| *other == kind).unwrap_or(0);
            self.small.push(db as u8 | (number as u8) << KIND_SHIFT);
            self.small.extend(life.to_le_bytes());
            self.small.extend((name.len() as u32).to_le_bytes());
            self.small.extend((payload.len() as u32).to_le_bytes());
            self.small.extend_from_slice(name);
            self.small.extend_from_slice(payload);
            entry.set_epoch(epoch);
            self.count += 1;
        } else if let Some(filter) = large_image(entry, epoch) {
            self.large.push(LargeImage { db, life: entry.life(), name: entry.name().into(), filter });
            self.count += 1;
        }
    }

    fn append(&mut self, mut others: Self) {
        self.count += others.count;
        match self.small.is_empty() {
            true => self.small = others.small,
            false => self.small.extend_from_slice(&others.small),
        }
        self.large.append(&mut others.large);
        self.tables.append(&mut others.tables);
    }

    /// The small filters.
    pub fn small(&self) -> impl Iterator<Item = SmallImage<'_>> {
        let mut rest = &self.small[..];
        std::iter::from_fn(move || {
            let (head, behind) = rest.split_at_checked(SMALL_HEAD)?;
            let life = u64::from_le_bytes(head[1..9].try_into().ok()?);
            let length = |at: usize| head[at..at + 4].try_into().ok().map(|bytes| u32::from_le_bytes(bytes) as usize);
            let (name, behind) = behind.split_at_checked(length(9)?)?;
            let (payload, behind) = behind.split_at_checked(length(13)?)?;
            rest = behind;
            let (db, kind) = (usize::from(head[0]) % DATABASES, *KINDS.get(usize::from(head[0] >> KIND_SHIFT))?);
            Some(SmallImage { db, life: Some(life).filter(|life| *life > 0), name, kind, payload })
        })
    }

    /// Forget all images; the memory for small ones is kept.
    pub fn clear(&mut self) {
        self.small.clear();
        self.large.clear();
    }
}

/// The image of an old entry with allocations of its own, which is current then.
fn large_image(entry: EntryRef<'_>, epoch: u64) -> Option<LargeFilter> {
    match entry.value() {
        ValueRef::Bloom(BloomRef::Large(chain)) => chain.freeze(epoch).map(LargeFilter::Bloom),
        ValueRef::Ring(RingRef::Large(ring)) => {
            let image = Box::new(ring.clone());
            entry.set_epoch(epoch);
            Some(LargeFilter::Ring(image))
        }
        ValueRef::Counting(CountingRef::Large(filter)) => {
            filter.freeze(epoch).map(|image| LargeFilter::Counting(Box::new(image)))
        }
        ValueRef::Dleft(DleftRef::Large(filter)) => {
            filter.freeze(epoch).map(|image| LargeFilter::Dleft(Box::new(image)))
        }
        ValueRef::HalfRing(half) => half_image(entry, half, epoch),
        ValueRef::HalfCounting(half) => half_image(entry, half, epoch),
        ValueRef::HalfDleft(half) => half_image(entry, half, epoch),
        _ => None,
    }
}

fn half_image<L: Load>(entry: EntryRef<'_>, half: &HalfLoaded<L>, epoch: u64) -> Option<LargeFilter> {
    let mut value = Vec::new();
    push_half_loaded(&mut value, half);
    entry.set_epoch(epoch);
    Some(LargeFilter::Half(value))
}

impl Common {
    /// An entry of this database is about to be changed, moved or removed, under the exclusive lock: what it was at the cut is
    /// kept.
    #[inline]
    pub(super) fn keep(&self, db: usize, entry: EntryRef<'_>) {
        if self.saving.active.load(Ordering::Relaxed) {
            self.keep_image(db, entry);
        }
    }

    /// The same under the shared lock, for an entry that can be changed under it.
    #[inline]
    pub(super) fn keep_shared(&self, db: usize, entry: EntryRef<'_>) {
        if self.saving.active.load(Ordering::Relaxed) && entry.large_bloom().is_some() {
            self.keep_image(db, entry);
        }
    }

    #[cold]
    fn keep_image(&self, db: usize, entry: EntryRef<'_>) {
        let epoch = self.saving.epoch();
        if entry.is_of(epoch) {
            return;
        }
        if let Some(sink) = &*self.saving.sink.lock() {
            sink.images.lock().add(sink.home(db), entry, epoch);
        }
    }

    /// An entry is new, or another one than before: it belongs to the current epoch.
    #[inline]
    pub(super) fn mark(&self, entry: EntryRef<'_>) {
        entry.set_epoch(self.saving.epoch());
    }

    /// Tables were emptied; what is in them is kept and freed later.
    pub(super) fn keep_tables(&self, tables: Vec<(usize, Table)>) {
        if self.saving.active.load(Ordering::Relaxed)
            && let Some(sink) = &*self.saving.sink.lock()
        {
            let home = tables.into_iter().map(|(db, table)| (sink.home(db), table));
            return sink.images.lock().tables.extend(home);
        }
        self.reaper.free_tables(tables.into_iter().map(|(_, table)| table).collect());
    }

    /// Two databases changed places. All shards are locked.
    pub(super) fn swap_homes(&self, one: usize, other: usize) {
        if let Some(sink) = &*self.saving.sink.lock() {
            let home = sink.home[one].swap(sink.home[other].load(Ordering::Relaxed), Ordering::Relaxed);
            sink.home[other].store(home, Ordering::Relaxed);
            sink.swaps.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Saving {
    fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Relaxed)
    }
}

impl Sink {
    fn home(&self, db: usize) -> usize {
        usize::from(self.home[db].load(Ordering::Relaxed))
    }
}

/// A snapshot that is being taken. Dropped before its end, it is given up.
pub struct Snapshot {
    keyspace: Arc<Keyspace>,
    sink: Arc<Sink>,
    /// Keys of each database at the cut, and those of them with a life.
    sizes: [(u64, u64); DATABASES],
    /// Keys at the cut, and those of which an image was handed over so far.
    expected: u64,
    count: u64,
    /// What rings got then that a command made by itself.
    profiles: Vec<(Box<[u8]>, Profile)>,
    place: Place,
    /// Tables that were flushed since the cut and are walked here, and where the first of them is walked.
    flushed: VecDeque<(usize, Table)>,
    flushed_cursor: u64,
}

/// Where the walk is.
#[derive(Clone, Copy, Default)]
struct Place {
    shard: usize,
    db: usize,
    cursor: u64,
    swaps: u64,
}

/// How far a snapshot is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Walk {
    /// There is more to come.
    GoesOn,
    /// Every key was handed over.
    Ended,
    /// All shards were walked, and keys are missing: a fault of this program.
    Incomplete,
}

impl Keyspace {
    /// Take a snapshot: of the state at the moment at which `at_cut` runs, all shards locked. There must be no other.
    ///
    /// # Errors
    /// [`Wait`] as long as a long command has a key; `at_cut` has not run then.
    pub fn snapshot(self: &Arc<Self>, at_cut: impl FnOnce()) -> Result<Snapshot, Wait> {
        let held = self.lock_all(|_| true)?;
        let saving = &self.common.saving;
        let home = std::array::from_fn(|db| AtomicU8::new(db as u8));
        let sink = Arc::new(Sink { home, swaps: AtomicU64::new(0), images: Mutex::default() });
        let before = saving.sink.lock().replace(sink.clone());
        assert!(before.is_none(), "one snapshot at a time");
        saving.epoch.fetch_add(1, Ordering::Relaxed);
        saving.active.store(true, Ordering::Relaxed);
        let sizes = std::array::from_fn(|db| (self.len(db) as u64, self.lives(db) as u64));
        let expected = sizes.iter().map(|(keys, _)| keys).sum();
        let profiles = self.profiles.all();
        at_cut();
        drop(held);
        Ok(Snapshot {
            keyspace: self.clone(),
            sink,
            sizes,
            expected,
            count: 0,
            profiles,
            place: Place::default(),
            flushed: VecDeque::new(),
            flushed_cursor: 0,
        })
    }
}

impl Snapshot {
    /// Keys of a database at the cut, and those of them with a life.
    #[must_use]
    pub fn size(&self, db: usize) -> (u64, u64) {
        self.sizes[db]
    }

    /// Keys at the cut.
    #[must_use]
    pub fn keys(&self) -> u64 {
        self.expected
    }

    /// What rings got at the cut that a command made by itself, by the beginning of their names.
    #[must_use]
    pub fn profiles(&self) -> &[(Box<[u8]>, Profile)] {
        &self.profiles
    }

    /// Keys of which an image was handed over.
    #[must_use]
    pub fn keys_done(&self) -> u64 {
        self.count
    }

    /// Add to `images` what others handed over, and what the walk finds in about this time; for so long a shard is held, shared.
    pub fn step(&mut self, slice: Duration, images: &mut Images) -> Walk {
        self.collect(images);
        if !self.flushed.is_empty() {
            self.walk_flushed(slice, images);
            return Walk::GoesOn;
        }
        if self.place.shard < SHARDS {
            self.walk(slice, images);
            return Walk::GoesOn;
        }
        // Whoever handed something over under a lock is done with it after this.
        self.keyspace.shards.iter().for_each(|shard| drop(shard.0.write()));
        self.collect(images);
        match self.count == self.expected {
            _ if !self.flushed.is_empty() => Walk::GoesOn,
            true => Walk::Ended,
            false => Walk::Incomplete,
        }
    }

    fn collect(&mut self, images: &mut Images) {
        let mut handed = std::mem::take(&mut *self.sink.images.lock());
        self.flushed.extend(handed.tables.drain(..));
        let before = images.count;
        images.append(handed);
        self.count += images.count - before;
    }

    /// Walk flushed tables, which nobody else has, for about this time.
    fn walk_flushed(&mut self, slice: Duration, images: &mut Images) {
        let until = Instant::now() + slice;
        let common = &self.keyspace.common;
        let (epoch, before) = (common.saving.epoch(), images.count);
        while let Some((db, table)) = self.flushed.front() {
            self.flushed_cursor = table.scan(self.flushed_cursor, |entry| {
                if !entry.is_of(epoch) {
                    images.add(*db, entry, epoch);
                }
            });
            if self.flushed_cursor == 0 {
                common.reaper.free_tables(self.flushed.pop_front().map(|(_, table)| table).into_iter().collect());
            }
            if Instant::now() >= until {
                break;
            }
        }
        self.count += images.count - before;
    }

    fn walk(&mut self, slice: Duration, images: &mut Images) {
        const BUCKETS_PER_LOOK: usize = 16;
        let until = Instant::now() + slice;
        let common = &self.keyspace.common;
        let (epoch, before) = (common.saving.epoch(), images.count);
        let shard = self.keyspace.shards[self.place.shard].0.read();
        let swaps = self.sink.swaps.load(Ordering::Relaxed);
        if swaps != self.place.swaps {
            self.place = Place { shard: self.place.shard, swaps, ..Place::default() };
        }
        while self.place.db < DATABASES {
            let (table, db) = (&shard.tables[self.place.db], self.sink.home(self.place.db));
            for _ in 0..BUCKETS_PER_LOOK {
                self.place.cursor = match table.is_empty() {
                    true => 0,
                    false => table.scan(self.place.cursor, |entry| {
                        if !entry.is_of(epoch) {
                            images.add(db, entry, epoch);
                        }
                    }),
                };
                if self.place.cursor == 0 {
                    self.place.db += 1;
                    break;
                }
            }
            if Instant::now() >= until {
                break;
            }
        }
        if self.place.db == DATABASES {
            self.place = Place { shard: self.place.shard + 1, swaps, ..Place::default() };
        }
        drop(shard);
        self.count += images.count - before;
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        const SLICE: Duration = Duration::from_micros(200);
        let mut images = Images::default();
        while self.step(SLICE, &mut images) == Walk::GoesOn {
            images.clear();
            std::thread::yield_now();
        }
        let saving = &self.keyspace.common.saving;
        saving.active.store(false, Ordering::Relaxed);
        *saving.sink.lock() = None;
        // Whoever is about to hand something over is done with it after this.
        self.keyspace.shards.iter().for_each(|shard| drop(shard.0.write()));
        let tables = std::mem::take(&mut self.sink.images.lock().tables);
        self.keyspace.common.reaper.free_tables(tables.into_iter().map(|(_, table)| table).collect());
    }
}
