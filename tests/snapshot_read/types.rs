//! Values of every type, and every opcode: what is stepped over must end exactly where the next key begins.

use super::file::{Writer, loaded, numbered, refused, text};
use super::model::{crc64, length};

/// A key of this type, then a filter that is found only if the first one's length is right. Every cut of it is refused.
#[track_caller]
fn check_type(magic: &str, name: &str, kind: u8, body: &[u8]) {
    let mut writer = Writer::new(magic);
    writer.db(0).key(b"other", &[&[kind], body].concat());
    let (from, to) = (writer.bytes.len() - body.len(), writer.bytes.len());
    let file = writer.key(b"filter", &numbered(1)).end();
    let (report, content) = loaded(&file);
    let skipped: Vec<_> = report.skipped.iter().map(|(name, count)| (name.to_string(), *count)).collect();
    assert_eq!(skipped, [(name.to_string(), 1)], "type {kind}");
    assert_eq!(content.keys().collect::<Vec<_>>(), [&(0, b"filter".to_vec())]);
    for cut in from..to {
        let mut short = file[..cut].to_vec();
        refused(&short);
        short.push(0xff);
        short.extend(crc64(&short).to_le_bytes());
        refused(&short);
    }
}

const LZF: &[u8] = &[0xc3, 5, 20, 0, b'a', 0xe0, 10, 0];

fn strings(count: u64, of_each: usize) -> Vec<u8> {
    let forms: [&[u8]; 6] =
        [&[1, b'x'], &[0xc0, 0xff], &[0xc1, 1, 2], &[0xc2, 1, 2, 3, 4], LZF, &[0x80, 0, 0, 0, 2, b'a', b'b']];
    let all = (0..count as usize * of_each).flat_map(|i| forms[i % forms.len()].to_vec());
    length(count).into_iter().chain(all).collect()
}

#[test]
fn types_of_counted_strings() {
    for (kind, name, of_each) in [(1, "list", 1), (2, "set", 1), (4, "hash", 2), (14, "list", 1)] {
        for count in [1, 6, 100] {
            check_type("REDIS0006", name, kind, &strings(count, of_each));
        }
    }
}

#[test]
fn types_in_one_string() {
    for (kind, name) in [
        (0, "string"),
        (9, "hash"),
        (10, "list"),
        (11, "set"),
        (12, "zset"),
        (13, "hash"),
        (16, "hash"),
        (17, "zset"),
        (20, "set"),
        (23, "hash"),
    ] {
        for body in [&text(b""), &text(&[0xff; 70]), LZF, &[0xc1, 0, 0]] {
            check_type("REDIS0011", name, kind, body);
        }
    }
    check_type("REDIS0012", "hash", 25, &[&[9; 8][..], &text(b"listpack")].concat());
}

#[test]
fn sorted_sets() {
    let text_scores = [&[5, 1, b'a', 253, 1, b'b', 254, 1, b'c', 255][..], &[1, b'd', 3, b'1', b'.', b'5', 0xc0, 7, 0]];
    check_type("REDIS0005", "zset", 3, &text_scores.concat());
    let scores = [&[2, 1, b'a'][..], &1.5f64.to_le_bytes(), &[0xc0, 7], &f64::NAN.to_le_bytes()].concat();
    check_type("REDIS0009", "zset", 5, &scores);
}

#[test]
fn lists_of_nodes() {
    check_type("REDIS0010", "list", 18, &[&[2, 2][..], &text(b"listpack"), &[1], LZF].concat());
}

#[test]
fn hashes_whose_fields_have_lives() {
    let fields = [&[2, 0][..], &text(b"f"), &text(b"v"), &[0x41, 0], LZF, &[0xc0, 1]].concat();
    check_type("REDIS0012", "hash", 22, &fields);
    check_type("REDIS0012", "hash", 24, &[&[1; 8][..], &fields].concat());
    let of_valkey = [&[2][..], &text(b"f"), &text(b"v"), &[0xff; 8], LZF, &[0xc0, 1], &[3; 8]].concat();
    check_type("VALKEY080", "hash", 22, &of_valkey);
    check_type("VALKEY081", "hash", 22, &of_valkey);
}

#[test]
fn streams() {
    for (kind, ids, group_ids, active) in [(15, 3, 2, 0), (19, 8, 3, 0), (21, 8, 3, 8)] {
        let mut body = vec![1];
        body.extend([text(&[7; 16]), text(b"listpack")].concat());
        (0..ids).for_each(|id| body.extend(length(1 << (7 * id))));
        body.push(2);
        for pending in [0, 2] {
            body.extend(text(b"group"));
            (0..group_ids).for_each(|id| body.extend(length(id)));
            body.push(pending);
            (0..pending).for_each(|_| body.extend([&[3; 24][..], &[0x41, 1]].concat()));
            body.push(1);
            body.extend(text(b"consumer"));
            body.extend(vec![4; 8 + active]);
            body.push(pending);
            (0..pending).for_each(|_| body.extend([3; 16]));
        }
        check_type("REDIS0011", "stream", kind, &body);
    }
}

/// Every kind of field that a module can write.
const FIELDS: &[u8] = &[1, 0x41, 0, 2, 5, 3, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 5, 2, b'a', b'b', 5, 0xc0, 3, 0];

#[test]
fn values_of_modules() {
    for (id, name) in [
        (0x3016_e5a2_8982_1404_u64, "MBbloomCF"),
        (0x08c4_a4f9_360f_1000, "CMSk-TYPE"),
        (0x4e8a_4af9_360f_1000, "TopK-TYPE"),
        (0x4c32_12f9_360f_1000, "TDIS-TYPE"),
    ] {
        check_type("REDIS0011", name, 7, &[&length(id)[..], FIELDS].concat());
    }
}

#[test]
fn opcodes_that_are_stepped_over() {
    let mut writer = Writer::new("REDIS0012");
    writer.aux(b"redis-ver", b"7.4.0").push(&[0xfa]).push(&text(b"number")).push(&[0xc0, 0x85]);
    writer.push(&[0xfa]).push(LZF).push(LZF);
    // A module's data: id, fields.
    writer.push(&[0xf7]).push(&length(0x3016_e5a2_8982_1404)).push(&[2, 1]).push(FIELDS);
    // Functions, of now and of pre-releases.
    writer.push(&[0xf5]).push(&text(b"#!lua name=a"));
    writer.push(&[0xf6]).push(&[1, b'n', 3, b'L', b'U', b'A', 1, 1, b'd']).push(LZF);
    writer.push(&[0xf6]).push(&[1, b'n', 3, b'L', b'U', b'A', 0]).push(LZF);
    // Numbers of slots, and of keys.
    writer.db(3).push(&[0xf4, 0x41, 7, 1, 0, 0xfb, 0x50, 1, 2]);
    // What a module keeps beside a key.
    writer.push(&[0xf3, 2, 1, 2, 3, 4]).push(FIELDS).push(&[1, 2, 3, 4]).push(FIELDS);
    let file = writer.key(b"filter", &numbered(1)).end();
    let (report, content) = loaded(&file);
    assert_eq!(content.keys().collect::<Vec<_>>(), [&(3, b"filter".to_vec())]);
    let aux = [(&b"redis-ver"[..], &b"7.4.0"[..]), (b"number", b"-123"), (&[b'a'; 20], &[b'a'; 20])];
    assert_eq!(report.aux.iter().map(|(key, value)| (&key[..], &value[..])).collect::<Vec<_>>(), aux);
    assert_eq!((report.magic, report.version), ("REDIS", 12));
}

#[test]
fn a_move_of_slots_in_valkey() {
    let mut writer = Writer::new("VALKEY080");
    writer.push(&[0xf3]).push(&text(&[b'n'; 40])).push(&[2, 0, 0x41, 0, 0x50, 0, 0x50, 1]);
    let file = writer.db(0).key(b"filter", &numbered(1)).end();
    let (report, content) = loaded(&file);
    assert_eq!((content.len(), report.magic, report.version), (1, "VALKEY", 80));
}

#[test]
fn what_is_not_known_is_refused() {
    for magic in ["REDIS0016", "REDIS0000", "REDIS00x1", "VALKEY079", "RADIS0011", "REDIS", ""] {
        let file = Writer::new(magic).end();
        let error = refused(&file).to_string();
        assert!(error.starts_with("offset 0: "), "{magic}: {error}");
    }
    for kind in [8, 26, 40, 242] {
        let file = Writer::new("REDIS0011").db(0).key(b"k", &[kind, 1, b'a']).end();
        let error = refused(&file).to_string();
        assert!(error.contains("a type that is not known"), "{kind}: {error}");
    }
    let file =
        Writer::new("REDIS0009").db(0).key(b"k", &[&[6], &length(0x3016_e5a2_8982_1404)[..], &[1]].concat()).end();
    assert!(refused(&file).to_string().contains("before Redis 4.0"));
}

/// Larger than the window: stepped over, not kept.
#[test]
fn large_values_of_other_types() {
    let large = vec![b'x'; 3 << 20];
    let elements = |count: u64| (0..count).flat_map(|i| text(format!("element {i}").as_bytes())).collect::<Vec<_>>();
    let mut writer = Writer::new("REDIS0011");
    writer.db(0).key(b"filter 1", &numbered(1)).key(b"string", &[&[0], &text(&large)[..]].concat());
    writer.key(b"list", &[&[1], &length(300_000)[..], &elements(300_000)].concat()).key(b"filter 2", &numbered(2));
    writer.key(b"module", &[&[7], &length(0x08c4_a4f9_360f_1000)[..], &[2, 1, 5], &text(&large), &[0]].concat());
    writer.push(&[0xf5]).push(&text(&large)).key(b"filter 3", &numbered(3));
    // A name as long as that.
    writer.key(&large, &[0, 1, b'a']).key(&large[1..], &numbered(4));
    let file = writer.end();
    let (report, content) = loaded(&file);
    let names: Vec<_> = content.keys().map(|(_, name)| name.len()).collect();
    assert_eq!(names, [8, 8, 8, large.len() - 1]);
    assert_eq!(report.skipped.values().sum::<u64>(), 4);
}

/// Files that Redis 8.2.3 has saved: small and large values of all its types, hashes whose fields have lives among them, a
/// stream with groups, functions; compressed, with the seconds since each use, and not compressed, with how much each was used.
#[test]
fn files_of_redis_8() {
    for name in ["redis-8.2.rdb", "redis-8.2-plain.rdb"] {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors/rdb").join(name);
        let (report, _) = loaded(&std::fs::read(path).unwrap());
        assert_eq!((report.magic, report.version, report.keys), ("REDIS", 12, 0));
        let skipped: Vec<_> = report.skipped.iter().map(|(name, count)| (name.to_string(), *count)).collect();
        let expected = [("hash", 4), ("list", 2), ("set", 3), ("stream", 1), ("string", 5), ("zset", 2)];
        assert_eq!(skipped, expected.map(|(name, count)| (name.to_string(), count)));
        assert!(report.aux.contains(&(b"redis-ver".to_vec(), b"8.2.3".to_vec())));
    }
}
