//! Which key goes when the memory limit is reached.
//!
//! As in Redis a few keys are looked at, those of random buckets, and the one that fits the policy best goes; the next best
//! are remembered, by each thread for itself, and compete with those that the next call looks at. So what goes is of the worst
//! thirtieth of all keys, not only the worst of some thirty: without it, 60,000 keys in use beside 6,000 new ones that came and
//! went lost two thirds in a minute, though each was used every few seconds. A remembered key that was used since stays.
//!
//! Which lives end soonest the tables know by segments: so for `volatile-ttl` the segments of some shards are compared, which
//! is like looking at thousands of keys.
//!
//! Buckets at random miss when there are few keys, or few of those that may go. Then the shards are walked, from a random
//! one on, until as many were seen: so a key goes as long as there is one that may. Few keys in all are large ones, of which
//! a wrong choice costs most: they are all looked at.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};

use smallvec::SmallVec;

use super::effect::Cause;
use super::entry::EntryRef;
use super::table::{Table, is_away};
use super::{Cell, DATABASES, Keyspace, SHARDS};

/// The rule by which keys go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// None does: commands that need memory are refused.
    NoEviction,
    /// The one not used for longest.
    AllKeysLru,
    /// The one used least often.
    AllKeysLfu,
    /// Any.
    AllKeysRandom,
    /// The one not used for longest, of those with a life.
    VolatileLru,
    /// The one used least often, of those with a life.
    VolatileLfu,
    /// Any of those with a life.
    VolatileRandom,
    /// The one whose life is over soonest.
    VolatileTtl,
}

impl Policy {
    /// All rules, in the order of the words of `maxmemory-policy`.
    pub const ALL: [Self; 8] = [
        Self::NoEviction,
        Self::AllKeysLru,
        Self::AllKeysLfu,
        Self::AllKeysRandom,
        Self::VolatileLru,
        Self::VolatileLfu,
        Self::VolatileRandom,
        Self::VolatileTtl,
    ];

    /// Whether it goes by how often keys are used.
    #[must_use]
    pub const fn goes_by_uses(self) -> bool {
        matches!(self, Self::AllKeysLfu | Self::VolatileLfu)
    }

    /// The rule of this number in [`Policy::ALL`], the setting's value.
    #[must_use]
    pub fn of_setting(index: usize) -> Self {
        Self::ALL.get(index).copied().unwrap_or(Self::NoEviction)
    }

    const fn goes_by_chance(self) -> bool {
        matches!(self, Self::AllKeysRandom | Self::VolatileRandom)
    }

    /// Whether only keys with a life go.
    #[must_use]
    pub const fn only_with_life(self) -> bool {
        matches!(self, Self::VolatileLru | Self::VolatileLfu | Self::VolatileRandom | Self::VolatileTtl)
    }
}

/// Keys looked at for each that goes.
const SAMPLES: usize = 32;
/// With fewer than this seen in buckets at random, the shards are walked.
const FEWEST_SAMPLES: usize = SAMPLES / 2;
/// Buckets visited at random at the most.
const BUCKETS: usize = 128;
/// All of at most so many keys are looked at.
const FEW_KEYS: usize = 1_000;
/// Keys remembered from one call to the next.
const REMEMBERED: usize = 32;
/// Shards whose segments are compared for the life that ends soonest.
const SOONEST_OF: usize = 32;
/// What was chosen may be gone, or away, when it is to go; then others are looked at, so many times.
const TRIES: usize = 16;

thread_local! {
    static CHOICE: RefCell<Choice> = const { RefCell::new(Choice::new()) };
}

static SEED: AtomicU64 = AtomicU64::new(0x9e37_79b9_7f4a_7c15);

fn random() -> u64 {
    let mut z = SEED.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

impl Keyspace {
    /// Let one key go; the bytes that it held, or 0 if there is none that may.
    pub fn evict(&self, policy: Policy) -> u64 {
        if policy == Policy::NoEviction {
            return 0;
        }
        let may_go = |db: &usize| if policy.only_with_life() { self.lives(*db) } else { self.len(*db) } > 0;
        let dbs: SmallVec<[usize; DATABASES]> = (0..DATABASES).filter(may_go).collect();
        CHOICE.with_borrow_mut(|choice| {
            choice.begin(std::ptr::from_ref(self) as usize, policy, self.stamp_now());
            let mut evicted = None;
            for _ in 0..if dbs.is_empty() { 0 } else { TRIES } {
                evicted = self.try_to_evict(&dbs, choice);
                // If all that may go are away, or none is left, looking again does not help.
                if evicted.is_some() || choice.seen == 0 {
                    break;
                }
            }
            choice.forget_long_names();
            evicted.unwrap_or(0)
        })
    }

    /// Look at some keys and let the best go; its bytes, if one of those seen can.
    fn try_to_evict(&self, dbs: &[usize], choice: &mut Choice) -> Option<u64> {
        choice.seen = 0;
        if dbs.iter().map(|db| self.len(*db)).sum::<usize>() <= FEW_KEYS {
            self.walk(dbs, usize::MAX, choice);
        } else if choice.policy == Policy::VolatileTtl {
            let evicted = self.evict_soonest(dbs);
            if evicted.is_some() {
                return evicted;
            }
            self.walk(dbs, SAMPLES, choice);
        } else {
            self.sample(dbs, choice);
            if choice.seen < FEWEST_SAMPLES {
                self.walk(dbs, SAMPLES, choice);
            }
        }
        while let Some(key) = choice.take_best() {
            let evicted = self.evict_if(key.db, &key.name, |entry| choice.is_still_worth(entry, key.worth));
            if evicted.is_some() {
                return evicted;
            }
        }
        None
    }

    /// Delete a key that was chosen, if it is still there, free, and as it was. Its bytes.
    fn evict_if(&self, db: usize, name: &[u8], fits: impl FnOnce(EntryRef<'_>) -> bool) -> Option<u64> {
        let evict = |cell: &mut Cell<'_>| {
            let bytes = cell.get().filter(|entry| fits(*entry))?.allocated_bytes() as u64;
            cell.delete(Cause::Evicted).then_some(bytes)
        };
        self.write(db, name, evict).ok().flatten()
    }

    /// Of some shards, let the key go whose life ends soonest.
    fn evict_soonest(&self, dbs: &[usize]) -> Option<u64> {
        (0..TRIES).find_map(|_| {
            let (due, db, shard, segment) = self.soonest_segment(dbs)?;
            let soonest_in = || self.shards[shard].0.write().tables[db].soonest_in(segment);
            // What the segment was due for may be gone. Then it says so from here on, and may not be the soonest.
            let (life, name) = soonest_in().filter(|(life, _)| *life <= due)?;
            let evicted = self.evict_if(db, &name, |entry| entry.life() == Some(life));
            soonest_in();
            evicted
        })
    }

    /// Of some shards, the segment of a table that is due first, and when.
    fn soonest_segment(&self, dbs: &[usize]) -> Option<(u64, usize, usize, usize)> {
        let look = |_| {
            let (db, shard) = (dbs[random() as usize % dbs.len()], random() as usize % SHARDS);
            let (due, segment) = self.shards[shard].0.read().tables[db].soonest_segment()?;
            Some((due, db, shard, segment))
        };
        (0..SOONEST_OF).filter_map(look).min()
    }

    /// Look at the keys of random buckets.
    fn sample(&self, dbs: &[usize], choice: &mut Choice) {
        for _ in 0..BUCKETS {
            if choice.seen >= SAMPLES {
                break;
            }
            let db = dbs[random() as usize % dbs.len()];
            let (shard, bucket) = (random() % SHARDS as u64, random() >> 32);
            let table = &self.shards[shard as usize].0.read().tables[db];
            if !choice.policy.only_with_life() || table.may_have_lives(bucket) {
                table.scan(bucket, |entry| choice.look_at(db, entry));
            }
        }
    }

    /// Look at all keys, one shard after the other, until enough were seen.
    fn walk(&self, dbs: &[usize], enough: usize, choice: &mut Choice) {
        let (first, only_with_life) = (random() as usize, choice.policy.only_with_life());
        for step in 0..SHARDS {
            if choice.seen >= enough {
                break;
            }
            let shard = self.shards[first.wrapping_add(step) % SHARDS].0.read();
            for &db in dbs {
                let visit = |entry: EntryRef<'_>| choice.look_at(db, entry);
                let table: &Table = &shard.tables[db];
                if only_with_life { table.for_each_near_lives(visit) } else { table.for_each(visit) }
            }
        }
    }
}

/// A key that may go.
struct Candidate {
    worth: u64,
    db: usize,
    name: Box<[u8]>,
}

/// The best keys seen so far, by this call and those before.
struct Choice {
    /// Tells keyspaces apart. A wrong guess does no harm: what is remembered is looked at again before it goes.
    keyspace: usize,
    policy: Policy,
    /// The keyspace's clock of access stamps.
    now: u32,
    /// How many were seen that may go.
    seen: usize,
    /// The least worth comes last.
    best: Vec<Candidate>,
}

impl Choice {
    const fn new() -> Self {
        Self { keyspace: 0, policy: Policy::NoEviction, now: 0, seen: 0, best: Vec::new() }
    }

    fn begin(&mut self, keyspace: usize, policy: Policy, now: u32) {
        if (self.keyspace, self.policy) != (keyspace, policy) || policy.goes_by_chance() {
            self.best.clear();
        }
        (self.keyspace, self.policy, self.now) = (keyspace, policy, now);
    }

    fn look_at(&mut self, db: usize, entry: EntryRef<'_>) {
        if self.policy.only_with_life() && entry.life().is_none() || is_away(entry) {
            return;
        }
        self.seen += 1;
        let worth = worth(self.policy, entry, self.now);
        let full = self.best.len() == REMEMBERED;
        if full && self.best.first().is_some_and(|most| worth >= most.worth) {
            return;
        }
        let at = self.best.partition_point(|other| other.worth > worth);
        let equals = self.best[at..].iter().take_while(|other| other.worth == worth);
        if equals.into_iter().any(|other| other.db == db && *other.name == *entry.name()) {
            return;
        }
        self.best.insert(at, Candidate { worth, db, name: entry.name().into() });
        if full {
            self.best.remove(0);
        }
    }

    /// Names may be of megabytes, and each thread remembers some.
    fn forget_long_names(&mut self) {
        const LONG_BYTES: usize = 1024;
        self.best.retain(|key| key.name.len() <= LONG_BYTES);
    }

    fn take_best(&mut self) -> Option<Candidate> {
        self.best.pop()
    }

    /// Whether the key was not used since it was worth this much.
    fn is_still_worth(&self, entry: EntryRef<'_>, worth: u64) -> bool {
        self.policy.goes_by_chance() || self::worth(self.policy, entry, self.now) <= worth
    }
}

/// What a key is worth: the least goes. Of keys used equally often the one not used for longest.
fn worth(policy: Policy, entry: EntryRef<'_>, now: u32) -> u64 {
    // As great as a stamp's seconds: an idle time that was set may reach back before the start.
    const BEFORE_START: u64 = 1 << 24;
    let last_use = BEFORE_START + u64::from(now) - u64::from(entry.idle(now));
    match policy {
        Policy::AllKeysLru | Policy::VolatileLru => last_use,
        Policy::AllKeysLfu | Policy::VolatileLfu => u64::from(entry.uses(now)) << u32::BITS | last_use,
        Policy::VolatileTtl => entry.life().unwrap_or(u64::MAX),
        _ => random(),
    }
}
