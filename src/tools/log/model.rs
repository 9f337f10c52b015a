//! What the server held when each record was logged: the log replayed in memory.

use std::path::Path;

use super::CatError;
use crate::filters::BloomRef;
use crate::filters::bloom::Shape;
use crate::filters::bloom::options::{FIXED, NON_SCALING, SCALING};
use crate::keyspace::Keyspace;
use crate::keyspace::effect::Effect;
use crate::keyspace::entry::EntryRef;
use crate::persist::files::Files;
use crate::persist::replay::{ReplayError, apply};
use crate::persist::snapshot::read::{self, Progress};
use crate::tools::keys::filter;

/// Growth of a filter that does not scale, where nothing else was set.
const DEFAULT_GROWTH: u32 = 2;
/// Greatest growth that a command can ask for.
const MAX_GROWTH: u32 = 32_768;
/// From here up and down rates are written with an exponent.
const PLAIN_RATE: f64 = 1e-4;

/// The keys of the server.
pub struct Model {
    keyspace: Keyspace,
}

impl Model {
    /// An empty server, on which no life ends.
    pub fn new() -> Model {
        let keyspace = Keyspace::default();
        keyspace.hold_lives(true);
        Model { keyspace }
    }

    /// All keys.
    pub fn keyspace(&self) -> &Keyspace {
        &self.keyspace
    }

    /// Takes the base in.
    pub fn load(&self, files: &dyn Files, path: &Path, progress: &Progress) -> Result<(), String> {
        let lead = |reason: &dyn std::fmt::Display| format!("'{}': {reason}", path.display());
        let file = files.open(path).map_err(|error| lead(&error))?;
        let options = read::Options { accept_damaged: false, threads: 1, now: None };
        read::load(&*file, &self.keyspace, &options, progress).map(drop).map_err(|error| lead(&error))
    }

    /// Does an effect.
    pub fn apply(&self, db: usize, name: &[u8], effect: &Effect<'_>) -> Result<(), ReplayError> {
        apply(&self.keyspace, db, name, effect)
    }

    /// Looks at a key.
    pub fn look<R>(&self, db: usize, name: &[u8], look: impl FnOnce(Option<EntryRef<'_>>) -> R) -> Result<R, CatError> {
        Ok(self.keyspace.read(db, name, look).map_err(ReplayError::from)?)
    }

    /// Looks at a filter, which must be there.
    pub fn look_at_filter<R>(
        &self,
        db: usize,
        name: &[u8],
        look: impl FnOnce(BloomRef<'_>) -> R,
    ) -> Result<R, CatError> {
        let seen = self.look(db, name, |entry| entry.and_then(filter).map(look))?;
        seen.ok_or(CatError::Replay(ReplayError::Unfitting))
    }

    /// Whether there is such a key.
    pub fn has(&self, db: usize, name: &[u8]) -> Result<bool, CatError> {
        self.look(db, name, |entry| entry.is_some())
    }

    /// Whether BF.MADD with this item would count it here, without growing.
    pub fn counts_next(&self, db: usize, name: &[u8], link: u32, item: &[u8]) -> Result<bool, CatError> {
        self.look_at_filter(db, name, |bloom| {
            let newest = bloom.len() - 1;
            let room = bloom.link(newest).is_some_and(|info| info.items < info.shape.entries);
            link as usize == newest && room && !bloom.contains(bloom.hash(item))
        })
    }

    /// Whether the next new item would make the filter grow by just this sub-filter.
    pub fn grows_next(&self, db: usize, name: &[u8], shape: &Shape) -> Result<bool, CatError> {
        self.look_at_filter(db, name, |bloom| {
            let newest = bloom.link(bloom.len() - 1);
            newest.is_some_and(|info| {
                let next = info.shape.next(bloom.options(), bloom.growth());
                info.items >= info.shape.entries && next.is_ok_and(|next| next == *shape)
            })
        })
    }
}

/// What follows the name in the BF.RESERVE that makes a filter of just this kind, whatever the server's settings are: rate,
/// capacity, growth. None if no command does.
pub fn reserve_words(shape: &Shape, options: u32, growth: u32) -> Option<Vec<String>> {
    // Where chains scale, the first rate is half of the one asked for; doubling is exact.
    let asked = if options & NON_SCALING == 0 { shape.error * 2.0 } else { shape.error };
    if !Shape::first(shape.entries, asked, options).is_ok_and(|made| made == *shape) {
        return None;
    }
    let mut words = vec![rate(asked), shape.entries.to_string()];
    match options {
        SCALING if (1..=MAX_GROWTH).contains(&growth) => words.extend(["EXPANSION".into(), growth.to_string()]),
        FIXED if growth == DEFAULT_GROWTH => words.push("NONSCALING".into()),
        _ => return None,
    }
    Some(words)
}

/// The shortest text that is read as just this rate.
pub fn rate(rate: f64) -> String {
    if rate < PLAIN_RATE { format!("{rate:e}") } else { rate.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_reserved_is_reserved_to_the_bit() {
        for error in [0.25, 0.1, 0.01, 0.001, 1e-5, 1e-100, 3e-308] {
            for entries in [1, 100, 12_345, 10_000_000] {
                let scaling = Shape::first(entries, error, SCALING).unwrap();
                let words = reserve_words(&scaling, SCALING, 4).unwrap();
                assert_eq!(words[1..], [entries.to_string(), "EXPANSION".into(), "4".into()]);
                let asked = words[0].parse().unwrap();
                assert_eq!(Shape::first(entries, asked, SCALING).unwrap(), scaling);
                let fixed = Shape::first(entries, error, FIXED).unwrap();
                let words = reserve_words(&fixed, FIXED, 2).unwrap();
                assert_eq!(words, [rate(error), entries.to_string(), "NONSCALING".into()]);
                assert_eq!(words[0].parse(), Ok(error));
                // A growth that NONSCALING does not give, and one that does not exist.
                assert_eq!(reserve_words(&fixed, FIXED, 0), None);
                assert_eq!(reserve_words(&scaling, SCALING, 0), None);
            }
        }
        // Rates from 0.25 up are no rates that a command gives a filter.
        assert_eq!(reserve_words(&Shape::new(100, 0.2).unwrap(), SCALING, 2), None);
        let legacy = Shape { log2_bits: 5, ..Shape::first(4, 0.01, SCALING).unwrap() };
        assert_eq!(reserve_words(&legacy, SCALING, 2), None);
        assert_eq!((rate(0.01), rate(1e-7)), ("0.01".into(), "1e-7".into()));
    }
}
