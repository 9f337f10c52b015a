//! A million keys that fall due within a minute: what removing them in time takes.
//!
//! The clock is set by hand and moves by a tenth of a second, as often as the server looks; the time is the thread's CPU
//! time, in the process, so that other programs don't count. `cargo bench --bench lives [keys]`; ends with status 1 if keys are
//! left after their time, or a piece of the work, at whose end others run, took over ten milliseconds.

use std::process::ExitCode;

use seendb::filters::bloom::{Shape, options};
use seendb::keyspace::Keyspace;
use seendb::keyspace::bloom::empty_filter;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const START: u64 = 1_750_000_000_000;
const MINUTE: u64 = 60_000;
const TICK: u64 = 100;
/// As the server does it.
const PARTS: usize = 16;
const LIMIT_NS: u64 = 10_000_000;

fn cpu_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call fills in the structure it is given.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// So many keys that fall due within the minute: one in `every`, the others have no life.
fn filled(keys: u64, every: u64) -> Option<Keyspace> {
    let keyspace = Keyspace::new(None);
    keyspace.clock().set(START);
    let shape = Shape::first(10, 0.01, options::SCALING).ok()?;
    for n in 0..keys * every {
        let name = format!("user:{n}");
        // Neighbours in the table fall due at moments far from each other.
        let life =
            n.is_multiple_of(every).then(|| START + 1 + (n / every).wrapping_mul(0x9e37_79b9_7f4a_7c15) % MINUTE);
        let entry = empty_filter(name.as_bytes(), &shape, options::SCALING, 2, life).ok()?;
        keyspace.write(0, name.as_bytes(), |cell| cell.insert(entry)).ok()?;
    }
    Some(keyspace)
}

/// Let the minute pass; whether all went as it should.
fn pass(keyspace: &Keyspace, what: &str) -> bool {
    let (lives, keys) = (keyspace.lives(0), keyspace.len(0));
    let mut times = Vec::new();
    for now in (START..=START + MINUTE + TICK).step_by(TICK as usize) {
        keyspace.clock().set(now);
        for part in 0..PARTS {
            let begun = cpu_ns();
            keyspace.expire(part, PARTS);
            times.push(cpu_ns() - begun);
        }
    }
    let total: u64 = times.iter().sum();
    times.sort_unstable();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize] as f64 / 1e3;
    println!(
        "{lives} of {keys} keys {what}: {:.2} us a key, {:.1} % of a core; a piece us p50 {:.0} p99 {:.0} max {:.0}; {} left",
        total as f64 / 1e3 / lives.max(1) as f64,
        total as f64 / (MINUTE as f64 * 1e6) * 100.0,
        at(0.5),
        at(0.99),
        at(1.0),
        keyspace.lives(0)
    );
    keyspace.lives(0) == 0 && times.iter().all(|ns| *ns <= LIMIT_NS)
}

fn main() -> ExitCode {
    let keys = std::env::args().filter_map(|word| word.parse().ok()).next().unwrap_or(1_000_000_u64);
    let mut ok = true;
    for every in [1, 5] {
        let Some(keyspace) = filled(keys, every) else { return ExitCode::FAILURE };
        ok &= pass(&keyspace, "fall due within a minute");
    }
    // What looking costs when nothing is due.
    let Some(keyspace) = filled(0, 1) else { return ExitCode::FAILURE };
    ok &= pass(&keyspace, "(nothing to do)");
    if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
