//! Bloom filters in all encodings and sizes, with lives, in any database.

use super::file::{Memory, Writer, content, filter, load_with, loaded, numbered, refused, text};
use super::model::{Chain, Field, Link, lzf, raw, value};
use seendb::keyspace::Keyspace;
use seendb::persist::snapshot::read::{Checksum, LoadError, Options, Progress, load};

fn one(value: &[u8]) -> Vec<u8> {
    Writer::new("REDIS0010").db(0).key(b"k", value).end()
}

#[track_caller]
fn bits_of(file: &[u8]) -> Vec<Vec<u8>> {
    let (_, content) = loaded(file);
    content[&(0, b"k".to_vec())].bits.clone()
}

#[test]
fn all_encodings() {
    let bits: Vec<u8> = (0..120).collect();
    for encver in 0..=4 {
        let mut link = Link::at_1_percent(100, 960, 0, &bits, 7);
        if encver == 0 {
            // The number of bits is computed: 100 times 9.585 is 958.
            link.bits = 958;
        }
        let chain = Chain::of(5, 2, vec![link]);
        assert_eq!(
            bits_of(&one(&value(encver, &chain.fields(encver)))),
            std::slice::from_ref(&bits),
            "encver {encver}"
        );
    }
    let chain = Chain::of(5, 2, vec![Link::at_1_percent(100, 960, 0, &bits, 7)]);
    assert!(refused(&one(&value(5, &chain.fields(4)))).to_string().contains("another type"));
}

/// What releases up to 2.0 have saved.
#[test]
fn old_moduli() {
    let bits: Vec<u8> = (0..128).collect();
    for link in [Link::at_1_percent(100, 0, 10, &bits, 7), Link::at_1_percent(100, 958, 0, &bits[..120], 7)] {
        let held = bits[..if link.bits == 0 { 128 } else { 120 }].to_vec();
        assert_eq!(bits_of(&one(&value(3, &Chain::of(4, 2, vec![link]).fields(3)))), [held]);
    }
}

/// Values of pre-releases of Redis 4.0 have no opcodes.
#[test]
fn without_opcodes() {
    for len in [8, 3 << 20] {
        let bits: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
        let fields = Chain::of(5, 2, vec![Link::at_1_percent(6, len as u64 * 8, 0, &bits, 7)]).fields(1);
        let mut body = vec![6, 0x81, 0x30, 0x16, 0xe5, 0xa2, 0x89, 0xbe, 0xf8, 1];
        for field in fields {
            match field {
                Field::Unsigned(number) => body.extend(super::model::length(number)),
                Field::Double(number) => body.extend(number.to_le_bytes()),
                Field::String(string) => body.extend(string),
            }
        }
        assert!(bits_of(&one(&body)) == [bits]);
    }
}

/// In one piece or larger than the window; compressed or not.
#[test]
fn all_sizes() {
    for len in [8usize, 64, 60_000, 70_000, (1 << 20) - 200, 1 << 20, (1 << 20) + 8, (5 << 20) + 24] {
        let bits: Vec<u8> = (0..len).map(|i| (i * i % 253) as u8).collect();
        let link = |array, items| Link { array, ..Link::at_1_percent(50, len as u64 * 8, 0, &[], items) };
        let chain =
            Chain::of(5, 2, vec![link(raw(&bits), 1), Link::at_1_percent(9, 64, 0, &[7; 8], 2), link(raw(&bits), 3)]);
        let file = one(&value(4, &chain.fields(4)));
        assert!(bits_of(&file) == [bits.clone(), vec![7; 8], bits.clone()], "{len} bytes");
    }
    // A compressed array that is larger than the window even so: literal runs of 32 bytes, then repetitions.
    let mut data = Vec::new();
    let mut bits = Vec::new();
    for i in 0..60_000u32 {
        let run: Vec<u8> = (0..32).map(|j| (i >> (j % 16)) as u8).collect();
        data.push(31);
        data.extend(&run);
        data.extend([0xe0, 23, 31]);
        let repeated = [&run[..], &run[..]].concat();
        bits.extend([&run[..], &repeated[..32]].concat());
    }
    assert!(data.len() > 1 << 20);
    let array = lzf(&data, bits.len() as u64);
    let chain = Chain::of(5, 2, vec![Link { array, ..Link::at_1_percent(50, bits.len() as u64 * 8, 0, &[], 1) }]);
    assert!(bits_of(&one(&value(4, &chain.fields(4)))) == [bits]);
}

/// An array whose bytes are the digits of a number.
#[test]
fn arrays_that_look_like_numbers() {
    let array = Field::String(vec![0xc2, 0x4e, 0x61, 0xbc, 0x00]);
    let chain = Chain::of(5, 2, vec![Link { array, ..Link::at_1_percent(6, 64, 0, &[], 1) }]);
    assert_eq!(bits_of(&one(&value(4, &chain.fields(4)))), [b"12345678".to_vec()]);
}

#[test]
fn names_of_all_forms() {
    let mut writer = Writer::new("REDIS0010");
    let value = numbered(1);
    for name in [&[0xc0, 0x85][..], &[0xc1, 0, 1], &[0xc2, 0, 0, 0, 0x80], &[0xc3, 5, 20, 0, b'a', 0xe0, 10, 0], &[0]] {
        writer.push(&[7]).push(name).push(&value[1..]);
    }
    let (_, content) = loaded(&writer.end());
    let names: Vec<_> = content.keys().map(|(_, name)| name.clone()).collect();
    assert_eq!(names, [&b""[..], b"-123", b"-2147483648", b"256", &[b'a'; 20]]);
}

#[test]
fn databases_lives_and_use() {
    let mut writer = Writer::new("REDIS0011");
    // Before any number of a database, it is the first.
    writer.key(b"first", &numbered(0));
    for db in [15, 0, 7] {
        writer.db(db).life(1_000 + db).key(b"mortal", &numbered(db)).key(b"lasting", &numbered(db + 1));
    }
    writer.push(&[0xfd, 9, 0, 0, 0]).key(b"seconds", &numbered(1));
    writer.push(&[0xf9, 77]).key(b"used", &numbered(2));
    writer.push(&[0xf8, 0x50, 0]).life(2_000).key(b"idle", &numbered(3));
    writer.push(&[0xfc]).push(&(-5i64).to_le_bytes()).key(b"over", &numbered(4));
    let file = writer.end();
    let (_, held) = loaded(&file);
    let life = |db, name: &[u8]| held[&(db, name.to_vec())].life;
    assert_eq!((life(15, b"mortal"), life(0, b"mortal"), life(7, b"mortal")), (Some(1_015), Some(1_000), Some(1_007)));
    assert_eq!((life(15, b"lasting"), life(7, b"seconds"), life(7, b"used")), (None, Some(9_000), None));
    assert_eq!((life(7, b"over"), held.len()), (Some(1), 11));

    let keyspace = Keyspace::default();
    keyspace.hold_lives(true);
    keyspace.set_now(5_000);
    load(&Memory::new(&file), &keyspace, &Options { threads: 1, ..Options::default() }, &Progress::default()).unwrap();
    let look = |name: &[u8]| {
        let mut found = None;
        for shard in 0..seendb::keyspace::SHARDS {
            keyspace.for_each_in_shard(None, 7, shard, |entry| {
                if entry.name() == name {
                    found = Some((entry.idle(5_000), entry.uses(5_000)));
                }
            });
        }
        found.unwrap()
    };
    assert_eq!(look(b"used"), (0, 77));
    assert_eq!(look(b"idle").0, 4_096);

    let options = Options { threads: 2, now: Some(1_007), ..Options::default() };
    let (report, held) = load_with(&Memory::new(&file), &options).unwrap();
    assert_eq!((report.expired, held.len()), (3, 8));
    assert!(!held.contains_key(&(7, b"mortal".to_vec())) && held.contains_key(&(15, b"mortal".to_vec())));
}

#[test]
fn keys_that_cannot_be_taken() {
    let twice = Writer::new("REDIS0010").db(1).key(b"k", &numbered(1)).key(b"k", &numbered(2)).end();
    let at = 9 + 2 + 2 + numbered(1).len();
    assert_eq!(refused_load(&twice).to_string(), format!("offset {at}: a key that was there before"));
    let beyond = Writer::new("REDIS0010").db(16).key(b"k", &numbered(1)).end();
    assert!(refused(&beyond).to_string().contains("a database that there is not"));
    // Keys of other types may be anywhere.
    let (report, _) = loaded(&Writer::new("REDIS0010").db(16).key(b"k", &[0, 1, b'a']).end());
    assert_eq!(report.skipped.len(), 1);
    let unsound = filter(&[]);
    assert!(refused(&one(&unsound)).to_string().contains("sub-filter 0 is not sound"));
}

#[track_caller]
fn refused_load(bytes: &[u8]) -> LoadError {
    load_with(&Memory::new(bytes), &Options { threads: 2, ..Options::default() }).unwrap_err()
}

#[test]
fn checksums() {
    let file = one(&numbered(1));
    assert_eq!(loaded(&file).0.checksum, Checksum::Right);
    let at = file.len() - 8;
    let without = [&file[..at], &[0; 8]].concat();
    assert_eq!(loaded(&without).0.checksum, Checksum::Absent);
    let mut old = Writer::new("REDIS0004").db(0).key(b"k", &numbered(1)).bytes.clone();
    old.push(0xff);
    assert_eq!(loaded(&old).0.checksum, Checksum::Absent);
    let wrong = [&file[..at], &[1; 8]].concat();
    assert!(refused(&wrong).to_string().contains("the checksum of the whole is wrong"));
    let longer = [&file[..], b"x"].concat();
    assert!(refused(&longer).to_string().contains("something follows the end"));
}

/// Many keys, over many windows, by several threads.
#[test]
fn many_keys() {
    let mut writer = Writer::new("REDIS0010");
    writer.aux(b"seendb-ver", b"1").db(0);
    for i in 0..40_000u64 {
        if i % 10_000 == 0 {
            writer.mark().db(i / 10_000);
        }
        if i % 3 == 0 {
            writer.life(i + 1);
        }
        writer.key(format!("user:{i}").as_bytes(), &numbered(i));
    }
    let file = writer.mark().end();
    let (report, content) = loaded(&file);
    assert_eq!((report.keys, report.blocks, report.aux.len()), (40_000, 5, 1));
    for i in [0u64, 1, 9_999, 10_000, 39_999] {
        let held = &content[&(i as usize / 10_000, format!("user:{i}").into_bytes())];
        assert_eq!(held.bits[0], i.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes());
        assert_eq!(held.life, (i % 3 == 0).then_some(i + 1));
    }
}

#[test]
fn a_disk_that_fails_is_an_error_with_its_place() {
    let mut writer = Writer::new("REDIS0010");
    (0..60_000u64).for_each(|i| {
        writer.key(format!("user:{i}").as_bytes(), &numbered(i));
    });
    let mut file = Memory::new(&writer.end());
    file.broken = Some(2 << 20);
    for accept_damaged in [false, true] {
        let keyspace = Keyspace::default();
        let options = Options { accept_damaged, threads: 2, now: None };
        let error = load(&file, &keyspace, &options, &Progress::default()).unwrap_err();
        assert!(matches!(error, LoadError::Io { .. }), "{error}");
        assert!(accept_damaged || !content(&keyspace).is_empty());
    }
}

/// A length that announces more than the file has takes no memory.
#[test]
fn announced_lengths_are_not_believed() {
    let huge = [0x81, 0x00, 0x00, 0x00, 0xff, 0xff, 0xff, 0xff, 0xff];
    let mut bodies = vec![[&[0][..], &huge].concat(), [&[1][..], &huge].concat()];
    let link =
        Link { array: Field::String(huge.to_vec()), ..Link::at_1_percent(1 << 40, 0x00ff_ffff_ffff << 3, 0, &[], 1) };
    bodies.push(value(4, &Chain::of(5, 2, vec![link]).fields(4)));
    bodies.push([&[0xc3][..], &huge, &huge].concat());
    for body in bodies {
        assert!(matches!(refused(&one(&body)), LoadError::Damage(_)));
    }
    let name = [&[0][..], &huge, &text(b"v")].concat();
    refused(&Writer::new("REDIS0010").push(&name).end());
}
