//! Bits in pieces that copies share: a copy costs nothing until one of the two changes, and then only the pieces that change.
//!
//! A ring is saved, copied, merged and dumped from such a copy, while adds to the original go on. They go to one array of
//! the ring; so what a copy can cost is that array at most.

use std::sync::Arc;

use crate::filters::bits::AllocError;

/// Bytes of a piece.
pub const PIECE_BYTES: usize = 32 << 10;
const PIECE_BITS: u64 = PIECE_BYTES as u64 * 8;

type Piece = Arc<[u8]>;

/// Bits, all of them 0 at first. Bit `x` stands in byte `x / 8` at value `1 << (x % 8)`.
#[derive(Clone, Debug)]
pub struct SharedBits {
    bytes: usize,
    /// Those that have a bit set; the others are not there.
    pieces: Arc<Vec<Option<Piece>>>,
}

impl SharedBits {
    /// So many bits.
    ///
    /// # Errors
    /// [`AllocError`] when there is no memory.
    pub fn zeroed(bits: u64) -> Result<Self, AllocError> {
        let failed = AllocError { bytes: bits.div_ceil(8) };
        let bytes = usize::try_from(bits.div_ceil(8)).map_err(|_| failed)?;
        let mut pieces = Vec::new();
        pieces.try_reserve_exact(bytes.div_ceil(PIECE_BYTES)).map_err(|_| failed)?;
        pieces.resize(bytes.div_ceil(PIECE_BYTES), None);
        Ok(Self { bytes, pieces: Arc::new(pieces) })
    }

    /// Bytes of all bits.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "an array always has a bit")]
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Bytes of the heap, each allocation counted as `size_class` says.
    #[must_use]
    pub fn heap_bytes(&self, size_class: fn(usize) -> usize) -> usize {
        const COUNTS: usize = 2 * size_of::<usize>();
        let list = size_class(COUNTS + size_of::<Vec<Option<Piece>>>())
            + size_class(self.pieces.capacity() * size_of::<Option<Piece>>());
        list + self.pieces.iter().flatten().map(|piece| size_class(COUNTS + piece.len())).sum::<usize>()
    }

    /// Whether a bit is set.
    ///
    /// # Panics
    /// If there is no such bit.
    #[inline]
    #[must_use]
    pub fn get(&self, position: u64) -> bool {
        let piece = &self.pieces[(position / PIECE_BITS) as usize];
        let within = position % PIECE_BITS;
        piece.as_ref().is_some_and(|piece| piece[(within / 8) as usize] & 1 << (within % 8) != 0)
    }

    /// Set a bit.
    ///
    /// # Errors
    /// [`AllocError`] when there is no memory; nothing has changed then.
    ///
    /// # Panics
    /// If there is no such bit.
    pub fn set(&mut self, position: u64) -> Result<(), AllocError> {
        let within = position % PIECE_BITS;
        let piece = self.piece_mut((position / PIECE_BITS) as usize)?;
        piece[(within / 8) as usize] |= 1 << (within % 8);
        Ok(())
    }

    /// Have memory of its own for these bits, so that setting them cannot fail.
    ///
    /// # Errors
    /// [`AllocError`] when there is none; all bits are as they were.
    ///
    /// # Panics
    /// If there is no such bit.
    pub fn reserve(&mut self, positions: impl IntoIterator<Item = u64>) -> Result<(), AllocError> {
        // A small array is one piece.
        let pieces = if self.pieces.len() == 1 { 1 } else { usize::MAX };
        positions.into_iter().take(pieces).try_for_each(|bit| self.piece_mut((bit / PIECE_BITS) as usize).map(drop))
    }

    /// Or `data` into the bytes from `offset` on.
    ///
    /// # Errors
    /// [`AllocError`] when there is no memory; some of them may have changed then.
    ///
    /// # Panics
    /// If they do not lie within the array.
    pub fn or_bytes(&mut self, offset: usize, data: &[u8]) -> Result<(), AllocError> {
        let (mut at, mut rest) = (offset, data);
        while !rest.is_empty() {
            let (index, within) = (at / PIECE_BYTES, at % PIECE_BYTES);
            let (part, behind) = rest.split_at(rest.len().min(PIECE_BYTES - within));
            if part.iter().any(|byte| *byte != 0) {
                let piece = &mut self.piece_mut(index)?[within..within + part.len()];
                piece.iter_mut().zip(part).for_each(|(bits, more)| *bits |= more);
            }
            (at, rest) = (at + part.len(), behind);
        }
        Ok(())
    }

    /// Copy the bytes from `offset` on.
    ///
    /// # Panics
    /// If they do not lie within the array.
    pub fn copy_bytes(&self, offset: usize, out: &mut [u8]) {
        let (mut at, mut rest) = (offset, out);
        while !rest.is_empty() {
            let (index, within) = (at / PIECE_BYTES, at % PIECE_BYTES);
            let length = rest.len().min(PIECE_BYTES - within);
            let (part, behind) = rest.split_at_mut(length);
            match &self.pieces[index] {
                Some(piece) => part.copy_from_slice(&piece[within..within + length]),
                None => part.fill(0),
            }
            (at, rest) = (at + length, behind);
        }
    }

    /// How many bits are set.
    #[must_use]
    pub fn count_ones(&self) -> u64 {
        self.pieces.iter().flatten().map(|piece| count_ones(piece)).sum()
    }

    /// The pieces in order; those without a set bit are missing.
    pub fn pieces(&self) -> impl Iterator<Item = Option<&[u8]>> {
        self.pieces.iter().map(Option::as_deref)
    }

    fn piece_mut(&mut self, index: usize) -> Result<&mut [u8], AllocError> {
        let length = PIECE_BYTES.min(self.bytes - index * PIECE_BYTES);
        let pieces = Arc::make_mut(&mut self.pieces);
        let slot = &mut pieces[index];
        if slot.as_mut().and_then(Arc::get_mut).is_none() {
            *slot = Some(own_piece(slot.as_ref(), length)?);
        }
        let failed = AllocError { bytes: length as u64 };
        slot.as_mut().and_then(Arc::get_mut).ok_or(failed)
    }
}

/// A piece that nobody shares.
fn own_piece(from: Option<&Piece>, length: usize) -> Result<Piece, AllocError> {
    // An `Arc` cannot be asked for with an error; a vector of the size tells in time.
    let mut bytes: Vec<u8> = Vec::new();
    bytes.try_reserve_exact(length).map_err(|_| AllocError { bytes: length as u64 })?;
    drop(bytes);
    Ok(from.map_or_else(|| std::iter::repeat_n(0, length).collect(), |piece| piece[..].into()))
}

/// How many bits of these bytes are set.
#[must_use]
pub fn count_ones(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let of_words: u64 = words.iter().map(|word| u64::from(u64::from_le_bytes(*word).count_ones())).sum();
    of_words + rest.iter().map(|byte| u64::from(byte.count_ones())).sum::<u64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_set_where_they_were_set() {
        const BITS: u64 = 3 * PIECE_BITS + 13;
        let mut bits = SharedBits::zeroed(BITS).unwrap();
        let mut random = fastrand::Rng::with_seed(1);
        let mut model = std::collections::BTreeSet::new();
        for _ in 0..2000 {
            let position = random.u64(..BITS);
            assert_eq!(bits.get(position), model.contains(&position));
            bits.set(position).unwrap();
            model.insert(position);
            assert!(bits.get(position));
        }
        assert_eq!(bits.count_ones(), model.len() as u64);
        let mut copy = SharedBits::zeroed(BITS).unwrap();
        let mut bytes = vec![0; 70_000];
        bits.copy_bytes(1000, &mut bytes);
        copy.or_bytes(1000, &bytes).unwrap();
        for position in 8000..8000 + 8 * 70_000 {
            assert_eq!(copy.get(position), bits.get(position));
        }
    }

    #[test]
    fn a_copy_stays_as_it_was() {
        let mut bits = SharedBits::zeroed(2 * PIECE_BITS).unwrap();
        bits.set(5).unwrap();
        let copy = bits.clone();
        bits.set(6).unwrap();
        bits.set(PIECE_BITS + 1).unwrap();
        assert!(copy.get(5) && !copy.get(6) && !copy.get(PIECE_BITS + 1));
        assert_eq!((copy.count_ones(), bits.count_ones()), (1, 3));
    }
}
