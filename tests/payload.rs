//! DUMP payloads of Bloom chains: recorded ones, old encodings, hostile bytes, and a real Redis with RedisBloom.
//!
//! | part | holds |
//! | --- | --- |
//! | `model` | payloads written down from the description of the format, and chains to put into them |
//! | `pieces` | checksum, lengths, module ids, strings |
//! | `frame` | versions, checksums, other types |
//! | `vectors` | the recorded payloads, field by field |
//! | `fields` | encodings 0 to 4: what is taken, what is refused |
//! | `round_trips` | chains of all kinds there and back, in one piece and in steps |
//! | `hostile` | damaged payloads: no panic, and no memory beyond what they hold |
//! | `peer` | the same filters in RedisBloom |
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "payload/fields.rs"]
mod fields;
#[path = "payload/frame.rs"]
mod frame;
#[path = "payload/hostile.rs"]
mod hostile;
#[path = "payload/model.rs"]
mod model;
#[cfg(feature = "server")]
#[path = "payload/peer.rs"]
mod peer;
#[path = "payload/pieces.rs"]
mod pieces;
#[path = "payload/round_trips.rs"]
mod round_trips;
#[cfg(feature = "server")]
mod support;
#[path = "payload/vectors.rs"]
mod vectors;
