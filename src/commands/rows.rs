//! What the rows of several families share: where keys stand, and arguments.

use super::table::{Argument, ArgumentKind, Flags, KeySpec};

/// Reads the key.
pub(super) const ACCESS: &[KeySpec] = &[KeySpec { first: 1, last: 1, step: 1, flags: &["RO", "access"] }];
/// Adds to the key.
pub(super) const INSERT: &[KeySpec] = &[KeySpec { first: 1, last: 1, step: 1, flags: &["RW", "insert"] }];
/// Takes from the key.
pub(super) const DELETE: &[KeySpec] = &[KeySpec { first: 1, last: 1, step: 1, flags: &["RW", "delete"] }];
/// Changes the key.
pub(super) const UPDATE: &[KeySpec] = &[KeySpec { first: 1, last: 1, step: 1, flags: &["RW", "update"] }];
/// Takes what other keys hold into the first.
pub(super) const MERGE: &[KeySpec] = &[
    KeySpec { first: 1, last: 1, step: 1, flags: &["RW", "access", "insert"] },
    KeySpec { first: 2, last: -1, step: 1, flags: &["RO", "access"] },
];

/// Changes keys and may take memory for it.
pub(super) const WRITE: Flags = Flags::WRITE.with(Flags::DENYOOM);
/// Reads keys.
pub(super) const READ: Flags = Flags::READONLY;

/// An error rate.
pub(super) const ERROR: Argument = Argument::new("error", ArgumentKind::Double);
/// A number of items.
pub(super) const CAPACITY: Argument = Argument::new("capacity", ArgumentKind::Integer);
/// `[CAPACITY n]`
pub(super) const CAPACITY_OPTION: Argument = CAPACITY.token("CAPACITY").optional();
/// `[ERROR r]`
pub(super) const ERROR_OPTION: Argument = ERROR.token("ERROR").optional();
/// `[NOCREATE]`
pub(super) const NOCREATE: Argument = Argument::word("nocreate", "NOCREATE");
/// `[NONSCALING]`
pub(super) const NONSCALING: Argument = Argument::word("nonscaling", "NONSCALING");
/// `ITEMS item …`
pub(super) const ITEMS_AT_END: Argument = Argument::ITEMS.token("ITEMS");
/// `[KEYED | SEED hex]`
pub(super) const HASH_KEY: Argument = Argument::new(
    "hash-key",
    ArgumentKind::OneOf(&[
        Argument::new("keyed", ArgumentKind::PureToken).token("KEYED"),
        Argument::new("hex", ArgumentKind::String).token("SEED"),
    ]),
)
.optional();
/// `[EX s | PX ms | EXAT unix-s | PXAT unix-ms]`
pub(super) const LIFE: Argument = Argument::new(
    "life",
    ArgumentKind::OneOf(&[
        Argument::new("seconds", ArgumentKind::Integer).token("EX"),
        Argument::new("milliseconds", ArgumentKind::Integer).token("PX"),
        Argument::new("unix-seconds", ArgumentKind::Integer).token("EXAT"),
        Argument::new("unix-milliseconds", ArgumentKind::Integer).token("PXAT"),
    ]),
)
.optional();
/// The words of a command that takes what other keys hold into one.
pub(super) const MERGED: &[Argument] = &[
    Argument::new("destination", ArgumentKind::Key),
    Argument::new("source", ArgumentKind::Key).multiple(),
    Argument::word("force", "FORCE"),
];
/// The words of an export.
pub(super) const EXPORTED: &[Argument] =
    &[Argument::KEY, Argument::new("version", ArgumentKind::Integer).token("NEWER").optional()];
/// The words of a dump.
pub(super) const DUMPED: &[Argument] = &[Argument::KEY, Argument::new("cursor", ArgumentKind::Integer)];
/// The words of a load.
pub(super) const LOADED: &[Argument] =
    &[Argument::KEY, Argument::new("cursor", ArgumentKind::Integer), Argument::new("data", ArgumentKind::String)];
