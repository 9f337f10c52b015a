//! Filters in servers: made at random, and everything that can be seen of them.

use std::collections::BTreeMap;

use super::{Client, Random, Value};

/// Everything that can be seen of a filter.
#[derive(Debug, PartialEq)]
pub struct Seen {
    /// What BF.SCANDUMP gives.
    pub dump: Vec<(i64, Vec<u8>)>,
    /// What BF.INFO gives.
    pub info: Value,
    /// What BF.DEBUG gives.
    pub debug: Value,
    /// What PEXPIRETIME gives.
    pub ends: i64,
}

/// Everything of one.
pub fn seen(client: &mut Client, key: &[u8]) -> Seen {
    let (mut dump, mut iter) = (Vec::new(), 0);
    loop {
        let reply = client.call(&[b"BF.SCANDUMP", key, iter.to_string().as_bytes()]);
        let [next, data] = reply.array() else { panic!("{reply:?}") };
        iter = next.int();
        if iter == 0 {
            break;
        }
        dump.push((iter, data.bulk().to_vec()));
    }
    let info = client.call(&[&b"BF.INFO"[..], key]);
    let debug = client.call(&[&b"BF.DEBUG"[..], key]);
    Seen { dump, info, debug, ends: client.call(&[&b"PEXPIRETIME"[..], key]).int() }
}

/// All filters of a database.
pub fn all_seen(client: &mut Client) -> BTreeMap<Vec<u8>, Seen> {
    let (mut all, mut cursor) = (BTreeMap::new(), "0".to_owned());
    loop {
        let reply = client.call(&["SCAN", &cursor, "COUNT", "1000", "TYPE", "MBbloom--"]);
        let [next, names] = reply.array() else { panic!("{reply:?}") };
        for name in names.array() {
            all.insert(name.bulk().to_vec(), seen(client, name.bulk()));
        }
        cursor = next.text();
        if cursor == "0" {
            return all;
        }
    }
}

/// Fails unless both have the same filters.
#[track_caller]
pub fn assert_same(left: &BTreeMap<Vec<u8>, Seen>, right: &BTreeMap<Vec<u8>, Seen>) {
    let names = |all: &BTreeMap<Vec<u8>, Seen>| all.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(left), names(right));
    for (name, filter) in left {
        assert!(filter == &right[name], "{} differs", name.escape_ascii());
    }
}

/// A filter of random settings, random items and perhaps a life.
pub fn make_random(client: &mut Client, random: &mut Random, number: usize) -> Vec<u8> {
    let mut key = format!("filter:{number}:").into_bytes();
    if random.percent(10) {
        key.extend((0..random.below(6)).map(|_| random.bits() as u8));
    }
    let error = *random.pick(&["0.25", "0.1", "0.01", "0.001", "1e-6", "1e-12"]);
    let most = *random.weighted(&[(60, 50), (40, 1000), (8, 20_000), (1, 200_000)]);
    let capacity = (1 + random.below(most)).to_string();
    let mut words: Vec<&[u8]> = vec![b"BF.RESERVE", &key, error.as_bytes(), capacity.as_bytes()];
    match random.below(6) {
        0 => words.push(b"NONSCALING"),
        1 => words.extend([&b"EXPANSION"[..], b"1"]),
        2 => words.extend([&b"EXPANSION"[..], b"4"]),
        _ => {}
    }
    assert_eq!(client.call(&words), "OK");
    let most = *random.weighted(&[(5, 20), (5, 200), (1, 2000)]);
    let items: Vec<_> = (0..random.below(most)).map(|_| random.bits().to_le_bytes()).collect();
    if !items.is_empty() {
        let words: Vec<&[u8]> = [&b"BF.MADD"[..], &key].into_iter().chain(items.iter().map(|item| &item[..])).collect();
        client.call(&words);
    }
    if random.percent(30) {
        let life = (100_000_000 + random.below(1_000_000_000)).to_string();
        assert_eq!(client.call(&[&b"PEXPIRE"[..], &key, life.as_bytes()]), 1);
    }
    key
}
