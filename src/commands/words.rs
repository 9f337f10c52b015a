//! Reading a request's words: numbers by Redis' rules, and a cursor for options.

use super::error::CommandError;
use crate::resp::{Args, parse_integer};

/// An integer without sign: digits without a leading zero; `None` for anything else and beyond 64 bits.
#[must_use]
pub fn unsigned(word: &[u8]) -> Option<u64> {
    match word {
        [] => None,
        [b'0'] => Some(0),
        [b'0', ..] => None,
        digits => digits.iter().try_fold(0_u64, |value, digit| {
            let digit = u64::from(digit.checked_sub(b'0').filter(|digit| *digit <= 9)?);
            value.checked_mul(10)?.checked_add(digit)
        }),
    }
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

    #[test]
    fn unsigned_integers() {
        for (word, value) in [
            ("0", Some(0)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("-1", None),
            ("01", None),
            ("", None),
            ("1x", None),
        ] {
            assert_eq!(unsigned(word.as_bytes()), value, "{word:?}");
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
