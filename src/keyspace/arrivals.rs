//! Many keys at once, into a keyspace that nobody else uses yet: the loading of a snapshot.
//!
//! Keys come in the order of a file, so each falls to another shard and another line of memory. Some thousands of them are
//! put in order first: each shard is locked once for its share, and the lines that its keys go to are asked for together.

use super::entry::{Entry, Footprint};
use super::table::NameHash;
use super::{Keyspace, SHARD_BITS, SHARDS};

/// A key on its way.
struct Arrival {
    hash: NameHash,
    entry: Entry,
    db: u8,
    /// Its place in the order of the caller.
    number: u32,
}

/// Keys on their way into a keyspace.
#[derive(Default)]
pub struct Arrivals {
    list: Vec<Arrival>,
}

impl Keyspace {
    /// Add a key to those on their way. Its access stamp stays as it is.
    pub fn announce(&self, arrivals: &mut Arrivals, db: u8, entry: Entry, number: u32) {
        let hash = self.common.hash(entry.name());
        arrivals.list.push(Arrival { hash, entry, db, number });
    }

    /// Put all keys where they belong, unless there is one of that name: then `refused` is told the key's number and the key is
    /// dropped. Nothing is recorded. Of two keys of one name in the list the one with the lower number is put there.
    pub fn arrive(&self, arrivals: &mut Arrivals, mut refused: impl FnMut(u32)) {
        let place = |arrival: &Arrival| (arrival.hash.0 >> (u64::BITS - SHARD_BITS), arrival.db);
        arrivals.list.sort_unstable_by_key(|arrival| (place(arrival), arrival.number));
        let mut rest = arrivals.list.drain(..).peekable();
        let mut group: Vec<Arrival> = Vec::new();
        while let Some(first) = rest.next() {
            let at = place(&first);
            group.push(first);
            while let Some(next) = rest.next_if(|next| place(next) == at) {
                group.push(next);
            }
            self.arrive_in(at, &mut group, &mut refused);
        }
    }

    /// Keys of one database and one shard.
    fn arrive_in(&self, (shard, db): (u64, u8), group: &mut Vec<Arrival>, refused: &mut impl FnMut(u32)) {
        let (db, common) = (usize::from(db), &self.common);
        let mut shard = self.shards[shard as usize].0.write();
        let table = &mut shard.tables[db];
        group.iter().for_each(|arrival| table.prefetch(arrival.hash));
        let (mut count, mut memory) = (0, Footprint::default());
        common.figures.count_table(table, |table| {
            for Arrival { hash, entry, number, .. } in group.drain(..) {
                if table.get(hash, entry.name()).is_some() {
                    refused(number);
                    continue;
                }
                let life = entry.as_ref().life();
                match life {
                    Some(_) => common.figures.count(db, entry.as_ref()),
                    None => {
                        count += 1;
                        memory = memory + entry.as_ref().footprint();
                    }
                }
                drop(table.insert(hash, entry, |name| common.hash(name)));
                table.set_due(hash, life);
            }
        });
        common.figures.count_lasting(db, count, memory);
    }

    /// Make room for so many keys in an empty database, so that none is moved while they come.
    pub fn expect_keys(&self, db: usize, keys: u64) {
        // The shards' shares differ: a little more than the mean seldom needs to grow.
        let mean = keys / SHARDS as u64;
        let share = usize::try_from(mean + mean.isqrt()).unwrap_or(usize::MAX);
        for shard in &self.shards {
            let table = &mut shard.0.write().tables[db];
            self.common.figures.count_table(table, |table| table.reserve(share));
        }
    }
}
