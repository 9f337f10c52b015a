//! What a command answers, as a value: which shape it has on the wire is the encoder's business.

use std::borrow::Cow;

use bytes::Bytes;
use smallvec::SmallVec;

/// The version of the protocol that a connection speaks: 2 until `HELLO 3`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Protocol {
    /// Simple strings, errors, integers, bulk strings and arrays.
    #[default]
    Resp2,
    /// Adds booleans, doubles, maps, sets, nulls, verbatim text and pushed messages.
    Resp3,
}

/// One reply. Handlers build it without knowing the protocol; [`encode`](super::encode()) writes it.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    /// `+OK`.
    Ok,
    /// A short status (`+PONG`, `+QUEUED`, a line of MONITOR). Line breaks are sent as blanks.
    Simple(Cow<'static, str>),
    /// A whole error text, its code first and without the `-`: `ERR not found`. Line breaks are sent as blanks.
    Error(Cow<'static, str>),
    /// A signed integer.
    Integer(i64),
    /// Yes or no: `:1`/`:0` in RESP2, `#t`/`#f` in RESP3.
    Bool(bool),
    /// An array of [`Reply::Bool`], without a value of its own for each.
    Bools(SmallVec<[bool; 32]>),
    /// A floating-point number, printed by [`format_double`](super::format_double): a bulk string in RESP2.
    Double(f64),
    /// A byte string.
    Bulk(Bytes),
    /// A byte string that is text: looks like [`Reply::Bulk`].
    Text(Cow<'static, str>),
    /// Text for people, several lines (`INFO`): a verbatim string in RESP3, a byte string in RESP2.
    Verbatim(String),
    /// No value: `$-1` in RESP2, `_` in RESP3.
    Null,
    /// No list (an aborted `EXEC`): `*-1` in RESP2, `_` in RESP3.
    NullArray,
    /// A list.
    Array(Vec<Reply>),
    /// Pairs: in RESP2 an array of keys and values in turn.
    Map(Vec<(Reply, Reply)>),
    /// One pair of a map that was asked for alone, as `BF.INFO key FIELD` is: in RESP2 an array of the value alone.
    Field(Box<(Reply, Reply)>),
    /// A list without order and repetition: an array in RESP2.
    Set(Vec<Reply>),
    /// A message that nobody asked for (pub/sub): an array in RESP2.
    Push(Vec<Reply>),
    /// A list whose elements are encoded already, each in the protocol of its moment: a transaction can change it.
    Encoded {
        /// How many.
        count: usize,
        /// Their bytes.
        bytes: Vec<u8>,
    },
    /// Several replies to one command, one after the other (`SUBSCRIBE a b`), or none at all. Only at the top: inside
    /// another reply it would upset the count of elements.
    Sequence(Vec<Reply>),
}

impl Reply {
    /// A [`Reply::Simple`].
    pub fn simple(text: impl Into<Cow<'static, str>>) -> Self {
        Self::Simple(text.into())
    }

    /// A [`Reply::Error`]; `text` begins with its code (`ERR`, `WRONGTYPE` …).
    pub fn error(text: impl Into<Cow<'static, str>>) -> Self {
        Self::Error(text.into())
    }

    /// A [`Reply::Text`].
    pub fn text(text: impl Into<Cow<'static, str>>) -> Self {
        Self::Text(text.into())
    }

    /// A [`Reply::Bulk`] with a copy of `bytes`.
    #[must_use]
    pub fn bulk(bytes: &[u8]) -> Self {
        Self::Bulk(Bytes::copy_from_slice(bytes))
    }

    /// About how many bytes the reply holds.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        let inner = match self {
            Self::Simple(text) | Self::Error(text) | Self::Text(text) => text.len(),
            Self::Verbatim(text) => text.len(),
            Self::Bulk(bytes) => bytes.len(),
            Self::Bools(bools) => bools.len(),
            Self::Array(items) | Self::Set(items) | Self::Push(items) | Self::Sequence(items) => {
                items.iter().map(Self::heap_bytes).sum()
            }
            Self::Map(pairs) => pairs.iter().map(|(key, value)| key.heap_bytes() + value.heap_bytes()).sum(),
            Self::Field(pair) => pair.0.heap_bytes() + pair.1.heap_bytes(),
            _ => 0,
        };
        size_of::<Self>() + inner
    }

    /// Whether the whole reply is an error (an error inside a list does not count).
    #[must_use]
    pub fn is_error(&self) -> bool {
        matches!(self, Self::Error(_))
    }
}

// Replies travel by value through every handler; one that grows past a cache line is noticed here.
const _: () = assert!(size_of::<Reply>() <= 64);
