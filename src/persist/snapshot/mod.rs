//! Snapshots: all keys of a moment in one file, in the format of Redis (RDB).
//!
//! ```text
//! magic and version | fields about the file | of each database: its number, its keys | end | checksum
//! ```
//!
//! Each part begins with a byte: an *opcode* from 243 up, or the type of a key's value. Before a key may stand its life and how
//! it was used. Nothing tells where a part ends but its own bytes, so one wrong length makes all that follows unreadable.
//! Files written here have [block marks](mark) besides: fields that Redis steps over, each with the checksum of the bytes since
//! the last one. By them damage is found where it is, and reading can go on behind it.
//!
//! | module | holds |
//! | --- | --- |
//! | [`mark`] | the marks |
//! | [`read`] | loading a file, and going through it without loading |
//! | [`save`] | writing a file

pub mod mark;
pub mod read;
pub mod save;
