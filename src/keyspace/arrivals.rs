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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keyspace::DATABASES;
    use crate::keyspace::effect::Cause;

    const KEYS: u32 = 30_000;

    fn name(number: u32) -> String {
        format!("user:{}", number % (KEYS - 100))
    }

    fn key(number: u32) -> (usize, Entry) {
        let life = number.is_multiple_of(3).then_some(1 << 45);
        let entry = Entry::packed_bloom(name(number).as_bytes(), life, 29, |payload| payload[0] = 1);
        (number as usize % 5 % DATABASES, entry.unwrap())
    }

    /// Everything that is counted is as if each key had been put there by itself.
    #[test]
    fn keys_arrive_as_if_one_by_one() {
        let (one_by_one, at_once) = (Keyspace::default(), Keyspace::default());
        let mut expected = Vec::new();
        for number in 0..KEYS {
            let (db, entry) = key(number);
            let put = one_by_one.write(db, name(number).as_bytes(), |cell| {
                let free = cell.get().is_none();
                if free {
                    cell.insert(entry);
                }
                free
            });
            if !put.ok().unwrap() {
                expected.push(number);
            }
        }
        assert_eq!(expected.len(), 100);
        let (mut arrivals, mut refused) = (Arrivals::default(), Vec::new());
        at_once.expect_keys(1, 6_000);
        for number in 0..KEYS {
            let (db, entry) = key(number);
            at_once.announce(&mut arrivals, db as u8, entry, number);
            if number % 7_000 == 0 {
                at_once.arrive(&mut arrivals, |number| refused.push(number));
            }
        }
        at_once.arrive(&mut arrivals, |number| refused.push(number));
        refused.sort_unstable();
        assert_eq!(refused, expected);
        for db in 0..DATABASES {
            assert_eq!(at_once.len(db), one_by_one.len(db));
            assert_eq!(at_once.lives(db), one_by_one.lives(db));
        }
        assert_eq!(at_once.entry_bytes(), one_by_one.entry_bytes());
        assert_eq!(at_once.lasting_bytes(), one_by_one.lasting_bytes());
        assert!((0..KEYS).all(|number| at_once.kind(number as usize % 5, name(number).as_bytes()).is_some()));
    }

    /// Room that was made goes with the last key, like any other.
    #[test]
    fn expected_keys_move_nothing_and_leave_nothing() {
        let keyspace = Keyspace::default();
        keyspace.expect_keys(0, u64::from(KEYS));
        let before = keyspace.table_bytes();
        assert!(before < u64::from(KEYS) * 64, "{before} bytes");
        let mut arrivals = Arrivals::default();
        (0..KEYS - 100).for_each(|number| keyspace.announce(&mut arrivals, 0, key(number).1, number));
        keyspace.arrive(&mut arrivals, |_| panic!("a key of that name"));
        assert!(keyspace.table_bytes() < before * 2);
        for number in 0..KEYS - 100 {
            let deleted = keyspace.write(0, name(number).as_bytes(), |cell| cell.delete(Cause::Command));
            assert!(deleted.ok().unwrap());
        }
        assert_eq!((keyspace.len(0), keyspace.table_bytes(), keyspace.entry_bytes()), (0, 0, 0));
    }
}
