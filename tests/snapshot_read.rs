//! Reading snapshots: written by hand, damaged in every place, and by a real Redis and a real Valkey.
//!
//! | part | holds |
//! | --- | --- |
//! | `file` | a file in memory, a writer of snapshots with and without marks, what a keyspace holds |
//! | `types` | values of every type and every opcode |
//! | `filters` | Bloom filters in all encodings and sizes, lives, use |
//! | `rings` | rings of all kinds and sizes, loads that are not over, damage to them |
//! | `cells` | counting and d-left filters of all kinds and sizes, loads that are not over, damage to them |
//! | `damage` | cut at every byte, every byte changed, marks and blocks lost |
//! | `peer` | files of Redis with RedisBloom, and of Valkey |
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "snapshot_read/cells.rs"]
mod cells;
#[path = "snapshot_read/damage.rs"]
mod damage;
#[path = "snapshot_read/file.rs"]
mod file;
#[path = "snapshot_read/filters.rs"]
mod filters;
#[path = "payload/model.rs"]
#[allow(dead_code, reason = "another test program uses the rest")]
mod model;
#[cfg(feature = "server")]
#[path = "snapshot_read/peer.rs"]
mod peer;
#[path = "snapshot_read/rings.rs"]
mod rings;
#[cfg(feature = "server")]
mod support;
#[path = "snapshot_read/types.rs"]
mod types;
