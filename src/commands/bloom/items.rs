//! Adding items and asking for them.
//!
//! A large filter is added to under the shard's shared lock, many clients side by side; a small one, and whatever must be
//! created or grown, under the exclusive lock; and a request that would take longer than about half a millisecond with the
//! key's latch, in steps.

use std::ops::ControlFlow;
use std::time::Instant;

use smallvec::SmallVec;

use super::create::{Bounds, NewFilter, capacity, error_rate, expansion, grow};
use crate::commands::answers;
use crate::commands::context::{Context, Host};
use crate::commands::dispatch::{LongCommand, Outcome, Step, Stop, refused};
use crate::commands::error::CommandError;
use crate::commands::items::Items;
use crate::commands::life;
use crate::commands::options::check_missing;
use crate::commands::room::RoomWait;
use crate::commands::table::{RUN_LENGTH, RunAnswers};
use crate::commands::words::{Words, is};
use crate::config::Settings;
use crate::filters::bloom::{HashPair, options};
use crate::filters::scalable_bloom::ScalableBloom;
use crate::filters::{BloomMut, BloomRef, Insert};
use crate::keyspace::effect::Effect;
use crate::keyspace::entry::{Entry, EntryRef, ValueMut, ValueRef};
use crate::keyspace::latch::Wait;
use crate::keyspace::latched::Latched;
use crate::keyspace::{Cell, Record};
use crate::resp::{Args, Reply};

/// Items are hashed, and their memory fetched, in groups of so many.
const GROUP: usize = RUN_LENGTH;

type Group<'a> = SmallVec<[&'a [u8]; GROUP]>;

/// The answers of one command, an array in the end.
struct Answers {
    each: answers::Answers,
    /// The command has one item and one answer.
    single: bool,
    /// For a sub-filter that the next item needs.
    room: RoomWait,
    /// The bytes of that, if other keys have to go for them before the item is tried again.
    wanted: Option<u64>,
}

impl Answers {
    fn new(single: bool) -> Self {
        Self { each: answers::Answers::default(), single, room: RoomWait::default(), wanted: None }
    }

    /// An item was refused: that is its answer, unless it is tried again.
    fn refused(&mut self, error: &CommandError) {
        match error {
            CommandError::NoRoomYet { bytes } if self.room.want(*bytes) => self.wanted = Some(*bytes),
            _ => self.each.push_error(error),
        }
    }

    /// Evict keys until about this moment; whether adding can go on.
    fn make_room(&mut self, host: &dyn Host, until: Instant) -> bool {
        if self.wanted.is_some() && self.room.is_over(host, until) {
            self.wanted = None;
        }
        self.wanted.is_none()
    }

    fn len(&self) -> usize {
        self.each.len()
    }

    fn push(&mut self, answer: bool) {
        self.each.push(answer);
    }

    fn take_reply(&mut self) -> Reply {
        if self.single { self.each.take_one() } else { self.each.take() }
    }
}

/// What is made when the key of an add is missing.
#[derive(Clone)]
enum Missing {
    Create(NewFilter),
    Refuse,
}

impl Missing {
    /// What `ADD` does, unless the settings forbid that it creates.
    fn by_add(settings: &Settings) -> Self {
        match settings.filter_create_on_add() {
            true => Self::Create(NewFilter::by_default(settings)),
            false => Self::Refuse,
        }
    }
}

/// The items of the next group, at most so many.
fn group_of(items: Items<'_>, from: usize, most: usize) -> Group<'_> {
    items.from(from).take(most).collect()
}

/// What an item costs that meets a missing key: a new filter has one sub-filter.
const NEW_ITEM_NS: usize = 100;

/// What an item costs in a filter, in nanoseconds, measured roughly: a hash, and in each sub-filter misses of the cache and a
/// step for each of its hashes.
fn item_ns(bloom: BloomRef<'_>) -> usize {
    bloom.links().map(|link| 35 + 2 * link.shape.hashes as usize).sum::<usize>() + 50
}

/// How many items make up a group in this filter: so many as take no more than about a fifth of a millisecond.
fn group_len(bloom: BloomRef<'_>) -> usize {
    const GROUP_NS: usize = 200_000;
    (GROUP_NS / item_ns(bloom)).clamp(1, GROUP)
}

/// `BF.ADD key item`
pub(super) fn add(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let missing = Missing::by_add(context.settings);
    Ok(add_items(context, args, (Items::of(args, 2), true), &missing)?.take_reply())
}

/// `BF.MADD key item …`
pub(super) fn add_many(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let missing = Missing::by_add(context.settings);
    Ok(add_items(context, args, (Items::of(args, 2), false), &missing)?.take_reply())
}

/// `BF.INSERT key [CAPACITY n] [ERROR r] [EXPANSION n] [NOCREATE] [NONSCALING] ITEMS item …`
pub(super) fn insert(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (missing, first) = insert_options(args, context.settings, context.now())?;
    Ok(add_items(context, args, (Items::of(args, first), false), &missing)?.take_reply())
}

fn insert_options(args: Args<'_>, settings: &Settings, now: u64) -> Result<(Missing, usize), CommandError> {
    let arity = || CommandError::WrongArity("bf.insert".into());
    // RedisBloom has one text for a value that is no number and one that is out of range here.
    let bad = |text| move |_| CommandError::text(text);
    let mut filter = NewFilter::by_default(settings);
    let (mut no_create, mut non_scaling, mut life, mut given_life) = (false, false, None, None);
    let mut words = Words::from(args, 2);
    while let Some(word) = words.next() {
        if is(word, "ITEMS") {
            if words.position() == args.len() {
                return Err(arity());
            }
            if non_scaling {
                filter.set_non_scaling();
            }
            if let Some(life) = life {
                filter.set_life(life);
            }
            return Ok((if no_create { Missing::Refuse } else { Missing::Create(filter) }, words.position()));
        } else if is(word, "CAPACITY") {
            let value = words.next().ok_or_else(arity)?;
            filter.set_capacity(capacity(value, settings).map_err(bad("Bad capacity"))?);
        } else if is(word, "ERROR") {
            let value = words.next().ok_or_else(arity)?;
            filter.set_error(error_rate(value).map_err(bad("Bad error rate"))?);
        } else if is(word, "EXPANSION") {
            let value = words.next().ok_or_else(arity)?;
            filter.set_growth(expansion(value).map_err(bad("Bad expansion"))?);
        } else if is(word, "NOCREATE") {
            no_create = true;
        } else if is(word, "NONSCALING") {
            non_scaling = true;
        } else if let Some(unit) = life::unit(word) {
            life::once(given_life.replace(unit), unit)?;
            let value = words.next().ok_or_else(arity)?;
            life = Some(life::moment(value, unit, now, "bf.insert")?);
        } else {
            return Err(CommandError::UnknownArgument);
        }
    }
    Err(arity())
}

/// What the first look at the key of an add found.
enum Found {
    /// All is done.
    Done,
    /// A large filter, which may be added to under the shared lock.
    Large,
    /// The rest needs the exclusive lock.
    Exclusive,
    /// The rest needs the latch.
    Long,
    /// Another kind of value.
    WrongType,
}

/// Add items; `single` if the command has one item and one answer.
fn add_items(
    context: &mut Context<'_>,
    args: Args<'_>,
    (items, single): (Items<'_>, bool),
    missing: &Missing,
) -> Result<Answers, Stop> {
    let (name, may_latch) = (&args[1], context.may_latch());
    let mut answers = Answers::new(single);
    let found = match context.held {
        Some(_) => context.peek(name, |entry| first_look(entry, items))?,
        None => context.keyspace.share(context.session.db, name, |entry, record| match first_look(entry, items) {
            Found::Large if !context.keyspace.is_strict() => match entry.map(EntryRef::value) {
                Some(ValueRef::Bloom(BloomRef::Large(chain))) => add_shared(chain, &record, items, &mut answers),
                _ => Found::Exclusive,
            },
            found => found,
        })?,
    };
    match found {
        Found::Done => return Ok(answers),
        Found::WrongType => return Err(CommandError::WrongType.into()),
        Found::Large | Found::Exclusive | Found::Long => {}
    }
    let long = matches!(found, Found::Long) && may_latch;
    match add_exclusively(context, name, items, missing, (long, &mut answers)) {
        Ok(None) => Ok(answers),
        Ok(Some(latched)) => Err(in_steps(Key::Latched(latched), items, answers)),
        Err(stop) if answers.len() == 0 => Err(stop),
        // Some are in already, under the shared lock, and have their answers: nothing may be tried twice.
        Err(_) => Err(in_steps(Key::Away(missing.clone()), items, answers)),
    }
}

fn in_steps(key: Key, items: Items<'_>, answers: Answers) -> Stop {
    Stop::Long(Box::new(LongAdd { key, first: items.first, answers }))
}

/// Add the items that have no answer yet, to a key that is made if it is missing; or only make it. The key, if the rest has to be
/// added in steps: all of them if it takes `long`, or those that other keys have to make room for.
fn add_exclusively(
    context: &mut Context<'_>,
    name: &[u8],
    items: Items<'_>,
    missing: &Missing,
    (long, answers): (bool, &mut Answers),
) -> Result<Option<Latched>, Stop> {
    let bounds = Bounds::of(context);
    if long && context.held.is_none() {
        context.keyspace.may_take()?;
    }
    let (added, latched) = context.write_and_latch(name, |cell| {
        if let Err(error) = make_if_missing(cell, bounds, missing) {
            return (Err(error), false);
        }
        if long {
            return (Ok(()), true);
        }
        cell.change(|entry, record| {
            add_groups(items, answers, |answers| add_group(entry, &record, bounds, items, answers));
        });
        (Ok(()), answers.wanted.is_some())
    })?;
    added?;
    if latched.is_some() || !long && answers.wanted.is_none() {
        return Ok(latched);
    }
    // Either no key may be taken out now, or a transaction holds locks. It goes on with its keys taken out.
    if context.held.is_none() {
        context.keyspace.may_take()?;
    }
    match answers.wanted {
        Some(bytes) if answers.len() == 0 => Err(CommandError::NoRoomYet { bytes }.into()),
        _ => Err(Wait::yielding().into()),
    }
}

fn make_if_missing(cell: &mut Cell<'_>, bounds: Bounds<'_>, missing: &Missing) -> Result<(), CommandError> {
    match (cell.get().map(EntryRef::value), missing) {
        (Some(ValueRef::Bloom(_)), _) => Ok(()),
        (Some(_), _) => Err(CommandError::WrongType),
        (None, Missing::Create(filter)) => filter.create(cell, bounds),
        (None, Missing::Refuse) => Err(CommandError::NotFound),
    }
}

/// What the key of an add is.
fn first_look(entry: Option<EntryRef<'_>>, items: Items<'_>) -> Found {
    match entry.map(EntryRef::value) {
        None if items.take_long(NEW_ITEM_NS) => Found::Long,
        None => Found::Exclusive,
        Some(ValueRef::Bloom(bloom)) if items.take_long(item_ns(bloom)) => Found::Long,
        Some(ValueRef::Bloom(BloomRef::Packed(_))) => Found::Exclusive,
        Some(ValueRef::Bloom(BloomRef::Large(_))) => Found::Large,
        Some(_) => Found::WrongType,
    }
}

/// Group after group, until one breaks.
fn add_groups(items: Items<'_>, answers: &mut Answers, mut group: impl FnMut(&mut Answers) -> ControlFlow<()>) {
    while answers.len() < items.len() && group(answers).is_continue() {}
}

/// Tell which items of a group were counted.
fn record_added(record: &dyn Record, link: usize, group: &[&[u8]], outcomes: impl Iterator<Item = bool>) {
    let added: Group<'_> = group.iter().zip(outcomes).filter(|(_, added)| *added).map(|(item, _)| *item).collect();
    if !added.is_empty() {
        record.record(&Effect::BloomAdded { link: link as u32, items: &added });
    }
}

/// Add to a large filter under the shared lock, if its newest sub-filter has room for all.
fn add_shared(chain: &ScalableBloom, record: &dyn Record, items: Items<'_>, answers: &mut Answers) -> Found {
    let room = chain.links().last().map_or(0, |link| link.shape().entries.saturating_sub(link.items()));
    if room < items.len() as u64 {
        return Found::Exclusive;
    }
    while answers.len() < items.len() {
        let group = group_of(items, answers.len(), GROUP);
        let (outcomes, done) = insert_group(chain, record, &group);
        outcomes[..done].iter().for_each(|outcome| answers.push(*outcome == Insert::Added));
        // Other clients took the room meanwhile.
        if done < group.len() {
            return Found::Exclusive;
        }
    }
    Found::Done
}

/// What became of each item of a group, and how many of them went the usual way.
fn insert_group(chain: &ScalableBloom, record: &dyn Record, group: &[&[u8]]) -> ([Insert; GROUP], usize) {
    let mut outcomes = [Insert::Present; GROUP];
    let pairs = hash_group(BloomRef::Large(chain), group);
    let done = chain.insert_shared_many(&pairs[..group.len()], &mut outcomes[..group.len()]);
    let newest = chain.links().len() - 1;
    record_added(record, newest, group, outcomes[..done].iter().map(|outcome| *outcome == Insert::Added));
    (outcomes, done)
}

fn hash_group(bloom: BloomRef<'_>, group: &[&[u8]]) -> [HashPair; GROUP] {
    let mut pairs = [HashPair::default(); GROUP];
    pairs.iter_mut().zip(group).for_each(|(pair, item)| *pair = bloom.hash(item));
    pairs
}

/// Add the next group of items to a filter that nobody else uses; breaks when the rest is not to be tried.
fn add_group(
    entry: &mut Entry,
    record: &dyn Record,
    bounds: Bounds<'_>,
    items: Items<'_>,
    answers: &mut Answers,
) -> ControlFlow<()> {
    let most = match entry.value() {
        ValueRef::Bloom(bloom) => group_len(bloom),
        _ => GROUP,
    };
    let group = group_of(items, answers.len(), most);
    let mut group = &group[..];
    if let ValueRef::Bloom(BloomRef::Large(chain)) = entry.value() {
        let (outcomes, done) = insert_group(chain, record, group);
        outcomes[..done].iter().for_each(|outcome| answers.push(*outcome == Insert::Added));
        group = &group[done..];
    }
    let mut added = Added { record, link: 0, items: Group::new() };
    for item in group {
        match add_one(entry, &mut added, bounds, item) {
            Ok(was_added) => {
                answers.room.served();
                answers.push(was_added);
            }
            Err(error) => {
                answers.refused(&error);
                if error == CommandError::NonScalingFull || answers.wanted.is_some() {
                    added.tell();
                    return ControlFlow::Break(());
                }
            }
        }
    }
    added.tell();
    ControlFlow::Continue(())
}

/// Items that were counted in one sub-filter and are still to be told of.
struct Added<'r, 'i> {
    record: &'r dyn Record,
    link: usize,
    items: Group<'i>,
}

impl Added<'_, '_> {
    fn tell(&mut self) {
        if !self.items.is_empty() {
            self.record.record(&Effect::BloomAdded { link: self.link as u32, items: &self.items });
            self.items.clear();
        }
    }
}

/// Add an item to a filter that nobody else uses, which grows if it must.
fn add_one<'i>(
    entry: &mut Entry,
    added: &mut Added<'_, 'i>,
    bounds: Bounds<'_>,
    item: &'i [u8],
) -> Result<bool, CommandError> {
    for grown in [false, true] {
        let ValueMut::Bloom(mut bloom) = entry.value_mut() else { return Err(CommandError::WrongType) };
        let pair = bloom.as_ref().hash(item);
        match bloom.insert(pair) {
            Insert::Added => {
                added.link = bloom.as_ref().len() - 1;
                added.items.push(item);
                return Ok(true);
            }
            Insert::Present => return Ok(false),
            Insert::Full => return Err(CommandError::NonScalingFull),
            Insert::NeedsGrowth if grown => break,
            Insert::NeedsGrowth => {
                added.tell();
                grow(entry, added.record, bounds)?;
            }
        }
    }
    Err(CommandError::CannotGrow)
}

/// An add that goes on in steps.
struct LongAdd {
    key: Key,
    first: usize,
    answers: Answers,
}

/// The key of an add that goes on in steps.
enum Key {
    /// It has it.
    Latched(Latched),
    /// Somebody else has it, or it is gone; what to make then.
    Away(Missing),
}

impl LongCommand for LongAdd {
    fn step(&mut self, context: &mut Context<'_>, args: Args<'_>, until: Instant) -> Step {
        let (items, bounds, answers) = (Items::of(args, self.first), Bounds::of(context), &mut self.answers);
        let latched = match &mut self.key {
            Key::Latched(latched) => latched,
            Key::Away(_) if context.held.is_none() && context.keyspace.may_take().is_err() => {
                return context.keyspace.may_take().map(|()| None);
            }
            Key::Away(missing) => match add_exclusively(context, &args[1], items, missing, (false, answers)) {
                Ok(None) => return Ok(Some(answers.take_reply())),
                Ok(Some(latched)) => {
                    self.key = Key::Latched(latched);
                    return Ok(None);
                }
                Err(Stop::Busy(wait)) => return Err(wait),
                Err(Stop::Refused(error)) => {
                    (answers.len()..items.len()).for_each(|_| answers.each.push_error(&error));
                    return Ok(Some(answers.take_reply()));
                }
                Err(Stop::Long(_)) => return Ok(None),
            },
        };
        if !answers.make_room(context.host, until) {
            return Ok(None);
        }
        let done = latched.change(|entry, record| {
            while answers.len() < items.len() {
                if add_group(entry, record, bounds, items, answers).is_break() {
                    return answers.wanted.is_none();
                }
                if Instant::now() >= until {
                    return answers.len() == items.len();
                }
            }
            true
        });
        Ok(done.then(|| answers.take_reply()))
    }
}

/// A run of `BF.ADD` on one key.
pub(super) fn run_add(context: &mut Context<'_>, key: &[u8], items: &[&[u8]]) -> RunAnswers {
    let (keyspace, db) = (context.keyspace, context.session.db);
    let may_share = !keyspace.is_strict();
    let shared = keyspace.share(db, key, |entry, record| match entry.map(EntryRef::value) {
        // What takes long is left to the handler.
        Some(ValueRef::Bloom(bloom)) if group_len(bloom) < items.len() => Some(SmallVec::new()),
        Some(ValueRef::Bloom(BloomRef::Large(chain))) if may_share => Some(run_add_large(chain, &record, items)),
        _ => None,
    });
    match shared {
        Ok(Some(answers)) => answers.into(),
        Ok(None) => keyspace.write(db, key, |cell| run_add_exclusively(cell, items)).unwrap_or_default().into(),
        Err(_) => RunAnswers::default(),
    }
}

fn run_add_large(chain: &ScalableBloom, record: &dyn Record, items: &[&[u8]]) -> SmallVec<[bool; RUN_LENGTH]> {
    let (outcomes, done) = insert_group(chain, record, items);
    outcomes[..done].iter().map(|outcome| *outcome == Insert::Added).collect()
}

fn run_add_exclusively(cell: &mut Cell<'_>, items: &[&[u8]]) -> SmallVec<[bool; RUN_LENGTH]> {
    let answers = cell.change(|entry, record| {
        if let ValueRef::Bloom(BloomRef::Large(chain)) = entry.value() {
            return run_add_large(chain, &record, items);
        }
        let ValueMut::Bloom(BloomMut::Packed(mut chain)) = entry.value_mut() else { return SmallVec::new() };
        let (options, newest) = (chain.as_ref().options(), chain.as_ref().len() - 1);
        let insert = |item: &&[u8]| match chain.insert(HashPair::with_options(item, options)) {
            Insert::Added => Some(true),
            Insert::Present => Some(false),
            Insert::Full | Insert::NeedsGrowth => None,
        };
        let answers: SmallVec<[bool; RUN_LENGTH]> = items.iter().map_while(insert).collect();
        record_added(&record, newest, items, answers.iter().copied());
        answers
    });
    answers.unwrap_or_default()
}

/// `BF.EXISTS key item`; false for a key of another type, as in RedisBloom.
pub(super) fn exists(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    // Hashed before the lock is taken, unless the filter turns out to be of the oldest kind.
    let pair = HashPair::of(&args[2]);
    let (found, missing) = context.read(&args[1], |entry| match entry.map(EntryRef::value) {
        Some(ValueRef::Bloom(bloom)) if bloom.options() & options::HASH_64 != 0 => (bloom.contains(pair), false),
        Some(ValueRef::Bloom(bloom)) => (bloom.contains(bloom.hash(&args[2])), false),
        other => (false, other.is_none()),
    })?;
    check_missing(context, missing)?;
    Ok(Reply::Bool(found))
}

/// `BF.MEXISTS key item …`; false for a key of another type, as in RedisBloom.
pub(super) fn exists_many(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (items, may_latch) = (Items::of(args, 2), context.may_latch());
    let mut found = SmallVec::new();
    let (long, missing) = context.read(&args[1], |entry| match entry.map(EntryRef::value) {
        Some(ValueRef::Bloom(bloom)) if may_latch && items.take_long(item_ns(bloom)) => (true, false),
        Some(ValueRef::Bloom(bloom)) => {
            while found.len() < items.len() {
                find_group(bloom, &group_of(items, found.len(), GROUP), &mut found);
            }
            (false, false)
        }
        other => {
            found.resize(items.len(), false);
            (false, other.is_none())
        }
    })?;
    check_missing(context, missing)?;
    if !long {
        return Ok(Reply::Bools(found));
    }
    match context.latch(&args[1])? {
        Some(latched) => Err(Stop::Long(Box::new(LongExists { latched, found }))),
        None => exists_many(context, args),
    }
}

fn find_group<A: smallvec::Array<Item = bool>>(bloom: BloomRef<'_>, group: &[&[u8]], found: &mut SmallVec<A>) {
    let pairs = hash_group(bloom, group);
    let start = found.len();
    found.resize(start + group.len(), false);
    bloom.contains_many(&pairs[..group.len()], &mut found[start..]);
}

struct LongExists {
    latched: Latched,
    found: SmallVec<[bool; 32]>,
}

impl LongCommand for LongExists {
    fn step(&mut self, _: &mut Context<'_>, args: Args<'_>, until: Instant) -> Step {
        let items = Items::of(args, 2);
        let ValueRef::Bloom(bloom) = self.latched.entry().value() else {
            return refused(&CommandError::WrongType);
        };
        while self.found.len() < items.len() {
            find_group(bloom, &group_of(items, self.found.len(), group_len(bloom)), &mut self.found);
            if Instant::now() >= until {
                return Ok(None);
            }
        }
        Ok(Some(Reply::Bools(std::mem::take(&mut self.found))))
    }
}

/// A run of `BF.EXISTS` on one key.
pub(super) fn run_exists(context: &mut Context<'_>, key: &[u8], items: &[&[u8]]) -> RunAnswers {
    let (mut found, counters, settings) = (SmallVec::new(), context.counters, context.settings);
    // A key that is away gives no answer here; the handler waits for it.
    let _busy = context.keyspace.read(context.session.db, key, |entry| match entry.map(EntryRef::value) {
        Some(ValueRef::Bloom(bloom)) if group_len(bloom) < items.len() => {}
        Some(ValueRef::Bloom(bloom)) => {
            counters.hits.add(items.len() as u64);
            find_group(bloom, items, &mut found);
        }
        None if settings.filter_missing_is_error() => {}
        other => {
            if other.is_some() { &counters.hits } else { &counters.misses }.add(items.len() as u64);
            found.resize(items.len(), false);
        }
    });
    found.into()
}
