//! Checks and items, INFO and counts, and the shapes of replies in both protocols.

use crate::support::{Server, Value};
use crate::{manual_says, many, yes};

#[test]
fn c041_as_many_answers_as_items() {
    let server = Server::start();
    let mut client = server.client();
    many(&mut client, "BF.MADD", "live", 0..10);
    for key in ["live", "missing"] {
        assert_eq!(many(&mut client, "BF.MEXISTS", key, 0..1000).len(), 1000, "{key}");
        assert!(client.cmd("PING") == "PONG");
    }
    assert_eq!(yes(&many(&mut client, "BF.MEXISTS", "missing", 0..1000)), 0);
    assert_eq!(yes(&many(&mut client, "BF.MEXISTS", "live", 0..10)), 10);
}

#[test]
fn c045_missing_key() {
    let server = Server::start();
    for (protocol, no) in [(2, Value::Int(0)), (3, Value::Bool(false))] {
        let mut client = server.client();
        client.hello(protocol);
        assert_eq!(client.cmd("BF.EXISTS none a"), no);
        assert_eq!(client.cmd("BF.MEXISTS none a b"), Value::Array(vec![no.clone(), no]));
        assert_eq!(client.cmd("BF.CARD none"), Value::Int(0));
        assert_eq!(client.cmd("BF.INFO none").error(), "ERR not found");
        assert_eq!(client.cmd("BF.SCANDUMP none 0").error(), "ERR not found");
        assert!(client.cmd("EXISTS none") == 0);
    }
}

#[test]
fn c125_no_deletion_in_a_plain_filter() {
    let server = Server::start();
    let mut client = server.client();
    client.cmd("BF.ADD k a");
    let reply = client.cmd("BF.DEL k a");
    assert!(reply.error().starts_with("ERR unknown command 'BF.DEL', with args beginning with:"), "{reply:?}");
    assert!(client.cmd("BF.EXISTS k a") == 1);
    manual_says("There is no `BF.DEL`");
}

#[test]
fn c016_expansion_of_a_non_scaling_filter_in_info() {
    let server = Server::start();
    let (mut two, mut three) = (server.client(), server.client3());
    assert!(two.cmd("BF.RESERVE k 0.0001 10000 NONSCALING") == "OK");
    let (raw, _) = two.call_raw(&["BF.INFO", "k"]);
    assert!(raw.ends_with(b"+Expansion rate\r\n$-1\r\n"), "{}", raw.escape_ascii());
    let (raw, _) = three.call_raw(&["BF.INFO", "k"]);
    assert!(raw.ends_with(b"+Expansion rate\r\n_\r\n"), "{}", raw.escape_ascii());
    assert_eq!(two.call_raw(&["BF.INFO", "k", "EXPANSION"]).0, b"*1\r\n$-1\r\n");
}

#[test]
fn c144_number_of_items_in_one_command() {
    let server = Server::start();
    let mut client = server.client();
    for item in ["a", "b", "a"] {
        client.cmd(&format!("BF.ADD k {item}"));
    }
    assert!(client.cmd("BF.CARD k") == 2);
    assert!(client.cmd("BF.CARD missing") == 0);
    assert_eq!(client.cmd("BF.INFO k ITEMS"), Value::Array(vec![Value::Int(2)]));
}

#[test]
fn c049_empty_list_or_null() {
    let server = Server::start();
    for protocol in [2, 3] {
        let mut client = server.client();
        client.hello(protocol);
        assert_eq!(client.call_raw(&["SCAN", "0"]).0, b"*2\r\n$1\r\n0\r\n*0\r\n");
        let (nothing, _) = client.call_raw(&["CONFIG", "GET", "nosuch"]);
        assert_eq!(nothing, if protocol == 2 { b"*0\r\n" } else { b"%0\r\n" });
        client.cmd("BF.ADD k a");
        assert_eq!(client.call_raw(&["BF.SCANDUMP", "k", "145"]).0, b"*2\r\n:0\r\n$0\r\n\r\n");
        client.cmd("DEL k");
    }
}

#[test]
fn c051_booleans_by_protocol() {
    let server = Server::start();
    let (mut two, mut three) = (server.client(), server.client3());
    for (protocol, client) in [(2, &mut two), (3, &mut three)] {
        let (yes, no) = if protocol == 2 { (":1\r\n", ":0\r\n") } else { ("#t\r\n", "#f\r\n") };
        client.cmd("DEL k");
        client.cmd("BF.RESERVE k 0.01 3 NONSCALING");
        let mut is = |line: &str, reply: String| {
            let (raw, _) = client.call_raw(&line.split(' ').collect::<Vec<_>>());
            assert_eq!(String::from_utf8_lossy(&raw), reply, "RESP{protocol}: {line}");
        };
        is("BF.ADD k a", yes.into());
        is("BF.ADD k a", no.into());
        is("BF.MADD k a b", format!("*2\r\n{no}{yes}"));
        is("BF.EXISTS k a", yes.into());
        is("BF.EXISTS k z", no.into());
        is("BF.MEXISTS k a z", format!("*2\r\n{yes}{no}"));
        is("BF.INSERT k ITEMS a c d", format!("*3\r\n{no}{yes}-ERR non scaling filter is full\r\n"));
        is("BF.CARD k", ":3\r\n".into());
    }
    assert_eq!(two.call_raw(&["BF.EXISTS", "k", "a"]).0, b":1\r\n", "the other connection's protocol does not count");
}

#[test]
fn c054_first_add_on_a_missing_key() {
    let server = Server::start();
    let mut client = server.client();
    assert!(client.cmd("BF.ADD k 1") == 1);
    let fields = "+Capacity\r\n:100\r\n+Size\r\n:240\r\n+Number of filters\r\n:1\r\n\
        +Number of items inserted\r\n:1\r\n+Expansion rate\r\n:2\r\n";
    assert_eq!(client.call_raw(&["BF.INFO", "k"]).0, format!("*10\r\n{fields}").as_bytes());
    assert_eq!(server.client3().call_raw(&["BF.INFO", "k"]).0, format!("%5\r\n{fields}").as_bytes());
}

#[test]
fn c058_error_element_in_a_list() {
    let server = Server::start();
    let mut client = server.client();
    assert!(client.cmd("BF.RESERVE k 0.01 2 NONSCALING") == "OK");
    let reply = "*3\r\n:1\r\n:1\r\n-ERR non scaling filter is full\r\n";
    for line in ["BF.MADD k a b c d", "BF.INSERT j NONSCALING CAPACITY 2 ITEMS a b c d e"] {
        let (raw, _) = client.call_raw(&line.split(' ').collect::<Vec<_>>());
        assert_eq!(String::from_utf8_lossy(&raw), reply, "{line}");
        assert!(client.cmd("PING") == "PONG");
    }
}

#[test]
fn every_bloom_command_is_in_the_manual() {
    let server = Server::start();
    let commands = server.client().cmd("COMMAND LIST");
    let names: Vec<String> = commands.array().iter().map(|name| name.text().to_ascii_uppercase()).collect();
    let family: Vec<&String> = names.iter().filter(|name| name.starts_with("BF.")).collect();
    assert!(family.len() >= 11, "{names:?}");
    for name in family {
        manual_says(&format!("`{name} key"));
    }
}
