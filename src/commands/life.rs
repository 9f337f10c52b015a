//! Moments at which a key ends, as commands give them.

use super::error::CommandError;
use super::words::is;
use crate::keyspace::entry::LATEST_LIFE;
use crate::resp::parse_integer;

/// How a moment is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// `EX`: seconds from now.
    Seconds,
    /// `PX`: milliseconds from now.
    Milliseconds,
    /// `EXAT`: seconds since 1970.
    UnixSeconds,
    /// `PXAT`: milliseconds since 1970.
    UnixMilliseconds,
}

impl Unit {
    const ALL: [Self; 4] = [Self::Seconds, Self::Milliseconds, Self::UnixSeconds, Self::UnixMilliseconds];

    /// The option's word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Seconds => "EX",
            Self::Milliseconds => "PX",
            Self::UnixSeconds => "EXAT",
            Self::UnixMilliseconds => "PXAT",
        }
    }

    /// The option's word in lower case.
    #[must_use]
    pub const fn lower_word(self) -> &'static str {
        match self {
            Self::Seconds => "ex",
            Self::Milliseconds => "px",
            Self::UnixSeconds => "exat",
            Self::UnixMilliseconds => "pxat",
        }
    }

    /// A number of this unit as milliseconds since 1970; `None` if it is later than can be kept, or overflows.
    #[must_use]
    pub fn at(self, value: i64, now: u64) -> Option<i64> {
        let milliseconds = match self {
            Self::Seconds | Self::UnixSeconds => value.checked_mul(1000)?,
            Self::Milliseconds | Self::UnixMilliseconds => value,
        };
        let at = match self {
            Self::Seconds | Self::Milliseconds => milliseconds.checked_add(i64::try_from(now).ok()?)?,
            Self::UnixSeconds | Self::UnixMilliseconds => milliseconds,
        };
        (at <= LATEST_LIFE as i64).then_some(at)
    }
}

/// The unit of an option, if the word is one.
#[must_use]
pub fn unit(word: &[u8]) -> Option<Unit> {
    Unit::ALL.into_iter().find(|unit| is(word, unit.word()))
}

/// A life is given at most once, in whatever unit.
///
/// # Errors
/// It was given before.
pub fn once(before: Option<Unit>, unit: Unit) -> Result<(), CommandError> {
    match before {
        None => Ok(()),
        Some(before) if before == unit => Err(CommandError::GivenTwice(unit.word())),
        Some(before) => Err(CommandError::Excluded(before.word(), unit.word())),
    }
}

/// The moment that an option of a creating command gives, in milliseconds since 1970.
///
/// # Errors
/// Not a number; a moment that is not in the future.
pub fn moment(value: &[u8], unit: Unit, now: u64, command: &'static str) -> Result<u64, CommandError> {
    let value = parse_integer(value).ok_or(CommandError::NotAnInteger)?;
    let at = Some(value).filter(|value| *value >= 1).and_then(|value| unit.at(value, now));
    let at = at.and_then(|at| u64::try_from(at).ok()).filter(|at| *at > now);
    at.ok_or(CommandError::BadLife(command))
}
