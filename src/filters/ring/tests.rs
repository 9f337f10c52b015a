//! Tests of rings: recorded traces and rates, an exact model, both forms beside each other, and the rules one by one.

mod article;
mod model;
mod rates;
mod rules;
mod traces;

use super::shape::ArrayShape;
use super::*;
use crate::filters::item_hash::hash_item;

fn settings(capacity: u64, error: f64, links: u16, mode: Mode) -> Settings {
    Settings { capacity, error, link_error: false, links, mode, idle: None, key: None }
}

fn window(span_ms: u64) -> Window {
    Window { span_ms, bounded: false, by_events: false }
}

/// The hash of an item that is a number.
fn hash(item: u64) -> u64 {
    hash_item(&item.to_le_bytes(), None)
}

/// What happens now.
fn at(now: u64) -> Event {
    Event { now, at: now }
}

/// Writes these items to a ring, all at one time.
fn fill(ring: &mut Ring, items: impl IntoIterator<Item = u64>, now: u64) {
    items.into_iter().for_each(|item| _ = ring.insert(hash(item), at(now)).unwrap());
}

/// A ring with these items, all of one time.
fn ring_of(settings: Settings, items: impl IntoIterator<Item = u64>, now: u64) -> Ring {
    let mut ring = Ring::new(settings, 1);
    fill(&mut ring, items, now);
    ring
}

/// The share of so many unknown items that a ring claims to have seen; `seed` tells one lot of unknown items from another.
fn wrong_answers(ring: &Ring, queries: u64, seed: u64, now: u64) -> f64 {
    let unknown = |i: u64| hash((1 << 63) + (seed << 32) + i);
    (0..queries).filter(|i| ring.contains(unknown(*i), now)).count() as f64 / queries as f64
}

/// All that a part holds, to compare.
fn content(part: &Part) -> (u64, u8, ArrayShape, u64, bool, Vec<u8>) {
    let (listed, bytes) = match &part.store {
        Store::List(hashes) => (true, hashes.iter().flat_map(|hash| hash.to_le_bytes()).collect()),
        Store::Bits(bits) => {
            let mut bytes = vec![0; bits.len()];
            bits.copy_bytes(0, &mut bytes);
            (false, bytes)
        }
    };
    (part.slice, part.growth, part.shape, part.items, listed, bytes)
}

/// Fails unless both rings hold the same in the same way.
fn assert_same(one: &Ring, other: &Ring) {
    let figures = |ring: &Ring| (ring.settings, ring.version, ring.latest, ring.lost);
    assert_eq!(figures(one), figures(other));
    assert!(one.parts.iter().map(content).eq(other.parts.iter().map(content)));
}

/// The rows of a table of `tests/vectors`, without notes and names.
fn rows(table: &str) -> impl Iterator<Item = Vec<&str>> {
    table.lines().filter(|line| !line.starts_with('#')).skip(1).map(|line| line.split('\t').collect())
}
