//! Bits in pieces that copies share: a copy costs nothing until one of the two changes, and then only the pieces that change.
//!
//! A ring is saved, copied, merged and dumped from such a copy, while adds to the original go on. They go to one array of
//! the ring; so what a copy can cost is that array at most.
//!
//! **No change takes long, however large the array.** A shard is locked meanwhile. So pieces stand in groups, and a copy's first change copies
//! the list of groups, one group and one piece; a piece is there when it has a bit set; and in a large array it begins as a list of
//! its bits, so that a few hundred first items do not have all memory of the array made, and cleared, at once. How many bits are set is
//! counted as they are.

use std::ops::Range;
use std::sync::Arc;

use crate::filters::bits::AllocError;

/// What an [`Arc`] keeps beside its content.
const COUNTS_BYTES: usize = 2 * size_of::<usize>();
/// Bytes of a piece, which fills 8 KiB with its counts: 1 us to copy.
pub const PIECE_BYTES: usize = (8 << 10) - COUNTS_BYTES;
const PIECE_BITS: u64 = PIECE_BYTES as u64 * 8;
/// Pieces of a group, each with a count that a copy of the group raises: 2 us if none of them is in a cache.
const GROUP_PIECES: usize = 16;

/// Larger arrays begin their pieces as lists. All those of a smaller one can be made at once. The same on every machine: a log
/// done again gives the same bytes.
const LISTS_ABOVE_BYTES: u64 = 512 << 10;
/// Bytes of a list as it grows, with its counts what allocators give out.
const LIST_BYTES: [usize; 3] = [16, 48, 240];
const LONGEST_LIST_BYTES: usize = LIST_BYTES[LIST_BYTES.len() - 1];
const BIT_BYTES: usize = size_of::<u16>();
/// A free place of a list. No piece has such a bit.
const FREE: u16 = u16::MAX;
const _: () = assert!(PIECE_BITS <= FREE as u64);

/// Bits; or a list of the places of those that are set, of two bytes each, free places last.
type Piece = Arc<[u8]>;
/// What a group begins with.
const NO_PIECES: [Option<Piece>; GROUP_PIECES] = [const { None }; GROUP_PIECES];
type Group = Arc<[Option<Piece>; GROUP_PIECES]>;

/// Whether an array of so many bytes begins with little memory, and gets more as bits are set all over it.
#[must_use]
pub(super) fn begin_small(bytes: u64) -> bool {
    bytes > LISTS_ABOVE_BYTES
}

/// Bits, all of them 0 at first. Bit `x` stands in byte `x / 8` at value `1 << (x % 8)`.
#[derive(Clone, Debug)]
pub struct SharedBits {
    bytes: usize,
    ones: u64,
    held: Held,
    /// Pieces that have a bit set, or are about to; the others are not there.
    groups: Arc<[Option<Group>]>,
}

/// How many allocations there are.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    groups: usize,
    /// Pieces of bits.
    pieces: usize,
    /// Lists of each length.
    lists: [usize; LIST_BYTES.len()],
}

impl Held {
    /// A piece comes (1), or goes (-1).
    fn count(&mut self, piece: &[u8], may_be_list: bool, change: isize) {
        let count = match LIST_BYTES.iter().position(|bytes| *bytes == piece.len()) {
            Some(index) if may_be_list => &mut self.lists[index],
            _ => &mut self.pieces,
        };
        *count = count.wrapping_add_signed(change);
    }
}

impl SharedBits {
    /// So many bits.
    ///
    /// # Errors
    /// [`AllocError`] when there is no memory.
    pub fn zeroed(bits: u64) -> Result<Self, AllocError> {
        let failed = AllocError { bytes: bits.div_ceil(8) };
        let bytes = usize::try_from(bits.div_ceil(8)).map_err(|_| failed)?;
        let groups = bytes.div_ceil(PIECE_BYTES).div_ceil(GROUP_PIECES);
        may_allocate(groups.saturating_mul(size_of::<Option<Group>>())).map_err(|_| failed)?;
        let groups = std::iter::repeat_n(None, groups).collect();
        Ok(Self { bytes, ones: 0, held: Held::default(), groups })
    }

    /// Bytes of all bits.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "an array always has a bit")]
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Number of pieces that all bits are divided into.
    #[must_use]
    pub fn pieces(&self) -> usize {
        self.bytes.div_ceil(PIECE_BYTES)
    }

    /// Bytes of the heap, each allocation counted as `size_class` says.
    #[must_use]
    pub fn heap_bytes(&self, size_class: fn(usize) -> usize) -> usize {
        let shared = |bytes: usize| size_class(COUNTS_BYTES + bytes);
        let has_last_piece = self.pieces().checked_sub(1).is_some_and(|index| self.piece(index).is_some());
        let mut sum =
            shared(size_of_val(&*self.groups)) + self.held.groups * shared(size_of::<[Option<Piece>; GROUP_PIECES]>());
        let short_last = has_last_piece && !self.may_be_list(self.pieces() - 1);
        sum += (self.held.pieces - usize::from(short_last)) * shared(PIECE_BYTES);
        sum += if short_last { shared(self.piece_len(self.pieces() - 1)) } else { 0 };
        sum + self.held.lists.iter().zip(LIST_BYTES).map(|(count, bytes)| count * shared(bytes)).sum::<usize>()
    }

    /// Whether a bit is set.
    ///
    /// # Panics
    /// If there is no such bit, perhaps.
    #[inline]
    #[must_use]
    pub fn get(&self, position: u64) -> bool {
        let (index, within) = place(position);
        match self.piece(index) {
            None => false,
            Some(piece) if piece.len() == PIECE_BYTES => is_set(piece, within),
            Some(piece) => self.get_odd(index, piece, within),
        }
    }

    /// A bit of a list, or of the last piece: out of the way of all others, which is a quarter of their time.
    #[cold]
    #[inline(never)]
    fn get_odd(&self, index: usize, piece: &[u8], within: u16) -> bool {
        if self.may_be_list(index) { is_listed(piece, within) } else { is_set(piece, within) }
    }

    /// Set a bit.
    ///
    /// # Errors
    /// [`AllocError`] when there is no memory; nothing has changed then.
    ///
    /// # Panics
    /// If there is no such bit.
    pub fn set(&mut self, position: u64) -> Result<(), AllocError> {
        let (index, within) = place(position);
        let may_be_list = self.may_be_list(index);
        let piece = self.own(index, Some(within))?;
        let is_new = match may_be_list && piece.len() < PIECE_BYTES {
            true => put_in_list(piece, within),
            false => {
                let (byte, bit) = (&mut piece[usize::from(within / 8)], 1 << (within % 8));
                let is_new = *byte & bit == 0;
                *byte |= bit;
                is_new
            }
        };
        self.ones += u64::from(is_new);
        Ok(())
    }

    /// Have memory of its own for these bits, so that setting them cannot fail: but for a few bytes where several of them stand in the
    /// list of one piece.
    ///
    /// # Errors
    /// [`AllocError`] when there is none; all bits are as they were.
    ///
    /// # Panics
    /// If there is no such bit.
    pub fn reserve(&mut self, positions: impl IntoIterator<Item = u64>) -> Result<(), AllocError> {
        // A small array is one piece.
        let most = if self.pieces() == 1 { 1 } else { usize::MAX };
        positions.into_iter().take(most).try_for_each(|position| {
            let (index, within) = place(position);
            // Loads only: those of all positions wait for memory at the same time.
            if self.is_ready(index, within) { Ok(()) } else { self.own(index, Some(within)).map(drop) }
        })
    }

    /// Whether this bit can be set without any memory.
    fn is_ready(&self, index: usize, within: u16) -> bool {
        // Nobody has weak pointers, and copies are made of what is not borrowed to be changed: a count of one stays so.
        let is_ours =
            |piece: &Piece| Arc::strong_count(piece) == 1 && (!self.is_list(index, piece) || has_room(piece, within));
        let group = self.groups[index / GROUP_PIECES].as_ref().filter(|group| Arc::strong_count(group) == 1);
        Arc::strong_count(&self.groups) == 1
            && group.is_some_and(|group| group[index % GROUP_PIECES].as_ref().is_some_and(is_ours))
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
                if self.stays_list(index, part) {
                    set_bits(part).try_for_each(|bit| self.set(at as u64 * 8 + bit))?;
                } else {
                    let piece = self.own(index, None)?;
                    self.ones += or_counting(&mut piece[within..within + part.len()], part);
                }
            }
            (at, rest) = (at + part.len(), behind);
        }
        Ok(())
    }

    /// Or pieces of another array of this length into those of this one. What this one does not have is shared.
    ///
    /// # Errors
    /// [`AllocError`] when there is no memory; some of them may have changed then.
    ///
    /// # Panics
    /// If there are no such pieces, or the lengths differ.
    pub fn or_pieces(&mut self, other: &Self, pieces: Range<usize>) -> Result<(), AllocError> {
        assert_eq!(self.bytes, other.bytes, "arrays of one length");
        for index in pieces {
            let Some(theirs) = other.piece(index) else { continue };
            match self.piece(index) {
                Some(own) if Arc::ptr_eq(own, theirs) => {}
                None => {
                    self.share(index, theirs)?;
                    self.ones += other.ones_in(index, theirs);
                }
                Some(_) if other.is_list(index, theirs) => {
                    let start = index as u64 * PIECE_BITS;
                    listed(theirs).try_for_each(|bit| self.set(start + u64::from(bit)))?;
                }
                Some(_) => {
                    let own = self.own(index, None)?;
                    self.ones += or_counting(own, theirs);
                }
            }
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
            match self.piece(index) {
                None => part.fill(0),
                Some(piece) if self.is_list(index, piece) => {
                    part.fill(0);
                    let bits = listed(piece).filter_map(|bit| usize::from(bit).checked_sub(within * 8));
                    bits.filter(|bit| *bit < length * 8).for_each(|bit| part[bit / 8] |= 1 << (bit % 8));
                }
                Some(piece) => part.copy_from_slice(&piece[within..within + length]),
            }
            (at, rest) = (at + length, behind);
        }
    }

    /// How many bits are set.
    #[must_use]
    pub fn count_ones(&self) -> u64 {
        self.ones
    }

    #[inline]
    fn piece(&self, index: usize) -> Option<&Piece> {
        self.groups[index / GROUP_PIECES].as_ref()?[index % GROUP_PIECES].as_ref()
    }

    /// Bytes of this piece as bits.
    fn piece_len(&self, index: usize) -> usize {
        PIECE_BYTES.min(self.bytes - index * PIECE_BYTES)
    }

    /// Whether this piece is a list when it is shorter than its bits.
    fn may_be_list(&self, index: usize) -> bool {
        begin_small(self.bytes as u64) && self.piece_len(index) == PIECE_BYTES
    }

    fn is_list(&self, index: usize, piece: &[u8]) -> bool {
        piece.len() < PIECE_BYTES && self.may_be_list(index)
    }

    /// Whether this piece is a list, or can be one, also with these bits.
    fn stays_list(&self, index: usize, more: &[u8]) -> bool {
        self.may_be_list(index)
            && self.piece(index).is_none_or(|piece| piece.len() < PIECE_BYTES)
            && count_ones(more) <= (LONGEST_LIST_BYTES / BIT_BYTES) as u64
    }

    fn ones_in(&self, index: usize, piece: &[u8]) -> u64 {
        if self.is_list(index, piece) { listed(piece).count() as u64 } else { count_ones(piece) }
    }

    /// Have this piece for ourselves, with room for the bit `within` it if one is named, else as bits.
    fn own(&mut self, index: usize, within: Option<u16>) -> Result<&mut [u8], AllocError> {
        let (length, may_be_list) = (self.piece_len(index), self.may_be_list(index));
        let slot = slot(&mut self.groups, &mut self.held.groups, index)?;
        let new = match (slot.as_ref(), within) {
            (None, Some(_)) if may_be_list => Some(list_with_room(&[])?),
            (None, _) => Some(zeros(length)?),
            (Some(piece), Some(within)) if may_be_list && piece.len() < PIECE_BYTES && !has_room(piece, within) => {
                Some(list_with_room(piece)?)
            }
            (Some(piece), None) if may_be_list && piece.len() < PIECE_BYTES => Some(bits_of_list(piece)?),
            // Nobody has a weak pointer to it.
            (Some(piece), _) if Arc::strong_count(piece) > 1 => Some(copied(piece)?),
            _ => None,
        };
        if let Some(new) = new {
            self.held.count(&new, may_be_list, 1);
            slot.replace(new).iter().for_each(|old| self.held.count(old, may_be_list, -1));
        }
        let failed = AllocError { bytes: length as u64 };
        slot.as_mut().and_then(Arc::get_mut).ok_or(failed)
    }

    /// Share a piece that another array has at this place.
    fn share(&mut self, index: usize, piece: &Piece) -> Result<(), AllocError> {
        *slot(&mut self.groups, &mut self.held.groups, index)? = Some(piece.clone());
        self.held.count(piece, self.may_be_list(index), 1);
        Ok(())
    }
}

/// The place of a piece, in a group that nobody shares.
fn slot<'a>(
    groups: &'a mut Arc<[Option<Group>]>,
    held: &mut usize,
    index: usize,
) -> Result<&'a mut Option<Piece>, AllocError> {
    if Arc::strong_count(groups) > 1 {
        may_allocate(size_of_val(&**groups))?;
    }
    let group = &mut Arc::make_mut(groups)[index / GROUP_PIECES];
    if group.as_ref().is_none_or(|group| Arc::strong_count(group) > 1) {
        may_allocate(size_of_val(&NO_PIECES))?;
    }
    let group = group.get_or_insert_with(|| {
        *held += 1;
        Arc::new(NO_PIECES)
    });
    Ok(&mut Arc::make_mut(group)[index % GROUP_PIECES])
}

/// The piece of a bit, and its place there.
#[inline]
fn place(position: u64) -> (usize, u16) {
    ((position / PIECE_BITS) as usize, (position % PIECE_BITS) as u16)
}

/// Whether there is memory: an `Arc` cannot be asked for with an error; a vector of the size tells in time.
fn may_allocate(bytes: usize) -> Result<(), AllocError> {
    Vec::<u8>::new().try_reserve_exact(bytes).map_err(|_| AllocError { bytes: bytes as u64 })
}

fn zeros(bytes: usize) -> Result<Piece, AllocError> {
    may_allocate(bytes)?;
    Ok(std::iter::repeat_n(0, bytes).collect())
}

fn copied(piece: &[u8]) -> Result<Piece, AllocError> {
    may_allocate(piece.len())?;
    Ok(piece.into())
}

/// The bits of a list.
fn listed(list: &[u8]) -> impl Iterator<Item = u16> {
    let (places, _) = list.as_chunks::<BIT_BYTES>();
    places.iter().map(|place| u16::from_le_bytes(*place)).take_while(|place| *place != FREE)
}

/// Whether a list has this bit. All of it is looked at, which is faster than to stop.
#[inline]
fn is_listed(list: &[u8], bit: u16) -> bool {
    let (places, _) = list.as_chunks::<BIT_BYTES>();
    places.iter().fold(false, |found, place| found | (u16::from_le_bytes(*place) == bit))
}

/// Whether a list has a free place, or this bit.
fn has_room(list: &[u8], bit: u16) -> bool {
    list.last_chunk() == Some(&FREE.to_le_bytes()) || is_listed(list, bit)
}

/// Put a bit in a list that has room for it. Whether it is new there.
fn put_in_list(list: &mut [u8], bit: u16) -> bool {
    if is_listed(list, bit) {
        return false;
    }
    let (places, _) = list.as_chunks_mut::<BIT_BYTES>();
    let free = places.partition_point(|place| *place != FREE.to_le_bytes());
    places.get_mut(free).map(|place| *place = bit.to_le_bytes()).is_some()
}

/// A longer list of the same bits; the bits themselves when there is none.
fn list_with_room(list: &[u8]) -> Result<Piece, AllocError> {
    let Some(bytes) = LIST_BYTES.into_iter().find(|bytes| *bytes > list.len()) else { return bits_of_list(list) };
    may_allocate(bytes)?;
    Ok(list.iter().copied().chain(std::iter::repeat_n(FREE as u8, bytes - list.len())).collect())
}

fn bits_of_list(list: &[u8]) -> Result<Piece, AllocError> {
    let mut piece = zeros(PIECE_BYTES)?;
    if let Some(bits) = Arc::get_mut(&mut piece) {
        listed(list).for_each(|bit| bits[usize::from(bit / 8)] |= 1 << (bit % 8));
    }
    Ok(piece)
}

#[inline]
fn is_set(bits: &[u8], bit: u16) -> bool {
    bits[usize::from(bit / 8)] & 1 << (bit % 8) != 0
}

/// The places of the bits that are set.
fn set_bits(bytes: &[u8]) -> impl Iterator<Item = u64> {
    let of_byte = |(at, byte): (usize, &u8)| {
        let (at, byte) = (at as u64, *byte);
        (0..8).filter(move |bit| byte & 1 << bit != 0).map(move |bit| at * 8 + bit)
    };
    bytes.iter().enumerate().filter(|(_, byte)| **byte != 0).flat_map(of_byte)
}

/// Or more bits into others of that length. How many are new.
fn or_counting(bits: &mut [u8], more: &[u8]) -> u64 {
    let ((words, rest), (more_words, more_rest)) = (bits.as_chunks_mut::<8>(), more.as_chunks::<8>());
    let mut new = 0;
    for (word, more) in words.iter_mut().zip(more_words) {
        let (old, more) = (u64::from_le_bytes(*word), u64::from_le_bytes(*more));
        new += u64::from((more & !old).count_ones());
        *word = (old | more).to_le_bytes();
    }
    for (byte, more) in rest.iter_mut().zip(more_rest) {
        new += u64::from((more & !*byte).count_ones());
        *byte |= more;
    }
    new
}

/// How many bits of these bytes are set.
pub(in crate::filters) fn count_ones(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let of_words: u64 = words.iter().map(|word| u64::from(u64::from_le_bytes(*word).count_ones())).sum();
    of_words + rest.iter().map(|byte| u64::from(byte.count_ones())).sum::<u64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One piece, some, so many that they begin as lists; with and without a short one at the end.
    const SIZES: [u64; 5] =
        [1000, 3 * PIECE_BITS + 13, 65 * PIECE_BITS, 70 * PIECE_BITS + 5, 2 * PIECE_BITS * GROUP_PIECES as u64 + 700];

    fn bytes_of(bits: &SharedBits) -> Vec<u8> {
        let mut bytes = vec![0; bits.len()];
        bits.copy_bytes(0, &mut bytes);
        bytes
    }

    /// What is held is what was counted on the way.
    fn assert_counted(bits: &SharedBits) {
        assert_eq!(bits.count_ones(), count_ones(&bytes_of(bits)));
        let own = |bytes: usize| COUNTS_BYTES + bytes;
        let group = |group: &Group| {
            own(size_of_val(&**group)) + group.iter().flatten().map(|piece| own(piece.len())).sum::<usize>()
        };
        let sum = own(size_of_val(&*bits.groups)) + bits.groups.iter().flatten().map(group).sum::<usize>();
        assert_eq!(bits.heap_bytes(|bytes| bytes), sum);
    }

    #[test]
    fn bits_are_set_where_they_were_set() {
        for size in SIZES {
            let mut bits = SharedBits::zeroed(size).unwrap();
            let mut random = fastrand::Rng::with_seed(1);
            let mut model = std::collections::BTreeSet::new();
            for _ in 0..2000 {
                let position = random.u64(..size);
                assert_eq!(bits.get(position), model.contains(&position));
                bits.set(position).unwrap();
                model.insert(position);
                assert!(bits.get(position));
            }
            // One piece passes from one list to the next, and then to bits.
            for position in (size / 2)..(size / 2 + 400).min(size) {
                bits.set(position).unwrap();
                model.insert(position);
                assert_eq!(bits.count_ones(), model.len() as u64);
            }
            assert_counted(&bits);
            let found = set_bits(&bytes_of(&bits)).collect::<Vec<_>>();
            assert!(found.into_iter().eq(model.iter().copied()), "{size}");
        }
    }

    #[test]
    fn bytes_go_to_their_place() {
        for size in SIZES {
            let mut bits = SharedBits::zeroed(size).unwrap();
            let mut random = fastrand::Rng::with_seed(2);
            let mut model = vec![0; bits.len()];
            for round in 0..60 {
                let start = random.usize(..model.len());
                let run = random.usize(1..=(model.len() - start).min(20_000));
                // Few bits and many.
                let few = |random: &mut fastrand::Rng| if random.u8(..) == 0 { 1 << random.u8(..8) } else { 0 };
                let data: Vec<u8> =
                    (0..run).map(|_| if round % 3 == 0 { random.u8(..) } else { few(&mut random) }).collect();
                bits.or_bytes(start, &data).unwrap();
                model[start..].iter_mut().zip(&data).for_each(|(byte, more)| *byte |= more);
                let mut found = vec![0xee; run];
                bits.copy_bytes(start, &mut found);
                assert_eq!(found, model[start..start + run]);
            }
            assert_eq!(bytes_of(&bits), model);
            assert_counted(&bits);
        }
    }

    #[test]
    fn a_copy_stays_as_it_was() {
        for size in [2 * PIECE_BITS, 100 * PIECE_BITS] {
            let mut bits = SharedBits::zeroed(size).unwrap();
            bits.set(5).unwrap();
            let copy = bits.clone();
            bits.set(6).unwrap();
            bits.set(PIECE_BITS + 1).unwrap();
            assert!(copy.get(5) && !copy.get(6) && !copy.get(PIECE_BITS + 1));
            assert_eq!((copy.count_ones(), bits.count_ones()), (1, 3));
            assert_counted(&copy);
            assert_counted(&bits);
        }
    }

    /// A first change after a copy takes one group and one piece, and the list of groups: not more the larger the array is.
    #[test]
    fn a_copy_shares_what_does_not_change() {
        let pieces = 40 * GROUP_PIECES;
        let mut bits = SharedBits::zeroed(pieces as u64 * PIECE_BITS).unwrap();
        bits.or_bytes(0, &vec![0xff; bits.len()]).unwrap();
        let copy = bits.clone();
        bits.reserve([77 * PIECE_BITS]).unwrap();
        let same = |index: &usize| Arc::ptr_eq(bits.piece(*index).unwrap(), copy.piece(*index).unwrap());
        assert_eq!((0..pieces).filter(|index| !same(index)).collect::<Vec<_>>(), [77]);
        let groups = bits.groups.iter().zip(copy.groups.iter());
        let same = groups.filter(|(own, theirs)| Arc::ptr_eq(own.as_ref().unwrap(), theirs.as_ref().unwrap()));
        assert_eq!(same.count(), 39);
    }

    #[test]
    fn pieces_are_joined() {
        for size in SIZES {
            let mut random = fastrand::Rng::with_seed(3);
            let (mut one, mut other) = (SharedBits::zeroed(size).unwrap(), SharedBits::zeroed(size).unwrap());
            // Parts of the array are left out, have lists, or bits.
            for bits in [&mut one, &mut other] {
                for _ in 0..8 {
                    let start = random.u64(..size);
                    let (end, many) = ((start + 2 * PIECE_BITS).min(size), random.bool());
                    (0..if many { 3000 } else { 20 }).for_each(|_| bits.set(random.u64(start..end)).unwrap());
                }
            }
            let mut sum = bytes_of(&one);
            sum.iter_mut().zip(bytes_of(&other)).for_each(|(byte, more)| *byte |= more);
            let (copy, before) = (one.clone(), bytes_of(&one));
            let middle = one.pieces() / 2;
            one.or_pieces(&other, 0..middle).unwrap();
            one.or_pieces(&other, middle..one.pieces()).unwrap();
            assert_eq!(bytes_of(&one), sum);
            assert_counted(&one);
            one.or_pieces(&other, 0..one.pieces()).unwrap();
            assert_eq!((bytes_of(&one), bytes_of(&copy)), (sum, before));
        }
    }
}
