//! Reading a request's words: numbers by Redis' rules, and a cursor for options.

use super::error::CommandError;
use crate::resp::{Args, parse_integer};

/// A cursor as Redis reads it, with C's `strtoul`: up to the first NUL, no digit at all being 0; a sign and leading zeros are
/// taken, a minus counts from 2^64 down. Blanks are not.
#[must_use]
pub fn cursor(word: &[u8]) -> Option<u64> {
    let text = word.split(|byte| *byte == 0).next().unwrap_or_default();
    let (negative, digits) = match text {
        [] => return Some(0),
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    // What is no digit is left to this: it takes a sign, but the sign is gone.
    let digits = std::str::from_utf8(digits).ok().filter(|digits| !digits.starts_with(['+', '-']))?;
    let value: u64 = digits.parse().ok()?;
    Some(if negative { value.wrapping_neg() } else { value })
}

/// An integer where Redis keeps it in 32 bits.
///
/// # Errors
/// As Redis words them: no integer, or one outside 32 bits.
pub fn small_integer(word: &[u8]) -> Result<i32, CommandError> {
    const RANGE: &str = "ERR value is out of range, value must between -2147483648 and 2147483647";
    let value = parse_integer(word).ok_or(CommandError::NotAnInteger)?;
    i32::try_from(value).map_err(|_| CommandError::text(RANGE))
}

/// A decimal number as Redis 8 reads it; infinities are taken (a range decides), `nan` and blanks are not.
#[must_use]
pub fn double(word: &[u8]) -> Option<f64> {
    let value: f64 = std::str::from_utf8(word).ok()?.parse().ok()?;
    (!value.is_nan()).then_some(value)
}

/// Whether a word is this keyword, in any letter case.
#[must_use]
pub fn is(word: &[u8], keyword: &str) -> bool {
    word.eq_ignore_ascii_case(keyword.as_bytes())
}

/// Goes through the words of a request from left to right.
pub struct Words<'a> {
    args: Args<'a>,
    at: usize,
}

impl<'a> Words<'a> {
    /// From the word at this place on.
    #[must_use]
    pub fn from(args: Args<'a>, at: usize) -> Self {
        Self { args, at }
    }

    /// Place of the next word.
    #[must_use]
    pub fn position(&self) -> usize {
        self.at
    }
}

impl<'a> Iterator for Words<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let word = self.args.get(self.at)?;
        self.at += 1;
        Some(word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each as redis-server 7.0.15 took or refused it.
    #[test]
    fn cursors_as_redis_reads_them() {
        for (word, value) in [
            ("", Some(0)),
            ("0", Some(0)),
            ("00", Some(0)),
            ("010", Some(10)),
            ("+1", Some(1)),
            ("-0", Some(0)),
            ("-1", Some(u64::MAX)),
            ("-18446744073709551615", Some(1)),
            ("18446744073709551615", Some(u64::MAX)),
            ("000000000000000000000000000001", Some(1)),
            ("\0", Some(0)),
            ("7\0x", Some(7)),
            ("18446744073709551616", None),
            ("-18446744073709551616", None),
            ("+", None),
            ("-", None),
            ("+-1", None),
            ("++1", None),
            (" 0", None),
            ("0 ", None),
            ("\t0", None),
            ("0x10", None),
            ("1a", None),
            ("\u{a0}0", None),
        ] {
            assert_eq!(cursor(word.as_bytes()), value, "{word:?}");
        }
    }

    #[test]
    fn doubles_as_redis_8_reads_them() {
        for (word, value) in [
            ("0.01", Some(0.01)),
            (".01", Some(0.01)),
            ("1.", Some(1.0)),
            ("00.01", Some(0.01)),
            ("+0.5", Some(0.5)),
            ("1E-2", Some(0.01)),
            ("inf", Some(f64::INFINITY)),
            ("-Infinity", Some(f64::NEG_INFINITY)),
            ("1e400", Some(f64::INFINITY)),
            ("1e-400", Some(0.0)),
            ("nan", None),
            ("", None),
            (" 1", None),
            ("1 ", None),
            ("0.01f", None),
            ("0x0.1p0", None),
            ("0.01\0", None),
        ] {
            assert_eq!(double(word.as_bytes()), value, "{word:?}");
        }
    }
}
