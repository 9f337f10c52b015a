//! Snapshots and the log of the running server: when they are made, and one after the other.
//!
//! One *job* runs at a time, on a thread of its own: a snapshot, a new base for the log, a backup for a client. What is asked for
//! meanwhile is refused or waits its turn, as in Redis.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::priority::stand_back;
use super::waiting::block_on;
use crate::commands::context::{Begun, ChangeGate, Job, JobDone, JobOutcome, ShutDown, Task};
use crate::commands::error::CommandError;
use crate::config::{SavePoint, Settings};
use crate::keyspace::Keyspace;
use crate::keyspace::latch::{Latch, Wait};
use crate::keyspace::snapshot::Snapshot;
use crate::persist::files::{Files, FolderLock};
use crate::persist::live::{Cut, Gate, LiveLog, SyncPolicy};
use crate::persist::log::{Base, LogWriter, SEGMENT_BYTES, next_base_name};
use crate::persist::recovery::{LOG_ID_FIELD, LOG_POSITION_FIELD, LoadProgress, MOMENT_FIELD};
use crate::persist::snapshot::save::{self, save};

/// After a snapshot or a base that failed the next one is tried so much later.
const RETRY: Duration = Duration::from_secs(5);
/// A base that the log needs to go on at all is tried again sooner.
const NEEDED_RETRY: Duration = Duration::from_secs(1);

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
    /// A snapshot for a client.
    Backup,
}

impl Kind {
    pub(super) fn is_base(self) -> bool {
        matches!(self, Self::Base | Self::FirstBase)
    }
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
    save_scheduled: bool,
    /// Who waits for a base that will be made after the job under way.
    base_scheduled: Option<(Kind, Arc<Job>)>,
    pub(super) snapshots: History,
    pub(super) bases: History,
    /// When the last snapshot was made, in seconds since 1970.
    pub(super) last_save: u64,
    last_save_at: Instant,
    /// The keyspace's count of changes at its cut.
    changes_saved: u64,
    save_points: Vec<SavePoint>,
    log_id: Option<String>,
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
        self.base_scheduled.is_some()
    }
}

/// Snapshots and the log of the running server.
pub(super) struct Durability {
    keyspace: Arc<Keyspace>,
    settings: Arc<Settings>,
    files: Arc<dyn Files>,
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
    /// Changes wait: the server is about to end.
    ending: AtomicBool,
    ending_latch: Mutex<Arc<Latch>>,
}

impl Durability {
    pub(super) fn new(
        keyspace: Arc<Keyspace>,
        settings: Arc<Settings>,
        live: Arc<LiveLog>,
        files: Arc<dyn Files>,
    ) -> Self {
        let now = unix_ms() / 1000;
        let state = State {
            running: None,
            save_scheduled: false,
            base_scheduled: None,
            snapshots: History::default(),
            bases: History::default(),
            last_save: now,
            last_save_at: Instant::now(),
            changes_saved: 0,
            save_points: settings.save_points(),
            log_id: None,
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
            live,
            state: Mutex::new(state),
            loading: AtomicBool::new(true),
            load: LoadProgress::default(),
            started: Instant::now(),
            failing: AtomicBool::new(false),
            folder_lock: Mutex::default(),
            ending: AtomicBool::new(false),
            ending_latch: Mutex::default(),
        }
    }

    pub(super) fn files(&self) -> &Arc<dyn Files> {
        &self.files
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
        let refused =
            |reason: &dyn std::fmt::Display| format!("cannot write the log in '{}': {reason}", folder.display());
        self.files.create_folder(&folder).map_err(|error| refused(&error))?;
        let mut lock = self.folder_lock.lock();
        if lock.is_none() {
            *lock = Some(self.files.lock_folder(&folder).map_err(|error| match error.kind() {
                std::io::ErrorKind::WouldBlock => refused(&"another process uses it"),
                _ => refused(&error),
            })?);
        }
        Ok(())
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
        if self.ending.load(Ordering::Relaxed) {
            let latch = self.ending_latch.lock().clone();
            if self.ending.load(Ordering::Acquire) {
                return ChangeGate::Wait(Wait::new(latch));
            }
        }
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
                state.save_scheduled = true;
                Ok(Begun::Later)
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
            (Task::RewriteLog, Some(kind)) if kind.is_base() => {
                Err(CommandError::text("ERR Background append only file rewriting already in progress"))
            }
            (Task::RewriteLog, Some(_)) => {
                state.base_scheduled.get_or_insert_with(|| (Kind::Base, Arc::default()));
                Ok(Begun::Later)
            }
            (Task::SyncLog { timeout }, _) => Ok(Begun::Now(self.await_sync(timeout))),
            (Task::ShutDown(_), _) => Err(CommandError::text("ERR the server cannot be ended from here")),
        }
    }

    /// A job that is done when all that is logged now is safe.
    fn await_sync(&self, timeout: u64) -> Arc<Job> {
        let job = Arc::new(Job::default());
        let (confirmed, theirs) = (self.live.confirm(None), job.clone());
        tokio::spawn(async move {
            let limit =
                if timeout == 0 { Duration::from_secs(u64::from(u32::MAX)) } else { Duration::from_millis(timeout) };
            theirs.finish(match tokio::time::timeout(limit, confirmed).await {
                Ok(Ok(())) => Ok(JobDone::Done),
                Ok(Err(unconfirmed)) => Err(unconfirmed.0),
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
            stand_back();
            let outcome = own.make(kind, &progress);
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
        }
    }

    /// The job is over: write down how it went, tell who waits, begin what waits its turn.
    fn finish(self: &Arc<Self>, kind: Kind, outcome: JobOutcome) {
        let mut state = self.state.lock();
        let Some(running) = state.running.take() else { return };
        let time = running.begun.elapsed();
        let history = if kind.is_base() { &mut state.bases } else { &mut state.snapshots };
        match &outcome {
            Ok(_) => {
                tracing::info!("{} saved in {:.3} s", describe(kind), time.as_secs_f64());
                if kind != Kind::Backup {
                    *history = History { ok: true, count: history.count + 1, time: Some(time), tried: None };
                }
            }
            Err(_) if running.progress.stop.load(Ordering::Relaxed) => tracing::info!("{} given up", describe(kind)),
            Err(reason) => {
                tracing::error!("{} could not be saved: {reason}", describe(kind));
                if kind != Kind::Backup {
                    (history.ok, history.tried) = (false, Some(Instant::now()));
                }
            }
        }
        self.look_at_failures(&state);
        let next = if let Some((kind, job)) = state.base_scheduled.take() {
            Some((kind, job))
        } else {
            std::mem::take(&mut state.save_scheduled).then(|| (Kind::Snapshot, Arc::default()))
        };
        if let Some((kind, job)) = next {
            self.start(&mut state, kind, job);
        }
        drop(state);
        running.job.finish(outcome);
    }

    /// Cut: as soon as no key is away.
    fn cut(&self, mut at_cut: impl FnMut()) -> Snapshot {
        loop {
            match self.keyspace.snapshot(&mut at_cut) {
                Ok(snapshot) => return snapshot,
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
        let (changes, moment) = self.save_to(&path, progress)?;
        let mut state = self.state.lock();
        (state.changes_saved, state.last_save, state.last_save_at) = (changes, moment / 1000, Instant::now());
        Ok(())
    }

    /// Save a snapshot; the keyspace's count of changes at the cut, and the time before it.
    fn save_to(&self, path: &Path, progress: &save::Progress) -> Result<(u64, u64), String> {
        let (mut changes, mut position, mut logged, moment) = (0, 0, false, unix_ms());
        let snapshot = self.cut(|| {
            (changes, position, logged) = (self.keyspace.totals().2, self.live.position(), self.live.is_on());
        });
        let mut fields = vec![(MOMENT_FIELD, moment.to_string())];
        if let (true, Some(id)) = (logged, self.state.lock().log_id.clone()) {
            fields.push((LOG_ID_FIELD, id));
            fields.push((LOG_POSITION_FIELD, position.to_string()));
        }
        save(&*self.files, path, snapshot, &self.options(fields), progress)
            .map_err(|error| format!("'{}': {error}", path.display()))?;
        Ok((changes, moment))
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

    fn make_base(self: &Arc<Self>, kind: Kind, progress: &Arc<save::Progress>) -> Result<(), String> {
        let made = self.try_base(kind, progress);
        if made.is_err() && kind == Kind::FirstBase {
            self.live.switch_off();
            // There is no log, so the setting must not say that there is one.
            let _ = self.settings.set(&[(b"appendonly", b"no")]);
        }
        made
    }

    fn try_base(self: &Arc<Self>, kind: Kind, progress: &Arc<save::Progress>) -> Result<(), String> {
        let folder = self.log_folder();
        let refused = |error: std::io::Error| format!("'{}': {error}", folder.display());
        self.lock_folder()?;
        let name = next_base_name(&*self.files, &folder).map_err(refused)?;
        let path = folder.join(&name);
        let mut cut = Cut { position: 0, after_failure: false };
        let snapshot = self.cut(|| {
            if kind == Kind::FirstBase {
                self.live.switch_on(0);
            }
            cut = self.live.cut();
        });
        let bytes = save(&*self.files, &path, snapshot, &self.options(Vec::new()), progress).map_err(refused)?;
        let (files, base) = (self.files.clone(), Base { file: name, cut: cut.position });
        let (log_folder, progress) = (folder.clone(), progress.clone());
        let put = self.live.with_writer(move |slot| match progress.stop.load(Ordering::Relaxed) {
            // The log may be switched off already: then the base must not begin another one, which lacks what came since its cut.
            true => Err("given up".to_owned()),
            false => put_base(slot, files, &log_folder, base, cut.after_failure),
        });
        let id = match put {
            Some(Ok(id)) => id,
            Some(Err(reason)) => return Err(format!("'{}': {reason}", folder.display())),
            None => return Err("the log's thread is gone".to_owned()),
        };
        let mut state = self.state.lock();
        (state.log_id, state.cut, state.base_bytes) = (Some(id), cut.position, bytes);
        state.rewritten_bytes = self.log_bytes(&state);
        drop(state);
        if kind == Kind::FirstBase {
            // Whoever hears that the log is on can rely on it for all that was answered before.
            block_on(self.live.confirm(None)).map_err(|unconfirmed| unconfirmed.0)?;
        }
        Ok(())
    }

    /// Switch the log on or off, as the setting says now. The job is done when that is so on disk too.
    pub(super) fn switch_log(self: &Arc<Self>) -> Arc<Job> {
        let mut state = self.state.lock();
        if self.settings.appendonly() {
            if state.running.is_some() {
                let (_, job) = state.base_scheduled.get_or_insert_with(|| (Kind::FirstBase, Arc::default()));
                return job.clone();
            }
            return self.start(&mut state, Kind::FirstBase, Arc::default());
        }
        if let Some(running) = state.running.as_ref().filter(|running| running.kind.is_base()) {
            running.progress.stop.store(true, Ordering::Relaxed);
        }
        state.log_id = None;
        if let Some((_, job)) = state.base_scheduled.take() {
            job.finish(Err("switched off again".to_owned()));
        }
        drop(state);
        let (own, job) = (self.clone(), Arc::new(Job::default()));
        let theirs = job.clone();
        let switch = move || {
            let closed = own.live.with_writer(|slot| slot.take().map(|writer| writer.switch_off(unix_ms())));
            own.live.switch_off();
            *own.folder_lock.lock() = None;
            theirs.finish(match closed.flatten() {
                Some(Err(error)) => Err(error.to_string()),
                _ => Ok(JobDone::Done),
            });
        };
        if let Err(error) = thread::Builder::new().name("seendb-log-off".into()).spawn(switch) {
            job.finish(Err(error.to_string()));
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
    }

    /// What has to be done now and then.
    pub(super) fn tick(self: &Arc<Self>) {
        self.live.tick();
        if self.loading.load(Ordering::Acquire) || self.ending.load(Ordering::Relaxed) {
            return;
        }
        let mut state = self.state.lock();
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
            return (!waits(&state.bases, NEEDED_RETRY)).then_some(Kind::Base);
        }
        let (unsaved, age) = (changes.saturating_sub(state.changes_saved), state.last_save_at.elapsed());
        let point = state
            .save_points
            .iter()
            .find(|point| unsaved > 0 && unsaved >= point.changes && age > Duration::from_secs(point.seconds));
        if let Some(point) = point.filter(|_| !waits(&state.snapshots, RETRY)) {
            tracing::info!("{unsaved} changes in {} seconds: saving", point.seconds);
            return Some(Kind::Snapshot);
        }
        let (percent, bytes) = (self.settings.auto_rewrite_percentage(), self.log_bytes(state));
        let grown = bytes.saturating_sub(state.rewritten_bytes) as u128 * 100;
        let due = self.live.is_on()
            && percent > 0
            && bytes >= self.settings.auto_rewrite_min_size()
            && grown >= u128::from(state.rewritten_bytes.max(1)) * u128::from(percent);
        if due && !waits(&state.bases, RETRY) {
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
        if self.loading.load(Ordering::Acquire) {
            return Ok(());
        }
        self.ending.store(true, Ordering::Release);
        let saves = how.save.unwrap_or_else(|| !self.state.lock().save_points.is_empty());
        let saved = self.save_last(saves).await;
        if saved.is_err() && !how.force {
            self.ending.store(false, Ordering::Release);
            std::mem::take(&mut *self.ending_latch.lock()).release();
            return saved;
        }
        Ok(())
    }

    async fn save_last(self: &Arc<Self>, saves: bool) -> Result<(), String> {
        loop {
            let job = self.state.lock().running.as_ref().map(|running| {
                running.progress.stop.store(true, Ordering::Relaxed);
                running.job.clone()
            });
            match job {
                Some(job) => drop(await_job(&job).await),
                None => break,
            }
        }
        // A change that was let in just before may have come after the cut: then once more.
        const TRIES: usize = 3;
        for _ in 0..if saves { TRIES } else { 0 } {
            let job = self.start(&mut self.state.lock(), Kind::Snapshot, Arc::default());
            await_job(&job).await.map(drop)?;
            if self.unsaved_changes() == 0 {
                break;
            }
        }
        Ok(())
    }

    /// Whoever waits to change something does not any more: the connections are about to end.
    pub(super) fn let_go(&self) {
        self.failing.store(false, Ordering::Relaxed);
        self.ending_latch.lock().release();
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

/// Put a base under the log; `after_failure`: a sync had failed before its cut.
fn put_base(
    slot: &mut Option<LogWriter>,
    files: Arc<dyn Files>,
    folder: &Path,
    base: Base,
    after_failure: bool,
) -> Result<String, String> {
    let put = match slot {
        // What was logged between its cut and the failure is in no other file than the one that is given up.
        Some(writer) if writer.has_failed() && !after_failure => {
            Err("a sync of the log failed since its cut".to_owned())
        }
        Some(writer) if writer.has_failed() => writer.restart_after_failure(base).map_err(|error| error.to_string()),
        Some(writer) => writer.retire(base).map_err(|error| error.to_string()),
        None => {
            let created = LogWriter::create(files, folder, Some(base), SEGMENT_BYTES);
            created.map(|writer| *slot = Some(writer)).map_err(|error| error.to_string())
        }
    };
    put.map(|()| slot.as_ref().map(|writer| writer.manifest().id.to_string()).unwrap_or_default())
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
        Kind::Backup => "backup",
    }
}

pub(super) fn unix_ms() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}
