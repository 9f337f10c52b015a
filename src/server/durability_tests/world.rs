//! A machine on a simulated disk, and the history of its keys.

use std::collections::BTreeMap;
use std::future::Future;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context as TaskContext, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use fastrand::Rng;

use crate::codec::payload::{dump, dump_cells, dump_ring};
use crate::commands::context::{Begun, ChangeGate, Context, Counters, Host, Job, JobOutcome, Room, Session, Task};
use crate::commands::dispatch::{Progress, execute, write};
use crate::commands::error::CommandError;
use crate::config::{Environment, Id, Prepared, SetError, Settings, find};
use crate::keyspace::copies::cells_of;
use crate::keyspace::effect::Journal;
use crate::keyspace::entry::ValueRef;
use crate::keyspace::{Keyspace, SHARDS};
use crate::persist::files::Files;
use crate::persist::live::{LiveLog, Pace};
use crate::persist::simulated::SimulatedFiles;
use crate::resp::{Batch, Limits, Scanner};
use crate::server::durability::{Durability, Scale, await_job};
use crate::server::start::load_all;

/// Nothing takes so long unless it hangs.
const PATIENCE: Duration = Duration::from_secs(120);
/// Databases that are used.
const USED_DATABASES: usize = 2;
/// When no life has ended.
const BEFORE_ALL_LIVES: u64 = 1;
const PACE: Pace = Pace {
    write: Duration::from_millis(1),
    sync: Duration::from_millis(4),
    retry: Duration::from_millis(2),
    most_at_risk: Duration::from_millis(200),
    quick: Duration::ZERO,
};
/// The same where connections sync themselves.
const LED: Pace = Pace { quick: Duration::from_secs(1), ..PACE };
const SCALE: Scale = Scale {
    segment_bytes: 4096,
    retry: Duration::from_millis(3),
    needed_retry: Duration::from_millis(3),
    look: Duration::from_millis(3),
    end_patience: Duration::from_secs(20),
};

/// A server without sockets.
pub struct Machine {
    pub durability: Arc<Durability>,
    pub keyspace: Arc<Keyspace>,
    pub settings: Arc<Settings>,
    session: Session,
    counters: Counters,
}

/// Does for commands what the server does.
struct Outside(Arc<Durability>);

impl Host for Outside {
    fn is_loading(&self) -> bool {
        self.0.loading.load(Ordering::Acquire)
    }
    fn change_gate(&self) -> ChangeGate {
        self.0.change_gate()
    }
    fn begin(&self, task: Task) -> Result<Begun, CommandError> {
        self.0.begin(task)
    }
    fn logs(&self) -> bool {
        self.0.live.is_on()
    }
    fn info(&self, _: &[String]) -> String {
        String::new()
    }
    fn approve_settings(&self, _: &Prepared) -> Result<(), SetError> {
        Ok(())
    }
    fn settings_changed(&self, _: &[Id]) {
        self.0.settings_changed();
    }
    fn switch_log(&self) -> Option<Arc<Job>> {
        Some(self.0.switch_log())
    }
    fn log_switch(&self) -> Option<Arc<Job>> {
        self.0.log_switch()
    }
    fn make_room(&self, _: u64, _: Duration) -> Room {
        Room::Made
    }
    fn room_for(&self, _: u64, _: u64) -> Room {
        Room::Made
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn wait<T>(durability: &Arc<Durability>, future: impl Future<Output = T>, context: &str) -> T {
    let (mut future, begun) = (pin!(future), Instant::now());
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut TaskContext::from_waker(&waker)) {
            return value;
        }
        assert!(begun.elapsed() < PATIENCE, "{context}: it hangs");
        thread::park_timeout(Duration::from_millis(1));
        durability.tick();
    }
}

impl Machine {
    /// Start on these files; lives do not end.
    ///
    /// # Errors
    /// Why the server would not start.
    pub fn start(files: Arc<dyn Files>, settings: &[(&str, &str)], pace: Pace) -> Result<Machine, String> {
        let environment = Environment { cores: 1, memory: None, memory_limit: None, folder: "/".into() };
        let value = |(name, value): &(&str, &str)| {
            let directive = find(name.as_bytes()).expect("a setting");
            (directive.id, directive.parse(&[value.as_bytes()]).expect("the settings are right"))
        };
        let own = Arc::new(Settings::new(environment, settings.iter().map(value)));
        let live = LiveLog::start_with(pace).expect("a thread");
        let keyspace = Arc::new(Keyspace::new(Some(live.clone())));
        keyspace.clock().set(BEFORE_ALL_LIVES);
        let durability = Arc::new(Durability::new(keyspace.clone(), own.clone(), live, files, SCALE));
        let (session, counters) = (Session::new(1, true), Counters::default());
        let machine = Machine { durability, keyspace, settings: own, session, counters };
        load_all(&machine.durability)?;
        Ok(machine)
    }

    /// Wait as the server does, its clock ticking meanwhile.
    pub fn wait<T>(&self, future: impl Future<Output = T>, context: &str) -> T {
        wait(&self.durability, future, context)
    }

    pub fn await_job(&self, job: &Job, context: &str) -> JobOutcome {
        self.wait(await_job(job), context)
    }

    /// Wait until changes are accepted.
    pub fn await_open(&self, context: &str) {
        self.await_that(context, |machine| matches!(machine.durability.change_gate(), ChangeGate::Open));
    }

    pub fn await_that(&self, context: &str, condition: impl Fn(&Machine) -> bool) {
        let begun = Instant::now();
        while !condition(self) {
            assert!(begun.elapsed() < PATIENCE, "{context}: it never comes: {:?}", self.durability.live.health());
            thread::sleep(Duration::from_micros(200));
            self.durability.tick();
        }
    }

    /// Run one command; its reply, as it would leave if nothing had to be confirmed.
    pub fn call(&mut self, line: &str, context: &str) -> String {
        let (mut input, mut batch) = (format!("{line}\r\n").into_bytes(), Batch::default());
        Scanner::new().scan(&mut input, &Limits::default(), 1, &mut batch).expect("a request");
        let (mut next, mut out) = (0, Vec::new());
        loop {
            let host = Outside(self.durability.clone());
            let mut commands = Context {
                keyspace: &self.keyspace,
                settings: &self.settings,
                session: &mut self.session,
                host: &host,
                counters: &self.counters,
                held: None,
            };
            let soon = || Instant::now() + Duration::from_millis(1);
            match execute(&mut commands, (&batch, &input), &mut next, soon(), &mut out) {
                Progress::Done => return String::from_utf8_lossy(&out).into_owned(),
                Progress::Pause => {}
                Progress::Busy(busy) => wait(&self.durability, busy, &format!("{context}: {line}")),
                Progress::Long(mut long) => loop {
                    if let Ok(Some(reply)) = long.step(&mut commands, batch.request(&input, next), soon()) {
                        drop(long);
                        write(&commands, &reply, &mut out);
                        return String::from_utf8_lossy(&out).into_owned();
                    }
                    thread::yield_now();
                },
            }
        }
    }

    /// Run one command as a connection does. `Err` if it cannot be said whether it is kept.
    pub fn ask(&mut self, line: &str, context: &str) -> Result<String, String> {
        let (live, since) = (self.durability.live.clone(), self.durability.live.standing());
        let strict = live.is_strict();
        let reply = self.call(line, context);
        if !strict || !live.confirms() {
            return Ok(reply);
        }
        let confirmed = live.confirm(since);
        if let Some(lead) = live.lead() {
            lead.sync();
        }
        self.wait(confirmed, &format!("{context}: confirm {line}")).map_err(|unconfirmed| unconfirmed.0)?;
        Ok(reply)
    }

    /// Every key with a hash of all that it holds, those too whose lives are over.
    pub fn contents(&self) -> Contents {
        let clock = self.keyspace.clock();
        let now = clock.now();
        clock.set(BEFORE_ALL_LIVES);
        let (mut contents, hasher) = (Contents::new(), BuildHasherDefault::<DefaultHasher>::default());
        for db in (0..USED_DATABASES).filter(|db| !self.keyspace.is_empty(*db)) {
            for shard in 0..SHARDS {
                self.keyspace.for_each_in_shard(None, db, shard, |entry| {
                    let value = match entry.value() {
                        ValueRef::Bloom(bloom) => dump(bloom).expect("memory"),
                        ValueRef::Ring(ring) => ring.to_ring().and_then(|ring| dump_ring(&ring)).expect("memory"),
                        ValueRef::HalfRing(half) => half.header.to_vec(),
                        ValueRef::HalfCounting(half) => half.header.to_vec(),
                        ValueRef::HalfDleft(half) => half.header.to_vec(),
                        value => {
                            let cells = cells_of(&value).expect("nobody is working now");
                            dump_cells(cells).expect("memory")
                        }
                    };
                    let hash = hasher.hash_one((db, entry.name(), entry.life(), value));
                    contents.insert((db, entry.name().to_vec()), hash);
                });
            }
        }
        clock.set(now);
        // They are of no database.
        for (prefix, profile) in self.keyspace.profiles().all() {
            let hash = hasher.hash_one((&prefix, format!("{profile:?}")));
            contents.insert((USED_DATABASES, prefix.into()), hash);
        }
        contents
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.durability.live.end();
    }
}

/// Keys, each with a hash of all that it holds.
pub type Contents = BTreeMap<(usize, Vec<u8>), u64>;

/// A number for all of them, from which single keys can be taken.
pub fn digest(contents: &Contents) -> u64 {
    contents.values().fold(0, |sum: u64, hash| sum.wrapping_add(*hash))
}

/// A state that the keys had.
struct State {
    digest: u64,
    /// Where the log of this life was then; none if nothing was logged.
    position: Option<u64>,
}

/// A machine, its disk, and what became of its keys.
pub struct World {
    pub disk: SimulatedFiles,
    pub random: Rng,
    pub machine: Option<Machine>,
    pub policy: &'static str,
    pace: Pace,
    history: Vec<State>,
    /// A start that loads the log finds this state or a later one.
    confirmed: usize,
    /// A start that loads the snapshot does.
    saved: usize,
    /// The states at the last snapshot that succeeded, and at those that failed since: one that failed at the very end may
    /// have got its name.
    attempts: Vec<usize>,
    /// The log on disk may be loaded by the next start: it belongs to this history.
    log_counts: bool,
    /// A log is on disk that does not say that it has ended, and of which snapshots need not have all.
    log_is_open: bool,
    /// The machine that ran last had a log.
    logged: bool,
    clock: u64,
    pub context: String,
    pub steps: usize,
}

impl World {
    pub fn new(seed: u64, policy: &'static str, context: String) -> World {
        World {
            disk: SimulatedFiles::new(seed),
            random: Rng::with_seed(seed),
            machine: None,
            policy,
            pace: [PACE, LED][(seed % 2) as usize],
            history: vec![State { digest: 0, position: None }],
            confirmed: 0,
            saved: 0,
            attempts: vec![0],
            log_counts: true,
            log_is_open: false,
            logged: false,
            clock: 1 << 40,
            context,
            steps: 0,
        }
    }

    pub fn context(&self) -> String {
        format!("{}, step {}", self.context, self.steps)
    }

    pub fn machine(&mut self) -> &mut Machine {
        self.machine.as_mut().expect("it runs")
    }

    fn start_on(&self, disk: &SimulatedFiles, appendonly: bool) -> Result<Machine, String> {
        let logs = if appendonly { "yes" } else { "no" };
        let settings =
            [("appendonly", logs), ("appendfsync", self.policy), ("save", ""), ("auto-aof-rewrite-percentage", "0")];
        Machine::start(Arc::new(disk.clone()), &settings, self.pace)
    }

    /// The state that a start finds on this disk.
    fn found(&self, machine: &Machine, floor: usize, context: &str) -> usize {
        let found = digest(&machine.contents());
        let index = self.history.iter().rposition(|state| state.digest == found);
        let index = index.unwrap_or_else(|| panic!("{context}: never was such a state: {:?}", machine.contents()));
        assert!(index >= floor, "{context}: state {index} is there, {floor} was promised");
        index
    }

    /// The earliest state that may be found by a start.
    pub fn floor(&self, appendonly: bool) -> usize {
        let synced = self.machine.as_ref().filter(|machine| machine.durability.live.is_on());
        let synced = synced.map_or(0, |machine| machine.durability.live.synced());
        let is_safe = |state: &State| state.position.is_some_and(|position| position <= synced);
        let by_position = self.history.iter().rposition(is_safe).unwrap_or(0);
        if appendonly { self.confirmed.max(by_position).max(self.saved) } else { self.saved }
    }

    /// Begin to run, on what is there.
    pub fn start(&mut self, appendonly: bool) -> Result<(), String> {
        let (floor, context) = (self.floor(appendonly), self.context());
        let machine = self.start_on(&self.disk, appendonly)?;
        let index = self.found(&machine, floor, &context);
        self.history.truncate(index + 1);
        self.history.iter_mut().for_each(|state| state.position = None);
        self.history[index].position = appendonly.then(|| machine.durability.live.position());
        self.saved = self.saved.min(index);
        self.attempts.retain(|state| *state <= index);
        self.log_counts = appendonly;
        // A log that was not loaded belongs to another history.
        self.confirmed = if appendonly { index } else { 0 };
        self.log_is_open = !appendonly && (self.log_is_open || self.logged);
        self.logged = appendonly;
        machine.keyspace.clock().set(self.clock);
        self.machine = Some(machine);
        self.sweep();
        Ok(())
    }

    /// What is left after a power loss now is what it should be.
    pub fn check_losses(&mut self, count: usize) {
        for _ in 0..count {
            let logs = self.random_restart();
            let (floor, seed) = (self.floor(logs), self.random.u64(..));
            let disk = self.disk.after_power_loss(seed);
            let context = format!("{}, loss {seed}, appendonly {logs}", self.context());
            let machine = self.start_on(&disk, logs).unwrap_or_else(|error| panic!("{context}: {error}"));
            self.found(&machine, floor, &context);
        }
    }

    /// With which setting a machine may start next.
    fn random_restart(&mut self) -> bool {
        let on = self.machine.as_ref().is_none_or(|machine| machine.settings.appendonly());
        on || self.log_counts && self.random.bool()
    }

    /// The power goes, and comes back; calls may fail while data are loaded.
    pub fn lose_power(&mut self, failure: Option<crate::persist::simulated::Failure>) {
        let logs = self.random_restart();
        let (confirmed, saved) = (self.floor(true), self.floor(false));
        self.disk = self.disk.after_power_loss(self.random.u64(..));
        self.machine = None;
        (self.confirmed, self.saved) = (if logs { confirmed } else { self.confirmed }, saved);
        self.history.iter_mut().for_each(|state| state.position = None);
        self.disk.fail(failure);
        if let Err(error) = self.start(logs) {
            assert!(failure.is_some(), "{}: it starts: {error}", self.context());
            self.disk.fail(None);
            let context = self.context();
            self.start(logs).unwrap_or_else(|error| panic!("{context}: second start: {error}"));
        }
    }

    /// The keys are in a new state, if they are in another one; tells whether they are.
    fn note(&mut self) -> bool {
        let machine = self.machine.as_ref().expect("it runs");
        let live = &machine.durability.live;
        let state = State { digest: digest(&machine.contents()), position: live.is_on().then(|| live.position()) };
        let changed = self.history.last().is_none_or(|last| last.digest != state.digest);
        if changed {
            self.history.push(state);
        }
        changed
    }

    pub fn last(&self) -> usize {
        self.history.len() - 1
    }

    /// A command of a client.
    pub fn say(&mut self, line: &str) -> String {
        let context = self.context();
        let machine = self.machine.as_mut().expect("it runs");
        let live = machine.durability.live.clone();
        let (strict, failing) = (live.is_strict(), live.standing().has_failed());
        let answer = machine.ask(line, &context);
        let changed = self.note();
        match answer {
            Ok(reply) => {
                let refused = reply.contains("MISCONF") || reply.contains("EXECABORT");
                assert!(!refused || !changed, "{context}: {line} was refused: {reply}");
                if strict && (changed || !failing) {
                    self.confirmed = self.last();
                }
                reply
            }
            Err(reason) => reason,
        }
    }

    /// Time goes on, and lives end.
    fn sweep(&mut self) {
        let machine = self.machine.as_ref().expect("it runs");
        let before = machine.contents();
        while (0..USED_DATABASES).any(|db| {
            let mut alive = 0;
            (0..SHARDS).for_each(|shard| machine.keyspace.for_each_in_shard(None, db, shard, |_| alive += 1));
            alive < machine.keyspace.len(db)
        }) {
            machine.keyspace.expire(0, 1);
        }
        let after = machine.contents();
        let gone: Vec<u64> =
            before.iter().filter(|(key, _)| !after.contains_key(*key)).map(|(_, hash)| *hash).collect();
        // Each goes by itself, in some order.
        for subset in 1_u32..(1 << gone.len().min(8)) - 1 {
            let parts = gone.iter().enumerate().filter(|(n, _)| subset >> n & 1 == 1);
            let digest = parts.fold(digest(&before), |sum, (_, hash)| sum.wrapping_sub(*hash));
            self.history.push(State { digest, position: None });
        }
        self.note();
    }

    /// Take a snapshot and look at the file.
    pub fn save(&mut self) -> bool {
        let context = self.context();
        let machine = self.machine();
        let before = machine.durability.state.lock().last_save;
        let begun = machine.durability.begin(Task::Save);
        let Ok(Begun::Now(job)) = begun else { return false };
        let outcome = machine.await_job(&job, &context);
        let state = machine.durability.state.lock();
        assert_eq!(state.snapshots.ok, outcome.is_ok(), "{context}");
        assert!(state.last_save >= before && (outcome.is_ok() || state.last_save == before), "{context}");
        drop(state);
        self.attempts.push(self.last());
        let places = self.attempts.clone();
        if outcome.is_ok() {
            self.saved = self.last();
            self.attempts = vec![self.saved];
            self.log_counts |= !self.log_is_open;
        }
        let disk = self.disk.copy();
        disk.fail(None);
        let machine = self.start_on(&disk, false).unwrap_or_else(|error| panic!("{context}: after SAVE: {error}"));
        let found = digest(&machine.contents());
        let is_whole = places.iter().any(|state| self.history[*state].digest == found);
        assert!(is_whole, "{context}: the snapshot is an old one or the new one");
        outcome.is_ok()
    }

    /// Let the log begin or end.
    fn switch(&mut self) {
        let context = self.context();
        let machine = self.machine.as_ref().expect("it runs");
        let on = !machine.settings.appendonly();
        machine.settings.set(&[(b"appendonly", if on { b"yes" } else { b"no" })]).expect("the setting is right");
        // What is safe now stays so while the log ends.
        self.confirmed = self.floor(true);
        let machine = self.machine.as_ref().expect("it runs");
        let outcome = machine.await_job(&machine.durability.switch_log(), &context);
        let machine = self.machine.as_ref().expect("it runs");
        // What failed has left all as it was.
        let is_on = on == outcome.is_ok();
        assert_eq!(machine.settings.appendonly(), is_on, "{context}");
        assert_eq!(machine.durability.live.is_on(), is_on, "{context}");
        self.logged = machine.durability.live.is_on();
        match (on, outcome.is_ok()) {
            (true, true) => {
                (self.confirmed, self.log_counts, self.log_is_open) = (self.last(), true, false);
                self.history.iter_mut().for_each(|state| state.position = None);
            }
            (true, false) => self.log_is_open = true,
            (false, _) => {}
        }
        if !is_on {
            // Positions count for nothing any more.
            self.history.iter_mut().for_each(|state| state.position = None);
        }
    }

    fn rewrite(&mut self) {
        let context = self.context();
        let wait = self.random.bool();
        let machine = self.machine();
        if let Ok(Begun::Now(job)) = machine.durability.begin(Task::RewriteLog)
            && wait
        {
            let _ = machine.await_job(&job, &context);
        }
    }

    fn key(&mut self) -> String {
        format!("k{}", self.random.u8(..6))
    }

    fn items(&mut self, most: usize) -> String {
        self.items_of(3000, most)
    }

    /// Up to `most` of so many items.
    fn items_of(&mut self, all: u16, most: usize) -> String {
        let count = 1 + self.random.usize(..most);
        (0..count).map(|_| format!("i{}", self.random.u16(..all))).collect::<Vec<_>>().join(" ")
    }

    /// Anything that may happen to a server.
    pub fn step(&mut self) {
        self.steps += 1;
        let (key, other) = (self.key(), self.key());
        match self.random.u8(..100) {
            0..20 => return self.step_with_ring(),
            20..40 => return self.step_with_cells(),
            _ => {}
        }
        match self.random.u8(..100) {
            0..25 => {
                let item = self.random.u16(..3000);
                self.say(&format!("BF.ADD {key} i{item}"));
            }
            25..40 => {
                let items = self.items(30);
                self.say(&format!("BF.MADD {key} {items}"));
            }
            40..50 => {
                let capacity = [8, 50, 60_000][self.random.usize(..3)];
                let expansion = self.random.u8(1..3);
                self.say(&format!("BF.RESERVE {key} 0.01 {capacity} EXPANSION {expansion}"));
            }
            50..54 => drop(self.say(&format!("DEL {key} {other}"))),
            54..58 => drop(self.say(&format!("RENAME {key} {other}"))),
            58..62 => drop(self.say(&format!("COPY {key} {other} REPLACE DB {}", self.steps & 1))),
            62..69 => self.transaction(&key, &other),
            69..74 => {
                let end = self.clock + 1 + self.random.u64(..5);
                self.say(&format!("PEXPIREAT {key} {end}"));
            }
            74..79 => {
                self.clock += self.random.u64(..3);
                let clock = self.clock;
                self.machine().keyspace.clock().set(clock);
                self.sweep();
            }
            79..81 => {
                let line = ["FLUSHDB", "SWAPDB 0 1", "FLUSHALL", "SWAPDB 0 1"][self.random.usize(..4)];
                self.say(line);
            }
            81..87 => drop(self.say(&format!("BF.EXISTS {key} i1"))),
            87..91 => drop(self.save()),
            91..96 => self.rewrite(),
            _ => self.switch(),
        }
    }

    /// The same with rings, which have names of their own.
    fn step_with_ring(&mut self) {
        let (key, other) = (format!("r{}", self.random.u8(..4)), format!("r{}", self.random.u8(..4)));
        let (items, number) = (self.items(30), self.random.u8(..4));
        let line = match self.random.u8(..100) {
            0..20 => {
                let options = ["", "DUAL", "PWINDOW 4", "PWINDOW 9 BOUNDED", "LINKS 2 IDLE 1", "KEYED"];
                let capacity = [8, 50, 60_000][self.random.usize(..3)];
                format!("CHAIN.RESERVE {key} 0.01 {capacity} {}", options[self.random.usize(..6)])
            }
            20..50 => format!("CHAIN.MADD {key} {items}"),
            50..60 => format!("CHAIN.UNSEENADD {key} COUNT 3 CAPACITY 9 ITEMS {items}"),
            60..65 => format!("CHAIN.ROTATE {key}"),
            65..70 => format!("CHAIN.CLEAR {key}"),
            70..74 => format!("CHAIN.EXTEND {key} LINKS 9"),
            74..78 => format!("CHAIN.SHRINK {key} LINKS 2"),
            78..86 => format!("CHAIN.MERGE {key} {other} FORCE"),
            86..89 => format!("COPY {key} {other} REPLACE"),
            89..91 => format!("DEL {key}"),
            91..95 => format!("CHAIN.PROFILE SET r{number} CAPACITY {}", 10 + self.random.u8(..9)),
            95..97 => format!("CHAIN.PROFILE DEL r{number}"),
            _ => {
                for line in
                    ["MULTI", &format!("CHAIN.MADD {key} {items}"), &format!("CHAIN.PROFILE SET r{number} DUAL")]
                {
                    self.say(line);
                }
                "EXEC".to_owned()
            }
        };
        self.say(&line);
    }

    /// The same with filters that count, each family with names of its own.
    fn step_with_cells(&mut self) {
        let (family, letter) = [("CBF", 'c'), ("DLCBF", 'd')][self.random.usize(..2)];
        let mut name = || format!("{letter}{}", self.random.u8(..3));
        // So few that many are in, and some several times.
        let (key, other, items) = (name(), name(), self.items_of(50, 30));
        let line = match self.random.u8(..100) {
            0..20 => {
                let options = match letter {
                    'c' => ["", "STRICT", "COUNTERBITS 8", "KEYED"],
                    _ => ["", "EXPANSION 2", "OVERFLOW SPILL", "KEYED COUNTERBITS 4"],
                };
                let capacity = [8, 50, 60_000][self.random.usize(..3)];
                format!("{family}.RESERVE {key} 0.01 {capacity} {}", options[self.random.usize(..4)])
            }
            20..50 => format!("{family}.MADD {key} {items}"),
            50..75 => format!("{family}.MDEL {key} {items}"),
            75..80 => format!("CBF.DECAY {key}"),
            80..88 => format!("CBF.MERGE {key} {other} FORCE"),
            88..92 => format!("COPY {key} {other} REPLACE"),
            92..95 => format!("DEL {key}"),
            _ => {
                for line in
                    ["MULTI", &format!("{family}.MADD {key} {items}"), &format!("{family}.MDEL {other} {items}")]
                {
                    self.say(line);
                }
                "EXEC".to_owned()
            }
        };
        self.say(line.trim_end());
    }

    fn transaction(&mut self, key: &str, other: &str) {
        let items = self.items(10);
        for line in
            ["MULTI", &format!("BF.MADD {key} {items}"), &format!("BF.ADD {other} x"), &format!("COPY {key} {other}c")]
        {
            self.say(line);
        }
        self.say("EXEC");
    }

    fn random_add(&mut self, context: &str) -> String {
        let (item, before) = (self.random.u64(..), self.last());
        let reply = self.say(&format!("BF.ADD k0 {item}"));
        assert!(reply != ":1\r\n" || self.last() > before, "{context}: it was added");
        reply
    }

    /// Two additions that are accepted and kept, now that nothing fails.
    pub fn goes_on(&mut self) {
        let context = self.context();
        for _ in 0..2 {
            // A failure from before may be noticed only now; and the filter may take an item for a known one.
            while self.random_add(&context) != ":1\r\n" {
                self.machine().await_open(&context);
            }
        }
        let logs = self.machine().settings.appendonly();
        let machine = self.machine();
        if logs {
            let live = machine.durability.live.clone();
            machine.wait(live.confirm_all(), &context).unwrap_or_else(|error| panic!("{context}: {}", error.0));
            assert_eq!(self.floor(true), self.last(), "{context}: all is safe");
        } else {
            machine.await_that(&context, |machine| machine.durability.state.lock().running.is_none());
            assert!(self.save(), "{context}: a snapshot succeeds");
        }
    }
}
