//! Filters as bytes: dump chunks and, on top of them, whatever keeps filters. Where the bytes go is not known here.
//!
//! Everything that reads treats its input as hostile: every field is checked before it is used, sums are checked, and no
//! memory is taken before the caller's limit was asked.

pub mod bloom;

#[cfg(test)]
mod bloom_tests;
