//! Rings, counting filters and d-left filters: between SeenDB servers, and to a Redis, which has none of them.

use super::fake::Between;
use super::support::{Client, Random, Server, Value, chunks, wait_until};
use super::{copy_all, copy_fails, make_random, tool, url};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The families that Redis does not have.
const OTHERS: [&str; 3] = ["CHAIN", "CBF", "DLCBF"];

/// All keys of a database: of each the type, the moment of its end, and all that it holds.
pub type Everything = BTreeMap<Vec<u8>, (String, i64, Vec<u8>)>;

/// All keys of the database.
pub fn everything(client: &mut Client) -> Everything {
    let names: Vec<_> = client.cmd("KEYS *").array().iter().map(|name| name.bulk().to_vec()).collect();
    let held = |name: Vec<u8>| {
        let kind = client.call(&[&b"TYPE"[..], &name]).text();
        let ends = client.call(&[&b"PEXPIRETIME"[..], &name]).int();
        let mut dump = client.call(&[&b"DUMP"[..], &name]).bulk().to_vec();
        // The version of the payload is the server's, and its checksum is over that too.
        dump.truncate(dump.len() - 10);
        (name, (kind, ends, dump))
    };
    names.into_iter().map(held).collect()
}

/// Fails unless both are the same.
#[track_caller]
pub fn assert_equal(left: &Everything, right: &Everything) {
    assert_eq!(left.keys().collect::<Vec<_>>(), right.keys().collect::<Vec<_>>());
    for (name, held) in left {
        let other = &right[name];
        let at = held.2.iter().zip(&other.2).position(|(one, other)| one != other);
        assert!(held == other, "{} of {} differs at {at:?}", name.escape_ascii(), held.0);
    }
}

/// A small filter of a family other than Bloom's: random settings, random items, perhaps a life.
pub fn make_other(client: &mut Client, random: &mut Random, number: usize) {
    let family = OTHERS[number % OTHERS.len()];
    let key = format!("{}:{number}", family.to_lowercase());
    let options: &[&str] = match family {
        "CHAIN" => &["", "LINKS 3", "WINDOW 86400", "WINDOW 86400 BOUNDED CLOCK EVENT", "DUAL", "IDLE 90000", "KEYED"],
        "CBF" => &["", "COUNTERBITS 8", "STRICT", "KEYED"],
        _ => &["", "EXPANSION 2", "OVERFLOW SPILL", "COUNTERBITS 4", "KEYED"],
    };
    let most = *random.weighted(&[(8, 200), (1, 5000)]);
    let capacity = 1 + random.below(most);
    let rate = random.pick(&["0.1", "0.01", "0.0001"]);
    let option = random.pick(options);
    assert_eq!(client.cmd(&format!("{family}.RESERVE {key} {rate} {capacity} {option}")), "OK");
    add(client, family, &key, random.below(capacity + capacity / 2));
    if random.percent(30) {
        assert_eq!(client.cmd(&format!("PEXPIRE {key} {}", 100_000_000 + random.below(1_000_000))), 1);
    }
}

/// Adds the first so many items; what a full filter refuses is left out.
fn add(client: &mut Client, family: &str, key: &str, items: usize) {
    for start in (0..items).step_by(1000) {
        let items: Vec<_> = (start..items.min(start + 1000)).map(|item| format!("item{item}")).collect();
        let words = [&[format!("{family}.MADD"), key.to_owned()][..], &items].concat();
        client.call(&words);
    }
}

/// A filter of each family whose dump has several pieces, with a life, in part with settings that are seen in the dump.
fn make_large(client: &mut Client) {
    for (family, key, options) in [
        ("CHAIN", "chain:large", "LINKS 4 KEYED"),
        ("CHAIN", "chain:window", "WINDOW 864000 BOUNDED"),
        ("CBF", "cbf:large", ""),
        ("DLCBF", "dlcbf:large", "OVERFLOW SPILL"),
        ("DLCBF", "dlcbf:grown", "EXPANSION 2 FINAL 4000000"),
    ] {
        let capacity = match key {
            "dlcbf:grown" => 20_000,
            // A part of a ring is made for a part of the capacity.
            _ if family == "CHAIN" => 8_000_000,
            _ => 1_000_000,
        };
        assert_eq!(client.cmd(&format!("{family}.RESERVE {key} 0.001 {capacity} {options}")), "OK");
        add(client, family, key, 50_000);
        assert_eq!(client.cmd(&format!("PEXPIREAT {key} 4000000000123")), 1);
        let reply = client.cmd(&format!("{family}.SCANDUMP {key} 0"));
        let next = client.cmd(&format!("{family}.SCANDUMP {key} {}", reply.array()[0].int()));
        let after = client.cmd(&format!("{family}.SCANDUMP {key} {}", next.array()[0].int()));
        assert!(!after.array()[1].bulk().is_empty(), "{key} has one piece");
    }
}

fn make_all(client: &mut Client, seed: u64) {
    let random = &mut Random::new(seed);
    (0..90).for_each(|number| make_other(client, random, number));
    (0..20).for_each(|number| drop(make_random(client, random, number)));
    make_large(client);
}

#[test]
fn filters_of_all_families_go_between_two_seendb() {
    let from = Server::start();
    let mut source = from.client();
    make_all(&mut source, 1);
    let before = everything(&mut source);
    for pieces in ["64mb", "100kb", "0"] {
        let to = Server::start();
        let text = copy_all(&url(from.port()), &url(to.port()), &["--pieces-from", pieces]);
        assert!(text.contains(&format!("filters copied: {}, ", before.len())), "{text}");
        assert!(!text.contains("left where") && !text.contains("failed"), "{text}");
        let mut target = to.client();
        assert_equal(&before, &everything(&mut target));
        // And it is used on as it was.
        for family in OTHERS {
            let key = format!("{}:large", family.to_lowercase());
            let answers = [&mut source, &mut target].map(|client| {
                (0..2000).map(|item| client.cmd(&format!("{family}.EXISTS {key} item{}", item * 50)).int()).sum::<i64>()
            });
            assert_eq!(answers[0], answers[1], "{family}");
        }
    }
    assert_equal(&before, &everything(&mut source));
}

/// Where words may be no longer than a chunk, everything larger goes in pieces.
#[test]
fn a_target_of_short_words_gets_chunks() {
    let (from, to) = (Server::start(), Server::with(&["--proto-max-bulk-len", "1mb"]));
    let mut source = from.client();
    make_large(&mut source);
    copy_all(&url(from.port()), &url(to.port()), &[]);
    assert_equal(&everything(&mut source), &everything(&mut to.client()));
}

#[test]
fn families_and_patterns_choose() {
    let (from, to) = (Server::start(), Server::start());
    let mut source = from.client();
    for family in ["BF", "CHAIN", "CBF", "DLCBF"] {
        source.cmd(&format!("{family}.ADD {family}:1 item"));
        source.cmd(&format!("{family}.ADD {family}:2 item"));
    }
    let text = copy_all(&url(from.port()), &url(to.port()), &["--families", "chain,dlcbf"]);
    assert!(text.contains("filters copied: 4, "), "{text}");
    assert!(text.contains("keys of other families and types, left where they are: 4\n"), "{text}");
    assert_eq!(to.client().cmd("EXISTS CHAIN:1 CHAIN:2 DLCBF:1 DLCBF:2"), 4);
    let text = copy_all(&url(from.port()), &url(to.port()), &["--match", "*BF:1", "--replace"]);
    assert!(text.contains("filters copied: 3, ") && !text.contains("left where"), "{text}");
    assert_eq!(to.client().cmd("EXISTS BF:1 CBF:1 BF:2 CBF:2"), 2);
    let text = copy_fails(&url(from.port()), &url(to.port()), &["--families", "cuckoo"]);
    assert!(text.contains("invalid value 'cuckoo'"), "{text}");
}

#[test]
fn a_redis_gets_bloom_filters_and_the_others_are_named() {
    let (from, to) = (Server::start(), Server::peer());
    let (mut source, mut target) = (from.client(), to.client());
    source.cmd("BF.ADD bloom item");
    (0..12).for_each(|key| drop(source.cmd(&format!("CHAIN.ADD ring:{key} item"))));
    source.cmd("CBF.ADD counts item");
    source.cmd("DLCBF.ADD d-left item");
    source.cmd("CHAIN.PROFILE SET ring: CAPACITY 5");
    let text = copy_fails(&url(from.port()), &url(to.port()), &[]);
    assert!(text.contains("filters copied: 1, "), "{text}");
    for line in [
        "profiles of rings NOT copied, the target has no CHAIN: 1\n  \"ring:\"\n",
        "rings NOT copied, the target has no CHAIN: 12\n  \"ring:",
        "  and 2 more\n",
        "counting filters NOT copied, the target has no CBF: 1\n  \"counts\"\n",
        "d-left filters NOT copied, the target has no DLCBF: 1\n  \"d-left\"\n",
        "They are at the source alone: copy them to a SeenDB before it is switched off. --families bf leaves them out.\n",
    ] {
        assert!(text.contains(line), "{line:?} in {text}");
    }
    assert_eq!((target.cmd("DBSIZE").int(), target.cmd("BF.EXISTS bloom item").int()), (1, 1));
    // What is not asked for is not missed.
    let text = copy_all(&url(from.port()), &url(to.port()), &["--replace", "--families", "bf"]);
    assert!(text.contains("keys of other families and types, left where they are: 14\n"), "{text}");
    let text = copy_all(&url(from.port()), &url(to.port()), &["--replace", "--match", "bloom*"]);
    assert!(!text.contains("NOT copied"), "{text}");
    assert!(text.contains("profiles of rings, left where they are because of --match: 1\n"), "{text}");
    copy_fails(&url(from.port()), &url(to.port()), &["--replace", "--match", "count*"]);
}

#[test]
fn profiles_of_rings_go_along() {
    let (from, to) = (Server::start(), Server::start());
    let (mut source, mut target) = (from.client(), to.client());
    for profile in [
        "read: CAPACITY 70 ERROR 0.02 WINDOW 60 IDLE 900",
        "event: CAPACITY 5 ERROR 1e-7 PWINDOW 1500 BOUNDED CLOCK EVENT LINKS 9",
        "dual: DUAL THRESHOLD 0.75 CAPACITY 1000",
        "strict: LINKS 3 LINKERROR",
        "keyed: KEYED",
        "seed: SEED 000102030405060708090a0b0c0d0e0f",
    ] {
        assert_eq!(source.cmd(&format!("CHAIN.PROFILE SET {profile}")), "OK");
    }
    assert_eq!(source.call(&["CHAIN.PROFILE", "SET", "", "CAPACITY", "9"]), "OK");
    let text = copy_all(&url(from.port()), &url(to.port()), &[]);
    assert!(text.contains("profiles of rings copied: 7\n"), "{text}");
    assert!(text.contains("profiles with a key, copied as KEYED; a SEED is not told, set it again: 2\n"), "{text}");
    assert_eq!(source.cmd("CHAIN.PROFILE LIST"), target.cmd("CHAIN.PROFILE LIST"));
    let text = copy_all(&url(from.port()), &url(to.port()), &[]);
    assert!(text.contains("profiles of rings that are the same at the target: 7\n"), "{text}");
    target.cmd("CHAIN.PROFILE SET read: CAPACITY 8");
    let text = copy_fails(&url(from.port()), &url(to.port()), &[]);
    assert!(text.contains("failed: 1\n  \"profile read:\": exists at the target; --replace would"), "{text}");
    assert_eq!(target.cmd("CHAIN.PROFILE GET read:").field("capacity"), &Value::Int(8));
    copy_all(&url(from.port()), &url(to.port()), &["--families", "cbf"]);
    copy_all(&url(from.port()), &url(to.port()), &["--replace"]);
    assert_eq!(source.cmd("CHAIN.PROFILE LIST"), target.cmd("CHAIN.PROFILE LIST"));
}

#[test]
fn keys_of_any_family_that_are_there_are_replaced_only_when_asked() {
    let (from, to) = (Server::start(), Server::start());
    let (mut source, mut target) = (from.client(), to.client());
    make_large(&mut source);
    source.cmd("CHAIN.ADD chain:small item");
    source.cmd("CBF.ADD cbf:small item");
    let before = everything(&mut source);
    let header = chunks::chunks(&mut source, "chain:window").remove(0);
    for pieces in ["64mb", "0"] {
        target.cmd("FLUSHALL");
        // Of the same family, of another, and half a ring.
        target.cmd("DLCBF.ADD dlcbf:large old");
        target.cmd("BF.ADD cbf:small old");
        assert_eq!(chunks::load(&mut target, "chain:window", &header), "OK");
        let text = copy_fails(&url(from.port()), &url(to.port()), &["--pieces-from", pieces]);
        assert!(text.contains("filters copied: 4, ") && text.contains("failed: 3\n"), "{text}");
        assert_eq!(target.cmd("DLCBF.EXISTS dlcbf:large old"), 1);
        assert_eq!(target.cmd("BF.EXISTS cbf:small old"), 1);
        assert!(target.cmd("DUMP chain:window").error().contains("being loaded"));
        copy_all(&url(from.port()), &url(to.port()), &["--pieces-from", pieces, "--replace"]);
        assert_equal(&before, &everything(&mut target));
    }
}

#[test]
fn a_ring_that_is_half_loaded_at_the_source_is_named() {
    let (from, to) = (Server::start(), Server::start());
    let mut source = from.client();
    source.cmd("CHAIN.ADD whole item");
    let header = chunks::chunks(&mut source, "whole").remove(0);
    assert_eq!(chunks::load(&mut source, "half", &header), "OK");
    for pieces in ["64mb", "0"] {
        let text = copy_fails(&url(from.port()), &url(to.port()), &["--replace", "--pieces-from", pieces]);
        assert!(text.contains("filters copied: 1, ") && text.contains("failed: 1\n  \"half\": "), "{text}");
        assert!(text.contains("is being loaded") && text.contains("; load the rest of its dump there"), "{text}");
        assert_eq!(to.client().cmd("DBSIZE"), 1);
    }
}

/// The connection ends, and then the tool is killed, in the middle of each large filter: what is left has a life, and the next run goes on.
#[test]
fn loads_that_are_cut_off_begin_again() {
    let (from, to) = (Server::start(), Server::start());
    let (mut source, mut target) = (from.client(), to.client());
    make_large(&mut source);
    let before = everything(&mut source);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("progress");
    let left = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&left);
    // Ends the connection when so many pieces were sent.
    let between = Between::start(to.port(), move |request| {
        let pieces = request.windows(11).filter(|word| word.ends_with(b".LOADCHUNK")).count();
        let left = counted.load(Ordering::Relaxed);
        counted.store(left.saturating_sub(pieces), Ordering::Relaxed);
        left > 0
    });
    let (from_url, to_url) = (url(from.port()), url(between.port()));
    let args = [&from_url, &to_url, "--resume", file.to_str().unwrap(), "--pieces-from", "0"];
    let mut half = 0;
    for pieces in [3, 5, 4, 6] {
        left.store(pieces, Ordering::Relaxed);
        let output = tool(&args).output().expect("the program runs");
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        // What had been sent may still be on its way.
        wait_until("an end of what is done", || to.client().cmd("PING") == "PONG");
        for name in target.cmd("KEYS *.seendb-copy.0").array() {
            let life = target.call(&[b"PTTL", name.bulk()]).int();
            assert!((0..=3_600_000).contains(&life), "{life}");
            assert!(target.call(&[b"DUMP", name.bulk()]).error().contains("being loaded"));
            half += 1;
        }
    }
    assert!(half > 0, "never in the middle");
    left.store(usize::MAX, Ordering::Relaxed);
    copy_all(&from_url, &to_url, &args[2..]);
    assert_equal(&before, &everything(&mut target));
}

/// The source and a proxy before it that changes a key, by commands with rising numbers in them, before the dump's pieces whose numbers are given.
fn changing(from: &Server, at: fn(usize) -> bool, change: &str, mut next: usize) -> Between {
    let (mut client, mut pieces, change) = (from.client(), 0, change.to_owned());
    Between::start(from.port(), move |request| {
        if request.windows(9).any(|word| word == b".SCANDUMP")
            && request.windows(9).any(|word| word == b"\r\nlarge\r\n")
        {
            pieces += 1;
            if at(pieces) {
                for _ in 0..5 {
                    let reply = client.cmd(&change.replace('#', &next.to_string()));
                    assert!(!matches!(reply, Value::Error(_)), "{reply:?}");
                    next += 1;
                }
            }
        }
        true
    })
}

#[test]
fn another_shape_begins_the_dump_again() {
    for (family, capacity, options, change) in [
        ("CHAIN", 8_000_000, "LINKS 4", "CHAIN.EXTEND large LINKS #"),
        ("CBF", 1_000_000, "", "CBF.DECAY large"),
        ("DLCBF", 50_000, "EXPANSION 1 FINAL 40000000", "DLCBF.MADD large "),
    ] {
        let from = Server::start();
        let mut source = from.client();
        assert_eq!(source.cmd(&format!("{family}.RESERVE large 0.0001 {capacity} {options}")), "OK");
        add(&mut source, family, "large", 10_000);
        // A set more at each change.
        let items = if family == "DLCBF" { 0..20_000 } else { 0..0 };
        let change: String = [change.to_owned()].into_iter().chain(items.map(|item| format!("#x{item} "))).collect();
        let to = Server::start();
        let between = changing(&from, |piece| piece == 2, &change, 10);
        copy_all(&url(between.port()), &url(to.port()), &["--pieces-from", "0"]);
        assert_equal(&everything(&mut source), &everything(&mut to.client()));
        let to = Server::start();
        let between = changing(&from, |piece| piece % 2 == 0, &change, 100);
        let text = copy_fails(&url(between.port()), &url(to.port()), &["--pieces-from", "0"]);
        let told = "failed: 1\n  \"large\": it grew, turned or was replaced during each of 5 tries; try again";
        assert!(text.contains(told), "{text}");
        assert_eq!(to.client().cmd("DBSIZE"), 0);
    }
}

/// Whatever is written meanwhile, what was in before the copy began is in it.
#[test]
fn items_that_stay_are_in_the_copy() {
    const ITEMS: usize = 20_000;
    for pieces in ["64mb", "0"] {
        let (from, to) = (Server::start(), Server::start());
        let mut source = from.client();
        // None of them turns or grows by what is added.
        for (family, capacity, options) in
            [("CHAIN", 8_000_000, "LINKS 2"), ("CBF", 1_000_000, ""), ("DLCBF", 1_000_000, "OVERFLOW SPILL")]
        {
            source.cmd(&format!("{family}.RESERVE {family} 0.001 {capacity} {options}"));
            add(&mut source, family, family, ITEMS);
        }
        let stop = Arc::new(AtomicBool::new(false));
        let (mut writer, stopped) = (from.client(), Arc::clone(&stop));
        let writing = std::thread::spawn(move || {
            let mut count = 0;
            while !stopped.load(Ordering::Relaxed) {
                for family in OTHERS {
                    let during: Vec<_> = (0..50).map(|item| format!("during{}", count * 50 + item)).collect();
                    writer.call(&[&[format!("{family}.MADD"), family.to_owned()][..], &during].concat());
                    if family != "CHAIN" {
                        during.iter().step_by(2).for_each(|item| {
                            assert_eq!(writer.cmd(&format!("{family}.DEL {family} {item}")), 1);
                        });
                    }
                }
                count += 1;
            }
            count
        });
        let text = copy_all(&url(from.port()), &url(to.port()), &["--pieces-from", pieces]);
        stop.store(true, Ordering::Relaxed);
        let written = writing.join().expect("the writer ends");
        assert!(written > 0 && text.contains("filters copied: 3, "), "{text}");
        let mut target = to.client();
        for family in OTHERS {
            for start in (0..ITEMS).step_by(1000) {
                let items: Vec<_> = (start..start + 1000).map(|item| format!("item{item}")).collect();
                let answers = target.call(&[&[format!("{family}.MEXISTS"), family.to_owned()][..], &items].concat());
                assert!(answers.array().iter().all(Value::truth), "{family} {start}");
            }
        }
        // With the writers gone another run makes both equal.
        copy_all(&url(from.port()), &url(to.port()), &["--replace", "--pieces-from", pieces]);
        assert_equal(&everything(&mut source), &everything(&mut target));
    }
}
