//! Every limit that protects the server: by its default, by the command line, by `CONFIG SET`; what the client over the
//! limit hears, and that the others notice nothing.

#[path = "support/process.rs"]
mod process;
mod support;
#[path = "support/wire.rs"]
mod wire;

use process::{figure, info, raise_open_files};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use support::{Client, Server, Value, encode, wait_until};
use wire::{has_bytes, plain, to_the_end, until_closed};

/// A request whose second word has so many bytes.
fn echo_of(bytes: usize) -> Vec<u8> {
    encode(&[&b"ECHO"[..], &vec![b'x'; bytes]])
}

#[track_caller]
fn ok(client: &mut Client, line: &str) {
    assert!(client.cmd(line) == "OK", "{line}");
}

/// The error line of a protocol error, as it stands on the wire.
fn protocol_error(what: &str) -> String {
    format!("-ERR Protocol error: {what}\r\n")
}

/// Fails unless the connection is told this and closed.
#[track_caller]
fn refuses(server: &Server, bytes: &[u8], what: &str) {
    assert_eq!(String::from_utf8_lossy(&until_closed(server.port(), bytes)), protocol_error(what));
}

// What may be asked for.

#[test]
fn longest_argument() {
    const LIMIT: usize = 1 << 20;
    let server = Server::with(&["--proto-max-bulk-len", "1mb"]);
    let mut client = server.client();
    assert_eq!(client.cmd("CONFIG GET proto-max-bulk-len").field("proto-max-bulk-len").text(), LIMIT.to_string());
    client.send(&echo_of(LIMIT));
    assert_eq!(client.read().bulk().len(), LIMIT);
    refuses(&server, format!("*2\r\n$4\r\nECHO\r\n${}\r\n", LIMIT + 1).as_bytes(), "invalid bulk length");
    // A change counts at once, on connections that are open too.
    ok(&mut server.client(), "CONFIG SET proto-max-bulk-len 2mb");
    client.send(&echo_of(LIMIT + 1));
    assert_eq!(client.read().bulk().len(), LIMIT + 1);
    ok(&mut server.client(), "CONFIG SET proto-max-bulk-len 1mb");
    client.send(&echo_of(LIMIT + 1)[..30]);
    assert_eq!(String::from_utf8_lossy(&client.read_to_close()), protocol_error("invalid bulk length"));
}

#[test]
fn most_arguments() {
    let server = Server::with(&["--proto-max-arguments", "16"]);
    let mut client = server.client();
    let exists = |words: usize| {
        let mut args = vec!["EXISTS".to_string()];
        args.resize(words, "k".into());
        encode(&args)
    };
    client.send(&exists(16));
    assert!(client.read() == 0);
    refuses(&server, &exists(17), "invalid multibulk length");
    ok(&mut server.client(), "CONFIG SET proto-max-arguments 20");
    client.send(&exists(20));
    assert!(client.read() == 0);
    client.send(b"*21\r\n");
    assert_eq!(String::from_utf8_lossy(&client.read_to_close()), protocol_error("invalid multibulk length"));
    let default = Server::start();
    refuses(&default, b"*1048577\r\n", "invalid multibulk length");
}

#[test]
fn longest_inline_request() {
    let server = Server::with(&["--proto-inline-max-size", "1kb"]);
    let mut client = server.client();
    let line = |bytes: usize| [b"ECHO ".to_vec(), vec![b'x'; bytes - 5], b"\r\n".to_vec()].concat();
    client.send(&line(1000));
    assert_eq!(client.read().bulk().len(), 995);
    for bytes in [1100, 100_000] {
        refuses(&server, &line(bytes), "too big inline request");
        // Without its end it would otherwise be waited for, and kept.
        refuses(&server, line(bytes).trim_ascii_end(), "too big inline request");
    }
    ok(&mut server.client(), "CONFIG SET proto-inline-max-size 4kb");
    client.send(&line(4000));
    assert_eq!(client.read().bulk().len(), 3995);
    client.send(&line(4200));
    assert_eq!(String::from_utf8_lossy(&client.read_to_close()), protocol_error("too big inline request"));
    let default = Server::start();
    refuses(&default, &vec![b'x'; (64 << 10) + 10], "too big inline request");
}

#[test]
fn less_is_allowed_before_the_password() {
    let server = Server::with(&["--requirepass", "secret"]);
    let mut client = server.client();
    let ten: Vec<String> = (0..10).map(|_| "k".repeat(16_384)).collect();
    assert_eq!(client.call(&ten[..9]).error().split(' ').nth(1), Some("unknown"), "ten of 16,384 bytes are read");
    client.send(&encode(&ten));
    client.read().error();
    refuses(&server, b"*11\r\n", "unauthenticated multibulk length");
    refuses(&server, b"*2\r\n$4\r\nPING\r\n$16385\r\n", "unauthenticated bulk length");
    ok(&mut client, "AUTH secret");
    client.send(&echo_of(20_000));
    assert_eq!(client.read().bulk().len(), 20_000);
    // RESET takes the permission away again.
    assert!(client.cmd("RESET") == "RESET");
    client.send(b"*11\r\n");
    assert_eq!(String::from_utf8_lossy(&client.read_to_close()), protocol_error("unauthenticated multibulk length"));
}

#[test]
fn a_password_set_later_holds_for_later_connections() {
    let server = Server::start();
    let mut early = server.client();
    ok(&mut early, "CONFIG SET requirepass secret");
    early.send(&echo_of(20_000));
    assert_eq!(early.read().bulk().len(), 20_000, "who is in stays in");
    refuses(&server, b"*11\r\n", "unauthenticated multibulk length");
    assert!(server.client().cmd("PING").error().starts_with("NOAUTH "));
    early.call(&["CONFIG", "SET", "requirepass", ""]);
    assert!(server.client().cmd("PING") == "PONG");
}

// What is kept for a client.

#[test]
fn a_request_that_outgrows_the_query_buffer() {
    let server = Server::with(&["--client-query-buffer-limit", "1mb", "--proto-max-bulk-len", "64mb"]);
    let mut other = server.client();
    let mut stream = plain(server.port());
    let request = echo_of(16 << 20);
    // The server leaves in the middle, so this write or the read after it fails.
    let _ = stream.write_all(&request);
    assert_eq!(to_the_end(&mut stream), b"", "cut off without a reply, as in Redis");
    assert!(other.cmd("PING") == "PONG");
    assert_eq!(figure(&mut other, "client_buffer_limit_disconnections"), 1);
    // Many small requests are no large one.
    let pings = encode(&["PING"]).repeat(300_000);
    let mut busy = plain(server.port());
    let mut writer = busy.try_clone().unwrap();
    let sender = std::thread::spawn(move || writer.write_all(&pings));
    let mut replies = vec![0; 7 * 300_000];
    busy.read_exact(&mut replies).unwrap();
    sender.join().unwrap().unwrap();
    assert!(replies.chunks(7).all(|reply| reply == b"+PONG\r\n"));
    ok(&mut other, "CONFIG SET client-query-buffer-limit 64mb");
    other.send(&request);
    assert_eq!(other.read().bulk().len(), 16 << 20);
}

/// Makes a filter whose dump comes in pieces of 16 MiB, and returns a request for the first piece.
fn large_reply(server: &Server) -> Vec<u8> {
    ok(&mut server.client(), "BF.RESERVE big 0.01 20000000 NONSCALING");
    encode(&["BF.SCANDUMP", "big", "1"])
}

/// Bytes of the reply to [`large_reply`]'s request.
const PIECE: usize = 16 << 20;

/// Asks for `times` large replies and reads none.
fn never_reads(server: &Server, request: &[u8], times: usize) -> TcpStream {
    let mut stream = plain(server.port());
    stream.write_all(&request.repeat(times)).expect("the server takes the requests");
    stream
}

/// Serves as the other client until the one that does not read is gone.
#[track_caller]
fn serve_until_gone(other: &mut Client, mut watch: impl FnMut()) {
    wait_until("the client to be seen", || figure(other, "connected_clients") == 2);
    let end = Instant::now() + Duration::from_secs(60);
    while figure(other, "connected_clients") > 1 {
        assert!(other.cmd("PING") == "PONG");
        watch();
        assert!(Instant::now() < end, "nobody is cut off");
    }
}

/// Serves as the other client until the server has cut somebody off.
#[track_caller]
fn serve_until_cut_off(other: &mut Client, cut_off: u64) {
    let end = Instant::now() + Duration::from_secs(60);
    while figure(other, "client_buffer_limit_disconnections") < cut_off {
        assert!(other.cmd("PING") == "PONG");
        assert!(Instant::now() < end, "nobody is cut off");
    }
}

#[test]
fn a_client_that_never_reads_is_cut_off_at_the_hard_limit() {
    let server = Server::with(&["--client-output-buffer-limit", "normal", "4mb", "0", "0", "--threads", "1"]);
    let request = large_reply(&server);
    let mut other = server.client();
    let mut stream = never_reads(&server, &request, 8);
    serve_until_cut_off(&mut other, 1);
    assert!(to_the_end(&mut stream).len() < 8 * PIECE, "what was not sent by then is gone");
}

#[test]
fn the_hard_limit_at_run_time() {
    let server = Server::with(&["--threads", "1"]);
    let request = large_reply(&server);
    let mut other = server.client();
    let set = |client: &mut Client, value: &str| client.call(&["CONFIG", "SET", "client-output-buffer-limit", value]);
    assert!(set(&mut other, "normal 4mb 0 0") == "OK");
    let mut stream = never_reads(&server, &request, 8);
    serve_until_cut_off(&mut other, 1);
    to_the_end(&mut stream);
    assert!(set(&mut other, "normal 0 0 0") == "OK");
    other.send(&request);
    assert_eq!(other.read().array()[1].bulk().len(), PIECE);
    assert_eq!(figure(&mut other, "client_buffer_limit_disconnections"), 1);
}

#[test]
fn a_client_that_never_reads_is_cut_off_at_the_soft_limit() {
    let server = Server::with(&["--client-output-buffer-limit", "normal", "0", "1mb", "1", "--threads", "1"]);
    let request = large_reply(&server);
    let mut other = server.client();
    let mut stream = never_reads(&server, &request, 1);
    serve_until_gone(&mut other, || {});
    assert!(to_the_end(&mut stream).len() < PIECE);
    // Who reads at once passes the limit for less than the second.
    other.send(&request.repeat(3));
    (0..3).for_each(|_| assert_eq!(other.read().array()[1].bulk().len(), PIECE));
    assert!(other.cmd("PING") == "PONG");
}

/// By default a client that has to read 32 MiB is given ten seconds to take something.
#[test]
fn a_client_that_stands_still_is_cut_off_by_default() {
    let server = Server::start();
    let request = large_reply(&server);
    let mut other = server.client();
    let mut stream = never_reads(&server, &request, 100);
    let before = server.resident_bytes();
    serve_until_gone(&mut other, || assert!(server.resident_bytes() < before + (200 << 20), "replies pile up"));
    assert!(to_the_end(&mut stream).len() < 100 * PIECE);
}

#[test]
fn lengths_announced_and_never_sent_cost_nothing() {
    let server = Server::with(&["--proto-max-bulk-len", "1gb"]);
    let mut client = server.client();
    let before = server.resident_bytes();
    let received = figure(&mut client, "total_net_input_bytes");
    let announced: [&[u8]; 2] = [b"*2\r\n$4\r\nECHO\r\n$1000000000\r\nabc", b"*1048576\r\n$4\r\nPING\r\n"];
    let mut sent = 0;
    let held: Vec<TcpStream> = (0..100)
        .map(|n| {
            let mut stream = plain(server.port());
            stream.write_all(announced[n % 2]).unwrap();
            sent += announced[n % 2].len() as u64;
            stream
        })
        .collect();
    wait_until("the server to read all", || figure(&mut client, "total_net_input_bytes") >= received + sent);
    let more = server.resident_bytes().saturating_sub(before);
    assert!(more < 32 << 20, "{more} bytes for 100 announcements");
    assert!(client.cmd("PING") == "PONG");
    drop(held);
    wait_until("the connections to end", || figure(&mut client, "connected_clients") == 1);
}

// How many, and for how long.

#[test]
fn most_clients() {
    let server = Server::with(&["--maxclients", "3"]);
    let mut first = server.client();
    // The connection that waited for the start may be counted for a moment.
    wait_until("one client", || figure(&mut first, "connected_clients") == 1);
    assert_eq!(figure(&mut first, "maxclients"), 3);
    let mut held: Vec<Client> = (0..2).map(|_| server.client()).collect();
    held.iter_mut().for_each(|client| assert!(client.cmd("PING") == "PONG"));
    let refused = figure(&mut first, "rejected_connections");
    assert_eq!(until_closed(server.port(), b""), b"-ERR max number of clients reached\r\n");
    assert_eq!(until_closed(server.port(), b"PING\r\n"), b"-ERR max number of clients reached\r\n");
    assert_eq!(figure(&mut first, "rejected_connections"), refused + 2);
    assert!(held[0].cmd("PING") == "PONG", "those who are in stay in");
    held.pop();
    wait_until("room again", || figure(&mut first, "connected_clients") == 2);
    assert!(server.client().cmd("PING") == "PONG");
    // And by CONFIG SET.
    wait_until("the last to leave", || figure(&mut first, "connected_clients") == 2);
    ok(&mut first, "CONFIG SET maxclients 2");
    assert_eq!(until_closed(server.port(), b""), b"-ERR max number of clients reached\r\n");
    ok(&mut first, "CONFIG SET maxclients 100");
    let mut more: Vec<Client> = (0..50).map(|_| server.client()).collect();
    assert!(more.iter_mut().all(|client| client.cmd("PING") == "PONG"));
}

#[test]
fn more_clients_than_open_files_allow() {
    let server = Server::start();
    let mut client = server.client();
    let reply = client.cmd("CONFIG SET maxclients 4000000000");
    assert!(
        reply.error().starts_with("ERR CONFIG SET failed (possibly related to argument 'maxclients') - "),
        "{reply:?}"
    );
    assert_eq!(client.cmd("CONFIG GET maxclients").field("maxclients").text(), "10000", "nothing has changed");
}

#[test]
fn idle_clients_are_disconnected() {
    let server = Server::with(&["--timeout", "1"]);
    let mut idle = plain(server.port());
    let mut active = server.client();
    let end = Instant::now() + Duration::from_secs(30);
    // The active one is heard all the time and stays.
    while !ended(&idle) {
        assert!(active.cmd("PING") == "PONG");
        assert!(Instant::now() < end, "the idle client stays");
    }
    assert_eq!(to_the_end(&mut idle), b"");
    assert!(active.cmd("PING") == "PONG");

    let server = Server::start();
    let mut idle = plain(server.port());
    ok(&mut server.client(), "CONFIG SET timeout 1");
    assert_eq!(to_the_end(&mut idle), b"", "the setting holds for those who are connected already");
}

fn ended(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).expect("a socket option");
    let looked = stream.peek(&mut [0]);
    stream.set_nonblocking(false).expect("a socket option");
    !matches!(looked, Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
}

/// Server-side sockets of established connections, as `ss` shows them.
fn sockets(server: &Server, state: &str) -> String {
    let output = std::process::Command::new("ss")
        .args(["-tnoH", "state", state, &format!("sport = :{}", server.port())])
        .output()
        .expect("ss (package iproute2) is installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn keep_alive_probes() {
    for (seconds, expected) in [("60", true), ("0", false)] {
        let server = Server::with(&["--tcp-keepalive", seconds]);
        let mut client = server.client();
        assert!(client.cmd("PING") == "PONG");
        wait_until("the socket to be idle", || {
            let shown = sockets(&server, "established");
            !shown.is_empty() && shown.contains("timer:(keepalive,") == expected
        });
    }
    let server = Server::with(&["--tcp-keepalive", "0"]);
    let mut client = server.client();
    ok(&mut client, "CONFIG SET tcp-keepalive 120");
    assert_eq!(client.cmd("CONFIG GET tcp-keepalive").field("tcp-keepalive").text(), "120");
    let mut later = server.client();
    assert!(later.cmd("PING") == "PONG");
    wait_until("a keep-alive timer", || sockets(&server, "established").contains("timer:(keepalive,"));
}

#[test]
fn length_of_the_accept_queue() {
    for (given, shown) in [(&[][..], 511), (&["--tcp-backlog", "77"][..], 77)] {
        let server = Server::with(given);
        let most: u32 = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap().trim().parse().unwrap();
        let line = sockets(&server, "listening");
        let backlog = line.split_ascii_whitespace().nth(1).and_then(|word| word.parse::<u32>().ok());
        assert_eq!(backlog, Some(shown.min(most)), "{line}");
        let error = server.client().cmd("CONFIG SET tcp-backlog 5");
        assert!(error.error().ends_with("can't set immutable config"), "{error:?}");
    }
}

#[test]
fn ten_thousand_idle_clients() {
    let clients = raise_open_files().saturating_sub(500).min(10_000);
    assert!(clients >= 2_000, "the hard limit of open files leaves room for {clients} connections");
    let server = Server::with(&["--maxclients", "10100"]);
    let mut other = server.client();
    assert!(other.cmd("BF.ADD k a") == 1);
    let before = server.resident_bytes();
    // Each has been served once: what a connection needs to work must not stay with it.
    let held: Vec<TcpStream> = (0..clients)
        .map(|_| {
            let mut stream = plain(server.port());
            stream.write_all(b"*3\r\n$6\r\nBF.ADD\r\n$1\r\nk\r\n$1\r\na\r\n").unwrap();
            let mut reply = [0; 4];
            stream.read_exact(&mut reply).unwrap();
            assert_eq!(&reply, b":0\r\n");
            stream
        })
        .collect();
    assert_eq!(figure(&mut other, "connected_clients"), clients + 1);
    let each = server.resident_bytes().saturating_sub(before) / clients;
    println!("{each} bytes for each of {clients} idle clients");
    assert!(each < 20_000, "{each} bytes for each of {clients} idle clients");
    drop(held);
    wait_until("all to leave", || figure(&mut other, "connected_clients") == 1);
}

// Filters.

#[test]
fn c090_limit_per_filter() {
    const LIMIT: u64 = 64 << 20;
    let server = Server::with(&["--max-filter-memory", "64mb"]);
    let mut client = server.client();
    assert_eq!(figure(&mut client, "max_filter_memory"), LIMIT);
    let names_it = |text: &str| text.contains("'max-filter-memory' is 67108864");
    let error = client.cmd("BF.RESERVE k 0.01 60000000").error().to_string();
    assert!(names_it(&error), "{error}");
    let error = client.cmd("BF.INSERT k CAPACITY 60000000 ITEMS a").error().to_string();
    assert!(names_it(&error), "{error}");
    assert!(client.cmd("EXISTS k") == 0);

    // A filter of 40 MB that holds one item fewer than it can, by its own dump's header, and cannot grow to 120 MB.
    ok(&mut client, "BF.RESERVE k 0.01 30000000");
    let mut header = client.cmd("BF.SCANDUMP k 0").array()[1].bulk().to_vec();
    let items = 29_999_999_u64.to_le_bytes();
    header[..8].copy_from_slice(&items);
    header[20 + 16..20 + 24].copy_from_slice(&items);
    assert!(client.cmd("DEL k") == 1);
    assert!(client.call(&[&b"BF.LOADCHUNK"[..], b"k", b"1", &header]) == "OK");
    assert!(client.cmd("BF.ADD k last") == 1);
    let before = client.cmd("BF.INFO k");
    let error = client.cmd("BF.ADD k more").error().to_string();
    assert!(names_it(&error), "{error}");
    let answers = client.cmd("BF.MADD k last more");
    assert!(answers.array()[0] == 0 && names_it(answers.array()[1].error()), "{answers:?}");
    assert_eq!(client.cmd("BF.INFO k"), before, "the filter is unchanged");
    assert!(client.cmd("BF.EXISTS k more") == 0 && client.cmd("BF.EXISTS k last") == 1);

    // A new value counts at once; a share is one of the memory that was available at the start.
    ok(&mut client, "CONFIG SET max-filter-memory 256mb");
    assert!(client.cmd("BF.ADD k more") == 1);
    assert!(client.cmd("BF.INFO k FILTERS").array()[0] == 2);
    ok(&mut client, "CONFIG SET max-filter-memory 1mb");
    assert!(client.cmd("BF.ADD k yet-more") == 1, "there is room, so nothing new is allocated");
    assert!(client.cmd("BF.RESERVE j 0.01 1000000").error().contains("'max-filter-memory' is 1048576"));
    ok(&mut client, "CONFIG SET max-filter-memory 0");
    ok(&mut client, "BF.RESERVE j 0.01 1000000");
    ok(&mut client, "CONFIG SET max-filter-memory 50%");
    let share = client.cmd("CONFIG GET max-filter-memory").field("max-filter-memory").text();
    assert!(share.parse::<u64>().unwrap() > 1 << 20, "{share}");
}

#[test]
fn a_dump_beyond_the_limit_per_filter() {
    let server = Server::start();
    let mut client = server.client();
    ok(&mut client, "BF.RESERVE big 0.01 60000000");
    let header = client.cmd("BF.SCANDUMP big 0").array()[1].bulk().to_vec();
    assert!(client.cmd("DEL big") == 1);
    ok(&mut client, "CONFIG SET max-filter-memory 64mb");
    let reply = client.call(&[&b"BF.LOADCHUNK"[..], b"k", b"1", &header]);
    assert!(reply.error().contains("'max-filter-memory' is 67108864"), "{reply:?}");
    assert!(client.cmd("EXISTS k") == 0);
    ok(&mut client, "CONFIG SET max-filter-memory 0");
    assert!(client.call(&[&b"BF.LOADCHUNK"[..], b"k", b"1", &header]) == "OK");
}

#[test]
fn most_sub_filters() {
    let server = Server::with(&["--bf-max-filters", "2"]);
    let mut client = server.client();
    assert_eq!(info(&mut client, "bf_max_filters"), "2");
    ok(&mut client, "BF.RESERVE k 1e-9 10 EXPANSION 1");
    let mut args = vec!["BF.MADD".to_string(), "k".into()];
    args.extend((0..20).map(|n| n.to_string()));
    assert!(client.call(&args).array().iter().all(|answer| *answer == 1));
    let error = client.cmd("BF.ADD k one-more");
    assert_eq!(error.error(), "ERR filter has 2 sub-filters, 'bf-max-filters' is 2");
    assert!(client.cmd("BF.CARD k") == 20 && client.cmd("BF.ADD k 5") == 0, "what is in is found");
    ok(&mut client, "CONFIG SET bf-max-filters 3");
    assert!(client.cmd("BF.ADD k one-more") == 1);
    assert!(client.cmd("BF.INFO k FILTERS").array()[0] == 3);
}

#[test]
fn greatest_capacity() {
    let server = Server::with(&["--bf-max-capacity", "1000"]);
    let mut client = server.client();
    assert_eq!(info(&mut client, "bf_max_capacity"), "1000");
    assert_eq!(client.cmd("BF.RESERVE k 0.01 1001").error(), "ERR capacity must be in the range [1, 1000]");
    assert_eq!(client.cmd("BF.INSERT k CAPACITY 1001 ITEMS a").error(), "Bad capacity");
    assert!(client.cmd("EXISTS k") == 0);
    ok(&mut client, "BF.RESERVE k 0.01 1000");
    ok(&mut client, "CONFIG SET bf-max-capacity 5000");
    ok(&mut client, "BF.RESERVE j 0.01 5000");
    assert_eq!(client.cmd("BF.RESERVE l 0.01 5001").error(), "ERR capacity must be in the range [1, 5000]");
    let default = Server::start();
    let error = default.client().cmd("BF.RESERVE k 0.01 1099511627777");
    assert_eq!(error.error(), "ERR capacity must be in the range [1, 1099511627776]");
}

// Long answers.

/// Asks for something long and counts how often another client of the same thread is answered before the long answer
/// comes. Where the machine gives the test no time the count says nothing, so the best of some tries counts.
#[track_caller]
fn others_are_served_during(server: &Server, request: &[u8], check: impl Fn(Value)) {
    let mut other = server.client();
    let mut best = 0;
    for _ in 0..20 {
        let mut stream = plain(server.port());
        stream.write_all(request).expect("the server takes the request");
        let mut answered = 0;
        while !has_bytes(&stream) {
            assert!(other.cmd("PING") == "PONG");
            answered += 1;
        }
        stream.shutdown(std::net::Shutdown::Write).expect("a socket");
        let raw = to_the_end(&mut stream);
        check(support_value(&raw));
        best = best.max(answered);
        if best >= 3 {
            return;
        }
    }
    panic!("nobody else is served meanwhile: at best {best} answers");
}

/// Reads one reply out of bytes.
fn support_value(raw: &[u8]) -> Value {
    let head = raw.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let head = String::from_utf8_lossy(head).into_owned();
    match head.as_bytes().first() {
        Some(b'-') => Value::Error(head[1..].into()),
        _ => Value::Bulk(raw.to_vec()),
    }
}

#[test]
fn walks_over_many_keys_let_others_run() {
    const KEYS: usize = 300_000;
    let server = Server::with(&["--threads", "1"]);
    let mut client = server.client();
    for from in (0..KEYS).step_by(10_000) {
        let requests: Vec<u8> =
            (from..from + 10_000).flat_map(|n| encode(&["BF.RESERVE", &format!("k{n}"), "0.01", "1"])).collect();
        client.send(&requests);
        (0..10_000).for_each(|_| assert!(client.read() == "OK"));
    }
    assert!(client.cmd("DBSIZE") == KEYS as i64);
    let starts = |head: &'static [u8]| {
        move |value: Value| {
            let raw = value.bulk().to_vec();
            assert!(raw.starts_with(head), "{}", support::show_bytes(&raw));
            assert_eq!(raw.windows(2).filter(|pair| pair == b"\nk").count(), KEYS);
        }
    };
    others_are_served_during(&server, &encode(&["KEYS", "*"]), starts(b"*300000\r\n"));
    let scan = encode(&["SCAN", "0", "COUNT", &i64::MAX.to_string()]);
    others_are_served_during(&server, &scan, starts(b"*2\r\n$1\r\n0\r\n*300000\r\n"));
}

/// Whoever takes a long reply bit by bit is not idle: in Redis too, what is written counts.
#[test]
fn a_client_that_reads_is_not_idle() {
    let server = Server::with(&["--timeout", "1"]);
    let request = large_reply(&server);
    let mut slow = never_reads(&server, &request, 4);
    let mut other = server.client();
    let begin = Instant::now();
    let (mut got, mut piece) = (0, vec![0; 64 << 10]);
    // The reply's bytes are spread over four seconds; the other client's round trips fill the time between.
    while got < 4 * PIECE {
        let due = (begin.elapsed().as_millis() as usize).saturating_mul(4 * PIECE) / 4_000;
        if got > due {
            assert!(other.cmd("PING") == "PONG");
            continue;
        }
        let read = slow.read(&mut piece).unwrap_or(0);
        assert!(read > 0, "cut off as idle after {got} bytes");
        got += read;
    }
}

#[test]
fn a_slow_reader_gets_everything_and_the_replies_do_not_pile_up() {
    const TIMES: usize = 40;
    let server = Server::start();
    let request = large_reply(&server);
    let mut other = server.client();
    let before = server.resident_bytes();
    let mut slow = never_reads(&server, &request, TIMES);
    let (mut got, mut most) = (0, 0);
    let reply_bytes = format!("*2\r\n:{}\r\n${PIECE}\r\n", PIECE + 1).len() + PIECE + 2;
    let mut piece = vec![0; 1 << 20];
    while got < TIMES * reply_bytes {
        // A round trip of the other client for each piece: that is how slow this one is.
        assert!(other.cmd("PING") == "PONG");
        let read = slow.read(&mut piece).unwrap();
        assert!(read > 0, "cut off after {got} bytes");
        got += read;
        most = most.max(server.resident_bytes().saturating_sub(before));
    }
    assert_eq!(got, TIMES * reply_bytes);
    assert!(most < 200 << 20, "{most} bytes held for a client of {got}");
}

/// One byte string of 24 MB goes out piece by piece.
#[test]
fn a_large_string_counts_until_it_is_read() {
    let server = Server::with(&["--threads", "1", "--appendonly", "yes", "--appendfsync", "always"]);
    ok(&mut server.client(), "BF.RESERVE big 0.01 20000000 NONSCALING");
    ok(&mut server.client(), "CHAIN.RESERVE ring 0.01 4000000 SEED 00112233445566778899aabbccddeeff");
    let mut other = server.client();
    let items: Vec<_> = (0..4_000_000).map(|item| item.to_string()).collect();
    for items in items.chunks(500_000) {
        other.call(&[&["CHAIN.MADD", "ring"][..], &items.iter().map(String::as_str).collect::<Vec<_>>()].concat());
    }
    let request =
        [encode(&["DUMP", "big"]), encode(&["CHAIN.EXPORT", "ring"]), encode(&["BF.ADD", "new", "x"])].concat();
    // In one go, slowly, and not at all.
    other.send(&request);
    let at_once: Vec<_> = (0..3).map(|_| other.read()).collect();
    assert!(at_once[0].bulk().len() > 20 << 20 && at_once[1].bulk().len() > 4 << 20 && at_once[2] == 1);
    let bulk = |value: &Value| [format!("${}\r\n", value.bulk().len()).as_bytes(), value.bulk(), b"\r\n"].concat();
    // Its item is known by now.
    let expected = [bulk(&at_once[0]), bulk(&at_once[1]), b":0\r\n".to_vec()].concat();
    let mut slow = never_reads(&server, &request, 1);
    let (mut got, mut piece) = (Vec::new(), vec![0; 1 << 20]);
    while got.len() < expected.len() {
        assert!(other.cmd("PING") == "PONG");
        let read = slow.read(&mut piece).unwrap();
        assert!(read > 0, "cut off after {} bytes", got.len());
        got.extend_from_slice(&piece[..read]);
    }
    assert!(got == expected, "all bytes are as they were at once");
    assert!(other.call(&["CONFIG", "SET", "client-output-buffer-limit", "normal 8mb 0 0"]) == "OK");
    let mut stream = never_reads(&server, &request, 1);
    serve_until_cut_off(&mut other, 1);
    assert!(to_the_end(&mut stream).len() < at_once[0].bulk().len());
}

/// A client that sends all before it reads gets rid of it, as long as it has less than 32 MiB to read.
#[test]
fn who_writes_first_and_reads_then_is_not_held_up() {
    let server = Server::start();
    ok(&mut server.client(), "BF.RESERVE big 0.01 20000000 NONSCALING");
    let mut stream = plain(server.port());
    stream.set_write_timeout(Some(Duration::from_secs(60))).unwrap();
    let long = "x".repeat(30 << 20);
    let request = [encode(&["DUMP", "big"]), encode(&["BF.EXISTS", "none", &long]), encode(&["QUIT"])].concat();
    stream.write_all(&request).expect("the server takes all");
    let got = to_the_end(&mut stream);
    assert!(got.len() > 20 << 20 && got.ends_with(b"\r\n:0\r\n+OK\r\n"));
}

#[test]
fn disconnections_at_the_soft_limit_are_counted() {
    let server = Server::with(&["--client-output-buffer-limit", "normal", "0", "1mb", "1"]);
    let request = large_reply(&server);
    let mut other = server.client();
    let _stream = never_reads(&server, &request, 1);
    serve_until_gone(&mut other, || {});
    assert_eq!(figure(&mut other, "client_buffer_limit_disconnections"), 1);
}

#[test]
fn most_clients_when_all_come_at_once() {
    const MOST: usize = 10;
    let server = Server::with(&["--maxclients", "10"]);
    wait_until("the probe to leave", || {
        let mut client = server.client();
        client.cmd("PING") == "PONG" && figure(&mut client, "connected_clients") == 1
    });
    for _ in 0..5 {
        let streams: Vec<TcpStream> = (0..200).map(|_| plain(server.port())).collect();
        let served = streams
            .into_iter()
            .map(|mut stream| {
                let _ = stream.write_all(b"PING\r\n");
                let mut head = [0; 5];
                let got = stream.read_exact(&mut head).is_ok() && &head == b"+PONG";
                (got, stream)
            })
            .filter(|(got, _)| *got)
            .collect::<Vec<_>>();
        assert!(served.len() <= MOST, "{} clients are served, maxclients is {MOST}", served.len());
        drop(served);
        wait_until("all to leave", || {
            let answer = support::Client::connect(server.port()).unwrap().cmd("INFO clients");
            matches!(answer, Value::Bulk(_)) && answer.text().contains("connected_clients:1\r\n")
        });
    }
}
