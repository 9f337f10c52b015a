//! `seendb import DUMP.RDB`: the filters of a snapshot of Redis, Valkey or SeenDB, Bloom filters and rings, with their lives, as a
//! snapshot in a folder or into a live server.
//!
//! | module | holds |
//! | --- | --- |
//! | `live` | into a server |

mod live;

use std::ffi::OsString;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Parser;

use super::check::begins_as_snapshot;
use super::keys::for_each_key;
use super::meter::{amount, count, watch};
use crate::keyspace::Keyspace;
use crate::persist::files::{Files as _, RealFiles};
use crate::persist::log::manifest;
use crate::persist::origin::MOMENT_FIELD;
use crate::persist::snapshot::read::{self, Report};
use crate::persist::snapshot::save;

const LONG_ABOUT: &str = "\
Take the filters out of a snapshot (dump.rdb) of Redis with RedisBloom, Valkey or SeenDB, with their lives: Bloom
filters, and of SeenDB also those of all other families and the profiles of rings.

With --dir they become a snapshot that SeenDB loads at its start. With --into they are sent to a live server,
SeenDB or Redis with RedisBloom; Redis takes no others, so these are listed as failed. Filters of all releases of
RedisBloom are read. Keys of other types are stepped over and counted; filters whose life is over are
dropped and counted.";

const AFTER_HELP: &str = "\
With --into every key keeps its database, unless the address names one (redis://host:port/3): then all keys
go there. Keys and profiles that are there already are left alone, listed, and make the exit status 1; --replace
replaces them. Large filters of any family go in pieces, under a name that ends in '.seendb-copy.N' until they are whole.

Exit status: 0 if all filters arrived, 1 otherwise, 2 if the words are not understood.
";

/// `seendb import`.
#[derive(Debug, Parser)]
#[command(
    name = "seendb import",
    about = "Take filters out of a snapshot of Redis, Valkey or SeenDB",
    long_about = LONG_ABOUT,
    after_long_help = AFTER_HELP,
    override_usage = "seendb import [OPTIONS] <DUMP.RDB> (--dir <FOLDER> | --into <ADDRESS>)",
    group = clap::ArgGroup::new("target").args(["dir", "into"]).required(true)
)]
struct Options {
    /// The snapshot
    #[arg(value_name = "DUMP.RDB")]
    file: PathBuf,

    /// Write dump.rdb into this folder, for SeenDB to load at its start
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,

    /// Send the filters to this server: redis://[[user:]password@]host[:port][/db]
    #[arg(long, value_name = "ADDRESS", value_parser = live::Into::parse)]
    into: Option<live::Into>,

    /// Replace a dump.rdb, or keys, that are there already
    #[arg(long)]
    replace: bool,

    /// Take what is sound of a damaged snapshot
    #[arg(long)]
    load_damaged: bool,
}

/// Imports as the words say. The first is the program's name.
pub fn run(args: Vec<OsString>) -> ExitCode {
    match super::options::<Options>(args) {
        Ok(options) => super::end("import", import(&options)),
        Err(status) => status,
    }
}

fn import(options: &Options) -> Result<bool, String> {
    // Refused before anything is read.
    let place = options.dir.as_deref().map(|folder| free_place(folder, options.replace)).transpose()?;
    let (keyspace, report) = load(&options.file, options.load_damaged)?;
    let (text, arrived) = match (&options.into, place) {
        (Some(into), _) => live::send(&keyspace, into, options.replace)?,
        (None, Some(place)) => (write_snapshot(&keyspace, &place)?, true),
        (None, None) => return Err("either --dir or --into is needed".to_owned()),
    };
    // Who does not read it gets the exit status.
    let _ = std::io::stdout().write_all((text + &summary(&report)).as_bytes());
    Ok(arrived && report.dropped.count == 0)
}

/// Where the snapshot goes.
fn free_place(folder: &Path, replace: bool) -> Result<PathBuf, String> {
    let path = folder.join(super::SNAPSHOT_NAME);
    if !folder.is_dir() {
        return Err(format!("'{}' is no folder", folder.display()));
    }
    if path.exists() && !replace {
        return Err(format!("'{}' is there already; --replace replaces it", path.display()));
    }
    let log = folder.join(super::LOG_FOLDER);
    if log.join(manifest::FILE_NAME).exists() {
        let log = log.display();
        return Err(format!("'{log}' holds a log, which would be loaded instead: move it away first"));
    }
    Ok(path)
}

/// All filters of a snapshot.
fn load(path: &Path, accept_damaged: bool) -> Result<(Arc<Keyspace>, Report), String> {
    let lead = |reason: &dyn std::fmt::Display| format!("'{}': {reason}", path.display());
    if path.is_dir() {
        return Err(lead(&folder_hint(path)));
    }
    let file = RealFiles.open(path).map_err(|error| lead(&error))?;
    let is_snapshot = begins_as_snapshot(&*file);
    let hint = |error: &read::LoadError| match error {
        read::LoadError::Damage(_) if !is_snapshot => "; it does not begin as a snapshot does: is it one?",
        read::LoadError::Damage(_) if !accept_damaged => "; --load-damaged takes what is sound",
        _ => "",
    };
    let keyspace = Arc::new(Keyspace::default());
    keyspace.hold_lives(true);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let options = read::Options { accept_damaged, threads, now: Some(now()) };
    let progress = read::Progress::default();
    let look = || (progress.bytes_done(), progress.bytes());
    let report = watch("reading", look, || read::load(&*file, &keyspace, &options, &progress))
        .map_err(|error| format!("{}{}", lead(&error), hint(&error)))?;
    Ok((keyspace, report))
}

/// A folder was given: where in it the snapshot is.
fn folder_hint(folder: &Path) -> String {
    let (snapshot, log) = (folder.join(super::SNAPSHOT_NAME), folder.join(super::LOG_FOLDER));
    let is_log = |folder: &Path| folder.join(manifest::FILE_NAME).exists();
    let cat = |log: &Path| {
        format!("'seendb log cat --resp {}' prints what a log holds for 'redis-cli --pipe'", log.display())
    };
    match (is_log(folder), snapshot.exists(), is_log(&log)) {
        (true, ..) => format!("it is a log, not a snapshot: {}", cat(folder)),
        (_, true, true) => format!("it is a folder: its snapshot is '{}', and {}", snapshot.display(), cat(&log)),
        (_, true, false) => format!("it is a folder: its snapshot is '{}'", snapshot.display()),
        (_, false, true) => format!("it is a folder without a snapshot, but with a log: {}", cat(&log)),
        (_, false, false) => "it is a folder, and there is no snapshot in it".to_owned(),
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

fn write_snapshot(keyspace: &Arc<Keyspace>, path: &Path) -> Result<String, String> {
    let snapshot = keyspace.snapshot(|| {}).map_err(|_| "the keys are in use".to_owned())?;
    let fields = vec![(MOMENT_FIELD, now().to_string())];
    let options = save::Options { compress: true, checksum: true, plain: false, fields };
    let progress = save::Progress::default();
    let look = || (progress.bytes.load(Ordering::Relaxed), 0);
    let bytes = watch("writing", look, || save::save(&RealFiles, path, snapshot, &options, &progress))
        .map_err(|error| format!("'{}': {error}", path.display()))?;
    let filters = progress.keys_done.load(Ordering::Relaxed);
    let lives = lives(keyspace);
    let profiles = match keyspace.profiles().all().len() {
        0 => String::new(),
        profiles => format!("profiles of rings written: {profiles}\n"),
    };
    let path = path.display();
    Ok(format!("filters written to '{path}': {filters} ({lives} with a life), {}\n{profiles}", amount(bytes)))
}

/// How many keys have a life.
fn lives(keyspace: &Keyspace) -> u64 {
    let mut lives = 0;
    let _ = for_each_key(keyspace, |_, entry| {
        lives += u64::from(entry.life().is_some());
        Ok::<_, ()>(())
    });
    lives
}

/// What was left out.
fn summary(report: &Report) -> String {
    let mut text = String::new();
    if report.expired > 0 {
        text += &format!("dropped, because their life is over: {}\n", report.expired);
    }
    if !report.skipped.is_empty() {
        let types: Vec<_> = report.skipped.iter().map(|(name, keys)| format!("{name} {keys}")).collect();
        let keys = report.skipped.values().sum();
        text += &format!("stepped over: {} of other types ({})\n", count(keys, "key"), types.join(", "));
    }
    for loss in &report.dropped.listed {
        text += &format!("damaged, not taken: {loss}\n");
    }
    let more = report.dropped.count - report.dropped.listed.len() as u64;
    if more > 0 {
        text += &format!("damaged in {more} further places\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn clap_finds_the_definitions_sound() {
        Options::command().debug_assert();
        for wrong in [&["f"][..], &["--dir", "d"], &["f", "--dir", "d", "--into", "redis://a"], &["f", "--into", "a"]] {
            assert!(Options::try_parse_from([&["seendb import"], wrong].concat()).is_err(), "{wrong:?}");
        }
    }
}
