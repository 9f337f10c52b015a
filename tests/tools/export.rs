//! Snapshots for Redis and Valkey with RedisBloom.

use std::path::Path;
use std::process::Command;

use super::check::{copy_folder, flip};
use super::support::{Random, Server, wait_until};
use super::{Database, assert_all_same, everything, filters_wanted, make_filters, run_to, saved, text, url};

/// Whether Redis' own checker finds nothing wrong.
#[track_caller]
fn redis_accepts(path: &Path) {
    let output = Command::new("redis-check-rdb").arg(path).output().expect("redis-check-rdb");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && printed.contains("RDB looks OK!"), "{printed}");
}

/// Both servers load the file and have just these filters.
#[track_caller]
fn check_loads(path: &Path, wanted: &[Database]) {
    redis_accepts(path);
    let data = [(path, "dump.rdb")];
    for server in [Server::peer_on(&data), Server::valkey_on(&data)] {
        assert_all_same(wanted, &everything(&server));
        let log = server.log();
        assert!(!log.contains("Unrecognized") && !log.to_lowercase().contains("error"), "{log}");
    }
}

#[test]
fn a_live_server_is_exported() {
    let (server, count) = (Server::start(), filters_wanted());
    let mut client = server.client();
    make_filters(&mut client, &mut Random::new(90), count);
    client.cmd("BF.RESERVE large 0.01 5000000");
    client.cmd("BF.MADD large a b c");
    let (before, folder) = (everything(&server), tempfile::tempdir().unwrap());
    let path = folder.path().join("out.rdb");
    let printed = run_to(0, &["export", "--families", "bf", text(&path), "--from", &url(&server)]);
    assert!(printed.contains(&format!("out.rdb': {}, ", count + 1)), "{printed}");
    eprint!("SeenDB to a file: {printed}");
    check_loads(&path, &before);
    // Nothing else is left, and what is there is not written over.
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    let again = run_to(1, &["export", "--families", "bf", text(&path), "--from", &url(&server)]);
    assert!(again.contains("is there already"), "{again}");
    run_to(0, &["export", "--families", "bf", text(&path), "--from", &url(&server), "--replace"]);
    let bytes = std::fs::read(&path).unwrap();
    assert!(bytes.starts_with(b"REDIS0010") && !bytes.windows(6).any(|part| part == b"seendb"));
}

#[test]
fn only_the_families_that_are_asked_for_are_exported() {
    let server = Server::start();
    let mut client = server.client();
    make_filters(&mut client, &mut Random::new(92), 20);
    let before = everything(&server);
    for line in [
        "CHAIN.ADD ring item",
        "CHAIN.PROFILE SET seen: CAPACITY 50",
        "CHAIN.RESERVE large 0.01 1000000",
        "CBF.ADD counting item",
        "DLCBF.ADD d-left item",
    ] {
        client.cmd(line);
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.rdb");
    let words = |families| ["export", "--families", families, text(&path), "--replace"].map(str::to_owned);
    let from = ["--from".to_owned(), url(&server)];
    let run =
        |families| run_to(0, &[&words(families)[..], &from].concat().iter().map(String::as_str).collect::<Vec<_>>());
    let printed = run("bf");
    assert!(
        printed.contains("out.rdb': 20, ") && printed.contains("left out: 4 filters of other families"),
        "{printed}"
    );
    check_loads(&path, &before);
    let printed = run("chain");
    assert!(printed.contains("out.rdb': 2, ") && printed.contains("left out: 22 filters"), "{printed}");
    let restored = Server::on(&[(&path, "dump.rdb")], &[]);
    let mut restored = restored.client();
    assert_eq!(restored.cmd("DBSIZE"), 2);
    assert_eq!(restored.cmd("CHAIN.EXISTS ring item"), 1);
    assert!(restored.cmd("CHAIN.PROFILE GET seen:") == client.cmd("CHAIN.PROFILE GET seen:"));
    let printed = run("cbf,dlcbf");
    assert!(printed.contains("out.rdb': 2, ") && printed.contains("left out: 22 filters"), "{printed}");
    let restored = Server::on(&[(&path, "dump.rdb")], &[]);
    assert_eq!(restored.client().cmd("CBF.COUNT counting item"), 1);
    assert_eq!(restored.client().cmd("DLCBF.COUNT d-left item"), 1);
    let printed = run("bf,cbf,dlcbf,chain");
    assert!(printed.contains("out.rdb': 24, ") && !printed.contains("left out"), "{printed}");
}

#[test]
fn a_data_folder_is_exported() {
    let server = Server::with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let mut client = server.client();
    make_filters(&mut client, &mut Random::new(91), 60);
    client.cmd("BGREWRITEAOF");
    (0..500).for_each(|i| drop(client.cmd(&format!("BF.ADD more:{} {i}", i % 7))));
    let (before, folder) = (everything(&server), tempfile::tempdir().unwrap());
    let path = folder.path().join("log.rdb");
    run_to(0, &["export", "--families", "bf", text(&path), "--dir", text(server.dir())]);
    check_loads(&path, &before);

    let other = Server::start();
    make_filters(&mut other.client(), &mut Random::new(93), 60);
    saved(&other);
    let path = folder.path().join("snapshot.rdb");
    run_to(0, &["export", "--families", "bf", text(&path), "--dir", text(other.dir())]);
    check_loads(&path, &everything(&other));
}

/// What the message about a damaged base names works.
#[test]
fn a_damaged_base_is_exported_by_way_of_an_import() {
    let server = Server::with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let mut client = server.client();
    make_filters(&mut client, &mut Random::new(94), 400);
    client.cmd("BGREWRITEAOF");
    let log = server.dir().join("appendonlydir");
    let base = || {
        std::fs::read_dir(&log)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .find(|path| path.extension().is_some_and(|end| end == "rdb"))
    };
    wait_until("the base", || {
        base().is_some() && client.cmd("INFO persistence").text().contains("aof_rewrite_in_progress:0")
    });
    let folder = tempfile::tempdir().unwrap();
    let (data, out) = (folder.path().join("data"), folder.path().join("out.rdb"));
    std::fs::create_dir(&data).unwrap();
    copy_folder(&log, &data.join("appendonlydir"));
    let base = data.join("appendonlydir").join(base().unwrap().file_name().unwrap());
    flip(&base, std::fs::metadata(&base).unwrap().len() as usize / 2);
    let export = |status, dir: &Path| run_to(status, &["export", "--families", "bf", text(&out), "--dir", text(dir)]);
    let refused = export(1, &data);
    assert!(refused.contains("'seendb import SNAPSHOT --load-damaged --dir FOLDER'"), "{refused}");
    let sound = folder.path().join("sound");
    std::fs::create_dir(&sound).unwrap();
    run_to(1, &["import", text(&base), "--load-damaged", "--dir", text(&sound)]);
    assert!(export(0, &sound).contains("filters written to "));
    redis_accepts(&out);
}

#[test]
fn what_cannot_be_exported_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.rdb");
    let export = |more: &[&str]| run_to(1, &[&["export", "--families", "bf", text(&path)], more].concat());
    assert!(export(&["--dir", text(folder.path())]).contains("holds neither 'dump.rdb' nor a log"));
    assert!(export(&["--from", "redis://127.0.0.1:1"]).contains("cannot connect"));
    std::fs::write(folder.path().join("dump.rdb"), "REDIS0010\u{1}").unwrap();
    let refused = export(&["--dir", text(folder.path())]);
    assert!(
        refused.contains("dump.rdb': offset ") && refused.contains("'seendb import SNAPSHOT --load-damaged"),
        "{refused}"
    );
    let locked = Server::with(&["--requirepass", "secret"]);
    assert!(export(&["--from", &url(&locked)]).contains("give a password"));
    assert!(!path.exists());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}
