//! The process: how it starts, what it says when it cannot, what it logs, how it ends.

#[path = "support/process.rs"]
mod process;
mod support;
#[path = "support/wire.rs"]
mod wire;

use process::{figure, run, signal};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::process::Output;
use support::{Client, Server, Value, encode, show_bytes, wait_until};
use wire::{plain, to_the_end, until_closed};

// The end

/// Waits until the other side's kernel has all that was sent.
fn wait_until_delivered(stream: &TcpStream) {
    wait_until("the bytes to be delivered", || {
        let mut waiting: libc::c_int = 0;
        // SAFETY: SIOCOUTQ (as TIOCOUTQ) stores the number of bytes not acknowledged in the integer it is given.
        let asked = unsafe { libc::ioctl(stream.as_raw_fd(), libc::TIOCOUTQ, &raw mut waiting) };
        asked == 0 && waiting == 0
    });
}

/// A pipeline that fits into the server's receive buffer, and its replies.
fn pipeline() -> (Vec<u8>, Vec<u8>) {
    let (mut requests, mut replies) = (Vec::new(), Vec::new());
    for n in 0..4_000 {
        requests.extend(format!("PING {n}\r\n").into_bytes());
        replies.extend(format!("${}\r\n{n}\r\n", n.to_string().len()).into_bytes());
    }
    (requests, replies)
}

#[test]
fn signals_end_the_server_after_what_was_accepted() {
    let (requests, replies) = pipeline();
    for number in [libc::SIGTERM, libc::SIGINT] {
        for _ in 0..5 {
            let mut server = Server::start();
            let mut streams: Vec<TcpStream> = (0..4).map(|_| plain(server.port())).collect();
            // Clients that were served before, one that only waits, one in the middle of a request.
            for stream in &mut streams {
                stream.write_all(b"PING\r\n").unwrap();
                stream.read_exact(&mut [0; 7]).unwrap();
            }
            streams[3].write_all(b"*2\r\n$4\r\nECHO\r\n$100\r\nhalf").unwrap();
            for stream in &mut streams[..2] {
                stream.write_all(&requests).unwrap();
                wait_until_delivered(stream);
            }
            signal(&server, number);
            for (n, stream) in streams.iter_mut().enumerate() {
                let got = to_the_end(stream);
                let expected = if n < 2 { &replies[..] } else { b"" };
                assert_eq!(got.len(), expected.len(), "client {n} of signal {number}: {}", show_bytes(&got));
                assert!(got == expected);
            }
            assert_eq!(server.wait_for_end().code(), Some(0), "{}", server.log());
            assert!(TcpStream::connect(("127.0.0.1", server.port())).is_err());
        }
    }
}

#[test]
fn a_long_command_is_finished_at_the_end() {
    let mut server = Server::with(&["--bf-error-rate", "1e-9", "--bf-initial-size", "1000000"]);
    let mut args = vec!["BF.MADD".to_string(), "k".into()];
    args.extend((0..200_000).map(|n| n.to_string()));
    let (mut client, mut other) = (server.client(), server.client());
    client.send(&encode(&args));
    // The key is there as soon as the command runs.
    wait_until("the add to begin", || other.cmd("EXISTS k") == 1);
    signal(&server, libc::SIGTERM);
    assert_eq!(client.read().array().len(), 200_000);
    assert_eq!(client.read_to_close(), b"");
    assert_eq!(server.wait_for_end().code(), Some(0));
}

/// What is written while the end comes is either answered in order or not taken at all.
#[test]
fn requests_during_the_end_are_answered_from_the_front() {
    let mut server = Server::start();
    let stream = plain(server.port());
    let mut writer = stream.try_clone().unwrap();
    let (requests, replies) = pipeline();
    let sender = std::thread::spawn(move || while writer.write_all(&requests).is_ok() {});
    let mut reader = stream;
    let mut got = vec![0; replies.len()];
    reader.read_exact(&mut got).unwrap();
    signal(&server, libc::SIGTERM);
    got.extend(to_the_end(&mut reader));
    assert!(got.iter().zip(replies.iter().cycle()).all(|(got, reply)| got == reply));
    assert_eq!(server.wait_for_end().code(), Some(0), "{}", server.log());
    sender.join().unwrap();
}

#[test]
fn a_client_that_does_not_read_does_not_hold_the_end_up_for_ever() {
    let mut server = Server::start();
    let mut client = server.client();
    assert!(client.cmd("BF.RESERVE big 0.01 20000000 NONSCALING") == "OK");
    let mut stream = plain(server.port());
    stream.write_all(&encode(&["BF.SCANDUMP", "big", "1"]).repeat(20)).unwrap();
    wait_until("some output", || figure(&mut client, "total_net_output_bytes") > 1 << 20);
    signal(&server, libc::SIGTERM);
    assert_eq!(server.wait_for_end().code(), Some(0), "{}", server.log());
}

/// Whoever reads only the reply hears what ends the server all the same.
#[test]
fn shutdown_that_cannot_save_says_what_to_do() {
    let mut server = Server::with(&["--save", "60 1", "--dbfilename", "dump.rdb"]);
    // Nothing can be put in the place of a folder with something in it.
    std::fs::create_dir_all(server.dir().join("dump.rdb/inside")).unwrap();
    let mut client = server.client();
    client.cmd("BF.ADD k item");
    let said = client.cmd("SHUTDOWN");
    let text = said.error();
    assert!(text.starts_with("ERR Errors trying to SHUTDOWN: "), "{text}");
    assert!(text.ends_with("; SHUTDOWN FORCE or NOSAVE ends it all the same"), "{text}");
    client.send(&encode(&["SHUTDOWN", "FORCE"]));
    assert_eq!(server.wait_for_end().code(), Some(0), "{}", server.log());
}

#[test]
fn shutdown_in_its_forms() {
    for line in ["SHUTDOWN", "shutdown nosave", "SHUTDOWN NOW", "SHUTDOWN FORCE", "SHUTDOWN NOSAVE NOW FORCE"] {
        let mut server = Server::start();
        let mut other = server.client();
        assert!(other.cmd("PING") == "PONG");
        let got = until_closed(server.port(), format!("PING\r\n{line}\r\nPING\r\n").as_bytes());
        assert_eq!(got, b"+PONG\r\n", "{line}: the end of the connection is the answer, and nothing comes after it");
        assert_eq!(other.read_to_close(), b"");
        assert_eq!(server.wait_for_end().code(), Some(0), "{line}");
    }
    let server = Server::start();
    let mut client = server.client();
    let peer = Server::peer();
    let mut peer = peer.client();
    for line in [
        "SHUTDOWN NOSUCH",
        "SHUTDOWN NOSAVE extra",
        "SHUTDOWN SAVE extra",
        "SHUTDOWN SAVE NOSAVE",
        "SHUTDOWN nosave NOW save",
        "SHUTDOWN ABORT NOSAVE",
        "SHUTDOWN SAVE ABORT",
        "SHUTDOWN NOW ABORT",
        "SHUTDOWN ABORT FORCE",
    ] {
        assert_eq!(client.cmd(line).error(), "ERR syntax error", "{line}");
        assert_eq!(peer.cmd(line).error(), "ERR syntax error", "{line}");
    }
    for line in ["SHUTDOWN ABORT", "SHUTDOWN ABORT abort"] {
        assert_eq!(client.cmd(line).error(), "ERR No shutdown in progress.");
        assert_eq!(client.cmd(line), peer.cmd(line));
    }
    assert!(client.cmd("PING") == "PONG");
    // With save points a snapshot is taken, without them only if it is asked for.
    for (points, line, saves) in [
        ("60 1", "SHUTDOWN", true),
        ("60 1", "SHUTDOWN NOSAVE", false),
        ("", "SHUTDOWN", false),
        ("", "SHUTDOWN SAVE", true),
    ] {
        let mut server = Server::with(&["--save", points]);
        until_closed(server.port(), format!("BF.ADD k item\r\n{line}\r\n").as_bytes());
        assert_eq!(server.wait_for_end().code(), Some(0), "{line}");
        assert_eq!(server.dir().join("dump.rdb").exists(), saves, "{line} with save points '{points}'");
    }
}

#[test]
fn the_port_is_free_again_at_once() {
    let mut server = Server::start();
    let mut client = server.client();
    assert!(client.cmd("PING") == "PONG");
    signal(&server, libc::SIGTERM);
    assert!(server.wait_for_end().success());
    let dir = tempfile::tempdir().unwrap();
    let mut again = std::process::Command::new(env!("CARGO_BIN_EXE_seendb"))
        .args(["--port", &server.port().to_string()])
        .current_dir(dir.path())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    wait_until("the second server", || {
        Client::connect(server.port()).is_ok_and(|mut client| client.cmd("PING") == "PONG")
    });
    again.kill().unwrap();
    again.wait().unwrap();
}

#[test]
fn sighup_is_no_end() {
    let server = Server::start();
    let mut client = server.client();
    signal(&server, libc::SIGHUP);
    (0..100).for_each(|_| assert!(client.cmd("PING") == "PONG"));
}

#[test]
fn the_log_tells_what_a_setting_was_changed_to() {
    let server = Server::start();
    let mut client = server.client();
    assert!(client.cmd("CONFIG SET timeout 77 requirepass secret-word maxmemory 3gb") == "OK");
    let log = server.log();
    for line in
        ["'timeout' changed to '77'", "'maxmemory' changed to '3221225472'", "'requirepass' changed to '(hidden)'"]
    {
        assert!(log.contains(line), "{log}");
    }
    assert!(!log.contains("secret-word"), "{log}");
}

// A start that cannot be

/// Fails unless the program has ended with one line on standard error that holds these words, and a status other than 0.
#[track_caller]
fn one_line(output: &Output, words: &[&str]) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert_eq!(said.trim_end().lines().count(), 1, "one line: {said}");
    assert!(said.starts_with("seendb: "), "{said}");
    assert!(output.stdout.is_empty());
    words.iter().for_each(|word| assert!(said.contains(word), "no {word:?} in {said}"));
}

#[test]
fn what_cannot_be_is_said_in_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let file = dir.path().join("file");
    std::fs::write(&file, "x").unwrap();
    let file = file.to_str().unwrap();
    let cases: &[(&[&str], &[&str])] = &[
        (&["--port", &port, "--bind", "127.0.0.1"], &["127.0.0.1", &port, "in use", "'--port'"]),
        (&["--port", "0"], &["nothing to listen on", "'port'", "'unixsocket'"]),
        (&["--port", "0", "--dir", "/nosuch/folder"], &["/nosuch/folder", "No such file"]),
        (&["--port", "0", "--dir", file], &[file, "Not a directory"]),
        (&["--port", "0", "--logfile", "/nosuch/log"], &["/nosuch/log", "No such file"]),
        (&["--port", "0", "--logfile", "/"], &["'/'", "directory"]),
        (&["--port", "0", "--unixsocket", "/nosuch/s.sock"], &["/nosuch/s.sock", "No such file"]),
        (&["--port", "7", "--bind", "192.0.2.123"], &["192.0.2.123", "7"]),
        (&["--port", "70000"], &["--port 70000", "65535"]),
        (&["--port", "x"], &["--port x"]),
        (&["--maxclients", "0"], &["--maxclients 0"]),
        (&["--bf-error-rate", "2"], &["--bf-error-rate 2"]),
        (&["--client-output-buffer-limit", "normal", "1"], &["client-output-buffer-limit"]),
        (&["nosuch.conf"], &["nosuch.conf", "No such file"]),
        (&["/"], &["/", "directory"]),
    ];
    for (args, words) in cases {
        one_line(&run(args, b"", dir.path()), words);
    }
}

#[test]
fn options_that_do_not_exist() {
    let dir = tempfile::tempdir().unwrap();
    for args in [&["--nosuch", "1"][..], &["--maxclient", "1"], &["--port"], &["a.conf", "b.conf"], &["-p", "1"]] {
        let output = run(args, b"", dir.path());
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {said}");
        assert!(said.starts_with("seendb: ") && said.contains(args[args.len() - 1].trim_start_matches("1")), "{said}");
    }
    let near = run(&["--maxclient", "1"], b"", dir.path());
    assert!(String::from_utf8_lossy(&near.stderr).contains("--maxclients"), "the option that was meant is named");
}

#[test]
fn lines_of_a_file_that_are_wrong() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.conf");
    for (text, words) in [
        ("port 7000\nnosuch 1\n", &["x.conf", "line 2", "nosuch 1", "unknown directive"][..]),
        ("\n# comment\nmaxclient 5\n", &["line 3", "maxclients"]),
        ("port \"7000\n", &["line 1", "unbalanced quotes"]),
        ("port\n", &["line 1", "port"]),
        ("port 1 2\n", &["line 1", "port 1 2"]),
        ("timeout -1\n", &["line 1", "timeout -1"]),
        ("include nosuch.conf\n", &["x.conf", "line 1", "nosuch.conf"]),
        ("include x.conf\n", &["line 1", "includes itself"]),
        ("appendonly maybe\n", &["line 1", "appendonly"]),
        ("save 900\n", &["line 1", "Invalid save parameters"]),
        ("dbfilename a/b\n", &["line 1", "just a filename"]),
    ] {
        std::fs::write(&path, text).unwrap();
        one_line(&run(&["x.conf"], b"", dir.path()), words);
    }
    // A password does not get into the message.
    std::fs::write(&path, "requirepass \"top secret\n").unwrap();
    let output = run(&["x.conf"], b"", dir.path());
    one_line(&output, &["line 1", "requirepass"]);
    assert!(!String::from_utf8_lossy(&output.stderr).contains("top"));
    one_line(&run(&["-"], b"port 7000\nbad\n", dir.path()), &["standard input", "line 2"]);
}

#[test]
fn version_and_help() {
    let dir = tempfile::tempdir().unwrap();
    for option in ["--version", "-V"] {
        let output = run(&[option], b"", dir.path());
        assert_eq!(String::from_utf8_lossy(&output.stdout), concat!("seendb ", env!("CARGO_PKG_VERSION"), "\n"));
        assert!(output.status.success() && output.stderr.is_empty());
    }
    for option in ["--help", "-h"] {
        let output = run(&[option], b"", dir.path());
        let help = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && output.stderr.is_empty());
        for directive in seendb::config::DIRECTIVES {
            assert!(help.contains(&format!("--{} ", directive.name)), "{} is not in the help", directive.name);
        }
    }
}

// Where settings come from

#[test]
fn the_command_line_counts_over_the_file_and_the_file_over_the_default() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.conf");
    std::fs::write(&path, "maxclients 50\ntimeout 7\nproto-max-bulk-len 2mb\n").unwrap();
    // The harness puts --port and --dir first, a file cannot follow these.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let words = [path.to_str().unwrap(), "--port", &port.to_string(), "--timeout", "9"].map(String::from);
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_seendb"))
        .args(words)
        .current_dir(dir.path())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    wait_until("the server", || Client::connect(port).is_ok());
    let mut client = Client::connect(port).unwrap();
    for (name, value) in
        [("maxclients", "50"), ("timeout", "9"), ("proto-max-bulk-len", "2097152"), ("tcp-keepalive", "300")]
    {
        assert_eq!(client.cmd(&format!("CONFIG GET {name}")).field(name).text(), value, "{name}");
    }
    assert_eq!(client.cmd("CONFIG GET dir").field("dir").text(), dir.path().canonicalize().unwrap().to_str().unwrap());
    assert!(matches!(client.call_raw(&["PING"]).1, Value::Simple(_)));
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_file_from_standard_input() {
    let dir = tempfile::tempdir().unwrap();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_seendb"))
        .args(["-", "--maxclients", "60"])
        .current_dir(dir.path())
        .stdin(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let text = format!("port {port}\nmaxclients 50\nrequirepass 'a b'\n");
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    wait_until("the server", || Client::connect(port).is_ok());
    let mut client = Client::connect(port).unwrap();
    assert!(client.call(&["AUTH", "a b"]) == "OK");
    assert_eq!(client.cmd("CONFIG GET maxclients").field("maxclients").text(), "60");
    client.send(&encode(&["SHUTDOWN", "NOSAVE"]));
    assert_eq!(client.read_to_close(), b"");
    assert!(child.wait().unwrap().success());
}

// The log

#[test]
fn the_log_as_text() {
    let mut server = Server::start();
    signal(&server, libc::SIGTERM);
    server.wait_for_end();
    let log = server.log();
    let lines: Vec<&str> = log.lines().collect();
    assert_eq!(lines.len(), 5, "{log}");
    assert!(lines[0].contains("0 keys loaded") && lines[0].contains("neither a snapshot nor a log"), "{log}");
    assert!(lines[1].contains(" INFO ") && lines[1].contains("ready to accept connections at 127.0.0.1:"), "{log}");
    assert!(lines[1].contains(&format!("process={}", server.pid())) && lines[1].contains("version=\"0.1.0\""), "{log}");
    assert!(lines[2].contains("SIGTERM") && lines[3].contains("snapshot saved") && lines[4].contains("bye"), "{log}");
    assert!(!log.contains('\x1b'), "no colours in a file");
    // RFC 3339, UTC.
    assert!(lines.iter().all(|line| line.as_bytes()[10] == b'T' && line.split(' ').next().unwrap().ends_with('Z')));
}

#[test]
fn the_log_as_json_in_a_file() {
    let mut server = Server::with(&["--log-format", "json", "--logfile", "server.log", "--loglevel", "debug"]);
    let mut client = server.client();
    assert!(client.cmd("CONFIG SET timeout 100") == "OK");
    until_closed(server.port(), b"*1\r\n$-2\r\n");
    signal(&server, libc::SIGTERM);
    server.wait_for_end();
    assert_eq!(server.log(), "", "nothing goes to standard error");
    let text = std::fs::read_to_string(server.dir().join("server.log")).unwrap();
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect();
    assert!(lines.len() >= 4, "{text}");
    for line in &lines {
        assert!(line["timestamp"].is_string() && line["level"].is_string() && line["message"].is_string(), "{line}");
    }
    assert_eq!(lines[1]["process"], server.pid());
    let said = |words: &str| lines.iter().any(|line| line["message"].as_str().unwrap().contains(words));
    assert!(said("ready to accept") && said("'timeout' changed") && said("SIGTERM"), "{text}");
}

#[test]
fn the_level_of_the_log_changes_at_run_time() {
    let server = Server::with(&["--loglevel", "warning"]);
    let mut client = server.client();
    assert_eq!(server.log(), "", "a start is no warning");
    for level in ["notice", "verbose", "debug", "nothing"] {
        assert!(client.cmd(&format!("CONFIG SET loglevel {level}")) == "OK");
        assert_eq!(client.cmd("CONFIG GET loglevel").field("loglevel").text(), level);
    }
    assert!(client.cmd("CONFIG SET timeout 5") == "OK");
    let quiet = server.log();
    assert!(!quiet.contains("'timeout'"), "{quiet}");
    assert!(client.cmd("CONFIG SET loglevel notice") == "OK");
    assert!(client.cmd("CONFIG SET timeout 6") == "OK");
    wait_until("a line in the log", || server.log().contains("'timeout' changed"));
    assert!(client.cmd("CONFIG SET loglevel loud").error().contains("loglevel"));
}

#[test]
fn passwords_do_not_get_into_the_log() {
    let mut server = Server::with(&["--requirepass", "topsecret", "--loglevel", "debug"]);
    let mut client = server.client();
    client.cmd("AUTH wrongsecret");
    assert!(client.cmd("AUTH topsecret") == "OK");
    assert!(client.cmd("CONFIG SET requirepass othersecret") == "OK");
    signal(&server, libc::SIGTERM);
    server.wait_for_end();
    assert!(!server.log().contains("secret"), "{}", server.log());
}

/// Only a socket that nobody answers at may be replaced; anything else of that name is somebody's file.
#[test]
fn a_file_in_the_place_of_the_socket_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("notes"), "precious").unwrap();
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_seendb"))
        .args(["--port", "0", "--unixsocket", "notes"])
        .current_dir(dir.path())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    let socket = || std::os::unix::net::UnixStream::connect(dir.path().join("notes")).is_ok();
    wait_until("the program to end, or to serve", || child.try_wait().unwrap().is_some() || socket());
    child.kill().unwrap();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    child.wait().unwrap();
    assert_eq!(std::fs::read_to_string(dir.path().join("notes")).ok().as_deref(), Some("precious"), "{said}");
    assert!(said.contains("notes"), "{said}");
}
