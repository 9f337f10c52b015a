//! Lines for people.

use std::borrow::Cow;
use std::io::Write;
use std::path::Path;

use super::model::{rate, reserve_words};
use super::{CatError, Printer, flush};
use crate::keyspace::effect::{Cause, Effect};
use crate::persist::files::Files;
use crate::persist::record::{Change, Record, Unit, for_each_record};
use crate::persist::snapshot::read::{Progress, walk};
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
            let filter = key
                .chain
                .map_or(String::new(), |chain| format!(": {} items in {} sub-filters", chain.items, chain.links.len()));
            if printed.is_ok() {
                let db = usize::try_from(key.db.unwrap_or(0)).unwrap_or(0);
                let text = format!("# {}, {}{filter}{life}", word(key.name), key.type_name);
                printed = self.line(&"base", db, &text);
            }
        });
        printed.map_err(|error| error.to_string())?;
        read.map(drop).map_err(|error| lead(&error))
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

fn text(record: &Record<'_>) -> String {
    let name = word(record.name);
    let effect = match &record.change {
        Change::BloomAdded { link, items } => {
            let items: Vec<_> = items.iter().map(|item| word(item)).collect();
            let link = if *link > 0 { format!(" # sub-filter {link}") } else { String::new() };
            return format!("BF.MADD {name} {}{link}", items.join(" "));
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
        Effect::BloomAdded { .. } => String::new(),
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
