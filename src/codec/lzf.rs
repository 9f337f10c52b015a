//! LZF, as Redis compresses strings with it.
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

/// Compresses one string after the other, with a table that is made once.
pub struct Compressor {
    /// Where three bytes of this hash stood last, counted over all strings: what stands before the present one is too old.
    last: Box<[u32; 1 << TABLE_BITS]>,
    /// The count at the start of the present string.
    base: u32,
}

const TABLE_BITS: u32 = 13;
const MIN_MATCH: usize = 3;
const MAX_LITERALS: usize = 32;
/// Compressed strings are at most so long.
const MAX_INPUT: usize = 1 << 30;

impl Default for Compressor {
    fn default() -> Self {
        Self { last: Box::new([0; 1 << TABLE_BITS]), base: 1 }
    }
}

impl Compressor {
    /// Append what stands for `data`, if that takes at most `most` bytes; whether it does. Nothing is appended otherwise.
    pub fn compress(&mut self, data: &[u8], most: usize, out: &mut Vec<u8>) -> bool {
        if data.len() > MAX_INPUT {
            return false;
        }
        if self.base as usize + data.len() > u32::MAX as usize {
            *self = Self::default();
        }
        let start = out.len();
        let (mut at, mut literals) = (0, 0);
        while at + MIN_MATCH <= data.len() {
            // Literals that are not out yet take a byte for each 32.
            if out.len() - start + (at - literals) > most {
                out.truncate(start);
                self.base += data.len() as u32;
                return false;
            }
            match self.find(data, at) {
                Some((distance, length)) => {
                    push_literals(out, &data[literals..at]);
                    push_match(out, distance, length);
                    // Few of the repeated places are worth remembering; the last one is.
                    if at + length + MIN_MATCH <= data.len() {
                        self.find(data, at + length - 1);
                    }
                    at += length;
                    literals = at;
                }
                None => at += 1,
            }
        }
        push_literals(out, &data[literals..]);
        self.base += data.len() as u32;
        if out.len() - start > most {
            out.truncate(start);
            return false;
        }
        true
    }

    /// Distance and length of a former run of what stands at `at`, whose place is remembered.
    fn find(&mut self, data: &[u8], at: usize) -> Option<(usize, usize)> {
        let three = u32::from_le_bytes([data[at], data[at + 1], data[at + 2], 0]);
        let slot = (three.wrapping_mul(0x9e37_79b1) >> (u32::BITS - TABLE_BITS)) as usize;
        let former = std::mem::replace(&mut self.last[slot], self.base + at as u32).checked_sub(self.base)? as usize;
        let distance = at.checked_sub(former).filter(|distance| (1..=HISTORY_BYTES).contains(distance))?;
        let most = (data.len() - at).min(MAX_MATCH);
        let length = (0..most).take_while(|i| data[former + i] == data[at + i]).count();
        (length >= MIN_MATCH).then_some((distance, length))
    }
}

fn push_literals(out: &mut Vec<u8>, literals: &[u8]) {
    for run in literals.chunks(MAX_LITERALS) {
        out.push(run.len() as u8 - 1);
        out.extend_from_slice(run);
    }
}

fn push_match(out: &mut Vec<u8>, distance: usize, length: usize) {
    let (high, low) = (((distance - 1) >> 8) as u8, (distance - 1) as u8);
    match length - 2 {
        short @ ..7 => out.extend([(short as u8) << 5 | high, low]),
        long => out.extend([7 << 5 | high, (long - 7) as u8, low]),
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn round_trip(compressor: &mut Compressor, data: &[u8]) {
        let (mut out, most) = (b"before".to_vec(), data.len().saturating_sub(4));
        if !compressor.compress(data, most, &mut out) {
            assert_eq!(out, b"before");
            return;
        }
        assert!(out.len() - 6 <= most);
        let mut back = Vec::new();
        decompress(&out[6..], data.len() as u64, |_, piece| back.extend_from_slice(piece)).unwrap();
        assert!(back == data);
    }

    #[test]
    fn runs_of_every_length_come_back() {
        let mut compressor = Compressor::default();
        for len in (0..600).chain([8191, 8192, 8193, 100_000]) {
            round_trip(&mut compressor, &vec![7; len]);
            let pattern: Vec<u8> = (0..len).map(|i| (i % 300) as u8).collect();
            round_trip(&mut compressor, &pattern);
        }
        let (mut out, zeros) = (Vec::new(), vec![0; 144]);
        assert!(compressor.compress(&zeros, 140, &mut out));
        assert!(out.len() < 10, "{} bytes", out.len());
    }

    proptest! {
        #[test]
        fn sparse_and_dense_bytes_come_back(
            data in proptest::collection::vec(prop_oneof![8 => Just(0_u8), 2 => any::<u8>()], 0..20_000),
            again in proptest::collection::vec(any::<u8>(), 0..500),
        ) {
            let mut compressor = Compressor::default();
            round_trip(&mut compressor, &data);
            round_trip(&mut compressor, &again);
            round_trip(&mut compressor, &data);
        }
    }
}
