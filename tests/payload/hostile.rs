//! Damaged and malicious payloads: no panic, and no memory beyond what the payload itself holds.

use super::model::{Chain, Field, Filter, Link, framed, length, lzf, raw, reframed, value};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use seendb::codec::bloom_value::ValueError;
use seendb::codec::payload::{self, PayloadError};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, which counts for each thread what it holds and the most it ever held.
struct Counting;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    HELD.set(HELD.get() + bytes);
    MOST.set(MOST.get().max(HELD.get()));
}

// SAFETY: every call goes to the system's allocator as it came; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller keeps the conditions of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: `memory` came from the calls here, so from `System`, with this layout.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Most bytes beside the bits: fields of links (a link takes 30 bytes of a payload, a few hundred in memory), locks, the
/// window of the decompression, the compact form of a chain.
const BESIDE_BYTES: isize = 256 << 10;

/// What became of a payload, and the most bytes held meanwhile. The largest arrays are mappings, which the allocator does
/// not see: here none is allowed to be so large.
fn restore(payload: &[u8]) -> (Result<Filter, PayloadError>, isize) {
    let before = HELD.get();
    MOST.set(before);
    let restored = payload::restore(payload, 1 << 20);
    (restored.map(|built| Filter(built.bloom().unwrap())), MOST.get() - before)
}

#[track_caller]
fn check(payload: &[u8]) -> Result<Filter, PayloadError> {
    let (restored, most) = restore(payload);
    let allowed = payload.len() as isize * 88 + BESIDE_BYTES;
    assert!(most <= allowed, "{most} bytes held for a payload of {}", payload.len());
    if let Ok(filter) = &restored {
        assert!(filter.get().bit_bytes() <= payload.len() as u64 * 88);
        filter.check_equal(&Filter::restored(&filter.dump()));
    }
    restored
}

fn usual() -> Chain {
    Chain::of(5, 2, vec![Link::at_1_percent(4, 64, 0, b"12345678", 3); 2])
}

#[test]
fn the_counting_counts() {
    let before = HELD.get();
    MOST.set(before);
    let bytes = vec![1u8; 100_000];
    assert_eq!((HELD.get() - before, bytes.len()), (100_000, 100_000));
    drop(bytes);
    assert_eq!((HELD.get() - before, MOST.get() - before), (0, 100_000));
}

#[test]
fn announced_sizes_take_no_memory() {
    let with_array = |array: Field| {
        let mut chain = usual();
        (chain.links[1].bits, chain.links[1].array) = (1 << 33, array);
        chain.payload(4)
    };
    let huge = 1u64 << 30;
    let announced = |len| Field::String([&length(len)[..], b"12345678"].concat());
    let payloads = [
        with_array(announced(huge)),
        with_array(announced(u64::MAX)),
        with_array(lzf(&[0, 1, 0xe0, 0xff, 0], huge)),
        with_array(lzf(&[0, 1, 0xe0, 0xff, 0], u64::MAX)),
        with_array(lzf(&[0; 60], huge)),
        with_array(raw(b"")),
    ];
    for payload in payloads {
        let (restored, most) = restore(&payload);
        assert!(restored.is_err() && payload.len() < 200);
        assert!(most < 2000, "{most} bytes held");
    }
    for links in [0, 1076, 1 << 20, 1 << 32, u64::MAX] {
        let mut fields = usual().fields(4);
        fields[1] = Field::Unsigned(links);
        let (restored, most) = restore(&framed(&value(4, &fields), 10));
        assert_eq!(restored.err(), Some(ValueError::Chain.into()));
        assert!(most < 2000, "{most} bytes held");
    }
}

#[test]
fn honest_payloads_take_what_they_hold() {
    let bits = vec![0x11; 100_000];
    let chain = Chain::of(5, 2, vec![Link::at_1_percent(10, 800_000, 0, &bits, 3); 5]);
    let payload = chain.payload(4);
    let (restored, most) = restore(&payload);
    assert_eq!(restored.unwrap().get().bit_bytes(), 500_000);
    assert!(most < payload.len() as isize + 8000, "{most} bytes held for {}", payload.len());
    // Compressed: the array and a window, not the string as a whole beside it. A run of a million zeros.
    let data: Vec<u8> = [0, 0].into_iter().chain([0xe0, 0xff, 0].repeat(3972)).collect();
    let mut chain = usual();
    (chain.links[1].bits, chain.links[1].array) = (8, lzf(&data, 1 + 3972 * 264));
    let (restored, most) = restore(&chain.payload(4));
    // Over the limit of this test by a few bytes.
    assert_eq!(restored.err(), Some(ValueError::Limit { bytes: 8 + 1 + 3972 * 264 }.into()));
    assert!(most < 2000);
    chain.links[1].array = lzf(&data[..2 + 3 * 3900], 1 + 3900 * 264);
    let (restored, most) = restore(&chain.payload(4));
    assert_eq!(restored.unwrap().get().bit_bytes(), 8 + 1 + 3900 * 264);
    assert!(most < 3900 * 264 + 90_000, "{most} bytes held");
}

#[test]
fn every_cut_and_every_byte_changed() {
    let mut chain = usual();
    chain.links[1].array = lzf(&[0, b'a', 0xa0, 0], 8);
    let payload = chain.payload(4);
    let (mut taken, mut refused) = (0, 0);
    for at in 0..payload.len() - 8 {
        let _ = check(&reframed([&payload[..at], &payload[payload.len() - 10..]].concat()));
        for byte in 0..=255 {
            let mut changed = payload.clone();
            changed[at] = byte;
            match check(&reframed(changed)) {
                Ok(_) => taken += 1,
                Err(_) => refused += 1,
            }
        }
    }
    assert!(taken > 1000 && refused > 10_000, "{taken} taken, {refused} refused");
}

fn config() -> ProptestConfig {
    ProptestConfig { cases: 2000, failure_persistence: None, rng_seed: RngSeed::Fixed(1), ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn random_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200), encver in 0u8..6) {
        let _ = check(&bytes);
        let _ = check(&framed(&bytes, 10));
        // Behind the module id, where parsing gets somewhere.
        let body = value(encver, &[]);
        let _ = check(&framed(&[&body[..10], &bytes].concat(), 10));
    }

    #[test]
    fn changed_payloads(
        links in 1usize..5, encver in 0u8..5,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0u8..4), 1..6),
    ) {
        let array: Vec<u8> = (0..120).collect();
        let mut chain = Chain::of(5, 2, vec![Link::at_1_percent(100, 958, 0, &array, 3); links]);
        chain.links[0].array = lzf(&[0, b'a', 0xe0, 110, 0], 120);
        let mut payload = chain.payload(encver);
        for (at, byte, kind) in changes {
            let at = at.index(payload.len());
            match kind {
                0 => payload[at] = byte,
                1 => payload[at] ^= 1 << (byte % 8),
                2 => payload.insert(at, byte),
                _ => drop(payload.remove(at)),
            }
        }
        let _ = check(&reframed(payload));
    }
}
