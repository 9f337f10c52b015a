//! Keys that a long command has for itself.
//!
//! The command takes the key's entry out of its table, leaves a stand-in there, and works without a lock. A transaction that
//! takes long does the same with all its keys: they stand in a shard of their own meanwhile, and names without a key are
//! kept free by stand-ins for nothing.

use std::sync::Arc;

use parking_lot::Mutex;

use super::Keyspace;
use super::effect::Effect;
use super::entry::{Entry, EntryRef, Value, ValueRef};
use super::held::Held;
use super::latch::{Latch, Wait};
use super::shard::{Record, Recorder, Shard};
use super::table::NameHash;
use super::watch::{Flag, Key};
use std::sync::atomic::Ordering;

/// One key that a long command has for itself. It goes back when this is dropped, and who waits for it is woken.
pub struct Latched {
    keyspace: Arc<Keyspace>,
    home: Home,
    db: usize,
    hash: NameHash,
    latch: Arc<Latch>,
    name: Box<[u8]>,
    entry: Option<Entry>,
}

/// Where the entry goes back to.
enum Home {
    /// The shard of its name.
    Table,
    /// The shard that a transaction has for itself.
    Private(Arc<Mutex<Shard>>),
}

impl Keyspace {
    /// Take a key for a long command; `None` when there is no such key, or no memory for the stand-in.
    ///
    /// # Errors
    /// [`Wait`] when another long command has it.
    pub fn latch(self: &Arc<Self>, db: usize, name: &[u8]) -> Result<Option<Latched>, Wait> {
        let shard = &mut *self.shard_of(name).write();
        self.latch_in(shard, Home::Table, db, name)
    }

    /// Take a key that a transaction holds in a shard of its own, for a long command in it.
    ///
    /// # Errors
    /// [`Wait`] when another command of the transaction has it, which cannot be.
    pub fn latch_held(self: &Arc<Self>, held: &Held<'_>, db: usize, name: &[u8]) -> Result<Option<Latched>, Wait> {
        let Some(private) = held.private() else { return Ok(None) };
        self.latch_in(&mut private.lock(), Home::Private(private.clone()), db, name)
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
        Ok(entry.map(|entry| Latched { keyspace: self.clone(), home, db, hash, latch, name, entry: Some(entry) }))
    }

    /// Put a stand-in in the place of an entry, which is returned.
    fn stand_in(&self, shard: &mut Shard, latch: &Arc<Latch>, db: usize, hash: NameHash, name: &[u8]) -> Option<Entry> {
        let mut entry = shard.tables[db].get_mut(hash, name)?;
        let value = Value::Busy { latch: latch.clone(), kind: entry.as_ref().kind() };
        let stand_in = Entry::boxed(name, None, value).ok()?;
        self.common.touch(stand_in.as_ref());
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
        let before = entry.allocated_bytes() as i64;
        let result = work(entry, &record);
        let grown = entry.allocated_bytes() as i64 - before;
        self.keyspace.common.figures.bytes.fetch_add(grown, Ordering::Relaxed);
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
        drop(std::mem::replace(&mut *place, own));
        drop(place);
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
            Home::Private(shard) => record(&shard.lock()),
        }
    }
}

impl Drop for Latched {
    fn drop(&mut self) {
        if let Some(own) = self.entry.take() {
            match &self.home {
                Home::Table => self.put_back(&mut self.keyspace.shard(self.hash).write(), own),
                Home::Private(shard) => self.put_back(&mut shard.lock(), own),
            }
        }
        self.latch.release();
    }
}

/// All keys of a long transaction, in a shard of their own. They go back when this is dropped, all at one moment: then those
/// who watch them see what was changed.
pub struct LatchedKeys {
    keyspace: Arc<Keyspace>,
    shard: Arc<Mutex<Shard>>,
    /// Each key, and whether it was changed.
    keys: Vec<(Key, Flag)>,
    latch: Arc<Latch>,
}

impl Keyspace {
    /// Take these keys, each named once, and keep the names of those that are not there.
    ///
    /// # Errors
    /// [`Wait`] when another long command has one of them; none is taken then.
    pub fn latch_keys(self: &Arc<Self>, keys: Vec<Key>, held: &mut Held<'_>) -> Result<LatchedKeys, Wait> {
        let (latch, private) = (Arc::new(Latch::default()), Arc::new(Mutex::new(Shard::default())));
        for (db, name) in &keys {
            let hash = self.common.hash(name);
            // A key whose life is over is removed here.
            held.write(*db, name, |_| {})?;
            held.shard(hash, |shard| {
                if let Some(entry) = self.stand_in(shard, &latch, *db, hash, name) {
                    let life = entry.as_ref().life();
                    drop(private.lock().tables[*db].insert(hash, entry, |name| self.common.hash(name)));
                    private.lock().tables[*db].set_due(hash, life);
                } else if let Ok(free) = Entry::boxed(name, None, Value::Busy { latch: latch.clone(), kind: None }) {
                    drop(shard.tables[*db].insert(hash, free, |name| self.common.hash(name)));
                    shard.away.push((*db, latch.clone()));
                }
            });
        }
        let keys: Vec<_> = keys.into_iter().map(|key| (key, Flag::default())).collect();
        let mut shard = private.lock();
        keys.iter().for_each(|(key, changed)| shard.watched.add(key.clone(), changed.clone()));
        drop(shard);
        Ok(LatchedKeys { keyspace: self.clone(), shard: private, keys, latch })
    }
}

impl LatchedKeys {
    /// The keys, to work on.
    #[must_use]
    pub fn hold(&self) -> Held<'_> {
        self.hold_at(&self.keyspace)
    }

    /// The keys, to work on, for as long as this reference to their keyspace lives.
    #[must_use]
    pub fn hold_at<'k>(&self, keyspace: &'k Keyspace) -> Held<'k> {
        keyspace.hold_private(&self.shard)
    }
}

impl Drop for LatchedKeys {
    fn drop(&mut self) {
        let keyspace = &self.keyspace;
        let mut private = self.shard.lock();
        let mut held = keyspace.lock_for_return(self.keys.iter().map(|((db, name), _)| (*db, &name[..])));
        for ((db, name), changed) in &self.keys {
            let hash = keyspace.common.hash(name);
            let own = private.tables[*db].remove(hash, name);
            held.shard(hash, |shard| {
                drop(shard.tables[*db].remove(hash, name));
                if let Some(own) = own {
                    let life = own.as_ref().life();
                    drop(shard.tables[*db].insert(hash, own, |name| keyspace.common.hash(name)));
                    shard.tables[*db].set_due(hash, life);
                }
                shard.away.retain(|(_, latch)| !Arc::ptr_eq(latch, &self.latch));
                if changed.is_raised() {
                    shard.watched.touch(*db, name);
                }
            });
        }
        drop(held);
        self.latch.release();
    }
}

/// Whether an entry stands for no key at all.
pub(super) fn is_nothing(entry: EntryRef<'_>) -> bool {
    matches!(entry.value(), ValueRef::Busy { kind: None, .. })
}
