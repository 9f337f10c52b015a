//! What a start loads, and loading it.
//!
//! | `appendonly` | there is | loaded |
//! | --- | --- | --- |
//! | yes | a log | the log |
//! | yes | a log, and a snapshot that has all of it and more: from a part of the log that a power loss took, or saved after the log was switched off | the snapshot, on which a new log is begun |
//! | yes | a log that was not switched off, and a later snapshot that lacks some of it | nothing: the start is refused, since either has what the other lacks |
//! | yes | a snapshot only | the snapshot, on which a new log is begun |
//! | no | a snapshot | the snapshot; a log with later changes is named in a warning |
//! | either | the log of a Redis, and none of ours | nothing: the start is refused, since that log is not read and may have more |
//!
//! Nothing is decided by what is loaded: while it is, no life ends, nothing is evicted, no limit applies.

use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::files::Files;
use super::log::{Damage, LogEnd, LogError, LogReader, Manifest, repair, segment};
use super::origin::{self, Origin, SnapshotHead};
use super::record::{Malformed, for_each_record};
use super::redo::{Failed, Redo};
use super::snapshot::read::{self, LoadError, Report};
use crate::keyspace::Keyspace;

/// Where data are, and how they are to be loaded.
pub struct Recovery {
    /// The file system.
    pub files: Arc<dyn Files>,
    /// The snapshot.
    pub snapshot: PathBuf,
    /// The folder of the log.
    pub log: PathBuf,
    /// Whether changes will be logged.
    pub appendonly: bool,
    /// Whether a log without its end is taken.
    pub load_truncated: bool,
    /// Whether what is sound of damaged files is taken.
    pub load_damaged: bool,
    /// Threads that load.
    pub threads: usize,
}

/// How far the loading is.
#[derive(Default)]
pub struct LoadProgress {
    /// The snapshot, or the base of the log.
    pub snapshot: read::Progress,
    log_bytes: AtomicU64,
    log_bytes_done: AtomicU64,
    records: AtomicU64,
}

impl LoadProgress {
    /// Bytes to be read.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.snapshot.bytes() + self.log_bytes.load(Ordering::Relaxed)
    }

    /// Bytes that were read.
    #[must_use]
    pub fn bytes_done(&self) -> u64 {
        self.snapshot.bytes_done() + self.log_bytes_done.load(Ordering::Relaxed)
    }

    /// Changes done again.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.records.load(Ordering::Relaxed)
    }
}

/// What was loaded.
pub struct Loaded {
    /// From where.
    pub source: Source,
    /// Sentences for the operator, each a warning.
    pub warnings: Vec<String>,
    /// Keys that were dropped because their life was over.
    pub expired: u64,
    /// There is a log that was not loaded.
    pub log_left: Option<LogLeft>,
    /// What the snapshot that was loaded has of logs.
    pub origin: Origin,
    /// The snapshot holds what was not loaded: keys of other types, or damaged ones.
    pub has_more: bool,
    /// The log needs another base: the one that it is on is damaged.
    pub wants_base: bool,
}

/// A log that was not loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLeft {
    /// The snapshot has all of it.
    Done,
    /// It may have changes that the snapshot lacks.
    Open,
}

/// Where the data came from.
pub enum Source {
    /// There was nothing.
    Nothing,
    /// The snapshot.
    Snapshot,
    /// The log, which ends here.
    Log(Box<LogEnd>),
}

/// Which of the two is loaded.
enum Choice {
    Snapshot(LogLeft),
    /// The snapshot may have something that the log lacks.
    Log {
        has_more: bool,
    },
}

/// Data were not loaded: the sentence for the operator.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct RecoveryError(pub String);

/// What can be done about damage.
const ADVICE: &str = "; 'seendb check' tells more, 'load-damaged yes' loads what is sound";

/// What can be done about a log that cannot be read.
fn advice(error: &LogError, log: &Path) -> String {
    let folder = origin::shell_word(log);
    match error {
        LogError::Damaged(_) => format!(
            "; `seendb check {folder}` tells more, 'load-damaged yes' or `seendb check --fix {folder}` takes what comes before \
             and keeps the rest beside it"
        ),
        LogError::Manifest(_) => format!(
            "; `seendb check --fix {folder}` makes the manifest again if the other files are whole; else move the folder away \
             and restore a backup"
        ),
        LogError::Io { .. } | LogError::Segment { .. } => {
            format!("; put right what keeps it from being read, or move {folder} away and restore a backup")
        }
    }
}

fn count(number: u64, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// The shell's command that gives a file or folder another name.
fn move_aside(path: &Path, moment: u64) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let other = path.with_file_name(format!("{name}.aside-{moment}"));
    format!("mv {} {}", origin::shell_word(path), origin::shell_word(&other))
}

/// A file or folder in which a Redis keeps its own log, beside this snapshot or where our log would be. Nothing here reads it.
#[must_use]
pub fn log_of_redis(files: &dyn Files, snapshot: &Path, log: &Path) -> Option<PathBuf> {
    let is_of_redis = |name: &PathBuf| name.to_string_lossy().contains(".aof");
    if files.list(log).unwrap_or_default().iter().any(is_of_redis) {
        return Some(log.to_owned());
    }
    let single = snapshot.with_file_name("appendonly.aof");
    match files.open(&single) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => None,
        // One that cannot be opened is one all the same.
        Ok(_) | Err(_) => Some(single),
    }
}

/// What to say of the [log of a Redis](log_of_redis), and how its data are got.
#[must_use]
pub fn of_redis(log: &Path) -> String {
    format!(
        "'{}' is the append-only log of a Redis, which is not read, and may have what a snapshot lacks: start that Redis on it \
         once more and send it BGSAVE, then take its dump.rdb alone, or use 'seendb copy' between the two",
        log.display()
    )
}

fn in_file(path: &Path) -> impl Fn(&dyn Display) -> RecoveryError {
    move |reason| RecoveryError(format!("cannot load '{}': {reason}", path.display()))
}

impl Recovery {
    /// Load into an empty keyspace. The lives of its keys are held meanwhile.
    ///
    /// # Errors
    /// [`RecoveryError`]; the files are as they were.
    pub fn run(&self, keyspace: &Keyspace, progress: &LoadProgress) -> Result<Loaded, RecoveryError> {
        keyspace.hold_lives(true);
        let loaded = self.load(keyspace, progress);
        keyspace.hold_lives(false);
        loaded
    }

    fn load(&self, keyspace: &Keyspace, progress: &LoadProgress) -> Result<Loaded, RecoveryError> {
        let snapshot = self.look_at_snapshot()?;
        let mut warnings = Vec::new();
        let reader = match self.open_log() {
            Err(error) if !self.appendonly => {
                warnings.push(format!("'{}' holds a log that cannot be read: {error}", self.log.display()));
                let loaded = self.load_snapshot(snapshot.as_ref(), keyspace, progress, warnings)?;
                return Ok(Loaded { log_left: Some(LogLeft::Open), ..loaded });
            }
            reader => reader.map_err(|error| self.unreadable(&error))?,
        };
        let Some(reader) = reader else {
            if self.appendonly {
                self.refuse_log_without_manifest()?;
            }
            if let Some(log) = log_of_redis(&*self.files, &self.snapshot, &self.log) {
                return Err(RecoveryError(format!("{}; or move it away to begin without it", of_redis(&log))));
            }
            return self.load_snapshot(snapshot.as_ref(), keyspace, progress, warnings);
        };
        let choice = match self.appendonly {
            true => self.choose(reader.manifest(), snapshot.as_ref(), &mut warnings)?,
            false => Choice::Snapshot(self.log_left(reader.manifest(), snapshot.as_ref(), &mut warnings)),
        };
        match choice {
            Choice::Snapshot(left) => {
                let loaded = self.load_snapshot(snapshot.as_ref(), keyspace, progress, warnings)?;
                Ok(Loaded { log_left: Some(left), ..loaded })
            }
            Choice::Log { has_more } => {
                let loaded = self.load_log(reader, snapshot.as_ref(), keyspace, progress, warnings)?;
                // What a damaged base has lost may be in the snapshot.
                Ok(Loaded { has_more: has_more || loaded.wants_base, ..loaded })
            }
        }
    }

    /// Whether the log is loaded that is there, or the snapshot.
    fn choose(
        &self,
        manifest: &Manifest,
        snapshot: Option<&SnapshotHead>,
        warnings: &mut Vec<String>,
    ) -> Result<Choice, RecoveryError> {
        let all_in_log = Choice::Log { has_more: false };
        let Some(snapshot) = snapshot else { return Ok(all_in_log) };
        let (log, file) = (self.log.display(), self.snapshot.display());
        if let Some(position) = snapshot.origin.position_in(&manifest.id) {
            // One that names this log says more exactly which is later: both may be of the same millisecond. Reading the whole
            // log twice is dear, but this is asked only where there is a snapshot of it.
            let end = match self.log_end() {
                // Up to there it would be loaded.
                Err(LogError::Damaged(damage)) if self.load_damaged => Some(damage.position),
                end => end.map_err(|error| self.unreadable(&error))?,
            };
            if end.is_some_and(|end| end < position || (end == position && snapshot.origin.beyond)) {
                warnings.push(format!(
                    "the log in '{log}' ends before '{file}' was saved: the snapshot is loaded, and a new log is begun"
                ));
                return Ok(Choice::Snapshot(LogLeft::Done));
            }
            if !snapshot.origin.beyond {
                return Ok(all_in_log);
            }
        }
        if let Some(closed) = manifest.closed {
            if snapshot.moment >= closed {
                warnings.push(format!(
                    "the log in '{log}' was switched off before '{file}' was saved: the snapshot is loaded, and a new log is begun"
                ));
                return Ok(Choice::Snapshot(LogLeft::Done));
            }
            return Ok(all_in_log);
        }
        let begun = self.base_moment(manifest);
        if snapshot.moment <= begun {
            return Ok(all_in_log);
        }
        let written = self.last_written(manifest);
        if snapshot.moment > written {
            return Err(self.two_histories(manifest, snapshot, written));
        }
        warnings.push(format!(
            "'{file}' was not made from the log in '{log}', which was written later and is loaded: the snapshot is not, and \
             is kept under another name before the next one takes its place"
        ));
        Ok(Choice::Log { has_more: true })
    }

    /// What to say of a log where none is asked for.
    fn log_left(&self, manifest: &Manifest, snapshot: Option<&SnapshotHead>, warnings: &mut Vec<String>) -> LogLeft {
        let position = snapshot.and_then(|snapshot| snapshot.origin.position_in(&manifest.id));
        let has_all = match position {
            Some(position) => self.log_end().is_ok_and(|end| end.is_some_and(|end| end <= position)),
            None => snapshot.zip(manifest.closed).is_some_and(|(snapshot, closed)| snapshot.moment >= closed),
        };
        if has_all {
            return LogLeft::Done;
        }
        warnings.push(format!(
            "'{}' holds a log, which is not loaded because 'appendonly' is 'no', and may hold changes that the snapshot \
             lacks; to load it, end this server with SHUTDOWN NOSAVE before it saves anything, and start it with \
             'appendonly yes'",
            self.log.display()
        ));
        LogLeft::Open
    }

    /// When the base of a log was saved, in milliseconds since 1970: older snapshots were there before the log.
    fn base_moment(&self, manifest: &Manifest) -> u64 {
        let base = manifest.base.as_ref().and_then(|base| self.files.open(&self.log.join(&base.file)).ok());
        base.and_then(|file| SnapshotHead::read(&*file).ok()).map_or(0, |head| head.moment)
    }

    /// When a log was written last, in milliseconds since 1970; 0 where no file system can tell.
    fn last_written(&self, manifest: &Manifest) -> u64 {
        let names = manifest.segments.iter().map(|segment| &*segment.file);
        let modified = |name| self.files.modified(&self.log.join(name)).ok().flatten();
        names.filter_map(modified).max().unwrap_or(0)
    }

    /// Neither the log nor the snapshot has all: only the operator can say which counts.
    fn two_histories(&self, manifest: &Manifest, snapshot: &SnapshotHead, written: u64) -> RecoveryError {
        let base = manifest.base.as_ref();
        let base = base.map_or_else(|| "no keys".to_owned(), |base| self.keys_in(&self.log.join(&base.file)));
        let changes = self.records_in_log().map_or_else(|_| "changes".to_owned(), |records| count(records, "change"));
        let aside = |path| move_aside(path, snapshot.moment);
        RecoveryError(format!(
            "cannot tell which data count: '{}' ({}, saved {}) is later than the log in '{}' (begun with {base}, {changes} \
             since, last written {}), but lacks some of it; nothing was changed. To load the log: {}; to load the snapshot \
             instead: {}; then start again",
            self.snapshot.display(),
            self.keys_in(&self.snapshot),
            origin::utc(snapshot.moment),
            self.log.display(),
            origin::utc(written),
            aside(&self.snapshot),
            aside(&self.log),
        ))
    }

    /// How many keys a snapshot has, as words.
    fn keys_in(&self, path: &Path) -> String {
        let file = self.files.open(path).ok();
        let walked = file.and_then(|file| read::walk(&*file, true, &read::Progress::default(), &mut |_| {}).ok());
        walked.map_or_else(|| "an unknown number of keys".to_owned(), |report| count(report.keys, "key"))
    }

    /// What else there is to load than a log whose base is damaged.
    fn instead(&self, snapshot: Option<&SnapshotHead>) -> String {
        let Some(snapshot) = snapshot else { return String::new() };
        format!(
            ". There is also '{}' ({}, saved {}): to load that instead: {}; then start again",
            self.snapshot.display(),
            self.keys_in(&self.snapshot),
            origin::utc(snapshot.moment),
            move_aside(&self.log, snapshot.moment)
        )
    }

    fn records_in_log(&self) -> Result<u64, LogError> {
        let (mut records, Some(mut reader)) = (0, self.open_log()?) else { return Ok(0) };
        while let Some(batch) = reader.next_batch()? {
            // What is no record is found when the log is loaded.
            let _ = for_each_record(batch.records, |_| -> Result<(), Malformed> {
                records += 1;
                Ok(())
            });
        }
        Ok(records)
    }

    /// A log without its manifest must not be taken for nothing, and removed when a new one is begun.
    fn refuse_log_without_manifest(&self) -> Result<(), RecoveryError> {
        for name in self.files.list(&self.log).unwrap_or_default() {
            let is_segment = name.to_str().is_some_and(|name| segment::number_of(name).is_some());
            let has_records = || segment::has_records(&*self.files.open(&self.log.join(&name))?);
            if is_segment && has_records().map_err(|error| in_file(&self.log.join(&name))(&error))? {
                return Err(in_file(&self.log)(&format!(
                    "'{}' has changes, but there is no manifest that says what they belong to; put it back, or have \
                     `seendb check --fix {}` make it again, or move the folder away to begin a new log",
                    name.display(),
                    origin::shell_word(&self.log)
                )));
            }
        }
        Ok(())
    }

    fn unreadable(&self, error: &LogError) -> RecoveryError {
        in_file(&self.log)(&format!("{error}{}", advice(error, &self.log)))
    }

    fn open_log(&self) -> Result<Option<LogReader>, LogError> {
        LogReader::open(self.files.clone(), &self.log)
    }

    fn log_end(&self) -> Result<Option<u64>, LogError> {
        self.open_log()?.map(|reader| reader.finish().map(|end| end.position)).transpose()
    }

    fn look_at_snapshot(&self) -> Result<Option<SnapshotHead>, RecoveryError> {
        match self.files.open(&self.snapshot) {
            Ok(file) => {
                let mut head = SnapshotHead::read(&*file).map_err(|error| in_file(&self.snapshot)(&error))?;
                if head.moment == 0 {
                    head.moment = self.files.modified(&self.snapshot).ok().flatten().unwrap_or(0);
                }
                Ok(Some(head))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(in_file(&self.snapshot)(&error)),
        }
    }

    fn load_snapshot(
        &self,
        snapshot: Option<&SnapshotHead>,
        keyspace: &Keyspace,
        progress: &LoadProgress,
        mut warnings: Vec<String>,
    ) -> Result<Loaded, RecoveryError> {
        let Some(head) = snapshot else {
            let (source, origin) = (Source::Nothing, Origin::default());
            return Ok(Loaded {
                source,
                warnings,
                expired: 0,
                log_left: None,
                origin,
                has_more: false,
                wants_base: false,
            });
        };
        let now = Some(keyspace.clock().now());
        let report = self.read(&self.snapshot, keyspace, now, &progress.snapshot)?;
        if report.keys == 0 && report.dropped.count > 0 {
            // The next snapshot would take its place.
            let what = report.dropped.listed.first().map(ToString::to_string).unwrap_or_default();
            return Err(in_file(&self.snapshot)(&format!(
                "nothing in it is sound: {what}; move it away to begin anew"
            )));
        }
        self.tell(&self.snapshot, &report, &mut warnings);
        let has_more = !report.skipped.is_empty() || report.dropped.count > 0;
        // What was dropped is not included any more.
        let origin = if report.dropped.count == 0 { head.origin.clone() } else { Origin::default() };
        Ok(Loaded {
            source: Source::Snapshot,
            warnings,
            expired: report.expired,
            log_left: None,
            origin,
            has_more,
            wants_base: false,
        })
    }

    fn read(
        &self,
        path: &Path,
        keyspace: &Keyspace,
        now: Option<u64>,
        progress: &read::Progress,
    ) -> Result<Report, RecoveryError> {
        let fail = in_file(path);
        let file = self.files.open(path).map_err(|error| fail(&error))?;
        let options = read::Options { accept_damaged: self.load_damaged, threads: self.threads, now };
        read::load(&*file, keyspace, &options, progress).map_err(|error| match error {
            LoadError::Damage(damage) => fail(&format!("{damage}{ADVICE}")),
            error => fail(&error),
        })
    }

    /// Do the log again, from its base to its end, or to a damaged place if that is to be accepted.
    fn redo(
        &self,
        reader: &mut LogReader,
        keyspace: &Keyspace,
        progress: &LoadProgress,
        failed: &Failed,
    ) -> Result<Option<Box<Damage>>, RecoveryError> {
        std::thread::scope(|scope| {
            let mut redo = Redo::new(scope, self.threads, keyspace, failed);
            loop {
                let (done, _) = reader.progress();
                progress.log_bytes_done.store(done, Ordering::Relaxed);
                let (batch, damage) = match reader.next_batch() {
                    Ok(batch) => (batch, None),
                    Err(LogError::Damaged(damage)) if self.load_damaged => (None, Some(damage)),
                    Err(error) => return Err(self.unreadable(&error)),
                };
                let Some(batch) = batch else {
                    return redo.finish().map(|()| damage).map_err(|error| in_file(&self.log)(&error));
                };
                let count = redo.take(batch.records).map_err(|error| {
                    // Several threads are at it: the record is there or a little before.
                    let (file, offset) = (self.log.join(batch.file), batch.offset);
                    RecoveryError(format!("cannot load '{}': offset {offset} or before: {error}", file.display()))
                })?;
                progress.records.fetch_add(count, Ordering::Relaxed);
            }
        })
    }

    /// A damaged base goes when another one takes its place, but not what may be in it.
    fn keep_damaged(&self, path: &Path, warnings: &mut Vec<String>) -> Result<(), RecoveryError> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let kept = path.with_file_name(format!("{name}{}", repair::SUFFIX));
        match self.files.link(path, &kept) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                let fail = in_file(path);
                return Err(fail(&format!("it is damaged, and cannot be kept as '{}': {error}", kept.display())));
            }
            _ => {}
        }
        warnings.push(format!("the damaged base is kept as '{}', and a new one is written", kept.display()));
        Ok(())
    }

    /// Cut a log at its damage, so that it can be continued; what is cut off is kept beside it.
    fn repair(&self, damage: &Damage, warnings: &mut Vec<String>) -> Result<LogReader, RecoveryError> {
        let fail = in_file(&self.log);
        warnings.push(format!("'{}': damaged, loaded up to there: {damage}", self.log.display()));
        let fixed = repair::fix(&self.files, &self.log).map_err(|error| fail(&error))?;
        for name in fixed.iter().flat_map(|(_, names)| names) {
            warnings.push(format!("what was cut off the log is kept as '{}'", self.log.join(name).display()));
        }
        let reader = self.open_log().map_err(|error| fail(&error))?;
        reader.ok_or_else(|| fail(&"the log is gone"))
    }

    fn tell(&self, path: &Path, report: &Report, warnings: &mut Vec<String>) {
        let path = path.display();
        for (kind, count) in &report.skipped {
            let keys = self::count(*count, "key");
            warnings.push(format!("'{path}': {keys} of type {kind} stepped over"));
        }
        for loss in &report.dropped.listed {
            warnings.push(format!("'{path}': damaged, not loaded: {loss}"));
        }
        let more = report.dropped.count - report.dropped.listed.len() as u64;
        if more > 0 {
            warnings.push(format!("'{path}': damaged in {more} further places"));
        }
    }

    fn load_log(
        &self,
        mut reader: LogReader,
        snapshot: Option<&SnapshotHead>,
        keyspace: &Keyspace,
        progress: &LoadProgress,
        mut warnings: Vec<String>,
    ) -> Result<Loaded, RecoveryError> {
        let fail = in_file(&self.log);
        progress.log_bytes.store(reader.progress().1, Ordering::Relaxed);
        let mut wants_base = false;
        if let Some(base) = &reader.manifest().base {
            let path = self.log.join(&base.file);
            if self.files.open(&path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
                return Err(in_file(&path)(&format!(
                    "the log's base is not there, without which it cannot be loaded; put it back, or move {} away and restore \
                     a backup",
                    origin::shell_word(&self.log)
                )));
            }
            let report = self
                .read(&path, keyspace, None, &progress.snapshot)
                .map_err(|error| RecoveryError(error.0 + &self.instead(snapshot)))?;
            if let (0, Some(loss)) = (report.keys, report.dropped.listed.first()) {
                let folder = origin::shell_word(&self.log);
                let text = format!("nothing in it is sound: {loss}; move {folder} away and restore a backup");
                return Err(in_file(&path)(&(text + &self.instead(snapshot))));
            }
            self.tell(&path, &report, &mut warnings);
            if report.dropped.count > 0 {
                self.keep_damaged(&path, &mut warnings)?;
                wants_base = true;
            }
        }
        let failed = if wants_base { Failed::lenient() } else { Failed::default() };
        let damage = self.redo(&mut reader, keyspace, progress, &failed)?;
        if failed.unfitting() > 0 {
            warnings.push(format!(
                "'{}': {} of keys that the damaged base lacks were stepped over",
                self.log.display(),
                count(failed.unfitting(), "change")
            ));
        }
        if let Some(damage) = damage {
            reader = self.repair(&damage, &mut warnings)?;
        }
        let mut end = reader.finish().map_err(|error| self.unreadable(&error))?;
        if let Some(torn) = &end.torn {
            if !self.load_truncated {
                let text = format!("{torn}; 'aof-load-truncated yes' starts without it, and keeps it beside the log");
                return Err(fail(&text));
            }
            let kept = match repair::keep_torn(&*self.files, &self.log, torn) {
                Ok(Some(name)) => format!("cut off, and kept as '{}'", self.log.join(name).display()),
                Ok(None) => "cut off, and there is nothing to keep".to_owned(),
                Err(error) => {
                    end.keeps_tail = true;
                    format!(
                        "not read, and left in '{}' until the log is rewritten, as it cannot be copied: {error}",
                        torn.file
                    )
                }
            };
            warnings.push(format!("'{}': {torn}; {kept}", self.log.display()));
        }
        let (source, origin) = (Source::Log(Box::new(end)), Origin::default());
        Ok(Loaded { source, warnings, expired: 0, log_left: None, origin, has_more: false, wants_base })
    }
}
