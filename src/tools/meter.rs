//! How far long work is, in one line of a terminal.

use std::io::{self, IsTerminal as _, Write};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// The line is written anew so often; work that is done earlier says nothing.
const EVERY: Duration = Duration::from_millis(200);
/// What is no terminal gets a new line so often, if it is to have any.
const EVERY_LINE: Duration = Duration::from_secs(5);

/// Does the work. Meanwhile `look` is asked how much of how much is done, and standard error shows it if it is a terminal.
pub fn watch<R>(what: &str, look: impl Fn() -> (u64, u64) + Sync, work: impl FnOnce() -> R) -> R {
    let told = |took| {
        let (done, all) = look();
        line(what, done, all, took)
    };
    watch_line(false, told, work)
}

/// The same for work that says itself how far it is, after so long. `asked`: also where standard error is no terminal.
pub fn watch_line<R>(asked: bool, line: impl Fn(Duration) -> String + Sync, work: impl FnOnce() -> R) -> R {
    let terminal = io::stderr().is_terminal();
    if !terminal && !asked {
        return work();
    }
    let (every, before, after) = if terminal { (EVERY, "\r", "\x1b[K") } else { (EVERY_LINE, "", "\n") };
    let (working, over) = channel::<()>();
    std::thread::scope(|scope| {
        let line = &line;
        scope.spawn(move || {
            let began = Instant::now();
            while matches!(over.recv_timeout(every), Err(RecvTimeoutError::Timeout)) {
                // Who does not listen does not stop the work.
                let _ = write!(io::stderr(), "{before}{}{after}", line(began.elapsed()));
            }
            if terminal && began.elapsed() >= every {
                let _ = write!(io::stderr(), "\r\x1b[K");
            }
        });
        let result = work();
        drop(working);
        result
    })
}

fn line(what: &str, done: u64, all: u64, took: Duration) -> String {
    let rate = amount((done as f64 / took.as_secs_f64().max(0.001)) as u64);
    match all {
        0 => format!("{what}: {}, {rate}/s", amount(done)),
        _ => format!("{what}: {} of {} ({}%), {rate}/s", amount(done), amount(all), done.min(all) * 100 / all),
    }
}

/// An amount of bytes, as people say it.
pub fn amount(bytes: u64) -> String {
    let number = bytes as f64;
    match bytes {
        ..1_000 => format!("{bytes} bytes"),
        1_000..1_000_000 => format!("{:.1} kB", number / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", number / 1e6),
        _ => format!("{:.2} GB", number / 1e9),
    }
}

/// A number of things, in words: `1 key`, `2 keys`.
pub fn count(number: u64, thing: &str) -> String {
    match number {
        1 => format!("1 {thing}"),
        _ if thing.ends_with("ch") => format!("{number} {thing}es"),
        _ => format!("{number} {thing}s"),
    }
}

/// A question for whoever sits at the terminal; none is asked, and nothing answered, if nobody does.
pub fn confirm(question: &str) -> Option<bool> {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return None;
    }
    let _ = write!(io::stderr(), "{question} [y/N] ");
    let mut answer = String::new();
    let read = io::stdin().read_line(&mut answer);
    Some(read.is_ok() && matches!(answer.trim(), "y" | "Y" | "yes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_tells_part_and_speed() {
        let second = Duration::from_secs(1);
        assert_eq!(line("reading", 1_500, 3_000, second), "reading: 1.5 kB of 3.0 kB (50%), 1.5 kB/s");
        assert_eq!(line("fetching", 2_500_000, 0, second), "fetching: 2.5 MB, 2.5 MB/s");
        assert_eq!(
            (count(1, "key"), count(0, "key"), count(2, "batch")),
            ("1 key".into(), "0 keys".into(), "2 batches".into())
        );
    }
}
