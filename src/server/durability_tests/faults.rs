//! Calls that fail and power that goes, each call in turn.

use super::{World, number};
use crate::persist::simulated::{Failure, Fault};

const STEPS: usize = 24;

/// A machine lives, and so does its disk but for this failure; then the power goes, comes back, and goes again. Tells whether
/// the failure came.
fn live(seed: u64, policy: &'static str, failure: Failure) -> bool {
    let mut world = World::new(seed, policy, format!("seed {seed}, {policy}, {failure:?}"));
    let logs = world.random.u8(..4) > 0;
    world.start(logs).expect("the disk works");
    for _ in 0..4 {
        world.step();
    }
    let (calls, heals_at) = (world.disk.calls(), world.random.usize(4..STEPS));
    world.disk.fail(Some(failure));
    for step in 0..STEPS {
        world.step();
        if step == heals_at && failure.fault != Fault::Stop {
            world.disk.fail(None);
            world.goes_on();
        } else if world.random.u8(..8) == 0 {
            world.check_losses(1);
        }
    }
    let came = world.disk.calls() - calls > failure.after;
    world.check_losses(1);
    let in_the_start = world.random.bool().then(|| Failure { after: world.random.u64(..40), ..failure });
    world.lose_power(in_the_start);
    for _ in 0..4 {
        world.step();
    }
    world.disk.fail(None);
    world.goes_on();
    world.check_losses(2);
    // What cannot be removed by one start is by the next.
    if in_the_start.is_none() {
        no_rests(&mut world);
    }
    came
}

/// Nothing unfinished stays when the disk works again and all is done.
fn no_rests(world: &mut World) {
    let context = world.context();
    world.machine().await_that(&context, |machine| machine.durability.state.lock().running.is_none());
    world.save();
    let paths = world.disk.paths();
    assert!(paths.iter().all(|path| !path.to_string_lossy().contains("temp-")), "{context}: {paths:?}");
}

/// Every call fails in turn, in lives of several seeds, until a few lives have not met the failure.
fn every_call(policy: &'static str, failures: &[Failure]) {
    const SEEDS: u64 = 4;
    const MISSED: u64 = 5;
    let (rounds, first) = (number("SEENDB_FAULT_ROUNDS", 1), number("SEENDB_SEED", 1));
    for failure in failures {
        let mut lives = 0;
        for seed in first..first + SEEDS * rounds {
            let (mut after, mut missed) = (0, 0);
            while missed < MISSED {
                let came = live(seed, policy, Failure { after, ..*failure });
                missed = if came { 0 } else { missed + 1 };
                after += 1;
            }
            lives += after;
        }
        println!("{policy}, {failure:?}: {lives} lives");
    }
}

const fn failure(fault: Fault, once: bool, short: bool) -> Failure {
    Failure { fault, after: 0, once, short }
}

#[test]
fn a_full_disk_loses_nothing_that_was_confirmed() {
    every_call("always", &[failure(Fault::NoSpace, false, true), failure(Fault::NoSpace, true, false)]);
}

#[test]
fn an_error_of_the_device_loses_nothing_that_was_confirmed() {
    every_call("always", &[failure(Fault::Device, true, false), failure(Fault::Device, false, true)]);
}

#[test]
fn a_power_loss_loses_nothing_that_was_confirmed() {
    every_call("always", &[failure(Fault::Stop, false, false)]);
}

#[test]
fn what_is_synced_each_second_outlives_failures() {
    every_call("everysec", &[failure(Fault::NoSpace, false, false), failure(Fault::Device, true, true)]);
}

#[test]
fn a_long_life_of_failures() {
    let (rounds, seed) = (number("SEENDB_FAULT_ROUNDS", 1), number("SEENDB_SEED", 1));
    let mut world = World::new(seed, "always", format!("seed {seed}, a long life"));
    world.start(true).expect("the disk works");
    for round in 0..60 * rounds {
        let fault = if world.random.bool() { Fault::NoSpace } else { Fault::Device };
        let failure =
            Failure { fault, after: world.random.u64(..60), once: world.random.bool(), short: world.random.bool() };
        world.disk.fail(Some(failure));
        for _ in 0..8 {
            world.step();
        }
        world.disk.fail(None);
        world.goes_on();
        if round % 4 == 3 {
            let in_the_start = world.random.bool().then_some(failure);
            world.lose_power(in_the_start);
            world.disk.fail(None);
        }
    }
}
