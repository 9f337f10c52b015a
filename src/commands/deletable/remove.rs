//! Taking items out.

use std::marker::PhantomData;
use std::time::Instant;

use smallvec::SmallVec;

use super::{Family, Filter, GROUP, filter_of, hash_group};
use crate::commands::answers::Answers;
use crate::commands::context::Context;
use crate::commands::dispatch::{LongCommand, Outcome, Step, Stop};
use crate::commands::error::CommandError;
use crate::commands::items::Items;
use crate::commands::table::RunAnswers;
use crate::keyspace::entry::Entry;
use crate::keyspace::latch::Wait;
use crate::keyspace::latched::Latched;
use crate::keyspace::{Keyspace, Record};
use crate::resp::Args;

/// `DEL key item`
pub(super) fn remove<F: Family>(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    remove_items::<F>(context, args, true)
}

/// `MDEL key item …`
pub(super) fn remove_many<F: Family>(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    remove_items::<F>(context, args, false)
}

fn remove_items<F: Family>(context: &mut Context<'_>, args: Args<'_>, single: bool) -> Outcome {
    let (items, clock, may_latch, keyspace) =
        (Items::of(args, 2), context.now(), context.may_latch(), context.keyspace);
    let mut answers = Answers::default();
    let (long, latched) = context.write_and_latch(&args[1], |cell| {
        let long = match filter_of::<F>(cell.get()) {
            Ok(Some(filter)) => may_latch && items.take_long(filter.item_ns()),
            Ok(None) => {
                (0..items.len()).for_each(|_| answers.push(false));
                return (Ok(false), false);
            }
            Err(error) => return (Err(error), false),
        };
        if !long {
            cell.change(|entry, record| {
                while answers.len() < items.len() {
                    remove_group::<F>(entry, &record, (keyspace, clock), items, &mut answers);
                }
            });
        }
        (Ok(long), long)
    })?;
    match (long?, latched) {
        (false, _) if single => Ok(answers.take_one()),
        (false, _) => Ok(answers.take()),
        (true, Some(latched)) => {
            Err(Stop::Long(Box::new(LongRemove { latched, single, answers, clock, family: PhantomData::<fn(F)> })))
        }
        (true, None) => Err(Wait::yielding().into()),
    }
}

fn remove_group<F: Family>(
    entry: &mut Entry,
    record: &dyn Record,
    (keyspace, clock): (&Keyspace, u64),
    items: Items<'_>,
    answers: &mut Answers,
) {
    let group: SmallVec<[&[u8]; GROUP]> = items.from(answers.len()).take(GROUP).collect();
    remove_each::<F>(entry, record, (keyspace, clock), &group, |answer| match answer {
        Ok(removed) => answers.push(removed),
        Err(error) => answers.push_error(&error),
    });
}

fn remove_each<F: Family>(
    entry: &mut Entry,
    record: &dyn Record,
    (keyspace, clock): (&Keyspace, u64),
    group: &[&[u8]],
    mut tell: impl FnMut(Result<bool, CommandError>),
) {
    let Some(filter) = F::filter(entry.value()) else { return };
    let (hashes, count) = hash_group(filter, group.iter().copied());
    let mut removed: SmallVec<[&[u8]; GROUP]> = SmallVec::new();
    let mut asked = group.iter();
    F::remove_many(entry, &hashes[..count], |answer| {
        let item = asked.next();
        if answer == Ok(true) {
            removed.extend(item.copied());
        }
        tell(answer);
    });
    if !removed.is_empty() {
        record.record(&F::removed(&removed));
        F::note_version(entry.as_ref(), keyspace, clock);
    }
}

/// A removal that goes on in steps.
struct LongRemove<F> {
    latched: Latched,
    /// The command has one item and one answer.
    single: bool,
    answers: Answers,
    clock: u64,
    family: PhantomData<fn(F)>,
}

impl<F: Family> LongCommand for LongRemove<F> {
    fn step(&mut self, context: &mut Context<'_>, args: Args<'_>, until: Instant) -> Step {
        let (items, answers, clock) = (Items::of(args, 2), &mut self.answers, self.clock);
        let done = self.latched.change(|entry, record| {
            while answers.len() < items.len() {
                remove_group::<F>(entry, record, (context.keyspace, clock), items, answers);
                if Instant::now() >= until {
                    return answers.len() == items.len();
                }
            }
            true
        });
        Ok(done.then(|| if self.single { self.answers.take_one() } else { self.answers.take() }))
    }
}

/// A run of `DEL` on one key.
pub(super) fn run_remove<F: Family>(context: &mut Context<'_>, key: &[u8], items: &[&[u8]]) -> RunAnswers {
    let (keyspace, clock, mut answers) = (context.keyspace, context.now(), RunAnswers::default());
    // A key that is away, or of another kind, gives no answer here; the handler tells.
    let _busy = keyspace.write(context.session.db, key, |cell| {
        match filter_of::<F>(cell.get()).map(|filter| filter.is_some()) {
            Ok(false) => answers.bools.resize(items.len(), false),
            Ok(true) => {
                cell.change(|entry, record| {
                    remove_each::<F>(entry, &record, (keyspace, clock), items, |answer| answers.push(answer));
                });
            }
            Err(_) => {}
        }
    });
    answers
}
