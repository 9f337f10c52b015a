//! Requests sent as users send a log: by `redis-cli --pipe`.

use std::io::Write;
use std::process::{Command, Stdio};

/// Sends requests to the server at this port of 127.0.0.1; none may fail.
#[track_caller]
pub fn pipe(port: u16, requests: &[u8]) {
    let mut child = Command::new("redis-cli")
        .args(["-p", &port.to_string(), "--pipe"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("redis-cli");
    let mut input = child.stdin.take().expect("a pipe");
    let requests = requests.to_vec();
    let writer = std::thread::spawn(move || input.write_all(&requests));
    let output = child.wait_with_output().expect("the output of redis-cli");
    writer.join().expect("no panic").expect("all is sent");
    let printed = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(printed.contains("errors: 0,"), "{printed}");
}
