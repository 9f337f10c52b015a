//! `CHAIN.*` as clients meet it: replies of both protocols, options, errors and their order, windows and lives on a clock that
//! the test sets, profiles, merges, dumps; and what of it outlasts a restart.
//!
//! Most of it happens in this process, see [`world`]; what needs connections or files starts a server.
#![cfg(feature = "server")]

#[path = "chain/clocks.rs"]
mod clocks;
#[path = "chain/dumps.rs"]
mod dumps;
#[path = "chain/figures.rs"]
mod figures;
#[path = "support/in_process.rs"]
#[allow(dead_code, reason = "the host here is another one")]
mod in_process;
#[path = "chain/items.rs"]
mod items;
#[path = "chain/keys.rs"]
mod keys;
#[path = "support/lasting.rs"]
mod lasting;
#[path = "chain/merges.rs"]
mod merges;
#[path = "chain/options.rs"]
mod options;
#[path = "chain/profiles.rs"]
mod profiles;
#[path = "chain/replays.rs"]
mod replays;
#[path = "chain/servers.rs"]
mod servers;
mod support;
#[path = "chain/turns.rs"]
mod turns;
#[path = "chain/world.rs"]
mod world;
