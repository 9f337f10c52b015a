//! The time as the keyspace sees it: the system's, or one that a test sets.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Tells the time in milliseconds since 1970.
#[derive(Default)]
pub struct Clock {
    /// The time that was set; 0 for the system's.
    set: AtomicU64,
}

impl Clock {
    /// The time now.
    #[must_use]
    pub fn now(&self) -> u64 {
        match self.set.load(Ordering::Relaxed) {
            0 => UNIX_EPOCH.elapsed().map_or(0, |since| since.as_millis() as u64),
            set => set,
        }
    }

    /// Stop the clock at this time, in milliseconds since 1970; 0 lets it go with the system again.
    pub fn set(&self, now: u64) {
        self.set.store(now, Ordering::Relaxed);
    }

    /// The system's time as seconds and microseconds, for `TIME`.
    #[must_use]
    pub fn wall() -> (u64, u32) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        (now.as_secs(), now.subsec_micros())
    }
}
