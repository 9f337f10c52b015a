//! What a ring was made with, and what follows from it.

use super::shape::{ArrayShape, ShapeError};
use crate::filters::item_hash::HashKey;

/// Fewest and most links of a ring.
pub const LINKS: std::ops::RangeInclusive<u16> = 2..=1024;
/// A ring is made for at most 2^40 items in two links, and can then be given 1,024 of them.
pub const MOST_CAPACITY: u64 = 1 << 51;
/// Milliseconds of ten years, the longest window; two links of it can become 1,024.
pub const MOST_SPAN_MS: u64 = 315_360_000_000 * 1023;
/// A slice that takes more than it was made for grows: its first array has this power of the slice's error, slightly less than
/// all of it, and what is left is shared by those that follow, each having half of what the ones before it left.
const FIRST_SHARE_POWER: f64 = 17.0 / 16.0;

/// How a ring forgets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mode {
    /// By count: when the active link is full, the oldest one goes.
    Count,
    /// By clock: what is older than the window goes.
    Window(Window),
    /// By count, with two arrays: the second is begun when the first holds a share `threshold` of its items, and takes its place
    /// when it has all that is promised; the first is full then, if no item came again.
    Dual {
        /// The share, at least a half and less than 1.
        threshold: f64,
    },
}

/// A window of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Every item is remembered for so long, in milliseconds.
    pub span_ms: u64,
    /// A full slice makes the ring forget the oldest one early, instead of growing.
    pub bounded: bool,
    /// Time is the greatest that the events carried, not that of the server.
    pub by_events: bool,
}

/// What a ring was made with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// So many of the newest items are remembered; with a window, so many are expected in it.
    pub capacity: u64,
    /// Error rate of the whole ring, or of one link.
    pub error: f64,
    /// The error rate is that of one link.
    pub link_error: bool,
    /// Arrays of the ring: one that is written, the others hold what is promised. 2 for [`Mode::Dual`].
    pub links: u16,
    /// How it forgets.
    pub mode: Mode,
    /// Every write sets the key's life to so many seconds.
    pub idle: Option<u32>,
    /// The key of its hashes.
    pub key: Option<HashKey>,
}

impl Settings {
    /// Items of one link, or expected in one slice; of one array of [`Mode::Dual`].
    #[must_use]
    pub fn link_capacity(&self) -> u64 {
        match self.mode {
            // Not to be rounded up for the error of the last digit: 200 / (1 - 0.6) is 500.
            Mode::Dual { threshold } => (self.capacity as f64 / (1.0 - threshold) * (1.0 - 1e-12)).ceil() as u64,
            _ => self.capacity.div_ceil(u64::from(self.links) - 1),
        }
    }

    /// Items of the first array of [`Mode::Dual`] at which the second is begun.
    #[must_use]
    pub fn dual_begins_at(&self) -> u64 {
        self.link_capacity() - self.capacity
    }

    /// Milliseconds of one slice; 0 without a window.
    #[must_use]
    pub fn slice_ms(&self) -> u64 {
        match self.mode {
            Mode::Window(window) => window.span_ms.div_ceil(u64::from(self.links) - 1).max(1),
            _ => 0,
        }
    }

    /// The slice to which a moment belongs, in milliseconds since 1970; 0 without a window.
    #[must_use]
    pub fn slice_of(&self, moment: u64) -> u64 {
        moment.checked_div(self.slice_ms()).unwrap_or(0)
    }

    /// The error rate of one link or slice.
    #[must_use]
    pub fn link_error_rate(&self) -> f64 {
        if self.link_error || matches!(self.mode, Mode::Dual { .. }) {
            return self.error;
        }
        // 1 - (1 - error)^(1 / links), without loss of digits.
        -((-self.error).ln_1p() / f64::from(self.links)).exp_m1()
    }

    /// The error rate of the whole ring.
    #[must_use]
    pub fn ring_error_rate(&self) -> f64 {
        if self.link_error && !matches!(self.mode, Mode::Dual { .. }) {
            return -((-self.error).ln_1p() * f64::from(self.links)).exp_m1();
        }
        self.error
    }

    /// Whether a slice grows when it has more items than were expected.
    #[must_use]
    pub fn slices_grow(&self) -> bool {
        matches!(self.mode, Mode::Window(Window { bounded: false, .. }))
    }

    /// The shape of an array: of a link, or the array number `growth` of a slice.
    ///
    /// # Errors
    /// [`ShapeError`].
    pub fn array(&self, growth: u8) -> Result<ArrayShape, ShapeError> {
        let (capacity, error) = (self.link_capacity(), self.link_error_rate());
        if !self.slices_grow() {
            return ArrayShape::new(capacity, error);
        }
        let first = error.powf(FIRST_SHARE_POWER);
        match growth {
            0 => ArrayShape::new(capacity, first),
            _ => {
                let doubled = capacity.checked_shl(u32::from(growth)).filter(|more| more >> growth == capacity);
                ArrayShape::new(doubled.ok_or(ShapeError::TooLarge)?, (error - first) * 0.5_f64.powi(i32::from(growth)))
            }
        }
    }

    /// Whether time is that of the events.
    #[must_use]
    pub fn is_by_events(&self) -> bool {
        matches!(self.mode, Mode::Window(Window { by_events: true, .. }))
    }

    /// Bytes of all arrays of a ring that is in full use.
    ///
    /// # Errors
    /// [`ShapeError`].
    pub fn full_bytes(&self) -> Result<u64, ShapeError> {
        Ok(self.array(0)?.bytes().saturating_mul(u64::from(self.links)))
    }

    /// Whether a ring that remembers so much can be saved and read again.
    #[must_use]
    pub fn is_within_limits(&self) -> bool {
        let span_ms = if let Mode::Window(window) = self.mode { window.span_ms } else { 0 };
        self.capacity <= MOST_CAPACITY && span_ms <= MOST_SPAN_MS
    }

    /// The same ring with so many links; those have the items or the time that they had, so that the ring remembers more or less.
    /// It may not be [within the limits](Self::is_within_limits) then.
    #[must_use]
    pub fn with_links(mut self, links: u16) -> Self {
        let (items, slice, others) = (self.link_capacity(), self.slice_ms(), u64::from(links) - 1);
        self.capacity = items.saturating_mul(others);
        if let Mode::Window(window) = &mut self.mode {
            window.span_ms = slice.saturating_mul(others);
        }
        self.links = links;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(capacity: u64, error: f64, links: u16, mode: Mode) -> Settings {
        Settings { capacity, error, link_error: false, links, mode, idle: None, key: None }
    }

    /// The sizes of the references: 5 and 10 links of 100 items at 0.02, 30 at 0.01.
    #[test]
    fn links_have_the_published_sizes() {
        for (links, error, bits, hashes) in [(5, 0.02, 1148, 8), (10, 0.02, 1292, 9), (30, 0.01, 1667, 12)] {
            let settings = ring(100 * (u64::from(links) - 1), error, links, Mode::Count);
            let array = settings.array(0).unwrap();
            assert_eq!((settings.link_capacity(), array.hashes), (100, hashes));
            assert!(array.bits.abs_diff(bits) <= 1 + bits / 200, "{links}: {}", array.bits);
        }
        let linked = Settings { link_error: true, ..ring(400, 0.02, 5, Mode::Count) };
        assert_eq!(linked.array(0).unwrap().bytes(), 102);
        assert!((linked.ring_error_rate() - 0.0961).abs() < 1e-4);
    }

    #[test]
    fn a_dual_filter_is_begun_at_its_threshold() {
        let dual = ring(200, 0.02, 2, Mode::Dual { threshold: 0.6 });
        assert_eq!((dual.link_capacity(), dual.dual_begins_at()), (500, 300));
        let half = ring(400, 0.02, 2, Mode::Dual { threshold: 0.5 });
        assert_eq!((half.link_capacity(), half.dual_begins_at()), (800, 400));
    }

    #[test]
    fn slices_and_links_are_rounded_up() {
        let month = Window { span_ms: 2_592_000_000, bounded: false, by_events: false };
        let settings = ring(15_000, 0.01, 31, Mode::Window(month));
        assert_eq!((settings.slice_ms(), settings.link_capacity()), (86_400_000, 500));
        let odd = ring(401, 0.01, 5, Mode::Window(Window { span_ms: 10, ..month }));
        assert_eq!((odd.slice_ms(), odd.link_capacity(), odd.slice_of(7)), (3, 101, 2));
        let wider = odd.with_links(9);
        assert_eq!((wider.slice_ms(), wider.link_capacity(), wider.capacity), (3, 101, 808));
    }

    /// All arrays that a slice can come to have share its error.
    #[test]
    fn the_errors_of_a_slice_add_up_to_its_own() {
        let window = Window { span_ms: 1000, bounded: false, by_events: false };
        for error in [0.2, 0.01, 1e-5] {
            let settings = ring(1_000_000, error, 5, Mode::Window(window));
            let sum: f64 =
                (0..12).map(|growth| settings.array(growth).unwrap()).map(|array| array.rate(array.capacity)).sum();
            let asked = settings.link_error_rate();
            assert!(sum < asked * 1.01, "{error}: {sum} of {asked}");
            assert!(
                settings.array(0).unwrap().bits as f64 <= 1.07 * ArrayShape::new(250_000, asked).unwrap().bits as f64
            );
        }
    }
}
