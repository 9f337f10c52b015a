//! Protocol and connecting: what is taken, what is refused, and that a refusal closes the connection.

use crate::support::{Server, Value};

/// Sends bytes on a new connection and returns all that comes until the server closes it.
fn answer_until_close(server: &Server, bytes: &[u8]) -> String {
    let mut client = server.client();
    client.send_if_open(bytes);
    String::from_utf8_lossy(&client.read_to_close()).into_owned()
}

#[test]
fn c035_limits_of_announced_lengths() {
    let server = Server::start();
    for (bytes, text) in [
        ("*2147483648\r\n", "-ERR Protocol error: invalid multibulk length\r\n"),
        ("*99999999999999999999\r\n", "-ERR Protocol error: invalid multibulk length\r\n"),
        ("*1\r\n$536870913\r\n", "-ERR Protocol error: invalid bulk length\r\n"),
    ] {
        assert_eq!(answer_until_close(&server, bytes.as_bytes()), text, "{bytes:?}");
    }
    let server = Server::with(&["--requirepass", "secret"]);
    for (bytes, text) in [
        ("*11\r\n", "-ERR Protocol error: unauthenticated multibulk length\r\n"),
        ("*1\r\n$16385\r\n", "-ERR Protocol error: unauthenticated bulk length\r\n"),
    ] {
        assert_eq!(answer_until_close(&server, bytes.as_bytes()), text, "{bytes:?}");
    }
    let mut client = server.client();
    assert!(client.cmd("AUTH secret") == "OK");
    assert_eq!(crate::many(&mut client, "BF.MADD", "k", 0..100).len(), 100, "the limits end with the password");
}

#[test]
fn c040_half_valid_negative_lengths() {
    let server = Server::start();
    for bytes in [
        "*1\r\n$-2\r\n",
        "*1\r\n$-x\r\n",
        "*1\r\n$04\r\nPING\r\n",
        "*1\r\n$ 4\r\nPING\r\n",
        "*1\r\n$+4\r\nPING\r\n",
        "*+1\r\n$4\r\nPING\r\n",
        "*1\r\n+PING\r\n",
    ] {
        let got = answer_until_close(&server, bytes.as_bytes());
        assert!(got.starts_with("-ERR Protocol error: ") && got.matches("\r\n").count() == 1, "{bytes:?}: {got:?}");
    }
    for bytes in ["*-5\r\nPING\r\n", "*0\r\nPING\r\n"] {
        let mut client = server.client();
        client.send(bytes.as_bytes());
        assert!(client.read() == "PONG", "{bytes:?}");
        assert!(client.cmd("PING") == "PONG");
    }
}

#[test]
fn c042_inline_commands() {
    let server = Server::start();
    let mut client = server.client();
    for (line, reply) in [
        ("BF.ADD k 'lorem ipsum'\n", Some(1)),
        ("BF.ADD k \"a\\x00b\"\r\n", Some(1)),
        ("\r\n", None),
        ("\n", None),
        ("  PING  \n", None),
    ] {
        client.send(line.as_bytes());
        match reply {
            Some(number) => assert!(client.read() == number, "{line:?}"),
            None if line.contains("PING") => assert!(client.read() == "PONG"),
            None => {}
        }
    }
    assert!(client.call(&[&b"BF.EXISTS"[..], b"k", b"lorem ipsum"]) == 1);
    assert!(client.call(&[&b"BF.EXISTS"[..], b"k", b"a\0b"]) == 1);
    assert!(client.cmd("BF.CARD k") == 2);
    assert!(answer_until_close(&server, b"BF.ADD k \"unbalanced\n").contains("unbalanced quotes"));
}

#[test]
fn c047_auth_and_setname_inside_hello() {
    let server = Server::with(&["--requirepass", "secret"]);
    let mut client = server.client();
    let hello = client.cmd("HELLO 3 AUTH default secret SETNAME worker");
    let Value::Map(pairs) = &hello else { panic!("not a map: {hello:?}") };
    let names: Vec<String> = pairs.iter().map(|(name, _)| name.text()).collect();
    assert_eq!(names, ["server", "version", "proto", "id", "mode", "role", "modules"]);
    assert!(*hello.field("server") == "redis" && *hello.field("version") == "7.4.0");
    assert!(*hello.field("proto") == 3);
    assert!(client.cmd("CLIENT GETNAME") == "worker");

    let mut client = server.client();
    assert!(client.cmd("HELLO 3 AUTH default wrong SETNAME worker").error().starts_with("WRONGPASS "));
    assert!(client.cmd("PING").error().starts_with("NOAUTH "), "still not logged in");
    assert!(client.cmd("HELLO 3").error().starts_with("NOAUTH "));
    let error = client.cmd("HELLO 3 FOO");
    assert!(error.error().contains("Syntax error") && error.error().contains("'FOO'"), "{error:?}");
    assert!(client.cmd("HELLO 4").error().starts_with("NOPROTO "));
    assert!(client.cmd("AUTH secret") == "OK");
    assert_eq!(
        client.cmd("CLIENT GETNAME"),
        Value::Null,
        "the refused HELLO named nothing, and the protocol is still 2"
    );
}
