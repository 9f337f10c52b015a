//! What all forms of a [ring](crate::filters::ring) as bytes share: its settings as numbers, what a part says of itself, and
//! what of both is believed.
//!
//! **What is checked.** All that the ring relies on and cannot have made otherwise: settings within the ranges of the commands
//! (or what more and fewer links make of them), slices in ascending order, no more parts than the ring can have, lists in strictly
//! ascending order that are smaller than the bits would be, no set bit behind the last. Not whether an array has the size that
//! [`Settings::array`] would give it now: a later version may size otherwise.

use crate::filters::LEAST_ERROR;
use crate::filters::bits::AllocError;
use crate::filters::item_hash::{HashKey, KEY_BYTES};
use crate::filters::ring::bits::SharedBits;
pub use crate::filters::ring::part::MOST_ITEMS;
use crate::filters::ring::part::most_listed;
use crate::filters::ring::settings::{LINKS, MOST_CAPACITY, MOST_SPAN_MS};
use crate::filters::ring::shape::ArrayShape;
use crate::filters::ring::{MOST_PARTS, MOST_VERSION, Mode, Part, Ring, Settings, Store, Window};

/// The latest moment that anything can carry, in milliseconds since 1970.
pub const MOST_TIME: u64 = i64::MAX as u64;
/// Bytes of a hash in a list.
pub const HASH_BYTES: usize = size_of::<u64>();
/// The smallest error rate that a ring is made with: its arrays, the grown ones too, then have less than [`MOST_HASHES`] positions an item.
/// No array has more bits, nor is made for more items.
const MOST_BITS: u64 = 1 << 62;
const MOST_HASHES: u32 = 127;

// The flags of a ring.
const WINDOW: u8 = 1;
const DUAL: u8 = 2;
const LINK_ERROR: u8 = 4;
const BOUNDED: u8 = 8;
const BY_EVENTS: u8 = 16;
pub(super) const HAS_IDLE: u8 = 32;
pub(super) const HAS_KEY: u8 = 64;

/// Settings as numbers, as they are written.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RawSettings {
    pub flags: u8,
    pub links: u64,
    pub capacity: u64,
    pub error: f64,
    /// Of a window.
    pub span_ms: u64,
    /// Of two arrays.
    pub threshold: f64,
    /// 0 for none.
    pub idle: u64,
    pub key: [u8; KEY_BYTES],
}

impl RawSettings {
    pub fn of(settings: &Settings) -> Self {
        let (mode, span_ms, threshold) = match settings.mode {
            Mode::Count => (0, 0, 0.0),
            Mode::Dual { threshold } => (DUAL, 0, threshold),
            Mode::Window(Window { span_ms, bounded, by_events }) => {
                (WINDOW | if bounded { BOUNDED } else { 0 } | if by_events { BY_EVENTS } else { 0 }, span_ms, 0.0)
            }
        };
        let link_error = if settings.link_error { LINK_ERROR } else { 0 };
        let idle = if settings.idle.is_some() { HAS_IDLE } else { 0 };
        Self {
            flags: mode | link_error | idle | if settings.key.is_some() { HAS_KEY } else { 0 },
            links: settings.links.into(),
            capacity: settings.capacity,
            error: settings.error,
            span_ms,
            threshold,
            idle: settings.idle.unwrap_or(0).into(),
            key: settings.key.unwrap_or_default(),
        }
    }

    pub fn is_window(&self) -> bool {
        self.flags & WINDOW != 0
    }

    pub fn is_dual(&self) -> bool {
        self.flags & DUAL != 0
    }

    /// The settings, if a ring can have them.
    pub fn check(&self) -> Option<Settings> {
        let Self { flags, links, capacity, error, span_ms, threshold, .. } = *self;
        let of_window = flags & (BOUNDED | BY_EVENTS);
        let mode = match flags & (WINDOW | DUAL) {
            0 => (of_window == 0).then_some(Mode::Count),
            WINDOW => (1..=MOST_SPAN_MS).contains(&span_ms).then_some(Mode::Window(Window {
                span_ms,
                bounded: flags & BOUNDED != 0,
                by_events: flags & BY_EVENTS != 0,
            })),
            // NaN is in no range.
            DUAL => {
                (of_window == 0 && links == 2 && (0.5..1.0).contains(&threshold)).then_some(Mode::Dual { threshold })
            }
            _ => None,
        }?;
        let idle = u32::try_from(self.idle).ok().filter(|idle| (flags & HAS_IDLE != 0) == (*idle != 0))?;
        let links = u16::try_from(links).ok().filter(|links| LINKS.contains(links))?;
        let sized = (1..=MOST_CAPACITY).contains(&capacity) && (LEAST_ERROR..1.0).contains(&error);
        let key: Option<HashKey> = (flags & HAS_KEY != 0).then_some(self.key);
        let link_error = flags & LINK_ERROR != 0;
        let idle = (idle != 0).then_some(idle);
        let settings = Settings { capacity, error, link_error, links, mode, idle, key };
        let known = flags >> 7 == 0 && (key.is_some() || self.key == HashKey::default());
        (sized && known && settings.link_capacity() <= MOST_BITS).then_some(settings)
    }
}

/// A ring but for its parts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RingHead {
    /// What it was made with.
    pub settings: Settings,
    /// Its version.
    pub version: u64,
    /// The greatest time that it has seen; 0 without a window.
    pub latest: u64,
    /// As [`Ring::lost`].
    pub lost: u64,
}

impl RingHead {
    /// That of a ring.
    #[must_use]
    pub fn of(ring: &Ring) -> Self {
        let latest = if matches!(ring.settings.mode, Mode::Window(_)) { ring.latest } else { 0 };
        Self { settings: ring.settings, version: ring.version, latest, lost: ring.lost }
    }

    /// The same ring without parts.
    #[must_use]
    pub fn ring(&self) -> Ring {
        Ring::new(self.settings, self.version).seen(self.latest, self.lost)
    }

    /// Whether the ring takes things by time.
    fn is_window(&self) -> bool {
        matches!(self.settings.mode, Mode::Window(_))
    }

    /// Whether a ring can have these figures; its settings are checked already.
    pub(super) fn is_sound(&self) -> bool {
        let timed = self.is_window() || (self.latest == 0 && self.lost <= 1);
        timed && self.version <= MOST_VERSION && self.latest <= MOST_TIME
    }

    /// Most parts that the ring can have.
    pub(super) fn most_parts(&self) -> usize {
        if self.settings.slices_grow() { MOST_PARTS } else { self.settings.links.into() }
    }

    /// Whether the ring can have this part after one of the slice `before`.
    pub(super) fn takes(&self, part: &PartHead, before: u64) -> bool {
        let PartHead { slice, growth, shape, items, listed } = *part;
        let timed = match self.is_window() {
            true => (before..=self.settings.slice_of(MOST_TIME)).contains(&slice),
            false => slice == 0 && growth == 0,
        };
        let shaped = (1..=MOST_HASHES).contains(&shape.hashes)
            && (1..=MOST_BITS).contains(&shape.bits)
            && (1..=MOST_BITS).contains(&shape.capacity);
        let most = if listed { most_listed(&shape) } else { MOST_ITEMS };
        timed && shaped && items <= most
    }
}

/// A part but for what it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartHead {
    /// The slice of time that it belongs to; 0 without a window.
    pub slice: u64,
    /// Which array of its slice it is.
    pub growth: u8,
    /// Its size.
    pub shape: ArrayShape,
    /// Items written to it.
    pub items: u64,
    /// It is a list of so many hashes, not bits.
    pub listed: bool,
}

impl PartHead {
    /// That of a part.
    #[must_use]
    pub fn of(part: &Part) -> Self {
        let Part { slice, growth, shape, items, ref store } = *part;
        Self { slice, growth, shape, items, listed: matches!(store, Store::List(_)) }
    }

    /// Bytes of what it holds.
    #[must_use]
    pub fn content_bytes(&self) -> u64 {
        if self.listed { self.items.saturating_mul(HASH_BYTES as u64) } else { self.shape.bytes() }
    }

    /// The part, still without what it holds.
    ///
    /// # Errors
    ///
    /// [`AllocError`].
    pub fn empty(&self) -> Result<Part, AllocError> {
        let mut part = Part::new(self.slice, self.growth, self.shape);
        part.items = self.items;
        if !self.listed {
            part.store = Store::Bits(SharedBits::zeroed(self.shape.bits)?);
        }
        Ok(part)
    }
}

/// Put what a part holds from the byte `offset` on into one that is [empty](PartHead::empty) there. Lists are given in order.
///
/// # Errors
///
/// [`AllocError`].
///
/// # Panics
///
/// If there is no such place in its bits.
pub fn put_content(part: &mut Part, offset: usize, content: &[u8]) -> Result<(), AllocError> {
    match &mut part.store {
        Store::Bits(bits) => bits.or_bytes(offset, content),
        Store::List(list) => {
            let (hashes, _) = content.as_chunks::<HASH_BYTES>();
            list.try_reserve_exact(hashes.len()).map_err(|_| AllocError { bytes: content.len() as u64 })?;
            list.extend(hashes.iter().map(|hash| u64::from_le_bytes(*hash)));
            Ok(())
        }
    }
}

/// Append what a part holds from the byte `offset` on: so many bytes of bits, or all of a list.
pub(super) fn push_content(out: &mut Vec<u8>, part: &Part, offset: usize, bytes: usize) {
    match &part.store {
        Store::List(hashes) => hashes.iter().for_each(|hash| out.extend_from_slice(&hash.to_le_bytes())),
        Store::Bits(bits) => {
            let start = out.len();
            out.resize(start + bytes, 0);
            bits.copy_bytes(offset, &mut out[start..]);
        }
    }
}

/// Looks at what a part holds, piece by piece in order.
#[derive(Clone, Copy, Debug)]
pub struct ContentCheck {
    part: PartHead,
    /// The last hash of a list so far.
    last: Option<u64>,
    sound: bool,
}

impl ContentCheck {
    /// Nothing was seen yet of what this part holds.
    #[must_use]
    pub fn new(part: PartHead) -> Self {
        Self { part, last: None, sound: true }
    }

    /// The bytes from `offset` on are these. Pieces of a list begin and end between two hashes.
    pub fn take(&mut self, offset: usize, piece: &[u8]) {
        if !self.part.listed {
            let used = self.part.shape.bits % 8;
            let ends = (offset + piece.len()) as u64 == self.part.shape.bytes();
            self.sound &= !ends || used == 0 || piece.last().is_none_or(|byte| byte >> used == 0);
            return;
        }
        let (hashes, rest) = piece.as_chunks::<HASH_BYTES>();
        self.sound &= rest.is_empty();
        for hash in hashes.iter().map(|hash| u64::from_le_bytes(*hash)) {
            self.sound &= self.last.replace(hash).is_none_or(|before| before < hash);
        }
    }

    /// Whether a ring can hold what was seen.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.sound
    }
}
