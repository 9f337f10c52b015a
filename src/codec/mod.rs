//! Filters as bytes. Where the bytes go is not known here.
//!
//! | module | holds |
//! | --- | --- |
//! | [`bloom`] | dumps in chunks: a header, then bits |
//! | [`bloom_value`] | a chain as a value of RDB, in RedisBloom's own encoding |
//! | [`payload`] | that value in the frame that `DUMP` puts around it |
//! | [`ring_value`] | a ring as a value of RDB |
//! | [`ring_dump`] | its dumps in chunks |
//! | [`ring_export`] | what clients get of it, to ask without the server |
//! | [`ring_fields`] | what these three share: the fields, and what is believed of them |
//! | [`cells_value`] | counting and d-left filters as values of RDB |
//! | [`cells_dump`] | their dumps in chunks |
//! | [`counting_export`] | what clients get of a counting filter, to ask without the server |
//! | [`chunks`] | what dumps in chunks share |
//! | [`rdb`], [`rdb_string`], [`lzf`] | what such values are made of |
//! | [`foreign`] | values of other types, which are stepped over |
//! | [`crc64`] | the checksum of payloads and files |
//! | [`crc32c`] | the checksum of parts of files |
//!
//! Everything that reads treats its input as hostile: every field is checked before it is used, sums are checked, and no
//! memory is taken before the caller's limit was asked.

pub mod bloom;
pub mod bloom_value;
pub mod cells_dump;
pub mod cells_value;
pub mod chunks;
pub mod counting_export;
pub mod crc32c;
pub mod crc64;
pub mod export_frame;
pub mod foreign;
pub mod lzf;
pub mod payload;
pub mod rdb;
pub mod rdb_string;
pub mod ring_dump;
pub mod ring_export;
pub mod ring_fields;
pub mod ring_value;
pub mod value;

#[cfg(test)]
mod bloom_tests;
#[cfg(test)]
mod cells_tests;
#[cfg(test)]
mod ring_tests;
