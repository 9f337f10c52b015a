//! What outlives the process: snapshots, the append-only log, how they are read again.

pub mod files;
pub mod log;
pub mod record;
pub mod replay;
pub mod simulated;
