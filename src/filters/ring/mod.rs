//! Rings of small Bloom arrays that forget the oldest items, by count or by clock.
//!
//! **Promise.** By count: the newest `capacity` items written are remembered, always. By clock: so is every item for the time of the
//! window. What was never written is reported as seen with at most the asked probability, however long the stream.
//!
//! **How.** A ring has up to `n` arrays, the *links*. One is written, the *active* one; it and all others are asked. A link is
//! made for `c = ceil(capacity / (n - 1))` items. The first write that finds the active link full begins a new one, and if
//! there are `n` already the oldest goes, with all that is in it; so after a write between `(n - 1) c + 1` and `n c` of the newest writes are there.
//! With a window the links are *slices* of time, of `window / (n - 1)` each, numbered from 1970 on; one counts as long as its
//! number is less than `n` below that of the present one. No timer runs: an old slice is passed over by reads and dropped by the
//! next write. An item lives between `n - 1` and `n` slices.
//!
//! **What is written.** An item goes to the active link unless that one says yes already, also if an older one does. So an
//! item that comes again is remembered anew, and a wrong yes of an old link never swallows a new item.
//!
//! **Error rate.** A yes of any link is a yes: `1 - (1 - e)^n` for links of rate `e`. For a ring of rate `E` each link is made with
//! `e = 1 - (1 - E)^(1/n)`. Five links at 0.02 take 11.5 bits an item; the same bits without that correction have a
//! rate of 0.083, not 0.016 as the article says that this follows.
//!
//! **A slice that gets more than was expected** grows by further arrays, each for twice as many items and a smaller rate, so that
//! they share the rate of the slice ([`Settings::array`]). `bounded` windows forget the oldest slice early instead.
//!
//! **Two arrays** ([`Mode::Dual`]), as the article has them: the second is begun when the first holds the share `t` of its
//! items and gets all that the first gets; when the first is full the second takes its place. Only the first is asked.
//!
//! **Lists.** While an array's items take less as a list of their 64-bit hashes than as bits, they are one. It forgets as the
//! array does, and becomes bits when it has grown: 12 items for an array of 102 bytes.
//!
//! **Forms.** [`Ring`] has allocations of its own; [`packed`] stands in one slice of bytes. Whatever changes more than the content of
//! one array is written once, for the first.
//!
//! Sources: the article on the de-duplication of news with single, dual and chained Bloom filters, corrected where its figures are
//! (`benches/seen_lists.rs` has both); time slices with epochs as in generation-stamped caches.

pub mod bits;
pub mod packed;
pub mod part;
pub mod settings;
pub mod shape;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

pub use part::{Part, Store};
pub use settings::{Mode, Settings, Window};
use shape::ShapeError;

use super::bits::AllocError;

/// An event may be so many milliseconds ahead of the server's clock.
pub const MOST_AHEAD_MS: u64 = 1000;

/// When an item is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// The time for the ring, in milliseconds since 1970.
    pub now: u64,
    /// When the item was met, which may be earlier.
    pub at: u64,
}

/// An item cannot be written at this time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TimeError {
    /// A ring by count has no clock.
    #[error("AT needs a window")]
    NoWindow,
    /// The ring's clock is that of its events.
    #[error("AT is needed by this filter's clock")]
    Needed,
    /// The slice of that time is gone.
    #[error("event is older than the window")]
    Older,
    /// More than [`MOST_AHEAD_MS`] ahead of the server's clock.
    #[error("event is in the future")]
    Future,
}

/// An item was not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InsertError {
    /// No memory.
    #[error(transparent)]
    Memory(#[from] AllocError),
    /// A slice cannot grow any more.
    #[error(transparent)]
    Shape(#[from] ShapeError),
}

/// What became of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inserted {
    /// No link knew it.
    pub unseen: bool,
    /// The ring is another than before.
    pub changed: bool,
}

/// Two rings cannot become one.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum MergeError {
    /// They were made with different settings: which, and the values of both.
    #[error("filters differ: {0} {1} and {2}")]
    Differ(&'static str, String, String),
    /// A link would hold more than it is made for.
    #[error("merged filter would hold about {items} items of {capacity}, use FORCE")]
    TooMany {
        /// So many.
        items: u64,
        /// It is made for so many.
        capacity: u64,
    },
    /// No memory.
    #[error(transparent)]
    Memory(#[from] AllocError),
}

impl Settings {
    /// When an item is written that comes now by the server's clock, or was met `at` a time, to a ring that has seen `latest`.
    ///
    /// # Errors
    /// [`TimeError`].
    pub fn event(&self, latest: u64, clock: u64, at: Option<u64>) -> Result<Event, TimeError> {
        let Mode::Window(window) = self.mode else {
            return if at.is_some() { Err(TimeError::NoWindow) } else { Ok(Event::default()) };
        };
        let now = self.reading_time(latest, clock);
        let at = match at {
            None if window.by_events => return Err(TimeError::Needed),
            Some(at) if !window.by_events && at > now.saturating_add(MOST_AHEAD_MS) => return Err(TimeError::Future),
            at => at.unwrap_or(now),
        };
        let event = Event { now: now.max(at), at };
        if self.slice_of(at) + u64::from(self.links) <= self.slice_of(event.now) {
            return Err(TimeError::Older);
        }
        Ok(event)
    }

    /// The time for whoever reads a ring that has seen `latest`.
    #[must_use]
    pub fn reading_time(&self, latest: u64, clock: u64) -> u64 {
        match self.mode {
            Mode::Window(Window { by_events: true, .. }) => latest,
            Mode::Window(_) => clock.max(latest),
            _ => 0,
        }
    }
}

/// A ring with allocations of its own. Copies share their bits until one of them changes.
#[derive(Debug)]
pub struct Ring {
    /// What it was made with.
    pub settings: Settings,
    /// Its arrays, oldest first; those of a slice stand together. For [`Mode::Dual`] the one that is asked is the first.
    pub parts: VecDeque<Part>,
    /// Rises with every change.
    pub version: u64,
    /// The greatest time that it has seen; 0 without a window.
    pub latest: u64,
    /// Until when the window is not what was promised, because of a slice that went early; without a window 1 if a link has
    /// gone.
    pub lost: u64,
    /// The save epoch that it belongs to.
    moment: AtomicU64,
}

impl Clone for Ring {
    fn clone(&self) -> Self {
        let parts = self.parts.clone();
        Self {
            parts,
            moment: AtomicU64::new(self.moment()),
            ..Self::new(self.settings, self.version).seen(self.latest, self.lost)
        }
    }
}

impl Ring {
    /// A ring that holds nothing. Versions begin at this one.
    #[must_use]
    pub fn new(settings: Settings, version: u64) -> Self {
        Self { settings, parts: VecDeque::new(), version, latest: 0, lost: 0, moment: AtomicU64::new(0) }
    }

    /// The same, which has seen this time and lost this.
    #[must_use]
    pub fn seen(mut self, latest: u64, lost: u64) -> Self {
        (self.latest, self.lost) = (latest, lost);
        self
    }

    /// The save epoch that it belongs to.
    #[must_use]
    pub fn moment(&self) -> u64 {
        self.moment.load(Ordering::Relaxed)
    }

    /// It belongs to this save epoch from now on.
    pub fn set_moment(&self, epoch: u64) {
        self.moment.store(epoch, Ordering::Relaxed);
    }

    /// Whether a part counts at this time.
    fn is_alive(&self, part: &Part, now: u64) -> bool {
        part.slice + u64::from(self.settings.links) > self.settings.slice_of(now)
    }

    /// The parts that count at this time, newest first.
    pub fn alive(&self, now: u64) -> impl Iterator<Item = &Part> {
        let asked = if matches!(self.settings.mode, Mode::Dual { .. }) { 1 } else { self.parts.len() };
        self.parts.range(..asked.min(self.parts.len())).rev().filter(move |part| self.is_alive(part, now))
    }

    /// Whether an item with this hash was written to what is remembered at this time, or looks like it.
    #[must_use]
    pub fn contains(&self, hash: u64, now: u64) -> bool {
        self.alive(now).any(|part| part.contains(hash))
    }

    /// Items written to what is remembered at this time; one that came again after its link was full counts again.
    #[must_use]
    pub fn items(&self, now: u64) -> u64 {
        self.alive(now).map(|part| part.items).sum()
    }

    /// Write an item.
    ///
    /// # Errors
    /// [`InsertError`]; the ring is as it was.
    pub fn insert(&mut self, hash: u64, event: Event) -> Result<Inserted, InsertError> {
        let unseen = !self.contains(hash, event.now);
        let changed = match self.settings.mode {
            Mode::Dual { .. } => self.insert_dual(hash, unseen)?,
            _ => self.insert_active(hash, event)?,
        };
        let moved = self.move_on(event.now, changed);
        Ok(Inserted { unseen, changed: changed || moved })
    }

    /// A write is done at this time. Whether that alone changes something: it does if time is that of the events.
    fn move_on(&mut self, now: u64, changed: bool) -> bool {
        let by_events = matches!(self.settings.mode, Mode::Window(Window { by_events: true, .. }));
        let moves = now > self.latest && (changed || by_events);
        if moves {
            self.latest = now;
        }
        if changed || moves {
            self.version += 1;
        }
        moves
    }

    fn insert_active(&mut self, hash: u64, event: Event) -> Result<bool, InsertError> {
        let slice = self.settings.slice_of(event.at);
        if self
            .parts
            .iter()
            .rev()
            .filter(|part| part.slice == slice)
            .any(|part| self.writes_to(part) && part.contains(hash))
        {
            return Ok(false);
        }
        match self.room_in(slice) {
            Some(index) => self.parts[index].insert(hash)?,
            None => {
                let mut part = self.next_part(slice)?;
                part.insert(hash)?;
                self.turn(part, event.now);
            }
        }
        Ok(true)
    }

    /// Whether this is the active link, or belongs to the slice that is written.
    fn writes_to(&self, part: &Part) -> bool {
        matches!(self.settings.mode, Mode::Window(_)) || self.parts.back().is_some_and(|last| std::ptr::eq(last, part))
    }

    /// The part to which the next item of this slice goes.
    fn room_in(&self, slice: u64) -> Option<usize> {
        let index = self.parts.iter().rposition(|part| part.slice == slice)?;
        (!self.parts[index].is_full()).then_some(index)
    }

    /// A new part for this slice.
    fn next_part(&self, slice: u64) -> Result<Part, ShapeError> {
        let grown = self.parts.iter().filter(|part| part.slice == slice).map(|part| part.growth).max();
        let growth = match grown {
            Some(growth) if self.settings.slices_grow() => growth.checked_add(1).ok_or(ShapeError::TooLarge)?,
            _ => 0,
        };
        Ok(Part::new(slice, growth, self.settings.array(growth)?))
    }

    /// Bytes of the array that the next new item of this slice needs; 0 if there is room.
    ///
    /// # Errors
    /// [`ShapeError`].
    pub fn next_bytes(&self, event: Event) -> Result<u64, ShapeError> {
        let slice = self.settings.slice_of(event.at);
        match self.room_in(slice) {
            Some(_) => Ok(0),
            None => Ok(self.next_part(slice)?.shape.bytes()),
        }
    }

    /// Put a new part where it belongs; what is too old, or too much, goes.
    fn turn(&mut self, part: Part, now: u64) {
        let present = self.settings.slice_of(now);
        let links = u64::from(self.settings.links);
        while self.parts.front().is_some_and(|oldest| oldest.slice + links <= present) {
            self.parts.pop_front();
        }
        if !self.settings.slices_grow() && self.parts.len() as u64 >= links {
            let oldest = self.parts.pop_front().map_or(0, |oldest| oldest.slice);
            let until = oldest.saturating_add(links).saturating_mul(self.settings.slice_ms());
            self.lost = self.lost.max(until.max(1));
        }
        let place = self.parts.iter().rposition(|other| other.slice <= part.slice).map_or(0, |index| index + 1);
        self.parts.insert(place, part);
    }

    fn insert_dual(&mut self, hash: u64, unseen: bool) -> Result<bool, InsertError> {
        if self.parts.is_empty() {
            self.parts.push_back(Part::new(0, 0, self.settings.array(0)?));
        }
        let known = self.parts.get(1).is_none_or(|second| second.contains(hash));
        if !unseen && known {
            return Ok(false);
        }
        // The second first: should there be no memory, the one that is asked does not know an item that would be forgotten early.
        if let Some(second) = self.parts.get_mut(1)
            && !known
        {
            second.insert(hash)?;
        }
        if unseen {
            self.parts[0].insert(hash)?;
        }
        self.begin_second()?;
        if self.parts.iter().any(Part::is_full) {
            self.switch()?;
        }
        Ok(true)
    }

    fn begin_second(&mut self) -> Result<(), ShapeError> {
        if self.parts.len() == 1 && self.parts[0].items >= self.settings.dual_begins_at() {
            self.parts.push_back(Part::new(0, 0, self.settings.array(0)?));
        }
        Ok(())
    }

    /// The second array takes the place of the first.
    fn switch(&mut self) -> Result<(), ShapeError> {
        self.parts.pop_front();
        self.lost = 1;
        if !self.parts.is_empty() {
            self.begin_second()?;
        }
        Ok(())
    }

    /// Begin a new active link now, or let the second array take its place. Without a window only.
    ///
    /// # Errors
    /// [`ShapeError`].
    pub fn rotate(&mut self) -> Result<(), ShapeError> {
        if self.parts.is_empty() {
            return Ok(());
        }
        match self.settings.mode {
            Mode::Dual { .. } => self.switch()?,
            _ => {
                let part = self.next_part(0)?;
                self.turn(part, 0);
            }
        }
        self.version += 1;
        Ok(())
    }

    /// Remember more or less: have so many links from now on. `now` is the time for the ring.
    pub fn set_links(&mut self, links: u16, now: u64) {
        // What is over must not come back when the window is made wider.
        let least = u64::from(links.min(self.settings.links));
        let present = self.settings.slice_of(now);
        self.parts.retain(|part| part.slice + least > present);
        self.settings = self.settings.with_links(links);
        self.latest = self.latest.max(now);
        if !self.settings.slices_grow() {
            let extra = self.parts.len().saturating_sub(usize::from(links));
            self.parts.drain(..extra);
            if self.settings.slice_ms() == 0 && extra > 0 {
                self.lost = 1;
            }
        }
        self.version += 1;
    }

    /// Forget everything.
    pub fn clear(&mut self) {
        self.parts.clear();
        (self.latest, self.lost) = (0, 0);
        self.version += 1;
    }

    /// Whether all that was promised is remembered at this time, or nothing was forgotten yet.
    #[must_use]
    pub fn is_guaranteed(&self, now: u64) -> bool {
        match self.settings.mode {
            Mode::Window(_) => now >= self.lost,
            _ => self.lost == 0 || self.items(now) >= self.settings.capacity,
        }
    }

    /// Links, or slices, in use at this time.
    #[must_use]
    pub fn links_in_use(&self, now: u64) -> usize {
        match self.settings.mode {
            Mode::Dual { .. } => self.parts.len(),
            Mode::Count => self.parts.len(),
            Mode::Window(Window { bounded: true, .. }) => self.alive(now).count(),
            Mode::Window(_) => {
                let (mut count, mut last) = (0, None);
                for part in self.alive(now) {
                    count += usize::from(last.replace(part.slice) != Some(part.slice));
                }
                count
            }
        }
    }

    /// Items until the next turn; with a window, milliseconds.
    #[must_use]
    pub fn next_turn(&self, now: u64) -> u64 {
        let slice_ms = self.settings.slice_ms();
        if slice_ms > 0 {
            return slice_ms - now % slice_ms;
        }
        let active = match self.settings.mode {
            Mode::Dual { .. } => self.parts.front(),
            _ => self.parts.back(),
        };
        self.settings.link_capacity().saturating_sub(active.map_or(0, |part| part.items))
    }

    /// The share of items never written that are reported as seen at this time.
    #[must_use]
    pub fn error_now(&self, now: u64) -> f64 {
        1.0 - self.alive(now).map(|part| 1.0 - part.error_now()).product::<f64>()
    }

    /// Bytes of the heap, each allocation counted as `size_class` says.
    #[must_use]
    pub fn heap_bytes(&self, size_class: fn(usize) -> usize) -> usize {
        let table = match self.parts.capacity() {
            0 => 0,
            parts => size_class(parts * size_of::<Part>()),
        };
        table + self.parts.iter().map(|part| part.heap_bytes(size_class)).sum::<usize>()
    }

    /// Take in what these rings hold at this time. With `force` a link may come to hold more than it is made for.
    ///
    /// # Errors
    /// [`MergeError`]; the ring is as it was.
    pub fn merge(&mut self, others: &[&Self], now: u64, force: bool) -> Result<(), MergeError> {
        let mut merged = self.clone();
        for other in others {
            check_alike(&merged.settings, &other.settings)?;
            match merged.settings.mode {
                Mode::Window(_) => merged.join_slices(other, now)?,
                Mode::Count => merged.join_links(other, force)?,
                Mode::Dual { .. } => merged.join_dual(other, force)?,
            }
            (merged.latest, merged.lost) = (merged.latest.max(other.latest), merged.lost.max(other.lost));
        }
        merged.version += 1;
        *self = merged;
        Ok(())
    }

    fn join_slices(&mut self, other: &Self, now: u64) -> Result<(), MergeError> {
        let (links, present) = (u64::from(self.settings.links), self.settings.slice_of(now));
        for part in other.parts.iter().filter(|part| part.slice + links > present) {
            let alike = |own: &Part| (own.slice, own.growth, own.shape) == (part.slice, part.growth, part.shape);
            let joined = match self.parts.iter().position(alike) {
                Some(index) => Some((index, self.parts[index].joined(part)?)),
                None => None,
            };
            match joined {
                Some((index, joined)) if joined.items <= joined.shape.capacity => self.parts[index] = joined,
                // What would be too much for one array stays in two.
                _ => self.turn(part.clone(), now),
            }
        }
        Ok(())
    }

    fn join_links(&mut self, other: &Self, force: bool) -> Result<(), MergeError> {
        let shift = self.parts.len().max(other.parts.len());
        for (age, part) in other.parts.iter().rev().enumerate() {
            match self.parts.len().checked_sub(age + 1) {
                Some(index) => self.parts[index] = joined_within(&self.parts[index], part, force)?,
                None => self.parts.push_front(part.clone()),
            }
        }
        debug_assert_eq!(self.parts.len(), shift);
        Ok(())
    }

    fn join_dual(&mut self, other: &Self, force: bool) -> Result<(), MergeError> {
        let (Some(own), Some(first)) = (self.parts.front(), other.parts.front()) else {
            if self.parts.is_empty() {
                self.parts = other.parts.clone();
            }
            return Ok(());
        };
        let joined = joined_within(own, first, force)?;
        // Where there is no second array yet, the first holds what the second would.
        let second = match (self.parts.get(1), other.parts.get(1)) {
            (None, None) => None,
            (mine, theirs) => Some(joined_within(mine.unwrap_or(own), theirs.unwrap_or(first), force)?),
        };
        self.parts = std::iter::once(joined).chain(second).collect();
        Ok(())
    }
}

fn joined_within(own: &Part, other: &Part, force: bool) -> Result<Part, MergeError> {
    let joined = own.joined(other)?;
    if joined.items > joined.shape.capacity && !force {
        return Err(MergeError::TooMany { items: joined.items, capacity: joined.shape.capacity });
    }
    Ok(joined)
}

/// Whether two rings can become one.
fn check_alike(one: &Settings, other: &Settings) -> Result<(), MergeError> {
    let kind = |settings: &Settings| match settings.mode {
        Mode::Count => "count",
        Mode::Window(_) => "window",
        Mode::Dual { .. } => "dual",
    };
    let clock = |settings: &Settings| match settings.mode {
        Mode::Window(Window { by_events: true, .. }) => "EVENT",
        _ => "SERVER",
    };
    let threshold = |settings: &Settings| match settings.mode {
        Mode::Dual { threshold } => threshold.to_string(),
        _ => String::new(),
    };
    let shape = |settings: &Settings| settings.array(0).map_or((0, 0), |array| (array.bits, array.hashes));
    let key = |settings: &Settings| if settings.key.is_some() { "its own" } else { "none" };
    let ((bits, hashes), (other_bits, other_hashes)) = (shape(one), shape(other));
    let figures = [
        ("mode", kind(one).to_owned(), kind(other).to_owned()),
        ("clock", clock(one).to_owned(), clock(other).to_owned()),
        ("slice", one.slice_ms().to_string(), other.slice_ms().to_string()),
        ("threshold", threshold(one), threshold(other)),
        ("links", one.links.to_string(), other.links.to_string()),
        ("capacity", one.link_capacity().to_string(), other.link_capacity().to_string()),
        ("hashes", hashes.to_string(), other_hashes.to_string()),
        ("bits", bits.to_string(), other_bits.to_string()),
    ];
    for (what, own, theirs) in figures {
        if own != theirs {
            return Err(MergeError::Differ(what, own, theirs));
        }
    }
    if one.key != other.key {
        let theirs = if one.key.is_some() && other.key.is_some() { "another" } else { key(other) };
        return Err(MergeError::Differ("key", key(one).to_owned(), theirs.to_owned()));
    }
    Ok(())
}
