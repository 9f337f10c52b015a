//! All keys of a keyspace that nobody else uses, and filters as bytes for a server.

use bytes::Bytes;

use crate::codec::bloom::{self, CHUNK_BYTES, Header};
use crate::codec::cells_dump::CellsDump;
use crate::codec::cells_value::CellsRef;
use crate::codec::chunks::{Chunk, DumpError};
use crate::codec::payload;
use crate::codec::ring_dump::RingDump;
use crate::filters::BloomRef;
use crate::filters::bits::AllocError;
use crate::filters::ring::Ring;
use crate::keyspace::copies::cells_of;
use crate::keyspace::entry::{EntryRef, ValueRef};
use crate::keyspace::{DATABASES, Keyspace, SHARDS};

/// Filters of more bytes than this go in pieces.
pub const WHOLE_BYTES: u64 = CHUNK_BYTES;

/// Visits all keys with their databases. The keyspace must not be used from `visit`.
///
/// # Errors
/// The first of `visit`.
pub fn for_each_key<E>(
    keyspace: &Keyspace,
    mut visit: impl FnMut(usize, EntryRef<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let mut outcome = Ok(());
    for db in (0..DATABASES).filter(|db| !keyspace.is_empty(*db)) {
        for shard in 0..SHARDS {
            keyspace.for_each_in_shard(None, db, shard, |entry| {
                if outcome.is_ok() {
                    outcome = visit(db, entry);
                }
            });
        }
    }
    outcome
}

/// The filter that an entry holds.
pub fn filter(entry: EntryRef<'_>) -> Option<BloomRef<'_>> {
    match entry.value() {
        ValueRef::Bloom(bloom) => Some(bloom),
        _ => None,
    }
}

/// A filter as a server takes it.
pub enum Form {
    /// For RESTORE.
    Payload(Bytes),
    /// For BF.LOADCHUNK: a header, then the bits by [`pieces`].
    Pieces(Bytes),
}

/// How the filter of a key goes over, as [`form`] says for one of Bloom; none if it is not whole.
///
/// # Errors
/// [`AllocError`].
pub fn form_of(entry: EntryRef<'_>, whole_bytes: u64) -> Option<Result<Form, AllocError>> {
    match entry.value() {
        ValueRef::Bloom(bloom) => Some(form(bloom, whole_bytes)),
        ValueRef::Ring(ring) => {
            let payload = ring.to_ring().and_then(|ring| payload::dump_ring(&ring));
            Some(payload.map(|payload| Form::Payload(payload.into())))
        }
        value => cells_of(&value).map(|cells| payload::dump_cells(cells).map(|payload| Form::Payload(payload.into()))),
    }
}

/// How a filter goes over. In pieces only if it is large, and if its header says all there is to say of it.
///
/// # Errors
/// [`AllocError`].
pub fn form(filter: BloomRef<'_>, whole_bytes: u64) -> Result<Form, AllocError> {
    if filter.bit_bytes() > whole_bytes && filter.surplus() == 0 {
        let header = bloom::encode_header(filter);
        if Header::read(&header, u64::MAX).is_ok() {
            return Ok(Form::Pieces(header.into()));
        }
    }
    payload::dump(filter).map(|payload| Form::Payload(payload.into()))
}

/// Hands out the bits of a filter with the iterators that BF.LOADCHUNK wants, at most so many bytes at a time.
///
/// # Errors
/// The first of `take`.
pub fn pieces<E>(
    filter: BloomRef<'_>,
    most: u64,
    mut take: impl FnMut(i64, Vec<u8>) -> Result<(), E>,
) -> Result<(), E> {
    let mut iterator = 1;
    while let Some(chunk) = bloom::chunk_at(filter, iterator) {
        let mut data = vec![0; chunk.len.min(usize::try_from(most).unwrap_or(usize::MAX).max(1))];
        filter.copy_bytes(chunk.link, chunk.offset, &mut data);
        iterator += data.len() as i64;
        take(iterator, data)?;
    }
    Ok(())
}

/// A large filter of another family than Bloom's, for LOADCHUNK of its family.
pub enum Large<'e> {
    /// A ring.
    Ring(Ring),
    /// A counting filter, or a d-left one.
    Cells(CellsRef<'e>),
}

impl<'e> Large<'e> {
    /// What an entry holds, if that is one of more than so many bytes.
    ///
    /// # Errors
    /// [`AllocError`].
    pub fn of(entry: EntryRef<'e>, whole_bytes: u64) -> Result<Option<Large<'e>>, AllocError> {
        let large = match entry.value() {
            ValueRef::Ring(ring) => Some(Large::Ring(ring.to_ring()?)),
            value => cells_of(&value).map(Large::Cells),
        };
        Ok(large.filter(|large| large.bytes() > whole_bytes))
    }

    /// Bytes of what it holds.
    pub fn bytes(&self) -> u64 {
        match self {
            Large::Ring(ring) => ring.parts.iter().map(|part| part.shape.bytes()).sum(),
            Large::Cells(cells) => cells.head().bytes(),
        }
    }

    /// The chunk at this cursor, as SCANDUMP gives it.
    ///
    /// # Errors
    /// [`DumpError`].
    pub fn chunk(&self, cursor: u64) -> Result<Chunk, DumpError> {
        match self {
            Large::Ring(ring) => RingDump::chunk(ring, cursor),
            Large::Cells(cells) => CellsDump::chunk(*cells, cursor),
        }
    }
}
