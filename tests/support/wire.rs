//! Plain connections for tests that must see what a client library hides: bytes that are never read, half requests, the
//! end of a connection, Unix sockets. And the kinds of a reply without its values.

#![allow(dead_code, reason = "every test program uses another part of this module")]

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// A connection to a port of this machine whose reads and writes fail after a minute instead of hanging the test.
#[track_caller]
pub fn plain(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).expect("the server accepts");
    stream.set_nodelay(true).expect("a TCP option");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
    stream.set_write_timeout(Some(Duration::from_secs(60))).expect("a timeout");
    stream
}

/// All that comes until the peer closes. A reset is an end too: whoever closes with unread bytes makes one.
#[track_caller]
pub fn to_the_end(stream: &mut impl Read) -> Vec<u8> {
    let mut got = Vec::new();
    let mut piece = vec![0; 64 << 10];
    loop {
        match stream.read(&mut piece) {
            Ok(0) => return got,
            Ok(read) => got.extend_from_slice(&piece[..read]),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return got,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => panic!("the connection stays open ({error}) after {} bytes", got.len()),
        }
    }
}

/// Sends bytes on a new connection, tells the server that no more will come, returns all that it says.
#[track_caller]
pub fn say(port: u16, bytes: &[u8]) -> Vec<u8> {
    let mut stream = plain(port);
    // A server that has closed by then is no failure of the test.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    to_the_end(&mut stream)
}

/// Sends bytes on a new connection and returns all that comes until the *server* closes it.
#[track_caller]
pub fn until_closed(port: u16, bytes: &[u8]) -> Vec<u8> {
    let mut stream = plain(port);
    let _ = stream.write_all(bytes);
    to_the_end(&mut stream)
}

/// Whether bytes are waiting to be read.
pub fn has_bytes(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).expect("a socket option");
    let looked = stream.peek(&mut [0]);
    stream.set_nonblocking(false).expect("a socket option");
    matches!(looked, Ok(read) if read > 0)
}

/// The kinds of a reply: `%{$:[:]}` is a map of a string to an integer and to … an array of one integer. Strings are all
/// `$`, elements that repeat the kind before them are left out, so that lists of different lengths are alike.
#[track_caller]
pub fn kinds(raw: &[u8]) -> String {
    let (text, rest) = kinds_of(raw);
    assert!(rest.is_empty(), "bytes after the reply");
    text
}

#[track_caller]
fn kinds_of(raw: &[u8]) -> (String, &[u8]) {
    let end = raw.windows(2).position(|pair| pair == b"\r\n").expect("a line");
    let (line, mut rest) = (&raw[..end], &raw[end + 2..]);
    let number = || std::str::from_utf8(&line[1..]).ok().and_then(|text| text.parse::<i64>().ok()).expect("a number");
    match line[0] {
        b'$' | b'=' if number() >= 0 => ("$".into(), &rest[number() as usize + 2..]),
        b'$' | b'=' => ("_".into(), rest),
        // RESP2 has two nulls, and clients may tell them apart.
        b'*' if number() < 0 => ("_[]".into(), rest),
        b'+' => ("+".into(), rest),
        kind @ (b'*' | b'~' | b'>' | b'%') => {
            let count = number() * if kind == b'%' { 2 } else { 1 };
            let mut parts: Vec<String> = Vec::new();
            for _ in 0..count {
                let (part, behind) = kinds_of(rest);
                rest = behind;
                if kind == b'%' || parts.last() != Some(&part) {
                    parts.push(part);
                }
            }
            (format!("{}[{}]", kind as char, parts.join(" ")), rest)
        }
        kind => ((kind as char).to_string(), rest),
    }
}
