//! What came of the keys, and how far the copy is.

use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use crate::tools::families::Family;
use crate::tools::names::shown;

/// So many failed keys are named, and of each family that the target does not have.
const NAMED: usize = 10;
/// What to do about those.
const LEFT_ADVICE: &str = "\
They are at the source alone: copy them to a SeenDB before it is switched off. --families bf leaves them out.
";
/// A terminal's line is written anew, and a line appended to anything else, no more often.
const EVERY: [Duration; 2] = [Duration::from_millis(200), Duration::from_secs(5)];

/// What came of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is at the target; so many bytes were moved.
    Copied(u64),
    /// It ended, or was deleted, after it had been listed.
    Gone,
    /// The target has one of that name.
    Exists,
    /// It could not be moved.
    Refused(String),
}

/// What stays at the source because the target has nothing of its kind.
#[derive(Debug)]
pub struct Left {
    family: Family,
    /// Profiles of rings, not rings.
    profiles: bool,
    count: u64,
    /// The first of them.
    names: Vec<String>,
}

/// What came of all keys.
#[derive(Debug, Default)]
pub struct Tally {
    /// Filters that arrived.
    pub copied: u64,
    /// Bytes that were moved for them.
    pub bytes: u64,
    /// Keys that were gone when their turn came.
    pub gone: u64,
    /// Filters that did not arrive.
    pub failed: u64,
    /// Some of these, with the reason.
    pub examples: Vec<(String, String)>,
    /// Keys that an earlier run had copied.
    pub before: u64,
    /// Keys that an earlier run had copied and the target has lost.
    pub lost: u64,
    /// Keys of other types, if that is known.
    pub others: Option<u64>,
    /// Whether only some families were wanted, so that those are of the others too.
    pub chosen: bool,
    /// What the target cannot have.
    pub left: Vec<Left>,
    /// Profiles of rings that the target was given.
    pub profiles: u64,
    /// Those of them that have a key.
    pub keyed_profiles: u64,
    /// Those that it had already, with the same settings.
    pub same_profiles: u64,
    /// Profiles that are not looked at because only keys of some names are wanted.
    pub other_profiles: u64,
    /// Filters whose tightening ratio the target cannot have.
    pub other_tightening: u64,
    /// Whether only empty filters were made.
    pub empty: bool,
}

impl Tally {
    /// Takes a key in.
    pub fn add(&mut self, key: &[u8], outcome: Outcome) {
        let reason = match outcome {
            Outcome::Copied(bytes) => {
                self.copied += 1;
                self.bytes += bytes;
                return;
            }
            Outcome::Gone => {
                self.gone += 1;
                return;
            }
            Outcome::Exists => "exists at the target; --replace would replace it".to_owned(),
            Outcome::Refused(reason) => reason,
        };
        self.failed += 1;
        if self.examples.len() < NAMED {
            self.examples.push((shown(key), reason));
        }
    }

    /// Takes in a key of a family that the target does not have.
    pub fn leave(&mut self, family: Family, key: &[u8]) {
        self.leave_one(family, false, key);
    }

    /// Takes in a profile of rings, which the target does not have.
    pub fn leave_profile(&mut self, prefix: &[u8]) {
        self.leave_one(Family::Chain, true, prefix);
    }

    fn leave_one(&mut self, family: Family, profiles: bool, name: &[u8]) {
        let found = self.left.iter().position(|left| (left.family, left.profiles) == (family, profiles));
        let at = found.unwrap_or_else(|| {
            self.left.push(Left { family, profiles, count: 0, names: Vec::new() });
            self.left.len() - 1
        });
        let left = &mut self.left[at];
        left.count += 1;
        if left.names.len() < NAMED {
            left.names.push(shown(name));
        }
    }

    /// Whether the target has all that was to be moved.
    pub fn all_arrived(&self) -> bool {
        self.failed == 0 && self.left.is_empty()
    }

    /// Keys whose turn has come.
    pub fn looked_at(&self) -> u64 {
        let left = self.left.iter().filter(|left| !left.profiles).map(|left| left.count).sum::<u64>();
        self.copied + self.gone + self.failed + self.before + left
    }

    /// The lines at the end.
    pub fn summary(&self, took: Duration) -> String {
        let filters = if self.empty { "empty filters made" } else { "filters copied" };
        let rate = self.bytes as f64 / took.as_secs_f64().max(0.001);
        let mut text = format!("{filters}: {}", self.copied);
        if !self.empty {
            text += &format!(", {}", amount(self.bytes as f64));
        }
        text += &format!(" in {:.1} s", took.as_secs_f64());
        if !self.empty {
            text += &format!(" ({}/s)", amount(rate));
        }
        text.push('\n');
        let mut line = |what: &str, count: u64| {
            if count > 0 {
                text += &format!("{what}: {count}\n");
            }
        };
        line("copied by an earlier run", self.before);
        line("copied by an earlier run, not at the target any more, so copied again", self.lost);
        line("gone when their turn came", self.gone);
        line("profiles of rings copied", self.profiles);
        line("profiles with a key, copied as KEYED; a SEED is not told, set it again", self.keyed_profiles);
        line("profiles of rings that are the same at the target", self.same_profiles);
        line("profiles of rings, left where they are because of --match", self.other_profiles);
        let others = if self.chosen { "keys of other families and types" } else { "keys of other types" };
        line(&format!("{others}, left where they are"), self.others.unwrap_or(0));
        line("with another tightening ratio than 0.5, which is fixed at the target", self.other_tightening);
        line("failed", self.failed);
        for (name, reason) in &self.examples {
            text += &format!("  {name}: {reason}\n");
        }
        if self.failed > self.examples.len() as u64 {
            text += &format!("  and {} more\n", self.failed - self.examples.len() as u64);
        }
        self.left.iter().for_each(|left| text += &left.lines());
        if !self.left.is_empty() {
            text += LEFT_ADVICE;
        }
        text
    }
}

impl Left {
    fn lines(&self) -> String {
        let what = if self.profiles { "profiles of rings" } else { self.family.row().filters };
        let mut text = format!("{what} NOT copied, the target has no {}: {}\n", self.family.row().name, self.count);
        self.names.iter().for_each(|name| text += &format!("  {name}\n"));
        match self.count - self.names.len() as u64 {
            0 => text,
            more => text + &format!("  and {more} more\n"),
        }
    }
}

/// An amount of bytes, as people say it.
fn amount(bytes: f64) -> String {
    match bytes {
        ..1e3 => format!("{bytes:.0} bytes"),
        ..1e6 => format!("{:.1} kB", bytes / 1e3),
        ..1e9 => format!("{:.1} MB", bytes / 1e6),
        _ => format!("{:.2} GB", bytes / 1e9),
    }
}

/// Tells on standard error how far the copy is.
#[derive(Debug)]
pub struct Progress {
    terminal: bool,
    wanted: bool,
    began: Instant,
    told: Instant,
    /// Keys of the database when the copy began.
    keys: u64,
}

impl Progress {
    /// One that begins now. It says something if standard error is a terminal, or if that is asked for.
    pub fn new(asked: bool, keys: u64) -> Progress {
        let terminal = std::io::stderr().is_terminal();
        let now = Instant::now();
        Progress { terminal, wanted: terminal || asked, began: now, told: now, keys }
    }

    /// Since it began.
    pub fn took(&self) -> Duration {
        self.began.elapsed()
    }

    /// Says how far the copy is, if it has not just been said. `bytes` belong to a filter that is under way.
    pub fn tell(&mut self, tally: &Tally, bytes: u64) {
        if !self.wanted || self.told.elapsed() < EVERY[usize::from(!self.terminal)] {
            return;
        }
        self.told = Instant::now();
        let line = self.line(tally, bytes);
        let (before, after) = if self.terminal { ("\r", "\x1b[K") } else { ("", "\n") };
        // Who does not listen does not stop the copy.
        let _ = write!(std::io::stderr(), "{before}{line}{after}");
    }

    fn line(&self, tally: &Tally, bytes: u64) -> String {
        let (took, looked) = (self.took().as_secs_f64().max(0.001), tally.looked_at());
        let bytes = (tally.bytes + bytes) as f64;
        let mut line = format!(
            "{looked} of at most {} keys, {}, {}/s",
            self.keys.max(looked),
            amount(bytes),
            amount(bytes / took)
        );
        let fresh = looked - tally.before;
        if fresh > 0 && self.keys > looked {
            let left = took / fresh as f64 * (self.keys - looked) as f64;
            line += &format!(", about {left:.0} s left");
        }
        line
    }

    /// Leaves the line.
    pub fn end(&self) {
        if self.terminal {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_names_ten_of_the_failed() {
        let mut tally = Tally { others: Some(3), before: 7, ..Tally::default() };
        tally.add(b"a", Outcome::Copied(1500));
        tally.add(b"b", Outcome::Gone);
        assert!(tally.all_arrived());
        (0..12).for_each(|i: i32| tally.add(format!("k{i}").as_bytes(), Outcome::Exists));
        let text = tally.summary(Duration::from_secs(1));
        let head = "filters copied: 1, 1.5 kB in 1.0 s (1.5 kB/s)\ncopied by an earlier run: 7\n\
                    gone when their turn came: 1\nkeys of other types, left where they are: 3\nfailed: 12\n  \"k0\": exists";
        assert!(text.starts_with(head), "{text}");
        assert!(text.contains("\"k9\"") && !text.contains("\"k10\"") && text.ends_with("  and 2 more\n"), "{text}");
        assert_eq!(tally.looked_at(), 21);
    }

    #[test]
    fn what_the_target_cannot_have_is_named_by_family() {
        let mut tally = Tally { others: Some(2), chosen: true, ..Tally::default() };
        tally.leave_profile(b"read:");
        (0..11).for_each(|i: i32| tally.leave(Family::Chain, format!("r{i}").as_bytes()));
        tally.leave(Family::Cbf, b"c");
        assert!(!tally.all_arrived());
        assert_eq!(tally.looked_at(), 12);
        let text = tally.summary(Duration::from_secs(1));
        assert!(text.contains("\nkeys of other families and types, left where they are: 2\n"), "{text}");
        let named: String = (0..10).map(|i| format!("  \"r{i}\"\n")).collect();
        let end = format!(
            "\nprofiles of rings NOT copied, the target has no CHAIN: 1\n  \"read:\"\n\
             rings NOT copied, the target has no CHAIN: 11\n{named}  and 1 more\n\
             counting filters NOT copied, the target has no CBF: 1\n  \"c\"\n{LEFT_ADVICE}"
        );
        assert!(text.ends_with(&end), "{text}");
    }

    #[test]
    fn the_line_says_about_how_long_it_will_take() {
        let mut progress = Progress::new(true, 1000);
        progress.began -= Duration::from_secs(10);
        let tally = Tally { copied: 150, before: 100, bytes: 50_000_000, ..Tally::default() };
        let line = progress.line(&tally, 0);
        assert_eq!(line, "250 of at most 1000 keys, 50.0 MB, 5.0 MB/s, about 50 s left");
    }
}
