//! What the machine offers when the server starts; some defaults follow from it.

use std::path::PathBuf;

use super::memory;

/// The machine as seen at start. Given to [`Settings`](super::Settings) as a value, so that tests choose their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Environment {
    /// Processor cores that this process may use.
    pub cores: usize,
    /// Bytes of memory that this process may still take, limits of its control group included; `None` if unknown.
    pub memory: Option<u64>,
    /// Bytes of memory that this process may have in all; `None` if unknown.
    pub memory_limit: Option<u64>,
    /// The current folder; relative folders start here.
    pub folder: PathBuf,
}

impl Environment {
    /// Asks the operating system. What cannot be found out is replaced by the cautious answer: one core, memory
    /// unknown, folder `/`.
    pub fn detect() -> Self {
        Self {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory: memory::available(),
            memory_limit: memory::limit(),
            folder: std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/")),
        }
    }
}
