//! A file in memory, a writer of snapshots, and what a keyspace holds.

use std::collections::BTreeMap;
use std::io;

use super::model::{Chain, Link, crc64, length, value};
use seendb::codec::bloom::encode_header;
use seendb::codec::payload::{dump_cells, dump_ring, open};
use seendb::codec::rdb::TYPE_MODULE_2;
use seendb::codec::value::push_half_loaded;
use seendb::keyspace::copies::cells_of;
use seendb::keyspace::entry::{EntryRef, ValueRef};
use seendb::keyspace::{DATABASES, Keyspace, SHARDS};
use seendb::persist::files::File;
use seendb::persist::snapshot::read::{LoadError, Options, Progress, Report, load, walk};

/// A file in memory; reading from `broken` on fails.
pub struct Memory {
    pub bytes: Vec<u8>,
    pub broken: Option<u64>,
}

impl Memory {
    pub fn new(bytes: &[u8]) -> Memory {
        Memory { bytes: bytes.to_vec(), broken: None }
    }
}

impl File for Memory {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        if self.broken.is_some_and(|broken| offset + buffer.len() as u64 > broken) {
            return Err(io::Error::other("broken"));
        }
        let from = (offset as usize).min(self.bytes.len());
        // Systems may give less than is asked for.
        let run = buffer.len().min(self.bytes.len() - from).min(100_000);
        buffer[..run].copy_from_slice(&self.bytes[from..from + run]);
        Ok(run)
    }
    fn write_at(&self, _: &[u8], _: u64) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn sync(&self) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn allocate(&self, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn set_length(&self, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn length(&self) -> io::Result<u64> {
        Ok(self.bytes.len() as u64)
    }
}

/// CRC-32C, bit by bit.
pub fn crc32c(bytes: &[u8]) -> u32 {
    // The polynomial 1edc6f41, its bits in reverse.
    let polynomial = 0x1edc_6f41_u32.reverse_bits();
    !bytes.iter().fold(!0, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| if crc & 1 == 1 { crc >> 1 ^ polynomial } else { crc >> 1 })
    })
}

pub fn text(bytes: &[u8]) -> Vec<u8> {
    [&length(bytes.len() as u64), bytes].concat()
}

/// A snapshot being written.
pub struct Writer {
    pub bytes: Vec<u8>,
    block: usize,
}

impl Writer {
    pub fn new(magic: &str) -> Writer {
        Writer { bytes: magic.as_bytes().to_vec(), block: 0 }
    }

    pub fn push(&mut self, bytes: &[u8]) -> &mut Writer {
        self.bytes.extend_from_slice(bytes);
        self
    }

    pub fn aux(&mut self, key: &[u8], value: &[u8]) -> &mut Writer {
        self.push(&[&[0xfa], &text(key)[..], &text(value)].concat())
    }

    pub fn db(&mut self, db: u64) -> &mut Writer {
        self.push(&[&[0xfe], &length(db)[..]].concat())
    }

    pub fn life(&mut self, moment: u64) -> &mut Writer {
        self.push(&[&[0xfc], &moment.to_le_bytes()[..]].concat())
    }

    /// A key; `value` begins with its type.
    pub fn key(&mut self, name: &[u8], value: &[u8]) -> &mut Writer {
        self.push(&[&value[..1], &text(name), &value[1..]].concat())
    }

    pub fn mark(&mut self) -> &mut Writer {
        let block = &self.bytes[self.block..];
        let value = [&crc32c(block).to_le_bytes()[..], &(block.len() as u64).to_le_bytes()].concat();
        self.aux(b"seendb-block", &value);
        self.block = self.bytes.len();
        self
    }

    /// The file, with its end and checksum.
    pub fn end(&mut self) -> Vec<u8> {
        self.push(&[0xff]);
        let sum = crc64(&self.bytes);
        self.push(&sum.to_le_bytes());
        std::mem::take(&mut self.bytes)
    }
}

/// A filter of one link with these bits, from its type to its end mark.
pub fn filter(bits: &[u8]) -> Vec<u8> {
    let link = Link::at_1_percent(50, bits.len() as u64 * 8, 0, bits, 3);
    value(4, &Chain::of(5, 2, vec![link]).fields(4))
}

/// A small filter that differs from others by its number.
pub fn numbered(number: u64) -> Vec<u8> {
    filter(&number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes())
}

/// A key: a filter's header and bits; of a ring its whole value, in place of a header.
#[derive(Clone, Debug, PartialEq)]
pub struct Held {
    pub life: Option<u64>,
    pub header: Vec<u8>,
    pub bits: Vec<Vec<u8>>,
}

fn held(entry: EntryRef<'_>) -> Held {
    let (header, bits) = match entry.value() {
        ValueRef::Bloom(bloom) => {
            let bits = bloom.links().enumerate().map(|(i, link)| {
                let mut bits = vec![0; link.shape.bytes as usize];
                bloom.copy_bytes(i, 0, &mut bits);
                bits
            });
            (encode_header(bloom), bits.collect())
        }
        ValueRef::Ring(ring) => {
            let payload = dump_ring(&ring.to_ring().unwrap()).unwrap();
            (open(&payload).unwrap().to_vec(), Vec::new())
        }
        ValueRef::HalfRing(half) => {
            let mut value = vec![TYPE_MODULE_2];
            push_half_loaded(&mut value, half);
            (value, Vec::new())
        }
        ValueRef::HalfCounting(half) => {
            let mut value = vec![TYPE_MODULE_2];
            push_half_loaded(&mut value, half);
            (value, Vec::new())
        }
        ValueRef::HalfDleft(half) => {
            let mut value = vec![TYPE_MODULE_2];
            push_half_loaded(&mut value, half);
            (value, Vec::new())
        }
        value => {
            let payload = dump_cells(cells_of(&value).expect("nobody is working now")).unwrap();
            (open(&payload).unwrap().to_vec(), Vec::new())
        }
    };
    Held { life: entry.life(), header, bits }
}

pub type Content = BTreeMap<(usize, Vec<u8>), Held>;

/// All that a keyspace holds.
pub fn content(keyspace: &Keyspace) -> Content {
    let mut content = Content::new();
    for db in 0..DATABASES {
        for shard in 0..SHARDS {
            keyspace.for_each_in_shard(None, db, shard, |entry| {
                content.insert((db, entry.name().to_vec()), held(entry));
            });
        }
    }
    content
}

pub fn load_with(file: &Memory, options: &Options) -> Result<(Report, Content), LoadError> {
    let (keyspace, progress) = (Keyspace::default(), Progress::default());
    keyspace.hold_lives(true);
    let report = load(file, &keyspace, options, &progress)?;
    let content = content(&keyspace);
    assert_eq!(report.keys, content.len() as u64);
    assert_eq!(progress.keys(), report.keys);
    assert_eq!(progress.bytes(), file.bytes.len() as u64);
    Ok((report, content))
}

/// What is in a file that must be sound, by one thread and by several.
#[track_caller]
pub fn loaded(bytes: &[u8]) -> (Report, Content) {
    let file = Memory::new(bytes);
    let (report, content) = load_with(&file, &Options { threads: 1, ..Options::default() }).unwrap();
    let (again, same) = load_with(&file, &Options { threads: 3, ..Options::default() }).unwrap();
    assert!(content == same && report.skipped == again.skipped);
    let (salvaged, same) = load_with(&file, &Options { accept_damaged: true, threads: 2, now: None }).unwrap();
    assert!(content == same, "another content where damage is accepted");
    assert_eq!((salvaged.dropped.count, &salvaged.skipped), (0, &report.skipped), "{:?}", salvaged.dropped);
    assert_eq!((salvaged.checksum, salvaged.blocks), (report.checksum, report.blocks));
    let mut shown = Vec::new();
    let walked = walk(&file, false, &Progress::default(), &mut |key| {
        let name = key.name.to_vec();
        match (key.chain, key.ring, key.cells) {
            (Some(chain), ..) => {
                let held = &content[&(key.db.unwrap() as usize, name)];
                assert_eq!(key.type_name.to_string(), "MBbloom--");
                assert_eq!(held.life, key.life);
                assert_eq!(held.bits.len(), chain.links.len());
            }
            (None, Some(_), _) => {
                let held = &content[&(key.db.unwrap() as usize, name)];
                assert_eq!((key.type_name.to_string().as_str(), held.life), ("seenCHAIN", key.life));
                assert!(held.bits.is_empty());
            }
            (None, None, Some(_)) => {
                let held = &content[&(key.db.unwrap() as usize, name)];
                assert!(["seenCBF--", "seenDLCBF"].contains(&key.type_name.to_string().as_str()));
                assert!(held.life == key.life && held.bits.is_empty());
            }
            (None, None, None) => shown.push((key.type_name, name)),
        }
    });
    let walked = walked.unwrap();
    assert_eq!((walked.keys, &walked.skipped), (report.keys, &report.skipped));
    assert_eq!(shown.len() as u64, report.skipped.values().sum::<u64>());
    (report, content)
}

/// The error of a file that must not be loaded.
#[track_caller]
pub fn refused(bytes: &[u8]) -> LoadError {
    let file = Memory::new(bytes);
    let error = load_with(&file, &Options { threads: 1, ..Options::default() }).unwrap_err();
    walk(&file, false, &Progress::default(), &mut |_| {}).unwrap_err();
    error
}

/// What can be had of a damaged file.
#[track_caller]
pub fn salvaged(bytes: &[u8]) -> (Report, Content) {
    let file = Memory::new(bytes);
    let (report, content) = load_with(&file, &Options { accept_damaged: true, threads: 1, now: None }).unwrap();
    let walked = walk(&file, true, &Progress::default(), &mut |_| {}).unwrap();
    assert!(walked.dropped.count > 0 || report.dropped.count == 0, "{:?}", report.dropped);
    (report, content)
}
