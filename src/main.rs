//! The `seendb` server, and the tools that go by its name.

use std::process::ExitCode;

use seendb::config::Environment;
use seendb::config::cli::launch;

/// Filters are big blocks, and its figures are what `INFO memory` shows.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// The allocator gives unused memory back to the system within seconds. (It looks for a C string under this name; the first
/// word of the reference is its address.) Its own background thread is left off: with it even the largest blocks, which are
/// else given back at once, stay for a while.
#[unsafe(export_name = "_rjem_malloc_conf")]
pub static ALLOCATOR_SETTINGS: &[u8] = b"dirty_decay_ms:3000,muzzy_decay_ms:0\0";

fn main() -> ExitCode {
    if let Some(status) = seendb::tools::run(std::env::args_os()) {
        return status;
    }
    let launch = match launch(std::env::args_os(), Environment::detect()) {
        Ok(launch) => launch,
        Err(exit) if exit.status == 0 => {
            print!("{}", exit.text);
            return ExitCode::SUCCESS;
        }
        Err(exit) => {
            eprint!("{}", exit.text);
            return ExitCode::from(exit.status);
        }
    };
    match seendb::server::run(launch.settings) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("seendb: {reason}");
            ExitCode::FAILURE
        }
    }
}
