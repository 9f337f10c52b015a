//! Buffers that connections of one thread share.
//!
//! A connection needs a buffer to read into, a list of requests and a buffer for replies only while it works, so the
//! thread keeps a few and lends them out. An idle connection holds none, which is what makes ten thousand of them cheap, and
//! the few are always warm in the cache.

use std::cell::RefCell;

use crate::resp::Batch;

/// Bytes that are read at a time.
pub(super) const READ_BYTES: usize = 64 << 10;
/// A buffer larger than this is not kept.
pub(super) const KEPT_BYTES: usize = 256 << 10;
/// How many sets a thread keeps.
const KEPT: usize = 16;

/// One set.
#[derive(Default)]
pub(super) struct Buffers {
    /// What was read and is not answered.
    pub(super) input: Vec<u8>,
    /// The requests found in it.
    pub(super) batch: Batch,
    /// Replies not written yet.
    pub(super) output: Vec<u8>,
}

thread_local! {
    static SPARE: RefCell<Vec<Buffers>> = const { RefCell::new(Vec::new()) };
}

impl Buffers {
    /// An empty set.
    pub(super) fn borrow() -> Self {
        SPARE.with_borrow_mut(Vec::pop).unwrap_or_default()
    }

    /// Give an empty set back.
    pub(super) fn give_back(mut self) {
        debug_assert!(self.input.is_empty() && self.output.is_empty());
        if self.input.capacity() > KEPT_BYTES {
            self.input = Vec::new();
        }
        if self.output.capacity() > KEPT_BYTES {
            self.output = Vec::new();
        }
        SPARE.with_borrow_mut(|spare| {
            if spare.len() < KEPT {
                spare.push(self);
            }
        });
    }
}
