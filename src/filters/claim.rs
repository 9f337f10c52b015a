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

use std::sync::atomic::Ordering;

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
    /// Orders reads before with everything after, against the release of [`or`](Word::or).
    fn acquire();
}

macro_rules! impl_word {
    ($($atomics:tt)*) => {
        impl Word for $($atomics)*::AtomicU64 {
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
            #[inline(always)]
            fn acquire() {
                $($atomics)*::fence(Ordering::Acquire);
            }
        }
    };
}
impl_word!(std::sync::atomic);
#[cfg(loom)]
impl_word!(loom::sync::atomic);

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
pub(super) fn seen_present<W: Word>() {
    W::acquire();
}

/// Models of threads that add at the same time, every order of their steps tried:
/// `RUSTFLAGS="--cfg loom" cargo test --no-default-features --lib loom`.
#[cfg(all(test, loom))]
mod loom_models {
    use super::*;
    use loom::sync::atomic::AtomicU64;
    use loom::sync::{Arc, Mutex};
    use loom::thread;

    /// Two words of bits, a counter and two stripes.
    struct Link {
        words: [AtomicU64; 2],
        items: AtomicU64,
        entries: u64,
        stripes: [Mutex<()>; 2],
    }

    /// Two items that share the bit 64.
    const LEFT: [u64; 2] = [3, 64];
    const RIGHT: [u64; 2] = [64, 5];

    impl Link {
        fn new(entries: u64) -> Arc<Link> {
            let words = [AtomicU64::new(0), AtomicU64::new(0)];
            let stripes = [Mutex::new(()), Mutex::new(())];
            Arc::new(Link { words, items: AtomicU64::new(0), entries, stripes })
        }

        fn claim(&self, item: [u64; 2]) -> Claim {
            claim(&self.words, &self.items, self.entries, item.into_iter())
        }

        fn add(&self, item: [u64; 2], stripe: usize) -> Claim {
            let _guard = self.stripes[stripe].lock().unwrap();
            self.claim(item)
        }
    }

    /// Runs `run` beside `others`; the results, its own last.
    fn together<R: 'static>(others: Vec<Box<dyn FnOnce() -> R>>, run: impl FnOnce() -> R) -> Vec<R> {
        let threads: Vec<_> = others.into_iter().map(|other| thread::spawn(other)).collect();
        let own = run();
        threads.into_iter().map(|thread| thread.join().unwrap()).chain([own]).collect()
    }

    fn beside<R: 'static>(link: &Arc<Link>, run: impl FnOnce(&Link) -> R + 'static) -> Box<dyn FnOnce() -> R> {
        let link = Arc::clone(link);
        Box::new(move || run(&link))
    }

    fn added(claims: &[Claim]) -> usize {
        claims.iter().filter(|&&claim| claim == Claim::Added).count()
    }

    #[test]
    fn one_of_two_threads_hears_that_an_item_is_new() {
        loom::model(|| {
            let link = Link::new(5);
            let claims = together(vec![beside(&link, |link| link.add(LEFT, 0))], || link.add(LEFT, 0));
            assert_eq!(added(&claims), 1);
            assert_eq!(link.items.get(), 1);
        });
    }

    /// The model would see it if threads with one item did not meet.
    #[test]
    #[should_panic]
    fn without_the_lock_both_hear_it() {
        loom::model(|| {
            let link = Link::new(5);
            let claims = together(vec![beside(&link, |link| link.claim(LEFT))], || link.claim(LEFT));
            assert_eq!(added(&claims), 1);
        });
    }

    #[test]
    fn items_that_share_bits_are_both_found() {
        loom::model(|| {
            let link = Link::new(5);
            let claims = together(vec![beside(&link, |link| link.add(LEFT, 0))], || link.add(RIGHT, 1));
            assert_eq!(added(&claims), 2);
            assert_eq!(link.items.get(), 2);
            assert!(all_set(&link.words, LEFT.into_iter()) && all_set(&link.words, RIGHT.into_iter()));
        });
    }

    #[test]
    fn nobody_sees_more_items_than_places() {
        loom::model(|| {
            let link = Link::new(1);
            let others = vec![beside(&link, |link| link.add(LEFT, 0)), beside(&link, |link| link.add(RIGHT, 1))];
            let claims = together(others, || {
                assert!(link.items.get() <= 1);
                Claim::NoPlace
            });
            assert_eq!(added(&claims), 1);
            assert_eq!(link.items.get(), 1);
        });
    }

    #[test]
    fn who_finds_an_item_also_sees_it_counted() {
        loom::model(|| {
            let link = Link::new(5);
            let adder = beside(&link, |link| assert_eq!(link.add(LEFT, 0), Claim::Added));
            together(vec![adder], || {
                if all_set(&link.words, LEFT.into_iter()) {
                    seen_present::<AtomicU64>();
                    assert_eq!(link.items.get(), 1);
                }
            });
        });
    }
}
