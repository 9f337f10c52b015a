//! What RDB files and DUMP payloads are made of: lengths, the fields of a module's value, module ids.
//!
//! **Length**, of a string, or any number that is not negative. The two upper bits of the first byte tell its form:
//!
//! | first byte | number |
//! | --- | --- |
//! | `00xxxxxx` | the lower 6 bits |
//! | `01xxxxxx` | 14 bits: the lower 6, then the next byte |
//! | `10000000` | 4 bytes, most significant first |
//! | `10000001` | 8 bytes, most significant first |
//! | `11xxxxxx` | none: a string in a special form ([`rdb_string`](super::rdb_string)) |
//!
//! A number may stand in a longer form than it needs; it is written in the shortest.
//!
//! **Module value** (object type 7): the module id as a length, fields, and an end mark. Before each field stands an
//! opcode, so that a value can be skipped by who does not know the module: 2 unsigned (a length), 4 double (8 bytes,
//! little-endian), 5 string, 0 end.
//!
//! **Module id**: nine characters of `A-Z a-z 0-9 - _`, 6 bits each, the first uppermost, then the version of the
//! encoding in 10 bits.

use super::rdb_string::RdbString;

/// Object type of a value of a module, without opcodes: pre-releases of Redis 4.0 wrote it.
pub const TYPE_MODULE_1: u8 = 6;
/// Object type of a value of a module, with opcodes.
pub const TYPE_MODULE_2: u8 = 7;

pub(super) const END: u8 = 0;
pub(super) const SIGNED: u8 = 1;
pub(super) const UNSIGNED: u8 = 2;
pub(super) const FLOAT: u8 = 3;
pub(super) const DOUBLE: u8 = 4;
pub(super) const STRING: u8 = 5;

const BITS_14: u8 = 0x40;
const BYTES_4: u8 = 0x80;
const BYTES_8: u8 = 0x81;
const SPECIAL: u8 = 0xc0;

/// The bytes end early, or have a form that nothing writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the data ends early or has no known form")]
pub struct Malformed;

/// The type of a module's values and the version of their encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModuleId(u64);

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
const ENCVER_BITS: u32 = 10;

impl ModuleId {
    /// The id of the type `name` in encoding version `encver`; none if a character or the version, from 1,024 on, cannot
    /// be written.
    pub const fn new(name: &[u8; 9], encver: u16) -> Option<ModuleId> {
        if encver >> ENCVER_BITS != 0 {
            return None;
        }
        let mut code = 0u64;
        let mut i = 0;
        while i < name.len() {
            let digit = match name[i] {
                letter @ b'A'..=b'Z' => letter - b'A',
                letter @ b'a'..=b'z' => letter - b'a' + 26,
                digit @ b'0'..=b'9' => digit - b'0' + 52,
                b'-' => 62,
                b'_' => 63,
                _ => return None,
            };
            code = code << 6 | digit as u64;
            i += 1;
        }
        Some(ModuleId(code << ENCVER_BITS | encver as u64))
    }

    /// The id that is written as this number; every number is one.
    pub const fn from_code(code: u64) -> ModuleId {
        ModuleId(code)
    }

    /// The number that is written.
    pub const fn code(self) -> u64 {
        self.0
    }

    /// The name of the type.
    pub fn name(self) -> [u8; 9] {
        std::array::from_fn(|i| ALPHABET[(self.0 >> (58 - 6 * i) & 63) as usize])
    }

    /// The version of the encoding, below 1,024.
    pub const fn encver(self) -> u16 {
        (self.0 & ((1 << ENCVER_BITS) - 1)) as u16
    }
}

/// Appends a number as a length.
pub fn push_length(out: &mut Vec<u8>, number: u64) {
    match number {
        0..0x40 => out.push(number as u8),
        0x40..0x4000 => out.extend_from_slice(&(u16::from(BITS_14) << 8 | number as u16).to_be_bytes()),
        0x4000..0x1_0000_0000 => {
            out.push(BYTES_4);
            out.extend_from_slice(&(number as u32).to_be_bytes());
        }
        _ => {
            out.push(BYTES_8);
            out.extend_from_slice(&number.to_be_bytes());
        }
    }
}

/// Appends an unsigned field of a module's value.
pub fn push_unsigned(out: &mut Vec<u8>, number: u64) {
    out.push(UNSIGNED);
    push_length(out, number);
}

/// Appends a double field.
pub fn push_double(out: &mut Vec<u8>, number: f64) {
    out.push(DOUBLE);
    out.extend_from_slice(&number.to_le_bytes());
}

/// Appends what stands before the bytes of a string field of so many bytes.
pub fn push_string_head(out: &mut Vec<u8>, len: u64) {
    out.push(STRING);
    push_length(out, len);
}

/// Appends the mark that ends a module's value.
pub fn push_end(out: &mut Vec<u8>) {
    out.push(END);
}

/// A length, or the kind of a string in a special form.
pub enum Head {
    /// A length.
    Length(u64),
    /// A string in this special form.
    Special(u8),
}

/// Bytes that are read in order: a slice of them ([`Reader`]), or a file of which only a part is in memory.
pub trait Input {
    /// Why the next bytes could not be read.
    type Error: From<Malformed>;
    /// A string as it is handed out.
    type Text;

    /// The next `N` bytes.
    ///
    /// # Errors
    ///
    /// When there are fewer.
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Self::Error>;

    /// Steps over the next `len` bytes.
    ///
    /// # Errors
    ///
    /// When there are fewer.
    fn skip(&mut self, len: u64) -> Result<(), Self::Error>;

    /// The string that is next.
    ///
    /// # Errors
    ///
    /// When it is no string, or not whole.
    fn text(&mut self) -> Result<Self::Text, Self::Error>;

    /// The error that says why what was read is not taken.
    fn refuse(&self, reason: &'static str) -> Self::Error;

    /// The next byte.
    ///
    /// # Errors
    ///
    /// At the end.
    #[inline]
    fn byte(&mut self) -> Result<u8, Self::Error> {
        self.array().map(|[byte]| byte)
    }

    /// A length, or what stands in place of one.
    ///
    /// # Errors
    ///
    /// When neither is next.
    #[inline]
    fn head(&mut self) -> Result<Head, Self::Error> {
        let first = self.byte()?;
        let low = first & 0x3f;
        Ok(match first & SPECIAL {
            0 => Head::Length(u64::from(low)),
            BITS_14 => Head::Length(u64::from(low) << 8 | u64::from(self.byte()?)),
            SPECIAL => Head::Special(low),
            _ if first == BYTES_4 => Head::Length(u64::from(u32::from_be_bytes(self.array()?))),
            _ if first == BYTES_8 => Head::Length(u64::from_be_bytes(self.array()?)),
            _ => return Err(Malformed.into()),
        })
    }

    /// A number that stands as a length.
    ///
    /// # Errors
    ///
    /// When it does not.
    #[inline]
    fn length(&mut self) -> Result<u64, Self::Error> {
        match self.head()? {
            Head::Length(number) => Ok(number),
            Head::Special(_) => Err(Malformed.into()),
        }
    }

    /// An unsigned field of a module's value.
    ///
    /// # Errors
    ///
    /// When another field stands here, or none.
    #[inline]
    fn unsigned(&mut self) -> Result<u64, Self::Error> {
        self.opcode(UNSIGNED)?;
        self.length()
    }

    /// A double field; any double, NaN included.
    ///
    /// # Errors
    ///
    /// As [`unsigned`](Self::unsigned).
    #[inline]
    fn double(&mut self) -> Result<f64, Self::Error> {
        self.opcode(DOUBLE)?;
        Ok(f64::from_le_bytes(self.array()?))
    }

    /// Steps over what announces a string field; the string itself is next.
    ///
    /// # Errors
    ///
    /// As [`unsigned`](Self::unsigned).
    #[inline]
    fn string_opcode(&mut self) -> Result<(), Self::Error> {
        self.opcode(STRING)
    }

    /// Steps over the mark that ends a module's value.
    ///
    /// # Errors
    ///
    /// When a further field stands here, or nothing.
    #[inline]
    fn end(&mut self) -> Result<(), Self::Error> {
        self.opcode(END)
    }

    /// Steps over the opcode of a field.
    ///
    /// # Errors
    ///
    /// When another one stands here.
    #[inline]
    fn opcode(&mut self, wanted: u8) -> Result<(), Self::Error> {
        if self.length()? == u64::from(wanted) { Ok(()) } else { Err(Malformed.into()) }
    }
}

/// A place in bytes that are read. After an error it stands somewhere in what was not taken.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// The start of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    /// What was not read yet.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// The next `len` bytes.
    ///
    /// # Errors
    ///
    /// [`Malformed`] when there are fewer.
    pub fn bytes(&mut self, len: u64) -> Result<&'a [u8], Malformed> {
        let len = usize::try_from(len).map_err(|_| Malformed)?;
        let (bytes, rest) = self.rest.split_at_checked(len).ok_or(Malformed)?;
        self.rest = rest;
        Ok(bytes)
    }
}

impl<'a> Input for Reader<'a> {
    type Error = Malformed;
    type Text = RdbString<'a>;

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (array, rest) = self.rest.split_first_chunk().ok_or(Malformed)?;
        self.rest = rest;
        Ok(*array)
    }

    #[inline]
    fn skip(&mut self, len: u64) -> Result<(), Malformed> {
        self.bytes(len).map(drop)
    }

    fn text(&mut self) -> Result<RdbString<'a>, Malformed> {
        RdbString::read(self)
    }

    fn refuse(&self, _reason: &'static str) -> Malformed {
        Malformed
    }
}
