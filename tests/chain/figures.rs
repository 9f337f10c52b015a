//! `CHAIN.INFO` and `CHAIN.STATS`: names, order and types, in both protocols.

use crate::support::Value;
use crate::world::{START, World, with_items};

fn names(map: &Value) -> Vec<String> {
    match map {
        Value::Map(pairs) => pairs.iter().map(|(name, _)| name.text()).collect(),
        Value::Array(flat) => flat.chunks_exact(2).map(|pair| pair[0].text()).collect(),
        other => panic!("no map: {other:?}"),
    }
}

const INFO: [&str; 9] = [
    "Capacity",
    "Window",
    "Size",
    "Number of links",
    "Links in use",
    "Number of items inserted",
    "Error rate",
    "Next turn",
    "Guaranteed",
];
const STATS: [&str; 12] = [
    "mode",
    "link-capacity",
    "link-error",
    "slice-ms",
    "clock",
    "idle",
    "error-now",
    "exact-items",
    "links",
    "keyed",
    "bytes",
    "version",
];
const LINK: [&str; 8] = ["items", "capacity", "bits", "hashes", "fill", "error-now", "begins", "ends"];

#[test]
fn names_and_their_order() {
    for protocol in [2, 3] {
        let mut client = World::new().client();
        client.cmd(&format!("HELLO {protocol}"));
        for (n, options) in ["", "WINDOW 60", "DUAL", "IDLE 5 KEYED LINKERROR"].into_iter().enumerate() {
            client.cmd(&format!("CHAIN.RESERVE k{n} 0.02 400 {options}"));
            for items in [0..0, 0..3, 3..700] {
                if !items.is_empty() {
                    client.call(&with_items(&format!("CHAIN.MADD k{n}"), items));
                }
                let (info, stats) = (client.cmd(&format!("CHAIN.INFO k{n}")), client.cmd(&format!("CHAIN.STATS k{n}")));
                assert_eq!(names(&info), INFO);
                assert_eq!(names(&stats), STATS);
                for link in stats.field("links").array() {
                    assert_eq!(names(link), LINK);
                }
                assert_eq!(matches!(info, Value::Map(_)), protocol == 3);
            }
        }
        let raw = client.bytes("CHAIN.INFO k0");
        let begin = if protocol == 3 {
            "%9\r\n+Capacity\r\n:400\r\n+Window\r\n_\r\n"
        } else {
            "*18\r\n+Capacity\r\n:400\r\n+Window\r\n$-1\r\n"
        };
        assert!(raw.starts_with(begin), "names are simple strings: {raw}");
        let rate = if protocol == 3 { "+Error rate\r\n,0.02\r\n" } else { "+Error rate\r\n$4\r\n0.02\r\n" };
        assert!(raw.contains(rate), "{raw}");
        assert!(raw.ends_with(if protocol == 3 { "+Guaranteed\r\n#t\r\n" } else { "+Guaranteed\r\n:1\r\n" }), "{raw}");
    }
}

#[test]
fn a_ring_by_count() {
    let mut client = World::new().client();
    client.cmd("HELLO 3");
    client.cmd("CHAIN.RESERVE k 0.02 400");
    client.call(&with_items("CHAIN.MADD k", 0..5));
    let stats = client.cmd("CHAIN.STATS k");
    assert!(*stats.field("mode") == "count" && *stats.field("exact-items") == 5);
    assert_eq!(
        (stats.field("slice-ms"), stats.field("clock"), stats.field("idle")),
        (&Value::Null, &Value::Null, &Value::Null)
    );
    assert_eq!((stats.field("error-now"), stats.field("keyed")), (&Value::Double("0".into()), &Value::Bool(false)));
    client.call(&with_items("CHAIN.MADD k", 5..450));
    let (info, stats) = (client.cmd("CHAIN.INFO k"), client.cmd("CHAIN.STATS k"));
    // A false hit in the active link is not written.
    let count = info.field("Number of items inserted").int();
    assert!(
        (445..=450).contains(&count) && *info.field("Next turn") == 500 - count && *info.field("Links in use") == 5
    );
    let links = stats.field("links").array();
    let items: Vec<i64> = links.iter().map(|link| link.field("items").int()).collect();
    assert_eq!(items, [count - 400, 100, 100, 100, 100], "the newest comes first");
    assert!(*links[1].field("capacity") == 100 && (1_140..1_170).contains(&links[1].field("bits").int()));
    assert!(*links[1].field("hashes") == 8 && *links[1].field("begins") == Value::Null);
    let Value::Double(fill) = links[1].field("fill") else { panic!("a double") };
    assert!((0.4..0.6).contains(&fill.parse::<f64>().expect("a number")));
    let Value::Double(error) = stats.field("error-now") else { panic!("a double") };
    assert!((0.005..0.03).contains(&error.parse::<f64>().expect("a number")), "{error}");
    let version = stats.field("version").int();
    client.cmd("CHAIN.ADD k new");
    client.cmd("CHAIN.ADD k new");
    assert_eq!(client.cmd("CHAIN.STATS k").field("version").int(), version + 1);
    // Versions begin with the time in microseconds.
    assert!(version > 1_700_000_000_000_000);
    assert_eq!(info.field("Size"), stats.field("bytes"));
    assert!(client.cmd("MEMORY USAGE k").int() >= info.field("Size").int());
}

#[test]
fn a_ring_by_clock() {
    let world = World::new();
    let mut client = world.client();
    client.cmd("CHAIN.RESERVE k 0.02 400 WINDOW 40 LINKS 5 IDLE 70");
    world.pass(2_500);
    client.cmd("CHAIN.ADD k a");
    let (info, stats) = (client.cmd("CHAIN.INFO k"), client.cmd("CHAIN.STATS k"));
    assert!(*info.field("Window") == 40_000 && *info.field("Next turn") == 7_500 && *info.field("Links in use") == 1);
    assert!(*stats.field("mode") == "window" && *stats.field("clock") == "server" && *stats.field("idle") == 70);
    let link = &stats.field("links").array()[0];
    assert!(*link.field("begins") == START as i64 && *link.field("ends") == START as i64 + 10_000);
    world.pass(50_000);
    let info = client.cmd("CHAIN.INFO k");
    assert!(*info.field("Links in use") == 0 && *info.field("Number of items inserted") == 0);
    assert_eq!(client.cmd("CHAIN.STATS k").field("links"), &Value::Array(vec![]));
    client.cmd("CHAIN.RESERVE e 0.02 400 PWINDOW 40 CLOCK EVENT");
    assert!(*client.cmd("CHAIN.STATS e").field("clock") == "event");
}

/// The rate of the whole ring, whichever was asked for.
#[test]
fn rates() {
    let mut client = World::new().client();
    client.cmd("HELLO 3");
    for (options, ring, link) in [("", 0.02, 0.004_032_3), ("LINKERROR", 0.096_079, 0.02), ("DUAL", 0.02, 0.02)] {
        client.cmd(&format!("CHAIN.RESERVE k 0.02 400 {options}"));
        let rate = |value: &Value| match value {
            Value::Double(text) => text.parse::<f64>().expect("a number"),
            other => panic!("{other:?}"),
        };
        assert!((rate(client.cmd("CHAIN.INFO k").field("Error rate")) - ring).abs() < 1e-6, "{options}");
        assert!((rate(client.cmd("CHAIN.STATS k").field("link-error")) - link).abs() < 1e-6, "{options}");
        client.cmd("DEL k");
    }
}

/// A ring of many links is told in steps; what happens meanwhile is not in it.
#[test]
fn rings_of_many_links() {
    let world = World::new();
    let (mut client, mut other) = (world.client(), world.client());
    client.cmd("CHAIN.RESERVE k 0.01 1 PWINDOW 1023 LINKS 1024 CLOCK EVENT");
    for at in 0..700 {
        client.cmd(&format!("CHAIN.ADD k {at} AT {at}"));
    }
    for line in ["MULTI", "CHAIN.STATS k"] {
        client.cmd(line);
    }
    let at_once = client.cmd("EXEC").array()[0].clone();
    assert!(at_once.field("links").array().len() == 700);
    let stats = client.interrupted(&["CHAIN.STATS", "k"], || assert!(other.cmd("CHAIN.ADD k new AT 900") == 1));
    assert_eq!(stats, at_once);
}

/// How many bits of a large ring are set is known: nobody waits for its figures.
#[test]
fn large_rings() {
    let mut client = World::new().client();
    client.cmd("CHAIN.RESERVE k 0.01 4000000 LINKS 3");
    client.call(&with_items("CHAIN.MADD k", 0..100_000));
    let stats = client.cmd("CHAIN.STATS k");
    let link = &stats.field("links").array()[0];
    assert!(*link.field("items") == 100_000 && client.cmd("CHAIN.CARD k") == 100_000);
    // The share that so many throws are expected to set, within a hundredth of it.
    let fill: f64 = link.field("fill").text().parse().expect("a number");
    let throws = 100_000.0 * link.field("hashes").int() as f64;
    let expected = 1.0 - (-throws / link.field("bits").int() as f64).exp();
    assert!((fill - expected).abs() < expected / 100.0, "{fill} {expected}");
}
