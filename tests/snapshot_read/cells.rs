//! Counting and d-left filters of all kinds and sizes, and those whose loads are not over, beside others; and damage to them.

use super::file::{Content, Writer, loaded, numbered, refused, salvaged};
use seendb::codec::cells_dump::CellsDump;
use seendb::codec::cells_value::CellsRef;
use seendb::codec::payload::{dump_cells, open};
use seendb::codec::rdb::TYPE_MODULE_2;
use seendb::codec::value::{HalfCounting, HalfDleft, push_half_loaded};
use seendb::filters::counting::{self, CounterBits, CountingBloom, CountingMut, CountingRef};
use seendb::filters::dleft::{self, Dleft, DleftRef, Growth, Refused};
use seendb::filters::item_hash::hash_item;

/// A value, from its type to its end mark.
fn value_of(filter: CellsRef<'_>) -> Vec<u8> {
    open(&dump_cells(filter).unwrap()).unwrap().to_vec()
}

/// The value of a filter of whose dump only the header was taken.
fn half_loaded(filter: CellsRef<'_>) -> Vec<u8> {
    let header = CellsDump::chunk(filter, 0).unwrap();
    let (cursor, data, mut value) = (header.cursor, &header.data, vec![TYPE_MODULE_2]);
    match filter {
        CellsRef::Counting(_) => push_half_loaded(&mut value, &HalfCounting::new(cursor, data, u64::MAX).unwrap()),
        CellsRef::Dleft(_) => push_half_loaded(&mut value, &HalfDleft::new(cursor, data, u64::MAX).unwrap()),
    }
    value
}

fn hash_of(item: u64) -> u64 {
    hash_item(&item.to_le_bytes(), None)
}

fn counting(capacity: u64, counter_bits: CounterBits, items: u64) -> CountingBloom {
    let settings = counting::Settings { capacity, error: 0.001, counter_bits, strict: false, key: None };
    let mut filter = CountingBloom::new(settings, settings.shape().unwrap(), 1_000).unwrap();
    (0..items).for_each(|item| assert!(CountingMut::Large(&mut filter).insert(hash_of(item)).is_ok()));
    filter
}

fn dleft(capacity: u64, growth: bool, items: u64) -> Dleft {
    let growth = growth.then(|| Growth { factor: 2, final_capacity: 2 * capacity.max(items) });
    let (error, key) = (0.001, None);
    let settings =
        dleft::Settings { capacity, error, growth, subtables: 4, cells: 8, counter_bits: 2, spill: true, key };
    let mut filter = Dleft::new(settings, 7).unwrap();
    // One is counted more often than a cell can tell.
    for item in (0..items).chain([0; 5].into_iter().filter(|_| items > 0)) {
        while filter.insert(hash_of(item)) == Err(Refused::NeedsGrowth) {
            filter.grow().unwrap();
        }
    }
    filter
}

/// Values of both families, whole and half loaded, with their names.
fn values(capacity: u64, items: u64) -> Vec<(&'static [u8], Vec<u8>)> {
    let (four, eight) = (counting(capacity, CounterBits::Four, items), counting(capacity, CounterBits::Eight, items));
    let (plain, grown) = (dleft(capacity.max(items), false, items), dleft(capacity / 4 + 1, true, items));
    let counting = |filter| CellsRef::Counting(CountingRef::Large(filter));
    let dleft = |filter| CellsRef::Dleft(DleftRef::Large(filter));
    vec![
        (b"four", value_of(counting(&four))),
        (b"eight", value_of(counting(&eight))),
        (b"plain", value_of(dleft(&plain))),
        (b"grown", value_of(dleft(&grown))),
        (b"half counting", half_loaded(counting(&four))),
        (b"half d-left", half_loaded(dleft(&grown))),
    ]
}

fn names(content: &Content) -> String {
    content.keys().map(|(_, name)| String::from_utf8_lossy(name).into_owned()).collect()
}

#[test]
fn all_kinds_and_sizes() {
    // Empty, packed, an allocation of their own, and larger than what is read at once.
    for (capacity, items) in [(100, 0), (100, 30), (100, 100), (40_000, 60_000), (1_000_000, 600_000)] {
        let (mut writer, values) = (Writer::new("REDIS0010"), values(capacity, items));
        for (n, (name, value)) in values.iter().enumerate() {
            let is_whole = !name.starts_with(b"half");
            assert!(items < 100_000 || !is_whole || value.len() > 1 << 20, "{} bytes", value.len());
            writer.db(n as u64).life(1_000 + n as u64).key(name, value).key(b"filter", &numbered(n as u64));
        }
        let (report, content) = loaded(&writer.end());
        assert_eq!((report.keys as usize, report.skipped.len()), (2 * values.len(), 0));
        for (n, (name, value)) in values.into_iter().enumerate() {
            let held = &content[&(n, name.to_vec())];
            assert!(held.header == value, "{items} items, {}", name.escape_ascii());
            assert_eq!(held.life, Some(1_000 + n as u64));
        }
    }
}

#[test]
fn every_byte_changed() {
    let mut writer = Writer::new("REDIS0010");
    writer.aux(b"seendb-ver", b"1").db(0);
    for (name, (_, value)) in [b"a", b"b", b"c", b"d", b"e", b"f"].into_iter().zip(values(7, 9)) {
        writer.db(0).key(name, &value).mark();
    }
    let file = writer.end();
    let (_, whole) = loaded(&file);
    assert_eq!(names(&whole), "abcdef");
    for at in 0..file.len() {
        let mut bytes = file.clone();
        bytes[at] ^= 1 << (at % 8);
        refused(&bytes);
        let (report, content) = salvaged(&bytes);
        assert!(report.dropped.count > 0, "byte {at}: nothing is reported");
        assert!(content.iter().all(|(key, held)| whole.get(key) == Some(held)), "byte {at}");
        assert!(content.len() >= 4, "byte {at}: {}", names(&content));
    }
}

/// Small ones, and those that are read as they pass.
#[test]
fn filters_of_cells_that_cannot_be() {
    for (capacity, items) in [(300, 300), (1_000_000, 600_000)] {
        for (name, mut value) in values(capacity, items).into_iter().take(4) {
            // All counters at their ceiling, and buckets that use more cells than they have.
            let end = value.len() - 80;
            value[end - 200..end].fill(0xff);
            let mut writer = Writer::new("REDIS0010");
            writer.db(0).key(b"before", &numbered(1)).key(name, &value).key(b"behind", &numbered(2));
            let file = writer.end();
            if name == b"four" || name == b"eight" {
                // Any counters can be, but no other lengths.
                let mut short = Writer::new("REDIS0010");
                short.db(0).key(name, &value[..value.len() - 9]);
                refused(&short.end());
                loaded(&file);
                continue;
            }
            refused(&file);
            let (report, content) = salvaged(&file);
            assert_eq!((report.dropped.count, names(&content)), (1, "beforebehind".to_owned()));
        }
    }
}
