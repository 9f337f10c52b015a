//! Random lives of rings beside an exact list with its own clock and counts, and beside the packed form of the same ring.

use std::collections::{BTreeSet, HashMap};

use fastrand::Rng;

use super::packed::{PackedRing, PackedRingMut, pack, packed_len};
use super::*;
use crate::filters::item_hash::HashKey;

/// No wrong answer comes up at this rate, so that everything must be equal.
const EXACT: f64 = 1e-13;

/// What a ring should hold: lists of items, oldest first. A slice that grows is one list.
#[derive(Clone)]
struct Model {
    settings: Settings,
    parts: Vec<(u64, Vec<u64>)>,
    latest: u64,
    /// The slices that went before the present one took their place, or that a wider window would have.
    gone: BTreeSet<u64>,
}

impl Model {
    fn new(settings: Settings) -> Self {
        Self { settings, parts: Vec::new(), latest: 0, gone: BTreeSet::new() }
    }

    fn window(&self) -> Option<Window> {
        if let Mode::Window(window) = self.settings.mode { Some(window) } else { None }
    }

    fn is_dual(&self) -> bool {
        matches!(self.settings.mode, Mode::Dual { .. })
    }

    /// The number of a time's slice, by division.
    fn slice(&self, time: u64) -> u64 {
        let others = u64::from(self.settings.links) - 1;
        self.window().map_or(0, |window| time / window.span_ms.div_ceil(others))
    }

    fn event(&self, clock: u64, at: Option<u64>) -> Result<Event, TimeError> {
        let Some(window) = self.window() else {
            return at.map_or(Ok(Event::default()), |_| Err(TimeError::NoWindow));
        };
        let event = match (window.by_events, at) {
            (true, None) => return Err(TimeError::Needed),
            (true, Some(at)) => Event { now: self.latest.max(at), at },
            (false, None) => self::at(clock.max(self.latest)),
            (false, Some(at)) if at > clock + 1000 && at > self.latest => return Err(TimeError::Future),
            (false, Some(at)) => Event { now: clock.max(self.latest).max(at), at },
        };
        let age = self.slice(event.now) - self.slice(event.at);
        if age >= self.settings.links.into() { Err(TimeError::Older) } else { Ok(event) }
    }

    fn now(&self, clock: u64) -> u64 {
        self.window().map_or(0, |window| if window.by_events { self.latest } else { clock.max(self.latest) })
    }

    fn alive(&self, now: u64) -> impl Iterator<Item = &(u64, Vec<u64>)> {
        let (present, links) = (self.slice(now), u64::from(self.settings.links));
        let asked = if self.is_dual() { 1 } else { usize::MAX };
        self.parts.iter().take(asked).filter(move |(slice, _)| present < slice + links)
    }

    fn contains(&self, item: u64, now: u64) -> bool {
        self.alive(now).any(|(_, items)| items.contains(&item))
    }

    fn insert(&mut self, item: u64, event: Event) -> Inserted {
        let unseen = !self.contains(item, event.now);
        let changed = if self.is_dual() { self.insert_dual(item) } else { self.insert_single(item, event) };
        if changed || self.window().is_some_and(|window| window.by_events && event.now > self.latest) {
            self.latest = self.latest.max(event.now);
            return Inserted { unseen, changed: true };
        }
        Inserted { unseen, changed }
    }

    fn insert_single(&mut self, item: u64, event: Event) -> bool {
        let (slice, most) = (self.slice(event.at), self.settings.link_capacity() as usize);
        let active = match self.window() {
            Some(_) => self.parts.iter().rposition(|(other, _)| *other == slice),
            None => self.parts.len().checked_sub(1),
        };
        let is_known = |(other, items): &(u64, Vec<u64>)| *other == slice && items.contains(&item);
        let known = match self.window() {
            Some(_) => self.parts.iter().any(is_known),
            None => self.parts.last().is_some_and(is_known),
        };
        let grows = self.window().is_some_and(|window| !window.bounded);
        match active {
            _ if known => return false,
            Some(index) if grows || self.parts[index].1.len() < most => self.parts[index].1.push(item),
            _ => self.turn(slice, Some(item), event.now),
        }
        true
    }

    fn turn(&mut self, slice: u64, item: Option<u64>, now: u64) {
        let place = self.parts.iter().rposition(|(other, _)| *other <= slice).map_or(0, |index| index + 1);
        self.parts.insert(place, (slice, item.into_iter().collect()));
        let (present, links) = (self.slice(now), u64::from(self.settings.links));
        let over = self.parts.iter().filter(|(slice, _)| slice + links <= present).count();
        self.drop_oldest(over);
        if self.window().is_none_or(|window| window.bounded) {
            self.drop_oldest(self.parts.len().saturating_sub(links as usize));
        }
    }

    fn drop_oldest(&mut self, count: usize) {
        self.gone.extend(self.parts.drain(..count).map(|(slice, _)| slice));
    }

    fn insert_dual(&mut self, item: u64) -> bool {
        if self.parts.is_empty() {
            self.parts.push((0, Vec::new()));
        }
        let mut changed = false;
        for (_, items) in &mut self.parts {
            let is_new = !items.contains(&item);
            items.extend(is_new.then_some(item));
            changed |= is_new;
        }
        if changed {
            self.begin_second();
            if self.parts.get(1).is_some_and(|(_, items)| items.len() as u64 >= self.settings.capacity) {
                self.drop_oldest(1);
                self.begin_second();
            }
        }
        changed
    }

    fn begin_second(&mut self) {
        let begins = self.settings.link_capacity() - self.settings.capacity;
        if self.parts.len() == 1 && self.parts[0].1.len() as u64 >= begins {
            self.parts.push((0, Vec::new()));
        }
    }

    fn rotate(&mut self) {
        match (self.is_dual(), self.parts.len()) {
            (_, 0) => {}
            (true, 1) => self.parts.push((0, Vec::new())),
            (true, _) => {
                self.drop_oldest(1);
                self.begin_second();
            }
            (false, _) => self.turn(0, None, 0),
        }
    }

    fn set_links(&mut self, links: u16, now: u64) {
        let (present, narrow) = (self.slice(now), u64::from(links.min(self.settings.links)));
        let over = self.parts.iter().filter(|(slice, _)| slice + narrow <= present).count();
        self.drop_oldest(over);
        self.settings = self.settings.with_links(links);
        self.latest = self.latest.max(now);
        if self.window().is_none_or(|window| window.bounded) {
            self.drop_oldest(self.parts.len().saturating_sub(links.into()));
        }
    }

    /// Windows that grow only.
    fn merge(&mut self, other: &Self) {
        let now = self.latest.max(other.latest);
        for (slice, items) in other.alive(now.max(self.latest)) {
            match self.parts.iter_mut().find(|(own, _)| own == slice) {
                Some((_, own)) => items.iter().for_each(|item| {
                    let is_new = !own.contains(item);
                    own.extend(is_new.then_some(*item));
                }),
                None => {
                    self.parts.push((*slice, items.clone()));
                    self.parts.sort_by_key(|(slice, _)| *slice);
                }
            }
        }
        self.latest = now;
    }

    fn links_in_use(&self, now: u64) -> usize {
        if self.is_dual() { self.parts.len() } else { self.alive(now).count() }
    }

    fn next_turn(&self, now: u64) -> u64 {
        if self.window().is_some() {
            return (now..).position(|time| self.slice(time + 1) > self.slice(now)).unwrap() as u64 + 1;
        }
        let newest = self.parts.last().map_or(0, |(_, items)| items.len() as u64);
        let second = self.is_dual() && self.parts.len() > 1;
        (if second { self.settings.capacity } else { self.settings.link_capacity() }).saturating_sub(newest)
    }

    fn is_guaranteed(&self, now: u64) -> bool {
        let items: usize = self.alive(now).map(|(_, items)| items.len()).sum();
        match self.window() {
            // A slice that is gone was to be there until the window of its last moment is over.
            Some(_) => self.gone.iter().all(|slice| self.slice(now) >= slice + u64::from(self.settings.links)),
            None => self.gone.is_empty() || items as u64 >= self.settings.capacity,
        }
    }
}

/// A ring, and the same in the packed form as long as that can have it.
struct Twin {
    ring: Ring,
    payload: Option<Vec<u8>>,
}

fn packed_with_room(ring: &Ring, random: &mut Rng) -> Option<Vec<u8>> {
    let mut payload = vec![0xa5; packed_len(ring)? + [0, 3, 8, 40][random.usize(..4)]];
    pack(ring, &mut payload);
    Some(payload)
}

impl Twin {
    fn new(ring: Ring, random: &mut Rng) -> Self {
        Self { payload: packed_with_room(&ring, random), ring }
    }

    fn insert(&mut self, hash: u64, event: Event, random: &mut Rng) -> Inserted {
        let inserted = self.ring.insert(hash, event).unwrap();
        if let Some(payload) = &mut self.payload {
            match PackedRingMut::new(payload).insert(hash, event) {
                Some(in_place) => assert_eq!(in_place, inserted),
                None => {
                    let mut ring = PackedRing::new(payload).unpack().unwrap();
                    assert_eq!(ring.insert(hash, event).unwrap(), inserted);
                    self.payload = packed_with_room(&ring, random);
                }
            }
        }
        inserted
    }

    fn change(&mut self, random: &mut Rng, change: impl Fn(&mut Ring)) {
        let mut ring = match &self.payload {
            Some(payload) => PackedRing::new(payload).unpack().unwrap(),
            None => self.ring.clone(),
        };
        change(&mut self.ring);
        change(&mut ring);
        assert_same(&ring, &self.ring);
        self.payload = packed_with_room(&ring, random);
    }

    fn check(&self, hashes: &[u64], now: u64) {
        let Some(payload) = &self.payload else { return };
        let (ring, packed) = (&self.ring, PackedRing::new(payload));
        assert_eq!((packed.settings(), packed.idle()), (ring.settings, ring.settings.idle));
        assert_eq!((packed.version(), packed.latest()), (ring.version, ring.latest));
        assert_eq!((packed.key(), packed.items(now)), (ring.settings.key.as_ref(), ring.items(now)));
        assert!(hashes.iter().all(|hash| packed.contains(*hash, now) == ring.contains(*hash, now)));
        for items in [0, 100, usize::MAX] {
            let asked = packed.asked(now, items);
            assert!(hashes.iter().all(|hash| asked.contain(*hash) == ring.contains(*hash, now)));
        }
        assert_same(&packed.unpack().unwrap(), ring);
    }
}

/// One random life.
struct Life {
    random: Rng,
    twin: Twin,
    model: Model,
    clock: u64,
    /// Items from 1 to this one were written.
    newest: u64,
    /// The ring and the model as they were once: changes since must not show.
    kept: Option<(Ring, Model)>,
    /// Counts of a merged ring are estimates.
    counts_exactly: bool,
}

impl Life {
    fn new(mode: fn(u64) -> Mode, error: f64, seed: u64) -> Self {
        let mut random = Rng::with_seed(seed);
        let span = [3, 40, 1000, 86_400_000][random.usize(..4)];
        let mode = mode(span);
        let dual = matches!(mode, Mode::Dual { .. });
        let most = [5, 60, 300][random.usize(..3)];
        let settings = Settings {
            capacity: random.u64(1..=most),
            error,
            link_error: random.bool(),
            links: if dual { 2 } else { [2, 3, 5, 12, 300][random.usize(..5)] },
            mode,
            idle: random.bool().then_some(77),
            key: random.bool().then(|| HashKey::from(random.u128(..).to_le_bytes())),
        };
        let twin = Twin::new(Ring::new(settings, random.u64(..1 << 50)), &mut random);
        let clock = [0, 1_700_000_000_000][random.usize(..2)];
        let model = Model::new(settings);
        Self { random, twin, model, clock, newest: 0, kept: None, counts_exactly: true }
    }

    fn hash(&self, item: u64) -> u64 {
        hash_item(&item.to_le_bytes(), self.model.settings.key.as_ref())
    }

    fn span(&self) -> u64 {
        self.model.window().map_or(0, |window| window.span_ms)
    }

    /// A new item, or one that comes again.
    fn next_item(&mut self) -> u64 {
        if self.newest > 0 && self.random.u8(..10) < 4 {
            let back = self.random.u64(..self.newest.min(self.model.settings.capacity * 2));
            return self.newest - back;
        }
        self.newest += 1;
        self.newest
    }

    fn next_time(&mut self) -> Option<u64> {
        let (span, base) = (self.span(), self.clock.max(self.model.latest));
        let by_events = self.model.window().is_some_and(|window| window.by_events);
        match self.random.u8(..20) {
            0..8 if by_events => Some(base + self.random.u64(..=span / 50)),
            0..12 => None,
            12..18 if span > 0 => Some(base.saturating_sub(self.random.u64(..=span + span / 2))),
            18 if span > 0 => Some(self.clock + self.random.u64(..1001)),
            19 => Some(self.clock + self.random.u64(1001..5000)),
            _ => None,
        }
    }

    fn pass_time(&mut self) {
        let span = self.span();
        match self.random.u8(..) {
            0 => self.clock += span * self.random.u64(1..4),
            1 => self.clock = self.clock.saturating_sub(self.random.u64(..=span)),
            _ => self.clock += self.random.u64(..=span / 40),
        }
    }

    /// Writes an item if its time allows it: the item and what became of it.
    fn write(&mut self) -> Option<(u64, Inserted, Event)> {
        let (item, at) = (self.next_item(), self.next_time());
        let ring = &self.twin.ring;
        let event = ring.settings.event(ring.latest, self.clock, at);
        assert_eq!(event, self.model.event(self.clock, at));
        let (event, version, hash) = (event.ok()?, ring.version, self.hash(item));
        let inserted = self.twin.insert(hash, event, &mut self.random);
        assert_eq!(self.twin.ring.version, version + u64::from(inserted.changed));
        assert!(self.twin.ring.contains(hash, event.now) || event.at < event.now);
        Some((item, inserted, event))
    }

    fn change_links(&mut self) {
        if self.model.is_dual() {
            return;
        }
        let (links, now) = (self.random.u16(2..12), self.model.now(self.clock));
        self.twin.change(&mut self.random, |ring| ring.set_links(links, now));
        self.model.set_links(links, now);
    }

    fn change_otherwise(&mut self) {
        let is_window = self.model.window().is_some();
        match self.random.u8(..10) {
            0 => {
                self.twin.change(&mut self.random, Ring::clear);
                self.model = Model::new(self.model.settings);
                (self.newest, self.counts_exactly) = (self.newest + 1, true);
            }
            1..4 if !is_window => {
                self.twin.change(&mut self.random, |ring| ring.rotate().unwrap());
                self.model.rotate();
            }
            4..7 => self.kept = Some((self.twin.ring.clone(), self.model.clone())),
            7..9 => self.go_back(),
            _ => {}
        }
    }

    /// What was kept is as it was; from now on that one goes on, and the other is taken in if that can be.
    fn go_back(&mut self) {
        let Some((kept, model)) = self.kept.take() else { return };
        let now = model.now(self.clock);
        for item in 1..=self.newest {
            assert_eq!(kept.contains(self.hash(item), now), model.contains(item, now));
        }
        let grows = kept.settings.slices_grow() && kept.settings.links == self.model.settings.links;
        let (mut ring, mut joined) = (kept, model);
        if grows {
            ring.merge(&[&self.twin.ring], now, false).unwrap();
            // The model would not hold what was over for either of the two.
            joined.merge(&self.model);
            joined.gone.extend(&self.model.gone);
            self.counts_exactly = false;
        } else {
            self.counts_exactly = true;
        }
        self.twin = Twin::new(ring, &mut self.random);
        self.model = joined;
    }

    fn check(&mut self, everything: bool) {
        let (now, ring, model) = (self.model.now(self.clock), &self.twin.ring, &self.model);
        assert_eq!(ring.settings.reading_time(ring.latest, self.clock), now);
        assert_eq!(ring.latest, model.latest);
        let least = if everything { 1 } else { self.newest.saturating_sub(30).max(1) };
        let hashes: Vec<_> = (least..=self.newest + 2).map(|item| self.hash(item)).collect();
        for (item, hash) in (least..).zip(&hashes) {
            assert_eq!(ring.contains(*hash, now), model.contains(item, now), "{item} of {}", self.newest);
        }
        if everything {
            self.twin.check(&hashes, now);
        }
        assert_eq!(ring.links_in_use(now), model.links_in_use(now));
        assert_eq!(ring.is_guaranteed(now), model.is_guaranteed(now));
        let span = self.span();
        if span < 2000 {
            assert_eq!(ring.next_turn(now), model.next_turn(now));
        }
        if self.counts_exactly {
            assert_eq!(ring.items(now), model.alive(now).map(|(_, items)| items.len() as u64).sum::<u64>());
        }
    }
}

fn live_exactly(mode: fn(u64) -> Mode) {
    for seed in 0..24 {
        let mut life = Life::new(mode, EXACT, seed);
        for step in 0..900 {
            life.pass_time();
            if let Some((item, inserted, event)) = life.write() {
                assert_eq!(life.model.insert(item, event), inserted, "seed {seed}, step {step}");
            }
            match life.random.u8(..100) {
                0 => life.change_links(),
                1..3 => life.change_otherwise(),
                _ => {}
            }
            life.check(step % 20 == 0);
        }
    }
}

#[test]
fn a_ring_by_count_equals_an_exact_list() {
    live_exactly(|_| Mode::Count);
}

#[test]
fn a_window_by_the_servers_clock_equals_an_exact_list() {
    live_exactly(|span| Mode::Window(window(span)));
}

#[test]
fn a_window_by_the_clock_of_its_events_equals_an_exact_list() {
    live_exactly(|span| Mode::Window(Window { by_events: true, ..window(span) }));
}

#[test]
fn a_bounded_window_equals_an_exact_list() {
    live_exactly(|span| Mode::Window(Window { bounded: true, ..window(span) }));
    live_exactly(|span| Mode::Window(Window { bounded: true, by_events: true, ..window(span) }));
}

#[test]
fn two_arrays_equal_an_exact_list() {
    live_exactly(|_| Mode::Dual { threshold: 0.5 });
    live_exactly(|_| Mode::Dual { threshold: 0.83 });
}

/// Rings that answer wrongly as often as they may: what is promised is there all the same, and no more is wrong.
fn live_with_errors(mode: fn(u64) -> Mode) {
    for error in [0.9, 0.3, 0.1, 0.03, 0.01] {
        let (mut wrong, mut allowed) = (0.0, 0.0);
        for seed in 0..6 {
            let mut life = Life::new(mode, error, 100 + seed);
            wrong += wrong_answers_of(&mut life);
            allowed += life.model.settings.ring_error_rate() * QUESTIONS;
        }
        let most = 1.2 * allowed + 4.0 * f64::sqrt(allowed);
        assert!(wrong <= most, "{error}: {wrong} wrong, at most {most}");
    }
}

const STEPS: u64 = 1500;
const QUESTIONS: f64 = (20 * STEPS) as f64;

/// Lives so many steps and looks for all that is promised: how many of the [`QUESTIONS`] for others had a wrong answer.
fn wrong_answers_of(life: &mut Life) -> f64 {
    // How many writes there had been when an item was written last, and the time that it was written for.
    let (mut written, mut when) = (0, HashMap::<u64, (u64, u64)>::new());
    let mut wrong = 0;
    for step in 0..STEPS {
        life.pass_time();
        if let Some((item, inserted, event)) = life.write() {
            written += u64::from(inserted.changed);
            life.model.latest = life.twin.ring.latest;
            let latest = when.get(&item).map_or(event.at, |before| before.1.max(event.at));
            when.insert(item, (written, latest));
        }
        let (ring, now) = (&life.twin.ring, life.model.now(life.clock));
        let promised = |(count, at): &(u64, u64)| match life.model.window() {
            Some(window) => now.saturating_sub(*at) <= window.span_ms && ring.is_guaranteed(now),
            None => written - count < ring.settings.capacity,
        };
        if step % 10 == 0 {
            for (item, _) in when.iter().filter(|(_, written)| promised(written)) {
                assert!(ring.contains(life.hash(*item), now), "step {step}: {item} is missing");
            }
            life.twin.check(&[], now);
        }
        wrong += (0..20).filter(|i| ring.contains(life.hash(1 << 40 | step << 8 | i), now)).count();
    }
    wrong as f64
}

#[test]
fn what_is_promised_is_there_however_often_a_ring_may_be_wrong() {
    live_with_errors(|_| Mode::Count);
    live_with_errors(|span| Mode::Window(window(span)));
    live_with_errors(|span| Mode::Window(Window { by_events: true, ..window(span) }));
    live_with_errors(|span| Mode::Window(Window { bounded: true, ..window(span) }));
    live_with_errors(|_| Mode::Dual { threshold: 0.6 });
}
