//! A shard, and one key's place in it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use smallvec::SmallVec;

use super::DATABASES;
use super::clock::Clock;
use super::effect::{Cause, Effect, Group, Journal};
use super::entry::{Entry, EntryRef, ValueRef};
use super::figures::{Figures, Holding};
use super::latch::{Gate, Latch, Wait};
use super::reaper::Reaper;
use super::snapshot::Saving;
use super::table::{NameHash, Table};
use super::watch::Watched;

/// What all shards of a keyspace share.
pub(super) struct Common {
    pub(super) hasher: ahash::RandomState,
    pub(super) clock: Clock,
    /// Seconds since the start, for the entries' access stamps.
    pub(super) now: AtomicU32,
    /// No life ends: a log is being done again.
    pub(super) lives_held: AtomicBool,
    /// Whether uses are counted, for the policies that go by them.
    pub(super) counts_uses: AtomicBool,
    pub(super) journal: Option<Arc<dyn Journal>>,
    /// Closed while somebody waits for whole databases.
    pub(super) gate: Arc<Gate>,
    pub(super) reaper: Reaper,
    pub(super) figures: Arc<Figures>,
    pub(super) saving: Saving,
}

impl Common {
    pub(super) fn hash(&self, name: &[u8]) -> NameHash {
        NameHash(self.hasher.hash_one(name))
    }

    /// What was recorded under a lock that is about to be given back is complete.
    pub(super) fn commit(&self) {
        if let Some(journal) = &self.journal {
            journal.commit();
        }
    }

    /// What was recorded belongs to something that goes on.
    pub(super) fn suspend(&self, group: &mut Group) {
        if let Some(journal) = &self.journal {
            journal.suspend(group);
        }
    }

    /// Something that went on is complete.
    pub(super) fn commit_group(&self, group: Group) {
        if let Some(journal) = &self.journal
            && group.count > 0
        {
            journal.commit_group(group);
        }
    }

    /// A key is used.
    pub(super) fn touch(&self, entry: EntryRef<'_>) {
        entry.touch(self.now.load(Ordering::Relaxed), self.counts_uses.load(Ordering::Relaxed));
    }
}

/// One shard of the keyspace.
#[derive(Default)]
pub(super) struct Shard {
    pub(super) tables: [Table; DATABASES],
    /// The latches of the entries that are away.
    pub(super) away: SmallVec<[(usize, Arc<Latch>); 1]>,
    pub(super) watched: Watched,
    /// The time for whoever holds this shard and looks at its keys more than once: a key that he saw must not end before he
    /// is done. 0 as long as time goes on.
    pub(super) stopped_at: u64,
}

impl Shard {
    /// Whether the key's life is over.
    pub(super) fn is_over(&self, common: &Common, entry: EntryRef<'_>) -> bool {
        let now = || if self.stopped_at > 0 { self.stopped_at } else { common.clock.now() };
        entry.life().is_some_and(|life| !common.lives_held.load(Ordering::Relaxed) && life <= now())
    }

    /// Whether there is a key whose life is over.
    pub(super) fn has_ended(&self, common: &Common, db: usize, hash: NameHash, name: &[u8]) -> bool {
        self.tables[db].get(hash, name).is_some_and(|entry| self.is_over(common, entry))
    }

    /// A key that is there: its life is not over, and no long command has it.
    ///
    /// # Errors
    /// [`Wait`] when a long command has it.
    pub(super) fn get(
        &self,
        common: &Common,
        db: usize,
        hash: NameHash,
        name: &[u8],
    ) -> Result<Option<EntryRef<'_>>, Wait> {
        let Some(entry) = self.tables[db].get(hash, name) else { return Ok(None) };
        if let ValueRef::Busy { latch, .. } = entry.value() {
            return Err(Wait::new(latch.clone()));
        }
        Ok((!self.is_over(common, entry)).then_some(entry))
    }

    /// The latch of an entry that is away.
    pub(super) fn latch_of(&self, db: usize, hash: NameHash, name: &[u8]) -> Option<Arc<Latch>> {
        if self.away.is_empty() {
            return None;
        }
        match self.tables[db].get(hash, name)?.value() {
            ValueRef::Busy { latch, .. } => Some(latch.clone()),
            _ => None,
        }
    }

    /// The place of a key, for writing. A key whose life is over is removed first.
    ///
    /// # Errors
    /// [`Wait`] when a long command has it.
    pub(super) fn cell<'a>(
        &'a mut self,
        common: &'a Common,
        db: usize,
        hash: NameHash,
        name: &'a [u8],
    ) -> Result<Cell<'a>, Wait> {
        if let Some(latch) = self.latch_of(db, hash, name) {
            return Err(Wait::new(latch));
        }
        let over = self.has_ended(common, db, hash, name);
        let mut cell = Cell { shard: self, common, db, hash, name };
        if over {
            cell.delete(Cause::Expired);
        }
        Ok(cell)
    }
}

/// Tells a change to whom it concerns; for changes under a shared lock.
#[derive(Clone, Copy)]
pub struct Recorder<'a> {
    pub(super) common: &'a Common,
    pub(super) watched: &'a Watched,
    pub(super) db: usize,
    pub(super) name: &'a [u8],
}

/// Hears of changes of one key.
pub trait Record {
    /// The key was changed.
    fn record(&self, effect: &Effect<'_>);
}

impl Recorder<'_> {
    /// Something happened that is recorded under this key's name but did not change this key.
    fn note(&self, effect: &Effect<'_>) {
        self.common.figures.changes.fetch_add(1, Ordering::Relaxed);
        if let Some(journal) = &self.common.journal {
            journal.record(self.db, self.name, effect);
        }
    }
}

impl Record for Recorder<'_> {
    fn record(&self, effect: &Effect<'_>) {
        self.watched.touch(self.db, self.name);
        self.note(effect);
    }
}

/// The place of one key, under its shard's exclusive lock; there may be no key in it.
pub struct Cell<'a> {
    shard: &'a mut Shard,
    common: &'a Common,
    db: usize,
    hash: NameHash,
    name: &'a [u8],
}

impl<'a> Cell<'a> {
    /// The key, for reading.
    #[must_use]
    pub fn get(&self) -> Option<EntryRef<'_>> {
        self.shard.tables[self.db].get(self.hash, self.name)
    }

    /// The key's name, whether there is a key or not.
    #[must_use]
    pub fn name(&self) -> &'a [u8] {
        self.name
    }

    /// Work on the key; the totals follow what became of it. `None` if there is no key.
    pub fn change<R>(&mut self, work: impl FnOnce(&mut Entry, Recorder<'_>) -> R) -> Option<R> {
        let Shard { tables, watched, .. } = &mut *self.shard;
        let mut entry = tables[self.db].get_mut(self.hash, self.name)?;
        self.common.touch(entry.as_ref());
        self.common.keep(self.db, entry.as_ref());
        let recorder = Recorder { common: self.common, watched, db: self.db, name: self.name };
        let figures = &self.common.figures;
        let before = (Holding::of(entry.as_ref()), entry.as_ref().life());
        let result = work(&mut entry, recorder);
        self.common.reaper.settle(&mut entry);
        let after = (Holding::of(entry.as_ref()), entry.as_ref().life());
        self.common.mark(entry.as_ref());
        drop(entry);
        figures.change(self.db, before.0, after.0);
        if before.1 != after.1 {
            figures.count_life(self.db, before.1, -1);
            figures.count_life(self.db, after.1, 1);
            tables[self.db].set_due(self.hash, after.1);
        }
        Some(result)
    }

    /// Put a key here, of this cell's name. There must be none.
    pub fn insert(&mut self, entry: Entry) {
        self.common.touch(entry.as_ref());
        self.common.mark(entry.as_ref());
        self.common.figures.count(self.db, entry.as_ref());
        let (common, life) = (self.common, entry.as_ref().life());
        common.figures.count_table(&mut self.shard.tables[self.db], |table| {
            drop(table.insert(self.hash, entry, |name| common.hash(name)));
            table.set_due(self.hash, life);
        });
    }

    /// Put a key here, of this cell's name, in place of what is here. What was there is freed in the background if it is
    /// large.
    pub fn replace(&mut self, entry: Entry) {
        if let Some(old) = self.take() {
            self.common.reaper.free_entry(old);
        }
        self.insert(entry);
    }

    /// Take the key away, without telling anybody: for what comes back under another name.
    pub fn take(&mut self) -> Option<Entry> {
        let table = &mut self.shard.tables[self.db];
        if let Some(entry) = table.get(self.hash, self.name) {
            self.common.keep(self.db, entry);
        }
        let entry = self.common.figures.count_table(table, |table| table.remove(self.hash, self.name))?;
        self.common.figures.count_off(self.db, entry.as_ref());
        Some(entry)
    }

    /// Delete the key; its memory is freed in the background if there is much of it. Tells whether there was one.
    pub fn delete(&mut self, cause: Cause) -> bool {
        let Some(entry) = self.take() else { return false };
        self.common.reaper.free_entry(entry);
        match cause {
            Cause::Command => {}
            Cause::Expired => drop(self.common.figures.expired.fetch_add(1, Ordering::Relaxed)),
            Cause::Evicted => drop(self.common.figures.evicted.fetch_add(1, Ordering::Relaxed)),
        }
        self.record(&Effect::Deleted { cause });
        true
    }

    /// The key was changed.
    pub fn record(&self, effect: &Effect<'_>) {
        self.recorder().record(effect);
    }

    /// The key was read for a change of another key, and the record begins at this one: who watches it hears nothing.
    pub fn note(&self, effect: &Effect<'_>) {
        self.recorder().note(effect);
    }

    fn recorder(&self) -> Recorder<'_> {
        Recorder { common: self.common, watched: &self.shard.watched, db: self.db, name: self.name }
    }

    /// A key was put here by a change that is recorded for another key: who watches this one hears of it.
    pub fn touch_watchers(&self) {
        self.shard.watched.touch(self.db, self.name);
    }
}
