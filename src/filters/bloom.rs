//! One classic Bloom filter as RedisBloom makes it: sizes, probe positions, growth rule. No bits live here.
//!
//! **Promise.** An item that was added is found, always. An item that was not is found with probability about the error
//! rate `e`, once the filter holds as many items as it was made for, and with less before.
//!
//! **Size.** For `n` entries at rate `e`, in IEEE double arithmetic with the C library's logarithm and two constants that are
//! not the nearest doubles to their true values (`A` to ln 2, `B` to its square), because bytes on the wire depend on them:
//!
//! ```text
//! bpe    = -(ln e / B)                     bits per entry
//! bits   = trunc(n * bpe), at least 1, rounded up to a multiple of 64
//! hashes = ceil(A * bpe)                   so e = 2^-k takes k + 1 of them
//! ```
//!
//! **Positions.** An item has two 64-bit hashes `a` and `b` ([`HashPair`]); its `i`-th bit is
//! `((a + i*b) mod 2^64) mod bits`. The sum wraps before the reduction. Filters of RedisBloom 1.x ("legacy") reduce modulo
//! `2^log2_bits` and wrap the sum at 32 bits; since `2^log2_bits` divides both 2^32 and 2^64 the one formula serves them too.
//!
//! **Rate.** With all positions independent, the rate after `n` items is `(1 - (1 - 1/bits)^(hashes*n))^hashes`. Two hashes
//! stretched to many positions add about `7 n/bits^2`, for pairs of items that share nearly all of them: little beside a rate
//! of 0.01 (0.0109 instead of 0.0101 measured at 100 entries), but 1,000 entries at 1e-5 have a rate of 2.2e-5. It fades as
//! `1/n`; `tests/filter_rates.rs` measures all this against a model. Rates that are powers of two suffer a little from their
//! extra hash: 0.27 instead of 0.25.
//!
//! **Reduction without division.** With `inverse = floor((2^64 - 1) / m)` the quotient `(x * inverse) >> 64` is the true one or
//! one less, so `x mod m` costs two multiplications and a conditional subtraction. Proof: `2^64 = inverse*m + d` with
//! `1 <= d <= m`, so before rounding down the estimate is low by `x*d / (m * 2^64)`, which is below 1. Measured for 7 positions:
//! 4.8 ns, by division 12.4, by adding `b mod m` from one to the next and minding the carry 5.2.
//!
//! **Bounds.** A filter has at most 2^60 bytes; the rate is at least 4.9e-324, which takes 1,075 hashes ([`MAX_HASHES`]).
//!
//! Reference: B. H. Bloom, "Space/time trade-offs in hash coding with allowable errors", CACM 13 (1970). Cache-line blocks and
//! one-hash-one-slice layouts are faster or tidier but put bits elsewhere than RedisBloom does, so they are not taken here.

use super::murmur;

/// `ln 2` as RedisBloom writes it: 0.693147180559945.
const A: f64 = f64::from_bits(0x3fe6_2e42_fefa_39ec);
/// `(ln 2)^2` as RedisBloom writes it: 0.480453013918201.
const B: f64 = f64::from_bits(0x3fde_bfbd_ff82_c587);

/// Most hashes a filter can have: those of the smallest rate that is not 0.
pub const MAX_HASHES: u32 = 1075;
/// The greatest error rate a filter is made with; RedisBloom lowers greater ones to it silently.
pub const MAX_ERROR: f64 = 0.25;
/// First rate of a scaling chain over the rate asked for, and rate of each link over that of the one before.
pub const TIGHTENING: f64 = 0.5;
const MAX_BYTES: u64 = 1 << 60;

/// Option bits of a chain, as they stand in RedisBloom's dumps.
pub mod options {
    /// The number of bits follows the formula; without it, it is the next power of two.
    pub const NO_ROUNDING: u32 = 1;
    /// Entries of a further link are given as the logarithm of its number of bits.
    pub const ENTRIES_ARE_BITS: u32 = 2;
    /// Items are hashed by MurmurHash64A; without it, by MurmurHash2 (32 bits).
    pub const HASH_64: u32 = 4;
    /// The chain never gets a further link.
    pub const NON_SCALING: u32 = 8;
    /// All bits with a meaning.
    pub const MASK: u32 = 15;
    /// Options of every scaling chain made since RedisBloom 2.2.
    pub const SCALING: u32 = NO_ROUNDING | HASH_64;
    /// Options of every chain made since RedisBloom 2.2 that does not scale.
    pub const FIXED: u32 = SCALING | NON_SCALING;
}

/// The two hashes all positions of an item derive from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct HashPair {
    /// First position before reduction.
    pub a: u64,
    /// Step from one position to the next.
    pub b: u64,
}

impl HashPair {
    /// The pair of `item` in every filter that has [`options::HASH_64`].
    #[inline]
    pub fn of(item: &[u8]) -> HashPair {
        let a = murmur::murmur64a(item, murmur::M64);
        HashPair { a, b: murmur::murmur64a(item, a) }
    }

    /// The pair of `item` in filters without that option, made by RedisBloom 1.0.
    pub fn legacy32(item: &[u8]) -> HashPair {
        let a = murmur::murmur32(item, 0x9747_b28c);
        HashPair { a: u64::from(a), b: u64::from(murmur::murmur32(item, a)) }
    }

    /// The pair of `item` in a chain with these [`options`].
    #[inline]
    pub fn with_options(item: &[u8], options: u32) -> HashPair {
        if options & options::HASH_64 != 0 { HashPair::of(item) } else { HashPair::legacy32(item) }
    }
}

/// What one filter (a link of a chain) is made of, apart from its bits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// Items it is made for.
    pub entries: u64,
    /// Error rate at that many items.
    pub error: f64,
    /// Bits an entry: what `error` takes, before `hashes` and `bits` are rounded.
    pub bits_per_entry: f64,
    /// Bits set for an item.
    pub hashes: u32,
    /// Bits in the array, as dumps give it; what positions are reduced by, unless `log2_bits` says otherwise.
    pub bits: u64,
    /// Bytes of the array.
    pub bytes: u64,
    /// Logarithm of the modulus of legacy filters; 0 in all others.
    pub log2_bits: u8,
}

/// A filter cannot have this shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    /// No entries at all.
    #[error("a filter needs room for at least one item")]
    NoEntries,
    /// The error rate is not between 0 and 1, both excluded.
    #[error("the error rate is not between 0 and 1")]
    Rate,
    /// More than 2^60 bytes.
    #[error("the filter would be larger than any memory")]
    TooLarge,
}

impl Shape {
    /// The shape for `entries` items at rate `error`, exactly RedisBloom's.
    ///
    /// # Errors
    ///
    /// [`ShapeError`] when `entries` is 0, `error` is not inside (0, 1), or the size passes 2^60 bytes.
    pub fn new(entries: u64, error: f64) -> Result<Shape, ShapeError> {
        let (bits_per_entry, hashes) = rate(entries, error)?;
        let raw = entries as f64 * bits_per_entry;
        if raw >= (MAX_BYTES * 8) as f64 {
            return Err(ShapeError::TooLarge);
        }
        let bytes = bytes_for(raw as u64);
        Ok(Shape { entries, error, bits_per_entry, hashes, bits: bytes * 8, bytes, log2_bits: 0 })
    }

    /// The shape of the first link of a new chain: a scaling one starts at half the rate asked for, so that the rates of
    /// all its links together stay below it; rates above [`MAX_ERROR`] are lowered to that first.
    ///
    /// # Errors
    ///
    /// As [`Shape::new`].
    pub fn first(entries: u64, error: f64, options: u32) -> Result<Shape, ShapeError> {
        if !is_rate(error) {
            return Err(ShapeError::Rate);
        }
        let error = error.min(MAX_ERROR);
        let scaling = options & options::NON_SCALING == 0;
        Shape::new(entries, if scaling { error * TIGHTENING } else { error })
    }

    /// The shape of a further link in a chain of RedisBloom 1.x: the number of bits is the power of two above what the
    /// formula asks for, and the entries are raised to what fills it.
    ///
    /// # Errors
    ///
    /// As [`Shape::new`].
    pub fn legacy_rounded(entries: u64, error: f64) -> Result<Shape, ShapeError> {
        let (bits_per_entry, hashes) = rate(entries, error)?;
        let wanted = entries as f64 * bits_per_entry;
        // Below one bit the C code converts a negative number to unsigned; the smallest array is what it can mean.
        let log2_bits = if wanted < 1.0 { 0 } else { exponent(wanted) + 1 };
        let modulus = legacy_bits(log2_bits)?;
        let spare = (modulus as f64 - wanted).trunc();
        let entries = entries.checked_add((spare / bits_per_entry) as u64).ok_or(ShapeError::TooLarge)?;
        let bytes = bytes_for(modulus);
        Ok(Shape { entries, error, bits_per_entry, hashes, bits: bytes * 8, bytes, log2_bits: log2_bits as u8 })
    }

    /// The shape of a further link in a legacy chain with [`options::ENTRIES_ARE_BITS`]: `log2_bits` is what other chains
    /// would take as the entries.
    ///
    /// # Errors
    ///
    /// As [`Shape::new`]; [`ShapeError::TooLarge`] from a logarithm of 63 on.
    pub fn legacy_log2(log2_bits: u64, error: f64) -> Result<Shape, ShapeError> {
        let (bits_per_entry, hashes) = rate(log2_bits, error)?;
        let modulus = legacy_bits(log2_bits)?;
        let entries = (modulus as f64 / bits_per_entry) as u64;
        let bytes = bytes_for(modulus);
        Ok(Shape { entries, error, bits_per_entry, hashes, bits: bytes * 8, bytes, log2_bits: log2_bits as u8 })
    }

    /// The shape of a further link by the rule that the chain's [`options`] name.
    ///
    /// # Errors
    ///
    /// As [`Shape::new`].
    pub fn with_options(entries: u64, error: f64, options: u32) -> Result<Shape, ShapeError> {
        if options & options::ENTRIES_ARE_BITS != 0 {
            Shape::legacy_log2(entries, error)
        } else if options & options::NO_ROUNDING != 0 {
            Shape::new(entries, error)
        } else {
            Shape::legacy_rounded(entries, error)
        }
    }

    /// The shape of the link after this one in a chain with these options and growth.
    ///
    /// # Errors
    ///
    /// [`GrowthError`]; the chain is to stay as it is then.
    pub fn next(&self, options: u32, growth: u32) -> Result<Shape, GrowthError> {
        if options & options::NON_SCALING != 0 {
            return Err(GrowthError::NonScaling);
        }
        let error = self.error * TIGHTENING;
        if error == 0.0 {
            return Err(GrowthError::RateIsZero);
        }
        let entries = self.entries.checked_mul(u64::from(growth)).ok_or(ShapeError::TooLarge)?;
        let shape = Shape::with_options(entries, error, options)?;
        // Only where entries are bits; such a link would be full before its first item.
        if shape.entries == 0 { Err(ShapeError::NoEntries.into()) } else { Ok(shape) }
    }

    /// Whether every field is what [`Shape::new`] gives for these entries and this rate, bit for bit.
    pub fn is_canonical(&self) -> bool {
        // Equality of doubles will do: none of those that `new` lets through is NaN or a negative zero.
        Shape::new(self.entries, self.error).is_ok_and(|canonical| canonical == *self)
    }

    /// Whether a filter can be served in this shape: it has hashes, at most [`MAX_HASHES`], and no position lies beyond
    /// its bytes. Holds for every shape made here; what was loaded is to be asked.
    pub fn is_sound(&self) -> bool {
        let reducible = self.log2_bits < 64 && self.bytes <= MAX_BYTES;
        reducible
            && (1..=MAX_HASHES).contains(&self.hashes)
            && self.modulus_bits() >= 1
            && self.modulus_bits() <= self.bytes * 8
    }

    /// What positions are reduced by.
    #[inline]
    pub fn modulus(&self) -> Modulus {
        Modulus::new(self.modulus_bits())
    }

    fn modulus_bits(&self) -> u64 {
        if self.log2_bits > 0 { 1 << (self.log2_bits & 63) } else { self.bits }
    }
}

/// Bits per entry and hashes of a rate, after both arguments of a shape were looked at.
fn rate(entries: u64, error: f64) -> Result<(f64, u32), ShapeError> {
    if entries == 0 {
        return Err(ShapeError::NoEntries);
    }
    if !is_rate(error) {
        return Err(ShapeError::Rate);
    }
    let bits_per_entry = bits_per_entry(error);
    Ok((bits_per_entry, hashes_of(bits_per_entry) as u32))
}

/// Whether a rate is between 0 and 1, both excluded; NaN is not.
pub fn is_rate(error: f64) -> bool {
    error > 0.0 && error < 1.0
}

/// Bits an entry takes at a rate inside (0, 1).
pub(super) fn bits_per_entry(error: f64) -> f64 {
    -(error.ln() / B)
}

/// Number of hashes that goes with so many bits an entry, as the whole number in a double that RedisBloom compares; it may
/// be anything, NaN included, for a `bits_per_entry` from outside.
pub fn hashes_of(bits_per_entry: f64) -> f64 {
    (A * bits_per_entry).ceil()
}

/// Bytes of an array of at least `bits` bits: whole words, at least one.
fn bytes_for(bits: u64) -> u64 {
    bits.max(1).div_ceil(64) * 8
}

/// Logarithm to base 2, rounded down, of a finite number from 1 up.
fn exponent(value: f64) -> u64 {
    (value.to_bits() >> 52) - 1023
}

fn legacy_bits(log2_bits: u64) -> Result<u64, ShapeError> {
    if log2_bits < 63 { Ok(1 << log2_bits) } else { Err(ShapeError::TooLarge) }
}

/// A chain cannot get a further link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GrowthError {
    /// The chain is one that does not grow.
    #[error("the chain does not scale")]
    NonScaling,
    /// Half the rate of the newest link is 0: nothing but infinitely many bits would do.
    #[error("the error rate of a further link would be 0")]
    RateIsZero,
    /// The further link would have no place for an item, or more than can be.
    #[error(transparent)]
    Shape(#[from] ShapeError),
}

/// A number that positions are reduced by, with what makes the reduction quick.
#[derive(Clone, Copy, Debug)]
pub struct Modulus {
    bits: u64,
    inverse: u64,
}

impl Modulus {
    /// Reduction modulo `bits`; 0 is taken as 1.
    #[inline]
    pub fn new(bits: u64) -> Modulus {
        let bits = bits.max(1);
        Modulus { bits, inverse: u64::MAX / bits }
    }

    /// `x` modulo the number of bits.
    #[inline(always)]
    pub fn reduce(self, x: u64) -> u64 {
        let quotient = (u128::from(x) * u128::from(self.inverse)) >> 64;
        let rest = x.wrapping_sub((quotient as u64).wrapping_mul(self.bits));
        if rest >= self.bits { rest - self.bits } else { rest }
    }

    /// Position number `i` of an item.
    #[inline(always)]
    pub fn position(self, pair: HashPair, i: u32) -> u64 {
        self.reduce(pair.a.wrapping_add(u64::from(i).wrapping_mul(pair.b)))
    }

    /// All positions of an item in a filter with so many hashes, in order.
    #[inline(always)]
    pub fn positions(self, pair: HashPair, hashes: u32) -> Positions {
        Positions { modulus: self, sum: pair.a, step: pair.b, left: hashes }
    }
}

/// The positions of an item, from [`Modulus::positions`].
#[derive(Clone, Debug)]
pub struct Positions {
    modulus: Modulus,
    sum: u64,
    step: u64,
    left: u32,
}

impl Iterator for Positions {
    type Item = u64;

    #[inline(always)]
    fn next(&mut self) -> Option<u64> {
        self.left = self.left.checked_sub(1)?;
        let x = self.modulus.reduce(self.sum);
        self.sum = self.sum.wrapping_add(self.step);
        Some(x)
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left as usize, Some(self.left as usize))
    }
}

impl ExactSizeIterator for Positions {}
