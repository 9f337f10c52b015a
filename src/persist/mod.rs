//! What outlives the process: snapshots, the append-only log, how they are read again.

pub mod files;
pub mod live;
pub mod log;
pub mod origin;
pub mod record;
pub mod recovery;
pub mod redo;
pub mod replay;
pub mod simulated;
pub mod snapshot;
