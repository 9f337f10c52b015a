//! SeenDB against a real RedisBloom: the same random commands to both, in RESP2 and RESP3, and every reply equal byte for
//! byte, but for the intended differences of `tests/differences.md` (coded in `differential/rules.rs`).
//!
//! The commands come in sequences of 200 over a few keys; now and then one of the 200 is a pipeline of up to 90 in one write. At the end of each the filters are dumped on both sides and
//! compared byte for byte, then each dump is loaded into the *other* server, where it must give the same answers.
//!
//! | environment | meaning | default |
//! | --- | --- | --- |
//! | `SEENDB_DIFF_COMMANDS` | how many commands | 20000 |
//! | `SEENDB_DIFF_SEED` | seed of the first sequence; each further one has the next number | 1 |
//!
//! A difference is reported as the shortest history of one key, found by leaving commands out, that still shows it, with
//! the seed that shows it again.
#![cfg(feature = "server")]

#[path = "differential/generate.rs"]
mod generate;
#[path = "differential/rules.rs"]
mod rules;
mod support;

use generate::{Generator, KEYS, MUTATED, Words};
use rules::{Plan, RULES};
use std::collections::{BTreeMap, HashMap, HashSet};
use support::{Client, Server, Value, encode, show_args, show_bytes, target_is_peer};

const SEQUENCE: usize = 200;
const END_OF_DUMP: &[u8] = b"*2\r\n:0\r\n$0\r\n\r\n";

/// One command of a history and the protocol (0: RESP2, 1: RESP3) of the connections that sent it.
type Step = (usize, Words);

/// Both servers, with a connection for each protocol.
struct Pair {
    ours: [Client; 2],
    theirs: [Client; 2],
    /// Where a dump that a connection began ends, by protocol and key: SeenDB answers "end" there, although the
    /// filter may have grown, or been made anew, since. Forgotten once the connection has heard "end".
    dump_ends: HashMap<(usize, Vec<u8>), i64>,
    /// Keys on the peer whose filter would break it by growing.
    fragile: HashSet<Vec<u8>>,
    fired: BTreeMap<&'static str, usize>,
}

/// A reply that differs.
struct Difference {
    command: Words,
    expected: Vec<u8>,
    got: Vec<u8>,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        writeln!(f, "  command:  {}", show_args(&self.command))?;
        writeln!(f, "  expected: {}", show_bytes(&self.expected))?;
        write!(f, "  got:      {}", show_bytes(&self.got))
    }
}

impl Pair {
    fn connect(ours: &Server, theirs: &Server) -> Pair {
        Pair {
            ours: [ours.client(), ours.client3()],
            theirs: [theirs.client(), theirs.client3()],
            dump_ends: HashMap::new(),
            fragile: HashSet::new(),
            fired: BTreeMap::new(),
        }
    }

    fn fire(&mut self, rule: &'static str) {
        assert!(RULES.contains(&rule), "rule {rule} is not in the list");
        *self.fired.entry(rule).or_default() += 1;
    }

    /// True if this command would add items to a filter that cannot grow.
    fn would_break_the_peer(&self, command: &Words) -> bool {
        let adds =
            ["BF.ADD", "BF.MADD", "BF.INSERT"].iter().any(|name| command[0].eq_ignore_ascii_case(name.as_bytes()));
        adds && command.get(1).is_some_and(|key| self.fragile.contains(key))
    }

    /// Gives both servers the command and compares the replies.
    fn step(&mut self, (protocol, command): &Step) -> Result<Option<Value>, Difference> {
        let protocol = *protocol;
        let plan = if target_is_peer() { Plan::Same } else { rules::plan(command) };
        let (mut expected, value) = match &plan {
            Plan::Same => {
                let sent = self.or_as_we_do(protocol, command);
                self.theirs[protocol].call_raw(sent.as_ref().unwrap_or(command))
            }
            Plan::Instead(other, rule) => {
                self.fire(rule);
                self.theirs[protocol].call_raw(other)
            }
            Plan::Reply(text, rule) => {
                self.fire(rule);
                (format!("-{text}\r\n").into_bytes(), Value::Error(text.clone()))
            }
        };
        let (got, our_value) = self.ours[protocol].call_raw(command);
        if got != expected && !target_is_peer() {
            self.apply_reply_rules(protocol, command, &mut expected, &got);
        }
        self.remember(protocol, command, &our_value);
        match got == expected {
            true => Ok(Some(value)),
            false => Err(Difference { command: command.clone(), expected, got }),
        }
    }

    /// Gives both servers commands that no rule speaks of, all in one write, and compares the replies.
    fn pipeline(&mut self, protocol: usize, commands: &[Words]) -> Result<(), Difference> {
        let request: Vec<u8> = commands.iter().flat_map(|command| encode(command)).collect();
        self.theirs[protocol].send(&request);
        self.ours[protocol].send(&request);
        let mut result = Ok(());
        for command in commands {
            let (expected, _) = self.theirs[protocol].read_raw();
            let (got, _) = self.ours[protocol].read_raw();
            if got != expected && result.is_ok() {
                result = Err(Difference { command: command.clone(), expected, got });
            }
            if command[0] == b"DEL" {
                self.fragile.remove(&command[1]);
            }
        }
        result
    }

    /// `loadchunk-or`: the peer copies the bytes of a chunk, so it gets ours or-ed with what it holds there.
    fn or_as_we_do(&mut self, protocol: usize, command: &Words) -> Option<Words> {
        let [name, key, cursor, data] = command.as_slice() else { return None };
        if !name.eq_ignore_ascii_case(b"BF.LOADCHUNK") || data.is_empty() || target_is_peer() {
            return None;
        }
        let start = rules::integer(cursor)?.checked_sub(data.len() as i64).filter(|start| *start > 0)?;
        let held = self.theirs[protocol].call(&[b"BF.SCANDUMP", key.as_slice(), start.to_string().as_bytes()]);
        let Value::Array(reply) = held else { return None };
        let held = reply[1].bulk();
        if held.len() < data.len() {
            return None;
        }
        let ored: Vec<u8> = data.iter().zip(held).map(|(ours, theirs)| ours | theirs).collect();
        if ored == *data {
            return None;
        }
        self.fire("loadchunk-or");
        Some(vec![name.clone(), key.clone(), cursor.clone(), ored])
    }

    fn apply_reply_rules(&mut self, protocol: usize, command: &Words, expected: &mut Vec<u8>, got: &[u8]) {
        if let Some((text, rule)) = rules::our_text(command, expected) {
            self.fire(rule);
            *expected = format!("-{text}\r\n").into_bytes();
            return;
        }
        if !command[0].eq_ignore_ascii_case(b"BF.SCANDUMP") || command.len() != 3 {
            return;
        }
        let Some(cursor) = rules::integer(&command[2]) else { return };
        let end = self.dump_ends.get(&(protocol, command[1].clone()));
        if cursor > 0 && end.is_some_and(|end| cursor >= *end) {
            self.fire("dump-end");
            *expected = END_OF_DUMP.to_vec();
        } else if cursor == 0
            && let (Some(theirs), Some(ours)) = (header_in(expected), header_in(got))
            && let Some(header) = rules::with_our_growth(theirs, ours)
        {
            let at = expected.len() - 2 - header.len();
            expected[at..at + header.len()].copy_from_slice(&header);
        }
    }

    /// Keeps the notes that later commands are judged by.
    fn remember(&mut self, protocol: usize, command: &Words, ours: &Value) {
        match (command[0].to_ascii_uppercase().as_slice(), command.as_slice()) {
            (b"BF.SCANDUMP", [_, key, cursor]) => match ours {
                Value::Array(reply) if cursor == b"0" => {
                    let end = 1 + rules::total_bytes(reply[1].bulk()) as i64;
                    self.dump_ends.insert((protocol, key.clone()), end);
                }
                Value::Array(reply) if reply[0] == 0 => {
                    self.dump_ends.remove(&(protocol, key.clone()));
                }
                _ => {}
            },
            (b"BF.LOADCHUNK", [_, key, cursor, header])
                if cursor == b"1" && *ours == "OK" && header.len() >= 73 && rules::may_fail_to_grow(header) =>
            {
                self.fragile.insert(key.clone());
            }
            (b"DEL", [_, keys @ ..]) => {
                for key in keys {
                    self.fragile.remove(key);
                }
            }
            _ => {}
        }
    }

    /// Compares the whole dumps of a key, then loads each into the other server and asks for all items there.
    fn compare_dumps(&mut self, protocol: usize, key: &[u8], items: &[Vec<u8>]) -> Result<(), Difference> {
        let ours = dump(&mut self.ours[protocol], key);
        if !ours.is_empty() {
            self.dump_ends.remove(&(protocol, key.to_vec()));
        }
        let mut theirs = dump(&mut self.theirs[protocol], key);
        if let (Some((_, ours)), Some((_, theirs))) = (ours.first(), theirs.first_mut())
            && let Some(header) = rules::with_our_growth(theirs, ours)
            && !target_is_peer()
        {
            *theirs = header;
        }
        let command = |key: &[u8]| vec![b"(SCANDUMP loop)".to_vec(), key.to_vec()];
        if ours != theirs {
            let (expected, got) = (format!("{theirs:02x?}").into_bytes(), format!("{ours:02x?}").into_bytes());
            return Err(Difference { command: command(key), expected, got });
        }
        let crossed = b"crossed".as_slice();
        load(&mut self.ours[protocol], crossed, &theirs);
        load(&mut self.theirs[protocol], crossed, &ours);
        let mut question: Vec<&[u8]> = vec![b"BF.MEXISTS", key];
        question.extend(items.iter().map(Vec::as_slice));
        let (expected, _) = self.theirs[protocol].call_raw(&question);
        question[1] = crossed;
        let answers = [self.ours[protocol].call_raw(&question).0, self.theirs[protocol].call_raw(&question).0];
        for client in [&mut self.ours[protocol], &mut self.theirs[protocol]] {
            client.call(&[b"DEL", crossed]);
        }
        for (side, got) in ["our", "the peer's"].iter().zip(answers) {
            if got != expected {
                let what = format!("(MEXISTS on {side} copy)").into_bytes();
                return Err(Difference { command: vec![what, key.to_vec()], expected, got });
            }
        }
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) {
        self.ours[0].call(&[b"DEL", key]);
        self.theirs[0].call(&[b"DEL", key]);
        self.fragile.remove(key);
    }

    /// Runs a history of one key from nothing and looks for a difference in it.
    fn replay(&mut self, key: &[u8], history: &[Step], items: &[Vec<u8>]) -> Option<Difference> {
        self.delete(key);
        for step in history {
            if self.would_break_the_peer(&step.1) {
                continue;
            }
            if let Err(difference) = self.step(step) {
                return Some(difference);
            }
        }
        self.compare_dumps(0, key, items).err()
    }

    /// Leaves commands out of the history as long as a difference stays, and says what remains.
    fn report(&mut self, key: &[u8], history: &[Step], items: &[Vec<u8>], first: Difference) -> String {
        let mut steps: Vec<Step> = history.to_vec();
        let Some(mut found) = self.replay(key, &steps, items) else {
            return format!("{first}\nnot seen again when the key's history runs alone:\n{}", show_history(history));
        };
        let mut block = steps.len().div_ceil(2).max(1);
        loop {
            let mut from = 0;
            while from < steps.len() {
                let shorter = [&steps[..from], &steps[steps.len().min(from + block)..]].concat();
                match self.replay(key, &shorter, items) {
                    Some(difference) => (steps, found) = (shorter, difference),
                    None => from += block,
                }
            }
            if block == 1 {
                return format!("{found}\nshortest history of the key:\n{}", show_history(&steps));
            }
            block /= 2;
        }
    }
}

fn show_history(steps: &[Step]) -> String {
    let line = |(protocol, command): &Step| format!("  RESP{}> {}", protocol + 2, show_args(command));
    steps.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// The header in the reply to `BF.SCANDUMP k 0`.
fn header_in(reply: &[u8]) -> Option<&[u8]> {
    let rest = reply.strip_prefix(b"*2\r\n:1\r\n$")?;
    let line = rest.windows(2).position(|pair| pair == b"\r\n")?;
    rest[line + 2..].strip_suffix(b"\r\n")
}

/// All chunks of a key, each with the cursor that came with it; none for a missing key.
fn dump(client: &mut Client, key: &[u8]) -> Vec<(i64, Vec<u8>)> {
    let mut chunks = Vec::new();
    let mut cursor = 0;
    loop {
        let reply = client.call(&[b"BF.SCANDUMP", key, cursor.to_string().as_bytes()]);
        let Value::Array(reply) = reply else { return chunks };
        cursor = reply[0].int();
        if cursor == 0 {
            return chunks;
        }
        chunks.push((cursor, reply[1].bulk().to_vec()));
    }
}

fn load(client: &mut Client, key: &[u8], chunks: &[(i64, Vec<u8>)]) {
    for (cursor, data) in chunks {
        let reply = client.call(&[b"BF.LOADCHUNK", key, cursor.to_string().as_bytes(), data]);
        assert!(reply == "OK", "a dump is not loaded: cursor {cursor}, {} bytes: {reply:?}", data.len());
    }
}

fn setting(name: &str, default: u64) -> u64 {
    let text = std::env::var(name).unwrap_or_else(|_| default.to_string());
    text.parse().unwrap_or_else(|_| panic!("{name} is no number: {text:?}"))
}

/// One sequence: its commands, then the dumps of every key, then all keys deleted.
fn run_sequence(pair: &mut Pair, seed: u64, length: usize) -> Result<(), String> {
    let mut generator = Generator::new(seed);
    let mut history: Vec<Step> = Vec::new();
    let failed = |pair: &mut Pair, key: &[u8], history: &[Step], items: &[Vec<u8>], difference| {
        let touches = |(_, command): &&Step| command[1..].iter().any(|word| word == key);
        let of_key: Vec<Step> = history.iter().filter(touches).cloned().collect();
        Err(format!(
            "The replies differ. To see it again: SEENDB_DIFF_SEED={seed} SEENDB_DIFF_COMMANDS={length}\n{}",
            pair.report(key, &of_key, items, difference)
        ))
    };
    let mut protocol = 0;
    for _ in 0..length {
        if !generator.goes_on() {
            protocol = generator.random().below(2);
        }
        if !generator.goes_on() && generator.random().percent(3) {
            let commands = generator.pipeline();
            if commands.iter().any(|command| pair.would_break_the_peer(command)) {
                continue;
            }
            history.extend(commands.iter().map(|command| (protocol, command.clone())));
            if let Err(difference) = pair.pipeline(protocol, &commands) {
                let key = difference.command.get(1).cloned().unwrap_or_default();
                return failed(pair, &key, &history, generator.items(), difference);
            }
            continue;
        }
        let mut command = generator.command();
        if pair.would_break_the_peer(&command) {
            pair.fire("growth-failure");
            command = vec![b"BF.DEBUG".to_vec(), command[1].clone()];
        }
        if target_is_peer() && rules::plan(&command) != Plan::Same {
            continue;
        }
        let step = (protocol, command);
        history.push(step.clone());
        match pair.step(&step) {
            Ok(Some(Value::Array(reply))) if step.1[0].eq_ignore_ascii_case(b"BF.SCANDUMP") => {
                generator.learn(&step.1[1], reply[0].int(), reply[1].bulk());
            }
            Ok(_) => {}
            Err(difference) => {
                let key = step.1.get(1).cloned().unwrap_or_default();
                return failed(pair, &key, &history, generator.items(), difference);
            }
        }
    }
    for key in KEYS.iter().copied().chain([MUTATED]) {
        if let Err(difference) = pair.compare_dumps((seed % 2) as usize, key, generator.items()) {
            return failed(pair, key, &history, generator.items(), difference);
        }
        pair.delete(key);
    }
    Ok(())
}

#[test]
fn random_commands_answer_as_redisbloom() {
    let commands = setting("SEENDB_DIFF_COMMANDS", 20_000) as usize;
    let first_seed = setting("SEENDB_DIFF_SEED", 1);
    println!("differential: {commands} commands, SEENDB_DIFF_SEED={first_seed}");
    let (ours, theirs) = (Server::start(), Server::peer());
    let mut fired: BTreeMap<&'static str, usize> = BTreeMap::new();
    let mut left = commands;
    for seed in first_seed.. {
        let length = left.min(SEQUENCE);
        let mut pair = Pair::connect(&ours, &theirs);
        if let Err(report) = run_sequence(&mut pair, seed, length) {
            panic!("{report}");
        }
        for (rule, count) in pair.fired {
            *fired.entry(rule).or_default() += count;
        }
        left -= length;
        if left == 0 {
            break;
        }
    }
    println!("differential: {commands} commands answered alike; rules used: {fired:?}");
    // A rule that never applies hides nothing today and something tomorrow.
    if commands >= 20_000 && !target_is_peer() {
        let unused: Vec<_> = RULES.iter().filter(|rule| !fired.contains_key(*rule)).collect();
        assert!(unused.is_empty(), "rules that no command used: {unused:?}");
    }
}

#[test]
fn every_rule_is_written_down_and_every_written_rule_is_coded() {
    let page = include_str!("differences.md");
    let section = page.split("\n## ").find(|part| part.starts_with("Differential")).expect("a section Differential");
    let mut written: Vec<&str> =
        section.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`').map(|(name, _)| name)).collect();
    let mut coded = RULES.to_vec();
    written.sort_unstable();
    coded.sort_unstable();
    assert_eq!(written, coded);
}
