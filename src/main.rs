//! The `seendb` server.

use std::process::ExitCode;

use seendb::config::Environment;
use seendb::config::cli::launch;

/// Filters are big blocks, and its figures are what `INFO memory` shows.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
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
