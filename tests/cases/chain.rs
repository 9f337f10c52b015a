//! Rings that forget the oldest.

use crate::support::{Server, Value};
use crate::world::{START, World, with_items, yes};

/// The manual's page on rings.
const MANUAL: &str = include_str!("../../docs/chain.md");

#[track_caller]
fn manual_says(words: &str) {
    let flat = MANUAL.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
    assert!(flat.contains(words), "docs/chain.md does not say {words:?}");
}

#[test]
fn c060_dump_command_of_another_family() {
    const WRONG: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
    let server = Server::start();
    let mut client = server.client();
    client.cmd("BF.ADD bloom a");
    client.cmd("CHAIN.ADD ring a");
    let (bloom, ring) = (client.cmd("DUMP bloom"), client.cmd("DUMP ring"));
    let of_ring = client.cmd("CHAIN.SCANDUMP ring 0");
    let cursor = of_ring.array()[0].int().to_string();
    assert_eq!(client.cmd("BF.SCANDUMP ring 0").error(), WRONG);
    assert_eq!(client.cmd("CHAIN.SCANDUMP bloom 0").error(), WRONG);
    assert_eq!(client.cmd("BF.LOADCHUNK ring 1 x").error(), WRONG);
    let header = of_ring.array()[1].bulk();
    assert_eq!(client.call(&[b"CHAIN.LOADCHUNK", &b"bloom"[..], cursor.as_bytes(), header]).error(), WRONG);
    // The header of another family makes no key.
    let of_bloom = client.cmd("BF.SCANDUMP bloom 0").array()[1].bulk().to_vec();
    assert!(client.call(&[&b"CHAIN.LOADCHUNK"[..], b"k", b"1", &of_bloom]).error().starts_with("ERR "));
    assert!(client.call(&[&b"BF.LOADCHUNK"[..], b"k", b"1", header]).error().starts_with("ERR "));
    assert!(client.cmd("EXISTS k") == 0);
    assert_eq!((client.cmd("DUMP bloom"), client.cmd("DUMP ring")), (bloom, ring), "the keys are untouched");
    manual_says("Each family has its own dump");
}

#[test]
fn c094_a_filter_for_each_user() {
    // The whole case has 1,000,000 keys: SEENDB_C094_KEYS=1000000.
    let keys: usize = std::env::var("SEENDB_C094_KEYS").ok().and_then(|text| text.parse().ok()).unwrap_or(100_000);
    let server = Server::start();
    let mut client = server.client();
    let used = |client: &mut crate::support::Client| {
        let text = client.cmd("INFO memory").text();
        let value = text.lines().find_map(|line| line.strip_prefix("used_memory:"));
        value.and_then(|value| value.parse::<u64>().ok()).expect("a number")
    };
    let before = used(&mut client);
    for from in (0..keys).step_by(500) {
        let mut request = Vec::new();
        for user in from..from + 500 {
            let key = format!("user:{user}");
            request.extend(crate::support::encode(&["CHAIN.RESERVE", &key, "0.01", "50", "LINKS", "4"]));
            let mut add = vec!["CHAIN.MADD".to_string(), key];
            add.extend((0..20).map(|n| format!("seen:{}", user * 31 + n)));
            request.extend(crate::support::encode(&add));
        }
        client.send(&request);
        for _ in 0..500 {
            assert!(client.read() == "OK");
            assert_eq!(client.read().array().len(), 20);
        }
    }
    let bytes = (used(&mut client) - before) as f64 / keys as f64;
    println!("c094: {bytes:.1} bytes a key");
    assert!(bytes <= 260.0, "{bytes:.1} bytes a key");
}

/// Both lives are measured: for items of every moment of a slice.
#[test]
fn c116_how_long_an_item_lives() {
    const ARRAYS: u64 = 4;
    const W: u64 = 500;
    manual_says("at least (n - 1) x w, and less than n x w");
    let world = World::new();
    let mut client = world.client();
    assert!(client.cmd("CHAIN.RESERVE k 0.000001 1000 PWINDOW 1500 LINKS 4") == "OK");
    let (mut shortest, mut longest) = (u64::MAX, 0);
    for offset in 0..W {
        let written = START + offset * 10 * W + offset;
        let item = format!("item:{offset}");
        world.keyspace.clock().set(written);
        assert!(client.cmd(&format!("CHAIN.ADD k {item}")) == 1);
        // The last moment at which it is known, by halving.
        let (mut known, mut forgotten) = (written, written + 9 * W);
        while forgotten - known > 1 {
            let middle = known.midpoint(forgotten);
            world.keyspace.clock().set(middle);
            match client.cmd(&format!("CHAIN.EXISTS k {item}")).truth() {
                true => known = middle,
                false => forgotten = middle,
            }
        }
        (shortest, longest) = (shortest.min(known - written), longest.max(known - written));
    }
    assert_eq!((shortest, longest), ((ARRAYS - 1) * W, ARRAYS * W - 1));
}

/// For 100,000 keys at once, on which no timer runs: the work is done by those who ask.
#[test]
fn c119_items_that_expire() {
    const KEYS: usize = 100_000;
    let world = World::new();
    let mut client = world.client();
    let (links, w) = (5, 10_000);
    for key in 0..KEYS {
        let line = format!("CHAIN.INSERT k{key} CAPACITY 100 WINDOW 40 LINKS {links} ITEMS a");
        assert!(yes(&client.cmd(&line)) == 1);
    }
    let lives = world.keyspace.lives(0);
    let records = world.records();
    let known = |client: &mut crate::world::Client| {
        (0..KEYS).filter(|key| client.cmd(&format!("CHAIN.EXISTS k{key} a")).truth()).count()
    };
    world.keyspace.clock().set(START + (links - 1) * w - 1);
    assert_eq!(known(&mut client), KEYS);
    world.keyspace.clock().set(START + links * w + 1);
    assert_eq!(known(&mut client), 0);
    // Nothing was done to the keys meanwhile.
    assert_eq!((world.records(), world.keyspace.lives(0), lives), (records, 0, 0));
    // Keys that are written to at the same moment turn then, each with its own write.
    let bytes = world.keyspace.entry_bytes();
    for key in 0..KEYS {
        assert!(client.cmd(&format!("CHAIN.ADD k{key} b")) == 1);
    }
    assert!(world.keyspace.entry_bytes() <= bytes, "the old slice went when the new one came");
}

#[test]
fn c121_no_gap_at_a_reset() {
    for options in ["PWINDOW 10000 LINKS 3", "PWINDOW 10000 LINKS 3 CLOCK EVENT"] {
        let world = World::new();
        let mut client = world.client();
        client.cmd(&format!("CHAIN.RESERVE k 0.000001 100 {options}"));
        for n in 0..600_usize {
            let now = START + n as u64 * 100;
            world.keyspace.clock().set(now);
            let at = if options.contains("EVENT") { format!(" AT {now}") } else { String::new() };
            assert!(client.cmd(&format!("CHAIN.ADD k item:{n}{at}")) == 1);
            let young = n.saturating_sub(100)..n + 1;
            assert_eq!(yes(&client.call(&with_items("CHAIN.MEXISTS k", young.clone()))), young.len(), "{n}");
            assert_eq!(client.call(&with_items("CHAIN.UNSEEN k", young)), Value::Array(vec![]));
        }
    }
}
