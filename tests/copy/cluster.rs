//! A cluster of three Redis as the target.

use super::fake::fake;
use super::support::{Client, Random, Server, free_port, wait_until};
use super::{Seen, all_seen, assert_same, copy_all, make_random, url};
use std::collections::BTreeMap;

/// Three nodes that serve a third of the slots each.
fn cluster() -> Vec<Server> {
    let nodes: Vec<(Server, u16)> = (0..3)
        .map(|_| {
            let bus = free_port();
            let args = ["--cluster-enabled", "yes", "--cluster-port", &bus.to_string(), "--bind", "127.0.0.1"];
            (Server::peer_with(&args), bus)
        })
        .collect();
    for (number, (node, _)) in nodes.iter().enumerate() {
        let mut client = node.client();
        let (first, last) = (number * 5462, (number * 5462 + 5461).min(16_383));
        assert_eq!(client.cmd(&format!("CLUSTER ADDSLOTSRANGE {first} {last}")), "OK");
        for (other, bus) in &nodes {
            assert_eq!(client.cmd(&format!("CLUSTER MEET 127.0.0.1 {} {bus}", other.port())), "OK");
        }
    }
    let nodes: Vec<_> = nodes.into_iter().map(|(node, _)| node).collect();
    wait_until("the cluster", || {
        nodes.iter().all(|node| {
            let mut client = node.client();
            client.cmd("CLUSTER INFO").text().contains("cluster_state:ok")
                && client.cmd("CLUSTER SLOTS").array().len() == 3
        })
    });
    nodes
}

fn all_of(nodes: &[Server]) -> BTreeMap<Vec<u8>, Seen> {
    nodes.iter().flat_map(|node| all_seen(&mut node.client())).collect()
}

fn filters(client: &mut Client) {
    let random = &mut Random::new(5);
    for number in 0..200 {
        make_random(client, random, number);
    }
    client.cmd("BF.ADD {tag}:a item");
    client.cmd("BF.ADD }odd{ item");
}

#[test]
fn keys_go_to_the_nodes_of_their_slots() {
    let (from, nodes) = (Server::start(), cluster());
    let mut client = from.client();
    filters(&mut client);
    let before = all_seen(&mut client);
    for (more, target) in [(&[][..], 0), (&["--replace", "--pieces-from", "0"], 1), (&["--replace", "--cluster"], 2)] {
        copy_all(&url(from.port()), &url(nodes[target].port()), more);
        assert_same(&before, &all_of(&nodes));
        let counts: Vec<_> = nodes.iter().map(|node| node.client().cmd("DBSIZE").int()).collect();
        assert!(
            counts.iter().sum::<i64>() == before.len() as i64 && counts.iter().all(|count| *count > 20),
            "{counts:?}"
        );
    }
}

#[test]
fn a_slot_that_is_being_moved_is_followed() {
    let (from, nodes) = (Server::start(), cluster());
    let mut client = from.client();
    client.cmd("BF.ADD moving item");
    let mut ask = nodes[0].client();
    let slot = ask.cmd("CLUSTER KEYSLOT moving").int();
    let owner = (slot / 5462) as usize;
    let importer = (owner + 1) % 3;
    let id = |node: usize| nodes[node].client().cmd("CLUSTER MYID").text();
    assert_eq!(nodes[importer].client().cmd(&format!("CLUSTER SETSLOT {slot} IMPORTING {}", id(owner))), "OK");
    assert_eq!(nodes[owner].client().cmd(&format!("CLUSTER SETSLOT {slot} MIGRATING {}", id(importer))), "OK");
    copy_all(&url(from.port()), &url(nodes[0].port()), &[]);
    let mut there = nodes[importer].client();
    assert_eq!(there.cmd("DBSIZE"), 1);
    assert_eq!(nodes[owner].client().cmd("DBSIZE"), 0);
}

/// A node whose table is old sends everything elsewhere.
#[test]
fn moved_is_followed() {
    let (from, to) = (Server::start(), Server::start());
    let (mut client, port) = (from.client(), to.port());
    filters(&mut client);
    let old = fake(move |words| {
        let name = words[0].to_ascii_uppercase();
        match name.as_slice() {
            b"PING" => b"+PONG\r\n".to_vec(),
            b"INFO" => b"$17\r\ncluster_enabled:1\r\n".to_vec(),
            b"CLUSTER" => b"*0\r\n".to_vec(),
            b"CONFIG" | b"BF.LOADCHUNK" => b"-ERR no\r\n".to_vec(),
            _ => format!("-MOVED 1 127.0.0.1:{port}\r\n").into_bytes(),
        }
    });
    copy_all(&url(from.port()), &url(old), &[]);
    assert_same(&all_seen(&mut client), &all_seen(&mut to.client()));
}
