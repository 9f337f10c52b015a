//! `seendb log cat FOLDER`: a log as commands.
//!
//! | module | holds |
//! | --- | --- |
//! | `text` | lines for people |
//! | `model` | what the server held when each record was logged |
//! | `commands` | records as commands that give the same bits |
//! | `resp` | commands as bytes |

mod commands;
mod model;
mod resp;
mod text;

use std::ffi::OsString;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};

use clap::{Parser, Subcommand};

pub(super) use text::profile_options;

use super::meter::watch;
use super::pinned::pin;
use crate::persist::files::Files;
use crate::persist::log::{LogReader, manifest};
use crate::persist::record::{Malformed, Unit, next_unit};
use crate::persist::snapshot::read::Progress;

const LONG_ABOUT: &str = "\
Print an append-only log as commands: first its base, then its records from the oldest to the newest.

Without --resp there is a line for each record: its position in the log, its database, and the command that
would do the same. Data are left out, their length is given.

With --resp the commands are complete and exact. Sent to an empty server they make the same keys, equal to
the bit, with the same counts and lives:

    seendb log cat appendonlydir --resp | redis-cli --pipe

They are understood by SeenDB. With --redis they are for Redis with RedisBloom, which has Bloom filters only:
those of all other families are left out, and profiles of rings, counted and named on standard error.";

const AFTER_HELP: &str = "\
How --resp stays exact:
  Threads that add to one filter may be logged in another order than they were counted in. So the log is
  replayed in memory, as much as the server would need, and where BF.MADD would not give the same filter,
  the filter itself is printed (RESTORE, or BF.LOADCHUNK in pieces of 16 MB).
  Lives come last, so that a key whose life is over by now does not vanish in the middle of its history.

A log that is damaged is printed up to the damage; exit status 1. One that a server is writing is printed up to
where it is. The log is only read.
";

/// `seendb log`.
#[derive(Debug, Parser)]
#[command(
    name = "seendb log",
    about = "Print an append-only log as commands",
    override_usage = "seendb log cat [OPTIONS] <FOLDER>"
)]
struct Options {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Print a log as commands
    #[command(
        long_about = LONG_ABOUT,
        after_long_help = AFTER_HELP,
        override_usage = "seendb log cat [OPTIONS] <FOLDER>"
    )]
    Cat(Cat),
}

/// `seendb log cat`.
#[derive(Debug, clap::Args)]
struct Cat {
    /// The log's folder (appendonlydir), or the data folder that it is in
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,

    /// Print only what was logged from this position on, without the base
    #[arg(long, value_name = "POSITION")]
    from: Option<u64>,

    /// Leave the base out
    #[arg(long)]
    no_base: bool,

    /// Print the bytes that a client sends, for redis-cli --pipe
    #[arg(long, visible_alias = "raw-resp")]
    resp: bool,

    /// For RedisBloom, which has Bloom filters only and no COPY of them: leave the others out, print copies whole
    #[arg(long, requires = "resp")]
    redis: bool,
}

/// Does what the words say. The first is the program's name.
pub fn run(args: Vec<OsString>) -> ExitCode {
    match super::options::<Options>(args) {
        Ok(Options { action: Action::Cat(options) }) => super::end("log cat", cat(&options)),
        Err(status) => status,
    }
}

/// Why the printing ended.
#[derive(Debug, thiserror::Error)]
enum CatError {
    /// Nobody reads any more, or the disk is full.
    #[error("{0}")]
    Output(#[from] io::Error),
    #[error("{0}")]
    Malformed(#[from] Malformed),
    #[error("{0}")]
    Replay(#[from] crate::persist::replay::ReplayError),
    #[error("{0}")]
    Memory(#[from] crate::filters::bits::AllocError),
}

/// Who takes the log and prints it.
trait Printer {
    /// The base, of which nothing is printed if `shown` is false.
    fn base(&mut self, files: &dyn Files, path: &Path, shown: bool, progress: &Progress) -> Result<(), String>;

    /// What was logged together, at this position.
    fn unit(&mut self, unit: &Unit<'_>, position: u64, shown: bool) -> Result<(), CatError>;

    /// The end of the log.
    fn end(&mut self) -> Result<(), CatError>;

    /// What was there at the end and could not be printed, in words.
    fn left_out(&self) -> Option<String> {
        None
    }
}

fn cat(options: &Cat) -> Result<bool, String> {
    let out = BufWriter::with_capacity(1 << 20, io::stdout().lock());
    match options.resp {
        true => cat_to(options, &mut commands::Commands::new(resp::Resp::new(out), options.redis)),
        false => cat_to(options, &mut text::Lines::new(out)),
    }
}

fn cat_to(options: &Cat, printer: &mut (impl Printer + ?Sized)) -> Result<bool, String> {
    // A server's folder is as good as the log's in it.
    let inside = options.folder.join(super::LOG_FOLDER);
    let is_log = |folder: &Path| folder.join(manifest::FILE_NAME).exists();
    let folder = if !is_log(&options.folder) && is_log(&inside) { &inside } else { &options.folder };
    let lead = |reason: &dyn std::fmt::Display| format!("'{}': {reason}", folder.display());
    let files = pin(folder).map_err(|error| lead(&error))?;
    let opened = LogReader::open(files.clone(), folder).map_err(|error| lead(&error))?;
    let mut reader = opened.ok_or_else(|| lead(&format!("no log: there is no '{}'", manifest::FILE_NAME)))?;
    if let (Some(from), cut) = (options.from, reader.manifest().cut())
        && from < cut
    {
        let text =
            format!("what was logged from position {from} on is not all there: up to {cut} it went into the base");
        return Err(lead(&text));
    }
    let (progress, done, all) = (Progress::default(), AtomicU64::new(0), reader.progress().1);
    let look = || (progress.bytes_done() + done.load(Ordering::Relaxed), progress.bytes() + all);
    let from = options.from.unwrap_or(0);
    let outcome = watch("log", look, || {
        if let Some(base) = &reader.manifest().base {
            let shown = !options.no_base && options.from.is_none();
            printer.base(&*files, &folder.join(&base.file), shown, &progress)?;
        }
        records(&mut reader, printer, from, &done).map_err(|error| lead(&error))
    });
    match outcome {
        Ok(torn) => {
            if let Some(torn) = torn {
                eprintln!("seendb log cat: {torn}, which are left out");
            }
            if let Some(left_out) = printer.left_out() {
                eprintln!("seendb log cat: {left_out}");
            }
            Ok(true)
        }
        Err(reason) => Err(reason),
    }
}

/// Prints all records; what of a torn tail is left out.
fn records(
    reader: &mut LogReader,
    printer: &mut (impl Printer + ?Sized),
    from: u64,
    done: &AtomicU64,
) -> Result<Option<String>, String> {
    let damaged = loop {
        done.store(reader.progress().0, Ordering::Relaxed);
        let batch = match reader.next_batch() {
            Ok(Some(batch)) => batch,
            Ok(None) => break None,
            Err(error) => break Some(error.to_string()),
        };
        let (mut rest, end) = (batch.records, batch.position + batch.records.len() as u64);
        while !rest.is_empty() {
            let position = end - rest.len() as u64;
            let printed = next_unit(rest).map_err(CatError::from).and_then(|(unit, after)| {
                rest = after;
                printer.unit(&unit, position, position >= from)
            });
            printed.map_err(|error| match error {
                CatError::Output(error) => error.to_string(),
                error => format!("{}: offset {}, position {position}: {error}", batch.file, batch.offset),
            })?;
        }
    };
    printer.end().map_err(|error| error.to_string())?;
    match damaged {
        Some(reason) => Err(reason),
        None => Ok(reader.torn_tail().map(ToString::to_string)),
    }
}

/// The iterator with which BF.LOADCHUNK takes bytes that begin so far behind the first of all.
fn iterator(position: u64, bytes: usize) -> u64 {
    1 + position + bytes as u64
}

/// Flushes at the end, so that an error is not lost.
fn flush(out: &mut impl Write) -> Result<(), CatError> {
    Ok(out.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn clap_finds_the_definitions_sound() {
        Options::command().debug_assert();
    }
}
