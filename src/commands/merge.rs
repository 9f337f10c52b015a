//! `MERGE dst src … [FORCE]`: which keys, and how what came of them gets to its place. The families know what to make of their filters.

use super::context::Context;
use super::dispatch::Stop;
use super::error::CommandError;
use super::words::is;
use crate::filters::bits::AllocError;
use crate::keyspace::Cell;
use crate::keyspace::effect::Effect;
use crate::keyspace::entry::Entry;
use crate::keyspace::latched::LatchedKeys;
use crate::resp::Args;

/// From where filters are merged, and into which.
#[derive(Clone, Copy)]
pub(super) struct MergeOrder<'a> {
    /// The database.
    pub db: usize,
    /// The target's name, then those of the sources.
    pub names: Args<'a>,
    /// Whether the target may hold more than it is made for.
    pub force: bool,
}

impl<'a> MergeOrder<'a> {
    /// The words of a command. `FORCE` is one only as the last word, behind a source.
    pub fn of(db: usize, args: Args<'a>) -> Self {
        let force = args.len() > 3 && is(&args[args.len() - 1], "FORCE");
        Self { db, names: args.range(1, args.len() - usize::from(force)), force }
    }

    /// All keys, the target first.
    pub fn keys(self) -> impl Iterator<Item = (usize, &'a [u8])> + Clone {
        self.names.iter().map(move |name| (self.db, name))
    }

    /// The names of the sources.
    pub fn sources(self) -> impl Iterator<Item = &'a [u8]> + Clone {
        self.names.iter().skip(1)
    }

    /// Whether the target is one of them.
    pub fn is_circular(self) -> bool {
        self.sources().any(|name| *name == self.names[0])
    }

    /// All keys are taken out: nobody but who asks for them waits. None in a transaction, which has them.
    pub fn take_out(self, context: &mut Context<'_>) -> Result<Option<LatchedKeys>, Stop> {
        if context.held.is_some() {
            return Ok(None);
        }
        context.keyspace.may_take()?;
        let mut held = context.keyspace.lock(self.keys())?;
        let names = self.keys().map(|(db, name)| (db, Box::from(name))).collect();
        Ok(Some(context.keyspace.latch_keys(names, &mut held)?))
    }
}

/// Put a merged filter in its place, as the entry that `make` gives for a name and a life; the life is as it was.
///
/// # Errors
/// No memory; nothing has changed.
pub(super) fn put_merged(
    cell: &mut Cell<'_>,
    payload: &[u8],
    make: impl FnOnce(&[u8], Option<u64>) -> Result<Entry, AllocError>,
) -> Result<(), CommandError> {
    let (life, stamp) = cell.get().map_or((None, None), |entry| (entry.life(), Some(entry.stamp())));
    let entry = make(cell.name(), life)?;
    stamp.iter().for_each(|stamp| entry.as_ref().set_stamp(*stamp));
    cell.replace(entry);
    cell.record(&Effect::Restored { payload, life });
    Ok(())
}
