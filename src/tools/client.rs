//! A small blocking client: RESP2 over TCP, requests and replies apart, so that many may be on their way.
//!
//! Replies are decoded by `redis-protocol`, which begins at byte 0 whenever it is asked and goes into nested arrays by
//! recursion. So `Measure` first finds where a reply ends, going on where it stopped, and refuses what is nested deeply: the
//! decoder sees each reply once, whole, and its bytes are not copied again. This file is the only one of the tools that knows the crate.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use memchr::memchr;
use redis_protocol::resp2::decode::decode_bytes_mut;
use redis_protocol::resp2::types::BytesFrame;

use super::address::Address;

/// The slot of a Redis cluster that a key belongs to.
pub use redis_protocol::redis_keyslot as key_slot;

/// A server that says nothing for so long is taken for lost.
const SILENCE: Duration = Duration::from_secs(60);
/// The same while it makes a snapshot.
const SNAPSHOT_SILENCE: Duration = Duration::from_secs(3600);
/// How long connecting may take.
const CONNECT: Duration = Duration::from_secs(10);
/// Read at a time where it is not known what will come.
const READ_BYTES: usize = 64 << 10;
/// Memory grows by at most so much ahead of what has come.
const STEP_BYTES: usize = 4 << 20;
/// Requests are gathered up to so many bytes; longer words are written from where they are.
const GATHER_BYTES: usize = 64 << 10;

/// One reply.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// `+text`
    Status(Bytes),
    /// `-text`, whole
    Error(String),
    /// `:n`
    Integer(i64),
    /// `$n` with its bytes
    Bulk(Bytes),
    /// `$-1` and `*-1`
    Null,
    /// `*n`
    Array(Vec<Reply>),
}

impl Reply {
    /// The text of an error.
    pub fn error(&self) -> Option<&str> {
        match self {
            Reply::Error(text) => Some(text),
            _ => None,
        }
    }

    /// The number of an integer reply.
    pub fn integer(&self) -> Option<i64> {
        match self {
            Reply::Integer(number) => Some(*number),
            _ => None,
        }
    }

    /// The bytes of a bulk or status reply.
    pub fn bytes(&self) -> Option<&Bytes> {
        match self {
            Reply::Bulk(bytes) | Reply::Status(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// The elements of an array.
    pub fn array(&self) -> Option<&[Reply]> {
        match self {
            Reply::Array(elements) => Some(elements),
            _ => None,
        }
    }

    /// The reply beside `name` in a flat array of names and values.
    pub fn field(&self, name: &str) -> Option<&Reply> {
        let pairs = self.array()?.chunks_exact(2);
        pairs.filter(|pair| pair[0].bytes().is_some_and(|own| **own == *name.as_bytes())).map(|pair| &pair[1]).next()
    }

    fn of(frame: BytesFrame) -> Reply {
        match frame {
            BytesFrame::SimpleString(text) => Reply::Status(text),
            BytesFrame::Error(text) => Reply::Error(text.to_string()),
            BytesFrame::Integer(number) => Reply::Integer(number),
            BytesFrame::BulkString(bytes) => Reply::Bulk(bytes),
            BytesFrame::Null => Reply::Null,
            BytesFrame::Array(frames) => Reply::Array(frames.into_iter().map(Reply::of).collect()),
        }
    }
}

/// A server cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// There is no connection to it.
    #[error("cannot connect to {address}: {error}")]
    Connect {
        /// The server.
        address: String,
        /// Why.
        error: io::Error,
    },
    /// The connection ended, or nothing came for too long.
    #[error("the connection to {address} was lost: {error}")]
    Lost {
        /// The server.
        address: String,
        /// Why.
        error: io::Error,
    },
    /// What came is no reply of RESP2.
    #[error("{address} does not speak RESP2: {reason}")]
    Protocol {
        /// The server.
        address: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// What came could not be kept.
    #[error("what the server sent cannot be kept: {0}")]
    Taken(io::Error),
    /// It does not let us in, has no such database, or refuses what is asked.
    #[error("{address}: {text}{}", login_hint(.text))]
    Login {
        /// The server.
        address: String,
        /// What it said.
        text: String,
    },
}

/// What to do about a refused login.
fn login_hint(text: &str) -> &'static str {
    match text.split_whitespace().next() {
        Some("WRONGPASS") => " (look at user and password in redis://user:password@host)",
        Some("NOAUTH") => " (give a password: redis://user:password@host or redis://:password@host)",
        _ if text.contains("without any password") => " (leave the password out of its address)",
        _ if text.contains("DB index") => {
            " (the number after the / must be a database of that server; a cluster has only 0)"
        }
        _ => "",
    }
}

/// One connection.
pub struct Client {
    stream: TcpStream,
    address: String,
    output: Vec<u8>,
    input: BytesMut,
    measure: Measure,
    silence: Duration,
}

impl Client {
    /// Connects, logs in and selects the database.
    ///
    /// # Errors
    ///
    /// [`ClientError`].
    pub fn connect(address: &Address) -> Result<Client, ClientError> {
        let stream = open(address).map_err(|error| ClientError::Connect { address: address.to_string(), error })?;
        let mut client = Client {
            stream,
            address: address.to_string(),
            output: Vec::new(),
            input: BytesMut::new(),
            measure: Measure::default(),
            silence: SILENCE,
        };
        if let Some(password) = &address.password {
            let login: Vec<&[u8]> =
                [&b"AUTH"[..]].into_iter().chain(address.user.as_deref()).chain([password.as_slice()]).collect();
            client.must(&login)?;
        }
        match address.db {
            // Asks nothing but whether we may ask.
            0 => client.must(&[b"PING"])?,
            db => client.must(&[b"SELECT", db.to_string().as_bytes()])?,
        }
        Ok(client)
    }

    fn must(&mut self, words: &[&[u8]]) -> Result<(), ClientError> {
        match self.call(words)? {
            Reply::Error(text) => Err(ClientError::Login { address: self.address.clone(), text }),
            _ => Ok(()),
        }
    }

    /// Sends a request and reads its reply. None may be on its way.
    ///
    /// # Errors
    ///
    /// [`ClientError`].
    pub fn call(&mut self, words: &[&[u8]]) -> Result<Reply, ClientError> {
        self.push(words)?;
        self.flush()?;
        self.read()
    }

    /// Gathers a request for [`flush`](Self::flush), or sends it already.
    ///
    /// # Errors
    ///
    /// [`ClientError`].
    pub fn push(&mut self, words: &[&[u8]]) -> Result<(), ClientError> {
        self.output.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
        for word in words {
            self.output.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            if word.len() > GATHER_BYTES {
                self.flush()?;
                self.stream.write_all(word).map_err(|error| self.lost(error))?;
            } else {
                self.output.extend_from_slice(word);
            }
            self.output.extend_from_slice(b"\r\n");
        }
        if self.output.len() > GATHER_BYTES { self.flush() } else { Ok(()) }
    }

    /// Sends what was gathered.
    ///
    /// # Errors
    ///
    /// [`ClientError`].
    pub fn flush(&mut self) -> Result<(), ClientError> {
        let sent = self.stream.write_all(&self.output);
        self.output.clear();
        sent.map_err(|error| self.lost(error))
    }

    /// The next reply.
    ///
    /// # Errors
    ///
    /// [`ClientError`].
    pub fn read(&mut self) -> Result<Reply, ClientError> {
        loop {
            match self.measure.advance(&self.input).map_err(|reason| self.malformed(reason))? {
                Need::Whole(len) => {
                    self.measure = Measure::default();
                    let mut bytes = self.input.split_to(len);
                    let frame = decode_bytes_mut(&mut bytes).map_err(|_| self.malformed("no sound reply"))?;
                    return match frame {
                        Some((frame, used, _)) if used == len => Ok(Reply::of(frame)),
                        _ => Err(self.malformed("no sound reply")),
                    };
                }
                Need::AtLeast(len) => self.fill(len).map_err(|error| self.lost(error))?,
            }
        }
    }

    /// Asks for a snapshot as a replica does, and hands its bytes to `take`. The connection is of no use afterwards.
    ///
    /// # Errors
    ///
    /// [`ClientError`]; [`ClientError::Taken`] if `take` fails.
    pub fn fetch_snapshot(&mut self, mut take: impl FnMut(&[u8]) -> io::Result<()>) -> Result<(), ClientError> {
        self.silence = SNAPSHOT_SILENCE;
        self.stream.set_read_timeout(Some(self.silence)).map_err(|error| self.lost(error))?;
        self.push(&[b"SYNC"])?;
        self.flush()?;
        let mut left = self.snapshot_length()?;
        while left > 0 {
            if self.input.is_empty() {
                self.fill(1).map_err(|error| self.lost(error))?;
            }
            let piece = self.input.split_to(self.input.len().min(usize::try_from(left).unwrap_or(usize::MAX)));
            left -= piece.len() as u64;
            take(&piece).map_err(ClientError::Taken)?;
        }
        Ok(())
    }

    /// The length in the line before a snapshot. Empty lines before it say that the server is still at it.
    fn snapshot_length(&mut self) -> Result<u64, ClientError> {
        loop {
            let Some(len) = memchr(b'\n', &self.input).filter(|len| *len < Measure::MAX_LINE_BYTES) else {
                if self.input.len() >= Measure::MAX_LINE_BYTES {
                    return Err(self.malformed("a line without end"));
                }
                self.fill(self.input.len() + 1).map_err(|error| self.lost(error))?;
                continue;
            };
            let line = self.input.split_to(len + 1);
            let text = String::from_utf8_lossy(&line).trim().to_owned();
            match text.split_at_checked(1) {
                None => {}
                Some(("-", error)) => {
                    return Err(ClientError::Login { address: self.address.clone(), text: error.to_owned() });
                }
                Some(("$", length)) => return length.parse().map_err(|_| self.malformed("no length of a snapshot")),
                Some(_) => return Err(self.malformed("no snapshot")),
            }
        }
    }

    /// Reads until the input may have so many bytes; at least one.
    fn fill(&mut self, len: usize) -> io::Result<()> {
        let have = self.input.len();
        let missing = len.saturating_sub(have);
        if missing > READ_BYTES {
            let step = missing.min(STEP_BYTES);
            self.input.resize(have + step, 0);
            return self.stream.read_exact(&mut self.input[have..]);
        }
        self.input.resize(have + READ_BYTES, 0);
        let read = loop {
            match self.stream.read(&mut self.input[have..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read,
            }
        };
        self.input.truncate(have + *read.as_ref().unwrap_or(&0));
        match read? {
            0 => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed it")),
            _ => Ok(()),
        }
    }

    fn lost(&self, error: io::Error) -> ClientError {
        let error = match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                io::Error::new(io::ErrorKind::TimedOut, format!("no answer for {} s", self.silence.as_secs()))
            }
            _ => error,
        };
        ClientError::Lost { address: self.address.clone(), error }
    }

    fn malformed(&self, reason: &'static str) -> ClientError {
        ClientError::Protocol { address: self.address.clone(), reason }
    }
}

fn open(address: &Address) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for place in (address.host.as_str(), address.port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&place, CONNECT) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(SILENCE))?;
                stream.set_write_timeout(Some(SILENCE))?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// What is known about the end of a reply.
#[derive(Debug, PartialEq)]
enum Need {
    /// It has so many bytes, and they are there.
    Whole(usize),
    /// It has so many or more, and they are not all there.
    AtLeast(usize),
}

/// Finds the end of a reply.
#[derive(Debug, Default)]
struct Measure {
    /// Everything before was looked at.
    at: usize,
    /// Elements that are still to come in the arrays that are open, outermost first.
    open: Vec<usize>,
    /// The last element was found; it ends at `at`.
    done: bool,
}

impl Measure {
    /// Arrays in arrays; `CLUSTER SLOTS` has four.
    const MAX_DEPTH: usize = 8;
    /// Longest string, as in Redis, where `proto-max-bulk-len` can be raised: more is no dump that anybody restores.
    const MAX_BULK_BYTES: i64 = 2 << 30;
    const MAX_ELEMENTS: i64 = 1 << 24;
    const MAX_LINE_BYTES: usize = 1 << 20;

    /// Goes on with the same bytes and those that have come.
    fn advance(&mut self, bytes: &[u8]) -> Result<Need, &'static str> {
        while !self.done {
            let Some(rest) = bytes.get(self.at..).filter(|rest| !rest.is_empty()) else {
                return Ok(Need::AtLeast(self.at + 1));
            };
            let Some(len) = memchr(b'\n', rest) else {
                let short = rest.len() < Self::MAX_LINE_BYTES;
                return if short { Ok(Need::AtLeast(bytes.len() + 1)) } else { Err("a line without end") };
            };
            self.at += len + 1;
            let number = || std::str::from_utf8(&rest[1..len]).ok()?.strip_suffix('\r')?.parse::<i64>().ok();
            match rest[0] {
                b'+' | b'-' | b':' => self.element(),
                b'$' => {
                    let len =
                        number().filter(|len| *len <= Self::MAX_BULK_BYTES).ok_or("a string of no sound length")?;
                    self.at += usize::try_from(len).map_or(0, |len| len + 2);
                    self.element();
                }
                b'*' => {
                    match number().filter(|count| *count <= Self::MAX_ELEMENTS).ok_or("an array of no sound length")? {
                        ..=0 => self.element(),
                        _ if self.open.len() == Self::MAX_DEPTH => return Err("arrays nested too deeply"),
                        count => self.open.push(usize::try_from(count).unwrap_or(0)),
                    }
                }
                _ => return Err("a reply of unknown kind"),
            }
        }
        Ok(if self.at <= bytes.len() { Need::Whole(self.at) } else { Need::AtLeast(self.at) })
    }

    /// An element is over, and perhaps the arrays that it ends.
    fn element(&mut self) {
        while let Some(left) = self.open.last_mut() {
            *left -= 1;
            if *left > 0 {
                return;
            }
            self.open.pop();
        }
        self.done = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPLIES: [&[u8]; 9] = [
        b"+OK\r\n",
        b"-ERR no\r\n",
        b":-5\r\n",
        b"$-1\r\n",
        b"*-1\r\n",
        b"*0\r\n",
        b"$4\r\na\r\nb\r\n",
        b"*2\r\n$1\r\n0\r\n*2\r\n$0\r\n\r\n:1\r\n",
        b"*1\r\n*1\r\n*1\r\n*2\r\n+a\r\n$-1\r\n",
    ];

    #[test]
    fn the_end_is_found_wherever_the_bytes_are_cut() {
        for reply in REPLIES {
            let followed = [reply, b"+next\r\n"].concat();
            assert_eq!(Measure::default().advance(&followed), Ok(Need::Whole(reply.len())));
            let mut measure = Measure::default();
            for cut in 0..reply.len() {
                match measure.advance(&reply[..cut]) {
                    Ok(Need::AtLeast(len)) => assert!(len > cut && len <= reply.len(), "{len} of {reply:?}"),
                    other => panic!("{other:?} for {cut} bytes of {reply:?}"),
                }
            }
            assert_eq!(measure.advance(reply), Ok(Need::Whole(reply.len())));
        }
    }

    #[test]
    fn an_announced_length_is_known_before_its_bytes() {
        assert_eq!(Measure::default().advance(b"$1000000\r\nab"), Ok(Need::AtLeast(1_000_012)));
        let dump = b"*2\r\n:1\r\n$16777216\r\n";
        assert_eq!(Measure::default().advance(dump), Ok(Need::AtLeast(dump.len() + 16_777_218)));
    }

    #[test]
    fn what_is_no_reply_is_refused() {
        let nested = b"*1\r\n".repeat(9);
        for wrong in
            [&b"HTTP/1.1 400\r\n"[..], b"$99999999999\r\n", b"$x\r\n", b"$4\n", b"*99999999\r\n", b"\r\n", &nested]
        {
            assert!(Measure::default().advance(wrong).is_err(), "{wrong:?}");
        }
    }
}
