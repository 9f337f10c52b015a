//! The lines of the events, read by a thread of its own: it reads ahead, and whoever waits for the next line of a pipe
//! notices signals and can see to replies.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, sync_channel};
use std::time::Duration;

use memchr::memchr;

use super::place::{Place, hash};
use super::stop::Stop;

/// Read at a time.
const CHUNK_BYTES: usize = 256 << 10;
/// Chunks that are read ahead.
const CHUNKS: usize = 4;
/// A line that is longer is no event.
pub const MAX_LINE_BYTES: usize = 1 << 20;

/// What comes next.
pub enum Next<'a> {
    /// A line, with its end if it has one, and the place behind it.
    Line(&'a [u8], Place),
    /// Part of a line that is too long, or its end: the place behind it.
    TooLong(Place),
    /// Nothing yet.
    Nothing,
    /// There is no more.
    End,
}

/// The events.
pub struct Input {
    chunks: Receiver<io::Result<Vec<u8>>>,
    bytes: Vec<u8>,
    /// Of these, so many were handed out.
    used: usize,
    /// In so many of the others there is no end of a line.
    searched: usize,
    ended: bool,
    place: Place,
    /// Of a line that is too long, so many bytes were dropped.
    dropped: u64,
    /// Length of the file, if it is one.
    pub all_bytes: Option<u64>,
}

impl Input {
    /// Opens the file, or standard input, and goes to the place.
    ///
    /// # Errors
    /// It cannot be read, or these are not the events in which that place was.
    pub fn open(path: Option<&Path>, place: Place) -> Result<Input, Stop> {
        let file = match path {
            Some(path) => File::open(path).map_err(|error| Stop::file(path, error))?,
            None => File::from(io::stdin().as_fd().try_clone_to_owned()?),
        };
        let all_bytes = file.metadata().ok().filter(std::fs::Metadata::is_file).map(|metadata| metadata.len());
        let file = go_to(file, place)?;
        let (sender, chunks) = sync_channel(CHUNKS);
        // It ends with its file, with its reader, or with the program.
        std::thread::spawn(move || {
            let mut file = file;
            loop {
                let chunk = read_chunk(&mut file);
                let over = !matches!(&chunk, Ok(bytes) if !bytes.is_empty());
                if sender.send(chunk).is_err() || over {
                    return;
                }
            }
        });
        let (bytes, used, searched, ended, dropped) = (Vec::new(), 0, 0, false, 0);
        Ok(Input { chunks, bytes, used, searched, ended, place, dropped, all_bytes })
    }

    /// The next line, waited for at most so long.
    ///
    /// # Errors
    /// Reading failed.
    pub fn next(&mut self, patience: Duration) -> io::Result<Next<'_>> {
        loop {
            let rest = &self.bytes[self.used..];
            let end = memchr(b'\n', &rest[self.searched..]).map(|at| self.searched + at + 1);
            match end.or((self.ended && !rest.is_empty()).then_some(rest.len())) {
                Some(len) if self.dropped == 0 && len <= MAX_LINE_BYTES => {
                    let line = self.used..self.used + len;
                    (self.used, self.searched) = (line.end, 0);
                    let line = &self.bytes[line];
                    self.place = self.place.after(line);
                    return Ok(Next::Line(line, self.place));
                }
                Some(len) => return Ok(Next::TooLong(self.drop_line(len))),
                None if self.ended && self.dropped > 0 => return Ok(Next::TooLong(self.drop_line(0))),
                None if self.ended => return Ok(Next::End),
                None => self.searched = rest.len(),
            }
            if self.searched > MAX_LINE_BYTES {
                self.dropped += self.searched as u64;
                (self.used, self.searched) = (self.bytes.len(), 0);
            }
            let chunk = match self.chunks.try_recv() {
                Err(TryRecvError::Empty) if patience.is_zero() => return Ok(Next::Nothing),
                Err(TryRecvError::Empty) => match self.chunks.recv_timeout(patience) {
                    Err(RecvTimeoutError::Timeout) => return Ok(Next::Nothing),
                    chunk => chunk.ok(),
                },
                chunk => chunk.ok(),
            };
            match chunk.transpose()? {
                Some(chunk) if !chunk.is_empty() => {
                    self.bytes.drain(..self.used);
                    self.bytes.extend_from_slice(&chunk);
                    self.used = 0;
                }
                _ => self.ended = true,
            }
        }
    }

    /// Goes behind a line that is too long, of which so many bytes are left.
    fn drop_line(&mut self, len: usize) -> Place {
        let last = self.place.byte;
        let byte = last + std::mem::take(&mut self.dropped) + len as u64;
        let end = &self.bytes[self.used..self.used + len];
        // It cannot be looked at again as a whole: its end stands for it.
        self.place = Place { byte, line: self.place.line + 1, last: byte - len as u64, hash: hash(end) };
        (self.used, self.searched) = (self.used + len, 0);
        self.place
    }
}

fn read_chunk(file: &mut File) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; CHUNK_BYTES];
    loop {
        match file.read(&mut bytes) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
            Ok(len) => {
                bytes.truncate(len);
                return Ok(bytes);
            }
        }
    }
}

/// Goes to the place, if the line before it is the one that was there.
fn go_to(mut file: File, place: Place) -> Result<File, Stop> {
    if place == Place::default() {
        return Ok(file);
    }
    // What cannot be wound is read.
    let offset = i64::try_from(place.last).map_err(|_| Stop::OtherEvents("they are shorter"))?;
    if file.seek(SeekFrom::Current(offset)).is_err() {
        io::copy(&mut file.by_ref().take(place.last), &mut io::sink())?;
    }
    let len = place.byte - place.last;
    let mut line = Vec::new();
    file.by_ref().take(len).read_to_end(&mut line)?;
    if (line.len() as u64) < len {
        return Err(Stop::OtherEvents("they are shorter"));
    }
    if hash(&line) != place.hash {
        return Err(Stop::OtherEvents("the last line that was sent is another one"));
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &[u8], place: Place) -> Result<Vec<(Vec<u8>, Place)>, Stop> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events");
        std::fs::write(&path, text).unwrap();
        let mut input = Input::open(Some(&path), place)?;
        let mut lines = Vec::new();
        loop {
            match input.next(Duration::from_secs(10))? {
                Next::Line(line, place) => lines.push((line.to_vec(), place)),
                Next::TooLong(place) => lines.push((b"too long".to_vec(), place)),
                Next::Nothing => panic!("a file has it all"),
                Next::End => return Ok(lines),
            }
        }
    }

    #[test]
    fn reading_goes_on_behind_every_line() {
        let long = [vec![b'x'; 3 * MAX_LINE_BYTES], b"\n".to_vec()].concat();
        let text = [&b"one\n\nthree\r\n"[..], &long, b"five\n", &long[..MAX_LINE_BYTES + 1], b"last"].concat();
        let all = lines(&text, Place::default()).unwrap();
        let shown: Vec<&[u8]> = all.iter().map(|(line, _)| line.as_slice()).collect();
        assert_eq!(shown, [&b"one\n"[..], b"\n", b"three\r\n", b"too long", b"five\n", b"too long"]);
        assert_eq!(all.last().unwrap().1.byte, text.len() as u64);
        for (number, (_, place)) in all.iter().enumerate() {
            assert_eq!(place.line, number as u64 + 1);
            // How much of a line that is too long stands for it is a matter of chunks.
            let ends = |lines: &[(Vec<u8>, Place)]| -> Vec<_> {
                lines.iter().map(|(line, place)| (line.clone(), place.byte, place.line)).collect()
            };
            let rest = lines(&text, *place).unwrap();
            assert_eq!(ends(&rest), ends(&all[number + 1..]), "behind line {}", number + 1);
        }
    }

    #[test]
    fn other_events_are_refused_and_grown_ones_are_not() {
        let place = lines(b"one\ntwo", Place::default()).unwrap().pop().unwrap().1;
        let grown: Vec<_> = lines(b"one\ntwo\nthree\n", place).unwrap().into_iter().map(|(line, _)| line).collect();
        assert_eq!(grown, [&b"\n"[..], b"three\n"]);
        for (other, reason) in [(&b"one\ntow\n"[..], "another one"), (b"one", "shorter"), (b"", "shorter")] {
            assert!(lines(other, place).unwrap_err().to_string().contains(reason));
        }
    }
}
