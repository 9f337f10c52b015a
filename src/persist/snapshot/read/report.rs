//! What came of reading a snapshot.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::codec::bloom_value::ValueError;
use crate::codec::foreign::TypeName;
use crate::codec::rdb::Malformed;
use crate::codec::ring_value::RingError;
use crate::filters::bits::AllocError;
use crate::keyspace::effect::Profile;

/// Most losses that a report describes, and names that it gives of one; all are counted.
pub(super) const LISTED: usize = 100;
const LISTED_NAME_BYTES: usize = 4 << 10;
/// Most fields about the file that a report keeps, and bytes of one.
const AUX_FIELDS: usize = 256;
const AUX_BYTES: usize = 64 << 10;

/// How to load.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Load what is sound of a damaged file, instead of refusing it.
    pub accept_damaged: bool,
    /// Threads to use, at least one.
    pub threads: usize,
    /// Milliseconds since 1970: keys whose life is over by then are dropped, as Redis does with a snapshot. None keeps all;
    /// the lives of the keyspace must be [held](crate::keyspace::Keyspace::hold_lives) then.
    pub now: Option<u64>,
}

/// How far the reading is, for others to look at.
#[derive(Debug, Default)]
pub struct Progress {
    bytes: AtomicU64,
    done: AtomicU64,
    keys: AtomicU64,
}

impl Progress {
    /// Bytes of the file.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Bytes of them that were read.
    #[must_use]
    pub fn bytes_done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Keys loaded so far.
    #[must_use]
    pub fn keys(&self) -> u64 {
        self.keys.load(Ordering::Relaxed)
    }

    pub(super) fn begin(&self, bytes: u64) {
        self.bytes.store(bytes, Ordering::Relaxed);
        self.done.store(0, Ordering::Relaxed);
        self.keys.store(0, Ordering::Relaxed);
    }

    pub(super) fn reached(&self, offset: u64) {
        self.done.store(offset, Ordering::Relaxed);
    }

    pub(super) fn loaded(&self, keys: u64) {
        self.keys.fetch_add(keys, Ordering::Relaxed);
    }
}

/// What the file says of its checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checksum {
    /// The file has none: it is of RDB version 4 or older, or was saved without.
    #[default]
    Absent,
    /// It is right.
    Right,
    /// It is another than that of the bytes.
    Wrong,
    /// The file ends before it.
    Missing,
}

/// What was read.
#[derive(Debug, Default)]
pub struct Report {
    /// `REDIS` or `VALKEY`; empty if the file does not begin as a snapshot does.
    pub magic: &'static str,
    /// RDB version.
    pub version: u32,
    /// Keys loaded.
    pub keys: u64,
    /// Keys dropped because their life was over.
    pub expired: u64,
    /// Keys stepped over because they hold a value of another kind, by the name of their type.
    pub skipped: BTreeMap<TypeName, u64>,
    /// Fields about the file, without the block marks.
    pub aux: Vec<(Vec<u8>, Vec<u8>)>,
    /// What rings get that a command makes by itself, by the prefix of their names; only [`walk`](super::walk) tells.
    pub profiles: Vec<(Vec<u8>, Profile)>,
    /// The checksum of the whole.
    pub checksum: Checksum,
    /// Block marks whose checksum was right.
    pub blocks: u64,
    /// What damage took.
    pub dropped: Losses,
}

impl Report {
    pub(super) fn push_aux(&mut self, key: Vec<u8>, mut value: Vec<u8>) {
        if self.aux.len() < AUX_FIELDS && key.len() <= AUX_BYTES {
            value.truncate(AUX_BYTES);
            value.shrink_to_fit();
            self.aux.push((key, value));
        }
    }

    pub(super) fn push_skipped(&mut self, name: TypeName) {
        *self.skipped.entry(name).or_default() += 1;
    }
}

/// What damage took, in the order of the file.
#[derive(Debug, Default)]
pub struct Losses {
    /// The first of them.
    pub listed: Vec<Loss>,
    /// How many there were.
    pub count: u64,
}

impl Losses {
    /// Takes in what was lost elsewhere in the file.
    pub(super) fn append(&mut self, others: Losses) {
        self.count += others.count;
        self.listed.extend(others.listed);
        self.listed.sort_by_key(|loss| loss.from);
        self.listed.truncate(LISTED);
    }

    pub(super) fn push(&mut self, loss: Loss) {
        self.count += 1;
        if self.listed.len() < LISTED {
            self.listed.push(loss);
        }
    }
}

/// A name as it is listed: not all of a very long one.
pub(super) fn listed_name(name: &[u8]) -> Vec<u8> {
    name[..name.len().min(LISTED_NAME_BYTES)].to_vec()
}

/// A part of the file that was not loaded, or not as it should have been.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Its first byte.
    pub from: u64,
    /// The byte after its last.
    pub to: u64,
    /// What is wrong.
    pub reason: String,
    /// Database and name of the first keys in it, as far as they can be made out.
    pub names: Vec<(Option<u64>, Vec<u8>)>,
    /// How many keys could be made out.
    pub keys: u64,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "bytes {} to {}: {}{}", self.from, self.to, self.reason, in_brackets(self.keys))
    }
}

/// So many keys, behind a text; nothing if there are none.
pub(super) fn in_brackets(keys: u64) -> String {
    match keys {
        0 => String::new(),
        1 => " (1 key)".to_owned(),
        keys => format!(" ({keys} keys)"),
    }
}

/// The file is damaged, or no snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The byte where it shows, or the first of the block.
    pub offset: u64,
    /// The byte after the block's last, where a block is damaged.
    pub end: Option<u64>,
    /// What is wrong.
    pub reason: String,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.end {
            Some(end) => write!(f, "bytes {} to {end}: {}", self.offset, self.reason),
            None => write!(f, "offset {}: {}", self.offset, self.reason),
        }
    }
}

impl std::error::Error for Damage {}

/// A file was not loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// It cannot be read.
    #[error("offset {offset}: {error}")]
    Io {
        /// From here on.
        offset: u64,
        /// Why.
        error: io::Error,
    },
    /// There is no memory for a key.
    #[error("offset {offset}: no memory, {bytes} bytes needed")]
    Memory {
        /// The key begins about here.
        offset: u64,
        /// How much was asked for.
        bytes: u64,
    },
    /// It is damaged.
    #[error(transparent)]
    Damage(#[from] Damage),
}

/// Why the next bytes were not taken.
#[derive(Debug)]
pub(super) enum Fault {
    Io(io::Error),
    Memory(u64),
    /// The file ends inside a part.
    Short,
    /// Nothing writes this.
    Form(&'static str),
    /// A Bloom filter cannot be.
    Value(ValueError),
    /// The block with these bytes is not what its mark says.
    Block {
        from: u64,
        to: u64,
    },
    /// Another thread has failed.
    Stopped,
}

impl From<Malformed> for Fault {
    fn from(_: Malformed) -> Fault {
        Fault::Form("bytes that nothing writes here")
    }
}

impl From<ValueError> for Fault {
    fn from(error: ValueError) -> Fault {
        match error {
            ValueError::Memory(error) => error.into(),
            error => Fault::Value(error),
        }
    }
}

impl From<RingError> for Fault {
    fn from(error: RingError) -> Fault {
        ValueError::from(error).into()
    }
}

impl From<AllocError> for Fault {
    fn from(error: AllocError) -> Fault {
        Fault::Memory(error.bytes)
    }
}

impl Fault {
    /// What is wrong with the bytes; none if it is not the bytes.
    pub(super) fn reason(&self) -> Option<String> {
        Some(match self {
            Fault::Io(_) | Fault::Memory(_) | Fault::Stopped => return None,
            Fault::Short => "the file ends early".into(),
            Fault::Form(reason) => (*reason).into(),
            Fault::Value(error) => format!("a filter that cannot be: {error}"),
            Fault::Block { .. } => "the block's checksum is wrong".into(),
        })
    }

    /// The error of a file that is not to be taken with damage; the fault showed at `offset`.
    pub(super) fn into_error(self, offset: u64) -> LoadError {
        let reason = self.reason();
        match self {
            Fault::Io(error) => LoadError::Io { offset, error },
            Fault::Memory(bytes) => LoadError::Memory { offset, bytes },
            Fault::Block { from, to } => {
                Damage { offset: from, end: Some(to), reason: reason.unwrap_or_default() }.into()
            }
            _ => Damage { offset, end: None, reason: reason.unwrap_or_default() }.into(),
        }
    }
}
