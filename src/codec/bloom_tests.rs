//! Tests of dump headers and chunks: recorded dumps, hostile bytes.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use serde_json::Value;

use super::bloom::*;
use crate::filters::bits::mapped_bytes;
use crate::filters::bloom::{HashPair, Shape, options};
use crate::filters::testing::Chain;
use crate::filters::{BloomRef, Insert};

// Recorded dumps.

/// Strings of the recording hold one byte a character.
fn bytes(text: &Value) -> Vec<u8> {
    text.as_str().unwrap().chars().map(|c| u8::try_from(u32::from(c)).unwrap()).collect()
}

fn unhex(text: &Value) -> Vec<u8> {
    let digits = text.as_str().unwrap().as_bytes();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

fn load(header: &[u8]) -> Result<Chain, HeaderError> {
    Ok(match decode_header(header, 1 << 20)? {
        Decoded::Packed(payload) => Chain::Packed(payload),
        Decoded::Large(chain) => Chain::Large(chain),
    })
}

/// A new chain as the recorded commands ask for it.
fn reserve(error: f64, capacity: u64, growth: u32, scaling: bool) -> Chain {
    let options = if scaling && growth > 0 { options::SCALING } else { options::FIXED };
    Chain::packed(options, growth, &Shape::first(capacity, error, options).unwrap())
}

fn number(word: &[u8]) -> f64 {
    std::str::from_utf8(word).unwrap().parse().unwrap()
}

/// The few commands of the recording, on one key. Items answer 1, 0 or -1 for an error.
fn run(chain: &mut Option<Chain>, command: &[Vec<u8>]) -> Vec<i64> {
    let name = String::from_utf8(command[0].clone()).unwrap();
    let (mut error, mut capacity, mut growth, mut scaling) = (0.01, 100, 2, true);
    let mut words = command[2..].iter();
    if name == "BF.RESERVE" {
        error = number(words.next().unwrap());
        capacity = number(words.next().unwrap()) as u64;
    }
    if name == "BF.LOADCHUNK" {
        *chain = Some(load(&command[3]).unwrap());
        return Vec::new();
    }
    if name == "BF.RESERVE" || name == "BF.INSERT" {
        while let Some(word) = words.next() {
            match &word[..] {
                b"ITEMS" => break,
                b"NONSCALING" => scaling = false,
                b"ERROR" => error = number(words.next().unwrap()),
                b"CAPACITY" => capacity = number(words.next().unwrap()) as u64,
                b"EXPANSION" => growth = number(words.next().unwrap()) as u32,
                other => panic!("word {other:?}"),
            }
        }
    }
    let chain = chain.get_or_insert_with(|| reserve(error, capacity, growth, scaling));
    let answer = |item: &Vec<u8>| match chain.insert_item(item) {
        Ok(Insert::Added) => 1,
        Ok(Insert::Present) => 0,
        _ => -1,
    };
    if name == "BF.EXISTS" {
        return words.map(|item| i64::from(chain.get().contains(chain.get().hash(item)))).collect();
    }
    words.map(answer).collect()
}

fn check_replies(answers: &[i64], reply: &Value) {
    let expected = match reply {
        Value::String(_) => Vec::new(),
        Value::Array(items) => items.iter().map(|item| item.as_i64().unwrap_or(-1)).collect(),
        single => vec![single.as_i64().unwrap()],
    };
    assert_eq!(answers, expected);
}

/// All of a dump but its header: bytes with the iterators before and after them.
fn chunks(bloom: BloomRef) -> Vec<(i64, i64, Vec<u8>)> {
    let mut all = Vec::new();
    let mut iter = 1;
    while let Some(chunk) = chunk_at(bloom, iter) {
        let mut data = vec![0xa5; chunk.len];
        bloom.copy_bytes(chunk.link, chunk.offset, &mut data);
        all.push((iter, iter + chunk.len as i64, data));
        iter += chunk.len as i64;
    }
    all
}

fn check_dump(bloom: BloomRef, recorded: &[Value]) {
    let of = |chunk: &Value| (chunk["iter_in"].as_i64().unwrap(), chunk["iter_out"].as_i64().unwrap());
    let [header, data @ .., end] = recorded else { panic!("a dump has a header and an end") };
    assert_eq!(of(header), (0, 1));
    assert_eq!(encode_header(bloom), unhex(&header["data_hex"]));
    let data: Vec<_> = data.iter().map(|chunk| (of(chunk).0, of(chunk).1, unhex(&chunk["data_hex"]))).collect();
    assert_eq!(chunks(bloom), data);
    assert_eq!(chunk_at(bloom, of(end).0), None);
    assert_eq!(of(end).1, 0);
}

/// The fields of a line of `BF.DEBUG`, as numbers; the ratio apart.
fn check_debug(bloom: BloomRef, lines: &[Value]) {
    assert_eq!(lines[0].as_str().unwrap(), format!("size:{}", bloom.items()));
    assert_eq!(lines.len() - 1, bloom.len());
    for (link, line) in bloom.links().zip(&lines[1..]) {
        let (shape, width) = (link.shape, if bloom.options() & options::HASH_64 != 0 { 64 } else { 32 });
        let fields = format!(
            "bytes:{} bits:{} hashes:{} hashwidth:{width} capacity:{} size:{} ratio:",
            shape.bytes, shape.bits, shape.hashes, shape.entries, link.items
        );
        let ratio = line.as_str().unwrap().strip_prefix(&fields).unwrap_or_else(|| panic!("{line}: {fields}"));
        assert!((ratio.parse::<f64>().unwrap() / shape.error - 1.0).abs() < 1e-5);
    }
}

#[test]
fn recorded_filters_give_the_recorded_dumps() {
    let recorded: Value = serde_json::from_str(include_str!("../../tests/vectors/bf_scandump.json")).unwrap();
    let filters = recorded.as_array().unwrap();
    assert_eq!(filters.len(), 19);
    for filter in filters {
        let name = filter["name"].as_str().unwrap();
        // Where releases differ, version 8 counts.
        let of = |field: &str| {
            let field = &filter[field];
            let value = field.get("both").or_else(|| field.get("new")).unwrap();
            value.as_array().unwrap().clone()
        };
        let mut chain = None;
        for (command, reply) in filter["commands"].as_array().unwrap().iter().zip(of("replies")) {
            let command: Vec<_> = command.as_array().unwrap().iter().map(bytes).collect();
            check_replies(&run(&mut chain, &command), &reply);
        }
        let chain = chain.unwrap();
        assert_eq!(matches!(chain, Chain::Packed(_)), !name.starts_with("loaded"), "{name}");
        check_debug(chain.get(), &of("debug"));
        check_dump(chain.get(), &of("chunks"));

        // Load it: header, then the chunks backwards; the copy gives the same dump.
        let dump = of("chunks");
        let mut copy = load(&unhex(&dump[0]["data_hex"])).unwrap();
        assert_eq!(copy.get().items(), chain.get().items());
        assert!(copy.bytes().iter().all(|&byte| byte == 0));
        for (_, iter, data) in chunks(chain.get()).into_iter().rev() {
            let place = place_chunk(copy.get(), iter, data.len()).unwrap();
            copy.get_mut().or_bytes(place.link, place.offset, &data);
        }
        check_dump(copy.get(), &dump);
    }
}

// Iterators.

/// A chain of links of 8, 16 and 40 bytes.
fn three_links() -> Chain {
    let mut chain = reserve(0.1, 2, 4, true);
    for i in 0.. {
        chain.insert_item(format!("{i}").as_bytes()).unwrap();
        if chain.get().len() == 3 {
            break;
        }
    }
    let lengths: Vec<_> = chain.get().links().map(|link| link.shape.bytes).collect();
    assert_eq!(lengths, [8, 8, 40]);
    chain
}

#[test]
fn every_iterator_inside_the_chain_is_honoured() {
    let chain = three_links();
    let chunk = |link, offset, len| Some(Chunk { link, offset, len });
    for (iter, expected) in [
        (1, chunk(0, 0, 8)),
        (8, chunk(0, 7, 1)),
        (9, chunk(1, 0, 8)),
        (12, chunk(1, 3, 5)),
        (17, chunk(2, 0, 40)),
        (56, chunk(2, 39, 1)),
        (57, None),
        (58, None),
        (0, None),
        (-1, None),
        (i64::MAX, None),
        (i64::MIN, None),
    ] {
        assert_eq!(chunk_at(chain.get(), iter), expected, "{iter}");
    }
}

#[test]
fn chunks_are_at_most_16_mib() {
    // 41,354,080 bytes, as in the worked example.
    let shape = Shape::first(30_000_000, 0.01, options::SCALING).unwrap();
    let chain = Chain::large(options::SCALING, 2, shape);
    let mut iters = vec![1];
    while let Some(chunk) = chunk_at(chain.get(), iters[iters.len() - 1]) {
        iters.push(iters[iters.len() - 1] + chunk.len as i64);
    }
    assert_eq!(iters, [1, 16_777_217, 33_554_433, 41_354_081]);
}

#[test]
fn chunks_go_where_they_came_from_or_nowhere() {
    let chain = three_links();
    for (iter, len, expected) in [
        (9, 8, Ok((0, 0))),
        (17, 8, Ok((1, 0))),
        (57, 40, Ok((2, 0))),
        (57, 1, Ok((2, 39))),
        (13, 2, Ok((1, 2))),
        // Empty, at a place that is there: the first byte's, the last one's.
        (1, 0, Ok((0, 0))),
        (56, 0, Ok((2, 39))),
        (0, 0, Err(ChunkError::BadData)),
        (-1, 0, Err(ChunkError::BadData)),
        (i64::MIN, 8, Err(ChunkError::BadData)),
        (1, 73, Err(ChunkError::BadData)),
        (7, 8, Err(ChunkError::BadData)),
        (8, 8, Err(ChunkError::NoLink)),
        (57, 0, Err(ChunkError::NoLink)),
        (65, 8, Err(ChunkError::NoLink)),
        (i64::MAX, 8, Err(ChunkError::NoLink)),
        (10, 9, Err(ChunkError::TooLong)),
        (12, 6, Err(ChunkError::TooLong)),
        (58, 2, Err(ChunkError::TooLong)),
        (57, 56, Err(ChunkError::TooLong)),
    ] {
        let place = place_chunk(chain.get(), iter, len);
        assert_eq!(place, expected.map(|(link, offset)| Chunk { link, offset, len }), "{iter} {len}");
    }
}

// Headers that are not taken.

/// A header of two links of the usual kind, with one field overwritten.
fn header_with(offset: usize, field: &[u8]) -> Vec<u8> {
    let mut chain = reserve(0.01, 4, 2, true);
    (b'a'..=b'l').for_each(|item| assert_eq!(chain.insert_item(&[item]), Ok(Insert::Added)));
    let mut header = encode_header(chain.get());
    assert_eq!(header.len(), 20 + 2 * 53);
    header[offset..offset + field.len()].copy_from_slice(field);
    header
}

fn refusal(header: &[u8]) -> Option<HeaderError> {
    load(header).err()
}

#[test]
fn each_check_of_a_header_refuses() {
    const LINK: usize = 20 + 53;
    let f64s = |values: &[f64]| values.iter().map(|value| value.to_le_bytes().to_vec()).collect::<Vec<_>>();
    assert_eq!(refusal(&header_with(0, &[])), None);
    for (offset, fields, expected) in [
        (8, vec![0u32.to_le_bytes().to_vec(), vec![1, 0], vec![3, 0], vec![255; 4]], HeaderError::Length),
        (12, vec![vec![16], vec![21], vec![0, 0, 0, 128]], HeaderError::Options),
        (0, vec![vec![11], vec![13], vec![255; 8]], HeaderError::Items),
        (LINK + 16, vec![vec![9], vec![255; 8]], HeaderError::Items),
        (LINK + 24, f64s(&[0.0, -0.0, 1.0, -0.5, f64::NAN, f64::INFINITY, -f64::NAN]), HeaderError::Link(1)),
        // Bytes, then bits, that do not fit each other, also modulo 2^64.
        (LINK, vec![vec![17], vec![0; 8], [[0; 16], [0; 16]].concat()], HeaderError::Link(1)),
        (LINK, vec![(1u64 << 61 | 16).to_le_bytes().to_vec()], HeaderError::Link(1)),
        (LINK + 8, vec![vec![129], vec![0; 8], vec![255; 8]], HeaderError::Link(1)),
        // Bits an entry that ask for other hashes, or none.
        (LINK + 32, f64s(&[0.0, -0.5, f64::NAN, f64::INFINITY, 50.0, 1e300]), HeaderError::Link(1)),
        (LINK + 40, vec![vec![0], vec![8], vec![10], vec![255; 4]], HeaderError::Link(1)),
        // A modulus beyond the bits.
        (LINK + 52, vec![vec![8], vec![63], vec![64], vec![255]], HeaderError::Link(1)),
    ] {
        for field in fields {
            assert_eq!(refusal(&header_with(offset, &field)), Some(expected), "{field:?} at {offset}");
        }
    }
    let header = header_with(0, &[]);
    assert!((0..header.len()).all(|len| refusal(&header[..len]) == Some(HeaderError::Length)));
    assert_eq!(refusal(&[header, vec![0]].concat()), Some(HeaderError::Length));
}

/// A link that agrees with itself and has no hashes would claim every item.
#[test]
fn a_link_without_hashes_is_refused() {
    let mut header = header_with(20 + 32, &0f64.to_le_bytes());
    header[20 + 40..20 + 44].fill(0);
    assert_eq!(refusal(&header), Some(HeaderError::Link(0)));
}

/// A link with more hashes than the smallest rate takes would make each command as slow as its sender likes.
#[test]
fn a_link_with_too_many_hashes_is_refused() {
    let mut header = header_with(20 + 32, &1550.0f64.to_le_bytes());
    header[20 + 40..20 + 44].copy_from_slice(&1075u32.to_le_bytes());
    assert_eq!(refusal(&header), None);
    let mut header = header_with(20 + 32, &1551.0f64.to_le_bytes());
    header[20 + 40..20 + 44].copy_from_slice(&1076u32.to_le_bytes());
    assert_eq!(refusal(&header), Some(HeaderError::Link(0)));
}

#[test]
fn a_chain_longer_than_rates_can_halve_is_refused() {
    let link = &header_with(0, &[])[20..73];
    for (count, refused) in [(MAX_LINKS, false), (MAX_LINKS + 1, true)] {
        let mut header = header_with(0, &[])[..20].to_vec();
        header[..8].copy_from_slice(&(count as u64 * 4).to_le_bytes());
        header[8..12].copy_from_slice(&(count as u32).to_le_bytes());
        header.extend(link.repeat(count));
        assert_eq!(refusal(&header), refused.then_some(HeaderError::Length));
    }
}

#[test]
fn no_memory_is_taken_beyond_the_limit() {
    // With as many entries as such bits are for.
    let sized = |bytes: u64| {
        let mut header = header_with(20, &[bytes.to_le_bytes(), (bytes * 8).to_le_bytes()].concat());
        header[20 + 44..20 + 52].copy_from_slice(&(bytes * 8 / 10).to_le_bytes());
        header
    };
    assert_eq!(refusal(&sized(1 << 20)), Some(HeaderError::Limit { bytes: (1 << 20) + 16 }));
    assert_eq!(refusal(&sized((1 << 20) - 16)), None);
    // More bits than the entries can have asked for are damage.
    let damaged = header_with(20, &[(1u64 << 40).to_le_bytes(), (1u64 << 43).to_le_bytes()].concat());
    assert_eq!(refusal(&damaged), Some(HeaderError::Link(0)));
    let before = mapped_bytes();
    let huge = decode_header(&sized(1 << 60), u64::MAX).unwrap_err();
    assert_eq!(huge, HeaderError::Memory(crate::filters::bits::AllocError { bytes: 1 << 60 }));
    assert!(mapped_bytes() < before + (1 << 40));
}

/// What RedisBloom does not check either, and can be served.
#[test]
fn odd_headers_are_loaded() {
    // Growth 0: serves until it would have to grow.
    let mut chain = load(&header_with(16, &[0])).unwrap();
    assert!(chain.insert_item(b"new").is_err());
    // Entries 0, and 2^64 - 1.
    let mut chain = load(&header_with(20 + 53 + 44, &[0; 8])).unwrap();
    assert!(chain.insert_item(b"new").is_err());
    assert_eq!(chain.get().capacity(), 4);
    let mut chain = load(&header_with(20 + 53 + 44, &[255; 8])).unwrap();
    assert_eq!(chain.insert_item(b"new"), Ok(Insert::Added));
    assert_eq!((chain.get().capacity(), chain.get().items()), (3, 13));
    // More items than entries: full, the next new item grows the chain.
    let mut chain = load(&header_with(20 + 53 + 44, &[2])).unwrap();
    assert_eq!(chain.insert_item(b"new"), Ok(Insert::Added));
    assert_eq!(chain.get().len(), 3);
    // Any combination of options.
    for options in 0..16u8 {
        let mut chain = load(&header_with(12, &[options])).unwrap();
        assert_eq!(chain.get().options(), u32::from(options));
        let outcome = chain.insert_item(b"new").unwrap();
        assert_eq!(outcome, if options & 8 != 0 { Insert::Full } else { Insert::Added });
        assert_eq!(chain.get().contains(chain.get().hash(b"new")), outcome == Insert::Added);
    }
}

// Hostile bytes.

/// Does to a loaded chain all that commands can.
fn exercise(chain: &mut Chain, iter: i64, data: &[u8]) {
    for i in 0..20u64 {
        let pair = HashPair { a: i.wrapping_mul(0x9e37_79b9_7f4a_7c15), b: !i };
        let shape = chain.get().next_shape();
        // What would take much memory is up to the owner's limit.
        if shape.is_ok_and(|shape| shape.bytes > 1 << 16) {
            _ = chain.get_mut().insert(pair);
        } else if let Ok(Insert::Added) = chain.insert(pair) {
            assert!(chain.get().contains(pair));
        }
    }
    let bloom = chain.get();
    _ = (bloom.items(), bloom.capacity(), bloom.bit_bytes());
    if let Some(chunk) = chunk_at(bloom, iter) {
        bloom.copy_bytes(chunk.link, chunk.offset, &mut vec![0; chunk.len]);
    }
    if let Ok(chunk) = place_chunk(bloom, iter, data.len()) {
        chain.get_mut().or_bytes(chunk.link, chunk.offset, data);
    }
}

/// Takes or refuses a header without a panic; what was taken gives the same header back.
fn try_header(header: &[u8], iter: i64, data: &[u8]) -> bool {
    let Ok(mut chain) = load(header) else { return false };
    assert_eq!(encode_header(chain.get()), header);
    exercise(&mut chain, iter, data);
    true
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, rng_seed: RngSeed::Fixed(1), ..ProptestConfig::default() })]

    #[test]
    fn random_bytes_never_panic(header in prop::collection::vec(any::<u8>(), 0..200), iter: i64) {
        try_header(&header, iter, &[]);
    }

    /// Headers of sound links whose free fields are anything.
    #[test]
    fn random_fields_never_panic(
        links in prop::collection::vec((1u64..2000, 1e-12..0.99f64, any::<u32>(), any::<u64>(), 0u8..12), 1..6),
        options in 0u32..16, growth in prop_oneof![0u32..5, any::<u32>()],
        iter in prop_oneof![-10i64..5000, any::<i64>()], data in prop::collection::vec(any::<u8>(), 0..100),
    ) {
        let items: u64 = links.iter().map(|link| u64::from(link.2)).sum();
        let mut header = items.to_le_bytes().to_vec();
        [links.len() as u32, options, growth].iter().for_each(|field| header.extend(field.to_le_bytes()));
        for (entries, error, items, odd_entries, log2_bits) in links {
            let shape = Shape::new(entries, error).unwrap();
            let log2_bits = if 1 << log2_bits <= shape.bits { log2_bits } else { 0 };
            let entries = if odd_entries % 3 == 0 { odd_entries } else { entries };
            let fields = [shape.bytes, shape.bits, items.into(), error.to_bits(), shape.bits_per_entry.to_bits()];
            fields.iter().for_each(|field| header.extend(field.to_le_bytes()));
            header.extend(shape.hashes.to_le_bytes());
            header.extend(entries.to_le_bytes());
            header.push(log2_bits);
        }
        prop_assert!(try_header(&header, iter, &data));
    }

    /// A sound header with some bytes changed.
    #[test]
    fn damaged_headers_never_panic(changes in prop::collection::vec((0usize..126, any::<u8>()), 1..4), iter in -1i64..60, len in 0usize..40) {
        let mut header = header_with(0, &[]);
        changes.into_iter().for_each(|(at, byte)| header[at] = byte);
        try_header(&header, iter, &vec![255; len]);
    }
}
