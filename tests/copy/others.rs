//! valkey-bloom, payloads of later versions, and servers that refuse.

use super::fake::fake;
use super::support::{Server, wait_until};
use super::{all_seen, assert_same, copy, copy_all, copy_fails, printed, url};
use seendb::codec::payload;

fn bulk(bytes: &[u8]) -> Vec<u8> {
    [format!("${}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
}

fn array(elements: &[Vec<u8>]) -> Vec<u8> {
    [format!("*{}\r\n", elements.len()).into_bytes(), elements.concat()].concat()
}

/// What every source says: that it is there, and the names of its keys, all at once.
fn common(words: &[Vec<u8>], kind: &str, keys: &[&str]) -> Option<Vec<u8>> {
    let names: Vec<_> = keys.iter().map(|key| bulk(key.as_bytes())).collect();
    Some(match words[0].as_slice() {
        b"PING" => b"+PONG\r\n".to_vec(),
        b"DBSIZE" => format!(":{}\r\n", keys.len()).into_bytes(),
        b"SCAN" if words.contains(&kind.as_bytes().to_vec()) => array(&[bulk(b"0"), array(&names)]),
        b"SCAN" => array(&[bulk(b"0"), array(&[])]),
        _ => return None,
    })
}

/// As valkey-bloom 1.0 answers: two filters, one of which does not grow.
fn valkey(words: &[Vec<u8>]) -> Vec<u8> {
    if let Some(reply) = common(words, "bloomfltr", &["grows", "fixed"]) {
        return reply;
    }
    let number = |number: i64| format!(":{number}\r\n").into_bytes();
    match words[0].as_slice() {
        b"BF.EXISTS" => number(0),
        b"PEXPIRETIME" if words[1] == b"fixed" => number(4_000_000_000_123),
        b"PEXPIRETIME" if words[1] == b"grows" => number(-1),
        b"PEXPIRETIME" => number(-2),
        b"BF.INFO" => {
            let grows = words[1] == b"grows";
            let expansion = if grows { number(4) } else { b"$-1\r\n".to_vec() };
            let mut fields = vec![
                (&b"Capacity"[..], number(500)),
                (b"Size", number(1200)),
                (b"Number of filters", number(1)),
                (b"Number of items inserted", number(77)),
                (b"Error rate", bulk(b"0.001")),
                (b"Expansion rate", expansion),
            ];
            if grows {
                fields.extend([(&b"Tightening ratio"[..], bulk(b"0.6")), (b"Max scaled capacity", number(26_214_300))]);
            }
            array(&fields.into_iter().flat_map(|(name, value)| [bulk(name), value]).collect::<Vec<_>>())
        }
        name => format!("-ERR unknown command '{}'\r\n", String::from_utf8_lossy(name)).into_bytes(),
    }
}

#[test]
fn c135_bits_of_valkey_bloom_are_not_moved_and_that_is_said() {
    let to = Server::start();
    let text = copy_fails(&url(fake(valkey)), &url(to.port()), &[]);
    assert!(text.contains("filters copied: 0, ") && text.contains("failed: 2\n"), "{text}");
    assert!(
        text.contains("hashes in another way, so its bits cannot be moved; --empty makes an empty filter"),
        "{text}"
    );
    assert_eq!(to.client().cmd("DBSIZE"), 0);
}

#[test]
fn c135_empty_filters_of_valkey_bloom_have_its_settings() {
    for to in [Server::start(), Server::peer()] {
        let mut client = to.client();
        let from = fake(valkey);
        let text = copy_all(&url(from), &url(to.port()), &["--empty"]);
        assert!(text.starts_with("empty filters made: 2 in "), "{text}");
        assert!(text.contains("another tightening ratio than 0.5, which is fixed at the target: 1\n"), "{text}");
        client.cmd("BF.RESERVE model 0.001 500 EXPANSION 4");
        assert_eq!(client.cmd("BF.INFO grows"), client.cmd("BF.INFO model"));
        client.cmd("DEL model");
        client.cmd("BF.RESERVE model 0.001 500 NONSCALING");
        assert_eq!(client.cmd("BF.INFO fixed"), client.cmd("BF.INFO model"));
        assert_eq!(client.cmd("PEXPIRETIME fixed"), 4_000_000_000_123);
        assert_eq!(client.cmd("PEXPIRETIME grows"), -1);
        // A second run replaces nothing.
        client.cmd("BF.ADD grows item");
        let text = copy_fails(&url(from), &url(to.port()), &["--empty"]);
        assert!(text.contains("failed: 2\n") && client.cmd("BF.EXISTS grows item") == 1, "{text}");
    }
}

#[test]
fn filters_that_can_be_moved_whole_are_not_emptied() {
    let (from, to) = (Server::start(), Server::start());
    let text = copy_fails(&url(from.port()), &url(to.port()), &["--empty"]);
    assert!(text.contains("--empty is for valkey-bloom"), "{text}");
}

/// A later Redis writes a version that an older one refuses, around the same value.
#[test]
fn payloads_of_later_versions_reach_an_older_redis() {
    let (made, to) = (Server::peer(), Server::peer());
    let mut client = made.client();
    client.cmd("BF.RESERVE k 0.01 4");
    (0..30).for_each(|i| drop(client.cmd(&format!("BF.ADD k {i}"))));
    let dump = client.cmd("DUMP k").bulk().to_vec();
    for version in [12, 80] {
        let later = payload::with_version(&dump, version).unwrap();
        assert!(to.client().call(&[b"RESTORE", &b"k"[..], b"0", &later]).error().contains("version"));
        let from = fake(move |words| {
            if let Some(reply) = common(words, "MBbloom--", &["k"]) {
                return reply;
            }
            match words[0].as_slice() {
                b"BF.SCANDUMP" => b"-ERR not found\r\n".to_vec(),
                b"CHAIN.SCANDUMP" | b"CBF.SCANDUMP" | b"DLCBF.SCANDUMP" => b"-ERR unknown command\r\n".to_vec(),
                b"PEXPIRETIME" => b":-1\r\n".to_vec(),
                b"BF.INFO" => array(&[bulk(b"Size"), b":300\r\n".to_vec()]),
                b"DUMP" => bulk(&later),
                other => panic!("{}", String::from_utf8_lossy(other)),
            }
        });
        copy_all(&url(from), &url(to.port()), &[]);
        assert_same(&all_seen(&mut client), &all_seen(&mut to.client()));
        to.client().cmd("FLUSHALL");
    }
}

#[test]
fn refusals_say_what_to_do() {
    let from = Server::start();
    let mut client = from.client();
    client.cmd("BF.RESERVE k 0.01 3000000");
    client.cmd("BF.ADD k item");
    let source = url(from.port());
    let plain = Server::redis(&[]);
    let locked = Server::with(&["--requirepass", "secret"]);
    let replica = Server::peer_with(&["--replicaof", "127.0.0.1 1"]);
    let full = Server::with(&["--maxmemory", "1mb"]);
    let text = |to: &str| copy_fails(&source, to, &[]);
    for (printed, expected) in [
        (text(&url(plain.port())), "the target has no BF commands: load RedisBloom or start SeenDB"),
        (text(&url(locked.port())), "NOAUTH Authentication required. (give a password:"),
        (text(&format!("redis://wrong@127.0.0.1:{}", locked.port())), "(look at user and password"),
        (text(&format!("{}/99", url(locked.port()))), "NOAUTH"),
        (text(&format!("{}/99", url(full.port()))), "(the number after the / must be a database"),
        (text(&url(replica.port())), "It is a read-only replica: copy to its master"),
        (text(&url(full.port())), "Its memory limit is reached: raise 'maxmemory' there, then go on"),
        (text(&source), "source and target are the same database"),
        (text("redis://127.0.0.1:1"), "target: cannot connect to 127.0.0.1:1/0"),
        (copy_fails(&url(plain.port()), &source, &[]), "the source has no BF commands"),
        (text(&url(fake(valkey))), "the target is valkey-bloom"),
        (copy_fails("localhost", &source, &[]), "an address has the form redis://"),
        (text(&url(fake(|_| b"HTTP/1.1 400\r\n".to_vec()))), "does not speak RESP2"),
    ] {
        assert!(printed.contains(expected), "{expected:?} in:\n{printed}");
    }
}

#[test]
fn at_the_memory_limit_the_file_remains() {
    let (from, to) = (Server::start(), Server::with(&["--maxmemory", "20mb"]));
    let mut client = from.client();
    for key in 0..400 {
        client.cmd(&format!("BF.RESERVE k{key} 0.01 100000"));
        client.cmd(&format!("BF.ADD k{key} item"));
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("progress");
    let resume = ["--resume", file.to_str().unwrap()];
    let text = copy_fails(&url(from.port()), &url(to.port()), &resume);
    assert!(text.contains("OOM") && text.contains("The same command goes on from here."), "{text}");
    let mut target = to.client();
    let there = target.cmd("DBSIZE").int();
    assert!((1..400).contains(&there), "{there}");
    target.cmd("CONFIG SET maxmemory 0");
    let text = copy_all(&url(from.port()), &url(to.port()), &resume);
    assert!(text.contains(&format!("copied by an earlier run: {there}\n")), "{text}");
    wait_until("all keys", || to.client().cmd("DBSIZE") == 400);
    assert_same(&all_seen(&mut client), &all_seen(&mut target));
}

#[test]
fn the_tool_is_known_to_the_help() {
    let output = copy("--help", "", &[]);
    let text = printed(&output);
    assert!(output.status.success() && text.contains("Usage: seendb copy [OPTIONS] <FROM> <TO>"), "{text}");
    for word in
        ["--match", "--families", "--resume", "--replace", "--cluster", "--empty", "--progress", "--pieces-from"]
    {
        assert!(text.contains(word), "{word}");
        assert!(include_str!("../../docs/migration.md").contains(&format!("| `{word}")), "{word} is not in the manual");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 110), "{text}");
}
