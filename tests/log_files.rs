//! The append-only log on disk: what was appended comes back, whatever happens to the machine and its disk.

#[path = "log_files/round_trips.rs"]
mod round_trips;
