//! TCP and Unix sockets, as one kind of stream.

use std::io;
use std::os::fd::AsRawFd;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

/// A connected socket that no runtime knows of, not blocking.
pub(super) enum Socket {
    /// Over TCP.
    Tcp(std::net::TcpStream),
    /// Over a Unix socket.
    Unix(std::os::unix::net::UnixStream),
}

/// A connected socket that the runtime of this thread watches.
pub(super) trait Stream: AsyncRead + AsyncWrite + AsRawFd + Unpin + Send + Sized {
    /// Take it from the runtime, to be watched by another one.
    fn into_socket(self) -> io::Result<Socket>;
}

impl Stream for TcpStream {
    fn into_socket(self) -> io::Result<Socket> {
        self.into_std().map(Socket::Tcp)
    }
}

impl Stream for UnixStream {
    fn into_socket(self) -> io::Result<Socket> {
        self.into_std().map(Socket::Unix)
    }
}
