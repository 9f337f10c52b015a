//! `BF.*`: scalable Bloom filters, RedisBloom's commands.
//!
//! Where releases of RedisBloom differ these follow version 8. Intended differences: only documented words are options, a
//! capacity is bounded by memory instead of 2^30, errors about memory say how many bytes were asked for, and loaded chunks
//! are or-ed in.

mod create;
mod dump;
mod figures;
mod items;

pub(super) use create::Bounds;

use super::rows::{
    ACCESS, CAPACITY, CAPACITY_OPTION, ERROR, ERROR_OPTION, INSERT, ITEMS_AT_END, LIFE, NOCREATE, NONSCALING, READ,
    WRITE,
};
use super::table::{Argument, ArgumentKind, Command, Flags, Group};

const EXPANSION: Argument = Argument::new("expansion", ArgumentKind::Integer).token("EXPANSION").optional();
const ROW: Command = Command { group: Group::Bloom, ..Command::DEFAULT };

/// The rows of this family.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "bf.reserve",
        arity: -4,
        flags: WRITE.with(Flags::FAST),
        keys: INSERT,
        summary: "Creates an empty Bloom filter.",
        complexity: "O(1)",
        since: "1.0.0",
        arguments: &[Argument::KEY, ERROR, CAPACITY, EXPANSION, NONSCALING, LIFE],
        handler: create::reserve,
        ..ROW
    },
    Command {
        name: "bf.add",
        arity: 3,
        flags: WRITE.with(Flags::FAST),
        keys: INSERT,
        summary: "Adds an item to a Bloom filter, which is created if there is none.",
        complexity: "O(k * n), k hashes, n sub-filters",
        since: "1.0.0",
        arguments: &[Argument::KEY, Argument::ITEM],
        handler: items::add,
        run: Some(items::run_add),
        ..ROW
    },
    Command {
        name: "bf.madd",
        arity: -3,
        flags: WRITE,
        keys: INSERT,
        summary: "Adds items to a Bloom filter, which is created if there is none.",
        complexity: "O(m * k * n), m items, k hashes, n sub-filters",
        since: "1.0.0",
        arguments: &[Argument::KEY, Argument::ITEMS],
        handler: items::add_many,
        ..ROW
    },
    Command {
        name: "bf.insert",
        arity: -4,
        flags: WRITE,
        keys: INSERT,
        summary: "Adds items to a Bloom filter, which is created with these settings if there is none.",
        complexity: "O(m * k * n), m items, k hashes, n sub-filters",
        since: "1.0.0",
        arguments: &[Argument::KEY, CAPACITY_OPTION, ERROR_OPTION, EXPANSION, NOCREATE, NONSCALING, LIFE, ITEMS_AT_END],
        handler: items::insert,
        ..ROW
    },
    Command {
        name: "bf.exists",
        arity: 3,
        flags: READ.with(Flags::FAST),
        keys: ACCESS,
        summary: "Tells whether an item may be in a Bloom filter.",
        complexity: "O(k * n), k hashes, n sub-filters",
        since: "1.0.0",
        arguments: &[Argument::KEY, Argument::ITEM],
        handler: items::exists,
        run: Some(items::run_exists),
        ..ROW
    },
    Command {
        name: "bf.mexists",
        arity: -3,
        flags: READ,
        keys: ACCESS,
        summary: "Tells of each item whether it may be in a Bloom filter.",
        complexity: "O(m * k * n), m items, k hashes, n sub-filters",
        since: "1.0.0",
        arguments: &[Argument::KEY, Argument::ITEMS],
        handler: items::exists_many,
        ..ROW
    },
    Command {
        name: "bf.card",
        arity: 2,
        flags: READ.with(Flags::FAST),
        keys: ACCESS,
        summary: "Gives the number of items that were counted as new in a Bloom filter.",
        complexity: "O(n), n sub-filters",
        since: "2.4.4",
        arguments: &[Argument::KEY],
        handler: figures::card,
        ..ROW
    },
    Command {
        name: "bf.info",
        arity: -2,
        flags: READ.with(Flags::FAST),
        keys: ACCESS,
        summary: "Gives the figures of a Bloom filter, or one of them.",
        complexity: "O(n), n sub-filters",
        since: "1.0.0",
        arguments: &[
            Argument::KEY,
            Argument::new(
                "field",
                ArgumentKind::OneOf(&[
                    Argument::new("capacity", ArgumentKind::PureToken).token("CAPACITY"),
                    Argument::new("size", ArgumentKind::PureToken).token("SIZE"),
                    Argument::new("filters", ArgumentKind::PureToken).token("FILTERS"),
                    Argument::new("items", ArgumentKind::PureToken).token("ITEMS"),
                    Argument::new("expansion", ArgumentKind::PureToken).token("EXPANSION"),
                ]),
            )
            .optional(),
        ],
        handler: figures::info,
        ..ROW
    },
    Command {
        name: "bf.scandump",
        arity: 3,
        flags: READ.with(Flags::COPIES_VALUES),
        keys: ACCESS,
        summary: "Gives the next piece of a Bloom filter's dump.",
        complexity: "O(n), n bytes of the piece",
        since: "1.0.0",
        arguments: &[Argument::KEY, Argument::new("iterator", ArgumentKind::Integer)],
        handler: dump::scan_dump,
        ..ROW
    },
    Command {
        name: "bf.loadchunk",
        arity: 4,
        flags: WRITE,
        keys: INSERT,
        summary: "Restores a Bloom filter from a piece of a dump.",
        complexity: "O(n), n bytes of the piece",
        since: "1.0.0",
        arguments: &[
            Argument::KEY,
            Argument::new("iterator", ArgumentKind::Integer),
            Argument::new("data", ArgumentKind::String),
        ],
        handler: dump::load_chunk,
        ..ROW
    },
    Command {
        name: "bf.debug",
        arity: 2,
        flags: READ.with(Flags::FAST),
        keys: ACCESS,
        summary: "Describes the sub-filters of a Bloom filter.",
        complexity: "O(n), n sub-filters",
        since: "1.0.0",
        arguments: &[Argument::KEY],
        handler: figures::debug,
        ..ROW
    },
];
