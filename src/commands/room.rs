//! Commands that need other keys to go first.
//!
//! What a filter takes is known only with its key's lock held, and under it nothing can be evicted: that takes other locks.
//! So the command is refused with [`CommandError::NoRoomYet`], having changed nothing, and comes here. Keys are evicted in
//! steps, without a lock, and then it is tried again. An add that has some of its items in goes on with its key's latch
//! instead; its wait for room is the same.

use std::time::Instant;

use super::context::{Context, Host, Room};
use super::dispatch::{LongCommand, Step, Stop, refused};
use super::error::CommandError;
use super::table::Command;
use crate::resp::Args;

/// Others may take the room that was made. After so many tries in a row it is given up.
const TRIES: u8 = 100;

/// A wait for room.
#[derive(Default)]
pub(super) struct RoomWait {
    bytes: u64,
    tries: u8,
    hopeless: bool,
}

impl RoomWait {
    /// So many bytes are wanted; whether there is hope.
    pub(super) fn want(&mut self, bytes: u64) -> bool {
        if self.hopeless || self.tries == TRIES {
            return false;
        }
        (self.bytes, self.tries) = (bytes, self.tries + 1);
        true
    }

    /// There was room: what is wanted next is another thing.
    pub(super) fn served(&mut self) {
        self.tries = 0;
    }

    /// Evict keys until about this moment; whether it is time to try again. Without hope that is so too.
    pub(super) fn is_over(&mut self, host: &dyn Host, until: Instant) -> bool {
        if self.bytes == 0 {
            return true;
        }
        match host.make_room(self.bytes, until.saturating_duration_since(Instant::now())) {
            Room::Freeing | Room::Going => {
                // What was evicted may wait for the thread that frees it.
                std::thread::yield_now();
                return false;
            }
            Room::Made => {}
            Room::Refused => self.hopeless = true,
        }
        self.bytes = 0;
        true
    }
}

/// A command that is tried again when there is room.
pub(super) struct AfterEviction {
    command: &'static Command,
    wait: RoomWait,
    /// The command, if it takes long itself.
    begun: Option<Box<dyn LongCommand>>,
}

impl AfterEviction {
    /// The command was refused for want of so many bytes.
    pub(super) fn new(command: &'static Command, bytes: u64) -> Self {
        let mut wait = RoomWait::default();
        wait.want(bytes);
        Self { command, wait, begun: None }
    }
}

impl LongCommand for AfterEviction {
    fn step(&mut self, context: &mut Context<'_>, args: Args<'_>, until: Instant) -> Step {
        if let Some(begun) = &mut self.begun {
            return begun.step(context, args, until);
        }
        if !self.wait.is_over(context.host, until) {
            return Ok(None);
        }
        match (self.command.handler)(context, args) {
            Ok(reply) => Ok(Some(reply)),
            Err(Stop::Refused(CommandError::NoRoomYet { bytes })) if self.wait.want(bytes) => Ok(None),
            Err(Stop::Refused(error)) => refused(&error),
            Err(Stop::Busy(wait)) => Err(wait),
            Err(Stop::Long(long)) => {
                self.begun = Some(long);
                Ok(None)
            }
        }
    }
}
