use std::collections::{BTreeSet, HashMap};

use super::*;
use crate::filters::frozen::FrozenBits;
use crate::filters::item_hash::mix64;

fn settings(capacity: u64, error: f64, bits: u32) -> Settings {
    Settings { capacity, error, counter_bits: CounterBits::new(bits).unwrap(), strict: false, key: None }
}

/// A filter in one of its forms.
enum Form {
    Packed(Vec<u8>),
    Large(CountingBloom),
}

impl Form {
    fn packed(settings: &Settings) -> Self {
        let shape = settings.shape().unwrap();
        // Not 0, as memory that is used again would be.
        let mut payload = vec![0xa5; packed::payload_len(settings, &shape, 0).unwrap()];
        packed::create(&mut payload, settings, &shape, 7);
        Self::Packed(payload)
    }

    /// With its cells in words.
    fn full(settings: &Settings) -> Self {
        let shape = settings.shape().unwrap();
        let mut payload = vec![0xa5; packed::full_len(settings, &shape).unwrap()];
        packed::create(&mut payload, settings, &shape, 7);
        Self::Packed(payload)
    }

    fn large(settings: &Settings) -> Self {
        Self::Large(CountingBloom::new(*settings, settings.shape().unwrap(), 7).unwrap())
    }

    fn both(settings: &Settings) -> Vec<Self> {
        let packs = packed::full_len(settings, &settings.shape().unwrap()).is_some();
        let packed = packs.then(|| [Self::packed(settings), Self::full(settings)]);
        packed.into_iter().flatten().chain([Self::large(settings)]).collect()
    }

    fn insert(&mut self, hash: u64) -> Result<bool, Refused> {
        match self.get_mut().insert(hash) {
            Err(Refused::NeedsRoom { payload_len }) => {
                self.give_room(payload_len);
                self.insert(hash)
            }
            answer => answer,
        }
    }

    /// Room for so many counters more.
    fn have_room(&mut self, counters: u64) {
        if let Err(Refused::NeedsRoom { payload_len }) = self.get_mut().check_room(counters) {
            self.give_room(payload_len);
        }
    }

    fn merge(&mut self, other: &Form, force: bool) -> Result<(), MergeError> {
        self.have_room(other.get().figures().nonzero);
        self.get_mut().merge(other.get(), force)
    }

    fn give_room(&mut self, payload_len: usize) {
        // A little more than it asks for, as allocators do.
        let mut payload = vec![0xa5; payload_len + payload_len % 3];
        packed::pack(&mut payload, self.get());
        *self = Self::Packed(payload);
    }

    fn get(&self) -> CountingRef<'_> {
        match self {
            Self::Packed(payload) => CountingRef::Packed(PackedCounting::new(payload)),
            Self::Large(filter) => CountingRef::Large(filter),
        }
    }

    fn get_mut(&mut self) -> CountingMut<'_> {
        match self {
            Self::Packed(payload) => CountingMut::Packed(PackedCountingMut::new(payload)),
            Self::Large(filter) => CountingMut::Large(filter),
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0xa5; self.get().shape().bytes() as usize];
        self.get().copy_bytes(0, &mut bytes);
        bytes
    }
}

/// Written down from the definition: a number for each cell, the formula for positions, no shortcuts.
struct Model {
    ceiling: u64,
    hashes: u64,
    cells: Vec<u64>,
    /// Adds of each item that were not taken back.
    live: HashMap<u64, u64>,
}

impl Model {
    fn new(shape: Shape) -> Self {
        let cells = vec![0; shape.cells as usize];
        Self { ceiling: shape.counter_bits.ceiling(), hashes: shape.hashes.into(), cells, live: HashMap::new() }
    }

    fn positions(&self, hash: u64) -> BTreeSet<usize> {
        let (mut a, mut b) = (u128::from(hash), u128::from(mix64(hash)));
        let mut positions = BTreeSet::new();
        for i in 1..=u128::from(self.hashes) {
            positions.insert(((a * self.cells.len() as u128) >> 64) as usize);
            a = (a + b) % (1 << 64);
            b = (b + i * 0x9e37_79b9_7f4a_7c15) % (1 << 64);
        }
        positions
    }

    fn count(&self, hash: u64) -> u64 {
        self.positions(hash).into_iter().map(|x| self.cells[x]).min().unwrap()
    }

    fn insert(&mut self, hash: u64) -> bool {
        let new = self.count(hash) == 0;
        for x in self.positions(hash) {
            self.cells[x] = (self.cells[x] + 1).min(self.ceiling);
        }
        *self.live.entry(hash).or_default() += 1;
        new
    }

    fn remove(&mut self, hash: u64) -> bool {
        let found = self.count(hash) > 0;
        if found {
            for x in self.positions(hash).into_iter().filter(|x| self.cells[*x] < self.ceiling).collect::<Vec<_>>() {
                self.cells[x] -= 1;
            }
            let count = self.live.get_mut(&hash).unwrap();
            *count -= 1;
            if *count == 0 {
                self.live.remove(&hash);
            }
        }
        found
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes: Vec<u8> = match self.ceiling {
            15 => {
                self.cells.chunks(2).map(|two| two.iter().rev().fold(0, |byte, cell| byte << 4 | *cell as u8)).collect()
            }
            _ => self.cells.iter().map(|cell| *cell as u8).collect(),
        };
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes
    }

    fn figures(&self) -> (u64, u64, u64) {
        let cells = |wanted: &dyn Fn(u64) -> bool| self.cells.iter().filter(|cell| wanted(**cell)).count() as u64;
        (self.live.values().sum(), cells(&|cell| cell > 0), cells(&|cell| cell == self.ceiling))
    }
}

fn check_whole(form: &Form, model: &Model) {
    let (filter, figures) = (form.get(), form.get().figures());
    assert_eq!((figures.items, figures.nonzero, figures.saturated), model.figures());
    assert!(filter.is_sound());
    assert!(form.bytes() == model.bytes());
    for (&hash, &count) in &model.live {
        assert!(filter.contains(hash), "{hash}");
        assert!(filter.count(hash) >= count.min(model.ceiling));
    }
}

/// Random adds, removes and questions; only items that are in are removed, or such as are surely not.
#[test]
fn a_multiset_is_never_undercounted() {
    let mut steps = 0;
    for (seed, capacity) in (0..).zip([1, 2, 3, 7, 20, 100, 1000, 10_000, 100_000]) {
        for (bits, copies) in [(4, 1), (4, 20), (8, 3), (8, 300)] {
            let settings = Settings { key: (bits == 8).then_some([7; 16]), ..settings(capacity, 0.02, bits) };
            for mut form in Form::both(&settings) {
                let empty = form.bytes();
                let mut model = Model::new(form.get().shape());
                let mut random = fastrand::Rng::with_seed(seed);
                // A few more than the capacity, each up to some copies.
                let universe = (capacity + capacity / 4 + 3) / copies.min(capacity / 10 + 1) + 1;
                let runs = (capacity * 4).clamp(10_000, 80_000);
                for _ in 0..runs {
                    let hash = mix64(random.u64(..universe) + 1);
                    let (live, present) = (model.live.get(&hash).copied().unwrap_or(0), form.get().contains(hash));
                    assert_eq!(present, model.count(hash) > 0);
                    match random.u8(..5) {
                        0..2 if live < copies => assert_eq!(form.insert(hash), Ok(model.insert(hash))),
                        2..4 if live > 0 || !present => {
                            let before = form.get().figures();
                            assert_eq!(form.get_mut().remove(hash), live > 0);
                            if live > 0 {
                                assert!(model.remove(hash));
                            } else {
                                assert_eq!(form.get().figures(), before);
                            }
                        }
                        _ => {
                            assert_eq!(form.get().count(hash), model.count(hash));
                            assert!(form.get().count(hash) >= live.min(model.ceiling));
                        }
                    }
                    steps += 1;
                }
                check_whole(&form, &model);
                let all: Vec<(u64, u64)> = model.live.iter().map(|(hash, count)| (*hash, *count)).collect();
                for (hash, count) in all {
                    (0..count).for_each(|_| assert!(form.get_mut().remove(hash) && model.remove(hash)));
                }
                check_whole(&form, &model);
                if form.get().figures().saturated == 0 {
                    assert!(form.bytes() == empty && form.get().figures().nonzero == 0);
                } else {
                    assert!(copies > 15);
                }
            }
        }
    }
    assert!(steps > 1_000_000, "{steps}");
}

#[test]
fn a_ceiling_means_at_least() {
    for (bits, ceiling) in [(4, 15), (8, 255)] {
        for mut form in Form::both(&settings(100, 0.001, bits)) {
            let hash = mix64(3);
            for i in 1..=300 {
                assert_eq!(form.insert(hash), Ok(i == 1));
                assert_eq!(form.get().count(hash), ceiling.min(i));
            }
            let other = mix64(4);
            assert_eq!(form.insert(other), Ok(true));
            (0..300).for_each(|_| assert!(form.get_mut().remove(hash)));
            assert_eq!(form.get().count(hash), ceiling, "stays for good");
            assert_eq!((form.get().count(other), form.get().figures().items), (1, 1));
            assert!(form.get_mut().remove(other) && !form.get_mut().remove(other));
        }
    }
}

#[test]
fn a_strict_filter_refuses_what_is_new() {
    let settings = Settings { strict: true, ..settings(50, 0.001, 4) };
    for mut form in Form::both(&settings) {
        (0..50).for_each(|i| assert_eq!(form.insert(mix64(i)), Ok(true)));
        let before = (form.bytes(), form.get().figures());
        assert_eq!(form.insert(mix64(50)), Err(Refused::Full { items: 50, capacity: 50 }));
        assert_eq!((form.bytes(), form.get().figures()), before);
        assert_eq!(form.insert(mix64(49)), Ok(false), "one that is known counts");
        assert!(form.get_mut().remove(mix64(49)) && form.get_mut().remove(mix64(48)));
        assert_eq!(form.insert(mix64(50)), Ok(true));
    }
}

/// Groups of items, of which some come twice, in a filter that does not fit into the cache and in one that does.
#[test]
fn several_items_are_one_after_the_other() {
    for capacity in [300, 300_000] {
        let settings = settings(capacity, 0.01, 4);
        let (mut one, mut many) = (Form::large(&settings), Form::large(&settings));
        let mut random = fastrand::Rng::with_seed(capacity);
        for round in 0..20 {
            let hashes: Vec<u64> =
                (0..random.usize(1..capacity as usize / 8)).map(|_| mix64(random.u64(..capacity))).collect();
            if round % 3 < 2 {
                let mut out = vec![Ok(false); hashes.len()];
                many.get_mut().insert_many(&hashes, &mut out);
                hashes.iter().zip(out).for_each(|(hash, out)| assert_eq!(one.insert(*hash), out));
            } else {
                let mut out = vec![false; hashes.len()];
                many.get_mut().remove_many(&hashes, &mut out);
                hashes.iter().zip(out).for_each(|(hash, out)| assert_eq!(one.get_mut().remove(*hash), out));
            }
            let (mut found, mut counts) = (vec![true; hashes.len()], vec![9; hashes.len()]);
            many.get().contains_many(&hashes, &mut found);
            many.get().count_many(&hashes, &mut counts);
            for ((hash, found), count) in hashes.iter().zip(found).zip(counts) {
                assert_eq!((one.get().contains(*hash), one.get().count(*hash)), (found, count));
            }
        }
        assert!(one.bytes() == many.bytes() && one.get().figures() == many.get().figures());
    }
}

#[test]
fn a_merged_filter_is_one_that_took_all() {
    for bits in [4, 8] {
        let settings = settings(1000, 0.01, bits);
        for (mut one, other) in Form::both(&settings).into_iter().zip([
            Form::large(&settings),
            Form::packed(&settings),
            Form::full(&settings),
        ]) {
            let (mut other, mut all) = (other, Form::large(&settings));
            for i in 0..800 {
                let form = if i % 2 == 0 { &mut one } else { &mut other };
                (0..=i % 3).for_each(|_| assert!(form.insert(mix64(i)).is_ok()));
                (0..=i % 3).for_each(|_| assert!(all.insert(mix64(i)).is_ok()));
            }
            let refused = MergeError::TooMany { items: 1599, capacity: 1000 };
            assert_eq!(one.merge(&other, false), Err(refused));
            one.merge(&other, true).unwrap();
            assert_eq!(one.bytes(), all.bytes());
            let (merged, all) = (one.get().figures(), all.get().figures());
            assert_eq!((merged.items, merged.nonzero, merged.saturated), (all.items, all.nonzero, all.saturated));
            assert!(one.get().is_sound());
        }
        // Saturated and something is saturated.
        let (mut one, mut other) = (Form::packed(&settings), Form::packed(&settings));
        let half = one.get().shape().counter_bits.ceiling() / 2 + 1;
        for _ in 0..half {
            one.insert(5).unwrap();
            other.insert(5).unwrap();
        }
        one.merge(&other, true).unwrap();
        assert_eq!(one.get().count(5), one.get().shape().counter_bits.ceiling());
        assert!(one.get().is_sound() && one.get().figures().saturated > 0);
    }
    let differ = |other: Settings| {
        let (one, other) = (Form::large(&settings(1000, 0.01, 4)), Form::large(&other));
        one.get().check_merge(other.get(), true).unwrap_err().to_string()
    };
    assert_eq!(differ(settings(1000, 0.004, 4)), "filters differ: hashes 7 and 8");
    assert_eq!(differ(settings(1000, 0.01, 8)), "filters differ: counter bits 4 and 8");
    assert_eq!(
        differ(Settings { key: Some([1; 16]), ..settings(1000, 0.01, 4) }),
        "filters differ: key none and its own"
    );
    assert!(differ(settings(1001, 0.01, 4)).starts_with("filters differ: cells 9"));
}

#[test]
fn a_decay_halves_every_counter() {
    for bits in [4, 8] {
        for mut form in Form::both(&settings(500, 0.01, bits)) {
            let mut model = Model::new(form.get().shape());
            for i in 0..300 {
                for _ in 0..=i % 19 {
                    assert_eq!(form.insert(mix64(i)), Ok(model.insert(mix64(i))));
                }
            }
            let version = form.get().figures().version;
            form.get_mut().decay();
            model.cells.iter_mut().for_each(|cell| *cell /= 2);
            assert!(form.bytes() == model.bytes() && form.get().is_sound());
            let figures = form.get().figures();
            let sum: u64 = model.cells.iter().sum();
            assert!(
                figures.items.abs_diff(sum / model.hashes) <= 1 && figures.saturated == 0 && figures.version > version
            );
        }
    }
}

#[test]
fn an_export_has_the_bits_of_cells_above_zero() {
    for bits in [4, 8] {
        for mut form in Form::both(&settings(777, 0.003, bits)) {
            let mut model = Model::new(form.get().shape());
            for i in 0..600 {
                form.insert(mix64(i)).unwrap();
                model.insert(mix64(i));
            }
            let mut bytes = vec![0xa5; form.get().shape().export_bytes() as usize];
            let half = bytes.len() / 2;
            form.get().export_bits(half, &mut bytes[half..]);
            form.get().export_bits(0, &mut bytes[..half]);
            for (x, cell) in model.cells.iter().enumerate() {
                assert_eq!(bytes[x / 8] >> (x % 8) & 1 != 0, *cell > 0);
            }
            assert_eq!(
                bytes.iter().map(|byte| u64::from(byte.count_ones())).sum::<u64>(),
                form.get().figures().nonzero
            );
            let estimated = form.get().items_estimated();
            assert!(estimated.abs_diff(600) < 15, "{estimated}");
        }
    }
}

/// Small filters take no more than they need: what a user with 20 items of 50 costs.
#[test]
fn a_small_filter_grows_with_its_items() {
    let settings = settings(50, 0.01, 4);
    let mut form = Form::packed(&settings);
    let length = |form: &Form| {
        let (shape, nonzero) = (form.get().shape(), form.get().figures().nonzero);
        packed::payload_len(&settings, &shape, nonzero).unwrap()
    };
    let full = packed::full_len(&settings, &form.get().shape()).unwrap();
    assert!(length(&form) < 105);
    for i in 0..200 {
        form.insert(mix64(i)).unwrap();
        match i {
            19 => assert!(length(&form) < 170, "{}", length(&form)),
            49 => assert!(length(&form) < full * 4 / 5),
            _ => {}
        }
    }
    assert_eq!(length(&form), full);
    (0..200).for_each(|i| assert!(form.get_mut().remove(mix64(i))));
    assert_eq!(form.get().figures().nonzero, 0);
}

/// From form to form, and into a new one as a loader would.
#[test]
fn a_filter_moves_between_its_forms() {
    for capacity in [50, 51, 5000] {
        moves(&Settings { strict: true, key: Some([9; 16]), ..settings(capacity, 0.01, 4) });
    }
}

fn moves(settings: &Settings) {
    let mut packed = Form::packed(settings);
    (0..settings.capacity / 2).for_each(|i| assert!(packed.insert(mix64(i)).is_ok()));
    let large = Form::Large(packed.get().to_large().unwrap());
    let mut payload =
        vec![0xa5; packed::payload_len(settings, &large.get().shape(), large.get().figures().nonzero).unwrap()];
    packed::pack(&mut payload, large.get());
    let again = Form::Packed(payload);
    assert!(again.bytes() == packed.bytes() && again.get().figures() == packed.get().figures());

    for mut loaded in Form::both(settings) {
        let bytes = packed.bytes();
        loaded.have_room(loaded.get().shape().cells);
        let half = bytes.len() / 2 + 3;
        loaded.get_mut().load_bytes(half, &bytes[half..]);
        loaded.get_mut().load_bytes(0, &bytes[..half]);
        let figures = packed.get().figures();
        assert!(loaded.get_mut().loaded(figures.items, figures.version, figures.turns));
        assert_eq!((loaded.get().figures(), loaded.get().settings()), (figures, *settings));
        assert!(loaded.bytes() == bytes);
        let end = bytes.len() - 1;
        loaded.get_mut().load_bytes(end, &[0xff]);
        // Something behind the last cell, if there is anything.
        let ends_in_word = loaded.get().shape().cells % 16 == 0;
        assert_eq!(loaded.get_mut().loaded(0, 0, 0), ends_in_word);
    }
}

/// What is read is the state at the freeze, whatever is changed before and between the reads.
#[test]
fn a_former_state_is_read_while_changes_go_on() {
    let settings = settings(200_000, 0.01, 4);
    let mut filter = CountingBloom::new(settings, settings.shape().unwrap(), 1).unwrap();
    let mut random = fastrand::Rng::with_seed(4);
    let mut change = |filter: &mut CountingBloom, count: usize| {
        let hashes: Vec<u64> = (0..count).map(|_| mix64(random.u64(..300_000))).collect();
        let mut filter = CountingMut::Large(filter);
        filter.insert_many(&hashes, &mut vec![Ok(false); count]);
        hashes.iter().filter(|hash| *hash & 4 != 0).for_each(|hash| assert!(filter.remove(*hash)));
    };
    for moment in 1..4 {
        change(&mut filter, 100_000);
        let mut bytes = vec![0; filter.array().len()];
        filter.array().copy_bytes(0, &mut bytes);
        let image = filter.freeze(moment).unwrap();
        assert!(filter.freeze(moment).is_none() && filter.moment() == moment);
        assert_eq!(image.figures, *filter.figures());
        let mut reader = FrozenBits::of(&image.cells);
        let mut read = vec![0; bytes.len()];
        for piece in read.chunks_mut(50_000) {
            change(&mut filter, 3000);
            reader.read(piece);
        }
        assert!(read == bytes);
        drop(image);
        change(&mut filter, 10);
        assert!(CountingRef::Large(&filter).is_sound());
    }
}

/// Rates at capacity, as the mean over many filters where they are small; bits by the formula.
#[test]
fn rates_and_bits_at_capacity_are_as_asked() {
    let mut random = fastrand::Rng::with_seed(77);
    for capacity in [1, 2, 3, 5, 10, 30, 100, 300, 1000, 5000, 50_000] {
        for error in [0.3, 0.05, 0.01, 0.001] {
            let settings = settings(capacity, error, 4);
            let shape = settings.shape().unwrap();
            let hashes = f64::from(shape.hashes);
            let formula = -4.0 * hashes * capacity as f64 / (-error.powf(1.0 / hashes)).ln_1p();
            let bits = shape.cells as f64 * 4.0;
            assert!(bits <= formula * 1.1 + if capacity < 1000 { 64.0 } else { 0.0 }, "{capacity} {error} {bits}");
            let filters = (30_000 / capacity).clamp(3, 1000);
            let queries = ((400.0 / error) as u64 / filters).clamp(100, 100_000);
            let mut found = 0;
            for _ in 0..filters {
                let mut form = Form::large(&settings);
                (0..capacity).for_each(|_| assert!(form.insert(random.u64(..)).is_ok()));
                found += (0..queries).filter(|_| form.get().contains(random.u64(..))).count();
            }
            let asked = (filters * queries) as f64;
            let rate = found as f64 / asked;
            // Filters of a few items differ much from each other.
            let filter_error = error * hashes / (capacity as f64 * hashes * filters as f64).sqrt();
            let spread = 4.0 * (error / asked + filter_error * filter_error).sqrt();
            let most = error * if capacity < 1000 { 1.2 } else { 1.05 };
            assert!(rate <= most + spread, "{capacity} {error}: {rate}");
            assert!(rate >= error / 1.6 - spread || capacity < 100, "{capacity} {error}: {rate}");
        }
    }
}

/// The table that an independent program measured: the mean of 30 trials within four standard errors of both.
#[test]
fn rates_are_those_of_the_table() {
    const TRIALS: u64 = 30;
    let table = include_str!("../../../tests/vectors/cbf_fpr.tsv");
    let mut random = fastrand::Rng::with_seed(5);
    for row in table.lines().filter(|line| !line.starts_with(['#', 'n'])) {
        let row: Vec<f64> = row.split('\t').map(|field| field.parse().unwrap()).collect();
        let &[items, cells, hashes, _, _, mean, sd, _, _, most, trials] = &row[..] else { panic!("{row:?}") };
        let shape = Shape { cells: cells as u64, hashes: hashes as u32, counter_bits: CounterBits::Four };
        let mut sum = 0.0;
        for _ in 0..TRIALS {
            let mut filter = CountingBloom::new(settings(49_152, 0.01, 4), shape, 0).unwrap();
            let all: Vec<u64> = (0..items as u64).map(|_| random.u64(..)).collect();
            CountingMut::Large(&mut filter).insert_many(&all, &mut vec![Ok(false); all.len()]);
            assert_eq!(filter.figures().saturated, 0);
            let queries: Vec<u64> = (0..100_000).map(|_| random.u64(..)).collect();
            let mut found = vec![false; queries.len()];
            CountingRef::Large(&filter).contains_many(&queries, &mut found);
            sum += found.iter().filter(|found| **found).count() as f64 / queries.len() as f64;
        }
        let spread = sd * (1.0 / TRIALS as f64 + 1.0 / trials).sqrt();
        assert!((sum / TRIALS as f64 - mean).abs() < 4.0 * spread, "{row:?}: {}", sum / TRIALS as f64);
        assert!(most < 15.0);
    }
}
