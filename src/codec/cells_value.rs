//! Filters of cells, [counting] and [d-left](crate::filters::dleft), as values of RDB (types `seenCBF--`
//! and `seenDLCBF`), for DUMP payloads and snapshots.
//!
//! After the [module id](super::rdb) comes the *head*; all fields that carry no kind are unsigned:
//!
//! | `seenCBF--` | `seenDLCBF` |
//! | --- | --- |
//! | flags: 1 counters of 8 bits, 2 strict, 4 key | flags: 1 spills, 2 grows, 4 key |
//! | capacity | capacity |
//! | error rate (double) | error rate (double) |
//! | two words of the hashes' key (flag 4) | two words of the hashes' key (flag 4) |
//! | cells | sub-tables, cells of a bucket, bits of a counter |
//! | hashes | growth factor, final capacity (flag 2) |
//! | items | items |
//! | version | seed of the permutations |
//! | turns | number of sets |
//! | | capacity of each, oldest first |
//! | | number of entries beside the cells |
//!
//! then strings: the cells, as they stand in words; of a d-left filter one for each set, and one with the entries beside the cells in
//! ascending order, each a fingerprint (8 bytes, little-endian), copies (4), and 1 if no cell counts any of it, else 0. Then the end mark. Strings are
//! read in any form that they can have.
//!
//! How large the sets of a d-left filter are follows from its settings: [`geometry`](crate::filters::dleft::geometry) is a part of this format.
//!
//! **What is checked.** All that the filter relies on: numbers within their ranges, strings as long as the head says, nothing behind the last
//! cell; of a d-left filter that one cell stands for each fingerprint, in one of its places.

use super::bloom_value::ValueError;
use super::lzf::Compressor;
use super::rdb::{self, Input, ModuleId, Reader};
use super::rdb_string::{self, RdbString};
use crate::filters::bits::BitArray;
use crate::filters::counting::{self, CounterBits, CountingBloom, CountingRef, MOST_FIGURE, TURNS};
use crate::filters::dleft::{self, Dleft, DleftRef, Growth, MOST_SETS, Spilled};
use crate::filters::item_hash::{HashKey, KEY_BYTES};

/// Name and encoding version of a counting filter.
pub const COUNTING_ID: ModuleId = match ModuleId::new(b"seenCBF--", 0) {
    Some(id) => id,
    None => panic!("no name of a module"),
};
/// Name and encoding version of a d-left filter.
pub const DLEFT_ID: ModuleId = match ModuleId::new(b"seenDLCBF", 0) {
    Some(id) => id,
    None => panic!("no name of a module"),
};
const WORD_BYTES: usize = KEY_BYTES / 2;
/// Of an entry beside the cells.
pub(super) const SPILLED_BYTES: usize = 13;

// The flags.
const WIDE: u64 = 1;
const STRICT: u64 = 2;
const SPILLS: u64 = 1;
const GROWS: u64 = 2;
const KEYED: u64 = 4;

/// A counting filter but for its cells.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CountingHead {
    /// What it was made with.
    pub settings: counting::Settings,
    /// How large it is.
    pub shape: counting::Shape,
    /// Items added and not removed since.
    pub items: u64,
    /// Its version.
    pub version: u64,
    /// See [`counting::Figures::turns`].
    pub turns: u8,
}

/// A d-left filter but for its cells.
#[derive(Clone, Debug, PartialEq)]
pub struct DleftHead {
    /// What it was made with.
    pub settings: dleft::Settings,
    /// Items added and not removed since.
    pub items: u64,
    /// What its multipliers are drawn from.
    pub seed: u64,
    /// What each of its sets is made for, oldest first.
    pub capacities: Vec<u64>,
    /// Entries beside the cells.
    pub spilled: u64,
}

/// A filter but for its cells.
#[derive(Clone, Debug, PartialEq)]
pub enum CellsHead {
    /// A counting filter.
    Counting(CountingHead),
    /// A d-left filter.
    Dleft(DleftHead),
}

/// A filter of cells, to read.
#[derive(Clone, Copy)]
pub enum CellsRef<'a> {
    /// A counting filter.
    Counting(CountingRef<'a>),
    /// A d-left filter.
    Dleft(DleftRef<'a>),
}

/// A filter of cells with allocations of its own.
#[derive(Debug)]
pub enum Cells {
    /// A counting filter.
    Counting(Box<CountingBloom>),
    /// A d-left filter.
    Dleft(Box<Dleft>),
}

impl Cells {
    /// The same, to read.
    #[must_use]
    pub fn as_ref(&self) -> CellsRef<'_> {
        match self {
            Self::Counting(filter) => CellsRef::Counting(CountingRef::Large(filter)),
            Self::Dleft(filter) => CellsRef::Dleft(DleftRef::Large(filter)),
        }
    }
}

impl<'a> CellsRef<'a> {
    /// All but the cells.
    #[must_use]
    pub fn head(self) -> CellsHead {
        match self {
            Self::Counting(filter) => CellsHead::counting(filter.settings(), filter.shape(), &filter.figures()),
            Self::Dleft(filter) => {
                let sets = filter.sets().map(|set| set.capacity);
                CellsHead::dleft(filter.settings(), (filter.seed(), filter.items()), sets, filter.spilled())
            }
        }
    }

    /// What is beside the cells.
    #[must_use]
    pub fn spilled(self) -> &'a [Spilled] {
        match self {
            Self::Counting(_) => &[],
            Self::Dleft(filter) => filter.spilled(),
        }
    }

    /// Copies the bytes of one of its arrays from `offset` on, which is a multiple of 8.
    ///
    /// # Panics
    /// If there is no such place.
    pub fn copy_bytes(self, array: usize, offset: usize, out: &mut [u8]) {
        match self {
            Self::Counting(filter) => filter.copy_bytes(offset, out),
            Self::Dleft(filter) => filter.copy_bytes(array, offset, out),
        }
    }
}

impl CellsHead {
    /// That of a counting filter.
    #[must_use]
    pub fn counting(settings: counting::Settings, shape: counting::Shape, figures: &counting::Figures) -> Self {
        let counting::Figures { items, version, turns, .. } = *figures;
        Self::Counting(CountingHead { settings, shape, items, version, turns })
    }

    /// That of a d-left filter, of which the seed and the number of items are these.
    #[must_use]
    pub fn dleft(
        settings: dleft::Settings,
        (seed, items): (u64, u64),
        capacities: impl Iterator<Item = u64>,
        spilled: &[Spilled],
    ) -> Self {
        let capacities = capacities.collect();
        Self::Dleft(DleftHead { settings, items, seed, capacities, spilled: spilled.len() as u64 })
    }

    /// The id of its value.
    #[must_use]
    pub fn id(&self) -> ModuleId {
        match self {
            Self::Counting(_) => COUNTING_ID,
            Self::Dleft(_) => DLEFT_ID,
        }
    }

    /// The key of its hashes.
    #[must_use]
    pub fn key(&self) -> Option<&HashKey> {
        match self {
            Self::Counting(head) => head.settings.key.as_ref(),
            Self::Dleft(head) => head.settings.key.as_ref(),
        }
    }

    /// The bytes of each of its arrays.
    #[must_use]
    pub fn arrays(&self) -> Vec<u64> {
        match self {
            Self::Counting(head) => vec![head.shape.bytes()],
            Self::Dleft(head) => head.geometries().iter().map(dleft::Geometry::bytes).collect(),
        }
    }

    /// Bytes of all of its cells.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.arrays().into_iter().fold(0, u64::saturating_add)
    }

    /// The bytes of each of its strings: of its arrays, and of what is beside the cells of a d-left filter.
    #[must_use]
    pub fn strings(&self) -> Vec<u64> {
        let mut strings = self.arrays();
        if let Self::Dleft(head) = self {
            strings.push(head.spilled * SPILLED_BYTES as u64);
        }
        strings
    }

    /// Appends the fields behind the module id.
    pub(super) fn push(&self, out: &mut Vec<u8>) {
        match self {
            Self::Counting(head) => head.push(out),
            Self::Dleft(head) => head.push(out),
        }
    }

    /// The fields that come after this module id.
    ///
    /// # Errors
    ///
    /// [`ValueError::Type`], [`ValueError::Chain`], or what the input says.
    pub fn read<I: Input, E: From<I::Error> + From<ValueError>>(input: &mut I, id: ModuleId) -> Result<Self, E> {
        let head = match id {
            COUNTING_ID => CountingHead::read(input)?.map(Self::Counting),
            DLEFT_ID => DleftHead::read(input)?.map(Self::Dleft),
            _ => return Err(ValueError::Type.into()),
        };
        Ok(head.ok_or(ValueError::Chain)?)
    }

    /// The filter with these arrays, and these entries beside the cells.
    ///
    /// # Errors
    ///
    /// [`ValueError::Chain`] if there is no such filter.
    pub fn filter(&self, mut arrays: Vec<BitArray>, spilled: Vec<Spilled>) -> Result<Cells, ValueError> {
        match self {
            Self::Counting(head) => {
                let CountingHead { settings, shape, items, version, turns } = *head;
                let figures = counting::Figures { items, version, turns, ..counting::Figures::default() };
                let filter = arrays.pop().and_then(|array| CountingBloom::from_array(settings, shape, figures, array));
                Ok(Cells::Counting(Box::new(filter.ok_or(ValueError::Chain)?)))
            }
            Self::Dleft(head) => {
                let arrays = head.capacities.iter().copied().zip(arrays).collect();
                let filter = Dleft::from_arrays(head.settings, head.seed, arrays, spilled);
                let mut filter = filter.ok_or(ValueError::Chain)?;
                if filter.loaded() && filter.items() == head.items {
                    Ok(Cells::Dleft(Box::new(filter)))
                } else {
                    Err(ValueError::Chain)
                }
            }
        }
    }
}

impl CountingHead {
    fn push(&self, out: &mut Vec<u8>) {
        let Self { settings, shape, items, version, turns } = self;
        let flag = |on: bool, flag: u64| if on { flag } else { 0 };
        let flags = flag(settings.counter_bits == CounterBits::Eight, WIDE) | flag(settings.strict, STRICT);
        push_first(out, flags, settings.capacity, settings.error, settings.key.as_ref());
        let rest = [shape.cells, shape.hashes.into(), *items, *version, (*turns).into()];
        rest.into_iter().for_each(|field| rdb::push_unsigned(out, field));
    }

    fn read<I: Input>(input: &mut I) -> Result<Option<Self>, I::Error> {
        let First { flags, capacity, error, key } = First::read(input)?;
        let counter_bits = if flags & WIDE != 0 { CounterBits::Eight } else { CounterBits::Four };
        let settings = counting::Settings { capacity, error, counter_bits, strict: flags & STRICT != 0, key };
        let (cells, hashes) = (input.unsigned()?, input.unsigned()?);
        let hashes = u32::try_from(hashes).unwrap_or(u32::MAX);
        let shape = counting::Shape { cells, hashes, counter_bits };
        let (items, version, turns) = (input.unsigned()?, input.unsigned()?, input.unsigned()?);
        let known = flags <= WIDE | STRICT | KEYED && turns < TURNS.into();
        let sound = settings.is_sound() && shape.is_sound() && items <= MOST_FIGURE && version <= MOST_FIGURE;
        Ok((known && sound).then_some(Self { settings, shape, items, version, turns: turns as u8 }))
    }
}

impl DleftHead {
    fn geometries(&self) -> Vec<dleft::Geometry> {
        Dleft::geometries(&self.settings, &self.capacities).unwrap_or_default()
    }

    fn push(&self, out: &mut Vec<u8>) {
        let Self { settings, items, seed, capacities, spilled } = self;
        let flag = |on: bool, flag: u64| if on { flag } else { 0 };
        let flags = flag(settings.spill, SPILLS) | flag(settings.growth.is_some(), GROWS);
        push_first(out, flags, settings.capacity, settings.error, settings.key.as_ref());
        let mut push = |field: u64| rdb::push_unsigned(out, field);
        [settings.subtables, settings.cells, settings.counter_bits].into_iter().for_each(|field| push(field.into()));
        if let Some(growth) = settings.growth {
            push(growth.factor.into());
            push(growth.final_capacity);
        }
        push(*items);
        push(*seed);
        push(capacities.len() as u64);
        capacities.iter().for_each(|capacity| push(*capacity));
        push(*spilled);
    }

    fn read<I: Input>(input: &mut I) -> Result<Option<Self>, I::Error> {
        let First { flags, capacity, error, key } = First::read(input)?;
        let (subtables, cells, counter_bits) = (input.unsigned()?, input.unsigned()?, input.unsigned()?);
        // What does not fit is no number of them.
        let small = |number: u64| u32::try_from(number).unwrap_or(0);
        let growth = match flags & GROWS {
            0 => None,
            _ => Some(Growth { factor: small(input.unsigned()?), final_capacity: input.unsigned()? }),
        };
        let settings = dleft::Settings {
            capacity,
            error,
            growth,
            subtables: small(subtables),
            cells: small(cells),
            counter_bits: small(counter_bits),
            spill: flags & SPILLS != 0,
            key,
        };
        let (items, seed, count) = (input.unsigned()?, input.unsigned()?, input.unsigned()?);
        if count > MOST_SETS as u64 {
            return Ok(None);
        }
        let capacities = (0..count).map(|_| input.unsigned()).collect::<Result<Vec<_>, _>>()?;
        let head = Self { settings, items, seed, capacities, spilled: input.unsigned()? };
        let known = flags <= SPILLS | GROWS | KEYED && items <= MOST_FIGURE && head.spilled <= settings.most_spilled();
        Ok((known && !head.geometries().is_empty()).then_some(head))
    }
}

/// The fields that both heads begin with.
struct First {
    flags: u64,
    capacity: u64,
    error: f64,
    key: Option<HashKey>,
}

fn push_first(out: &mut Vec<u8>, flags: u64, capacity: u64, error: f64, key: Option<&HashKey>) {
    rdb::push_unsigned(out, flags | if key.is_some() { KEYED } else { 0 });
    rdb::push_unsigned(out, capacity);
    rdb::push_double(out, error);
    if let Some(key) = key {
        let (words, _) = key.as_chunks::<WORD_BYTES>();
        words.iter().for_each(|word| rdb::push_unsigned(out, u64::from_le_bytes(*word)));
    }
}

impl First {
    fn read<I: Input>(input: &mut I) -> Result<Self, I::Error> {
        let (flags, capacity, error) = (input.unsigned()?, input.unsigned()?, input.double()?);
        let mut key = None;
        if flags & KEYED != 0 {
            let key = key.insert(HashKey::default());
            for word in key.as_chunks_mut::<WORD_BYTES>().0 {
                *word = input.unsigned()?.to_le_bytes();
            }
        }
        Ok(Self { flags, capacity, error, key })
    }
}

/// Appends entries beside the cells.
pub(super) fn push_spilled(out: &mut Vec<u8>, spilled: &[Spilled]) {
    for entry in spilled {
        out.extend_from_slice(&entry.f.to_le_bytes());
        out.extend_from_slice(&entry.copies.to_le_bytes());
        out.push(entry.without_cell.into());
    }
}

/// The entries that stand here; none if they are none.
#[must_use]
pub fn spilled_in(bytes: &[u8]) -> Option<Vec<Spilled>> {
    let (entries, rest) = bytes.as_chunks::<SPILLED_BYTES>();
    let entry = |bytes: &[u8; SPILLED_BYTES]| {
        let (f, rest) = bytes.split_first_chunk()?;
        let (copies, place) = rest.split_first_chunk()?;
        let [place @ 0..=1] = *place else { return None };
        let (f, copies) = (u64::from_le_bytes(*f), u32::from_le_bytes(*copies));
        Some(Spilled { f, copies, without_cell: place == 1 })
    };
    entries.iter().map(entry).collect::<Option<Vec<_>>>().filter(|_| rest.is_empty())
}

/// Writes a value in steps. The cells come from whoever has them, in order: array after array, each from its first byte on.
#[derive(Debug)]
pub struct CellsWriter {
    head: Vec<u8>,
    strings: Vec<u64>,
    spilled: Vec<u8>,
    at: Place,
}

/// What is to be written next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Head,
    String(usize),
    Content { string: usize, offset: u64 },
    End,
    Done,
}

impl CellsWriter {
    /// A writer that stands before the first byte of the value of a filter with this head and these entries beside its cells.
    #[must_use]
    pub fn new(head: &CellsHead, spilled: &[Spilled]) -> Self {
        let (mut fields, mut entries) = (Vec::new(), Vec::with_capacity(spilled.len() * SPILLED_BYTES));
        rdb::push_length(&mut fields, head.id().code());
        head.push(&mut fields);
        push_spilled(&mut entries, spilled);
        Self { head: fields, strings: head.strings(), spilled: entries, at: Place::Head }
    }

    /// Bytes of the whole value.
    #[allow(clippy::len_without_is_empty, reason = "a value always has bytes")]
    #[must_use]
    pub fn len(&self) -> u64 {
        let mut fields = Vec::new();
        rdb::push_end(&mut fields);
        self.strings.iter().for_each(|len| rdb::push_string_head(&mut fields, *len));
        self.strings.iter().fold(self.head.len() as u64 + fields.len() as u64, |sum, len| sum.saturating_add(*len))
    }

    /// Appends about `bytes` bytes, at least one, and says whether the value is whole now. `read` copies the cells of an array from an offset
    /// on, which is a multiple of 8.
    pub fn step(&mut self, out: &mut Vec<u8>, bytes: usize, mut read: impl FnMut(usize, usize, &mut [u8])) -> bool {
        let end = out.len().saturating_add(bytes.max(1));
        while self.at != Place::Done && out.len() < end {
            self.at = match self.at {
                Place::Head => {
                    out.extend_from_slice(&self.head);
                    Place::String(0)
                }
                Place::String(string) => match self.strings.get(string) {
                    Some(len) => {
                        rdb::push_string_head(out, *len);
                        Place::Content { string, offset: 0 }
                    }
                    None => Place::End,
                },
                Place::Content { string, offset } => self.push_run(out, (string, offset), end, &mut read),
                Place::End => {
                    rdb::push_end(out);
                    Place::Done
                }
                Place::Done => Place::Done,
            };
        }
        self.at == Place::Done
    }

    /// Appends a string from there on, up to about the length `end`.
    fn push_run(
        &self,
        out: &mut Vec<u8>,
        (string, offset): (usize, u64),
        end: usize,
        read: &mut impl FnMut(usize, usize, &mut [u8]),
    ) -> Place {
        let left = self.strings[string] - offset;
        if self.is_spilled(string) {
            out.extend_from_slice(&self.spilled);
            return Place::String(string + 1);
        }
        let run = left.min((end - out.len()).next_multiple_of(WORD_BYTES) as u64);
        let start = out.len();
        out.resize(start + run as usize, 0);
        read(string, offset as usize, &mut out[start..]);
        if run == left { Place::String(string + 1) } else { Place::Content { string, offset: offset + run } }
    }

    /// Whether this string is that of the entries beside the cells.
    fn is_spilled(&self, string: usize) -> bool {
        string + 1 == self.strings.len() && string > 0
    }
}

/// Appends the value of a small filter in one go, with its cells compressed where that is wanted and saves something.
pub fn push_cells(out: &mut Vec<u8>, filter: CellsRef<'_>, mut compressor: Option<&mut Compressor>) {
    let head = filter.head();
    rdb::push_length(out, head.id().code());
    head.push(out);
    let mut bytes = Vec::new();
    for (array, len) in head.arrays().into_iter().enumerate() {
        bytes.resize(len as usize, 0);
        filter.copy_bytes(array, 0, &mut bytes);
        rdb_string::push_field(out, &bytes, compressor.as_deref_mut());
    }
    if let CellsHead::Dleft(_) = head {
        bytes.clear();
        push_spilled(&mut bytes, filter.spilled());
        rdb_string::push_field(out, &bytes, None);
    }
    rdb::push_end(out);
}

/// A value that was read and found sound but for what its strings hold, those still where they stood.
#[derive(Clone, Debug)]
pub struct CellsValue<'a> {
    head: CellsHead,
    strings: Vec<RdbString<'a>>,
}

impl<'a> CellsValue<'a> {
    /// The value that is next, from its module id to its end mark.
    ///
    /// # Errors
    ///
    /// [`ValueError`], but for a limit or a lack of memory.
    pub fn read(reader: &mut Reader<'a>) -> Result<Self, ValueError> {
        let id = ModuleId::from_code(reader.length()?);
        let head = CellsHead::read::<_, ValueError>(reader, id)?;
        let mut strings = Vec::new();
        for (index, len) in head.strings().into_iter().enumerate() {
            reader.string_opcode()?;
            let string = reader.text()?;
            if string.len() != len {
                return Err(ValueError::Link(index));
            }
            strings.push(string);
        }
        reader.end()?;
        Ok(Self { head, strings })
    }

    /// The filter but for its cells.
    #[must_use]
    pub fn head(&self) -> &CellsHead {
        &self.head
    }

    /// The filter.
    ///
    /// # Errors
    ///
    /// [`ValueError`], but for a limit; no memory is held then.
    pub fn build(mut self) -> Result<Cells, ValueError> {
        let mut spilled = Vec::new();
        if let CellsHead::Dleft(_) = self.head
            && let Some(string) = self.strings.pop()
        {
            let bytes = string.bytes(&mut spilled)?;
            let entries = spilled_in(bytes).ok_or(ValueError::Chain)?;
            return self.with(entries);
        }
        self.with(Vec::new())
    }

    fn with(self, spilled: Vec<Spilled>) -> Result<Cells, ValueError> {
        let array = |string: RdbString<'_>| -> Result<BitArray, ValueError> {
            let array = BitArray::zeroed(string.len())?;
            string.pieces(|offset, piece| array.or_bytes(offset, piece))?;
            Ok(array)
        };
        let arrays = self.strings.into_iter().map(array).collect::<Result<Vec<_>, _>>()?;
        self.head.filter(arrays, spilled)
    }
}
