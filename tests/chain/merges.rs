//! `CHAIN.MERGE`.

use crate::support::Value;
use crate::world::{Client, START, World, with_items, yes};

fn known(client: &mut Client, key: &str, numbers: std::ops::Range<usize>) -> usize {
    yes(&client.call(&with_items(&format!("CHAIN.MEXISTS {key}"), numbers)))
}

fn ring(client: &mut Client, key: &str, options: &str, numbers: std::ops::Range<usize>) {
    client.cmd(&format!("CHAIN.RESERVE {key} 0.000001 400 {options}"));
    if !numbers.is_empty() {
        client.call(&with_items(&format!("CHAIN.MADD {key}"), numbers));
    }
}

#[test]
fn by_count_newest_with_newest() {
    let world = World::new();
    let mut client = world.client();
    ring(&mut client, "a", "EX 50", 0..140);
    ring(&mut client, "b", "EX 90", 1_000..1_030);
    let sources = client.chunks("b");
    assert!(client.cmd("CHAIN.MERGE a b") == "OK");
    assert_eq!((known(&mut client, "a", 0..140), known(&mut client, "a", 1_000..1_030)), (140, 30));
    assert_eq!(client.chunks("b"), sources, "sources stay");
    assert!(client.cmd("TTL a") == 50, "the target's life stays");
    // 40 and 30 items are in the newest link, or about so many: that is read off the bits. 100 are in the one before.
    let left = client.cmd("CHAIN.INFO a").field("Next turn").int();
    assert!((27..=33).contains(&left) && client.cmd("CHAIN.CARD a") == 200 - left, "{left}");
    // The oldest of both go together.
    client.call(&with_items("CHAIN.MADD a", 2_000..2_301 + left as usize));
    assert_eq!((known(&mut client, "a", 0..100), known(&mut client, "a", 100..140)), (0, 40));
    assert_eq!(client.chunks("a"), world.replayed().client().chunks("a"));
}

#[test]
fn above_a_links_capacity_only_with_force() {
    let world = World::new();
    let mut client = world.client();
    ring(&mut client, "a", "", 0..60);
    ring(&mut client, "b", "", 1_000..1_060);
    assert_eq!(client.refused("CHAIN.MERGE a b"), "ERR merged filter would hold about 120 items of 100, use FORCE");
    assert!(client.cmd("CHAIN.MERGE a b force") == "OK");
    assert_eq!((known(&mut client, "a", 0..60), known(&mut client, "a", 1_000..1_060)), (60, 60));
    // The same once more gives nothing new, and so is not above what is there.
    assert!(client.cmd("CHAIN.MERGE a b") == "OK" && client.cmd("CHAIN.CARD a") == 120);
    // What FORCE has put into a source needs it again: in a new key, in one with room, with others.
    ring(&mut client, "room", "", 0..10);
    for line in ["CHAIN.MERGE new a", "CHAIN.MERGE new b a", "CHAIN.MERGE room a", "CHAIN.MERGE room b a"] {
        let refused = client.refused(line);
        assert!(
            refused.starts_with("ERR merged filter would hold about 12") && refused.ends_with(", use FORCE"),
            "{line}"
        );
    }
    assert!(client.cmd("EXISTS new") == 0 && client.cmd("CHAIN.CARD room") == 10);
    assert!(client.cmd("CHAIN.MERGE new a FORCE") == "OK" && client.cmd("CHAIN.CARD new") == 120);
    for key in ["dual", "twin"] {
        ring(&mut client, key, "DUAL", 0..0);
        client.call(&with_items(&format!("CHAIN.MADD {key}"), if key == "dual" { 0..450 } else { 1_000..1_450 }));
    }
    assert!(client.cmd("CHAIN.MERGE dual twin FORCE") == "OK");
    assert!(client.refused("CHAIN.MERGE second dual").ends_with(", use FORCE"));
    client.cmd("DEL dual twin new room");
    // FORCE is a word only at the end and behind a source.
    assert!(client.cmd("CHAIN.MERGE a FORCE") == "OK", "a missing source of that name");
    ring(&mut client, "FORCE", "", 3_000..3_010);
    assert!(client.cmd("CHAIN.MERGE c FORCE") == "OK");
    assert!(client.cmd("CHAIN.MERGE d FORCE b FORCE") == "OK");
    assert_eq!((known(&mut client, "c", 3_000..3_010), known(&mut client, "d", 3_000..3_010)), (10, 10));
    for (line, keys) in [
        ("CHAIN.MERGE d s", "d s"),
        ("CHAIN.MERGE d s FORCE", "d s"),
        ("CHAIN.MERGE d FORCE", "d FORCE"),
        ("CHAIN.MERGE d FORCE force", "d FORCE"),
        ("CHAIN.MERGE d FORCE s t", "d FORCE s t"),
    ] {
        let reply = client.cmd(&format!("COMMAND GETKEYS {line}"));
        assert_eq!(reply.array().iter().map(Value::text).collect::<Vec<_>>().join(" "), keys, "{line}");
    }
}

#[test]
fn shapes_that_differ() {
    let mut client = World::new().client();
    let rings = [
        ("count", "0.01 400"),
        ("links", "0.01 400 LINKS 6"),
        ("large", "0.01 800"),
        ("rate", "0.001 400"),
        ("dual", "0.01 400 DUAL"),
        ("third", "0.01 400 DUAL THRESHOLD 0.7"),
        ("window", "0.01 400 WINDOW 60"),
        ("wider", "0.01 400 WINDOW 80"),
        ("event", "0.01 400 WINDOW 60 CLOCK EVENT"),
        ("seed", "0.01 400 SEED 000102030405060708090a0b0c0d0e0f"),
        ("other", "0.01 400 SEED 010102030405060708090a0b0c0d0e0f"),
    ];
    for (key, options) in rings {
        client.cmd(&format!("CHAIN.RESERVE {key} {options}"));
    }
    for (dst, source, text) in [
        ("count", "links", "links 5 and 6"),
        ("links", "count", "links 6 and 5"),
        ("count", "large", "capacity 100 and 200"),
        ("count", "rate", "hashes 9 and 12"),
        ("count", "dual", "mode count and dual"),
        ("dual", "window", "mode dual and window"),
        ("dual", "third", "threshold 0.5 and 0.7"),
        ("window", "wider", "slice 15000 and 20000"),
        ("window", "event", "clock SERVER and EVENT"),
        ("count", "seed", "key none and its own"),
        ("seed", "other", "key its own and another"),
    ] {
        for force in ["", "FORCE"] {
            let line = format!("CHAIN.MERGE {dst} {source} {force}");
            assert_eq!(client.refused(&line), format!("ERR filters differ: {text}"), "{line}");
        }
    }
    // A source that differs spoils all.
    client.cmd("CHAIN.RESERVE same 0.01 400");
    client.cmd("CHAIN.ADD same a");
    assert_eq!(client.refused("CHAIN.MERGE count same links"), "ERR filters differ: links 5 and 6");
    // Seeds that are equal, and a target that takes the first source's shape, its key too.
    client.cmd("CHAIN.RESERVE twin 0.01 400 SEED 000102030405060708090A0B0C0D0E0F");
    client.cmd("CHAIN.ADD twin a");
    assert!(client.cmd("CHAIN.MERGE seed twin") == "OK" && client.cmd("CHAIN.EXISTS seed a") == 1);
    assert!(client.cmd("CHAIN.MERGE new missing twin seed") == "OK");
    assert!(*client.cmd("CHAIN.STATS new").field("keyed") == 1 && client.cmd("CHAIN.EXISTS new a") == 1);
    client.cmd("BF.ADD bloom a");
    for line in ["CHAIN.MERGE count bloom", "CHAIN.MERGE bloom count", "CHAIN.MERGE missing bloom"] {
        assert!(client.refused(line).starts_with("WRONGTYPE "), "{line}");
    }
}

#[test]
fn the_target_among_the_sources() {
    let mut client = World::new().client();
    for (key, options) in [("count", ""), ("dual", "DUAL")] {
        ring(&mut client, key, options, 0..10);
        ring(&mut client, "other", options, 0..0);
        for line in [format!("CHAIN.MERGE {key} {key}"), format!("CHAIN.MERGE {key} other {key} FORCE")] {
            assert_eq!(client.refused(&line), "ERR dst is among the sources");
        }
        assert_eq!(client.refused("CHAIN.MERGE missing other missing"), "ERR dst is among the sources");
        client.cmd("DEL other");
    }
    ring(&mut client, "window", "WINDOW 60", 0..10);
    let before = client.chunks("window");
    assert!(client.cmd("CHAIN.MERGE window window") == "OK");
    assert_eq!(client.chunks("window"), before, "no effect");
    ring(&mut client, "more", "WINDOW 60", 10..20);
    assert!(client.cmd("CHAIN.MERGE window window more") == "OK");
    assert_eq!(known(&mut client, "window", 0..20), 20);
}

#[test]
fn windows_by_their_slices() {
    let world = World::new();
    let mut client = world.client();
    ring(&mut client, "a", "WINDOW 40", 0..10);
    ring(&mut client, "b", "WINDOW 40", 100..110);
    world.pass(20_000);
    client.call(&with_items("CHAIN.MADD a", 20..30));
    client.call(&with_items("CHAIN.MADD b", 120..130));
    assert!(client.cmd("CHAIN.MERGE a b") == "OK");
    assert!(client.cmd("CHAIN.CARD a") == 40 && *client.cmd("CHAIN.INFO a").field("Links in use") == 2);
    world.pass(29_999);
    assert_eq!((known(&mut client, "a", 0..10), known(&mut client, "a", 100..110)), (10, 10));
    world.pass(1);
    assert_eq!((known(&mut client, "a", 0..10), known(&mut client, "a", 100..110)), (0, 0));
    assert_eq!((known(&mut client, "a", 20..30), known(&mut client, "a", 120..130)), (10, 10));
    // More than one array holds.
    client.call(&with_items("CHAIN.MADD a", 1_000..1_400));
    client.call(&with_items("CHAIN.MADD b", 2_000..2_400));
    assert!(client.cmd("CHAIN.MERGE a b") == "OK");
    assert_eq!((known(&mut client, "a", 1_000..1_400), known(&mut client, "a", 2_000..2_400)), (400, 400));
    assert!(*client.cmd("CHAIN.INFO a").field("Guaranteed") == 1);
    assert_eq!(client.chunks("a"), world.replayed().client().chunks("a"));
    assert_eq!(world.keyspace.clock().now(), START + 50_000);
}

#[test]
fn two_arrays() {
    let world = World::new();
    let mut client = world.client();
    ring(&mut client, "a", "DUAL", 0..500);
    ring(&mut client, "b", "DUAL", 1_000..1_100);
    assert!(client.cmd("CHAIN.MERGE a b") == "OK");
    assert_eq!((known(&mut client, "a", 0..500), known(&mut client, "a", 1_000..1_100)), (500, 100));
    client.call(&with_items("CHAIN.MADD a", 2_000..2_300));
    assert_eq!((known(&mut client, "a", 400..500), known(&mut client, "a", 1_000..1_100)), (100, 100));
    assert_eq!(client.chunks("a"), world.replayed().client().chunks("a"));
}

/// A key made anew is newer than the one of that name before, whatever it is made from.
#[test]
fn versions() {
    let mut client = World::new().client();
    ring(&mut client, "a", "", 0..10);
    ring(&mut client, "k", "", 0..10);
    let version = client.cmd("CHAIN.STATS k").field("version").int();
    client.cmd("DEL k");
    client.cmd("CHAIN.MERGE k a");
    assert!(client.cmd("CHAIN.STATS k").field("version").int() > version);
    // Also if that one was written faster than one item a microsecond.
    for _ in 0..5 {
        client.call(&with_items("CHAIN.MADD k", 0..30_000));
        let version = client.cmd("CHAIN.STATS k").field("version").int();
        client.cmd("DEL k");
        client.cmd("CHAIN.ADD k a");
        assert!(client.cmd("CHAIN.STATS k").field("version").int() > version);
    }
    let version = client.cmd("CHAIN.STATS k").field("version").int();
    client.cmd("DEL k");
    client.cmd("CHAIN.MERGE k a");
    assert_ne!(client.cmd(&format!("CHAIN.EXPORT k NEWER {version}")), Value::Null);
}

#[test]
fn limits() {
    let world = World::new();
    world.set("max-filter-memory", "1mb");
    let mut client = world.client();
    for (key, from) in [("a", 0), ("b", 1_000_000)] {
        client.cmd(&format!("CHAIN.RESERVE {key} 0.001 2000 WINDOW 60 LINKS 2"));
        client.call(&with_items(&format!("CHAIN.MADD {key}"), from..from + 180_000));
    }
    let text = client.refused("CHAIN.MERGE a b");
    assert!(text.starts_with("ERR filter would take ") && text.ends_with("'max-filter-memory' is 1048576"), "{text}");
    world.set("max-filter-memory", "0");
    assert!(client.cmd("CHAIN.MERGE a b") == "OK");
}

/// Large rings are merged in steps; only their keys wait.
#[test]
fn large_rings() {
    let world = World::new();
    let (mut client, mut other) = (world.client(), world.client());
    for (key, from) in [("a", 0), ("b", 1_000_000)] {
        client.cmd(&format!("CHAIN.RESERVE {key} 0.000001 300000 EX 100"));
        client.call(&with_items(&format!("CHAIN.MADD {key}"), from..from + 150_000));
    }
    let refused = client.cmd("CHAIN.MERGE a b");
    assert_eq!(refused.error(), "ERR merged filter would hold about 150000 items of 75000, use FORCE");
    let merged = client.interrupted(&["CHAIN.MERGE", "a", "b", "FORCE"], || {
        assert!(other.waits("CHAIN.EXISTS a x") && other.waits("CHAIN.ADD b x"));
        assert!(other.cmd("CHAIN.ADD elsewhere x") == 1);
    });
    assert!(merged == "OK" && client.cmd("TTL a") == 100);
    assert_eq!(
        (known(&mut client, "a", 0..150_000), known(&mut client, "a", 1_000_000..1_150_000)),
        (150_000, 150_000)
    );
    let made = client.interrupted(&["CHAIN.MERGE", "new", "a", "FORCE"], || assert!(other.waits("CHAIN.ADD new x")));
    assert!(made == "OK" && client.cmd("TTL new") == -1);
    // In a transaction too.
    client.cmd("MULTI");
    client.cmd("CHAIN.MERGE third a b FORCE");
    client.cmd("CHAIN.CARD third");
    let replies = client.cmd("EXEC");
    assert!(replies.array()[0] == "OK" && replies.array()[1].int() > 290_000, "{replies:?}");
    let mut again = world.replayed().client();
    for key in ["a", "new", "third"] {
        assert_eq!(client.chunks(key), again.chunks(key), "{key}");
    }
}

/// What a merge in steps gives is what one at once does, and others go on between the steps.
#[test]
fn steps_make_no_difference() {
    let world = World::new();
    let (mut client, mut other) = (world.client(), world.client());
    let options = ["", "DUAL", "WINDOW 60 LINKS 3", "WINDOW 60 LINKS 3 BOUNDED"];
    for (n, options) in options.into_iter().enumerate() {
        let [a, b] = ["a", "b"].map(|key| format!("{key}{n}"));
        for (key, from) in [(&a, 0), (&b, 60_000)] {
            client.cmd(&format!("CHAIN.RESERVE {key} 0.0001 500000 {options}"));
            client.call(&with_items(&format!("CHAIN.MADD {key}"), from..from + 110_000));
        }
        client.cmd(&format!("COPY {a} once"));
        client.cmd("MULTI");
        client.cmd(&format!("CHAIN.MERGE once {b} FORCE"));
        assert!(client.cmd("EXEC").array()[0] == "OK", "{options}");
        let merged = client.interrupted(&["CHAIN.MERGE", &a, &b, "FORCE"], || {
            assert!(other.waits(&format!("CHAIN.ADD {b} x")));
            assert!(other.cmd(&format!("CHAIN.ADD elsewhere{n} x")) == 1);
        });
        assert!(merged == "OK", "{options}");
        assert_eq!(client.chunks(&a), client.chunks("once"), "{options}");
        assert_eq!(known(&mut client, &a, 0..170_000), 170_000, "{options}");
        client.cmd("DEL once");
    }
}

/// A merge does not make more arrays than a dump may have.
#[test]
fn arrays_of_a_window_have_an_end() {
    let world = World::new();
    let mut client = world.client();
    // Slices of one item: each merge of another such ring leaves its arrays beside those that are there.
    let mut full = None;
    for n in 0..200 {
        client.cmd("DEL b");
        client.cmd("CHAIN.RESERVE b 0.001 1 PWINDOW 1023 LINKS 1024 CLOCK EVENT");
        for at in 0..1024 {
            client.cmd(&format!("CHAIN.ADD b {n}:{at} AT {at}"));
        }
        let reply = client.cmd("CHAIN.MERGE a b");
        if let Value::Error(text) = reply {
            full = Some((n, text));
            break;
        }
    }
    let (rings, text) = full.expect("an end");
    assert_eq!(text, "ERR merged filter would have more than 65536 arrays");
    assert!(rings >= 60, "{rings}");
    let payload = client.cmd("DUMP a").bulk().to_vec();
    assert!(client.call(&[b"RESTORE", &b"c"[..], b"0", &payload]) == "OK");
}
