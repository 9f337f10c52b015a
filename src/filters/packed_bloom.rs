//! A whole chain of small Bloom filters in one slice of bytes.
//!
//! Millions of keys hold a filter of a hundred bytes each; there every pointer and every rounded-up field counts. A packed
//! chain has none: the owner of the bytes keeps them wherever it likes, at any alignment. All integers little-endian:
//!
//! ```text
//! links u8 | options u8 | growth u16                                                  4 bytes
//! per link, oldest first:
//!   error f64 | entries u24 | items u24 | words u16 | hashes u8                      17 bytes
//! the bits of all links, oldest first                                                8 * words each
//! ```
//!
//! What is not stored follows from the rest: a packed link is *canonical*, that is, its bits and hashes are what
//! [`Shape::new`] gives for its entries and rate. Its bits per entry are computed when asked for. Chains of another kind,
//! or with a field that does not fit, are [`ScalableBloom`]s. A `0.01 50` scaling chain takes 4 + 17 + 72 bytes.
//!
//! The writer has the bytes for itself, so adds are plain writes. The types here trust their bytes, which only
//! [`create`] and [`append`] make; foreign bytes lead to wrong answers or a panic on a slice's end, not to worse.

use super::bits::{AllocError, BitArray};
use super::bloom::{self, GrowthError, HashPair, Modulus, Shape, options};
use super::scalable_bloom::{Link, ScalableBloom};
use super::{Insert, LinkInfo};

const HEADER_BYTES: usize = 4;
const LINK_BYTES: usize = 17;
const WORD_BYTES: usize = 8;
const U24_MAX: u64 = (1 << 24) - 1;

// Where the fields of a link begin inside it.
const ENTRIES: usize = 8;
const ITEMS: usize = 11;
const WORDS: usize = 14;
const HASHES: usize = 16;

/// Length of the payload of a chain of these links.
pub fn payload_len<'s>(links: impl IntoIterator<Item = &'s Shape>) -> usize {
    let link = |shape: &Shape| LINK_BYTES.saturating_add(usize::try_from(shape.bytes).unwrap_or(usize::MAX));
    links.into_iter().map(link).fold(HEADER_BYTES, usize::saturating_add)
}

/// Whether a link of this shape, in a chain of this growth, can be packed.
pub fn fits(shape: &Shape, growth: u32) -> bool {
    growth <= u32::from(u16::MAX)
        && shape.entries <= U24_MAX
        && shape.bytes <= u64::from(u16::MAX) * WORD_BYTES as u64
        && shape.hashes <= u32::from(u8::MAX)
        && shape.is_canonical()
}

/// Whether a link's number of items can be packed.
pub fn fits_items(items: u64) -> bool {
    items <= U24_MAX
}

/// Writes a chain of one empty link into `payload`, which has [`payload_len`] bytes of any content.
///
/// The shape and the growth [fit](fits), and `options` are [`options::SCALING`] or [`options::FIXED`].
///
/// # Panics
///
/// If the payload is shorter.
pub fn create(payload: &mut [u8], options: u32, growth: u32, shape: &Shape) {
    debug_assert_eq!(payload.len(), payload_len([shape]));
    create_chain(payload, options, growth, [shape]);
}

/// As [`create`], of several links, oldest first: 1 to 255 of them.
///
/// # Panics
///
/// If the payload is shorter than [`payload_len`] of them.
pub fn create_chain<'s>(payload: &mut [u8], options: u32, growth: u32, links: impl IntoIterator<Item = &'s Shape>) {
    debug_assert!(matches!(options, options::SCALING | options::FIXED));
    payload.fill(0);
    payload[1] = options as u8;
    payload[2..HEADER_BYTES].copy_from_slice(&(growth as u16).to_le_bytes());
    for (shape, link) in links.into_iter().zip(0..) {
        debug_assert!(fits(shape, growth));
        payload[0] += 1;
        write_link(&mut payload[HEADER_BYTES + link * LINK_BYTES..][..LINK_BYTES], shape);
    }
}

/// Writes the chain of `old` with one more, empty, link into `new`, which has [`PackedBloom::appended_len`] bytes of any
/// content.
///
/// # Panics
///
/// If `new` is shorter.
pub fn append(old: &[u8], shape: &Shape, new: &mut [u8]) {
    let chain = PackedBloom::new(old);
    debug_assert_eq!(chain.appended_len(shape), Some(new.len()));
    let links_end = HEADER_BYTES + chain.len() * LINK_BYTES;
    new[..links_end].copy_from_slice(&old[..links_end]);
    new[0] += 1;
    let (link, bits) = new[links_end..].split_at_mut(LINK_BYTES);
    write_link(link, shape);
    let old_bits = &old[links_end..];
    bits[..old_bits.len()].copy_from_slice(old_bits);
    bits[old_bits.len()..].fill(0);
}

/// Writes the fields of an empty link.
fn write_link(link: &mut [u8], shape: &Shape) {
    link[..ENTRIES].copy_from_slice(&shape.error.to_le_bytes());
    write_u24(&mut link[ENTRIES..ITEMS], shape.entries);
    write_u24(&mut link[ITEMS..WORDS], 0);
    let words = shape.bytes / WORD_BYTES as u64;
    link[WORDS..HASHES].copy_from_slice(&(words as u16).to_le_bytes());
    link[HASHES] = shape.hashes as u8;
}

fn write_u24(to: &mut [u8], value: u64) {
    to.copy_from_slice(&value.to_le_bytes()[..3]);
}

fn read_u24(from: &[u8]) -> u64 {
    u64::from(from[0]) | u64::from(from[1]) << 8 | u64::from(from[2]) << 16
}

/// The fields of one link, read where they stand.
#[derive(Clone, Copy)]
struct LinkFields<'a>(&'a [u8]);

impl LinkFields<'_> {
    fn error(self) -> f64 {
        self.0.first_chunk().map_or(0.0, |bytes| f64::from_le_bytes(*bytes))
    }
    fn entries(self) -> u64 {
        read_u24(&self.0[ENTRIES..])
    }
    fn items(self) -> u64 {
        read_u24(&self.0[ITEMS..])
    }
    #[inline]
    fn bytes(self) -> usize {
        usize::from(u16::from_le_bytes([self.0[WORDS], self.0[WORDS + 1]])) * WORD_BYTES
    }
    #[inline]
    fn hashes(self) -> u32 {
        u32::from(self.0[HASHES])
    }
    fn shape(self) -> Shape {
        let (error, bytes) = (self.error(), self.bytes() as u64);
        Shape {
            entries: self.entries(),
            error,
            bits_per_entry: bloom::bits_per_entry(error),
            hashes: self.hashes(),
            bits: bytes * 8,
            bytes,
            log2_bits: 0,
        }
    }
}

/// A packed chain to read.
#[derive(Clone, Copy)]
pub struct PackedBloom<'a> {
    payload: &'a [u8],
}

impl<'a> PackedBloom<'a> {
    /// The chain in `payload`, which [`create`] or [`append`] made and which ends with the chain.
    #[inline]
    pub fn new(payload: &'a [u8]) -> PackedBloom<'a> {
        debug_assert_eq!(PackedBloom { payload }.stored_len(), payload.len());
        PackedBloom { payload }
    }

    /// Length of the chain at the start of `bytes`, which may be followed by others.
    pub fn len_in(bytes: &[u8]) -> usize {
        PackedBloom { payload: bytes }.stored_len()
    }

    fn stored_len(self) -> usize {
        let links = HEADER_BYTES + self.len() * LINK_BYTES;
        links + (0..self.len()).map(|i| self.fields(i).bytes()).sum::<usize>()
    }

    /// The payload itself.
    pub fn payload(self) -> &'a [u8] {
        self.payload
    }

    /// Number of links.
    #[inline]
    #[allow(clippy::len_without_is_empty, reason = "a chain always has a link")]
    pub fn len(self) -> usize {
        usize::from(self.payload[0])
    }

    /// The chain's [`options`].
    pub fn options(self) -> u32 {
        u32::from(self.payload[1])
    }

    /// Factor between the entries of a link and those of the next.
    pub fn growth(self) -> u32 {
        u32::from(u16::from_le_bytes([self.payload[2], self.payload[3]]))
    }

    /// Shape and items of link number `i`, the oldest being 0.
    ///
    /// # Panics
    ///
    /// If there is no such link.
    pub fn link(self, i: usize) -> LinkInfo {
        let fields = self.fields(i);
        LinkInfo { shape: fields.shape(), items: fields.items() }
    }

    /// The bits of link number `i`.
    ///
    /// # Panics
    ///
    /// If there is no such link.
    pub fn link_bits(self, i: usize) -> &'a [u8] {
        let before: usize = (0..i).map(|i| self.fields(i).bytes()).sum();
        let start = HEADER_BYTES + self.len() * LINK_BYTES + before;
        &self.payload[start..start + self.fields(i).bytes()]
    }

    /// Items counted in all links.
    pub fn items(self) -> u64 {
        (0..self.len()).map(|i| self.fields(i).items()).sum()
    }

    /// Whether the item may have been added.
    #[inline]
    pub fn contains(self, pair: HashPair) -> bool {
        // The bits of the newest link end the payload, so the way back needs no sums.
        let mut rest = self.payload;
        (0..self.len()).rev().any(|i| {
            let fields = self.fields(i);
            let bits;
            (rest, bits) = rest.split_at(rest.len() - fields.bytes());
            let mut positions = Modulus::new(bits.len() as u64 * 8).positions(pair, fields.hashes());
            positions.all(|x| bits[(x >> 3) as usize] & (1 << (x & 7)) != 0)
        })
    }

    /// Length of the payload with a link of this shape more, or none if that cannot be packed.
    pub fn appended_len(self, shape: &Shape) -> Option<usize> {
        let fits = self.len() < usize::from(u8::MAX) && fits(shape, self.growth());
        fits.then(|| self.payload.len() + LINK_BYTES + shape.bytes as usize)
    }

    /// The shape of a further link.
    ///
    /// # Errors
    ///
    /// As [`Shape::next`].
    pub fn next_shape(self) -> Result<Shape, GrowthError> {
        self.fields(self.len() - 1).shape().next(self.options(), self.growth())
    }

    /// A copy of the chain with room to grow out of the packed form.
    ///
    /// # Errors
    ///
    /// [`AllocError`] when there is no memory for it.
    pub fn to_scalable(self) -> Result<ScalableBloom, AllocError> {
        let mut links = Vec::new();
        for i in 0..self.len() {
            let LinkInfo { shape, items } = self.link(i);
            let bits = BitArray::zeroed(shape.bytes)?;
            bits.or_bytes(0, self.link_bits(i));
            links.extend(Link::new(shape, items, bits));
        }
        Ok(ScalableBloom::assemble(self.options(), self.growth(), self.items(), links))
    }

    #[inline]
    fn fields(self, i: usize) -> LinkFields<'a> {
        let start = HEADER_BYTES + i * LINK_BYTES;
        LinkFields(&self.payload[start..start + LINK_BYTES])
    }
}

/// A packed chain to write.
pub struct PackedBloomMut<'a> {
    payload: &'a mut [u8],
}

impl<'a> PackedBloomMut<'a> {
    /// The chain in `payload`, which [`create`] or [`append`] made and which ends with the chain.
    #[inline]
    pub fn new(payload: &'a mut [u8]) -> PackedBloomMut<'a> {
        debug_assert_eq!(PackedBloom::len_in(payload), payload.len());
        PackedBloomMut { payload }
    }

    /// The same chain, to read.
    #[inline]
    pub fn as_ref(&self) -> PackedBloom<'_> {
        PackedBloom { payload: self.payload }
    }

    /// Adds the item, unless it is there already or the newest link is full.
    pub fn insert(&mut self, pair: HashPair) -> Insert {
        let chain = self.as_ref();
        if chain.contains(pair) {
            return Insert::Present;
        }
        let newest = chain.len() - 1;
        let fields = chain.fields(newest);
        let (items, bytes, hashes) = (fields.items(), fields.bytes(), fields.hashes());
        if items >= fields.entries() {
            return Insert::refused(chain.options());
        }
        let start = self.payload.len() - bytes;
        let bits = &mut self.payload[start..];
        for x in Modulus::new(bytes as u64 * 8).positions(pair, hashes) {
            bits[(x >> 3) as usize] |= 1 << (x & 7);
        }
        self.set_items(newest, items + 1);
        Insert::Added
    }

    /// Counts the item in link number `i` and sets its bits there, without a question: an add that is done again from a log.
    ///
    /// # Panics
    ///
    /// If there is no such link.
    pub fn count_in(&mut self, i: usize, pair: HashPair) {
        let fields = self.as_ref().fields(i);
        let (items, bytes, hashes) = (fields.items(), fields.bytes(), fields.hashes());
        let bits = self.as_ref().link_bits(i);
        let start = bits.as_ptr().addr() - self.payload.as_ptr().addr();
        let bits = &mut self.payload[start..start + bytes];
        for x in Modulus::new(bytes as u64 * 8).positions(pair, hashes) {
            bits[(x >> 3) as usize] |= 1 << (x & 7);
        }
        self.set_items(i, items + 1);
    }

    /// Sets the number of items of link number `i`, at most 2^24 - 1, as a dump's header does.
    ///
    /// # Panics
    ///
    /// If there is no such link.
    pub fn set_items(&mut self, i: usize, items: u64) {
        debug_assert!(items <= U24_MAX);
        let start = HEADER_BYTES + i * LINK_BYTES + ITEMS;
        write_u24(&mut self.payload[start..start + WORDS - ITEMS], items);
    }

    /// Ors `data` into the bits of link number `i` from byte `offset` on.
    ///
    /// # Panics
    ///
    /// If there is no such link, or the range does not lie inside its bits.
    pub fn or_bytes(&mut self, i: usize, offset: usize, data: &[u8]) {
        let bits = self.as_ref().link_bits(i);
        let (start, len) = (bits.as_ptr().addr() - self.payload.as_ptr().addr(), bits.len());
        let range = &mut self.payload[start..start + len][offset..][..data.len()];
        range.iter_mut().zip(data).for_each(|(bits, data)| *bits |= data);
    }
}
