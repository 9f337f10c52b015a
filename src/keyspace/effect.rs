//! What a change did: complete in itself, so that doing it again elsewhere gives the same bytes.
//!
//! Every change of the keyspace is told to the [`Journal`] as exactly one effect, while the lock under which it happened is
//! still held: so the order of effects on a key is the order of its changes. An effect never depends on a default, a limit,
//! a clock or a random choice; it says what came of them: settings in full, moments as absolute times, which items were
//! counted and in which sub-filter.

use crate::filters::bloom::Shape;
use crate::filters::ring::{Event, Settings};
use crate::filters::{counting, dleft};

/// A change of one key, or of whole databases.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Effect<'a> {
    /// A Bloom filter was made.
    BloomCreated {
        /// Its first sub-filter.
        shape: Shape,
        /// Its [options](crate::filters::bloom::options).
        options: u32,
        /// Its growth factor.
        growth: u32,
        /// When it ends, in milliseconds since 1970.
        life: Option<u64>,
    },
    /// Items were counted as new.
    BloomAdded {
        /// In this sub-filter, the oldest being 0.
        link: u32,
        /// These.
        items: &'a [&'a [u8]],
    },
    /// A Bloom filter got a further sub-filter.
    BloomGrown {
        /// The sub-filter.
        shape: Shape,
    },
    /// A Bloom filter was made from the header of a dump.
    BloomHeader {
        /// The header.
        header: &'a [u8],
    },
    /// A piece of a dump was or-ed in.
    BloomChunk {
        /// Into this sub-filter.
        link: u32,
        /// From this byte on.
        offset: u64,
        /// These bytes.
        data: &'a [u8],
    },
    /// A ring was made.
    RingCreated {
        /// With these settings.
        settings: Settings,
        /// Its versions begin at this one.
        version: u64,
        /// When it ends, in milliseconds since 1970.
        life: Option<u64>,
    },
    /// A ring is made from the header of a dump; it is there when its last chunk is, as [`Effect::Restored`].
    RingHeader {
        /// The cursor that came with the header.
        cursor: u64,
        /// The header.
        header: &'a [u8],
    },
    /// Items were written to a ring, or its time went on.
    RingAdded {
        /// When.
        event: Event,
        /// These.
        items: &'a [&'a [u8]],
    },
    /// A ring began a new link.
    RingRotated,
    /// A ring forgot everything.
    RingCleared,
    /// A ring has another number of links.
    RingLinks {
        /// So many.
        links: u16,
        /// At this time for the ring.
        now: u64,
    },
    /// A counting filter was made.
    CountingCreated {
        /// With these settings.
        settings: counting::Settings,
        /// Of this shape.
        shape: counting::Shape,
        /// Its versions begin at this one.
        version: u64,
        /// When it ends, in milliseconds since 1970.
        life: Option<u64>,
    },
    /// A counting filter is made from the header of a dump; it is there when its last chunk is, as [`Effect::Restored`].
    CountingHeader {
        /// The cursor that came with the header.
        cursor: u64,
        /// The header.
        header: &'a [u8],
    },
    /// Items were counted by a counting filter.
    CountingAdded {
        /// These, in this order; none that was refused.
        items: &'a [&'a [u8]],
    },
    /// Items were taken out of a counting filter.
    CountingRemoved {
        /// These, in this order; none that was not there.
        items: &'a [&'a [u8]],
    },
    /// A counting filter forgot half of everything.
    CountingDecayed,
    /// A d-left filter was made.
    DleftCreated {
        /// With these settings.
        settings: dleft::Settings,
        /// What its multipliers are drawn from.
        seed: u64,
        /// When it ends, in milliseconds since 1970.
        life: Option<u64>,
    },
    /// A d-left filter is made from the header of a dump; it is there when its last chunk is, as [`Effect::Restored`].
    DleftHeader {
        /// The cursor that came with the header.
        cursor: u64,
        /// The header.
        header: &'a [u8],
    },
    /// Items were counted by a d-left filter, which grew for them if it had to.
    DleftAdded {
        /// These, in this order; none that was refused.
        items: &'a [&'a [u8]],
    },
    /// Items were taken out of a d-left filter.
    DleftRemoved {
        /// These, in this order; none that was not there.
        items: &'a [&'a [u8]],
    },
    /// What keys of rings get whose names begin with the name beside the effect, when a command makes them by itself.
    Profile {
        /// These settings; none any more.
        settings: Option<Profile>,
    },
    /// The key was made, or replaced, from a `DUMP` payload.
    Restored {
        /// The payload.
        payload: &'a [u8],
        /// When the key ends.
        life: Option<u64>,
    },
    /// The key's life was set or taken away.
    Life {
        /// When it ends.
        life: Option<u64>,
    },
    /// The key is gone.
    Deleted {
        /// Why.
        cause: Cause,
    },
    /// The key has another name; a key that had it is gone.
    Renamed {
        /// The new name.
        to: &'a [u8],
    },
    /// The key was copied, with its life; a key that was there is gone.
    Copied {
        /// The copy's database.
        db: usize,
        /// The copy's name.
        to: &'a [u8],
    },
    /// The key moved to another database.
    Moved {
        /// That database.
        db: usize,
    },
    /// All keys are gone: of the database named beside the effect, or of all.
    Flushed {
        /// Of all databases.
        all: bool,
    },
    /// The database named beside the effect and this one changed places.
    Swapped {
        /// The other database.
        with: usize,
    },
}

/// What rings are made with that a command makes by itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Profile {
    /// The settings.
    pub settings: Settings,
    /// Each ring gets a key of its own for its hashes.
    pub keyed: bool,
}

/// Why a key is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A client said so.
    Command,
    /// Its life ended.
    Expired,
    /// Its memory was needed.
    Evicted,
}

/// Hears of every change.
///
/// Effects that belong together, those of a command or of a transaction, are all recorded by one thread and then committed,
/// before the last lock is given back under which they happened. A command that works in steps takes what it recorded with it
/// at the end of each, and commits it as a whole before it gives its key back.
pub trait Journal: Send + Sync {
    /// A change happened to the key `name` of database `db` (for those of whole databases the name is empty). The lock is
    /// held: no key may be touched from here.
    fn record(&self, db: usize, name: &[u8], effect: &Effect<'_>);

    /// What this thread has recorded is complete, and gets its place in the order of all changes. Mostly there is nothing.
    fn commit(&self) {}

    /// What this thread has recorded is not complete yet: take it, to go on later.
    fn suspend(&self, _group: &mut Group) {}

    /// What was suspended is complete.
    fn commit_group(&self, _group: Group) {}

    /// Whether nobody may see a change before it is committed.
    fn is_strict(&self) -> bool {
        false
    }
}

/// Effects that belong together and are not complete yet, as the journal writes them.
#[derive(Debug, Default)]
pub struct Group {
    /// Their records.
    pub records: Vec<u8>,
    /// How many there are.
    pub count: usize,
}

impl Group {
    /// Add what comes after these.
    pub fn append(&mut self, mut others: Self) {
        self.records.append(&mut others.records);
        self.count += others.count;
    }
}
