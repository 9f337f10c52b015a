//! `seendb copy` between live servers: SeenDB, and Redis with RedisBloom.
//!
//! | part | holds |
//! | --- | --- |
//! | `filters` | random filters there and back, in one and in pieces; lives; patterns; keys that are there already |
//! | `interrupted` | runs that are killed or cut off, and go on |
//! | `writers` | sources that change meanwhile |
//! | `cluster` | a cluster as the target |
//! | `others` | valkey-bloom, payloads of later versions, and servers that refuse |
//! | `fake` | servers of canned replies, and one that stands between |
//!
//! `SEENDB_COPY_FILTERS`: how many random filters go there and back (default 300).
#![cfg(feature = "server")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "copy/cluster.rs"]
mod cluster;
#[path = "copy/fake.rs"]
mod fake;
#[path = "copy/filters.rs"]
mod filters;
#[path = "copy/interrupted.rs"]
mod interrupted;
#[path = "copy/others.rs"]
mod others;
mod support;
#[path = "copy/writers.rs"]
mod writers;

use std::collections::BTreeMap;
use std::process::{Command, Output, Stdio};

use support::{Client, Random, Value};

/// The words of a run.
fn tool(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_seendb"));
    command.arg("copy").args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// The address of a port of this machine.
fn url(port: u16) -> String {
    format!("redis://127.0.0.1:{port}")
}

/// Runs the tool to its end.
fn copy(from: &str, to: &str, more: &[&str]) -> Output {
    tool(&[&[from, to], more].concat()).output().expect("the program runs")
}

/// What a run printed, both streams.
fn printed(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Runs the tool, which must move everything; returns what it printed.
#[track_caller]
fn copy_all(from: &str, to: &str, more: &[&str]) -> String {
    let output = copy(from, to, more);
    assert!(output.status.success(), "{}", printed(&output));
    printed(&output)
}

/// Runs the tool, which must end with status 1; returns what it printed.
#[track_caller]
fn copy_fails(from: &str, to: &str, more: &[&str]) -> String {
    let output = copy(from, to, more);
    assert_eq!(output.status.code(), Some(1), "{}", printed(&output));
    printed(&output)
}

/// Everything that can be seen of a filter.
#[derive(Debug, PartialEq)]
struct Seen {
    dump: Vec<(i64, Vec<u8>)>,
    info: Value,
    debug: Value,
    ends: i64,
}

fn seen(client: &mut Client, key: &[u8]) -> Seen {
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
fn all_seen(client: &mut Client) -> BTreeMap<Vec<u8>, Seen> {
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

#[track_caller]
fn assert_same(left: &BTreeMap<Vec<u8>, Seen>, right: &BTreeMap<Vec<u8>, Seen>) {
    let names = |all: &BTreeMap<Vec<u8>, Seen>| all.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(left), names(right));
    for (name, filter) in left {
        assert!(filter == &right[name], "{} differs", name.escape_ascii());
    }
}

/// A filter of random settings, random items and perhaps a life.
fn make_random(client: &mut Client, random: &mut Random, number: usize) -> Vec<u8> {
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
