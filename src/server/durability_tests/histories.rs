//! A log and a snapshot of which neither has all that the other has.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::world::{Machine, digest};
use crate::commands::context::{Begun, ShutDown, Task};
use crate::persist::live::Pace;
use crate::persist::simulated::SimulatedFiles;

const SNAPSHOT: &str = "/dump.rdb";

fn try_start(disk: &SimulatedFiles, appendonly: &str) -> Result<Machine, String> {
    // The clock of the snapshot and that of the log's files go on between two starts.
    std::thread::sleep(Duration::from_millis(3));
    let settings = [("appendonly", appendonly), ("appendfsync", "always"), ("save", "3600 1")];
    Machine::start(Arc::new(disk.clone()), &settings, Pace::default())
}

#[track_caller]
fn start(disk: &SimulatedFiles, appendonly: &str) -> Machine {
    try_start(disk, appendonly).expect("it starts")
}

#[track_caller]
fn add(machine: &mut Machine, item: &str) {
    assert_eq!(machine.ask(&format!("BF.ADD k {item}"), item).expect("the disk works"), ":1\r\n");
}

#[track_caller]
fn has(machine: &mut Machine, items: &[&str]) {
    for item in items {
        assert_eq!(machine.call(&format!("BF.EXISTS k {item}"), item), ":1\r\n", "{item}");
    }
}

#[track_caller]
fn save(machine: &Machine) {
    match machine.durability.begin(Task::Save) {
        Ok(Begun::Now(job)) => drop(machine.await_job(&job, "SAVE").expect("the disk works")),
        _ => panic!("nothing else runs"),
    }
}

/// The end, as after SIGTERM.
#[track_caller]
fn end(machine: Machine) {
    let how = ShutDown::default();
    machine.wait(machine.durability.prepare_end(how), "the end").expect("the disk works");
    machine.wait(machine.durability.save_rest(how), "the end").expect("the disk works");
    machine.durability.close();
}

#[track_caller]
fn switch(machine: &mut Machine, value: &str) {
    assert_eq!(machine.call(&format!("CONFIG SET appendonly {value}"), value), "+OK\r\n");
}

#[track_caller]
fn refused(disk: &SimulatedFiles) -> String {
    let before = disk.paths();
    let reason = try_start(disk, "yes").err().expect("it does not start");
    for word in [
        "'/dump.rdb'",
        "'/appendonlydir'",
        "mv '/dump.rdb' '/dump.rdb.aside-",
        "mv '/appendonlydir' '/appendonlydir.aside-",
    ] {
        assert!(reason.contains(word), "no {word} in {reason}");
    }
    assert_eq!(disk.paths(), before);
    reason
}

/// What an operator is told to do.
fn put_aside(disk: &SimulatedFiles, path: &str) {
    use crate::persist::files::Files;
    disk.rename(Path::new(path), Path::new(&format!("{path}.aside"))).expect("the disk works");
}

/// A server with a log, which may save a snapshot between two items, and is cut off.
fn log_two_items(disk: &SimulatedFiles, saves: bool) {
    let mut first = start(disk, "yes");
    add(&mut first, "before");
    if saves {
        save(&first);
    }
    add(&mut first, "confirmed");
}

#[test]
fn a_start_without_the_log_that_changes_nothing_leaves_all_as_it_was() {
    for saves in [false, true] {
        let disk = SimulatedFiles::new(1);
        log_two_items(&disk, saves);
        let snapshot = disk.content(Path::new(SNAPSHOT));
        end(start(&disk, "no"));
        assert!(disk.content(Path::new(SNAPSHOT)) == snapshot, "nothing was saved");
        has(&mut start(&disk, "yes"), &["before", "confirmed"]);
    }
}

#[test]
fn a_log_and_a_later_snapshot_that_lacks_some_of_it_are_a_question() {
    for saves in [false, true] {
        let disk = SimulatedFiles::new(2);
        log_two_items(&disk, saves);
        let mut second = start(&disk, "no");
        add(&mut second, "unlogged");
        end(second);
        let reason = refused(&disk);
        assert!(
            reason.contains("(1 key, saved 20") && reason.contains("begun with no keys, 3 changes since"),
            "{reason}"
        );
        let (log_chosen, snapshot_chosen) = (disk.copy(), disk.copy());
        put_aside(&log_chosen, SNAPSHOT);
        has(&mut start(&log_chosen, "yes"), &["before", "confirmed"]);
        put_aside(&snapshot_chosen, "/appendonlydir");
        has(&mut start(&snapshot_chosen, "yes"), &["unlogged"]);
    }
}

#[test]
fn what_a_stray_server_saved_does_not_stand_before_a_log_that_went_on() {
    for changes in [false, true] {
        let disk = SimulatedFiles::new(3);
        let mut first = start(&disk, "yes");
        add(&mut first, "before");
        let mut stray = start(&disk, "no");
        if changes {
            add(&mut stray, "astray");
        }
        end(stray);
        std::thread::sleep(Duration::from_millis(3));
        add(&mut first, "later");
        drop(first);
        let mut again = start(&disk, "yes");
        has(&mut again, &["before", "later"]);
        save(&again);
        let kept = disk.paths().iter().filter(|path| path.to_string_lossy().contains("dump.rdb.original-")).count();
        assert_eq!(kept, usize::from(changes), "what the other one saved is kept");
    }
}

#[test]
fn a_log_begun_at_run_time_is_not_forgotten_for_a_later_snapshot() {
    let disk = SimulatedFiles::new(4);
    let mut first = start(&disk, "no");
    switch(&mut first, "yes");
    add(&mut first, "confirmed");
    drop(first);
    let mut second = start(&disk, "no");
    add(&mut second, "unlogged");
    end(second);
    refused(&disk);
}

/// Who has all of the log may leave it, and what is saved then has all of both.
#[test]
fn a_snapshot_that_has_all_of_the_log_and_more_is_loaded() {
    let disk = SimulatedFiles::new(5);
    let mut first = start(&disk, "yes");
    add(&mut first, "logged");
    end(first);
    let mut second = start(&disk, "no");
    add(&mut second, "unlogged");
    end(second);
    end(start(&disk, "no"));
    let mut third = start(&disk, "yes");
    has(&mut third, &["logged", "unlogged"]);
    let state = digest(&third.contents());
    drop(third);
    assert_eq!(digest(&start(&disk, "yes").contents()), state);
}

/// A log is begun on a snapshot: that one is older, however short the time between them.
#[test]
fn a_snapshot_from_before_the_log_is_no_question() {
    for switched in [false, true] {
        let disk = SimulatedFiles::new(6);
        let mut first = start(&disk, "no");
        add(&mut first, "saved");
        save(&first);
        if switched {
            switch(&mut first, "yes");
        } else {
            drop(first);
            first = start(&disk, "yes");
        }
        drop(first);
        has(&mut start(&disk, "yes"), &["saved"]);
    }
}

/// As docs/backup.md tells it: with the log out of the way a backup is loaded, and goes on as the base of a new log.
#[test]
fn a_backup_is_restored_where_a_log_was() {
    let disk = SimulatedFiles::new(7);
    let mut first = start(&disk, "yes");
    add(&mut first, "before");
    save(&first);
    let backup = disk.content(Path::new(SNAPSHOT)).expect("a snapshot");
    add(&mut first, "after");
    end(first);
    disk.set_content(Path::new(SNAPSHOT), Some(&backup));
    has(&mut start(&disk, "yes"), &["before", "after"]);
    put_aside(&disk, "/appendonlydir");
    disk.set_content(Path::new(SNAPSHOT), Some(&backup));
    let mut restored = start(&disk, "yes");
    assert_eq!(restored.call("BF.EXISTS k after", ""), ":0\r\n");
    add(&mut restored, "new");
    drop(restored);
    has(&mut start(&disk, "yes"), &["before", "new"]);
}
