//! Replays recorded conversations with RedisBloom (`tests/vectors/replies.json`): every group about `BF.*`, each on a fresh
//! server, in RESP2 and in RESP3, every reply byte for byte.
//!
//! A step's reply was recorded from RedisBloom 2.8.2 ("old") and from version 8 ("new"), or stands under "both" where they
//! agreed; we follow the new one. What differs on purpose is in [`DIFFERENCES`], with its reason in
//! `tests/differences.md`; what cannot be asked yet is in [`LATER_COMMANDS`] and [`SKIPPED`].
#![cfg(feature = "server")]

mod support;

use serde_json::Value as Json;
use std::collections::BTreeSet;
use support::{Server, show_args, show_bytes};

/// Commands that a later release brings. A step with one of them is left out.
const LATER_COMMANDS: [&str; 2] = ["SET", "OBJECT"];

/// Steps left out, with the reason.
const SKIPPED: [(&str, &[usize], &str); 8] = [
    ("bf.reserve", &[45], NO_STRINGS),
    ("bf.add", &[21, 22, 23, 24, 25, 28, 42], NO_STRINGS),
    ("bf.info", &[4, 5], NO_STRINGS),
    ("bf.insert", &[58], NO_STRINGS),
    ("bf.scandump", &[9], NO_STRINGS),
    ("bf.loadchunk", &[8, 9], NO_STRINGS),
    ("bf.reserve", &[27], BY_MEMORY),
    ("bf.insert", &[43, 44], BY_MEMORY),
];
const NO_STRINGS: &str = "needs a key that holds a string, which cannot be made in this release";
const BY_MEMORY: &str = "capacity above 2^30: the reply depends on the machine's memory, see c008 in tests/cases.rs";

/// An intended difference: group, step, name in `tests/differences.md`, our reply, and a command that is sent
/// afterwards so that the state is the recorded one again. That command's reply must be the recorded reply.
type Difference = (&'static str, usize, &'static str, &'static [u8], Option<&'static str>);

const UNKNOWN: &[u8] = b"-Unknown argument received\r\n";
const CAPACITY_RANGE: &[u8] = b"-ERR capacity must be in the range [1, 1099511627776]\r\n";
const SURPLUS: &[u8] = b"-ERR syntax error, unexpected 'FOO'\r\n";

const DIFFERENCES: [Difference; 20] = [
    ("bf.add", 46, "copy", b":1\r\n", None),
    ("bf.reserve", 24, "capacity-limit", CAPACITY_RANGE, None),
    ("bf.reserve", 25, "capacity-limit", CAPACITY_RANGE, None),
    ("bf.reserve", 30, "keyword-as-key", SCALING_INFO, None),
    ("bf.reserve", 31, "keyword-as-key", b"+OK\r\n", None),
    ("bf.reserve", 32, "surplus-words", SURPLUS, Some("BF.RESERVE f 0.01 100")),
    ("bf.reserve", 33, "surplus-words", SURPLUS, Some("BF.RESERVE f 0.01 100")),
    ("bf.reserve", 34, "surplus-words", SURPLUS, None),
    ("bf.reserve", 35, "surplus-words", SURPLUS, Some("BF.RESERVE f2 0.01 100 EXPANSION 3")),
    ("bf.reserve", 37, "surplus-words", b"-ERR no expansion\r\n", Some("BF.RESERVE f3 0.01 100 EXPANSION 4")),
    ("bf.insert", 6, "short-options", UNKNOWN, Some("BF.INSERT a ITEMS x z")),
    ("bf.insert", 7, "short-options", UNKNOWN, Some("BF.INSERT a ITEMS x z")),
    ("bf.insert", 10, "short-options", UNKNOWN, Some("BF.INSERT nope NOCREATE ITEMS z1")),
    ("bf.insert", 11, "short-options", UNKNOWN, Some("BF.INSERT nope2 NOCREATE ITEMS z1")),
    ("bf.insert", 12, "short-options", UNKNOWN, Some("BF.INSERT nope3 NONSCALING ITEMS z1")),
    ("bf.insert", 17, "short-options", UNKNOWN, Some("BF.INSERT b2 CAPACITY 1000 ERROR 0.001 EXPANSION 4 ITEMS a b")),
    ("bf.insert", 59, "short-options", UNKNOWN, Some("BF.INSERT b11 EXPANSION 3 ITEMS q")),
    ("bf.insert", 61, "short-options", UNKNOWN, Some("BF.INSERT b12 EXPANSION ITEMS q")),
    ("bf.loadchunk", 24, "loadchunk-or", b"+OK\r\n", None),
    ("bf.loadchunk", 25, "loadchunk-or", b"*2\r\n:9\r\n$8\r\n:}\xa0\x8eP\xd6)#\r\n", None),
];

/// `BF.INFO` of a default filter for 100 items; in RESP3 it begins with `%5`.
const SCALING_INFO: &[u8] = b"*10\r\n+Capacity\r\n:100\r\n+Size\r\n:240\r\n+Number of filters\r\n:1\r\n\
    +Number of items inserted\r\n:0\r\n+Expansion rate\r\n:2\r\n";

/// Bytes are written in the file as one code point each.
fn bytes(text: &Json) -> Vec<u8> {
    let text = text.as_str().expect("a string");
    text.chars().map(|c| u8::try_from(c).expect("a code point up to 255")).collect()
}

fn groups() -> Vec<(String, Vec<Json>)> {
    let all: Json = serde_json::from_str(include_str!("vectors/replies.json")).expect("the file is JSON");
    let all = all.as_array().expect("a list of groups");
    let named = all.iter().map(|group| {
        let name = group["group"].as_str().expect("a group has a name").to_string();
        (name, group["steps"].as_array().expect("a group has steps").clone())
    });
    named.filter(|(name, _)| name.starts_with("bf.") || name == "numbers").collect()
}

fn is_skipped(group: &str, step: usize, command: &[Vec<u8>]) -> bool {
    LATER_COMMANDS.iter().any(|name| command[0] == name.as_bytes())
        || SKIPPED.iter().any(|(of, steps, _)| *of == group && steps.contains(&step))
}

/// Runs a group in one protocol and counts the steps that were compared.
fn replay(group: &str, steps: &[Json], protocol: u8, failures: &mut Vec<String>) -> usize {
    let server = Server::start();
    let mut client = if protocol == 3 { server.client3() } else { server.client() };
    let mut compared = 0;
    for (index, step) in steps.iter().enumerate() {
        let command: Vec<Vec<u8>> = step["cmd"].as_array().expect("a command").iter().map(bytes).collect();
        if is_skipped(group, index, &command) {
            continue;
        }
        let replies = &step[format!("resp{protocol}")];
        let recorded = bytes(replies.get("both").unwrap_or(&replies["new"]));
        let difference = DIFFERENCES.iter().find(|entry| (entry.0, entry.1) == (group, index));
        let expected = match difference {
            Some((_, _, _, ours, _)) if *ours == SCALING_INFO && protocol == 3 => [b"%5", &ours[3..]].concat(),
            Some((_, _, _, ours, _)) => ours.to_vec(),
            None => recorded.clone(),
        };
        let mut check = |command: &[Vec<u8>], expected: &[u8]| {
            let (got, _) = client.call_raw(command);
            if got != expected {
                failures.push(format!(
                    "{group} step {index}, RESP{protocol}: {}\n  expected {}\n  got      {}",
                    show_args(command),
                    show_bytes(expected),
                    show_bytes(&got)
                ));
            }
        };
        check(&command, &expected);
        if let Some((_, _, _, _, Some(repair))) = difference {
            let words: Vec<Vec<u8>> = repair.split(' ').map(|word| word.as_bytes().to_vec()).collect();
            check(&words, &recorded);
        }
        compared += 1;
    }
    compared
}

fn replay_all(protocol: u8) {
    let mut failures = Vec::new();
    let mut compared = 0;
    for (name, steps) in groups() {
        compared += replay(&name, &steps, protocol, &mut failures);
    }
    assert!(failures.is_empty(), "{} of {compared} replies differ:\n{}", failures.len(), failures.join("\n"));
    // A list that grows unseen would hide more and more.
    assert_eq!(compared, 252, "steps that were compared");
}

#[test]
fn recorded_replies_in_resp2() {
    replay_all(2);
}

#[test]
fn recorded_replies_in_resp3() {
    replay_all(3);
}

#[test]
fn every_difference_is_written_down_and_every_written_one_is_coded() {
    let page = include_str!("differences.md");
    let section = page.split("\n## ").find(|part| part.starts_with("Recorded replies")).expect("a section");
    let written: BTreeSet<&str> =
        section.lines().filter_map(|line| Some(line.strip_prefix("| `")?.split_once('`')?.0)).collect();
    let coded: BTreeSet<&str> = DIFFERENCES.iter().map(|entry| entry.2).collect();
    assert_eq!(written, coded);
    for name in LATER_COMMANDS {
        assert!(section.contains(&format!("`{name}`")), "{name} is not named as left out");
    }
}
