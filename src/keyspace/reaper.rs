//! Frees what is large off the request path.
//!
//! Giving a gigabyte back to the system, or walking the keys of a flushed database, takes longer than a request may. One
//! thread does it; it ends when its keyspace is dropped.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread;

use super::entry::{Entry, Footprint};
use super::figures::Figures;
use super::size_class::size_class;
use super::table::Table;
use crate::filters::ring::Part;

/// Values, and what rings drop at a time, of at least this many bytes are freed in the background.
const LARGE_BYTES: usize = 1 << 20;

/// What is freed by being dropped.
enum Garbage {
    Entry(Entry),
    Table(Table),
    Parts(Vec<Part>),
    /// Nothing that was counted.
    Aside(Box<dyn Send>),
}

impl Garbage {
    fn footprint(&self) -> Footprint {
        match self {
            Self::Entry(entry) => entry.as_ref().footprint(),
            Self::Table(table) => {
                let mut sum = Footprint { heap: table.allocated_bytes(), mapped: 0 };
                table.for_each(|entry| sum = sum + entry.footprint());
                sum
            }
            Self::Parts(parts) => footprint_of(parts),
            Self::Aside(_) => Footprint::default(),
        }
    }

    fn free(self, figures: &Figures) {
        if let Self::Aside(thing) = self {
            return drop(thing);
        }
        let footprint = self.footprint();
        drop(self);
        figures.garbage.subtract(footprint);
    }
}

fn footprint_of(parts: &[Part]) -> Footprint {
    Footprint { heap: parts.iter().map(|part| part.heap_bytes(size_class)).sum(), mapped: 0 }
}

/// The way to the freeing thread. What is on the way is counted as garbage.
pub(super) struct Reaper {
    sender: Option<Sender<Garbage>>,
    figures: Arc<Figures>,
}

impl Reaper {
    /// Start the thread. Without one (the system refuses) everything is freed where it is dropped.
    pub(super) fn start(figures: &Arc<Figures>) -> Self {
        let (sender, receiver) = channel::<Garbage>();
        let theirs = figures.clone();
        let free_all = move || receiver.into_iter().for_each(|garbage| garbage.free(&theirs));
        let thread = thread::Builder::new().name("seendb-free".into()).spawn(free_all);
        Self { sender: thread.ok().map(|_| sender), figures: figures.clone() }
    }

    /// Free an entry that was counted off.
    pub(super) fn free_entry(&self, entry: Entry) {
        let footprint = entry.as_ref().footprint();
        if footprint.bytes() >= LARGE_BYTES {
            self.figures.garbage.add(footprint);
            self.send(Garbage::Entry(entry));
        }
    }

    /// Free arrays that a ring no longer has; its own figures are without them.
    pub(super) fn free_parts(&self, parts: Vec<Part>) {
        let footprint = footprint_of(&parts);
        if footprint.bytes() >= LARGE_BYTES {
            self.figures.garbage.add(footprint);
            self.send(Garbage::Parts(parts));
        }
    }

    /// Something that the freeing thread gets when it is dropped.
    pub(super) fn aside<T: Send + 'static>(&self, value: T) -> Aside<T> {
        Aside { value: Some(value), sender: self.sender.clone() }
    }

    /// Free tables whose entries were counted as garbage.
    pub(super) fn free_tables(&self, tables: Vec<Table>) {
        tables.into_iter().for_each(|table| self.send(Garbage::Table(table)));
    }

    fn send(&self, garbage: Garbage) {
        let back = match &self.sender {
            Some(sender) => sender.send(garbage).err().map(|error| error.0),
            None => Some(garbage),
        };
        if let Some(garbage) = back {
            garbage.free(&self.figures);
        }
    }
}

/// Something large that a command has beside the keys: a copy of a ring, which may be the last that has its bits, or bytes on their
/// way. It is freed in the background.
pub struct Aside<T: Send + 'static> {
    /// There until it is taken out.
    value: Option<T>,
    sender: Option<Sender<Garbage>>,
}

impl<T: Send + 'static> Aside<T> {
    /// The thing itself, which is freed as everything else from now on.
    #[must_use]
    pub fn into_inner(mut self) -> T {
        self.value.take().expect("it is there until then")
    }
}

impl<T: Send + 'static> Deref for Aside<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.as_ref().expect("it is there until it is taken out")
    }
}

impl<T: Send + 'static> DerefMut for Aside<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.value.as_mut().expect("it is there until it is taken out")
    }
}

impl<T: Send + 'static> Drop for Aside<T> {
    fn drop(&mut self) {
        if let (Some(value), Some(sender)) = (self.value.take(), &self.sender) {
            // Without the thread it is freed here.
            let _freed = sender.send(Garbage::Aside(Box::new(value)));
        }
    }
}
