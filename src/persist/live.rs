//! The log while the server runs: effects get their positions in memory, and are written and synced batch by batch.
//!
//! # Positions
//!
//! [`Journal::commit`] runs under the lock of what was changed. It appends the records to a buffer, and where they end is their
//! *position*. So the order in the log is that of the changes of each key. Whoever has the pen takes the whole buffer, appends it to the
//! file as one batch and syncs; meanwhile the next batch gathers. That is all there is to group commit: the slower the disk, the
//! larger the batches.
//!
//! # What a reply waits for
//!
//! Under `always` a connection that has run a batch of commands, reads too, waits until all that was committed by then is synced
//! ([`LiveLog::confirm`]): what it answers may rest on any of that.
//!
//! # Who syncs
//!
//! A thread of the log's own, mostly. But where a sync is [quick](Pace::quick), the way to another thread and back costs more
//! than the sync itself. There the first connection that has to wait *leads*: it lets its worker's other connections that are
//! ready have their turn, and then writes and syncs for all where it stands, as a server of one thread would. There is one
//! leader at a time. The thread steps in when a leader tarries, and takes over once a sync was slow.
//!
//! Either way a sync waits a moment for the clients that the last one served, who mostly come again at once. Without that two
//! halves of the clients take turns, and each reply waits for two syncs.
//!
//! # What can go wrong
//!
//! | what | then |
//! | --- | --- |
//! | the disk is slow | under `everysec`, once the oldest change is unsynced for [`Pace::most_at_risk`], and whenever more than the buffer's limit waits, those who want to change something wait too; nobody else does |
//! | a write fails (disk full) | changes are refused; it is tried again ten times a second, and nothing is lost |
//! | a sync fails, or somebody has moved the files away | changes are refused, until a new base is on disk: what the system had in its memory may be lost, and it would not say so again |
//!
//! Whoever waits for a position when that happens is told so: his change may or may not be kept.

mod committer;
mod confirm;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::task::Waker;
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use self::committer::Pen;
pub use self::confirm::{Confirm, Lead, Unconfirmed};
use super::log::LogWriter;
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

/// When what is done; tests choose other times.
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
    /// A disk whose last sync took no longer may keep a connection's worker for the next one, which now and then has to begin
    /// another segment as well.
    pub quick: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            write: Duration::from_millis(50),
            sync: Duration::from_secs(1),
            retry: Duration::from_millis(100),
            most_at_risk: Duration::from_millis(1800),
            quick: Duration::from_micros(250),
        }
    }
}

/// This many bytes are written at once.
const WRITE_AT_BYTES: usize = 1 << 20;
/// More than this waits for the disk only if a single record is larger.
const BUFFER_BYTES: usize = 64 << 20;
/// The same while there is no file yet: all changes since the cut of the first base wait.
const BUFFER_BYTES_WITHOUT_FILE: usize = 512 << 20;

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
/// Locks are taken in the order `files`, `control`, `buffer`, `health`; `waiting` and `latch` are the last.
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
    /// The last sync was [quick](Pace::quick).
    quick: AtomicBool,
    /// The thread sleeps, and looks at the buffer by itself before anything that comes in now has to be written.
    dozes: AtomicBool,
    pen: Mutex<Pen>,
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
    /// The next sync waits for them until then.
    gather_until: Option<Instant>,
    /// The thread waits for them, and wakes by itself.
    gathers: bool,
    /// A connection is about to sync for all who wait.
    led: Option<Leading>,
    orders: Vec<Order>,
    /// Somebody wants to know whether the files are still where they were.
    look: bool,
    end: bool,
}

/// A connection that leads.
#[derive(Clone, Copy)]
struct Leading {
    since: Instant,
    /// Its worker.
    thread: ThreadId,
    /// The thread has been told to see that it comes to it.
    watched: bool,
}

impl Control {
    /// Whether a sync had better wait for further clients.
    fn awaits_more(&self, now: Instant) -> bool {
        self.arrived < self.expected && self.gather_until.is_some_and(|until| now < until)
    }
}

/// Work on the files, and what tells who waits that it is done.
type Order = Box<dyn FnOnce(&mut Option<LogWriter>) -> Box<dyn FnOnce()> + Send>;

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
            quick: AtomicBool::new(false),
            dozes: AtomicBool::new(false),
            pen: Mutex::new(Pen::new()),
            buffer: Mutex::new(Buffer { limit: BUFFER_BYTES, ..Buffer::default() }),
            control: Mutex::default(),
            wake: Condvar::new(),
            waiting: Mutex::default(),
            latch: Mutex::default(),
            health: Mutex::default(),
        });
        let own = log.clone();
        thread::Builder::new().name("seendb-log".into()).spawn(move || own.run())?;
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

    /// Whether there are bytes that a write was tried with in vain.
    #[must_use]
    pub fn holds_unwritten(&self) -> bool {
        self.held.load(Ordering::Relaxed) > 0
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
        // Told only when the log goes by what was done: else the first changes after a start were not waited for.
        let order: Order = Box::new(move |writer| {
            let done = work(writer);
            Box::new(move || drop(sender.send(done)))
        });
        let mut control = self.control.lock();
        if control.end {
            return None;
        }
        control.orders.push(order);
        drop(control);
        self.wake.notify_one();
        receiver.recv().ok()
    }

    /// Have the thread look whether the names of the log still lead to its files; if not, it fails.
    pub fn look_at_files(&self) {
        self.control.lock().look = true;
        self.wake.notify_one();
    }

    /// The log fails, and needs a new base; called on the thread that writes, which has given up its files.
    pub fn fail(&self, reason: String) {
        let mut health = self.health.lock();
        (health.error, health.needs_base) = (Some(reason), true);
        drop(health);
        self.shut_gate();
        self.wake_waiting();
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
        // The lock of the buffer orders this look after that of a thread that has seen the buffer empty.
        let unseen = first && !self.dozes.load(Ordering::Relaxed);
        if unseen || (before < WRITE_AT_BYTES && after >= WRITE_AT_BYTES) {
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

#[cfg(test)]
mod tests;
