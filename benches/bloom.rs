//! Nanoseconds an item in one thread, filters in and out of the cache: one by one against in groups.
//!
//! ```text
//! cargo bench --no-default-features --bench bloom [-- --quick]
//! ```
//!
//! Filters are filled to one half, the fill at capacity. The figures of a table include the hashing of 16-byte items. Every
//! run checks its answers: known items are found, unknown ones at the rate that fill and hashes give; it stops otherwise.

use std::hint::black_box;
use std::time::Instant;

use seendb::filters::Insert;
use seendb::filters::bloom::{HashPair, Modulus, Shape, options};
use seendb::filters::packed_bloom::{self, PackedBloom, PackedBloomMut};
use seendb::filters::scalable_bloom::ScalableBloom;

const ITEMS: usize = 1 << 20;
const BATCH: usize = 1000;

fn main() {
    // `cargo test --benches` runs this too: a small filter shows that it works.
    let quick = std::env::args().any(|arg| arg == "--quick") || !std::env::args().any(|arg| arg == "--bench");
    hashing();
    println!();
    println!("{:<34} {:>6} {:>9} {:>9} {:>6}", "ns an item", "rate", "single", "batched", "ratio");
    packed();
    let sizes: &[(u64, f64)] = if quick {
        &[(100_000, 0.01)]
    } else {
        &[(100_000, 0.01), (10_000_000, 0.01), (100_000_000, 0.01), (87_000_000, 0.005), (520_000_000, 0.005)]
    };
    sizes.iter().for_each(|&(entries, error)| large(entries, error));
}

/// splitmix64: a stream of well mixed words.
struct Words(u64);

impl Words {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

fn items(kind: char, count: usize) -> Vec<[u8; 16]> {
    let item = |i: usize| {
        let mut item = [0; 16];
        item.copy_from_slice(format!("{kind}:{i:014}").as_bytes());
        item
    };
    (0..count).map(item).collect()
}

fn per_item(count: usize, run: impl FnOnce()) -> f64 {
    let start = Instant::now();
    run();
    start.elapsed().as_nanos() as f64 / count as f64
}

fn row(name: &str, rate: f64, single: f64, batched: f64) {
    println!("{name:<34} {rate:>6.4} {single:>9.1} {batched:>9.1} {:>6.2}", single / batched);
}

fn hashing() {
    println!("hash pair, ns:");
    let bytes: Vec<u8> = (0..=255).cycle().take(1 << 16).collect();
    for len in [3, 8, 12, 16, 24, 32, 100, 1000] {
        let ns = per_item(ITEMS, || {
            for i in 0..ITEMS {
                black_box(HashPair::of(&bytes[i % 4096..][..black_box(len)]));
            }
        });
        println!("  {len:>4} bytes {ns:>6.1}");
    }
    let modulus = Modulus::new(black_box(958_505_856));
    let pairs: Vec<_> = items('p', 1024).iter().map(|item| HashPair::of(item)).collect();
    let by_modulus = per_item(ITEMS, || {
        for i in 0..ITEMS {
            black_box(modulus.positions(pairs[i % 1024], 7).fold(0, |sum, x| sum ^ x));
        }
    });
    let bits = black_box(958_505_856u64);
    let by_division = per_item(ITEMS, || {
        for i in 0..ITEMS {
            let HashPair { a, b } = pairs[i % 1024];
            black_box((0..7u64).map(|i| a.wrapping_add(i.wrapping_mul(b)) % bits).fold(0, |sum, x| sum ^ x));
        }
    });
    println!("7 positions, ns: {by_modulus:.1}, by division {by_division:.1}");
}

fn packed() {
    let shape = Shape::first(50, 0.01, options::SCALING).expect("a sound shape");
    let mut payload = vec![0; packed_bloom::payload_len([&shape])];
    packed_bloom::create(&mut payload, options::SCALING, 2, &shape);
    let known = items('k', 50);
    let mut chain = PackedBloomMut::new(&mut payload);
    known.iter().for_each(|item| _ = chain.insert(HashPair::of(item)));
    let chain = PackedBloom::new(&payload);
    let unknown = items('u', ITEMS);
    let mut found = 0;
    let single = per_item(ITEMS, || {
        found = unknown.iter().filter(|item| chain.contains(HashPair::of(&item[..]))).count();
    });
    row("packed 0.01 50, unknown", found as f64 / ITEMS as f64, single, single);
    let single = per_item(ITEMS, || {
        assert!((0..ITEMS).all(|i| chain.contains(HashPair::of(&known[i % 50]))));
    });
    row("packed 0.01 50, known", 1.0, single, single);
}

/// A filter of random bits, half of them set, with `known` added.
fn half_full(shape: Shape, known: &[[u8; 16]]) -> ScalableBloom {
    let chain = ScalableBloom::new(options::FIXED, 2, shape).expect("memory for the bench");
    let bits = chain.links()[0].bits();
    let mut words = Words(1);
    let mut block = vec![0; 1 << 16];
    for start in (0..bits.len()).step_by(block.len()) {
        block.as_chunks_mut::<8>().0.iter_mut().for_each(|word| *word = words.next().to_ne_bytes());
        bits.or_bytes(start, &block[..(bits.len() - start).min(1 << 16)]);
    }
    known.iter().for_each(|item| _ = chain.insert_shared(HashPair::of(item)));
    chain
}

fn large(entries: u64, error: f64) {
    let shape = Shape::new(entries, error).expect("a sound shape");
    let count = ITEMS.min(entries as usize / 20);
    let (known, unknown) = (items('k', count), items('u', count));
    let chain = half_full(shape, &known);
    let size = format!("{:.1} MB, {} hashes", shape.bytes as f64 / 1e6, shape.hashes);
    let expected = 0.5f64.powi(shape.hashes as i32);
    for (name, items, least, most) in
        [("unknown", &unknown, expected * 0.7, expected * 1.4), ("known", &known, 1.0, 1.0)]
    {
        let mut found = 0;
        let single = per_item(count, || {
            found = items.iter().filter(|item| chain.contains(HashPair::of(&item[..]))).count();
        });
        let mut found_batched = 0;
        let batched = per_item(count, || found_batched = contains_batched(&chain, items));
        let rate = found as f64 / count as f64;
        assert_eq!(found, found_batched);
        assert!((least..=most).contains(&rate), "rate {rate}, expected {expected}");
        row(&format!("{size}, {name}"), rate, single, batched);
    }
    let (one, two) = (items('n', count), items('m', count));
    let mut added = 0;
    let single = per_item(count, || {
        added = one.iter().filter(|item| chain.insert_shared(HashPair::of(&item[..])) == Insert::Added).count();
    });
    let batched = per_item(count, || insert_batched(&chain, &two));
    row(&format!("{size}, add"), 1.0 - added as f64 / count as f64, single, batched);
}

fn contains_batched(chain: &ScalableBloom, items: &[[u8; 16]]) -> usize {
    let (mut pairs, mut out) = ([HashPair::default(); BATCH], [false; BATCH]);
    let mut found = 0;
    for items in items.chunks(BATCH) {
        let (pairs, out) = (&mut pairs[..items.len()], &mut out[..items.len()]);
        pairs.iter_mut().zip(items).for_each(|(pair, item)| *pair = HashPair::of(item));
        chain.contains_many(pairs, out);
        found += out.iter().filter(|&&found| found).count();
    }
    found
}

fn insert_batched(chain: &ScalableBloom, items: &[[u8; 16]]) {
    let (mut pairs, mut out) = ([HashPair::default(); BATCH], [Insert::Present; BATCH]);
    for items in items.chunks(BATCH) {
        let (pairs, out) = (&mut pairs[..items.len()], &mut out[..items.len()]);
        pairs.iter_mut().zip(items).for_each(|(pair, item)| *pair = HashPair::of(item));
        assert_eq!(chain.insert_shared_many(pairs, out), items.len());
    }
}
