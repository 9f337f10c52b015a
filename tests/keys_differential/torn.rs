//! Transactions of many clients at once: none is lost, none is seen half, and none waits for ever (a reply that takes longer than
//! a minute fails the test).
//!
//! A hundred keys are fifty pairs. Every transaction does the same to both keys of a pair, so at every moment they are equal, to
//! the last bit.

use crate::support::{Client, Random, Server, Value, encode};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const PAIRS: usize = 50;
const WORKERS: u64 = 8;

fn names(pair: usize) -> [String; 2] {
    [format!("pair:{pair}:x"), format!("pair:{pair}:y")]
}

/// Sends the commands in one write, as clients do with a transaction, and reads the reply to `EXEC`.
fn transaction(client: &mut Client, commands: &[Vec<String>]) -> Value {
    let mut request = encode(&["MULTI"]);
    commands.iter().for_each(|command| request.extend(encode(command)));
    request.extend(encode(&["EXEC"]));
    client.send(&request);
    assert!(client.read() == "OK");
    commands.iter().for_each(|command| assert!(client.read() == "QUEUED", "{command:?}"));
    client.read()
}

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(String::from).collect()
}

/// What the workers have done.
#[derive(Default)]
struct Done {
    executed: AtomicU64,
    given_up: AtomicU64,
    /// Items that were told to be new, of both keys.
    added: AtomicU64,
}

/// Reads how many items both keys of a pair have, and adds one to both if nobody was faster.
fn add_watched(client: &mut Client, pair: usize, item: &str, done: &Done) {
    let [x, y] = names(pair);
    assert!(client.cmd(&format!("WATCH {x} {y}")) == "OK");
    let counts = [&x, &y].map(|key| client.cmd(&format!("BF.CARD {key}")).int());
    let adds = [&x, &y].map(|key| words(&format!("BF.ADD {key} {item}")));
    match transaction(client, &adds) {
        Value::Null => done.given_up.fetch_add(1, Ordering::Relaxed),
        Value::Array(replies) => {
            // Nothing came between the reading and now: so what was read was of one moment.
            assert_eq!(counts[0], counts[1], "{x} and {y} as read before {replies:?}");
            assert!(replies.len() == 2 && replies[0] == replies[1], "{replies:?}");
            done.added.fetch_add(2 * replies[0].int() as u64, Ordering::Relaxed);
            done.executed.fetch_add(1, Ordering::Relaxed)
        }
        other => panic!("EXEC answered {other:?}"),
    };
}

/// Adds many items to both keys: the transaction takes its keys out of their tables.
fn add_many(client: &mut Client, pair: usize, from: u64, done: &Done) {
    let [x, y] = names(pair);
    let mut commands = [&x, &y].map(|key| words(&format!("BF.MADD {key}")));
    for command in &mut commands {
        command.extend((from..from + 3000).map(|n| format!("many:{n}")));
    }
    let [x, y] = [&x, &y].map(|key| words(&format!("BF.CARD {key}")));
    let reply = transaction(client, &[commands[0].clone(), x, commands[1].clone(), y]);
    let replies = reply.array();
    assert!(replies[0] == replies[2] && replies[1] == replies[3], "both keys answer alike");
    let new = replies[0].array().iter().filter(|reply| **reply == 1).count() as u64;
    done.added.fetch_add(2 * new, Ordering::Relaxed);
    done.executed.fetch_add(1, Ordering::Relaxed);
}

/// Reads many pairs at one moment.
fn read_pairs(client: &mut Client, pairs: impl Iterator<Item = usize>, whole: bool) {
    let mut commands: Vec<Vec<String>> = Vec::new();
    for pair in pairs {
        commands.extend(names(pair).map(|key| words(&format!("BF.CARD {key}"))));
    }
    let cards = commands.len();
    if whole {
        commands.extend([words("KEYS pair:*"), words("DBSIZE")]);
    }
    let reply = transaction(client, &commands);
    let replies = reply.array();
    for (pair, command) in replies[..cards].chunks(2).zip(commands.chunks(2)) {
        assert_eq!(pair[0], pair[1], "{command:?}");
    }
    if whole {
        let keys = replies[cards].array();
        assert!(keys.len() as i64 == replies[cards + 1].int() && keys.len().is_multiple_of(2), "a pair is seen half");
    }
}

fn work(client: &mut Client, worker: u64, rounds: u64, done: &Done) {
    let mut random = Random::new(worker);
    for round in 0..rounds {
        // Some pairs are more wanted than others, so that clients meet.
        let pair = if random.percent(60) { random.below(4) } else { random.below(PAIRS) };
        match random.below(100) {
            0..=79 => add_watched(client, pair, &format!("{worker}:{round}"), done),
            80..=81 => add_many(client, pair, worker * 1_000_000 + round * 3000, done),
            82..=93 => read_pairs(client, [pair, random.below(PAIRS)].into_iter(), false),
            94..=95 => read_pairs(client, 0..PAIRS, true),
            _ => {
                // All pairs, renamed away and back at one moment.
                let [x, y] = names(pair);
                let make = [&x, &y].map(|key| words(&format!("BF.ADD {key} made")));
                let [there, back] =
                    [(&*x, "away"), ("away", &*x)].map(|(from, to)| words(&format!("RENAME {from} {to}")));
                let reply = transaction(client, &[make[0].clone(), make[1].clone(), there, back]);
                let replies = reply.array();
                assert!(replies[0] == replies[1] && replies[2] == "OK" && replies[3] == "OK", "{replies:?}");
                done.added.fetch_add(2 * replies[0].int() as u64, Ordering::Relaxed);
            }
        }
    }
}

/// Runs eight workers, and beside them commands on all keys until the workers are done.
fn run(server: &Server, rounds: u64, beside: &[&str]) -> Done {
    let (done, over) = (Done::default(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for line in beside {
            let over = &over;
            scope.spawn(move || {
                let mut client = server.client();
                while !over.load(Ordering::Relaxed) {
                    let reply = client.cmd(line);
                    assert!(!matches!(reply, Value::Error(_)), "{line}: {reply:?}");
                    // The workers are to get on: they have to begin anew whenever all their keys are swapped.
                    std::thread::sleep(std::time::Duration::from_millis(2));
                }
            });
        }
        let workers: Vec<_> = (0..WORKERS)
            .map(|worker| {
                let done = &done;
                scope.spawn(move || work(&mut server.client(), worker, rounds, done))
            })
            .collect();
        let results: Vec<_> = workers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        over.store(true, Ordering::Relaxed);
        results.into_iter().for_each(|result| result.unwrap_or_else(|cause| std::panic::resume_unwind(cause)));
    });
    println!(
        "transactions: {} done, {} given up",
        done.executed.load(Ordering::Relaxed),
        done.given_up.load(Ordering::Relaxed)
    );
    done
}

/// The items in all filters of the first two databases; fails unless the keys of each pair have the same bits.
fn count_and_compare(server: &Server) -> u64 {
    let mut client = server.client();
    let mut items = 0;
    for db in ["SELECT 0", "SELECT 1"] {
        client.cmd(db);
        for pair in 0..PAIRS {
            let [x, y] = names(pair).map(|key| {
                items += client.cmd(&format!("BF.CARD {key}")).int() as u64;
                client.cmd(&format!("DUMP {key}"))
            });
            assert_eq!(x, y, "the keys of pair {pair} differ");
        }
    }
    items
}

#[test]
fn no_transaction_is_lost_or_seen_half() {
    let server = Server::start();
    let done = run(&server, 1500, &["DBSIZE", "KEYS *", "SCAN 0 COUNT 100", "RANDOMKEY"]);
    assert_eq!(count_and_compare(&server), done.added.into_inner(), "items of transactions that were done");
    assert!(done.given_up.into_inner() > 100, "clients hardly met");
}

#[test]
fn nor_while_databases_are_swapped() {
    let server = Server::start();
    let done = run(&server, 800, &["DBSIZE", "SWAPDB 0 1", "KEYS *"]);
    assert_eq!(count_and_compare(&server), done.added.into_inner(), "items of transactions that were done");
}

#[test]
fn nor_while_databases_are_emptied() {
    let server = Server::start();
    run(&server, 800, &["FLUSHDB", "SWAPDB 0 1", "FLUSHALL ASYNC", "SCAN 0"]);
    count_and_compare(&server);
}

/// Clients that send a long transaction and leave before the reply, some of them before the server can have begun.
#[test]
fn nor_when_its_client_leaves() {
    let server = Server::start();
    for round in 0..300_u64 {
        let [x, y] = names((round % 5) as usize);
        let mut request = encode(&["MULTI"]);
        for key in [&x, &y] {
            let mut add = words(&format!("BF.MADD {key}"));
            add.extend((0..3000).map(|n| format!("{round}:{n}")));
            request.extend(encode(&add));
        }
        request.extend(encode(&["EXEC"]));
        let mut client = server.client();
        client.send(&request);
        if round % 3 == 0 {
            assert!(client.read() == "OK");
        }
    }
    // Whoever comes after them waits for their keys.
    let mut client = server.client();
    for pair in 0..5 {
        read_pairs(&mut client, [pair].into_iter(), true);
    }
    let items = count_and_compare(&server);
    assert!(items > 0, "none of them was done");
}

/// Two clients each see that neither of two keys is there, and each makes one of them: only one may be allowed to. Neither
/// transaction uses the key that the other one changes, it only watches it.
#[test]
fn a_watched_key_counts_although_the_transaction_does_not_use_it() {
    const ROUNDS: usize = 3000;
    let server = Server::start();
    let barrier = std::sync::Barrier::new(2);
    let made: Vec<Vec<bool>> = std::thread::scope(|scope| {
        let workers = [0, 1].map(|own| {
            let (server, barrier) = (&server, &barrier);
            scope.spawn(move || {
                let mut client = server.client();
                (0..ROUNDS).map(|round| (barrier.wait(), make_unless_there(&mut client, round, own)).1).collect()
            })
        });
        workers.map(|worker| worker.join().expect("a worker")).into()
    });
    let both = (0..ROUNDS).filter(|round| made[0][*round] && made[1][*round]).count();
    assert_eq!(both, 0, "rounds of {ROUNDS} in which both made their key");
}

/// Makes one of two keys if neither is there; whether it was made.
fn make_unless_there(client: &mut Client, round: usize, own: usize) -> bool {
    let keys = [0, 1].map(|side| format!("skew:{round}:{side}"));
    client.cmd(&format!("WATCH {} {}", keys[0], keys[1]));
    if client.cmd(&format!("EXISTS {} {}", keys[0], keys[1])) != 0 {
        assert!(client.cmd("UNWATCH") == "OK");
        return false;
    }
    let mut add = words(&format!("BF.MADD {} item", keys[own]));
    // Every fourth transaction is a long one, which takes its keys out of their tables.
    add.extend((0..if round.is_multiple_of(4) { 5000 } else { 0 }).map(|n| n.to_string()));
    transaction(client, &[add]) != Value::Null
}
