//! Loading a snapshot of many small filters.
//!
//! Writes a file of `BF.RESERVE user:N 0.01 50` filters with three items each, as a snapshot has them, and loads it with one
//! thread, and with as many as there are cores. The file can be given to a Redis with RedisBloom for comparison: its log says
//! how long it took.
//!
//! `cargo bench --bench snapshot [keys] [file]`; without a file's name it is made in the folder for temporary files and removed.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use seendb::codec::bloom_value::BloomWriter;
use seendb::codec::crc32c::Crc32c;
use seendb::codec::crc64::Crc64;
use seendb::codec::rdb::push_length;
use seendb::filters::bloom::{Shape, options};
use seendb::filters::packed_bloom::{self, PackedBloom, PackedBloomMut};
use seendb::filters::{BloomMut, BloomRef};
use seendb::keyspace::Keyspace;
use seendb::persist::snapshot::mark::push_mark;
use seendb::persist::snapshot::read::{Options, Progress, load};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const BLOCK_BYTES: usize = 1 << 20;

/// Takes the bytes of the file.
struct Output {
    file: io::BufWriter<std::fs::File>,
    sum: Crc64,
    block: Vec<u8>,
}

impl Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.sum.update(bytes);
        self.file.write_all(bytes)
    }

    fn end_block(&mut self) -> io::Result<()> {
        let mut block = std::mem::take(&mut self.block);
        let (sum, length) = (Crc32c::of(&block), block.len() as u64);
        push_mark(&mut block, sum, length);
        self.write(&block)?;
        self.block = vec![0xfe, 0];
        Ok(())
    }
}

fn write(path: &Path, keys: u64) -> io::Result<()> {
    let file = io::BufWriter::new(std::fs::File::create(path)?);
    let mut output =
        Output { file, sum: Crc64::new(), block: b"REDIS0010\xfa\x0aseendb-ver\x01?\xfe\x00\xfb".to_vec() };
    push_length(&mut output.block, keys);
    push_length(&mut output.block, 0);
    let shape = Shape::first(50, 0.01, options::SCALING).map_err(io::Error::other)?;
    let mut payload = vec![0; packed_bloom::payload_len([&shape])];
    for n in 0..keys {
        packed_bloom::create(&mut payload, options::SCALING, 2, &shape);
        for item in 0..3 {
            let text = format!("{n}:{item}");
            let mut bloom = BloomMut::Packed(PackedBloomMut::new(&mut payload));
            let pair = bloom.as_ref().hash(text.as_bytes());
            bloom.insert(pair);
        }
        let name = format!("user:{n}");
        output.block.push(7);
        push_length(&mut output.block, name.len() as u64);
        output.block.extend_from_slice(name.as_bytes());
        let bloom = BloomRef::Packed(PackedBloom::new(&payload));
        let mut value = BloomWriter::new(bloom);
        while !value.step(bloom, &mut output.block, BLOCK_BYTES) {}
        if output.block.len() > BLOCK_BYTES {
            output.end_block()?;
        }
    }
    output.end_block()?;
    output.write(&[0xff])?;
    let sum = output.sum.value();
    output.write(&sum.to_le_bytes())?;
    output.file.flush()
}

/// Time that all threads of the process had so far.
fn cpu_seconds() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call fills in the structure it is given.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn run(keys: u64, path: &Path) -> Result<(), Box<dyn std::error::Error>> {
    if !path.exists() {
        write(path, keys)?;
    }
    let file = std::fs::File::open(path)?;
    let cores = std::thread::available_parallelism()?.get();
    println!("{keys} filters, {} bytes", file.metadata()?.len());
    for (threads, accept_damaged) in [(1, false), (cores, false), (1, true)] {
        let (keyspace, progress) = (Keyspace::default(), Progress::default());
        let (begun, cpu) = (Instant::now(), cpu_seconds());
        let report = load(&file, &keyspace, &Options { accept_damaged, threads, now: None }, &progress)?;
        let (took, cpu) = (begun.elapsed(), cpu_seconds() - cpu);
        let each = took.as_nanos() as u64 / report.keys.max(1);
        let damaged = if accept_damaged { ", damage accepted" } else { "" };
        println!("  {threads} threads{damaged}: {:.2} s, {each} ns a key, {cpu:.2} s of CPU", took.as_secs_f64());
        if report.keys != keys || report.blocks == 0 {
            return Err("not all keys were loaded, or no block was checked".into());
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let keys = words.first().and_then(|word| word.parse().ok()).unwrap_or(10_000_000_u64);
    let given = words.get(1).map(PathBuf::from);
    let path = given.clone().unwrap_or_else(|| std::env::temp_dir().join(format!("seendb-{}.rdb", std::process::id())));
    let result = run(keys, &path);
    if given.is_none() {
        let _ = std::fs::remove_file(&path);
    }
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
