//! Making Bloom filters, and making them grow: options, ranges, limits of memory.

use crate::commands::context::Context;
use crate::commands::dispatch::Outcome;
use crate::commands::error::CommandError;
use crate::commands::words::{Words, double, is};
use crate::config::Settings;
use crate::filters::bits::AllocError;
use crate::filters::bloom::{GrowthError, MAX_ERROR, Shape, ShapeError, options};
use crate::filters::scalable_bloom::ScalableBloom;
use crate::filters::{BloomMut, BloomRef, packed_bloom};
use crate::keyspace::Place;
use crate::keyspace::entry::{Entry, Value, ValueMut, ValueRef, packed_size};
use crate::resp::{Args, Reply, parse_integer};

/// Greatest growth factor that a command can ask for.
const MAX_EXPANSION: u64 = 32_768;

/// What a new filter is to be.
pub(super) struct NewFilter {
    error: f64,
    capacity: u64,
    growth: u32,
    non_scaling: bool,
}

impl NewFilter {
    /// What an add makes: the settings' values.
    pub(super) fn by_default(settings: &Settings) -> Self {
        let growth = settings.bf_expansion_factor();
        Self { error: settings.bf_error_rate(), capacity: settings.bf_initial_size(), growth, non_scaling: growth == 0 }
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

    pub(super) fn set_non_scaling(&mut self) {
        self.non_scaling = true;
    }

    /// The filter, as an entry of this name.
    ///
    /// # Errors
    /// The rate is too small to be halved, the filter is larger than allowed, or there is no memory.
    pub(super) fn build(&self, name: &[u8], settings: &Settings) -> Result<Entry, CommandError> {
        let options = if self.non_scaling { options::FIXED } else { options::SCALING };
        let shape = Shape::first(self.capacity, self.error, options).map_err(|error| match error {
            ShapeError::TooLarge => CommandError::InsufficientMemory { bytes: u64::MAX },
            ShapeError::Rate | ShapeError::NoEntries => CommandError::CannotCreate,
        })?;
        check_size(shape.bytes, settings)?;
        let payload = packed_bloom::payload_len([&shape]);
        if packed_bloom::fits(&shape, self.growth) && packed_size(name, payload).is_some() {
            let create = |payload: &mut [u8]| packed_bloom::create(payload, options, self.growth, &shape);
            return Ok(Entry::packed_bloom(name, payload, create)?);
        }
        Ok(Entry::boxed(name, Value::Bloom(ScalableBloom::new(options, self.growth, shape)?))?)
    }
}

impl From<AllocError> for CommandError {
    fn from(error: AllocError) -> Self {
        Self::InsufficientMemory { bytes: error.bytes }
    }
}

/// Whether a filter may have so many bytes of bits.
fn check_size(bytes: u64, settings: &Settings) -> Result<(), CommandError> {
    let limit = settings.max_filter_memory();
    if bytes > limit { Err(CommandError::FilterTooLarge { bytes, limit }) } else { Ok(()) }
}

/// Give a full filter its next sub-filter.
///
/// # Errors
/// No further one is possible or allowed, or there is no memory; the filter is as it was.
pub(super) fn grow(entry: &mut Entry, settings: &Settings) -> Result<(), CommandError> {
    let ValueRef::Bloom(bloom) = entry.value() else { return Err(CommandError::WrongType) };
    let (filters, limit) = (bloom.len() as u64, u64::from(settings.bf_max_filters()));
    if filters >= limit {
        return Err(CommandError::TooManyFilters { filters, limit });
    }
    let shape = bloom.next_shape().map_err(|error| match error {
        GrowthError::Shape(ShapeError::TooLarge) => CommandError::InsufficientMemory { bytes: u64::MAX },
        _ => CommandError::CannotGrow,
    })?;
    check_size(bloom.bit_bytes().saturating_add(shape.bytes), settings)?;
    if let BloomRef::Packed(chain) = bloom {
        let repacked = chain.appended_len(&shape).filter(|payload| packed_size(entry.name(), *payload).is_some());
        let grown = match repacked {
            Some(payload) => Entry::packed_bloom(entry.name(), payload, |new| {
                packed_bloom::append(chain.payload(), &shape, new);
            })?,
            None => {
                let mut large = chain.to_scalable()?;
                large.push_link(shape)?;
                Entry::boxed(entry.name(), Value::Bloom(large))?
            }
        };
        grown.as_ref().touch(entry.as_ref().stamp());
        *entry = grown;
    } else if let ValueMut::Bloom(BloomMut::Large(chain)) = entry.value_mut() {
        chain.push_link(shape)?;
    }
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

fn in_range(what: &'static str, word: &[u8], min: u64, max: u64) -> Result<u64, CommandError> {
    let value = parse_integer(word).ok_or(CommandError::Bad(what))?;
    let inside = u64::try_from(value).ok().filter(|value| (min..=max).contains(value));
    inside.ok_or(CommandError::OutOfRange { what, min, max })
}

/// `BF.RESERVE key error capacity [EXPANSION n] [NONSCALING]`
pub(super) fn reserve(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let filter = reserve_options(args, context.settings)?;
    let name = &args[1];
    context.keyspace.write(context.session.db, name, |place| match place {
        Place::Vacant(vacant) => {
            vacant.insert(filter.build(name, context.settings)?);
            Ok(Reply::Ok)
        }
        Place::Occupied(entry) => Err(match entry.value() {
            ValueRef::Bloom(_) => CommandError::ItemExists.into(),
            _ => CommandError::WrongType.into(),
        }),
    })?
}

fn reserve_options(args: Args<'_>, settings: &Settings) -> Result<NewFilter, CommandError> {
    let mut filter = NewFilter::by_default(settings);
    filter.set_error(error_rate(&args[2])?);
    filter.set_capacity(capacity(&args[3], settings)?);
    let (mut growth, mut non_scaling) = (None, false);
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
