//! Adding items and asking for them, in both protocols.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::Value;
use crate::world::{Client, World, with_items, yes};

/// The examples of the commands' specification, to the byte, in both protocols.
#[test]
fn examples() {
    for (protocol, yes, no) in [(2, ":1\r\n", ":0\r\n"), (3, "#t\r\n", "#f\r\n")] {
        let mut client = World::new().client();
        client.cmd(&format!("HELLO {protocol}"));
        assert_eq!(client.bytes("CHAIN.RESERVE u 0.02 400"), "+OK\r\n");
        assert_eq!(client.bytes("CHAIN.MADD u n1 n2 n3"), format!("*3\r\n{yes}{yes}{yes}"));
        assert_eq!(client.bytes("CHAIN.UNSEEN u n2 n4 n5"), "*2\r\n$2\r\nn4\r\n$2\r\nn5\r\n");
        assert_eq!(client.bytes("CHAIN.UNSEENADD u COUNT 1 ITEMS n2 n4 n5"), "*1\r\n$2\r\nn4\r\n");
        assert_eq!(client.bytes("CHAIN.UNSEEN u n2 n4 n5"), "*1\r\n$2\r\nn5\r\n");
        assert_eq!(client.bytes("CHAIN.RESERVE w 0.01 15000 WINDOW 2592000 LINKS 31"), "+OK\r\n");
        // 400 items in 5 links: links of 100; 30 days in 31 links: slices of a day.
        assert!(*client.cmd("CHAIN.STATS u").field("link-capacity") == 100);
        assert!(*client.cmd("CHAIN.STATS w").field("slice-ms") == 86_400_000);
        assert!(*client.cmd("CHAIN.INFO w").field("Window") == 2_592_000_000);

        assert_eq!(client.bytes("CHAIN.ADD u n9"), yes);
        assert_eq!(client.bytes("CHAIN.ADD u n9"), no);
        assert_eq!(client.bytes("CHAIN.EXISTS u n9"), yes);
        assert_eq!(client.bytes("CHAIN.EXISTS u other"), no);
        assert_eq!(client.bytes("CHAIN.MEXISTS u n9 other n1"), format!("*3\r\n{yes}{no}{yes}"));
        assert_eq!(client.bytes("CHAIN.INSERT u ITEMS n9 new"), format!("*2\r\n{no}{yes}"));
        assert_eq!(client.bytes("CHAIN.CARD u"), ":6\r\n");
        assert_eq!(client.bytes("CHAIN.UNSEENADD u ITEMS n9"), "*0\r\n");
    }
}

#[test]
fn missing_keys() {
    for (protocol, no, null) in [(2, ":0\r\n", "$-1\r\n"), (3, "#f\r\n", "_\r\n")] {
        let mut client = World::new().client();
        client.cmd(&format!("HELLO {protocol}"));
        assert_eq!(client.bytes("CHAIN.EXISTS k a"), no);
        assert_eq!(client.bytes("CHAIN.MEXISTS k a b"), format!("*2\r\n{no}{no}"));
        assert_eq!(client.bytes("CHAIN.CARD k"), ":0\r\n");
        assert_eq!(client.bytes("CHAIN.UNSEEN k b a b"), "*3\r\n$1\r\nb\r\n$1\r\na\r\n$1\r\nb\r\n");
        assert_eq!(client.bytes("CHAIN.EXPORT k NEWER 0"), null);
        assert!(!client.cmd("CHAIN.EXPORT k").bulk().is_empty());
        for command in
            ["INFO k", "STATS k", "SCANDUMP k 0", "EXTEND k LINKS 6", "SHRINK k LINKS 3", "ROTATE k", "CLEAR k"]
        {
            assert_eq!(client.refused(&format!("CHAIN.{command}")), "ERR not found", "{command}");
        }
        assert_eq!(client.bytes("CHAIN.MERGE k j i"), "+OK\r\n");
        assert_eq!(client.bytes("EXISTS k j i"), ":0\r\n", "a missing source is empty, nothing came of nothing");
        assert_eq!(client.refused("CHAIN.LOADCHUNK k 5 data"), "ERR not found");
    }
}

#[test]
fn the_setting_for_missing_keys() {
    let world = World::new();
    world.set("filter-missing-key", "error");
    let mut client = world.client();
    for line in ["CHAIN.EXISTS k a", "CHAIN.MEXISTS k a", "CHAIN.CARD k"] {
        assert_eq!(client.refused(line), "ERR not found");
    }
    assert_eq!(client.cmd("CHAIN.UNSEEN k a").array().len(), 1, "nothing of it was seen");
}

#[test]
fn every_item_is_judged_after_those_before_it() {
    let mut client = World::new().client();
    let numbers = |reply: Value| reply.array().iter().map(Value::int).collect::<Vec<_>>();
    assert_eq!(numbers(client.cmd("CHAIN.MADD k a b a b")), [1, 1, 0, 0]);
    assert_eq!(numbers(client.cmd("CHAIN.INSERT k ITEMS c c b")), [1, 0, 0]);
    let texts = |reply: Value| reply.array().iter().map(Value::text).collect::<Vec<_>>().join(" ");
    assert_eq!(texts(client.cmd("CHAIN.UNSEEN k x a x y c")), "x x y");
    assert_eq!(texts(client.cmd("CHAIN.UNSEENADD k ITEMS x a x y c y")), "x y");
    assert_eq!(texts(client.cmd("CHAIN.UNSEENADD k COUNT 2 ITEMS p a p q r")), "p q");
    assert_eq!(texts(client.cmd("CHAIN.UNSEEN k r p q")), "r", "what was not given out was not added");
    // Any bytes are an item, none too.
    assert!(client.call(&["CHAIN.ADD", "k", ""]) == 1 && client.call(&["CHAIN.EXISTS", "k", ""]) == 1);
    assert!(client.call(&[&b"CHAIN.ADD"[..], b"k", b"\0\r\n\xff"]) == 1);
    assert_eq!(
        client.call(&[&b"CHAIN.UNSEEN"[..], b"k", b"\0\r\n\xff", b"\0"]),
        Value::Array(vec![Value::Bulk(vec![0])])
    );
}

#[test]
fn rings_forget_the_oldest() {
    for options in ["", "KEYED", "SEED 000102030405060708090a0b0c0d0e0f", "IDLE 100"] {
        let mut client = World::new().client();
        client.cmd(&format!("CHAIN.RESERVE k 0.000001 400 {options}"));
        for from in (0..2_000).step_by(50) {
            assert_eq!(yes(&client.call(&with_items("CHAIN.MADD k", from..from + 50))), 50);
            let newest = from.saturating_sub(350)..from + 50;
            assert_eq!(yes(&client.call(&with_items("CHAIN.MEXISTS k", newest.clone()))), newest.len());
        }
        assert_eq!(yes(&client.call(&with_items("CHAIN.MEXISTS k", 0..1_500))), 0);
        assert!(client.cmd("CHAIN.CARD k") == 500);
        // An item that comes again is remembered anew.
        assert!(client.cmd("CHAIN.ADD k item:1550") == 0);
        client.call(&with_items("CHAIN.MADD k", 2_000..2_380));
        assert!(client.cmd("CHAIN.EXISTS k item:1550") == 1 && client.cmd("CHAIN.EXISTS k item:1551") == 0);
    }
}

/// Long commands: only their key waits, and what they answer is the same.
#[test]
fn long_commands_have_their_key_alone() {
    const ITEMS: usize = 100_000;
    let world = World::new();
    let (mut client, mut other) = (world.client(), world.client());
    client.cmd("CHAIN.RESERVE k 0.000001 100000 IDLE 100");
    let mut meanwhile = |key_has: i64| {
        assert!(other.waits("CHAIN.EXISTS k item:1") && other.waits("CHAIN.ADD k x") && other.waits("DEL k"));
        assert!(!other.waits("CHAIN.ADD elsewhere x"));
        assert!(other.cmd("EXISTS elsewhere") == key_has);
    };
    let added = client.interrupted(&with_items("CHAIN.MADD k", 0..ITEMS), || meanwhile(1));
    assert_eq!((added.array().len(), yes(&added)), (ITEMS, ITEMS));
    let asked = client.interrupted(&with_items("CHAIN.MEXISTS k", 0..ITEMS + 50), || meanwhile(1));
    assert_eq!(yes(&asked), ITEMS);
    let unseen = client.interrupted(&with_items("CHAIN.UNSEEN k", 0..ITEMS + 50), || meanwhile(1));
    assert_eq!(unseen.array().len(), 50);
    let given = client.interrupted(&with_items("CHAIN.UNSEENADD k COUNT 7 ITEMS", 0..ITEMS + 50), || meanwhile(1));
    assert_eq!(given.array().len(), 7);
    let inserted = client.interrupted(&with_items("CHAIN.INSERT k ITEMS", 0..ITEMS), || meanwhile(1));
    assert_eq!(inserted.array().len(), ITEMS);
    assert!(client.cmd("TTL k") == 100);
    assert_eq!(client.chunks("k"), world.replayed().client().chunks("k"));
}

#[test]
fn of_several_clients_one_hears_true() {
    const ITEMS: usize = 4_000;
    let world = World::new();
    world.client().cmd("CHAIN.RESERVE k 0.000000001 100000");
    let news = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut client = world.client();
                for n in 0..ITEMS {
                    news.fetch_add(usize::from(client.cmd(&format!("CHAIN.ADD k {n}")).truth()), Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(news.into_inner(), ITEMS);
}

/// Short commands, long ones, and transactions.
#[test]
fn nothing_is_given_out_twice() {
    const ITEMS: usize = 20_000;
    let world = World::new();
    world.client().cmd("CHAIN.RESERVE k 0.000000001 100000");
    let take = |client: &mut Client, turn: usize, own: usize| -> Vec<Vec<u8>> {
        let from = turn * 37 % (ITEMS - 9_000);
        let range = if turn % 40 == own { from..from + 9_000 } else { from..from + 200 };
        let words = with_items("CHAIN.UNSEENADD k COUNT 11 ITEMS", range);
        let reply = match turn % 3 {
            0 => {
                client.cmd("MULTI");
                client.call(&words);
                client.cmd("EXEC").array()[0].clone()
            }
            _ => client.call(&words),
        };
        reply.array().iter().map(|item| item.bulk().to_vec()).collect()
    };
    let mut given: Vec<Vec<u8>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|own| {
                let (world, take) = (&world, &take);
                scope.spawn(move || {
                    let mut client = world.client();
                    (0..300).flat_map(|turn| take(&mut client, turn, own)).collect::<Vec<_>>()
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("a client")).collect()
    });
    let count = given.len();
    given.sort();
    given.dedup();
    assert_eq!(given.len(), count);
    assert!(world.client().cmd("CHAIN.CARD k") == count as i64, "as many were added as were given out");
}

#[test]
fn transactions() {
    let world = World::new();
    let (mut client, mut other) = (world.client(), world.client());
    client.cmd("MULTI");
    for line in [
        "CHAIN.RESERVE k 0.01 100",
        "CHAIN.MADD k a b",
        "CHAIN.UNSEENADD k ITEMS b c",
        "CHAIN.INFO k",
        "CHAIN.ROTATE j",
    ] {
        assert!(client.cmd(line) == "QUEUED");
    }
    assert!(other.cmd("EXISTS k") == 0);
    let replies = client.cmd("EXEC");
    assert!(replies.array()[0] == "OK" && yes(&replies.array()[1]) == 2);
    assert_eq!(replies.array()[2], Value::Array(vec![Value::Bulk(b"c".into())]));
    assert_eq!(replies.array()[4].error(), "ERR not found");
    // A change of a watched ring ends the transaction, one that changes nothing does not.
    for (line, ends) in [
        ("CHAIN.ADD k a", false),
        ("CHAIN.EXISTS k zz", false),
        ("CHAIN.UNSEENADD k ITEMS a b", false),
        ("CHAIN.ADD k new", true),
        ("CHAIN.ROTATE k", true),
        ("CHAIN.EXTEND k LINKS 6", true),
        ("CHAIN.CLEAR k", true),
        ("CHAIN.MERGE k full", true),
        ("CHAIN.MERGE k missing", false),
    ] {
        other.cmd("CHAIN.RESERVE full 0.01 125 LINKS 6");
        other.cmd("CHAIN.ADD full a");
        client.cmd("WATCH k");
        let reply = other.cmd(line);
        assert!(!matches!(reply, Value::Error(_)), "{line}: {reply:?}");
        client.cmd("MULTI");
        client.cmd("PING");
        assert_eq!(client.cmd("EXEC") == Value::Null, ends, "{line}");
    }
    // One that takes long in a transaction, and one that is refused when it is queued.
    client.cmd("CHAIN.RESERVE long 0.000001 100000");
    client.cmd("MULTI");
    client.call(&with_items("CHAIN.MADD long", 0..20_000));
    client.call(&with_items("CHAIN.UNSEEN long", 0..20_000));
    assert!(client.cmd("EXEC").array()[1].array().is_empty());
    client.cmd("MULTI");
    assert!(client.cmd("CHAIN.ADD").error().starts_with("ERR wrong number"));
    assert!(client.cmd("EXEC").error().starts_with("EXECABORT "));
}

/// A refused item is an error in its place, the others are written; nothing says "seen" for "refused".
#[test]
fn items_that_find_no_memory_are_errors() {
    let world = World::new();
    world.set("max-filter-memory", "1mb");
    let mut client = world.client();
    assert!(client.cmd("CHAIN.RESERVE k 0.01 100000 WINDOW 60 LINKS 2") == "OK");
    let added = client.call(&with_items("CHAIN.MADD k", 0..800_000));
    let refused = |reply: &Value| reply.array().iter().filter(|answer| matches!(answer, Value::Error(_))).count();
    let text = |reply: &Value| {
        let found = reply.array().iter().find(|answer| matches!(answer, Value::Error(_))).cloned();
        found.expect("a refused item").error().to_string()
    };
    assert_eq!(added.array().len(), 800_000);
    assert!((1..800_000).contains(&refused(&added)));
    assert!(text(&added).ends_with(" bytes, 'max-filter-memory' is 1048576"), "{}", text(&added));
    // An item that is there is none the worse for it.
    assert!(client.cmd("CHAIN.ADD k item:5") == 0);
    let given = client.cmd("CHAIN.UNSEENADD k ITEMS item:5 fresh");
    assert!(given.array().len() == 1 && text(&given).starts_with("ERR filter would take "), "{given:?}");
    assert!(client.cmd("CHAIN.ADD k fresh").error().starts_with("ERR filter would take "));
    // A new value counts at once.
    world.set("max-filter-memory", "0");
    assert!(client.cmd("CHAIN.ADD k fresh") == 1);
}

/// Where other keys can go for a link, they do: no item is refused, and none is judged twice.
#[test]
fn keys_are_evicted_for_a_link() {
    let world = World::new();
    world.set("maxmemory", "1mb");
    let mut client = world.client();
    client.cmd("CHAIN.RESERVE k 0.000001 400");
    let mut from = 0;
    for items in [1, 50, 99, 100, 101, 250, 30_000] {
        world.evict(3);
        let added = client.call(&with_items("CHAIN.MADD k", from..from + items));
        assert_eq!(yes(&added), items);
        from += items;
    }
    world.evict(3);
    assert!(client.cmd("CHAIN.RESERVE j 0.01 100") == "OK");
    world.evict(3);
    assert!(client.cmd("CHAIN.MERGE new k") == "OK");
    // In a transaction, whose keys' shards are locked.
    client.cmd("MULTI");
    client.call(&with_items("CHAIN.MADD j", 0..90));
    client.call(&with_items("CHAIN.MADD new", 0..250));
    world.evict(3);
    let replies = client.cmd("EXEC");
    assert!(yes(&replies.array()[0]) > 80, "{replies:?}");
    assert_eq!(client.chunks("k"), world.replayed().client().chunks("k"));
}

#[test]
fn at_the_memory_limit() {
    const OOM: &str = "OOM command not allowed when used memory > 'maxmemory'.";
    let world = World::new();
    world.set("maxmemory", "1mb");
    let mut client = world.client();
    client.call(&with_items("CHAIN.MADD k", 0..300));
    let chunks = client.chunks("k");
    world.refuse_memory(true);
    for line in [
        "CHAIN.RESERVE j 0.01 100",
        "CHAIN.ADD k a",
        "CHAIN.MADD k a",
        "CHAIN.INSERT k ITEMS a",
        "CHAIN.UNSEENADD k ITEMS a",
        "CHAIN.EXTEND k LINKS 6",
        "CHAIN.MERGE j k",
        "CHAIN.LOADCHUNK j 5 x",
    ] {
        assert_eq!(client.refused(line), OOM, "{line}");
    }
    assert_eq!(client.load("j", &chunks[0]).error(), OOM);
    // What reads or gives memory back goes on.
    for line in
        ["CHAIN.EXISTS k a", "CHAIN.UNSEEN k a", "CHAIN.INFO k", "CHAIN.SHRINK k LINKS 3", "CHAIN.CLEAR k", "DEL k"]
    {
        let reply = client.cmd(line);
        assert!(!matches!(reply, Value::Error(_)), "{line}: {reply:?}");
    }
}
