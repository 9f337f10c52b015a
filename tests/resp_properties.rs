//! Laws of the protocol layer over random input: what was encoded is scanned back however it is cut, replies decode with
//! an independent decoder (`redis-protocol`), and no bytes upset the scanner.

use std::collections::BTreeSet;

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use redis_protocol::resp2::decode::decode as decode2;
use redis_protocol::resp2::types::OwnedFrame as Frame2;
use redis_protocol::resp3::decode::complete::decode as decode3;
use redis_protocol::resp3::types::{OwnedFrame as Frame3, VerbatimStringFormat};
use seendb::resp::{Args, Batch, Limits, Protocol, ProtocolError, Reply, Scanner, encode, format_double};

/// The same cases on each run; a failing one is printed, not filed away.
fn config() -> ProptestConfig {
    ProptestConfig { cases: 512, rng_seed: RngSeed::Fixed(0x5EED), failure_persistence: None, ..Default::default() }
}

type Words = Vec<Vec<u8>>;

fn owned(args: Args<'_>) -> Words {
    args.iter().map(<[u8]>::to_vec).collect()
}

/// Scans `input` that arrives in pieces of the given lengths (the rest as the last one), at most `most` requests at a
/// time, and checks on the way what the scanner says of itself.
fn scan(input: &[u8], pieces: &[usize], most: usize) -> (Vec<Words>, Option<ProtocolError>) {
    let (mut scanner, mut batch, limits) = (Scanner::new(), Batch::default(), Limits::default());
    let (mut buf, mut rest, mut requests) = (Vec::new(), input, Vec::new());
    for &len in pieces.iter().chain([&usize::MAX]) {
        let (piece, behind) = rest.split_at(len.min(rest.len()));
        rest = behind;
        buf.extend_from_slice(piece);
        loop {
            let outcome = scanner.scan(&mut buf, &limits, most, &mut batch);
            requests.extend((0..batch.len()).map(|index| owned(batch.request(&buf, index))));
            if let Err(error) = outcome {
                return (requests, Some(error));
            }
            let consumed = scanner.consumed();
            assert!(consumed <= buf.len() && batch.len() <= most);
            buf.drain(..consumed);
            scanner.discard(consumed);
            if batch.len() < most {
                assert_eq!(scanner.wanted() == 0, buf.is_empty());
                break;
            }
        }
    }
    (requests, None)
}

fn array(words: &Words) -> Vec<u8> {
    let mut out = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
    out
}

/// The words as one line, each in the kind of quotes that `style` picks (bare only where that is possible).
fn line(words: &Words, style: u8) -> Vec<u8> {
    let mut out = Vec::new();
    for (index, word) in words.iter().enumerate() {
        match (usize::from(style) + index) % 3 {
            0 if !word.contains(&b'\n') && !word.contains(&b'\\') => {
                let quoted = word.iter().flat_map(|&byte| if byte == b'\'' { vec![b'\\', byte] } else { vec![byte] });
                out.extend([b'\''].into_iter().chain(quoted).chain([b'\'']));
            }
            1 if !word.is_empty() && word.iter().all(u8::is_ascii_alphanumeric) => out.extend_from_slice(word),
            _ => {
                let quoted = word.iter().map(|byte| format!("\\x{byte:02x}")).collect::<String>();
                out.extend_from_slice(format!("\"{quoted}\"").as_bytes());
            }
        }
        out.extend_from_slice(if style & 8 == 0 { b" " } else { b"\t " });
    }
    out.extend_from_slice(if style & 16 == 0 { b"\r\n" } else { b"\n" });
    out
}

/// Words with a liking for the bytes that mean something somewhere.
fn words() -> impl Strategy<Value = Words> {
    let byte = prop_oneof![3 => any::<u8>(), 1 => prop::sample::select(b"\r\n*$\"'\\ x0".to_vec()), 2 => b'a'..=b'z'];
    let word = prop_oneof![8 => vec(byte.clone(), 0..12), 1 => vec(byte, 90..130)];
    vec(word, 1..6)
}

/// A request with its bytes on the wire, sometimes behind empty ones.
fn request() -> impl Strategy<Value = (Words, Vec<u8>)> {
    let before = prop::sample::select(vec![&b""[..], b"", b"", b"*0\r\n", b"\r\n", b" \n", b"*-1\r\n"]);
    (words(), any::<bool>(), any::<u8>(), before).prop_map(|(words, typed, style, before)| {
        let bytes = if typed { line(&words, style) } else { array(&words) };
        (words, [before.to_vec(), bytes].concat())
    })
}

/// Bytes that are more often almost right than plain noise.
fn near_protocol() -> impl Strategy<Value = Vec<u8>> {
    let noise = vec(any::<u8>(), 0..40).boxed();
    let close = vec(prop::sample::select(b"*$\r\n\r\n0123456789-+ ab\"'\\x\0".to_vec()), 0..40).boxed();
    let parts =
        prop::sample::select(vec!["*1\r\n", "*2\r\n", "$1\r\n", "$4\r\nPING\r\n", "a\r\n", "\r\n", "*", "$", "0"]);
    let joined = vec(parts, 0..12).prop_map(|parts| parts.concat().into_bytes()).boxed();
    prop_oneof![noise, close, joined]
}

proptest! {
    #![proptest_config(config())]

    /// Requests come back word for word, wherever the reads cut them and however few are taken at a time.
    #[test]
    fn what_was_sent_is_scanned(
        requests in vec(request(), 0..8),
        pieces in vec(0_usize..40, 0..30),
        most in 1_usize..5,
    ) {
        let input: Vec<u8> = requests.iter().flat_map(|(_, bytes)| bytes.clone()).collect();
        let sent: Vec<Words> = requests.into_iter().map(|(words, _)| words).collect();
        prop_assert_eq!(scan(&input, &pieces, most), (sent, None));
    }

    /// On flat arrays of bulk strings an independent decoder agrees.
    #[test]
    fn arrays_decode_alike_elsewhere(requests in vec(words(), 1..6)) {
        let input: Vec<u8> = requests.iter().flat_map(array).collect();
        let (mut rest, mut decoded) = (&input[..], Vec::new());
        while let Some((Frame2::Array(frames), used)) = decode2(rest).unwrap() {
            decoded.push(frames.into_iter().map(|frame| match frame {
                Frame2::BulkString(bytes) => bytes,
                other => panic!("{other:?}"),
            }).collect::<Words>());
            rest = &rest[used..];
            if rest.is_empty() {
                break;
            }
        }
        prop_assert_eq!(scan(&input, &[], usize::MAX), (decoded, None));
    }

    /// No bytes make the scanner panic or loop, and what it makes of them does not depend on how they arrive.
    #[test]
    fn any_bytes_give_one_outcome(
        input in prop_oneof![near_protocol(), vec(near_protocol(), 0..4).prop_map(|parts| parts.concat())],
        pieces in vec(0_usize..6, 0..60),
        most in 1_usize..4,
    ) {
        prop_assert_eq!(scan(&input, &pieces, most), scan(&input, &[], usize::MAX));
    }

    /// Doubles read back as the same number.
    #[test]
    fn doubles_read_back(value in prop_oneof![any::<f64>(), (-1e9..1e9), (0.0..1.0), (-1e22..1e22)]) {
        let mut out = Vec::new();
        format_double(value, &mut out);
        let text = String::from_utf8(out).unwrap();
        let read: f64 = text.parse().unwrap();
        prop_assert!(read.to_bits() == value.to_bits() || read.is_nan() && value.is_nan(), "{} {}", value, text);
    }

    /// Replies decode to what they say, in RESP2 and in RESP3, and nothing is left over.
    #[test]
    fn replies_decode_elsewhere(reply in reply()) {
        let mut out = Vec::new();
        encode(&reply, Protocol::Resp2, &mut out);
        let (frame, used) = decode2(&out).unwrap().unwrap();
        prop_assert_eq!((frame, used), (frame2(&reply), out.len()));
        out.clear();
        encode(&reply, Protocol::Resp3, &mut out);
        let (frame, used) = decode3(&out).unwrap().unwrap();
        prop_assert_eq!((frame, used), (frame3(&reply), out.len()));
    }
}

/// Replies without elements.
fn leaf() -> impl Strategy<Value = Reply> {
    prop_oneof![
        Just(Reply::Ok),
        "[a-zA-Z \r\n]{0,20}".prop_map(Reply::simple),
        "ERR [a-zA-Z' \r\n]{0,20}".prop_map(Reply::error),
        any::<i64>().prop_map(Reply::Integer),
        any::<bool>().prop_map(Reply::Bool),
        vec(any::<bool>(), 0..80).prop_map(|values| Reply::Bools(values.into())),
        prop::num::f64::NORMAL.prop_map(Reply::Double),
        vec(any::<u8>(), 0..60).prop_map(|bytes| Reply::Bulk(Bytes::from(bytes))),
        ".{0,20}".prop_map(Reply::text),
        "[a-z:# \r\n]{0,40}".prop_map(Reply::Verbatim),
        Just(Reply::Null),
        Just(Reply::NullArray),
    ]
}

fn reply() -> impl Strategy<Value = Reply> {
    leaf()
        .prop_recursive(4, 40, 6, |inner| {
            prop_oneof![
                vec(inner.clone(), 0..6).prop_map(Reply::Array),
                // The other decoder keeps maps and sets as such, hence the numbered keys and distinct elements.
                vec(inner.clone(), 0..6).prop_map(|values| {
                    Reply::Map(
                        values.into_iter().enumerate().map(|(n, value)| (Reply::Integer(n as i64), value)).collect(),
                    )
                }),
                any::<BTreeSet<i16>>()
                    .prop_map(|set| Reply::Set(set.into_iter().map(|n| Reply::Integer(n.into())).collect())),
            ]
        })
        .prop_flat_map(|reply| {
            // Messages are pushed at the top only.
            let pushed = Reply::Push(vec![Reply::text("message"), reply.clone()]);
            prop_oneof![4 => Just(reply), 1 => Just(pushed)]
        })
}

/// Line breaks leave a one-line text as blanks.
fn one_line(text: &str) -> String {
    text.replace(['\r', '\n'], " ")
}

fn double(value: f64) -> Vec<u8> {
    let mut out = Vec::new();
    format_double(value, &mut out);
    out
}

/// What a reply says in RESP2, built without the encoder.
fn frame2(reply: &Reply) -> Frame2 {
    let all = |replies: &[Reply]| Frame2::Array(replies.iter().map(frame2).collect());
    match reply {
        Reply::Ok => Frame2::SimpleString(b"OK".to_vec()),
        Reply::Simple(text) => Frame2::SimpleString(one_line(text).into()),
        Reply::Error(text) => Frame2::Error(one_line(text)),
        Reply::Integer(value) => Frame2::Integer(*value),
        Reply::Bool(value) => Frame2::Integer(i64::from(*value)),
        Reply::Bools(values) => Frame2::Array(values.iter().map(|&value| Frame2::Integer(i64::from(value))).collect()),
        Reply::Double(value) => Frame2::BulkString(double(*value)),
        Reply::Bulk(bytes) => Frame2::BulkString(bytes.to_vec()),
        Reply::Text(text) => Frame2::BulkString(text.as_bytes().to_vec()),
        Reply::Verbatim(text) => Frame2::BulkString(text.as_bytes().to_vec()),
        Reply::Null | Reply::NullArray => Frame2::Null,
        Reply::Array(items) | Reply::Set(items) | Reply::Push(items) => all(items),
        Reply::Map(pairs) => {
            Frame2::Array(pairs.iter().flat_map(|(key, value)| [frame2(key), frame2(value)]).collect())
        }
        Reply::Field(pair) => Frame2::Array(vec![frame2(&pair.1)]),
        Reply::Sequence(_) | Reply::Encoded { .. } => panic!("not generated"),
    }
}

/// What a reply says in RESP3, built without the encoder.
fn frame3(reply: &Reply) -> Frame3 {
    let all = |replies: &[Reply]| replies.iter().map(frame3).collect::<Vec<_>>();
    let blob = |data: &[u8]| Frame3::BlobString { data: data.to_vec(), attributes: None };
    let boolean = |data: bool| Frame3::Boolean { data, attributes: None };
    match reply {
        Reply::Ok => Frame3::SimpleString { data: b"OK".to_vec(), attributes: None },
        Reply::Simple(text) => Frame3::SimpleString { data: one_line(text).into(), attributes: None },
        Reply::Error(text) => Frame3::SimpleError { data: one_line(text), attributes: None },
        Reply::Integer(value) => Frame3::Number { data: *value, attributes: None },
        Reply::Bool(value) => boolean(*value),
        Reply::Bools(values) => {
            Frame3::Array { data: values.iter().map(|&value| boolean(value)).collect(), attributes: None }
        }
        Reply::Double(value) => Frame3::Double { data: *value, attributes: None },
        Reply::Bulk(bytes) => blob(bytes),
        Reply::Text(text) => blob(text.as_bytes()),
        Reply::Verbatim(text) => Frame3::VerbatimString {
            data: text.as_bytes().to_vec(),
            format: VerbatimStringFormat::Text,
            attributes: None,
        },
        Reply::Null | Reply::NullArray => Frame3::Null,
        Reply::Array(items) => Frame3::Array { data: all(items), attributes: None },
        Reply::Set(items) => Frame3::Set { data: all(items).into_iter().collect(), attributes: None },
        Reply::Push(items) => Frame3::Push { data: all(items), attributes: None },
        Reply::Map(pairs) => Frame3::Map {
            data: pairs.iter().map(|(key, value)| (frame3(key), frame3(value))).collect(),
            attributes: None,
        },
        Reply::Field(pair) => {
            Frame3::Map { data: [(frame3(&pair.0), frame3(&pair.1))].into_iter().collect(), attributes: None }
        }
        Reply::Sequence(_) | Reply::Encoded { .. } => panic!("not generated"),
    }
}

/// The bytes that end a process which decodes them recursively.
#[test]
fn nested_arrays_are_an_error() {
    let nested = b"*1\r\n".repeat(31 * 1024 / 4);
    assert_eq!(scan(&nested, &[], 1), (vec![], Some(ProtocolError::ExpectedBulk(b'*'))));
}
