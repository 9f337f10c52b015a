//! Servers of canned replies, and one that stands between a client and a server.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use super::support::free_port;

/// Answers requests by a function until the test program ends; returns the port.
pub fn fake(answer: impl FnMut(&[Vec<u8>]) -> Vec<u8> + Send + 'static) -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", free_port())).expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let answer = Arc::new(Mutex::new(answer));
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let answer = Arc::clone(&answer);
            std::thread::spawn(move || serve(stream, &answer));
        }
    });
    port
}

fn serve(mut stream: TcpStream, answer: &Mutex<impl FnMut(&[Vec<u8>]) -> Vec<u8>>) {
    let (mut input, mut piece) = (Vec::new(), vec![0; 64 << 10]);
    loop {
        while let Some((words, used)) = request(&input) {
            input.drain(..used);
            let reply = (answer.lock().expect("no test has failed"))(&words);
            if stream.write_all(&reply).is_err() {
                return;
            }
        }
        match stream.read(&mut piece) {
            Ok(read @ 1..) => input.extend_from_slice(&piece[..read]),
            _ => return,
        }
    }
}

/// The words of the first request, and its length.
fn request(input: &[u8]) -> Option<(Vec<Vec<u8>>, usize)> {
    let mut at = 0;
    let number = |at: &mut usize| {
        let line =
            input.get(*at..)?.split_inclusive(|byte| *byte == b'\n').next().filter(|line| line.ends_with(b"\n"))?;
        *at += line.len();
        std::str::from_utf8(&line[1..line.len() - 2]).ok()?.parse::<usize>().ok()
    };
    let count = number(&mut at)?;
    let mut words = Vec::new();
    for _ in 0..count {
        let len = number(&mut at)?;
        words.push(input.get(at..at + len)?.to_vec());
        at += len + 2;
    }
    (at <= input.len()).then_some((words, at))
}

/// A proxy before a server; it ends, with all its connections, when it goes out of scope.
pub struct Between {
    port: u16,
    streams: Arc<Mutex<Option<Vec<TcpStream>>>>,
    accepting: Option<std::thread::JoinHandle<()>>,
}

impl Between {
    /// One on a free port. `look` sees the bytes that a client sends before the server does; if it says no, the connection ends.
    pub fn start(server: u16, look: impl FnMut(&[u8]) -> bool + Send + 'static) -> Between {
        Between::start_at(free_port(), server, look)
    }

    /// One on this port.
    pub fn start_at(port: u16, server: u16, look: impl FnMut(&[u8]) -> bool + Send + 'static) -> Between {
        let listener = TcpListener::bind(("127.0.0.1", port)).expect("the port is free");
        let streams = Arc::new(Mutex::new(Some(Vec::new())));
        let kept = Arc::clone(&streams);
        let look = Arc::new(Mutex::new(look));
        let accepting = std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Some(open) = &mut *kept.lock().expect("a list") else { return };
                let server = TcpStream::connect(("127.0.0.1", server)).expect("the server accepts");
                for stream in [&client, &server] {
                    stream.set_nodelay(true).expect("a TCP option");
                    open.push(stream.try_clone().expect("a second handle"));
                }
                let look = Arc::clone(&look);
                let (from, to) = (client.try_clone().expect("a handle"), server.try_clone().expect("a handle"));
                std::thread::spawn(move || pass(from, to, |bytes| (look.lock().expect("no test has failed"))(bytes)));
                std::thread::spawn(move || pass(server, client, |_| true));
            }
        });
        Between { port, streams, accepting: Some(accepting) }
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for Between {
    fn drop(&mut self) {
        for stream in self.streams.lock().expect("a list").take().unwrap_or_default() {
            let _ = stream.shutdown(Shutdown::Both);
        }
        // Wakes it, to see that there is no list any more.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
        let _ = self.accepting.take().map(|thread| thread.join());
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, mut look: impl FnMut(&[u8]) -> bool) {
    let mut piece = vec![0; 1 << 20];
    while let Ok(read @ 1..) = from.read(&mut piece) {
        if !look(&piece[..read]) || to.write_all(&piece[..read]).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
