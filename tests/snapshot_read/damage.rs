//! Damaged files: refused, or what is sound of them loaded and the rest reported. Never a loss that nobody is told of.

use super::file::{Content, Writer, filter, loaded, numbered, refused, salvaged};

/// Three blocks, two keys each; the last in a database of its own.
fn marked() -> Vec<u8> {
    let mut writer = Writer::new("REDIS0010");
    writer.aux(b"seendb-ver", b"1").db(0).key(b"a", &numbered(1)).life(9_000).key(b"b", &numbered(2)).mark();
    writer.db(0).key(b"c", &numbered(3)).key(b"d", &numbered(4)).mark();
    writer.db(2).key(b"e", &numbered(5)).key(b"f", &numbered(6)).mark().end()
}

fn unmarked() -> Vec<u8> {
    let mut writer = Writer::new("REDIS0010");
    writer.aux(b"redis-ver", b"7.0.15").db(0).key(b"a", &numbered(1)).life(9_000).key(b"b", &numbered(2));
    writer.key(b"s", &[0, 5, b'h', b'e', b'l', b'l', b'o']).db(2).key(b"e", &numbered(5)).end()
}

fn names(content: &Content) -> String {
    content.keys().map(|(_, name)| String::from_utf8_lossy(name).into_owned()).collect()
}

fn find(file: &[u8], text: &[u8]) -> usize {
    file.windows(text.len()).position(|window| window == text).unwrap()
}

/// Something is reported, and where it is lies in the file.
#[track_caller]
fn check_salvage(bytes: &[u8], what: &str) {
    let (report, _) = salvaged(bytes);
    assert!(report.dropped.count > 0, "{what}: nothing is reported");
    assert!(report.dropped.listed.iter().all(|loss| loss.from <= loss.to && loss.to <= bytes.len() as u64), "{what}");
}

#[test]
fn every_byte_changed() {
    for (file, has_marks) in [(marked(), true), (unmarked(), false)] {
        let (_, whole) = loaded(&file);
        for at in 0..file.len() {
            for change in [0x01, 0x80, 0xff] {
                let mut bytes = file.clone();
                bytes[at] ^= change;
                refused(&bytes);
                check_salvage(&bytes, &format!("byte {at} changed by {change:x}"));
                let (_, content) = salvaged(&bytes);
                if has_marks {
                    // What is loaded is what was saved.
                    assert!(content.iter().all(|(key, held)| whole.get(key) == Some(held)), "byte {at}");
                    // All other blocks are there.
                    assert!(content.len() >= 4, "byte {at}: {}", names(&content));
                }
            }
        }
    }
}

#[test]
fn cut_at_every_byte() {
    for file in [marked(), unmarked()] {
        let (_, whole) = loaded(&file);
        let mut most = 0;
        for cut in 0..file.len() {
            let bytes = &file[..cut];
            refused(bytes);
            check_salvage(bytes, &format!("cut at {cut}"));
            let (_, content) = salvaged(bytes);
            assert!(content.iter().all(|(key, held)| whole.get(key) == Some(held)), "cut at {cut}");
            // What comes before the cut is there.
            assert!(content.len() >= most, "cut at {cut}");
            most = content.len();
        }
        assert_eq!(most, whole.len());
    }
}

/// What was taken without a check is not called lost.
#[test]
fn the_keys_before_a_cut_are_not_lost() {
    let file = marked();
    let mut writer = Writer::new("REDIS0010");
    writer.aux(b"seendb-ver", b"1").db(0).key(b"a", &numbered(1)).key(b"b", &numbered(2));
    let one_block = writer.db(2).key(b"e", &numbered(5)).mark().end();
    let last = find(&file, b"\x01f\x81");
    for (bytes, kept, blocks) in
        [(&file[..last + 5], "abcde", 2), (&one_block[..find(&one_block, b"\x01e\x81") + 5], "ab", 0)]
    {
        let (report, content) = salvaged(bytes);
        assert_eq!((names(&content).as_str(), report.blocks), (kept, blocks));
        let [loss] = &report.dropped.listed[..] else { panic!("one loss: {:?}", report.dropped) };
        let keys = if blocks == 0 { "2 keys" } else { "1 key" };
        assert!(loss.reason.starts_with("the file ends early; what comes before, from byte "), "{loss}");
        assert!(loss.reason.ends_with(&format!(" on, could not be checked ({keys})")), "{loss}");
        assert!(loss.to == bytes.len() as u64 && loss.to - loss.from < 40 && loss.keys == 0, "{loss}");
    }
}

#[test]
fn a_block_is_lost_with_its_keys_named() {
    let mut file = marked();
    let at = find(&file, b"\x01c\x81");
    let bits = at + find(&file[at..], b"\x05\x08") + 2;
    file[bits] ^= 1;
    let (first, second) = (find(&file, b"seendb-block") + 25, at - 3);
    assert_eq!(first, second);
    let end = first + find(&file[first..], b"\xfa\x0cseendb-block");
    let error = refused(&file).to_string();
    assert_eq!(error, format!("bytes {first} to {end}: the block's checksum is wrong"));
    let (report, content) = salvaged(&file);
    assert_eq!((names(&content).as_str(), report.blocks), ("abef", 2));
    let [loss] = &report.dropped.listed[..] else { panic!("one loss: {:?}", report.dropped) };
    assert_eq!(loss.names, [(Some(0), b"c".to_vec()), (Some(0), b"d".to_vec())]);
    assert_eq!((loss.from, loss.keys), (first as u64, 2));
}

/// A wrong length: the keys behind cannot be found but by the next mark.
#[test]
fn reading_goes_on_at_the_next_mark() {
    let mut file = marked();
    let at = find(&file, b"\x01a\x81");
    file[at] = 0x3f;
    assert!(matches!(refused(&file), seendb::persist::snapshot::read::LoadError::Damage(_)));
    let (_, content) = salvaged(&file);
    assert_eq!(names(&content), "cdef");
}

/// A mark itself is damaged: the block before it is lost, the one behind is not.
#[test]
fn a_lost_mark() {
    let file = marked();
    for (change, kept) in [(4, "cdef"), (17, "cdef"), (20, "cdef")] {
        let mut bytes = file.clone();
        let at = find(&file, b"\xfa\x0cseendb-block");
        bytes[at + change] ^= 0x40;
        refused(&bytes);
        let (report, content) = salvaged(&bytes);
        assert_eq!(names(&content), kept, "byte {change} of the mark");
        assert_eq!(report.blocks, 2);
    }
}

/// Bytes are missing, or too many, between two marks.
#[test]
fn bytes_gone_and_bytes_put_in() {
    let file = marked();
    let at = find(&file, b"\x01c\x81") + 40;
    for bytes in [[&file[..at], &file[at + 7..]].concat(), [&file[..at], b"noise", &file[at..]].concat()] {
        refused(&bytes);
        let (_, content) = salvaged(&bytes);
        assert_eq!(names(&content), "abef");
    }
    // A whole block with its mark is gone: its neighbours hold, but the checksum of the whole does not.
    let first = find(&file, b"seendb-block") + 25;
    let second = first + find(&file[first..], b"seendb-block") + 25;
    let bytes = [&file[..first], &file[second..]].concat();
    refused(&bytes);
    let (report, content) = salvaged(&bytes);
    assert_eq!((names(&content).as_str(), report.dropped.count), ("abef", 1));
}

/// Behind damage the database is known only when it is named again.
#[test]
fn keys_of_an_unknown_database_are_not_guessed() {
    let mut writer = Writer::new("REDIS0010");
    writer.db(1).key(b"a", &numbered(1)).mark();
    let file = writer.key(b"b", &numbered(2)).db(3).key(b"c", &numbered(3)).mark().end();
    loaded(&file);
    let mut bytes = file;
    bytes[20] ^= 1;
    let (report, content) = salvaged(&bytes);
    assert_eq!(content.keys().collect::<Vec<_>>(), [&(3, b"c".to_vec())]);
    assert_eq!(report.dropped.count, 2);
}

/// Marks inside a filter's bits, made to mislead.
#[test]
fn marks_that_are_none() {
    let mut false_marks = Vec::new();
    for length in [0u64, 5, 27, 1 << 20, u64::MAX] {
        false_marks.extend(b"\xfa\x0cseendb-block\x0cABCD");
        false_marks.extend(length.to_le_bytes());
    }
    false_marks.resize(1 << 14, 0);
    let mut writer = Writer::new("REDIS0010");
    writer.db(0).key(b"a", &filter(&false_marks)).mark().db(0).key(b"b", &numbered(2)).mark();
    let file = writer.db(0).key(b"c", &numbered(3)).mark().end();
    let (_, content) = loaded(&file);
    assert_eq!(names(&content), "abc");
    for at in [12, 60, 300, 16_000] {
        let mut bytes = file.clone();
        bytes[at] ^= 1;
        let (_, content) = salvaged(&bytes);
        assert_eq!(names(&content), "bc", "byte {at}");
    }
}

/// A large filter, streamed, in a block of its own.
#[test]
fn large_filters_in_blocks() {
    let bits: Vec<u8> = (0..3_000_000u32).map(|i| (i % 255) as u8).collect();
    let mut writer = Writer::new("REDIS0010");
    writer.db(0).key(b"a", &numbered(1)).mark().db(0).key(b"large", &filter(&bits)).mark();
    let file = writer.db(0).key(b"b", &numbered(2)).mark().end();
    loaded(&file);
    for at in [1_000_000, 2_999_999] {
        let mut bytes = file.clone();
        bytes[at] ^= 1;
        refused(&bytes);
        let (report, content) = salvaged(&bytes);
        assert_eq!(names(&content), "ab");
        assert_eq!(report.dropped.listed[0].names, [(Some(0), b"large".to_vec())]);
    }
    let (_, content) = salvaged(&file[..2_000_000]);
    assert_eq!(names(&content), "a");
}

/// A client may choose a name that looks like blocks.
#[test]
fn names_that_look_like_blocks() {
    let empty = [&b"\xfa\x0cseendb-block\x0c"[..], &[0; 12]].concat();
    let name = [&empty[..], &empty, &empty].concat();
    let mut writer = Writer::new("REDIS0010");
    writer.db(0).key(b"a", &numbered(1)).mark().db(0).key(&name, &numbered(2)).mark();
    let file = writer.db(0).key(b"b", &numbered(3)).mark().end();
    loaded(&file);
    let mut bytes = file.clone();
    bytes[20] ^= 1;
    let (_, content) = salvaged(&bytes);
    assert!(content.len() == 2 && content.contains_key(&(0, name)));
}

/// One filter cannot be, or is there twice: the others are loaded.
#[test]
fn single_keys_that_cannot_be_taken() {
    let mut writer = Writer::new("REDIS0010");
    writer.db(0).key(b"a", &numbered(1)).key(b"unsound", &filter(&[])).key(b"a", &numbered(2)).db(99);
    let file = writer.key(b"beyond", &numbered(3)).db(1).key(b"b", &numbered(4)).end();
    refused(&file);
    let (report, content) = salvaged(&file);
    assert_eq!((names(&content).as_str(), report.dropped.count), ("ab", 3));
    assert_eq!(content[&(0, b"a".to_vec())].bits[0], 0x9E37_79B9_7F4A_7C15_u64.to_le_bytes());
    let reasons: Vec<_> = report.dropped.listed.iter().map(|loss| loss.reason.as_str()).collect();
    let [unsound, twice, beyond] = reasons[..] else { panic!("three losses") };
    assert!(unsound.contains("not sound") && twice.contains("there before") && beyond.contains("a database"));
    let shown: Vec<_> = report.dropped.listed.iter().map(|loss| loss.to_string()).collect();
    assert!(shown[0].ends_with("sub-filter 0 is not sound (1 key)"), "{shown:?}");
}

/// Most losses are only counted.
#[test]
fn a_list_of_losses_has_an_end() {
    let mut writer = Writer::new("REDIS0010");
    for i in 0..500u64 {
        writer.key(format!("{i:04}").as_bytes(), &filter(&[]));
    }
    let (report, content) = salvaged(&writer.key(b"b", &numbered(4)).end());
    assert_eq!((content.len(), report.dropped.count, report.dropped.listed.len()), (1, 500, 100));
    assert_eq!(report.dropped.listed[99].names, [(Some(0), b"0099".to_vec())]);
}

/// Files of other servers may hold files with marks: those are no reason to give up their keys, nor are the keys in them any.
#[test]
fn files_of_others_that_hold_marks() {
    let inner = marked();
    let mut writer = Writer::new("REDIS0010");
    let value = [&[0, 0x40 | (inner.len() >> 8) as u8, inner.len() as u8][..], &inner[..]].concat();
    writer.aux(b"redis-ver", b"7.0.15").db(0).key(b"x", &numbered(1)).key(b"backup", &value);
    let file = writer.key(b"y", &numbered(2)).end();
    assert_eq!(names(&loaded(&file).1), "xy");
    let mut bytes = file.clone();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    refused(&bytes);
    let (report, content) = salvaged(&bytes);
    assert_eq!((names(&content).as_str(), report.dropped.count), ("xy", 1));
    let (_, content) = salvaged(&file[..file.len() - 12]);
    assert_eq!(names(&content), "x");
}

/// Every key lies in a block.
#[test]
fn keys_behind_the_last_mark() {
    let mut writer = Writer::new("REDIS0010");
    let file = writer.db(0).key(b"a", &numbered(1)).mark().db(0).key(b"b", &numbered(2)).end();
    assert!(refused(&file).to_string().contains("keys behind the last block mark"));
    let (report, content) = salvaged(&file);
    assert_eq!((names(&content).as_str(), report.dropped.listed[0].keys), ("a", 1));
}

/// A value swallows the mark. As a whole that is a sound file of somebody else; a damaged one is not believed.
#[test]
fn a_mark_inside_a_value() {
    let mut writer = Writer::new("REDIS0010");
    writer.db(0).key(b"a", &numbered(1)).push(&[0, 1, b's', 27]);
    let mut file = writer.mark().end();
    assert_eq!(names(&loaded(&file).1), "a");
    let last = file.len() - 1;
    file[last] ^= 1;
    refused(&file);
    assert_eq!(salvaged(&file).0.dropped.count, 1);
}
