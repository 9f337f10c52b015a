//! Bits, hashes, probability: what the filters are, and nothing of who asks.
//!
//! A filter here takes hashes of items and returns plain values. It knows no key, reply, clock, file or counter of the
//! server; limits are its owner's.
//!
//! | module | holds |
//! | --- | --- |
//! | [`murmur`] | the hashes of RedisBloom |
//! | [`bits`] | arrays of bits shared by threads |
//! | [`bloom`] | one classic Bloom filter: sizes, positions, the rule of growth |
//! | [`packed_bloom`] | a chain of small ones in one slice of bytes |
//! | [`scalable_bloom`] | a chain of large or unusual ones, shared by threads |
//! | [`frozen`] | arrays as they were at one moment, read while they go on being changed |
//! | [`item_hash`] | the hash of an item, for all that is not RedisBloom's |
//! | [`ring`] | rings of Bloom arrays that forget the oldest items |
//! | [`counting`] | counting Bloom filters, from which items can be removed |
//! | [`dleft`] | d-left counting filters: the same in half the bits |
//!
//! [`BloomRef`] and [`BloomMut`] are a chain in either form.
//!
//! ```
//! use seendb::filters::bloom::{HashPair, Shape, options};
//! use seendb::filters::scalable_bloom::ScalableBloom;
//! use seendb::filters::{BloomRef, Insert};
//!
//! // Room for 1,000 items at 1 %; an item added is found, always.
//! let shape = Shape::first(1000, 0.01, options::SCALING)?;
//! let chain = ScalableBloom::new(options::SCALING, 2, shape)?;
//! let items: Vec<_> = (0..1000).map(|i| HashPair::of(format!("item:{i}").as_bytes())).collect();
//! for &item in &items {
//!     assert!(matches!(chain.insert_shared(item), Insert::Added | Insert::Present));
//! }
//! assert!(items.iter().all(|&item| chain.contains(item)));
//!
//! // One that was not is found once in 200 times: the first link is twice as strict as asked.
//! let found = (0..10_000).filter(|i| chain.contains(HashPair::of(format!("other:{i}").as_bytes()))).count();
//! assert!(found < 100);
//! assert_eq!(BloomRef::Large(&chain).bit_bytes(), 1384);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod batch;
pub mod bits;
pub mod bloom;
mod claim;
pub mod counting;
pub mod dleft;
pub mod frozen;
pub mod item_hash;
pub mod murmur;
pub mod packed_bloom;
pub mod ring;
pub mod scalable_bloom;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod words;

use bloom::{GrowthError, HashPair, Shape, options};

/// The least error rate that filters of other families than RedisBloom's can be asked for.
pub const LEAST_ERROR: f64 = 1e-15;

use packed_bloom::{PackedBloom, PackedBloomMut};
use scalable_bloom::ScalableBloom;

/// Most bytes of the payload of a chain that should be packed. A packed chain is written by one thread at a time and
/// copied when it grows; from here on the other form pays.
pub const PACKED_MAX_BYTES: usize = 64 << 10;

/// What became of an item that was to be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Insert {
    /// It was absent and is counted now.
    Added,
    /// It was there, or a false positive says so; nothing changed.
    Present,
    /// It is absent, and the chain, which does not scale, is full; nothing changed.
    Full,
    /// It is absent, and the newest link is full; nothing changed. Once the chain has a further link, the item can be
    /// added.
    NeedsGrowth,
}

impl Insert {
    /// The answer for an absent item when the newest link of a chain with these options is full.
    fn refused(options: u32) -> Insert {
        if options & options::NON_SCALING != 0 { Insert::Full } else { Insert::NeedsGrowth }
    }
}

/// What one link of a chain is, apart from its bits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkInfo {
    /// Its sizes.
    pub shape: Shape,
    /// Items counted in it.
    pub items: u64,
}

/// A chain of Bloom filters in either form, to read.
#[derive(Clone, Copy)]
pub enum BloomRef<'a> {
    /// All in one slice of bytes.
    Packed(PackedBloom<'a>),
    /// With allocations of its own.
    Large(&'a ScalableBloom),
}

impl<'a> BloomRef<'a> {
    /// Items counted in the chain: equal to the sum over its links, except in damaged old files.
    pub fn items(self) -> u64 {
        match self {
            BloomRef::Packed(chain) => chain.items(),
            BloomRef::Large(chain) => chain.items(),
        }
    }

    /// What the chain's counter has beyond the items of its links, modulo 2^64: not 0 only in damaged old files.
    pub fn surplus(self) -> u64 {
        match self {
            BloomRef::Packed(_) => 0,
            BloomRef::Large(chain) => chain.surplus(),
        }
    }

    /// Sum of the entries of all links; wraps at 2^64 as RedisBloom's does, which only loaded chains can reach.
    pub fn capacity(self) -> u64 {
        self.links().map(|link| link.shape.entries).fold(0, u64::wrapping_add)
    }

    /// The chain's [`options`].
    pub fn options(self) -> u32 {
        match self {
            BloomRef::Packed(chain) => chain.options(),
            BloomRef::Large(chain) => chain.options(),
        }
    }

    /// Factor between the entries of a link and those of the next.
    pub fn growth(self) -> u32 {
        match self {
            BloomRef::Packed(chain) => chain.growth(),
            BloomRef::Large(chain) => chain.growth(),
        }
    }

    /// Number of links, at least 1.
    #[allow(clippy::len_without_is_empty, reason = "a chain always has a link")]
    pub fn len(self) -> usize {
        match self {
            BloomRef::Packed(chain) => chain.len(),
            BloomRef::Large(chain) => chain.links().len(),
        }
    }

    /// Shape and items of link number `i`, the oldest being 0; none beyond the newest.
    pub fn link(self, i: usize) -> Option<LinkInfo> {
        match self {
            BloomRef::Packed(chain) => (i < chain.len()).then(|| chain.link(i)),
            BloomRef::Large(chain) => {
                chain.links().get(i).map(|link| LinkInfo { shape: *link.shape(), items: link.items() })
            }
        }
    }

    /// Shape and items of every link, oldest first.
    pub fn links(self) -> impl Iterator<Item = LinkInfo> + 'a {
        (0..self.len()).filter_map(move |i| self.link(i))
    }

    /// Bytes of the bits of all links.
    pub fn bit_bytes(self) -> u64 {
        self.links().map(|link| link.shape.bytes).fold(0, u64::saturating_add)
    }

    /// The hashes of an item as this chain wants them.
    #[inline]
    pub fn hash(self, item: &[u8]) -> HashPair {
        HashPair::with_options(item, self.options())
    }

    /// Whether the item may have been added.
    #[inline]
    pub fn contains(self, pair: HashPair) -> bool {
        match self {
            BloomRef::Packed(chain) => chain.contains(pair),
            BloomRef::Large(chain) => chain.contains(pair),
        }
    }

    /// Whether each of the items may have been added.
    ///
    /// # Panics
    ///
    /// If the slices differ in length.
    pub fn contains_many(self, pairs: &[HashPair], out: &mut [bool]) {
        assert_eq!(pairs.len(), out.len());
        match self {
            BloomRef::Packed(chain) => pairs.iter().zip(out).for_each(|(&pair, out)| *out = chain.contains(pair)),
            BloomRef::Large(chain) => chain.contains_many(pairs, out),
        }
    }

    /// The shape of the link that a chain that needs growth is to get.
    ///
    /// # Errors
    ///
    /// As [`Shape::next`].
    pub fn next_shape(self) -> Result<Shape, GrowthError> {
        match self {
            BloomRef::Packed(chain) => chain.next_shape(),
            BloomRef::Large(chain) => chain.next_shape(),
        }
    }

    /// Copies the bits of link number `link` from byte `offset` on into `buf`.
    ///
    /// # Panics
    ///
    /// If there is no such link, or the range does not lie inside its bits.
    pub fn copy_bytes(self, link: usize, offset: usize, buf: &mut [u8]) {
        match self {
            BloomRef::Packed(chain) => buf.copy_from_slice(&chain.link_bits(link)[offset..][..buf.len()]),
            BloomRef::Large(chain) => chain.links()[link].bits().copy_bytes(offset, buf),
        }
    }
}

/// A chain of Bloom filters in either form, to write.
pub enum BloomMut<'a> {
    /// All in one slice of bytes.
    Packed(PackedBloomMut<'a>),
    /// With allocations of its own.
    Large(&'a mut ScalableBloom),
}

impl BloomMut<'_> {
    /// The same chain, to read.
    pub fn as_ref(&self) -> BloomRef<'_> {
        match self {
            BloomMut::Packed(chain) => BloomRef::Packed(chain.as_ref()),
            BloomMut::Large(chain) => BloomRef::Large(chain),
        }
    }

    /// Adds the item, unless it is there already or the newest link is full.
    pub fn insert(&mut self, pair: HashPair) -> Insert {
        match self {
            BloomMut::Packed(chain) => chain.insert(pair),
            BloomMut::Large(chain) => chain.insert(pair),
        }
    }

    /// Counts the item in link number `link` and sets its bits there, without a question: an add that is done again from a
    /// log.
    ///
    /// # Panics
    ///
    /// If there is no such link.
    pub fn count_in(&mut self, link: usize, pair: HashPair) {
        match self {
            BloomMut::Packed(chain) => chain.count_in(link, pair),
            BloomMut::Large(chain) => chain.count_in(link, pair),
        }
    }

    /// Ors `data` into the bits of link number `link` from byte `offset` on.
    ///
    /// # Panics
    ///
    /// If there is no such link, or the range does not lie inside its bits.
    pub fn or_bytes(&mut self, link: usize, offset: usize, data: &[u8]) {
        match self {
            BloomMut::Packed(chain) => chain.or_bytes(link, offset, data),
            BloomMut::Large(chain) => chain.or_bytes(link, offset, data),
        }
    }
}
