//! Making Bloom filters, and making them grow: options, ranges, limits of memory.

use crate::commands::context::{Context, Host, Room};
use crate::commands::dispatch::{Outcome, Stop};
use crate::commands::error::CommandError;
use crate::commands::life;
use crate::commands::options::in_range;
use crate::commands::words::{Words, double, is};
use crate::config::Settings;
use crate::filters::bits::AllocError;
use crate::filters::bloom::{GrowthError, MAX_ERROR, Shape, ShapeError, options};
use crate::keyspace::bloom::{empty_filter, push_link};
use crate::keyspace::effect::Effect;
use crate::keyspace::entry::{Entry, EntryRef, ValueRef};
use crate::keyspace::held::Held;
use crate::keyspace::{Cell, Record};
use crate::resp::{Args, Reply, parse_integer};

/// Greatest growth factor that a command can ask for.
const MAX_EXPANSION: u64 = 32_768;

/// What a new filter is to be.
#[derive(Clone)]
pub(super) struct NewFilter {
    error: f64,
    capacity: u64,
    growth: u32,
    non_scaling: bool,
    life: Option<u64>,
}

/// What limits the memory of a filter.
#[derive(Clone, Copy)]
pub(in crate::commands) struct Bounds<'a> {
    settings: &'a Settings,
    host: &'a dyn Host,
    /// Everything is locked: nobody can be waited for.
    whole: bool,
}

impl<'a> Bounds<'a> {
    pub(in crate::commands) fn of(context: &Context<'a>) -> Self {
        Self {
            settings: context.settings,
            host: context.host,
            whole: context.held.as_ref().is_some_and(Held::is_whole),
        }
    }

    /// The settings.
    pub(in crate::commands) fn settings(self) -> &'a Settings {
        self.settings
    }

    /// Whether a filter of `total` bytes of bits may be, `more` of which are new, beside `kept` that cannot go for them.
    pub(in crate::commands) fn check(self, total: u64, more: u64, kept: u64) -> Result<(), CommandError> {
        let limit = self.settings.max_filter_memory();
        if total > limit {
            return Err(CommandError::FilterTooLarge { bytes: total, limit });
        }
        if more == 0 {
            return Ok(());
        }
        match self.host.room_for(more, kept) {
            Room::Made => Ok(()),
            Room::Freeing if self.whole => Ok(()),
            Room::Freeing | Room::Going => Err(CommandError::NoRoomYet { bytes: more }),
            Room::Refused => Err(CommandError::OutOfMemory),
        }
    }

    /// Whether a filter of so many bytes of bits may be added to those that are there.
    pub(in crate::commands) fn check_new(self, bytes: u64) -> Result<(), CommandError> {
        self.check(bytes, bytes, 0)
    }

    /// Whether a copy of a filter of so many bytes of bits may be added.
    pub(in crate::commands) fn check_copy(self, bytes: u64) -> Result<(), CommandError> {
        self.check(bytes, bytes, bytes)
    }
}

impl NewFilter {
    /// What an add makes: the settings' values.
    pub(super) fn by_default(settings: &Settings) -> Self {
        let growth = settings.bf_expansion_factor();
        Self {
            error: settings.bf_error_rate(),
            capacity: settings.bf_initial_size(),
            growth,
            non_scaling: growth == 0,
            life: None,
        }
    }

    pub(super) fn set_error(&mut self, error: f64) {
        self.error = error.min(MAX_ERROR);
    }

    pub(super) fn set_capacity(&mut self, capacity: u64) {
        self.capacity = capacity;
    }

    /// A growth of 0 makes a filter that does not scale; an explicit one makes it scale whatever the default is.
    pub(super) fn set_growth(&mut self, growth: u32) {
        self.growth = growth;
        self.non_scaling = growth == 0;
    }

    /// The moment at which the key ends, in milliseconds since 1970.
    pub(super) fn set_life(&mut self, life: u64) {
        self.life = Some(life);
    }

    pub(super) fn set_non_scaling(&mut self) {
        self.non_scaling = true;
    }

    /// Make the filter, where there is no key.
    ///
    /// # Errors
    /// The rate is too small to be halved, the filter is larger than allowed, or there is no memory.
    pub(super) fn create(&self, cell: &mut Cell<'_>, bounds: Bounds<'_>) -> Result<(), CommandError> {
        let options = if self.non_scaling { options::FIXED } else { options::SCALING };
        let shape = Shape::first(self.capacity, self.error, options).map_err(|error| match error {
            ShapeError::TooLarge => CommandError::TooLarge,
            ShapeError::Rate | ShapeError::NoEntries => CommandError::CannotCreate,
        })?;
        bounds.check_new(shape.bytes)?;
        cell.insert(empty_filter(cell.name(), &shape, options, self.growth, self.life)?);
        let (growth, life) = (self.growth, self.life);
        cell.record(&Effect::BloomCreated { shape, options, growth, life });
        Ok(())
    }
}

impl From<AllocError> for CommandError {
    fn from(error: AllocError) -> Self {
        Self::InsufficientMemory { bytes: error.bytes }
    }
}

/// Give a full filter its next sub-filter.
///
/// # Errors
/// No further one is possible or allowed, or there is no memory; the filter is as it was.
pub(super) fn grow(entry: &mut Entry, record: &dyn Record, bounds: Bounds<'_>) -> Result<(), CommandError> {
    let ValueRef::Bloom(bloom) = entry.value() else { return Err(CommandError::WrongType) };
    let (filters, limit) = (bloom.len() as u64, u64::from(bounds.settings.bf_max_filters()));
    if filters >= limit {
        return Err(CommandError::TooManyFilters { filters, limit });
    }
    let shape = bloom.next_shape().map_err(|error| match error {
        GrowthError::Shape(ShapeError::TooLarge) => CommandError::TooLarge,
        _ => CommandError::CannotGrow,
    })?;
    bounds.check(bloom.bit_bytes().saturating_add(shape.bytes), shape.bytes, bloom.bit_bytes())?;
    push_link(entry, &shape)?;
    record.record(&Effect::BloomGrown { shape });
    Ok(())
}

/// An error rate inside (0, 1).
pub(super) fn error_rate(word: &[u8]) -> Result<f64, CommandError> {
    let rate = double(word).ok_or(CommandError::Bad("error rate"))?;
    if rate > 0.0 && rate < 1.0 { Ok(rate) } else { Err(CommandError::ErrorRateRange) }
}

/// A capacity that may be asked for.
pub(super) fn capacity(word: &[u8], settings: &Settings) -> Result<u64, CommandError> {
    in_range("capacity", word, 1, settings.bf_max_capacity())
}

/// A growth factor.
pub(super) fn expansion(word: &[u8]) -> Result<u32, CommandError> {
    in_range("expansion", word, 0, MAX_EXPANSION).map(|growth| growth as u32)
}

/// `BF.RESERVE key error capacity [EXPANSION n] [NONSCALING] [EX s | PX ms | EXAT unix-s | PXAT unix-ms]`
pub(super) fn reserve(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let filter = reserve_options(args, context.settings, context.now())?;
    let bounds = Bounds::of(context);
    context.write(&args[1], |cell| match cell.get().map(EntryRef::value) {
        None => filter.create(cell, bounds).map(|()| Reply::Ok).map_err(Stop::from),
        Some(ValueRef::Bloom(_)) => Err(CommandError::ItemExists.into()),
        Some(_) => Err(CommandError::WrongType.into()),
    })?
}

fn reserve_options(args: Args<'_>, settings: &Settings, now: u64) -> Result<NewFilter, CommandError> {
    let mut filter = NewFilter::by_default(settings);
    filter.set_error(error_rate(&args[2])?);
    filter.set_capacity(capacity(&args[3], settings)?);
    let (mut growth, mut non_scaling, mut given_life) = (None, false, None);
    let mut words = Words::from(args, 4);
    while let Some(word) = words.next() {
        if is(word, "EXPANSION") {
            let value = words.next().ok_or(CommandError::NoValue("expansion"))?;
            let value = parse_integer(value).map(|_| value).ok_or(CommandError::Bad("expansion"))?;
            if growth.replace(value).is_some() {
                return Err(CommandError::GivenTwice("EXPANSION"));
            }
        } else if is(word, "NONSCALING") {
            if std::mem::replace(&mut non_scaling, true) {
                return Err(CommandError::GivenTwice("NONSCALING"));
            }
        } else if let Some(unit) = life::unit(word) {
            life::once(given_life.replace(unit), unit)?;
            let value = words.next().ok_or(CommandError::NoValue(unit.lower_word()))?;
            filter.set_life(life::moment(value, unit, now, "bf.reserve")?);
        } else {
            return Err(CommandError::Unexpected(word.into()));
        }
    }
    if let Some(word) = growth {
        if non_scaling && word != b"0" {
            return Err(CommandError::NonScalingExpansion);
        }
        filter.set_growth(expansion(word)?);
    }
    if non_scaling {
        filter.set_non_scaling();
    }
    Ok(filter)
}
