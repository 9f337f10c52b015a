//! Bloom filters as bytes: `BF.SCANDUMP` and `BF.LOADCHUNK`.
//!
//! Large pieces are copied with the key's latch, in steps; small ones under the shard's lock.

use std::time::Instant;

use super::figures::read_existing;
use crate::codec::bloom::{
    Chunk, ChunkError, Decoded, HeaderError, chunk_at, decode_header, encode_header, place_chunk,
};
use crate::commands::context::Context;
use crate::commands::dispatch::{LongCommand, Outcome, Stop};
use crate::commands::error::CommandError;
use crate::config::Settings;
use crate::filters::packed_bloom::PackedBloom;
use crate::keyspace::entry::{Entry, Value, ValueMut, ValueRef, packed_size};
use crate::keyspace::{Latched, Place, Vacant};
use crate::resp::{Args, Reply, parse_integer};

/// More bytes than this are not copied while a shard is held.
const COPIED_AT_ONCE: usize = 256 << 10;

/// `BF.SCANDUMP key iterator`
pub(super) fn scan_dump(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let name = &args[1];
    let iterator = parse_integer(&args[2]);
    let end = context.session.dump_end(name);
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
            Some(chunk) if chunk.len > COPIED_AT_ONCE => Piece::Long(chunk),
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
        Piece::Long(chunk) => match context.keyspace.latch(context.session.db, name)? {
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
    fn step(&mut self, _: Args<'_>, until: Instant) -> Option<Reply> {
        // The key may have changed between the look and the latch; then this piece is past the end.
        let ValueRef::Bloom(bloom) = self.latched.entry_mut().value() else { return Some(piece_reply(0, Vec::new())) };
        if chunk_at(bloom, self.iterator) != Some(self.chunk) {
            return Some(piece_reply(0, Vec::new()));
        }
        self.data.reserve_exact(self.chunk.len - self.data.len());
        while self.data.len() < self.chunk.len {
            let at = self.data.len();
            self.data.resize((at + COPIED_AT_ONCE).min(self.chunk.len), 0);
            bloom.copy_bytes(self.chunk.link, self.chunk.offset + at, &mut self.data[at..]);
            if self.data.len() < self.chunk.len && Instant::now() >= until {
                return None;
            }
        }
        let data = std::mem::take(&mut self.data);
        Some(piece_reply(self.iterator + data.len() as i64, data))
    }
}

/// `BF.LOADCHUNK key iterator data`
pub(super) fn load_chunk(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let iterator = parse_integer(&args[2]).ok_or(CommandError::text("ERR Second argument must be numeric"))?;
    let (name, data, db) = (&args[1], &args[3], context.session.db);
    let done = context.keyspace.write(db, name, |place| match place {
        Place::Vacant(vacant) if iterator == 1 => {
            create_from_header(vacant, name, data, context.settings).map(|()| true)
        }
        Place::Vacant(_) => Err(CommandError::NotFound),
        Place::Occupied(mut entry) => {
            let ValueMut::Bloom(mut bloom) = entry.value_mut() else { return Err(CommandError::WrongType) };
            let chunk = place_chunk(bloom.as_ref(), iterator, data.len())?;
            if chunk.len > COPIED_AT_ONCE {
                return Ok(false);
            }
            bloom.or_bytes(chunk.link, chunk.offset, data);
            Ok(true)
        }
    })??;
    if done {
        return Ok(Reply::Ok);
    }
    match context.keyspace.latch(db, name)? {
        Some(latched) => Err(Stop::Long(Box::new(LongLoad { latched, iterator, done: 0 }))),
        None => Err(CommandError::NotFound.into()),
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

fn create_from_header(vacant: Vacant<'_>, name: &[u8], header: &[u8], settings: &Settings) -> Result<(), CommandError> {
    let limit = settings.max_filter_memory();
    let decoded = decode_header(header, limit).map_err(|error| match error {
        HeaderError::Limit { bytes } => CommandError::FilterTooLarge { bytes, limit },
        HeaderError::Memory(error) => error.into(),
        _ => CommandError::BadData,
    })?;
    let entry = match decoded {
        Decoded::Packed(payload) if packed_size(name, payload.len()).is_some() => {
            Entry::packed_bloom(name, payload.len(), |new| new.copy_from_slice(&payload))?
        }
        Decoded::Packed(payload) => {
            let chain = PackedBloom::new(&payload).to_scalable()?;
            Entry::boxed(name, Value::Bloom(chain))?
        }
        Decoded::Large(chain) => Entry::boxed(name, Value::Bloom(chain))?,
    };
    vacant.insert(entry);
    Ok(())
}

struct LongLoad {
    latched: Latched,
    iterator: i64,
    done: usize,
}

impl LongCommand for LongLoad {
    fn step(&mut self, args: Args<'_>, until: Instant) -> Option<Reply> {
        let data = &args[3];
        let refused = |error: CommandError| Some(Reply::Error(error.message()));
        let ValueMut::Bloom(mut bloom) = self.latched.entry_mut().value_mut() else {
            return refused(CommandError::WrongType);
        };
        // The key may have been made anew between the look and the latch.
        let chunk = match place_chunk(bloom.as_ref(), self.iterator, data.len()) {
            Ok(chunk) => chunk,
            Err(error) => return refused(error.into()),
        };
        while self.done < chunk.len {
            let piece = &data[self.done..(self.done + COPIED_AT_ONCE).min(chunk.len)];
            bloom.or_bytes(chunk.link, chunk.offset + self.done, piece);
            self.done += piece.len();
            if self.done < chunk.len && Instant::now() >= until {
                return None;
            }
        }
        Some(Reply::Ok)
    }
}
