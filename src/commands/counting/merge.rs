//! `CBF.MERGE`: the sum of counters, saturating.
//!
//! The sum is made aside, so that nobody ever meets a part of it, and then put in the target's place.

use std::time::Instant;

use super::Counting;
use crate::codec::cells_value::CellsRef;
use crate::codec::payload::CellsDumpWriter;
use crate::commands::bloom::Bounds;
use crate::commands::context::Context;
use crate::commands::deletable::filter_of;
use crate::commands::dispatch::{LongCommand, Outcome, Step, Stop, refused};
use crate::commands::error::CommandError;
use crate::commands::merge::{MergeOrder, put_merged};
use crate::filters::counting::{
    CountingBloom, CountingMut, CountingRef, MOST_FIGURE, MergeError, Settings, Shape, check_alike,
};
use crate::keyspace::bloom::COPIED_AT_ONCE;
use crate::keyspace::held::Held;
use crate::keyspace::latch::Wait;
use crate::keyspace::latched::LatchedKeys;
use crate::keyspace::ring::Versions;
use crate::keyspace::{Aside, Keyspace, counting};
use crate::resp::{Args, Reply};

/// Words that are added between two looks at the clock.
const WORDS_AT_ONCE: usize = COPIED_AT_ONCE / 4 / size_of::<u64>();

impl From<MergeError> for CommandError {
    fn from(error: MergeError) -> Self {
        Self::Text(format!("ERR {error}").into())
    }
}

/// What is to be added, which fits together.
struct Plan {
    settings: Settings,
    shape: Shape,
    /// The filters that are there, by their places among the names; the target too.
    places: Vec<usize>,
    /// Bytes of all of them.
    bytes: u64,
    items: u64,
    version: u64,
    turns: u8,
}

impl Plan {
    /// None if nothing is to be added.
    fn of(
        order: MergeOrder<'_>,
        held: &mut Held<'_>,
        versions: &Versions,
    ) -> Result<Result<Option<Self>, CommandError>, Wait> {
        let mut plan: Option<Self> = None;
        for (place, (db, name)) in order.keys().enumerate() {
            let added = held.read(db, name, |entry| match (filter_of::<Counting>(entry)?, &mut plan) {
                (None, _) => Ok(()),
                (Some(filter), Some(plan)) => plan.add(place, filter),
                (Some(filter), none) => {
                    *none = Some(Self::beginning(place, filter, versions));
                    Ok(())
                }
            })?;
            if let Err(error) = added {
                return Ok(Err(error));
            }
        }
        // The target alone is as it is.
        Ok(Ok(plan.filter(|plan| plan.places.last() != Some(&0))))
    }

    /// The first filter gives the shape.
    fn beginning(place: usize, filter: CountingRef<'_>, versions: &Versions) -> Self {
        let (settings, shape, figures) = (filter.settings(), filter.shape(), filter.figures());
        let (version, turns) =
            if place == 0 { (figures.after(0).version, figures.turns + 1) } else { (versions.begin(), 0) };
        Self { settings, shape, places: vec![place], bytes: shape.bytes(), items: figures.items, version, turns }
    }

    fn add(&mut self, place: usize, filter: CountingRef<'_>) -> Result<(), CommandError> {
        check_alike(&self.settings, self.shape, &filter.settings(), filter.shape())?;
        self.places.push(place);
        self.bytes = self.bytes.saturating_add(self.shape.bytes());
        self.items = self.items.saturating_add(filter.figures().items).min(MOST_FIGURE);
        Ok(())
    }

    /// Whether the sum may be made.
    fn check(&self, order: MergeOrder<'_>, bounds: Bounds<'_>) -> Result<(), CommandError> {
        let (items, capacity) = (self.items, self.settings.capacity);
        if items > capacity && !order.force {
            return Err(MergeError::TooMany { items, capacity }.into());
        }
        let bytes = self.shape.bytes();
        bounds.check(bytes, bytes, self.bytes)
    }
}

/// A sum in the making, and then its bytes for the log.
struct Merging {
    plan: Plan,
    merged: Box<CountingBloom>,
    /// Which of the plan's filters is being added, and the word that is next.
    at: (usize, usize),
    writing: Option<(CellsDumpWriter, Vec<u8>)>,
}

impl Merging {
    fn new(plan: Plan) -> Result<Self, CommandError> {
        let merged = CountingBloom::new(plan.settings, plan.shape, plan.version)?;
        Ok(Self { plan, merged: Box::new(merged), at: (0, 0), writing: None })
    }

    /// The next step; whether that was the last.
    fn step(&mut self, order: MergeOrder<'_>, held: &mut Held<'_>) -> Result<Result<bool, CommandError>, Wait> {
        if let Some(place) = self.plan.places.get(self.at.0) {
            let (merged, next) = (&mut self.merged, self.at.1);
            let words = merged.shape().words() as usize;
            let end = words.min(next + WORDS_AT_ONCE);
            held.read(order.db, &order.names[*place], |entry| {
                if let Ok(Some(filter)) = filter_of::<Counting>(entry) {
                    CountingMut::Large(merged).merge_words(filter, next..end);
                }
            })?;
            self.at = if end == words { (self.at.0 + 1, 0) } else { (self.at.0, end) };
            return Ok(Ok(false));
        }
        Ok(self.write())
    }

    fn write(&mut self) -> Result<bool, CommandError> {
        let (writer, payload) = match &mut self.writing {
            Some(writing) => writing,
            None => {
                let Plan { items, version, turns, .. } = self.plan;
                if !CountingMut::Large(&mut self.merged).loaded(items, version, turns) {
                    return Err(CommandError::BadData);
                }
                let writer = CellsDumpWriter::new(CellsRef::Counting(CountingRef::Large(&self.merged)));
                let room = writer.room()?;
                self.writing.insert((writer, room))
            }
        };
        Ok(writer.step(CellsRef::Counting(CountingRef::Large(&self.merged)), payload, COPIED_AT_ONCE))
    }

    /// Put the sum in its place.
    fn finish(
        self,
        order: MergeOrder<'_>,
        held: &mut Held<'_>,
        keyspace: &Keyspace,
    ) -> Result<Result<(), CommandError>, Wait> {
        let Self { merged, writing, .. } = self;
        let payload = keyspace.aside(writing.map_or(Vec::new(), |(_, payload)| payload));
        held.write(order.db, &order.names[0], |cell| {
            put_merged(cell, &payload, |name, life| counting::entry_of(name, life, *merged))
        })
    }
}

/// `CBF.MERGE dst src … [FORCE]`
pub(super) fn merge(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let order = MergeOrder::of(context.session.db, args);
    if order.is_circular() {
        return Err(CommandError::text("ERR dst is among the sources").into());
    }
    let (bounds, clock, may_latch) = (Bounds::of(context), context.now(), context.may_latch());
    let keyspace = context.keyspace;
    let versions = keyspace.versions();
    let done = context.with_keys(order.keys(), |held| {
        let plan = match Plan::of(order, held, versions)? {
            Ok(Some(plan)) => plan,
            Ok(None) => return Ok(Ok(true)),
            Err(error) => return Ok(Err(error)),
        };
        if let Err(error) = plan.check(order, bounds) {
            return Ok(Err(error));
        }
        if may_latch && plan.bytes > COPIED_AT_ONCE as u64 {
            return Ok(Ok(false));
        }
        let version = plan.version;
        let mut merging = match Merging::new(plan) {
            Ok(merging) => merging,
            Err(error) => return Ok(Err(error)),
        };
        loop {
            match merging.step(order, held)? {
                Ok(true) => break,
                Ok(false) => {}
                Err(error) => return Ok(Err(error)),
            }
        }
        versions.note(version, clock);
        Ok(merging.finish(order, held, keyspace)?.map(|()| true))
    })?;
    if done? {
        return Ok(Reply::Ok);
    }
    let keys = order.take_out(context)?;
    Err(Stop::Long(Box::new(LongMerge { keys, clock, merging: None })))
}

struct LongMerge {
    /// All keys, unless they are the transaction's.
    keys: Option<LatchedKeys>,
    clock: u64,
    merging: Option<Aside<Merging>>,
}

impl LongCommand for LongMerge {
    fn step(&mut self, context: &mut Context<'_>, args: Args<'_>, until: Instant) -> Step {
        let (order, keyspace) = (MergeOrder::of(context.session.db, args), context.keyspace);
        let bounds = Bounds::of(context);
        let mut own = self.keys.as_ref().map(|keys| keys.hold_at(keyspace));
        let Some(held) = own.as_mut().or(context.held.as_mut()) else { return Ok(None) };
        if self.merging.is_none() {
            // Others may have changed the keys before they were taken out.
            let begun = match Plan::of(order, held, keyspace.versions())? {
                Ok(Some(plan)) => plan.check(order, bounds).and_then(|()| Merging::new(plan)),
                Ok(None) => return Ok(Some(Reply::Ok)),
                Err(error) => Err(error),
            };
            match begun {
                Ok(merging) => self.merging = Some(keyspace.aside(merging)),
                Err(error) => return refused(&error),
            }
        }
        let Some(merging) = &mut self.merging else { return Ok(None) };
        loop {
            match merging.step(order, held)? {
                Ok(true) => break,
                Ok(false) if Instant::now() >= until => return Ok(None),
                Ok(false) => {}
                Err(error) => return refused(&error),
            }
        }
        keyspace.versions().note(merging.plan.version, self.clock);
        match self.merging.take().map(|merging| merging.into_inner().finish(order, held, keyspace)).transpose()? {
            Some(Err(error)) => refused(&error),
            _ => Ok(Some(Reply::Ok)),
        }
    }
}
