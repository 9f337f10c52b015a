//! LZF, as Redis compresses strings with it: only to read. What is written here stands uncompressed.
//!
//! Compressed data is a row of instructions. The first byte tells which:
//!
//! | first byte | then | meaning |
//! | --- | --- | --- |
//! | `000nnnnn` | `n + 1` bytes | these bytes |
//! | `nnnhhhhh`, `n` from 1 to 6 | a byte `l` | `n + 2` bytes again that stand `256 h + l + 1` before here |
//! | `111hhhhh` | bytes `m` and `l` | `m + 9` bytes again from there |
//!
//! The bytes repeated may reach into what they themselves become: a distance of 1 is a run. Nothing is farther away than
//! 8 KiB, so the result need not be held in memory as a whole: it is handed on in pieces.
//!
//! Own code instead of the crate `lzf`: that one is marked as deprecated, holds the whole result, and reads and writes
//! through raw pointers.

use super::rdb::Malformed;

/// Greatest distance that an instruction can reach back.
const HISTORY_BYTES: usize = 1 << 13;
/// Size of all pieces but the last.
const PIECE_BYTES: usize = 64 << 10;
/// Most bytes that an instruction gives: 264, for three.
const MAX_MATCH: usize = 264;
/// Most bytes that a compressed byte can give.
const MAX_RATIO: u64 = MAX_MATCH as u64 / 3;

/// A number of bytes that `compressed` bytes can never pass when they are decompressed.
pub fn max_decompressed(compressed: usize) -> u64 {
    (compressed as u64).saturating_mul(MAX_RATIO)
}

/// Hands the `len` bytes that `data` stands for to `sink`, in pieces with the offset of their first byte: a multiple of 64 KiB.
///
/// # Errors
///
/// [`Malformed`] when `data` is not whole or does not give `len` bytes; `sink` may have seen some by then, but none
/// beyond `len`.
pub fn decompress(data: &[u8], len: u64, sink: impl FnMut(usize, &[u8])) -> Result<(), Malformed> {
    if len > max_decompressed(data.len()) {
        return Err(Malformed);
    }
    let left = usize::try_from(len).map_err(|_| Malformed)?;
    let window = Vec::with_capacity(left.min(HISTORY_BYTES + PIECE_BYTES + MAX_MATCH));
    let mut output = Output { window, start: 0, fresh: 0, left, sink };
    let mut rest = data;
    while let Some((&first, behind)) = rest.split_first() {
        rest = behind;
        let mut take = |count: usize| {
            let (taken, behind) = rest.split_at_checked(count).ok_or(Malformed)?;
            rest = behind;
            Ok(taken)
        };
        match usize::from(first >> 5) {
            0 => output.literal(take(usize::from(first) + 1)?)?,
            count => {
                let more = if count == 7 { usize::from(take(1)?[0]) } else { 0 };
                let low = usize::from(take(1)?[0]);
                let distance = (usize::from(first & 0x1f) << 8 | low) + 1;
                output.repeat(distance, count + more + 2)?;
            }
        }
    }
    output.finish()
}

/// The end of the bytes made so far, and where they go.
struct Output<F> {
    /// The last bytes: history, then those from `fresh` on that the sink has not seen.
    window: Vec<u8>,
    /// Offset in the whole result of the window's first byte.
    start: usize,
    fresh: usize,
    /// Bytes still to come.
    left: usize,
    sink: F,
}

impl<F: FnMut(usize, &[u8])> Output<F> {
    fn literal(&mut self, bytes: &[u8]) -> Result<(), Malformed> {
        self.expect(bytes.len())?;
        self.window.extend_from_slice(bytes);
        self.flush();
        Ok(())
    }

    fn repeat(&mut self, distance: usize, count: usize) -> Result<(), Malformed> {
        self.expect(count)?;
        let from = self.window.len().checked_sub(distance).ok_or(Malformed)?;
        let mut missing = count;
        while missing > 0 {
            // What is there by now repeats itself after `distance` bytes, so each turn can copy twice as much.
            let run = missing.min(self.window.len() - from);
            self.window.extend_from_within(from..from + run);
            missing -= run;
        }
        self.flush();
        Ok(())
    }

    fn expect(&mut self, count: usize) -> Result<(), Malformed> {
        self.left = self.left.checked_sub(count).ok_or(Malformed)?;
        Ok(())
    }

    /// Hands on a piece when there is a whole one, and forgets what cannot be reached any more.
    fn flush(&mut self) {
        let end = self.fresh + PIECE_BYTES;
        if self.window.len() >= end {
            (self.sink)(self.start + self.fresh, &self.window[self.fresh..end]);
            let forgotten = end.saturating_sub(HISTORY_BYTES);
            self.window.drain(..forgotten);
            self.start += forgotten;
            self.fresh = end - forgotten;
        }
    }

    fn finish(mut self) -> Result<(), Malformed> {
        if self.left > 0 {
            return Err(Malformed);
        }
        if self.window.len() > self.fresh {
            (self.sink)(self.start + self.fresh, &self.window[self.fresh..]);
        }
        Ok(())
    }
}
