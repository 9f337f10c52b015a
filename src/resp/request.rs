//! The request scanner: finds complete requests in a connection's buffer, in place.
//!
//! A request is `*<count>\r\n` and then `count` times `$<length>\r\n<bytes>\r\n`, or, when it begins with any other
//! byte, one line of text ([`inline`]). For the half request at the end of the buffer the scanner keeps where it stopped
//! and the places of the arguments found so far, so each byte is looked at once however the bytes arrive, and the bytes
//! of a bulk string not at all: they are jumped over. (A decoder that begins again on each read takes quadratic time.)
//! Places count from the first byte of their request, hence survive that finished requests are dropped from the front
//! of the buffer.
//!
//! Memory follows the bytes that arrived, never a length that was announced: eight bytes an argument, against the six
//! that the shortest argument takes on the wire.
//!
//! What is accepted and how errors read is Redis 7's, down to its laxities: the byte after `\r` at the end of a length
//! and the two after a bulk string are skipped, whatever they are. Three differences are meant:
//!
//! * a NUL is a byte like any other (it hides the rest of a line from Redis, which then waits for ever);
//! * a request may have [`Limits::arguments`] arguments, not two thousand million;
//! * a longer line is refused however it arrives (Redis sees its length only when the end is not yet there).

use memchr::memchr;
use thiserror::Error;

use super::{Args, Reply, Span, inline, parse_integer};

/// Longest line that holds a count or a length, marker included and end excluded.
const LENGTH_LINE_BYTES: usize = 64 * 1024;

/// Fewest bytes that an argument takes on the wire: `$0\r\n\r\n`.
const ARGUMENT_BYTES: usize = 6;

/// Most arguments of a request before the login.
const PRE_AUTH_ARGUMENTS: u64 = 10;

/// Most bytes of an argument before the login.
const PRE_AUTH_BULK_BYTES: u64 = 16 * 1024;

/// What a request may ask for. The size of a whole request is limited by the connection that buffers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Most bytes of one argument (`proto-max-bulk-len`). A request as a whole never exceeds 4 GiB.
    pub bulk_bytes: u64,
    /// Most arguments of one request.
    pub arguments: u64,
    /// Most bytes of an inline request, its end excluded.
    pub inline_bytes: usize,
    /// The peer has still to log in: 10 arguments of 16,384 bytes. As `AUTH` may be followed by anything in the same
    /// buffer, scan one request at a time while this is set.
    pub pre_auth: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self { bulk_bytes: 512 << 20, arguments: 1 << 20, inline_bytes: 64 << 10, pre_auth: false }
    }
}

/// The peer does not speak the protocol; it is told so ([`ProtocolError::reply`]) and disconnected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ProtocolError {
    /// A line that should hold the number of arguments does not end.
    #[error("Protocol error: too big mbulk count string")]
    CountTooLong,
    /// The number of arguments is no number, or above the limit.
    #[error("Protocol error: invalid multibulk length")]
    InvalidCount,
    /// More arguments than are allowed before the login.
    #[error("Protocol error: unauthenticated multibulk length")]
    UnauthenticatedCount,
    /// A line that should hold the length of an argument does not end.
    #[error("Protocol error: too big bulk count string")]
    LengthTooLong,
    /// An argument begins with this byte: a nested array, for instance.
    #[error("Protocol error: expected '$', got '{}'", printable(*.0))]
    ExpectedBulk(u8),
    /// The length of an argument is no number, negative, or above the limit.
    #[error("Protocol error: invalid bulk length")]
    InvalidLength,
    /// A longer argument than is allowed before the login.
    #[error("Protocol error: unauthenticated bulk length")]
    UnauthenticatedLength,
    /// An inline request does not end.
    #[error("Protocol error: too big inline request")]
    InlineTooLong,
    /// The quotes of an inline request do not match up.
    #[error("Protocol error: unbalanced quotes in request")]
    UnbalancedQuotes,
}

impl ProtocolError {
    /// The reply to send before the connection is closed.
    #[must_use]
    pub fn reply(self) -> Reply {
        Reply::error(format!("ERR {self}"))
    }
}

/// A byte inside an error text: as it is where Redis shows something legible, else as `\xHH`.
fn printable(byte: u8) -> String {
    match byte {
        b'\r' | b'\n' => " ".to_owned(),
        b' '..=b'~' => char::from(byte).to_string(),
        _ => format!("\\x{byte:02x}"),
    }
}

/// The complete requests that one call of [`Scanner::scan`] found. Reusable, and needed only while they are answered:
/// connections served by one thread may share one.
#[derive(Debug, Default)]
pub struct Batch {
    spans: Vec<Span>,
    requests: Vec<Entry>,
}

/// One request of a batch.
#[derive(Debug)]
struct Entry {
    /// Its first byte's place in the buffer.
    start: usize,
    /// End of its spans; they begin where those of the entry before end.
    spans_end: usize,
}

impl Batch {
    /// Spans that an idle batch may keep room for: 128 KiB.
    const KEPT_SPANS: usize = 16 * 1024;

    /// Number of requests.
    #[must_use]
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Whether no request was complete.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Request `index`, at least one argument long. `buf` is the buffer as it was scanned, nothing dropped yet.
    ///
    /// # Panics
    /// When there is no request `index`.
    #[must_use]
    #[inline]
    pub fn request<'a>(&'a self, buf: &'a [u8], index: usize) -> Args<'a> {
        let Entry { start, spans_end } = self.requests[index];
        let spans_start = index.checked_sub(1).map_or(0, |before| self.requests[before].spans_end);
        Args::new(buf.get(start..).unwrap_or_default(), &self.spans[spans_start..spans_end])
    }

    fn clear(&mut self) {
        self.requests.clear();
        self.spans.clear();
        self.spans.shrink_to(Self::KEPT_SPANS);
    }

    /// Where the spans of the request that is being scanned begin.
    fn open_spans(&self) -> usize {
        self.requests.last().map_or(0, |entry| entry.spans_end)
    }
}

/// Which part of a request comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Its first byte.
    Begin,
    /// Its only line.
    Inline,
    /// The number of its arguments.
    Count,
    /// Arguments: this many lengths are still to be read.
    Arguments { left: u32 },
}

/// What became of one attempt to go on.
enum Step {
    /// A request is complete and ends before this place.
    Request(usize),
    /// A request without arguments ends before this place.
    Empty(usize),
    /// More bytes are needed.
    Starved,
}

/// What a line with a marker and a number holds.
enum Line {
    Number(i64),
    /// Something else.
    Other,
    /// Its end has not arrived.
    Partial,
    TooLong,
}

/// A line is longer than it may be.
struct LineTooLong;

/// The state of one connection's stream of requests.
#[derive(Debug)]
pub struct Scanner {
    /// Place in the buffer of the first byte that belongs to no finished request. All other places count from here.
    start: usize,
    stage: Stage,
    /// First byte that is not accounted for. May lie behind the end of what has arrived: the bytes of an argument are
    /// jumped over as soon as its length is known.
    pos: usize,
    /// The line at `pos` has no end before this place.
    searched: usize,
    /// Spans of the half request between two calls.
    partial: Vec<Span>,
    /// See [`wanted`](Self::wanted).
    wanted: usize,
    /// The error that ended the stream.
    failed: Option<ProtocolError>,
    /// Bytes looked at so far, for the test that no byte is looked at again and again.
    #[cfg(test)]
    examined: u64,
}

impl Default for Scanner {
    fn default() -> Self {
        Self::new()
    }
}

impl Scanner {
    /// Half requests with at most this many arguments so far are copied between scanner and batch; the vector of longer
    /// ones changes hands, so that a request of a million arguments is not copied once for each read.
    const COPIED_SPANS: usize = 64;

    /// A scanner at the beginning of a stream.
    #[must_use]
    pub fn new() -> Self {
        Self {
            start: 0,
            stage: Stage::Begin,
            pos: 0,
            searched: 0,
            partial: Vec::new(),
            wanted: 0,
            failed: None,
            #[cfg(test)]
            examined: 0,
        }
    }

    /// Replaces the contents of `batch` by the next complete requests in `buf`, at most `max_requests` of them.
    ///
    /// `buf` holds everything that arrived and was not [discarded](Self::discard). Between two calls bytes may be added
    /// at its end. Inline requests are decoded in place, arrays are left as they are. Requests without arguments are
    /// passed over, as in Redis.
    ///
    /// # Errors
    /// The first breach of the protocol, again on each later call. The requests before it are in `batch`: they are
    /// answered first, then the peer is told and disconnected.
    pub fn scan(
        &mut self,
        buf: &mut [u8],
        limits: &Limits,
        max_requests: usize,
        batch: &mut Batch,
    ) -> Result<(), ProtocolError> {
        batch.clear();
        if let Some(error) = self.failed {
            return Err(error);
        }
        self.take_up(batch);
        let outcome = self.scan_requests(buf, limits, max_requests, batch);
        self.failed = outcome.err();
        self.lay_down(batch);
        outcome
    }

    /// How many bytes at the front of the buffer belong to finished requests and may be
    /// [discarded](Self::discard) once the batch is answered.
    #[must_use]
    pub fn consumed(&self) -> usize {
        self.start
    }

    /// Says that the first `bytes` bytes have been removed from the buffer, at most [`consumed`](Self::consumed).
    pub fn discard(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.start, "a half request was discarded");
        self.start = self.start.saturating_sub(bytes);
    }

    /// How many bytes must at least arrive before the half request at the end of the buffer can be complete; 0 when
    /// there is none. A hint for the size of the next read, to be capped: the peer has only announced these bytes.
    #[must_use]
    pub fn wanted(&self) -> usize {
        self.wanted
    }

    fn scan_requests(
        &mut self,
        buf: &mut [u8],
        limits: &Limits,
        max_requests: usize,
        batch: &mut Batch,
    ) -> Result<(), ProtocolError> {
        while batch.requests.len() < max_requests {
            let bytes = buf.get_mut(self.start..).unwrap_or_default();
            let end = match self.step(bytes, limits, &mut batch.spans)? {
                Step::Starved => {
                    self.wanted = self.wanted.max(usize::from(!bytes.is_empty()));
                    break;
                }
                Step::Empty(end) => end,
                Step::Request(end) => {
                    batch.requests.push(Entry { start: self.start, spans_end: batch.spans.len() });
                    end
                }
            };
            self.start += end;
            (self.stage, self.pos, self.searched) = (Stage::Begin, 0, 0);
        }
        Ok(())
    }

    /// Goes on with the request whose first byte is the first of `bytes`, as far as they reach.
    fn step(&mut self, bytes: &mut [u8], limits: &Limits, spans: &mut Vec<Span>) -> Result<Step, ProtocolError> {
        self.wanted = 0;
        if self.stage == Stage::Begin {
            match bytes.first() {
                None => return Ok(Step::Starved),
                Some(b'*') => self.stage = Stage::Count,
                Some(_) => self.stage = Stage::Inline,
            }
        }
        if self.stage == Stage::Inline {
            return self.inline(bytes, limits, spans);
        }
        if self.stage == Stage::Count {
            match self.count(bytes, limits)? {
                None => return Ok(Step::Starved),
                Some(0) => return Ok(Step::Empty(self.pos)),
                Some(left) => self.stage = Stage::Arguments { left },
            }
        }
        self.arguments(bytes, limits, spans)
    }

    fn inline(&mut self, bytes: &mut [u8], limits: &Limits, spans: &mut Vec<Span>) -> Result<Step, ProtocolError> {
        let longest = limits.inline_bytes.min(u32::MAX as usize);
        let Some(end) = self.line_end(b'\n', bytes, longest).map_err(|LineTooLong| ProtocolError::InlineTooLong)?
        else {
            return Ok(Step::Starved);
        };
        let line = &mut bytes[..end];
        let line = match line {
            [text @ .., b'\r'] => text,
            _ => line,
        };
        let before = spans.len();
        inline::split(line, spans).map_err(|inline::UnbalancedQuotes| ProtocolError::UnbalancedQuotes)?;
        Ok(if spans.len() == before { Step::Empty(end + 1) } else { Step::Request(end + 1) })
    }

    /// Reads the line with the number of arguments; 0 stands for all numbers below one, too.
    fn count(&mut self, bytes: &[u8], limits: &Limits) -> Result<Option<u32>, ProtocolError> {
        let count = match self.number(bytes) {
            Line::Partial => return Ok(None),
            Line::TooLong => return Err(ProtocolError::CountTooLong),
            Line::Other => return Err(ProtocolError::InvalidCount),
            Line::Number(count) => count.max(0).unsigned_abs(),
        };
        match u32::try_from(count) {
            Ok(small) if count <= limits.arguments => {
                let refused = limits.pre_auth && count > PRE_AUTH_ARGUMENTS;
                if refused { Err(ProtocolError::UnauthenticatedCount) } else { Ok(Some(small)) }
            }
            _ => Err(ProtocolError::InvalidCount),
        }
    }

    fn arguments(&mut self, bytes: &[u8], limits: &Limits, spans: &mut Vec<Span>) -> Result<Step, ProtocolError> {
        let Stage::Arguments { mut left } = self.stage else {
            return Ok(Step::Starved);
        };
        while left > 0 && self.pos < bytes.len() {
            let Some(len) = self.length(bytes, limits)? else {
                break;
            };
            // Places are kept in 32 bits, so a request ends before 4 GiB whatever `bulk_bytes` allows.
            let end = self.pos as u64 + u64::from(len) + 2;
            let (Ok(start), Ok(_)) = (u32::try_from(self.pos), u32::try_from(end)) else {
                return Err(ProtocolError::InvalidLength);
            };
            spans.push(Span::new(start, len));
            self.pos = end as usize;
            left -= 1;
        }
        if left == 0 && self.pos <= bytes.len() {
            return Ok(Step::Request(self.pos));
        }
        self.stage = Stage::Arguments { left };
        self.wanted = (self.pos + left as usize * ARGUMENT_BYTES).saturating_sub(bytes.len());
        Ok(Step::Starved)
    }

    /// Reads the line with the length of an argument.
    fn length(&mut self, bytes: &[u8], limits: &Limits) -> Result<Option<u32>, ProtocolError> {
        let marker = bytes[self.pos];
        let len = match self.number(bytes) {
            Line::Partial => return Ok(None),
            Line::TooLong => return Err(ProtocolError::LengthTooLong),
            _ if marker != b'$' => return Err(ProtocolError::ExpectedBulk(marker)),
            Line::Other => return Err(ProtocolError::InvalidLength),
            Line::Number(len) => len,
        };
        match u32::try_from(len) {
            Ok(len) if u64::from(len) <= limits.bulk_bytes => {
                let refused = limits.pre_auth && u64::from(len) > PRE_AUTH_BULK_BYTES;
                if refused { Err(ProtocolError::UnauthenticatedLength) } else { Ok(Some(len)) }
            }
            _ => Err(ProtocolError::InvalidLength),
        }
    }

    /// Reads the line at `pos`, a marker and a number, and moves behind it.
    #[inline]
    fn number(&mut self, bytes: &[u8]) -> Line {
        let text = bytes.get(self.pos + 1..).unwrap_or_default();
        let Some((number, digits)) = short_number(text) else {
            return self.any_number(bytes);
        };
        self.note_examined(digits + 3);
        self.pos += digits + 3;
        Line::Number(number)
    }

    /// [`number`](Self::number) without the short cut.
    #[cold]
    fn any_number(&mut self, bytes: &[u8]) -> Line {
        match self.line_end(b'\r', bytes, LENGTH_LINE_BYTES) {
            Err(LineTooLong) => Line::TooLong,
            Ok(Some(end)) if end + 1 < bytes.len() => {
                // A line without even a marker leaves no text (its first byte, `\r`, is then refused as a marker).
                let number = parse_integer(bytes.get(self.pos + 1..end).unwrap_or_default());
                self.pos = end + 2;
                number.map_or(Line::Other, Line::Number)
            }
            Ok(_) => Line::Partial,
        }
    }

    /// Looks for the `end` of the line at `pos`, at most `longest` bytes behind it; `None` when it has not arrived.
    fn line_end(&mut self, end: u8, bytes: &[u8], longest: usize) -> Result<Option<usize>, LineTooLong> {
        let from = self.searched.max(self.pos);
        let to = bytes.len().min(self.pos.saturating_add(longest).saturating_add(1));
        let found = bytes.get(from..to).and_then(|rest| memchr(end, rest)).map(|at| from + at);
        self.note_examined(found.unwrap_or(to).saturating_sub(from));
        self.searched = found.unwrap_or(to);
        if found.is_none() && to.saturating_sub(self.pos) > longest { Err(LineTooLong) } else { Ok(found) }
    }

    /// Counts bytes looked at, in tests of this module only.
    #[inline]
    fn note_examined(&mut self, bytes: usize) {
        #[cfg(test)]
        {
            self.examined += bytes as u64;
        }
        #[cfg(not(test))]
        let _ = bytes;
    }

    /// Puts the spans of the half request into the empty `batch`.
    fn take_up(&mut self, batch: &mut Batch) {
        if self.partial.len() > Self::COPIED_SPANS {
            batch.spans = std::mem::take(&mut self.partial);
        } else {
            batch.spans.append(&mut self.partial);
        }
    }

    /// Keeps the spans of the half request, which no entry of `batch` covers, for the next call.
    fn lay_down(&mut self, batch: &mut Batch) {
        let open = batch.open_spans();
        if open == 0 && batch.spans.len() > Self::COPIED_SPANS {
            self.partial = std::mem::take(&mut batch.spans);
        } else {
            self.partial.extend_from_slice(&batch.spans[open..]);
        }
    }
}

/// A number of one to eight digits at the front of `line` with its whole end behind it, and how many digits. Every
/// request that is no attack or accident takes this way; what does not fit is left to the careful one.
#[inline]
fn short_number(line: &[u8]) -> Option<(i64, usize)> {
    const MOST_DIGITS: usize = 8;
    let mut number = 0;
    for (digits, &byte) in line.iter().enumerate().take(MOST_DIGITS + 1) {
        let digit = byte.wrapping_sub(b'0');
        if digit < 10 && (number > 0 || digits == 0) {
            number = number * 10 + i64::from(digit);
        } else if byte == b'\r' && digits > 0 && line.len() > digits + 1 {
            return Some((number, digits));
        } else {
            break;
        }
    }
    None
}

#[cfg(test)]
mod tests;
