//! Frees what is large off the request path.
//!
//! Giving a gigabyte back to the system, or walking the keys of a flushed database, takes longer than a request may. One
//! thread does it; it ends when its keyspace is dropped.

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread;

use super::entry::{Entry, Footprint};
use super::figures::Figures;
use super::table::Table;

/// Values of at least this many bytes are freed in the background.
const LARGE_BYTES: usize = 1 << 20;

/// What is freed by being dropped.
enum Garbage {
    Entry(Entry),
    Table(Table),
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
        }
    }

    fn free(self, figures: &Figures) {
        let footprint = self.footprint();
        drop(self);
        figures.garbage.subtract(footprint);
    }
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
