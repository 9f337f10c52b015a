//! Copies of large values, made in steps.

use super::bloom::{BloomCopy, COPIED_AT_ONCE};
use super::entry::{Entry, EntryRef, Value, ValueRef};
use crate::codec::cells_value::{Cells, CellsRef};
use crate::filters::bits::AllocError;
use crate::filters::counting::CountingBloom;
use crate::filters::dleft::Dleft;

/// A copy in the making. The original stays as it is meanwhile.
pub enum ValueCopy {
    /// Of a Bloom filter.
    Bloom(BloomCopy),
    /// Of a counting or d-left filter.
    Cells(CellsCopy),
}

/// A copy of a counting or d-left filter in the making.
pub struct CellsCopy {
    copy: Cells,
    /// The bytes of each array.
    arrays: Vec<u64>,
    /// The array that is being copied, and how much of it is done.
    at: (usize, u64),
}

/// A counting or d-left filter.
#[must_use]
pub fn cells_of<'a>(value: &ValueRef<'a>) -> Option<CellsRef<'a>> {
    match value {
        ValueRef::Counting(filter) => Some(CellsRef::Counting(*filter)),
        ValueRef::Dleft(filter) => Some(CellsRef::Dleft(*filter)),
        _ => None,
    }
}

impl ValueCopy {
    /// A copy that has nothing yet; none of what is not copied in steps.
    ///
    /// # Errors
    /// [`AllocError`] when there is no memory for it.
    pub fn of(value: &ValueRef<'_>) -> Result<Option<Self>, AllocError> {
        if let ValueRef::Bloom(bloom) = value {
            return BloomCopy::of(*bloom).map(|copy| Some(Self::Bloom(copy)));
        }
        let Some(cells) = cells_of(value) else { return Ok(None) };
        let copy = match cells {
            CellsRef::Counting(filter) => Cells::Counting(Box::new(CountingBloom::to_be_copied(filter)?)),
            CellsRef::Dleft(filter) => Cells::Dleft(Box::new(Dleft::to_be_copied(filter)?)),
        };
        Ok(Some(Self::Cells(CellsCopy { copy, arrays: cells.head().arrays(), at: (0, 0) })))
    }

    /// Copy the next piece of the value that this is a copy of; whether that was the last.
    pub fn step(&mut self, value: &ValueRef<'_>) -> bool {
        match (self, value) {
            (Self::Bloom(copy), ValueRef::Bloom(bloom)) => copy.step(*bloom),
            (Self::Cells(copy), value) => cells_of(value).is_none_or(|cells| copy.step(cells)),
            _ => true,
        }
    }

    /// The copy, as an entry of this name with the life and the stamp of the original.
    ///
    /// # Errors
    /// [`AllocError`] when there is no memory.
    pub fn finish(self, from: EntryRef<'_>, name: &[u8]) -> Result<Entry, AllocError> {
        let value = match self {
            Self::Bloom(copy) => return copy.finish(from, name),
            Self::Cells(CellsCopy { copy: Cells::Counting(filter), .. }) => Value::Counting(filter),
            Self::Cells(CellsCopy { copy: Cells::Dleft(filter), .. }) => Value::Dleft(filter),
        };
        let copy = Entry::boxed(name, from.life(), value)?;
        copy.as_ref().set_stamp(from.stamp());
        Ok(copy)
    }
}

impl CellsCopy {
    fn step(&mut self, cells: CellsRef<'_>) -> bool {
        let (array, offset) = self.at;
        let Some(bytes) = self.arrays.get(array) else { return true };
        let mut piece = vec![0; (bytes - offset).min(COPIED_AT_ONCE as u64) as usize];
        cells.copy_bytes(array, offset as usize, &mut piece);
        match &mut self.copy {
            Cells::Counting(copy) => copy.put_bytes(offset as usize, &piece),
            Cells::Dleft(copy) => copy.put_bytes(array, offset as usize, &piece),
        }
        let done = offset + piece.len() as u64;
        self.at = if done < *bytes { (array, done) } else { (array + 1, 0) };
        self.at.0 == self.arrays.len()
    }
}
