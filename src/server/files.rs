//! The limit of open files, and the number of clients that fits under it.

use crate::config::Settings;

/// Descriptors that the server needs for itself: listeners, log, runtimes.
const RESERVED: u64 = 32;

/// How many clients the process may have open at most, after raising the limit as far as it goes.
pub(super) fn raise_limit(settings: &Settings) -> u64 {
    let wanted = u64::from(settings.maxclients()) + RESERVED;
    let clients = set_limit(wanted).saturating_sub(RESERVED).max(1);
    if clients < u64::from(settings.maxclients()) {
        tracing::warn!(
            "maxclients lowered to {clients}: the limit of open files allows no more; raise it with 'ulimit -n {wanted}'"
        );
    }
    clients
}

/// Raise the limit of open files to what is wanted, or as far as the hard limit allows; returns the limit in force.
pub(super) fn set_limit(wanted: u64) -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the call fills in the structure it is given.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return 1024;
    }
    if limit.rlim_cur < wanted {
        let raised = libc::rlimit { rlim_cur: wanted.min(limit.rlim_max), ..limit };
        // SAFETY: the call only reads the structure.
        if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const raised) } == 0 {
            return raised.rlim_cur;
        }
    }
    limit.rlim_cur
}

/// Room for so many clients: whether the limit of open files allows them, raising it if it must.
pub(super) fn allows(clients: u64) -> bool {
    set_limit(clients + RESERVED) >= clients + RESERVED
}
