//! What outlives the process: effects as records, and how they are done again.

pub mod record;
pub mod replay;
