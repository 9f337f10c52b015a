//! Rings as bytes: `CHAIN.EXPORT`, `CHAIN.SCANDUMP` and `CHAIN.LOADCHUNK`.
//!
//! What is copied is a copy of the ring that shares its bits: it is made under the shard's lock, and read without.

use super::not_a_ring;
use super::options::NewRing;
use crate::codec::payload::dump_ring;
use crate::codec::ring_dump::{DumpError, LoadError, RingDump};
use crate::codec::ring_export::{empty_export, export as export_ring};
use crate::codec::value::HalfRing;
use crate::commands::bloom::Bounds;
use crate::commands::context::Context;
use crate::commands::dispatch::{Outcome, Stop};
use crate::commands::error::CommandError;
use crate::commands::words::is;
use crate::filters::ring::Ring;
use crate::keyspace::effect::Effect;
use crate::keyspace::entry::{EntryRef, ValueMut, ValueRef};
use crate::keyspace::{Cell, ring};
use crate::resp::{Args, Reply, parse_integer};

impl From<DumpError> for CommandError {
    fn from(error: DumpError) -> Self {
        match error {
            DumpError::Memory(error) => error.into(),
            DumpError::Changed => Self::Text(format!("ERR {error}").into()),
        }
    }
}

impl LoadError {
    /// The error of a command; `limit` is that of the bytes of a filter.
    fn refusal(self, limit: u64) -> CommandError {
        match self {
            Self::Memory(error) => error.into(),
            Self::Limit { bytes } => CommandError::FilterTooLarge { bytes, limit },
            Self::Bad => CommandError::BadData,
            Self::Offset { .. } => CommandError::Text(format!("ERR {self}").into()),
        }
    }
}

/// The ring of a key.
///
/// # Errors
/// Another kind of value; a ring that is being loaded; no memory.
fn ring_of(entry: Option<EntryRef<'_>>) -> Result<Option<Ring>, CommandError> {
    match entry.map(EntryRef::value) {
        None => Ok(None),
        Some(ValueRef::Ring(ring)) => Ok(Some(ring.to_ring()?)),
        Some(other) => Err(not_a_ring(&other)),
    }
}

/// `CHAIN.EXPORT key [NEWER version]`
pub(super) fn export(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let newer = match args.len() {
        2 => None,
        4 if is(&args[2], "NEWER") => Some(version(&args[3])?),
        3 if is(&args[2], "NEWER") => return Err(CommandError::NoValue("newer").into()),
        _ if is(&args[2], "NEWER") => return Err(CommandError::Unexpected(args[4].into()).into()),
        _ => return Err(CommandError::Unexpected(args[2].into()).into()),
    };
    let clock = context.now();
    let ring = context.read(&args[1], ring_of)??;
    if newer.is_some_and(|newer| ring.as_ref().is_none_or(|ring| ring.version <= newer)) {
        return Ok(Reply::Null);
    }
    let bytes = match ring {
        Some(ring) => export_ring(&ring, ring.settings.reading_time(ring.latest, clock)),
        None => {
            let settings = NewRing::by_default(context, &args[1]).settings;
            empty_export(&settings, settings.reading_time(0, clock))
        }
    };
    Ok(Reply::Bulk(bytes.map_err(CommandError::from)?.into()))
}

fn version(word: &[u8]) -> Result<u64, CommandError> {
    let number = parse_integer(word).ok_or(CommandError::Bad("version"))?;
    u64::try_from(number).map_err(|_| CommandError::OutOfRange { what: "version", min: 0, max: i64::MAX as u64 })
}

fn cursor(word: &[u8]) -> Result<u64, CommandError> {
    let number = parse_integer(word).ok_or(CommandError::Bad("cursor"))?;
    u64::try_from(number).map_err(|_| CommandError::OutOfRange { what: "cursor", min: 0, max: i64::MAX as u64 })
}

/// `CHAIN.SCANDUMP key cursor`
pub(super) fn scan_dump(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let cursor = cursor(&args[2])?;
    let ring = context.read(&args[1], ring_of)??.ok_or(CommandError::NotFound)?;
    let chunk = RingDump::chunk(&ring, cursor).map_err(CommandError::from)?;
    Ok(Reply::Array(vec![Reply::Integer(chunk.cursor as i64), Reply::Bulk(chunk.data.into())]))
}

/// `CHAIN.LOADCHUNK key cursor data`
pub(super) fn load_chunk(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (name, data, cursor) = (&args[1], &args[3], cursor(&args[2])?);
    let bounds = Bounds::of(context);
    let limit = bounds.settings().max_filter_memory();
    context.write(name, |cell| match cell.get().map(EntryRef::value) {
        None => begin_load(cell, cursor, data, bounds, limit),
        Some(ValueRef::HalfRing(_)) => {
            let whole = cell.change(|entry, _| match entry.value_mut() {
                ValueMut::HalfRing(half) => half.load.take(cursor, data),
                _ => Err(LoadError::Bad),
            });
            match whole.unwrap_or(Err(LoadError::Bad)).map_err(|error| error.refusal(limit))? {
                true => end_load(cell).map_err(Stop::from),
                false => Ok(Reply::Ok),
            }
        }
        // A chunk of a load that is over was taken already.
        Some(ValueRef::Ring(_)) => Err(CommandError::ItemExists.into()),
        Some(other) => Err(not_a_ring(&other).into()),
    })?
}

/// Only a header makes a key.
fn begin_load(cell: &mut Cell<'_>, cursor: u64, header: &[u8], bounds: Bounds<'_>, limit: u64) -> Outcome {
    let half = HalfRing::new(cursor, header, limit).map_err(|error| match error {
        // Any other chunk of a dump, for a key that is not there.
        LoadError::Bad if !header.starts_with(crate::codec::ring_dump::MAGIC) => CommandError::NotFound,
        error => error.refusal(limit),
    })?;
    bounds.check_new(half.load.bytes())?;
    let whole = half.load.is_whole();
    cell.insert(ring::half_loaded(cell.name(), None, half).map_err(CommandError::from)?);
    cell.record(&Effect::RingHeader { cursor, header });
    if whole { Ok(end_load(cell)?) } else { Ok(Reply::Ok) }
}

/// All chunks are there: the ring is visible from now on.
fn end_load(cell: &mut Cell<'_>) -> Result<Reply, CommandError> {
    let (life, stamp) = cell.get().map_or((None, None), |entry| (entry.life(), Some(entry.stamp())));
    let loaded = cell.change(|entry, _| match entry.value_mut() {
        ValueMut::HalfRing(half) => half.load.ring().cloned(),
        _ => None,
    });
    let loaded = loaded.flatten().ok_or(CommandError::BadData)?;
    let payload = dump_ring(&loaded)?;
    let entry = ring::entry_of(cell.name(), life, loaded)?;
    stamp.iter().for_each(|stamp| entry.as_ref().set_stamp(*stamp));
    cell.replace(entry);
    cell.record(&Effect::Restored { payload: &payload, life });
    Ok(Reply::Ok)
}
