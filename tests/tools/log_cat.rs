//! Logs as commands.

use std::path::PathBuf;

use super::support::{Client, Random, Server, Value, pipe, wait_until};
use super::{assert_all_same, everything, run, run_to, text};

/// A server with a log of which nothing is held back.
fn logging() -> Server {
    Server::with(&["--appendonly", "yes", "--appendfsync", "no"])
}

/// Waits until everything that was answered is in the files, and says where they are.
#[track_caller]
fn log_of(server: &Server) -> PathBuf {
    assert_eq!(server.client().cmd("WAITAOF 1 0 30000").array()[0], 1);
    server.dir().join("appendonlydir")
}

/// The log as requests.
#[track_caller]
fn requests(server: &Server, more: &[&str]) -> Vec<u8> {
    let folder = log_of(server);
    let ran = run(&[&["log", "cat", text(&folder), "--resp"], more].concat());
    assert_eq!(ran.status, 0, "{}", String::from_utf8_lossy(&ran.stdout[ran.stdout.len().saturating_sub(500)..]));
    ran.stdout
}

/// The words of all requests.
fn parsed(mut bytes: &[u8]) -> Vec<Vec<Vec<u8>>> {
    let mut all = Vec::new();
    let number = |bytes: &mut &[u8]| -> usize {
        let end = bytes.iter().position(|byte| *byte == b'\r').unwrap();
        let number = std::str::from_utf8(&bytes[1..end]).unwrap().parse().unwrap();
        *bytes = &bytes[end + 2..];
        number
    };
    while !bytes.is_empty() {
        let count = number(&mut bytes);
        all.push(
            (0..count)
                .map(|_| {
                    let len = number(&mut bytes);
                    let (word, rest) = bytes.split_at(len);
                    bytes = &rest[2..];
                    word.to_vec()
                })
                .collect(),
        );
    }
    all
}

/// One random change, of those that can fail too.
fn change(client: &mut Client, random: &mut Random, payloads: &mut Vec<Vec<u8>>) {
    let key = |random: &mut Random| format!("k{}", random.below(12));
    let (name, other) = (key(random), key(random));
    let item = |random: &mut Random| format!("i{}", random.below(2000));
    let items = |random: &mut Random| {
        let most = *random.pick(&[3, 30, 300]);
        (0..1 + random.below(most)).map(|_| item(random)).collect::<Vec<_>>().join(" ")
    };
    let future = 4_000_000_000_000 + random.below(1_000_000) as u64;
    let line = match random.below(24) {
        0 => format!("BF.RESERVE {name} 0.{:03} {}", 1 + random.below(900), 1 + random.below(300)),
        1 => format!("BF.RESERVE {name} 0.01 {} EXPANSION {}", 1 + random.below(50), random.below(5)),
        2 => format!("BF.RESERVE {name} 0.02 {} NONSCALING", 1 + random.below(500)),
        3 => format!("BF.INSERT {name} CAPACITY {} ERROR 0.003 ITEMS {}", 1 + random.below(90), items(random)),
        // Large enough for adds under a shared lock.
        4 => format!("BF.RESERVE {name} 0.001 100000 EX {}", 10_000 + random.below(1000)),
        5..=8 => format!("BF.ADD {name} {}", item(random)),
        9..=13 => format!("BF.MADD {name} {}", items(random)),
        14 => format!("DEL {name}"),
        15 => format!("RENAME {name} {other}"),
        16 => format!("COPY {name} {other} DB {} REPLACE", random.below(3)),
        17 => format!("MOVE {name} {}", random.below(3)),
        18 => format!("PEXPIREAT {name} {future}"),
        19 => format!("PERSIST {name}"),
        20 if random.percent(5) => "FLUSHDB".to_owned(),
        20 => format!("SWAPDB 0 {}", 1 + random.below(2)),
        21 => format!("PEXPIRE {name} {}", random.below(3)),
        22 => return restore(client, random, &name, payloads),
        _ => return load_chunks(client, &name, &other),
    };
    client.cmd(&line);
}

fn restore(client: &mut Client, random: &mut Random, name: &str, payloads: &mut Vec<Vec<u8>>) {
    if let Value::Bulk(payload) = client.call(&["DUMP", name]) {
        payloads.push(payload);
    }
    if !payloads.is_empty() {
        let payload = random.pick(payloads).clone();
        let life = *random.pick(&[&b"0"[..], b"50000000"]);
        client.call(&[b"RESTORE", name.as_bytes(), life, &payload, b"REPLACE"]);
    }
}

/// A dump of one key loaded into another, which may be there and of the same shape.
fn load_chunks(client: &mut Client, from: &str, to: &str) {
    let mut iterator = "0".to_owned();
    loop {
        let reply = client.call(&["BF.SCANDUMP", from, &iterator]);
        let Value::Array(parts) = reply else { return };
        iterator = parts[0].int().to_string();
        if iterator == "0" {
            return;
        }
        client.call(&[b"BF.LOADCHUNK", to.as_bytes(), iterator.as_bytes(), parts[1].bulk()]);
    }
}

fn random_history(server: &Server, seed: u64, changes: usize) {
    let (mut client, random) = (server.client(), &mut Random::new(seed));
    let mut payloads = Vec::new();
    for _ in 0..changes {
        if random.percent(4) {
            client.cmd(&format!("SELECT {}", random.below(3)));
        }
        if random.percent(10) {
            client.cmd("MULTI");
            for _ in 0..random.below(4) {
                let (name, item) = (random.below(12), random.below(2000));
                client.cmd(&format!("BF.ADD k{name} i{item}"));
                client.cmd(&format!("RENAME k{name} k{}", random.below(12)));
            }
            client.cmd("EXEC");
        }
        if random.below(1000) < 3 {
            client.cmd("BGREWRITEAOF");
        }
        change(&mut client, random, &mut payloads);
    }
    // The short lives are over, so that whoever looks sees the same twice.
    super::support::wait_until("the end of the short lives", || {
        (0..3).all(|db| {
            client.cmd(&format!("SELECT {db}"));
            let names = client.cmd("KEYS *");
            names.array().iter().all(|name| !(0..1000).contains(&client.call(&[&b"PTTL"[..], name.bulk()]).int()))
        })
    });
}

#[test]
fn a_random_history_gives_the_same_filters_in_an_empty_server() {
    let histories = std::env::var("SEENDB_TOOLS_HISTORIES").map_or(4, |count| count.parse().expect("a number"));
    for seed in 0..histories {
        let server = logging();
        random_history(&server, seed, 2500);
        let before = everything(&server);
        for (empty, more) in [(Server::start(), &[][..]), (Server::peer(), &["--redis"])] {
            let requests = requests(&server, more);
            pipe(empty.port(), &requests);
            assert_all_same(&before, &everything(&empty));
            eprintln!("history {seed}: {} requests, {} bytes", parsed(&requests).len(), requests.len());
        }
    }
}

/// Rings and profiles, in the base and in the log, in the places of filters and beside them.
#[test]
fn redis_gets_the_filters_and_hears_of_the_rings() {
    let server = logging();
    let mut client = server.client();
    let all = |client: &mut Client, lines: &[&str]| {
        for line in lines {
            let reply = client.cmd(line);
            assert!(!matches!(reply, Value::Error(_)), "{line}: {reply:?}");
        }
    };
    let ring = "CHAIN.INSERT r0 CAPACITY 100 EX 100000 ITEMS a";
    all(
        &mut client,
        &["CHAIN.PROFILE SET read: CAPACITY 50", ring, "BF.ADD base x", "BF.ADD over x", "BF.ADD copied x"],
    );
    all(&mut client, &["BGREWRITEAOF"]);
    wait_until("the base", || client.cmd("INFO persistence").text().contains("aof_rewrite_in_progress:0"));
    let dump = client.call(&["DUMP", "r0"]).bulk().to_vec();
    all(&mut client, &["BF.ADD restored x"]);
    assert_eq!(client.call(&[&b"RESTORE"[..], b"restored", b"0", &dump, b"REPLACE"]), "OK");
    let lines = ["CHAIN.ADD r1 a", "BF.ADD r2 a", "RENAME r1 r2", "CHAIN.ADD r3 a", "RENAME r3 over", "PERSIST r0"];
    all(&mut client, &lines);
    all(
        &mut client,
        &["COPY r0 copied REPLACE", "MULTI", "CHAIN.ADD r4 a", "BF.ADD both a", "EXEC", "CHAIN.ROTATE r4"],
    );
    all(
        &mut client,
        &["CHAIN.MERGE r5 r4", "MOVE r5 1", "CHAIN.ADD gone a", "DEL gone", "CHAIN.PROFILE SET b CAPACITY 9"],
    );
    let folder = log_of(&server);
    let ran = run(&["log", "cat", text(&folder), "--resp", "--redis"]);
    assert_eq!(ran.status, 0);
    let requests = ran.stdout;
    assert!(parsed(&requests).iter().all(|words| !words[0].starts_with(b"CHAIN")), "{:?}", ran.text);
    let said = ran.text.lines().last().unwrap();
    assert!(
        said.starts_with(
            "seendb log cat: left out, as Redis has Bloom filters only: 2 profiles of rings, 7 other filters: "
        ),
        "{said}"
    );
    assert!(said.contains("of database ") && said.ends_with(", …"), "{said}");
    for empty in [Server::peer(), Server::start()] {
        pipe(empty.port(), &requests);
        let mut client = empty.client();
        assert_eq!((client.cmd("DBSIZE").int(), client.cmd("EXISTS base both").int()), (2, 2));
    }
    let whole = run(&["log", "cat", text(&folder), "--resp"]);
    let copy = Server::start();
    pipe(copy.port(), &whole.stdout);
    assert_eq!(copy.client().cmd("DBSIZE").int(), 8);
    // As text, the profile of the base is a line too.
    let lines = run_to(0, &["log", "cat", text(&folder)]);
    assert!(lines.contains("base  0  CHAIN.PROFILE SET read: CAPACITY 50 ERROR 0.01 LINKS 5\n"), "{lines}");
    assert!(lines.contains(": 1 item in 1 array, ends at "), "{lines}");
}

/// Adds of one filter by several threads: logged in another order than counted, now and then.
#[test]
fn adds_side_by_side_give_the_same_filter() {
    let server = logging();
    server.client().cmd("BF.RESERVE shared 0.25 60000");
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let server = &server;
            scope.spawn(move || {
                let (mut client, random) = (server.client(), &mut Random::new(seed));
                for _ in 0..300 {
                    let items: Vec<_> = (0..200).map(|_| random.below(400_000).to_string()).collect();
                    client.cmd(&format!("BF.MADD shared {}", items.join(" ")));
                }
            });
        }
    });
    let (requests, before) = (requests(&server, &[]), everything(&server));
    for empty in [Server::start(), Server::peer()] {
        pipe(empty.port(), &requests);
        assert_all_same(&before, &everything(&empty));
    }
}

#[test]
fn what_follows_a_position_brings_a_copy_up_to_date() {
    let (server, copy) = (logging(), Server::start());
    for seed in 10..14 {
        let folder = log_of(&server);
        let found = run(&["check", "--json", text(&folder)]);
        let found: serde_json::Value = serde_json::from_slice(&found.stdout).expect("JSON");
        let position = found[0]["position"].as_u64().expect("a position").to_string();
        random_history(&server, seed, 500);
        let newer = run(&["log", "cat", text(&log_of(&server)), "--resp", "--from", &position]);
        // What went into the base meanwhile is not printed again.
        if newer.status == 1 && newer.text.contains("it went into the base") {
            copy.client().cmd("FLUSHALL");
            pipe(copy.port(), &requests(&server, &[]));
        } else {
            assert_eq!(newer.status, 0);
            pipe(copy.port(), &newer.stdout);
        }
        assert_all_same(&everything(&server), &everything(&copy));
    }
}

/// 72 MB of bits in the base and in the log, in words of at most 16 MiB.
#[test]
fn large_filters_go_in_pieces() {
    let server = logging();
    let mut client = server.client();
    client.cmd("BF.RESERVE large 0.01 30000000");
    client.cmd("BF.MADD large a b c");
    client.cmd("BGREWRITEAOF");
    let rewritten = || run(&["check", "--json", text(&log_of(&server))]).text.contains("\"base\": {");
    super::support::wait_until("the base", rewritten);
    load_chunks(&mut client, "large", "second");
    client.cmd("PEXPIREAT second 4000000000000");
    let requests = requests(&server, &[]);
    let longest = parsed(&requests).into_iter().flatten().map(|word| word.len()).max();
    assert_eq!(longest, Some(16 << 20));
    let before = everything(&server);
    for empty in [Server::start(), Server::peer()] {
        pipe(empty.port(), &requests);
        assert_all_same(&before, &everything(&empty));
    }
}

#[test]
fn lives_that_are_over_end_nothing_before_its_time() {
    let server = logging();
    let mut client = server.client();
    client.cmd("BF.RESERVE k 0.01 50 EXPANSION 4");
    client.cmd("PEXPIRE k 400");
    client.cmd("BF.MADD k a b c");
    client.cmd("PERSIST k");
    client.cmd("BF.ADD short item");
    client.cmd("PEXPIRE short 1");
    super::support::wait_until("the end of the life", || client.cmd("EXISTS short") == 0);
    // Over by the time the log is sent.
    std::thread::sleep(std::time::Duration::from_millis(500));
    let requests = requests(&server, &[]);
    let copy = Server::start();
    pipe(copy.port(), &requests);
    assert_all_same(&everything(&server), &everything(&copy));
    assert_eq!(copy.client().cmd("BF.CARD k"), 3);
}

#[test]
fn lines_are_for_people() {
    let server = logging();
    let mut client = server.client();
    for line in [
        "BF.RESERVE visitors 0.01 2",
        "BF.MADD visitors alice bob carol",
        "PEXPIREAT visitors 4000000000000",
        "SELECT 2",
        "BF.RESERVE fixed 0.001 100 NONSCALING",
        "RENAME fixed moved",
        "COPY moved copied DB 3",
        "SWAPDB 2 3",
        "FLUSHDB",
        "FLUSHALL",
    ] {
        assert!(!matches!(client.cmd(line), Value::Error(_)), "{line}");
    }
    client.call(&[&b"BF.ADD"[..], b"two words", b"\xff\n"]);
    let folder = log_of(&server);
    let printed = run_to(0, &["log", "cat", text(&folder)]);
    let lines: Vec<_> =
        printed.lines().map(|line| line.trim_start().trim_start_matches(|c: char| c.is_ascii_digit())).collect();
    let wanted = [
        "  0  BF.RESERVE visitors 0.01 2 EXPANSION 2",
        "  0  MULTI",
        "0  BF.MADD visitors alice bob",
        "0  # visitors grows: a sub-filter for 4 items at 0.0025",
        "0  BF.MADD visitors carol # sub-filter 1",
        "  0  EXEC",
    ];
    for line in wanted {
        let line = line.trim_start();
        assert!(printed.lines().any(|printed| printed.ends_with(line)), "{line}:\n{printed}");
    }
    for line in [
        "PEXPIREAT visitors 4000000000000",
        "2  BF.RESERVE fixed 0.001 100 NONSCALING",
        "2  RENAME fixed moved",
        "2  COPY moved copied DB 3 REPLACE",
        "2  SWAPDB 2 3",
        "2  FLUSHDB",
        "FLUSHALL",
        "BF.MADD \"two words\" \"\\xff\\n\"",
    ] {
        assert!(lines.iter().any(|printed| printed.ends_with(line)), "{line}:\n{printed}");
    }
    // The last unit alone: the filter is made, and its item added.
    let last = lines.iter().rposition(|line| line.ends_with("MULTI")).unwrap();
    let position = printed.lines().nth(last).and_then(|line| line.split_whitespace().next()).unwrap();
    let rest = run_to(0, &["log", "cat", text(&folder), "--from", position]);
    assert!(printed.ends_with(&rest) && rest.lines().count() == 4, "{rest}");
}

#[test]
fn a_folder_without_a_log_and_a_damaged_log_are_told() {
    let empty = tempfile::tempdir().unwrap();
    assert!(run_to(1, &["log", "cat", text(empty.path())]).contains("no log: there is no 'seendb.manifest'"));
    let (_server, folder) = super::check::log_of(40);
    let copy = folder.path().join("appendonlydir");
    super::check::flip(&copy.join("segment-1.log"), 1500);
    let printed = run_to(1, &["log", "cat", text(&copy)]);
    assert!(printed.contains("BF.MADD k item0") && printed.contains("segment-1.log: damage at offset "), "{printed}");
    assert_eq!(run_to(1, &["log", "cat", text(folder.path())]), printed);
    for words in [&["log"][..], &["log", "cat"]] {
        assert!(run_to(2, words).contains("Usage: seendb log cat [OPTIONS] <FOLDER>"), "{words:?}");
    }
}
