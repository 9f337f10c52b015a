//! From key to key.
//!
//! A part of the file that lies in the window as a whole is only measured: its bytes go on to whoever decodes them. A larger one
//! is read as it passes. When a part does not end inside the window, the window is moved to the part's start, and only if that
//! does not help either, the part is large, or damaged.

use super::report::{Checksum, Fault, Loss, Report};
use super::window::{Stream, Window};
use super::{Large, LargeCells, LargeRing, Place, Sink};
use crate::codec::bloom_value::{BLOOM_ID, BloomValue, ChainFields, LinkFields, ValueError};
use crate::codec::cells_value::{COUNTING_ID, CellsHead, DLEFT_ID, spilled_in};
use crate::codec::foreign::{self, Dialect, TypeName};
use crate::codec::rdb::{self, Input, ModuleId, Reader};
use crate::codec::ring_fields::{ContentCheck, PartHead, put_content};
use crate::codec::ring_value::{RING_ID, RingFields};
use crate::codec::value;
use crate::filters::LinkInfo;
use crate::filters::bits::{AllocError, BitArray};
use crate::filters::ring::Part as RingPart;
use crate::filters::ring::bits::PIECE_BYTES;
use crate::keyspace::DATABASES;
use crate::persist::snapshot::mark::{self, MARK_BYTES, Mark, PROFILE};

/// First RDB version with a checksum at the end.
const CHECKSUM_SINCE: u32 = 5;
/// Greatest version of Redis whose module values are known to be as they are here.
const MAX_REDIS_VERSION: u32 = 15;
/// First version of the files that begin with `VALKEY`.
const MIN_VALKEY_VERSION: u32 = 80;
const HEADER_BYTES: usize = 9;
/// The field about the file that only files written here have.
pub(super) const OWN_VERSION: &[u8] = b"seendb-ver";
/// A filter takes more bytes.
const FILTER_BYTES: u64 = 64;

/// A part of the file.
enum Part<T> {
    Database(u64),
    Life(u64),
    Idle(u64),
    Uses(u8),
    Aux(T, T),
    /// Keys of the database.
    Size(u64),
    /// Nothing that matters here.
    Other,
    End,
    /// A key; its value is next.
    Key {
        kind: u8,
        name: T,
    },
}

impl<T> Part<T> {
    /// The part that is next; of a key, what comes before its value.
    fn read<I: Input<Text = T>>(input: &mut I, dialect: Dialect) -> Result<Part<T>, I::Error> {
        Ok(match input.byte()? {
            0xff => Part::End,
            0xfe => Part::Database(input.length()?),
            0xfd => Part::Life(moment(i64::from(i32::from_le_bytes(input.array()?)).saturating_mul(1000))),
            0xfc => Part::Life(moment(i64::from_le_bytes(input.array()?))),
            0xfb => {
                let (keys, _lives) = (input.length()?, input.length()?);
                Part::Size(keys)
            }
            mark::AUX => Part::Aux(input.text()?, input.text()?),
            0xf9 => Part::Uses(input.byte()?),
            0xf8 => Part::Idle(input.length()?),
            0xf7 => {
                // The module's id, then fields; the first says when it was saved.
                input.length()?;
                foreign::skip_module(input)?;
                Part::Other
            }
            0xf6 => skip_old_function(input)?,
            0xf5 => {
                foreign::skip_string(input)?;
                Part::Other
            }
            0xf4 => skip_lengths(input, 3)?,
            0xf3 => skip_key_data(input, dialect)?,
            kind => Part::Key { kind, name: input.text()? },
        })
    }
}

/// Milliseconds since 1970; a moment before then is over like any other that is past.
fn moment(milliseconds: i64) -> u64 {
    u64::try_from(milliseconds).unwrap_or(0).max(1)
}

fn skip_lengths<I: Input, T>(input: &mut I, count: usize) -> Result<Part<T>, I::Error> {
    for _ in 0..count {
        input.length()?;
    }
    Ok(Part::Other)
}

/// A library of functions as pre-releases of Redis 7.0 wrote it: name, engine, whether there is a description, code.
fn skip_old_function<I: Input, T>(input: &mut I) -> Result<Part<T>, I::Error> {
    foreign::skip_string(input)?;
    foreign::skip_string(input)?;
    if input.length()? != 0 {
        foreign::skip_string(input)?;
    }
    foreign::skip_string(input)?;
    Ok(Part::Other)
}

/// Redis: what modules keep beside a key, each 4 bytes and fields. Valkey: a move of slots to this server: its name and ranges.
fn skip_key_data<I: Input, T>(input: &mut I, dialect: Dialect) -> Result<Part<T>, I::Error> {
    if dialect == Dialect::Valkey {
        foreign::skip_string(input)?;
    }
    for _ in 0..input.length()? {
        match dialect {
            Dialect::Redis => {
                input.skip(4)?;
                foreign::skip_module(input)?;
            }
            Dialect::Valkey => drop((input.length()?, input.length()?)),
        }
    }
    Ok(Part::Other)
}

/// A part that lies in the window as a whole.
enum Whole {
    Other(Part<Vec<u8>>),
    /// A filter of a family that is kept here.
    Own {
        kind: u8,
    },
    Foreign(TypeName),
}

impl Whole {
    fn read(reader: &mut Reader<'_>, dialect: Dialect) -> Result<Whole, rdb::Malformed> {
        let part = Part::read(reader, dialect)?;
        let kind = match part {
            Part::Key { kind, .. } => kind,
            Part::Aux(key, value) => {
                let own = |text: crate::codec::rdb_string::RdbString<'_>| {
                    let mut scratch = Vec::new();
                    text.bytes(&mut scratch).map(<[u8]>::to_vec)
                };
                return Ok(Whole::Other(Part::Aux(own(key)?, own(value)?)));
            }
            Part::Database(db) => return Ok(Whole::Other(Part::Database(db))),
            Part::Life(life) => return Ok(Whole::Other(Part::Life(life))),
            Part::Idle(seconds) => return Ok(Whole::Other(Part::Idle(seconds))),
            Part::Uses(uses) => return Ok(Whole::Other(Part::Uses(uses))),
            Part::Size(keys) => return Ok(Whole::Other(Part::Size(keys))),
            Part::Other => return Ok(Whole::Other(Part::Other)),
            Part::End => return Ok(Whole::Other(Part::End)),
        };
        if !foreign::is_module(kind) {
            return foreign::skip_builtin(reader, kind, dialect).map(Whole::Foreign);
        }
        let start = reader.clone();
        let id = ModuleId::from_code(reader.length()?);
        let is_bloom = id.name() == BLOOM_ID.name();
        let is_own = match kind {
            rdb::TYPE_MODULE_2 => value::is_own(id),
            _ => is_bloom,
        };
        match kind {
            rdb::TYPE_MODULE_2 => foreign::skip_module(reader)?,
            _ if is_bloom => {
                *reader = start;
                BloomValue::read_plain(reader).map_err(|_| rdb::Malformed)?;
            }
            _ => return Err(rdb::Malformed),
        }
        Ok(if is_own { Whole::Own { kind } } else { Whole::Foreign(foreign::module_name(id)) })
    }
}

/// What stands before a key and belongs to it.
#[derive(Clone, Copy, Default)]
struct Attributes {
    /// Offset of the first of it.
    from: Option<u64>,
    life: Option<u64>,
    idle: Option<u32>,
    uses: Option<u8>,
}

/// What the scan of a part of the file needs to know.
pub(super) struct Scanner<'f, 'r, S> {
    pub(super) window: Window<'f>,
    pub(super) sink: &'r mut S,
    pub(super) report: &'r mut Report,
    pub(super) dialect: Dialect,
    /// The database chosen; none if that is not known any more.
    pub(super) db: Option<u64>,
    pub(super) now: Option<u64>,
    /// Keys that cannot be taken are noted, and do not end the scan.
    pub(super) lenient: bool,
    /// Whether marks came by.
    pub(super) marks: u64,
    /// The file was written here.
    only_filters: bool,
    block_start: u64,
    attributes: Attributes,
}

/// How a scan ended that met no fault.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    /// With the opcode that ends a file, and the checksum if there is one.
    File,
    /// At the end of what was to be read, between two parts.
    Range,
}

impl<'f, 'r, S: Sink> Scanner<'f, 'r, S> {
    pub(super) fn new(window: Window<'f>, sink: &'r mut S, report: &'r mut Report) -> Self {
        let block_start = window.offset();
        let attributes = Attributes::default();
        let dialect = if report.magic == "VALKEY" { Dialect::Valkey } else { Dialect::Redis };
        let db = (block_start == 0).then_some(0);
        let (now, lenient, marks) = (None, false, 0);
        let only_filters = report.aux.iter().any(|(key, _)| key == OWN_VERSION);
        Scanner { window, sink, report, dialect, db, now, lenient, marks, only_filters, block_start, attributes }
    }

    /// Reads to the end. After a fault the window stands where it showed.
    pub(super) fn run(&mut self) -> Result<Ended, Fault> {
        self.window.refill(self.sink)?;
        if self.window.offset() == 0 {
            self.header()?;
        }
        loop {
            if self.in_window()? {
                return self.finish();
            }
            if self.window.can_refill() {
                self.window.refill(self.sink)?;
            } else if self.window.left() == 0 {
                return if self.attributes.from.is_some() { Err(Fault::Short) } else { Ok(Ended::Range) };
            } else if self.too_large()? {
                return self.finish();
            }
        }
    }

    fn header(&mut self) -> Result<(), Fault> {
        let (header, _) = self.window.rest().split_first_chunk::<HEADER_BYTES>().ok_or(Fault::Short)?;
        let number = |digits: &[u8]| {
            let all = digits.iter().all(u8::is_ascii_digit);
            all.then(|| digits.iter().fold(0, |number, digit| number * 10 + u32::from(digit - b'0')))
        };
        let (magic, version) = if let Some(digits) = header.strip_prefix(b"REDIS") {
            ("REDIS", number(digits).filter(|version| (1..=MAX_REDIS_VERSION).contains(version)))
        } else if let Some(digits) = header.strip_prefix(b"VALKEY") {
            ("VALKEY", number(digits).filter(|version| *version >= MIN_VALKEY_VERSION))
        } else {
            return Err(Fault::Form("no snapshot: neither REDIS nor VALKEY stands at its start"));
        };
        self.report.version = version.ok_or(Fault::Form("an RDB version that is not known"))?;
        self.report.magic = magic;
        self.dialect = if magic == "VALKEY" { Dialect::Valkey } else { Dialect::Redis };
        self.window.advance(HEADER_BYTES);
        Ok(())
    }

    /// Takes all parts that lie in the window as a whole. Tells whether the end was among them.
    fn in_window(&mut self) -> Result<bool, Fault> {
        loop {
            let rest = self.window.rest();
            let mut reader = Reader::new(rest);
            let Ok(whole) = Whole::read(&mut reader, self.dialect) else { return Ok(false) };
            let len = rest.len() - reader.rest().len();
            match whole {
                Whole::Own { kind } => {
                    let at = self.window.at() + 1;
                    let place = self.place(len);
                    if self.takes(&place)? {
                        self.sink.own(self.window.buffer(), at, kind, place)?;
                    }
                    self.window.advance(len);
                }
                Whole::Foreign(name) => {
                    let at = self.window.at() + 1;
                    let place = self.place(len);
                    self.report.push_skipped(name);
                    self.sink.foreign(self.window.buffer(), at, name, place);
                    self.window.advance(len);
                }
                Whole::Other(Part::Aux(key, _)) if key == mark::KEY => self.mark(len)?,
                Whole::Other(part) => {
                    let from = self.window.offset();
                    self.window.advance(len);
                    if self.apply(part, from) {
                        return Ok(true);
                    }
                }
            }
        }
    }

    /// Tells whether that was the end.
    fn apply(&mut self, part: Part<Vec<u8>>, from: u64) -> bool {
        match part {
            Part::Database(db) => self.db = Some(db),
            Part::Life(life) => self.attributes.life = Some(life),
            Part::Idle(seconds) => self.attributes.idle = Some(u32::try_from(seconds).unwrap_or(u32::MAX)),
            Part::Uses(uses) => self.attributes.uses = Some(uses),
            Part::Aux(key, value) if key == PROFILE => self.sink.profile(&value),
            Part::Aux(key, value) => {
                self.only_filters |= key == OWN_VERSION;
                self.report.push_aux(key, value);
            }
            Part::Size(keys) => self.expect(keys),
            Part::Other | Part::Key { .. } => return false,
            Part::End => return true,
        }
        if self.attributes.life.is_some() || self.attributes.idle.is_some() || self.attributes.uses.is_some() {
            self.attributes.from.get_or_insert(from);
        }
        false
    }

    /// So many keys are said to come. In a file of another server they may be of any type.
    fn expect(&mut self, keys: u64) {
        let keys = keys.min(self.window.left() / FILTER_BYTES);
        if let (true, Some(db)) = (self.only_filters, self.db) {
            self.sink.expect(db, keys);
        }
    }

    /// Where the key is whose last part are the next `len` bytes.
    fn place(&mut self, len: usize) -> Place {
        let Attributes { from, life, idle, uses } = std::mem::take(&mut self.attributes);
        let offset = self.window.offset();
        Place { offset: from.unwrap_or(offset), end: offset + len as u64, db: self.db, life, idle, uses }
    }

    /// Whether a filter at this place is wanted.
    fn takes(&mut self, place: &Place) -> Result<bool, Fault> {
        if self.now.is_some_and(|now| place.life.is_some_and(|life| life <= now)) {
            self.report.expired += 1;
            return Ok(false);
        }
        let reason = match place.db {
            Some(db) if db < DATABASES as u64 => return Ok(true),
            Some(_) => "a database that there is not: they are 16",
            None => "the database is not known, its number was lost",
        };
        if !self.lenient {
            return Err(Fault::Form(reason));
        }
        let (from, to, reason) = (place.offset, place.end, reason.into());
        self.report.dropped.push(Loss { from, to, reason, names: Vec::new(), keys: 1 });
        Ok(false)
    }

    /// A mark of `len` bytes is next.
    fn mark(&mut self, len: usize) -> Result<(), Fault> {
        let (from, to) = (self.block_start, self.window.offset());
        let mark = Mark::read(self.window.rest()).filter(|_| len == MARK_BYTES);
        let mark = mark.ok_or(Fault::Form("a block mark that nothing writes"))?;
        let sum = self.window.block_sum(MARK_BYTES);
        if sum.is_some_and(|sum| sum != mark.crc) || (sum.is_some() && mark.length != to - from) {
            return Err(Fault::Block { from, to });
        }
        if sum.is_some() {
            self.report.blocks += 1;
        }
        self.marks += 1;
        self.block_start = self.window.offset();
        Ok(())
    }

    /// Takes the part that is next, which is larger than the window or damaged. Tells whether it was the end.
    fn too_large(&mut self) -> Result<bool, Fault> {
        let (from, dialect) = (self.window.offset(), self.dialect);
        let mut stream = Stream { window: &mut self.window, sink: self.sink, plain: false };
        match Part::read(&mut stream, dialect)? {
            Part::Key { kind, name } => self.large_key(kind, &name, from).map(|()| false),
            part => Ok(self.apply(part, from)),
        }
    }

    fn large_key(&mut self, kind: u8, name: &[u8], from: u64) -> Result<(), Fault> {
        let dialect = self.dialect;
        let mut place = self.place(0);
        place.offset = place.offset.min(from);
        let mut stream = Stream { window: &mut self.window, sink: self.sink, plain: kind == rdb::TYPE_MODULE_1 };
        let type_name = if foreign::is_module(kind) {
            let id = ModuleId::from_code(stream.length()?);
            if id.name() == BLOOM_ID.name() {
                return self.large_bloom(kind, id, name, place);
            }
            if id == RING_ID && kind == rdb::TYPE_MODULE_2 {
                return self.large_ring(id, name, place);
            }
            if (id == COUNTING_ID || id == DLEFT_ID) && kind == rdb::TYPE_MODULE_2 {
                return self.large_cells(id, name, place);
            }
            if kind == rdb::TYPE_MODULE_1 {
                return Err(Fault::Form("a module's value as of before Redis 4.0: its length is not known"));
            }
            foreign::skip_module(&mut stream)?;
            foreign::module_name(id)
        } else {
            foreign::skip_builtin(&mut stream, kind, dialect)?
        };
        place.end = self.window.offset();
        self.report.push_skipped(type_name);
        self.sink.large_foreign(name, type_name, place);
        Ok(())
    }

    fn large_bloom(&mut self, kind: u8, id: ModuleId, name: &[u8], mut place: Place) -> Result<(), Fault> {
        // Decided first: a filter that is not wanted takes no memory.
        let wanted = self.takes(&place)?;
        let keeps = wanted && S::KEEPS_BITS;
        let mut stream = Stream { window: &mut self.window, sink: self.sink, plain: kind == rdb::TYPE_MODULE_1 };
        let chain = ChainFields::read::<_, Fault>(&mut stream, id)?;
        let mut large = Large { items: chain.items, options: chain.options, growth: chain.growth, ..Large::default() };
        for i in 0..chain.links {
            let fields = LinkFields::read(&mut stream, chain.encver)?;
            stream.string_opcode()?;
            let mut shape = None;
            let (_, array) = stream.bits(|len| {
                shape = Some(fields.shape(len).ok_or(ValueError::Link(i))?);
                Ok(if keeps { Some(BitArray::zeroed(len)?) } else { None })
            })?;
            let (shape, items) = (shape.ok_or(ValueError::Link(i))?, stream.unsigned()?);
            large.links.push(LinkInfo { shape, items });
            large.arrays.extend(array);
        }
        stream.end()?;
        place.end = self.window.offset();
        if wanted { self.sink.large(name, large, place) } else { Ok(()) }
    }

    fn large_ring(&mut self, id: ModuleId, name: &[u8], mut place: Place) -> Result<(), Fault> {
        let wanted = self.takes(&place)?;
        let keeps = wanted && S::KEEPS_BITS;
        let mut stream = Stream { window: &mut self.window, sink: self.sink, plain: false };
        let fields = RingFields::read::<_, Fault>(&mut stream, id)?;
        let mut ring = LargeRing { head: fields.head, heads: Vec::new(), parts: Vec::new() };
        let mut before = 0;
        for index in 0..fields.parts {
            let head = fields.read_part::<_, Fault>(&mut stream, index, before)?;
            stream.string_opcode()?;
            let wrong = || Fault::from(ValueError::Link(index));
            let (_, array) = stream.bits(|len| {
                if len != head.content_bytes() {
                    return Err(wrong());
                }
                let looks = keeps || wanted && S::LOOKS_INSIDE && head.listed;
                Ok(if looks { Some(BitArray::zeroed(len.max(1))?) } else { None })
            })?;
            if let Some(array) = array {
                ring.parts.push(part_of(head, &array).map_err(Fault::from)?.ok_or_else(wrong)?);
            }
            before = head.slice;
            ring.heads.push(head);
        }
        stream.end()?;
        place.end = self.window.offset();
        if wanted { self.sink.large_ring(name, ring, place) } else { Ok(()) }
    }

    fn large_cells(&mut self, id: ModuleId, name: &[u8], mut place: Place) -> Result<(), Fault> {
        let wanted = self.takes(&place)?;
        let keeps = wanted && (S::KEEPS_BITS || S::LOOKS_INSIDE && id == DLEFT_ID);
        let mut stream = Stream { window: &mut self.window, sink: self.sink, plain: false };
        let head = CellsHead::read::<_, Fault>(&mut stream, id)?;
        let (mut arrays, mut spilled) = (Vec::new(), Vec::new());
        for (index, bytes) in head.strings().into_iter().enumerate() {
            stream.string_opcode()?;
            let (_, array) = stream.bits(|len| {
                if len != bytes {
                    return Err(ValueError::Link(index).into());
                }
                Ok(if keeps { Some(BitArray::zeroed(len)?) } else { None })
            })?;
            arrays.extend(array);
        }
        stream.end()?;
        if let CellsHead::Dleft(_) = head
            && let Some(entries) = arrays.pop()
        {
            let mut bytes = vec![0; entries.len()];
            entries.copy_bytes(0, &mut bytes);
            spilled = spilled_in(&bytes).ok_or(ValueError::Chain)?;
        }
        place.end = self.window.offset();
        if wanted { self.sink.large_cells(name, LargeCells { head, arrays, spilled }, place) } else { Ok(()) }
    }

    /// After the opcode that ends the file.
    fn finish(&mut self) -> Result<Ended, Fault> {
        if self.attributes.from.is_some() {
            return Err(Fault::Form("a life without a key"));
        }
        if self.marks > 0 && self.window.offset() - 1 > self.block_start {
            return Err(Fault::Form("keys behind the last block mark"));
        }
        let sum = self.window.whole_sum();
        if self.report.version >= CHECKSUM_SINCE || self.report.version == 0 {
            let mut stream = Stream { window: &mut self.window, sink: self.sink, plain: false };
            let stored = u64::from_le_bytes(stream.array()?);
            if let Some(sum) = sum {
                self.report.checksum = checksum(stored, sum);
            }
        }
        if self.window.left() > 0 {
            return Err(Fault::Form("something follows the end of the snapshot"));
        }
        Ok(Ended::File)
    }
}

/// A part that holds these bytes; none if it cannot.
fn part_of(head: PartHead, content: &BitArray) -> Result<Option<RingPart>, AllocError> {
    let (mut part, mut check) = (head.empty()?, ContentCheck::new(head));
    let (mut offset, length) = (0, head.content_bytes() as usize);
    let mut piece = vec![0; PIECE_BYTES];
    while offset < length {
        let run = &mut piece[..PIECE_BYTES.min(length - offset)];
        content.copy_bytes(offset, run);
        check.take(offset, run);
        put_content(&mut part, offset, run)?;
        offset += run.len();
    }
    Ok(check.is_sound().then_some(part))
}

/// What a checksum at the end says of the bytes that have this one.
pub(super) fn checksum(stored: u64, computed: u64) -> Checksum {
    match stored {
        0 => Checksum::Absent,
        _ if stored == computed => Checksum::Right,
        _ => Checksum::Wrong,
    }
}
