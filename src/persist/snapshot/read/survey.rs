//! Which blocks of a damaged file are sound.
//!
//! One pass over the file finds all that looks like a mark, and keeps the checksum of everything before it. From those the checksum
//! of any block follows that begins at the end of another mark: `crc(A B)` is known from `crc(A)`, `crc(B)` and the length of `B`.
//! Where the mark before is damaged, its block's successor begins at no known place; it is read again. Marks that
//! are none, put into a file on purpose, could make that many readings: together they read no more than the file once more.
//! For the same reason blocks are taken from the last to the first: the mark that ends a block is met before what lies in it.

use std::io;

use super::report::{Checksum, Progress};
use super::scan::checksum;
use super::window::WINDOW_BYTES;
use crate::codec::crc32c::Crc32c;
use crate::codec::crc64::Crc64;
use crate::persist::files::File;
use crate::persist::snapshot::mark::{MARK_BYTES, Mark, candidates};

const CHECKSUM_BYTES: u64 = 8;

/// Something that looks like a mark.
struct Candidate {
    offset: u64,
    mark: Mark,
    /// CRC-32C of the file up to it.
    before: u32,
    /// CRC-32C of the file up to its end.
    behind: u32,
}

impl Candidate {
    fn end(&self) -> u64 {
        self.offset + MARK_BYTES as u64
    }
}

/// A part of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Section {
    pub(super) from: u64,
    pub(super) to: u64,
    /// Number of blocks, each with its mark, whose checksums are right; 0: nothing is known of these bytes.
    pub(super) blocks: u64,
}

/// What is known of a file before it is read.
pub(super) struct Survey {
    pub(super) length: u64,
    pub(super) checksum: Checksum,
    /// Sound blocks, each with its mark: first byte, and the one after the last.
    blocks: Vec<(u64, u64)>,
}

impl Survey {
    /// # Errors
    /// Where the file could not be read, and why.
    pub(super) fn of(file: &dyn File, length: u64, progress: &Progress) -> Result<Survey, (u64, io::Error)> {
        let (marks, checksum) = find_marks(file, length, progress)?;
        let mut blocks = Vec::new();
        let (mut limit, mut again) = (length, length);
        // From the last to the first: what looks like a mark inside a sound block is part of a key.
        for (i, candidate) in marks.iter().enumerate().rev() {
            let Some(start) = candidate.offset.checked_sub(candidate.mark.length) else { continue };
            if candidate.end() <= limit && is_sound(file, &marks[..i], candidate, start, &mut again)? {
                blocks.push((start, candidate.end()));
                limit = start;
            }
        }
        blocks.reverse();
        Ok(Survey { length, checksum, blocks })
    }

    pub(super) fn sound_blocks(&self) -> u64 {
        self.blocks.len() as u64
    }

    /// The file in parts, each sound as a whole or not; in order, without gaps.
    pub(super) fn sections(&self) -> Vec<Section> {
        let mut sections: Vec<Section> = Vec::new();
        let mut at = 0;
        for &(from, to) in &self.blocks {
            if at < from {
                sections.push(Section { from: at, to: from, blocks: 0 });
            }
            match sections.last_mut() {
                Some(last) if last.blocks > 0 && last.to == from => (last.to, last.blocks) = (to, last.blocks + 1),
                _ => sections.push(Section { from, to, blocks: 1 }),
            }
            at = to;
        }
        if at < self.length || sections.is_empty() {
            sections.push(Section { from: at, to: self.length, blocks: 0 });
        }
        sections
    }
}

/// Whether the block from `start` to a mark has the checksum that the mark says; `again`: bytes that may still be read for it.
fn is_sound(
    file: &dyn File,
    before: &[Candidate],
    candidate: &Candidate,
    start: u64,
    again: &mut u64,
) -> Result<bool, (u64, io::Error)> {
    let Mark { crc, length } = candidate.mark;
    let known = match before.binary_search_by_key(&start, Candidate::end) {
        Ok(at) => Some(before[at].behind),
        Err(_) if start == 0 => Some(Crc32c::of(b"")),
        Err(_) => None,
    };
    if let Some(known) = known {
        return Ok(Crc32c::joined(known, crc, length) == candidate.before);
    }
    if length > *again {
        return Ok(false);
    }
    *again -= length;
    let mut sum = Crc32c::new();
    let mut at = start;
    let mut buffer = vec![0; length.min(WINDOW_BYTES as u64) as usize];
    while at < candidate.offset {
        let wanted = (candidate.offset - at).min(WINDOW_BYTES as u64) as usize;
        let read = file.read_full_at(&mut buffer[..wanted], at).map_err(|error| (at, error))?;
        if read == 0 {
            return Ok(false);
        }
        sum.update(&buffer[..read]);
        at += read as u64;
    }
    Ok(sum.value() == crc)
}

/// All that looks like a mark, and what the file's own checksum says.
fn find_marks(
    file: &dyn File,
    length: u64,
    progress: &Progress,
) -> Result<(Vec<Candidate>, Checksum), (u64, io::Error)> {
    let mut found: Vec<Candidate> = Vec::new();
    let (mut whole, mut sum) = (Crc64::new(), Crc32c::new());
    let mut buffer = vec![0; length.min(WINDOW_BYTES as u64) as usize];
    let (mut start, mut kept) = (0u64, 0usize);
    let summed_to = length.saturating_sub(CHECKSUM_BYTES);
    let mut end = [0; CHECKSUM_BYTES as usize + 1];
    loop {
        let read = file.read_full_at(&mut buffer[kept..], start + kept as u64).map_err(|error| (start, error))?;
        let filled = kept + read;
        let bytes = &buffer[..filled];
        let last = read == 0 || start + filled as u64 >= length;
        // What may be the beginning of a mark stays for the next turn.
        let done = if last { filled } else { filled - (MARK_BYTES - 1).min(filled) };
        let mut at = 0;
        for offset in candidates(bytes).take_while(|offset| *offset < done) {
            let Some(mark) = Mark::read(&bytes[offset..]) else { break };
            if offset < at {
                continue;
            }
            sum.update(&bytes[at..offset]);
            let before = sum.value();
            sum.update(&bytes[offset..offset + MARK_BYTES]);
            at = offset + MARK_BYTES;
            found.push(Candidate { offset: start + offset as u64, mark, before, behind: sum.value() });
        }
        let done = done.max(at);
        sum.update(&bytes[at..done]);
        let of_whole = summed_to.saturating_sub(start).min(done as u64) as usize;
        whole.update(&bytes[..of_whole]);
        if last {
            let tail = &bytes[filled - filled.min(end.len())..];
            if tail.len() == end.len() {
                end.copy_from_slice(tail);
            }
            break;
        }
        buffer.copy_within(done..filled, 0);
        (start, kept) = (start + done as u64, filled - done);
        progress.reached(start);
    }
    let [opcode, stored @ ..] = end;
    let says = if opcode == 0xff { checksum(u64::from_le_bytes(stored), whole.value()) } else { Checksum::Missing };
    Ok((found, says))
}
