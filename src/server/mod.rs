//! The stand-alone server: listeners, connections, clients, figures, the end.
//!
//! # Threads
//!
//! Workers each run a single-threaded tokio runtime; a connection belongs to one of them, so a batch of commands runs from
//! the read to the write without another thread being woken. As many workers serve as the load needs, up to `threads`:
//! see `balance`. The main thread accepts, keeps the clocks, sweeps idle clients and waits for signals.
//!
//! # The end
//!
//! SIGTERM, SIGINT and `SHUTDOWN` stop the accepting and close the reading side of every socket: what a client had sent
//! by then is still read, run and answered, and then the connection ends by itself.

mod allocator;
mod balance;
mod buffers;
mod client;
mod connection;
mod files;
mod info;
mod listener;
pub mod logging;
mod memory_limit;
mod shared;
mod stream;
mod worker;

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::signal::unix::{SignalKind, signal};

use crate::config::Settings;
use listener::Listeners;
use shared::Shared;
use worker::{Balancer, Workers};

/// How long the end waits for clients that don't take their replies.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long the end answers clients that go on sending.
const SENDING_SECONDS: u32 = 1;
/// The clocks of the keyspace and of idle clients go by seconds; they are set this often.
const TICK: Duration = Duration::from_millis(100);

/// Keys whose lives are over are removed in so many parts, with other work of the main thread in between.
const EXPIRY_PARTS: usize = 16;

/// Run a server until it is told to end.
///
/// # Errors
/// Why it could not start, as a sentence for the operator.
pub fn run(settings: Settings) -> Result<(), String> {
    let folder = settings.dir();
    std::env::set_current_dir(&folder).map_err(|error| format!("cannot use folder '{}': {error}", folder.display()))?;
    logging::start(&settings)?;
    let files = files::raise_limit(&settings);
    let workers = Workers::start(settings.threads()).map_err(|error| format!("cannot start a thread: {error}"))?;
    let shared = Arc::new(Shared::new(settings, files, workers));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("cannot start the runtime: {error}"))?;
    runtime.block_on(async {
        let listeners = Listeners::bind(&shared.settings)?;
        serve(&shared, &listeners).await.map_err(|error| format!("cannot wait for signals: {error}"))
    })
}

async fn serve(shared: &Arc<Shared>, listeners: &Listeners) -> io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    // Registered, hence not deadly: a terminal that goes away, and a log that reaches the limit of file sizes.
    let _hang_up = signal(SignalKind::hangup())?;
    let _file_size = signal(SignalKind::from_raw(libc::SIGXFSZ))?;
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        process = std::process::id(),
        threads = shared.settings.threads(),
        "ready to accept connections at {}",
        listeners.describe()
    );
    tokio::select! {
        () = listeners.accept(shared) => {}
        () = keep_time(shared) => {}
        _ = terminate.recv() => tracing::info!("SIGTERM: ending"),
        _ = interrupt.recv() => tracing::info!("SIGINT: ending"),
        () = shared.shutdown_asked() => tracing::info!("SHUTDOWN: ending"),
    }
    end(shared, listeners).await;
    Ok(())
}

/// What has to be done now and then, for ever.
async fn keep_time(shared: &Shared) {
    let mut tick = tokio::time::interval(TICK);
    let mut balancer = Balancer::new(&shared.workers);
    loop {
        tick.tick().await;
        shared.tick();
        balancer.look(shared);
        for part in 0..EXPIRY_PARTS {
            shared.keyspace.expire(part, EXPIRY_PARTS);
            // Spread over the tick, the work never keeps a core from others for long; but an idle server sleeps.
            match shared.keyspace.has_lives() {
                true => tokio::time::sleep(TICK / (2 * EXPIRY_PARTS as u32)).await,
                false => tokio::task::yield_now().await,
            }
        }
        shared.memory.keep();
    }
}

async fn end(shared: &Shared, listeners: &Listeners) {
    let ends_by = shared.now() + SENDING_SECONDS;
    shared.clients.end_all(ends_by);
    let deadline = Instant::now() + PATIENCE;
    while shared.clients.len() > 0 && Instant::now() < deadline {
        // Connections that were handed to a worker but not registered yet are met by the next round.
        tokio::time::sleep(Duration::from_millis(2)).await;
        shared.clients.end_all(ends_by);
    }
    listeners.clean_up();
    tracing::info!(clients = shared.clients.len(), "bye");
}
