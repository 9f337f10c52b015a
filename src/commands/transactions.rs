//! `MULTI`, `EXEC`, `DISCARD`, `WATCH`, `UNWATCH`: several commands in one step.
//!
//! Between MULTI and EXEC requests are checked for form and kept. EXEC knows the keys of all of them from their rows, locks
//! the shards of these keys and of those that are watched (all shards, if one goes over whole databases) in their order, looks
//! whether a watched key was changed, and runs everything under these locks. A transaction that takes long takes its keys out
//! instead, as a long command does, and works through its commands in steps; other clients wait for these keys only.
//!
//! There is no scripting: a script needs data to compute with, and filters give nothing but yes and no.

use std::time::{Duration, Instant};

use super::context::{ChangeGate, Context, Transaction};
use super::dispatch::{LongCommand, Outcome, Step, Stop, has_room};
use super::error::CommandError;
use super::introspection::keys_of_request;
use super::room::AfterEviction;
use super::table::{Argument, Command, Flags, Group, KeySpec};
use crate::config::ClientClass;
use crate::keyspace::held::Held;
use crate::keyspace::latch::Wait;
use crate::keyspace::latched::LatchedKeys;
use crate::keyspace::watch::Watch;
use crate::keyspace::{DATABASES, Keyspace};
use crate::resp::{Args, OwnedArgs, Reply, encode, parse_integer};

const FREE: Flags = Flags::NOSCRIPT.with(Flags::LOADING).with(Flags::STALE).with(Flags::FAST);
const ROW: Command = Command { group: Group::Transactions, since: "1.2.0", ..Command::DEFAULT };

const EXEC: &str = "exec";

/// The rows of this family.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "multi",
        arity: 1,
        flags: FREE.with(Flags::AT_ONCE),
        summary: "Begins a transaction.",
        handler: multi,
        ..ROW
    },
    Command {
        name: EXEC,
        arity: 1,
        flags: Flags::NOSCRIPT.with(Flags::LOADING).with(Flags::STALE).with(Flags::AT_ONCE),
        summary: "Runs the commands of a transaction in one step.",
        complexity: "That of the commands",
        handler: exec,
        ..ROW
    },
    Command {
        name: "discard",
        arity: 1,
        flags: FREE.with(Flags::AT_ONCE),
        summary: "Drops the commands of a transaction.",
        complexity: "O(n), n commands",
        since: "2.0.0",
        handler: discard,
        ..ROW
    },
    Command {
        name: "watch",
        arity: -2,
        flags: FREE.with(Flags::AT_ONCE),
        keys: &[KeySpec { first: 1, last: -1, step: 1, flags: &["RO"] }],
        summary: "Lets the next EXEC do nothing if one of these keys is changed before.",
        complexity: "O(n), n keys",
        since: "2.2.0",
        arguments: &[Argument::KEY.multiple()],
        handler: watch,
        ..ROW
    },
    Command {
        name: "unwatch",
        arity: 1,
        flags: FREE,
        summary: "Forgets the watched keys.",
        since: "2.2.0",
        handler: |context, _| {
            context.session.watch = None;
            Ok(Reply::Ok)
        },
        ..ROW
    },
];

/// The most bytes that the queue of a transaction may hold; more is refused at once.
const QUEUE_BYTES: usize = 1 << 30;

/// Keep a request for EXEC.
pub(super) fn queue(context: &mut Context<'_>, command: &'static Command, args: Args<'_>) -> Outcome {
    let Some(transaction) = &mut context.session.transaction else { return Ok(Reply::Null) };
    let owned = OwnedArgs::collect(args).filter(|owned| transaction.bytes + owned.heap_bytes() <= QUEUE_BYTES);
    let Some(owned) = owned else {
        transaction.failed = true;
        return Err(CommandError::text("ERR the transaction holds more than 1 GiB").into());
    };
    transaction.bytes += owned.heap_bytes() + size_of::<(&Command, OwnedArgs)>();
    transaction.queue.push((command, owned));
    Ok(Reply::simple("QUEUED"))
}

/// A request was refused for its form, or for now: a transaction that it was to belong to is not run. An EXEC that is refused
/// ends its transaction.
pub(super) fn refused(context: &mut Context<'_>, command: &Command, error: CommandError) -> CommandError {
    if let Some(transaction) = &mut context.session.transaction {
        transaction.failed = true;
    }
    if command.name != EXEC {
        return error;
    }
    end(context);
    let text = error.message();
    let reason = text.strip_prefix("ERR ").unwrap_or(&text);
    CommandError::Text(format!("EXECABORT Transaction discarded because of: {reason}").into())
}

fn multi(context: &mut Context<'_>, _: Args<'_>) -> Outcome {
    if context.session.transaction.is_some() {
        return Err(CommandError::text("ERR MULTI calls can not be nested").into());
    }
    context.session.transaction = Some(Transaction::default());
    Ok(Reply::Ok)
}

fn discard(context: &mut Context<'_>, _: Args<'_>) -> Outcome {
    if context.session.transaction.take().is_none() {
        return Err(CommandError::text("ERR DISCARD without MULTI").into());
    }
    context.session.watch = None;
    Ok(Reply::Ok)
}

fn watch(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    if context.session.transaction.is_some() {
        return Err(CommandError::text("ERR WATCH inside MULTI is not allowed").into());
    }
    let (db, keyspace) = (context.session.db, context.keyspace);
    let watch = context.session.watch.get_or_insert_with(|| Watch::new(keyspace));
    args.iter().skip(1).for_each(|name| watch.add(db, name));
    Ok(Reply::Ok)
}

const BUSY: &str = "ERR a key of the transaction is busy";

/// What a transaction works on.
struct Scope {
    /// Each key once, with its database.
    keys: Vec<(usize, Box<[u8]>)>,
    /// A command goes over whole databases.
    whole: bool,
    /// The work is more than may be done under locks.
    long: bool,
}

/// Words and bytes of all requests above which a transaction takes its keys out.
const LONG_WORDS: usize = 4096;
const LONG_BYTES: usize = 1 << 20;

impl Scope {
    fn of(transaction: &Transaction, db: usize) -> Self {
        let (mut keys, mut db, mut words, mut whole, mut heavy) = (Vec::new(), db, 0, false, false);
        for (command, args) in &transaction.queue {
            let args = args.as_args();
            words += args.len();
            whole |= command.flags.has(Flags::ALL_KEYS);
            heavy |= command.flags.has(Flags::COPIES_VALUES);
            keys.extend(keys_of_request(command, args, db).map(|(db, key)| (db, Box::from(key))));
            if command.name == "select" {
                // One that is out of range will be refused, and what follows uses the same database as before.
                let index = args.get(1).and_then(parse_integer).and_then(|index| usize::try_from(index).ok());
                db = index.filter(|index| *index < DATABASES).unwrap_or(db);
            }
        }
        keys.sort_unstable();
        keys.dedup();
        let long = heavy || words > LONG_WORDS || transaction.bytes > LONG_BYTES;
        Self { keys, whole, long }
    }

    /// Whether the keys are taken out instead of their shards being locked.
    fn takes_keys(&self) -> bool {
        self.long && !self.whole
    }
}

fn exec(context: &mut Context<'_>, _: Args<'_>) -> Outcome {
    let Some(transaction) = &context.session.transaction else {
        return Err(CommandError::text("ERR EXEC without MULTI").into());
    };
    if transaction.failed {
        end(context);
        return Err(CommandError::text("EXECABORT Transaction discarded because of previous errors.").into());
    }
    if transaction.queue.iter().any(|(command, _)| command.flags.has(Flags::WRITE)) {
        match context.host.change_gate() {
            ChangeGate::Open => {}
            ChangeGate::Wait(wait) => return Err(wait.into()),
            ChangeGate::Refused(error) => {
                end(context);
                let text = format!("EXECABORT Transaction discarded because of: {error}");
                return Err(CommandError::Text(text.into()).into());
            }
        }
    }
    let needs_memory = transaction.queue.iter().find(|(command, _)| command.flags.has(Flags::DENYOOM));
    if needs_memory.is_some_and(|(command, _)| !has_room(context, command)) {
        end(context);
        let why = CommandError::OutOfMemory.message();
        return Err(CommandError::Text(format!("EXECABORT Transaction discarded because of: {why}").into()).into());
    }
    let scope = Scope::of(transaction, context.session.db);
    let keyspace = context.keyspace;
    if scope.takes_keys() {
        keyspace.may_take()?;
    }
    let mut held = lock(keyspace, &scope, context.session.watch.as_ref())?;
    // A watched key whose life has ended since counts as changed.
    context.session.watch.iter().for_each(|watch| watch.remove_ended(&mut held));
    let transaction = context.session.transaction.take().unwrap_or_default();
    // Watching ends here. It takes locks to forget a key, so that waits until those of the transaction are given back.
    let watch = context.session.watch.take();
    let outcome = run_held(context, held, scope, transaction, watch.as_ref());
    drop(watch);
    outcome
}

/// Lock what a transaction works on, and the keys that are watched for it: of two transactions that each watch what the other
/// changes only one may be done.
fn lock<'a>(keyspace: &'a Keyspace, scope: &Scope, watch: Option<&Watch>) -> Result<Held<'a>, Wait> {
    if scope.whole {
        return keyspace.lock_all(|_| true);
    }
    let own = scope.keys.iter().map(|(db, name)| (*db, &name[..]));
    keyspace.lock(own.chain(watch.into_iter().flat_map(Watch::keys)))
}

fn run_held<'a>(
    context: &mut Context<'a>,
    mut held: Held<'a>,
    scope: Scope,
    transaction: Transaction,
    watch: Option<&Watch>,
) -> Outcome {
    if watch.is_some_and(Watch::is_raised) {
        return Ok(Reply::NullArray);
    }
    if scope.takes_keys() {
        let keys = context.keyspace.latch_keys(scope.keys, &mut held)?;
        let replies = Replies::of(context);
        return Err(Stop::Long(Box::new(LongExec { transaction, next: 0, replies, current: None, keys })));
    }
    context.held = Some(held);
    let mut replies = Replies::of(context);
    for (next, (command, args)) in transaction.queue.iter().enumerate() {
        context.counters.commands.add(1);
        let reply = match (command.handler)(context, args.as_args()) {
            Ok(reply) => reply,
            // Under all locks no key can go.
            Err(Stop::Refused(error)) if scope.whole => Reply::Error(error.message()),
            Err(stop) => match waiting(stop, command) {
                // It waits for other keys to go, which nobody does under locks: its own are taken out before these are given back.
                Ok(current) if !scope.whole => {
                    let Some(mut held) = context.held.take() else { return Ok(Reply::NullArray) };
                    let keys = context.keyspace.latch_keys(scope.keys, &mut held)?;
                    let current = Some(current);
                    return Err(Stop::Long(Box::new(LongExec { transaction, next, replies, current, keys })));
                }
                Ok(current) => to_the_end(current, context, args.as_args()),
                Err(reply) => reply,
            },
        };
        replies.push(&reply, context);
    }
    context.held = None;
    Ok(replies.finish(context))
}

/// How a command of a transaction goes on that gave no reply; or its reply.
fn waiting(stop: Stop, command: &'static Command) -> Result<Box<dyn LongCommand>, Reply> {
    match stop {
        Stop::Refused(CommandError::NoRoomYet { bytes }) => Ok(Box::new(AfterEviction::new(command, bytes))),
        Stop::Long(long) => Ok(long),
        Stop::Refused(error) => Err(Reply::Error(error.message())),
        // Its keys are its own: nobody else can have one.
        Stop::Busy(_) => Err(Reply::Error(BUSY.into())),
    }
}

/// Run a command to its end.
fn to_the_end(mut command: Box<dyn LongCommand>, context: &mut Context<'_>, args: Args<'_>) -> Reply {
    loop {
        if let Ok(Some(reply)) = command.step(context, args, Instant::now() + Duration::from_secs(1)) {
            return reply;
        }
    }
}

/// The transaction is over, and with it the watching.
fn end(context: &mut Context<'_>) {
    context.session.watch = None;
    context.session.transaction = None;
}

/// The replies of a transaction, each in the protocol that is in force when it is given. More than the output limit allows are
/// not kept, and the client is cut off as he would be without the transaction.
struct Replies {
    count: usize,
    bytes: Vec<u8>,
    limit: u64,
    passed: bool,
}

impl Replies {
    fn of(context: &Context<'_>) -> Self {
        let hard = context.settings.output_limit(ClientClass::Normal).hard;
        Self { count: 0, bytes: Vec::new(), limit: if hard == 0 { u64::MAX } else { hard }, passed: false }
    }

    fn push(&mut self, reply: &Reply, context: &Context<'_>) {
        self.count += 1;
        if self.passed {
            return;
        }
        encode(reply, context.session.protocol, &mut self.bytes);
        if self.bytes.len() as u64 > self.limit {
            (self.bytes, self.passed) = (Vec::new(), true);
        }
    }

    /// All of them as one reply; none are left.
    fn finish(&mut self, context: &mut Context<'_>) -> Reply {
        if self.passed {
            context.session.closing = true;
            return Reply::Error("ERR the replies of the transaction pass 'client-output-buffer-limit'".into());
        }
        Reply::Encoded { count: self.count, bytes: std::mem::take(&mut self.bytes) }
    }
}

/// A transaction that has taken its keys out.
struct LongExec {
    transaction: Transaction,
    next: usize,
    replies: Replies,
    /// The command that is being run, if it takes long itself.
    current: Option<Box<dyn LongCommand>>,
    keys: LatchedKeys,
}

impl LongExec {
    /// The reply of the next command, if it is done by then.
    fn next_reply(&mut self, context: &mut Context<'_>, until: Instant) -> Step {
        let (command, args) = &self.transaction.queue[self.next];
        if self.current.is_none() {
            context.counters.commands.add(1);
            match (command.handler)(context, args.as_args()) {
                Ok(reply) => return Ok(Some(reply)),
                Err(stop) => match waiting(stop, command) {
                    Ok(current) => self.current = Some(current),
                    Err(reply) => return Ok(Some(reply)),
                },
            }
        }
        let Some(current) = &mut self.current else { return Ok(None) };
        let reply = current.step(context, args.as_args(), until)?;
        if reply.is_some() {
            self.current = None;
        }
        Ok(reply)
    }
}

impl LongCommand for LongExec {
    fn step(&mut self, context: &mut Context<'_>, _: Args<'_>, until: Instant) -> Step {
        let keyspace = context.keyspace;
        context.held = Some(self.keys.hold_at(keyspace));
        while self.next < self.transaction.queue.len() {
            match self.next_reply(context, until) {
                Ok(Some(reply)) => {
                    self.replies.push(&reply, context);
                    self.next += 1;
                }
                Ok(None) => break,
                // No key of its own can be away; should one be, it must not be waited for.
                Err(_) => {
                    self.replies.push(&Reply::Error(BUSY.into()), context);
                    (self.current, self.next) = (None, self.next + 1);
                }
            }
            if Instant::now() >= until && self.next < self.transaction.queue.len() {
                break;
            }
        }
        context.held = None;
        if self.next < self.transaction.queue.len() {
            return Ok(None);
        }
        Ok(Some(self.replies.finish(context)))
    }
}
