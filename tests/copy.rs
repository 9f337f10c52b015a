//! `seendb copy` between live servers: SeenDB, and Redis with RedisBloom.
//!
//! | part | holds |
//! | --- | --- |
//! | `filters` | random filters there and back, in one and in pieces; lives; patterns; keys that are there already |
//! | `interrupted` | runs that are killed or cut off, and go on |
//! | `writers` | sources that change meanwhile |
//! | `cluster` | a cluster as the target |
//! | `others` | valkey-bloom, payloads of later versions, and servers that refuse |
//! | `families` | rings, counting filters and d-left filters |
//! | `fake` | servers of canned replies, and one that stands between |
//!
//! `SEENDB_COPY_FILTERS`: how many random filters go there and back (default 300).
#![cfg(feature = "server")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "copy/cluster.rs"]
mod cluster;
#[path = "copy/fake.rs"]
mod fake;
#[path = "copy/families.rs"]
mod families;
#[path = "copy/filters.rs"]
mod filters;
#[path = "copy/interrupted.rs"]
mod interrupted;
#[path = "copy/others.rs"]
mod others;
mod support;
#[path = "copy/writers.rs"]
mod writers;

use std::process::{Command, Output, Stdio};

use support::filters::{Seen, all_seen, assert_same, make_random, seen};

/// The words of a run.
fn tool(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_seendb"));
    command.arg("copy").args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// The address of a port of this machine.
fn url(port: u16) -> String {
    format!("redis://127.0.0.1:{port}")
}

/// Runs the tool to its end.
fn copy(from: &str, to: &str, more: &[&str]) -> Output {
    tool(&[&[from, to], more].concat()).output().expect("the program runs")
}

/// What a run printed, both streams.
fn printed(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Runs the tool, which must move everything; returns what it printed.
#[track_caller]
fn copy_all(from: &str, to: &str, more: &[&str]) -> String {
    let output = copy(from, to, more);
    assert!(output.status.success(), "{}", printed(&output));
    printed(&output)
}

/// Runs the tool, which must end with status 1; returns what it printed.
#[track_caller]
fn copy_fails(from: &str, to: &str, more: &[&str]) -> String {
    let output = copy(from, to, more);
    assert_eq!(output.status.code(), Some(1), "{}", printed(&output));
    printed(&output)
}
