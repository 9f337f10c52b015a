//! The manifest: which files make up the log, in a text that a person can read.
//!
//! ```text
//! seendb log 1
//! id 000102030405060708090a0b0c0d0e0f
//! base base-3.rdb 123456
//! segment 7 120000 segment-7.log
//! segment 8 187108864 segment-8.log
//! closed 1767225600000
//! crc32c 1a2b3c4d
//! ```
//!
//! The base is a snapshot with everything below its position; without one there is `no base`, and the log begins at 0.
//! A segment has its number, its first position and its file. `closed` is there if the log was switched off, with the time
//! in milliseconds: what happened since then is not in it. The last line is the CRC32C of all lines before it.

use std::fmt::Write;
use std::io;
use std::path::Path;

use super::{LogId, segment};
use crate::codec::crc32c::crc32c;
use crate::persist::files::Files;

/// The manifest's file name.
pub const FILE_NAME: &str = "seendb.manifest";

/// The manifest while it is written.
pub const TEMPORARY_NAME: &str = "seendb.manifest.tmp";

/// A longer file is not read: it would name several hundred thousand segments.
pub const MAX_BYTES: u64 = 16 << 20;

const FIRST_LINE: &str = "seendb log 1";

/// What makes up a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// The log.
    pub id: LogId,
    /// The snapshot that the log continues.
    pub base: Option<Base>,
    /// The segments in the order of their numbers and positions.
    pub segments: Vec<Segment>,
    /// When the log was switched off, in milliseconds since 1970.
    pub closed: Option<u64>,
}

/// The snapshot under a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Base {
    /// Its file in the log's folder.
    pub file: String,
    /// Records below this position are in it.
    pub cut: u64,
}

/// A segment of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Its number.
    pub number: u64,
    /// Position of its first batch.
    pub first: u64,
    /// Its file in the log's folder.
    pub file: String,
}

/// The file is no manifest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{FILE_NAME}, line {line}: {what}")]
pub struct ManifestError {
    /// The line, counted from 1.
    pub line: usize,
    /// What is wrong with it.
    pub what: String,
}

impl Manifest {
    /// The position from which on records are not in the base.
    pub fn cut(&self) -> u64 {
        self.base.as_ref().map_or(0, |base| base.cut)
    }

    /// The file's text.
    pub fn encode(&self) -> String {
        let mut text = format!("{FIRST_LINE}\nid {}\n", self.id);
        // Writing to a String cannot fail.
        let _ = match &self.base {
            Some(base) => writeln!(text, "base {} {}", base.file, base.cut),
            None => writeln!(text, "no base"),
        };
        for segment in &self.segments {
            let _ = writeln!(text, "segment {} {} {}", segment.number, segment.first, segment.file);
        }
        if let Some(closed) = self.closed {
            let _ = writeln!(text, "closed {closed}");
        }
        let crc = crc32c(text.as_bytes());
        let _ = writeln!(text, "crc32c {crc:08x}");
        text
    }

    /// Read the file's text.
    ///
    /// # Errors
    /// [`ManifestError`] with the line.
    pub fn decode(bytes: &[u8]) -> Result<Manifest, ManifestError> {
        let mut lines = Lines { text: checked_text(bytes)?, number: 0 };
        if lines.next() != Some(FIRST_LINE) {
            return Err(lines.error(format!("not '{FIRST_LINE}'")));
        }
        let id = lines.next().and_then(|line| LogId::parse(line.strip_prefix("id ")?));
        let id = id.ok_or_else(|| lines.error("not 'id' and 32 hexadecimal digits"))?;
        let base = match lines.next() {
            Some("no base") => None,
            line => {
                Some(line.and_then(parse_base).ok_or_else(|| lines.error("not 'base FILE POSITION' or 'no base'"))?)
            }
        };
        let mut manifest = Manifest { id, base, segments: Vec::new(), closed: None };
        while let Some(line) = lines.next() {
            if manifest.closed.is_some() {
                return Err(lines.error("'closed' is not the last line before the checksum"));
            }
            if let Some(segment) = parse_segment(line) {
                manifest.push(segment).map_err(|what| lines.error(what))?;
            } else {
                let closed = line.strip_prefix("closed ").and_then(parse_number);
                let what = "neither 'segment NUMBER POSITION FILE' nor 'closed MILLISECONDS'";
                manifest.closed = Some(closed.ok_or_else(|| lines.error(what))?);
            }
        }
        Ok(manifest)
    }

    fn push(&mut self, segment: Segment) -> Result<(), &'static str> {
        match self.segments.last() {
            None if segment.first > self.cut() => return Err("records are missing between the base and this segment"),
            Some(last) if segment.number <= last.number => {
                return Err("segments are not in the order of their numbers");
            }
            Some(last) if segment.first < last.first => return Err("segments are not in the order of their positions"),
            _ => {}
        }
        if !(1..=segment::MAX_NUMBER).contains(&segment.number) {
            return Err("a segment has a number that is not possible");
        }
        if segment.file != segment::file_name(segment.number) {
            return Err("the file's name does not have the segment's number");
        }
        self.segments.push(segment);
        Ok(())
    }

    /// Put the manifest in the place of the one that is there, so that a crash leaves one or the other.
    ///
    /// # Errors
    /// Those of the system. Either manifest may be the one that counts then, until one was written without an error.
    pub fn write(&self, files: &dyn Files, folder: &Path) -> io::Result<()> {
        self.prepare(files, folder)?;
        Self::replace(files, folder)
    }

    /// The first half of [`write`](Self::write): after an error the manifest that was there is the one that counts.
    pub(super) fn prepare(&self, files: &dyn Files, folder: &Path) -> io::Result<()> {
        let temporary = folder.join(TEMPORARY_NAME);
        let written = files.create(&temporary).and_then(|file| {
            file.write_all_at(self.encode().as_bytes(), 0)?;
            file.sync()
        });
        written.inspect_err(|_| {
            // Not needed: the next one is written over it.
            let _ = files.remove(&temporary);
        })
    }

    /// The second half.
    pub(super) fn replace(files: &dyn Files, folder: &Path) -> io::Result<()> {
        files.rename(&folder.join(TEMPORARY_NAME), &folder.join(FILE_NAME))?;
        files.sync_folder(folder)
    }
}

/// The lines before the checksum, which fits them.
fn checked_text(bytes: &[u8]) -> Result<&str, ManifestError> {
    let line_of = |at: usize| bytes[..at].iter().filter(|byte| **byte == b'\n').count() + 1;
    let error = |line: usize, what: String| Err(ManifestError { line, what });
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(bad) => return error(line_of(bad.valid_up_to()), "not text".into()),
    };
    let last = text.strip_suffix('\n').and_then(|text| text.rfind('\n')).map_or(0, |at| at + 1);
    let (lines, checksum) = text.split_at(last);
    let crc = crc32c(lines.as_bytes());
    if checksum.strip_suffix('\n').and_then(|line| line.strip_prefix("crc32c ")) == Some(&format!("{crc:08x}")) {
        return Ok(lines);
    }
    let what = format!("the lines before need 'crc32c {crc:08x}' here: they were changed, or lines are missing");
    error(line_of(last), what)
}

struct Lines<'a> {
    text: &'a str,
    /// Of the line that was taken last.
    number: usize,
}

impl<'a> Lines<'a> {
    fn next(&mut self) -> Option<&'a str> {
        self.number += 1;
        let (line, rest) = self.text.split_once('\n')?;
        self.text = rest;
        Some(line)
    }

    fn error(&self, what: impl Into<String>) -> ManifestError {
        ManifestError { line: self.number, what: what.into() }
    }
}

fn parse_base(line: &str) -> Option<Base> {
    let (file, cut) = line.strip_prefix("base ")?.split_once(' ')?;
    let file = parse_file(file).filter(|file| segment::number_of(file).is_none())?;
    Some(Base { file, cut: parse_number(cut)? })
}

fn parse_segment(line: &str) -> Option<Segment> {
    let (number, rest) = line.strip_prefix("segment ")?.split_once(' ')?;
    let (first, file) = rest.split_once(' ')?;
    Some(Segment { number: parse_number(number)?, first: parse_number(first)?, file: parse_file(file)? })
}

/// Only the form in which it is written: no sign, no zeros in front.
fn parse_number(text: &str) -> Option<u64> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text.len() == 1 || !text.starts_with('0'));
    text.parse().ok().filter(|_| plain)
}

/// A name without a path, that needs no quotes.
fn parse_file(name: &str) -> Option<String> {
    is_file_name(name).then(|| name.to_owned())
}

/// Whether a manifest can name such a file.
pub(super) fn is_file_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let taken = [FILE_NAME, TEMPORARY_NAME].contains(&name);
    !name.is_empty() && !name.starts_with('.') && name.bytes().all(plain) && !taken
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> Manifest {
        let segment = |number: u64, first| Segment { number, first, file: format!("segment-{number}.log") };
        Manifest {
            id: LogId(std::array::from_fn(|n| n as u8)),
            base: Some(Base { file: "base-3.rdb".into(), cut: 123_456 }),
            segments: vec![segment(7, 120_000), segment(8, 187_108_864)],
            closed: Some(1_767_225_600_000),
        }
    }

    fn refusal(lines: &str) -> String {
        let text = format!("{lines}crc32c {:08x}\n", crc32c(lines.as_bytes()));
        Manifest::decode(text.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn what_is_written_is_read() {
        let full = manifest();
        let empty = Manifest { base: None, segments: vec![], closed: None, ..manifest() };
        for manifest in [full, empty] {
            assert_eq!(Manifest::decode(manifest.encode().as_bytes()), Ok(manifest));
        }
        let text = manifest().encode();
        assert!(text.starts_with("seendb log 1\nid 000102030405060708090a0b0c0d0e0f\nbase base-3.rdb 123456\n"));
        assert!(text.contains("\nsegment 8 187108864 segment-8.log\nclosed 1767225600000\ncrc32c "));
    }

    #[test]
    fn every_cut_and_every_flipped_byte_is_refused() {
        let text = manifest().encode();
        for at in 0..text.len() {
            assert!(Manifest::decode(&text.as_bytes()[..at]).is_err(), "cut at {at}");
            let mut flipped = text.clone().into_bytes();
            flipped[at] ^= 1;
            assert!(Manifest::decode(&flipped).is_err(), "byte {at}");
        }
        assert!(Manifest::decode(format!("{text}\n").as_bytes()).is_err());
    }

    #[test]
    fn errors_name_the_line() {
        let head = "seendb log 1\nid 000102030405060708090a0b0c0d0e0f\n";
        let first = format!("{head}no base\nsegment 1 0 segment-1.log\n");
        for (lines, wanted) in [
            (String::new(), "line 1: not 'seendb log 1'"),
            ("seendb log 2\n".into(), "line 1: not 'seendb log 1'"),
            ("seendb log 1\nid 00\n".into(), "line 2: not 'id'"),
            (head.to_owned(), "line 3: not 'base FILE POSITION' or 'no base'"),
            (format!("{head}base ../base 1\n"), "line 3: not 'base"),
            (format!("{head}base base 01\n"), "line 3: not 'base"),
            (format!("{head}base segment-1.log 1\n"), "line 3: not 'base"),
            (format!("{head}no base\nsegment 1 5 a\n"), "line 4: records are missing"),
            (format!("{head}no base\nsegment 0 0 a\n"), "line 4: a segment has a number that is not possible"),
            (format!("{first}segment 1 0 b\n"), "line 5: segments are not in the order of their numbers"),
            (
                format!("{head}base b 9\nsegment 1 9 segment-1.log\nsegment 2 8 b\n"),
                "line 5: segments are not in the order",
            ),
            (format!("{first}segment 2 0 segment-1.log\n"), "line 5: the file's name does not have"),
            (format!("{head}no base\nclosed 1\nclosed 2\n"), "line 5: 'closed' is not the last"),
            (format!("{head}no base\nsegments\n"), "line 4: neither 'segment"),
        ] {
            let refusal = refusal(&lines);
            assert!(refusal.starts_with(&format!("seendb.manifest, {wanted}")), "{refusal}");
        }
        let changed = manifest().encode().replace("123456", "123457");
        let refusal = Manifest::decode(changed.as_bytes()).unwrap_err().to_string();
        assert!(refusal.starts_with("seendb.manifest, line 7: the lines before need 'crc32c "), "{refusal}");
    }
}
