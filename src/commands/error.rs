//! What a command can refuse, and the wire text of each refusal, in one place.
//!
//! The texts are Redis' and RedisBloom's where they have one: clients match on them.

use std::borrow::Cow;

use crate::codec::value::{HalfLoaded, Load};

/// Why a command was refused. Nothing was changed.
#[derive(Clone, Debug, PartialEq)]
pub enum CommandError {
    /// The key holds another kind of value.
    WrongType,
    /// Too few or too many words for this command (`container|subcommand` for a subcommand).
    WrongArity(Cow<'static, str>),
    /// No key where one must be.
    NotFound,
    /// A key where none may be.
    ItemExists,
    /// Not an integer, or one outside 64 bits.
    NotAnInteger,
    /// Not a decimal number: names what.
    Bad(&'static str),
    /// An integer outside its range.
    OutOfRange {
        /// The value's name.
        what: &'static str,
        /// Smallest that is taken.
        min: u64,
        /// Greatest that is taken.
        max: u64,
    },
    /// An error rate outside (0, 1).
    ErrorRateRange,
    /// An option without its value, by its name in lower case.
    NoValue(&'static str),
    /// NONSCALING and an expansion.
    NonScalingExpansion,
    /// A word that is no option of this command.
    Unexpected(Box<[u8]>),
    /// An option given twice.
    GivenTwice(&'static str),
    /// Two options that exclude each other.
    Excluded(&'static str, &'static str),
    /// `BF.INSERT`'s own wording for an unknown word.
    UnknownArgument,
    /// A non-scaling filter holds its capacity.
    NonScalingFull,
    /// No further sub-filter is possible: the tightened rate is 0, or the chain was loaded with no growth.
    CannotGrow,
    /// The tightened rate of the first sub-filter is 0.
    CannotCreate,
    /// The filter has as many sub-filters as allowed.
    TooManyFilters {
        /// How many it has.
        filters: u64,
        /// The setting in force.
        limit: u64,
    },
    /// Larger than one filter may be.
    FilterTooLarge {
        /// Bytes that the filter would take.
        bytes: u64,
        /// The setting in force.
        limit: u64,
    },
    /// The allocator has no memory for it.
    InsufficientMemory {
        /// Bytes that were asked for.
        bytes: u64,
    },
    /// It would pass the memory limit.
    OutOfMemory,
    /// It would pass the memory limit, unless keys are evicted for so many bytes: see [`super::room`].
    NoRoomYet {
        /// Bytes that are needed.
        bytes: u64,
    },
    /// A life that cannot be, given to this command.
    BadLife(&'static str),
    /// Larger than any memory.
    TooLarge,
    /// A dump that is damaged or not ours.
    BadData,
    /// A text that one command alone has.
    Text(Cow<'static, str>),
}

impl CommandError {
    /// A fixed text.
    #[must_use]
    pub const fn text(text: &'static str) -> Self {
        Self::Text(Cow::Borrowed(text))
    }

    /// A filter of which chunks are missing.
    #[must_use]
    pub fn being_loaded<L: Load>(half: &HalfLoaded<L>) -> Self {
        let (taken, bytes) = (half.load.taken(), half.load.bytes());
        Self::Text(format!("ERR filter is being loaded: {taken} of {bytes} bytes").into())
    }

    /// The reply's text, without the leading `-`.
    #[must_use]
    pub fn message(&self) -> Cow<'static, str> {
        let owned = match self {
            Self::WrongType => return "WRONGTYPE Operation against a key holding the wrong kind of value".into(),
            Self::NotFound => return "ERR not found".into(),
            Self::ItemExists => return "ERR item exists".into(),
            Self::NotAnInteger => return "ERR value is not an integer or out of range".into(),
            Self::ErrorRateRange => return "ERR error rate must be in the range (0.000000, 1.000000)".into(),
            Self::NonScalingExpansion => return "Nonscaling filters cannot expand".into(),
            Self::UnknownArgument => return "Unknown argument received".into(),
            Self::NonScalingFull => return "ERR non scaling filter is full".into(),
            Self::CannotGrow => return "ERR problem inserting into filter".into(),
            Self::CannotCreate => return "ERR could not create filter".into(),
            Self::OutOfMemory | Self::NoRoomYet { .. } => {
                return "OOM command not allowed when used memory > 'maxmemory'.".into();
            }
            Self::BadLife(command) => format!("ERR invalid expire time in '{command}' command"),
            Self::TooLarge => {
                return "ERR Insufficient memory to create filter: more than 1152921504606846976 bytes needed".into();
            }
            Self::BadData => return "ERR received bad data".into(),
            Self::Text(text) => return text.clone(),
            Self::WrongArity(name) => format!("ERR wrong number of arguments for '{name}' command"),
            Self::Bad(what) => format!("ERR bad {what}"),
            Self::NoValue(what) => format!("ERR no {what}"),
            Self::OutOfRange { what, min, max } => format!("ERR {what} must be in the range [{min}, {max}]"),
            Self::Unexpected(word) => format!("ERR syntax error, unexpected '{}'", quoted(word)),
            Self::Excluded(one, other) => format!("ERR syntax error, '{one}' with '{other}'"),
            Self::GivenTwice(word) => format!("ERR syntax error, '{word}' given twice"),
            Self::TooManyFilters { filters, limit } => {
                format!("ERR filter has {filters} sub-filters, 'bf-max-filters' is {limit}")
            }
            Self::FilterTooLarge { bytes, limit } => {
                format!("ERR filter would take {bytes} bytes, 'max-filter-memory' is {limit}")
            }
            Self::InsufficientMemory { bytes } => {
                format!("ERR Insufficient memory to create filter: {bytes} bytes needed")
            }
        };
        owned.into()
    }
}

/// The most bytes of a client's word that an error repeats.
const QUOTED_BYTES: usize = 128;

/// A client's word as it may stand in an error.
#[must_use]
pub fn quoted(word: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(&word[..word.len().min(QUOTED_BYTES)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_clients_match_on() {
        for (error, text) in [
            (CommandError::WrongArity("bf.add".into()), "ERR wrong number of arguments for 'bf.add' command"),
            (CommandError::Bad("capacity"), "ERR bad capacity"),
            (CommandError::NoValue("expansion"), "ERR no expansion"),
            (
                CommandError::OutOfRange { what: "capacity", min: 1, max: 1 << 40 },
                "ERR capacity must be in the range [1, 1099511627776]",
            ),
            (CommandError::Unexpected((*b"FOO").into()), "ERR syntax error, unexpected 'FOO'"),
            (
                CommandError::FilterTooLarge { bytes: 5, limit: 4 },
                "ERR filter would take 5 bytes, 'max-filter-memory' is 4",
            ),
        ] {
            assert_eq!(error.message(), text);
        }
    }
}
