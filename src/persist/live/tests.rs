//! The log alone, beside a model: threads that change something and wait, while the disk fails, bases are made and the log
//! goes off and on.

use std::collections::BTreeSet;
use std::future::Future;
use std::path::Path;
use std::pin::pin;
use std::sync::atomic::AtomicUsize;
use std::task::{Context, Poll, Wake};
use std::thread::Thread;

use fastrand::Rng;
use parking_lot::RwLock;

use super::*;
use crate::keyspace::effect::Cause;
use crate::persist::files::Files;
use crate::persist::log::{Base, LogReader, next_base_name};
use crate::persist::record::{Malformed, for_each_record};
use crate::persist::simulated::{Failure, Fault, SimulatedFiles};

const FOLDER: &str = "/log";
const SEGMENT_BYTES: u64 = 600;
/// Nothing takes so long unless it hangs.
const PATIENCE: Duration = Duration::from_secs(60);
const PACE: Pace = Pace {
    write: Duration::from_micros(500),
    sync: Duration::from_millis(1),
    retry: Duration::from_millis(1),
    most_at_risk: Duration::from_millis(5),
    quick: Duration::ZERO,
};
/// The same where connections sync themselves.
const LED: Pace = Pace { quick: Duration::from_secs(1), ..PACE };
/// Both, where nothing is written but what somebody waits for: a call that is lost is found out.
const PATIENT: [Pace; 2] =
    [Pace { write: Duration::from_secs(1000), ..PACE }, Pace { write: Duration::from_secs(1000), ..LED }];

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Wait to be woken: a wake-up that is lost is found out.
fn block_on<T>(future: impl Future<Output = T>, what: &str) -> T {
    let (mut future, begun) = (pin!(future), Instant::now());
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return value;
        }
        thread::park_timeout(PATIENCE);
        assert!(begun.elapsed() < PATIENCE, "{what}: nobody woke it");
    }
}

/// What happened, in its order: stands for all keys.
struct World {
    log: Arc<LiveLog>,
    disk: SimulatedFiles,
    /// Held shared for a change, and alone for a cut: stands for the locks of the keys.
    locks: RwLock<()>,
    tape: Mutex<Vec<u64>>,
    confirmed: Mutex<BTreeSet<u64>>,
    refused: AtomicUsize,
    led: AtomicUsize,
    ended: AtomicBool,
}

impl World {
    /// Change something, and wait until it is safe.
    fn change(&self, number: u64) {
        let since = self.log.standing();
        let held = self.locks.read();
        match self.log.gate() {
            Gate::Open => {}
            Gate::Wait(wait) => {
                drop(held);
                return block_on(wait, "the gate");
            }
            Gate::Refused(_) => {
                drop(held);
                self.refused.fetch_add(1, Ordering::Relaxed);
                assert!(block_on(self.log.confirm(since), "a refusal").is_ok() || self.log.standing() != since);
                return thread::sleep(Duration::from_micros(100));
            }
        }
        let mut tape = self.tape.lock();
        self.log.record(0, &number.to_le_bytes(), &Effect::Deleted { cause: Cause::Command });
        self.log.commit();
        tape.push(number);
        let strict = self.log.records.load(Ordering::Relaxed) && self.log.is_strict();
        drop(tape);
        drop(held);
        if !strict {
            return;
        }
        let confirmed = self.log.confirm(since);
        if let Some(lead) = self.log.lead() {
            while lead.waits() {
                thread::yield_now();
            }
            // Now and then a connection ends before it comes to it.
            if !number.is_multiple_of(7) {
                lead.sync();
                self.led.fetch_add(1, Ordering::Relaxed);
            }
        }
        if block_on(confirmed, "a change").is_ok() {
            self.confirmed.lock().insert(number);
        }
    }

    /// A base, as the server makes one; `first` begins the log.
    fn base(&self, first: bool) -> Result<(), String> {
        let folder = Path::new(FOLDER);
        let text = |error: std::io::Error| error.to_string();
        self.disk.create_folder(folder).map_err(text)?;
        let file = next_base_name(&self.disk, folder).map_err(text)?;
        let held = self.locks.write();
        if first {
            self.log.switch_on(self.log.position());
        }
        let ((cut, needed), tape) = (self.log.cut(), self.tape.lock().clone());
        drop(held);
        let out = self.disk.create(&folder.join(&file)).map_err(text)?;
        let bytes: Vec<u8> = tape.iter().flat_map(|number| number.to_le_bytes()).collect();
        out.write_all_at(&bytes, 0).and_then(|()| out.sync()).map_err(text)?;
        self.disk.sync_folder(folder).map_err(text)?;
        let (disk, base) = (self.disk.clone(), Base { file, cut });
        let put = move |slot: &mut Option<LogWriter>| match slot {
            _ if first => LogWriter::create(Arc::new(disk), Path::new(FOLDER), Some(base), SEGMENT_BYTES)
                .map(|writer| *slot = Some(writer))
                .map_err(text),
            None => Err("it is off".to_owned()),
            Some(writer) if writer.has_failed() && !needed => Err("it failed meanwhile".to_owned()),
            Some(writer) if writer.has_failed() => {
                writer.restart_after_failure(base).map_err(|error| error.to_string())
            }
            Some(writer) => writer.retire(base).map_err(|error| error.to_string()),
        };
        self.log.with_writer(put).unwrap_or_else(|| Err("the thread is gone".to_owned()))
    }

    fn switch_off(&self) {
        {
            let _held = self.locks.write();
            self.log.stop_recording();
        }
        let log = self.log.clone();
        self.log.with_writer(move |slot| {
            let closed = slot.take().map(|mut writer| writer.switch_off(1));
            log.switch_off();
            drop(closed);
        });
    }

    /// What is left after a power loss now begins the tape and has all that was confirmed.
    fn check(&self, seed: u64, context: &str) {
        let confirmed = self.confirmed.lock().clone();
        let disk = self.disk.after_power_loss(seed);
        let reader = LogReader::open(Arc::new(disk.clone()), Path::new(FOLDER));
        let mut reader = reader.unwrap_or_else(|error| panic!("{context}: {error}")).expect("a log");
        let base = reader.manifest().base.as_ref().expect("a base").file.clone();
        let bytes = disk.content(&Path::new(FOLDER).join(base)).expect("the base's file");
        let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
        let mut found: Vec<u64> = bytes.chunks(8).map(number).collect();
        while let Some(batch) = reader.next_batch().unwrap_or_else(|error| panic!("{context}: {error}")) {
            let read: Result<(), Malformed> = for_each_record(batch.records, |record| {
                found.push(number(record.name));
                Ok(())
            });
            read.expect("records");
        }
        assert!(self.tape.lock().starts_with(&found), "{context}: a state that existed");
        let found: BTreeSet<u64> = found.into_iter().collect();
        let lost: Vec<&u64> = confirmed.difference(&found).collect();
        assert!(lost.is_empty(), "{context}: lost {lost:?}");
    }

    /// The disk works: so does the log in time.
    fn recover(&self, context: &str) {
        let begun = Instant::now();
        while self.log.standing().has_failed() {
            assert!(begun.elapsed() < PATIENCE, "{context}: it stays failed: {:?}", self.log.health());
            if self.log.health().needs_base {
                let _ = self.base(false);
            }
            thread::sleep(Duration::from_micros(200));
        }
    }

    fn trouble(&self, random: &mut Rng, context: &str) {
        let fault = if random.bool() { Fault::NoSpace } else { Fault::Device };
        let failure = Failure { fault, after: random.u64(..30), once: random.bool(), short: random.bool() };
        match random.u8(..10) {
            0..5 => self.disk.fail(Some(failure)),
            5..8 => drop(self.base(false)),
            8 => self.log.set_policy([SyncPolicy::Always, SyncPolicy::EverySecond][random.usize(..2)]),
            _ => {
                self.disk.fail(None);
                self.switch_off();
                self.check(random.u64(..), context);
                self.base(true).unwrap_or_else(|error| panic!("{context}: {error}"));
            }
        }
        thread::sleep(Duration::from_micros(random.u64(..3000)));
        self.log.tick();
        self.check(random.u64(..), context);
        self.disk.fail(None);
        self.recover(context);
    }
}

#[test]
fn what_is_confirmed_is_kept_whatever_fails() {
    let number = |variable: &str, default: u64| {
        std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    let first = number("SEENDB_SEED", 1);
    for seed in first..first + 8 * number("SEENDB_FAULT_ROUNDS", 1) {
        live(seed, [PACE, LED, PATIENT[0], PATIENT[1]][(seed % 4) as usize]);
    }
}

/// A log of this pace lives through trouble of this seed.
fn live(seed: u64, pace: Pace) {
    const ROUNDS: u64 = 150;
    let log = LiveLog::start_with(pace).expect("a thread");
    log.set_policy(SyncPolicy::Always);
    let world = World {
        log,
        disk: SimulatedFiles::new(seed),
        locks: RwLock::default(),
        tape: Mutex::default(),
        confirmed: Mutex::default(),
        refused: AtomicUsize::new(0),
        led: AtomicUsize::new(0),
        ended: AtomicBool::new(false),
    };
    world.base(true).expect("the disk works");
    thread::scope(|scope| {
        for client in 0..3_u64 {
            let world = &world;
            scope.spawn(move || {
                let mut number = client << 32;
                while !world.ended.load(Ordering::Relaxed) {
                    number += 1;
                    world.change(number);
                    // So many would be made while none waits for the disk that the test had to do with nothing else.
                    thread::sleep(Duration::from_micros(200));
                }
            });
        }
        let mut random = Rng::with_seed(seed);
        for round in 0..ROUNDS {
            world.trouble(&mut random, &format!("seed {seed}, round {round}"));
        }
        world.log.set_policy(SyncPolicy::Always);
        world.ended.store(true, Ordering::Relaxed);
    });
    block_on(world.log.confirm_all(), "the end").expect("the disk works");
    world.check(seed, "at the end");
    let (changes, confirmed) = (world.tape.lock().len(), world.confirmed.lock().len());
    let (refused, led) = (world.refused.load(Ordering::Relaxed), world.led.load(Ordering::Relaxed));
    println!("seed {seed}: {changes} changes, {confirmed} confirmed, {refused} refused, {led} syncs led");
    assert_eq!(led > 0, pace.quick > Duration::ZERO);
    world.log.end();
}

/// Whoever waits for a position of a log that was switched off does not wait in the next one, nor keeps its thread busy.
#[test]
fn who_waits_for_a_log_that_ended_does_not_wait_for_the_next() {
    let log = LiveLog::start_with(PACE).expect("a thread");
    log.set_policy(SyncPolicy::Always);
    log.switch_on(0);
    log.record(0, &[7; 1000], &Effect::Deleted { cause: Cause::Command });
    log.commit();
    let waits = log.confirm_all();
    log.stop_recording();
    log.switch_off();
    log.switch_on(log.position());
    assert!(block_on(waits, "an old position").is_ok());
    log.end();
}

/// Nothing is started once the thread is told to end.
#[test]
fn an_order_after_the_end_is_not_waited_for() {
    let log = LiveLog::start_with(PACE).expect("a thread");
    log.end();
    assert!(log.with_writer(|slot| slot.is_none()).is_none());
}
