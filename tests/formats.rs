//! What former releases have written is loaded, with the same answers: see `tests/formats/README.md`.
#![cfg(feature = "server")]

#[path = "support/lasting.rs"]
mod lasting;
mod support;

use std::path::{Path, PathBuf};

use lasting::Place;
use support::rings::chunks;
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

/// What comes of a file of a release.
fn bytes_of(release: &Path, key: &str, form: &str) -> Vec<u8> {
    std::fs::read(release.join(format!("rings/{key}.{form}"))).expect("a file of the release")
}

/// The chunks in a file, each with its cursor.
fn chunks_of(release: &Path, key: &str) -> Vec<(i64, Vec<u8>)> {
    let (file, mut chunks) = (bytes_of(release, key, "chunks"), Vec::new());
    let mut rest = &file[..];
    while let Some((cursor, behind)) = rest.split_first_chunk() {
        let (length, behind) = behind.split_first_chunk().expect("a length");
        let (data, behind) = behind.split_at(u32::from_le_bytes(*length) as usize);
        chunks.push((i64::from_le_bytes(*cursor), data.to_vec()));
        rest = behind;
    }
    chunks
}

fn check_ring(client: &mut Client, release: &Path, key: &str) {
    assert_eq!(client.cmd(&format!("DUMP {key}")).bulk(), bytes_of(release, key, "dump"), "{key}: the payload");
    assert_eq!(
        client.cmd(&format!("CHAIN.EXPORT {key}")).bulk(),
        bytes_of(release, key, "export"),
        "{key}: the export"
    );
    assert!(chunks(client, key) == chunks_of(release, key), "{key}: the dump");
}

fn check_rings(client: &mut Client, release: &Path) {
    RINGS.iter().for_each(|key| check_ring(client, release, key));
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
    for release in releases() {
        let place = place_with(&release.join("rings/dump.rdb"), &["--save", ""]);
        check_rings(&mut place.start().client(), &release);
        let args = ["--save", "", "--appendonly", "yes", "--appendfsync", "always"];
        let place = place_with(&release.join("rings/appendonlydir"), &args);
        let server = place.start();
        let mut client = server.client();
        check_rings(&mut client, &release);
        for chunk in &chunks_of(&release, "large")[1..] {
            load(&mut client, "half", chunk);
        }
        server.kill();
        let server = place.start();
        assert!(chunks(&mut server.client(), "half") == chunks_of(&release, "large"));
    }
}

fn load(client: &mut Client, key: &str, (cursor, data): &(i64, Vec<u8>)) {
    let words = [b"CHAIN.LOADCHUNK", key.as_bytes(), &cursor.to_string().into_bytes(), data];
    assert!(client.call(&words) == "OK", "{key}");
}

#[test]
fn rings_of_all_releases_are_restored_from_each_form() {
    for release in releases() {
        let place = Place::new(&["--save", ""]);
        let server = place.start();
        let mut client = server.client();
        for key in RINGS {
            let payload = bytes_of(&release, key, "dump");
            assert!(client.call(&[b"RESTORE", key.as_bytes(), b"0", &payload]) == "OK", "{key}");
            check_ring(&mut client, &release, key);
            client.cmd(&format!("DEL {key}"));
            chunks_of(&release, key).iter().for_each(|chunk| load(&mut client, key, chunk));
            check_ring(&mut client, &release, key);
        }
    }
}
