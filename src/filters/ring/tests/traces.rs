//! The recorded traces of rings, of two arrays and of windows, step by step.

use super::*;

/// Small enough that no wrong answer comes up in a trace.
const ERROR: f64 = 1e-12;

/// The numbering of a trace: the place of the active link in the order of the ring. A new link stands right behind it; of a
/// full ring the next link in order is cleared.
#[derive(Default)]
struct RingOrder {
    active: usize,
    allocated: usize,
}

impl RingOrder {
    fn turn(&mut self, links: usize) -> &'static str {
        if self.allocated < links {
            (self.allocated, self.active) = (self.allocated + 1, self.active + 1);
            return "allocate";
        }
        self.active = self.active % links + 1;
        "clear"
    }
}

#[test]
fn a_ring_by_count_behaves_as_recorded() {
    let mut ring = Ring::new(settings(4, ERROR, 3, Mode::Count), 1);
    let mut order = RingOrder::default();
    for row in rows(include_str!("../../../../tests/vectors/ring_trace.tsv")) {
        let before: Vec<u64> = (1..=22).filter(|item| ring.contains(hash(*item), 0)).collect();
        let event = if row[0] == "-" {
            ring.set_links(5, 0);
            "EXTEND 3->5"
        } else {
            ring.insert(hash(row[0].parse().unwrap()), Event::default()).unwrap();
            let is_new = ring.parts.back().is_some_and(|active| active.items == 1);
            if is_new { order.turn(ring.settings.links.into()) } else { "-" }
        };
        let after: Vec<u64> = (1..=22).filter(|item| ring.contains(hash(*item), 0)).collect();
        let lost: Vec<String> = before.iter().filter(|item| !after.contains(item)).map(u64::to_string).collect();
        let lost = if lost.is_empty() { "-".to_owned() } else { lost.join(",") };
        assert_eq!(ring.links_in_use(0), order.allocated);
        let found = [
            event.to_owned(),
            order.active.to_string(),
            order.allocated.to_string(),
            lost,
            after.len().to_string(),
            after[0].to_string(),
        ];
        assert_eq!(found[..], row[1..], "{row:?}");
        assert_eq!(ring.items(0), after.len() as u64);
    }
}

#[test]
fn two_arrays_behave_as_recorded() {
    // Arrays of five of which the second is begun at three: the newest two are promised.
    let dual = settings(2, ERROR, 2, Mode::Dual { threshold: 0.6 });
    assert_eq!((dual.link_capacity(), dual.dual_begins_at()), (5, 3));
    let mut ring = Ring::new(dual, 1);
    for row in rows(include_str!("../../../../tests/vectors/dual_trace.tsv")) {
        let (parts, item) = (ring.parts.len(), row[0].parse().unwrap());
        ring.insert(hash(item), Event::default()).unwrap();
        let event = match ring.parts.len().cmp(&parts) {
            std::cmp::Ordering::Less => "switch",
            std::cmp::Ordering::Greater if parts > 0 => "create_slave",
            _ => "-",
        };
        let items = |index: usize| ring.parts.get(index).map_or("-".to_owned(), |part| part.items.to_string());
        let oldest = (1..).find(|item| ring.contains(hash(*item), 0)).unwrap();
        assert!((oldest..=item).all(|item| ring.contains(hash(item), 0)));
        assert_eq!([event, &items(0), &items(1), &oldest.to_string()], row[1..], "{row:?}");
    }
}

#[test]
fn a_window_behaves_as_recorded() {
    let mut ring = Ring::new(settings(300, ERROR, 4, Mode::Window(window(30))), 1);
    assert_eq!(ring.settings.slice_ms(), 10);
    for row in rows(include_str!("../../../../tests/vectors/window_trace.tsv")) {
        let (clock, item) = (row[1].parse().unwrap(), hash_item(row[2].as_bytes(), None));
        let now = ring.settings.reading_time(ring.latest, clock);
        let slice = ring.settings.slice_of(now);
        let result = if row[0] == "HAS" {
            if ring.contains(item, now) { "yes".to_owned() } else { "no".to_owned() }
        } else {
            let event = ring.settings.event(ring.latest, clock, None).unwrap();
            assert_eq!(event, at(now));
            assert!(ring.insert(item, event).unwrap().changed);
            let slice = ring.parts.iter().rev().find(|part| part.contains(item)).unwrap().slice;
            format!("slice {} epoch {slice}", slice % 4)
        };
        assert_eq!([now.to_string(), slice.to_string(), result], row[3..], "{row:?}");
    }
}
