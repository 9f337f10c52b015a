//! Error rates of Bloom chains, measured.
//!
//! For capacities from 50 to 1,000,000, rates from 0.25 to 1e-5 and growth 1, 2, 4: add as many items as the capacity says, then
//! go on until the chain has grown three times, and each time ask for items that were not added.
//!
//! **Against a model.** The same sizes and the same way to stretch two hashes to many positions, written down from the formulas
//! with the hashes drawn at random: what the rate has to be if Murmur is as good as random words. Both are samples; they
//! have to agree within 4 standard errors. A sample of `F` filters of true rate `f`, asked `Q` times each, has
//!
//! ```text
//! q            = 1 - e^-l,  l = hashes*items/bits               fill of a link
//! sigma_fill^2 = (e^-l - (1 + l) e^-2l) / bits
//! sigma        = rate * hashes * sigma_fill / q                 spread of a link's rate from filter to filter
//! error^2      = f(1 - f)/(F*Q) + (sum of sigma^2 over links)/F
//! ```
//!
//! **Against the rate asked for**, from 1,000 entries up: at most 5 % above, plus what double hashing adds, plus 4 standard
//! errors. Two items whose steps are equal or opposite and whose positions are `j` steps apart share all but `j` of them; the
//! others are set by chance, one in two each. Summed over `j` and both directions that makes
//!
//! ```text
//! 2 * (1 + 2*(1/2 + 1/4 + ...)) * n/bits^2 = 6 * n/bits^2      (about 7 measured; 8 allowed here)
//! ```
//!
//! It is nothing beside a rate of 0.01, but 1,000 entries at 1e-5 have a rate of 2.2e-5. RedisBloom has the same: the bits are.
//!
//! Chains that do not scale keep the 5 % too, except where the rate is a power of two: RedisBloom's constants round its hashes
//! up by one, and at 0.25 that costs 8 %. A filter counts only what it took for new, so it takes a few more items than its
//! capacity before it is full; full in that sense, the rate is higher (0.111 instead of 0.103 where 0.1 was asked for).
//!
//! Nothing that was added may be missing.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use seendb::filters::Insert;
use seendb::filters::bloom::{HashPair, Shape, options};
use seendb::filters::scalable_bloom::ScalableBloom;

const RATES: [f64; 6] = [0.25, 0.1, 0.01, 1e-3, 1e-4, 1e-5];
/// Standard errors that samples may be apart.
const BAND: f64 = 4.0;
/// Adds and queries, over all filters of a case.
const ADDS: u64 = 200_000;
const QUERIES: u64 = 400_000;

/// splitmix64: random words from a seed.
struct Words(u64);

impl Words {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// One way to a chain of filters: the library's or the model's.
trait Chain {
    fn add(&mut self, item: u64);
    fn links(&self) -> usize;
    fn items(&self) -> u64;
    fn count_present(&self, items: std::ops::Range<u64>) -> u64;
}

/// The library, with items of 16 bytes.
struct Ours {
    chain: ScalableBloom,
    seed: u64,
    added: Vec<HashPair>,
}

impl Ours {
    fn new(case: &Case, seed: u64) -> Ours {
        let options = if case.growth == 0 { options::FIXED } else { options::SCALING };
        let shape = Shape::first(case.capacity, case.rate, options).unwrap();
        Ours { chain: ScalableBloom::new(options, case.growth, shape).unwrap(), seed, added: Vec::new() }
    }

    fn hash(&self, item: u64) -> HashPair {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.seed.to_le_bytes());
        bytes[8..].copy_from_slice(&item.to_le_bytes());
        HashPair::of(&bytes)
    }

    fn check_nothing_is_missing(&self) {
        let mut out = vec![false; self.added.len()];
        self.chain.contains_many(&self.added, &mut out);
        assert!(out.into_iter().all(|found| found));
    }
}

impl Chain for Ours {
    fn add(&mut self, item: u64) {
        let pair = self.hash(item);
        self.added.push(pair);
        if self.chain.insert(pair) == Insert::NeedsGrowth {
            self.chain.push_link(self.chain.next_shape().unwrap()).unwrap();
            assert_eq!(self.chain.insert(pair), Insert::Added);
        }
    }
    fn links(&self) -> usize {
        self.chain.links().len()
    }
    fn items(&self) -> u64 {
        self.chain.items()
    }
    fn count_present(&self, items: std::ops::Range<u64>) -> u64 {
        let pairs: Vec<_> = items.map(|item| self.hash(item)).collect();
        let mut out = vec![false; pairs.len()];
        self.chain.contains_many(&pairs, &mut out);
        out.into_iter().filter(|&found| found).count() as u64
    }
}

struct ModelLink {
    entries: u64,
    rate: f64,
    hashes: u64,
    items: u64,
    bits: Vec<bool>,
}

impl ModelLink {
    fn new(entries: u64, rate: f64) -> ModelLink {
        let bits_per_entry = -rate.ln() / 0.480453013918201;
        let bits = ((entries as f64 * bits_per_entry) as usize).max(1).next_multiple_of(64);
        // Just above 1/ln 2, as RedisBloom's constants make it: a power of two takes a hash more.
        let hashes = (bits_per_entry * (std::f64::consts::LN_2 + 1e-15)).ceil() as u64;
        ModelLink { entries, rate, hashes, items: 0, bits: vec![false; bits] }
    }

    fn positions(&self, (a, b): (u64, u64)) -> impl Iterator<Item = usize> + use<> {
        let (hashes, bits) = (self.hashes, self.bits.len() as u64);
        (0..hashes).map(move |i| (a.wrapping_add(i.wrapping_mul(b)) % bits) as usize)
    }

    fn holds(&self, pair: (u64, u64)) -> bool {
        self.positions(pair).all(|x| self.bits[x])
    }

    /// Spread of the link's rate from filter to filter.
    fn sigma(&self) -> f64 {
        let (hashes, bits) = (self.hashes as f64, self.bits.len() as f64);
        let l = hashes * self.items as f64 / bits;
        let fill = 1.0 - (-l).exp();
        let sigma_fill = (((-l).exp() - (1.0 + l) * (-2.0 * l).exp()) / bits).max(0.0).sqrt();
        if fill == 0.0 { 0.0 } else { fill.powf(hashes) * hashes * sigma_fill / fill }
    }
}

/// The model, with random words as the hashes of an item.
struct Model {
    links: Vec<ModelLink>,
    growth: u64,
    seed: u64,
}

impl Model {
    fn new(case: &Case, seed: u64) -> Model {
        let rate = case.rate.min(0.25) * if case.growth == 0 { 1.0 } else { 0.5 };
        Model { links: vec![ModelLink::new(case.capacity, rate)], growth: case.growth.into(), seed }
    }

    fn hash(&self, item: u64) -> (u64, u64) {
        let mut words = Words(self.seed.wrapping_mul(0xd134_2543_de82_ef95) ^ item.wrapping_mul(0xa076_1d64_78bd_642f));
        (words.next(), words.next())
    }

    fn contains(&self, pair: (u64, u64)) -> bool {
        self.links.iter().rev().any(|link| link.holds(pair))
    }
}

impl Chain for Model {
    fn add(&mut self, item: u64) {
        let pair = self.hash(item);
        if self.contains(pair) {
            return;
        }
        let newest = &self.links[self.links.len() - 1];
        if newest.items == newest.entries {
            if self.growth == 0 {
                return;
            }
            self.links.push(ModelLink::new(newest.entries * self.growth, newest.rate / 2.0));
        }
        let newest = self.links.len() - 1;
        let link = &mut self.links[newest];
        link.positions(pair).for_each(|x| link.bits[x] = true);
        link.items += 1;
    }
    fn links(&self) -> usize {
        self.links.len()
    }
    fn items(&self) -> u64 {
        self.links.iter().map(|link| link.items).sum()
    }
    fn count_present(&self, items: std::ops::Range<u64>) -> u64 {
        items.filter(|&item| self.contains(self.hash(item))).count() as u64
    }
}

#[derive(Debug)]
struct Case {
    capacity: u64,
    rate: f64,
    /// 0 for a chain that does not scale.
    growth: u32,
}

/// The rate of a sample of filters.
#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    hits: u64,
    queries: u64,
    filters: u64,
}

impl Sample {
    fn ask(&mut self, chain: &impl Chain, queries: u64) {
        // Items that nobody adds: the upper half of the numbers.
        self.hits += chain.count_present(1 << 63..(1 << 63) + queries);
        self.queries += queries;
        self.filters += 1;
    }
    fn rate(self) -> f64 {
        self.hits as f64 / self.queries as f64
    }
    /// Squared standard error, if the true rate is `rate` and spreads by `sigma` from filter to filter.
    fn variance(self, rate: f64, sigma: f64) -> f64 {
        rate * (1.0 - rate) / self.queries as f64 + sigma * sigma / self.filters as f64
    }
}

/// Adds the first `capacity` items.
fn fill(chain: &mut impl Chain, case: &Case) {
    (0..case.capacity).for_each(|item| chain.add(item));
    assert_eq!(chain.links(), 1);
}

/// Adds further items until the chain has grown three times.
fn grow(chain: &mut impl Chain, case: &Case) {
    let (n, s) = (case.capacity, u64::from(case.growth));
    for item in n.. {
        if chain.links() == 4 {
            break;
        }
        chain.add(item);
    }
    assert_eq!(chain.items(), n * (1 + s + s * s) + 1);
}

/// The rates of a case at one of its stages, ours and the model's.
#[derive(Default)]
struct Stage {
    ours: Sample,
    model: Sample,
    /// Spread of the model's rate from filter to filter.
    sigma: f64,
    /// Most that double hashing adds to the rate.
    floor: f64,
}

impl Stage {
    fn ask(&mut self, ours: &Ours, model: &Model, queries: u64) {
        self.ours.ask(ours, queries);
        self.model.ask(model, queries);
        self.sigma = model.links.iter().map(|link| link.sigma().powi(2)).sum::<f64>().sqrt();
        self.floor = model.links.iter().map(|link| 8.0 * link.items as f64 / (link.bits.len() as f64).powi(2)).sum();
    }
}

/// Measures one case: at capacity, and three times grown.
fn check(case: Case) {
    let s = u64::from(case.growth);
    let filters = (ADDS / (case.capacity * (1 + s + s * s))).clamp(1, 400);
    let queries = QUERIES / filters;
    let (mut full, mut grown) = (Stage::default(), Stage::default());
    for seed in 1..=filters {
        let (mut ours, mut model) = (Ours::new(&case, seed), Model::new(&case, seed));
        fill(&mut ours, &case);
        fill(&mut model, &case);
        full.ask(&ours, &model, queries);
        if case.growth > 0 {
            grow(&mut ours, &case);
            grow(&mut model, &case);
            grown.ask(&ours, &model, queries);
        }
        ours.check_nothing_is_missing();
    }
    judge(&case, "at capacity", &full);
    if case.growth > 0 {
        judge(&case, "three times grown", &grown);
    }
}

fn judge(case: &Case, when: &str, stage: &Stage) {
    let &Stage { ours, model, sigma, floor } = stage;
    // Neither sample is the truth; the mean of both is the best guess, and one hit a sample the least there can be.
    let rate = ((ours.hits + model.hits).max(2) as f64) / (ours.queries + model.queries) as f64;
    let error = (ours.variance(rate, sigma) + model.variance(rate, sigma)).sqrt();
    let (measured, expected) = (ours.rate(), model.rate());
    assert!(
        (measured - expected).abs() <= BAND * error,
        "{case:?} {when}: {measured} measured, {expected} in the model, standard error {error}"
    );
    let power_of_two = case.growth == 0 && case.rate.log2().fract() == 0.0;
    if case.capacity >= 1000 && !power_of_two {
        let most = case.rate * 1.05 + floor;
        let most = most + BAND * ours.variance(most, sigma).sqrt();
        assert!(measured <= most, "{case:?} {when}: {measured} measured, {most} allowed");
    }
}

fn check_all(capacity: u64, growths: &[u32]) {
    for rate in RATES {
        growths.iter().for_each(|&growth| check(Case { capacity, rate, growth }));
    }
}

#[test]
fn rates_at_50_entries() {
    check_all(50, &[0, 1, 2, 4]);
}

#[test]
fn rates_at_100_entries() {
    check_all(100, &[0, 1, 2, 4]);
}

#[test]
fn rates_at_1000_entries() {
    check_all(1000, &[0, 1, 2, 4]);
}

#[test]
fn rates_at_10_000_entries() {
    check_all(10_000, &[0, 1, 2, 4]);
}

#[test]
fn rates_at_100_000_entries() {
    check_all(100_000, &[0, 1, 2]);
    // Two million items a rate: once at either end will do.
    [0.25, 1e-5].into_iter().for_each(|rate| check(Case { capacity: 100_000, rate, growth: 4 }));
}

#[test]
fn rates_at_1_000_000_entries() {
    check_all(1_000_000, &[0]);
    [0.25, 0.01, 1e-5].into_iter().for_each(|rate| check(Case { capacity: 1_000_000, rate, growth: 1 }));
    check(Case { capacity: 1_000_000, rate: 0.01, growth: 2 });
}
