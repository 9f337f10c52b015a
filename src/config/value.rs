//! Values of directives: from words, to text.
//!
//! One function, [`Directive::parse`], turns words into a [`Value`]; the config file, the command line and `CONFIG SET`
//! all go through it. Texts of refusals are those of Redis 7 (read off a running 7.0.15) and, for the settings of
//! RedisBloom, those of RedisBloom 8.

use std::borrow::Cow;

use super::directive::{Directive, Kind};

/// Longest password: as long as an argument may be before a client has authenticated, or nobody could give it.
const MAX_PASSWORD_BYTES: usize = 16_384;
/// Longest text of a rate; it is kept as it was written.
const MAX_RATE_TEXT_BYTES: usize = 128;
/// Longest path that Linux takes, its final NUL included.
const MAX_PATH_BYTES: usize = 4096;
/// Most addresses of `bind`, as in Redis.
const MAX_ADDRESSES: usize = 16;
/// Rates above this are stored as this; RedisBloom does the same.
const MAX_RATE: f64 = 0.25;

/// A checked value of a directive.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Integers, sizes in bytes, octal modes; 0 or 1 for [`Kind::Bool`]; the position of the word for [`Kind::Choice`].
    Number(u64),
    /// Percent of the memory available at start.
    Share(u8),
    /// A rate and the text it reads back as.
    Rate(f64, Vec<u8>),
    /// Passwords, paths, addresses (joined with single blanks).
    Text(Vec<u8>),
    /// New limits by [`ClientClass`]; `None` leaves a class as it is.
    OutputLimits([Option<OutputLimit>; ClientClass::COUNT]),
}

/// Why a value was refused. `Display` gives the text that stands after the lead-in of `CONFIG SET`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    /// Not one word where one is needed.
    #[error("wrong number of arguments")]
    WordCount,
    /// Not a whole number.
    #[error("argument couldn't be parsed into an integer")]
    NotInteger,
    /// Not an octal number.
    #[error("argument couldn't be parsed as an octal number")]
    NotOctal,
    /// Not a number of bytes.
    #[error("argument must be a memory value")]
    NotSize,
    /// Not a number of bytes, nor a percentage from 1% to 100%.
    #[error("argument must be a memory value or a percentage between 1% and 100%")]
    NotShare,
    /// A number outside its range.
    #[error("argument must be between {0} and {1} inclusive")]
    Range(u64, u64),
    /// An octal number outside its range.
    #[error("argument must be between 0 and {0:o} inclusive")]
    OctalRange(u64),
    /// Neither yes nor no.
    #[error("argument must be 'yes' or 'no'")]
    NotBool,
    /// None of the words allowed.
    #[error("argument(s) must be one of the following: {}", .0.join(", "))]
    NotChoice(&'static [&'static str]),
    /// A setting of the filters that is not a number.
    #[error("Invalid value for `{0}`")]
    FilterInvalid(&'static str),
    /// A whole-number setting of the filters outside its range.
    #[error("Value for `{0}` must be in the range [{1}, {2}]")]
    FilterRange(&'static str, u64, u64),
    /// A rate outside (0, 1).
    #[error("Value for `{0}` must be in the range (0.000000, 1.000000)")]
    RateRange(&'static str),
    /// A text that is longer than allowed.
    #[error("argument must be at most {0} bytes long")]
    TooLong(usize),
    /// A path with a NUL byte in it, or an empty one where one is needed.
    #[error("argument must be a path")]
    NotPath,
    /// Something in a list of addresses that cannot be one.
    #[error("argument must be a list of addresses")]
    NotAddress,
    /// More addresses than can be listened on.
    #[error("Too many bind addresses specified.")]
    TooManyAddresses,
    /// Output limits that are not groups of four words.
    #[error("Wrong number of arguments in buffer limit configuration.")]
    LimitCount,
    /// A class of clients that does not exist.
    #[error("Invalid client class '{0}' specified in buffer limit configuration.")]
    LimitClass(String),
    /// An output limit that is not a number of bytes or of seconds.
    #[error("Error in hard, soft or soft_seconds setting in buffer limit configuration.")]
    LimitNumber,
}

impl Directive {
    /// Checks words and makes them the directive's value.
    ///
    /// A directive of several words also takes them as one word with blanks, the form that `CONFIG SET` gives.
    ///
    /// # Errors
    /// [`ValueError`] says what is wrong with them.
    pub fn parse<W: AsRef<[u8]>>(&self, words: &[W]) -> Result<Value, ValueError> {
        match self.kind {
            Kind::Addresses if words.is_empty() => Err(ValueError::WordCount),
            Kind::Addresses => addresses(&split(words)),
            Kind::OutputLimits => output_limits(&split(words)),
            _ => match words {
                [word] => self.parse_word(word.as_ref()),
                _ => Err(ValueError::WordCount),
            },
        }
    }

    fn parse_word(&self, word: &[u8]) -> Result<Value, ValueError> {
        match self.kind {
            Kind::Integer { min, max } => {
                let number = integer(word).ok_or(ValueError::NotInteger)?;
                in_range(number, min, max).ok_or(ValueError::Range(min, max)).map(Value::Number)
            }
            Kind::FilterInteger { min, max } => {
                let number = integer(word).ok_or(ValueError::FilterInvalid(self.name))?;
                in_range(number, min, max).ok_or(ValueError::FilterRange(self.name, min, max)).map(Value::Number)
            }
            Kind::Octal { max } => octal(word, max),
            Kind::Bytes { min, max } => match parse_size(word).ok_or(ValueError::NotSize)? {
                bytes if (min..=max).contains(&bytes) => Ok(Value::Number(bytes)),
                _ => Err(ValueError::Range(min, max)),
            },
            Kind::MemoryShare => memory_share(word),
            Kind::Rate => self.rate(word),
            Kind::Bool => choice(word, &["no", "yes"]).ok_or(ValueError::NotBool),
            Kind::Choice(words) => choice(word, words).ok_or(ValueError::NotChoice(words)),
            Kind::Password => text(word, MAX_PASSWORD_BYTES),
            Kind::File => path(word),
            Kind::Folder if word.is_empty() => Err(ValueError::NotPath),
            Kind::Folder => path(word),
            Kind::Addresses | Kind::OutputLimits => Err(ValueError::WordCount),
        }
    }

    /// A rate as RedisBloom reads it; Rust's own number syntax is the same but for `nan`.
    fn rate(&self, word: &[u8]) -> Result<Value, ValueError> {
        let invalid = ValueError::FilterInvalid(self.name);
        if word.len() > MAX_RATE_TEXT_BYTES {
            return Err(invalid);
        }
        match std::str::from_utf8(word).ok().and_then(|text| text.parse::<f64>().ok()) {
            None => Err(invalid),
            Some(rate) if rate.is_nan() => Err(invalid),
            Some(rate) if rate <= 0.0 || rate >= 1.0 => Err(ValueError::RateRange(self.name)),
            Some(rate) if rate > MAX_RATE => Ok(Value::Rate(MAX_RATE, MAX_RATE.to_string().into_bytes())),
            Some(rate) => Ok(Value::Rate(rate, word.to_vec())),
        }
    }
}

/// A whole number as Redis reads one: `0`, or an optional `-` and digits without a leading zero, within an `i64`.
fn integer(word: &[u8]) -> Option<i64> {
    let digits = word.strip_prefix(b"-").unwrap_or(word);
    let plain = digits.iter().all(u8::is_ascii_digit) && (word == b"0" || matches!(digits.first(), Some(b'1'..=b'9')));
    if plain { std::str::from_utf8(word).ok()?.parse().ok() } else { None }
}

fn in_range(number: i64, min: u64, max: u64) -> Option<u64> {
    u64::try_from(number).ok().filter(|number| (min..=max).contains(number))
}

fn octal(word: &[u8], max: u64) -> Result<Value, ValueError> {
    if word.is_empty() || !word.iter().all(|digit| matches!(digit, b'0'..=b'7')) {
        return Err(ValueError::NotOctal);
    }
    let number = word.iter().fold(0u64, |sum, digit| sum.saturating_mul(8).saturating_add(u64::from(digit - b'0')));
    if number <= max { Ok(Value::Number(number)) } else { Err(ValueError::OctalRange(max)) }
}

/// A number of bytes as Redis writes it: digits and an optional unit in any letter case: `b`; `k`, `m`, `g` for powers
/// of 1000; `kb`, `mb`, `gb` for powers of 1024. What does not fit reads as `u64::MAX`, above every limit; `None` for
/// what is no such number.
///
/// ```
/// use seendb::config::parse_size;
/// assert_eq!(parse_size(b"64kb"), Some(65536));
/// assert_eq!(parse_size(b"1G"), Some(1_000_000_000));
/// assert_eq!(parse_size(b"1.5gb"), None);
/// ```
pub fn parse_size(word: &[u8]) -> Option<u64> {
    let end = word.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(word.len());
    let (digits, unit) = word.split_at(end);
    let factor: u64 = match unit.to_ascii_lowercase().as_slice() {
        b"" | b"b" => 1,
        b"k" => 1000,
        b"kb" => 1 << 10,
        b"m" => 1_000_000,
        b"mb" => 1 << 20,
        b"g" => 1_000_000_000,
        b"gb" => 1 << 30,
        _ => return None,
    };
    if digits.is_empty() {
        return None;
    }
    let number = digits.iter().fold(0u64, |sum, digit| sum.saturating_mul(10).saturating_add(u64::from(digit - b'0')));
    Some(number.saturating_mul(factor))
}

fn memory_share(word: &[u8]) -> Result<Value, ValueError> {
    if let Some(number) = word.strip_suffix(b"%") {
        let percent = integer(number).and_then(|number| u8::try_from(number).ok()).filter(|n| (1..=100).contains(n));
        return percent.map(Value::Share).ok_or(ValueError::NotShare);
    }
    match parse_size(word).ok_or(ValueError::NotShare)? {
        bytes if bytes <= i64::MAX as u64 => Ok(Value::Number(bytes)),
        _ => Err(ValueError::Range(0, i64::MAX as u64)),
    }
}

fn choice(word: &[u8], words: &[&str]) -> Option<Value> {
    let position = words.iter().position(|known| known.as_bytes().eq_ignore_ascii_case(word))?;
    Some(Value::Number(position as u64))
}

fn text(word: &[u8], max: usize) -> Result<Value, ValueError> {
    if word.len() > max { Err(ValueError::TooLong(max)) } else { Ok(Value::Text(word.to_vec())) }
}

fn path(word: &[u8]) -> Result<Value, ValueError> {
    if word.contains(&0) { Err(ValueError::NotPath) } else { text(word, MAX_PATH_BYTES - 1) }
}

/// The words again, those with blanks inside taken apart.
fn split<W: AsRef<[u8]>>(words: &[W]) -> Vec<&[u8]> {
    words.iter().flat_map(|word| word.as_ref().split(u8::is_ascii_whitespace)).filter(|word| !word.is_empty()).collect()
}

fn addresses(words: &[&[u8]]) -> Result<Value, ValueError> {
    if words.len() > MAX_ADDRESSES {
        return Err(ValueError::TooManyAddresses);
    }
    let readable = |word: &&[u8]| std::str::from_utf8(word).is_ok_and(|text| BindAddress::parse(text).is_some());
    if words.iter().all(readable) { Ok(Value::Text(words.join(&b' '))) } else { Err(ValueError::NotAddress) }
}

/// An address to listen on, as written in `bind`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BindAddress {
    /// Written with a leading `-`: skipped when this machine does not have it.
    pub optional: bool,
    /// An IPv4 or IPv6 address or a host name; `*` for all of IPv4, `::*` for all of IPv6.
    pub host: String,
}

impl BindAddress {
    /// Longest host name, by the rules of DNS.
    const MAX_HOST_BYTES: usize = 253;

    /// Reads one word of `bind`; `None` if it can be neither an address nor a host name.
    pub(super) fn parse(word: &str) -> Option<Self> {
        let (optional, host) = match word.strip_prefix('-') {
            Some(host) => (true, host),
            None => (false, word),
        };
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".:-_%*".contains(&byte);
        let fits = !host.is_empty() && host.len() <= Self::MAX_HOST_BYTES && !host.starts_with('-');
        (fits && host.bytes().all(plain)).then(|| Self { optional, host: host.to_string() })
    }
}

/// The classes of clients that output limits tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientClass {
    /// Sends commands, reads replies.
    Normal,
    /// Has subscribed to at least one channel or pattern.
    PubSub,
}

impl ClientClass {
    /// How many classes there are.
    pub const COUNT: usize = 2;
    /// All classes, in the order in which they are printed.
    pub const ALL: [Self; Self::COUNT] = [Self::Normal, Self::PubSub];

    /// The word in `client-output-buffer-limit`.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::PubSub => "pubsub",
        }
    }
}

/// How many bytes of replies may wait for a client that does not read them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutputLimit {
    /// Above this many bytes the client is disconnected at once; 0 for no such limit.
    pub hard: u64,
    /// Above this many bytes for `soft_seconds` the client is disconnected; 0 for no such limit.
    pub soft: u64,
    /// Seconds that a client may stay above `soft`.
    pub soft_seconds: u32,
}

fn output_limits(words: &[&[u8]]) -> Result<Value, ValueError> {
    let (groups, rest) = words.as_chunks::<4>();
    if groups.is_empty() || !rest.is_empty() {
        return Err(ValueError::LimitCount);
    }
    let mut limits = [None; ClientClass::COUNT];
    for [class, hard, soft, seconds] in groups {
        let class = ClientClass::ALL
            .into_iter()
            .find(|known| known.word().as_bytes().eq_ignore_ascii_case(class))
            .ok_or_else(|| ValueError::LimitClass(printable(class).into_owned()))?;
        let bytes = |word| parse_size(word).filter(|&bytes| bytes <= i64::MAX as u64).ok_or(ValueError::LimitNumber);
        let soft_seconds =
            integer(seconds).and_then(|n| in_range(n, 0, i32::MAX as u64)).ok_or(ValueError::LimitNumber)?;
        let limit = OutputLimit { hard: bytes(hard)?, soft: bytes(soft)?, soft_seconds: soft_seconds as u32 };
        limits[class as usize] = Some(limit);
    }
    Ok(Value::OutputLimits(limits))
}

/// Bytes as a short line of text for messages: anything that could break the line is replaced, the rest is cut.
pub(super) fn printable(bytes: &[u8]) -> Cow<'_, str> {
    /// Longest excerpt shown.
    const MAX_CHARS: usize = 128;
    let text = String::from_utf8_lossy(bytes);
    if text.chars().count() <= MAX_CHARS && !text.contains(char::is_control) {
        return text;
    }
    let mut line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_CHARS).collect();
    if text.chars().count() > MAX_CHARS {
        line.push('…');
    }
    Cow::Owned(line)
}

/// Which messages are logged: those of this level and of all that are more severe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// Everything.
    Debug,
    /// Much that is rarely useful.
    Verbose,
    /// What an operator wants to know.
    Notice,
    /// Only what needs attention.
    Warning,
    /// No messages.
    Nothing,
}

impl LogLevel {
    /// The words of `loglevel`, in the order of the variants.
    pub(super) const WORDS: [&'static str; 5] = ["debug", "verbose", "notice", "warning", "nothing"];
    const ALL: [Self; 5] = [Self::Debug, Self::Verbose, Self::Notice, Self::Warning, Self::Nothing];

    /// From the position of its word.
    pub(super) fn from_number(number: u64) -> Self {
        Self::ALL.get(number as usize).copied().unwrap_or(Self::Notice)
    }
}

/// The form of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

impl LogFormat {
    /// The words of `log-format`, in the order of the variants.
    pub(super) const WORDS: [&'static str; 2] = ["text", "json"];

    /// From the position of its word.
    pub(super) fn from_number(number: u64) -> Self {
        if number == Self::Json as u64 { Self::Json } else { Self::Text }
    }
}
