//! Checksum, lengths, module ids, strings.

use super::model::{self, unhex};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use seendb::codec::crc64::Crc64;
use seendb::codec::lzf;
use seendb::codec::rdb::{self, Input, Malformed, ModuleId, Reader};
use seendb::codec::rdb_string::RdbString;

#[test]
fn the_checksum_has_its_published_check_value() {
    assert_eq!(Crc64::of(b"123456789"), 0xe9c6_d914_c4b8_d9ca);
    assert_eq!(model::crc64(b"123456789"), 0xe9c6_d914_c4b8_d9ca);
    assert_eq!((Crc64::of(b""), Crc64::new().value()), (0, 0));
}

#[test]
fn numbers_have_the_lengths_of_the_format() {
    for (number, hex) in [
        (0, "00"),
        (5, "05"),
        (63, "3f"),
        (64, "4040"),
        (100, "4064"),
        (1152, "4480"),
        (16383, "7fff"),
        (16384, "8000004000"),
        (0xffff_ffff, "80ffffffff"),
        (0x1_0000_0000, "810000000100000000"),
        (u64::MAX, "81ffffffffffffffff"),
    ] {
        let mut out = Vec::new();
        rdb::push_length(&mut out, number);
        assert_eq!(out, unhex(hex));
        let mut reader = Reader::new(&out);
        assert_eq!(reader.length(), Ok(number));
        assert!(reader.rest().is_empty());
        for short in 0..out.len() {
            assert_eq!(Reader::new(&out[..short]).length(), Err(Malformed), "{short} bytes of {hex}");
        }
    }
    // Longer than needed: Redis reads them too.
    for hex in ["4005", "8000000005", "810000000000000005"] {
        assert_eq!(Reader::new(&unhex(hex)).length(), Ok(5), "{hex}");
    }
    // Forms without a meaning, and those of special strings.
    for first in (0x82..=0xbf).chain(0xc0..=0xff) {
        assert_eq!(Reader::new(&[first, 0, 0, 0, 0, 0, 0, 0, 0]).length(), Err(Malformed), "{first:x}");
    }
}

#[test]
fn module_ids_are_those_of_the_published_types() {
    for (name, encver, hex) in [
        (b"MBbloom--", 4, "813016e5a289bef804"),
        (b"MBbloomCF", 4, "813016e5a289821404"),
        (b"CMSk-TYPE", 0, "8108c4a4f9360f1000"),
        (b"TopK-TYPE", 0, "814e8a4af9360f1000"),
        (b"TDIS-TYPE", 0, "814c3212f9360f1000"),
    ] {
        let id = ModuleId::new(name, encver).unwrap();
        let mut out = Vec::new();
        rdb::push_length(&mut out, id.code());
        assert_eq!(out, unhex(hex));
        let read = ModuleId::from_code(Reader::new(&out).length().unwrap());
        assert_eq!((read.name(), read.encver(), read), (*name, encver, id));
    }
    assert_eq!(ModuleId::new(b"MBbloom--", 1023).unwrap().encver(), 1023);
    assert_eq!(ModuleId::new(b"MBbloom--", 1024), None);
    assert_eq!(ModuleId::new(b"MBbloom+-", 4), None);
    assert_eq!(&ModuleId::from_code(u64::MAX).name(), b"_________");
    assert_eq!(&ModuleId::from_code(0).name(), b"AAAAAAAAA");
}

/// The whole string at the start of `bytes`, and what is left of them. Checks the offsets of the pieces.
fn string(bytes: &[u8]) -> Result<(Vec<u8>, usize), Malformed> {
    let mut reader = Reader::new(bytes);
    let string = RdbString::read(&mut reader)?;
    let mut whole = Vec::new();
    string.pieces(|offset, piece| {
        assert_eq!((offset, offset % 8), (whole.len(), 0));
        whole.extend_from_slice(piece);
        assert!(whole.len() as u64 <= string.len(), "more bytes than announced");
    })?;
    assert_eq!(whole.len() as u64, string.len());
    Ok((whole, reader.rest().len()))
}

#[test]
fn strings_in_their_three_forms() {
    for (hex, text) in [
        ("00", ""),
        ("03616263", "abc"),
        ("4003616263", "abc"),
        ("c000", "0"),
        ("c07f", "127"),
        ("c0ff", "-1"),
        ("c080", "-128"),
        ("c18000", "128"),
        ("c1ff7f", "32767"),
        ("c10080", "-32768"),
        ("c200800000", "32768"),
        ("c2ffffff7f", "2147483647"),
        ("c200000080", "-2147483648"),
        // Recorded: an array of eight bytes that looks like a number.
        ("c24e61bc00", "12345678"),
        // A literal; a literal and seven bytes of it again, from 3 before; a run of 9 + 256 = 265 from one byte.
        ("c3040302616263", "abc"),
        ("c3060a02616263a002", "abcabcabca"),
        ("c3054109 0061e0ff00", &"a".repeat(265)),
        ("c30000", ""),
    ] {
        let hex = hex.replace(' ', "");
        // What follows a string is left alone.
        let bytes = unhex(&(hex.clone() + "ee"));
        assert_eq!(string(&bytes), Ok((text.as_bytes().to_vec(), 1)), "{hex}");
        for short in 0..bytes.len() - 1 {
            assert_eq!(string(&bytes[..short]), Err(Malformed), "{short} bytes of {hex}");
        }
    }
}

#[test]
fn damaged_compressed_strings_are_refused() {
    for (hex, why) in [
        ("c3040202616263", "gives more than announced"),
        ("c3040402616263", "gives fewer than announced"),
        ("c3030302616263", "the literal goes on beyond the compressed bytes"),
        ("c3060a02616263a003", "reaches back before the start"),
        ("c3022040 00", "starts with a repetition"),
        ("c3050a02616263a0", "an offset is missing"),
        ("c3060a02616263e0", "an extra length is missing"),
        ("c3070a02616263e000", "the offset behind an extra length is missing"),
        ("c304c302616263", "a length in a special form"),
        ("c304810000000100000000 02616263", "4 GB from 4 bytes"),
        ("c30481ffffffffffffffff 02616263", "more than any memory"),
        ("c30481000000000000016102616263", "a byte more than 4 bytes can give"),
        ("c4", "an unknown form"),
        ("ff", "an unknown form"),
        ("82", "an unknown length"),
    ] {
        assert_eq!(string(&unhex(&hex.replace(' ', ""))), Err(Malformed), "{why}");
    }
}

/// Compresses greedily, with the latest earlier place of the next three bytes: all kinds of instructions appear.
fn compress(bytes: &[u8]) -> Vec<u8> {
    let (mut out, mut literal) = (Vec::new(), Vec::new());
    let flush = |out: &mut Vec<u8>, literal: &mut Vec<u8>| {
        for run in literal.chunks(32) {
            out.push(run.len() as u8 - 1);
            out.extend_from_slice(run);
        }
        literal.clear();
    };
    let mut latest = std::collections::HashMap::new();
    let mut at = 0;
    while at < bytes.len() {
        let next = bytes.get(at..at + 3);
        let earlier = next.and_then(|next| latest.insert(next, at)).filter(|from| at - from <= 8192);
        let Some(from) = earlier else {
            literal.push(bytes[at]);
            at += 1;
            continue;
        };
        let same = bytes[at..].iter().zip(&bytes[from..]).take(264).take_while(|(a, b)| a == b).count();
        let distance = at - from - 1;
        flush(&mut out, &mut literal);
        match same - 2 {
            short @ 1..7 => out.push((short << 5 | distance >> 8) as u8),
            long => out.extend([(7 << 5 | distance >> 8) as u8, (long - 7) as u8]),
        }
        out.push(distance as u8);
        at += same;
    }
    flush(&mut out, &mut literal);
    out
}

fn check_decompression(bytes: &[u8]) {
    let data = compress(bytes);
    assert!(bytes.len() as u64 <= lzf::max_decompressed(data.len()));
    let mut whole = Vec::new();
    lzf::decompress(&data, bytes.len() as u64, |offset, piece| {
        assert_eq!((offset, offset % 8), (whole.len(), 0));
        whole.extend_from_slice(piece);
    })
    .unwrap();
    assert!(whole == bytes, "{} bytes differ", bytes.len());
    let other = bytes.len() as u64 + 1;
    assert_eq!(lzf::decompress(&data, other, |_, _| {}), Err(Malformed));
}

#[test]
fn long_compressed_strings_come_in_pieces() {
    // Around the borders of pieces, as runs and as text whose repetitions reach back as far as can be.
    for len in [65_535, 65_536, 65_537, 65_799, 65_800, 131_072, 131_073, 300_000] {
        check_decompression(&vec![7; len]);
        for period in [3, 8191, 8192, 8193] {
            let text: Vec<u8> = (0..len).map(|i| (((i % period) * 0x9e37) >> 5) as u8).collect();
            check_decompression(&text);
        }
    }
}

fn config() -> ProptestConfig {
    ProptestConfig { cases: 500, failure_persistence: None, rng_seed: RngSeed::Fixed(1), ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn the_checksum_is_the_definitions(bytes in prop::collection::vec(any::<u8>(), 0..3000), cut in any::<prop::sample::Index>()) {
        prop_assert_eq!(Crc64::of(&bytes), model::crc64(&bytes));
        let (first, second) = bytes.split_at(cut.index(bytes.len() + 1));
        let mut crc = Crc64::default();
        crc.update(first);
        crc.update(second);
        prop_assert_eq!(crc.value(), model::crc64(&bytes));
    }

    #[test]
    fn any_number_comes_back(number in any::<u64>(), shift in 0u32..64) {
        let mut out = Vec::new();
        rdb::push_unsigned(&mut out, number >> shift);
        prop_assert_eq!(&out[1..], model::length(number >> shift));
        prop_assert_eq!(Reader::new(&out).unsigned(), Ok(number >> shift));
    }

    #[test]
    fn what_was_compressed_comes_back(bytes in prop::collection::vec(0u8..4, 0..2000)) {
        check_decompression(&bytes);
    }

    #[test]
    fn sparse_bytes_come_back(ones in prop::collection::vec(0usize..200_000, 0..40)) {
        let mut bytes = vec![0; ones.iter().max().map_or(0, |last| last + 1)];
        ones.iter().for_each(|&one| bytes[one] = 1 << (one % 8));
        check_decompression(&bytes);
    }

    #[test]
    fn random_strings_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), kind in 0xbfu8..0xc5) {
        let _ = string(&bytes);
        let _ = string(&[&[kind], &bytes[..]].concat());
    }
}
