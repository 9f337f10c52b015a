//! The append-only log on disk: a folder with a [`manifest`], a base snapshot, and [`segment`]s made of [`batch`]es.
//!
//! Bytes and files only; what the records mean is not known here, nor are there threads.
//!
//! | module | does |
//! | --- | --- |
//! | [`batch`], [`segment`], [`manifest`] | the formats |
//! | [`writer`] | appends, syncs, goes to the next segment, gives up old ones |
//! | [`reader`] | reads in order, cuts a torn tail, refuses damage |
//! | [`repair`] | says what can be saved, and cuts the log there |
//!
//! **Positions.** A position counts the bytes of records since the log began. It belongs to the records, not to files: a
//! base snapshot is made at a position, and segments whose records all lie below it can go.
//!
//! **Torn or damaged.** A power loss may leave any part of what was not synced. A batch that does not verify is such a
//! *torn tail*, and the log ends before it, unless something that verifies tells that more had been synced: a batch
//! says what was known to be synced when it was written, and a segment is begun only when all before it is synced. Then
//! records that were promised are gone, and the log is not read at all: see [`damage`].

pub mod batch;
pub mod damage;
pub mod manifest;
pub mod reader;
pub mod repair;
pub mod segment;
mod window;
pub mod writer;

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::io;

pub use damage::Damage;
pub use manifest::{Base, Manifest, ManifestError};
pub use reader::{LogEnd, LogReader};
pub use segment::SEGMENT_BYTES;
pub use writer::{LogWriter, WriteError, next_base_name, remove_unnamed_bases};

/// What one log has in all its files, and no other log has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogId(pub [u8; 16]);

impl LogId {
    /// A new one, that cannot be guessed.
    pub fn random() -> LogId {
        let half = || RandomState::new().hash_one(0_u8);
        LogId((u128::from(half()) << 64 | u128::from(half())).to_le_bytes())
    }

    fn parse(text: &str) -> Option<LogId> {
        let lower_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let number = u128::from_str_radix(text, 16).ok()?;
        (text.len() == 32 && text.bytes().all(lower_hex)).then(|| LogId(number.to_be_bytes()))
    }
}

impl fmt::Display for LogId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:032x}", u128::from_be_bytes(self.0))
    }
}

/// A log cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The system refused.
    #[error("{file}: {source}")]
    Io {
        /// The file, without its folder.
        file: String,
        /// Why.
        source: io::Error,
    },
    /// The manifest is not one.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// A file is no segment.
    #[error("{file} {what}")]
    Segment {
        /// The file, without its folder.
        file: String,
        /// What is wrong with it.
        what: String,
    },
    /// Records are gone that had been synced.
    #[error(transparent)]
    Damaged(Box<Damage>),
}

impl LogError {
    fn io(file: &str) -> impl Fn(io::Error) -> LogError {
        move |source| LogError::Io { file: file.to_owned(), source }
    }
}
