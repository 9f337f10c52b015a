//! Bloom filters as bytes: `BF.SCANDUMP` and `BF.LOADCHUNK`.
//!
//! Large pieces are copied with the key's latch, in steps; small ones under the shard's lock.

use std::time::Instant;

use super::create::Bounds;
use super::figures::read_existing;
use crate::codec::bloom::{Chunk, ChunkError, Header, HeaderError, chunk_at, encode_header, place_chunk};
use crate::commands::context::Context;
use crate::commands::dispatch::{LongCommand, Outcome, Step, Stop, refused};
use crate::commands::error::CommandError;
use crate::keyspace::Record;
use crate::keyspace::bloom::loaded_filter;
use crate::keyspace::effect::Effect;
use crate::keyspace::entry::{Entry, EntryRef, ValueMut, ValueRef};
use crate::keyspace::latched::Latched;
use crate::resp::{Args, Reply, parse_integer};

/// More bytes than this are not copied while a shard is held.
const COPIED_AT_ONCE: usize = 256 << 10;

/// `BF.SCANDUMP key iterator`
pub(super) fn scan_dump(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let name = &args[1];
    let iterator = parse_integer(&args[2]);
    let (end, may_latch) = (context.session.dump_end(name), context.may_latch());
    enum Piece {
        Header(Vec<u8>, u64),
        Data(Vec<u8>),
        Long(Chunk),
        End,
    }
    let piece = read_existing(context, name, |bloom| {
        let iterator = iterator.ok_or(CommandError::text("Second argument must be numeric"))?;
        if iterator == 0 {
            return Ok(Piece::Header(encode_header(bloom), bloom.bit_bytes()));
        }
        let chunk = chunk_at(bloom, iterator).filter(|_| end.is_none_or(|end| iterator as u64 <= end));
        Ok::<_, CommandError>(match chunk {
            None => Piece::End,
            Some(chunk) if may_latch && chunk.len > COPIED_AT_ONCE => Piece::Long(chunk),
            Some(chunk) => {
                let mut data = vec![0; chunk.len];
                bloom.copy_bytes(chunk.link, chunk.offset, &mut data);
                Piece::Data(data)
            }
        })
    })??;
    let iterator = iterator.unwrap_or_default();
    match piece {
        Piece::Header(header, bytes) => {
            context.session.begin_dump(name, bytes);
            Ok(piece_reply(1, header))
        }
        Piece::Data(data) => Ok(piece_reply(iterator + data.len() as i64, data)),
        Piece::End => {
            context.session.end_dump(name);
            Ok(piece_reply(0, Vec::new()))
        }
        Piece::Long(chunk) => match context.latch(name)? {
            Some(latched) => Err(Stop::Long(Box::new(LongCopy { latched, chunk, iterator, data: Vec::new() }))),
            None => Err(CommandError::NotFound.into()),
        },
    }
}

fn piece_reply(iterator: i64, data: Vec<u8>) -> Reply {
    Reply::Array(vec![Reply::Integer(iterator), Reply::Bulk(data.into())])
}

struct LongCopy {
    latched: Latched,
    chunk: Chunk,
    iterator: i64,
    data: Vec<u8>,
}

impl LongCommand for LongCopy {
    fn step(&mut self, _: &mut Context<'_>, _: Args<'_>, until: Instant) -> Step {
        const CHANGED: &str = "ERR filter changed shape during the dump, start again at 0";
        // The key may have been made anew between the look and the latch.
        let ValueRef::Bloom(bloom) = self.latched.entry().value() else {
            return Ok(Some(Reply::Error(CHANGED.into())));
        };
        if chunk_at(bloom, self.iterator) != Some(self.chunk) {
            return Ok(Some(Reply::Error(CHANGED.into())));
        }
        self.data.reserve_exact(self.chunk.len - self.data.len());
        while self.data.len() < self.chunk.len {
            let at = self.data.len();
            self.data.resize((at + COPIED_AT_ONCE).min(self.chunk.len), 0);
            bloom.copy_bytes(self.chunk.link, self.chunk.offset + at, &mut self.data[at..]);
            if self.data.len() < self.chunk.len && Instant::now() >= until {
                return Ok(None);
            }
        }
        let data = std::mem::take(&mut self.data);
        Ok(Some(piece_reply(self.iterator + data.len() as i64, data)))
    }
}

/// `BF.LOADCHUNK key iterator data`
pub(super) fn load_chunk(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let iterator = parse_integer(&args[2]).ok_or(CommandError::text("ERR Second argument must be numeric"))?;
    let (name, data, bounds, may_latch) = (&args[1], &args[3], Bounds::of(context), context.may_latch());
    // Made before the lock is taken: there may be memory for a thousand sub-filters to be had.
    let created = match context.peek(name, |entry| entry.is_none())? && iterator == 1 {
        true => Some(from_header(name, data, bounds)?),
        false => None,
    };
    let done = context.write(name, |cell| match cell.get().map(EntryRef::value) {
        None => match created {
            Some(entry) => {
                cell.insert(entry);
                cell.record(&Effect::BloomHeader { header: data });
                Ok(true)
            }
            None => Err(CommandError::NotFound),
        },
        Some(ValueRef::Bloom(bloom)) => {
            let chunk = place_chunk(bloom, iterator, data.len())?;
            if may_latch && chunk.len > COPIED_AT_ONCE {
                return Ok(false);
            }
            cell.change(|entry, record| or_in(entry, &record, chunk, 0, data));
            Ok(true)
        }
        Some(_) => Err(CommandError::WrongType),
    })??;
    if done {
        return Ok(Reply::Ok);
    }
    match context.latch(name)? {
        Some(latched) => Err(Stop::Long(Box::new(LongLoad { latched, iterator, done: 0 }))),
        None => Err(CommandError::NotFound.into()),
    }
}

/// Or a piece of a chunk into a filter: the one that begins `from` bytes behind the chunk's first.
fn or_in(entry: &mut Entry, record: &dyn Record, chunk: Chunk, from: usize, data: &[u8]) {
    if let ValueMut::Bloom(mut bloom) = entry.value_mut() {
        let offset = chunk.offset + from;
        bloom.or_bytes(chunk.link, offset, data);
        record.record(&Effect::BloomChunk { link: chunk.link as u32, offset: offset as u64, data });
    }
}

impl From<ChunkError> for CommandError {
    fn from(error: ChunkError) -> Self {
        match error {
            ChunkError::BadData => Self::BadData,
            ChunkError::NoLink => Self::text("ERR invalid offset - no link found"),
            ChunkError::TooLong => Self::text("ERR invalid chunk - Too big for current filter"),
        }
    }
}

/// The filter that a header describes.
fn from_header(name: &[u8], header: &[u8], bounds: Bounds<'_>) -> Result<Entry, CommandError> {
    let limit = bounds.settings().max_filter_memory();
    let refused = |error| match error {
        HeaderError::Limit { bytes } => CommandError::FilterTooLarge { bytes, limit },
        HeaderError::Memory(error) => error.into(),
        _ => CommandError::BadData,
    };
    let header = Header::read(header, limit).map_err(refused)?;
    bounds.check_new(header.bit_bytes())?;
    Ok(loaded_filter(name, None, header.build().map_err(refused)?)?)
}

struct LongLoad {
    latched: Latched,
    iterator: i64,
    done: usize,
}

impl LongCommand for LongLoad {
    fn step(&mut self, _: &mut Context<'_>, args: Args<'_>, until: Instant) -> Step {
        let data = &args[3];
        let ValueRef::Bloom(bloom) = self.latched.entry().value() else { return refused(&CommandError::WrongType) };
        // The key may have been made anew between the look and the latch.
        let chunk = match place_chunk(bloom, self.iterator, data.len()) {
            Ok(chunk) => chunk,
            Err(error) => return refused(&error.into()),
        };
        while self.done < chunk.len {
            let (from, to) = (self.done, (self.done + COPIED_AT_ONCE).min(chunk.len));
            self.latched.change(|entry, record| or_in(entry, record, chunk, from, &data[from..to]));
            self.done = to;
            if to < chunk.len && Instant::now() >= until {
                return Ok(None);
            }
        }
        Ok(Some(Reply::Ok))
    }
}
