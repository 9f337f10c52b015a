//! What ends a run before the end of the events.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use super::tally::BadLine;
use crate::tools::client::ClientError;

/// It cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum Stop {
    /// The server cannot be reached or understood.
    #[error("{0}")]
    Client(#[from] ClientError),
    /// The server refuses what every further event would need.
    #[error("the server says: {text}{}", advice(.text))]
    Refused {
        /// Its error.
        text: String,
    },
    /// It has no CHAIN commands.
    #[error("the server has no CHAIN commands: start SeenDB")]
    NoRings,
    /// A reply of another form than its command has.
    #[error("the server answered CHAIN.INSERT in a way that is not understood")]
    Reply,
    /// A line that is no event.
    #[error("{0}\n--skip-bad passes over such lines and counts them")]
    Bad(BadLine),
    /// The events cannot be read.
    #[error("the events cannot be read: {0}")]
    Input(#[from] std::io::Error),
    /// The events are not those of the file of `--resume`.
    #[error("these are not the events that the file of --resume was kept for: {0}")]
    OtherEvents(&'static str),
    /// A file that cannot be used.
    #[error("{}: {reason}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// By a signal.
    #[error("interrupted")]
    Interrupted,
}

impl Stop {
    /// A file that cannot be used.
    pub fn file(path: &Path, reason: impl Display) -> Stop {
        Stop::File { path: path.to_owned(), reason: reason.to_string() }
    }

    /// Whether the same command can go on later.
    pub fn can_go_on(&self) -> bool {
        !matches!(self, Stop::NoRings | Stop::OtherEvents(_) | Stop::File { .. })
    }
}

/// What to do about an error.
fn advice(text: &str) -> &'static str {
    match text.split_whitespace().next().unwrap_or_default() {
        "OOM" => "\nIts memory limit is reached: raise 'maxmemory' there, then go on",
        "READONLY" => "\nIt is a read-only replica: feed its master",
        "NOAUTH" | "WRONGPASS" => "\nGive user and password in its address: redis://user:password@host:port",
        "NOPERM" => "\nIts user needs CHAIN.INSERT and the keys of the prefix",
        "MISCONF" => "\nIt cannot save to its disk: see its log",
        "LOADING" => "\nIt is still loading its data: try again when it is done",
        _ => "",
    }
}
