//! Files of real servers: Debian's Redis with RedisBloom 2.8.2, and Valkey 9, filled with values of all their types.

use std::fs;

use super::file::{Content, loaded};
use super::support::{Client, Random, Server, Value};
use seendb::persist::snapshot::read::{Checksum, Report};

/// Values of all types that both know, in small and large encodings.
fn fill(client: &mut Client, random: &mut Random) -> u64 {
    let mut keys = 0;
    for db in [0, 3] {
        client.call(&["SELECT", &db.to_string()]);
        for (size, entries) in [("small", 3), ("large", 700)] {
            for command in ["RPUSH list", "SADD set", "SADD ints", "ZADD zset", "HSET hash", "XADD stream", "PFADD hll"]
            {
                let (verb, kind) = command.split_once(' ').unwrap();
                let key = format!("{kind}:{size}");
                for i in 0..entries {
                    let value = "v".repeat(random.below(200));
                    let (number, field) = (i.to_string(), format!("{i}-{value}"));
                    let words = match kind {
                        "list" | "set" | "hll" => vec![verb, &key, &field],
                        "ints" => vec![verb, &key, &number],
                        "zset" => vec![verb, &key, &number, &field],
                        "hash" => vec![verb, &key, &field, &value],
                        _ => vec![verb, &key, "*", "f", &value],
                    };
                    client.call(&words);
                }
                keys += 1;
            }
            client.call(&["XGROUP", "CREATE", &format!("stream:{size}"), "group", "0"]);
            let read =
                ["XREADGROUP", "GROUP", "group", "consumer", "COUNT", "5", "STREAMS", &format!("stream:{size}"), ">"];
            client.call(&read);
            client.call(&["SET", &format!("string:{size}"), &"s".repeat(entries * 3000)]);
            client.call(&["SET", &format!("text:{size}"), "abc", "EX", "100000"]);
            keys += 2;
        }
        client.cmd("SET number 12345");
        client.cmd("SET 77 x PX 99999999");
        client.cmd("RPUSH longnodes a");
        client.call(&["RPUSH", "longnodes", &"n".repeat(100_000)]);
        keys += 3;
    }
    client.call(&["FUNCTION", "LOAD", "#!lua name=lib\nredis.register_function('f', function() return 1 end)"]);
    keys
}

fn save(server: &Server, client: &mut Client) -> Vec<u8> {
    assert_eq!(client.cmd("SAVE"), "OK");
    fs::read(server.dir().join("dump.rdb")).unwrap()
}

fn total(report: &Report) -> u64 {
    report.skipped.values().sum()
}

fn types(report: &Report) -> String {
    report.skipped.keys().map(|name| name.to_string()).collect::<Vec<_>>().join(" ")
}

struct Made {
    db: usize,
    name: String,
    life: Option<u64>,
    scanned: Vec<Vec<u8>>,
}

/// Filters of many shapes and sizes; one is larger than the window of the reader, and hardly compressible.
fn fill_filters(client: &mut Client, random: &mut Random) -> Vec<Made> {
    let mut made = Vec::new();
    for (i, capacity) in [1, 50, 100, 1000, 20_000, 200_000, 1_000_000].into_iter().cycle().take(40).enumerate() {
        let db = [0, 3][i % 2];
        client.call(&["SELECT", &db.to_string()]);
        let name = if i % 5 == 0 { format!("{i}") } else { format!("filter:{i}") };
        client.call(&["BF.RESERVE", &name, "0.01", &capacity.to_string()]);
        for _ in 0..[0, 1, 40, 400][i % 4] {
            let items: Vec<_> = (0..[1, 20][i / 20]).map(|_| random.bits().to_string()).collect();
            let words = ["BF.MADD".to_string(), name.clone()].into_iter().chain(items);
            client.call(&words.collect::<Vec<_>>());
        }
        let life = (i % 3 == 0).then_some(4_000_000_000_000 + i as u64);
        if let Some(life) = life {
            client.call(&["PEXPIREAT", &name, &life.to_string()]);
        }
        made.push(Made { db, scanned: scan_dump(client, &name), name, life });
    }
    made
}

/// Header and bits, as `BF.SCANDUMP` gives them.
fn scan_dump(client: &mut Client, name: &str) -> Vec<Vec<u8>> {
    let (mut all, mut iterator) = (Vec::new(), 0);
    loop {
        let reply = client.call(&["BF.SCANDUMP", name, &iterator.to_string()]);
        iterator = reply.array()[0].int();
        if iterator == 0 {
            return all;
        }
        all.push(reply.array()[1].bulk().to_vec());
    }
}

#[track_caller]
fn check_filters(content: &Content, made: &[Made]) {
    assert_eq!(content.len(), made.len());
    for Made { db, name, life, scanned } in made {
        let held = &content[&(*db, name.clone().into_bytes())];
        assert_eq!(held.life, *life, "{name}");
        assert_eq!(held.header, scanned[0], "{name}");
        assert!(held.bits.concat() == scanned[1..].concat(), "the bits of {name} differ");
    }
}

#[test]
fn redis_with_all_types() {
    let server = Server::peer();
    let mut client = server.client();
    let mut random = Random::new(7);
    let mut keys = fill(&mut client, &mut random);
    client.cmd("SELECT 0");
    for command in ["CF.ADD cuckoo item", "CMS.INITBYDIM sketch 100 5", "TOPK.RESERVE top 5", "TDIGEST.CREATE digest"] {
        assert!(!matches!(client.cmd(command), Value::Error(_)), "{command}");
        keys += 1;
    }
    let filters = fill_filters(&mut client, &mut random);
    for compress in ["yes", "no"] {
        client.call(&["CONFIG", "SET", "rdbcompression", compress]);
        let (report, content) = loaded(&save(&server, &mut client));
        assert_eq!((report.magic, report.version, report.checksum), ("REDIS", 10, Checksum::Right));
        assert_eq!((report.keys, total(&report)), (filters.len() as u64, keys), "{}", types(&report));
        assert_eq!(types(&report), "hash list set stream string zset CMSk-TYPE MBbloomCF TDIS-TYPE TopK-TYPE");
        check_filters(&content, &filters);
    }
    for policy in ["allkeys-lfu", "allkeys-lru"] {
        client.call(&["CONFIG", "SET", "maxmemory-policy", policy]);
        let (report, content) = loaded(&save(&server, &mut client));
        assert_eq!((report.keys, total(&report)), (filters.len() as u64, keys));
        check_filters(&content, &filters);
    }
}

#[test]
fn valkey_with_all_types() {
    let server = Server::valkey();
    let mut client = server.client();
    let mut keys = fill(&mut client, &mut Random::new(8));
    // Fields with lives have a type of their own here.
    for entries in [2, 900] {
        let name = format!("mortal:{entries}");
        for i in 0..entries {
            client.call(&["HSET", &name, &i.to_string(), &"v".repeat(i % 90)]);
        }
        assert!(!matches!(client.call(&["HEXPIRE", &name, "100000", "FIELDS", "1", "1"]), Value::Error(_)));
        keys += 1;
    }
    for compress in ["yes", "no"] {
        client.call(&["CONFIG", "SET", "rdbcompression", compress]);
        let (report, _) = loaded(&save(&server, &mut client));
        assert_eq!((report.magic, report.version, report.checksum), ("VALKEY", 80, Checksum::Right));
        assert_eq!((report.keys, total(&report)), (0, keys));
        assert_eq!(types(&report), "hash list set stream string zset");
    }
}
