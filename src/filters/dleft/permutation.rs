//! The permutations that give a fingerprint its place in each sub-table.
//!
//! `P_i(f) = a_i f mod M`, with `a_i` and `M` coprime, maps the numbers below `M = B 2^r` one to one onto themselves. The bucket is
//! the high part, `P_i(f) / 2^r`, the fingerprint that is stored the low one. So bucket and stored fingerprint together say which
//! `f` it is, in every sub-table, and a removal can never meet the wrong item.
//!
//! Three traps, each measured: with the bucket from the low bits, all items with equal low bits of `f` share all of their buckets; with
//! small multipliers the buckets of an item are correlated; with one stored fingerprint for all sub-tables a removal finds two
//! candidates. So the multipliers are random numbers of full width, drawn from the filter's seed.
//!
//! **Without division.** With `c = ceil(a 2^F / M)` the product `c f`, taken modulo 2^F, is the fraction `P / M` of 2^F, as long as
//! `M^2 <= 2^F`: `F` is 64 up to a range of 2^32 and 128 beyond. (D. Lemire, O. Kaser, N. Kurz, "Faster remainder by direct
//! computation", 2019, with the multiplier drawn in.)

use super::geometry::MOST_SUBTABLES;
use crate::filters::item_hash::mix64;

/// The greatest range of the narrow form.
const NARROW: u64 = 1 << 32;
/// The greatest odd number not above 2^64 divided by the golden ratio.
const ODD: u64 = 0x9e37_79b9_7f4a_7c15;

/// The permutations of a set of sub-tables.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Permutations {
    range: u64,
    factors: Factors,
}

/// `a 2^F / M` of each sub-table, rounded up.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Factors {
    Narrow([u64; MOST_SUBTABLES]),
    Wide([u128; MOST_SUBTABLES]),
}

impl Permutations {
    /// Those of a set with so many buckets that this seed gives. The range is a multiple of the buckets by a power of two above 1.
    pub(super) fn draw(seed: u64, subtables: u32, buckets: u64, range: u64) -> Self {
        let mut state = seed ^ mix64(buckets);
        let multipliers = std::array::from_fn(|i| if i < subtables as usize { draw(&mut state, range) } else { 0 });
        Self::with_multipliers(range, &multipliers)
    }

    /// Those with these multipliers, each below the range.
    pub(super) fn with_multipliers(range: u64, multipliers: &[u64; MOST_SUBTABLES]) -> Self {
        if range <= NARROW {
            let factor = |a: u64| (u128::from(a) << 64).div_ceil(range.into()) as u64;
            return Self { range, factors: Factors::Narrow(multipliers.map(factor)) };
        }
        Self { range, factors: Factors::Wide(multipliers.map(|a| wide_factor(a, range))) }
    }

    /// The factors of the narrow form; none if this is the wide one.
    pub(super) fn narrow(&self) -> Option<&[u64; MOST_SUBTABLES]> {
        match &self.factors {
            Factors::Narrow(factors) => Some(factors),
            Factors::Wide(_) => None,
        }
    }

    /// The same from its narrow factors.
    #[inline(always)]
    pub(super) fn from_narrow(range: u64, factors: [u64; MOST_SUBTABLES]) -> Self {
        Self { range, factors: Factors::Narrow(factors) }
    }

    /// `P_i(f)`, for `f` below the range.
    #[inline(always)]
    pub(super) fn apply(&self, i: usize, f: u64) -> u64 {
        match &self.factors {
            Factors::Narrow(factors) => high(factors[i].wrapping_mul(f), self.range),
            Factors::Wide(factors) => {
                let fraction = factors[i].wrapping_mul(f.into());
                let (top, rest) = ((fraction >> 64) as u64, fraction as u64);
                let product = u128::from(top) * u128::from(self.range) + u128::from(high(rest, self.range));
                (product >> 64) as u64
            }
        }
    }

    /// How to come back from places to fingerprints.
    pub(super) fn inverses(&self, subtables: u32) -> Inverses {
        let inverse = |i: usize| if i < subtables as usize { inverse(self.apply(i, 1), self.range) } else { 0 };
        Inverses { range: self.range, inverses: std::array::from_fn(inverse) }
    }
}

/// The inverse permutations.
#[derive(Clone, Copy, Debug)]
pub(super) struct Inverses {
    range: u64,
    inverses: [u64; MOST_SUBTABLES],
}

impl Inverses {
    /// The fingerprint whose place in sub-table `i` this is.
    pub(super) fn apply(&self, i: usize, place: u64) -> u64 {
        (u128::from(self.inverses[i]) * u128::from(place) % u128::from(self.range)) as u64
    }
}

/// The high word of a product.
#[inline(always)]
pub(super) fn high(a: u64, b: u64) -> u64 {
    ((u128::from(a) * u128::from(b)) >> 64) as u64
}

/// A random number below the range and coprime to it; the range is even.
fn draw(state: &mut u64, range: u64) -> u64 {
    loop {
        *state = state.wrapping_add(ODD);
        let multiplier = high(mix64(*state), range) | 1;
        if gcd(multiplier, range) == 1 {
            return multiplier;
        }
    }
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// `ceil(a 2^128 / range)`, by two steps of 64 bits.
fn wide_factor(a: u64, range: u64) -> u128 {
    let range = u128::from(range);
    let first = (u128::from(a) << 64) / range;
    let rest = (u128::from(a) << 64) % range;
    let second = (rest << 64).div_ceil(range);
    (first << 64) + second
}

/// The number below `range` whose product with `a`, which is coprime to it, leaves 1.
fn inverse(a: u64, range: u64) -> u64 {
    let (mut r, mut s) = ((i128::from(range), i128::from(a)), (0i128, 1i128));
    while r.1 != 0 {
        let quotient = r.0 / r.1;
        r = (r.1, r.0 - quotient * r.1);
        s = (s.1, s.0 - quotient * s.1);
    }
    s.0.rem_euclid(i128::from(range)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against the plain formula, at both widths, and back.
    #[test]
    fn permutations_are_products_modulo_the_range() {
        let mut random = fastrand::Rng::with_seed(3);
        for round in 0..2000 {
            let bits = random.u32(1..40);
            let most_buckets = 1 << random.u32(1..23);
            let buckets = random.u64(1..most_buckets);
            let range = if round == 0 { 1 << 32 } else { buckets << bits };
            let permutations = Permutations::draw(random.u64(..), 8, buckets, range);
            assert_eq!(permutations.narrow().is_some(), range <= NARROW);
            let inverses = permutations.inverses(8);
            for i in 0..8 {
                let a = permutations.apply(i, 1);
                assert_eq!((a % 2, gcd(a, range)), (1, 1));
                for f in [0, 1, range - 1, random.u64(..range), random.u64(..range)] {
                    let place = permutations.apply(i, f);
                    assert_eq!(u128::from(place), u128::from(a) * u128::from(f) % u128::from(range));
                    assert_eq!(inverses.apply(i, place), f);
                }
            }
        }
    }
}
