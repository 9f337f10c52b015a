//! One array of a ring: a link, or one of the arrays of a slice.

use super::bits::{SharedBits, begin_small};
use super::shape::ArrayShape;
use crate::filters::bits::AllocError;
use crate::filters::item_hash::positions;

/// A list of more hashes is not kept, however large the array would be: an insert moves what comes behind it.
const MOST_LISTED: u64 = 4096;
/// Items of one part are not counted further; the sum over all parts fits a signed integer.
pub const MOST_ITEMS: u64 = (1 << 47) - 1;
const HASH_BYTES: u64 = size_of::<u64>() as u64;

/// How many hashes an array of this shape can be, as long as a list of them is smaller than its bits.
#[must_use]
pub fn most_listed(shape: &ArrayShape) -> u64 {
    (shape.bytes().saturating_sub(1) / HASH_BYTES).min(MOST_LISTED)
}

/// A list of so many hashes becomes bits with the next one: of a large array soon, because all of them are written anew at once.
fn listed_until(shape: &ArrayShape) -> u64 {
    const LARGE_ARRAYS: u64 = 64;
    let most = if begin_small(shape.bytes()) { LARGE_ARRAYS } else { u64::MAX };
    most_listed(shape).min(most)
}

/// One array.
#[derive(Clone, Debug)]
pub struct Part {
    /// The slice of time that it belongs to; 0 without a window.
    pub slice: u64,
    /// Which array of its slice it is.
    pub growth: u8,
    /// Its size.
    pub shape: ArrayShape,
    /// Items written to it.
    pub items: u64,
    /// What it holds of them.
    pub store: Store,
}

/// What an array holds.
#[derive(Clone, Debug)]
pub enum Store {
    /// The hashes of its items, in ascending order, while that is smaller than the bits.
    List(Vec<u64>),
    /// Bits.
    Bits(SharedBits),
}

impl Part {
    /// An array that holds nothing.
    #[must_use]
    pub fn new(slice: u64, growth: u8, shape: ArrayShape) -> Self {
        Self { slice, growth, shape, items: 0, store: Store::List(Vec::new()) }
    }

    /// Whether it is made for no more items than it has.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.items >= self.shape.capacity
    }

    /// Whether an item with this hash was written to it, or looks like it.
    #[must_use]
    pub fn contains(&self, hash: u64) -> bool {
        match &self.store {
            Store::List(hashes) => hashes.binary_search(&hash).is_ok(),
            Store::Bits(bits) => self.positions(hash).all(|position| bits.get(position)),
        }
    }

    fn positions(&self, hash: u64) -> impl Iterator<Item = u64> + use<> {
        positions(hash, self.shape.bits, self.shape.hashes)
    }

    /// Write an item to it.
    ///
    /// # Errors
    /// [`AllocError`] when there is no memory; it holds what it held then.
    pub fn insert(&mut self, hash: u64) -> Result<(), AllocError> {
        self.add(hash)?;
        self.items = (self.items + 1).min(MOST_ITEMS);
        Ok(())
    }

    /// Have the memory that an insert of this item takes, so that it cannot fail. A full list becomes bits.
    ///
    /// # Errors
    /// [`AllocError`] when there is none; it is as it was then.
    pub fn reserve(&mut self, hash: u64) -> Result<(), AllocError> {
        let positions = self.positions(hash);
        match &mut self.store {
            Store::List(hashes) if (hashes.len() as u64) < listed_until(&self.shape) => {
                hashes.try_reserve(1).map_err(|_| AllocError { bytes: HASH_BYTES * hashes.len() as u64 })
            }
            Store::List(hashes) if hashes.binary_search(&hash).is_ok() => Ok(()),
            Store::List(_) => {
                let mut bits = self.listed_bits()?;
                bits.reserve(positions)?;
                self.store = Store::Bits(bits);
                Ok(())
            }
            Store::Bits(bits) => bits.reserve(positions),
        }
    }

    /// Hold an item, without counting it.
    fn add(&mut self, hash: u64) -> Result<(), AllocError> {
        self.reserve(hash)?;
        let mut positions = self.positions(hash);
        match &mut self.store {
            Store::List(hashes) => {
                if let Err(place) = hashes.binary_search(&hash) {
                    hashes.insert(place, hash);
                }
                Ok(())
            }
            Store::Bits(bits) => positions.try_for_each(|position| bits.set(position)),
        }
    }

    /// The bits that its list stands for.
    fn listed_bits(&self) -> Result<SharedBits, AllocError> {
        let mut bits = SharedBits::zeroed(self.shape.bits)?;
        if let Store::List(hashes) = &self.store {
            let mut all = hashes.iter().flat_map(|hash| self.positions(*hash));
            all.try_for_each(|position| bits.set(position))?;
        }
        Ok(bits)
    }

    /// A measure of what it holds, which only grows: bits that are set, or hashes.
    fn held(&self) -> (bool, u64) {
        match &self.store {
            Store::List(hashes) => (true, hashes.len() as u64),
            Store::Bits(bits) => (false, bits.count_ones()),
        }
    }

    /// How many different items it holds: exactly while it is a list, else about as many as set this many bits.
    #[must_use]
    pub fn items_estimated(&self) -> u64 {
        match &self.store {
            Store::List(hashes) => hashes.len() as u64,
            Store::Bits(_) => {
                let (bits, fill) = (self.shape.bits as f64, self.fill());
                (-bits / f64::from(self.shape.hashes) * (-fill).ln_1p()).min(u64::MAX as f64).round() as u64
            }
        }
    }

    /// The share of its bits that are set, or would be.
    #[must_use]
    pub fn fill(&self) -> f64 {
        match &self.store {
            Store::List(hashes) if hashes.is_empty() => 0.0,
            Store::List(hashes) => {
                let throws = hashes.len() as f64 * f64::from(self.shape.hashes);
                -(throws * (-1.0 / self.shape.bits as f64).ln_1p()).exp_m1()
            }
            Store::Bits(bits) => bits.count_ones() as f64 / self.shape.bits as f64,
        }
    }

    /// The share of items never written to it that it says yes to now.
    #[must_use]
    pub fn error_now(&self) -> f64 {
        match &self.store {
            Store::List(_) => 0.0,
            Store::Bits(_) => self.fill().powi(self.shape.hashes as i32),
        }
    }

    /// Bytes of the heap beside the part itself, each allocation counted as `size_class` says.
    #[must_use]
    pub fn heap_bytes(&self, size_class: fn(usize) -> usize) -> usize {
        match &self.store {
            Store::List(hashes) if hashes.capacity() == 0 => 0,
            Store::List(hashes) => size_class(hashes.capacity() * size_of::<u64>()),
            Store::Bits(bits) => bits.heap_bytes(size_class),
        }
    }
}

/// An array on the way to hold all that another one of its shape holds too.
#[derive(Debug)]
pub struct Join {
    joined: Part,
    /// What is taken in.
    from: Part,
    /// So many pieces of it, or hashes, were.
    taken: usize,
    /// What both were before: items, and a measure of what they hold.
    before: [(u64, (bool, u64)); 2],
}

impl Join {
    /// Two arrays, of which nothing is joined yet. The result stands where the first one stood.
    #[must_use]
    pub fn new(own: Part, other: Part) -> Self {
        let before = [&own, &other].map(|part| (part.items, part.held()));
        let (slice, growth) = (own.slice, own.growth);
        let (joined, from) = match (&own.store, &other.store) {
            (Store::List(_), Store::Bits(_)) => (other, own),
            _ => (own, other),
        };
        Self { joined: Part { slice, growth, ..joined }, from, taken: 0, before }
    }

    /// Take in some more: so much as takes about a tenth of a millisecond. Tells whether that was all.
    ///
    /// # Errors
    /// [`AllocError`] when there is no memory; the join is of no use then.
    pub fn step(&mut self) -> Result<bool, AllocError> {
        // Each hash can take as many pieces as it has positions.
        const HASHES: usize = 8;
        const PIECES: usize = 16;
        let (most, all) = match &self.from.store {
            Store::List(hashes) => (HASHES, hashes.len()),
            Store::Bits(more) => (PIECES, more.pieces()),
        };
        let next = self.taken..(self.taken + most).min(all);
        self.taken = next.end;
        match (&mut self.joined.store, &self.from.store) {
            (Store::Bits(bits), Store::Bits(more)) => bits.or_pieces(more, next)?,
            (_, Store::List(hashes)) => hashes[next].iter().try_for_each(|hash| self.joined.add(*hash))?,
            // What is taken in is bits only if both are.
            (Store::List(_), Store::Bits(_)) => {}
        }
        Ok(self.taken == all)
    }

    /// What they have become once that is all.
    #[must_use]
    pub fn into_part(self) -> Part {
        let Self { mut joined, before, .. } = self;
        let held = joined.held();
        let [(own, _), (other, _)] = before;
        // One that gives nothing new is not counted again.
        let items = if before.iter().any(|(_, before)| *before == held) { 0 } else { joined.items_estimated() };
        joined.items = items.clamp(own.max(other), own.saturating_add(other)).min(MOST_ITEMS);
        joined
    }

    /// So many items had the two: first the one that the result takes the place of.
    #[must_use]
    pub fn items_before(&self) -> [u64; 2] {
        self.before.map(|(items, _)| items)
    }
}
