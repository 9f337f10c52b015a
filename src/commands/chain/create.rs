//! Making rings, and the life that a write gives them.

use super::not_a_ring;
use super::options::{NewRing, Options};
use crate::commands::bloom::Bounds;
use crate::commands::context::Context;
use crate::commands::dispatch::{Outcome, Stop};
use crate::commands::error::CommandError;
use crate::commands::options::{Place, capacity, error_rate};
use crate::commands::words::Words;
use crate::filters::ring::shape::ShapeError;
use crate::filters::ring::{InsertError, Ring};
use crate::keyspace::effect::Effect;
use crate::keyspace::entry::{Entry, EntryRef, LATEST_LIFE, ValueRef};
use crate::keyspace::{Cell, Record, ring};
use crate::resp::{Args, Reply};

/// A life that writes move is moved when it would be moved by this share of it.
const MOVES_IN_A_LIFE: u64 = 100;

impl From<ShapeError> for CommandError {
    fn from(error: ShapeError) -> Self {
        match error {
            ShapeError::TooLarge => Self::TooLarge,
            ShapeError::NoItems | ShapeError::Rate => Self::CannotCreate,
        }
    }
}

impl From<InsertError> for CommandError {
    fn from(error: InsertError) -> Self {
        match error {
            InsertError::Memory(error) => error.into(),
            InsertError::Shape(error) => error.into(),
        }
    }
}

impl NewRing {
    /// Make the ring, where there is no key. Its versions begin with this one.
    ///
    /// # Errors
    /// It may not be so large, or there is no memory; no random numbers for its key.
    pub fn create(&self, cell: &mut Cell<'_>, bounds: Bounds<'_>, version: u64, now: u64) -> Result<(), CommandError> {
        let settings = self.drawn()?;
        // A ring takes memory when it needs it; but one that could never be filled is refused at once.
        bounds.check(settings.full_bytes()?, 0, 0)?;
        let life = self.life.or_else(|| idle_life(settings.idle, now));
        cell.insert(ring::entry_of(cell.name(), life, Ring::new(settings, version))?);
        cell.record(&Effect::RingCreated { settings, version, life });
        Ok(())
    }
}

fn idle_life(idle: Option<u32>, now: u64) -> Option<u64> {
    idle.map(|seconds| (now + u64::from(seconds) * 1000).min(LATEST_LIFE))
}

/// A ring was written to, or could have been: its life goes on from now, if it has one that does.
///
/// # Errors
/// No memory; the life is as it was.
pub(super) fn move_life(entry: &mut Entry, record: &dyn Record, now: u64) -> Result<(), CommandError> {
    let ValueRef::Ring(ring) = entry.value() else { return Ok(()) };
    let Some(life) = idle_life(ring.idle(), now) else { return Ok(()) };
    let step = u64::from(ring.idle().unwrap_or_default()) * 1000 / MOVES_IN_A_LIFE;
    if entry.as_ref().life().is_some_and(|present| present.abs_diff(life) < step.max(1)) {
        return Ok(());
    }
    entry.set_life(Some(life))?;
    record.record(&Effect::Life { life: Some(life) });
    Ok(())
}

/// `CHAIN.RESERVE key error capacity [options]`
pub(super) fn reserve(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let new = reserve_options(context, args)?;
    let (bounds, version, now) = (Bounds::of(context), context.keyspace.versions().begin(), context.now());
    context.write(&args[1], |cell| match cell.get().map(EntryRef::value) {
        None => new.create(cell, bounds, version, now).map(|()| Reply::Ok).map_err(Stop::from),
        Some(ValueRef::Ring(_)) => Err(CommandError::ItemExists.into()),
        Some(other) => Err(not_a_ring(&other).into()),
    })?
}

fn reserve_options(context: &Context<'_>, args: Args<'_>) -> Result<NewRing, CommandError> {
    let place = Place::behind_sizes(context, "chain.reserve");
    let mut base = NewRing::by_settings(place.directives);
    base.settings.error = error_rate(&args[2])?;
    base.settings.capacity = capacity(&args[3], place.directives.chain_max_capacity())?;
    let (mut options, mut words) = (Options::default(), Words::from(args, 4));
    while let Some(word) = words.next() {
        if !options.take(word, &mut words, &place)? {
            return Err(CommandError::Unexpected(word.into()));
        }
    }
    options.over(base)
}
