//! Events into rings of a real server: all arrive, and a run that was interrupted goes on without losing or doubling one.

use std::collections::{BTreeMap, HashSet};
use std::io::{Read, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use super::support::{Client, Random, Server, Value, free_port, wait_until};
use super::{Ran, command, run, text, url};

const DAY_MS: u64 = 86_400_000;
/// Rings that forget nothing of what is sent here, and know the times.
const WINDOW: [&str; 10] =
    ["--window", "2592000", "--links", "31", "--clock", "event", "--capacity", "200", "--error", "0.0001"];

/// The words of a run from a file.
fn words(file: &Path, server: &str, more: &[&str]) -> Vec<String> {
    let words = [&["ingest", "chain", text(file), "--key-prefix", "seen:", "--into", server], more].concat();
    words.into_iter().map(str::to_owned).collect()
}

fn ingest(file: &Path, server: &str, more: &[&str]) -> Ran {
    let words = words(file, server, more);
    run(&words.iter().map(String::as_str).collect::<Vec<_>>())
}

#[track_caller]
fn ingest_to(status: i32, file: &Path, server: &str, more: &[&str]) -> String {
    let ran = ingest(file, server, more);
    assert_eq!(ran.status, status, "{}", ran.text);
    ran.text
}

fn start(file: &Path, server: &str, more: &[&str]) -> Child {
    let words = words(file, server, more);
    let mut command = command(&words.iter().map(String::as_str).collect::<Vec<_>>());
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts")
}

/// So many events over 20 days, in the order of their times, one in ten a repeat; and what each user saw.
fn events(count: u64, seed: u64) -> (String, BTreeMap<u64, HashSet<u64>>) {
    let mut random = Random::new(seed);
    let (mut lines, mut seen) = (String::new(), BTreeMap::<u64, HashSet<u64>>::new());
    let mut last = (0, 0);
    for number in 0..count {
        if number % 10 != 9 {
            // Some users come often, and several times in the same millisecond.
            last =
                ((random.below(20) * random.below(20) / (1 + random.below(20))) as u64, random.below(1 << 40) as u64);
        }
        let time = 1_700_000_000_000 + number / 3 * (20 * DAY_MS / (count / 3 + 1));
        seen.entry(last.0).or_default().insert(last.1);
        lines += &match number % 3 {
            0 => format!("{{\"user\": {}, \"item\": \"n{}\", \"time\": {time}}}\n", last.0, last.1),
            1 => format!("{{\"time\": {time}, \"item\": \"n{}\", \"user\": \"{}\"}}\r\n", last.1, last.0),
            _ => format!("{{\"user\":{},\"page\":[{{}}],\"item\":\"n{}\",\"time\":{time}}}\n", last.0, last.1),
        };
    }
    (lines, seen)
}

struct Folder {
    _folder: tempfile::TempDir,
    events: PathBuf,
    place: PathBuf,
}

fn folder(lines: &str) -> Folder {
    let folder = tempfile::tempdir().unwrap();
    let (events, place) = (folder.path().join("events.jsonl"), folder.path().join("place"));
    std::fs::write(&events, lines).unwrap();
    Folder { _folder: folder, events, place }
}

/// Every user's ring has his items, and none was counted twice.
#[track_caller]
fn assert_all_there(client: &mut Client, seen: &BTreeMap<u64, HashSet<u64>>) {
    assert_eq!(client.cmd("DBSIZE").int(), seen.len() as i64);
    for (user, items) in seen {
        let key = format!("seen:{user}");
        let names = items.iter().map(|item| format!("n{item}"));
        let question: Vec<String> = ["CHAIN.UNSEEN".to_owned(), key.clone()].into_iter().chain(names).collect();
        assert_eq!(client.call(&question), Value::Array(vec![]), "{key}");
    }
}

/// Each ring as bits, without what depends on when it was made.
fn exports(client: &mut Client, seen: &BTreeMap<u64, HashSet<u64>>) -> Vec<(Vec<u8>, i64)> {
    let rings = seen.keys().map(|user| {
        let key = format!("seen:{user}");
        let mut export = client.call(&["CHAIN.EXPORT", &key]).bulk().to_vec();
        let version = 24;
        export[version..version + 8].fill(0);
        export.truncate(export.len() - 8);
        (export, client.call(&["CHAIN.CARD", &key]).int())
    });
    rings.collect()
}

#[test]
fn every_event_arrives() {
    let server = Server::start();
    let (lines, seen) = events(30_000, 1);
    let folder = folder(&lines);
    let said = ingest_to(0, &folder.events, &url(&server), &WINDOW);
    let new: usize = seen.values().map(HashSet::len).sum();
    assert!(said.starts_with("events: 30000 in ") && said.contains("refused: 0\n"), "{said}");
    // A hit by mistake is counted as known: one in ten thousand.
    let counted: usize = said.lines().find_map(|line| line.strip_prefix("new: ")).unwrap().parse().unwrap();
    assert!(counted <= new && counted + 30 >= new, "{counted} of {new}");
    let client = &mut server.client();
    assert_all_there(client, &seen);
    assert_eq!(client.cmd("CHAIN.INFO seen:0").field("Window").int(), 30 * DAY_MS as i64);
    assert_eq!(client.cmd("CHAIN.INFO seen:0").field("Number of links").int(), 31);
    let again = ingest_to(0, &folder.events, &url(&server), &[]);
    assert!(again.contains("new: 0\nknown: 30000\n"), "{again}");
}

#[test]
fn a_pipe_is_read_as_it_comes() {
    let server = Server::start();
    let mut child = command(&["ingest", "chain", "--key-prefix", "p:", "--into", &url(&server), "--no-time"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut pipe = child.stdin.take().unwrap();
    let client = &mut server.client();
    for number in 0..3 {
        write!(pipe, "{{\"user\": \"u\", \"item\": {number}}}\n{{\"user\":").unwrap();
        wait_until("the event", || client.cmd(&format!("CHAIN.EXISTS p:u {number}")) == Value::Int(1));
        writeln!(pipe, " \"v\", \"item\": 1}}\n").unwrap();
    }
    write!(pipe, "{{\"user\": \"without end\", \"item\": 1}}").unwrap();
    drop(pipe);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.starts_with("events: 7 in ") && said.contains("new: 5\nknown: 2\nrefused: 0\n"), "{said}");
    assert_eq!(client.cmd("EXISTS p:v").int(), 1);
}

#[test]
fn a_run_that_is_killed_goes_on_where_it_was() {
    let (server, whole) = (Server::start(), Server::start());
    let (lines, seen) = events(40_000, 2);
    let folder = folder(&lines);
    ingest_to(0, &folder.events, &url(&whole), &WINDOW);
    let resume = [&WINDOW[..], &["--resume", text(&folder.place)]].concat();
    let slow = [&resume[..], &["--rate", "20000"]].concat();
    let client = &mut server.client();
    for signal in [libc::SIGKILL, libc::SIGINT, libc::SIGKILL, libc::SIGTERM] {
        let place = || std::fs::read(&folder.place).unwrap_or_default();
        let before = place();
        let mut child = start(&folder.events, &url(&server), &slow);
        wait_until("some progress", || place().len() > 100 && place() != before);
        std::thread::sleep(Duration::from_millis(100));
        // SAFETY: the process is a child of ours that was not waited for yet.
        assert_eq!(unsafe { libc::kill(child.id() as libc::pid_t, signal) }, 0);
        assert!(!child.wait().unwrap().success());
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        if signal != libc::SIGKILL {
            assert_eq!(said, "seendb ingest chain: interrupted\nThe same command goes on from here.\n");
        }
    }
    let said = ingest_to(0, &folder.events, &url(&server), &resume);
    let before = said.lines().find_map(|line| line.strip_prefix("lines sent by earlier runs: ")).unwrap();
    let before: u64 = before.parse().unwrap();
    assert!(before > 0 && before < 40_000 && said.starts_with(&format!("events: {} in", 40_000 - before)), "{said}");
    assert_all_there(client, &seen);
    assert!(exports(client, &seen) == exports(&mut whole.client(), &seen), "a ring is not what one run makes of it");
    let nothing = ingest_to(0, &folder.events, &url(&server), &resume);
    assert!(nothing.starts_with("events: 0 in"), "{nothing}");
}

#[test]
fn events_that_have_grown_are_gone_on_with_and_others_are_refused() {
    let server = Server::start();
    let (lines, seen) = events(500, 3);
    let half = lines.lines().take(200).map(|line| line.len()).sum::<usize>();
    let half = half + lines[half..].find('{').unwrap();
    let half = half + lines[half..].find('\n').unwrap() - 20;
    let folder = folder(&lines[..half]);
    let resume = [&WINDOW[..], &["--resume", text(&folder.place)]].concat();
    // The last line is not whole yet.
    let said = ingest_to(1, &folder.events, &url(&server), &resume);
    let number = lines[..half].lines().count();
    assert!(said.contains(&format!("seendb ingest chain: line {number}: EOF while parsing")), "{said}");
    let passed = [&resume[..], &["--skip-bad"]].concat();
    assert!(ingest_to(0, &folder.events, &url(&server), &passed).contains("bad lines, passed over: 1\n"));
    std::fs::write(&folder.events, &lines).unwrap();
    let said = ingest_to(0, &folder.events, &url(&server), &resume);
    assert!(said.starts_with(&format!("events: {} in", 500 - number + 1)), "{said}");
    assert_all_there(&mut server.client(), &seen);
    // From a pipe, which cannot be wound.
    let words = words(&folder.events, &url(&server), &resume);
    let words: Vec<&str> = words.iter().map(String::as_str).filter(|word| *word != text(&folder.events)).collect();
    let mut child = command(&words).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let more = format!("{lines}{{\"user\": 0, \"item\": \"new\", \"time\": 1702000000000}}\n");
    child.stdin.take().unwrap().write_all(more.as_bytes()).unwrap();
    let said = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
    assert!(said.starts_with("events: 1 in") && said.contains("new: 1\n"), "{said}");

    std::fs::write(&folder.events, events(500, 4).0).unwrap();
    let said = ingest_to(1, &folder.events, &url(&server), &resume);
    assert!(said.contains("not the events that the file of --resume was kept for"), "{said}");
    let said = ingest_to(1, &folder.events, "redis://127.0.0.1:1", &resume);
    assert!(said.contains("it belongs to events into 127.0.0.1:") && said.contains("\nName another file"), "{said}");
}

#[test]
fn bad_lines_end_the_run_or_are_counted() {
    let server = Server::start();
    let lines = "{\"user\": 1, \"item\": 1, \"time\": 5}\n\nno event\n{\"user\": 1, \"item\": 2, \"time\": 5}\n\
                 {\"user\": 1, \"item\": 3}\n{\"user\": 1, \"item\": 2.5, \"time\": 5}\n{\"user\": 1, \"item\": 4, \"time\": 5}\n";
    let folder = folder(lines);
    let said = ingest_to(1, &folder.events, &url(&server), &WINDOW);
    assert!(
        said.starts_with("events: 1 in ") && said.contains("\nseendb ingest chain: line 3: an event begins"),
        "{said}"
    );
    assert!(said.ends_with("--skip-bad passes over such lines and counts them\n"), "{said}");
    let client = &mut server.client();
    assert_eq!(client.cmd("CHAIN.MEXISTS seen:1 1 2"), Value::Array(vec![Value::Int(1), Value::Int(0)]));
    let said = ingest_to(0, &folder.events, &url(&server), &[&WINDOW[..], &["--skip-bad"]].concat());
    let wanted = "new: 2\nknown: 1\nrefused: 0\nbad lines, passed over: 3\n  line 3: an event begins with {\n  \
                  line 5: missing field `time`\n  line 6: invalid type: floating point `2.5`, expected text or a \
                  whole number of 64 bits, at byte 23\n";
    assert!(said.contains(wanted), "{said}");
    assert_eq!(client.cmd("CHAIN.CARD seen:1").int(), 3);
}

#[test]
fn refused_events_are_counted_with_their_reasons() {
    let server = Server::start();
    let client = &mut server.client();
    assert_eq!(client.cmd("BF.ADD seen:other x"), Value::Int(1));
    let (old, now) = (1_700_000_000_000_u64, 1_700_000_000_000 + 40 * DAY_MS);
    let lines = format!(
        "{{\"user\": 1, \"item\": 1, \"time\": {now}}}\n{{\"user\": 1, \"item\": 2, \"time\": {old}}}\n\
         {{\"user\": 1, \"item\": 3, \"time\": {old}}}\n{{\"user\": \"other\", \"item\": 3, \"time\": {now}}}\n\
         {{\"user\": 2, \"item\": 3, \"time\": {old}}}\n"
    );
    let folder = folder(&lines);
    let said = ingest_to(1, &folder.events, &url(&server), &WINDOW);
    assert!(said.contains("new: 2\nknown: 0\nrefused: 3\n"), "{said}");
    assert!(said.contains("  line 2, \"seen:1\": ERR event is older than the window\n  line 3,"), "{said}");
    assert!(said.contains("  line 4, \"seen:other\": WRONGTYPE"), "{said}");
    // By the server's clock, all of them are of the past; without rings, none is made.
    client.cmd("FLUSHALL");
    let said = ingest_to(1, &folder.events, &url(&server), &["--window", "60"]);
    assert!(said.contains("refused: 5\n  line 1, \"seen:1\": ERR event is older than the window\n"), "{said}");
    let said = ingest_to(1, &folder.events, &url(&server), &["--no-create"]);
    assert!(said.contains("refused: 5\n  line 1, \"seen:1\": ERR not found\n"), "{said}");
    assert_eq!(client.cmd("DBSIZE").int(), 0);
}

#[test]
fn a_run_of_which_nothing_was_taken_is_sent_again_and_refused_events_stay_counted() {
    let server = Server::start();
    let (lines, seen) = events(1_000, 9);
    let folder = folder(&lines);
    let resume = ["--resume", text(&folder.place)];
    // --window is forgotten.
    let said = ingest_to(1, &folder.events, &url(&server), &resume);
    assert!(said.contains("refused: 1000\n") && said.contains("ERR AT needs a window\n"), "{said}");
    assert!(said.contains("give --window SECONDS, or --no-time\n"), "{said}");
    assert!(said.contains("a run with the same file of --resume sends them again\n"), "{said}");
    let right = [&WINDOW[..], &resume].concat();
    let said = ingest_to(0, &folder.events, &url(&server), &right);
    assert!(said.starts_with("events: 1000 in ") && !said.contains("earlier runs"), "{said}");
    assert_all_there(&mut server.client(), &seen);
    // One event of those that came later is refused, and is not forgotten.
    let more = "{\"user\": 0, \"item\": 1, \"time\": 5}\n{\"user\": 0, \"item\": 1, \"time\": 1703000000000}\n";
    std::fs::write(&folder.events, lines.clone() + more).unwrap();
    let said = ingest_to(1, &folder.events, &url(&server), &right);
    assert!(said.contains("refused: 1\n") && said.contains("does not send them again; delete it"), "{said}");
    let said = ingest_to(0, &folder.events, &url(&server), &right);
    assert!(said.starts_with("events: 0 in ") && said.contains("lines sent by earlier runs: 1002\n"), "{said}");
    assert!(said.contains("refused in earlier runs, and not sent again: 1 (delete the file of --resume"), "{said}");
}

#[test]
fn what_every_event_would_be_refused_for_is_told_before_any_is_sent() {
    let server = Server::start();
    let folder = folder(&events(10, 5).0);
    for (more, reason) in [
        (&["--capacity", "0"][..], "ERR capacity must be in the range"),
        (&["--bounded"], "ERR BOUNDED needs WINDOW"),
        (&["--links", "many"], "ERR bad links"),
        (&["--dual", "--window", "5"], "with 'DUAL'"),
    ] {
        let said = ingest_to(1, &folder.events, &url(&server), more);
        assert!(said.starts_with("seendb ingest chain: the server says: ERR") && said.contains(reason), "{said}");
    }
    let said = ingest_to(1, &folder.events, &format!("redis://127.0.0.1:{}", free_port()), &[]);
    assert!(said.starts_with("seendb ingest chain: cannot connect to 127.0.0.1:"), "{said}");
    let said = ingest_to(1, Path::new("/nowhere"), &url(&server), &[]);
    assert!(said.starts_with("seendb ingest chain: /nowhere: "), "{said}");
    assert_eq!(server.client().cmd("DBSIZE").int(), 0);
}

#[test]
fn a_server_that_is_full_ends_the_run_and_the_next_one_goes_on() {
    let server = Server::start();
    let client = &mut server.client();
    let (lines, seen) = events(100_000, 6);
    let folder = folder(&lines);
    let resume = [&WINDOW[..], &["--resume", text(&folder.place)]].concat();
    let used = client.cmd("INFO memory").text();
    let used: u64 = used.lines().find_map(|line| line.strip_prefix("used_memory:")).unwrap().parse().unwrap();
    client.cmd(&format!("CONFIG SET maxmemory {}", used + 100_000));
    let said = ingest_to(1, &folder.events, &url(&server), &resume);
    assert!(said.contains("the server says: OOM") && said.contains("raise 'maxmemory'"), "{said}");
    assert!(said.contains("refused: 0\n") && said.ends_with("The same command goes on from here.\n"), "{said}");
    client.cmd("CONFIG SET maxmemory 0");
    ingest_to(0, &folder.events, &url(&server), &resume);
    assert_all_there(client, &seen);
}

/// Lets a connection to the server through until so many bytes came back, then cuts it.
fn cut_after(server: &Server, bytes: usize) -> u16 {
    let (listener, port) = (TcpListener::bind("127.0.0.1:0").unwrap(), server.port());
    let own = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let (mut near, _) = listener.accept().unwrap();
        let mut far = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let (mut near2, mut far2) = (near.try_clone().unwrap(), far.try_clone().unwrap());
        std::thread::spawn(move || std::io::copy(&mut near2, &mut far2));
        let (mut left, mut buffer) = (bytes, [0; 4096]);
        while left > 0 {
            let len = far.read(&mut buffer).unwrap().min(left);
            near.write_all(&buffer[..len]).unwrap();
            left -= len;
        }
        let _ = (near.shutdown(std::net::Shutdown::Both), far.shutdown(std::net::Shutdown::Both));
    });
    own
}

#[test]
fn a_lost_server_ends_the_run_and_the_next_one_goes_on() {
    let server = Server::start();
    let (lines, seen) = events(20_000, 7);
    let folder = folder(&lines);
    // The address belongs to the place: a file of each address would begin anew, so the cut is between.
    let mut place = Vec::new();
    for bytes in [30_000, 7, 40_001] {
        let own = format!("redis://127.0.0.1:{}", cut_after(&server, bytes));
        if !place.is_empty() {
            std::fs::write(&folder.place, moved(&place, &own)).unwrap();
        }
        let said = ingest_to(1, &folder.events, &own, &[&WINDOW[..], &["--resume", text(&folder.place)]].concat());
        let lost = said.contains("the connection to 127.0.0.1:") || said.contains("cannot connect");
        assert!(lost && said.ends_with("The same command goes on from here.\n"), "{said}");
        place = std::fs::read(&folder.place).unwrap();
    }
    std::fs::write(&folder.place, moved(&place, &url(&server))).unwrap();
    let began = Instant::now();
    let said = ingest_to(0, &folder.events, &url(&server), &[&WINDOW[..], &["--resume", text(&folder.place)]].concat());
    assert!(!said.starts_with("events: 20000 ") && began.elapsed() < Duration::from_secs(20), "{said}");
    assert_all_there(&mut server.client(), &seen);
}

/// The file of `--resume` as if it had been kept for this address.
fn moved(place: &[u8], into: &str) -> String {
    let text = std::str::from_utf8(place).unwrap();
    let into = into.strip_prefix("redis://").unwrap();
    let lines =
        text.lines().map(|line| if line.starts_with("into ") { format!("into {into}/0") } else { line.to_owned() });
    lines.collect::<Vec<_>>().join("\n") + "\n"
}

#[test]
fn rates_are_bounded_and_progress_is_told() {
    let server = Server::start();
    let folder = folder(&events(600, 8).0);
    let began = Instant::now();
    let said = ingest_to(0, &folder.events, &url(&server), &[&WINDOW[..], &["--rate", "1000", "--progress"]].concat());
    assert!(began.elapsed() >= Duration::from_millis(500), "{:?}", began.elapsed());
    assert!(said.contains("events: 600 in "), "{said}");
}
