//! Commands on keys of any type.

use std::time::{Duration, Instant};

use super::context::Context;
use super::dispatch::{LongCommand, Outcome, Step, Stop, refused};
use super::error::CommandError;
use super::table::{Argument, ArgumentKind, Command, Flags, Group, KeySpec};
use super::words::{Words, cursor, is};
use crate::keyspace::effect::Cause;
use crate::keyspace::entry::EntryRef;
use crate::keyspace::{SHARDS, glob};
use crate::resp::{Args, Reply, parse_integer};

const ROW: Command = Command { group: Group::Generic, since: "1.0.0", ..Command::DEFAULT };
const ONE: KeySpec = KeySpec { first: 1, last: 1, step: 1, flags: &["RO"] };
const ALL: KeySpec = KeySpec { first: 1, last: -1, step: 1, flags: &["RO"] };
const REMOVED: KeySpec = KeySpec { flags: &["RM", "delete"], ..ALL };
const KEYS: Argument = Argument::KEY.multiple();
const PATTERN: Argument = Argument::new("pattern", ArgumentKind::Pattern);

/// The rows of this family.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "del",
        arity: -2,
        flags: Flags::WRITE,
        keys: &[REMOVED],
        summary: "Deletes keys.",
        complexity: "O(n), n keys; values are freed in the background when large",
        arguments: &[KEYS],
        handler: delete,
        ..ROW
    },
    Command {
        name: "unlink",
        arity: -2,
        flags: Flags::WRITE.with(Flags::FAST),
        keys: &[REMOVED],
        summary: "Deletes keys.",
        complexity: "O(n), n keys; values are freed in the background when large",
        since: "4.0.0",
        arguments: &[KEYS],
        handler: delete,
        ..ROW
    },
    Command {
        name: "exists",
        arity: -2,
        flags: Flags::READONLY.with(Flags::FAST),
        keys: &[ALL],
        summary: "Counts how many of the keys exist.",
        complexity: "O(n), n keys",
        arguments: &[KEYS],
        handler: exists,
        ..ROW
    },
    Command {
        name: "touch",
        arity: -2,
        flags: Flags::READONLY.with(Flags::FAST),
        keys: &[ALL],
        summary: "Sets the time of the last access of keys; counts those that exist.",
        complexity: "O(n), n keys",
        since: "3.2.1",
        arguments: &[KEYS],
        handler: touch,
        ..ROW
    },
    Command {
        name: "type",
        arity: 2,
        flags: Flags::READONLY.with(Flags::FAST),
        keys: &[ONE],
        summary: "Tells the type of a key's value.",
        arguments: &[Argument::KEY],
        handler: kind,
        ..ROW
    },
    Command {
        name: "keys",
        arity: 2,
        flags: Flags::READONLY.with(Flags::ALL_KEYS),
        more_categories: &["@dangerous"],
        summary: "Lists the keys that match a pattern.",
        complexity: "O(n), n keys of the database",
        arguments: &[PATTERN],
        handler: keys,
        ..ROW
    },
    Command {
        name: "scan",
        arity: -2,
        flags: Flags::READONLY.with(Flags::ALL_KEYS),
        summary: "Goes through the keys of the database, a few at a time.",
        complexity: "O(1) a call, O(n) for all n keys",
        since: "2.8.0",
        arguments: &[
            Argument::new("cursor", ArgumentKind::Integer),
            PATTERN.token("MATCH").optional(),
            Argument::new("count", ArgumentKind::Integer).token("COUNT").optional(),
            Argument::new("type", ArgumentKind::String).token("TYPE").optional(),
        ],
        handler: scan,
        ..ROW
    },
    Command {
        name: "randomkey",
        arity: 1,
        flags: Flags::READONLY.with(Flags::ALL_KEYS),
        summary: "Gives the name of some key.",
        complexity: "O(1)",
        handler: random_key,
        ..ROW
    },
];

/// The keys of a request are gone through in pieces of so many, each piece at one moment: a million under one hold of their
/// locks would stall everybody for half a second.
const KEYS_AT_ONCE: usize = 1000;

/// A command that counts keys, piece by piece.
struct CountKeys {
    next: usize,
    count: u64,
    piece: fn(&mut Context<'_>, Args<'_>) -> Result<u64, Stop>,
}

impl CountKeys {
    /// Count by this function, which is given requests with the keys of a piece from word 0 on.
    fn by(piece: fn(&mut Context<'_>, Args<'_>) -> Result<u64, Stop>) -> Self {
        Self { next: 1, count: 0, piece }
    }

    fn run(self, context: &mut Context<'_>, args: Args<'_>) -> Outcome {
        if args.len() <= KEYS_AT_ONCE {
            return (self.piece)(context, args.slice_from(1)).map(|count| Reply::Integer(count as i64));
        }
        in_steps(context, self, args)
    }
}

impl LongCommand for CountKeys {
    fn step(&mut self, context: &mut Context<'_>, args: Args<'_>, until: Instant) -> Step {
        while self.next < args.len() {
            let piece = args.range(self.next, self.next + KEYS_AT_ONCE);
            match (self.piece)(context, piece) {
                Ok(count) => self.count += count,
                Err(Stop::Refused(error)) => return refused(&error),
                // A key of the piece is away: the next step tries it again.
                Err(Stop::Busy(wait)) => return Err(wait),
                Err(Stop::Long(_)) => return Ok(None),
            }
            self.next += piece.len();
            if Instant::now() >= until && self.next < args.len() {
                return Ok(None);
            }
        }
        Ok(Some(Reply::Integer(self.count as i64)))
    }
}

fn delete(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    CountKeys::by(delete_piece).run(context, args)
}

fn delete_piece(context: &mut Context<'_>, names: Args<'_>) -> Result<u64, Stop> {
    let db = context.session.db;
    let removed = context.with_keys(names.iter().map(|name| (db, name)), |held| {
        let mut removed = 0;
        for name in names {
            removed += u64::from(held.write(db, name, |cell| cell.delete(Cause::Command))?);
        }
        Ok(removed)
    })?;
    Ok(removed)
}

fn exists(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    CountKeys::by(|context, names| {
        let found = count_existing(context, names)?;
        context.counters.hits.add(found);
        context.counters.misses.add(names.len() as u64 - found);
        Ok(found)
    })
    .run(context, args)
}

fn touch(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    CountKeys::by(count_existing).run(context, args)
}

fn count_existing(context: &mut Context<'_>, names: Args<'_>) -> Result<u64, Stop> {
    let db = context.session.db;
    let Some(held) = &mut context.held else { return Ok(context.keyspace.count_existing(db, names.iter()) as u64) };
    let mut found = 0;
    for name in names {
        found += u64::from(held.read(db, name, |entry| entry.is_some())?);
    }
    Ok(found)
}

fn kind(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let kind = match context.held {
        None => context.keyspace.kind(context.session.db, &args[1]),
        Some(_) => context.peek(&args[1], |entry| entry.and_then(EntryRef::kind))?,
    };
    Ok(Reply::simple(kind.map_or("none", |kind| kind.type_name())))
}

fn random_key(context: &mut Context<'_>, _: Args<'_>) -> Outcome {
    let name = context.keyspace.random_name(context.held.as_mut(), context.session.db, random);
    Ok(name.map_or(Reply::Null, |name| Reply::Bulk(name.into())))
}

/// Random bits that need not be secret.
fn random() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0)
}

/// Commands over the whole database work so long before they let others run.
const SLICE: Duration = Duration::from_millis(1);

/// Run the first step at once; what is not done then goes on in further steps. In a transaction there is only one.
fn in_steps(context: &mut Context<'_>, mut command: impl LongCommand + 'static, args: Args<'_>) -> Outcome {
    loop {
        // What is done is not done again: who has to wait goes on in steps too.
        if let Ok(Some(reply)) = command.step(context, args, Instant::now() + SLICE) {
            return Ok(reply);
        }
        if context.held.is_none() {
            return Err(Stop::Long(Box::new(command)));
        }
    }
}

/// The longest pattern: the work of a match can be the product of both lengths.
const PATTERN_BYTES: usize = 1024;
/// Names whose match may take more steps than this are copied and matched without a lock.
const QUICK_STEPS: usize = 64 << 10;

/// Whether a pattern is short enough.
///
/// # Errors
/// It is not.
pub(super) fn check_pattern(pattern: &[u8]) -> Result<(), CommandError> {
    if pattern.len() > PATTERN_BYTES {
        return Err(CommandError::text("ERR pattern is longer than 1024 bytes"));
    }
    Ok(())
}

/// Whether a name matches, if that is soon said.
fn quick_match(pattern: &[u8], name: &[u8]) -> Option<bool> {
    if pattern == b"*" {
        return Some(true);
    }
    (pattern.len() * name.len() <= QUICK_STEPS).then(|| glob::matches(pattern, name))
}

fn keys(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    check_pattern(&args[1])?;
    in_steps(context, Keys { shard: 0, names: Vec::new() }, args)
}

struct Keys {
    shard: usize,
    names: Vec<Reply>,
}

impl LongCommand for Keys {
    fn step(&mut self, context: &mut Context<'_>, args: Args<'_>, until: Instant) -> Step {
        let (pattern, names, db) = (&args[1], &mut self.names, context.session.db);
        let mut slow: Vec<Vec<u8>> = Vec::new();
        while self.shard < SHARDS {
            context.keyspace.for_each_in_shard(context.held.as_mut(), db, self.shard, |entry| {
                match quick_match(pattern, entry.name()) {
                    Some(true) => names.push(Reply::bulk(entry.name())),
                    Some(false) => {}
                    None => slow.push(entry.name().to_vec()),
                }
            });
            let matched = slow.drain(..).filter(|name| glob::matches(pattern, name));
            names.extend(matched.map(|name| Reply::Bulk(name.into())));
            self.shard += 1;
            if Instant::now() >= until && self.shard < SHARDS {
                return Ok(None);
            }
        }
        Ok(Some(Reply::Array(std::mem::take(names))))
    }
}

fn scan(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let cursor = cursor(&args[1]).ok_or(CommandError::text("ERR invalid cursor"))?;
    let filter = ScanFilter::of(args)?;
    let buckets_left = filter.count.saturating_mul(BUCKETS_PER_KEY);
    in_steps(context, Scan { cursor, keys_left: filter.count, buckets_left, names: Vec::new() }, args)
}

/// A scan visits at most so many buckets for each key that COUNT asks for.
const BUCKETS_PER_KEY: u64 = 10;

/// Which keys a scan returns; names are read from the request, nothing is copied.
struct ScanFilter<'a> {
    pattern: Option<&'a [u8]>,
    kind: Option<&'a [u8]>,
    count: u64,
}

impl<'a> ScanFilter<'a> {
    fn of(args: Args<'a>) -> Result<Self, CommandError> {
        const SYNTAX: CommandError = CommandError::text("ERR syntax error");
        let mut filter = Self { pattern: None, kind: None, count: 10 };
        let mut words = Words::from(args, 2);
        while let Some(word) = words.next() {
            let value = words.next().ok_or(SYNTAX)?;
            if is(word, "MATCH") {
                check_pattern(value)?;
                filter.pattern = Some(value).filter(|pattern| *pattern != b"*");
            } else if is(word, "TYPE") {
                filter.kind = Some(value);
            } else if is(word, "COUNT") {
                let count = parse_integer(value).ok_or(CommandError::NotAnInteger)?;
                filter.count = u64::try_from(count).ok().filter(|count| *count > 0).ok_or(SYNTAX)?;
            } else {
                return Err(SYNTAX);
            }
        }
        Ok(filter)
    }

    /// Whether a key is one of them, if that is soon said.
    fn takes(&self, entry: EntryRef<'_>) -> Option<bool> {
        if self.kind.is_some_and(|kind| entry.kind().is_none_or(|own| !is(kind, own.type_name()))) {
            return Some(false);
        }
        self.pattern.map_or(Some(true), |pattern| quick_match(pattern, entry.name()))
    }
}

struct Scan {
    cursor: u64,
    keys_left: u64,
    buckets_left: u64,
    names: Vec<Reply>,
}

impl LongCommand for Scan {
    fn step(&mut self, context: &mut Context<'_>, args: Args<'_>, until: Instant) -> Step {
        let db = context.session.db;
        let Ok(filter) = ScanFilter::of(args) else { return Ok(Some(Reply::Error("ERR syntax error".into()))) };
        loop {
            let (names, keys_left, mut slow) = (&mut self.names, &mut self.keys_left, Vec::new());
            self.cursor = context.keyspace.scan(context.held.as_mut(), db, self.cursor, |entry| {
                *keys_left = keys_left.saturating_sub(1);
                match filter.takes(entry) {
                    Some(true) => names.push(Reply::bulk(entry.name())),
                    Some(false) => {}
                    None => slow.push(entry.name().to_vec()),
                }
            });
            let matches = |name: &Vec<u8>| filter.pattern.is_none_or(|pattern| glob::matches(pattern, name));
            names.extend(slow.into_iter().filter(matches).map(|name| Reply::Bulk(name.into())));
            self.buckets_left -= 1;
            if self.cursor == 0 || self.keys_left == 0 || self.buckets_left == 0 {
                let cursor = Reply::text(self.cursor.to_string());
                return Ok(Some(Reply::Array(vec![cursor, Reply::Array(std::mem::take(names))])));
            }
            if Instant::now() >= until {
                return Ok(None);
            }
        }
    }
}
