//! What the keyspace counts as it goes.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use super::DATABASES;
use super::entry::{EntryRef, Footprint};
use super::table::Table;

/// Running totals.
#[derive(Default)]
pub(super) struct Figures {
    /// Keys of each database.
    pub(super) keys: [AtomicI64; DATABASES],
    /// Those of them with a life.
    pub(super) lives: [AtomicI64; DATABASES],
    /// The sum of these lives' ends, in seconds since [`LIFE_EPOCH`].
    life_seconds: [AtomicI64; DATABASES],
    /// Bytes of the entries with a life.
    mortal: [AtomicI64; DATABASES],
    /// What the entries of each database hold.
    pub(super) entries: [Bytes; DATABASES],
    /// Bytes of the tables themselves.
    tables: AtomicI64,
    /// What was promised to values being made.
    pub(super) set_aside: Bytes,
    /// What is no longer to be found and waits to be freed.
    pub(super) garbage: Bytes,
    /// Keys removed because their life was over.
    pub(super) expired: AtomicU64,
    /// Keys removed because their memory was needed.
    pub(super) evicted: AtomicU64,
    /// Changes.
    pub(super) changes: AtomicU64,
}

/// What an entry holds.
#[derive(Clone, Copy, Default)]
pub(super) struct Holding {
    memory: Footprint,
    /// All bytes of it, if it has a life.
    mortal: usize,
}

impl Holding {
    pub(super) fn of(entry: EntryRef<'_>) -> Self {
        let memory = entry.footprint();
        Self { memory, mortal: entry.life().map_or(0, |_| memory.bytes()) }
    }
}

/// A sum of footprints.
#[derive(Default)]
pub(super) struct Bytes {
    heap: AtomicI64,
    mapped: AtomicI64,
}

impl Bytes {
    /// Something comes.
    pub(super) fn add(&self, footprint: Footprint) {
        self.change(Footprint::default(), footprint);
    }

    /// Something goes.
    pub(super) fn subtract(&self, footprint: Footprint) {
        self.change(footprint, Footprint::default());
    }

    /// Something holds another amount than before.
    pub(super) fn change(&self, before: Footprint, after: Footprint) {
        let add = |sum: &AtomicI64, before: usize, after: usize| {
            if before != after {
                sum.fetch_add(after as i64 - before as i64, Ordering::Relaxed);
            }
        };
        add(&self.heap, before.heap, after.heap);
        add(&self.mapped, before.mapped, after.mapped);
    }

    pub(super) fn get(&self) -> Footprint {
        let [heap, mapped] = [&self.heap, &self.mapped].map(|sum| sum.load(Ordering::Relaxed).max(0) as usize);
        Footprint { heap, mapped }
    }

    fn swap(&self, other: &Self) {
        swap(&self.heap, &other.heap);
        swap(&self.mapped, &other.mapped);
    }

    fn take(&self) -> Footprint {
        let [heap, mapped] = [&self.heap, &self.mapped].map(|sum| sum.swap(0, Ordering::Relaxed).max(0) as usize);
        Footprint { heap, mapped }
    }
}

/// Lives are summed up from here, 2020, so that the sum of many fits 64 bits. In seconds since 1970.
const LIFE_EPOCH: i64 = 1_577_836_800;

impl Figures {
    /// An entry comes.
    pub(super) fn count(&self, db: usize, entry: EntryRef<'_>) {
        self.keys[db].fetch_add(1, Ordering::Relaxed);
        self.count_life(db, entry.life(), 1);
        self.change(db, Holding::default(), Holding::of(entry));
    }

    /// Entries come, all without a life, which hold this.
    pub(super) fn count_lasting(&self, db: usize, entries: usize, memory: Footprint) {
        self.keys[db].fetch_add(entries as i64, Ordering::Relaxed);
        self.entries[db].add(memory);
    }

    /// An entry goes.
    pub(super) fn count_off(&self, db: usize, entry: EntryRef<'_>) {
        self.keys[db].fetch_sub(1, Ordering::Relaxed);
        self.count_life(db, entry.life(), -1);
        self.change(db, Holding::of(entry), Holding::default());
    }

    /// An entry holds another amount than before, or got or lost a life.
    pub(super) fn change(&self, db: usize, before: Holding, after: Holding) {
        self.entries[db].change(before.memory, after.memory);
        if before.mortal != after.mortal {
            self.mortal[db].fetch_add(after.mortal as i64 - before.mortal as i64, Ordering::Relaxed);
        }
    }

    /// Bytes of the entries with a life.
    pub(super) fn mortal_bytes(&self) -> u64 {
        self.mortal.iter().map(|sum| sum.load(Ordering::Relaxed).max(0) as u64).sum()
    }

    /// A life comes (`sign` 1) or goes (-1).
    pub(super) fn count_life(&self, db: usize, life: Option<u64>, sign: i64) {
        if let Some(life) = life {
            self.lives[db].fetch_add(sign, Ordering::Relaxed);
            self.life_seconds[db].fetch_add(sign * ((life / 1000) as i64 - LIFE_EPOCH), Ordering::Relaxed);
        }
    }

    /// Work on a table, and count what it takes then.
    pub(super) fn count_table<R>(&self, table: &mut Table, work: impl FnOnce(&mut Table) -> R) -> R {
        let before = table.allocated_bytes();
        let result = work(table);
        let after = table.allocated_bytes();
        if before != after {
            self.tables.fetch_add(after as i64 - before as i64, Ordering::Relaxed);
        }
        result
    }

    /// Bytes of the tables themselves.
    pub(super) fn table_bytes(&self) -> u64 {
        self.tables.load(Ordering::Relaxed).max(0) as u64
    }

    /// A table whose entries became garbage goes too.
    pub(super) fn flush_table(&self, table: &Table) {
        let bytes = table.allocated_bytes();
        self.tables.fetch_sub(bytes as i64, Ordering::Relaxed);
        self.garbage.add(Footprint { heap: bytes, mapped: 0 });
    }

    /// All keys of a database became garbage.
    pub(super) fn flush(&self, db: usize) {
        for count in [&self.keys[db], &self.lives[db], &self.life_seconds[db], &self.mortal[db]] {
            count.store(0, Ordering::Relaxed);
        }
        self.garbage.add(self.entries[db].take());
    }

    /// Two databases were exchanged.
    pub(super) fn swap(&self, one: usize, other: usize) {
        for counts in [&self.keys, &self.lives, &self.life_seconds, &self.mortal] {
            swap(&counts[one], &counts[other]);
        }
        self.entries[one].swap(&self.entries[other]);
    }

    /// The milliseconds that keys with a life have left on average.
    pub(super) fn mean_life_left(&self, db: usize, now: u64) -> u64 {
        let lives = self.lives[db].load(Ordering::Relaxed).max(1);
        let mean = self.life_seconds[db].load(Ordering::Relaxed) / lives + LIFE_EPOCH;
        u64::try_from(mean).unwrap_or(0).saturating_mul(1000).saturating_sub(now)
    }
}

/// Whoever exchanges counts holds all locks: nobody else changes them.
fn swap(one: &AtomicI64, other: &AtomicI64) {
    let count = other.swap(one.load(Ordering::Relaxed), Ordering::Relaxed);
    one.store(count, Ordering::Relaxed);
}
