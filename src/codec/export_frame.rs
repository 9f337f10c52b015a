//! What the exports of all kinds of filters begin and end with, and how it is read. All integers little-endian:
//!
//! | offset | size | field |
//! | --- | --- | --- |
//! | 0 | 8 | `SEENXPRT` |
//! | 8 | 1 | version of the format: 1 |
//! | 9 | 1 | kind of filter |
//! | 10 | 1 | hash: 1 XXH3-64, 2 SipHash-2-4, whose key follows the fields of the kind |
//! | | | what the kind has |
//! | | 8 | XXH3-64 of all before it: who reads an export has that hash |

use super::chunks::{Fields, HASH_SIP, HASH_XXH3};
use crate::filters::item_hash::{HashKey, hash_item, positions};

/// First bytes of an export.
pub const MAGIC: &[u8; 8] = b"SEENXPRT";
const FORMAT: u8 = 1;
/// Bytes of the checksum at the end.
pub(super) const CHECKSUM_BYTES: usize = 8;

/// Bytes are no export of such a filter, or damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExportError {
    /// They do not begin like an export.
    #[error("not an export of a filter")]
    Magic,
    /// They are the export of another kind of filter, or in a version of the format that is not known.
    #[error("an export of another kind or version")]
    Kind,
    /// The checksum is wrong, or a field.
    #[error("the export is damaged")]
    Damaged,
}

/// Appends what an export of this kind begins with.
pub(super) fn push_start(out: &mut Vec<u8>, kind: u8, key: Option<&HashKey>) {
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&[FORMAT, kind, if key.is_some() { HASH_SIP } else { HASH_XXH3 }]);
}

/// What stands between kind and checksum, the number of the hash first.
///
/// # Errors
///
/// [`ExportError`].
pub(super) fn open(bytes: &[u8], kind: u8) -> Result<Fields<'_>, ExportError> {
    let rest = bytes.strip_prefix(MAGIC).ok_or(ExportError::Magic)?;
    if !rest.starts_with(&[FORMAT, kind]) {
        return Err(ExportError::Kind);
    }
    let (body, checksum) = bytes.split_last_chunk::<CHECKSUM_BYTES>().ok_or(ExportError::Damaged)?;
    if u64::from_le_bytes(*checksum) != hash_item(body, None) {
        return Err(ExportError::Damaged);
    }
    Ok(Fields(body.get(MAGIC.len() + 2..).unwrap_or_default()))
}

/// The key that stands here if the hash with this number has one. None: there is no such hash, or no key.
pub(super) fn read_key(fields: &mut Fields<'_>, hash: u8) -> Option<Option<HashKey>> {
    match hash {
        HASH_XXH3 => Some(None),
        HASH_SIP => fields.array().map(Some),
        _ => None,
    }
}

/// Whether an item with this hash has all of its bits in an array of so many.
pub(super) fn has_all(array: &[u8], (bits, hashes): (u64, u32), hash: u64) -> bool {
    let is_set = |x: u64| array.get((x / 8) as usize).is_some_and(|byte| byte & 1 << (x % 8) != 0);
    positions(hash, bits, hashes).all(is_set)
}
