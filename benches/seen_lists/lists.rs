//! The lists that are compared.

use std::collections::VecDeque;

use seendb::filters::ring::bits::SharedBits;
use seendb::filters::ring::packed::{PackedRing, PackedRingMut, pack, packed_len};
use seendb::filters::ring::shape::ArrayShape;
use seendb::filters::ring::{Event, Mode, Part, Ring, Settings, Store};

/// How it is kept what a user has seen.
#[derive(Clone, Copy, PartialEq)]
pub enum Kind {
    Queue,
    Single,
    Dual,
    Chain,
    SizedChain,
}

/// All kinds, with their names and colours.
pub const KINDS: [(Kind, &str, &str); 5] = [
    (Kind::Queue, "queue of 64-bit ids", "#6b7280"),
    (Kind::Single, "one filter of 500", "#c2410c"),
    (Kind::Dual, "two of 500, second at 300", "#7c3aed"),
    (Kind::Chain, "chain of 5 x 100, 812 bits", "#1f6fb2"),
    (Kind::SizedChain, "CHAIN.RESERVE 0.02 400", "#15803d"),
];

/// What one user has read.
pub enum Seen {
    Queue(VecDeque<u64>),
    /// Arrays of the article's sizes, allocated when they are begun.
    Arrays(Box<Ring>, ArrayShape),
    /// As the server keeps it.
    Packed(Vec<u8>),
}

fn settings(capacity: u64, links: u16, mode: Mode) -> Settings {
    Settings { capacity, error: 0.02, link_error: false, links, mode, idle: None, key: None }
}

fn packed(ring: &Ring) -> Vec<u8> {
    // What an allocator would waste is room to grow.
    let mut payload = vec![0; packed_len(ring).expect("a small ring").next_multiple_of(16)];
    pack(ring, &mut payload);
    payload
}

impl Seen {
    pub fn new(kind: Kind) -> Self {
        let arrays = |settings, capacity, bits| {
            Self::Arrays(Box::new(Ring::new(settings, 1)), ArrayShape { capacity, bits, hashes: 6 })
        };
        match kind {
            Kind::Queue => Self::Queue(VecDeque::new()),
            Kind::Single => arrays(settings(500, 2, Mode::Count), u64::MAX, 4064),
            Kind::Dual => arrays(settings(200, 2, Mode::Dual { threshold: 0.6 }), 500, 4064),
            Kind::Chain => arrays(settings(400, 5, Mode::Count), 100, 812),
            Kind::SizedChain => Self::Packed(packed(&Ring::new(settings(400, 5, Mode::Count), 1))),
        }
    }

    /// Writes an article: whether it was taken for one that was read before.
    pub fn read(&mut self, article: u64) -> bool {
        match self {
            Self::Queue(ids) => {
                let seen = ids.contains(&article);
                if !seen {
                    ids.drain(..ids.len().saturating_sub(499));
                    ids.push_back(article);
                }
                seen
            }
            Self::Arrays(ring, shape) => {
                let seen = !ring.insert(article, Event::default()).expect("memory").unseen;
                for part in ring.parts.iter_mut().filter(|part| part.items <= 1) {
                    give_shape(part, *shape, article);
                }
                seen
            }
            Self::Packed(payload) => match PackedRingMut::new(payload).insert(article, Event::default()) {
                Some(inserted) => !inserted.unseen,
                None => {
                    let mut ring = PackedRing::new(payload).unpack().expect("memory");
                    let inserted = ring.insert(article, Event::default()).expect("memory");
                    *payload = packed(&ring);
                    !inserted.unseen
                }
            },
        }
    }

    /// Writes an article that is known to be new.
    pub fn read_new(&mut self, article: u64) {
        match self {
            Self::Queue(ids) => {
                ids.drain(..ids.len().saturating_sub(499));
                ids.push_back(article);
            }
            _ => _ = self.read(article),
        }
    }

    pub fn contains(&self, article: u64) -> bool {
        match self {
            Self::Queue(ids) => ids.contains(&article),
            Self::Arrays(ring, _) => ring.contains(article, 0),
            Self::Packed(payload) => PackedRing::new(payload).contains(article, 0),
        }
    }

    /// The same, but the link that is written is left out, as the article says.
    pub fn contains_literally(&self, article: u64) -> bool {
        let Self::Arrays(ring, _) = self else { return self.contains(article) };
        ring.alive(0).skip(1).any(|part| part.contains(article))
    }

    /// So many of the newest articles are remembered.
    pub fn history(&self) -> usize {
        match self {
            Self::Queue(ids) => ids.len(),
            Self::Arrays(ring, _) => ring.items(0) as usize,
            Self::Packed(payload) => PackedRing::new(payload).items(0) as usize,
        }
    }

    /// Bits of ids or arrays; of the packed form all that it takes.
    pub fn bits(&self) -> usize {
        match self {
            Self::Queue(ids) => ids.len() * 64,
            Self::Arrays(ring, shape) => ring.parts.len() * shape.bits as usize,
            Self::Packed(payload) => payload.len() * 8,
        }
    }
}

/// A new array gets the article's size and is bits from the beginning.
fn give_shape(part: &mut Part, shape: ArrayShape, article: u64) {
    let known = part.items == 1 && part.contains(article);
    if part.items > 0 && !known || part.shape == shape {
        return;
    }
    let bits = SharedBits::zeroed(shape.bits).expect("memory");
    *part = Part { store: Store::Bits(bits), ..Part::new(0, 0, shape) };
    if known {
        part.insert(article).expect("memory");
    }
}
