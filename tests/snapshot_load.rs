//! Snapshots that are taken under load are states that existed.
//!
//! Four clients change keys in many shards, each one change after the other: transactions that add one tag to four filters,
//! RENAME of a token, adds to it, COPY of it, and adds to a large filter. Snapshots are taken again and again, by BGSAVE and by
//! SYNC, and each is loaded by a second server. It must be a cut:
//!
//! * of each client the first changes are in it and no others, to the last item and name, no transaction torn;
//! * what had been confirmed before a change of another client began, is in it if that change is;
//! * what had been confirmed before the snapshot was asked for is in it.
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
use support::{Client, Random, Value, encode, wait_until};

const CLIENTS: usize = 4;
/// A client makes at most so many changes.
const MOST_CHANGES: u64 = 40_000;
const TOKEN_NAMES: u64 = 40;
const COPIES: u64 = 16;
const LARGE_ITEMS: u64 = 20;

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
}

fn change(number: u64) -> Change {
    [Change::Group, Change::Rename, Change::Token, Change::Copy, Change::Large][(number % 5) as usize]
}

/// How many of the first changes are of this kind.
fn count(changes: u64, kind: Change) -> u64 {
    changes.saturating_sub(kind as u64).div_ceil(5)
}

fn tag(client: usize, number: u64) -> String {
    format!("{client}:{number}")
}

fn token(client: usize, renames: u64) -> String {
    format!("token:{client}:{}", renames % TOKEN_NAMES)
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
}

/// The requests of a change, and how many replies they get.
fn requests(client: usize, number: u64) -> (Vec<u8>, usize) {
    let lines = match change(number) {
        Change::Group => {
            let adds = group_keys(client).map(|key| format!("BF.ADD {key} {}", tag(client, number)));
            [vec!["MULTI".to_owned()], adds.into(), vec!["EXEC".to_owned()]].concat()
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
            let items: Vec<String> = (0..LARGE_ITEMS).map(|n| format!("{}:{n}", tag(client, number))).collect();
            vec![format!("BF.MADD large:{client} {}", items.join(" "))]
        }
    };
    let mut bytes = Vec::new();
    lines.iter().for_each(|line| bytes.extend(encode(&line.split(' ').collect::<Vec<_>>())));
    (bytes, lines.len())
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
        let (bytes, replies) = requests(id, number);
        board.known[id].lock().expect("no panic elsewhere").push(board.counts());
        client.send(&bytes);
        let last = (0..replies).map(|_| client.read()).last().expect("a reply");
        board.uncounted.fetch_add(old_items(&last), Ordering::SeqCst);
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

/// What a loaded snapshot has of a client.
struct Seen<'a> {
    client: &'a mut Client,
    id: usize,
    uncounted: u64,
}

impl Seen<'_> {
    fn count_of(&mut self, key: &str, items: &[String]) -> u64 {
        let mut found = 0;
        for some in items.chunks(5000) {
            let words = [&["BF.MEXISTS".to_owned(), key.to_owned()], some].concat();
            found += self.client.call(&words).array().iter().filter(|answer| answer.truth()).count() as u64;
        }
        found
    }

    /// Fails unless the key has these items and counts no others.
    fn exactly(&mut self, key: &str, items: &[String], when: u64) {
        assert_eq!(self.count_of(key, items), items.len() as u64, "items of {key} after {when} changes");
        let (card, most) = (self.client.cmd(&format!("BF.CARD {key}")).int() as u64, items.len() as u64);
        assert!(card <= most && card + self.uncounted >= most, "{key} counts {card}, not {most}, after {when} changes");
    }

    fn tags(&self, changes: u64, kind: Change) -> Vec<String> {
        (0..changes).filter(|n| change(*n) == kind).map(|n| tag(self.id, n)).collect()
    }

    /// How many changes are in the snapshot: as many as the names and the numbers of items say.
    fn changes(&mut self, keys: &[String]) -> u64 {
        let id = self.id;
        let card = |client: &mut Client, key: &str| client.cmd(&format!("BF.CARD {key}")).int() as u64;
        let groups = card(self.client, &format!("small:{id}"));
        let large = card(self.client, &format!("large:{id}"));
        let tokens: Vec<&String> = keys.iter().filter(|key| key.starts_with(&format!("token:{id}:"))).collect();
        let [name] = tokens[..] else { panic!("client {id} has the tokens {tokens:?}") };
        let adds = card(self.client, name);
        let near = |changes: &u64| {
            let is = |kind: Change, seen: u64, each: u64| {
                let expected = each * count(*changes, kind);
                seen <= expected && seen + self.uncounted >= expected
            };
            is(Change::Group, groups, 1)
                && is(Change::Token, adds, 1)
                && is(Change::Large, large, LARGE_ITEMS)
                && *name == token(id, count(*changes, Change::Rename))
        };
        let fitting: Vec<u64> = (0..=MOST_CHANGES).filter(near).collect();
        let what = format!("{groups} groups, {adds} adds to {name}, {large} items in the large filter");
        assert!(!fitting.is_empty(), "client {id}: no state: {what}");
        // A copy is seen by what is in it only.
        *fitting.iter().rev().find(|changes| self.has_copies(**changes, keys)).unwrap_or(&fitting[0])
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
        let numbers = (0..changes).filter(|n| change(*n) == Change::Large);
        let large: Vec<String> =
            numbers.flat_map(|number| (0..LARGE_ITEMS).map(move |n| format!("{}:{n}", tag(id, number)))).collect();
        self.exactly(&format!("large:{id}"), &large, changes);
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
        let mut seen = Seen { client: &mut client, id, uncounted };
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
    let board = Board::default();
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
