//! What the lists of millions of users keep resident, in a hash table by user.
//!
//! Each kind has a process of its own, so that none begins in what another left. All users read in turn, ten articles at most, so that
//! the lists grow beside each other as in life.

use std::collections::HashMap;
use std::process::{Command, Stdio};

use super::lists::{KINDS, Kind, Seen};
use super::picture::with_commas;
use super::{LEVELS, article};

/// Figures are taken at the first so many levels: beyond them no list grows.
const LEVELS_MEASURED: usize = 7;
/// For so many users the figures are told besides.
const PROJECTED: f64 = 10e6;
/// Articles that a user reads before it is the next one's turn.
const AT_ONCE: usize = 10;

/// Bytes a user of each kind, at each level.
pub struct Resident {
    /// So many users of each kind.
    pub users: Vec<usize>,
    /// By kind and level.
    pub bytes: Vec<Vec<f64>>,
}

type Failure = Box<dyn std::error::Error>;

/// Bytes that a list takes at most, roughly.
fn most_bytes(kind: Kind) -> usize {
    match kind {
        Kind::Queue => 5000,
        Kind::Dual => 1600,
        Kind::Single | Kind::Chain | Kind::SizedChain => 1100,
    }
}

/// What a user has in the table.
enum Held {
    /// The queue, or the ring as the server keeps it.
    Seen(Seen),
    /// Plain arrays of the article's sizes, each an allocation.
    Arrays(Vec<Box<[u8]>>),
}

impl Held {
    fn new(kind: Kind) -> Self {
        match kind {
            Kind::Queue | Kind::SizedChain => Self::Seen(Seen::new(kind)),
            _ => Self::Arrays(Vec::new()),
        }
    }

    /// The user reads these articles, which are new to him, and had read so many by then.
    fn read(&mut self, kind: Kind, articles: impl Iterator<Item = u64>, read: usize) {
        let (arrays, bytes) = match kind {
            Kind::Single => (1, 4064 / 8),
            Kind::Dual => (if read < 300 { 1 } else { 2 }, 4064 / 8),
            _ => (read.div_ceil(100).min(5), 812_usize.div_ceil(8)),
        };
        match self {
            Self::Seen(seen) => articles.for_each(|article| seen.read_new(article)),
            // What they hold makes no difference, but it has to be written to be resident.
            Self::Arrays(held) => held.resize_with(arrays, || vec![0xa5; bytes].into()),
        }
    }
}

/// A number of a file of `/proc`, behind this word.
fn proc_bytes(file: &str, word: &str) -> Result<usize, Failure> {
    let text = std::fs::read_to_string(file)?;
    let line = text.lines().find_map(|line| line.strip_prefix(word)).ok_or(format!("{file} has no {word}"))?;
    Ok(line.trim().trim_end_matches(" kB").parse::<usize>()? << 10)
}

/// Measures all kinds with so many users, or with as many as fit in three quarters of the memory.
pub fn measure(users: usize, seed: u64) -> Result<Resident, Failure> {
    let mut resident = Resident { users: Vec::new(), bytes: Vec::new() };
    for (index, (kind, ..)) in KINDS.iter().enumerate() {
        let fit = proc_bytes("/proc/meminfo", "MemAvailable:")? / 4 * 3 / most_bytes(*kind);
        let users = users.min(fit);
        let words = ["--resident-of", &index.to_string(), "--users", &users.to_string(), "--seed", &seed.to_string()];
        let child = Command::new(std::env::current_exe()?).args(words).stderr(Stdio::inherit()).output()?;
        if !child.status.success() {
            return Err(format!("the process that measured '{}' ended: {}", KINDS[index].1, child.status).into());
        }
        let bytes: Result<Vec<f64>, _> = String::from_utf8(child.stdout)?.split_whitespace().map(str::parse).collect();
        resident.users.push(users);
        resident.bytes.push(bytes?);
    }
    Ok(resident)
}

/// Measures one kind in this process, and prints its figures.
pub fn measure_here(kind: usize, users: usize, seed: u64) -> Result<(), Failure> {
    let (kind, name, _) = *KINDS.get(kind).ok_or("there is no such kind")?;
    let rss = || proc_bytes("/proc/self/status", "VmRSS:");
    let (empty, mut all) = (rss()?, HashMap::<usize, Held>::new());
    let mut from = 0;
    for to in LEVELS.into_iter().take(LEVELS_MEASURED) {
        while from < to {
            let until = to.min(from + AT_ONCE);
            for user in 0..users {
                if user % 100_000 == 0 {
                    eprint!("\r{name}: {} articles, {} of {} users        ", until, user, users);
                }
                let held = all.entry(user).or_insert_with(|| Held::new(kind));
                held.read(kind, (from..until).map(|number| article(seed, user, number)), until);
            }
            from = until;
        }
        println!("{}", rss()?.saturating_sub(empty) as f64 / users as f64);
    }
    eprint!("\r{:60}\r", "");
    Ok(())
}

impl Resident {
    /// A table.
    pub fn print(&self) {
        let users = self.users.iter().min().copied().unwrap_or_default();
        println!(
            "\nresident bytes a user in a hash table, {} users or more, after so many articles:\n",
            with_commas(users)
        );
        print!("{:<26}", "seen list");
        LEVELS.iter().take(LEVELS_MEASURED).for_each(|articles| print!(" {articles:>6}"));
        println!("   10,000,000 users with 500, projected");
        for ((_, name, _), bytes) in KINDS.iter().zip(&self.bytes) {
            print!("{name:<26}");
            bytes.iter().for_each(|bytes| print!(" {bytes:>6.0}"));
            println!("   {:>6.2} GB", bytes.last().unwrap_or(&0.0) * PROJECTED / 1e9);
        }
    }
}
