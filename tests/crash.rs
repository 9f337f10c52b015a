//! What a server has promised holds after `kill -9`.
//!
//! Four clients work under `appendfsync always`: each on two databases of its own, on filters that all of them add to, and on
//! keys that all of them change as they like. Beside them run snapshots, rewrites of the log, and its switch. At a random
//! moment the process is killed; the next one in the same folder must have
//!
//! * for each client the state after some first part of its changes, whole to the last key, item, count and life: no command
//!   and no transaction torn, on its own keys and on the shared ones alike;
//! * in that part every change that was confirmed to it, and every one that *another* client was shown before the crash;
//! * shared filters that count exactly the items that are found in them.
//!
//! A process that is killed leaves what it has written to the system, synced or not. So in half of the folders a library
//! stands between the server and the system, with which all that is not synced is lost, or all but some, or the front of
//! some: as at a power loss.
//!
//! While the log was switched off, only what was before must be there; from the reply to switching it on, everything. Under
//! `everysec` what is older than two seconds must be there.
//!
//! `SEENDB_CRASH_ROUNDS` is the number of rounds (100), `SEENDB_SEED` where they begin; a failure names the seed of its folder.
#![cfg(feature = "server")]

#[path = "crash/actor.rs"]
mod actor;
#[path = "support/lasting.rs"]
mod lasting;
#[path = "crash/model.rs"]
mod model;
#[path = "crash/observe.rs"]
mod observe;
#[path = "crash/requests.rs"]
mod requests;
mod support;
#[path = "crash/world.rs"]
mod world;

use std::io::Read;

use lasting::Place;
use support::wait_until;
use world::{World, power_loss};

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Rounds in folders, ten in each.
fn rounds(count: u64, strict: bool) {
    const ROUNDS_PER_FOLDER: u64 = 10;
    let seed = number("SEENDB_SEED", 1);
    let policy = if strict { "always" } else { "everysec" };
    for folder in 0..count.div_ceil(ROUNDS_PER_FOLDER) {
        let seed = seed + folder;
        let outcome = std::panic::catch_unwind(|| {
            let mut world = World::new(seed, strict);
            for _ in 0..ROUNDS_PER_FOLDER.min(count - folder * ROUNDS_PER_FOLDER) {
                let server = world.start();
                world.work(server);
            }
            world.start().kill();
        });
        if let Err(cause) = outcome {
            eprintln!("{policy}: failed with SEENDB_SEED={seed}, in its first folder");
            std::panic::resume_unwind(cause);
        }
    }
    println!("{policy}: {count} rounds from seed {seed}");
}

#[test]
fn what_was_confirmed_or_seen_holds_after_a_crash() {
    rounds(number("SEENDB_CRASH_ROUNDS", 100), true);
}

#[test]
fn everysec_loses_at_most_the_last_two_seconds() {
    rounds(number("SEENDB_CRASH_ROUNDS", 100) / 25, false);
}

/// Whether the record of the item `written` is in the log's file.
fn has_written(dir: &std::path::Path) -> bool {
    let mut front = [0; 4096];
    let segment = std::fs::File::open(dir.join("appendonlydir/segment-1.log")).expect("a segment");
    (&segment).read_exact(&mut front).expect("room that is reserved");
    front.windows(7).any(|bytes| bytes == b"written")
}

/// Else the other tests would show less than they seem to.
#[test]
fn the_power_loss_loses_what_is_not_synced() {
    for lost in [false, true] {
        let place = Place::new(&["--save", "", "--appendonly", "yes", "--appendfsync", "no"]);
        let server = place.start_command(|command| {
            if lost {
                command.env("LD_PRELOAD", power_loss()).env("SEENDB_TEST_KEPT", "0");
            }
        });
        let mut client = server.client();
        assert!(client.cmd("BF.ADD k synced") == 1 && client.cmd("WAITAOF 1 0 0").array()[0] == 1);
        assert!(client.cmd("BF.ADD k written") == 1);
        wait_until("the write", || match lost {
            true => client.cmd("INFO persistence").text().contains("aof_buffer_length:0"),
            false => has_written(place.dir()),
        });
        server.kill();
        let server = place.start();
        let mut client = server.client();
        assert_eq!(client.cmd("BF.EXISTS k synced").int(), 1);
        assert_eq!(client.cmd("BF.EXISTS k written").int(), i64::from(!lost));
    }
}
