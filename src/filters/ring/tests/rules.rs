//! The rules of rings one by one, among them each that was broken once.

use super::*;

const BOUNDED: Window = Window { span_ms: 400, bounded: true, by_events: false };
const DUAL: Mode = Mode::Dual { threshold: 0.6 };
/// More bits than the address space has bytes: no such array can be had.
const TOO_MANY: u64 = 1 << 59;

fn holds(ring: &Ring, items: impl IntoIterator<Item = u64>, now: u64) -> bool {
    items.into_iter().all(|item| ring.contains(hash(item), now))
}

// Time.

#[test]
fn times_are_refused_as_the_commands_say() {
    let count = settings(4, 0.01, 3, Mode::Count);
    assert_eq!(count.event(0, 5, None), Ok(Event::default()));
    assert_eq!(count.event(0, 5, Some(5)), Err(TimeError::NoWindow));
    let dual = settings(4, 0.01, 2, DUAL);
    assert_eq!(dual.event(0, 5, Some(5)), Err(TimeError::NoWindow));
    // Slices of 100, five of them.
    let server = settings(4, 0.01, 5, Mode::Window(window(400)));
    assert_eq!(server.event(0, 7000, None), Ok(at(7000)));
    assert_eq!(server.event(7500, 7000, None), Ok(at(7500)));
    assert_eq!(server.event(7500, 7000, Some(7100)), Ok(Event { now: 7500, at: 7100 }));
    assert_eq!(server.event(7500, 7000, Some(7099)), Err(TimeError::Older));
    assert_eq!(server.event(0, 7000, Some(8000)), Ok(at(8000)));
    assert_eq!(server.event(0, 7000, Some(8001)), Err(TimeError::Future));
    let events = settings(4, 0.01, 5, Mode::Window(Window { by_events: true, ..window(400) }));
    assert_eq!(events.event(7500, 9000, None), Err(TimeError::Needed));
    assert_eq!(events.event(7500, 0, Some(1 << 62)), Ok(at(1 << 62)));
    assert_eq!(events.event(7500, 0, Some(7100)), Ok(Event { now: 7500, at: 7100 }));
    assert_eq!(events.event(7500, 0, Some(7099)), Err(TimeError::Older));
    assert_eq!((events.reading_time(7500, 9000), server.reading_time(7500, 9000)), (7500, 9000));
    assert_eq!((server.reading_time(7500, 7000), count.reading_time(7500, 7000)), (7500, 0));
}

/// Each event that is accepted a second ahead moves the ring's time; the next one is not to be measured from there.
#[test]
fn events_cannot_push_the_clock_of_the_server_ahead() {
    let server = settings(4, 0.01, 5, Mode::Window(window(400)));
    let (clock, mut latest) = (1_000_000, 0);
    for _ in 0..10 {
        let ahead = latest.max(clock) + MOST_AHEAD_MS;
        latest = server.event(latest, clock, Some(ahead)).map_or(latest, |event| event.now);
    }
    assert_eq!(latest, clock + MOST_AHEAD_MS);
    // A clock that was put back does not make the present of the ring its future.
    assert_eq!(server.event(latest, clock - 9000, Some(latest)), Ok(at(latest)));
    assert_eq!(server.event(latest, clock - 9000, Some(latest + 1)), Err(TimeError::Future));
}

#[test]
fn a_bounded_window_says_until_when_it_is_not_what_was_promised() {
    // Slices of 100 ms, for 25 items each.
    let mut ring = ring_of(settings(100, 1e-9, 5, Mode::Window(BOUNDED)), 0..125, 1050);
    assert!(ring.is_guaranteed(1050) && holds(&ring, 0..125, 1050));
    fill(&mut ring, 125..126, 1050);
    assert!(!ring.is_guaranteed(1050) && !ring.is_guaranteed(1499) && ring.is_guaranteed(1500));
    assert!(!holds(&ring, 0..1, 1050) && holds(&ring, 25..126, 1050));
    assert_eq!((ring.links_in_use(1050), ring.items(1050)), (5, 101));
}

#[test]
fn a_late_item_never_takes_the_place_of_younger_ones() {
    let mut ring = Ring::new(settings(100, 1e-9, 5, Mode::Window(BOUNDED)), 1);
    for slice in [12, 13, 14, 14, 14] {
        let from = ring.items(1400);
        fill(&mut ring, from..from + 25, slice * 100);
    }
    let late = ring.settings.event(ring.latest, 1400, Some(1100)).unwrap();
    assert!(ring.insert(hash(1000), late).unwrap().unseen);
    assert!(holds(&ring, 0..125, 1400), "a slice of younger items went for it");
    assert_eq!((ring.parts.len(), ring.items(1400)), (5, 125));
    assert!(!ring.is_guaranteed(1599) && ring.is_guaranteed(1600));
}

// Two arrays.

/// Items that come again fill the second array before the first; then too it takes over only with what is promised.
#[test]
fn two_arrays_remember_what_they_promise_when_items_return() {
    for threshold in [0.5, 0.6, 0.9] {
        let mut ring = Ring::new(settings(50, 1e-9, 2, Mode::Dual { threshold }), 1);
        let most = ring.settings.link_capacity();
        let mut recent: Vec<u64> = Vec::new();
        let mut random = fastrand::Rng::with_seed(7);
        for new in 0..4000 {
            let returns = !recent.is_empty() && random.u8(..4) > 0;
            let item = if returns { recent[random.usize(..recent.len())] } else { new };
            ring.insert(hash(item), Event::default()).unwrap();
            recent.retain(|other| *other != item);
            recent.insert(0, item);
            recent.truncate(50);
            assert!(holds(&ring, recent.iter().copied(), 0), "{threshold}, {new}");
            assert!(ring.is_guaranteed(0) && ring.parts[0].items <= most);
            assert_eq!(ring.next_turn(0) == 0, ring.parts.is_empty());
        }
        assert!(ring.lost > 0);
    }
}

#[test]
fn a_turn_of_two_arrays_begins_the_second_before_it_forgets_the_first() {
    let mut ring = ring_of(settings(200, 1e-9, 2, DUAL), 0..100, 0);
    ring.rotate().unwrap();
    assert!(holds(&ring, 0..100, 0) && ring.is_guaranteed(0) && ring.links_in_use(0) == 2);
    fill(&mut ring, 100..150, 0);
    ring.rotate().unwrap();
    assert!(holds(&ring, 100..150, 0) && !ring.contains(hash(0), 0) && !ring.is_guaranteed(0));
    fill(&mut ring, 150..450, 0);
    assert!(ring.is_guaranteed(0) && holds(&ring, 250..450, 0));
}

// More and fewer links.

#[test]
fn what_a_wider_window_can_no_longer_have_is_said() {
    let mut ring = ring_of(settings(100, 1e-9, 5, Mode::Window(window(400))), 0..10, 1000);
    ring.set_links(9, 1000);
    assert!(ring.is_guaranteed(1000), "nothing was forgotten yet");
    ring.set_links(5, 1000);
    fill(&mut ring, 10..20, 1500);
    assert!(ring.is_guaranteed(1500));
    // What was written at 1000 has gone, and should be there until 1900 now.
    ring.set_links(9, 1550);
    assert!(!ring.contains(hash(0), 1550) && holds(&ring, 10..20, 1550));
    assert!(!ring.is_guaranteed(1550) && !ring.is_guaranteed(1899) && ring.is_guaranteed(1900));
    assert!(holds(&ring, 10..20, 2399) && !holds(&ring, 10..20, 2400));
}

#[test]
fn slices_that_are_over_do_not_come_back_in_a_wider_window() {
    let mut ring = ring_of(settings(100, 1e-9, 5, Mode::Window(window(400))), 0..10, 1000);
    assert!(!ring.contains(hash(0), 1500));
    ring.set_links(9, 1500);
    assert!(!ring.contains(hash(0), 1500) && ring.items(1500) == 0 && !ring.is_guaranteed(1500));
}

#[test]
fn fewer_links_of_a_bounded_window_say_what_went_early() {
    let mut ring = ring_of(settings(100, 1e-9, 5, Mode::Window(BOUNDED)), 0..125, 1050);
    ring.set_links(3, 1050);
    assert_eq!((ring.links_in_use(1050), ring.items(1050)), (3, 75));
    assert!(!ring.is_guaranteed(1299) && ring.is_guaranteed(1300));
}

#[test]
fn fewer_links_forget_the_oldest_and_more_links_nothing() {
    let mut ring = ring_of(settings(400, 1e-9, 5, Mode::Count), 0..450, 0);
    ring.set_links(10, 0);
    assert!(holds(&ring, 0..450, 0) && ring.settings.capacity == 900 && ring.is_guaranteed(0));
    fill(&mut ring, 450..1000, 0);
    assert!(holds(&ring, 0..1000, 0) && ring.items(0) == 1000);
    ring.set_links(3, 0);
    assert!(holds(&ring, 700..1000, 0) && !ring.contains(hash(699), 0));
    assert_eq!((ring.settings.capacity, ring.items(0), ring.is_guaranteed(0)), (200, 300, true));
    ring.set_links(6, 0);
    assert!(!ring.is_guaranteed(0), "500 are promised and 300 there");
}

#[test]
fn a_turned_ring_says_that_it_has_less_than_was_promised() {
    let mut ring = ring_of(settings(200, 1e-9, 3, Mode::Count), 0..250, 0);
    ring.rotate().unwrap();
    assert!(!ring.contains(hash(99), 0) && holds(&ring, 100..250, 0));
    assert!(!ring.is_guaranteed(0) && ring.next_turn(0) == 100);
    fill(&mut ring, 250..300, 0);
    assert!(ring.is_guaranteed(0));
    ring.clear();
    assert_eq!((ring.items(0), ring.links_in_use(0), ring.lost, ring.is_guaranteed(0)), (0, 0, 0, true));
}

// Merging.

#[test]
fn merging_a_window_with_itself_changes_nothing() {
    let mut ring = ring_of(settings(400, 0.2, 5, Mode::Window(window(400))), 0..300, 1000);
    fill(&mut ring, 300..390, 1100);
    let mut merged = ring.clone();
    merged.merge(&[&ring, &ring.clone()], 1100, false).unwrap();
    merged.version = ring.version;
    assert_same(&merged, &ring);
}

#[test]
fn merging_a_window_again_takes_no_more_room() {
    let alike = settings(400, 0.2, 5, Mode::Window(window(400)));
    let (mut ring, mut other) = (ring_of(alike, 0..90, 1000), ring_of(alike, 1000..1090, 1000));
    let own = ring.items(1000);
    ring.merge(&[&other], 1000, false).unwrap();
    assert_eq!((ring.parts.len(), ring.links_in_use(1000)), (2, 1));
    for more in 0..5 {
        fill(&mut other, 1090 + more..1091 + more, 1000);
        ring.merge(&[&other], 1000, false).unwrap();
    }
    assert!(holds(&ring, (0..90).chain(1000..1095), 1000));
    assert_eq!((ring.parts.len(), ring.items(1000)), (2, own + other.items(1000)));
}

#[test]
fn overfull_slices_merge_and_keep_room_for_more() {
    let alike = settings(400, 0.01, 5, Mode::Window(window(400)));
    let (mut ring, other) = (ring_of(alike, 0..150, 1000), ring_of(alike, 1000..1150, 1000));
    ring.merge(&[&other], 1000, false).unwrap();
    assert!(holds(&ring, (0..150).chain(1000..1150), 1000));
    // Twice the first array; the second ones, of 200 items each, have become one.
    assert_eq!(ring.parts.iter().map(|part| part.growth).collect::<Vec<_>>(), [0, 0, 1]);
    fill(&mut ring, 150..230, 1000);
    assert_eq!(ring.parts.len(), 3, "there was room");
    assert!(ring.merge(&[&ring_of(alike, 0..5, 2000)], 2000, false).is_ok());
    assert_eq!((ring.latest, ring.items(2000)), (2000, 5));
}

#[test]
fn bounded_windows_stay_bounded_when_they_merge() {
    let alike = settings(100, 1e-9, 5, Mode::Window(BOUNDED));
    let (mut ring, other) = (ring_of(alike, 0..125, 1450), ring_of(alike, 200..225, 1100));
    ring.merge(&[&other], 1450, false).unwrap();
    assert!(holds(&ring, 0..125, 1450) && ring.parts.len() == 5 && !ring.is_guaranteed(1599));
}

#[test]
fn rings_by_count_merge_newest_with_newest_and_keep_within_their_links() {
    let alike = settings(400, 1e-9, 5, Mode::Count);
    let mut ring = ring_of(alike, 0..340, 0);
    let before = ring.clone();
    let (half, more) = (ring_of(alike, 1000..1060, 0), ring_of(alike, 2000..2090, 0));
    assert!(matches!(ring.merge(&[&half, &more], 0, false), Err(MergeError::TooMany { capacity: 100, .. })));
    assert_same(&ring, &before);
    ring.merge(&[&half], 0, false).unwrap();
    assert!(holds(&ring, (0..340).chain(1000..1060), 0) && ring.parts.len() == 4);
    ring.merge(&[&more], 0, true).unwrap();
    assert!(holds(&ring, 2000..2090, 0) && ring.parts[3].is_full());
    // A copy of the same has nothing new, even if its links are full.
    let full = ring_of(settings(400, 0.1, 5, Mode::Count), 0..600, 0);
    let mut merged = full.clone();
    merged.merge(&[&full], 0, false).unwrap();
    merged.version = full.version;
    assert_same(&merged, &full);
    // The longer one gives its oldest links.
    let mut short = ring_of(alike, 5000..5010, 0);
    short.merge(&[&before], 0, false).unwrap();
    assert!(holds(&short, (0..340).chain(5000..5010), 0) && short.parts.len() == 4);
}

/// After EXTEND the settings are those of the other ring; the old links have their old size.
#[test]
fn links_of_different_sizes_do_not_merge() {
    let mut extended = ring_of(settings(400, 0.02, 5, Mode::Count), 0..150, 0);
    extended.set_links(10, 0);
    let mut ring = ring_of(settings(900, 0.02, 10, Mode::Count), 0..150, 0);
    let differ = ring.merge(&[&extended], 0, true).unwrap_err();
    assert_eq!(differ, MergeError::Differ("hashes", "9".into(), "8".into()));
    assert!(matches!(extended.merge(&[&ring], 0, true), Err(MergeError::Differ(..))));
    let differ = ring.merge(&[&ring_of(settings(400, 0.02, 5, Mode::Count), [], 0)], 0, true).unwrap_err();
    assert_eq!(differ.to_string(), "filters differ: links 10 and 5");
}

#[test]
fn two_arrays_merge_and_keep_what_is_promised() {
    let alike = settings(200, 1e-9, 2, DUAL);
    for (own, other) in [(140, 140), (350, 140), (140, 350), (0, 350), (350, 0)] {
        let (mut ring, theirs) = (ring_of(alike, 0..own, 0), ring_of(alike, 10_000..10_000 + other, 0));
        ring.merge(&[&theirs], 0, true).unwrap();
        assert!(holds(&ring, (0..own).chain(10_000..10_000 + other), 0));
        for item in 20_000..21_000 {
            fill(&mut ring, [item], 0);
            assert!(holds(&ring, item.saturating_sub(199).max(20_000)..=item, 0), "{own} {other} {item}");
            assert!(ring.is_guaranteed(0));
        }
    }
}

// Memory, and the ends of the ranges.

#[test]
fn a_write_without_memory_changes_nothing() {
    for mode in [Mode::Count, Mode::Window(window(1000)), DUAL, Mode::Window(BOUNDED)] {
        let share = if mode == DUAL { 10 } else { 1 };
        let mut ring = Ring::new(Settings { link_error: true, ..settings(TOO_MANY / share, 0.3, 2, mode) }, 1);
        if mode == DUAL {
            // As if the second were begun early: both are asked for memory then.
            fill(&mut ring, 0..1, 1000);
            ring.rotate().unwrap();
        }
        let mut item = 1;
        while ring.insert(hash(item), at(1000)).is_ok() {
            item += 1;
        }
        let before = ring.clone();
        for item in item..item + 50 {
            assert!(matches!(ring.insert(hash(item), at(1000)), Err(InsertError::Memory(_))));
            assert_same(&ring, &before);
        }
        assert!(holds(&ring, 1..item, 1000), "{mode:?}");
        assert_eq!(ring.insert(hash(1), at(1000)).unwrap(), Inserted { unseen: false, changed: false });
    }
}

#[test]
fn a_slice_that_can_grow_no_more_says_so_and_stays_as_it_was() {
    let mut ring = Ring::new(settings(1 << 57, 1e-4, 2, Mode::Window(window(10))), 1);
    fill(&mut ring, 0..10, 5);
    ring.parts[0].items = 1 << 57;
    let before = ring.clone();
    assert_eq!(ring.insert(hash(11), at(5)), Err(InsertError::Shape(ShapeError::TooLarge)));
    assert_same(&ring, &before);
}

#[test]
fn an_empty_array_of_one_bit_is_empty() {
    let shape = ArrayShape::new(1, 0.999).unwrap();
    let mut part = Part::new(0, 0, shape);
    assert_eq!((shape.bits, part.fill(), part.error_now()), (1, 0.0, 0.0));
    part.insert(1).unwrap();
    assert_eq!((part.fill(), part.error_now()), (1.0, 1.0));
}

#[test]
fn the_ends_of_all_ranges_work() {
    const YEARS: u64 = 315_360_000_000;
    let window = |span_ms, bounded, by_events| Mode::Window(Window { span_ms, bounded, by_events });
    let modes = [
        Mode::Count,
        window(1, false, false),
        window(1, true, true),
        window(YEARS, false, true),
        window(YEARS, true, false),
        Mode::Dual { threshold: 0.5 },
        Mode::Dual { threshold: 0.999_999 },
    ];
    for (mode, error, links, capacity) in modes.into_iter().flat_map(|mode| {
        let errors = [1e-15, 0.999].into_iter();
        errors.flat_map(move |error| [(2, 1), (2, 7), (1024, 1), (1024, 3000)].map(|(l, c)| (mode, error, l, c)))
    }) {
        let links = if matches!(mode, Mode::Dual { .. }) { 2 } else { links };
        for link_error in [false, true] {
            let mut ring = Ring::new(Settings { link_error, ..settings(capacity, error, links, mode) }, 1);
            let mut payload = Vec::new();
            for now in [0, 1, 2, 999, 1 << 48, (1 << 48) + 1, u64::MAX / 2] {
                let event = ring.settings.event(ring.latest, now, Some(now)).unwrap_or_default();
                for item in 0..8 {
                    ring.insert(hash(now ^ item << 50), event).unwrap();
                    assert!(ring.contains(hash(now ^ item << 50), event.now) || capacity < 8);
                }
                let time = ring.settings.reading_time(ring.latest, now);
                let _ = (ring.next_turn(time), ring.error_now(time), ring.is_guaranteed(time), ring.items(time));
                let Some(length) = packed::packed_len(&ring) else { continue };
                payload.resize(length, 0);
                packed::pack(&ring, &mut payload);
                assert_same(&packed::PackedRing::new(&payload).unpack().unwrap(), &ring);
            }
            if mode == Mode::Count {
                (0..3).for_each(|_| ring.rotate().unwrap());
            }
            if !matches!(mode, Mode::Dual { .. }) {
                ring.set_links(1024, ring.latest);
                ring.set_links(2, ring.latest);
            }
            let copy = ring.clone();
            ring.merge(&[&copy], ring.latest, true).unwrap();
        }
    }
}

/// The lists of large arrays end early, and what follows takes memory as it comes: an insert never has most of an array made.
#[test]
fn a_large_array_is_not_made_at_once() {
    let settings = settings(100_000_000, 0.01, 2, Mode::Count);
    let mut ring = Ring::new(settings, 1);
    let bytes = |ring: &Ring| ring.heap_bytes(|bytes| bytes);
    let most = ring.settings.array(0).unwrap().bytes() as usize;
    assert!(most > 100_000_000);
    let (mut before, mut listed) = (0, 0);
    for item in 0..5000 {
        assert!(ring.insert(hash(item), at(0)).unwrap().unseen);
        let now = bytes(&ring);
        assert!(now - before < most / 200, "item {item}: from {before} to {now}");
        (before, listed) = (now, listed + u64::from(matches!(ring.parts[0].store, Store::List(_))));
    }
    assert!(listed == 64 && holds(&ring, 0..5000, 0) && before < most / 10, "{listed} {before}");
    assert!(wrong_answers(&ring, 10_000, 1, 0) == 0.0);
}

/// Whatever the steps, the bits of an array are those of both, and neither of the two changes.
#[test]
fn large_arrays_merge_bit_by_bit() {
    let settings = settings(2_000_000, 0.01, 2, Mode::Count);
    let sizes = [20, 300, 9000, 100_000];
    let of = |first: u64, count: u64| ring_of(settings, first..first + count, 0);
    for (i, one) in sizes.into_iter().enumerate() {
        for (j, other) in sizes.into_iter().enumerate() {
            let rings = [of(0, one), of(one / 2 + 1_000_000 * (i.max(j) as u64 % 2), other)];
            let before: Vec<_> = rings.iter().map(|ring| content(&ring.parts[0])).collect();
            let [own, source] = &rings;
            let mut merge = Merge::new(own.clone(), vec![source.clone()], 0, false).unwrap();
            let mut steps = 0;
            while !merge.step().unwrap() {
                steps += 1;
            }
            let merged = merge.into_ring();
            let pieces = merged.parts[0].shape.bytes() / bits::PIECE_BYTES as u64;
            assert!(own.parts[0].items.min(other) < 100 || steps > pieces / 20, "{steps} steps for {pieces} pieces");
            let either = |hash: u64| rings.iter().any(|ring| ring.contains(hash, 0));
            assert!((0..one).chain(0..other).all(|item| !either(hash(item)) || merged.contains(hash(item), 0)));
            if let [Store::Bits(_), Store::Bits(_)] = [&own.parts[0].store, &source.parts[0].store] {
                let or = before[0].5.iter().zip(&before[1].5).map(|(one, other)| one | other);
                assert!(content(&merged.parts[0]).5.into_iter().eq(or));
            }
            assert!(rings.iter().map(|ring| content(&ring.parts[0])).eq(before));
        }
    }
}
