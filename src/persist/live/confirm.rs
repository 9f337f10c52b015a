//! What a reply waits for, and how the one who waits first syncs for all.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Instant;

use super::committer::Committer;
use super::{LiveLog, Standing, SyncPolicy};

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

    /// Become the one who syncs, where a sync is quick and nobody else is about to. Let others have their turn first: what
    /// they commit by then shares the sync.
    #[must_use]
    pub fn lead(&self) -> Option<Lead<'_>> {
        if !self.quick.load(Ordering::Relaxed) || self.policy() != SyncPolicy::Always {
            return None;
        }
        let mut control = self.control.lock();
        let free = !control.led && !control.gathers;
        control.led |= free;
        free.then(|| Lead(self))
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
        let comes = control.led || (control.gathers && control.arrived < control.expected);
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
    /// Write and sync what was committed by now. If the thread works on the files just now, it sees to that.
    pub fn sync(self) {
        let log = self.0;
        if let Some(mut files) = log.files.try_lock() {
            let mut committer = Committer { log, files: &mut files };
            if committer.is_usable(Instant::now()) {
                committer.write();
                committer.sync();
            }
        }
    }
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        let mut control = self.0.control.lock();
        control.led = false;
        let left = control.wanted > self.0.synced();
        if !left {
            control.arrived = 0;
        }
        drop(control);
        if left {
            self.0.wake.notify_one();
        }
    }
}
