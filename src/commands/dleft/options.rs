//! The options of the commands that make d-left filters.

use crate::commands::deletable::FamilyOptions;
use crate::commands::error::CommandError;
use crate::commands::options::{Place, exclude, flag, in_range, once, value_of};
use crate::commands::words::{Words, is};
use crate::config::Settings as Directives;
use crate::filters::dleft::geometry::{CELLS, SUBTABLES};
use crate::filters::dleft::{Growth, MOST_SETS, Settings};
use crate::resp::parse_integer;

/// The shape that was measured most.
pub(super) const DEFAULT_SUBTABLES: u32 = 4;
/// Of a bucket.
pub(super) const DEFAULT_CELLS: u32 = 8;
/// An item can be counted four times.
pub(super) const DEFAULT_COUNTER_BITS: u32 = 2;
/// Greatest growth factor that a command can ask for.
const MAX_EXPANSION: u64 = 32_768;
/// A filter that grows becomes so many times as large, if nothing else is said.
const DEFAULT_GROWTH: u64 = 16;

/// The options that a command was given so far.
#[derive(Default)]
pub(in crate::commands) struct Options {
    expansion: Option<u32>,
    final_capacity: Option<u64>,
    non_scaling: bool,
    subtables: Option<u32>,
    cells: Option<u32>,
    counter_bits: Option<u32>,
    spill: Option<bool>,
}

impl FamilyOptions<Settings> for Options {
    fn take(&mut self, word: &[u8], words: &mut Words<'_>, place: &Place<'_>) -> Result<bool, CommandError> {
        if is(word, "EXPANSION") {
            let value = in_range("expansion", value_of("expansion", words)?, 0, MAX_EXPANSION)?;
            once("EXPANSION", &mut self.expansion, value as u32)?;
            exclude(self.non_scaling, "NONSCALING", "EXPANSION")?;
        } else if is(word, "FINAL") {
            let value = in_range("final", value_of("final", words)?, 1, place.directives.dlcbf_max_capacity())?;
            once("FINAL", &mut self.final_capacity, value)?;
        } else if is(word, "NONSCALING") {
            flag("NONSCALING", &mut self.non_scaling)?;
            exclude(self.expansion.is_some(), "EXPANSION", "NONSCALING")?;
        } else if is(word, "SUBTABLES") {
            let (min, max) = (u64::from(*SUBTABLES.start()), u64::from(*SUBTABLES.end()));
            let value = in_range("subtables", value_of("subtables", words)?, min, max)?;
            once("SUBTABLES", &mut self.subtables, value as u32)?;
        } else if is(word, "CELLS") {
            let (min, max) = (u64::from(*CELLS.start()), u64::from(*CELLS.end()));
            let value = in_range("cells", value_of("cells", words)?, min, max)?;
            once("CELLS", &mut self.cells, value as u32)?;
        } else if is(word, "COUNTERBITS") {
            let bits = counter_bits(value_of("counterbits", words)?)?;
            once("COUNTERBITS", &mut self.counter_bits, bits)?;
        } else if is(word, "OVERFLOW") {
            let spill = match value_of("overflow", words)? {
                value if is(value, "REFUSE") => false,
                value if is(value, "SPILL") => true,
                _ => return Err(CommandError::Bad("overflow")),
            };
            once("OVERFLOW", &mut self.spill, spill)?;
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    fn set(self, settings: &mut Settings, directives: &Directives) -> Result<(), CommandError> {
        let most = directives.dlcbf_max_capacity().max(settings.capacity);
        settings.growth = match (self.expansion.filter(|factor| *factor > 0), self.final_capacity) {
            (None, None) => None,
            (None, Some(_)) => return Err(CommandError::text("ERR FINAL needs EXPANSION")),
            (Some(_), Some(last)) if last < settings.capacity => {
                return Err(CommandError::OutOfRange { what: "final", min: settings.capacity, max: most });
            }
            (Some(1), Some(last)) if last > settings.capacity.saturating_mul(MOST_SETS as u64) => {
                return Err(CommandError::text("ERR FINAL needs more than 1024 sets, use a greater EXPANSION"));
            }
            (Some(factor), last) => {
                let by_itself = settings.capacity.saturating_mul(DEFAULT_GROWTH).min(most);
                Some(Growth { factor, final_capacity: last.unwrap_or(by_itself) })
            }
        };
        settings.subtables = self.subtables.unwrap_or(settings.subtables);
        settings.cells = self.cells.unwrap_or(settings.cells);
        settings.counter_bits = self.counter_bits.unwrap_or(settings.counter_bits);
        settings.spill = self.spill.unwrap_or(settings.spill);
        Ok(())
    }
}

fn counter_bits(word: &[u8]) -> Result<u32, CommandError> {
    let bits = parse_integer(word).ok_or(CommandError::Bad("counterbits"))?;
    let bits = u32::try_from(bits).ok().filter(|bits| matches!(bits, 2 | 4));
    bits.ok_or(CommandError::text("ERR counterbits must be 2 or 4"))
}
