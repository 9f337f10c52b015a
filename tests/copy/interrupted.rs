//! Runs that end before their end.

use super::fake::Between;
use super::families::{assert_equal, everything, make_other};
use super::support::{Client, Random, Server, wait_until};
use super::{all_seen, assert_same, copy_all, copy_fails, make_random, printed, tool, url};
use std::os::unix::process::ExitStatusExt as _;
use std::process::Child;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Keys of a run that is killed.
const KEYS: usize = 1200;

/// A Redis with that many random filters.
fn redis(seed: u64) -> Server {
    let from = Server::peer();
    let (mut source, random) = (from.client(), &mut Random::new(seed));
    (0..KEYS).for_each(|number| drop(make_random(&mut source, random, number)));
    from
}

/// Kills the tool when it has sent the target a random number of pieces of its requests, the last of which still arrives, until
/// a run comes to its end. `pieces` is the size from which filters go in pieces.
fn kill_until_done(from: &Server, pieces: &str, seed: u64) {
    let to = Server::start();
    let (mut source, random) = (from.client(), &mut Random::new(seed));
    let look = |client: &mut Client| {
        let mut others = everything(client);
        // Payloads of Bloom filters are not the same to the byte in Redis and SeenDB.
        others.retain(|_, (kind, ..)| kind != "MBbloom--");
        (all_seen(client), others)
    };
    let before = look(&mut source);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("progress");
    // The process to be killed, and after how many pieces.
    let victim: Arc<Mutex<Option<(Child, usize)>>> = Arc::default();
    let armed = Arc::clone(&victim);
    let between = Between::start(to.port(), move |_| {
        match &mut *armed.lock().expect("no test has failed") {
            Some((child, 0)) => child.kill().expect("it is killed"),
            Some((_, left)) => *left -= 1,
            None => {}
        }
        true
    });
    let (from_url, to_url) = (url(from.port()), url(between.port()));
    let args = [&from_url, &to_url, "--resume", file.to_str().unwrap(), "--pieces-from", pieces];
    let (mut killed, mut halfway) = (0, 0);
    let last = loop {
        // A run that is left alone ends it, however many there were.
        let after = if killed < 60 { 5 + random.below(8) } else { usize::MAX };
        *victim.lock().expect("no test has failed") = Some((tool(&args).spawn().expect("the program starts"), after));
        wait_until("the end of the run", || {
            let mut victim = victim.lock().expect("no test has failed");
            victim.as_mut().is_none_or(|(child, _)| child.try_wait().expect("the child can be asked").is_some())
        });
        let ended = victim.lock().expect("no test has failed").take();
        let output = ended.expect("the child").0.wait_with_output().expect("the child's output");
        if output.status.signal() != Some(libc::SIGKILL) {
            break output;
        }
        killed += 1;
        halfway += usize::from((1..KEYS as i64).contains(&to.client().cmd("DBSIZE").int()));
    };
    eprintln!("killed {killed} times, {halfway} of them in the middle");
    assert!(halfway > 0, "killed {killed} times, never in the middle");
    assert!(last.status.success(), "{}", printed(&last));
    let after = look(&mut to.client());
    assert_same(&before.0, &after.0);
    assert_equal(&before.1, &after.1);
    assert_eq!(to.client().cmd("DBSIZE"), KEYS as i64);
    // What is finished is not copied again.
    let text = copy_all(&from_url, &to_url, &args[2..]);
    assert!(
        text.contains("filters copied: 0, ") && text.contains(&format!("copied by an earlier run: {KEYS}\n")),
        "{text}"
    );
}

#[test]
fn c135_killed_runs_go_on_and_end_equal() {
    kill_until_done(&redis(1), "64mb", 1);
}

#[test]
fn killed_runs_in_pieces_go_on_and_end_equal() {
    kill_until_done(&redis(2), "100", 2);
}

#[test]
fn killed_runs_with_all_families_go_on_and_end_equal() {
    for (pieces, seed) in [("64mb", 3), ("100", 4)] {
        let from = Server::start();
        let (mut source, random) = (from.client(), &mut Random::new(seed));
        (0..KEYS).for_each(|number| match number % 4 {
            0 => drop(make_random(&mut source, random, number)),
            _ => make_other(&mut source, random, number),
        });
        kill_until_done(&from, pieces, seed);
    }
}

#[test]
fn a_lost_connection_ends_the_run_and_the_next_goes_on() {
    let (from, to) = (Server::start(), Server::peer());
    let (mut source, random) = (from.client(), &mut Random::new(3));
    for number in 0..500 {
        make_random(&mut source, random, number);
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("progress");
    let resume = ["--resume", file.to_str().unwrap()];
    // Some groups arrive, and the dumps of the next are not asked for.
    let mut target = to.client();
    let between = Between::start(from.port(), move |request| {
        !request.windows(4).any(|word| word == b"DUMP") || target.cmd("DBSIZE").int() < 150
    });
    let text = copy_fails(&url(between.port()), &url(to.port()), &resume);
    assert!(text.contains("was lost") && text.contains("The same command goes on from here."), "{text}");
    let there = to.client().cmd("DBSIZE").int();
    assert!((1..500).contains(&there), "{there}");
    // The file belongs to the other address.
    let text = copy_fails(&url(from.port()), &url(to.port()), &resume);
    assert!(text.contains("it belongs to a copy from") && text.contains("\nName another file, or delete"), "{text}");
    let port = between.port();
    drop(between);
    let between = Between::start_at(port, from.port(), |_| true);
    let text = copy_all(&url(between.port()), &url(to.port()), &resume);
    assert!(text.contains(&format!("copied by an earlier run: {there}\n")), "{text}");
    assert_same(&all_seen(&mut source), &all_seen(&mut to.client()));
}

#[test]
fn what_the_target_has_lost_is_copied_again() {
    let (from, to) = (Server::start(), Server::start());
    let (mut source, random) = (from.client(), &mut Random::new(5));
    for number in 0..250 {
        make_random(&mut source, random, number);
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("progress");
    let resume = ["--resume", file.to_str().unwrap()];
    copy_all(&url(from.port()), &url(to.port()), &resume);
    // As after a restart of a target that had not saved all of it.
    let names: Vec<Vec<u8>> = all_seen(&mut source).into_keys().collect();
    let mut target = to.client();
    let lost = &names[..100];
    lost.iter().for_each(|name| assert_eq!(target.call(&[&b"DEL"[..], name]), 1));
    let text = copy_all(&url(from.port()), &url(to.port()), &resume);
    assert!(text.starts_with("filters copied: 100, ") && text.contains("copied by an earlier run: 150\n"), "{text}");
    assert!(text.contains("not at the target any more, so copied again: 100\n"), "{text}");
    assert_same(&all_seen(&mut source), &all_seen(&mut to.client()));
    let text = copy_all(&url(from.port()), &url(to.port()), &resume);
    assert!(text.starts_with("filters copied: 0, ") && text.contains("copied by an earlier run: 250\n"), "{text}");
}

#[test]
fn a_signal_ends_the_run_between_two_groups() {
    let (from, to) = (Server::start(), Server::start());
    let (mut source, random) = (from.client(), &mut Random::new(4));
    for number in 0..500 {
        make_random(&mut source, random, number);
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("progress");
    // After the first group the source answers only when the signal was sent.
    let (tell, told) = std::sync::mpsc::channel::<()>();
    let (mut target, mut waited) = (to.client(), false);
    let between = Between::start(from.port(), move |request| {
        let dumps = request.windows(4).any(|word| word == b"DUMP");
        if dumps && !waited && target.cmd("DBSIZE").int() > 0 {
            told.recv().expect("the test goes on");
            waited = true;
        }
        true
    });
    let (from_url, to_url) = (url(between.port()), url(to.port()));
    let args = [&from_url, &to_url, "--resume", file.to_str().unwrap()];
    let child = tool(&args).spawn().expect("the program starts");
    wait_until("the first group", || to.client().cmd("DBSIZE").int() > 0);
    // SAFETY: the process is a child of ours that was not waited for yet, so the number is its own.
    assert_eq!(unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGINT) }, 0);
    // The flag is up some time after the signal; a group more does no harm, all of them would.
    std::thread::sleep(Duration::from_millis(50));
    tell.send(()).expect("the proxy listens");
    let output = child.wait_with_output().expect("the child's output");
    let text = printed(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("interrupted\nThe same command goes on from here."), "{text}");
    assert!(to.client().cmd("DBSIZE").int() < 500);
    copy_all(&from_url, &to_url, &args[2..]);
    assert_same(&all_seen(&mut source), &all_seen(&mut to.client()));
}
