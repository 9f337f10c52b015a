//! Filters one can delete from.

use crate::support::{Client, Server, Value, encode};
use crate::world::{World, with_items, yes};

/// The manual's page on them.
const MANUAL: &str = include_str!("../../docs/deleting.md");
const FAMILIES: [&str; 2] = ["CBF", "DLCBF"];

#[track_caller]
fn manual_says(words: &str) {
    let flat = MANUAL.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
    assert!(flat.contains(words), "docs/deleting.md does not say {words:?}");
}

fn numbers(reply: &Value) -> Vec<i64> {
    reply.array().iter().map(Value::int).collect()
}

/// Small filters hold their rate too.
#[test]
fn c010_very_small_filters() {
    for family in FAMILIES {
        for capacity in [1, 2, 5, 20, 50] {
            let world = World::new();
            let mut client = world.client();
            let (mut found, mut asked) = (0, 0);
            for n in 0..600 {
                let key = format!("k{n}");
                assert!(client.cmd(&format!("{family}.RESERVE {key} 0.01 {capacity}")) == "OK");
                let from = n * 1_000;
                client.call(&with_items(&format!("{family}.MADD {key}"), from..from + capacity));
                let strangers = from + 100..from + 400;
                asked += strangers.len();
                found += yes(&client.call(&with_items(&format!("{family}.MEXISTS {key}"), strangers)));
            }
            let rate = found as f64 / f64::from(asked as u32);
            // 180,000 questions to 600 filters: five standard errors above the 1.2 % that are allowed.
            assert!(rate <= 0.012 + 0.0016, "{family} {capacity}: {rate}");
        }
    }
}

#[test]
fn c024_capacity_of_10_to_the_11() {
    let server = Server::with(&["--max-filter-memory", "1gb"]);
    let (mut client, before) = (server.client(), server.resident_bytes());
    for family in ["CBF", "DLCBF", "CHAIN"] {
        let text = crate::refused(&mut client, &format!("{family}.RESERVE k 0.001 100000000000"));
        let bytes = text.strip_prefix("ERR filter would take ").and_then(|text| text.split_once(' '));
        let bytes: u64 = bytes.and_then(|(bytes, _)| bytes.parse().ok()).unwrap_or_else(|| panic!("{text}"));
        assert!(bytes > 100_000_000_000 && text.ends_with("'max-filter-memory' is 1073741824"), "{text}");
    }
    assert!(server.resident_bytes() < before + (8 << 20), "memory was taken");
}

#[test]
fn c028_overflowed_is_not_the_same_as_full() {
    let mut client = World::new().client();
    client.cmd("CBF.RESERVE k 0.01 75");
    client.call(&with_items("CBF.MADD k", 0..75));
    let double = |value: &Value| value.text().parse::<f64>().expect("a number");
    let at_capacity = double(client.cmd("CBF.INFO k").field("Error rate now"));
    client.call(&with_items("CBF.MADD k", 75..10_000));
    let info = client.cmd("CBF.INFO k");
    assert!(*info.field("Capacity") == 75 && *info.field("Number of items inserted") == 10_000);
    assert!(double(info.field("Fill")) > 0.99 && info.field("Saturated counters").int() > 0);
    assert!(double(info.field("Error rate now")) > 50.0 * at_capacity);
    // Saturated, but nearly empty.
    client.cmd("CBF.RESERVE j 0.01 75");
    for _ in 0..20 {
        client.cmd("CBF.ADD j a");
    }
    let info = client.cmd("CBF.INFO j");
    assert!(double(info.field("Fill")) < 0.02 && info.field("Saturated counters").int() >= 6);
    manual_says("Full filters and saturated counters are different things");
}

/// Each pair of families.
#[test]
fn c060_dump_command_of_another_family() {
    const WRONG: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
    let mut client = World::new().client();
    let families = ["BF", "CHAIN", "CBF", "DLCBF"];
    for family in families {
        client.cmd(&format!("{family}.ADD {family} a"));
    }
    for family in families {
        let before = client.cmd(&format!("DUMP {family}"));
        for other in families.into_iter().filter(|other| *other != family) {
            assert_eq!(client.refused(&format!("{other}.SCANDUMP {family} 0")), WRONG);
            assert_eq!(client.refused(&format!("{other}.LOADCHUNK {family} 1 x")), WRONG);
        }
        assert_eq!(client.cmd(&format!("DUMP {family}")), before, "the key is untouched");
    }
}

#[test]
fn c088_the_same_item_again_and_again() {
    const TIMES: usize = 100_000;
    let server = Server::start();
    let mut client = server.client();
    for family in FAMILIES {
        client.cmd(&format!("{family}.RESERVE {family} 0.01 1000"));
        client.cmd(&format!("{family}.MADD {family} a b c x"));
        let before = client.cmd(&format!("MEMORY USAGE {family}"));
        let one = encode(&[&format!("{family}.ADD"), family, "x"]);
        client.send(&one.repeat(TIMES));
        let refused = (0..TIMES).filter(|_| matches!(client.read(), Value::Error(_))).count();
        // A counter saturates, or the add answers an error.
        assert_eq!(refused, if family == "CBF" { 0 } else { TIMES - 3 });
        let most = if family == "CBF" { 15 } else { 4 };
        assert_eq!(numbers(&client.cmd(&format!("{family}.MCOUNT {family} a b c x"))), [1, 1, 1, most]);
        assert_eq!(client.cmd(&format!("MEMORY USAGE {family}")), before);
    }
}

#[test]
fn c094_a_filter_for_each_user() {
    // The whole case has 1,000,000 keys: SEENDB_C094_KEYS=1000000.
    let keys: usize = std::env::var("SEENDB_C094_KEYS").ok().and_then(|text| text.parse().ok()).unwrap_or(100_000);
    let server = Server::start();
    let mut client = server.client();
    let used = |client: &mut Client| {
        let text = client.cmd("INFO memory").text();
        let value = text.lines().find_map(|line| line.strip_prefix("used_memory:"));
        value.and_then(|value| value.parse::<u64>().ok()).expect("a number")
    };
    let before = used(&mut client);
    for from in (0..keys).step_by(500) {
        let mut request = Vec::new();
        for user in from..from + 500 {
            let key = format!("user:{user}");
            request.extend(encode(&["CBF.RESERVE", &key, "0.01", "50"]));
            let mut add = vec!["CBF.MADD".to_string(), key];
            add.extend((0..20).map(|n| format!("seen:{}", user * 31 + n)));
            request.extend(encode(&add));
        }
        client.send(&request);
        for _ in 0..500 {
            assert!(client.read() == "OK");
            assert_eq!(client.read().array().len(), 20);
        }
    }
    let bytes = (used(&mut client) - before) as f64 / keys as f64;
    println!("c094: {bytes:.1} bytes a key");
    assert!(bytes <= 220.0, "{bytes:.1} bytes a key");
}

#[test]
fn c123_counting_filter() {
    let mut client = World::new().client();
    for family in FAMILIES {
        client.cmd("DEL k");
        assert!(client.cmd(&format!("{family}.RESERVE k 0.01 1000")) == "OK");
        let mut say = |verb: &str| client.cmd(&format!("{family}.{verb} k a")).int();
        let said = ["ADD", "ADD", "COUNT", "DEL", "EXISTS", "DEL", "EXISTS"].map(&mut say);
        assert_eq!(said, [1, 0, 2, 1, 1, 1, 0]);
    }
    manual_says("`ADD` always counts, also when it answers 0. Two adds need two deletes.");
}

#[test]
fn c129_how_often() {
    let mut client = World::new().client();
    client.cmd("CBF.RESERVE k 0.0001 1000");
    for (item, times) in [("once", 1), ("twice", 2), ("fifteen", 15), ("twenty", 20)] {
        client.cmd(&format!("CBF.MADD k{}", format!(" {item}").repeat(times)));
    }
    assert_eq!(numbers(&client.cmd("CBF.MCOUNT k never once twice fifteen twenty")), [0, 1, 2, 15, 15]);
    assert!(client.cmd("CBF.COUNT k twenty") == 15 && *client.cmd("CBF.INFO k").field("Counter ceiling") == 15);
    manual_says("`COUNT` is never below the truth up to the ceiling");
}

#[test]
fn c140_bucket_overflow() {
    let mut client = World::new().client();
    client.cmd("DLCBF.RESERVE k 0.01 1000");
    let mut held = Vec::new();
    let refused = loop {
        let item = format!("item:{}", held.len());
        match client.cmd(&format!("DLCBF.ADD k {item}")) {
            Value::Error(text) => break (item, text),
            _ => held.push(item),
        }
    };
    assert!(held.len() >= 1_000, "refused only above the stated capacity: {}", held.len());
    assert_eq!(refused.1, "ERR filter is full: no free cell for this item");
    let ask: Vec<&str> = ["DLCBF.MEXISTS", "k"].into_iter().chain(held.iter().map(String::as_str)).collect();
    assert_eq!(yes(&client.call(&ask)), held.len(), "nothing is lost");
    assert!(*client.cmd("DLCBF.INFO k").field("Fullest bucket") == 8);
    let gone: Vec<&str> = ["DLCBF.MDEL", "k"].into_iter().chain(held[..10].iter().map(String::as_str)).collect();
    assert_eq!(yes(&client.call(&gone)), 10);
    let back: Vec<&str> = ["DLCBF.MADD", "k"].into_iter().chain(held[..10].iter().map(String::as_str)).collect();
    let added = client.call(&back);
    assert!(added.array().iter().all(|answer| !matches!(answer, Value::Error(_))), "the ten places are usable again");
    assert_eq!(yes(&client.call(&ask)), held.len());
}
