//! Rings from a stranger: values of RDB, dumps, exports. Reading never panics and takes no more than its limit; a ring that was taken
//! can be used, and written in each form and read again it is the same.
//!
//! The first byte chooses: a value as it stands; a dump, as *(2 bytes length, the header without its checksum)* and such pieces
//! of further chunks; an export without its checksum. Checksums, digests and numbers are made right, so that no mutation fails there.

#![no_main]

use libfuzzer_sys::fuzz_target;
use seendb::codec::crc64::Crc64;
use seendb::codec::rdb::Reader;
use seendb::codec::ring_dump::{CHUNK_BYTES, LoadError, RingDump, RingLoad};
use seendb::codec::ring_export::{ExportedRing, export};
use seendb::codec::ring_value::{RingValue, RingWriter};
use seendb::filters::item_hash::hash_item;
use seendb::filters::ring::{Mode, Ring, Window};

const LIMIT_BYTES: u64 = 1 << 22;
/// Where the header of a dump has these fields.
const DIGEST: std::ops::Range<usize> = 96..104;
const CHUNKS: std::ops::Range<usize> = 112..116;
const END: u64 = (1 << 28) - 1;
const ITEMS: [&[u8]; 3] = [b"", b"a", b"item"];

fuzz_target!(|data: &[u8]| {
    let Some((&choice, rest)) = data.split_first() else { return };
    match choice % 3 {
        0 => {
            if let Some(ring) = value(rest) {
                check(&ring);
            }
        }
        1 => {
            if let Some(ring) = dump(rest) {
                check(&ring);
            }
        }
        _ => {
            let _ = ExportedRing::read(rest);
            let bytes = [rest, &hash_item(rest, None).to_le_bytes()].concat();
            if let Ok(ring) = ExportedRing::read(&bytes) {
                for item in ITEMS {
                    let _ = (ring.contains(item), ring.contains_at(item, u64::MAX));
                }
            }
        }
    }
});

fn value(data: &[u8]) -> Option<Ring> {
    let mut reader = Reader::new(data);
    let value = RingValue::read(&mut reader).ok()?;
    // Nothing that was announced is larger than what its bytes can give.
    assert!(value.bytes() <= data.len() as u64 * 88);
    (value.bytes() <= LIMIT_BYTES).then(|| value.build().expect("memory for a few megabytes"))
}

fn with_crc(body: &[u8]) -> Vec<u8> {
    [body, &Crc64::of(body).to_le_bytes()].concat()
}

fn piece<'a>(data: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, rest) = data.split_first_chunk::<2>()?;
    let piece;
    (piece, *data) = rest.split_at(usize::from(u16::from_le_bytes(*length)).min(rest.len()));
    Some(piece)
}

fn dump(mut data: &[u8]) -> Option<Ring> {
    let header = piece(&mut data)?;
    let digest: [u8; 8] = header.get(DIGEST)?.try_into().ok()?;
    let chunks: [u8; 4] = header.get(CHUNKS)?.try_into().ok()?;
    let next = if chunks == [0; 4] { END } else { 1 };
    let cursor = (u64::from_le_bytes(digest) >> 29) << 28 | next;
    let mut load = RingLoad::new(cursor, &with_crc(header), LIMIT_BYTES).ok()?;
    let mut number = 1_u32;
    while !load.is_whole() {
        let body = [&digest[..], &number.to_le_bytes(), &chunks, piece(&mut data)?].concat();
        let Err(LoadError::Offset { expected }) = load.take(0, &[]) else { panic!("cursor 0 is of no chunk") };
        let whole = load.take(expected, &with_crc(&body)).ok()?;
        assert_eq!(load.take(expected, &with_crc(&body)), Ok(whole), "again");
        number += 1;
    }
    load.into_ring()
}

fn write(ring: &Ring) -> Vec<u8> {
    let (mut writer, mut out) = (RingWriter::new(ring.clone()), Vec::new());
    let len = writer.len();
    while !writer.step(&mut out, 1000) {}
    assert_eq!(out.len() as u64, len);
    out
}

fn check(ring: &Ring) {
    check_forms(ring);
    let mut ring = ring.clone();
    let (latest, settings) = (ring.latest, ring.settings);
    for (i, item) in ITEMS.into_iter().enumerate() {
        let at = (settings.slice_ms() > 0).then_some(latest.saturating_add(i as u64).min(i64::MAX as u64));
        let Ok(event) = settings.event(latest, latest, at) else { continue };
        // The largest array that the write can need.
        let grown = ring.parts.iter().map(|part| part.growth).max().map_or(0, |growth| growth.saturating_add(1));
        let largest = settings.array(if settings.slices_grow() { grown } else { 0 });
        if largest.is_ok_and(|array| array.bytes() <= LIMIT_BYTES) {
            let hash = hash_item(item, settings.key.as_ref());
            let written = ring.insert(hash, event).is_ok();
            // An array may be made for less than the settings say; the second of two then comes too late.
            // And what is older than all slices of a full window that is bounded goes at once.
            let may_go = matches!(settings.mode, Mode::Dual { .. } | Mode::Window(Window { bounded: true, .. }));
            assert!(!written || may_go || ring.contains(hash, ring.latest), "an item is forgotten at once");
        }
    }
    check_forms(&ring);
}

/// Written in each form and read again it is the same.
fn check_forms(ring: &Ring) {
    let bytes = write(ring);
    let read = value(&bytes);
    if let Some(read) = read {
        assert!(write(&read) == bytes);
    }
    let header = RingDump::chunk(ring, 0).expect("a header");
    let mut load = RingLoad::new(header.cursor, &header.data, u64::MAX).expect("its own header");
    let mut cursor = header.cursor;
    while !load.is_whole() {
        let chunk = RingDump::chunk(ring, cursor).expect("the next chunk");
        assert!(chunk.data.len() <= CHUNK_BYTES);
        cursor = chunk.cursor;
        load.take(cursor, &chunk.data).expect("its own chunk");
    }
    assert!(write(&load.into_ring().expect("it is whole")) == bytes);
    let exported = export(ring, ring.latest).expect("memory for a few megabytes");
    let exported = ExportedRing::read(&exported).expect("its own export");
    for item in ITEMS {
        let hash = hash_item(item, ring.settings.key.as_ref());
        assert_eq!(exported.contains(item), ring.contains(hash, ring.latest));
    }
}
