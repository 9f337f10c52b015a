//! Commands on keys of any type.

use std::time::{Duration, Instant};

use super::context::Context;
use super::dispatch::{LongCommand, Outcome, Stop};
use super::error::CommandError;
use super::table::{Argument, ArgumentKind, Command, Flags, Group, KeySpec};
use super::words::{Words, is, unsigned};
use crate::keyspace::entry::EntryRef;
use crate::keyspace::{Keyspace, SHARDS, glob};
use crate::resp::{Args, Reply, parse_integer};
use std::sync::Arc;

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
        flags: Flags::READONLY,
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
        flags: Flags::READONLY,
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
        flags: Flags::READONLY,
        summary: "Gives the name of some key.",
        complexity: "O(1)",
        handler: random_key,
        ..ROW
    },
];

fn delete(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let removed = context.keyspace.remove(context.session.db, args.iter().skip(1))?;
    Ok(Reply::Integer(removed as i64))
}

fn exists(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let found = context.keyspace.count_existing(context.session.db, args.iter().skip(1));
    context.counters.hits.add(found as u64);
    context.counters.misses.add((args.len() - 1 - found) as u64);
    Ok(Reply::Integer(found as i64))
}

fn touch(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let found = context.keyspace.count_existing(context.session.db, args.iter().skip(1));
    Ok(Reply::Integer(found as i64))
}

fn kind(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let kind = context.keyspace.kind(context.session.db, &args[1]);
    Ok(Reply::simple(kind.map_or("none", |kind| kind.type_name())))
}

fn random_key(context: &mut Context<'_>, _: Args<'_>) -> Outcome {
    let name = context.keyspace.random_name(context.session.db, random);
    Ok(name.map_or(Reply::Null, |name| Reply::Bulk(name.into())))
}

/// Random bits that need not be secret.
fn random() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0)
}

/// Commands over the whole database work so long before they let others run.
const SLICE: Duration = Duration::from_millis(1);

/// Run the first step at once; what is not done then goes on in further steps.
fn in_steps(mut command: impl LongCommand + 'static, args: Args<'_>) -> Outcome {
    match command.step(args, Instant::now() + SLICE) {
        Some(reply) => Ok(reply),
        None => Err(Stop::Long(Box::new(command))),
    }
}

fn keys(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let walk = Keys { keyspace: context.keyspace.clone(), db: context.session.db, shard: 0, names: Vec::new() };
    in_steps(walk, args)
}

struct Keys {
    keyspace: Arc<Keyspace>,
    db: usize,
    shard: usize,
    names: Vec<Reply>,
}

impl LongCommand for Keys {
    fn step(&mut self, args: Args<'_>, until: Instant) -> Option<Reply> {
        let (pattern, names) = (&args[1], &mut self.names);
        while self.shard < SHARDS {
            self.keyspace.for_each_in_shard(self.db, self.shard, |entry| {
                if pattern == b"*" || glob::matches(pattern, entry.name()) {
                    names.push(Reply::bulk(entry.name()));
                }
            });
            self.shard += 1;
            if Instant::now() >= until && self.shard < SHARDS {
                return None;
            }
        }
        Some(Reply::Array(std::mem::take(names)))
    }
}

fn scan(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let cursor = unsigned(&args[1]).ok_or(CommandError::text("ERR invalid cursor"))?;
    let filter = ScanFilter::of(args)?;
    let scan = Scan {
        keyspace: context.keyspace.clone(),
        db: context.session.db,
        cursor,
        keys_left: filter.count,
        buckets_left: filter.count.saturating_mul(BUCKETS_PER_KEY),
        names: Vec::new(),
    };
    in_steps(scan, args)
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

    fn takes(&self, entry: EntryRef<'_>) -> bool {
        self.pattern.is_none_or(|pattern| glob::matches(pattern, entry.name()))
            && self.kind.is_none_or(|kind| is(kind, entry.kind().type_name()))
    }
}

struct Scan {
    keyspace: Arc<Keyspace>,
    db: usize,
    cursor: u64,
    keys_left: u64,
    buckets_left: u64,
    names: Vec<Reply>,
}

impl LongCommand for Scan {
    fn step(&mut self, args: Args<'_>, until: Instant) -> Option<Reply> {
        let Ok(filter) = ScanFilter::of(args) else { return Some(Reply::Error("ERR syntax error".into())) };
        loop {
            let (names, keys_left) = (&mut self.names, &mut self.keys_left);
            self.cursor = self.keyspace.scan(self.db, self.cursor, |entry| {
                *keys_left = keys_left.saturating_sub(1);
                if filter.takes(entry) {
                    names.push(Reply::bulk(entry.name()));
                }
            });
            self.buckets_left -= 1;
            if self.cursor == 0 || self.keys_left == 0 || self.buckets_left == 0 {
                let cursor = Reply::text(self.cursor.to_string());
                return Some(Reply::Array(vec![cursor, Reply::Array(std::mem::take(names))]));
            }
            if Instant::now() >= until {
                return None;
            }
        }
    }
}
