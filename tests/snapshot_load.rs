//! Snapshots that are taken under load are states that existed.
//!
//! Four clients change keys in many shards, each one change after the other: transactions that add one tag to four filters and a
//! ring, RENAME of a token, adds to it, COPY of it, adds to a large filter and to a large ring, and loads of rings chunk by
//! chunk. Snapshots are taken again and again, by BGSAVE and by
//! SYNC, and each is loaded by a second server. It must be a cut:
//!
//! * of each client the first changes are in it and no others, to the last item and name, no transaction torn;
//! * what had been confirmed before a change of another client began, is in it if that change is;
//! * what had been confirmed before the snapshot was asked for is in it.
//!
//! And of rings of all kinds, of filters and of loads that are not over nothing is lost on the way through a file.
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
use support::rings::{Chunk, assert_same_contents, chunks, contents, load};
use support::{Client, Random, Value, encode, wait_until};

const CLIENTS: usize = 4;
/// A client makes at most so many changes.
const MOST_CHANGES: u64 = 40_000;
const TOKEN_NAMES: u64 = 40;
const COPIES: u64 = 16;
const LARGE_ITEMS: u64 = 20;
/// So many items are in a large ring before the clients begin: its first array is bits by then, and grows later.
const RING_ITEMS: u64 = 12_000;
/// Names of rings that a client loads.
const LOADS: u64 = 4;
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
    /// A dump of a ring: its header and one chunk.
    dump: Vec<Chunk>,
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
    /// The next chunk of a ring that is loaded.
    Chunk,
}

const CHANGES: [Change; 7] =
    [Change::Group, Change::Rename, Change::Token, Change::Copy, Change::Large, Change::Ring, Change::Chunk];

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

/// The items that a change adds to a large filter or ring.
fn large_items(client: usize, number: u64) -> impl Iterator<Item = String> {
    (0..LARGE_ITEMS).map(move |n| format!("{}:{n}", tag(client, number)))
}

/// The ring that takes the chunk behind so many others, and whether that is its header.
fn load_of(client: usize, chunks: u64) -> (String, bool) {
    (format!("load:{client}:{}", chunks / 2 % LOADS), chunks.is_multiple_of(2))
}

/// The filters that a transaction adds its tag to; the last one is everybody's.
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
        assert!(client.cmd(&format!("CHAIN.RESERVE seen:{id} 1e-9 2000 {WINDOW}")) == "OK");
        assert!(client.cmd(&format!("CHAIN.RESERVE ring:{id} 1e-9 15000 LINKS 2 {WINDOW}")) == "OK");
        let words = ["CHAIN.MADD".to_owned(), format!("ring:{id}")].into_iter();
        client.call(&words.chain((0..RING_ITEMS).map(|n| format!("before:{n}"))).collect::<Vec<_>>());
    }
}

/// A dump of a ring that fits one chunk.
fn make_dump(client: &mut Client) -> Vec<Chunk> {
    client.cmd(&format!("CHAIN.INSERT from CAPACITY 100 {WINDOW} ITEMS a b c d e f g"));
    let dump = chunks(client, "from");
    assert!(client.cmd("DEL from") == 1 && dump.len() == 2);
    dump
}

/// The requests of a change, and how many replies they get.
fn requests(client: usize, number: u64, dump: &[Chunk]) -> (Vec<u8>, usize) {
    let lines = match change(number) {
        Change::Group => {
            let tag = tag(client, number);
            let adds = group_keys(client).map(|key| format!("BF.ADD {key} {tag}"));
            let ring = format!("CHAIN.ADD seen:{client} {tag}");
            [vec!["MULTI".to_owned()], adds.into(), vec![ring, "EXEC".to_owned()]].concat()
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
        Change::Large => {
            let items: Vec<String> = large_items(client, number).collect();
            vec![format!("BF.MADD large:{client} {}", items.join(" "))]
        }
        Change::Ring => {
            let items: Vec<String> = large_items(client, number).collect();
            vec![format!("CHAIN.MADD ring:{client} {}", items.join(" "))]
        }
        Change::Chunk => return chunk_requests(client, count(number, Change::Chunk), dump),
    };
    let mut bytes = Vec::new();
    lines.iter().for_each(|line| bytes.extend(encode(&line.split(' ').collect::<Vec<_>>())));
    (bytes, lines.len())
}

/// A header takes the place of the ring that was loaded under its name before.
fn chunk_requests(client: usize, chunks: u64, dump: &[Chunk]) -> (Vec<u8>, usize) {
    let (key, is_header) = load_of(client, chunks);
    let (cursor, data) = &dump[usize::from(!is_header)];
    let load = encode(&[b"CHAIN.LOADCHUNK", key.as_bytes(), cursor.to_string().as_bytes(), data]);
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
        let (bytes, replies) = requests(id, number, &board.dump);
        board.known[id].lock().expect("no panic elsewhere").push(board.counts());
        client.send(&bytes);
        let last = (0..replies).map(|_| client.read()).last().expect("a reply");
        let old = old_items(&last);
        if change(number) != Change::Chunk {
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
    if key.starts_with("seen:") || key.starts_with("ring:") { "CHAIN" } else { "BF" }
}

/// What a loaded snapshot has of a client.
struct Seen<'a> {
    client: &'a mut Client,
    id: usize,
    uncounted: u64,
    dump: &'a [Chunk],
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

    fn tags(&self, changes: u64, kind: Change) -> Vec<String> {
        (0..changes).filter(|n| change(*n) == kind).map(|n| tag(self.id, n)).collect()
    }

    /// How many changes are in the snapshot: as many as the names and the numbers of items say.
    fn changes(&mut self, keys: &[String]) -> u64 {
        let id = self.id;
        let [groups, large, ring] = ["small", "large", "ring"].map(|kind| self.card(&format!("{kind}:{id}")));
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
                && *name == token(id, count(*changes, Change::Rename))
        };
        let fitting: Vec<u64> = (0..=MOST_CHANGES).filter(near).collect();
        let what = format!("{groups} groups, {adds} adds to {name}, {large} and {ring} items in what is large");
        assert!(!fitting.is_empty(), "client {id}: no state: {what}");
        // A copy or a load is seen by what is in it only.
        let has_others = |changes: &&u64| self.has_copies(**changes, keys) && self.has_loads(**changes, keys);
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

    /// The rings that were loaded, and whether all of each has come.
    fn loads(&self, changes: u64) -> BTreeMap<String, bool> {
        let chunks = 0..count(changes, Change::Chunk);
        chunks.map(|chunk| load_of(self.id, chunk)).map(|(key, is_header)| (key, !is_header)).collect()
    }

    fn has_loads(&mut self, changes: u64, keys: &[String]) -> bool {
        let loads = self.loads(changes);
        let names = keys.iter().filter(|key| key.starts_with(&format!("load:{}:", self.id))).count();
        let is_whole = |client: &mut Client, key: &str| match client.cmd(&format!("CHAIN.SCANDUMP {key} 0")) {
            Value::Error(text) => text.contains("ERR filter is being loaded: 0 of ").then_some(false),
            _ => Some(true),
        };
        names == loads.len() && loads.iter().all(|(key, whole)| is_whole(self.client, key) == Some(*whole))
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
    }

    fn check_rings(&mut self, changes: u64, groups: &[String], items: Vec<String>) {
        let id = self.id;
        self.exactly(&format!("seen:{id}"), groups, changes);
        let before = (0..RING_ITEMS).map(|n| format!("before:{n}"));
        self.exactly(&format!("ring:{id}"), &before.chain(items).collect::<Vec<_>>(), changes);
        for (key, whole) in self.loads(changes) {
            if !whole {
                // All of it can come yet.
                for chunk in self.dump {
                    assert!(load(self.client, &key, chunk) == "OK", "{key} after {changes} changes");
                }
            }
            assert!(chunks(self.client, &key) == self.dump, "{key} after {changes} changes");
        }
    }
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
        let mut seen = Seen { client: &mut client, id, uncounted, dump: &board.dump };
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
    let board = Board { dump: make_dump(&mut server.client()), ..Board::default() };
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

/// Rings of all kinds, packed and large, with lives and without.
fn make_rings(client: &mut Client) {
    let many = |client: &mut Client, line: &str, count: usize| {
        let items = (0..count).map(|n| format!("item:{n}"));
        let reply = client.call(&line.split(' ').map(str::to_owned).chain(items).collect::<Vec<_>>());
        assert!(!matches!(reply, Value::Error(_)), "{line}: {reply:?}");
    };
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

/// Loads that are not over: of one nothing but the header is there, of others a part.
fn begin_loads(client: &mut Client) -> Vec<Chunk> {
    client.cmd("CHAIN.RESERVE from 0.000000000001 120000 LINKS 3");
    let words = ["CHAIN.MADD".to_owned(), "from".to_owned()].into_iter();
    client.call(&words.chain((0..150_000).map(|n| format!("item:{n}"))).collect::<Vec<_>>());
    let dump = chunks(client, "from");
    assert!(dump.len() >= 3 && client.cmd("DEL from") == 1);
    for (key, taken) in [("half:0", 1), ("half:1", 2), ("half:2", 2)] {
        for chunk in &dump[..taken] {
            assert!(load(client, key, chunk) == "OK");
        }
    }
    assert!(client.cmd("PEXPIREAT half:1 4000000000000") == 1 && client.cmd("MOVE half:2 3") == 1);
    dump
}

#[test]
fn rings_are_loaded_as_they_were_saved() {
    let items: Vec<String> = (0..2000).map(|n| format!("item:{}", n * 20)).collect();
    let place = Place::new(&["--save", ""]);
    let server = place.start();
    let mut client = server.client();
    make_rings(&mut client);
    let dump = begin_loads(&mut client);
    let (before, profiles) = (contents(&mut client, 4, &items), client.cmd("CHAIN.PROFILE LIST"));
    assert_eq!(before.values().filter(|held| held.is_half_loaded()).count(), 3);
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
        goes_on(&mut client, &dump);
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

/// Loads end, lives move, links turn.
fn goes_on(client: &mut Client, dump: &[Chunk]) {
    for (db, key, ends) in [(0, "half:0", -1), (0, "half:1", 4_000_000_000_000), (3, "half:2", -1)] {
        client.cmd(&format!("SELECT {db}"));
        for chunk in dump {
            assert!(load(client, key, chunk) == "OK", "{key}");
        }
        assert!(chunks(client, key) == dump && client.cmd(&format!("PEXPIRETIME {key}")) == ends, "{key}");
    }
    client.cmd("SELECT 0");
    assert!(client.cmd("CHAIN.ADD k7:0 a") == 1 && client.cmd("TTL k7:0").int() > 8_999_000);
    assert!(client.cmd("CHAIN.ADD k6:300 late AT 5000") == 1 && client.cmd("CHAIN.ADD k6:300 a AT 200000") == 1);
    assert!(client.cmd("CHAIN.EXISTS k6:300 late") == 0 && client.cmd("CHAIN.CARD k6:300") == 1);
    assert!(client.cmd("CHAIN.ROTATE k0:40000") == "OK" && client.cmd("CHAIN.ADD read:1 a") == 1);
    assert!(client.cmd("TTL read:1") == 77 && *client.cmd("CHAIN.INFO read:1").field("Capacity") == 30);
}
