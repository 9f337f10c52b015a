//! One history, and four servers that have it: the one that it happened to, one that has replayed its log, one that has loaded its
//! snapshot, and one that was sent the log as commands. All keys are the same to the byte, and stay so when all four are given the
//! same further commands.
//!
//! The histories follow from their seeds. In every other one the log gets a new base on the way. `SEENDB_CELLS_HISTORIES` is how many
//! there are (2), `SEENDB_SEED` the first seed (1).

use std::collections::BTreeMap;

use crate::FAMILIES;
use crate::lasting::Place;
use crate::support::chunks::{Chunk, Contents, assert_same_contents, chunks, contents, family, load_of};
use crate::support::{Client, Random, Server, Value, pipe, wait_until};
use crate::world::with_items;

const COMMANDS: usize = 1_500;
const DATABASES: usize = 3;
/// Items have numbers below this one.
const ITEMS: usize = 2_000;

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// A client that does anything to filters that count. It deletes what is not there, too.
struct Story<'c> {
    client: &'c mut Client,
    random: Random,
    /// Of each family the dump of a filter of several chunks.
    large: [Vec<Chunk>; 2],
    payloads: Vec<Vec<u8>>,
    /// How often each command was not refused.
    done: BTreeMap<String, usize>,
}

impl<'c> Story<'c> {
    fn new(client: &'c mut Client, seed: u64) -> Self {
        let large = FAMILIES.map(|family| {
            client.cmd(&format!(
                "{family}.RESERVE large 0.000000001 {}",
                if family == "CBF" { 100_000 } else { 300_000 }
            ));
            client.call(&with_items(&format!("{family}.MADD large"), 0..ITEMS));
            let large = chunks(client, "large");
            assert!(
                client.cmd("DEL large") == 1 && large.len() >= 3,
                "{family}: a header and {} chunks",
                large.len() - 1
            );
            large
        });
        let (payloads, done) = Default::default();
        Self { client, random: Random::new(seed), large, payloads, done }
    }

    fn call(&mut self, words: &[&[u8]]) -> Value {
        let reply = self.client.call(words);
        if !matches!(reply, Value::Error(_) | Value::Null) {
            *self.done.entry(String::from_utf8_lossy(words[0]).into_owned()).or_default() += 1;
        }
        reply
    }

    fn say(&mut self, line: &str) -> Value {
        let words: Vec<&[u8]> = line.split_ascii_whitespace().map(str::as_bytes).collect();
        self.call(&words)
    }

    fn items(&mut self) -> String {
        let most = *self.random.weighted(&[(5, 3), (5, 30), (1, 400)]);
        let item = |_| format!("item:{}", self.random.below(ITEMS));
        (0..most).map(item).collect::<Vec<_>>().join(" ")
    }

    fn options(&mut self, family: &str) -> &'static str {
        let choices: &[&'static str] = match family {
            "CBF" => &["", "COUNTERBITS 8", "STRICT", "KEYED", "SEED 000102030405060708090a0b0c0d0e0f STRICT"],
            _ => &[
                "",
                "COUNTERBITS 4 KEYED",
                "EXPANSION 2",
                "EXPANSION 3 FINAL 900 OVERFLOW SPILL",
                "OVERFLOW SPILL SUBTABLES 2 CELLS 4",
                "SEED 000102030405060708090a0b0c0d0e0f",
            ],
        };
        self.random.pick::<&'static str>(choices)
    }

    fn step(&mut self) {
        let which = self.random.below(2);
        let (family, kind) = (FAMILIES[which], ["c", "d"][which]);
        let (key, other) = (format!("{kind}{}", self.random.below(4)), format!("{kind}{}", self.random.below(4)));
        match self.random.below(100) {
            0..=9 => {
                let (options, capacity) = (self.options(family), *self.random.pick(&[10, 40, 300, 50_000]));
                let life = *self.random.pick(&["", "", " PXAT 4000000000000"]);
                self.say(&format!("{family}.RESERVE {key} 0.01 {capacity} {options}{life}"));
            }
            10..=19 => {
                let (items, options) = (self.items(), self.options(family));
                self.say(&format!("{family}.INSERT {key} CAPACITY 40 {options} ITEMS {items}"));
            }
            20..=34 => {
                let items = self.items();
                self.say(&format!("{family}.MADD {key} {items}"));
            }
            35..=39 => {
                let (command, item) = (*self.random.pick(&["ADD", "DEL"]), self.random.below(ITEMS));
                self.say(&format!("{family}.{command} {key} item:{item}"));
            }
            40..=59 => {
                let items = self.items();
                self.say(&format!("{family}.MDEL {key} {items}"));
            }
            60..=63 => drop(self.say(&format!("CBF.DECAY {key}"))),
            64..=69 => {
                let force = *self.random.pick(&["", "FORCE"]);
                self.say(&format!("CBF.MERGE {key} {other} {force}"));
            }
            _ => self.step_with_any_key(which, &key, &other),
        }
    }

    fn step_with_any_key(&mut self, which: usize, key: &str, other: &str) {
        let db = self.random.below(DATABASES);
        match self.random.below(30) {
            0..=2 => drop(self.say(&format!("DEL {key}"))),
            3..=5 => drop(self.say(&format!("COPY {key} {other} DB {db} REPLACE"))),
            6..=7 => drop(self.say(&format!("RENAME {key} {other}"))),
            8 => drop(self.say(&format!("MOVE {key} {db}"))),
            9 => drop(self.say(&format!("PEXPIREAT {key} {}", 4_000_000_000_000_u64 + db as u64))),
            10 => drop(self.say(&format!("PERSIST {key}"))),
            11 => drop(self.say(&format!("PEXPIRE {key} {db}"))),
            12 => drop(self.say("SWAPDB 1 2")),
            13..=14 => drop(self.say(&format!("SELECT {db}"))),
            15..=17 => self.restore(key, other),
            18..=21 => self.load(which, key, other),
            22 => {
                let (dump, count) = (self.large[which].clone(), 1 + self.random.below(self.large[which].len()));
                self.say(&format!("DEL {key}"));
                self.take(FAMILIES[which], key, &dump[..count]);
            }
            _ => self.transaction(FAMILIES[which], key, other),
        }
    }

    fn restore(&mut self, key: &str, other: &str) {
        if let Value::Bulk(payload) = self.say(&format!("DUMP {key}")) {
            self.payloads.push(payload);
        }
        if !self.payloads.is_empty() {
            let payload = self.random.pick(&self.payloads).clone();
            self.call(&[b"RESTORE", other.as_bytes(), b"0", &payload, b"REPLACE"]);
        }
    }

    /// One filter from the dump of another. Now and then only the header is taken.
    fn load(&mut self, which: usize, from: &str, to: &str) {
        let family = FAMILIES[which];
        // It may be of the other family, be missing, or be half loaded itself.
        if matches!(self.client.cmd(&format!("{family}.SCANDUMP {from} 0")), Value::Error(_)) {
            return;
        }
        let dump = chunks(self.client, from);
        let count = if self.random.percent(80) { dump.len() } else { 1 };
        self.say(&format!("DEL {to}"));
        self.take(family, to, &dump[..count]);
    }

    fn take(&mut self, family: &str, to: &str, chunks: &[Chunk]) {
        for (cursor, data) in chunks {
            let (command, cursor) = (format!("{family}.LOADCHUNK"), cursor.to_string());
            self.call(&[command.as_bytes(), to.as_bytes(), cursor.as_bytes(), data]);
        }
    }

    fn transaction(&mut self, family: &str, key: &str, other: &str) {
        let (items, others) = (self.items(), self.items());
        for line in [
            "MULTI",
            &format!("{family}.MADD {key} {items}"),
            &format!("{family}.MDEL {key} {others}"),
            &format!("COPY {key} {other} REPLACE"),
            &format!("CBF.DECAY {key}"),
            &format!("{family}.MDEL {other} {items}"),
            "EXEC",
        ] {
            self.say(line);
        }
    }

    /// The story to its end. Loads are left as they are, some of them begun before the log gets a new base.
    fn tell(&mut self, rewrites: bool) {
        (0..COMMANDS / 2).for_each(|_| self.step());
        self.say("SELECT 0");
        let large = self.large.clone();
        for (family, dump) in FAMILIES.into_iter().zip(&large) {
            self.take(family, &format!("half:early:{family}"), &dump[..2]);
            self.say(&format!("PEXPIREAT half:early:{family} 4000000000000"));
        }
        if rewrites {
            self.client.cmd("BGREWRITEAOF");
            let over =
                |client: &mut Client| client.cmd("INFO persistence").text().contains("aof_rewrite_in_progress:0");
            wait_until("the new base", || over(self.client));
        }
        (0..COMMANDS / 2).for_each(|_| self.step());
        self.say("SELECT 0");
        for (family, dump) in FAMILIES.into_iter().zip(&large) {
            self.take(family, &format!("half:header:{family}"), &dump[..1]);
            self.take(family, &format!("half:late:{family}"), &dump[..2]);
            self.say(&format!("COPY half:early:{family} half:copied:{family}"));
            self.say(&format!("RENAME half:late:{family} half:renamed:{family}"));
            self.say(&format!("{family}.MADD last:{family} a b b item:1 item:2"));
        }
        // Lives that are short are over, so that whoever looks sees the same.
        wait_until("the end of the short lives", || {
            (0..DATABASES).rev().all(|db| {
                self.client.cmd(&format!("SELECT {db}"));
                let names = self.client.cmd("KEYS *");
                let mut left = |key: &Value| self.client.call(&[&b"PTTL"[..], key.bulk()]).int();
                names.array().iter().all(|key| !(0..1000).contains(&left(key)))
            })
        });
    }

    /// Else the comparison would show less than it seems to.
    fn was_rich(&self, seen: &Contents) {
        let of_both = "RESERVE INSERT ADD MADD DEL MDEL LOADCHUNK".split(' ');
        let of_both = of_both.flat_map(|command| FAMILIES.map(|family| format!("{family}.{command}")));
        let others = ["CBF.DECAY", "CBF.MERGE", "COPY", "RENAME", "MOVE", "RESTORE", "PEXPIREAT", "EXEC", "SWAPDB"]
            .map(str::to_owned);
        for command in of_both.chain(others) {
            assert!(self.done.contains_key(&command), "{command} was never done: {:?}", self.done);
        }
        let whole = |kind: &str| seen.values().filter(|held| held.kind == kind && !held.is_half_loaded()).count();
        assert!(whole("seenCBF--") > 2 && whole("seenDLCBF") > 2);
        assert!(seen.values().filter(|held| held.is_half_loaded()).count() >= 8);
    }
}

/// More adds and deletes, and loads that are begun anew.
fn go_on(client: &mut Client, seen: &Contents, large: &[Vec<Chunk>; 2], random: &mut Random) -> Vec<Value> {
    let mut replies = Vec::new();
    for ((db, key), held) in seen {
        replies.push(client.cmd(&format!("SELECT {db}")));
        let family = family(&held.kind);
        if held.is_half_loaded() {
            let dump = large.iter().zip(FAMILIES).filter(|(_, own)| *own == family && key.starts_with("half:"));
            let chunks = dump.flat_map(|(dump, _)| dump.iter().chain(dump.last()));
            replies.extend(chunks.map(|chunk| load_of(client, family, key, chunk)));
            continue;
        }
        for command in ["MADD", "MDEL", "MADD"] {
            let items: Vec<String> = (0..60).map(|_| format!("item:{}", random.below(2 * ITEMS))).collect();
            replies.push(client.cmd(&format!("{family}.{command} {key} {}", items.join(" "))));
        }
    }
    replies
}

fn look(client: &mut Client) -> Contents {
    let items: Vec<String> = (0..ITEMS).map(|n| format!("item:{n}")).collect();
    contents(client, DATABASES, &items)
}

#[test]
fn a_log_a_snapshot_and_commands_give_the_same_filters() {
    let (histories, first) = (number("SEENDB_CELLS_HISTORIES", 2), number("SEENDB_SEED", 1));
    for seed in first..first + histories {
        let place = Place::new(&["--appendonly", "yes", "--appendfsync", "no", "--save", ""]);
        let live = place.start();
        let mut client = live.client();
        let mut story = Story::new(&mut client, seed);
        story.tell(seed % 2 == 0);
        let before = look(story.client);
        story.was_rich(&before);
        let large = story.large.clone();
        assert!(client.cmd("SAVE") == "OK" && client.cmd("WAITAOF 1 0 30000").array()[0] == 1);
        let (replayed, loaded) = (place.with_its_log(), place.with_its_snapshot());
        let (replayed, loaded, sent) = (replayed.start(), loaded.start(), Server::start());
        pipe(sent.port(), &place.log_as_commands());

        let mut copies =
            [("its log", replayed.client()), ("its snapshot", loaded.client()), ("its commands", sent.client())];
        for (of, copy) in &mut copies {
            assert_same_contents(&before, &look(copy), &format!("seed {seed}, {of}"));
        }
        let random = Random::new(seed);
        let replies = go_on(&mut client, &before, &large, &mut random.clone());
        let after = look(&mut client);
        for (of, copy) in &mut copies {
            let again = go_on(copy, &before, &large, &mut random.clone());
            let first = replies.iter().zip(&again).position(|(one, other)| one != other);
            assert_eq!(first, None, "seed {seed}, {of}: it answers otherwise");
            assert_same_contents(&after, &look(copy), &format!("seed {seed}, {of}, gone on"));
        }
    }
}
