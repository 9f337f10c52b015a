//! Writing a snapshot: a file of all keys as they were at the cut.
//!
//! The file gets its name when all of it is on the disk: it is written under another name, synced, renamed, and the folder
//! synced. Whatever goes wrong before, the file that had the name is as it was and the unfinished one is removed.
//!
//! Between the keys stand [block marks](super::mark): one about each mebibyte, and one behind each large filter.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::mark::{PROFILE, push_mark};
use crate::codec::bloom_value::{BloomWriter, push_packed};
use crate::codec::cells_value::{CellsHead, CellsRef, CellsWriter, push_cells};
use crate::codec::crc32c::Crc32c;
use crate::codec::crc64::Crc64;
use crate::codec::lzf::Compressor;
use crate::codec::rdb;
use crate::codec::ring_value::{RingWriter, push_packed_ring};
use crate::filters::counting::{CountingRef, PackedCounting};
use crate::filters::dleft::{DleftRef, PackedDleft};
use crate::filters::frozen::{Frozen, FrozenArrays, FrozenBits, PAGE_BYTES};
use crate::filters::packed_bloom::PackedBloom;
use crate::filters::ring::Ring;
use crate::keyspace::DATABASES;
use crate::keyspace::effect::Effect;
use crate::keyspace::entry::Kind;
use crate::keyspace::snapshot::{Images, LargeFilter, LargeImage, SmallImage, Snapshot, Walk};
use crate::persist::files::{File, Files};
use crate::persist::record::encode;

/// A block ends at the first key that makes it so large.
const BLOCK_BYTES: usize = 1 << 20;
/// So much is written at once.
const WRITE_BYTES: usize = 1 << 20;
/// After so many bytes the file is synced, so that the last sync has little to do.
const SYNC_BYTES: u64 = 32 << 20;
/// The walk holds a shard for at most about so long.
const SLICE: Duration = Duration::from_micros(200);

const AUX: u8 = 0xfa;
const RESIZE_DB: u8 = 0xfb;
const EXPIRE_MS: u8 = 0xfc;
const SELECT_DB: u8 = 0xfe;
const END: u8 = 0xff;
/// What every reader since Redis 7.0 knows.
const MAGIC: &[u8; 9] = b"REDIS0010";

/// How a file is written.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Compress the bits of small filters.
    pub compress: bool,
    /// Put a checksum of the whole file at its end.
    pub checksum: bool,
    /// For others: no field and no mark that only this program knows.
    pub plain: bool,
    /// Fields about the file, besides the usual ones.
    pub fields: Vec<(&'static str, String)>,
}

/// How far a file is.
#[derive(Debug, Default)]
pub struct Progress {
    /// Keys at the cut.
    pub keys: AtomicU64,
    /// Keys written.
    pub keys_done: AtomicU64,
    /// Bytes written.
    pub bytes: AtomicU64,
    /// Set it to have the file given up.
    pub stop: AtomicBool,
}

/// Write a snapshot to the file `path`. Returns how long the file is.
///
/// # Errors
/// Those of the system; [`io::ErrorKind::Interrupted`] if it was stopped.
pub fn save(
    files: &dyn Files,
    path: &Path,
    snapshot: Snapshot,
    options: &Options,
    progress: &Progress,
) -> io::Result<u64> {
    let temporary = temporary_name(path);
    let folder = path.parent().unwrap_or(Path::new(""));
    let written = write_file(files, &temporary, snapshot, options, progress);
    let placed = written.and_then(|length| files.rename(&temporary, path).map(|()| length));
    if placed.is_err() {
        // The reason for the failure counts, not that of this one.
        let _ = files.remove(&temporary);
    }
    let length = placed?;
    files.sync_folder(folder)?;
    Ok(length)
}

/// The name of a file that is not finished.
#[must_use]
pub fn temporary_name(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!("temp-{}-{name}", std::process::id()))
}

/// Whether a name is that of a file that was to become `of`, whoever wrote it.
#[must_use]
pub fn is_temporary(name: &str, of: &str) -> bool {
    let Some((process, rest)) = name.strip_prefix("temp-").and_then(|rest| rest.split_once('-')) else { return false };
    let is_number = !process.is_empty() && process.bytes().all(|byte| byte.is_ascii_digit());
    // A file for a client has such a name itself, and another one while it is written.
    is_number && (rest == of || is_temporary(rest, of))
}

fn write_file(
    files: &dyn Files,
    path: &Path,
    snapshot: Snapshot,
    options: &Options,
    progress: &Progress,
) -> io::Result<u64> {
    let mut writer = Writer::new(files.create(path)?, options, progress);
    progress.keys.store(snapshot.keys(), Ordering::Relaxed);
    writer.head(options);
    writer.profiles(&snapshot);
    writer.keys(snapshot)?;
    writer.finish()
}

struct Writer<'a> {
    file: Box<dyn File>,
    progress: &'a Progress,
    out: Vec<u8>,
    /// Bytes in the file.
    offset: u64,
    /// Bytes that were synced.
    synced: u64,
    /// Checksum of the file, if it is to have one.
    file_crc: Option<Crc64>,
    /// How much of `out` is in it.
    summed: usize,
    block: Block,
    compressor: Option<Compressor>,
    /// Keys of the databases that nothing was written of yet, and those with a life.
    sizes: [Option<(u64, u64)>; DATABASES],
    marks: bool,
}

/// The block that is being written.
struct Block {
    crc: Crc32c,
    /// How much of `out` is in the checksum.
    summed: usize,
    length: u64,
    db: Option<usize>,
}

impl Block {
    fn new(start: usize) -> Self {
        Self { crc: Crc32c::new(), summed: start, length: 0, db: None }
    }

    fn sum(&mut self, out: &[u8]) {
        self.crc.update(&out[self.summed..]);
        self.length += (out.len() - self.summed) as u64;
        self.summed = out.len();
    }
}

impl<'a> Writer<'a> {
    fn new(file: Box<dyn File>, options: &Options, progress: &'a Progress) -> Self {
        Self {
            file,
            progress,
            out: Vec::with_capacity(2 * WRITE_BYTES),
            offset: 0,
            synced: 0,
            file_crc: options.checksum.then(Crc64::new),
            summed: 0,
            block: Block::new(0),
            compressor: options.compress.then(Compressor::default),
            sizes: [None; DATABASES],
            marks: !options.plain,
        }
    }

    fn head(&mut self, options: &Options) {
        self.out.extend_from_slice(MAGIC);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs().to_string();
        self.field("redis-bits", &usize::BITS.to_string());
        self.field("ctime", &now);
        if !options.plain {
            self.field("seendb-ver", env!("CARGO_PKG_VERSION"));
        }
        options.fields.iter().for_each(|(name, value)| self.field(name, value));
    }

    /// What rings get that a command makes by itself.
    fn profiles(&mut self, snapshot: &Snapshot) {
        for (prefix, profile) in snapshot.profiles().iter().filter(|_| self.marks) {
            let mut record = Vec::new();
            encode(0, prefix, &Effect::Profile { settings: Some(*profile) }, &mut record);
            self.out.push(AUX);
            push_string(&mut self.out, PROFILE);
            push_string(&mut self.out, &record);
        }
    }

    fn field(&mut self, name: &str, value: &str) {
        self.out.push(AUX);
        push_string(&mut self.out, name.as_bytes());
        push_string(&mut self.out, value.as_bytes());
    }

    fn keys(&mut self, mut snapshot: Snapshot) -> io::Result<()> {
        let mut images = Images::default();
        self.sizes = std::array::from_fn(|db| Some(snapshot.size(db)));
        loop {
            let walk = snapshot.step(SLICE, &mut images);
            for image in images.small() {
                self.small(&image);
                self.flush_if_full()?;
            }
            for image in &images.large {
                self.large(image)?;
            }
            images.clear();
            self.progress.keys_done.store(snapshot.keys_done(), Ordering::Relaxed);
            match walk {
                Walk::GoesOn => {}
                Walk::Ended => return Ok(()),
                Walk::Incomplete => {
                    let (done, keys) = (snapshot.keys_done(), snapshot.keys());
                    return Err(io::Error::other(format!("the walk met {done} of {keys} keys")));
                }
            }
        }
    }

    fn small(&mut self, image: &SmallImage<'_>) {
        self.key(image.db, image.life, image.name);
        match image.kind {
            Kind::Counting => {
                let filter = CellsRef::Counting(CountingRef::Packed(PackedCounting::new(image.payload)));
                push_cells(&mut self.out, filter, self.compressor.as_mut());
            }
            Kind::Dleft => {
                let filter = CellsRef::Dleft(DleftRef::Packed(PackedDleft::new(image.payload)));
                push_cells(&mut self.out, filter, self.compressor.as_mut());
            }
            Kind::Ring => push_packed_ring(&mut self.out, image.payload, self.compressor.as_mut()),
            _ => push_packed(&mut self.out, PackedBloom::new(image.payload), self.compressor.as_mut()),
        }
    }

    fn key(&mut self, db: usize, life: Option<u64>, name: &[u8]) {
        if self.block.length as usize + self.out.len() - self.block.summed >= BLOCK_BYTES {
            self.end_block();
        }
        if self.block.db != Some(db) {
            self.out.extend([SELECT_DB, db as u8]);
            self.block.db = Some(db);
            // Once a database: who loads the file makes its tables of this size.
            if let Some((keys, lives)) = self.sizes[db].take() {
                self.out.push(RESIZE_DB);
                rdb::push_length(&mut self.out, keys);
                rdb::push_length(&mut self.out, lives);
            }
        }
        if let Some(life) = life {
            self.out.push(EXPIRE_MS);
            self.out.extend(life.to_le_bytes());
        }
        self.out.push(rdb::TYPE_MODULE_2);
        push_string(&mut self.out, name);
    }

    fn large(&mut self, image: &LargeImage) -> io::Result<()> {
        self.end_block();
        self.key(image.db, image.life, &image.name);
        match &image.filter {
            LargeFilter::Bloom(filter) => self.bits(filter)?,
            LargeFilter::Ring(ring) => self.ring(ring)?,
            LargeFilter::Counting(image) => {
                let head = CellsHead::counting(image.settings, image.shape, &image.figures);
                self.cells(CellsWriter::new(&head, &[]), &image.cells)?;
            }
            LargeFilter::Dleft(image) => {
                let capacities = image.sets.iter().map(|set| set.capacity);
                let head = CellsHead::dleft(image.settings, (image.seed, image.items), capacities, image.spilled());
                self.cells(CellsWriter::new(&head, image.spilled()), &image.cells)?;
            }
            LargeFilter::Half(value) => self.out.extend_from_slice(value),
        }
        self.end_block();
        Ok(())
    }

    fn bits(&mut self, filter: &Frozen) -> io::Result<()> {
        let (mut value, mut bits) = (BloomWriter::frozen(filter), FrozenBits::of(filter));
        while !value.step_with(&mut self.out, PAGE_BYTES, |_, _, buffer| bits.read(buffer)) {
            self.flush_if_full()?;
        }
        self.flush_if_full()
    }

    fn cells(&mut self, mut value: CellsWriter, cells: &FrozenArrays) -> io::Result<()> {
        let mut bytes = FrozenBits::of(cells);
        while !value.step(&mut self.out, PAGE_BYTES, |_, _, buffer| bytes.read(buffer)) {
            self.flush_if_full()?;
        }
        self.flush_if_full()
    }

    fn ring(&mut self, ring: &Ring) -> io::Result<()> {
        let mut value = RingWriter::new(ring.clone());
        while !value.step(&mut self.out, PAGE_BYTES) {
            self.flush_if_full()?;
        }
        self.flush_if_full()
    }

    /// Put a mark behind what was written since the last one.
    fn end_block(&mut self) {
        self.block.sum(&self.out);
        if self.marks && self.block.length > 0 {
            push_mark(&mut self.out, self.block.crc.value(), self.block.length);
        }
        self.block = Block::new(self.out.len());
    }

    fn flush_if_full(&mut self) -> io::Result<()> {
        if self.out.len() >= WRITE_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.progress.stop.load(Ordering::Relaxed) {
            return Err(io::Error::new(io::ErrorKind::Interrupted, "given up"));
        }
        self.block.sum(&self.out);
        self.sum_file();
        self.file.write_all_at(&self.out, self.offset)?;
        self.offset += self.out.len() as u64;
        self.out.clear();
        (self.block.summed, self.summed) = (0, 0);
        self.progress.bytes.store(self.offset, Ordering::Relaxed);
        if self.offset - self.synced >= SYNC_BYTES {
            self.file.sync()?;
            self.synced = self.offset;
        }
        Ok(())
    }

    fn sum_file(&mut self) {
        if let Some(crc) = &mut self.file_crc {
            crc.update(&self.out[self.summed..]);
            self.summed = self.out.len();
        }
    }

    fn finish(mut self) -> io::Result<u64> {
        self.end_block();
        self.out.push(END);
        self.sum_file();
        let crc = self.file_crc.as_ref().map_or(0, Crc64::value);
        self.out.extend(crc.to_le_bytes());
        // It must not become part of itself.
        self.file_crc = None;
        self.flush()?;
        self.file.sync()?;
        Ok(self.offset)
    }
}

fn push_string(out: &mut Vec<u8>, bytes: &[u8]) {
    rdb::push_length(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}
