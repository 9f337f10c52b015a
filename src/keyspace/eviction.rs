//! Which key goes when the memory limit is reached.
//!
//! As in Redis a few keys are looked at and the one that fits the policy best goes: some tens, where Redis looks at five. They
//! are taken from buckets of several shards, beginning anywhere.

use std::sync::atomic::{AtomicU64, Ordering};

use super::entry::EntryRef;
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
/// Keys looked at in one shard at the most, so that they come from several.
const SAMPLES_A_SHARD: usize = 8;
/// Buckets visited in one shard at the most: where few keys have a life, most are without one that may go.
const BUCKETS_A_SHARD: usize = 64;

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
        let candidates = |db: usize| if policy.only_with_life() { self.lives(db) } else { self.len(db) };
        let dbs: Vec<usize> = (0..DATABASES).filter(|db| candidates(*db) > 0).collect();
        let mut best: Option<(u64, usize, Box<[u8]>)> = None;
        let (mut seen, now, first) = (0, self.stamp_now(), random());
        // From a random shard on to the next ones: few keys are found as well as many.
        for step in 0..SHARDS as u64 {
            if seen >= SAMPLES || dbs.is_empty() {
                break;
            }
            let db = dbs[random() as usize % dbs.len()];
            let index = (first.wrapping_add(step) % SHARDS as u64) as usize;
            self.sample(index, db, policy, &mut |entry| {
                seen += 1;
                let worth = worth(policy, entry, now);
                if best.as_ref().is_none_or(|(least, ..)| worth < *least) {
                    best = Some((worth, db, entry.name().into()));
                }
            });
        }
        best.is_some_and(|(_, db, name)| self.evict_key(db, &name))
    }

    /// Visit some keys of a shard that may go.
    fn sample(&self, shard: usize, db: usize, policy: Policy, visit: &mut impl FnMut(EntryRef<'_>)) {
        let shard = self.shards[shard].0.read();
        let table = &shard.tables[db];
        let (mut seen, mut cursor) = (0, random() >> 32);
        if table.is_empty() {
            return;
        }
        for _ in 0..BUCKETS_A_SHARD {
            cursor = table.scan(cursor, |entry| {
                let may_go = !policy.only_with_life() || entry.life().is_some();
                if may_go && entry.kind().is_some() {
                    seen += 1;
                    visit(entry);
                }
            });
            if seen >= SAMPLES_A_SHARD || cursor == 0 {
                return;
            }
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
