//! What stays: snapshots, the log, and starts from damaged ones.

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};

use crate::lasting::{Place, Process, Refused};
use crate::support::chunks::{Chunk, chunks, load};
use crate::support::{Client, Random, Value, wait_until};
use crate::{many, yes};

/// A field of `INFO`.
#[track_caller]
fn info(client: &mut Client, field: &str) -> String {
    let text = client.cmd("INFO").text();
    let value = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    value.unwrap_or_else(|| panic!("no {field} in {text}")).to_string()
}

#[track_caller]
fn number(client: &mut Client, field: &str) -> u64 {
    info(client, field).parse().expect("a number")
}

/// `BGSAVE`, or `BGREWRITEAOF`, and wait for its end.
#[track_caller]
pub fn in_background(client: &mut Client, command: &str) {
    assert!(matches!(client.cmd(command), Value::Simple(_)), "{command} begins");
    let field = if command.starts_with("BGSAVE") { "rdb_bgsave_in_progress" } else { "aof_rewrite_in_progress" };
    wait_until(command, || info(client, field) == "0");
}

/// Names that begin so in the folder.
fn names(folder: &Path, prefix: &str) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").file_name());
    entries.filter_map(|name| name.into_string().ok()).filter(|name| name.starts_with(prefix)).collect()
}

/// Fails unless the start was refused with one line that holds these words.
#[track_caller]
fn refused(refused: &Refused, words: &[&str]) {
    let Refused { status, said } = refused;
    assert_eq!(status.code(), Some(1), "{said}");
    let lines: Vec<&str> = said.lines().filter(|line| line.starts_with("seendb: ")).collect();
    assert!(lines.len() == 1 && !said.contains("panicked"), "one line: {said}");
    words.iter().for_each(|word| assert!(lines[0].contains(word), "no {word:?} in {said}"));
}

// Snapshots

#[test]
fn c068_a_save_after_many_loads() {
    const FILTERS: usize = 2000;
    let place = Place::new(&["--save", ""]);
    let server = place.start();
    let mut client = server.client();
    for n in 0..FILTERS {
        // Of several sizes, some grown.
        let capacity = [10, 100, 1000][n % 3];
        client.cmd(&format!("BF.RESERVE from 0.001 {capacity}"));
        many(&mut client, "BF.MADD", "from", n..n + 30);
        let (mut iterator, mut pieces) = (0, 0);
        loop {
            let reply = client.cmd(&format!("BF.SCANDUMP from {iterator}"));
            iterator = reply.array()[0].int();
            if iterator == 0 || (n % 10 == 0 && pieces == 1) {
                break;
            }
            let (key, at) = (format!("to:{n}"), iterator.to_string());
            let words: [&[u8]; 4] = [b"BF.LOADCHUNK", key.as_bytes(), at.as_bytes(), reply.array()[1].bulk()];
            assert!(client.call(&words) == "OK");
            pieces += 1;
        }
        client.cmd("DEL from");
    }
    in_background(&mut client, "BGSAVE");
    assert_eq!(info(&mut client, "rdb_last_bgsave_status"), "ok");
    server.kill();
    let server = place.start();
    let mut client = server.client();
    assert_eq!(client.cmd("DBSIZE"), Value::Int(FILTERS as i64));
    for n in (0..FILTERS).filter(|n| n % 10 != 0) {
        assert_eq!(yes(&many(&mut client, "BF.MEXISTS", &format!("to:{n}"), n..n + 30)), 30, "to:{n}");
        let card = client.cmd(&format!("BF.CARD to:{n}")).int();
        assert!((28..=30).contains(&card), "to:{n} counts {card} items");
    }
}

/// A snapshot with small and large filters; what is in it.
fn sample(place: &Place) -> (PathBuf, Vec<u8>) {
    let server = place.start();
    let mut client = server.client();
    for n in 0..40 {
        many(&mut client, "BF.MADD", &format!("small:{n}"), n..n + 20);
    }
    for n in 0..4 {
        assert!(client.cmd(&format!("BF.RESERVE large:{n} 0.01 {}", 100_000 * (n + 1))) == "OK");
        many(&mut client, "BF.MADD", &format!("large:{n}"), 0..1000);
    }
    client.cmd("EXPIRE small:7 10000");
    assert!(client.cmd("SAVE") == "OK");
    server.kill();
    let file = place.dir().join("dump.rdb");
    let bytes = std::fs::read(&file).expect("the snapshot");
    (file, bytes)
}

/// How many keys of the sample are there; each that is has all its items.
#[track_caller]
fn sound_keys(client: &mut Client) -> usize {
    let (mut small, mut large) = (0, 0);
    for n in 0..40 {
        let found = yes(&many(client, "BF.MEXISTS", &format!("small:{n}"), n..n + 20));
        assert!(found == 0 || found == 20, "small:{n} has {found} items");
        small += found / 20;
    }
    for n in 0..4 {
        let found = yes(&many(client, "BF.MEXISTS", &format!("large:{n}"), 0..1000));
        assert!(found == 0 || found == 1000, "large:{n} has {found} items");
        large += found / 1000;
    }
    assert_eq!(client.cmd("DBSIZE"), Value::Int((small + large) as i64), "no key but those");
    small + large
}

#[test]
fn c069_damaged_snapshots() {
    let place = Place::new(&["--save", ""]);
    let (file, whole) = sample(&place);
    let mut random = Random::new(69);
    let cuts = (0..10).map(|n| whole[..random.below(whole.len() / 10) + n * whole.len() / 10].to_vec());
    let mut damaged: Vec<Vec<u8>> = cuts.collect();
    for n in 0..50 {
        let mut bytes = whole.clone();
        // Half of them where most of the structure is.
        let at = if n % 2 == 0 { random.below(bytes.len()) } else { random.below(8000) };
        bytes[at] ^= 1 << random.below(8);
        damaged.push(bytes);
    }
    let (mut kept, path) = (0, file.to_str().expect("a path"));
    for (n, bytes) in damaged.iter().enumerate() {
        std::fs::write(&file, bytes).expect("a file");
        let start = place.refused(&[]);
        refused(&start, &[path]);
        assert!(start.said.contains("offset ") || start.said.contains(": bytes "), "where it is: {}", start.said);
        assert!(std::fs::read(&file).expect("the file") == *bytes, "{n}: the file was changed");
        let server = place.start_with(&["--load-damaged", "yes"]);
        assert!(server.said().contains("damaged"), "{n}: it does not say what was dropped: {}", server.said());
        kept += sound_keys(&mut server.client());
        server.kill();
        assert!(std::fs::read(&file).expect("the file") == *bytes, "{n}: the file was changed");
    }
    let least = damaged.len() * 44 / 3;
    assert!(kept > least, "{kept} of {} keys were kept", damaged.len() * 44);
    std::fs::write(&file, &whole).expect("a file");
    let server = place.start();
    assert_eq!(sound_keys(&mut server.client()), 44);
}

/// How large a file of that process may become from now on.
fn limit_files(server: &Process, bytes: u64) {
    let (mut limit, pid) = (libc::rlimit { rlim_cur: 0, rlim_max: 0 }, server.pid() as libc::pid_t);
    // SAFETY: the calls read and fill in the structure they are given.
    let done = unsafe {
        let asked = libc::prlimit(pid, libc::RLIMIT_FSIZE, std::ptr::null(), &raw mut limit);
        limit.rlim_cur = bytes;
        asked + libc::prlimit(pid, libc::RLIMIT_FSIZE, &raw const limit, std::ptr::null_mut())
    };
    assert_eq!(done, 0, "the limit can be set");
}

/// The system refuses what a full disk would: files that become too large.
#[test]
fn c077_no_room_for_a_snapshot() {
    let place = Place::new(&["--save", "3600 1000000"]);
    let server = place.start_command(|command| {
        // SAFETY: between fork and exec only a system call is made.
        unsafe {
            command.pre_exec(|| {
                libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
                Ok(())
            })
        };
    });
    let mut client = server.client();
    many(&mut client, "BF.MADD", "small", 0..50);
    assert!(client.cmd("SAVE") == "OK");
    let file = place.dir().join("dump.rdb");
    let before = std::fs::read(&file).expect("a snapshot");
    assert!(client.cmd("BF.RESERVE large 0.01 3000000") == "OK");
    many(&mut client, "BF.MADD", "large", 0..1000);

    limit_files(&server, 1 << 20);
    snapshots_fail(&mut client, &file, &before);
    limit_files(&server, libc::RLIM_INFINITY);
    assert!(client.cmd("SAVE") == "OK");
    assert_eq!(info(&mut client, "rdb_last_bgsave_status"), "ok");
    assert!(client.cmd("BF.ADD small again") == 1, "changes are taken again");
    server.kill();
    let server = place.start();
    assert_eq!(yes(&many(&mut server.client(), "BF.MEXISTS", "large", 0..1000)), 1000);
}

/// `SAVE` and `BGSAVE` fail, and leave all as it was.
#[track_caller]
fn snapshots_fail(client: &mut Client, file: &Path, before: &[u8]) {
    let folder = file.parent().expect("a folder");
    let error = client.cmd("SAVE").error().to_string();
    assert!(error.starts_with("ERR"), "{error}");
    for _ in 0..2 {
        in_background(client, "BGSAVE");
        assert_eq!(info(client, "rdb_last_bgsave_status"), "err");
        assert!(std::fs::read(file).expect("a snapshot") == before, "the earlier snapshot was touched");
        assert_eq!(names(folder, "temp-"), Vec::<String>::new());
    }
    assert!(client.cmd("BF.ADD small x").error().starts_with("MISCONF"), "as with Redis, changes are refused then");
    assert_eq!(yes(&many(client, "BF.MEXISTS", "small", 0..50)), 50);
}

/// The same on a file system that is full, where one can be made: by root.
#[test]
fn c077_a_full_disk() {
    let place = Place::new(&["--save", "3600 1000000"]);
    let path = place.dir().to_str().expect("a path").to_owned();
    let run = |program: &str, args: &[&str]| {
        let output = std::process::Command::new(program).args(args).output();
        output.is_ok_and(|output| output.status.success())
    };
    if !run("mount", &["-t", "tmpfs", "-o", "size=6m", "tmpfs", &path]) {
        println!("no file system of its own can be mounted here");
        return;
    }
    let outcome = std::panic::catch_unwind(|| full_disk(&place));
    assert!(run("umount", &["-l", &path]), "what was mounted can be unmounted");
    outcome.unwrap_or_else(|cause| std::panic::resume_unwind(cause));
}

fn full_disk(place: &Place) {
    let server = place.start();
    let mut client = server.client();
    many(&mut client, "BF.MADD", "small", 0..50);
    assert!(client.cmd("SAVE") == "OK");
    let file = place.dir().join("dump.rdb");
    let before = std::fs::read(&file).expect("a snapshot");
    assert!(client.cmd("BF.RESERVE large 0.01 3000000") == "OK");
    let ballast = place.dir().join("ballast");
    std::fs::write(&ballast, vec![1; 4 << 20]).expect("room for the ballast");
    snapshots_fail(&mut client, &file, &before);
    std::fs::remove_file(&ballast).expect("the ballast");
    assert!(client.cmd("SAVE") == "OK");
    assert_eq!(info(&mut client, "rdb_last_bgsave_status"), "ok");
    server.kill();
    let server = place.start();
    assert_eq!(server.client().cmd("DBSIZE"), Value::Int(2));
}

#[test]
fn c080_a_restart_at_the_memory_limit() {
    let place = Place::new(&["--save", "", "--maxmemory-policy", "noeviction"]);
    let server = place.start();
    let mut client = server.client();
    let limit = (number(&mut client, "used_memory") + (24 << 20)).to_string();
    assert!(client.cmd(&format!("CONFIG SET maxmemory {limit}")) == "OK");
    let (mut keys, mut refused) = (0, 0);
    // The memory of the heap is looked at now and then, so a first refusal is not the last word.
    while refused < 100 && keys < 2000 {
        match client.cmd(&format!("BF.RESERVE k:{keys} 0.01 30000")) {
            Value::Error(text) => {
                assert!(text.starts_with("OOM"), "{text}");
                refused += 1;
            }
            _ => keys += 1,
        }
    }
    assert!(keys > 400 && refused == 100, "{keys} keys");
    assert!(client.cmd("SAVE") == "OK");
    server.kill();
    let server = place.start_with(&["--maxmemory", &limit]);
    let mut client = server.client();
    assert_eq!(client.cmd("DBSIZE"), Value::Int(keys), "all keys are there");
    wait_until(
        "the memory to be counted",
        || matches!(client.cmd("BF.RESERVE more 0.01 300000"), Value::Error(text) if text.starts_with("OOM")),
    );
    assert!(client.cmd("BF.EXISTS k:0 x") == 0 && client.cmd("BF.CARD k:1") == 0);
    for n in 0..keys / 2 {
        assert!(client.cmd(&format!("DEL k:{n}")) == 1);
    }
    wait_until("room", || client.cmd("BF.RESERVE again 0.01 30000") == "OK");
}

#[test]
fn c090_what_was_saved_is_loaded_whatever_the_limit() {
    for appendonly in ["no", "yes"] {
        let place = Place::new(&["--save", "", "--appendonly", appendonly, "--appendfsync", "always"]);
        let server = place.start_with(&["--max-filter-memory", "64mb"]);
        let mut client = server.client();
        assert!(client.cmd("BF.RESERVE k 0.01 5000000") == "OK");
        assert!(client.cmd("BF.RESERVE j 0.01 1000000 NONSCALING") == "OK");
        assert!(client.cmd("BF.RESERVE l 0.01 3000") == "OK");
        many(&mut client, "BF.MADD", "k", 0..1000);
        many(&mut client, "BF.MADD", "l", 0..2000);
        if appendonly == "no" {
            assert!(client.cmd("SAVE") == "OK");
        }
        server.kill();
        let server = place.start_with(&["--max-filter-memory", "8kb"]);
        let mut client = server.client();
        assert_eq!(client.cmd("DBSIZE"), Value::Int(3));
        assert_eq!(yes(&many(&mut client, "BF.MEXISTS", "k", 0..1000)), 1000);
        // What is there can be used; what would be more is refused by the name of the setting.
        assert!(client.cmd("BF.ADD k new") == 1);
        assert!(client.cmd("BF.RESERVE m 0.01 1000000").error().contains("max-filter-memory"));
        let replies = many(&mut client, "BF.MADD", "l", 2000..4000);
        let Some(Value::Error(text)) = replies.last() else { panic!("it has grown") };
        assert!(text.contains("max-filter-memory"), "{text}");
        assert!(client.cmd("CONFIG SET max-filter-memory 64mb") == "OK");
        many(&mut client, "BF.MADD", "l", 2000..4000);
        assert!(client.cmd("BF.CARD l").int() > 3900);
    }
}

#[test]
fn c101_creating_while_snapshots_run() {
    const SNAPSHOTS: usize = 8;
    let place = Place::new(&["--save", "", "--appendonly", "yes", "--appendfsync", "everysec"]);
    let server = place.start();
    let over = std::sync::atomic::AtomicBool::new(false);
    let port = server.port();
    std::thread::scope(|scope| {
        for id in 0..4 {
            let over = &over;
            scope.spawn(move || {
                let mut client = Client::connect(port).expect("a connection");
                let mut random = Random::new(id);
                while !over.load(std::sync::atomic::Ordering::Relaxed) {
                    let (key, other) = (random.below(10), random.below(10));
                    let capacity = [10, 1000, 20_000, 300_000][random.below(4)];
                    client.cmd(&format!("BF.RESERVE k:{key} 0.01 {capacity}"));
                    many(&mut client, "BF.MADD", &format!("k:{key}"), 0..50);
                    client.cmd(&format!("RENAME k:{key} k:{other}"));
                    if random.percent(50) {
                        client.cmd(&format!("DEL k:{other}"));
                    }
                }
            });
        }
        let outcome = std::panic::catch_unwind(|| {
            let mut client = Client::connect(port).expect("a connection");
            for _ in 0..SNAPSHOTS {
                in_background(&mut client, "BGSAVE");
                in_background(&mut client, "BGREWRITEAOF");
                loads(&place.dir().join("dump.rdb"));
            }
        });
        over.store(true, std::sync::atomic::Ordering::Relaxed);
        outcome.unwrap_or_else(|cause| std::panic::resume_unwind(cause));
    });
    server.kill();
    let server = place.start();
    whole_or_absent(&mut server.client());
}

/// A snapshot loads in a server of its own, and is one of the states that can have been.
fn loads(snapshot: &Path) {
    let second = Place::new(&["--save", ""]);
    std::fs::copy(snapshot, second.dir().join("dump.rdb")).expect("a copy");
    let server = second.start();
    whole_or_absent(&mut server.client());
}

/// One command gave each key its fifty items: a key has none or all.
#[track_caller]
fn whole_or_absent(client: &mut Client) {
    for key in 0..10 {
        let found = yes(&many(client, "BF.MEXISTS", &format!("k:{key}"), 0..50));
        let card = client.cmd(&format!("BF.CARD k:{key}")).int();
        assert!((found == 50 && card >= 45) || (found < 5 && card == 0), "k:{key} has {found} items, counts {card}");
    }
}

// The log

#[test]
fn c072_other_defaults_at_replay() {
    let place = Place::new(&["--save", "", "--appendonly", "yes", "--appendfsync", "always"]);
    let server =
        place.start_with(&["--bf-error-rate", "0.001", "--bf-initial-size", "500", "--bf-expansion-factor", "3"]);
    let mut client = server.client();
    assert!(client.cmd("BF.ADD k a") == 1);
    many(&mut client, "BF.MADD", "grown", 0..1000);
    let before = ["k", "grown"].map(|key| (client.cmd(&format!("BF.INFO {key}")), client.cmd(&format!("DUMP {key}"))));
    server.kill();
    let server =
        place.start_with(&["--bf-error-rate", "0.01", "--bf-initial-size", "100", "--bf-expansion-factor", "2"]);
    let mut client = server.client();
    assert_eq!(client.cmd("BF.INFO k CAPACITY").array()[0], Value::Int(500));
    let after = ["k", "grown"].map(|key| (client.cmd(&format!("BF.INFO {key}")), client.cmd(&format!("DUMP {key}"))));
    assert!(before == after, "{:?} and {:?}", before[0].0, after[0].0);
}

/// A log of adds that were synced one by one, its segment, and where in it the records of the last one begin and end.
fn log_of_adds(place: &Place, count: usize) -> (PathBuf, Vec<u8>, std::ops::Range<usize>) {
    let server = place.start();
    let mut client = server.client();
    (0..count).for_each(|n| assert!(client.cmd(&format!("BF.ADD k item:{n}")) == 1));
    server.kill();
    let file = place.dir().join("appendonlydir/segment-1.log");
    let bytes = std::fs::read(&file).expect("a segment");
    let (mut batches, mut at) = (Vec::new(), 64);
    loop {
        let length = u32::from_le_bytes(bytes[at + 4..at + 8].try_into().expect("four bytes")) as usize;
        if length == 0 {
            break;
        }
        batches.push(at..at + 32 + length);
        at += 32 + length.next_multiple_of(8);
    }
    let last = batches.last().cloned().expect("batches");
    let room = bytes.len().min(last.end + 4096);
    (file, bytes[..room].to_vec(), last)
}

/// The log's folder with another segment in place.
fn copied(place: &Place, segment: &[u8]) -> Place {
    let copy = Place::new(&["--save", "", "--appendonly", "yes", "--appendfsync", "always"]);
    let folder = copy.dir().join("appendonlydir");
    std::fs::create_dir(&folder).expect("a folder");
    for name in names(&place.dir().join("appendonlydir"), "") {
        let from = place.dir().join("appendonlydir").join(&name);
        match &*name {
            "segment-1.log" => std::fs::write(folder.join(&name), segment).expect("a segment"),
            _ => drop(std::fs::copy(from, folder.join(&name)).expect("a copy")),
        }
    }
    copy
}

const ADDS: usize = 30;

#[test]
fn c076_a_log_that_is_cut_off() {
    let place = Place::new(&["--save", "", "--appendonly", "yes", "--appendfsync", "always"]);
    let (_, bytes, last) = log_of_adds(&place, ADDS);
    for cut in last.start..=last.end {
        let copy = copied(&place, &bytes[..cut]);
        let server = copy.start();
        let mut client = server.client();
        let expected = if cut == last.end { ADDS } else { ADDS - 1 };
        assert_eq!(yes(&many(&mut client, "BF.MEXISTS", "k", 0..expected)), expected, "cut at {cut} of {last:?}");
        assert_eq!(client.cmd("BF.CARD k"), Value::Int(expected as i64), "cut at {cut} of {last:?}");
        if last.start < cut && cut < last.end {
            let dropped = format!(": {} bytes; cut off, and kept as '", cut - last.start);
            let said = server.said();
            assert!(said.contains(&format!("torn tail at offset {}", last.start)), "{said}");
            // Zeros at the end may be room that was reserved.
            assert!(said.contains(&dropped) || bytes[cut - 1] == 0, "no {dropped:?}: {said}");
            // What was cut off does not come back.
            assert!(client.cmd("BF.ADD k other") == 1);
            server.kill();
            let server = copy.start();
            let mut client = server.client();
            assert!(client.cmd("BF.CARD k") == expected as i64 + 1 && client.cmd("BF.EXISTS k other") == 1);
        }
    }
}

#[test]
fn c076_garbage_behind_the_log() {
    let place = Place::new(&["--save", "", "--appendonly", "yes", "--appendfsync", "always"]);
    let (_, bytes, last) = log_of_adds(&place, ADDS);
    let mut random = Random::new(76);
    for length in [1, 7, 8, 31, 32, 33, 500, 4000] {
        let mut bytes = bytes.clone();
        let end = last.end.next_multiple_of(8);
        bytes[end..end + length].iter_mut().for_each(|byte| *byte = 1 + random.below(255) as u8);
        let copy = copied(&place, &bytes);
        let strict = copy.refused(&["--aof-load-truncated", "no"]);
        refused(&strict, &["appendonlydir", "segment-1.log", &format!("offset {end}")]);
        let server = copy.start();
        let mut client = server.client();
        assert_eq!(yes(&many(&mut client, "BF.MEXISTS", "k", 0..ADDS)), ADDS);
        assert!(server.said().contains(&format!(": {length} bytes; cut off, and kept as '")), "{}", server.said());
    }
}

#[test]
fn c076_a_byte_flipped_in_the_middle() {
    let place = Place::new(&["--save", "", "--appendonly", "yes", "--appendfsync", "always"]);
    let (_, bytes, last) = log_of_adds(&place, ADDS);
    let mut random = Random::new(7676);
    for _ in 0..20 {
        let mut bytes = bytes.clone();
        // Not in the batch before the last one: the last one tells that it was synced, if it was.
        let at = 64 + random.below(last.start * 2 / 3 - 64);
        let padding = bytes[at] == 0;
        bytes[at] ^= 1 << random.below(8);
        let copy = copied(&place, &bytes);
        let segment = copy.dir().join("appendonlydir/segment-1.log");
        if padding {
            // Bytes that fill up a batch belong to nothing; a start may see that.
            continue;
        }
        refused(&copy.refused(&[]), &["appendonlydir", "segment-1.log", "damage at offset"]);
        assert!(std::fs::read(&segment).expect("a segment") == bytes, "the file was changed");
        loads_what_is_sound(&copy);
    }
}

/// With the option for it the start takes what comes before the damage, keeps the rest beside the log, and goes on.
fn loads_what_is_sound(copy: &Place) {
    let server = copy.start_with(&["--load-damaged", "yes"]);
    let mut client = server.client();
    let count = client.cmd("BF.CARD k").int();
    assert!((0..ADDS as i64).contains(&count), "{count}");
    assert_eq!(yes(&many(&mut client, "BF.MEXISTS", "k", 0..count as usize)), count as usize);
    let said = server.said();
    assert!(said.contains("damaged, loaded up to there") && said.contains(".damaged'"), "{said}");
    assert!(client.cmd("BF.ADD k other") == 1);
    server.kill();
    let server = copy.start();
    let mut client = server.client();
    assert!(client.cmd("BF.CARD k") == count + 1 && client.cmd("BF.EXISTS k other") == 1);
}

#[test]
fn c132_lives_in_the_log() {
    let place = Place::new(&["--save", "", "--appendonly", "yes", "--appendfsync", "always"]);
    let server = place.start();
    let mut client = server.client();
    assert!(client.cmd("BF.RESERVE k 0.01 1000 EX 60") == "OK");
    client.cmd("BF.INSERT j PX 90000 ITEMS a");
    assert!(client.cmd("BF.RESERVE short 0.01 1000 PX 1") == "OK");
    client.cmd("BF.INSERT gone PX 50 ITEMS a");
    client.cmd("BF.INSERT j EX 5 ITEMS b");
    client.cmd("BF.ADD none a");
    let mut lives = BTreeMap::new();
    for key in ["k", "j", "none"] {
        lives.insert(key, client.cmd(&format!("PEXPIRETIME {key}")));
    }
    let end = lives["k"].int();
    server.kill();
    wait_until("lives to end", || {
        let now = std::time::UNIX_EPOCH.elapsed().expect("a clock after 1970").as_millis() as i64;
        now > end - 60_000 + 100
    });
    for _ in 0..2 {
        let server = place.start();
        let mut client = server.client();
        for (key, life) in &lives {
            assert_eq!(client.cmd(&format!("PEXPIRETIME {key}")), *life, "{key}");
        }
        assert_eq!(client.cmd("EXISTS short gone"), Value::Int(0));
        assert!(client.cmd("BF.EXISTS j b") == 1);
        in_background(&mut client, "BGREWRITEAOF");
        server.kill();
    }
}

/// A ring of several chunks, as it is dumped.
fn large_ring(client: &mut Client) -> Vec<Chunk> {
    assert!(client.cmd("CHAIN.RESERVE from 1e-12 120000 LINKS 3") == "OK");
    many(client, "CHAIN.MADD", "from", 0..150_000);
    let dump = chunks(client, "from");
    assert!(dump.len() >= 3 && client.cmd("DEL from") == 1);
    dump
}

/// So many bytes of the key's ring have come.
#[track_caller]
fn loaded_bytes(client: &mut Client, key: &str) -> u64 {
    let reply = client.cmd(&format!("CHAIN.CARD {key}"));
    let text = reply.error().strip_prefix("ERR filter is being loaded: ").and_then(|text| text.split(' ').next());
    text.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{reply:?}"))
}

/// A rewrite of the log, a snapshot or another name do not disturb a load; a restart, whatever it reads, begins it anew.
#[test]
fn the_load_of_a_ring_goes_on() {
    let place = Place::new(&["--save", "", "--appendonly", "yes", "--appendfsync", "always"]);
    let server = place.start();
    let mut client = server.client();
    let dump = large_ring(&mut client);
    assert!(load(&mut client, "k", &dump[0]) == "OK" && client.cmd("PEXPIREAT k 4000000000000") == 1);
    server.kill();
    let server = place.start();
    let mut client = server.client();
    assert!(loaded_bytes(&mut client, "k") == 0);
    for (n, between) in ["BGREWRITEAOF", "BGSAVE"].into_iter().enumerate() {
        assert!(load(&mut client, "k", &dump[1]) == "OK");
        let bytes = loaded_bytes(&mut client, "k");
        in_background(&mut client, between);
        let name = format!("k:{n}");
        assert!(client.cmd(&format!("COPY k {name}")) == 1);
        assert!(bytes > 0 && loaded_bytes(&mut client, "k") == bytes && loaded_bytes(&mut client, &name) == 0);
    }
    assert!(client.cmd("RENAME k renamed") == "OK");
    server.kill();
    // From a base with a load in it, and what came behind.
    let server = place.start();
    let mut client = server.client();
    for key in ["renamed", "k:0", "k:1"] {
        assert!(loaded_bytes(&mut client, key) == 0 && client.cmd(&format!("PEXPIRETIME {key}")) == 4_000_000_000_000);
    }
    assert!(client.cmd("EXISTS k") == 0);
    for chunk in &dump[1..] {
        assert!(load(&mut client, "renamed", chunk) == "OK");
    }
    server.kill();
    // The end of it is in the log, and then in a base.
    for _ in 0..2 {
        let server = place.start();
        let mut client = server.client();
        assert!(chunks(&mut client, "renamed") == dump && client.cmd("PEXPIRETIME renamed") == 4_000_000_000_000);
        assert!(loaded_bytes(&mut client, "k:0") == 0);
        in_background(&mut client, "BGREWRITEAOF");
        server.kill();
    }
    // The snapshot from before.
    std::fs::rename(place.dir().join("appendonlydir"), place.dir().join("away")).expect("the log");
    let server = place.start_with(&["--appendonly", "no"]);
    let mut client = server.client();
    assert!(loaded_bytes(&mut client, "k") == 0 && client.cmd("DBSIZE") == 2);
    for chunk in &dump {
        assert!(load(&mut client, "k", chunk) == "OK");
    }
    assert!(chunks(&mut client, "k") == dump);
}

/// Profiles come back from each file, and are no keys: what empties databases leaves them.
#[test]
fn profiles_of_rings_stay() {
    let place = Place::new(&["--save", "", "--appendonly", "yes", "--appendfsync", "always"]);
    let mut expected = Value::Null;
    for (n, before_the_crash) in ["", "BGREWRITEAOF", "FLUSHALL", "SWAPDB 0 1", "BGSAVE"].into_iter().enumerate() {
        let server = place.start();
        let mut client = server.client();
        assert!(n == 0 || client.cmd("CHAIN.PROFILE LIST") == expected, "{n}");
        assert!(client.cmd(&format!("CHAIN.PROFILE SET p{n}: LINKS {} IDLE {}", 3 + n, 1000 + n)) == "OK");
        assert!(client.cmd(&format!("CHAIN.PROFILE SET last: CAPACITY {} DUAL", 10 + n)) == "OK");
        client.cmd("MULTI");
        client.cmd(&format!("CHAIN.PROFILE SET gone{n}: CLOCK EVENT PWINDOW 60"));
        client.cmd(&format!("CHAIN.ADD gone{n}:k a AT 1000"));
        client.cmd(&format!("CHAIN.PROFILE DEL gone{n}:"));
        assert!(client.cmd("EXEC").array().iter().all(|reply| !matches!(reply, Value::Error(_))));
        match before_the_crash {
            "" => {}
            "BGREWRITEAOF" | "BGSAVE" => in_background(&mut client, before_the_crash),
            line => assert!(client.cmd(line) == "OK"),
        }
        assert!(client.cmd(&format!("CHAIN.ADD p{n}:k a")) == 1 && client.cmd("CHAIN.ADD last:k a").truth());
        expected = client.cmd("CHAIN.PROFILE LIST");
        assert_eq!(expected.array().len(), 2 * (n + 2));
        client.cmd("DEL last:k");
        server.kill();
    }
    let server = place.start();
    let mut client = server.client();
    assert!(client.cmd("CHAIN.PROFILE LIST") == expected && client.cmd("TTL p4:k").int() > 900);
    assert!(*client.cmd("CHAIN.INFO p4:k").field("Number of links") == 7);
    server.kill();
    // And from the snapshot.
    std::fs::rename(place.dir().join("appendonlydir"), place.dir().join("away")).expect("the log");
    let server = place.start_with(&["--appendonly", "no"]);
    assert!(server.client().cmd("CHAIN.PROFILE LIST") == expected);
}

#[test]
fn a_start_without_the_log_does_not_put_it_aside() {
    let place = Place::new(&["--appendfsync", "always"]);
    let logged = ["--appendonly", "yes"];
    let server = place.start_with(&logged);
    assert!(server.client().cmd("BF.ADD k logged") == 1);
    server.kill();
    // The word was forgotten: nothing is changed, and nothing saved.
    let server = place.start();
    assert!(server.said().contains("SHUTDOWN NOSAVE"), "{}", server.said());
    assert!(server.end().success() && !place.dir().join("dump.rdb").exists());
    let server = place.start_with(&logged);
    assert!(server.client().cmd("BF.EXISTS k logged") == 1);
    server.kill();
    // Something is: then there are two histories.
    let server = place.start();
    assert!(server.client().cmd("BF.ADD k unlogged") == 1);
    assert!(server.end().success());
    let start = place.refused(&logged);
    refused(
        &start,
        &["dump.rdb' (1 key, saved 2", "appendonlydir' (begun with no keys, 2 changes since", "To load the log: mv "],
    );
    let command =
        start.said.split("To load the log: ").nth(1).and_then(|rest| rest.split(';').next()).expect("a command");
    assert!(std::process::Command::new("sh").args(["-c", command]).status().expect("a shell").success(), "{command}");
    let server = place.start_with(&logged);
    assert!(server.client().cmd("BF.EXISTS k logged") == 1 && server.client().cmd("BF.EXISTS k unlogged") == 0);
    assert_eq!(names(place.dir(), "dump.rdb.aside-").len(), 1);
}

#[test]
fn a_folder_of_the_log_that_is_moved_away_is_missed() {
    let place = Place::new(&["--save", "", "--appendonly", "yes", "--appendfsync", "always"]);
    let server = place.start();
    let mut client = server.client();
    assert!(client.cmd("BF.ADD k before") == 1);
    std::fs::rename(place.dir().join("appendonlydir"), place.dir().join("away")).expect("the folder is there");
    wait_until("a new base", || {
        info(&mut client, "aof_rewrites") == "1" && info(&mut client, "aof_last_write_status") == "ok"
    });
    assert!(server.said().contains("was removed or moved away"), "{}", server.said());
    assert!(client.cmd("BF.ADD k after") == 1);
    server.kill();
    let server = place.start();
    let mut client = server.client();
    assert!(client.cmd("BF.EXISTS k before") == 1 && client.cmd("BF.EXISTS k after") == 1);
}
