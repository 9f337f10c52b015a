//! Writing items, and asking for them.

use std::time::Instant;

use smallvec::SmallVec;

use super::create::move_life;
use super::not_a_ring;
use super::options::{NewRing, Options};
use crate::commands::answers;
use crate::commands::bloom::Bounds;
use crate::commands::context::Context;
use crate::commands::dispatch::{LongCommand, Outcome, Step, Stop, refused};
use crate::commands::error::CommandError;
use crate::commands::items::Items;
use crate::commands::options::{Missing, Place, check_missing, flag, in_range, once, value_of};
use crate::commands::room::RoomWait;
use crate::commands::words::{Words, is};
use crate::filters::item_hash::{HashKey, hash_item};
use crate::filters::ring::{Event, TimeError};
use crate::keyspace::effect::Effect;
use crate::keyspace::entry::{Entry, EntryRef, RingRef, ValueRef};
use crate::keyspace::latch::Wait;
use crate::keyspace::latched::Latched;
use crate::keyspace::{Cell, Keyspace, Record, ring};
use crate::resp::{Args, Reply, encode_bulk, encode_error, parse_integer};

/// Greatest number of items that a command can ask for.
const MOST_ITEMS: u64 = 1 << 20;
/// So many items are written between two looks at the clock.
const GROUP: usize = 64;
/// And so many are asked for: the more, the better the links can be prepared for it.
const ASKED_GROUP: usize = 2048;

impl From<TimeError> for CommandError {
    fn from(error: TimeError) -> Self {
        Self::Text(format!("ERR {error}").into())
    }
}

/// Room for the first items of an answer, so that it does not grow byte by byte.
const FIRST_REPLY_BYTES: usize = 4096;

/// What an item costs in a ring of so many links, in nanoseconds, measured roughly.
fn item_ns(links: u16) -> usize {
    60 + 12 * usize::from(links)
}

/// What is written, and answered.
struct Write {
    missing: Missing<NewRing>,
    at: Option<u64>,
    answer: Answer,
}

/// What a write answers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Answer {
    /// Whether its one item was new.
    One,
    /// Of each item, whether it was new.
    Each,
    /// The first so many new items, which alone are written.
    Unseen(u64),
}

/// What was answered so far.
enum Answers {
    Each(answers::Answers),
    /// Items, encoded, and errors between them.
    Items {
        count: usize,
        refused: usize,
        bytes: Vec<u8>,
    },
}

impl Answers {
    fn new(answer: Answer) -> Self {
        match answer {
            Answer::Unseen(_) => Self::Items { count: 0, refused: 0, bytes: Vec::new() },
            _ => Self::Each(answers::Answers::default()),
        }
    }

    fn push(&mut self, item: &[u8], unseen: Result<bool, CommandError>) {
        match (self, unseen) {
            (Self::Each(answers), Ok(unseen)) => answers.push(unseen),
            (Self::Each(answers), Err(error)) => answers.push_error(&error),
            (Self::Items { count, bytes, .. }, Ok(true)) => {
                *count += 1;
                encode_bulk(item, bytes);
            }
            (Self::Items { .. }, Ok(false)) => {}
            // Neither given out nor written: in its place stands why.
            (Self::Items { refused, bytes, .. }, Err(error)) => {
                *refused += 1;
                encode_error(&error.message(), bytes);
            }
        }
    }

    fn into_reply(self, answer: Answer) -> Reply {
        match self {
            Self::Each(mut answers) if answer == Answer::One => answers.take_one(),
            Self::Each(mut answers) => answers.take(),
            Self::Items { count, refused, bytes } => Reply::Encoded { count: count + refused, bytes },
        }
    }

    /// Whether a command that asks for so many has them.
    fn has_enough(&self, answer: Answer) -> bool {
        matches!((self, answer), (Self::Items { count, .. }, Answer::Unseen(most)) if *count as u64 >= most)
    }
}

/// How far a write is.
struct Progress {
    answer: Answer,
    answers: Answers,
    /// The item that is next.
    next: usize,
    /// The ring's version so far.
    version: u64,
    /// For a link that the next item needs.
    room: RoomWait,
    /// Whether other keys can go for it, and the item be tried again.
    may_wait: bool,
    /// The bytes of it, if they have to.
    wanted: Option<u64>,
}

impl Progress {
    /// Whether an item is tried again, for which there is no room yet.
    fn waits(&mut self, error: &CommandError) -> bool {
        match error {
            // As long as nothing was done the whole command can be tried again.
            CommandError::NoRoomYet { bytes } if (self.may_wait || self.next == 0) && self.room.want(*bytes) => {
                self.wanted = Some(*bytes);
                true
            }
            _ => false,
        }
    }
}

/// `CHAIN.ADD key item [AT unix-ms]`
pub(super) fn add(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (mut at, mut words) = (None, Words::from(args, 3));
    while let Some(word) = words.next() {
        if !is(word, "AT") {
            return Err(CommandError::Unexpected(word.into()).into());
        }
        once("AT", &mut at, moment(&mut words)?)?;
    }
    let write = Write { missing: Missing::by_add(context.settings), at, answer: Answer::One };
    // The item alone, however many words follow it.
    write_items(context, args, Items::one(args, 2), write)
}

/// `CHAIN.MADD key item …`
pub(super) fn add_many(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let write = Write { missing: Missing::by_add(context.settings), at: None, answer: Answer::Each };
    write_items(context, args, Items::of(args, 2), write)
}

/// `CHAIN.INSERT key [options] [NOCREATE] [AT unix-ms] ITEMS item …`
pub(super) fn insert(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (write, first) = insert_options(context, args, "chain.insert", Answer::Each)?;
    write_items(context, args, Items::of(args, first), write)
}

/// `CHAIN.UNSEENADD key [options] [NOCREATE] [AT unix-ms] [COUNT n] ITEMS item …`
pub(super) fn unseen_add(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (write, first) = insert_options(context, args, "chain.unseenadd", Answer::Unseen(u64::MAX))?;
    write_items(context, args, Items::of(args, first), write)
}

fn moment(words: &mut Words<'_>) -> Result<u64, CommandError> {
    let value = parse_integer(value_of("at", words)?).ok_or(CommandError::Bad("at"))?;
    u64::try_from(value).map_err(|_| CommandError::OutOfRange { what: "at", min: 0, max: i64::MAX as u64 })
}

fn insert_options(
    context: &Context<'_>,
    args: Args<'_>,
    command: &'static str,
    mut answer: Answer,
) -> Result<(Write, usize), CommandError> {
    let place = Place::with_sizes(context, command);
    let (mut options, mut no_create, mut at, mut count) = (Options::default(), false, None, None);
    let mut words = Words::from(args, 2);
    while let Some(word) = words.next() {
        if is(word, "ITEMS") {
            if words.position() == args.len() {
                break;
            }
            let new = options.over(NewRing::by_default(context.keyspace, context.settings, &args[1]))?;
            if let (Answer::Unseen(most), Some(count)) = (&mut answer, count) {
                *most = count;
            }
            let missing = if no_create { Missing::Refuse } else { Missing::Make(new) };
            return Ok((Write { missing, at, answer }, words.position()));
        } else if is(word, "NOCREATE") {
            flag("NOCREATE", &mut no_create)?;
        } else if is(word, "AT") {
            once("AT", &mut at, moment(&mut words)?)?;
        } else if matches!(answer, Answer::Unseen(_)) && is(word, "COUNT") {
            let value = in_range("count", value_of("count", &mut words)?, 1, MOST_ITEMS)?;
            once("COUNT", &mut count, value)?;
        } else if !options.take(word, &mut words, &place)? {
            return Err(CommandError::Unexpected(word.into()));
        }
    }
    Err(CommandError::WrongArity(command.into()))
}

/// Write items to a key that is made if it is missing.
fn write_items(context: &mut Context<'_>, args: Args<'_>, items: Items<'_>, write: Write) -> Outcome {
    let (bounds, clock, may_latch) = (Bounds::of(context), context.now(), context.may_latch());
    let links = |entry: Option<EntryRef<'_>>| match entry.map(EntryRef::value) {
        Some(ValueRef::Ring(ring)) => ring.settings().links,
        _ => 1,
    };
    let long = items.len() >= GROUP && may_latch && items.take_long(item_ns(context.peek(&args[1], links)?));
    if long && context.held.is_none() {
        context.keyspace.may_take()?;
    }
    let (keyspace, versions) = (context.keyspace, context.keyspace.versions());
    let mut progress = Progress {
        version: 0,
        answer: write.answer,
        answers: Answers::new(write.answer),
        next: 0,
        room: RoomWait::default(),
        may_wait: may_latch,
        wanted: None,
    };
    let (event, latched) = context.write_and_latch(&args[1], |cell| {
        let event = make_if_missing(cell, (bounds, keyspace, clock), &write);
        match event {
            Ok(event) if !long => {
                cell.change(|entry, record| {
                    add_items(entry, &record, (bounds, clock, event), items, &mut progress, items.len());
                });
                (Ok(event), may_latch && progress.wanted.is_some())
            }
            event => (event, long),
        }
    })?;
    let event = event?;
    if let (None, Some(bytes)) = (&latched, progress.wanted.take()) {
        if progress.next == 0 {
            return Err(CommandError::NoRoomYet { bytes }.into());
        }
        // No key may be taken out now. What finds no room is refused.
        progress.may_wait = false;
        context.write(&args[1], |cell| {
            cell.change(|entry, record| {
                add_items(entry, &record, (bounds, clock, event), items, &mut progress, items.len());
            })
        })?;
    }
    versions.note(progress.version, clock);
    match latched {
        Some(latched) => {
            let first = items.first;
            Err(Stop::Long(Box::new(LongWrite { latched, first, event, clock, progress })))
        }
        None if long => Err(Wait::yielding().into()),
        None => Ok(progress.answers.into_reply(progress.answer)),
    }
}

/// Make the key if there is none; when the items are written.
fn make_if_missing(
    cell: &mut Cell<'_>,
    (bounds, keyspace, clock): (Bounds<'_>, &Keyspace, u64),
    write: &Write,
) -> Result<Event, CommandError> {
    match cell.get().map(EntryRef::value) {
        Some(ValueRef::Ring(ring)) => return Ok(ring.event(clock, write.at)?),
        Some(other) => return Err(not_a_ring(&other)),
        None => {}
    }
    let by_default;
    let new = match &write.missing {
        Missing::Refuse => return Err(CommandError::NotFound),
        Missing::Make(new) => new,
        Missing::Default => {
            by_default = NewRing::by_default(keyspace, bounds.settings(), cell.name());
            &by_default
        }
    };
    let event = new.settings.event(0, clock, write.at)?;
    new.create(cell, bounds, keyspace.versions().begin(), clock)?;
    Ok(event)
}

/// Write the next items, at most so many.
fn add_items(
    entry: &mut Entry,
    record: &dyn Record,
    (bounds, clock, event): (Bounds<'_>, u64, Event),
    items: Items<'_>,
    progress: &mut Progress,
    most: usize,
) {
    let key = key_of(entry.as_ref());
    let mut changed: SmallVec<[&[u8]; 8]> = SmallVec::new();
    for item in items.from(progress.next).take(most) {
        if progress.answers.has_enough(progress.answer) {
            progress.next = items.len();
            break;
        }
        let hash = hash_item(item, key.as_ref());
        // What is only to be given out is not remembered anew.
        let only_unseen = matches!(progress.answer, Answer::Unseen(_));
        let unseen = match entry.value() {
            ValueRef::Ring(ring) if only_unseen && ring.contains(hash, event.now) => Ok(false),
            _ => ring::insert_within(entry, hash, event, |total, more| bounds.check(total, more, total - more)).map(
                |inserted| {
                    if inserted.changed {
                        changed.push(item);
                    }
                    inserted.unseen
                },
            ),
        };
        if unseen.as_ref().is_err_and(|error| progress.waits(error)) {
            break;
        }
        if unseen.is_ok() {
            progress.room.served();
        }
        progress.answers.push(item, unseen);
        progress.next += 1;
    }
    // Time went on, whether there was an item that is new or not.
    let advanced = ring::advance(entry, event.now).unwrap_or(false);
    if advanced || !changed.is_empty() {
        record.record(&Effect::RingAdded { event, items: &changed });
    }
    if let ValueRef::Ring(ring) = entry.value() {
        progress.version = ring.version();
    }
    // There is no better answer than the items' own; the life is moved by the next write.
    let _no_memory = move_life(entry, record, clock);
}

fn key_of(entry: EntryRef<'_>) -> Option<HashKey> {
    match entry.value() {
        ValueRef::Ring(ring) => ring.key().copied(),
        _ => None,
    }
}

/// A write that goes on in steps.
struct LongWrite {
    latched: Latched,
    first: usize,
    event: Event,
    clock: u64,
    progress: Progress,
}

impl LongCommand for LongWrite {
    fn step(&mut self, context: &mut Context<'_>, args: Args<'_>, until: Instant) -> Step {
        let (items, bounds) = (Items::of(args, self.first), Bounds::of(context));
        let (event, clock, progress) = (self.event, self.clock, &mut self.progress);
        if progress.wanted.is_some() && !progress.room.is_over(context.host, until) {
            return Ok(None);
        }
        progress.wanted = None;
        let done = self.latched.change(|entry, record| {
            while progress.next < items.len() {
                add_items(entry, record, (bounds, clock, event), items, progress, GROUP);
                if progress.wanted.is_some() {
                    return false;
                }
                if Instant::now() >= until {
                    return progress.next == items.len();
                }
            }
            true
        });
        context.keyspace.versions().note(progress.version, clock);
        let answer = progress.answer;
        Ok(done.then(|| std::mem::replace(&mut progress.answers, Answers::new(answer)).into_reply(answer)))
    }
}

/// `CHAIN.EXISTS key item`
pub(super) fn exists(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let clock = context.now();
    // Hashed before the lock is taken, unless the ring has a key of its own.
    let hash = hash_item(&args[2], None);
    let found = context.read(&args[1], |entry| match entry.map(EntryRef::value) {
        Some(ValueRef::Ring(ring)) => {
            let hash = ring.key().map_or(hash, |key| hash_item(&args[2], Some(key)));
            Ok(Some(ring.contains(hash, ring.reading_time(clock))))
        }
        Some(other) => Err(not_a_ring(&other)),
        None => Ok(None),
    })??;
    check_missing(context, found.is_none())?;
    Ok(Reply::Bool(found.unwrap_or_default()))
}

/// What a question about several items answers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Question {
    /// Of each, whether it was seen.
    Exists,
    /// Those that were not.
    Unseen,
}

/// `CHAIN.MEXISTS key item …`
pub(super) fn exists_many(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    ask(context, args, Question::Exists)
}

/// `CHAIN.UNSEEN key item …`
pub(super) fn unseen(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    ask(context, args, Question::Unseen)
}

fn ask(context: &mut Context<'_>, args: Args<'_>, question: Question) -> Outcome {
    let (items, clock, may_latch) = (Items::of(args, 2), context.now(), context.may_latch());
    let mut found = Found::new(question);
    let (long, missing) = context.read(&args[1], |entry| match entry.map(EntryRef::value) {
        Some(ValueRef::Ring(ring)) if may_latch && items.take_long(item_ns(ring.settings().links)) => Ok((true, false)),
        Some(ValueRef::Ring(ring)) => {
            found.look(ring, clock, items, items.len());
            Ok((false, false))
        }
        Some(other) => Err(not_a_ring(&other)),
        None => {
            items.from(0).for_each(|item| found.push(item, false));
            Ok((false, true))
        }
    })??;
    check_missing(context, missing && question == Question::Exists)?;
    if !long {
        return Ok(found.into_reply());
    }
    match context.latch(&args[1])? {
        Some(latched) => Err(Stop::Long(Box::new(LongRead { latched, clock, found }))),
        None => ask(context, args, question),
    }
}

/// What was found so far.
struct Found {
    question: Question,
    bools: SmallVec<[bool; 32]>,
    count: usize,
    bytes: Vec<u8>,
    next: usize,
}

impl Found {
    fn new(question: Question) -> Self {
        Self { question, bools: SmallVec::new(), count: 0, bytes: Vec::new(), next: 0 }
    }

    /// Ask for the next items, at most so many.
    fn look(&mut self, ring: RingRef<'_>, clock: u64, items: Items<'_>, most: usize) {
        let (key, now) = (ring.key().copied(), ring.reading_time(clock));
        let mut asked = items.from(self.next).take(most);
        let hashes = asked.clone().map(|item| hash_item(item, key.as_ref()));
        ring.contains_each(now, hashes, |seen, count| {
            asked.by_ref().take(count).enumerate().for_each(|(i, item)| self.push(item, seen >> i & 1 != 0));
        });
    }

    fn push(&mut self, item: &[u8], seen: bool) {
        self.next += 1;
        match self.question {
            Question::Exists => self.bools.push(seen),
            Question::Unseen if !seen => {
                if self.count == 0 {
                    self.bytes.reserve(FIRST_REPLY_BYTES);
                }
                self.count += 1;
                encode_bulk(item, &mut self.bytes);
            }
            Question::Unseen => {}
        }
    }

    fn into_reply(self) -> Reply {
        match self.question {
            Question::Exists => Reply::Bools(self.bools),
            Question::Unseen => Reply::Encoded { count: self.count, bytes: self.bytes },
        }
    }
}

struct LongRead {
    latched: Latched,
    clock: u64,
    found: Found,
}

impl LongCommand for LongRead {
    fn step(&mut self, _: &mut Context<'_>, args: Args<'_>, until: Instant) -> Step {
        let items = Items::of(args, 2);
        let ValueRef::Ring(ring) = self.latched.entry().value() else {
            return refused(&CommandError::WrongType);
        };
        while self.found.next < items.len() {
            self.found.look(ring, self.clock, items, ASKED_GROUP);
            if Instant::now() >= until && self.found.next < items.len() {
                return Ok(None);
            }
        }
        let question = self.found.question;
        Ok(Some(std::mem::replace(&mut self.found, Found::new(question)).into_reply()))
    }
}
