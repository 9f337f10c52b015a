//! What a start loads, and loading it.
//!
//! | `appendonly` | there is | loaded |
//! | --- | --- | --- |
//! | yes | a log | the log |
//! | yes | a log, and a snapshot with changes that the log lacks: it was saved later than the log was switched off, or from a part of the log that a power loss took | the snapshot, on which a new log is begun |
//! | yes | a snapshot only | the snapshot, on which a new log is begun |
//! | no | a snapshot | the snapshot; a log with later changes is named in a warning |
//!
//! Nothing is decided by what is loaded: while it is, no life ends, nothing is evicted, no limit applies.

use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::files::Files;
use super::log::{Damage, LogEnd, LogError, LogReader, repair, segment};
use super::redo::{Failed, Redo};
use super::snapshot::read::{self, LoadError, Report};
use crate::codec::rdb::{Input, Reader};
use crate::codec::rdb_string::RdbString;
use crate::keyspace::Keyspace;

/// Field of a snapshot: the log that was being written when it was taken.
pub const LOG_ID_FIELD: &str = "seendb-log-id";
/// Field of a snapshot: the position of its cut in that log.
pub const LOG_POSITION_FIELD: &str = "seendb-log-position";
/// Field of a snapshot: when it was begun, in milliseconds since 1970.
pub const MOMENT_FIELD: &str = "seendb-moment";

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
    pub log_left: bool,
    /// The snapshot holds what was not loaded: keys of other types, or damaged ones.
    pub has_more: bool,
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

/// Data were not loaded: the sentence for the operator.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct RecoveryError(pub String);

/// What can be done about damage.
const ADVICE: &str = "; 'seendb check' tells more, 'load-damaged yes' loads what is sound";

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
        let fail = in_file(&self.log);
        let snapshot = self.look_at_snapshot()?;
        let mut warnings = Vec::new();
        let reader = match self.open_log() {
            Err(error) if !self.appendonly => {
                warnings.push(format!("'{}' holds a log that cannot be read: {error}", self.log.display()));
                return Ok(Loaded {
                    log_left: true,
                    ..self.load_snapshot(snapshot.as_ref(), keyspace, progress, warnings)?
                });
            }
            reader => reader.map_err(|error| fail(&error))?,
        };
        let Some(reader) = reader else {
            if self.appendonly {
                self.refuse_log_without_manifest()?;
            }
            return self.load_snapshot(snapshot.as_ref(), keyspace, progress, warnings);
        };
        match self.prefers_snapshot(&reader, snapshot.as_ref(), &mut warnings)? {
            true => {
                Ok(Loaded { log_left: true, ..self.load_snapshot(snapshot.as_ref(), keyspace, progress, warnings)? })
            }
            false => self.load_log(reader, keyspace, progress, warnings),
        }
    }

    /// Whether the snapshot is loaded although there is a log.
    fn prefers_snapshot(
        &self,
        reader: &LogReader,
        snapshot: Option<&SnapshotHead>,
        warnings: &mut Vec<String>,
    ) -> Result<bool, RecoveryError> {
        let fail = in_file(&self.log);
        let manifest = reader.manifest().clone();
        let own = snapshot.filter(|snapshot| snapshot.log_id == Some(manifest.id.to_string()));
        let saved = own.and_then(|snapshot| snapshot.log_position);
        // One that names this log says more exactly which is later: both may be of the same millisecond.
        let foreign = snapshot.filter(|_| own.is_none());
        let after_end = foreign.zip(manifest.closed).is_some_and(|(snapshot, closed)| snapshot.moment >= closed);
        if !self.appendonly {
            let has_more =
                || self.log_end().is_ok_and(|end| end.is_some_and(|end| saved.is_none_or(|saved| saved < end)));
            if !after_end && has_more() {
                warnings.push(format!(
                    "'{}' holds a log, which is not loaded because 'appendonly' is 'no', and may hold changes that the snapshot lacks",
                    self.log.display()
                ));
            }
            return Ok(true);
        }
        if after_end {
            warnings.push(format!(
                "the log in '{}' was switched off before '{}' was saved: the snapshot is loaded, and a new log is begun",
                self.log.display(),
                self.snapshot.display()
            ));
            return Ok(true);
        }
        if let Some(position) = saved {
            // Reading the whole log twice is dear, but this is asked only where there is a snapshot of it.
            let end = match self.log_end() {
                // Up to there it would be loaded.
                Err(LogError::Damaged(damage)) if self.load_damaged => Some(damage.position),
                end => end.map_err(|error| fail(&error))?,
            };
            if end.is_some_and(|end| end < position) {
                warnings.push(format!(
                    "the log in '{}' ends before '{}' was saved: the snapshot is loaded, and a new log is begun",
                    self.log.display(),
                    self.snapshot.display()
                ));
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// A log without its manifest must not be taken for nothing, and removed when a new one is begun.
    fn refuse_log_without_manifest(&self) -> Result<(), RecoveryError> {
        for name in self.files.list(&self.log).unwrap_or_default() {
            let is_segment = name.to_str().is_some_and(|name| segment::number_of(name).is_some());
            let has_records = || segment::has_records(&*self.files.open(&self.log.join(&name))?);
            if is_segment && has_records().map_err(|error| in_file(&self.log.join(&name))(&error))? {
                return Err(in_file(&self.log)(&format!(
                    "'{}' has changes, but there is no manifest that says what they belong to; put it back, or move the \
                     folder away to begin a new log",
                    name.display()
                )));
            }
        }
        Ok(())
    }

    fn open_log(&self) -> Result<Option<LogReader>, LogError> {
        LogReader::open(self.files.clone(), &self.log)
    }

    fn log_end(&self) -> Result<Option<u64>, LogError> {
        self.open_log()?.map(|reader| reader.finish().map(|end| end.position)).transpose()
    }

    fn look_at_snapshot(&self) -> Result<Option<SnapshotHead>, RecoveryError> {
        match self.files.open(&self.snapshot) {
            Ok(file) => Ok(Some(SnapshotHead::read(&*file).map_err(|error| in_file(&self.snapshot)(&error))?)),
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
        if snapshot.is_none() {
            return Ok(Loaded { source: Source::Nothing, warnings, expired: 0, log_left: false, has_more: false });
        }
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
        Ok(Loaded { source: Source::Snapshot, warnings, expired: report.expired, log_left: false, has_more })
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
    ) -> Result<Option<Box<Damage>>, RecoveryError> {
        let failed = Failed::default();
        std::thread::scope(|scope| {
            let mut redo = Redo::new(scope, self.threads, keyspace, &failed);
            loop {
                let (done, _) = reader.progress();
                progress.log_bytes_done.store(done, Ordering::Relaxed);
                let (batch, damage) = match reader.next_batch() {
                    Ok(batch) => (batch, None),
                    Err(LogError::Damaged(damage)) if self.load_damaged => (None, Some(damage)),
                    Err(LogError::Damaged(damage)) => return Err(in_file(&self.log)(&format!("{damage}{ADVICE}"))),
                    Err(error) => return Err(in_file(&self.log)(&error)),
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
            warnings.push(format!("'{path}': {count} keys of type {kind} were stepped over"));
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
        keyspace: &Keyspace,
        progress: &LoadProgress,
        mut warnings: Vec<String>,
    ) -> Result<Loaded, RecoveryError> {
        let fail = in_file(&self.log);
        progress.log_bytes.store(reader.progress().1, Ordering::Relaxed);
        if let Some(base) = &reader.manifest().base {
            let path = self.log.join(&base.file);
            let report = self.read(&path, keyspace, None, &progress.snapshot)?;
            self.tell(&path, &report, &mut warnings);
        }
        if let Some(damage) = self.redo(&mut reader, keyspace, progress)? {
            reader = self.repair(&damage, &mut warnings)?;
        }
        let end = reader.finish().map_err(|error| fail(&error))?;
        if let Some(torn) = &end.torn {
            if !self.load_truncated {
                let text = format!("{torn}; 'aof-load-truncated yes' starts without the cut-off end");
                return Err(fail(&text));
            }
            warnings.push(format!("'{}': {torn}", self.log.display()));
        }
        Ok(Loaded { source: Source::Log(Box::new(end)), warnings, expired: 0, log_left: false, has_more: false })
    }
}

/// What the beginning of a snapshot says of it.
#[derive(Default)]
struct SnapshotHead {
    log_id: Option<String>,
    log_position: Option<u64>,
    /// When it was begun, in milliseconds since 1970; 0 if it does not say so.
    moment: u64,
}

impl SnapshotHead {
    fn read(file: &dyn super::files::File) -> io::Result<Self> {
        const MOST_BYTES: usize = 4096;
        const MAGIC_BYTES: usize = 9;
        const AUX: u8 = 0xfa;
        let mut bytes = vec![0; MOST_BYTES];
        let count = file.read_full_at(&mut bytes, 0)?;
        let mut head = Self::default();
        let mut reader = Reader::new(bytes[..count].get(MAGIC_BYTES..).unwrap_or_default());
        while reader.byte().is_ok_and(|opcode| opcode == AUX) {
            // Whatever is wrong here is found when the file is loaded.
            let (Ok(name), Ok(value)) = (RdbString::read(&mut reader), RdbString::read(&mut reader)) else { break };
            let (name, value) = (text(&name), text(&value));
            match &*name {
                LOG_ID_FIELD => head.log_id = Some(value),
                LOG_POSITION_FIELD => head.log_position = value.parse().ok(),
                MOMENT_FIELD => head.moment = value.parse().unwrap_or(0),
                // Redis gives seconds.
                "ctime" if head.moment == 0 => head.moment = value.parse::<u64>().unwrap_or(0).saturating_mul(1000),
                _ => {}
            }
        }
        Ok(head)
    }
}

/// A short string as text; nothing if it is compressed.
fn text(string: &RdbString<'_>) -> String {
    match string {
        RdbString::Raw(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        RdbString::Integer(number) => number.to_string(),
        RdbString::Lzf { .. } => String::new(),
    }
}
