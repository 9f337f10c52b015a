//! Runs that end before their end.

use super::fake::Between;
use super::support::{Random, Server};
use super::{all_seen, assert_same, copy_all, copy_fails, make_random, printed, tool, url};
use std::time::{Duration, Instant};

/// Kills the tool at random moments until a run comes to its end. `pieces` is the size from which filters go in pieces.
fn kill_until_done(pieces: &str, seed: u64) {
    let (from, to) = (Server::peer(), Server::start());
    let (mut source, random) = (from.client(), &mut Random::new(seed));
    for number in 0..600 {
        make_random(&mut source, random, number);
    }
    let before = all_seen(&mut source);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("progress");
    let (from_url, to_url) = (url(from.port()), url(to.port()));
    let args = [&from_url, &to_url, "--resume", file.to_str().unwrap(), "--pieces-from", pieces];
    let (mut killed, mut halfway) = (0, 0);
    let last = loop {
        let mut child = tool(&args).spawn().expect("the program starts");
        let end = Instant::now() + Duration::from_micros(2000 + random.below(25_000) as u64);
        while Instant::now() < end && child.try_wait().expect("the child can be asked").is_none() {
            std::thread::sleep(Duration::from_micros(200));
        }
        // On a slow machine no run would ever come to its end.
        if killed < 40 && child.try_wait().expect("the child can be asked").is_none() {
            child.kill().expect("it is killed");
            child.wait().expect("it ends");
            killed += 1;
            let there = to.client().cmd("DBSIZE").int();
            halfway += usize::from(there > 0 && there < 600);
            continue;
        }
        break child.wait_with_output().expect("the child's output");
    };
    assert!(last.status.success(), "{}", printed(&last));
    eprintln!("killed {killed} times, {halfway} of them in the middle");
    assert_same(&before, &all_seen(&mut to.client()));
    assert_eq!(to.client().cmd("DBSIZE"), 600);
    // What is finished is not copied again.
    let text = copy_all(&from_url, &to_url, &args[2..]);
    assert!(text.contains("filters copied: 0, ") && text.contains("copied by an earlier run: 600\n"), "{text}");
}

#[test]
fn killed_runs_go_on_and_end_equal() {
    kill_until_done("64mb", 1);
}

#[test]
fn killed_runs_in_pieces_go_on_and_end_equal() {
    kill_until_done("100", 2);
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
    assert!(text.contains("it belongs to a copy from"), "{text}");
    let port = between.port();
    drop(between);
    let between = Between::start_at(port, from.port(), |_| true);
    let text = copy_all(&url(between.port()), &url(to.port()), &resume);
    assert!(text.contains(&format!("copied by an earlier run: {there}\n")), "{text}");
    assert_same(&all_seen(&mut source), &all_seen(&mut to.client()));
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
    super::support::wait_until("the first group", || to.client().cmd("DBSIZE").int() > 0);
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
