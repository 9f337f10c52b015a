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
//! [`Wait`] and tries again later; only commands on that key wait, and none of them holds anything meanwhile.
//!
//! Rejected: one lock for all (a 16 MiB dump stalls everybody), a concurrent hash map (no ordered locks over several keys, no
//! scan with a cursor that survives), a lock a key (40 bytes for each of ten million users).

pub mod entry;
pub mod glob;
pub mod latch;
mod reaper;
pub mod size_class;
pub mod table;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use parking_lot::{RwLock, RwLockWriteGuard};
use smallvec::SmallVec;

use entry::{Entry, EntryGuard, EntryRef, Kind, Value, ValueRef};
use latch::{Latch, Wait};
use reaper::Reaper;
use table::{NameHash, Table};

/// Number of databases that `SELECT` can choose from.
pub const DATABASES: usize = 16;
/// Number of shards.
pub const SHARDS: usize = 1 << SHARD_BITS;
const SHARD_BITS: u32 = 10;

/// All keys.
pub struct Keyspace {
    shards: Box<[Padded]>,
    hasher: ahash::RandomState,
    /// Keys in each database.
    counts: [AtomicUsize; DATABASES],
    /// Seconds since the start, for the entries' access stamps.
    now: AtomicU32,
    reaper: Reaper,
}

/// Keeps the lock words of two shards off one cache line.
#[repr(align(64))]
struct Padded(RwLock<Shard>);

#[derive(Default)]
struct Shard {
    tables: [Table; DATABASES],
    /// The latches of the entries that are away.
    away: Vec<(usize, Arc<Latch>)>,
}

/// Where a key is, or could be.
pub enum Place<'a> {
    /// No key of that name.
    Vacant(Vacant<'a>),
    /// The key.
    Occupied(EntryGuard<'a>),
}

/// Room for a key.
pub struct Vacant<'a> {
    keyspace: &'a Keyspace,
    table: &'a mut Table,
    hash: NameHash,
    db: usize,
}

impl<'a> Vacant<'a> {
    /// Put a key there; the entry must carry the name that was asked for.
    pub fn insert(self, entry: Entry) -> EntryGuard<'a> {
        entry.as_ref().touch(self.keyspace.now.load(Ordering::Relaxed));
        self.keyspace.counts[self.db].fetch_add(1, Ordering::Relaxed);
        self.table.insert(self.hash, entry, |name| self.keyspace.hash(name))
    }
}

impl Default for Keyspace {
    fn default() -> Self {
        Self::new()
    }
}

impl Keyspace {
    /// An empty keyspace.
    #[must_use]
    pub fn new() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Padded(RwLock::default())).collect(),
            hasher: ahash::RandomState::new(),
            counts: Default::default(),
            now: AtomicU32::new(0),
            reaper: Reaper::start(),
        }
    }

    fn hash(&self, name: &[u8]) -> NameHash {
        NameHash(self.hasher.hash_one(name))
    }

    fn shard(&self, hash: NameHash) -> &RwLock<Shard> {
        &self.shards[shard_index(hash)].0
    }

    /// Set the clock of the access stamps: seconds since the start.
    pub fn set_now(&self, seconds: u32) {
        self.now.store(seconds, Ordering::Relaxed);
    }

    /// Number of keys in a database.
    #[must_use]
    pub fn len(&self, db: usize) -> usize {
        self.counts[db].load(Ordering::Relaxed)
    }

    /// Whether a database has no key.
    #[must_use]
    pub fn is_empty(&self, db: usize) -> bool {
        self.len(db) == 0
    }

    /// Look at a key under the shard's shared lock.
    ///
    /// # Errors
    /// [`Wait`] when a long command has the key.
    pub fn read<R>(&self, db: usize, name: &[u8], look: impl FnOnce(Option<EntryRef<'_>>) -> R) -> Result<R, Wait> {
        let hash = self.hash(name);
        let shard = self.shard(hash).read();
        let entry = shard.tables[db].get(hash, name);
        if let Some(entry) = entry {
            if let ValueRef::Busy { latch, .. } = entry.value() {
                return Err(Wait::new(latch.clone()));
            }
            entry.touch(self.now.load(Ordering::Relaxed));
        }
        Ok(look(entry))
    }

    /// The kind of a key's value; answered also while a long command has the key.
    #[must_use]
    pub fn kind(&self, db: usize, name: &[u8]) -> Option<Kind> {
        let hash = self.hash(name);
        self.shard(hash).read().tables[db].get(hash, name).map(EntryRef::kind)
    }

    /// Work on a key under the shard's exclusive lock.
    ///
    /// # Errors
    /// [`Wait`] when a long command has the key.
    pub fn write<R>(&self, db: usize, name: &[u8], work: impl FnOnce(Place<'_>) -> R) -> Result<R, Wait> {
        let hash = self.hash(name);
        let mut shard = self.shard(hash).write();
        let table = &mut shard.tables[db];
        // Looked up twice when absent: the borrow of a found entry cannot be given up in the other branch.
        if table.get(hash, name).is_none() {
            return Ok(work(Place::Vacant(Vacant { keyspace: self, table, hash, db })));
        }
        let Some(entry) = table.get_mut(hash, name) else { unreachable!("the key was there and the lock is held") };
        if let ValueRef::Busy { latch, .. } = entry.value() {
            return Err(Wait::new(latch.clone()));
        }
        entry.as_ref().touch(self.now.load(Ordering::Relaxed));
        Ok(work(Place::Occupied(entry)))
    }

    /// Take a key for a long command; `None` when there is no such key, or no memory for the stand-in.
    ///
    /// # Errors
    /// [`Wait`] when another long command has it.
    pub fn latch(self: &Arc<Self>, db: usize, name: &[u8]) -> Result<Option<Latched>, Wait> {
        let hash = self.hash(name);
        let mut shard = self.shard(hash).write();
        let Shard { tables, away } = &mut *shard;
        let Some(mut entry) = tables[db].get_mut(hash, name) else { return Ok(None) };
        if let ValueRef::Busy { latch, .. } = entry.value() {
            return Err(Wait::new(latch.clone()));
        }
        let latch = Arc::new(Latch::default());
        let value = Value::Busy { latch: latch.clone(), kind: entry.as_ref().kind() };
        let Ok(stand_in) = Entry::boxed(name, value) else { return Ok(None) };
        stand_in.as_ref().touch(self.now.load(Ordering::Relaxed));
        let own = std::mem::replace(&mut *entry, stand_in);
        away.push((db, latch.clone()));
        Ok(Some(Latched { keyspace: self.clone(), db, hash, latch, entry: Some(own) }))
    }

    /// Lock the shards of these names, each once and in order, exclusively.
    fn lock_shards<'k>(&'k self, hashes: &[NameHash]) -> LockedShards<'k> {
        let mut indices: SmallVec<[usize; 8]> = hashes.iter().map(|hash| shard_index(*hash)).collect();
        indices.sort_unstable();
        indices.dedup();
        let guards = indices.iter().map(|index| self.shards[*index].0.write()).collect();
        LockedShards { indices, guards }
    }

    /// Delete keys in one step; returns how many there were. Large values are freed in the background.
    ///
    /// # Errors
    /// [`Wait`] when a long command has one of them; then none was deleted.
    pub fn remove<'n>(&self, db: usize, names: impl Iterator<Item = &'n [u8]> + Clone) -> Result<usize, Wait> {
        let hashes: SmallVec<[NameHash; 8]> = names.clone().map(|name| self.hash(name)).collect();
        let mut removed: SmallVec<[Entry; 4]> = SmallVec::new();
        {
            let mut shards = self.lock_shards(&hashes);
            for (name, hash) in names.clone().zip(&hashes) {
                if let Some(latch) = shards.of(*hash).latch_of(db, *hash, name) {
                    return Err(Wait::new(latch));
                }
            }
            removed
                .extend(names.zip(&hashes).filter_map(|(name, hash)| shards.of(*hash).tables[db].remove(*hash, name)));
        }
        let count = removed.len();
        self.counts[db].fetch_sub(count, Ordering::Relaxed);
        removed.into_iter().for_each(|entry| self.reaper.free_entry(entry));
        Ok(count)
    }

    /// How many of the names are keys, seen at one moment; each is counted as often as it is named, and its access stamp
    /// set.
    #[must_use]
    pub fn count_existing<'n>(&self, db: usize, names: impl Iterator<Item = &'n [u8]> + Clone) -> usize {
        let hashes: SmallVec<[NameHash; 8]> = names.clone().map(|name| self.hash(name)).collect();
        let mut shards = self.lock_shards(&hashes);
        let now = self.now.load(Ordering::Relaxed);
        names
            .zip(&hashes)
            .filter_map(|(name, hash)| shards.of(*hash).tables[db].get(*hash, name).map(|entry| entry.touch(now)))
            .count()
    }

    /// Empty one database, or all of them, in one step; the values are freed in the background.
    ///
    /// # Errors
    /// [`Wait`] when a long command has a key there; then nothing was done.
    pub fn flush(&self, db: Option<usize>) -> Result<(), Wait> {
        let chosen = |candidate: usize| db.is_none_or(|db| db == candidate);
        let mut shards: Vec<RwLockWriteGuard<'_, Shard>> = self.shards.iter().map(|shard| shard.0.write()).collect();
        let away = shards.iter().flat_map(|shard| &shard.away).find(|(db, _)| chosen(*db));
        if let Some((_, latch)) = away {
            return Err(Wait::new(latch.clone()));
        }
        let mut tables = Vec::new();
        for db in (0..DATABASES).filter(|db| chosen(*db)) {
            tables
                .extend(shards.iter_mut().map(|shard| std::mem::take(&mut shard.tables[db])).filter(|t| !t.is_empty()));
            self.counts[db].store(0, Ordering::Relaxed);
        }
        drop(shards);
        self.reaper.free_tables(tables);
        Ok(())
    }

    /// One step of a scan: visits the keys of one bucket and returns the next cursor, 0 at the end. A key that is there from
    /// the first step to the last is visited at least once.
    pub fn scan(&self, db: usize, cursor: u64, visit: impl FnMut(EntryRef<'_>)) -> u64 {
        let (mut index, mut bucket) = ((cursor % SHARDS as u64) as usize, cursor >> SHARD_BITS);
        while index < SHARDS {
            let shard = self.shards[index].0.read();
            let table = &shard.tables[db];
            if !table.is_empty() {
                let next = table.scan(bucket, visit);
                if next != 0 {
                    return next << SHARD_BITS | index as u64;
                }
                return if index + 1 < SHARDS { index as u64 + 1 } else { 0 };
            }
            (index, bucket) = (index + 1, 0);
        }
        0
    }

    /// Visit all keys of one shard, at one moment.
    pub fn for_each_in_shard(&self, db: usize, shard: usize, visit: impl FnMut(EntryRef<'_>)) {
        self.shards[shard].0.read().tables[db].for_each(visit);
    }

    /// The name of some key, each as likely as the other; `random` gives 64 random bits a call.
    #[must_use]
    pub fn random_name(&self, db: usize, mut random: impl FnMut() -> u64) -> Option<Vec<u8>> {
        let count = self.len(db);
        // The keys may change between the count and the walk, so a walk can end beyond the last one.
        let mut ahead = ((u128::from(random()) * count as u128) >> 64) as usize;
        let mut last = None;
        for Padded(shard) in &self.shards {
            let shard = shard.read();
            let table = &shard.tables[db];
            if table.is_empty() {
                continue;
            }
            last = table.random(&mut random).map(|entry| entry.name().to_vec());
            if ahead < table.len() {
                break;
            }
            ahead -= table.len();
        }
        last
    }

    /// Bytes that the tables take, without the entries in them.
    #[must_use]
    pub fn table_bytes(&self) -> usize {
        let of = |shard: &Padded| shard.0.read().tables.iter().map(Table::allocated_bytes).sum::<usize>();
        self.shards.iter().map(of).sum()
    }
}

impl Shard {
    fn latch_of(&self, db: usize, hash: NameHash, name: &[u8]) -> Option<Arc<Latch>> {
        if self.away.is_empty() {
            return None;
        }
        match self.tables[db].get(hash, name)?.value() {
            ValueRef::Busy { latch, .. } => Some(latch.clone()),
            _ => None,
        }
    }
}

struct LockedShards<'k> {
    indices: SmallVec<[usize; 8]>,
    guards: SmallVec<[RwLockWriteGuard<'k, Shard>; 8]>,
}

impl LockedShards<'_> {
    fn of(&mut self, hash: NameHash) -> &mut Shard {
        let at = self.indices.binary_search(&shard_index(hash)).expect("the shard was locked");
        &mut self.guards[at]
    }
}

fn shard_index(hash: NameHash) -> usize {
    (hash.0 >> (u64::BITS - SHARD_BITS)) as usize
}

/// A key that a long command has for itself. It goes back when this is dropped, and who waits for it is woken.
pub struct Latched {
    keyspace: Arc<Keyspace>,
    db: usize,
    hash: NameHash,
    latch: Arc<Latch>,
    entry: Option<Entry>,
}

impl Latched {
    /// The entry.
    pub fn entry_mut(&mut self) -> &mut Entry {
        self.entry.as_mut().expect("the entry stays until the drop")
    }
}

impl Drop for Latched {
    fn drop(&mut self) {
        if let Some(own) = self.entry.take() {
            let mut shard = self.keyspace.shard(self.hash).write();
            let Shard { tables, away } = &mut *shard;
            // Nobody removes or replaces a stand-in: all who meet one wait.
            let mut place = tables[self.db].get_mut(self.hash, own.name()).expect("the stand-in is in its place");
            let stand_in = std::mem::replace(&mut *place, own);
            drop(place);
            away.retain(|(_, latch)| !Arc::ptr_eq(latch, &self.latch));
            drop(shard);
            drop(stand_in);
        }
        self.latch.release();
    }
}
