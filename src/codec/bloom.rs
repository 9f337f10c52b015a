//! The bytes of `BF.SCANDUMP` and `BF.LOADCHUNK`: a header, then the bits of the chain in chunks.
//!
//! **Header**, all integers little-endian, doubles as their IEEE bits:
//!
//! | offset | size | field |
//! | --- | --- | --- |
//! | 0 | 8 | items of the chain |
//! | 8 | 4 | number of links |
//! | 12 | 4 | options |
//! | 16 | 4 | growth |
//! | 20 | 53 a link | links, oldest first |
//!
//! | offset in link | size | field |
//! | --- | --- | --- |
//! | 0 | 8 | bytes |
//! | 8 | 8 | bits |
//! | 16 | 8 | items |
//! | 24 | 8 | error rate |
//! | 32 | 8 | bits per entry |
//! | 40 | 4 | hashes |
//! | 44 | 8 | entries |
//! | 52 | 1 | log2 of the modulus, 0 where it is the number of bits |
//!
//! **Iterator.** The bit arrays of all links lie end to end, byte 0 at iterator 1. A dump called with iterator `p` returns the
//! bytes from `p - 1` on, to the end of that link or [`CHUNK_BYTES`], and the iterator `p + length`. A load is given the
//! iterator that came *with* the bytes, so they go to `p - length - 1`.

use crate::filters::bits::{AllocError, BitArray};
use crate::filters::bloom::{self, Shape, options};
use crate::filters::packed_bloom::{self, PackedBloomMut};
use crate::filters::scalable_bloom::{Link, ScalableBloom};
use crate::filters::{BloomRef, LinkInfo, PACKED_MAX_BYTES};

/// Most bytes of bits in one chunk of a dump.
pub const CHUNK_BYTES: u64 = 16 << 20;
/// Most links of a chain that RedisBloom can have made: the rate halves from link to link and is never 0.
pub const MAX_LINKS: usize = 1075;
const HEADER_BYTES: usize = 20;
const LINK_BYTES: usize = 53;

/// The header of a dump of `bloom`.
pub fn encode_header(bloom: BloomRef) -> Vec<u8> {
    let links = bloom.len();
    let mut header = Vec::with_capacity(HEADER_BYTES + links * LINK_BYTES);
    let mut items = 0u64;
    // The counts of links may move while they are written; the chain's must be the sum of those that were.
    header.extend_from_slice(&[0; 8]);
    header.extend_from_slice(&(links as u32).to_le_bytes());
    header.extend_from_slice(&bloom.options().to_le_bytes());
    header.extend_from_slice(&bloom.growth().to_le_bytes());
    for LinkInfo { shape, items: in_link } in bloom.links() {
        items = items.wrapping_add(in_link);
        for field in [shape.bytes, shape.bits, in_link, shape.error.to_bits(), shape.bits_per_entry.to_bits()] {
            header.extend_from_slice(&field.to_le_bytes());
        }
        header.extend_from_slice(&shape.hashes.to_le_bytes());
        header.extend_from_slice(&shape.entries.to_le_bytes());
        header.push(shape.log2_bits);
    }
    header[..8].copy_from_slice(&items.to_le_bytes());
    header
}

/// A chain made from a header: counts as the header says, all bits 0.
#[derive(Debug)]
pub enum Decoded {
    /// A payload for [`PackedBloom`](crate::filters::packed_bloom::PackedBloom).
    Packed(Vec<u8>),
    /// A chain that is large or cannot be packed.
    Large(ScalableBloom),
}

/// A header was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// Its length is not that of a header of 1 to [`MAX_LINKS`] links.
    #[error("the header's length does not fit its number of links")]
    Length,
    /// An option is set that has no meaning.
    #[error("the header has unknown options")]
    Options,
    /// The items of the links do not add up to those of the chain.
    #[error("the items of the sub-filters do not add up")]
    Items,
    /// A link cannot be: its rate is not between 0 and 1, or its sizes contradict each other.
    #[error("sub-filter {0} of the header is not sound")]
    Link(usize),
    /// The chain would hold more bytes than the caller allows.
    #[error("the filter would hold {bytes} bytes")]
    Limit {
        /// What it would hold.
        bytes: u64,
    },
    /// There is no memory for the bits.
    #[error(transparent)]
    Memory(#[from] AllocError),
}

/// A header that was read and found sound.
#[derive(Debug)]
pub struct Header {
    links: Vec<LinkInfo>,
    options: u32,
    growth: u32,
    bit_bytes: u64,
}

/// The chain that a header describes, with all bits 0, if it holds at most `limit_bytes`.
///
/// # Errors
///
/// [`HeaderError`]; no memory is held then.
pub fn decode_header(header: &[u8], limit_bytes: u64) -> Result<Decoded, HeaderError> {
    Header::read(header, limit_bytes)?.build()
}

impl Header {
    /// Read a header whose chain holds at most `limit_bytes`.
    ///
    /// # Errors
    ///
    /// [`HeaderError`].
    pub fn read(header: &[u8], limit_bytes: u64) -> Result<Self, HeaderError> {
        let (chain, links) = header.split_first_chunk::<HEADER_BYTES>().ok_or(HeaderError::Length)?;
        let mut chain = Fields(chain);
        let (items, count, options, growth) = (chain.u64(), chain.u32(), chain.u32(), chain.u32());
        let (links, rest) = links.as_chunks::<LINK_BYTES>();
        if !rest.is_empty() || links.len() as u64 != u64::from(count) || !(1..=MAX_LINKS).contains(&links.len()) {
            return Err(HeaderError::Length);
        }
        if options & !options::MASK != 0 {
            return Err(HeaderError::Options);
        }
        let infos = links.iter().enumerate().map(|(i, link)| decode_link(link).ok_or(HeaderError::Link(i)));
        let infos = infos.collect::<Result<Vec<_>, _>>()?;
        if infos.iter().try_fold(0u64, |sum, link| sum.checked_add(link.items)) != Some(items) {
            return Err(HeaderError::Items);
        }
        let held = infos.iter().map(|link| link.shape.bytes).fold(0, u64::saturating_add);
        if held > limit_bytes {
            // Filters have about as many bits as their entries need, old ones the next power of two.
            let plausible = |link: &LinkInfo| {
                link.shape.bits as f64 <= 2.1 * link.shape.entries as f64 * link.shape.bits_per_entry + 1024.0
            };
            if let Some(at) = infos.iter().position(|link| !plausible(link)) {
                return Err(HeaderError::Link(at));
            }
            return Err(HeaderError::Limit { bytes: held });
        }
        Ok(Self { links: infos, options, growth, bit_bytes: held })
    }

    /// Bytes of bits that the chain will hold.
    #[must_use]
    pub fn bit_bytes(&self) -> u64 {
        self.bit_bytes
    }

    /// The chain, with all bits 0.
    ///
    /// # Errors
    ///
    /// [`HeaderError::Memory`]; no memory is held then.
    pub fn build(&self) -> Result<Decoded, HeaderError> {
        match pack(&self.links, self.options, self.growth) {
            Some(payload) => Ok(Decoded::Packed(payload)),
            None => Ok(Decoded::Large(build(&self.links, self.options, self.growth)?)),
        }
    }
}

/// One link of a header, if it can be served.
fn decode_link(link: &[u8; LINK_BYTES]) -> Option<LinkInfo> {
    let mut fields = Fields(link);
    let (bytes, bits, items) = (fields.u64(), fields.u64(), fields.u64());
    let (error, bits_per_entry) = (f64::from_bits(fields.u64()), f64::from_bits(fields.u64()));
    let (hashes, entries, log2_bits) = (fields.u32(), fields.u64(), fields.u8());
    let shape = Shape { entries, error, bits_per_entry, hashes, bits, bytes, log2_bits };
    let sized = bits != 0 && bytes.checked_mul(8) == Some(bits);
    // Equal to nothing where `bits_per_entry` is NaN.
    let hashed = f64::from(hashes) == bloom::hashes_of(bits_per_entry);
    (bloom::is_rate(error) && sized && hashed && shape.is_sound()).then_some(LinkInfo { shape, items })
}

/// Length of the packed payload of a chain, if it is small and of the usual kind.
pub(super) fn packed_len(links: &[LinkInfo], options: u32, growth: u32) -> Option<usize> {
    if !matches!(options, options::SCALING | options::FIXED) || links.len() > usize::from(u8::MAX) {
        return None;
    }
    let packs = |link: &LinkInfo| packed_bloom::fits(&link.shape, growth) && packed_bloom::fits_items(link.items);
    let len = packed_bloom::payload_len(links.iter().map(|link| &link.shape));
    (len <= PACKED_MAX_BYTES && links.iter().all(packs)).then_some(len)
}

/// Writes a chain that [packs](packed_len) into so many zero bytes, with all bits 0.
pub(super) fn write_packed(payload: &mut [u8], links: &[LinkInfo], options: u32, growth: u32) {
    packed_bloom::create_chain(payload, options, growth, links.iter().map(|link| &link.shape));
    let mut chain = PackedBloomMut::new(payload);
    links.iter().enumerate().for_each(|(i, link)| chain.set_items(i, link.items));
}

/// The chain as a packed payload, if it is small and of the usual kind.
fn pack(links: &[LinkInfo], options: u32, growth: u32) -> Option<Vec<u8>> {
    let mut payload = vec![0; packed_len(links, options, growth)?];
    write_packed(&mut payload, links, options, growth);
    Some(payload)
}

/// The chain with allocations of its own.
fn build(infos: &[LinkInfo], options: u32, growth: u32) -> Result<ScalableBloom, HeaderError> {
    let mut links = Vec::with_capacity(infos.len());
    let mut items = 0u64;
    for (i, info) in infos.iter().enumerate() {
        let bits = BitArray::zeroed(info.shape.bytes)?;
        links.push(Link::new(info.shape, info.items, bits).ok_or(HeaderError::Link(i))?);
        items = items.wrapping_add(info.items);
    }
    ScalableBloom::from_links(options, growth, items, links).ok_or(HeaderError::Length)
}

/// A cursor over fields; beyond its end everything is 0.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        match self.0.split_first_chunk::<N>() {
            Some((bytes, rest)) => {
                self.0 = rest;
                *bytes
            }
            None => [0; N],
        }
    }
    fn u8(&mut self) -> u8 {
        let [byte] = self.take();
        byte
    }
    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }
    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }
}

/// A run of bytes inside the bits of one link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Number of the link, the oldest being 0.
    pub link: usize,
    /// First byte in the link.
    pub offset: usize,
    /// Number of bytes.
    pub len: usize,
}

/// The bytes that a dump returns for `iter`, other than 0; none at the end and for iterators outside the chain. The dump's
/// next iterator is `iter` plus the length.
pub fn chunk_at(bloom: BloomRef, iter: i64) -> Option<Chunk> {
    let position = u64::try_from(iter).ok()?.checked_sub(1)?;
    let (link, offset, left) = locate(bloom, position)?;
    let len = left.min(CHUNK_BYTES);
    Some(Chunk { link, offset: usize::try_from(offset).ok()?, len: usize::try_from(len).ok()? })
}

/// Bytes have no place in the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChunkError {
    /// The iterator is not one that can have come with so many bytes.
    #[error("the iterator does not fit the data")]
    BadData,
    /// They would begin beyond the last byte.
    #[error("no sub-filter at this offset")]
    NoLink,
    /// They would cross the end of a link.
    #[error("the data crosses the end of its sub-filter")]
    TooLong,
}

/// Where `len` bytes go that a dump returned together with `iter`.
///
/// # Errors
///
/// [`ChunkError`], in this order of tests.
pub fn place_chunk(bloom: BloomRef, iter: i64, len: usize) -> Result<Chunk, ChunkError> {
    let iter = u64::try_from(iter).ok().filter(|&iter| iter > 0).ok_or(ChunkError::BadData)?;
    let from = iter.checked_sub(len as u64).ok_or(ChunkError::BadData)?;
    let position = from.checked_sub(1).ok_or(ChunkError::NoLink)?;
    let (link, offset, left) = locate(bloom, position).ok_or(ChunkError::NoLink)?;
    if len as u64 > left {
        return Err(ChunkError::TooLong);
    }
    let offset = usize::try_from(offset).map_err(|_| ChunkError::NoLink)?;
    Ok(Chunk { link, offset, len })
}

/// The link and the byte in it that stand at `position` of all bits, with the number of bytes to the link's end.
fn locate(bloom: BloomRef, position: u64) -> Option<(usize, u64, u64)> {
    let mut offset = position;
    for (i, link) in bloom.links().enumerate() {
        match offset.checked_sub(link.shape.bytes) {
            Some(beyond) => offset = beyond,
            None => return Some((i, offset, link.shape.bytes - offset)),
        }
    }
    None
}
