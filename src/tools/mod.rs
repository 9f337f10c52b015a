//! What `seendb` does besides serving. A tool is a word behind the program's name: `seendb copy …`.
//!
//! | module | holds |
//! | --- | --- |
//! | [`copy`] | moves filters between live servers |
//! | [`check`] | says what a snapshot or a log holds and what is damaged, and repairs logs |
//! | [`log`] | prints a log as commands |
//! | [`import`] | takes filters out of a snapshot |
//! | [`ingest`] | feeds events into rings |
//! | [`export`] | writes a snapshot that RedisBloom loads |
//! | [`client`] | a small blocking client |
//! | [`address`] | `redis://user:password@host:port/db` |
//! | [`families`] | the families of filters: their types and commands |
//! | [`keys`] | all keys of a keyspace |
//! | [`pinned`] | the files of a log, held open |
//! | [`meter`] | how far long work is |
//! | [`json`] | JSON |
//! | [`names`] | key names in text: shown, and written so that they can be read back |
//!
//! The table is the only place where a tool's word is written. A first word that is none of them is left to the server's own
//! command line; a config file of such a name is given as `./copy`.

use std::ffi::OsString;
use std::process::ExitCode;

pub mod address;
pub mod check;
pub mod client;
pub mod copy;
pub mod export;
pub mod families;
pub mod import;
pub mod ingest;
pub mod json;
pub mod keys;
pub mod log;
pub mod meter;
pub mod names;
pub mod pinned;

/// One tool.
struct Tool {
    /// The word that it answers to.
    name: &'static str,
    /// What it does, in a line.
    about: &'static str,
    /// Does it; the words begin with the program's name and leave the tool's out.
    run: fn(Vec<OsString>) -> ExitCode,
}

const TOOLS: [Tool; 6] = [
    Tool { name: "copy", about: "Move filters between live servers, with their lives", run: copy::run },
    Tool { name: "check", about: "Say what snapshots and logs hold and what is damaged; repair logs", run: check::run },
    Tool { name: "log", about: "Print an append-only log as commands", run: log::run },
    Tool { name: "import", about: "Take filters out of a snapshot of Redis, Valkey or SeenDB", run: import::run },
    Tool { name: "ingest", about: "Feed events, a line of JSON each, into rings of a live server", run: ingest::run },
    Tool { name: "export", about: "Write a snapshot that Redis with RedisBloom loads", run: export::run },
];

/// Where a server keeps its snapshot unless it is told otherwise.
const SNAPSHOT_NAME: &str = "dump.rdb";
/// Where it keeps its log.
const LOG_FOLDER: &str = "appendonlydir";

/// Status of a tool that did not understand its words.
const USAGE: u8 = 2;

/// The words that a tool was given; if they are not understood, or only help is wanted, what to end with.
fn options<T: clap::Parser>(args: Vec<OsString>) -> Result<T, ExitCode> {
    T::try_parse_from(args).map_err(|error| {
        // Who does not read it gets the exit status.
        let _ = error.print();
        ExitCode::from(if error.use_stderr() { USAGE } else { 0 })
    })
}

/// What a tool came to, as an exit status; why it failed is told.
fn end(tool: &str, outcome: Result<bool, String>) -> ExitCode {
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(reason) => {
            eprintln!("seendb {tool}: {reason}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the tool that the first word behind the program's name means; `None` if it means none.
pub fn run(args: impl IntoIterator<Item = OsString>) -> Option<ExitCode> {
    let mut args = args.into_iter();
    let program = args.next()?;
    let word = args.next()?;
    if word == "help" {
        print!("{}", help());
        return Some(ExitCode::SUCCESS);
    }
    let Some(tool) = TOOLS.iter().find(|tool| word == tool.name) else {
        let meant = meant(&word.to_string_lossy()).filter(|_| !std::path::Path::new(&word).exists())?;
        eprintln!("seendb: no tool is called '{}': '{meant}' may be meant; 'seendb help' lists them", word.display());
        return Some(ExitCode::from(USAGE));
    };
    Some((tool.run)(std::iter::once(program).chain(args).collect()))
}

/// The tool that a word with a slip of the keys may mean.
fn meant(word: &str) -> Option<&'static str> {
    TOOLS.iter().map(|tool| tool.name).find(|name| is_slip(name.as_bytes(), word.to_lowercase().as_bytes()))
}

/// Whether two words differ by one letter at most: another one, one too many or too few, or two that have changed places.
fn is_slip(one: &[u8], other: &[u8]) -> bool {
    let same = one.iter().zip(other).take_while(|(one, other)| one == other).count();
    match (&one[same..], &other[same..]) {
        ([], []) => true,
        ([first, second, one @ ..], [third, fourth, other @ ..]) if (first, second) == (fourth, third) => one == other,
        ([_, one @ ..], other) if one == other => true,
        (one, [_, other @ ..]) if one == other => true,
        ([_, one @ ..], [_, other @ ..]) => one == other,
        _ => false,
    }
}

/// What `seendb help` prints.
fn help() -> String {
    let mut text = String::from(
        "seendb [FILE] [--DIRECTIVE VALUE]...   serve; 'seendb --help' lists the directives\n\
         seendb TOOL ...                        something else; 'seendb TOOL --help' tells more\n\nTools:\n",
    );
    for tool in &TOOLS {
        text += &format!("  {:<8} {}\n", tool.name, tool.about);
    }
    text + "  help     This list\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_words_of_the_table_are_tools() {
        for words in [&["seendb"][..], &["seendb", "--port", "7000"], &["seendb", "./copy"], &["seendb", "my.conf"]] {
            assert!(run(words.iter().map(OsString::from)).is_none(), "{words:?}");
        }
    }

    #[test]
    fn a_slip_of_the_keys_is_seen() {
        for (word, tool) in
            [("chek", "check"), ("chekc", "check"), ("checks", "check"), ("Copy", "copy"), ("lob", "log")]
        {
            assert_eq!(meant(word), Some(tool), "{word}");
        }
        for word in ["c", "redis.conf", "server", "import.conf", "logs.conf", "lg.conf", "--port", ""] {
            assert_eq!(meant(word), None, "{word}");
        }
    }

    #[test]
    fn the_help_lists_every_tool() {
        let help = help();
        for tool in &TOOLS {
            assert!(help.contains(&format!("\n  {} ", tool.name)) && help.contains(tool.about));
        }
    }
}
