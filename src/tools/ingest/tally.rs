//! What came of the events.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::tools::meter::amount;
use crate::tools::names::shown;

/// So many refused events, and bad lines, are named.
const NAMED: usize = 10;

/// A line that is no event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadLine {
    /// Its number, the first is 1.
    pub line: u64,
    /// What is wrong with it.
    pub reason: String,
}

impl fmt::Display for BadLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.reason)
    }
}

/// What came of all events of a run.
#[derive(Debug, Default)]
pub struct Tally {
    /// Items that their rings did not know.
    pub new: u64,
    /// Items that they knew.
    pub known: u64,
    /// Events that the server did not take.
    pub refused: u64,
    /// Some of these: line, key, and what the server said.
    pub examples: Vec<(u64, String, String)>,
    /// Lines that are no events.
    pub bad: u64,
    /// Some of these.
    pub bad_lines: Vec<BadLine>,
    /// Lines that earlier runs had sent.
    pub before: u64,
    /// Events among these that the server had refused.
    pub refused_before: u64,
}

impl Tally {
    /// The server did not take the event of a line.
    pub fn refuse(&mut self, line: u64, key: &[u8], text: &str) {
        self.refused += 1;
        if self.examples.len() < NAMED {
            self.examples.push((line, shown(key), text.to_owned()));
        }
    }

    /// A line was passed over.
    pub fn pass_over(&mut self, bad: BadLine) {
        self.bad += 1;
        if self.bad_lines.len() < NAMED {
            self.bad_lines.push(bad);
        }
    }

    /// Events that the server took.
    pub fn taken(&self) -> u64 {
        self.new + self.known
    }

    /// Events that were answered.
    pub fn events(&self) -> u64 {
        self.taken() + self.refused
    }

    /// The lines at the end. `resumable`: how far it came is kept.
    pub fn summary(&self, took: Duration, resumable: bool) -> String {
        let seconds = took.as_secs_f64();
        let rate = self.events() as f64 / seconds.max(0.001);
        let mut text = format!("events: {} in {seconds:.1} s ({rate:.0}/s)\n", self.events());
        text += &format!("new: {}\nknown: {}\nrefused: {}\n", self.new, self.known, self.refused);
        for (line, key, reason) in &self.examples {
            text += &format!("  line {line}, {key}: {reason}\n");
        }
        text += &more(self.refused, self.examples.len());
        if let Some(advice) = self.examples.iter().find_map(|(_, _, reason)| advice(reason)) {
            text += &format!("  {advice}\n");
        }
        if resumable && self.refused > 0 {
            text += match self.taken() {
                0 => "  no event was taken: a run with the same file of --resume sends them again\n",
                _ => "  a run with the same file of --resume does not send them again; delete it to send all events\n",
            };
        }
        if self.bad > 0 {
            text += &format!("bad lines, passed over: {}\n", self.bad);
            self.bad_lines.iter().for_each(|bad| text += &format!("  {bad}\n"));
            text += &more(self.bad, self.bad_lines.len());
        }
        if self.before > 0 {
            text += &format!("lines sent by earlier runs: {}\n", self.before);
        }
        if self.refused_before > 0 {
            text += &format!(
                "refused in earlier runs, and not sent again: {} (delete the file of --resume to send all events)\n",
                self.refused_before
            );
        }
        text
    }
}

/// What may have been forgotten on the command line, if the server refused an event for this.
fn advice(reason: &str) -> Option<&'static str> {
    match reason {
        "ERR AT needs a window" => Some("rings without a window take no times: give --window SECONDS, or --no-time"),
        "ERR AT is needed by this filter's clock" => {
            Some("rings with the clock of events need times: leave --no-time out")
        }
        "ERR not found" => Some("--no-create makes no rings"),
        _ => None,
    }
}

fn more(all: u64, named: usize) -> String {
    match all - named as u64 {
        0 => String::new(),
        more => format!("  and {more} more\n"),
    }
}

/// How far a run is, for whoever watches it.
#[derive(Debug, Default)]
pub struct Progress {
    /// Events that were answered.
    pub events: AtomicU64,
    /// Bytes of the input up to there, those of earlier runs included.
    pub bytes: AtomicU64,
    /// All bytes, if that is known.
    pub all_bytes: AtomicU64,
}

impl Progress {
    /// The line of a run that took so long.
    pub fn line(&self, took: Duration) -> String {
        let [events, bytes, all] =
            [&self.events, &self.bytes, &self.all_bytes].map(|number| number.load(Ordering::Relaxed));
        let rate = events as f64 / took.as_secs_f64().max(0.001);
        let part = match all {
            0 => amount(bytes),
            _ => format!("{} of {} ({}%)", amount(bytes), amount(all), bytes.min(all) * 100 / all),
        };
        format!("{events} events, {part}, {rate:.0} events/s")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_names_ten_of_the_refused() {
        let mut tally = Tally { new: 5, known: 2, before: 3, ..Tally::default() };
        (1..=12).for_each(|line| tally.refuse(line, b"seen:u", "ERR no"));
        tally.pass_over(BadLine { line: 4, reason: "EOF".to_owned() });
        let text = tally.summary(Duration::from_secs(1), false);
        let head = "events: 19 in 1.0 s (19/s)\nnew: 5\nknown: 2\nrefused: 12\n  line 1, \"seen:u\": ERR no\n";
        let tail = "  and 2 more\nbad lines, passed over: 1\n  line 4: EOF\nlines sent by earlier runs: 3\n";
        assert!(text.starts_with(head) && text.ends_with(tail), "{text}");
    }

    #[test]
    fn progress_tells_part_and_speed() {
        let progress = Progress { events: 500.into(), bytes: 1_500.into(), all_bytes: 3_000.into() };
        let line = progress.line(Duration::from_secs(2));
        assert_eq!(line, "500 events, 1.5 kB of 3.0 kB (50%), 250 events/s");
    }
}
