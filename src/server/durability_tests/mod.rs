//! Durability on a disk that fails, end to end in one process.
//!
//! A [`World`] is a machine on a [simulated disk](crate::persist::simulated) beside the history of all states that its keys
//! ever had. Any call may fail, and the power may go at any moment: what a start finds then must be one of those states, and
//! none from before what was promised.

mod faults;
mod histories;
mod places;
mod slow;
mod snapshots;
mod switching;
mod world;

use world::World;

/// A number from the environment, so that more can be tried than in each run.
fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}
