//! Dumps in chunks, payloads, copies.

use seendb::codec::counting_export::ExportedCounting;

use crate::support::Value;
use crate::world::{Client, World, with_items, yes};
use crate::{FAMILIES, numbers};

/// What a dump in chunks gives: each chunk with its cursor.
#[track_caller]
pub fn chunks(client: &mut Client, family: &str, key: &str) -> Vec<(i64, Vec<u8>)> {
    let (mut cursor, mut chunks) = (0, Vec::new());
    loop {
        let reply = client.cmd(&format!("{family}.SCANDUMP {key} {cursor}"));
        cursor = reply.array()[0].int();
        let data = reply.array()[1].bulk().to_vec();
        if cursor == 0 {
            assert!(data.is_empty());
            return chunks;
        }
        chunks.push((cursor, data));
    }
}

/// Gives a key one of them.
#[track_caller]
fn load(client: &mut Client, family: &str, key: &str, (cursor, data): &(i64, Vec<u8>)) -> Value {
    let (verb, cursor) = (format!("{family}.LOADCHUNK"), cursor.to_string());
    client.call(&[verb.as_bytes(), key.as_bytes(), cursor.as_bytes(), data])
}

/// Of each family filters of all sizes and options, filled.
fn filters() -> Vec<(&'static str, String, usize)> {
    let options = [
        ("CBF", ""),
        ("CBF", "COUNTERBITS 8 STRICT KEYED"),
        ("DLCBF", ""),
        ("DLCBF", "EXPANSION 2 KEYED"),
        ("DLCBF", "OVERFLOW SPILL COUNTERBITS 4"),
    ];
    let sizes = [(100, 0), (100, 70), (1_000, 1_000), (400_000, 400_000)];
    let all = options.iter().flat_map(|(family, options)| {
        sizes.iter().map(move |(capacity, items)| (*family, format!("0.0001 {capacity} {options}"), *items))
    });
    all.collect()
}

fn made(client: &mut Client, (family, reserve, items): &(&str, String, usize), key: &str) {
    assert!(client.cmd(&format!("{family}.RESERVE {key} {reserve}")) == "OK");
    if *items > 0 {
        client.call(&with_items(&format!("{family}.MADD {key}"), 0..*items));
        client.call(&with_items(&format!("{family}.MADD {key}"), 0..10));
    }
}

#[test]
fn dumps_make_the_same_filter() {
    for filter in filters() {
        let (family, _, items) = &filter;
        let world = World::new();
        let mut client = world.client();
        made(&mut client, &filter, "k");
        let dump = chunks(&mut client, family, "k");
        assert!(dump.len() > 2 || *items < 10_000, "{filter:?}");
        assert!(dump.iter().all(|(_, data)| data.len() <= 1 << 20));
        for (n, chunk) in dump.iter().enumerate() {
            // A chunk that was taken is taken again without effect.
            for _ in 0..2 {
                assert!(load(&mut client, family, "j", chunk) == "OK" || n == 0, "{filter:?}");
            }
            if n + 1 < dump.len() {
                for line in ["EXISTS j a", "ADD j a", "DEL j a", "INFO j", "SCANDUMP j 0", "RESERVE j 0.1 10"] {
                    let text = client.cmd(&format!("{family}.{line}")).error().to_owned();
                    assert!(text.starts_with("ERR filter is being loaded: "), "{line}: {text}");
                }
            }
        }
        assert_eq!(chunks(&mut client, family, "j"), dump, "{filter:?}");
        assert_eq!(client.cmd(&format!("{family}.CARD j")), client.cmd(&format!("{family}.CARD k")));
        if *items > 0 {
            assert_eq!(yes(&client.call(&with_items(&format!("{family}.MEXISTS j"), 0..*items))), *items);
            assert_eq!(yes(&client.call(&with_items(&format!("{family}.MDEL j"), 0..*items))), *items);
            assert!(client.cmd(&format!("{family}.CARD j")) == 10);
        }
        assert_eq!(load(&mut client, family, "j", &dump[0]).error(), "ERR item exists");
        let mut again = world.replayed().client();
        for key in ["k", "j"] {
            assert_eq!(chunks(&mut again, family, key), chunks(&mut client, family, key), "{filter:?}");
        }
    }
}

#[test]
fn what_is_not_taken() {
    for family in FAMILIES {
        let mut client = World::new().client();
        client.cmd(&format!("{family}.RESERVE k 0.00001 300000"));
        client.call(&with_items(&format!("{family}.MADD k"), 0..1_000));
        let dump = chunks(&mut client, family, "k");
        assert_eq!(load(&mut client, family, "j", &dump[1]).error(), "ERR not found");
        let mut damaged = dump[0].clone();
        damaged.1[40] ^= 1;
        assert_eq!(load(&mut client, family, "j", &damaged).error(), "ERR received bad data");
        assert!(client.cmd("EXISTS j") == 0);
        assert!(load(&mut client, family, "j", &dump[0]) == "OK");
        let text = load(&mut client, family, "j", dump.last().expect("the last")).error().to_owned();
        assert_eq!(text, format!("ERR invalid offset, {} expected", dump[1].0));
        let mut damaged = dump[1].clone();
        damaged.1[100] ^= 1;
        assert_eq!(load(&mut client, family, "j", &damaged).error(), "ERR received bad data");
        assert!(load(&mut client, family, "j", &dump[1]) == "OK");
        // What works on a filter that is being loaded.
        assert!(client.cmd("EXPIRE j 100") == 1 && client.cmd("RENAME j i") == "OK" && client.cmd("DEL i") == 1);
        for line in ["SCANDUMP k x", "SCANDUMP k -1", "LOADCHUNK k -1 x"] {
            let text = client.refused(&format!("{family}.{line}"));
            let range = "ERR cursor must be in the range [0, 9223372036854775807]";
            assert!(text == "ERR bad cursor" || text == range, "{line}: {text}");
        }
        assert_eq!(client.refused(&format!("{family}.SCANDUMP missing 0")), "ERR not found");
        client.world.set("max-filter-memory", "100kb");
        assert!(load(&mut client, family, "j", &dump[0]).error().starts_with("ERR filter would take "));
        // The header of another family makes no key (C060).
        let other = if family == "CBF" { "DLCBF" } else { "CBF" };
        assert_eq!(load(&mut client, other, "j", &dump[0]).error(), "ERR received bad data");
    }
}

/// A change of shape ends a dump, and adds do not.
#[test]
fn dumps_under_writes() {
    let changed = "ERR filter changed shape during the dump, start again at 0";
    for (reserve, change) in [
        ("CBF.RESERVE k 0.0001 300000", "CBF.DECAY k"),
        ("CBF.RESERVE k 0.0001 300000", "CBF.MERGE k other"),
        ("DLCBF.RESERVE k 0.0001 100 EXPANSION 2", "grow"),
    ] {
        let family = reserve.split('.').next().expect("a word");
        let mut client = World::new().client();
        client.cmd(reserve);
        client.cmd(&reserve.replace(" k ", " other "));
        client.call(&with_items(&format!("{family}.MADD k"), 0..90));
        client.cmd(&format!("{family}.ADD other x"));
        let begun = client.cmd(&format!("{family}.SCANDUMP k 0")).array()[0].int();
        client.cmd(&format!("{family}.ADD k new"));
        assert!(!client.cmd(&format!("{family}.SCANDUMP k {begun}")).array().is_empty());
        match change {
            "grow" => drop(client.call(&with_items("DLCBF.MADD k", 100..190))),
            line => assert!(client.cmd(line) == "OK"),
        }
        assert_eq!(client.cmd(&format!("{family}.SCANDUMP k {begun}")).error(), changed, "{change}");
    }
}

#[test]
fn payloads_and_copies() {
    for filter in filters() {
        let (family, _, items) = &filter;
        let world = World::new();
        let mut client = world.client();
        made(&mut client, &filter, "k");
        let dump = chunks(&mut client, family, "k");
        let payload = client.cmd("DUMP k").bulk().to_vec();
        assert!(client.call(&[b"RESTORE", &b"restored"[..], b"5000", &payload]) == "OK", "{filter:?}");
        assert!(client.cmd("PTTL restored") == 5_000);
        assert!(client.cmd("COPY k copied") == 1 && client.cmd("RENAME k renamed") == "OK");
        for key in ["restored", "copied", "renamed"] {
            assert_eq!(chunks(&mut client, family, key), dump, "{filter:?} {key}");
        }
        // A copy is another filter from then on.
        let added = client.cmd(&format!("{family}.ADD copied item:1000000"));
        assert_eq!(chunks(&mut client, family, "renamed"), dump);
        if *items > 0 {
            // A strict filter that is full has refused it.
            let there = i64::from(!matches!(added, Value::Error(_)));
            let deleted = numbers(&client.cmd(&format!("{family}.MDEL copied item:0 item:0 item:1000000")));
            assert_eq!(deleted, [1, 1, there]);
        }
        let mut damaged = payload.clone();
        damaged[payload.len() / 2] ^= 4;
        assert!(client.call(&[b"RESTORE", &b"j"[..], b"0", &damaged]).error().starts_with("ERR DUMP payload"));
        let mut again = world.replayed().client();
        for key in ["restored", "copied", "renamed"] {
            assert_eq!(chunks(&mut again, family, key), chunks(&mut client, family, key));
        }
    }
}

/// Exports answer as the filter does, with versions.
#[test]
fn exports() {
    for (protocol, null) in [(2, "$-1\r\n"), (3, "_\r\n")] {
        for (capacity, options) in
            [(1_000, ""), (1_000, "COUNTERBITS 8"), (1_000_000, "SEED 000102030405060708090a0b0c0d0e0f")]
        {
            let mut client = World::new().client();
            client.cmd(&format!("HELLO {protocol}"));
            assert_eq!(client.bytes("CBF.EXPORT missing NEWER 0"), null);
            let empty = client.cmd("CBF.EXPORT missing").bulk().to_vec();
            let empty = ExportedCounting::read(&empty).expect("an export");
            assert!(empty.version() == 0 && empty.capacity() == 1024 && !empty.contains(b"item:0"));
            client.cmd(&format!("CBF.RESERVE k 0.001 {capacity} {options}"));
            client.call(&with_items("CBF.MADD k", 0..1_000));
            client.call(&with_items("CBF.MDEL k", 0..500));
            let version = client.cmd("CBF.STATS k").field("version").int();
            let bytes = client.cmd("CBF.EXPORT k").bulk().to_vec();
            let exported = ExportedCounting::read(&bytes).expect("an export");
            assert!(exported.version() == version as u64 && exported.items() == 500);
            for (n, found) in client.call(&with_items("CBF.MEXISTS k", 0..20_000)).array().iter().enumerate() {
                assert_eq!(exported.contains(format!("item:{n}").as_bytes()), found.truth(), "item {n}");
            }
            assert_eq!(client.bytes(&format!("CBF.EXPORT k NEWER {version}")), null);
            assert_eq!(client.cmd(&format!("cbf.export k newer {}", version - 1)).bulk(), bytes);
            client.cmd("CBF.DEL k item:700");
            assert!(!client.cmd(&format!("CBF.EXPORT k NEWER {version}")).bulk().is_empty());
        }
    }
    let mut client = World::new().client();
    for (words, text) in [
        ("NEWER", "ERR no newer"),
        ("NEWER x", "ERR bad version"),
        ("NEWER -1", "ERR version must be in the range [0, 9223372036854775807]"),
        ("NEWER 1 NEWER 1", "ERR syntax error, 'NEWER' given twice"),
        ("OLDER 1", "ERR syntax error, unexpected 'OLDER'"),
    ] {
        assert_eq!(client.refused(&format!("CBF.EXPORT k {words}")), text);
    }
    // A long one has its key alone.
    let mut other = client.world.client();
    client.cmd("CBF.RESERVE large 0.01 5000000");
    client.cmd("CBF.ADD large x");
    let bytes = client.interrupted(&["CBF.EXPORT", "large"], || assert!(other.waits("CBF.ADD large y")));
    assert!(ExportedCounting::read(bytes.bulk()).expect("an export").contains(b"x"));
}
