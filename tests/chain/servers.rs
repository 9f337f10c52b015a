//! Rings of a server: over connections, and what of them outlasts a restart.

use std::process::Command;

use crate::lasting::Place;
use crate::support::chunks::{Chunk, chunks, load};
use crate::support::{Client, Server, Value, wait_until};
use crate::world::{with_items, yes};

/// Rings of all kinds, small and large.
fn fill(client: &mut Client) -> Vec<String> {
    let mut keys = Vec::new();
    for (n, options) in [
        "",
        "DUAL",
        "WINDOW 1000000",
        "WINDOW 1000000 BOUNDED",
        "KEYED LINKERROR",
        "IDLE 1000000",
        "WINDOW 1000000 CLOCK EVENT",
    ]
    .into_iter()
    .enumerate()
    {
        for items in [0, 3, 300, 30_000] {
            let key = format!("k{n}:{items}");
            assert!(client.cmd(&format!("CHAIN.RESERVE {key} 0.0001 {} {options}", (items / 2).max(200))) == "OK");
            let at = if options.contains("EVENT") { "AT 5000" } else { "" };
            if items > 0 {
                client.call(&with_items(&format!("CHAIN.INSERT {key} {at} ITEMS"), 0..items));
            }
            keys.push(key);
        }
    }
    client.cmd("CHAIN.EXTEND k0:300 LINKS 9");
    client.cmd("CHAIN.SHRINK k2:300 LINKS 3");
    client.cmd("CHAIN.ROTATE k1:300");
    client.cmd("CHAIN.CLEAR k0:3");
    assert!(client.cmd("CHAIN.MERGE merged k3:300") == "OK" && client.cmd("CHAIN.MERGE large k0:30000") == "OK");
    keys.extend(["merged".into(), "large".into()]);
    client.cmd("CHAIN.PROFILE SET p: LINKS 9 IDLE 100");
    client.cmd("CHAIN.PROFILE SET q: KEYED WINDOW 60");
    client.cmd("CHAIN.PROFILE SET gone: DUAL");
    client.cmd("CHAIN.PROFILE DEL gone:");
    client.cmd("CHAIN.PROFILE SET p: LINKS 8 IDLE 100");
    keys
}

type Seen = (Vec<Vec<Chunk>>, Vec<Value>, Value);

/// The bytes of all rings, their lives, and the profiles.
fn seen(client: &mut Client, keys: &[String]) -> Seen {
    let bytes = keys.iter().map(|key| chunks(client, key)).collect();
    let lives = keys.iter().map(|key| client.cmd(&format!("PEXPIRETIME {key}"))).collect();
    (bytes, lives, client.cmd("CHAIN.PROFILE LIST"))
}

fn assert_equal(before: &Seen, after: &Seen, keys: &[String]) {
    for (index, key) in keys.iter().enumerate() {
        assert!(
            before.0[index] == after.0[index],
            "{key}: {} and {} chunks",
            before.0[index].len(),
            after.0[index].len()
        );
        assert_eq!(before.1[index], after.1[index], "{key}");
    }
    assert_eq!(before.2, after.2);
}

#[test]
fn all_outlasts_a_restart() {
    // By a snapshot; by the log; by a log with a base; and over a crash.
    for (args, rewrite, crash) in [
        (&["--save", "3600 1"][..], false, false),
        (&["--appendonly", "yes"], false, false),
        (&["--appendonly", "yes"], true, false),
        (&["--appendonly", "yes", "--appendfsync", "always"], false, true),
    ] {
        let place = Place::new(args);
        let server = place.start();
        let mut client = server.client();
        let keys = fill(&mut client);
        if rewrite {
            client.cmd("BGREWRITEAOF");
            wait_until("the rewrite", || client.cmd("INFO persistence").text().contains("aof_rewrite_in_progress:0"));
            client.cmd("CHAIN.ADD k0:300 after");
            client.cmd("CHAIN.PROFILE SET r: DUAL");
        }
        let before = seen(&mut client, &keys);
        drop(client);
        if crash {
            server.kill()
        } else {
            assert!(server.end().success())
        }
        let server = place.start();
        let mut client = server.client();
        assert_equal(&before, &seen(&mut client, &keys), &keys);
        client.cmd("CHAIN.ADD p:1 a");
        assert!(*client.cmd("CHAIN.INFO p:1").field("Number of links") == 8 && client.cmd("TTL p:1") == 100);
        assert!(client.cmd("CHAIN.ADD k0:30000 item:29999") == 0 && client.cmd("CHAIN.ADD k0:30000 new") == 1);
    }
}

/// A load that a restart interrupts begins again with the first chunk.
#[test]
fn a_restart_in_the_middle_of_a_load() {
    for args in [&["--save", "3600 1"][..], &["--appendonly", "yes"]] {
        let place = Place::new(args);
        let server = place.start();
        let mut client = server.client();
        client.cmd("CHAIN.RESERVE from 0.000000000001 120000 LINKS 3");
        client.call(&with_items("CHAIN.MADD from", 0..150_000));
        let chunks_of_it = chunks(&mut client, "from");
        for chunk in &chunks_of_it[..2] {
            assert!(load(&mut client, "k", chunk) == "OK");
        }
        client.cmd("EXPIRE k 1000");
        drop(client);
        assert!(server.end().success());
        let server = place.start();
        let mut client = server.client();
        assert!(client.cmd("CHAIN.INFO k").error().starts_with("ERR filter is being loaded: 0 of "));
        assert!(client.cmd("TTL k").int() > 900 && client.cmd("TYPE k") == "seenCHAIN");
        let text = load(&mut client, "k", &chunks_of_it[2]).error().to_string();
        assert_eq!(text, format!("ERR invalid offset, {} expected", chunks_of_it[1].0));
        for chunk in &chunks_of_it[1..] {
            assert!(load(&mut client, "k", chunk) == "OK");
        }
        assert_eq!(chunks(&mut client, "k"), chunks_of_it);
        assert!(client.cmd("TTL k").int() > 900);
    }
}

/// `check` and `log cat` know rings.
#[test]
fn the_tools_read_files_with_rings() {
    let place = Place::new(&["--appendonly", "yes", "--save", ""]);
    let server = place.start();
    let mut client = server.client();
    let keys = fill(&mut client);
    client.cmd("SAVE");
    drop(client);
    assert!(server.end().success());
    let run = |words: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_seendb"))
            .args(words)
            .current_dir(place.dir())
            .output()
            .expect("the program");
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {text}");
        text
    };
    for file in ["dump.rdb", "appendonlydir"] {
        let text = run(&["check", file]);
        assert!(!text.contains("damage"), "{text}");
    }
    let log = run(&["log", "cat", "appendonlydir"]);
    for key in &keys {
        assert!(log.contains(key.as_str()), "{key}");
    }
    for words in
        ["CHAIN.RESERVE k0:0 0.0001 200 LINKS 5", "AT 5000 ITEMS item:0", "CHAIN.PROFILE DEL gone:", "CHAIN.CLEAR k0:3"]
    {
        assert!(log.contains(words), "{words}");
    }
}

/// `import --into` takes rings to another server.
#[test]
fn rings_are_imported() {
    let place = Place::new(&["--save", "3600 1"]);
    let server = place.start();
    let mut client = server.client();
    let keys = fill(&mut client);
    let before = seen(&mut client, &keys);
    client.cmd("SAVE");
    let target = Server::start();
    let output = Command::new(env!("CARGO_BIN_EXE_seendb"))
        .args(["import", "--into", &format!("redis://127.0.0.1:{}", target.port()), "dump.rdb"])
        .current_dir(place.dir())
        .output()
        .expect("the program");
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    let mut client = target.client();
    for (key, bytes) in keys.iter().zip(&before.0) {
        assert!(chunks(&mut client, key) == *bytes, "{key}: {text}");
    }
}

/// Over connections, as clients are.
#[test]
fn four_clients_never_get_the_same_item() {
    const ITEMS: usize = 5_000;
    let server = Server::with(&["--threads", "2"]);
    server.client().cmd("CHAIN.RESERVE k 0.000000001 100000");
    let mut given: Vec<Vec<u8>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let server = &server;
                scope.spawn(move || {
                    let mut client = server.client();
                    let mut given = Vec::new();
                    for from in (0..ITEMS - 100).step_by(20) {
                        let reply = client.call(&with_items("CHAIN.UNSEENADD k COUNT 5 ITEMS", from..from + 100));
                        given.extend(reply.array().iter().map(|item| item.bulk().to_vec()));
                    }
                    given
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("a client")).collect()
    });
    let count = given.len();
    given.sort();
    given.dedup();
    assert!(given.len() == count && count > 4_000, "{count} given out, {} different", given.len());
    assert!(server.client().cmd("CHAIN.CARD k") == count as i64);
    // And of four that add the same items each is new to one.
    let news: usize = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..4).map(|_| scope.spawn(|| yes(&server.client().call(&with_items("CHAIN.MADD j", 0..300))))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a client")).sum()
    });
    assert!((295..=300).contains(&news), "{news}: but for false hits");
}
