//! What the figures of all families are told with.

use crate::resp::Reply;

/// A number that may be larger than replies can tell.
pub(super) fn integer(number: u64) -> Reply {
    Reply::Integer(i64::try_from(number).unwrap_or(i64::MAX))
}

/// A map of these names.
pub(super) fn pairs<const N: usize>(pairs: [(&'static str, Reply); N]) -> Reply {
    Reply::Map(pairs.into_iter().map(|(name, value)| (Reply::simple(name), value)).collect())
}
