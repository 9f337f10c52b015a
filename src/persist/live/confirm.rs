//! What a reply waits for, and how the one who waits first syncs for all.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::thread;
use std::time::Instant;

use super::committer::Committer;
use super::{Leading, LiveLog, Standing, SyncPolicy, WRITE_AT_BYTES};

/// The log cannot say that a change is kept; why.
#[derive(Clone, Debug)]
pub struct Unconfirmed(pub String);

impl LiveLog {
    /// Wait until all that is committed now is synced, for replies to commands that ran since the log [stood](Self::standing)
    /// like this: if it was failing already and has been ever since, they have changed nothing.
    pub fn confirm(self: &Arc<Self>, since: Standing) -> Confirm {
        Confirm { log: self.clone(), position: self.position(), since: Some(since), asked: false }
    }

    /// Wait until all that is committed now is synced, whoever has changed it and when.
    pub fn confirm_all(self: &Arc<Self>) -> Confirm {
        Confirm { log: self.clone(), position: self.position(), since: None, asked: false }
    }

    /// Become the one who syncs, where a sync is quick and no other connection is about to. Others are to have their turn
    /// while it [waits](Lead::waits): what they commit by then shares the sync. It may come to nothing, so what is waited for
    /// has to be [confirmed](Self::confirm) all the same.
    #[must_use]
    pub fn lead(&self) -> Option<Lead<'_>> {
        let strict = self.policy() == SyncPolicy::Always;
        if !self.quick.load(Ordering::Relaxed) || !strict || self.standing().has_failed() {
            return None;
        }
        let mut control = self.control.lock();
        if control.led.is_some() || control.gathers {
            return None;
        }
        control.arrived += 1;
        control.led = Some(Leading { since: Instant::now(), thread: thread::current().id(), watched: false });
        Some(Lead(self))
    }
}

/// Ends when a position is synced, or when that cannot be said.
pub struct Confirm {
    log: Arc<LiveLog>,
    position: u64,
    /// How the log stood before what was changed; none if that does not count.
    since: Option<Standing>,
    asked: bool,
}

impl Confirm {
    fn outcome(&self) -> Option<Result<(), Unconfirmed>> {
        if self.log.synced() >= self.position || !self.log.is_on() {
            return Some(Ok(()));
        }
        let standing = self.log.standing();
        if !standing.has_failed() {
            return None;
        }
        if self.since == Some(standing) {
            return Some(Ok(()));
        }
        let error = self.log.health.lock().error.clone().unwrap_or_default();
        Some(Err(Unconfirmed(error)))
    }

    /// Ask for a sync, unless one is coming anyhow.
    fn ask(&mut self) {
        self.asked = true;
        let log = &self.log;
        let mut control = log.control.lock();
        control.wanted = control.wanted.max(self.position);
        control.arrived += 1;
        let comes = match &mut control.led {
            // Whether a leader at another worker tarries is looked after once.
            Some(leading) => leading.thread == thread::current().id() || std::mem::replace(&mut leading.watched, true),
            None => control.gathers && control.arrived < control.expected,
        };
        drop(control);
        if !comes || log.policy() != SyncPolicy::Always {
            log.wake.notify_one();
        }
    }
}

impl Future for Confirm {
    type Output = Result<(), Unconfirmed>;

    fn poll(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(outcome) = self.outcome() {
            return Poll::Ready(outcome);
        }
        self.log.waiting.lock().push((self.position, task.waker().clone()));
        if !self.asked {
            self.ask();
        }
        // The sync may have come in between.
        self.outcome().map_or(Poll::Pending, Poll::Ready)
    }
}

/// The task of a connection that syncs for all; see [`LiveLog::lead`].
pub struct Lead<'l>(&'l LiveLog);

impl Lead<'_> {
    /// Whether others are to have a further turn before the sync.
    #[must_use]
    pub fn waits(&self) -> bool {
        self.0.control.lock().awaits_more(Instant::now())
    }

    /// Write and sync what was committed by now, unless the thread has the pen, or there is so much that it is its turn.
    pub fn sync(self) {
        let log = self.0;
        let Some(mut pen) = log.pen.try_lock() else { return };
        let mut committer = Committer { log, pen: &mut pen };
        if committer.is_usable(Instant::now()) && log.buffer.lock().bytes.len() < WRITE_AT_BYTES {
            let served = std::mem::take(&mut log.control.lock().arrived);
            committer.write();
            committer.sync(served);
        }
    }
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        let mut control = self.0.control.lock();
        control.led = None;
        let left = control.wanted > self.0.synced();
        drop(control);
        // What failed is tried again by the thread.
        if left || self.0.standing().has_failed() {
            self.0.wake.notify_one();
        }
    }
}
