//! What a client expects of its own keys: each change, and the keys after it.

use std::collections::{BTreeMap, BTreeSet};

/// A key: its database and its name.
pub type Name = (usize, String);

/// The databases that clients share; each has two more of its own.
pub const SHARED_DB: usize = 0;
pub const CHAOS_DB: usize = 1;
const FIRST_OWN_DB: usize = 2;

/// The two databases of a client.
pub fn own_dbs(client: usize) -> [usize; 2] {
    [FIRST_OWN_DB + 2 * client, FIRST_OWN_DB + 2 * client + 1]
}

/// How far a filter is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bits {
    /// All of it.
    Whole,
    /// Nothing but the header.
    Hollow,
    /// Any part.
    Some,
}

/// Items that were added by one command. Their names are made of the client's number, of this one, and of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Batch {
    pub number: u64,
    pub items: u64,
}

impl Batch {
    pub fn item(&self, client: usize, index: u64) -> String {
        format!("{client}:{}:{index}", self.number)
    }

    pub fn names(&self, client: usize) -> impl Iterator<Item = String> {
        let own = *self;
        (0..self.items).map(move |index| own.item(client, index))
    }
}

/// The end of a life of which it is not known whether PERSIST came before it.
pub const MAYBE: u64 = u64::MAX;

/// A filter as its client expects it. On a shared one these are only the client's own items.
#[derive(Clone, Debug, PartialEq)]
pub struct Key {
    pub batches: BTreeSet<Batch>,
    /// When it ends, in milliseconds since 1970.
    pub life: Option<u64>,
    pub bits: Bits,
    pub capacity: u64,
    /// It is a ring, of a window that outlasts the test.
    pub ring: bool,
    /// How many items it has is an estimate.
    pub merged: bool,
}

impl Key {
    pub fn new(capacity: u64) -> Self {
        Self { batches: BTreeSet::new(), life: None, bits: Bits::Whole, capacity, ring: false, merged: false }
    }
}

/// The items that a ring is made for; its slices grow.
pub const RING_CAPACITY: u64 = 300;

/// The capacity of a filter that an add makes.
pub const DEFAULT_CAPACITY: u64 = 100;

/// One change, as one command or one transaction makes it.
#[derive(Clone, Debug)]
pub enum Op {
    Reserve(Name, u64),
    /// BF.ADD or BF.MADD; BF.INSERT with `true`.
    Add(Name, Batch, bool),
    /// CHAIN.INSERT, which may make the ring.
    AddToRing(Name, Batch),
    /// CHAIN.MERGE into the first of these rings, both of one database.
    Merge(Name, String),
    Delete(Vec<Name>),
    Rename(Name, String),
    Copy(Name, Name),
    Move(Name, usize),
    /// The client's databases change places.
    Swap([usize; 2]),
    Flush(usize),
    /// A new end of its life, or none.
    Life(Name, Option<u64>),
    /// PERSIST while the life may be over already.
    TryPersist(Name),
    /// The key was seen to be gone: no change by the client.
    Gone(Name),
    Restore(Name, Box<Key>, Vec<u8>),
    /// The first piece of a dump; then others, of which one is the last.
    Header(Name, Box<Key>, Vec<u8>),
    Chunk(Name, u64, Vec<u8>, bool),
    Group(Vec<Op>),
}

impl Op {
    /// The batches that it adds, in order.
    pub fn batches(&self) -> Vec<Batch> {
        match self {
            Op::Add(_, batch, _) | Op::AddToRing(_, batch) => vec![*batch],
            Op::Group(ops) => ops.iter().flat_map(Op::batches).collect(),
            _ => Vec::new(),
        }
    }
}

/// How many items of each batch were told to be new. Where the reply was not seen, false positives are possible.
#[derive(Clone, Debug, Default)]
pub struct Counts(BTreeMap<u64, u64>);

/// Of so many new items at most so many are false positives: small filters have more of them than they were asked for.
pub fn most_false(items: u64) -> u64 {
    1 + items / 20
}

impl Counts {
    pub fn note(&mut self, op: &Op, new: &[bool]) {
        let mut new = new.iter();
        for batch in op.batches() {
            let count = new.by_ref().take(batch.items as usize).filter(|new| **new).count() as u64;
            assert!(count + most_false(batch.items) >= batch.items, "{count} of {batch:?} were told to be new");
            self.0.insert(batch.number, count);
        }
    }

    /// What a filter with these batches may say that it has.
    pub fn range(&self, batches: &BTreeSet<Batch>) -> (u64, u64) {
        let ranges = batches.iter().map(|batch| match self.0.get(&batch.number) {
            Some(count) => (*count, *count),
            None => (batch.items.saturating_sub(most_false(batch.items)), batch.items),
        });
        ranges.fold((0, 0), |sum, range| (sum.0 + range.0, sum.1 + range.1))
    }
}

/// All keys of a client.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct State(pub BTreeMap<Name, Key>);

impl State {
    pub fn apply(&mut self, op: &Op) {
        let keys = &mut self.0;
        let mut edit = |name: &Name, change: &mut dyn FnMut(&mut Key)| change(keys.get_mut(name).expect("a key"));
        match op {
            Op::Life(name, life) => edit(name, &mut |key| key.life = *life),
            Op::TryPersist(name) => edit(name, &mut |key| key.life = Some(MAYBE)),
            Op::Chunk(name, _, _, last) => {
                edit(name, &mut |key| key.bits = if *last { Bits::Whole } else { Bits::Some })
            }
            Op::Add(name, batch, _) => {
                keys.entry(name.clone()).or_insert_with(|| Key::new(DEFAULT_CAPACITY)).batches.insert(*batch);
            }
            Op::AddToRing(name, batch) => {
                let made = || Key { ring: true, ..Key::new(RING_CAPACITY) };
                keys.entry(name.clone()).or_insert_with(made).batches.insert(*batch);
            }
            Op::Merge(to, from) => {
                let from = keys[&(to.0, from.clone())].clone();
                let made = || Key { batches: BTreeSet::new(), life: None, ..from.clone() };
                let key = keys.entry(to.clone()).or_insert_with(made);
                key.batches.extend(&from.batches);
                key.merged = true;
            }
            Op::Reserve(name, capacity) => drop(keys.insert(name.clone(), Key::new(*capacity))),
            Op::Delete(names) => names.iter().for_each(|name| drop(keys.remove(name))),
            Op::Gone(name) => drop(keys.remove(name)),
            Op::Rename(from, to) => {
                let key = keys.remove(from).expect("a key");
                keys.insert((from.0, to.clone()), key);
            }
            Op::Copy(from, to) => {
                let key = keys[from].clone();
                keys.insert(to.clone(), key);
            }
            Op::Move(name, db) => {
                let key = keys.remove(name).expect("a key");
                keys.insert((*db, name.1.clone()), key);
            }
            Op::Swap([one, other]) => {
                let swapped = |db: usize| {
                    if db == *one {
                        *other
                    } else if db == *other {
                        *one
                    } else {
                        db
                    }
                };
                *keys = std::mem::take(keys).into_iter().map(|((db, name), key)| ((swapped(db), name), key)).collect();
            }
            Op::Flush(db) => keys.retain(|(other, _), _| other != db),
            Op::Restore(name, key, _) => drop(keys.insert(name.clone(), (**key).clone())),
            Op::Header(name, key, _) => {
                drop(keys.insert(name.clone(), Key { bits: Bits::Hollow, life: None, ..(**key).clone() }));
            }
            Op::Group(ops) => ops.iter().for_each(|op| self.apply(op)),
        }
    }
}
