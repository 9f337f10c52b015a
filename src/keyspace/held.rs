//! Several keys at one moment: their shards locked together, or their entries taken out together.
//!
//! Locks are taken in the order of the shards, each once; whoever holds some asks for no more. So no two can wait for each
//! other.

use std::sync::Arc;

use parking_lot::{Mutex, RwLockWriteGuard};
use smallvec::SmallVec;

use super::effect::{Effect, Group};
use super::entry::{Entry, EntryRef};
use super::latch::{Latch, Wait};
use super::shard::{Cell, Common, Shard};
use super::table::{NameHash, Table};
use super::{DATABASES, Keyspace, SHARDS, shard_index};
use crate::filters::bits::AllocError;

/// The order in which shards are locked, each once: whoever holds some asks only for higher ones.
fn in_order(indices: &mut SmallVec<[usize; 8]>) {
    indices.sort_unstable();
    indices.dedup();
}

/// Keys that a long transaction has taken out.
pub(super) struct PrivateKeys {
    pub(super) shard: Mutex<Shard>,
    /// When they were taken.
    pub(super) taken_at: u64,
    /// Their names, each with its database; in order.
    pub(super) names: Vec<(usize, Box<[u8]>)>,
    pub(super) latch: Arc<Latch>,
    /// What the transaction has done so far.
    pub(super) group: Mutex<Group>,
}

impl PrivateKeys {
    fn has(&self, db: usize, name: &[u8]) -> bool {
        self.names.binary_search_by(|(other, key)| (*other, &key[..]).cmp(&(db, name))).is_ok()
    }
}

/// Keys that nobody else can touch. Their lives do not go on meanwhile: all that is done with them is done at one moment.
pub struct Held<'k> {
    common: &'k Common,
    source: Source<'k>,
    moment: u64,
}

enum Source<'k> {
    /// These shards are locked.
    Locked { indices: SmallVec<[usize; 8]>, guards: SmallVec<[RwLockWriteGuard<'k, Shard>; 8]> },
    /// The entries stand in a shard of their own; see [`super::latched`].
    Private(Arc<PrivateKeys>),
}

impl Keyspace {
    /// Lock the shards of these keys.
    ///
    /// # Errors
    /// [`Wait`] when a long command has one of the keys; nothing is locked then.
    pub fn lock<'n>(&self, keys: impl Iterator<Item = (usize, &'n [u8])> + Clone) -> Result<Held<'_>, Wait> {
        let mut held =
            Held::of_shards(self, keys.clone().map(|(_, name)| shard_index(self.common.hash(name))).collect());
        for (db, name) in keys {
            let hash = self.common.hash(name);
            if let Some(latch) = held.shard(hash, |shard| shard.latch_of(db, hash, name)) {
                return Err(Wait::new(latch));
            }
        }
        Ok(held)
    }

    /// Lock all shards.
    ///
    /// # Errors
    /// [`Wait`] when a long command has a key in one of the databases that `concerned` names; nothing is locked then.
    pub fn lock_all(&self, concerned: impl Fn(usize) -> bool) -> Result<Held<'_>, Wait> {
        let guards: SmallVec<[_; 8]> = self.shards.iter().map(|shard| shard.0.write()).collect();
        let away = guards.iter().flat_map(|shard| &shard.away).find(|(db, _)| concerned(*db));
        if let Some((_, latch)) = away {
            return Err(Wait::with_gate_closed(latch.clone(), &self.common.gate));
        }
        self.common.gate.open();
        Ok(Held::of_guards(self, (0..SHARDS).collect(), guards))
    }

    /// The keys in this shard of their own, which nobody else sees.
    pub(super) fn hold_private(&self, keys: &Arc<PrivateKeys>) -> Held<'_> {
        Held { common: &self.common, source: Source::Private(keys.clone()), moment: keys.taken_at }
    }
}

impl<'k> Held<'k> {
    /// Lock these shards, each once and in order.
    pub(super) fn of_shards(keyspace: &'k Keyspace, mut indices: SmallVec<[usize; 8]>) -> Self {
        in_order(&mut indices);
        let guards = indices.iter().map(|index| keyspace.shards[*index].0.write()).collect();
        Self::of_guards(keyspace, indices, guards)
    }

    fn of_guards(
        keyspace: &'k Keyspace,
        indices: SmallVec<[usize; 8]>,
        mut guards: SmallVec<[RwLockWriteGuard<'k, Shard>; 8]>,
    ) -> Self {
        let moment = keyspace.common.clock.now();
        guards.iter_mut().for_each(|shard| shard.stopped_at = moment);
        Self { common: &keyspace.common, source: Source::Locked { indices, guards }, moment }
    }

    /// The time, in milliseconds since 1970, of all that is done here.
    #[must_use]
    pub fn moment(&self) -> u64 {
        self.moment
    }

    pub(super) fn shard<R>(&mut self, hash: NameHash, work: impl FnOnce(&mut Shard) -> R) -> R {
        match &mut self.source {
            Source::Locked { indices, guards } => {
                let at = indices.binary_search(&shard_index(hash)).expect("the key's shard was locked");
                work(&mut guards[at])
            }
            Source::Private(keys) => work(&mut keys.shard.lock()),
        }
    }

    /// A key that was not taken out must not be met as one that does not exist.
    pub(super) fn check(&self, db: usize, name: &[u8]) -> Result<(), Wait> {
        match &self.source {
            Source::Private(keys) if !keys.has(db, name) => Err(Wait::new(keys.latch.clone())),
            _ => Ok(()),
        }
    }

    /// Look at a key.
    ///
    /// # Errors
    /// [`Wait`] when a long command has it: not for the keys that this was made for.
    pub fn read<R>(&mut self, db: usize, name: &[u8], look: impl FnOnce(Option<EntryRef<'_>>) -> R) -> Result<R, Wait> {
        self.check(db, name)?;
        let (common, hash) = (self.common, self.common.hash(name));
        self.shard(hash, |shard| {
            if shard.has_ended(common, db, hash, name) {
                shard.cell(common, db, hash, name)?;
            }
            let entry = shard.get(common, db, hash, name)?;
            entry.iter().for_each(|entry| common.touch(*entry));
            Ok(look(entry))
        })
    }

    /// Work on a key.
    ///
    /// # Errors
    /// As [`Held::read`].
    pub fn write<R>(&mut self, db: usize, name: &[u8], work: impl FnOnce(&mut Cell<'_>) -> R) -> Result<R, Wait> {
        self.check(db, name)?;
        let (common, hash) = (self.common, self.common.hash(name));
        self.shard(hash, |shard| shard.cell(common, db, hash, name).map(|mut cell| work(&mut cell)))
    }

    /// Whether all shards are locked.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        matches!(&self.source, Source::Locked { guards, .. } if guards.len() == SHARDS)
    }

    /// Whether the keys stand in a shard of their own, so that no lock is held.
    #[must_use]
    pub fn is_private(&self) -> bool {
        self.private().is_some()
    }

    /// The keys in a shard of their own, if they stand in one.
    pub(super) fn private(&self) -> Option<&Arc<PrivateKeys>> {
        match &self.source {
            Source::Private(keys) => Some(keys),
            Source::Locked { .. } => None,
        }
    }

    /// Give a key another name, in place of a key that has it. There must be a key `from`.
    ///
    /// # Errors
    /// [`AllocError`] when there is no memory; nothing has changed then.
    pub fn rename(&mut self, db: usize, from: &[u8], to: &[u8]) -> Result<Result<(), AllocError>, Wait> {
        let Some(mut entry) = self.write(db, from, |cell| cell.take())? else { return Ok(Ok(())) };
        if let Err(error) = entry.rename(to) {
            return self.write(db, from, |cell| cell.insert(entry)).map(|()| Err(error));
        }
        self.put(db, to, entry)?;
        self.write(db, from, |cell| cell.record(&Effect::Renamed { to }))?;
        Ok(Ok(()))
    }

    /// Take a key to another database, in which there must be none of that name.
    ///
    /// # Errors
    /// As [`Held::read`].
    pub fn move_key(&mut self, from: usize, name: &[u8], to: usize) -> Result<(), Wait> {
        if let Some(entry) = self.write(from, name, |cell| cell.take())? {
            self.put(to, name, entry)?;
            self.write(from, name, |cell| cell.record(&Effect::Moved { db: to }))?;
        }
        Ok(())
    }

    /// Put an entry where it belongs, in place of what is there, as part of a change that is recorded elsewhere.
    ///
    /// # Errors
    /// As [`Held::read`].
    pub fn put(&mut self, db: usize, name: &[u8], entry: Entry) -> Result<(), Wait> {
        self.write(db, name, |cell| {
            cell.replace(entry);
            cell.touch_watchers();
        })
    }

    fn for_each_shard(&mut self, mut work: impl FnMut(&mut Shard)) {
        match &mut self.source {
            Source::Locked { guards, .. } => guards.iter_mut().for_each(|guard| work(guard)),
            Source::Private(keys) => work(&mut keys.shard.lock()),
        }
    }

    /// Delete all keys of one database, or of all. All shards must be locked. Memory is freed in the background.
    pub fn flush(&mut self, db: Option<usize>) {
        let common = self.common;
        let concerned = |other: usize| db.is_none_or(|db| db == other);
        let mut tables = Vec::new();
        self.for_each_shard(|shard| {
            let Shard { tables: present, watched, .. } = shard;
            watched.touch_all(concerned, |db, name| present[db].get(common.hash(name), name).is_some());
            for (db, table) in present.iter_mut().enumerate().filter(|(db, _)| concerned(*db)) {
                if !table.is_empty() {
                    tables.push((db, std::mem::take(table)));
                }
            }
        });
        common.flushed(db, tables);
    }

    /// Exchange two databases. All shards must be locked.
    pub fn swap(&mut self, one: usize, other: usize) {
        let common = self.common;
        self.for_each_shard(|shard| {
            // Keys that have ended go first: none comes to a name that is watched, to go there as if it had been changed.
            for name in shard.watched.names() {
                for db in [one, other] {
                    let _busy = shard.cell(common, db, common.hash(&name), &name);
                }
            }
            let exists = |_: usize, name: &[u8]| {
                let there = |db: usize| shard.tables[db].get(common.hash(name), name).is_some();
                there(one) || there(other)
            };
            shard.watched.touch_all(|db| db == one || db == other, exists);
            shard.tables.swap(one, other);
        });
        common.swapped(one, other);
    }

    /// Visit the keys of one shard; all must be locked.
    pub(super) fn with_shard<R>(&mut self, index: usize, work: impl FnOnce(&Shard) -> R) -> R {
        match &mut self.source {
            Source::Locked { guards, .. } => work(&guards[index]),
            Source::Private(keys) => work(&keys.shard.lock()),
        }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        match &mut self.source {
            Source::Locked { guards, .. } => {
                guards.iter_mut().for_each(|shard| shard.stopped_at = 0);
                self.common.commit();
            }
            // The transaction goes on, or ends when its keys go back.
            Source::Private(keys) => self.common.suspend(&mut keys.group.lock()),
        }
    }
}

impl Common {
    fn flushed(&self, db: Option<usize>, tables: Vec<(usize, Table)>) {
        (0..DATABASES).filter(|other| db.is_none_or(|db| db == *other)).for_each(|db| self.figures.flush(db));
        self.record_whole(db.unwrap_or(0), &Effect::Flushed { all: db.is_none() });
        tables.iter().for_each(|(_, table)| self.figures.flush_table(table));
        self.keep_tables(tables);
    }

    fn swapped(&self, one: usize, other: usize) {
        self.figures.swap(one, other);
        self.swap_homes(one, other);
        self.record_whole(one, &Effect::Swapped { with: other });
    }

    fn record_whole(&self, db: usize, effect: &Effect<'_>) {
        self.figures.changes.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        if let Some(journal) = &self.journal {
            journal.record(db, b"", effect);
        }
    }
}

#[cfg(all(test, loom))]
mod loom_models {
    use super::in_order;
    use loom::sync::{Arc, RwLock};
    use smallvec::SmallVec;

    /// Three transactions whose keys overlap in a circle, named in the worst order: in every order of their steps all end,
    /// and none sees another one half done. (Loom stops at a deadlock.)
    #[test]
    fn transactions_in_a_circle_all_end() {
        loom::model(|| {
            let shards: Arc<[RwLock<u32>; 3]> = Arc::new([RwLock::new(0), RwLock::new(0), RwLock::new(0)]);
            let threads: Vec<_> = [[0, 1], [1, 2], [2, 0]]
                .into_iter()
                .map(|keys| {
                    let shards = shards.clone();
                    loom::thread::spawn(move || {
                        let mut indices = SmallVec::from_slice(&keys);
                        in_order(&mut indices);
                        let mut guards: Vec<_> = indices.iter().map(|index| shards[*index].write().unwrap()).collect();
                        guards.iter_mut().for_each(|guard| **guard += 1);
                    })
                })
                .collect();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            let counts: Vec<u32> = shards.iter().map(|shard| *shard.read().unwrap()).collect();
            assert_eq!(counts, [2, 2, 2]);
        });
    }
}
