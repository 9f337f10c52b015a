//! Doing a log again on all cores.
//!
//! Changes of different keys do not depend on each other, so each key's are done by one thread, in their order. What concerns
//! several keys (a copy, a new name, a flush) is done when all before it are done, and before all that follow.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread::{Scope, ScopedJoinHandle};

use super::record::{Change, Malformed, Record, decode, for_each_with_bytes};
use super::replay::{ReplayError, apply};
use crate::keyspace::Keyspace;
use crate::keyspace::effect::Effect;

/// So many bytes of records are handed to a thread at once.
const PIECE_BYTES: usize = 64 << 10;
/// So many pieces may wait for a thread.
const PIECES_WAITING: usize = 8;

/// Records were not done again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotRedone {
    /// They are no records.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// They do not fit what is there.
    #[error(transparent)]
    Replay(#[from] ReplayError),
}

/// Threads that do records again, each those of its keys.
pub struct Redo<'scope, 'env> {
    keyspace: &'env Keyspace,
    failed: &'env Failed,
    lanes: Vec<Lane<'scope>>,
}

/// The first failure of all threads.
#[derive(Debug, Default)]
pub struct Failed {
    first: Mutex<Option<NotRedone>>,
    /// Keys are missing, so records that speak of them are stepped over, and counted.
    lenient: bool,
    unfitting: AtomicU64,
}

impl Failed {
    /// For a log whose base was not loaded as a whole: what does not fit what is there is stepped over.
    #[must_use]
    pub fn lenient() -> Self {
        Self { lenient: true, ..Self::default() }
    }

    /// Records that were stepped over.
    #[must_use]
    pub fn unfitting(&self) -> u64 {
        self.unfitting.load(Ordering::Relaxed)
    }

    fn note(&self, error: NotRedone) {
        self.first.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }

    fn outcome(&self) -> Result<(), NotRedone> {
        self.first.lock().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
    }
}

struct Lane<'scope> {
    /// What is gathered for the thread.
    records: Vec<u8>,
    work: SyncSender<Piece>,
    _thread: ScopedJoinHandle<'scope, ()>,
}

enum Piece {
    Records(Vec<u8>),
    /// Tell that all before is done.
    Tell(SyncSender<()>),
}

impl<'scope, 'env> Redo<'scope, 'env> {
    /// As many threads as that; with one, and none at all, everything is done where it is given.
    pub fn new(
        scope: &'scope Scope<'scope, 'env>,
        threads: usize,
        keyspace: &'env Keyspace,
        failed: &'env Failed,
    ) -> Self {
        let lane = |_: usize| {
            let (work, receiver) = sync_channel(PIECES_WAITING);
            let thread = scope.spawn(move || serve(&receiver, keyspace, failed));
            Lane { records: Vec::new(), work, _thread: thread }
        };
        let lanes = if threads > 1 { (0..threads).map(lane).collect() } else { Vec::new() };
        Self { keyspace, failed, lanes }
    }

    /// Do these records again, or begin to. Returns how many they are.
    ///
    /// # Errors
    /// [`NotRedone`] for these or for earlier ones.
    pub fn take(&mut self, records: &[u8]) -> Result<u64, NotRedone> {
        let mut count = 0;
        for_each_with_bytes(records, |record, bytes| {
            count += 1;
            match self.lane_of(record) {
                None => {
                    self.finish()?;
                    Ok(redo(self.keyspace, record, self.failed)?)
                }
                Some(lane) => self.hand(lane, bytes),
            }
        })?;
        Ok(count)
    }

    /// Wait until all is done.
    ///
    /// # Errors
    /// [`NotRedone`].
    pub fn finish(&mut self) -> Result<(), NotRedone> {
        let mut waited_for = Vec::new();
        for lane in 0..self.lanes.len() {
            self.send(lane)?;
            let (tell, told) = sync_channel(1);
            self.lanes[lane].work.send(Piece::Tell(tell)).map_err(|_| ReplayError::Unfitting)?;
            waited_for.push(told);
        }
        for told in waited_for {
            told.recv().map_err(|_| ReplayError::Unfitting)?;
        }
        self.failed.outcome()
    }

    /// The thread that does a record; none if it concerns more than its key, or if there are no threads.
    fn lane_of(&self, record: &Record<'_>) -> Option<usize> {
        let several = matches!(
            record.change,
            Change::Effect(
                Effect::Renamed { .. }
                    | Effect::Copied { .. }
                    | Effect::Moved { .. }
                    | Effect::Flushed { .. }
                    | Effect::Swapped { .. }
            )
        );
        if several || self.lanes.is_empty() {
            return None;
        }
        // Any function of the name that spreads.
        let sum =
            record.name.iter().fold(record.db as u32, |sum, byte| sum.wrapping_mul(31).wrapping_add((*byte).into()));
        Some((sum.wrapping_mul(0x9e37_79b1) >> 16) as usize % self.lanes.len())
    }

    fn hand(&mut self, lane: usize, record: &[u8]) -> Result<(), NotRedone> {
        self.lanes[lane].records.extend_from_slice(record);
        if self.lanes[lane].records.len() >= PIECE_BYTES { self.send(lane) } else { Ok(()) }
    }

    fn send(&mut self, lane: usize) -> Result<(), NotRedone> {
        let Lane { records, work, .. } = &mut self.lanes[lane];
        if !records.is_empty() {
            let piece = Piece::Records(std::mem::replace(records, Vec::with_capacity(PIECE_BYTES)));
            work.send(piece).map_err(|_| ReplayError::Unfitting)?;
        }
        self.failed.outcome()
    }
}

fn serve(work: &Receiver<Piece>, keyspace: &Keyspace, failed: &Failed) {
    for piece in work {
        match piece {
            Piece::Tell(tell) => drop(tell.send(())),
            Piece::Records(records) => {
                if let Err(error) = redo_all(keyspace, &records, failed) {
                    failed.note(error);
                }
            }
        }
    }
}

fn redo_all(keyspace: &Keyspace, records: &[u8], failed: &Failed) -> Result<(), NotRedone> {
    let mut rest = records;
    while !rest.is_empty() {
        let (record, after) = decode(rest)?;
        redo(keyspace, &record, failed)?;
        rest = after;
    }
    Ok(())
}

fn redo(keyspace: &Keyspace, record: &Record<'_>, failed: &Failed) -> Result<(), ReplayError> {
    match record.change.with(|effect| apply(keyspace, record.db, record.name, effect)) {
        Err(ReplayError::Unfitting) if failed.lenient => {
            failed.unfitting.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }
        outcome => outcome,
    }
}
