//! From requests to replies: finds the row, checks what is the same for all commands, calls the handler.
//!
//! [`execute`] works through the requests of one read as a batch. Everything runs where it stands, without an await; what has
//! to wait or takes long is handed back to the connection as a [`Progress`].

use std::time::{Duration, Instant};

use smallvec::SmallVec;

use super::context::{ChangeGate, Context, Room};
use super::error::{CommandError, quoted};
use super::room::AfterEviction;
use super::table::{Command, Flags, RUN_LENGTH, Run, RunAnswers, find};
use super::transactions;
use crate::keyspace::latch::Wait;
use crate::keyspace::warm::WARMED_TOGETHER;
use crate::resp::{Args, Batch, Reply, encode, encode_bool};

/// What a handler gives.
pub type Outcome = Result<Reply, Stop>;

/// Why a handler gives no reply now.
pub enum Stop {
    /// The command is refused.
    Refused(CommandError),
    /// A long command has the key: try again after this.
    Busy(Wait),
    /// The command takes long: go on with it in steps.
    Long(Box<dyn LongCommand>),
}

impl From<CommandError> for Stop {
    fn from(error: CommandError) -> Self {
        Self::Refused(error)
    }
}

impl From<Wait> for Stop {
    fn from(wait: Wait) -> Self {
        Self::Busy(wait)
    }
}

/// What a step of a long command gives: the reply, if it is done; or nothing.
///
/// # Errors
/// [`Wait`] when a key that it needs is away.
pub type Step = Result<Option<Reply>, Wait>;

/// A command that works in steps, most of them holding their key's latch, so that its thread serves others in between.
pub trait LongCommand: Send {
    /// Work until about this moment, on the same request.
    ///
    /// # Errors
    /// As [`Step`].
    fn step(&mut self, context: &mut Context<'_>, args: Args<'_>, until: Instant) -> Step;
}

/// The reply to a long command that cannot be done.
pub(super) fn refused(error: &CommandError) -> Step {
    Ok(Some(Reply::Error(error.message())))
}

/// Has a byte string written piece by piece until this moment; `write` tells whether it was the last one.
pub(super) fn write_bytes(bytes: &mut Vec<u8>, until: Instant, mut write: impl FnMut(&mut Vec<u8>) -> bool) -> Step {
    while !write(bytes) {
        if Instant::now() >= until {
            return Ok(None);
        }
    }
    Ok(Some(Reply::Bulk(std::mem::take(bytes).into())))
}

/// How far [`execute`] came.
pub enum Progress {
    /// To the end of the batch, or to a command that ends the connection.
    Done,
    /// The time is used up, or there is much to write: write, let others run, go on.
    Pause,
    /// The next request has to wait.
    Busy(Wait),
    /// The next request takes long; its reply comes from here.
    Long(Box<dyn LongCommand>),
}

/// Longer items are left to the handler: hashing them takes time, and a run holds a lock.
const RUN_ITEM_BYTES: usize = 1024;
/// Replies of this size are written before more commands run.
const WRITE_AT_BYTES: usize = 1 << 20;
/// The clock is read once in so many commands.
const CLOCK_INTERVAL: u32 = 16;

/// Run the batch's requests from `next` on until about `until`, encoding the replies into `out`.
pub fn execute(
    context: &mut Context<'_>,
    (batch, buffer): (&Batch, &[u8]),
    next: &mut usize,
    until: Instant,
    out: &mut Vec<u8>,
) -> Progress {
    let mut last: Option<(&[u8], &'static Command)> = None;
    let (mut since_clock, mut warmed) = (0, *next);
    while *next < batch.len() {
        if *next >= warmed {
            warm(context, (batch, buffer), *next);
            warmed = *next + WARMED_TOGETHER;
        }
        let args = batch.request(buffer, *next);
        let name = args.get(0).unwrap_or_default();
        let command = match last {
            Some((last, command)) if last == name => Some(command),
            _ => find(name),
        };
        last = command.map(|command| (name, command));
        if let Some(command) = command
            && let Some(run) = command.run
            && may_run(context, command)
        {
            let answered = run_requests(context, run, (batch, buffer), *next, out);
            if answered > 0 {
                *next += answered;
                since_clock += answered as u32;
                if since_clock >= CLOCK_INTERVAL && (Instant::now() >= until || out.len() >= WRITE_AT_BYTES) {
                    return Progress::Pause;
                }
                continue;
            }
        }
        match call(context, command, args) {
            Ok(reply) => write(context, &reply, out),
            Err(Stop::Refused(error)) => write(context, &Reply::Error(error.message()), out),
            Err(Stop::Busy(wait)) => return Progress::Busy(wait),
            Err(Stop::Long(long)) => return Progress::Long(long),
        }
        *next += 1;
        since_clock += 1;
        if context.session.closing {
            return Progress::Done;
        }
        if out.len() >= WRITE_AT_BYTES {
            return Progress::Pause;
        }
        if since_clock >= CLOCK_INTERVAL {
            since_clock = 0;
            if Instant::now() >= until {
                return Progress::Pause;
            }
        }
    }
    Progress::Done
}

/// Ask for the keys of the requests from `first` on, where there are several.
fn warm(context: &Context<'_>, (batch, buffer): (&Batch, &[u8]), first: usize) {
    let (keyspace, db) = (context.keyspace, context.session.db);
    if batch.len() - first < 2 || context.session.transaction.is_some() || !keyspace.is_worth_warming(db) {
        return;
    }
    // Mostly the word behind the command is its key; if not, nothing comes of it.
    let requests = first..batch.len().min(first + WARMED_TOGETHER);
    keyspace.warm(db, requests.filter_map(|index| batch.request(buffer, index).get(1)));
}

/// Encode a reply, and count it if it is an error.
pub fn write(context: &Context<'_>, reply: &Reply, out: &mut Vec<u8>) {
    if matches!(reply, Reply::Error(_)) {
        context.counters.errors.add(1);
    }
    encode(reply, context.session.protocol, out);
}

/// Answer the requests from `first` on that are the same command on the same key; returns how many.
fn run_requests(
    context: &mut Context<'_>,
    run: Run,
    (batch, buffer): (&Batch, &[u8]),
    first: usize,
    out: &mut Vec<u8>,
) -> usize {
    let head = batch.request(buffer, first);
    let (Some(key), 3) = (head.get(1), head.len()) else { return 0 };
    let mut items: SmallVec<[&[u8]; RUN_LENGTH]> = SmallVec::new();
    for index in first..batch.len().min(first + RUN_LENGTH) {
        let args = batch.request(buffer, index);
        let item = args.get(2).unwrap_or_default();
        if args.len() != 3 || item.len() > RUN_ITEM_BYTES || args[0] != head[0] || args[1] != *key {
            break;
        }
        items.push(item);
    }
    let RunAnswers { bools, refused } = run(context, key, &items);
    let protocol = context.session.protocol;
    if refused.is_empty() {
        bools.iter().for_each(|answer| encode_bool(*answer, protocol, out));
    } else {
        write_with_errors(context, (&bools, &refused), out);
    }
    context.counters.commands.add(bools.len() as u64);
    bools.len()
}

fn write_with_errors(context: &Context<'_>, (bools, refused): (&[bool], &[(usize, CommandError)]), out: &mut Vec<u8>) {
    let mut refused = refused.iter().peekable();
    for (i, answer) in bools.iter().enumerate() {
        match refused.next_if(|(at, _)| *at == i) {
            Some((_, error)) => write(context, &Reply::Error(error.message()), out),
            None => encode_bool(*answer, context.session.protocol, out),
        }
    }
}

fn call(context: &mut Context<'_>, command: Option<&'static Command>, args: Args<'_>) -> Outcome {
    let Some(command) = command else {
        // A browser was made to talk to us by some page; it must not get to the commands in the body of its request.
        if HTTP_WORDS.iter().any(|word| args[0].eq_ignore_ascii_case(word)) {
            context.session.closing = true;
        }
        if let Some(transaction) = &mut context.session.transaction {
            transaction.failed = true;
        }
        return Err(unknown_command(args).into());
    };
    let command = match checked(context, command, args) {
        Ok(command) => command,
        Err(error) => return Err(transactions::refused(context, command, error).into()),
    };
    match may_change(context, command) {
        Err(Stop::Refused(error)) => return Err(transactions::refused(context, command, error).into()),
        // One that is only kept changes nothing yet.
        Err(stop) if context.session.transaction.is_none() => return Err(stop),
        Err(_) | Ok(()) => {}
    }
    if context.session.transaction.is_some() && !command.flags.has(Flags::AT_ONCE) {
        return transactions::queue(context, command, args);
    }
    let outcome = (command.handler)(context, args);
    if !matches!(outcome, Err(Stop::Busy(_))) {
        context.counters.commands.add(1);
    }
    match outcome {
        Err(Stop::Refused(CommandError::NoRoomYet { bytes })) => {
            Err(Stop::Long(Box::new(AfterEviction::new(command, bytes))))
        }
        outcome => outcome,
    }
}

/// The row that answers a request, which is of its form and allowed now.
fn checked(
    context: &mut Context<'_>,
    command: &'static Command,
    args: Args<'_>,
) -> Result<&'static Command, CommandError> {
    let (command, full_name) = resolve(command, args)?;
    if !command.takes(args.len()) {
        return Err(CommandError::WrongArity(full_name.to_string().into()));
    }
    if !context.session.authenticated && !command.flags.has(Flags::NO_AUTH) {
        return Err(CommandError::text("NOAUTH Authentication required."));
    }
    if command.flags.has(Flags::NO_MULTI) && context.session.transaction.is_some() {
        return Err(CommandError::text("ERR Command not allowed inside a transaction"));
    }
    if context.host.is_loading() && !command.flags.has(Flags::LOADING) {
        return Err(LOADING);
    }
    if has_room(context, command) { Ok(command) } else { Err(CommandError::OutOfMemory) }
}

const LOADING: CommandError = CommandError::text("LOADING SeenDB is loading the dataset in memory");

/// Whether a command may change keys now, if it does. As in Redis, PING tells too that changes are refused.
fn may_change(context: &Context<'_>, command: &Command) -> Result<(), Stop> {
    let tells = command.flags.has(Flags::WRITE) || command.name == "ping";
    if !tells {
        return Ok(());
    }
    match context.host.change_gate() {
        ChangeGate::Wait(wait) if command.flags.has(Flags::WRITE) => Err(Stop::Busy(wait)),
        ChangeGate::Refused(error) => Err(CommandError::Text(error.into()).into()),
        ChangeGate::Open | ChangeGate::Wait(_) => Ok(()),
    }
}

/// Whether a run of requests may be answered without a further look at each.
fn may_run(context: &Context<'_>, command: &Command) -> bool {
    context.session.authenticated
        && context.session.transaction.is_none()
        && !context.host.is_loading()
        && (!command.flags.has(Flags::WRITE) || matches!(context.host.change_gate(), ChangeGate::Open))
        && has_room(context, command)
}

/// Before a command at the memory limit keys are evicted for so long. Then it runs, as long as more can go: each command takes
/// little, and gives many keys this chance.
const EVICTION_SLICE: Duration = Duration::from_micros(500);

/// Whether the memory limit allows a command, after making room if it must.
pub(super) fn has_room(context: &Context<'_>, command: &Command) -> bool {
    context.settings.maxmemory() == 0
        || !command.flags.has(Flags::DENYOOM)
        || context.host.make_room(0, EVICTION_SLICE) != Room::Refused
}

/// The row that answers a request: a container's subcommand where there is one.
///
/// # Errors
/// The container has no such subcommand.
pub fn resolve(command: &'static Command, args: Args<'_>) -> Result<(&'static Command, FullName), CommandError> {
    let (false, Some(word)) = (command.subcommands.is_empty(), args.get(1)) else {
        return Ok((command, FullName { container: None, name: command.name }));
    };
    match command.subcommand(word) {
        Some(sub) => Ok((sub, FullName { container: Some(command.name), name: sub.name })),
        None => Err(unknown_subcommand(command, word)),
    }
}

/// A command's name as errors and `COMMAND` show it: `get`, `client|setname`.
#[derive(Clone, Copy)]
pub struct FullName {
    container: Option<&'static str>,
    name: &'static str,
}

impl std::fmt::Display for FullName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.container {
            Some(container) => write!(f, "{container}|{}", self.name),
            None => f.write_str(self.name),
        }
    }
}

fn unknown_subcommand(container: &Command, word: &[u8]) -> CommandError {
    let container = container.name.to_ascii_uppercase();
    CommandError::Text(format!("ERR unknown subcommand '{}'. Try {container} HELP.", quoted(word)).into())
}

/// First words of lines that only an HTTP request has.
const HTTP_WORDS: [&[u8]; 2] = [b"post", b"host:"];

/// The most bytes of arguments that the error about an unknown command repeats.
const ARGUMENTS_SHOWN_BYTES: usize = 128;

fn unknown_command(args: Args<'_>) -> CommandError {
    let mut shown = String::new();
    for arg in args.iter().skip(1) {
        let room = ARGUMENTS_SHOWN_BYTES.saturating_sub(shown.len());
        if room == 0 {
            break;
        }
        shown += &format!("'{}' ", String::from_utf8_lossy(&arg[..arg.len().min(room)]));
    }
    CommandError::Text(format!("ERR unknown command '{}', with args beginning with: {shown}", quoted(&args[0])).into())
}
