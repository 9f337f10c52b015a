//! Values of directives: from words, to text.
//!
//! One function, [`Directive::parse`], turns words into a [`Value`]; the config file, the command line and `CONFIG SET`
//! all go through it. Texts of refusals are those of Redis 7 (read off a running 7.0.15) and, for the settings of
//! RedisBloom, those of RedisBloom 8.

use std::borrow::Cow;

use super::directive::{Directive, Kind};
use crate::filters::LEAST_ERROR;

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

/// Words to choose from, an empty one as it is written.
fn listed(words: &[&str]) -> String {
    words.iter().map(|word| if word.is_empty() { "\"\"" } else { word }).collect::<Vec<_>>().join(", ")
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
    #[error("argument(s) must be one of the following: {}", listed(.0))]
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
    /// A rate that filters cannot have.
    #[error("Value for `{0}` must be in the range [1e-15, 1)")]
    FilterRateRange(&'static str),
    /// A text that is longer than allowed.
    #[error("argument must be at most {0} bytes long")]
    TooLong(usize),
    /// A path with a NUL byte in it, or an empty one where one is needed.
    #[error("argument must be a path")]
    NotPath,
    /// A path where a name is needed.
    #[error("{0} can't be a path, just a filename")]
    NotName(&'static str),
    /// Not pairs of seconds and changes.
    #[error("Invalid save parameters")]
    NotSavePoints,
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
            Kind::SavePoints => save_points(&split(words)),
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
            Kind::Rate | Kind::FilterRate => self.rate(word),
            Kind::Bool => choice(word, &["no", "yes"]).ok_or(ValueError::NotBool),
            Kind::Choice(words) => choice(word, words).ok_or(ValueError::NotChoice(words)),
            Kind::Password => text(word, MAX_PASSWORD_BYTES),
            Kind::File => path(word),
            Kind::Folder if word.is_empty() => Err(ValueError::NotPath),
            Kind::Folder => path(word),
            Kind::FileName if word.is_empty() || word.contains(&b'/') || word == b"." || word == b".." => {
                Err(ValueError::NotName(self.name))
            }
            Kind::FileName => path(word),
            Kind::Addresses | Kind::OutputLimits | Kind::SavePoints => Err(ValueError::WordCount),
        }
    }

    /// A rate as RedisBloom reads it, within the range of its kind; Rust's own number syntax is the same but for `nan`.
    fn rate(&self, word: &[u8]) -> Result<Value, ValueError> {
        let invalid = ValueError::FilterInvalid(self.name);
        if word.len() > MAX_RATE_TEXT_BYTES {
            return Err(invalid);
        }
        match std::str::from_utf8(word).ok().and_then(|text| text.parse::<f64>().ok()) {
            None => Err(invalid),
            Some(rate) if rate.is_nan() => Err(invalid),
            Some(rate) if matches!(self.kind, Kind::FilterRate) => match (LEAST_ERROR..1.0).contains(&rate) {
                true => Ok(Value::Rate(rate, word.to_vec())),
                false => Err(ValueError::FilterRateRange(self.name)),
            },
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

/// A snapshot is taken when so many seconds have passed since the last one and there were so many changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SavePoint {
    /// At least 1.
    pub seconds: u64,
    /// May be 0.
    pub changes: u64,
}

impl SavePoint {
    /// Those in a text that [`Kind::SavePoints`] has taken.
    pub(super) fn all_in(text: &[u8]) -> Vec<Self> {
        let numbers: Vec<u64> = split(&[text]).into_iter().filter_map(|word| integer(word)?.try_into().ok()).collect();
        numbers.as_chunks().0.iter().map(|[seconds, changes]| Self { seconds: *seconds, changes: *changes }).collect()
    }
}

fn save_points(words: &[&[u8]]) -> Result<Value, ValueError> {
    let sound = |[seconds, changes]: &[&[u8]; 2]| {
        integer(seconds).is_some_and(|seconds| seconds >= 1) && integer(changes).is_some_and(|changes| changes >= 0)
    };
    let (pairs, rest) = words.as_chunks::<2>();
    let all_sound = rest.is_empty() && pairs.iter().all(sound);
    if all_sound { Ok(Value::Text(words.join(&b' '))) } else { Err(ValueError::NotSavePoints) }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{DIRECTIVES, DefaultValue, Id};

    fn parse(id: Id, word: &str) -> Result<Value, String> {
        id.directive().parse(&[word]).map_err(|error| error.to_string())
    }

    #[test]
    fn every_default_passes_its_own_parser() {
        for directive in &DIRECTIVES {
            match directive.default {
                DefaultValue::Text(text) => assert!(directive.parse(&[text]).is_ok(), "{}", directive.name),
                DefaultValue::Cores => assert_eq!(directive.id, Id::Threads),
            }
        }
    }

    /// Units as in the comment at the head of Redis's own redis.conf.
    #[test]
    fn sizes_have_the_units_of_redis() {
        let cases = [
            ("0", 0),
            ("1", 1),
            ("1b", 1),
            ("1k", 1000),
            ("1kb", 1024),
            ("1m", 1_000_000),
            ("1mb", 1_048_576),
            ("1g", 1_000_000_000),
            ("1gb", 1_073_741_824),
            ("5GB", 5 * 1_073_741_824),
            ("5gB", 5 * 1_073_741_824),
            ("0001k", 1000),
            ("18446744073709551615", u64::MAX),
            ("18446744073709551616", u64::MAX),
            ("20000000000gb", u64::MAX),
        ];
        for (text, bytes) in cases {
            assert_eq!(parse_size(text.as_bytes()), Some(bytes), "{text}");
        }
        for text in ["", "b", "gb", "-1", "+1", " 1", "1 ", "1 gb", "1.5gb", "0x10", "1tb", "1kbb", "1e3", "k1", "\0"] {
            assert_eq!(parse_size(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn integers_are_written_as_redis_writes_them() {
        for (text, number) in
            [("0", 0), ("1", 1), ("-1", -1), ("9223372036854775807", i64::MAX), ("-9223372036854775808", i64::MIN)]
        {
            assert_eq!(integer(text.as_bytes()), Some(number), "{text}");
        }
        for text in [
            "",
            "-",
            "+1",
            "01",
            "00",
            "-0",
            "-01",
            " 1",
            "1 ",
            "1e3",
            "1.5",
            "0x1",
            "9223372036854775808",
            "1\0",
            "--1",
        ] {
            assert_eq!(integer(text.as_bytes()), None, "{text:?}");
        }
    }

    /// Limit, limit + 1, 2^32, 2^63 - 1, -1, 1.5, 1e3 and nothing, for every directive that is a number.
    #[test]
    fn numbers_are_taken_up_to_their_bounds_and_not_beyond() {
        for directive in &DIRECTIVES {
            let (Kind::Integer { min, max } | Kind::FilterInteger { min, max }) = directive.kind else { continue };
            for number in [min, max] {
                assert_eq!(directive.parse(&[number.to_string()]), Ok(Value::Number(number)), "{}", directive.name);
            }
            let beyond = [max + 1, 1 << 32, i64::MAX as u64].into_iter().filter(|&number| number > max);
            let below = min.checked_sub(1);
            for text in beyond.chain(below).map(|number| number.to_string()).chain(["-1".to_string()]) {
                let error = directive.parse(&[&text]).expect_err(&text).to_string();
                assert!(error.contains(&min.to_string()) && error.contains(&max.to_string()), "{error}");
            }
            for text in ["1.5", "1e3", "", "99999999999999999999"] {
                let error = directive.parse(&[text]).expect_err(text);
                assert!(matches!(error, ValueError::NotInteger | ValueError::FilterInvalid(_)), "{text}: {error}");
            }
        }
    }

    #[test]
    fn rates_are_those_of_redisbloom() {
        for (text, rate, reads) in [
            ("0.01", 0.01, "0.01"),
            ("1e-3", 0.001, "1e-3"),
            (".01", 0.01, ".01"),
            ("+0.01", 0.01, "+0.01"),
            ("00.01", 0.01, "00.01"),
            ("0.25", 0.25, "0.25"),
            ("0.2500001", 0.25, "0.25"),
            ("0.9", 0.25, "0.25"),
            ("5e-324", 5e-324, "5e-324"),
        ] {
            assert_eq!(parse(Id::BfErrorRate, text), Ok(Value::Rate(rate, reads.into())), "{text}");
        }
        for text in ["0", "-0", "1", "1.", "2", "-0.5", "inf", "-infinity", "1e400", "1e-400"] {
            let error = "Value for `bf-error-rate` must be in the range (0.000000, 1.000000)";
            assert_eq!(parse(Id::BfErrorRate, text), Err(error.into()), "{text}");
        }
        for text in ["", "nan", "-NaN", "0.01f", " 0.01", "0.01 ", "0,01", "0x1p-3", "0.01\0", "1e", "."] {
            assert_eq!(parse(Id::BfErrorRate, text), Err("Invalid value for `bf-error-rate`".into()), "{text:?}");
        }
        for (text, rate) in [("1e-15", 1e-15), ("0.9", 0.9)] {
            assert_eq!(parse(Id::CbfErrorRate, text), Ok(Value::Rate(rate, text.into())), "{text}");
        }
        for text in ["1e-16", "0", "1", "-1"] {
            let error = "Value for `cbf-error-rate` must be in the range [1e-15, 1)";
            assert_eq!(parse(Id::CbfErrorRate, text), Err(error.into()), "{text}");
        }
        let long = format!("0.{}1", "0".repeat(MAX_RATE_TEXT_BYTES));
        assert_eq!(parse(Id::BfErrorRate, &long), Err("Invalid value for `bf-error-rate`".into()));
    }

    #[test]
    fn filter_memory_is_a_size_or_a_share() {
        assert_eq!(parse(Id::MaxFilterMemory, "64mb"), Ok(Value::Number(64 << 20)));
        assert_eq!(parse(Id::MaxFilterMemory, "0"), Ok(Value::Number(0)));
        assert_eq!(parse(Id::MaxFilterMemory, "1%"), Ok(Value::Share(1)));
        assert_eq!(parse(Id::MaxFilterMemory, "100%"), Ok(Value::Share(100)));
        for text in ["0%", "101%", "%", "-5%", "1.5%", "80 %", "x", ""] {
            let error = "argument must be a memory value or a percentage between 1% and 100%";
            assert_eq!(parse(Id::MaxFilterMemory, text), Err(error.into()), "{text}");
        }
    }

    #[test]
    fn modes_are_octal() {
        assert_eq!(parse(Id::UnixSocketPerm, "700"), Ok(Value::Number(0o700)));
        assert_eq!(parse(Id::UnixSocketPerm, "0777"), Ok(Value::Number(0o777)));
        for text in ["", "8", "0x1", "-1", "rwx"] {
            assert_eq!(parse(Id::UnixSocketPerm, text), Err("argument couldn't be parsed as an octal number".into()));
        }
        for text in ["1777", &"7".repeat(100)] {
            assert_eq!(parse(Id::UnixSocketPerm, text), Err("argument must be between 0 and 777 inclusive".into()));
        }
    }

    #[test]
    fn addresses_are_words_with_an_optional_dash() {
        let bind = Id::Bind.directive();
        let joined = Value::Text(b"* -::* fe80::1%eth0 my-host.example".to_vec());
        assert_eq!(bind.parse(&["*", "-::*", "fe80::1%eth0", "my-host.example"]), Ok(joined.clone()));
        assert_eq!(bind.parse(&[" *  -::* fe80::1%eth0\tmy-host.example "]), Ok(joined));
        assert_eq!(bind.parse(&[""]), Ok(Value::Text(Vec::new())));
        assert_eq!(bind.parse::<&str>(&[]), Err(ValueError::WordCount));
        for word in ["-", "--x", "a/b", "a\0", "é", &"x".repeat(300)] {
            assert_eq!(bind.parse(&[word]), Err(ValueError::NotAddress), "{word}");
        }
        assert_eq!(bind.parse(&[&b"\xff"[..]]), Err(ValueError::NotAddress));
        assert!(bind.parse(&["::1"; MAX_ADDRESSES]).is_ok());
        assert_eq!(bind.parse(&["::1"; MAX_ADDRESSES + 1]), Err(ValueError::TooManyAddresses));
        assert_eq!(BindAddress::parse("-::1"), Some(BindAddress { optional: true, host: "::1".into() }));
        assert_eq!(BindAddress::parse("::1"), Some(BindAddress { optional: false, host: "::1".into() }));
    }

    #[test]
    fn paths_are_bytes_without_nul() {
        let logfile = Id::Logfile.directive();
        assert_eq!(logfile.parse(&[&b"/tmp/\xff"[..]]), Ok(Value::Text(b"/tmp/\xff".to_vec())));
        assert_eq!(logfile.parse(&["a\0b"]), Err(ValueError::NotPath));
        assert_eq!(logfile.parse(&["x".repeat(MAX_PATH_BYTES)]), Err(ValueError::TooLong(MAX_PATH_BYTES - 1)));
        assert_eq!(Id::Dir.directive().parse(&[""]), Err(ValueError::NotPath));
    }

    #[test]
    fn one_value_is_one_word() {
        for directive in
            DIRECTIVES.iter().filter(|d| !matches!(d.kind, Kind::Addresses | Kind::OutputLimits | Kind::SavePoints))
        {
            assert_eq!(directive.parse::<&str>(&[]), Err(ValueError::WordCount), "{}", directive.name);
            assert_eq!(directive.parse(&["1", "1"]), Err(ValueError::WordCount), "{}", directive.name);
        }
    }

    #[test]
    fn messages_stay_on_one_short_line() {
        assert_eq!(printable(b"plain"), "plain");
        assert_eq!(printable(b"a\r\nb\0\xff"), "a  b \u{fffd}");
        assert_eq!(printable(&[b'x'; 128]), "x".repeat(128));
        assert_eq!(printable(&[b'x'; 129]), format!("{}…", "x".repeat(128)));
    }

    #[test]
    fn words_stand_at_their_variants() {
        for (position, word) in LogLevel::WORDS.iter().enumerate() {
            assert_eq!(format!("{:?}", LogLevel::from_number(position as u64)).to_lowercase(), *word);
        }
        for (position, word) in LogFormat::WORDS.iter().enumerate() {
            assert_eq!(format!("{:?}", LogFormat::from_number(position as u64)).to_lowercase(), *word);
        }
        for (position, class) in ClientClass::ALL.iter().enumerate() {
            assert_eq!(*class as usize, position);
        }
    }
}
