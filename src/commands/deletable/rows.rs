//! The rows that both families have, but for names and summaries.

use super::{Family, ask, create, dump, remove, write};
use crate::commands::rows::{ACCESS, DELETE, DUMPED, INSERT, LOADED, READ, WRITE};
use crate::commands::table::{Argument, Command, Flags};

const ONE: &[Argument] = &[Argument::KEY, Argument::ITEM];
const MANY: &[Argument] = &[Argument::KEY, Argument::ITEMS];

const fn of<F: Family>() -> Command {
    Command { group: F::GROUP, ..Command::DEFAULT }
}

/// A command that reads one key.
pub(in crate::commands) const fn reads<F: Family>() -> Command {
    Command { arity: 2, flags: READ, keys: ACCESS, arguments: &[Argument::KEY], ..of::<F>() }
}

/// `RESERVE`, without its arguments.
pub(in crate::commands) const fn reserve<F: Family>() -> Command {
    Command { arity: -4, flags: WRITE.with(Flags::FAST), keys: INSERT, handler: create::reserve::<F>, ..of::<F>() }
}

/// `ADD`
pub(in crate::commands) const fn add<F: Family>() -> Command {
    Command {
        arity: 3,
        flags: WRITE.with(Flags::FAST),
        keys: INSERT,
        complexity: F::ONE_COST,
        arguments: ONE,
        handler: write::add::<F>,
        run: Some(write::run_add::<F>),
        ..of::<F>()
    }
}

/// `MADD`
pub(in crate::commands) const fn add_many<F: Family>() -> Command {
    Command {
        arity: -3,
        flags: WRITE,
        keys: INSERT,
        complexity: F::MANY_COST,
        arguments: MANY,
        handler: write::add_many::<F>,
        ..of::<F>()
    }
}

/// `INSERT`, without its arguments.
pub(in crate::commands) const fn insert<F: Family>() -> Command {
    Command {
        arity: -4,
        flags: WRITE,
        keys: INSERT,
        complexity: F::MANY_COST,
        handler: write::insert::<F>,
        ..of::<F>()
    }
}

/// `EXISTS`
pub(in crate::commands) const fn exists<F: Family>() -> Command {
    Command {
        arity: 3,
        flags: READ.with(Flags::FAST),
        complexity: F::ONE_COST,
        arguments: ONE,
        handler: ask::exists::<F>,
        run: Some(ask::run_exists::<F>),
        ..reads::<F>()
    }
}

/// `MEXISTS`
pub(in crate::commands) const fn exists_many<F: Family>() -> Command {
    Command { arity: -3, complexity: F::MANY_COST, arguments: MANY, handler: ask::exists_many::<F>, ..reads::<F>() }
}

/// `COUNT`
pub(in crate::commands) const fn count<F: Family>() -> Command {
    Command { handler: ask::count::<F>, run: None, ..exists::<F>() }
}

/// `MCOUNT`
pub(in crate::commands) const fn count_many<F: Family>() -> Command {
    Command { handler: ask::count_many::<F>, ..exists_many::<F>() }
}

/// `DEL`
pub(in crate::commands) const fn remove<F: Family>() -> Command {
    Command {
        flags: Flags::WRITE.with(Flags::FAST),
        keys: DELETE,
        handler: remove::remove::<F>,
        run: Some(remove::run_remove::<F>),
        ..exists::<F>()
    }
}

/// `MDEL`
pub(in crate::commands) const fn remove_many<F: Family>() -> Command {
    Command { flags: Flags::WRITE, keys: DELETE, handler: remove::remove_many::<F>, ..exists_many::<F>() }
}

/// `CARD`
pub(in crate::commands) const fn card<F: Family>() -> Command {
    Command { flags: READ.with(Flags::FAST), handler: ask::card::<F>, ..reads::<F>() }
}

/// `SCANDUMP`
pub(in crate::commands) const fn scan_dump<F: Family>() -> Command {
    Command {
        arity: 3,
        flags: READ.with(Flags::COPIES_VALUES),
        complexity: "O(n), n bytes of the piece",
        arguments: DUMPED,
        handler: dump::scan_dump::<F>,
        ..reads::<F>()
    }
}

/// `LOADCHUNK`
pub(in crate::commands) const fn load_chunk<F: Family>() -> Command {
    Command {
        arity: 4,
        flags: WRITE.with(Flags::COPIES_VALUES),
        keys: INSERT,
        complexity: "O(n), n bytes of the piece",
        arguments: LOADED,
        handler: dump::load_chunk::<F>,
        ..reads::<F>()
    }
}
