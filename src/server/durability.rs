//! Snapshots and the log of the running server: when they are made, and one after the other.
//!
//! One *job* runs at a time, on a thread of its own: a snapshot, a new base for the log, a backup for a client. What is asked for
//! meanwhile is refused or waits its turn, as in Redis.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::beside::Beside;
use super::priority::stand_back;
use super::waiting::block_on;
use crate::commands::context::{Begun, ChangeGate, Job, JobDone, JobOutcome, ShutDown, Task};
use crate::commands::error::CommandError;
use crate::config::{SavePoint, Settings};
use crate::keyspace::Keyspace;
use crate::keyspace::snapshot::Snapshot;
use crate::persist::files::{Files, FolderLock};
use crate::persist::live::{Gate, LiveLog, SyncPolicy};
use crate::persist::log::reader::read_manifest;
use crate::persist::log::{Base, LogId, LogWriter, SEGMENT_BYTES, next_base_name, remove_unnamed_bases};
use crate::persist::origin::{MOMENT_FIELD, Origin};
use crate::persist::recovery::{LoadProgress, LogLeft};
use crate::persist::snapshot::save::{self, save};

/// Sizes and times that tests choose smaller.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    /// Bytes of a segment of the log.
    pub(super) segment_bytes: u64,
    /// After a snapshot or a base that failed the next one is tried so much later.
    pub(super) retry: Duration,
    /// A base that the log needs to go on at all is tried again sooner.
    pub(super) needed_retry: Duration,
    /// How often it is looked whether the log's files are still where they were.
    pub(super) look: Duration,
    /// An end that fails is tried again for so long.
    pub(super) end_patience: Duration,
}

impl Default for Scale {
    fn default() -> Self {
        let (retry, second) = (Duration::from_secs(5), Duration::from_secs(1));
        Self { segment_bytes: SEGMENT_BYTES, retry, needed_retry: second, look: second, end_patience: retry }
    }
}

/// Who waits for a sync while the log fails looks again after this time.
const SYNC_RETRY: Duration = Duration::from_millis(50);

/// An end that fails is tried again after this time.
const END_RETRY: Duration = Duration::from_millis(100);

/// What a file for a client is called, behind `temp-` and the number of the process.
pub(super) const BACKUP_NAME: &str = "backup.rdb";

/// What a job makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The snapshot.
    Snapshot,
    /// A base for the log.
    Base,
    /// The first base: with its cut the log begins.
    FirstBase,
    /// The end of the log: it is switched off.
    LastSync,
    /// A snapshot for a client.
    Backup,
}

impl Kind {
    pub(super) fn is_base(self) -> bool {
        matches!(self, Self::Base | Self::FirstBase)
    }

    /// Whether it works on the log, not on a snapshot.
    pub(super) fn is_of_log(self) -> bool {
        self.is_base() || self == Self::LastSync
    }
}

/// What is done to the log after the job under way.
struct Scheduled {
    /// The log follows the setting: it may be switched on, or off. Otherwise it gets a new base.
    switch: bool,
    job: Arc<Job>,
}

/// The job under way.
pub(super) struct Running {
    pub(super) kind: Kind,
    pub(super) progress: Arc<save::Progress>,
    pub(super) begun: Instant,
    job: Arc<Job>,
}

/// How snapshots, or bases, went so far.
#[derive(Clone, Debug)]
pub(super) struct History {
    pub(super) ok: bool,
    /// How many succeeded.
    pub(super) count: u64,
    /// How long the last one took.
    pub(super) time: Option<Duration>,
    tried: Option<Instant>,
}

impl Default for History {
    fn default() -> Self {
        Self { ok: true, count: 0, time: None, tried: None }
    }
}

pub(super) struct State {
    pub(super) running: Option<Running>,
    /// Who waits for a snapshot that is taken after the job under way.
    save_scheduled: Option<Arc<Job>>,
    log_scheduled: Option<Scheduled>,
    pub(super) snapshots: History,
    pub(super) bases: History,
    /// When the last snapshot was made, in seconds since 1970.
    pub(super) last_save: u64,
    last_save_at: Instant,
    /// The keyspace's count of changes at its cut.
    changes_saved: u64,
    save_points: Vec<SavePoint>,
    log_id: Option<String>,
    /// What the keys have of logs that are written no more.
    pub(super) origin: Origin,
    /// There is a log that was not loaded.
    pub(super) foreign_log: Option<LogLeft>,
    /// The keyspace's count of changes when all was loaded.
    changes_loaded: u64,
    /// The snapshot holds what was not loaded: keys of other types, or damaged ones.
    pub(super) has_more: bool,
    /// A log that was not loaded, and is not where it was.
    to_put_back: Option<Beside>,
    /// The log needs a new base, since what it is on is damaged.
    pub(super) wants_base: bool,
    /// When it was looked last where the log's files are.
    looked: Instant,
    /// The cut of the log's base, and how long its file is.
    cut: u64,
    pub(super) base_bytes: u64,
    /// How large the log was when it was last rewritten, or at the start.
    rewritten_bytes: u64,
    /// How the loading went.
    pub(super) loaded: (u64, u64),
}

impl State {
    /// Whether a base will be made after the job under way.
    pub(super) fn base_is_scheduled(&self) -> bool {
        self.log_scheduled.is_some()
    }
}

/// Snapshots and the log of the running server.
pub(super) struct Durability {
    keyspace: Arc<Keyspace>,
    settings: Arc<Settings>,
    files: Arc<dyn Files>,
    scale: Scale,
    pub(super) live: Arc<LiveLog>,
    pub(super) state: Mutex<State>,
    /// Data are being loaded.
    pub(super) loading: AtomicBool,
    pub(super) load: LoadProgress,
    pub(super) started: Instant,
    /// Changes are refused: snapshots that save points ask for fail.
    failing: AtomicBool,
    /// Held as long as the log is written: nobody else may.
    folder_lock: Mutex<Option<FolderLock>>,
    /// The server is about to end: no further job is begun by itself.
    ending: AtomicBool,
}

impl Durability {
    pub(super) fn new(
        keyspace: Arc<Keyspace>,
        settings: Arc<Settings>,
        live: Arc<LiveLog>,
        files: Arc<dyn Files>,
        scale: Scale,
    ) -> Self {
        let now = unix_ms() / 1000;
        let state = State {
            running: None,
            save_scheduled: None,
            log_scheduled: None,
            snapshots: History::default(),
            bases: History::default(),
            last_save: now,
            last_save_at: Instant::now(),
            changes_saved: 0,
            save_points: settings.save_points(),
            log_id: None,
            origin: Origin::default(),
            foreign_log: None,
            changes_loaded: 0,
            has_more: false,
            to_put_back: None,
            wants_base: false,
            looked: Instant::now(),
            cut: 0,
            base_bytes: 0,
            rewritten_bytes: 0,
            loaded: (0, 0),
        };
        live.set_policy(policy_of(&settings));
        Self {
            keyspace,
            settings,
            files,
            scale,
            live,
            state: Mutex::new(state),
            loading: AtomicBool::new(true),
            load: LoadProgress::default(),
            started: Instant::now(),
            failing: AtomicBool::new(false),
            folder_lock: Mutex::default(),
            ending: AtomicBool::new(false),
        }
    }

    pub(super) fn files(&self) -> &Arc<dyn Files> {
        &self.files
    }

    pub(super) fn keyspace(&self) -> &Keyspace {
        &self.keyspace
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(super) fn segment_bytes(&self) -> u64 {
        self.scale.segment_bytes
    }

    pub(super) fn snapshot_path(&self) -> PathBuf {
        self.settings.dir().join(self.settings.dbfilename())
    }

    pub(super) fn log_folder(&self) -> PathBuf {
        self.settings.dir().join(self.settings.appenddirname())
    }

    /// Take the log's folder for this process; it is made if need be.
    ///
    /// # Errors
    /// Another process has it, or it cannot be made.
    pub(super) fn lock_folder(&self) -> Result<(), String> {
        let folder = self.log_folder();
        let refused = |reason: &str| format!("cannot write the log in '{}': {reason}", folder.display());
        self.files.create_folder(&folder).map_err(|error| refused(&told(&error)))?;
        let mut lock = self.folder_lock.lock();
        if lock.is_none() {
            *lock = Some(self.files.lock_folder(&folder).map_err(|error| match error.kind() {
                std::io::ErrorKind::WouldBlock => refused("another process uses it"),
                _ => refused(&told(&error)),
            })?);
        }
        Ok(())
    }

    /// The switching on or off of the log that is under way or will be.
    pub(super) fn log_switch(&self) -> Option<Arc<Job>> {
        let state = self.state.lock();
        let switches = |running: &&Running| matches!(running.kind, Kind::FirstBase | Kind::LastSync);
        let scheduled = state.log_scheduled.as_ref().filter(|scheduled| scheduled.switch);
        let running = state.running.as_ref().filter(switches);
        scheduled.map(|scheduled| scheduled.job.clone()).or(running.map(|running| running.job.clone()))
    }

    /// Leave the log's folder to others.
    pub(super) fn unlock_folder(&self) {
        *self.folder_lock.lock() = None;
    }

    /// Changes since the cut of the last snapshot.
    pub(super) fn unsaved_changes(&self) -> u64 {
        self.keyspace.totals().2.saturating_sub(self.state.lock().changes_saved)
    }

    /// Bytes of the log: its base, and what came since.
    pub(super) fn log_bytes(&self, state: &State) -> u64 {
        state.base_bytes + self.live.position().saturating_sub(state.cut)
    }

    /// The settings changed that decide when snapshots are taken, or when the log is synced.
    pub(super) fn settings_changed(&self) {
        self.state.lock().save_points = self.settings.save_points();
        self.live.set_policy(policy_of(&self.settings));
        self.look_at_failures(&self.state.lock());
    }

    fn look_at_failures(&self, state: &State) {
        let failing = !state.snapshots.ok && self.settings.stop_writes() && !state.save_points.is_empty();
        self.failing.store(failing, Ordering::Relaxed);
    }

    /// Whether keys may be changed now.
    pub(super) fn change_gate(&self) -> ChangeGate {
        if self.failing.load(Ordering::Relaxed) {
            return ChangeGate::Refused(
                "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk. Commands \
                 that may modify the data set are disabled, because this instance is configured to report errors during \
                 writes if RDB snapshotting fails (stop-writes-on-bgsave-error option). Please check the Redis logs for \
                 details about the RDB error."
                    .to_owned(),
            );
        }
        match self.live.gate() {
            Gate::Open => ChangeGate::Open,
            Gate::Wait(wait) => ChangeGate::Wait(wait),
            Gate::Refused(error) => ChangeGate::Refused(format!("MISCONF Errors writing to the AOF file: {error}")),
        }
    }

    /// Begin what a client asks for.
    pub(super) fn begin(self: &Arc<Self>, task: Task) -> Result<Begun, CommandError> {
        let mut state = self.state.lock();
        let running = state.running.as_ref().map(|running| running.kind);
        let start = |state: &mut State, kind| Ok(Begun::Now(self.start(state, kind, Arc::default())));
        match (task, running) {
            (Task::Save | Task::SaveInBackground { .. }, None) => start(&mut state, Kind::Snapshot),
            (Task::Backup, None) => start(&mut state, Kind::Backup),
            (Task::SaveInBackground { schedule: true }, Some(kind)) if kind != Kind::Snapshot => {
                state.save_scheduled.get_or_insert_default();
                Ok(Begun::Later)
            }
            (Task::Save, Some(kind)) if kind.is_of_log() => {
                Ok(Begun::Now(state.save_scheduled.get_or_insert_default().clone()))
            }
            (Task::SaveInBackground { .. }, Some(kind)) if kind != Kind::Snapshot => Err(CommandError::text(
                "ERR Another child process is active (AOF?): can't BGSAVE right now. Use BGSAVE SCHEDULE in order to \
                 schedule a BGSAVE whenever possible.",
            )),
            (Task::Save | Task::SaveInBackground { .. } | Task::Backup, Some(_)) => {
                Err(CommandError::text("ERR Background save already in progress"))
            }
            (Task::RewriteLog, _) if !self.live.is_on() => {
                Err(CommandError::text("ERR there is no append-only log to rewrite: 'appendonly' is 'no'"))
            }
            (Task::RewriteLog, None) => start(&mut state, Kind::Base),
            (Task::RewriteLog, Some(kind)) if kind.is_of_log() => {
                Err(CommandError::text("ERR Background append only file rewriting already in progress"))
            }
            (Task::RewriteLog, Some(_)) => {
                state.log_scheduled.get_or_insert_with(|| Scheduled { switch: false, job: Arc::default() });
                Ok(Begun::Later)
            }
            (Task::SyncLog { timeout }, _) => Ok(Begun::Now(self.await_sync(timeout))),
            (Task::ShutDown(_), _) => Err(CommandError::text("ERR the server cannot be ended from here")),
        }
    }

    /// A job that is done when all that is logged now is safe.
    fn await_sync(&self, timeout: u64) -> Arc<Job> {
        let job = Arc::new(Job::default());
        let (live, mut confirmed, theirs) = (self.live.clone(), self.live.confirm_all(), job.clone());
        let synced = async move {
            // While the log fails it is not synced, but may be in time.
            while (&mut confirmed).await.is_err() {
                tokio::time::sleep(SYNC_RETRY).await;
            }
            live.is_on()
        };
        tokio::spawn(async move {
            let limit =
                if timeout == 0 { Duration::from_secs(u64::from(u32::MAX)) } else { Duration::from_millis(timeout) };
            theirs.finish(match tokio::time::timeout(limit, synced).await {
                Ok(true) => Ok(JobDone::Done),
                Ok(false) => Err("the log was switched off".to_owned()),
                Err(_) => Ok(JobDone::TimedOut),
            });
        });
        job
    }

    /// Start a job; there must be none.
    fn start(self: &Arc<Self>, state: &mut State, kind: Kind, job: Arc<Job>) -> Arc<Job> {
        let progress = Arc::new(save::Progress::default());
        let running = Running { kind, progress: progress.clone(), begun: Instant::now(), job: job.clone() };
        debug_assert!(state.running.is_none());
        state.running = Some(running);
        let own = self.clone();
        let run = move || {
            // Should it panic, the next one can be begun all the same.
            let made = catch_unwind(AssertUnwindSafe(|| own.make(kind, &progress)));
            let outcome = made.unwrap_or_else(|_| Err("a fault of this program".to_owned()));
            own.finish(kind, outcome);
        };
        if let Err(error) = thread::Builder::new().name("seendb-save".into()).spawn(run) {
            state.running = None;
            job.finish(Err(format!("no thread for it: {error}")));
        }
        job
    }

    fn make(self: &Arc<Self>, kind: Kind, progress: &Arc<save::Progress>) -> JobOutcome {
        match kind {
            Kind::Snapshot => self.make_snapshot(progress).map(|()| JobDone::Done),
            Kind::Backup => self.make_backup(progress),
            Kind::Base | Kind::FirstBase => self.make_base(kind, progress).map(|()| JobDone::Done),
            Kind::LastSync => self.end_log().map(|()| JobDone::Done),
        }
    }

    /// The job is over: write down how it went, tell who waits, begin what waits its turn.
    fn finish(self: &Arc<Self>, kind: Kind, outcome: JobOutcome) {
        let mut state = self.state.lock();
        let Some(running) = state.running.take() else { return };
        let time = running.begun.elapsed();
        let history = match kind {
            Kind::Snapshot => Some(&mut state.snapshots),
            Kind::Base | Kind::FirstBase => Some(&mut state.bases),
            Kind::LastSync | Kind::Backup => None,
        };
        match (&outcome, history) {
            (Ok(_), history) => {
                tracing::info!("{} saved in {:.3} s", describe(kind), time.as_secs_f64());
                if let Some(history) = history {
                    *history = History { ok: true, count: history.count + 1, time: Some(time), tried: None };
                }
            }
            (Err(_), _) if running.progress.stop.load(Ordering::Relaxed) => {
                tracing::info!("{} given up", describe(kind));
            }
            (Err(reason), history) => {
                tracing::error!("{} could not be saved: {reason}", describe(kind));
                if let Some(history) = history {
                    (history.ok, history.tried) = (false, Some(Instant::now()));
                }
            }
        }
        self.look_at_failures(&state);
        let switches = state.log_scheduled.as_ref().is_some_and(|scheduled| scheduled.switch);
        if outcome.is_err() && !switches {
            // The setting says what there is: no log that could not be begun, and one that could not be ended.
            let _ = match kind {
                Kind::FirstBase => self.settings.set(&[(b"appendonly", b"no")]),
                Kind::LastSync => self.settings.set(&[(b"appendonly", b"yes")]),
                _ => Ok(Vec::new()),
            };
        }
        self.start_next(&mut state);
        drop(state);
        running.job.finish(outcome);
    }

    /// Begin what waits its turn; there is no job.
    fn start_next(self: &Arc<Self>, state: &mut State) {
        if let Some(Scheduled { switch, job }) = state.log_scheduled.take() {
            let kind = match (switch, self.settings.appendonly(), self.live.is_on()) {
                (true, true, false) => Some(Kind::FirstBase),
                (true, false, true) => Some(Kind::LastSync),
                (false, _, true) => Some(Kind::Base),
                _ => None,
            };
            match kind {
                Some(kind) => return drop(self.start(state, kind, job)),
                // It is as the setting says already, or there is nothing to rewrite any more.
                None => job.finish(Ok(JobDone::Done)),
            }
        }
        if let Some(job) = state.save_scheduled.take() {
            self.start(state, Kind::Snapshot, job);
        }
    }

    /// Cut: as soon as no key is away.
    fn cut(&self, mut at_cut: impl FnMut()) -> Snapshot {
        loop {
            match self.keyspace.snapshot(&mut at_cut) {
                Ok(snapshot) => {
                    // Not before: whoever holds all shards must not be kept from the processor.
                    stand_back();
                    return snapshot;
                }
                Err(wait) => block_on(wait),
            }
        }
    }

    fn options(&self, fields: Vec<(&'static str, String)>) -> save::Options {
        let (compress, checksum) = (self.settings.rdbcompression(), self.settings.rdbchecksum());
        save::Options { compress, checksum, plain: false, fields }
    }

    fn make_snapshot(&self, progress: &save::Progress) -> Result<(), String> {
        let path = self.snapshot_path();
        self.keep_original(&path)?;
        let changes = self.save_to(&path, progress)?;
        let mut state = self.state.lock();
        (state.changes_saved, state.last_save, state.last_save_at) = (changes, unix_ms() / 1000, Instant::now());
        Ok(())
    }

    /// Before a snapshot is put in the place of one that has more in it, that gets another name too.
    fn keep_original(&self, path: &Path) -> Result<(), String> {
        let mut state = self.state.lock();
        if !state.has_more {
            return Ok(());
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let kept = path.with_file_name(format!("{name}.original-{}", unix_ms()));
        self.files.link(path, &kept).map_err(|error| {
            format!("'{}' holds what was not loaded, and cannot be kept under another name: {error}", path.display())
        })?;
        tracing::warn!("what was not loaded is kept in '{}'", kept.display());
        state.has_more = false;
        Ok(())
    }

    /// Save a snapshot; returns the keyspace's count of changes at the cut.
    fn save_to(&self, path: &Path, progress: &save::Progress) -> Result<u64, String> {
        let (mut changes, mut position, mut logged, mut moment) = (0, 0, false, 0);
        let snapshot = self.cut(|| {
            (changes, position, logged) = (self.keyspace.totals().2, self.live.position(), self.live.is_on());
            // Not before the cut: a log that was switched off meanwhile would seem to have more.
            moment = unix_ms();
        });
        let mut fields = vec![(MOMENT_FIELD, moment.to_string())];
        fields.extend(self.origin(logged.then_some(position), changes).fields());
        save(&*self.files, path, snapshot, &self.options(fields), progress)
            .map_err(|error| format!("'{}': {error}", path.display()))?;
        Ok(changes)
    }

    fn make_backup(&self, progress: &save::Progress) -> JobOutcome {
        let path = self.settings.dir().join(format!("temp-{}-{BACKUP_NAME}", std::process::id()));
        self.save_to(&path, progress)?;
        let file = std::fs::File::open(&path).map_err(|error| error.to_string());
        // Whoever has it open keeps it.
        let removed = self.files.remove(&path).map_err(|error| error.to_string());
        let file = file?;
        removed?;
        Ok(JobDone::File(Arc::new(file)))
    }

    /// What a snapshot has of logs that was cut at this position of the log, if there is one, and at this count of changes.
    fn origin(&self, position: Option<u64>, changes: u64) -> Origin {
        let state = self.state.lock();
        match (position, &state.log_id) {
            (Some(position), Some(id)) => Origin { logs: vec![(id.clone(), position)], beyond: false },
            (Some(_), None) => Origin::default(),
            (None, _) => {
                let beyond = state.origin.beyond || changes != state.changes_loaded;
                Origin { beyond, ..state.origin.clone() }
            }
        }
    }

    fn make_base(self: &Arc<Self>, kind: Kind, progress: &save::Progress) -> Result<(), String> {
        if kind == Kind::Base {
            return self.try_base(kind, None, progress);
        }
        if !self.put_back() {
            return Err("the log that was not loaded has to be put back first".to_owned());
        }
        let beside = self.state.lock().foreign_log.map(|_| Beside::new(&self.log_folder()));
        let made = self.try_base(kind, beside.as_ref(), progress);
        if made.is_err() {
            // Whatever keeps it from being closed, its snapshots know that it has ended.
            self.give_up_log();
        }
        match (&beside, &made) {
            (Some(beside), Ok(())) => {
                tracing::warn!("the log that was not loaded is kept in '{}'", beside.kept.display());
                self.state.lock().foreign_log = None;
            }
            (Some(beside), Err(_)) if !beside.undo(&*self.files) => {
                tracing::error!(
                    "the log that was not loaded is in '{}' now; it is put back as soon as that can be done",
                    beside.kept.display()
                );
                self.state.lock().to_put_back = Some(beside.clone());
            }
            _ => {}
        }
        made
    }

    /// A log whose place another one could not take is put back; whether it is there.
    fn put_back(&self) -> bool {
        let Some(beside) = self.state.lock().to_put_back.take() else { return true };
        let done = beside.undo(&*self.files);
        if !done {
            self.state.lock().to_put_back = Some(beside);
        }
        done
    }

    /// Do this while nobody changes anything: no group of changes is recorded by half.
    fn between_changes(&self, switch: impl Fn(&LiveLog)) {
        loop {
            match self.keyspace.lock_all(|_| true) {
                Ok(_held) => break switch(&self.live),
                Err(wait) => block_on(wait),
            }
        }
    }

    /// A log that could not be begun ends, whatever becomes of its files.
    fn give_up_log(&self) {
        self.between_changes(LiveLog::stop_recording);
        let live = self.live.clone();
        self.live.with_writer(move |slot| {
            if let Some(mut writer) = slot.take() {
                // Its snapshots tell the same.
                let _ = writer.switch_off(unix_ms());
            }
            live.switch_off();
        });
        self.log_has_ended(self.live.position());
        self.unlock_folder();
    }

    /// Switch the log off: it is closed, and then nothing is recorded any more. If it cannot be closed, it goes on, and has missed
    /// nothing: until it is closed all is recorded, and under `always` waited for.
    fn end_log(&self) -> Result<(), String> {
        let failed = |error: String| format!("'{}': {error}; the log goes on", self.log_folder().display());
        // What can fail is tried while the log can still go on as it is.
        let live = self.live.clone();
        let ready = self.live.with_writer(move |slot| {
            let Some(writer) = slot else { return Ok(()) };
            let ready = writer.prepare_switch_off(unix_ms()).map_err(|error| error.to_string());
            if let Err(reason) = &ready
                && writer.has_failed()
            {
                live.fail(reason.clone());
            }
            ready
        });
        if let Some(Err(reason)) = ready {
            return Err(failed(reason));
        }
        let live = self.live.clone();
        let closed = self.live.with_writer(move |slot| {
            let Some(writer) = slot else { return Ok(live.position()) };
            let closed = match live.holds_unwritten() {
                false => writer.switch_off(unix_ms()).map_err(|error| error.to_string()),
                true => Err("the last changes cannot be written".to_owned()),
            };
            if let Err(reason) = closed {
                // What the files say now is not known: only a new base helps.
                writer.give_up();
                live.fail(reason.clone());
                return Err(reason);
            }
            let end = writer.position();
            *slot = None;
            Ok(end)
        });
        let end = match closed {
            Some(Err(reason)) => return Err(failed(reason)),
            Some(Ok(end)) => end,
            None => self.live.position(),
        };
        self.between_changes(LiveLog::stop_recording);
        let live = self.live.clone();
        self.live.with_writer(move |_| live.switch_off());
        self.log_has_ended(end);
        self.unlock_folder();
        Ok(())
    }

    /// From now on nothing is logged: the keys have all of the log, and may soon have more.
    fn log_has_ended(&self, position: u64) {
        let mut state = self.state.lock();
        if let Some(id) = state.log_id.take() {
            state.origin.include(id, position);
            state.origin.beyond = true;
        }
    }

    fn try_base(
        self: &Arc<Self>,
        kind: Kind,
        beside: Option<&Beside>,
        progress: &save::Progress,
    ) -> Result<(), String> {
        let place = self.log_folder();
        let refused = |error: std::io::Error| format!("'{}': {}", place.display(), told(&error));
        let needed = kind == Kind::Base && self.live.health().needs_base;
        if needed {
            // The folder may be another one than that which was locked.
            self.unlock_folder();
        }
        self.lock_folder()?;
        if needed {
            self.refuse_other_log(&place)?;
            self.files.sync_folder(place.parent().unwrap_or(Path::new("/"))).map_err(refused)?;
        }
        let (folder, lock) = match beside {
            Some(beside) => (beside.folder.clone(), Some(beside.prepare(&*self.files).map_err(refused)?)),
            None => (place.clone(), None),
        };
        // If the disk is full, it must not get fuller with every attempt.
        self.live.with_writer({
            let (files, folder) = (self.files.clone(), folder.clone());
            move |slot| remove_unnamed_bases(&*files, &folder, slot.as_ref().map(LogWriter::manifest))
        });
        let name = next_base_name(&*self.files, &folder).map_err(refused)?;
        let path = folder.join(&name);
        let (mut cut, mut needed, mut moment) = (0, false, 0);
        let new_id = LogId::random();
        if kind == Kind::FirstBase {
            // Whatever becomes of it on disk: the keys have all that is in it.
            self.state.lock().log_id = Some(new_id.to_string());
        }
        let snapshot = self.cut(|| {
            moment = unix_ms();
            if kind == Kind::FirstBase {
                // Only a log that was begun on nothing begins at 0: so it is known of one that has lost its manifest.
                self.live.switch_on(self.live.position().max(1));
            }
            (cut, needed) = self.live.cut();
        });
        // A manifest that is lost can be made again by what the files say of themselves.
        let mut fields = vec![(MOMENT_FIELD, moment.to_string())];
        fields.extend(self.origin(Some(cut), 0).fields());
        let bytes = save(&*self.files, &path, snapshot, &self.options(fields), progress).map_err(refused)?;
        let (files, base, beside) = (self.files.clone(), Base { file: name, cut }, beside.cloned());
        let segment_bytes = self.scale.segment_bytes;
        let put = self.live.with_writer(move |slot| match kind {
            Kind::FirstBase => begin_on(slot, files, (&folder, beside), (new_id, base), segment_bytes),
            _ => put_base(slot, base, needed),
        });
        let id = match put {
            Some(Ok(id)) => id,
            Some(Err(reason)) => return Err(format!("'{}': {reason}", place.display())),
            None => return Err("the log's thread is gone".to_owned()),
        };
        if lock.is_some() {
            *self.folder_lock.lock() = lock;
        }
        let mut state = self.state.lock();
        state.wants_base = false;
        (state.log_id, state.cut, state.base_bytes) = (Some(id), cut, bytes);
        state.rewritten_bytes = self.log_bytes(&state);
        drop(state);
        if kind == Kind::FirstBase {
            // Whoever hears that the log is on can rely on it for all that was answered before.
            block_on(self.live.confirm_all()).map_err(|unconfirmed| unconfirmed.0)?;
        }
        Ok(())
    }

    /// Somebody may have put another log in the place of the one that is lost: it is not written over.
    fn refuse_other_log(&self, folder: &Path) -> Result<(), String> {
        let found = read_manifest(&*self.files, folder).ok().flatten().map(|manifest| manifest.id.to_string());
        match found {
            Some(id) if self.state.lock().log_id.as_ref() != Some(&id) => Err(format!(
                "'{}' holds another log than this server's: move it away, or end this server",
                folder.display()
            )),
            _ => Ok(()),
        }
    }

    /// Switch the log on or off, as the setting says now, or when the job under way is over. The job is done when that is so on
    /// disk too.
    pub(super) fn switch_log(self: &Arc<Self>) -> Arc<Job> {
        let mut state = self.state.lock();
        let scheduled = state.log_scheduled.get_or_insert_with(|| Scheduled { switch: true, job: Arc::default() });
        scheduled.switch = true;
        let job = scheduled.job.clone();
        match &state.running {
            // What is made for a log that is to end is not needed.
            Some(running) if running.kind.is_base() && !self.settings.appendonly() => {
                running.progress.stop.store(true, Ordering::Relaxed);
            }
            Some(_) => {}
            None => self.start_next(&mut state),
        }
        job
    }

    /// The log was loaded, or begun anew on nothing: it goes on with this writer.
    pub(super) fn continue_log(&self, writer: LogWriter, base_bytes: u64) {
        let (position, cut, id) = (writer.position(), writer.manifest().cut(), writer.manifest().id.to_string());
        self.live.switch_on(position);
        self.live.with_writer(move |slot| *slot = Some(writer));
        let mut state = self.state.lock();
        (state.log_id, state.cut, state.base_bytes) = (Some(id), cut, base_bytes);
        state.rewritten_bytes = self.log_bytes(&state);
    }

    /// The data are loaded: so many keys, and so many whose life was over.
    pub(super) fn loaded(&self, keys: u64, expired: u64) {
        let mut state = self.state.lock();
        state.loaded = (keys, expired);
        state.changes_saved = self.keyspace.totals().2;
        state.changes_loaded = state.changes_saved;
    }

    /// Whether a snapshot is to be taken at the end.
    fn saves_at_end(&self, how: ShutDown) -> bool {
        let state = self.state.lock();
        // The log that is there may have more than was loaded: a snapshot of nothing but that would only stand in its way.
        let is_idle = state.foreign_log == Some(LogLeft::Open) && self.keyspace.totals().2 == state.changes_loaded;
        how.save.unwrap_or(!state.save_points.is_empty() && !is_idle)
    }

    /// What has to be done now and then.
    pub(super) fn tick(self: &Arc<Self>) {
        self.live.tick();
        let mut state = self.state.lock();
        if self.loading.load(Ordering::Acquire) {
            return;
        }
        if self.ending.load(Ordering::Relaxed) {
            // Only what the end itself needs.
            if state.running.is_none() && self.live.health().needs_base {
                self.start(&mut state, Kind::Base, Arc::default());
            }
            return;
        }
        if state.looked.elapsed() >= self.scale.look {
            state.looked = Instant::now();
            if self.live.is_on() {
                self.live.look_at_files();
            } else if state.to_put_back.is_some() && state.running.is_none() {
                drop(state);
                self.put_back();
                state = self.state.lock();
            }
        }
        if let Some(kind) = self.due(&state) {
            self.start(&mut state, kind, Arc::default());
        }
    }

    /// The job that is to be begun by itself.
    fn due(&self, state: &State) -> Option<Kind> {
        let health = self.live.health();
        let changes = self.keyspace.totals().2;
        if state.running.is_some() {
            return None;
        }
        let waits = |history: &History, retry| history.tried.is_some_and(|tried| tried.elapsed() < retry);
        if health.needs_base {
            return (!waits(&state.bases, self.scale.needed_retry)).then_some(Kind::Base);
        }
        if state.wants_base && self.live.is_on() && !waits(&state.bases, self.scale.retry) {
            return Some(Kind::Base);
        }
        let (unsaved, age) = (changes.saturating_sub(state.changes_saved), state.last_save_at.elapsed());
        let point = state
            .save_points
            .iter()
            .find(|point| unsaved > 0 && unsaved >= point.changes && age > Duration::from_secs(point.seconds));
        if let Some(point) = point.filter(|_| !waits(&state.snapshots, self.scale.retry)) {
            tracing::info!("{unsaved} changes in {} seconds: saving", point.seconds);
            return Some(Kind::Snapshot);
        }
        let (percent, bytes) = (self.settings.auto_rewrite_percentage(), self.log_bytes(state));
        let grown = bytes.saturating_sub(state.rewritten_bytes) as u128 * 100;
        let due = self.live.is_on()
            && percent > 0
            && bytes >= self.settings.auto_rewrite_min_size()
            && grown >= u128::from(state.rewritten_bytes.max(1)) * u128::from(percent);
        if due && !waits(&state.bases, self.scale.retry) {
            tracing::info!("the log has grown to {bytes} bytes: rewriting it");
            return Some(Kind::Base);
        }
        None
    }

    /// Before the end: no change is made from here on, and what is to be saved is.
    ///
    /// # Errors
    /// Why it could not be saved; the server goes on then.
    pub(super) async fn prepare_end(self: &Arc<Self>, how: ShutDown) -> Result<(), String> {
        // No further job is begun.
        self.ending.store(true, Ordering::Release);
        if self.loading.load(Ordering::Acquire) {
            return Ok(());
        }
        let saves = self.saves_at_end(how);
        let begun = Instant::now();
        let saved = loop {
            let saved = self.save_all(saves).await;
            if saved.is_ok() || how.force || begun.elapsed() >= self.scale.end_patience {
                break saved;
            }
            // An error of a moment does not keep the server from ending.
            tokio::time::sleep(END_RETRY).await;
        };
        if saved.is_err() && !how.force {
            self.ending.store(false, Ordering::Release);
            return saved;
        }
        Ok(())
    }

    /// Save all that is to be, and have all synced that is logged.
    async fn save_all(self: &Arc<Self>, saves: bool) -> Result<(), String> {
        self.save_last(saves).await?;
        if !self.live.is_on() {
            return Ok(());
        }
        let confirmed = self.live.confirm_all().await;
        confirmed.map_err(|unconfirmed| format!("the log cannot be written: {}", unconfirmed.0))
    }

    async fn save_last(self: &Arc<Self>, saves: bool) -> Result<(), String> {
        // A change that was let in just before may have come after the cut: then once more.
        const TRIES: usize = 3;
        for _ in 0..if saves { TRIES } else { 0 } {
            let job = self.start_alone(Kind::Snapshot).await;
            await_job(&job).await.map(drop)?;
            if self.unsaved_changes() == 0 {
                break;
            }
        }
        if !saves && !self.live.health().needs_base {
            self.stop_running().await;
        }
        Ok(())
    }

    /// Start a job once no other runs; those that do are given up. Clients may begin some at any time.
    async fn start_alone(self: &Arc<Self>, kind: Kind) -> Arc<Job> {
        loop {
            self.stop_running().await;
            let mut state = self.state.lock();
            if state.running.is_none() {
                return self.start(&mut state, kind, Arc::default());
            }
        }
    }

    async fn stop_running(&self) {
        loop {
            let job = self.state.lock().running.as_ref().map(|running| {
                running.progress.stop.store(true, Ordering::Relaxed);
                running.job.clone()
            });
            match job {
                Some(job) => drop(await_job(&job).await),
                None => return,
            }
        }
    }

    /// After the last client has gone: save what was changed since [`prepare_end`](Self::prepare_end), if a snapshot was taken
    /// there.
    ///
    /// # Errors
    /// Why it could not be saved; the server goes on then, if it is not forced to end.
    pub(super) async fn save_rest(self: &Arc<Self>, how: ShutDown) -> Result<(), String> {
        let saves = self.saves_at_end(how);
        if !saves || self.loading.load(Ordering::Acquire) || self.unsaved_changes() == 0 {
            return Ok(());
        }
        let saved = self.save_last(true).await;
        if saved.is_err() && !how.force {
            self.ending.store(false, Ordering::Release);
            return saved;
        }
        Ok(())
    }

    /// Write and sync all that is logged, for the last time.
    pub(super) fn close(&self) {
        self.live.with_writer(|slot| {
            if let Some(writer) = slot.take()
                && let Err(error) = writer.close()
            {
                tracing::error!("the log could not be closed: {error}");
            }
        });
    }
}

/// Put a base under the log; `needed`: a sync had failed before its cut. Returns the log's id.
fn put_base(slot: &mut Option<LogWriter>, base: Base, needed: bool) -> Result<String, String> {
    let Some(writer) = slot else { return Err("the log was switched off meanwhile".to_owned()) };
    let put = match (writer.has_failed(), needed) {
        // What was written between the cut and the failure is neither in the base nor safe.
        (true, false) => return Err("a sync of the log failed meanwhile".to_owned()),
        (true, true) => writer.restart_after_failure(base),
        (false, _) => writer.retire(base),
    };
    put.map(|()| writer.manifest().id.to_string()).map_err(|error| error.to_string())
}

/// Begin a log on its first base. Returns its id.
fn begin_on(
    slot: &mut Option<LogWriter>,
    files: Arc<dyn Files>,
    (folder, beside): (&Path, Option<Beside>),
    (id, base): (LogId, Base),
    segment_bytes: u64,
) -> Result<String, String> {
    let mut writer =
        LogWriter::create_as(id, files.clone(), folder, Some(base), segment_bytes).map_err(|error| told(&error))?;
    if let Some(beside) = beside {
        beside.put_in_place(&*files).map_err(|error| told(&error))?;
        writer.relocate(&beside.place);
    }
    *slot = Some(writer);
    Ok(id.to_string())
}

/// A reason, and what can be done about it.
pub(super) fn told(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
            format!("{error}; free some space, or choose another folder ('dir')")
        }
        _ => error.to_string(),
    }
}

/// How a job ended.
pub(super) async fn await_job(job: &Job) -> JobOutcome {
    loop {
        match job.outcome() {
            Ok(outcome) => return outcome,
            Err(wait) => wait.await,
        }
    }
}

fn policy_of(settings: &Settings) -> SyncPolicy {
    match settings.appendfsync() {
        0 => SyncPolicy::Always,
        1 => SyncPolicy::EverySecond,
        _ => SyncPolicy::Never,
    }
}

fn describe(kind: Kind) -> &'static str {
    match kind {
        Kind::Snapshot => "snapshot",
        Kind::Base | Kind::FirstBase => "base of the log",
        Kind::LastSync => "end of the log",
        Kind::Backup => "backup",
    }
}

pub(super) fn unix_ms() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}
