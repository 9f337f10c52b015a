//! Changing a whole ring: more or fewer links, a turn, clearing, merging.

use std::time::Instant;

use super::create::move_life;
use super::not_a_ring;
use super::options::links;
use super::ring_of;
use crate::codec::payload::RingDumpWriter;
use crate::commands::bloom::Bounds;
use crate::commands::context::Context;
use crate::commands::dispatch::{LongCommand, Outcome, Step, Stop, refused};
use crate::commands::error::CommandError;
use crate::commands::merge::{MergeOrder, put_merged};
use crate::commands::words::is;
use crate::filters::ring::settings::LINKS;
use crate::filters::ring::{Merge, MergeError, Mode, Ring};
use crate::keyspace::bloom::COPIED_AT_ONCE;
use crate::keyspace::effect::Effect;
use crate::keyspace::entry::{Entry, EntryRef, ValueRef};
use crate::keyspace::held::Held;
use crate::keyspace::latch::Wait;
use crate::keyspace::latched::LatchedKeys;
use crate::keyspace::ring::Versions;
use crate::keyspace::{Aside, Cell, Record, ring};
use crate::resp::{Args, Reply};

impl From<MergeError> for CommandError {
    fn from(error: MergeError) -> Self {
        match error {
            MergeError::Memory(error) => error.into(),
            other => Self::Text(format!("ERR {other}").into()),
        }
    }
}

/// Change a ring that must be there.
fn change_existing(
    context: &mut Context<'_>,
    name: &[u8],
    work: impl FnOnce(&mut Entry, &dyn Record, u64) -> Result<(), CommandError>,
) -> Outcome {
    let clock = context.now();
    context.write(name, |cell| match cell.get().map(EntryRef::value) {
        None => Err(CommandError::NotFound.into()),
        Some(ValueRef::Ring(_)) => {
            let changed = cell.change(|entry, record| {
                work(entry, &record, clock)?;
                move_life(entry, &record, clock)
            });
            changed.unwrap_or(Err(CommandError::NotFound)).map(|()| Reply::Ok).map_err(Stop::from)
        }
        Some(other) => Err(not_a_ring(&other).into()),
    })?
}

/// The number behind `LINKS`; which links a ring can be given is asked later.
fn links_word(args: Args<'_>) -> Result<u16, CommandError> {
    if !is(&args[2], "LINKS") {
        return Err(CommandError::Unexpected(args[2].into()));
    }
    links(&args[3], *LINKS.start())
}

fn set_links(context: &mut Context<'_>, args: Args<'_>, word: &'static str, more: bool) -> Outcome {
    let links = links_word(args)?;
    change_existing(context, &args[1], |entry, record, clock| {
        let ValueRef::Ring(ring) = entry.value() else { return Err(CommandError::WrongType) };
        let (settings, now) = (ring.settings(), ring.reading_time(clock));
        if matches!(settings.mode, Mode::Dual { .. }) {
            return Err(CommandError::Text(format!("ERR {word} needs a ring of links, not DUAL").into()));
        }
        let (min, max) = match more {
            true => (settings.links + 1, *LINKS.end()),
            false => (*LINKS.start(), settings.links - 1),
        };
        if min > max {
            let end = if more { "most" } else { "fewest" };
            return Err(CommandError::Text(format!("ERR filter has {} links, the {end}", settings.links).into()));
        }
        if !(min..=max).contains(&links) {
            return Err(CommandError::OutOfRange { what: "links", min: min.into(), max: max.into() });
        }
        if !settings.with_links(links).is_within_limits() {
            return Err(CommandError::text("ERR filter would remember more than any can, give it fewer links"));
        }
        ring::change(entry, |ring| -> Result<(), CommandError> {
            ring.set_links(links, now);
            Ok(())
        })?;
        record.record(&Effect::RingLinks { links, now });
        Ok(())
    })
}

/// `CHAIN.EXTEND key LINKS n`
pub(super) fn extend(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    set_links(context, args, "EXTEND", true)
}

/// `CHAIN.SHRINK key LINKS n`
pub(super) fn shrink(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    set_links(context, args, "SHRINK", false)
}

/// `CHAIN.ROTATE key`
pub(super) fn rotate(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    change_existing(context, &args[1], |entry, record, _| {
        let ValueRef::Ring(ring) = entry.value() else { return Err(CommandError::WrongType) };
        if matches!(ring.settings().mode, Mode::Window(_)) {
            return Err(CommandError::text("ERR a window turns by its clock"));
        }
        let version = ring.version();
        let turned = ring::change(entry, |ring| -> Result<u64, CommandError> {
            ring.rotate()?;
            Ok(ring.version)
        })?;
        if turned != version {
            record.record(&Effect::RingRotated);
        }
        Ok(())
    })
}

/// `CHAIN.CLEAR key`
pub(super) fn clear(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    change_existing(context, &args[1], |entry, record, _| {
        ring::change(entry, |ring| -> Result<(), CommandError> {
            ring.clear();
            Ok(())
        })?;
        record.record(&Effect::RingCleared);
        Ok(())
    })
}

/// What is to be merged, if there is anything.
fn read_rings(
    order: MergeOrder<'_>,
    held: &mut Held<'_>,
    versions: &Versions,
    clock: u64,
) -> Result<Result<Option<Merging>, CommandError>, Wait> {
    let mut rings = Vec::new();
    for name in order.names.iter() {
        rings.push(held.read(order.db, name, ring_of)?);
    }
    let rings = rings.into_iter().collect::<Result<Vec<_>, _>>();
    Ok(rings.and_then(|rings| merging(order, rings, versions, clock)))
}

fn merging(
    order: MergeOrder<'_>,
    rings: Vec<Option<Ring>>,
    versions: &Versions,
    clock: u64,
) -> Result<Option<Merging>, CommandError> {
    let target = &order.names[0];
    let mut rings = rings.into_iter();
    let own = rings.next().flatten();
    let others: Vec<Ring> =
        order.sources().zip(rings).filter(|(name, _)| *name != target).filter_map(|(_, ring)| ring).collect();
    let Some(settings) = own.as_ref().or(others.first()).map(|ring| ring.settings) else { return Ok(None) };
    if !matches!(settings.mode, Mode::Window(_)) && order.is_circular() {
        return Err(CommandError::text("ERR dst is among the sources"));
    }
    if others.is_empty() {
        return Ok(None);
    }
    let own_bytes = own.as_ref().map_or(0, bit_bytes);
    let bytes = others.iter().map(bit_bytes).fold(own_bytes, u64::saturating_add);
    let merged = own.unwrap_or_else(|| Ring::new(settings, versions.begin()));
    let now = others.iter().map(|ring| ring.latest).fold(merged.latest, u64::max);
    let merge = Merge::new(merged, others, settings.reading_time(now, clock), order.force)?;
    Ok(Some(Merging { bytes, own_bytes, state: State::Merging(Box::new(merge)) }))
}

/// Nothing is merged; it is a write all the same.
fn write_nothing(order: MergeOrder<'_>, held: &mut Held<'_>, clock: u64) -> Result<Result<(), CommandError>, Wait> {
    held.write(order.db, &order.names[0], |cell| move_life_of(cell, clock))
}

/// Put a merged ring in its place; the key's life is as it was.
fn finish(
    order: MergeOrder<'_>,
    held: &mut Held<'_>,
    (merged, payload): (Ring, &[u8]),
    clock: u64,
) -> Result<Result<(), CommandError>, Wait> {
    held.write(order.db, &order.names[0], |cell| {
        put_merged(cell, payload, |name, life| ring::entry_of(name, life, merged))?;
        move_life_of(cell, clock)
    })
}

fn move_life_of(cell: &mut Cell<'_>, clock: u64) -> Result<(), CommandError> {
    cell.change(|entry, record| move_life(entry, &record, clock)).unwrap_or(Ok(()))
}

fn bit_bytes(ring: &Ring) -> u64 {
    ring.parts.iter().map(|part| part.shape.bytes()).fold(0, u64::saturating_add)
}

/// Rings on the way to one, and then to its bytes for the log.
struct Merging {
    /// Bytes of all of them.
    bytes: u64,
    /// Bytes of the target.
    own_bytes: u64,
    state: State,
}

enum State {
    Merging(Box<Merge>),
    Writing(Box<Writing>),
    Done,
}

struct Writing {
    merged: Ring,
    writer: RingDumpWriter,
    payload: Vec<u8>,
}

impl Merging {
    /// The next step. The ring and its bytes, if that was the last.
    fn step(&mut self, bounds: Bounds<'_>) -> Result<Option<(Ring, Vec<u8>)>, CommandError> {
        // What is refused stays where it is, to be freed with all the rest.
        let writing = match &mut self.state {
            State::Merging(merge) => {
                if !merge.step()? {
                    return Ok(None);
                }
                let total = bit_bytes(merge.ring());
                bounds.check(total, total.saturating_sub(self.own_bytes), self.bytes)?;
                let writer = RingDumpWriter::new(merge.ring().clone());
                let payload = writer.room()?;
                Some((writer, payload))
            }
            State::Writing(writing) => {
                if !writing.writer.step(&mut writing.payload, COPIED_AT_ONCE) {
                    return Ok(None);
                }
                None
            }
            State::Done => None,
        };
        match (std::mem::replace(&mut self.state, State::Done), writing) {
            (State::Merging(merge), Some((writer, payload))) => {
                let merged = merge.into_ring();
                self.state = State::Writing(Box::new(Writing { merged, writer, payload }));
                Ok(None)
            }
            (State::Writing(writing), _) => Ok(Some((writing.merged, writing.payload))),
            _ => Ok(None),
        }
    }

    fn finished(mut self, bounds: Bounds<'_>) -> Result<(Ring, Vec<u8>), CommandError> {
        loop {
            if let Some(done) = self.step(bounds)? {
                return Ok(done);
            }
        }
    }
}

/// `CHAIN.MERGE dst src … [FORCE]`
pub(super) fn merge(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let order = MergeOrder::of(context.session.db, args);
    let (bounds, clock, may_latch) = (Bounds::of(context), context.now(), context.may_latch());
    let versions = context.keyspace.versions();
    let merged = context.with_keys(order.keys(), |held| {
        let merging = match read_rings(order, held, versions, clock)? {
            Ok(Some(merging)) => merging,
            Ok(None) => return Ok(write_nothing(order, held, clock)?.map(|()| true)),
            Err(error) => return Ok(Err(error)),
        };
        if may_latch && merging.bytes > COPIED_AT_ONCE as u64 {
            return Ok(Ok(false));
        }
        match merging.finished(bounds) {
            Ok((merged, payload)) => {
                versions.note(merged.version, clock);
                Ok(finish(order, held, (merged, &payload), clock)?.map(|()| true))
            }
            Err(error) => Ok(Err(error)),
        }
    })?;
    if merged? {
        return Ok(Reply::Ok);
    }
    let keys = order.take_out(context)?;
    Err(Stop::Long(Box::new(LongMerge { keys, clock, merging: None })))
}

struct LongMerge {
    /// All keys, unless they are the transaction's.
    keys: Option<LatchedKeys>,
    clock: u64,
    merging: Option<Aside<Merging>>,
}

impl LongCommand for LongMerge {
    fn step(&mut self, context: &mut Context<'_>, args: Args<'_>, until: Instant) -> Step {
        let (order, bounds, keyspace) =
            (MergeOrder::of(context.session.db, args), Bounds::of(context), context.keyspace);
        let mut own = self.keys.as_ref().map(|keys| keys.hold_at(keyspace));
        let Some(held) = own.as_mut().or(context.held.as_mut()) else { return Ok(None) };
        let merging = match &mut self.merging {
            Some(merging) => merging,
            None => match read_rings(order, held, keyspace.versions(), self.clock)? {
                Ok(Some(merging)) => self.merging.insert(keyspace.aside(merging)),
                Ok(None) => return answer(write_nothing(order, held, self.clock)?),
                Err(error) => return refused(&error),
            },
        };
        loop {
            match merging.step(bounds) {
                Ok(Some((mut merged, payload))) => {
                    keyspace.versions().note(merged.version, self.clock);
                    let spare = keyspace.aside((merged.take_retired(), payload));
                    return answer(finish(order, held, (merged, &spare.1), self.clock)?);
                }
                Ok(None) if Instant::now() >= until => return Ok(None),
                Ok(None) => {}
                Err(error) => return refused(&error),
            }
        }
    }
}

fn answer(done: Result<(), CommandError>) -> Step {
    match done {
        Ok(()) => Ok(Some(Reply::Ok)),
        Err(error) => refused(&error),
    }
}
