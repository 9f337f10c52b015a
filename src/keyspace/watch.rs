//! `WATCH`: a client hears whether keys were changed.
//!
//! A shard keeps the names that are watched in it, few or none; whoever changes a key looks there, under the lock that he
//! holds anyway, and raises the flags.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::Keyspace;
use super::held::Held;

/// Raised when one of the keys that it stands for was changed.
#[derive(Clone, Default)]
pub(super) struct Flag(Arc<AtomicBool>);

impl Flag {
    pub(super) fn is_raised(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    fn raise(&self) {
        self.0.store(true, Ordering::Release);
    }
}

/// A name, and the number of its database.
pub(super) type Key = (usize, Box<[u8]>);

/// The watched names of a shard.
#[derive(Default)]
pub(super) struct Watched {
    flags: HashMap<Box<[u8]>, Vec<(usize, Flag)>>,
    /// In a shard that a long transaction has for itself nobody watches: what was changed is noted for the return.
    changed: Option<Mutex<HashSet<Key>>>,
}

impl Watched {
    /// For a shard that a transaction has for itself.
    pub(super) fn noting() -> Self {
        Self { flags: HashMap::new(), changed: Some(Mutex::default()) }
    }

    /// A key was changed.
    pub(super) fn touch(&self, db: usize, name: &[u8]) {
        if let Some(changed) = &self.changed {
            changed.lock().insert((db, name.into()));
        } else if !self.flags.is_empty()
            && let Some(flags) = self.flags.get(name)
        {
            flags.iter().filter(|(other, _)| *other == db).for_each(|(_, flag)| flag.raise());
        }
    }

    /// The names that are watched, in whatever database.
    pub(super) fn names(&self) -> Vec<Box<[u8]>> {
        self.flags.keys().cloned().collect()
    }

    /// Whether this key was noted.
    pub(super) fn has_noted(&self, key: &Key) -> bool {
        self.changed.as_ref().is_some_and(|changed| changed.lock().contains(key))
    }

    /// These databases were changed as a whole; `exists` tells whether a key is there.
    pub(super) fn touch_all(&self, changed: impl Fn(usize) -> bool, exists: impl Fn(usize, &[u8]) -> bool) {
        for (name, flags) in &self.flags {
            let touched = flags.iter().filter(|(db, _)| changed(*db) && exists(*db, name));
            touched.for_each(|(_, flag)| flag.raise());
        }
    }

    fn add(&mut self, (db, name): &Key, flag: Flag) {
        self.flags.entry(name.clone()).or_default().push((*db, flag));
    }

    fn remove(&mut self, (db, name): &Key, flag: &Flag) {
        if let Some(flags) = self.flags.get_mut(name) {
            flags.retain(|(other, kept)| other != db || !Arc::ptr_eq(&kept.0, &flag.0));
            if flags.is_empty() {
                self.flags.remove(name);
            }
        }
    }
}

/// The keys that a client watches; they are no longer watched when this is dropped.
pub struct Watch {
    keyspace: Arc<Keyspace>,
    keys: HashSet<Key>,
    flag: Flag,
}

impl Watch {
    /// Nothing yet.
    #[must_use]
    pub fn new(keyspace: &Arc<Keyspace>) -> Self {
        Self { keyspace: keyspace.clone(), keys: HashSet::new(), flag: Flag::default() }
    }

    /// Watch this key too. One whose life is over by now is removed first: that is no change.
    pub fn add(&mut self, db: usize, name: &[u8]) {
        let key = (db, Box::from(name));
        if !self.keys.contains(&key) {
            let _busy = self.keyspace.write(db, name, |_| {});
            self.keyspace.shard_of(name).write().watched.add(&key, self.flag.clone());
            self.keys.insert(key);
        }
    }

    /// The keys. Whoever holds them all and finds the flag down knows that it stays down until he is done.
    pub fn keys(&self) -> impl Iterator<Item = (usize, &[u8])> + Clone {
        self.keys.iter().map(|(db, name)| (*db, &name[..]))
    }

    /// Whether one of the keys was changed.
    #[must_use]
    pub fn is_raised(&self) -> bool {
        self.flag.is_raised()
    }

    /// Remove those of the keys whose lives are over, which is a change. They must all be held.
    pub fn remove_ended(&self, held: &mut Held<'_>) {
        for (db, name) in &self.keys {
            let _busy = held.write(*db, name, |_| {});
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        for key in &self.keys {
            self.keyspace.shard_of(&key.1).write().watched.remove(key, &self.flag);
        }
    }
}
