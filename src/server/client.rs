//! The clients that are connected, and how others end a connection.
//!
//! A connection is ended from outside by shutting its socket down: its own task then reads the end of the stream and
//! leaves, wherever it was waiting. Nothing on the path of a request has to look for a flag.

use std::collections::BTreeMap;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use parking_lot::Mutex;

/// What others may know of a connection.
pub(super) struct Client {
    /// Its number.
    pub(super) id: u64,
    /// Second of its last request, on the server's clock.
    pub(super) active: AtomicU32,
    /// Second from which on it is cut off for holding too many replies for too long; 0 for never.
    pub(super) cut_off_at: AtomicU32,
    /// Second from which on it is no longer read from, because the server ends; 0 for never.
    pub(super) ends_by: AtomicU32,
    /// The worker that it should be at.
    pub(super) home: AtomicUsize,
    /// The socket, until the connection closes it.
    socket: Mutex<Option<RawFd>>,
}

/// How a connection is ended from outside.
#[derive(Clone, Copy)]
enum Ending {
    /// What has arrived is still answered.
    Gracefully,
    /// At once.
    Abruptly,
}

impl Client {
    fn end(&self, ending: Ending) {
        let how = match ending {
            Ending::Gracefully => libc::SHUT_RD,
            Ending::Abruptly => libc::SHUT_RDWR,
        };
        if let Some(socket) = *self.socket.lock() {
            // SAFETY: the connection takes the descriptor out under this lock before it closes it, so it is still its
            // own. A failure means that the peer is gone already.
            unsafe { libc::shutdown(socket, how) };
        }
    }
}

/// All connected clients.
#[derive(Default)]
pub(super) struct Clients {
    by_id: Mutex<BTreeMap<u64, Arc<Client>>>,
}

impl Clients {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.by_id.lock().len()
    }

    /// A connection begins.
    pub(super) fn add(&self, id: u64, home: usize, socket: RawFd, now: u32) -> Arc<Client> {
        let client = Arc::new(Client {
            id,
            active: AtomicU32::new(now),
            cut_off_at: AtomicU32::new(0),
            ends_by: AtomicU32::new(0),
            home: AtomicUsize::new(home),
            socket: Mutex::new(Some(socket)),
        });
        self.by_id.lock().insert(id, client.clone());
        client
    }

    /// A connection is about to close its socket.
    pub(super) fn remove(&self, client: &Client) {
        client.socket.lock().take();
        self.by_id.lock().remove(&client.id);
    }

    /// End all connections after what has arrived is answered. On a socket that is shut down for reading more may arrive
    /// all the same: who goes on sending is left alone from second `ends_by` on.
    pub(super) fn end_all(&self, ends_by: u32) {
        for client in self.by_id.lock().values() {
            client.ends_by.store(ends_by, Ordering::Relaxed);
            client.end(Ending::Gracefully);
        }
    }

    /// Say anew which worker each should be at, of the first so many: those that were active in the last seconds in turn,
    /// and so the others.
    pub(super) fn deal(&self, workers: usize, now: u32) {
        const RECENT_SECONDS: u32 = 2;
        let clients = self.by_id.lock();
        let mut next = [0, 0];
        for client in clients.values() {
            let recent = now.saturating_sub(client.active.load(Ordering::Relaxed)) <= RECENT_SECONDS;
            let next = &mut next[usize::from(recent)];
            client.home.store(*next % workers, Ordering::Relaxed);
            *next += 1;
        }
    }

    /// End those that were idle for longer than `timeout` seconds (0: none), and those whose time to read replies is up;
    /// returns how many the latter are.
    pub(super) fn sweep(&self, now: u32, timeout: u32) -> u64 {
        let mut cut_off = 0;
        for client in self.by_id.lock().values() {
            let idle = now.saturating_sub(client.active.load(Ordering::Relaxed));
            let cut_off_at = client.cut_off_at.load(Ordering::Relaxed);
            if cut_off_at > 0 && now >= cut_off_at {
                client.cut_off_at.store(0, Ordering::Relaxed);
                client.end(Ending::Abruptly);
                tracing::warn!(client = client.id, "client cut off: it does not read its replies");
                cut_off += 1;
            } else if timeout > 0 && idle > timeout {
                client.end(Ending::Abruptly);
            }
        }
        cut_off
    }
}
