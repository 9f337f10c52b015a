//! What a Bloom filter says of itself: `BF.CARD`, `BF.INFO`, `BF.DEBUG`.

use std::fmt::Write;

use crate::commands::context::Context;
use crate::commands::dispatch::{Outcome, Stop};
use crate::commands::error::CommandError;
use crate::commands::words::is;
use crate::filters::BloomRef;
use crate::filters::bloom::options;
use crate::keyspace::entry::{EntryRef, ValueRef};
use crate::resp::{Args, Reply};

/// Look at a Bloom filter that must be there.
pub(super) fn read_existing<R>(
    context: &mut Context<'_>,
    name: &[u8],
    look: impl FnOnce(BloomRef<'_>) -> R,
) -> Result<R, Stop> {
    context.read(name, |entry| match entry.map(EntryRef::value) {
        Some(ValueRef::Bloom(bloom)) => Ok(look(bloom)),
        Some(_) => Err(CommandError::WrongType.into()),
        None => Err(CommandError::NotFound.into()),
    })?
}

/// `BF.CARD key`
pub(super) fn card(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let missing_is_error = context.settings.filter_missing_is_error();
    context.read(&args[1], |entry| match entry.map(EntryRef::value) {
        Some(ValueRef::Bloom(bloom)) => Ok(Reply::Integer(bloom.items() as i64)),
        Some(_) => Err(CommandError::WrongType.into()),
        None if missing_is_error => Err(CommandError::NotFound.into()),
        None => Ok(Reply::Integer(0)),
    })?
}

/// One figure: the word that asks for it, its label, its value.
struct Figure {
    word: &'static str,
    label: &'static str,
    value: fn(BloomRef<'_>) -> Reply,
}

/// The five that RedisBloom has, in its order; clients refuse any other.
const FIGURES: [Figure; 5] = [
    Figure { word: "CAPACITY", label: "Capacity", value: |bloom| Reply::Integer(bloom.capacity() as i64) },
    Figure { word: "SIZE", label: "Size", value: |bloom| Reply::Integer(size(bloom) as i64) },
    Figure { word: "FILTERS", label: "Number of filters", value: |bloom| Reply::Integer(bloom.len() as i64) },
    Figure { word: "ITEMS", label: "Number of items inserted", value: |bloom| Reply::Integer(bloom.items() as i64) },
    Figure { word: "EXPANSION", label: "Expansion rate", value: expansion },
];

/// The bytes that RedisBloom would hold for this filter: 32 for the chain, 64 for each sub-filter, the bits.
fn size(bloom: BloomRef<'_>) -> u64 {
    (32 + 64 * bloom.len() as u64).saturating_add(bloom.bit_bytes())
}

fn expansion(bloom: BloomRef<'_>) -> Reply {
    if bloom.options() & options::NON_SCALING != 0 { Reply::Null } else { Reply::Integer(i64::from(bloom.growth())) }
}

/// `BF.INFO key [CAPACITY | SIZE | FILTERS | ITEMS | EXPANSION]`
pub(super) fn info(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    if args.len() > 3 {
        return Err(CommandError::WrongArity("bf.info".into()).into());
    }
    let pair = |figure: &Figure, bloom: BloomRef<'_>| (Reply::simple(figure.label), (figure.value)(bloom));
    read_existing(context, &args[1], |bloom| {
        let Some(field) = args.get(2) else {
            return Ok(Reply::Map(FIGURES.iter().map(|figure| pair(figure, bloom)).collect()));
        };
        let figure = FIGURES.iter().find(|figure| is(field, figure.word));
        let figure = figure.ok_or(CommandError::text("Invalid information value"))?;
        Ok(Reply::Field(Box::new(pair(figure, bloom))))
    })?
}

/// `BF.DEBUG key`
pub(super) fn debug(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    read_existing(context, &args[1], |bloom| {
        let hash_width = if bloom.options() & options::HASH_64 != 0 { 64 } else { 32 };
        let chain = Reply::text(format!("size:{}", bloom.items()));
        let links = bloom.links().map(|link| {
            let shape = link.shape;
            let bits = if shape.bits == 0 { 1 << shape.log2_bits } else { shape.bits };
            Reply::text(format!(
                "bytes:{} bits:{bits} hashes:{} hashwidth:{hash_width} capacity:{} size:{} ratio:{}",
                shape.bytes,
                shape.hashes,
                shape.entries,
                link.items,
                six_digits(shape.error)
            ))
        });
        Reply::Array(std::iter::once(chain).chain(links).collect())
    })
}

/// A number as C's `%g` prints it: six significant digits, no trailing zeros, an exponent below 1e-4 and from 1e6 up.
fn six_digits(value: f64) -> String {
    const DIGITS: i32 = 6;
    if value == 0.0 || !value.is_finite() {
        return format!("{value}").to_lowercase();
    }
    let scientific = format!("{value:.*e}", DIGITS as usize - 1);
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..DIGITS).contains(&exponent) {
        return without_zeros(&format!("{value:.*}", (DIGITS - 1 - exponent) as usize)).to_owned();
    }
    let mut out = without_zeros(mantissa).to_owned();
    let sign = if exponent < 0 { '-' } else { '+' };
    let _ = write!(out, "e{sign}{:02}", exponent.abs());
    out
}

fn without_zeros(decimal: &str) -> &str {
    if decimal.contains('.') { decimal.trim_end_matches('0').trim_end_matches('.') } else { decimal }
}

#[cfg(test)]
mod tests {
    use super::six_digits;

    #[test]
    fn as_c_prints_it() {
        for (value, text) in [
            (0.005, "0.005"),
            (0.001953125, "0.00195312"),
            (6.25e-05, "6.25e-05"),
            (5e-324, "4.94066e-324"),
            (0.0001, "0.0001"),
            (0.25, "0.25"),
            (1e-300, "1e-300"),
            (0.9999999, "1"),
            (123_456_789.0, "1.23457e+08"),
            (f64::NAN, "nan"),
            (0.0, "0"),
            (100_000.0, "100000"),
            (0.5, "0.5"),
        ] {
            assert_eq!(six_digits(value), text);
        }
    }
}
