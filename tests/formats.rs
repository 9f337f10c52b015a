//! What former releases have written is loaded, with the same answers: see `tests/formats/README.md`.
#![cfg(feature = "server")]

#[path = "support/lasting.rs"]
mod lasting;
mod support;

use std::path::{Path, PathBuf};

use lasting::Place;
use support::chunks::{Chunk, chunks, load_of};
use support::{Client, Value};

fn releases() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/formats");
    let entries = std::fs::read_dir(folder).expect("the folder of formats");
    let releases: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).filter(|path| path.is_dir()).collect();
    assert!(!releases.is_empty());
    releases
}

/// A place with a copy of this file or folder.
fn place_with(path: &Path, args: &[&str]) -> Place {
    let place = Place::new(args);
    copy(path, &place.dir().join(path.file_name().expect("a name")));
    place
}

fn copy(from: &Path, to: &Path) {
    if !from.is_dir() {
        std::fs::copy(from, to).expect("a copy");
        return;
    }
    std::fs::create_dir(to).expect("a folder");
    for entry in std::fs::read_dir(from).expect("a folder") {
        let entry = entry.expect("an entry");
        copy(&entry.path(), &to.join(entry.file_name()));
    }
}

fn has_all(client: &mut Client, key: &str, items: &str) -> bool {
    let answers = client.cmd(&format!("BF.MEXISTS {key} {items}"));
    answers.array().iter().all(|answer| *answer == Value::Int(1))
}

fn check(client: &mut Client) {
    let numbers = (1..=101).map(|n| n.to_string()).collect::<Vec<_>>().join(" ");
    assert!(has_all(client, "plain", "a b c d e f") && client.cmd("BF.CARD plain") == 6);
    assert!(has_all(client, "grown", &numbers) && *client.cmd("BF.INFO grown").field("Number of filters") == 4);
    assert!(has_all(client, "renamed", "x y z") && client.cmd("BF.EXISTS renamed other") == 0);
    assert!(has_all(client, "copied", "a b c d e") && client.cmd("BF.EXISTS copied f") == 0);
    assert_eq!(client.cmd("EXPIRETIME copied"), Value::Int(4_102_444_801));
    assert!(has_all(client, "lasting", "once") && client.cmd("EXPIRETIME lasting") == 4_102_444_800);
    assert!(client.cmd("EXISTS fixed gone") == 0 && client.cmd("DBSIZE") == 5);
    assert!(client.cmd("SELECT 3") == "OK" && has_all(client, "other", "item") && client.cmd("DBSIZE") == 1);
}

#[test]
fn snapshots_of_all_releases_load() {
    for release in releases() {
        let place = place_with(&release.join("dump.rdb"), &["--save", ""]);
        check(&mut place.start().client());
    }
}

#[test]
fn logs_of_all_releases_load_and_go_on() {
    for release in releases() {
        let place = place_with(
            &release.join("appendonlydir"),
            &["--save", "", "--appendonly", "yes", "--appendfsync", "always"],
        );
        let server = place.start();
        check(&mut server.client());
        assert!(server.client().cmd("BF.ADD plain later") == 1);
        server.kill();
        let server = place.start();
        let mut client = server.client();
        assert!(has_all(&mut client, "plain", "a f later") && client.cmd("BF.CARD plain") == 7);
    }
}

#[test]
fn c082_payloads_of_all_releases_are_restored() {
    for release in releases() {
        let place = Place::new(&["--save", ""]);
        let server = place.start();
        let mut client = server.client();
        for (key, items) in [("plain", "a b c d e f"), ("grown", "1 2 60 100 101"), ("renamed", "x y z")] {
            let payload = std::fs::read(release.join(format!("{key}.dump"))).expect("a payload");
            assert!(client.call(&[b"RESTORE", key.as_bytes(), b"0", &payload]) == "OK", "{key}");
            assert!(has_all(&mut client, key, items), "{key}");
            assert_eq!(client.cmd(&format!("DUMP {key}")).bulk(), payload, "{key}: what is written is still the same");
        }
    }
}

/// Rings of all kinds, each with a payload, a dump in chunks and an export: their bytes are still the same.
const RINGS: [&str; 8] = ["count", "dual", "window", "bounded", "keyed", "large", "merged", "cleared"];

/// What comes of a file in a release's folder for some families.
fn bytes_of(folder: &Path, key: &str, form: &str) -> Vec<u8> {
    std::fs::read(folder.join(format!("{key}.{form}"))).expect("a file of the release")
}

/// The chunks in a file, each with its cursor.
fn chunks_of(folder: &Path, key: &str) -> Vec<Chunk> {
    let (file, mut chunks) = (bytes_of(folder, key, "chunks"), Vec::new());
    let mut rest = &file[..];
    while let Some((cursor, behind)) = rest.split_first_chunk() {
        let (length, behind) = behind.split_first_chunk().expect("a length");
        let (data, behind) = behind.split_at(u32::from_le_bytes(*length) as usize);
        chunks.push((i64::from_le_bytes(*cursor), data.to_vec()));
        rest = behind;
    }
    chunks
}

/// Fails unless what is written of the key is still the same, in each of its forms.
fn check_key(client: &mut Client, folder: &Path, family: &str, key: &str) {
    assert_eq!(client.cmd(&format!("DUMP {key}")).bulk(), bytes_of(folder, key, "dump"), "{key}: the payload");
    if family != "DLCBF" {
        let export = client.cmd(&format!("{family}.EXPORT {key}"));
        assert_eq!(export.bulk(), bytes_of(folder, key, "export"), "{key}: the export");
    }
    assert!(chunks(client, key) == chunks_of(folder, key), "{key}: the dump");
}

/// Fails unless it is restored from each form.
fn restore_key(client: &mut Client, folder: &Path, family: &str, key: &str) {
    let payload = bytes_of(folder, key, "dump");
    assert!(client.call(&[b"RESTORE", key.as_bytes(), b"0", &payload]) == "OK", "{key}");
    check_key(client, folder, family, key);
    client.cmd(&format!("DEL {key}"));
    for chunk in &chunks_of(folder, key) {
        assert!(load_of(client, family, key, chunk) == "OK", "{key}");
    }
    check_key(client, folder, family, key);
}

/// The snapshot and the log in this folder load, and the half-loaded keys, by their families, names and the keys they are parts of, can be
/// loaded to their ends.
fn check_files(folder: &Path, check: impl Fn(&mut Client), halves: &[(&str, &str, &str)]) {
    let place = place_with(&folder.join("dump.rdb"), &["--save", ""]);
    check(&mut place.start().client());
    let args = ["--save", "", "--appendonly", "yes", "--appendfsync", "always"];
    let place = place_with(&folder.join("appendonlydir"), &args);
    let server = place.start();
    let mut client = server.client();
    check(&mut client);
    for (family, half, whole) in halves {
        for chunk in &chunks_of(folder, whole)[1..] {
            assert!(load_of(&mut client, family, half, chunk) == "OK", "{half}");
        }
    }
    server.kill();
    let server = place.start();
    for (_, half, whole) in halves {
        assert!(chunks(&mut server.client(), half) == chunks_of(folder, whole), "{half}");
    }
}

fn check_rings(client: &mut Client, folder: &Path) {
    RINGS.iter().for_each(|key| check_key(client, folder, "CHAIN", key));
    let known = |client: &mut Client, key: &str, numbers: std::ops::RangeInclusive<usize>| {
        let numbers = numbers.map(|n| n.to_string()).collect::<Vec<_>>().join(" ");
        let reply = client.cmd(&format!("CHAIN.MEXISTS {key} {numbers}"));
        reply.array().iter().filter(|answer| answer.truth()).count()
    };
    assert!(known(client, "count", 41..=71) == 31 && known(client, "count", 1..=20) == 0);
    assert_eq!((known(client, "window", 1..=53), known(client, "keyed", 1..=20)), (53, 20));
    assert!(client.cmd("CHAIN.EXISTS window new") == 1 && client.cmd("EXPIRETIME keyed") == 4_102_444_800);
    assert!(*client.cmd("CHAIN.INFO keyed").field("Number of links") == 7 && client.cmd("CHAIN.CARD cleared") == 0);
    assert!(client.cmd("CHAIN.INFO half").error().starts_with("ERR filter is being loaded: 0 of "));
    let profiles = client.cmd("CHAIN.PROFILE LIST");
    assert!(profiles.array().len() == 2 && *profiles.field("seen:").field("capacity") == 50);
    assert!(client.cmd("DBSIZE") == RINGS.len() as i64 + 1);
}

#[test]
fn rings_of_all_releases_load() {
    for folder in releases().iter().map(|release| release.join("rings")) {
        check_files(&folder, |client| check_rings(client, &folder), &[("CHAIN", "half", "large")]);
    }
}

#[test]
fn rings_of_all_releases_are_restored_from_each_form() {
    for folder in releases().iter().map(|release| release.join("rings")) {
        let place = Place::new(&["--save", ""]);
        let server = place.start();
        RINGS.iter().for_each(|key| restore_key(&mut server.client(), &folder, "CHAIN", key));
    }
}

/// Filters one can delete from, with their families.
const DELETABLE: [(&str, &[&str]); 2] = [
    ("CBF", &["plain", "wide", "keyed", "large", "decayed", "sum", "emptied"]),
    ("DLCBF", &["small", "four", "grown", "spilled", "big", "cleared"]),
];

fn deletable() -> impl Iterator<Item = (&'static str, &'static str)> {
    DELETABLE.iter().flat_map(|(family, keys)| keys.iter().map(|key| (*family, *key)))
}

/// What these numbers are counted in a key of the family.
fn counts(client: &mut Client, family: &str, key: &str, numbers: std::ops::RangeInclusive<usize>) -> Vec<i64> {
    let numbers = numbers.map(|n| n.to_string()).collect::<Vec<_>>().join(" ");
    let reply = client.cmd(&format!("{family}.MCOUNT {key} {numbers}"));
    reply.array().iter().map(Value::int).collect()
}

fn check_deletable(client: &mut Client, folder: &Path) {
    deletable().for_each(|(family, key)| check_key(client, folder, family, key));
    let mut all = |family: &str, key: &str, numbers: std::ops::RangeInclusive<usize>, times: i64| {
        let found = counts(client, family, key, numbers.clone());
        assert!(found.iter().all(|found| *found == times), "{key}, {numbers:?}: {found:?}, not {times}");
    };
    for (family, key) in [("CBF", "plain"), ("DLCBF", "small")] {
        all(family, key, 1..=20, 2);
        all(family, key, 21..=30, 1);
        all(family, key, 31..=50, 0);
        all(family, key, 51..=60, 1);
    }
    for (family, key, last) in [("CBF", "wide", 39), ("DLCBF", "four", 19)] {
        all(family, key, 1..=1, 2);
        all(family, key, 2..=last, 1);
        all(family, key, last + 1..=last + 1, 0);
    }
    for (family, key) in [("CBF", "large"), ("DLCBF", "big")] {
        all(family, key, 1..=30, 2);
        all(family, key, 31..=300, 1);
        all(family, key, 301..=500, 0);
    }
    all("CBF", "keyed", 1..=20, 1);
    all("CBF", "sum", 1..=20, 2);
    all("CBF", "decayed", 1..=30, 1);
    all("DLCBF", "grown", 1..=10, 0);
    all("DLCBF", "grown", 11..=110, 1);
    all("DLCBF", "spilled", 1..=1, 7);
    all("DLCBF", "spilled", 2..=2, 4);
    all("DLCBF", "spilled", 3..=40, 1);
    for key in ["keyed", "four"] {
        assert!(client.cmd(&format!("EXPIRETIME {key}")) == 4_102_444_800);
    }
    assert!(client.cmd("CBF.CARD emptied") == 0 && client.cmd("DLCBF.CARD cleared") == 0);
    for info in ["CBF.INFO half:large", "DLCBF.INFO half:big"] {
        assert!(client.cmd(info).error().starts_with("ERR filter is being loaded: 0 of "));
    }
    assert!(client.cmd("DBSIZE") == deletable().count() as i64 + 2);
}

#[test]
fn deletable_filters_of_all_releases_load() {
    for folder in releases().iter().map(|release| release.join("deletable")) {
        let halves = [("CBF", "half:large", "large"), ("DLCBF", "half:big", "big")];
        check_files(&folder, |client| check_deletable(client, &folder), &halves);
    }
}

#[test]
fn deletable_filters_of_all_releases_are_restored_from_each_form() {
    for folder in releases().iter().map(|release| release.join("deletable")) {
        let place = Place::new(&["--save", ""]);
        let server = place.start();
        let mut client = server.client();
        for (family, key) in deletable() {
            restore_key(&mut client, &folder, family, key);
        }
        // Deleting goes on.
        assert!(client.cmd("CBF.MDEL plain 1 1 60 1") == Value::Array([1, 1, 1, 0].map(Value::Int).into()));
        assert!(client.cmd("DLCBF.MDEL spilled 2 2 2 2 2") == Value::Array([1, 1, 1, 1, 0].map(Value::Int).into()));
    }
}
