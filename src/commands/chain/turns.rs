//! Changing a whole ring: more or fewer links, a turn, clearing, merging.

use super::create::move_life;
use super::not_a_ring;
use super::options::links;
use crate::codec::payload;
use crate::commands::context::Context;
use crate::commands::dispatch::{Outcome, Stop};
use crate::commands::error::CommandError;
use crate::commands::words::is;
use crate::filters::ring::settings::LINKS;
use crate::filters::ring::{MergeError, Mode, Ring};
use crate::keyspace::effect::Effect;
use crate::keyspace::entry::{Entry, EntryRef, ValueRef};
use crate::keyspace::{Cell, Record, ring};
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
        if !(min..=max).contains(&links) {
            return Err(CommandError::OutOfRange { what: "links", min: min.into(), max: max.into() });
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

/// The ring of a key; none if there is no key.
fn ring_of(entry: Option<EntryRef<'_>>) -> Result<Option<Ring>, CommandError> {
    match entry.map(EntryRef::value) {
        None => Ok(None),
        Some(ValueRef::Ring(ring)) => Ok(Some(ring.to_ring()?)),
        Some(other) => Err(not_a_ring(&other)),
    }
}

/// `CHAIN.MERGE dst src … [FORCE]`
pub(super) fn merge(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let force = args.len() > 3 && is(&args[args.len() - 1], "FORCE");
    let names = args.range(1, args.len() - usize::from(force));
    let (db, clock) = (context.session.db, context.now());
    let keys = names.iter().map(|name| (db, name));
    let merged = context.with_keys(keys, |held| {
        let mut rings = Vec::new();
        for name in names.iter() {
            rings.push(held.read(db, name, ring_of)?);
        }
        let rings = rings.into_iter().collect::<Result<Vec<_>, _>>();
        let merged = rings.and_then(|rings| merged_ring(&names, rings, clock, force));
        let Ok(Some(merged)) = merged else { return Ok(merged.map(drop)) };
        held.write(db, &names[0], |cell| put_merged(cell, merged, clock))
    })?;
    merged.map(|()| Reply::Ok).map_err(Stop::from)
}

/// What the first of the rings is to become; nothing if no other has anything.
fn merged_ring(
    names: &Args<'_>,
    rings: Vec<Option<Ring>>,
    clock: u64,
    force: bool,
) -> Result<Option<Ring>, CommandError> {
    let target = &names[0];
    let mut rings = rings.into_iter();
    let own = rings.next().flatten();
    let is_target = names.iter().skip(1).map(|name| name == target);
    let sources: Vec<(bool, Ring)> =
        is_target.zip(rings).filter_map(|(is_target, ring)| Some((is_target, ring?))).collect();
    let Some(settings) = own.as_ref().or(sources.first().map(|(_, ring)| ring)).map(|ring| ring.settings) else {
        return Ok(None);
    };
    if sources.iter().any(|(is_target, _)| *is_target) && !matches!(settings.mode, Mode::Window(_)) {
        return Err(CommandError::text("ERR dst is among the sources"));
    }
    let others: Vec<&Ring> = sources.iter().filter(|(is_target, _)| !is_target).map(|(_, ring)| ring).collect();
    if others.is_empty() {
        return Ok(None);
    }
    let version = others.iter().map(|ring| ring.version).max().unwrap_or_default();
    let mut merged = own.unwrap_or_else(|| Ring::new(settings, version));
    let now = others.iter().map(|ring| ring.latest).fold(merged.latest, u64::max);
    merged.merge(&others, settings.reading_time(now, clock), force)?;
    Ok(Some(merged))
}

/// Put a merged ring in its place; the key's life is as it was.
fn put_merged(cell: &mut Cell<'_>, merged: Ring, clock: u64) -> Result<(), CommandError> {
    let (life, stamp) = cell.get().map_or((None, None), |entry| (entry.life(), Some(entry.stamp())));
    let dumped = payload::dump_ring(&merged)?;
    let entry = ring::entry_of(cell.name(), life, merged)?;
    stamp.iter().for_each(|stamp| entry.as_ref().set_stamp(*stamp));
    cell.replace(entry);
    cell.record(&Effect::Restored { payload: &dumped, life });
    cell.change(|entry, record| move_life(entry, &record, clock)).unwrap_or(Ok(()))
}
