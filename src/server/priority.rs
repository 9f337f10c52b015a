//! Threads that stand back.

/// What the thread's niceness is raised to: on a busy core it gets about a tenth of what a thread gets that serves clients.
const NICENESS: libc::c_int = 10;

/// Let this thread stand back behind those that serve clients. Where that is not allowed it stays as it is.
pub(super) fn stand_back() {
    // SAFETY: the call takes numbers only; on Linux it concerns the calling thread alone.
    unsafe {
        libc::setpriority(libc::PRIO_PROCESS, 0, NICENESS);
    }
}
