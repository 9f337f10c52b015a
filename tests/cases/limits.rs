//! Memory, and many clients at once.

use crate::memory_available;
use crate::support::{Client, Random, Server, Value};

/// A number in `INFO memory`.
#[track_caller]
fn memory_field(client: &mut Client, name: &str) -> u64 {
    let info = client.cmd("INFO memory").text();
    let value = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {name} in {info}"))
}

/// A filter of 5 GB: only its first pages are touched, so the machine needs not have so much free.
#[test]
fn c029_sizes_above_4_gib() {
    if memory_available() < 1 << 30 {
        eprintln!("c029 needs some memory, not run");
        return;
    }
    let server = Server::with(&["--max-filter-memory", "0"]);
    let mut client = server.client();
    let before = memory_field(&mut client, "used_memory");
    let reply = client.cmd("BF.RESERVE k 0.01 3627293000");
    if matches!(&reply, Value::Error(text) if text.contains("Insufficient memory")) {
        eprintln!("c029: this system does not overcommit, not run: {reply:?}");
        return;
    }
    assert!(reply == "OK", "{reply:?}");
    let held = 5_000_120_464_f64;
    let near = |bytes: f64| (bytes - held).abs() < held / 10.0;
    assert!(near(client.cmd("BF.INFO k SIZE").array()[0].int() as f64));
    assert!(near((memory_field(&mut client, "used_memory") - before) as f64));
    if let Value::Int(usage) = client.cmd("MEMORY USAGE k") {
        assert!(near(usage as f64), "MEMORY USAGE {usage}");
    }
    assert!(client.cmd("BF.ADD k a") == 1 && client.cmd("BF.EXISTS k a") == 1);
    assert!(client.cmd("DEL k") == 1);
    crate::support::wait_until("the memory to be given back", || {
        memory_field(&mut client, "used_memory") < before + (64 << 20)
    });
}

/// The shape of a filter, and what it answers.
fn state(client: &mut Client, key: &str) -> [Value; 3] {
    ["BF.INFO", "BF.DEBUG", "TTL"].map(|command| client.cmd(&format!("{command} {key}")))
}

/// 64 MiB are 67108864 bytes; a filter of 50,000,000 items at 0.01 has 68,923,464.
#[test]
fn c090_limit_per_filter() {
    const TOO_LARGE: &str = "0.01 50000000";
    const REFUSED: &str = "ERR filter would take 68923464 bytes, 'max-filter-memory' is 67108864";
    let server = Server::with(&["--max-filter-memory", "64mb"]);
    let mut client = server.client();
    assert_eq!(crate::refused(&mut client, &format!("BF.RESERVE k {TOO_LARGE}")), REFUSED);
    let insert = "BF.INSERT k ERROR 0.01 CAPACITY 50000000 ITEMS a";
    let reply = client.cmd(insert);
    let told = if let Value::Array(replies) = &reply { replies[0].error() } else { reply.error() };
    assert!(told == REFUSED && client.cmd("EXISTS k") == 0, "{told}");

    // Growth: 2000 items, and then 32768 times as many.
    assert!(client.cmd("BF.RESERVE grows 0.01 2000 EXPANSION 32768") == "OK" && client.cmd("EXPIRE grows 9999") == 1);
    let mut next = 0;
    let growth = loop {
        match client.cmd(&format!("BF.ADD grows item:{next}")) {
            Value::Error(text) => break text,
            reply => assert!(next < 2100 && reply.int() <= 1),
        }
        next += 1;
    };
    assert!(growth.starts_with("ERR filter would take ") && growth.ends_with(", 'max-filter-memory' is 67108864"));
    let before = state(&mut client, "grows");
    assert_eq!(client.cmd(&format!("BF.ADD grows item:{next}")).error(), growth);
    assert_eq!(state(&mut client, "grows")[..2], before[..2], "the filter is as it was");
    assert!(client.cmd("BF.CARD grows") == 2000 && client.cmd("BF.EXISTS grows item:0") == 1);

    // Loading what another server made: its header, and its dump.
    let other = Server::start();
    let mut maker = other.client();
    assert!(maker.cmd(&format!("BF.RESERVE k {TOO_LARGE}")) == "OK" && maker.cmd("BF.ADD k a") == 1);
    let header = maker.cmd("BF.SCANDUMP k 0").array()[1].bulk().to_vec();
    let payload = maker.cmd("DUMP k").bulk().to_vec();
    let load: [&[u8]; 4] = [b"BF.LOADCHUNK", b"k", b"1", &header];
    let restore: [&[u8]; 4] = [b"RESTORE", b"k", b"0", &payload];
    for command in [&load, &restore] {
        assert_eq!(client.call(command).error(), REFUSED);
        assert!(client.cmd("EXISTS k") == 0);
    }
    // A key that would be replaced stays.
    client.cmd("BF.ADD k small");
    let [name, key, life, _] = restore;
    assert_eq!(client.call(&[name, key, life, &payload, b"REPLACE"]).error(), REFUSED);
    assert!(client.cmd("BF.EXISTS k small") == 1 && client.cmd("DEL k") == 1);

    // A new value counts at once, in both directions.
    assert!(client.cmd("CONFIG SET max-filter-memory 1gb") == "OK");
    assert!(client.call(&restore) == "OK" && client.cmd("BF.EXISTS k a") == 1 && client.cmd("DEL k") == 1);
    assert!(client.call(&load) == "OK" && client.cmd("DEL k") == 1);
    assert!(client.cmd(&format!("BF.RESERVE k {TOO_LARGE}")) == "OK");
    assert!(client.cmd(&format!("BF.ADD grows item:{next}")) == 1, "it grows now");
    assert!(client.cmd("CONFIG SET max-filter-memory 64mb") == "OK");
    assert!(client.cmd("BF.ADD k a") == 1, "what is there stays in use");
    assert_eq!(client.cmd(&format!("BF.RESERVE j {TOO_LARGE}")).error(), REFUSED);
}

#[test]
fn c094_a_filter_for_each_user() {
    // The whole case has 1,000,000 keys: SEENDB_C094_KEYS=1000000.
    let keys: usize = std::env::var("SEENDB_C094_KEYS").ok().and_then(|text| text.parse().ok()).unwrap_or(100_000);
    let server = Server::start();
    let mut client = server.client();
    let before = memory_field(&mut client, "used_memory");
    for from in (0..keys).step_by(500) {
        let mut request = Vec::new();
        for user in from..from + 500 {
            let key = format!("user:{user}");
            request.extend(crate::support::encode(&["BF.RESERVE", &key, "0.01", "50"]));
            let mut add = vec!["BF.MADD".to_string(), key];
            add.extend((0..20).map(|n| format!("seen:{}", user * 31 + n)));
            request.extend(crate::support::encode(&add));
        }
        client.send(&request);
        for _ in 0..500 {
            assert!(client.read() == "OK");
            assert_eq!(client.read().array().len(), 20);
        }
    }
    let bytes = (memory_field(&mut client, "used_memory") - before) as f64 / keys as f64;
    println!("c094: {bytes:.1} bytes a key");
    assert!(bytes <= 130.0, "{bytes:.1} bytes a key");
}

/// Four connections make, fill, ask and delete the same ten keys. An item is added by one connection in one round only,
/// so after that connection has deleted the key and heard of it, finding the item would be an answer from a filter that
/// is gone. Rates are so low, and filters so large, that a false positive will not happen.
#[test]
fn c100_drop_and_make_anew() {
    const ROUNDS: u64 = 2_000;
    // An add that comes between another's delete and reserve makes a default filter: it must be as strict as the others.
    let server = Server::with(&["--bf-error-rate", "1e-9", "--bf-initial-size", "1000"]);
    let run = |rounds: u64| {
        std::thread::scope(|scope| {
            for worker in 0..4 {
                let server = &server;
                scope.spawn(move || drop_and_make(&mut server.client(), worker, rounds));
            }
        });
    };
    run(ROUNDS);
    let early = server.resident_bytes();
    run(ROUNDS);
    let late = server.resident_bytes();
    assert!(late < early + (64 << 20), "memory is not steady: {early} bytes, later {late}");
    let mut client = server.client();
    for key in 0..10 {
        client.cmd(&format!("DEL k{key}"));
    }
    assert!(client.cmd("PING") == "PONG");
}

fn drop_and_make(client: &mut Client, worker: u64, rounds: u64) {
    let mut random = Random::new(worker);
    for round in 0..rounds {
        let key = format!("k{}", random.below(10));
        let capacity = 1000 + random.below(60_000);
        match client.cmd(&format!("BF.RESERVE {key} 1e-9 {capacity}")) {
            Value::Simple(_) => {}
            Value::Error(text) => assert_eq!(text, "ERR item exists"),
            other => panic!("RESERVE answered {other:?}"),
        }
        let items: Vec<String> = (0..1 + random.below(30)).map(|n| format!("{worker}/{round}/{n}")).collect();
        let with = |command: &str| [vec![command.to_string(), key.clone()], items.clone()].concat();
        assert!(client.call(&with("BF.MADD")).array().iter().all(|answer| *answer == 1), "each is new");
        client.call(&with("BF.MEXISTS")).array().iter().for_each(|answer| _ = answer.truth());
        client.cmd(&format!("DEL {key}"));
        let answers = client.call(&with("BF.MEXISTS"));
        assert!(answers.array().iter().all(|answer| *answer == 0), "answers from a deleted filter: {answers:?}");
    }
}

/// Whatever the filter's size, and while it grows: of all clients that add one item at the same time, exactly one hears
/// that it is new, and the count is the number of those who did.
#[test]
fn exactly_one_client_hears_new() {
    const ITEMS: usize = 20_000;
    const BATCH: usize = 100;
    let server = Server::start();
    let mut client = server.client();
    for (key, reserve) in [
        ("large", "BF.RESERVE large 1e-6 1000000"),
        ("growing", "BF.RESERVE growing 1e-6 50"),
        ("full", "BF.RESERVE full 1e-6 15000 NONSCALING"),
    ] {
        assert!(client.cmd(reserve) == "OK");
        let answers: Vec<Vec<bool>> = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..4)
                .map(|worker| {
                    let server = &server;
                    scope.spawn(move || add_all(&mut server.client(), key, worker % 2 == 1, ITEMS, BATCH))
                })
                .collect();
            workers.into_iter().map(|worker| worker.join().expect("a worker")).collect()
        });
        let heard: Vec<usize> = (0..ITEMS).map(|n| answers.iter().filter(|new| new[n]).count()).collect();
        assert!(heard.iter().all(|count| *count <= 1), "{key}: an item was new for several clients");
        let counted: usize = heard.iter().sum();
        assert_eq!(client.cmd(&format!("BF.CARD {key}")).int() as usize, counted, "{key}");
        let expected = if key == "full" { 15_000 } else { ITEMS };
        // The first sub-filters of a growing filter are small, and so less exact than was asked.
        assert!((expected - 40..=expected).contains(&counted), "{key}: {counted} of {expected} were new");
    }
}

/// Adds the items in batches, half of the clients from the end; true for each that was new.
fn add_all(client: &mut Client, key: &str, backwards: bool, items: usize, batch: usize) -> Vec<bool> {
    let mut new = vec![false; items];
    let mut starts: Vec<usize> = (0..items).step_by(batch).collect();
    if backwards {
        starts.reverse();
    }
    for start in starts {
        let answers = crate::many(client, "BF.MADD", key, start..start + batch);
        for (n, answer) in answers.iter().enumerate() {
            new[start + n] = *answer == 1;
        }
    }
    new
}
