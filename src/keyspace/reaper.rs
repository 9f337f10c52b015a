//! Frees what is large off the request path.
//!
//! Giving a gigabyte back to the system, or walking the keys of a flushed database, takes longer than a request may. One
//! thread does it; it ends when its keyspace is dropped.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, channel};
use std::thread;

use super::entry::Entry;
use super::shard::Figures;
use super::table::Table;

/// Values of at least this many bytes are freed in the background.
const LARGE_BYTES: usize = 1 << 20;

/// What is freed by being dropped.
type Garbage = Box<dyn Send>;

/// A table that was flushed.
struct Flushed {
    table: Table,
    figures: Arc<Figures>,
}

impl Drop for Flushed {
    fn drop(&mut self) {
        let mut bytes = 0;
        self.table.for_each(|entry| bytes += entry.allocated_bytes() as i64);
        drop(std::mem::take(&mut self.table));
        self.figures.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// The way to the freeing thread.
pub(super) struct Reaper {
    sender: Option<Sender<Garbage>>,
}

impl Reaper {
    /// Start the thread. Without one (the system refuses) everything is freed where it is dropped.
    pub(super) fn start() -> Self {
        let (sender, receiver) = channel::<Garbage>();
        let thread =
            thread::Builder::new().name("seendb-free".into()).spawn(move || receiver.into_iter().for_each(drop));
        Self { sender: thread.ok().map(|_| sender) }
    }

    pub(super) fn free_entry(&self, entry: Entry) {
        if entry.allocated_bytes() >= LARGE_BYTES {
            self.send(Box::new(entry));
        }
    }

    /// Free tables; the entries in them are counted off as they go.
    pub(super) fn free_tables(&self, tables: Vec<Table>, figures: Arc<Figures>) {
        tables.into_iter().for_each(|table| self.send(Box::new(Flushed { table, figures: figures.clone() })));
    }

    fn send(&self, garbage: Garbage) {
        if let Some(sender) = &self.sender {
            // A thread that is gone hands the garbage back in the error, which frees it here.
            drop(sender.send(garbage));
        }
    }
}
