//! Dump and load.

use crate::support::{Client, Server, Value, wait_until};
use crate::{manual_says, many, yes};

/// One piece of a dump: the cursor that comes with it and its bytes.
fn piece(client: &mut Client, key: &str, cursor: i64) -> (i64, Vec<u8>) {
    let reply = client.cmd(&format!("BF.SCANDUMP {key} {cursor}"));
    (reply.array()[0].int(), reply.array()[1].bulk().to_vec())
}

fn load(client: &mut Client, key: &str, cursor: i64, data: &[u8]) -> Value {
    client.call(&[b"BF.LOADCHUNK", key.as_bytes(), cursor.to_string().as_bytes(), data])
}

/// Every piece up to the end.
fn dump(client: &mut Client, key: &str) -> Vec<(i64, Vec<u8>)> {
    let mut pieces = Vec::new();
    let mut cursor = 0;
    loop {
        let (next, data) = piece(client, key, cursor);
        if next == 0 {
            return pieces;
        }
        pieces.push((next, data));
        cursor = next;
    }
}

#[test]
fn c062_which_cursor_goes_with_which_chunk() {
    let server = Server::start();
    let mut client = server.client();
    assert!(client.cmd("BF.RESERVE k 0.01 1000") == "OK");
    many(&mut client, "BF.MADD", "k", 0..500);
    let (one, head) = piece(&mut client, "k", 0);
    assert_eq!(one, 1);
    let (end, data) = piece(&mut client, "k", 1);
    assert_eq!((end, data.len()), (1385, 1384));

    assert!(matches!(load(&mut client, "j", 0, &head), Value::Error(_)), "cursor 0 is refused");
    assert!(client.cmd("EXISTS j") == 0);
    assert!(load(&mut client, "j", 1, &head) == "OK");
    assert!(load(&mut client, "j", 1385, &data) == "OK");
    assert_eq!(dump(&mut client, "j"), dump(&mut client, "k"));
    assert_eq!(client.cmd("BF.INFO j"), client.cmd("BF.INFO k"));
    manual_says("the cursor *returned together with* the data");
}

#[test]
fn c084_dump_while_others_write() {
    let server = Server::start();
    let mut client = server.client();
    assert!(client.cmd("BF.RESERVE k 0.01 1000") == "OK");
    assert!(yes(&many(&mut client, "BF.MADD", "k", 0..900)) > 880);
    let mut pieces = vec![piece(&mut client, "k", 0)];
    // Growth in the middle of the dump.
    let mut writer = server.client();
    many(&mut writer, "BF.MADD", "k", 900..3500);
    assert!(client.cmd("BF.INFO k FILTERS").array()[0].int() > 1);
    let mut cursor = 1;
    loop {
        let (next, data) = piece(&mut client, "k", cursor);
        if next == 0 {
            break;
        }
        pieces.push((next, data));
        cursor = next;
    }
    assert_eq!(cursor, 1385, "the dump ends where the filter ended when it began");
    for (cursor, data) in &pieces {
        assert!(load(&mut client, "j", *cursor, data) == "OK");
    }
    assert_eq!(yes(&many(&mut client, "BF.MEXISTS", "j", 0..900)), 900, "what was in at the beginning is in the copy");
    assert_eq!(yes(&many(&mut client, "BF.MEXISTS", "k", 0..3500)), 3500);
    manual_says("A dump under writes");
}

/// The same with writers that do not wait for us: they make about fifty sub-filters while the copies are taken.
#[test]
fn c084_dump_with_writers_at_full_speed() {
    const FIRST: usize = 1_500;
    let server = Server::start();
    let mut client = server.client();
    assert!(client.cmd("BF.RESERVE k 0.01 2000 EXPANSION 1") == "OK");
    many(&mut client, "BF.MADD", "k", 0..FIRST);
    std::thread::scope(|scope| {
        for writer in 1..3 {
            let server = &server;
            scope.spawn(move || {
                let mut client = server.client();
                for batch in 0..500 {
                    let from = writer * 10_000_000 + batch * 100;
                    many(&mut client, "BF.MADD", "k", from..from + 100);
                }
            });
        }
        wait_until("growth", || client.cmd("BF.INFO k FILTERS").array()[0].int() > 1);
        for round in 0..20 {
            let key = format!("copy{round}");
            for (cursor, data) in dump(&mut client, "k") {
                let reply = load(&mut client, &key, cursor, &data);
                assert!(reply == "OK", "round {round}: cursor {cursor}: {reply:?}");
            }
            assert_eq!(yes(&many(&mut client, "BF.MEXISTS", &key, 0..FIRST)), FIRST, "round {round}");
            assert!(client.cmd(&format!("DEL {key}")) == 1);
        }
    });
}
