//! The values in force, shared by all threads.
//!
//! Numbers (and what is kept as one: booleans, choices, the bits of a rate) are relaxed atomics: a command that reads
//! `bf_error_rate()` pays one load. Texts and output limits stand behind a lock, which every change holds for writing
//! from its first store to its last, so `CONFIG GET`, which holds it for reading, sees a change whole or not at all.
//! A reader of single numbers may see one of a set of changes before another; no two directives need each other.
//!
//! A connection that caches limits compares [`Settings::version`], which rises after the values were stored (release)
//! and is read with acquire: whoever sees the new version sees the new values.

use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;

use super::directive::{Change, DIRECTIVES, DefaultValue, Directive, Id, Kind, find};
use super::environment::Environment;
use super::value::{
    BindAddress, ClientClass, LogFormat, LogLevel, OutputLimit, SavePoint, Value, ValueError, printable,
};

/// The least that a share of the memory comes to, so that a machine without free memory does not read as "no limit".
const MIN_SHARE_BYTES: u64 = 1 << 20;
/// Most threads that the default chooses; the upper end of the directive's range.
const MAX_DEFAULT_THREADS: u64 = 256;

/// All settings of a running server.
#[derive(Debug)]
pub struct Settings {
    environment: Environment,
    numbers: [AtomicU64; Id::COUNT],
    words: RwLock<Words>,
    version: AtomicU64,
}

/// What is not a number.
struct Words {
    /// By id; empty for directives that are kept as a number.
    texts: [Arc<[u8]>; Id::COUNT],
    output_limits: [OutputLimit; ClientClass::COUNT],
}

impl fmt::Debug for Words {
    /// Leaves the texts out: a password is among them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Words").field("output_limits", &self.output_limits).finish_non_exhaustive()
    }
}

/// Why `CONFIG SET` changed nothing. `Display` gives the whole line of the error reply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetError {
    /// No directive has this name.
    #[error("ERR Unknown option or number of arguments for CONFIG SET - '{0}'")]
    Unknown(String),
    /// A directive that is read at start only.
    #[error("ERR CONFIG SET failed (possibly related to argument '{0}') - can't set immutable config")]
    Immutable(&'static str),
    /// A name given twice.
    #[error("ERR CONFIG SET failed (possibly related to argument '{0}') - duplicate parameter")]
    Duplicate(&'static str),
    /// A value that the directive does not take.
    #[error("ERR CONFIG SET failed (possibly related to argument '{0}') - {1}")]
    Value(&'static str, ValueError),
    /// A value that the server cannot carry out, and why. Made by the caller of [`Settings::prepare`].
    #[error("ERR CONFIG SET failed (possibly related to argument '{0}') - {1}")]
    Refused(&'static str, String),
}

/// Changes that were checked and are not yet in force.
#[derive(Clone, Debug)]
pub struct Prepared(Vec<(Id, Value)>);

impl Prepared {
    /// The new number of a directive, if it is among the changes and kept as a number.
    pub fn number(&self, id: Id) -> Option<u64> {
        self.0.iter().find_map(|(changed, value)| match value {
            Value::Number(number) if *changed == id => Some(*number),
            _ => None,
        })
    }

    /// The change of this directive, and the others.
    pub fn split(self, id: Id) -> (Prepared, Prepared) {
        let (own, others) = self.0.into_iter().partition(|(changed, _)| *changed == id);
        (Prepared(own), Prepared(others))
    }
}

impl Settings {
    /// The defaults, then the given values in their order: of two for one directive the later counts.
    pub fn new(environment: Environment, values: impl IntoIterator<Item = (Id, Value)>) -> Self {
        let empty: Arc<[u8]> = Arc::from([]);
        let settings = Self {
            environment,
            numbers: [const { AtomicU64::new(0) }; Id::COUNT],
            words: RwLock::new(Words {
                texts: [(); Id::COUNT].map(|()| Arc::clone(&empty)),
                output_limits: [OutputLimit::default(); ClientClass::COUNT],
            }),
            version: AtomicU64::new(0),
        };
        {
            let mut words = settings.words.write();
            for directive in &DIRECTIVES {
                if let Some(value) = settings.default_of(directive) {
                    settings.store(&mut words, directive.id, value);
                }
            }
            let mut save_points_given = false;
            for (id, value) in values {
                let value = match value {
                    // Those of several lines add up; an empty one begins anew.
                    Value::Text(text) if id == Id::Save && save_points_given && !text.is_empty() => {
                        let before = &words.texts[id as usize];
                        let both = [&before[..], &text[..]].join(&b' ');
                        Value::Text(both.trim_ascii().to_vec())
                    }
                    value => value,
                };
                save_points_given |= id == Id::Save;
                settings.store(&mut words, id, value);
            }
        }
        settings
    }

    /// A default that its own directive refuses would be a mistake in the table; a test parses every one.
    fn default_of(&self, directive: &Directive) -> Option<Value> {
        match directive.default {
            DefaultValue::Text(text) => directive.parse(&[text]).ok(),
            DefaultValue::Cores => Some(Value::Number((self.environment.cores as u64).clamp(1, MAX_DEFAULT_THREADS))),
        }
    }

    /// Puts one value in force. The caller holds the lock for writing.
    fn store(&self, words: &mut Words, id: Id, value: Value) {
        let number = &self.numbers[id as usize];
        match value {
            Value::Number(value) => number.store(value, Ordering::Relaxed),
            Value::Share(percent) => number.store(self.share(id, percent), Ordering::Relaxed),
            Value::Rate(rate, text) => {
                number.store(rate.to_bits(), Ordering::Relaxed);
                words.texts[id as usize] = text.into();
            }
            Value::Text(text) if id.directive().kind == Kind::Folder => {
                words.texts[id as usize] = self.absolute(&text).into();
            }
            Value::Text(text) => words.texts[id as usize] = text.into(),
            Value::OutputLimits(limits) => {
                for (limit, new) in words.output_limits.iter_mut().zip(limits) {
                    *limit = new.unwrap_or(*limit);
                }
            }
        }
    }

    /// Percent of the memory that was available at start, for the whole server of the memory there is; 0, no limit, where
    /// that is unknown.
    fn share(&self, id: Id, percent: u8) -> u64 {
        let memory = if id == Id::MaxMemory { self.environment.memory_limit } else { self.environment.memory };
        match memory {
            Some(bytes) => (bytes / 100 * u64::from(percent)).max(MIN_SHARE_BYTES),
            None => 0,
        }
    }

    fn absolute(&self, path: &[u8]) -> Vec<u8> {
        let path = self.environment.folder.join(Path::new(std::ffi::OsStr::from_bytes(path)));
        path.components().collect::<PathBuf>().into_os_string().into_vec()
    }

    /// The value of every directive whose name is matched, in the order of the table, as `CONFIG GET` prints it.
    pub fn get(&self, matches: impl Fn(&str) -> bool) -> Vec<(&'static str, Vec<u8>)> {
        let words = self.words.read();
        let matched = DIRECTIVES.iter().filter(|directive| matches(directive.name));
        matched.map(|directive| (directive.name, self.render(&words, directive))).collect()
    }

    /// The value of one directive, as `CONFIG GET` prints it.
    pub fn value_text(&self, id: Id) -> Vec<u8> {
        self.render(&self.words.read(), id.directive())
    }

    fn render(&self, words: &Words, directive: &Directive) -> Vec<u8> {
        let number = self.number(directive.id);
        match directive.kind {
            Kind::Integer { .. } | Kind::FilterInteger { .. } | Kind::Bytes { .. } | Kind::MemoryShare => {
                number.to_string().into_bytes()
            }
            Kind::Octal { .. } => format!("{number:o}").into_bytes(),
            Kind::Bool => if number == 0 { "no" } else { "yes" }.into(),
            Kind::Choice(choices) => choices.get(number as usize).copied().unwrap_or_default().into(),
            Kind::Rate
            | Kind::FilterRate
            | Kind::Password
            | Kind::File
            | Kind::FileName
            | Kind::SavePoints
            | Kind::Folder
            | Kind::Addresses => words.texts[directive.id as usize].to_vec(),
            Kind::OutputLimits => {
                let groups = ClientClass::ALL.map(|class| {
                    let OutputLimit { hard, soft, soft_seconds } = words.output_limits[class as usize];
                    format!("{} {hard} {soft} {soft_seconds}", class.word())
                });
                groups.join(" ").into_bytes()
            }
        }
    }

    /// Checks and applies changes, all or none, as `CONFIG SET name value …` does. Returns the directives whose value
    /// is now another one.
    ///
    /// # Errors
    /// [`SetError`] for the first of them that is refused; nothing has changed then.
    pub fn set(&self, pairs: &[(&[u8], &[u8])]) -> Result<Vec<Id>, SetError> {
        Ok(self.commit(self.prepare(pairs)?))
    }

    /// Checks changes without applying them. For a caller with checks of its own, between this and
    /// [`commit`](Self::commit); it refuses with [`SetError::Refused`].
    ///
    /// As in Redis, all names are checked before the first value.
    ///
    /// # Errors
    /// [`SetError`] for the first change that is refused.
    pub fn prepare(&self, pairs: &[(&[u8], &[u8])]) -> Result<Prepared, SetError> {
        let mut given = [false; Id::COUNT];
        for (name, _) in pairs {
            let directive = find(name).ok_or_else(|| SetError::Unknown(printable(name).into_owned()))?;
            if directive.change == Change::AtStart {
                return Err(SetError::Immutable(directive.name));
            }
            if std::mem::replace(&mut given[directive.id as usize], true) {
                return Err(SetError::Duplicate(directive.name));
            }
        }
        let parsed = pairs.iter().filter_map(|(name, value)| Some((find(name)?, value))).map(|(directive, value)| {
            let value = directive.parse(&[value]).map_err(|error| SetError::Value(directive.name, error))?;
            Ok((directive.id, value))
        });
        parsed.collect::<Result<_, _>>().map(Prepared)
    }

    /// Applies checked changes. Returns the directives whose value is now another one, in the order given.
    pub fn commit(&self, prepared: Prepared) -> Vec<Id> {
        let mut words = self.words.write();
        let mut changed = Vec::with_capacity(prepared.0.len());
        for (id, value) in prepared.0 {
            let before = self.render(&words, id.directive());
            self.store(&mut words, id, value);
            if self.render(&words, id.directive()) != before {
                changed.push(id);
            }
        }
        if !changed.is_empty() {
            self.version.fetch_add(1, Ordering::Release);
        }
        changed
    }

    /// Rises with every change. Whoever caches values reads them again when this differs; read it before the values.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    fn number(&self, id: Id) -> u64 {
        self.numbers[id as usize].load(Ordering::Relaxed)
    }

    fn text(&self, id: Id) -> Arc<[u8]> {
        Arc::clone(&self.words.read().texts[id as usize])
    }

    fn path(&self, id: Id) -> Option<PathBuf> {
        let text = self.text(id);
        (!text.is_empty()).then(|| Path::new(std::ffi::OsStr::from_bytes(&text)).to_path_buf())
    }
}

/// One getter a directive, in the order of the table.
impl Settings {
    /// Number of databases; fixed.
    pub const DATABASES: usize = 16;

    /// TCP port; 0 for no TCP.
    pub fn port(&self) -> u16 {
        self.number(Id::Port) as u16
    }

    /// Addresses to listen on; none if the list is empty.
    pub fn bind(&self) -> Vec<BindAddress> {
        String::from_utf8_lossy(&self.text(Id::Bind)).split_whitespace().filter_map(BindAddress::parse).collect()
    }

    /// Path of the Unix socket, if there is to be one.
    pub fn unixsocket(&self) -> Option<PathBuf> {
        self.path(Id::UnixSocket)
    }

    /// Permissions of the Unix socket; `None` leaves them as created.
    pub fn unixsocketperm(&self) -> Option<u32> {
        match self.number(Id::UnixSocketPerm) {
            0 => None,
            mode => Some(mode as u32),
        }
    }

    /// Whether clients from elsewhere are refused while no password is set.
    pub fn protected_mode(&self) -> bool {
        self.number(Id::ProtectedMode) != 0
    }

    /// The password; empty for none.
    pub fn requirepass(&self) -> Arc<[u8]> {
        self.text(Id::RequirePass)
    }

    /// The working folder, absolute.
    pub fn dir(&self) -> PathBuf {
        self.path(Id::Dir).unwrap_or_else(|| self.environment.folder.clone())
    }

    /// Threads that run commands, at least 1.
    pub fn threads(&self) -> usize {
        self.number(Id::Threads) as usize
    }

    /// Most clients at the same time.
    pub fn maxclients(&self) -> u32 {
        self.number(Id::MaxClients) as u32
    }

    /// Seconds after which an idle client is disconnected; 0 for never.
    pub fn timeout(&self) -> u32 {
        self.number(Id::Timeout) as u32
    }

    /// Seconds between keep-alive probes; 0 for none.
    pub fn tcp_keepalive(&self) -> u32 {
        self.number(Id::TcpKeepalive) as u32
    }

    /// Length of the accept queue.
    pub fn tcp_backlog(&self) -> i32 {
        self.number(Id::TcpBacklog) as i32
    }

    /// When snapshots are taken by themselves.
    pub fn save_points(&self) -> Vec<SavePoint> {
        SavePoint::all_in(&self.text(Id::Save))
    }

    /// Name of the snapshot's file.
    pub fn dbfilename(&self) -> PathBuf {
        self.path(Id::DbFilename).unwrap_or_default()
    }

    /// Whether small filters are compressed in snapshots.
    pub fn rdbcompression(&self) -> bool {
        self.number(Id::RdbCompression) != 0
    }

    /// Whether snapshots have a checksum.
    pub fn rdbchecksum(&self) -> bool {
        self.number(Id::RdbChecksum) != 0
    }

    /// Whether changes are refused while snapshots fail.
    pub fn stop_writes(&self) -> bool {
        self.number(Id::StopWrites) != 0
    }

    /// Whether changes are logged.
    pub fn appendonly(&self) -> bool {
        self.number(Id::AppendOnly) != 0
    }

    /// When the log is synced: a place in [`FSYNC_POLICIES`](super::FSYNC_POLICIES).
    pub fn appendfsync(&self) -> usize {
        self.number(Id::AppendFsync) as usize
    }

    /// Name of the log's folder.
    pub fn appenddirname(&self) -> PathBuf {
        self.path(Id::AppendDirname).unwrap_or_default()
    }

    /// Growth in percent at which the log is rewritten; 0 for never.
    pub fn auto_rewrite_percentage(&self) -> u64 {
        self.number(Id::AutoRewritePercentage)
    }

    /// Size below which the log is not rewritten by itself.
    pub fn auto_rewrite_min_size(&self) -> u64 {
        self.number(Id::AutoRewriteMinSize)
    }

    /// Whether a log whose end is cut off is taken.
    pub fn aof_load_truncated(&self) -> bool {
        self.number(Id::AofLoadTruncated) != 0
    }

    /// Whether what is sound of damaged files is taken.
    pub fn load_damaged(&self) -> bool {
        self.number(Id::LoadDamaged) != 0
    }

    /// Most bytes of requests held for a client.
    pub fn client_query_buffer_limit(&self) -> u64 {
        self.number(Id::ClientQueryBufferLimit)
    }

    /// Limits of the replies that wait for a client of this class. Takes a lock: cache it by [`version`](Self::version).
    pub fn output_limit(&self, class: ClientClass) -> OutputLimit {
        self.words.read().output_limits[class as usize]
    }

    /// Longest argument, in bytes.
    pub fn proto_max_bulk_len(&self) -> u64 {
        self.number(Id::ProtoMaxBulkLen)
    }

    /// Most arguments of a request.
    pub fn proto_max_arguments(&self) -> u32 {
        self.number(Id::ProtoMaxArguments) as u32
    }

    /// Longest inline request, in bytes.
    pub fn proto_inline_max_size(&self) -> u64 {
        self.number(Id::ProtoInlineMaxSize)
    }

    /// Which messages are logged.
    pub fn loglevel(&self) -> LogLevel {
        LogLevel::from_number(self.number(Id::Loglevel))
    }

    /// The form of log lines.
    pub fn log_format(&self) -> LogFormat {
        LogFormat::from_number(self.number(Id::LogFormat))
    }

    /// File of the log; `None` for standard error.
    pub fn logfile(&self) -> Option<PathBuf> {
        self.path(Id::Logfile)
    }

    /// Error rate of a Bloom filter made by an add, in (0, 0.25].
    pub fn bf_error_rate(&self) -> f64 {
        f64::from_bits(self.number(Id::BfErrorRate))
    }

    /// Capacity of a Bloom filter made by an add. May exceed [`bf_max_capacity`](Self::bf_max_capacity).
    pub fn bf_initial_size(&self) -> u64 {
        self.number(Id::BfInitialSize)
    }

    /// Growth factor of Bloom filters; 0 for none.
    pub fn bf_expansion_factor(&self) -> u32 {
        self.number(Id::BfExpansionFactor) as u32
    }

    /// Greatest capacity that a Bloom filter may be created with.
    pub fn bf_max_capacity(&self) -> u64 {
        self.number(Id::BfMaxCapacity)
    }

    /// Most sub-filters of a Bloom filter.
    pub fn bf_max_filters(&self) -> u32 {
        self.number(Id::BfMaxFilters) as u32
    }

    /// Error rate of a ring made by an add.
    pub fn chain_error_rate(&self) -> f64 {
        f64::from_bits(self.number(Id::ChainErrorRate))
    }

    /// Capacity of a ring made by an add.
    pub fn chain_initial_size(&self) -> u64 {
        self.number(Id::ChainInitialSize)
    }

    /// Greatest capacity that a ring may be created with.
    pub fn chain_max_capacity(&self) -> u64 {
        self.number(Id::ChainMaxCapacity)
    }

    /// Error rate of a counting filter made by an add.
    pub fn cbf_error_rate(&self) -> f64 {
        f64::from_bits(self.number(Id::CbfErrorRate))
    }

    /// Capacity of a counting filter made by an add.
    pub fn cbf_initial_size(&self) -> u64 {
        self.number(Id::CbfInitialSize)
    }

    /// Greatest capacity that a counting filter may be created with.
    pub fn cbf_max_capacity(&self) -> u64 {
        self.number(Id::CbfMaxCapacity)
    }

    /// Error rate of a d-left filter made by an add.
    pub fn dlcbf_error_rate(&self) -> f64 {
        f64::from_bits(self.number(Id::DlcbfErrorRate))
    }

    /// Capacity of a d-left filter made by an add.
    pub fn dlcbf_initial_size(&self) -> u64 {
        self.number(Id::DlcbfInitialSize)
    }

    /// Greatest capacity that a d-left filter may be created with.
    pub fn dlcbf_max_capacity(&self) -> u64 {
        self.number(Id::DlcbfMaxCapacity)
    }

    /// Most bytes that the server may hold; 0 for no limit.
    pub fn maxmemory(&self) -> u64 {
        self.number(Id::MaxMemory)
    }

    /// What happens at that limit: a place in [`POLICIES`](super::POLICIES).
    pub fn maxmemory_policy(&self) -> usize {
        self.number(Id::MaxMemoryPolicy) as usize
    }

    /// Whether memory is kept from being swapped out.
    pub fn lock_memory(&self) -> bool {
        self.number(Id::LockMemory) != 0
    }

    /// Whether an add to a missing key creates a filter.
    pub fn filter_create_on_add(&self) -> bool {
        self.number(Id::FilterCreateOnAdd) != 0
    }

    /// Whether questions to a missing key are an error.
    pub fn filter_missing_is_error(&self) -> bool {
        self.number(Id::FilterMissingKey) != 0
    }

    /// Most bytes of one filter; `u64::MAX` if there is no limit.
    pub fn max_filter_memory(&self) -> u64 {
        match self.number(Id::MaxFilterMemory) {
            0 => u64::MAX,
            bytes => bytes,
        }
    }
}
