//! `CHAIN.SCANDUMP`, `CHAIN.LOADCHUNK`, `CHAIN.EXPORT`, and keys of which chunks are missing.

use seendb::codec::ring_export::ExportedRing;

use crate::support::Value;
use crate::world::{Client, World, with_items, yes};

/// A ring of several chunks.
fn large(client: &mut Client, key: &str) -> Vec<(i64, Vec<u8>)> {
    client.cmd(&format!("CHAIN.RESERVE {key} 0.000000000001 120000 LINKS 3"));
    client.call(&with_items(&format!("CHAIN.MADD {key}"), 0..150_000));
    let chunks = client.chunks(key);
    assert!(chunks.len() >= 3, "{}", chunks.len());
    chunks
}

#[test]
fn what_was_dumped_is_loaded() {
    let world = World::new();
    let mut client = world.client();
    for (n, (options, at)) in [
        ("", ""),
        ("LINKERROR IDLE 9", ""),
        ("DUAL", ""),
        ("WINDOW 60", ""),
        ("WINDOW 60 BOUNDED KEYED", ""),
        ("WINDOW 60 CLOCK EVENT", "AT 5000"),
        ("SEED 000102030405060708090a0b0c0d0e0f", ""),
    ]
    .into_iter()
    .enumerate()
    {
        for items in [0, 3, 777] {
            let (from, to) = (format!("from{n}:{items}"), format!("to{n}:{items}"));
            client.cmd(&format!("CHAIN.RESERVE {from} 0.001 400 EX 100 {options}"));
            if items > 0 {
                client.call(&with_items(&format!("CHAIN.INSERT {from} {at} ITEMS"), 0..items));
            }
            let chunks = client.chunks(&from);
            for chunk in &chunks {
                assert!(client.load(&to, chunk) == "OK", "{options}");
            }
            assert_eq!(client.chunks(&to), chunks, "{options}: the version too");
            for field in ["Capacity", "Links in use", "Number of items inserted", "Next turn", "Guaranteed"] {
                let info =
                    |client: &mut Client, key: &str| client.cmd(&format!("CHAIN.INFO {key}")).field(field).clone();
                assert_eq!(info(&mut client, &to), info(&mut client, &from), "{options}: {field}");
            }
            assert_eq!(client.cmd(&format!("TTL {to}")), Value::Int(-1), "lives are not dumped");
            assert_eq!(world.replayed().client().chunks(&to), chunks, "{options}");
        }
    }
}

#[test]
fn chunks_have_their_order() {
    let world = World::new();
    let mut client = world.client();
    let chunks = large(&mut client, "from");
    assert_eq!(client.load("k", &chunks[1]).error(), "ERR not found", "only the header makes a key");
    let bad = client.load("k", &(chunks[0].0 + 1, chunks[0].1.clone()));
    assert_eq!(bad.error(), "ERR received bad data", "the cursor is of the same reply");
    assert_eq!(client.call(&["CHAIN.LOADCHUNK", "k", "1", "SEENDUMPx"]).error(), "ERR received bad data");
    assert!(client.load("k", &chunks[0]) == "OK" && client.load("k", &chunks[0]) == "OK");
    let expected = format!("ERR invalid offset, {} expected", chunks[1].0);
    assert_eq!(client.load("k", &chunks[2]).error(), expected);
    for damaged in [0, chunks[1].1.len() / 2, chunks[1].1.len() - 1] {
        let mut chunk = chunks[1].clone();
        chunk.1[damaged] ^= 1;
        assert_eq!(client.load("k", &chunk).error(), "ERR received bad data");
    }
    assert!(client.load("k", &chunks[1]) == "OK" && client.load("k", &chunks[1]) == "OK");
    assert_eq!(client.load("k", &(chunks[2].0, chunks[1].1.clone())).error(), "ERR received bad data");
    for chunk in &chunks[2..] {
        assert!(client.load("k", chunk) == "OK");
    }
    assert_eq!(client.chunks("k"), chunks);
    // The answer to the last one may have been lost.
    for chunk in &chunks[1..] {
        assert!(client.load("k", chunk) == "OK");
    }
    assert_eq!(client.chunks("k"), chunks);
    client.cmd("CHAIN.ADD k new");
    let last = chunks.last().expect("chunks");
    assert!(client.load("k", last) == "OK", "it is all there");
    // A header would begin a load, and what is not there would not be loaded.
    assert_eq!(client.load("k", &chunks[0]).error(), "ERR item exists");
    client.cmd("CHAIN.CLEAR k");
    assert_eq!(client.load("k", last).error(), "ERR item exists");
    client.cmd("DEL k");
    client.cmd("CHAIN.RESERVE k 0.000000000001 120000 LINKS 3");
    client.call(&with_items("CHAIN.MADD k", 900_000..1_050_000));
    assert_eq!(client.load("k", last).error(), "ERR item exists");
}

/// A load whose chunks have what was written during the dump: the last chunk once more has no effect there either.
#[test]
fn a_dump_under_writes() {
    let world = World::new();
    let mut client = world.client();
    client.cmd("CHAIN.RESERVE from 0.000000000001 120000 LINKS 3");
    client.call(&with_items("CHAIN.MADD from", 0..150_000));
    let (mut cursor, mut chunks) = (0, Vec::new());
    loop {
        let reply = client.cmd(&format!("CHAIN.SCANDUMP from {cursor}"));
        cursor = reply.array()[0].int();
        if cursor == 0 {
            break;
        }
        chunks.push((cursor, reply.array()[1].bulk().to_vec()));
        client.cmd(&format!("CHAIN.ADD from during:{}", chunks.len()));
    }
    for chunk in &chunks {
        assert!(client.load("k", chunk) == "OK");
    }
    assert_eq!(yes(&client.call(&with_items("CHAIN.MEXISTS k", 60_000..150_000))), 90_000);
    assert!(client.load("k", chunks.last().expect("chunks")) == "OK");
    assert!(
        client.cmd("CHAIN.STATS k").field("version").int() <= client.cmd("CHAIN.STATS from").field("version").int()
    );
}

#[test]
fn a_change_of_shape_ends_a_dump() {
    const CHANGED: &str = "ERR filter changed shape during the dump, start again at 0";
    let world = World::new();
    let mut client = world.client();
    for (options, line) in [
        ("", "CHAIN.ROTATE k"),
        ("", "CHAIN.CLEAR k"),
        ("", "CHAIN.EXTEND k LINKS 6"),
        ("", "CHAIN.SHRINK k LINKS 4"),
        ("", "CHAIN.MERGE k other"),
        ("DUAL", "CHAIN.ROTATE k"),
        ("WINDOW 60", "CHAIN.CLEAR k"),
        ("WINDOW 60", "CHAIN.SHRINK k LINKS 4"),
    ] {
        client.cmd("FLUSHALL");
        for key in ["k", "other"] {
            client.cmd(&format!("CHAIN.RESERVE {key} 0.0001 400 {options}"));
            client.call(&with_items(&format!("CHAIN.MADD {key}"), 0..390));
        }
        client.cmd("CHAIN.ADD other more");
        let cursor = client.cmd("CHAIN.SCANDUMP k 0").array()[0].int();
        client.cmd("CHAIN.EXISTS k a");
        assert!(matches!(client.cmd(&format!("CHAIN.SCANDUMP k {cursor}")), Value::Array(_)));
        assert!(client.cmd(line) == "OK");
        let reply = client.cmd(&format!("CHAIN.SCANDUMP k {cursor}"));
        assert_eq!(reply, Value::Error(CHANGED.into()), "{options} {line}");
    }
    // A turn by itself.
    client.cmd("CHAIN.RESERVE full 0.0001 400");
    client.call(&with_items("CHAIN.MADD full", 0..500));
    let cursor = client.cmd("CHAIN.SCANDUMP full 0").array()[0].int();
    client.cmd("CHAIN.ADD full one-more");
    assert_eq!(client.refused(&format!("CHAIN.SCANDUMP full {cursor}")), CHANGED);
    assert_eq!(client.refused("CHAIN.SCANDUMP full 12345"), CHANGED);
}

/// C060: every command of the family tells how far the load is; what concerns the key works.
#[test]
fn a_key_of_which_chunks_are_missing() {
    let world = World::new();
    let mut client = world.client();
    let chunks = large(&mut client, "from");
    let total: usize = client
        .cmd("CHAIN.STATS from")
        .field("links")
        .array()
        .iter()
        .map(|link| (link.field("bits").int() as usize).div_ceil(8))
        .sum();
    client.load("k", &chunks[0]);
    client.load("k", &chunks[1]);
    // Without its head, the numbers of items of three parts, and the checksum a chunk has bits.
    let text = format!("ERR filter is being loaded: {} of {total} bytes", chunks[1].1.len() - 16 - 3 * 8 - 8);
    for line in [
        "CHAIN.RESERVE k 0.01 100",
        "CHAIN.ADD k a",
        "CHAIN.MADD k a",
        "CHAIN.INSERT k ITEMS a",
        "CHAIN.INSERT k NOCREATE ITEMS a",
        "CHAIN.EXISTS k a",
        "CHAIN.MEXISTS k a",
        "CHAIN.UNSEEN k a",
        "CHAIN.UNSEENADD k ITEMS a",
        "CHAIN.CARD k",
        "CHAIN.EXTEND k LINKS 9",
        "CHAIN.SHRINK k LINKS 2",
        "CHAIN.ROTATE k",
        "CHAIN.CLEAR k",
        "CHAIN.MERGE k from",
        "CHAIN.MERGE new k",
        "CHAIN.MERGE new from k",
        "CHAIN.EXPORT k",
        "CHAIN.EXPORT k NEWER 1",
        "CHAIN.INFO k",
        "CHAIN.STATS k",
        "CHAIN.SCANDUMP k 0",
        "DUMP k",
    ] {
        assert_eq!(client.refused(line), text, "{line}");
    }
    assert!(client.refused("BF.ADD k a").starts_with("WRONGTYPE "));
    assert!(client.cmd("TYPE k") == "seenCHAIN" && client.cmd("EXISTS k") == 1);
    assert!(client.cmd("MEMORY USAGE k").int() > chunks[1].1.len() as i64 * 9 / 10);
    assert!(client.cmd("EXPIRE k 100") == 1 && client.cmd("TTL k") == 100);
    assert!(client.cmd("RENAME k renamed") == "OK");
    // The load goes on under the new name; a copy begins anew.
    assert!(client.cmd("COPY renamed copied") == 1);
    assert!(client.refused("CHAIN.INFO copied").starts_with(&format!("ERR filter is being loaded: 0 of {total}")));
    assert!(client.cmd("MOVE copied 3") == 1);
    let mut again = world.replayed().client();
    assert!(again.refused("CHAIN.INFO renamed").starts_with(&format!("ERR filter is being loaded: 0 of {total}")));
    for chunk in &chunks[2..] {
        assert!(client.load("renamed", chunk) == "OK");
    }
    assert!(client.chunks("renamed") == chunks && client.cmd("TTL renamed") == 100);
    let mut again = world.replayed().client();
    assert!(again.chunks("renamed") == chunks && again.cmd("TTL renamed") == 100);
    client.cmd("SELECT 3");
    for chunk in &chunks {
        assert!(client.load("copied", chunk) == "OK");
    }
    assert!(client.chunks("copied") == chunks);
    client.load("gone", &chunks[0]);
    assert!(client.cmd("DEL gone") == 1 && client.cmd("EXISTS gone") == 0);
    // A life that ends.
    client.load("ends", &chunks[0]);
    client.cmd("EXPIRE ends 1");
    world.pass(1_000);
    assert_eq!(client.load("ends", &chunks[1]).error(), "ERR not found");
}

/// The end of a large load is logged in steps, in which only its key waits.
#[test]
fn the_last_chunk_of_a_large_ring() {
    let world = World::new();
    let (mut client, mut other) = (world.client(), world.client());
    let chunks = large(&mut client, "from");
    let (last, before) = chunks.split_last().expect("chunks");
    for chunk in before {
        client.load("k", chunk);
    }
    let loaded = client.interrupted(&[b"CHAIN.LOADCHUNK", &b"k"[..], last.0.to_string().as_bytes(), &last.1], || {
        assert!(other.waits("CHAIN.EXISTS k a"));
        assert!(other.cmd("CHAIN.ADD elsewhere a") == 1 && other.cmd("EXISTS from") == 1);
    });
    assert!(loaded == "OK" && client.chunks("k") == chunks);
    assert_eq!(world.replayed().client().chunks("k"), chunks);
    // In a transaction.
    client.cmd("MULTI");
    for chunk in &chunks {
        client.load("t", chunk);
    }
    client.cmd("CHAIN.CARD t");
    let replies = client.cmd("EXEC");
    assert!(replies.array().last().is_some_and(|card| card.int() == 150_000), "{replies:?}");
}

#[test]
fn limits() {
    let world = World::new();
    let mut client = world.client();
    let chunks = large(&mut client, "from");
    let payload = client.cmd("DUMP from").bulk().to_vec();
    world.set("max-filter-memory", "1mb");
    let text = client.load("k", &chunks[0]).error().to_string();
    assert!(
        text.starts_with("ERR filter would take ") && text.ends_with(" bytes, 'max-filter-memory' is 1048576"),
        "{text}"
    );
    let text = client.call(&[b"RESTORE", &b"k"[..], b"0", &payload]).error().to_string();
    assert!(text.starts_with("ERR filter would take "), "{text}");
    assert!(client.cmd("EXISTS k") == 0);
    // The log loads all the same.
    assert_eq!(world.replayed().client().chunks("from"), chunks);
}

#[test]
fn exports() {
    let world = World::new();
    let mut client = world.client();
    client.cmd("CHAIN.RESERVE k 0.001 400 WINDOW 60");
    client.call(&with_items("CHAIN.MADD k", 0..300));
    let exported = client.cmd("CHAIN.EXPORT k");
    let version = client.cmd("CHAIN.STATS k").field("version").int();
    assert_eq!(client.cmd(&format!("chain.export k newer {}", version - 1)), exported);
    assert_eq!(client.cmd(&format!("CHAIN.EXPORT k NEWER {version}")), Value::Null);
    client.cmd("CHAIN.EXISTS k a");
    client.cmd("CHAIN.ADD k item:5");
    assert_eq!(client.cmd(&format!("CHAIN.EXPORT k NEWER {version}")), Value::Null, "nothing has changed");
    client.cmd("CHAIN.ADD k new");
    assert_ne!(client.cmd(&format!("CHAIN.EXPORT k NEWER {version}")), Value::Null);
    assert_eq!(ExportedRing::read(exported.bulk()).map(|vector| vector.version()), Ok(version as u64));
    let vector = ExportedRing::read(exported.bulk()).expect("a sound export");
    assert!((0..300).all(|n| vector.contains(format!("item:{n}").as_bytes())));
    assert!(!vector.contains(b"new"));
    // A missing key is one of the defaults that holds nothing, of version 0.
    let missing = client.cmd("CHAIN.EXPORT missing");
    assert!(!ExportedRing::read(missing.bulk()).expect("a sound export").contains(b"item:1"));
    assert_eq!(client.cmd("CHAIN.EXPORT missing NEWER 0"), Value::Null);
    assert_eq!(client.cmd("EXISTS missing"), Value::Int(0));
    // A key made anew is newer than all before.
    let version = client.cmd("CHAIN.STATS k").field("version").int();
    client.cmd("DEL k");
    client.cmd("CHAIN.ADD k a");
    assert_ne!(client.cmd(&format!("CHAIN.EXPORT k NEWER {version}")), Value::Null);
}

/// A large export is made in steps from the ring as it was; others go on with the key meanwhile, and may delete it.
#[test]
fn large_exports() {
    let world = World::new();
    let (mut client, mut other) = (world.client(), world.client());
    for meanwhile in [&["CHAIN.ADD k new", "CHAIN.ROTATE k"][..], &["CHAIN.CLEAR k", "CHAIN.ADD k new"], &["DEL k"]] {
        client.cmd("DEL k");
        large(&mut client, "k");
        for line in ["MULTI", "CHAIN.EXPORT k"] {
            client.cmd(line);
        }
        let at_once = client.cmd("EXEC").array()[0].clone();
        let exported = client.interrupted(&["CHAIN.EXPORT", "k"], || {
            for line in meanwhile {
                assert!(!other.waits(line) && !matches!(other.cmd(line), Value::Error(_)), "{line}");
            }
        });
        assert!(exported == at_once, "{meanwhile:?}");
        let ring = ExportedRing::read(exported.bulk()).expect("a sound export");
        assert!((100_000..150_000).all(|n| ring.contains(format!("item:{n}").as_bytes())));
    }
}
