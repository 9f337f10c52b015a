//! Block marks: checksums inside a snapshot, at the borders of keys.
//!
//! A mark is a field about the file (opcode `fa`), which readers that do not know its name step over:
//!
//! | bytes | what |
//! | --- | --- |
//! | 1 | `fa` |
//! | 13 | the string `seendb-block` |
//! | 1 | `0c`: a string of 12 bytes |
//! | 4 | [CRC-32C](crate::codec::crc32c) of the block, little-endian |
//! | 8 | bytes of the block, little-endian |
//!
//! The block is all that stands between the end of the mark before, or the start of the file, and this mark. One mark stands
//! right before the end of the file's keys, so that every key lies in a block.
//!
//! **A block stands alone.** A reader that has lost the block before this one does not know the database any more that was
//! chosen there: so the writer chooses it again at the start of each block with keys. The marks themselves belong to no block.

/// Key of the field with the record of a profile of rings.
pub const PROFILE: &[u8] = b"seendb-profile";
/// Opcode of a field about the file.
pub(super) const AUX: u8 = 0xfa;
/// Name of the field.
pub const KEY: &[u8; 12] = b"seendb-block";
/// Bytes of a mark.
pub const MARK_BYTES: usize = HEAD.len() + VALUE_BYTES;

const VALUE_BYTES: usize = 12;
/// All that comes before the value, each string in the shortest form.
const HEAD: [u8; 15] = *b"\xfa\x0cseendb-block\x0c";

/// What a mark says of its block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// CRC-32C of its bytes.
    pub crc: u32,
    /// How many they are.
    pub length: u64,
}

impl Mark {
    /// The mark at the start of `bytes`, if one stands there as a whole.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Mark> {
        let value = bytes.strip_prefix(&HEAD)?;
        let (crc, value) = value.split_first_chunk()?;
        let (length, _) = value.split_first_chunk()?;
        Some(Mark { crc: u32::from_le_bytes(*crc), length: u64::from_le_bytes(*length) })
    }
}

/// Append the mark of a block.
pub fn push_mark(out: &mut Vec<u8>, crc: u32, length: u64) {
    out.extend_from_slice(&HEAD);
    out.extend_from_slice(&crc.to_le_bytes());
    out.extend_from_slice(&length.to_le_bytes());
}

/// Where in `bytes` something begins that looks like a mark; it may reach beyond their end.
pub(super) fn candidates(bytes: &[u8]) -> impl Iterator<Item = usize> {
    memchr::memmem::find_iter(bytes, &HEAD)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_comes_back_and_is_a_field() {
        let mut bytes = Vec::new();
        push_mark(&mut bytes, 0x0102_0304, 0x1122_3344_5566_7788);
        assert_eq!(bytes.len(), MARK_BYTES);
        let written = b"\xfa\x0cseendb-block\x0c\x04\x03\x02\x01\x88\x77\x66\x55\x44\x33\x22\x11";
        assert_eq!(bytes, written);
        assert_eq!(&bytes[2..14], KEY);
        assert_eq!(Mark::read(&bytes), Some(Mark { crc: 0x0102_0304, length: 0x1122_3344_5566_7788 }));
        for cut in 0..bytes.len() {
            assert_eq!(Mark::read(&bytes[..cut]), None);
        }
        assert_eq!(candidates(&[b"xx", &bytes[..], &bytes[..]].concat()).collect::<Vec<_>>(), [2, 29]);
    }
}
