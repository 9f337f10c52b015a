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
//! items and gets all that the first gets; when the second has the promised number it takes the place of the first, which is full
//! then. Only the first is asked. An item that comes again may be new to the second; so the second is never behind what the first
//! lacks to be full, and the first never gets more than it is made for.
//!
//! **Lists.** While an array's items take less as a list of their 64-bit hashes than as bits, they are one. It forgets as the
//! array does, and becomes bits when it has grown: 12 items for an array of 102 bytes.
//!
//! **Forms.** [`Ring`] has allocations of its own; [`packed`] stands in one slice of bytes. Whatever changes more than the content of
//! one array is written once, for the first.
//!
//! Sources: the article on the de-duplication of news with single, dual and chained Bloom filters, corrected where its figures are
//! (`benches/seen_lists.rs` has both); time slices with epochs as in generation-stamped caches.

pub mod asked;
pub mod bits;
mod merge;
pub mod packed;
pub mod part;
pub mod settings;
pub mod shape;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

pub use merge::{Merge, MergeError};
pub use part::{Part, Store};
pub use settings::{Mode, Settings, Window};
use shape::ShapeError;

use super::bits::AllocError;

/// An event may be so many milliseconds ahead of the server's clock.
pub const MOST_AHEAD_MS: u64 = 1000;

/// Arrays of a ring whose slices grow, whatever their number. The other rings have one a link.
pub const MOST_PARTS: usize = 64 << 10;

/// Smaller arrays are freed where they go.
const RETIRED_BYTES: u64 = 64 << 10;

/// The greatest version: a signed integer. It stays there.
pub const MOST_VERSION: u64 = i64::MAX as u64;

/// A version after so many changes.
fn raised(version: u64, changes: u64) -> u64 {
    version.saturating_add(changes).min(MOST_VERSION)
}

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

/// What a write takes that begins another array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    /// Bytes of all arrays then; what goes for the new one is not among them.
    pub total: u64,
    /// Bytes of the new one.
    pub more: u64,
}

/// What became of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inserted {
    /// No link knew it.
    pub unseen: bool,
    /// The ring is another than before.
    pub changed: bool,
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
            // From the clock, not from what events have made of it: else they push it ahead without end.
            Some(at) if !window.by_events && at > clock.saturating_add(MOST_AHEAD_MS).max(latest) => {
                return Err(TimeError::Future);
            }
            at => at.unwrap_or(now),
        };
        let event = Event { now: now.max(at), at };
        if !self.is_alive(self.slice_of(at), event.now) {
            return Err(TimeError::Older);
        }
        Ok(event)
    }

    /// Whether a slice counts at this time; without a window all do.
    fn is_alive(&self, slice: u64, now: u64) -> bool {
        slice.saturating_add(self.links.into()) > self.slice_of(now)
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
    /// Until when something was promised that has gone: for a window that turns by its clock a time that is over, unless the window
    /// became wider since. Without a window 1 if a link has gone.
    pub lost: u64,
    /// Arrays that went and take long to free. Whoever owns the ring takes them.
    retired: Vec<Part>,
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
        let (parts, retired, moment) = Default::default();
        Self { settings, parts, version, latest: 0, lost: 0, retired, moment }
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

    /// Arrays that went since this was asked last, which take long to free.
    #[must_use]
    pub fn take_retired(&mut self) -> Vec<Part> {
        std::mem::take(&mut self.retired)
    }

    /// How many parts are over at this time; they are the oldest.
    fn count_over(&self, now: u64) -> usize {
        self.parts.partition_point(|part| !self.settings.is_alive(part.slice, now))
    }

    /// Which of the parts count at this time.
    #[must_use]
    pub fn alive_range(&self, now: u64) -> Range<usize> {
        let asked = if matches!(self.settings.mode, Mode::Dual { .. }) { 1 } else { usize::MAX };
        self.count_over(now)..self.parts.len().min(asked)
    }

    /// The parts that count at this time, newest first.
    pub fn alive(&self, now: u64) -> impl Iterator<Item = &Part> {
        self.parts.range(self.alive_range(now)).rev()
    }

    /// Whether an item with this hash was written to what is remembered at this time, or looks like it.
    #[must_use]
    pub fn contains(&self, hash: u64, now: u64) -> bool {
        self.alive(now).any(|part| part.contains(hash))
    }

    fn active_items(&self) -> u64 {
        self.parts.back().map_or(0, |part| part.items)
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
        let moves = now > self.latest && (changed || self.settings.is_by_events());
        if moves {
            self.latest = now;
        }
        if changed || moves {
            self.version = raised(self.version, 1);
        }
        moves
    }

    /// The time of the events went on, though nothing was written. Tells whether the ring is another than before.
    pub fn advance(&mut self, now: u64) -> bool {
        self.move_on(now, false)
    }

    fn insert_active(&mut self, hash: u64, event: Event) -> Result<bool, InsertError> {
        let slice = self.settings.slice_of(event.at);
        if self.is_written(hash, slice) {
            return Ok(false);
        }
        match self.room_in(slice) {
            Some(index) => self.parts[index].insert(hash)?,
            None => {
                if self.settings.slices_grow() && self.parts.len() - self.count_over(event.now) >= MOST_PARTS {
                    return Err(ShapeError::TooLarge.into());
                }
                let mut part = self.next_part(slice)?;
                part.insert(hash)?;
                self.turn(part, event.now);
            }
        }
        Ok(true)
    }

    /// Whether the active link, or this slice, says yes already.
    fn is_written(&self, hash: u64, slice: u64) -> bool {
        let mut written = self.parts.iter().rev().filter(|part| part.slice == slice);
        written.any(|part| self.writes_to(part) && part.contains(hash))
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

    /// What writing an item takes, if it takes another array.
    ///
    /// # Errors
    /// [`ShapeError`].
    pub fn need(&self, hash: u64, event: Event) -> Result<Option<Need>, ShapeError> {
        let need = match self.settings.mode {
            Mode::Dual { .. } => self.need_of_two(hash)?,
            _ => {
                let slice = self.settings.slice_of(event.at);
                if self.is_written(hash, slice) || self.room_in(slice).is_some() {
                    return Ok(None);
                }
                let over = self.count_over(event.now);
                let most = if self.settings.slices_grow() { usize::MAX } else { self.settings.links.into() };
                Some((self.next_part(slice)?.shape.bytes(), over.max((self.parts.len() + 1).saturating_sub(most))))
            }
        };
        Ok(need.map(|(more, gone)| {
            let stays: u64 = self.parts.iter().skip(gone).map(|part| part.shape.bytes()).sum();
            Need { total: stays.saturating_add(more), more }
        }))
    }

    /// Bytes of the array that the next item of two arrays begins, and how many go for it.
    fn need_of_two(&self, hash: u64) -> Result<Option<(u64, usize)>, ShapeError> {
        let is_in = |part: Option<&Part>| part.is_some_and(|part| part.contains(hash));
        let gone = match (self.parts.front(), self.parts.get(1)) {
            (None, _) => 0,
            (first, None) if is_in(first) => return Ok(None),
            (first, second) if is_in(first) && is_in(second) => return Ok(None),
            (Some(first), None) if first.items + 1 >= self.settings.dual_begins_at() => 0,
            (_, Some(second)) if second.items + 1 >= self.settings.capacity => 1,
            _ => return Ok(None),
        };
        Ok(Some((self.settings.array(0)?.bytes(), gone)))
    }

    /// Put a new part where it belongs; what is too old, or too much, goes.
    fn turn(&mut self, part: Part, now: u64) {
        let age = |part: &Part| (part.slice, part.growth);
        let place = self.parts.iter().rposition(|other| age(other) <= age(&part)).map_or(0, |index| index + 1);
        self.parts.insert(place, part);
        let over = self.count_over(now);
        // A late one can be the oldest itself: younger items do not go for it.
        let many = !self.settings.slices_grow() && self.parts.len() - over > usize::from(self.settings.links);
        self.forget(over + usize::from(many));
    }

    /// The oldest parts go.
    fn forget(&mut self, count: usize) {
        let Some(newest) = count.checked_sub(1).and_then(|index| self.parts.get(index)) else { return };
        let end = newest.slice.saturating_add(self.settings.links.into()).saturating_mul(self.settings.slice_ms());
        self.lost = self.lost.max(end).max(1);
        for _ in 0..count {
            self.parts.pop_front().into_iter().for_each(|part| self.retire(part));
        }
    }

    fn retire(&mut self, part: Part) {
        if part.shape.bytes() >= RETIRED_BYTES {
            self.retired.push(part);
        }
    }

    fn insert_dual(&mut self, hash: u64, unseen: bool) -> Result<bool, InsertError> {
        if self.parts.is_empty() {
            self.parts.push_back(Part::new(0, 0, self.settings.array(0)?));
        }
        let known = self.parts.get(1).is_none_or(|second| second.contains(hash));
        if !unseen && known {
            return Ok(false);
        }
        let writes = [unseen, !known];
        let written = || (0..).zip(writes).filter(|(_, writes)| *writes).map(|(index, _)| index);
        written().try_for_each(|index: usize| self.parts[index].reserve(hash))?;
        written().try_for_each(|index: usize| self.parts[index].insert(hash))?;
        self.begin_second()?;
        // Then the second has all that is promised. The first is full now, or nearly: items that came again are new to the second
        // only, so that it may have as many before the first is.
        if self.parts.get(1).is_some_and(|second| second.items >= self.settings.capacity) {
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
        self.forget(1);
        self.begin_second()
    }

    /// Begin a new active link now; of two arrays the second one, or let it take its place. Without a window only.
    ///
    /// # Errors
    /// [`ShapeError`].
    pub fn rotate(&mut self) -> Result<(), ShapeError> {
        if self.parts.is_empty() {
            return Ok(());
        }
        match self.settings.mode {
            Mode::Dual { .. } if self.parts.len() == 1 => {
                let second = self.next_part(0)?;
                self.parts.push_back(second);
            }
            Mode::Dual { .. } => self.switch()?,
            _ => {
                let part = self.next_part(0)?;
                self.turn(part, 0);
            }
        }
        self.version = raised(self.version, 1);
        Ok(())
    }

    /// Remember more or less: have so many links from now on. `now` is the time for the ring. Links that are there keep their
    /// size; so the error rate of a ring that has more links is above its own until those have gone.
    pub fn set_links(&mut self, links: u16, now: u64) {
        // What is over must not come back when the window is made wider.
        let (narrow, present) = (u64::from(links.min(self.settings.links)), self.settings.slice_of(now));
        let over = self.parts.iter().take_while(|part| part.slice.saturating_add(narrow) <= present).count();
        let slice_ms = self.settings.slice_ms();
        // What has gone was promised for longer, or shorter, than it is now.
        if self.lost > 0 && slice_ms > 0 {
            let before = u64::from(self.settings.links) * slice_ms;
            self.lost = self.lost.saturating_add(u64::from(links) * slice_ms).saturating_sub(before);
        }
        self.settings = self.settings.with_links(links);
        self.latest = self.latest.max(now);
        let most = if self.settings.slices_grow() { usize::MAX } else { links.into() };
        let extra = self.parts.len().saturating_sub(most);
        self.forget(over.max(extra));
        self.version = raised(self.version, 1);
    }

    /// Forget everything.
    pub fn clear(&mut self) {
        self.retired.extend(std::mem::take(&mut self.parts));
        (self.latest, self.lost) = (0, 0);
        self.version = raised(self.version, 1);
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

    /// Items until the next turn, if none of them comes again; with a window, milliseconds.
    #[must_use]
    pub fn next_turn(&self, now: u64) -> u64 {
        let slice_ms = self.settings.slice_ms();
        if slice_ms > 0 {
            return slice_ms - now % slice_ms;
        }
        let most = match self.settings.mode {
            Mode::Dual { .. } if self.parts.len() > 1 => self.settings.capacity,
            _ => self.settings.link_capacity(),
        };
        most.saturating_sub(self.parts.back().map_or(0, |part| part.items))
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
}
