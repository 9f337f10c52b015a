//! JSON, as far as the tools print it.

use std::fmt;

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub enum Json {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A whole number.
    Number(u64),
    /// A string.
    Text(String),
    /// `[…]`
    List(Vec<Json>),
    /// `{…}`, in this order.
    Map(Vec<(String, Json)>),
}

impl Json {
    /// A map with fixed names.
    pub fn map<const N: usize>(pairs: [(&str, Json); N]) -> Json {
        Json::Map(pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }

    /// Bytes as text. What is not UTF-8 is written with escapes, as in `\xff`.
    pub fn bytes(bytes: &[u8]) -> Json {
        match std::str::from_utf8(bytes) {
            Ok(text) => Json::Text(text.to_owned()),
            Err(_) => Json::Text(bytes.escape_ascii().to_string()),
        }
    }
}

impl From<u64> for Json {
    fn from(number: u64) -> Json {
        Json::Number(number)
    }
}

impl From<bool> for Json {
    fn from(truth: bool) -> Json {
        Json::Bool(truth)
    }
}

impl From<&str> for Json {
    fn from(text: &str) -> Json {
        Json::Text(text.to_owned())
    }
}

impl From<String> for Json {
    fn from(text: String) -> Json {
        Json::Text(text)
    }
}

impl<T: Into<Json>> From<Option<T>> for Json {
    fn from(value: Option<T>) -> Json {
        value.map_or(Json::Null, Into::into)
    }
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Json::Null => f.write_str("null"),
            Json::Bool(truth) => write!(f, "{truth}"),
            Json::Number(number) => write!(f, "{number}"),
            Json::Text(text) => write_text(f, text),
            Json::List(values) => {
                f.write_str("[")?;
                for (i, value) in values.iter().enumerate() {
                    write!(f, "{}{value}", if i > 0 { ", " } else { "" })?;
                }
                f.write_str("]")
            }
            Json::Map(pairs) => {
                f.write_str("{")?;
                for (i, (name, value)) in pairs.iter().enumerate() {
                    f.write_str(if i > 0 { ", " } else { "" })?;
                    write_text(f, name)?;
                    write!(f, ": {value}")?;
                }
                f.write_str("}")
            }
        }
    }
}

fn write_text(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    f.write_str("\"")?;
    for letter in text.chars() {
        match letter {
            '"' => f.write_str("\\\"")?,
            '\\' => f.write_str("\\\\")?,
            '\n' => f.write_str("\\n")?,
            letter if u32::from(letter) < 0x20 => write!(f, "\\u{:04x}", u32::from(letter))?,
            letter => write!(f, "{letter}")?,
        }
    }
    f.write_str("\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_read_it() {
        let value = Json::map([
            ("a\"\\\n\u{1}", Json::List(vec![Json::Null, true.into(), u64::MAX.into()])),
            ("gr\u{fc}n", Json::bytes(b"\xff")),
            ("none", None::<u64>.into()),
        ]);
        let read: serde_json::Value = serde_json::from_str(&value.to_string()).unwrap();
        let wanted = serde_json::json!({"a\"\\\n\u{1}": [null, true, u64::MAX], "gr\u{fc}n": "\\xff", "none": null});
        assert_eq!(read, wanted);
    }
}
