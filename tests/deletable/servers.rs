//! Over connections, as clients are.

use crate::FAMILIES;
use crate::lasting::Place;
use crate::support::{Client, Server, Value, encode, wait_until};
use crate::world::{with_items, yes};

/// Runs of pipelined commands answer as single ones do.
#[test]
fn pipelines() {
    let server = Server::with(&["--threads", "2"]);
    for family in FAMILIES {
        for capacity in [100, 1_000_000] {
            let mut client = server.client();
            let key = format!("{family}:{capacity}");
            client.cmd(&format!("{family}.RESERVE {key} 0.000001 {capacity}"));
            let mut all = |verb: &str, from: usize| {
                let verb = format!("{family}.{verb}");
                let request = (from..from + 90).flat_map(|n| encode(&[&verb, &key, &format!("item:{n}")]));
                client.send(&request.collect::<Vec<_>>());
                (0..90).map(|_| client.read().int()).sum::<i64>()
            };
            assert_eq!((all("EXISTS", 0), all("DEL", 0)), (0, 0));
            assert_eq!((all("ADD", 0), all("ADD", 0)), (90, 0));
            assert_eq!((all("EXISTS", 0), all("EXISTS", 45), all("COUNT", 0)), (90, 45, 180));
            assert_eq!((all("DEL", 0), all("DEL", 0), all("DEL", 0), all("EXISTS", 0)), (90, 90, 0, 0));
        }
    }
}

/// A pipeline on a missing key makes it; with the setting against it every command is refused.
#[test]
fn pipelines_on_missing_keys() {
    let server = Server::start();
    let mut client = server.client();
    for family in FAMILIES {
        let mut send = |verb: &str, key: &str| {
            let request = (0..20).flat_map(|n| encode(&[&format!("{family}.{verb}"), key, &n.to_string()]));
            client.send(&request.collect::<Vec<_>>());
            (0..20).map(|_| client.read()).collect::<Vec<_>>()
        };
        assert!(send("ADD", family).iter().all(|reply| *reply == 1));
        assert!(send("DEL", "missing").iter().all(|reply| *reply == 0));
        assert!(send("EXISTS", "missing").iter().all(|reply| *reply == 0));
        assert!(client.cmd("EXISTS missing") == 0);
        client.cmd("CONFIG SET filter-create-on-add no filter-missing-key error");
        let mut send = |verb: &str| {
            let request = (0..20).flat_map(|n| encode(&[&format!("{family}.{verb}"), "missing", &n.to_string()]));
            client.send(&request.collect::<Vec<_>>());
            (0..20).map(|_| client.read()).collect::<Vec<_>>()
        };
        assert!(send("ADD").iter().all(|reply| reply.error() == "ERR not found"));
        assert!(send("EXISTS").iter().all(|reply| reply.error() == "ERR not found"));
        client.cmd("CONFIG SET filter-create-on-add yes filter-missing-key zero");
    }
}

/// Of four connections that add the same items each is new to one; as many deletions succeed as there were adds.
#[test]
fn four_clients() {
    const ITEMS: usize = 3_000;
    let server = Server::with(&["--threads", "2"]);
    for family in FAMILIES {
        server.client().cmd(&format!("{family}.RESERVE {family} 0.000000001 100000"));
        let together = |verb: &str| -> i64 {
            std::thread::scope(|scope| {
                let threads: Vec<_> = (0..4)
                    .map(|_| {
                        scope.spawn(|| {
                            let mut client = server.client();
                            let verb = format!("{family}.{verb}");
                            let mut sum = 0;
                            for from in (0..ITEMS).step_by(50) {
                                let request = (from..from + 50).flat_map(|n| encode(&[&verb, family, &n.to_string()]));
                                client.send(&request.collect::<Vec<_>>());
                                sum += (0..50).map(|_| client.read().int()).sum::<i64>();
                            }
                            sum
                        })
                    })
                    .collect();
                threads.into_iter().map(|thread| thread.join().expect("a client")).sum()
            })
        };
        assert_eq!(together("ADD"), ITEMS as i64);
        assert_eq!(together("DEL"), 4 * ITEMS as i64);
        assert_eq!(together("EXISTS"), 0);
    }
}

/// Filters of both families, small and large, with deletes, a decay, a merge, growth, a half-loaded one.
fn fill(client: &mut Client) -> Vec<String> {
    let mut keys = Vec::new();
    for (n, reserve) in [
        "CBF.RESERVE {} 0.001 100",
        "CBF.RESERVE {} 0.0001 200000 COUNTERBITS 8 STRICT",
        "DLCBF.RESERVE {} 0.001 100 COUNTERBITS 4",
        "DLCBF.RESERVE {} 0.0001 200000 KEYED",
        "DLCBF.RESERVE {} 0.001 100 EXPANSION 3 OVERFLOW SPILL",
    ]
    .into_iter()
    .enumerate()
    {
        let family = reserve.split('.').next().expect("a word");
        let key = format!("{family}:{n}");
        assert!(client.cmd(&reserve.replace("{}", &key)) == "OK");
        client.call(&with_items(&format!("{family}.MADD {key}"), 0..95));
        client.call(&with_items(&format!("{family}.MADD {key}"), 0..30));
        client.call(&with_items(&format!("{family}.MDEL {key}"), 0..50));
        keys.push(key);
    }
    client.call(&with_items("DLCBF.MADD DLCBF:4", 100..900));
    for line in ["CBF.MERGE CBF:sum CBF:0 CBF:0 FORCE", "CBF.DECAY CBF:sum", "EXPIRE CBF:sum 1000"] {
        assert!(!matches!(client.cmd(line), Value::Error(_)), "{line}");
    }
    keys.push("CBF:sum".into());
    keys
}

fn seen(client: &mut Client, keys: &[String]) -> Vec<(Vec<u8>, Vec<i64>)> {
    let one = |key: &String| {
        let family = key.split(':').next().expect("a word");
        let counts = client.call(&with_items(&format!("{family}.MCOUNT {key}"), 0..1_000));
        (client.cmd(&format!("DUMP {key}")).bulk().to_vec(), crate::numbers(&counts))
    };
    keys.iter().map(one).collect()
}

#[test]
fn all_outlasts_a_restart() {
    // By a snapshot; by the log; by a log with a base; and over a crash.
    for (args, rewrite, crash) in [
        (&["--save", "3600 1"][..], false, false),
        (&["--appendonly", "yes"], false, false),
        (&["--appendonly", "yes"], true, false),
        (&["--appendonly", "yes", "--appendfsync", "always"], false, true),
    ] {
        let place = Place::new(args);
        let server = place.start();
        let mut client = server.client();
        let keys = fill(&mut client);
        if rewrite {
            client.cmd("BGREWRITEAOF");
            wait_until("the rewrite", || client.cmd("INFO persistence").text().contains("aof_rewrite_in_progress:0"));
            client.cmd("CBF.ADD CBF:0 after");
            client.cmd("DLCBF.DEL DLCBF:3 item:60");
        }
        let before = seen(&mut client, &keys);
        drop(client);
        if crash {
            server.kill();
        } else {
            assert!(server.end().success());
        }
        let server = place.start();
        let mut client = server.client();
        let after = seen(&mut client, &keys);
        for ((key, before), after) in keys.iter().zip(&before).zip(&after) {
            assert!(before.1 == after.1, "{key} {args:?}: other counts");
            assert!(before.0 == after.0, "{key} {args:?}: another payload");
        }
        assert!(client.cmd("TTL CBF:sum").int() > 900);
        // Deleting goes on.
        let deleted = client.call(&with_items("DLCBF.MDEL DLCBF:4", 100..900));
        assert!(yes(&deleted) >= 790, "{}", yes(&deleted));
    }
}
