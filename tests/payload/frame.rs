//! The frame: version, checksum, type.

use super::model::{Chain, Filter, Link, framed, reframed, unhex, value};
use seendb::codec::bloom_value::ValueError;
use seendb::codec::payload::{self, FrameError, PayloadError};
use seendb::codec::rdb::Malformed;

fn body() -> Vec<u8> {
    value(4, &Chain::of(5, 2, vec![Link::at_1_percent(4, 64, 0, b"12345678", 3)]).fields(4))
}

fn refusal(payload: &[u8]) -> PayloadError {
    payload::restore(payload, u64::MAX).unwrap_err()
}

#[test]
fn versions_up_to_those_known_are_read() {
    for version in [0, 1, 8, 9, 10, 11, 12, 13, 14, 15, 80] {
        Filter::restored(&framed(&body(), version));
    }
    for version in [16, 79, 81, 255, 256, u16::MAX] {
        assert_eq!(refusal(&framed(&body(), version)), FrameError::Version(version).into());
    }
    // The version that is written is one that Redis 7.0 reads.
    let written = Filter::restored(&framed(&body(), 1)).dump();
    assert_eq!(written, framed(&body(), 10));
}

#[test]
fn a_sound_frame_can_get_another_version() {
    for version in [12, 80, 4000] {
        let other = framed(&body(), version);
        assert_eq!(payload::with_version(&other, 8), Ok(framed(&body(), 8)));
        for bit in 0..other.len() * 8 {
            let mut bad = other.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(payload::with_version(&bad, 8), Err(FrameError::Checksum), "{bit}");
        }
        assert_eq!(payload::with_version(&other[..9], 8), Err(FrameError::Short));
    }
}

#[test]
fn a_wrong_checksum_is_refused_and_so_is_none() {
    let good = framed(&body(), 10);
    assert_eq!(payload::open(&good), Ok(&body()[..]));
    for bit in 0..good.len() * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        assert!(matches!(refusal(&bad), PayloadError::Frame(FrameError::Checksum | FrameError::Version(_))), "{bit}");
    }
    let mut none = good.clone();
    let at = none.len() - 8;
    none[at..].fill(0);
    assert_eq!(refusal(&none), FrameError::Checksum.into());
    // Ten zeros have the checksum that is in them; there is no value in them though.
    assert_eq!(refusal(&[0; 10]), ValueError::Malformed(Malformed).into());
    for len in 0..10 {
        assert_eq!(refusal(&vec![0; len]), FrameError::Short.into());
    }
    for len in 10..good.len() {
        assert_eq!(refusal(&reframed(good[..len].to_vec())), {
            let version = u16::from_le_bytes([good[len - 10], good[len - 9]]);
            match version {
                0..=15 | 80 => PayloadError::Value(ValueError::Malformed(Malformed)),
                _ => FrameError::Version(version).into(),
            }
        });
    }
}

#[test]
fn other_types_are_refused() {
    // Recorded: SET str abc; DUMP str.
    assert_eq!(refusal(&unhex("0003616263 0a00d9ac303d4172a2e2".replace(' ', "").as_str())), ValueError::Type.into());
    let of_id = |id: &str| framed(&[&[7], &unhex(id)[..], &body()[10..]].concat(), 10);
    Filter::restored(&of_id("813016e5a289bef804"));
    for id in ["813016e5a289821404", "8108c4a4f9360f1000", "813016e5a289bef805", "813016e5a289bef808", "00", "40ff"] {
        assert_eq!(refusal(&of_id(id)), ValueError::Type.into(), "{id}");
    }
    // Module values without opcodes.
    let mut old = body();
    old[0] = 6;
    assert_eq!(refusal(&framed(&old, 10)), ValueError::Type.into());
}

#[test]
fn nothing_may_follow_the_value() {
    assert_eq!(refusal(&framed(&[&body()[..], &[0]].concat(), 10)), ValueError::Trailing.into());
    assert_eq!(refusal(&framed(&[&body()[..], &body()].concat(), 10)), ValueError::Trailing.into());
}
