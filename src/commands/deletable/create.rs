//! Making filters that one can delete from.

use super::{Family, FamilyOptions, name_of};
use crate::commands::bloom::Bounds;
use crate::commands::context::Context;
use crate::commands::dispatch::{Outcome, Stop};
use crate::commands::error::CommandError;
use crate::commands::options::{Common, KeySource, Place, capacity, error_rate};
use crate::commands::words::Words;
use crate::config::Settings as Directives;
use crate::keyspace::entry::EntryRef;
use crate::keyspace::{Cell, Keyspace};
use crate::resp::{Args, Reply};

/// What a new filter is to be.
pub(in crate::commands) struct New<F: Family> {
    settings: F::Settings,
    key: Option<KeySource>,
    life: Option<u64>,
}

impl<F: Family> New<F> {
    /// What an add makes.
    pub fn by_settings(directives: &Directives) -> Self {
        Self { settings: F::by_settings(directives), key: None, life: None }
    }

    /// Make the filter, where there is no key.
    ///
    /// # Errors
    /// It may not be so large, or there is no memory; no random numbers for its key.
    pub fn create(&self, cell: &mut Cell<'_>, bounds: Bounds<'_>, keyspace: &Keyspace) -> Result<(), CommandError> {
        let mut settings = self.settings;
        if let Some(key) = self.key {
            F::set_key(&mut settings, key.key()?);
        }
        F::create(&settings, self.life, cell, bounds, keyspace)
    }
}

/// The options that a command was given so far.
pub(super) struct Options<F: Family> {
    common: Common,
    own: F::Options,
}

impl<F: Family> Options<F> {
    pub fn new() -> Self {
        Self { common: Common::default(), own: F::Options::default() }
    }

    /// Take a word that is an option, and its value. Whether it was one.
    ///
    /// # Errors
    /// As [`FamilyOptions::take`].
    pub fn take(&mut self, word: &[u8], words: &mut Words<'_>, place: &Place<'_>) -> Result<bool, CommandError> {
        let most = F::most_capacity(place.directives);
        Ok(self.own.take(word, words, place)? || self.common.take(word, words, place, most)?)
    }

    /// What is to be made, where these are the numbers that no option gives.
    ///
    /// # Errors
    /// As [`FamilyOptions::set`].
    pub fn over(self, sizes: Option<(u64, f64)>, directives: &Directives) -> Result<New<F>, CommandError> {
        let mut new = New::<F>::by_settings(directives);
        let Common { capacity, error, .. } = self.common;
        let (own_capacity, own_error) = sizes.unwrap_or_else(|| F::sizes(&new.settings));
        F::set_sizes(&mut new.settings, capacity.unwrap_or(own_capacity), error.unwrap_or(own_error));
        self.own.set(&mut new.settings, directives)?;
        (new.key, new.life) = (self.common.key(), self.common.life());
        Ok(new)
    }
}

/// `RESERVE key error capacity [options]`
pub(super) fn reserve<F: Family>(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let new = reserve_options::<F>(context, args)?;
    let (bounds, keyspace) = (Bounds::of(context), context.keyspace);
    context.write(&args[1], |cell| match cell.get().map(EntryRef::value) {
        None => new.create(cell, bounds, keyspace).map(|()| Reply::Ok).map_err(Stop::from),
        Some(value) => {
            let error = F::no_filter(&value);
            Err(F::filter(value).map_or(error, |_| CommandError::ItemExists).into())
        }
    })?
}

fn reserve_options<F: Family>(context: &Context<'_>, args: Args<'_>) -> Result<New<F>, CommandError> {
    let place = Place::behind_sizes(context, name_of(args));
    let error = error_rate(&args[2])?;
    let capacity = capacity(&args[3], F::most_capacity(place.directives))?;
    let (mut options, mut words) = (Options::<F>::new(), Words::from(args, 4));
    while let Some(word) = words.next() {
        if !options.take(word, &mut words, &place)? {
            return Err(CommandError::Unexpected(word.into()));
        }
    }
    options.over(Some((capacity, error)), place.directives)
}
