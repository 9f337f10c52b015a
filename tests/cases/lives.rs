//! How long keys live.

use crate::many;
use crate::support::{Client, Server, Value, wait_until};

/// Milliseconds since 1970.
fn now() -> i64 {
    std::time::UNIX_EPOCH.elapsed().expect("a clock after 1970").as_millis() as i64
}

#[track_caller]
fn figure(client: &mut Client, name: &str) -> i64 {
    let text = client.cmd("INFO").text();
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no number {name} in {text}"))
}

#[test]
fn c097_a_life_ends_all_of_a_key() {
    let server = Server::start();
    let mut client = server.client();
    // What the first keys of a server take once is no part of what a key leaves behind.
    client.cmd("BF.ADD first item");
    assert!(client.cmd("PEXPIRE first 1") == 1);
    wait_until("the first key to go", || client.cmd("DBSIZE") == 0);
    let memory = figure(&mut client, "used_memory");

    assert!(client.cmd("BF.RESERVE k 0.01 1000") == "OK");
    assert!(client.cmd("BF.RESERVE large 0.01 20000000") == "OK");
    assert!(client.cmd("BF.RESERVE grown 0.01 10") == "OK");
    many(&mut client, "BF.MADD", "grown", 0..200_000);
    assert!(client.cmd("BF.INFO grown FILTERS").array()[0].int() > 8);
    let expired = figure(&mut client, "expired_keys");
    for key in ["k", "grown", "large"] {
        assert!(client.cmd(&format!("EXPIRE {key} 1")) == 1);
    }
    assert!(figure(&mut client, "used_memory") > memory + (24 << 20));
    assert!(client.cmd("INFO keyspace").text().contains("db0:keys=3,expires=3,"));
    // Nothing asks for the keys, so nothing but the server itself removes them.
    wait_until("all keys to end", || client.cmd("DBSIZE") == 0);
    assert_eq!(client.cmd("KEYS *"), Value::Array(Vec::new()), "no side key either");
    assert_eq!(client.cmd("INFO keyspace").text(), "# Keyspace\r\n");
    assert_eq!(figure(&mut client, "expired_keys"), expired + 3);
    wait_until("the memory to be given back", || figure(&mut client, "used_memory") < memory + (1 << 20));
    assert!(client.cmd("BF.EXISTS grown item:1") == 0 && client.cmd("BF.CARD k") == 0);
    assert_eq!(client.cmd("BF.INFO large").error(), "ERR not found");
    assert!(client.cmd("BF.ADD k item:1") == 1 && client.cmd("TTL k") == -1, "a new key of that name is a new key");
}

#[test]
fn c132_life_at_creation() {
    let server = Server::start();
    let mut client = server.client();
    let about = |client: &mut Client, key: &str, expected: i64| {
        let left = client.cmd(&format!("PTTL {key}")).int();
        assert!((expected - 30_000..=expected).contains(&left), "{key}: {left} ms left of {expected}");
    };
    assert!(client.cmd("BF.RESERVE k 0.01 1000 EX 60") == "OK");
    about(&mut client, "k", 60_000);
    assert_eq!(client.cmd("BF.INSERT j EX 60 ITEMS a"), Value::Array(vec![Value::Int(1)]));
    about(&mut client, "j", 60_000);
    assert!(client.cmd("BF.RESERVE p 0.01 1000 EXPANSION 4 PX 60000") == "OK");
    about(&mut client, "p", 60_000);
    client.cmd("BF.INSERT q px 60000 CAPACITY 5 NONSCALING ITEMS a");
    about(&mut client, "q", 60_000);
    let end = now() / 1000 + 1000;
    assert!(client.cmd(&format!("BF.RESERVE r 0.01 1000 EXAT {end} NONSCALING")) == "OK");
    client.cmd(&format!("BF.INSERT s CAPACITY 5 PXAT {end}123 ITEMS a"));
    assert!(client.cmd("PEXPIRETIME r") == end * 1000 && client.cmd("PEXPIRETIME s") == end * 1000 + 123);

    // On a live key the life is left alone, and so is none.
    assert!(client.cmd(&format!("PEXPIREAT j {end}456")) == 1);
    assert_eq!(client.cmd("BF.INSERT j EX 5 ITEMS b"), Value::Array(vec![Value::Int(1)]));
    assert!(client.cmd("PEXPIRETIME j") == end * 1000 + 456);
    assert_eq!(client.cmd("BF.RESERVE j 0.01 1000 EX 5").error(), "ERR item exists");
    assert!(client.cmd("PEXPIRETIME j") == end * 1000 + 456);
    client.cmd("PERSIST j");
    client.cmd("BF.INSERT j EX 5 ITEMS c");
    assert!(client.cmd("TTL j") == -1);

    // Without the option as RedisBloom.
    for line in ["BF.RESERVE a 0.01 1000", "BF.INSERT b ITEMS a", "BF.ADD c a", "BF.MADD d a"] {
        client.cmd(line);
        assert!(client.cmd(&format!("TTL {}", line.split(' ').nth(1).unwrap())) == -1, "{line}");
    }
}

#[test]
fn c132_lives_that_are_refused() {
    let server = Server::start();
    let mut client = server.client();
    let past = now() - 1000;
    let texts = [
        ("EX 0", "invalid"),
        ("EX -1", "invalid"),
        ("PX 0", "invalid"),
        ("EX 9223372036854775807", "invalid"),
        ("PXAT 9223372036854775807", "invalid"),
        ("EXAT 1", "invalid"),
        ("EX x", "ERR value is not an integer or out of range"),
        ("EX 1.5", "ERR value is not an integer or out of range"),
    ];
    for (option, text) in texts.into_iter().chain([(&*format!("PXAT {past}"), "invalid")]) {
        for (command, line) in [
            ("bf.reserve", format!("BF.RESERVE k 0.01 1000 {option}")),
            ("bf.insert", format!("BF.INSERT k {option} ITEMS a")),
        ] {
            let expected = match text {
                "invalid" => format!("ERR invalid expire time in '{command}' command"),
                text => text.to_string(),
            };
            assert_eq!(crate::refused(&mut client, &line), expected, "{line}");
        }
    }
    for option in ["EX", "EX 5 EX 5", "EX 5 PX 5", "PXAT 9999999999999 EX 5", "KEEPTTL"] {
        crate::refused(&mut client, &format!("BF.RESERVE k 0.01 1000 {option}"));
        if option != "EX" {
            crate::refused(&mut client, &format!("BF.INSERT k {option} ITEMS a"));
        }
    }
    // A word behind ITEMS is an item.
    assert_eq!(client.cmd("BF.INSERT k ITEMS EX 60").array().len(), 2);
    assert!(client.cmd("TTL k") == -1);
}
