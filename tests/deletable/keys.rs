//! Filters as keys: other kinds of values, names, databases.

use crate::FAMILIES;
use crate::support::Value;
use crate::world::World;

#[test]
fn keys_of_another_kind() {
    let text = "WRONGTYPE Operation against a key holding the wrong kind of value";
    let mut client = World::new().client();
    for line in ["BF.ADD bf a", "CHAIN.ADD chain a", "CBF.ADD cbf a", "DLCBF.ADD dlcbf a"] {
        assert!(client.cmd(line) == 1);
    }
    for family in FAMILIES {
        for key in ["bf", "chain", "cbf", "dlcbf"].into_iter().filter(|key| *key != family.to_lowercase()) {
            for command in [
                "RESERVE {} 0.01 100",
                "ADD {} a",
                "MADD {} a",
                "INSERT {} ITEMS a",
                "EXISTS {} a",
                "MEXISTS {} a",
                "DEL {} a",
                "MDEL {} a",
                "COUNT {} a",
                "MCOUNT {} a",
                "CARD {}",
                "INFO {}",
                "STATS {}",
                "SCANDUMP {} 0",
                "LOADCHUNK {} 5 x",
            ] {
                assert_eq!(client.refused(&format!("{family}.{}", command.replace("{}", key))), text, "{command}");
            }
        }
    }
    for line in ["DECAY dlcbf", "EXPORT dlcbf", "MERGE dlcbf cbf", "MERGE cbf chain"] {
        assert_eq!(client.refused(&format!("CBF.{line}")), text, "{line}");
    }
    for key in ["cbf", "dlcbf"] {
        assert_eq!(client.refused(&format!("BF.ADD {key} a")), text);
        assert_eq!(client.refused(&format!("CHAIN.ADD {key} a")), text);
        // RedisBloom's exception.
        assert!(client.cmd(&format!("BF.EXISTS {key} a")) == 0);
    }
    assert!(client.cmd("TYPE cbf") == "seenCBF--" && client.cmd("TYPE dlcbf") == "seenDLCBF");
    for (key, kind) in [("cbf", "seenCBF--"), ("dlcbf", "seenDLCBF")] {
        let scanned = client.cmd(&format!("SCAN 0 TYPE {kind} COUNT 1000"));
        assert_eq!(scanned.array()[1], Value::Array(vec![Value::Bulk(key.into())]));
    }
}

/// The same item again and again takes no memory, and nothing from others (C088).
#[test]
fn memory_does_not_grow_with_copies() {
    for family in FAMILIES {
        let mut client = World::new().client();
        client.cmd(&format!("{family}.RESERVE k 0.01 1000"));
        client.cmd(&format!("{family}.MADD k a b c"));
        let mut used = client.cmd("MEMORY USAGE k");
        for n in 0..1_000 {
            let words = format!("{family}.MADD k{}", " x".repeat(100));
            client.cmd(&words);
            if n == 0 {
                used = client.cmd("MEMORY USAGE k");
            }
        }
        assert_eq!(client.cmd("MEMORY USAGE k"), used);
        assert_eq!(crate::numbers(&client.cmd(&format!("{family}.MCOUNT k a b c"))), [1, 1, 1]);
    }
}
