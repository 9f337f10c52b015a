//! Rings as keys: other kinds of values, names, databases, copies, payloads, memory.

use crate::support::Value;
use crate::world::{World, with_items, yes};

#[test]
fn keys_of_another_kind() {
    let mut client = World::new().client();
    client.cmd("BF.ADD bloom a");
    client.cmd("CHAIN.ADD ring a");
    let text = "WRONGTYPE Operation against a key holding the wrong kind of value";
    for command in [
        "RESERVE {} 0.01 100",
        "ADD {} a",
        "MADD {} a",
        "INSERT {} ITEMS a",
        "EXISTS {} a",
        "MEXISTS {} a",
        "UNSEEN {} a",
        "UNSEENADD {} ITEMS a",
        "CARD {}",
        "EXTEND {} LINKS 6",
        "SHRINK {} LINKS 4",
        "ROTATE {}",
        "CLEAR {}",
        "MERGE {} ring",
        "EXPORT {}",
        "INFO {}",
        "STATS {}",
        "SCANDUMP {} 0",
        "LOADCHUNK {} 5 x",
    ] {
        assert_eq!(client.refused(&format!("CHAIN.{}", command.replace("{}", "bloom"))), text, "{command}");
    }
    for line in [
        "BF.ADD ring a",
        "BF.MADD ring a",
        "BF.INSERT ring ITEMS a",
        "BF.RESERVE ring 0.01 100",
        "BF.INFO ring",
        "BF.SCANDUMP ring 0",
        "BF.LOADCHUNK ring 1 x",
    ] {
        assert_eq!(client.refused(line), text, "{line}");
    }
    // RedisBloom's exceptions.
    assert!(client.cmd("BF.EXISTS ring a") == 0);
    assert!(client.cmd("TYPE ring") == "seenCHAIN" && client.cmd("TYPE bloom") == "MBbloom--");
    let scanned = client.cmd("SCAN 0 TYPE seenCHAIN COUNT 1000");
    assert_eq!(scanned.array()[1], Value::Array(vec![Value::Bulk(b"ring".into())]));
}

#[test]
fn names_databases_copies() {
    for options in ["", "DUAL KEYED", "WINDOW 60 IDLE 100"] {
        for items in [3, 300, 60_000] {
            let world = World::new();
            let mut client = world.client();
            let capacity = items.max(400);
            client.cmd(&format!("CHAIN.RESERVE k 0.00001 {capacity} {options}"));
            client.call(&with_items("CHAIN.MADD k", 0..items));
            let chunks = client.chunks("k");
            let life = client.cmd("PTTL k");
            assert!(client.cmd("RENAME k renamed") == "OK" && client.cmd("COPY renamed copied") == 1);
            assert!(client.cmd("COPY renamed copied") == 0 && client.cmd("COPY renamed elsewhere DB 3") == 1);
            for key in ["renamed", "copied"] {
                assert_eq!((client.chunks(key), client.cmd(&format!("PTTL {key}"))), (chunks.clone(), life.clone()));
            }
            // A copy is another ring from then on.
            assert!(client.cmd("CHAIN.ADD copied new") == 1 && client.cmd("CHAIN.EXISTS renamed new") == 0);
            assert_eq!(client.chunks("renamed"), chunks);
            client.cmd("CHAIN.CLEAR copied");
            assert_eq!(yes(&client.call(&with_items("CHAIN.MEXISTS renamed", 0..items))), items);
            assert!(client.cmd("MOVE renamed 4") == 1);
            client.cmd("SELECT 4");
            assert_eq!(client.chunks("renamed"), chunks);
            let mut again = world.replayed().client();
            again.cmd("SELECT 4");
            assert_eq!(again.chunks("renamed"), chunks);
        }
    }
}

#[test]
fn payloads() {
    let world = World::new();
    let mut client = world.client();
    for (n, options) in ["", "DUAL KEYED", "WINDOW 60 IDLE 100", "WINDOW 60 BOUNDED LINKERROR"].into_iter().enumerate()
    {
        for items in [0, 3, 300, 60_000] {
            let key = format!("k{n}:{items}");
            client.cmd(&format!("CHAIN.RESERVE {key} 0.00001 {} {options}", items.max(400)));
            if items > 0 {
                client.call(&with_items(&format!("CHAIN.MADD {key}"), 0..items));
            }
            let payload = client.cmd(&format!("DUMP {key}")).bulk().to_vec();
            assert!(client.call(&[b"RESTORE", &b"to"[..], b"5000", &payload, b"REPLACE"]) == "OK");
            assert_eq!(client.chunks("to"), client.chunks(&key), "{options} {items}");
            assert!(client.cmd("PTTL to") == 5_000);
            assert!(client.call(&[b"RESTORE", &b"to"[..], b"0", &payload]).error().starts_with("BUSYKEY "));
            let mut damaged = payload.clone();
            damaged[payload.len() / 2] ^= 4;
            assert!(client.call(&[b"RESTORE", &b"j"[..], b"0", &damaged]).error().starts_with("ERR DUMP payload"));
            assert_eq!(world.replayed().client().chunks("to"), client.chunks("to"));
        }
    }
}

/// What keys hold is counted as it grows, turns and goes.
#[test]
fn memory() {
    let world = World::new();
    let mut client = world.client();
    let mut last = 0;
    for items in [0, 3, 20, 100, 500, 1_000] {
        client.cmd("DEL k");
        client.cmd("CHAIN.RESERVE k 0.02 400");
        if items > 0 {
            client.call(&with_items("CHAIN.MADD k", 0..items));
        }
        let usage = client.cmd("MEMORY USAGE k").int();
        assert!(usage >= last && usage < 1_200, "{items}: {usage}");
        last = usage.min(900);
    }
    client.cmd("CHAIN.CLEAR k");
    assert!(client.cmd("MEMORY USAGE k").int() < 150);
    client.cmd("CHAIN.RESERVE large 0.01 10000000");
    assert!(client.cmd("MEMORY USAGE large").int() < 500, "arrays are made when they are needed");
    for key in ["k", "large"] {
        client.cmd(&format!("DEL {key}"));
    }
    assert_eq!(world.keyspace.entry_bytes(), 0);
    // C094: a filter for each user, 20 seen items in a ring of four links, key and place in the table included.
    for n in 0..2_000 {
        client.cmd(&format!("CHAIN.RESERVE user:{n} 0.01 50 LINKS 4"));
        client.call(&with_items(&format!("CHAIN.MADD user:{n}"), n * 20..n * 20 + 20));
    }
    let mean = (0..2_000).map(|n| client.cmd(&format!("MEMORY USAGE user:{n}")).int()).sum::<i64>() / 2_000;
    assert!(mean <= 260, "{mean}");
}
