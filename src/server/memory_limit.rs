//! The memory limit: what counts as used, what fits, and which way is made for what does not.
//!
//! Used are the entries of keys, their tables and values being made, all counted as they change, and the rest of the heap, which
//! the allocator tells ten times a second and whenever much was evicted. What was deleted and waits to be freed does not
//! count as used: nobody goes for it. But a large filter waits until it is freed, or memory would run over meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::allocator::{self, Heap};
use crate::commands::context::Room;
use crate::config::Settings;
use crate::filters::bits::mapped_bytes;
use crate::keyspace::{Keyspace, Policy};

/// The limit may be passed by this part of it, when others can be evicted afterwards.
const SMALL_SHARE: u64 = 64;

/// Holes between what is allocated count as used beyond this part of the limit, and so many bytes that are always there.
/// Keys of one size that went one here and one there leave holes that no key of another size fits into: without this 280 MB were
/// resident under a limit of 200 MB. If all holes counted, keys in use would go for those beside them.
const HOLES_SHARE: u64 = 12;
const HOLES_BYTES: u64 = 2 << 20;

/// Each time this part of the limit was evicted the allocator is looked after, which costs some microseconds.
const LOOK_AFTER_SHARE: u64 = 32;

/// How long keys are evicted at each tick if the limit is passed.
const KEEPING_TIME: Duration = Duration::from_millis(20);

/// So many choices of a key to be evicted may fail before a command is refused.
const EVICTION_TRIES: u32 = 2;

/// Keeps the memory limit.
pub(super) struct MemoryLimit {
    keyspace: Arc<Keyspace>,
    settings: Arc<Settings>,
    /// Bytes allocated for other things than entries and tables.
    overhead: AtomicI64,
    /// Bytes of holes between what is allocated, beyond those that are let be. They go when the keys around them go.
    holes: AtomicU64,
    /// Bytes evicted since the allocator was looked after.
    evicted: AtomicU64,
}

impl MemoryLimit {
    pub(super) fn new(keyspace: Arc<Keyspace>, settings: Arc<Settings>) -> Self {
        let (overhead, holes, evicted) = Default::default();
        Self { keyspace, settings, overhead, holes, evicted }
    }

    /// The rule by which keys go.
    pub(super) fn policy(&self) -> Policy {
        Policy::of_setting(self.settings.maxmemory_policy())
    }

    /// Look what is used beside the keys, as the allocator sees it. At the limit it is also told to give back what it does not
    /// need.
    pub(super) fn measure(&self) {
        // Only the heap is asked: mappings are made for filters alone, and one on the way to its place would count twice until
        // the next look.
        let known = || (self.keyspace.heap_bytes() + self.keyspace.table_bytes()) as i64;
        // What comes and goes while this thread may be kept from running must not look like overhead: keys would go for it.
        let before = known();
        let heap = Heap::now();
        self.overhead.store(heap.allocated as i64 - before.max(known()), Ordering::Relaxed);
        let limit = self.settings.maxmemory();
        if limit > 0 {
            if heap.resident + mapped_bytes() > limit {
                allocator::give_all_back();
            }
            let holes = heap.active.saturating_sub(heap.allocated);
            self.holes.store(holes.saturating_sub(limit / HOLES_SHARE + HOLES_BYTES), Ordering::Relaxed);
        }
    }

    /// Bytes in use, without what is being freed.
    fn used(&self) -> u64 {
        let keys = self.keyspace.entry_bytes() + self.keyspace.table_bytes() + self.keyspace.set_aside_bytes();
        keys.saturating_add_signed(self.overhead.load(Ordering::Relaxed)) + self.holes.load(Ordering::Relaxed)
    }

    /// Whether so many bytes more stay within the limit, once everything is freed that waits for it.
    fn fits(&self, bytes: u64) -> bool {
        let limit = self.settings.maxmemory();
        limit == 0 || self.used().saturating_add(bytes) <= limit
    }

    /// Whether so many bytes would fit if all keys went that may.
    fn may_fit(&self, bytes: u64) -> bool {
        let policy = self.policy();
        let stays = if policy.only_with_life() { self.keyspace.lasting_bytes() } else { 0 };
        let stays = stays.saturating_add_signed(self.overhead.load(Ordering::Relaxed));
        policy != Policy::NoEviction && stays.saturating_add(bytes) <= self.settings.maxmemory()
    }

    /// There is room for so many bytes, perhaps only once everything is freed that waits for it.
    fn made(&self, bytes: u64) -> Room {
        let (limit, garbage) = (self.settings.maxmemory(), self.keyspace.garbage_bytes());
        let all = self.used().saturating_add(garbage).saturating_add(bytes);
        let waits = limit > 0 && garbage > 0 && bytes > 0 && all > limit + limit / SMALL_SHARE;
        if waits { Room::Freeing } else { Room::Made }
    }

    /// See [`Host::make_room`](crate::commands::context::Host::make_room).
    pub(super) fn make_room(&self, bytes: u64, most: Duration) -> Room {
        if self.fits(bytes) {
            return self.made(bytes);
        }
        let (begun, policy, mut failures) = (Instant::now(), self.policy(), 0);
        while self.may_fit(bytes) && failures < EVICTION_TRIES {
            let evicted = self.keyspace.evict(policy);
            self.look_after(evicted);
            if self.fits(bytes) {
                return self.made(bytes);
            }
            if evicted == 0 {
                // A key that was chosen may be gone or busy by now.
                failures += 1;
            } else if begun.elapsed() >= most {
                return Room::Going;
            }
        }
        Room::Refused
    }

    /// So many bytes were evicted.
    fn look_after(&self, evicted: u64) {
        let sum = self.evicted.fetch_add(evicted, Ordering::Relaxed) + evicted;
        if sum > self.settings.maxmemory() / LOOK_AFTER_SHARE {
            self.evicted.store(0, Ordering::Relaxed);
            self.measure();
        }
    }

    /// See [`Host::room_for`](crate::commands::context::Host::room_for).
    pub(super) fn room_for(&self, bytes: u64, kept: u64) -> Room {
        if self.fits(bytes) {
            return self.made(bytes);
        }
        if !self.may_fit(bytes.saturating_add(kept)) {
            return Room::Refused;
        }
        let share = self.settings.maxmemory() / SMALL_SHARE;
        if self.fits(bytes.saturating_sub(share)) { self.made(bytes) } else { Room::Going }
    }

    /// Evict for a while if the limit is passed: it may have been lowered, and nobody write.
    pub(super) fn keep(&self) {
        self.make_room(0, KEEPING_TIME);
    }
}
