//! Writing and syncing: what the log's thread does, and a connection that leads.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use parking_lot::MutexGuard;

use super::{BUFFER_BYTES, Control, LiveLog, OPEN, Order, SyncPolicy, WRITE_AT_BYTES};
use crate::persist::log::{LogWriter, WriteError};

/// Under `always` a sync waits for further clients for about the time that the last one took, within these bounds. For a
/// leader nobody waits longer than the second.
const LEAST_PATIENCE: Duration = Duration::from_micros(100);
const MOST_PATIENCE: Duration = Duration::from_millis(2);
/// A buffer of more bytes is given back after use.
const KEPT_BYTES: usize = 4 << 20;

/// What whoever writes and syncs has to hold.
pub(super) struct Pen {
    pub(super) writer: Option<LogWriter>,
    /// Bytes that a write was tried with, and that are to be tried again.
    held: Vec<u8>,
    next_sync: Instant,
    /// Not before this after a failure.
    not_before: Option<Instant>,
}

impl Pen {
    pub(super) fn new() -> Self {
        Self { writer: None, held: Vec::new(), next_sync: Instant::now(), not_before: None }
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
            let (due, mut pen) = self.wait();
            let mut committer = Committer { log: self, pen: &mut pen };
            let end = due.end;
            due.orders.into_iter().for_each(|order| {
                // What was committed before an order is written before it.
                committer.write();
                if committer.log.buffered() > 0 {
                    // What could not be written before was in front of it.
                    committer.write();
                }
                let tell = order(&mut committer.pen.writer);
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
                committer.sync(due.served);
            }
            if end {
                if let Some(writer) = committer.pen.writer.take()
                    && let Err(error) = writer.close()
                {
                    tracing::error!("the log could not be closed: {error}");
                }
                return;
            }
        }
    }

    /// A sync that began then has succeeded; so many had asked for it. The next one waits for them about as long as it took.
    fn was_synced(&self, begun: Instant, served: usize) {
        let now = Instant::now();
        let took = now - begun;
        self.syncs.fetch_add(1, Ordering::Relaxed);
        self.quick.store(took <= self.pace.quick, Ordering::Relaxed);
        let mut control = self.control.lock();
        // Before those who are served are woken: they would be counted twice.
        control.expected = served + control.arrived;
        control.gather_until = Some(now + took.clamp(LEAST_PATIENCE, MOST_PATIENCE));
        drop(control);
        let mut health = self.health.lock();
        (health.last_sync, health.last_sync_time) = (Some(now), took);
    }

    /// Wait until something is due.
    fn wait(&self) -> (Due, MutexGuard<'_, Pen>) {
        loop {
            let mut pen = self.pen.lock();
            let mut control = self.control.lock();
            self.dozes.store(false, Ordering::Relaxed);
            let (due, next) = Committer { log: self, pen: &mut pen }.look(&mut control);
            if due.write || due.sync || due.look || due.end || !due.orders.is_empty() {
                drop(control);
                return (due, pen);
            }
            drop(pen);
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
    pub(super) pen: &'l mut Pen,
}

impl Committer<'_> {
    /// Whether the file can be written now.
    pub(super) fn is_usable(&self, now: Instant) -> bool {
        self.is_sound() && self.pen.not_before.is_none_or(|time| now >= time)
    }

    fn is_sound(&self) -> bool {
        self.pen.writer.as_ref().is_some_and(|writer| !writer.has_failed())
    }

    /// What is due now, and when to look again if nothing is.
    fn look(&mut self, control: &mut Control) -> (Due, Option<Instant>) {
        let (log, now) = (self.log, Instant::now());
        let policy = log.policy();
        let strict = policy == SyncPolicy::Always;
        let asked = control.wanted > log.synced();
        // A leader that tarries is not waited for.
        let led_until = control.led.filter(|_| strict && asked).map(|leading| leading.since + MOST_PATIENCE);
        let wanted = asked && led_until.is_none_or(|until| until <= now);
        let usable = self.is_usable(now);
        let (since, bytes) = {
            let buffer = log.buffer.lock();
            (buffer.since, buffer.bytes.len())
        };
        // After a failure, what waits is tried as soon as anything is.
        let at_once = bytes >= WRITE_AT_BYTES || self.pen.not_before.is_some();
        let write_at = since.map(|since| if at_once { now } else { since + log.pace.write });
        let unsynced = self.pen.writer.as_ref().is_some_and(|writer| writer.synced() < writer.position());
        // Where syncs are quick, whoever comes first leads, and waits for the others himself.
        let may_gather = strict && control.led.is_none() && !log.quick.load(Ordering::Relaxed);
        control.gathers = may_gather && control.awaits_more(now);
        let gathered_at = control.gather_until.filter(|_| control.gathers);
        let sync_at = match policy {
            _ if wanted => gathered_at.or(Some(now)),
            SyncPolicy::Never => None,
            SyncPolicy::Always => (unsynced || since.is_some()).then_some(write_at.unwrap_or(now)),
            SyncPolicy::EverySecond => (unsynced || since.is_some()).then_some(self.pen.next_sync),
        };
        let is_due = |at: Option<Instant>| usable && at.is_some_and(|at| at <= now);
        let mut due = Due {
            served: 0,
            write: is_due(write_at) || (usable && !self.pen.held.is_empty()),
            sync: is_due(sync_at),
            look: std::mem::take(&mut control.look),
            end: control.end,
            orders: std::mem::take(&mut control.orders),
        };
        if due.sync {
            due.served = std::mem::take(&mut control.arrived);
            control.gathers = false;
        }
        let retry_at = self.pen.not_before.filter(|time| now < *time && self.is_sound());
        let next = if usable {
            write_at.into_iter().chain(sync_at).chain(led_until).chain(gathered_at).min()
        } else {
            retry_at
        };
        (due, next)
    }

    /// Follow what an order did with the files.
    fn take_over(&mut self) {
        self.log.has_file.store(self.pen.writer.is_some(), Ordering::Release);
        let Pen { writer, held, not_before, .. } = &mut *self.pen;
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
        if self.pen.writer.as_ref().is_none_or(LogWriter::has_failed) {
            return;
        }
        if self.pen.held.is_empty() {
            let mut buffer = self.log.buffer.lock();
            std::mem::swap(&mut self.pen.held, &mut buffer.bytes);
            let since = buffer.since.take();
            buffer.unsynced_since = buffer.unsynced_since.or(since);
        }
        let Pen { writer: Some(writer), held, .. } = &mut *self.pen else { return };
        match writer.append(held) {
            Ok(()) => {
                held.clear();
                held.shrink_to(KEPT_BYTES);
                if self.pen.not_before.is_some() {
                    self.recovered();
                }
                self.log.look_at_gate(&self.log.buffer.lock());
            }
            Err(error) => self.failed(&error),
        }
        self.log.held.store(self.pen.held.len(), Ordering::Relaxed);
    }

    /// Sync what is written; so many have asked for it.
    pub(super) fn sync(&mut self, served: usize) {
        let Pen { writer: Some(writer), held, next_sync, .. } = &mut *self.pen else { return };
        if writer.has_failed() {
            return;
        }
        if !held.is_empty() && self.log.policy() == SyncPolicy::Always {
            // What somebody waits for could not even be written.
            return;
        }
        let begun = Instant::now();
        *next_sync = begun + self.log.pace.sync;
        let has_news = writer.synced() < writer.position();
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
                if has_news {
                    self.log.was_synced(begun, served);
                }
                self.log.wake_waiting();
            }
            Err(error) => self.failed(&error),
        }
    }

    fn look_at_files(&mut self) {
        let Some(writer) = self.pen.writer.as_mut().filter(|writer| !writer.has_failed()) else { return };
        if let Err(error) = writer.is_in_place() {
            writer.give_up();
            self.failed(&error);
        }
    }

    fn failed(&mut self, error: &WriteError) {
        let first = self.pen.not_before.is_none();
        self.pen.not_before = Some(Instant::now() + self.log.pace.retry);
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
        self.pen.not_before = None;
        let mut health = self.log.health.lock();
        (health.error, health.needs_base) = (None, false);
        drop(health);
        self.log.set_gate(OPEN);
        tracing::info!("the append-only log is written again");
        self.log.wake_waiting();
    }
}
