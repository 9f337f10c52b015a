//! RESP, the Redis protocol, in both versions: requests in, replies out.
//!
//! The model. A connection owns a buffer of bytes that it has read. [`Scanner`] finds the complete requests in it, in
//! place, and remembers where a half request stops; [`Batch`] lists what was found, and [`Args`] is one request seen
//! as a list of byte strings that point into the buffer. Nothing is copied and nothing is looked at twice. What a
//! command answers is a value, [`Reply`], that says nothing of protocols; [`encode`](encode()) alone knows how each
//! looks in RESP2 and in RESP3.
//!
//! Requests are flat: an array of bulk strings, or one line of text ("inline", for people with `nc`). Arrays within
//! arrays, which the protocol's grammar would allow, are an error, so nothing here recurses over what a peer sent.
//! This layer knows no command: the limits that differ before a login are told to it through [`Limits`].

mod args;
mod encode;
mod inline;
mod number;
mod reply;
mod request;

pub use args::{Args, ArgsIter, OwnedArgs, Span};
pub use encode::{
    encode, encode_array_header, encode_bool, encode_bools, encode_bulk, encode_double, encode_error, encode_integer,
    encode_map_header, encode_null, encode_null_array, encode_ok, encode_push_header, encode_set_header, encode_simple,
};
pub use number::{format_double, parse_integer};
pub use reply::{Protocol, Reply};
pub use request::{Batch, Limits, ProtocolError, Scanner};
