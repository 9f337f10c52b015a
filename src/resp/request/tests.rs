//! The scanner against what redis-server 7.0.15 answers to the same bytes, and against its own promises.

use super::*;

/// Requests and the error behind them, as owned values.
type Outcome = (Vec<Vec<Vec<u8>>>, Option<ProtocolError>);

/// Scans `input` arriving in pieces that end at `cuts`, dropping what is finished after each piece.
fn scan_pieces(input: &[u8], cuts: impl IntoIterator<Item = usize>, limits: &Limits) -> Outcome {
    let mut scanner = Scanner::new();
    let mut batch = Batch::default();
    let mut buf = Vec::new();
    let mut requests = Vec::new();
    let mut arrived = 0;
    for cut in cuts.into_iter().chain([input.len()]) {
        buf.extend_from_slice(&input[arrived..cut]);
        arrived = cut;
        let outcome = scanner.scan(&mut buf, limits, usize::MAX, &mut batch);
        requests.extend((0..batch.len()).map(|index| owned(batch.request(&buf, index))));
        if let Err(error) = outcome {
            return (requests, Some(error));
        }
        let consumed = scanner.consumed();
        buf.drain(..consumed);
        scanner.discard(consumed);
    }
    (requests, None)
}

fn owned(args: Args<'_>) -> Vec<Vec<u8>> {
    args.iter().map(<[u8]>::to_vec).collect()
}

fn scan(input: &[u8]) -> Outcome {
    scan_pieces(input, [], &Limits::default())
}

/// The requests of a well-formed input, its words separated by blanks.
fn lines(input: &[u8]) -> Vec<String> {
    let (requests, error) = scan(input);
    assert_eq!(error, None, "{}", input.escape_ascii());
    requests.iter().map(|words| String::from_utf8(words.join(&b' ')).unwrap()).collect()
}

fn error(input: &[u8]) -> String {
    scan(input).1.map(|error| error.to_string()).unwrap_or_default()
}

fn pre_auth_error(input: &[u8]) -> String {
    let limits = Limits { pre_auth: true, ..Limits::default() };
    scan_pieces(input, [], &limits).1.map(|error| error.to_string()).unwrap_or_default()
}

#[test]
fn arrays_and_lines_mix() {
    let input = b"*1\r\n$4\r\nPING\r\nECHO 'a b'\r\n*2\r\n$4\r\nECHO\r\n$0\r\n\r\nPING\n*3\r\n$1\r\na\r\n$10\r\n0123456789\r\n$2\r\n\r\n\r\n";
    assert_eq!(lines(input), ["PING", "ECHO a b", "ECHO ", "PING", "a 0123456789 \r\n"]);
}

#[test]
fn requests_without_arguments_are_passed_over() {
    assert_eq!(lines(b"*-5\r\nPING\r\n*0\r\nPING\r\n"), ["PING", "PING"]);
    assert_eq!(lines(b"\r\n\n   \r\n*-1\r\n  PING  \n\r\n"), ["PING"]);
    assert_eq!(lines(b"*-9223372036854775808\r\n"), [""; 0]);
}

/// Lax as Redis: bytes that must be there, but whose value nobody checks.
#[test]
fn line_feeds_are_taken_on_trust() {
    assert_eq!(lines(b"*1\rX$4\r\nPING\r\n"), ["PING"]);
    assert_eq!(lines(b"*1\r\n$4\rXPING..PING\n"), ["PING", "PING"]);
}

#[test]
fn nothing_is_complete_too_early() {
    let input = b"*2\r\n$4\r\nECHO\r\n$10\r\n0123456789\r\n";
    for end in 0..input.len() {
        assert_eq!(scan(&input[..end]), (vec![], None), "{end}");
    }
    for text in [&b"PING"[..], b"PING\r", b"*", b"*x", b"*1\r", b"*1\r\n$-x", b"*1\r\nX"] {
        assert_eq!(scan(text), (vec![], None), "{}", text.escape_ascii());
    }
}

#[test]
fn wrong_counts() {
    for input in [
        &b"*\r\n"[..],
        b"*+1\r\n",
        b"*01\r\n",
        b"*-0\r\n",
        b"* 1\r\n",
        b"*1 \r\n",
        b"*x\r\n",
        b"*1048577\r\n",
        b"*2147483648\r\n",
        b"*99999999999999999999\r\n",
        b"*-9223372036854775809\r\n",
    ] {
        assert_eq!(error(input), "Protocol error: invalid multibulk length", "{}", input.escape_ascii());
    }
    assert_eq!(error(b"*1048576\r\n"), "");
}

#[test]
fn wrong_lengths() {
    for length in
        ["-1", "-2", "x", "-x", "04", " 4", "+4", "4 ", "", "-", "536870913", "4294967296", "99999999999999999999"]
    {
        let input = format!("*1\r\n${length}\r\nPING\r\n");
        assert_eq!(error(input.as_bytes()), "Protocol error: invalid bulk length", "{length}");
    }
    assert_eq!(error(b"*1\r\n$536870912\r\n"), "");
    assert_eq!(error(b"*1\r\n$000000000\r\n"), "Protocol error: invalid bulk length");
}

#[test]
fn limits_are_settings() {
    let limits = Limits { bulk_bytes: 4, arguments: 2, inline_bytes: 5, pre_auth: false };
    let error = |input: &[u8]| scan_pieces(input, [], &limits).1;
    assert_eq!(error(b"*2\r\n$4\r\nECHO\r\n$4\r\nabcd\r\n"), None);
    assert_eq!(error(b"*3\r\n"), Some(ProtocolError::InvalidCount));
    assert_eq!(error(b"*1\r\n$5\r\n"), Some(ProtocolError::InvalidLength));
    assert_eq!(error(b"PING\r\n"), None);
    assert_eq!(error(b"PING a\n"), Some(ProtocolError::InlineTooLong));
}

/// Whatever `bulk_bytes` says, the places of a request fit in 32 bits.
#[test]
fn a_request_ends_before_4_gib() {
    let limits = Limits { bulk_bytes: u64::MAX, arguments: u64::MAX, ..Limits::default() };
    let error = |length: u64| scan_pieces(format!("*1\r\n${length}\r\n").as_bytes(), [], &limits).1;
    let before = "*1\r\n$4294967278\r\n".len() as u64;
    assert_eq!(error(u64::from(u32::MAX) - before - 2), None);
    assert_eq!(error(u64::from(u32::MAX) - before - 1), Some(ProtocolError::InvalidLength));
    assert_eq!(error(u64::from(u32::MAX) + 1), Some(ProtocolError::InvalidLength));
    assert_eq!(scan_pieces(b"*4294967296\r\n", [], &limits).1, Some(ProtocolError::InvalidCount));
}

#[test]
fn arguments_must_be_bulk_strings() {
    for (input, shown) in [
        (&b"*1\r\n+PING\r\n"[..], "+"),
        (b"*1\r\n*1\r\n", "*"),
        (b"*1\r\n:1\r\n", ":"),
        (b"*2\r\n$1\r\na\r\nPING\r\n", "P"),
        (b"*1\r\n'\r\n", "'"),
        (b"*1\r\n\r\n", " "),
        (b"*1\r\n\n\r\n", " "),
        (b"*1\r\n\xffx\r\n", "\\xff"),
        (b"*1\r\n\x001\r\n", "\\x00"),
    ] {
        assert_eq!(error(input), format!("Protocol error: expected '$', got '{shown}'"), "{}", input.escape_ascii());
    }
}

#[test]
fn nested_arrays_are_refused_at_the_second() {
    let nested = b"*1\r\n".repeat(31 * 1024 / 4);
    assert_eq!(scan(&nested), (vec![], Some(ProtocolError::ExpectedBulk(b'*'))));
}

#[test]
fn before_the_login_requests_are_small() {
    assert_eq!(pre_auth_error(b"*11\r\n"), "Protocol error: unauthenticated multibulk length");
    assert_eq!(pre_auth_error(b"*10\r\n"), "");
    assert_eq!(pre_auth_error(b"*0\r\n*-11\r\n"), "");
    assert_eq!(pre_auth_error(b"*2147483648\r\n"), "Protocol error: invalid multibulk length");
    assert_eq!(pre_auth_error(b"*1\r\n$16385\r\n"), "Protocol error: unauthenticated bulk length");
    assert_eq!(pre_auth_error(b"*1\r\n$16384\r\n"), "");
    assert_eq!(pre_auth_error(b"*1\r\n$536870913\r\n"), "Protocol error: invalid bulk length");
    assert_eq!(pre_auth_error(b"PING 1 2 3 4 5 6 7 8 9 10 11\r\n"), "");
}

/// `AUTH` and a long request in one packet: the limits change between the two.
#[test]
fn limits_may_change_between_requests() {
    let long = [b"*11\r\n".to_vec(), b"$1\r\na\r\n".repeat(11)].concat();
    let mut buf = [b"*2\r\n$4\r\nAUTH\r\n$1\r\nx\r\n".to_vec(), long].concat();
    let (mut scanner, mut batch) = (Scanner::new(), Batch::default());
    let before = Limits { pre_auth: true, ..Limits::default() };
    assert_eq!(scanner.scan(&mut buf, &before, 1, &mut batch), Ok(()));
    assert_eq!((batch.len(), batch.request(&buf, 0).len()), (1, 2));
    assert_eq!(scanner.scan(&mut buf, &Limits::default(), 1, &mut batch), Ok(()));
    assert_eq!((batch.len(), batch.request(&buf, 0).len()), (1, 11));
    assert_eq!(scanner.consumed(), buf.len());
}

#[test]
fn lines_have_an_end() {
    const MOST: usize = 64 * 1024;
    let filled = |start: &str, byte: &[u8], len: usize| [start.as_bytes(), &byte.repeat(len)].concat();
    for (start, byte, text) in [
        ("*", b"1", "Protocol error: too big mbulk count string"),
        ("*1\r\n$", b"1", "Protocol error: too big bulk count string"),
        ("*1\r\n.", b".", "Protocol error: too big bulk count string"),
        ("P", b" ", "Protocol error: too big inline request"),
    ] {
        assert_eq!(error(&filled(start, byte, MOST - 1)), "", "{start}");
        assert_eq!(error(&filled(start, byte, MOST)), text, "{start}");
        // The end comes too late: the same, in whatever pieces it arrives.
        let late = [filled(start, byte, MOST), b"\r\n".to_vec()].concat();
        assert_eq!(error(&late), text, "{start}");
    }
    let longest = [filled("PING", b" ", MOST - 4), b"\n".to_vec()].concat();
    assert_eq!(lines(&longest), ["PING"]);
}

#[test]
fn unbalanced_quotes() {
    for input in [&b"ECHO 'a\r\n"[..], b"ECHO \"a\\\"\n", b"ECHO \"a\"b\n"] {
        assert_eq!(error(input), "Protocol error: unbalanced quotes in request", "{}", input.escape_ascii());
    }
}

#[test]
fn requests_before_an_error_are_answered_and_the_error_stays() {
    let mut buf = b"PING\r\n*1\r\n$4\r\nPING\r\n*1\r\n$-1\r\nPING\r\n".to_vec();
    let (mut scanner, mut batch) = (Scanner::new(), Batch::default());
    let limits = Limits::default();
    assert_eq!(scanner.scan(&mut buf, &limits, 2, &mut batch), Ok(()));
    assert_eq!(batch.len(), 2);
    assert_eq!(scanner.scan(&mut buf, &limits, 2, &mut batch), Err(ProtocolError::InvalidLength));
    assert!(batch.is_empty());
    assert_eq!(scanner.scan(&mut buf, &limits, 2, &mut batch), Err(ProtocolError::InvalidLength));
    let mut fresh = Scanner::new();
    assert_eq!(fresh.scan(&mut buf, &limits, 9, &mut batch), Err(ProtocolError::InvalidLength));
    assert_eq!(batch.len(), 2);
    assert_eq!(owned(batch.request(&buf, 1)), [b"PING"]);
    assert_eq!(ProtocolError::InvalidLength.reply(), Reply::error("ERR Protocol error: invalid bulk length"));
}

#[test]
fn a_batch_is_no_longer_than_asked() {
    let mut buf = b"*1\r\n$1\r\na\r\n".repeat(10);
    let (mut scanner, mut batch) = (Scanner::new(), Batch::default());
    for (most, found, consumed) in [(0, 0, 0), (4, 4, 44), (4, 4, 88), (4, 2, 110), (4, 0, 110)] {
        scanner.scan(&mut buf, &Limits::default(), most, &mut batch).unwrap();
        assert_eq!((batch.len(), scanner.consumed()), (found, consumed));
        assert_eq!(scanner.wanted(), 0);
    }
}

#[test]
fn the_bytes_that_are_missing_are_known() {
    let (mut scanner, mut batch) = (Scanner::new(), Batch::default());
    let mut wanted = |buf: &[u8]| {
        scanner.scan(&mut buf.to_vec(), &Limits::default(), 9, &mut batch).unwrap();
        scanner.wanted()
    };
    let input = b"*3\r\n$3\r\nSET\r\n$1000000\r\n";
    assert_eq!(wanted(b""), 0);
    assert_eq!(wanted(&input[..1]), 1);
    assert_eq!(wanted(&input[..3]), 1);
    assert_eq!(wanted(&input[..4]), 3 * 6);
    assert_eq!(wanted(&input[..8]), 5 + 2 * 6);
    assert_eq!(wanted(&input[..13]), 2 * 6);
    assert_eq!(wanted(input), 1_000_002 + 6);
}

/// Announced sizes reserve nothing.
#[test]
fn memory_follows_what_arrived() {
    let (mut scanner, mut batch) = (Scanner::new(), Batch::default());
    let mut buf = b"*1048576\r\n$536870912\r\n".to_vec();
    scanner.scan(&mut buf, &Limits::default(), 9, &mut batch).unwrap();
    assert!(scanner.partial.capacity() + batch.spans.capacity() <= 2 * Scanner::COPIED_SPANS);
}

/// A batch lets go of the room that one huge request took.
#[test]
fn an_idle_batch_is_small() {
    let count = 100_000;
    let mut buf = [format!("*{count}\r\n").into_bytes(), b"$0\r\n\r\n".repeat(count)].concat();
    let (mut scanner, mut batch) = (Scanner::new(), Batch::default());
    scanner.scan(&mut buf, &Limits::default(), 9, &mut batch).unwrap();
    assert_eq!(batch.request(&buf, 0).len(), count);
    scanner.scan(&mut buf, &Limits::default(), 9, &mut batch).unwrap();
    assert!(batch.spans.capacity() <= 2 * Batch::KEPT_SPANS);
}

/// Bytes that the scanner looked at while `input` arrived in reads of `read` bytes, the front dropped after each.
fn examined(input: &[u8], read: usize) -> u64 {
    let (mut scanner, mut batch) = (Scanner::new(), Batch::default());
    let mut buf = Vec::new();
    let mut found = 0;
    for piece in input.chunks(read) {
        buf.extend_from_slice(piece);
        scanner.scan(&mut buf, &Limits::default(), usize::MAX, &mut batch).unwrap();
        found += batch.len();
        let consumed = scanner.consumed();
        buf.drain(..consumed);
        scanner.discard(consumed);
    }
    assert_eq!((found, buf.len()), (1, 0));
    scanner.examined
}

/// 4 MB in reads of 16 KB take no more looks than in one piece, but for a length that a read cut in two.
#[test]
fn large_requests_are_scanned_once() {
    let many = 4_000_000 / 14;
    let madd = [format!("*{many}\r\n").into_bytes(), b"$8\r\nitem1234\r\n".repeat(many)].concat();
    let lengths = (many * 4) as u64;
    let whole = examined(&madd, madd.len());
    assert!((lengths..lengths + 16).contains(&whole), "{whole}");
    let reads = (madd.len() / 16384 + 1) as u64;
    let pieces = examined(&madd, 16384);
    assert!(pieces <= whole + 16 * reads, "{pieces} of {whole}");

    let bulk = [b"*1\r\n$4000000\r\n".to_vec(), vec![b'x'; 4_000_000], b"\r\n".to_vec()].concat();
    assert!(examined(&bulk, 16384) < 64);

    let line = [b"PING ".to_vec(), vec![b'x'; 65000], b"\n".to_vec()].concat();
    assert!(examined(&line, 1) <= line.len() as u64);
}

#[test]
fn every_cut_gives_the_same() {
    let input: &[u8] =
        b"*3\r\n$9\r\nBF.EXISTS\r\n$1\r\nk\r\n$12\r\n*1\r\n$4\r\nPING\r\n\r\nECHO \"a\\x00b\" ''\r\n\n*0\r\n*1\r\n$0\r\n\r\n*2\r\n$1\r\n\r\r\n$2x\r\n";
    let whole = scan(input);
    assert_eq!(whole.0.len(), 3);
    assert_eq!(whole.1, Some(ProtocolError::InvalidLength));
    for first in 0..=input.len() {
        for second in first..=input.len() {
            assert_eq!(scan_pieces(input, [first, second], &Limits::default()), whole, "{first} {second}");
        }
    }
    assert_eq!(scan_pieces(input, 0..=input.len(), &Limits::default()), whole);
}
