//! The part of a shared insert that threads run side by side, small enough to be checked by `loom`.
//!
//! An item is new to exactly one of the threads that add it at the same time. Setting bits atomically is not enough: of two
//! threads that set the bits of one item turn by turn, each finds some bit that the other had not set yet, and both would
//! say "new". So the threads of one item meet at a lock, chosen by the item's hash; under it [`claim`] runs
//!
//! 1. test all bits again: somebody may have added the item while we waited;
//! 2. reserve a place: the counter never passes the capacity, not even for an instant;
//! 3. set the bits.
//!
//! Threads with *other* items run through the same bits at the same time without meeting. What they can do to each other is
//! set bits, which at worst turns "absent" into the false positive that the same adds in another order would have given.
//!
//! **Order of memory.** Bits are set with release after the place was reserved, and a test that found all of them set ends
//! with an acquire fence: who is told "present" also sees the item counted.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use super::bits::{mask_of, word_of};

/// What [`claim`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Claim {
    /// The item was absent; it is counted and its bits are set.
    Added,
    /// All bits were set already; nothing changed.
    Present,
    /// The item is absent and there is no place left; nothing changed.
    NoPlace,
}

/// A 64-bit atomic: the standard one, or loom's where threads are modelled.
pub(super) trait Word {
    /// Reads without ordering.
    fn get(&self) -> u64;
    /// Ors `bits` in, with release.
    fn or(&self, bits: u64);
    /// Adds 1 if the value is below `limit`; whether it did.
    fn increment_below(&self, limit: u64) -> bool;
}

macro_rules! impl_word {
    ($atomic:ty) => {
        impl Word for $atomic {
            #[inline(always)]
            fn get(&self) -> u64 {
                self.load(Ordering::Relaxed)
            }
            #[inline(always)]
            fn or(&self, bits: u64) {
                self.fetch_or(bits, Ordering::Release);
            }
            #[inline(always)]
            fn increment_below(&self, limit: u64) -> bool {
                let next = |value: u64| (value < limit).then(|| value + 1);
                self.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok()
            }
        }
    };
}
impl_word!(AtomicU64);

/// Whether all bits at `positions` are set.
#[inline(always)]
pub(super) fn all_set<W: Word>(words: &[W], mut positions: impl Iterator<Item = u64>) -> bool {
    positions.all(|x| words[word_of(x)].get() & mask_of(x) != 0)
}

/// Adds the item whose bits are at `positions`, unless it is there or `entries` items are. The caller holds the lock that
/// all threads with this item take.
#[inline]
pub(super) fn claim<W: Word>(
    words: &[W],
    items: &W,
    entries: u64,
    positions: impl Iterator<Item = u64> + Clone,
) -> Claim {
    if all_set(words, positions.clone()) {
        return Claim::Present;
    }
    if !items.increment_below(entries) {
        return Claim::NoPlace;
    }
    for x in positions {
        let (word, mask) = (&words[word_of(x)], mask_of(x));
        // Half the bits of a full filter are set already: a plain read is cheaper than a locked write.
        if word.get() & mask == 0 {
            word.or(mask);
        }
    }
    Claim::Added
}

/// Ends a test without lock that found an item present: what its adder did before is visible from here on.
#[inline(always)]
pub(super) fn seen_present() {
    fence(Ordering::Acquire);
}
