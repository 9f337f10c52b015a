//! What a ring is to be: the options of the commands that make one, the settings' values, profiles.

use crate::commands::error::CommandError;
use crate::commands::options::{Common, KeySource, Place, exclude, flag, in_range, once, value_of};
use crate::commands::words::{Words, double, is};
use crate::config::Settings as Directives;
use crate::filters::ring::settings::LINKS;
use crate::filters::ring::{Mode, Settings, Window};
use crate::keyspace::Keyspace;
use crate::keyspace::effect::Profile;

/// Ten years.
const MOST_SECONDS: u64 = 315_360_000;
const DEFAULT_LINKS: u16 = 5;
const DEFAULT_THRESHOLD: f64 = 0.5;

/// What a new ring is to be.
#[derive(Clone)]
pub(super) struct NewRing {
    /// Its settings, but for a key that is still to be drawn.
    pub settings: Settings,
    /// It gets a key of its own.
    pub keyed: bool,
    /// When its key ends, in milliseconds since 1970.
    pub life: Option<u64>,
}

impl NewRing {
    /// What an add makes of a key of this name: the profile's values, or the settings'.
    pub fn by_default(keyspace: &Keyspace, directives: &Directives, name: &[u8]) -> Self {
        match keyspace.profiles().of(name) {
            Some(Profile { settings, keyed }) => Self { settings, keyed, life: None },
            None => Self::by_settings(directives),
        }
    }

    /// The settings' values.
    pub fn by_settings(directives: &Directives) -> Self {
        let settings = Settings {
            capacity: directives.chain_initial_size().min(directives.chain_max_capacity()),
            error: directives.chain_error_rate(),
            link_error: false,
            links: DEFAULT_LINKS,
            mode: Mode::Count,
            idle: None,
            key: None,
        };
        Self { settings, keyed: false, life: None }
    }

    /// The settings in full, with the key that the ring gets.
    ///
    /// # Errors
    /// The system has no random numbers for it.
    pub fn drawn(&self) -> Result<Settings, CommandError> {
        let mut settings = self.settings;
        if self.keyed {
            settings.key = Some(KeySource::Drawn.key()?);
        }
        Ok(settings)
    }
}

/// The options that a command was given so far.
#[derive(Default)]
pub(super) struct Options {
    common: Common,
    links: Option<u16>,
    link_error: bool,
    window_ms: Option<(u64, &'static str)>,
    bounded: bool,
    by_events: Option<bool>,
    dual: bool,
    threshold: Option<f64>,
    idle: Option<u32>,
}

impl Options {
    /// Take a word that is an option, and its value. Whether it was one.
    ///
    /// # Errors
    /// A value that is missing or wrong; an option given twice, or with one that excludes it.
    pub fn take(&mut self, word: &[u8], words: &mut Words<'_>, place: &Place<'_>) -> Result<bool, CommandError> {
        if is(word, "LINKS") {
            let value = links(value_of("links", words)?, *LINKS.start())?;
            once("LINKS", &mut self.links, value)?;
            exclude(self.dual, "DUAL", "LINKS")?;
        } else if is(word, "LINKERROR") {
            flag("LINKERROR", &mut self.link_error)?;
        } else if is(word, "WINDOW") {
            let seconds = in_range("window", value_of("window", words)?, 1, MOST_SECONDS)?;
            self.window("WINDOW", seconds * 1000)?;
        } else if is(word, "PWINDOW") {
            let milliseconds = in_range("pwindow", value_of("pwindow", words)?, 1, MOST_SECONDS * 1000)?;
            self.window("PWINDOW", milliseconds)?;
        } else if is(word, "BOUNDED") {
            flag("BOUNDED", &mut self.bounded)?;
        } else if is(word, "CLOCK") {
            let by_events = match value_of("clock", words)? {
                value if is(value, "SERVER") => false,
                value if is(value, "EVENT") => true,
                _ => return Err(CommandError::Bad("clock")),
            };
            once("CLOCK", &mut self.by_events, by_events)?;
        } else if is(word, "DUAL") {
            flag("DUAL", &mut self.dual)?;
            exclude(self.links.is_some(), "LINKS", "DUAL")?;
            exclude(self.window_ms.is_some(), self.window_ms.map_or("", |(_, word)| word), "DUAL")?;
        } else if is(word, "THRESHOLD") {
            let value = double(value_of("threshold", words)?).ok_or(CommandError::Bad("threshold"))?;
            if !(0.5..1.0).contains(&value) {
                return Err(CommandError::text("ERR threshold must be in the range [0.5, 1)"));
            }
            once("THRESHOLD", &mut self.threshold, value)?;
        } else if is(word, "IDLE") {
            let seconds = in_range("idle", value_of("idle", words)?, 1, MOST_SECONDS)?;
            once("IDLE", &mut self.idle, seconds as u32)?;
        } else {
            return self.common.take(word, words, place, place.directives.chain_max_capacity());
        }
        Ok(true)
    }

    fn window(&mut self, word: &'static str, milliseconds: u64) -> Result<(), CommandError> {
        if let Some((_, before)) = self.window_ms.replace((milliseconds, word)) {
            return Err(match before == word {
                true => CommandError::GivenTwice(word),
                false => CommandError::Excluded(before, word),
            });
        }
        exclude(self.dual, "DUAL", word)
    }

    /// What is to be made: these options, and what else `base` says.
    ///
    /// # Errors
    /// An option without the one that it needs.
    pub fn over(self, base: NewRing) -> Result<NewRing, CommandError> {
        let NewRing { mut settings, mut keyed, life } = base;
        let base_mode = settings.mode;
        settings.capacity = self.common.capacity.unwrap_or(settings.capacity);
        settings.error = self.common.error.unwrap_or(settings.error);
        settings.link_error |= self.link_error;
        settings.idle = self.idle.or(settings.idle);
        if self.dual {
            let threshold = if let Mode::Dual { threshold } = base_mode { threshold } else { DEFAULT_THRESHOLD };
            settings.mode = Mode::Dual { threshold };
        } else if let Some((span_ms, _)) = self.window_ms {
            let window = if let Mode::Window(window) = base_mode { window } else { Window::default() };
            settings.mode = Mode::Window(Window { span_ms, ..window });
        } else if self.links.is_some() && matches!(base_mode, Mode::Dual { .. }) {
            settings.mode = Mode::Count;
        }
        settings.links = match settings.mode {
            Mode::Dual { .. } => *LINKS.start(),
            _ if matches!(base_mode, Mode::Dual { .. }) => self.links.unwrap_or(DEFAULT_LINKS),
            _ => self.links.unwrap_or(settings.links),
        };
        match &mut settings.mode {
            Mode::Window(window) => {
                window.bounded |= self.bounded;
                window.by_events = self.by_events.unwrap_or(window.by_events);
            }
            _ if self.bounded => return Err(CommandError::text("ERR BOUNDED needs WINDOW")),
            _ if self.by_events.is_some() => return Err(CommandError::text("ERR CLOCK needs WINDOW")),
            _ => {}
        }
        match (&mut settings.mode, self.threshold) {
            (Mode::Dual { threshold }, Some(given)) => *threshold = given,
            (_, Some(_)) => return Err(CommandError::text("ERR THRESHOLD needs DUAL")),
            (_, None) => {}
        }
        match self.common.key() {
            Some(KeySource::Given(seed)) => (settings.key, keyed) = (Some(seed), false),
            Some(KeySource::Drawn) => (settings.key, keyed) = (None, true),
            None => {}
        }
        Ok(NewRing { settings, keyed, life: self.common.life().or(life) })
    }
}

/// A number of links, at least so many.
pub(super) fn links(word: &[u8], least: u16) -> Result<u16, CommandError> {
    in_range("links", word, u64::from(least), u64::from(*LINKS.end())).map(|links| links as u16)
}
