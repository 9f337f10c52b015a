//! The tools that work on files: `seendb check`, `log cat`, `import`, `export`, `ingest`, all through the program.
//!
//! | part | holds |
//! | --- | --- |
//! | `check` | sound and damaged snapshots and logs; repairs; files that are being written |
//! | `log_cat` | logs as commands: random histories sent to empty servers |
//! | `import` | snapshots of Redis, Valkey and SeenDB, into folders and servers |
//! | `ingest` | events into rings: all of them, once, however often it is interrupted |
//! | `export` | snapshots that Redis and Valkey with RedisBloom load |
//!
//! `SEENDB_TOOLS_FILTERS`: how many random filters go each way (default 300).
//! `SEENDB_TOOLS_HISTORIES`: how many random histories are printed as commands (default 4).
#![cfg(feature = "server")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "tools/check.rs"]
mod check;
#[path = "tools/export.rs"]
mod export;
#[path = "tools/import.rs"]
mod import;
#[path = "tools/ingest.rs"]
mod ingest;
#[path = "tools/log_cat.rs"]
mod log_cat;
#[path = "payload/model.rs"]
#[allow(dead_code, reason = "made for more")]
mod model;
mod support;

use std::path::Path;
use std::process::{Command, Output, Stdio};

use support::filters::{Seen, all_seen, make_random};
use support::{Client, Random, Server};

/// What a run came to.
struct Ran {
    status: i32,
    /// Both streams.
    text: String,
    stdout: Vec<u8>,
}

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_seendb"));
    command.args(args).stdin(Stdio::null());
    command
}

/// Runs a tool to its end.
fn run(args: &[&str]) -> Ran {
    let Output { status, stdout, stderr } = command(args).output().expect("the program runs");
    let text = format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    Ran { status: status.code().expect("an exit status"), text, stdout }
}

/// Runs a tool that must end with this status; what it printed.
#[track_caller]
fn run_to(status: i32, args: &[&str]) -> String {
    let ran = run(args);
    assert_eq!(ran.status, status, "{args:?}: {}", ran.text);
    ran.text
}

fn url(server: &Server) -> String {
    format!("redis://127.0.0.1:{}", server.port())
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path that is text")
}

fn filters_wanted() -> usize {
    std::env::var("SEENDB_TOOLS_FILTERS").map_or(300, |count| count.parse().expect("a number"))
}

/// Makes so many filters, a tenth of them in database 3.
fn make_filters(client: &mut Client, random: &mut Random, count: usize) {
    for number in 0..count {
        client.cmd(if number % 10 == 0 { "SELECT 3" } else { "SELECT 0" });
        make_random(client, random, number);
    }
    client.cmd("SELECT 0");
}

type Database = std::collections::BTreeMap<Vec<u8>, Seen>;

/// All filters of all databases that are used.
fn everything(server: &Server) -> Vec<Database> {
    let mut client = server.client();
    let all = (0..16).map(|db| {
        assert_eq!(client.cmd(&format!("SELECT {db}")), "OK");
        all_seen(&mut client)
    });
    all.collect()
}

#[track_caller]
fn assert_all_same(left: &[Database], right: &[Database]) {
    for (db, (left, right)) in left.iter().zip(right).enumerate() {
        let names = |all: &Database| all.keys().map(|name| name.escape_ascii().to_string()).collect::<Vec<_>>();
        assert_eq!(names(left), names(right), "database {db}");
        for (name, filter) in left {
            let other = &right[name];
            assert!(filter == other, "database {db}, {}: {}", name.escape_ascii(), difference(filter, other));
        }
    }
}

/// What differs, without the bits.
fn difference(one: &Seen, other: &Seen) -> String {
    let parts = [
        ("bits", one.dump != other.dump),
        ("info", one.info != other.info),
        ("debug", one.debug != other.debug),
        ("end", one.ends != other.ends),
    ];
    let different: Vec<_> = parts.iter().filter(|(_, differs)| *differs).map(|(part, _)| *part).collect();
    format!(
        "{different:?}; {:?} {:?} {}, {:?} {:?} {}",
        one.info, one.debug, one.ends, other.info, other.debug, other.ends
    )
}

/// Keys of every type that a Redis has, besides filters; how many.
fn make_other_types(client: &mut Client) -> usize {
    let long = "x".repeat(3000);
    let many: Vec<String> = (0..600).map(|i| format!("{i} element{i}")).collect();
    let lines = [
        "SET string text".to_owned(),
        "SET number 12345".to_owned(),
        format!("SET long {long}"),
        "RPUSH list a b c 4".to_owned(),
        format!("RPUSH longlist {}", many.join(" ")),
        "SADD integers 1 2 3".to_owned(),
        format!("SADD set a b {}", many.join(" ")),
        "HSET hash a 1 b 2".to_owned(),
        format!("HSET largehash {}", many.join(" ")),
        "ZADD zset 1 a 2.5 b -inf c".to_owned(),
        format!("ZADD largezset {}", many.join(" ")),
        "XADD stream * field value".to_owned(),
        "PFADD hyperloglog a b c".to_owned(),
        "GEOADD geo 13.36 38.11 Palermo".to_owned(),
        "SETEX lives 100000 text".to_owned(),
        "CF.ADD cuckoo item".to_owned(),
        "CMS.INITBYDIM sketch 100 5".to_owned(),
        "TOPK.RESERVE topk 10".to_owned(),
        "TDIGEST.CREATE digest".to_owned(),
    ];
    for line in &lines {
        let reply = client.cmd(line);
        assert!(!matches!(reply, support::Value::Error(_)), "{}: {reply:?}", &line[..line.len().min(40)]);
    }
    assert_eq!(client.cmd("XGROUP CREATE stream group 0"), "OK");
    client.cmd("XREADGROUP GROUP group consumer STREAMS stream >");
    lines.len()
}

/// Has the server write its dump.rdb; where it is.
#[track_caller]
fn saved(server: &Server) -> std::path::PathBuf {
    assert_eq!(server.client().cmd("SAVE"), "OK");
    server.dir().join("dump.rdb")
}

#[test]
fn words_that_are_not_understood_are_told_with_status_2() {
    for args in [
        &["check"][..],
        &["check", "--what", "f"],
        &["log"],
        &["log", "dog"],
        &["log", "cat"],
        &["log", "cat", "f", "--from", "x"],
        &["import", "f"],
        &["import", "f", "--into", "localhost"],
        &["import", "f", "--into", "redis://a", "--dir", "d"],
        &["export", "f", "--dir", "d"],
        &["export", "f", "--families", "bf"],
        &["ingest"],
        &["ingest", "bf", "--key-prefix", "a"],
        &["ingest", "chain"],
        &["ingest", "chain", "--key-prefix", "a", "--clock", "mine"],
    ] {
        let text = run_to(2, args);
        assert!(text.starts_with("error: ") || text.contains("Usage: seendb"), "{text}");
    }
    let refused = run_to(2, &["export", "f", "--families", "bf,cf", "--dir", "d"]);
    assert!(refused.contains("'cf'") && refused.contains("[possible values: bf, cbf, dlcbf, chain]"), "{refused}");
    for tool in ["check", "import", "export"] {
        let help = run_to(0, &[tool, "--help"]);
        assert!(help.contains(&format!("seendb {tool}")) && help.contains("Exit status"), "{help}");
    }
    for (args, usage) in [
        (&["ingest", "--help"][..], "Usage: seendb ingest <COMMAND>"),
        (&["ingest", "chain", "--help"], "Usage: seendb ingest chain [OPTIONS] --key-prefix <PREFIX> [FILE]"),
    ] {
        let help = run_to(0, args);
        assert!(help.contains(usage), "{help}");
    }
    assert!(run_to(2, &["ingest", "chain"]).contains("Usage: seendb ingest chain --key-prefix <PREFIX>"));
    assert!(run_to(0, &["log", "cat", "--help"]).contains("redis-cli --pipe"));
}
