//! A place where a log cannot be read on, and what follows from it.
//!
//! Let `P` be the position up to which all is well, or that of the base's cut if that is higher: what lies below is not
//! lost. Behind the place, in its segment and in all later ones, everything that verifies is looked at. `K` is the highest
//! position that it says was synced; segments' first positions count too.
//!
//! * `K > P`: records are gone that had been synced, and no power loss can have done it. The log is not read.
//! * otherwise: a torn tail. The log ends at `P`. Batches behind it that verify are cut as well, since those before them
//!   are missing.
//! * The file of a segment, or its header, is not in order: these were synced before the manifest named them. The log is
//!   not read.

use std::fmt;

/// A place where a log cannot be read on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The segment's place in the manifest.
    pub segment: usize,
    /// Its file.
    pub file: String,
    /// Offset in the file.
    pub offset: u64,
    /// The last segment before that was read, as its place in the manifest, and the offset where its batches end. None was
    /// read if the base has all that is in them.
    pub previous_end: Option<(usize, u64)>,
    /// Position in the log: all records below it are there, or in the base.
    pub position: u64,
    /// What is wrong there.
    pub kind: Kind,
    /// The highest position that is known to have been synced.
    pub known_synced: u64,
    /// Bytes in the files from there on, without zeros at their ends.
    pub bytes: u64,
    /// Batches among them that verify.
    pub valid_batches: u64,
    /// Bytes of records in these.
    pub valid_bytes: u64,
}

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The segment's file is not there.
    Missing,
    /// Its header is not that of the segment; how.
    Header(&'static str),
    /// There is no batch that verifies and continues the log.
    Batch,
}

impl Damage {
    /// Whether a power loss can have left this: nothing is lost that had been synced.
    pub fn is_torn_tail(&self) -> bool {
        self.kind == Kind::Batch && self.known_synced <= self.position
    }
}

impl std::error::Error for Damage {}

impl fmt::Display for Damage {
    fn fmt(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Damage { file, offset, position, .. } = self;
        let (batches, bytes) = (self.valid_batches, self.valid_bytes);
        if self.is_torn_tail() {
            write!(text, "{file}: torn tail at offset {offset} (log position {position}): {} bytes", self.bytes)?;
            if batches > 0 {
                write!(text, ", among them {batches} valid batches with {bytes} bytes of records behind a gap")?;
            }
            return Ok(());
        }
        match self.kind {
            Kind::Missing => write!(text, "{file}: the file is not there")?,
            Kind::Header(what) => write!(text, "{file}: the file {what}")?,
            Kind::Batch => write!(text, "{file}: damage at offset {offset}")?,
        }
        write!(text, " (log position {position}); records up to position {} had been synced; ", self.known_synced)?;
        write!(text, "behind it are {batches} valid batches with {bytes} bytes of records")
    }
}
