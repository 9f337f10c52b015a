//! Options that every family of filters has, and how options are read: whole words in any letter case and order, each once.

use super::context::Context;
use super::error::CommandError;
use super::life;
use super::words::{Words, double, is};
use crate::config::Settings;
use crate::filters::LEAST_ERROR;
use crate::filters::item_hash::HashKey;
use crate::resp::parse_integer;

/// Where options stand: what else they may be, and what their errors name.
pub(super) struct Place<'a> {
    /// The command.
    pub command: &'static str,
    /// The settings in force.
    pub directives: &'a Settings,
    /// The time, in milliseconds since 1970.
    pub now: u64,
    /// Whether a life may be given.
    pub takes_life: bool,
    /// Whether capacity and error are options here.
    pub takes_sizes: bool,
}

impl<'a> Place<'a> {
    /// Behind the two numbers of a command that makes a filter.
    pub fn behind_sizes(context: &Context<'a>, command: &'static str) -> Self {
        Self { takes_sizes: false, ..Self::with_sizes(context, command) }
    }

    /// In a command that makes a filter on its way.
    pub fn with_sizes(context: &Context<'a>, command: &'static str) -> Self {
        Self { command, directives: context.settings, now: context.now(), takes_life: true, takes_sizes: true }
    }
}

/// The options that all families have.
#[derive(Default)]
pub(super) struct Common {
    /// `CAPACITY n`
    pub capacity: Option<u64>,
    /// `ERROR r`
    pub error: Option<f64>,
    keyed: bool,
    seed: Option<HashKey>,
    life: Option<(life::Unit, u64)>,
}

/// Where the key of a filter's hashes comes from, if it has one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum KeySource {
    /// It is drawn when the filter is made.
    Drawn,
    /// It was given.
    Given(HashKey),
}

impl KeySource {
    /// The key that a filter gets which is made now.
    ///
    /// # Errors
    /// The system has no random numbers for it.
    pub fn key(self) -> Result<HashKey, CommandError> {
        match self {
            Self::Drawn => random(),
            Self::Given(key) => Ok(key),
        }
    }
}

impl Common {
    /// Take a word that is one of these options, and its value. Whether it was one.
    ///
    /// # Errors
    /// A value that is missing or wrong, a capacity above `most`; an option given twice, or with one that excludes it.
    pub fn take(
        &mut self,
        word: &[u8],
        words: &mut Words<'_>,
        place: &Place<'_>,
        most: u64,
    ) -> Result<bool, CommandError> {
        if place.takes_sizes && is(word, "CAPACITY") {
            let value = capacity(value_of("capacity", words)?, most)?;
            once("CAPACITY", &mut self.capacity, value)?;
        } else if place.takes_sizes && is(word, "ERROR") {
            let value = error_rate(value_of("error", words)?)?;
            once("ERROR", &mut self.error, value)?;
        } else if is(word, "KEYED") {
            flag("KEYED", &mut self.keyed)?;
            exclude(self.seed.is_some(), "SEED", "KEYED")?;
        } else if is(word, "SEED") {
            let seed = seed(value_of("seed", words)?)?;
            once("SEED", &mut self.seed, seed)?;
            exclude(self.keyed, "KEYED", "SEED")?;
        } else if let (true, Some(unit)) = (place.takes_life, life::unit(word)) {
            life::once(self.life.map(|(unit, _)| unit), unit)?;
            let value = value_of(unit.lower_word(), words)?;
            self.life = Some((unit, life::moment(value, unit, place.now, place.command)?));
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    /// When the key is to end, in milliseconds since 1970.
    pub fn life(&self) -> Option<u64> {
        self.life.map(|(_, life)| life)
    }

    /// The key of the filter's hashes, if an option was about it.
    pub fn key(&self) -> Option<KeySource> {
        self.seed.map(KeySource::Given).or(self.keyed.then_some(KeySource::Drawn))
    }
}

/// Bytes that nobody can foresee.
///
/// # Errors
/// The system has none.
pub(super) fn random<const N: usize>() -> Result<[u8; N], CommandError> {
    let mut bytes = [0; N];
    let drawn = getrandom::fill(&mut bytes);
    drawn.map_err(|error| CommandError::Text(format!("ERR no random numbers for a key: {error}").into()))?;
    Ok(bytes)
}

/// The value of an option.
///
/// # Errors
/// There is none.
pub(super) fn value_of<'a>(option: &'static str, words: &mut Words<'a>) -> Result<&'a [u8], CommandError> {
    words.next().ok_or(CommandError::NoValue(option))
}

/// An option is given once.
///
/// # Errors
/// It was given before.
pub(super) fn once<T>(word: &'static str, slot: &mut Option<T>, value: T) -> Result<(), CommandError> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(CommandError::GivenTwice(word)),
    }
}

/// The same for one without a value.
///
/// # Errors
/// It was given before.
pub(super) fn flag(word: &'static str, slot: &mut bool) -> Result<(), CommandError> {
    if std::mem::replace(slot, true) { Err(CommandError::GivenTwice(word)) } else { Ok(()) }
}

/// An option, `word`, that cannot be with another one.
///
/// # Errors
/// That one was given.
pub(super) fn exclude(given: bool, before: &'static str, word: &'static str) -> Result<(), CommandError> {
    if given { Err(CommandError::Excluded(before, word)) } else { Ok(()) }
}

/// An integer within these bounds.
///
/// # Errors
/// Not an integer, or one outside.
pub(super) fn in_range(what: &'static str, word: &[u8], min: u64, max: u64) -> Result<u64, CommandError> {
    let value = parse_integer(word).ok_or(CommandError::Bad(what))?;
    let inside = u64::try_from(value).ok().filter(|value| (min..=max).contains(value));
    inside.ok_or(CommandError::OutOfRange { what, min, max })
}

/// A capacity that may be asked for.
///
/// # Errors
/// Not an integer, 0, or more than `most`.
pub(super) fn capacity(word: &[u8], most: u64) -> Result<u64, CommandError> {
    in_range("capacity", word, 1, most)
}

/// An error rate that a filter can have.
///
/// # Errors
/// Not a number, or one outside.
pub(super) fn error_rate(word: &[u8]) -> Result<f64, CommandError> {
    let rate = double(word).ok_or(CommandError::Bad("error rate"))?;
    match (LEAST_ERROR..1.0).contains(&rate) {
        true => Ok(rate),
        false => Err(CommandError::text("ERR error rate must be in the range [1e-15, 1)")),
    }
}

fn seed(word: &[u8]) -> Result<HashKey, CommandError> {
    let bad = CommandError::Bad("seed");
    let digits = std::str::from_utf8(word).ok().filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
    let digits = digits.filter(|digits| digits.len() == 2 * size_of::<HashKey>()).ok_or(bad.clone())?;
    let number = u128::from_str_radix(digits, 16).map_err(|_| bad)?;
    Ok(number.to_be_bytes())
}

/// The cursor of a dump of a family that is not RedisBloom's.
///
/// # Errors
/// Not an integer, or a negative one.
pub(super) fn cursor(word: &[u8]) -> Result<u64, CommandError> {
    in_range("cursor", word, 0, i64::MAX as u64)
}

/// The words `[NEWER version]` at the end of an export.
///
/// # Errors
/// Other words, or a version that is no integer.
pub(super) fn newer(mut words: Words<'_>) -> Result<Option<u64>, CommandError> {
    let mut newer = None;
    while let Some(word) = words.next() {
        if !is(word, "NEWER") {
            return Err(CommandError::Unexpected(word.into()));
        }
        let value = in_range("version", value_of("newer", &mut words)?, 0, i64::MAX as u64)?;
        once("NEWER", &mut newer, value)?;
    }
    Ok(newer)
}

/// What a command that adds items makes of a missing key.
#[derive(Clone)]
pub(super) enum Missing<N> {
    /// An error.
    Refuse,
    /// What an add makes by default, which is looked up only then.
    Default,
    /// This.
    Make(N),
}

impl<N> Missing<N> {
    /// What `ADD` does, unless the settings forbid that it creates.
    pub fn by_add(settings: &Settings) -> Self {
        if settings.filter_create_on_add() { Self::Default } else { Self::Refuse }
    }
}

/// Whether a missing key is an error for a question.
///
/// # Errors
/// The setting `filter-missing-key` says so.
pub(super) fn check_missing(context: &Context<'_>, missing: bool) -> Result<(), CommandError> {
    if missing && context.settings.filter_missing_is_error() { Err(CommandError::NotFound) } else { Ok(()) }
}
