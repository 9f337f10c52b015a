//! The log's files are moved, removed or damaged.

use std::path::Path;
use std::sync::Arc;

use super::world::{Machine, digest};
use crate::persist::files::Files;
use crate::persist::live::Pace;
use crate::persist::log::repair::rebuild_manifest;
use crate::persist::simulated::SimulatedFiles;

const FOLDER: &str = "/appendonlydir";

fn start(disk: &SimulatedFiles) -> Result<Machine, String> {
    start_with(disk, "no")
}

fn start_with(disk: &SimulatedFiles, load_damaged: &str) -> Result<Machine, String> {
    start_as(disk, "yes", load_damaged)
}

fn start_as(disk: &SimulatedFiles, appendonly: &str, load_damaged: &str) -> Result<Machine, String> {
    let settings =
        [("appendonly", appendonly), ("appendfsync", "always"), ("save", ""), ("load-damaged", load_damaged)];
    Machine::start(Arc::new(disk.clone()), &settings, Pace::default())
}

/// What somebody does to the files.
type Deed = fn(&SimulatedFiles);

fn remove(disk: &SimulatedFiles, name: &str) {
    disk.remove(&Path::new(FOLDER).join(name)).expect("the disk works");
}

#[test]
fn a_log_whose_files_are_gone_is_noticed_and_begun_on_a_new_base() {
    let deeds: [(&str, Deed); 5] = [
        ("no manifest", |disk| remove(disk, "seendb.manifest")),
        ("no base", |disk| {
            let paths = disk.paths();
            let base = paths.iter().find(|path| path.to_string_lossy().contains("base-")).expect("a base");
            disk.remove(base).expect("the disk works");
        }),
        ("no segment", |disk| {
            for path in disk.paths().iter().filter(|path| path.to_string_lossy().contains("segment-")) {
                disk.remove(path).expect("the disk works");
            }
        }),
        ("no folder", |disk| disk.rename(Path::new(FOLDER), Path::new("/away")).expect("the disk works")),
        ("a copy of the folder", |disk| {
            let files: Vec<_> = disk.paths().iter().map(|path| (path.clone(), disk.content(path))).collect();
            for (path, content) in files {
                disk.remove(&path).expect("the disk works");
                disk.set_content(&path, content.as_deref());
            }
        }),
    ];
    for (what, deed) in deeds {
        let disk = SimulatedFiles::new(1);
        let mut machine = start(&disk).expect("it starts");
        assert_eq!(machine.ask("BF.ADD k before", what).expect("the disk works"), ":1\r\n");
        assert_eq!(machine.call("BGREWRITEAOF", what), "+Background append only file rewriting started\r\n");
        machine.await_that(what, |machine| machine.durability.state.lock().bases.count > 0);
        deed(&disk);
        machine.await_that(what, |machine| machine.durability.state.lock().bases.count > 1);
        machine.await_open(what);
        assert_eq!(machine.ask("BF.ADD k after", what).expect("the disk works"), ":1\r\n");
        let again = start(&disk.after_power_loss(1)).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(digest(&again.contents()), digest(&machine.contents()), "{what}");
    }
}

/// Another log in the place of the lost one is not written over: changes are refused until it is away.
#[test]
fn a_log_that_somebody_has_put_there_is_left_alone() {
    let (disk, what) = (SimulatedFiles::new(2), "another log");
    let mut other = start(&disk).expect("it starts");
    assert_eq!(other.ask("BF.ADD k other", what).expect("the disk works"), ":1\r\n");
    let others = digest(&other.contents());
    drop(other);
    disk.rename(Path::new(FOLDER), Path::new("/other")).expect("the disk works");
    let mut machine = start(&disk).expect("it starts");
    assert_eq!(machine.ask("BF.ADD k own", what).expect("the disk works"), ":1\r\n");
    disk.rename(Path::new(FOLDER), Path::new("/away")).expect("the disk works");
    disk.rename(Path::new("/other"), Path::new(FOLDER)).expect("the disk works");
    machine.await_that(what, |machine| !machine.durability.state.lock().bases.ok);
    assert!(machine.call("BF.ADD k more", what).starts_with("-MISCONF Errors writing to the AOF file"));
    assert_eq!(digest(&start(&disk.copy()).expect("it starts").contents()), others);
    disk.rename(Path::new(FOLDER), Path::new("/other")).expect("the disk works");
    machine.await_open(what);
    assert_eq!(machine.ask("BF.ADD k more", what).expect("the disk works"), ":1\r\n");
    let again = start(&disk.after_power_loss(1)).expect("it starts");
    assert_eq!(digest(&again.contents()), digest(&machine.contents()));
}

/// What is sound of a damaged base is loaded once: the next start needs no leave to, and what was damaged is kept.
#[test]
fn a_damaged_base_is_kept_and_another_one_takes_its_place() {
    let (disk, what) = (SimulatedFiles::new(3), "a damaged base");
    let mut machine = start(&disk).expect("it starts");
    for (key, capacity) in [("large", 1_500_000), ("other", 1_500_000), ("small", 10)] {
        let made = machine.ask(&format!("BF.RESERVE {key} 0.01 {capacity}"), what);
        assert_eq!(made.expect("the disk works"), "+OK\r\n");
        assert_eq!(machine.ask(&format!("BF.ADD {key} before"), what).expect("the disk works"), ":1\r\n");
    }
    machine.call("BGREWRITEAOF", what);
    machine.await_that(what, |machine| machine.durability.state.lock().bases.count > 0);
    for key in ["large", "other", "small"] {
        assert_eq!(machine.ask(&format!("BF.ADD {key} after"), what).expect("the disk works"), ":1\r\n");
    }
    drop(machine);
    let paths = disk.paths();
    let base = paths.iter().find(|path| path.to_string_lossy().contains("base-")).expect("a base");
    let mut bytes = disk.content(base).expect("a base");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    disk.set_content(base, Some(&bytes));
    let reason = start(&disk).err().expect("it does not start");
    assert!(reason.contains("seendb check") && reason.contains("load-damaged yes"), "{reason}");
    let loaded = start_with(&disk, "yes").expect("it starts");
    let state = digest(&loaded.contents());
    assert!(!loaded.contents().is_empty() && loaded.contents().len() < 3, "some are lost");
    loaded.await_that(what, |machine| machine.durability.state.lock().bases.count > 0);
    drop(loaded);
    assert_eq!(digest(&start(&disk.after_power_loss(1)).expect("it starts").contents()), state);
    let kept = base.with_file_name(format!("{}.damaged", base.file_name().expect("a name").display()));
    assert!(disk.content(&kept) == Some(bytes), "{:?}", disk.paths());
}

/// A snapshot beside a damaged base is told of, and neither lost nor written over.
#[test]
fn a_snapshot_beside_a_damaged_base_is_told_of() {
    let (disk, what) = (SimulatedFiles::new(5), "a damaged base beside a snapshot");
    let mut machine = start(&disk).expect("it starts");
    machine.ask("BF.ADD k before", what).expect("the disk works");
    machine.call("BGREWRITEAOF", what);
    machine.await_that(what, |machine| machine.durability.state.lock().bases.count > 0);
    machine.ask("BF.ADD k after", what).expect("the disk works");
    assert_eq!(machine.ask("SAVE", what).expect("the disk works"), "+OK\r\n");
    let state = digest(&machine.contents());
    drop(machine);
    flip(&disk, "base-1.rdb", 60);
    for (load_damaged, first) in [("no", "load-damaged yes"), ("yes", "nothing in it is sound")] {
        let reason = start_with(&disk, load_damaged).err().expect("it does not start");
        for words in [first, "There is also", "(1 key, saved", "mv '/appendonlydir' '/appendonlydir.aside-"] {
            assert!(reason.contains(words), "{words}: {reason}");
        }
    }
    for path in disk.paths().iter().filter(|path| path.starts_with("/appendonlydir")) {
        disk.set_content(path, None);
    }
    assert_eq!(digest(&start(&disk).expect("it starts").contents()), state);
}

/// What a Redis has logged is not passed over in silence: without `appendonly yes` the snapshot beside it, which may be staler,
/// was served.
#[test]
fn the_log_of_a_redis_is_not_begun_beside() {
    for path in ["/appendonlydir/appendonly.aof.manifest", "/appendonlydir/other.aof.1.incr.aof", "/appendonly.aof"] {
        for (appendonly, saved) in [("yes", false), ("yes", true), ("no", false), ("no", true)] {
            let disk = SimulatedFiles::new(6);
            let mut machine = start_as(&disk, "no", "no").expect("it starts");
            if saved {
                assert_eq!(machine.call("BF.ADD k item", path), ":1\r\n");
                assert_eq!(machine.call("SAVE", path), "+OK\r\n");
            }
            drop(machine);
            disk.set_content(path.as_ref(), Some(b"*2"));
            let before = disk.paths();
            let reason = start_as(&disk, appendonly, "no").err().expect("it does not start");
            for words in ["' is the append-only log of a Redis", "BGSAVE", "seendb copy", "move it away"] {
                assert!(reason.contains(words) && !reason.contains("  "), "{words}: {reason}");
            }
            assert_eq!(disk.paths(), before);
            disk.rename(path.as_ref(), "/aside".as_ref()).expect("the disk works");
            let mut machine = start_as(&disk, appendonly, "no").expect("it starts");
            assert_eq!(machine.call("EXISTS k", path), format!(":{}\r\n", u8::from(saved)));
        }
    }
}

/// Every refusal for the log says what can be done.
#[test]
fn a_log_that_cannot_be_loaded_says_what_to_do() {
    type Harm = fn(&SimulatedFiles);
    let harms: [(Harm, &[&str]); 5] = [
        (|disk| flip(disk, "segment-1.log", 150), &["seendb check '/appendonlydir'", "--fix", "load-damaged yes"]),
        (|disk| flip(disk, "seendb.manifest", 20), &["seendb check --fix '/appendonlydir'", "restore a backup"]),
        (|disk| remove(disk, "seendb.manifest"), &["seendb check --fix '/appendonlydir'", "move the folder away"]),
        (|disk| remove(disk, "segment-1.log"), &["seendb check '/appendonlydir'"]),
        (
            |disk| {
                let machine = start(disk).expect("it starts");
                machine.durability.begin(crate::commands::context::Task::RewriteLog).expect("nothing else runs");
                machine.await_that("a base", |machine| machine.durability.state.lock().bases.count > 0);
                drop(machine);
                remove(disk, "base-1.rdb");
            },
            &["base is not there", "move '/appendonlydir' away", "restore a backup"],
        ),
    ];
    for (harm, words) in harms {
        let disk = SimulatedFiles::new(4);
        let mut machine = start(&disk).expect("it starts");
        for item in 0..20 {
            machine.ask(&format!("BF.ADD k {item}"), "").expect("the disk works");
        }
        drop(machine);
        harm(&disk);
        let before = disk.paths();
        let reason = start(&disk).err().expect("it does not start");
        words.iter().for_each(|word| assert!(reason.contains(word), "no {word} in {reason}"));
        assert_eq!(disk.paths(), before);
    }
}

fn flip(disk: &SimulatedFiles, name: &str, at: usize) {
    let path = Path::new(FOLDER).join(name);
    let mut bytes = disk.content(&path).expect("a file");
    bytes[at] ^= 1;
    disk.set_content(&path, Some(&bytes));
}

/// A manifest is made again from what the other files say of themselves, or nothing is changed.
#[test]
fn a_manifest_is_made_again_if_the_other_files_fit() {
    let (disk, what) = (SimulatedFiles::new(5), "a manifest");
    let mut machine = start(&disk).expect("it starts");
    let names = |disk: &SimulatedFiles, word: &str| -> Vec<_> {
        disk.paths().into_iter().filter(|path| path.to_string_lossy().contains(word)).collect()
    };
    for round in 0..2 {
        // Several segments, some of them behind the base only in part.
        for item in 0..400 {
            machine.ask(&format!("BF.ADD k{round} {item}"), what).expect("the disk works");
        }
        if round == 0 {
            machine.call("BGREWRITEAOF", what);
            machine.await_that(what, |machine| machine.durability.state.lock().bases.count > 0);
        }
    }
    let state = digest(&machine.contents());
    drop(machine);
    assert!(names(&disk, "segment-").len() > 2 && names(&disk, "base-").len() == 1, "{:?}", disk.paths());
    let rebuild = |disk: &SimulatedFiles| {
        let files: Arc<dyn Files> = Arc::new(disk.clone());
        rebuild_manifest(&files, Path::new(FOLDER))
    };
    let manifest = disk.content(&Path::new(FOLDER).join("seendb.manifest"));
    for lost in [true, false] {
        let disk = disk.copy();
        if lost {
            remove(&disk, "seendb.manifest")
        } else {
            flip(&disk, "seendb.manifest", 30)
        }
        let kept = rebuild(&disk).unwrap_or_else(|reason| panic!("{reason}"));
        assert_eq!(kept.is_none(), lost);
        assert!(disk.content(&Path::new(FOLDER).join("seendb.manifest")) == manifest, "it is the same as before");
        assert_eq!(digest(&start(&disk).expect("it starts").contents()), state);
    }
    let mut segments = names(&disk, "segment-");
    segments.sort_by_key(|path| path.as_os_str().len());
    // That a last one is missing is told by nothing.
    for gone in segments[..segments.len() - 1].iter().chain(&names(&disk, "base-")) {
        let disk = disk.copy();
        disk.set_content(gone, None);
        remove(&disk, "seendb.manifest");
        let before = disk.paths();
        let outcome = rebuild(&disk);
        assert!(
            outcome.is_err(),
            "{gone:?} of {segments:?}: {}",
            String::from_utf8_lossy(manifest.as_deref().unwrap_or_default())
        );
        assert_eq!(disk.paths(), before);
    }
}
