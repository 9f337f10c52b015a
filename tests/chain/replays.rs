//! One history, and four servers that have it: the one that it happened to, one that has replayed its log, one that has loaded its
//! snapshot, and one that was sent the log as commands. All keys are the same to the byte, and stay so when all four are given the
//! same further commands.
//!
//! Windows of the server's clock go on in another way in each of them. So there are histories on a clock that the test sets as well.
//!
//! The histories follow from their seeds but for the server's clock, which some windows take their time from. In every other one the
//! log gets a new base on the way. `SEENDB_CHAIN_HISTORIES` is how many there are (2), `SEENDB_SEED` the first seed (1).

use std::collections::BTreeMap;
use std::time::UNIX_EPOCH;

use crate::lasting::Place;
use crate::support::chunks::{Chunk, Contents, assert_same_contents, chunks, contents, load};
use crate::support::{Client, Random, Server, Value, pipe, wait_until};
use crate::world::{self, World, with_items};

const COMMANDS: usize = 1_500;
const DATABASES: usize = 3;
/// Items have numbers below this one.
const ITEMS: usize = 3_000;

fn now_ms() -> u64 {
    UNIX_EPOCH.elapsed().expect("a clock after 1970").as_millis() as u64
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// A client that does anything to rings.
struct Story<'c> {
    client: &'c mut Client,
    random: Random,
    /// The time of events.
    event: u64,
    /// A dump of a ring of several chunks.
    large: Vec<Chunk>,
    payloads: Vec<Vec<u8>>,
    /// How often each command was not refused.
    done: BTreeMap<String, usize>,
}

impl<'c> Story<'c> {
    fn new(client: &'c mut Client, seed: u64) -> Self {
        client.cmd("CHAIN.RESERVE large 0.000000000001 120000 LINKS 3");
        client.call(&with_items("CHAIN.MADD large", 0..150_000));
        let large = chunks(client, "large");
        assert!(large.len() >= 3, "a header and {} chunks", large.len() - 1);
        client.cmd("DEL large");
        let (payloads, done) = Default::default();
        Self { client, random: Random::new(seed), event: 5_000, large, payloads, done }
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

    fn key(&mut self) -> String {
        let kind = *self.random.pick(&["c", "d", "w", "e", "p:"]);
        format!("{kind}{}", self.random.below(4))
    }

    fn items(&mut self) -> String {
        let most = *self.random.weighted(&[(5, 3), (5, 30), (1, 400)]);
        let item = |_| format!("item:{}", self.random.below(ITEMS));
        (0..most).map(item).collect::<Vec<_>>().join(" ")
    }

    /// The settings that rings of such a name have; keys of `p` get theirs from profiles.
    fn options(&mut self, key: &str) -> &'static str {
        let choices: &[&'static str] = match &key[..1] {
            "c" => &["", "LINKS 3 LINKERROR", "KEYED", "SEED 000102030405060708090a0b0c0d0e0f IDLE 100000", "LINKS 9"],
            "d" => &["DUAL", "DUAL THRESHOLD 0.75", "DUAL KEYED"],
            "w" => &["PWINDOW 40", "PWINDOW 9 LINKS 4 BOUNDED", "WINDOW 300000000", "PWINDOW 70 IDLE 100000"],
            "e" => &["PWINDOW 500 CLOCK EVENT", "PWINDOW 500 LINKS 9 CLOCK EVENT BOUNDED"],
            _ => &[""],
        };
        self.random.pick::<&'static str>(choices)
    }

    /// The time of a write to such a key; events come late now and then.
    fn at(&mut self, key: &str) -> String {
        match &key[..1] {
            "e" => {
                self.event += self.random.below(60) as u64;
                format!("AT {}", self.event - self.random.below(90) as u64)
            }
            "w" if self.random.percent(20) => format!("AT {}", now_ms() - self.random.below(30) as u64),
            _ => String::new(),
        }
    }

    fn step(&mut self) {
        let (key, other) = (self.key(), self.key());
        match self.random.below(100) {
            0..=9 => {
                let (options, capacity) = (self.options(&key), *self.random.pick(&[10, 40, 300, 5_000]));
                let life = *self.random.pick(&["", "", " PXAT 4000000000000"]);
                self.say(&format!("CHAIN.RESERVE {key} 0.01 {capacity} {options}{life}"));
            }
            10..=39 => {
                let (at, items) = (self.at(&key), self.items());
                let options = self.options(&key);
                self.say(&format!("CHAIN.INSERT {key} CAPACITY 40 {options} {at} ITEMS {items}"));
            }
            40..=44 => {
                let (at, item) = (self.at(&key), self.random.below(ITEMS));
                self.say(&format!("CHAIN.ADD {key} item:{item} {at}"));
            }
            45..=49 => {
                let items = self.items();
                self.say(&format!("CHAIN.MADD {key} {items}"));
            }
            50..=54 => {
                let (at, items, count) = (self.at(&key), self.items(), 1 + self.random.below(9));
                self.say(&format!("CHAIN.UNSEENADD {key} {at} COUNT {count} ITEMS {items}"));
            }
            55..=56 => drop(self.say(&format!("CHAIN.ROTATE {key}"))),
            57 => drop(self.say(&format!("CHAIN.CLEAR {key}"))),
            58..=59 => {
                let links = 6 + self.random.below(20);
                self.say(&format!("CHAIN.EXTEND {key} LINKS {links}"));
            }
            60..=61 => {
                let links = 2 + self.random.below(4);
                self.say(&format!("CHAIN.SHRINK {key} LINKS {links}"));
            }
            62..=66 => drop(self.say(&format!("CHAIN.MERGE {key} {other} FORCE"))),
            67..=68 => {
                let prefix = *self.random.pick(&["p", "p:", "p:1"]);
                let options = *self.random.pick(&["LINKS 9", "DUAL", "PWINDOW 30", "KEYED IDLE 100000", "CAPACITY 30"]);
                self.say(&format!("CHAIN.PROFILE SET {prefix} {options}"));
            }
            69 => {
                let prefix = *self.random.pick(&["p", "p:", "p:1"]);
                self.say(&format!("CHAIN.PROFILE DEL {prefix}"));
            }
            _ => self.step_with_any_key(&key, &other),
        }
    }

    fn step_with_any_key(&mut self, key: &str, other: &str) {
        let db = self.random.below(DATABASES);
        match self.random.below(30) {
            0..=1 => drop(self.say(&format!("DEL {key}"))),
            2..=4 => drop(self.say(&format!("COPY {key} {other} DB {db} REPLACE"))),
            5..=6 => drop(self.say(&format!("RENAME {key} {other}"))),
            7 => drop(self.say(&format!("MOVE {key} {db}"))),
            8 => drop(self.say(&format!("PEXPIREAT {key} {}", 4_000_000_000_000_u64 + db as u64))),
            9 => drop(self.say(&format!("PERSIST {key}"))),
            10 => drop(self.say(&format!("PEXPIRE {key} {db}"))),
            11 if db > 0 && self.random.percent(20) => {
                self.say(&format!("SELECT {db}"));
                self.say("FLUSHDB");
            }
            11 => drop(self.say("SWAPDB 1 2")),
            12..=13 => drop(self.say(&format!("SELECT {db}"))),
            14..=15 => self.restore(key, other),
            16..=19 => self.load(key, other),
            20 => self.load_large(key),
            21..=23 => self.transaction(key, other),
            _ => {
                let items = self.items();
                self.say(&format!("BF.INSERT b{db} CAPACITY 30 ITEMS {items}"));
            }
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

    /// One ring from the dump of another. Now and then only the header is taken.
    fn load(&mut self, from: &str, to: &str) {
        let (mut dump, mut cursor) = (Vec::new(), 0);
        loop {
            // The life of the ring may end meanwhile.
            let Value::Array(reply) = self.client.cmd(&format!("CHAIN.SCANDUMP {from} {cursor}")) else { return };
            cursor = reply[0].int();
            if cursor == 0 {
                break;
            }
            dump.push((cursor, reply[1].bulk().to_vec()));
        }
        let count = if self.random.percent(80) { dump.len() } else { 1 };
        self.say(&format!("DEL {to}"));
        self.take(to, &dump[..count]);
    }

    fn load_large(&mut self, to: &str) {
        let (dump, count) = (self.large.clone(), 1 + self.random.below(self.large.len()));
        self.say(&format!("DEL {to}"));
        self.take(to, &dump[..count]);
    }

    fn take(&mut self, to: &str, chunks: &[Chunk]) {
        for (cursor, data) in chunks {
            self.call(&[b"CHAIN.LOADCHUNK", to.as_bytes(), cursor.to_string().as_bytes(), data]);
        }
    }

    fn transaction(&mut self, key: &str, other: &str) {
        let (items, at) = (self.items(), self.at(key));
        for line in [
            "MULTI",
            &format!("CHAIN.INSERT {key} {at} ITEMS {items}"),
            "CHAIN.PROFILE SET p: CAPACITY 77",
            &format!("CHAIN.MERGE {key} {other} FORCE"),
            &format!("COPY {key} {other} REPLACE"),
            &format!("CHAIN.ROTATE {key}"),
            "EXEC",
        ] {
            self.say(line);
        }
    }

    /// The story to its end. Loads are left as they are, one of them begun before the log gets a new base.
    fn tell(&mut self, rewrites: bool) {
        (0..COMMANDS / 2).for_each(|_| self.step());
        self.say("SELECT 0");
        let large = self.large.clone();
        self.take("half:early", &large[..2]);
        self.say("PEXPIREAT half:early 4000000000000");
        if rewrites {
            self.client.cmd("BGREWRITEAOF");
            let over =
                |client: &mut Client| client.cmd("INFO persistence").text().contains("aof_rewrite_in_progress:0");
            wait_until("the new base", || over(self.client));
        }
        (0..COMMANDS / 2).for_each(|_| self.step());
        self.say("SELECT 0");
        self.take("half:header", &large[..1]);
        self.take("half:late", &large[..2]);
        self.say("COPY half:early half:copied");
        self.say("RENAME half:late half:renamed");
        for options in ["LINKS 3", "DUAL", "WINDOW 300000000", "PWINDOW 500 CLOCK EVENT AT 5000"] {
            let key = format!("last:{}", options.len());
            self.say(&format!("CHAIN.INSERT {key} {options} ITEMS a b item:1 item:2"));
        }
        // Lives that are short are over, so that whoever looks sees the same.
        wait_until("the end of the short lives", || {
            (0..DATABASES).rev().all(|db| {
                self.client.cmd(&format!("SELECT {db}"));
                let names = self.client.cmd("KEYS *");
                names
                    .array()
                    .iter()
                    .all(|key| !(0..1000).contains(&self.client.call(&[&b"PTTL"[..], key.bulk()]).int()))
            })
        });
    }

    /// Else the comparison would show less than it seems to.
    fn was_rich(&self, seen: &Contents) {
        let of_rings = "ADD MADD INSERT UNSEENADD ROTATE CLEAR EXTEND SHRINK MERGE PROFILE LOADCHUNK";
        let of_rings = of_rings.split(' ').map(|command| format!("CHAIN.{command}"));
        let of_keys = ["COPY", "RENAME", "MOVE", "RESTORE", "PEXPIREAT", "EXEC", "SWAPDB"].map(str::to_owned);
        for command in of_rings.chain(of_keys) {
            assert!(self.done.contains_key(&command), "{command} was never done: {:?}", self.done);
        }
        let count = |what: &dyn Fn(&str, &str) -> bool| {
            let held = seen.values().filter(|held| what(&held.figure("mode"), &held.figure("clock")));
            held.count()
        };
        let (by_count, dual) = (count(&|mode, _| mode == "count"), count(&|mode, _| mode == "dual"));
        let (event, server) = (count(&|_, clock| clock == "event"), count(&|_, clock| clock == "server"));
        assert!(by_count > 0 && dual > 0 && event > 0 && server > 0, "{by_count} {dual} {event} {server}");
        assert!(seen.values().filter(|held| held.is_half_loaded()).count() >= 4);
    }
}

type Seen = (Contents, Value);

fn look(client: &mut Client) -> Seen {
    let items: Vec<String> = (0..ITEMS).map(|n| format!("item:{n}")).collect();
    (contents(client, DATABASES, &items), client.cmd("CHAIN.PROFILE LIST"))
}

#[track_caller]
fn assert_same(one: &Seen, other: &Seen, what: &str) {
    assert_same_contents(&one.0, &other.0, what);
    assert_eq!(one.1, other.1, "{what}: profiles");
}

/// Rings whose time is not that of a server, and loads that are begun anew, go on in the same way everywhere.
fn go_on(client: &mut Client, seen: &Contents, large: &[Chunk], random: &mut Random) -> Vec<Value> {
    let mut replies = Vec::new();
    for ((db, key), held) in seen {
        replies.push(client.cmd(&format!("SELECT {db}")));
        let items: Vec<String> = (0..60).map(|_| format!("item:{}", random.below(2 * ITEMS))).collect();
        let items = items.join(" ");
        let lines = match (&*held.kind, &*held.figure("mode"), &*held.figure("clock")) {
            ("seenCHAIN", "count" | "dual", _) => vec![
                format!("CHAIN.MADD {key} {items}"),
                format!("CHAIN.ROTATE {key}"),
                format!("CHAIN.UNSEENADD {key} COUNT 5 ITEMS {items} x y z"),
            ],
            ("seenCHAIN", _, "event") => [1_000_000, 1_000_100, 1_000_350, 1_000_900]
                .map(|at| format!("CHAIN.INSERT {key} AT {at} ITEMS {items} {at}"))
                .to_vec(),
            ("MBbloom--", ..) => vec![format!("BF.MADD {key} {items}")],
            _ => Vec::new(),
        };
        replies.extend(lines.iter().map(|line| client.cmd(line)));
        if held.is_half_loaded() && key.starts_with("half:") {
            replies.extend(large.iter().map(|chunk| load(client, key, chunk)));
            replies.extend(large.last().map(|chunk| load(client, key, chunk)));
        }
    }
    replies
}

/// All keys whose lives and times are not those of a server's clock.
fn comparable(mut seen: Seen) -> Seen {
    for held in seen.0.values_mut() {
        // A write moves the life of a ring with IDLE.
        if !held.figure("idle").is_empty() {
            held.ends = 0;
        }
    }
    seen
}

#[test]
fn a_log_a_snapshot_and_commands_give_the_same_rings() {
    let (histories, first) = (number("SEENDB_CHAIN_HISTORIES", 2), number("SEENDB_SEED", 1));
    for seed in first..first + histories {
        let place = Place::new(&["--appendonly", "yes", "--appendfsync", "no", "--save", ""]);
        let live = place.start();
        let mut client = live.client();
        let mut story = Story::new(&mut client, seed);
        story.tell(seed % 2 == 0);
        let before = look(story.client);
        story.was_rich(&before.0);
        let large = story.large.clone();
        assert!(client.cmd("SAVE") == "OK" && client.cmd("WAITAOF 1 0 30000").array()[0] == 1);
        let (replayed, loaded) = (place.with_its_log(), place.with_its_snapshot());
        let (replayed, loaded, sent) = (replayed.start(), loaded.start(), Server::start());
        pipe(sent.port(), &place.log_as_commands());

        let mut copies =
            [("its log", replayed.client()), ("its snapshot", loaded.client()), ("its commands", sent.client())];
        for (of, copy) in &mut copies {
            assert_same(&before, &look(copy), &format!("seed {seed}, {of}"));
        }
        let random = Random::new(seed);
        let replies = go_on(&mut client, &before.0, &large, &mut random.clone());
        let after = comparable(look(&mut client));
        for (of, copy) in &mut copies {
            let again = go_on(copy, &before.0, &large, &mut random.clone());
            let first = replies.iter().zip(&again).position(|(one, other)| one != other);
            assert_eq!(first, None, "seed {seed}, {of}: it answers otherwise");
            assert_same(&after, &comparable(look(copy)), &format!("seed {seed}, {of}, gone on"));
        }
    }
}

/// Windows of a test whose clock is set. None ends: versions of rings that are made anew begin with the time of the machine.
const WINDOWS: [&str; 6] = [
    "PWINDOW 40",
    "PWINDOW 40 LINKS 2 IDLE 1000",
    "PWINDOW 60 BOUNDED",
    "PWINDOW 60 LINKS 9 CLOCK EVENT",
    "PWINDOW 60 BOUNDED CLOCK EVENT",
    "PWINDOW 2000 KEYED LINKERROR",
];

/// One change of a window, or an attempt; its reply.
fn change_window(client: &mut world::Client, random: &mut Random) -> Vec<u8> {
    let number = random.below(WINDOWS.len());
    let (key, other) = (format!("k{number}"), format!("k{number}:other"));
    let now = client.world.keyspace.clock().now();
    let by_events = WINDOWS[number].ends_with("EVENT");
    let is_early = by_events || random.percent(20);
    let at = if is_early { format!("AT {}", now - random.below(50) as u64) } else { String::new() };
    let most = *random.pick(&[2, 10, 60]);
    let items: Vec<String> = (0..most).map(|_| format!("item:{}", random.below(300))).collect();
    let items = items.join(" ");
    let line = match random.below(20) {
        0..=8 => format!("CHAIN.INSERT {key} {at} ITEMS {items}"),
        9..=11 => format!("CHAIN.INSERT {other} {at} ITEMS {items}"),
        12..=13 => format!("CHAIN.UNSEENADD {key} {at} COUNT 2 ITEMS {items}"),
        // They are known: only time goes on.
        14 => {
            client.cmd(&format!("CHAIN.INSERT {key} AT {now} ITEMS x y"));
            let then = now + 1 + random.below(20) as u64;
            client.world.keyspace.clock().set(then);
            format!("CHAIN.UNSEENADD {key} AT {then} ITEMS x y")
        }
        15 => format!("CHAIN.EXTEND {key} LINKS {}", 6 + random.below(5)),
        16 => format!("CHAIN.SHRINK {key} LINKS {}", 2 + random.below(4)),
        17 => format!("CHAIN.MERGE {key} {other} FORCE"),
        18 if random.percent(20) => format!("CHAIN.CLEAR {key}"),
        _ => format!("CHAIN.MEXISTS {key} {items}"),
    };
    client.raw(&line.split_ascii_whitespace().collect::<Vec<_>>())
}

/// Time goes on mostly by a little, then by many slices, and now and then back.
fn pass(world: &World, random: &mut Random) {
    let now = world.keyspace.clock().now();
    let then = match random.below(60) {
        0 => now + 5_000,
        1 => now - 30,
        2..=20 => now + random.below(30) as u64,
        _ => now,
    };
    world.keyspace.clock().set(then);
}

fn look_at_windows(client: &mut world::Client) -> Vec<(String, Value, Value, Value)> {
    let keys: Vec<String> = (0..WINDOWS.len()).flat_map(|n| [format!("k{n}"), format!("k{n}:other")]).collect();
    let look = |key: String| {
        let (dump, ends) = (client.cmd(&format!("DUMP {key}")), client.cmd(&format!("PEXPIRETIME {key}")));
        let answers = client.call(&with_items(&format!("CHAIN.MEXISTS {key}"), 0..300));
        (key, ends, answers, dump)
    };
    keys.into_iter().map(look).collect()
}

#[track_caller]
fn assert_same_windows(one: &mut world::Client, other: &mut world::Client, what: &str) {
    for (one, other) in look_at_windows(one).into_iter().zip(look_at_windows(other)) {
        let key = &one.0;
        assert_eq!(one.1, other.1, "{what}: the life of {key}");
        assert!(one.2 == other.2, "{what}: the answers of {key}");
        assert!(one.3 == other.3, "{what}: the bytes of {key}");
    }
}

/// The records have the times of the writes; that of the replay has no say, then or later.
#[test]
fn windows_turn_in_a_replay_as_they_did() {
    for seed in 0..10 {
        let (world, mut random) = (World::new(), Random::new(seed));
        let mut client = world.client();
        for (n, options) in WINDOWS.iter().enumerate() {
            for key in [format!("k{n}"), format!("k{n}:other")] {
                let seed = if options.contains("KEYED") { "SEED 000102030405060708090a0b0c0d0e0f" } else { "" };
                let options = options.replace("KEYED", seed);
                assert!(client.cmd(&format!("CHAIN.RESERVE {key} 0.001 50 {options}")) == "OK", "{options}");
            }
        }
        for round in 0..5 {
            for _ in 0..100 {
                pass(&world, &mut random);
                change_window(&mut client, &mut random);
            }
            let again = world.replayed();
            let mut other = again.client();
            let what = format!("seed {seed}, round {round}");
            assert_same_windows(&mut client, &mut other, &what);
            let mut same = random.clone();
            for step in 0..50 {
                pass(&world, &mut random);
                pass(&again, &mut same);
                let replies = (change_window(&mut client, &mut random), change_window(&mut other, &mut same));
                assert_eq!(
                    replies.0.escape_ascii().to_string(),
                    replies.1.escape_ascii().to_string(),
                    "{what}: {step}"
                );
            }
            assert_same_windows(&mut client, &mut other, &format!("{what}, gone on"));
        }
    }
}
