//! The part of the file that is in memory.
//!
//! Not a memory mapping: with one, an error of the disk would be a signal that ends the process, not an error.

use super::Sink;
use super::report::{Fault, Progress};
use crate::codec::bloom_value::copy_piece;
use crate::codec::crc32c::Crc32c;
use crate::codec::crc64::Crc64;
use crate::codec::lzf;
use crate::codec::rdb::{Head, Input, Malformed};
use crate::codec::rdb_string::RdbString;
use crate::filters::bits::BitArray;
use crate::persist::files::File;

/// Bytes in memory at a time. What lies in them as a whole is read in place.
pub(super) const WINDOW_BYTES: usize = 1 << 20;
/// Longest name, or field about the file: what a client could send at most.
const TEXT_BYTES: u64 = 512 << 20;
const WORD_BYTES: usize = 8;

/// Checksums of all that was read.
struct Sums {
    whole: Crc64,
    block: Crc32c,
    /// Bytes of the window that are in them.
    taken: usize,
}

/// A window on a file, and the place in it that is read next.
pub(super) struct Window<'f> {
    file: &'f dyn File,
    progress: &'f Progress,
    /// The first byte that is not to be read.
    end: u64,
    /// Bytes of the buffer: no more than there are to be read.
    size: usize,
    buffer: Vec<u8>,
    filled: usize,
    /// Offset in the file of the buffer's first byte.
    start: u64,
    at: usize,
    sums: Option<Sums>,
}

impl<'f> Window<'f> {
    /// A window that stands at `from`, for what comes before `end`; `sums`: checksums are wanted.
    pub(super) fn new(file: &'f dyn File, progress: &'f Progress, from: u64, end: u64, sums: bool) -> Self {
        let sums = sums.then(|| Sums { whole: Crc64::new(), block: Crc32c::new(), taken: 0 });
        let size = end.saturating_sub(from).min(WINDOW_BYTES as u64) as usize;
        Window { file, progress, end, size, buffer: Vec::new(), filled: 0, start: from, at: 0, sums }
    }

    /// What is in memory and was not read yet.
    pub(super) fn rest(&self) -> &[u8] {
        &self.buffer[self.at..self.filled]
    }

    /// All that is in memory.
    pub(super) fn buffer(&self) -> &[u8] {
        &self.buffer[..self.filled]
    }

    /// The place in it.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// Steps over bytes that are in memory.
    pub(super) fn advance(&mut self, bytes: usize) {
        self.at += bytes;
    }

    /// Offset in the file of the next byte.
    pub(super) fn offset(&self) -> u64 {
        self.start + self.at as u64
    }

    /// Bytes that were not read yet.
    pub(super) fn left(&self) -> u64 {
        self.end.saturating_sub(self.offset())
    }

    /// Whether [`refill`](Self::refill) would bring something.
    pub(super) fn can_refill(&self) -> bool {
        self.left() > self.rest().len() as u64 && (self.at > 0 || self.filled == 0)
    }

    /// Moves the window to the place that is read next.
    pub(super) fn refill<S: Sink>(&mut self, sink: &mut S) -> Result<(), Fault> {
        self.sum_to(self.at);
        let mut next = sink.spare();
        next.resize(self.size, 0);
        let kept = self.filled - self.at;
        next[..kept].copy_from_slice(&self.buffer[self.at..self.filled]);
        let old = std::mem::replace(&mut self.buffer, next);
        if self.filled > 0 {
            sink.retire(old, self.start)?;
        }
        self.start += self.at as u64;
        (self.at, self.filled) = (0, kept);
        if let Some(sums) = &mut self.sums {
            sums.taken = 0;
        }
        let from = self.start + kept as u64;
        let wanted = self.end.saturating_sub(from).min((self.size - kept) as u64) as usize;
        let read = self.file.read_full_at(&mut self.buffer[kept..kept + wanted], from).map_err(Fault::Io)?;
        self.filled += read;
        if read < wanted {
            self.end = from + read as u64;
        }
        self.progress.reached(from + read as u64);
        Ok(())
    }

    /// The buffer, and the offset of its first byte.
    pub(super) fn into_buffer(self) -> (Vec<u8>, u64) {
        (self.buffer, self.start)
    }

    fn sum_to(&mut self, to: usize) {
        if let Some(sums) = &mut self.sums {
            let bytes = &self.buffer[sums.taken..to];
            sums.whole.update(bytes);
            sums.block.update(bytes);
            sums.taken = to;
        }
    }

    /// CRC-64 of all bytes read; none if it was not wanted.
    pub(super) fn whole_sum(&mut self) -> Option<u64> {
        self.sum_to(self.at);
        self.sums.as_ref().map(|sums| sums.whole.value())
    }

    /// CRC-32C of the bytes since the last call, none if it was not wanted. The `mark` bytes that are next are read, but belong
    /// to no block.
    pub(super) fn block_sum(&mut self, mark: usize) -> Option<u32> {
        self.sum_to(self.at);
        let sum = self.sums.as_ref().map(|sums| sums.block.value());
        self.at += mark;
        self.sum_to(self.at);
        if let Some(sums) = &mut self.sums {
            sums.block = Crc32c::new();
        }
        sum
    }
}

/// What is too large for the window, read as it passes.
pub(super) struct Stream<'w, 'f, S> {
    pub(super) window: &'w mut Window<'f>,
    pub(super) sink: &'w mut S,
    /// No opcodes stand before fields.
    pub(super) plain: bool,
}

impl<S: Sink> Stream<'_, '_, S> {
    /// Makes the window hold some bytes that were not read yet.
    fn fill(&mut self) -> Result<(), Fault> {
        if self.window.rest().is_empty() {
            if self.window.left() == 0 {
                return Err(Fault::Short);
            }
            self.window.refill(self.sink)?;
            if self.window.rest().is_empty() {
                return Err(Fault::Short);
            }
        }
        Ok(())
    }

    /// Hands the next `len` bytes to `take`, in pieces.
    fn pass(&mut self, len: u64, mut take: impl FnMut(&[u8])) -> Result<(), Fault> {
        let mut left = len;
        while left > 0 {
            self.fill()?;
            let rest = self.window.rest();
            let run = left.min(rest.len() as u64) as usize;
            take(&rest[..run]);
            self.window.advance(run);
            left -= run as u64;
        }
        Ok(())
    }

    /// What is announced must be there before memory is taken for it.
    fn expect(&self, len: u64) -> Result<(), Fault> {
        if len > self.window.left() { Err(Fault::Short) } else { Ok(()) }
    }

    /// The next `len` bytes.
    fn take(&mut self, len: u64) -> Result<Vec<u8>, Fault> {
        self.expect(len)?;
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(len as usize).map_err(|_| Fault::Memory(len))?;
        self.pass(len, |piece| bytes.extend_from_slice(piece))?;
        Ok(bytes)
    }

    /// A string of bits, and its length. `room` makes the array for so many bytes, or none if they are only stepped over.
    pub(super) fn bits(
        &mut self,
        room: impl FnOnce(u64) -> Result<Option<BitArray>, Fault>,
    ) -> Result<(u64, Option<BitArray>), Fault> {
        match self.head()? {
            Head::Length(len) => {
                self.expect(len)?;
                let mut bits = room(len)?;
                match &mut bits {
                    Some(bits) => self.pass_words(bits.words_mut(), len)?,
                    None => self.skip(len)?,
                }
                Ok((len, bits))
            }
            Head::Special(kind) => self.special(kind, |string| {
                let mut bits = room(string.len())?;
                let len = string.len();
                string.pieces(|offset, piece| {
                    if let Some(bits) = &mut bits {
                        copy_piece(bits.words_mut(), offset, piece);
                    }
                })?;
                Ok((len, bits))
            }),
        }
    }

    /// Copies the next `len` bytes into words, all pieces but the last as whole words.
    fn pass_words(&mut self, words: &mut [u64], len: u64) -> Result<(), Fault> {
        let len = len as usize;
        let mut done = 0;
        while done < len {
            let rest = self.window.rest();
            let run = if rest.len() >= len - done { len - done } else { rest.len() / WORD_BYTES * WORD_BYTES };
            if run == 0 {
                if !self.window.can_refill() {
                    return Err(Fault::Short);
                }
                self.window.refill(self.sink)?;
                continue;
            }
            copy_piece(words, done, &rest[..run]);
            self.window.advance(run);
            done += run;
        }
        Ok(())
    }

    /// A string in a special form.
    fn special<R>(&mut self, kind: u8, work: impl FnOnce(RdbString<'_>) -> Result<R, Fault>) -> Result<R, Fault> {
        match kind {
            0 => work(RdbString::Integer(i8::from_le_bytes(self.array()?).into())),
            1 => work(RdbString::Integer(i16::from_le_bytes(self.array()?).into())),
            2 => work(RdbString::Integer(i32::from_le_bytes(self.array()?))),
            3 => {
                let (compressed, len) = (self.length()?, self.length()?);
                let data = self.take(compressed)?;
                if len > lzf::max_decompressed(data.len()) {
                    return Err(Malformed.into());
                }
                work(RdbString::Lzf { data: &data, len })
            }
            _ => Err(Malformed.into()),
        }
    }
}

impl<S: Sink> Input for Stream<'_, '_, S> {
    type Error = Fault;
    type Text = Vec<u8>;

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let mut array = [0; N];
        let mut done = 0;
        self.pass(N as u64, |piece| {
            array[done..done + piece.len()].copy_from_slice(piece);
            done += piece.len();
        })?;
        Ok(array)
    }

    fn skip(&mut self, len: u64) -> Result<(), Fault> {
        self.expect(len)?;
        self.pass(len, |_| {})
    }

    fn text(&mut self) -> Result<Vec<u8>, Fault> {
        let refused = Fault::Form("a name or a field about the file that is too long");
        match self.head()? {
            Head::Length(len) if len <= TEXT_BYTES => self.take(len),
            Head::Length(_) => Err(refused),
            Head::Special(kind) => self.special(kind, |string| {
                if string.len() > TEXT_BYTES {
                    return Err(refused);
                }
                let mut text = Vec::new();
                string.pieces(|_, piece| text.extend_from_slice(piece))?;
                Ok(text)
            }),
        }
    }

    fn refuse(&self, reason: &'static str) -> Fault {
        Fault::Form(reason)
    }

    fn opcode(&mut self, wanted: u8) -> Result<(), Fault> {
        if self.plain || self.length()? == u64::from(wanted) { Ok(()) } else { Err(Malformed.into()) }
    }
}
