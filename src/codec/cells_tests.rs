//! Tests of counting and d-left filters as bytes: there and back in every form, damaged, cut off, out of turn, and while they are changed.

use std::collections::HashMap;

use super::bloom_value::ValueError;
use super::cells_dump::{CellsDump, CountingLoad, DleftLoad};
use super::cells_value::{Cells, CellsRef, CellsValue, CellsWriter, push_cells};
use super::chunks::{CHUNK_BYTES, Chunk, DumpError, LoadError};
use super::counting_export::{CountingExportWriter, ExportedCounting, empty_export, export};
use super::export_frame::ExportError;
use super::foreign;
use super::lzf::Compressor;
use super::payload::{dump_cells, restore};
use super::rdb::{Input, Reader};
use super::value::{Built, HalfCounting, HalfDleft, HalfLoaded, Load, Value, push_half_loaded};
use crate::filters::counting::{self, CounterBits, CountingBloom, CountingMut, CountingRef, MOST_FIGURE};
use crate::filters::dleft::{self, Dleft, DleftRef, Growth, Refused};

/// A filter, and how often each hash is in it.
struct Sample {
    filter: Cells,
    items: HashMap<u64, u64>,
}

impl Sample {
    fn counting(random: &mut fastrand::Rng, capacity: u64) -> Self {
        let settings = counting::Settings {
            capacity: random.u64(1..=capacity),
            error: [0.3, 0.02, 1e-6][random.usize(..3)],
            counter_bits: if random.bool() { CounterBits::Four } else { CounterBits::Eight },
            strict: random.bool(),
            key: random.bool().then(|| std::array::from_fn(|_| random.u8(..))),
        };
        let filter = CountingBloom::new(settings, settings.shape().unwrap(), random.u64(..1 << 50)).unwrap();
        Self { filter: Cells::Counting(Box::new(filter)), items: HashMap::new() }
    }

    fn dleft(random: &mut fastrand::Rng, capacity: u64) -> Self {
        let capacity = random.u64(1..=capacity);
        let growth =
            random.bool().then(|| Growth { factor: random.u32(1..4), final_capacity: capacity * random.u64(1..=4) });
        let settings = dleft::Settings {
            capacity,
            error: [0.3, 0.02, 1e-6][random.usize(..3)],
            growth,
            subtables: random.u32(2..=8),
            cells: random.u32(4..=16),
            counter_bits: [2, 4][random.usize(..2)],
            spill: random.bool(),
            key: random.bool().then(|| std::array::from_fn(|_| random.u8(..))),
        };
        let filter = Dleft::new(settings, random.u64(..)).unwrap();
        Self { filter: Cells::Dleft(Box::new(filter)), items: HashMap::new() }
    }

    fn add(&mut self, hash: u64) {
        let counted = match &mut self.filter {
            Cells::Counting(filter) => CountingMut::Large(filter).insert(hash).is_ok(),
            Cells::Dleft(filter) => loop {
                match filter.insert(hash) {
                    Err(Refused::NeedsGrowth) => filter.grow().unwrap(),
                    counted => break counted.is_ok(),
                }
            },
        };
        if counted {
            *self.items.entry(hash).or_default() += 1;
        }
    }

    fn remove(&mut self, hash: u64) {
        if !self.items.contains_key(&hash) {
            return;
        }
        let removed = match &mut self.filter {
            Cells::Counting(filter) => CountingMut::Large(filter).remove(hash),
            Cells::Dleft(filter) => filter.remove(hash).unwrap(),
        };
        assert!(removed);
        let count = self.items.get_mut(&hash).unwrap();
        *count -= 1;
        if *count == 0 {
            self.items.remove(&hash);
        }
    }

    /// Adds and removes of items out of so many.
    fn work(&mut self, random: &mut fastrand::Rng, steps: u64, items: u64) {
        for _ in 0..steps {
            let hash = hash_of(random.u64(..items));
            if random.u8(..3) == 0 { self.remove(hash) } else { self.add(hash) }
        }
    }

    fn capacity(&self) -> u64 {
        match &self.filter {
            Cells::Counting(filter) => filter.settings().capacity,
            Cells::Dleft(filter) => filter.settings().final_capacity(),
        }
    }
}

fn hash_of(item: u64) -> u64 {
    crate::filters::item_hash::hash_item(&item.to_le_bytes(), None)
}

fn sample(seed: u64, capacity: u64) -> Sample {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut sample = if seed.is_multiple_of(2) {
        Sample::counting(&mut random, capacity)
    } else {
        Sample::dleft(&mut random, capacity)
    };
    let most = sample.capacity() * 2;
    // With few different ones counters become full.
    let items = [most, most, most / 20 + 1][random.usize(..3)];
    let steps = random.u64(..=most);
    sample.work(&mut random, steps, items);
    if let Cells::Counting(filter) = &mut sample.filter
        && random.u8(..8) == 0
    {
        CountingMut::Large(filter).decay();
        sample.items.clear();
    }
    sample
}

fn samples() -> impl Iterator<Item = Sample> {
    (0..200).map(|seed| sample(seed, 300)).chain((0..10).map(|seed| sample(1000 + seed, 60_000)))
}

fn write(filter: CellsRef<'_>) -> Vec<u8> {
    let (mut writer, mut out) = (CellsWriter::new(&filter.head(), filter.spilled()), Vec::new());
    let len = writer.len();
    assert!(writer.step(&mut out, usize::MAX, |array, offset, bytes| filter.copy_bytes(array, offset, bytes)));
    assert_eq!(out.len() as u64, len);
    out
}

fn read(value: &[u8]) -> Result<Cells, ValueError> {
    let mut reader = Reader::new(value);
    let read = CellsValue::read(&mut reader)?;
    assert!(reader.rest().is_empty());
    read.build()
}

fn count(filter: CellsRef<'_>, hash: u64) -> u64 {
    match filter {
        CellsRef::Counting(filter) => filter.count(hash),
        CellsRef::Dleft(filter) => filter.count(hash),
    }
}

#[track_caller]
fn assert_sound(filter: CellsRef<'_>) {
    match filter {
        CellsRef::Counting(filter) => assert!(filter.is_sound()),
        CellsRef::Dleft(filter) => assert!(filter.is_sound()),
    }
}

#[track_caller]
fn assert_same(one: CellsRef<'_>, other: CellsRef<'_>) {
    assert_sound(other);
    assert_eq!((one.head(), one.spilled()), (other.head(), other.spilled()));
    assert!(write(one) == write(other));
}

// Values.

#[test]
fn values_come_back_as_they_were() {
    let (mut sets, mut spilled) = (0, 0);
    for Sample { filter, items } in samples() {
        let value = write(filter.as_ref());
        let loaded = read(&value).unwrap();
        assert_same(filter.as_ref(), loaded.as_ref());
        assert!(items.keys().all(|hash| count(loaded.as_ref(), *hash) == count(filter.as_ref(), *hash)));
        if let Cells::Dleft(filter) = &filter {
            sets += usize::from(filter.sets().count() > 1);
            spilled += usize::from(!DleftRef::Large(filter).spilled().is_empty());
        }
        let payload = dump_cells(filter.as_ref()).unwrap();
        let Ok(Built::Cells(restored)) = restore(&payload, u64::MAX) else { panic!("its own payload") };
        assert_same(filter.as_ref(), restored.as_ref());
        let bytes = filter.as_ref().head().bytes();
        assert!(restore(&payload, bytes).is_ok() && restore(&payload, bytes - 1).is_err());
    }
    assert!(sets > 10 && spilled > 10, "{sets} with further sets, {spilled} with entries beside their cells");
}

#[test]
fn values_are_the_same_in_steps() {
    for (seed, Sample { filter, .. }) in samples().step_by(7).enumerate() {
        let (filter, whole) = (filter.as_ref(), write(filter.as_ref()));
        let mut random = fastrand::Rng::with_seed(seed as u64);
        let (mut writer, mut out) = (CellsWriter::new(&filter.head(), filter.spilled()), Vec::new());
        let step = whole.len() / 50 + 1;
        while !writer.step(&mut out, random.usize(..=step), |array, offset, bytes| {
            filter.copy_bytes(array, offset, bytes);
        }) {}
        assert!(out == whole);
    }
}

#[test]
fn packed_filters_have_the_same_value() {
    let mut packed = [0; 2];
    for Sample { filter, .. } in samples() {
        let mut payload;
        let small = match &filter {
            Cells::Counting(filter) => {
                let nonzero = filter.figures().nonzero;
                let len = counting::packed::payload_len(filter.settings(), &filter.shape(), nonzero);
                let Some(len) = len else { continue };
                payload = vec![0xa5; len];
                counting::packed::pack(&mut payload, CountingRef::Large(filter));
                packed[0] += 1;
                CellsRef::Counting(CountingRef::Packed(counting::PackedCounting::new(&payload)))
            }
            Cells::Dleft(filter) => {
                let Some(len) = dleft::packed::packed_len(DleftRef::Large(filter)) else { continue };
                payload = vec![0xa5; len];
                dleft::packed::pack(&mut payload, DleftRef::Large(filter));
                packed[1] += 1;
                CellsRef::Dleft(DleftRef::Packed(dleft::PackedDleft::new(&payload)))
            }
        };
        let (mut plain, mut compressed) = (Vec::new(), Vec::new());
        push_cells(&mut plain, small, None);
        assert!(plain == write(filter.as_ref()));
        push_cells(&mut compressed, small, Some(&mut Compressor::default()));
        assert!(compressed.len() <= plain.len());
        assert_same(filter.as_ref(), read(&compressed).unwrap().as_ref());
    }
    assert!(packed.iter().all(|packed| *packed > 40), "{packed:?}");
}

#[test]
fn others_step_over_values_of_cells() {
    for Sample { filter, .. } in samples().step_by(11) {
        let value = write(filter.as_ref());
        let mut reader = Reader::new(&value);
        reader.length().unwrap();
        foreign::skip_module(&mut reader).unwrap();
        assert!(reader.rest().is_empty());
    }
}

/// A value has no checksum of its own: what is taken all the same must be a filter like any other.
#[test]
fn damaged_values_of_cells_are_refused_or_sound() {
    for seed in 0..40 {
        let Sample { filter, items } = sample(seed, 30);
        let mut value = write(filter.as_ref());
        for cut in 0..value.len() {
            assert!(read(&value[..cut]).is_err());
        }
        for at in 0..value.len() {
            for flip in [1, 0x80, 0xff] {
                value[at] ^= flip;
                let mut reader = Reader::new(&value);
                if let Ok(mut read) = CellsValue::read(&mut reader).and_then(CellsValue::build) {
                    assert_sound(read.as_ref());
                    match &mut read {
                        Cells::Counting(filter) => {
                            for hash in items.keys() {
                                let _ = CountingMut::Large(filter).insert(*hash);
                            }
                            for hash in items.keys() {
                                let _ = CountingMut::Large(filter).remove(*hash);
                            }
                        }
                        Cells::Dleft(filter) => {
                            for hash in items.keys() {
                                let _ = filter.insert(*hash);
                            }
                            for hash in items.keys() {
                                let _ = filter.remove(*hash);
                            }
                        }
                    }
                    assert_sound(read.as_ref());
                }
                value[at] ^= flip;
            }
        }
    }
}

// Dumps in chunks.

/// A load of either kind.
enum AnyLoad {
    Counting(HalfCounting),
    Dleft(HalfDleft),
}

macro_rules! with_load {
    ($load:expr, $half:ident => $work:expr) => {
        match $load {
            AnyLoad::Counting($half) => $work,
            AnyLoad::Dleft($half) => $work,
        }
    };
}

impl AnyLoad {
    fn begin(filter: CellsRef<'_>, header: &Chunk) -> Result<Self, LoadError> {
        Ok(match filter {
            CellsRef::Counting(_) => Self::Counting(HalfLoaded::new(header.cursor, &header.data, u64::MAX)?),
            CellsRef::Dleft(_) => Self::Dleft(HalfLoaded::new(header.cursor, &header.data, u64::MAX)?),
        })
    }

    fn take(&mut self, chunk: &Chunk) -> Result<bool, LoadError> {
        with_load!(self, half => half.load.take(chunk.cursor, &chunk.data))
    }

    /// The filter; the end is reached in steps.
    fn finish(mut self) -> Result<Cells, LoadError> {
        with_load!(&mut self, half => {
            while !half.load.finish_step(7)? {}
            Ok(half.load.take_filter().expect("it is ready"))
        })
    }
}

/// All chunks of a dump; `between` is called between two calls.
fn chunks(sample: &mut Sample, mut between: impl FnMut(&mut Sample)) -> Result<Vec<Chunk>, DumpError> {
    let (mut cursor, mut chunks) = (0, Vec::new());
    loop {
        let chunk = CellsDump::chunk(sample.filter.as_ref(), cursor)?;
        cursor = chunk.cursor;
        if cursor == 0 {
            assert!(chunk.data.is_empty());
            return Ok(chunks);
        }
        assert!(chunk.data.len() <= CHUNK_BYTES && cursor <= i64::MAX as u64);
        chunks.push(chunk);
        between(sample);
    }
}

#[test]
fn dumps_in_chunks_come_back_as_they_were() {
    for mut sample in samples() {
        let chunks = chunks(&mut sample, |_| {}).unwrap();
        let mut load = AnyLoad::begin(sample.filter.as_ref(), &chunks[0]).unwrap();
        let bytes = sample.filter.as_ref().head().bytes();
        assert_eq!(with_load!(&load, half => half.load.bytes()), bytes);
        for (i, chunk) in chunks.iter().enumerate() {
            // The header again, and each chunk twice.
            assert_eq!(load.take(chunk).unwrap(), i + 1 == chunks.len());
            assert_eq!(load.take(chunk).unwrap(), i + 1 == chunks.len());
        }
        assert_eq!(with_load!(&load, half => half.load.taken()), bytes);
        let loaded = load.finish().unwrap();
        assert_same(sample.filter.as_ref(), loaded.as_ref());
        // The last chunk once more, for the filter that is whole: it has all of it.
        for chunk in &chunks[1..] {
            assert!(CellsDump::holds(loaded.as_ref(), chunk.cursor, &chunk.data).unwrap());
        }
        assert!(!CellsDump::holds(loaded.as_ref(), chunks[0].cursor, &chunks[0].data).unwrap());
    }
}

#[test]
fn large_dumps_have_many_chunks() {
    let settings = dleft::Settings {
        capacity: 700_000,
        error: 0.001,
        growth: None,
        subtables: 4,
        cells: 8,
        counter_bits: 2,
        spill: true,
        key: None,
    };
    let filter = Cells::Dleft(Box::new(Dleft::new(settings, 5).unwrap()));
    let mut of_dleft = Sample { filter, items: HashMap::new() };
    let settings = counting::Settings {
        capacity: 700_000,
        error: 0.001,
        counter_bits: CounterBits::Four,
        strict: false,
        key: None,
    };
    let filter = CountingBloom::new(settings, settings.shape().unwrap(), 1).unwrap();
    let mut of_counting = Sample { filter: Cells::Counting(Box::new(filter)), items: HashMap::new() };
    for (sample, fewest) in [(&mut of_dleft, 3), (&mut of_counting, 5)] {
        (0..300_000).for_each(|item| sample.add(hash_of(item)));
        let mut random = fastrand::Rng::with_seed(4);
        // Those below 200,000 stay, whatever comes and goes meanwhile, also twice.
        let chunks = chunks(sample, |sample| {
            for _ in 0..50_000 {
                let hash = hash_of(random.u64(200_000..400_000));
                if random.bool() { sample.remove(hash) } else { sample.add(hash) }
            }
        })
        .unwrap();
        assert!(chunks.len() > fewest, "{} chunks", chunks.len());
        let mut load = AnyLoad::begin(sample.filter.as_ref(), &chunks[0]).unwrap();
        // Out of turn.
        let last = &chunks[chunks.len() - 1];
        assert_eq!(load.take(last), Err(LoadError::Offset { expected: chunks[1].cursor }));
        for chunk in &chunks {
            load.take(chunk).unwrap();
        }
        let loaded = load.finish().unwrap();
        assert_sound(loaded.as_ref());
        assert!((0..200_000).all(|item| count(loaded.as_ref(), hash_of(item)) >= 1));
    }
}

/// A small filter whose chunks are taken of different moments: each set and what is beside the cells are chunks of their own.
#[test]
fn dumps_under_writes_hold_what_was_in_all_the_time() {
    let (mut mended, mut ended) = (0, 0);
    for seed in 0..3000 {
        let mut sample = sample(seed, 60);
        let mut random = fastrand::Rng::with_seed(seed);
        let stays: HashMap<u64, u64> = sample.items.clone().into_iter().filter(|_| random.bool()).collect();
        let steps = random.u64(..200);
        let most = sample.capacity() * 2;
        let chunks = chunks(&mut sample, |sample| {
            for _ in 0..steps {
                let hash = hash_of(random.u64(..most));
                let may_go = sample.items.get(&hash) > stays.get(&hash);
                if random.bool() && may_go { sample.remove(hash) } else { sample.add(hash) }
            }
        });
        let Ok(chunks) = chunks else {
            ended += 1;
            continue;
        };
        let mut load = AnyLoad::begin(sample.filter.as_ref(), &chunks[0]).unwrap();
        for chunk in &chunks {
            load.take(chunk).unwrap();
        }
        let loaded = load.finish().unwrap();
        assert_sound(loaded.as_ref());
        let ceiling = match &loaded {
            Cells::Counting(filter) => filter.settings().counter_bits.ceiling(),
            Cells::Dleft(_) => u64::MAX,
        };
        for (hash, copies) in &stays {
            assert!(count(loaded.as_ref(), *hash) >= (*copies).min(ceiling), "seed {seed}");
        }
        mended += usize::from(write(loaded.as_ref()) != write(sample.filter.as_ref()));
    }
    assert!(mended > 200 && ended > 50, "{mended} of several moments, {ended} ended");
}

#[test]
fn a_change_of_shape_ends_a_dump() {
    let mut random = fastrand::Rng::with_seed(1);
    let mut counting = Sample::counting(&mut random, 300);
    counting.work(&mut random, 100, 100);
    let decay = |sample: &mut Sample| {
        if let Cells::Counting(filter) = &mut sample.filter {
            CountingMut::Large(filter).decay();
        }
    };
    assert_eq!(chunks(&mut counting, decay).unwrap_err(), DumpError::Changed);
    let merge = |sample: &mut Sample| {
        if let Cells::Counting(filter) = &mut sample.filter {
            let other = CountingRef::Large(filter).to_large().unwrap();
            CountingMut::Large(filter).merge(CountingRef::Large(&other), true).unwrap();
        }
    };
    assert_eq!(chunks(&mut counting, merge).unwrap_err(), DumpError::Changed);
    let settings = dleft::Settings {
        capacity: 10,
        error: 0.01,
        growth: Some(Growth { factor: 1, final_capacity: 100 }),
        subtables: 4,
        cells: 8,
        counter_bits: 2,
        spill: false,
        key: None,
    };
    let filter = Cells::Dleft(Box::new(Dleft::new(settings, 5).unwrap()));
    let mut dleft = Sample { filter, items: HashMap::new() };
    let grow = |sample: &mut Sample| (0..20).for_each(|item| sample.add(hash_of(item)));
    assert_eq!(chunks(&mut dleft, grow).unwrap_err(), DumpError::Changed);
    assert_eq!(CellsDump::chunk(dleft.filter.as_ref(), 77).unwrap_err(), DumpError::Changed);
}

#[test]
fn damaged_chunks_of_cells_are_refused() {
    for seed in 0..30 {
        let mut sample = sample(seed, 30);
        let chunks = chunks(&mut sample, |_| {}).unwrap();
        let filter = sample.filter.as_ref();
        for (number, chunk) in chunks.iter().enumerate() {
            for at in 0..chunk.data.len() {
                let mut damaged = chunk.clone();
                damaged.data[at] ^= 1 << (at % 8);
                if number == 0 {
                    assert_eq!(AnyLoad::begin(filter, &damaged).err(), Some(LoadError::Bad));
                    continue;
                }
                let mut load = AnyLoad::begin(filter, &chunks[0]).unwrap();
                for chunk in &chunks[..number] {
                    load.take(chunk).unwrap();
                }
                assert_eq!(load.take(&damaged), Err(LoadError::Bad));
                // As if nothing had come.
                assert!(load.take(chunk).is_ok());
            }
        }
        let limit = filter.head().bytes() - 1;
        let (cursor, header) = (chunks[0].cursor, &chunks[0].data);
        let error = match filter {
            CellsRef::Counting(_) => CountingLoad::begin(cursor, header, limit).err(),
            CellsRef::Dleft(_) => DleftLoad::begin(cursor, header, limit).err(),
        };
        assert_eq!(error, Some(LoadError::Limit { bytes: limit + 1 }));
        // The header of one kind is none of the other.
        match filter {
            CellsRef::Counting(_) => assert_eq!(DleftLoad::begin(cursor, header, u64::MAX).err(), Some(LoadError::Bad)),
            CellsRef::Dleft(_) => assert_eq!(CountingLoad::begin(cursor, header, u64::MAX).err(), Some(LoadError::Bad)),
        }
    }
}

#[test]
fn a_half_loaded_filter_is_kept_as_its_header() {
    for mut sample in samples().step_by(9) {
        let chunks = chunks(&mut sample, |_| {}).unwrap();
        let mut load = AnyLoad::begin(sample.filter.as_ref(), &chunks[0]).unwrap();
        load.take(&chunks[1]).unwrap();
        let mut value = Vec::new();
        with_load!(&load, half => push_half_loaded(&mut value, half));
        let mut reader = Reader::new(&value);
        let again = match Value::read(&mut reader).unwrap() {
            Value::HalfCounting(half) => AnyLoad::Counting(half),
            Value::HalfDleft(half) => AnyLoad::Dleft(half),
            _ => panic!("another kind"),
        };
        let mut again = again;
        assert_eq!(with_load!(&again, half => half.load.taken()), 0);
        for chunk in &chunks {
            again.take(chunk).unwrap();
        }
        assert_same(sample.filter.as_ref(), again.finish().unwrap().as_ref());
    }
}

// Exports.

#[test]
fn exports_of_counting_filters_answer_as_they_do() {
    for Sample { filter, .. } in samples() {
        let Cells::Counting(filter) = &filter else { continue };
        let filter = CountingRef::Large(filter);
        let bytes = export(filter).unwrap();
        let read = ExportedCounting::read(&bytes).unwrap();
        let (settings, figures) = (filter.settings(), filter.figures());
        assert_eq!((read.version(), read.items()), (figures.version, figures.items));
        assert_eq!((read.capacity(), read.error_rate()), (settings.capacity, settings.error));
        for item in 0..500_u64 {
            let item = item.to_le_bytes();
            assert_eq!(read.contains(&item), filter.contains(filter.hash(&item)));
        }
        for step in [1, 100] {
            let mut writer = CountingExportWriter::new(filter);
            let mut out = writer.room().unwrap();
            let room = out.capacity();
            while !writer.step(filter, &mut out, step) {}
            assert!(out == bytes && out.capacity() == room && writer.step(filter, &mut out, step));
            assert!(out == bytes, "nothing follows");
        }
        assert_eq!(ExportedCounting::read(&bytes[1..]).err(), Some(ExportError::Magic));
        let mut damaged = bytes.clone();
        for at in 8..damaged.len() {
            damaged[at] ^= 4;
            assert!(ExportedCounting::read(&damaged).is_err());
            damaged[at] ^= 4;
        }
        let empty = empty_export(&settings, filter.shape()).unwrap();
        let empty = ExportedCounting::read(&empty).unwrap();
        assert!(empty.version() == 0 && !empty.contains(b"a"));
    }
}

/// Figures at their limits stay within them whatever is done: else a file that was written could not be read.
#[test]
fn what_can_be_read_can_be_changed_and_read_again() {
    type Change = fn(&mut CountingMut<'_>);
    let changes: [Change; 5] = [
        |filter| assert!(filter.insert(hash_of(1)).is_ok()),
        |filter| assert!(filter.remove(hash_of(0))),
        |filter| filter.decay(),
        |filter| {
            let other = filter.as_ref().to_large().unwrap();
            filter.merge(CountingRef::Large(&other), true).unwrap();
        },
        |_| {},
    ];
    for (items, version) in [(MOST_FIGURE, 7), (3, MOST_FIGURE), (MOST_FIGURE, MOST_FIGURE), (1 << 62, 1 << 62)] {
        for change in changes {
            let settings = counting::Settings {
                capacity: 100,
                error: 0.01,
                counter_bits: CounterBits::Four,
                strict: false,
                key: None,
            };
            let mut filter = CountingBloom::new(settings, settings.shape().unwrap(), 1).unwrap();
            let mut filter = CountingMut::Large(&mut filter);
            assert!(filter.insert(hash_of(0)).is_ok() && filter.loaded(items, version, 15));
            change(&mut filter);
            let figures = filter.as_ref().figures();
            let read = read(&write(CellsRef::Counting(filter.as_ref()))).unwrap();
            let Cells::Counting(read) = read else { panic!("another kind") };
            assert_eq!(CountingRef::Large(&read).figures(), figures);
        }
    }
}
