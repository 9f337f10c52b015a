//! Filters as bytes, in chunks: `SCANDUMP` and `LOADCHUNK`.
//!
//! What is read of a filter is read under its shard's lock, or with its key's latch where that takes longer.

use std::marker::PhantomData;
use std::time::Instant;

use super::{Family, filter_of};
use crate::codec::cells_dump::{CellsDump, CellsLoad};
use crate::codec::cells_value::CellsRef;
use crate::codec::chunks::{LoadError, MAGIC};
use crate::codec::payload::CellsDumpWriter;
use crate::commands::bloom::Bounds;
use crate::commands::context::Context;
use crate::commands::dispatch::{LongCommand, Outcome, Step, Stop, refused};
use crate::commands::dumps::chunk_reply;
use crate::commands::error::CommandError;
use crate::commands::options::cursor;
use crate::keyspace::bloom::COPIED_AT_ONCE;
use crate::keyspace::effect::Effect;
use crate::keyspace::entry::{Entry, EntryRef};
use crate::keyspace::latch::Wait;
use crate::keyspace::latched::Latched;
use crate::keyspace::{Aside, Cell, Keyspace, Record};
use crate::resp::{Args, Reply};

/// Buckets of a loaded filter that are checked between two looks at the clock.
const BUCKETS_AT_ONCE: u64 = 1024;

/// A load that is under way.
pub(in crate::commands) trait Loading {
    /// As [`CellsLoad::take`].
    fn take(&mut self, cursor: u64, data: &[u8]) -> Result<bool, LoadError>;
    /// As [`CellsLoad::finish_step`].
    fn finish_step(&mut self, buckets: u64) -> Result<bool, LoadError>;
    /// Bytes of the filter.
    fn bytes(&self) -> u64;
}

impl<const KIND: u8> Loading for CellsLoad<KIND> {
    fn take(&mut self, cursor: u64, data: &[u8]) -> Result<bool, LoadError> {
        self.take(cursor, data)
    }

    fn finish_step(&mut self, buckets: u64) -> Result<bool, LoadError> {
        self.finish_step(buckets)
    }

    fn bytes(&self) -> u64 {
        self.head().bytes()
    }
}

/// `SCANDUMP key cursor`
pub(super) fn scan_dump<F: Family>(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (cursor, may_latch) = (cursor(&args[2])?, context.may_latch());
    let chunk = context.read(&args[1], |entry| -> Result<_, CommandError> {
        filter_of::<F>(entry)?.ok_or(CommandError::NotFound)?;
        let filter = entry.and_then(|entry| F::cells(entry.value())).ok_or(CommandError::NotFound)?;
        if may_latch && filter.head().bytes() > COPIED_AT_ONCE as u64 {
            return Ok(None);
        }
        Ok(Some(CellsDump::chunk(filter, cursor)?))
    })??;
    match chunk {
        Some(chunk) => Ok(chunk_reply(chunk)),
        None => match context.latch(&args[1])? {
            Some(latched) => Err(Stop::Long(Box::new(LongChunk { latched, cursor, family: PhantomData::<fn(F)> }))),
            None => scan_dump::<F>(context, args),
        },
    }
}

/// A chunk of a large filter: nobody but who asks for its key waits.
struct LongChunk<F> {
    latched: Latched,
    cursor: u64,
    family: PhantomData<fn(F)>,
}

impl<F: Family> LongCommand for LongChunk<F> {
    fn step(&mut self, _: &mut Context<'_>, _: Args<'_>, _: Instant) -> Step {
        let Some(filter) = F::cells(self.latched.entry().value()) else { return refused(&CommandError::WrongType) };
        match CellsDump::chunk(filter, self.cursor) {
            Ok(chunk) => Ok(Some(chunk_reply(chunk))),
            Err(error) => refused(&error.into()),
        }
    }
}

/// `LOADCHUNK key cursor data`
pub(super) fn load_chunk<F: Family>(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (name, data, cursor) = (&args[1], &args[3], cursor(&args[2])?);
    let (bounds, may_latch) = (Bounds::of(context), context.may_latch());
    let limit = bounds.settings().max_filter_memory();
    let (taken, latched) = context.write_and_latch(name, |cell| {
        let taken = take_chunk::<F>(cell, cursor, data, bounds, limit);
        let long = matches!(taken, Ok(Taken::Whole { bytes }) if may_latch && bytes > COPIED_AT_ONCE as u64);
        match taken {
            Ok(Taken::Whole { .. }) if !long => {
                let ended = cell.change(|entry, record| end_load::<F>(entry, &record, limit)).unwrap_or(Ok(()));
                (ended.map(|()| Taken::Done), false)
            }
            taken => (taken, long),
        }
    })?;
    match (taken?, latched) {
        (Taken::Done, _) => Ok(Reply::Ok),
        (Taken::Whole { .. }, Some(latched)) => {
            Err(Stop::Long(Box::new(LongLoad { latched, writing: None, family: PhantomData::<fn(F)> })))
        }
        // No key may be taken out now. The chunk is given again, without effect, and the load ended then.
        (Taken::Whole { .. }, None) => Err(Wait::yielding().into()),
    }
}

/// What became of a chunk.
#[derive(Clone, Copy)]
enum Taken {
    /// It was taken; or was before, and has no effect.
    Done,
    /// It was the last, of a filter of so many bytes.
    Whole { bytes: u64 },
}

fn take_chunk<F: Family>(
    cell: &mut Cell<'_>,
    cursor: u64,
    data: &[u8],
    bounds: Bounds<'_>,
    limit: u64,
) -> Result<Taken, CommandError> {
    let Some(entry) = cell.get() else {
        let begun = F::begin_load(cell, cursor, data, bounds).map_err(|error| match error {
            // Any other chunk of a dump, for a key that is not there.
            CommandError::BadData if !data.starts_with(MAGIC) => CommandError::NotFound,
            error => error,
        });
        return begun.map(|()| Taken::Done);
    };
    // The last chunk of a load that is over was taken, whose answer may have been lost. A header begins a load, and a
    // chunk of which the filter has not everything is of another one.
    if let Some(filter) = F::cells(entry.value()) {
        let held = CellsDump::holds(filter, cursor, data)?;
        return if held { Ok(Taken::Done) } else { Err(CommandError::ItemExists) };
    }
    let other = F::no_filter(&entry.value());
    let taken = cell.change(|entry, _| {
        let load = F::loading(entry).ok_or(other)?;
        match load.take(cursor, data) {
            Ok(true) => Ok(Taken::Whole { bytes: load.bytes() }),
            Ok(false) => Ok(Taken::Done),
            Err(error) => Err(CommandError::of_load(error, limit)),
        }
    });
    taken.unwrap_or(Err(CommandError::NotFound))
}

/// All chunks are there: the filter is visible from now on.
fn end_load<F: Family>(entry: &mut Entry, record: &dyn Record, limit: u64) -> Result<(), CommandError> {
    while !finish_step::<F>(entry, limit)? {}
    let filter = loaded::<F>(entry.as_ref())?;
    let mut writer = CellsDumpWriter::new(filter);
    let mut payload = writer.room()?;
    while !writer.step(filter, &mut payload, COPIED_AT_ONCE) {}
    show::<F>(entry, record, &payload)
}

fn finish_step<F: Family>(entry: &mut Entry, limit: u64) -> Result<bool, CommandError> {
    let load = F::loading(entry).ok_or(CommandError::BadData)?;
    load.finish_step(BUCKETS_AT_ONCE).map_err(|error| CommandError::of_load(error, limit))
}

fn loaded<F: Family>(entry: EntryRef<'_>) -> Result<CellsRef<'_>, CommandError> {
    F::loaded(entry).ok_or(CommandError::BadData)
}

fn show<F: Family>(entry: &mut Entry, record: &dyn Record, payload: &[u8]) -> Result<(), CommandError> {
    F::end_load(entry)?;
    record.record(&Effect::Restored { payload, life: entry.as_ref().life() });
    Ok(())
}

/// The end of the load of a large filter, which is checked, and whose bytes are written for the log, in steps.
struct LongLoad<F> {
    latched: Latched,
    writing: Option<Aside<(CellsDumpWriter, Vec<u8>)>>,
    family: PhantomData<fn(F)>,
}

impl<F: Family> LongLoad<F> {
    fn go_on(&mut self, keyspace: &Keyspace, limit: u64, until: Instant) -> Result<bool, CommandError> {
        if self.writing.is_none() {
            let finished = self.latched.change(|entry, _| {
                while !finish_step::<F>(entry, limit)? {
                    if Instant::now() >= until {
                        return Ok(false);
                    }
                }
                Ok::<_, CommandError>(true)
            });
            if !finished? {
                return Ok(false);
            }
        }
        let filter = loaded::<F>(self.latched.entry())?;
        let writing = match &mut self.writing {
            Some(writing) => writing,
            None => {
                let writer = CellsDumpWriter::new(filter);
                let room = writer.room()?;
                self.writing.insert(keyspace.aside((writer, room)))
            }
        };
        let (writer, payload) = &mut **writing;
        while !writer.step(filter, payload, COPIED_AT_ONCE) {
            if Instant::now() >= until {
                return Ok(false);
            }
        }
        self.latched.change(|entry, record| show::<F>(entry, record, payload)).map(|()| true)
    }
}

impl<F: Family> LongCommand for LongLoad<F> {
    fn step(&mut self, context: &mut Context<'_>, _: Args<'_>, until: Instant) -> Step {
        let limit = context.settings.max_filter_memory();
        match self.go_on(context.keyspace, limit, until) {
            Ok(done) => Ok(done.then_some(Reply::Ok)),
            Err(error) => refused(&error),
        }
    }
}
