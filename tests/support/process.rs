//! The program as a process: runs that end by themselves, signals, open files, figures of `INFO`.

#![allow(dead_code, reason = "every test program uses another part of this module")]

use super::support::{Client, Server};
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Runs `seendb` with these words until it ends, which it must within 30 seconds.
#[track_caller]
pub fn run(args: &[&str], input: &[u8], dir: &Path) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_seendb"))
        .args(args)
        .current_dir(dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    // A program that ends without reading its input is no failure here.
    let _ = child.stdin.take().expect("a pipe").write_all(input);
    let end = Instant::now() + Duration::from_secs(30);
    while child.try_wait().expect("the child can be asked").is_none() {
        if Instant::now() > end {
            let _ = child.kill();
            let output = child.wait_with_output().expect("the child's output");
            panic!("it runs on: {args:?}: {}", String::from_utf8_lossy(&output.stderr));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().expect("the child's output")
}

/// Sends a signal to a server that this test started.
pub fn signal(server: &Server, signal: libc::c_int) {
    // SAFETY: the process is a child of ours that was not waited for yet, so the number is its own.
    let sent = unsafe { libc::kill(server.pid() as libc::pid_t, signal) };
    assert_eq!(sent, 0, "the server is there");
}

/// Raises this process's limit of open files as far as it goes; returns the limit.
pub fn raise_open_files() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the calls read and fill in the structure they are given.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit), 0);
        limit.rlim_cur = limit.rlim_max;
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit), 0);
    }
    limit.rlim_cur
}

/// A field of `INFO`.
#[track_caller]
pub fn info(client: &mut Client, field: &str) -> String {
    let text = client.cmd("INFO").text();
    let value = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    value.unwrap_or_else(|| panic!("no {field} in {text}")).to_string()
}

/// A number of `INFO`.
#[track_caller]
pub fn figure(client: &mut Client, field: &str) -> u64 {
    let text = info(client, field);
    text.parse().unwrap_or_else(|_| panic!("{field} is {text}"))
}
