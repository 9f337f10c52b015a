//! Calls that fail, each in turn: nothing promised is lost, and the log works again when the disk does.

use seendb::persist::simulated::{Failure, Fault};

use super::model::{Failed, Model};

/// What the owner of the log does when something failed.
fn recover(model: &mut Model, failed: Failed, context: &str) {
    // Whatever happened, a machine that stops now has everything that was promised.
    for loss in 0..3 {
        model.check(&model.disk.after_power_loss(loss), context);
    }
    if model.random.bool() {
        // An attempt while the disk may be broken still.
        let _ = model.writer.is_some().then(|| model.flush());
    }
    model.disk.fail(None);
    if model.writer.is_none() {
        model.open().expect("the disk works");
    } else if matches!(failed, Failed::Sync) || model.writer.as_ref().is_some_and(|writer| writer.has_failed()) {
        assert!(model.sync().is_err() && model.flush().is_err(), "{context}: it stays failed");
        // Either it goes on from a new base, or the process dies and the next one reads what the system has.
        let outcome = if model.random.bool() { model.restart() } else { model.open() };
        outcome.expect("the disk works");
    }
}

fn live(seed: u64, failure: Failure) -> bool {
    let context = format!("seed {seed}, {failure:?}");
    let mut model = Model::new(seed);
    model.disk.fail(Some(failure));
    let mut any = false;
    for _ in 0..25 {
        if let Err(failed) = model.step() {
            any = true;
            recover(&mut model, failed, &context);
        }
    }
    model.disk.fail(None);
    model.append().expect("the disk works");
    model.sync().expect("the disk works");
    assert_eq!(model.promised, model.history.len(), "{context}");
    for loss in 0..4 {
        model.check(&model.disk.after_power_loss(loss), &context);
    }
    any
}

/// Let every call fail in turn, until none is left.
fn every_call(fault: Fault, once: bool, short: bool) {
    for seed in 0..25 {
        // A disk may be full with nobody noticing; a device with an error nobody notices for a few calls only.
        let (mut after, mut unnoticed) = (0, 0);
        while unnoticed < 60 {
            let noticed = live(seed, Failure { fault, after, once, short });
            unnoticed = if noticed { 0 } else { unnoticed + 1 };
            after += 1;
        }
        assert!(after > 80, "seed {seed}: {after} calls");
    }
}

#[test]
fn a_full_disk() {
    every_call(Fault::NoSpace, false, false);
    every_call(Fault::NoSpace, false, true);
    every_call(Fault::NoSpace, true, false);
}

#[test]
fn an_error_of_the_device_once() {
    every_call(Fault::Device, true, false);
    every_call(Fault::Device, true, true);
}

#[test]
fn an_error_of_the_device_that_stays() {
    every_call(Fault::Device, false, false);
}

/// The manifest that names the next segment may be in place though making it safe failed: then there is no way back to the
/// segment before, even for a batch that has room there.
#[test]
fn a_rotation_that_failed_half_way_is_finished_first() {
    for seed in 0..40 {
        let mut failures = 0;
        for after in 0..20 {
            let context = format!("seed {seed}, after {after}");
            let mut model = Model::new(seed);
            model.open().expect("the disk works");
            model.history = [[1; 400], [2; 400]].concat();
            let (first, piece) = (model.history[..400].to_vec(), model.history[400..].to_vec());
            model.writer.as_mut().expect("it is open").append(&first).expect("the disk works");
            model.disk.fail(Some(Failure { fault: Fault::Device, after, once: true, short: false }));
            let writer = model.writer.as_mut().expect("it is open");
            failures += u32::from(writer.append(&piece).is_err());
            model.disk.fail(None);
            if writer.has_failed() || writer.position() == 800 {
                continue;
            }
            writer.append(&piece[..10]).expect("the disk works");
            model.sync().expect("the disk works");
            assert_eq!(model.promised, 410, "{context}");
            model.check(&model.disk.copy(), &context);
            for loss in 0..4 {
                model.check(&model.disk.after_power_loss(loss), &context);
            }
        }
        assert!(failures > 5, "{failures}");
    }
}
