//! `CBF.*` and `DLCBF.*` as clients meet them: replies of both protocols, options, errors and their order, limits, long commands,
//! transactions; and that what they write can be done again from the log.
//!
//! Most of it happens in this process, see [`world`]; what needs connections or files starts a server.
#![cfg(feature = "server")]

#[path = "deletable/dumps.rs"]
mod dumps;
#[path = "deletable/figures.rs"]
mod figures;
#[path = "support/in_process.rs"]
#[allow(dead_code, reason = "the host here is another one")]
mod in_process;
#[path = "deletable/items.rs"]
mod items;
#[path = "deletable/keys.rs"]
mod keys;
#[path = "support/lasting.rs"]
mod lasting;
#[path = "deletable/limits.rs"]
mod limits;
#[path = "deletable/merges.rs"]
mod merges;
#[path = "deletable/options.rs"]
mod options;
#[path = "deletable/replays.rs"]
mod replays;
#[path = "deletable/rows.rs"]
mod rows;
#[path = "deletable/servers.rs"]
mod servers;
mod support;
#[path = "chain/world.rs"]
#[allow(dead_code, reason = "every test program uses another part of it")]
mod world;

use support::Value;

/// The families, by the first word of their commands.
const FAMILIES: [&str; 2] = ["CBF", "DLCBF"];

/// The numbers of a reply.
#[track_caller]
fn numbers(reply: &Value) -> Vec<i64> {
    reply.array().iter().map(Value::int).collect()
}
