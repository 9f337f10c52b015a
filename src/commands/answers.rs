//! What a command answers that does the same with each of its items.

use smallvec::SmallVec;

use super::error::CommandError;
use crate::resp::Reply;

/// Of each item yes, no, or why not. Errors are rare: until the first one the others are kept as booleans.
#[derive(Default)]
pub(super) struct Answers {
    bools: SmallVec<[bool; 32]>,
    with_errors: Option<Vec<Reply>>,
}

impl Answers {
    /// How many items have one.
    pub fn len(&self) -> usize {
        self.with_errors.as_ref().map_or(self.bools.len(), Vec::len)
    }

    /// That of the next item.
    pub fn push(&mut self, answer: bool) {
        match &mut self.with_errors {
            Some(replies) => replies.push(Reply::Bool(answer)),
            None => self.bools.push(answer),
        }
    }

    /// The next item was refused.
    pub fn push_error(&mut self, error: &CommandError) {
        let bools = &mut self.bools;
        let replies = self.with_errors.get_or_insert_with(|| bools.drain(..).map(Reply::Bool).collect());
        replies.push(Reply::Error(error.message()));
    }

    /// The reply; nothing is left.
    pub fn take(&mut self) -> Reply {
        match self.with_errors.take() {
            None => Reply::Bools(std::mem::take(&mut self.bools)),
            Some(replies) => Reply::Array(replies),
        }
    }

    /// The reply of a command with one item and one answer; nothing is left.
    pub fn take_one(&mut self) -> Reply {
        match self.with_errors.take() {
            None => Reply::Bool(std::mem::take(&mut self.bools).first().copied().unwrap_or_default()),
            Some(mut replies) => replies.pop().unwrap_or(Reply::Null),
        }
    }
}
