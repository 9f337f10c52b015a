//! Full filters, full counters, limits of memory.

use crate::FAMILIES;
use crate::support::Value;
use crate::world::{Client, World, with_items, yes};

fn errors(reply: &Value) -> Vec<String> {
    let errors = reply.array().iter().filter(|answer| matches!(answer, Value::Error(_)));
    errors.map(|answer| answer.error().to_owned()).collect()
}

#[test]
fn strict_filters_refuse_new_items() {
    let world = World::new();
    let mut client = world.client();
    client.cmd("CBF.RESERVE k 0.000001 100 STRICT");
    let added = client.call(&with_items("CBF.MADD k", 0..103));
    assert_eq!(yes(&client.call(&with_items("CBF.MEXISTS k", 0..100))), 100);
    assert_eq!(errors(&added), vec!["ERR filter is full: 100 of 100 items"; 3]);
    assert_eq!(client.refused("CBF.ADD k new"), "ERR filter is full: 100 of 100 items");
    // What is there is counted all the same, and what is deleted makes room.
    assert!(client.cmd("CBF.ADD k item:5") == 0 && client.cmd("CBF.MDEL k item:5 item:5").array().len() == 2);
    assert!(client.cmd("CBF.ADD k new") == 1);
    // Without STRICT adds go on, and the error rises.
    client.cmd("CBF.RESERVE j 0.01 100");
    client.call(&with_items("CBF.MADD j", 0..10_000));
    assert!(client.cmd("CBF.CARD j") == 10_000);
    let rate = client.cmd("CBF.INFO j").field("Error rate now").text().parse::<f64>().expect("a number");
    assert!(rate > 0.9, "{rate}");
}

/// Refused items in a run of pipelined commands: each has its own error, and those behind it are judged.
#[test]
fn a_run_with_refused_items() {
    let server = crate::support::Server::start();
    let mut client = server.client();
    client.cmd("DLCBF.RESERVE d 0.0001 1000");
    let mut request = Vec::new();
    let items = ["a", "b", "a", "a", "a", "a", "c", "a", "b"];
    for item in items {
        request.extend(crate::support::encode(&["DLCBF.ADD", "d", item]));
    }
    client.send(&request);
    let replies: Vec<Value> = items.iter().map(|_| client.read()).collect();
    let full = || Value::Error("ERR counter is full: item is counted 4 times".into());
    let number = Value::Int;
    let expected = [number(1), number(1), number(0), number(0), number(0), full(), number(1), full(), number(0)];
    assert_eq!(replies, expected);
    let mut request = Vec::new();
    for verb in ["EXISTS", "DEL", "EXISTS", "COUNT"] {
        for item in items {
            request.extend(crate::support::encode(&[&format!("DLCBF.{verb}"), "d", item]));
        }
    }
    client.send(&request);
    let mut next = || items.iter().map(|_| client.read().int()).collect::<Vec<_>>();
    assert_eq!(next(), [1; 9]);
    assert_eq!(next(), [1, 1, 1, 1, 1, 0, 1, 0, 1]);
    assert_eq!(next(), [0; 9]);
    assert_eq!(next(), [0; 9]);
}

#[test]
fn memory_limit_of_a_filter() {
    for family in FAMILIES {
        let world = World::new();
        world.set("max-filter-memory", "1mb");
        let mut client = world.client();
        for line in ["RESERVE k 0.01 10000000", "INSERT k CAPACITY 10000000 ITEMS a"] {
            let text = client.refused(&format!("{family}.{line}"));
            assert!(text.starts_with("ERR filter would take "), "{text}");
            assert!(text.ends_with(" bytes, 'max-filter-memory' is 1048576"), "{text}");
        }
        assert!(
            client.refused(&format!("{family}.RESERVE k 1e-15 1099511627776")).starts_with("ERR filter would take ")
        );
        world.set(&format!("{}-initial-size", family.to_lowercase()), "10000000");
        assert!(client.refused(&format!("{family}.ADD k a")).starts_with("ERR filter would take "));
        world.set("max-filter-memory", "0");
        assert!(client.cmd(&format!("{family}.RESERVE k 0.01 1000000")) == "OK");
    }
    // A filter that grows is refused its next set, item by item.
    let world = World::new();
    world.set("max-filter-memory", "100kb");
    let mut client = world.client();
    client.cmd("DLCBF.RESERVE k 0.01 10000 EXPANSION 4");
    let added = client.call(&with_items("DLCBF.MADD k", 0..30_000));
    let errors = errors(&added);
    assert!((19_900..=20_000).contains(&errors.len()), "{}", errors.len());
    assert!(errors[0].starts_with("ERR filter would take "), "{}", errors[0]);
    assert_eq!(yes(&client.call(&with_items("DLCBF.MEXISTS k", 0..10_000))), 10_000);
    assert!(client.cmd("DLCBF.ADD k item:0") == 0);
    world.set("max-filter-memory", "0");
    assert!(client.cmd("DLCBF.ADD k item:20000") == 1);
}

#[test]
fn at_the_memory_limit() {
    const OOM: &str = "OOM command not allowed when used memory > 'maxmemory'.";
    for family in FAMILIES {
        let world = World::new();
        world.set("maxmemory", "1mb");
        let mut client = world.client();
        client.call(&with_items(&format!("{family}.MADD k"), 0..300));
        world.refuse_memory(true);
        for line in ["RESERVE j 0.01 100", "ADD k a", "MADD k a", "INSERT k ITEMS a"] {
            assert_eq!(client.refused(&format!("{family}.{line}")), OOM, "{line}");
        }
        // What reads or gives memory back goes on.
        for line in ["EXISTS k a", "MCOUNT k a", "INFO k", "STATS k", "CARD k", "DEL k item:0", "MDEL k item:1 item:2"]
        {
            let reply = client.cmd(&format!("{family}.{line}"));
            assert!(!matches!(reply, Value::Error(_)), "{line}: {reply:?}");
        }
        assert!(client.cmd(&format!("{family}.CARD k")) == 297);
    }
}

/// Where other keys can go for a filter or a set, they do: no item is refused, and none is judged twice.
#[test]
fn keys_are_evicted_for_a_set() {
    let world = World::new();
    world.set("maxmemory", "1mb");
    let mut client = world.client();
    let make = |client: &mut Client, line: &str| {
        client.world.evict(3);
        assert!(client.cmd(line) == "OK", "{line}");
    };
    make(&mut client, "CBF.RESERVE c 0.000001 100000");
    make(&mut client, "DLCBF.RESERVE d 0.000001 400 EXPANSION 2 FINAL 100000");
    let mut from = 0;
    for items in [1, 50, 399, 400, 401, 1_000, 30_000] {
        world.evict(3);
        let added = client.call(&with_items("DLCBF.MADD d", from..from + items));
        assert_eq!(yes(&added), items, "{:?}", errors(&added).first());
        from += items;
    }
    assert!(client.cmd("DLCBF.CARD d") == from as i64);
    let mut again = world.replayed().client();
    assert_eq!(yes(&again.call(&with_items("DLCBF.MEXISTS d", 0..from))), from);
}

/// Items without a free cell, and copies above the ceiling, go to the set beside the cells until it is full.
#[test]
fn spilling() {
    let world = World::new();
    let mut client = world.client();
    client.cmd("DLCBF.RESERVE k 0.001 100 OVERFLOW SPILL");
    let added = client.call(&with_items("DLCBF.MADD k", 0..400));
    let refused = errors(&added);
    assert!(!refused.is_empty() && refused.iter().all(|text| text == "ERR filter is full: no free cell for this item"));
    assert!(*client.cmd("DLCBF.INFO k").field("Spilled items") == 16);
    let there: Vec<usize> = (0..400).filter(|n| !matches!(added.array()[*n], Value::Error(_))).collect();
    for n in &there {
        assert!(client.cmd(&format!("DLCBF.EXISTS k item:{n}")) == 1);
    }
    for n in &there {
        assert!(client.cmd(&format!("DLCBF.DEL k item:{n}")) == 1);
    }
    assert!(client.cmd("DLCBF.CARD k") == 0);
    assert!(*client.cmd("DLCBF.INFO k").field("Spilled items") == 0);
    // Of one item, fifty times.
    let words: Vec<&str> = ["DLCBF.MADD", "k"].into_iter().chain(["x"; 50]).collect();
    assert_eq!(errors(&client.call(&words)).len(), 0);
    assert!(client.cmd("DLCBF.COUNT k x") == 50);
}
