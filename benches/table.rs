//! Inserts into ten million keys: no insert is slower than another because of the table.
//!
//! Each insert is timed by the thread's CPU clock, in the process, so that neither the network nor other programs count.
//!
//! What does count is memory that is touched for the first time. Where the machine is virtual and its host takes back what is
//! free, the first touch of 2 MiB may cost milliseconds of "CPU time" in the host, with no page fault to be seen from inside.
//! So the keys are inserted twice: into fresh memory, only to be shown, and after the allocator got that memory back and was
//! told to keep it. The second round is judged.
//!
//! `cargo bench --bench table [keys]`; ends with status 1 if an insert of the second round took over a millisecond.

use std::process::ExitCode;

use seendb::keyspace::Keyspace;
use seendb::keyspace::entry::Entry;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// The allocator keeps what was freed, so that the second round touches no new memory. (It looks for a C string under this
/// name; the first word of the reference is its address.)
#[unsafe(export_name = "_rjem_malloc_conf")]
pub static ALLOCATOR_SETTINGS: &[u8] = b"dirty_decay_ms:-1,muzzy_decay_ms:-1\0";

const LIMIT_NS: u64 = 1_000_000;

fn cpu_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call fills in the structure it is given.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Insert so many keys into an empty keyspace; what each insert took, and the bytes of the table a key.
fn round(keys: u64) -> Option<(Vec<u64>, f64)> {
    let keyspace = Keyspace::new(None);
    let mut times = Vec::with_capacity(keys as usize);
    for n in 0..keys {
        let name = format!("user:{n}");
        // The smallest value there is: what is measured is the table, and the allocation of the entry.
        let entry = Entry::packed_bloom(name.as_bytes(), None, 29, |_| {}).ok()?;
        let begun = cpu_ns();
        let inserted = keyspace.write(0, name.as_bytes(), |cell| cell.insert(entry));
        times.push(cpu_ns() - begun);
        inserted.ok()?;
    }
    let table = keyspace.table_bytes() as f64 / keys as f64;
    times.sort_unstable();
    Some((times, table))
}

fn main() -> ExitCode {
    let keys = std::env::args().filter_map(|word| word.parse().ok()).next().unwrap_or(10_000_000_u64);
    let rounds = (round(keys), round(keys));
    let (Some((fresh, _)), Some((kept, table))) = rounds else { return ExitCode::FAILURE };
    println!("{keys} inserts, thread CPU ns with the clock's own cost:");
    println!("  {:>9} {:>12} {:>12}", "", "fresh memory", "memory kept");
    let shares = [0.5, 0.9, 0.99, 0.999, 0.9999, 0.999_99, 1.0];
    for (name, share) in ["p50", "p90", "p99", "p99.9", "p99.99", "p99.999", "longest"].into_iter().zip(shares) {
        let [fresh, kept] = [&fresh, &kept].map(|times| times[((times.len() - 1) as f64 * share) as usize]);
        println!("  {name:>9} {fresh:>12} {kept:>12}");
    }
    let [fresh, kept] = [&fresh, &kept].map(|times| times.iter().filter(|ns| **ns > LIMIT_NS).count());
    println!("  {:>9} {fresh:>12} {kept:>12}", "over 1 ms");
    println!("table: {table:.1} bytes a key");
    if kept > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
