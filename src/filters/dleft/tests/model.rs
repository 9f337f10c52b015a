//! Random steps against an exact multiset of fingerprints: the filter has to agree with it in every answer.

use std::collections::HashMap;

use super::*;
use crate::filters::frozen::FrozenBits;
use crate::filters::item_hash::mix64;

/// Copies of each fingerprint, and of which hash one of them was: so only items that are in are removed.
struct Model {
    range: u64,
    ceiling: u64,
    copies: HashMap<u64, u64>,
    live: Vec<u64>,
}

impl Model {
    fn new(filter: DleftRef<'_>) -> Self {
        let geometry = filter.sets().next().unwrap().geometry;
        let ceiling = 1 << geometry.counter_bits;
        Self { range: geometry.buckets << geometry.fingerprint_bits, ceiling, copies: HashMap::new(), live: Vec::new() }
    }

    fn f(&self, hash: u64) -> u64 {
        ((u128::from(hash) * u128::from(self.range)) >> 64) as u64
    }

    fn count(&self, hash: u64) -> u64 {
        self.copies.get(&self.f(hash)).copied().unwrap_or(0)
    }

    fn insert(&mut self, hash: u64) {
        *self.copies.entry(self.f(hash)).or_default() += 1;
        self.live.push(hash);
    }

    fn remove(&mut self, index: usize) -> u64 {
        let hash = self.live.swap_remove(index);
        let copies = self.copies.get_mut(&self.f(hash)).unwrap();
        *copies -= 1;
        if *copies == 0 {
            self.copies.remove(&self.f(hash));
        }
        hash
    }
}

/// A filter and the model beside it.
struct Run {
    form: Form,
    model: Model,
    settings: Settings,
    random: fastrand::Rng,
    steps: u64,
    refusals: [u64; 3],
}

impl Run {
    fn new(form: Form, settings: Settings, seed: u64) -> Self {
        let model = Model::new(form.get());
        Self { form, model, settings, random: fastrand::Rng::with_seed(seed), steps: 0, refusals: [0; 3] }
    }

    /// An item that may be in: the more copies are wanted, the fewer different ones there are.
    fn hash(&mut self, universe: u64) -> u64 {
        mix64(self.random.u64(..universe) + 1)
    }

    fn add(&mut self, hash: u64) {
        self.steps += 1;
        let before = self.model.count(hash);
        let spilled = self.form.get().spilled().len() as u64;
        let may_spill = spilled < self.settings.most_spilled();
        let different = self.model.copies.len() as u64;
        let bytes = (different < 100).then(|| self.form.bytes());
        let answer = self.form.insert(hash);
        match answer {
            Ok(Inserted::New) => assert_eq!(before, 0),
            Ok(Inserted::Counted(copies)) => assert!(copies == before + 1 && before > 0),
            Err(Refused::CounterFull(copies)) => {
                assert!(copies == before && before >= self.model.ceiling && !may_spill);
                self.refusals[0] += 1;
            }
            Err(Refused::NoCell) => {
                // The capacity always fits.
                assert!(before == 0 && different >= self.settings.capacity && !may_spill);
                assert!(self.settings.growth.is_none());
                self.refusals[1] += 1;
            }
            Err(Refused::Full { items, capacity }) => {
                assert_eq!((before, items, capacity), (0, different, self.settings.final_capacity()));
                assert!(items >= capacity && self.settings.growth.is_some());
                self.refusals[2] += 1;
            }
            refused => panic!("{refused:?}"),
        }
        if answer.is_ok() {
            self.model.insert(hash);
        } else if let Some(bytes) = bytes {
            assert!(self.form.bytes() == bytes);
        }
        assert_eq!(self.form.get().count(hash), self.model.count(hash));
    }

    fn remove(&mut self) {
        self.steps += 1;
        if self.model.live.is_empty() {
            return;
        }
        let index = self.random.usize(..self.model.live.len());
        let hash = self.model.remove(index);
        assert_eq!(self.form.get_mut().remove(hash), Ok(true));
        assert_eq!(self.form.get().count(hash), self.model.count(hash));
    }

    fn ask(&mut self, universe: u64) {
        self.steps += 1;
        let hash = self.hash(universe);
        let count = self.model.count(hash);
        assert_eq!((self.form.get().contains(hash), self.form.get().count(hash)), (count > 0, count));
        if count == 0 {
            assert_eq!(self.form.get_mut().remove(hash), Ok(false));
        }
    }

    /// All that the filter tells of itself.
    fn check_whole(&self) {
        let filter = self.form.get();
        assert!(filter.is_sound());
        assert_eq!(filter.items(), self.model.live.len() as u64);
        let mut copies = HashMap::new();
        filter.entries().into_iter().for_each(|(f, count)| *copies.entry(f).or_default() += count);
        assert!(copies == self.model.copies);
        let error = self.model.copies.len() as f64 / self.model.range as f64;
        assert!((filter.error_now() - error).abs() < 1e-12);
        let (loads, used) = (filter.loads(), filter.cells_used());
        assert_eq!((0..).zip(loads).map(|(cells, buckets)| cells * buckets).sum::<u64>(), used);
        assert!(
            filter.spilled().len() as u64 <= self.settings.most_spilled() && used <= self.model.copies.len() as u64
        );
        let mut found = vec![false; self.model.live.len()];
        filter.contains_many(&self.model.live, &mut found);
        assert!(found.iter().all(|found| *found));
    }

    /// Fills the filter, keeps it there, empties it by half and fills it again, then takes all out.
    fn whole(&mut self, universe: u64, steps: u64) {
        let empty = self.form.bytes();
        for adds in [7, 4, 1, 6] {
            for _ in 0..steps / 4 {
                match self.random.u32(..10) {
                    0..2 => self.ask(universe),
                    step if step < 2 + adds => {
                        let hash = self.hash(universe);
                        self.add(hash);
                    }
                    _ => self.remove(),
                }
            }
            self.check_whole();
        }
        while !self.model.live.is_empty() {
            self.remove();
        }
        assert!(self.form.bytes() == empty, "what is left of nothing");
        assert!(self.form.get().items() == 0 && self.form.get().fullest_bucket() == 0);
        self.check_whole();
    }
}

fn shapes(capacity: u64) -> impl Iterator<Item = Settings> {
    let base = settings(capacity, 0.01);
    let growth = |factor, final_capacity| Some(Growth { factor, final_capacity });
    let spill = Settings { spill: true, ..base };
    [
        base,
        spill,
        Settings { counter_bits: 4, key: Some([3; 16]), ..base },
        Settings { subtables: 2, cells: 16, error: 1e-9, ..base },
        Settings { subtables: 8, cells: 4, counter_bits: 4, ..spill },
        Settings { subtables: 3, cells: 7, error: 0.5, ..base },
        Settings { growth: growth(2, capacity * 4), ..base },
        Settings { growth: growth(3, capacity * 2 + capacity / 2 + 1), subtables: 5, cells: 6, ..spill },
        Settings { growth: growth(1, capacity * 3), key: Some([8; 16]), error: 1e-6, ..base },
    ]
    .into_iter()
}

#[test]
fn a_multiset_is_kept_exactly() {
    let (mut steps, mut refusals) = (0, [0; 3]);
    for capacity in [1, 2, 5, 24, 100, 1000, 10_000, 100_000] {
        for (seed, settings) in (0..).zip(shapes(capacity)) {
            for form in Form::both(&settings, seed) {
                // Items come several times each, and there are too many of them.
                let universe = settings.final_capacity() + settings.final_capacity() / 2 + 3;
                let mut run = Run::new(form, settings, seed ^ capacity);
                run.whole(universe, (settings.final_capacity() * 6).clamp(2000, 40_000));
                steps += run.steps;
                refusals.iter_mut().zip(run.refusals).for_each(|(sum, more)| *sum += more);
            }
        }
    }
    assert!(steps > 1_000_000, "{steps}");
    assert!(refusals.iter().all(|count| *count > 100), "{refusals:?}");
}

/// Each shape that there is, filled to its capacity with items that are replaced for a while: nothing is refused.
#[test]
fn the_capacity_fits_in_every_shape() {
    let mut random = fastrand::Rng::with_seed(8);
    for subtables in geometry::SUBTABLES {
        for cells in geometry::CELLS {
            for capacity in [1, 10, 25, 60, 150, 400, 1500] {
                let settings = Settings { subtables, cells, ..settings(capacity, 1e-6) };
                for seed in 0..2 {
                    let mut filter = Dleft::new(settings, seed).unwrap();
                    let mut live: Vec<u64> = (0..capacity).map(|_| random.u64(..)).collect();
                    live.iter().for_each(|hash| assert!(filter.insert(*hash).is_ok()));
                    for _ in 0..capacity * 8 {
                        let hash = &mut live[random.usize(..capacity as usize)];
                        assert_eq!(filter.remove(*hash), Ok(true));
                        *hash = random.u64(..);
                        assert!(filter.insert(*hash).is_ok(), "{subtables} {cells} {capacity}");
                    }
                }
            }
        }
    }
}

/// The same for the customary shape, much longer.
#[test]
fn nothing_is_refused_in_ten_million_steps() {
    const CAPACITY: u64 = 100_000;
    const STEPS: u64 = 10_000_000;
    let mut random = fastrand::Rng::with_seed(9);
    let mut filter = Dleft::new(settings(CAPACITY, 0.01), 1).unwrap();
    let mut live: Vec<u64> = (0..CAPACITY).map(|_| random.u64(..)).collect();
    live.iter().for_each(|hash| assert!(filter.insert(*hash).is_ok()));
    for _ in 0..STEPS {
        let hash = &mut live[random.usize(..CAPACITY as usize)];
        assert_eq!(filter.remove(*hash), Ok(true));
        *hash = random.u64(..);
        assert!(filter.insert(*hash).is_ok());
    }
    live.iter().for_each(|hash| assert!(filter.contains(*hash)));
}

/// At capacity, with growth and without, and what that costs in bits.
#[test]
fn rates_at_capacity_are_as_asked() {
    let mut random = fastrand::Rng::with_seed(12);
    for capacity in [1, 2, 7, 24, 25, 100, 1000, 30_000] {
        for (error, growth) in
            [(0.3, None), (0.01, None), (0.01, Some(Growth { factor: 2, final_capacity: capacity * 16 }))]
        {
            let settings = Settings { growth, ..settings(capacity, error) };
            let filters = (20_000 / capacity).clamp(1, 300);
            let queries = 100_000 / filters;
            let mut found = 0;
            for seed in 0..filters {
                let mut form = Form::large(&settings, seed);
                (0..settings.final_capacity()).for_each(|_| assert!(form.insert(random.u64(..)).is_ok()));
                assert!(form.get().error_now() <= error * 1.000_001);
                found += (0..queries).filter(|_| form.get().contains(random.u64(..))).count();
            }
            let asked = (filters * queries) as f64;
            let spread = 4.0 * (error / asked).sqrt();
            assert!(found as f64 / asked <= error * 1.05 + spread, "{capacity} {error}");
        }
    }
}

/// Groups of items in filters that do not fit into the cache, of one set and of several, against one by one.
#[test]
fn several_items_are_one_after_the_other() {
    let grows = Some(Growth { factor: 2, final_capacity: 400_000 });
    for settings in [settings(300_000, 0.01), Settings { growth: grows, spill: true, ..settings(20_000, 0.01) }] {
        let (mut one, mut many) = (Form::large(&settings, 5), Form::large(&settings, 5));
        let mut random = fastrand::Rng::with_seed(6);
        for round in 0..12 {
            let hashes: Vec<u64> = (0..random.usize(1..60_000)).map(|_| mix64(random.u64(..300_000))).collect();
            if round % 3 < 2 {
                let mut rest = &hashes[..];
                while !rest.is_empty() {
                    let mut out = vec![Err(Refused::NoCell); rest.len()];
                    let done = many.get_mut().insert_many(rest, &mut out);
                    for (hash, out) in rest[..done].iter().zip(out) {
                        assert_eq!(one.insert(*hash), out);
                    }
                    rest = &rest[done..];
                    if let [first, behind @ ..] = rest {
                        assert_eq!(one.insert(*first), many.insert(*first));
                        rest = behind;
                    }
                }
            } else {
                let mut out = vec![false; hashes.len()];
                many.get_mut().remove_many(&hashes, &mut out).unwrap();
                for (hash, out) in hashes.iter().zip(out) {
                    assert_eq!(one.get_mut().remove(*hash), Ok(out));
                }
            }
            let (mut found, mut counts) = (vec![true; hashes.len()], vec![9; hashes.len()]);
            many.get().contains_many(&hashes, &mut found);
            many.get().count_many(&hashes, &mut counts);
            for ((hash, found), count) in hashes.iter().zip(found).zip(counts) {
                assert_eq!((one.get().contains(*hash), one.get().count(*hash)), (found, count));
            }
        }
        assert!(one.bytes() == many.bytes());
    }
}

/// From form to form, and into a new one as a loader would; what is damaged is not taken.
#[test]
fn a_filter_moves_between_its_forms() {
    let mut random = fastrand::Rng::with_seed(1);
    for settings in shapes(500) {
        let mut form = Form::large(&settings, 77);
        for _ in 0..settings.final_capacity() * 2 {
            let _ = form.insert(mix64(random.u64(..settings.final_capacity())));
        }
        let (bytes, spilled) = form.bytes();
        if let Some(length) = packed::packed_len(form.get()) {
            let mut payload = vec![0xa5; length];
            packed::pack(&mut payload, form.get());
            let packed = Form::Packed(payload);
            assert!(packed.get().is_sound() && packed.bytes() == form.bytes());
            assert_eq!((packed.get().settings(), packed.get().items()), (settings, form.get().items()));
            let large = Form::Large(packed.get().to_large().unwrap());
            assert!(large.get().is_sound() && large.bytes() == form.bytes());
        }
        let load = |bytes: &[Vec<u8>], spilled: &[Spilled]| {
            let mut loaded = Dleft::new(settings, 77).unwrap();
            for set in form.get().sets().skip(1) {
                assert!(loaded.load_set(set.capacity).unwrap());
            }
            for (i, bytes) in bytes.iter().enumerate() {
                let half = (bytes.len() / 2).next_multiple_of(8);
                loaded.load_bytes(i, half, &bytes[half..]);
                loaded.load_bytes(i, 0, &bytes[..half]);
            }
            let spilled = spilled.iter().all(|entry| loaded.load_spilled(*entry).unwrap());
            (spilled && loaded.loaded()).then_some(Form::Large(loaded))
        };
        let loaded = load(&bytes, &spilled).unwrap();
        assert!(loaded.bytes() == form.bytes() && loaded.get().items() == form.get().items());
        let mut noticed = 0;
        for _ in 0..100 {
            let mut damaged = bytes.clone();
            let byte = random.usize(..damaged[0].len());
            damaged[0][byte] ^= 1 << random.u8(..8);
            noticed += u32::from(load(&damaged, &spilled).is_none());
        }
        // A bit of a fingerprint or of a counter makes another filter that is as good; ends, and what is not in use, are noticed.
        assert!(noticed > 5, "{noticed}");
        let mut damaged = bytes.clone();
        damaged[0][0] = 0xff;
        assert!(load(&damaged, &spilled).is_none());
    }
}

/// What is read is the state at the freeze, whatever is changed before and between the reads: sets made, sets given back.
#[test]
fn a_former_state_is_read_while_changes_go_on() {
    let growth = Some(Growth { factor: 2, final_capacity: 400_000 });
    let settings = Settings { growth, spill: true, ..settings(50_000, 0.01) };
    let mut form = Form::large(&settings, 1);
    let mut random = fastrand::Rng::with_seed(4);
    let mut live: Vec<u64> = Vec::new();
    let mut change = |form: &mut Form, live: &mut Vec<u64>, adds: usize, removes: usize| {
        for _ in 0..adds {
            let hash = mix64(random.u64(..1_000_000));
            if form.insert(hash).is_ok() {
                live.push(hash);
            }
        }
        for _ in 0..removes.min(live.len()) {
            let hash = live.swap_remove(random.usize(..live.len()));
            assert_eq!(form.get_mut().remove(hash), Ok(true));
        }
    };
    for (moment, adds, removes) in [(1, 6000, 0), (2, 0, 20_000), (3, 5000, 5000), (4, 20_000, 3000)] {
        change(&mut form, &mut live, 100_000, 20_000);
        let (bytes, spilled) = form.bytes();
        let sets: Vec<SetInfo> = form.get().sets().collect();
        let Form::Large(filter) = &form else { unreachable!() };
        let image = filter.freeze(moment).unwrap();
        assert!(filter.freeze(moment).is_none() && filter.moment() == moment);
        assert!((&image.sets, image.spilled(), image.items) == (&sets, &spilled, live.len() as u64));
        let mut reader = FrozenBits::of(&image.cells);
        let mut read = vec![0; bytes.iter().map(Vec::len).sum()];
        for piece in read.chunks_mut(100_000) {
            change(&mut form, &mut live, adds, removes);
            reader.read(piece);
        }
        assert!(read == bytes.concat(), "{moment}");
        drop(image);
        change(&mut form, &mut live, 10, 10);
        assert!(form.get().is_sound());
    }
}

/// The last set gets what is left of the final capacity. When larger ones were given back, the next is as large as those were.
#[test]
fn what_was_given_back_comes_again_as_large() {
    let growth = Some(Growth { factor: 1, final_capacity: 20_001 });
    let settings = Settings { growth, ..settings(10_000, 0.01) };
    let mut filter = Dleft::new(settings, 3).unwrap();
    let add = |filter: &mut Dleft, item: u64| loop {
        match filter.insert(mix64(item)) {
            Err(Refused::NeedsGrowth) => filter.grow().unwrap(),
            answer => break answer.is_ok(),
        }
    };
    let mut held: Vec<u64> = (0..25_000).filter(|item| add(&mut filter, *item)).collect();
    assert!(held.len() >= 20_001);
    let capacities = |filter: &Dleft| filter.sets().map(|set| set.capacity).collect::<Vec<_>>();
    assert_eq!(capacities(&filter), [10_000, 10_000, 1]);
    // Until the second set is empty.
    for item in std::mem::take(&mut held) {
        if capacities(&filter).len() == 3
            && filter.locate(fingerprint(mix64(item), filter.range)).map(|at| at.set) == Some(1)
        {
            assert!(filter.remove(mix64(item)).unwrap());
        } else {
            held.push(item);
        }
    }
    assert_eq!(capacities(&filter), [10_000, 1]);
    held.extend((100_000..125_000).filter(|item| add(&mut filter, *item)));
    assert_eq!(capacities(&filter), [10_000, 1, 10_000]);
    assert!(held.len() >= 20_001 && held.iter().all(|item| filter.contains(mix64(*item))));
}

/// Small sets of filters of the strictest rates have the range of the first one.
#[test]
fn further_sets_of_any_size_reach_the_range_of_the_first() {
    let mut random = fastrand::Rng::with_seed(77);
    for error in [1e-15, 1e-12, 1e-3, 0.5, 0.99] {
        for _ in 0..2_000 {
            let (subtables, cells) = (random.u32(2..=8), random.u32(4..=16));
            let capacity = 1 << random.u32(0..40);
            let Some(first) = Geometry::sized(subtables, cells, 2, capacity, error) else { continue };
            for more in [1, 2, random.u64(1..1 << 20), capacity] {
                let further = first.further(more).unwrap();
                assert!(further.range() >= first.range() && further.buckets >= 1, "{first:?} and {more}");
            }
        }
    }
}
