//! What a handler can see: the keyspace, the settings, the client's session, the host that runs it, counters.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::error::CommandError;
use super::table::Command;
use crate::config::{Id, Prepared, SetError, Settings};
use crate::keyspace::entry::EntryRef;
use crate::keyspace::held::Held;
use crate::keyspace::latch::{Latch, Wait};
use crate::keyspace::latched::Latched;
use crate::keyspace::watch::Watch;
use crate::keyspace::{Cell, Keyspace};
use crate::resp::{OwnedArgs, Protocol};

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
    /// The keys of the transaction that is being run.
    pub held: Option<Held<'a>>,
}

impl<'a> Context<'a> {
    /// Look at a key, counting a hit or a miss.
    ///
    /// # Errors
    /// [`Wait`] when a long command has the key.
    pub fn read<R>(&mut self, name: &[u8], look: impl FnOnce(Option<EntryRef<'_>>) -> R) -> Result<R, Wait> {
        let counters = self.counters;
        self.peek(name, |entry| {
            counters.look_up(entry.is_some());
            look(entry)
        })
    }

    /// Look at a key without counting.
    ///
    /// # Errors
    /// [`Wait`] when a long command has the key.
    pub fn peek<R>(&mut self, name: &[u8], look: impl FnOnce(Option<EntryRef<'_>>) -> R) -> Result<R, Wait> {
        let db = self.session.db;
        match &mut self.held {
            Some(held) => held.read(db, name, look),
            None => self.keyspace.read(db, name, look),
        }
    }

    /// Work on a key.
    ///
    /// # Errors
    /// [`Wait`] when a long command has the key.
    pub fn write<R>(&mut self, name: &[u8], work: impl FnOnce(&mut Cell<'_>) -> R) -> Result<R, Wait> {
        let db = self.session.db;
        match &mut self.held {
            Some(held) => held.write(db, name, work),
            None => self.keyspace.write(db, name, work),
        }
    }

    /// Work on a key, and then take it for a long command if `work` says so: nobody comes in between.
    ///
    /// # Errors
    /// [`Wait`] when a long command has the key; nothing was done then.
    pub fn write_and_latch<R>(
        &mut self,
        name: &[u8],
        work: impl FnOnce(&mut Cell<'_>) -> (R, bool),
    ) -> Result<(R, Option<Latched>), Wait> {
        let db = self.session.db;
        match &self.held {
            Some(held) if held.is_private() => self.keyspace.write_and_latch_held(held, db, name, work),
            Some(_) => self.write(name, work).map(|(result, _)| (result, None)),
            None => self.keyspace.write_and_latch(db, name, work),
        }
    }

    /// Work on several keys at one moment.
    ///
    /// # Errors
    /// [`Wait`] when a long command has one of them.
    pub fn with_keys<'n, R>(
        &mut self,
        keys: impl Iterator<Item = (usize, &'n [u8])> + Clone,
        work: impl FnOnce(&mut Held<'_>) -> Result<R, Wait>,
    ) -> Result<R, Wait> {
        match &mut self.held {
            Some(held) => work(held),
            None => work(&mut self.keyspace.lock(keys)?),
        }
    }

    /// Work on whole databases: all, or those that `concerned` names.
    ///
    /// # Errors
    /// [`Wait`] when a long command has a key there.
    pub fn with_all<R>(
        &mut self,
        concerned: impl Fn(usize) -> bool,
        work: impl FnOnce(&mut Held<'_>) -> R,
    ) -> Result<R, Wait> {
        match &mut self.held {
            Some(held) => Ok(work(held)),
            None => Ok(work(&mut self.keyspace.lock_all(concerned)?)),
        }
    }

    /// The time in milliseconds since 1970; inside a transaction that of its beginning.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.held.as_ref().map_or_else(|| self.keyspace.clock().now(), Held::moment)
    }

    /// Whether a command may work in steps. One in a short transaction may not: its keys' shards are locked.
    #[must_use]
    pub fn may_latch(&self) -> bool {
        self.held.as_ref().is_none_or(Held::is_private)
    }

    /// Take a key for a long command; `None` when there is no such key.
    ///
    /// # Errors
    /// [`Wait`] when another long command has it.
    pub fn latch(&mut self, name: &[u8]) -> Result<Option<Latched>, Wait> {
        let db = self.session.db;
        match &self.held {
            Some(held) => self.keyspace.latch_held(held, db, name),
            None => self.keyspace.latch(db, name),
        }
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
    /// The client waits for a file, which takes its time: an empty line now and then tells that it comes.
    pub awaits_file: bool,
    /// But before that the client gets this file, as one byte string without an end of line.
    pub file: Option<Arc<std::fs::File>>,
    /// The commands queued since MULTI.
    pub transaction: Option<Transaction>,
    /// The keys that WATCH named.
    pub watch: Option<Watch>,
    /// Dumps that this connection has begun: see [`Session::begin_dump`].
    dumps: Vec<Dump>,
}

/// Commands queued since MULTI.
#[derive(Default)]
pub struct Transaction {
    /// The requests, each with its row.
    pub queue: Vec<(&'static Command, OwnedArgs)>,
    /// Bytes that the queue holds.
    pub bytes: usize,
    /// A command was refused: EXEC will be.
    pub failed: bool,
}

struct Dump {
    db: usize,
    key: Vec<u8>,
    end: u64,
}

/// Dumps of keys with longer names are not remembered, and so not protected.
const DUMP_KEY_BYTES: usize = 64 << 10;
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
            awaits_file: false,
            file: None,
            transaction: None,
            watch: None,
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
        if key.len() > DUMP_KEY_BYTES {
            return;
        }
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

/// Room under the memory limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// There is room.
    Made,
    /// There is, once what was deleted is freed.
    Freeing,
    /// There can be, once more keys are evicted.
    Going,
    /// There is none: the policy lets no key go, or none is left that may.
    Refused,
}

/// Whether keys may be changed now.
pub enum ChangeGate {
    /// They may.
    Open,
    /// Not yet: the log is behind, or the server is about to end.
    Wait(Wait),
    /// What they would be kept in cannot be written; the whole error.
    Refused(String),
}

/// Something that the host does beside the commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Take a snapshot, which somebody waits for.
    Save,
    /// Take a snapshot; if the log is being rewritten, afterwards.
    SaveInBackground {
        /// `SCHEDULE` was given.
        schedule: bool,
    },
    /// Rewrite the log; if a snapshot is being taken, afterwards.
    RewriteLog,
    /// Wait until what is logged now is safe, at most so many milliseconds; 0 for ever.
    SyncLog {
        /// The most milliseconds.
        timeout: u64,
    },
    /// End the server.
    ShutDown(ShutDown),
    /// Take a snapshot and give it to the client.
    Backup,
}

/// How the server is to end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShutDown {
    /// With a snapshot or without one; as the save points say if none is given.
    pub save: Option<bool>,
    /// Even if what should be saved cannot be.
    pub force: bool,
}

/// How a task was begun.
pub enum Begun {
    /// It is under way.
    Now(Arc<Job>),
    /// It will be when another one is done.
    Later,
}

/// A task under way, for who waits for it.
#[derive(Default)]
pub struct Job {
    latch: Arc<Latch>,
    outcome: Mutex<Option<JobOutcome>>,
}

/// How a task ended.
pub type JobOutcome = Result<JobDone, String>;

/// What a task gave.
#[derive(Clone, Debug)]
pub enum JobDone {
    /// It is done.
    Done,
    /// The time was over before.
    TimedOut,
    /// The file to be sent to the client.
    File(Arc<std::fs::File>),
}

impl Job {
    /// The task is over.
    pub fn finish(&self, outcome: JobOutcome) {
        *self.outcome.lock() = Some(outcome);
        self.latch.release();
    }

    /// How it ended.
    ///
    /// # Errors
    /// [`Wait`] until it has.
    pub fn outcome(&self) -> Result<JobOutcome, Wait> {
        self.outcome.lock().clone().ok_or_else(|| Wait::new(self.latch.clone()))
    }
}

/// What the program around the commands can do for them.
pub trait Host: Sync {
    /// Whether data are still being loaded, so that keys cannot be used yet.
    fn is_loading(&self) -> bool {
        false
    }

    /// Whether keys may be changed now.
    fn change_gate(&self) -> ChangeGate {
        ChangeGate::Open
    }

    /// Begin a task.
    ///
    /// # Errors
    /// Why that cannot be: the whole error.
    fn begin(&self, _task: Task) -> Result<Begun, CommandError> {
        Err(CommandError::text("ERR this host keeps no files"))
    }

    /// When the last snapshot was taken that succeeded, or the server started: seconds since 1970.
    fn last_save(&self) -> u64 {
        0
    }

    /// Whether changes are logged.
    fn logs(&self) -> bool {
        false
    }

    /// The switching on or off of the log that is under way.
    fn log_switch(&self) -> Option<Arc<Job>> {
        None
    }

    /// Whether all that is logged now is safe.
    fn log_is_synced(&self) -> bool {
        false
    }

    /// The text of `INFO` for these sections (lower case); all of them if none is named.
    fn info(&self, sections: &[String]) -> String;

    /// Whether changes can be carried out, asked before they are.
    ///
    /// # Errors
    /// [`SetError::Refused`] for the first that cannot.
    fn approve_settings(&self, changes: &Prepared) -> Result<(), SetError>;

    /// These settings were changed: whatever depends on them follows, but for the log.
    fn settings_changed(&self, changed: &[Id]);

    /// The log follows its setting, which may fail; then the setting is as before.
    fn switch_log(&self) -> Option<Arc<Job>> {
        None
    }

    /// Evict keys by the policy in force until so many bytes more fit under the memory limit, or this time is over. Called
    /// without a lock.
    fn make_room(&self, bytes: u64, most: Duration) -> Room;

    /// Whether so many bytes more fit under the memory limit, beside `kept` that cannot go for them. Asked with locks held,
    /// under which nothing is evicted; a little more than the limit is let through, if others can go for it afterwards.
    fn room_for(&self, bytes: u64, kept: u64) -> Room;
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
