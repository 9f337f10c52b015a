//! The lives of keys on a clock that the test sets: each key goes at its time, not before it and not after it, whatever
//! happened to it meanwhile; and none is met once its time has come.
//!
//! Everything happens in this process. What removes the keys is what the server calls ten times a second,
//! [`Keyspace::expire`]; nobody looks at the keys.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use seendb::commands::context::{Context, Counters, Session};
use seendb::commands::dispatch::{Progress, execute, write};
use seendb::config::{Environment, Settings};
use seendb::filters::bloom::{Shape, options};
use seendb::keyspace::bloom::empty_filter;
use seendb::keyspace::effect::{Cause, Effect, Journal};
use seendb::keyspace::{DATABASES, Keyspace};

#[path = "support/in_process.rs"]
mod in_process;
/// The random numbers of the other test programs.
#[path = "support/random.rs"]
#[allow(dead_code, reason = "every test program uses another part of it")]
mod random;
use random::Random;

/// Where the clock begins, in milliseconds since 1970.
const START: u64 = 1_750_000_000_000;
const PARTS: usize = 16;

fn keyspace_with(journal: Option<Arc<dyn Journal>>) -> Arc<Keyspace> {
    let keyspace = Arc::new(Keyspace::new(journal));
    keyspace.clock().set(START);
    keyspace
}

/// What the server's tick does.
fn expire_all(keyspace: &Keyspace) {
    (0..PARTS).for_each(|part| keyspace.expire(part, PARTS));
}

fn insert(keyspace: &Keyspace, name: &[u8], life: Option<u64>) {
    let shape = Shape::first(10, 0.01, options::SCALING).expect("a small filter");
    let entry = empty_filter(name, &shape, options::SCALING, 2, life).expect("memory");
    assert!(keyspace.write(0, name, |cell| cell.insert(entry)).is_ok());
}

/// Keeps the names of the keys that went because their life was over.
#[derive(Default)]
struct Gone(Mutex<Vec<Box<[u8]>>>);

impl Journal for Gone {
    fn record(&self, _: usize, name: &[u8], effect: &Effect<'_>) {
        if *effect == (Effect::Deleted { cause: Cause::Expired }) {
            self.0.lock().push(name.into());
        }
    }
}

#[test]
fn every_key_goes_at_the_first_look_after_its_time_and_is_told_once() {
    const KEYS: u64 = 100_000;
    const MINUTE: u64 = 60_000;
    let gone = Arc::new(Gone::default());
    let keyspace = keyspace_with(Some(gone.clone()));
    let mut random = Random::new(1);
    let mut due: HashMap<Box<[u8]>, u64> = HashMap::new();
    for n in 0..KEYS {
        let (name, life) = (format!("u:{n}").into_bytes(), START + 1 + random.below(MINUTE as usize) as u64);
        insert(&keyspace, &name, Some(life));
        due.insert(name.into(), life);
    }
    // As many that stay, among them.
    (0..KEYS).for_each(|n| insert(&keyspace, format!("stays:{n}").as_bytes(), None));
    let mut now = START;
    while now <= START + MINUTE {
        now += 1 + random.below(400) as u64;
        keyspace.clock().set(now);
        expire_all(&keyspace);
        for name in gone.0.lock().drain(..) {
            let life = due.remove(&name).expect("it was there, and is told once");
            assert!(life <= now, "{life} is still to come at {now}");
        }
        assert!(due.values().all(|life| *life > now), "keys are left whose time has come");
        assert_eq!(keyspace.len(0) as u64, KEYS + due.len() as u64);
        assert_eq!(keyspace.lives(0), due.len());
    }
    assert_eq!(keyspace.len(0) as u64, KEYS);
    assert_eq!(keyspace.totals().0, KEYS);
}

/// Many at the same millisecond: a shard gives way in between, and all go in one round.
#[test]
fn keys_of_the_same_moment_go_together() {
    let keyspace = keyspace_with(None);
    (0..300_000).for_each(|n| insert(&keyspace, format!("u:{n}").as_bytes(), Some(START + 500)));
    keyspace.clock().set(START + 499);
    expire_all(&keyspace);
    assert_eq!(keyspace.len(0), 300_000);
    keyspace.clock().set(START + 500);
    assert!(keyspace.read(0, b"u:7", |entry| entry.is_none()).unwrap_or(false), "nobody meets it from this moment on");
    expire_all(&keyspace);
    assert_eq!(keyspace.len(0), 0);
    assert_eq!(keyspace.entry_bytes(), 0);
}

/// A key that is away when its neighbours go, and these are all, goes at its time all the same.
#[test]
fn a_key_that_a_long_command_has_is_not_forgotten() {
    const KEYS: usize = 20_000;
    let keyspace = keyspace_with(None);
    let name = |n: usize| format!("u:{n}").into_bytes();
    for n in 0..KEYS {
        insert(&keyspace, &name(n), Some(START + if n % 7 == 0 { 1_500 } else { 1_000 }));
    }
    let latch = |n| keyspace.latch(0, &name(n)).ok().flatten().expect("the key is there and free");
    let away: Vec<_> = (0..KEYS).step_by(7).map(latch).collect();
    keyspace.clock().set(START + 1_000);
    expire_all(&keyspace);
    assert_eq!(keyspace.len(0), away.len());
    drop(away);
    expire_all(&keyspace);
    assert_eq!(keyspace.len(0), KEYS.div_ceil(7));
    keyspace.clock().set(START + 1_500);
    expire_all(&keyspace);
    assert_eq!((keyspace.len(0), keyspace.lives(0), keyspace.entry_bytes()), (0, 0, 0));
}

/// Who holds several keys sees all of them at one moment: what he found does not end before he is done with it.
#[test]
fn what_is_held_does_not_end() {
    let keyspace = keyspace_with(None);
    for long in [false, true] {
        insert(&keyspace, b"from", Some(keyspace.clock().now() + 5));
        insert(&keyspace, b"to", None);
        let names: [(usize, &[u8]); 2] = [(0, b"from"), (0, b"to")];
        let mut locked = keyspace.lock(names.into_iter()).ok().expect("they are free");
        let taken = long.then(|| {
            let names = names.map(|(db, name)| (db, Box::from(name))).into();
            keyspace.latch_keys(names, &mut locked).ok().expect("they are free")
        });
        let mut held = taken.as_ref().map_or(locked, |taken| taken.hold_at(&keyspace));
        assert_eq!(held.read(0, b"from", |entry| entry.is_some()).ok(), Some(true));
        keyspace.clock().set(keyspace.clock().now() + 5);
        assert_eq!(held.read(0, b"from", |entry| entry.is_some()).ok(), Some(true));
        assert!(matches!(held.rename(0, b"from", b"to"), Ok(Ok(()))));
        assert_eq!(
            held.read(0, b"to", |entry| entry.and_then(|entry| entry.life())).ok(),
            Some(Some(held.moment() + 5))
        );
        drop(held);
        drop(taken);
        assert_eq!(keyspace.read(0, b"to", |entry| entry.is_some()).ok(), Some(false));
        expire_all(&keyspace);
        assert_eq!(keyspace.len(0), 0);
    }
}

/// One that is away when its own time comes goes when it is back.
#[test]
fn a_key_whose_time_comes_while_a_long_command_has_it_goes_afterwards() {
    let keyspace = keyspace_with(None);
    (0..2_000).for_each(|n| insert(&keyspace, format!("u:{n}").as_bytes(), Some(START + 1_000)));
    let away: Vec<_> = (0..2_000).map(|n| keyspace.latch(0, format!("u:{n}").as_bytes())).collect();
    assert!(away.iter().all(|away| matches!(away, Ok(Some(_)))));
    keyspace.clock().set(START + 2_000);
    expire_all(&keyspace);
    assert_eq!(keyspace.len(0), 2_000);
    drop(away);
    keyspace.clock().set(START + 2_100);
    expire_all(&keyspace);
    assert_eq!((keyspace.len(0), keyspace.lives(0), keyspace.entry_bytes()), (0, 0, 0));
}

/// A client of a keyspace in this process. Long commands go step by step, and the keyspace is looked through in between.
struct Client {
    keyspace: Arc<Keyspace>,
    settings: Arc<Settings>,
    session: Session,
    counters: Counters,
}

impl Client {
    fn of(keyspace: &Arc<Keyspace>) -> Self {
        let environment = Environment { cores: 2, memory: None, memory_limit: None, folder: "/".into() };
        Self {
            keyspace: keyspace.clone(),
            settings: Arc::new(Settings::new(environment, [])),
            session: Session::new(1, true),
            counters: Counters::default(),
        }
    }

    fn say(&mut self, line: &str) -> Vec<u8> {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        self.call(&words)
    }

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
            match execute(&mut context, (&batch, &input), &mut next, Instant::now(), &mut out) {
                Progress::Done => return out,
                Progress::Pause => {}
                Progress::Busy(_) => panic!("nobody else is working"),
                Progress::Long(mut long) => loop {
                    expire_all(&self.keyspace);
                    if let Ok(Some(reply)) = long.step(&mut context, batch.request(&input, next), Instant::now()) {
                        drop(long);
                        write(&context, &reply, &mut out);
                        return out;
                    }
                },
            }
        }
    }
}

/// What a client believes to be there: the life of each key, by database and name.
type Model = BTreeMap<(usize, String), Option<u64>>;

/// One random change, done and noted.
fn change(client: &mut Client, model: &mut Model, random: &mut Random, now: u64) {
    const KEYS: usize = 3_000;
    let (db, key, other) = (client.session.db, format!("k{}", random.below(KEYS)), format!("k{}", random.below(KEYS)));
    let there = model.contains_key(&(db, key.clone()));
    let milliseconds = 1 + random.below(5_000) as u64;
    match random.below(100) {
        0..=39 => {
            // Sizes of both forms: within the entry, and beside it.
            let capacity = [10, 100, 60_000][random.below(3)];
            let life = random.percent(70).then_some(now + milliseconds);
            let option = life.map_or(String::new(), |life| format!(" PXAT {life}"));
            let reply = client.say(&format!("BF.RESERVE {key} 0.01 {capacity}{option}"));
            assert_eq!(reply == b"+OK\r\n", !there);
            model.entry((db, key)).or_insert(life);
        }
        40..=54 => {
            let reply = client.say(&format!("PEXPIRE {key} {milliseconds}"));
            assert_eq!(reply == b":1\r\n", there);
            if there {
                model.insert((db, key), Some(now + milliseconds));
            }
        }
        55..=59 => {
            client.say(&format!("PERSIST {key}"));
            if there {
                model.insert((db, key), None);
            }
        }
        60..=69 => {
            client.say(&format!("RENAME {key} {other}"));
            if let Some(life) = model.remove(&(db, key)) {
                model.insert((db, other), life);
            }
        }
        70..=77 => {
            client.say(&format!("COPY {key} {other} DB {} REPLACE", db ^ 1));
            if let Some(life) = model.get(&(db, key)).copied() {
                model.insert((db ^ 1, other), life);
            }
        }
        78..=81 => {
            let taken = model.contains_key(&(db ^ 1, key.clone()));
            client.say(&format!("MOVE {key} {}", db ^ 1));
            if let (Some(life), false) = (model.get(&(db, key.clone())).copied(), taken) {
                model.remove(&(db, key.clone()));
                model.insert((db ^ 1, key), life);
            }
        }
        82..=85 => {
            // Enough to take the key out of its shard for a while, and to make it grow.
            let items: Vec<String> = (0..3_000).map(|n| format!("i{n}")).collect();
            client.say(&format!("BF.MADD {key} {}", items.join(" ")));
            model.entry((db, key)).or_insert(None);
        }
        86..=88 => {
            // A transaction, now and then one that takes its keys out.
            let many = if random.percent(30) { 6_000 } else { 3 };
            let items: Vec<String> = (0..many).map(|n| format!("i{n}")).collect();
            client.say("MULTI");
            client.say(&format!("BF.MADD {key} {}", items.join(" ")));
            client.say(&format!("PEXPIRE {key} {milliseconds}"));
            client.say(&format!("RENAME {key} {other}"));
            client.say("EXEC");
            model.remove(&(db, key));
            model.insert((db, other), Some(now + milliseconds));
        }
        89..=97 => {
            client.say(&format!("DEL {key}"));
            model.remove(&(db, key));
        }
        98 => drop(client.say(&format!("SELECT {}", db ^ 1))),
        _ => {
            client.say("SWAPDB 0 1");
            let swapped = std::mem::take(model).into_iter().map(|((db, key), life)| ((db ^ 1, key), life));
            model.extend(swapped);
        }
    }
}

#[test]
fn whatever_happens_to_a_key_it_goes_at_its_time() {
    let keyspace = keyspace_with(None);
    let (mut client, mut model, mut random, mut now) = (Client::of(&keyspace), Model::new(), Random::new(5), START);
    for round in 0..600 {
        // Times with many new keys and times with few: tables grow and shrink.
        for _ in 0..[150, 10, 60][round / 40 % 3] {
            change(&mut client, &mut model, &mut random, now);
        }
        now += random.below(300) as u64;
        keyspace.clock().set(now);
        expire_all(&keyspace);
        model.retain(|_, life| life.is_none_or(|life| life > now));
        for db in 0..DATABASES {
            let of = |((at, _), _): &(&(usize, String), &Option<u64>)| *at == db;
            assert_eq!(keyspace.len(db), model.iter().filter(of).count(), "keys of {db} in round {round}");
            let with_life = model.iter().filter(of).filter(|(_, life)| life.is_some()).count();
            assert_eq!(keyspace.lives(db), with_life, "lives of {db} in round {round}");
        }
    }
    for ((db, name), life) in &model {
        let found = keyspace.read(*db, name.as_bytes(), |entry| entry.map(|entry| entry.life()));
        assert!(matches!(found, Ok(Some(found)) if found == *life), "{name}");
    }
    now += 10_000;
    keyspace.clock().set(now);
    expire_all(&keyspace);
    assert!((0..DATABASES).all(|db| keyspace.lives(db) == 0));
    assert_eq!(
        (0..DATABASES).map(|db| keyspace.len(db)).sum::<usize>(),
        model.values().filter(|life| life.is_none()).count()
    );
}

/// Four clients prolong their keys again and again while time goes on and keys are removed: none goes that was prolonged in
/// time, and at the end none stays.
#[test]
fn who_prolongs_in_time_keeps_the_key() {
    const CLIENTS: u64 = 4;
    const KEYS: u64 = 2_000;
    const LIFE: u64 = 10_000;
    let keyspace = keyspace_with(None);
    let (over, rounds) = (AtomicBool::new(false), [const { AtomicU64::new(0) }; CLIENTS as usize]);
    for n in 0..CLIENTS * KEYS {
        insert(&keyspace, format!("u:{n}").as_bytes(), Some(START + LIFE));
        insert(&keyspace, format!("left:{n}").as_bytes(), Some(START + 1 + n % LIFE));
    }
    std::thread::scope(|scope| {
        for id in 0..CLIENTS {
            let (keyspace, over, rounds) = (&keyspace, &over, &rounds);
            scope.spawn(move || {
                let mut client = Client::of(keyspace);
                while !over.load(Ordering::Acquire) {
                    for n in id * KEYS..(id + 1) * KEYS {
                        assert_eq!(client.say(&format!("PEXPIRE u:{n} {LIFE}")), b":1\r\n");
                    }
                    rounds[id as usize].fetch_add(1, Ordering::AcqRel);
                }
            });
        }
        // The patience is for a machine that is very busy.
        let patience = Instant::now() + Duration::from_secs(300);
        for step in 1..=40 {
            // Time goes on, by an eighth of a life, only when every client has been round twice.
            let before = rounds.each_ref().map(|rounds| rounds.load(Ordering::Acquire));
            let is_round = |(now, before): (&AtomicU64, &u64)| now.load(Ordering::Acquire) >= before + 2;
            while !rounds.iter().zip(&before).all(is_round) && Instant::now() < patience {
                expire_all(&keyspace);
                std::thread::yield_now();
            }
            keyspace.clock().set(START + step * LIFE / 8);
        }
        over.store(true, Ordering::Release);
    });
    expire_all(&keyspace);
    assert_eq!(keyspace.len(0) as u64, CLIENTS * KEYS);
    keyspace.clock().set(START + 100 * LIFE);
    expire_all(&keyspace);
    assert_eq!((keyspace.len(0), keyspace.entry_bytes()), (0, 0));
}

/// A life is 48 bits in the entry and takes part in nothing else: at most 16 bytes, whatever the name's length.
#[test]
fn a_life_costs_at_most_sixteen_bytes() {
    const KEYS: u64 = 300_000;
    let bytes_of = |life: Option<u64>| {
        let keyspace = keyspace_with(None);
        (0..KEYS).for_each(|n| insert(&keyspace, format!("u:{n}").as_bytes(), life));
        keyspace.entry_bytes() + keyspace.table_bytes()
    };
    let (with, without) = (bytes_of(Some(START + 1_000_000)), bytes_of(None));
    assert!(with <= without + 16 * KEYS, "{with} and {without} bytes");
}
