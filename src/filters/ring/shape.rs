//! How large one array of a ring is.

use std::cell::Cell;

use crate::filters::item_hash::mix64;

/// The greatest number of bits that an array can have.
const MAX_BITS: f64 = (1u64 << 62) as f64;
/// Arrays for fewer items are sized by their true rate, which is above that of the formula.
const SMALL_CAPACITY: u64 = 256;
/// What the true rate may be of the one asked for.
const TOLERANCE: f64 = 1.03;
/// A thread keeps so many shapes.
const KNOWN_SHAPES: usize = 64;
/// Up to so many steps the true rate is computed step by step.
const EXACT_STEPS: u64 = 200_000;

/// One array: bits, and how many of them an item sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArrayShape {
    /// Items it is made for.
    pub capacity: u64,
    /// Bits of the array.
    pub bits: u64,
    /// Positions an item has.
    pub hashes: u32,
}

/// No array has this shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    /// No items at all.
    #[error("an array needs room for at least one item")]
    NoItems,
    /// The error rate is not between 0 and 1, both excluded.
    #[error("the error rate is not between 0 and 1")]
    Rate,
    /// More bits than any memory has.
    #[error("the array would be larger than any memory")]
    TooLarge,
}

impl ArrayShape {
    /// The smallest array that answers wrongly for at most a share `error` of what it never held, once it holds `capacity` items.
    ///
    /// For `k` positions an item that takes `bits = ceil(-k capacity / ln(1 - error^(1/k)))`; the best `k` is an integer near
    /// `log2(1 / error)`. The formula takes the share of set bits for its mean; below 256 items what is added for its spread is
    /// counted and paid for: at 1 item and a rate of 0.01 the formula's 10 bits have a rate of 0.015.
    ///
    /// # Errors
    /// [`ShapeError`].
    pub fn new(capacity: u64, error: f64) -> Result<Self, ShapeError> {
        // A small one takes up to half a millisecond, and rings of few kinds ask for theirs at each turn.
        thread_local!(static KNOWN: [Cell<Option<(u64, ArrayShape)>>; KNOWN_SHAPES] = const { [const { Cell::new(None) }; KNOWN_SHAPES] });
        KNOWN.with(|known| {
            let slot = &known[mix64(capacity ^ mix64(error.to_bits())) as usize % KNOWN_SHAPES];
            if let Some((_, shape)) =
                slot.get().filter(|(of, shape)| (*of, shape.capacity) == (error.to_bits(), capacity))
            {
                return Ok(shape);
            }
            let shape = Self::compute(capacity, error)?;
            slot.set(Some((error.to_bits(), shape)));
            Ok(shape)
        })
    }

    fn compute(capacity: u64, error: f64) -> Result<Self, ShapeError> {
        if capacity == 0 {
            return Err(ShapeError::NoItems);
        }
        if !(error > 0.0 && error < 1.0) {
            return Err(ShapeError::Rate);
        }
        let least = (-error.log2()).floor().max(1.0) as u32;
        let sized = [least, least + 1].map(|hashes| (bits_by_formula(capacity, error, hashes), hashes));
        let (bits, hashes) = if sized[1].0 < sized[0].0 { sized[1] } else { sized[0] };
        if bits >= MAX_BITS {
            return Err(ShapeError::TooLarge);
        }
        let mut shape = Self { capacity, bits: (bits.ceil() as u64).max(1), hashes };
        if capacity < SMALL_CAPACITY {
            while shape.rate(capacity) > error * TOLERANCE && shape.bits < u64::from(u32::MAX) {
                shape.bits += 1 + shape.bits / 128;
            }
        }
        Ok(shape)
    }

    /// Bytes of the array.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bits.div_ceil(8)
    }

    /// The share of items never added that are found all the same, when so many were: the mean over all filters of this shape.
    #[must_use]
    pub fn rate(&self, items: u64) -> f64 {
        let throws = items.saturating_mul(u64::from(self.hashes));
        if throws.saturating_mul(throws.min(self.bits)) <= EXACT_STEPS {
            self.exact_rate(throws)
        } else {
            self.near_rate(throws)
        }
    }

    /// The mean of `(X / bits)^hashes`, with `X` the bits that so many throws set.
    fn exact_rate(&self, throws: u64) -> f64 {
        let bits = self.bits as f64;
        let most = throws.min(self.bits) as usize;
        // The chance that `x` bits are set.
        let mut chances = vec![0.0; most + 1];
        chances[0] = 1.0;
        for thrown in 0..throws as usize {
            for set in (0..=most.min(thrown + 1)).rev() {
                let hits_a_new_one = if set > 0 { chances[set - 1] * (bits - set as f64 + 1.0) / bits } else { 0.0 };
                chances[set] = chances[set] * set as f64 / bits + hits_a_new_one;
            }
        }
        chances.iter().enumerate().map(|(set, chance)| chance * (set as f64 / bits).powi(self.hashes as i32)).sum()
    }

    /// The same from mean and spread of the share of set bits.
    fn near_rate(&self, throws: u64) -> f64 {
        let (bits, hashes, load) = (self.bits as f64, f64::from(self.hashes), throws as f64 / self.bits as f64);
        let fill = -(throws as f64 * (-1.0 / bits).ln_1p()).exp_m1();
        let spread = ((-load).exp() - (1.0 + load) * (-2.0 * load).exp()) / bits;
        (fill.powf(hashes) * (hashes * (hashes - 1.0) / 2.0 * spread / (fill * fill)).exp()).min(1.0)
    }
}

/// Not yet rounded up: of two numbers of hashes the better one is to win, if by a part of a bit.
fn bits_by_formula(capacity: u64, error: f64, hashes: u32) -> f64 {
    let hashes = f64::from(hashes);
    -hashes * capacity as f64 / (-error.powf(1.0 / hashes)).ln_1p()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The smallest arrays with at most the asked rate, by the formula: `m_strict` and `k_strict` of the table.
    #[test]
    fn sizes_are_those_of_the_table() {
        let table = include_str!("../../../tests/vectors/bloom_sizing.tsv");
        let rows = table.lines().filter(|line| !line.starts_with('#')).skip(1);
        for row in rows.map(|line| line.split('\t').collect::<Vec<_>>()) {
            let shape = ArrayShape::new(row[0].parse().unwrap(), row[1].parse().unwrap()).unwrap();
            assert_eq!((shape.bits, shape.hashes), (row[5].parse().unwrap(), row[6].parse().unwrap()), "{row:?}");
        }
    }

    /// The arrays of the article.
    #[test]
    fn sizes_are_those_of_the_formula() {
        for (capacity, error, bits, hashes) in
            [(100, 0.02, 816, 6), (500, 0.02, 4076, 6), (100, 0.004_032_4, 1148, 8), (15_000, 0.01, 143_776, 7)]
        {
            let shape = ArrayShape::new(capacity, error).unwrap();
            assert_eq!(shape.hashes, hashes, "{capacity} {error}");
            assert!(shape.bits.abs_diff(bits) <= bits / 100, "{capacity} {error}: {}", shape.bits);
        }
        assert_eq!(ArrayShape::new(0, 0.1), Err(ShapeError::NoItems));
        assert_eq!(ArrayShape::new(1, 1.0), Err(ShapeError::Rate));
        assert_eq!(ArrayShape::new(1, f64::NAN), Err(ShapeError::Rate));
        assert_eq!(ArrayShape::new(u64::MAX, 1e-15), Err(ShapeError::TooLarge));
    }

    /// Exact values of the references: 0.020480 for (812, 6, 100), 0.020268 for (4064, 6, 500), 0.004064 for (1148, 8, 100).
    #[test]
    fn rates_are_the_exact_ones() {
        for (bits, hashes, items, rate) in
            [(812, 6, 100, 0.020_480), (4064, 6, 500, 0.020_268), (1148, 8, 100, 0.004_064)]
        {
            let shape = ArrayShape { capacity: items, bits, hashes };
            assert!((shape.rate(items) / rate - 1.0).abs() < 1e-3, "{bits}: {}", shape.rate(items));
            let exact = shape.exact_rate(items * u64::from(hashes));
            // To the last digit that is published.
            assert!((exact - rate).abs() <= 0.5e-6, "{bits}: {exact}");
        }
    }

    #[test]
    fn shapes_that_are_kept_are_those_of_their_capacity_and_rate() {
        for _ in 0..2 {
            for (capacity, error) in (1..60).flat_map(|capacity| [0.9, 0.1, 0.01].map(|error| (capacity, error))) {
                assert_eq!(ArrayShape::new(capacity, error), ArrayShape::compute(capacity, error));
            }
        }
    }

    /// Where the exact computation takes too long the other one goes on.
    #[test]
    fn rates_by_mean_and_spread_are_near_the_exact_ones() {
        for (capacity, hashes) in [(40, 10), (60, 7), (100, 4), (20, 20), (7, 50)] {
            let shape = ArrayShape { capacity, bits: capacity * u64::from(hashes) * 3 / 2, hashes };
            let throws = capacity * u64::from(hashes);
            let ratio = shape.near_rate(throws) / shape.exact_rate(throws);
            assert!((ratio - 1.0).abs() < 0.03, "{capacity} {hashes}: {ratio}");
        }
    }

    #[test]
    fn no_capacity_has_too_high_a_rate_or_too_many_bits() {
        for error in [0.5, 0.1, 0.01, 1e-3, 1e-6, 1e-12] {
            for capacity in (1..40).chain([50, 99, 100, 255, 256, 1000, 50_000]) {
                let shape = ArrayShape::new(capacity, error).unwrap();
                let formula = bits_by_formula(capacity, error, shape.hashes);
                assert!(shape.rate(capacity) <= error * 1.04, "{capacity} {error}: {}", shape.rate(capacity));
                assert!(shape.bits as f64 <= formula * 1.02 + 64.0, "{capacity} {error}: {}", shape.bits);
            }
        }
    }
}
