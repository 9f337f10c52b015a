//! The log while the server runs: effects get their positions in memory, and one thread writes and syncs them.
//!
//! # Positions
//!
//! [`Journal::commit`] runs under the lock of what was changed. It appends the records to a buffer, and where they end is their
//! *position*. So the order in the log is that of the changes of each key. The thread takes the whole buffer, appends it to the
//! file as one batch and syncs; meanwhile the next batch gathers. That is all there is to group commit: the slower the disk, the
//! larger the batches.
//!
//! # What a reply waits for
//!
//! Under `always` a connection that has run a batch of commands, reads too, waits until all that was committed by then is synced
//! ([`LiveLog::confirm`]): what it answers may rest on any of that.
//!
//! # What can go wrong
//!
//! | what | then |
//! | --- | --- |
//! | the disk is slow | under `everysec`, once the oldest change is unsynced for [`Pace::most_at_risk`], and whenever more than the buffer's limit waits, those who want to change something wait too; nobody else does |
//! | a write fails (disk full) | changes are refused; it is tried again ten times a second, and nothing is lost |
//! | a sync fails | changes are refused, until a new base is on disk: what the system had in its memory may be lost, and it would not say so again |
//!
//! Whoever waits for a position when that happens is told so: his change may or may not be kept.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::log::{LogWriter, WriteError};
use super::record::{stage, suspend, unit, with_staged};
use crate::keyspace::effect::{Effect, Group, Journal};
use crate::keyspace::latch::{Latch, Wait};

/// When the log is synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncPolicy {
    /// Before any reply.
    Always = 0,
    /// Each second.
    EverySecond = 1,
    /// When the system likes.
    Never = 2,
}

/// When the log's thread does what; tests choose shorter times.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// What was committed is written at the latest after this time, so that the end of the process costs no more.
    pub write: Duration,
    /// Under `everysec` a sync begins so long after the one before began.
    pub sync: Duration,
    /// A write that failed is tried again after this time.
    pub retry: Duration,
    /// The oldest change that is not synced is at most so old under `everysec`, or further changes wait.
    pub most_at_risk: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            write: Duration::from_millis(50),
            sync: Duration::from_secs(1),
            retry: Duration::from_millis(100),
            most_at_risk: Duration::from_millis(1800),
        }
    }
}

/// This many bytes are written at once.
const WRITE_AT_BYTES: usize = 1 << 20;
/// More than this waits for the disk only if a single record is larger.
const BUFFER_BYTES: usize = 64 << 20;
/// The same while there is no file yet: all changes since the cut of the first base wait.
const BUFFER_BYTES_WITHOUT_FILE: usize = 512 << 20;
/// Under `always` a sync waits for further clients for about the time that the last one took, within these bounds.
const LEAST_PATIENCE: Duration = Duration::from_micros(100);
const MOST_PATIENCE: Duration = Duration::from_millis(2);
/// A buffer of more bytes is given back after use.
const KEPT_BYTES: usize = 4 << 20;

/// Whether changes may be made now.
pub enum Gate {
    /// They may.
    Open,
    /// Not yet.
    Wait(Wait),
    /// The log cannot be written: why.
    Refused(String),
}

const OPEN: u64 = 0;
const FULL: u64 = 1;
const FAILED: u64 = 2;

/// How the log stands at a moment: in the two lowest bits the gate (open, full or failed), above them how often
/// writing or syncing began to fail. Both are one number, so that nobody sees the one without the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing(u64);

impl Standing {
    const GATE: u64 = 3;
    const FAILURE: u64 = 4;

    fn gate(self) -> u64 {
        self.0 & Self::GATE
    }

    /// Whether changes are refused.
    #[must_use]
    pub fn has_failed(self) -> bool {
        self.gate() == FAILED
    }

    fn with_gate(self, gate: u64) -> Self {
        Self(self.0 & !Self::GATE | gate)
    }
}

/// The log while the server runs. Switched off, it does nothing.
///
/// Locks are taken in the order `control`, `buffer`, `health`; `waiting` and `latch` are the last.
pub struct LiveLog {
    /// Replies wait for it, and changes are refused when it fails.
    on: AtomicBool,
    /// Changes are recorded. Switched under the locks of all keys, so that no group is recorded by half.
    records: AtomicBool,
    /// There is a file to write to: only from then on is anything promised.
    has_file: AtomicBool,
    policy: AtomicU8,
    pace: Pace,
    standing: AtomicU64,
    /// Where the last record ends. It never goes back, not even when another log is begun: whoever still waits for a
    /// position of the one before does not wait for one that is far away in this one.
    position: AtomicU64,
    /// All before this is safe.
    synced: AtomicU64,
    syncs: AtomicU64,
    /// Bytes that a write was tried with in vain.
    held: AtomicUsize,
    buffer: Mutex<Buffer>,
    control: Mutex<Control>,
    wake: Condvar,
    waiting: Mutex<Vec<(u64, Waker)>>,
    /// Who waits for the gate waits for this.
    latch: Mutex<Arc<Latch>>,
    health: Mutex<Health>,
}

#[derive(Default)]
struct Buffer {
    bytes: Vec<u8>,
    /// When the first of them came.
    since: Option<Instant>,
    /// When the oldest came of those that are written and not synced.
    unsynced_since: Option<Instant>,
    limit: usize,
}

#[derive(Default)]
struct Control {
    /// Somebody wants everything up to here synced at once.
    wanted: u64,
    /// How many have come to wait since the last sync began.
    arrived: usize,
    /// How many may come in all: those that the last sync served, and those that came meanwhile.
    expected: usize,
    /// The thread waits for these for a while, and wakes by itself.
    gathers: bool,
    orders: Vec<Order>,
    end: bool,
}

type Order = Box<dyn FnOnce(&mut Option<LogWriter>) + Send>;

/// How the log is.
#[derive(Clone, Debug, Default)]
pub struct Health {
    /// Why the last write or sync failed; none if it did not.
    pub error: Option<String>,
    /// A sync failed: nothing helps but a new base.
    pub needs_base: bool,
    /// When the last sync that succeeded was done.
    pub last_sync: Option<Instant>,
    /// How long it took.
    pub last_sync_time: Duration,
}

/// The log cannot say that a change is kept; why.
#[derive(Clone, Debug)]
pub struct Unconfirmed(pub String);

impl LiveLog {
    /// A log that is switched off, and its thread.
    ///
    /// # Errors
    /// Those of the system, which gives no thread.
    pub fn start() -> std::io::Result<Arc<Self>> {
        Self::start_with(Pace::default())
    }

    /// The same at this pace.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_with(pace: Pace) -> std::io::Result<Arc<Self>> {
        let log = Arc::new(Self {
            on: AtomicBool::new(false),
            records: AtomicBool::new(false),
            has_file: AtomicBool::new(false),
            policy: AtomicU8::new(SyncPolicy::EverySecond as u8),
            pace,
            standing: AtomicU64::new(OPEN),
            position: AtomicU64::new(0),
            synced: AtomicU64::new(0),
            syncs: AtomicU64::new(0),
            held: AtomicUsize::new(0),
            buffer: Mutex::new(Buffer { limit: BUFFER_BYTES, ..Buffer::default() }),
            control: Mutex::default(),
            wake: Condvar::new(),
            waiting: Mutex::default(),
            latch: Mutex::default(),
            health: Mutex::default(),
        });
        let own = log.clone();
        thread::Builder::new().name("seendb-log".into()).spawn(move || Committer::new(own).run())?;
        Ok(log)
    }

    /// Whether changes are logged.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    /// When the log is synced.
    #[must_use]
    pub fn policy(&self) -> SyncPolicy {
        match self.policy.load(Ordering::Relaxed) {
            0 => SyncPolicy::Always,
            1 => SyncPolicy::EverySecond,
            _ => SyncPolicy::Never,
        }
    }

    /// Choose when the log is synced.
    pub fn set_policy(&self, policy: SyncPolicy) {
        self.policy.store(policy as u8, Ordering::Relaxed);
        // Under the lock, or the thread misses it between its look and its sleep.
        let _control = self.control.lock();
        self.wake.notify_one();
    }

    /// Where the last record ends.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.position.load(Ordering::Acquire)
    }

    /// All before this position is safe.
    #[must_use]
    pub fn synced(&self) -> u64 {
        self.synced.load(Ordering::Acquire)
    }

    /// How the log stands now, to be compared with later by [`confirm`](Self::confirm).
    #[must_use]
    pub fn standing(&self) -> Standing {
        Standing(self.standing.load(Ordering::Acquire))
    }

    /// Syncs so far.
    #[must_use]
    pub fn syncs(&self) -> u64 {
        self.syncs.load(Ordering::Relaxed)
    }

    /// How the log is.
    #[must_use]
    pub fn health(&self) -> Health {
        self.health.lock().clone()
    }

    /// Bytes that wait to be written.
    #[must_use]
    pub fn buffered(&self) -> usize {
        self.buffer.lock().bytes.len() + self.held.load(Ordering::Relaxed)
    }

    /// How old the oldest change is that is not synced.
    #[must_use]
    pub fn at_risk(&self) -> Duration {
        self.buffer.lock().oldest().map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Begin to log, at this position, which is not before that of an earlier log: under the locks of the cut of a first base,
    /// or before anybody changes anything. Records are kept in memory until there is a [writer](Self::with_writer).
    pub fn switch_on(&self, position: u64) {
        let mut buffer = self.buffer.lock();
        *buffer = Buffer { limit: BUFFER_BYTES_WITHOUT_FILE, ..Buffer::default() };
        self.position.store(position, Ordering::Release);
        self.synced.store(position, Ordering::Release);
        self.on.store(true, Ordering::Release);
        self.records.store(true, Ordering::Release);
    }

    /// Record nothing any more: the first half of switching off, under the locks of all keys. What was recorded is still
    /// written, and waited for.
    pub fn stop_recording(&self) {
        self.records.store(false, Ordering::Release);
    }

    /// The second half, by the thread that writes: what waits is told that all is well, since nobody asks for a log now.
    pub fn switch_off(&self) {
        self.records.store(false, Ordering::Release);
        self.on.store(false, Ordering::Release);
        self.has_file.store(false, Ordering::Release);
        let mut buffer = self.buffer.lock();
        *buffer = Buffer { limit: BUFFER_BYTES, ..Buffer::default() };
        self.synced.store(self.position(), Ordering::Release);
        drop(buffer);
        *self.health.lock() = Health::default();
        self.set_gate(OPEN);
        self.wake_waiting();
    }

    /// The position of the cut of a base: all that is recorded is before it; and whether the log needs that base. Called under
    /// the locks of the cut. After a failed sync nothing from before it will be written any more: the base has it.
    #[must_use]
    pub fn cut(&self) -> (u64, bool) {
        let mut buffer = self.buffer.lock();
        let needed = self.health.lock().needs_base;
        if needed {
            buffer.bytes.clear();
            (buffer.since, buffer.unsynced_since) = (None, None);
        }
        (self.position(), needed)
    }

    /// Work on the files, on the thread that writes them, and wait for it; `None` if that thread has ended. There is no writer
    /// while the log is off.
    pub fn with_writer<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Option<LogWriter>) -> R + Send + 'static,
    ) -> Option<R> {
        let (sender, receiver) = std::sync::mpsc::sync_channel(1);
        let order: Order = Box::new(move |writer| drop(sender.send(work(writer))));
        let mut control = self.control.lock();
        if control.end {
            return None;
        }
        control.orders.push(order);
        drop(control);
        self.wake.notify_one();
        receiver.recv().ok()
    }

    /// Write what is there, sync it, and end the thread.
    pub fn end(&self) {
        self.control.lock().end = true;
        self.wake.notify_one();
    }

    /// Whether changes may be made now.
    #[must_use]
    pub fn gate(&self) -> Gate {
        match self.standing().gate() {
            OPEN => Gate::Open,
            FULL => {
                let latch = self.latch.lock().clone();
                // Asked again: a latch that was taken after the gate was opened would never be released.
                if self.standing().gate() == FULL { Gate::Wait(Wait::new(latch)) } else { Gate::Open }
            }
            // Without an error it is about to open. Until it has, a change that passed here would count as refused.
            _ => Gate::Refused(self.health.lock().error.clone().unwrap_or_else(|| "try again".to_owned())),
        }
    }

    /// Look whether changes have to wait; called now and then.
    pub fn tick(&self) {
        if self.is_on() {
            self.look_at_gate(&self.buffer.lock());
        }
    }

    fn look_at_gate(&self, buffer: &MutexGuard<'_, Buffer>) {
        let late = self.policy() == SyncPolicy::EverySecond
            && buffer.limit == BUFFER_BYTES
            && buffer.oldest().is_some_and(|since| since.elapsed() > self.pace.most_at_risk);
        let gate = if late || buffer.bytes.len() > buffer.limit { FULL } else { OPEN };
        // A failure ends only when the log is written again.
        self.move_gate(|standing| (!standing.has_failed()).then(|| standing.with_gate(gate)));
    }

    fn set_gate(&self, gate: u64) {
        self.move_gate(|standing| Some(standing.with_gate(gate)));
    }

    /// The log began to fail.
    fn shut_gate(&self) {
        let failed = |standing: Standing| Standing(standing.0 + Standing::FAILURE).with_gate(FAILED);
        self.move_gate(|standing| (!standing.has_failed()).then(|| failed(standing)));
    }

    fn move_gate(&self, step: impl Fn(Standing) -> Option<Standing>) {
        let step_number = |now| step(Standing(now)).map(|next| next.0);
        let before = self.standing.fetch_update(Ordering::AcqRel, Ordering::Acquire, step_number);
        if before.is_ok_and(|before| Standing(before).gate() == FULL) && self.standing().gate() != FULL {
            std::mem::take(&mut *self.latch.lock()).release();
        }
    }

    /// Whether replies have to wait for [`confirm`](Self::confirm) at all.
    #[must_use]
    pub fn confirms(&self) -> bool {
        self.is_strict() && self.synced() < self.position()
    }

    /// Wait until all that is committed now is synced, for replies to commands that ran since the log [stood](Self::standing)
    /// like this: if it was failing already and has been ever since, they have changed nothing.
    pub fn confirm(self: &Arc<Self>, since: Standing) -> Confirm {
        Confirm { log: self.clone(), position: self.position(), since: Some(since), asked: false }
    }

    /// Wait until all that is committed now is synced, whoever has changed it and when.
    pub fn confirm_all(self: &Arc<Self>) -> Confirm {
        Confirm { log: self.clone(), position: self.position(), since: None, asked: false }
    }

    fn append(&self, head: &[u8], records: &[u8]) {
        let mut buffer = self.buffer.lock();
        let first = buffer.bytes.is_empty();
        let before = buffer.bytes.len();
        buffer.bytes.extend_from_slice(head);
        buffer.bytes.extend_from_slice(records);
        let after = buffer.bytes.len();
        self.position.fetch_add((after - before) as u64, Ordering::Release);
        if first {
            buffer.since = Some(Instant::now());
        }
        if after > buffer.limit {
            self.look_at_gate(&buffer);
        }
        drop(buffer);
        if first || (before < WRITE_AT_BYTES && after >= WRITE_AT_BYTES) {
            // The thread looks at the buffer under this lock: it is either before its look, or waits and hears the call.
            drop(self.control.lock());
            self.wake.notify_one();
        }
    }

    fn wake_waiting(&self) {
        let (synced, failing) = (self.synced(), self.standing().has_failed());
        let mut waiting = self.waiting.lock();
        let ready: Vec<Waker> =
            waiting.extract_if(.., |(position, _)| failing || *position <= synced).map(|(_, waker)| waker).collect();
        drop(waiting);
        ready.into_iter().for_each(Waker::wake);
    }
}

impl Buffer {
    fn oldest(&self) -> Option<Instant> {
        self.unsynced_since.or(self.since)
    }
}

impl Journal for LiveLog {
    fn record(&self, db: usize, name: &[u8], effect: &Effect<'_>) {
        if self.records.load(Ordering::Relaxed) {
            stage(db, name, effect);
        }
    }

    fn commit(&self) {
        if self.records.load(Ordering::Relaxed) {
            with_staged(|head, records| self.append(head, records));
        }
    }

    fn suspend(&self, group: &mut Group) {
        if self.records.load(Ordering::Relaxed) {
            suspend(group);
        }
    }

    fn commit_group(&self, group: Group) {
        if self.records.load(Ordering::Relaxed) {
            unit(&group, |head, records| self.append(head, records));
        }
    }

    fn is_strict(&self) -> bool {
        self.policy() == SyncPolicy::Always && self.has_file.load(Ordering::Relaxed)
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
}

impl Future for Confirm {
    type Output = Result<(), Unconfirmed>;

    fn poll(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(outcome) = self.outcome() {
            return Poll::Ready(outcome);
        }
        self.log.waiting.lock().push((self.position, task.waker().clone()));
        if !self.asked {
            self.asked = true;
            let mut control = self.log.control.lock();
            control.wanted = control.wanted.max(self.position);
            control.arrived += 1;
            let news = !control.gathers || control.arrived >= control.expected;
            drop(control);
            if news || self.log.policy() != SyncPolicy::Always {
                self.log.wake.notify_one();
            }
        }
        // The sync may have come in between.
        self.outcome().map_or(Poll::Pending, Poll::Ready)
    }
}

/// The thread that writes.
struct Committer {
    log: Arc<LiveLog>,
    writer: Option<LogWriter>,
    /// Bytes that a write was tried with, and that are to be tried again.
    held: Vec<u8>,
    next_sync: Instant,
    /// Not before this after a failure.
    not_before: Option<Instant>,
    /// How many the sync under way serves.
    served: usize,
    /// The next sync waits for further clients until then.
    gather_until: Option<Instant>,
}

/// What the thread does next.
struct Due {
    orders: Vec<Order>,
    write: bool,
    sync: bool,
    end: bool,
}

impl Committer {
    fn new(log: Arc<LiveLog>) -> Self {
        Self {
            log,
            writer: None,
            held: Vec::new(),
            next_sync: Instant::now(),
            not_before: None,
            served: 0,
            gather_until: None,
        }
    }

    fn run(mut self) {
        loop {
            let due = self.wait();
            let end = due.end;
            due.orders.into_iter().for_each(|order| {
                // What was committed before an order is written before it.
                self.write();
                order(&mut self.writer);
                self.take_over();
            });
            if due.write || due.sync || end {
                self.write();
            }
            if due.sync || end {
                self.sync();
            }
            if end {
                if let Some(writer) = self.writer.take()
                    && let Err(error) = writer.close()
                {
                    tracing::error!("the log could not be closed: {error}");
                }
                return;
            }
        }
    }

    /// Wait until something is due.
    fn wait(&mut self) -> Due {
        let log = self.log.clone();
        let mut control = log.control.lock();
        loop {
            let now = Instant::now();
            let (wanted, policy) = (control.wanted > log.synced(), log.policy());
            let retry_at = self.not_before.filter(|time| now < *time);
            let sound = self.writer.as_ref().is_some_and(|writer| !writer.has_failed());
            let usable = sound && retry_at.is_none();
            let (since, bytes) = {
                let buffer = log.buffer.lock();
                (buffer.since, buffer.bytes.len())
            };
            let write_at = since.map(|since| if bytes >= WRITE_AT_BYTES { now } else { since + log.pace.write });
            let has_held = !self.held.is_empty();
            let unsynced = self.writer.as_ref().is_some_and(|writer| writer.synced() < writer.position());
            if !wanted && !control.gathers {
                control.arrived = 0;
            }
            let gathered_at = self.gathered_at(&mut control, wanted, now).filter(|_| policy == SyncPolicy::Always);
            let sync_at = match policy {
                _ if gathered_at.is_some() => gathered_at,
                _ if wanted => Some(now),
                SyncPolicy::Never => None,
                SyncPolicy::Always => (unsynced || since.is_some()).then_some(write_at.unwrap_or(now)),
                SyncPolicy::EverySecond => (unsynced || since.is_some()).then_some(self.next_sync),
            };
            let is_due = |at: Option<Instant>| usable && at.is_some_and(|at| at <= now);
            let due = Due {
                write: is_due(write_at) || (usable && has_held),
                sync: is_due(sync_at),
                end: control.end,
                orders: std::mem::take(&mut control.orders),
            };
            if due.write || due.sync || due.end || !due.orders.is_empty() {
                if due.sync {
                    self.served = std::mem::take(&mut control.arrived);
                    (self.gather_until, control.gathers) = (None, false);
                }
                return due;
            }
            let next = if usable { write_at.into_iter().chain(sync_at).min() } else { retry_at.filter(|_| sound) };
            match next {
                Some(at) => drop(log.wake.wait_until(&mut control, at)),
                None => log.wake.wait(&mut control),
            }
        }
    }

    /// When to look again whether a sync that somebody waits for is to begin; none if nobody does. Clients that were served by
    /// the last one mostly come again within about the time that it took; without a wait for them two halves of the clients
    /// would take turns, and each reply would wait for two syncs.
    fn gathered_at(&mut self, control: &mut Control, wanted: bool, now: Instant) -> Option<Instant> {
        let missing = control.arrived < control.expected;
        self.gather_until = self.gather_until.filter(|until| missing && now < *until);
        control.gathers = self.gather_until.is_some();
        self.gather_until.or(wanted.then_some(now))
    }

    /// Follow what an order did with the files.
    fn take_over(&mut self) {
        self.log.has_file.store(self.writer.is_some(), Ordering::Release);
        let Some(writer) = &self.writer else {
            (self.held, self.not_before) = (Vec::new(), None);
            return;
        };
        let mut buffer = self.log.buffer.lock();
        buffer.limit = BUFFER_BYTES;
        if !writer.has_failed() && self.log.health.lock().needs_base {
            // The base has all that was held.
            self.held = Vec::new();
            self.log.synced.fetch_max(writer.synced(), Ordering::AcqRel);
            drop(buffer);
            self.recovered();
            return;
        }
        self.log.look_at_gate(&buffer);
    }

    /// Write what is in the buffer.
    fn write(&mut self) {
        if self.writer.as_ref().is_none_or(LogWriter::has_failed) {
            return;
        }
        if self.held.is_empty() {
            let mut buffer = self.log.buffer.lock();
            std::mem::swap(&mut self.held, &mut buffer.bytes);
            let since = buffer.since.take();
            buffer.unsynced_since = buffer.unsynced_since.or(since);
        }
        let Some(writer) = &mut self.writer else { return };
        match writer.append(&self.held) {
            Ok(()) => {
                self.held.clear();
                self.held.shrink_to(KEPT_BYTES);
                if self.not_before.is_some() {
                    self.recovered();
                }
                self.log.look_at_gate(&self.log.buffer.lock());
            }
            Err(error) => self.failed(&error),
        }
        self.log.held.store(self.held.len(), Ordering::Relaxed);
    }

    fn sync(&mut self) {
        let Some(writer) = self.writer.as_mut().filter(|writer| !writer.has_failed()) else { return };
        if !self.held.is_empty() && self.log.policy() == SyncPolicy::Always {
            // What somebody waits for could not even be written.
            return;
        }
        let begun = Instant::now();
        self.next_sync = begun + self.log.pace.sync;
        match writer.sync() {
            Ok(()) => {
                let synced = writer.synced();
                let mut buffer = self.log.buffer.lock();
                if self.held.is_empty() {
                    buffer.unsynced_since = None;
                }
                self.log.look_at_gate(&buffer);
                drop(buffer);
                self.log.synced.fetch_max(synced, Ordering::AcqRel);
                self.log.syncs.fetch_add(1, Ordering::Relaxed);
                let mut control = self.log.control.lock();
                control.expected = self.served + control.arrived;
                control.gathers = true;
                drop(control);
                self.gather_until = Some(Instant::now() + begun.elapsed().clamp(LEAST_PATIENCE, MOST_PATIENCE));
                let mut health = self.log.health.lock();
                (health.last_sync, health.last_sync_time) = (Some(Instant::now()), begun.elapsed());
                drop(health);
                self.log.wake_waiting();
            }
            Err(error) => self.failed(&error),
        }
    }

    fn failed(&mut self, error: &WriteError) {
        let first = self.not_before.is_none();
        self.not_before = Some(Instant::now() + self.log.pace.retry);
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
        self.not_before = None;
        let mut health = self.log.health.lock();
        (health.error, health.needs_base) = (None, false);
        drop(health);
        self.log.set_gate(OPEN);
        tracing::info!("the append-only log is written again");
        self.log.wake_waiting();
    }
}

#[cfg(test)]
mod tests;
