//! One connection: reads what the socket has, runs all complete requests in it as a batch, writes the replies at once.
//!
//! # A client that does not read
//!
//! Replies that the socket does not take are kept and written when it does. Above [`PAUSE_BYTES`] of them no more of the
//! client's requests are run until it reads (its own socket fills up in the end, and it feels the pressure); if it then
//! takes nothing for [`STALL_SECONDS`], or passes `client-output-buffer-limit`, it is cut off. Nobody else waits for it.

use std::future::{Future, poll_fn};
use std::io;
use std::ops::Deref;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context as TaskContext, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

use super::buffers::{Buffers, KEPT_BYTES, READ_BYTES};
use super::client::Client;
use super::shared::Shared;
use super::stream::{Socket, Stream};
use crate::commands::context::{Context, Counters, Session};
use crate::commands::dispatch::{LongCommand, Progress, Step, execute, write};
use crate::config::{ClientClass, OutputLimit};
use crate::keyspace::effect::Journal;
use crate::keyspace::latch::Wait;
use crate::persist::live::Standing;
use crate::resp::{Limits, Reply, Scanner, encode_error};

/// Replies waiting for a client that stop its further requests from being run.
const PAUSE_BYTES: usize = 32 << 20;
/// A client that has to read and takes nothing for so long is cut off.
const STALL_SECONDS: u32 = 10;
/// Byte strings from this size on are sent piece by piece.
const LARGE_REPLY_BYTES: usize = 4 << 20;
/// A connection lets others run after so much work.
const SLICE: Duration = Duration::from_millis(1);
/// At most so many requests are scanned at once.
const BATCH_REQUESTS: usize = 1024;
/// More room is made in the input when there is less than this.
const LEAST_ROOM_BYTES: usize = 16 << 10;
/// A half request of so many bytes at the most is kept apart while its rest is waited for.
const HALF_BYTES: usize = 4096;
/// How long, and for how many bytes, a connection that is closed by us still takes what the peer sends: closing at once
/// would make the peer's system throw our last reply away.
const LINGER: Duration = Duration::from_millis(500);
const LINGER_BYTES: usize = 1 << 20;

/// Where a connection comes from.
pub(super) enum Origin {
    /// It was just accepted; with a refusal, that is all it is told.
    New {
        /// The whole text of the error.
        refusal: Option<&'static str>,
    },
    /// Another worker had it.
    Worker(Box<State>),
}

impl Origin {
    /// Whether the connection is turned away.
    pub(super) fn is_refusal(&self) -> bool {
        matches!(self, Self::New { refusal: Some(_) })
    }
}

/// How serving a connection ended.
pub(super) enum Ending {
    /// The connection is closed.
    Over,
    /// It belongs to another worker now.
    Moved {
        /// That worker.
        to: usize,
        /// The open socket.
        socket: Socket,
        /// With all that the connection remembers.
        origin: Origin,
    },
}

/// Serve one connection until it ends or belongs to another worker.
pub(super) async fn serve(shared: &Arc<Shared>, worker: usize, socket: Socket, origin: Origin) -> io::Result<Ending> {
    // A socket is watched by the runtime of the thread that serves it.
    match socket {
        Socket::Tcp(socket) => serve_stream(shared, worker, TcpStream::from_std(socket)?, origin).await,
        Socket::Unix(socket) => serve_stream(shared, worker, UnixStream::from_std(socket)?, origin).await,
    }
}

async fn serve_stream<S: Stream>(
    shared: &Arc<Shared>,
    worker: usize,
    mut stream: S,
    origin: Origin,
) -> io::Result<Ending> {
    let counters = &shared.counters[worker];
    let state = match origin {
        Origin::Worker(state) => {
            state.client.set_socket(Some(stream.as_raw_fd()));
            state
        }
        Origin::New { refusal: Some(refusal) } => {
            counters.rejected.add(1);
            let mut text = Vec::new();
            encode_error(refusal, &mut text);
            stream.write_all(&text).await?;
            say_goodbye(&mut stream).await?;
            return Ok(Ending::Over);
        }
        Origin::New { refusal: None } => {
            counters.connections.add(1);
            Box::new(State::new(shared, worker, &stream))
        }
    };
    let mut connection =
        Connection { shared, counters, worker, buffers: None, written: 0, held: 0, unconfirmed: None, state, stream };
    match connection.run().await? {
        None => Ok(Ending::Over),
        Some(to) => {
            let Connection { state, stream, .. } = connection;
            // Should the way to the other worker fail, the descriptor is closed before the state is dropped.
            state.client.set_socket(None);
            Ok(Ending::Moved { to, socket: stream.into_socket()?, origin: Origin::Worker(state) })
        }
    }
}

/// What a connection remembers while it has nothing to do.
pub(super) struct State {
    client: Registered,
    session: Session,
    scanner: Scanner,
    limits: Limits,
    output_limit: OutputLimit,
    settings_version: Option<u64>,
    /// Second in which the socket last took something.
    last_progress: u32,
    over_soft_since: Option<u32>,
    /// A short half request that waits for its rest; a longer one keeps its buffers.
    half: Vec<u8>,
}

impl State {
    fn new(shared: &Arc<Shared>, worker: usize, stream: &impl Stream) -> Self {
        let id = shared.next_id();
        let client = shared.clients.add(id, worker, stream.as_raw_fd(), shared.now());
        Self {
            client: Registered { shared: shared.clone(), client },
            session: Session::new(id, shared.settings.requirepass().is_empty()),
            scanner: Scanner::new(),
            limits: Limits::default(),
            output_limit: OutputLimit::default(),
            settings_version: None,
            last_progress: 0,
            over_soft_since: None,
            half: Vec::new(),
        }
    }
}

/// A place among the clients.
struct Registered {
    shared: Arc<Shared>,
    client: Arc<Client>,
}

impl Deref for Registered {
    type Target = Client;
    fn deref(&self) -> &Client {
        &self.client
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.shared.clients.remove(&self.client);
    }
}

/// A connection at its worker.
struct Connection<'s, S> {
    shared: &'s Arc<Shared>,
    counters: &'s Counters,
    worker: usize,
    /// Held only while something is read, run or waiting to be written.
    buffers: Option<Buffers>,
    /// How much of the output the socket has taken.
    written: usize,
    /// Bytes of a reply that is sent piece by piece, those that are not among the output yet.
    held: usize,
    /// Replies that may not be written yet. Nothing is, while there are some.
    unconfirmed: Option<Unconfirmed>,
    /// Dropped before the stream: the client is taken off the list before its descriptor is closed.
    state: Box<State>,
    stream: S,
}

/// Replies that may leave when the log is synced.
#[derive(Clone, Copy)]
struct Unconfirmed {
    /// Where they begin in the output.
    from: usize,
    count: usize,
    /// How the log stood before they were given.
    since: Standing,
}

/// What a read brought.
#[derive(PartialEq, Eq)]
enum Arrival {
    Data,
    End,
}

impl<S: Stream> Connection<'_, S> {
    /// Serve until the end, or until the connection belongs to another worker, which is then returned.
    async fn run(&mut self) -> io::Result<Option<usize>> {
        loop {
            let arrival = poll_fn(|task| self.poll_arrival(task)).await?;
            self.work().await?;
            self.confirm().await;
            if let Some(file) = self.state.session.file.take() {
                self.send_file(file).await?;
            }
            if arrival == Arrival::End {
                self.state.session.closing = true;
                self.write_all().await?;
                return Ok(None);
            }
            let ends_by = self.state.client.ends_by.load(Ordering::Relaxed);
            if self.state.session.closing || (ends_by > 0 && self.shared.now() >= ends_by) {
                self.write_all().await?;
                say_goodbye(&mut self.stream).await?;
                return Ok(None);
            }
            let home = self.state.client.home.load(Ordering::Relaxed);
            if home != self.worker && self.can_move().await? {
                return Ok(Some(home));
            }
        }
    }

    /// Whether nothing is half done.
    async fn can_move(&mut self) -> io::Result<bool> {
        self.write_some().await?;
        let idle = self.pending() == 0 && self.buffers.as_ref().is_none_or(|buffers| buffers.input.is_empty());
        if idle {
            self.give_buffers_back();
        }
        Ok(idle)
    }

    /// Write what is waiting, read what is there.
    fn poll_arrival(&mut self, task: &mut TaskContext<'_>) -> Poll<io::Result<Arrival>> {
        if self.pending() > 0 && self.poll_write(task)?.is_pending() && self.pending() >= PAUSE_BYTES {
            return Poll::Pending;
        }
        let half = &mut self.state.half;
        let buffers = self.buffers.get_or_insert_with(|| {
            let mut buffers = Buffers::borrow();
            buffers.input.append(half);
            *half = Vec::new();
            buffers
        });
        make_room(&mut buffers.input, self.state.scanner.wanted())?;
        let read = pin!(self.stream.read_buf(&mut buffers.input)).poll(task);
        match read {
            Poll::Ready(Ok(0)) => Poll::Ready(Ok(Arrival::End)),
            Poll::Ready(Ok(read)) => {
                self.counters.bytes_in.add(read as u64);
                self.state.client.active.store(self.shared.now(), Ordering::Relaxed);
                Poll::Ready(Ok(Arrival::Data))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => {
                if self.written == buffers.output.len() && buffers.input.len() <= HALF_BYTES {
                    self.state.half = buffers.input[..].into();
                    buffers.input.clear();
                    self.give_buffers_back();
                }
                Poll::Pending
            }
        }
    }

    fn give_buffers_back(&mut self) {
        if let Some(mut buffers) = self.buffers.take() {
            buffers.output.clear();
            self.written = 0;
            buffers.give_back();
        }
    }

    /// Bytes of replies that the socket has not taken.
    fn pending(&self) -> usize {
        self.held + self.buffers.as_ref().map_or(0, |buffers| buffers.output.len() - self.written)
    }

    /// Write until all is written or the socket takes no more.
    fn poll_write(&mut self, task: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        let Some(buffers) = &mut self.buffers else { return Poll::Ready(Ok(())) };
        while self.written < buffers.output.len() {
            let rest = &buffers.output[self.written..];
            match Pin::new(&mut self.stream).poll_write(task, rest) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(written)) => {
                    self.written += written;
                    self.state.last_progress = self.shared.now();
                    self.state.client.active.store(self.state.last_progress, Ordering::Relaxed);
                    self.counters.bytes_out.add(written as u64);
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => {
                    // A client that reads, but never catches up, must not keep all that it has read.
                    if self.written >= buffers.output.len() / 2 {
                        buffers.output.drain(..self.written);
                        buffers.output.shrink_to(KEPT_BYTES.max(buffers.output.len()));
                        self.written = 0;
                    }
                    self.watch_output()?;
                    return Poll::Pending;
                }
            }
        }
        buffers.output.clear();
        buffers.output.shrink_to(KEPT_BYTES);
        self.written = 0;
        if self.state.client.cut_off_at.load(Ordering::Relaxed) > 0 {
            self.state.over_soft_since = None;
            self.state.client.cut_off_at.store(0, Ordering::Relaxed);
        }
        Poll::Ready(Ok(()))
    }

    /// Cut the client off if it lets too many replies wait, or note when that will be.
    fn watch_output(&mut self) -> io::Result<()> {
        let (pending, now, limit) = (self.pending() as u64, self.shared.now(), self.state.output_limit);
        if limit.hard > 0 && pending > limit.hard {
            self.counters.cut_off.add(1);
            tracing::warn!(client = self.state.client.id, pending, "client cut off: it does not read its replies");
            return Err(io::Error::other("the output buffer limit is passed"));
        }
        let over_soft = limit.soft > 0 && pending > limit.soft;
        self.state.over_soft_since = over_soft.then(|| self.state.over_soft_since.unwrap_or(now));
        // The clock goes by whole seconds: one more makes sure that the time was really given.
        let soft = self.state.over_soft_since.map(|since| since.saturating_add(limit.soft_seconds).saturating_add(1));
        let must_read = pending >= PAUSE_BYTES as u64 || self.state.session.closing;
        let stall = must_read.then_some(self.state.last_progress.saturating_add(STALL_SECONDS + 1));
        let earliest = soft.into_iter().chain(stall).min().unwrap_or(0);
        self.state.client.cut_off_at.store(earliest, Ordering::Relaxed);
        Ok(())
    }

    /// Wait until the replies so far may leave. If that cannot be said of them, they become errors.
    /// Tells whether that can be said.
    async fn confirm(&mut self) -> bool {
        let Some(unconfirmed) = self.unconfirmed.take() else { return true };
        let log = &self.shared.durability.live;
        if !log.confirms() {
            return true;
        }
        // What others commit while this one leads is not waited for.
        let confirmed = log.confirm(unconfirmed.since);
        if let Some(lead) = log.lead() {
            tokio::task::yield_now().await;
            while lead.waits() {
                tokio::task::yield_now().await;
            }
            self.shared.workers.syncing(self.worker, || lead.sync());
        }
        let Err(reason) = confirmed.await else { return true };
        if let Some(buffers) = &mut self.buffers {
            buffers.output.truncate(unconfirmed.from);
            let text = format!(
                "MISCONF Errors writing to the AOF file: {}. The command may or may not have been applied for good.",
                reason.0
            );
            (0..unconfirmed.count).for_each(|_| encode_error(&text, &mut buffers.output));
            self.counters.errors.add(unconfirmed.count as u64);
        }
        false
    }

    /// Send a large byte string piece by piece: to copy all of it to the output would keep the thread from others for too long.
    async fn send_large(&mut self, bytes: Bytes) -> io::Result<()> {
        const PIECE_BYTES: usize = 1 << 20;
        self.count_unconfirmed(1);
        if !self.confirm().await {
            // An error stands in its place.
            return Ok(());
        }
        self.held = bytes.len();
        self.output().extend(format!("${}\r\n", bytes.len()).into_bytes());
        for piece in bytes.chunks(PIECE_BYTES) {
            self.held -= piece.len();
            self.output().extend(piece);
            // Who sends more meanwhile before he reads must get rid of it.
            self.write_some().await?;
            tokio::task::yield_now().await;
        }
        self.output().extend(b"\r\n");
        Ok(())
    }

    fn output(&mut self) -> &mut Vec<u8> {
        &mut self.buffers.get_or_insert_with(Buffers::borrow).output
    }

    /// Send a file as a byte string.
    async fn send_file(&mut self, file: Arc<std::fs::File>) -> io::Result<()> {
        const PIECE_BYTES: u64 = 1 << 20;
        let length = file.metadata()?.len();
        self.output().extend(format!("${length}\r\n").into_bytes());
        let mut sent = 0;
        while sent < length {
            let (file, bytes) = (file.clone(), PIECE_BYTES.min(length - sent) as usize);
            let read = move || {
                let mut piece = vec![0; bytes];
                std::os::unix::fs::FileExt::read_exact_at(&*file, &mut piece, sent).map(|()| piece)
            };
            let piece = tokio::task::spawn_blocking(read).await.map_err(io::Error::other)??;
            sent += piece.len() as u64;
            self.output().extend(piece);
            self.write_all().await?;
        }
        Ok(())
    }

    async fn write_all(&mut self) -> io::Result<()> {
        self.confirm().await;
        poll_fn(|task| self.poll_write(task)).await
    }

    /// Write what the socket takes at once; wait for the client only if it has very much to read.
    async fn write_some(&mut self) -> io::Result<()> {
        self.confirm().await;
        poll_fn(|task| match self.poll_write(task)? {
            Poll::Pending if self.pending() >= PAUSE_BYTES => Poll::Pending,
            _ => Poll::Ready(Ok(())),
        })
        .await
    }

    /// Write what the socket takes at once, if it may be written already.
    async fn write_now(&mut self) -> io::Result<()> {
        if self.unconfirmed.is_some() {
            return Ok(());
        }
        poll_fn(|task| match self.poll_write(task)? {
            Poll::Pending | Poll::Ready(()) => Poll::Ready(Ok(())),
        })
        .await
    }

    /// Run all complete requests of the input.
    async fn work(&mut self) -> io::Result<()> {
        let mut until = Instant::now() + SLICE;
        loop {
            self.refresh_limits();
            let Some(buffers) = &mut self.buffers else { return Ok(()) };
            let most = if self.state.limits.pre_auth { 1 } else { BATCH_REQUESTS };
            let scanned = self.state.scanner.scan(&mut buffers.input, &self.state.limits, most, &mut buffers.batch);
            let found = buffers.batch.len();
            self.run_batch().await?;
            if let (Err(error), false) = (scanned, self.state.session.closing) {
                self.state.session.closing = true;
                self.counters.errors.add(1);
                if let Some(buffers) = &mut self.buffers {
                    write_error(error, &mut buffers.output);
                }
            }
            if self.state.session.closing || found < most {
                break;
            }
            if Instant::now() >= until {
                self.write_some().await?;
                tokio::task::yield_now().await;
                until = Instant::now() + SLICE;
            }
        }
        self.drop_answered()
    }

    /// Limits are read from the settings again when these have changed.
    fn refresh_limits(&mut self) {
        let settings = &self.shared.settings;
        let version = settings.version();
        if self.state.settings_version != Some(version) {
            self.state.settings_version = Some(version);
            self.state.limits = Limits {
                bulk_bytes: settings.proto_max_bulk_len(),
                arguments: u64::from(settings.proto_max_arguments()),
                inline_bytes: settings.proto_inline_max_size() as usize,
                pre_auth: false,
            };
            self.state.output_limit = settings.output_limit(ClientClass::Normal);
        }
        self.state.limits.pre_auth = !self.state.session.authenticated;
    }

    async fn run_batch(&mut self) -> io::Result<()> {
        let mut next = 0;
        loop {
            match self.run_some(&mut next) {
                Progress::Done => return Ok(()),
                Progress::Pause => {
                    self.write_some().await?;
                    tokio::task::yield_now().await;
                }
                Progress::Busy(wait) => {
                    self.write_some().await?;
                    wait.await;
                }
                Progress::Long(long) => {
                    // Without waiting for the client: others wait for the key.
                    self.write_now().await?;
                    self.await_confirmation();
                    self.finish(long, next).await?;
                    self.count_unconfirmed(1);
                    next += 1;
                    if self.state.session.closing {
                        return Ok(());
                    }
                    self.write_some().await?;
                    // Who waited for the key comes first, also when the next request takes it again.
                    tokio::task::yield_now().await;
                }
            }
        }
    }

    /// Run requests from `next` on, for about a slice of time. No lock outlives this.
    fn run_some(&mut self, next: &mut usize) -> Progress {
        self.await_confirmation();
        let first = *next;
        let progress = match self.context() {
            None => return Progress::Done,
            Some((mut context, buffers)) => {
                let requests = (&buffers.batch, &buffers.input[..]);
                execute(&mut context, requests, next, Instant::now() + SLICE, &mut buffers.output)
            }
        };
        self.count_unconfirmed(*next - first);
        progress
    }

    /// From here on replies wait for the log, if it is synced before any reply.
    fn await_confirmation(&mut self) {
        let log = &self.shared.durability.live;
        if let Some(buffers) = self.buffers.as_ref().filter(|_| log.is_strict()) {
            let new = || Unconfirmed { from: buffers.output.len(), count: 0, since: log.standing() };
            self.unconfirmed.get_or_insert_with(new);
        }
    }

    fn count_unconfirmed(&mut self, replies: usize) {
        if let Some(unconfirmed) = &mut self.unconfirmed {
            unconfirmed.count += replies;
        }
    }

    /// Go on with a long command until it is done, letting others run in between.
    async fn finish(&mut self, mut long: Box<dyn LongCommand>, index: usize) -> io::Result<()> {
        loop {
            match self.step(&mut *long, index) {
                Ok(Some(reply)) => {
                    // The key is given back before the reply can be seen.
                    drop(long);
                    match reply {
                        Reply::Bulk(bytes) if bytes.len() >= LARGE_REPLY_BYTES => return self.send_large(bytes).await,
                        reply => {
                            if let Some((context, buffers)) = self.context() {
                                write(&context, &reply, &mut buffers.output);
                            }
                        }
                    }
                    return Ok(());
                }
                Ok(None) => tokio::task::yield_now().await,
                Err(wait) if self.state.session.awaits_file => self.wait_audibly(wait).await,
                Err(wait) => wait.await,
            }
        }
    }

    /// Wait, and send an empty line each second, as Redis does while it makes a snapshot for a client.
    async fn wait_audibly(&mut self, wait: Wait) {
        self.confirm().await;
        let mut wait = pin!(wait);
        while tokio::time::timeout(Duration::from_secs(1), wait.as_mut()).await.is_err() {
            if let Some(buffers) = &mut self.buffers {
                buffers.output.push(b'\n');
            }
            // Whether the client is still there is seen when there is more to send.
            let _gone = self.write_now().await;
        }
    }

    /// One slice of a long command.
    fn step(&mut self, long: &mut dyn LongCommand, index: usize) -> Step {
        let Some((mut context, buffers)) = self.context() else { return Ok(Some(Reply::Null)) };
        let args = buffers.batch.request(&buffers.input, index);
        long.step(&mut context, args, Instant::now() + SLICE)
    }

    /// What commands see, and the buffers that they work on; none if the connection holds no buffers.
    fn context(&mut self) -> Option<(Context<'_>, &mut Buffers)> {
        let context = Context {
            keyspace: &self.shared.keyspace,
            settings: &self.shared.settings,
            session: &mut self.state.session,
            host: &**self.shared,
            counters: self.counters,
            held: None,
        };
        Some((context, self.buffers.as_mut()?))
    }

    /// Move what is left of the input, a half request, to its front.
    fn drop_answered(&mut self) -> io::Result<()> {
        let Some(buffers) = &mut self.buffers else { return Ok(()) };
        let answered = self.state.scanner.consumed();
        buffers.input.drain(..answered);
        buffers.input.shrink_to(KEPT_BYTES.max(buffers.input.len()));
        self.state.scanner.discard(answered);
        if buffers.input.len() as u64 > self.shared.settings.client_query_buffer_limit() {
            self.counters.cut_off.add(1);
            tracing::warn!(
                client = self.state.client.id,
                "client cut off: its request passes 'client-query-buffer-limit'"
            );
            return Err(io::Error::other("the query buffer limit is passed"));
        }
        Ok(())
    }
}

fn write_error(error: crate::resp::ProtocolError, out: &mut Vec<u8>) {
    crate::resp::encode(&error.reply(), crate::resp::Protocol::Resp2, out);
}

/// Room for the next read: never more for a half request than it has already sent, whatever it announces.
///
/// # Errors
/// There is no memory.
fn make_room(input: &mut Vec<u8>, wanted: usize) -> io::Result<()> {
    let room = input.capacity() - input.len();
    let wanted = wanted.min(input.len());
    if room < LEAST_ROOM_BYTES || room < wanted {
        input.try_reserve(READ_BYTES.max(wanted)).map_err(|_| io::ErrorKind::OutOfMemory)?;
    }
    Ok(())
}

/// Close so that the peer gets our last reply.
async fn say_goodbye<S: Stream>(stream: &mut S) -> io::Result<()> {
    stream.shutdown().await?;
    let drain = async {
        let (mut scratch, mut left) = ([0; 4096], LINGER_BYTES);
        while left > 0 {
            match stream.read(&mut scratch).await {
                Ok(0) | Err(_) => break,
                Ok(read) => left = left.saturating_sub(read),
            }
        }
    };
    let _timed_out = tokio::time::timeout(LINGER, drain).await;
    Ok(())
}
