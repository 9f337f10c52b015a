//! The threads that serve connections.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use tokio::runtime::{Builder, Handle};

use super::connection::serve;
use super::listener::{Accepted, Socket};
use super::shared::Shared;

/// The threads that serve connections.
pub(super) struct Workers {
    handles: Vec<Handle>,
    loads: Arc<[AtomicUsize]>,
}

impl Workers {
    /// Start as many as the settings say.
    pub(super) fn start(shared: &Arc<Shared>) -> io::Result<Self> {
        let count = shared.settings.threads();
        let handles = (0..count).map(start_one).collect::<io::Result<_>>()?;
        Ok(Self { handles, loads: (0..count).map(|_| AtomicUsize::new(0)).collect() })
    }

    /// Give a connection to the worker that has the fewest.
    pub(super) fn hand_over(&self, shared: &Arc<Shared>, accepted: Accepted) {
        let loads = self.loads.iter().map(|load| load.load(Ordering::Relaxed));
        let index = loads.enumerate().min_by_key(|(_, load)| *load).map_or(0, |(index, _)| index);
        self.loads[index].fetch_add(1, Ordering::Relaxed);
        let (shared, loads) = (shared.clone(), self.loads.clone());
        self.handles[index].spawn(async move {
            // A socket is registered with the runtime of the thread that serves it.
            let outcome = match accepted.socket {
                Socket::Tcp(socket) => match tokio::net::TcpStream::from_std(socket) {
                    Ok(stream) => serve(&shared, index, stream, accepted.refusal).await,
                    Err(error) => Err(error),
                },
                Socket::Unix(socket) => match tokio::net::UnixStream::from_std(socket) {
                    Ok(stream) => serve(&shared, index, stream, accepted.refusal).await,
                    Err(error) => Err(error),
                },
            };
            if let Err(error) = outcome {
                tracing::debug!("a connection ended: {error}");
            }
            loads[index].fetch_sub(1, Ordering::Relaxed);
        });
    }
}

fn start_one(index: usize) -> io::Result<Handle> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    // The thread ends with the process: connections are waited for, not threads.
    let serve = move || runtime.block_on(std::future::pending::<()>());
    thread::Builder::new().name(format!("seendb-{index}")).spawn(serve)?;
    Ok(handle)
}
