//! Key names are any bytes. Here they become text: to be shown, or to be written and read back.

use std::borrow::Cow;

/// Longest name that is shown whole.
const MAX_SHOWN_BYTES: usize = 200;

/// A name between quotes, as text if it is that, with escapes if it is not, cut if it is long.
pub fn shown(name: &[u8]) -> String {
    let (name, end) = match name.get(..MAX_SHOWN_BYTES) {
        Some(start) if name.len() > MAX_SHOWN_BYTES => (start, "\"…"),
        _ => (name, "\""),
    };
    match std::str::from_utf8(name) {
        Ok(text) if !text.contains(|c: char| c.is_control() || c == '"' || c == '\\') => format!("\"{text}{end}"),
        _ => format!("\"{}{end}", name.escape_ascii()),
    }
}

/// A name in which everything but visible ASCII is written as `%` and two hexadecimal digits, and `%` itself.
pub fn encoded(name: &[u8]) -> String {
    let mut text = String::with_capacity(name.len());
    for &byte in name {
        match byte {
            b'!'..=b'~' if byte != b'%' => text.push(char::from(byte)),
            _ => text += &format!("%{byte:02x}"),
        }
    }
    text
}

/// What [`encoded`] was made from, or a part of a URL; `None` if a `%` is not followed by two digits.
pub fn decoded(text: &[u8]) -> Option<Cow<'_, [u8]>> {
    if !text.contains(&b'%') {
        return Some(Cow::Borrowed(text));
    }
    let mut bytes = text.iter();
    let mut name = Vec::with_capacity(text.len());
    let digit = |byte: Option<&u8>| char::from(*byte?).to_digit(16);
    while let Some(&byte) = bytes.next() {
        name.push(match byte {
            b'%' => u8::try_from(digit(bytes.next())? * 16 + digit(bytes.next())?).ok()?,
            _ => byte,
        });
    }
    Some(Cow::Owned(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_can_be_written_and_read_back() {
        let all: Vec<u8> = (0..=255).collect();
        let text = encoded(&all);
        assert!(text.bytes().all(|byte| byte.is_ascii_graphic()));
        assert_eq!(decoded(text.as_bytes()).unwrap(), all);
        assert_eq!(encoded(b"user:1%"), "user:1%25");
        assert_eq!(encoded(b""), "");
        for wrong in [&b"%"[..], b"%4", b"%4g", b"a%-1"] {
            assert_eq!(decoded(wrong), None);
        }
    }

    #[test]
    fn names_are_shown_in_a_line() {
        assert_eq!(shown(b"user:1"), "\"user:1\"");
        assert_eq!(shown("gr\u{fc}n".as_bytes()), "\"gr\u{fc}n\"");
        assert_eq!(shown(b"a\nb\xff"), "\"a\\nb\\xff\"");
        assert!(shown(&[b'x'; 1000]).len() < 210);
    }
}
