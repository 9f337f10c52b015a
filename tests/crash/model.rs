//! What a client expects of its own keys: each change, and the keys after it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use crate::support::chunks::Chunk;

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

/// The prefixes of names for which a client sets profiles: no other has keys that begin so.
pub fn profiles(client: usize) -> [String; 2] {
    [format!("seen{client}:"), format!("seen{client}:a")]
}

/// What a key holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Bloom,
    Ring,
    Counting,
    Dleft,
}

impl Kind {
    /// Those whose dumps are loaded chunk by chunk, each when its turn is.
    pub const IN_CHUNKS: [Self; 3] = [Self::Ring, Self::Counting, Self::Dleft];

    /// The first word of its commands.
    pub fn family(self) -> &'static str {
        ["BF", "CHAIN", "CBF", "DLCBF"][self as usize]
    }

    /// What TYPE gives.
    pub fn of(kind: &str) -> Option<Self> {
        let all = [Self::Bloom, Self::Ring, Self::Counting, Self::Dleft];
        let names = ["MBbloom--", "seenCHAIN", "seenCBF--", "seenDLCBF"];
        all.into_iter().zip(names).find(|(_, name)| *name == kind).map(|(own, _)| own)
    }

    /// Whether an item can be in it several times, and be taken out.
    pub fn counts(self) -> bool {
        matches!(self, Self::Counting | Self::Dleft)
    }

    /// Settings with which such filters are made.
    pub fn options(self) -> &'static [&'static str] {
        match self {
            Self::Counting => &["", "STRICT", WIDE, "SEED 000102030405060708090a0b0c0d0e0f"],
            Self::Dleft => &["", "COUNTERBITS 4", GROWS, "OVERFLOW SPILL", "KEYED"],
            Self::Bloom | Self::Ring => &[""],
        }
    }
}

/// The setting of a counting filter whose counters do not come to their ceiling here.
const WIDE: &str = "COUNTERBITS 8";
/// The setting of a d-left filter that takes more than its capacity.
const GROWS: &str = "EXPANSION 2";

/// How far a filter is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bits {
    /// All of it.
    Whole,
    /// Nothing but the header. What is loaded [chunk by chunk](Kind::IN_CHUNKS) is that until the last one is there.
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

/// A dump of a filter: each chunk and the cursor that came with it, the header first.
#[derive(PartialEq)]
pub struct Dump {
    pub kind: Kind,
    pub chunks: Vec<Chunk>,
}

impl fmt::Debug for Dump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} chunks", self.chunks.len())
    }
}

static LARGE_DUMPS: OnceLock<Vec<Arc<Dump>>> = OnceLock::new();

/// A filter of several chunks, of one of these [kinds](Kind::IN_CHUNKS), and its dump.
pub fn large_dump(kind: Kind) -> (Key, Arc<Dump>) {
    let (capacity, before) = large_size(kind);
    let links = if kind == Kind::Ring { LARGE_LINKS } else { 0 };
    let dumps = LARGE_DUMPS.get().expect("they were made");
    let dump = dumps.iter().find(|dump| dump.kind == kind).expect("one of each kind");
    (Key { kind, links, before, ..Key::new(capacity) }, dump.clone())
}

/// The same: `make` takes them from a server, once.
pub fn make_large_dumps(make: impl FnMut(Kind) -> Dump) {
    LARGE_DUMPS.get_or_init(|| Kind::IN_CHUNKS.map(make).map(Arc::new).into());
}

/// The capacity and the items of what is in it.
pub fn large_size(kind: Kind) -> (u64, u64) {
    match kind {
        Kind::Counting => (80_000, 3_000),
        Kind::Dleft => (250_000, 3_000),
        Kind::Bloom | Kind::Ring => (120_000, 150_000),
    }
}

pub const LARGE_LINKS: u64 = 3;

/// A filter as its client expects it. On a shared one these are only the client's own items.
#[derive(Clone, Debug, PartialEq)]
pub struct Key {
    /// How often the items of each batch are in it.
    pub batches: BTreeMap<Batch, u64>,
    /// When it ends, in milliseconds since 1970.
    pub life: Option<u64>,
    pub bits: Bits,
    pub capacity: u64,
    /// A ring is one of a window that outlasts the test, or by count.
    pub kind: Kind,
    /// Of a filter that counts, as it was made.
    pub options: &'static str,
    /// Those of a ring.
    pub links: u64,
    /// Of a ring by count, which turns when it is told to: the last batch before each turn, for the links that are there.
    pub turns: Option<Vec<u64>>,
    /// Items that are in no batch.
    pub before: u64,
    /// What it is loaded from, chunk by chunk, and how many of the chunks were taken.
    pub load: Option<(Arc<Dump>, usize)>,
    /// How many items it has is an estimate.
    pub estimated: bool,
}

impl Key {
    pub fn new(capacity: u64) -> Self {
        Self {
            batches: BTreeMap::new(),
            life: None,
            bits: Bits::Whole,
            capacity,
            kind: Kind::Bloom,
            options: "",
            links: 0,
            turns: None,
            before: 0,
            load: None,
            estimated: false,
        }
    }

    /// A ring of a window.
    pub fn window(capacity: u64) -> Self {
        Self { kind: Kind::Ring, links: DEFAULT_LINKS, ..Self::new(capacity) }
    }

    /// What an add makes that counts.
    pub fn counted(kind: Kind) -> Self {
        Self { kind, ..Self::new(DEFAULT_COUNTED) }
    }

    pub fn is_ring(&self) -> bool {
        self.kind == Kind::Ring
    }

    /// Items of a filter that counts, each as often as it is in it.
    pub fn items(&self) -> u64 {
        self.before + self.batches.iter().map(|(batch, times)| batch.items * times).sum::<u64>()
    }

    /// Whether it may have taken more than its capacity.
    pub fn grows(&self) -> bool {
        self.options == GROWS
    }

    /// So many items can be in a filter that counts, and each answer about them be exact.
    fn room(&self) -> u64 {
        match (self.grows(), self.estimated) {
            (true, _) => 12 * self.capacity,
            // A decay leaves what several items had counted together.
            (_, true) => self.capacity / 2,
            _ => self.capacity,
        }
    }

    /// Whether deletes are safe. A counter of four bits that was at its ceiling stood for more than it said, and a decay halves it
    /// all the same: then deletes of one item can take what another needs.
    pub fn may_delete(&self) -> bool {
        !self.estimated || self.options == WIDE
    }

    /// Whether one can be merged into the other, of filters that count.
    pub fn fits(&self, other: &Self) -> bool {
        let alike = |key: &Self| (key.kind, key.capacity, key.options);
        let times = |(batch, times)| times + other.batches.get(batch).unwrap_or(&0);
        alike(self) == alike(other)
            && self.items() + other.items() <= self.room().min(other.room())
            && self.batches.iter().map(times).all(|times| times <= MOST_MERGED)
    }

    pub fn is_window(&self) -> bool {
        self.turns.is_none() && self.before == 0
    }

    /// Whether it can take so many items more, and does not turn by itself.
    pub fn takes(&self, items: u64) -> bool {
        if self.kind.counts() {
            return self.items() + items <= self.room();
        }
        let Some(turns) = &self.turns else { return self.before == 0 };
        let last = turns.last().copied().unwrap_or(0);
        let active = self.batches.keys().filter(|batch| batch.number > last);
        active.map(|batch| batch.items).sum::<u64>() + items <= self.capacity / (self.links - 1)
    }

    /// A new link of a ring by count.
    fn rotate(&mut self) {
        let last = self.batches.last_key_value().map(|(batch, _)| batch.number);
        let Some(turns) = &mut self.turns else { return };
        // Nothing was ever written: there is no link.
        let Some(last) = last.max(turns.last().copied()) else { return };
        turns.push(last);
        self.forget();
    }

    fn set_links(&mut self, links: u64) {
        self.capacity = self.capacity / (self.links - 1) * (links - 1);
        self.links = links;
        self.forget();
    }

    /// Links beyond their number go.
    fn forget(&mut self) {
        let Some(turns) = &mut self.turns else { return };
        while turns.len() as u64 >= self.links {
            let last = turns.remove(0);
            self.batches.retain(|batch, _| batch.number > last);
        }
    }

    fn clear(&mut self) {
        self.batches.clear();
        self.turns.iter_mut().for_each(Vec::clear);
        self.estimated = false;
    }

    /// One occurrence less of each of these.
    fn take_out(&mut self, batch: &Batch) {
        let times = self.batches.get_mut(batch).expect("a batch that is in");
        *times -= 1;
        self.batches.retain(|_, times| *times > 0);
    }

    fn decay(&mut self) {
        self.batches.values_mut().for_each(|times| *times /= 2);
        self.batches.retain(|_, times| *times > 0);
        (self.before, self.estimated) = (self.before / 2, true);
    }

    /// Takes all of another one, of the same kind.
    fn merge(&mut self, other: &Self) {
        for (batch, times) in &other.batches {
            let own = self.batches.entry(*batch).or_insert(0);
            *own = if self.kind.counts() { *own + times } else { 1 };
        }
        self.before += other.before;
        self.estimated |= self.is_ring() || other.estimated;
    }
}

/// Links of a ring if nothing else is said.
const DEFAULT_LINKS: u64 = 5;
/// A ring by count.
pub const COUNT_CAPACITY: u64 = 8_000;
pub const COUNT_LINKS: u64 = 3;

/// The items that a ring is made for; its slices grow.
pub const RING_CAPACITY: u64 = 300;

/// The capacity of a filter that an add makes.
pub const DEFAULT_CAPACITY: u64 = 100;
/// The same of a filter that counts.
pub const DEFAULT_COUNTED: u64 = 1024;

/// How often an item is added, and how often it can be there after merges: less than the lowest ceiling, and that of what merges.
pub const MOST_ADDED: u64 = 4;
const MOST_MERGED: u64 = 12;

/// One change, as one command or one transaction makes it.
#[derive(Clone, Debug)]
pub enum Op {
    Reserve(Name, u64),
    /// BF.ADD or BF.MADD; BF.INSERT with `true`.
    Add(Name, Batch, bool),
    /// CHAIN.INSERT, which may make the ring.
    AddToRing(Name, Batch),
    /// CHAIN.MADD, and the ring that it makes by a profile, if there is none.
    AddByProfile(Name, Batch, Option<Box<Key>>),
    /// A profile is set, with this capacity, or deleted.
    Profile(String, Option<u64>),
    /// A ring by count.
    ReserveRing(Name),
    Rotate(Name),
    /// CHAIN.EXTEND or CHAIN.SHRINK from so many links to so many.
    Links(Name, u64, u64),
    Clear(Name),
    /// A filter that counts, with these options.
    ReserveCounted(Name, Kind, u64, &'static str),
    /// An add to such a filter, which may make it, of items that are new in it, or of such as are in it already.
    Count(Name, Kind, Batch, bool),
    /// Each of the items is taken out once.
    TakeOut(Name, Kind, Batch),
    Decay(Name),
    /// The first chunk of a dump; then each other by its number, perhaps more than once.
    LoadHeader(Name, Box<Key>, Arc<Dump>),
    LoadChunk(Name, Arc<Dump>, usize),
    /// MERGE into the first of these rings or filters that count, both of one database.
    Merge(Kind, Name, String),
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
    /// The batches that it adds, in order, but for filters that count, whose numbers are exact.
    pub fn batches(&self) -> Vec<Batch> {
        match self {
            Op::Add(_, batch, _) | Op::AddToRing(_, batch) | Op::AddByProfile(_, batch, _) => vec![*batch],
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
    pub fn range(&self, batches: &BTreeMap<Batch, u64>) -> (u64, u64) {
        let ranges = batches.keys().map(|batch| match self.0.get(&batch.number) {
            Some(count) => (*count, *count),
            None => (batch.items.saturating_sub(most_false(batch.items)), batch.items),
        });
        ranges.fold((0, 0), |sum, range| (sum.0 + range.0, sum.1 + range.1))
    }
}

/// All keys of a client, and the capacities of its profiles.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct State {
    pub keys: BTreeMap<Name, Key>,
    pub profiles: BTreeMap<String, u64>,
}

impl State {
    /// The ring that a command makes by itself, if a profile says so.
    pub fn by_profile(&self, key: &str) -> Option<Key> {
        let fitting = self.profiles.iter().filter(|(prefix, _)| key.starts_with(*prefix));
        fitting.max_by_key(|(prefix, _)| prefix.len()).map(|(_, capacity)| Key::window(*capacity))
    }

    pub fn apply(&mut self, op: &Op) {
        let keys = &mut self.keys;
        let mut edit = |name: &Name, change: &mut dyn FnMut(&mut Key)| change(keys.get_mut(name).expect("a key"));
        match op {
            Op::Life(name, life) => edit(name, &mut |key| key.life = *life),
            Op::TryPersist(name) => edit(name, &mut |key| key.life = Some(MAYBE)),
            Op::Chunk(name, _, _, last) => {
                edit(name, &mut |key| key.bits = if *last { Bits::Whole } else { Bits::Some })
            }
            Op::Add(name, batch, _) => {
                keys.entry(name.clone()).or_insert_with(|| Key::new(DEFAULT_CAPACITY)).batches.insert(*batch, 1);
            }
            Op::AddToRing(name, batch) => {
                let made = || Key::window(RING_CAPACITY);
                keys.entry(name.clone()).or_insert_with(made).batches.insert(*batch, 1);
            }
            Op::AddByProfile(name, batch, made) => {
                let key = keys.entry(name.clone()).or_insert_with(|| (**made.as_ref().expect("a profile")).clone());
                key.batches.insert(*batch, 1);
            }
            Op::Profile(prefix, Some(capacity)) => drop(self.profiles.insert(prefix.clone(), *capacity)),
            Op::Profile(prefix, None) => drop(self.profiles.remove(prefix)),
            Op::ReserveRing(name) => {
                let (links, turns) = (COUNT_LINKS, Some(Vec::new()));
                keys.insert(name.clone(), Key { kind: Kind::Ring, links, turns, ..Key::new(COUNT_CAPACITY) });
            }
            Op::Rotate(name) => edit(name, &mut Key::rotate),
            Op::Links(name, _, links) => edit(name, &mut |key| key.set_links(*links)),
            Op::Clear(name) => edit(name, &mut Key::clear),
            Op::ReserveCounted(name, kind, capacity, options) => {
                keys.insert(name.clone(), Key { kind: *kind, options, ..Key::new(*capacity) });
            }
            Op::Count(name, kind, batch, _) => {
                *keys.entry(name.clone()).or_insert_with(|| Key::counted(*kind)).batches.entry(*batch).or_insert(0) +=
                    1;
            }
            Op::TakeOut(name, _, batch) => edit(name, &mut |key| key.take_out(batch)),
            Op::Decay(name) => edit(name, &mut Key::decay),
            Op::LoadHeader(name, key, dump) => {
                // That of an empty ring is all there is.
                let is_whole = dump.chunks.len() == 1;
                let bits = if is_whole { Bits::Whole } else { Bits::Hollow };
                let load = (!is_whole).then(|| (dump.clone(), 1));
                keys.insert(name.clone(), Key { bits, life: None, load, ..(**key).clone() });
            }
            Op::LoadChunk(name, dump, chunk) if *chunk + 1 == dump.chunks.len() => {
                edit(name, &mut |key| (key.bits, key.load) = (Bits::Whole, None));
            }
            Op::LoadChunk(name, dump, chunk) => edit(name, &mut |key| {
                let taken = key.load.as_ref().map_or(0, |(_, taken)| *taken);
                key.load = Some((dump.clone(), taken.max(*chunk + 1)));
            }),
            Op::Merge(_, to, from) => {
                let from = keys[&(to.0, from.clone())].clone();
                let made = || Key { batches: BTreeMap::new(), life: None, before: 0, ..from.clone() };
                keys.entry(to.clone()).or_insert_with(made).merge(&from);
            }
            Op::Reserve(name, capacity) => drop(keys.insert(name.clone(), Key::new(*capacity))),
            Op::Delete(names) => names.iter().for_each(|name| drop(keys.remove(name))),
            Op::Gone(name) => drop(keys.remove(name)),
            Op::Rename(from, to) => {
                let key = keys.remove(from).expect("a key");
                keys.insert((from.0, to.clone()), key);
            }
            Op::Copy(from, to) => {
                let mut key = keys[from].clone();
                // The load of a copy begins anew.
                key.load.iter_mut().for_each(|(_, taken)| *taken = 1);
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
