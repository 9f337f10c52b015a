//! The allocator's figures, and its giving back of memory.

use crate::filters::bits::mapped_bytes;

/// Bytes allocated.
pub(super) fn heap_bytes() -> u64 {
    // The allocator's figures are a copy that has to be asked for.
    let _ = tikv_jemalloc_ctl::epoch::advance();
    tikv_jemalloc_ctl::stats::allocated::read().unwrap_or(0) as u64
}

/// Bytes allocated, and mapped for large filters.
pub(super) fn allocated_bytes() -> u64 {
    heap_bytes() + mapped_bytes()
}

/// Let the allocator give back what has not been used for its decay time. It does so by itself only when it is called, and
/// what a thread has freed that then sleeps would stay.
pub(super) fn give_back() {
    // 4096 stands for all arenas.
    const DECAY: &std::ffi::CStr = c"arena.4096.decay";
    // SAFETY: the call reads its name, a C string, and neither input nor output is given.
    unsafe {
        tikv_jemalloc_sys::mallctl(DECAY.as_ptr(), std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut(), 0);
    }
}
