//! Values of types that are not served: only their length in an RDB file is known, and their type's name.
//!
//! | type | name | value |
//! | --- | --- | --- |
//! | 0 | string | a string |
//! | 1, 14 | list | count, strings |
//! | 2 | set | count, strings |
//! | 3 | zset | count; each a string, and a score as text: a length of one byte and so many bytes, none from 253 on |
//! | 4 | hash | count; each two strings |
//! | 5 | zset | count; each a string and 8 bytes |
//! | 7 | the module's own | module id; fields with opcodes; the end mark |
//! | 9, 13, 16 | hash | a string that holds all |
//! | 10 | list | same |
//! | 11, 20 | set | same |
//! | 12, 17 | zset | same |
//! | 15, 19, 21 | stream | below |
//! | 18 | list | count; each a length (the kind of node) and a string |
//! | 22 | hash | of Redis 7.4 before its release: count; each a length (the life) and two strings. Of Valkey: count; each two strings and 8 bytes |
//! | 23 | hash | a string that holds all |
//! | 24 | hash | 8 bytes (the earliest life); then as Redis' 22 |
//! | 25 | hash | 8 bytes, a string that holds all |
//!
//! **Stream**: count; each two strings (a node's key and its entries). Then lengths: the number of entries, the last id
//! in two, and from 19 on the first id, the greatest id deleted, and the entries ever added, five in all. Then the count of
//! groups; each a string, lengths for the last id and from 19 on the entries read; a count of pending ids, each 16 + 8 bytes
//! and a length; a count of consumers, each a string, 8 bytes (seen), from 21 on 8 more (active), and a count of ids of 16
//! bytes.
//!
//! A value of type 6, a module's from before Redis 4.0, has no opcodes: its length is known to its module alone.

use std::fmt;

use super::rdb::{self, Head, Input, ModuleId};

/// Who wrote a file: numbers of types have two meanings by now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dialect {
    /// Redis, or a server that went no way of its own.
    #[default]
    Redis,
    /// Valkey from version 9 on.
    Valkey,
}

/// The name of a type, as `TYPE` answers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TypeName {
    /// A type of the server itself.
    Builtin(&'static str),
    /// A type of a module.
    Module([u8; 9]),
}

impl fmt::Display for TypeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TypeName::Builtin(name) => f.write_str(name),
            // The letters of module names are all ASCII.
            TypeName::Module(name) => f.write_str(&String::from_utf8_lossy(name)),
        }
    }
}

/// Whether a value of this type begins with a module id.
pub fn is_module(kind: u8) -> bool {
    matches!(kind, rdb::TYPE_MODULE_1 | rdb::TYPE_MODULE_2)
}

/// Steps over a value of any type but a module's.
///
/// # Errors
///
/// What the input says; when the type is not known or the value has no known form.
pub fn skip_builtin<I: Input>(input: &mut I, kind: u8, dialect: Dialect) -> Result<TypeName, I::Error> {
    let name = match kind {
        0 => {
            skip_string(input)?;
            "string"
        }
        1 | 14 => {
            skip_each(input, skip_string)?;
            "list"
        }
        2 => {
            skip_each(input, skip_string)?;
            "set"
        }
        3 => {
            skip_each(input, |input| skip_string(input).and_then(|()| skip_score(input)))?;
            "zset"
        }
        4 => {
            skip_each(input, skip_pair)?;
            "hash"
        }
        5 => {
            skip_each(input, |input| skip_string(input).and_then(|()| input.skip(8)))?;
            "zset"
        }
        18 => {
            skip_each(input, |input| input.length().and_then(|_| skip_string(input)))?;
            "list"
        }
        15 | 19 | 21 => {
            skip_stream(input, kind)?;
            "stream"
        }
        22 | 24 => {
            skip_hash(input, kind, dialect)?;
            "hash"
        }
        _ => skip_in_one(input, kind)?,
    };
    Ok(TypeName::Builtin(name))
}

/// Types whose whole value stands in one string.
fn skip_in_one<I: Input>(input: &mut I, kind: u8) -> Result<&'static str, I::Error> {
    let name = match kind {
        9 | 13 | 16 | 23 | 25 => "hash",
        10 => "list",
        11 | 20 => "set",
        12 | 17 => "zset",
        _ => return Err(input.refuse("a type that is not known")),
    };
    if kind == 25 {
        input.skip(8)?;
    }
    skip_string(input)?;
    Ok(name)
}

/// Steps over the fields of a module's value, which the id comes before, and its end mark.
///
/// # Errors
///
/// What the input says, and when a field has no known opcode.
#[inline]
pub fn skip_module<I: Input>(input: &mut I) -> Result<(), I::Error> {
    loop {
        match u8::try_from(input.length()?) {
            Ok(rdb::END) => return Ok(()),
            Ok(rdb::SIGNED | rdb::UNSIGNED) => drop(input.length()?),
            Ok(rdb::FLOAT) => input.skip(4)?,
            Ok(rdb::DOUBLE) => input.skip(8)?,
            Ok(rdb::STRING) => skip_string(input)?,
            _ => return Err(input.refuse("a module's field that is not known")),
        }
    }
}

/// The name of a module's type.
pub fn module_name(id: ModuleId) -> TypeName {
    TypeName::Module(id.name())
}

/// Steps over a string in any form.
///
/// # Errors
///
/// What the input says, and when this is no string.
#[inline]
pub fn skip_string<I: Input>(input: &mut I) -> Result<(), I::Error> {
    let len = match input.head()? {
        Head::Length(len) => len,
        Head::Special(0) => 1,
        Head::Special(1) => 2,
        Head::Special(2) => 4,
        Head::Special(3) => {
            let (compressed, _) = (input.length()?, input.length()?);
            compressed
        }
        Head::Special(_) => return Err(input.refuse("a string in an unknown form")),
    };
    input.skip(len)
}

fn skip_pair<I: Input>(input: &mut I) -> Result<(), I::Error> {
    skip_string(input)?;
    skip_string(input)
}

/// Each element takes bytes, so that a count which is too great ends with the input.
fn skip_each<I: Input>(input: &mut I, mut skip: impl FnMut(&mut I) -> Result<(), I::Error>) -> Result<(), I::Error> {
    for _ in 0..input.length()? {
        skip(input)?;
    }
    Ok(())
}

fn skip_score<I: Input>(input: &mut I) -> Result<(), I::Error> {
    match input.byte()? {
        // Not a number, and the two infinities.
        253..=255 => Ok(()),
        len => input.skip(len.into()),
    }
}

/// Hashes whose fields have lives.
fn skip_hash<I: Input>(input: &mut I, kind: u8, dialect: Dialect) -> Result<(), I::Error> {
    if kind == 22 && dialect == Dialect::Valkey {
        return skip_each(input, |input| skip_pair(input).and_then(|()| input.skip(8)));
    }
    if kind == 24 {
        input.skip(8)?;
    }
    skip_each(input, |input| input.length().and_then(|_| skip_pair(input)))
}

fn skip_stream<I: Input>(input: &mut I, kind: u8) -> Result<(), I::Error> {
    let (has_ids, has_active) = (kind >= 19, kind >= 21);
    skip_each(input, skip_pair)?;
    skip_lengths(input, if has_ids { 8 } else { 3 })?;
    skip_each(input, |group| {
        skip_string(group)?;
        skip_lengths(group, if has_ids { 3 } else { 2 })?;
        skip_each(group, |pending| {
            pending.skip(24)?;
            skip_lengths(pending, 1)
        })?;
        skip_each(group, |consumer| {
            skip_string(consumer)?;
            consumer.skip(if has_active { 16 } else { 8 })?;
            skip_each(consumer, |id| id.skip(16))
        })
    })
}

fn skip_lengths<I: Input>(input: &mut I, count: usize) -> Result<(), I::Error> {
    for _ in 0..count {
        input.length()?;
    }
    Ok(())
}
