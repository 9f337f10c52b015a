//! The exact set beside the cells: items that found no free cell, and copies above a cell's ceiling.
//!
//! Entries stand in ascending order in one piece, which images share until a change. An insert moves what comes behind it: at most
//! 16 bytes for every thousand items of the filter.

use std::sync::Arc;

use crate::filters::bits::AllocError;

/// An entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spilled {
    /// The fingerprint.
    pub f: u64,
    /// Copies of it that no cell counts.
    pub copies: u32,
    /// No cell counts any of it. Otherwise its cell is at the ceiling.
    pub without_cell: bool,
}

/// The entries.
#[derive(Clone, Debug, Default)]
pub(super) struct Spill {
    entries: Arc<Vec<Spilled>>,
    without_cell: u64,
}

impl Spill {
    pub(super) fn entries(&self) -> &[Spilled] {
        &self.entries
    }

    /// These entries, in strictly ascending order and each with copies; none if they are not.
    pub(super) fn of(entries: Vec<Spilled>) -> Option<Self> {
        let sound = entries.is_sorted_by(|one, next| one.f < next.f) && entries.iter().all(|entry| entry.copies > 0);
        let without_cell = entries.iter().filter(|entry| entry.without_cell).count() as u64;
        sound.then(|| Self {
            entries: if entries.is_empty() { Arc::default() } else { Arc::new(entries) },
            without_cell,
        })
    }

    /// Entries of which no cell counts any copy.
    pub(super) fn without_cell(&self) -> u64 {
        self.without_cell
    }

    fn place(&self, f: u64) -> Result<usize, usize> {
        self.entries.binary_search_by_key(&f, |entry| entry.f)
    }

    #[inline]
    pub(super) fn get(&self, f: u64) -> Option<Spilled> {
        if self.entries.is_empty() {
            return None;
        }
        self.place(f).ok().map(|i| self.entries[i])
    }

    /// Counts one copy more, of an entry that is there or of a new one if there may be so many. False: nothing has changed.
    pub(super) fn add(&mut self, f: u64, without_cell: bool, most: u64) -> Result<bool, AllocError> {
        match self.place(f) {
            Ok(i) if self.entries[i].copies < u32::MAX => self.own(0)?[i].copies += 1,
            Err(i) if (self.entries.len() as u64) < most => {
                self.own(1)?.insert(i, Spilled { f, copies: 1, without_cell });
                self.without_cell += u64::from(without_cell);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Takes an entry in as it was; false if it is there already.
    pub(super) fn load(&mut self, entry: Spilled) -> Result<bool, AllocError> {
        let Err(i) = self.place(entry.f) else { return Ok(false) };
        self.own(1)?.insert(i, entry);
        self.without_cell += u64::from(entry.without_cell);
        Ok(true)
    }

    /// Counts one copy less: whether there was one.
    pub(super) fn take(&mut self, f: u64) -> Result<bool, AllocError> {
        if self.entries.is_empty() {
            return Ok(false);
        }
        let Ok(i) = self.place(f) else { return Ok(false) };
        let entries = self.own(0)?;
        entries[i].copies -= 1;
        if entries[i].copies == 0 {
            let gone = entries.remove(i);
            self.without_cell -= u64::from(gone.without_cell);
        }
        if self.entries.is_empty() {
            self.entries = Arc::default();
        }
        Ok(true)
    }

    /// The entries for themselves, with room for so many more.
    fn own(&mut self, more: usize) -> Result<&mut Vec<Spilled>, AllocError> {
        let length = self.entries.len();
        let failed = AllocError { bytes: ((length + more) * size_of::<Spilled>()) as u64 };
        if Arc::get_mut(&mut self.entries).is_none() {
            let mut entries = Vec::new();
            entries.try_reserve_exact(length + more).map_err(|_| failed)?;
            entries.extend_from_slice(&self.entries);
            self.entries = Arc::new(entries);
        }
        let entries = Arc::get_mut(&mut self.entries).ok_or(failed)?;
        entries.try_reserve(more).map_err(|_| failed)?;
        Ok(entries)
    }

    pub(super) fn heap_bytes(&self, given: impl Fn(usize) -> usize) -> usize {
        const HANDLE_BYTES: usize = 2 * size_of::<usize>() + size_of::<Vec<Spilled>>();
        let entries = self.entries.capacity() * size_of::<Spilled>();
        given(HANDLE_BYTES) + if entries == 0 { 0 } else { given(entries) }
    }
}
