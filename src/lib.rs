//! SeenDB: named probabilistic filters that answer one question, *have I seen this before?*
//!
//! Layers, each using only those listed before it:
//!
//! * [`filters`]: bits, hashes, probability;
//! * [`codec`]: filters as bytes;
//! * [`config`]: directives, the config file, settings;
//! * [`keyspace`]: named filters, shards, the key latch;
//! * [`resp`]: request scanner and reply encoder;
//! * [`commands`]: the command table and its handlers;
//! * [`persist`]: effects as records, doing them again;
//! * `server`: listeners, connections, clients (feature `server`);
//! * `tools`: what `seendb` does besides serving, as a client of servers (feature `server`).

pub mod codec;
pub mod commands;
pub mod config;
pub mod filters;
pub mod keyspace;
pub mod persist;
pub mod resp;
#[cfg(feature = "server")]
pub mod server;
#[cfg(feature = "server")]
pub mod tools;
