//! DUMP payloads: reading never panics, and what was read, written and read again is the same filter.
//!
//! The input is what stands between object type and RDB version, so that no mutation fails at the checksum; now and then
//! (by its first byte) it is a whole payload, for the frame.

#![no_main]

use libfuzzer_sys::fuzz_target;
use seendb::codec::bloom::{Decoded, encode_header};
use seendb::codec::cells_value::Cells;
use seendb::codec::crc64::Crc64;
use seendb::codec::payload::{self, DumpWriter};
use seendb::codec::value::Built;
use seendb::filters::BloomRef;
use seendb::filters::packed_bloom::PackedBloom;
use seendb::filters::ring::Ring;

const LIMIT_BYTES: u64 = 1 << 22;

fuzz_target!(|data: &[u8]| {
    let Some((&head, rest)) = data.split_first() else {
        return;
    };
    if head == 255 {
        let _ = payload::restore(rest, LIMIT_BYTES);
        return;
    }
    let mut framed = [&[7], rest, &10u16.to_le_bytes()].concat();
    framed.extend(Crc64::of(&framed).to_le_bytes());
    let first = match payload::restore(&framed, LIMIT_BYTES) {
        Ok(Built::Bloom(first)) => first,
        Ok(Built::Ring(ring)) => return check_ring(&ring),
        Ok(Built::Cells(cells)) => return check_cells(&cells),
        Ok(Built::HalfRing(_) | Built::HalfCounting(_) | Built::HalfDleft(_)) | Err(_) => return,
    };
    let bloom = get(&first);
    // Nothing that was announced is larger than what its bytes can give.
    assert!(bloom.bit_bytes() <= rest.len() as u64 * 88);
    let dump = payload::dump(bloom).expect("memory for a few megabytes");
    assert_eq!(DumpWriter::new(bloom).len(), dump.len() as u64);
    let second = payload::restore(&dump, LIMIT_BYTES).expect("what was written is read");
    let second = second.bloom().expect("it is of the same kind");
    check_equal(bloom, get(&second));
    check_steps(bloom, usize::from(head) * 16, &dump);
});

fn check_ring(ring: &Ring) {
    let dump = payload::dump_ring(ring).expect("memory for a few megabytes");
    let Ok(Built::Ring(again)) = payload::restore(&dump, LIMIT_BYTES) else { panic!("what was written is read") };
    assert!(payload::dump_ring(&again).expect("memory") == dump, "the ring is another one");
}

fn check_cells(cells: &Cells) {
    let dump = payload::dump_cells(cells.as_ref()).expect("memory for a few megabytes");
    let Ok(Built::Cells(again)) = payload::restore(&dump, LIMIT_BYTES) else { panic!("what was written is read") };
    assert!(payload::dump_cells(again.as_ref()).expect("memory") == dump, "the filter is another one");
}

fn get(decoded: &Decoded) -> BloomRef<'_> {
    match decoded {
        Decoded::Packed(payload) => BloomRef::Packed(PackedBloom::new(payload)),
        Decoded::Large(chain) => BloomRef::Large(chain),
    }
}

fn check_equal(first: BloomRef, second: BloomRef) {
    assert_eq!(encode_header(first), encode_header(second));
    assert_eq!(first.items(), second.items());
    for (i, link) in first.links().enumerate() {
        let bits = |bloom: BloomRef| {
            let mut bits = vec![0; link.shape.bytes as usize];
            bloom.copy_bytes(i, 0, &mut bits);
            bits
        };
        assert!(bits(first) == bits(second), "the bits of sub-filter {i} differ");
    }
    // Every position that an item can have lies inside the bits.
    for item in [&b""[..], b"a", b"item"] {
        assert_eq!(first.contains(first.hash(item)), second.contains(second.hash(item)));
    }
}

fn check_steps(bloom: BloomRef, step: usize, dump: &[u8]) {
    let (mut writer, mut whole) = (DumpWriter::new(bloom), Vec::new());
    while !writer.step(bloom, &mut whole, step.max(dump.len() / 1000)) {}
    assert!(whole == dump, "steps of {step} give another payload");
}
