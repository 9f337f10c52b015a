//! The published experiment on d-left counting filters, and a counting Bloom filter beside it; then what an operation takes.
//!
//! ```text
//! cargo bench --no-default-features --bench dleft [-- --trials 10000 --seed 1 --items 10000000]
//! ```
//!
//! A table of 4 sub-tables, 2,048 buckets, 8 cells gets 49,152 items; then 2^20 times one of them is removed and a new one added. After each
//! phase it is counted how full buckets are, how often an item was refused, and how many strangers are found. The same with
//! counting Bloom filters of equal bits and of equal rate. Beside each mean stand its standard error and the value of an independent
//! simulation (`tests/vectors`); what differs by more than four standard errors of both is marked with `!`.
//!
//! Every trial checks its answers: each remove must find its item, and all items must be found at the end. Items are random 64-bit hashes:
//! hashing is left out.

use std::time::Instant;

use seendb::filters::counting::{self, CounterBits, CountingBloom, CountingMut, CountingRef};
use seendb::filters::dleft::{self, Dleft, DleftMut, DleftRef};
use seendb::filters::item_hash::mix64;

const ITEMS: usize = 49_152;
const STEPS: usize = 1 << 20;
const QUERIES: usize = 100_000;
const BUCKETS: f64 = 8192.0;
const PHASES: [&str; 2] = ["insert_only", "steady_state"];
/// Cells and hashes of the counting filters: equal bits with both numbers of hashes, the rate of a table with 11 bits, that with 14.
const COUNTING: [(u64, u32); 4] = [(262_144, 4), (262_144, 3), (442_368, 6), (663_552, 9)];
/// Bits of an item in the article's encoding, which has no count of used cells: 4 (r + 2) / 3.
const ARTICLE_BITS_11: f64 = 52.0 / 3.0;
const ARTICLE_BITS_14: f64 = 64.0 / 3.0;
/// The rate at which the remainder has 14 bits, and 11.
const RATE_14: f64 = 0.0015;
const RATE_11: f64 = 0.011_72;

struct Options {
    trials: u64,
    seed: u64,
    /// Items of the filters that are timed; they are half full.
    items: usize,
}

impl Options {
    fn read() -> Result<Self, String> {
        let mut words = std::env::args().skip(1);
        // `cargo test --benches` runs this too: one trial shows that it works.
        let mut options = Self { trials: 1, seed: 1, items: 20_000 };
        let (mut trials, mut items) = (None, None);
        while let Some(word) = words.next() {
            let mut number = || {
                let value = words.next().and_then(|value| value.parse().ok()).filter(|value| *value > 0);
                value.ok_or(format!("{word} needs a number above 0"))
            };
            match &word[..] {
                "--bench" => (options.trials, options.items) = (100, 10_000_000),
                "--trials" => trials = Some(number()?),
                "--seed" => options.seed = number()?,
                "--items" => items = Some((number()? as usize).max(100)),
                _ => return Err(format!("'{word}' is not --trials, --seed or --items")),
            }
        }
        options.trials = trials.unwrap_or(options.trials);
        options.items = items.unwrap_or(options.items);
        Ok(options)
    }
}

/// Mean and spread of what was measured so far.
#[derive(Clone, Copy, Default)]
struct Mean {
    count: f64,
    mean: f64,
    squares: f64,
}

impl Mean {
    fn add(&mut self, value: f64) {
        self.count += 1.0;
        let off = value - self.mean;
        self.mean += off / self.count;
        self.squares += off * (value - self.mean);
    }

    /// The standard error of the mean.
    fn error(&self) -> f64 {
        if self.count > 1.0 { (self.squares / (self.count - 1.0) / self.count).sqrt() } else { f64::NAN }
    }
}

/// A value to compare with, its spread between trials, and of how many trials it is.
#[derive(Clone, Copy)]
struct Reference {
    mean: f64,
    sd: f64,
    trials: f64,
}

fn rows(table: &str) -> impl Iterator<Item = Vec<&str>> {
    table.lines().filter(|line| !line.starts_with('#')).skip(1).map(|line| line.split('\t').collect())
}

fn number(field: &str) -> f64 {
    field.parse().unwrap_or(f64::NAN)
}

fn load_reference(phase: usize, cells: usize) -> Option<Reference> {
    let mut rows = rows(include_str!("../tests/vectors/dlcbf_load.tsv"));
    let row = rows.find(|row| row[..3] == [PHASES[phase], "all", &cells.to_string()])?;
    Some(Reference { mean: number(row[3]), sd: number(row[4]), trials: 10_000.0 })
}

fn summary_reference(name: &str, phase: usize) -> Option<Reference> {
    let name = format!("{name}_{}", PHASES[phase]);
    let row = rows(include_str!("../tests/vectors/dlcbf_summary.tsv")).find(|row| row[0] == name)?;
    let mean = number(row[1]);
    // Pairs of items that share a cell are about Poisson.
    let sd = row[2].parse().unwrap_or((ITEMS as f64 - mean).sqrt());
    Some(Reference { mean, sd, trials: number(row[5]) })
}

fn counting_reference((cells, hashes): (u64, u32)) -> Option<Reference> {
    let mut rows = rows(include_str!("../tests/vectors/cbf_fpr.tsv"));
    let row = rows.find(|row| row[1..3] == [cells.to_string(), hashes.to_string()])?;
    Some(Reference { mean: number(row[5]), sd: number(row[6]), trials: number(row[10]) })
}

/// What one phase of all trials gave.
#[derive(Clone, Copy, Default)]
struct Phase {
    loads: [Mean; 9],
    cells: Mean,
    rate: Mean,
    fullest: u32,
}

#[derive(Default)]
struct Measured {
    phases: [Phase; 2],
    bucket_refusals: u64,
    counter_refusals: u64,
    /// The rate of a table with 11 bits a remainder.
    rate_11: Mean,
    counting: [Mean; 4],
    saturated: u64,
}

/// Random hashes.
struct Hashes(u64);

impl Hashes {
    fn next(&mut self) -> u64 {
        self.0 += 1;
        mix64(mix64(self.0))
    }

    fn take(&mut self, count: usize) -> Vec<u64> {
        (0..count).map(|_| self.next()).collect()
    }
}

fn dleft_settings(capacity: u64, error: f64) -> dleft::Settings {
    dleft::Settings { capacity, error, growth: None, subtables: 4, cells: 8, counter_bits: 2, spill: false, key: None }
}

fn counting_settings(capacity: u64, error: f64) -> counting::Settings {
    counting::Settings { capacity, error, counter_bits: CounterBits::Four, strict: false, key: None }
}

/// The share of strangers that are found.
fn rate(hashes: &mut Hashes, contains: impl FnOnce(&[u64], &mut [bool])) -> f64 {
    let strangers = hashes.take(QUERIES);
    let mut found = vec![false; QUERIES];
    contains(&strangers, &mut found);
    found.iter().filter(|found| **found).count() as f64 / QUERIES as f64
}

impl Measured {
    fn add(&mut self, filter: &mut Dleft, hash: u64) {
        match filter.insert(hash) {
            Ok(_) => {}
            Err(dleft::Refused::CounterFull(_)) => self.counter_refusals += 1,
            Err(_) => self.bucket_refusals += 1,
        }
    }

    fn look(&mut self, phase: usize, filter: &Dleft, hashes: &mut Hashes) {
        let filter = DleftRef::Large(filter);
        let phase = &mut self.phases[phase];
        for (mean, buckets) in phase.loads.iter_mut().zip(filter.loads()) {
            mean.add(buckets as f64 / BUCKETS);
        }
        phase.cells.add(filter.cells_used() as f64);
        phase.fullest = phase.fullest.max(filter.fullest_bucket());
        phase.rate.add(rate(hashes, |strangers, found| filter.contains_many(strangers, found)));
    }

    /// Fill, look, replace, look.
    fn dleft_trial(&mut self, seed: u64, hashes: &mut Hashes) {
        let mut filter = Dleft::new(dleft_settings(ITEMS as u64, RATE_14), seed).expect("memory");
        let mut live = hashes.take(ITEMS);
        live.iter().for_each(|hash| self.add(&mut filter, *hash));
        self.look(0, &filter, hashes);
        for _ in 0..STEPS {
            let index = ((u128::from(hashes.next()) * ITEMS as u128) >> 64) as usize;
            let gone = std::mem::replace(&mut live[index], hashes.next());
            assert_eq!(filter.remove(gone), Ok(true), "an item was lost");
            self.add(&mut filter, live[index]);
        }
        self.look(1, &filter, hashes);
        let refused = self.bucket_refusals + self.counter_refusals;
        let found = live.iter().filter(|hash| filter_has(&filter, **hash)).count() as u64;
        assert!(found + refused >= ITEMS as u64, "an item is not found");

        let mut filter = Dleft::new(dleft_settings(ITEMS as u64, RATE_11), seed).expect("memory");
        hashes.take(ITEMS).iter().for_each(|hash| self.add(&mut filter, *hash));
        self.rate_11.add(rate(hashes, |strangers, found| DleftRef::Large(&filter).contains_many(strangers, found)));
    }

    fn counting_trial(&mut self, hashes: &mut Hashes) {
        for (mean, (cells, count)) in self.counting.iter_mut().zip(COUNTING) {
            let shape = counting::Shape { cells, hashes: count, counter_bits: CounterBits::Four };
            let settings = counting_settings(ITEMS as u64, RATE_14);
            let mut filter = CountingBloom::new(settings, shape, 0).expect("memory");
            CountingMut::Large(&mut filter).insert_many(&hashes.take(ITEMS), &mut vec![Ok(false); ITEMS]);
            self.saturated += filter.figures().saturated;
            let filter = CountingRef::Large(&filter);
            mean.add(rate(hashes, |strangers, found| filter.contains_many(strangers, found)));
        }
    }
}

fn filter_has(filter: &Dleft, hash: u64) -> bool {
    DleftRef::Large(filter).contains(hash)
}

fn measure(options: &Options) -> Measured {
    const WIDTH: u64 = 40;
    let mut measured = Measured::default();
    let start = Instant::now();
    for trial in 0..options.trials {
        let mut hashes = Hashes(mix64(options.seed << 32 ^ trial));
        measured.dleft_trial(mix64(options.seed ^ trial), &mut hashes);
        measured.counting_trial(&mut hashes);
        let (done, trials) = (trial + 1, options.trials);
        let bar = "#".repeat((WIDTH * done / trials) as usize);
        let left = start.elapsed().as_secs_f64() / done as f64 * (trials - done) as f64;
        eprint!("\r[{bar:<40}] {done} of {trials} trials, {left:.0} s left   ");
    }
    eprint!("\r{:90}\r", "");
    measured
}

/// One line: what was measured, with its standard error, beside the reference; a mark if they differ.
fn compared(measured: &Mean, reference: Option<Reference>, digits: usize) -> String {
    let own = format!("{:>12.digits$} ({:.digits$})", measured.mean, measured.error());
    let Some(Reference { mean, sd, trials }) = reference else { return own };
    let (se, error) = (sd / trials.sqrt(), measured.error());
    // What never happened in so many trials may happen once.
    let least = 10.0_f64.powi(-(digits as i32)) / 2.0;
    let both = (error * error + se * se).sqrt().max(sd / measured.count.sqrt()).max(least);
    let off = (measured.mean - mean).abs() / both;
    let mark = if off > 4.0 { "  !" } else { "" };
    format!("{own}   {mean:>12.digits$} ({se:.digits$})   {off:>4.1}{mark}")
}

fn print_dleft(measured: &Measured, trials: u64) {
    println!("d-left, 4 x 2048 x 8 cells of 14 + 2 bits, {ITEMS} items, {trials} trials\n");
    println!("{:<22} {:>12} {:<12} {:>12} {:<12} {:>4}", "", "mean", "(error)", "reference", "(error)", "off");
    for (phase, name) in ["after the adds", "after 2^20 replacements"].into_iter().enumerate() {
        println!("{name}");
        let found = &measured.phases[phase];
        for (cells, mean) in found.loads.iter().enumerate() {
            println!("{:<22} {}", format!("  {cells} cells used"), compared(mean, load_reference(phase, cells), 8));
        }
        let cells = compared(&found.cells, summary_reference("occupied_cells", phase), 2);
        println!("{:<22} {cells}", "  cells used in all");
        println!("{:<22} {}", "  rate", compared(&found.rate, summary_reference("fpr", phase), 8));
        println!("  fullest bucket         {}", found.fullest);
    }
    let (buckets, counters) = (measured.bucket_refusals, measured.counter_refusals);
    println!(
        "refused by buckets {buckets}, by counters {counters}; reference 0 and 0; lost 0 or this would have stopped\n"
    );
}

fn print_counting(measured: &Measured) {
    let geometry = |rate: f64| dleft_settings(ITEMS as u64, rate).geometry().expect("a shape");
    let bits = |rate: f64| geometry(rate).bytes() as f64 * 8.0 / ITEMS as f64;
    println!("counting Bloom filters with counters of 4 bits, as many items\n");
    println!(
        "{:<22} {:>12} {:<12} {:>12} {:<12} {:>4}",
        "cells, hashes, bits", "rate", "(error)", "reference", "(error)", "off"
    );
    for (mean, (cells, hashes)) in measured.counting.iter().zip(COUNTING) {
        let name = format!("{cells} {hashes} {:.2}", cells as f64 * 4.0 / ITEMS as f64);
        println!("{name:<22} {}", compared(mean, counting_reference((cells, hashes)), 8));
    }
    println!("counters at 15: {}; reference 0\n", measured.saturated);
    let exact = 1.0 - (-(ITEMS as f64) / geometry(RATE_11).range() as f64).exp();
    let formula = Reference { mean: exact, sd: (exact / QUERIES as f64).sqrt(), trials: f64::INFINITY };
    println!("d-left, r = 11          {}", compared(&measured.rate_11, Some(formula), 8));
    let [equal_bits, _, nine, more] = measured.counting.map(|mean| mean.mean);
    let rate_14 = measured.phases[0].rate.mean;
    println!("\nbits an item, d-left to counting           the article's   with counts of used cells   reference");
    for (name, article, rate, counting, reference) in [
        ("r = 11 to 9 counters, k = 6", ARTICLE_BITS_11, RATE_11, 36.0, 0.481),
        ("r = 14 to 13.5 counters, k = 9", ARTICLE_BITS_14, RATE_14, 54.0, 0.395),
    ] {
        println!("  {name:<40} {:>13.3} {:>27.3} {reference:>11}", article / counting, bits(rate) / counting);
    }
    println!("rates, counting to d-left                        measured                               reference");
    for (name, ratio, reference) in [
        ("equal bits, k = 4, to r = 14", equal_bits / rate_14, 52.9),
        ("9 counters, k = 6, to r = 11", nine / measured.rate_11.mean, 1.139),
        ("13.5 counters, k = 9, to r = 14", more / rate_14, 1.045),
    ] {
        println!("  {name:<40} {ratio:>13.3} {:>27} {reference:>11}", "");
    }
    println!();
}

/// What a filter at its capacity takes beside a counting Bloom filter of the same true rate, and what growth adds.
fn print_memory(seed: u64) {
    const CAPACITY: u64 = 100_000;
    let growth = dleft::Growth { factor: 2, final_capacity: 16 * CAPACITY };
    println!("bits an item at capacity, by the bytes really held\n");
    println!(
        "{:>6} {:>10} {:>7} {:>7} {:>6}   {:>26}",
        "asked", "true rate", "CBF", "DLCBF", "ratio", "grown 16-fold, by doubling"
    );
    for error in [0.05, 0.01, 0.001, 0.0001] {
        let settings = dleft_settings(CAPACITY, error);
        let geometry = settings.geometry().expect("a shape");
        let rate = CAPACITY as f64 / geometry.range() as f64;
        let shape = counting_settings(CAPACITY, rate).shape().expect("a shape");
        let [counting, dleft] = [shape.bytes(), geometry.bytes()].map(|bytes| bytes as f64 * 8.0 / CAPACITY as f64);
        let mut filter = Dleft::new(dleft::Settings { growth: Some(growth), ..settings }, seed).expect("memory");
        let mut hashes = Hashes(mix64(seed));
        while filter.sets().map(|set| set.capacity).sum::<u64>() < growth.final_capacity {
            if filter.insert(hashes.next()) == Err(dleft::Refused::NeedsGrowth) {
                filter.grow().expect("memory");
            }
        }
        let grown = filter.sets().map(|set| set.geometry.bytes()).sum::<u64>() as f64 * 8.0;
        let grown = grown / growth.final_capacity as f64;
        let ratio = dleft / counting;
        println!("{error:>6} {rate:>10.6} {counting:>7.2} {dleft:>7.2} {ratio:>6.3}   {grown:>26.2}");
    }
    println!();
}

/// Nanoseconds of one operation: the best of some rounds over as many different items, since other programs only add to it.
fn nanoseconds(items: &[u64], mut work: impl FnMut(&[u64])) -> f64 {
    const ROUNDS: usize = 5;
    let timed = |items: &[u64]| {
        let start = Instant::now();
        work(items);
        start.elapsed().as_nanos() as f64 / items.len() as f64
    };
    items.chunks(items.len().div_ceil(ROUNDS)).map(timed).fold(f64::INFINITY, f64::min)
}

/// A filter that is timed: what it does to items one by one, and to all of them in groups.
trait Timed {
    fn insert(&mut self, hash: u64);
    fn remove(&mut self, hash: u64);
    fn contains(&self, hash: u64) -> bool;
    fn insert_all(&mut self, hashes: &[u64]);
    fn remove_all(&mut self, hashes: &[u64]);
    fn contains_all(&self, hashes: &[u64], out: &mut [bool]);
}

impl Timed for Dleft {
    fn insert(&mut self, hash: u64) {
        Dleft::insert(self, hash).expect("room");
    }

    fn remove(&mut self, hash: u64) {
        assert_eq!(Dleft::remove(self, hash), Ok(true));
    }

    fn contains(&self, hash: u64) -> bool {
        filter_has(self, hash)
    }

    fn insert_all(&mut self, hashes: &[u64]) {
        let mut out = vec![Ok(dleft::Inserted::New); hashes.len()];
        DleftMut::Large(self).insert_many(hashes, &mut out);
        assert!(out.iter().all(Result::is_ok));
    }

    fn remove_all(&mut self, hashes: &[u64]) {
        let mut out = vec![false; hashes.len()];
        DleftMut::Large(self).remove_many(hashes, &mut out).expect("memory");
        assert!(out.iter().all(|removed| *removed));
    }

    fn contains_all(&self, hashes: &[u64], out: &mut [bool]) {
        DleftRef::Large(self).contains_many(hashes, out);
    }
}

impl Timed for CountingBloom {
    fn insert(&mut self, hash: u64) {
        CountingMut::Large(self).insert(hash).expect("not strict");
    }

    fn remove(&mut self, hash: u64) {
        assert!(CountingMut::Large(self).remove(hash));
    }

    fn contains(&self, hash: u64) -> bool {
        CountingRef::Large(self).contains(hash)
    }

    fn insert_all(&mut self, hashes: &[u64]) {
        CountingMut::Large(self).insert_many(hashes, &mut vec![Ok(false); hashes.len()]);
    }

    fn remove_all(&mut self, hashes: &[u64]) {
        let mut out = vec![false; hashes.len()];
        CountingMut::Large(self).remove_many(hashes, &mut out);
        assert!(out.iter().all(|removed| *removed));
    }

    fn contains_all(&self, hashes: &[u64], out: &mut [bool]) {
        CountingRef::Large(self).contains_many(hashes, out);
    }
}

/// One line of times: of a filter that is half full, and stays so.
fn print_times(name: &str, filter: &mut dyn Timed, bits: f64, error: f64, options: &Options) {
    let mut hashes = Hashes(mix64(options.seed));
    let live = hashes.take(options.items / 2);
    let count = (options.items / 20).clamp(5, 1_000_000);
    let (known, strangers, more) = (&live[..count], hashes.take(count), hashes.take(count));
    filter.insert_all(&live);
    let found = |filter: &dyn Timed, items: &[u64]| items.iter().filter(|hash| filter.contains(**hash)).count();
    assert_eq!(found(filter, known), count, "an item is lost");
    let rate = found(filter, &strangers) as f64 / count as f64;
    assert!(rate <= error + 4.0 * (error / count as f64).sqrt(), "the rate is {rate}, not {error}");
    let one = |filter: &dyn Timed, items: &[u64]| {
        nanoseconds(items, |items| {
            std::hint::black_box(found(filter, items));
        })
    };
    let mut out = vec![false; count];
    let mut group = |filter: &dyn Timed, items: &[u64]| {
        nanoseconds(items, |items| filter.contains_all(items, std::hint::black_box(&mut out[..items.len()])))
    };
    let (hit, miss) = (one(filter, known), one(filter, &strangers));
    let (hits, misses) = (group(filter, known), group(filter, &strangers));
    let add = nanoseconds(&more, |items| items.iter().for_each(|hash| filter.insert(*hash)));
    let remove = nanoseconds(&more, |items| items.iter().for_each(|hash| filter.remove(*hash)));
    let adds = nanoseconds(&more, |items| filter.insert_all(items));
    let removes = nanoseconds(&more, |items| filter.remove_all(items));
    println!(
        "{name:<14} {bits:>6.2} {rate:>9.6} {hit:>6.0} {miss:>6.0} {add:>6.0} {remove:>6.0}   {hits:>6.0} {misses:>6.0} {adds:>6.0} {removes:>6.0}"
    );
}

fn print_speed(options: &Options) {
    println!("filters for {} items, half full; nanoseconds an item, without its hash\n", options.items);
    println!("{:<14} {:>6} {:>9} {:>27}   {:>27}", "", "bits", "rate", "one by one", "in groups");
    let names = ["hit", "miss", "add", "remove"].map(|name| format!("{name:>6}")).join(" ");
    println!("{:<14} {:>6} {:>9} {names}   {names}", "", "item", "half full");
    let capacity = options.items as u64;
    for error in [0.01, 0.001] {
        let settings = counting_settings(capacity, error);
        let shape = settings.shape().expect("a shape");
        let mut filter = CountingBloom::new(settings, shape, 0).expect("memory");
        let bits = shape.bytes() as f64 * 8.0 / capacity as f64;
        print_times(&format!("CBF {error}"), &mut filter, bits, error, options);
        let settings = dleft_settings(capacity, error);
        let mut filter = Dleft::new(settings, options.seed).expect("memory");
        let bits = settings.geometry().expect("a shape").bytes() as f64 * 8.0 / capacity as f64;
        print_times(&format!("DLCBF {error}"), &mut filter, bits, error, options);
    }
}

fn main() {
    let options = Options::read().unwrap_or_else(|error| {
        eprintln!("{error}");
        std::process::exit(2);
    });
    let measured = measure(&options);
    print_dleft(&measured, options.trials);
    print_counting(&measured);
    print_memory(options.seed);
    print_speed(&options);
}
