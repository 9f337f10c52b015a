//! Tests of the chain in all its forms together: recorded sizes, an independent model, threads.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::bits::BitArray;
use super::bloom::{GrowthError, HashPair, Modulus, Shape, ShapeError, options};
use super::packed_bloom::{self, PackedBloom};
use super::scalable_bloom::{Link, ScalableBloom};
use super::testing::{Chain, Model};
use super::{BloomRef, Insert, PACKED_MAX_BYTES};

fn pair(i: u64) -> HashPair {
    HashPair::of(format!("item:{i}").as_bytes())
}

// Sizes and growth, as recorded from RedisBloom.

/// One row of `bf_sizing.tsv`, by the names of its columns.
struct Row(Vec<String>);

impl Row {
    fn server(&self) -> &str {
        &self.0[0]
    }
    /// What sets apart one recorded filter from the next.
    fn filter(&self) -> &[String] {
        &self.0[..4]
    }
    fn number(&self, column: usize) -> u64 {
        self.0[column].parse().unwrap()
    }
    fn bits(&self, column: usize) -> u64 {
        u64::from_str_radix(&self.0[column], 16).unwrap()
    }
}

fn check_link(bloom: BloomRef, row: &Row) {
    let link = bloom.link(row.number(6) as usize).unwrap();
    let shape = link.shape;
    let recorded = [7, 8, 9, 10, 11].map(|column| row.number(column));
    assert_eq!([shape.bytes, shape.bits, u64::from(shape.hashes), shape.entries, link.items], recorded);
    assert_eq!(shape.error.to_bits(), row.bits(13));
    assert_eq!(shape.bits_per_entry.to_bits(), row.bits(14));
    assert_eq!(u64::from(bloom.options()), row.number(15));
    assert_eq!(u64::from(bloom.growth()), row.number(16));
}

/// Replays one recorded filter on `chain`: the state at each number of adds that has rows.
fn replay(rows: &[Row], mut chain: Chain) {
    let mut sent = 0;
    for state in rows.chunk_by(|a, b| a.number(4) == b.number(4)) {
        while sent < state[0].number(4) {
            _ = chain.insert_item(format!("item:{sent}").as_bytes());
            sent += 1;
        }
        let bloom = chain.get();
        assert_eq!(bloom.items(), state[0].number(5), "items of {:?} after {sent}", state[0].filter());
        assert_eq!(bloom.len(), state.len());
        assert_eq!(bloom.capacity(), state.iter().map(|row| row.number(10)).sum::<u64>());
        assert_eq!(bloom.bit_bytes(), state.iter().map(|row| row.number(7)).sum::<u64>());
        state.iter().for_each(|row| check_link(bloom, row));
    }
}

#[test]
fn chains_grow_as_recorded() {
    let text = include_str!("../../tests/vectors/bf_sizing.tsv");
    let rows: Vec<_> = text.lines().skip(1).map(|line| Row(line.split('\t').map(str::to_owned).collect())).collect();
    // "old" are filters whose rate version 8 lowers.
    let rows: Vec<_> = rows.into_iter().filter(|row| row.server() != "old").collect();
    let (mut replayed, mut packed) = (0, 0);
    for filter in rows.chunk_by(|a, b| a.filter() == b.filter()) {
        let error: f64 = filter[0].0[1].parse().unwrap();
        let growth = filter[0].number(16) as u32;
        let options = filter[0].number(15) as u32;
        let shape = Shape::first(filter[0].number(2), error, options).unwrap();
        replay(filter, Chain::large(options, growth, shape));
        replay(filter, Chain::shared(options, growth, shape));
        if packed_bloom::fits(&shape, growth) {
            replay(filter, Chain::packed(options, growth, &shape));
            packed += 1;
        }
        replayed += 1;
    }
    assert_eq!((replayed, packed), (37, 32));
}

#[test]
fn shapes_that_cannot_be() {
    assert_eq!(Shape::new(0, 0.01), Err(ShapeError::NoEntries));
    for error in [0.0, -0.0, 1.0, -0.5, 2.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        assert_eq!(Shape::new(100, error), Err(ShapeError::Rate), "{error}");
        assert_eq!(Shape::first(100, error, options::SCALING), Err(ShapeError::Rate), "{error}");
    }
    assert_eq!(Shape::new(u64::MAX, 0.01), Err(ShapeError::TooLarge));
    assert_eq!(Shape::new(1 << 60, 0.01), Err(ShapeError::TooLarge));
    assert_eq!(Shape::first(1, 5e-324, options::SCALING), Err(ShapeError::Rate));
    assert_eq!(Shape::legacy_log2(63, 0.01), Err(ShapeError::TooLarge));
    assert_eq!(Shape::legacy_log2(u64::MAX, 0.01), Err(ShapeError::TooLarge));
    assert_eq!(Shape::legacy_rounded(u64::MAX, 0.01), Err(ShapeError::TooLarge));
}

#[test]
fn the_largest_shapes_do_not_overflow() {
    // 2^40 entries at 1e-300: bits a bit above 2^50; computed in whole numbers from the recorded bits per entry.
    let shape = Shape::new(1 << 40, 1e-300).unwrap();
    let expected = ((1u64 << 40) as f64 * shape.bits_per_entry) as u64;
    assert!(shape.bits >= expected && shape.bits < expected + 64 && shape.bytes == shape.bits / 8);
    assert!((1437.0..1438.0).contains(&shape.bits_per_entry));
    assert!(shape.is_sound() && shape.is_canonical());
    // The smallest rate takes the most hashes.
    assert_eq!(Shape::new(1, 5e-324).unwrap().hashes, super::bloom::MAX_HASHES);
    // A rate next to 1 takes one hash and one word.
    let loose = Shape::new(1, 1.0 - f64::EPSILON / 2.0).unwrap();
    assert_eq!((loose.hashes, loose.bytes), (1, 8));
}

#[test]
fn a_rate_of_a_power_of_two_takes_a_hash_more() {
    for k in 1..=40 {
        assert_eq!(Shape::new(100, 0.5f64.powi(k)).unwrap().hashes, k as u32 + 1);
    }
}

#[test]
fn legacy_growth_rules() {
    // Worked example: a loaded link of 4 entries, full, options 4.
    let four = Shape { entries: 4, ..Shape::new(4, 0.01).unwrap() };
    let next = four.next(options::HASH_64, 2).unwrap();
    assert_eq!((next.entries, next.bits, next.log2_bits, next.hashes, next.bytes), (11, 128, 7, 8, 16));
    let bits = four.next(options::ENTRIES_ARE_BITS, 2).unwrap();
    assert_eq!((bits.entries, bits.bits, bits.log2_bits, bits.bytes), (23, 256, 8, 32));
    // Less than a word: the array is a word, positions stay below the power of two.
    let small = Shape::legacy_rounded(1, 0.5).unwrap();
    assert_eq!((small.log2_bits, small.bits, small.bytes), (1, 64, 8));
    assert_eq!((small.modulus().reduce(2), small.modulus().reduce(3)), (0, 1));
    let tiny = Shape::legacy_rounded(1, 0.99).unwrap();
    assert_eq!((tiny.log2_bits, tiny.bits, tiny.entries), (0, 64, 1));
    // A link of 2^1 bits has no place for an item at 1,437 bits an entry.
    let none = Shape { entries: 1, ..Shape::new(1, 1e-300).unwrap() };
    assert_eq!(none.next(options::ENTRIES_ARE_BITS, 1), Err(GrowthError::Shape(ShapeError::NoEntries)));
}

#[test]
fn growth_that_cannot_be() {
    let shape = Shape::new(10, 5e-324).unwrap();
    assert_eq!(shape.next(options::SCALING, 2), Err(GrowthError::RateIsZero));
    assert_eq!(shape.next(options::FIXED, 2), Err(GrowthError::NonScaling));
    let shape = Shape::new(10, 0.01).unwrap();
    assert_eq!(shape.next(options::SCALING, 0), Err(GrowthError::Shape(ShapeError::NoEntries)));
    let shape = Shape { entries: u64::MAX / 2, ..shape };
    assert_eq!(shape.next(options::SCALING, 3), Err(GrowthError::Shape(ShapeError::TooLarge)));
}

/// A refused growth leaves the chain, and later items hear the same.
#[test]
fn a_chain_that_cannot_grow_stays_as_it_is() {
    let shape = Shape::new(1, 5e-324).unwrap();
    for mut chain in [Chain::large(options::SCALING, 2, shape), Chain::shared(options::SCALING, 2, shape)] {
        assert_eq!(chain.insert(pair(0)), Ok(Insert::Added));
        let bytes = chain.bytes();
        for i in 1..5 {
            assert_eq!(chain.insert(pair(i)), Err(GrowthError::RateIsZero));
        }
        assert_eq!(chain.insert(pair(0)), Ok(Insert::Present));
        assert_eq!((chain.get().items(), chain.get().len(), chain.bytes() == bytes), (1, 1, true));
    }
    let mut chain = ScalableBloom::new(options::SCALING, 2, Shape::new(1, 0.01).unwrap()).unwrap();
    let huge = Shape::new(1 << 55, 0.01).unwrap();
    assert_eq!(chain.push_link(huge).unwrap_err().bytes, huge.bytes);
    assert_eq!(chain.links().len(), 1);
}

#[test]
fn unsound_links_are_refused() {
    let sound = Shape::new(10, 0.01).unwrap();
    let link = |shape: Shape, bytes| Link::new(shape, 0, BitArray::zeroed(bytes).unwrap());
    assert!(link(sound, 24).is_none() && link(sound, sound.bytes).is_some());
    let unsound = [
        Shape { hashes: 0, ..sound },
        Shape { hashes: 1076, ..sound },
        Shape { bits: 0, ..sound },
        Shape { bits: sound.bits + 1, ..sound },
        Shape { log2_bits: 8, ..sound },
        Shape { log2_bits: 64, ..sound },
    ];
    assert!(unsound.into_iter().all(|shape| !shape.is_sound() && link(shape, sound.bytes).is_none()));
    // Old files: the number of bits is not that of the bytes, or 0 beside a power of two.
    assert!(Shape { bits: sound.bits - 3, ..sound }.is_sound());
    assert!(Shape { bits: 0, log2_bits: 6, ..sound }.is_sound());
    assert!(ScalableBloom::from_links(options::SCALING, 2, 0, Vec::new()).is_none());
}

/// A chain whose counter disagrees with its links keeps the difference.
#[test]
fn a_loaded_counter_goes_on_from_where_it_is() {
    let shape = Shape::new(10, 0.01).unwrap();
    let links = vec![Link::new(shape, 3, BitArray::zeroed(shape.bytes).unwrap()).unwrap()];
    let chain = ScalableBloom::from_links(options::SCALING, 2, 77, links).unwrap();
    assert_eq!(chain.insert_shared(pair(1)), Insert::Added);
    assert_eq!((chain.items(), chain.links()[0].items()), (78, 4));
    assert_eq!(chain.try_clone().unwrap().items(), 78);
}

#[test]
fn a_packed_chain_is_as_small_as_promised() {
    let shape = Shape::first(50, 0.01, options::SCALING).unwrap();
    assert_eq!(packed_bloom::payload_len([&shape]), 4 + 17 + 72);
    let large = Shape::new(1 << 24, 0.25).unwrap();
    assert!(!packed_bloom::fits(&large, 2));
    assert!(!packed_bloom::fits(&shape, 1 << 16));
    assert!(!packed_bloom::fits(&Shape { log2_bits: 6, ..shape }, 2));
    assert!(!packed_bloom::fits(&Shape { hashes: 7, ..shape }, 2));
    assert!(!packed_bloom::fits(&Shape { bits_per_entry: 9.6, ..shape }, 2));
    assert!(!packed_bloom::fits(&Shape::new(1, 1e-100).unwrap(), 2));
    // 255 links, not one more.
    let word = Shape::new(1, 0.25).unwrap();
    let mut payload = vec![0; packed_bloom::payload_len(&[word; 255])];
    packed_bloom::create_chain(&mut payload, options::SCALING, 1, &[word; 255]);
    assert_eq!(PackedBloom::new(&payload).appended_len(&word), None);
    assert!(payload.len() < PACKED_MAX_BYTES);
    // A chain knows its length among other bytes.
    let len = payload.len();
    payload.extend([7; 9]);
    assert_eq!(PackedBloom::len_in(&payload), len);
}

// Laws.

fn shape_strategy() -> impl Strategy<Value = (u32, u32, u64, f64)> {
    let error = prop_oneof![Just(0.25), Just(0.1), Just(0.01), Just(1e-5), 1e-9..0.9f64];
    (prop_oneof![Just(options::SCALING), Just(options::FIXED)], 1u32..5, 1u64..40, error)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, rng_seed: RngSeed::Fixed(1), ..ProptestConfig::default() })]

    #[test]
    fn positions_equal_the_plain_formula(
        a: u64, b: u64, hashes in 0u32..60,
        bits in prop_oneof![1..=u64::MAX, 1u64..100_000, (0u32..64).prop_map(|n| 1u64 << n), (1u64..1 << 40).prop_map(|n| n * 64)],
    ) {
        let pair = HashPair { a, b };
        let modulus = Modulus::new(bits);
        let plain: Vec<u64> =
            (0..u64::from(hashes)).map(|i| a.wrapping_add(i.wrapping_mul(b)) % bits).collect();
        prop_assert_eq!(modulus.positions(pair, hashes).collect::<Vec<_>>(), plain.clone());
        prop_assert_eq!((0..hashes).map(|i| modulus.position(pair, i)).collect::<Vec<_>>(), plain);
    }

    /// The sum of a legacy filter wraps at 32 bits.
    #[test]
    fn positions_of_legacy_filters_equal_the_plain_formula(a: u32, b: u32, hashes in 0u32..60, log2 in 1u32..32) {
        let plain = (0..hashes).map(|i| u64::from(a.wrapping_add(i.wrapping_mul(b))) % (1 << log2));
        let pair = HashPair { a: u64::from(a), b: u64::from(b) };
        let positions = Modulus::new(1 << log2).positions(pair, hashes);
        prop_assert_eq!(positions.collect::<Vec<_>>(), plain.collect::<Vec<_>>());
    }

    #[test]
    fn every_form_equals_the_model((options, growth, entries, error) in shape_strategy(), items in prop::collection::vec(0u64..150, 0..300)) {
        let shape = Shape::new(entries, error).unwrap();
        let mut model = Model::new(options, u64::from(growth), entries, error);
        let mut chains = [
            Chain::packed(options, growth, &shape),
            Chain::large(options, growth, shape),
            Chain::shared(options, growth, shape),
        ];
        for &i in &items {
            let expected = model.insert(pair(i));
            for chain in &mut chains {
                prop_assert_eq!(chain.insert(pair(i)), Ok(expected));
            }
        }
        let probes: Vec<_> = (0..400).map(pair).collect();
        let expected: Vec<_> = probes.iter().map(|&probe| model.contains(probe)).collect();
        for chain in &chains {
            let bloom = chain.get();
            prop_assert_eq!(bloom.items(), model.links.iter().map(|link| link.items).sum::<u64>());
            prop_assert_eq!(bloom.len(), model.links.len());
            prop_assert_eq!(chain.bytes(), model.bytes());
            prop_assert_eq!(&probes.iter().map(|&probe| bloom.contains(probe)).collect::<Vec<_>>(), &expected);
            let mut many = vec![false; probes.len()];
            bloom.contains_many(&probes, &mut many);
            prop_assert_eq!(&many, &expected);
        }
        // No false negative among those that were taken.
        prop_assert!(items.iter().all(|&i| options == options::FIXED || expected[i as usize]));
    }

    /// Items in groups hear what they would hear one by one, up to the first that is refused.
    #[test]
    fn adds_in_groups_equal_single_ones((options, growth, entries, error) in shape_strategy(), items in prop::collection::vec(0u64..150, 0..300)) {
        let shape = Shape::new(entries, error).unwrap();
        let mut single = Chain::large(options, growth, shape);
        let mut grouped = ScalableBloom::new(options, growth, shape).unwrap();
        let pairs: Vec<_> = items.iter().map(|&i| pair(i)).collect();
        let expected: Vec<_> = pairs.iter().map(|&pair| single.insert(pair).unwrap()).collect();
        let mut out = vec![Insert::NeedsGrowth; pairs.len()];
        let mut done = 0;
        while done < pairs.len() {
            done += grouped.insert_shared_many(&pairs[done..], &mut out[done..]);
            match out.get(done) {
                Some(Insert::Full) => done += 1,
                Some(Insert::NeedsGrowth) => grouped.push_link(grouped.next_shape().unwrap()).unwrap(),
                _ => prop_assert_eq!(done, pairs.len()),
            }
        }
        prop_assert_eq!(out, expected);
        prop_assert_eq!(Chain::Large(grouped).bytes(), single.bytes());
    }

    #[test]
    fn copies_equal_the_original((options, growth, entries, error) in shape_strategy(), count in 0u64..200) {
        let shape = Shape::new(entries, error).unwrap();
        let mut chain = Chain::packed(options, growth, &shape);
        (0..count).for_each(|i| _ = chain.insert(pair(i)));
        let Chain::Packed(payload) = &chain else { return Ok(()) };
        let copy = PackedBloom::new(payload).to_scalable().unwrap();
        let again = copy.try_clone().unwrap();
        for copy in [copy, again] {
            let links: Vec<_> = chain.get().links().collect();
            prop_assert_eq!(copy.link_infos().collect::<Vec<_>>(), links);
            prop_assert_eq!(copy.items(), chain.get().items());
            prop_assert_eq!(Chain::Large(copy).bytes(), chain.bytes());
        }
    }

    /// Chunks may come in any order, overlap, and come twice: they are ored in.
    #[test]
    fn chunks_are_ored_in(runs in prop::collection::vec((0usize..300, prop::collection::vec(any::<u8>(), 0..40)), 0..12)) {
        let shape = Shape::new(250, 0.01).unwrap();
        let mut chains = [Chain::packed(options::FIXED, 2, &shape), Chain::large(options::FIXED, 2, shape)];
        let mut model = vec![0u8; shape.bytes as usize];
        for (offset, data) in runs {
            if offset + data.len() > model.len() {
                continue;
            }
            model[offset..].iter_mut().zip(&data).for_each(|(to, from)| *to |= from);
            for chain in &mut chains {
                chain.get_mut().or_bytes(0, offset, &data);
                let mut back = vec![0; data.len()];
                chain.get().copy_bytes(0, offset, &mut back);
                prop_assert_eq!(&back[..], &model[offset..offset + data.len()]);
            }
        }
        chains.iter().for_each(|chain| assert_eq!(chain.bytes(), model));
    }
}

/// Links large enough that items go in groups with lines asked for, several of them, answers as one by one.
#[test]
fn groups_equal_single_items_in_large_chains() {
    let mut chain = ScalableBloom::new(options::SCALING, 2, Shape::new(400_000, 0.01).unwrap()).unwrap();
    let pairs: Vec<_> = (0..600_000).map(pair).collect();
    let mut out = vec![Insert::Present; pairs.len()];
    let done = chain.insert_shared_many(&pairs, &mut out);
    assert_eq!((chain.items(), out[done]), (400_000, Insert::NeedsGrowth));
    chain.push_link(chain.next_shape().unwrap()).unwrap();
    let rest = chain.insert_shared_many(&pairs[done..], &mut out[done..]);
    assert_eq!(done + rest, pairs.len());
    let added = out.iter().filter(|&&insert| insert == Insert::Added).count();
    assert_eq!(added as u64, chain.items());
    for start in [0, 1, 500_000, 590_001] {
        let probes: Vec<_> = (start..start + 20_003).map(pair).collect();
        let mut many = vec![false; probes.len()];
        chain.contains_many(&probes, &mut many);
        for (i, (&probe, found)) in (start..).zip(probes.iter().zip(many)) {
            assert_eq!(found, chain.contains(probe));
            assert!(found || i >= 600_000);
        }
    }
}

// Threads.

/// Adds `items` from `threads` threads, each in an order of its own, while another watches the counter. Returns how often each
/// item was called new.
fn add_from_threads(chain: &ScalableBloom, items: &[HashPair], threads: usize, grouped: bool) -> Vec<u64> {
    let added: Vec<_> = items.iter().map(|_| AtomicU64::new(0)).collect();
    let done = AtomicBool::new(false);
    let newest = &chain.links()[chain.links().len() - 1];
    thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                assert!(newest.items() <= newest.shape().entries);
            }
        });
        let adder = |shift: usize| {
            let order: Vec<_> = (0..items.len()).map(|i| (i + shift) % items.len()).collect();
            for order in order.chunks(if grouped { 100 } else { 1 }) {
                let pairs: Vec<_> = order.iter().map(|&i| items[i]).collect();
                let mut out = vec![Insert::Full; pairs.len()];
                if grouped {
                    let done = chain.insert_shared_many(&pairs, &mut out);
                    out.truncate(done);
                } else {
                    out = vec![chain.insert_shared(pairs[0])];
                }
                let new = order.iter().zip(&out).filter(|(_, insert)| **insert == Insert::Added);
                new.for_each(|(&i, _)| _ = added[i].fetch_add(1, Ordering::Relaxed));
            }
        };
        // Nearly the same order: threads meet at equal items all the time.
        let adders: Vec<_> = (0..threads).map(|i| scope.spawn(move || adder(i * 3))).collect();
        adders.into_iter().for_each(|adder| adder.join().unwrap());
        done.store(true, Ordering::Relaxed);
        watcher.join().unwrap();
    });
    added.into_iter().map(AtomicU64::into_inner).collect()
}

#[test]
fn threads_with_equal_items_agree_on_who_was_first() {
    let items: Vec<_> = (0..20_000).map(pair).collect();
    for grouped in [false, true] {
        let shape = Shape::new(100_000, 0.01).unwrap();
        let chain = ScalableBloom::new(options::SCALING, 2, shape).unwrap();
        let added = add_from_threads(&chain, &items, 4, grouped);
        assert!(added.iter().all(|&times| times <= 1));
        let new: u64 = added.iter().sum();
        assert_eq!(new, chain.items());
        // Those nobody was told of are false positives: found, and few (a fifth of the capacity: far below 1 %).
        assert!(items.iter().all(|&item| chain.contains(item)));
        assert!(items.len() as u64 - new < 10, "{new} of {} new", items.len());
    }
}

#[test]
fn threads_fill_a_chain_to_its_capacity_exactly() {
    let items: Vec<_> = (0..6_000).map(pair).collect();
    for options in [options::SCALING, options::FIXED] {
        let shape = Shape::new(2_000, 0.001).unwrap();
        let chain = ScalableBloom::new(options, 2, shape).unwrap();
        let added = add_from_threads(&chain, &items, 4, false);
        assert_eq!((added.iter().sum::<u64>(), chain.items()), (2_000, 2_000));
        assert!(added.iter().zip(&items).all(|(&times, &item)| times <= 1 && (times == 0 || chain.contains(item))));
        let refused = if options == options::FIXED { Insert::Full } else { Insert::NeedsGrowth };
        assert!(items.iter().all(|&item| chain.contains(item) || chain.insert_shared(item) == refused));
    }
}
