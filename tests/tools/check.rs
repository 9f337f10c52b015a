//! Files looked at and repaired.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use super::support::{Random, Server};
use super::{assert_all_same, everything, make_filters, make_other_types, run, run_to, saved, text};

/// Copies the files of a folder.
pub fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

/// Changes a byte of a file.
pub fn flip(path: &Path, at: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[at] ^= 0x55;
    std::fs::write(path, bytes).unwrap();
}

/// What a run says in JSON, which must end with this status.
#[track_caller]
fn json(status: i32, args: &[&str]) -> serde_json::Value {
    let ran = run(&[&["check", "--json"], args].concat());
    assert_eq!(ran.status, status, "{}", ran.text);
    serde_json::from_slice(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {}", ran.text))
}

#[test]
fn a_snapshot_of_ours_is_told() {
    let server = Server::start();
    let mut client = server.client();
    client.cmd("BF.MADD visitors a b c");
    client.cmd("PEXPIRE visitors 100000000");
    client.cmd("SELECT 5");
    client.cmd("BF.ADD other x");
    let path = saved(&server);
    let printed = run_to(0, &["check", text(&path)]);
    for part in [
        "dump.rdb: sound\n  snapshot, REDIS version 10, ",
        ", checksum right, 1 block mark\n",
        "  seendb-ver = ",
        "  database 0: 1 key of type MBbloom--, ",
        ", 3 items, 1 with a life\n",
        "  database 5: 1 key of type MBbloom--, ",
    ] {
        assert!(printed.contains(part), "{part}: {printed}");
    }
    let found = &json(0, &[text(&path)])[0];
    assert_eq!((&found["kind"], &found["sound"]), (&"snapshot".into(), &true.into()));
    assert_eq!(found["keys"][0]["keys"], 1);
    assert_eq!(found["keys"][1]["db"], 5);
    assert_eq!(found["aux"]["redis-bits"], "64");
    // A data folder is looked at as a whole.
    assert_eq!(json(0, &[text(server.dir())])[0]["path"], text(&path));
}

#[test]
fn keys_of_every_type_of_redis_are_told() {
    let peer = Server::peer();
    let mut client = peer.client();
    client.cmd("BF.ADD filter item");
    let others = make_other_types(&mut client);
    let found = &json(0, &[text(&saved(&peer))])[0];
    let kinds = found["keys"].as_array().unwrap();
    let keys: u64 = kinds.iter().map(|kind| kind["keys"].as_u64().unwrap()).sum();
    assert_eq!(keys as usize, others + 1);
    for name in [
        "string",
        "list",
        "set",
        "hash",
        "zset",
        "stream",
        "MBbloom--",
        "MBbloomCF",
        "CMSk-TYPE",
        "TopK-TYPE",
        "TDIS-TYPE",
    ] {
        assert!(kinds.iter().any(|kind| kind["type"] == name), "{name}: {found}");
    }
    assert_eq!(found["checksum"], "right");
}

#[test]
fn damage_in_a_snapshot_is_told_and_left_alone() {
    let server = Server::start();
    make_filters(&mut server.client(), &mut Random::new(69), 400);
    let path = saved(&server);
    let whole = std::fs::read(&path).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let damaged = folder.path().join("damaged.rdb");
    let random = &mut Random::new(1);
    for turn in 0..60 {
        let mut bytes = whole.clone();
        match turn < 20 {
            true => bytes.truncate(random.below(whole.len())),
            false => bytes[random.below(whole.len())] ^= 1 << random.below(8),
        }
        std::fs::write(&damaged, &bytes).unwrap();
        let found = &json(1, &[text(&damaged)])[0];
        assert_eq!(found["sound"], false);
        assert!(found["offset"].is_u64() || !found["error"].as_str().unwrap().is_empty(), "{found}");
        let printed = run_to(1, &["check", "--fix", "--yes", text(&damaged)]);
        assert!(printed.contains("damaged.rdb: DAMAGED\n") && printed.contains("nothing was changed"), "{printed}");
        assert!(std::fs::read(&damaged).unwrap() == bytes);
    }
    // One block of three is lost, and its keys are named.
    let mut bytes = whole.clone();
    bytes[whole.len() / 2] ^= 1;
    std::fs::write(&damaged, &bytes).unwrap();
    let found = &json(1, &[text(&damaged)])[0];
    let lost = &found["losses"][0];
    assert!(lost["keys"].as_u64().unwrap() > 0 && lost["names"][0]["name"].is_string(), "{found}");
    assert!(run_to(1, &["check", text(&damaged)]).contains("'load-damaged yes' loads it"));
    // The first block, with the file's beginning.
    let mut bytes = whole.clone();
    bytes[100] ^= 1;
    std::fs::write(&damaged, &bytes).unwrap();
    let printed = run_to(1, &["check", text(&damaged)]);
    assert!(printed.contains("snapshot, its beginning lost, ") && printed.contains("  database "), "{printed}");
    std::fs::write(&damaged, b"no snapshot at all").unwrap();
    assert!(run_to(1, &["check", text(&damaged)]).contains("neither REDIS nor VALKEY"));
    assert!(run_to(1, &["check", text(&folder.path().join("missing"))]).contains("No such file"));
}

/// A log of so many adds, each in a batch of its own, and a copy of it that no server uses.
pub fn log_of(adds: usize) -> (Server, tempfile::TempDir) {
    let server = Server::with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let mut client = server.client();
    (0..adds).for_each(|i| drop(client.cmd(&format!("BF.ADD k item{i}"))));
    let folder = tempfile::tempdir().unwrap();
    copy_folder(&server.dir().join("appendonlydir"), &folder.path().join("appendonlydir"));
    (server, folder)
}

#[test]
fn a_log_is_told() {
    let (_server, folder) = log_of(40);
    let log = folder.path().join("appendonlydir");
    let found = &json(0, &[text(&log)])[0];
    assert_eq!((&found["kind"], &found["sound"]), (&"log".into(), &true.into()));
    assert_eq!((found["records"]["created"].as_u64(), found["records"]["added"].as_u64()), (Some(1), Some(40)));
    assert_eq!(found["items"], 40);
    assert!(
        found["known_synced"].as_u64().unwrap() > 0 && found["known_synced"].as_u64() <= found["position"].as_u64()
    );
    for path in [log.join("seendb.manifest"), folder.path().to_owned()] {
        assert_eq!(json(0, &[text(&path)])[0]["position"], found["position"]);
    }
    let segment = &json(0, &[text(&log.join("segment-1.log"))])[0];
    assert_eq!((&segment["kind"], &segment["position"]), (&"segment".into(), &found["position"]));
    let printed = run_to(0, &["check", text(&log)]);
    assert!(printed.contains("appendonlydir: sound\n  log "), "{printed}");
    assert!(printed.contains("created 1, added 40; 40 items"), "{printed}");
}

#[test]
fn a_damaged_log_is_cut_only_when_asked() {
    let (server, folder) = log_of(40);
    let log = folder.path().join("appendonlydir");
    let segment = log.join("segment-1.log");
    flip(&segment, 1500);
    let before = std::fs::read(&segment).unwrap();
    let found = &json(1, &[text(&log)])[0];
    let (offset, position) = (found["damage"]["offset"].as_u64().unwrap(), found["position"].as_u64().unwrap());
    assert!((1000..=1500).contains(&offset) && position > 0, "{found}");
    assert_eq!((&found["damage"]["file"], &found["damage"]["torn_tail"]), (&"segment-1.log".into(), &false.into()));
    let printed = run_to(1, &["check", text(&log)]);
    assert!(
        printed.contains(&format!("segment-1.log: damage at offset {offset} (log position {position})")),
        "{printed}"
    );
    assert!(printed.contains("--fix keeps what is before"), "{printed}");
    // Nobody can be asked.
    assert!(run_to(2, &["check", "--fix", text(&log)]).contains("--fix needs --yes"));
    assert!(std::fs::read(&segment).unwrap() == before);

    let printed = run_to(0, &["check", "--fix", "--yes", text(&log)]);
    let kept = format!("segment-1.log.{offset}.damaged");
    assert!(printed.contains(&format!("repaired: what was cut off is in {kept}")), "{printed}");
    assert!(before[offset as usize..].starts_with(&std::fs::read(log.join(&kept)).unwrap()));
    assert_eq!(json(0, &[text(&log)])[0]["position"], position);
    let printed = run_to(0, &["check", text(&log.join(&kept))]);
    assert!(printed.contains(&format!("what was cut off segment-1.log at offset {offset}")), "{printed}");
    assert!(json(0, &[text(&log.join(&kept))])[0]["batches"].as_u64().unwrap() > 5);
    let again = Server::on(&[(&log, "appendonlydir")], &["--appendonly", "yes"]);
    let items = again.client().cmd("BF.CARD k").int();
    assert!((10..40).contains(&items), "{items}");
    (0..items).for_each(|i| assert_eq!(again.client().cmd(&format!("BF.EXISTS k item{i}")), 1));
    drop(server);
}

/// Runs `seendb check --fix` on a terminal where somebody types this; status and what is to be seen.
fn fix_on_a_terminal(log: &Path, typed: &str) -> (Option<i32>, String) {
    let line = format!("'{}' check --fix '{}'", env!("CARGO_BIN_EXE_seendb"), log.display());
    let mut child = Command::new("script")
        .args(["-qec", &line, "/dev/null"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("script, of util-linux");
    child.stdin.as_mut().unwrap().write_all(typed.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn who_sits_at_a_terminal_is_asked() {
    let (_server, folder) = log_of(40);
    let log = folder.path().join("appendonlydir");
    let segment = log.join("segment-1.log");
    flip(&segment, 1500);
    let before = std::fs::read(&segment).unwrap();
    for answer in ["n\n", "\n"] {
        let (status, seen) = fix_on_a_terminal(&log, answer);
        assert!(seen.contains("damage at offset ") && seen.contains("Cut the log there? [y/N]"), "{seen}");
        assert!(seen.contains("nothing was changed"), "{seen}");
        assert_eq!(status, Some(1));
        assert!(std::fs::read(&segment).unwrap() == before);
    }
    let (status, seen) = fix_on_a_terminal(&log, "y\n");
    assert!(seen.contains("repaired: what was cut off is in segment-1.log."), "{seen}");
    assert_eq!(status, Some(0));
    run_to(0, &["check", text(&log)]);
}

#[test]
fn a_torn_tail_is_told_as_one() {
    let (server, folder) = log_of(40);
    let log = folder.path().join("appendonlydir");
    let segment = log.join("segment-1.log");
    let bytes = std::fs::read(&segment).unwrap();
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    flip(&segment, end - 2);
    let found = &json(1, &[text(&log)])[0];
    assert_eq!(found["damage"]["torn_tail"], true);
    assert!(run_to(1, &["check", text(&log)]).contains("the server cuts it at its start"));
    run_to(0, &["check", "--fix", "--yes", text(&log)]);
    let again = Server::on(&[(&log, "appendonlydir")], &["--appendonly", "yes"]);
    assert!(again.client().cmd("BF.CARD k").int() >= 39);
    drop(server);
}

#[test]
fn a_log_in_use_is_read_and_not_cut() {
    let server = Server::with(&["--appendonly", "yes", "--appendfsync", "no"]);
    let log = server.dir().join("appendonlydir");
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut client, random) = (server.client(), &mut Random::new(8));
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let items: Vec<_> = (0..20).map(|_| random.below(3000).to_string()).collect();
                client.cmd(&format!("BF.MADD k{} {}", random.below(30), items.join(" ")));
                client.cmd(&format!("DEL k{}", random.below(300)));
                if random.below(300) == 0 {
                    client.cmd("BGREWRITEAOF");
                }
            }
        });
        let outcome = std::panic::catch_unwind(|| {
            for _ in 0..10 {
                run_to(0, &["check", text(&log), text(&log)]);
                run_to(0, &["log", "cat", text(&log), "--resp"]);
            }
        });
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        outcome.unwrap();
    });
    // Nothing that was done to it was felt.
    let before = everything(&server);
    assert_eq!(server.client().cmd("WAITAOF 1 0 30000").array()[0], 1);
    let copy = Server::on(&[(&log, "appendonlydir")], &["--appendonly", "yes"]);
    assert_all_same(&before, &everything(&copy));
    // A log that a server has open is not cut under it.
    let segment = log.join(newest_segment(&log));
    let end = std::fs::read(&segment).unwrap().iter().rposition(|byte| *byte != 0).unwrap();
    flip(&segment, end - 2);
    let printed = run_to(1, &["check", "--fix", "--yes", text(&log)]);
    assert!(printed.contains(&format!("process {} has the log open", server.pid())), "{printed}");
}

fn newest_segment(log: &Path) -> String {
    let names = std::fs::read_dir(log).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let number = |name: &String| name.strip_prefix("segment-")?.strip_suffix(".log")?.parse::<u64>().ok();
    names.filter(|name| number(name).is_some()).max_by_key(|name| number(name)).unwrap()
}

#[test]
fn a_damaged_base_and_a_damaged_manifest_are_told() {
    let server = Server::with(&["--appendonly", "yes"]);
    make_filters(&mut server.client(), &mut Random::new(5), 20);
    server.client().cmd("BGREWRITEAOF");
    let log = server.dir().join("appendonlydir");
    super::support::wait_until("the base", || json(0, &[text(&log)])[0]["base"].is_object());
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("log");
    copy_folder(&log, &copy);
    let base = json(0, &[text(&copy)])[0]["base"]["path"].as_str().unwrap().to_owned();
    flip(Path::new(&base), 200);
    let printed = run_to(1, &["check", "--fix", "--yes", text(&copy)]);
    assert!(printed.contains(": DAMAGED\n    ") && printed.contains("not mended by cutting"), "{printed}");
    flip(&copy.join("seendb.manifest"), 20);
    let printed = run_to(1, &["check", text(&copy)]);
    assert!(
        printed.contains("seendb.manifest, line ") && printed.contains("--fix makes the manifest again"),
        "{printed}"
    );
    let printed = run_to(0, &["check", "--fix", "--yes", text(&log_copy(&server, folder.path(), true))]);
    assert!(printed.contains("repaired: the manifest was made again from the other files; the damaged one is kept"));
    // One that was begun at run time needs its base even if all its segments are there.
    for value in ["no", "yes"] {
        assert!(server.client().cmd(&format!("CONFIG SET appendonly {value}")) == "OK");
    }
    let printed = run_to(1, &["check", "--fix", "--yes", text(&log_copy(&server, folder.path(), false))]);
    assert!(printed.contains("nothing was changed: the manifest cannot be made again: no base is there"), "{printed}");
    drop(server);
}

/// A copy of a server's log with a damaged manifest, and maybe without its base.
fn log_copy(server: &Server, folder: &Path, with_base: bool) -> std::path::PathBuf {
    let copy = folder.join(format!("log with a base {with_base}"));
    copy_folder(&server.dir().join("appendonlydir"), &copy);
    if !with_base {
        let names = std::fs::read_dir(&copy).unwrap().map(|entry| entry.unwrap().path());
        let bases = names.filter(|path| text(path).contains("base-"));
        bases.for_each(|path| std::fs::remove_file(path).unwrap());
    }
    flip(&copy.join("seendb.manifest"), 20);
    copy
}

/// It is not read, so what is in it is not passed over in silence.
#[test]
fn the_log_of_a_redis_is_named() {
    let server = Server::start();
    server.client().cmd("BF.ADD k item");
    let saved = saved(&server);
    for log in ["appendonly.aof", "appendonlydir/appendonly.aof.1.incr.aof"] {
        for with_snapshot in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let (path, out) = (folder.path().join(log), folder.path().join("out.rdb"));
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, "*2\r\n").unwrap();
            if with_snapshot {
                std::fs::copy(&saved, folder.path().join("dump.rdb")).unwrap();
            }
            let printed = run_to(1, &["check", text(folder.path())]);
            assert!(printed.contains(": not read\n") && !printed.contains("DAMAGED"), "{printed}");
            assert!(printed.contains("is the append-only log of a Redis, which is not read"), "{printed}");
            assert_eq!(printed.contains("dump.rdb: sound"), with_snapshot, "{printed}");
            let found = json(1, &["--fix", "--yes", text(folder.path())]);
            assert_eq!(found.as_array().unwrap().last().unwrap()["kind"], "log of a Redis");
            let refused = run_to(1, &["export", "--families", "bf", text(&out), "--dir", text(folder.path())]);
            assert!(
                refused.contains("is the append-only log of a Redis") && refused.contains("seendb import"),
                "{refused}"
            );
            assert!(!out.exists());
        }
    }
    // Of one that was moved away nothing is said.
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(&saved, folder.path().join("dump.rdb")).unwrap();
    std::fs::write(folder.path().join("appendonly.aof.old"), "*2\r\n").unwrap();
    run_to(0, &["check", text(folder.path())]);
}

/// Also where a disk is full: nothing has to be written for it.
#[test]
fn a_sound_log_gives_back_the_room_that_it_has_reserved() {
    let (server, folder) = log_of(20);
    let (log, copy) = (server.dir().join("appendonlydir"), folder.path().join("appendonlydir"));
    let length = |log: &Path| std::fs::metadata(log.join("segment-1.log")).unwrap().len();
    let before = length(&log);
    assert!(before > 1 << 20);
    // A server that runs keeps it.
    assert!(!run_to(0, &["check", "--fix", text(&log)]).contains("given back"));
    assert_eq!(length(&log), before);
    let printed = run_to(0, &["check", "--fix", text(&copy)]);
    assert!(printed.contains("room that was reserved and not used is given back: "), "{printed}");
    let after = length(&copy);
    assert!(after < 10_000, "{after} bytes");
    let found = &json(0, &["--fix", text(&copy)])[0];
    assert_eq!((&found["sound"], &found["given_back"]), (&true.into(), &serde_json::Value::Null));
    assert_eq!(found["position"], json(0, &[text(&log)])[0]["position"]);
}

#[test]
fn what_is_no_file_of_ours_is_not_called_damaged() {
    let folder = tempfile::tempdir().unwrap();
    let (missing, foreign) = (folder.path().join("nosuch"), folder.path().join("foreign"));
    std::fs::write(&foreign, "root:x:0:0:root:/root:/bin/bash\n".repeat(40)).unwrap();
    let printed = run_to(1, &["check", text(&missing), text(&foreign), text(folder.path())]);
    assert!(printed.contains("nosuch: cannot be read\n  No such file"), "{printed}");
    assert!(printed.contains("foreign: not one of ours\n") && !printed.contains("DAMAGED"), "{printed}");
    let printed = run_to(2, &["chek", text(&foreign)]);
    assert!(printed.contains("'chek': 'check' may be meant"), "{printed}");
}
