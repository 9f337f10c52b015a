//! Rings turned, extended, shrunk and cleared by hand; two arrays.

use crate::support::Value;
use crate::world::{World, with_items, yes};

#[test]
fn more_links_forget_nothing() {
    let world = World::new();
    let mut client = world.client();
    client.cmd("CHAIN.RESERVE k 0.000001 400");
    client.call(&with_items("CHAIN.MADD k", 0..500));
    for (links, text) in [
        (5, "ERR links must be in the range [6, 1024]"),
        (4, "ERR links must be in the range [6, 1024]"),
        (1025, "ERR links must be in the range [2, 1024]"),
    ] {
        assert_eq!(client.refused(&format!("CHAIN.EXTEND k LINKS {links}")), text);
    }
    assert!(client.cmd("chain.extend k links 9") == "OK");
    let info = client.cmd("CHAIN.INFO k");
    assert!(*info.field("Capacity") == 800 && *info.field("Number of links") == 9);
    assert!(*client.cmd("CHAIN.STATS k").field("link-capacity") == 100);
    client.call(&with_items("CHAIN.MADD k", 500..900));
    assert_eq!(yes(&client.call(&with_items("CHAIN.MEXISTS k", 0..900))), 900);
    assert!(client.cmd("CHAIN.EXTEND k LINKS 1024") == "OK");
    assert_eq!(client.refused("CHAIN.EXTEND k LINKS 1024"), "ERR filter has 1024 links, the most");

    assert_eq!(client.refused("CHAIN.SHRINK k LINKS 1024"), "ERR links must be in the range [2, 1023]");
    assert!(client.cmd("CHAIN.SHRINK k LINKS 3") == "OK");
    assert_eq!(yes(&client.call(&with_items("CHAIN.MEXISTS k", 600..900))), 300);
    assert_eq!(yes(&client.call(&with_items("CHAIN.MEXISTS k", 0..600))), 0);
    assert!(*client.cmd("CHAIN.INFO k").field("Capacity") == 200);
    client.cmd("CHAIN.SHRINK k LINKS 2");
    assert_eq!(client.refused("CHAIN.SHRINK k LINKS 2"), "ERR filter has 2 links, the fewest");
    assert_eq!(client.chunks("k"), world.replayed().client().chunks("k"));
}

#[test]
fn windows_become_wider_and_narrower() {
    let world = World::new();
    let mut client = world.client();
    client.cmd("CHAIN.RESERVE k 0.001 100 WINDOW 40 LINKS 5");
    client.cmd("CHAIN.ADD k a");
    assert!(client.cmd("CHAIN.EXTEND k LINKS 9") == "OK");
    assert!(*client.cmd("CHAIN.INFO k").field("Window") == 80_000);
    world.pass(80_000);
    assert!(client.cmd("CHAIN.EXISTS k a") == 1);
    client.cmd("CHAIN.ADD k b");
    assert!(client.cmd("CHAIN.SHRINK k LINKS 3") == "OK");
    assert!(client.cmd("CHAIN.EXISTS k a") == 0 && client.cmd("CHAIN.EXISTS k b") == 1);
    // What went does not come back.
    client.cmd("CHAIN.EXTEND k LINKS 20");
    assert!(client.cmd("CHAIN.EXISTS k a") == 0 && client.cmd("CHAIN.EXISTS k b") == 1);
    assert_eq!(client.refused("CHAIN.ROTATE k"), "ERR a window turns by its clock");
    assert_eq!(client.chunks("k"), world.replayed().client().chunks("k"));
}

#[test]
fn rotating() {
    let world = World::new();
    let mut client = world.client();
    client.cmd("CHAIN.RESERVE k 0.001 400");
    assert!(client.cmd("CHAIN.ROTATE k") == "OK", "nothing to turn");
    for n in 0..5 {
        client.cmd(&format!("CHAIN.ADD k item:{n}"));
        assert!(*client.cmd("CHAIN.INFO k").field("Next turn") == 99);
        client.cmd("CHAIN.ROTATE k");
        assert!(*client.cmd("CHAIN.INFO k").field("Next turn") == 100);
    }
    // The five links in use are four of these items, and the new one.
    let known = client.call(&with_items("CHAIN.MEXISTS k", 0..5));
    let known: Vec<bool> = known.array().iter().map(Value::truth).collect();
    assert_eq!(known, [false, true, true, true, true]);
    assert!(*client.cmd("CHAIN.INFO k").field("Guaranteed") == 0, "less than 400 items are there");
    assert_eq!(client.chunks("k"), world.replayed().client().chunks("k"));
}

#[test]
fn clearing() {
    for options in ["", "DUAL", "WINDOW 60", "WINDOW 60 CLOCK EVENT", "KEYED"] {
        let world = World::new();
        let mut client = world.client();
        client.cmd(&format!("CHAIN.RESERVE k 0.001 400 EX 100 {options}"));
        let (info, life) = (client.cmd("CHAIN.INFO k"), client.cmd("PEXPIRETIME k"));
        let at = if options.contains("EVENT") { "AT 5000" } else { "" };
        client.call(&with_items(&format!("CHAIN.INSERT k {at} ITEMS"), 0..1_000));
        let version = client.cmd("CHAIN.STATS k").field("version").int();
        assert!(client.cmd("CHAIN.CLEAR k") == "OK");
        assert_eq!((client.cmd("CHAIN.INFO k"), client.cmd("PEXPIRETIME k")), (info, life), "{options}");
        assert!(client.cmd("CHAIN.STATS k").field("version").int() > version);
        assert_eq!(yes(&client.call(&with_items("CHAIN.MEXISTS k", 0..1_000))), 0);
        assert_eq!(yes(&client.call(&with_items(&format!("CHAIN.INSERT k {at} ITEMS"), 0..100))), 100);
        assert_eq!(client.chunks("k"), world.replayed().client().chunks("k"));
    }
}

/// The figures of the specification: t = 0.6 with capacity 200 has arrays of 500, begun at 300.
#[test]
fn two_arrays() {
    let world = World::new();
    let mut client = world.client();
    client.cmd("CHAIN.RESERVE k 0.0001 200 DUAL THRESHOLD 0.6");
    let stats = client.cmd("CHAIN.STATS k");
    assert!(*stats.field("mode") == "dual" && *stats.field("link-capacity") == 500);
    for n in 0..3_000_usize {
        assert!(client.cmd(&format!("CHAIN.ADD k item:{n}")) == 1);
        let newest = n.saturating_sub(199)..n + 1;
        if n % 97 == 0 {
            assert_eq!(yes(&client.call(&with_items("CHAIN.MEXISTS k", newest.clone()))), newest.len());
        }
        let second = client.cmd("CHAIN.INFO k").field("Links in use").int();
        if n < 500 {
            assert_eq!(
                second,
                if n + 1 < 300 {
                    1
                } else if n + 1 < 500 {
                    2
                } else {
                    1
                },
                "{n}"
            );
        }
    }
    for command in ["EXTEND", "SHRINK"] {
        let text = format!("ERR {command} needs a ring of links, not DUAL");
        assert_eq!(client.refused(&format!("CHAIN.{command} k LINKS 3")), text);
    }
    // By hand: a second array, then it takes the place of the first.
    client.cmd("CHAIN.CLEAR k");
    client.cmd("CHAIN.ADD k before");
    client.cmd("CHAIN.ROTATE k");
    client.cmd("CHAIN.ADD k after");
    assert!(client.cmd("CHAIN.EXISTS k before") == 1);
    client.cmd("CHAIN.ROTATE k");
    assert!(client.cmd("CHAIN.EXISTS k before") == 0 && client.cmd("CHAIN.EXISTS k after") == 1);
    assert_eq!(client.chunks("k"), world.replayed().client().chunks("k"));
}

/// A ring that may have its full size just so goes on for ever.
#[test]
fn a_turn_is_not_refused_for_the_link_that_goes() {
    for options in ["", "DUAL", "WINDOW 60 BOUNDED", "LINKS 2"] {
        let world = World::new();
        world.set("max-filter-memory", "0");
        let mut client = world.client();
        client.cmd(&format!("CHAIN.RESERVE k 0.001 40000 {options}"));
        world.set("max-filter-memory", "1");
        let text = client.cmd(&format!("CHAIN.RESERVE j 0.001 40000 {options}")).error().to_string();
        let bytes = text.split(' ').nth(4).expect("a number").to_owned();
        world.set("max-filter-memory", &bytes);
        assert!(client.cmd(&format!("CHAIN.RESERVE j 0.001 40000 {options}")) == "OK", "{options}");
        for from in (0..400_000).step_by(40_000) {
            let added = client.call(&with_items("CHAIN.MADD j", from..from + 40_000));
            assert!(yes(&added) > 39_000, "{options}");
        }
    }
}
