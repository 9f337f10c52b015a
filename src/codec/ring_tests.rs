//! Tests of rings as bytes: there and back in every form, damaged, cut off, out of turn, and made up.

use super::export_frame::ExportError;
use super::foreign;
use super::lzf::Compressor;
use super::rdb::{Input, Malformed, Reader};
use super::ring_dump::{CHUNK_BYTES, DumpError, LoadError, RingDump, RingLoad};
use super::ring_export::{ExportWriter, ExportedRing, empty_export, export, export_len};
use super::ring_fields::{MOST_ITEMS, MOST_TIME};
use super::ring_value::{RingError, RingValue, RingWriter, push_packed_ring};
use crate::filters::item_hash::hash_item;
use crate::filters::ring::bits::SharedBits;
use crate::filters::ring::packed::{PackedRing, PackedRingMut, pack, packed_len};
use crate::filters::ring::settings::{MOST_CAPACITY, MOST_SPAN_MS};
use crate::filters::ring::{Event, MOST_VERSION, Mode, Part, Ring, Settings, Store, Window};

const NOW: u64 = 1_800_000_000_000;

/// A ring with what was written to it, and the time.
struct Sample {
    ring: Ring,
    items: Vec<Vec<u8>>,
    now: u64,
}

fn settings(random: &mut fastrand::Rng, capacity: u64) -> Settings {
    let span_ms = random.u64(1..=100_000);
    let mode = match random.u8(..4) {
        0 => Mode::Count,
        1 => Mode::Dual { threshold: [0.5, 0.6, 0.9][random.usize(..3)] },
        _ => Mode::Window(Window { span_ms, bounded: random.bool(), by_events: random.bool() }),
    };
    let links = if matches!(mode, Mode::Dual { .. }) { 2 } else { random.u16(2..12) };
    Settings {
        capacity: random.u64(1..=capacity),
        error: [0.3, 0.02, 1e-4, 1e-12][random.usize(..4)],
        link_error: random.bool() && links > 2,
        links,
        mode,
        idle: random.bool().then(|| random.u32(1..100_000)),
        key: random.bool().then(|| std::array::from_fn(|_| random.u8(..))),
    }
}

/// A ring of any kind that got up to twice what it is made for, in the order of a clock that goes on or jumps.
fn sample(seed: u64, capacity: u64) -> Sample {
    let mut random = fastrand::Rng::with_seed(seed);
    let settings = settings(&mut random, capacity);
    let mut ring = Ring::new(settings, random.u64(..1 << 50));
    let (mut now, mut items) = (NOW, Vec::new());
    let writes = random.u64(..=2 * settings.capacity);
    for i in 0..writes {
        now += random.u64(..=2 * settings.slice_ms().max(1) * u64::from(settings.links) / writes.max(1) + 1);
        let back = random.u64(..=settings.slice_ms());
        let item = format!("{seed}:{i}").into_bytes();
        let needs = matches!(settings.mode, Mode::Window(Window { by_events: true, .. }));
        let at = (needs || (settings.slice_ms() > 0 && random.u8(..9) == 0)).then(|| now - back);
        if let Ok(event) = settings.event(ring.latest, now, at) {
            ring.insert(hash_item(&item, settings.key.as_ref()), event).unwrap();
            items.push(item);
        }
    }
    change(&mut ring, &mut random, now);
    let now = settings.reading_time(ring.latest, now);
    Sample { ring, items, now }
}

/// What changes a ring as a whole, now and then.
fn change(ring: &mut Ring, random: &mut fastrand::Rng, clock: u64) {
    let now = ring.settings.reading_time(ring.latest, clock);
    match (ring.settings.mode, random.u8(..6)) {
        (Mode::Count | Mode::Dual { .. }, 0) => ring.rotate().unwrap(),
        (Mode::Count | Mode::Window(_), 1) => ring.set_links(random.u16(2..20), now),
        (_, 2) => {
            let other = ring.clone();
            let _ = ring.merge(&[&other], now, true);
        }
        (_, 3) if random.bool() => ring.clear(),
        _ => {}
    }
}

fn samples() -> impl Iterator<Item = Sample> {
    (0..400).map(|seed| sample(seed, 300)).chain((0..12).map(|seed| sample(1000 + seed, 60_000)))
}

fn write(ring: &Ring) -> Vec<u8> {
    let (mut writer, mut out) = (RingWriter::new(ring.clone()), Vec::new());
    assert!(writer.step(&mut out, usize::MAX));
    out
}

fn read(value: &[u8]) -> Result<Ring, RingError> {
    let mut reader = Reader::new(value);
    let read = RingValue::read(&mut reader)?;
    assert!(reader.rest().is_empty());
    read.build()
}

/// What a part holds, as bytes.
fn content(part: &Part) -> Vec<u8> {
    match &part.store {
        Store::List(hashes) => hashes.iter().flat_map(|hash| hash.to_le_bytes()).collect(),
        Store::Bits(bits) => {
            let mut bytes = vec![0; bits.len()];
            bits.copy_bytes(0, &mut bytes);
            bytes
        }
    }
}

#[track_caller]
fn assert_same(one: &Ring, other: &Ring) {
    assert_eq!((one.settings, one.latest, one.lost), (other.settings, other.latest, other.lost));
    assert_eq!((one.version, one.parts.len()), (other.version, other.parts.len()));
    for (one, other) in one.parts.iter().zip(&other.parts) {
        assert_eq!(
            (one.slice, one.growth, one.shape, one.items),
            (other.slice, other.growth, other.shape, other.items)
        );
        assert_eq!(matches!(one.store, Store::List(_)), matches!(other.store, Store::List(_)));
        assert!(content(one) == content(other));
    }
}

// Exports in steps.

#[test]
fn exports_in_steps_are_those_made_at_once() {
    let large = [sample(1003, 60_000), large_sample()];
    for (Sample { ring, now, .. }, steps) in samples().take(60).map(|sample| (sample, 1)).chain(large.map(|l| (l, 700)))
    {
        let whole = export(&ring, now).unwrap();
        for bytes in [steps, 100 * steps] {
            let mut writer = ExportWriter::new(ring.clone(), now);
            let mut out = writer.room().unwrap();
            let room = out.capacity();
            while !writer.step(&mut out, bytes) {}
            assert!(out == whole && out.capacity() == room);
            assert!(writer.step(&mut out, bytes) && out.len() == whole.len(), "nothing follows");
        }
    }
}

fn three_links(capacity: u64) -> Settings {
    Settings { capacity, error: 0.01, link_error: false, links: 3, mode: Mode::Count, idle: None, key: None }
}

/// A ring with an array that is large enough to begin with lists of bits.
fn large_sample() -> Sample {
    let settings = three_links(2_000_000);
    let (mut ring, mut items) = (Ring::new(settings, 1), Vec::new());
    for (link, many) in [30, 300, 20_000].into_iter().enumerate() {
        for i in 0..many {
            let item = format!("{link}:{i}").into_bytes();
            ring.insert(hash_item(&item, None), Event::default()).unwrap();
            items.push(item);
        }
        if link < 2 {
            ring.rotate().unwrap();
        }
    }
    Sample { ring, items, now: 0 }
}

/// What is loaded holds the same, and takes about as much memory.
#[test]
fn large_arrays_come_back_as_they_were() {
    let Sample { ring, items, .. } = large_sample();
    let loaded = read(&write(&ring)).unwrap();
    assert_same(&ring, &loaded);
    assert!(items.iter().all(|item| loaded.contains(hash_item(item, None), 0)));
    let bytes = |ring: &Ring| ring.parts.iter().map(|part| part.heap_bytes(|bytes| bytes)).collect::<Vec<_>>();
    for (own, loaded) in bytes(&ring).into_iter().zip(bytes(&loaded)) {
        assert!(loaded <= own + own / 8, "{own} {loaded}");
    }
}

// Values.

#[test]
fn ring_values_come_back_as_they_were() {
    let (mut lists, mut bits) = (0, 0);
    for Sample { ring, .. } in samples() {
        let value = write(&ring);
        let mut reader = Reader::new(&value);
        let held: u64 = ring.parts.iter().map(|part| content(part).len() as u64).sum();
        assert_eq!(RingValue::read(&mut reader).unwrap().bytes(), held);
        assert_same(&ring, &read(&value).unwrap());
        lists += ring.parts.iter().filter(|part| matches!(part.store, Store::List(_))).count();
        bits += ring.parts.iter().filter(|part| matches!(part.store, Store::Bits(_))).count();
    }
    assert!(lists > 100 && bits > 100, "{lists} lists, {bits} arrays of bits");
}

#[test]
fn ring_values_are_the_same_in_steps() {
    for (seed, Sample { ring, .. }) in samples().step_by(7).enumerate() {
        let whole = write(&ring);
        assert_eq!(RingWriter::new(ring.clone()).len(), whole.len() as u64);
        let mut random = fastrand::Rng::with_seed(seed as u64);
        let (mut writer, mut out, step) = (RingWriter::new(ring), Vec::new(), whole.len() / 50 + 1);
        loop {
            let (before, bytes) = (out.len(), random.usize(..=step));
            let done = writer.step(&mut out, bytes);
            assert!(done || (before + 1..=before + bytes + 40_000).contains(&out.len()));
            if done {
                break;
            }
        }
        assert!(out == whole);
    }
}

#[test]
fn packed_rings_have_the_same_value() {
    let mut packed = 0;
    for Sample { ring, .. } in samples() {
        let Some(len) = packed_len(&ring) else { continue };
        let mut payload = vec![0xa5; len + 13];
        pack(&ring, &mut payload);
        let (mut plain, mut compressed) = (Vec::new(), Vec::new());
        push_packed_ring(&mut plain, &payload, None);
        assert!(plain == write(&ring));
        push_packed_ring(&mut compressed, &payload, Some(&mut Compressor::default()));
        assert!(compressed.len() <= plain.len());
        assert_same(&ring, &read(&compressed).unwrap());
        packed += 1;
    }
    assert!(packed > 200);
}

#[test]
fn others_step_over_ring_values() {
    for Sample { ring, .. } in samples().step_by(11) {
        let value = write(&ring);
        let mut reader = Reader::new(&value);
        reader.length().unwrap();
        foreign::skip_module(&mut reader).unwrap();
        assert!(reader.rest().is_empty());
    }
}

/// A value has no checksum of its own: what is taken all the same must be a ring like any other.
#[test]
fn damaged_ring_values_are_refused_or_sound() {
    for seed in 0..40 {
        let Sample { ring, items, now } = sample(seed, 30);
        let mut value = write(&ring);
        for cut in 0..value.len() {
            assert!(read(&value[..cut]).is_err());
        }
        for at in 0..value.len() {
            for flip in [1, 0x80, 0xff] {
                value[at] ^= flip;
                let mut reader = Reader::new(&value);
                if let Ok(ring) = RingValue::read(&mut reader).and_then(RingValue::build) {
                    assert_same(&ring, &read(&write(&ring)).unwrap());
                    for item in &items {
                        std::hint::black_box(ring.contains(hash_item(item, None), now));
                    }
                    let _ = ring.clone().insert(7, Event { now: MOST_TIME, at: MOST_TIME });
                }
                value[at] ^= flip;
            }
        }
    }
}

/// Writes items that are numbers to a ring by count.
fn add(ring: &mut Ring, items: std::ops::Range<u64>) {
    for i in items {
        ring.insert(hash_item(&i.to_le_bytes(), None), Event::default()).unwrap();
    }
}

/// A ring by count with a list and bits.
fn plain_ring() -> Ring {
    let settings =
        Settings { capacity: 300, error: 0.02, link_error: false, links: 4, mode: Mode::Count, idle: None, key: None };
    let mut ring = Ring::new(settings, 1);
    add(&mut ring, 0..305);
    assert!(matches!(ring.parts[2].store, Store::Bits(_)) && matches!(ring.parts[3].store, Store::List(_)));
    ring
}

fn as_window(ring: &mut Ring) {
    ring.settings.mode = Mode::Window(Window { span_ms: 3000, bounded: true, by_events: false });
    ring.latest = 9000;
}

#[test]
fn rings_that_cannot_be_are_refused() {
    type Change = fn(&mut Ring);
    let whole: &[Change] = &[
        |ring| ring.settings.links = 1,
        |ring| ring.settings.links = 1025,
        |ring| ring.settings.links = 3,
        |ring| ring.settings.capacity = 0,
        |ring| ring.settings.capacity = u64::MAX,
        |ring| ring.settings.error = 1.0,
        |ring| ring.settings.error = f64::NAN,
        |ring| ring.settings.error = 1e-16,
        |ring| ring.settings.idle = Some(0),
        |ring| ring.settings.mode = Mode::Window(Window { span_ms: 0, bounded: false, by_events: false }),
        |ring| ring.settings.mode = Mode::Window(Window { span_ms: u64::MAX, bounded: false, by_events: false }),
        |ring| ring.settings.mode = Mode::Dual { threshold: 0.5 },
        |ring| ring.version = u64::MAX,
        |ring| ring.lost = 2,
        |ring| ring.parts.push_front(ring.parts[0].clone()),
    ];
    for (i, change) in whole.iter().enumerate() {
        let mut ring = plain_ring();
        change(&mut ring);
        assert_eq!(read(&write(&ring)).err(), Some(RingError::Ring), "change {i}");
        check_no_dump(&ring);
    }
    let of_parts: &[(usize, Change)] = &[
        (1, |ring| ring.parts[1].shape.hashes = 0),
        (1, |ring| ring.parts[1].shape.hashes = 128),
        (1, |ring| ring.parts[1].shape.bits = 0),
        (1, |ring| ring.parts[1].shape.capacity = 0),
        (1, |ring| ring.parts[1].items = MOST_ITEMS + 1),
        (3, |ring| ring.parts[3].shape.bits = 64),
        (3, |ring| {
            let Store::List(hashes) = &mut ring.parts[3].store else { panic!("bits") };
            hashes.swap(0, 1);
        }),
        (3, |ring| {
            let Store::List(hashes) = &mut ring.parts[3].store else { panic!("bits") };
            hashes[1] = hashes[0];
        }),
    ];
    for (i, (part, change)) in of_parts.iter().enumerate() {
        let mut ring = plain_ring();
        change(&mut ring);
        assert_eq!(read(&write(&ring)).err(), Some(RingError::Part(*part)), "change {i}");
    }
    let of_times: &[Change] = &[|ring| ring.parts[1].slice = 5, |ring| ring.parts[0].slice = MOST_TIME];
    for change in of_times {
        let mut ring = plain_ring();
        as_window(&mut ring);
        assert_same(&ring, &read(&write(&ring)).unwrap());
        change(&mut ring);
        assert!(matches!(read(&write(&ring)), Err(RingError::Part(_))));
        check_no_dump(&ring);
    }
}

/// What no value may have no dump may have.
#[track_caller]
/// Values at the limits stay within them whatever is done to them: else a file that was written could not be read.
#[test]
fn what_can_be_read_can_be_changed_and_read_again() {
    type Change = fn(&mut Ring);
    let extremes: [Change; 5] = [
        |ring| ring.version = MOST_VERSION,
        |ring| ring.settings.capacity = MOST_CAPACITY,
        |ring| {
            as_window(ring);
            ring.settings.mode = Mode::Window(Window { span_ms: MOST_SPAN_MS, bounded: false, by_events: false });
        },
        |ring| {
            ring.parts.pop_back();
            let last = ring.parts.back_mut().unwrap();
            (last.items, last.shape.capacity) = (MOST_ITEMS, 1 << 62);
        },
        |_| {},
    ];
    for (number, extreme) in extremes.into_iter().enumerate() {
        let mut ring = plain_ring();
        extreme(&mut ring);
        let ring = read(&write(&ring)).unwrap();
        let writes: [Change; 5] = [
            |ring| add(ring, 1_000_000..1_000_003),
            |ring| ring.rotate().unwrap(),
            |ring| {
                if ring.settings.with_links(1024).is_within_limits() {
                    ring.set_links(1024, ring.latest);
                }
            },
            |ring| ring.clear(),
            |ring| {
                let other = ring.clone();
                ring.merge(&[&other], ring.latest, true).unwrap();
            },
        ];
        for (index, write_some) in writes.into_iter().enumerate() {
            let mut changed = ring.clone();
            write_some(&mut changed);
            let again = read(&write(&changed)).unwrap_or_else(|error| panic!("{number}, {index}: {error}"));
            assert_same(&changed, &again);
        }
        if let Some(len) = packed_len(&ring) {
            let mut payload = vec![0; len + 64];
            pack(&ring, &mut payload);
            let _ = PackedRingMut::new(&mut payload).insert(77, Event::default());
            read(&write(&PackedRing::new(&payload).unpack().unwrap())).unwrap();
        }
    }
}

fn check_no_dump(ring: &Ring) {
    let header = RingDump::chunk(ring, 0).unwrap();
    assert_eq!(RingLoad::new(header.cursor, &header.data, u64::MAX).err(), Some(LoadError::Bad));
}

#[test]
fn bits_that_are_too_few_or_too_many_are_refused() {
    let mut ring = plain_ring();
    let part = &mut ring.parts[1];
    // Such a size is what another formula might have made.
    part.shape.bits -= 1 + (part.shape.bits - 1) % 8;
    part.shape.bits -= 3;
    let mut bits = SharedBits::zeroed(part.shape.bits).unwrap();
    bits.set(part.shape.bits - 1).unwrap();
    part.store = Store::Bits(bits);
    let (value, content) = (write(&ring), content(&ring.parts[1]));
    assert_same(&ring, &read(&value).unwrap());
    let at = value.windows(content.len()).position(|window| window == content).unwrap();
    let last = at + content.len() - 1;
    let mut padded = value.clone();
    padded[last] |= 0x80;
    assert_eq!(read(&padded).err(), Some(RingError::Part(1)));
    let mut shorter = value;
    shorter.remove(last);
    shorter[at - 1] -= 1;
    assert_eq!(read(&shorter).err(), Some(RingError::Part(1)));
}

#[test]
fn values_of_other_types_are_refused() {
    let value = write(&plain_ring());
    let mut other = value.clone();
    // The last byte of the module id has the version.
    other[8] ^= 1;
    assert_eq!(read(&other).err(), Some(RingError::Type));
    assert_eq!(read(&[&value[..9], &[0xff]].concat()).err(), Some(RingError::Malformed(Malformed)));
}

// Dumps.

fn dump(ring: &Ring) -> Vec<(u64, Vec<u8>)> {
    let (mut chunks, mut cursor) = (Vec::new(), 0);
    loop {
        let chunk = RingDump::chunk(ring, cursor).unwrap();
        cursor = chunk.cursor;
        if cursor == 0 {
            assert!(chunk.data.is_empty());
            return chunks;
        }
        assert!(cursor <= MOST_TIME && (chunks.is_empty() || chunk.data.len() <= CHUNK_BYTES));
        chunks.push((cursor, chunk.data));
    }
}

fn load(chunks: &[(u64, Vec<u8>)]) -> Result<Ring, LoadError> {
    let mut load = RingLoad::new(chunks[0].0, &chunks[0].1, u64::MAX)?;
    for (i, (cursor, data)) in chunks.iter().enumerate().skip(1) {
        assert!(!load.is_whole());
        assert_eq!(load.take(*cursor, data)?, i + 1 == chunks.len());
    }
    assert_eq!(load.taken(), load.bytes());
    Ok(load.into_ring().unwrap())
}

#[test]
fn ring_dumps_come_back_as_they_were() {
    for Sample { ring, .. } in samples() {
        assert_same(&ring, &load(&dump(&ring)).unwrap());
    }
}

/// A ring by count of about three chunks, with its bits well over half of a chunk each.
fn large_ring() -> Ring {
    let settings = three_links(1_600_000);
    let mut ring = Ring::new(settings, 1);
    add(&mut ring, 0..1_700_000);
    ring
}

#[test]
fn large_rings_are_dumped_in_chunks_under_writes() {
    let mut ring = large_ring();
    let (mut chunks, mut cursor, mut next) = (Vec::new(), 0, 1_700_000_u64);
    loop {
        let chunk = RingDump::chunk(&ring, cursor).unwrap();
        // Asking again gives the same.
        assert_eq!(RingDump::chunk(&ring, cursor).unwrap(), chunk);
        cursor = chunk.cursor;
        if cursor == 0 {
            break;
        }
        assert!(chunk.data.len() <= CHUNK_BYTES);
        chunks.push((chunk.cursor, chunk.data));
        add(&mut ring, next..next + 1000);
        next += 1000;
    }
    assert!(chunks.len() > 3, "{}", chunks.len());
    let loaded = load(&chunks).unwrap();
    assert!((0..1_700_000_u64).all(|i| loaded.contains(hash_item(&i.to_le_bytes(), None), 0)));
    assert!(loaded.items(0) > 1_700_000);
}

/// After a turn five full links look like five full links; not to a dump.
#[test]
fn a_change_of_shape_ends_a_dump() {
    let mut ring = plain_ring();
    let cursor = RingDump::chunk(&ring, 0).unwrap().cursor;
    // The list gets longer.
    add(&mut ring, 305..307);
    assert!(RingDump::chunk(&ring, cursor).is_ok());
    // It becomes bits.
    add(&mut ring, 307..387);
    assert_eq!(RingDump::chunk(&ring, cursor), Err(DumpError::Changed));
    let cursor = RingDump::chunk(&ring, 0).unwrap().cursor;
    add(&mut ring, 387..392);
    assert!(RingDump::chunk(&ring, cursor).is_ok());
    // A whole turn later everything has the sizes that it had.
    let sizes = |ring: &Ring| -> Vec<usize> { ring.parts.iter().map(|part| content(part).len()).collect() };
    let before = sizes(&ring);
    add(&mut ring, 392..494);
    assert_eq!(sizes(&ring), before);
    assert_eq!(RingDump::chunk(&ring, cursor), Err(DumpError::Changed));
    type Change = fn(&mut Ring);
    let changes: [Change; 4] =
        [|ring| ring.rotate().unwrap(), |ring| ring.set_links(5, 0), |ring| ring.set_links(3, 0), Ring::clear];
    for change in changes {
        let mut changed = ring.clone();
        let cursor = RingDump::chunk(&changed, 0).unwrap().cursor;
        change(&mut changed);
        assert_eq!(RingDump::chunk(&changed, cursor), Err(DumpError::Changed));
    }
    assert_eq!(RingDump::chunk(&ring, 77), Err(DumpError::Changed));
    // Who has the last chunk is told that it was the last, whatever became of the ring.
    let last = dump(&ring).pop().unwrap().0;
    ring.clear();
    assert_eq!(RingDump::chunk(&ring, last).unwrap().cursor, 0);
}

/// All links of a bounded window can be of one slice, and turn within it.
#[test]
fn a_bounded_window_that_turns_within_a_slice_ends_a_dump() {
    let mode = Mode::Window(Window { span_ms: 1 << 40, bounded: true, by_events: true });
    let settings = Settings { mode, links: 3, ..plain_ring().settings };
    let mut ring = Ring::new(settings, 1);
    let add = |ring: &mut Ring, items: std::ops::Range<u32>| {
        for i in items {
            let event = settings.event(ring.latest, 0, Some(NOW + u64::from(i))).unwrap();
            ring.insert(hash_item(&i.to_le_bytes(), None), event).unwrap();
        }
    };
    add(&mut ring, 0..600);
    let cursor = RingDump::chunk(&ring, 0).unwrap().cursor;
    // Time goes on, and items come again.
    ring.insert(hash_item(&599_u32.to_le_bytes(), None), Event { now: NOW + 900, at: NOW + 900 }).unwrap();
    assert!(RingDump::chunk(&ring, cursor).is_ok());
    add(&mut ring, 1000..1150);
    assert_eq!(RingDump::chunk(&ring, cursor), Err(DumpError::Changed));
}

#[test]
fn chunks_are_taken_in_turn() {
    let chunks = dump(&large_ring());
    let whole = load(&chunks).unwrap();
    let mut load = RingLoad::new(chunks[0].0, &chunks[0].1, u64::MAX).unwrap();
    assert_eq!(load.take(chunks[2].0, &chunks[2].1), Err(LoadError::Offset { expected: chunks[1].0 }));
    assert_eq!(load.take(1, &chunks[1].1), Err(LoadError::Offset { expected: chunks[1].0 }));
    assert_eq!(load.take(0, &chunks[1].1), Err(LoadError::Offset { expected: chunks[1].0 }));
    // Another chunk's cursor, other data.
    assert_eq!(load.take(chunks[1].0, &chunks[2].1), Err(LoadError::Bad));
    assert_eq!(load.take(chunks[1].0, &chunks[0].1), Err(LoadError::Bad));
    for (i, (cursor, data)) in chunks.iter().enumerate().skip(1) {
        let taken = load.taken();
        for _ in 0..2 {
            assert_eq!(load.take(*cursor, data), Ok(i + 1 == chunks.len()));
            assert!(load.taken() > taken && load.taken() <= load.bytes());
        }
        let taken = load.taken();
        for (cursor, data) in &chunks[..=i] {
            assert_eq!(load.take(*cursor, data), Ok(i + 1 == chunks.len()));
        }
        assert_eq!(load.take(chunks[0].0, &chunks[i].1), Err(LoadError::Bad));
        assert_eq!(load.taken(), taken);
    }
    assert_same(&whole, &load.into_ring().unwrap());
    let mut early = RingLoad::new(chunks[0].0, &chunks[0].1, u64::MAX).unwrap();
    early.take(chunks[1].0, &chunks[1].1).unwrap();
    assert!(early.into_ring().is_none());
    assert_eq!(RingLoad::new(chunks[1].0, &chunks[0].1, u64::MAX).err(), Some(LoadError::Bad));
    let bytes = whole.parts.iter().map(|part| part.shape.bytes()).sum();
    assert_eq!(RingLoad::new(chunks[0].0, &chunks[0].1, bytes - 1).err(), Some(LoadError::Limit { bytes }));
}

#[test]
fn damaged_ring_dumps_are_refused() {
    for seed in 0..30 {
        let ring = sample(seed, 40).ring;
        let chunks = dump(&ring);
        for (i, (_, data)) in chunks.iter().enumerate() {
            for at in 0..data.len() {
                let mut damaged = chunks.clone();
                damaged[i].1[at] ^= 1 << (at % 8);
                assert_eq!(load(&damaged).err(), Some(LoadError::Bad));
                damaged[i].1 = data[..at].to_vec();
                assert_eq!(load(&damaged).err(), Some(LoadError::Bad));
            }
            let mut longer = chunks.clone();
            longer[i].1.push(0);
            assert_eq!(load(&longer).err(), Some(LoadError::Bad));
        }
    }
}

// Exports.

#[test]
fn exports_answer_as_the_ring() {
    for Sample { ring, items, now } in samples() {
        let bytes = export(&ring, now).unwrap();
        assert_eq!(bytes.len() as u64, export_len(&ring, now));
        let exported = ExportedRing::read(&bytes).unwrap();
        let key = ring.settings.key.as_ref();
        assert_eq!((exported.version(), exported.capacity()), (ring.version, ring.settings.capacity));
        let others: Vec<Vec<u8>> = (0..2000_u32).map(|i| i.to_le_bytes().to_vec()).collect();
        let later = [1, 2, 5, 30].map(|slices| now + slices * ring.settings.slice_ms());
        for item in items.iter().chain(&others) {
            assert_eq!(exported.contains(item), ring.contains(hash_item(item, key), now));
        }
        for now in later {
            for item in items.iter().rev().take(50) {
                assert_eq!(exported.contains_at(item, now), ring.contains(hash_item(item, key), now));
            }
        }
    }
}

#[test]
fn an_export_of_nothing_says_no() {
    let settings = plain_ring().settings;
    let bytes = empty_export(&settings, NOW).unwrap();
    let exported = ExportedRing::read(&bytes).unwrap();
    assert_eq!((exported.version(), exported.contains(b"item"), bytes.len()), (0, false, 72));
    assert_eq!(ExportedRing::read(b"").err(), Some(ExportError::Magic));
    assert_eq!(ExportedRing::read(b"SEENXPRT\x01\x02").err(), Some(ExportError::Kind));
}

/// Twenty links that are wrong nine times of ten are wrong always, as far as a double can tell.
#[test]
fn the_export_of_a_ring_that_is_always_wrong_is_read() {
    let settings = Settings { error: 0.9, link_error: true, links: 20, ..plain_ring().settings };
    let bytes = empty_export(&settings, 0).unwrap();
    assert!(ExportedRing::read(&bytes).unwrap().error_rate() >= 0.9);
}

#[test]
fn damaged_exports_are_refused() {
    for seed in 0..40 {
        let Sample { ring, now, .. } = sample(seed, 40);
        let mut bytes = export(&ring, now).unwrap();
        for at in 0..bytes.len() {
            assert!(ExportedRing::read(&bytes[..at]).is_err());
            bytes[at] ^= 1 << (at % 8);
            assert!(ExportedRing::read(&bytes).is_err());
            // Also where the checksum is right again.
            let end = bytes.len() - 8;
            let kept = bytes[end..].to_vec();
            let checksum = hash_item(&bytes[..end], None).to_le_bytes();
            bytes[end..].copy_from_slice(&checksum);
            if let Ok(exported) = ExportedRing::read(&bytes) {
                std::hint::black_box((exported.contains(b"item"), exported.contains_at(b"item", MOST_TIME)));
            }
            bytes[end..].copy_from_slice(&kept);
            bytes[at] ^= 1 << (at % 8);
        }
        assert!(ExportedRing::read(&[&bytes[..], &[0]].concat()).is_err());
    }
}
