//! A chain of Bloom filters that grows: large chains, and those of an unusual kind.
//!
//! **Model.** A chain is a list of links, each a classic filter ([`bloom`](super::bloom)). An item is asked for in all links,
//! newest first, and added to the newest only; older links are never written again. When the newest holds as many items as
//! it was made for, the next new item asks for a further link with `growth` times the entries at half the rate.
//!
//! **Rate.** The first link of a scaling chain has half the rate asked for, `e/2`, the next `e/4`, and so on. The rate of
//! the chain is at most their sum, which stays below `e` however often it grows. The price is a hash more in each link.
//! Measured at `e` = 0.01 with ten links: 0.01004, nominally over by what double hashing adds.
//!
//! **Threads.** Everything takes `&self` but growth, so threads ask and add side by side while the owner keeps growth apart.
//! An item that several threads add at once is new to one of them only:
//!
//! 1. all links are tested without lock: the common case of a known item ends here;
//! 2. an absent item takes one of 64 locks, chosen by its hash: equal items meet, others seldom do;
//! 3. under it `claim` tests the newest link again (no other can have changed), reserves a place, sets bits.
//!
//! Setting bits atomically and calling the item new if one of them was not set told two threads "new" for 23 % of equal items.
//!
//! **Limits.** How many links there may be and how large they may get is the owner's business: [`next_shape`] names what is
//! wanted, [`push_link`] makes it.
//!
//! Reference: P. S. Almeida et al., "Scalable Bloom Filters", IPL 101 (2007), there with a slice of bits for each hash;
//! RedisBloom lets all hashes share the bits.
//!
//! [`next_shape`]: ScalableBloom::next_shape
//! [`push_link`]: ScalableBloom::push_link

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use super::batch;
use super::bits::{AllocError, BitArray, mask_of, word_of};
use super::bloom::{GrowthError, HashPair, Modulus, Positions, Shape};
use super::claim::{Claim, all_set, claim, seen_present};
use super::frozen::Frozen;
use super::{Insert, LinkInfo};

/// Chains with at least so many bytes of bits have [`STRIPES`] locks, smaller ones a single one.
const STRIPED_FROM_BYTES: u64 = 64 << 10;
/// A power of two.
const STRIPES: usize = 64;

/// A lock on a cache line of its own: threads that take different ones do not disturb each other.
#[derive(Default)]
#[repr(align(64))]
struct Stripe(Mutex<()>);

/// One filter of a chain, with its bits.
#[derive(Debug)]
pub struct Link {
    shape: Shape,
    modulus: Modulus,
    bits: BitArray,
    items: Counter,
}

/// The items of a link, away from what readers need: every add writes this line.
#[derive(Debug)]
#[repr(align(64))]
struct Counter(AtomicU64);

impl Link {
    /// A link of these parts; none if the shape is not [sound](Shape::is_sound) or `bits` has another size.
    pub fn new(shape: Shape, items: u64, bits: BitArray) -> Option<Link> {
        let whole = shape.is_sound() && bits.len() as u64 == shape.bytes;
        whole.then(|| Link { shape, modulus: shape.modulus(), bits, items: Counter(AtomicU64::new(items)) })
    }

    /// Its shape.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Items counted in it. More than its entries only if it was loaded so.
    pub fn items(&self) -> u64 {
        self.items.0.load(Ordering::Relaxed)
    }

    /// Its bits.
    #[inline(always)]
    pub fn bits(&self) -> &BitArray {
        &self.bits
    }

    #[inline(always)]
    pub(super) fn modulus(&self) -> Modulus {
        self.modulus
    }

    #[inline(always)]
    pub(super) fn positions(&self, pair: HashPair) -> Positions {
        self.modulus.positions(pair, self.shape.hashes)
    }

    #[inline(always)]
    fn holds(&self, pair: HashPair) -> bool {
        all_set(self.bits.words(), self.positions(pair))
    }
}

/// A chain of Bloom filters; see the [module](self).
pub struct ScalableBloom {
    options: u32,
    growth: u32,
    /// See [`surplus`](ScalableBloom::surplus).
    surplus: u64,
    /// Oldest first, never empty.
    links: Vec<Link>,
    stripes: Box<[Stripe]>,
    past: Past,
}

/// What is kept of a former state that is being read.
#[derive(Default)]
struct Past {
    /// The number of the latest moment at which the state was frozen, or the chain made.
    moment: AtomicU64,
    /// Whether changes have to be noted.
    is_read: AtomicBool,
    frozen: Mutex<Option<Arc<Frozen>>>,
}

impl ScalableBloom {
    /// A chain of one empty link.
    ///
    /// # Errors
    ///
    /// [`AllocError`] when there is no memory for it.
    pub fn new(options: u32, growth: u32, shape: Shape) -> Result<ScalableBloom, AllocError> {
        Ok(ScalableBloom::assemble(options, growth, 0, vec![new_link(shape)?]))
    }

    /// A chain of loaded links, oldest first, whose counter says `items`; none if there is no link.
    pub fn from_links(options: u32, growth: u32, items: u64, links: Vec<Link>) -> Option<ScalableBloom> {
        (!links.is_empty()).then(|| ScalableBloom::assemble(options, growth, items, links))
    }

    /// As [`from_links`](Self::from_links), of at least one link.
    pub(super) fn assemble(options: u32, growth: u32, items: u64, links: Vec<Link>) -> ScalableBloom {
        let counted = links.iter().map(Link::items).fold(0, u64::wrapping_add);
        let stripes = stripes_for(bit_bytes(&links));
        ScalableBloom { options, growth, surplus: items.wrapping_sub(counted), links, stripes, past: Past::default() }
    }

    /// The number of the latest moment for which the chain was frozen, or since which it exists; see [`freeze`](Self::freeze).
    pub fn moment(&self) -> u64 {
        self.past.moment.load(Ordering::Acquire)
    }

    /// The chain did not exist at this moment, or what it was then is known.
    pub fn set_moment(&self, moment: u64) {
        self.past.moment.store(moment, Ordering::Release);
    }

    /// Keep the state as it is now for a reader: it is the state of this moment, the latest of increasing numbers. Whoever calls
    /// it first gets it; who is about to change the chain calls it before, then waits for no reader.
    pub fn freeze(&self, moment: u64) -> Option<Arc<Frozen>> {
        let mut frozen = self.past.frozen.lock();
        if self.moment() >= moment {
            return None;
        }
        let bits = self.links.iter().map(|link| link.bits.share()).collect();
        let now = Frozen::new(self.options, self.growth, self.items(), self.link_infos().collect(), bits);
        let now = Arc::new(now);
        *frozen = Some(now.clone());
        self.past.is_read.store(true, Ordering::Release);
        self.set_moment(moment);
        Some(now)
    }

    /// The former state that is being read, if there is one.
    fn frozen(&self) -> Option<Arc<Frozen>> {
        if !self.past.is_read.load(Ordering::Acquire) {
            return None;
        }
        let mut frozen = self.past.frozen.lock();
        if frozen.as_ref().is_some_and(|frozen| frozen.is_over()) {
            *frozen = None;
            self.past.is_read.store(false, Ordering::Release);
        }
        frozen.clone()
    }

    /// A copy of the chain as it is, not to be written meanwhile.
    ///
    /// # Errors
    ///
    /// [`AllocError`] when there is no memory for it.
    pub fn try_clone(&self) -> Result<ScalableBloom, AllocError> {
        let mut links = Vec::new();
        for link in &self.links {
            let mut bits = BitArray::zeroed(link.shape.bytes)?;
            for (to, from) in bits.words_mut().iter_mut().zip(link.bits.words()) {
                match from.load(Ordering::Relaxed) {
                    // An untouched page stays untouched.
                    0 => {}
                    word => *to = word,
                }
            }
            links.extend(Link::new(link.shape, link.items(), bits));
        }
        Ok(ScalableBloom::assemble(self.options, self.growth, self.items(), links))
    }

    /// The chain's [`options`](super::bloom::options).
    pub fn options(&self) -> u32 {
        self.options
    }

    /// Factor between the entries of a link and those of the next.
    pub fn growth(&self) -> u32 {
        self.growth
    }

    /// The links, oldest first; there is at least one.
    pub fn links(&self) -> &[Link] {
        &self.links
    }

    /// Shape and items of every link, oldest first.
    pub fn link_infos(&self) -> impl Iterator<Item = LinkInfo> {
        self.links.iter().map(|link| LinkInfo { shape: link.shape, items: link.items() })
    }

    /// Items counted in the chain.
    pub fn items(&self) -> u64 {
        self.links.iter().map(Link::items).fold(self.surplus, u64::wrapping_add)
    }

    /// Bytes of the heap that the chain holds, without the size of this struct. `given` tells what the allocator gives out for
    /// a number of bytes.
    pub fn heap_bytes(&self, given: impl Fn(usize) -> usize) -> usize {
        let arrays = self.links.iter().map(|link| &link.bits).filter(|bits| !bits.is_mapped());
        let bits: usize = arrays.map(|bits| given(bits.allocated_bytes())).sum();
        let handles = self.links.len() * given(BitArray::HANDLE_BYTES);
        bits + handles + given(self.links.capacity() * size_of::<Link>()) + given(size_of_val(&*self.stripes))
    }

    /// Bytes of memory mappings that the chain holds.
    pub fn mapped_bytes(&self) -> usize {
        self.links.iter().map(|link| &link.bits).filter(|bits| bits.is_mapped()).map(BitArray::allocated_bytes).sum()
    }

    /// What the chain's counter has beyond the items of its links, modulo 2^64: not 0 only in damaged old files.
    pub fn surplus(&self) -> u64 {
        self.surplus
    }

    fn newest(&self) -> &Link {
        &self.links[self.links.len() - 1]
    }

    /// Whether the item may have been added.
    #[inline]
    pub fn contains(&self, pair: HashPair) -> bool {
        let found = self.links.iter().rev().any(|link| link.holds(pair));
        if found {
            seen_present::<AtomicU64>();
        }
        found
    }

    /// Whether each of the items may have been added; much quicker than one by one where the bits are not in the cache.
    ///
    /// # Panics
    ///
    /// If the slices differ in length.
    pub fn contains_many(&self, pairs: &[HashPair], out: &mut [bool]) {
        assert_eq!(pairs.len(), out.len());
        batch::contains(&self.links, pairs, out);
    }

    /// Adds the item, unless it is there already or the newest link is full. For an owner that shares the chain with
    /// nobody; [`insert_shared`](Self::insert_shared) gives the same answer.
    pub fn insert(&mut self, pair: HashPair) -> Insert {
        if self.contains(pair) {
            return Insert::Present;
        }
        let newest = self.links.len() - 1;
        if self.links[newest].items() >= self.links[newest].shape.entries {
            return Insert::refused(self.options);
        }
        self.count_in(newest, pair);
        Insert::Added
    }

    /// Counts the item in link number `i` and sets its bits there, without a question: an add that is done again from a log.
    ///
    /// # Panics
    ///
    /// If there is no such link.
    pub fn count_in(&mut self, i: usize, pair: HashPair) {
        *self.links[i].items.0.get_mut() += 1;
        let frozen = self.frozen();
        let mut changes = frozen.as_deref().map(|frozen| frozen.changes());
        let link = &self.links[i];
        for x in link.positions(pair) {
            let word = &link.bits.words()[word_of(x)];
            let old = word.load(Ordering::Relaxed);
            if let Some(changes) = &mut changes
                && old & mask_of(x) == 0
            {
                changes.note(i, word_of(x), old);
            }
            // A plain read and a plain write: nobody else writes.
            word.store(old | mask_of(x), Ordering::Relaxed);
        }
    }

    /// Ors `data` into the bits of link number `i` from byte `offset` on.
    ///
    /// # Panics
    ///
    /// If there is no such link, or the range does not lie inside its bits.
    pub fn or_bytes(&mut self, i: usize, offset: usize, data: &[u8]) {
        let bits = &self.links[i].bits;
        if let Some(frozen) = self.frozen() {
            let mut changes = frozen.changes();
            let words = offset / size_of::<u64>()..(offset + data.len()).div_ceil(size_of::<u64>());
            words.for_each(|word| changes.note(i, word, bits.words()[word].load(Ordering::Relaxed)));
            return bits.or_bytes(offset, data);
        }
        bits.or_bytes(offset, data);
    }

    /// Adds the item while other threads ask and add. Of several threads that add one item at once, one is told
    /// [`Insert::Added`], the others [`Insert::Present`].
    pub fn insert_shared(&self, pair: HashPair) -> Insert {
        if self.contains(pair) { Insert::Present } else { self.claim(pair, self.frozen().as_deref()) }
    }

    /// [`insert_shared`](Self::insert_shared) for items in order, quicker than one by one. Stops at the first that is
    /// refused and returns how many were not: `out[..n]` are [`Added`](Insert::Added) or [`Present`](Insert::Present); if `n`
    /// is less than the number of items, `out[n]` says why and what follows is left as it was.
    ///
    /// # Panics
    ///
    /// If the slices differ in length.
    pub fn insert_shared_many(&self, pairs: &[HashPair], out: &mut [Insert]) -> usize {
        assert_eq!(pairs.len(), out.len());
        let mut done = 0;
        // Nobody freezes a chain that is being added to and was not frozen before.
        let frozen = self.frozen();
        for (pairs, out) in pairs.chunks(batch::GROUP).zip(out.chunks_mut(batch::GROUP)) {
            let mut present = [false; batch::GROUP];
            batch::contains(&self.links, pairs, &mut present[..pairs.len()]);
            batch::prefetch_absent(self.newest(), pairs, &present);
            for ((&pair, out), present) in pairs.iter().zip(out).zip(present) {
                *out = if present { Insert::Present } else { self.claim(pair, frozen.as_deref()) };
                if !matches!(out, Insert::Added | Insert::Present) {
                    return done;
                }
                done += 1;
            }
        }
        done
    }

    /// Adds an item that was absent a moment ago, under the lock of its stripe.
    fn claim(&self, pair: HashPair, frozen: Option<&Frozen>) -> Insert {
        // The low bits: legacy hashes have no others.
        let stripe = pair.b as usize & (self.stripes.len() - 1);
        let _guard = self.stripes[stripe].0.lock();
        let link = self.newest();
        let words = link.bits.words();
        let claimed = match frozen {
            None => claim(words, &link.items.0, link.shape.entries, link.positions(pair)),
            Some(frozen) => {
                let (mut changes, newest) = (frozen.changes(), self.links.len() - 1);
                // As long as this holds the changes, nobody else writes to the words.
                for x in link.positions(pair) {
                    let old = words[word_of(x)].load(Ordering::Relaxed);
                    if old & mask_of(x) == 0 {
                        changes.note(newest, word_of(x), old);
                    }
                }
                claim(words, &link.items.0, link.shape.entries, link.positions(pair))
            }
        };
        match claimed {
            Claim::Added => Insert::Added,
            Claim::Present => Insert::Present,
            Claim::NoPlace => Insert::refused(self.options),
        }
    }

    /// The shape of the link that a chain that needs growth is to get.
    ///
    /// # Errors
    ///
    /// As [`Shape::next`].
    pub fn next_shape(&self) -> Result<Shape, GrowthError> {
        self.newest().shape.next(self.options, self.growth)
    }

    /// Gives the chain a further, empty link of a shape from [`next_shape`](Self::next_shape).
    ///
    /// # Errors
    ///
    /// [`AllocError`] when there is no memory for it; the chain is as it was then.
    pub fn push_link(&mut self, shape: Shape) -> Result<(), AllocError> {
        let link = new_link(shape)?;
        let refused = AllocError { bytes: size_of::<Link>() as u64 };
        self.links.try_reserve_exact(1).map_err(|_| refused)?;
        self.links.push(link);
        let bytes = bit_bytes(&self.links);
        if self.stripes.len() < STRIPES && bytes >= STRIPED_FROM_BYTES {
            self.stripes = stripes_for(bytes);
        }
        Ok(())
    }
}

impl std::fmt::Debug for ScalableBloom {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut fields = f.debug_struct("ScalableBloom");
        fields.field("options", &self.options).field("growth", &self.growth).field("items", &self.items());
        fields.field("links", &self.links).finish_non_exhaustive()
    }
}

fn new_link(shape: Shape) -> Result<Link, AllocError> {
    let bits = BitArray::zeroed(shape.bytes)?;
    Link::new(shape, 0, bits).ok_or(AllocError { bytes: shape.bytes })
}

fn bit_bytes(links: &[Link]) -> u64 {
    links.iter().map(|link| link.shape.bytes).fold(0, u64::saturating_add)
}

fn stripes_for(bit_bytes: u64) -> Box<[Stripe]> {
    let stripes = if bit_bytes < STRIPED_FROM_BYTES { 1 } else { STRIPES };
    std::iter::repeat_with(Stripe::default).take(stripes).collect()
}
