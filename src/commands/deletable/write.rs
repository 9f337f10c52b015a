//! Counting items.

use std::time::Instant;

use smallvec::SmallVec;

use super::create::{New, Options};
use super::{Family, Filter, GROUP, filter_of, hash_group, name_of};
use crate::commands::answers::Answers;
use crate::commands::bloom::Bounds;
use crate::commands::context::Context;
use crate::commands::dispatch::{LongCommand, Outcome, Step, Stop};
use crate::commands::error::CommandError;
use crate::commands::items::Items;
use crate::commands::options::{Missing, Place, flag};
use crate::commands::room::RoomWait;
use crate::commands::table::RunAnswers;
use crate::commands::words::{Words, is};
use crate::keyspace::entry::Entry;
use crate::keyspace::latch::Wait;
use crate::keyspace::latched::Latched;
use crate::keyspace::{Cell, Keyspace, Record};
use crate::resp::{Args, Reply};

/// What an item costs that meets a missing key, in nanoseconds.
const NEW_ITEM_NS: usize = 100;

/// `ADD key item`
pub(super) fn add<F: Family>(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let missing = Missing::by_add(context.settings);
    write_items::<F>(context, args, (Items::of(args, 2), true), &missing)
}

/// `MADD key item …`
pub(super) fn add_many<F: Family>(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let missing = Missing::by_add(context.settings);
    write_items::<F>(context, args, (Items::of(args, 2), false), &missing)
}

/// `INSERT key [options] [NOCREATE] ITEMS item …`
pub(super) fn insert<F: Family>(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (missing, first) = insert_options::<F>(context, args)?;
    write_items::<F>(context, args, (Items::of(args, first), false), &missing)
}

fn insert_options<F: Family>(context: &Context<'_>, args: Args<'_>) -> Result<(Missing<New<F>>, usize), CommandError> {
    let place = Place::with_sizes(context, name_of(args));
    let (mut options, mut no_create, mut words) = (Options::<F>::new(), false, Words::from(args, 2));
    while let Some(word) = words.next() {
        if is(word, "ITEMS") {
            if words.position() == args.len() {
                break;
            }
            let new = options.over(None, place.directives)?;
            return Ok((if no_create { Missing::Refuse } else { Missing::Make(new) }, words.position()));
        } else if is(word, "NOCREATE") {
            flag("NOCREATE", &mut no_create)?;
        } else if !options.take(word, &mut words, &place)? {
            return Err(CommandError::Unexpected(word.into()));
        }
    }
    Err(CommandError::WrongArity(place.command.into()))
}

/// Make the key if there is none.
fn make_if_missing<F: Family>(
    cell: &mut Cell<'_>,
    bounds: Bounds<'_>,
    keyspace: &Keyspace,
    missing: &Missing<New<F>>,
) -> Result<(), CommandError> {
    if filter_of::<F>(cell.get())?.is_some() {
        return Ok(());
    }
    match missing {
        Missing::Refuse => Err(CommandError::NotFound),
        Missing::Make(new) => new.create(cell, bounds, keyspace),
        Missing::Default => New::<F>::by_settings(bounds.settings()).create(cell, bounds, keyspace),
    }
}

/// How far a write is.
struct Writing<F> {
    answers: Answers,
    single: bool,
    clock: u64,
    /// For what the next item needs.
    room: RoomWait,
    /// Whether other keys can go for it, and the item be tried again.
    may_wait: bool,
    /// The bytes of it, if they have to.
    wanted: Option<u64>,
    family: std::marker::PhantomData<fn(F)>,
}

impl<F: Family> Writing<F> {
    /// Whether an item is tried again, for which there is no room yet.
    fn waits(&mut self, error: &CommandError) -> bool {
        match error {
            // As long as nothing was done the whole command can be tried again.
            CommandError::NoRoomYet { bytes }
                if (self.may_wait || self.answers.len() == 0) && self.room.want(*bytes) =>
            {
                self.wanted = Some(*bytes);
                true
            }
            _ => false,
        }
    }

    fn take_reply(&mut self) -> Reply {
        if self.single { self.answers.take_one() } else { self.answers.take() }
    }

    /// Write the items that are left, until one needs room or the time is over. Whether all were.
    fn go_on(
        &mut self,
        (entry, record): (&mut Entry, &dyn Record),
        (bounds, keyspace): (Bounds<'_>, &Keyspace),
        items: Items<'_>,
        until: Option<Instant>,
    ) -> bool {
        while self.answers.len() < items.len() {
            let group: SmallVec<[&[u8]; GROUP]> = items.from(self.answers.len()).take(GROUP).collect();
            write_each::<F>((entry, record), (bounds, keyspace, self.clock), &group, |answer| {
                match answer {
                    Ok(new) => {
                        self.room.served();
                        self.answers.push(new);
                    }
                    Err(error) if self.waits(&error) => return false,
                    Err(error) => self.answers.push_error(&error),
                }
                true
            });
            if self.wanted.is_some() {
                return false;
            }
            if until.is_some_and(|until| Instant::now() >= until) {
                break;
            }
        }
        self.answers.len() == items.len()
    }
}

/// Write a group; tell of each item whether it was new or why it was refused, until `tell` says that it is tried again.
fn write_each<F: Family>(
    (entry, record): (&mut Entry, &dyn Record),
    (bounds, keyspace, clock): (Bounds<'_>, &Keyspace, u64),
    group: &[&[u8]],
    mut tell: impl FnMut(Result<bool, CommandError>) -> bool,
) {
    let Some(filter) = F::filter(entry.value()) else { return };
    let (hashes, count) = hash_group(filter, group.iter().copied());
    let mut counted: SmallVec<[&[u8]; GROUP]> = SmallVec::new();
    let mut done = 0;
    while done < count {
        F::insert_many(entry, &hashes[done..count], |answer| {
            if answer.is_ok() {
                counted.push(group[done]);
            }
            done += 1;
            tell(answer);
        });
        if done < count {
            let answer = F::insert(entry, hashes[done], bounds);
            if answer.is_ok() {
                counted.push(group[done]);
            }
            if !tell(answer) {
                break;
            }
            done += 1;
        }
    }
    if !counted.is_empty() {
        record.record(&F::added(&counted));
        F::note_version(entry.as_ref(), keyspace, clock);
    }
}

/// Write items to a key that is made if it is missing; `single` if the command has one item and one answer.
fn write_items<F: Family>(
    context: &mut Context<'_>,
    args: Args<'_>,
    (items, single): (Items<'_>, bool),
    missing: &Missing<New<F>>,
) -> Outcome {
    let (bounds, clock, may_latch, keyspace) =
        (Bounds::of(context), context.now(), context.may_latch(), context.keyspace);
    let long = items.len() >= GROUP && may_latch && {
        let item_ns = context
            .peek(&args[1], |entry| filter_of::<F>(entry).ok().flatten().map_or(NEW_ITEM_NS, Filter::item_ns))?;
        items.take_long(item_ns)
    };
    if long && context.held.is_none() {
        keyspace.may_take()?;
    }
    let (answers, room) = (Answers::default(), RoomWait::default());
    let family = std::marker::PhantomData::<fn(F)>;
    let mut writing = Writing { answers, single, clock, room, may_wait: may_latch, wanted: None, family };
    let (made, latched) = context.write_and_latch(&args[1], |cell| {
        let made = make_if_missing(cell, bounds, keyspace, missing);
        if made.is_err() || long {
            let long = made.is_ok();
            return (made, long);
        }
        cell.change(|entry, record| writing.go_on((entry, &record), (bounds, keyspace), items, None));
        (made, may_latch && writing.wanted.is_some())
    })?;
    made?;
    if let (None, Some(bytes)) = (&latched, writing.wanted.take()) {
        if writing.answers.len() == 0 {
            return Err(CommandError::NoRoomYet { bytes }.into());
        }
        // No key may be taken out now. What finds no room is refused.
        writing.may_wait = false;
        context.write(&args[1], |cell| {
            cell.change(|entry, record| writing.go_on((entry, &record), (bounds, keyspace), items, None));
        })?;
    }
    match latched {
        Some(latched) => Err(Stop::Long(Box::new(LongWrite { latched, first: items.first, writing }))),
        None if long => Err(Wait::yielding().into()),
        None => Ok(writing.take_reply()),
    }
}

/// A write that goes on in steps.
struct LongWrite<F> {
    latched: Latched,
    first: usize,
    writing: Writing<F>,
}

impl<F: Family> LongCommand for LongWrite<F> {
    fn step(&mut self, context: &mut Context<'_>, args: Args<'_>, until: Instant) -> Step {
        let (items, bounds, writing) = (Items::of(args, self.first), Bounds::of(context), &mut self.writing);
        if writing.wanted.is_some() && !writing.room.is_over(context.host, until) {
            return Ok(None);
        }
        writing.wanted = None;
        let keyspace = context.keyspace;
        let done =
            self.latched.change(|entry, record| writing.go_on((entry, record), (bounds, keyspace), items, Some(until)));
        Ok(done.then(|| writing.take_reply()))
    }
}

/// A run of `ADD` on one key.
pub(super) fn run_add<F: Family>(context: &mut Context<'_>, key: &[u8], items: &[&[u8]]) -> RunAnswers {
    let (bounds, keyspace, clock) = (Bounds::of(context), context.keyspace, context.now());
    let mut answers = RunAnswers::default();
    // What has to wait, a missing key and one of another kind are left to the handler.
    let _busy = keyspace.write(context.session.db, key, |cell| {
        if !matches!(filter_of::<F>(cell.get()), Ok(Some(_))) {
            return;
        }
        cell.change(|entry, record| {
            write_each::<F>((entry, &record), (bounds, keyspace, clock), items, |answer| {
                let waits = matches!(answer, Err(CommandError::NoRoomYet { .. }));
                if !waits {
                    answers.push(answer);
                }
                !waits
            });
        });
    });
    answers
}
