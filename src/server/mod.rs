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
mod beside;
mod buffers;
mod client;
mod connection;
mod durability;
#[cfg(test)]
mod durability_tests;
mod files;
mod info;
mod listener;
pub mod logging;
mod memory_limit;
mod memory_lock;
mod priority;
mod shared;
mod start;
mod stream;
mod waiting;
mod worker;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use crate::commands::context::{JobDone, ShutDown};
use crate::config::Settings;
use crate::persist::live::LiveLog;
use listener::Listeners;
use shared::Shared;
use worker::{Balancer, Workers};

/// How long the end waits for clients that don't take their replies.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long the end answers clients that go on sending.
const SENDING_SECONDS: u32 = 1;
/// The clocks of the keyspace and of idle clients go by seconds; they are set this often.
const TICK: Duration = Duration::from_millis(100);

/// Loading that takes no longer than this is not noticed.
const LOADED_UNNOTICED: Duration = Duration::from_millis(300);

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
    if settings.lock_memory() {
        memory_lock::lock().map_err(|error| {
            format!("cannot lock the memory: {error}; raise the limit of locked memory ('ulimit -l'), or set 'lock-memory no'")
        })?;
    }
    let workers = Workers::start(settings.threads()).map_err(|error| format!("cannot start a thread: {error}"))?;
    let log = LiveLog::start().map_err(|error| format!("cannot start a thread: {error}"))?;
    let shared = Arc::new(Shared::new(settings, files, workers, log));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("cannot start the runtime: {error}"))?;
    runtime.block_on(async {
        let listeners = Listeners::bind(&shared.settings)?;
        serve(&shared, &listeners).await
    })
}

async fn serve(shared: &Arc<Shared>, listeners: &Listeners) -> Result<(), String> {
    let handle = |kind| signal(kind).map_err(|error| format!("cannot wait for signals: {error}"));
    let mut terminate = handle(SignalKind::terminate())?;
    let mut interrupt = handle(SignalKind::interrupt())?;
    // Registered, hence not deadly: a terminal that goes away, and a log that reaches the limit of file sizes.
    let _hang_up = handle(SignalKind::hangup())?;
    let _file_size = handle(SignalKind::from_raw(libc::SIGXFSZ))?;
    let mut loading = start::load(shared);
    // Who comes while little is loaded need not notice: he is accepted when that is done.
    let unnoticed_until = tokio::time::Instant::now() + LOADED_UNNOTICED;
    loop {
        let accepting = loading.is_none() || tokio::time::Instant::now() >= unnoticed_until;
        let (how, job) = tokio::select! {
            () = listeners.accept(shared), if accepting => continue,
            () = keep_time(shared) => continue,
            () = tokio::time::sleep_until(unnoticed_until), if !accepting => continue,
            loaded = loaded(&mut loading) => {
                loading = None;
                loaded?;
                tracing::info!(
                    version = env!("CARGO_PKG_VERSION"),
                    process = std::process::id(),
                    threads = shared.settings.threads(),
                    "ready to accept connections at {}",
                    listeners.describe()
                );
                continue;
            }
            _ = terminate.recv() => asked_to_end("SIGTERM", (ShutDown::default(), Arc::default())),
            _ = interrupt.recv() => asked_to_end("SIGINT", (ShutDown::default(), Arc::default())),
            asked = shared.shutdown_asked() => asked_to_end("SHUTDOWN", asked),
        };
        // Clients are served meanwhile.
        let prepared = tokio::select! {
            prepared = shared.durability.prepare_end(how) => prepared,
            () = listeners.accept(shared) => continue,
            () = keep_time(shared) => continue,
        };
        let saved = match prepared {
            Ok(()) => {
                job.finish(Ok(JobDone::Done));
                end_clients(shared).await;
                shared.durability.save_rest(how).await
            }
            Err(reason) => {
                job.finish(Err(reason.clone()));
                Err(reason)
            }
        };
        match saved {
            Ok(()) => break,
            Err(reason) => tracing::error!(
                "cannot end without losing data, so the server goes on: {reason}; SHUTDOWN FORCE or NOSAVE ends it all the same"
            ),
        }
    }
    listeners.clean_up();
    shared.durability.close();
    tracing::info!(clients = shared.clients.len(), "bye");
    Ok(())
}

fn asked_to_end<T>(by: &str, how: T) -> T {
    tracing::info!("{by}: ending");
    how
}

/// Ends when the data are loaded; never, if they are already.
///
/// # Errors
/// They cannot be loaded: why.
async fn loaded(loading: &mut Option<oneshot::Receiver<Result<(), String>>>) -> Result<(), String> {
    match loading {
        Some(receiver) => receiver.await.unwrap_or_else(|_| Err("the thread that loads is gone".to_owned())),
        None => std::future::pending().await,
    }
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

/// What clients have sent is answered, and then their connections end.
async fn end_clients(shared: &Shared) {
    let ends_by = shared.now() + SENDING_SECONDS;
    shared.clients.end_all(ends_by);
    let deadline = Instant::now() + PATIENCE;
    while shared.clients.len() > 0 && Instant::now() < deadline {
        // Connections that were handed to a worker but not registered yet are met by the next round.
        tokio::time::sleep(Duration::from_millis(2)).await;
        shared.clients.end_all(ends_by);
    }
}
