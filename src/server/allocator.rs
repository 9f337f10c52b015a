//! The allocator's figures, and its giving back of memory.

use crate::filters::bits::mapped_bytes;

use tikv_jemalloc_ctl::{epoch, stats};

/// The allocator's figures of one moment, in bytes.
pub(super) struct Heap {
    /// Given out.
    pub(super) allocated: u64,
    /// Of the pages that hold something that is given out: more than that by the holes in them.
    pub(super) active: u64,
    /// Of memory that the system holds for it: more than that by pages that wait to be used again.
    pub(super) resident: u64,
}

impl Heap {
    pub(super) fn now() -> Self {
        // The figures are a copy that has to be asked for.
        let _ = epoch::advance();
        let [allocated, active, resident] = [stats::allocated::read(), stats::active::read(), stats::resident::read()]
            .map(|figure| figure.unwrap_or(0) as u64);
        Self { allocated, active, resident }
    }
}

/// Bytes allocated, and mapped for large filters.
pub(super) fn allocated_bytes() -> u64 {
    Heap::now().allocated + mapped_bytes()
}

/// Let the allocator give back all that it does not need.
pub(super) fn give_all_back() {
    command(c"arena.4096.purge");
}

/// Let the allocator give back what has not been used for its decay time. It does so by itself only when it is called, and
/// what a thread has freed that then sleeps would stay.
pub(super) fn give_back() {
    command(c"arena.4096.decay");
}

/// Tell the allocator to do something; 4096 stands for all arenas.
fn command(name: &std::ffi::CStr) {
    // SAFETY: the call reads its name, a C string, and neither input nor output is given.
    unsafe {
        tikv_jemalloc_sys::mallctl(name.as_ptr(), std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut(), 0);
    }
}
