//! The bytes of SCANDUMP and LOADCHUNK of filters of cells, [counting](crate::filters::counting) and
//! [d-left](crate::filters::dleft): a header, then the cells, in chunks.
//!
//! **Header**, all integers little-endian:
//!
//! | offset | size | field |
//! | --- | --- | --- |
//! | 0 | 8 | `SEENDUMP` |
//! | 8 | 1 | version of the format: 1 |
//! | 9 | 1 | kind of filter: 2 counting, 3 d-left |
//! | 10 | 1 | hash: 1 XXH3-64, 2 SipHash-2-4 |
//! | 11 | 8 | digest of the shape |
//! | 19 | 8 | bytes of all cells |
//! | 27 | 4 | number of other chunks |
//! | 31 | | the head, as in [`cells_value`](super::cells_value) |
//! | | 8 | [CRC64](super::crc64) of all before it |
//!
//! **Chunk**, at most [`CHUNK_BYTES`]: the digest of the shape (8), the chunk's number from 1 on (4), the number of chunks (4), items and version
//! of a counting filter as they are then, or zeros (8 each), what it holds, and the CRC64 of all before it. It holds a run of the bytes of one array:
//! of cells, or of one set of a d-left filter, where each run begins at a multiple of
//! [`aligned_bytes`](crate::filters::dleft::Geometry::aligned_bytes). If a d-left filter spills, further chunks hold the entries beside the cells
//! (13 bytes each): as many chunks as the most entries fill halfway, each with those of its equal share of the range of fingerprints.
//!
//! **Cursor.** See [`chunks`](super::chunks).
//!
//! **Writes during a dump.** What is in the filter from the dump's beginning to its end stands in the same cells all the time, and they are read as
//! such at some moment: so it is in the dump. What comes or goes meanwhile may be in it or not, also in part. The *shape* is what must stay:
//! settings, the sets of a d-left filter, and how often all counters of a counting one were changed at once ([`turns`](crate::filters::counting::Figures)).
//! A d-left filter is [mended](crate::filters::dleft::Check) at the end.
//!
//! **Checksums.** As in [`ring_dump`](super::ring_dump).

use super::bloom_value::ValueError;
use super::cells_value::{
    COUNTING_ID, Cells, CellsHead, CellsRef, CountingHead, DLEFT_ID, DleftHead, SPILLED_BYTES, push_spilled, spilled_in,
};
use super::chunks::{
    CHUNK_BYTES, CRC_BYTES, Chunk, DumpError, END, Fields, HASH_SIP, HASH_XXH3, LoadError, MAGIC, NUMBER_BITS, checked,
    push_crc, reserved,
};
use super::rdb::{ModuleId, Reader};
use super::value::Load;
use crate::filters::bits::AllocError;
use crate::filters::counting::{CounterBits, CountingBloom, CountingMut, MOST_FIGURE};
use crate::filters::dleft::{Check, CreateError, Dleft, Spilled};
use crate::filters::item_hash::hash_item;

const FORMAT: u8 = 1;
/// The number of counting filters in dumps and exports.
pub const KIND_COUNTING: u8 = 2;
/// That of d-left filters.
pub const KIND_DLEFT: u8 = 3;

/// Before what a chunk holds.
const CHUNK_HEAD_BYTES: usize = 32;
/// Room for that.
const ROOM_BYTES: u64 = (CHUNK_BYTES - CHUNK_HEAD_BYTES - CRC_BYTES) as u64;

/// Dumps filters of cells in chunks.
#[derive(Debug)]
pub struct CellsDump;

impl CellsDump {
    /// The chunk at this cursor: 0, or what came with the chunk before.
    ///
    /// # Errors
    ///
    /// [`DumpError`].
    pub fn chunk(filter: CellsRef<'_>, cursor: u64) -> Result<Chunk, DumpError> {
        if cursor != 0 && cursor & END == END {
            return Ok(Chunk { cursor: 0, data: Vec::new() });
        }
        let layout = Layout::of(filter.head()).ok_or(AllocError { bytes: u64::MAX })?;
        if cursor == 0 {
            return Ok(Chunk { cursor: layout.cursor_behind(0), data: layout.header() });
        }
        let number = layout.number_at(cursor).ok_or(DumpError::Changed)?;
        Ok(Chunk { cursor: layout.cursor_behind(number), data: layout.content(filter, number)? })
    }

    /// Whether a filter holds all that this chunk would give it, which is of a dump of a filter of its shape and no header. That
    /// is so when the filter was loaded with this chunk, and has only been added to since; of a d-left filter, when nothing of the chunk was changed since.
    ///
    /// # Errors
    ///
    /// [`AllocError`].
    pub fn holds(filter: CellsRef<'_>, cursor: u64, data: &[u8]) -> Result<bool, AllocError> {
        let Some(layout) = Layout::of(filter.head()) else { return Ok(false) };
        let number = layout.number_behind(cursor).filter(|number| *number > 0);
        let Some((number, given)) = number.and_then(|number| Some((number, layout.content_of(number, data)?))) else {
            return Ok(false);
        };
        let own = layout.content(filter, number)?;
        let Some(own) = layout.content_of(number, &own) else { return Ok(false) };
        Ok(match &layout.head {
            CellsHead::Counting(head) => holds_counters(own.bytes, given.bytes, head.settings.counter_bits),
            CellsHead::Dleft(_) => own.bytes == given.bytes,
        })
    }
}

/// Whether no counter of the second is above that of the first.
fn holds_counters(own: &[u8], given: &[u8], counter_bits: CounterBits) -> bool {
    let low = match counter_bits {
        CounterBits::Four => 0x0f,
        CounterBits::Eight => 0xff,
    };
    let holds = |(own, given): (&u8, &u8)| own & low >= given & low && own & !low >= given & !low;
    own.len() == given.len() && own.iter().zip(given).all(holds)
}

/// What stays the same during a dump.
#[derive(Clone, Debug)]
struct Layout {
    head: CellsHead,
    digest: u64,
    /// Bytes of each array, and of a run of it.
    arrays: Vec<(u64, u64)>,
    /// Chunks with entries beside the cells.
    beside: u64,
    chunks: u64,
}

/// What a chunk holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Run {
    Cells {
        array: usize,
        offset: u64,
        bytes: u64,
    },
    /// The entries of this share of the range.
    Beside {
        share: u64,
    },
}

/// What was found in a chunk.
struct Content<'d> {
    items: u64,
    version: u64,
    bytes: &'d [u8],
}

impl Layout {
    /// None for a filter with more chunks than there are numbers.
    fn of(head: CellsHead) -> Option<Self> {
        let run = |bytes: u64, aligned: u64| (bytes, ROOM_BYTES / aligned * aligned);
        let (arrays, beside): (Vec<_>, u64) = match &head {
            CellsHead::Counting(head) => (vec![run(head.shape.bytes(), size_of::<u64>() as u64)], 0),
            CellsHead::Dleft(head) => {
                let geometries = Dleft::geometries(&head.settings, &head.capacities).unwrap_or_default();
                let runs = geometries.iter().map(|geometry| run(geometry.bytes(), geometry.aligned_bytes()));
                let entries = head.settings.most_spilled().saturating_mul(SPILLED_BYTES as u64);
                (runs.collect(), entries.div_ceil(ROOM_BYTES / 2))
            }
        };
        let chunks = arrays.iter().map(|(bytes, run)| bytes.div_ceil(*run)).fold(beside, u64::saturating_add);
        let digest = digest(&head);
        (chunks < END).then_some(Self { head, digest, arrays, beside, chunks })
    }

    fn cursor_of(&self, number: u64) -> u64 {
        (self.digest >> (NUMBER_BITS + 1)) << NUMBER_BITS | number
    }

    /// The cursor that comes with the chunk of this number, the header's being 0.
    fn cursor_behind(&self, number: u64) -> u64 {
        self.cursor_of(if number == self.chunks { END } else { number + 1 })
    }

    /// The number of the chunk that this cursor asks for.
    fn number_at(&self, cursor: u64) -> Option<u64> {
        let number = cursor & END;
        (cursor == self.cursor_of(number) && (1..=self.chunks).contains(&number)).then_some(number)
    }

    /// The number of the chunk that comes with this cursor.
    fn number_behind(&self, cursor: u64) -> Option<u64> {
        let number = match cursor & END {
            END => self.chunks,
            number => number.checked_sub(1)?,
        };
        (cursor == self.cursor_behind(number) && number <= self.chunks).then_some(number)
    }

    /// What the chunk of this number holds, from 1 on.
    fn run(&self, number: u64) -> Option<Run> {
        let mut number = number.checked_sub(1)?;
        for (array, (bytes, run)) in self.arrays.iter().enumerate() {
            let runs = bytes.div_ceil(*run);
            if number < runs {
                let offset = number * run;
                return Some(Run::Cells { array, offset, bytes: (*run).min(bytes - offset) });
            }
            number -= runs;
        }
        (number < self.beside).then_some(Run::Beside { share: number })
    }

    fn header(&self) -> Vec<u8> {
        let (kind, _) = kind_of(&self.head);
        let hash = if self.head.key().is_some() { HASH_SIP } else { HASH_XXH3 };
        let mut data = Vec::new();
        data.extend_from_slice(MAGIC);
        data.extend_from_slice(&[FORMAT, kind, hash]);
        data.extend_from_slice(&self.digest.to_le_bytes());
        data.extend_from_slice(&self.head.bytes().to_le_bytes());
        data.extend_from_slice(&(self.chunks as u32).to_le_bytes());
        self.head.push(&mut data);
        push_crc(&mut data);
        data
    }

    fn content(&self, filter: CellsRef<'_>, number: u64) -> Result<Vec<u8>, AllocError> {
        let mut data = reserved(CHUNK_BYTES as u64)?;
        data.extend_from_slice(&self.digest.to_le_bytes());
        data.extend_from_slice(&(number as u32).to_le_bytes());
        data.extend_from_slice(&(self.chunks as u32).to_le_bytes());
        let (items, version) = match filter.head() {
            CellsHead::Counting(head) => (head.items, head.version),
            CellsHead::Dleft(_) => (0, 0),
        };
        data.extend_from_slice(&items.to_le_bytes());
        data.extend_from_slice(&version.to_le_bytes());
        match self.run(number) {
            Some(Run::Cells { array, offset, bytes }) => {
                data.resize(CHUNK_HEAD_BYTES + bytes as usize, 0);
                filter.copy_bytes(array, offset as usize, &mut data[CHUNK_HEAD_BYTES..]);
            }
            Some(Run::Beside { share }) => {
                let spilled = filter.spilled();
                let at = |share: u64| spilled.partition_point(|entry| entry.f < self.first_of(share));
                push_spilled(&mut data, &spilled[at(share)..at(share + 1)]);
            }
            None => {}
        }
        push_crc(&mut data);
        data.shrink_to_fit();
        Ok(data)
    }

    /// The first fingerprint of a share of the range.
    fn first_of(&self, share: u64) -> u64 {
        let range = match &self.head {
            CellsHead::Dleft(head) => head.settings.geometry().map_or(0, |geometry| geometry.range()),
            CellsHead::Counting(_) => 0,
        };
        (u128::from(range) * u128::from(share) / u128::from(self.beside.max(1))) as u64
    }

    /// What is in a chunk, if it is the one of this number, undamaged, and has what such a chunk can have.
    fn content_of<'d>(&self, number: u64, data: &'d [u8]) -> Option<Content<'d>> {
        let mut fields = Fields(checked(data)?);
        let own = fields.u64()? == self.digest
            && u64::from(fields.u32()?) == number
            && u64::from(fields.u32()?) == self.chunks;
        let content = Content { items: fields.u64()?, version: fields.u64()?, bytes: fields.0 };
        let sound = match self.run(number)? {
            Run::Cells { bytes, .. } => content.bytes.len() as u64 == bytes,
            Run::Beside { share } => {
                let share = self.first_of(share)..self.first_of(share + 1);
                spilled_in(content.bytes)?.iter().all(|entry| share.contains(&entry.f))
            }
        };
        (own && sound && content.items.max(content.version) <= MOST_FIGURE).then_some(content)
    }
}

/// The kind of filter, as a number and as the id of its value.
fn kind_of(head: &CellsHead) -> (u8, ModuleId) {
    match head {
        CellsHead::Counting(_) => (KIND_COUNTING, COUNTING_ID),
        CellsHead::Dleft(_) => (KIND_DLEFT, DLEFT_ID),
    }
}

/// The digest of the shape.
fn digest(head: &CellsHead) -> u64 {
    let shape = match head.clone() {
        CellsHead::Counting(head) => CellsHead::Counting(CountingHead { items: 0, version: 0, ..head }),
        CellsHead::Dleft(head) => CellsHead::Dleft(DleftHead { items: 0, spilled: 0, ..head }),
    };
    let mut bytes = vec![kind_of(&shape).0];
    shape.push(&mut bytes);
    hash_item(&bytes, None)
}

/// The layout that a header tells of.
fn read_header(data: &[u8], kind: u8) -> Option<Layout> {
    let mut fields = Fields(checked(data)?);
    let known = fields.array::<8>()? == *MAGIC && fields.array()? == [FORMAT, kind];
    let ([hash], digest) = (fields.array()?, fields.u64()?);
    let (bytes, chunks) = (fields.u64()?, fields.u32()?);
    let id = if kind == KIND_COUNTING { COUNTING_ID } else { DLEFT_ID };
    let mut reader = Reader::new(fields.0);
    let head = CellsHead::read::<_, ValueError>(&mut reader, id).ok().filter(|_| known)?;
    let hashed = hash == if head.key().is_some() { HASH_SIP } else { HASH_XXH3 };
    let whole = reader.rest().is_empty() && hashed && bytes == head.bytes();
    // A later version may make another digest of it.
    let layout = Layout { digest, ..Layout::of(head)? };
    (whole && layout.chunks == u64::from(chunks)).then_some(layout)
}

/// A counting filter of which chunks are loaded.
pub type CountingLoad = CellsLoad<KIND_COUNTING>;
/// A d-left filter of which chunks are loaded.
pub type DleftLoad = CellsLoad<KIND_DLEFT>;

/// A filter of the kind with this number, of which chunks are loaded.
#[derive(Debug)]
pub struct CellsLoad<const KIND: u8> {
    layout: Layout,
    /// There from the first chunk on.
    filter: Option<Cells>,
    spilled: Vec<Spilled>,
    /// The chunk whose turn it is.
    next: u64,
    taken: u64,
    check: Check,
    /// The filter was found sound.
    is_ready: bool,
}

impl<const KIND: u8> CellsLoad<KIND> {
    fn of(layout: Layout) -> Self {
        let (filter, spilled) = (None, Vec::new());
        Self { layout, filter, spilled, next: 1, taken: 0, check: Check::mending(), is_ready: false }
    }

    fn read(cursor: u64, header: &[u8], limit_bytes: u64) -> Result<Self, LoadError> {
        let layout = read_header(header, KIND).filter(|layout| cursor == layout.cursor_behind(0));
        let layout = layout.ok_or(LoadError::Bad)?;
        let bytes = layout.head.bytes();
        if bytes > limit_bytes { Err(LoadError::Limit { bytes }) } else { Ok(Self::of(layout)) }
    }

    /// The filter but for its cells.
    #[must_use]
    pub fn head(&self) -> &CellsHead {
        &self.layout.head
    }

    /// Takes the chunk that came with `cursor`; one that was taken already changes nothing. Says whether all chunks are there now: then
    /// [`finish_step`](Self::finish_step) ends the load.
    ///
    /// # Errors
    ///
    /// [`LoadError`], but for a limit.
    pub fn take(&mut self, cursor: u64, data: &[u8]) -> Result<bool, LoadError> {
        let expected = self.layout.cursor_behind(self.next.min(self.layout.chunks));
        let number = self.layout.number_behind(cursor).filter(|number| *number <= self.next);
        let number = number.ok_or(LoadError::Offset { expected })?;
        if number == 0 {
            let again = read_header(data, KIND).is_some_and(|layout| layout.digest == self.layout.digest);
            return if again { Ok(self.is_whole()) } else { Err(LoadError::Bad) };
        }
        let content = self.layout.content_of(number, data).ok_or(LoadError::Bad)?;
        if number < self.next {
            return Ok(self.is_whole());
        }
        match self.layout.run(number).ok_or(LoadError::Bad)? {
            Run::Cells { array, offset, bytes } => {
                self.put(array, offset as usize, &content)?;
                self.taken += bytes;
            }
            Run::Beside { .. } => {
                let entries = spilled_in(content.bytes).ok_or(LoadError::Bad)?;
                let bytes = size_of_val(&entries[..]) as u64;
                self.spilled.try_reserve_exact(entries.len()).map_err(|_| AllocError { bytes })?;
                self.spilled.extend(entries);
            }
        }
        self.next += 1;
        Ok(self.is_whole())
    }

    fn put(&mut self, array: usize, offset: usize, content: &Content<'_>) -> Result<(), LoadError> {
        if self.filter.is_none() {
            self.filter = Some(self.empty()?);
        }
        match &mut self.filter {
            Some(Cells::Counting(filter)) => {
                let mut filter = CountingMut::Large(filter);
                filter.load_bytes(offset, content.bytes);
                // The last chunk's count.
                if let CellsHead::Counting(head) = &mut self.layout.head {
                    (head.items, head.version) = (content.items, content.version);
                }
            }
            Some(Cells::Dleft(filter)) => filter.load_bytes(array, offset, content.bytes),
            None => {}
        }
        Ok(())
    }

    fn empty(&self) -> Result<Cells, LoadError> {
        match &self.layout.head {
            CellsHead::Counting(head) => {
                Ok(Cells::Counting(Box::new(CountingBloom::new(head.settings, head.shape, head.version)?)))
            }
            CellsHead::Dleft(head) => {
                let filter = Dleft::new(head.settings, head.seed).map_err(|error| match error {
                    CreateError::Memory(error) => LoadError::Memory(error),
                    CreateError::Settings(_) => LoadError::Bad,
                });
                let mut filter = filter?;
                for capacity in head.capacities.iter().skip(1) {
                    if !filter.load_set(*capacity)? {
                        return Err(LoadError::Bad);
                    }
                }
                Ok(Cells::Dleft(Box::new(filter)))
            }
        }
    }

    /// When all chunks were taken: does so much of what is left to do, in buckets of a d-left filter. Tells whether the filter is
    /// ready.
    ///
    /// # Errors
    ///
    /// [`LoadError::Bad`] if no filter can have what was taken, and [`LoadError::Memory`]; the load begins anew with the first chunk then.
    pub fn finish_step(&mut self, buckets: u64) -> Result<bool, LoadError> {
        if !self.is_whole() || self.is_ready {
            return Ok(self.is_ready);
        }
        let finished = match (&mut self.filter, &self.layout.head) {
            (Some(Cells::Counting(filter)), CellsHead::Counting(head)) => {
                let sound = CountingMut::Large(filter).loaded(head.items, head.version, head.turns);
                if sound { Ok(true) } else { Err(LoadError::Bad) }
            }
            (Some(Cells::Dleft(filter)), _) => {
                let spilled = std::mem::take(&mut self.spilled);
                spilled
                    .into_iter()
                    .try_for_each(|entry| match filter.load_spilled(entry) {
                        Ok(true) => Ok(()),
                        Ok(false) => Err(LoadError::Bad),
                        Err(error) => Err(error.into()),
                    })
                    .and_then(|()| match self.check.step(filter, buckets) {
                        Some(false) => Err(LoadError::Bad),
                        done => Ok(done.is_some()),
                    })
            }
            _ => Err(LoadError::Bad),
        };
        match finished {
            Ok(done) => self.is_ready = done,
            Err(_) => *self = Self::of(self.layout.clone()),
        }
        finished
    }

    /// The filter, if it is ready.
    #[must_use]
    pub fn filter(&self) -> Option<&Cells> {
        self.filter.as_ref().filter(|_| self.is_ready)
    }

    /// The same, and the end of the load: should the filter be lost, it begins anew with the first chunk.
    pub fn take_filter(&mut self) -> Option<Cells> {
        let filter = if self.is_ready { self.filter.take() } else { return None };
        *self = Self::of(self.layout.clone());
        filter
    }
}

impl<const KIND: u8> CellsLoad<KIND> {
    fn is_whole(&self) -> bool {
        self.next > self.layout.chunks
    }

    fn held(&self, size_class: fn(usize) -> usize) -> (usize, usize) {
        let of_filter = match &self.filter {
            None => (0, 0),
            Some(Cells::Counting(filter)) => {
                (size_class(size_of::<CountingBloom>()) + filter.heap_bytes(size_class), filter.mapped_bytes())
            }
            Some(Cells::Dleft(filter)) => {
                (size_class(size_of::<Dleft>()) + filter.heap_bytes(size_class), filter.mapped_bytes())
            }
        };
        let beside = match self.spilled.capacity() {
            0 => 0,
            entries => size_class(entries * size_of::<Spilled>()),
        };
        let arrays = size_class(self.layout.arrays.capacity() * size_of::<(u64, u64)>());
        (of_filter.0 + beside + arrays, of_filter.1)
    }
}

/// Both kinds are loaded in the same way.
macro_rules! impl_load {
    ($kind:expr, $name:expr, $command:expr) => {
        impl Load for CellsLoad<{ $kind }> {
            const HALF_ID: ModuleId = match ModuleId::new($name, 1) {
                Some(id) => id,
                None => panic!("no name of a module"),
            };
            const COMMAND: &'static str = $command;

            fn begin(cursor: u64, header: &[u8], limit_bytes: u64) -> Result<Self, LoadError> {
                Self::read(cursor, header, limit_bytes)
            }

            fn bytes(&self) -> u64 {
                self.layout.head.bytes()
            }

            fn taken(&self) -> u64 {
                self.taken
            }

            fn is_whole(&self) -> bool {
                self.next > self.layout.chunks
            }

            fn footprint(&self, size_class: fn(usize) -> usize) -> (usize, usize) {
                self.held(size_class)
            }
        }
    };
}
impl_load!(KIND_COUNTING, b"seenCBF--", "CBF.LOADCHUNK");
impl_load!(KIND_DLEFT, b"seenDLCBF", "DLCBF.LOADCHUNK");
