//! Where the server listens, and who is let in.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use socket2::{Domain, SockRef, Socket as RawSocket, TcpKeepalive, Type};
use tokio::net::{TcpListener, UnixListener};

use super::shared::Shared;
use super::stream::Socket;
use crate::config::{BindAddress, Settings};

/// Wait after a failed accept (no descriptors, say) before the next one.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A connection just accepted.
pub(super) struct Accepted {
    pub(super) socket: Socket,
    /// The connection gets this error and is closed.
    pub(super) refusal: Option<&'static str>,
}

/// All listening sockets.
pub(super) struct Listeners {
    tcp: Vec<TcpListener>,
    /// With the path, and the identity of the file there.
    unix: Option<(UnixListener, PathBuf, (u64, u64))>,
}

impl Listeners {
    /// Open the sockets that the settings name.
    ///
    /// # Errors
    /// Which address cannot be had, and why; nothing to listen on.
    pub(super) fn bind(settings: &Settings) -> Result<Self, String> {
        let mut tcp = Vec::new();
        if settings.port() != 0 {
            for address in settings.bind() {
                match listen(&address, settings) {
                    Ok(listener) => tcp.push(listener),
                    Err(error) if address.optional && is_absent(&error) => {
                        tracing::debug!("'{}' is not an address of this machine: skipped", address.host);
                    }
                    Err(error) => {
                        let hint = match error.kind() {
                            io::ErrorKind::AddrInUse => "; '--port' chooses another port",
                            _ => "",
                        };
                        return Err(format!(
                            "cannot listen on {} port {}: {error}{hint}",
                            address.host,
                            settings.port()
                        ));
                    }
                }
            }
        }
        let unix = match settings.unixsocket() {
            None => None,
            Some(path) => match listen_unix(&path, settings) {
                Ok((listener, file)) => Some((listener, path, file)),
                Err(error) => return Err(format!("cannot listen on socket '{}': {error}", path.display())),
            },
        };
        if tcp.is_empty() && unix.is_none() {
            return Err("nothing to listen on: set 'port' and 'bind', or 'unixsocket'".to_owned());
        }
        Ok(Self { tcp, unix })
    }

    /// Where the server listens, for the log.
    pub(super) fn describe(&self) -> String {
        let tcp = self.tcp.iter().filter_map(|listener| listener.local_addr().ok()).map(|address| address.to_string());
        tcp.chain(self.unix.iter().map(|(_, path, _)| path.display().to_string())).collect::<Vec<_>>().join(", ")
    }

    /// Accept for ever.
    pub(super) async fn accept(&self, shared: &Arc<Shared>) {
        loop {
            match self.next().await {
                Ok((socket, peer)) => {
                    let refusal = refusal(shared, peer);
                    if let Socket::Tcp(stream) = &socket {
                        prepare(stream, &shared.settings);
                    }
                    shared.workers.hand_over(shared, Accepted { socket, refusal });
                }
                Err(error) => {
                    tracing::warn!("cannot accept a connection: {error}");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// The next connection, and its peer's address if it came over TCP.
    async fn next(&self) -> io::Result<(Socket, Option<IpAddr>)> {
        std::future::poll_fn(|context| {
            for listener in &self.tcp {
                if let std::task::Poll::Ready(accepted) = listener.poll_accept(context) {
                    return std::task::Poll::Ready(accepted.and_then(|(stream, peer)| {
                        Ok((Socket::Tcp(stream.into_std()?), Some(peer.ip().to_canonical())))
                    }));
                }
            }
            if let Some((listener, ..)) = &self.unix
                && let std::task::Poll::Ready(accepted) = listener.poll_accept(context)
            {
                return std::task::Poll::Ready(
                    accepted.and_then(|(stream, _)| Ok((Socket::Unix(stream.into_std()?), None))),
                );
            }
            std::task::Poll::Pending
        })
        .await
    }

    /// Remove what would stay behind.
    pub(super) fn clean_up(&self) {
        // Another server may have put its own there.
        if let Some((_, path, own)) = &self.unix
            && identity(path).is_ok_and(|present| present == *own)
            && let Err(error) = std::fs::remove_file(path)
        {
            tracing::warn!("socket '{}' stays behind: {error}", path.display());
        }
    }
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::AddrNotAvailable) || error.raw_os_error() == Some(libc::EAFNOSUPPORT)
}

fn listen(address: &BindAddress, settings: &Settings) -> io::Result<TcpListener> {
    let host = match address.host.as_str() {
        "*" => "0.0.0.0",
        "::*" => "::",
        host => host,
    };
    let mut addresses = (host, settings.port()).to_socket_addrs()?;
    let address = addresses.next().ok_or_else(|| io::Error::from(io::ErrorKind::AddrNotAvailable))?;
    let socket = RawSocket::new(Domain::for_address(address), Type::STREAM, None)?;
    if let SocketAddr::V6(_) = address {
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(settings.tcp_backlog())?;
    TcpListener::from_std(socket.into())
}

/// Device and number of a file, whatever its name; of a link itself, not of what it leads to.
fn identity(path: &Path) -> io::Result<(u64, u64)> {
    std::fs::symlink_metadata(path).map(|file| (file.dev(), file.ino()))
}

/// The listener, and the identity of its file.
fn listen_unix(path: &Path, settings: &Settings) -> io::Result<(UnixListener, (u64, u64))> {
    // A socket that nobody answers at was left behind by a server that was killed.
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
    let refused = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    if is_socket && std::os::unix::net::UnixStream::connect(path).is_err_and(refused) {
        std::fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    if let Some(mode) = settings.unixsocketperm() {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
    }
    Ok((listener, identity(path)?))
}

/// Replies leave at once, and dead peers are noticed.
fn prepare(stream: &std::net::TcpStream, settings: &Settings) {
    let socket = SockRef::from(stream);
    let keepalive = u64::from(settings.tcp_keepalive());
    let probes = TcpKeepalive::new()
        .with_time(Duration::from_secs(keepalive))
        .with_interval(Duration::from_secs((keepalive / 3).max(1)))
        .with_retries(3);
    let set = socket.set_tcp_nodelay(true).and_then(|()| match keepalive {
        0 => Ok(()),
        _ => socket.set_tcp_keepalive(&probes),
    });
    if let Err(error) = set {
        tracing::debug!("socket options: {error}");
    }
}

fn refusal(shared: &Shared, peer: Option<IpAddr>) -> Option<&'static str> {
    let settings = &shared.settings;
    let outside = peer.is_some_and(|address| !address.is_loopback());
    if outside && settings.protected_mode() && settings.requirepass().is_empty() {
        return Some(
            "DENIED SeenDB is running in protected mode: no password is set, and this connection does not come from the \
             machine itself. On that machine either set a password with 'CONFIG SET requirepass <password>' (and in the \
             config file, to keep it), or, if only trusted machines reach the port, use 'CONFIG SET protected-mode no'.",
        );
    }
    (shared.workers.clients() as u64 >= shared.max_clients()).then_some("ERR max number of clients reached")
}
