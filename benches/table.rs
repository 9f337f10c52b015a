//! Inserts into ten million keys: no insert is slower than another because of the table.
//!
//! Each insert is timed by the thread's CPU clock, in the process, so that neither the network nor other programs count.
//! `cargo bench --bench table [keys]`; ends with status 1 if an insert took over a millisecond.

use std::process::ExitCode;

use seendb::keyspace::Keyspace;
use seendb::keyspace::entry::Entry;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const LIMIT_NS: u64 = 1_000_000;

fn cpu_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call fills in the structure it is given.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn main() -> ExitCode {
    let keys = std::env::args().filter_map(|word| word.parse().ok()).next().unwrap_or(10_000_000_u64);
    let keyspace = Keyspace::new(None);
    let mut times = Vec::with_capacity(keys as usize);
    for n in 0..keys {
        let name = format!("user:{n}");
        // The smallest value there is: what is measured is the table, and the allocation of the entry.
        let Ok(entry) = Entry::packed_bloom(name.as_bytes(), None, 29, |_| {}) else { return ExitCode::FAILURE };
        let begun = cpu_ns();
        let inserted = keyspace.write(0, name.as_bytes(), |cell| cell.insert(entry));
        times.push(cpu_ns() - begun);
        assert!(inserted.is_ok());
    }
    let table = keyspace.table_bytes() as f64 / keys as f64;
    times.sort_unstable();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    println!("{keys} inserts, thread CPU ns with the clock's own cost:");
    for share in [0.5, 0.9, 0.99, 0.999, 0.9999, 0.999_99, 1.0] {
        println!("  {:>9} {:>9}", format!("p{}", share * 100.0), at(share));
    }
    println!("table: {table:.1} bytes a key; over 1 ms: {}", times.iter().filter(|ns| **ns > LIMIT_NS).count());
    if at(1.0) > LIMIT_NS { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
