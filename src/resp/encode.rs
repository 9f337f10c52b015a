//! Replies as bytes, in both versions of the protocol: the only code that knows how a reply looks on the wire.
//!
//! Each kind of reply has a function of its own here; [`encode`] only chooses among them. A connection that knows what
//! it has to say (a batch of booleans, an error) calls them directly and builds no [`Reply`].

use memchr::memchr2_iter;

use super::{Protocol, Reply, format_double};

/// Room that a short element takes: enough for any integer, so that headers never reallocate twice.
const SHORT_BYTES: usize = 24;

/// Appends `reply` to `out` as `protocol` wants it.
///
/// Recurses as deep as the reply is nested; replies are built by handlers, never by a peer.
pub fn encode(reply: &Reply, protocol: Protocol, out: &mut Vec<u8>) {
    match reply {
        Reply::Ok => encode_ok(out),
        Reply::Simple(text) => encode_simple(text, out),
        Reply::Error(text) => encode_error(text, out),
        Reply::Integer(value) => encode_integer(*value, out),
        Reply::Bool(value) => encode_bool(*value, protocol, out),
        Reply::Bools(values) => encode_bools(values, protocol, out),
        Reply::Double(value) => encode_double(*value, protocol, out),
        Reply::Bulk(bytes) => encode_bulk(bytes, out),
        Reply::Text(text) => encode_bulk(text.as_bytes(), out),
        Reply::Verbatim(text) => encode_verbatim(text, protocol, out),
        Reply::Null => encode_null(protocol, out),
        Reply::NullArray => encode_null_array(protocol, out),
        Reply::Array(items) => {
            encode_array_header(items.len(), out);
            encode_all(items, protocol, out);
        }
        Reply::Encoded { count, bytes } => {
            encode_array_header(*count, out);
            out.extend_from_slice(bytes);
        }
        Reply::Map(pairs) => {
            encode_map_header(pairs.len(), protocol, out);
            for (key, value) in pairs {
                encode(key, protocol, out);
                encode(value, protocol, out);
            }
        }
        Reply::Field(pair) => {
            match protocol {
                Protocol::Resp2 => encode_array_header(1, out),
                Protocol::Resp3 => {
                    encode_map_header(1, protocol, out);
                    encode(&pair.0, protocol, out);
                }
            }
            encode(&pair.1, protocol, out);
        }
        Reply::Set(items) => {
            encode_set_header(items.len(), protocol, out);
            encode_all(items, protocol, out);
        }
        Reply::Push(items) => {
            encode_push_header(items.len(), protocol, out);
            encode_all(items, protocol, out);
        }
        Reply::Sequence(items) => encode_all(items, protocol, out),
    }
}

fn encode_all(items: &[Reply], protocol: Protocol, out: &mut Vec<u8>) {
    for item in items {
        encode(item, protocol, out);
    }
}

/// Appends `+OK`.
#[inline]
pub fn encode_ok(out: &mut Vec<u8>) {
    out.extend_from_slice(b"+OK\r\n");
}

/// Appends a status line; line breaks in it become blanks.
pub fn encode_simple(text: &str, out: &mut Vec<u8>) {
    line(b'+', text, out);
}

/// Appends an error line; `text` is the whole text, code first and without the `-`. Line breaks in it become blanks.
pub fn encode_error(text: &str, out: &mut Vec<u8>) {
    line(b'-', text, out);
}

/// Appends an integer.
#[inline]
pub fn encode_integer(value: i64, out: &mut Vec<u8>) {
    numbered(b':', value, out);
}

/// Appends one boolean.
#[inline]
pub fn encode_bool(value: bool, protocol: Protocol, out: &mut Vec<u8>) {
    out.extend_from_slice(bool_bytes(value, protocol));
}

/// Appends an array of booleans.
pub fn encode_bools(values: &[bool], protocol: Protocol, out: &mut Vec<u8>) {
    encode_array_header(values.len(), out);
    let start = out.len();
    // All elements have the same length, so the space is made once and filled without further checks.
    out.resize(start + BOOL_BYTES * values.len(), 0);
    for (slot, &value) in out[start..].chunks_exact_mut(BOOL_BYTES).zip(values) {
        slot.copy_from_slice(bool_bytes(value, protocol));
    }
}

/// Length of an encoded boolean, equal in both protocols.
const BOOL_BYTES: usize = 4;

#[inline]
fn bool_bytes(value: bool, protocol: Protocol) -> &'static [u8; BOOL_BYTES] {
    match (protocol, value) {
        (Protocol::Resp2, false) => b":0\r\n",
        (Protocol::Resp2, true) => b":1\r\n",
        (Protocol::Resp3, false) => b"#f\r\n",
        (Protocol::Resp3, true) => b"#t\r\n",
    }
}

/// Appends a double: a bulk string in RESP2.
pub fn encode_double(value: f64, protocol: Protocol, out: &mut Vec<u8>) {
    match protocol {
        Protocol::Resp2 => {
            // The length stands before digits whose number is known once they are written: turn the two round.
            let start = out.len();
            format_double(value, out);
            let len = out.len() - start;
            numbered(b'$', len, out);
            out[start..].rotate_left(len);
        }
        Protocol::Resp3 => {
            out.push(b',');
            format_double(value, out);
        }
    }
    out.extend_from_slice(b"\r\n");
}

/// For byte strings from this size on exactly the room that is needed is made.
const LARGE_BULK_BYTES: usize = 1 << 20;
/// The most bytes that stand around a byte string.
const BULK_FRAME_BYTES: usize = 32;

/// Appends a byte string.
#[inline]
pub fn encode_bulk(bytes: &[u8], out: &mut Vec<u8>) {
    if bytes.len() >= LARGE_BULK_BYTES {
        // Doubling would take twice of what is much already.
        out.reserve_exact(bytes.len() + BULK_FRAME_BYTES);
    }
    out.reserve(bytes.len() + SHORT_BYTES);
    numbered(b'$', bytes.len(), out);
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

/// Appends text for people: `txt:` and the text in RESP3, a byte string in RESP2.
fn encode_verbatim(text: &str, protocol: Protocol, out: &mut Vec<u8>) {
    const KIND: &[u8] = b"txt:";
    match protocol {
        Protocol::Resp2 => encode_bulk(text.as_bytes(), out),
        Protocol::Resp3 => {
            out.reserve(text.len() + KIND.len() + SHORT_BYTES);
            numbered(b'=', text.len() + KIND.len(), out);
            out.extend_from_slice(KIND);
            out.extend_from_slice(text.as_bytes());
            out.extend_from_slice(b"\r\n");
        }
    }
}

/// Appends "no value".
#[inline]
pub fn encode_null(protocol: Protocol, out: &mut Vec<u8>) {
    out.extend_from_slice(match protocol {
        Protocol::Resp2 => b"$-1\r\n".as_slice(),
        Protocol::Resp3 => b"_\r\n",
    });
}

/// Appends "no list".
#[inline]
pub fn encode_null_array(protocol: Protocol, out: &mut Vec<u8>) {
    out.extend_from_slice(match protocol {
        Protocol::Resp2 => b"*-1\r\n".as_slice(),
        Protocol::Resp3 => b"_\r\n",
    });
}

/// Appends the head of an array; its `len` elements follow.
#[inline]
pub fn encode_array_header(len: usize, out: &mut Vec<u8>) {
    numbered(b'*', len, out);
}

/// Appends the head of a map; `pairs` times a key and a value follow.
pub fn encode_map_header(pairs: usize, protocol: Protocol, out: &mut Vec<u8>) {
    match protocol {
        Protocol::Resp2 => numbered(b'*', 2 * pairs, out),
        Protocol::Resp3 => numbered(b'%', pairs, out),
    }
}

/// Appends the head of a set; its `len` elements follow.
pub fn encode_set_header(len: usize, protocol: Protocol, out: &mut Vec<u8>) {
    match protocol {
        Protocol::Resp2 => numbered(b'*', len, out),
        Protocol::Resp3 => numbered(b'~', len, out),
    }
}

/// Appends the head of a pushed message; its `len` elements follow.
pub fn encode_push_header(len: usize, protocol: Protocol, out: &mut Vec<u8>) {
    match protocol {
        Protocol::Resp2 => numbered(b'*', len, out),
        Protocol::Resp3 => numbered(b'>', len, out),
    }
}

/// Appends a marker, a number and the end of the line.
#[inline]
fn numbered(marker: u8, number: impl itoa::Integer, out: &mut Vec<u8>) {
    let mut digits = itoa::Buffer::new();
    out.reserve(SHORT_BYTES);
    out.push(marker);
    out.extend_from_slice(digits.format(number).as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Appends a marker and one line of text. A break inside would let the text pose as further replies.
fn line(marker: u8, text: &str, out: &mut Vec<u8>) {
    out.reserve(text.len() + SHORT_BYTES);
    out.push(marker);
    let start = out.len();
    out.extend_from_slice(text.as_bytes());
    for at in memchr2_iter(b'\r', b'\n', text.as_bytes()) {
        out[start + at] = b' ';
    }
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use smallvec::smallvec;

    use super::*;

    fn wire(reply: &Reply, protocol: Protocol) -> String {
        let mut out = Vec::new();
        encode(reply, protocol, &mut out);
        String::from_utf8(out).unwrap()
    }

    fn list() -> Vec<Reply> {
        vec![Reply::Integer(1), Reply::text("a")]
    }

    /// Every kind of reply, with its bytes in RESP2 and in RESP3.
    #[test]
    fn replies_in_both_protocols() {
        let long = "x".repeat(1000);
        let cases: Vec<(Reply, &str, &str)> = vec![
            (Reply::Ok, "+OK\r\n", "+OK\r\n"),
            (Reply::simple("PONG"), "+PONG\r\n", "+PONG\r\n"),
            (Reply::error("ERR not found"), "-ERR not found\r\n", "-ERR not found\r\n"),
            (Reply::Integer(i64::MIN), ":-9223372036854775808\r\n", ":-9223372036854775808\r\n"),
            (Reply::Bool(true), ":1\r\n", "#t\r\n"),
            (Reply::Bool(false), ":0\r\n", "#f\r\n"),
            (Reply::Bools(smallvec![]), "*0\r\n", "*0\r\n"),
            (Reply::Bools(smallvec![true, false, true]), "*3\r\n:1\r\n:0\r\n:1\r\n", "*3\r\n#t\r\n#f\r\n#t\r\n"),
            (Reply::Double(0.9), "$3\r\n0.9\r\n", ",0.9\r\n"),
            (Reply::Double(f64::NEG_INFINITY), "$4\r\n-inf\r\n", ",-inf\r\n"),
            (Reply::Double(49.696286472148536), "$18\r\n49.696286472148536\r\n", ",49.696286472148536\r\n"),
            (Reply::bulk(b""), "$0\r\n\r\n", "$0\r\n\r\n"),
            (Reply::bulk(b"a\r\nb\0"), "$5\r\na\r\nb\0\r\n", "$5\r\na\r\nb\0\r\n"),
            (Reply::text("Capacity"), "$8\r\nCapacity\r\n", "$8\r\nCapacity\r\n"),
            (Reply::Verbatim("# Server\r\n".into()), "$10\r\n# Server\r\n\r\n", "=14\r\ntxt:# Server\r\n\r\n"),
            (Reply::Null, "$-1\r\n", "_\r\n"),
            (Reply::NullArray, "*-1\r\n", "_\r\n"),
            (Reply::Array(vec![]), "*0\r\n", "*0\r\n"),
            (Reply::Array(list()), "*2\r\n:1\r\n$1\r\na\r\n", "*2\r\n:1\r\n$1\r\na\r\n"),
            (Reply::Map(vec![]), "*0\r\n", "%0\r\n"),
            (
                Reply::Map(vec![(Reply::text("k"), Reply::Null), (Reply::text("b"), Reply::Bool(true))]),
                "*4\r\n$1\r\nk\r\n$-1\r\n$1\r\nb\r\n:1\r\n",
                "%2\r\n$1\r\nk\r\n_\r\n$1\r\nb\r\n#t\r\n",
            ),
            (Reply::Set(list()), "*2\r\n:1\r\n$1\r\na\r\n", "~2\r\n:1\r\n$1\r\na\r\n"),
            (Reply::Push(list()), "*2\r\n:1\r\n$1\r\na\r\n", ">2\r\n:1\r\n$1\r\na\r\n"),
            (Reply::Sequence(vec![]), "", ""),
            (
                Reply::Sequence(vec![Reply::Push(list()), Reply::Ok]),
                "*2\r\n:1\r\n$1\r\na\r\n+OK\r\n",
                ">2\r\n:1\r\n$1\r\na\r\n+OK\r\n",
            ),
            (
                Reply::Array(vec![Reply::Bool(true), Reply::error("ERR full"), Reply::Array(vec![Reply::NullArray])]),
                "*3\r\n:1\r\n-ERR full\r\n*1\r\n*-1\r\n",
                "*3\r\n#t\r\n-ERR full\r\n*1\r\n_\r\n",
            ),
        ];
        for (reply, resp2, resp3) in &cases {
            assert_eq!(&wire(reply, Protocol::Resp2), resp2, "{reply:?}");
            assert_eq!(&wire(reply, Protocol::Resp3), resp3, "{reply:?}");
        }
        assert_eq!(wire(&Reply::text(long.clone()), Protocol::Resp2), format!("$1000\r\n{long}\r\n"));
    }

    #[test]
    fn a_text_cannot_pose_as_a_second_reply() {
        let text = "ERR no 'a\r\n+OK\n'\r\n";
        assert_eq!(wire(&Reply::error(text), Protocol::Resp2), "-ERR no 'a  +OK '  \r\n");
        assert_eq!(wire(&Reply::simple(text), Protocol::Resp3), "+ERR no 'a  +OK '  \r\n");
    }

    #[test]
    fn replies_are_appended() {
        let mut out = b"+OK\r\n".to_vec();
        for reply in [Reply::Double(1.5), Reply::Bools(smallvec![true]), Reply::error("E\n"), Reply::Bulk(Bytes::new())]
        {
            encode(&reply, Protocol::Resp2, &mut out);
        }
        assert_eq!(out, b"+OK\r\n$3\r\n1.5\r\n*1\r\n:1\r\n-E \r\n$0\r\n\r\n");
    }
}
