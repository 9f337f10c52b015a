//! Snapshots, what `MISCONF` says of them, and switching the log.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::World;
use super::world::{Machine, digest};
use crate::commands::context::{Begun, ChangeGate, Task};
use crate::filters::bloom::Shape;
use crate::filters::bloom::options::SCALING;
use crate::keyspace::Keyspace;
use crate::keyspace::bloom::empty_filter;
use crate::keyspace::effect::Effect;
use crate::persist::live::Pace;
use crate::persist::simulated::{Failure, Fault, SimulatedFiles};

/// Every call of a snapshot fails in turn: the file is the old one or the new one, and nothing else is left.
#[test]
fn a_snapshot_that_fails_leaves_the_one_before() {
    for (fault, once, short) in
        [(Fault::NoSpace, false, true), (Fault::NoSpace, true, false), (Fault::Device, true, false)]
    {
        for after in 0.. {
            let context = format!("{fault:?}, once {once}, after {after}");
            let mut world = World::new(after, "always", context.clone());
            world.start(false).expect("the disk works");
            world.say("BF.RESERVE large 0.01 60000");
            assert!(world.save());
            world.say("BF.MADD large a b c");
            world.disk.fail(Some(Failure { fault, after, once, short }));
            let saved = world.save();
            let paths = world.disk.paths();
            assert!(paths.iter().all(|path| path == Path::new("/dump.rdb")), "{context}: {paths:?}");
            world.check_losses(4);
            world.disk.fail(None);
            if saved {
                assert!(after > 3, "{context}: it failed before");
                break;
            }
            assert!(world.save(), "{context}: it succeeds when the disk works");
            world.check_losses(4);
        }
    }
}

/// Save points and `stop-writes-on-bgsave-error` refuse changes after a failure, until a snapshot succeeds.
#[test]
fn changes_are_refused_while_save_points_fail() {
    let disk = SimulatedFiles::new(1);
    let full = Failure { fault: Fault::NoSpace, after: 0, once: false, short: false };
    let mut machine =
        Machine::start(Arc::new(disk.clone()), &[("save", "3600 1")], Pace::default()).expect("it starts");
    let save = |machine: &Machine| match machine.durability.begin(Task::Save) {
        Ok(Begun::Now(job)) => machine.await_job(&job, "SAVE").is_ok(),
        _ => panic!("nothing else runs"),
    };
    for _ in 0..3 {
        disk.fail(Some(full));
        assert!(!save(&machine) && !save(&machine));
        let reply = machine.call("BF.ADD k i", "");
        assert!(reply.starts_with("-MISCONF Redis is configured to save RDB snapshots"), "{reply}");
        assert!(machine.call("BF.EXISTS k i", "").starts_with(':'));
        assert!(machine.call("PING", "").starts_with("-MISCONF"));
        for (stop, save_points, refused) in [("no", "3600 1", false), ("yes", "", false), ("yes", "3600 1", true)] {
            let pairs = [("stop-writes-on-bgsave-error", stop), ("save", save_points)];
            let pairs = pairs.map(|(name, value)| (name.as_bytes(), value.as_bytes()));
            machine.settings.set(&pairs).expect("the settings are right");
            machine.durability.settings_changed();
            assert_eq!(matches!(machine.durability.change_gate(), ChangeGate::Refused(_)), refused);
        }
        disk.fail(None);
        assert!(save(&machine));
        assert!(machine.call("BF.ADD k i", "").starts_with(':'));
    }
}

/// A base whose file could not be put under the log does not stay: the disk would get fuller with every attempt.
#[test]
fn attempts_to_make_a_base_do_not_fill_the_disk() {
    let disk = SimulatedFiles::new(1);
    let settings = [("appendonly", "yes"), ("appendfsync", "always"), ("save", "")];
    let mut machine = Machine::start(Arc::new(disk.clone()), &settings, Pace::default()).expect("it starts");
    machine.ask("BF.ADD k i", "").expect("the disk works");
    for after in 0..40 {
        disk.fail(Some(Failure { fault: Fault::Device, after, once: true, short: false }));
        if let Ok(Begun::Now(job)) = machine.durability.begin(Task::RewriteLog) {
            let _ = machine.await_job(&job, "BGREWRITEAOF");
        }
        disk.fail(None);
        machine.await_open("the disk works");
        let bases = disk.paths().iter().filter(|path| path.to_string_lossy().contains("base-")).count();
        assert!(bases <= 3, "after {after}: {:?}", disk.paths());
    }
}

/// What `WAITAOF` asks: a log that fails says of nothing that it is safe.
#[test]
fn a_log_that_fails_confirms_nothing_that_was_changed_before() {
    let disk = SimulatedFiles::new(1);
    let settings = [("appendonly", "yes"), ("appendfsync", "everysec"), ("save", "")];
    let mut machine = Machine::start(Arc::new(disk.clone()), &settings, Pace::default()).expect("it starts");
    disk.fail(Some(Failure { fault: Fault::NoSpace, after: 0, once: false, short: false }));
    assert!(machine.ask("BF.ADD k i", "").expect("nothing is waited for").starts_with(':'));
    let live = machine.durability.live.clone();
    machine.await_that("the log fails", |machine| machine.durability.live.standing().has_failed());
    machine.wait(live.confirm_all(), "").expect_err("it is not synced");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(async {
        let Ok(Begun::Now(job)) = machine.durability.begin(Task::SyncLog { timeout: 60 }) else { panic!("it begins") };
        let outcome = crate::server::durability::await_job(&job).await;
        assert!(matches!(outcome, Ok(crate::commands::context::JobDone::TimedOut)), "{outcome:?}");
    });
    disk.fail(None);
    machine.await_open("the disk works");
    machine.wait(live.confirm_all(), "").expect("the disk works");
}

/// A group of two records.
fn make_and_rename(keyspace: &Keyspace, from: &str, to: &str) {
    let (from, to) = (from.as_bytes(), to.as_bytes());
    let Ok(mut held) = keyspace.lock([(0, from), (0, to)].into_iter()) else { return };
    let made = held.write(0, from, |cell| {
        if cell.get().is_none() {
            let shape = Shape::new(10, 0.01).expect("a shape");
            cell.insert(empty_filter(cell.name(), &shape, SCALING, 2, None).expect("memory"));
            cell.record(&Effect::BloomCreated { shape, options: SCALING, growth: 2, life: None });
        }
    });
    // The log may be switched here.
    std::thread::sleep(Duration::from_micros(100));
    if made.is_ok() {
        let renamed = held.rename(0, from, to);
        assert!(matches!(renamed, Ok(Ok(()))), "nobody else has the keys");
    }
}

/// The log goes off and on while changes and bases go on: none of a change is left half recorded, and nothing hangs.
#[test]
fn the_log_is_switched_while_changes_go_on() {
    let disk = SimulatedFiles::new(1);
    let settings = [("appendonly", "yes"), ("appendfsync", "always"), ("save", "")];
    let pace = Pace { write: Duration::from_millis(1), ..Pace::default() };
    let machine = Machine::start(Arc::new(disk.clone()), &settings, pace).expect("it starts");
    let running = AtomicBool::new(true);
    std::thread::scope(|scope| {
        for client in 0..3 {
            let (keyspace, running) = (&machine.keyspace, &running);
            scope.spawn(move || {
                for n in 0_u64.. {
                    if !running.load(Ordering::Relaxed) {
                        break;
                    }
                    make_and_rename(keyspace, &format!("{client}-{n}"), &format!("{client}-{n} renamed"));
                    std::thread::yield_now();
                }
            });
        }
        for round in 0..30 {
            let on = if round % 2 == 0 { b"no".as_slice() } else { b"yes" };
            machine.settings.set(&[(b"appendonly", on)]).expect("the setting is right");
            let _base = machine.durability.begin(Task::RewriteLog);
            machine.await_job(&machine.durability.switch_log(), &format!("round {round}")).expect("the disk works");
            assert_eq!(machine.durability.live.is_on(), round % 2 == 1);
        }
        running.store(false, Ordering::Relaxed);
    });
    machine.wait(machine.durability.live.confirm_all(), "the last sync").expect("the disk works");
    let again = Machine::start(Arc::new(disk.after_power_loss(1)), &settings, pace).expect("the log is sound");
    assert_eq!(digest(&again.contents()), digest(&machine.contents()));
}

/// A snapshot, a change and the end of the log in one millisecond: the log has more than the snapshot, and is loaded. One that
/// is taken after the end is loaded, whatever the clock says.
#[test]
fn of_a_snapshot_and_a_log_that_ended_the_later_one_is_loaded() {
    let settings = [("appendonly", "yes"), ("appendfsync", "always"), ("save", "")];
    for round in 0..40 {
        let disk = SimulatedFiles::new(round);
        let mut machine = Machine::start(Arc::new(disk.clone()), &settings, Pace::default()).expect("it starts");
        let save = |machine: &Machine| match machine.durability.begin(Task::Save) {
            Ok(Begun::Now(job)) => machine.await_job(&job, "SAVE").expect("the disk works"),
            _ => panic!("nothing else runs"),
        };
        machine.ask("BF.ADD k first", "").expect("the disk works");
        save(&machine);
        machine.ask("BF.ADD k second", "").expect("the disk works");
        machine.settings.set(&[(b"appendonly", b"no")]).expect("the setting is right");
        machine.await_job(&machine.durability.switch_log(), "").expect("the disk works");
        for step in ["the log", "the snapshot"] {
            let again = Machine::start(Arc::new(disk.copy()), &settings, Pace::default()).expect("it starts");
            assert_eq!(digest(&again.contents()), digest(&machine.contents()), "round {round}: {step} is loaded");
            machine.ask("BF.ADD k third", "").expect("nothing is waited for");
            save(&machine);
        }
    }
}
