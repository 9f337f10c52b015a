//! What a ring says of itself: `CHAIN.CARD`, `CHAIN.INFO`, `CHAIN.STATS`.

use std::ops::Range;
use std::time::Instant;

use super::not_a_ring;
use crate::commands::context::Context;
use crate::commands::dispatch::{LongCommand, Outcome, Step, Stop};
use crate::commands::error::CommandError;
use crate::commands::figures::{integer, pairs};
use crate::filters::ring::{Mode, Part, Ring, Store, Window};
use crate::keyspace::Aside;
use crate::keyspace::entry::{EntryRef, RingRef, ValueRef};
use crate::resp::{Args, Reply};

/// Of more parts the figures are told in steps.
const PARTS_AT_ONCE: usize = 256;

/// Look at a ring that must be there, and at the bytes that its key holds.
pub(super) fn read_existing<R>(
    context: &mut Context<'_>,
    name: &[u8],
    look: impl FnOnce(RingRef<'_>, usize) -> R,
) -> Result<R, Stop> {
    context.read(name, |entry| match entry.map(|entry| (entry, entry.value())) {
        Some((entry, ValueRef::Ring(ring))) => Ok(look(ring, entry.allocated_bytes())),
        Some((_, other)) => Err(not_a_ring(&other).into()),
        None => Err(CommandError::NotFound.into()),
    })?
}

/// `CHAIN.CARD key`
pub(super) fn card(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (clock, missing_is_error) = (context.now(), context.settings.filter_missing_is_error());
    context.read(&args[1], |entry| match entry.map(EntryRef::value) {
        Some(ValueRef::Ring(ring)) => Ok(Reply::Integer(ring.items(ring.reading_time(clock)) as i64)),
        Some(other) => Err(not_a_ring(&other).into()),
        None if missing_is_error => Err(CommandError::NotFound.into()),
        None => Ok(Reply::Integer(0)),
    })?
}

/// `CHAIN.INFO key`
pub(super) fn info(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let clock = context.now();
    read_existing(context, &args[1], |ring, bytes| match ring {
        RingRef::Large(ring) => Ok(info_of(ring, bytes, clock)),
        packed => Ok(info_of(&packed.to_ring().map_err(CommandError::from)?, bytes, clock)),
    })?
}

fn info_of(ring: &Ring, bytes: usize, clock: u64) -> Reply {
    let (settings, now) = (ring.settings, ring.settings.reading_time(ring.latest, clock));
    let window = match settings.mode {
        Mode::Window(window) => integer(window.span_ms),
        _ => Reply::Null,
    };
    pairs([
        ("Capacity", integer(settings.capacity)),
        ("Window", window),
        ("Size", integer(bytes as u64)),
        ("Number of links", Reply::Integer(i64::from(settings.links))),
        ("Links in use", Reply::Integer(ring.links_in_use(now) as i64)),
        ("Number of items inserted", integer(ring.items(now))),
        ("Error rate", Reply::Double(settings.ring_error_rate())),
        ("Next turn", integer(ring.next_turn(now))),
        ("Guaranteed", Reply::Bool(ring.is_guaranteed(now))),
    ])
}

/// `CHAIN.STATS key`
pub(super) fn stats(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let clock = context.now();
    let (ring, bytes) = read_existing(context, &args[1], |ring, bytes| (ring.to_ring(), bytes))?;
    let ring = ring.map_err(CommandError::from)?;
    let now = ring.settings.reading_time(ring.latest, clock);
    let left = ring.alive_range(now);
    let mut telling = Telling { ring, bytes, now, left, links: Vec::new(), right: 1.0 };
    if telling.left.len() > PARTS_AT_ONCE && context.may_latch() {
        return Err(Stop::Long(Box::new(context.keyspace.aside(telling))));
    }
    while !telling.tell_next() {}
    Ok(telling.reply())
}

/// The statistics of a ring in the making. Bits are shared with the key's ring, which may go on.
struct Telling {
    ring: Ring,
    bytes: usize,
    now: u64,
    /// The parts that count and are still to come; the last one comes next.
    left: Range<usize>,
    links: Vec<Reply>,
    /// How often all links so far are right about what they do not hold.
    right: f64,
}

impl Telling {
    /// Tell of the next parts; whether these were the last.
    fn tell_next(&mut self) -> bool {
        for _ in 0..PARTS_AT_ONCE.min(self.left.len()) {
            self.left.end -= 1;
            let part = &self.ring.parts[self.left.end];
            let error_now = part.error_now();
            self.links.push(self.link(part, error_now));
            self.right *= 1.0 - error_now;
        }
        self.left.is_empty()
    }

    fn link(&self, part: &Part, error_now: f64) -> Reply {
        let slice_ms = self.ring.settings.slice_ms();
        let moment = |slice: u64| if slice_ms == 0 { Reply::Null } else { integer(slice.saturating_mul(slice_ms)) };
        pairs([
            ("items", integer(part.items)),
            ("capacity", integer(part.shape.capacity)),
            ("bits", integer(part.shape.bits)),
            ("hashes", Reply::Integer(i64::from(part.shape.hashes))),
            ("fill", Reply::Double(part.fill())),
            ("error-now", Reply::Double(error_now)),
            ("begins", moment(part.slice)),
            ("ends", moment(part.slice + 1)),
        ])
    }

    fn reply(&mut self) -> Reply {
        let settings = &self.ring.settings;
        let (mode, clock) = match settings.mode {
            Mode::Count => ("count", Reply::Null),
            Mode::Dual { .. } => ("dual", Reply::Null),
            Mode::Window(Window { by_events, .. }) => {
                ("window", Reply::text(if by_events { "event" } else { "server" }))
            }
        };
        let listed = self.ring.alive(self.now).filter(|part| matches!(part.store, Store::List(_)));
        let listed = listed.fold(None, |sum, part| Some(sum.unwrap_or(0) + part.items));
        pairs([
            ("mode", Reply::text(mode)),
            ("link-capacity", integer(settings.link_capacity())),
            ("link-error", Reply::Double(settings.link_error_rate())),
            ("slice-ms", if settings.slice_ms() == 0 { Reply::Null } else { integer(settings.slice_ms()) }),
            ("clock", clock),
            ("idle", settings.idle.map_or(Reply::Null, |idle| Reply::Integer(i64::from(idle)))),
            ("error-now", Reply::Double(1.0 - self.right)),
            ("exact-items", listed.map_or(Reply::Null, integer)),
            ("links", Reply::Array(std::mem::take(&mut self.links))),
            ("keyed", Reply::Bool(settings.key.is_some())),
            ("bytes", integer(self.bytes as u64)),
            ("version", integer(self.ring.version)),
        ])
    }
}

impl LongCommand for Aside<Telling> {
    fn step(&mut self, _: &mut Context<'_>, _: Args<'_>, until: Instant) -> Step {
        while !self.tell_next() {
            if Instant::now() >= until {
                return Ok(None);
            }
        }
        Ok(Some(self.reply()))
    }
}
