//! Snapshots that are taken under load are states that existed.
//!
//! Four clients change keys in many shards, each one change after the other: transactions that add one tag to filters of all
//! families, RENAME of a token, adds to it, COPY of it, adds to a large filter, to a large ring and to large filters that count,
//! deletes from those, decays, and loads chunk by chunk. Snapshots are taken again and again, by BGSAVE and by
//! SYNC, and each is loaded by a second server. It must be a cut:
//!
//! * of each client the first changes are in it and no others, to the last item and name, no transaction torn;
//! * what had been confirmed before a change of another client began, is in it if that change is;
//! * what had been confirmed before the snapshot was asked for is in it.
//!
//! And of filters of all kinds and of loads that are not over nothing is lost on the way through a file.
//!
//! `SEENDB_SNAPSHOTS` is their number (10), `SEENDB_SEED` where the sizes of the clients' pauses begin.
#![cfg(feature = "server")]

#[path = "support/lasting.rs"]
mod lasting;
mod support;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use lasting::Place;
use support::chunks::{Chunk, assert_same_contents, chunks, contents, load_of};
use support::{Client, Random, Value, encode, wait_until};

const CLIENTS: usize = 4;
/// A client makes at most so many changes.
const MOST_CHANGES: u64 = 40_000;
const TOKEN_NAMES: u64 = 40;
const COPIES: u64 = 16;
const LARGE_ITEMS: u64 = 20;
/// So many items are in a large ring before the clients begin: its first array is bits by then, and grows later.
const RING_ITEMS: u64 = 12_000;
/// Names of keys that a client loads, of these families in turn.
const LOADS: u64 = 6;
const LOADED: [&str; 3] = ["CHAIN", "CBF", "DLCBF"];
/// Of the items that are added to a large filter that counts so many are deleted later.
const DELETED_ITEMS: u64 = 10;
/// Nothing is forgotten within the test.
const WINDOW: &str = "WINDOW 300000000";

type Counts = [u64; CLIENTS];

/// What is known of all clients.
#[derive(Default)]
struct Board {
    confirmed: [AtomicU64; CLIENTS],
    /// For each change of each client: how many of every client's had been confirmed before it was sent.
    known: [Mutex<Vec<Counts>>; CLIENTS],
    /// Items that were false positives when they were added, so that they were not counted.
    uncounted: AtomicU64,
    over: AtomicBool,
    /// A dump of each family that is loaded: its header and one chunk.
    dumps: [Vec<Chunk>; LOADED.len()],
}

impl Board {
    fn counts(&self) -> Counts {
        std::array::from_fn(|client| self.confirmed[client].load(Ordering::SeqCst))
    }
}

/// A change of a client: what it does follows from its number.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    Group,
    Rename,
    Token,
    Copy,
    Large,
    Ring,
    Counting,
    Dleft,
    /// Some of the items of an add before are deleted from both.
    Delete,
    /// Items are counted twice, in a filter that is decayed then.
    Fade,
    Decay,
    /// The next chunk of a key that is loaded.
    Chunk,
}

const CHANGES: [Change; 12] = [
    Change::Group,
    Change::Rename,
    Change::Token,
    Change::Copy,
    Change::Large,
    Change::Ring,
    Change::Counting,
    Change::Dleft,
    Change::Delete,
    Change::Fade,
    Change::Decay,
    Change::Chunk,
];

fn change(number: u64) -> Change {
    CHANGES[number as usize % CHANGES.len()]
}

/// How many of the first changes are of this kind.
fn count(changes: u64, kind: Change) -> u64 {
    changes.saturating_sub(kind as u64).div_ceil(CHANGES.len() as u64)
}

fn tag(client: usize, number: u64) -> String {
    format!("{client}:{number}")
}

fn token(client: usize, renames: u64) -> String {
    format!("token:{client}:{}", renames % TOKEN_NAMES)
}

/// The number of a client's change of this kind, behind so many of them.
fn number_of(kind: Change, before: u64) -> u64 {
    before * CHANGES.len() as u64 + kind as u64
}

/// The items that a change adds to a large filter or ring.
fn large_items(client: usize, number: u64) -> impl Iterator<Item = String> {
    (0..LARGE_ITEMS).map(move |n| format!("{}:{n}", tag(client, number)))
}

/// The key that takes the chunk behind so many others, the place of its family, and whether that is its header.
fn loaded(client: usize, chunks: u64) -> (String, usize, bool) {
    let number = chunks / 2 % LOADS;
    (format!("load:{client}:{number}"), number as usize % LOADED.len(), chunks.is_multiple_of(2))
}

/// The Bloom filters that a transaction adds its tag to; the last one is everybody's.
fn group_keys(client: usize) -> [String; 4] {
    let own = ["small", "middle", "wide"].map(|kind| format!("{kind}:{client}"));
    let [small, middle, wide] = own;
    [small, middle, wide, "all".into()]
}

fn make_keys(client: &mut Client) {
    let mut make = |key: String, capacity: u64| {
        assert!(client.cmd(&format!("BF.RESERVE {key} 1e-9 {capacity}")) == "OK", "{key}");
    };
    make("all".into(), 100_000);
    for id in 0..CLIENTS {
        let [small, middle, wide, _] = group_keys(id);
        make(small, 10_000);
        make(middle, 20_000);
        make(wide, 400_000);
        make(token(id, 0), 10_000);
        make(format!("large:{id}"), 800_000);
    }
    for id in 0..CLIENTS {
        for reserve in [
            "CBF.RESERVE cbf:seen:{} 1e-9 10000",
            "DLCBF.RESERVE dlcbf:seen:{} 1e-9 1000 EXPANSION 2",
            "CBF.RESERVE cbf:large:{} 1e-9 150000",
            "DLCBF.RESERVE dlcbf:large:{} 1e-9 600000",
            "CBF.RESERVE cbf:fading:{} 1e-9 60000",
        ] {
            assert!(client.cmd(&reserve.replace("{}", &id.to_string())) == "OK", "{reserve}");
        }
        assert!(client.cmd(&format!("CHAIN.RESERVE seen:{id} 1e-9 2000 {WINDOW}")) == "OK");
        assert!(client.cmd(&format!("CHAIN.RESERVE ring:{id} 1e-9 15000 LINKS 2 {WINDOW}")) == "OK");
        let words = ["CHAIN.MADD".to_owned(), format!("ring:{id}")].into_iter();
        client.call(&words.chain((0..RING_ITEMS).map(|n| format!("before:{n}"))).collect::<Vec<_>>());
    }
}

/// A dump of a key of each family that fits one chunk.
fn make_dumps(client: &mut Client) -> [Vec<Chunk>; LOADED.len()] {
    LOADED.map(|family| {
        let options = if family == "CHAIN" { WINDOW } else { "" };
        let line = format!("{family}.INSERT from CAPACITY 100 {options} ITEMS a b c d e f g");
        client.call(&line.split_ascii_whitespace().collect::<Vec<_>>());
        let dump = chunks(client, "from");
        assert!(client.cmd("DEL from") == 1 && dump.len() == 2);
        dump
    })
}

/// The requests of a change, and how many replies they get.
fn requests(client: usize, number: u64, dumps: &[Vec<Chunk>]) -> (Vec<u8>, usize) {
    let add = |key: &str, items: &[String]| format!("{}.MADD {key}:{client} {}", family(key), items.join(" "));
    let items: Vec<String> = large_items(client, number).collect();
    let lines = match change(number) {
        Change::Group => {
            let tag = tag(client, number);
            let adds = group_keys(client).map(|key| format!("BF.ADD {key} {tag}"));
            let others = ["seen", "cbf:seen", "dlcbf:seen"];
            let others = others.map(|key| format!("{}.ADD {key}:{client} {tag}", family(key)));
            [vec!["MULTI".to_owned()], adds.into(), others.into(), vec!["EXEC".to_owned()]].concat()
        }
        Change::Rename => {
            let renames = count(number, Change::Rename);
            vec![format!("RENAME {} {}", token(client, renames), token(client, renames + 1))]
        }
        Change::Token => {
            vec![format!("BF.ADD {} {}", token(client, count(number, Change::Rename)), tag(client, number))]
        }
        Change::Copy => {
            let place = count(number, Change::Copy) % COPIES;
            vec![format!("COPY {} copy:{client}:{place} REPLACE", token(client, count(number, Change::Rename)))]
        }
        Change::Large => vec![add("large", &items)],
        Change::Ring => vec![add("ring", &items)],
        Change::Counting => vec![add("cbf:large", &items)],
        Change::Dleft => vec![add("dlcbf:large", &items)],
        Change::Delete => {
            let deletes = count(number, Change::Delete);
            let delete = |(key, kind): (&str, Change)| {
                let items: Vec<String> = large_items(client, number_of(kind, deletes)).collect();
                format!("{}.MDEL {key}:{client} {}", family(key), items[..DELETED_ITEMS as usize].join(" "))
            };
            let [one, other] = [("cbf:large", Change::Counting), ("dlcbf:large", Change::Dleft)].map(delete);
            vec!["MULTI".to_owned(), one, other, "EXEC".to_owned()]
        }
        Change::Fade => vec![add("cbf:fading", &[&items[..], &items].concat())],
        Change::Decay => vec![format!("CBF.DECAY cbf:fading:{client}")],
        Change::Chunk => return chunk_requests(client, count(number, Change::Chunk), dumps),
    };
    let mut bytes = Vec::new();
    lines.iter().for_each(|line| bytes.extend(encode(&line.split(' ').collect::<Vec<_>>())));
    (bytes, lines.len())
}

/// A header takes the place of what was loaded under its name before.
fn chunk_requests(client: usize, chunks: u64, dumps: &[Vec<Chunk>]) -> (Vec<u8>, usize) {
    let (key, family, is_header) = loaded(client, chunks);
    let (cursor, data) = &dumps[family][usize::from(!is_header)];
    let (command, cursor) = (format!("{}.LOADCHUNK", LOADED[family]), cursor.to_string());
    let load = encode(&[command.as_bytes(), key.as_bytes(), cursor.as_bytes(), data]);
    match is_header {
        true => ([encode(&["MULTI"]), encode(&["DEL", &key]), load, encode(&["EXEC"])].concat(), 4),
        false => (load, 1),
    }
}

/// How many items were told to be no new ones.
fn old_items(reply: &Value) -> u64 {
    match reply {
        Value::Array(replies) => replies.iter().map(old_items).sum(),
        Value::Int(0) => 1,
        Value::Error(text) => panic!("a change was answered {text}"),
        _ => 0,
    }
}

fn work(id: usize, mut client: Client, board: &Board, mut random: Random) {
    for number in 0..MOST_CHANGES {
        if board.over.load(Ordering::Relaxed) {
            return;
        }
        let (bytes, replies) = requests(id, number, &board.dumps);
        board.known[id].lock().expect("no panic elsewhere").push(board.counts());
        client.send(&bytes);
        let last = (0..replies).map(|_| client.read()).last().expect("a reply");
        let old = old_items(&last);
        // What counts counts old items too.
        if matches!(change(number), Change::Group | Change::Token | Change::Large | Change::Ring) {
            board.uncounted.fetch_add(old, Ordering::SeqCst);
        }
        board.confirmed[id].store(number + 1, Ordering::SeqCst);
        // Many changes come at once, then fewer: so cuts fall between and into them.
        if random.percent(10) {
            std::thread::sleep(Duration::from_micros(random.below(20_000) as u64));
        }
    }
    wait_until("the end", || board.over.load(Ordering::Relaxed));
}

/// What SYNC sends: a bulk string without an end of line, and then the connection is closed.
fn synced(port: u16) -> Vec<u8> {
    let mut client = Client::connect(port).expect("a connection");
    client.send(&encode(&["SYNC"]));
    let sent = client.read_to_close();
    let line = sent.iter().position(|byte| *byte == b'\n').expect("a line");
    let length = std::str::from_utf8(&sent[..line]).ok().and_then(|line| line.trim().strip_prefix('$')?.parse().ok());
    assert_eq!(length, Some(sent.len() - line - 1), "the length that was announced");
    sent[line + 1..].to_vec()
}

/// A snapshot, as a file's bytes.
fn snapshot(client: &mut Client, port: u16, place: &Place, by_sync: bool) -> Vec<u8> {
    if by_sync {
        return synced(port);
    }
    assert!(matches!(client.cmd("BGSAVE"), Value::Simple(_)));
    wait_until("the snapshot", || client.cmd("INFO persistence").text().contains("rdb_bgsave_in_progress:0"));
    assert!(client.cmd("INFO persistence").text().contains("rdb_last_bgsave_status:ok"));
    std::fs::read(place.dir().join("dump.rdb")).expect("a snapshot")
}

/// The prefix of the commands for a key of this name.
fn family(key: &str) -> &'static str {
    match key.split(':').next() {
        Some("seen" | "ring") => "CHAIN",
        Some("cbf") => "CBF",
        Some("dlcbf") => "DLCBF",
        _ => "BF",
    }
}

/// What a loaded snapshot has of a client.
struct Seen<'a> {
    client: &'a mut Client,
    id: usize,
    uncounted: u64,
    dumps: &'a [Vec<Chunk>],
}

impl Seen<'_> {
    fn count_of(&mut self, key: &str, items: &[String]) -> u64 {
        let mut found = 0;
        for some in items.chunks(5000) {
            let words = [&[format!("{}.MEXISTS", family(key)), key.to_owned()], some].concat();
            found += self.client.call(&words).array().iter().filter(|answer| answer.truth()).count() as u64;
        }
        found
    }

    fn card(&mut self, key: &str) -> u64 {
        self.client.cmd(&format!("{}.CARD {key}", family(key))).int() as u64
    }

    /// Fails unless the key has these items and counts no others.
    fn exactly(&mut self, key: &str, items: &[String], when: u64) {
        assert_eq!(self.count_of(key, items), items.len() as u64, "items of {key} after {when} changes");
        let (card, most) = (self.card(key), items.len() as u64);
        assert!(card <= most && card + self.uncounted >= most, "{key} counts {card}, not {most}, after {when} changes");
    }

    /// Fails unless the filter, which counts, has each of these items so often, and no others.
    fn counts(&mut self, key: &str, items: &[(String, i64)], when: u64) {
        let question = format!("{}.MCOUNT", family(key));
        for some in items.chunks(5000) {
            let words = [question.clone(), key.to_owned()].into_iter().chain(some.iter().map(|(item, _)| item.clone()));
            let reply = self.client.call(&words.collect::<Vec<_>>());
            for ((item, times), count) in some.iter().zip(reply.array()) {
                assert_eq!(count.int(), *times, "{item} in {key} after {when} changes");
            }
        }
        let all: i64 = items.iter().map(|(_, times)| times).sum();
        assert_eq!(self.card(key), all as u64, "items of {key} after {when} changes");
    }

    fn tags(&self, changes: u64, kind: Change) -> Vec<String> {
        (0..changes).filter(|n| change(*n) == kind).map(|n| tag(self.id, n)).collect()
    }

    /// How many changes are in the snapshot: as many as the names and the numbers of items say.
    fn changes(&mut self, keys: &[String]) -> u64 {
        let id = self.id;
        let cards = ["small", "large", "ring", "cbf:large", "dlcbf:large", "cbf:fading"];
        let [groups, large, ring, counting, dleft, fading] = cards.map(|kind| self.card(&format!("{kind}:{id}")));
        let tokens: Vec<&String> = keys.iter().filter(|key| key.starts_with(&format!("token:{id}:"))).collect();
        let [name] = tokens[..] else { panic!("client {id} has the tokens {tokens:?}") };
        let adds = self.card(name);
        let near = |changes: &u64| {
            let is = |kind: Change, seen: u64, each: u64| {
                let expected = each * count(*changes, kind);
                seen <= expected && seen + self.uncounted >= expected
            };
            is(Change::Group, groups, 1)
                && is(Change::Token, adds, 1)
                && is(Change::Large, large, LARGE_ITEMS)
                && is(Change::Ring, ring.saturating_sub(RING_ITEMS), LARGE_ITEMS)
                && counting == counted(*changes, Change::Counting)
                && dleft == counted(*changes, Change::Dleft)
                && fading == LARGE_ITEMS * faded(*changes).map(|(_, times)| times as u64).sum::<u64>()
                && *name == token(id, count(*changes, Change::Rename))
        };
        let fitting: Vec<u64> = (0..=MOST_CHANGES).filter(near).collect();
        let large = [large, ring, counting, dleft, fading];
        let what = format!("{groups} groups, {adds} adds to {name}, {large:?} items in what is large");
        assert!(!fitting.is_empty(), "client {id}: no state: {what}");
        // A copy or a load is seen by what is in it only, and so is what has faded as often as it was added to.
        let has_others = |changes: &&u64| {
            self.has_copies(**changes, keys) && self.has_loads(**changes, keys) && self.has_faded(**changes)
        };
        *fitting.iter().rev().find(has_others).unwrap_or(&fitting[0])
    }

    /// What the copies have: for each place the number of the change that made it.
    fn copies(changes: u64) -> BTreeMap<u64, u64> {
        let copies = (0..changes).filter(|n| change(*n) == Change::Copy);
        copies.enumerate().map(|(n, number)| (n as u64 % COPIES, number)).collect()
    }

    fn has_copies(&mut self, changes: u64, keys: &[String]) -> bool {
        let copies = Self::copies(changes);
        let names = keys.iter().filter(|key| key.starts_with(&format!("copy:{}:", self.id))).count();
        let Some((place, number)) = copies.iter().max_by_key(|(_, number)| **number) else { return names == 0 };
        let items = self.tags(*number, Change::Token);
        names == copies.len() && self.count_of(&format!("copy:{}:{place}", self.id), &items) == items.len() as u64
    }

    fn has_faded(&mut self, changes: u64) -> bool {
        let (key, id) = (format!("cbf:fading:{}", self.id), self.id);
        faded(changes)
            .all(|(number, times)| self.client.cmd(&format!("CBF.COUNT {key} {}:0", tag(id, number))) == times)
    }

    /// The keys that were loaded, the place of the family of each, and whether all of it has come.
    fn loads(&self, changes: u64) -> BTreeMap<String, (usize, bool)> {
        let chunks = (0..count(changes, Change::Chunk)).map(|chunk| loaded(self.id, chunk));
        chunks.map(|(key, family, is_header)| (key, (family, !is_header))).collect()
    }

    fn has_loads(&mut self, changes: u64, keys: &[String]) -> bool {
        let loads = self.loads(changes);
        let names = keys.iter().filter(|key| key.starts_with(&format!("load:{}:", self.id))).count();
        let is_whole = |client: &mut Client, key: &str, family: usize| match client
            .cmd(&format!("{}.SCANDUMP {key} 0", LOADED[family]))
        {
            Value::Error(text) => text.contains("ERR filter is being loaded: 0 of ").then_some(false),
            _ => Some(true),
        };
        let mut loads_of = loads.iter();
        names == loads.len()
            && loads_of.all(|(key, (family, whole))| is_whole(self.client, key, *family) == Some(*whole))
    }

    /// Fails unless all is as after so many changes.
    fn check(&mut self, changes: u64) {
        let id = self.id;
        let groups = self.tags(changes, Change::Group);
        for key in &group_keys(id)[..3] {
            self.exactly(key, &groups, changes);
        }
        assert_eq!(self.count_of("all", &groups), groups.len() as u64, "items of client {id} in the shared filter");
        let renames = count(changes, Change::Rename);
        let tokens = self.tags(changes, Change::Token);
        self.exactly(&token(id, renames), &tokens, changes);
        for (place, number) in Self::copies(changes) {
            let items = self.tags(number, Change::Token);
            self.exactly(&format!("copy:{id}:{place}"), &items, changes);
        }
        let all_of = |kind: Change| {
            let numbers = (0..changes).filter(move |n| change(*n) == kind);
            numbers.flat_map(move |number| large_items(id, number)).collect::<Vec<_>>()
        };
        self.exactly(&format!("large:{id}"), &all_of(Change::Large), changes);
        self.check_rings(changes, &groups, all_of(Change::Ring));
        self.check_counts(changes, &groups);
        self.check_loads(changes);
    }

    fn check_rings(&mut self, changes: u64, groups: &[String], items: Vec<String>) {
        let id = self.id;
        self.exactly(&format!("seen:{id}"), groups, changes);
        let before = (0..RING_ITEMS).map(|n| format!("before:{n}"));
        self.exactly(&format!("ring:{id}"), &before.chain(items).collect::<Vec<_>>(), changes);
    }

    fn check_counts(&mut self, changes: u64, groups: &[String]) {
        let id = self.id;
        let groups: Vec<(String, i64)> = groups.iter().map(|tag| (tag.clone(), 1)).collect();
        for (key, kind) in [("cbf", Change::Counting), ("dlcbf", Change::Dleft)] {
            self.counts(&format!("{key}:seen:{id}"), &groups, changes);
            let deletes = count(changes, Change::Delete);
            let items = (0..count(changes, kind)).flat_map(|add| {
                let deleted = if add < deletes { DELETED_ITEMS as usize } else { 0 };
                let items = large_items(id, number_of(kind, add)).enumerate();
                items.map(move |(n, item)| (item, i64::from(n >= deleted)))
            });
            self.counts(&format!("{key}:large:{id}"), &items.collect::<Vec<_>>(), changes);
        }
        let items = faded(changes).flat_map(|(number, times)| large_items(id, number).map(move |item| (item, times)));
        self.counts(&format!("cbf:fading:{id}"), &items.collect::<Vec<_>>(), changes);
    }

    fn check_loads(&mut self, changes: u64) {
        for (key, (family, whole)) in self.loads(changes) {
            let dump = &self.dumps[family];
            // All of it can come yet.
            for chunk in dump.iter().filter(|_| !whole) {
                assert!(load_of(self.client, LOADED[family], &key, chunk) == "OK", "{key} after {changes} changes");
            }
            assert!(chunks(self.client, &key) == *dump, "{key} after {changes} changes");
        }
    }
}

/// How many items a large filter that counts has.
fn counted(changes: u64, kind: Change) -> u64 {
    LARGE_ITEMS * count(changes, kind) - DELETED_ITEMS * count(changes, Change::Delete)
}

/// The changes whose items are in the filter that is decayed after each, and how often they are.
fn faded(changes: u64) -> impl Iterator<Item = (u64, i64)> {
    let (adds, decays) = (count(changes, Change::Fade), count(changes, Change::Decay));
    let times = move |add: u64| 2 >> (decays - add);
    (adds.saturating_sub(2)..adds).map(move |add| (number_of(Change::Fade, add), times(add)))
}

/// Loads a snapshot in a second server and looks at it; how many changes of each client are in it.
fn look_at(bytes: &[u8], board: &Board) -> Counts {
    let place = Place::new(&["--save", ""]);
    std::fs::write(place.dir().join("dump.rdb"), bytes).expect("a copy");
    let server = place.start();
    let mut client = server.client();
    let keys: Vec<String> = client.cmd("KEYS *").array().iter().map(Value::text).collect();
    let uncounted = board.uncounted.load(Ordering::SeqCst);
    let counts: Counts = std::array::from_fn(|id| {
        let mut seen = Seen { client: &mut client, id, uncounted, dumps: &board.dumps };
        let changes = seen.changes(&keys);
        seen.check(changes);
        changes
    });
    let all: u64 = counts.iter().map(|changes| count(*changes, Change::Group)).sum();
    let card = client.cmd("BF.CARD all").int() as u64;
    assert!(card <= all && card + uncounted >= all, "the shared filter counts {card} items, not {all}");
    counts
}

/// Fails unless all that was confirmed before any of these changes began is among them.
fn check_order(counts: &Counts, board: &Board) {
    for (id, changes) in counts.iter().enumerate() {
        let Some(last) = changes.checked_sub(1) else { continue };
        let known = board.known[id].lock().expect("no panic elsewhere")[last as usize];
        for (other, known) in known.iter().enumerate() {
            assert!(
                counts[other] >= *known,
                "change {last} of client {id} is in it, and of client {other} only {} of {known} confirmed before",
                counts[other]
            );
        }
    }
}

#[test]
fn snapshots_under_load_are_states_that_existed() {
    let number = |variable: &str, default: u64| {
        std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    let (snapshots, seed) = (number("SEENDB_SNAPSHOTS", 10), number("SEENDB_SEED", 1));
    println!("{snapshots} snapshots, seed {seed}");
    let place = Place::new(&["--save", "", "--appendonly", "yes", "--appendfsync", "everysec"]);
    let server = place.start();
    make_keys(&mut server.client());
    let board = Board { dumps: make_dumps(&mut server.client()), ..Board::default() };
    std::thread::scope(|scope| {
        for id in 0..CLIENTS {
            let (board, client, random) = (&board, server.client(), Random::new(seed * 1000 + id as u64));
            scope.spawn(move || work(id, client, board, random));
        }
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let mut client = server.client();
            for n in 0..snapshots {
                let before = board.counts();
                let bytes = snapshot(&mut client, server.port(), &place, n % 2 == 1);
                let counts = look_at(&bytes, &board);
                check_order(&counts, &board);
                for id in 0..CLIENTS {
                    assert!(counts[id] >= before[id], "client {id}: {} of {} confirmed", counts[id], before[id]);
                }
            }
        }));
        board.over.store(true, Ordering::SeqCst);
        outcome.unwrap_or_else(|cause| std::panic::resume_unwind(cause));
    });
    println!("{:?} changes were made", board.counts());
}

/// A command with so many items.
fn many(client: &mut Client, line: &str, count: usize) {
    let items = (0..count).map(|n| format!("item:{n}"));
    let reply = client.call(&line.split(' ').map(str::to_owned).chain(items).collect::<Vec<_>>());
    assert!(!matches!(reply, Value::Error(_)), "{line}: {reply:?}");
}

/// Filters that count, of all kinds, packed and large, with lives and without; items are in them several times.
fn make_counting(client: &mut Client) {
    let counting = ["", "COUNTERBITS 8 STRICT", "KEYED"].map(|options| ("CBF", options));
    let dleft = ["", "EXPANSION 2", "OVERFLOW SPILL COUNTERBITS 4", "SUBTABLES 2 CELLS 4 KEYED"];
    for (n, (family, options)) in counting.into_iter().chain(dleft.map(|options| ("DLCBF", options))).enumerate() {
        for count in [0, 3, 300, 40_000] {
            let (key, capacity) = (format!("{family}{n}:{count}"), (count * 2).max(200));
            // It grows, and has a set that is not full.
            let capacity = if options.starts_with("EXPANSION") { (count / 3).max(20) } else { capacity };
            let line = format!("{family}.RESERVE {key} 0.0001 {capacity} {options}");
            assert!(client.cmd(line.trim_end()) == "OK", "{line}");
            for (command, count) in [("MADD", count), ("MADD", count / 3), ("MDEL", count / 2)] {
                (count > 0).then(|| many(client, &format!("{family}.{command} {key}"), count));
            }
            assert!(count != 300 || client.cmd(&format!("PEXPIREAT {key} 4000000000000")) == 1);
        }
    }
    // More often than the cells count.
    many(client, &format!("DLCBF.MADD DLCBF5:300{}", " item:299".repeat(20)), 0);
    assert!(client.cmd("DLCBF.INFO DLCBF5:300").field("Spilled items").int() > 0);
    assert!(client.cmd("DLCBF.COUNT DLCBF5:300 item:299") == 21);
    for line in ["CBF.MERGE CBF:sum CBF0:40000 CBF0:40000 FORCE", "CBF.DECAY CBF1:40000", "CBF.DECAY CBF2:300"] {
        assert!(client.cmd(line) == "OK", "{line}");
    }
}

/// Rings of all kinds, packed and large, with lives and without.
fn make_rings(client: &mut Client) {
    let kinds =
        ["LINKS 4", "LINKERROR KEYED", "DUAL", "DUAL THRESHOLD 0.75 IDLE 9000000", WINDOW, "WINDOW 300000000 BOUNDED"];
    for (n, options) in kinds.into_iter().chain(["WINDOW 100 CLOCK EVENT", "IDLE 9000000"]).enumerate() {
        for count in [0, 3, 300, 40_000] {
            let (key, capacity) = (format!("k{n}:{count}"), (count / 2).max(200));
            let life = if count == 300 { " PXAT 4000000000000" } else { "" };
            assert!(client.cmd(&format!("CHAIN.RESERVE {key} 0.0001 {capacity} {options}{life}")) == "OK", "{options}");
            // Events of three slices.
            let times: &[&str] = if options.contains("EVENT") { &["AT 5000", "AT 31000", "AT 61000"] } else { &[""] };
            for at in times.iter().filter(|_| count > 0) {
                many(client, format!("CHAIN.INSERT {key} {at} ITEMS").replace("  ", " ").as_str(), count);
            }
        }
    }
    for line in
        ["CHAIN.ROTATE k0:300", "CHAIN.EXTEND k1:40000 LINKS 9", "CHAIN.SHRINK k4:300 LINKS 2", "CHAIN.CLEAR k2:3"]
    {
        assert!(client.cmd(line) == "OK", "{line}");
    }
    assert!(client.cmd("CHAIN.MERGE merged k0:300") == "OK" && client.cmd("COPY k7:40000 k7:copied DB 3") == 1);
    client.cmd("BF.RESERVE filter 0.01 400000");
    many(client, "BF.MADD filter", 500);
    many(client, "BF.INSERT small:filter CAPACITY 10 ITEMS", 100);
    client.cmd("PEXPIREAT small:filter 4000000000000");
    client.cmd("CHAIN.PROFILE SET read: CAPACITY 30 KEYED IDLE 77");
    client.cmd("CHAIN.PROFILE SET shown: WINDOW 60 CLOCK EVENT");
}

/// Loads that are not over, of each family: of one nothing but the header is there, of others a part.
fn begin_loads(client: &mut Client) -> [Vec<Chunk>; LOADED.len()] {
    let reserves = ["0.000000000001 120000 LINKS 3", "0.000000001 100000", "0.000000001 300000"];
    std::array::from_fn(|n| {
        let family = LOADED[n];
        assert!(client.cmd(&format!("{family}.RESERVE from {}", reserves[n])) == "OK");
        many(client, &format!("{family}.MADD from"), if family == "CHAIN" { 150_000 } else { 5_000 });
        let dump = chunks(client, "from");
        assert!(dump.len() >= 3 && client.cmd("DEL from") == 1);
        for (number, taken) in [(0, 1), (1, 2), (2, 2)] {
            for chunk in &dump[..taken] {
                assert!(load_of(client, family, &format!("half:{family}:{number}"), chunk) == "OK");
            }
        }
        assert!(client.cmd(&format!("PEXPIREAT half:{family}:1 4000000000000")) == 1);
        assert!(client.cmd(&format!("MOVE half:{family}:2 3")) == 1);
        dump
    })
}

#[test]
fn all_is_loaded_as_it_was_saved() {
    let items: Vec<String> = (0..2000).map(|n| format!("item:{}", n * 20)).collect();
    let place = Place::new(&["--save", ""]);
    let server = place.start();
    let mut client = server.client();
    make_rings(&mut client);
    make_counting(&mut client);
    let dumps = begin_loads(&mut client);
    let (before, profiles) = (contents(&mut client, 4, &items), client.cmd("CHAIN.PROFILE LIST"));
    assert_eq!(before.values().filter(|held| held.is_half_loaded()).count(), 9);
    let mut file = Vec::new();
    for round in 0..3 {
        let bytes = match &file[..] {
            [] => snapshot(&mut client, server.port(), &place, false),
            // And what was loaded is saved once more.
            file => saved_again(file),
        };
        file = if round == 1 { synced(server.port()) } else { bytes };
        let copy = Place::new(&["--save", ""]);
        std::fs::write(copy.dir().join("dump.rdb"), &file).expect("a copy");
        let server = copy.start();
        let mut client = server.client();
        assert_same_contents(&before, &contents(&mut client, 4, &items), &format!("snapshot {round}"));
        assert_eq!(client.cmd("CHAIN.PROFILE LIST"), profiles);
        goes_on(&mut client, &dumps);
    }
}

/// A server that has loaded this snapshot saves it.
fn saved_again(file: &[u8]) -> Vec<u8> {
    let copy = Place::new(&["--save", ""]);
    let path = copy.dir().join("dump.rdb");
    std::fs::write(&path, file).expect("a copy");
    let server = copy.start();
    assert!(server.client().cmd("SAVE") == "OK");
    std::fs::read(path).expect("a snapshot")
}

/// Loads end, lives move, links turn, what was counted is deleted.
fn goes_on(client: &mut Client, dumps: &[Vec<Chunk>]) {
    for (family, dump) in LOADED.into_iter().zip(dumps) {
        for (db, number, ends) in [(0, 0, -1), (0, 1, 4_000_000_000_000), (3, 2, -1)] {
            let key = format!("half:{family}:{number}");
            client.cmd(&format!("SELECT {db}"));
            for chunk in dump {
                assert!(load_of(client, family, &key, chunk) == "OK", "{key}");
            }
            assert!(chunks(client, &key) == *dump && client.cmd(&format!("PEXPIRETIME {key}")) == ends, "{key}");
        }
    }
    client.cmd("SELECT 0");
    for (key, count) in [("CBF0:40000", 40_000), ("CBF1:300", 300), ("DLCBF3:300", 300), ("DLCBF4:40000", 40_000)] {
        let family = key.split(|letter: char| letter.is_numeric()).next().expect("a word");
        let words = [format!("{family}.MDEL"), key.to_owned()].into_iter();
        let left = (0..count / 3).chain(count / 2..count).map(|n| format!("item:{n}"));
        let reply = client.call(&words.chain(left).collect::<Vec<_>>());
        assert!(reply.array().iter().all(Value::truth) && client.cmd(&format!("{family}.CARD {key}")) == 0, "{key}");
    }
    assert!(client.cmd("CHAIN.ADD k7:0 a") == 1 && client.cmd("TTL k7:0").int() > 8_999_000);
    assert!(client.cmd("CHAIN.ADD k6:300 late AT 5000") == 1 && client.cmd("CHAIN.ADD k6:300 a AT 200000") == 1);
    assert!(client.cmd("CHAIN.EXISTS k6:300 late") == 0 && client.cmd("CHAIN.CARD k6:300") == 1);
    assert!(client.cmd("CHAIN.ROTATE k0:40000") == "OK" && client.cmd("CHAIN.ADD read:1 a") == 1);
    assert!(client.cmd("TTL read:1") == 77 && *client.cmd("CHAIN.INFO read:1").field("Capacity") == 30);
}
