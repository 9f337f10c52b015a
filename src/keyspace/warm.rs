//! Asking the processor beforehand for what the next requests will look at.
//!
//! A look-up among millions of keys reads memory that no cache holds, five times over, each time at an address that the read before
//! gave: shard, directory, bucket, header, value. The requests of one pipeline are known together; so each of these steps is
//! asked for on behalf of all of them, and the waits coincide. Of 850 ns for a question to a ring among a million this leaves
//! about half.

use parking_lot::RwLockReadGuard;
use smallvec::SmallVec;

use super::Keyspace;
use super::shard::Shard;
use super::table::{NameHash, Table};
use crate::filters::bits::{prefetch, prefetch_at};

/// Keys that are asked for together: more would push each other out of the smallest cache.
pub const WARMED_TOGETHER: usize = 16;
/// Longer names take long to hash.
const LONGEST_NAME_BYTES: usize = 1024;
/// As long as there are fewer keys they are in a cache.
const FEWEST_KEYS: i64 = 20_000;

impl Keyspace {
    /// Whether it is worth it to [`warm`](Self::warm) keys of this database.
    #[must_use]
    pub fn is_worth_warming(&self, db: usize) -> bool {
        // Elsewhere there are no prefetches, and all of it would only be done twice.
        cfg!(target_arch = "x86_64")
            && self.common.figures.keys[db].load(std::sync::atomic::Ordering::Relaxed) >= FEWEST_KEYS
    }

    /// Have the first [`WARMED_TOGETHER`] of these names' keys on their way into the cache, those whose shards nobody is writing to.
    /// Nothing depends on it.
    pub fn warm<'n>(&self, db: usize, names: impl Iterator<Item = &'n [u8]>) {
        let (mut hashes, mut last) = (SmallVec::<[NameHash; WARMED_TOGETHER]>::new(), None);
        for name in names.take(WARMED_TOGETHER).filter(|name| name.len() <= LONGEST_NAME_BYTES) {
            if last.replace(name) != Some(name) {
                hashes.push(self.common.hash(name));
            }
        }
        for hash in &hashes {
            let shard = self.shard(*hash);
            prefetch(shard);
            let table = std::mem::offset_of!(Shard, tables) + db * size_of::<Table>();
            prefetch_at(shard.data_ptr().cast::<u8>().wrapping_add(table));
        }
        let locked: SmallVec<[(NameHash, RwLockReadGuard<'_, Shard>); WARMED_TOGETHER]> =
            hashes.iter().filter_map(|hash| Some((*hash, self.shard(*hash).try_read()?))).collect();
        let tables = || locked.iter().map(|(hash, shard)| (*hash, &shard.tables[db]));
        tables().for_each(|(hash, table)| table.prefetch_directory(hash));
        tables().for_each(|(hash, table)| table.prefetch(hash));
        let entries = || tables().filter_map(|(hash, table)| table.likely(hash));
        entries().for_each(|entry| entry.prefetch_header());
        entries().for_each(|entry| entry.prefetch_rest());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keyspace::entry::Entry;

    #[test]
    fn any_names_can_be_warmed_while_others_write() {
        let keyspace = Keyspace::default();
        let names: Vec<_> = (0..FEWEST_KEYS).map(|number| format!("key:{number}").into_bytes()).collect();
        for name in &names {
            assert!(!keyspace.is_worth_warming(3));
            let entry = Entry::packed_bloom(name, None, 100, |_| {}).unwrap();
            keyspace.write(3, name, |cell| cell.insert(entry)).ok().unwrap();
        }
        assert!(keyspace.is_worth_warming(3) && !keyspace.is_worth_warming(0));
        keyspace.warm(0, names.iter().map(Vec::as_slice));
        keyspace.write(3, &names[5], |_| keyspace.warm(3, names.iter().map(Vec::as_slice))).ok().unwrap();
        keyspace.warm(3, [&b""[..], &[7; 70_000]].into_iter());
        assert!(keyspace.shards.iter().all(|shard| shard.0.try_write().is_some()));
    }
}
