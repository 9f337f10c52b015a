//! Asking for items.

use std::time::Instant;

use smallvec::SmallVec;

use super::{Family, Filter, GROUP, filter_of, hash_group};
use crate::commands::context::Context;
use crate::commands::dispatch::{LongCommand, Outcome, Step, Stop, refused};
use crate::commands::error::CommandError;
use crate::commands::figures::integer;
use crate::commands::items::Items;
use crate::commands::options::check_missing;
use crate::commands::table::RunAnswers;
use crate::keyspace::latched::Latched;
use crate::resp::{Args, Reply, encode_integer};

/// `EXISTS key item`
pub(super) fn exists<F: Family>(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    one::<F>(context, args, |filter, hash| Reply::Bool(filter.contains(hash)), Reply::Bool(false))
}

/// `COUNT key item`
pub(super) fn count<F: Family>(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    one::<F>(context, args, |filter, hash| integer(filter.count(hash)), Reply::Integer(0))
}

fn one<F: Family>(
    context: &mut Context<'_>,
    args: Args<'_>,
    ask: impl FnOnce(F::Filter<'_>, u64) -> Reply,
    none: Reply,
) -> Outcome {
    let found = context.read(&args[1], |entry| -> Result<_, CommandError> {
        Ok(filter_of::<F>(entry)?.map(|filter| ask(filter, filter.hash(&args[2]))))
    })??;
    check_missing(context, found.is_none())?;
    Ok(found.unwrap_or(none))
}

/// `CARD key`
pub(super) fn card<F: Family>(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let items = context
        .read(&args[1], |entry| -> Result<_, CommandError> { Ok(filter_of::<F>(entry)?.map(Filter::items)) })??;
    check_missing(context, items.is_none())?;
    Ok(integer(items.unwrap_or_default()))
}

/// What a question about several items answers.
trait Question: Default + Send + 'static {
    /// Ask for the next items.
    fn ask(&mut self, filter: impl Filter, hashes: &[u64]);
    /// The next items are not there.
    fn none(&mut self, count: usize);
    /// So many have an answer.
    fn len(&self) -> usize;
    fn take(&mut self) -> Reply;
}

/// Of each item, whether it is there.
#[derive(Default)]
struct Found(SmallVec<[bool; 32]>);

impl Question for Found {
    fn ask(&mut self, filter: impl Filter, hashes: &[u64]) {
        let begin = self.0.len();
        self.none(hashes.len());
        filter.contains_many(hashes, &mut self.0[begin..]);
    }

    fn none(&mut self, count: usize) {
        self.0.resize(self.0.len() + count, false);
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn take(&mut self) -> Reply {
        Reply::Bools(std::mem::take(&mut self.0))
    }
}

/// Of each item, how often it is there.
#[derive(Default)]
struct Counted {
    count: usize,
    bytes: Vec<u8>,
}

impl Question for Counted {
    fn ask(&mut self, filter: impl Filter, hashes: &[u64]) {
        let mut counts = [0; GROUP];
        let counts = &mut counts[..hashes.len()];
        filter.count_many(hashes, counts);
        counts.iter().for_each(|count| encode_integer(*count as i64, &mut self.bytes));
        self.count += counts.len();
    }

    fn none(&mut self, count: usize) {
        (0..count).for_each(|_| encode_integer(0, &mut self.bytes));
        self.count += count;
    }

    fn len(&self) -> usize {
        self.count
    }

    fn take(&mut self) -> Reply {
        let Self { count, bytes } = std::mem::take(self);
        Reply::Encoded { count, bytes }
    }
}

/// `MEXISTS key item …`
pub(super) fn exists_many<F: Family>(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    ask::<F, Found>(context, args)
}

/// `MCOUNT key item …`
pub(super) fn count_many<F: Family>(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    ask::<F, Counted>(context, args)
}

fn ask<F: Family, Q: Question>(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (items, may_latch) = (Items::of(args, 2), context.may_latch());
    let mut question = Q::default();
    let (long, missing) = context.read(&args[1], |entry| -> Result<_, CommandError> {
        match filter_of::<F>(entry)? {
            Some(filter) if may_latch && items.take_long(filter.item_ns()) => return Ok((true, false)),
            Some(filter) => {
                while question.len() < items.len() {
                    ask_group(filter, items, &mut question);
                }
                return Ok((false, false));
            }
            None => question.none(items.len()),
        }
        Ok((false, true))
    })??;
    check_missing(context, missing)?;
    if !long {
        return Ok(question.take());
    }
    match context.latch(&args[1])? {
        Some(latched) => {
            Err(Stop::Long(Box::new(LongQuestion { latched, question, family: std::marker::PhantomData::<fn(F)> })))
        }
        None => ask::<F, Q>(context, args),
    }
}

fn ask_group(filter: impl Filter, items: Items<'_>, question: &mut impl Question) {
    let (hashes, count) = hash_group(filter, items.from(question.len()).take(GROUP));
    question.ask(filter, &hashes[..count]);
}

/// A question that goes on in steps.
struct LongQuestion<F, Q> {
    latched: Latched,
    question: Q,
    family: std::marker::PhantomData<fn(F)>,
}

impl<F: Family, Q: Question> LongCommand for LongQuestion<F, Q> {
    fn step(&mut self, _: &mut Context<'_>, args: Args<'_>, until: Instant) -> Step {
        let items = Items::of(args, 2);
        let Some(filter) = F::filter(self.latched.entry().value()) else { return refused(&CommandError::WrongType) };
        while self.question.len() < items.len() {
            ask_group(filter, items, &mut self.question);
            if Instant::now() >= until && self.question.len() < items.len() {
                return Ok(None);
            }
        }
        Ok(Some(self.question.take()))
    }
}

/// A run of `EXISTS` on one key.
pub(super) fn run_exists<F: Family>(context: &mut Context<'_>, key: &[u8], items: &[&[u8]]) -> RunAnswers {
    let (mut bools, counters, settings) = (SmallVec::new(), context.counters, context.settings);
    // A key that is away gives no answer here; the handler waits for it.
    let _busy = context.keyspace.read(context.session.db, key, |entry| match filter_of::<F>(entry) {
        Ok(Some(filter)) => {
            counters.hits.add(items.len() as u64);
            let (hashes, count) = hash_group(filter, items.iter().copied());
            bools.resize(count, false);
            filter.contains_many(&hashes[..count], &mut bools);
        }
        Ok(None) if !settings.filter_missing_is_error() => {
            counters.misses.add(items.len() as u64);
            bools.resize(items.len(), false);
        }
        _ => {}
    });
    bools.into()
}
