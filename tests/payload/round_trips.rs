//! Chains of all kinds, there and back.

use super::model::{Chain, Field, Filter, Link, hashes_for, raw};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use seendb::codec::bloom::Decoded;
use seendb::codec::bloom_value::BloomWriter;
use seendb::codec::payload::{self, DumpWriter};
use seendb::codec::rdb::Reader;
use seendb::filters::bloom::{Shape, options};

/// Builds a chain and adds items, until it cannot grow.
fn grown(error: f64, capacity: u64, growth: u32, items: u32) -> Filter {
    let options = if growth == 0 { options::FIXED } else { options::SCALING };
    let mut filter = Filter::new(options, growth, &Shape::first(capacity, error, options).unwrap());
    for i in 0..items {
        if filter.insert(&i.to_be_bytes()).is_err() {
            break;
        }
    }
    filter
}

#[track_caller]
fn check(filter: &Filter) -> Vec<u8> {
    let dump = filter.dump();
    assert_eq!(DumpWriter::new(filter.get()).len(), dump.len() as u64);
    let restored = Filter::restored(&dump);
    restored.check_equal(filter);
    assert!(restored.dump() == dump);
    dump
}

/// The payload, written in steps of these sizes, over and over.
fn in_steps(filter: &Filter, sizes: &[usize]) -> Vec<u8> {
    let mut writer = DumpWriter::new(filter.get());
    let (mut whole, mut sizes) = (Vec::new(), sizes.iter().cycle());
    loop {
        let (size, before) = (*sizes.next().unwrap(), whole.len());
        let done = writer.step(filter.get(), &mut whole, size);
        assert!(
            whole.len() > before && whole.len() - before <= size.max(1).saturating_add(80),
            "{} for {size}",
            whole.len() - before
        );
        if done {
            break;
        }
    }
    let len = whole.len();
    assert!(writer.step(filter.get(), &mut whole, 100) && whole.len() == len, "nothing comes after the end");
    whole
}

#[test]
fn small_large_and_fixed_chains() {
    let packed = |filter: &Filter| matches!(filter.0, Decoded::Packed(_));
    for (error, capacity, growth, items, is_packed) in [
        (0.01, 100, 2, 0, true),
        (0.01, 100, 2, 500, true),
        (0.25, 1, 1, 200, true),
        (0.001, 50, 0, 60, true),
        (0.01, 100_000, 2, 3000, false),
        (0.001, 3_000_000, 2, 100, false),
        // Over 255 links, out of the packed form.
        (0.25, 1, 1, 3000, false),
    ] {
        let filter = grown(error, capacity, growth, items);
        assert_eq!(packed(&filter), is_packed, "{error} {capacity}");
        let dump = check(&filter);
        assert_eq!(in_steps(&filter, &[1 << 20]), dump);
        assert_eq!(in_steps(&filter, &[4096]), dump);
    }
}

#[test]
fn a_chain_with_a_rate_at_the_end_of_doubles() {
    let filter = grown(1e-300, 1, 1, 60);
    assert!(filter.get().len() > 20 && filter.get().links().any(|link| link.shape.hashes > 1000));
    check(&filter);
}

#[test]
fn any_step_will_do() {
    let filter = grown(0.01, 3, 2, 40);
    let dump = check(&filter);
    for size in (0..70).chain([dump.len() - 1, dump.len(), usize::MAX]) {
        assert_eq!(in_steps(&filter, &[size]), dump, "steps of {size}");
    }
}

#[test]
fn items_added_between_steps_are_not_counted() {
    let mut filter = grown(0.01, 200_000, 2, 1000);
    let before = filter.dump();
    let mut writer = DumpWriter::new(filter.get());
    let (mut whole, mut item) = (Vec::new(), 1_000_000u32);
    while !writer.step(filter.get(), &mut whole, 10_000) {
        filter.insert(&item.to_be_bytes()).unwrap();
        item += 1;
    }
    let restored = Filter::restored(&whole);
    assert_eq!((restored.get().items(), whole.len()), (1000, before.len()));
    assert!((0..1000u32).all(|i| restored.contains(&i.to_be_bytes())));
}

#[test]
fn a_value_can_be_written_with_bits_from_elsewhere() {
    let filter = grown(0.01, 100, 2, 900);
    let bits = filter.bits();
    let (mut writer, mut value) = (BloomWriter::new(filter.get()), vec![7]);
    let len = writer.len();
    while !writer.step_with(&mut value, 50, |link, offset, buf| buf.copy_from_slice(&bits[link][offset..][..buf.len()]))
    {
    }
    let dump = filter.dump();
    assert_eq!(payload::open(&dump), Ok(&value[..]));
    assert_eq!(len + 1, value.len() as u64);
    // Values stand one after the other in a file.
    let two = [&value[1..], &value[1..]].concat();
    let mut reader = Reader::new(&two);
    for left in [value.len() - 1, 0] {
        let read = seendb::codec::bloom_value::BloomValue::read(&mut reader).unwrap();
        Filter(read.build(u64::MAX).unwrap()).check_equal(&filter);
        assert_eq!(reader.rest().len(), left);
    }
}

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, rng_seed: RngSeed::Fixed(1), ..ProptestConfig::default() }
}

/// A link of any kind that is served: any array, bits or a logarithm that lie in it.
fn any_link() -> impl Strategy<Value = Link> {
    let array = prop_oneof![prop::collection::vec(any::<u8>(), 1..40), prop::collection::vec(0u8..2, 1..600)];
    let rate = (1u64..f64::to_bits(1.0)).prop_map(f64::from_bits);
    (array, rate, any::<[u64; 3]>(), 0.01f64..1500.0, 0..3, 0u32..64).prop_map(
        |(array, error, [entries, items, pick], bits_per_entry, kind, shift)| {
            let most = array.len() as u64 * 8;
            let log2_bits = match kind {
                0 => 0,
                _ => u64::from(most.ilog2()).min(1 + pick % 12),
            };
            let bits = match kind {
                0 => 1 + pick % most,
                1 => 0,
                _ => most - pick % (most - (1 << log2_bits) + 1),
            };
            let hashes = hashes_for(bits_per_entry);
            let (entries, items, array) = (entries >> shift, items >> shift, raw(&array));
            Link { entries, error, hashes, bits_per_entry, bits, log2_bits, array, items }
        },
    )
}

proptest! {
    #![proptest_config(config(300))]

    #[test]
    fn chains_that_grew(
        error in prop_oneof![1e-9f64..0.25, 0.2f64..1.0],
        capacity in prop_oneof![1u64..300, 1u64..20_000],
        growth in 0u32..5,
        items in 0u32..1500,
        steps in prop::collection::vec(0usize..3000, 1..5),
    ) {
        let filter = grown(error, capacity, growth, items);
        let dump = check(&filter);
        prop_assert!(in_steps(&filter, &steps) == dump);
    }

    #[test]
    fn chains_of_any_kind(
        links in prop::collection::vec(any_link(), 1..8),
        surplus in prop_oneof![Just(0), any::<u64>()],
        options in any::<u32>(), narrow in 0u32..32, growth in any::<u32>(),
        steps in prop::collection::vec(0usize..300, 1..5),
    ) {
        let items = links.iter().map(|link| link.items).fold(surplus, u64::wrapping_add);
        let chain = Chain { items, options: (options >> narrow).into(), growth: growth.into(), links };
        let payload = chain.payload(4);
        let filter = Filter::restored(&payload);
        prop_assert!(filter.dump() == payload);
        prop_assert_eq!(filter.get().items(), items);
        check(&filter);
        prop_assert!(in_steps(&filter, &steps) == payload);
        let arrays: Vec<_> = chain.links.iter().map(|link| link.array.clone()).collect();
        for (bits, array) in filter.bits().iter().zip(arrays) {
            let (Field::String(written), Field::String(expected)) = (raw(bits), array) else { unreachable!() };
            prop_assert_eq!(written, expected);
        }
    }
}
