//! A hash table that never doubles: linear hashing over cache-line buckets.
//!
//! `hashbrown` doubles: at ten million keys one insert then moves them all, a stall of 30 ms. Here an insert splits at most
//! one bucket of seven entries, so no insert is slower than another.
//!
//! **Addressing.** With N buckets let S be the greatest power of two <= N. A hash goes to bucket `h mod 2S` if that is below
//! N, else to `h mod S`: buckets 0 .. N - S have been split, the rest not yet. The next split sends the entries of bucket
//! N - S whose hash has bit S set to the new bucket N. Shrinking is the same backwards.
//!
//! **Buckets** are one cache line: seven tagged entries and a link to a further line. At `KEYS_PER_BUCKET` keys a bucket on
//! average the table takes about 12 bytes a key and 1.3 lines a look-up. Buckets stand in segments that never move; only
//! their directory, eight bytes for 16 buckets, is ever reallocated.
//!
//! **Scanning** counts the low bits of the hash upwards *from the highest bit* (as Redis' SCAN does). A bucket that knows k low
//! bits covers an aligned run of that order, and so do the two buckets it is split into: an entry that stays is met at
//! least once whatever splits or merges happen between two steps.

use super::entry::{Entry, EntryGuard, EntryRef, TaggedEntry, ValueRef};

const SLOTS: usize = 7;
const SEGMENT_BUCKETS: usize = 16;
/// A bucket is split when there are more keys than this for each.
const KEYS_PER_BUCKET: usize = 7;
/// Buckets are merged when there are fewer keys than this for each.
const FEWEST_KEYS_PER_BUCKET: usize = 2;

/// A name's hash. The keyspace takes its shards from the highest bits; the table takes buckets from the low ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NameHash(pub u64);

impl NameHash {
    fn tag(self) -> u16 {
        (self.0 >> 38) as u16
    }
}

#[derive(Default)]
#[repr(align(64))]
struct Bucket {
    slots: [Option<TaggedEntry>; SLOTS],
    next: Option<Box<Bucket>>,
}

impl Bucket {
    fn find(&self, hash: NameHash, name: &[u8]) -> Option<&TaggedEntry> {
        let mut bucket = self;
        loop {
            let found = bucket.slots.iter().flatten().find(|slot| is(slot, hash, name));
            if found.is_some() {
                return found;
            }
            bucket = bucket.next.as_deref()?;
        }
    }

    fn find_mut(&mut self, hash: NameHash, name: &[u8]) -> Option<&mut TaggedEntry> {
        let mut bucket = self;
        loop {
            if let Some(at) = bucket.position(hash, name) {
                return bucket.slots[at].as_mut();
            }
            bucket = bucket.next.as_deref_mut()?;
        }
    }

    fn position(&self, hash: NameHash, name: &[u8]) -> Option<usize> {
        self.slots.iter().position(|slot| slot.as_ref().is_some_and(|slot| is(slot, hash, name)))
    }

    /// `further` counts the lines of all chains behind their first.
    fn put(&mut self, entry: TaggedEntry, further: &mut usize) -> &mut TaggedEntry {
        let mut bucket = self;
        while bucket.slots.iter().all(Option::is_some) {
            bucket = bucket.next.get_or_insert_with(|| {
                *further += 1;
                Box::default()
            });
        }
        let free = bucket.slots.iter_mut().find(|slot| slot.is_none()).expect("a slot is free");
        free.insert(entry)
    }

    fn take(&mut self, hash: NameHash, name: &[u8], further: &mut usize) -> Option<TaggedEntry> {
        match self.position(hash, name) {
            Some(at) => {
                let taken = self.slots[at].take();
                if let Some(next) = &mut self.next {
                    self.slots[at] = next.pop(further);
                    self.drop_empty_next(further);
                }
                taken
            }
            None => {
                let taken = self.next.as_mut()?.take(hash, name, further);
                self.drop_empty_next(further);
                taken
            }
        }
    }

    /// Any one entry, from the end of the chain.
    fn pop(&mut self, further: &mut usize) -> Option<TaggedEntry> {
        if let Some(next) = &mut self.next {
            let popped = next.pop(further);
            self.drop_empty_next(further);
            return popped;
        }
        self.slots.iter_mut().rev().find_map(Option::take)
    }

    fn drop_empty_next(&mut self, further: &mut usize) {
        if self.next.as_ref().is_some_and(|next| next.next.is_none() && next.slots.iter().all(Option::is_none)) {
            self.next = None;
            *further -= 1;
        }
    }

    fn for_each<'a>(&'a self, mut visit: impl FnMut(EntryRef<'a>)) {
        let mut bucket = Some(self);
        while let Some(current) = bucket {
            current.slots.iter().flatten().for_each(|slot| visit(slot.entry()));
            bucket = current.next.as_deref();
        }
    }

    fn len(&self) -> usize {
        let mut count = 0;
        self.for_each(|_| count += 1);
        count
    }
}

fn is(slot: &TaggedEntry, hash: NameHash, name: &[u8]) -> bool {
    slot.tag() == hash.tag() && slot.entry().name() == name
}

/// The names of one database that fall to one shard.
#[derive(Default)]
pub struct Table {
    #[allow(clippy::vec_box, reason = "the directory may move, the buckets may not")]
    segments: Vec<Box<[Bucket; SEGMENT_BUCKETS]>>,
    buckets: usize,
    len: usize,
    /// Cache lines that hang behind buckets.
    further: usize,
    /// For each segment a moment before which none of its keys' lives is over, in milliseconds since 1970.
    due: Vec<u64>,
}

/// The moment of a segment in which no key has a life.
const NEVER: u64 = u64::MAX;

impl Table {
    /// Number of keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The greatest power of two that is at most the number of buckets.
    fn level(&self) -> usize {
        1 << self.buckets.ilog2()
    }

    fn index(&self, hash: u64) -> usize {
        let level = self.level();
        let index = hash as usize & (2 * level - 1);
        if index < self.buckets { index } else { index & (level - 1) }
    }

    fn bucket(&self, index: usize) -> &Bucket {
        &self.segments[index / SEGMENT_BUCKETS][index % SEGMENT_BUCKETS]
    }

    /// A bucket, and the count that its methods keep.
    fn bucket_mut(&mut self, index: usize) -> (&mut Bucket, &mut usize) {
        (&mut self.segments[index / SEGMENT_BUCKETS][index % SEGMENT_BUCKETS], &mut self.further)
    }

    /// The entry of this name.
    #[must_use]
    pub fn get(&self, hash: NameHash, name: &[u8]) -> Option<EntryRef<'_>> {
        if self.buckets == 0 {
            return None;
        }
        self.bucket(self.index(hash.0)).find(hash, name).map(TaggedEntry::entry)
    }

    /// The entry of this name, for writing.
    pub(super) fn get_mut(&mut self, hash: NameHash, name: &[u8]) -> Option<EntryGuard<'_>> {
        if self.buckets == 0 {
            return None;
        }
        let index = self.index(hash.0);
        self.bucket_mut(index).0.find_mut(hash, name).map(TaggedEntry::entry_mut)
    }

    /// Put in an entry whose name is not there yet. `hash_of` gives the hash of any name in the table.
    pub(super) fn insert(
        &mut self,
        hash: NameHash,
        entry: Entry,
        hash_of: impl Fn(&[u8]) -> NameHash,
    ) -> EntryGuard<'_> {
        debug_assert!(self.get(hash, entry.name()).is_none());
        if self.len >= self.buckets * KEYS_PER_BUCKET {
            self.split(hash_of);
        }
        self.len += 1;
        let index = self.index(hash.0);
        let (bucket, further) = self.bucket_mut(index);
        bucket.put(TaggedEntry::new(entry, hash.tag()), further).entry_mut()
    }

    /// Make room for so many keys if the table is empty, so that none is moved while they come.
    pub(super) fn reserve(&mut self, keys: usize) {
        if self.buckets > 0 {
            return;
        }
        self.buckets = keys.div_ceil(KEYS_PER_BUCKET);
        let segments = self.buckets.div_ceil(SEGMENT_BUCKETS);
        self.segments.resize_with(segments, Box::default);
        self.due.resize(segments, NEVER);
    }

    /// Ask the processor for what a look-up of this hash will read first.
    pub(super) fn prefetch(&self, hash: NameHash) {
        if self.buckets > 0 {
            crate::filters::bits::prefetch(self.bucket(self.index(hash.0)));
        }
    }

    /// Ask the processor for what [`prefetch`](Self::prefetch) will read.
    pub(super) fn prefetch_directory(&self, hash: NameHash) {
        if self.buckets > 0 {
            crate::filters::bits::prefetch(&self.segments[self.index(hash.0) / SEGMENT_BUCKETS]);
        }
    }

    /// What is most likely the entry of a name with this hash, told without a look at it.
    pub(super) fn likely(&self, hash: NameHash) -> Option<EntryRef<'_>> {
        if self.buckets == 0 {
            return None;
        }
        let slots = &self.bucket(self.index(hash.0)).slots;
        slots.iter().flatten().find(|slot| slot.tag() == hash.tag()).map(TaggedEntry::entry)
    }

    /// Take out the entry of this name.
    pub fn remove(&mut self, hash: NameHash, name: &[u8]) -> Option<Entry> {
        if self.buckets == 0 {
            return None;
        }
        let index = self.index(hash.0);
        let (bucket, further) = self.bucket_mut(index);
        let taken = bucket.take(hash, name, further)?;
        self.len -= 1;
        if self.len == 0 {
            // A thousand shards of sixteen databases would hold 16 MB for nothing.
            *self = Self::default();
        } else if self.buckets > 1 && self.len < (self.buckets - 1) * FEWEST_KEYS_PER_BUCKET {
            self.merge();
        }
        Some(taken.into_entry())
    }

    fn split(&mut self, hash_of: impl Fn(&[u8]) -> NameHash) {
        if self.buckets.is_multiple_of(SEGMENT_BUCKETS) {
            self.segments.push(Box::default());
            self.due.push(NEVER);
        }
        if self.buckets == 0 {
            self.buckets = 1;
            return;
        }
        let (level, new) = (self.level(), self.buckets);
        self.buckets += 1;
        self.share_due(new - level, new);
        let mut old = std::mem::take(self.bucket_mut(new - level).0);
        while let Some(entry) = old.pop(&mut self.further) {
            let index = self.index(hash_of(entry.entry().name()).0);
            let (bucket, further) = self.bucket_mut(index);
            bucket.put(entry, further);
        }
    }

    fn merge(&mut self) {
        let last = self.buckets - 1;
        let mut old = std::mem::take(self.bucket_mut(last).0);
        self.buckets = last;
        let into = last - self.level();
        self.share_due(last, into);
        while let Some(entry) = old.pop(&mut self.further) {
            let (bucket, further) = self.bucket_mut(into);
            bucket.put(entry, further);
        }
        if last.is_multiple_of(SEGMENT_BUCKETS) {
            self.segments.pop();
            self.due.pop();
        }
    }

    /// Entries go from one bucket to another.
    fn share_due(&mut self, from: usize, to: usize) {
        let from = self.due[from / SEGMENT_BUCKETS];
        let to = &mut self.due[to / SEGMENT_BUCKETS];
        *to = from.min(*to);
    }

    /// The entry of this hash got this life, or has none.
    pub fn set_due(&mut self, hash: NameHash, life: Option<u64>) {
        if let Some(life) = life {
            let segment = self.index(hash.0) / SEGMENT_BUCKETS;
            self.due[segment] = life.min(self.due[segment]);
        }
    }

    /// Whether the life of a key may be over.
    #[must_use]
    pub fn may_have_due(&self, now: u64) -> bool {
        self.due.iter().any(|due| *due <= now)
    }

    /// The names of keys whose lives are over, about as many as `most` at the most.
    pub fn due_names(&mut self, now: u64, most: usize) -> Vec<Box<[u8]>> {
        let mut names = Vec::new();
        for segment in 0..self.segments.len() {
            if self.due[segment] > now {
                continue;
            }
            if names.len() >= most {
                break;
            }
            let mut next = NEVER;
            self.segments[segment].iter().for_each(|bucket| {
                bucket.for_each(|entry| match entry.life() {
                    Some(life) if life <= now => names.push(entry.name().into()),
                    Some(life) => next = life.min(next),
                    // The entry itself is away and comes back without a word: looked for again at the next call.
                    None if is_away(entry) => next = next.min(now + 1),
                    None => {}
                });
            });
            self.due[segment] = next;
        }
        names
    }

    /// Visit one bucket of a scan; returns the next cursor, 0 at the end. Cursors are low bits of hashes.
    pub fn scan<'a>(&'a self, cursor: u64, visit: impl FnMut(EntryRef<'a>)) -> u64 {
        if self.buckets == 0 {
            return 0;
        }
        let (level, index) = (self.level(), self.index(cursor));
        self.bucket(index).for_each(visit);
        // This bucket knows one bit more than `level` has if it is new or has been split.
        let split = index >= level || index + level < self.buckets;
        let known = if split { 2 * level as u64 - 1 } else { level as u64 - 1 };
        (cursor | !known).reverse_bits().wrapping_add(1).reverse_bits()
    }

    /// Whether there may be keys with a life about where a scan with this cursor looks.
    #[must_use]
    pub fn may_have_lives(&self, cursor: u64) -> bool {
        self.buckets > 0 && self.due[self.index(cursor) / SEGMENT_BUCKETS] != NEVER
    }

    /// The run of buckets that the keys may be in whose lives end first, and no later than when.
    #[must_use]
    pub fn soonest_segment(&self) -> Option<(u64, usize)> {
        let dues = self.due.iter().copied().zip(0..).filter(|(due, _)| *due != NEVER);
        dues.min()
    }

    /// Of the keys in a run of buckets that are here, the one whose life ends first, and when.
    pub fn soonest_in(&mut self, segment: usize) -> Option<(u64, Box<[u8]>)> {
        let mut soonest: Option<(u64, EntryRef<'_>)> = None;
        let mut away = false;
        self.segments.get(segment)?.iter().for_each(|bucket| {
            bucket.for_each(|entry| match entry.life() {
                Some(life) if soonest.is_none_or(|(least, _)| life < least) => soonest = Some((life, entry)),
                Some(_) => {}
                None => away |= is_away(entry),
            });
        });
        let found = soonest.map(|(life, entry)| (life, entry.name().into()));
        // The lives of entries that are away are not known: the moment stays.
        if !away {
            self.due[segment] = found.as_ref().map_or(NEVER, |(life, _)| *life);
        }
        found
    }

    /// Every entry with a life, and others; runs of buckets without any are passed over.
    pub fn for_each_near_lives<'a>(&'a self, mut visit: impl FnMut(EntryRef<'a>)) {
        let lives = self.segments.iter().zip(&self.due).filter(|(_, due)| **due != NEVER);
        lives.for_each(|(segment, _)| segment.iter().for_each(|bucket| bucket.for_each(&mut visit)));
    }

    /// Some entry, each about as likely as the other; `random` gives 64 random bits a call.
    #[must_use]
    pub fn random(&self, mut random: impl FnMut() -> u64) -> Option<EntryRef<'_>> {
        if self.len == 0 {
            return None;
        }
        // A bucket is taken with a probability in proportion to its keys: so every key has the same one.
        const AT_MOST: usize = 4 * SLOTS;
        loop {
            let bucket = self.bucket(below(random(), self.buckets));
            let chosen = below(random(), AT_MOST);
            if chosen < bucket.len() {
                let (mut at, mut found) = (0, None);
                bucket.for_each(|entry| {
                    if at == chosen {
                        found = Some(entry);
                    }
                    at += 1;
                });
                return found;
            }
        }
    }

    /// Every entry.
    pub fn for_each<'a>(&'a self, mut visit: impl FnMut(EntryRef<'a>)) {
        (0..self.buckets).for_each(|index| self.bucket(index).for_each(&mut visit));
    }

    /// Bytes that the table itself takes, without the entries.
    #[must_use]
    pub fn allocated_bytes(&self) -> usize {
        (self.segments.capacity() + self.due.capacity()) * size_of::<usize>()
            + (self.segments.len() * SEGMENT_BUCKETS + self.further) * size_of::<Bucket>()
    }
}

/// Whether a long command has the entry, and this one only stands for it.
pub(super) fn is_away(entry: EntryRef<'_>) -> bool {
    matches!(entry.value(), ValueRef::Busy { .. })
}

fn below(random: u64, bound: usize) -> usize {
    ((u128::from(random) * bound as u128) >> 64) as usize
}

#[cfg(test)]
mod tests {
    use super::super::entry::Value;
    use super::*;
    use std::collections::{HashMap, HashSet};

    fn hash_of(name: &[u8]) -> NameHash {
        NameHash(ahash::RandomState::with_seeds(1, 2, 3, 4).hash_one(name))
    }

    fn entry(name: &[u8]) -> Entry {
        Entry::boxed(name, None, Value::Opaque).unwrap()
    }

    fn insert(table: &mut Table, name: &[u8]) {
        drop(table.insert(hash_of(name), entry(name), hash_of));
    }

    fn name(n: usize) -> Vec<u8> {
        format!("key:{n}").into_bytes()
    }

    /// A generator with a fixed seed (splitmix64's sequence).
    fn generator(mut state: u64) -> impl FnMut() -> u64 {
        move || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = state;
            z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ z >> 31
        }
    }

    #[test]
    fn a_bucket_is_a_cache_line() {
        assert_eq!(size_of::<Bucket>(), 64);
    }

    #[test]
    fn agrees_with_a_map_under_random_inserts_and_removals() {
        let (mut table, mut model, mut random) = (Table::default(), HashSet::new(), generator(7));
        for phase in 0..6 {
            for _ in 0..20_000 {
                let name = name(random() as usize % 8_000);
                let grow = random() % 10 < if phase % 2 == 0 { 8 } else { 2 };
                let present = table.get(hash_of(&name), &name).is_some();
                assert_eq!(present, model.contains(&name));
                if grow && !present {
                    insert(&mut table, &name);
                    model.insert(name);
                } else if !grow {
                    assert_eq!(table.remove(hash_of(&name), &name).is_some(), model.remove(&name));
                }
                assert_eq!(table.len(), model.len());
            }
            let mut seen = HashSet::new();
            table.for_each(|entry| assert!(seen.insert(entry.name().to_vec())));
            assert_eq!(seen, model);
            let behind = |b: &Bucket| std::iter::successors(b.next.as_deref(), |b| b.next.as_deref()).count();
            assert_eq!(table.further, (0..table.buckets).map(|index| behind(table.bucket(index))).sum::<usize>());
        }
        for name in model {
            assert!(table.remove(hash_of(&name), &name).is_some());
        }
        assert!(table.is_empty() && table.buckets <= 2 && table.segments.len() <= 1);
    }

    #[test]
    fn about_twelve_bytes_a_key() {
        let mut table = Table::default();
        for n in 0..100_000 {
            insert(&mut table, &name(n));
        }
        let bytes = table.allocated_bytes() as f64 / 100_000.0;
        assert!(bytes < 13.5, "{bytes}");
    }

    #[test]
    fn scan_returns_every_key_that_stays() {
        let (mut table, mut random) = (Table::default(), generator(11));
        let staying: Vec<_> = (0..3_000).map(name).collect();
        staying.iter().for_each(|name| insert(&mut table, name));
        for round in 0..20 {
            let (mut cursor, mut seen, mut extra) = (0, HashMap::<Vec<u8>, usize>::new(), Vec::new());
            loop {
                cursor = table.scan(cursor, |entry| *seen.entry(entry.name().to_vec()).or_default() += 1);
                if cursor == 0 {
                    break;
                }
                // Grow and shrink widely between the steps.
                if random() % 2 == round % 2 {
                    for _ in 0..random() % 200 {
                        let name = name(10_000 + random() as usize % 1_000_000);
                        if table.get(hash_of(&name), &name).is_none() {
                            insert(&mut table, &name);
                            extra.push(name);
                        }
                    }
                } else {
                    for _ in 0..random() % 200 {
                        if let Some(name) = extra.pop() {
                            table.remove(hash_of(&name), &name);
                        }
                    }
                }
            }
            assert!(staying.iter().all(|name| seen.contains_key(name)));
            extra.iter().for_each(|name| drop(table.remove(hash_of(name), name)));
        }
    }

    #[test]
    fn scan_of_a_still_table_meets_each_key_once() {
        let mut table = Table::default();
        for n in 0..1_234 {
            insert(&mut table, &name(n));
        }
        let (mut cursor, mut seen) = (0, Vec::new());
        loop {
            cursor = table.scan(cursor, |entry| seen.push(entry.name().to_vec()));
            if cursor == 0 {
                break;
            }
        }
        assert_eq!(seen.len(), 1_234);
        assert_eq!(seen.into_iter().collect::<HashSet<_>>().len(), 1_234);
    }

    #[test]
    fn random_keys_are_spread_evenly() {
        let (mut table, mut random) = (Table::default(), generator(3));
        for n in 0..50 {
            insert(&mut table, &name(n));
        }
        let mut counts = HashMap::<Vec<u8>, usize>::new();
        for _ in 0..50_000 {
            *counts.entry(table.random(&mut random).unwrap().name().to_vec()).or_default() += 1;
        }
        // 1,000 expected each, standard deviation 31: a band of six.
        assert_eq!(counts.len(), 50);
        assert!(counts.values().all(|&count| (800..1_200).contains(&count)), "{counts:?}");
    }
}
