//! Keys shown, not loaded.

use super::load::profile_of;
use super::report::{Fault, LISTED, Loss, Losses, listed_name};
use super::{Large, LargeCells, LargeRing, Place, Sink};
use crate::codec::bloom_value::{BLOOM_ID, BloomValue, ValueError};
use crate::codec::cells_value::CellsHead;
use crate::codec::foreign::{TypeName, module_name};
use crate::codec::rdb::{Reader, TYPE_MODULE_1};
use crate::codec::rdb_string::RdbString;
use crate::codec::ring_fields::PartHead;
use crate::codec::ring_value::RING_ID;
use crate::codec::value::Value;
use crate::filters::LinkInfo;
use crate::filters::ring::Settings;
use crate::filters::{counting, dleft};
use crate::keyspace::effect::Profile;

/// Most profiles that are kept: no server has more.
const PROFILES: usize = 1024;

/// A key of a snapshot.
#[derive(Clone, Copy, Debug)]
pub struct Visited<'a> {
    /// Its database; none if its number was lost.
    pub db: Option<u64>,
    /// Its name.
    pub name: &'a [u8],
    /// The name of its type.
    pub type_name: TypeName,
    /// When it ends, in milliseconds since 1970.
    pub life: Option<u64>,
    /// Offset in the file of its first byte.
    pub offset: u64,
    /// Bytes in the file, with what stands before the key.
    pub bytes: u64,
    /// Figures of a Bloom filter.
    pub chain: Option<Chain<'a>>,
    /// Figures of a ring.
    pub ring: Option<RingFigures>,
    /// Figures of a counting or d-left filter.
    pub cells: Option<CellsFigures>,
}

/// Figures of a counting or d-left filter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CellsFigures {
    /// Items that it is made for.
    pub capacity: u64,
    /// The rate that it is made for.
    pub error: f64,
    /// Bytes of its cells.
    pub bytes: u64,
    /// Items in it.
    pub items: u64,
}

impl CellsFigures {
    fn of(head: &CellsHead) -> Self {
        let bytes = head.bytes();
        match head {
            CellsHead::Counting(head) => {
                let counting::Settings { capacity, error, .. } = head.settings;
                Self { capacity, error, bytes, items: head.items }
            }
            CellsHead::Dleft(head) => {
                let dleft::Settings { capacity, error, .. } = head.settings;
                Self { capacity, error, bytes, items: head.items }
            }
        }
    }
}

/// Figures of a ring.
#[derive(Clone, Copy, Debug)]
pub struct RingFigures {
    /// What it was made with.
    pub settings: Settings,
    /// Its arrays.
    pub parts: usize,
    /// Items written to them.
    pub items: u64,
}

impl RingFigures {
    fn of<'p>(settings: Settings, parts: impl Iterator<Item = &'p PartHead>) -> Self {
        let (mut count, mut items) = (0, 0_u64);
        parts.for_each(|part| (count, items) = (count + 1, items.saturating_add(part.items)));
        Self { settings, parts: count, items }
    }
}

/// What is shown of a key besides where it is.
#[derive(Clone, Copy, Default)]
struct Shown<'a> {
    chain: Option<Chain<'a>>,
    ring: Option<RingFigures>,
    cells: Option<CellsFigures>,
}

/// Figures of a Bloom filter.
#[derive(Clone, Copy, Debug)]
pub struct Chain<'a> {
    /// Items of the chain.
    pub items: u64,
    /// Its options.
    pub options: u32,
    /// Its growth.
    pub growth: u32,
    /// Its sub-filters, oldest first.
    pub links: &'a [LinkInfo],
}

/// Shows keys.
pub(super) struct Visits<'v> {
    visit: &'v mut dyn FnMut(&Visited<'_>),
    accept_damaged: bool,
    scratch: Vec<u8>,
    buffer: Vec<u8>,
    pub(super) filters: u64,
    pub(super) profiles: Vec<(Vec<u8>, Profile)>,
    pub(super) losses: Losses,
}

impl<'v> Visits<'v> {
    pub(super) fn new(visit: &'v mut dyn FnMut(&Visited<'_>), accept_damaged: bool) -> Self {
        let (scratch, buffer, profiles, losses) = Default::default();
        Visits { visit, accept_damaged, scratch, buffer, filters: 0, profiles, losses }
    }

    fn show(&mut self, name: &[u8], type_name: TypeName, place: &Place, Shown { chain, ring, cells }: Shown<'_>) {
        let Place { offset, end, db, life, .. } = *place;
        self.filters += u64::from(chain.is_some() || ring.is_some() || cells.is_some());
        (self.visit)(&Visited { db, name, type_name, life, offset, bytes: end - offset, chain, ring, cells });
    }

    /// A key cannot be had: an error, unless damage is accepted.
    fn lose(&mut self, name: &[u8], fault: Fault, place: &Place) -> Result<(), Fault> {
        let reason = fault.reason().filter(|_| self.accept_damaged).ok_or(fault)?;
        let names = vec![(place.db, listed_name(name))];
        self.losses.push(Loss { from: place.offset, to: place.end, reason, names, keys: 1 });
        Ok(())
    }

    fn show_cells(&mut self, name: &[u8], head: &CellsHead, place: &Place) {
        let shown = Shown { cells: Some(CellsFigures::of(head)), ..Shown::default() };
        self.show(name, module_name(head.id()), place, shown);
    }

    fn show_value(&mut self, name: &[u8], value: &Value<'_>, place: &Place) {
        match value {
            Value::Bloom(value) => {
                let (items, options, growth) = (value.items(), value.options(), value.growth());
                let chain = Chain { items, options, growth, links: value.links() };
                self.show(name, module_name(BLOOM_ID), place, Shown { chain: Some(chain), ..Shown::default() });
            }
            Value::Ring(value) => {
                let ring = RingFigures::of(value.head().settings, value.parts());
                self.show(name, module_name(RING_ID), place, Shown { ring: Some(ring), ..Shown::default() });
            }
            Value::Cells(value) => self.show_cells(name, value.head(), place),
            Value::HalfCounting(half) => self.show_cells(name, half.load.head(), place),
            Value::HalfDleft(half) => self.show_cells(name, half.load.head(), place),
            Value::HalfRing(half) => {
                let ring = RingFigures::of(half.load.head().settings, std::iter::empty());
                self.show(name, module_name(RING_ID), place, Shown { ring: Some(ring), ..Shown::default() });
            }
        }
    }
}

/// What is not looked at when a value is read.
fn check_bits(value: &Value<'_>) -> Result<(), ValueError> {
    match value {
        Value::Bloom(value) => Ok(value.check_bits()?),
        // There is no other way to know.
        Value::Cells(value) => value.clone().build().map(drop),
        _ => Ok(()),
    }
}

impl Sink for Visits<'_> {
    const KEEPS_BITS: bool = false;
    const LOOKS_INSIDE: bool = true;

    fn spare(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.buffer)
    }

    fn retire(&mut self, buffer: Vec<u8>, _start: u64) -> Result<(), Fault> {
        self.buffer = buffer;
        Ok(())
    }

    fn own(&mut self, window: &[u8], at: usize, kind: u8, place: Place) -> Result<(), Fault> {
        let mut reader = Reader::new(&window[at..]);
        let mut scratch = std::mem::take(&mut self.scratch);
        let name = RdbString::read(&mut reader)?.bytes(&mut scratch)?;
        let value = match kind {
            TYPE_MODULE_1 => BloomValue::read_plain(&mut reader).map(Value::Bloom),
            _ => Value::read(&mut reader),
        };
        match value.and_then(|value| check_bits(&value).map(|()| value)).map_err(Fault::from) {
            Ok(value) => self.show_value(name, &value, &place),
            Err(fault) => self.lose(name, fault, &place)?,
        }
        self.scratch = scratch;
        Ok(())
    }

    fn large(&mut self, name: &[u8], large: Large, place: Place) -> Result<(), Fault> {
        let Large { items, options, growth, links, .. } = &large;
        let chain = Chain { items: *items, options: *options, growth: *growth, links };
        self.show(name, module_name(BLOOM_ID), &place, Shown { chain: Some(chain), ..Shown::default() });
        Ok(())
    }

    fn large_ring(&mut self, name: &[u8], ring: LargeRing, place: Place) -> Result<(), Fault> {
        let ring = RingFigures::of(ring.head.settings, ring.heads.iter());
        self.show(name, module_name(RING_ID), &place, Shown { ring: Some(ring), ..Shown::default() });
        Ok(())
    }

    fn large_cells(&mut self, name: &[u8], cells: LargeCells, place: Place) -> Result<(), Fault> {
        let LargeCells { head, arrays, spilled } = cells;
        // Any cells can be those of a counting filter.
        let checked = if let CellsHead::Dleft(_) = head { head.filter(arrays, spilled).map(drop) } else { Ok(()) };
        match checked {
            Ok(()) => self.show_cells(name, &head, &place),
            Err(error) => self.lose(name, error.into(), &place)?,
        }
        Ok(())
    }

    fn profile(&mut self, record: &[u8]) {
        if let Some((prefix, Some(profile))) = profile_of(record)
            && self.profiles.len() < PROFILES
        {
            self.profiles.push((prefix.to_vec(), profile));
        }
    }

    fn foreign(&mut self, window: &[u8], at: usize, type_name: TypeName, place: Place) {
        let mut scratch = std::mem::take(&mut self.scratch);
        // The scan has decompressed the name before.
        if let Ok(name) = name_at(window, at, &mut scratch) {
            self.show(name, type_name, &place, Shown::default());
        }
        self.scratch = scratch;
    }

    fn large_foreign(&mut self, name: &[u8], type_name: TypeName, place: Place) {
        self.show(name, type_name, &place, Shown::default());
    }
}

fn name_at<'a>(window: &'a [u8], at: usize, scratch: &'a mut Vec<u8>) -> Result<&'a [u8], Fault> {
    Ok(RdbString::read(&mut Reader::new(&window[at..]))?.bytes(scratch)?)
}

/// Notes the names of keys that are not loaded.
#[derive(Default)]
pub(super) struct Names {
    pub(super) listed: Vec<(Option<u64>, Vec<u8>)>,
    pub(super) keys: u64,
    buffer: Vec<u8>,
}

impl Names {
    fn push(&mut self, db: Option<u64>, name: &[u8]) {
        self.keys += 1;
        if self.listed.len() < LISTED {
            self.listed.push((db, listed_name(name)));
        }
    }
}

impl Sink for Names {
    const KEEPS_BITS: bool = false;

    fn spare(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.buffer)
    }

    fn retire(&mut self, buffer: Vec<u8>, _start: u64) -> Result<(), Fault> {
        self.buffer = buffer;
        Ok(())
    }

    fn own(&mut self, window: &[u8], at: usize, _kind: u8, place: Place) -> Result<(), Fault> {
        let mut scratch = Vec::new();
        self.push(place.db, name_at(window, at, &mut scratch)?);
        Ok(())
    }

    fn large(&mut self, name: &[u8], _large: Large, place: Place) -> Result<(), Fault> {
        self.push(place.db, name);
        Ok(())
    }

    fn large_cells(&mut self, name: &[u8], _cells: LargeCells, place: Place) -> Result<(), Fault> {
        self.push(place.db, name);
        Ok(())
    }

    fn large_ring(&mut self, name: &[u8], _ring: LargeRing, place: Place) -> Result<(), Fault> {
        self.push(place.db, name);
        Ok(())
    }
}
