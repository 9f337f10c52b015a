//! A command that needs other keys to go first.
//!
//! What a filter takes is known only with its key's lock held, and under it nothing can be evicted: that takes other locks.
//! So the command is refused with [`CommandError::NoRoomYet`], having changed nothing, and comes here. Keys are evicted in
//! steps, without a lock, and then it is tried again.

use std::time::Instant;

use super::context::{Context, Room};
use super::dispatch::{LongCommand, Stop};
use super::error::CommandError;
use super::table::Command;
use crate::resp::{Args, Reply};

/// Others may take the room that was made. After so many tries the command is refused.
pub const TRIES: u8 = 100;

/// A command for which room is made.
pub(super) struct AfterEviction {
    command: &'static Command,
    bytes: u64,
    tries: u8,
    /// The command, if it takes long itself.
    begun: Option<Box<dyn LongCommand>>,
}

impl AfterEviction {
    /// The command was refused for want of so many bytes.
    pub(super) fn new(command: &'static Command, bytes: u64) -> Self {
        Self { command, bytes, tries: TRIES, begun: None }
    }

    fn run(&mut self, context: &mut Context<'_>, args: Args<'_>) -> Option<Reply> {
        match (self.command.handler)(context, args) {
            Ok(reply) => Some(reply),
            Err(Stop::Refused(CommandError::NoRoomYet { bytes })) if self.tries > 0 => {
                (self.bytes, self.tries) = (bytes, self.tries - 1);
                None
            }
            Err(Stop::Refused(error)) => Some(Reply::Error(error.message())),
            // Later, perhaps after making room again.
            Err(Stop::Busy(_)) => None,
            Err(Stop::Long(long)) => {
                self.begun = Some(long);
                None
            }
        }
    }
}

impl LongCommand for AfterEviction {
    fn step(&mut self, context: &mut Context<'_>, args: Args<'_>, until: Instant) -> Option<Reply> {
        if let Some(begun) = &mut self.begun {
            return begun.step(context, args, until);
        }
        match context.host.make_room(self.bytes, until.saturating_duration_since(Instant::now())) {
            Room::Made => self.run(context, args),
            Room::Going => {
                // What was evicted may wait for the thread that frees it.
                std::thread::yield_now();
                None
            }
            Room::Refused => Some(Reply::Error(CommandError::OutOfMemory.message())),
        }
    }
}
