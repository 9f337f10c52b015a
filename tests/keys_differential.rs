//! Lives, transactions and moves of keys against a real Redis with RedisBloom: the same random commands to both, from four
//! connections, in RESP2 and RESP3, and every reply equal byte for byte, but for the intended differences of
//! `tests/differences.md`.
//!
//! What is given as a time from now on is compared as exactly as the two commands were apart. After each sequence of 200
//! commands all keys are compared: bits, lives, and each dump loaded into the other server.
//!
//! Beside it, with no random: the moments at which lives end (`timing.rs`), transactions that the peer cannot be asked for
//! (`inside.rs`), and transactions of many clients at once (`torn.rs`).
//!
//! | environment | meaning | default |
//! | --- | --- | --- |
//! | `SEENDB_KEYS_DIFF_COMMANDS` | how many commands | 20000 |
//! | `SEENDB_KEYS_DIFF_SEED` | seed of the first sequence; each further one has the next number | 1 |
#![cfg(feature = "server")]

#[path = "keys_differential/frames.rs"]
mod frames;
#[path = "keys_differential/generate.rs"]
mod generate;
#[path = "keys_differential/inside.rs"]
mod inside;
#[path = "keys_differential/pair.rs"]
mod pair;
mod support;
#[path = "keys_differential/timing.rs"]
mod timing;
#[path = "keys_differential/torn.rs"]
mod torn;

use generate::Generator;
use pair::{CONNECTIONS, Difference, Pair, Step};
use std::collections::BTreeMap;
use support::{Client, Server, Value, show_args};

const SEQUENCE: usize = 200;

/// Every rule's name; what it means stands in `tests/differences.md`.
const RULES: [&str; 6] =
    ["latest-life", "copy", "restore-version", "restore-trailing", "restore-types", "watch-real-change"];

/// The replies to a command with this many items.
fn many(client: &mut Client, command: &str, key: &str, count: usize) -> Vec<Value> {
    let mut args = vec![command.to_string(), key.to_string()];
    args.extend((0..count).map(|n| format!("many:{n}")));
    client.call(&args).array().to_vec()
}

fn setting(name: &str, default: u64) -> u64 {
    let text = std::env::var(name).unwrap_or_else(|_| default.to_string());
    text.parse().unwrap_or_else(|_| panic!("{name} is no number: {text:?}"))
}

/// Runs a known sequence on empty servers and looks for a difference in it.
fn replay(servers: (&Server, &Server), steps: &[Step]) -> Option<Difference> {
    let mut pair = Pair::new(servers.0, servers.1);
    for step in steps {
        if !pair.cannot_be_compared(step)
            && let Err(difference) = pair.step(step)
        {
            return Some(difference);
        }
    }
    pair.compare_keys().err()
}

/// Leaves commands out as long as a difference stays, and says what remains.
fn report(servers: (&Server, &Server), mut steps: Vec<Step>, first: &Difference) -> String {
    let show = |steps: &[Step]| {
        let line = |step: &Step| format!("  {}> {}", step.connection, show_args(&step.command.ours));
        steps.iter().map(line).collect::<Vec<_>>().join("\n")
    };
    let Some(mut found) = replay(servers, &steps) else {
        return format!("{}\nnot seen again when the sequence runs again:\n{}", first.0, show(&steps));
    };
    let mut block = steps.len().div_ceil(2).max(1);
    loop {
        let mut from = 0;
        while from < steps.len() {
            let shorter = [&steps[..from], &steps[steps.len().min(from + block)..]].concat();
            match replay(servers, &shorter) {
                Some(difference) => (steps, found) = (shorter, difference),
                None => from += block,
            }
        }
        if block == 1 {
            return format!("{}\nshortest sequence (connections 1 and 3 speak RESP3):\n{}", found.0, show(&steps));
        }
        block /= 2;
    }
}

fn run_sequence(
    servers: (&Server, &Server),
    seed: u64,
    length: usize,
) -> Result<BTreeMap<&'static str, usize>, String> {
    let mut generator = Generator::new(seed);
    let mut pair = Pair::new(servers.0, servers.1);
    let mut steps: Vec<Step> = Vec::new();
    let failed = |steps: Vec<Step>, difference: Difference| {
        Err(format!(
            "SeenDB and the peer differ. To see it again: SEENDB_KEYS_DIFF_SEED={seed} SEENDB_KEYS_DIFF_COMMANDS={length}\n{}",
            report(servers, steps, &difference)
        ))
    };
    let mut connection = 0;
    for _ in 0..length {
        if generator.random.percent(if pair.in_transaction(connection) { 15 } else { 50 }) {
            connection = generator.random.below(CONNECTIONS);
        }
        let step = Step { connection, command: generator.command(pair.in_transaction(connection)) };
        if pair.cannot_be_compared(&step) {
            continue;
        }
        steps.push(step.clone());
        match pair.step(&step) {
            Ok(payload) => payload.into_iter().for_each(|payload| generator.learn(payload)),
            Err(difference) => return failed(steps, difference),
        }
    }
    match pair.compare_keys() {
        Ok(()) => Ok(pair.fired),
        Err(difference) => failed(steps, difference),
    }
}

#[test]
fn random_commands_on_keys_answer_as_redis() {
    let commands = setting("SEENDB_KEYS_DIFF_COMMANDS", 20_000) as usize;
    let first_seed = setting("SEENDB_KEYS_DIFF_SEED", 1);
    println!("keys differential: {commands} commands, SEENDB_KEYS_DIFF_SEED={first_seed}");
    let (ours, theirs) = (Server::start(), Server::peer());
    let mut fired: BTreeMap<&'static str, usize> = BTreeMap::new();
    let mut left = commands;
    for seed in first_seed.. {
        let length = left.min(SEQUENCE);
        match run_sequence((&ours, &theirs), seed, length) {
            Ok(used) => used.into_iter().for_each(|(rule, count)| *fired.entry(rule).or_default() += count),
            Err(report) => panic!("{report}"),
        }
        left -= length;
        if left == 0 {
            break;
        }
    }
    println!("keys differential: {commands} commands answered alike; rules used: {fired:?}");
    // A rule that never applies hides nothing today and something tomorrow.
    if commands >= 20_000 {
        let unused: Vec<_> = RULES.iter().filter(|rule| !fired.contains_key(*rule)).collect();
        assert!(unused.is_empty(), "rules that no command used: {unused:?}");
    }
    assert!(fired.keys().all(|rule| RULES.contains(rule)), "a rule that is not in the list: {fired:?}");
}

#[test]
fn every_rule_is_written_down_and_every_written_rule_is_coded() {
    let page = include_str!("differences.md");
    let section = page.split("\n## ").find(|part| part.starts_with("Keys")).expect("a section Keys");
    let mut written: Vec<&str> =
        section.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`').map(|(name, _)| name)).collect();
    let mut coded = RULES.to_vec();
    written.sort_unstable();
    coded.sort_unstable();
    assert_eq!(written, coded);
}
