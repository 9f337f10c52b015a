//! The threads that serve connections.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Handle};

use super::balance::{Balance, Decision, IdleCores};
use super::connection::{Ending, Origin, serve};
use super::listener::Accepted;
use super::shared::Shared;
use super::stream::Socket;

/// The threads that serve connections. The first [`Workers::active`] of them have any.
pub(super) struct Workers {
    handles: Vec<Handle>,
    connections: Box<[AtomicUsize]>,
    /// Nanoseconds for which each waited for the disk.
    synced: Box<[AtomicU64]>,
    active: AtomicUsize,
}

impl Workers {
    /// Start so many.
    pub(super) fn start(count: usize) -> io::Result<Self> {
        Ok(Self {
            handles: (0..count).map(start_one).collect::<io::Result<_>>()?,
            connections: (0..count).map(|_| AtomicUsize::new(0)).collect(),
            synced: (0..count).map(|_| AtomicU64::new(0)).collect(),
            active: AtomicUsize::new(1),
        })
    }

    /// How many workers serve now.
    pub(super) fn active(&self) -> usize {
        self.active.load(Ordering::Relaxed)
    }

    /// How many clients all of them have.
    pub(super) fn clients(&self) -> usize {
        self.connections.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// Give a new connection to the serving worker that has the fewest.
    pub(super) fn hand_over(&self, shared: &Arc<Shared>, accepted: Accepted) {
        let serving = self.connections[..self.active()].iter().map(|count| count.load(Ordering::Relaxed));
        let index = serving.enumerate().min_by_key(|(_, count)| *count).map_or(0, |(index, _)| index);
        self.serve_at(index, shared, accepted.socket, Origin::New { refusal: accepted.refusal });
    }

    /// Serve a connection at this worker until it ends or belongs to another one.
    fn serve_at(&self, index: usize, shared: &Arc<Shared>, socket: Socket, origin: Origin) {
        // Counted from here on, so that a burst of new connections cannot pass the limit. One that is turned away is not
        // a client.
        let counted = (!origin.is_refusal()).then(|| Counted::new(shared, index));
        let shared = shared.clone();
        self.handles[index].spawn(async move {
            match serve(&shared, index, socket, origin).await {
                Ok(Ending::Over) => {}
                Ok(Ending::Moved { to, socket, origin }) => {
                    shared.workers.serve_at(to, &shared, socket, origin);
                }
                Err(error) => tracing::debug!("a connection ended: {error}"),
            }
            drop(counted);
        });
    }

    /// A worker syncs the log: a time in which it has no load.
    pub(super) fn syncing(&self, index: usize, sync: impl FnOnce()) {
        let begun = Instant::now();
        sync();
        self.synced[index].fetch_add(begun.elapsed().as_nanos() as u64, Ordering::Relaxed);
    }

    /// How long each worker has been busy in all.
    fn busy(&self) -> Vec<Duration> {
        let synced = self.synced.iter().map(|synced| Duration::from_nanos(synced.load(Ordering::Relaxed)));
        let busy = self.handles.iter().map(|handle| handle.metrics().worker_total_busy_duration(0));
        busy.zip(synced).map(|(busy, synced)| busy.saturating_sub(synced)).collect()
    }
}

/// A connection that a worker has, however it ends.
struct Counted {
    shared: Arc<Shared>,
    index: usize,
}

impl Counted {
    fn new(shared: &Arc<Shared>, index: usize) -> Self {
        shared.workers.connections[index].fetch_add(1, Ordering::Relaxed);
        Self { shared: shared.clone(), index }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.shared.workers.connections[self.index].fetch_sub(1, Ordering::Relaxed);
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

/// Watches the workers' loads and deals the connections.
pub(super) struct Balancer {
    balance: Balance,
    idle: IdleCores,
    last: (Vec<Duration>, Instant),
}

impl Balancer {
    pub(super) fn new(workers: &Workers) -> Self {
        Self {
            balance: Balance::new(workers.handles.len()),
            idle: IdleCores::default(),
            last: (workers.busy(), Instant::now()),
        }
    }

    /// Look at the loads since the last call.
    pub(super) fn look(&mut self, shared: &Shared) {
        let (busy, now) = (shared.workers.busy(), Instant::now());
        let span = now.duration_since(self.last.1).as_secs_f64().max(1e-3);
        let loads: Vec<f64> = busy
            .iter()
            .zip(&self.last.0)
            .map(|(now, before)| now.saturating_sub(*before).as_secs_f64() / span)
            .collect();
        self.last = (busy, now);
        if let Decision::Deal(active) = self.balance.decide(&loads, self.idle.since_last(now), now) {
            tracing::debug!(active, "connections are dealt to the workers anew");
            shared.workers.active.store(active, Ordering::Relaxed);
            shared.clients.deal(active, shared.now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Environment, Settings};
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    /// A connection that is dealt to and fro while it is used loses nothing: neither requests, nor its state.
    #[test]
    fn connections_move_between_workers() {
        let environment = Environment { cores: 2, memory: None, memory_limit: None, folder: "/".into() };
        let settings = Settings::new(environment, []);
        let shared = Arc::new(Shared::new(
            settings,
            100,
            Workers::start(2).unwrap(),
            crate::persist::live::LiveLog::start().unwrap(),
        ));
        shared.durability.loading.store(false, Ordering::Relaxed);
        let mut clients: Vec<UnixStream> = (0..4)
            .map(|_| {
                let (ours, theirs) = UnixStream::pair().unwrap();
                theirs.set_nonblocking(true).unwrap();
                shared.workers.hand_over(&shared, Accepted { socket: Socket::Unix(theirs), refusal: None });
                ours
            })
            .collect();
        for (n, client) in clients.iter_mut().enumerate() {
            ask(client, &format!("SELECT {n}\r\nCLIENT SETNAME c{n}\r\n"), "+OK\r\n+OK\r\n");
        }
        let mut workers = [false; 2];
        for round in 0..200 {
            shared.clients.deal(1 + round % 2, shared.now());
            for (n, client) in clients.iter_mut().enumerate() {
                // Half a request is on the way while the connection is to move.
                client.write_all(b"BF.ADD k").unwrap();
                ask(client, " item\r\n", if round == 0 { ":1\r\n" } else { ":0\r\n" });
                ask(client, "CLIENT GETNAME\r\n", &format!("$2\r\nc{n}\r\n"));
            }
            for (seen, connections) in workers.iter_mut().zip(&shared.workers.connections) {
                *seen |= connections.load(Ordering::Relaxed) > 0;
            }
        }
        assert_eq!(workers, [true; 2]);
        drop(clients);
        while shared.clients.len() > 0 {
            thread::yield_now();
        }
    }

    fn ask(client: &mut UnixStream, request: &str, expected: &str) {
        client.write_all(request.as_bytes()).unwrap();
        let mut reply = vec![0; expected.len()];
        client.read_exact(&mut reply).unwrap();
        assert_eq!(String::from_utf8_lossy(&reply), expected);
    }
}
