//! Clients of a keyspace in this process, whose clock stands where the test has set it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use seendb::commands::context::{Context, Counters, Host, Room, Session};
use seendb::commands::dispatch::{Progress, execute, write};
use seendb::config::{Environment, Id, Prepared, SetError, Settings};
use seendb::keyspace::Keyspace;
use seendb::keyspace::effect::{Effect, Group, Journal};
use seendb::persist::record::{Malformed, for_each_record, next_unit, stage, suspend, unit, with_staged};
use seendb::persist::replay::apply;

use crate::in_process;
use crate::support::{Value, read_value};

/// Where the clock begins, in milliseconds since 1970: a whole day.
pub const START: u64 = 1_750_032_000_000;

/// Keeps all records, one after the other.
#[derive(Default)]
pub struct Tape(Mutex<Vec<u8>>);

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

/// A host whose memory limit the test sets.
#[derive(Default)]
struct Hosting {
    refuses: AtomicBool,
    /// So many times room is made only after a look.
    going: AtomicUsize,
}

impl Host for Hosting {
    fn info(&self, _: &[String]) -> String {
        String::new()
    }
    fn approve_settings(&self, _: &Prepared) -> Result<(), SetError> {
        Ok(())
    }
    fn settings_changed(&self, _: &[Id]) {}
    fn make_room(&self, bytes: u64, _: Duration) -> Room {
        match self.refuses.load(Ordering::Relaxed) {
            true => Room::Refused,
            false if bytes > 0 => {
                let left = self.going.load(Ordering::Relaxed);
                self.going.store(left.saturating_sub(1), Ordering::Relaxed);
                if left > 1 { Room::Going } else { Room::Made }
            }
            false => Room::Made,
        }
    }
    fn room_for(&self, _: u64, _: u64) -> Room {
        match self.refuses.load(Ordering::Relaxed) {
            true => Room::Refused,
            false if self.going.load(Ordering::Relaxed) > 0 => Room::Going,
            false => Room::Made,
        }
    }
}

/// A keyspace, its settings, its log.
#[derive(Clone)]
pub struct World {
    pub keyspace: Arc<Keyspace>,
    settings: Arc<Settings>,
    tape: Arc<Tape>,
    host: Arc<Hosting>,
}

impl World {
    pub fn new() -> Self {
        let tape = Arc::new(Tape::default());
        let keyspace = Arc::new(Keyspace::new(Some(tape.clone())));
        keyspace.clock().set(START);
        let environment = Environment { cores: 2, memory: None, memory_limit: None, folder: "/".into() };
        let settings = Arc::new(Settings::new(environment, []));
        Self { keyspace, settings, tape, host: Arc::default() }
    }

    /// A client of the second protocol.
    pub fn client(&self) -> Client {
        Client { world: self.clone(), session: Session::new(1, true), counters: Counters::default() }
    }

    /// Sets a directive.
    pub fn set(&self, name: &str, value: &str) {
        self.settings.set(&[(name.as_bytes(), value.as_bytes())]).expect("a value for the directive");
    }

    /// Lets time pass.
    pub fn pass(&self, milliseconds: u64) {
        let now = self.keyspace.clock().now() + milliseconds;
        self.keyspace.clock().set(now);
    }

    /// Has no memory left under `maxmemory`, or has some again.
    pub fn refuse_memory(&self, refuses: bool) {
        self.host.refuses.store(refuses, Ordering::Relaxed);
    }

    /// There is room only after so many steps of eviction.
    pub fn evict(&self, steps: usize) {
        self.host.going.store(steps, Ordering::Relaxed);
    }

    /// Records in the log.
    pub fn records(&self) -> usize {
        let mut count = 0;
        self.each_unit(|records| {
            for_each_record::<Malformed>(records, |_| {
                count += 1;
                Ok(())
            })
            .expect("records");
        });
        count
    }

    fn each_unit(&self, mut look: impl FnMut(&[u8])) {
        let tape = self.tape.0.lock();
        let mut rest = &tape[..];
        while !rest.is_empty() {
            let (_, after) = next_unit(rest).expect("a unit");
            look(&rest[..rest.len() - after.len()]);
            rest = after;
        }
    }

    /// Another world in which all that was logged is done again.
    pub fn replayed(&self) -> Self {
        let again = Self::new();
        again.keyspace.hold_lives(true);
        self.each_unit(|records| {
            for_each_record::<Malformed>(records, |record| {
                let done = record.change.with(|effect| apply(&again.keyspace, record.db, record.name, effect));
                assert_eq!(done, Ok(()), "{record:?}");
                Ok(())
            })
            .expect("records");
        });
        again.keyspace.hold_lives(false);
        again.keyspace.clock().set(self.keyspace.clock().now());
        again
    }
}

/// One of its clients.
pub struct Client {
    pub world: World,
    session: Session,
    counters: Counters,
}

impl Client {
    /// Sends a command given as words between blanks, returns its reply.
    #[track_caller]
    pub fn cmd(&mut self, line: &str) -> Value {
        self.call(&line.split_ascii_whitespace().collect::<Vec<_>>())
    }

    /// Sends a command, returns its reply.
    #[track_caller]
    pub fn call(&mut self, args: &[impl AsRef<[u8]>]) -> Value {
        let raw = self.raw(args);
        let mut rest = &raw[..];
        let value = read_value(&mut rest, &mut Vec::new()).expect("a whole reply");
        assert!(rest.is_empty(), "more than one reply: {raw:?}");
        value
    }

    /// The bytes of the reply.
    #[track_caller]
    pub fn raw(&mut self, args: &[impl AsRef<[u8]>]) -> Vec<u8> {
        let words: Vec<&[u8]> = args.iter().map(AsRef::as_ref).collect();
        let (input, batch) = in_process::request(&words);
        let (mut next, mut out) = (0, Vec::new());
        loop {
            let mut context = Context {
                keyspace: &self.world.keyspace,
                settings: &self.world.settings,
                session: &mut self.session,
                host: &*self.world.host,
                counters: &self.counters,
                held: None,
            };
            match execute(&mut context, (&batch, &input), &mut next, Instant::now(), &mut out) {
                Progress::Done => return out,
                Progress::Pause => {}
                Progress::Busy(wait) => {
                    drop(context);
                    block_on(wait);
                }
                Progress::Long(mut long) => loop {
                    if let Ok(Some(reply)) = long.step(&mut context, batch.request(&input, next), Instant::now()) {
                        drop(long);
                        write(&context, &reply, &mut out);
                        return out;
                    }
                    std::thread::yield_now();
                },
            }
        }
    }

    /// The bytes of the reply to a command given as words between blanks, as text.
    #[track_caller]
    pub fn bytes(&mut self, line: &str) -> String {
        let raw = self.raw(&line.split_ascii_whitespace().collect::<Vec<_>>());
        String::from_utf8_lossy(&raw).into_owned()
    }

    /// Begins a long command and gives it up to `steps` steps, then runs `meanwhile`, then ends it.
    #[track_caller]
    pub fn interrupted(&mut self, args: &[impl AsRef<[u8]>], meanwhile: impl FnOnce()) -> Value {
        let words: Vec<&[u8]> = args.iter().map(AsRef::as_ref).collect();
        let (input, batch) = in_process::request(&words);
        let (mut next, mut out) = (0, Vec::new());
        let mut context = Context {
            keyspace: &self.world.keyspace,
            settings: &self.world.settings,
            session: &mut self.session,
            host: &*self.world.host,
            counters: &self.counters,
            held: None,
        };
        let Progress::Long(mut long) = execute(&mut context, (&batch, &input), &mut next, Instant::now(), &mut out)
        else {
            panic!("{:?} is not long", String::from_utf8_lossy(words[0]))
        };
        let first = long.step(&mut context, batch.request(&input, next), Instant::now());
        assert!(matches!(first, Ok(None)), "one step is not enough");
        meanwhile();
        loop {
            if let Ok(Some(reply)) = long.step(&mut context, batch.request(&input, next), Instant::now()) {
                drop(long);
                write(&context, &reply, &mut out);
                return read_value(&mut &out[..], &mut Vec::new()).expect("a whole reply");
            }
        }
    }

    /// Whether a command would have to wait for a key now.
    #[track_caller]
    pub fn waits(&mut self, line: &str) -> bool {
        let words: Vec<&[u8]> = line.split_ascii_whitespace().map(str::as_bytes).collect();
        let (input, batch) = in_process::request(&words);
        let mut context = Context {
            keyspace: &self.world.keyspace,
            settings: &self.world.settings,
            session: &mut self.session,
            host: &*self.world.host,
            counters: &self.counters,
            held: None,
        };
        matches!(execute(&mut context, (&batch, &input), &mut 0, Instant::now(), &mut Vec::new()), Progress::Busy(_))
    }

    /// The error of a command, which made and changed no key.
    #[track_caller]
    pub fn refused(&mut self, line: &str) -> String {
        let before = (self.world.records(), self.cmd("DBSIZE"));
        let error = self.cmd(line).error().to_string();
        assert_eq!((self.world.records(), self.cmd("DBSIZE")), before, "{line} changed something");
        error
    }

    /// What a dump in chunks gives: each chunk with its cursor.
    #[track_caller]
    pub fn chunks(&mut self, key: &str) -> Vec<(i64, Vec<u8>)> {
        let (mut cursor, mut chunks) = (0, Vec::new());
        loop {
            let reply = self.cmd(&format!("CHAIN.SCANDUMP {key} {cursor}"));
            cursor = reply.array()[0].int();
            let data = reply.array()[1].bulk().to_vec();
            if cursor == 0 {
                assert!(data.is_empty());
                return chunks;
            }
            chunks.push((cursor, data));
        }
    }

    /// Gives a key one of them.
    #[track_caller]
    pub fn load(&mut self, key: &str, (cursor, data): &(i64, Vec<u8>)) -> Value {
        let cursor = cursor.to_string();
        self.call(&[b"CHAIN.LOADCHUNK", key.as_bytes(), cursor.as_bytes(), data])
    }
}

fn block_on(future: impl Future<Output = ()>) {
    let mut future = std::pin::pin!(future);
    let mut task = std::task::Context::from_waker(std::task::Waker::noop());
    while future.as_mut().poll(&mut task).is_pending() {
        std::thread::yield_now();
    }
}

/// `item:<n>` for a range of n, after these words.
pub fn with_items(words: &str, numbers: std::ops::Range<usize>) -> Vec<String> {
    let words = words.split_ascii_whitespace().map(str::to_owned);
    words.chain(numbers.map(|n| format!("item:{n}"))).collect()
}

/// How many of a reply's elements say yes.
#[track_caller]
pub fn yes(reply: &Value) -> usize {
    reply.array().iter().filter(|answer| answer.truth()).count()
}
