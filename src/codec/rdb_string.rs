//! Strings of RDB, in the three forms that Redis chooses among.
//!
//! | form | bytes | when Redis writes it |
//! | --- | --- | --- |
//! | raw | a length, the bytes | mostly |
//! | integer | `c0` and an i8, `c1` and an i16, `c2` and an i32, little-endian | the string is the decimal text of the number; an array of bits can look like one |
//! | LZF | `c3`, a length: compressed, a length: original, the data | longer than 20 bytes and at least 4 saved |

use super::lzf::{self, Compressor};
use super::rdb::{self, Head, Input, Malformed, Reader};

/// Shorter strings are not worth compressing.
const LEAST_COMPRESSED: usize = 20;
/// Longer ones take too long.
const MOST_COMPRESSED: usize = 1 << 20;
/// So much is to be saved at the least.
const LEAST_SAVED: usize = 4;
/// First byte of a compressed string.
const LZF: u8 = 0xc3;

/// Append a string field of a module's value, compressed if there is something to do that with and it saves something.
pub fn push_field(out: &mut Vec<u8>, bytes: &[u8], compressor: Option<&mut Compressor>) {
    let worth = (LEAST_COMPRESSED + 1..=MOST_COMPRESSED).contains(&bytes.len());
    if let Some(compressor) = compressor.filter(|_| worth) {
        let start = out.len();
        // Where the head ends is known only when the data is: it goes behind it, and then to its front.
        if compressor.compress(bytes, bytes.len() - LEAST_SAVED, out) {
            let compressed = out.len() - start;
            out.extend([rdb::STRING, LZF]);
            rdb::push_length(out, compressed as u64);
            rdb::push_length(out, bytes.len() as u64);
            out[start..].rotate_left(compressed);
            return;
        }
    }
    rdb::push_string_head(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// A string where it stands, not yet decompressed.
#[derive(Clone, Copy, Debug)]
pub enum RdbString<'a> {
    /// The bytes themselves.
    Raw(&'a [u8]),
    /// The decimal text of a number.
    Integer(i32),
    /// Compressed bytes.
    Lzf {
        /// The compressed bytes.
        data: &'a [u8],
        /// How many bytes they claim to become; no more than so many ever can.
        len: u64,
    },
}

impl<'a> RdbString<'a> {
    /// The string that is next. Nothing is decompressed; what is announced is compared with the bytes that are there.
    ///
    /// # Errors
    ///
    /// [`Malformed`] when it is no string, is not whole, or claims to become more than its compressed bytes can give.
    pub fn read(reader: &mut Reader<'a>) -> Result<RdbString<'a>, Malformed> {
        Ok(match reader.head()? {
            Head::Length(len) => RdbString::Raw(reader.bytes(len)?),
            Head::Special(0) => RdbString::Integer(i8::from_le_bytes(reader.array()?).into()),
            Head::Special(1) => RdbString::Integer(i16::from_le_bytes(reader.array()?).into()),
            Head::Special(2) => RdbString::Integer(i32::from_le_bytes(reader.array()?)),
            Head::Special(3) => {
                let (compressed, len) = (reader.length()?, reader.length()?);
                let data = reader.bytes(compressed)?;
                if len > lzf::max_decompressed(data.len()) {
                    return Err(Malformed);
                }
                RdbString::Lzf { data, len }
            }
            Head::Special(_) => return Err(Malformed),
        })
    }

    /// Number of its bytes.
    #[allow(clippy::len_without_is_empty, reason = "nobody asks")]
    pub fn len(&self) -> u64 {
        match *self {
            RdbString::Raw(bytes) => bytes.len() as u64,
            RdbString::Integer(number) => itoa::Buffer::new().format(number).len() as u64,
            RdbString::Lzf { len, .. } => len,
        }
    }

    /// Hands its bytes to `sink`, in order, in pieces with the offset of their first byte, which is a multiple of 8.
    ///
    /// # Errors
    ///
    /// [`Malformed`] when what is compressed does not become [`len`](Self::len) bytes. `sink` may have seen some by then.
    pub fn pieces(self, mut sink: impl FnMut(usize, &[u8])) -> Result<(), Malformed> {
        match self {
            RdbString::Raw(bytes) => sink(0, bytes),
            RdbString::Integer(number) => sink(0, itoa::Buffer::new().format(number).as_bytes()),
            RdbString::Lzf { data, len } => lzf::decompress(data, len, sink)?,
        }
        Ok(())
    }

    /// Its bytes: where they stand, or made in `scratch`.
    ///
    /// # Errors
    ///
    /// As [`pieces`](Self::pieces).
    pub fn bytes<'s>(self, scratch: &'s mut Vec<u8>) -> Result<&'s [u8], Malformed>
    where
        'a: 's,
    {
        if let RdbString::Raw(bytes) = self {
            return Ok(bytes);
        }
        scratch.clear();
        self.pieces(|_, piece| scratch.extend_from_slice(piece))?;
        Ok(scratch)
    }
}
