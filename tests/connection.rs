//! Connecting and what belongs to a connection. Where Redis says something, the test asks a running Redis and compares
//! the bytes.

#[path = "support/process.rs"]
mod process;
mod support;
#[path = "support/wire.rs"]
mod wire;

use process::signal;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use support::{Client, Server, Value, encode, show_args, show_bytes, wait_until};
use wire::{kinds, plain, say, to_the_end, until_closed};

/// This server and Redis, asked the same.
struct Both {
    ours: Server,
    peer: Server,
}

impl Both {
    #[track_caller]
    fn start() -> Both {
        Both { ours: Server::start(), peer: Server::peer() }
    }

    fn clients(&self) -> (Client, Client) {
        (self.ours.client(), self.peer.client())
    }

    /// Fails unless both answer these bytes, sent on a new connection, with the same and close.
    #[track_caller]
    fn say(&self, bytes: &[u8]) -> Vec<u8> {
        let (ours, peers) = (say(self.ours.port(), bytes), say(self.peer.port(), bytes));
        assert_eq!(show_bytes(&ours), show_bytes(&peers), "to {}", show_bytes(bytes));
        ours
    }
}

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

// HELLO

/// The names of the seven fields, and the value of each.
fn greeting(client: &mut Client, line: &str) -> Vec<(String, Value)> {
    match client.cmd(line) {
        Value::Map(pairs) => pairs.into_iter().map(|(name, value)| (name.text(), value)).collect(),
        Value::Array(flat) => flat.chunks_exact(2).map(|pair| (pair[0].text(), pair[1].clone())).collect(),
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn the_greeting_has_the_seven_fields_in_both_protocols() {
    let both = Both::start();
    let mut clients = both.clients();
    for (line, protocol) in [("HELLO", 2), ("HELLO 3", 3), ("HELLO", 3), ("hello 2", 2), ("HELLO 2 SETNAME n", 2)] {
        let (ours, peers) = (greeting(&mut clients.0, line), greeting(&mut clients.1, line));
        let names: Vec<&str> = ours.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["server", "version", "proto", "id", "mode", "role", "modules"], "{line}");
        assert_eq!(names, peers.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>());
        for (name, value) in &ours {
            let expected = match name.as_str() {
                "server" => Value::Bulk(b"redis".into()),
                "version" => Value::Bulk(b"7.4.0".into()),
                "proto" => Value::Int(protocol),
                "id" => clients.0.cmd("CLIENT ID"),
                "mode" => Value::Bulk(b"standalone".into()),
                "role" => Value::Bulk(b"master".into()),
                _ => Value::Array(Vec::new()),
            };
            assert_eq!(*value, expected, "{line}: {name}");
        }
    }
    let (raw, _) = clients.0.call_raw(&["HELLO", "3"]);
    assert!(raw.starts_with(b"%7\r\n"), "{}", show_bytes(&raw));
    let (raw, _) = clients.0.call_raw(&["HELLO", "2"]);
    assert!(raw.starts_with(b"*14\r\n"), "{}", show_bytes(&raw));
}

#[test]
fn forms_of_hello_that_are_refused() {
    let both = Both::start();
    let mut clients = both.clients();
    for line in [
        "HELLO 4",
        "HELLO 1",
        "HELLO 0",
        "HELLO -3",
        "HELLO x",
        "HELLO 3x",
        "HELLO 99999999999999999999",
        "HELLO AUTH default x",
        "HELLO 3 FOO",
        "HELLO 3 FOO bar baz",
        "HELLO 3 AUTH",
        "HELLO 3 AUTH default",
        "HELLO 3 SETNAME",
        "HELLO 3 SETNAME n SETNAME",
        "HELLO 3 SETNAME n AUTH default",
        "HELLO 3 SETNAME n extra",
        "HELLO 3 AUTH nobody x",
        "HELLO 3 AUTH default x SETNAME",
    ] {
        same_line(&mut clients, line).error();
        // The connection stays as it was: its protocol, its name. (Redis takes a name that stands before the mistake.)
        assert_eq!(clients.0.call_raw(&["CLIENT", "GETNAME"]).0, b"$-1\r\n", "{line}");
    }
    let blank = same(&mut clients, &["HELLO", "3", "SETNAME", "with blank"]);
    assert!(blank.error().starts_with("ERR Client names cannot contain"), "{blank:?}");
    let unknown = same(&mut clients, &[&b"HELLO"[..], b"3", b"a\r\nb"]);
    assert!(unknown.error().contains("'a  b'"), "{unknown:?}");
    // Without a password every one is right, as in Redis.
    for client in [&mut clients.0, &mut clients.1] {
        assert!(matches!(client.cmd("HELLO 3 AUTH default whatever"), Value::Map(_)));
    }
}

#[test]
fn hello_and_auth_with_a_password() {
    let both = Both::start();
    let mut clients = both.clients();
    same_line(&mut clients, "CONFIG SET requirepass secret");
    let mut clients = both.clients();
    for line in [
        "PING",
        "HELLO",
        "HELLO 3",
        "HELLO 3 SETNAME n",
        "HELLO 3 AUTH default wrong",
        "HELLO 3 AUTH nobody secret",
        "HELLO 4 AUTH default secret",
        "AUTH wrong",
        "AUTH default wrong",
        "AUTH nobody secret",
        "AUTH DEFAULT secret",
        "AUTH secret secret",
        "AUTH default secret extra",
        "AUTH",
        "CLIENT",
        "CLIENT GETNAME",
        "CLIENT GETNAME extra",
        "CLIENT NOSUCH",
        "CONFIG",
        "CONFIG GET",
        "CONFIG GET port",
        "CONFIG NOSUCH",
        "MULTI",
        "MULTI extra",
        "SCAN",
        "SCAN x",
        "NOSUCH",
        "NOSUCH a b",
        "SELECT 0",
        "COMMAND",
        "DEL",
        "ECHO",
        "PING PING PING",
        "PING",
    ] {
        // Redis 7.0 left "<proto>" out of one text.
        let (ours, peers) = (clients.0.cmd(line), clients.1.cmd(line));
        assert_eq!(ours.error().replace("HELLO <proto> AUTH", "HELLO AUTH"), peers.error(), "{line}");
    }
    assert!(same_line(&mut clients, "AUTH default secret") == "OK");
    assert!(same_line(&mut clients, "PING") == "PONG");
    assert!(same_line(&mut clients, "AUTH wrong").error().starts_with("WRONGPASS "));
    assert!(same_line(&mut clients, "PING") == "PONG", "a refused AUTH takes nothing away");
    assert!(same_line(&mut clients, "RESET") == "RESET");
    assert!(same_line(&mut clients, "PING").error().starts_with("NOAUTH "));
    assert!(same_line(&mut clients, "AUTH secret") == "OK");
    assert!(same_line(&mut clients, "QUIT") == "OK");

    let mut client = both.ours.client();
    let fields = greeting(&mut client, "HELLO 3 SETNAME worker AUTH default secret");
    assert_eq!(fields[2].1, 3, "options in any order");
    assert!(client.cmd("CLIENT GETNAME") == "worker");
    let mut client = both.ours.client();
    assert!(client.cmd("HELLO 3 AUTH default wrong SETNAME n").error().starts_with("WRONGPASS "));
    assert!(client.cmd("AUTH secret") == "OK");
    assert_eq!(client.call_raw(&["CLIENT", "GETNAME"]).0, b"$-1\r\n", "neither name nor protocol was taken");
}

#[test]
fn auth_without_a_password() {
    let both = Both::start();
    let mut clients = both.clients();
    for line in ["AUTH x", "AUTH nobody x", "AUTH a b c", "AUTH"] {
        same_line(&mut clients, line).error();
    }
    assert!(same_line(&mut clients, "AUTH default whatever") == "OK");
    same(&mut clients, &["AUTH", ""]).error();
}

#[test]
fn quit_works_before_the_password() {
    let server = Server::with(&["--requirepass", "secret"]);
    assert_eq!(until_closed(server.port(), b"QUIT\r\n"), b"+OK\r\n");
    assert_eq!(until_closed(server.port(), b"RESET\r\nQUIT\r\n"), b"+RESET\r\n+OK\r\n");
}

// CLIENT and the small ones

#[test]
fn client_subcommands() {
    let both = Both::start();
    let mut clients = both.clients();
    for line in [
        "CLIENT GETNAME",
        "CLIENT SETNAME worker:1",
        "CLIENT GETNAME",
        "client getname",
        "CLIENT GETNAME x",
        "CLIENT SETNAME",
        "CLIENT SETNAME a b",
        "CLIENT ID x",
        "CLIENT",
        "CLIENT NOSUCH",
        "CLIENT NOSUCH a b c",
        "CLIENT MAINT_NOTIFICATIONS ON moving-endpoint-type external-ip",
        "CLIENT HELP x",
        "CONFIG",
        "CONFIG NOSUCH",
        "CONFIG GET",
        "CONFIG SET a",
        "MEMORY",
        "MEMORY NOSUCH",
        "MEMORY USAGE",
        "COMMAND NOSUCH",
        "COMMAND COUNT x",
        "COMMAND GETKEYS",
    ] {
        same_line(&mut clients, line);
    }
    for name in [&b"with blank"[..], b"line\nfeed", b"\x7f", b"\xc3\xa4", b"tab\t", b"\0"] {
        same(&mut clients, &[&b"CLIENT"[..], b"SETNAME", name]).error();
    }
    assert!(same_line(&mut clients, "CLIENT GETNAME") == "worker:1", "a refused name changes nothing");
    assert!(same(&mut clients, &["CLIENT", "SETNAME", ""]) == "OK");
    assert_eq!(same_line(&mut clients, "CLIENT GETNAME"), Value::Null, "an empty name takes the name away");
    same(&mut clients, &[&b"CLIENT"[..], b"a\r\nb"]).error();
    same(&mut clients, &["CLIENT", &"x".repeat(300)]).error();

    let (mut first, mut second) = (both.ours.client(), both.ours.client());
    let (one, two) = (first.cmd("CLIENT ID").int(), second.cmd("CLIENT ID").int());
    assert!(one != two && first.cmd("CLIENT ID") == one);
    assert!(first.cmd("CLIENT SETINFO LIB-NAME redis-py") == "OK");
    assert!(first.cmd("client setinfo lib-ver 1.2.3") == "OK");
    assert_eq!(first.cmd("CLIENT SETINFO NAME x").error(), "ERR Unrecognized option 'NAME'");
    let bad = first.call(&["CLIENT", "SETINFO", "LIB-NAME", "two words"]);
    assert_eq!(bad.error(), "ERR lib-name cannot contain spaces, newlines or special characters.");
    assert_eq!(first.cmd("CLIENT SETINFO").error(), "ERR wrong number of arguments for 'client|setinfo' command");
    for (line, least) in [("CLIENT HELP", 11), ("CONFIG HELP", 7), ("COMMAND HELP", 15), ("MEMORY HELP", 5)] {
        let lines = first.cmd(line);
        assert!(lines.array().len() >= least && lines.array().iter().all(|l| matches!(l, Value::Simple(_))), "{line}");
        let word = line.split(' ').next().unwrap();
        let head = format!("{word} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:");
        assert_eq!(lines.array()[0].text(), head);
    }
}

#[test]
fn small_commands_as_in_redis() {
    let both = Both::start();
    let mut clients = both.clients();
    for line in [
        "PING",
        "ping",
        "PiNg hello",
        "PING a b",
        "ECHO hello",
        "ECHO",
        "ECHO a b",
        "SELECT 0",
        "SELECT 15",
        "SELECT 16",
        "SELECT -1",
        "SELECT x",
        "SELECT 1x",
        "SELECT 01",
        "SELECT 99999999999999999999",
        "SELECT",
        "SELECT 1 2",
        "DBSIZE",
        "DBSIZE x",
        "TIME x",
        "RESET x",
    ] {
        same_line(&mut clients, line);
    }
    same(&mut clients, &["SELECT", ""]).error();
    same(&mut clients, &["PING", ""]);
    same(&mut clients, &[&b"PING"[..], b"a\r\nb\0\xff"]);
    same(&mut clients, &["ECHO", &"x".repeat(100_000)]);
    let time = clients.0.cmd("TIME");
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    assert!(time.array()[0].text().parse::<u64>().unwrap().abs_diff(now) < 60);
    assert!(time.array()[1].text().parse::<u32>().unwrap() < 1_000_000);
}

/// Redis looks for the end of a line as C looks for that of a string: behind a NUL it finds none.
#[test]
fn a_zero_byte_in_a_line_is_a_byte_like_others() {
    let both = Both::start();
    for (line, expected) in [
        (&b"ECHO a\0b\r\n"[..], &b"$3\r\na\0b\r\n"[..]),
        (b"ECHO \"\0\"\nPING\n", b"$1\r\n\0\r\n+PONG\r\n"),
        (b"PING\0\r\nPING\r\n", b"-ERR unknown command 'PING\0', with args beginning with: \r\n+PONG\r\n"),
    ] {
        assert_eq!(show_bytes(&say(both.ours.port(), line)), show_bytes(expected));
        assert_eq!(show_bytes(&say(both.peer.port(), line)), show_bytes(b""), "the list of differences says so");
    }
}

#[test]
fn unknown_commands_are_told_as_in_redis() {
    let both = Both::start();
    let mut clients = both.clients();
    let long = "y".repeat(300);
    let lists: Vec<Vec<&[u8]>> = vec![
        vec![b"NOSUCH"],
        vec![b"nosuch", b"a"],
        vec![b"NoSuch", b"a", b"b", b"with blank"],
        vec![b""],
        vec![b"", b""],
        vec![b"quote'in", b"'"],
        vec![b"line\r\nfeed", b"arg\r\nument"],
        vec![b"bin\x01\x7f", b"\x02"],
        vec![long.as_bytes()],
        vec![b"x", long.as_bytes(), b"z"],
        vec![b"x", &long.as_bytes()[..100], &long.as_bytes()[..100], b"z"],
        vec![b"x", &long.as_bytes()[..125], b"z"],
        vec![b"x", &long.as_bytes()[..124], b"zz", b"w"],
        vec![b"x", &long.as_bytes()[..128], b"z"],
        [b"x"; 200].iter().map(|word| &word[..]).collect(),
        vec![b"bf.nosuch", b"k"],
        vec![b"bf", b"k"],
        vec![b"PINGX"],
        vec![b"PIN"],
        vec![b" PING"],
    ];
    for args in &lists {
        let reply = same(&mut clients, args);
        assert!(reply.error().starts_with("ERR unknown command '"), "{reply:?}");
    }
    assert!(same_line(&mut clients, "PING") == "PONG");
}

#[test]
fn reset_brings_the_connection_back() {
    let server = Server::start();
    let mut client = server.client3();
    client.cmd("CLIENT SETNAME n");
    client.cmd("SELECT 5");
    client.cmd("BF.ADD k a");
    let id = client.cmd("CLIENT ID");
    assert!(client.cmd("RESET") == "RESET");
    assert_eq!(client.call_raw(&["CLIENT", "GETNAME"]).0, b"$-1\r\n", "no name, and protocol 2");
    assert!(client.cmd("DBSIZE") == 0, "database 0");
    assert_eq!(client.cmd("CLIENT ID"), id);
}

#[test]
fn databases_are_apart() {
    let server = Server::start();
    let (mut client, mut other) = (server.client(), server.client());
    for db in 0..16 {
        assert!(client.cmd(&format!("SELECT {db}")) == "OK");
        assert!(client.cmd(&format!("BF.ADD k {db}")) == 1, "database {db} has its own k");
        assert!(client.cmd("DBSIZE") == 1);
    }
    assert!(other.cmd("BF.EXISTS k 0") == 1 && other.cmd("BF.EXISTS k 15") == 0, "another client is in 0 still");
}

#[test]
fn quit_ends_the_connection_after_its_reply() {
    let both = Both::start();
    assert_eq!(until_closed(both.ours.port(), b"PING\r\nQUIT\r\nPING\r\n"), b"+PONG\r\n+OK\r\n");
    assert_eq!(until_closed(both.ours.port(), b"QUIT now please\r\n"), b"+OK\r\n");
    let pipeline = [encode(&["BF.ADD", "k", "a"]), encode(&["QUIT"]), encode(&["BF.ADD", "k", "b"])].concat();
    assert_eq!(until_closed(both.ours.port(), &pipeline), b":1\r\n+OK\r\n");
    assert!(both.ours.client().cmd("BF.CARD k") == 1, "what stands behind QUIT is not run");
}

// The way of the bytes

#[test]
fn requests_byte_by_byte() {
    let server = Server::start();
    let mut stream = plain(server.port());
    let requests = [
        encode(&[&b"BF.MADD"[..], b"k", b"a\r\nb", b"", b"$3\r\n"]),
        b"BF.ADD k 'in line'\r\n".to_vec(),
        b"\r\n".to_vec(),
        encode(&["BF.ADD", "k", "in line"]),
        b"*0\r\n*-1\r\n".to_vec(),
        encode(&[&b"BF.MEXISTS"[..], b"k", b"a\r\nb", b"", b"$3\r\n", b"c"]),
        b"PING\n".to_vec(),
    ]
    .concat();
    for byte in requests {
        stream.write_all(&[byte]).unwrap();
    }
    let expected = b"*3\r\n:1\r\n:1\r\n:1\r\n:1\r\n:0\r\n*4\r\n:1\r\n:1\r\n:1\r\n:0\r\n+PONG\r\n";
    let mut got = vec![0; expected.len()];
    stream.read_exact(&mut got).unwrap();
    assert_eq!(show_bytes(&got), show_bytes(expected));
}

#[test]
fn requests_in_pieces_of_every_length() {
    let server = Server::start();
    let requests = [encode(&["ECHO", "one\r\ntwo"]), b"ECHO three\r\n".to_vec(), encode(&["PING"])].concat();
    let expected = b"$8\r\none\r\ntwo\r\n$5\r\nthree\r\n+PONG\r\n";
    for piece in 1..requests.len() {
        let mut stream = plain(server.port());
        let mut reply = vec![0; expected.len()];
        requests.chunks(piece).for_each(|chunk| stream.write_all(chunk).unwrap());
        stream.read_exact(&mut reply).unwrap();
        assert_eq!(show_bytes(&reply), show_bytes(expected), "in pieces of {piece}");
    }
}

#[test]
fn ten_thousand_commands_in_one_write() {
    let server = Server::start();
    let mut stream = plain(server.port());
    let (mut requests, mut expected) = (Vec::new(), Vec::new());
    for n in 0..2_500 {
        requests.extend(encode(&["ECHO", &n.to_string()]));
        expected.extend(format!("${}\r\n{n}\r\n", n.to_string().len()).into_bytes());
        requests.extend(encode(&["BF.INSERT", "k", "CAPACITY", "100000", "ERROR", "1e-9", "ITEMS", &n.to_string()]));
        expected.extend(b"*1\r\n:1\r\n");
        requests.extend(encode(&["BF.EXISTS", "k", &n.to_string()]));
        expected.extend(b":1\r\n");
        requests.extend(match n % 3 {
            0 => encode(&["NOSUCH"]),
            1 => encode(&["BF.ADD", "k"]),
            _ => b"PING\r\n".to_vec(),
        });
        expected.extend(match n % 3 {
            0 => &b"-ERR unknown command 'NOSUCH', with args beginning with: \r\n"[..],
            1 => b"-ERR wrong number of arguments for 'bf.add' command\r\n",
            _ => b"+PONG\r\n",
        });
    }
    let mut writer = stream.try_clone().unwrap();
    let sender = std::thread::spawn(move || writer.write_all(&requests).unwrap());
    let mut got = vec![0; expected.len()];
    stream.read_exact(&mut got).unwrap();
    sender.join().unwrap();
    assert!(got == expected, "{}", first_difference(&got, &expected));
}

fn first_difference(got: &[u8], expected: &[u8]) -> String {
    let at = got.iter().zip(expected).take_while(|(a, b)| a == b).count();
    let around = |bytes: &[u8]| show_bytes(&bytes[at.saturating_sub(50)..(at + 50).min(bytes.len())]);
    format!("at byte {at}: {} instead of {}", around(got), around(expected))
}

#[test]
fn a_password_and_large_requests_in_one_write() {
    let server = Server::with(&["--requirepass", "secret"]);
    let items: Vec<String> = (0..100).map(|n| format!("{n}{}", "x".repeat(20_000))).collect();
    let madd: Vec<&str> = ["BF.MADD", "k"].into_iter().chain(items.iter().map(String::as_str)).collect();
    for login in [encode(&["AUTH", "secret"]), encode(&["HELLO", "2", "AUTH", "default", "secret"])] {
        let mut client = server.client();
        client.send(&[login, encode(&madd), encode(&["PING"]), encode(&["FLUSHALL"])].concat());
        assert!(!matches!(client.read(), Value::Error(_)));
        let answers = client.read();
        assert!(answers.array().len() == 100 && answers.array().iter().all(|answer| *answer == 1));
        assert!(client.read() == "PONG" && client.read() == "OK");
    }
    let wrong = [encode(&["AUTH", "wrong"]), encode(&madd), encode(&["PING"])].concat();
    let mut stream = plain(server.port());
    let _ = stream.write_all(&wrong);
    let got = String::from_utf8_lossy(&to_the_end(&mut stream)).into_owned();
    let lines: Vec<&str> = got.split("\r\n").collect();
    assert_eq!(lines.len(), 3, "{got}");
    assert!(lines[0].starts_with("-WRONGPASS "));
    assert_eq!(lines[1], "-ERR Protocol error: unauthenticated multibulk length");
}

#[test]
fn protocol_errors_close_this_client_only_and_read_as_in_redis() {
    let both = Both::start();
    let mut other = both.ours.client();
    let long_line = [b"*".to_vec(), vec![b'1'; 70_000]].concat();
    let long_length = [b"*1\r\n$".to_vec(), vec![b'1'; 70_000]].concat();
    let lists: [&[u8]; 30] = [
        b"*1\r\n$-2\r\n",
        b"*1\r\n$-1\r\n",
        b"*1\r\n$-x\r\n",
        b"*1\r\n$\r\n",
        b"*1\r\n$04\r\nPING\r\n",
        b"*1\r\n$ 4\r\nPING\r\n",
        b"*1\r\n$4 \r\nPING\r\n",
        b"*1\r\n$+4\r\nPING\r\n",
        b"*1\r\n$4.0\r\nPING\r\n",
        b"*1\r\n$99999999999999999999\r\n",
        b"*+1\r\n$4\r\nPING\r\n",
        b"*01\r\n$4\r\nPING\r\n",
        b"*x\r\n",
        b"* 1\r\n",
        b"*99999999999999999999\r\n",
        b"*2147483648\r\n",
        b"*1\r\n+PING\r\n",
        b"*1\r\n*1\r\n$4\r\nPING\r\n",
        b"*1\r\n:4\r\n",
        b"*1\r\n\r\n$4\r\nPING\r\n",
        b"*1\r\n'\r\n",
        b"*1\r\n\\\r\n",
        b"ECHO \"open\r\n",
        b"ECHO 'open\r\n",
        b"ECHO \"a\"b\r\n",
        b"PING\r\n*1\r\n$-2\r\nPING\r\n",
        b"*1\r\n$4\r\nPING\r\n*1\r\n!\r\n*1\r\n$4\r\nPING\r\n",
        b"*2\r\n$4\r\nECHO\r\n$536870913\r\n",
        &long_line,
        &long_length,
    ];
    for bytes in lists {
        let got = both.say(bytes);
        assert!(got.windows(21).any(|part| part == b"-ERR Protocol error: "));
        assert!(other.cmd("PING") == "PONG");
    }
}

/// Redis puts the byte into its text as it is.
#[test]
fn a_wrong_type_byte_is_shown_in_a_legible_form() {
    let server = Server::start();
    for (byte, shown) in [(1, "\\x01"), (0xff, "\\xff"), (b'\n', " ")] {
        let got = until_closed(server.port(), &[b"*1\r\n", &[byte][..], b"\r\n"].concat());
        assert_eq!(String::from_utf8_lossy(&got), format!("-ERR Protocol error: expected '$', got '{shown}'\r\n"));
    }
}

#[test]
fn what_is_no_protocol_error_is_none_here_either() {
    let both = Both::start();
    let lists: [&[u8]; 14] = [
        b"*-5\r\nPING\r\n",
        b"*0\r\nPING\r\n",
        b"*-1\r\n*1\r\n$4\r\nPING\r\n",
        b"\r\n\r\nPING\r\n",
        b"\n\nPING\n",
        b"   \r\nPING\r\n",
        b"  PING  \n",
        b"PING \"a\\x00\\n\\\"\"\r\n",
        b"PING 'it\\'s'\r\n",
        b"PING \"\"\r\n",
        b"\"PING\"\r\n",
        b"PING\tx\r\n",
        b"*1\r\n$4\r\nPI",
        b"*2\r\n$4\r\nECHO\r\n$4\r\nab\r\n\r\n",
    ];
    for bytes in lists {
        both.say(bytes);
    }
}

#[test]
fn a_client_that_leaves_in_the_middle_of_a_request() {
    let server = Server::start();
    for bytes in [&b"*2\r\n$4\r\nECHO\r\n$100\r\nabc"[..], b"PIN", b"*", b"*3\r\n"] {
        assert_eq!(say(server.port(), bytes), b"");
    }
    // Half-closed: what was whole is answered.
    assert_eq!(say(server.port(), b"PING\r\nPING\r\nPI"), b"+PONG\r\n+PONG\r\n");
    assert!(server.client().cmd("PING") == "PONG");
}

// Ways in

#[test]
fn unix_socket() {
    let server = Server::with(&["--unixsocket", "s.sock", "--unixsocketperm", "700"]);
    let path = server.dir().join("s.sock");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
    let mut stream = UnixStream::connect(&path).unwrap();
    stream.write_all(b"BF.ADD k a\r\n").unwrap();
    let mut reply = [0; 4];
    stream.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b":1\r\n");
    assert!(server.client().cmd("BF.EXISTS k a") == 1, "the same keys on both ways");
    let mut server = server;
    signal(&server, libc::SIGTERM);
    assert!(server.wait_for_end().success());
    assert!(!path.exists(), "the socket goes with the server");
}

#[test]
fn a_socket_left_behind_is_replaced_and_one_in_use_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.sock");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists(), "nobody listens any more, the name is there");
    let server = Server::with(&["--unixsocket", path.to_str().unwrap()]);
    let mut stream = UnixStream::connect(&path).unwrap();
    stream.write_all(b"PING\r\n").unwrap();
    let mut reply = [0; 7];
    stream.read_exact(&mut reply).unwrap();
    let second = process::run(&["--port", "0", "--unixsocket", path.to_str().unwrap()], b"", dir.path());
    assert!(!second.status.success());
    assert!(String::from_utf8_lossy(&second.stderr).contains("s.sock"));
    assert!(server.client().cmd("PING") == "PONG");
    assert!(UnixStream::connect(&path).is_ok());
}

/// An address of this machine that is not a loopback one, as the kernel would choose it for a way out.
fn outer_address() -> Option<std::net::IpAddr> {
    let output = std::process::Command::new("hostname").arg("-I").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.split_whitespace().filter_map(|word| word.parse::<std::net::IpAddr>().ok()).find(|ip| ip.is_ipv4())
}

#[test]
fn protected_mode() {
    let Some(address) = outer_address() else {
        println!("this machine has no address but the loopback ones");
        return;
    };
    let server = Server::with(&["--bind", "0.0.0.0"]);
    let mut inner = server.client();
    let from_outside = |bytes: &[u8]| {
        let mut stream = TcpStream::connect((address, server.port())).unwrap();
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        String::from_utf8_lossy(&to_the_end(&mut stream)).into_owned()
    };
    let refused = from_outside(b"BF.ADD k a\r\n");
    assert!(refused.starts_with("-DENIED ") && refused.matches("\r\n").count() == 1, "{refused}");
    assert!(refused.contains("protected mode") && refused.contains("requirepass"), "it says what to do: {refused}");
    assert!(inner.cmd("EXISTS k") == 0 && inner.cmd("PING") == "PONG");
    assert!(inner.cmd("CONFIG SET requirepass secret") == "OK");
    assert!(from_outside(b"PING\r\n").starts_with("-NOAUTH "), "with a password outsiders may try");
    assert_eq!(from_outside(b"AUTH secret\r\nPING\r\n"), "+OK\r\n+PONG\r\n");
    inner.call(&["CONFIG", "SET", "requirepass", ""]);
    assert!(from_outside(b"PING\r\n").starts_with("-DENIED "));
    assert!(inner.cmd("CONFIG SET protected-mode no") == "OK");
    assert_eq!(from_outside(b"PING\r\n"), "+PONG\r\n");
    let open = Server::with(&["--bind", "0.0.0.0", "--protected-mode", "no"]);
    let mut stream = TcpStream::connect((address, open.port())).unwrap();
    stream.write_all(b"PING\r\n").unwrap();
    let mut reply = [0; 7];
    stream.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"+PONG\r\n");
}

#[test]
fn other_loopback_addresses() {
    let server = Server::with(&["--bind", "127.0.0.1", "127.0.0.2", "-192.0.2.254"]);
    for address in ["127.0.0.1", "127.0.0.2"] {
        let mut stream = TcpStream::connect((address, server.port())).unwrap();
        stream.write_all(b"PING\r\n").unwrap();
        let mut reply = [0; 7];
        stream.read_exact(&mut reply).unwrap();
        assert_eq!(&reply, b"+PONG\r\n", "{address}: all of 127.0.0.0/8 is this machine");
    }
}

#[test]
fn protocols_of_two_connections_are_apart() {
    let server = Server::start();
    let (mut two, mut three) = (server.client(), server.client3());
    assert_eq!(two.call_raw(&["BF.ADD", "k", "a"]).0, b":1\r\n");
    assert_eq!(three.call_raw(&["BF.ADD", "k", "a"]).0, b"#f\r\n");
    assert_eq!(kinds(&two.call_raw(&["CONFIG", "GET", "port"]).0), "*[$]");
    assert_eq!(kinds(&three.call_raw(&["CONFIG", "GET", "port"]).0), "%[$ $]");
    // The protocol changes in the middle of a pipeline, for the replies behind it.
    two.send(&[encode(&["BF.EXISTS", "k", "a"]), encode(&["HELLO", "3"]), encode(&["BF.EXISTS", "k", "a"])].concat());
    assert_eq!(two.read_raw().0, b":1\r\n");
    assert!(matches!(two.read(), Value::Map(_)));
    assert_eq!(two.read_raw().0, b"#t\r\n");
    wait_until("both to be counted", || process::figure(&mut three, "connected_clients") == 2);
}

#[test]
fn databases_beyond_32_bits_as_in_redis() {
    let both = Both::start();
    let mut clients = both.clients();
    for line in ["SELECT 2147483648", "SELECT 4294967296", "SELECT -2147483649"] {
        same_line(&mut clients, line).error();
    }
}

#[test]
fn errors_repeat_words_as_text() {
    let both = Both::start();
    let mut clients = both.clients();
    same(&mut clients, &["nos\u{fc}ch", "arg\u{e4}"]).error();
    same(&mut clients, &["CLIENT", "nos\u{fc}ch"]).error();
    // Redis repeats bytes that are no text as they came; here they are replaced: see differences.md.
    let mut ours = both.ours.client();
    let (reply, _) = ours.call_raw(&[&b"nosuch\xfe"[..], b"arg\xff"]);
    let expected = "-ERR unknown command 'nosuch\u{fffd}', with args beginning with: 'arg\u{fffd}' \r\n";
    assert_eq!(String::from_utf8(reply).unwrap(), expected);
}
