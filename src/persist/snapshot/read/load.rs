//! Keys into a keyspace: one thread finds where they begin and end, the others make entries of them.
//!
//! The window itself goes from one to the other, with the places of the keys in it; nothing is copied but the part that reaches
//! beyond its end. Windows come back to be filled again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};

use parking_lot::Mutex;

use super::report::{Fault, LoadError, Loss, Losses, Progress, listed_name};
use super::{Large, Place, Sink};
use super::{LargeCells, LargeRing};
use crate::codec::bloom_value::{BloomValue, ValueError};
use crate::codec::rdb::{Reader, TYPE_MODULE_1};
use crate::codec::rdb_string::RdbString;
use crate::codec::value::{self, Built};
use crate::filters::scalable_bloom::{Link, ScalableBloom};
use crate::keyspace::arrivals::Arrivals;
use crate::keyspace::bloom::filter_of_value;
use crate::keyspace::effect::{Effect, Profile};
use crate::keyspace::entry::{Entry, EntryRef, Value};
use crate::keyspace::{DATABASES, Keyspace, built_filter, ring};
use crate::persist::record::{Change, decode};

/// A key that lies in a window.
struct KeyAt {
    /// Where its name begins in it.
    at: u32,
    kind: u8,
    place: Place,
}

/// A window, and the keys in it.
#[derive(Default)]
pub(super) struct Batch {
    buffer: Vec<u8>,
    keys: Vec<KeyAt>,
}

/// What all threads share.
pub(super) struct Loading<'k> {
    keyspace: &'k Keyspace,
    progress: &'k Progress,
    accept_damaged: bool,
    stopped: AtomicBool,
    /// The first error in the order of the file, among those that were met.
    error: Mutex<Option<(u64, LoadError)>>,
    losses: Mutex<Losses>,
}

impl<'k> Loading<'k> {
    pub(super) fn new(keyspace: &'k Keyspace, progress: &'k Progress, accept_damaged: bool) -> Self {
        let (stopped, error, losses) = Default::default();
        Loading { keyspace, progress, accept_damaged, stopped, error, losses }
    }

    /// The error that ended the loading, and what was lost.
    pub(super) fn finish(self) -> (Option<LoadError>, Losses) {
        (self.error.into_inner().map(|(_, error)| error), self.losses.into_inner())
    }

    /// A key could not be taken.
    fn fail(&self, fault: Fault, place: &Place, name: Option<&[u8]>) {
        if let (true, Some(reason)) = (self.accept_damaged, fault.reason()) {
            let names: Vec<_> = name.iter().map(|name| (place.db, listed_name(name))).collect();
            let (from, to) = (place.offset, place.end);
            self.losses.lock().push(Loss { from, to, reason, names, keys: 1 });
            return;
        }
        let mut first = self.error.lock();
        if first.as_ref().is_none_or(|(offset, _)| place.offset < *offset) {
            *first = Some((place.offset, fault.into_error(place.offset)));
        }
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// Puts all keys of a batch into the keyspace.
    fn take(&self, batch: &mut Batch) {
        let mut arrivals = Arrivals::default();
        let mut scratch = Vec::new();
        let mut count = 0;
        for (number, key) in batch.keys.iter().enumerate() {
            let mut reader = Reader::new(&batch.buffer[key.at as usize..]);
            let name = RdbString::read(&mut reader).and_then(|name| name.bytes(&mut scratch));
            let name = match name {
                Ok(name) => name,
                Err(error) => {
                    self.fail(error.into(), &key.place, None);
                    continue;
                }
            };
            match self.entry(name, key, &mut reader) {
                Ok(entry) => {
                    self.keyspace.announce(&mut arrivals, database(&key.place) as u8, entry, number as u32);
                    count += 1;
                }
                Err(error) => self.fail(error.into(), &key.place, Some(name)),
            }
        }
        if !self.stopped.load(Ordering::Relaxed) {
            self.keyspace.arrive(&mut arrivals, |number| {
                let key = &batch.keys[number as usize];
                let mut reader = Reader::new(&batch.buffer[key.at as usize..]);
                let name = RdbString::read(&mut reader).and_then(|name| name.bytes(&mut scratch));
                self.fail(Fault::Form(TWICE), &key.place, name.ok());
                count -= 1;
            });
            self.progress.loaded(count);
        }
        batch.keys.clear();
    }

    fn entry(&self, name: &[u8], key: &KeyAt, reader: &mut Reader<'_>) -> Result<Entry, ValueError> {
        let value = match key.kind {
            TYPE_MODULE_1 => value::Value::Bloom(BloomValue::read_plain(reader)?),
            _ => value::Value::read(reader)?,
        };
        let entry = match value {
            value::Value::Bloom(value) => filter_of_value(name, key.place.life, value)?,
            other => built_filter(name, key.place.life, other.build(u64::MAX)?)?,
        };
        self.carry_over(entry.as_ref(), &key.place);
        Ok(entry)
    }

    /// How the key was used; it counts as used now if the file does not say.
    fn carry_over(&self, entry: EntryRef<'_>, place: &Place) {
        if let Some(uses) = place.uses {
            entry.set_uses(uses);
        }
        entry.set_idle(place.idle.unwrap_or(0), self.keyspace.stamp_now());
    }

    /// Puts a key of its own into the keyspace.
    fn one(&self, entry: Entry, place: &Place) -> Result<(), Fault> {
        self.carry_over(entry.as_ref(), place);
        let mut arrivals = Arrivals::default();
        self.keyspace.announce(&mut arrivals, database(place) as u8, entry, 0);
        let mut arrived = Ok(());
        self.keyspace.arrive(&mut arrivals, |_| arrived = Err(Fault::Form(TWICE)));
        arrived
    }
}

const TWICE: &str = "a key that was there before";

/// The scan lets no key pass whose database is not known or not there.
fn database(place: &Place) -> usize {
    place.db.map_or(0, |db| db as usize)
}

/// Hands windows to the threads that decode, or decodes itself if there are none.
pub(super) struct Loader<'l, 'k> {
    loading: &'l Loading<'k>,
    /// The keys of the window that is being read.
    keys: Vec<KeyAt>,
    spare: Vec<Batch>,
    spare_keys: Vec<Vec<KeyAt>>,
    others: Option<(SyncSender<Batch>, Receiver<Batch>)>,
}

impl<'l, 'k> Loader<'l, 'k> {
    /// Runs `work` with a sink that is served by `threads` threads besides this one.
    pub(super) fn run<R>(loading: &'l Loading<'k>, threads: usize, work: impl FnOnce(&mut Self) -> R) -> R {
        let loader = |others| Loader { loading, keys: Vec::new(), spare: Vec::new(), spare_keys: Vec::new(), others };
        if threads == 0 {
            return work(&mut loader(None));
        }
        let (full, taken) = sync_channel::<Batch>(threads);
        let (done, spare) = channel::<Batch>();
        let taken = Mutex::new(taken);
        std::thread::scope(|scope| {
            for _ in 0..threads {
                let done = done.clone();
                let taken = &taken;
                scope.spawn(move || serve(loading, taken, &done));
            }
            // The sender goes at the end of this scope's body: the threads end when all is done.
            work(&mut loader(Some((full, spare))))
        })
    }
}

impl Loader<'_, '_> {
    /// Takes a key that does not fit into a window.
    fn one(&self, name: &[u8], entry: Result<Entry, Fault>, place: &Place) {
        match entry.and_then(|entry| self.loading.one(entry, place)) {
            Ok(()) => self.loading.progress.loaded(1),
            Err(fault) => self.loading.fail(fault, place, Some(name)),
        }
    }
}

fn serve(loading: &Loading<'_>, taken: &Mutex<Receiver<Batch>>, done: &Sender<Batch>) {
    loop {
        let received = taken.lock().recv();
        let Ok(mut batch) = received else { return };
        loading.take(&mut batch);
        // Nobody wants it back at the end.
        let _ = done.send(batch);
    }
}

impl Sink for Loader<'_, '_> {
    const KEEPS_BITS: bool = true;

    fn spare(&mut self) -> Vec<u8> {
        if let Some((_, spare)) = &self.others {
            self.spare.extend(spare.try_iter());
        }
        let batch = self.spare.pop().unwrap_or_default();
        self.spare_keys.push(batch.keys);
        batch.buffer
    }

    fn retire(&mut self, buffer: Vec<u8>, _start: u64) -> Result<(), Fault> {
        if self.loading.stopped.load(Ordering::Relaxed) {
            return Err(Fault::Stopped);
        }
        let keys = std::mem::replace(&mut self.keys, self.spare_keys.pop().unwrap_or_default());
        let mut batch = Batch { buffer, keys };
        match &self.others {
            Some((full, _)) if !batch.keys.is_empty() => full.send(batch).map_err(|_| Fault::Stopped),
            _ => {
                self.loading.take(&mut batch);
                self.spare.push(batch);
                Ok(())
            }
        }
    }

    fn own(&mut self, _window: &[u8], at: usize, kind: u8, place: Place) -> Result<(), Fault> {
        self.keys.push(KeyAt { at: at as u32, kind, place });
        Ok(())
    }

    fn large(&mut self, name: &[u8], large: Large, place: Place) -> Result<(), Fault> {
        self.one(name, entry_of_large(name, large, place.life), &place);
        Ok(())
    }

    fn large_ring(&mut self, name: &[u8], large: LargeRing, place: Place) -> Result<(), Fault> {
        let mut ring = large.head.ring();
        ring.parts = large.parts.into();
        self.one(name, ring::entry_of(name, place.life, ring).map_err(Fault::from), &place);
        Ok(())
    }

    fn large_cells(&mut self, name: &[u8], large: LargeCells, place: Place) -> Result<(), Fault> {
        let LargeCells { head, arrays, spilled } = large;
        let built = head.filter(arrays, spilled).map(Built::Cells).map_err(Fault::from);
        let entry = built.and_then(|built| Ok(built_filter(name, place.life, built)?));
        self.one(name, entry, &place);
        Ok(())
    }

    fn profile(&mut self, record: &[u8]) {
        if let Some((prefix, profile)) = profile_of(record) {
            self.loading.keyspace.profiles().put(prefix, profile);
        }
    }

    fn expect(&mut self, db: u64, keys: u64) {
        if db < DATABASES as u64 {
            self.loading.keyspace.expect_keys(db as usize, keys);
        }
    }
}

/// The profile that a record sets, or takes away, with its prefix.
pub(super) fn profile_of(record: &[u8]) -> Option<(&[u8], Option<Profile>)> {
    let (record, _) = decode(record).ok()?;
    match record.change {
        Change::Effect(Effect::Profile { settings }) => Some((record.name, settings)),
        _ => None,
    }
}

fn entry_of_large(name: &[u8], large: Large, life: Option<u64>) -> Result<Entry, Fault> {
    let links = large.links.iter().zip(large.arrays).enumerate();
    let links = links.map(|(i, (info, bits))| Link::new(info.shape, info.items, bits).ok_or(ValueError::Link(i)));
    let links = links.collect::<Result<Vec<_>, _>>()?;
    let chain = ScalableBloom::from_links(large.options, large.growth, large.items, links);
    Ok(Entry::boxed(name, life, Value::Bloom(chain.ok_or(ValueError::Chain)?))?)
}
