//! An event as a line of JSON: who saw what, and when.

use std::borrow::Cow;
use std::fmt;

use serde::de::{self, Deserialize, Deserializer, Visitor};

/// One event. Fields that it does not name are passed over.
#[derive(Debug, PartialEq, serde::Deserialize)]
pub struct Event<'a> {
    /// Whose ring it goes to.
    #[serde(borrow)]
    pub user: Name<'a>,
    /// What was seen.
    #[serde(borrow)]
    pub item: Name<'a>,
    /// When, in milliseconds since 1970.
    pub time: Option<u64>,
}

/// A user or an item: text, or a whole number, which is the same as its digits.
#[derive(Debug, PartialEq)]
pub struct Name<'a>(pub Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Name<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NameVisitor)
    }
}

struct NameVisitor;

impl<'de> Visitor<'de> for NameVisitor {
    type Value = Name<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("text or a whole number of 64 bits")
    }

    fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Name<'de>, E> {
        Ok(Name(Cow::Borrowed(text)))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Name<'de>, E> {
        Ok(Name(Cow::Owned(text.to_owned())))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Name<'de>, E> {
        Ok(Name(Cow::Owned(number.to_string())))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Name<'de>, E> {
        Ok(Name(Cow::Owned(number.to_string())))
    }
}

impl<'a> Event<'a> {
    /// What a line says, without blanks around it.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn parse(line: &'a [u8]) -> Result<Event<'a>, String> {
        // A list of three values would be taken for one as well.
        if matches!(line.first(), Some(first) if *first != b'{') {
            return Err("an event begins with {".to_owned());
        }
        serde_json::from_slice(line).map_err(|error| {
            let text = error.to_string();
            // It has one line only, which is counted by others.
            text.replace(" at line 1 column ", ", at byte ")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_numbers_are_names() {
        let event = Event::parse(br#"{"user": 7, "item": "n42", "time": 1700000000000, "page": {"no": [1, 2]}}"#);
        let event = event.unwrap();
        assert_eq!((&*event.user.0, &*event.item.0, event.time), ("7", "n42", Some(1_700_000_000_000)));
        let event = Event::parse(br#"{"item": -5, "user": "\u00fc\ud83d\ude00\n"} "#).unwrap();
        assert_eq!((&*event.user.0, &*event.item.0, event.time), ("\u{fc}\u{1f600}\n", "-5", None));
        let large = Event::parse(br#"{"item": 18446744073709551615, "user": 9007199254740993, "time": null}"#).unwrap();
        assert_eq!((&*large.user.0, &*large.item.0), ("9007199254740993", "18446744073709551615"));
    }

    #[test]
    fn what_is_no_event_is_told() {
        for (line, reason) in [
            (&b""[..], "EOF"),
            (b"{", "EOF"),
            (b"[1, 2, 3]", "begins with {"),
            (b"7", "begins with {"),
            (br#"{"user": 1, "time": 5}"#, "missing field `item`"),
            (br#"{"user": 1, "item": 1.5}"#, "expected text or a whole number"),
            (br#"{"user": 1, "item": 18446744073709551616}"#, "expected text or a whole number"),
            (br#"{"user": null, "item": 1}"#, "expected text or a whole number"),
            (br#"{"user": ["a"], "item": 1}"#, "expected text or a whole number"),
            (br#"{"user": 1, "user": 1, "item": 1}"#, "duplicate field `user`"),
            (br#"{"user": 1, "item": 1, "time": -1}"#, "invalid value"),
            (br#"{"user": 1, "item": 1, "time": "now"}"#, "invalid type"),
            (br#"{"user": 1, "item": 1} x"#, "trailing characters, at byte 24"),
            (b"{\"user\": \"\xff\", \"item\": 1}", "invalid unicode"),
        ] {
            let told = Event::parse(line).unwrap_err();
            assert!(told.contains(reason), "{}: {told}", line.escape_ascii());
        }
    }
}
