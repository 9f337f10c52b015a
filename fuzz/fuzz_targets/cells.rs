//! Counting and d-left filters from a stranger: values of RDB, dumps, exports. Reading never panics and takes no more than its limit; a
//! filter that was taken can be used, and written in each form and read again it is the same.
//!
//! The first byte chooses: a value as it stands; a dump, as *(2 bytes length, the header without its checksum)* and such pieces
//! of further chunks; an export without its checksum. Checksums, digests and numbers are made right, so that no mutation fails there.

#![no_main]

use libfuzzer_sys::fuzz_target;
use seendb::codec::cells_dump::{CellsDump, CellsLoad, KIND_COUNTING, KIND_DLEFT};
use seendb::codec::cells_value::{Cells, CellsRef, CellsValue, push_cells};
use seendb::codec::chunks::{CHUNK_BYTES, LoadError};
use seendb::codec::counting_export::{ExportedCounting, export};
use seendb::codec::crc64::Crc64;
use seendb::codec::rdb::Reader;
use seendb::codec::value::Load;
use seendb::filters::counting::{CountingMut, CountingRef};
use seendb::filters::dleft::DleftRef;
use seendb::filters::item_hash::hash_item;

const LIMIT_BYTES: u64 = 1 << 22;
/// Where the header of a dump has these fields.
const DIGEST: std::ops::Range<usize> = 11..19;
const CHUNKS: std::ops::Range<usize> = 27..31;
const KIND: usize = 9;
const END: u64 = (1 << 28) - 1;
const ITEMS: [&[u8]; 3] = [b"", b"a", b"item"];

fuzz_target!(|data: &[u8]| {
    let Some((&choice, rest)) = data.split_first() else { return };
    match choice % 3 {
        0 => value(rest).into_iter().for_each(check),
        1 => {
            let kind = rest.get(2 + KIND).copied();
            let filter =
                if kind == Some(KIND_COUNTING) { dump::<KIND_COUNTING>(rest) } else { dump::<KIND_DLEFT>(rest) };
            filter.into_iter().for_each(check);
        }
        _ => {
            let _ = ExportedCounting::read(rest);
            let bytes = [rest, &hash_item(rest, None).to_le_bytes()].concat();
            if let Ok(filter) = ExportedCounting::read(&bytes) {
                for item in ITEMS {
                    let _ = filter.contains(item);
                }
            }
        }
    }
});

fn value(data: &[u8]) -> Option<Cells> {
    let mut reader = Reader::new(data);
    let value = CellsValue::read(&mut reader).ok()?;
    let bytes = value.head().bytes();
    // Nothing that was announced is larger than what its bytes can give.
    assert!(bytes <= data.len() as u64 * 88);
    if bytes > LIMIT_BYTES { None } else { value.build().ok() }
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

fn dump<const KIND: u8>(mut data: &[u8]) -> Option<Cells>
where
    CellsLoad<KIND>: Load,
{
    let header = piece(&mut data)?;
    let digest: [u8; 8] = header.get(DIGEST)?.try_into().ok()?;
    let chunks: [u8; 4] = header.get(CHUNKS)?.try_into().ok()?;
    let cursor = (u64::from_le_bytes(digest) >> 29) << 28 | if chunks == [0; 4] { END } else { 1 };
    let mut load = CellsLoad::<KIND>::begin(cursor, &with_crc(header), LIMIT_BYTES).ok()?;
    let mut number = 1_u32;
    while !load.is_whole() {
        let body = [&digest[..], &number.to_le_bytes(), &chunks, piece(&mut data)?].concat();
        let Err(LoadError::Offset { expected }) = load.take(0, &[]) else { panic!("cursor 0 is of no chunk") };
        let whole = load.take(expected, &with_crc(&body)).ok()?;
        assert_eq!(load.take(expected, &with_crc(&body)), Ok(whole), "again");
        number += 1;
    }
    finish(load).ok()
}

fn finish<const KIND: u8>(mut load: CellsLoad<KIND>) -> Result<Cells, LoadError>
where
    CellsLoad<KIND>: Load,
{
    while !load.finish_step(10)? {}
    Ok(load.take_filter().expect("it is ready"))
}

fn write(filter: CellsRef<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    push_cells(&mut out, filter, None);
    out
}

fn check(mut filter: Cells) {
    check_forms(&filter);
    match &mut filter {
        Cells::Counting(filter) => {
            let mut filter = CountingMut::Large(filter);
            for item in ITEMS {
                let hash = filter.as_ref().hash(item);
                let before = filter.as_ref().count(hash);
                if filter.insert(hash).is_ok() {
                    assert!(
                        filter.as_ref().count(hash) > before
                            || before == filter.as_ref().settings().counter_bits.ceiling()
                    );
                    assert!(filter.remove(hash));
                }
            }
            filter.decay();
            assert!(filter.as_ref().is_sound());
        }
        Cells::Dleft(filter) => {
            for item in ITEMS {
                let hash = DleftRef::Large(filter).hash(item);
                let before = DleftRef::Large(filter).count(hash);
                if filter.insert(hash).is_ok() {
                    assert_eq!(DleftRef::Large(filter).count(hash), before + 1);
                    assert!(filter.remove(hash).expect("little memory"));
                }
                assert_eq!(DleftRef::Large(filter).count(hash), before);
            }
            assert!(DleftRef::Large(filter).is_sound());
        }
    }
    check_forms(&filter);
}

/// Written in each form and read again it is the same.
fn check_forms(filter: &Cells) {
    let bytes = write(filter.as_ref());
    let read = value(&bytes).expect("its own value");
    assert!(write(read.as_ref()) == bytes);
    let loaded = match filter {
        Cells::Counting(_) => reloaded::<KIND_COUNTING>(filter),
        Cells::Dleft(_) => reloaded::<KIND_DLEFT>(filter),
    };
    assert!(write(loaded.as_ref()) == bytes);
    if let Cells::Counting(filter) = filter {
        let filter = CountingRef::Large(filter);
        let exported = export(filter).expect("memory for a few megabytes");
        let exported = ExportedCounting::read(&exported).expect("its own export");
        ITEMS.iter().for_each(|item| assert_eq!(exported.contains(item), filter.contains(filter.hash(item))));
    }
}

fn reloaded<const KIND: u8>(filter: &Cells) -> Cells
where
    CellsLoad<KIND>: Load,
{
    let header = CellsDump::chunk(filter.as_ref(), 0).expect("a header");
    let mut load = CellsLoad::<KIND>::begin(header.cursor, &header.data, u64::MAX).expect("its own header");
    let mut cursor = header.cursor;
    while !load.is_whole() {
        let chunk = CellsDump::chunk(filter.as_ref(), cursor).expect("the next chunk");
        assert!(chunk.data.len() <= CHUNK_BYTES);
        cursor = chunk.cursor;
        load.take(cursor, &chunk.data).expect("its own chunk");
    }
    finish(load).expect("its own chunks")
}
