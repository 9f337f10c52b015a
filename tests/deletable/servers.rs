//! Over connections, as clients are.

use crate::FAMILIES;
use crate::support::{Server, encode};

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
