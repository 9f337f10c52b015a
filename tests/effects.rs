//! Every change is one effect, in the order of the changes: doing the effects again in an empty keyspace gives the same bytes.
//!
//! Four clients send random commands to one keyspace, in this process, and snapshots are taken of it one after the other: each
//! has what the effects before its cut give. `SEENDB_EFFECT_COMMANDS` is the number of commands of all of them together
//! (100,000), `SEENDB_SEED` where the generators begin.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use seendb::codec::bloom_value::BloomWriter;
use seendb::codec::cells_value::{CellsHead, CellsRef, CellsWriter};
use seendb::codec::payload::{dump, dump_cells, dump_ring, open};
use seendb::codec::rdb::{self, TYPE_MODULE_2};
use seendb::codec::value::push_half_loaded;
use seendb::commands::context::{Context, Counters, Session};
use seendb::commands::dispatch::{Progress, execute, write};
use seendb::config::{Environment, Settings};
use seendb::filters::BloomRef;
use seendb::filters::counting::{CountingRef, PackedCounting};
use seendb::filters::dleft::{DleftRef, PackedDleft};
use seendb::filters::frozen::{Frozen, FrozenArrays, FrozenBits};
use seendb::filters::packed_bloom::PackedBloom;
use seendb::filters::ring::Ring;
use seendb::filters::ring::packed::PackedRing;
use seendb::keyspace::copies::cells_of;
use seendb::keyspace::effect::{Effect, Group, Journal};
use seendb::keyspace::entry::{Kind, ValueRef};
use seendb::keyspace::snapshot::{Images, LargeFilter, Walk};
use seendb::keyspace::{DATABASES, Keyspace, SHARDS};
use seendb::persist::record::{Malformed, for_each_record, next_unit, stage, suspend, unit, with_staged};
use seendb::persist::redo::{Failed, Redo};
use seendb::persist::replay::apply;

#[path = "support/in_process.rs"]
mod in_process;

/// Keeps all records, one after the other.
#[derive(Default)]
struct Tape(Mutex<Vec<u8>>);

impl Tape {
    fn append(&self, head: &[u8], records: &[u8]) {
        let mut tape = self.0.lock();
        tape.extend_from_slice(head);
        tape.extend_from_slice(records);
    }
}

impl Journal for Tape {
    fn record(&self, db: usize, name: &[u8], effect: &Effect<'_>) {
        stage(db, name, effect);
    }

    fn commit(&self) {
        with_staged(|head, records| self.append(head, records));
    }

    fn suspend(&self, group: &mut Group) {
        suspend(group);
    }

    fn commit_group(&self, group: Group) {
        unit(&group, |head, records| self.append(head, records));
    }
}

/// splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn key(&mut self) -> String {
        format!("k{}", self.below(40))
    }

    fn items(&mut self, most: u64) -> Vec<String> {
        (0..=self.below(most)).map(|_| format!("i{}", self.below(20_000))).collect()
    }
}

/// A client of the keyspace.
struct Client {
    keyspace: Arc<Keyspace>,
    settings: Arc<Settings>,
    session: Session,
    counters: Counters,
    random: Random,
    /// A payload that some DUMP gave.
    payload: Vec<u8>,
}

impl Client {
    fn call(&mut self, words: &[&[u8]]) -> Vec<u8> {
        let (input, batch) = in_process::request(words);
        let (mut next, mut out) = (0, Vec::new());
        loop {
            let mut context = Context {
                keyspace: &self.keyspace,
                settings: &self.settings,
                session: &mut self.session,
                host: &in_process::Plain,
                counters: &self.counters,
                held: None,
            };
            let until = Instant::now() + Duration::from_millis(1);
            match execute(&mut context, (&batch, &input), &mut next, until, &mut out) {
                Progress::Done => return out,
                Progress::Pause => {}
                Progress::Busy(wait) => {
                    drop(context);
                    block_on(wait);
                }
                Progress::Long(mut long) => loop {
                    let until = Instant::now() + Duration::from_micros(200);
                    if let Ok(Some(reply)) = long.step(&mut context, batch.request(&input, next), until) {
                        drop(long);
                        write(&context, &reply, &mut out);
                        return out;
                    }
                    std::thread::yield_now();
                },
            }
        }
    }

    fn say(&mut self, line: &str) -> Vec<u8> {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        self.call(&words)
    }

    fn step(&mut self) {
        let (key, other) = (self.random.key(), self.random.key());
        match self.random.below(100) {
            0..30 => return self.step_with_ring(&key, &other),
            30..60 => return self.step_with_cells(&key, &other),
            _ => {}
        }
        match self.random.below(100) {
            0..=24 => {
                let item = self.random.below(20_000);
                self.say(&format!("BF.ADD {key} i{item}"));
            }
            25..=44 => {
                let items = self.random.items(60).join(" ");
                self.say(&format!("BF.MADD {key} {items}"));
            }
            45 => {
                // Long enough to take the key's latch.
                let items = self.random.items(9_000).join(" ");
                self.say(&format!("BF.MADD {key} {items}"));
            }
            46..=54 => {
                let capacity = [10, 300, 5_000, 200_000][self.random.below(4) as usize];
                let expansion = 1 + self.random.below(3);
                let life = ["", " PX 5", " EX 100"][self.random.below(3) as usize];
                self.say(&format!("BF.RESERVE {key} 0.01 {capacity} EXPANSION {expansion}{life}"));
            }
            55..=59 => {
                let items = self.random.items(20).join(" ");
                self.say(&format!("BF.INSERT {key} CAPACITY 40 NONSCALING PX 30 ITEMS {items}"));
            }
            60..=67 => drop(self.say(&format!("DEL {key} {other}"))),
            68..=72 => {
                let milliseconds = self.random.below(40) as i64 - 2;
                self.say(&format!("PEXPIRE {key} {milliseconds}"));
            }
            73..=75 => drop(self.say(&format!("PERSIST {key}"))),
            76..=78 => drop(self.say(&format!("RENAME {key} {other}"))),
            79..=81 => drop(self.say(&format!("COPY {key} {other} REPLACE DB {}", self.session.db ^ 1))),
            82..=83 => drop(self.say(&format!("MOVE {key} {}", self.session.db ^ 1))),
            84..=86 => self.dump(&key),
            87..=89 => {
                let payload = std::mem::take(&mut self.payload);
                self.call(&[b"RESTORE", other.as_bytes(), b"0", &payload, b"REPLACE"]);
                self.payload = payload;
            }
            90..=95 => self.transaction(&key, &other),
            96..=97 => self.chunks(&key, &other),
            98 => drop(self.say("SELECT 1")),
            _ => {
                let line = ["SELECT 0", "SWAPDB 0 1", "FLUSHDB", "SELECT 0"][self.random.below(4) as usize];
                self.say(line);
            }
        }
    }

    /// Rings have the same names as filters: what meets another kind is refused.
    fn step_with_ring(&mut self, key: &str, other: &str) {
        let items = self.random.items(60).join(" ");
        match self.random.below(100) {
            0..=14 => {
                let options = [
                    "",
                    "LINKS 3 LINKERROR",
                    "DUAL THRESHOLD 0.6",
                    "KEYED",
                    "PWINDOW 8 LINKS 4",
                    "PWINDOW 20 BOUNDED IDLE 1",
                    "PWINDOW 500 CLOCK EVENT",
                    "SEED 000102030405060708090a0b0c0d0e0f",
                ];
                let capacity = [10, 300, 5_000, 100_000][self.random.below(4) as usize];
                let (option, life) =
                    (options[self.random.below(8) as usize], ["", " PX 5"][self.random.below(2) as usize]);
                self.say(&format!("CHAIN.RESERVE {key} 0.01 {capacity} {option}{life}").replace("  ", " "));
            }
            15..=29 => {
                let item = self.random.below(20_000);
                self.say(&format!("CHAIN.ADD {key} i{item}"));
            }
            30..=49 => drop(self.say(&format!("CHAIN.MADD {key} {items}"))),
            50..=54 => {
                let at = self.random.below(3_000);
                self.say(&format!("CHAIN.INSERT {key} AT {at} PWINDOW 500 CLOCK EVENT ITEMS {items}"));
            }
            55..=62 => {
                let count = 1 + self.random.below(9);
                self.say(&format!("CHAIN.UNSEENADD {key} COUNT {count} CAPACITY 40 IDLE 1 ITEMS {items}"));
            }
            63..=65 => {
                let at = self.random.below(3_000);
                self.say(&format!("CHAIN.UNSEENADD {key} AT {at} ITEMS {items}"));
            }
            66 => {
                // Long enough to take the key's latch.
                let items = self.random.items(9_000).join(" ");
                self.say(&format!("CHAIN.MADD {key} {items}"));
            }
            67..=69 => drop(self.say(&format!("CHAIN.ROTATE {key}"))),
            70..=72 => drop(self.say(&format!("CHAIN.CLEAR {key}"))),
            73..=75 => drop(self.say(&format!("CHAIN.EXTEND {key} LINKS 9"))),
            76..=78 => drop(self.say(&format!("CHAIN.SHRINK {key} LINKS 2"))),
            79..=86 => drop(self.say(&format!("CHAIN.MERGE {key} {other} FORCE"))),
            87..=92 => self.dump_chunks("CHAIN", key, other),
            93..=95 => drop(self.say(&format!("CHAIN.PROFILE SET k{} LINKS 3", self.random.0 % 4))),
            96..=97 => drop(self.say(&format!("CHAIN.PROFILE DEL k{}", self.random.0 % 4))),
            _ => {
                self.say("MULTI");
                self.say(&format!("CHAIN.MADD {key} {items}"));
                self.say(&format!("CHAIN.PROFILE SET k{} PWINDOW 20", self.random.0 % 4));
                self.say(&format!("COPY {key} {other} REPLACE"));
                self.say(&format!("CHAIN.MERGE {key} {other} FORCE"));
                self.say("EXEC");
            }
        }
    }

    /// Counting and d-left filters have the same names again.
    fn step_with_cells(&mut self, key: &str, other: &str) {
        let family = ["CBF", "DLCBF"][self.random.below(2) as usize];
        let items = self.random.items(60).join(" ");
        match self.random.below(100) {
            0..=14 => {
                let options: [&str; 6] = match family {
                    "CBF" => ["", "COUNTERBITS 8", "STRICT", "KEYED", "COUNTERBITS 8 STRICT", "COUNTERBITS 4"],
                    _ => [
                        "",
                        "EXPANSION 2",
                        "COUNTERBITS 4",
                        "OVERFLOW SPILL",
                        "KEYED",
                        "SUBTABLES 2 CELLS 4 EXPANSION 1",
                    ],
                };
                let capacity = [10, 300, 5_000, 100_000][self.random.below(4) as usize];
                let option = options[self.random.below(6) as usize];
                let life = ["", " PX 5"][self.random.below(2) as usize];
                self.say(&format!("{family}.RESERVE {key} 0.01 {capacity} {option}{life}").replace("  ", " "));
            }
            15..=24 => {
                let item = self.random.below(20_000);
                self.say(&format!("{family}.ADD {key} i{item}"));
            }
            25..=49 => drop(self.say(&format!("{family}.MADD {key} {items}"))),
            50..=69 => drop(self.say(&format!("{family}.MDEL {key} {items}"))),
            70..=74 => {
                let item = self.random.below(20_000);
                self.say(&format!("{family}.DEL {key} i{item}"));
            }
            75 => {
                // Long enough to take the key's latch.
                let (items, verb) =
                    (self.random.items(9_000).join(" "), ["MADD", "MDEL"][self.random.below(2) as usize]);
                self.say(&format!("{family}.{verb} {key} {items}"));
            }
            76..=80 => drop(self.say(&format!("CBF.DECAY {key}"))),
            81..=86 => drop(self.say(&format!("CBF.MERGE {key} {other} FORCE"))),
            87..=95 => self.dump_chunks(family, key, other),
            _ => {
                self.say("MULTI");
                self.say(&format!("{family}.MADD {key} {items}"));
                self.say(&format!("COPY {key} {other} REPLACE"));
                self.say(&format!("{family}.MDEL {other} {items}"));
                self.say(&format!("CBF.MERGE {key} {other} FORCE"));
                self.say("EXEC");
            }
        }
    }

    /// A dump that mostly becomes a load, and now and then stays half of one.
    fn dump_chunks(&mut self, family: &str, key: &str, other: &str) {
        let mut cursor: i64 = 0;
        for _ in 0..1 + self.random.below(5) {
            let reply = self.say(&format!("{family}.SCANDUMP {key} {cursor}"));
            let Some(at) = reply.iter().position(|byte| *byte == b'$') else { return };
            let next = std::str::from_utf8(&reply[..at]).ok().and_then(|head| head.lines().nth(1)?.strip_prefix(':'));
            let (Some(next), Some(data)) = (next.map(str::to_owned), bulk(&reply[at..]).map(<[u8]>::to_vec)) else {
                return;
            };
            if next == "0" {
                return;
            }
            let load = format!("{family}.LOADCHUNK");
            self.call(&[load.as_bytes(), other.as_bytes(), next.as_bytes(), &data]);
            cursor = next.parse().expect("a cursor");
        }
    }

    fn dump(&mut self, key: &str) {
        let reply = self.say(&format!("DUMP {key}"));
        if let Some(bulk) = bulk(&reply) {
            self.payload = bulk.to_vec();
        }
    }

    fn transaction(&mut self, key: &str, other: &str) {
        self.say(&format!("WATCH {key}"));
        self.say("MULTI");
        let many = if self.random.below(20) == 0 { 6_000 } else { 8 };
        for _ in 0..1 + self.random.below(4) {
            let items = self.random.items(many).join(" ");
            self.say(&format!("BF.MADD {key} {items}"));
            self.say(&format!("BF.ADD {other} x"));
        }
        self.say(&format!("RENAME {other} {key}"));
        self.say(&format!("COPY {key} {other}"));
        self.say("EXEC");
    }

    fn chunks(&mut self, key: &str, other: &str) {
        for iterator in 0..2 {
            let reply = self.say(&format!("BF.SCANDUMP {key} {iterator}"));
            let Some(at) = reply.iter().position(|byte| *byte == b'$') else { return };
            let Some(data) = bulk(&reply[at..]).map(<[u8]>::to_vec) else { return };
            let next = if iterator == 0 { 1 } else { 1 + data.len() };
            self.call(&[b"BF.LOADCHUNK", other.as_bytes(), next.to_string().as_bytes(), &data]);
        }
    }
}

/// The bytes of a bulk reply.
fn bulk(reply: &[u8]) -> Option<&[u8]> {
    let line = reply.iter().position(|byte| *byte == b'\n')?;
    let len: usize = std::str::from_utf8(reply.strip_prefix(b"$")?.get(..line - 2)?).ok()?.parse().ok()?;
    reply.get(line + 1..line + 1 + len)
}

fn block_on(future: impl Future<Output = ()>) {
    let mut future = std::pin::pin!(future);
    let mut task = std::task::Context::from_waker(std::task::Waker::noop());
    while future.as_mut().poll(&mut task).is_pending() {
        std::thread::yield_now();
    }
}

type Contents = BTreeMap<(usize, Vec<u8>), (Option<u64>, Vec<u8>)>;

/// A filter as DUMP gives it, without the frame.
fn value_of(bloom: BloomRef) -> Vec<u8> {
    let payload = dump(bloom).expect("memory");
    open(&payload).expect("a sound payload").to_vec()
}

/// The same of a ring.
fn value_of_ring(ring: &Ring) -> Vec<u8> {
    let payload = dump_ring(ring).expect("memory");
    open(&payload).expect("a sound payload").to_vec()
}

/// The same of a counting or d-left filter.
fn value_of_cells(cells: CellsRef<'_>) -> Vec<u8> {
    let payload = dump_cells(cells).expect("memory");
    open(&payload).expect("a sound payload").to_vec()
}

/// The same of one that is frozen, read with pauses.
fn value_of_frozen(mut writer: CellsWriter, cells: &FrozenArrays, pause: u64) -> Vec<u8> {
    let (mut value, mut bytes) = (vec![TYPE_MODULE_2], FrozenBits::of(cells));
    while !writer.step(&mut value, 10_000, |_, _, buffer| bytes.read(buffer)) {
        std::thread::sleep(Duration::from_micros(pause * 20));
    }
    value
}

fn value_of_entry(value: &ValueRef<'_>) -> Vec<u8> {
    match value {
        ValueRef::Bloom(bloom) => value_of(*bloom),
        ValueRef::Ring(ring) => value_of_ring(&ring.to_ring().expect("memory")),
        ValueRef::HalfRing(half) => {
            let mut value = Vec::new();
            push_half_loaded(&mut value, half);
            value
        }
        ValueRef::HalfCounting(half) => {
            let mut value = Vec::new();
            push_half_loaded(&mut value, half);
            value
        }
        ValueRef::HalfDleft(half) => {
            let mut value = Vec::new();
            push_half_loaded(&mut value, half);
            value
        }
        value => value_of_cells(cells_of(value).expect("nobody is working now")),
    }
}

/// All keys, each with its life and the bytes of its value.
fn contents(keyspace: &Keyspace) -> Contents {
    let mut contents = Contents::new();
    for db in 0..DATABASES {
        for shard in 0..SHARDS {
            keyspace.for_each_in_shard(None, db, shard, |entry| {
                contents.insert((db, entry.name().to_vec()), (entry.life(), value_of_entry(&entry.value())));
            });
        }
        assert_eq!(keyspace.len(db), contents.keys().filter(|(other, _)| *other == db).count(), "count of {db}");
    }
    contents
}

/// The effects done again as a start does them.
fn redone_by_threads(tape: &[u8]) -> Keyspace {
    let (keyspace, failed) = (Keyspace::new(None), Failed::default());
    keyspace.hold_lives(true);
    std::thread::scope(|scope| {
        let mut redo = Redo::new(scope, 3, &keyspace, &failed);
        let mut rest = tape;
        while !rest.is_empty() {
            let (_, after) = next_unit(rest).expect("a unit");
            redo.take(&rest[..rest.len() - after.len()]).expect("records that fit");
            rest = after;
        }
        redo.finish().expect("records that fit");
    });
    keyspace
}

fn assert_equal(one: &Contents, other: &Contents, what: &str) {
    let keys = |contents: &Contents| contents.keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(one), keys(other), "{what}");
    for (key, value) in one {
        let other = &other[key];
        assert!(other == value, "{what}: {key:?}: lives {:?} and {:?}, {} bytes", value.0, other.0, value.1.len());
    }
}

/// Snapshots, each with the length of the tape at its cut.
fn take_snapshots(keyspace: &Arc<Keyspace>, tape: &Tape, running: &AtomicBool) -> Vec<(usize, Contents)> {
    let (mut snapshots, mut random) = (Vec::new(), Random(77));
    while running.load(Ordering::Relaxed) {
        let mut position = 0;
        let mut snapshot = loop {
            match keyspace.snapshot(|| position = tape.0.lock().len()) {
                Ok(snapshot) => break snapshot,
                Err(wait) => block_on(wait),
            }
        };
        if random.below(4) == 0 {
            // Given up at once or in the middle.
            for _ in 0..random.below(30) {
                snapshot.step(Duration::ZERO, &mut Images::default());
            }
            continue;
        }
        let (mut contents, mut images) = (Contents::new(), Images::default());
        loop {
            let slice = Duration::from_micros(random.below(100));
            let walk = snapshot.step(slice, &mut images);
            images.small().for_each(|image| {
                let value = match image.kind {
                    Kind::Counting => {
                        let packed = PackedCounting::new(image.payload);
                        value_of_cells(CellsRef::Counting(CountingRef::Packed(packed)))
                    }
                    Kind::Dleft => value_of_cells(CellsRef::Dleft(DleftRef::Packed(PackedDleft::new(image.payload)))),
                    Kind::Ring => value_of_ring(&PackedRing::new(image.payload).unpack().expect("memory")),
                    _ => value_of(BloomRef::Packed(PackedBloom::new(image.payload))),
                };
                assert_eq!(contents.insert((image.db, image.name.to_vec()), (image.life, value)), None);
            });
            for image in &images.large {
                // Adds go on meanwhile.
                let value = match &image.filter {
                    LargeFilter::Bloom(filter) => dump_frozen(filter, random.below(5)),
                    LargeFilter::Ring(ring) => value_of_ring(ring),
                    LargeFilter::Half(value) => value.clone(),
                    LargeFilter::Counting(image) => {
                        let head = CellsHead::counting(image.settings, image.shape, &image.figures);
                        value_of_frozen(CellsWriter::new(&head, &[]), &image.cells, random.below(5))
                    }
                    LargeFilter::Dleft(image) => {
                        let capacities = image.sets.iter().map(|set| set.capacity);
                        let head =
                            CellsHead::dleft(image.settings, (image.seed, image.items), capacities, image.spilled());
                        value_of_frozen(CellsWriter::new(&head, image.spilled()), &image.cells, random.below(5))
                    }
                };
                assert_eq!(contents.insert((image.db, image.name.to_vec()), (image.life, value)), None);
            }
            images.clear();
            match walk {
                Walk::GoesOn => {}
                Walk::Ended => break,
                Walk::Incomplete => panic!("{} of {} keys", snapshot.keys_done(), snapshot.keys()),
            }
        }
        snapshots.push((position, contents));
    }
    snapshots
}

/// A frozen filter as DUMP gives it, read with pauses.
fn dump_frozen(frozen: &Frozen, pause: u64) -> Vec<u8> {
    let (mut writer, mut bits) = (BloomWriter::frozen(frozen), FrozenBits::of(frozen));
    let mut value = vec![rdb::TYPE_MODULE_2];
    while !writer.step_with(&mut value, 30_000, |_, _, buffer| bits.read(buffer)) {
        std::thread::sleep(Duration::from_micros(pause * 20));
    }
    frozen.end();
    value
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[test]
fn effects_done_again_give_the_same_bytes() {
    const CLIENTS: u64 = 4;
    let (commands, seed) = (number("SEENDB_EFFECT_COMMANDS", 100_000), number("SEENDB_SEED", 1));
    println!("{commands} commands, seed {seed}");
    let tape = Arc::new(Tape::default());
    let keyspace = Arc::new(Keyspace::new(Some(tape.clone())));
    let environment = Environment { cores: 2, memory: None, memory_limit: None, folder: "/".into() };
    let settings = Arc::new(Settings::new(environment, []));
    let running = Arc::new(AtomicBool::new(true));
    let saver = std::thread::spawn({
        let (keyspace, tape, running) = (keyspace.clone(), tape.clone(), running.clone());
        move || take_snapshots(&keyspace, &tape, &running)
    });
    std::thread::scope(|scope| {
        for id in 0..CLIENTS {
            let (keyspace, settings) = (keyspace.clone(), settings.clone());
            scope.spawn(move || {
                let mut client = Client {
                    keyspace,
                    settings,
                    session: Session::new(id, true),
                    counters: Counters::default(),
                    random: Random(seed.wrapping_mul(1_000).wrapping_add(id)),
                    payload: Vec::new(),
                };
                for n in 0..commands / CLIENTS {
                    client.step();
                    if n % 50 == id {
                        client.keyspace.expire(id as usize, CLIENTS as usize);
                    }
                }
            });
        }
    });
    running.store(false, Ordering::Relaxed);
    let snapshots = saver.join().expect("the snapshots");
    // From here on no life ends.
    keyspace.clock().set(1);
    let expected = contents(&keyspace);
    let again = Keyspace::new(None);
    again.hold_lives(true);
    let tape = std::mem::take(&mut *tape.0.lock());
    let (mut rest, mut count) = (&tape[..], 0);
    let mut snapshots = snapshots.into_iter().peekable();
    println!("{} snapshots", snapshots.len());
    while !rest.is_empty() {
        while let Some((position, saved)) = snapshots.next_if(|(position, _)| *position == tape.len() - rest.len()) {
            assert_equal(&contents(&again), &saved, &format!("snapshot at {position}"));
        }
        let (_, after) = next_unit(rest).expect("a unit");
        let unit = &rest[..rest.len() - after.len()];
        let done: Result<(), Malformed> = for_each_record(unit, |record| {
            let done = record.change.with(|effect| apply(&again, record.db, record.name, effect));
            assert_eq!(done, Ok(()), "record {count}: {record:?}");
            count += 1;
            Ok(())
        });
        done.expect("records");
        rest = after;
    }
    println!("{count} effects, {} bytes, {} keys", tape.len(), expected.len());
    snapshots.for_each(|(position, saved)| {
        assert_eq!(position, tape.len(), "a cut between records");
        assert_equal(&expected, &saved, "last snapshots");
    });
    assert_equal(&expected, &contents(&again), "effects done again");
    assert_eq!(again.profiles().all(), keyspace.profiles().all());
    let by_threads = redone_by_threads(&tape);
    assert_equal(&expected, &contents(&by_threads), "effects done again by several threads");
    assert_eq!(by_threads.profiles().all(), keyspace.profiles().all());
    // What was flushed is counted off when it has been freed.
    let deadline = Instant::now() + Duration::from_secs(60);
    while again.entry_bytes() != keyspace.entry_bytes() && Instant::now() < deadline {
        std::thread::yield_now();
    }
    assert_eq!(again.entry_bytes(), keyspace.entry_bytes());
}
