//! A counting filter with an array of its own.
//!
//! One thread at a time writes it; any number read it when nobody writes. A snapshot reads it as it was at one moment while writes go
//! on: [`CountingBloom::freeze`].

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::cells::Cells;
use super::{Figures, Settings, Shape};
use crate::filters::bits::{AllocError, BitArray};
use crate::filters::frozen::{FrozenArrays, Past};
use crate::filters::words::NotedWords;

/// Bytes copied at once.
const COPY_BYTES: usize = 32 << 10;

/// A counting filter; see the [module](super).
pub struct CountingBloom {
    settings: Settings,
    shape: Shape,
    figures: Figures,
    array: BitArray,
    past: Past,
}

/// A filter as it was at one moment.
pub struct Image {
    /// What it was made with.
    pub settings: Settings,
    /// How large it is.
    pub shape: Shape,
    /// What it counted about itself then.
    pub figures: Figures,
    /// Its cells then, to be read once, in order.
    pub cells: Arc<FrozenArrays>,
}

impl Drop for Image {
    /// Changes need not be noted any more, whether it was read to the end or not.
    fn drop(&mut self) {
        self.cells.end();
    }
}

impl CountingBloom {
    /// An empty filter of this shape, which is that of the settings.
    ///
    /// # Errors
    /// [`AllocError`] when there is no memory for it.
    pub fn new(settings: Settings, shape: Shape, version: u64) -> Result<Self, AllocError> {
        let figures = Figures { version, ..Figures::default() };
        Ok(Self { settings, shape, figures, array: BitArray::zeroed(shape.bytes())?, past: Past::default() })
    }

    /// The same filter as another one.
    pub(super) fn copy_of(from: super::CountingRef<'_>) -> Result<Self, AllocError> {
        let mut copy = Self::to_be_copied(from)?;
        let mut buffer = [0; COPY_BYTES];
        for offset in (0..copy.array.len()).step_by(COPY_BYTES) {
            let length = COPY_BYTES.min(copy.array.len() - offset);
            from.copy_bytes(offset, &mut buffer[..length]);
            copy.put_bytes(offset, &buffer[..length]);
        }
        Ok(copy)
    }

    /// A filter like another one, but that all of its cells are 0 as yet: for whoever copies it in pieces with
    /// [`put_bytes`](Self::put_bytes).
    ///
    /// # Errors
    /// [`AllocError`] when there is no memory for it.
    pub fn to_be_copied(from: super::CountingRef<'_>) -> Result<Self, AllocError> {
        Ok(Self { figures: from.figures(), ..Self::new(from.settings(), from.shape(), 0)? })
    }

    /// Puts bytes where cells are 0, from `offset` on; nothing is counted.
    ///
    /// # Panics
    /// If the range does not lie inside the cells.
    pub fn put_bytes(&mut self, offset: usize, bytes: &[u8]) {
        self.array.or_bytes(offset, bytes);
    }

    /// A filter whose cells were read from somewhere; none if it cannot have them.
    #[must_use]
    pub fn from_array(settings: Settings, shape: Shape, figures: Figures, array: BitArray) -> Option<Self> {
        if array.len() as u64 != shape.bytes() {
            return None;
        }
        let mut filter = Self { settings, shape, figures, array, past: Past::default() };
        let (nonzero, saturated) = filter.cells().recount()?;
        filter.figures = Figures { nonzero, saturated, ..figures };
        Some(filter)
    }

    /// What it was made with.
    #[inline]
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// How large it is.
    #[inline]
    #[must_use]
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// What it counts about itself.
    #[inline]
    #[must_use]
    pub fn figures(&self) -> &Figures {
        &self.figures
    }

    pub(super) fn array(&self) -> &BitArray {
        &self.array
    }

    /// Bytes of the heap that it holds, without the size of this struct. `given` tells what the allocator gives out for a number of
    /// bytes.
    #[must_use]
    pub fn heap_bytes(&self, given: impl Fn(usize) -> usize) -> usize {
        let array = if self.array.is_mapped() { 0 } else { given(self.array.allocated_bytes()) };
        array + given(BitArray::HANDLE_BYTES)
    }

    /// Bytes of memory mappings that it holds.
    #[must_use]
    pub fn mapped_bytes(&self) -> usize {
        if self.array.is_mapped() { self.array.allocated_bytes() } else { 0 }
    }

    /// The number of the latest moment for which it was frozen, or since which it exists.
    pub fn moment(&self) -> u64 {
        self.past.moment()
    }

    /// It did not exist at this moment, or what it was then is known.
    pub fn set_moment(&self, moment: u64) {
        self.past.set_moment(moment);
    }

    /// Keep the state as it is now for a reader: it is the state of this moment, the latest of increasing numbers. Whoever calls
    /// it first gets it; who is about to change the filter calls it before, then waits for no reader.
    pub fn freeze(&self, moment: u64) -> Option<Image> {
        let cells = self.past.freeze(moment, || vec![self.array.share()])?;
        Some(Image { settings: self.settings, shape: self.shape, figures: self.figures, cells })
    }

    #[inline]
    pub(super) fn cells(&self) -> Cells<&[AtomicU64]> {
        Cells::new(self.shape, self.array.words())
    }

    #[inline]
    pub(super) fn write<R>(&mut self, work: impl FnOnce(&mut Cells<NotedWords<'_>>, &mut Figures) -> R) -> R {
        let frozen = self.past.frozen();
        let words = NotedWords::new(&mut self.array, frozen.as_deref().map(|frozen| (frozen.changes(), 0)));
        work(&mut Cells::new(self.shape, words), &mut self.figures)
    }
}

impl std::fmt::Debug for CountingBloom {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut fields = f.debug_struct("CountingBloom");
        fields.field("settings", &self.settings).field("shape", &self.shape).field("figures", &self.figures);
        fields.finish_non_exhaustive()
    }
}
