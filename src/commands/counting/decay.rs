//! `CBF.DECAY`: halving all counters.

use std::time::Instant;

use super::Counting;
use crate::commands::context::Context;
use crate::commands::deletable::filter_of;
use crate::commands::dispatch::{LongCommand, Outcome, Step, Stop};
use crate::commands::error::CommandError;
use crate::keyspace::Record;
use crate::keyspace::effect::Effect;
use crate::keyspace::entry::{Entry, ValueMut};
use crate::keyspace::latch::Wait;
use crate::keyspace::latched::Latched;
use crate::resp::{Args, Reply};

/// Words that are halved between two looks at the clock; filters of no more are halved at once.
const WORDS_AT_ONCE: usize = (64 << 10) / size_of::<u64>();

/// How far a decay is.
#[derive(Default)]
struct Decay {
    next: usize,
    /// Of the counters so far.
    sum: u64,
    done: bool,
}

impl Decay {
    /// Halve the next counters; whether these were the last.
    fn step(&mut self, entry: &mut Entry, record: &dyn Record) -> bool {
        let (false, ValueMut::Counting(mut filter)) = (self.done, entry.value_mut()) else { return true };
        let words = filter.as_ref().shape().words() as usize;
        let end = words.min(self.next + WORDS_AT_ONCE);
        self.sum += filter.decay_words(self.next..end);
        self.next = end;
        if end < words {
            return false;
        }
        filter.decayed(self.sum);
        record.record(&Effect::CountingDecayed);
        self.done = true;
        true
    }
}

/// `CBF.DECAY key`
pub(super) fn decay(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (clock, may_latch, keyspace) = (context.now(), context.may_latch(), context.keyspace);
    let (long, latched) = context.write_and_latch(&args[1], |cell| {
        let long = match filter_of::<Counting>(cell.get()) {
            Ok(Some(filter)) => {
                // The version that it ends with, however it ends: nobody else changes the filter meanwhile.
                keyspace.versions().note(filter.figures().after(0).version, clock);
                may_latch && filter.shape().words() > WORDS_AT_ONCE as u64
            }
            Ok(None) => return (Err(CommandError::NotFound), false),
            Err(error) => return (Err(error), false),
        };
        if !long {
            cell.change(|entry, record| {
                let mut decay = Decay::default();
                while !decay.step(entry, &record) {}
            });
        }
        (Ok(long), long)
    })?;
    match (long?, latched) {
        (false, _) => Ok(Reply::Ok),
        (true, Some(latched)) => Err(Stop::Long(Box::new(LongDecay { latched, decay: Decay::default() }))),
        (true, None) => Err(Wait::yielding().into()),
    }
}

/// A decay that goes on in steps.
struct LongDecay {
    latched: Latched,
    decay: Decay,
}

impl Drop for LongDecay {
    /// A server that ends waits for no client, but half a decay is none: what is left of it is done.
    fn drop(&mut self) {
        let decay = &mut self.decay;
        self.latched.change(|entry, record| while !decay.step(entry, record) {});
    }
}

impl LongCommand for LongDecay {
    fn step(&mut self, _: &mut Context<'_>, _: Args<'_>, until: Instant) -> Step {
        let decay = &mut self.decay;
        let done = self.latched.change(|entry, record| {
            while !decay.step(entry, record) {
                if Instant::now() >= until {
                    return false;
                }
            }
            true
        });
        Ok(done.then_some(Reply::Ok))
    }
}
