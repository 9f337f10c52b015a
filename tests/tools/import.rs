//! Filters out of snapshots.

use std::path::{Path, PathBuf};

use super::model::{Chain, Link};
use super::support::{Random, Server, Value, chunks};
use super::{assert_all_same, everything, filters_wanted, make_filters, make_other_types, run_to, saved, text, url};

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

#[test]
fn a_snapshot_of_redis_becomes_one_of_ours() {
    let (peer, count) = (Server::peer(), filters_wanted());
    let mut client = peer.client();
    make_filters(&mut client, &mut Random::new(82), count);
    let others = make_other_types(&mut client);
    let (before, dump, to) = (everything(&peer), saved(&peer), folder());

    let printed = run_to(0, &["import", text(&dump), "--dir", text(to.path())]);
    assert!(printed.contains(&format!("dump.rdb': {count} (")), "{printed}");
    assert!(printed.contains(&format!("stepped over: {others} keys of other types (")), "{printed}");
    for kind in ["string 5", "stream 1", "MBbloomCF 1", "TDIS-TYPE 1"] {
        assert!(printed.contains(kind), "{kind}: {printed}");
    }
    eprint!("Redis to a folder: {printed}");
    let made = to.path().join("dump.rdb");
    run_to(0, &["check", text(&made)]);
    assert_all_same(&before, &everything(&Server::on(&[(&made, "dump.rdb")], &[])));

    // It is not written over, nor beside a log.
    let bytes = std::fs::read(&made).unwrap();
    assert!(run_to(1, &["import", text(&dump), "--dir", text(to.path())]).contains("is there already"));
    assert!(std::fs::read(&made).unwrap() == bytes);
    run_to(0, &["import", text(&dump), "--dir", text(to.path()), "--replace"]);
    std::fs::create_dir(to.path().join("appendonlydir")).unwrap();
    std::fs::write(to.path().join("appendonlydir/seendb.manifest"), "").unwrap();
    let refused = run_to(1, &["import", text(&dump), "--dir", text(to.path()), "--replace"]);
    assert!(refused.contains("holds a log"), "{refused}");
}

#[test]
fn a_snapshot_goes_into_live_servers() {
    let (peer, count) = (Server::peer(), filters_wanted());
    let mut client = peer.client();
    make_filters(&mut client, &mut Random::new(83), count);
    // Several pieces, with a life.
    client.cmd("BF.RESERVE large 0.01 30000000");
    client.cmd("BF.MADD large a b c");
    client.cmd("PEXPIREAT large 4000000000000");
    let others = make_other_types(&mut client);
    let (before, dump) = (everything(&peer), saved(&peer));
    for target in [Server::start(), Server::peer()] {
        let printed = run_to(0, &["import", text(&dump), "--into", &url(&target)]);
        assert!(printed.contains(&format!("filters sent: {} (", count + 1)), "{printed}");
        assert!(printed.contains(&format!("stepped over: {others} keys")), "{printed}");
        eprint!("Redis to a server: {printed}");
        assert_all_same(&before, &everything(&target));
        // Again: all are there.
        let printed = run_to(1, &["import", text(&dump), "--into", &url(&target)]);
        let failed = "filters sent: 0 (0 with a life), ";
        assert!(printed.contains(failed) && printed.contains(&format!("failed: {}\n", count + 1)), "{printed}");
        assert!(printed.contains("exists there; --replace would replace it"), "{printed}");
        target.client().cmd("BF.ADD large more");
        run_to(0, &["import", text(&dump), "--into", &url(&target), "--replace"]);
        assert_all_same(&before, &everything(&target));
    }
    // All into one database.
    let (target, small) = (Server::start(), Server::start());
    small.client().cmd("BF.ADD a item");
    let mut third = small.client();
    third.cmd("SELECT 3");
    third.cmd("BF.ADD b item");
    run_to(0, &["import", text(&saved(&small)), "--into", &format!("{}/7", url(&target))]);
    let mut client = target.client();
    client.cmd("SELECT 7");
    assert_eq!(client.cmd("EXISTS a b"), 2);
    let refused = run_to(1, &["import", text(&dump), "--into", "redis://127.0.0.1:1"]);
    assert!(refused.contains("cannot connect"), "{refused}");
}

#[test]
fn a_snapshot_of_valkey_9_is_read() {
    let valkey = Server::valkey_on(&[]);
    let mut client = valkey.client();
    make_filters(&mut client, &mut Random::new(84), 100);
    client.cmd("SET string text");
    assert_eq!(client.cmd("HSETEX hash EX 100000 FIELDS 1 field value"), 1);
    let (before, dump, to) = (everything(&valkey), saved(&valkey), folder());
    assert!(std::fs::read(&dump).unwrap().starts_with(b"VALKEY080"));
    let printed = run_to(0, &["import", text(&dump), "--dir", text(to.path())]);
    assert!(printed.contains("stepped over: 2 keys of other types (hash 1, string 1)"), "{printed}");
    let made = to.path().join("dump.rdb");
    assert_all_same(&before, &everything(&Server::on(&[(&made, "dump.rdb")], &[])));
}

#[test]
fn rings_and_profiles_come_too() {
    let (from, into) = (Server::start(), Server::start());
    let mut client = from.client();
    assert_eq!(client.cmd("CHAIN.PROFILE SET read: CAPACITY 70 ERROR 0.02 WINDOW 60 IDLE 900"), "OK");
    assert_eq!(client.cmd("CHAIN.PROFILE SET k: SEED 000102030405060708090a0b0c0d0e0f"), "OK");
    client.cmd("CHAIN.ADD read:ann n1");
    client.cmd("BF.ADD filter x");
    let (dump, profiles) = (saved(&from), client.cmd("CHAIN.PROFILE LIST"));
    let told = run_to(0, &["check", text(&dump)]);
    let line = "profile of rings \"read:\": CAPACITY 70 ERROR 0.02 LINKS 5 PWINDOW 60000 IDLE 900\n";
    assert!(told.contains(line) && told.contains("LINKS 5 KEYED\n") && !told.contains("000102"), "{told}");

    let said = run_to(0, &["import", text(&dump), "--into", &url(&into)]);
    assert!(said.contains("filters sent: 2 (") && said.contains("profiles of rings sent: 2\n"), "{said}");
    let mut target = into.client();
    assert_eq!((target.cmd("CHAIN.PROFILE LIST"), target.cmd("CHAIN.EXISTS read:ann n1").int()), (profiles, 1));
    let exports = [&mut client, &mut target].map(|client| {
        client.cmd("CHAIN.ADD k:1 x");
        client.call(&["CHAIN.EXPORT", "k:1"]).bulk()[64..80].to_vec()
    });
    assert_eq!(exports[0], exports[1], "the key of the hashes");
    target.cmd("CHAIN.PROFILE SET read: CAPACITY 8");
    let said = run_to(1, &["import", text(&dump), "--into", &url(&into)]);
    assert!(said.contains("\"profile read:\": exists there; --replace would replace it\n"), "{said}");
    run_to(0, &["import", text(&dump), "--into", &url(&into), "--replace"]);
    assert_eq!(target.cmd("CHAIN.PROFILE LIST"), client.cmd("CHAIN.PROFILE LIST"));

    let to = folder();
    let said = run_to(0, &["import", text(&dump), "--dir", text(to.path())]);
    assert!(said.contains("profiles of rings written: 2\n"), "{said}");
    let made = Server::on(&[(&to.path().join("dump.rdb"), "dump.rdb")], &[]);
    assert_eq!(made.client().cmd("CHAIN.PROFILE LIST"), client.cmd("CHAIN.PROFILE LIST"));
    // Redis has none.
    let said = run_to(1, &["import", text(&dump), "--into", &url(&Server::peer())]);
    assert!(said.contains("filters sent: 1 (") && said.contains("failed: 3\n"), "{said}");
    assert!(said.contains("\"profile read:\": the target has no CHAIN\n"), "{said}");
}

/// What is longer than half a word that the server takes goes in chunks, of every family.
#[test]
fn large_filters_of_all_families_go_in_chunks() {
    let (from, to) = (Server::start(), Server::with(&["--proto-max-bulk-len", "1mb"]));
    let mut client = from.client();
    let families = [("CHAIN", "LINKS 2", 8_000_000), ("CBF", "", 1_000_000), ("DLCBF", "OVERFLOW SPILL", 1_000_000)];
    let items: Vec<_> = (0..20_000).map(|item| format!("item{item}")).collect();
    for (family, options, capacity) in families {
        assert_eq!(client.cmd(&format!("{family}.RESERVE {family} 0.001 {capacity} {options}")), "OK");
        client.call(&[&[format!("{family}.MADD"), family.to_owned()][..], &items].concat());
        assert_eq!(client.cmd(&format!("PEXPIREAT {family} 4000000000123")), 1);
    }
    let (dump, mut target) = (saved(&from), to.client());
    target.cmd("BF.ADD CBF other");
    let said = run_to(1, &["import", text(&dump), "--into", &url(&to)]);
    assert!(said.contains("filters sent: 2 (2 with a life)") && said.contains("\"CBF\": exists there;"), "{said}");
    run_to(0, &["import", text(&dump), "--into", &url(&to), "--replace"]);
    assert_eq!(target.cmd("DBSIZE"), 3);
    for (family, ..) in families {
        let dumps = [&mut client, &mut target].map(|client| client.cmd(&format!("DUMP {family}")).bulk().to_vec());
        assert!(dumps[0].len() > 1 << 20 && dumps[0] == dumps[1], "{family}");
        assert_eq!(target.cmd(&format!("PEXPIRETIME {family}")), 4_000_000_000_123);
    }
}

#[test]
fn a_ring_that_is_half_loaded_is_named() {
    let (from, to) = (Server::start(), Server::start());
    let mut client = from.client();
    client.cmd("CHAIN.RESERVE whole 0.01 100");
    client.cmd("CHAIN.ADD whole item");
    let header = chunks::chunks(&mut client, "whole").remove(0);
    assert_eq!(chunks::load(&mut client, "half", &header), "OK");
    let printed = run_to(1, &["import", text(&saved(&from)), "--into", &url(&to)]);
    assert!(printed.contains("filters sent: 1 (") && printed.contains("failed: 1\n"), "{printed}");
    assert!(printed.contains("\"half\": its CHAIN.LOADCHUNK is not complete"), "{printed}");
    assert_eq!(to.client().cmd("EXISTS whole half"), 1);
}

#[test]
fn lives_that_are_over_are_dropped() {
    let server = Server::start();
    let mut client = server.client();
    client.cmd("BF.ADD stays item");
    client.cmd("BF.ADD ends item");
    client.cmd("PEXPIRE ends 60");
    let dump = saved(&server);
    super::support::wait_until("the end of the life", || client.cmd("EXISTS ends") == 0);
    let to = folder();
    let printed = run_to(0, &["import", text(&dump), "--dir", text(to.path())]);
    assert!(printed.contains("dump.rdb': 1 (0 with a life)"), "{printed}");
    assert!(printed.contains("dropped, because their life is over: 1\n"), "{printed}");
}

/// A snapshot of one filter in each encoding that RedisBloom has had.
fn old_snapshot(path: &Path) -> Vec<Vec<u8>> {
    let mut file = b"REDIS0008\xfe\x00".to_vec();
    let mut payloads = Vec::new();
    for encver in 0..=4 {
        let bits = if encver == 0 { 958 } else { 960 };
        let array: Vec<u8> = (0..120_u32).map(|i| (i * 37 % 251) as u8).collect();
        let link = Link::at_1_percent(100, bits, 0, &array, 7);
        // Options that go with a chain of that time.
        let options = if encver >= 2 { 5 } else { 0 };
        let payload = Chain::of(options, 2, vec![link]).payload(encver);
        let value = &payload[1..payload.len() - 10];
        file.extend([7, 3]);
        file.extend(format!("k:{encver}").bytes());
        file.extend(value);
        payloads.push(payload);
    }
    file.push(0xff);
    file.extend([0; 8]);
    std::fs::write(path, file).unwrap();
    payloads
}

#[test]
fn c082_every_encoding_of_redisbloom_is_read() {
    let from = folder();
    let path = from.path().join("old.rdb");
    let payloads = old_snapshot(&path);
    let (target, peer) = (Server::start(), Server::peer());
    let printed = run_to(0, &["import", text(&path), "--into", &url(&target)]);
    assert!(printed.contains("filters sent: 5 "), "{printed}");
    let (mut ours, mut theirs) = (target.client(), peer.client());
    for (encver, payload) in payloads.iter().enumerate() {
        let key = format!("k:{encver}");
        assert_eq!(theirs.call(&[b"RESTORE", key.as_bytes(), b"0", payload]), "OK");
        for i in 0..300 {
            let asked = ["BF.EXISTS", &key, &i.to_string()].map(str::to_owned);
            assert_eq!(ours.call(&asked), theirs.call(&asked), "{asked:?}");
        }
        assert_eq!(ours.call(&["BF.CARD", &key]), theirs.call(&["BF.CARD", &key]));
    }
}

#[test]
fn a_damaged_snapshot_is_taken_only_when_asked() {
    let server = Server::start();
    make_filters(&mut server.client(), &mut Random::new(86), 300);
    let from = folder();
    let path: PathBuf = from.path().join("damaged.rdb");
    let mut bytes = std::fs::read(saved(&server)).unwrap();
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let (to, target) = (folder(), Server::start());
    for place in [["--dir", text(to.path())], ["--into", &url(&target)]] {
        let printed = run_to(1, &[&["import", text(&path)][..], &place].concat());
        assert!(printed.contains("; --load-damaged takes what is sound"), "{printed}");
    }
    assert_eq!(std::fs::read_dir(to.path()).unwrap().count(), 0);
    assert_eq!(target.client().cmd("DBSIZE"), 0);
    let printed = run_to(1, &["import", text(&path), "--into", &url(&target), "--load-damaged"]);
    assert!(printed.contains("damaged, not taken: bytes "), "{printed}");
    assert!(matches!(target.client().cmd("DBSIZE"), Value::Int(1..)));
    let missing = run_to(1, &["import", "/nowhere.rdb", "--dir", text(to.path())]);
    assert!(missing.contains("'/nowhere.rdb': No such file"), "{missing}");
}

#[test]
fn what_cannot_be_imported_says_what_can_be_done() {
    let (server, data) = super::check::log_of(3);
    let junk = data.path().join("junk.rdb");
    std::fs::write(&junk, "no snapshot at all, whatever its name says").unwrap();
    let printed = run_to(2, &["import", text(&junk)]);
    assert!(printed.contains("--dir <FOLDER>") && printed.contains("--into <ADDRESS>"), "{printed}");
    let target = folder();
    let printed = run_to(1, &["import", text(&junk), "--dir", text(target.path())]);
    assert!(printed.contains("is it one?") && !printed.contains("--load-damaged"), "{printed}");
    let log = data.path().join("appendonlydir");
    for (path, words) in [(log.as_path(), "it is a log, not a snapshot"), (data.path(), "a folder without a snapshot")]
    {
        let printed = run_to(1, &["import", text(path), "--dir", text(target.path())]);
        let cat = format!("'seendb log cat --resp {}'", log.display());
        assert!(printed.contains(words) && printed.contains(&cat), "{printed}");
    }
    drop(server);
}
