//! Lines for people.

use std::borrow::Cow;
use std::io::Write;
use std::path::Path;

use super::model::{rate, reserve_words};
use super::{CatError, Printer, flush};
use crate::filters::dleft;
use crate::filters::item_hash::HashKey;
use crate::filters::ring::{Mode, Settings};
use crate::keyspace::effect::{Cause, Effect, Profile};
use crate::persist::files::Files;
use crate::persist::record::{Change, Counted, Record, Unit, for_each_record};
use crate::persist::snapshot::read::{Progress, walk};
use crate::tools::meter::count;
use crate::tools::names::shown;

/// Prints lines.
pub struct Lines<W> {
    out: W,
}

impl<W: Write> Lines<W> {
    /// Prints to `out`.
    pub fn new(out: W) -> Lines<W> {
        Lines { out }
    }

    fn line(&mut self, position: &dyn std::fmt::Display, db: usize, text: &str) -> Result<(), CatError> {
        Ok(writeln!(self.out, "{position:>12} {db:>2}  {text}")?)
    }
}

impl<W: Write> Printer for Lines<W> {
    fn base(&mut self, files: &dyn Files, path: &Path, shown: bool, progress: &Progress) -> Result<(), String> {
        if !shown {
            return Ok(());
        }
        let lead = |reason: &dyn std::fmt::Display| format!("'{}': {reason}", path.display());
        let file = files.open(path).map_err(|error| lead(&error))?;
        let mut printed = Ok(());
        let read = walk(&*file, false, progress, &mut |key| {
            let life = key.life.map_or(String::new(), |life| format!(", ends at {life}"));
            let filter = match (key.chain, key.ring) {
                (Some(chain), _) => {
                    format!(": {} in {}", count(chain.items, "item"), count(chain.links.len() as u64, "sub-filter"))
                }
                (None, Some(ring)) => {
                    format!(": {} in {}", count(ring.items, "item"), count(ring.parts as u64, "array"))
                }
                (None, None) => String::new(),
            };
            if printed.is_ok() {
                let db = usize::try_from(key.db.unwrap_or(0)).unwrap_or(0);
                let text = format!("# {}, {}{filter}{life}", word(key.name), key.type_name);
                printed = self.line(&"base", db, &text);
            }
        });
        printed.map_err(|error| error.to_string())?;
        let profiles = read.map_err(|error| lead(&error))?.profiles;
        let mut lines = profiles.iter().map(|(prefix, profile)| profile_words(&word(prefix), profile));
        lines.try_for_each(|line| self.line(&"base", 0, &line)).map_err(|error| error.to_string())
    }

    fn unit(&mut self, unit: &Unit<'_>, position: u64, shown: bool) -> Result<(), CatError> {
        if !shown {
            return Ok(());
        }
        match unit {
            Unit::Record(record) => self.line(&position, record.db, &text(record)),
            Unit::Group(records) => {
                self.line(&position, 0, "MULTI")?;
                for_each_record(records, |record| self.line(&"", record.db, &text(record)))?;
                self.line(&"", 0, "EXEC")
            }
        }
    }

    fn end(&mut self) -> Result<(), CatError> {
        flush(&mut self.out)
    }
}

/// A word as a person would type it for redis-cli: bare if that is possible.
fn word(bytes: &[u8]) -> Cow<'_, str> {
    let bare = |byte: &u8| byte.is_ascii_graphic() && !b"\"'\\#<".contains(byte);
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.is_empty() && text.len() <= 200 && bytes.iter().all(bare) => Cow::Borrowed(text),
        _ => Cow::Owned(shown(bytes)),
    }
}

/// The command that sets a profile.
fn profile_words(prefix: &str, profile: &Profile) -> String {
    format!("CHAIN.PROFILE SET {prefix} {}", profile_options(profile))
}

/// The words that set a profile.
pub(in crate::tools) fn profile_options(profile: &Profile) -> String {
    let (settings, keyed) = (&profile.settings, if profile.keyed { " KEYED" } else { "" });
    let (capacity, error) = (settings.capacity, rate(settings.error));
    format!("CAPACITY {capacity} ERROR {error}{}{keyed}", ring_options(settings))
}

/// What stands behind error and capacity of a ring.
fn ring_options(settings: &Settings) -> String {
    let mut words = match settings.mode {
        Mode::Dual { threshold } => format!(" DUAL THRESHOLD {threshold}"),
        Mode::Count => format!(" LINKS {}", settings.links),
        Mode::Window(window) => {
            let bounded = if window.bounded { " BOUNDED" } else { "" };
            let clock = if window.by_events { " CLOCK EVENT" } else { "" };
            format!(" LINKS {} PWINDOW {}{bounded}{clock}", settings.links, window.span_ms)
        }
    };
    if settings.link_error {
        words += " LINKERROR";
    }
    if let Some(idle) = settings.idle {
        words += &format!(" IDLE {idle}");
    }
    words + &seed(settings.key)
}

/// The words that give a key.
fn seed(key: Option<HashKey>) -> String {
    key.map_or(String::new(), |key| {
        let digits: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
        format!(" SEED {digits}")
    })
}

/// What stands behind error and capacity of a d-left filter.
fn dleft_options(settings: &dleft::Settings) -> String {
    let growth = settings
        .growth
        .map_or(String::new(), |growth| format!(" EXPANSION {} FINAL {}", growth.factor, growth.final_capacity));
    let dleft::Settings { subtables, cells, counter_bits, .. } = settings;
    let overflow = if settings.spill { " OVERFLOW SPILL" } else { "" };
    let shape = format!(" SUBTABLES {subtables} CELLS {cells} COUNTERBITS {counter_bits}");
    format!("{growth}{shape}{overflow}{}", seed(settings.key))
}

fn text(record: &Record<'_>) -> String {
    let name = word(record.name);
    let effect = match &record.change {
        Change::BloomAdded { link, items } => {
            let items: Vec<_> = items.iter().map(|item| word(item)).collect();
            let link = if *link > 0 { format!(" # sub-filter {link}") } else { String::new() };
            return format!("BF.MADD {name} {}{link}", items.join(" "));
        }
        Change::RingAdded { event, items } if items.is_empty() => {
            return format!("# the time of {name} is {}", event.now);
        }
        Change::RingAdded { event, items } => {
            let items: Vec<_> = items.iter().map(|item| word(item)).collect();
            let at = if event.at > 0 { format!(" AT {}", event.at) } else { String::new() };
            return format!("CHAIN.INSERT {name}{at} ITEMS {}", items.join(" "));
        }
        Change::Counted { what, items } => {
            let items: Vec<_> = items.iter().map(|item| word(item)).collect();
            let command = match what {
                Counted::Added => "CBF.MADD",
                Counted::Removed => "CBF.MDEL",
                Counted::DleftAdded => "DLCBF.MADD",
                Counted::DleftRemoved => "DLCBF.MDEL",
            };
            return format!("{command} {name} {}", items.join(" "));
        }
        Change::Effect(effect) => effect,
    };
    match effect {
        Effect::BloomCreated { shape, options, growth, life } => {
            let settings = reserve_words(shape, *options, *growth).map_or_else(
                || format!("# {} items at {}, options {options}, growth {growth}", shape.entries, rate(shape.error)),
                |words| words.join(" "),
            );
            let life = life.map_or(String::new(), |life| format!(" PXAT {life}"));
            format!("BF.RESERVE {name} {settings}{life}")
        }
        Effect::BloomAdded { .. }
        | Effect::RingAdded { .. }
        | Effect::CountingAdded { .. }
        | Effect::CountingRemoved { .. }
        | Effect::DleftAdded { .. }
        | Effect::DleftRemoved { .. } => String::new(),
        Effect::CountingCreated { settings, life, .. } => {
            let life = life.map_or(String::new(), |life| format!(" PXAT {life}"));
            let strict = if settings.strict { " STRICT" } else { "" };
            let (error, capacity) = (rate(settings.error), settings.capacity);
            let bits = settings.counter_bits.bits();
            format!("CBF.RESERVE {name} {error} {capacity} COUNTERBITS {bits}{strict}{}{life}", seed(settings.key))
        }
        Effect::CountingHeader { cursor, header } => format!("CBF.LOADCHUNK {name} {cursor} <{} bytes>", header.len()),
        Effect::CountingDecayed => format!("CBF.DECAY {name}"),
        Effect::DleftCreated { settings, life, .. } => {
            let life = life.map_or(String::new(), |life| format!(" PXAT {life}"));
            let (error, capacity) = (rate(settings.error), settings.capacity);
            format!("DLCBF.RESERVE {name} {error} {capacity}{}{life}", dleft_options(settings))
        }
        Effect::DleftHeader { cursor, header } => format!("DLCBF.LOADCHUNK {name} {cursor} <{} bytes>", header.len()),
        Effect::RingCreated { settings, life, .. } => {
            let life = life.map_or(String::new(), |life| format!(" PXAT {life}"));
            format!(
                "CHAIN.RESERVE {name} {} {}{}{life}",
                rate(settings.error),
                settings.capacity,
                ring_options(settings)
            )
        }
        Effect::RingHeader { cursor, header } => format!("CHAIN.LOADCHUNK {name} {cursor} <{} bytes>", header.len()),
        Effect::RingRotated => format!("CHAIN.ROTATE {name}"),
        Effect::RingCleared => format!("CHAIN.CLEAR {name}"),
        Effect::RingLinks { links, .. } => format!("# {name} has {links} links"),
        Effect::Profile { settings: None } => format!("CHAIN.PROFILE DEL {name}"),
        Effect::Profile { settings: Some(profile) } => profile_words(&name, profile),
        Effect::BloomGrown { shape } => {
            format!("# {name} grows: a sub-filter for {} items at {}", shape.entries, rate(shape.error))
        }
        Effect::BloomHeader { header } => format!("BF.LOADCHUNK {name} 1 <{} bytes>", header.len()),
        Effect::BloomChunk { link, offset, data } => {
            format!("BF.LOADCHUNK {name} <{} bytes> # sub-filter {link}, from byte {offset}", data.len())
        }
        Effect::Restored { payload, life: Some(life) } => {
            format!("RESTORE {name} {life} <{} bytes> REPLACE ABSTTL", payload.len())
        }
        Effect::Restored { payload, life: None } => format!("RESTORE {name} 0 <{} bytes> REPLACE", payload.len()),
        Effect::Life { life: Some(life) } => format!("PEXPIREAT {name} {life}"),
        Effect::Life { life: None } => format!("PERSIST {name}"),
        Effect::Deleted { cause } => {
            let why = match cause {
                Cause::Command => "",
                Cause::Expired => " # its life was over",
                Cause::Evicted => " # its memory was needed",
            };
            format!("DEL {name}{why}")
        }
        Effect::Renamed { to } => format!("RENAME {name} {}", word(to)),
        Effect::Copied { db, to } => format!("COPY {name} {} DB {db} REPLACE", word(to)),
        Effect::Moved { db } => format!("MOVE {name} {db}"),
        Effect::Flushed { all: true } => "FLUSHALL".to_owned(),
        Effect::Flushed { all: false } => "FLUSHDB".to_owned(),
        Effect::Swapped { with } => format!("SWAPDB {} {with}", record.db),
    }
}
