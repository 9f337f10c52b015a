//! What a handler can see: the keyspace, the settings, the client's session, the host that runs it, counters.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::config::{Id, Prepared, SetError, Settings};
use crate::keyspace::Keyspace;
use crate::keyspace::entry::EntryRef;
use crate::keyspace::latch::Wait;
use crate::resp::Protocol;

/// Everything a handler can see.
pub struct Context<'a> {
    /// All keys.
    pub keyspace: &'a Arc<Keyspace>,
    /// The live settings.
    pub settings: &'a Arc<Settings>,
    /// The client's own state.
    pub session: &'a mut Session,
    /// Whoever runs the commands.
    pub host: &'a dyn Host,
    /// This thread's counters.
    pub counters: &'a Counters,
}

impl Context<'_> {
    /// Look at a key, counting a hit or a miss.
    ///
    /// # Errors
    /// [`Wait`] when a long command has the key.
    pub fn read<R>(&self, name: &[u8], look: impl FnOnce(Option<EntryRef<'_>>) -> R) -> Result<R, Wait> {
        self.keyspace.read(self.session.db, name, |entry| {
            self.counters.look_up(entry.is_some());
            look(entry)
        })
    }
}

/// What a connection remembers between commands.
pub struct Session {
    /// Number of the connection.
    pub id: u64,
    /// The database in use.
    pub db: usize,
    /// The protocol of the replies.
    pub protocol: Protocol,
    /// Whether commands are allowed: no password is set, or it was given.
    pub authenticated: bool,
    /// `CLIENT SETNAME`.
    pub name: Vec<u8>,
    /// `CLIENT SETINFO LIB-NAME`.
    pub library_name: Vec<u8>,
    /// `CLIENT SETINFO LIB-VER`.
    pub library_version: Vec<u8>,
    /// The connection ends after this reply.
    pub closing: bool,
    /// Dumps that this connection has begun: see [`Session::begin_dump`].
    dumps: Vec<Dump>,
}

struct Dump {
    db: usize,
    key: Vec<u8>,
    end: u64,
}

/// How many dumps at a time a connection's memory holds; the oldest is forgotten first.
const DUMPS: usize = 16;

impl Session {
    /// A new connection.
    #[must_use]
    pub fn new(id: u64, authenticated: bool) -> Self {
        Self {
            id,
            db: 0,
            protocol: Protocol::Resp2,
            authenticated,
            name: Vec::new(),
            library_name: Vec::new(),
            library_version: Vec::new(),
            closing: false,
            dumps: Vec::new(),
        }
    }

    /// Back to the state of a new connection, as `RESET` does; the library's name stays.
    pub fn reset(&mut self, authenticated: bool) {
        let fresh = Self::new(self.id, authenticated);
        let (library_name, library_version) =
            (std::mem::take(&mut self.library_name), std::mem::take(&mut self.library_version));
        *self = Self { library_name, library_version, ..fresh };
    }

    /// A dump of this key begins, of so many bytes: it will end there even if the filter grows meanwhile, so that the header
    /// and the chunks fit each other.
    pub fn begin_dump(&mut self, key: &[u8], end: u64) {
        self.end_dump(key);
        if self.dumps.len() == DUMPS {
            self.dumps.remove(0);
        }
        self.dumps.push(Dump { db: self.db, key: key.into(), end });
    }

    /// Where the dump of this key ends, if one was begun here.
    #[must_use]
    pub fn dump_end(&self, key: &[u8]) -> Option<u64> {
        self.dumps.iter().find(|dump| dump.db == self.db && dump.key == key).map(|dump| dump.end)
    }

    /// The dump of this key is over.
    pub fn end_dump(&mut self, key: &[u8]) {
        self.dumps.retain(|dump| dump.db != self.db || dump.key != key);
    }
}

/// What the program around the commands can do for them.
pub trait Host: Sync {
    /// The text of `INFO` for these sections (lower case); all of them if none is named.
    fn info(&self, sections: &[String]) -> String;

    /// Whether changes can be carried out, asked before they are.
    ///
    /// # Errors
    /// [`SetError::Refused`] for the first that cannot.
    fn approve_settings(&self, changes: &Prepared) -> Result<(), SetError>;

    /// These settings were changed: whatever depends on them follows.
    fn settings_changed(&self, changed: &[Id]);

    /// End the program after what was accepted is answered.
    fn shut_down(&self);
}

/// Counts of one thread. Only that thread writes them, so a count is a load and a store; readers add all threads up.
#[derive(Default)]
#[repr(align(128))]
pub struct Counters {
    /// Commands called.
    pub commands: Counter,
    /// Look-ups by reading commands that found their key.
    pub hits: Counter,
    /// And that did not.
    pub misses: Counter,
    /// Bytes read from clients.
    pub bytes_in: Counter,
    /// Bytes written to clients.
    pub bytes_out: Counter,
    /// Error replies.
    pub errors: Counter,
    /// Connections accepted.
    pub connections: Counter,
    /// Connections closed at once because there were too many.
    pub rejected: Counter,
    /// Connections closed because of the output or query buffer limit.
    pub cut_off: Counter,
}

impl Counters {
    /// A reading command looked a key up.
    pub fn look_up(&self, found: bool) {
        if found { &self.hits } else { &self.misses }.add(1);
    }
}

/// One count, written by one thread and read by all.
#[derive(Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Count `n` more. Only for the thread that owns the counter.
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    /// The count.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
