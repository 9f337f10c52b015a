//! What the integration tests share: a started server, a client that sees raw bytes, fixed random numbers.
//!
//! A test starts its own server on a free port, in a folder of its own, and stops it when the [`Server`] goes out of
//! scope; when the test fails, the server's log is printed. Nothing here sleeps to wait: it asks until the answer comes.
//!
//! `SEENDB_TEST_TARGET=peer` runs a suite against RedisBloom instead of `seendb`. That is for looking at the suite
//! itself: the differential test must then find no difference at all without a single rule.

#![allow(dead_code, reason = "every test program uses another part of this module")]
#![allow(unused_imports, reason = "same")]

pub mod chunks;
mod client;
pub mod filters;
mod pipe;
mod random;
mod server;

pub use client::{Client, Value, encode, read_value, show_args, show_bytes};
pub use pipe::pipe;
pub use random::Random;
pub use server::{Server, free_port, target_is_peer};

/// Asks `ready` until it says yes, for at most 30 seconds.
pub fn wait_until(what: &str, mut ready: impl FnMut() -> bool) {
    let end = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while !ready() {
        assert!(std::time::Instant::now() < end, "waited 30 s in vain for {what}");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}
