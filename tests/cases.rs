//! What users of such servers ran into, one test a case, each with a number that stays with it.
//!
//! Every case starts a server of its own, or has a keyspace in this process whose clock it sets. "Refused" means: an error reply, no key made or changed, the connection usable.
//! Cases about the Bloom filter's behaviour that a user must know of also look into the manual for the sentence.
#![cfg(feature = "server")]

#[path = "cases/chain.rs"]
mod chain;
#[path = "cases/creating.rs"]
mod creating;
#[path = "cases/deletable.rs"]
mod deletable;
#[path = "cases/dumps.rs"]
mod dumps;
#[path = "cases/durability.rs"]
mod durability;
#[path = "cases/filling.rs"]
mod filling;
#[path = "support/in_process.rs"]
#[allow(dead_code, reason = "the host here is another one")]
mod in_process;
#[path = "support/lasting.rs"]
mod lasting;
#[path = "cases/latency.rs"]
mod latency;
#[path = "cases/limits.rs"]
mod limits;
#[path = "cases/lives.rs"]
mod lives;
#[path = "cases/protocol.rs"]
mod protocol;
#[path = "cases/replies.rs"]
mod replies;
mod support;
#[path = "cases/tools.rs"]
mod tools;
#[path = "chain/world.rs"]
#[allow(dead_code, reason = "every test program uses another part of it")]
mod world;

use support::{Client, Value};

/// The manual's page on Bloom filters.
const MANUAL: &str = include_str!("../docs/bloom.md");

/// Fails unless the manual has these words, whatever its line breaks.
#[track_caller]
fn manual_says(words: &str) {
    let flat = MANUAL.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
    assert!(flat.contains(words), "docs/bloom.md does not say {words:?}");
}

/// Fails unless the command is refused: an error, no key `k` or `j`, the connection usable. Returns the error.
#[track_caller]
fn refused(client: &mut Client, line: &str) -> String {
    let error = client.cmd(line).error().to_string();
    assert_eq!(client.cmd("EXISTS k j"), Value::Int(0), "{line} made a key");
    assert_eq!(client.cmd("PING"), Value::Simple("PONG".into()));
    error
}

/// `MADD` or `MEXISTS` of `item:<n>` for a range of n, in one command.
fn many(client: &mut Client, command: &str, key: &str, numbers: std::ops::Range<usize>) -> Vec<Value> {
    let mut args = vec![command.to_string(), key.to_string()];
    args.extend(numbers.map(|n| format!("item:{n}")));
    client.call(&args).array().to_vec()
}

/// How many of a reply's elements say yes.
fn yes(answers: &[Value]) -> usize {
    answers.iter().filter(|answer| answer.truth()).count()
}

/// The lines of `BF.DEBUG`: the first about the whole filter, then one a sub-filter.
fn debug_lines(client: &mut Client, key: &str) -> Vec<String> {
    client.cmd(&format!("BF.DEBUG {key}")).array().iter().map(Value::text).collect()
}

/// One field of a `BF.DEBUG` line.
#[track_caller]
fn debug_field(line: &str, name: &str) -> f64 {
    let value = line.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix(':'));
    value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {name} in {line:?}"))
}

/// Bytes of memory that the system could still give.
fn memory_available() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").expect("Linux has /proc/meminfo");
    let line = text.lines().find(|line| line.starts_with("MemAvailable:")).expect("a line MemAvailable");
    line.split_ascii_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).expect("a number") << 10
}
