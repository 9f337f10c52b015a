//! What `CBF.EXPORT` answers: a counting filter for whoever asks it without the server, as the plain Bloom filter "counter above 0".
//!
//! `docs/export-format.md` describes the same with an example. All integers little-endian:
//!
//! | offset | size | field |
//! | --- | --- | --- |
//! | 0 | 8 | `SEENXPRT` |
//! | 8 | 1 | version of the format: 1 |
//! | 9 | 1 | kind of filter: 2, a counting one |
//! | 10 | 1 | hash: 1 XXH3-64, 2 SipHash-2-4 |
//! | 11 | 1 | positions an item |
//! | 12 | 4 | 0 |
//! | 16 | 8 | version of the filter |
//! | 24 | 8 | items in it |
//! | 32 | 8 | capacity |
//! | 40 | 8 | error rate at capacity, a double |
//! | 48 | 8 | bits |
//! | 56 | 16 | key of the hash; only with hash 2 |
//! | | | the bits |
//! | | 8 | XXH3-64 of all before it |

use xxhash_rust::xxh3::Xxh3Default;

use super::cells_dump::KIND_COUNTING;
use super::chunks::{Fields, reserved};
use super::export_frame::{CHECKSUM_BYTES, ExportError, has_all, open, push_start, read_key};
use crate::filters::bits::AllocError;
use crate::filters::counting::{CountingRef, Figures, MOST_HASHES, Settings, Shape};
use crate::filters::item_hash::{HashKey, hash_item};

const HEAD_BYTES: usize = 56;

/// The export of a counting filter.
///
/// # Errors
///
/// [`AllocError`] when there is no memory for it; it takes a quarter of the filter, or an eighth.
pub fn export(filter: CountingRef<'_>) -> Result<Vec<u8>, AllocError> {
    let mut writer = CountingExportWriter::new(filter);
    let mut out = writer.room()?;
    while !writer.step(filter, &mut out, usize::MAX) {}
    Ok(out)
}

/// The export of a counting filter that does not exist and would be made with these settings and shape: of version 0, with nothing in it.
///
/// # Errors
///
/// As [`export`].
pub fn empty_export(settings: &Settings, shape: Shape) -> Result<Vec<u8>, AllocError> {
    let mut writer = CountingExportWriter::of(settings, shape, &Figures::default());
    let mut out = writer.room()?;
    writer.step_with(&mut out, usize::MAX, |_, _| {});
    Ok(out)
}

/// Writes an export in steps. Nobody may change the filter meanwhile.
#[derive(Clone)]
pub struct CountingExportWriter {
    head: Vec<u8>,
    bytes: u64,
    /// Bytes of bits that were written; none before the head was.
    at: Option<u64>,
    done: bool,
    /// Of what was appended so far.
    checksum: Xxh3Default,
}

impl CountingExportWriter {
    /// A writer that stands before the first byte.
    #[must_use]
    pub fn new(filter: CountingRef<'_>) -> Self {
        Self::of(&filter.settings(), filter.shape(), &filter.figures())
    }

    fn of(settings: &Settings, shape: Shape, figures: &Figures) -> Self {
        let mut head = Vec::with_capacity(HEAD_BYTES + settings.key.map_or(0, |key| key.len()));
        push_start(&mut head, KIND_COUNTING, settings.key.as_ref());
        head.extend_from_slice(&[shape.hashes as u8, 0, 0, 0, 0]);
        let fields = [figures.version, figures.items, settings.capacity, settings.error.to_bits(), shape.cells];
        fields.iter().for_each(|field| head.extend_from_slice(&field.to_le_bytes()));
        settings.key.iter().for_each(|key| head.extend_from_slice(key));
        Self { head, bytes: shape.export_bytes(), at: None, done: false, checksum: Xxh3Default::new() }
    }

    /// Bytes of the whole export.
    #[allow(clippy::len_without_is_empty, reason = "an export always has bytes")]
    #[must_use]
    pub fn len(&self) -> u64 {
        (self.head.len() + CHECKSUM_BYTES) as u64 + self.bytes
    }

    /// An empty buffer with room for the whole export.
    ///
    /// # Errors
    ///
    /// [`AllocError`] when there is no memory for it.
    pub fn room(&self) -> Result<Vec<u8>, AllocError> {
        reserved(self.len())
    }

    /// Appends about `bytes` bytes, and says whether the export is complete now. The filter is the one that the writer was made for.
    ///
    /// # Panics
    ///
    /// If it is another one, perhaps.
    pub fn step(&mut self, filter: CountingRef<'_>, out: &mut Vec<u8>, bytes: usize) -> bool {
        self.step_with(out, bytes, |offset, bits| filter.export_bits(offset, bits))
    }

    /// The same with bits from anywhere; the buffer is all zeros.
    fn step_with(&mut self, out: &mut Vec<u8>, bytes: usize, read: impl FnOnce(usize, &mut [u8])) -> bool {
        if self.done {
            return true;
        }
        let start = out.len();
        let at = self.at.unwrap_or_else(|| {
            out.extend_from_slice(&self.head);
            0
        });
        let run = (self.bytes - at).min(bytes.max(1) as u64);
        let bits = out.len();
        out.resize(bits + run as usize, 0);
        read(at as usize, &mut out[bits..]);
        self.checksum.update(&out[start..]);
        self.at = Some(at + run);
        self.done = at + run == self.bytes;
        if self.done {
            out.extend_from_slice(&self.checksum.digest().to_le_bytes());
        }
        self.done
    }
}

/// An export that was read: it answers as the server did, without it, from the bytes where they are.
///
/// ```
/// use seendb::codec::counting_export::{ExportedCounting, export};
/// use seendb::filters::counting::{CounterBits, CountingBloom, CountingMut, Settings};
///
/// // What a cache has: a filter of the addresses in it.
/// let settings =
///     Settings { capacity: 1000, error: 0.01, counter_bits: CounterBits::Four, strict: false, key: None };
/// let mut cached = CountingBloom::new(settings, settings.shape()?, 1)?;
/// let mut cached = CountingMut::Large(&mut cached);
/// for address in ["/a", "/b"] {
///     cached.insert(settings.hash(address.as_bytes()))?;
/// }
/// cached.remove(settings.hash(b"/b"));
///
/// // What `CBF.EXPORT` sends, and what its neighbour makes of it.
/// let bytes = export(cached.as_ref())?;
/// let theirs = ExportedCounting::read(&bytes)?;
/// assert!(theirs.contains(b"/a") && !theirs.contains(b"/b"));
/// assert_eq!((theirs.version(), theirs.items()), (4, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ExportedCounting<'a> {
    version: u64,
    items: u64,
    capacity: u64,
    error: f64,
    bits: u64,
    hashes: u32,
    key: Option<HashKey>,
    content: &'a [u8],
}

impl<'a> ExportedCounting<'a> {
    /// The filter in these bytes.
    ///
    /// # Errors
    ///
    /// [`ExportError`].
    pub fn read(bytes: &'a [u8]) -> Result<Self, ExportError> {
        Self::read_fields(open(bytes, KIND_COUNTING)?).ok_or(ExportError::Damaged)
    }

    fn read_fields(mut fields: Fields<'a>) -> Option<Self> {
        let [hash, hashes, zeros @ ..] = fields.array::<6>()?;
        let (version, items, capacity) = (fields.u64()?, fields.u64()?, fields.u64()?);
        let (error, bits) = (f64::from_bits(fields.u64()?), fields.u64()?);
        let key = read_key(&mut fields, hash)?;
        let hashes = u32::from(hashes);
        let sound = zeros == [0; 4] && (1..=MOST_HASHES).contains(&hashes) && error > 0.0 && error < 1.0 && bits > 0;
        let whole = fields.0.len() as u64 == bits.div_ceil(8);
        (sound && whole).then_some(Self { version, items, capacity, error, bits, hashes, key, content: fields.0 })
    }

    /// Whether the server would have said that this item was in the filter.
    #[must_use]
    pub fn contains(&self, item: &[u8]) -> bool {
        has_all(self.content, (self.bits, self.hashes), hash_item(item, self.key.as_ref()))
    }

    /// The version of the filter; a later one has a greater one.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Items in the filter.
    #[must_use]
    pub fn items(&self) -> u64 {
        self.items
    }

    /// So many items it is made for.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// The share of items never added that are found all the same when it holds its capacity.
    #[must_use]
    pub fn error_rate(&self) -> f64 {
        self.error
    }
}
