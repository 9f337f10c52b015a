//! When lives end, and what carries them: no random here, and no sleeping. What a reply must be follows from the clock before
//! and after it.

use crate::support::{Client, Server, Value, wait_until};

/// Milliseconds since 1970.
fn now() -> i64 {
    std::time::UNIX_EPOCH.elapsed().expect("a clock after 1970").as_millis() as i64
}

/// Waits until a moment is over.
fn pass(moment: i64) {
    wait_until("a moment to pass", || now() > moment);
}

fn life(client: &mut Client, key: &str) -> i64 {
    client.cmd(&format!("PEXPIRETIME {key}")).int()
}

/// Lets a key end soon, and waits until its time is over, with nothing in between that would remove it.
fn ended(client: &mut Client, key: &str) {
    client.cmd(&format!("BF.ADD {key} item"));
    let end = now() + 3;
    assert!(client.cmd(&format!("PEXPIREAT {key} {end}")) == 1);
    pass(end);
}

#[test]
fn a_key_is_there_to_its_last_millisecond_and_no_longer() {
    let server = Server::start();
    let mut client = server.client();
    for (milliseconds, question, there, gone) in
        [(40, "EXISTS k", 1, 0), (25, "BF.EXISTS k item", 1, 0), (60, "BF.CARD k", 1, 0), (30, "PERSIST nosuch", 0, 0)]
    {
        client.cmd("BF.ADD k item");
        assert!(client.cmd(&format!("PEXPIRE k {milliseconds}")) == 1);
        let end = life(&mut client, "k");
        loop {
            let before = now();
            let answer = client.cmd(question).int();
            let after = now();
            // A key whose last millisecond has begun may have been asked for in either.
            assert!(after >= end || answer == there, "{question}: gone {} ms early", end - after);
            assert!(before < end || answer == gone, "{question}: there {} ms late", before - end);
            if before >= end {
                break;
            }
        }
        assert!(client.cmd("PTTL k") == -2 && client.cmd("TYPE k") == "none" && client.cmd("DEL k") == 0);
    }
}

#[test]
fn what_is_left_is_rounded_as_redis_does() {
    let server = Server::start();
    let mut client = server.client();
    client.cmd("BF.ADD k item");
    for ahead in [1_499, 1_501, 9_999, 60_500, 86_400_000] {
        let end = now() + ahead;
        assert!(client.cmd(&format!("PEXPIREAT k {end}")) == 1);
        let before = now();
        let (seconds, milliseconds) = (client.cmd("TTL k").int(), client.cmd("PTTL k").int());
        let after = now();
        let rounded = |milliseconds: i64| (milliseconds + 500) / 1000;
        assert!((rounded(end - after)..=rounded(end - before)).contains(&seconds), "TTL {seconds}, {ahead} ms ahead");
        assert!((end - after..=end - before).contains(&milliseconds), "PTTL {milliseconds}, {ahead} ms ahead");
        assert!(life(&mut client, "k") == end && client.cmd("EXPIRETIME k") == rounded(end));
    }
    for (command, unit) in [("EXPIRE", 1000), ("PEXPIRE", 1)] {
        let before = now();
        assert!(client.cmd(&format!("{command} k 5000")) == 1);
        let end = life(&mut client, "k");
        assert!((before + 5000 * unit..=now() + 5000 * unit).contains(&end), "{command}: {end}");
    }
}

#[test]
fn a_moment_that_is_over_deletes() {
    let server = Server::start();
    let mut client = server.client();
    for command in ["EXPIRE k 0", "EXPIRE k -1", "PEXPIRE k 0", "PEXPIRE k -100000", "EXPIREAT k 1", "PEXPIREAT k 0"] {
        client.cmd("BF.ADD k item");
        assert!(client.cmd(command) == 1 && client.cmd("EXISTS k") == 0, "{command}");
        assert!(client.cmd(command) == 0, "{command} on a missing key");
        client.cmd("BF.ADD k item");
        assert!(client.cmd(&format!("{command} XX")) == 0 && client.cmd("EXISTS k") == 1, "{command} XX");
        assert!(client.cmd(&format!("{command} LT")) == 1 && client.cmd("EXISTS k") == 0, "{command} LT");
    }
}

#[test]
fn commands_on_the_value_leave_the_life() {
    let server = Server::start();
    let mut client = server.client();
    assert!(client.cmd("BF.RESERVE k 0.01 4") == "OK");
    let end = now() + 1_000_000;
    client.cmd(&format!("PEXPIREAT k {end}"));
    client.cmd("BF.ADD k item");
    assert_eq!(crate::many(&mut client, "BF.MADD", "k", 300).len(), 300);
    assert!(client.cmd("BF.INFO k FILTERS").array()[0].int() > 4, "it has grown");
    client.cmd("BF.INSERT k EX 5 ITEMS more");
    client.cmd("BF.RESERVE k 0.01 4 EX 5");
    let header = client.cmd("BF.SCANDUMP k 0").array()[1].bulk().to_vec();
    let chunk = client.cmd("BF.SCANDUMP k 1");
    let (cursor, data) = (chunk.array()[0].int().to_string(), chunk.array()[1].bulk().to_vec());
    assert!(client.call(&[b"BF.LOADCHUNK", &b"k"[..], cursor.as_bytes(), &data]) == "OK");
    assert_eq!(life(&mut client, "k"), end);

    // A header makes the key, so one on a name whose life is over begins without one.
    ended(&mut client, "j");
    assert!(client.call(&[b"BF.LOADCHUNK", &b"j"[..], b"1", &header]) == "OK");
    assert_eq!(life(&mut client, "j"), -1);
    client.cmd("DEL k");
    client.cmd("BF.ADD k item");
    assert_eq!(life(&mut client, "k"), -1, "a new key has none");
}

#[test]
fn a_large_filter_keeps_its_life_while_it_is_worked_on() {
    let server = Server::start();
    let mut client = server.client();
    assert!(client.cmd("BF.RESERVE k 0.01 3000000") == "OK");
    let end = now() + 1_000_000;
    client.cmd(&format!("PEXPIREAT k {end}"));
    // These take long: the key is taken out of its table and comes back.
    crate::many(&mut client, "BF.MADD", "k", 100_000);
    assert!(client.cmd("COPY k j") == 1 && client.cmd("COPY k j DB 3 REPLACE") == 1);
    let payload = client.cmd("DUMP k").bulk().to_vec();
    let ends = end.to_string();
    assert!(client.call(&[b"RESTORE", &b"r"[..], ends.as_bytes(), &payload, b"ABSTTL"]) == "OK");
    for key in ["k", "j", "r"] {
        assert_eq!(life(&mut client, key), end, "{key}");
        assert!(client.cmd(&format!("BF.CARD {key}")).int() > 99_000);
    }
    assert!(client.cmd(&format!("PEXPIREAT k {}", now() + 20)) == 1);
    wait_until("the keys of the first database to end but two", || client.cmd("DBSIZE") == 2);
}

#[test]
fn moves_carry_the_life() {
    let server = Server::start();
    let mut client = server.client();
    let end = now() + 1_000_000;
    let make = |client: &mut Client, key: &str, end: Option<i64>| {
        client.cmd(&format!("DEL {key}"));
        client.cmd(&format!("BF.ADD {key} {key}"));
        end.into_iter().for_each(|end| assert!(client.cmd(&format!("PEXPIREAT {key} {end}")) == 1));
    };
    for to_end in [None, Some(end + 500_000)] {
        for own_end in [None, Some(end)] {
            for command in ["RENAME a b", "COPY a b REPLACE"] {
                make(&mut client, "a", own_end);
                make(&mut client, "b", to_end);
                client.cmd(command);
                assert_eq!(life(&mut client, "b"), own_end.unwrap_or(-1), "{command}");
                assert!(client.cmd("BF.EXISTS b a") == 1 && client.cmd("BF.EXISTS b b") == 0, "{command}");
            }
        }
    }
    make(&mut client, "a", Some(end));
    client.cmd("DEL b");
    assert!(client.cmd("RENAMENX a b") == 1 && life(&mut client, "b") == end);
    assert!(client.cmd("RENAME b b") == "OK" && life(&mut client, "b") == end, "to itself");
    assert!(client.cmd("MOVE b 1") == 1 && client.cmd("SWAPDB 1 2") == "OK" && client.cmd("SELECT 2") == "OK");
    assert_eq!(life(&mut client, "b"), end);

    // RESTORE gives the life that it was told, whatever the key it replaces had.
    let payload = client.cmd("DUMP b").bulk().to_vec();
    let mut restore = |life: &str, words: &[&str]| {
        let mut command: Vec<&[u8]> = vec![b"RESTORE", b"b", life.as_bytes(), &payload, b"REPLACE"];
        command.extend(words.iter().map(|word| word.as_bytes()));
        client.call(&command)
    };
    assert!(restore(&(end + 7).to_string(), &["ABSTTL"]) == "OK");
    let before = now();
    assert!(restore("50000", &[]) == "OK");
    assert!(restore("1", &["ABSTTL"]) == "OK", "over already: deletes");
    assert!(client.cmd("EXISTS b") == 0);
    let mut restore = |life: &str| client.call(&[b"RESTORE", &b"b"[..], life.as_bytes(), &payload, b"REPLACE"]);
    assert!(restore("50000") == "OK");
    let mut other = server.client();
    other.cmd("SELECT 2");
    assert!((before + 50_000..=now() + 50_000).contains(&life(&mut other, "b")));
    assert!(restore("0") == "OK" && life(&mut other, "b") == -1, "0 is none");
}

#[test]
fn a_key_whose_life_is_over_is_not_there_for_any_command() {
    let server = Server::start();
    let mut client = server.client();
    client.cmd("BF.ADD live item");
    let payload = client.cmd("DUMP live").bulk().to_vec();
    for (command, reply) in [
        ("RENAME k other", Value::Error("ERR no such key".into())),
        ("RENAME k k", Value::Error("ERR no such key".into())),
        ("COPY k other", Value::Int(0)),
        ("MOVE k 1", Value::Int(0)),
        ("DUMP k", Value::Null),
        ("EXPIRE k 100", Value::Int(0)),
        ("PERSIST k", Value::Int(0)),
        ("EXISTS k k", Value::Int(0)),
        ("TOUCH k", Value::Int(0)),
        ("UNLINK k", Value::Int(0)),
        ("TTL k", Value::Int(-2)),
        ("BF.INFO k", Value::Error("ERR not found".into())),
        ("BF.INSERT k NOCREATE ITEMS a", Value::Error("ERR not found".into())),
        ("BF.RESERVE k 0.01 100", Value::Simple("OK".into())),
        ("BF.ADD k item", Value::Int(1)),
        ("RENAMENX live k", Value::Int(1)),
        ("KEYS k", Value::Array(Vec::new())),
    ] {
        client.cmd("BF.ADD live item");
        client.cmd("DEL k");
        ended(&mut client, "k");
        assert_eq!(client.cmd(command), reply, "{command}");
        assert!(client.cmd("EXISTS other") == 0 && life(&mut client, "k") < 0, "{command}");
    }
    ended(&mut client, "k");
    assert!(client.call(&[b"RESTORE", &b"k"[..], b"0", &payload]) == "OK", "no REPLACE is needed");
    // The place in the other database is free again, too.
    client.cmd("SELECT 1");
    ended(&mut client, "k");
    client.cmd("SELECT 0");
    assert!(client.cmd("MOVE k 1") == 1 && client.cmd("EXISTS k") == 0);
}

#[test]
fn a_watched_key_that_ends_is_changed_and_one_that_had_ended_is_not() {
    let server = Server::start();
    let mut client = server.client();
    // On a busy machine the life may be over before the key is watched: then a longer one.
    let end = (4..20).find_map(|power| {
        client.cmd("UNWATCH");
        client.cmd("BF.ADD k item");
        let end = now() + (1 << power);
        client.cmd(&format!("PEXPIREAT k {end}"));
        assert!(client.cmd("WATCH k") == "OK");
        (now() < end).then_some(end)
    });
    let end = end.expect("a minute is enough for three commands");
    client.cmd("MULTI");
    client.cmd("BF.ADD other item");
    pass(end);
    assert_eq!(client.cmd("EXEC"), Value::Null);
    assert!(client.cmd("EXISTS other") == 0);

    ended(&mut client, "k");
    assert!(client.cmd("WATCH k") == "OK");
    client.cmd("MULTI");
    client.cmd("EXISTS k");
    assert_eq!(client.cmd("EXEC"), Value::Array(vec![Value::Int(0)]));
}

#[test]
fn a_life_may_end_within_a_transaction() {
    let server = Server::start();
    let mut client = server.client();
    client.cmd("MULTI");
    for command in ["BF.ADD k item", "PEXPIRE k -1", "EXISTS k", "BF.ADD k item", "EXPIRE k 100", "PERSIST k", "TTL k"]
    {
        assert!(client.cmd(command) == "QUEUED");
    }
    let replies: Vec<i64> = client.cmd("EXEC").array().iter().map(Value::int).collect();
    assert_eq!(replies, [1, 1, 0, 1, 1, 1, -1]);
}

/// Who saw a key missing does not find it counted afterwards, whether he asked alone or in a transaction.
#[test]
fn what_was_seen_to_be_gone_is_not_counted() {
    let server = Server::start();
    let mut client = server.client();
    for question in ["EXISTS k", "BF.EXISTS k item", "TTL k", "TOUCH k", "BF.MEXISTS k item"] {
        ended(&mut client, "k");
        client.cmd(question);
        assert!(client.cmd("DBSIZE") == 0, "{question}");
        ended(&mut client, "k");
        client.send(format!("MULTI\r\n{question}\r\nDBSIZE\r\nEXEC\r\n").as_bytes());
        (0..3).for_each(|_| drop(client.read()));
        assert!(client.read().array()[1] == 0, "{question} in a transaction");
    }
}

/// A key that has ended does not come by an exchange of databases, so who watches its name there hears nothing.
#[test]
fn an_exchange_brings_no_ended_key() {
    let server = Server::start();
    let mut client = server.client();
    for stale_here in [false, true] {
        ended(&mut client, "x");
        client.cmd("SELECT 1");
        if stale_here {
            ended(&mut client, "x");
        }
        client.cmd("WATCH x");
        client.cmd("SWAPDB 0 1");
        client.cmd("MULTI");
        client.cmd("PING");
        let reply = client.cmd("EXEC");
        assert!(matches!(&reply, Value::Array(replies) if replies.len() == 1), "{stale_here}: {reply:?}");
        client.cmd("SELECT 0");
    }
    // One that is watched and ends then is gone for him who watches it.
    client.cmd("BF.ADD x item");
    let end = now() + 3;
    client.cmd(&format!("PEXPIREAT x {end}"));
    client.cmd("WATCH x");
    pass(end);
    client.cmd("MULTI");
    client.cmd("PING");
    assert_eq!(client.cmd("EXEC"), Value::Null);
}
