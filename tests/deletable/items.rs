//! Adding, asking, counting, deleting.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::{Random, Value};
use crate::world::{World, with_items, yes};
use crate::{FAMILIES, numbers};

/// The examples of the commands' specification, to the byte, in both protocols.
#[test]
fn examples() {
    for (protocol, yes, no) in [(2, ":1\r\n", ":0\r\n"), (3, "#t\r\n", "#f\r\n")] {
        let mut client = World::new().client();
        client.cmd(&format!("HELLO {protocol}"));
        assert_eq!(client.bytes("CBF.RESERVE c 0.01 1000"), "+OK\r\n");
        assert_eq!(client.bytes("CBF.ADD c a"), yes);
        assert_eq!(client.bytes("CBF.ADD c a"), no);
        assert_eq!(client.bytes("CBF.COUNT c a"), ":2\r\n");
        assert_eq!(client.bytes("CBF.DEL c a"), yes);
        assert_eq!(client.bytes("CBF.DEL c b"), no);

        assert_eq!(client.bytes("DLCBF.RESERVE d 0.001 100000"), "+OK\r\n");
        let full = "-ERR counter is full: item is counted 4 times\r\n";
        assert_eq!(client.bytes("DLCBF.MADD d a a a a a"), format!("*5\r\n{yes}{no}{no}{no}{full}"));
        assert_eq!(client.bytes("DLCBF.COUNT d a"), ":4\r\n");
    }
}

/// Every command on items, to the byte.
#[test]
fn replies() {
    for family in FAMILIES {
        for (protocol, yes, no) in [(2, ":1\r\n", ":0\r\n"), (3, "#t\r\n", "#f\r\n")] {
            let mut client = World::new().client();
            client.cmd(&format!("HELLO {protocol}"));
            let mut says = |line: &str, reply: String| assert_eq!(client.bytes(&format!("{family}.{line}")), reply);
            says("RESERVE k 0.001 1000", "+OK\r\n".into());
            says("RESERVE k 0.001 1000", "-ERR item exists\r\n".into());
            says("ADD k a", yes.into());
            says("MADD k a b b", format!("*3\r\n{no}{yes}{no}"));
            says("INSERT k ITEMS c a", format!("*2\r\n{yes}{no}"));
            says("INSERT k NOCREATE ITEMS c", format!("*1\r\n{no}"));
            says("EXISTS k a", yes.into());
            says("EXISTS k x", no.into());
            says("MEXISTS k a x b", format!("*3\r\n{yes}{no}{yes}"));
            says("COUNT k a", ":3\r\n".into());
            says("COUNT k x", ":0\r\n".into());
            says("MCOUNT k a b c x", "*4\r\n:3\r\n:2\r\n:2\r\n:0\r\n".into());
            says("CARD k", ":7\r\n".into());
            says("DEL k a", yes.into());
            says("DEL k x", no.into());
            says("MDEL k a x b a a", format!("*5\r\n{yes}{no}{yes}{yes}{no}"));
            says("MCOUNT k a b c", "*3\r\n:0\r\n:1\r\n:2\r\n".into());
            says("CARD k", ":3\r\n".into());
        }
    }
}

#[test]
fn missing_keys() {
    for family in FAMILIES {
        for (protocol, no) in [(2, ":0\r\n"), (3, "#f\r\n")] {
            let mut client = World::new().client();
            client.cmd(&format!("HELLO {protocol}"));
            let mut says = |line: &str, reply: &str| assert_eq!(client.bytes(&format!("{family}.{line}")), reply);
            says("EXISTS k a", no);
            says("MEXISTS k a b", &format!("*2\r\n{no}{no}"));
            says("DEL k a", no);
            says("MDEL k a b", &format!("*2\r\n{no}{no}"));
            says("COUNT k a", ":0\r\n");
            says("MCOUNT k a b", "*2\r\n:0\r\n:0\r\n");
            says("CARD k", ":0\r\n");
            for command in ["INFO k", "STATS k", "INSERT k NOCREATE ITEMS a"] {
                says(command, "-ERR not found\r\n");
            }
            assert_eq!(client.bytes("EXISTS k"), ":0\r\n");
            assert_eq!(client.refused("CBF.DECAY k"), "ERR not found");
        }
    }
}

#[test]
fn the_settings_for_missing_keys() {
    for family in FAMILIES {
        let world = World::new();
        world.set("filter-missing-key", "error");
        world.set("filter-create-on-add", "no");
        let mut client = world.client();
        for line in ["EXISTS k a", "MEXISTS k a", "COUNT k a", "MCOUNT k a", "CARD k", "ADD k a", "MADD k a"] {
            assert_eq!(client.refused(&format!("{family}.{line}")), "ERR not found", "{line}");
        }
        // Deleting is no question: what is not there is gone.
        assert!(client.cmd(&format!("{family}.DEL k a")) == 0);
        // INSERT says what is to be made.
        assert_eq!(numbers(&client.cmd(&format!("{family}.INSERT k ITEMS a"))), [1]);
        let prefix = family.to_lowercase();
        world.set("filter-create-on-add", "yes");
        world.set(&format!("{prefix}-initial-size"), "77");
        world.set(&format!("{prefix}-error-rate"), "0.25");
        assert!(client.cmd(&format!("{family}.ADD j a")) == 1);
        let info = client.cmd(&format!("{family}.INFO j"));
        assert_eq!((info.field("Capacity").int(), info.field("Error rate").text()), (77, "0.25".into()));
        world.set(&format!("{prefix}-max-capacity"), "50");
        assert_eq!(client.refused(&format!("{family}.RESERVE i 0.1 51")), "ERR capacity must be in the range [1, 50]");
    }
}

#[test]
fn any_bytes_are_an_item() {
    for family in FAMILIES {
        let mut client = World::new().client();
        let mut call = |verb: &str, item: &[u8]| client.call(&[format!("{family}.{verb}").as_bytes(), b"k", item]);
        for item in [&b""[..], b"\0\r\n\xff", &[7; 100_000]] {
            assert!(call("ADD", item) == 1 && call("EXISTS", item) == 1 && call("COUNT", item) == 1);
            assert!(call("DEL", item) == 1 && call("EXISTS", item) == 0);
        }
    }
}

/// A multiset beside each filter: what it holds is always found, its counts are never below the truth, and what the log does again is the same.
#[test]
fn against_a_multiset() {
    for (family, options) in [
        ("CBF", ""),
        ("CBF", "COUNTERBITS 8 KEYED"),
        ("CBF", "STRICT"),
        ("DLCBF", ""),
        ("DLCBF", "COUNTERBITS 4 SEED 000102030405060708090a0b0c0d0e0f"),
        ("DLCBF", "EXPANSION 2 FINAL 6000"),
        ("DLCBF", "OVERFLOW SPILL SUBTABLES 3 CELLS 6"),
    ] {
        let world = World::new();
        let mut client = world.client();
        client.cmd(&format!("{family}.RESERVE k 0.0001 400 {options}"));
        let (mut model, mut random) = (HashMap::<usize, i64>::new(), Random::new(7));
        for _ in 0..300 {
            let from = random.below(900);
            let range = from..from + 1 + random.below(140);
            let add = random.below(5) < 3;
            // Only what was added is deleted: that is the promise's condition.
            let items: Vec<usize> = range.filter(|n| add || model.get(n).copied().unwrap_or_default() > 0).collect();
            if items.is_empty() {
                continue;
            }
            let verb = if add { "MADD" } else { "MDEL" };
            let mut words = vec![format!("{family}.{verb}"), "k".into()];
            words.extend(items.iter().map(|n| format!("item:{n}")));
            let reply = client.call(&words);
            for (n, answer) in items.iter().zip(reply.array()) {
                match answer {
                    Value::Error(text) => assert!(add && text.contains(" is full: "), "{text}"),
                    answer if add => {
                        *model.entry(*n).or_default() += 1;
                        assert!(!answer.truth() || model[n] == 1, "an item was new twice");
                    }
                    answer => {
                        assert!(answer.truth(), "{family} {options}: item {n} is there and could not be deleted");
                        *model.get_mut(n).expect("it was added") -= 1;
                    }
                }
            }
        }
        let counts = numbers(&client.call(&with_items(&format!("{family}.MCOUNT k"), 0..1_100)));
        let ceiling = client.cmd(&format!("{family}.INFO k")).field("Counter ceiling").int();
        for (n, count) in counts.iter().enumerate() {
            let truth = model.get(&n).copied().unwrap_or_default();
            assert!(*count >= truth.min(ceiling), "{family} {options}: item {n} {count} {truth}");
        }
        let total: i64 = model.values().sum();
        assert!(client.cmd(&format!("{family}.CARD k")) == total);
        let mut again = world.replayed().client();
        let all = with_items(&format!("{family}.MCOUNT k"), 0..1_100);
        assert_eq!(numbers(&again.call(&all)), counts);
        let stats = |client: &mut crate::world::Client| {
            let stats = client.cmd(&format!("{family}.STATS k"));
            let text = format!("{stats:?}");
            // Of what a small filter has room for the log does not tell.
            text.split("bytes").next().expect("a part").to_owned()
        };
        assert_eq!(stats(&mut again), stats(&mut client), "{family} {options}");
    }
}

/// Long commands: only their key waits, and what they answer is the same.
#[test]
fn long_commands_have_their_key_alone() {
    const ITEMS: usize = 100_000;
    for family in FAMILIES {
        let world = World::new();
        let (mut client, mut other) = (world.client(), world.client());
        client.cmd(&format!("{family}.RESERVE k 0.000001 100000"));
        let mut meanwhile = || {
            assert!(other.waits(&format!("{family}.EXISTS k item:1")) && other.waits(&format!("{family}.ADD k x")));
            assert!(other.waits(&format!("{family}.DEL k x")) && other.waits("DEL k"));
            assert!(!other.waits(&format!("{family}.ADD elsewhere x")));
        };
        let mut long =
            |verb: &str, numbers| client.interrupted(&with_items(&format!("{family}.{verb}"), numbers), &mut meanwhile);
        let added = long("MADD k", 0..ITEMS);
        assert_eq!((added.array().len(), yes(&added)), (ITEMS, ITEMS));
        assert_eq!(yes(&long("MEXISTS k", 0..ITEMS + 50)), ITEMS);
        let counts = numbers(&long("MCOUNT k", 0..ITEMS + 50));
        assert_eq!(counts.iter().sum::<i64>(), ITEMS as i64);
        assert_eq!(yes(&long("INSERT k ITEMS", 0..ITEMS)), 0);
        assert_eq!(yes(&long("MDEL k", 0..ITEMS + 50)), ITEMS);
        assert_eq!(yes(&long("MEXISTS k", 0..ITEMS)), ITEMS);
        assert!(client.cmd(&format!("{family}.CARD k")) == ITEMS as i64);
        let mut again = world.replayed().client();
        assert_eq!(yes(&again.call(&with_items(&format!("{family}.MEXISTS k"), 0..ITEMS))), ITEMS);
        assert!(again.cmd(&format!("{family}.CARD k")) == ITEMS as i64);
    }
}

/// Halving takes all counters, at once or in steps; what is left is the sum of the counters over the hashes.
#[test]
fn decay() {
    for capacity in [100, 1_000_000] {
        let world = World::new();
        let (mut client, mut other) = (world.client(), world.client());
        client.cmd(&format!("CBF.RESERVE k 0.0000001 {capacity}"));
        for (times, item) in [(1, "once"), (2, "twice"), (5, "five"), (40, "saturated")] {
            let words: Vec<&str> = ["CBF.MADD", "k"].into_iter().chain(std::iter::repeat_n(item, times)).collect();
            client.call(&words);
        }
        let counts = |client: &mut crate::world::Client| numbers(&client.cmd("CBF.MCOUNT k once twice five saturated"));
        assert_eq!(counts(&mut client), [1, 2, 5, 15]);
        assert!(client.cmd("CBF.INFO k").field("Saturated counters").int() > 0);
        let version = client.cmd("CBF.STATS k").field("version").int();
        let reply = match capacity > 1_000 {
            true => client.interrupted(&["CBF.DECAY", "k"], || assert!(other.waits("CBF.EXISTS k once"))),
            false => client.cmd("CBF.DECAY k"),
        };
        assert!(reply == "OK");
        assert_eq!(counts(&mut client), [0, 1, 2, 7]);
        assert!(
            client.cmd("CBF.CARD k") == 10 && client.cmd("CBF.INFO k").field("Saturated counters") == &Value::Int(0)
        );
        assert_eq!(client.cmd("CBF.STATS k").field("version").int(), version + 1);
        assert_eq!(counts(&mut world.replayed().client()), [0, 1, 2, 7]);
        for _ in 0..3 {
            client.cmd("CBF.DECAY k");
        }
        assert!(client.cmd("CBF.CARD k") == 0 && client.cmd("CBF.EXISTS k saturated") == 0);
    }
}

/// Of several clients that add one item one hears that it is new, and of those that delete it as many as added it are told that it was there.
#[test]
fn several_clients() {
    const ITEMS: usize = 3_000;
    for family in FAMILIES {
        let world = World::new();
        world.client().cmd(&format!("{family}.RESERVE k 0.000000001 100000"));
        let together = |verb: &str| {
            let said = AtomicUsize::new(0);
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        let mut client = world.client();
                        for n in 0..ITEMS {
                            let reply = client.cmd(&format!("{family}.{verb} k {n}"));
                            said.fetch_add(usize::from(reply.truth()), Ordering::Relaxed);
                        }
                    });
                }
            });
            said.into_inner()
        };
        assert_eq!(together("ADD"), ITEMS);
        assert!(world.client().cmd(&format!("{family}.CARD k")) == 4 * ITEMS as i64);
        assert_eq!(together("DEL"), 4 * ITEMS);
        assert_eq!(together("DEL"), 0);
        assert!(world.client().cmd(&format!("{family}.CARD k")) == 0);
    }
}

/// What takes long answers as what does not.
#[test]
fn large_items() {
    let item = vec![b'x'; 3_000_000];
    for family in FAMILIES {
        let mut client = World::new().client();
        let mut ask = |verb: &str| client.call(&[format!("{family}.{verb}").as_bytes(), b"k", &item]);
        for (verb, reply) in [("ADD", 1), ("ADD", 0), ("COUNT", 2), ("DEL", 1), ("EXISTS", 1), ("DEL", 1), ("DEL", 0)] {
            assert!(ask(verb) == reply, "{verb}");
        }
        assert_eq!(yes(&ask("MADD")), 1);
        assert_eq!(yes(&ask("MDEL")), 1);
    }
}

#[test]
fn transactions() {
    for family in FAMILIES {
        let world = World::new();
        let (mut client, mut other) = (world.client(), world.client());
        client.cmd("MULTI");
        for line in ["RESERVE k 0.01 100", "MADD k a b", "DEL k b", "COUNT k a", "DEL nothing x"] {
            assert!(client.cmd(&format!("{family}.{line}")) == "QUEUED");
        }
        assert!(other.cmd("EXISTS k") == 0);
        let replies = client.cmd("EXEC");
        assert!(replies.array()[0] == "OK" && yes(&replies.array()[1]) == 2);
        assert_eq!(replies.array()[2..].iter().map(Value::int).collect::<Vec<_>>(), [1, 1, 0]);
        // What changed nothing ends no transaction of who watches the key.
        for (line, ends) in [
            ("ADD k a", true),
            ("DEL k a", true),
            ("DEL k zz", false),
            ("MDEL k zz yy", false),
            ("EXISTS k a", false),
            ("MADD k zz", true),
        ] {
            client.cmd("WATCH k");
            other.cmd(&format!("{family}.{line}"));
            client.cmd("MULTI");
            client.cmd("PING");
            assert_eq!(client.cmd("EXEC") == Value::Null, ends, "{line}");
        }
        // One that takes long in a transaction.
        client.cmd(&format!("{family}.RESERVE long 0.000001 100000"));
        client.cmd("MULTI");
        client.call(&with_items(&format!("{family}.MADD long"), 0..20_000));
        client.call(&with_items(&format!("{family}.MDEL long"), 0..20_000));
        let replies = client.cmd("EXEC");
        assert_eq!((yes(&replies.array()[0]), yes(&replies.array()[1])), (20_000, 20_000));
        assert!(client.cmd(&format!("{family}.CARD long")) == 0);
    }
}
