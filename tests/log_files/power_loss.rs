//! Power losses at every call: everything promised is there, and nothing that was not logged.

use seendb::persist::simulated::{Failure, Fault};

use super::model::Model;

/// A log lives, the machine stops at some call and comes up again; twice.
fn live_and_die(seed: u64, calls: u64, steps: usize) -> bool {
    let mut model = Model::new(seed);
    let mut stopped = false;
    for life in 0..2 {
        let context = format!("seed {seed}, stop after {calls} calls, life {life}");
        model.disk.fail(Some(Failure { fault: Fault::Stop, after: calls, once: false, short: false }));
        stopped |= (0..steps).any(|_| model.step().is_err());
        for loss in 0..6 {
            model.check(&model.disk.after_power_loss(loss), &context);
        }
        // A process that dies alone: everything written can be seen.
        let all = model.writer.as_ref().map_or(0, |writer| writer.position() as usize);
        model.disk.fail(None);
        assert!(model.check(&model.disk.copy(), &context) >= all, "{context}");
        model.disk = model.disk.after_power_loss(seed);
        model.writer = None;
        model.open().expect("the log can be continued");
    }
    stopped
}

#[test]
fn a_power_loss_at_every_call_leaves_what_was_promised() {
    for seed in 0..40 {
        let mut calls = 0;
        while live_and_die(seed, calls, 25) {
            calls += 1;
        }
        assert!(calls > 20, "seed {seed}: {calls} calls");
    }
}

#[test]
fn a_long_life_of_crashes() {
    let mut model = Model::new(77);
    for life in 0..300 {
        let after = model.random.u64(..300);
        model.disk.fail(Some(Failure { fault: Fault::Stop, after, once: false, short: false }));
        while model.step().is_ok() {}
        model.disk = model.disk.after_power_loss(life);
        model.check(&model.disk, &format!("life {life}"));
        model.writer = None;
    }
    assert!(model.promised > 10_000, "{} records were promised", model.promised);
}
