//! The append-only log on disk: what was appended comes back, whatever happens to the machine and its disk.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "log_files/damage.rs"]
mod damage;
#[path = "log_files/faults.rs"]
mod faults;
#[path = "log_files/full_disk.rs"]
mod full_disk;
#[path = "log_files/model.rs"]
mod model;
#[path = "log_files/power_loss.rs"]
mod power_loss;
#[path = "log_files/round_trips.rs"]
mod round_trips;
