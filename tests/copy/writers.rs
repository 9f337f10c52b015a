//! Sources that change while they are copied.

use super::fake::Between;
use super::support::{Client, Server};
use super::{all_seen, assert_same, copy, copy_all, copy_fails, printed, url};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The source and a proxy before it that lets the filter `k` grow at the pieces whose numbers are given.
fn growing(from: &Server, at: fn(usize) -> bool) -> Between {
    let mut client = from.client();
    let (mut pieces, mut next) = (0, 1000);
    Between::start(from.port(), move |request| {
        if request.windows(11).any(|word| word == b"BF.SCANDUMP") && request.windows(5).any(|word| word == b"\r\nk\r\n")
        {
            pieces += 1;
            if at(pieces) {
                let filters = |client: &mut Client| client.cmd("BF.INFO k").field("Number of filters").int();
                let before = filters(&mut client);
                while filters(&mut client) == before {
                    client.cmd(&format!("BF.ADD k {next}"));
                    next += 1;
                }
            }
        }
        true
    })
}

#[test]
fn growth_during_a_dump_begins_it_again() {
    for from in [Server::peer(), Server::start()] {
        let (mut client, to) = (from.client(), Server::start());
        client.cmd("BF.RESERVE k 0.001 10");
        (0..60).for_each(|i| drop(client.cmd(&format!("BF.ADD k {i}"))));
        let between = growing(&from, |piece| piece == 3);
        copy_all(&url(between.port()), &url(to.port()), &["--pieces-from", "0"]);
        assert_same(&all_seen(&mut client), &all_seen(&mut to.client()));
        let mut target = to.client();
        (0..60).for_each(|i| assert_eq!(target.cmd(&format!("BF.EXISTS k {i}")), 1, "{i}"));
    }
}

#[test]
fn a_filter_that_grows_each_time_is_named_and_left() {
    let (from, to) = (Server::peer(), Server::start());
    let mut client = from.client();
    client.cmd("BF.RESERVE k 0.001 10 EXPANSION 1");
    (0..25).for_each(|i| drop(client.cmd(&format!("BF.ADD k {i}"))));
    let between = growing(&from, |piece| piece % 3 == 0);
    let text = copy_fails(&url(between.port()), &url(to.port()), &["--pieces-from", "0"]);
    assert!(text.contains("failed: 1\n  \"k\": it grew, turned or was replaced during each of 5 tries"), "{text}");
    assert_eq!(to.client().cmd("DBSIZE"), 0);
}

#[test]
fn keys_that_end_meanwhile_are_left_out() {
    for pieces in ["64mb", "0"] {
        let (from, to) = (Server::start(), Server::start());
        let mut client = from.client();
        client.cmd("BF.ADD stays item");
        client.cmd("BF.ADD goes item");
        let mut deleting = from.client();
        // The key goes just before it is asked for.
        let between = Between::start(from.port(), move |request| {
            if request.windows(4).any(|word| word == b"DUMP") && request.windows(4).any(|word| word == b"goes") {
                deleting.cmd("DEL goes");
            }
            true
        });
        let text = copy_all(&url(between.port()), &url(to.port()), &["--pieces-from", pieces]);
        assert!(text.contains("filters copied: 1, ") && text.contains("gone when their turn came: 1\n"), "{text}");
        assert_eq!(to.client().cmd("DBSIZE"), 1);
    }
}

/// Whatever is written meanwhile, what was in before the copy began is in it.
#[test]
fn items_that_were_in_before_are_in_the_copy() {
    const KEYS: usize = 40;
    const ITEMS: usize = 50;
    for pieces in ["64mb", "0"] {
        let (from, to) = (Server::peer(), Server::start());
        let mut client = from.client();
        for key in 0..KEYS {
            client.cmd(&format!("BF.RESERVE k{key} 0.001 20"));
            (0..ITEMS).for_each(|item| drop(client.cmd(&format!("BF.ADD k{key} before{item}"))));
        }
        let stop = Arc::new(AtomicBool::new(false));
        let (mut writer, stopped) = (from.client(), Arc::clone(&stop));
        let writing = std::thread::spawn(move || {
            let mut count = 0;
            while !stopped.load(Ordering::Relaxed) {
                writer.cmd(&format!("BF.ADD k{} during{count}", count % KEYS));
                count += 1;
            }
            count
        });
        let output = copy(&url(from.port()), &url(to.port()), &["--pieces-from", pieces]);
        stop.store(true, Ordering::Relaxed);
        let written = writing.join().expect("the writer ends");
        assert!(output.status.success() && written > 0, "{}", printed(&output));
        let mut target = to.client();
        for key in 0..KEYS {
            for item in 0..ITEMS {
                assert_eq!(target.cmd(&format!("BF.EXISTS k{key} before{item}")), 1, "k{key} before{item}");
            }
        }
    }
}
