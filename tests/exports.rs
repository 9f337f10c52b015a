//! Exports, as others read them: the pages on hashing and on the format are true to the byte, and the reader in Python answers
//! as the ring that was exported. And snapshots, as checkers read them.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use seendb::codec::cells_value::{CellsRef, push_cells};
use seendb::codec::counting_export::{self, ExportedCounting};
use seendb::codec::crc64::Crc64;
use seendb::codec::rdb::TYPE_MODULE_2;
use seendb::codec::ring_export::{ExportedRing, empty_export, export};
use seendb::codec::ring_value::RingWriter;
use seendb::filters::counting::{self, CounterBits, CountingBloom, CountingMut, CountingRef};
use seendb::filters::dleft::{self, Dleft, DleftRef};
use seendb::filters::item_hash::{HashKey, hash_item, mix64, positions};
use seendb::filters::ring::{Mode, Ring, Settings, Store, Window};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn page(name: &str) -> String {
    fs::read_to_string(root().join("docs").join(name)).expect("the page can be read")
}

/// The key of the page: 00 01 … 0f.
fn page_key() -> HashKey {
    std::array::from_fn(|i| i as u8)
}

/// The rows of the table with this head.
fn rows(page: &str, head: &str) -> String {
    let (_, rest) = page.split_once(&format!("{head}\n")).expect("the table is on the page");
    rest.lines().skip(1).take_while(|line| line.starts_with('|')).fold(String::new(), |rows, line| rows + line + "\n")
}

#[test]
fn the_page_on_hashing_has_the_right_hashes() {
    let mut expected = String::new();
    for length in [0, 1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 128, 129, 240, 241, 1000] {
        let item: Vec<u8> = (0..length).map(|i| (i % 251) as u8).collect();
        let (plain, keyed) = (hash_item(&item, None), hash_item(&item, Some(&page_key())));
        writeln!(expected, "| {length} | `{plain:016x}` | `{keyed:016x}` |").expect("a string takes all");
    }
    assert_page(&rows(&page("hashing.md"), "| bytes | XXH3-64 | SipHash-2-4 |"), &expected);
}

#[test]
fn the_page_on_hashing_has_the_right_mixes() {
    let mut expected = String::new();
    for x in [0, 1, 0x9e37_79b9_7f4a_7c15, 0x0123_4567_89ab_cdef, u64::MAX] {
        writeln!(expected, "| `{x:016x}` | `{:016x}` |", mix64(x)).expect("a string takes all");
    }
    assert_page(&rows(&page("hashing.md"), "| x | mix64(x) |"), &expected);
}

#[test]
fn the_page_on_hashing_has_the_right_positions() {
    let mut expected = String::new();
    let arrays = [(1, 3), (7, 3), (816, 6), (1148, 8), (143_776, 7), (1 << 40, 10)];
    for (hash, (m, k)) in
        [hash_item(b"", None), hash_item(b"item:1", None)].into_iter().flat_map(|h| arrays.map(|a| (h, a)))
    {
        let all: Vec<String> = positions(hash, m, k).map(|x| x.to_string()).collect();
        writeln!(expected, "| `{hash:016x}` | {m} | {k} | {} |", all.join(" ")).expect("a string takes all");
    }
    assert_page(&rows(&page("hashing.md"), "| h | m | k | positions |"), &expected);
}

#[track_caller]
fn assert_page(shown: &str, expected: &str) {
    assert!(shown == expected, "the page shows something else than\n{expected}");
}

fn settings(capacity: u64, error: f64, links: u16, mode: Mode) -> Settings {
    Settings { capacity, error, link_error: false, links, mode, idle: None, key: None }
}

/// Where each field of the example begins, and what it is.
const FIELDS: &[(usize, &str)] = &[
    (0, "SEENXPRT"),
    (8, "format 1, a ring, XXH3-64, by count, no clock, 0"),
    (14, "3 links"),
    (16, "2 parts"),
    (20, "0"),
    (24, "version of the filter: 1,011"),
    (32, "no slices"),
    (40, "no time"),
    (48, "capacity 20"),
    (56, "error rate 0.1"),
    (64, "newest part: slice 0"),
    (72, "71 bits"),
    (80, "a list of 1 hash"),
    (84, "5 positions, a list, 0"),
    (88, "the other: slice 0"),
    (96, "71 bits"),
    (104, "no list"),
    (108, "5 positions, bits, 0"),
    (112, "the list: the hash of k"),
    (120, "the bits"),
    (129, "checksum"),
    (137, ""),
];

/// Bytes as the page shows them.
fn shown_fields(bytes: &[u8], fields: &[(usize, &str)]) -> String {
    let mut shown = String::new();
    for field in fields.windows(2) {
        let [(from, what), (to, _)] = field else { unreachable!("windows of two") };
        let hex: Vec<String> = bytes[*from..*to].iter().map(|byte| format!("{byte:02x}")).collect();
        writeln!(shown, "{from:3}  {:29}  {what}", hex.join(" ")).expect("a string takes all");
    }
    assert_eq!(bytes.len(), fields[fields.len() - 1].0);
    shown
}

/// The example of this number on the page.
fn example(number: usize) -> String {
    let page = page("export-format.md");
    let block = page.split("```hex\n").nth(number + 1).expect("the example");
    block.split_once("```").expect("its end").0.to_owned()
}

/// The same of the export of a counting filter.
const COUNTING_FIELDS: &[(usize, &str)] = &[
    (0, "SEENXPRT"),
    (8, "format 1, counting, XXH3-64, 4 positions"),
    (12, "0"),
    (16, "version of the filter: 1,006"),
    (24, "4 items"),
    (32, "capacity 10"),
    (40, "error rate 0.05"),
    (48, "63 bits"),
    (56, "the bits"),
    (64, "checksum"),
    (72, ""),
];

#[test]
fn the_page_on_exports_shows_the_right_bytes_of_a_counting_filter() {
    let settings = counting_settings(10, 0.05, CounterBits::Four);
    let mut filter =
        CountingBloom::new(settings, settings.shape().expect("a sound rate"), 1000).expect("little memory");
    let mut filter = CountingMut::Large(&mut filter);
    for item in [b"a", b"b", b"c", b"d", b"e"] {
        filter.insert(settings.hash(item)).expect("it takes all");
    }
    assert!(filter.remove(settings.hash(b"e")));
    let bytes = counting_export::export(filter.as_ref()).expect("little memory");
    assert_page(example(1).as_str(), &shown_fields(&bytes, COUNTING_FIELDS));
    let read = ExportedCounting::read(&bytes).expect("it is sound");
    assert!([b"a", b"b", b"c", b"d"].iter().all(|item| read.contains(*item)) && !read.contains(b"e"));
}

fn counting_settings(capacity: u64, error: f64, counter_bits: CounterBits) -> counting::Settings {
    counting::Settings { capacity, error, counter_bits, strict: false, key: None }
}

/// A counting filter of so many items, half of which are gone.
fn counted(settings: counting::Settings, items: u32) -> CountingBloom {
    let mut filter = CountingBloom::new(settings, settings.shape().expect("a sound rate"), 1).expect("little memory");
    let hash = |i: u32| settings.hash(item(i).as_bytes());
    (0..items).for_each(|i| assert!(CountingMut::Large(&mut filter).insert(hash(i)).is_ok()));
    (0..items).step_by(2).for_each(|i| assert!(CountingMut::Large(&mut filter).remove(hash(i))));
    filter
}

fn counting_samples() -> Vec<(&'static str, CountingBloom)> {
    let keyed = counting::Settings { key: Some(page_key()), ..counting_settings(3000, 0.001, CounterBits::Eight) };
    vec![
        ("counting", counted(counting_settings(5000, 0.02, CounterBits::Four), 5000)),
        ("counting_keyed", counted(keyed, 4001)),
        ("counting_small", counted(counting_settings(7, 0.3, CounterBits::Four), 5)),
        ("counting_empty", counted(counting_settings(100, 0.01, CounterBits::Four), 0)),
    ]
}

#[test]
fn the_page_on_exports_shows_the_right_bytes() {
    let mut ring = Ring::new(settings(20, 0.1, 3, Mode::Count), 1000);
    for item in b'a'..=b'k' {
        let event = ring.settings.event(0, 0, None).expect("no clock");
        ring.insert(hash_item(&[item], None), event).expect("little memory");
    }
    let bytes = export(&ring, 0).expect("little memory");
    let expected = shown_fields(&bytes, FIELDS);
    assert_page(example(0).as_str(), &expected);
    let read = ExportedRing::read(&bytes).expect("it is sound");
    assert!((b'a'..=b'k').all(|item| read.contains(&[item])));
}

/// A ring with a name, the time, and the items to ask for.
fn exported(name: &str, settings: Settings, writes: u32) -> (String, Ring, u64) {
    let (mut ring, mut now) = (Ring::new(settings, 1), 1_800_000_000_000);
    for i in 0..writes {
        now += 7;
        let needs = matches!(settings.mode, Mode::Window(Window { by_events: true, .. }));
        let event = settings.event(ring.latest, now, needs.then_some(now)).expect("time goes on");
        ring.insert(hash_item(item(i).as_bytes(), settings.key.as_ref()), event).expect("little memory");
    }
    let now = settings.reading_time(ring.latest, now);
    (name.to_owned(), ring, now)
}

/// Items of all lengths for which XXH3 has another way, not only of letters.
fn item(i: u32) -> String {
    format!("né:{i}{}", "x".repeat([0, 0, 3, 12, 100, 200, 400][i as usize % 7]))
}

fn samples() -> Vec<(String, Ring, u64)> {
    let window = |bounded, by_events| Mode::Window(Window { span_ms: 20_000, bounded, by_events });
    let keyed = |settings: Settings| Settings { key: Some(page_key().map(|byte| byte ^ 0xa5)), ..settings };
    let dual = settings(2000, 0.02, 2, Mode::Dual { threshold: 0.6 });
    vec![
        exported("count", settings(3000, 0.02, 5, Mode::Count), 5000),
        exported("count_keyed", keyed(settings(3000, 0.001, 12, Mode::Count)), 5000),
        exported("lists", settings(100, 0.01, 30, Mode::Count), 97),
        exported("window", settings(4000, 0.01, 7, window(false, false)), 5000),
        exported("window_that_grew", settings(300, 0.01, 4, window(false, true)), 5000),
        exported("window_bounded_keyed", keyed(settings(2000, 0.1, 4, window(true, false))), 5000),
        exported("dual", dual, 5000),
    ]
}

#[test]
fn the_reader_in_python_answers_as_the_ring() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut forms = BTreeSet::new();
    for (name, ring, now) in samples() {
        let bytes = export(&ring, now).expect("little memory");
        let read = ExportedRing::read(&bytes).expect("its own export");
        let later = now + 2 * ring.settings.slice_ms();
        let mut answers = format!("{later}\n");
        for item in (0..10_000).map(item) {
            let hash = hash_item(item.as_bytes(), ring.settings.key.as_ref());
            let (says, would_say) = (ring.contains(hash, now), ring.contains(hash, later));
            assert_eq!((read.contains(item.as_bytes()), read.contains_at(item.as_bytes(), later)), (says, would_say));
            writeln!(answers, "{item} {} {}", u8::from(says), u8::from(would_say)).expect("a string takes all");
        }
        forms.extend(ring.alive(now).map(|part| matches!(part.store, Store::List(_))));
        fs::write(folder.path().join(format!("{name}.export")), bytes).expect("the folder takes files");
        fs::write(folder.path().join(format!("{name}.answers")), answers).expect("the folder takes files");
    }
    assert_eq!(forms.len(), 2, "lists and bits");
    let empty = empty_export(&settings(400, 0.01, 5, Mode::Count), 0).expect("little memory");
    fs::write(folder.path().join("empty.export"), empty).expect("the folder takes files");
    fs::write(folder.path().join("empty.answers"), "0\nitem 0 0\n").expect("the folder takes files");

    for (name, filter) in counting_samples() {
        let filter = CountingRef::Large(&filter);
        let bytes = counting_export::export(filter).expect("little memory");
        let read = ExportedCounting::read(&bytes).expect("its own export");
        let mut answers = String::new();
        for item in (0..10_000).map(item) {
            let says = filter.contains(filter.hash(item.as_bytes()));
            assert_eq!(read.contains(item.as_bytes()), says);
            writeln!(answers, "{item} {}", u8::from(says)).expect("a string takes all");
        }
        fs::write(folder.path().join(format!("{name}.export")), bytes).expect("the folder takes files");
        fs::write(folder.path().join(format!("{name}.answers")), answers).expect("the folder takes files");
    }

    let script = root().join("tests/clients/exports.py");
    let output = Command::new(python()).arg(script).arg(folder.path()).output().expect("Python can be run");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(said.trim(), "12 exports, 110001 items, 16 hashes: equal answers");
}

/// A server that does not know the families can step over them in a snapshot.
#[test]
fn a_checker_of_snapshots_steps_over_filters() {
    let mut file = b"REDIS0010\xfe\x00".to_vec();
    for (name, ring, _) in samples() {
        file.extend([TYPE_MODULE_2, name.len() as u8]);
        file.extend(name.as_bytes());
        let mut writer = RingWriter::new(ring);
        while !writer.step(&mut file, 4096) {}
    }
    let mut push = |name: &str, filter: CellsRef<'_>| {
        file.extend([TYPE_MODULE_2, name.len() as u8]);
        file.extend(name.as_bytes());
        push_cells(&mut file, filter, None);
    };
    for (name, filter) in counting_samples() {
        push(name, CellsRef::Counting(CountingRef::Large(&filter)));
    }
    let settings = dleft::Settings {
        capacity: 3,
        error: 0.01,
        growth: Some(dleft::Growth { factor: 2, final_capacity: 1000 }),
        subtables: 4,
        cells: 8,
        counter_bits: 2,
        spill: true,
        key: Some(page_key()),
    };
    let mut dleft = Dleft::new(settings, 1).expect("little memory");
    for hash in (0..500_u64).map(mix64).flat_map(|hash| [hash; 5]) {
        while dleft.insert(hash) == Err(dleft::Refused::NeedsGrowth) {
            dleft.grow().expect("little memory");
        }
    }
    assert!(dleft.sets().count() > 2 && !DleftRef::Large(&dleft).spilled().is_empty());
    push("dleft", CellsRef::Dleft(DleftRef::Large(&dleft)));
    file.push(0xff);
    file.extend(Crc64::of(&file).to_le_bytes());
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("dump.rdb");
    fs::write(&path, file).expect("the folder takes files");
    let output = Command::new("redis-check-rdb").arg(path).output().expect("redis-check-rdb of Debian's redis-tools");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("12 keys read"), "{said}");
}

/// A Python that has xxhash.
fn python() -> PathBuf {
    let peer = Command::new(root().join("scripts/peer")).arg("--python").stderr(Stdio::inherit()).output();
    let output = peer.expect("scripts/peer can be run");
    assert!(output.status.success(), "scripts/peer failed, see its output above");
    PathBuf::from(String::from_utf8_lossy(&output.stdout).trim_end())
}
