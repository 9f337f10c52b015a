//! What transactions do that the peer cannot be asked for: copies, and the bookkeeping of those that take their keys out.

use crate::support::{Client, Server, Value};

/// Queues the commands and runs them.
#[track_caller]
fn exec(client: &mut Client, lines: &[&str]) -> Vec<Value> {
    assert!(client.cmd("MULTI") == "OK");
    lines.iter().for_each(|line| assert!(client.cmd(line) == "QUEUED", "{line}"));
    client.cmd("EXEC").array().to_vec()
}

#[track_caller]
fn assert_ints(replies: &[Value], expected: &[i64]) {
    assert_eq!(replies, expected.iter().map(|n| Value::Int(*n)).collect::<Vec<_>>());
}

#[test]
fn a_copy_in_a_transaction_is_seen_by_what_follows() {
    let server = Server::start();
    let mut client = server.client();
    client.cmd("BF.ADD a item");
    client.cmd("PEXPIREAT a 9999999999999");
    let lines = ["COPY a b", "BF.ADD b more", "BF.CARD a", "BF.CARD b", "COPY b a", "COPY b a REPLACE", "BF.CARD a"];
    assert_ints(&exec(&mut client, &lines), &[1, 1, 1, 2, 0, 1, 2]);
    assert_ints(
        &exec(&mut client, &["PEXPIRETIME a", "PEXPIRETIME b", "DBSIZE"]),
        &[9_999_999_999_999, 9_999_999_999_999, 2],
    );
    let lines = ["COPY a c DB 3", "RENAME a d", "COPY d a", "DEL d", "MOVE a 2", "EXISTS a b c d"];
    let replies = exec(&mut client, &lines);
    assert!(replies[1] == "OK");
    assert_ints(&[&replies[..1], &replies[2..]].concat(), &[1, 1, 1, 1, 1]);
    for (db, key) in [("SELECT 3", "BF.CARD c"), ("SELECT 2", "BF.CARD a")] {
        client.cmd(db);
        assert!(client.cmd(key) == 2 && client.cmd("DBSIZE") == 1, "{db}");
    }
}

/// [regression] The transaction kept the database of the first `DB` ready, the copy went to that of the last, and was lost.
#[test]
fn of_several_databases_for_a_copy_the_last_counts() {
    let server = Server::start();
    let mut client = server.client();
    client.cmd("BF.ADD a item");
    assert_ints(&exec(&mut client, &["COPY a b DB 1 DB 2", "COPY a b REPLACE DB 4 DB 4 DB 3"]), &[1, 1]);
    for (db, there) in [(0, 0), (1, 0), (2, 1), (3, 1), (4, 0)] {
        client.cmd(&format!("SELECT {db}"));
        assert!(client.cmd("EXISTS b") == there && client.cmd("DBSIZE") == i64::from(db == 0) + there, "database {db}");
    }
}

/// [regression] A `SELECT` of a database that is not there was followed to some other one, and the keys of a long transaction
/// got lost.
#[test]
fn a_refused_select_changes_nothing_for_the_commands_after_it() {
    let server = Server::start();
    let mut client = server.client();
    for select in ["SELECT 99", "SELECT -1", "SELECT x", "SELECT 16"] {
        client.cmd("FLUSHALL");
        client.cmd("BF.ADD a item");
        // DUMP makes it one that takes its keys out.
        let replies = exec(&mut client, &["DUMP a", select, "BF.ADD a item", "BF.ADD a more", "BF.ADD b item"]);
        replies[1].error();
        assert_ints(&replies[2..], &[0, 1, 1]);
        assert!(client.cmd("DBSIZE") == 2 && client.cmd("BF.CARD a") == 2 && client.cmd("BF.CARD b") == 1, "{select}");
    }
    let replies = exec(&mut client, &["DUMP a", "SELECT 5", "BF.ADD a item", "SELECT 99", "BF.ADD a more"]);
    assert_ints(&[replies[2].clone(), replies[4].clone()], &[1, 1]);
    assert!(client.cmd("BF.CARD a") == 2 && client.cmd("DBSIZE") == 1, "database 5 stays selected");
}

/// [regression] Copying a key looked like changing it.
#[test]
fn a_copy_changes_its_target_only() {
    let server = Server::start();
    let (mut client, mut other) = (server.client(), server.client());
    client.cmd("BF.ADD from item");
    for (watched, done) in [("from", true), ("to", false)] {
        client.cmd(&format!("WATCH {watched}"));
        assert!(other.cmd("COPY from to REPLACE") == 1);
        client.cmd("MULTI");
        assert_eq!(client.cmd("EXEC") != Value::Null, done, "WATCH {watched}");
    }
}

/// [regression] Those who watch a key did not hear of long transactions.
#[test]
fn a_long_transaction_changes_what_others_watch() {
    let server = Server::start();
    let (mut client, mut other) = (server.client(), server.client());
    client.cmd("BF.ADD a item");
    for (watched, lines, done) in [
        ("a", ["DUMP a", "BF.ADD a more"], false),
        ("a", ["DUMP a", "BF.ADD a more"], true),
        ("b", ["DUMP a", "BF.ADD b item"], false),
        ("b", ["DUMP a", "RENAME b c"], false),
        ("a", ["DUMP a", "DUMP c"], true),
    ] {
        client.cmd(&format!("WATCH {watched}"));
        exec(&mut other, &lines);
        client.cmd("MULTI");
        assert_eq!(client.cmd("EXEC") != Value::Null, done, "WATCH {watched}, then {lines:?}");
    }
}

#[test]
fn with_the_wrong_number_of_words_nothing_is_queued() {
    let server = Server::start();
    let mut client = server.client();
    client.cmd("MULTI");
    assert_eq!(client.cmd("BF.ADD k").error(), "ERR wrong number of arguments for 'bf.add' command");
    assert!(client.cmd("BF.ADD k item") == "QUEUED");
    assert_eq!(client.cmd("EXEC").error(), "EXECABORT Transaction discarded because of previous errors.");
    assert!(client.cmd("EXISTS k") == 0);
}

/// [regression] Only queueing looked at the memory limit.
#[test]
fn a_transaction_that_needs_memory_is_refused_at_the_limit_as_in_redis() {
    let (ours, theirs) = (Server::start(), Server::peer());
    for server in [&ours, &theirs] {
        let (mut client, mut admin) = (server.client(), server.client());
        client.cmd("BF.ADD there item");
        for (line, refused) in [("BF.ADD k item", true), ("DEL there", false)] {
            assert!(client.cmd("MULTI") == "OK" && client.cmd(line) == "QUEUED");
            assert!(admin.cmd("CONFIG SET maxmemory 1") == "OK");
            let reply = client.cmd("EXEC");
            assert!(admin.cmd("CONFIG SET maxmemory 0") == "OK");
            const REFUSED: &str =
                "EXECABORT Transaction discarded because of: OOM command not allowed when used memory > 'maxmemory'.";
            assert_eq!(reply == REFUSED, refused, "{line}: {reply:?}");
            assert_eq!(client.cmd("EXEC").error(), "ERR EXEC without MULTI");
        }
        assert!(client.cmd("EXISTS k there") == 0);
    }
}

/// Each reply is in the protocol of its moment.
#[test]
fn the_protocol_changes_inside() {
    let server = Server::start();
    let mut client = server.client();
    let replies = exec(&mut client, &["BF.ADD k a", "HELLO 3", "BF.ADD k b", "HELLO 2", "BF.ADD k c"]);
    assert!(replies[0] == 1 && replies[2] == Value::Bool(true) && replies[4] == 1, "{replies:?}");
    assert!(matches!((&replies[1], &replies[3]), (Value::Map(_), Value::Array(_))), "{replies:?}");
}
