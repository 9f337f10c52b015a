//! Keys into a keyspace: one thread finds where they begin and end, the others make entries of them.
//!
//! The window itself goes from one to the other, with the places of the keys in it; nothing is copied but the part that reaches
//! beyond its end. Windows come back to be filled again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};

use parking_lot::Mutex;

use super::report::{Fault, LoadError, Loss, Losses, Progress};
use super::{Large, Place, Sink};
use crate::codec::bloom_value::{BloomValue, ValueError};
use crate::codec::rdb::{Reader, TYPE_MODULE_1};
use crate::codec::rdb_string::RdbString;
use crate::filters::scalable_bloom::{Link, ScalableBloom};
use crate::keyspace::Keyspace;
use crate::keyspace::bloom::filter_of_value;
use crate::keyspace::entry::{Entry, EntryRef, Value};

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
            let names: Vec<_> = name.iter().map(|name| (place.db, name.to_vec())).collect();
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
        let mut loaded = 0;
        let mut scratch = Vec::new();
        for key in batch.keys.drain(..) {
            if self.stopped.load(Ordering::Relaxed) {
                break;
            }
            let mut reader = Reader::new(&batch.buffer[key.at as usize..]);
            let name = RdbString::read(&mut reader).and_then(|name| name.bytes(&mut scratch));
            let name = match name {
                Ok(name) => name,
                Err(error) => {
                    self.fail(error.into(), &key.place, None);
                    continue;
                }
            };
            let entry = entry_of(name, key.kind, &key.place, &mut reader);
            match entry.map_err(Fault::from).and_then(|entry| self.insert(name, entry, &key.place)) {
                Ok(()) => loaded += 1,
                Err(fault) => self.fail(fault, &key.place, Some(name)),
            }
        }
        self.progress.loaded(loaded);
    }

    fn insert(&self, name: &[u8], entry: Entry, place: &Place) -> Result<(), Fault> {
        let db = place.db.and_then(|db| usize::try_from(db).ok()).unwrap_or(0);
        let now = self.keyspace.stamp_now();
        let inserted = self.keyspace.write(db, name, |cell| {
            if cell.get().is_some() {
                return false;
            }
            cell.insert(entry);
            if let (Some(entry), true) = (cell.get(), place.idle.is_some() || place.uses.is_some()) {
                carry_over(entry, place, now);
            }
            true
        });
        if matches!(inserted, Ok(true)) { Ok(()) } else { Err(Fault::Form("a key that was there before")) }
    }
}

fn entry_of(name: &[u8], kind: u8, place: &Place, reader: &mut Reader<'_>) -> Result<Entry, ValueError> {
    let value = if kind == TYPE_MODULE_1 { BloomValue::read_plain(reader)? } else { BloomValue::read(reader)? };
    filter_of_value(name, place.life, value)
}

/// How the key was used.
fn carry_over(entry: EntryRef<'_>, place: &Place, now: u32) {
    if let Some(uses) = place.uses {
        entry.set_uses(uses);
    }
    if let Some(seconds) = place.idle {
        entry.set_idle(seconds, now);
    }
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

    fn bloom(&mut self, _window: &[u8], at: usize, kind: u8, place: Place) -> Result<(), Fault> {
        self.keys.push(KeyAt { at: at as u32, kind, place });
        Ok(())
    }

    fn large(&mut self, name: &[u8], large: Large, place: Place) -> Result<(), Fault> {
        let entry = entry_of_large(name, large, place.life);
        if let Err(fault) = entry.and_then(|entry| self.loading.insert(name, entry, &place)) {
            self.loading.fail(fault, &place, Some(name));
        } else {
            self.loading.progress.loaded(1);
        }
        Ok(())
    }
}

fn entry_of_large(name: &[u8], large: Large, life: Option<u64>) -> Result<Entry, Fault> {
    let links = large.links.iter().zip(large.arrays).enumerate();
    let links = links.map(|(i, (info, bits))| Link::new(info.shape, info.items, bits).ok_or(ValueError::Link(i)));
    let links = links.collect::<Result<Vec<_>, _>>()?;
    let chain = ScalableBloom::from_links(large.options, large.growth, large.items, links);
    Ok(Entry::boxed(name, life, Value::Bloom(chain.ok_or(ValueError::Chain)?))?)
}
