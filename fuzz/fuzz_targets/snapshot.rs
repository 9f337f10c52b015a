//! A snapshot from a stranger: whatever its bytes are, reading ends, takes no more memory than they can fill, and loses
//! nothing in silence.
//!
//! The first byte chooses: the rest is a whole file, or what stands between its head and its end, which then has a right
//! checksum; with a block mark before the end, or without.

#![no_main]

use std::io;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use seendb::codec::crc32c::Crc32c;
use seendb::codec::crc64::Crc64;
use seendb::keyspace::{DATABASES, Keyspace};
use seendb::persist::files::File;
use seendb::persist::snapshot::mark::push_mark;
use seendb::persist::snapshot::read::{LoadError, Options, Progress, Report, load, walk};

struct Memory(Vec<u8>);

impl File for Memory {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(self.0.len());
        let run = buffer.len().min(self.0.len() - from);
        buffer[..run].copy_from_slice(&self.0[from..from + run]);
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
        Ok(self.0.len() as u64)
    }
}

fn framed(choice: u8, rest: &[u8]) -> Vec<u8> {
    if choice == 0 {
        return rest.to_vec();
    }
    let magic: &[u8] = if choice & 4 == 0 { b"REDIS0012" } else { b"VALKEY080" };
    let mut file = [magic, rest].concat();
    if choice & 2 == 0 {
        let (sum, length) = (Crc32c::of(&file), file.len() as u64);
        push_mark(&mut file, sum, length);
    }
    file.push(0xff);
    file.extend(Crc64::of(&file).to_le_bytes());
    file
}

/// Making one takes longer than most runs.
static KEYSPACE: LazyLock<Keyspace> = LazyLock::new(|| {
    let keyspace = Keyspace::default();
    keyspace.hold_lives(true);
    keyspace
});

fn run(file: &Memory, accept_damaged: bool) -> Result<Report, LoadError> {
    let keyspace = &*KEYSPACE;
    let options = Options { accept_damaged, threads: 1, now: None };
    let report = load(file, keyspace, &options, &Progress::default());
    // An array is as large as the string that it came in, which may be compressed to an 88th.
    let bound = (file.0.len() as u64 + 1) * 200 + (1 << 20);
    assert!(keyspace.entry_bytes() <= bound, "{} bytes of {}", keyspace.entry_bytes(), file.0.len());
    // Tables hold tagged pointers, which a search for leaks does not see: nothing may stay there, nor wait to be freed.
    if (0..DATABASES).any(|db| !keyspace.is_empty(db)) {
        keyspace.lock_all(|_| false).ok().expect("nobody else has a key").flush(None);
        while keyspace.garbage_bytes() > 0 {
            std::thread::yield_now();
        }
    }
    report
}

fuzz_target!(|data: &[u8]| {
    let Some((&choice, rest)) = data.split_first() else { return };
    let file = Memory(framed(choice, rest));
    let strict = run(&file, false);
    let lenient = run(&file, true);
    let lenient = lenient.expect("what is damaged is accepted");
    let shown = walk(&file, false, &Progress::default(), &mut |_| {});
    match strict {
        Ok(report) => {
            assert_eq!((lenient.keys, lenient.dropped.count), (report.keys, 0), "{:?}", lenient.dropped);
            assert_eq!(shown.expect("as loaded").keys, report.keys);
        }
        Err(error) => assert!(lenient.dropped.count > 0, "a loss that is not reported: {error}"),
    }
});
