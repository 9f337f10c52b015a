//! How far the events were taken, and the file of `--resume` that says so.
//!
//! Three lines say what the file is and what it belongs to. The fourth, of fixed width, is the place and how many events before it were
//! refused. It is written over in one write of less than a block: whatever ends the program, it is whole and says no more than the server
//! has confirmed.
//!
//! The last line that was taken is known again by its hash. So other events than those that the file was kept for are refused,
//! and those that have only grown are not.

use std::fs::{File, OpenOptions};
use std::io::Read as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::stop::Stop;
use crate::tools::address::Address;
use crate::tools::names::encoded;

const TITLE: &str = "seendb ingest chain 1";
/// What to do about a file of other events.
const OTHER_FILE: &str = "Name another file, or delete this one to begin anew";
/// A killed program loses so much at most: it is sent again.
const SAVE_EVERY: Duration = Duration::from_millis(20);
/// A machine that crashes loses so much.
const SYNC_EVERY: Duration = Duration::from_secs(1);

/// A place in the events, behind a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Bytes before it.
    pub byte: u64,
    /// Lines before it.
    pub line: u64,
    /// Where the last of these begins.
    pub last: u64,
    /// Its hash.
    pub hash: u64,
}

impl Place {
    /// The place behind the next line, whose bytes these are, its end included if it has one.
    pub fn after(self, line: &[u8]) -> Place {
        let hash = hash(line);
        Place { byte: self.byte + line.len() as u64, line: self.line + 1, last: self.byte, hash }
    }
}

/// How far the server has answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answered {
    /// All events before this place are answered.
    pub place: Place,
    /// It refused so many of them. They are not sent again.
    pub refused: u64,
}

impl Answered {
    fn text(self) -> String {
        let Answered { place: Place { byte, line, last, hash }, refused } = self;
        format!("byte {byte:020} line {line:020} last {last:020} hash {hash:016x} refused {refused:020}\n")
    }

    fn parse(text: &str) -> Option<Answered> {
        let words: Vec<&str> = text.strip_suffix('\n')?.split(' ').collect();
        let ["byte", byte, "line", line, "last", last, "hash", hash, "refused", refused] = words[..] else {
            return None;
        };
        let number = |text: &str| text.parse().ok();
        let (byte, line, last, refused) = (number(byte)?, number(line)?, number(last)?, number(refused)?);
        (last <= byte).then_some(())?;
        Some(Answered { place: Place { byte, line, last, hash: u64::from_str_radix(hash, 16).ok()? }, refused })
    }
}

/// What a line is known by. The same line may get an end later, which does not count.
pub fn hash(line: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(line.strip_suffix(b"\n").unwrap_or(line))
}

/// The file, being written.
#[derive(Debug)]
pub struct PlaceFile {
    path: PathBuf,
    file: File,
    /// Where the place stands in it.
    at: u64,
    written: Answered,
    saved: Instant,
    synced: Instant,
}

impl PlaceFile {
    /// Opens the file, or makes it, and reads how far it was.
    ///
    /// # Errors
    /// [`Stop::File`]: it cannot be used, is something else, belongs to other events, or is in use.
    pub fn open(path: &Path, into: &Address, prefix: &str) -> Result<(PlaceFile, Answered), Stop> {
        let fails = |error: std::io::Error| Stop::file(path, error);
        let wrong = |reason: &str| Stop::file(path, reason);
        let mut options = OpenOptions::new();
        let mut file = options.read(true).write(true).create(true).truncate(false).open(path).map_err(fails)?;
        file.try_lock().map_err(|_| wrong("another run is using it"))?;
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(fails)?;
        let head = format!("{TITLE}\ninto {into}\nprefix {}\n", encoded(prefix.as_bytes()));
        let answered = match text.strip_prefix(&head) {
            // Made just now, or by a run that ended before it had written anything.
            _ if text.is_empty() || head.starts_with(&text) => Answered::default(),
            Some("") => Answered::default(),
            Some(answered) => Answered::parse(answered).ok_or_else(|| wrong("its last line is not understood"))?,
            None if text.starts_with(TITLE) => {
                let its: Vec<&str> = text.lines().skip(1).take(2).collect();
                return Err(Stop::file(path, format!("it belongs to events {}\n{OTHER_FILE}", its.join(" "))));
            }
            None => return Err(wrong("it is no file that seendb ingest has written; it is left as it is")),
        };
        file.write_all_at(head.as_bytes(), 0).map_err(fails)?;
        let now = Instant::now();
        let at = head.len() as u64;
        let mut kept = PlaceFile { path: path.to_owned(), file, at, written: answered, saved: now, synced: now };
        kept.write(answered)?;
        Ok((kept, answered))
    }

    /// The server has answered so far. It is written if the last time was not just now.
    ///
    /// # Errors
    /// [`Stop::File`].
    pub fn confirm(&mut self, answered: Answered) -> Result<(), Stop> {
        if self.saved.elapsed() < SAVE_EVERY { Ok(()) } else { self.write(answered) }
    }

    /// The same at the end of a run, however it ends.
    ///
    /// # Errors
    /// [`Stop::File`].
    pub fn finish(&mut self, answered: Answered) -> Result<(), Stop> {
        if answered == self.written {
            return Ok(());
        }
        self.write(answered)?;
        self.file.sync_data().map_err(|error| Stop::file(&self.path, error))
    }

    fn write(&mut self, answered: Answered) -> Result<(), Stop> {
        let mut written = self.file.write_all_at(answered.text().as_bytes(), self.at);
        self.saved = Instant::now();
        if self.synced.elapsed() > SYNC_EVERY {
            written = written.and_then(|()| self.file.sync_data());
            self.synced = self.saved;
        }
        self.written = answered;
        written.map_err(|error| Stop::file(&self.path, error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(path: &Path, prefix: &str) -> Result<(PlaceFile, Answered), Stop> {
        PlaceFile::open(path, &"redis://a:secret@there:1/2".parse().unwrap(), prefix)
    }

    #[test]
    fn the_place_is_known_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("place");
        let (mut file, answered) = open(&path, "a b:").unwrap();
        assert_eq!(answered, Answered::default());
        assert!(open(&path, "a b:").unwrap_err().to_string().contains("another run"));
        let place = answered.place.after(b"one\n").after(b"second\n");
        assert_eq!((place.byte, place.line, place.last, place.hash), (11, 2, 4, hash(b"second")));
        let answered = Answered { place, refused: 1 };
        file.finish(answered).unwrap();
        drop(file);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(
            text.starts_with("seendb ingest chain 1\ninto there:1/2\nprefix a%20b:\nbyte 00000000000000000011 line ")
        );
        assert!(!text.contains("secret"));
        assert_eq!(open(&path, "a b:").unwrap().1, answered);
    }

    #[test]
    fn what_belongs_to_others_is_left_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("place");
        for (text, reason) in [
            ("shopping list\n", "no file that seendb ingest"),
            (
                "seendb ingest chain 1\ninto there:1/2\nprefix q:\nbyte 1\n",
                "belongs to events into there:1/2 prefix q:\nName another file, or delete",
            ),
            ("seendb ingest chain 1\ninto there:1/2\nprefix p:\nbyte 1\n", "not understood"),
        ] {
            std::fs::write(&path, text).unwrap();
            assert!(open(&path, "p:").unwrap_err().to_string().contains(reason), "{text}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
        for begun in ["", "seendb in", "seendb ingest chain 1\ninto there:1/2\nprefix p:\n"] {
            std::fs::write(&path, begun).unwrap();
            assert_eq!(open(&path, "p:").unwrap().1, Answered::default());
        }
    }
}
