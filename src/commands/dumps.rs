//! What the dumps in chunks of all families but RedisBloom's answer.

use super::error::CommandError;
use crate::codec::chunks::{Chunk, DumpError, LoadError};
use crate::resp::Reply;

impl From<DumpError> for CommandError {
    fn from(error: DumpError) -> Self {
        match error {
            DumpError::Memory(error) => error.into(),
            DumpError::Changed => Self::Text(format!("ERR {error}").into()),
        }
    }
}

impl CommandError {
    /// A chunk was not taken; `limit` is that of the bytes of a filter.
    pub(super) fn of_load(error: LoadError, limit: u64) -> Self {
        match error {
            LoadError::Memory(error) => error.into(),
            LoadError::Limit { bytes } => Self::FilterTooLarge { bytes, limit },
            LoadError::Bad => Self::BadData,
            LoadError::Offset { .. } => Self::Text(format!("ERR {error}").into()),
        }
    }
}

/// A chunk and its cursor.
pub(super) fn chunk_reply(chunk: Chunk) -> Reply {
    Reply::Array(vec![Reply::Integer(chunk.cursor as i64), Reply::Bulk(chunk.data.into())])
}
