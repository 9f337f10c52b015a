//! `seendb copy FROM TO`: filters from one live server to another, SeenDB or Redis with RedisBloom at either end. Redis takes and
//! gives Bloom filters; SeenDB those of all [families](super::families).
//!
//! | module | holds |
//! | --- | --- |
//! | `options` | the command line and its help |
//! | `source`, `target` | the two ends; the target may be a cluster |
//! | `copier` | from key to key: `DUMP` and `RESTORE`, a hundred at a time |
//! | `pieces` | large filters, by `SCANDUMP` and `LOADCHUNK` of their family under another name |
//! | `profiles` | what rings get that are made later |
//! | `empty` | filters of valkey-bloom, of which only the settings can be had |
//! | `journal` | the file of `--resume` |
//! | `progress` | what came of the keys |
//! | `stop` | what ends a copy, and what to do about it |
//!
//! **What holds at every moment.** A filter is at the target under its name whole or not at all. A key is written as finished
//! only after the target has said that it has it. The source is only read.

pub(super) mod copier;
mod empty;
pub(super) mod journal;
mod options;
pub(super) mod pieces;
pub(super) mod profiles;
mod progress;
pub(super) mod source;
pub(super) mod stop;
pub(super) mod target;

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Parser as _;
use tokio::signal::unix::{SignalKind, signal};

use copier::Copier;
use options::Options;
use stop::Stop;

/// After the second signal: that of a shell for a program ended by SIGINT.
const INTERRUPTED: i32 = 130;

/// Copies as the words say. The first is the program's name.
pub fn run(args: Vec<OsString>) -> ExitCode {
    let options = match Options::try_parse_from(args) {
        Ok(options) => options,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(u8::from(error.use_stderr()));
        }
    };
    let resumable = options.resume.is_some();
    match copy(options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(stop) => {
            eprintln!("seendb copy: {stop}");
            if resumable && !matches!(stop, Stop::Journal { .. } | Stop::Same | Stop::Whole) {
                eprintln!("The same command goes on from here.");
            }
            ExitCode::FAILURE
        }
    }
}

/// Whether all filters arrived.
fn copy(options: Options) -> Result<bool, Stop> {
    let mut copier = Copier::new(options, interrupted())?;
    let ended = copier.run();
    copier.progress.end();
    let summary = copier.tally.summary(copier.progress.took());
    // Who does not read it gets the exit status.
    let _ = std::io::stdout().write_all(summary.as_bytes());
    ended.map(|()| copier.tally.all_arrived())
}

/// Becomes true at the first SIGINT or SIGTERM; the second ends the program.
pub(super) fn interrupted() -> Arc<AtomicBool> {
    let flag = Arc::new(AtomicBool::new(false));
    let ours = Arc::clone(&flag);
    let wait = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let (mut int, mut term) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
            for _ in 0..2 {
                tokio::select! { _ = int.recv() => (), _ = term.recv() => () }
                if ours.swap(true, Ordering::Relaxed) {
                    std::process::exit(INTERRUPTED);
                }
            }
            Ok::<(), std::io::Error>(())
        })
    };
    // Where signals cannot be caught they end the program, and the file of progress is right then too.
    std::thread::spawn(wait);
    flag
}
