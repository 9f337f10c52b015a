//! Keys: the commands on keys of any type, compared with a running Redis that holds the same Bloom filters, and what
//! long commands and many clients at once may see of each other.

#[path = "support/process.rs"]
mod process;
mod support;
#[path = "support/wire.rs"]
mod wire;

use process::figure;
use std::collections::{HashMap, HashSet};
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use support::{Client, Random, Server, Value, encode, show_args, show_bytes, wait_until};
use wire::{has_bytes, plain, to_the_end};

/// Fails unless both answer this command with the same bytes.
#[track_caller]
fn same(clients: &mut (Client, Client), args: &[impl AsRef<[u8]>]) -> Value {
    let (ours, value) = clients.0.call_raw(args);
    let (peers, _) = clients.1.call_raw(args);
    assert_eq!(show_bytes(&ours), show_bytes(&peers), "{}", show_args(args));
    value
}

#[track_caller]
fn same_line(clients: &mut (Client, Client), line: &str) -> Value {
    same(clients, &line.split_ascii_whitespace().collect::<Vec<_>>())
}

/// The names in a reply, sorted.
#[track_caller]
fn names(reply: &Value) -> Vec<Vec<u8>> {
    let mut names: Vec<Vec<u8>> = reply.array().iter().map(|name| name.bulk().to_vec()).collect();
    names.sort();
    names
}

/// All keys that a scan finds, each as often as it comes.
#[track_caller]
fn scan_all(client: &mut Client, options: &str) -> Vec<Vec<u8>> {
    let (mut cursor, mut found) = ("0".to_string(), Vec::new());
    loop {
        let reply = client.cmd(&format!("SCAN {cursor} {options}"));
        let [next, keys] = reply.array() else { panic!("not two elements: {reply:?}") };
        found.extend(names(keys));
        cursor = next.text();
        if cursor == "0" {
            return found;
        }
    }
}

const KEYS: [&[u8]; 9] = [b"a", b"ab", b"b:1", b"b:2", b"", b"with blank", b"[x]", b"\xff\0\r\n", b"*?"];

fn fill(clients: &mut (Client, Client)) {
    for key in KEYS {
        assert!(same(clients, &[&b"BF.ADD"[..], key, b"item"]) == 1);
    }
}

#[test]
fn commands_on_keys_as_in_redis() {
    let (ours, peer) = (Server::start(), Server::peer());
    let mut clients = (ours.client(), peer.client());
    fill(&mut clients);
    for line in [
        "EXISTS",
        "EXISTS a",
        "EXISTS a a nosuch ab",
        "EXISTS nosuch",
        "TOUCH",
        "TOUCH a nosuch ab a",
        "TYPE",
        "TYPE a",
        "TYPE nosuch",
        "TYPE a b",
        "DBSIZE",
        "DBSIZE x",
        "KEYS",
        "KEYS a b",
        "KEYS nosuch*",
        "RANDOMKEY x",
        "DEL",
        "DEL nosuch",
        "DEL a a nosuch",
        "UNLINK",
        "UNLINK ab nosuch ab",
        "EXISTS a ab",
        "DBSIZE",
        "SCAN",
        "SCAN x",
        "SCAN 0 COUNT",
        "SCAN 0 COUNT 0",
        "SCAN 0 COUNT -1",
        "SCAN 0 COUNT x",
        "SCAN 0 MATCH",
        "SCAN 0 TYPE",
        "SCAN 0 NOSUCH 1",
        "SCAN 0 COUNT 10 extra",
        "SCAN 0 MATCH a COUNT",
        "SCAN 99999999999999999999",
        "SCAN 1x",
        "MEMORY USAGE nosuch",
        "MEMORY USAGE b:1 SAMPLES",
        "MEMORY USAGE b:1 SAMPLES x",
        "MEMORY USAGE b:1 SAMPLES -1",
        "MEMORY USAGE b:1 NOSUCH 1",
        "MEMORY USAGE b:1 b:2",
        "MEMORY USAGE",
        "FLUSHDB x",
        "FLUSHALL x",
        "FLUSHALL ASYNC SYNC",
        "FLUSHDB SYNC x",
        "DBSIZE",
        "SELECT 3",
        "DBSIZE",
        "BF.ADD other x",
        "EXISTS other b:1",
        "RANDOMKEY",
        "FLUSHDB",
        "RANDOMKEY",
        "SELECT 0",
        "DBSIZE",
        "FLUSHALL ASYNC",
        "DBSIZE",
        "RANDOMKEY",
        "SCAN 0",
        "SCAN 0 COUNT 1000 MATCH * TYPE string",
        "KEYS *",
        "FLUSHALL SYNC",
        "FLUSHDB ASYNC",
    ] {
        same_line(&mut clients, line);
    }
}

#[test]
fn patterns_as_in_redis() {
    let (ours, peer) = (Server::start(), Server::peer());
    let mut clients = (ours.client(), peer.client());
    fill(&mut clients);
    let patterns: [&[u8]; 21] = [
        b"*", b"?", b"a*", b"*b*", b"b:?", b"b:[12]", b"b:[^1]", b"b:[0-1]", b"b:[2-0]", b"", b"\\*\\?", b"\\[x]",
        b"[[]x]", b"[", b"[a", b"*\xff*", b"a**b", b"\\", b"[]", b"* *", b"*\r\n",
    ];
    for pattern in patterns {
        let (ours, peers) = (clients.0.call(&[&b"KEYS"[..], pattern]), clients.1.call(&[&b"KEYS"[..], pattern]));
        assert_eq!(names(&ours), names(&peers), "KEYS {}", show_bytes(pattern));
        let scan = [&b"SCAN"[..], b"0", b"COUNT", b"100000", b"MATCH", pattern];
        let found = clients.0.call(&scan);
        assert!(found.array()[0] == "0");
        assert_eq!(names(&found.array()[1]), names(&peers), "SCAN MATCH {}", show_bytes(pattern));
    }
}

#[test]
fn scan_options_and_the_size_of_steps() {
    const COUNT: usize = 5_000;
    let server = Server::start();
    let mut client = server.client();
    for n in 0..COUNT {
        client.send(&encode(&["BF.RESERVE", &format!("k{n}"), "0.01", "10"]));
    }
    (0..COUNT).for_each(|_| assert!(client.read() == "OK"));
    for (options, expected) in [
        ("", COUNT),
        ("COUNT 1", COUNT),
        ("COUNT 1000", COUNT),
        ("count 7 match *", COUNT),
        ("MATCH k1*", 1111),
        ("TYPE MBbloom--", COUNT),
        ("TYPE mbBLOOM--", COUNT),
        ("TYPE string", 0),
        ("TYPE MBbloom", 0),
        ("MATCH k77 COUNT 100 TYPE MBbloom--", 1),
        ("MATCH nosuch COUNT 100", 0),
    ] {
        let found = scan_all(&mut client, options);
        assert_eq!(found.len(), expected, "SCAN {options}: nothing twice while nothing changes");
        assert_eq!(found.iter().collect::<HashSet<_>>().len(), expected, "SCAN {options}");
    }
    // A step does not do the work of the whole.
    let step = client.cmd("SCAN 0 COUNT 10");
    assert!((1..200).contains(&step.array()[1].array().len()), "{} keys", step.array()[1].array().len());
    // A cursor that no scan gave is no harm.
    for cursor in ["1", "1023", "1024", "123456789", "18446744073709551615", "9223372036854775808"] {
        assert_eq!(client.cmd(&format!("SCAN {cursor}")).array().len(), 2, "SCAN {cursor}");
    }
    // All with one step of all.
    let all = client.cmd("SCAN 0 COUNT 9223372036854775807");
    assert!(all.array()[0] == "0" && all.array()[1].array().len() == COUNT);
}

#[test]
fn random_keys_are_of_this_database_and_come_all() {
    let server = Server::start();
    let mut client = server.client();
    client.cmd("SELECT 1");
    client.cmd("BF.ADD elsewhere a");
    client.cmd("SELECT 0");
    (0..20).for_each(|n| assert!(client.cmd(&format!("BF.ADD k{n} a")) == 1));
    let seen: HashSet<String> = (0..2_000).map(|_| client.cmd("RANDOMKEY").text()).collect();
    assert_eq!(seen.len(), 20, "{seen:?}");
    assert!(!seen.contains("elsewhere"));
}

#[test]
fn memory_usage_is_the_bytes_held() {
    let server = Server::start();
    let mut client = server.client();
    client.cmd("BF.RESERVE small 0.01 100");
    client.cmd("BF.RESERVE large 0.01 1000000");
    let usage = |client: &mut Client, line: &str| client.cmd(line).int();
    let small = usage(&mut client, "MEMORY USAGE small");
    assert!((100..400).contains(&small), "{small}");
    assert_eq!(usage(&mut client, "MEMORY USAGE small SAMPLES 0"), small);
    assert_eq!(usage(&mut client, "memory usage small samples 5"), small);
    let (large, bits) = (usage(&mut client, "MEMORY USAGE large"), client.cmd("BF.INFO large SIZE").array()[0].int());
    assert!(large >= bits && large < bits + bits / 4, "{large} bytes for {bits}");
    assert_eq!(client.call_raw(&["MEMORY", "USAGE", "nosuch"]).0, b"$-1\r\n");
}

/// Keys that stay are found by every scan, whatever others make and delete meanwhile.
#[test]
fn scan_finds_what_stays_while_others_insert_and_delete() {
    const STAY: usize = 3_000;
    let server = Server::start();
    let mut client = server.client();
    (0..STAY).for_each(|n| client.send(&encode(&["BF.RESERVE", &format!("stay:{n}"), "0.01", "10"])));
    (0..STAY).for_each(|_| assert!(client.read() == "OK"));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for worker in 0..2 {
            let (server, done) = (&server, &done);
            scope.spawn(move || {
                let (mut client, mut random, mut round) = (server.client(), Random::new(worker), 0);
                while !done.load(Ordering::Relaxed) {
                    round += 1;
                    let key = |n: usize| format!("go:{worker}:{round}:{n}");
                    // The table grows and shrinks by turns, far beyond what stays.
                    let count = 1 + random.below(4_000);
                    (0..count).for_each(|n| client.send(&encode(&["BF.RESERVE", &key(n), "0.01", "1"])));
                    (0..count).for_each(|_| assert!(client.read() == "OK"));
                    let del: Vec<String> = std::iter::once("DEL".to_string()).chain((0..count).map(key)).collect();
                    assert!(client.call(&del) == count as i64);
                }
            });
        }
        for round in 0..30 {
            let found = scan_all(&mut client, ["COUNT 10", "COUNT 100", "COUNT 1000"][round % 3]);
            let mut times: HashMap<&[u8], usize> = HashMap::new();
            found.iter().for_each(|key| *times.entry(key).or_default() += 1);
            let lost: Vec<_> = (0..STAY).filter(|n| !times.contains_key(format!("stay:{n}").as_bytes())).collect();
            if !lost.is_empty() {
                done.store(true, Ordering::Relaxed);
            }
            assert!(lost.is_empty(), "round {round}: the scan missed {} keys, such as {:?}", lost.len(), lost[0]);
        }
        done.store(true, Ordering::Relaxed);
    });
    assert!(client.cmd("DBSIZE") == STAY as i64);
}

// Long commands

/// Items of the long commands.
const MANY: usize = 200_000;

fn many(command: &str, key: &str, salt: usize) -> Vec<u8> {
    let mut args = vec![command.to_string(), key.to_string()];
    args.extend((0..MANY).map(|n| format!("{salt}:{n}")));
    encode(&args)
}

/// A server of one thread, so that whoever is not let go by a long command would hold all others up.
fn one_thread() -> Server {
    // Large enough, and exact enough, that neither growth nor false positives blur the counts.
    Server::with(&["--threads", "1", "--bf-error-rate", "1e-9", "--bf-initial-size", "1000000"])
}

/// Runs a long request and, until its reply is there, what `meanwhile` does; says how often that was.
#[track_caller]
fn during(server: &Server, request: &[u8], mut meanwhile: impl FnMut()) -> (usize, Vec<u8>) {
    let mut stream = plain(server.port());
    stream.write_all(request).expect("the server takes the request");
    let mut times = 0;
    while !has_bytes(&stream) {
        meanwhile();
        times += 1;
    }
    stream.shutdown(std::net::Shutdown::Write).expect("a socket");
    (times, to_the_end(&mut stream))
}

#[test]
fn a_long_add_and_a_long_check_let_other_keys_be_served() {
    let server = one_thread();
    let mut other = server.client();
    let mut best = (0, 0);
    for round in 0..20 {
        let mut n = 0;
        let (added, raw) = during(&server, &many("BF.MADD", "k", round), || {
            n += 1;
            assert!(other.cmd(&format!("BF.ADD other:{round} {n}")) == 1);
        });
        assert!(raw == [b"*200000\r\n".to_vec(), b":1\r\n".repeat(MANY)].concat(), "{}", show_bytes(&raw));
        let (checked, raw) = during(&server, &many("BF.MEXISTS", "k", round), || {
            assert!(other.cmd(&format!("BF.EXISTS other:{round} 1")) == i64::from(n > 0));
        });
        assert!(raw == [b"*200000\r\n".to_vec(), b":1\r\n".repeat(MANY)].concat(), "{}", show_bytes(&raw));
        best = (best.0.max(added), best.1.max(checked));
        other.cmd("DEL k");
        if best.0 >= 3 && best.1 >= 3 {
            return;
        }
    }
    panic!("others are served at best {} times in an add, {} times in a check", best.0, best.1);
}

#[test]
fn a_long_add_is_seen_whole_or_not_at_all() {
    for threads in ["1", "2"] {
        let server = Server::with(&["--threads", threads, "--bf-error-rate", "1e-9", "--bf-initial-size", "1000000"]);
        let mut other = server.client();
        for round in 0..4 {
            let (before, after) = ((round * MANY) as i64, ((round + 1) * MANY) as i64);
            let mut seen = Vec::new();
            let (first, last) = (format!("{round}:0"), format!("{round}:{}", MANY - 1));
            let (_, raw) = during(&server, &many("BF.MADD", "k", round), || match seen.len() % 3 {
                0 => seen.push(other.cmd("BF.CARD k").int() == after),
                1 => {
                    let both = other.cmd(&format!("BF.MEXISTS k {first} {last}"));
                    assert_eq!(both.array()[0], both.array()[1], "a part is seen");
                    seen.push(both.array()[0].truth());
                }
                _ => {
                    let card = other.cmd("BF.CARD k").int();
                    assert!(card == before || card == after, "a part is seen: {card} items");
                    seen.push(card == after);
                }
            });
            assert!(raw.len() == 9 + 4 * MANY);
            assert!(seen.is_sorted(), "what was seen stays");
            assert!(other.cmd("BF.CARD k") == after);
        }
    }
}

#[test]
fn deleting_and_flushing_wait_for_a_long_add() {
    let server = Server::with(&["--threads", "2", "--bf-error-rate", "1e-9", "--bf-initial-size", "1000000"]);
    let mut other = server.client();
    for (round, line) in
        ["DEL k", "FLUSHALL", "FLUSHDB", "UNLINK k x", "DEL x k"].into_iter().cycle().take(10).enumerate()
    {
        let mut removed = 0;
        let (_, raw) = during(&server, &many("BF.MADD", "k", round), || {
            if removed == 0 && other.cmd("EXISTS k") == 1 {
                removed = 1;
                let reply = other.cmd(line);
                assert!(reply == "OK" || reply == 1, "{line}: {reply:?}");
            }
        });
        assert!(raw == [b"*200000\r\n".to_vec(), b":1\r\n".repeat(MANY)].concat(), "{line}: {}", show_bytes(&raw));
        // The removal came before the add, after it, or not at all; never in its middle.
        let card = other.cmd("BF.CARD k").int();
        assert!(card == 0 || card == MANY as i64, "{line}: {card} items are left");
        other.cmd("FLUSHALL");
        assert!(other.cmd("DBSIZE") == 0 && other.cmd("EXISTS k") == 0);
    }
}

#[test]
fn a_client_that_leaves_during_its_long_command() {
    let server = one_thread();
    let mut other = server.client();
    for round in 0..5 {
        let mut stream = plain(server.port());
        stream.write_all(&many("BF.MADD", "k", round)).unwrap();
        drop(stream);
        let all = ((round + 1) * MANY) as i64;
        wait_until("the add to be over", || other.cmd("BF.CARD k") == all);
        assert!(other.cmd(&format!("BF.ADD k {round}:0")) == 0);
    }
    assert!(other.cmd("DEL k") == 1 && other.cmd("DBSIZE") == 0);
    wait_until("the connections to end", || figure(&mut other, "connected_clients") == 1);
}

#[test]
fn pipelined_commands_wait_behind_a_long_one() {
    let server = one_thread();
    let mut client = server.client();
    client
        .send(&[many("BF.MADD", "k", 0), encode(&["BF.CARD", "k"]), encode(&["DEL", "k"]), encode(&["PING"])].concat());
    assert_eq!(client.read().array().len(), MANY);
    assert!(client.read() == MANY as i64 && client.read() == 1 && client.read() == "PONG");
}

#[test]
fn a_large_dump_and_its_load_let_others_be_served() {
    let server = one_thread();
    let (mut client, mut other) = (server.client(), server.client());
    assert!(client.cmd("BF.RESERVE k 0.01 72000000") == "OK");
    for n in 0..100 {
        let mut args = vec!["BF.MADD".to_string(), "k".into()];
        args.extend((0..1000).map(|i| format!("{n}:{i}")));
        assert_eq!(client.call(&args).array().len(), 1000);
    }
    let (mut iterator, mut served, mut bytes) = ("0".to_string(), 0, 0);
    loop {
        let (times, raw) = during(&server, &encode(&["BF.SCANDUMP", "k", &iterator]), || {
            assert!(matches!(other.cmd("BF.ADD other x"), Value::Int(_)));
        });
        served += times;
        let head = raw.split(|byte| *byte == b'\n').take(3).map(<[u8]>::len).sum::<usize>() + 3;
        let next = String::from_utf8_lossy(raw.split(|byte| *byte == b'\n').nth(1).unwrap())
            .trim_matches([':', '\r'])
            .to_string();
        if next == "0" {
            break;
        }
        let data = &raw[head..raw.len() - 2];
        bytes += data.len();
        let load = encode(&[&b"BF.LOADCHUNK"[..], b"copy", next.as_bytes(), data]);
        let (times, reply) = during(&server, &load, || {
            assert!(matches!(other.cmd("BF.ADD other x"), Value::Int(_)));
        });
        served += times;
        assert_eq!(show_bytes(&reply), show_bytes(b"+OK\r\n"));
        iterator = next;
    }
    assert!(bytes > 90 << 20, "{bytes} bytes");
    assert!(served > 14, "others were served {served} times");
    assert_eq!(client.cmd("BF.INFO copy"), client.cmd("BF.INFO k"));
    for n in 0..100 {
        let mut args = vec!["BF.MEXISTS".to_string(), "copy".into()];
        args.extend((0..1000).map(|i| format!("{n}:{i}")));
        assert!(client.call(&args).array().iter().all(|answer| *answer == 1), "an item is lost");
    }
}

// Equal items from several clients

/// Four clients add the same items in different orders, one by one and in lists; returns how often "new" was said.
fn add_from_four(server: &Server, items: usize) -> usize {
    let new: Vec<usize> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|worker| {
                scope.spawn(move || {
                    let (mut client, mut new) = (server.client(), 0);
                    let mut order: Vec<usize> = (0..items).collect();
                    let mut random = Random::new(worker);
                    // Mostly the same order, so that all add the same item at the same time.
                    (0..items / 10).for_each(|_| order.swap(random.below(items), random.below(items)));
                    for (n, chunk) in order.chunks(100).enumerate() {
                        if n % 2 == worker as usize % 2 {
                            let mut args = vec!["BF.MADD".to_string(), "k".into()];
                            args.extend(chunk.iter().map(|item| format!("item:{item}")));
                            new += client.call(&args).array().iter().filter(|answer| **answer == 1).count();
                        } else {
                            let adds = chunk.iter().flat_map(|item| encode(&["BF.ADD", "k", &format!("item:{item}")]));
                            client.send(&adds.collect::<Vec<u8>>());
                            new += chunk.iter().filter(|_| client.read() == 1).count();
                        }
                    }
                    new
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().expect("a worker ends well")).collect()
    });
    new.into_iter().sum()
}

#[test]
fn exactly_one_client_hears_new() {
    const ITEMS: usize = 20_000;
    // Small and large, growing and not. At 1e-9 a false positive is out of question, except that the first sub-filters of
    // those that grow have so few bits that two hashes are too little: RedisBloom finds 4 among these items in the third.
    for reserve in [
        "BF.RESERVE k 1e-9 20000 NONSCALING",
        "BF.RESERVE k 1e-9 200000 NONSCALING",
        "BF.RESERVE k 1e-9 50",
        "BF.RESERVE k 1e-9 3000 EXPANSION 1",
        "BF.RESERVE k 1e-9 1000 EXPANSION 4",
    ] {
        let server = Server::with(&["--threads", "2"]);
        let mut client = server.client();
        assert!(client.cmd(reserve) == "OK");
        let new = add_from_four(&server, ITEMS);
        let least = if reserve.ends_with(" NONSCALING") { ITEMS } else { ITEMS - 20 };
        assert!((least..=ITEMS).contains(&new), "{reserve}: {new} new items of {ITEMS}");
        assert!(client.cmd("BF.CARD k") == new as i64, "{reserve}");
        assert!(client.cmd("BF.INFO k CAPACITY").array()[0].int() >= new as i64);
        assert_eq!(add_from_four(&server, ITEMS), 0, "{reserve}: again");
    }
}

#[test]
fn a_full_filter_takes_exactly_its_capacity() {
    for capacity in [500, 20_000, 100_000] {
        let server = Server::with(&["--threads", "2"]);
        let mut client = server.client();
        assert!(client.cmd(&format!("BF.RESERVE k 1e-9 {capacity} NONSCALING")) == "OK");
        assert_eq!(add_from_four(&server, capacity + capacity / 2), capacity);
        assert!(client.cmd("BF.CARD k") == capacity as i64);
        assert!(client.cmd("BF.INFO k ITEMS").array()[0] == capacity as i64);
        assert_eq!(client.cmd("BF.ADD k surely-new").error(), "ERR non scaling filter is full");
    }
}

/// C103: start-up code that reserves again; of many clients at once one makes the filter.
#[test]
fn one_of_many_makes_the_key() {
    let server = Server::with(&["--threads", "2"]);
    let made = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut client = server.client();
                for n in 0..500 {
                    match client.cmd(&format!("BF.RESERVE k{n} 0.01 100")) {
                        Value::Simple(_) => _ = made.fetch_add(1, Ordering::Relaxed),
                        other => assert_eq!(other.error(), "ERR item exists"),
                    }
                    assert!(matches!(client.cmd(&format!("BF.ADD k{n} x")), Value::Int(_)));
                }
            });
        }
    });
    assert_eq!(made.into_inner(), 500);
    let mut client = server.client();
    assert!((0..500).all(|n| client.cmd(&format!("BF.CARD k{n}")) == 1));
}

/// C100, short: a filter that was deleted is gone, whoever makes the name anew. Here by flushes and long adds, too.
#[test]
fn names_that_come_and_go() {
    let server = Server::with(&["--threads", "2", "--bf-error-rate", "1e-9", "--bf-initial-size", "100000"]);
    std::thread::scope(|scope| {
        for worker in 0..4_u64 {
            let server = &server;
            scope.spawn(move || {
                let (mut client, mut random) = (server.client(), Random::new(100 + worker));
                for round in 0..60 {
                    let key = format!("k{}", random.below(3));
                    // Long enough for the latch in every third round.
                    let count = [10, 300, 8_000][random.below(3)];
                    let items: Vec<String> = (0..count).map(|n| format!("{worker}/{round}/{n}")).collect();
                    let with = |command: &str| [vec![command.to_string(), key.clone()], items.clone()].concat();
                    assert!(client.call(&with("BF.MADD")).array().iter().all(|answer| *answer == 1), "each is new");
                    match random.below(8) {
                        0 => assert!(client.cmd("FLUSHALL") == "OK"),
                        1 => assert!(client.cmd("FLUSHDB ASYNC") == "OK"),
                        2 => _ = client.cmd(&format!("UNLINK {key} nosuch k0 k1 k2")).int(),
                        _ => _ = client.cmd(&format!("DEL {key}")).int(),
                    }
                    let answers = client.call(&with("BF.MEXISTS"));
                    assert!(answers.array().iter().all(|answer| *answer == 0), "answers from a deleted filter");
                }
            });
        }
    });
    let mut client = server.client();
    let left = client.cmd("KEYS *").array().len() as i64;
    assert!(client.cmd("DBSIZE") == left && left <= 3);
    assert!(client.cmd("FLUSHALL") == "OK" && client.cmd("DBSIZE") == 0);
}
