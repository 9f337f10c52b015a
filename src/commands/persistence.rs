//! Commands on what outlives the process: snapshots, the log, the end of the server.
//!
//! All of it is the host's work and goes on beside the commands. Who waits for it waits without a lock and without a thread.

use std::sync::Arc;
use std::time::Instant;

use super::context::{Begun, Context, Job, JobDone, ShutDown, Task};
use super::dispatch::{LongCommand, Outcome, Step, Stop};
use super::error::CommandError;
use super::table::{Argument, ArgumentKind, Command, Flags};
use super::words::{Words, is};
use crate::resp::{Args, Reply, parse_integer};

const ROW: Command = Command { since: "1.0.0", ..Command::DEFAULT };
const ADMIN: Flags = Flags::ADMIN.with(Flags::NOSCRIPT);

/// The rows of this family.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "save",
        arity: 1,
        flags: ADMIN.with(Flags::NO_MULTI),
        summary: "Takes a snapshot, and answers when it is on disk. Other clients go on meanwhile.",
        complexity: "O(n), n keys",
        handler: |context, _| wait_for(context, Task::Save),
        ..ROW
    },
    Command {
        name: "bgsave",
        arity: -1,
        flags: ADMIN,
        summary: "Takes a snapshot in the background.",
        complexity: "O(1) in the request",
        arguments: &[Argument::word("schedule", "SCHEDULE")],
        handler: save_in_background,
        ..ROW
    },
    Command {
        name: "lastsave",
        arity: 1,
        flags: Flags::LOADING.with(Flags::STALE).with(Flags::FAST),
        more_categories: &["@admin", "@dangerous"],
        summary: "Gives the time of the last snapshot that succeeded, in seconds since 1970.",
        handler: |context, _| Ok(Reply::Integer(context.host.last_save() as i64)),
        ..ROW
    },
    Command {
        name: "bgrewriteaof",
        arity: 1,
        flags: ADMIN,
        summary: "Rewrites the append-only log in the background: a snapshot takes the place of what it holds.",
        complexity: "O(1) in the request",
        handler: rewrite_log,
        ..ROW
    },
    Command {
        name: "waitaof",
        arity: 4,
        flags: Flags::NOSCRIPT,
        summary: "Waits until what was changed so far is safe in the log, and answers on how many servers it is: this one, replicas.",
        since: "7.2.0",
        arguments: &[
            Argument::new("numlocal", ArgumentKind::Integer),
            Argument::new("numreplicas", ArgumentKind::Integer),
            Argument::new("timeout", ArgumentKind::Integer),
        ],
        handler: wait_for_log,
        ..ROW
    },
    Command {
        name: "shutdown",
        arity: -1,
        flags: ADMIN.with(Flags::NO_MULTI).with(Flags::LOADING).with(Flags::STALE),
        summary: "Ends the server, after what was accepted is answered; with a snapshot if there are save points.",
        complexity: "O(n) with a snapshot, n keys",
        arguments: &[
            Argument::word("nosave", "NOSAVE"),
            Argument::word("save", "SAVE"),
            Argument::word("now", "NOW"),
            Argument::word("force", "FORCE"),
            Argument::word("abort", "ABORT"),
        ],
        handler: shut_down,
        ..ROW
    },
    Command {
        name: "sync",
        arity: 1,
        flags: ADMIN.with(Flags::NO_MULTI),
        summary: "Sends a snapshot, as `redis-cli --rdb` asks for it, and closes the connection.",
        complexity: "O(n), n keys",
        handler: |context, _| {
            let outcome = wait_for(context, Task::Backup);
            context.session.awaits_file = matches!(outcome, Err(Stop::Long(_)));
            outcome
        },
        ..ROW
    },
    Command {
        name: "replconf",
        arity: -1,
        flags: ADMIN.with(Flags::LOADING).with(Flags::STALE),
        summary: "Takes what `redis-cli --rdb` says before SYNC.",
        arguments: &[Argument::new("option", ArgumentKind::String).optional().multiple()],
        since: "3.0.0",
        handler: replication_option,
        ..ROW
    },
];

const SYNTAX: CommandError = CommandError::text("ERR syntax error");

/// Begin a task and answer when it is done.
fn wait_for(context: &mut Context<'_>, task: Task) -> Outcome {
    match context.host.begin(task)? {
        Begun::Now(job) => Err(Stop::Long(Box::new(Awaited(job)))),
        Begun::Later => Ok(Reply::Ok),
    }
}

fn save_in_background(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let schedule = match args.len() {
        1 => false,
        2 if is(&args[1], "SCHEDULE") => true,
        _ => return Err(SYNTAX.into()),
    };
    match context.host.begin(Task::SaveInBackground { schedule })? {
        Begun::Now(_) => Ok(Reply::simple("Background saving started")),
        Begun::Later => Ok(Reply::simple("Background saving scheduled")),
    }
}

fn rewrite_log(context: &mut Context<'_>, _: Args<'_>) -> Outcome {
    match context.host.begin(Task::RewriteLog)? {
        Begun::Now(_) => Ok(Reply::simple("Background append only file rewriting started")),
        Begun::Later => Ok(Reply::simple("Background append only file rewriting scheduled")),
    }
}

fn wait_for_log(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let number = |at: usize| parse_integer(&args[at]).ok_or(CommandError::NotAnInteger);
    let (local, replicas, timeout) = (number(1)?, number(2)?, number(3)?);
    if !(0..=1).contains(&local) {
        return Err(CommandError::text("ERR value is out of range, must be between 0 and 1").into());
    }
    if replicas < 0 {
        return Err(CommandError::text("ERR value is out of range, must be positive").into());
    }
    let Ok(timeout) = u64::try_from(timeout) else {
        return Err(CommandError::text("ERR timeout is negative").into());
    };
    if local == 1 && !context.host.logs() {
        let text = "ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.";
        return Err(CommandError::text(text).into());
    }
    if local == 0 || context.held.is_some() {
        return Ok(log_reply(context.host.log_is_synced()));
    }
    match context.host.begin(Task::SyncLog { timeout })? {
        Begun::Now(job) => Err(Stop::Long(Box::new(LogAwaited(job)))),
        Begun::Later => Ok(log_reply(false)),
    }
}

/// On how many servers the log is safe: of this one, of replicas.
fn log_reply(safe: bool) -> Reply {
    Reply::Array(vec![Reply::Integer(i64::from(safe)), Reply::Integer(0)])
}

fn shut_down(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let words = || Words::from(args, 1);
    let given = |option| words().any(|word| is(word, option));
    if !words().all(|word| ["SAVE", "NOSAVE", "NOW", "FORCE", "ABORT"].into_iter().any(|option| is(word, option))) {
        return Err(SYNTAX.into());
    }
    if given("SAVE") && given("NOSAVE") || given("ABORT") && !words().all(|word| is(word, "ABORT")) {
        return Err(SYNTAX.into());
    }
    if given("ABORT") {
        return Err(CommandError::text("ERR No shutdown in progress.").into());
    }
    let save = if given("SAVE") || given("NOSAVE") { Some(given("SAVE")) } else { None };
    match context.host.begin(Task::ShutDown(ShutDown { save, force: given("FORCE") }))? {
        Begun::Now(job) => Err(Stop::Long(Box::new(Ending(job)))),
        Begun::Later => Ok(Reply::Ok),
    }
}

fn replication_option(_: &mut Context<'_>, args: Args<'_>) -> Outcome {
    if args.len().is_multiple_of(2) {
        return Err(SYNTAX.into());
    }
    for pair in args.iter().skip(1).step_by(2) {
        if !["capa", "rdb-only", "rdb-filter-only", "listening-port", "ip-address", "version"]
            .into_iter()
            .any(|option| pair.eq_ignore_ascii_case(option.as_bytes()))
        {
            let shown = String::from_utf8_lossy(&pair[..pair.len().min(64)]).into_owned();
            return Err(CommandError::Text(format!("ERR Unrecognized REPLCONF option: {shown}").into()).into());
        }
    }
    Ok(Reply::Ok)
}

/// Answers when a task is done.
struct Awaited(Arc<Job>);

impl LongCommand for Awaited {
    fn step(&mut self, context: &mut Context<'_>, _: Args<'_>, _: Instant) -> Step {
        let outcome = self.0.outcome()?;
        context.session.awaits_file = false;
        Ok(Some(match outcome {
            Ok(JobDone::File(file)) => {
                context.session.closing = true;
                context.session.file = Some(file);
                Reply::Sequence(Vec::new())
            }
            Ok(_) => Reply::Ok,
            Err(reason) => Reply::Error(format!("ERR {reason}").into()),
        }))
    }
}

struct LogAwaited(Arc<Job>);

impl LongCommand for LogAwaited {
    fn step(&mut self, _: &mut Context<'_>, _: Args<'_>, _: Instant) -> Step {
        Ok(Some(log_reply(matches!(self.0.outcome()?, Ok(JobDone::Done)))))
    }
}

/// The server ends, or cannot.
struct Ending(Arc<Job>);

impl LongCommand for Ending {
    fn step(&mut self, context: &mut Context<'_>, _: Args<'_>, _: Instant) -> Step {
        Ok(Some(match self.0.outcome()? {
            Err(reason) => Reply::Error(
                format!("ERR Errors trying to SHUTDOWN: {reason}; SHUTDOWN FORCE or NOSAVE ends it all the same")
                    .into(),
            ),
            Ok(_) => {
                // As in Redis the end of the connection is the answer.
                context.session.closing = true;
                Reply::Sequence(Vec::new())
            }
        }))
    }
}
