//! A Bloom chain as a value of RDB, in RedisBloom's encoding (type `MBbloom--`), for DUMP payloads and snapshots.
//!
//! After the [module id](super::rdb), which carries the version of the encoding (*encver*), come these fields:
//!
//! | field | kind | in encver | otherwise |
//! | --- | --- | --- | --- |
//! | items of the chain | unsigned | all | |
//! | number of links | unsigned | all | |
//! | options | unsigned | 2 to 4 | 0 |
//! | growth | unsigned | 4 | 2 |
//! | of each link, oldest first: entries | unsigned | all | |
//! | error rate | double | all | |
//! | hashes | unsigned | all | |
//! | bits per entry | double | all | |
//! | bits | unsigned | 1 to 4 | entries times bits per entry, cut to a whole number |
//! | log2 of the modulus, or 0 | unsigned | 1 to 4 | 0 |
//! | the bits | string | all | |
//! | items of the link | unsigned | all | |
//!
//! then the end mark. Encver 4 is written, with the bits as they are; 0 to 4 are read, with the bits in any form that a
//! string can have.
//!
//! **What is checked.** What the RedisBloom of 2026 checks: at least one link, rates between 0 and 1 (NaN is not), hashes
//! that go with the bits per entry, a logarithm below 64, an array with room for the bits, and the end mark right after
//! the last field. It also wants the number of bits to be that of the array and refuses with this what releases up to 2.0
//! have saved: bits of 0 beside a logarithm, or 958 bits in 120 bytes. Those are taken: where there is a logarithm, the
//! modulus is the power of two that it says, and otherwise the number of bits, if only it lies inside the array.
//! Not checked, there as here: options, growth, entries, and whether the items of the links add up to those of the chain.
//! A field is refused that does not fit into the type the encoding's writers keep it in.
//!
//! **Memory.** Reading takes none that grows with what is announced: fields are looked at where they stand. Only
//! [`BloomValue::build`] takes the memory for the bits, after it has asked the limit; the array of a link is as large as the
//! string that holds it, and that is there, or compressed to not less than a 88th of it.

use smallvec::SmallVec;

use super::bloom::{Decoded, MAX_LINKS, packed_len, write_packed};
use super::lzf::Compressor;
use super::rdb::{self, Input, Malformed, ModuleId, Reader};
use super::rdb_string::{self, RdbString};
use crate::filters::bits::{AllocError, BitArray};
use crate::filters::bloom::{self, Shape};
use crate::filters::frozen::Frozen;
use crate::filters::packed_bloom::{PackedBloom, PackedBloomMut};
use crate::filters::scalable_bloom::{Link, ScalableBloom};
use crate::filters::{BloomRef, LinkInfo};

/// Name and encoding version of what is written.
pub const BLOOM_ID: ModuleId = match ModuleId::new(b"MBbloom--", 4) {
    Some(id) => id,
    None => panic!("no name of a module"),
};
/// Growth of a chain that was saved when it was not yet a setting.
const OLD_GROWTH: u64 = 2;
/// A whole link, but for its bits, is shorter.
const LINK_FIELDS_BYTES: usize = 64;

/// Writes a chain in steps.
///
/// Everything but the bits is taken down at the start. What is added to the chain between two steps may or may not be in
/// the bits, and is not counted; links that it gets are left out. So the owner may let adds go on, if a little more set
/// than counted does no harm, but not replace the chain by another one.
#[derive(Debug)]
pub struct BloomWriter {
    items: u64,
    options: u32,
    growth: u32,
    links: Vec<LinkInfo>,
    at: Place,
}

/// What is to be written next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Chain,
    Link(usize),
    Bits { link: usize, offset: usize },
    Items(usize),
    End,
    Done,
}

impl BloomWriter {
    /// A writer that stands before the first byte of the value of `bloom`.
    pub fn new(bloom: BloomRef) -> BloomWriter {
        let links: Vec<_> = bloom.links().collect();
        // As the links were just now: the chain's own sum may have moved since.
        let items = links.iter().map(|link| link.items).fold(bloom.surplus(), u64::wrapping_add);
        BloomWriter { items, options: bloom.options(), growth: bloom.growth(), links, at: Place::Chain }
    }

    /// A writer of a chain as it was frozen.
    pub fn frozen(chain: &Frozen) -> BloomWriter {
        let Frozen { options, growth, items, .. } = *chain;
        BloomWriter { items, options, growth, links: chain.links.clone(), at: Place::Chain }
    }

    /// Bytes of the whole value.
    #[allow(clippy::len_without_is_empty, reason = "a value always has bytes")]
    pub fn len(&self) -> u64 {
        let mut fields = Vec::with_capacity(LINK_FIELDS_BYTES);
        self.push_chain(&mut fields);
        rdb::push_end(&mut fields);
        let mut len = fields.len() as u64;
        for link in &self.links {
            fields.clear();
            push_link(&mut fields, &link.shape);
            rdb::push_unsigned(&mut fields, link.items);
            len += fields.len() as u64 + link.shape.bytes;
        }
        len
    }

    /// Appends about `bytes` bytes, at least one and at most 64 more than that, and says whether the value is whole now.
    /// `bloom` is the chain that the writer was made for.
    ///
    /// # Panics
    ///
    /// If `bloom` is another one, with fewer links or bits.
    pub fn step(&mut self, bloom: BloomRef, out: &mut Vec<u8>, bytes: usize) -> bool {
        self.step_with(out, bytes, |link, offset, bits| bloom.copy_bytes(link, offset, bits))
    }

    /// As [`step`](Self::step), with the bits from elsewhere: `copy` is given the number of a link, the oldest being 0, the
    /// offset of a byte in it, and the bytes to be filled from there.
    pub fn step_with(
        &mut self,
        out: &mut Vec<u8>,
        bytes: usize,
        mut copy: impl FnMut(usize, usize, &mut [u8]),
    ) -> bool {
        let end = out.len().saturating_add(bytes.max(1));
        while self.at != Place::Done && out.len() < end {
            let room = end - out.len();
            self.at = match self.at {
                Place::Chain => {
                    self.push_chain(out);
                    Place::Link(0)
                }
                Place::Link(link) => match self.links.get(link) {
                    Some(info) => {
                        push_link(out, &info.shape);
                        Place::Bits { link, offset: 0 }
                    }
                    None => Place::End,
                },
                Place::Bits { link, offset } => {
                    // A chain that is in memory has lengths that fit.
                    let run = room.min(self.links[link].shape.bytes as usize - offset);
                    let start = out.len();
                    out.resize(start + run, 0);
                    copy(link, offset, &mut out[start..]);
                    let offset = offset + run;
                    let whole = offset as u64 == self.links[link].shape.bytes;
                    if whole { Place::Items(link) } else { Place::Bits { link, offset } }
                }
                Place::Items(link) => {
                    rdb::push_unsigned(out, self.links[link].items);
                    Place::Link(link + 1)
                }
                Place::End => {
                    rdb::push_end(out);
                    Place::Done
                }
                Place::Done => Place::Done,
            };
        }
        self.at == Place::Done
    }

    fn push_chain(&self, out: &mut Vec<u8>) {
        rdb::push_length(out, BLOOM_ID.code());
        for field in [self.items, self.links.len() as u64, self.options.into(), self.growth.into()] {
            rdb::push_unsigned(out, field);
        }
    }
}

/// Appends the value of a small chain in one go, with its bits compressed where that is wanted and saves something.
pub fn push_packed(out: &mut Vec<u8>, chain: PackedBloom<'_>, mut compressor: Option<&mut Compressor>) {
    rdb::push_length(out, BLOOM_ID.code());
    let fields = [chain.items(), chain.len() as u64, chain.options().into(), chain.growth().into()];
    fields.into_iter().for_each(|field| rdb::push_unsigned(out, field));
    for i in 0..chain.len() {
        let link = chain.link(i);
        push_shape(out, &link.shape);
        rdb_string::push_field(out, chain.link_bits(i), compressor.as_deref_mut());
        rdb::push_unsigned(out, link.items);
    }
    rdb::push_end(out);
}

/// The fields of a link before its bits, and the head of these.
fn push_link(out: &mut Vec<u8>, shape: &Shape) {
    push_shape(out, shape);
    rdb::push_string_head(out, shape.bytes);
}

/// The fields of a link before its bits.
fn push_shape(out: &mut Vec<u8>, shape: &Shape) {
    rdb::push_unsigned(out, shape.entries);
    rdb::push_double(out, shape.error);
    rdb::push_unsigned(out, shape.hashes.into());
    rdb::push_double(out, shape.bits_per_entry);
    rdb::push_unsigned(out, shape.bits);
    rdb::push_unsigned(out, shape.log2_bits.into());
}

/// A value was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    /// It ends early, a field is of the wrong kind, or bits cannot be decompressed.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// It is of another type, or in an encoding that is not known.
    #[error("the value is of another type")]
    Type,
    /// It has no links, or more than [`MAX_LINKS`], or options or a growth of more than 32 bits.
    #[error("the filter as a whole cannot be")]
    Chain,
    /// A link cannot be: its rate is not between 0 and 1, or its sizes contradict each other.
    #[error("sub-filter {0} is not sound")]
    Link(usize),
    /// Something follows the value.
    #[error("something follows the value")]
    Trailing,
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

/// The fields of a chain before its links.
#[derive(Clone, Copy, Debug)]
pub struct ChainFields {
    /// Version of the encoding.
    pub encver: u16,
    /// Items of the chain.
    pub items: u64,
    /// Number of its links, from 1 to [`MAX_LINKS`].
    pub links: usize,
    /// Its options.
    pub options: u32,
    /// Its growth.
    pub growth: u32,
}

impl ChainFields {
    /// The fields that come after this module id.
    ///
    /// # Errors
    ///
    /// [`ValueError::Type`], [`ValueError::Chain`], or what the input says.
    pub fn read<I: Input, E: From<I::Error> + From<ValueError>>(input: &mut I, id: ModuleId) -> Result<ChainFields, E> {
        let encver = id.encver();
        if id.name() != BLOOM_ID.name() || encver > BLOOM_ID.encver() {
            return Err(ValueError::Type.into());
        }
        let (items, count) = (input.unsigned()?, input.unsigned()?);
        let options = if encver >= 2 { input.unsigned()? } else { 0 };
        let growth = if encver >= 4 { input.unsigned()? } else { OLD_GROWTH };
        let narrow = |field| u32::try_from(field).map_err(|_| ValueError::Chain);
        let (options, growth) = (narrow(options)?, narrow(growth)?);
        let links = usize::try_from(count).ok().filter(|count| (1..=MAX_LINKS).contains(count));
        Ok(ChainFields { encver, items, links: links.ok_or(ValueError::Chain)?, options, growth })
    }
}

/// The fields of a link before its bits, as they stand.
#[derive(Clone, Copy, Debug)]
pub struct LinkFields {
    entries: u64,
    error: f64,
    hashes: u64,
    bits_per_entry: f64,
    bits: u64,
    log2_bits: u64,
}

impl LinkFields {
    /// The fields that are next.
    ///
    /// # Errors
    ///
    /// What the input says.
    pub fn read<I: Input>(input: &mut I, encver: u16) -> Result<LinkFields, I::Error> {
        let (entries, error) = (input.unsigned()?, input.double()?);
        let (hashes, bits_per_entry) = (input.unsigned()?, input.double()?);
        let (bits, log2_bits) = match encver {
            0 => ((entries as f64 * bits_per_entry) as u64, 0),
            _ => (input.unsigned()?, input.unsigned()?),
        };
        Ok(LinkFields { entries, error, hashes, bits_per_entry, bits, log2_bits })
    }

    /// The shape of a link whose array has so many bytes, if a filter of it can be served.
    #[must_use]
    pub fn shape(&self, bytes: u64) -> Option<Shape> {
        let shape = Shape {
            entries: self.entries,
            error: self.error,
            bits_per_entry: self.bits_per_entry,
            hashes: u32::try_from(self.hashes).ok()?,
            bits: self.bits,
            bytes,
            log2_bits: u8::try_from(self.log2_bits).ok().filter(|log2| *log2 < 64)?,
        };
        // Equal to nothing where `bits_per_entry` is NaN.
        let hashed = f64::from(shape.hashes) == bloom::hashes_of(shape.bits_per_entry);
        let held = shape.bits.div_ceil(8) <= shape.bytes;
        let covers = shape.log2_bits == 0 || shape.bits == 0 || shape.bits >= 1 << shape.log2_bits;
        (bloom::is_rate(shape.error) && hashed && held && covers && shape.is_sound()).then_some(shape)
    }
}

/// A value that was read and found sound, its bits still where they stood.
#[derive(Debug)]
pub struct BloomValue<'a> {
    items: u64,
    options: u32,
    growth: u32,
    /// Most chains have one link: no memory is taken for those.
    links: SmallVec<[LinkInfo; 1]>,
    /// The bits of each of them.
    arrays: SmallVec<[RdbString<'a>; 1]>,
}

impl<'a> BloomValue<'a> {
    /// The value that is next, from its module id to its end mark.
    ///
    /// # Errors
    ///
    /// [`ValueError`], but for a limit or a lack of memory.
    pub fn read(reader: &mut Reader<'a>) -> Result<BloomValue<'a>, ValueError> {
        BloomValue::read_from(reader)
    }

    /// The same, written without opcodes and end mark, as pre-releases of Redis 4.0 did.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    pub fn read_plain(reader: &mut Reader<'a>) -> Result<BloomValue<'a>, ValueError> {
        BloomValue::read_from(&mut Plain(reader))
    }

    fn read_from<I>(input: &mut I) -> Result<BloomValue<'a>, ValueError>
    where
        I: Input<Error = Malformed, Text = RdbString<'a>>,
    {
        let id = ModuleId::from_code(input.length()?);
        let chain = ChainFields::read::<_, ValueError>(input, id)?;
        let (mut links, mut arrays) = (SmallVec::new(), SmallVec::new());
        for i in 0..chain.links {
            let fields = LinkFields::read(input, chain.encver)?;
            input.string_opcode()?;
            let (array, items) = (input.text()?, input.unsigned()?);
            let shape = fields.shape(array.len()).ok_or(ValueError::Link(i))?;
            links.push(LinkInfo { shape, items });
            arrays.push(array);
        }
        input.end()?;
        Ok(BloomValue { items: chain.items, options: chain.options, growth: chain.growth, links, arrays })
    }

    /// Items of the chain.
    pub fn items(&self) -> u64 {
        self.items
    }

    /// Options of the chain.
    pub fn options(&self) -> u32 {
        self.options
    }

    /// Growth of the chain.
    pub fn growth(&self) -> u32 {
        self.growth
    }

    /// The links, oldest first.
    pub fn links(&self) -> &[LinkInfo] {
        &self.links
    }

    /// Whether the bits can be decompressed.
    ///
    /// # Errors
    ///
    /// [`Malformed`] when they cannot.
    pub fn check_bits(&self) -> Result<(), Malformed> {
        self.arrays.iter().try_for_each(|array| array.pieces(|_, _| {}))
    }

    /// Bytes of the bits of all links.
    pub fn bit_bytes(&self) -> u64 {
        self.links.iter().map(|link| link.shape.bytes).fold(0, u64::saturating_add)
    }

    /// The chain, if its bits have at most `limit_bytes` bytes.
    ///
    /// # Errors
    ///
    /// [`ValueError::Limit`], [`ValueError::Memory`], or [`ValueError::Malformed`] when bits cannot be decompressed; no
    /// memory is held then.
    pub fn build(self, limit_bytes: u64) -> Result<Decoded, ValueError> {
        let bytes = self.bit_bytes();
        if bytes > limit_bytes {
            return Err(ValueError::Limit { bytes });
        }
        match self.packed_len() {
            Some(len) => {
                let mut payload = vec![0; len];
                self.write_packed(&mut payload)?;
                Ok(Decoded::Packed(payload))
            }
            None => Ok(Decoded::Large(self.build_large()?)),
        }
    }

    /// Length of the chain's packed payload, if it is small and of the usual kind.
    pub fn packed_len(&self) -> Option<usize> {
        let sum = self.links.iter().map(|link| link.items).fold(0, u64::wrapping_add);
        // The packed form has no place for a sum that is another.
        if sum == self.items { packed_len(&self.links, self.options, self.growth) } else { None }
    }

    /// Writes a chain that packs into [so many](Self::packed_len) zero bytes.
    ///
    /// # Errors
    ///
    /// [`Malformed`] when bits cannot be decompressed.
    ///
    /// # Panics
    ///
    /// If the bytes are fewer.
    pub fn write_packed(self, payload: &mut [u8]) -> Result<(), Malformed> {
        write_packed(payload, &self.links, self.options, self.growth);
        let mut chain = PackedBloomMut::new(payload);
        for (i, array) in self.arrays.into_iter().enumerate() {
            array.pieces(|offset, piece| chain.or_bytes(i, offset, piece))?;
        }
        Ok(())
    }

    /// The chain with allocations of its own.
    ///
    /// # Errors
    ///
    /// As [`build`](Self::build), without a limit.
    pub fn build_large(self) -> Result<ScalableBloom, ValueError> {
        let mut links = Vec::with_capacity(self.links.len());
        for (i, (info, array)) in self.links.iter().zip(self.arrays).enumerate() {
            let mut bits = BitArray::zeroed(info.shape.bytes)?;
            let words = bits.words_mut();
            array.pieces(|offset, piece| copy_piece(words, offset, piece))?;
            links.push(Link::new(info.shape, info.items, bits).ok_or(ValueError::Link(i))?);
        }
        let chain = ScalableBloom::from_links(self.options, self.growth, self.items, links);
        chain.ok_or(ValueError::Chain)
    }
}

/// Writes a piece that begins at a word into the words of an empty array.
pub(crate) fn copy_piece(words: &mut [u64], offset: usize, piece: &[u8]) {
    const WORD_BYTES: usize = size_of::<u64>();
    for (word, bytes) in words[offset / WORD_BYTES..].iter_mut().zip(piece.chunks(WORD_BYTES)) {
        let mut whole = [0; WORD_BYTES];
        whole[..bytes.len()].copy_from_slice(bytes);
        match u64::from_ne_bytes(whole) {
            // An untouched page stays untouched.
            0 => {}
            bits => *word = bits,
        }
    }
}

/// Fields without opcodes before them.
struct Plain<'r, I>(&'r mut I);

impl<I: Input> Input for Plain<'_, I> {
    type Error = I::Error;
    type Text = I::Text;

    fn array<const N: usize>(&mut self) -> Result<[u8; N], I::Error> {
        self.0.array()
    }

    fn skip(&mut self, len: u64) -> Result<(), I::Error> {
        self.0.skip(len)
    }

    fn text(&mut self) -> Result<I::Text, I::Error> {
        self.0.text()
    }

    fn refuse(&self, reason: &'static str) -> I::Error {
        self.0.refuse(reason)
    }

    fn opcode(&mut self, _wanted: u8) -> Result<(), I::Error> {
        Ok(())
    }
}
