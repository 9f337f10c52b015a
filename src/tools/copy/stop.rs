//! What ends a copy before its end.

use std::io;
use std::path::PathBuf;

use crate::tools::client::ClientError;

/// Which end of the copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Where filters come from.
    Source,
    /// Where they go.
    Target,
}

impl std::fmt::Display for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            End::Source => "source",
            End::Target => "target",
        })
    }
}

/// The copy cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum Stop {
    /// A server cannot be reached or understood.
    #[error("{0}: {1}")]
    Client(End, ClientError),
    /// A server refuses what every further key would need.
    #[error("the {end} says: {text}{}", advice(*.end, .text))]
    Refused {
        /// Which one.
        end: End,
        /// Its error.
        text: String,
    },
    /// A server has no BF commands.
    #[error("{}", missing(*.0))]
    NoFilters(End),
    /// The target is valkey-bloom.
    #[error("the target is valkey-bloom: it hashes in another way and cannot take RedisBloom's bits")]
    Valkey,
    /// A reply of another form than its command has.
    #[error("the {0} answered {1} in a way that is not understood")]
    Reply(End, &'static str),
    /// `--empty` for filters that can be moved whole.
    #[error("--empty is for valkey-bloom; the filters of this source can be moved with their bits")]
    Whole,
    /// Source and target are the same.
    #[error("source and target are the same database")]
    Same,
    /// The file of progress cannot be used.
    #[error("{}: {reason}", .path.display())]
    Journal {
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
    /// An error of the file of progress.
    pub fn file(path: &std::path::Path, error: &io::Error) -> Stop {
        Stop::Journal { path: path.to_owned(), reason: error.to_string() }
    }
}

fn missing(end: End) -> String {
    match end {
        End::Source => "the source has no BF commands, so it holds no filters".to_owned(),
        End::Target => "the target has no BF commands: load RedisBloom or start SeenDB".to_owned(),
    }
}

/// What to do about an error.
fn advice(end: End, text: &str) -> &'static str {
    match (first_word(text), end) {
        ("OOM", End::Target) => "\nIts memory limit is reached: raise 'maxmemory' there, then go on",
        ("READONLY", _) => "\nIt is a read-only replica: copy to its master",
        ("NOAUTH" | "WRONGPASS", _) => "\nGive user and password in its address: redis://user:password@host:port",
        ("NOPERM", End::Source) => "\nIts user needs SCAN, DUMP, PTTL, PEXPIRETIME, TIME, BF.INFO and BF.SCANDUMP",
        ("NOPERM", End::Target) => "\nIts user needs RESTORE, EXISTS, DEL, RENAME, PEXPIREAT and the BF commands",
        ("MISCONF", _) => "\nIt cannot save to its disk: see its log",
        ("LOADING", _) => "\nIt is still loading its data: try again when it is done",
        ("CLUSTERDOWN", _) => "\nSlots of the cluster are not served: see CLUSTER INFO",
        _ => "",
    }
}

fn first_word(text: &str) -> &str {
    text.split_whitespace().next().unwrap_or_default()
}

/// Whether an error is about the server as a whole, so that no other key would fare better.
pub fn concerns_all(text: &str) -> bool {
    matches!(
        first_word(text),
        "OOM"
            | "READONLY"
            | "NOAUTH"
            | "WRONGPASS"
            | "NOPERM"
            | "MISCONF"
            | "LOADING"
            | "CLUSTERDOWN"
            | "MASTERDOWN"
            | "NOREPLICAS"
            | "BUSY"
    )
}

/// Whether an error says that there is no such command.
pub fn is_unknown_command(text: &str) -> bool {
    text.starts_with("ERR unknown command") || text.starts_with("ERR Unknown command")
}
