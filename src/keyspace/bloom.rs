//! How Bloom filters are held by entries: packed into them while they are small, in allocations of their own from then on.

use super::entry::{Entry, EntryRef, Value, ValueMut, ValueRef, packs};
use crate::codec::bloom::Decoded;
use crate::codec::bloom_value::{BloomValue, ValueError};
use crate::filters::bits::{AllocError, BitArray};
use crate::filters::bloom::Shape;
use crate::filters::packed_bloom::PackedBloom;
use crate::filters::scalable_bloom::{Link, ScalableBloom};
use crate::filters::{BloomMut, BloomRef, packed_bloom};

/// Values of more bytes are copied in steps, each of so many.
pub const COPIED_AT_ONCE: usize = 256 << 10;

/// An empty filter of one sub-filter.
///
/// # Errors
/// [`AllocError`] when there is no memory.
pub fn empty_filter(
    name: &[u8],
    shape: &Shape,
    options: u32,
    growth: u32,
    life: Option<u64>,
) -> Result<Entry, AllocError> {
    let payload = packed_bloom::payload_len([shape]);
    if packed_bloom::fits(shape, growth) && packs(name, payload) {
        let create = |payload: &mut [u8]| packed_bloom::create(payload, options, growth, shape);
        return Entry::packed_bloom(name, life, payload, create);
    }
    Entry::boxed(name, life, Value::Bloom(ScalableBloom::new(options, growth, *shape)?))
}

/// Give a filter a further sub-filter of this shape.
///
/// # Errors
/// [`AllocError`] when there is no memory; the filter is as it was.
pub fn push_link(entry: &mut Entry, shape: &Shape) -> Result<(), AllocError> {
    let life = entry.as_ref().life();
    match entry.value_mut() {
        ValueMut::Bloom(BloomMut::Large(chain)) => chain.push_link(*shape)?,
        ValueMut::Bloom(BloomMut::Packed(_)) => {
            let ValueRef::Bloom(BloomRef::Packed(chain)) = entry.value() else { return Ok(()) };
            let repacked = chain.appended_len(shape).filter(|payload| packs(entry.name(), *payload));
            let grown = match repacked {
                Some(payload) => Entry::packed_bloom(entry.name(), life, payload, |new| {
                    packed_bloom::append(chain.payload(), shape, new);
                })?,
                None => {
                    let mut large = chain.to_scalable()?;
                    large.push_link(*shape)?;
                    Entry::boxed(entry.name(), life, Value::Bloom(large))?
                }
            };
            entry.succeed_with(grown);
        }
        _ => {}
    }
    Ok(())
}

/// A loaded filter, as an entry.
///
/// # Errors
/// [`AllocError`] when there is no memory.
pub fn loaded_filter(name: &[u8], life: Option<u64>, decoded: Decoded) -> Result<Entry, AllocError> {
    match decoded {
        Decoded::Packed(payload) if packs(name, payload.len()) => {
            Entry::packed_bloom(name, life, payload.len(), |new| new.copy_from_slice(&payload))
        }
        Decoded::Packed(payload) => Entry::boxed(name, life, Value::Bloom(PackedBloom::new(&payload).to_scalable()?)),
        Decoded::Large(chain) => Entry::boxed(name, life, Value::Bloom(chain)),
    }
}

/// A value of an RDB file, as an entry; no limit is asked.
///
/// # Errors
/// [`ValueError::Memory`], and [`ValueError::Malformed`] when bits cannot be decompressed.
pub fn filter_of_value(name: &[u8], life: Option<u64>, value: BloomValue<'_>) -> Result<Entry, ValueError> {
    let Some(len) = value.packed_len().filter(|len| packs(name, *len)) else {
        return Ok(Entry::boxed(name, life, Value::Bloom(value.build_large()?))?);
    };
    let mut written = Ok(());
    let entry = Entry::packed_bloom(name, life, len, |payload| written = value.write_packed(payload))?;
    written?;
    Ok(entry)
}

/// A copy of a value under another name, made at once.
///
/// # Errors
/// [`AllocError`] when there is no memory.
pub fn copied(entry: EntryRef<'_>, name: &[u8]) -> Result<Entry, AllocError> {
    if let Some(copy) = Entry::packed_copy(entry, name)? {
        return Ok(copy);
    }
    let bloom = match entry.value() {
        ValueRef::Bloom(bloom) => bloom,
        ValueRef::Ring(ring) => return with_stamp(super::ring::entry_of(name, entry.life(), ring.to_ring()?)?, entry),
        ValueRef::HalfRing(half) => {
            let half = half.begun_anew().map_err(|_| AllocError { bytes: 0 })?;
            return with_stamp(super::ring::half_loaded(name, entry.life(), half)?, entry);
        }
        ValueRef::Counting(filter) => {
            return with_stamp(super::counting::copied(name, entry.life(), filter)?, entry);
        }
        ValueRef::HalfCounting(half) => {
            let half = half.begun_anew().map_err(|_| AllocError { bytes: 0 })?;
            return with_stamp(super::counting::half_loaded(name, entry.life(), half)?, entry);
        }
        ValueRef::Dleft(filter) => return with_stamp(super::dleft::copied(name, entry.life(), filter)?, entry),
        ValueRef::HalfDleft(half) => {
            let half = half.begun_anew().map_err(|_| AllocError { bytes: 0 })?;
            return with_stamp(super::dleft::half_loaded(name, entry.life(), half)?, entry);
        }
        _ => return Err(AllocError { bytes: 0 }),
    };
    let mut copy = BloomCopy::of(bloom)?;
    while !copy.step(bloom) {}
    copy.finish(entry, name)
}

/// A copy was used when the original was.
fn with_stamp(copy: Entry, from: EntryRef<'_>) -> Result<Entry, AllocError> {
    copy.as_ref().set_stamp(from.stamp());
    Ok(copy)
}

/// A copy of a Bloom filter in the making.
pub struct BloomCopy {
    options: u32,
    growth: u32,
    items: u64,
    links: Vec<Link>,
    /// The link that is being copied, and how much of it is done.
    at: (usize, usize),
}

impl BloomCopy {
    /// A copy that has nothing yet.
    ///
    /// # Errors
    /// [`AllocError`] when there is no memory for the bits.
    pub fn of(bloom: BloomRef<'_>) -> Result<Self, AllocError> {
        let mut links = Vec::with_capacity(bloom.len());
        for link in bloom.links() {
            links.extend(Link::new(link.shape, link.items, BitArray::zeroed(link.shape.bytes)?));
        }
        Ok(Self { options: bloom.options(), growth: bloom.growth(), items: bloom.items(), links, at: (0, 0) })
    }

    /// Copy the next piece; whether that was the last.
    pub fn step(&mut self, bloom: BloomRef<'_>) -> bool {
        let (link, offset) = self.at;
        let Some(target) = self.links.get(link) else { return true };
        let mut piece = vec![0; COPIED_AT_ONCE.min(target.bits().len() - offset)];
        bloom.copy_bytes(link, offset, &mut piece);
        target.bits().or_bytes(offset, &piece);
        let done = offset + piece.len();
        self.at = if done < target.bits().len() { (link, done) } else { (link + 1, 0) };
        self.at.0 == self.links.len()
    }

    /// The copy, as an entry of this name with the life and the stamp of the original.
    ///
    /// # Errors
    /// [`AllocError`] when there is no memory.
    pub fn finish(self, from: EntryRef<'_>, name: &[u8]) -> Result<Entry, AllocError> {
        let chain = ScalableBloom::from_links(self.options, self.growth, self.items, self.links);
        let chain = chain.ok_or(AllocError { bytes: 0 })?;
        let copy = Entry::boxed(name, from.life(), Value::Bloom(chain))?;
        copy.as_ref().set_stamp(from.stamp());
        Ok(copy)
    }
}
