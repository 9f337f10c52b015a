//! Rings of all kinds and sizes, and those whose loads are not over, beside filters; and damage to them.

use super::file::{Content, Memory, Writer, filter, load_with, loaded, numbered, refused, salvaged};
use seendb::codec::payload::{dump_ring, open};
use seendb::codec::rdb::TYPE_MODULE_2;
use seendb::codec::ring_dump::RingDump;
use seendb::codec::value::{HalfRing, push_half_loaded};
use seendb::filters::item_hash::hash_item;
use seendb::filters::ring::{Mode, Ring, Settings, Window};
use seendb::persist::snapshot::read::Options;

/// A ring with so many items, written one a millisecond.
fn ring(capacity: u64, mode: Mode, items: u64) -> Ring {
    let links = if matches!(mode, Mode::Dual { .. }) { 2 } else { 4 };
    let error = if items < LARGE { 0.001 } else { 1e-12 };
    let settings = Settings { capacity, error, link_error: false, links, mode, idle: None, key: None };
    let mut ring = Ring::new(settings, 1_000);
    for item in 0..items {
        let now = 1_000_000 + item;
        let at = matches!(mode, Mode::Window(Window { by_events: true, .. })).then_some(now);
        let event = settings.event(ring.latest, now, at).unwrap();
        ring.insert(hash_item(&item.to_le_bytes(), None), event).unwrap();
    }
    ring
}

/// Its value, from its type to its end mark.
fn value_of(ring: &Ring) -> Vec<u8> {
    open(&dump_ring(ring).unwrap()).unwrap().to_vec()
}

/// The value of a ring of whose dump only the header was taken.
fn half_loaded(ring: &Ring) -> Vec<u8> {
    let header = RingDump::chunk(ring, 0).unwrap();
    let mut value = vec![TYPE_MODULE_2];
    push_half_loaded(&mut value, &HalfRing::new(header.cursor, &header.data, u64::MAX).unwrap());
    value
}

fn window(bounded: bool, by_events: bool) -> Mode {
    Mode::Window(Window { span_ms: 300, bounded, by_events })
}

/// So many items make a ring that is larger than what is read at once.
const LARGE: u64 = 200_000;

const DUAL: Mode = Mode::Dual { threshold: 0.75 };

fn modes() -> [Mode; 5] {
    [Mode::Count, DUAL, window(false, false), window(true, false), window(false, true)]
}

fn names(content: &Content) -> String {
    content.keys().map(|(_, name)| String::from_utf8_lossy(name).into_owned()).collect()
}

/// Three blocks: two rings, one of them with a life; a ring of which only the header is there, and one of two arrays; a ring by
/// events beside a filter, in another database.
fn marked() -> Vec<u8> {
    let mut writer = Writer::new("REDIS0010");
    writer.aux(b"seendb-ver", b"1").db(0).key(b"a", &value_of(&ring(9, Mode::Count, 7)));
    writer.life(9_000).key(b"b", &value_of(&ring(9, window(false, false), 500))).mark();
    writer.db(0).key(b"c", &half_loaded(&ring(9, Mode::Count, 7))).key(b"d", &value_of(&ring(9, DUAL, 40))).mark();
    writer.db(2).key(b"e", &numbered(5)).key(b"f", &value_of(&ring(9, window(false, true), 5))).mark().end()
}

#[test]
fn all_kinds_and_sizes() {
    // Empty, a list, packed bits, an allocation of their own, and larger than what is read at once.
    for (capacity, items) in [(100, 0), (100, 3), (100, 500), (20_000, 60_000), (150_000, LARGE)] {
        let mut writer = Writer::new("REDIS0010");
        let modes = if items < LARGE { modes().to_vec() } else { vec![Mode::Count, DUAL] };
        let mut expected = Vec::new();
        for (n, mode) in modes.iter().enumerate() {
            let ring = ring(capacity, *mode, items);
            let (value, half) = (value_of(&ring), half_loaded(&ring));
            assert!(items < LARGE || value.len() > 1 << 20, "{} bytes", value.len());
            writer.db(n as u64).life(1_000 + n as u64).key(b"ring", &value).key(b"filter", &numbered(n as u64));
            writer.db(n as u64).key(b"half", &half);
            expected.extend([(n, b"ring".to_vec(), value), (n, b"half".to_vec(), half)]);
        }
        let (report, content) = loaded(&writer.end());
        assert_eq!((report.keys as usize, report.skipped.len()), (3 * modes.len(), 0));
        for (db, name, value) in expected {
            let held = &content[&(db, name.clone())];
            assert!(held.header == value, "{items} items, database {db}, {}", name.escape_ascii());
            assert_eq!(held.life, (name == b"ring").then_some(1_000 + db as u64));
        }
    }
}

#[test]
fn every_byte_changed() {
    let file = marked();
    let (_, whole) = loaded(&file);
    assert_eq!(names(&whole), "abcdef");
    for at in 0..file.len() {
        for change in [0x01, 0x80] {
            let mut bytes = file.clone();
            bytes[at] ^= change;
            refused(&bytes);
            let (report, content) = salvaged(&bytes);
            assert!(report.dropped.count > 0, "byte {at}: nothing is reported");
            assert!(content.iter().all(|(key, held)| whole.get(key) == Some(held)), "byte {at}");
            assert!(content.len() >= 4, "byte {at}: {}", names(&content));
        }
    }
}

#[test]
fn cut_at_every_byte() {
    let file = marked();
    let (_, whole) = loaded(&file);
    let mut most = 0;
    for cut in 0..file.len() {
        refused(&file[..cut]);
        let (report, content) = salvaged(&file[..cut]);
        assert!(report.dropped.count > 0, "cut at {cut}: nothing is reported");
        assert!(content.iter().all(|(key, held)| whole.get(key) == Some(held)), "cut at {cut}");
        assert!(content.len() >= most, "cut at {cut}");
        most = content.len();
    }
    assert_eq!(most, whole.len());
}

/// A value that no ring has, although all checksums of the file are right: the keys beside it are loaded.
#[test]
fn rings_that_cannot_be() {
    let sound = value_of(&ring(9, Mode::Count, 7));
    let error = sound.windows(8).position(|bytes| bytes == 0.001_f64.to_le_bytes()).unwrap();
    let with_error = |error_rate: f64| {
        let mut value = sound.clone();
        value[error..error + 8].copy_from_slice(&error_rate.to_le_bytes());
        value
    };
    let mut header = half_loaded(&ring(9, Mode::Count, 7));
    let at = header.windows(8).position(|bytes| bytes == b"SEENDUMP").unwrap();
    header[at + 20] ^= 1;
    for unsound in [with_error(f64::NAN), with_error(2.0), with_error(-0.5), header] {
        let mut writer = Writer::new("REDIS0010");
        writer.db(0).key(b"a", &sound).key(b"unsound", &unsound).key(b"b", &numbered(2));
        let file = writer.db(1).key(b"c", &sound).mark().end();
        refused(&file);
        let (report, content) = salvaged(&file);
        assert_eq!((names(&content).as_str(), report.dropped.count), ("abc", 1));
        let [loss] = &report.dropped.listed[..] else { panic!("one loss: {:?}", report.dropped) };
        assert_eq!(loss.names, [(Some(0), b"unsound".to_vec())]);
    }
}

/// A name is a filter's or a ring's, once.
#[test]
fn names_that_are_there_twice() {
    let values = [value_of(&ring(9, Mode::Count, 7)), half_loaded(&ring(9, DUAL, 7)), numbered(1)];
    for (first, second) in [(0, 1), (1, 0), (0, 2), (2, 0), (1, 2), (2, 1), (0, 0), (1, 1)] {
        let mut writer = Writer::new("REDIS0010");
        writer.db(0).key(b"k", &values[first]).key(b"k", &values[second]).mark();
        let file = writer.db(0).key(b"z", &numbered(9)).mark().end();
        let accept_damaged = Options { accept_damaged: true, threads: 1, now: None };
        let (report, content) = load_with(&Memory::new(&file), &accept_damaged).unwrap();
        assert_eq!((names(&content).as_str(), report.dropped.count), ("kz", 1));
        let kept = Writer::new("REDIS0010").db(0).key(b"k", &values[first]).end();
        let key = (0, b"k".to_vec());
        assert!(content[&key] == loaded(&kept).1[&key], "{first} and {second}: the first one stays");
    }
}

/// A large ring, read as it comes, in a block of its own.
#[test]
fn large_rings_in_blocks() {
    let large = value_of(&ring(150_000, Mode::Count, LARGE));
    assert!(large.len() > 1 << 20);
    let mut writer = Writer::new("REDIS0010");
    writer.db(0).key(b"a", &filter(&[7; 64])).mark().db(0).key(b"large", &large).mark();
    let file = writer.db(0).key(b"b", &value_of(&ring(9, DUAL, 7))).mark().end();
    loaded(&file);
    for at in [60_000, large.len() / 2, large.len() - 100] {
        let mut bytes = file.clone();
        bytes[200 + at] ^= 1;
        refused(&bytes);
        let (report, content) = salvaged(&bytes);
        assert_eq!(names(&content), "ab");
        assert_eq!(report.dropped.listed[0].names, [(Some(0), b"large".to_vec())]);
    }
    let (_, content) = salvaged(&file[..large.len() / 2]);
    assert_eq!(names(&content), "a");
}
