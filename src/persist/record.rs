//! Effects as bytes: what the log keeps and what is done again at a recovery.
//!
//! A record is: kind (one byte), database (one byte), name (length and bytes), then the fields of the kind. Numbers are
//! little-endian; lengths and counts are in LEB128 (seven bits a byte, lowest first). Rates are kept as the bits of the
//! double, so nothing is rounded.
//!
//! Effects that belong together, of a command or of a transaction, stand in a group: kind, length of the records in eight bytes,
//! the records. A log is cut between such units only.

use std::cell::RefCell;

use crate::filters::bloom::Shape;
use crate::filters::ring::settings::LINKS;
use crate::filters::ring::{Event, Mode, Settings, Window};
use crate::filters::{counting, dleft};
use crate::keyspace::DATABASES;
use crate::keyspace::effect::{Cause, Effect, Group, Profile};

/// A record that is read back.
#[derive(Debug, PartialEq)]
pub struct Record<'a> {
    /// The database.
    pub db: usize,
    /// The key's name; empty for effects on whole databases.
    pub name: &'a [u8],
    /// What happened, as far as it is not a list of items.
    pub change: Change<'a>,
}

/// An [`Effect`] that owns its list of items.
#[derive(Debug, PartialEq)]
pub enum Change<'a> {
    /// Any effect but the adding of items.
    Effect(Effect<'a>),
    /// Items were counted as new.
    BloomAdded {
        /// In this sub-filter.
        link: u32,
        /// These.
        items: Vec<&'a [u8]>,
    },
    /// Items were written to a ring, or its time went on.
    RingAdded {
        /// When.
        event: Event,
        /// These.
        items: Vec<&'a [u8]>,
    },
    /// Items were counted by a filter, or taken out of it.
    Counted {
        /// What was done with them.
        what: Counted,
        /// These.
        items: Vec<&'a [u8]>,
    },
}

/// What is done with items of filters that count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// [`Effect::CountingAdded`].
    Added,
    /// [`Effect::CountingRemoved`].
    Removed,
    /// [`Effect::DleftAdded`].
    DleftAdded,
    /// [`Effect::DleftRemoved`].
    DleftRemoved,
}

impl Counted {
    /// The effect on these items.
    #[must_use]
    pub fn effect<'a>(self, items: &'a [&'a [u8]]) -> Effect<'a> {
        match self {
            Self::Added => Effect::CountingAdded { items },
            Self::Removed => Effect::CountingRemoved { items },
            Self::DleftAdded => Effect::DleftAdded { items },
            Self::DleftRemoved => Effect::DleftRemoved { items },
        }
    }
}

impl Change<'_> {
    /// Call `work` with the effect.
    pub fn with<R>(&self, work: impl FnOnce(&Effect<'_>) -> R) -> R {
        match self {
            Self::Effect(effect) => work(effect),
            Self::BloomAdded { link, items } => work(&Effect::BloomAdded { link: *link, items }),
            Self::RingAdded { event, items } => work(&Effect::RingAdded { event: *event, items }),
            Self::Counted { what, items } => work(&what.effect(items)),
        }
    }
}

/// The bytes are not a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an effect record")]
pub struct Malformed;

#[repr(u8)]
enum Kind {
    BloomCreated = 1,
    BloomAdded = 2,
    BloomGrown = 3,
    BloomHeader = 4,
    BloomChunk = 5,
    Restored = 6,
    Life = 7,
    Deleted = 8,
    Renamed = 9,
    Copied = 10,
    Moved = 11,
    Flushed = 12,
    Swapped = 13,
    Group = 14,
    RingCreated = 15,
    RingAdded = 16,
    RingRotated = 17,
    RingCleared = 18,
    RingLinks = 19,
    Profile = 20,
    RingHeader = 21,
    CountingCreated = 22,
    CountingHeader = 23,
    CountingAdded = 24,
    CountingRemoved = 25,
    CountingDecayed = 26,
    DleftCreated = 27,
    DleftHeader = 28,
    DleftAdded = 29,
    DleftRemoved = 30,
}

thread_local! {
    /// The records of what the thread has done and not yet committed.
    static STAGED: RefCell<Group> = const { RefCell::new(Group { records: Vec::new(), count: 0 }) };
}

/// More than this is not kept for the next records.
const KEPT_BYTES: usize = 64 << 10;

/// Keep the record of an effect until [`with_staged`] or [`suspend`].
pub fn stage(db: usize, name: &[u8], effect: &Effect<'_>) {
    STAGED.with_borrow_mut(|staged| {
        encode(db, name, effect, &mut staged.records);
        staged.count += 1;
    });
}

/// Take the staged records to the end of a group.
pub fn suspend(group: &mut Group) {
    STAGED.with_borrow_mut(|staged| {
        if staged.count > 0 {
            group.append(std::mem::take(staged));
        }
    });
}

/// Call `work` with the staged records as [one](fn@unit), if there are any; they are gone afterwards.
pub fn with_staged(work: impl FnOnce(&[u8], &[u8])) {
    STAGED.with_borrow_mut(|staged| {
        if staged.count > 0 {
            unit(staged, work);
            staged.records.clear();
            staged.records.shrink_to(KEPT_BYTES);
            staged.count = 0;
        }
    });
}

/// Call `work` with the two parts of the record that stands for a group, the head being empty if it has one record only.
pub fn unit<R>(group: &Group, work: impl FnOnce(&[u8], &[u8]) -> R) -> R {
    if group.count == 1 {
        return work(&[], &group.records);
    }
    let mut head = [0; GROUP_HEAD_BYTES];
    head[0] = Kind::Group as u8;
    head[1..].copy_from_slice(&(group.records.len() as u64).to_le_bytes());
    work(&head, &group.records)
}

const GROUP_HEAD_BYTES: usize = 1 + size_of::<u64>();

/// What comes next in a log.
#[derive(Debug, PartialEq)]
pub enum Unit<'a> {
    /// One effect.
    Record(Record<'a>),
    /// The records of effects that belong together.
    Group(&'a [u8]),
}

/// Read the unit at the front of `bytes`; what follows it is returned too.
///
/// # Errors
/// [`Malformed`].
pub fn next_unit(bytes: &[u8]) -> Result<(Unit<'_>, &[u8]), Malformed> {
    if bytes.first() != Some(&(Kind::Group as u8)) {
        return decode(bytes).map(|(record, rest)| (Unit::Record(record), rest));
    }
    let mut fields = Fields(&bytes[1..]);
    let length = usize::try_from(fields.u64()?).map_err(|_| Malformed)?;
    let (records, rest) = fields.0.split_at_checked(length).ok_or(Malformed)?;
    Ok((Unit::Group(records), rest))
}

/// Call `visit` with every record in `bytes`, those in groups too; it may stop with an error.
///
/// # Errors
/// [`Malformed`], or that of `visit`.
pub fn for_each_record<E: From<Malformed>>(
    bytes: &[u8],
    mut visit: impl FnMut(&Record<'_>) -> Result<(), E>,
) -> Result<(), E> {
    for_each_with_bytes(bytes, |record, _| visit(record))
}

/// As [`for_each_record`], with the bytes of each.
///
/// # Errors
/// [`Malformed`], or that of `visit`.
pub fn for_each_with_bytes<E: From<Malformed>>(
    bytes: &[u8],
    mut visit: impl FnMut(&Record<'_>, &[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let mut rest = bytes;
    while !rest.is_empty() {
        let (unit, after) = next_unit(rest)?;
        match unit {
            Unit::Record(record) => visit(&record, &rest[..rest.len() - after.len()])?,
            Unit::Group(mut records) => {
                while !records.is_empty() {
                    let (record, after) = decode(records)?;
                    visit(&record, &records[..records.len() - after.len()])?;
                    records = after;
                }
            }
        }
        rest = after;
    }
    Ok(())
}

/// Append the record of an effect.
pub fn encode(db: usize, name: &[u8], effect: &Effect<'_>, out: &mut Vec<u8>) {
    let mut begin = |kind: Kind| {
        out.extend([kind as u8, db as u8]);
        push_bytes(out, name);
    };
    match effect {
        Effect::BloomCreated { shape, options, growth, life } => {
            begin(Kind::BloomCreated);
            push_shape(out, shape);
            out.extend(options.to_le_bytes());
            out.extend(growth.to_le_bytes());
            push_life(out, *life);
        }
        Effect::BloomAdded { link, items } => {
            begin(Kind::BloomAdded);
            push_number(out, u64::from(*link));
            push_number(out, items.len() as u64);
            items.iter().for_each(|item| push_bytes(out, item));
        }
        Effect::BloomGrown { shape } => {
            begin(Kind::BloomGrown);
            push_shape(out, shape);
        }
        Effect::BloomHeader { header } => {
            begin(Kind::BloomHeader);
            push_bytes(out, header);
        }
        Effect::BloomChunk { link, offset, data } => {
            begin(Kind::BloomChunk);
            push_number(out, u64::from(*link));
            push_number(out, *offset);
            push_bytes(out, data);
        }
        Effect::RingCreated { settings, version, life } => {
            begin(Kind::RingCreated);
            push_settings(out, settings);
            out.extend(version.to_le_bytes());
            push_life(out, *life);
        }
        Effect::RingAdded { event, items } => {
            begin(Kind::RingAdded);
            push_number(out, event.now);
            // Mostly the same.
            push_number(out, event.now - event.at.min(event.now));
            push_number(out, items.len() as u64);
            items.iter().for_each(|item| push_bytes(out, item));
        }
        Effect::RingHeader { cursor, header } => {
            begin(Kind::RingHeader);
            out.extend(cursor.to_le_bytes());
            push_bytes(out, header);
        }
        Effect::RingRotated => begin(Kind::RingRotated),
        Effect::RingCleared => begin(Kind::RingCleared),
        Effect::RingLinks { links, now } => {
            begin(Kind::RingLinks);
            push_number(out, u64::from(*links));
            push_number(out, *now);
        }
        Effect::CountingCreated { settings, shape, version, life } => {
            begin(Kind::CountingCreated);
            push_counting(out, settings, shape);
            out.extend(version.to_le_bytes());
            push_life(out, *life);
        }
        Effect::CountingHeader { cursor, header } => {
            begin(Kind::CountingHeader);
            out.extend(cursor.to_le_bytes());
            push_bytes(out, header);
        }
        Effect::CountingAdded { items } => {
            begin(Kind::CountingAdded);
            push_items(out, items);
        }
        Effect::CountingRemoved { items } => {
            begin(Kind::CountingRemoved);
            push_items(out, items);
        }
        Effect::CountingDecayed => begin(Kind::CountingDecayed),
        Effect::DleftCreated { settings, seed, life } => {
            begin(Kind::DleftCreated);
            push_dleft(out, settings);
            out.extend(seed.to_le_bytes());
            push_life(out, *life);
        }
        Effect::DleftHeader { cursor, header } => {
            begin(Kind::DleftHeader);
            out.extend(cursor.to_le_bytes());
            push_bytes(out, header);
        }
        Effect::DleftAdded { items } => {
            begin(Kind::DleftAdded);
            push_items(out, items);
        }
        Effect::DleftRemoved { items } => {
            begin(Kind::DleftRemoved);
            push_items(out, items);
        }
        Effect::Profile { settings } => {
            begin(Kind::Profile);
            out.push(settings.map_or(0, |profile| 1 + u8::from(profile.keyed)));
            settings.iter().for_each(|profile| push_settings(out, &profile.settings));
        }
        Effect::Restored { payload, life } => {
            begin(Kind::Restored);
            push_life(out, *life);
            push_bytes(out, payload);
        }
        Effect::Life { life } => {
            begin(Kind::Life);
            push_life(out, *life);
        }
        Effect::Deleted { cause } => {
            begin(Kind::Deleted);
            out.push(*cause as u8);
        }
        Effect::Renamed { to } => {
            begin(Kind::Renamed);
            push_bytes(out, to);
        }
        Effect::Copied { db, to } => {
            begin(Kind::Copied);
            out.push(*db as u8);
            push_bytes(out, to);
        }
        Effect::Moved { db } => {
            begin(Kind::Moved);
            out.push(*db as u8);
        }
        Effect::Flushed { all } => {
            begin(Kind::Flushed);
            out.push(u8::from(*all));
        }
        Effect::Swapped { with } => {
            begin(Kind::Swapped);
            out.push(*with as u8);
        }
    }
}

fn push_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn push_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    push_number(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn push_items(out: &mut Vec<u8>, items: &[&[u8]]) {
    push_number(out, items.len() as u64);
    items.iter().for_each(|item| push_bytes(out, item));
}

/// A moment is never 0 in a record: that stands for none.
fn push_life(out: &mut Vec<u8>, life: Option<u64>) {
    out.extend(life.unwrap_or(0).to_le_bytes());
}

fn push_shape(out: &mut Vec<u8>, shape: &Shape) {
    out.extend(shape.entries.to_le_bytes());
    out.extend(shape.error.to_bits().to_le_bytes());
    out.extend(shape.bits_per_entry.to_bits().to_le_bytes());
    out.extend(shape.hashes.to_le_bytes());
    out.extend(shape.bits.to_le_bytes());
    out.extend(shape.bytes.to_le_bytes());
    out.push(shape.log2_bits);
}

// The parts of a ring's settings that are there or not.
const LINK_ERROR: u8 = 1;
const WINDOW: u8 = 2;
const BOUNDED: u8 = 4;
const BY_EVENTS: u8 = 8;
const DUAL: u8 = 16;
const HAS_IDLE: u8 = 32;
const HAS_KEY: u8 = 64;

fn push_settings(out: &mut Vec<u8>, settings: &Settings) {
    let flag = |on: bool, flag: u8| if on { flag } else { 0 };
    let mode = match settings.mode {
        Mode::Count => 0,
        Mode::Dual { .. } => DUAL,
        Mode::Window(window) => WINDOW | flag(window.bounded, BOUNDED) | flag(window.by_events, BY_EVENTS),
    };
    let others = flag(settings.link_error, LINK_ERROR) | flag(settings.idle.is_some(), HAS_IDLE);
    out.push(mode | others | flag(settings.key.is_some(), HAS_KEY));
    push_number(out, settings.capacity);
    out.extend(settings.error.to_bits().to_le_bytes());
    push_number(out, u64::from(settings.links));
    match settings.mode {
        Mode::Count => {}
        Mode::Dual { threshold } => out.extend(threshold.to_bits().to_le_bytes()),
        Mode::Window(window) => push_number(out, window.span_ms),
    }
    settings.idle.iter().for_each(|idle| push_number(out, u64::from(*idle)));
    settings.key.iter().for_each(|key| out.extend(key));
}

// The parts of a counting filter's settings that are there or not.
const STRICT: u8 = 1;
const HAS_COUNTING_KEY: u8 = 2;

fn push_counting(out: &mut Vec<u8>, settings: &counting::Settings, shape: &counting::Shape) {
    let flag = |on: bool, flag: u8| if on { flag } else { 0 };
    out.push(flag(settings.strict, STRICT) | flag(settings.key.is_some(), HAS_COUNTING_KEY));
    push_number(out, settings.capacity);
    out.extend(settings.error.to_bits().to_le_bytes());
    out.push(settings.counter_bits.bits() as u8);
    push_number(out, shape.cells);
    push_number(out, shape.hashes.into());
    settings.key.iter().for_each(|key| out.extend(key));
}

// The parts of a d-left filter's settings that are there or not.
const SPILLS: u8 = 1;
const GROWS: u8 = 2;
const HAS_DLEFT_KEY: u8 = 4;

fn push_dleft(out: &mut Vec<u8>, settings: &dleft::Settings) {
    let flag = |on: bool, flag: u8| if on { flag } else { 0 };
    let growth = flag(settings.growth.is_some(), GROWS);
    out.push(flag(settings.spill, SPILLS) | growth | flag(settings.key.is_some(), HAS_DLEFT_KEY));
    push_number(out, settings.capacity);
    out.extend(settings.error.to_bits().to_le_bytes());
    out.extend([settings.subtables as u8, settings.cells as u8, settings.counter_bits as u8]);
    if let Some(growth) = settings.growth {
        push_number(out, growth.factor.into());
        push_number(out, growth.final_capacity);
    }
    settings.key.iter().for_each(|key| out.extend(key));
}

/// Read the record at the front of `bytes`; what follows it is returned too.
///
/// # Errors
/// [`Malformed`].
pub fn decode(bytes: &[u8]) -> Result<(Record<'_>, &[u8]), Malformed> {
    let mut fields = Fields(bytes);
    let (kind, db, name) = (fields.byte()?, fields.db()?, fields.bytes()?);
    if let Some(what) = counted(kind) {
        let items = fields.items()?;
        return Ok((Record { db, name, change: Change::Counted { what, items } }, fields.0));
    }
    let effect = match kind {
        k if k == Kind::BloomCreated as u8 => Effect::BloomCreated {
            shape: fields.shape()?,
            options: u32::from_le_bytes(fields.array()?),
            growth: u32::from_le_bytes(fields.array()?),
            life: fields.life()?,
        },
        k if k == Kind::BloomAdded as u8 => {
            let (link, items) = (fields.small()?, fields.items()?);
            return Ok((Record { db, name, change: Change::BloomAdded { link, items } }, fields.0));
        }
        k if k == Kind::BloomGrown as u8 => Effect::BloomGrown { shape: fields.shape()? },
        k if k == Kind::BloomHeader as u8 => Effect::BloomHeader { header: fields.bytes()? },
        k if k == Kind::BloomChunk as u8 => {
            Effect::BloomChunk { link: fields.small()?, offset: fields.number()?, data: fields.bytes()? }
        }
        k if k == Kind::RingCreated as u8 => {
            Effect::RingCreated { settings: fields.settings()?, version: fields.u64()?, life: fields.life()? }
        }
        k if k == Kind::RingAdded as u8 => {
            let (now, before) = (fields.number()?, fields.number()?);
            let event = Event { now, at: now.checked_sub(before).ok_or(Malformed)? };
            return Ok((Record { db, name, change: Change::RingAdded { event, items: fields.items()? } }, fields.0));
        }
        k if k == Kind::RingHeader as u8 => Effect::RingHeader { cursor: fields.u64()?, header: fields.bytes()? },
        k if k == Kind::RingRotated as u8 => Effect::RingRotated,
        k if k == Kind::RingCleared as u8 => Effect::RingCleared,
        k if k == Kind::RingLinks as u8 => Effect::RingLinks { links: fields.links()?, now: fields.number()? },
        k if k == Kind::CountingCreated as u8 => {
            let (settings, shape) = fields.counting()?;
            let version = Some(fields.u64()?).filter(|version| *version <= counting::MOST_FIGURE).ok_or(Malformed)?;
            Effect::CountingCreated { settings, shape, version, life: fields.life()? }
        }
        k if k == Kind::CountingHeader as u8 => {
            Effect::CountingHeader { cursor: fields.u64()?, header: fields.bytes()? }
        }
        k if k == Kind::CountingDecayed as u8 => Effect::CountingDecayed,
        k if k == Kind::DleftCreated as u8 => {
            Effect::DleftCreated { settings: fields.dleft()?, seed: fields.u64()?, life: fields.life()? }
        }
        k if k == Kind::DleftHeader as u8 => Effect::DleftHeader { cursor: fields.u64()?, header: fields.bytes()? },
        k if k == Kind::Profile as u8 => Effect::Profile {
            settings: match fields.byte()? {
                0 => None,
                keyed @ 1..=2 => Some(Profile { settings: fields.settings()?, keyed: keyed == 2 }),
                _ => return Err(Malformed),
            },
        },
        k if k == Kind::Restored as u8 => Effect::Restored { life: fields.life()?, payload: fields.bytes()? },
        k if k == Kind::Life as u8 => Effect::Life { life: fields.life()? },
        k if k == Kind::Deleted as u8 => Effect::Deleted { cause: fields.cause()? },
        k if k == Kind::Renamed as u8 => Effect::Renamed { to: fields.bytes()? },
        k if k == Kind::Copied as u8 => Effect::Copied { db: fields.db()?, to: fields.bytes()? },
        k if k == Kind::Moved as u8 => Effect::Moved { db: fields.db()? },
        k if k == Kind::Flushed as u8 => Effect::Flushed { all: fields.byte()? != 0 },
        k if k == Kind::Swapped as u8 => Effect::Swapped { with: fields.db()? },
        _ => return Err(Malformed),
    };
    Ok((Record { db, name, change: Change::Effect(effect) }, fields.0))
}

fn counted(kind: u8) -> Option<Counted> {
    match kind {
        k if k == Kind::CountingAdded as u8 => Some(Counted::Added),
        k if k == Kind::CountingRemoved as u8 => Some(Counted::Removed),
        k if k == Kind::DleftAdded as u8 => Some(Counted::DleftAdded),
        k if k == Kind::DleftRemoved as u8 => Some(Counted::DleftRemoved),
        _ => None,
    }
}

/// What is left to be read.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (array, rest) = self.0.split_first_chunk().ok_or(Malformed)?;
        self.0 = rest;
        Ok(*array)
    }

    fn byte(&mut self) -> Result<u8, Malformed> {
        self.array().map(|[byte]| byte)
    }

    fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_le_bytes)
    }

    fn number(&mut self) -> Result<u64, Malformed> {
        let mut number = 0_u64;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = u64::from(self.byte()?);
            let part = byte & 0x7f;
            if part << shift >> shift != part {
                return Err(Malformed);
            }
            number |= part << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(Malformed)
    }

    fn small(&mut self) -> Result<u32, Malformed> {
        u32::try_from(self.number()?).map_err(|_| Malformed)
    }

    fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let len = usize::try_from(self.number()?).map_err(|_| Malformed)?;
        let (bytes, rest) = self.0.split_at_checked(len).ok_or(Malformed)?;
        self.0 = rest;
        Ok(bytes)
    }

    fn items(&mut self) -> Result<Vec<&'a [u8]>, Malformed> {
        // Each item takes a byte at least, so the count cannot make us reserve more than there is.
        let count = usize::try_from(self.number()?).ok().filter(|count| *count <= self.0.len()).ok_or(Malformed)?;
        (0..count).map(|_| self.bytes()).collect()
    }

    fn db(&mut self) -> Result<usize, Malformed> {
        Some(usize::from(self.byte()?)).filter(|db| *db < DATABASES).ok_or(Malformed)
    }

    fn life(&mut self) -> Result<Option<u64>, Malformed> {
        Ok(Some(self.u64()?).filter(|life| *life != 0))
    }

    fn cause(&mut self) -> Result<Cause, Malformed> {
        let byte = self.byte()?;
        let causes = [Cause::Command, Cause::Expired, Cause::Evicted];
        causes.into_iter().find(|cause| *cause as u8 == byte).ok_or(Malformed)
    }

    fn links(&mut self) -> Result<u16, Malformed> {
        let links = u16::try_from(self.number()?).map_err(|_| Malformed)?;
        if LINKS.contains(&links) { Ok(links) } else { Err(Malformed) }
    }

    fn settings(&mut self) -> Result<Settings, Malformed> {
        let (flags, capacity, error) = (self.byte()?, self.number()?, f64::from_bits(self.u64()?));
        let links = self.links()?;
        let mode = match flags & (WINDOW | DUAL) {
            0 => Mode::Count,
            DUAL => Mode::Dual { threshold: f64::from_bits(self.u64()?) },
            WINDOW => Mode::Window(Window {
                span_ms: self.number()?,
                bounded: flags & BOUNDED != 0,
                by_events: flags & BY_EVENTS != 0,
            }),
            _ => return Err(Malformed),
        };
        let idle = if flags & HAS_IDLE != 0 { Some(self.small()?) } else { None };
        let key = if flags & HAS_KEY != 0 { Some(self.array()?) } else { None };
        let sound = capacity > 0
            && error > 0.0
            && error < 1.0
            && !matches!(mode, Mode::Dual { threshold } if !(0.5..1.0).contains(&threshold));
        let settings = Settings { capacity, error, link_error: flags & LINK_ERROR != 0, links, mode, idle, key };
        if sound { Ok(settings) } else { Err(Malformed) }
    }

    fn counting(&mut self) -> Result<(counting::Settings, counting::Shape), Malformed> {
        let (flags, capacity, error) = (self.byte()?, self.number()?, f64::from_bits(self.u64()?));
        let counter_bits = counting::CounterBits::new(self.byte()?.into()).ok_or(Malformed)?;
        let shape = counting::Shape { cells: self.number()?, hashes: self.small()?, counter_bits };
        let key = if flags & HAS_COUNTING_KEY != 0 { Some(self.array()?) } else { None };
        let settings = counting::Settings { capacity, error, counter_bits, strict: flags & STRICT != 0, key };
        let sound = flags <= STRICT | HAS_COUNTING_KEY && settings.is_sound() && shape.is_sound();
        if sound { Ok((settings, shape)) } else { Err(Malformed) }
    }

    fn dleft(&mut self) -> Result<dleft::Settings, Malformed> {
        let (flags, capacity, error) = (self.byte()?, self.number()?, f64::from_bits(self.u64()?));
        let [subtables, cells, counter_bits] = self.array::<3>()?.map(u32::from);
        let growth = match flags & GROWS {
            0 => None,
            _ => Some(dleft::Growth { factor: self.small()?, final_capacity: self.number()? }),
        };
        let key = if flags & HAS_DLEFT_KEY != 0 { Some(self.array()?) } else { None };
        let spill = flags & SPILLS != 0;
        let settings = dleft::Settings { capacity, error, growth, subtables, cells, counter_bits, spill, key };
        let sound = flags <= SPILLS | GROWS | HAS_DLEFT_KEY && settings.is_sound();
        if sound { Ok(settings) } else { Err(Malformed) }
    }

    fn shape(&mut self) -> Result<Shape, Malformed> {
        Ok(Shape {
            entries: self.u64()?,
            error: f64::from_bits(self.u64()?),
            bits_per_entry: f64::from_bits(self.u64()?),
            hashes: u32::from_le_bytes(self.array()?),
            bits: self.u64()?,
            bytes: self.u64()?,
            log2_bits: self.byte()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn round_trip(effect: &Effect<'_>) {
        let mut bytes = Vec::new();
        encode(3, b"name", effect, &mut bytes);
        let whole = bytes.len();
        bytes.extend(b"next");
        let (record, rest) = decode(&bytes).unwrap();
        assert_eq!((record.db, record.name, rest), (3, &b"name"[..], &b"next"[..]));
        record.change.with(|read| assert_eq!(read, effect));
        for cut in 0..whole {
            assert_eq!(decode(&bytes[..cut]), Err(Malformed), "cut at {cut}");
        }
    }

    #[test]
    fn every_effect_comes_back() {
        let shape = Shape::new(1000, 0.01).unwrap();
        let items: &[&[u8]] = &[b"", b"a", &[0xff; 300]];
        let ring = Settings {
            capacity: 1 << 40,
            error: 0.01,
            link_error: true,
            links: 1024,
            mode: Mode::Count,
            idle: None,
            key: None,
        };
        let window = Mode::Window(Window { span_ms: 1 << 38, bounded: true, by_events: true });
        let dual = Settings { mode: Mode::Dual { threshold: 0.6 }, links: 2, link_error: false, ..ring };
        let counter_bits = counting::CounterBits::Eight;
        let counting = counting::Settings { capacity: 1 << 40, error: 0.01, counter_bits, strict: false, key: None };
        let counting_shape = counting.shape().unwrap();
        let dleft = dleft::Settings {
            capacity: 1 << 20,
            error: 0.01,
            growth: Some(dleft::Growth { factor: 2, final_capacity: 1 << 40 }),
            subtables: 4,
            cells: 16,
            counter_bits: 4,
            spill: true,
            key: Some([9; 16]),
        };
        for effect in [
            Effect::RingCreated { settings: ring, version: u64::MAX, life: Some(7) },
            Effect::RingCreated { settings: Settings { mode: window, idle: Some(9), ..ring }, version: 1, life: None },
            Effect::RingCreated { settings: Settings { key: Some([7; 16]), ..dual }, version: 1, life: None },
            Effect::RingAdded { event: Event { now: 1 << 41, at: (1 << 41) - 5 }, items },
            Effect::RingAdded { event: Event { now: 3, at: 3 }, items: &[] },
            Effect::RingHeader { cursor: u64::MAX, header: b"header" },
            Effect::RingRotated,
            Effect::RingCleared,
            Effect::CountingCreated {
                settings: counting,
                shape: counting_shape,
                version: counting::MOST_FIGURE,
                life: Some(7),
            },
            Effect::CountingCreated {
                settings: counting::Settings { strict: true, key: Some([7; 16]), ..counting },
                shape: counting_shape,
                version: 1,
                life: None,
            },
            Effect::CountingHeader { cursor: 1 << 60, header: b"header" },
            Effect::CountingAdded { items },
            Effect::CountingRemoved { items: &items[1..] },
            Effect::CountingDecayed,
            Effect::DleftCreated { settings: dleft, seed: u64::MAX, life: Some(7) },
            Effect::DleftCreated {
                settings: dleft::Settings { growth: None, spill: false, key: None, ..dleft },
                seed: 0,
                life: None,
            },
            Effect::DleftHeader { cursor: 1 << 60, header: b"header" },
            Effect::DleftAdded { items },
            Effect::DleftRemoved { items: &[] },
            Effect::RingLinks { links: 2, now: 1 << 41 },
            Effect::Profile { settings: Some(Profile { settings: dual, keyed: true }) },
            Effect::Profile { settings: None },
            Effect::BloomCreated { shape, options: 5, growth: 2, life: Some(7) },
            Effect::BloomAdded { link: 1023, items },
            Effect::BloomGrown { shape },
            Effect::BloomHeader { header: b"header" },
            Effect::BloomChunk { link: 1, offset: u64::MAX, data: b"data" },
            Effect::Restored { payload: b"payload", life: None },
            Effect::Life { life: Some(1 << 47) },
            Effect::Life { life: None },
            Effect::Deleted { cause: Cause::Expired },
            Effect::Renamed { to: b"" },
            Effect::Copied { db: 15, to: b"copy" },
            Effect::Moved { db: 1 },
            Effect::Flushed { all: true },
            Effect::Swapped { with: 2 },
        ] {
            round_trip(&effect);
        }
    }

    proptest! {
        #[test]
        fn random_bytes_are_refused_or_read(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok((_, rest)) = decode(&bytes) {
                prop_assert!(rest.len() < bytes.len());
            }
        }
    }
}
