//! Numbers as text: the one way integers are read, the one way doubles are written.
//!
//! Integers are read as strictly as Redis reads them: `0`, or an optional `-`, a digit from 1 to 9 and further
//! digits, within i64. No plus, no blanks, no leading zeros, no `-0`. The lengths of the protocol and the numbers among
//! a command's arguments obey the same rule.
//!
//! Doubles are written as Redis 8 writes them, which is not what any language's default does. With the shortest
//! digits that read back as the same number, `n` of them, standing for `digits · 10^k`, and `e = k + n - 1` the
//! exponent of the first digit:
//!
//! | case | form | example |
//! | --- | --- | --- |
//! | integral, at most 2^62 | the integer in full | `123456789012345680`, `1000000000` |
//! | other integral, `e < n + 7` | digits, then zeros | `12345678901234567000` |
//! | `k > -7` or `\|e\| < 4`, with a fraction | decimal point | `0.9`, `0.000001` |
//! | all others | exponent with sign, no padding | `1e-7`, `1e+21`, `1.5e-6` |
//!
//! and `nan`, `inf`, `-inf`, `-0`.

/// The integer that `text` spells, or `None` when Redis would say that it is none (see the module's rule).
#[must_use]
pub fn parse_integer(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, text),
    };
    match digits {
        [b'0'] if !negative => return Some(0),
        [b'1'..=b'9', ..] => {}
        _ => return None,
    }
    let mut value: i64 = 0;
    for &byte in digits {
        if !byte.is_ascii_digit() {
            return None;
        }
        let digit = i64::from(byte - b'0');
        // Negative numbers are built downwards: i64 reaches one further there.
        let shifted = value.checked_mul(10)?;
        value = if negative { shifted.checked_sub(digit)? } else { shifted.checked_add(digit)? };
    }
    Some(value)
}

/// Appends `value` as Redis 8 prints it (see the table above); never a line break, never a blank.
pub fn format_double(value: f64, out: &mut Vec<u8>) {
    if value.is_nan() {
        out.extend_from_slice(b"nan");
    } else if value.is_infinite() {
        out.extend_from_slice(if value < 0.0 { b"-inf" } else { b"inf" });
    } else if value == 0.0 {
        out.extend_from_slice(if value.is_sign_negative() { b"-0" } else { b"0" });
    } else if let Some(integer) = small_integer(value) {
        out.extend_from_slice(itoa::Buffer::new().format(integer).as_bytes());
    } else {
        if value < 0.0 {
            out.push(b'-');
        }
        Decimal::of(value.abs()).lay_out(out);
    }
}

/// `value` as an integer if it is one of magnitude at most 2^62, where Redis prints all digits of the exact value.
fn small_integer(value: f64) -> Option<i64> {
    const LIMIT: f64 = (1_u64 << 62) as f64;
    (value.abs() <= LIMIT && value.trunc() == value).then_some(value as i64)
}

/// Longest run of digits that a shortest round trip of an f64 needs.
const MAX_DIGITS: usize = 17;

/// A positive number as `digits · 10^exponent`, without zeros at either end of the digits.
struct Decimal {
    digits: [u8; MAX_DIGITS],
    len: usize,
    exponent: i32,
}

impl Decimal {
    /// Takes the digits of ryu's text apart (`12.5`, `1e-7`, `1.5e300`), whose layout is not ours.
    fn of(value: f64) -> Self {
        let mut buffer = ryu::Buffer::new();
        let text = buffer.format_finite(value);
        let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
        let mut this = Self { digits: [0; MAX_DIGITS], len: 0, exponent: exponent.parse().unwrap_or(0) };
        let mut after_point = false;
        // Zeros are held back until a digit follows: those in front and behind never enter `digits`.
        let mut zeros = 0;
        for byte in mantissa.bytes() {
            if byte == b'.' {
                after_point = true;
                continue;
            }
            this.exponent -= i32::from(after_point);
            if byte == b'0' {
                zeros += 1;
                continue;
            }
            let held = if this.len == 0 { 0 } else { zeros };
            zeros = 0;
            for digit in std::iter::repeat_n(b'0', held).chain([byte]) {
                if let Some(slot) = this.digits.get_mut(this.len) {
                    *slot = digit;
                    this.len += 1;
                }
            }
        }
        this.exponent += zeros as i32;
        this
    }

    fn lay_out(&self, out: &mut Vec<u8>) {
        let digits = &self.digits[..self.len];
        let count = self.len as i32;
        let leading = self.exponent + count - 1;
        if self.exponent >= 0 && leading < count + 7 {
            out.extend_from_slice(digits);
            out.resize(out.len() + self.exponent as usize, b'0');
        } else if self.exponent < 0 && (self.exponent > -7 || leading.abs() < 4) {
            lay_out_point(digits, count + self.exponent, out);
        } else {
            lay_out_exponent(digits, leading, out);
        }
    }
}

/// Writes `digits` with the decimal point after `before` of them; zero or less puts `0.` and zeros in front.
fn lay_out_point(digits: &[u8], before: i32, out: &mut Vec<u8>) {
    if before <= 0 {
        out.extend_from_slice(b"0.");
        out.resize(out.len() + before.unsigned_abs() as usize, b'0');
        out.extend_from_slice(digits);
    } else {
        let (whole, fraction) = digits.split_at(before as usize);
        out.extend_from_slice(whole);
        out.push(b'.');
        out.extend_from_slice(fraction);
    }
}

/// Writes `digits` as `d.ddde±x`, where `leading` is the exponent of the first digit.
fn lay_out_exponent(digits: &[u8], leading: i32, out: &mut Vec<u8>) {
    let (first, rest) = digits.split_at(1);
    out.extend_from_slice(first);
    if !rest.is_empty() {
        out.push(b'.');
        out.extend_from_slice(rest);
    }
    out.extend_from_slice(if leading < 0 { b"e-" } else { b"e+" });
    out.extend_from_slice(itoa::Buffer::new().format(leading.unsigned_abs()).as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn double(value: f64) -> String {
        let mut out = Vec::new();
        format_double(value, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn integers_are_read_strictly() {
        let accepted: &[(&[u8], i64)] = &[
            (b"0", 0),
            (b"7", 7),
            (b"-7", -7),
            (b"1048576", 1_048_576),
            (b"9223372036854775807", i64::MAX),
            (b"-9223372036854775808", i64::MIN),
        ];
        for &(text, value) in accepted {
            assert_eq!(parse_integer(text), Some(value), "{}", text.escape_ascii());
        }
        let refused: &[&[u8]] = &[
            b"",
            b"-",
            b"+",
            b"+4",
            b"04",
            b"00",
            b"-0",
            b"-01",
            b" 4",
            b"4 ",
            b"4\0",
            b"4\n",
            b"1e3",
            b"0x4",
            b"--4",
            b"x",
            b"4x",
            b"9223372036854775808",
            b"-9223372036854775809",
            b"99999999999999999999",
        ];
        for text in refused {
            assert_eq!(parse_integer(text), None, "{}", text.escape_ascii());
        }
    }

    /// Replies observed of Redis 8 with RedisBloom's TDIGEST commands.
    #[test]
    fn doubles_read_as_redis_8_was_seen_to_print_them() {
        for (value, text) in [
            (0.9, "0.9"),
            (1e-7, "1e-7"),
            (1e21, "1e+21"),
            (123_456_789_012_345_678.0, "123456789012345680"),
            (1.0, "1"),
            (0.0, "0"),
            (-0.0, "-0"),
            (f64::NAN, "nan"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
            (5.5, "5.5"),
            (0.05, "0.05"),
            (49.696286472148536, "49.696286472148536"),
            (0.5030052493438321, "0.5030052493438321"),
            (f64::MAX, "1.7976931348623157e+308"),
            (f64::MIN, "-1.7976931348623157e+308"),
            (1e-300, "1e-300"),
            (1e-323, "1e-323"),
            (5e-324, "5e-324"),
        ] {
            assert_eq!(double(value), text);
        }
    }

    /// Both sides of each border of the module's table.
    #[test]
    fn doubles_change_form_where_redis_8_changes_it() {
        for (value, text) in [
            (4_611_686_018_427_387_904.0, "4611686018427387904"),
            (-4_611_686_018_427_387_904.0, "-4611686018427387904"),
            (4_611_686_018_427_388_928.0, "4611686018427389000"),
            (1e18, "1000000000000000000"),
            (1e19, "1e+19"),
            (1.2345678901234567e19, "12345678901234567000"),
            (1.2345678901234567e23, "123456789012345670000000"),
            (1.2345678901234568e24, "1.2345678901234568e+24"),
            (1e-6, "0.000001"),
            (1.5e-5, "0.000015"),
            (1.5e-6, "1.5e-6"),
            (0.0012345678, "0.0012345678"),
            (0.00012345678, "1.2345678e-4"),
            (-0.00012345678, "-1.2345678e-4"),
            (12345.678901, "12345.678901"),
            (12345.6789012, "1.23456789012e+4"),
            (1234.56789012345, "1234.56789012345"),
            (100.5, "100.5"),
        ] {
            assert_eq!(double(value), text);
        }
    }
}
