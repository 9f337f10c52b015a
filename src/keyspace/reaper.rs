//! Frees what is large off the request path.
//!
//! Giving a gigabyte back to the system, or walking the keys of a flushed database, takes longer than a request may. One
//! thread does it; it ends when its keyspace is dropped.

use std::ops::{Add, Deref, DerefMut};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread;

use super::entry::{Entry, Footprint, Kind};
use super::figures::Figures;
use super::size_class::size_class;
use super::table::Table;
use super::{dleft, ring};
use crate::filters::bits::BitArray;
use crate::filters::ring::Part;

/// Values, and what they drop at a time, of at least this many bytes are freed in the background.
const LARGE_BYTES: usize = 1 << 20;

/// What is freed by being dropped.
enum Garbage {
    Entry(Entry),
    Table(Table),
    Parts(Vec<Part>),
    Arrays(Vec<BitArray>),
    /// Nothing that was counted.
    Aside(Box<dyn Send>),
}

impl Garbage {
    fn footprint(&self) -> Footprint {
        match self {
            Self::Entry(entry) => entry.as_ref().footprint(),
            Self::Table(table) => {
                let mut sum = Footprint { heap: table.allocated_bytes(), mapped: 0 };
                table.for_each(|entry| sum = sum + entry.footprint());
                sum
            }
            Self::Parts(parts) => footprint_of(parts),
            Self::Arrays(arrays) => arrays.iter().map(footprint_of_array).fold(Footprint::default(), Add::add),
            Self::Aside(_) => Footprint::default(),
        }
    }

    fn free(self, figures: &Figures) {
        if let Self::Aside(thing) = self {
            return drop(thing);
        }
        let footprint = self.footprint();
        drop(self);
        figures.garbage.subtract(footprint);
    }
}

fn footprint_of(parts: &[Part]) -> Footprint {
    Footprint { heap: parts.iter().map(|part| part.heap_bytes(size_class)).sum(), mapped: 0 }
}

fn footprint_of_array(array: &BitArray) -> Footprint {
    let bytes = array.allocated_bytes();
    if array.is_mapped() {
        Footprint { heap: 0, mapped: bytes }
    } else {
        Footprint { heap: size_class(bytes), mapped: 0 }
    }
}

/// The way to the freeing thread. What is on the way is counted as garbage.
pub(super) struct Reaper {
    sender: Option<Sender<Garbage>>,
    figures: Arc<Figures>,
}

impl Reaper {
    /// Start the thread. Without one (the system refuses) everything is freed where it is dropped.
    pub(super) fn start(figures: &Arc<Figures>) -> Self {
        let (sender, receiver) = channel::<Garbage>();
        let theirs = figures.clone();
        let free_all = move || receiver.into_iter().for_each(|garbage| garbage.free(&theirs));
        let thread = thread::Builder::new().name("seendb-free".into()).spawn(free_all);
        Self { sender: thread.ok().map(|_| sender), figures: figures.clone() }
    }

    /// Free an entry that was counted off.
    pub(super) fn free_entry(&self, entry: Entry) {
        let footprint = entry.as_ref().footprint();
        if footprint.bytes() >= LARGE_BYTES {
            self.figures.garbage.add(footprint);
            self.send(Garbage::Entry(entry));
        }
    }

    /// A change of an entry is over: what its value dropped is freed. Its own figures are without that.
    pub(super) fn settle(&self, entry: &mut Entry) {
        match entry.as_ref().kind() {
            Some(Kind::Ring) => self.free_dropped(Garbage::Parts(ring::settle(entry))),
            Some(Kind::Dleft) => self.free_dropped(Garbage::Arrays(dleft::settle(entry))),
            _ => {}
        }
    }

    fn free_dropped(&self, dropped: Garbage) {
        let footprint = dropped.footprint();
        if footprint.bytes() >= LARGE_BYTES {
            self.figures.garbage.add(footprint);
            self.send(dropped);
        }
    }

    /// Something that the freeing thread gets when it is dropped.
    pub(super) fn aside<T: Send + 'static>(&self, value: T) -> Aside<T> {
        Aside { value: Some(value), sender: self.sender.clone() }
    }

    /// Free tables whose entries were counted as garbage.
    pub(super) fn free_tables(&self, tables: Vec<Table>) {
        tables.into_iter().for_each(|table| self.send(Garbage::Table(table)));
    }

    fn send(&self, garbage: Garbage) {
        let back = match &self.sender {
            Some(sender) => sender.send(garbage).err().map(|error| error.0),
            None => Some(garbage),
        };
        if let Some(garbage) = back {
            garbage.free(&self.figures);
        }
    }
}

/// Something large that a command has beside the keys: a copy of a ring, which may be the last that has its bits, or bytes on their
/// way. It is freed in the background.
pub struct Aside<T: Send + 'static> {
    /// There until it is taken out.
    value: Option<T>,
    sender: Option<Sender<Garbage>>,
}

impl<T: Send + 'static> Aside<T> {
    /// The thing itself, which is freed as everything else from now on.
    #[must_use]
    pub fn into_inner(mut self) -> T {
        self.value.take().expect("it is there until then")
    }
}

impl<T: Send + 'static> Deref for Aside<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.as_ref().expect("it is there until it is taken out")
    }
}

impl<T: Send + 'static> DerefMut for Aside<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.value.as_mut().expect("it is there until it is taken out")
    }
}

impl<T: Send + 'static> Drop for Aside<T> {
    fn drop(&mut self) {
        if let (Some(value), Some(sender)) = (self.value.take(), &self.sender) {
            // Without the thread it is freed here.
            let _freed = sender.send(Garbage::Aside(Box::new(value)));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::Receiver;

    use super::*;
    use crate::filters::bits::AllocError;
    use crate::filters::dleft::{self as dleft_filter, Growth};
    use crate::filters::item_hash::hash_item;
    use crate::filters::ring::bits::SharedBits;
    use crate::filters::ring::settings::{Mode, Settings, Window};
    use crate::filters::ring::{Event, Ring, Store};
    use crate::keyspace::entry::EntryRef;
    use crate::keyspace::{Keyspace, dleft, ring};

    const SPAN_MS: u64 = 1_000_000;

    /// A keyspace whose garbage stays until it is freed here.
    fn with_garbage() -> (Arc<Keyspace>, Receiver<Garbage>) {
        let (sender, receiver) = channel();
        let mut keyspace = Keyspace::default();
        keyspace.common.reaper.sender = Some(sender);
        (Arc::new(keyspace), receiver)
    }

    /// A ring of links of 3 MB, all of them there and full.
    fn full_ring(mode: Mode) -> Ring {
        let links = if matches!(mode, Mode::Dual { .. }) { 2 } else { 4 };
        let capacity = 4_000_000 * u64::from(links - 1);
        let settings = Settings { capacity, error: 0.05, link_error: true, links, mode, idle: None, key: None };
        let shape = settings.array(0).unwrap();
        let mut ring = Ring::new(settings, 1);
        for slice in 0..u64::from(links) {
            let slice = if matches!(mode, Mode::Window(_)) { slice } else { 0 };
            let mut bits = SharedBits::zeroed(shape.bits).unwrap();
            bits.or_bytes(0, &vec![0x42; bits.len() - 1]).unwrap();
            let items = if matches!(mode, Mode::Dual { .. }) { settings.capacity - 1 } else { shape.capacity };
            ring.parts.push_back(Part { items, store: Store::Bits(bits), ..Part::new(slice, 0, shape) });
        }
        ring
    }

    fn part_bytes(ring: &Ring) -> u64 {
        ring.parts[0].heap_bytes(size_class) as u64
    }

    /// Fails unless what a change of a full ring drops, so many parts, waits to be freed, and is counted so until it is.
    fn assert_retires(mode: Mode, parts: u64, change: impl Fn(&mut Entry)) {
        for latched in [false, true] {
            let (keyspace, garbage) = with_garbage();
            let full = full_ring(mode);
            let expected = parts * part_bytes(&full);
            keyspace.write(0, b"k", |cell| cell.insert(ring::entry_of(b"k", None, full).unwrap())).ok().unwrap();
            if latched {
                let mut latched = keyspace.latch(0, b"k").ok().flatten().unwrap();
                latched.change(|entry, _| change(entry));
            } else {
                keyspace.write(0, b"k", |cell| cell.change(|entry, _| change(entry))).ok().unwrap();
            }
            let held = keyspace.read(0, b"k", |entry| entry.map_or(0, EntryRef::allocated_bytes)).ok().unwrap();
            assert_eq!(keyspace.entry_bytes(), held as u64, "what went is not counted as held");
            assert_eq!(keyspace.garbage_bytes(), expected);
            garbage.try_iter().for_each(|garbage| garbage.free(&keyspace.common.figures));
            assert_eq!(keyspace.garbage_bytes(), 0);
        }
    }

    fn changed(entry: &mut Entry, work: impl FnOnce(&mut Ring)) {
        ring::change(entry, |ring| {
            work(ring);
            Ok::<_, AllocError>(())
        })
        .unwrap();
    }

    #[test]
    fn what_a_large_ring_drops_is_freed_in_the_background() {
        let insert = |entry: &mut Entry| _ = ring::insert(entry, 7, Event::default()).unwrap();
        assert_retires(Mode::Count, 1, insert);
        assert_retires(Mode::Count, 1, |entry| changed(entry, |ring| ring.rotate().unwrap()));
        assert_retires(Mode::Count, 2, |entry| changed(entry, |ring| ring.set_links(2, 0)));
        assert_retires(Mode::Count, 4, |entry| changed(entry, Ring::clear));
        assert_retires(Mode::Dual { threshold: 0.5 }, 1, insert);
        let window = Window { span_ms: SPAN_MS, bounded: true, by_events: true };
        let late = |slices: u64| {
            let now = slices * SPAN_MS.div_ceil(3);
            move |entry: &mut Entry| _ = ring::insert(entry, 7, Event { now, at: now }).unwrap()
        };
        assert_retires(Mode::Window(window), 1, late(4));
        assert_retires(Mode::Window(window), 3, late(6));
    }

    #[test]
    fn sets_of_d_left_filters_that_became_empty_are_freed_in_the_background() {
        let (keyspace, garbage) = with_garbage();
        let growth = Some(Growth { factor: 100, final_capacity: 2_000_000 });
        let (capacity, error, key) = (10_000, 0.01, None);
        let settings = dleft_filter::Settings {
            capacity,
            error,
            growth,
            subtables: 4,
            cells: 8,
            counter_bits: 2,
            spill: false,
            key,
        };
        let entry = dleft::empty_filter(b"k", None, settings, 1).unwrap();
        keyspace.write(0, b"k", |cell| cell.insert(entry)).ok().unwrap();
        let change = |work: &dyn Fn(&mut Entry)| {
            keyspace.write(0, b"k", |cell| cell.change(|entry, _| work(entry))).ok().unwrap();
            keyspace.entry_bytes()
        };
        let hash = |item: u64| hash_item(&item.to_le_bytes(), None);
        let small = change(&|entry| (0..9_000).for_each(|item| _ = dleft::insert(entry, hash(item)).unwrap()));
        let grown = change(&|entry| (9_000..20_000).for_each(|item| _ = dleft::insert(entry, hash(item)).unwrap()));
        assert!(grown > small + LARGE_BYTES as u64 && keyspace.garbage_bytes() == 0);
        let shrunk = change(&|entry| (0..20_000).for_each(|item| assert!(dleft::remove(entry, hash(item)).unwrap())));
        assert!(shrunk < small + 4_096, "{shrunk} of {small} bytes");
        assert!(keyspace.garbage_bytes() > LARGE_BYTES as u64);
        garbage.try_iter().for_each(|garbage| garbage.free(&keyspace.common.figures));
        assert_eq!(keyspace.garbage_bytes(), 0);
    }

    /// An emptied ring stands in its entry again.
    #[test]
    fn a_cleared_ring_is_small() {
        let (keyspace, _garbage) = with_garbage();
        let entry = ring::entry_of(b"k", None, full_ring(Mode::Count)).unwrap();
        keyspace.write(0, b"k", |cell| cell.insert(entry)).ok().unwrap();
        keyspace.write(0, b"k", |cell| cell.change(|entry, _| changed(entry, Ring::clear))).ok().unwrap();
        let is_packed = keyspace.read(0, b"k", |entry| entry.unwrap().packed_payload().is_some());
        assert!(is_packed.ok().unwrap() && keyspace.entry_bytes() < 100);
    }

    #[test]
    fn what_is_aside_goes_to_the_thread_unless_it_is_taken_out() {
        let (keyspace, garbage) = with_garbage();
        let mut aside = keyspace.aside(vec![1]);
        aside.push(2);
        assert_eq!(keyspace.aside(vec![3]).into_inner(), [3]);
        assert!(garbage.try_recv().is_err());
        drop(aside);
        assert!(matches!(garbage.try_recv(), Ok(Garbage::Aside(_))));
        assert_eq!(keyspace.garbage_bytes(), 0, "it was never counted");
    }
}
