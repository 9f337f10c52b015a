//! `INFO` and `STATS`: names, order and types, in both protocols; what they count.

use crate::support::Value;
use crate::world::{World, with_items, yes};

fn names(map: &Value) -> Vec<String> {
    match map {
        Value::Map(pairs) => pairs.iter().map(|(name, _)| name.text()).collect(),
        Value::Array(flat) => flat.chunks_exact(2).map(|pair| pair[0].text()).collect(),
        other => panic!("no map: {other:?}"),
    }
}

const COUNTING_INFO: [&str; 8] = [
    "Capacity",
    "Size",
    "Number of items inserted",
    "Error rate",
    "Error rate now",
    "Fill",
    "Counter ceiling",
    "Saturated counters",
];
const COUNTING_STATS: [&str; 12] = [
    "cells",
    "hashes",
    "counter-bits",
    "cells-nonzero",
    "cells-saturated",
    "items",
    "items-estimated",
    "error-now",
    "strict",
    "keyed",
    "bytes",
    "version",
];
const DLEFT_INFO: [&str; 9] = [
    "Capacity",
    "Size",
    "Number of items inserted",
    "Error rate",
    "Error rate now",
    "Expansion rate",
    "Counter ceiling",
    "Fullest bucket",
    "Spilled items",
];
const DLEFT_STATS: [&str; 12] = [
    "sub-tables",
    "cells",
    "fingerprint-bits",
    "buckets",
    "cells-used",
    "fullest-bucket",
    "spilled",
    "error-now",
    "loads",
    "sets",
    "keyed",
    "bytes",
];

#[test]
fn names_and_their_order() {
    for protocol in [2, 3] {
        let mut client = World::new().client();
        client.cmd(&format!("HELLO {protocol}"));
        for (n, sizes) in ["0.01 100", "0.0001 100000"].into_iter().enumerate() {
            client.cmd(&format!("CBF.RESERVE c{n} {sizes}"));
            client.cmd(&format!("DLCBF.RESERVE d{n} {sizes} EXPANSION 2"));
            client.cmd(&format!("CBF.ADD c{n} a"));
            client.cmd(&format!("DLCBF.ADD d{n} a"));
            let info = client.cmd(&format!("CBF.INFO c{n}"));
            assert_eq!(names(&info), COUNTING_INFO);
            assert_eq!(matches!(info, Value::Map(_)), protocol == 3);
            assert_eq!(names(&client.cmd(&format!("CBF.STATS c{n}"))), COUNTING_STATS);
            assert_eq!(names(&client.cmd(&format!("DLCBF.INFO d{n}"))), DLEFT_INFO);
            let stats = client.cmd(&format!("DLCBF.STATS d{n}"));
            assert_eq!(names(&stats), DLEFT_STATS);
            for set in stats.field("sets").array() {
                assert_eq!(names(set), ["buckets", "items", "fingerprint-bits"]);
            }
        }
        let (raw, null) = (client.bytes("CBF.INFO c0"), client.bytes("DLCBF.INFO d0"));
        let begin = if protocol == 3 { "%8\r\n+Capacity\r\n:100\r\n" } else { "*16\r\n+Capacity\r\n:100\r\n" };
        assert!(raw.starts_with(begin) && raw.ends_with("+Counter ceiling\r\n:15\r\n+Saturated counters\r\n:0\r\n"));
        let rate = if protocol == 3 { "+Error rate\r\n,0.01\r\n" } else { "+Error rate\r\n$4\r\n0.01\r\n" };
        assert!(raw.contains(rate) && null.contains(rate), "{raw} {null}");
        assert!(
            null.contains("+Expansion rate\r\n:2\r\n+Counter ceiling\r\n:4\r\n+Fullest bucket\r\n:1\r\n"),
            "{null}"
        );
        client.cmd("DLCBF.ADD d9 a");
        let none = if protocol == 3 { "+Expansion rate\r\n_\r\n" } else { "+Expansion rate\r\n$-1\r\n" };
        assert!(client.bytes("DLCBF.INFO d9").contains(none));
    }
}

#[test]
fn a_counting_filter() {
    let mut client = World::new().client();
    client.cmd("CBF.RESERVE k 0.01 1000 COUNTERBITS 8 STRICT KEYED");
    client.call(&with_items("CBF.MADD k", 0..1_000));
    let (info, stats) = (client.cmd("CBF.INFO k"), client.cmd("CBF.STATS k"));
    let double = |value: &Value| value.text().parse::<f64>().expect("a number");
    let (cells, hashes) = (stats.field("cells").int() as f64, stats.field("hashes").int());
    let nonzero = stats.field("cells-nonzero").int() as f64;
    // Both figures by the formulas, from the cells.
    assert!((double(info.field("Fill")) - nonzero / cells).abs() < 1e-12);
    assert!((double(info.field("Error rate now")) - (nonzero / cells).powi(hashes as i32)).abs() < 1e-12);
    let expected = (1.0 - (-(hashes as f64) * 1000.0 / cells).exp()).powi(hashes as i32);
    assert!((double(stats.field("error-now")) / expected - 1.0).abs() < 0.2 && expected < 0.0105);
    assert!((stats.field("items-estimated").int() - 1_000).abs() < 40);
    assert!(*stats.field("items") == 1_000 && *stats.field("counter-bits") == 8);
    assert!(stats.field("strict").truth() && stats.field("keyed").truth());
    assert_eq!(info.field("Size"), &client.cmd("MEMORY USAGE k"));
    assert_eq!(stats.field("bytes"), info.field("Size"));
    assert!(*info.field("Counter ceiling") == 255);
    let found = yes(&client.call(&with_items("CBF.MEXISTS k", 100_000..200_000)));
    assert!((600..1_400).contains(&found), "{found} strangers of 100,000 are found");
}

#[test]
fn a_dleft_filter() {
    let mut client = World::new().client();
    client.cmd("DLCBF.RESERVE k 0.001 10000 COUNTERBITS 4");
    client.call(&with_items("DLCBF.MADD k", 0..10_000));
    client.call(&with_items("DLCBF.MADD k", 0..100));
    let (info, stats) = (client.cmd("DLCBF.INFO k"), client.cmd("DLCBF.STATS k"));
    let loads: Vec<i64> = stats.field("loads").array().iter().map(Value::int).collect();
    assert_eq!(loads.len(), 9);
    assert_eq!(loads.iter().sum::<i64>(), stats.field("buckets").int());
    let used: i64 = loads.iter().enumerate().map(|(cells, buckets)| cells as i64 * buckets).sum();
    // Two items of the same fingerprint share a cell, which happens to a thousandth of them.
    assert!(used == stats.field("cells-used").int() && (9_960..=10_000).contains(&used), "{used}");
    assert!(*info.field("Number of items inserted") == 10_100 && *info.field("Counter ceiling") == 16);
    assert_eq!(info.field("Fullest bucket"), stats.field("fullest-bucket"));
    assert_eq!(info.field("Size"), &client.cmd("MEMORY USAGE k"));
    let sets = stats.field("sets").array();
    assert!(sets.len() == 1 && sets[0].field("items").int() == used);
    let now = info.field("Error rate now").text().parse::<f64>().expect("a number");
    assert!(now <= 0.001 && now > 0.0003, "{now}");
}

/// A filter that grows tells of each of its sets; those that became empty go.
#[test]
fn growth() {
    let world = World::new();
    let mut client = world.client();
    client.cmd("DLCBF.RESERVE k 0.001 1000 EXPANSION 2 FINAL 15000");
    client.call(&with_items("DLCBF.MADD k", 0..15_000));
    let stats = client.cmd("DLCBF.STATS k");
    assert_eq!(stats.field("sets").array().len(), 4, "sets for 1000, 2000, 4000, 8000 items");
    assert!(*client.cmd("DLCBF.INFO k").field("Capacity") == 15_000);
    let refused = client.call(&with_items("DLCBF.MADD k", 20_000..20_100));
    let full = refused.array().iter().filter(|answer| matches!(answer, Value::Error(_))).count();
    assert!(full > 80, "{full}");
    let text = refused.array().iter().find(|answer| matches!(answer, Value::Error(_))).expect("one").error().to_owned();
    assert!(text.starts_with("ERR filter is full: ") && text.ends_with(" of 15000 items"), "{text}");
    assert_eq!(yes(&client.call(&with_items("DLCBF.MEXISTS k", 0..15_000))), 15_000);
    client.call(&with_items("DLCBF.MDEL k", 0..15_000));
    let added: Vec<usize> = (0..100).filter(|n| refused.array()[*n] == 1 || refused.array()[*n] == 0).collect();
    for n in added {
        assert!(client.cmd(&format!("DLCBF.DEL k item:{}", 20_000 + n)) == 1);
    }
    let stats = client.cmd("DLCBF.STATS k");
    assert!(stats.field("sets").array().len() == 1 && *stats.field("cells-used") == 0);
    let mut again = world.replayed().client();
    assert!(*again.cmd("DLCBF.STATS k").field("cells-used") == 0);
}
