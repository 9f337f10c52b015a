//! The start: data are loaded while the server already answers, though only that it is loading.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use tokio::sync::oneshot;

use super::beside::Beside;
use super::durability::{BACKUP_NAME, Durability, await_job, told};
use super::shared::Shared;
use super::waiting::block_on;
use crate::persist::log::LogWriter;
use crate::persist::recovery::{Loaded, Recovery, Source};
use crate::persist::snapshot::save::is_temporary;
use crate::tools::meter::count;

/// How often the log tells how far the loading is.
const TELL_EVERY: Duration = Duration::from_secs(5);

/// Load the data on a thread of its own; the outcome comes when that is done.
pub(super) fn load(shared: &Arc<Shared>) -> Option<oneshot::Receiver<Result<(), String>>> {
    let (sender, receiver) = oneshot::channel();
    let own = shared.clone();
    let run = move || {
        let outcome = load_all(&own.durability);
        // Nobody waits any more if the server ends.
        drop(sender.send(outcome));
    };
    if let Err(error) = thread::Builder::new().name("seendb-load".into()).spawn(run) {
        tracing::error!("no thread to load the data: {error}");
        return Some(oneshot::channel().1);
    }
    let watched = shared.clone();
    tokio::spawn(async move { tell_progress(&watched.durability).await });
    Some(receiver)
}

async fn tell_progress(durability: &Durability) {
    loop {
        tokio::time::sleep(TELL_EVERY).await;
        if !durability.loading.load(Ordering::Acquire) {
            return;
        }
        let (done, bytes) = (durability.load.bytes_done(), durability.load.bytes());
        tracing::info!(
            "loading: {} of {} MiB, {}, about {} s left",
            done >> 20,
            bytes >> 20,
            count(durability.load.snapshot.keys(), "key"),
            seconds_left(durability)
        );
    }
}

/// Estimate from what is done.
pub(super) fn seconds_left(durability: &Durability) -> u64 {
    let (done, bytes) = (durability.load.bytes_done(), durability.load.bytes());
    let elapsed = durability.started.elapsed().as_secs_f64();
    if done == 0 { 0 } else { (elapsed * bytes.saturating_sub(done) as f64 / done as f64) as u64 }
}

/// Load the data into the empty keyspace, and begin the log.
///
/// # Errors
/// The sentence for the operator.
pub(super) fn load_all(durability: &Arc<Durability>) -> Result<(), String> {
    let (keyspace, settings) = (durability.keyspace(), durability.settings());
    let recovery = Recovery {
        files: durability.files().clone(),
        snapshot: durability.snapshot_path(),
        log: durability.log_folder(),
        appendonly: settings.appendonly(),
        load_truncated: settings.aof_load_truncated(),
        load_damaged: settings.load_damaged(),
        threads: settings.threads(),
    };
    if recovery.appendonly {
        Beside::new(&recovery.log).finish(&*recovery.files);
        durability.lock_folder()?;
    }
    let loaded = recovery.run(keyspace, &durability.load).map_err(|error| error.to_string())?;
    remove_unfinished(&recovery);
    loaded.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
    let keys: usize = (0..crate::keyspace::DATABASES).map(|db| keyspace.len(db)).sum();
    durability.loaded(keys as u64, loaded.expired);
    let from = match &loaded.source {
        Source::Nothing => "no file, as there is neither a snapshot nor a log".to_owned(),
        Source::Snapshot => format!("'{}'", recovery.snapshot.display()),
        Source::Log(_) => {
            let other = if recovery.snapshot.exists() { ", not the snapshot" } else { "" };
            format!("the log in '{}'{other}", recovery.log.display())
        }
    };
    let seconds = durability.started.elapsed().as_secs_f64();
    let keys = count(keys as u64, "key");
    tracing::info!("{keys} loaded in {seconds:.3} s from {from}");
    {
        let mut state = durability.state.lock();
        (state.has_more, state.foreign_log) = (loaded.has_more, loaded.log_left);
        (state.origin, state.wants_base) = (loaded.origin.clone(), loaded.wants_base);
    }
    if recovery.appendonly {
        begin_log(durability, &recovery, loaded)?;
    }
    durability.loading.store(false, Ordering::Release);
    Ok(())
}

/// Remove what a process that was killed has left unfinished.
fn remove_unfinished(recovery: &Recovery) {
    let folder = recovery.snapshot.parent().unwrap_or(Path::new(""));
    let snapshot = recovery.snapshot.file_name().unwrap_or_default().to_string_lossy();
    let is_ours = |name: &str| [&*snapshot, BACKUP_NAME].into_iter().any(|of| is_temporary(name, of));
    let is_base = |name: &str| base_name_in(name).is_some_and(|base| is_temporary(name, base));
    remove_where(recovery, folder, is_ours);
    remove_where(recovery, &recovery.log, is_base);
}

/// The base that a temporary file of the log's folder was to become.
fn base_name_in(name: &str) -> Option<&str> {
    name.find("base-").map(|at| &name[at..])
}

fn remove_where(recovery: &Recovery, folder: &Path, wanted: impl Fn(&str) -> bool) {
    for name in recovery.files.list(folder).unwrap_or_default() {
        if name.to_str().is_some_and(&wanted) && recovery.files.remove(&folder.join(&name)).is_ok() {
            tracing::info!("'{}' removed: it was never finished", folder.join(&name).display());
        }
    }
}

/// Begin to log: where the log that was loaded ends, or anew.
fn begin_log(durability: &Arc<Durability>, recovery: &Recovery, loaded: Loaded) -> Result<(), String> {
    let fail =
        |error: std::io::Error| format!("cannot write the log in '{}': {}", recovery.log.display(), told(&error));
    let files = recovery.files.clone();
    match loaded.source {
        Source::Log(end) => {
            let base = end.manifest.base.as_ref().map(|base| recovery.log.join(&base.file));
            let base_bytes = base.map_or(Ok(0), |path| files.open(&path).and_then(|file| file.length()));
            let writer = LogWriter::open(files, &recovery.log, *end, durability.segment_bytes()).map_err(fail)?;
            durability.continue_log(writer, base_bytes.map_err(fail)?);
        }
        Source::Nothing => {
            let writer = LogWriter::create(files, &recovery.log, None, durability.segment_bytes()).map_err(fail)?;
            durability.continue_log(writer, 0);
        }
        // Until the first base is on disk no change could be kept.
        Source::Snapshot => drop(block_on(await_job(&durability.switch_log()))?),
    }
    Ok(())
}
