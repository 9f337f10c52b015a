//! The file of `--resume`: which keys are finished.
//!
//! A text file of lines. The first three say what it is and which copy it belongs to; then, as they come,
//!
//! | line | means |
//! | --- | --- |
//! | `begun NAME` | was not at the target, or is not there any more, and is now being written there |
//! | `done NAME` | is there |
//!
//! with names as [`encoded`] writes them. Lines are only appended, whole groups of them with one write, and a line without an end, as a
//! crash may leave it, does not count. So whatever happens the file says no more than is true. The names of all finished keys are
//! kept, not a cursor of SCAN: that loses its meaning when the source is started anew.
//!
//! A key that was begun and not finished may be at the target, put there by the run that was interrupted. The next run
//! replaces it: that is why `begun` is written only for keys of which the target had said that it has none.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ahash::RandomState;

use super::stop::Stop;
use crate::tools::address::Address;
use crate::tools::names::{decoded, encoded};

const TITLE: &str = "seendb copy 1";
/// After a crash of the machine so much work may be lost; after one of the program, nothing.
const SYNC_EVERY: Duration = Duration::from_secs(1);

/// A set of names that keeps 128 bits of each: of ten million names, two are taken for one in one of 10^24 runs.
#[derive(Debug)]
pub struct Names {
    names: HashSet<[u64; 2], RandomState>,
    hashes: [RandomState; 2],
}

impl Names {
    /// The empty set.
    pub fn new() -> Names {
        Names { names: HashSet::default(), hashes: [RandomState::with_seed(1), RandomState::with_seed(2)] }
    }

    fn hash(&self, name: &[u8]) -> [u64; 2] {
        self.hashes.each_ref().map(|state| state.hash_one(name))
    }

    /// Adds a name, and says whether it is new.
    pub fn insert(&mut self, name: &[u8]) -> bool {
        self.names.insert(self.hash(name))
    }

    /// Whether a name was added.
    pub fn contains(&self, name: &[u8]) -> bool {
        self.names.contains(&self.hash(name))
    }

    /// Takes a name out.
    pub fn remove(&mut self, name: &[u8]) {
        self.names.remove(&self.hash(name));
    }

    /// Number of names.
    pub fn count(&self) -> usize {
        self.names.len()
    }
}

impl Default for Names {
    fn default() -> Names {
        Names::new()
    }
}

/// What a file of progress says.
#[derive(Debug, Default)]
pub struct Past {
    /// Keys that are finished.
    pub done: Names,
    /// Keys that may or may not be at the target.
    pub begun: Names,
}

/// The file, being written.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    synced: Instant,
}

impl Journal {
    /// Opens the file, or makes it, and reads what it says.
    ///
    /// # Errors
    ///
    /// [`Stop::Journal`]: it cannot be used, is something else, belongs to another copy, or is in use.
    pub fn open(path: &Path, from: &Address, to: &Address) -> Result<(Journal, Past), Stop> {
        let fails = |error: std::io::Error| Stop::file(path, &error);
        let wrong = |reason: String| Stop::Journal { path: path.to_owned(), reason };
        let head = format!("{TITLE}\nfrom {from}\nto {to}\n");
        let mut options = OpenOptions::new();
        let mut file = options.read(true).write(true).create(true).truncate(false).open(path).map_err(fails)?;
        file.try_lock().map_err(|_| wrong("another copy is using it".to_owned()))?;
        let mut text = Vec::new();
        file.read_to_end(&mut text).map_err(fails)?;
        let mut past = Past::default();
        if text.is_empty() || head.as_bytes().starts_with(&text) {
            file.rewind()
                .and_then(|()| file.write_all(head.as_bytes()))
                .and_then(|()| file.sync_all())
                .map_err(fails)?;
        } else {
            let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            let lines = text[..whole].strip_prefix(head.as_bytes()).ok_or_else(|| wrong(foreign(&text, from, to)))?;
            let unread = || wrong("a line in it is not understood".to_owned());
            lines
                .split(|byte| *byte == b'\n')
                .filter(|line| !line.is_empty())
                .try_for_each(|line| past.take(line).ok_or_else(unread))?;
            file.set_len(whole as u64).map_err(fails)?;
            file.seek(SeekFrom::End(0)).map_err(fails)?;
        }
        Ok((Journal { path: path.to_owned(), file, synced: Instant::now() }, past))
    }

    /// Keys are about to be written to the target, which had none of them.
    ///
    /// # Errors
    ///
    /// [`Stop::Journal`].
    pub fn begin<'a>(&mut self, names: impl Iterator<Item = &'a [u8]>) -> Result<(), Stop> {
        self.append("begun", names)
    }

    /// Keys are at the target.
    ///
    /// # Errors
    ///
    /// [`Stop::Journal`].
    pub fn finish<'a>(&mut self, names: impl Iterator<Item = &'a [u8]>) -> Result<(), Stop> {
        self.append("done", names)
    }

    fn append<'a>(&mut self, word: &str, names: impl Iterator<Item = &'a [u8]>) -> Result<(), Stop> {
        let lines: String = names.map(|name| format!("{word} {}\n", encoded(name))).collect();
        let mut written = self.file.write_all(lines.as_bytes());
        if self.synced.elapsed() > SYNC_EVERY {
            written = written.and_then(|()| self.file.sync_data());
            self.synced = Instant::now();
        }
        written.map_err(|error| Stop::file(&self.path, &error))
    }
}

impl Past {
    fn take(&mut self, line: &[u8]) -> Option<()> {
        if let Some(name) = line.strip_prefix(b"begun ") {
            let name = decoded(name)?;
            self.done.remove(&name);
            self.begun.insert(&name);
        } else {
            let name = decoded(line.strip_prefix(b"done ")?)?;
            self.begun.remove(&name);
            self.done.insert(&name);
        }
        Some(())
    }
}

/// Why a file is none of this copy.
fn foreign(text: &[u8], from: &Address, to: &Address) -> String {
    let text = String::from_utf8_lossy(text);
    let mut lines = text.lines();
    if lines.next() != Some(TITLE) {
        return "it is no file that seendb copy has written; it is left as it is".to_owned();
    }
    let its: Vec<&str> = lines.take(2).collect();
    let its = its.join(" ");
    format!("it belongs to a copy {its}, not from {from} to {to}\nName another file, or delete this one to begin anew")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends() -> (Address, Address) {
        ("redis://a:secret@from:1/2".parse().unwrap(), "redis://to".parse().unwrap())
    }

    fn open(path: &Path) -> (Journal, Past) {
        let (from, to) = ends();
        Journal::open(path, &from, &to).unwrap()
    }

    #[test]
    fn what_was_finished_is_known_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("progress");
        let (mut journal, past) = open(&path);
        assert!(past.done.count() + past.begun.count() == 0);
        journal.begin([&b"a b"[..], b"c\n", b"done x"].into_iter()).unwrap();
        journal.finish([&b"a b"[..], b"lost", b"\xff"].into_iter()).unwrap();
        journal.begin([&b"lost"[..]].into_iter()).unwrap();
        drop(journal);
        let (_, past) = open(&path);
        assert!(past.done.contains(b"a b") && past.done.contains(b"\xff") && past.done.count() == 2);
        assert!(past.begun.contains(b"c\n") && past.begun.contains(b"done x") && past.begun.contains(b"lost"));
        assert_eq!(past.begun.count(), 3);
        assert!(!std::fs::read_to_string(&path).unwrap().contains("secret"));
    }

    #[test]
    fn wherever_the_file_is_cut_it_says_no_more_than_is_true() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("progress");
        let (mut journal, _) = open(&path);
        journal.begin([&b"long-name"[..], b"other"].into_iter()).unwrap();
        journal.finish([&b"long-name"[..]].into_iter()).unwrap();
        drop(journal);
        let whole = std::fs::read(&path).unwrap();
        for len in 0..whole.len() {
            std::fs::write(&path, &whole[..len]).unwrap();
            let (mut journal, past) = open(&path);
            assert!(!past.done.contains(b"long-name") && past.done.count() == 0, "{len}");
            journal.finish([&b"long-name"[..]].into_iter()).unwrap();
            drop(journal);
            let (_, past) = open(&path);
            assert!(past.done.contains(b"long-name") && past.done.count() == 1, "{len}");
        }
    }

    #[test]
    fn files_of_others_are_refused_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notes");
        let (from, to) = ends();
        std::fs::write(&path, "my notes\n").unwrap();
        let error = Journal::open(&path, &from, &to).unwrap_err().to_string();
        assert!(error.contains("no file that seendb copy has written"), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), b"my notes\n");
        std::fs::remove_file(&path).unwrap();
        let _held = Journal::open(&path, &from, &to).unwrap();
        assert!(Journal::open(&path, &from, &to).unwrap_err().to_string().contains("another copy"));
        drop(_held);
        let error = Journal::open(&path, &to, &from).unwrap_err().to_string();
        assert!(error.contains("copy from from:1/2 to to:6379/0, not from to:6379/0 to from:1/2"), "{error}");
    }
}
