//! A dump from a stranger: a header, then chunks at any iterator. What is taken must be a chain that can be used, added to
//! and dumped again, the dump being the same chain.
//!
//! Input: two bytes with the length of the header, the header, then pieces *(8 bytes iterator, 1 byte length, bytes)*.

#![no_main]

use libfuzzer_sys::fuzz_target;
use seendb::codec::bloom::{CHUNK_BYTES, Decoded, chunk_at, decode_header, encode_header, place_chunk};
use seendb::filters::packed_bloom::{PackedBloom, PackedBloomMut};
use seendb::filters::{BloomMut, BloomRef};

/// Most bytes of bits that a header may ask for: enough for every path, little enough for many runs a second.
const LIMIT_BYTES: u64 = 1 << 20;

fuzz_target!(|data: &[u8]| {
    let Some((length, rest)) = data.split_first_chunk::<2>() else { return };
    let (header, chunks) = rest.split_at(usize::from(u16::from_le_bytes(*length)).min(rest.len()));
    match decode_header(header, LIMIT_BYTES) {
        Ok(Decoded::Packed(mut payload)) => load(BloomMut::Packed(PackedBloomMut::new(&mut payload)), header, chunks),
        Ok(Decoded::Large(mut chain)) => load(BloomMut::Large(&mut chain), header, chunks),
        Err(_) => {}
    }
});

fn load(mut bloom: BloomMut<'_>, header: &[u8], mut chunks: &[u8]) {
    assert!(bloom.as_ref().bit_bytes() <= LIMIT_BYTES);
    assert_eq!(encode_header(bloom.as_ref()), header, "the same header comes out");
    while let Some((iterator, rest)) = chunks.split_first_chunk::<8>() {
        let Some((length, rest)) = rest.split_first() else { break };
        let (bytes, rest) = rest.split_at(usize::from(*length).min(rest.len()));
        chunks = rest;
        // Mostly near the truth, so that chunks are placed at all.
        let iterator = i64::from_le_bytes(*iterator);
        for iterator in [iterator, iterator & 0xffff] {
            if let Ok(place) = place_chunk(bloom.as_ref(), iterator, bytes.len()) {
                assert_eq!(place.len, bytes.len());
                bloom.or_bytes(place.link, place.offset, bytes);
                let mut back = vec![0; bytes.len()];
                bloom.as_ref().copy_bytes(place.link, place.offset, &mut back);
                assert!(back.iter().zip(bytes).all(|(held, given)| held & given == *given), "bits are missing");
            }
        }
    }
    let bits = dump(bloom.as_ref());
    assert_eq!(bits.len() as u64, bloom.as_ref().bit_bytes());
    let pair = bloom.as_ref().hash(b"item");
    let _ = bloom.as_ref().next_shape();
    let _ = bloom.insert(pair);
    // A copy made from the dump is the same chain.
    let header = encode_header(bloom.as_ref());
    let bits = dump(bloom.as_ref());
    match decode_header(&header, LIMIT_BYTES) {
        Ok(Decoded::Packed(mut payload)) => {
            fill(BloomMut::Packed(PackedBloomMut::new(&mut payload)), &bits);
            let copy = BloomRef::Packed(PackedBloom::new(&payload));
            assert!(dump(copy) == bits && copy.contains(pair) == bloom.as_ref().contains(pair));
        }
        Ok(Decoded::Large(mut chain)) => {
            fill(BloomMut::Large(&mut chain), &bits);
            let copy = BloomRef::Large(&chain);
            assert!(dump(copy) == bits && copy.contains(pair) == bloom.as_ref().contains(pair));
        }
        Err(error) => panic!("its own header is refused: {error}"),
    }
}

/// The bits, in the pieces of a dump.
fn dump(bloom: BloomRef<'_>) -> Vec<u8> {
    let (mut bits, mut iterator) = (Vec::new(), 1);
    while let Some(chunk) = chunk_at(bloom, iterator) {
        assert!(chunk.len > 0 && chunk.len as u64 <= CHUNK_BYTES);
        let mut piece = vec![0; chunk.len];
        bloom.copy_bytes(chunk.link, chunk.offset, &mut piece);
        bits.extend(piece);
        iterator += chunk.len as i64;
    }
    bits
}

/// Loads the pieces of a dump.
fn fill(mut bloom: BloomMut<'_>, bits: &[u8]) {
    let mut iterator = 1;
    while let Some(chunk) = chunk_at(bloom.as_ref(), iterator) {
        let from = (iterator - 1) as usize;
        iterator += chunk.len as i64;
        let place = place_chunk(bloom.as_ref(), iterator, chunk.len).expect("a dump's own piece has its place");
        assert_eq!(place, chunk);
        bloom.or_bytes(place.link, place.offset, &bits[from..from + chunk.len]);
    }
}
