//! Keys on the move: other names, other databases, copies, and values as bytes.

use std::time::Instant;

use super::bloom::Bounds;
use super::context::Context;
use super::dispatch::{LongCommand, Outcome, Step, Stop, refused, write_bytes};
use super::error::CommandError;
use super::table::{Argument, ArgumentKind, Command, Flags, Group, KeySpec};
use super::words::{Words, is};
use crate::codec::bloom_value::ValueError;
use crate::codec::payload::{
    CellsDumpWriter, DumpWriter, PayloadError, RingDumpWriter, dump, dump_cells, dump_ring, read,
};
use crate::filters::bits::AllocError;
use crate::filters::ring::Ring;
use crate::keyspace::bloom::{COPIED_AT_ONCE, copied};
use crate::keyspace::built_filter;
use crate::keyspace::copies::{ValueCopy, cells_of};
use crate::keyspace::effect::{Cause, Effect};
use crate::keyspace::entry::{Entry, EntryRef, Footprint, LATEST_LIFE, ValueRef};
use crate::keyspace::held::Held;
use crate::keyspace::latch::Wait;
use crate::keyspace::latched::{Latched, LatchedKeys};
use crate::keyspace::{DATABASES, SetAside};
use crate::resp::{Args, Reply, parse_integer};

const ROW: Command = Command { group: Group::Generic, since: "1.0.0", ..Command::DEFAULT };
const SOURCE: KeySpec = KeySpec { first: 1, last: 1, step: 1, flags: &["RO", "access"] };
const FROM: KeySpec = KeySpec { flags: &["RW", "access", "delete"], ..SOURCE };
const TO: KeySpec = KeySpec { first: 2, last: 2, step: 1, flags: &["OW", "update"] };
const NEW_KEY: Argument = Argument::new("newkey", ArgumentKind::Key);

/// The rows of this family.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "rename",
        arity: 3,
        flags: Flags::WRITE,
        keys: &[FROM, TO],
        summary: "Gives a key another name, in place of a key that has it.",
        arguments: &[Argument::KEY, NEW_KEY],
        handler: |context, args| rename(context, args, true).map(|_| Reply::Ok),
        ..ROW
    },
    Command {
        name: "renamenx",
        arity: 3,
        flags: Flags::WRITE.with(Flags::FAST),
        keys: &[FROM, KeySpec { flags: &["OW", "insert"], ..TO }],
        summary: "Gives a key another name, unless a key has it.",
        arguments: &[Argument::KEY, NEW_KEY],
        handler: |context, args| rename(context, args, false).map(|renamed| Reply::Integer(i64::from(renamed))),
        ..ROW
    },
    Command {
        name: "copy",
        arity: -3,
        flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::COPIES_VALUES),
        keys: &[SOURCE, TO],
        summary: "Copies a key with its life.",
        complexity: "O(n), n bytes of the value",
        since: "6.2.0",
        arguments: &[
            Argument::new("source", ArgumentKind::Key),
            Argument::new("destination", ArgumentKind::Key),
            Argument::new("destination-db", ArgumentKind::Integer).token("DB").optional(),
            Argument::word("replace", "REPLACE"),
        ],
        handler: copy,
        ..ROW
    },
    Command {
        name: "move",
        arity: 3,
        flags: Flags::WRITE.with(Flags::FAST),
        keys: &[KeySpec { flags: &["RW", "access", "update"], ..SOURCE }],
        summary: "Takes a key to another database, unless a key of that name is there.",
        arguments: &[Argument::KEY, Argument::new("db", ArgumentKind::Integer)],
        handler: move_key,
        ..ROW
    },
    Command {
        name: "swapdb",
        arity: 3,
        flags: Flags::WRITE.with(Flags::FAST).with(Flags::ALL_KEYS),
        more_categories: &["@dangerous"],
        summary: "Exchanges two databases.",
        complexity: "O(1)",
        since: "4.0.0",
        arguments: &[Argument::new("index1", ArgumentKind::Integer), Argument::new("index2", ArgumentKind::Integer)],
        handler: swap,
        ..ROW
    },
    Command {
        name: "dump",
        arity: 2,
        flags: Flags::READONLY.with(Flags::COPIES_VALUES),
        keys: &[SOURCE],
        summary: "Gives a key's value as bytes that RESTORE takes, here or in a Redis with RedisBloom.",
        complexity: "O(n), n bytes of the value",
        since: "2.6.0",
        arguments: &[Argument::KEY],
        handler: dump_key,
        ..ROW
    },
    Command {
        name: "restore",
        arity: -4,
        flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::COPIES_VALUES),
        keys: &[KeySpec { flags: &["OW", "update"], ..SOURCE }],
        more_categories: &["@dangerous"],
        summary: "Makes a key from the bytes that DUMP gave.",
        complexity: "O(n), n bytes of the value",
        since: "2.6.0",
        arguments: &[
            Argument::KEY,
            Argument::new("ttl", ArgumentKind::Integer),
            Argument::new("serialized-value", ArgumentKind::String),
            Argument::word("replace", "REPLACE"),
            Argument::word("absttl", "ABSTTL"),
            Argument::new("seconds", ArgumentKind::Integer).token("IDLETIME").optional(),
            Argument::new("frequency", ArgumentKind::Integer).token("FREQ").optional(),
        ],
        handler: restore_key,
        ..ROW
    },
];

const SYNTAX: CommandError = CommandError::text("ERR syntax error");
const SAME: CommandError = CommandError::text("ERR source and destination objects are the same");

/// Bytes of bits of a key's value.
fn bit_bytes(entry: EntryRef<'_>) -> u64 {
    match entry.value() {
        ValueRef::Bloom(bloom) => bloom.bit_bytes(),
        value => cells_of(&value).map_or(0, |cells| cells.head().bytes()),
    }
}

/// Whether the value of a key takes long to copy.
fn is_heavy(entry: EntryRef<'_>) -> bool {
    bit_bytes(entry) > COPIED_AT_ONCE as u64
}

/// Whether the key got the other name.
fn rename(context: &mut Context<'_>, args: Args<'_>, replace: bool) -> Result<bool, Stop> {
    let (db, from, to) = (context.session.db, &args[1], &args[2]);
    context.with_keys([(db, from), (db, to)].into_iter(), |held| {
        if held.read(db, from, |entry| entry.is_none())? {
            return Ok(Err(CommandError::text("ERR no such key").into()));
        }
        if from == to {
            return Ok(Ok(replace));
        }
        if !replace && held.read(db, to, |entry| entry.is_some())? {
            return Ok(Ok(false));
        }
        let renamed = held.rename(db, from, to)?;
        Ok(renamed.map(|()| true).map_err(|error| CommandError::from(error).into()))
    })?
}

/// The number of a database; `None` for one that is not there.
fn database(word: &[u8]) -> Result<Option<usize>, CommandError> {
    let index = parse_integer(word).ok_or(CommandError::NotAnInteger)?;
    let index = i32::try_from(index)
        .map_err(|_| CommandError::text("ERR value is out of range, value must between -2147483648 and 2147483647"))?;
    Ok(usize::try_from(index).ok().filter(|index| *index < DATABASES))
}

fn move_key(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (db, name) = (context.session.db, &args[1]);
    let to = database(&args[2])?.ok_or(CommandError::text("ERR DB index is out of range"))?;
    if to == db {
        return Err(SAME.into());
    }
    let moved = context.with_keys([(db, name), (to, name)].into_iter(), |held| {
        let there = held.read(db, name, |entry| entry.is_some())?;
        if !there || held.read(to, name, |entry| entry.is_some())? {
            return Ok(false);
        }
        held.move_key(db, name, to).map(|()| true)
    })?;
    Ok(Reply::Integer(i64::from(moved)))
}

fn swap(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let index = |word, which| {
        let index = parse_integer(word).and_then(|index| i32::try_from(index).ok());
        index.ok_or(CommandError::text(which))
    };
    let one = index(&args[1], "ERR invalid first DB index")?;
    let other = index(&args[2], "ERR invalid second DB index")?;
    let inside = |index: i32| usize::try_from(index).ok().filter(|index| *index < DATABASES);
    let (Some(one), Some(other)) = (inside(one), inside(other)) else {
        return Err(CommandError::text("ERR DB index is out of range").into());
    };
    if one != other {
        context.with_all(|db| db == one || db == other, |held| held.swap(one, other))?;
    }
    Ok(Reply::Ok)
}

/// Keys in other databases than the client's that a request uses.
pub(super) fn keys_elsewhere<'a>(
    command: &'static Command,
    request: Args<'a>,
) -> impl Iterator<Item = (usize, &'a [u8])> {
    let other = match command.name {
        "move" => request.get(2).and_then(|word| database(word).ok()?).map(|db| (db, 1)),
        "copy" => CopyOptions::of(request).ok().and_then(|options| options.db).map(|db| (db, 2)),
        _ => None,
    };
    other.and_then(|(db, place)| Some((db, request.get(place)?))).into_iter()
}

/// The words after the names. Of several databases the last counts.
#[derive(Default)]
struct CopyOptions {
    db: Option<usize>,
    replace: bool,
}

impl CopyOptions {
    fn of(args: Args<'_>) -> Result<Self, CommandError> {
        let mut options = Self::default();
        let mut words = Words::from(args, 3);
        while let Some(word) = words.next() {
            if is(word, "REPLACE") {
                options.replace = true;
            } else if is(word, "DB") {
                let index = database(words.next().ok_or(SYNTAX)?)?;
                options.db = Some(index.ok_or(CommandError::text("ERR DB index is out of range"))?);
            } else {
                return Err(SYNTAX);
            }
        }
        Ok(options)
    }
}

/// From where a copy is made, and to where.
#[derive(Clone, Copy)]
struct CopyOrder<'a> {
    from: (usize, &'a [u8]),
    to: (usize, &'a [u8]),
    replace: bool,
}

impl<'a> CopyOrder<'a> {
    /// `db` is the client's database.
    fn of(db: usize, args: Args<'a>) -> Result<Self, CommandError> {
        let name = |at| args.get(at).unwrap_or_default();
        let options = CopyOptions::of(args)?;
        let order = Self { from: (db, name(1)), to: (options.db.unwrap_or(db), name(2)), replace: options.replace };
        if order.from == order.to { Err(SAME) } else { Ok(order) }
    }

    fn keys(self) -> impl Iterator<Item = (usize, &'a [u8])> + Clone {
        [self.from, self.to].into_iter()
    }

    /// Whether there is a key to copy, and place for the copy.
    fn is_possible(self, held: &mut Held<'_>) -> Result<bool, Wait> {
        let there = held.read(self.from.0, self.from.1, |entry| entry.is_some())?;
        Ok(there && (self.replace || held.read(self.to.0, self.to.1, |entry| entry.is_none())?))
    }

    /// Put the copy in its place.
    fn finish(self, held: &mut Held<'_>, copy: Entry) -> Result<(), Wait> {
        held.put(self.to.0, self.to.1, copy)?;
        held.write(self.from.0, self.from.1, |cell| {
            cell.note(&Effect::Copied { db: self.to.0, to: self.to.1 });
        })
    }
}

fn copy(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let order = CopyOrder::of(context.session.db, args)?;
    let bounds = Bounds::of(context);
    enum Found {
        Nothing,
        Copied(Result<(), CommandError>),
        Heavy(u64, Footprint),
    }
    let found = context.with_keys(order.keys(), |held| {
        if !order.is_possible(held)? {
            return Ok(Found::Nothing);
        }
        let copied = held.read(order.from.0, order.from.1, |entry| match entry {
            None => Ok(None),
            Some(entry) if is_heavy(entry) => Err((bit_bytes(entry), entry.footprint())),
            Some(entry) => {
                let room = bounds.check_copy(bit_bytes(entry));
                Ok(Some(room.and_then(|()| Ok(copied(entry, order.to.1)?))))
            }
        })?;
        Ok(match copied {
            Ok(None) => Found::Nothing,
            Ok(Some(Ok(copy))) => Found::Copied(order.finish(held, copy).map(Ok)?),
            Ok(Some(Err(error))) => Found::Copied(Err(error)),
            Err((bytes, footprint)) => Found::Heavy(bytes, footprint),
        })
    })?;
    match found {
        Found::Nothing => Ok(Reply::Integer(0)),
        Found::Copied(result) => Ok(result.map(|()| Reply::Integer(1))?),
        Found::Heavy(bytes, footprint) => {
            bounds.check_copy(bytes)?;
            let keys = match context.held {
                Some(_) => None,
                None => {
                    let keyspace = context.keyspace;
                    keyspace.may_take()?;
                    let mut held = keyspace.lock(order.keys())?;
                    // Both may have changed since.
                    if !order.is_possible(&mut held)? {
                        return Ok(Reply::Integer(0));
                    }
                    let names = order.keys().map(|(db, name)| (db, Box::from(name))).collect();
                    Some(keyspace.latch_keys(names, &mut held)?)
                }
            };
            let mut long = LongCopy { keys, copy: None, room: context.keyspace.set_aside(footprint) };
            if context.may_latch() {
                return Err(Stop::Long(Box::new(long)));
            }
            loop {
                if let Ok(Some(reply)) = long.step(context, args, Instant::now()) {
                    return Ok(reply);
                }
            }
        }
    }
}

struct LongCopy {
    /// Both keys, unless they are the transaction's.
    keys: Option<LatchedKeys>,
    copy: Option<ValueCopy>,
    /// The bytes of the copy, until it is in its place.
    room: SetAside,
}

impl LongCommand for LongCopy {
    fn step(&mut self, context: &mut Context<'_>, args: Args<'_>, until: Instant) -> Step {
        let order = match CopyOrder::of(context.session.db, args) {
            Ok(order) => order,
            Err(error) => return refused(&error),
        };
        let keyspace = context.keyspace;
        let mut own = self.keys.as_ref().map(|keys| keys.hold_at(keyspace));
        let Some(held) = own.as_mut().or(context.held.as_mut()) else { return Ok(None) };
        let copy = &mut self.copy;
        let done = held.read(order.from.0, order.from.1, |entry| {
            let Some((entry, value)) = entry.map(|entry| (entry, entry.value())) else {
                return Some(Err(CommandError::WrongType));
            };
            let making = match copy.take().map_or_else(|| ValueCopy::of(&value), |copy| Ok(Some(copy))) {
                Ok(Some(making)) => copy.insert(making),
                Ok(None) => return Some(Err(CommandError::WrongType)),
                Err(error) => return Some(Err(error.into())),
            };
            while !making.step(&value) {
                if Instant::now() >= until {
                    return None;
                }
            }
            let made = copy.take()?;
            Some(made.finish(entry, order.to.1).map_err(CommandError::from))
        })?;
        match done {
            None => Ok(None),
            Some(Err(error)) => refused(&error),
            Some(Ok(entry)) => {
                self.room.give_back();
                order.finish(held, entry)?;
                Ok(Some(Reply::Integer(1)))
            }
        }
    }
}

fn dump_key(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let may_latch = context.may_latch();
    let mut ring = None;
    let payload = context.read(&args[1], |entry| match entry.map(|entry| (entry, entry.value())) {
        None => Ok(Some(None)),
        Some((entry, _)) if may_latch && is_heavy(entry) => Ok(None),
        Some((_, ValueRef::Bloom(bloom))) => Ok(Some(Some(dump(bloom)?))),
        Some((_, ValueRef::Ring(found))) => {
            // Its bits are shared with this copy; a small one is copied.
            ring = Some(found.to_ring()?);
            Ok(Some(None))
        }
        Some((_, ValueRef::HalfRing(half))) => Err(CommandError::being_loaded(half)),
        Some((_, ValueRef::HalfCounting(half))) => Err(CommandError::being_loaded(half)),
        Some((_, ValueRef::HalfDleft(half))) => Err(CommandError::being_loaded(half)),
        Some((_, value)) => match cells_of(&value) {
            Some(cells) => Ok(Some(Some(dump_cells(cells)?))),
            None => Ok(Some(None)),
        },
    })?;
    if let Some(ring) = ring {
        return dump_of_ring(&ring, may_latch);
    }
    match payload? {
        Some(None) => Ok(Reply::Null),
        Some(Some(payload)) => Ok(Reply::Bulk(payload.into())),
        None => match context.latch(&args[1])? {
            Some(latched) => Err(Stop::Long(Box::new(LongDump { latched, writer: None, payload: Vec::new() }))),
            None => Ok(Reply::Null),
        },
    }
}

/// The payload of a ring, in steps if it is large.
fn dump_of_ring(ring: &Ring, may_take_long: bool) -> Outcome {
    if !may_take_long || ring.parts.iter().map(|part| part.shape.bytes()).sum::<u64>() <= COPIED_AT_ONCE as u64 {
        return Ok(Reply::Bulk(dump_ring(ring).map_err(CommandError::from)?.into()));
    }
    let writer = RingDumpWriter::new(ring.clone());
    let payload = writer.room().map_err(CommandError::from)?;
    Err(Stop::Long(Box::new(LongRingDump { writer, payload })))
}

struct LongRingDump {
    writer: RingDumpWriter,
    payload: Vec<u8>,
}

impl LongCommand for LongRingDump {
    fn step(&mut self, _: &mut Context<'_>, _: Args<'_>, until: Instant) -> Step {
        write_bytes(&mut self.payload, until, |payload| self.writer.step(payload, COPIED_AT_ONCE))
    }
}

struct LongDump {
    latched: Latched,
    writer: Option<ValueWriter>,
    payload: Vec<u8>,
}

impl LongCommand for LongDump {
    fn step(&mut self, _: &mut Context<'_>, _: Args<'_>, until: Instant) -> Step {
        let value = self.latched.entry().value();
        let writer = match &mut self.writer {
            Some(writer) => writer,
            None => {
                let Some(writer) = ValueWriter::of(&value) else { return Ok(Some(Reply::Null)) };
                match writer.room() {
                    Ok(room) => self.payload = room,
                    Err(error) => return refused(&error.into()),
                }
                self.writer.insert(writer)
            }
        };
        write_bytes(&mut self.payload, until, |payload| writer.step(&value, payload))
    }
}

/// Writes the payload of a value in steps.
enum ValueWriter {
    Bloom(DumpWriter),
    Cells(CellsDumpWriter),
}

impl ValueWriter {
    fn of(value: &ValueRef<'_>) -> Option<Self> {
        match value {
            ValueRef::Bloom(bloom) => Some(Self::Bloom(DumpWriter::new(*bloom))),
            value => cells_of(value).map(|cells| Self::Cells(CellsDumpWriter::new(cells))),
        }
    }

    fn room(&self) -> Result<Vec<u8>, AllocError> {
        match self {
            Self::Bloom(writer) => writer.room(),
            Self::Cells(writer) => writer.room(),
        }
    }

    /// Appends the next piece; whether that was the last.
    fn step(&mut self, value: &ValueRef<'_>, payload: &mut Vec<u8>) -> bool {
        match (self, value) {
            (Self::Bloom(writer), ValueRef::Bloom(bloom)) => writer.step(*bloom, payload, COPIED_AT_ONCE),
            (Self::Cells(writer), value) => {
                cells_of(value).is_none_or(|cells| writer.step(cells, payload, COPIED_AT_ONCE))
            }
            _ => true,
        }
    }
}

/// The options of RESTORE.
#[derive(Default)]
struct RestoreOptions {
    replace: bool,
    absolute: bool,
    idle: Option<u32>,
    uses: Option<u8>,
}

impl RestoreOptions {
    fn of(args: Args<'_>) -> Result<Self, CommandError> {
        let mut options = Self::default();
        let mut words = Words::from(args, 4);
        while let Some(word) = words.next() {
            if is(word, "REPLACE") {
                options.replace = true;
            } else if is(word, "ABSTTL") {
                options.absolute = true;
            } else if is(word, "IDLETIME") && options.uses.is_none() {
                let seconds = parse_integer(words.next().ok_or(SYNTAX)?).ok_or(CommandError::NotAnInteger)?;
                let seconds = u32::try_from(seconds.min(i64::from(u32::MAX))).ok();
                options.idle = Some(seconds.ok_or(CommandError::text("ERR Invalid IDLETIME value, must be >= 0"))?);
            } else if is(word, "FREQ") && options.idle.is_none() {
                let uses = parse_integer(words.next().ok_or(SYNTAX)?).ok_or(CommandError::NotAnInteger)?;
                let uses = u8::try_from(uses).ok();
                options.uses = Some(uses.ok_or(CommandError::text("ERR Invalid FREQ value, must be >= 0 and <= 255"))?);
            } else {
                return Err(SYNTAX);
            }
        }
        Ok(options)
    }

    /// The moment at which the key ends, in milliseconds since 1970; none for 0.
    fn life(&self, word: &[u8], now: u64) -> Result<Option<u64>, CommandError> {
        const INVALID: CommandError = CommandError::text("ERR Invalid TTL value, must be >= 0");
        let ttl = parse_integer(word).ok_or(CommandError::NotAnInteger)?;
        let ttl = u64::try_from(ttl).map_err(|_| INVALID)?;
        let at = if self.absolute { ttl } else { ttl.saturating_add(now) };
        match ttl {
            0 => Ok(None),
            _ if at > LATEST_LIFE => Err(CommandError::BadLife("restore")),
            _ => Ok(Some(at)),
        }
    }
}

impl From<PayloadError> for CommandError {
    fn from(error: PayloadError) -> Self {
        match error {
            PayloadError::Frame(_) => Self::text("ERR DUMP payload version or checksum are wrong"),
            PayloadError::Value(ValueError::Memory(error)) => error.into(),
            PayloadError::Value(_) => Self::text("ERR Bad data format"),
        }
    }
}

fn restore_key(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let options = RestoreOptions::of(args)?;
    let (now, bounds, payload) = (context.now(), Bounds::of(context), &args[3]);
    const BUSY: CommandError = CommandError::text("BUSYKEY Target key name already exists.");
    if !options.replace && context.peek(&args[1], |entry| entry.is_some())? {
        return Err(BUSY.into());
    }
    let life = options.life(&args[2], now)?;
    // Made before the lock is taken: a large one takes its time.
    let limit = bounds.settings().max_filter_memory();
    let value = read(payload).map_err(CommandError::from)?;
    // One whose life is over is only checked.
    let ends_at_once = life.is_some_and(|life| life <= now);
    if !ends_at_once {
        bounds.check_new(value.bit_bytes())?;
    }
    let _room = context.keyspace.set_aside(Footprint { heap: 0, mapped: value.bit_bytes() as usize });
    let built = value.build(limit).map_err(|error| CommandError::from(PayloadError::Value(error)))?;
    let entry = built_filter(&args[1], life, built).map_err(CommandError::from)?;
    let stamp = context.keyspace.stamp_now();
    context.write(&args[1], |cell| {
        if cell.get().is_some() && !options.replace {
            return Err(BUSY.into());
        }
        if ends_at_once {
            cell.delete(Cause::Command);
            return Ok(Reply::Ok);
        }
        cell.replace(entry);
        if let Some(entry) = cell.get() {
            options.idle.iter().for_each(|idle| entry.set_idle(*idle, stamp));
            options.uses.iter().for_each(|uses| entry.set_uses(*uses));
        }
        cell.record(&Effect::Restored { payload, life });
        Ok(Reply::Ok)
    })?
}
