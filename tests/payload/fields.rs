//! Encodings 0 to 4: defaults of missing fields, what is taken, what is refused.

use super::model::{Chain, Field, Filter, Link, framed, hashes_for, lzf, raw, value};
use seendb::codec::bloom::Decoded;
use seendb::codec::bloom_value::ValueError;
use seendb::codec::payload::{self, PayloadError};
use seendb::codec::rdb::Malformed;
use seendb::filters::bloom::{HashPair, Shape, options};

fn restore(chain: &Chain, encver: u8) -> Result<Filter, ValueError> {
    match payload::restore(&chain.payload(encver), 1 << 20) {
        Ok(built) => Ok(Filter(built.bloom().unwrap())),
        Err(PayloadError::Value(error)) => Err(error),
        Err(PayloadError::Frame(error)) => panic!("{error}"),
    }
}

/// Random bytes, about half of their bits set.
fn noise(len: usize) -> Vec<u8> {
    (0..len as u32).map(|i| (i.wrapping_mul(0x9e37_79b9) >> 13) as u8).collect()
}

fn usual() -> Chain {
    Chain::of(5, 2, vec![Link::at_1_percent(4, 64, 0, b"12345678", 3)])
}

#[test]
fn fields_that_old_encodings_lack_have_their_defaults() {
    // 100 entries take 958.5 bits: 958 in 120 bytes, as releases of the time saved them.
    let chain = Chain::of(13, 7, vec![Link::at_1_percent(100, 958, 0, &noise(120), 9)]);
    for (encver, options, growth) in [(0, 0, 2), (1, 0, 2), (2, 13, 2), (3, 13, 2), (4, 13, 7)] {
        let filter = restore(&chain, encver).unwrap();
        let bloom = filter.get();
        assert_eq!((bloom.options(), bloom.growth(), bloom.items()), (options, growth, 9), "encver {encver}");
        let shape = bloom.link(0).unwrap().shape;
        assert_eq!((shape.bits, shape.bytes, shape.log2_bits, shape.hashes), (958, 120, 0, 7));
        assert_eq!(filter.bits(), [noise(120)]);
        assert!(matches!(filter.0, Decoded::Large(_)));
        // Always written in the newest encoding, as it was read.
        let mut now = chain.clone();
        (now.options, now.growth) = (options.into(), growth.into());
        assert_eq!(filter.dump(), now.payload(4));
    }
}

/// Whether the items of a filter with this modulus would be found, from the definition.
fn model_finds(bits: &[u8], modulus: u64, hashes: u32, pair: HashPair) -> bool {
    (0..u64::from(hashes)).all(|i| {
        let x = pair.a.wrapping_add(i.wrapping_mul(pair.b)) % modulus;
        bits[(x / 8) as usize] >> (x % 8) & 1 == 1
    })
}

#[test]
fn the_modulus_is_the_one_that_old_files_mean() {
    let dense: Vec<u8> = noise(120).iter().map(|byte| byte | 0x5a).collect();
    for (bits, log2_bits, array_bytes, modulus) in [
        (958, 0, 120, 958),
        (1, 0, 1, 1),
        (960, 0, 120, 960),
        (13, 0, 120, 13),
        (0, 8, 32, 256),
        (0, 8, 120, 256),
        (0, 1, 1, 2),
        (256, 8, 32, 256),
        (64, 4, 8, 16),
        // What the logarithm says counts, also beside a number of bits.
        (300, 8, 40, 256),
    ] {
        let array = &dense[..array_bytes];
        let chain = Chain::of(4, 2, vec![Link::at_1_percent(50, bits, log2_bits, array, 9)]);
        let filter = restore(&chain, 3).unwrap();
        let mut found = 0;
        for i in 0..3000 {
            let pair = HashPair::of(format!("item:{i}").as_bytes());
            let expected = model_finds(array, modulus, 7, pair);
            assert_eq!(filter.get().contains(pair), expected, "bits {bits}, log2 {log2_bits}");
            found += usize::from(expected);
        }
        assert!(modulus < 100 || (100..2900).contains(&found), "{found} found");
        filter.check_equal(&Filter::restored(&filter.dump()));
    }
}

#[test]
fn encoding_0_computes_its_bits() {
    let bits_of = |entries: u64, bits_per_entry: f64, array: usize| {
        let mut link = Link::at_1_percent(entries, 0, 0, &vec![0; array], 0);
        link.bits_per_entry = bits_per_entry;
        link.hashes = hashes_for(bits_per_entry);
        restore(&Chain::of(0, 2, vec![link]), 0).map(|filter| filter.get().link(0).unwrap().shape.bits)
    };
    assert_eq!(bits_of(100, 9.585058377367446, 120), Ok(958));
    assert_eq!(bits_of(3, 2.5, 1), Ok(7));
    let bad = Err(ValueError::Link(0));
    assert_eq!(bits_of(100, 9.585058377367446, 119), bad, "an array that is too short");
    assert_eq!(bits_of(0, 9.585058377367446, 120), bad, "no bits");
    assert_eq!(bits_of(u64::MAX, 1500.0, 120), bad, "more bits than can be counted");
}

#[test]
fn what_no_oracle_checks_is_taken() {
    let link = |entries, items| Link::at_1_percent(entries, 64, 0, b"12345678", items);
    for chain in [
        Chain { items: 77, ..usual() },
        Chain { items: 0, ..usual() },
        Chain { items: u64::MAX, ..usual() },
        Chain { growth: 0, ..usual() },
        Chain { growth: u32::MAX.into(), ..usual() },
        Chain { options: 0, ..usual() },
        Chain { options: u32::MAX.into(), ..usual() },
        Chain::of(5, 2, vec![link(0, 3)]),
        Chain::of(5, 2, vec![link(u64::MAX, 3)]),
        Chain::of(5, 2, vec![link(4, u64::MAX)]),
        Chain::of(5, 2, vec![link(1, 3); 300]),
        Chain::of(13, 2, vec![link(4, 2), link(4, 1)]),
    ] {
        let filter = restore(&chain, 4).unwrap();
        assert_eq!((filter.get().items(), filter.get().growth()), (chain.items, chain.growth as u32));
        assert_eq!(filter.dump(), chain.payload(4));
        filter.check_equal(&Filter::restored(&filter.dump()));
    }
    // As many links as halving a rate can give, but not one more.
    let many = |count| restore(&Chain::of(5, 2, vec![link(4, 1); count]), 4).map(|filter| filter.get().len());
    assert_eq!(many(1075), Ok(1075));
    assert_eq!(many(1076), Err(ValueError::Chain));
}

#[test]
fn what_cannot_be_is_refused() {
    let with = |change: fn(&mut Link)| {
        let mut chain = Chain::of(5, 2, vec![usual().links[0].clone(), usual().links[0].clone()]);
        change(&mut chain.links[1]);
        restore(&chain, 4).map(|_| ()).unwrap_err()
    };
    let bad = ValueError::Link(1);
    for error in [0.0, 1.0, -0.5, 1.5, -0.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let mut chain = usual();
        chain.links[0].error = error;
        assert_eq!(restore(&chain, 4).map(|_| ()), Err(ValueError::Link(0)), "rate {error}");
    }
    assert_eq!(with(|link| link.hashes = 0), bad);
    assert_eq!(with(|link| link.hashes = 6), bad);
    assert_eq!(with(|link| link.hashes = 8), bad);
    assert_eq!(with(|link| link.hashes = (1 << 32) + 7), bad);
    assert_eq!(with(|link| link.bits_per_entry = f64::NAN), bad);
    assert_eq!(with(|link| link.bits_per_entry = f64::INFINITY), bad);
    assert_eq!(
        with(|link| (link.bits_per_entry, link.hashes) = (2000.0, 1387)),
        bad,
        "more hashes than any rate takes"
    );
    assert_eq!(with(|link| link.bits = 0), bad);
    assert_eq!(with(|link| link.bits = 65), bad);
    assert_eq!(with(|link| link.bits = u64::MAX), bad);
    assert_eq!(with(|link| link.log2_bits = 7), bad, "2^7 bits are not in 64");
    assert_eq!(with(|link| (link.bits, link.log2_bits) = (0, 7)), bad, "nor in 8 bytes");
    assert_eq!(with(|link| (link.bits, link.log2_bits) = (15, 4)), bad, "2^4 bits are not in 15");
    assert_eq!(with(|link| (link.bits, link.log2_bits) = (0, 63)), bad);
    assert_eq!(with(|link| (link.bits, link.log2_bits) = (0, 64)), bad);
    assert_eq!(with(|link| (link.bits, link.log2_bits) = (0, 256)), bad);
    assert_eq!(with(|link| link.array = raw(b"1234567")), bad);
    assert_eq!(with(|link| link.array = raw(b"")), bad);
    for chain in [
        Chain { links: Vec::new(), ..usual() },
        Chain { options: 1 << 32, ..usual() },
        Chain { growth: 1 << 32, ..usual() },
    ] {
        assert_eq!(restore(&chain, 4).map(|_| ()), Err(ValueError::Chain));
    }
}

#[test]
fn fields_of_another_kind_or_number_are_refused() {
    let fields = usual().fields(4);
    let refused = |fields: &[Field]| match payload::restore(&framed(&value(4, fields), 10), 1 << 20) {
        Err(PayloadError::Value(error)) => Some(error),
        _ => None,
    };
    assert_eq!(refused(&fields), None);
    let malformed = Some(ValueError::Malformed(Malformed));
    for at in 0..fields.len() {
        for other in [Field::Unsigned(1), Field::Double(0.5), raw(b"12345678")] {
            if std::mem::discriminant(&fields[at]) != std::mem::discriminant(&other) {
                let mut changed = fields.clone();
                changed[at] = other;
                assert_eq!(refused(&changed), malformed, "another field at {at}");
            }
        }
        let mut fewer = fields.clone();
        fewer.remove(at);
        assert!(refused(&fewer).is_some(), "no field {at}");
    }
    for extra in [Field::Unsigned(0), Field::Double(0.0), raw(b"")] {
        assert_eq!(refused(&[&fields[..], &[extra]].concat()), malformed);
    }
    // A link more, or fewer, than announced.
    let mut two = fields.clone();
    two.extend_from_slice(&fields[4..]);
    assert_eq!(refused(&two), malformed);
    two[1] = Field::Unsigned(2);
    assert_eq!(refused(&two), None);
    two[1] = Field::Unsigned(3);
    assert_eq!(refused(&two), malformed);
    // An encoding misnamed has other fields.
    for encver in 0..4 {
        assert!(payload::restore(&framed(&value(encver, &fields), 10), 1 << 20).is_err(), "encver {encver}");
    }
}

#[test]
fn arrays_in_every_form_of_a_string() {
    let with = |array: Field| {
        let mut chain = usual();
        chain.links[0].array = array;
        restore(&chain, 4).map(|filter| filter.bits().concat())
    };
    assert_eq!(with(raw(b"12345678")), Ok(b"12345678".to_vec()));
    assert_eq!(with(Field::String(vec![0xc2, 0x4e, 0x61, 0xbc, 0])), Ok(b"12345678".to_vec()));
    assert_eq!(with(Field::String(vec![0xc2, 0xb2, 0x9e, 0x43, 0xff])), Ok(b"-12345678".to_vec()), "a byte too long");
    assert_eq!(with(Field::String(vec![0xc0, 1])), Err(ValueError::Link(0)));
    assert_eq!(with(lzf(&[0, b'a', 0xa0, 0], 8)), Ok(b"aaaaaaaa".to_vec()));
    assert_eq!(with(lzf(&[0, b'a', 0xa0, 0], 9)), Err(ValueError::Malformed(Malformed)));
    assert_eq!(with(lzf(&[0, b'a', 0xa0, 0], 7)), Err(ValueError::Link(0)));
    assert_eq!(with(lzf(&[0, b'a', 0xa0, 1], 8)), Err(ValueError::Malformed(Malformed)));
}

#[test]
fn the_limit_is_on_the_bytes_of_bits() {
    let chain = Chain::of(5, 2, vec![usual().links[0].clone(); 3]);
    let payload = chain.payload(4);
    assert_eq!(payload::read(&payload).unwrap().bit_bytes(), 24);
    assert!(payload::restore(&payload, 24).is_ok());
    assert_eq!(payload::restore(&payload, 23).unwrap_err(), ValueError::Limit { bytes: 24 }.into());
}

#[test]
fn a_restored_chain_goes_on_growing() {
    let shape = Shape::first(10, 0.01, options::SCALING).unwrap();
    let mut original = Filter::new(options::SCALING, 2, &shape);
    for i in 0..25u32 {
        original.insert(&i.to_le_bytes()).unwrap();
    }
    let mut restored = Filter::restored(&original.dump());
    for i in 25..200u32 {
        let (ours, theirs) = (restored.insert(&i.to_le_bytes()), original.insert(&i.to_le_bytes()));
        assert_eq!(ours, theirs);
    }
    restored.check_equal(&original);
}
