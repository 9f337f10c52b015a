//! Writing and syncing: what the log's thread does, and a connection that leads.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use parking_lot::MutexGuard;

use super::{BUFFER_BYTES, Control, LiveLog, OPEN, Order, SyncPolicy, WRITE_AT_BYTES};
use crate::persist::log::{LogWriter, WriteError};

/// Under `always` a sync waits for further clients for about the time that the last one took, within these bounds.
const LEAST_PATIENCE: Duration = Duration::from_micros(100);
const MOST_PATIENCE: Duration = Duration::from_millis(2);
/// A buffer of more bytes is given back after use.
const KEPT_BYTES: usize = 4 << 20;

/// What whoever writes and syncs has to hold.
pub(super) struct Files {
    pub(super) writer: Option<LogWriter>,
    /// Bytes that a write was tried with, and that are to be tried again.
    held: Vec<u8>,
    next_sync: Instant,
    /// Not before this after a failure.
    not_before: Option<Instant>,
    /// The next sync waits for further clients until then.
    gather_until: Option<Instant>,
}

impl Files {
    pub(super) fn new() -> Self {
        Self { writer: None, held: Vec::new(), next_sync: Instant::now(), not_before: None, gather_until: None }
    }
}

/// What the thread does next.
struct Due {
    orders: Vec<Order>,
    write: bool,
    sync: bool,
    /// How many wait for the sync.
    served: usize,
    look: bool,
    end: bool,
}

impl LiveLog {
    /// What the thread does.
    pub(super) fn run(&self) {
        loop {
            let (due, mut files) = self.wait();
            let mut committer = Committer { log: self, files: &mut files };
            let end = due.end;
            due.orders.into_iter().for_each(|order| {
                // What was committed before an order is written before it.
                committer.write();
                if committer.log.buffered() > 0 {
                    // What could not be written before was in front of it.
                    committer.write();
                }
                let tell = order(&mut committer.files.writer);
                committer.take_over();
                tell();
            });
            if due.look {
                committer.look_at_files();
            }
            if due.write || due.sync || end {
                committer.write();
            }
            if due.sync || end {
                committer.sync();
                committer.gather(due.served);
            }
            if end {
                if let Some(writer) = committer.files.writer.take()
                    && let Err(error) = writer.close()
                {
                    tracing::error!("the log could not be closed: {error}");
                }
                return;
            }
        }
    }

    /// Wait until something is due.
    fn wait(&self) -> (Due, MutexGuard<'_, Files>) {
        loop {
            let mut files = self.files.lock();
            let mut control = self.control.lock();
            self.dozes.store(false, Ordering::Relaxed);
            let (due, next) = Committer { log: self, files: &mut files }.look(&mut control);
            if due.write || due.sync || due.look || due.end || !due.orders.is_empty() {
                drop(control);
                return (due, files);
            }
            drop(files);
            match next {
                Some(at) => {
                    let soon = at.saturating_duration_since(Instant::now()) <= self.pace.write;
                    self.dozes.store(soon, Ordering::Relaxed);
                    let _timed_out = self.wake.wait_until(&mut control, at);
                }
                None => self.wake.wait(&mut control),
            }
        }
    }
}

/// Who writes and syncs: the log's thread, or a connection that leads.
pub(super) struct Committer<'l> {
    pub(super) log: &'l LiveLog,
    pub(super) files: &'l mut Files,
}

impl Committer<'_> {
    /// Whether the file can be written now.
    pub(super) fn is_usable(&self, now: Instant) -> bool {
        self.is_sound() && self.files.not_before.is_none_or(|time| now >= time)
    }

    fn is_sound(&self) -> bool {
        self.files.writer.as_ref().is_some_and(|writer| !writer.has_failed())
    }

    /// What is due now, and when to look again if nothing is.
    fn look(&mut self, control: &mut Control) -> (Due, Option<Instant>) {
        let (log, now) = (self.log, Instant::now());
        let (wanted, policy) = (control.wanted > log.synced() && !control.led, log.policy());
        let usable = self.is_usable(now);
        let (since, bytes) = {
            let buffer = log.buffer.lock();
            (buffer.since, buffer.bytes.len())
        };
        let write_at = since.map(|since| if bytes >= WRITE_AT_BYTES { now } else { since + log.pace.write });
        let unsynced = self.files.writer.as_ref().is_some_and(|writer| writer.synced() < writer.position());
        if !wanted && !control.led && !control.gathers {
            control.arrived = 0;
        }
        let gathered_at = self.gathered_at(control, wanted, now).filter(|_| policy == SyncPolicy::Always);
        let sync_at = match policy {
            _ if gathered_at.is_some() => gathered_at,
            _ if wanted => Some(now),
            SyncPolicy::Never => None,
            SyncPolicy::Always => (unsynced || since.is_some()).then_some(write_at.unwrap_or(now)),
            SyncPolicy::EverySecond => (unsynced || since.is_some()).then_some(self.files.next_sync),
        };
        let is_due = |at: Option<Instant>| usable && at.is_some_and(|at| at <= now);
        let mut due = Due {
            served: 0,
            write: is_due(write_at) || (usable && !self.files.held.is_empty()),
            sync: is_due(sync_at),
            look: std::mem::take(&mut control.look),
            end: control.end,
            orders: std::mem::take(&mut control.orders),
        };
        if due.sync {
            due.served = std::mem::take(&mut control.arrived);
            (self.files.gather_until, control.gathers) = (None, false);
        }
        let retry_at = self.files.not_before.filter(|time| now < *time && self.is_sound());
        let next = if usable { write_at.into_iter().chain(sync_at).min() } else { retry_at };
        (due, next)
    }

    /// When to look again whether a sync that somebody waits for is to begin; none if nobody does. Clients that were served by
    /// the last one mostly come again within about the time that it took; without a wait for them two halves of the clients
    /// would take turns, and each reply would wait for two syncs.
    fn gathered_at(&mut self, control: &mut Control, wanted: bool, now: Instant) -> Option<Instant> {
        let missing = control.arrived < control.expected;
        self.files.gather_until = self.files.gather_until.filter(|until| missing && now < *until);
        control.gathers = self.files.gather_until.is_some();
        self.files.gather_until.or(wanted.then_some(now))
    }

    /// Have the next sync wait for the clients that the last one served; where syncs are quick, one of them leads it.
    fn gather(&mut self, served: usize) {
        if self.log.quick.load(Ordering::Relaxed) {
            return;
        }
        let patience = self.log.health.lock().last_sync_time.clamp(LEAST_PATIENCE, MOST_PATIENCE);
        let mut control = self.log.control.lock();
        control.expected = served + control.arrived;
        control.gathers = true;
        self.files.gather_until = Some(Instant::now() + patience);
    }

    /// Follow what an order did with the files.
    fn take_over(&mut self) {
        self.log.has_file.store(self.files.writer.is_some(), Ordering::Release);
        let Files { writer, held, not_before, .. } = &mut *self.files;
        let Some(writer) = writer else {
            (*held, *not_before) = (Vec::new(), None);
            return;
        };
        let mut buffer = self.log.buffer.lock();
        buffer.limit = BUFFER_BYTES;
        if !writer.has_failed() && self.log.health.lock().needs_base {
            // The base has all that was held.
            *held = Vec::new();
            self.log.synced.fetch_max(writer.synced(), Ordering::AcqRel);
            drop(buffer);
            self.recovered();
            return;
        }
        self.log.look_at_gate(&buffer);
    }

    /// Write what is in the buffer.
    pub(super) fn write(&mut self) {
        if self.files.writer.as_ref().is_none_or(LogWriter::has_failed) {
            return;
        }
        if self.files.held.is_empty() {
            let mut buffer = self.log.buffer.lock();
            std::mem::swap(&mut self.files.held, &mut buffer.bytes);
            let since = buffer.since.take();
            buffer.unsynced_since = buffer.unsynced_since.or(since);
        }
        let Files { writer: Some(writer), held, .. } = &mut *self.files else { return };
        match writer.append(held) {
            Ok(()) => {
                held.clear();
                held.shrink_to(KEPT_BYTES);
                if self.files.not_before.is_some() {
                    self.recovered();
                }
                self.log.look_at_gate(&self.log.buffer.lock());
            }
            Err(error) => self.failed(&error),
        }
        self.log.held.store(self.files.held.len(), Ordering::Relaxed);
    }

    pub(super) fn sync(&mut self) {
        let Files { writer: Some(writer), held, next_sync, .. } = &mut *self.files else { return };
        if writer.has_failed() {
            return;
        }
        if !held.is_empty() && self.log.policy() == SyncPolicy::Always {
            // What somebody waits for could not even be written.
            return;
        }
        let begun = Instant::now();
        *next_sync = begun + self.log.pace.sync;
        match writer.sync() {
            Ok(()) => {
                let synced = writer.synced();
                let mut buffer = self.log.buffer.lock();
                if held.is_empty() {
                    buffer.unsynced_since = None;
                }
                self.log.look_at_gate(&buffer);
                drop(buffer);
                self.log.synced.fetch_max(synced, Ordering::AcqRel);
                self.log.syncs.fetch_add(1, Ordering::Relaxed);
                let (done, took) = (Instant::now(), begun.elapsed());
                self.log.quick.store(took <= self.log.pace.quick, Ordering::Relaxed);
                let mut health = self.log.health.lock();
                (health.last_sync, health.last_sync_time) = (Some(done), took);
                drop(health);
                self.log.wake_waiting();
            }
            Err(error) => self.failed(&error),
        }
    }

    fn look_at_files(&mut self) {
        let Some(writer) = self.files.writer.as_mut().filter(|writer| !writer.has_failed()) else { return };
        if let Err(error) = writer.is_in_place() {
            writer.give_up();
            self.failed(&error);
        }
    }

    fn failed(&mut self, error: &WriteError) {
        let first = self.files.not_before.is_none();
        self.files.not_before = Some(Instant::now() + self.log.pace.retry);
        let needs_base = !matches!(error, WriteError::Again(_));
        let mut health = self.log.health.lock();
        let news = first || needs_base != health.needs_base;
        health.error = Some(error.to_string());
        health.needs_base = needs_base;
        drop(health);
        if news {
            tracing::error!("the append-only log cannot be written, changes are refused: {error}");
        }
        self.log.shut_gate();
        self.log.wake_waiting();
    }

    fn recovered(&mut self) {
        self.files.not_before = None;
        let mut health = self.log.health.lock();
        (health.error, health.needs_base) = (None, false);
        drop(health);
        self.log.set_gate(OPEN);
        tracing::info!("the append-only log is written again");
        self.log.wake_waiting();
    }
}
