//! The same filters in RedisBloom 2.8.2: payloads of each side restored by the other, compared by what `BF.SCANDUMP` gives.
//!
//! The peer compresses what is longer than 20 bytes, so its payloads exercise that too.
//!
//! `SEENDB_PAYLOAD_FILTERS`: how many random filters (default 300).

use super::model::{Chain, Filter, Link, raw};
use super::support::{Client, Random, Server, Value};
use seendb::codec::bloom::{self, CHUNK_BYTES};
use seendb::filters::bloom::{Shape, options};

/// Everything that `BF.SCANDUMP` gives for a key, but its end mark.
fn scan_dump(peer: &mut Client, key: &str) -> Vec<(i64, Vec<u8>)> {
    let (mut all, mut iter) = (Vec::new(), 0);
    loop {
        let reply = peer.call(&["BF.SCANDUMP", key, &iter.to_string()]);
        let [next, data] = reply.array() else { panic!("an iterator and data: {reply:?}") };
        iter = next.int();
        if iter == 0 {
            return all;
        }
        all.push((iter, data.bulk().to_vec()));
    }
}

/// The same of a chain of ours.
fn our_scan_dump(filter: &Filter) -> Vec<(i64, Vec<u8>)> {
    let bloom = filter.get();
    let (mut all, mut iter) = (vec![(1, filter.header())], 1);
    while let Some(chunk) = bloom::chunk_at(bloom, iter) {
        assert!(chunk.len as u64 <= CHUNK_BYTES);
        let mut data = vec![0; chunk.len];
        bloom.copy_bytes(chunk.link, chunk.offset, &mut data);
        iter += chunk.len as i64;
        all.push((iter, data));
    }
    all
}

fn dump(peer: &mut Client, key: &str) -> Vec<u8> {
    peer.call(&["DUMP", key]).bulk().to_vec()
}

#[track_caller]
fn restore(peer: &mut Client, key: &str, payload: &[u8]) {
    let reply = peer.call(&[b"RESTORE", key.as_bytes(), b"0", payload, b"REPLACE"]);
    assert_eq!(reply, "OK", "RESTORE {key}");
}

/// What the peer says to each of the items.
fn asks(peer: &mut Client, key: &str, items: &[Vec<u8>]) -> Vec<bool> {
    let words: Vec<&[u8]> =
        [b"BF.MEXISTS", key.as_bytes()].into_iter().chain(items.iter().map(Vec::as_slice)).collect();
    peer.call(&words).array().iter().map(Value::truth).collect()
}

fn our_answers(filter: &Filter, items: &[Vec<u8>]) -> Vec<bool> {
    items.iter().map(|item| filter.contains(item)).collect()
}

fn random_items(random: &mut Random, count: usize) -> Vec<Vec<u8>> {
    let bytes = |random: &mut Random| (0..random.below(20)).map(|_| random.below(256) as u8).collect();
    (0..count).map(|_| bytes(random)).collect()
}

/// Takes the filter that the peer has at `key` here and back, and compares.
#[track_caller]
fn check_both_ways(peer: &mut Client, key: &str, items: &[Vec<u8>]) -> Filter {
    let (theirs, scanned) = (dump(peer, key), scan_dump(peer, key));
    let ours = Filter::restored(&theirs);
    assert!(our_scan_dump(&ours) == scanned, "SCANDUMP of what was restored here differs");
    let answers = asks(peer, key, items);
    assert_eq!(our_answers(&ours, items), answers);
    restore(peer, "back", &ours.dump());
    assert!(scan_dump(peer, "back") == scanned, "SCANDUMP of what was restored there differs");
    assert_eq!(asks(peer, "back", items), answers);
    assert!(dump(peer, "back") == theirs, "DUMP of what was restored there differs");
    ours
}

/// A filter made by commands, on both sides.
fn check_made(peer: &mut Client, random: &mut Random) {
    let error = *random.pick(&["0.25", "0.2", "0.1", "0.03125", "0.01", "0.001", "0.0001", "1e-6", "1e-12", "1e-100"]);
    // Seldom so large that an array takes several pieces of a decompression, or a mapping of its own.
    let sizes = [(60, 50), (40, 1000), (8, 20_000), (2, 200_000), (1, 2_000_000)];
    let most = *random.weighted(&sizes);
    let capacity = (1 + random.below(most)).to_string();
    let growth = *random.weighted(&[(3, 0), (3, 1), (6, 2), (2, 3), (1, 10)]);
    let mut words = vec!["BF.RESERVE", "made", error, &capacity];
    let growth_text = growth.to_string();
    match growth {
        0 => words.push("NONSCALING"),
        _ => words.extend(["EXPANSION", &growth_text]),
    }
    peer.cmd("DEL made");
    assert_eq!(peer.call(&words), "OK");
    // Non scaling filters keep the default growth in their header.
    let (options, growth) = if growth == 0 { (options::FIXED, 2) } else { (options::SCALING, growth) };
    let shape = Shape::first(capacity.parse().unwrap(), error.parse().unwrap(), options).unwrap();
    let mut made = Filter::new(options, growth, &shape);
    let most = *random.pick(&[1, 20, 200, 2000]);
    let count = random.below(most);
    let items = random_items(random, count);
    for item in &items {
        made.insert(item).unwrap();
    }
    for items in items.chunks(500) {
        let words = [&b"BF.MADD"[..], b"made"].into_iter().chain(items.iter().map(Vec::as_slice)).collect::<Vec<_>>();
        peer.call(&words);
    }
    let mut asked = items;
    asked.extend(random_items(random, 50));
    let restored = check_both_ways(peer, "made", &asked);
    restored.check_equal(&made);
}

/// A filter of a loaded header: any options, old moduli, counts that nobody made.
fn check_loaded(peer: &mut Client, random: &mut Random) {
    let count = 1 + random.below(4);
    let (mut links, mut sum, mut bytes_of) = (Vec::new(), 0u64, Vec::new());
    for _ in 0..count {
        let bytes = 8 * (1 + random.below(40)) as u64;
        let log2_bits = if random.percent(50) { 0 } else { random.below(1 + (bytes * 8).ilog2() as usize) as u8 };
        let items = random.below(100) as u64;
        let (bits_per_entry, hashes) = *random.pick(&[(2.885, 2u32), (4.33, 4), (9.585, 7), (14.4, 10)]);
        let entries = random.bits() >> random.below(64);
        for field in [bytes, bytes * 8, items, 0.01f64.to_bits(), f64::to_bits(bits_per_entry)] {
            links.extend(field.to_le_bytes());
        }
        links.extend(hashes.to_le_bytes());
        links.extend(entries.to_le_bytes());
        links.push(log2_bits);
        sum += items;
        bytes_of.push(bytes as usize);
    }
    let mut header = sum.to_le_bytes().to_vec();
    for field in [count as u32, random.below(16) as u32, random.below(5) as u32] {
        header.extend(field.to_le_bytes());
    }
    header.extend(links);
    peer.cmd("DEL loaded");
    assert_eq!(peer.call(&[&b"BF.LOADCHUNK"[..], b"loaded", b"1", &header]), "OK");
    let mut iter = 1;
    for bytes in bytes_of {
        let data = random_bits(random, bytes);
        iter += bytes;
        assert_eq!(peer.call(&[&b"BF.LOADCHUNK"[..], b"loaded", iter.to_string().as_bytes(), &data]), "OK");
    }
    let asked = random_items(random, 200);
    check_both_ways(peer, "loaded", &asked);
}

/// Bits that are all 0, few, or half of them: strings in every form.
fn random_bits(random: &mut Random, bytes: usize) -> Vec<u8> {
    match random.below(4) {
        0 => vec![*random.pick(&[0, 255]); bytes],
        1 => (0..bytes).map(|_| if random.percent(5) { 1 << random.below(8) } else { 0 }).collect(),
        2 => (0..bytes).map(|_| b'1' + random.below(9) as u8).collect(),
        _ => (0..bytes).map(|_| random.bits() as u8).collect(),
    }
}

/// A value as an old release wrote it, restored on both sides.
fn check_old(peer: &mut Client, random: &mut Random) {
    let encver = random.below(5) as u8;
    let mut links = Vec::new();
    for _ in 0..1 + random.below(3) {
        let entries = 1 + random.below(300) as u64;
        // The rate that goes with so many bits an entry is of no concern.
        let (bits_per_entry, hashes) = *random.pick(&[(2.885, 2u64), (4.33, 4), (9.585058377367446, 7)]);
        let formula = ((entries as f64 * bits_per_entry) as u64).max(1);
        let log2_bits = if random.percent(40) { u64::from(formula.ilog2()).max(1) } else { 0 };
        let bits = match log2_bits {
            0 => formula,
            _ if random.percent(50) => 0,
            _ => (1 << log2_bits) + random.below(64) as u64,
        };
        // Encoding 0 knows only the formula; its modulus is that. From two bits on a power of two fits in.
        let held = formula.max(bits).max(1 << log2_bits);
        let array = raw(&random_bits(random, held.div_ceil(64) as usize * 8));
        let items = random.below(100) as u64;
        links.push(Link { entries, error: 0.02, hashes, bits_per_entry, bits, log2_bits, array, items });
    }
    let mut chain = Chain::of(random.below(16) as u64, random.below(5) as u64, links);
    if random.percent(20) {
        chain.items = random.bits() >> random.below(64);
    }
    let payload = chain.payload(encver);
    let ours = Filter::restored(&payload);
    restore(peer, "old", &payload);
    let asked = random_items(random, 200);
    assert_eq!(our_answers(&ours, &asked), asks(peer, "old", &asked));
    let (mut theirs, ours_scanned) = (scan_dump(peer, "old"), our_scan_dump(&ours));
    // Our headers add up, so that they can be loaded; the counter itself is compared by BF.CARD.
    theirs[0].1[..8].copy_from_slice(&ours_scanned[0].1[..8]);
    assert!(ours_scanned == theirs, "{chain:?}");
    assert_eq!(peer.cmd("BF.CARD old").int() as u64, ours.get().items());
    // And our payload of it is as good there as the old one was.
    let dumped = dump(peer, "old");
    restore(peer, "back", &ours.dump());
    assert!(dump(peer, "back") == dumped);
    ours.check_equal(&Filter::restored(&dumped));
}

#[test]
fn random_filters_are_equal_in_redisbloom() {
    let filters = std::env::var("SEENDB_PAYLOAD_FILTERS").map_or(300, |count| count.parse().expect("a number"));
    let server = Server::peer();
    let mut peer = server.client();
    for seed in 0..filters {
        let random = &mut Random::new(seed);
        let kind = *random.weighted(&[(5, check_made as fn(&mut _, &mut _)), (3, check_loaded), (3, check_old)]);
        let failed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| kind(&mut peer, random)));
        if let Err(failure) = failed {
            eprintln!("filter {seed} failed");
            std::panic::resume_unwind(failure);
        }
    }
}

/// What the module answers to payloads that are refused here is the text of the command, and not of this test. But the
/// frame is the server's, and it must refuse the same.
#[test]
fn the_peer_refuses_the_same_frames() {
    let server = Server::peer();
    let mut peer = server.client();
    let filter = Filter::new(options::SCALING, 2, &Shape::first(4, 0.01, options::SCALING).unwrap());
    let good = filter.dump();
    let at = good.len() - 8;
    let mut no_checksum = good.clone();
    no_checksum[at..].fill(0);
    let body = &good[..at - 2];
    let newer = super::model::framed(body, 11);
    for payload in [&no_checksum[..], &newer, &good[..9], &good[1..], b""] {
        let reply = peer.call(&[b"RESTORE", &b"k"[..], b"0", payload]);
        assert_eq!(reply, "ERR DUMP payload version or checksum are wrong");
    }
    let extra = [&body[..body.len() - 1], &[2, 1, 0]].concat();
    for body in [&extra[..], b"\x00\x20ab"] {
        let payload = super::model::framed(body, 10);
        assert_eq!(peer.call(&[b"RESTORE", &b"k"[..], b"0", &payload]), "ERR Bad data format");
        assert!(seendb::codec::payload::restore(&payload, 1 << 20).is_err());
    }
    restore(&mut peer, "k", &good);
}
