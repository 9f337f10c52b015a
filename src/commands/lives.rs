//! The lives of keys: when they end.

use super::context::Context;
use super::dispatch::Outcome;
use super::error::{CommandError, quoted};
use super::life::Unit;
use super::table::{Argument, ArgumentKind, Command, Flags, Group, KeySpec};
use super::words::{Words, is};
use crate::keyspace::Record;
use crate::keyspace::effect::{Cause, Effect};
use crate::resp::{Args, Reply, parse_integer};

const ROW: Command = Command { group: Group::Generic, since: "1.0.0", ..Command::DEFAULT };
const WRITE: Flags = Flags::WRITE.with(Flags::FAST);
const READ: Flags = Flags::READONLY.with(Flags::FAST);
const CHANGED: &[KeySpec] = &[KeySpec { first: 1, last: 1, step: 1, flags: &["RW", "update"] }];
const LOOKED_AT: &[KeySpec] = &[KeySpec { first: 1, last: 1, step: 1, flags: &["RO", "access"] }];

const CONDITION: Argument = Argument::new(
    "condition",
    ArgumentKind::OneOf(&[
        Argument::new("nx", ArgumentKind::PureToken).token("NX"),
        Argument::new("xx", ArgumentKind::PureToken).token("XX"),
        Argument::new("gt", ArgumentKind::PureToken).token("GT"),
        Argument::new("lt", ArgumentKind::PureToken).token("LT"),
    ]),
)
.optional();
const SECONDS: &[Argument] = &[Argument::KEY, Argument::new("seconds", ArgumentKind::Integer), CONDITION];
const MILLISECONDS: &[Argument] = &[Argument::KEY, Argument::new("milliseconds", ArgumentKind::Integer), CONDITION];
const UNIX_SECONDS: &[Argument] =
    &[Argument::KEY, Argument::new("unix-time-seconds", ArgumentKind::Integer), CONDITION];
const UNIX_MILLISECONDS: &[Argument] =
    &[Argument::KEY, Argument::new("unix-time-milliseconds", ArgumentKind::Integer), CONDITION];

/// The rows of this family.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "expire",
        arity: -3,
        flags: WRITE,
        keys: CHANGED,
        summary: "Lets a key end in so many seconds.",
        arguments: SECONDS,
        handler: |context, args| expire(context, args, Unit::Seconds, "expire"),
        ..ROW
    },
    Command {
        name: "pexpire",
        arity: -3,
        flags: WRITE,
        keys: CHANGED,
        summary: "Lets a key end in so many milliseconds.",
        since: "2.6.0",
        arguments: MILLISECONDS,
        handler: |context, args| expire(context, args, Unit::Milliseconds, "pexpire"),
        ..ROW
    },
    Command {
        name: "expireat",
        arity: -3,
        flags: WRITE,
        keys: CHANGED,
        summary: "Lets a key end at a time in seconds since 1970.",
        since: "1.2.0",
        arguments: UNIX_SECONDS,
        handler: |context, args| expire(context, args, Unit::UnixSeconds, "expireat"),
        ..ROW
    },
    Command {
        name: "pexpireat",
        arity: -3,
        flags: WRITE,
        keys: CHANGED,
        summary: "Lets a key end at a time in milliseconds since 1970.",
        since: "2.6.0",
        arguments: UNIX_MILLISECONDS,
        handler: |context, args| expire(context, args, Unit::UnixMilliseconds, "pexpireat"),
        ..ROW
    },
    Command {
        name: "ttl",
        arity: 2,
        flags: READ,
        keys: LOOKED_AT,
        summary: "Gives the seconds that a key has left.",
        arguments: &[Argument::KEY],
        handler: |context, args| life(context, args, |life, now| seconds(life.saturating_sub(now))),
        ..ROW
    },
    Command {
        name: "pttl",
        arity: 2,
        flags: READ,
        keys: LOOKED_AT,
        summary: "Gives the milliseconds that a key has left.",
        since: "2.6.0",
        arguments: &[Argument::KEY],
        handler: |context, args| life(context, args, u64::saturating_sub),
        ..ROW
    },
    Command {
        name: "expiretime",
        arity: 2,
        flags: READ,
        keys: LOOKED_AT,
        summary: "Gives the time at which a key ends, in seconds since 1970.",
        since: "7.0.0",
        arguments: &[Argument::KEY],
        handler: |context, args| life(context, args, |life, _| seconds(life)),
        ..ROW
    },
    Command {
        name: "pexpiretime",
        arity: 2,
        flags: READ,
        keys: LOOKED_AT,
        summary: "Gives the time at which a key ends, in milliseconds since 1970.",
        since: "7.0.0",
        arguments: &[Argument::KEY],
        handler: |context, args| life(context, args, |life, _| life),
        ..ROW
    },
    Command {
        name: "persist",
        arity: 2,
        flags: WRITE,
        keys: CHANGED,
        summary: "Lets a key stay for ever.",
        since: "2.2.0",
        arguments: &[Argument::KEY],
        handler: persist,
        ..ROW
    },
];

/// Seconds of a number of milliseconds, rounded as Redis does.
const fn seconds(milliseconds: u64) -> u64 {
    (milliseconds + 500) / 1000
}

/// When a new life takes the place of the present one. No life counts as one without end.
#[derive(Default)]
struct Condition {
    none: bool,
    some: bool,
    greater: bool,
    less: bool,
}

impl Condition {
    fn of(args: Args<'_>) -> Result<Self, CommandError> {
        let mut condition = Self::default();
        for word in Words::from(args, 3) {
            let flag = match () {
                () if is(word, "NX") => &mut condition.none,
                () if is(word, "XX") => &mut condition.some,
                () if is(word, "GT") => &mut condition.greater,
                () if is(word, "LT") => &mut condition.less,
                () => return Err(CommandError::Text(format!("ERR Unsupported option {}", quoted(word)).into())),
            };
            *flag = true;
        }
        let Self { none, some, greater, less } = condition;
        if none && (some || greater || less) {
            return Err(CommandError::text("ERR NX and XX, GT or LT options at the same time are not compatible"));
        }
        if greater && less {
            return Err(CommandError::text("ERR GT and LT options at the same time are not compatible"));
        }
        Ok(condition)
    }

    fn holds(&self, present: Option<u64>, new: i64) -> bool {
        let longer = present.is_some_and(|present| new > present as i64);
        let shorter = present.is_none_or(|present| new < present as i64);
        let refused = [
            self.none && present.is_some(),
            self.some && present.is_none(),
            self.greater && !longer,
            self.less && !shorter,
        ];
        !refused.contains(&true)
    }
}

fn expire(context: &mut Context<'_>, args: Args<'_>, unit: Unit, command: &'static str) -> Outcome {
    let condition = Condition::of(args)?;
    let value = parse_integer(&args[2]).ok_or(CommandError::NotAnInteger)?;
    let now = context.now();
    let at = unit.at(value, now).ok_or(CommandError::BadLife(command))?;
    context.write(&args[1], |cell| {
        let Some(entry) = cell.get() else { return Ok(Reply::Integer(0)) };
        if !condition.holds(entry.life(), at) {
            return Ok(Reply::Integer(0));
        }
        match u64::try_from(at).ok().filter(|at| *at > now) {
            None => drop(cell.delete(Cause::Command)),
            life => {
                let set = cell.change(|entry, record| {
                    entry.set_life(life)?;
                    record.record(&Effect::Life { life });
                    Ok::<_, CommandError>(())
                });
                set.transpose()?;
            }
        }
        Ok(Reply::Integer(1))
    })?
}

fn persist(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    context.write(&args[1], |cell| {
        if cell.get().and_then(|entry| entry.life()).is_none() {
            return Ok(Reply::Integer(0));
        }
        let set = cell.change(|entry, record| {
            entry.set_life(None)?;
            record.record(&Effect::Life { life: None });
            Ok::<_, CommandError>(())
        });
        set.transpose()?;
        Ok(Reply::Integer(1))
    })?
}

/// A figure made from the key's life and the time now; -2 without a key, -1 without a life.
fn life(context: &mut Context<'_>, args: Args<'_>, figure: impl Fn(u64, u64) -> u64) -> Outcome {
    let now = context.now();
    let life = context.read(&args[1], |entry| entry.map(|entry| entry.life()))?;
    Ok(Reply::Integer(match life {
        None => -2,
        Some(None) => -1,
        Some(Some(life)) => figure(life, now) as i64,
    }))
}
