//! `CHAIN.*`: rings of Bloom arrays that forget the oldest items, by count or by clock.

mod create;
mod dump;
mod figures;
mod items;
mod options;
mod profile;
mod turns;

use super::error::CommandError;
use super::form::help;
use crate::filters::ring::Ring;
use crate::keyspace::entry::{EntryRef, ValueRef};

use super::rows::{
    ACCESS, CAPACITY, CAPACITY_OPTION, DUMPED, ERROR, ERROR_OPTION, EXPORTED, HASH_KEY, INSERT, ITEMS_AT_END, LIFE,
    LOADED, MERGE, MERGED, NOCREATE, READ, UPDATE, WRITE,
};
use super::table::{Argument, ArgumentKind, Command, Flags, Group, KeySpec};

const ACCESS_INSERT: &[KeySpec] = &[KeySpec { first: 1, last: 1, step: 1, flags: &["RW", "access", "insert"] }];
const LINKS: Argument = Argument::new("links", ArgumentKind::Integer).token("LINKS");
const AT: Argument = Argument::new("unix-milliseconds", ArgumentKind::Integer).token("AT").optional();

const WINDOW: Argument = Argument::new(
    "window",
    ArgumentKind::Block(&[
        Argument::new(
            "span",
            ArgumentKind::OneOf(&[
                Argument::new("seconds", ArgumentKind::Integer).token("WINDOW"),
                Argument::new("milliseconds", ArgumentKind::Integer).token("PWINDOW"),
            ]),
        ),
        Argument::word("bounded", "BOUNDED"),
        Argument::new(
            "clock",
            ArgumentKind::OneOf(&[
                Argument::new("server", ArgumentKind::PureToken).token("SERVER"),
                Argument::new("event", ArgumentKind::PureToken).token("EVENT"),
            ]),
        )
        .token("CLOCK")
        .optional(),
    ]),
)
.optional();

const DUAL: Argument = Argument::new(
    "two-arrays",
    ArgumentKind::Block(&[
        Argument::new("dual", ArgumentKind::PureToken).token("DUAL"),
        Argument::new("threshold", ArgumentKind::Double).token("THRESHOLD").optional(),
    ]),
)
.optional();

const IDLE: Argument = Argument::new("seconds", ArgumentKind::Integer).token("IDLE").optional();

const LINK_ERROR: Argument = Argument::word("linkerror", "LINKERROR");

const ROW: Command = Command { group: Group::Chain, ..Command::DEFAULT };

/// The rows of this family.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "chain.reserve",
        arity: -4,
        flags: WRITE.with(Flags::FAST),
        keys: INSERT,
        summary: "Creates an empty ring.",
        arguments: &[Argument::KEY, ERROR, CAPACITY, LINKS.optional(), LINK_ERROR, WINDOW, DUAL, IDLE, HASH_KEY, LIFE],
        handler: create::reserve,
        ..ROW
    },
    Command {
        name: "chain.add",
        arity: -3,
        flags: WRITE.with(Flags::FAST),
        keys: INSERT,
        summary: "Adds an item to a ring, which is created if there is none.",
        complexity: "O(k * n), k hashes, n links",
        arguments: &[Argument::KEY, Argument::ITEM, AT],
        handler: items::add,
        ..ROW
    },
    Command {
        name: "chain.madd",
        arity: -3,
        flags: WRITE,
        keys: INSERT,
        summary: "Adds items to a ring, which is created if there is none.",
        complexity: "O(m * k * n), m items, k hashes, n links",
        arguments: &[Argument::KEY, Argument::ITEMS],
        handler: items::add_many,
        ..ROW
    },
    Command {
        name: "chain.insert",
        arity: -4,
        flags: WRITE,
        keys: INSERT,
        summary: "Adds items to a ring, which is created with these settings if there is none.",
        complexity: "O(m * k * n), m items, k hashes, n links",
        arguments: &[
            Argument::KEY,
            CAPACITY_OPTION,
            ERROR_OPTION,
            LINKS.optional(),
            LINK_ERROR,
            WINDOW,
            DUAL,
            IDLE,
            HASH_KEY,
            LIFE,
            NOCREATE,
            AT,
            ITEMS_AT_END,
        ],
        handler: items::insert,
        ..ROW
    },
    Command {
        name: "chain.exists",
        arity: 3,
        flags: READ.with(Flags::FAST),
        keys: ACCESS,
        summary: "Tells whether an item may have been added to a ring and not forgotten.",
        complexity: "O(k * n), k hashes, n links",
        arguments: &[Argument::KEY, Argument::ITEM],
        handler: items::exists,
        ..ROW
    },
    Command {
        name: "chain.mexists",
        arity: -3,
        flags: READ,
        keys: ACCESS,
        summary: "Tells of each item whether it may have been added to a ring and not forgotten.",
        complexity: "O(m * k * n), m items, k hashes, n links",
        arguments: &[Argument::KEY, Argument::ITEMS],
        handler: items::exists_many,
        ..ROW
    },
    Command {
        name: "chain.unseen",
        arity: -3,
        flags: READ,
        keys: ACCESS,
        summary: "Gives those of the items that a ring does not know, in their order.",
        complexity: "O(m * k * n), m items, k hashes, n links",
        arguments: &[Argument::KEY, Argument::ITEMS],
        handler: items::unseen,
        ..ROW
    },
    Command {
        name: "chain.unseenadd",
        arity: -4,
        flags: WRITE,
        keys: ACCESS_INSERT,
        summary: "Gives the first of the items that a ring does not know, and adds them in the same step.",
        complexity: "O(m * k * n), m items, k hashes, n links",
        arguments: &[
            Argument::KEY,
            CAPACITY_OPTION,
            ERROR_OPTION,
            LINKS.optional(),
            LINK_ERROR,
            WINDOW,
            DUAL,
            IDLE,
            HASH_KEY,
            LIFE,
            NOCREATE,
            AT,
            Argument::new("count", ArgumentKind::Integer).token("COUNT").optional(),
            ITEMS_AT_END,
        ],
        handler: items::unseen_add,
        ..ROW
    },
    Command {
        name: "chain.card",
        arity: 2,
        flags: READ.with(Flags::FAST),
        keys: ACCESS,
        summary: "Gives the number of adds that were counted in the links of a ring that are alive now.",
        complexity: "O(n), n links",
        arguments: &[Argument::KEY],
        handler: figures::card,
        ..ROW
    },
    Command {
        name: "chain.extend",
        arity: 4,
        flags: WRITE,
        keys: UPDATE,
        summary: "Gives a ring more links, so that it remembers more; nothing is forgotten.",
        complexity: "O(n), n links",
        arguments: &[Argument::KEY, LINKS],
        handler: turns::extend,
        ..ROW
    },
    Command {
        name: "chain.shrink",
        arity: 4,
        flags: Flags::WRITE,
        keys: UPDATE,
        summary: "Gives a ring fewer links; the oldest go.",
        complexity: "O(n), n links",
        arguments: &[Argument::KEY, LINKS],
        handler: turns::shrink,
        ..ROW
    },
    Command {
        name: "chain.rotate",
        arity: 2,
        flags: Flags::WRITE,
        keys: UPDATE,
        summary: "Begins a new link of a ring by count, or of one of two arrays, now; a window turns by its clock.",
        complexity: "O(n), n bytes of a small ring",
        arguments: &[Argument::KEY],
        handler: turns::rotate,
        ..ROW
    },
    Command {
        name: "chain.clear",
        arity: 2,
        flags: Flags::WRITE,
        keys: UPDATE,
        summary: "Has a ring forget everything; its settings and life stay.",
        complexity: "O(n), n links",
        arguments: &[Argument::KEY],
        handler: turns::clear,
        ..ROW
    },
    Command {
        name: "chain.merge",
        arity: -3,
        flags: WRITE.with(Flags::MOVABLE_KEYS).with(Flags::COPIES_VALUES),
        keys: MERGE,
        summary: "Takes what other rings hold into one, which is made if there is none.",
        complexity: "O(n), n bytes of all rings",
        arguments: MERGED,
        handler: turns::merge,
        ..ROW
    },
    Command {
        name: "chain.export",
        arity: -2,
        flags: READ.with(Flags::COPIES_VALUES),
        keys: ACCESS,
        summary: "Gives a ring as bytes that a client answers from by itself.",
        complexity: "O(n), n bytes of the ring",
        arguments: EXPORTED,
        handler: dump::export,
        ..ROW
    },
    Command {
        name: "chain.info",
        arity: 2,
        flags: READ.with(Flags::FAST),
        keys: ACCESS,
        summary: "Gives the figures of a ring.",
        complexity: "O(n), n links",
        arguments: &[Argument::KEY],
        handler: figures::info,
        ..ROW
    },
    Command {
        name: "chain.stats",
        arity: 2,
        flags: READ.with(Flags::COPIES_VALUES),
        keys: ACCESS,
        summary: "Describes a ring and each of its links.",
        complexity: "O(n), n links",
        arguments: &[Argument::KEY],
        handler: figures::stats,
        ..ROW
    },
    Command {
        name: "chain.scandump",
        arity: 3,
        flags: READ.with(Flags::COPIES_VALUES),
        keys: ACCESS,
        summary: "Gives the next piece of a ring's dump.",
        complexity: "O(n), n bytes of the piece",
        arguments: DUMPED,
        handler: dump::scan_dump,
        ..ROW
    },
    Command {
        name: "chain.loadchunk",
        arity: 4,
        flags: WRITE.with(Flags::COPIES_VALUES),
        keys: INSERT,
        summary: "Restores a ring from a piece of a dump.",
        complexity: "O(n), n bytes of the piece",
        arguments: LOADED,
        handler: dump::load_chunk,
        ..ROW
    },
    Command {
        name: "chain.profile",
        arity: -2,
        summary: "Settings for rings that a command makes by itself.",
        complexity: "Depends on the subcommand",
        arguments: &[Argument::new("subcommand", ArgumentKind::String).multiple()],
        subcommands: PROFILE,
        ..ROW
    },
];

/// A value that is no ring, or not yet.
fn not_a_ring(value: &ValueRef<'_>) -> CommandError {
    match value {
        ValueRef::HalfRing(half) => CommandError::being_loaded(half),
        _ => CommandError::WrongType,
    }
}

/// The ring of a key, none if there is no key.
///
/// # Errors
/// Another kind of value; a ring that is being loaded; no memory.
fn ring_of(entry: Option<EntryRef<'_>>) -> Result<Option<Ring>, CommandError> {
    match entry.map(EntryRef::value) {
        None => Ok(None),
        Some(ValueRef::Ring(ring)) => Ok(Some(ring.to_ring()?)),
        Some(other) => Err(not_a_ring(&other)),
    }
}

const PREFIX: Argument = Argument::new("prefix", ArgumentKind::String);

const PROFILE: &[Command] = &[
    Command {
        name: "set",
        arity: -3,
        flags: Flags::WRITE.with(Flags::ADMIN),
        summary: "Sets what keys get whose names begin with the prefix, when a command makes them by itself; an empty prefix means all keys.",
        arguments: &[PREFIX, CAPACITY_OPTION, ERROR_OPTION, LINKS.optional(), LINK_ERROR, WINDOW, DUAL, IDLE, HASH_KEY],
        handler: profile::set,
        ..ROW
    },
    Command {
        name: "get",
        arity: 3,
        flags: Flags::READONLY.with(Flags::ADMIN),
        summary: "Shows the settings of a prefix.",
        arguments: &[PREFIX],
        handler: profile::get,
        ..ROW
    },
    Command {
        name: "del",
        arity: 3,
        flags: Flags::WRITE.with(Flags::ADMIN),
        summary: "Deletes the settings of a prefix; keys that are there stay as they are.",
        arguments: &[PREFIX],
        handler: profile::delete,
        ..ROW
    },
    Command {
        name: "list",
        arity: 2,
        flags: Flags::READONLY.with(Flags::ADMIN),
        summary: "Shows all prefixes with their settings.",
        complexity: "O(n), n prefixes",
        handler: profile::list,
        ..ROW
    },
    Command {
        name: "help",
        arity: 2,
        flags: READ,
        summary: "Lists the subcommands.",
        handler: |_, _| Ok(help("chain.profile")),
        ..ROW
    },
];
