//! `seendb export --families bf FILE`: the filters of a live SeenDB, or of its data folder, as a snapshot that Redis with
//! RedisBloom loads.
//!
//! The file gets its name when all of it is on the disk. It has nothing in it that only SeenDB knows: no fields about a log, no
//! block marks.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use clap::Parser;

use super::address::Address;
use super::client::Client;
use super::families::Family;
use super::keys::for_each_key;
use super::meter::{amount, count, watch};
use super::pinned::pin;
use crate::keyspace::Keyspace;
use crate::persist::files::{Files as _, RealFiles};
use crate::persist::log::manifest;
use crate::persist::recovery::{LoadProgress, Recovery, Source, log_of_redis, of_redis};
use crate::persist::snapshot::{read, save};

const LONG_ABOUT: &str = "\
Write the filters of a live SeenDB, or of a data folder, into a snapshot that Redis with RedisBloom loads.

With '--families bf' the snapshot has RDB version 10, which Redis 7.0 and later and Valkey read; filters are in
RedisBloom's own encoding, with their lives. Put it where the server expects its dump.rdb, with 'appendonly no', and
start it. Other families ('cbf', 'dlcbf', and 'chain' with the profiles of rings) are left out unless they are asked
for; a file with any of them is for SeenDB alone.";

const AFTER_HELP: &str = "\
A live server takes a snapshot for it, as for a replica (SYNC); it serves on meanwhile, and its user needs
the permission for SYNC. A data folder may belong to a server that is running: its log is read up to where
it is, or else its dump.rdb.

Exit status: 0 if the file is written, 1 otherwise, 2 if the words are not understood.
";

/// `seendb export`.
#[derive(Debug, Parser)]
#[command(
    name = "seendb export",
    about = "Write a snapshot that Redis with RedisBloom loads",
    long_about = LONG_ABOUT,
    after_long_help = AFTER_HELP,
    override_usage = "seendb export [OPTIONS] --families <FAMILIES> <FILE> (--from <ADDRESS> | --dir <FOLDER>)"
)]
struct Options {
    /// The snapshot to be written
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Which families of filters, with commas between them
    #[arg(long, value_name = "FAMILIES", value_enum, value_delimiter = ',', required = true)]
    families: Vec<Family>,

    /// A live server: redis://[[user:]password@]host[:port]
    #[arg(long, value_name = "ADDRESS", required_unless_present = "dir", conflicts_with = "dir")]
    from: Option<Address>,

    /// A data folder, with appendonlydir or dump.rdb in it
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,

    /// Replace FILE if it is there already
    #[arg(long)]
    replace: bool,
}

/// Exports as the words say. The first is the program's name.
pub fn run(args: Vec<OsString>) -> ExitCode {
    match super::options::<Options>(args) {
        Ok(options) => super::end("export", export(&options).map(|()| true)),
        Err(status) => status,
    }
}

fn export(options: &Options) -> Result<(), String> {
    if options.file.exists() && !options.replace {
        return Err(format!("'{}' is there already; --replace replaces it", options.file.display()));
    }
    let keyspace = Arc::new(Keyspace::default());
    keyspace.hold_lives(true);
    let skipped = match (&options.from, &options.dir) {
        (Some(address), _) => fetch(address, &options.file, &keyspace)?,
        (None, Some(folder)) => load_folder(folder, &keyspace)?,
        (None, None) => return Err("either --from or --dir is needed".to_owned()),
    };
    let left_out = leave_out_others(&keyspace, &options.families);
    let for_redis = options.families.iter().all(|&family| family == Family::Bf);
    let (filters, bytes) = write(&keyspace, &options.file, for_redis)?;
    let mut text = format!("filters written to '{}': {filters}, {}\n", options.file.display(), amount(bytes));
    if left_out > 0 {
        text += &format!("left out: {} of other families\n", count(left_out, "filter"));
    }
    if skipped > 0 {
        text += &format!("stepped over: {} of other types\n", count(skipped, "key"));
    }
    // Who does not read it gets the exit status.
    let _ = std::io::stdout().write_all(text.as_bytes());
    Ok(())
}

/// Takes out what is of other families; how many filters.
fn leave_out_others(keyspace: &Keyspace, families: &[Family]) -> u64 {
    let (mut others, wanted) = (Vec::new(), |family| families.contains(&family));
    let _ = for_each_key(keyspace, |db, entry| {
        if !entry.kind().and_then(Family::of).is_some_and(wanted) {
            others.push((db, entry.name().to_vec()));
        }
        Ok::<_, ()>(())
    });
    for (db, name) in &others {
        let taken = keyspace.write(*db, name, |cell| cell.take().is_some());
        debug_assert!(taken.is_ok_and(|taken| taken), "nobody else uses these keys");
    }
    if !wanted(Family::Chain) {
        let profiles = keyspace.profiles();
        profiles.all().iter().for_each(|(prefix, _)| _ = profiles.put(prefix, None));
    }
    others.len() as u64
}

/// A file that goes when it is not needed any more.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        // If it cannot be removed it is in nobody's way.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Takes the filters of a live server; how many keys of other types it has.
fn fetch(address: &Address, beside: &Path, keyspace: &Keyspace) -> Result<u64, String> {
    let name = format!("temp-{}-sync.rdb", std::process::id());
    let temporary = Temporary(beside.with_file_name(name));
    let lead = |reason: &dyn std::fmt::Display| format!("'{}': {reason}", temporary.0.display());
    let file = File::create_new(&temporary.0).map_err(|error| lead(&error))?;
    let mut client = Client::connect(address).map_err(|error| error.to_string())?;
    let (done, mut out) = (AtomicU64::new(0), BufWriter::new(file));
    let take = |piece: &[u8]| {
        done.fetch_add(piece.len() as u64, Ordering::Relaxed);
        out.write_all(piece)
    };
    watch("fetching", || (done.load(Ordering::Relaxed), 0), || client.fetch_snapshot(take))
        .map_err(|error| error.to_string())?;
    out.flush().map_err(|error| lead(&error))?;
    load_snapshot(&temporary.0, keyspace).map_err(|reason| format!("what {address} sent: {reason}"))
}

fn load_snapshot(path: &Path, keyspace: &Keyspace) -> Result<u64, String> {
    let file = RealFiles.open(path).map_err(|error| error.to_string())?;
    let options = read::Options { accept_damaged: false, threads: 2, now: None };
    let progress = read::Progress::default();
    let look = || (progress.bytes_done(), progress.bytes());
    let report = watch("reading", look, || read::load(&*file, keyspace, &options, &progress));
    let hint = |error: &read::LoadError| match error {
        read::LoadError::Damage(_) => WAY_OUT,
        _ => "",
    };
    Ok(report.map_err(|error| format!("{error}{}", hint(&error)))?.skipped.values().sum())
}

/// What to do about damage: an export with holes would be taken for a whole one.
const WAY_OUT: &str = "\nAn export takes no damaged files ('load-damaged' is a server's). 'seendb import SNAPSHOT --load-damaged --dir FOLDER' \
                       takes what is sound of a snapshot, or of a log's base, into an empty FOLDER, which can be exported.";

/// The same, if the reason is one that a server's `load-damaged` would let pass.
fn way_out(reason: &str) -> &'static str {
    if reason.contains("load-damaged") { WAY_OUT } else { "" }
}

/// Takes the filters of a data folder, as a server would at its start.
fn load_folder(folder: &Path, keyspace: &Keyspace) -> Result<u64, String> {
    let (snapshot, log) = (folder.join(super::SNAPSHOT_NAME), folder.join(super::LOG_FOLDER));
    if !log.join(manifest::FILE_NAME).exists() {
        if let Some(log) = log_of_redis(&RealFiles, &snapshot, &log) {
            return Err(format!(
                "{}; 'seendb import {} --dir FOLDER' takes the filters of the snapshot alone",
                of_redis(&log),
                snapshot.display()
            ));
        }
        return match snapshot.exists() {
            true => load_snapshot(&snapshot, keyspace).map_err(|reason| format!("'{}': {reason}", snapshot.display())),
            false => Err(format!(
                "'{}' holds neither '{}' nor a log in '{}'",
                folder.display(),
                super::SNAPSHOT_NAME,
                super::LOG_FOLDER
            )),
        };
    }
    let recovery = Recovery {
        files: pin(&log).map_err(|error| format!("'{}': {error}", log.display()))?,
        snapshot,
        log,
        appendonly: true,
        load_truncated: true,
        load_damaged: false,
        threads: 2,
    };
    let progress = LoadProgress::default();
    let look = || (progress.bytes_done(), progress.bytes());
    let loaded = watch("reading", look, || recovery.run(keyspace, &progress))
        .map_err(|error| format!("{error}{}", way_out(&error.to_string())))?;
    keyspace.hold_lives(true);
    loaded.warnings.iter().for_each(|warning| eprintln!("seendb export: {warning}"));
    debug_assert!(!matches!(loaded.source, Source::Nothing), "there was a log");
    Ok(0)
}

fn write(keyspace: &Arc<Keyspace>, path: &Path, for_redis: bool) -> Result<(u64, u64), String> {
    let snapshot = keyspace.snapshot(|| {}).map_err(|_| "the keys are in use".to_owned())?;
    let options = save::Options { compress: true, checksum: true, plain: for_redis, fields: Vec::new() };
    let progress = save::Progress::default();
    let look = || (progress.bytes.load(Ordering::Relaxed), 0);
    let bytes = watch("writing", look, || save::save(&RealFiles, path, snapshot, &options, &progress))
        .map_err(|error| format!("'{}': {error}", path.display()))?;
    Ok((progress.keys_done.load(Ordering::Relaxed), bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn clap_finds_the_definitions_sound() {
        Options::command().debug_assert();
        let parse = |more: &[&str]| Options::try_parse_from([&["seendb export", "f"], more].concat());
        assert!(parse(&["--families", "bf", "--dir", "d"]).is_ok());
        let refused = parse(&["--families", "bf,cf", "--dir", "d"]).unwrap_err().to_string();
        assert!(refused.contains("'cf'") && refused.contains("[possible values: bf, cbf, dlcbf, chain]"), "{refused}");
        for wrong in
            [&["--dir", "d"][..], &["--families", "bf"], &["--families", "bf", "--dir", "d", "--from", "redis://a"]]
        {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
