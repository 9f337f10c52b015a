//! Payloads for `RESTORE`: those that `DUMP` gave, and such as no server wrote.

use crate::support::Random;

/// What one filter's `DUMP` answered on either server; the bytes differ by how strings are compressed, the filters do not.
#[derive(Clone)]
pub struct Payload {
    /// SeenDB's bytes.
    pub ours: Vec<u8>,
    /// The peer's bytes.
    pub theirs: Vec<u8>,
}

/// CRC-64 by Jones, reflected, bit by bit: written here a second time on purpose.
fn crc64(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ u64::from(*byte), |crc, _| (crc >> 1) ^ (0x95ac_9329_ac4b_c9b5 & (crc & 1).wrapping_neg()))
    })
}

/// A value with version and checksum behind it.
pub fn framed(body: &[u8], version: u16) -> Vec<u8> {
    let mut out = [body, &version.to_le_bytes()].concat();
    out.extend(crc64(&out).to_le_bytes());
    out
}

/// A sound frame around a value of a module that nobody has.
pub fn of_unknown_type() -> Vec<u8> {
    framed(&[7, 0x81, 1, 2, 3, 4, 5, 6, 7, 8, 0], 10)
}

/// A payload for each server, and the rule by which they are not the same one.
pub type Given = (Vec<u8>, Vec<u8>, Option<&'static str>);

/// One of the known payloads, as it is: each server's own, the other's, or the same for both.
pub fn sound(random: &mut Random, known: &[Payload]) -> Option<Given> {
    let Payload { ours, theirs } = known.get(random.below(known.len().max(1)))?.clone();
    Some(match random.below(4) {
        0 => (ours, theirs, None),
        1 => (theirs.clone(), theirs, None),
        2 => (ours.clone(), ours, None),
        _ => (theirs, ours, None),
    })
}

/// A payload that is refused, or only by one of the servers.
pub fn unsound(random: &mut Random, known: &[Payload]) -> Given {
    let both = |bytes: Vec<u8>| (bytes.clone(), bytes, None);
    let some = match known.is_empty() {
        true => framed(&[7, 0x81, 0x30, 0x16, 0xe5, 0xa2, 0x89, 0xbe, 0xf8, 4, 0], 10),
        false => random.pick(known).theirs.clone(),
    };
    let body = some[..some.len() - 10].to_vec();
    match random.below(12) {
        0 => both(Vec::new()),
        1 => both(vec![b'x'; random.below(30)]),
        2 => both(some[..random.below(some.len())].to_vec()),
        // Not a zero: a checksum's bytes moved by one, with a zero behind, are the right checksum again.
        3 => both([&some[..], b"x"].concat()),
        4 => {
            let (mut bytes, at) = (some.clone(), random.below(some.len()));
            bytes[at] ^= 1 << random.below(8);
            both(bytes)
        }
        5 => both([&some[..some.len() - 8], &[0; 8]].concat()),
        6 => both(framed(&body, *random.pick(&[81, 200, u16::MAX]))),
        7 => both(of_unknown_type()),
        8 => {
            // A later encoding of the same type.
            let mut later = body;
            later[9] = 7;
            both(framed(&later, 10))
        }
        9 if !known.is_empty() => (framed(&body, 12), some, Some("restore-version")),
        10 => (framed(&[&body[..], b"\0"].concat(), 10), of_unknown_type(), Some("restore-trailing")),
        9 | 11 => {
            // A string, and a list of them: Redis would make these keys.
            let bytes: &[u8] =
                if random.percent(50) { b"\x00\x03abc" } else { b"\x12\x01\x02\x0b\x0b\0\0\0\x01\0\x81a\x02\xff" };
            (framed(bytes, 10), of_unknown_type(), Some("restore-types"))
        }
        _ => unreachable!("twelve cases"),
    }
}
