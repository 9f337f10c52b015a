//! `CHAIN.PROFILE`: what keys get that a command makes by itself.

use crate::support::Value;
use crate::world::{START, World, with_items};

#[test]
fn the_longest_prefix_counts() {
    let world = World::new();
    let mut client = world.client();
    client.cmd("CHAIN.ADD seen:before a");
    assert!(client.cmd("CHAIN.PROFILE SET seen: CAPACITY 1000 ERROR 0.001 LINKS 9") == "OK");
    assert!(client.cmd("chain.profile set seen:vip: WINDOW 60 LINKS 3 IDLE 500") == "OK");
    let capacity = |client: &mut crate::world::Client, key: &str| {
        client.cmd(&format!("CHAIN.ADD {key} a"));
        client.cmd(&format!("CHAIN.INFO {key}")).field("Capacity").int()
    };
    for (key, expected) in
        [("seen:before", 400), ("seen:1", 1000), ("seen:", 1000), ("seen", 400), ("other", 400), ("seen:vip:1", 400)]
    {
        assert_eq!(capacity(&mut client, key), expected, "{key}");
    }
    let info = client.cmd("CHAIN.INFO seen:vip:1");
    assert!(*info.field("Window") == 60_000 && *info.field("Number of links") == 3);
    assert!(client.cmd("TTL seen:vip:1") == 500);
    // Every command that makes keys by itself.
    client.cmd("CHAIN.MADD seen:2 a");
    client.cmd("CHAIN.INSERT seen:3 ITEMS a");
    client.cmd("CHAIN.UNSEENADD seen:4 ITEMS a");
    for n in 2..=4 {
        assert!(*client.cmd(&format!("CHAIN.INFO seen:{n}")).field("Number of links") == 9);
    }
    // RESERVE says all itself.
    client.cmd("CHAIN.RESERVE seen:5 0.01 50");
    assert!(*client.cmd("CHAIN.INFO seen:5").field("Number of links") == 5);
    // A missing key is exported as what it would be.
    assert_ne!(client.cmd("CHAIN.EXPORT seen:99"), client.cmd("CHAIN.EXPORT other:99"));
    // What is deleted counts no more, what was made stays.
    assert!(client.cmd("CHAIN.PROFILE DEL seen:") == 1 && client.cmd("CHAIN.PROFILE DEL seen:") == 0);
    assert_eq!((capacity(&mut client, "seen:6"), capacity(&mut client, "seen:1")), (400, 1000));
    // The empty prefix fits all.
    assert!(client.call(&["CHAIN.PROFILE", "SET", "", "CAPACITY", "7"]) == "OK");
    assert_eq!((capacity(&mut client, "new"), capacity(&mut client, "seen:vip:2")), (7, 400));
}

#[test]
fn options_go_over_the_profile() {
    let mut client = World::new().client();
    client.cmd("CHAIN.PROFILE SET w: CAPACITY 50 ERROR 0.5 WINDOW 60 LINKS 3 BOUNDED CLOCK EVENT IDLE 5");
    let shown = |client: &mut crate::world::Client, key: &str| {
        let (info, stats) = (client.cmd(&format!("CHAIN.INFO {key}")), client.cmd(&format!("CHAIN.STATS {key}")));
        let words = [info.field("Capacity"), info.field("Number of links"), info.field("Window"), stats.field("clock")];
        let words = words.map(|value| {
            if let Value::Int(number) = value {
                number.to_string()
            } else if *value == Value::Null {
                "-".into()
            } else {
                value.text()
            }
        });
        words.join(" ")
    };
    for (n, (options, expected)) in [
        ("AT 5", "50 3 60000 event"),
        ("CAPACITY 9 AT 5", "9 3 60000 event"),
        ("WINDOW 30 AT 5", "50 3 30000 event"),
        ("CLOCK SERVER", "50 3 60000 server"),
        ("PWINDOW 7 CLOCK SERVER LINKS 8", "50 8 7 server"),
        ("DUAL", "50 2 - -"),
    ]
    .into_iter()
    .enumerate()
    {
        let reply = client.cmd(&format!("CHAIN.INSERT w:{n} {options} ITEMS a"));
        assert!(matches!(reply, Value::Array(_)), "{options}: {reply:?}");
        assert_eq!(shown(&mut client, &format!("w:{n}")), expected, "{options}");
    }
    // An add cannot give the time that this profile's clock needs.
    assert_eq!(client.refused("CHAIN.MADD w:9 a"), "ERR AT is needed by this filter's clock");
    assert!(client.cmd("CHAIN.ADD w:9 a AT 5") == 1);
    client.cmd("CHAIN.PROFILE SET d: DUAL THRESHOLD 0.75 CAPACITY 100");
    for (key, options, capacity) in
        [("d:1", "", 400), ("d:2", "DUAL", 400), ("d:3", "THRESHOLD 0.5", 200), ("d:4", "LINKS 11", 10)]
    {
        client.cmd(&format!("CHAIN.INSERT {key} {options} ITEMS a"));
        assert!(*client.cmd(&format!("CHAIN.STATS {key}")).field("link-capacity") == capacity, "{options}");
    }
    client.cmd("CHAIN.PROFILE SET k: KEYED");
    client.cmd("CHAIN.INSERT k:1 ITEMS a");
    client.cmd("CHAIN.INSERT k:2 SEED 000102030405060708090a0b0c0d0e0f ITEMS a");
    assert_eq!(client.cmd("CHAIN.MERGE k:1 k:2").error(), "ERR filters differ: key its own and another");
    assert!(*client.cmd("CHAIN.STATS k:1").field("keyed") == 1);
}

#[test]
fn what_is_shown() {
    for protocol in [2, 3] {
        let mut client = World::new().client();
        client.cmd(&format!("HELLO {protocol}"));
        assert_eq!(client.bytes("CHAIN.PROFILE GET p"), if protocol == 3 { "_\r\n" } else { "$-1\r\n" });
        assert_eq!(client.bytes("CHAIN.PROFILE LIST"), if protocol == 3 { "%0\r\n" } else { "*0\r\n" });
        client.cmd("CHAIN.PROFILE SET p WINDOW 60 KEYED");
        client.cmd("CHAIN.PROFILE SET o DUAL");
        client.cmd("CHAIN.PROFILE SET n SEED 000102030405060708090a0b0c0d0e0f IDLE 9");
        let get = client.cmd("CHAIN.PROFILE GET p");
        assert!(*get.field("capacity") == 400 && *get.field("pwindow") == 60_000 && *get.field("links") == 5);
        assert!(*get.field("clock") == "server" && *get.field("idle") == Value::Null && get.field("keyed").truth());
        assert_eq!(matches!(get, Value::Map(_)), protocol == 3);
        assert!(client.bytes("CHAIN.PROFILE GET p").contains("+capacity\r\n:400\r\n"));
        let list = client.cmd("CHAIN.PROFILE LIST");
        assert_eq!((list.field("p"), &client.cmd("CHAIN.PROFILE GET n")), (&get, list.field("n")));
        assert!(!client.bytes("CHAIN.PROFILE LIST").contains("0102"), "keys are not shown");
        assert!(matches!(list.field("o").field("threshold"), Value::Double(_) | Value::Bulk(_)));
        let yes = if protocol == 3 { "#t\r\n" } else { ":1\r\n" };
        assert_eq!(client.bytes("CHAIN.PROFILE DEL o"), yes);
        let help = client.cmd("CHAIN.PROFILE HELP");
        assert!(help.array().iter().all(|line| matches!(line, Value::Simple(_))) && help.array().len() >= 10);
    }
}

#[test]
fn categories_and_flags() {
    let mut client = World::new().client();
    let reply = client.cmd("COMMAND INFO CHAIN.PROFILE|SET CHAIN.PROFILE|GET CHAIN.PROFILE|DEL CHAIN.PROFILE|LIST CHAIN.PROFILE|HELP CHAIN.ADD CHAIN.MADD");
    let of = |index: usize, field: usize| {
        let words = reply.array()[index].array()[field].array().iter().map(Value::text);
        words.collect::<Vec<_>>()
    };
    for (index, flag) in ["write", "readonly", "write", "readonly", "readonly"].into_iter().enumerate() {
        assert!(of(index, 2).iter().any(|word| word == flag), "{index}: {:?}", of(index, 2));
        assert!(of(index, 6).iter().any(|word| word == "@chain"));
        assert_eq!(of(index, 6).iter().any(|word| word == "@admin"), index < 4, "{index}");
    }
    assert_eq!(of(5, 2), ["write", "denyoom", "fast"]);
    assert!(of(5, 6).iter().any(|word| word == "@fast") && of(6, 6).iter().any(|word| word == "@slow"));
}

#[test]
fn limits() {
    let mut client = World::new().client();
    let long = "p".repeat(1025);
    assert_eq!(client.refused(&format!("CHAIN.PROFILE SET {long} LINKS 1")), "ERR prefix is longer than 1024 bytes");
    for n in 0..1024 {
        assert!(client.cmd(&format!("CHAIN.PROFILE SET p{n}: LINKS 7")) == "OK");
    }
    assert_eq!(client.refused("CHAIN.PROFILE SET more LINKS 7"), "ERR there are 1024 profiles, delete one first");
    assert!(client.cmd("CHAIN.PROFILE SET p5: LINKS 8") == "OK", "one that is there can be changed");
}

/// In transactions, and by the log: records of keys have the settings in full, whatever the profile is by then.
#[test]
fn the_log_never_depends_on_a_profile() {
    let world = World::new();
    let mut client = world.client();
    client.cmd("MULTI");
    client.cmd("CHAIN.PROFILE SET p: LINKS 9 KEYED");
    client.cmd("CHAIN.ADD p:1 a");
    client.cmd("CHAIN.PROFILE GET p:");
    let replies = client.cmd("EXEC");
    assert!(replies.array()[0] == "OK" && *replies.array()[2].field("links") == 9);
    assert!(*client.cmd("CHAIN.INFO p:1").field("Number of links") == 9);
    client.cmd("CHAIN.PROFILE SET p: DUAL");
    client.call(&with_items("CHAIN.MADD p:2", 0..2_000));
    client.cmd("CHAIN.PROFILE DEL p:");
    client.cmd("CHAIN.PROFILE SET q: WINDOW 5");
    let mut again = world.replayed().client();
    for key in ["p:1", "p:2"] {
        assert_eq!(client.chunks(key), again.chunks(key));
    }
    assert_eq!(client.cmd("CHAIN.PROFILE LIST"), again.cmd("CHAIN.PROFILE LIST"));
    assert_eq!(world.keyspace.clock().now(), START);
    // It is no key, and no database has it for itself.
    client.cmd("FLUSHALL");
    client.cmd("SELECT 3");
    assert!(*client.cmd("CHAIN.PROFILE GET q:").field("pwindow") == 5_000 && client.cmd("DBSIZE") == 0);
}
