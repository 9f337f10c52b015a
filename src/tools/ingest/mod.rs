//! `seendb ingest chain`: events, a line of JSON each, into rings of a live server.
//!
//! | module | holds |
//! | --- | --- |
//! | `options` | the command line and its help |
//! | `input` | lines, read ahead |
//! | `event` | a line as an event |
//! | `sender` | events as commands, on their way in batches |
//! | `place` | the file of `--resume` |
//! | `tally` | what came of the events |
//! | `stop` | what ends a run, and what to do about it |
//!
//! **What holds at every moment.** Events before the place in the file of `--resume` were answered by the server, each in the order of
//! the lines, and how many of them it refused stands beside it. Those behind it were perhaps sent, and are sent again: among them all that
//! a run sent in vain, of which not one event was taken.

mod event;
mod input;
mod options;
mod place;
mod sender;
mod stop;
mod tally;

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;
use std::time::Instant;

use options::{Chain, Family, Options};
use sender::Sender;
use stop::Stop;
use tally::Progress;

use super::copy::interrupted;
use super::meter::watch_line;

/// Feeds as the words say. The first is the program's name.
pub fn run(args: Vec<OsString>) -> ExitCode {
    match super::options::<Options>(args) {
        Ok(Options { family: Family::Chain(options) }) => {
            let resumable = options.resume.is_some();
            super::end("ingest chain", ingest(&options).map_err(|stop| told(&stop, resumable)))
        }
        Err(status) => status,
    }
}

fn told(stop: &Stop, resumable: bool) -> String {
    match resumable && stop.can_go_on() {
        true => format!("{stop}\nThe same command goes on from here."),
        false => stop.to_string(),
    }
}

/// Whether the server took all events that were sent.
fn ingest(options: &Chain) -> Result<bool, Stop> {
    let (progress, began) = (Progress::default(), Instant::now());
    let mut sender = Sender::new(options, interrupted(), &progress)?;
    let ended = watch_line(options.progress, |took| progress.line(took), || sender.run(&progress));
    // Who does not read it gets the exit status.
    let _ = std::io::stdout().write_all(sender.tally.summary(began.elapsed(), options.resume.is_some()).as_bytes());
    ended.map(|()| sender.tally.refused == 0)
}
