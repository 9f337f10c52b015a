//! `DLCBF.*`: d-left counting filters, from which items can be deleted, in about half the bits of `CBF.*`.

mod figures;
mod options;

use super::bloom::Bounds;
use super::deletable::{Family, Filter, GROUP, Loading, begin, rows};
use super::error::CommandError;
use super::options::random;
use super::rows::{CAPACITY, CAPACITY_OPTION, ERROR, ERROR_OPTION, HASH_KEY, ITEMS_AT_END, LIFE, NOCREATE, NONSCALING};
use super::table::{Argument, ArgumentKind, Command, Flags, Group};
use crate::codec::cells_value::CellsRef;
use crate::config::Settings as Directives;
use crate::filters::bits::AllocError;
use crate::filters::dleft::{CreateError, DleftRef, Inserted, Refused, Settings, SettingsError};
use crate::filters::item_hash::HashKey;
use crate::keyspace::effect::Effect;
use crate::keyspace::entry::{Entry, EntryRef, ValueMut, ValueRef};
use crate::keyspace::{Cell, Keyspace, dleft};

const EXPANSION: Argument = Argument::new(
    "growth",
    ArgumentKind::Block(&[
        Argument::new("expansion", ArgumentKind::Integer).token("EXPANSION"),
        Argument::new("final", ArgumentKind::Integer).token("FINAL").optional(),
    ]),
)
.optional();
const SUBTABLES: Argument = Argument::new("sub-tables", ArgumentKind::Integer).token("SUBTABLES").optional();
const CELLS: Argument = Argument::new("cells", ArgumentKind::Integer).token("CELLS").optional();
const COUNTER_BITS: Argument = Argument::new("bits", ArgumentKind::Integer).token("COUNTERBITS").optional();
const OVERFLOW: Argument = Argument::new(
    "overflow",
    ArgumentKind::OneOf(&[
        Argument::new("refuse", ArgumentKind::PureToken).token("REFUSE"),
        Argument::new("spill", ArgumentKind::PureToken).token("SPILL"),
    ]),
)
.token("OVERFLOW")
.optional();

/// The rows of this family.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "dlcbf.reserve",
        summary: "Creates an empty d-left counting filter.",
        arguments: &[
            Argument::KEY,
            ERROR,
            CAPACITY,
            EXPANSION,
            NONSCALING,
            SUBTABLES,
            CELLS,
            COUNTER_BITS,
            OVERFLOW,
            HASH_KEY,
            LIFE,
        ],
        ..rows::reserve::<Dleft>()
    },
    Command {
        name: "dlcbf.add",
        summary: "Counts an item in a d-left counting filter, which is created if there is none.",
        ..rows::add::<Dleft>()
    },
    Command {
        name: "dlcbf.madd",
        summary: "Counts items in a d-left counting filter, which is created if there is none.",
        ..rows::add_many::<Dleft>()
    },
    Command {
        name: "dlcbf.insert",
        summary: "Counts items in a d-left counting filter, which is created with these settings if there is none.",
        arguments: &[
            Argument::KEY,
            CAPACITY_OPTION,
            ERROR_OPTION,
            EXPANSION,
            NONSCALING,
            SUBTABLES,
            CELLS,
            COUNTER_BITS,
            OVERFLOW,
            HASH_KEY,
            LIFE,
            NOCREATE,
            ITEMS_AT_END,
        ],
        ..rows::insert::<Dleft>()
    },
    Command {
        name: "dlcbf.exists",
        summary: "Tells whether an item may be in a d-left counting filter.",
        ..rows::exists::<Dleft>()
    },
    Command {
        name: "dlcbf.mexists",
        summary: "Tells of each item whether it may be in a d-left counting filter.",
        ..rows::exists_many::<Dleft>()
    },
    Command {
        name: "dlcbf.del",
        summary: "Takes one occurrence of an item out of a d-left counting filter.",
        ..rows::remove::<Dleft>()
    },
    Command {
        name: "dlcbf.mdel",
        summary: "Takes one occurrence of each item out of a d-left counting filter.",
        ..rows::remove_many::<Dleft>()
    },
    Command {
        name: "dlcbf.count",
        summary: "Tells how often an item is in a d-left counting filter, or more.",
        ..rows::count::<Dleft>()
    },
    Command {
        name: "dlcbf.mcount",
        summary: "Tells of each item how often it is in a d-left counting filter, or more.",
        ..rows::count_many::<Dleft>()
    },
    Command {
        name: "dlcbf.card",
        summary: "Gives the number of items in a d-left counting filter, each as often as it is counted.",
        ..rows::card::<Dleft>()
    },
    Command {
        name: "dlcbf.info",
        flags: Flags::READONLY.with(Flags::FAST),
        summary: "Gives the figures of a d-left counting filter.",
        complexity: "O(n), n buckets of a small filter or sets of a large one",
        handler: figures::info,
        ..rows::reads::<Dleft>()
    },
    Command {
        name: "dlcbf.stats",
        summary: "Describes a d-left counting filter.",
        complexity: "O(n), n sets of sub-tables",
        handler: figures::stats,
        ..rows::reads::<Dleft>()
    },
    Command {
        name: "dlcbf.scandump",
        summary: "Gives the next piece of a d-left counting filter's dump.",
        ..rows::scan_dump::<Dleft>()
    },
    Command {
        name: "dlcbf.loadchunk",
        summary: "Restores a d-left counting filter from a piece of a dump.",
        ..rows::load_chunk::<Dleft>()
    },
];

/// The family.
pub(super) struct Dleft;

impl Family for Dleft {
    const GROUP: Group = Group::Dleft;
    const ONE_COST: &'static str = "O(n), n sets of sub-tables";
    const MANY_COST: &'static str = "O(m * n), m items, n sets of sub-tables";
    type Settings = Settings;
    type Options = options::Options;
    type Filter<'a> = DleftRef<'a>;

    fn filter(value: ValueRef<'_>) -> Option<DleftRef<'_>> {
        if let ValueRef::Dleft(filter) = value { Some(filter) } else { None }
    }

    fn no_filter(value: &ValueRef<'_>) -> CommandError {
        match value {
            ValueRef::HalfDleft(half) => CommandError::being_loaded(half),
            _ => CommandError::WrongType,
        }
    }

    fn most_capacity(directives: &Directives) -> u64 {
        directives.dlcbf_max_capacity()
    }

    fn by_settings(directives: &Directives) -> Settings {
        Settings {
            capacity: directives.dlcbf_initial_size().min(directives.dlcbf_max_capacity()),
            error: directives.dlcbf_error_rate(),
            growth: None,
            subtables: options::DEFAULT_SUBTABLES,
            cells: options::DEFAULT_CELLS,
            counter_bits: options::DEFAULT_COUNTER_BITS,
            spill: false,
            key: None,
        }
    }

    fn sizes(settings: &Settings) -> (u64, f64) {
        (settings.capacity, settings.error)
    }

    fn set_sizes(settings: &mut Settings, capacity: u64, error: f64) {
        (settings.capacity, settings.error) = (capacity, error);
    }

    fn set_key(settings: &mut Settings, key: HashKey) {
        settings.key = Some(key);
    }

    fn create(
        settings: &Settings,
        life: Option<u64>,
        cell: &mut Cell<'_>,
        bounds: Bounds<'_>,
        _: &Keyspace,
    ) -> Result<(), CommandError> {
        let (settings, seed) = (*settings, u64::from_le_bytes(random()?));
        bounds.check_new(settings.geometry().map_err(CreateError::from)?.bytes())?;
        cell.insert(dleft::empty_filter(cell.name(), life, settings, seed)?);
        cell.record(&Effect::DleftCreated { settings, seed, life });
        Ok(())
    }

    fn insert_many(entry: &mut Entry, hashes: &[u64], mut tell: impl FnMut(Result<bool, CommandError>)) {
        let ValueMut::Dleft(mut filter) = entry.value_mut() else { return };
        let mut answers = [Ok(Inserted::New); GROUP];
        let answers = &mut answers[..hashes.len()];
        let done = filter.insert_many(hashes, answers);
        answers[..done].iter().for_each(|answer| tell(answer.map(is_new).map_err(CommandError::from)));
    }

    fn insert(entry: &mut Entry, hash: u64, bounds: Bounds<'_>) -> Result<bool, CommandError> {
        dleft::insert_within(entry, hash, |total, more| bounds.check(total, more, total - more)).map(is_new)
    }

    fn remove_many(entry: &mut Entry, hashes: &[u64], mut tell: impl FnMut(Result<bool, CommandError>)) {
        let ValueMut::Dleft(mut filter) = entry.value_mut() else { return };
        hashes.iter().for_each(|hash| filter.as_ref().prefetch(*hash));
        hashes.iter().for_each(|hash| tell(filter.remove(*hash).map_err(CommandError::from)));
    }

    fn cells(value: ValueRef<'_>) -> Option<CellsRef<'_>> {
        Self::filter(value).map(CellsRef::Dleft)
    }

    fn begin_load(cell: &mut Cell<'_>, cursor: u64, header: &[u8], bounds: Bounds<'_>) -> Result<(), CommandError> {
        cell.insert(dleft::half_loaded(cell.name(), None, begin(cursor, header, bounds)?)?);
        cell.record(&Effect::DleftHeader { cursor, header });
        Ok(())
    }

    fn loading(entry: &mut Entry) -> Option<&mut dyn Loading> {
        if let ValueMut::HalfDleft(half) = entry.value_mut() { Some(&mut half.load) } else { None }
    }

    fn loaded(entry: EntryRef<'_>) -> Option<CellsRef<'_>> {
        dleft::loaded(entry).map(|filter| CellsRef::Dleft(DleftRef::Large(filter)))
    }

    fn end_load(entry: &mut Entry) -> Result<(), AllocError> {
        dleft::end_load(entry)
    }

    fn note_version(_: EntryRef<'_>, _: &Keyspace, _: u64) {}

    fn added<'a>(items: &'a [&'a [u8]]) -> Effect<'a> {
        Effect::DleftAdded { items }
    }

    fn removed<'a>(items: &'a [&'a [u8]]) -> Effect<'a> {
        Effect::DleftRemoved { items }
    }
}

fn is_new(inserted: Inserted) -> bool {
    inserted == Inserted::New
}

impl From<Refused> for CommandError {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Memory(error) => error.into(),
            other => Self::Text(format!("ERR {other}").into()),
        }
    }
}

impl From<CreateError> for CommandError {
    fn from(error: CreateError) -> Self {
        match error {
            CreateError::Memory(error) => error.into(),
            CreateError::Settings(SettingsError::TooLarge) => Self::TooLarge,
            CreateError::Settings(SettingsError::Range) => Self::CannotCreate,
        }
    }
}

impl Filter for DleftRef<'_> {
    fn item_ns(self) -> usize {
        30 + 40 * self.sets().count()
    }

    fn hash(self, item: &[u8]) -> u64 {
        DleftRef::hash(self, item)
    }

    fn contains(self, hash: u64) -> bool {
        DleftRef::contains(self, hash)
    }

    fn count(self, hash: u64) -> u64 {
        DleftRef::count(self, hash)
    }

    fn contains_many(self, hashes: &[u64], out: &mut [bool]) {
        DleftRef::contains_many(self, hashes, out);
    }

    fn count_many(self, hashes: &[u64], out: &mut [u64]) {
        DleftRef::count_many(self, hashes, out);
    }

    fn items(self) -> u64 {
        DleftRef::items(self)
    }
}
