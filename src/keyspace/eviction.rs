//! Which key goes when the memory limit is reached.
//!
//! As in Redis a few keys are looked at, those of random buckets, and the one that fits the policy best goes. With
//! [`SAMPLES`] of them the worst keys are gone before the better half is touched: while a part p of all keys is worse than
//! the others, one of these goes by mistake with probability (1 - p)^32.
//!
//! Buckets at random miss when there are few keys, or few of those that may go. Then the shards are walked, from a random
//! one on, until as many were seen: so a key goes as long as there is one that may. Few keys in all are large ones, of which
//! a wrong choice costs most: they are all looked at.

use std::sync::atomic::{AtomicU64, Ordering};

use smallvec::SmallVec;

use super::entry::EntryRef;
use super::table::{Table, is_away};
use super::{DATABASES, Keyspace, SHARDS};

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

    const fn only_with_life(self) -> bool {
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
/// What was chosen may be gone, or away, when it is to go; then others are looked at, so many times.
const TRIES: usize = 16;

static SEED: AtomicU64 = AtomicU64::new(0x9e37_79b9_7f4a_7c15);

fn random() -> u64 {
    let mut z = SEED.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

impl Keyspace {
    /// Let one key go; false if there is none that may.
    pub fn evict(&self, policy: Policy) -> bool {
        if policy == Policy::NoEviction {
            return false;
        }
        for _ in 0..TRIES {
            match self.choose(policy) {
                Some((db, name)) if self.evict_key(db, &name) => return true,
                Some(_) => {}
                None => return false,
            }
        }
        false
    }

    /// The key that is to go.
    fn choose(&self, policy: Policy) -> Option<(usize, Box<[u8]>)> {
        let may_go = |db: &usize| if policy.only_with_life() { self.lives(*db) } else { self.len(*db) } > 0;
        let dbs: SmallVec<[usize; DATABASES]> = (0..DATABASES).filter(may_go).collect();
        if dbs.is_empty() {
            return None;
        }
        let mut choice = Choice { policy, now: self.stamp_now(), seen: 0, best: None };
        if dbs.iter().map(|db| self.len(*db)).sum::<usize>() <= FEW_KEYS {
            self.walk(&dbs, usize::MAX, &mut choice);
        } else {
            self.sample(&dbs, &mut choice);
            if choice.seen < FEWEST_SAMPLES {
                self.walk(&dbs, SAMPLES, &mut choice);
            }
        }
        choice.best.map(|(_, db, name)| (db, name))
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

/// The best key seen so far.
struct Choice {
    policy: Policy,
    now: u32,
    /// How many were seen that may go.
    seen: usize,
    /// What it is worth, its database, its name.
    best: Option<(u64, usize, Box<[u8]>)>,
}

impl Choice {
    fn look_at(&mut self, db: usize, entry: EntryRef<'_>) {
        if self.policy.only_with_life() && entry.life().is_none() || is_away(entry) {
            return;
        }
        self.seen += 1;
        let worth = worth(self.policy, entry, self.now);
        if self.best.as_ref().is_none_or(|(least, ..)| worth < *least) {
            self.best = Some((worth, db, entry.name().into()));
        }
    }
}

/// What a key is worth: the least goes.
fn worth(policy: Policy, entry: EntryRef<'_>, now: u32) -> u64 {
    match policy {
        Policy::AllKeysLru | Policy::VolatileLru => u64::from(u32::MAX - entry.idle(now)),
        Policy::AllKeysLfu | Policy::VolatileLfu => u64::from(entry.uses(now)),
        Policy::VolatileTtl => entry.life().unwrap_or(u64::MAX),
        _ => random(),
    }
}
