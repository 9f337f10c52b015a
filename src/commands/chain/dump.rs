//! Rings as bytes: `CHAIN.EXPORT`, `CHAIN.SCANDUMP` and `CHAIN.LOADCHUNK`.
//!
//! What is copied is a copy of the ring that shares its bits: it is made under the shard's lock, and read without.

use std::time::Instant;

use super::not_a_ring;
use super::options::NewRing;
use super::ring_of;
use crate::codec::payload::{RingDumpWriter, dump_ring};
use crate::codec::ring_dump::{LoadError, MAGIC, RingDump};
use crate::codec::ring_export::{ExportWriter, empty_export};
use crate::codec::value::HalfRing;
use crate::commands::bloom::Bounds;
use crate::commands::context::Context;
use crate::commands::dispatch::{LongCommand, Outcome, Step, Stop, refused, write_bytes};
use crate::commands::dumps::chunk_reply;
use crate::commands::error::CommandError;
use crate::commands::options::{cursor, newer};
use crate::commands::words::Words;
use crate::filters::ring::Ring;
use crate::keyspace::bloom::COPIED_AT_ONCE;
use crate::keyspace::effect::Effect;
use crate::keyspace::entry::{Entry, EntryRef, ValueMut, ValueRef};
use crate::keyspace::latch::Wait;
use crate::keyspace::latched::Latched;
use crate::keyspace::{Aside, Cell, Keyspace, Record, ring};
use crate::resp::{Args, Reply};

/// `CHAIN.EXPORT key [NEWER version]`
pub(super) fn export(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let newer = newer(Words::from(args, 2))?;
    let clock = context.now();
    let ring = context.read(&args[1], ring_of)??;
    if newer.is_some_and(|newer| ring.as_ref().is_none_or(|ring| ring.version <= newer)) {
        return Ok(Reply::Null);
    }
    let Some(ring) = ring else {
        let settings = NewRing::by_default(context.keyspace, context.settings, &args[1]).settings;
        let bytes = empty_export(&settings, settings.reading_time(0, clock)).map_err(CommandError::from)?;
        return Ok(Reply::Bulk(bytes.into()));
    };
    let now = ring.settings.reading_time(ring.latest, clock);
    let mut writer = ExportWriter::new(ring, now);
    let mut bytes = writer.room().map_err(CommandError::from)?;
    if bytes.capacity() > COPIED_AT_ONCE && context.may_latch() {
        let writer = context.keyspace.aside(writer);
        return Err(Stop::Long(Box::new(LongExport { writer, bytes })));
    }
    while !writer.step(&mut bytes, usize::MAX) {}
    Ok(Reply::Bulk(bytes.into()))
}

/// The export of a large ring, from a copy that shares its bits: nobody waits for the key.
struct LongExport {
    writer: Aside<ExportWriter<Ring>>,
    bytes: Vec<u8>,
}

impl LongCommand for LongExport {
    fn step(&mut self, _: &mut Context<'_>, _: Args<'_>, until: Instant) -> Step {
        write_bytes(&mut self.bytes, until, |bytes| self.writer.step(bytes, COPIED_AT_ONCE))
    }
}

/// `CHAIN.SCANDUMP key cursor`
pub(super) fn scan_dump(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let cursor = cursor(&args[2])?;
    let ring = context.read(&args[1], ring_of)??.ok_or(CommandError::NotFound)?;
    let chunk = RingDump::chunk(&ring, cursor).map_err(CommandError::from)?;
    Ok(chunk_reply(chunk))
}

/// `CHAIN.LOADCHUNK key cursor data`
pub(super) fn load_chunk(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (name, data, cursor) = (&args[1], &args[3], cursor(&args[2])?);
    let (bounds, may_latch) = (Bounds::of(context), context.may_latch());
    let limit = bounds.settings().max_filter_memory();
    let (taken, latched) = context.write_and_latch(name, |cell| {
        let taken = take_chunk(cell, cursor, data, bounds, limit);
        let long = matches!(taken, Ok(Taken::Whole { bytes }) if may_latch && bytes > COPIED_AT_ONCE as u64);
        match taken {
            Ok(Taken::Whole { .. }) if !long => {
                let ended = cell.change(|entry, record| end_load(entry, &record)).unwrap_or(Ok(()));
                (ended.map(|()| Taken::Done), false)
            }
            taken => (taken, long),
        }
    })?;
    match (taken?, latched) {
        (Taken::Done, _) => Ok(Reply::Ok),
        (Taken::Whole { .. }, Some(latched)) => Err(Stop::Long(Box::new(LongLoad { latched, writing: None }))),
        // No key may be taken out now. The chunk is given again, without effect, and the load ended then.
        (Taken::Whole { .. }, None) => Err(Wait::yielding().into()),
    }
}

/// What became of a chunk.
#[derive(Clone, Copy)]
enum Taken {
    /// It was taken; or was before, and has no effect.
    Done,
    /// It was the last, of a ring of so many bytes.
    Whole { bytes: u64 },
}

fn take_chunk(
    cell: &mut Cell<'_>,
    cursor: u64,
    data: &[u8],
    bounds: Bounds<'_>,
    limit: u64,
) -> Result<Taken, CommandError> {
    match cell.get().map(EntryRef::value) {
        None => begin_load(cell, cursor, data, bounds, limit)?,
        Some(ValueRef::HalfRing(_)) => {
            let taken = cell.change(|entry, _| match entry.value_mut() {
                ValueMut::HalfRing(half) => half.load.take(cursor, data),
                _ => Err(LoadError::Bad),
            });
            taken.unwrap_or(Err(LoadError::Bad)).map_err(|error| CommandError::of_load(error, limit))?;
        }
        // The last chunk of a load that is over was taken, whose answer may have been lost. A header begins a load, and a
        // chunk of which the ring has not everything is of another one.
        Some(ValueRef::Ring(ring)) => {
            let held = RingDump::holds(&ring.to_ring()?, cursor, data)?;
            return if held { Ok(Taken::Done) } else { Err(CommandError::ItemExists) };
        }
        Some(other) => return Err(not_a_ring(&other)),
    }
    Ok(match cell.get().map(EntryRef::value) {
        Some(ValueRef::HalfRing(half)) if half.load.is_whole() => Taken::Whole { bytes: half.load.bytes() },
        _ => Taken::Done,
    })
}

/// Only a header makes a key.
fn begin_load(
    cell: &mut Cell<'_>,
    cursor: u64,
    header: &[u8],
    bounds: Bounds<'_>,
    limit: u64,
) -> Result<(), CommandError> {
    let half = HalfRing::new(cursor, header, limit).map_err(|error| match error {
        // Any other chunk of a dump, for a key that is not there.
        LoadError::Bad if !header.starts_with(MAGIC) => CommandError::NotFound,
        error => CommandError::of_load(error, limit),
    })?;
    bounds.check_new(half.load.bytes())?;
    cell.insert(ring::half_loaded(cell.name(), None, half)?);
    cell.record(&Effect::RingHeader { cursor, header });
    Ok(())
}

/// All chunks are there: the ring is visible from now on.
fn end_load(entry: &mut Entry, record: &dyn Record) -> Result<(), CommandError> {
    let payload = dump_ring(ring::loaded(entry.as_ref()).ok_or(CommandError::BadData)?)?;
    show(entry, record, &payload)
}

fn show(entry: &mut Entry, record: &dyn Record, payload: &[u8]) -> Result<(), CommandError> {
    ring::end_load(entry)?;
    record.record(&Effect::Restored { payload, life: entry.as_ref().life() });
    Ok(())
}

/// The end of the load of a large ring, whose bytes are written for the log in steps.
struct LongLoad {
    latched: Latched,
    writing: Option<Aside<(RingDumpWriter, Vec<u8>)>>,
}

impl LongLoad {
    fn write_next(&mut self, keyspace: &Keyspace, until: Instant) -> Result<bool, CommandError> {
        let writing = match &mut self.writing {
            Some(writing) => writing,
            None => {
                let ring = ring::loaded(self.latched.entry()).ok_or(CommandError::BadData)?;
                let writer = RingDumpWriter::new(ring.clone());
                let room = writer.room()?;
                self.writing.insert(keyspace.aside((writer, room)))
            }
        };
        let (writer, payload) = &mut **writing;
        while !writer.step(payload, COPIED_AT_ONCE) {
            if Instant::now() >= until {
                return Ok(false);
            }
        }
        self.latched.change(|entry, record| show(entry, record, payload)).map(|()| true)
    }
}

impl LongCommand for LongLoad {
    fn step(&mut self, context: &mut Context<'_>, _: Args<'_>, until: Instant) -> Step {
        match self.write_next(context.keyspace, until) {
            Ok(done) => Ok(done.then_some(Reply::Ok)),
            Err(error) => refused(&error),
        }
    }
}
