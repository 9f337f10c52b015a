//! What all threads of the server share.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::allocator::Heap;
use super::client::Clients;
use super::worker::Workers;
use super::{allocator, files, info, logging};
use crate::commands::context::{Counter, Counters, Host, Room};
use crate::config::{Id, Prepared, SetError, Settings};
use crate::filters::bits::mapped_bytes;
use crate::keyspace::{Keyspace, Policy};

/// What all threads of the server share.
pub(super) struct Shared {
    pub(super) settings: Arc<Settings>,
    pub(super) keyspace: Arc<Keyspace>,
    pub(super) clients: Clients,
    pub(super) workers: Workers,
    /// One set of counters a worker.
    pub(super) counters: Box<[Counters]>,
    pub(super) started: Instant,
    pub(super) started_at: SystemTime,
    /// 40 hexadecimal digits, new at each start.
    pub(super) run_id: String,
    /// The most bytes that were seen in use.
    pub(super) peak_memory: AtomicU64,
    pub(super) rates: Mutex<Rates>,
    /// Clients that the limit of open files allows.
    files: AtomicU64,
    last_id: AtomicU64,
    /// Bytes allocated for other things than entries.
    overhead: AtomicI64,
    /// Bytes of holes between what is allocated, beyond those that are let be. They go when the keys around them go.
    holes: AtomicU64,
    /// Bytes evicted since the allocator was looked after.
    evicted: AtomicU64,
    /// Clients cut off from outside, by the sweep.
    pub(super) swept: AtomicU64,
    shutdown: Notify,
}

/// The counts a second ago, and what came since: for figures "per second".
#[derive(Default)]
pub(super) struct Rates {
    second: u32,
    before: Totals,
    /// The latest whole second.
    pub(super) last: Totals,
}

/// Sums over all threads that are also shown per second.
#[derive(Clone, Copy, Default)]
pub(super) struct Totals {
    pub(super) commands: u64,
    pub(super) bytes_in: u64,
    pub(super) bytes_out: u64,
}

/// The memory limit may be passed by this part of it, when others can be evicted afterwards.
const SMALL_SHARE: u64 = 64;

/// Holes between what is allocated count as used beyond this part of the memory limit, and so many bytes that are always there.
/// Keys of one size that went one here and one there leave holes that no key of another size fits into: without this 280 MB were
/// resident under a limit of 200 MB. If all holes counted, keys in use would go for those beside them.
const HOLES_SHARE: u64 = 12;
const HOLES_BYTES: u64 = 2 << 20;

/// Each time this part of the limit was evicted the allocator is looked after, which costs some microseconds.
const LOOK_AFTER_SHARE: u64 = 32;

/// How long keys are evicted at each tick if the memory limit is passed.
const KEEPING_LIMIT: Duration = Duration::from_millis(20);

/// So many choices of a key to be evicted may fail before a command is refused.
const EVICTION_TRIES: u32 = 2;

impl Shared {
    pub(super) fn new(settings: Settings, files: u64, workers: Workers) -> Self {
        Self {
            keyspace: Arc::new(Keyspace::new(None)),
            clients: Clients::default(),
            workers,
            counters: (0..settings.threads()).map(|_| Counters::default()).collect(),
            settings: Arc::new(settings),
            started: Instant::now(),
            started_at: SystemTime::now(),
            run_id: random_hex(),
            peak_memory: AtomicU64::new(0),
            rates: Mutex::default(),
            files: AtomicU64::new(files),
            last_id: AtomicU64::new(0),
            overhead: AtomicI64::new(0),
            holes: AtomicU64::new(0),
            evicted: AtomicU64::new(0),
            swept: AtomicU64::new(0),
            shutdown: Notify::new(),
        }
    }

    /// Seconds since the start, from 1 on, so that 0 can stand for "never".
    pub(super) fn now(&self) -> u32 {
        self.started.elapsed().as_secs() as u32 + 1
    }

    /// The number of a new connection.
    pub(super) fn next_id(&self) -> u64 {
        self.last_id.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The clients allowed at the same time.
    pub(super) fn max_clients(&self) -> u64 {
        u64::from(self.settings.maxclients()).min(self.files.load(Ordering::Relaxed))
    }

    /// One count over all threads.
    pub(super) fn sum(&self, of: impl Fn(&Counters) -> &Counter) -> u64 {
        self.counters.iter().map(|counters| of(counters).get()).sum()
    }

    /// Bytes in use, without what is being freed: what the keys hold, exactly, and all else as it was at the last tick.
    fn used_memory(&self) -> u64 {
        let keys = self.keyspace.entry_bytes() + self.keyspace.table_bytes() + self.keyspace.set_aside_bytes();
        let rest = keys.saturating_add_signed(self.overhead.load(Ordering::Relaxed));
        rest + self.holes.load(Ordering::Relaxed)
    }

    /// So many bytes were evicted.
    fn look_after(&self, evicted: u64) {
        let sum = self.evicted.fetch_add(evicted, Ordering::Relaxed) + evicted;
        if sum > self.settings.maxmemory() / LOOK_AFTER_SHARE {
            self.evicted.store(0, Ordering::Relaxed);
            self.measure_overhead();
        }
    }

    /// What is used beside the keys, as the allocator sees it. At the limit it is also told to give back what it does not need.
    fn measure_overhead(&self) {
        // Mappings are only made for filters. One that is being made does not yet count: were it in here, it would count twice
        // from when it is in its place until the next tick.
        let known = || (self.keyspace.heap_bytes() + self.keyspace.table_bytes()) as i64;
        // What comes and goes while this thread may be kept from running must not look like overhead: keys would go for it.
        let before = known();
        let heap = Heap::now();
        let overhead = heap.allocated as i64 - before.max(known());
        let limit = self.settings.maxmemory();
        if limit > 0 {
            if heap.resident + mapped_bytes() > limit {
                allocator::give_all_back();
            }
            let holes = heap.active.saturating_sub(heap.allocated);
            self.holes.store(holes.saturating_sub(limit / HOLES_SHARE + HOLES_BYTES), Ordering::Relaxed);
        }
        self.overhead.store(overhead, Ordering::Relaxed);
    }

    /// What has to be done now and then.
    pub(super) fn tick(&self) {
        let now = self.now();
        self.keyspace.set_now(now);
        self.measure_overhead();
        self.peak_memory.fetch_max(allocator::allocated_bytes(), Ordering::Relaxed);
        let mut rates = self.rates.lock();
        if rates.second == now {
            return;
        }
        let totals = Totals {
            commands: self.sum(|counters| &counters.commands),
            bytes_in: self.sum(|counters| &counters.bytes_in),
            bytes_out: self.sum(|counters| &counters.bytes_out),
        };
        let seconds = u64::from(now - rates.second).max(1);
        rates.last = Totals {
            commands: (totals.commands - rates.before.commands) / seconds,
            bytes_in: (totals.bytes_in - rates.before.bytes_in) / seconds,
            bytes_out: (totals.bytes_out - rates.before.bytes_out) / seconds,
        };
        (rates.second, rates.before) = (now, totals);
        drop(rates);
        allocator::give_back();
        let cut_off = self.clients.sweep(now, self.settings.timeout());
        self.swept.fetch_add(cut_off, Ordering::Relaxed);
    }

    /// Whether so many bytes more stay within the memory limit, once everything is freed that waits for it.
    fn fits(&self, bytes: u64) -> bool {
        let limit = self.settings.maxmemory();
        limit == 0 || self.used_memory().saturating_add(bytes) <= limit
    }

    /// Whether so many bytes would fit if all keys went that may.
    fn may_fit(&self, bytes: u64) -> bool {
        let policy = self.policy();
        let stays = if policy.only_with_life() { self.keyspace.lasting_bytes() } else { 0 };
        let stays = stays.saturating_add_signed(self.overhead.load(Ordering::Relaxed));
        policy != Policy::NoEviction && stays.saturating_add(bytes) <= self.settings.maxmemory()
    }

    /// Whether so many bytes have to wait for what is being freed.
    fn waits(&self, bytes: u64) -> bool {
        let (limit, garbage) = (self.settings.maxmemory(), self.keyspace.garbage_bytes());
        let all = self.used_memory().saturating_add(garbage).saturating_add(bytes);
        limit > 0 && garbage > 0 && bytes > 0 && all > limit + limit / SMALL_SHARE
    }

    fn room_or_wait(&self, bytes: u64) -> Room {
        if self.waits(bytes) { Room::Freeing } else { Room::Made }
    }

    fn policy(&self) -> Policy {
        Policy::of_setting(self.settings.maxmemory_policy())
    }

    /// Evict for a while if the memory limit is passed: it may have been lowered, and nobody write.
    pub(super) fn keep_limit(&self) {
        self.make_room(0, KEEPING_LIMIT);
    }

    /// Ends when somebody asked for the end.
    pub(super) async fn shutdown_asked(&self) {
        self.shutdown.notified().await;
    }
}

impl Host for Shared {
    fn info(&self, sections: &[String]) -> String {
        info::text(self, sections)
    }

    fn approve_settings(&self, changes: &Prepared) -> Result<(), SetError> {
        match changes.number(Id::MaxClients) {
            Some(clients) if !files::allows(clients) => {
                let reason = "the limit of open files allows fewer; raise it with 'ulimit -n' before the start";
                Err(SetError::Refused(Id::MaxClients.name(), reason.to_owned()))
            }
            _ => Ok(()),
        }
    }

    fn settings_changed(&self, changed: &[Id]) {
        for id in changed {
            let value = match id.directive().is_secret() {
                true => "(hidden)".into(),
                false => String::from_utf8_lossy(&self.settings.value_text(*id)).into_owned(),
            };
            tracing::info!("setting '{}' changed to '{value}'", id.name());
            match id {
                Id::Loglevel => logging::set_level(self.settings.loglevel()),
                Id::MaxMemoryPolicy => self.keyspace.count_uses(self.policy().goes_by_uses()),
                Id::MaxClients => self.files.store(u64::from(self.settings.maxclients()), Ordering::Relaxed),
                _ => {}
            }
        }
    }

    fn make_room(&self, bytes: u64, most: Duration) -> Room {
        if self.fits(bytes) {
            return self.room_or_wait(bytes);
        }
        let (begun, policy, mut failures) = (Instant::now(), self.policy(), 0);
        while self.may_fit(bytes) && failures < EVICTION_TRIES {
            let evicted = self.keyspace.evict(policy);
            self.look_after(evicted);
            if self.fits(bytes) {
                return self.room_or_wait(bytes);
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

    fn room_for(&self, bytes: u64, kept: u64) -> Room {
        if self.fits(bytes) {
            return self.room_or_wait(bytes);
        }
        if !self.may_fit(bytes.saturating_add(kept)) {
            return Room::Refused;
        }
        let share = self.settings.maxmemory() / SMALL_SHARE;
        if self.fits(bytes.saturating_sub(share)) { self.room_or_wait(bytes) } else { Room::Going }
    }

    fn shut_down(&self) {
        self.shutdown.notify_one();
    }
}

fn random_hex() -> String {
    use std::hash::{BuildHasher, RandomState};
    let words = [0, 1, 2].map(|n| format!("{:016x}", RandomState::new().hash_one(n)));
    words.concat()[..40].to_owned()
}
