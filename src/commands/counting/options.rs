//! The options of the commands that make counting filters.

use crate::commands::deletable::FamilyOptions;
use crate::commands::error::CommandError;
use crate::commands::options::{Place, flag, once, value_of};
use crate::commands::words::{Words, is};
use crate::config::Settings as Directives;
use crate::filters::counting::{CounterBits, Settings};
use crate::resp::parse_integer;

/// The options that a command was given so far.
#[derive(Default)]
pub(in crate::commands) struct Options {
    counter_bits: Option<CounterBits>,
    strict: bool,
}

impl FamilyOptions<Settings> for Options {
    fn take(&mut self, word: &[u8], words: &mut Words<'_>, _: &Place<'_>) -> Result<bool, CommandError> {
        if is(word, "COUNTERBITS") {
            let bits = counter_bits(value_of("counterbits", words)?)?;
            once("COUNTERBITS", &mut self.counter_bits, bits)?;
        } else if is(word, "STRICT") {
            flag("STRICT", &mut self.strict)?;
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    fn set(self, settings: &mut Settings, _: &Directives) -> Result<(), CommandError> {
        settings.counter_bits = self.counter_bits.unwrap_or(settings.counter_bits);
        settings.strict |= self.strict;
        Ok(())
    }
}

fn counter_bits(word: &[u8]) -> Result<CounterBits, CommandError> {
    let bits = parse_integer(word).ok_or(CommandError::Bad("counterbits"))?;
    let bits = u32::try_from(bits).ok().and_then(CounterBits::new);
    bits.ok_or(CommandError::text("ERR counterbits must be 4 or 8"))
}
