//! One key: header, name and value in a single allocation.
//!
//! ```text
//! 0      4     6         7     8
//! | stamp| size| name_len| form| [size: u64 if size = 0] [name length: u32 if name_len = 255] [life: 48 bits] | name | payload |
//! ```
//!
//! A key with a life (a moment at which it ends) pays six bytes for it; the form says whether they are there.
//!
//! The payload of a small filter is the filter itself (form *packed*); that of a large one is a pointer to a boxed
//! [`Value`] (form *boxed*). Eight bytes of header are all that a small filter pays, which is what makes "one filter for
//! each user" affordable; fields are therefore read and written as bytes, without alignment.
//!
//! An [`Entry`] owns its allocation. [`TaggedEntry`] is the same pointer with 16 bits of the name's hash above it: the
//! table compares those before it follows the pointer.
//!
//! This is one of the few modules with `unsafe`. The invariant it keeps: `header` points to a live allocation made by
//! `Entry::allocate`, whose size and field offsets follow from its own first bytes, which never change after the
//! allocation was made (`stamp` apart, which is atomic); a payload in form *boxed* holds a pointer from `Box::into_raw`.

use std::alloc::Layout;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::num::NonZeroU64;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use super::latch::Latch;
use super::size_class::size_class;
use crate::codec::value::{HalfCounting, HalfDleft, HalfRing};
use crate::filters::bits::{AllocError, prefetch_at};
use crate::filters::counting::{CountingBloom, CountingMut, CountingRef, PackedCounting, PackedCountingMut};
use crate::filters::dleft::{Dleft, DleftMut, DleftRef, PackedDleft, PackedDleftMut};
use crate::filters::packed_bloom::{PackedBloom, PackedBloomMut};
use crate::filters::ring::Ring;
use crate::filters::ring::packed::PackedRing;
use crate::filters::scalable_bloom::ScalableBloom;
use crate::filters::{BloomMut, BloomRef};

/// Largest allocation of a packed entry: its size is kept in 16 bits. Larger filters are boxed.
pub const PACKED_ENTRY_BYTES: usize = u16::MAX as usize;

const HEADER_BYTES: usize = 8;
const LONG_NAME: u8 = u8::MAX;
const ALIGNMENT: usize = 8;

/// The kinds of value that a key can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A scalable Bloom filter.
    Bloom,
    /// A ring of Bloom arrays.
    Ring,
    /// A counting Bloom filter.
    Counting,
    /// A d-left counting filter.
    Dleft,
    /// Stands for a second kind until there is one, so that tests can hold a key of the wrong type.
    #[cfg(test)]
    Opaque,
}

impl Kind {
    /// What `TYPE` answers: the name under which a module registers the type.
    #[must_use]
    pub const fn type_name(self) -> &'static str {
        match self {
            Self::Bloom => "MBbloom--",
            Self::Ring => "seenCHAIN",
            Self::Counting => "seenCBF--",
            Self::Dleft => "seenDLCBF",
            #[cfg(test)]
            Self::Opaque => "opaque---",
        }
    }
}

/// A value too large or too unusual to stand in its entry.
pub enum Value {
    /// A scalable Bloom filter.
    Bloom(ScalableBloom),
    /// A ring of Bloom arrays.
    Ring(Box<Ring>),
    /// One that is being loaded.
    HalfRing(Box<HalfRing>),
    /// A counting Bloom filter.
    Counting(Box<CountingBloom>),
    /// One that is being loaded.
    HalfCounting(Box<HalfCounting>),
    /// A d-left counting filter.
    Dleft(Box<Dleft>),
    /// One that is being loaded.
    HalfDleft(Box<HalfDleft>),
    /// The entry is away: a long command works on it (see [`super::latched::Latched`]).
    Busy {
        /// What waiters wait for.
        latch: Arc<Latch>,
        /// The kind of the value that is away; none if there is no key, only a name that a transaction keeps.
        kind: Option<Kind>,
    },
    /// See [`Kind::Opaque`].
    #[cfg(test)]
    Opaque,
}

/// A value, for reading.
pub enum ValueRef<'a> {
    /// A scalable Bloom filter.
    Bloom(BloomRef<'a>),
    /// A ring of Bloom arrays.
    Ring(RingRef<'a>),
    /// One that is being loaded.
    HalfRing(&'a HalfRing),
    /// A counting Bloom filter.
    Counting(CountingRef<'a>),
    /// One that is being loaded.
    HalfCounting(&'a HalfCounting),
    /// A d-left counting filter.
    Dleft(DleftRef<'a>),
    /// One that is being loaded.
    HalfDleft(&'a HalfDleft),
    /// The entry is away.
    Busy {
        /// What waiters wait for.
        latch: &'a Arc<Latch>,
        /// The kind of the value that is away; none if there is no key.
        kind: Option<Kind>,
    },
    /// See [`Kind::Opaque`].
    #[cfg(test)]
    Opaque,
}

/// A ring in either form, to read.
#[derive(Clone, Copy)]
pub enum RingRef<'a> {
    /// All in one slice of bytes.
    Packed(PackedRing<'a>),
    /// With allocations of its own.
    Large(&'a Ring),
}

/// A value, for writing.
pub enum ValueMut<'a> {
    /// A scalable Bloom filter.
    Bloom(BloomMut<'a>),
    /// A ring of Bloom arrays, to be changed with [`super::ring`].
    Ring,
    /// One that is being loaded.
    HalfRing(&'a mut HalfRing),
    /// A counting Bloom filter; what needs room is done with [`super::counting`].
    Counting(CountingMut<'a>),
    /// One that is being loaded.
    HalfCounting(&'a mut HalfCounting),
    /// A d-left counting filter; what needs growth or another form is done with [`super::dleft`].
    Dleft(DleftMut<'a>),
    /// One that is being loaded.
    HalfDleft(&'a mut HalfDleft),
    /// The entry is away.
    Busy,
    /// See [`Kind::Opaque`].
    #[cfg(test)]
    Opaque,
}

#[repr(u8)]
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    PackedBloom = 0,
    Boxed = 1,
    PackedRing = 2,
    PackedCounting = 3,
    PackedDleft = 4,
}

impl Form {
    const fn of(bits: u8) -> Self {
        match bits {
            0 => Self::PackedBloom,
            2 => Self::PackedRing,
            3 => Self::PackedCounting,
            4 => Self::PackedDleft,
            _ => Self::Boxed,
        }
    }

    /// The kind of a value that stands in the entry itself.
    const fn packed_kind(self) -> Option<Kind> {
        match self {
            Self::PackedBloom => Some(Kind::Bloom),
            Self::PackedRing => Some(Kind::Ring),
            Self::PackedCounting => Some(Kind::Counting),
            Self::PackedDleft => Some(Kind::Dleft),
            Self::Boxed => None,
        }
    }
}

#[repr(C, align(8))]
struct Header {
    /// Second of the last access on the keyspace's clock, and a count of uses: see [`SECONDS_BITS`].
    stamp: AtomicU32,
    /// Bytes of the allocation, 0 when they stand behind the header.
    size: u16,
    name_len: u8,
    /// A [`Form`], [`HAS_LIFE`] and [`EPOCH`]; only the last changes while others may read.
    form: AtomicU8,
}

/// Bit of the form that says that the key has a life.
const HAS_LIFE: u8 = 0x80;
/// The last bit of the number of the save epoch that a packed entry belongs to; see [`super::snapshot`].
const EPOCH: u8 = 0x40;
const LIFE_BYTES: usize = 6;
/// Latest moment at which a life can end, in milliseconds since 1970: what 48 bits hold, in the year 10889.
pub const LATEST_LIFE: u64 = (1 << (8 * LIFE_BYTES)) - 1;

/// Where the parts of an allocation lie, all in bytes.
#[derive(Clone, Copy)]
struct Parts {
    size: usize,
    /// Of no meaning for a key without a life.
    life: usize,
    name: usize,
    payload: usize,
}

/// A key that nobody else holds.
#[repr(transparent)]
pub struct Entry {
    header: NonNull<Header>,
}

// SAFETY: an entry owns its allocation alone, and everything that it can hold is Send and Sync.
unsafe impl Send for Entry {}
// SAFETY: as above; shared access goes through `&` methods that only read, or write atomics.
unsafe impl Sync for Entry {}

/// A key that somebody else owns, for reading.
#[derive(Clone, Copy)]
pub struct EntryRef<'a> {
    header: NonNull<Header>,
    owner: PhantomData<&'a Header>,
}

impl Entry {
    /// A key whose value stands in the entry itself: `payload_len` bytes, zeroed, then written by `init`. `life` is the moment
    /// at which the key ends, in milliseconds since 1970.
    ///
    /// # Errors
    /// [`AllocError`] when there is no memory.
    ///
    /// # Panics
    /// When the whole would pass [`PACKED_ENTRY_BYTES`]; ask [`packs`] first.
    pub fn packed_bloom(
        name: &[u8],
        life: Option<u64>,
        payload_len: usize,
        init: impl FnOnce(&mut [u8]),
    ) -> Result<Self, AllocError> {
        Self::packed(name, life, payload_len, Form::PackedBloom, init)
    }

    /// The same for a d-left filter.
    ///
    /// # Errors
    /// [`AllocError`] when there is no memory.
    ///
    /// # Panics
    /// As [`packed_bloom`](Self::packed_bloom).
    pub fn packed_dleft(
        name: &[u8],
        life: Option<u64>,
        payload_len: usize,
        init: impl FnOnce(&mut [u8]),
    ) -> Result<Self, AllocError> {
        Self::packed(name, life, payload_len, Form::PackedDleft, init)
    }

    /// The same for a ring, which also gets what the allocator would waste.
    ///
    /// # Errors
    /// [`AllocError`] when there is no memory.
    ///
    /// # Panics
    /// As [`packed_bloom`](Self::packed_bloom).
    pub fn packed_ring(
        name: &[u8],
        life: Option<u64>,
        payload_len: usize,
        init: impl FnOnce(&mut [u8]),
    ) -> Result<Self, AllocError> {
        Self::packed(name, life, roomy(name, life, payload_len), Form::PackedRing, init)
    }

    /// The same for a counting filter.
    ///
    /// # Errors
    /// [`AllocError`] when there is no memory.
    ///
    /// # Panics
    /// As [`packed_bloom`](Self::packed_bloom).
    pub fn packed_counting(
        name: &[u8],
        life: Option<u64>,
        payload_len: usize,
        init: impl FnOnce(&mut [u8]),
    ) -> Result<Self, AllocError> {
        Self::packed(name, life, roomy(name, life, payload_len), Form::PackedCounting, init)
    }

    fn packed(
        name: &[u8],
        life: Option<u64>,
        payload_len: usize,
        form: Form,
        init: impl FnOnce(&mut [u8]),
    ) -> Result<Self, AllocError> {
        assert!(packs(name, payload_len), "a packed entry of {payload_len} bytes");
        let mut entry = Self::allocate(name, life, payload_len, form)?;
        init(entry.payload_mut());
        Ok(entry)
    }

    /// A key whose value stands in an allocation of its own.
    ///
    /// # Errors
    /// [`AllocError`] when there is no memory.
    pub fn boxed(name: &[u8], life: Option<u64>, value: Value) -> Result<Self, AllocError> {
        let mut entry = Self::allocate(name, life, size_of::<*mut Value>(), Form::Boxed)?;
        let pointer = Box::into_raw(Box::new(value));
        entry.payload_mut().copy_from_slice(&(pointer as usize).to_ne_bytes());
        Ok(entry)
    }

    fn allocate(name: &[u8], life: Option<u64>, payload_len: usize, form: Form) -> Result<Self, AllocError> {
        let parts = layout_of(name.len(), life.is_some(), payload_len);
        let failed = AllocError { bytes: parts.size as u64 };
        let layout = Layout::from_size_align(parts.size, ALIGNMENT).map_err(|_| failed)?;
        // SAFETY: the layout has a size of at least HEADER_BYTES.
        let pointer = unsafe { std::alloc::alloc_zeroed(layout) };
        let header = NonNull::new(pointer.cast::<Header>()).ok_or(failed)?;
        // User addresses have 47 bits unless a program asks for more, which nobody here does.
        assert!(pointer as usize >> TAG_SHIFT == 0, "an address with more than 48 bits");
        let long_size = parts.size > PACKED_ENTRY_BYTES;
        let long_name = name.len() >= LONG_NAME as usize;
        // SAFETY: the allocation is `parts.size` bytes long, and `layout_of` counted every part written here.
        unsafe {
            header.write(Header {
                stamp: AtomicU32::new(FIRST_USES << SECONDS_BITS),
                size: if long_size { 0 } else { parts.size as u16 },
                name_len: if long_name { LONG_NAME } else { name.len() as u8 },
                form: AtomicU8::new(form as u8 | if life.is_some() { HAS_LIFE } else { 0 }),
            });
            let mut at = HEADER_BYTES;
            if long_size {
                pointer.add(at).cast::<u64>().write_unaligned(parts.size as u64);
                at += size_of::<u64>();
            }
            if long_name {
                pointer.add(at).cast::<u32>().write_unaligned(name.len() as u32);
            }
            pointer.add(parts.name).copy_from_nonoverlapping(name.as_ptr(), name.len());
        }
        let mut entry = Self { header };
        if let Some(life) = life {
            entry.write_life(life);
        }
        Ok(entry)
    }

    fn write_life(&mut self, life: u64) {
        let bytes = life.min(LATEST_LIFE).to_le_bytes();
        let at = self.as_ref().parts().life;
        // SAFETY: an entry with HAS_LIFE has these bytes, and `&mut self` is exclusive.
        unsafe {
            self.header.as_ptr().cast::<u8>().add(at).copy_from_nonoverlapping(bytes.as_ptr(), LIFE_BYTES);
        }
    }

    /// Set or take away the moment at which the key ends, in milliseconds since 1970.
    ///
    /// # Errors
    /// [`AllocError`] when there is no memory; the entry is as it was.
    pub fn set_life(&mut self, life: Option<u64>) -> Result<(), AllocError> {
        match life {
            Some(life) if self.as_ref().life().is_some() => self.write_life(life),
            None if self.as_ref().life().is_none() => {}
            _ => *self = self.rebuilt(None, life)?,
        }
        Ok(())
    }

    /// Give the key another name.
    ///
    /// # Errors
    /// [`AllocError`] when there is no memory; the entry is as it was.
    pub fn rename(&mut self, name: &[u8]) -> Result<(), AllocError> {
        *self = self.rebuilt(Some(name), self.as_ref().life())?;
        Ok(())
    }

    /// A copy of a packed entry under another name; `None` for one whose value has allocations of its own.
    ///
    /// # Errors
    /// [`AllocError`] when there is no memory.
    pub fn packed_copy(from: EntryRef<'_>, name: &[u8]) -> Result<Option<Self>, AllocError> {
        let form = from.form();
        if form == Form::Boxed {
            return Ok(None);
        }
        let parts = from.parts();
        let payload = from.bytes(parts.payload, parts.size - parts.payload);
        let mut entry = Self::allocate(name, from.life(), payload.len(), form)?;
        entry.payload_mut().copy_from_slice(payload);
        entry.as_ref().set_stamp(from.stamp());
        Ok(Some(entry))
    }

    /// Another form or value of the same key, used as much and as lately as this one.
    pub(super) fn succeed_with(&mut self, new: Self) {
        new.as_ref().set_stamp(self.as_ref().stamp());
        *self = new;
    }

    /// The same value under another name, or the same one, and with this life; `self` is to be replaced by it at once.
    fn rebuilt(&mut self, name: Option<&[u8]>, life: Option<u64>) -> Result<Self, AllocError> {
        let form = self.as_ref().form();
        let parts = self.as_ref().parts();
        let name = name.unwrap_or_else(|| self.as_ref().name());
        let payload = self.as_ref().bytes(parts.payload, parts.size - parts.payload);
        // What no longer fits the packed form with a longer name is still read as packed: sizes have room for it.
        let mut entry = Self::allocate(name, life, payload.len(), form)?;
        entry.payload_mut().copy_from_slice(payload);
        entry.as_ref().set_stamp(self.as_ref().stamp());
        if form == Form::Boxed {
            // The box belongs to the new entry now; an empty packed one is dropped without a look at its payload.
            let left = &self.as_ref().header().form;
            left.store(Form::PackedBloom as u8 | left.load(Ordering::Relaxed) & HAS_LIFE, Ordering::Relaxed);
        }
        Ok(entry)
    }

    /// The same entry, for reading.
    #[must_use]
    pub fn as_ref(&self) -> EntryRef<'_> {
        EntryRef { header: self.header, owner: PhantomData }
    }

    /// The key's name.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        self.as_ref().name()
    }

    /// The value, for reading.
    #[must_use]
    pub fn value(&self) -> ValueRef<'_> {
        self.as_ref().value()
    }

    /// The value, for writing.
    pub fn value_mut(&mut self) -> ValueMut<'_> {
        match self.as_ref().form() {
            Form::PackedBloom => ValueMut::Bloom(BloomMut::Packed(PackedBloomMut::new(self.payload_mut()))),
            Form::PackedRing => ValueMut::Ring,
            Form::PackedCounting => ValueMut::Counting(CountingMut::Packed(PackedCountingMut::new(self.payload_mut()))),
            Form::PackedDleft => ValueMut::Dleft(DleftMut::Packed(PackedDleftMut::new(self.payload_mut()))),
            Form::Boxed => {
                // SAFETY: form and payload agree (see the module's invariant), and `&mut self` is exclusive.
                let value = unsafe { &mut *self.as_ref().boxed_pointer() };
                match value {
                    Value::Bloom(bloom) => ValueMut::Bloom(BloomMut::Large(bloom)),
                    Value::Ring(_) => ValueMut::Ring,
                    Value::HalfRing(half) => ValueMut::HalfRing(half),
                    Value::Counting(filter) => ValueMut::Counting(CountingMut::Large(filter)),
                    Value::HalfCounting(half) => ValueMut::HalfCounting(half),
                    Value::Dleft(filter) => ValueMut::Dleft(DleftMut::Large(filter)),
                    Value::HalfDleft(half) => ValueMut::HalfDleft(half),
                    Value::Busy { .. } => ValueMut::Busy,
                    #[cfg(test)]
                    Value::Opaque => ValueMut::Opaque,
                }
            }
        }
    }

    /// The ring that stands in the entry itself, as bytes.
    pub(super) fn packed_ring_mut(&mut self) -> Option<&mut [u8]> {
        (self.as_ref().form() == Form::PackedRing).then(|| self.payload_mut())
    }

    /// A ring with allocations of its own.
    pub(super) fn large_ring_mut(&mut self) -> Option<&mut Ring> {
        if self.as_ref().form() != Form::Boxed {
            return None;
        }
        // SAFETY: form and payload agree (see the module's invariant), and `&mut self` is exclusive.
        match unsafe { &mut *self.as_ref().boxed_pointer() } {
            Value::Ring(ring) => Some(ring),
            _ => None,
        }
    }

    /// Bytes that the key holds: see [`EntryRef::allocated_bytes`].
    #[must_use]
    pub fn allocated_bytes(&self) -> usize {
        self.as_ref().allocated_bytes()
    }

    fn payload_mut(&mut self) -> &mut [u8] {
        let parts = self.as_ref().parts();
        // SAFETY: the payload lies within the allocation, and `&mut self` is exclusive.
        unsafe {
            std::slice::from_raw_parts_mut(
                self.header.as_ptr().cast::<u8>().add(parts.payload),
                parts.size - parts.payload,
            )
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let entry = self.as_ref();
        if entry.form() == Form::Boxed {
            // SAFETY: the pointer came from `Box::into_raw` and the entry, which owns it, goes away here.
            drop(unsafe { Box::from_raw(entry.boxed_pointer()) });
        }
        let size = entry.parts().size;
        // SAFETY: the allocation was made in `allocate` with this size and alignment.
        unsafe {
            std::alloc::dealloc(self.header.as_ptr().cast(), Layout::from_size_align_unchecked(size, ALIGNMENT));
        }
    }
}

impl<'a> EntryRef<'a> {
    /// Ask the processor for its first bytes, without a look at it.
    pub(super) fn prefetch_header(self) {
        prefetch_at(self.header.as_ptr());
    }

    /// Ask the processor for what follows them, as far as it is likely to be read.
    pub(super) fn prefetch_rest(self) {
        const LINE_BYTES: usize = 64;
        const MOST_LINES: usize = 12;
        let start = self.header.as_ptr().cast::<u8>();
        let lines = usize::from(self.header().size).div_ceil(LINE_BYTES).min(MOST_LINES);
        (1..=lines).for_each(|line| prefetch_at(start.wrapping_add(line * LINE_BYTES)));
    }

    fn header(self) -> &'a Header {
        // SAFETY: the owner keeps the allocation alive for 'a; the header is only written through its atomic.
        unsafe { self.header.as_ref() }
    }

    fn form(self) -> Form {
        Form::of(self.header().form.load(Ordering::Relaxed) & !(HAS_LIFE | EPOCH))
    }

    fn has_life(self) -> bool {
        self.header().form.load(Ordering::Relaxed) & HAS_LIFE != 0
    }

    /// Whether the entry belongs to this save epoch, or is none that a snapshot keeps.
    pub(super) fn is_of(self, epoch: u64) -> bool {
        match self.form() {
            Form::PackedBloom | Form::PackedRing | Form::PackedCounting | Form::PackedDleft => {
                (self.header().form.load(Ordering::Relaxed) & EPOCH != 0) == (epoch & 1 != 0)
            }
            Form::Boxed => match self.value() {
                ValueRef::Bloom(BloomRef::Large(chain)) => chain.moment() >= epoch,
                ValueRef::Ring(RingRef::Large(ring)) => ring.moment() >= epoch,
                ValueRef::HalfRing(half) => half.moment() >= epoch,
                ValueRef::Counting(CountingRef::Large(filter)) => filter.moment() >= epoch,
                ValueRef::HalfCounting(half) => half.moment() >= epoch,
                ValueRef::Dleft(DleftRef::Large(filter)) => filter.moment() >= epoch,
                ValueRef::HalfDleft(half) => half.moment() >= epoch,
                _ => true,
            },
        }
    }

    /// The entry belongs to this save epoch from now on. Only one thread at a time does this.
    pub(super) fn set_epoch(self, epoch: u64) {
        match self.form() {
            Form::PackedBloom | Form::PackedRing | Form::PackedCounting | Form::PackedDleft => {
                let form = &self.header().form;
                let (old, bit) = (form.load(Ordering::Relaxed), if epoch & 1 != 0 { EPOCH } else { 0 });
                if old & EPOCH != bit {
                    form.store(old & !EPOCH | bit, Ordering::Relaxed);
                }
            }
            Form::Boxed => match self.value() {
                ValueRef::Bloom(BloomRef::Large(chain)) if chain.moment() < epoch => chain.set_moment(epoch),
                ValueRef::Ring(RingRef::Large(ring)) => ring.set_moment(epoch),
                ValueRef::HalfRing(half) => half.set_moment(epoch),
                ValueRef::Counting(CountingRef::Large(filter)) if filter.moment() < epoch => filter.set_moment(epoch),
                ValueRef::HalfCounting(half) => half.set_moment(epoch),
                ValueRef::Dleft(DleftRef::Large(filter)) if filter.moment() < epoch => filter.set_moment(epoch),
                ValueRef::HalfDleft(half) => half.set_moment(epoch),
                _ => {}
            },
        }
    }

    /// The filter that stands in the entry itself, as bytes, and its kind.
    pub(super) fn packed_payload(self) -> Option<(Kind, &'a [u8])> {
        let kind = self.form().packed_kind()?;
        Some((kind, self.payload()))
    }

    fn payload(self) -> &'a [u8] {
        let parts = self.parts();
        self.bytes(parts.payload, parts.size - parts.payload)
    }

    /// A filter with allocations of its own.
    pub(super) fn large_bloom(self) -> Option<&'a ScalableBloom> {
        if self.form() != Form::Boxed {
            return None;
        }
        match self.value() {
            ValueRef::Bloom(BloomRef::Large(chain)) => Some(chain),
            _ => None,
        }
    }

    fn bytes(self, at: usize, len: usize) -> &'a [u8] {
        // SAFETY: callers name ranges inside the allocation, which lives for 'a; the bytes of names and sizes never
        // change, and those of payloads only through a `&mut Entry`, which cannot exist beside this borrow.
        unsafe { std::slice::from_raw_parts(self.header.as_ptr().cast::<u8>().add(at), len) }
    }

    fn parts(self) -> Parts {
        let header = self.header();
        let mut at = HEADER_BYTES;
        let mut size = usize::from(header.size);
        if size == 0 {
            size = u64::from_ne_bytes(array(self.bytes(at, 8))) as usize;
            at += 8;
        }
        let mut name_len = usize::from(header.name_len);
        if header.name_len == LONG_NAME {
            name_len = u32::from_ne_bytes(array(self.bytes(at, 4))) as usize;
            at += 4;
        }
        let life = at;
        if self.has_life() {
            at += LIFE_BYTES;
        }
        Parts { size, life, name: at, payload: at + name_len }
    }

    /// The moment at which the key ends, in milliseconds since 1970.
    #[must_use]
    pub fn life(self) -> Option<u64> {
        if !self.has_life() {
            return None;
        }
        let mut life = [0; 8];
        life[..LIFE_BYTES].copy_from_slice(self.bytes(self.parts().life, LIFE_BYTES));
        Some(u64::from_le_bytes(life))
    }

    fn boxed_pointer(self) -> *mut Value {
        let parts = self.parts();
        usize::from_ne_bytes(array(self.bytes(parts.payload, size_of::<usize>()))) as *mut Value
    }

    /// The key's name.
    #[must_use]
    pub fn name(self) -> &'a [u8] {
        let parts = self.parts();
        self.bytes(parts.name, parts.payload - parts.name)
    }

    /// The value, for reading.
    #[must_use]
    pub fn value(self) -> ValueRef<'a> {
        match self.form() {
            Form::PackedBloom => ValueRef::Bloom(BloomRef::Packed(PackedBloom::new(self.payload()))),
            Form::PackedRing => ValueRef::Ring(RingRef::Packed(PackedRing::new(self.payload()))),
            Form::PackedCounting => ValueRef::Counting(CountingRef::Packed(PackedCounting::new(self.payload()))),
            Form::PackedDleft => ValueRef::Dleft(DleftRef::Packed(PackedDleft::new(self.payload()))),
            Form::Boxed => {
                // SAFETY: form and payload agree (see the module's invariant); the owner keeps the box alive for 'a.
                match unsafe { &*self.boxed_pointer() } {
                    Value::Bloom(bloom) => ValueRef::Bloom(BloomRef::Large(bloom)),
                    Value::Ring(ring) => ValueRef::Ring(RingRef::Large(ring)),
                    Value::HalfRing(half) => ValueRef::HalfRing(half),
                    Value::Counting(filter) => ValueRef::Counting(CountingRef::Large(filter)),
                    Value::HalfCounting(half) => ValueRef::HalfCounting(half),
                    Value::Dleft(filter) => ValueRef::Dleft(DleftRef::Large(filter)),
                    Value::HalfDleft(half) => ValueRef::HalfDleft(half),
                    Value::Busy { latch, kind } => ValueRef::Busy { latch, kind: *kind },
                    #[cfg(test)]
                    Value::Opaque => ValueRef::Opaque,
                }
            }
        }
    }

    /// The kind of value, also while it is away; none for a name that only stands for no key.
    #[must_use]
    pub fn kind(self) -> Option<Kind> {
        if let Some(kind) = self.form().packed_kind() {
            return Some(kind);
        }
        match self.value() {
            ValueRef::Bloom(_) => Some(Kind::Bloom),
            ValueRef::Ring(_) | ValueRef::HalfRing(_) => Some(Kind::Ring),
            ValueRef::Counting(_) | ValueRef::HalfCounting(_) => Some(Kind::Counting),
            ValueRef::Dleft(_) | ValueRef::HalfDleft(_) => Some(Kind::Dleft),
            ValueRef::Busy { kind, .. } => kind,
            #[cfg(test)]
            ValueRef::Opaque => Some(Kind::Opaque),
        }
    }

    /// Remember an access at second `now` of the keyspace's clock. Written only when the second changed, or when the count
    /// of uses is kept and changes, so that readers on several cores don't pass the cache line around.
    pub fn touch(self, now: u32, counts: bool) {
        let stamp = &self.header().stamp;
        let (old, now) = (stamp.load(Ordering::Relaxed), now & SECONDS);
        let uses = if counts { more_uses(old, now) } else { old >> SECONDS_BITS };
        let new = uses << SECONDS_BITS | now;
        if new != old {
            stamp.store(new, Ordering::Relaxed);
        }
    }

    /// The stamp of the last access as it is kept, to be carried over with [`EntryRef::set_stamp`].
    #[must_use]
    pub fn stamp(self) -> u32 {
        self.header().stamp.load(Ordering::Relaxed)
    }

    /// Carry over the stamp of another entry.
    pub fn set_stamp(self, stamp: u32) {
        self.header().stamp.store(stamp, Ordering::Relaxed);
    }

    /// Seconds since the last access.
    #[must_use]
    pub fn idle(self, now: u32) -> u32 {
        now.wrapping_sub(self.stamp()) & SECONDS
    }

    /// How much the key is used, 0 to 255: grows with the logarithm of the number of accesses, and falls by one each minute
    /// without.
    #[must_use]
    pub fn uses(self, now: u32) -> u32 {
        decayed_uses(self.stamp(), now)
    }

    /// Set how much the key is used.
    pub fn set_uses(self, uses: u8) {
        self.set_stamp(u32::from(uses) << SECONDS_BITS | self.stamp() & SECONDS);
    }

    /// Set how long the key was not used.
    pub fn set_idle(self, seconds: u32, now: u32) {
        self.set_stamp(self.stamp() & !SECONDS | now.wrapping_sub(seconds) & SECONDS);
    }

    /// Bytes that the key holds: its allocation, the value's own ones, each rounded up to what the allocator gives out
    /// for it. The table's slot is not in it.
    #[must_use]
    pub fn allocated_bytes(self) -> usize {
        self.footprint().bytes()
    }

    /// The same, divided.
    #[must_use]
    pub fn footprint(self) -> Footprint {
        let own = size_class(self.parts().size);
        if self.form() != Form::Boxed {
            return Footprint { heap: own, mapped: 0 };
        }
        let value = size_class(size_of::<Value>());
        let (heap, mapped) = match self.value() {
            ValueRef::Bloom(BloomRef::Large(bloom)) => (bloom.heap_bytes(size_class), bloom.mapped_bytes()),
            ValueRef::Ring(RingRef::Large(ring)) => (size_class(size_of::<Ring>()) + ring.heap_bytes(size_class), 0),
            ValueRef::Counting(CountingRef::Large(filter)) => {
                (size_class(size_of::<CountingBloom>()) + filter.heap_bytes(size_class), filter.mapped_bytes())
            }
            ValueRef::Dleft(DleftRef::Large(filter)) => {
                (size_class(size_of::<Dleft>()) + filter.heap_bytes(size_class), filter.mapped_bytes())
            }
            ValueRef::HalfRing(half) => half.footprint(size_class),
            ValueRef::HalfCounting(half) => half.footprint(size_class),
            ValueRef::HalfDleft(half) => half.footprint(size_class),
            _ => (0, 0),
        };
        Footprint { heap: own + value + heap, mapped }
    }
}

/// Bytes that something holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Those that the allocator gave.
    pub heap: usize,
    /// Those in memory mappings, of which the allocator does not know.
    pub mapped: usize,
}

impl Footprint {
    /// All of them.
    #[must_use]
    pub fn bytes(self) -> usize {
        self.heap + self.mapped
    }
}

impl std::ops::Add for Footprint {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { heap: self.heap + other.heap, mapped: self.mapped + other.mapped }
    }
}

/// The lower 24 bits of a stamp are the second of the last access; the upper 8 count uses.
const SECONDS_BITS: u32 = 24;
const SECONDS: u32 = (1 << SECONDS_BITS) - 1;
/// A new key counts as used this much, so that it is not the first to go.
const FIRST_USES: u32 = 5;
const MOST_USES: u32 = 255;
/// The count rises with probability 1 / ((count - FIRST_USES) * USES_FACTOR + 1): a million accesses take it to its end.
const USES_FACTOR: u32 = 10;
const DECAY_SECONDS: u32 = 60;

fn decayed_uses(stamp: u32, now: u32) -> u32 {
    let idle = now.wrapping_sub(stamp) & SECONDS;
    (stamp >> SECONDS_BITS).saturating_sub(idle / DECAY_SECONDS)
}

fn more_uses(stamp: u32, now: u32) -> u32 {
    let uses = decayed_uses(stamp, now);
    let chance = uses.saturating_sub(FIRST_USES) * USES_FACTOR + 1;
    if uses < MOST_USES && fastrand::u32(..chance) == 0 { uses + 1 } else { uses }
}

fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(bytes);
    out
}

fn layout_of(name_len: usize, has_life: bool, payload_len: usize) -> Parts {
    let long_name = if name_len >= LONG_NAME as usize { size_of::<u32>() } else { 0 };
    let life_len = if has_life { LIFE_BYTES } else { 0 };
    let short = HEADER_BYTES + long_name + life_len + name_len + payload_len;
    let long_size = if short > PACKED_ENTRY_BYTES { size_of::<u64>() } else { 0 };
    let life = HEADER_BYTES + long_size + long_name;
    let name = life + life_len;
    Parts { size: short + long_size, life, name, payload: name + name_len }
}

/// So many bytes, and what the allocator would waste.
fn roomy(name: &[u8], life: Option<u64>, payload_len: usize) -> usize {
    let size = layout_of(name.len(), life.is_some(), payload_len).size;
    let waste = size_class(size).min(PACKED_ENTRY_BYTES).saturating_sub(size);
    // What a life would take later is left free, or the key would be moved to the next size for it.
    let roomy = payload_len + if life.is_some() { waste } else { waste.saturating_sub(LIFE_BYTES) };
    if packs(name, roomy) { roomy } else { payload_len }
}

/// Whether a value of so many bytes can stand in the entry of this name. Asked without regard to a life, so that a value
/// does not change its form when it gets one.
#[must_use]
pub fn packs(name: &[u8], payload_len: usize) -> bool {
    payload_len <= PACKED_ENTRY_BYTES && layout_of(name.len(), true, payload_len).size <= PACKED_ENTRY_BYTES
}

const TAG_SHIFT: u32 = 48;
const ADDRESS: u64 = (1 << TAG_SHIFT) - 1;

/// An owned entry with 16 bits of its name's hash, in eight bytes.
#[repr(transparent)]
pub struct TaggedEntry(NonZeroU64);

impl TaggedEntry {
    /// Take the entry, under this tag.
    #[must_use]
    pub fn new(entry: Entry, tag: u16) -> Self {
        let entry = ManuallyDrop::new(entry);
        let address = entry.header.as_ptr() as u64;
        Self(NonZeroU64::new(address | u64::from(tag) << TAG_SHIFT).expect("a pointer is not null"))
    }

    /// The tag.
    #[must_use]
    pub fn tag(&self) -> u16 {
        (self.0.get() >> TAG_SHIFT) as u16
    }

    fn header(&self) -> NonNull<Header> {
        NonNull::new((self.0.get() & ADDRESS) as *mut Header).expect("an entry has an address")
    }

    /// The entry, for reading.
    #[must_use]
    pub fn entry(&self) -> EntryRef<'_> {
        EntryRef { header: self.header(), owner: PhantomData }
    }

    /// The entry, for writing and replacing.
    pub(super) fn entry_mut(&mut self) -> EntryGuard<'_> {
        let entry = ManuallyDrop::new(Entry { header: self.header() });
        EntryGuard { home: self, entry }
    }

    /// The entry itself.
    #[must_use]
    pub fn into_entry(self) -> Entry {
        let this = ManuallyDrop::new(self);
        Entry { header: this.header() }
    }
}

impl Drop for TaggedEntry {
    fn drop(&mut self) {
        drop(Entry { header: self.header() });
    }
}

/// Exclusive access to an entry in a table; what stands in it at the end stays there. It must be dropped, not forgotten: so it
/// never leaves the keyspace.
pub(super) struct EntryGuard<'a> {
    home: &'a mut TaggedEntry,
    entry: ManuallyDrop<Entry>,
}

impl Deref for EntryGuard<'_> {
    type Target = Entry;
    fn deref(&self) -> &Entry {
        &self.entry
    }
}

impl DerefMut for EntryGuard<'_> {
    fn deref_mut(&mut self) -> &mut Entry {
        &mut self.entry
    }
}

impl Drop for EntryGuard<'_> {
    fn drop(&mut self) {
        // The holder may have put another entry here; the old one was dropped then.
        let address = self.entry.header.as_ptr() as u64;
        let tag = self.home.0.get() & !ADDRESS;
        self.home.0 = NonZeroU64::new(address | tag).expect("a pointer is not null");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_every_length_come_back() {
        for len in [0, 1, 11, 254, 255, 256, 65_530, 70_000, 1 << 20] {
            let name = vec![b'n'; len];
            let entry = Entry::boxed(&name, None, Value::Opaque).unwrap();
            assert_eq!(entry.name(), name);
            assert!(matches!(entry.value(), ValueRef::Opaque));
            assert!(entry.allocated_bytes() > len);
        }
    }

    #[test]
    fn payload_is_behind_the_name() {
        let entry = Entry::packed_bloom(b"user:123456", None, 93, |payload| {
            assert_eq!(payload.len(), 93);
            payload.fill(7);
        })
        .unwrap();
        assert_eq!(entry.name(), b"user:123456");
        assert_eq!(entry.allocated_bytes(), 112);
    }

    #[test]
    fn lives_come_and_go_and_names_change() {
        for name in [&b"n"[..], &[b'x'; 300], &[b'y'; 65_400]] {
            let mut entry = Entry::packed_bloom(name, None, 40, |payload| payload.fill(9)).unwrap();
            let mut boxed = Entry::boxed(name, Some(5), Value::Opaque).unwrap();
            for life in [Some(1), Some(LATEST_LIFE), None, None, Some(1_700_000_000_123)] {
                entry.set_life(life).unwrap();
                boxed.set_life(life).unwrap();
                assert_eq!((entry.as_ref().life(), entry.name()), (life, name));
                assert_eq!((boxed.as_ref().life(), boxed.name()), (life, name));
                assert!(entry.payload_mut().iter().all(|byte| *byte == 9) && entry.payload_mut().len() == 40);
                assert!(matches!(boxed.value(), ValueRef::Opaque));
            }
            for other in [&b""[..], &[b'z'; 65_600], b"user:1"] {
                entry.rename(other).unwrap();
                boxed.rename(other).unwrap();
                assert_eq!((entry.name(), boxed.name()), (other, other));
                assert_eq!(boxed.as_ref().life(), Some(1_700_000_000_123));
                assert!(matches!(boxed.value(), ValueRef::Opaque) && entry.payload_mut() == [9; 40]);
            }
        }
    }

    #[test]
    fn tagged_entry_is_eight_bytes_and_keeps_its_tag() {
        assert_eq!(size_of::<Option<TaggedEntry>>(), 8);
        let mut tagged = TaggedEntry::new(Entry::boxed(b"a", None, Value::Opaque).unwrap(), 0xfedc);
        *tagged.entry_mut() = Entry::boxed(b"b", None, Value::Opaque).unwrap();
        assert_eq!((tagged.tag(), tagged.entry().name()), (0xfedc, &b"b"[..]));
        assert_eq!(tagged.into_entry().name(), b"b");
    }
}
