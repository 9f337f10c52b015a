//! Memory that stays in memory.
//!
//! A filter that was not used for a while may be swapped out, and its first questions then wait for the disk. Locked memory is
//! not. Pages are locked when they are first touched: a filter that was reserved and not filled takes no memory by this.

use std::io;

/// Lock what there is and what will be.
///
/// # Errors
/// Those of the system, for example that the limit of locked memory does not allow it.
pub(super) fn lock() -> io::Result<()> {
    // SAFETY: the call changes how pages are kept, and no content.
    match unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE | libc::MCL_ONFAULT) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
