//! Filters there and back.

use super::support::{Random, Server, Value};
use super::{all_seen, assert_same, copy_all, copy_fails, make_random, seen, tool, url};
use std::time::Duration;

#[test]
fn c135_filters_go_from_redis_to_seendb_and_back() {
    let count = std::env::var("SEENDB_COPY_FILTERS").map_or(300, |count| count.parse().expect("a number"));
    let (first, ours, last) = (Server::peer(), Server::start(), Server::peer());
    let mut client = first.client();
    let random = &mut Random::new(135);
    for number in 0..count {
        make_random(&mut client, random, number);
    }
    client.cmd("SET text 1");
    client.cmd("CF.ADD cuckoo item");
    let before = all_seen(&mut client);

    let text = copy_all(&url(first.port()), &url(ours.port()), &[]);
    assert!(text.contains(&format!("filters copied: {count}, ")), "{text}");
    assert!(text.contains("keys of other types, left where they are: 2\n"), "{text}");
    eprint!("Redis to SeenDB: {text}");
    assert_same(&before, &all_seen(&mut ours.client()));

    let text = copy_all(&url(ours.port()), &url(last.port()), &[]);
    assert!(text.contains(&format!("filters copied: {count}, ")) && !text.contains("other types"), "{text}");
    eprint!("SeenDB to Redis: {text}");
    let mut back = last.client();
    assert_same(&before, &all_seen(&mut back));
    for key in before.keys() {
        let dump = [&b"DUMP"[..], key];
        assert!(client.call(&dump) == back.call(&dump), "DUMP {} differs", key.escape_ascii());
    }
}

#[test]
fn both_ends_may_be_of_one_kind() {
    for (from, to) in [(Server::peer(), Server::peer()), (Server::start(), Server::start())] {
        let (mut client, random) = (from.client(), &mut Random::new(136));
        for number in 0..50 {
            make_random(&mut client, random, number);
        }
        copy_all(&url(from.port()), &url(to.port()), &[]);
        assert_same(&all_seen(&mut client), &all_seen(&mut to.client()));
    }
}

#[test]
fn pieces_give_the_same_filters() {
    let (first, ours, last) = (Server::peer(), Server::start(), Server::peer());
    let (mut client, random) = (first.client(), &mut Random::new(62));
    for number in 0..60 {
        make_random(&mut client, random, number);
    }
    // Several pieces of one sub-filter, and a chain of several.
    client.cmd("BF.RESERVE large 0.01 30000000");
    client.cmd("BF.MADD large a b c");
    client.cmd("PEXPIRE large 100000000");
    client.cmd("BF.RESERVE chain 0.01 3 EXPANSION 1");
    (0..40).for_each(|i| drop(client.cmd(&format!("BF.ADD chain {i}"))));
    let before = all_seen(&mut client);
    let all_in_pieces = ["--pieces-from", "0"];
    copy_all(&url(first.port()), &url(ours.port()), &all_in_pieces);
    assert_same(&before, &all_seen(&mut ours.client()));
    copy_all(&url(ours.port()), &url(last.port()), &all_in_pieces);
    assert_same(&before, &all_seen(&mut last.client()));
    // Nothing is left under another name.
    assert_eq!(ours.client().cmd("DBSIZE"), before.len() as i64);
    assert_eq!(last.client().cmd("DBSIZE"), before.len() as i64);
}

/// A word of a request may be shorter than a piece.
#[test]
fn a_target_of_short_words_gets_short_pieces() {
    let (from, to) = (Server::start(), Server::with(&["--proto-max-bulk-len", "1mb"]));
    let mut client = from.client();
    client.cmd("BF.RESERVE k 0.01 3000000");
    client.cmd("BF.MADD k a b c");
    copy_all(&url(from.port()), &url(to.port()), &[]);
    assert_same(&all_seen(&mut client), &all_seen(&mut to.client()));
}

/// 207 MB of bits, in less than a third of that.
#[test]
fn a_large_filter_needs_little_memory() {
    let (from, to) = (Server::start(), Server::start());
    let mut client = from.client();
    client.cmd("BF.RESERVE large 0.01 150000000");
    client.cmd("BF.MADD large a b c");
    let mut child = tool(&[&url(from.port()), &url(to.port())]).spawn().expect("the program starts");
    let mut most_kib = 0;
    while child.try_wait().expect("the child can be asked").is_none() {
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        most_kib = most_kib.max(kib.unwrap_or(0));
        std::thread::sleep(Duration::from_millis(2));
    }
    let output = child.wait_with_output().expect("the child's output");
    assert!(output.status.success(), "{output:?}");
    assert!((1..66 << 10).contains(&most_kib), "{most_kib} KiB");
    assert!(seen(&mut client, b"large") == seen(&mut to.client(), b"large"));
}

/// Redis before 7.0 does not say when a key ends.
#[test]
fn lives_come_from_servers_that_tell_only_what_is_left() {
    let (from, to) = (Server::peer_with(&["--rename-command", "PEXPIRETIME", ""]), Server::start());
    let (mut old, mut ours) = (from.client(), to.client());
    old.cmd("BF.ADD k item");
    old.cmd("PEXPIREAT k 4000000000123");
    old.cmd("BF.ADD endless item");
    copy_all(&url(from.port()), &url(to.port()), &[]);
    let ends = ours.cmd("PEXPIRETIME k").int();
    assert!((ends - 4_000_000_000_123).abs() <= 2, "{ends}");
    assert_eq!(ours.cmd("PEXPIRETIME endless"), -1);
}

#[test]
fn keys_that_are_there_are_replaced_only_when_asked() {
    let (from, to) = (Server::start(), Server::start());
    let (mut source, mut target) = (from.client(), to.client());
    for key in ["a", "b", "c"] {
        source.call(&["BF.MADD", key, "new", "items"]);
    }
    target.cmd("BF.ADD b old");
    target.cmd("PEXPIRE b 100000000");
    let before = seen(&mut target, b"b");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("progress");
    let resume = ["--resume", file.to_str().unwrap()];
    for more in [&[][..], &["--pieces-from", "0"], &resume, &["--pieces-from", "0", resume[0], resume[1]]] {
        target.cmd("DEL a c");
        let _ = std::fs::remove_file(&file);
        let text = copy_fails(&url(from.port()), &url(to.port()), more);
        assert!(text.contains("filters copied: 2, ") && text.contains("failed: 1\n  \"b\": exists"), "{text}");
        assert!(before == seen(&mut target, b"b"));
    }
    for pieces in ["64mb", "0"] {
        copy_all(&url(from.port()), &url(to.port()), &["--replace", "--pieces-from", pieces]);
        assert_same(&all_seen(&mut source), &all_seen(&mut target));
        target.cmd("BF.ADD b old");
    }
}

#[test]
fn a_pattern_and_a_database_choose_keys() {
    let (from, to) = (Server::start(), Server::peer_with(&["--requirepass", "p@ss word"]));
    let (mut source, mut target) = (from.client(), to.client());
    source.cmd("BF.ADD user:0 elsewhere");
    source.cmd("SELECT 2");
    for key in ["user:1", "user:2", "order:1"] {
        source.call(&["BF.ADD", key, "item"]);
    }
    let with_db = |port, login: &str, db| format!("redis://{login}127.0.0.1:{port}/{db}");
    let (from, to) = (with_db(from.port(), "", 2), with_db(to.port(), "default:p%40ss%20word@", 3));
    let text = copy_all(&from, &to, &["--match", "user:*"]);
    assert!(text.contains("filters copied: 2, ") && !text.contains("other types"), "{text}");
    target.call(&["AUTH", "p@ss word"]);
    assert_eq!(target.cmd("DBSIZE"), 0);
    target.cmd("SELECT 3");
    let mut names: Vec<_> = target.cmd("KEYS *").array().iter().map(Value::text).collect();
    names.sort();
    assert_eq!(names, ["user:1", "user:2"]);
}
