//! Groups of items against filters larger than the cache.
//!
//! A probe of such a filter waits about 100 ns for memory, and one item after the other waits for each. The processor can
//! wait for a dozen lines or more at once, if it is told of them early. So items go in groups of [`GROUP`]:
//!
//! 1. ask for the lines of the first [`FIRST`] positions of every item;
//! 2. test those. In a half-full filter that ends three of four unknown items;
//! 3. ask for the other lines of the items that are left, and test them.
//!
//! Asking for all lines at once would make unknown items pay for lines that they never look at.

use std::sync::atomic::{AtomicU64, Ordering};

use super::bits::{mask_of, prefetch, word_of};
use super::bloom::HashPair;
use super::claim::seen_present;
use super::scalable_bloom::Link;

/// Items looked at together.
pub(super) const GROUP: usize = 64;
/// Positions of an item that are asked for before any is tested.
const FIRST: u32 = 2;
/// Smaller links are taken to be in the cache, where asking only costs.
const ASKED_FROM_BYTES: u64 = 256 << 10;
/// Positions of an item that are asked for at all: a filter at a rate of 1e-300 has a thousand.
const MOST: u32 = 24;

/// Whether each item is in one of the links; `out` is as long as `pairs`.
pub(super) fn contains(links: &[Link], pairs: &[HashPair], out: &mut [bool]) {
    for (pairs, out) in pairs.chunks(GROUP).zip(out.chunks_mut(GROUP)) {
        contains_group(links, pairs, out);
    }
    seen_present::<AtomicU64>();
}

fn contains_group(links: &[Link], pairs: &[HashPair], out: &mut [bool]) {
    out.fill(false);
    // Items not found yet, by their place in the group.
    let mut absent = [0u8; GROUP];
    let mut count = pairs.len();
    (0..).zip(&mut absent[..count]).for_each(|(i, place)| *place = i);
    for link in links.iter().rev() {
        find(link, pairs, &absent[..count], out);
        let all = absent;
        count = keep(&all[..count], &mut absent, |i| !out[i]);
        if count == 0 {
            return;
        }
    }
}

/// Marks in `out` which of the items at `places` are in `link`.
fn find(link: &Link, pairs: &[HashPair], places: &[u8], out: &mut [bool]) {
    let hashes = link.shape().hashes;
    if link.shape().bytes < ASKED_FROM_BYTES {
        return places.iter().map(|&i| usize::from(i)).for_each(|i| out[i] = test(link, pairs[i], 0..hashes));
    }
    let first = FIRST.min(hashes);
    places.iter().for_each(|&i| ask(link, pairs[usize::from(i)], 0..first));
    let mut left = [0u8; GROUP];
    let count = keep(places, &mut left, |i| test(link, pairs[i], 0..first));
    let left = &left[..count];
    left.iter().for_each(|&i| ask(link, pairs[usize::from(i)], first..hashes.min(MOST)));
    for i in left.iter().map(|&i| usize::from(i)) {
        out[i] = test(link, pairs[i], first..hashes);
    }
}

/// Puts those of `places` that pass `test` into `kept`, in order; returns how many. Without a branch on the outcome, which
/// no processor could guess.
#[inline(always)]
fn keep(places: &[u8], kept: &mut [u8; GROUP], mut test: impl FnMut(usize) -> bool) -> usize {
    let mut count = 0;
    for &place in places {
        kept[count % GROUP] = place;
        count += usize::from(test(usize::from(place)));
    }
    count
}

/// Asks for the lines of some positions of an item.
#[inline(always)]
fn ask(link: &Link, pair: HashPair, range: std::ops::Range<u32>) {
    let (words, modulus) = (link.bits().words(), link.modulus());
    range.for_each(|i| prefetch(&words[word_of(modulus.position(pair, i))]));
}

/// Whether the bits at some positions of an item are set.
#[inline(always)]
fn test(link: &Link, pair: HashPair, mut range: std::ops::Range<u32>) -> bool {
    let (words, modulus) = (link.bits().words(), link.modulus());
    range.all(|i| {
        let x = modulus.position(pair, i);
        words[word_of(x)].load(Ordering::Relaxed) & mask_of(x) != 0
    })
}

/// Asks for all lines of the items that are not present: they are about to be written.
pub(super) fn prefetch_absent(link: &Link, pairs: &[HashPair], present: &[bool]) {
    if link.shape().bytes < ASKED_FROM_BYTES {
        return;
    }
    let hashes = link.shape().hashes.min(MOST);
    for (&pair, _) in pairs.iter().zip(present).filter(|(_, present)| !**present) {
        ask(link, pair, 0..hashes);
    }
}
