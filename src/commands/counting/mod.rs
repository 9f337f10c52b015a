//! `CBF.*`: counting Bloom filters, from which items can be deleted, and which tell how often one was added.

mod decay;
mod export;
mod figures;
mod merge;
mod options;

use smallvec::SmallVec;

use super::bloom::Bounds;
use super::deletable::{Family, Filter, GROUP, Loading, begin, rows};
use super::error::CommandError;
use super::rows::{
    CAPACITY, CAPACITY_OPTION, ERROR, ERROR_OPTION, EXPORTED, HASH_KEY, ITEMS_AT_END, LIFE, MERGE, MERGED, NOCREATE,
    UPDATE, WRITE,
};
use super::table::{Argument, ArgumentKind, Command, Flags, Group};
use crate::codec::cells_value::CellsRef;
use crate::config::Settings as Directives;
use crate::filters::bits::AllocError;
use crate::filters::counting::{CounterBits, CountingRef, Refused, Settings};
use crate::filters::item_hash::HashKey;
use crate::keyspace::effect::Effect;
use crate::keyspace::entry::{Entry, EntryRef, ValueMut, ValueRef};
use crate::keyspace::{Cell, Keyspace, counting};

const COUNTER_BITS: Argument = Argument::new("bits", ArgumentKind::Integer).token("COUNTERBITS").optional();
const STRICT: Argument = Argument::word("strict", "STRICT");

/// The rows of this family.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "cbf.reserve",
        summary: "Creates an empty counting filter.",
        arguments: &[Argument::KEY, ERROR, CAPACITY, COUNTER_BITS, STRICT, HASH_KEY, LIFE],
        ..rows::reserve::<Counting>()
    },
    Command {
        name: "cbf.add",
        summary: "Counts an item in a counting filter, which is created if there is none.",
        ..rows::add::<Counting>()
    },
    Command {
        name: "cbf.madd",
        summary: "Counts items in a counting filter, which is created if there is none.",
        ..rows::add_many::<Counting>()
    },
    Command {
        name: "cbf.insert",
        summary: "Counts items in a counting filter, which is created with these settings if there is none.",
        arguments: &[
            Argument::KEY,
            CAPACITY_OPTION,
            ERROR_OPTION,
            COUNTER_BITS,
            STRICT,
            HASH_KEY,
            LIFE,
            NOCREATE,
            ITEMS_AT_END,
        ],
        ..rows::insert::<Counting>()
    },
    Command {
        name: "cbf.exists",
        summary: "Tells whether an item may be in a counting filter.",
        ..rows::exists::<Counting>()
    },
    Command {
        name: "cbf.mexists",
        summary: "Tells of each item whether it may be in a counting filter.",
        ..rows::exists_many::<Counting>()
    },
    Command {
        name: "cbf.del",
        summary: "Takes one occurrence of an item out of a counting filter.",
        ..rows::remove::<Counting>()
    },
    Command {
        name: "cbf.mdel",
        summary: "Takes one occurrence of each item out of a counting filter.",
        ..rows::remove_many::<Counting>()
    },
    Command {
        name: "cbf.count",
        summary: "Tells how often an item is in a counting filter, or more.",
        ..rows::count::<Counting>()
    },
    Command {
        name: "cbf.mcount",
        summary: "Tells of each item how often it is in a counting filter, or more.",
        ..rows::count_many::<Counting>()
    },
    Command {
        name: "cbf.card",
        summary: "Gives the number of items in a counting filter, each as often as it is counted.",
        ..rows::card::<Counting>()
    },
    Command {
        name: "cbf.decay",
        flags: Flags::WRITE,
        keys: UPDATE,
        summary: "Halves all counters of a counting filter, which forgets rare items.",
        complexity: "O(n), n bytes of the filter",
        handler: decay::decay,
        ..rows::reads::<Counting>()
    },
    Command {
        name: "cbf.merge",
        arity: -3,
        flags: WRITE.with(Flags::MOVABLE_KEYS).with(Flags::COPIES_VALUES),
        keys: MERGE,
        summary: "Adds the counters of other counting filters to those of one.",
        complexity: "O(n), n bytes of all filters",
        arguments: MERGED,
        handler: merge::merge,
        ..rows::reads::<Counting>()
    },
    Command {
        name: "cbf.export",
        arity: -2,
        flags: Flags::READONLY.with(Flags::COPIES_VALUES),
        summary: "Gives a counting filter as the bytes of a Bloom filter that a client answers from by itself.",
        complexity: "O(n), n bytes of the filter",
        arguments: EXPORTED,
        handler: export::export,
        ..rows::reads::<Counting>()
    },
    Command {
        name: "cbf.info",
        flags: Flags::READONLY.with(Flags::FAST),
        summary: "Gives the figures of a counting filter.",
        handler: figures::info,
        ..rows::reads::<Counting>()
    },
    Command {
        name: "cbf.stats",
        summary: "Describes a counting filter.",
        handler: figures::stats,
        ..rows::reads::<Counting>()
    },
    Command {
        name: "cbf.scandump",
        summary: "Gives the next piece of a counting filter's dump.",
        ..rows::scan_dump::<Counting>()
    },
    Command {
        name: "cbf.loadchunk",
        summary: "Restores a counting filter from a piece of a dump.",
        ..rows::load_chunk::<Counting>()
    },
];

/// The family.
pub(super) struct Counting;

impl Family for Counting {
    const GROUP: Group = Group::Counting;
    const ONE_COST: &'static str = "O(k), k hashes";
    const MANY_COST: &'static str = "O(m * k), m items, k hashes";
    type Settings = Settings;
    type Options = options::Options;
    type Filter<'a> = CountingRef<'a>;

    fn filter(value: ValueRef<'_>) -> Option<CountingRef<'_>> {
        if let ValueRef::Counting(filter) = value { Some(filter) } else { None }
    }

    fn no_filter(value: &ValueRef<'_>) -> CommandError {
        match value {
            ValueRef::HalfCounting(half) => CommandError::being_loaded(half),
            _ => CommandError::WrongType,
        }
    }

    fn most_capacity(directives: &Directives) -> u64 {
        directives.cbf_max_capacity()
    }

    fn by_settings(directives: &Directives) -> Settings {
        Settings {
            capacity: directives.cbf_initial_size().min(directives.cbf_max_capacity()),
            error: directives.cbf_error_rate(),
            counter_bits: CounterBits::Four,
            strict: false,
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
        keyspace: &Keyspace,
    ) -> Result<(), CommandError> {
        let (settings, shape, version) = (*settings, settings.shape()?, keyspace.versions().begin());
        bounds.check_new(shape.bytes())?;
        cell.insert(counting::empty_filter(cell.name(), life, settings, shape, version)?);
        cell.record(&Effect::CountingCreated { settings, shape, version, life });
        Ok(())
    }

    fn insert_many(entry: &mut Entry, hashes: &[u64], mut tell: impl FnMut(Result<bool, CommandError>)) {
        let ValueMut::Counting(mut filter) = entry.value_mut() else { return };
        let mut answers = [Ok(false); GROUP];
        let answers = &mut answers[..hashes.len()];
        let done = filter.insert_many(hashes, answers);
        answers[..done].iter().for_each(|answer| tell(answer.map_err(CommandError::from)));
    }

    fn insert(entry: &mut Entry, hash: u64, _: Bounds<'_>) -> Result<bool, CommandError> {
        counting::insert(entry, hash)
    }

    fn remove_many(entry: &mut Entry, hashes: &[u64], mut tell: impl FnMut(Result<bool, CommandError>)) {
        let ValueMut::Counting(mut filter) = entry.value_mut() else { return };
        let mut removed: SmallVec<[bool; GROUP]> = SmallVec::from_elem(false, hashes.len());
        filter.remove_many(hashes, &mut removed);
        removed.iter().for_each(|removed| tell(Ok(*removed)));
    }

    fn cells(value: ValueRef<'_>) -> Option<CellsRef<'_>> {
        Self::filter(value).map(CellsRef::Counting)
    }

    fn begin_load(cell: &mut Cell<'_>, cursor: u64, header: &[u8], bounds: Bounds<'_>) -> Result<(), CommandError> {
        cell.insert(counting::half_loaded(cell.name(), None, begin(cursor, header, bounds)?)?);
        cell.record(&Effect::CountingHeader { cursor, header });
        Ok(())
    }

    fn loading(entry: &mut Entry) -> Option<&mut dyn Loading> {
        if let ValueMut::HalfCounting(half) = entry.value_mut() { Some(&mut half.load) } else { None }
    }

    fn loaded(entry: EntryRef<'_>) -> Option<CellsRef<'_>> {
        counting::loaded(entry).map(|filter| CellsRef::Counting(CountingRef::Large(filter)))
    }

    fn end_load(entry: &mut Entry) -> Result<(), AllocError> {
        counting::end_load(entry)
    }

    fn note_version(entry: EntryRef<'_>, keyspace: &Keyspace, clock: u64) {
        if let ValueRef::Counting(filter) = entry.value() {
            keyspace.versions().note(filter.figures().version, clock);
        }
    }

    fn added<'a>(items: &'a [&'a [u8]]) -> Effect<'a> {
        Effect::CountingAdded { items }
    }

    fn removed<'a>(items: &'a [&'a [u8]]) -> Effect<'a> {
        Effect::CountingRemoved { items }
    }
}

impl From<Refused> for CommandError {
    fn from(refused: Refused) -> Self {
        Self::Text(format!("ERR {refused}").into())
    }
}

impl Filter for CountingRef<'_> {
    fn item_ns(self) -> usize {
        40 + 5 * self.shape().hashes as usize
    }

    fn hash(self, item: &[u8]) -> u64 {
        CountingRef::hash(self, item)
    }

    fn contains(self, hash: u64) -> bool {
        CountingRef::contains(self, hash)
    }

    fn count(self, hash: u64) -> u64 {
        CountingRef::count(self, hash)
    }

    fn contains_many(self, hashes: &[u64], out: &mut [bool]) {
        CountingRef::contains_many(self, hashes, out);
    }

    fn count_many(self, hashes: &[u64], out: &mut [u64]) {
        CountingRef::count_many(self, hashes, out);
    }

    fn items(self) -> u64 {
        self.figures().items
    }
}
