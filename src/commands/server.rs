//! Commands on the server: settings, figures, databases as a whole, the end.

use std::sync::Arc;
use std::time::Instant;

use super::context::{Context, Job};
use super::dispatch::{LongCommand, Outcome, Step, Stop};
use super::error::CommandError;
use super::form::help;
use super::keys::check_pattern;
use super::table::{Argument, ArgumentKind, Command, Flags, KeySpec};
use super::words::is;
use crate::config::{Id, Prepared, SetError};
use crate::keyspace::clock::Clock;
use crate::keyspace::entry::EntryRef;
use crate::keyspace::glob;
use crate::resp::{Args, Reply, parse_integer};

const ROW: Command = Command { since: "1.0.0", ..Command::DEFAULT };
const ADMIN: Flags = Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::LOADING).with(Flags::STALE);
const FREE: Flags = Flags::LOADING.with(Flags::STALE);

const FLUSH_TYPE: Argument = Argument::new(
    "flush-type",
    ArgumentKind::OneOf(&[
        Argument::new("async", ArgumentKind::PureToken).token("ASYNC"),
        Argument::new("sync", ArgumentKind::PureToken).token("SYNC"),
    ]),
)
.optional();

/// The rows of this family.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "dbsize",
        arity: 1,
        flags: Flags::READONLY.with(Flags::FAST),
        more_categories: &["@keyspace"],
        summary: "Counts the keys of the database.",
        handler: |context, _| Ok(Reply::Integer(context.keyspace.len(context.session.db) as i64)),
        ..ROW
    },
    Command {
        name: "flushdb",
        arity: -1,
        flags: Flags::WRITE.with(Flags::ALL_KEYS),
        more_categories: &["@keyspace", "@dangerous"],
        summary: "Deletes all keys of the database; their memory is freed in the background.",
        complexity: "O(1) in the request",
        arguments: &[FLUSH_TYPE],
        handler: |context, args| flush(context, args, Some(context.session.db)),
        ..ROW
    },
    Command {
        name: "flushall",
        arity: -1,
        flags: Flags::WRITE.with(Flags::ALL_KEYS),
        more_categories: &["@keyspace", "@dangerous"],
        summary: "Deletes all keys of all databases; their memory is freed in the background.",
        complexity: "O(1) in the request",
        arguments: &[FLUSH_TYPE],
        handler: |context, args| flush(context, args, None),
        ..ROW
    },
    Command {
        name: "info",
        arity: -1,
        flags: FREE,
        more_categories: &["@dangerous"],
        summary: "Gives figures about the server.",
        arguments: &[Argument::new("section", ArgumentKind::String).optional().multiple()],
        handler: info,
        ..ROW
    },
    Command {
        name: "time",
        arity: 1,
        flags: FREE.with(Flags::FAST),
        summary: "Gives the server's time: seconds since 1970, and microseconds.",
        since: "2.6.0",
        handler: time,
        ..ROW
    },
    Command {
        name: "config",
        arity: -2,
        summary: "A container for commands on settings.",
        complexity: "Depends on the subcommand",
        since: "2.0.0",
        arguments: &[Argument::new("subcommand", ArgumentKind::String).multiple()],
        subcommands: &[
            Command {
                name: "get",
                arity: -3,
                flags: ADMIN,
                summary: "Gives the settings whose names match.",
                complexity: "O(n), n settings",
                since: "2.0.0",
                arguments: &[Argument::new("parameter", ArgumentKind::Pattern).multiple()],
                handler: config_get,
                ..ROW
            },
            Command {
                name: "set",
                arity: -4,
                flags: ADMIN,
                summary: "Changes settings, all of them or none.",
                complexity: "O(n), n settings",
                since: "2.0.0",
                arguments: &[Argument::new(
                    "data",
                    ArgumentKind::Block(&[
                        Argument::new("parameter", ArgumentKind::String),
                        Argument::new("value", ArgumentKind::String),
                    ]),
                )
                .multiple()],
                handler: config_set,
                ..ROW
            },
            Command {
                name: "help",
                arity: 2,
                flags: FREE,
                summary: "Lists the subcommands.",
                since: "5.0.0",
                handler: |_, _| Ok(help("config")),
                ..ROW
            },
        ],
        ..ROW
    },
    Command {
        name: "memory",
        arity: -2,
        summary: "A container for commands on memory.",
        complexity: "Depends on the subcommand",
        since: "4.0.0",
        arguments: &[Argument::new("subcommand", ArgumentKind::String).multiple()],
        subcommands: &[
            Command {
                name: "usage",
                arity: -3,
                flags: Flags::READONLY,
                keys: &[KeySpec { first: 2, last: 2, step: 1, flags: &["RO"] }],
                summary: "Gives the bytes that a key holds.",
                complexity: "O(n), n sub-filters",
                since: "4.0.0",
                arguments: &[Argument::KEY, Argument::new("count", ArgumentKind::Integer).token("SAMPLES").optional()],
                handler: memory_usage,
                ..ROW
            },
            Command {
                name: "help",
                arity: 2,
                flags: FREE,
                summary: "Lists the subcommands.",
                since: "4.0.0",
                handler: |_, _| Ok(help("memory")),
                ..ROW
            },
        ],
        ..ROW
    },
];

const SYNTAX: CommandError = CommandError::text("ERR syntax error");

fn flush(context: &mut Context<'_>, args: Args<'_>, db: Option<usize>) -> Outcome {
    // Memory is always freed in the background; both words are taken.
    match args.len() {
        1 => {}
        2 if is(&args[1], "ASYNC") || is(&args[1], "SYNC") => {}
        _ => return Err(SYNTAX.into()),
    }
    context.with_all(|other| db.is_none_or(|db| db == other), |held| held.flush(db))?;
    Ok(Reply::Ok)
}

/// The most names, patterns or sections of one request: each can give a long answer.
const MOST_NAMES: usize = 1000;

/// Whether a request asks for no more than that.
///
/// # Errors
/// It asks for more.
pub(super) fn check_number(names: usize) -> Result<(), CommandError> {
    if names > MOST_NAMES {
        return Err(CommandError::text("ERR more than 1000 names in one request"));
    }
    Ok(())
}

fn info(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    check_number(args.len())?;
    let sections: Vec<String> =
        args.iter().skip(1).map(|section| String::from_utf8_lossy(section).to_lowercase()).collect();
    Ok(Reply::Verbatim(context.host.info(&sections)))
}

fn time(_: &mut Context<'_>, _: Args<'_>) -> Outcome {
    let (seconds, microseconds) = Clock::wall();
    Ok(Reply::Array(vec![Reply::text(seconds.to_string()), Reply::text(microseconds.to_string())]))
}

fn config_get(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let patterns = args.slice_from(2);
    check_number(patterns.len())?;
    patterns.iter().try_for_each(check_pattern)?;
    let first_that_names = |name: &str| patterns.iter().find(|pattern| names_setting(pattern, name.as_bytes()));
    let pairs = context.settings.get(|name| first_that_names(name).is_some()).into_iter().map(|(name, value)| {
        // As in Redis a name that was written out comes back as it was written.
        let written = first_that_names(name).filter(|word| !is_pattern(word));
        (written.map_or(Reply::text(name), Reply::bulk), Reply::Bulk(value.into()))
    });
    Ok(Reply::Map(pairs.collect()))
}

/// Whether `CONFIG GET` takes a word as a pattern: not for a backslash alone.
fn is_pattern(word: &[u8]) -> bool {
    word.iter().any(|byte| b"*?[".contains(byte))
}

fn names_setting(word: &[u8], name: &[u8]) -> bool {
    if is_pattern(word) { glob::matches_ignoring_case(word, name) } else { word.eq_ignore_ascii_case(name) }
}

fn config_set(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    if !args.len().is_multiple_of(2) {
        return Err(SYNTAX.into());
    }
    let words: Vec<&[u8]> = args.iter().skip(2).collect();
    let pairs: Vec<(&[u8], &[u8])> = words.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
    let prepared = context.settings.prepare(&pairs)?;
    let switches_log = prepared.number(Id::AppendOnly).is_some();
    if switches_log && context.held.is_some() {
        // It holds what the work needs, and cannot wait for it.
        let refused = SetError::Refused(Id::AppendOnly.name(), "not in a transaction".to_owned());
        return Err(refused.into());
    }
    context.host.approve_settings(&prepared)?;
    // The log may fail to follow: until it has, nothing else is changed.
    let (switch, rest) = prepared.split(Id::AppendOnly);
    let changed = context.settings.commit(switch);
    let job = match (switches_log, changed.is_empty()) {
        (false, _) => None,
        (true, false) => context.host.switch_log(),
        // Who asks for what somebody else has begun waits for the same.
        (true, true) => context.host.log_switch(),
    };
    let mut switch = LogSwitch { changed, rest: Some(rest) };
    match job {
        Some(job) => Err(Stop::Long(Box::new((switch, job)))),
        None => Ok(switch.done(context)),
    }
}

/// A change of settings of which that of the log comes first.
struct LogSwitch {
    /// What has changed so far.
    changed: Vec<Id>,
    rest: Option<Prepared>,
}

impl LogSwitch {
    /// The log is as its setting says: the rest can follow.
    fn done(&mut self, context: &Context<'_>) -> Reply {
        self.changed.extend(self.rest.take().map(|rest| context.settings.commit(rest)).unwrap_or_default());
        context.host.settings_changed(&self.changed);
        Reply::Ok
    }
}

impl LongCommand for (LogSwitch, Arc<Job>) {
    fn step(&mut self, context: &mut Context<'_>, _: Args<'_>, _: Instant) -> Step {
        Ok(Some(match self.1.outcome()? {
            Ok(_) => self.0.done(context),
            Err(reason) => Reply::Error(format!("ERR CONFIG SET failed - {reason}").into()),
        }))
    }
}

impl From<SetError> for Stop {
    fn from(error: SetError) -> Self {
        CommandError::Text(error.to_string().into()).into()
    }
}

fn memory_usage(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    match args.len() {
        3 => {}
        // Sizes are exact; the number of samples is checked for form.
        5 if is(&args[3], "SAMPLES") => {
            let samples = parse_integer(&args[4]).ok_or(CommandError::NotAnInteger)?;
            if samples < 0 {
                return Err(SYNTAX.into());
            }
        }
        _ => return Err(SYNTAX.into()),
    }
    let bytes = context.peek(&args[2], |entry| entry.map(EntryRef::allocated_bytes))?;
    Ok(bytes.map_or(Reply::Null, |bytes| Reply::Integer(bytes as i64)))
}
