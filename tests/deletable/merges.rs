//! `CBF.MERGE`: sums of counters.

use crate::dumps::chunks;
use crate::numbers;
use crate::world::{World, with_items, yes};

#[test]
fn sums() {
    // Small ones at once, large ones in steps.
    for capacity in [1_000, 200_000] {
        let world = World::new();
        let mut client = world.client();
        for key in ["a", "b", "dst"] {
            client.cmd(&format!("CBF.RESERVE {key} 0.000001 {capacity}"));
        }
        client.cmd("CBF.MADD a x x y");
        client.cmd("CBF.MADD b y z");
        client.cmd("CBF.MADD dst z w");
        client.cmd("EXPIRE dst 100");
        assert!(client.cmd("CBF.MERGE dst a b missing") == "OK");
        assert_eq!(numbers(&client.cmd("CBF.MCOUNT dst x y z w v")), [2, 2, 2, 1, 0]);
        assert!(client.cmd("CBF.CARD dst") == 7 && client.cmd("TTL dst") == 100);
        assert_eq!(numbers(&client.cmd("CBF.MCOUNT a x y z")), [2, 1, 0]);
        // What was merged can be deleted.
        assert_eq!(yes(&client.cmd("CBF.MDEL dst x x y y z z w")), 7);
        assert!(client.cmd("CBF.CARD dst") == 0 && *client.cmd("CBF.STATS dst").field("cells-nonzero") == 0);
        // A missing target gets the shape of the first source that is there; one named twice counts twice.
        assert!(client.cmd("CBF.MERGE new missing a a") == "OK");
        assert_eq!(numbers(&client.cmd("CBF.MCOUNT new x y")), [4, 2]);
        assert!(client.cmd("CBF.MERGE none missing nothing") == "OK" && client.cmd("EXISTS none") == 0);
        // Counters end at their ceiling.
        for _ in 0..3 {
            assert!(client.cmd("CBF.MERGE dst new new") == "OK");
        }
        assert!(client.cmd("CBF.COUNT dst x") == 15);
        let hashes = client.cmd("CBF.STATS dst").field("hashes").int();
        assert_eq!(client.cmd("CBF.INFO dst").field("Saturated counters").int(), hashes);
        let mut again = world.replayed().client();
        for key in ["a", "b", "dst", "new"] {
            assert_eq!(chunks(&mut again, "CBF", key), chunks(&mut client, "CBF", key), "{key} {capacity}");
        }
    }
}

#[test]
fn what_is_refused() {
    let world = World::new();
    let mut client = world.client();
    client.cmd("CBF.RESERVE a 0.01 100");
    client.cmd("CBF.RESERVE b 0.01 100");
    for (options, text) in [
        ("0.001 100", "ERR filters differ: hashes 7 and 10"),
        ("0.01 101", "ERR filters differ: cells "),
        ("0.01 100 COUNTERBITS 8", "ERR filters differ: counter bits 4 and 8"),
        ("0.01 100 KEYED", "ERR filters differ: key none and its own"),
    ] {
        client.cmd("DEL other");
        client.cmd(&format!("CBF.RESERVE other {options}"));
        client.cmd("CBF.ADD other x");
        let refused = client.refused("CBF.MERGE a b other");
        assert!(refused.starts_with(text), "{refused}");
    }
    assert_eq!(client.refused("CBF.MERGE a b a"), "ERR dst is among the sources");
    client.cmd("DLCBF.ADD d x");
    let wrong = "WRONGTYPE Operation against a key holding the wrong kind of value";
    assert_eq!((client.refused("CBF.MERGE a d"), client.refused("CBF.MERGE d a")), (wrong.into(), wrong.into()));
    assert!(client.cmd("DLCBF.MERGE d e").error().starts_with("ERR unknown command"));
    // FORCE is one only as the last word behind a source.
    client.call(&with_items("CBF.MADD a", 0..60));
    client.call(&with_items("CBF.MADD b", 60..120));
    let full = "ERR merged filter would hold about 120 items of 100, use FORCE";
    assert_eq!(client.refused("CBF.MERGE a b"), full);
    assert_eq!(client.refused("CBF.MERGE new a b"), full);
    assert!(client.cmd("CBF.MERGE a force") == "OK", "a key of that name");
    assert!(client.cmd("CBF.MERGE a b force") == "OK");
    assert_eq!(yes(&client.call(&with_items("CBF.MEXISTS a", 0..120))), 120);
    let keys = client.cmd("COMMAND GETKEYS CBF.MERGE a b c FORCE");
    assert_eq!(keys.array().iter().map(crate::support::Value::text).collect::<Vec<_>>(), ["a", "b", "c"]);
    world.set("maxmemory", "1mb");
    world.refuse_memory(true);
    assert!(client.refused("CBF.MERGE new a").starts_with("OOM "));
}

/// While it takes long, its keys wait and no others; nobody meets a part of it.
#[test]
fn long_merges() {
    const ITEMS: usize = 20_000;
    let world = World::new();
    let (mut client, mut other) = (world.client(), world.client());
    for (key, from) in [("a", 0), ("b", ITEMS)] {
        client.cmd(&format!("CBF.RESERVE {key} 0.000001 3000000"));
        client.call(&with_items(&format!("CBF.MADD {key}"), from..from + ITEMS));
    }
    let merged = client.interrupted(&["CBF.MERGE", "dst", "a", "b"], || {
        for line in ["CBF.ADD a x", "CBF.EXISTS dst x", "CBF.DEL b x", "DEL dst"] {
            assert!(other.waits(line), "{line}");
        }
        assert!(!other.waits("CBF.ADD elsewhere x"));
    });
    assert!(merged == "OK");
    assert_eq!(yes(&client.call(&with_items("CBF.MEXISTS dst", 0..2 * ITEMS))), 2 * ITEMS);
    // In a transaction.
    client.cmd("MULTI");
    client.cmd("CBF.MERGE both a b");
    client.cmd("CBF.CARD both");
    let replies = client.cmd("EXEC");
    assert!(replies.array()[1] == 2 * ITEMS as i64);
    assert_eq!(chunks(&mut client, "CBF", "both")[1..].len(), chunks(&mut client, "CBF", "dst")[1..].len());
    let mut again = world.replayed().client();
    assert!(again.cmd("CBF.CARD dst") == 2 * ITEMS as i64 && again.cmd("CBF.CARD both") == 2 * ITEMS as i64);
}
