//! Named filters: 16 databases, shards, the key latch.
//!
//! # Who may touch what
//!
//! A name's `ahash` picks one of [`SHARDS`] shards by its highest ten bits. A shard is a `parking_lot::RwLock` over sixteen
//! [`table`]s, one a database. It is held for the time of one command, or of one run of commands on a key, never across an
//! await:
//!
//! * [`Keyspace::read`] holds it shared. Filters whose writes commute (large Bloom filters: bits are or-ed in) are also
//!   *added to* under the shared lock; they keep order among themselves with atomics and their own lock stripes.
//! * [`Keyspace::write`] holds it exclusively: small filters, creation, growth, deletion.
//! * Commands on several keys collect the distinct shards, sort them, and lock each once; so do those on all keys. Locks are
//!   only ever taken in ascending order, hence no deadlock.
//!
//! A command that would hold a shard longer than about a millisecond takes the key's entry out instead
//! ([`Keyspace::latch`]), leaves a stand-in with a [`latch`], and works alone and unlocked. Whoever meets the stand-in gets a
//! [`Wait`] and tries again later; only commands on that key wait, and none of them holds anything meanwhile. A transaction
//! locks the shards of all its keys ([`Keyspace::lock`]), or, when it takes long, takes all its keys out.
//!
//! # Lives
//!
//! A key whose life is over is as good as gone: readers don't see it, writers remove it first. Besides,
//! [`Keyspace::expire`] removes such keys in time; it finds them by the earliest moment of each run of buckets. A removal is
//! an effect like any other ([`effect`]).
//!
//! Rejected: one lock for all (a 16 MiB dump stalls everybody), a concurrent hash map (no ordered locks over several keys, no
//! scan with a cursor that survives), a lock a key (40 bytes for each of ten million users).

pub mod arrivals;
pub mod bloom;
pub mod clock;
pub mod copies;
pub mod counting;
pub mod dleft;
pub mod effect;
pub mod entry;
mod eviction;
mod figures;
pub mod glob;
pub mod held;
pub mod latch;
pub mod latched;
pub mod profiles;
mod reaper;
pub mod ring;
mod shard;
pub mod size_class;
pub mod snapshot;
pub mod table;
pub mod warm;
pub mod watch;

use std::ops::Add;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use parking_lot::RwLock;

use clock::Clock;
use effect::{Effect, Journal, Profile};
use entry::{Entry, EntryRef, Footprint, Kind};

use crate::codec::cells_value::Cells;
use crate::codec::value::Built;
use crate::filters::bits::AllocError;
pub use eviction::Policy;
use figures::{Bytes, Figures};
use held::Held;
use latch::{Gate, Wait};
use latched::is_nothing;
use profiles::Profiles;
pub use reaper::Aside;
use reaper::Reaper;
use ring::Versions;
pub use shard::{Cell, Record, Recorder};
use shard::{Common, Shard};
use snapshot::Saving;
use table::NameHash;

/// Number of databases that `SELECT` can choose from.
pub const DATABASES: usize = 16;
/// Number of shards.
pub const SHARDS: usize = 1 << SHARD_BITS;
const SHARD_BITS: u32 = 10;

/// All keys.
pub struct Keyspace {
    shards: Box<[Padded]>,
    common: Common,
    profiles: Profiles,
    versions: Versions,
}

/// Memory set aside, until this is dropped.
pub struct SetAside {
    figures: Arc<Figures>,
    memory: Footprint,
}

impl SetAside {
    /// The value is there and counts by itself.
    pub fn give_back(&mut self) {
        self.figures.set_aside.subtract(std::mem::take(&mut self.memory));
    }
}

impl Drop for SetAside {
    fn drop(&mut self) {
        self.give_back();
    }
}

/// Keeps the lock words of two shards off one cache line.
#[repr(align(64))]
struct Padded(RwLock<Shard>);

impl Default for Keyspace {
    fn default() -> Self {
        Self::new(None)
    }
}

impl Keyspace {
    /// An empty keyspace, whose changes this journal hears of.
    #[must_use]
    pub fn new(journal: Option<Arc<dyn Journal>>) -> Self {
        let figures = Arc::new(Figures::default());
        Self {
            shards: (0..SHARDS).map(|_| Padded(RwLock::default())).collect(),
            common: Common {
                hasher: ahash::RandomState::new(),
                clock: Clock::default(),
                now: AtomicU32::new(0),
                lives_held: AtomicBool::new(false),
                counts_uses: AtomicBool::new(false),
                journal,
                gate: Arc::new(Gate::default()),
                reaper: Reaper::start(&figures),
                saving: Saving::default(),
                figures,
            },
            profiles: Profiles::default(),
            versions: Versions::default(),
        }
    }

    /// What keys get that a command makes by itself.
    #[must_use]
    pub fn profiles(&self) -> &Profiles {
        &self.profiles
    }

    /// Where the versions of new rings begin.
    #[must_use]
    pub fn versions(&self) -> &Versions {
        &self.versions
    }

    /// Set a profile, or take it away; it is recorded, in a transaction as a part of that. Tells whether there was one.
    pub fn set_profile(&self, prefix: &[u8], profile: Option<Profile>, in_transaction: bool) -> bool {
        let record = |existed: bool| {
            if profile.is_some() || existed {
                self.common.figures.changes.fetch_add(1, Ordering::Relaxed);
                if let Some(journal) = &self.common.journal {
                    journal.record(0, prefix, &Effect::Profile { settings: profile });
                }
            }
        };
        let existed = self.profiles.put_with(prefix, profile, record);
        if !in_transaction {
            self.common.commit();
        }
        existed
    }

    fn shard(&self, hash: NameHash) -> &RwLock<Shard> {
        &self.shards[shard_index(hash)].0
    }

    fn shard_of(&self, name: &[u8]) -> &RwLock<Shard> {
        self.shard(self.common.hash(name))
    }

    /// The keyspace's time.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.common.clock
    }

    /// Set the clock of the access stamps: seconds since the start.
    pub fn set_now(&self, seconds: u32) {
        self.common.now.store(seconds, Ordering::Relaxed);
    }

    /// Let no life end, or let them end again: a log that is done again says itself when keys went.
    pub fn hold_lives(&self, on: bool) {
        self.common.lives_held.store(on, Ordering::Relaxed);
    }

    /// Count how often keys are used, or stop it: needed only by policies that go by it.
    pub fn count_uses(&self, on: bool) {
        self.common.counts_uses.store(on, Ordering::Relaxed);
    }

    /// The clock of the access stamps.
    #[must_use]
    pub fn stamp_now(&self) -> u32 {
        self.common.now.load(Ordering::Relaxed)
    }

    /// Number of keys in a database; those whose life is over count until they are removed.
    #[must_use]
    pub fn len(&self, db: usize) -> usize {
        self.common.figures.keys[db].load(Ordering::Relaxed).max(0) as usize
    }

    /// Whether a database has no key.
    #[must_use]
    pub fn is_empty(&self, db: usize) -> bool {
        self.len(db) == 0
    }

    /// Number of keys with a life in a database.
    #[must_use]
    pub fn lives(&self, db: usize) -> usize {
        self.common.figures.lives[db].load(Ordering::Relaxed).max(0) as usize
    }

    /// Whether any key has a life.
    #[must_use]
    pub fn has_lives(&self) -> bool {
        (0..DATABASES).any(|db| self.lives(db) > 0)
    }

    /// The milliseconds that the keys with a life in a database have left on average; 0 if there are none.
    #[must_use]
    pub fn mean_life_left(&self, db: usize) -> u64 {
        match self.lives(db) {
            0 => 0,
            _ => self.common.figures.mean_life_left(db, self.common.clock.now()),
        }
    }

    /// Bytes that all entries hold, without the tables.
    #[must_use]
    pub fn entry_bytes(&self) -> u64 {
        self.footprint().bytes() as u64
    }

    /// Bytes that are set aside for values being made.
    #[must_use]
    pub fn set_aside_bytes(&self) -> u64 {
        self.common.figures.set_aside.get().bytes() as u64
    }

    /// Set memory aside for a value that takes long to make, so that nobody else counts on it.
    #[must_use]
    pub fn set_aside(&self, memory: Footprint) -> SetAside {
        self.common.figures.set_aside.add(memory);
        SetAside { figures: self.common.figures.clone(), memory }
    }

    /// Bytes of the keys without a life.
    #[must_use]
    pub fn lasting_bytes(&self) -> u64 {
        self.entry_bytes().saturating_sub(self.common.figures.mortal_bytes())
    }

    /// Something large that is freed in the background when it is dropped.
    #[must_use]
    pub fn aside<T: Send + 'static>(&self, value: T) -> Aside<T> {
        self.common.reaper.aside(value)
    }

    /// Bytes of what was deleted and is still to be freed, in the background.
    #[must_use]
    pub fn garbage_bytes(&self) -> u64 {
        self.common.figures.garbage.get().bytes() as u64
    }

    /// Bytes of all of them that came from the allocator.
    #[must_use]
    pub fn heap_bytes(&self) -> u64 {
        let figures = &self.common.figures;
        (self.footprint() + figures.garbage.get() + figures.set_aside.get()).heap as u64
    }

    fn footprint(&self) -> Footprint {
        self.common.figures.entries.iter().map(Bytes::get).fold(Footprint::default(), Footprint::add)
    }

    /// Keys removed because their life was over, keys removed because their memory was needed, changes in all.
    #[must_use]
    pub fn totals(&self) -> (u64, u64, u64) {
        let figures = &self.common.figures;
        let [expired, evicted, changes] =
            [&figures.expired, &figures.evicted, &figures.changes].map(|count| count.load(Ordering::Relaxed));
        (expired, evicted, changes)
    }

    /// Look at a key under the shard's shared lock.
    ///
    /// # Errors
    /// [`Wait`] when a long command has the key.
    pub fn read<R>(&self, db: usize, name: &[u8], look: impl FnOnce(Option<EntryRef<'_>>) -> R) -> Result<R, Wait> {
        self.share_as(db, name, false, |entry, _| look(entry))
    }

    /// Look at a key, and change what may be changed under the shard's shared lock.
    ///
    /// # Errors
    /// [`Wait`] when a long command has the key.
    pub fn share<R>(
        &self,
        db: usize,
        name: &[u8],
        work: impl FnOnce(Option<EntryRef<'_>>, Recorder<'_>) -> R,
    ) -> Result<R, Wait> {
        self.share_as(db, name, true, work)
    }

    fn share_as<R>(
        &self,
        db: usize,
        name: &[u8],
        changes: bool,
        work: impl FnOnce(Option<EntryRef<'_>>, Recorder<'_>) -> R,
    ) -> Result<R, Wait> {
        let hash = self.common.hash(name);
        let shard = self.shard(hash).read();
        let entry = shard.get(&self.common, db, hash, name)?;
        let ended = match entry {
            Some(entry) => {
                self.common.touch(entry);
                if changes {
                    self.common.keep_shared(db, entry);
                }
                false
            }
            None => shard.has_ended(&self.common, db, hash, name),
        };
        let result = work(entry, Recorder { common: &self.common, watched: &shard.watched, db, name });
        if changes {
            self.common.commit();
        }
        drop(shard);
        if ended {
            self.remove_ended(db, name);
        }
        Ok(result)
    }

    /// Remove a key whose life was over when it was looked for: a client that saw it missing does not find it counted.
    fn remove_ended(&self, db: usize, name: &[u8]) {
        // One that is away by now is removed when it is back.
        let _busy = self.write(db, name, |_| {});
    }

    /// The kind of a key's value; answered also while a long command has the key.
    #[must_use]
    pub fn kind(&self, db: usize, name: &[u8]) -> Option<Kind> {
        let hash = self.common.hash(name);
        let shard = self.shard(hash).read();
        let entry = shard.tables[db].get(hash, name)?;
        if shard.is_over(&self.common, entry) {
            drop(shard);
            self.remove_ended(db, name);
            return None;
        }
        entry.kind()
    }

    /// Work on a key under the shard's exclusive lock.
    ///
    /// # Errors
    /// [`Wait`] when a long command has the key.
    pub fn write<R>(&self, db: usize, name: &[u8], work: impl FnOnce(&mut Cell<'_>) -> R) -> Result<R, Wait> {
        let hash = self.common.hash(name);
        let mut shard = self.shard(hash).write();
        let mut cell = shard.cell(&self.common, db, hash, name)?;
        let result = work(&mut cell);
        self.common.commit();
        Ok(result)
    }

    /// Whether changes under a shared lock would be seen before they are recorded, and must not be.
    #[must_use]
    pub fn is_strict(&self) -> bool {
        self.common.journal.as_ref().is_some_and(|journal| journal.is_strict())
    }

    /// How many of the keys exist, seen at one moment; each is counted as often as it is named, and its access stamp set.
    #[must_use]
    pub fn count_existing<'n>(&self, db: usize, names: impl Iterator<Item = &'n [u8]> + Clone) -> usize {
        let mut indices: smallvec::SmallVec<[usize; 8]> =
            names.clone().map(|name| shard_index(self.common.hash(name))).collect();
        indices.sort_unstable();
        indices.dedup();
        let shards: smallvec::SmallVec<[_; 8]> = indices.iter().map(|index| self.shards[*index].0.read()).collect();
        let mut ended: smallvec::SmallVec<[&[u8]; 8]> = smallvec::SmallVec::new();
        let exists = |name: &&'n [u8]| {
            let hash = self.common.hash(name);
            let at = indices.binary_search(&shard_index(hash)).expect("the key's shard was locked");
            let entry = shards[at].tables[db].get(hash, name).filter(|entry| !is_nothing(*entry));
            match entry {
                Some(entry) if shards[at].is_over(&self.common, entry) => {
                    ended.push(name);
                    false
                }
                Some(entry) => {
                    self.common.touch(entry);
                    true
                }
                None => false,
            }
        };
        let count = names.filter(exists).count();
        drop(shards);
        ended.iter().for_each(|name| self.remove_ended(db, name));
        count
    }

    /// One step of a scan: visits the keys of one bucket and returns the next cursor, 0 at the end. A key that is there from
    /// the first step to the last is visited at least once.
    pub fn scan(
        &self,
        held: Option<&mut Held<'_>>,
        db: usize,
        cursor: u64,
        mut visit: impl FnMut(EntryRef<'_>),
    ) -> u64 {
        let (mut index, mut bucket) = ((cursor % SHARDS as u64) as usize, cursor >> SHARD_BITS);
        let mut held = held;
        let visit = &mut visit;
        while index < SHARDS {
            let step = self.look_at_shard(held.as_deref_mut(), index, |shard| {
                let table = &shard.tables[db];
                let visible = |entry: EntryRef<'_>| {
                    if self.is_visible(shard, entry) {
                        visit(entry)
                    }
                };
                (!table.is_empty()).then(|| table.scan(bucket, visible))
            });
            match step {
                Some(0) => return if index + 1 < SHARDS { index as u64 + 1 } else { 0 },
                Some(next) => return next << SHARD_BITS | index as u64,
                None => (index, bucket) = (index + 1, 0),
            }
        }
        0
    }

    /// Visit all keys of one shard, at one moment.
    pub fn for_each_in_shard(
        &self,
        held: Option<&mut Held<'_>>,
        db: usize,
        index: usize,
        mut visit: impl FnMut(EntryRef<'_>),
    ) {
        self.look_at_shard(held, index, |shard| {
            shard.tables[db].for_each(|entry| {
                if self.is_visible(shard, entry) {
                    visit(entry)
                }
            });
        });
    }

    fn look_at_shard<R>(&self, held: Option<&mut Held<'_>>, index: usize, look: impl FnOnce(&Shard) -> R) -> R {
        match held {
            Some(held) => held.with_shard(index, look),
            None => look(&self.shards[index].0.read()),
        }
    }

    fn is_visible(&self, shard: &Shard, entry: EntryRef<'_>) -> bool {
        !is_nothing(entry) && !shard.is_over(&self.common, entry)
    }

    /// The name of some key, each as likely as the other; `random` gives 64 random bits a call.
    #[must_use]
    pub fn random_name(
        &self,
        held: Option<&mut Held<'_>>,
        db: usize,
        mut random: impl FnMut() -> u64,
    ) -> Option<Vec<u8>> {
        // Keys whose life is over are passed over, up to a number of tries as in Redis.
        const TRIES: usize = 100;
        let mut held = held;
        (0..TRIES).find_map(|_| self.try_random_name(held.as_deref_mut(), db, &mut random))
    }

    fn try_random_name(
        &self,
        held: Option<&mut Held<'_>>,
        db: usize,
        random: &mut impl FnMut() -> u64,
    ) -> Option<Vec<u8>> {
        let mut held = held;
        // The keys may change between the count and the walk: a walk can end beyond the last one.
        let mut ahead = ((u128::from(random()) * self.len(db) as u128) >> 64) as usize;
        for index in 0..SHARDS {
            let found = self.look_at_shard(held.as_deref_mut(), index, |shard| {
                let table = &shard.tables[db];
                if ahead >= table.len() {
                    ahead -= table.len();
                    return None;
                }
                let entry = table.random(&mut *random).filter(|entry| self.is_visible(shard, *entry));
                Some(entry.map(|entry| entry.name().to_vec()))
            });
            if let Some(name) = found {
                return name;
            }
        }
        None
    }

    /// Remove keys whose lives are over, in a part of the shards: `part` of `parts`. A shard is held for the time of at most
    /// about a hundred removals at once.
    pub fn expire(&self, part: usize, parts: usize) {
        if self.common.lives_held.load(Ordering::Relaxed) {
            return;
        }
        const AT_ONCE: usize = 100;
        for index in (part..SHARDS).step_by(parts) {
            let shard = &self.shards[index].0;
            let now = self.common.clock.now();
            for db in 0..DATABASES {
                while shard.read().tables[db].may_have_due(now) {
                    let mut shard = shard.write();
                    let names = shard.tables[db].due_names(now, AT_ONCE);
                    for name in &names {
                        let hash = self.common.hash(name);
                        // Looking at the cell removes it. A key that is away is met again when it is back.
                        if shard.cell(&self.common, db, hash, name).is_err() {
                            shard.tables[db].set_due(hash, Some(now + 1));
                        }
                        self.common.commit();
                    }
                }
            }
        }
    }

    /// Bytes that the tables take, without the entries in them.
    #[must_use]
    pub fn table_bytes(&self) -> u64 {
        self.common.figures.table_bytes()
    }

    /// Lock shards whose entries come back from a long transaction: the stand-ins are not waited for.
    fn lock_for_return<'n>(&self, keys: impl Iterator<Item = (usize, &'n [u8])>) -> Held<'_> {
        Held::of_shards(self, keys.map(|(_, name)| shard_index(self.common.hash(name))).collect())
    }
}

/// A value that was read, as an entry.
///
/// # Errors
/// [`AllocError`] when there is no memory.
pub fn built_filter(name: &[u8], life: Option<u64>, built: Built) -> Result<Entry, AllocError> {
    match built {
        Built::Bloom(decoded) => bloom::loaded_filter(name, life, decoded),
        Built::Ring(value) => ring::entry_of(name, life, value),
        Built::HalfRing(half) => ring::half_loaded(name, life, half),
        Built::Cells(Cells::Counting(filter)) => counting::entry_of(name, life, *filter),
        Built::HalfCounting(half) => counting::half_loaded(name, life, half),
        Built::Cells(Cells::Dleft(filter)) => dleft::entry_of(name, life, *filter),
        Built::HalfDleft(half) => dleft::half_loaded(name, life, half),
    }
}

fn shard_index(hash: NameHash) -> usize {
    (hash.0 >> (u64::BITS - SHARD_BITS)) as usize
}
