//! What others must not notice: rewrites, flushes, pauses. That nothing fails and nothing is lost is shown here; the times are measured by
//! `scripts/bench durability` on demand, for a busy machine would decide about them.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::lasting::Place;
use crate::many;
use crate::support::Client;

const ALWAYS: [&str; 6] = ["--save", "", "--appendonly", "yes", "--appendfsync", "always"];

/// Lengths of the words in requests, each of which follows its length.
fn word_lengths(mut requests: &[u8]) -> Vec<usize> {
    let mut lengths = Vec::new();
    while let Some(end) = requests.windows(2).position(|bytes| bytes == b"\r\n") {
        let number = std::str::from_utf8(&requests[1..end]).expect("text").parse().expect("a number");
        let is_word = requests[0] == b'$';
        if is_word {
            lengths.push(number);
        }
        requests = &requests[end + 2 + if is_word { number + 2 } else { 0 }..];
    }
    lengths
}

#[test]
fn c071_a_big_filter_is_rewritten() {
    let place = Place::new(&ALWAYS);
    let server = place.start();
    let mut client = server.client();
    // 36 MB: three pieces.
    assert!(client.cmd("BF.RESERVE big 0.01 30000000") == "OK");
    many(&mut client, "BF.MADD", "big", 0..1000);
    super::durability::in_background(&mut client, "BGREWRITEAOF");
    many(&mut client, "BF.MADD", "big", 1000..1100);
    server.kill();
    let printed = Command::new(env!("CARGO_BIN_EXE_seendb"))
        .args(["log", "cat", "--resp"])
        .arg(place.dir().join("appendonlydir"))
        .output()
        .expect("the tool runs");
    assert!(printed.status.success(), "{}", String::from_utf8_lossy(&printed.stderr));
    let lengths = word_lengths(&printed.stdout);
    let longest = lengths.iter().max().copied().expect("words");
    assert!((1 << 20..=16 << 20).contains(&longest), "{longest}");
    assert!(lengths.iter().sum::<usize>() > 35_000_000, "all of the filter");
    let server = place.start();
    assert_eq!(crate::yes(&many(&mut server.client(), "BF.MEXISTS", "big", 0..1100)), 1100);
}

#[test]
fn c106_a_filter_that_rested() {
    for pinned in ["no", "yes"] {
        let place = Place::new(&["--save", "", "--lock-memory", pinned]);
        let server = place.start();
        let mut client = server.client();
        assert!(client.cmd("BF.RESERVE big 0.01 30000000") == "OK");
        many(&mut client, "BF.MADD", "big", 0..2000);
        let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("a status");
        let locked = status.lines().find_map(|line| line.strip_prefix("VmLck:")).expect("a line");
        let locked: u64 = locked.trim().trim_end_matches(" kB").parse().expect("a number");
        assert_eq!(locked > 35 << 10, pinned == "yes", "{locked} kB");
        // Until the buffers of the connection were given back.
        std::thread::sleep(Duration::from_millis(1500));
        for first in (0..2000).step_by(20) {
            assert_eq!(crate::yes(&many(&mut client, "BF.MEXISTS", "big", first..first + 20)), 20);
            many(&mut client, "BF.MADD", "big", first + 10_000..first + 10_020);
        }
    }
}

#[test]
fn c109_a_connection_at_flushes() {
    let place = Place::new(&ALWAYS);
    let server = place.start();
    let (over, port) = (AtomicBool::new(false), server.port());
    let added = std::thread::scope(|scope| {
        let adding = scope.spawn(|| {
            let mut client = Client::connect(port).expect("a connection");
            let mut added = 0;
            while !over.load(Ordering::Relaxed) {
                // An error or the end of the connection would fail here.
                assert!([0, 1].contains(&client.cmd(&format!("BF.ADD k {added}")).int()));
                added += 1;
            }
            added
        });
        let mut client = server.client();
        many(&mut client, "BF.MADD", "other", 0..10_000);
        for _ in 0..10 {
            super::durability::in_background(&mut client, "BGSAVE");
            super::durability::in_background(&mut client, "BGREWRITEAOF");
        }
        over.store(true, Ordering::Relaxed);
        adding.join().expect("no error, no end of the connection")
    });
    server.kill();
    let server = place.start();
    let mut client = server.client();
    assert!(added > 0);
    assert!((0..added).all(|item| client.cmd(&format!("BF.EXISTS k {item}")) == 1), "one of {added} is lost");
}
