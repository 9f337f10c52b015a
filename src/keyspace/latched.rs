//! Keys that a long command has for itself.
//!
//! The command takes the key's entry out of its table, leaves a stand-in there, and works without a lock. A transaction that
//! takes long does the same with all its keys: they stand in a shard of their own meanwhile, and names without a key are
//! kept free by stand-ins for nothing.

use std::alloc::Layout;
use std::sync::Arc;

use parking_lot::Mutex;

use super::Keyspace;
use super::effect::{Effect, Group};
use super::entry::{Entry, EntryRef, Kind, Value, ValueRef};
use super::figures;
use super::held::{Held, PrivateKeys};
use super::latch::{Latch, Wait};
use super::shard::{Cell, Record, Recorder, Shard};
use super::table::NameHash;
use super::watch::Watched;

/// One key that a long command has for itself. It goes back when this is dropped, and who waits for it is woken.
pub struct Latched {
    keyspace: Arc<Keyspace>,
    home: Home,
    db: usize,
    hash: NameHash,
    latch: Arc<Latch>,
    name: Box<[u8]>,
    entry: Option<Entry>,
    /// What the command has done so far.
    group: Group,
}

/// Where the entry goes back to.
enum Home {
    /// The shard of its name.
    Table,
    /// The shard that a transaction has for itself.
    Private(Arc<PrivateKeys>),
}

impl Keyspace {
    /// Take a key for a long command; `None` when there is no such key, or no memory for the stand-in.
    ///
    /// # Errors
    /// [`Wait`] when another long command has it.
    pub fn latch(self: &Arc<Self>, db: usize, name: &[u8]) -> Result<Option<Latched>, Wait> {
        self.may_take()?;
        let shard = &mut *self.shard_of(name).write();
        self.latch_in(shard, Home::Table, db, name)
    }

    /// Take a key that a transaction holds in a shard of its own, for a long command in it.
    ///
    /// # Errors
    /// [`Wait`] when another command of the transaction has it, which cannot be.
    pub fn latch_held(self: &Arc<Self>, held: &Held<'_>, db: usize, name: &[u8]) -> Result<Option<Latched>, Wait> {
        let Some(private) = held.private() else { return Ok(None) };
        self.latch_in(&mut private.shard.lock(), Home::Private(private.clone()), db, name)
    }

    /// Work on a key, and take it then if `work` says so and keys may be taken out now. Nobody comes in between.
    ///
    /// # Errors
    /// [`Wait`] when a long command has it; nothing was done then.
    pub fn write_and_latch<R>(
        self: &Arc<Self>,
        db: usize,
        name: &[u8],
        work: impl FnOnce(&mut Cell<'_>) -> (R, bool),
    ) -> Result<(R, Option<Latched>), Wait> {
        let shard = &mut *self.shard_of(name).write();
        self.write_and_latch_in(shard, Home::Table, db, name, work)
    }

    /// The same on a key that a transaction holds in a shard of its own.
    ///
    /// # Errors
    /// [`Wait`] when another command of the transaction has it, which cannot be.
    pub fn write_and_latch_held<R>(
        self: &Arc<Self>,
        held: &Held<'_>,
        db: usize,
        name: &[u8],
        work: impl FnOnce(&mut Cell<'_>) -> (R, bool),
    ) -> Result<(R, Option<Latched>), Wait> {
        held.check(db, name)?;
        let Some(private) = held.private() else { return Err(Wait::yielding()) };
        self.write_and_latch_in(&mut private.shard.lock(), Home::Private(private.clone()), db, name, work)
    }

    fn write_and_latch_in<R>(
        self: &Arc<Self>,
        shard: &mut Shard,
        home: Home,
        db: usize,
        name: &[u8],
        work: impl FnOnce(&mut Cell<'_>) -> (R, bool),
    ) -> Result<(R, Option<Latched>), Wait> {
        let (result, latch) = work(&mut shard.cell(&self.common, db, self.common.hash(name), name)?);
        let in_table = matches!(home, Home::Table);
        // While somebody waits for whole databases no key is taken out.
        let may_take = !in_table || self.may_take().is_ok();
        if !latch || !may_take {
            if in_table {
                self.common.commit();
            }
            return Ok((result, None));
        }
        // A key that ends right now is taken all the same: it was there.
        let before = std::mem::replace(&mut shard.stopped_at, 1);
        let latched = self.latch_in(shard, home, db, name);
        shard.stopped_at = before;
        let mut latched = latched?;
        match &mut latched {
            Some(latched) => self.common.suspend(&mut latched.group),
            None if in_table => self.common.commit(),
            None => {}
        }
        Ok((result, latched))
    }

    fn latch_in(
        self: &Arc<Self>,
        shard: &mut Shard,
        home: Home,
        db: usize,
        name: &[u8],
    ) -> Result<Option<Latched>, Wait> {
        let hash = self.common.hash(name);
        if shard.get(&self.common, db, hash, name)?.is_none() {
            return Ok(None);
        }
        let latch = Arc::new(Latch::default());
        let entry = self.stand_in(shard, &latch, db, hash, name);
        let name = name.into();
        Ok(entry.map(|entry| Latched {
            keyspace: self.clone(),
            home,
            db,
            hash,
            latch,
            name,
            entry: Some(entry),
            group: Group::default(),
        }))
    }

    /// Put a stand-in in the place of an entry, which is returned.
    fn stand_in(&self, shard: &mut Shard, latch: &Arc<Latch>, db: usize, hash: NameHash, name: &[u8]) -> Option<Entry> {
        let mut entry = shard.tables[db].get_mut(hash, name)?;
        self.common.touch(entry.as_ref());
        self.common.keep(db, entry.as_ref());
        let stand_in = stand_in(name, latch, entry.as_ref().kind());
        let own = std::mem::replace(&mut *entry, stand_in);
        drop(entry);
        shard.away.push((db, latch.clone()));
        Some(own)
    }
}

impl Latched {
    /// Work on the entry. The totals follow what became of it.
    pub fn change<R>(&mut self, work: impl FnOnce(&mut Entry, &dyn Record) -> R) -> R {
        let record = Remote { keyspace: &self.keyspace, home: &self.home, db: self.db, name: &self.name };
        let entry = self.entry.as_mut().expect("the entry stays until the drop");
        let before = figures::Holding::of(entry.as_ref());
        let result = work(entry, &record);
        self.keyspace.common.reaper.settle(entry);
        self.keyspace.common.figures.change(self.db, before, figures::Holding::of(entry.as_ref()));
        self.keyspace.common.suspend(&mut self.group);
        result
    }

    /// The entry, for reading.
    #[must_use]
    pub fn entry(&self) -> EntryRef<'_> {
        self.entry.as_ref().expect("the entry stays until the drop").as_ref()
    }

    fn put_back(&self, shard: &mut Shard, own: Entry) {
        let Shard { tables, away, .. } = shard;
        // Nobody removes or replaces a stand-in: all who meet one wait.
        let mut place = tables[self.db].get_mut(self.hash, own.name()).expect("the stand-in is in its place");
        let life = own.as_ref().life();
        self.keyspace.common.mark(own.as_ref());
        drop(std::mem::replace(&mut *place, own));
        drop(place);
        // While the entry was away its life was not seen.
        tables[self.db].set_due(self.hash, life);
        away.retain(|(_, latch)| !Arc::ptr_eq(latch, &self.latch));
    }
}

/// Records changes of a key that is away.
struct Remote<'a> {
    keyspace: &'a Keyspace,
    home: &'a Home,
    db: usize,
    name: &'a [u8],
}

impl Record for Remote<'_> {
    fn record(&self, effect: &Effect<'_>) {
        let record = |shard: &Shard| {
            Recorder { common: &self.keyspace.common, watched: &shard.watched, db: self.db, name: self.name }
                .record(effect);
        };
        match self.home {
            Home::Table => record(&self.keyspace.shard_of(self.name).read()),
            Home::Private(keys) => record(&keys.shard.lock()),
        }
    }
}

impl Drop for Latched {
    fn drop(&mut self) {
        let group = std::mem::take(&mut self.group);
        if let Some(own) = self.entry.take() {
            match &self.home {
                Home::Table => {
                    let mut shard = self.keyspace.shard(self.hash).write();
                    self.keyspace.common.commit_group(group);
                    self.put_back(&mut shard, own);
                }
                Home::Private(keys) => {
                    keys.group.lock().append(group);
                    self.put_back(&mut keys.shard.lock(), own);
                }
            }
        }
        self.latch.release();
    }
}

/// An entry that stands for one that is away, or for none. Without memory for these few bytes the process ends, as it does
/// wherever the standard library needs some.
fn stand_in(name: &[u8], latch: &Arc<Latch>, kind: Option<Kind>) -> Entry {
    let value = Value::Busy { latch: latch.clone(), kind };
    Entry::boxed(name, None, value).unwrap_or_else(|_| std::alloc::handle_alloc_error(Layout::for_value(name)))
}

/// All keys of a long transaction, in a shard of their own. They go back when this is dropped, all at one moment.
pub struct LatchedKeys {
    keyspace: Arc<Keyspace>,
    keys: Arc<PrivateKeys>,
}

impl Keyspace {
    /// Whether keys may be taken out now: not while somebody waits for whole databases.
    ///
    /// # Errors
    /// [`Wait`]: try again.
    pub fn may_take(&self) -> Result<(), Wait> {
        self.common.gate.pass()
    }

    /// Take these keys, and keep the names of those that are not there. Ask [`Keyspace::may_take`] first.
    ///
    /// # Errors
    /// [`Wait`] when another long command has one of them; none is taken then.
    pub fn latch_keys(
        self: &Arc<Self>,
        mut names: Vec<(usize, Box<[u8]>)>,
        held: &mut Held<'_>,
    ) -> Result<LatchedKeys, Wait> {
        names.sort_unstable();
        names.dedup();
        let latch = Arc::new(Latch::default());
        let taken_at = held.moment();
        let mut private = Shard { watched: Watched::noting(), stopped_at: taken_at, ..Shard::default() };
        for (db, name) in &names {
            let hash = self.common.hash(name);
            // A key whose life is over is removed here.
            held.write(*db, name, |_| {})?;
            held.shard(hash, |shard| {
                if let Some(entry) = self.stand_in(shard, &latch, *db, hash, name) {
                    self.put(&mut private, *db, hash, entry);
                } else {
                    self.put(shard, *db, hash, stand_in(name, &latch, None));
                    shard.away.push((*db, latch.clone()));
                }
            });
        }
        // What a transaction did before it turned out to be long belongs to it.
        let mut group = Group::default();
        self.common.suspend(&mut group);
        let keys = PrivateKeys { shard: Mutex::new(private), taken_at, names, latch, group: Mutex::new(group) };
        Ok(LatchedKeys { keyspace: self.clone(), keys: Arc::new(keys) })
    }

    /// Put an entry in a table without counting it: it is only away from its own, or stands for none.
    fn put(&self, shard: &mut Shard, db: usize, hash: NameHash, entry: Entry) {
        let life = entry.as_ref().life();
        self.common.mark(entry.as_ref());
        self.common.figures.count_table(&mut shard.tables[db], |table| {
            drop(table.insert(hash, entry, |name| self.common.hash(name)));
            table.set_due(hash, life);
        });
    }
}

impl LatchedKeys {
    /// The keys, to work on, for as long as this reference to their keyspace lives.
    #[must_use]
    pub fn hold_at<'k>(&self, keyspace: &'k Keyspace) -> Held<'k> {
        keyspace.hold_private(&self.keys)
    }
}

impl Drop for LatchedKeys {
    fn drop(&mut self) {
        let (keyspace, keys) = (&self.keyspace, &self.keys);
        let mut private = keys.shard.lock();
        let group = std::mem::take(&mut *keys.group.lock());
        let mut held = keyspace.lock_for_return(keys.names.iter().map(|(db, name)| (*db, &name[..])));
        for key in &keys.names {
            let (db, name) = key;
            let hash = keyspace.common.hash(name);
            let figures = &keyspace.common.figures;
            let own = figures.count_table(&mut private.tables[*db], |table| table.remove(hash, name));
            let changed = private.watched.has_noted(key);
            held.shard(hash, |shard| {
                drop(figures.count_table(&mut shard.tables[*db], |table| table.remove(hash, name)));
                if let Some(own) = own {
                    keyspace.put(shard, *db, hash, own);
                }
                if changed {
                    shard.watched.touch(*db, name);
                }
                shard.away.retain(|(_, latch)| !Arc::ptr_eq(latch, &keys.latch));
            });
        }
        debug_assert!(
            private.tables.iter().all(super::table::Table::is_empty),
            "a key was made that is not the transaction's"
        );
        keyspace.common.commit_group(group);
        drop(held);
        keys.latch.release();
    }
}

/// Whether an entry stands for no key at all.
pub(super) fn is_nothing(entry: EntryRef<'_>) -> bool {
    matches!(entry.value(), ValueRef::Busy { kind: None, .. })
}
