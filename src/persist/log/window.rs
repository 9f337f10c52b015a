//! A file seen through a buffer: pieces of any length at any offset, read in large steps.

use std::io;

use crate::persist::files::File;

/// Bytes that are read at once, if no piece needs more.
const READ_BYTES: u64 = 256 << 10;

/// A file and the part of it that is in memory.
pub struct Window {
    file: Box<dyn File>,
    length: u64,
    start: u64,
    buffer: Vec<u8>,
}

impl Window {
    /// Look at this file.
    pub fn new(file: Box<dyn File>) -> io::Result<Window> {
        let length = file.length()?;
        Ok(Window { file, length, start: 0, buffer: Vec::new() })
    }

    /// The file's length when it was opened.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Bytes from `offset` on: so many, or up to the file's end. Memory is taken only for what the file has.
    pub fn bytes(&mut self, offset: u64, count: u64) -> io::Result<&[u8]> {
        let count = count.min(self.length.saturating_sub(offset));
        let inside = offset >= self.start && offset + count <= self.start + self.buffer.len() as u64;
        if !inside {
            self.fill(offset, count.max(READ_BYTES).min(self.length.saturating_sub(offset)))?;
        }
        // The file may have become shorter since it was opened.
        let from = ((offset - self.start) as usize).min(self.buffer.len());
        let to = (from + count as usize).min(self.buffer.len());
        Ok(&self.buffer[from..to])
    }

    fn fill(&mut self, offset: u64, count: u64) -> io::Result<()> {
        let count = usize::try_from(count).map_err(|_| io::ErrorKind::OutOfMemory)?;
        self.buffer.clear();
        if self.buffer.capacity() < count {
            self.buffer = Vec::new();
            self.buffer.try_reserve_exact(count).map_err(|_| io::ErrorKind::OutOfMemory)?;
        }
        self.buffer.resize(count, 0);
        self.start = offset;
        let read = self.file.read_full_at(&mut self.buffer, offset)?;
        self.buffer.truncate(read);
        Ok(())
    }

    /// Where the last byte ends that is not zero, at `offset` at least.
    pub fn end_of_content(&mut self, offset: u64) -> io::Result<u64> {
        let (mut at, mut end) = (offset, offset);
        while at < self.length {
            let bytes = self.bytes(at, READ_BYTES)?;
            if bytes.is_empty() {
                break;
            }
            if let Some(last) = bytes.iter().rposition(|byte| *byte != 0) {
                end = at + last as u64 + 1;
            }
            at += bytes.len() as u64;
        }
        Ok(end)
    }
}
