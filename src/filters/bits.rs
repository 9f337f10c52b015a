//! A zeroed array of bits that threads may share.
//!
//! **Order.** Bit `x` lives in byte `x >> 3` at value `1 << (x & 7)`: the byte order of RedisBloom's dumps. Memory is read
//! and written in 64-bit words only; [`word_of`] and [`mask_of`] hide the machine's byte order.
//!
//! **Why words.** Popcounts, dumps and before-images of a snapshot go by word, and accesses of different sizes to the same
//! memory at the same time are undefined in Rust's memory model, so one size serves all. A locked `or` of a word costs what
//! one of a byte does.
//!
//! **Where the bytes are.**
//!
//! | size | memory |
//! | --- | --- |
//! | below 4 KiB | the allocator, aligned to a word |
//! | below 2 MiB | the allocator, aligned to a cache line |
//! | from 2 MiB | a mapping of its own, aligned to 2 MiB, huge pages asked for, as long as there are not too many |
//!
//! A probe of a filter larger than the cache costs one miss in memory and, with 4 KiB pages, about one in the page tables;
//! huge pages save the second. Mappings end at a normal page, not at 2 MiB: rounding up would nearly double a filter of
//! 2.1 MiB. The kernel hands out zeroed pages, so fresh arrays are not written. An allocator does not see such mappings;
//! [`mapped_bytes`] counts them.
//!
//! Creation fails with an error, never with an abort.

use std::alloc::Layout;
use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

/// From this size on an array is a memory mapping of its own; also the size of a huge page.
pub const MAPPED_FROM_BYTES: usize = 2 << 20;
/// From this size on an array from the allocator starts at a cache line.
const LINE_ALIGNED_FROM_BYTES: usize = 4 << 10;
const LINE_BYTES: usize = 64;
const WORD_BYTES: usize = 8;

static MAPPED: AtomicU64 = AtomicU64::new(0);
static MAPPINGS: AtomicUsize = AtomicUsize::new(0);

/// A process may have only so many mappings (65,530 by default), and the allocator needs some: half of them are for arrays, the
/// others come from the allocator, whatever their size.
static MOST_MAPPINGS: LazyLock<usize> = LazyLock::new(|| {
    const DEFAULT: usize = 65_530;
    let text = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap_or_default();
    text.trim().parse().unwrap_or(DEFAULT) / 2
});

/// Count one mapping more, if there may be one.
fn reserve_mapping() -> bool {
    let more = |count| (count < *MOST_MAPPINGS).then_some(count + 1);
    MAPPINGS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
}

/// Bytes of all [`BitArray`]s alive that are memory mappings of their own, which no allocator's statistics include.
pub fn mapped_bytes() -> u64 {
    MAPPED.load(Ordering::Relaxed)
}

/// Memory for an array was not to be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{bytes} bytes could not be allocated")]
pub struct AllocError {
    /// How many bytes were asked for.
    pub bytes: u64,
}

/// Index of the word that holds bit `x`.
#[inline(always)]
pub fn word_of(x: u64) -> usize {
    (x >> 6) as usize
}

/// The bit `x` inside its word, as that word stands in memory.
#[inline(always)]
pub fn mask_of(x: u64) -> u64 {
    (1u64 << (x & 63)).to_le()
}

/// Asks the processor for the cache line at which `place` begins; a hint without effect on any value.
#[inline(always)]
pub fn prefetch<T>(place: &T) {
    prefetch_at(std::ptr::from_ref(place));
}

/// The same for an address, which may be any.
#[inline(always)]
#[allow(clippy::not_unsafe_ptr_arg_deref, reason = "nothing is read")]
pub fn prefetch_at<T>(address: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch never faults, reads no value and needs no processor feature beyond x86-64's baseline.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// An array of bits, all zero at first. See the [module](self) for its layout.
pub struct BitArray {
    /// Where `memory` begins: kept here too, so that a probe follows one pointer only.
    words: NonNull<AtomicU64>,
    /// Length in bytes as asked for.
    len: usize,
    memory: Arc<Memory>,
}

/// The memory of an array, freed when the last handle of it goes.
struct Memory {
    words: NonNull<AtomicU64>,
    /// Bytes really held: the length rounded up to a word, or to a page for a mapping.
    held: usize,
    mapped: bool,
}

// SAFETY: a `Memory` owns what it points to alone, as a `Box<[AtomicU64]>` would, and nothing in it depends on the thread.
unsafe impl Send for Memory {}
// SAFETY: by itself it gives no access at all.
unsafe impl Sync for Memory {}
// SAFETY: the pointer is that of `memory`, which is Send and lives as long.
unsafe impl Send for BitArray {}
// SAFETY: through a shared reference, and through several handles, the memory is reached only as `AtomicU64`s; plain access needs
// `&mut` of the only handle.
unsafe impl Sync for BitArray {}

impl BitArray {
    /// Bytes of the heap that an array takes beside its bits.
    pub const HANDLE_BYTES: usize = size_of::<Memory>() + 2 * size_of::<usize>();

    /// An array of `bytes` zero bytes.
    ///
    /// # Errors
    ///
    /// [`AllocError`] with the bytes asked for, when there is no memory or no address space for them.
    pub fn zeroed(bytes: u64) -> Result<BitArray, AllocError> {
        let refused = AllocError { bytes };
        let len = usize::try_from(bytes).map_err(|_| refused)?;
        if len == 0 {
            return Ok(BitArray::of(NonNull::dangling(), len, 0, false));
        }
        let mapped = len >= MAPPED_FROM_BYTES && reserve_mapping();
        let memory = if mapped { map(len) } else { allocate(len) };
        if mapped && memory.is_none() {
            MAPPINGS.fetch_sub(1, Ordering::Relaxed);
        }
        let (words, held) = memory.ok_or(refused)?;
        Ok(BitArray::of(words, len, held, mapped))
    }

    fn of(words: NonNull<AtomicU64>, len: usize, held: usize, mapped: bool) -> BitArray {
        BitArray { words, len, memory: Arc::new(Memory { words, held, mapped }) }
    }

    /// A second handle of the same bits. They stay as long as one of the handles does.
    pub fn share(&self) -> BitArray {
        BitArray { words: self.words, len: self.len, memory: self.memory.clone() }
    }

    /// Length in bytes, as asked for.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the array has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether the array is a memory mapping of its own.
    pub fn is_mapped(&self) -> bool {
        self.memory.mapped
    }

    /// Bytes really held: the length rounded up to whole words, or to whole pages for a mapping. The allocator may round
    /// the former up once more.
    pub fn allocated_bytes(&self) -> usize {
        self.memory.held
    }

    /// The array as words to share; bytes beyond the length in the last one are zero.
    #[inline(always)]
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: `words` points to at least `len` rounded up to words, zeroed at creation, aligned for u64 (dangling but
        // aligned when empty), kept by `memory` and freed only when its last handle is dropped. All shared access is atomic and of this one size.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr(), self.len.div_ceil(WORD_BYTES)) }
    }

    /// The array as plain words, for an owner that shares it with nobody.
    ///
    /// # Panics
    ///
    /// If there is a second handle.
    pub fn words_mut(&mut self) -> &mut [u64] {
        assert!(
            Arc::get_mut(&mut self.memory).is_some(),
            "a bit array that is shared is not to be written as a plain one"
        );
        // SAFETY: as in `words`; `&mut self` of the only handle excludes every other access, and AtomicU64 has the layout of
        // u64 (same size, and an alignment that is at least as strict).
        unsafe { std::slice::from_raw_parts_mut(self.words.as_ptr().cast(), self.len.div_ceil(WORD_BYTES)) }
    }

    /// Number of set bits.
    pub fn count_ones(&self) -> u64 {
        self.words().iter().map(|word| u64::from(word.load(Ordering::Relaxed).count_ones())).sum()
    }

    /// Copies the bytes from `offset` on into `buf`. Other threads may set bits meanwhile; each word is read once.
    ///
    /// # Panics
    ///
    /// If the range does not lie inside the array.
    pub fn copy_bytes(&self, offset: usize, buf: &mut [u8]) {
        let (words, skip) = self.range(offset, buf.len());
        let (head, body) = buf.split_at_mut(skip.min(buf.len()));
        let mut words = words.iter().map(|word| word.load(Ordering::Relaxed).to_ne_bytes());
        if !head.is_empty()
            && let Some(bytes) = words.next()
        {
            let start = WORD_BYTES - skip;
            head.copy_from_slice(&bytes[start..start + head.len()]);
        }
        for (to, bytes) in body.chunks_mut(WORD_BYTES).zip(words) {
            to.copy_from_slice(&bytes[..to.len()]);
        }
    }

    /// Ors `data` into the bytes from `offset` on. Other threads may read and set bits meanwhile.
    ///
    /// # Panics
    ///
    /// If the range does not lie inside the array.
    pub fn or_bytes(&self, offset: usize, data: &[u8]) {
        let (words, skip) = self.range(offset, data.len());
        let (head, body) = data.split_at(skip.min(data.len()));
        let mut words = words.iter();
        let or = |word: &AtomicU64, bytes: [u8; WORD_BYTES]| match u64::from_ne_bytes(bytes) {
            0 => 0,
            bits => word.fetch_or(bits, Ordering::Release),
        };
        if !head.is_empty()
            && let Some(word) = words.next()
        {
            let mut bytes = [0; WORD_BYTES];
            let start = WORD_BYTES - skip;
            bytes[start..start + head.len()].copy_from_slice(head);
            or(word, bytes);
        }
        for (from, word) in body.chunks(WORD_BYTES).zip(words) {
            let mut bytes = [0; WORD_BYTES];
            bytes[..from.len()].copy_from_slice(from);
            or(word, bytes);
        }
    }

    /// The words that hold `offset..offset + len`, and how many bytes of the first one belong to the range when it does
    /// not begin with it (0 when it does).
    fn range(&self, offset: usize, len: usize) -> (&[AtomicU64], usize) {
        let end = offset.checked_add(len).filter(|&end| end <= self.len);
        let Some(end) = end else {
            panic!("bytes {offset}..+{len} of a bit array of {}", self.len);
        };
        let skip = offset.next_multiple_of(WORD_BYTES) - offset;
        (&self.words()[offset / WORD_BYTES..end.div_ceil(WORD_BYTES)], skip)
    }
}

impl fmt::Debug for BitArray {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BitArray").field("len", &self.len).field("held", &self.memory.held).finish_non_exhaustive()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.held == 0 {
            return;
        }
        if self.mapped {
            // SAFETY: `words..+held` is a whole mapping made by `map`, unmapped only here.
            let unmapped = unsafe { libc::munmap(self.words.as_ptr().cast(), self.held) };
            // It fails only when a neighbour would have to be split and there are too many mappings: then it stays.
            if unmapped == 0 {
                MAPPED.fetch_sub(self.held as u64, Ordering::Relaxed);
                MAPPINGS.fetch_sub(1, Ordering::Relaxed);
            }
        } else if let Some(layout) = layout(self.held) {
            // SAFETY: the memory came from `alloc_zeroed` with this same layout: it depends on `held` alone.
            unsafe { std::alloc::dealloc(self.words.as_ptr().cast(), layout) };
        }
    }
}

/// Layout of an allocation of `held` bytes, a multiple of a word.
fn layout(held: usize) -> Option<Layout> {
    let align = if held < LINE_ALIGNED_FROM_BYTES { WORD_BYTES } else { LINE_BYTES };
    Layout::from_size_align(held, align).ok()
}

/// Zeroed memory for `len` bytes (not 0) from the allocator, with its size.
fn allocate(len: usize) -> Option<(NonNull<AtomicU64>, usize)> {
    let held = len.next_multiple_of(WORD_BYTES);
    let layout = layout(held)?;
    // SAFETY: the layout has a size above 0.
    let memory = unsafe { std::alloc::alloc_zeroed(layout) };
    Some((NonNull::new(memory.cast())?, held))
}

/// Zeroed memory for `len` bytes as a mapping that starts at a huge page, with its size.
fn map(len: usize) -> Option<(NonNull<AtomicU64>, usize)> {
    let page = page_bytes();
    let held = len.checked_next_multiple_of(page)?;
    let spare = MAPPED_FROM_BYTES.max(page);
    let reserved = held.checked_add(spare).filter(|&bytes| isize::try_from(bytes).is_ok())?;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new anonymous mapping at an address of the kernel's choice touches no memory of ours.
    let memory = unsafe { libc::mmap(std::ptr::null_mut(), reserved, access, flags, -1, 0) };
    if memory == libc::MAP_FAILED {
        return None;
    }
    // What surrounds the aligned part goes back: `head` before it, the rest of `spare` after it. Both are whole pages.
    let head = memory.addr().next_multiple_of(MAPPED_FROM_BYTES) - memory.addr();
    // SAFETY: `head <= spare`, so the aligned part lies inside the mapping just made, and so do the two parts unmapped,
    // which nobody has seen yet. The advice changes no content; where it is not known, small pages serve as well.
    unsafe {
        let words = memory.byte_add(head);
        if head > 0 {
            libc::munmap(memory, head);
        }
        if spare > head {
            libc::munmap(words.byte_add(held), spare - head);
        }
        #[cfg(target_os = "linux")]
        libc::madvise(words, held, libc::MADV_HUGEPAGE);
        MAPPED.fetch_add(held as u64, Ordering::Relaxed);
        Some((NonNull::new(words.cast())?, held))
    }
}

/// Size of a normal page of the machine.
fn page_bytes() -> usize {
    // SAFETY: asks for a constant of the system.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).unwrap_or(4 << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_are_zero_and_aligned_at_every_size() {
        for len in
            [1, 7, 8, 9, 4095, 4096, 4097, MAPPED_FROM_BYTES - 1, MAPPED_FROM_BYTES, MAPPED_FROM_BYTES + 1, 5 << 20]
        {
            let mut array = BitArray::zeroed(len as u64).unwrap();
            assert_eq!((array.len(), array.count_ones()), (len, 0));
            let align = match len {
                MAPPED_FROM_BYTES.. => MAPPED_FROM_BYTES,
                4096.. => 64,
                _ => 8,
            };
            assert_eq!(array.words().as_ptr().addr() % align, 0, "{len}");
            assert_eq!(array.is_mapped(), len >= MAPPED_FROM_BYTES);
            let unit = if array.is_mapped() { page_bytes() } else { 8 };
            assert_eq!(array.allocated_bytes(), len.next_multiple_of(unit));
            // All of it is ours to write.
            array.words_mut().fill(u64::MAX);
            assert_eq!(array.count_ones(), len.div_ceil(8) as u64 * 64);
        }
        let empty = BitArray::zeroed(0).unwrap();
        assert!(empty.is_empty() && empty.words().is_empty() && empty.allocated_bytes() == 0);
        empty.copy_bytes(0, &mut []);
    }

    #[test]
    fn what_cannot_be_had_is_an_error() {
        for bytes in [1 << 60, 1 << 62, u64::MAX - 4096, u64::MAX] {
            assert_eq!(BitArray::zeroed(bytes).unwrap_err(), AllocError { bytes });
        }
    }

    #[test]
    fn mappings_are_counted_while_they_live() {
        // Other tests map at the same time, but nowhere near this much.
        const BYTES: u64 = 1 << 30;
        let mut most = 0;
        for _ in 0..4 {
            let array = BitArray::zeroed(BYTES).unwrap();
            assert!(mapped_bytes() >= array.allocated_bytes() as u64);
            most = most.max(mapped_bytes());
        }
        assert!(most < 2 * BYTES && mapped_bytes() < BYTES);
    }

    #[test]
    fn bit_order_is_least_significant_first() {
        let array = BitArray::zeroed(32).unwrap();
        for x in [0, 9, 63, 64, 130, 255] {
            array.words()[word_of(x)].fetch_or(mask_of(x), Ordering::Relaxed);
            let mut bytes = [0; 32];
            array.copy_bytes(0, &mut bytes);
            assert_ne!(bytes[(x >> 3) as usize] & 1 << (x & 7), 0, "{x}");
        }
        assert_eq!(array.count_ones(), 6);
    }

    #[test]
    fn runs_of_bytes_at_every_offset_and_length() {
        for len in [1usize, 15, 16, 40] {
            for start in 0..len {
                for end in start..=len {
                    let array = BitArray::zeroed(len as u64).unwrap();
                    let data: Vec<u8> = (1..).take(end - start).collect();
                    array.or_bytes(start, &data);
                    let mut all = vec![0xff; len];
                    array.copy_bytes(0, &mut all);
                    let mut expected = vec![0; len];
                    expected[start..end].copy_from_slice(&data);
                    assert_eq!(all, expected);
                    let mut run = vec![0xff; end - start];
                    array.copy_bytes(start, &mut run);
                    assert_eq!(run, data);
                }
            }
        }
    }

    #[test]
    #[should_panic(expected = "bytes 10..+7 of a bit array of 16")]
    fn a_run_beyond_the_end_is_a_fault_of_the_caller() {
        BitArray::zeroed(16).unwrap().copy_bytes(10, &mut [0; 7]);
    }
}
