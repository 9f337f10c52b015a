//! The table of directives: the only place where the name of a setting is written.
//!
//! Names, ranges and defaults are those of Redis 7 wherever Redis has the directive with the same meaning, and those of
//! RedisBloom 8 for `bf-error-rate`, `bf-initial-size` and `bf-expansion-factor`; the rest is ours. A directive stands
//! here only if the server acts on it.

use super::value::{LogFormat, LogLevel};

/// What a directive's value may be, and with which texts a bad one is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A decimal whole number, written as Redis reads numbers (no `+`, no leading zero, no blanks).
    Integer {
        /// Smallest value allowed.
        min: u64,
        /// Greatest value allowed; at most `i64::MAX`.
        max: u64,
    },
    /// As [`Kind::Integer`], refused with the texts of RedisBloom's settings.
    FilterInteger {
        /// Smallest value allowed.
        min: u64,
        /// Greatest value allowed; at most `i64::MAX`.
        max: u64,
    },
    /// File permissions in octal.
    Octal {
        /// Greatest value allowed.
        max: u64,
    },
    /// A number of bytes, with a unit as in Redis: see [`parse_size`](super::parse_size).
    Bytes {
        /// Smallest value allowed.
        min: u64,
        /// Greatest value allowed; at most `i64::MAX`.
        max: u64,
    },
    /// A number of bytes (`0`: no limit), or `N%` of the memory available when the server started.
    MemoryShare,
    /// A false-positive rate in (0, 1); rates above 0.25 are stored as 0.25, as RedisBloom does.
    Rate,
    /// A false-positive rate in [1e-15, 1), as the families take it that RedisBloom does not have.
    FilterRate,
    /// `yes` or `no`.
    Bool,
    /// One of these words, in any letter case.
    Choice(&'static [&'static str]),
    /// A password: any bytes, hidden in messages.
    Password,
    /// A path of a file; empty for none.
    File,
    /// A path of a folder, kept absolute.
    Folder,
    /// Addresses to listen on, separated by blanks. See [`BindAddress`](super::BindAddress).
    Addresses,
    /// The name of a file or folder inside the working folder, without a path.
    FileName,
    /// Pairs of numbers: seconds, changes. See [`SavePoint`](super::SavePoint). Given again in a file, they add up; empty for none.
    SavePoints,
    /// Groups of four words: class, hard limit, soft limit, seconds. See [`OutputLimit`](super::OutputLimit).
    OutputLimits,
}

/// Where the value comes from that is in force when nobody sets one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultValue {
    /// This text, parsed like a given one.
    Text(&'static str),
    /// The number of processor cores that this process may use, at most 256.
    Cores,
}

/// Whether a directive may change while the server runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Read at start only; `CONFIG SET` refuses it.
    AtStart,
    /// `CONFIG SET` changes it.
    Live,
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Directive {
    /// Which one; the index of the row.
    pub id: Id,
    /// The name, in lower case.
    pub name: &'static str,
    /// What its value may be.
    pub kind: Kind,
    /// The value if none is given.
    pub default: DefaultValue,
    /// Whether it may change at run time.
    pub change: Change,
    /// What it means, in one line without a final stop.
    pub summary: &'static str,
}

impl Directive {
    /// Whether the value must not appear in messages.
    pub const fn is_secret(&self) -> bool {
        matches!(self.kind, Kind::Password)
    }

    /// The default as a person reads it in help and reference.
    pub const fn default_label(&self) -> &'static str {
        match self.default {
            DefaultValue::Text(text) => text,
            DefaultValue::Cores => "number of cores",
        }
    }

    /// Placeholder of the value in help texts.
    pub const fn value_label(&self) -> &'static str {
        match self.kind {
            Kind::Integer { .. } | Kind::FilterInteger { .. } => "N",
            Kind::Octal { .. } => "MODE",
            Kind::Bytes { .. } => "BYTES",
            Kind::MemoryShare => "BYTES|N%",
            Kind::Rate | Kind::FilterRate => "RATE",
            Kind::Bool => "yes|no",
            Kind::Choice(_) => "WORD",
            Kind::Password => "TEXT",
            Kind::File | Kind::FileName => "FILE",
            Kind::SavePoints => "SECONDS CHANGES",
            Kind::Folder => "FOLDER",
            Kind::Addresses => "ADDR",
            Kind::OutputLimits => "CLASS HARD SOFT SECONDS",
        }
    }
}

/// Writes the enum of ids and the table from one list, so that an id is the index of its row by construction.
macro_rules! directives {
    ($($id:ident: $name:literal, $kind:expr, $default:expr, $change:expr, $summary:literal;)*) => {
        /// Names a directive in code; `id as usize` is its row in [`DIRECTIVES`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Id {
            $(#[doc = concat!("`", $name, "`: ", $summary, ".")] $id,)*
        }

        impl Id {
            /// How many directives there are.
            pub const COUNT: usize = [$(Id::$id),*].len();
        }

        /// Every directive, in the order in which `CONFIG GET *`, the help and the reference show them.
        pub const DIRECTIVES: [Directive; Id::COUNT] = [
            $(Directive {
                id: Id::$id,
                name: $name,
                kind: $kind,
                default: $default,
                change: $change,
                summary: $summary,
            },)*
        ];
    };
}

use Change::{AtStart, Live};
use DefaultValue::{Cores, Text};

/// Greatest number that the Redis number syntax can say.
const MAX: u64 = i64::MAX as u64;
/// Longest time between keep-alive probes that the kernel takes, in seconds.
const MAX_KEEPALIVE: u64 = 32_767;
/// Greatest value of the directives that Redis keeps in a C `int`.
const MAX_INT: u64 = i32::MAX as u64;
const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;
const GIB: u64 = 1024 * MIB;
/// The words of `maxmemory-policy`, as Redis has them.
pub const POLICIES: [&str; 8] = [
    "noeviction",
    "allkeys-lru",
    "allkeys-lfu",
    "allkeys-random",
    "volatile-lru",
    "volatile-lfu",
    "volatile-random",
    "volatile-ttl",
];
/// The words of `appendfsync`.
pub const FSYNC_POLICIES: [&str; 3] = ["always", "everysec", "no"];
/// Greatest capacity of a filter that the commands take, 2^40.
const MAX_CAPACITY: u64 = 1 << 40;
/// More sub-filters than RedisBloom's rule can make: it halves the rate each time, and 1,075 halvings of any rate give 0.
const MAX_FILTERS: u64 = 1075;

directives! {
    Port: "port", Kind::Integer { min: 0, max: 65535 }, Text("6379"), AtStart,
        "TCP port to listen on; 0 for none";
    Bind: "bind", Kind::Addresses, Text("127.0.0.1 -::1"), AtStart,
        "addresses to listen on; with a leading - one that this machine lacks is skipped; * and ::* stand for all";
    UnixSocket: "unixsocket", Kind::File, Text(""), AtStart,
        "path of a Unix socket to listen on as well";
    UnixSocketPerm: "unixsocketperm", Kind::Octal { max: 0o777 }, Text("0"), AtStart,
        "permissions of the Unix socket, in octal; 0 leaves what the umask gives";
    ProtectedMode: "protected-mode", Kind::Bool, Text("yes"), Live,
        "without a password, refuse clients that are not on this machine";
    RequirePass: "requirepass", Kind::Password, Text(""), Live,
        "password that clients must give with AUTH or HELLO; empty for none";
    Dir: "dir", Kind::Folder, Text("./"), AtStart,
        "working folder; relative paths of other directives start here";
    Threads: "threads", Kind::Integer { min: 1, max: 256 }, Cores, AtStart,
        "most threads that run commands; as many as the load needs do";
    MaxClients: "maxclients", Kind::Integer { min: 1, max: u32::MAX as u64 }, Text("10000"), Live,
        "most clients connected at the same time";
    Timeout: "timeout", Kind::Integer { min: 0, max: MAX_INT }, Text("0"), Live,
        "seconds after which an idle client is disconnected; 0 for never";
    TcpKeepalive: "tcp-keepalive", Kind::Integer { min: 0, max: MAX_KEEPALIVE }, Text("300"), Live,
        "seconds between keep-alive probes on TCP connections; 0 for none";
    TcpBacklog: "tcp-backlog", Kind::Integer { min: 0, max: MAX_INT }, Text("511"), AtStart,
        "length of the queue of connections that wait to be accepted";
    Databases: "databases", Kind::Integer { min: 16, max: 16 }, Text("16"), AtStart,
        "number of databases; always 16";
    Save: "save", Kind::SavePoints, Text("3600 1 300 100 60 10000"), Live,
        "when a snapshot is taken by itself: so many seconds after the last one, if there were so many changes; empty for never";
    DbFilename: "dbfilename", Kind::FileName, Text("dump.rdb"), AtStart,
        "name of the snapshot's file";
    RdbCompression: "rdbcompression", Kind::Bool, Text("yes"), Live,
        "whether the bits of filters up to 1 MiB are compressed in snapshots";
    RdbChecksum: "rdbchecksum", Kind::Bool, Text("yes"), AtStart,
        "whether snapshots end with a checksum of the whole; parts have theirs in any case";
    StopWrites: "stop-writes-on-bgsave-error", Kind::Bool, Text("yes"), Live,
        "refuse changes while snapshots fail that save points ask for";
    AppendOnly: "appendonly", Kind::Bool, Text("no"), Live,
        "whether every change is logged to a file";
    AppendFsync: "appendfsync", Kind::Choice(&FSYNC_POLICIES), Text("everysec"), Live,
        "when the log is made safe: before any reply, each second, or when the system likes";
    AppendDirname: "appenddirname", Kind::FileName, Text("appendonlydir"), AtStart,
        "name of the folder of the log";
    AutoRewritePercentage: "auto-aof-rewrite-percentage", Kind::Integer { min: 0, max: MAX_INT }, Text("100"), Live,
        "rewrite the log when it has grown by so many percent since the last time; 0 for never";
    AutoRewriteMinSize: "auto-aof-rewrite-min-size", Kind::Bytes { min: 0, max: MAX }, Text("64mb"), Live,
        "but not while it is smaller than this";
    AofLoadTruncated: "aof-load-truncated", Kind::Bool, Text("yes"), Live,
        "start with a log whose end is cut off; no refuses to";
    LoadDamaged: "load-damaged", Kind::Bool, Text("no"), AtStart,
        "load what is sound of a damaged snapshot or log, and tell what was dropped; no refuses to start";
    ClientQueryBufferLimit: "client-query-buffer-limit", Kind::Bytes { min: MIB, max: MAX }, Text("1gb"), Live,
        "most bytes of requests held for one client before it is disconnected";
    ClientOutputBufferLimit: "client-output-buffer-limit", Kind::OutputLimits,
        Text("normal 256mb 0 0 pubsub 32mb 8mb 60"), Live,
        "most bytes of replies held for one client of a class: hard limit, soft limit, seconds above the soft one";
    ProtoMaxBulkLen: "proto-max-bulk-len", Kind::Bytes { min: MIB, max: MAX }, Text("512mb"), Live,
        "longest single argument of a request";
    ProtoMaxArguments: "proto-max-arguments", Kind::Integer { min: 16, max: MAX_INT }, Text("1048576"), Live,
        "most arguments of one request";
    ProtoInlineMaxSize: "proto-inline-max-size", Kind::Bytes { min: KIB, max: GIB }, Text("64kb"), Live,
        "longest request in inline form, one line of text";
    Loglevel: "loglevel", Kind::Choice(&LogLevel::WORDS), Text("notice"), Live,
        "least severe kind of message that is logged";
    LogFormat: "log-format", Kind::Choice(&LogFormat::WORDS), Text("text"), AtStart,
        "form of a log line";
    Logfile: "logfile", Kind::File, Text(""), AtStart,
        "file that the log is appended to; empty for standard error";
    BfErrorRate: "bf-error-rate", Kind::Rate, Text("0.01"), Live,
        "error rate of a Bloom filter that an add creates; above 0.25 counts as 0.25";
    BfInitialSize: "bf-initial-size", Kind::FilterInteger { min: 1, max: MAX_CAPACITY }, Text("100"), Live,
        "capacity of a Bloom filter that an add creates";
    BfExpansionFactor: "bf-expansion-factor", Kind::FilterInteger { min: 0, max: 32768 }, Text("2"), Live,
        "how many times larger each further sub-filter is; 0 for filters that do not grow";
    BfMaxCapacity: "bf-max-capacity", Kind::FilterInteger { min: 1, max: MAX_CAPACITY }, Text("1099511627776"), Live,
        "greatest capacity that a Bloom filter may be created with";
    BfMaxFilters: "bf-max-filters", Kind::FilterInteger { min: 1, max: MAX_FILTERS }, Text("1024"), Live,
        "most sub-filters that a Bloom filter grows to";
    ChainErrorRate: "chain-error-rate", Kind::FilterRate, Text("0.01"), Live,
        "error rate of a ring that an add creates";
    ChainInitialSize: "chain-initial-size", Kind::FilterInteger { min: 1, max: MAX_CAPACITY }, Text("400"), Live,
        "capacity of a ring that an add creates: so many of the newest items are remembered";
    ChainMaxCapacity: "chain-max-capacity", Kind::FilterInteger { min: 1, max: MAX_CAPACITY }, Text("1099511627776"), Live,
        "greatest capacity that a ring may be created with";
    CbfErrorRate: "cbf-error-rate", Kind::FilterRate, Text("0.01"), Live,
        "error rate of a counting filter that an add creates";
    CbfInitialSize: "cbf-initial-size", Kind::FilterInteger { min: 1, max: MAX_CAPACITY }, Text("1024"), Live,
        "capacity of a counting filter that an add creates";
    CbfMaxCapacity: "cbf-max-capacity", Kind::FilterInteger { min: 1, max: MAX_CAPACITY }, Text("1099511627776"), Live,
        "greatest capacity that a counting filter may be created with";
    DlcbfErrorRate: "dlcbf-error-rate", Kind::FilterRate, Text("0.01"), Live,
        "error rate of a d-left filter that an add creates";
    DlcbfInitialSize: "dlcbf-initial-size", Kind::FilterInteger { min: 1, max: MAX_CAPACITY }, Text("1024"), Live,
        "capacity of a d-left filter that an add creates";
    DlcbfMaxCapacity: "dlcbf-max-capacity", Kind::FilterInteger { min: 1, max: MAX_CAPACITY }, Text("1099511627776"), Live,
        "greatest capacity that a d-left filter may be created with, and may grow to";
    MaxMemory: "maxmemory", Kind::MemoryShare, Text("0"), Live,
        "most bytes that the server may hold; N% of the memory of the machine or its control group; 0 for no limit";
    MaxMemoryPolicy: "maxmemory-policy", Kind::Choice(&POLICIES), Text("noeviction"), Live,
        "what happens at that limit: writes are refused, or keys go by this rule";
    LockMemory: "lock-memory", Kind::Bool, Text("no"), AtStart,
        "keep all memory from being swapped out; the limit of locked memory has to allow it";
    FilterCreateOnAdd: "filter-create-on-add", Kind::Bool, Text("yes"), Live,
        "whether an add to a missing key creates a filter with the defaults";
    FilterMissingKey: "filter-missing-key", Kind::Choice(&["zero", "error"]), Text("zero"), Live,
        "what questions to a missing key answer: zero (false, 0), or the error 'ERR not found'";
    MaxFilterMemory: "max-filter-memory", Kind::MemoryShare, Text("80%"), Live,
        "most bytes that one filter may take, its sub-filters together; N% of the memory available at start; 0 for no limit";
}

impl Id {
    /// The row of the table.
    pub const fn directive(self) -> &'static Directive {
        const TABLE: &[Directive; Id::COUNT] = &DIRECTIVES;
        &TABLE[self as usize]
    }

    /// The name, in lower case.
    pub const fn name(self) -> &'static str {
        self.directive().name
    }
}

/// The directive of this name, in any letter case.
pub fn find(name: &[u8]) -> Option<&'static Directive> {
    const TABLE: &[Directive; Id::COUNT] = &DIRECTIVES;
    TABLE.iter().find(|directive| directive.name.as_bytes().eq_ignore_ascii_case(name))
}

/// The known name nearest to a mistyped one, if it is near enough to be what was meant: at most a third of the letters,
/// and at most three, differ.
pub(super) fn nearest(name: &[u8]) -> Option<&'static str> {
    /// No name that is longer can be near a known one.
    const LONGEST: usize = 40;
    if name.len() > LONGEST {
        return None;
    }
    let name = name.to_ascii_lowercase();
    let allowed = (name.len() / 3).min(3);
    DIRECTIVES
        .iter()
        .map(|directive| (edit_distance(&name, directive.name.as_bytes()), directive.name))
        .filter(|&(distance, _)| distance <= allowed)
        .min_by_key(|&(distance, _)| distance)
        .map(|(_, name)| name)
}

/// The fewest letters to insert, remove, replace or swap with their neighbour that make `b` of `a` (optimal string
/// alignment), with three rows of the table.
fn edit_distance(a: &[u8], b: &[u8]) -> usize {
    let mut last_but_one = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let replaced = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = replaced.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(last_but_one[j - 2] + 1);
            }
        }
        last_but_one = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

/// All directives as a table in Markdown, for the reference page: name, values, default, changeable at run time, meaning.
pub fn markdown_table() -> String {
    let mut out =
        String::from("| directive | value | default | at run time | meaning |\n| --- | --- | --- | --- | --- |\n");
    for directive in &DIRECTIVES {
        let change = match directive.change {
            Change::Live => "yes",
            Change::AtStart => "no",
        };
        let default = match directive.default {
            DefaultValue::Text("") => "(empty)".to_string(),
            DefaultValue::Text(text) => format!("`{text}`"),
            DefaultValue::Cores => directive.default_label().to_string(),
        };
        let cells =
            [format!("`{}`", directive.name), value_range(directive), default, change.into(), directive.summary.into()];
        out.push_str("| ");
        out.push_str(&cells.map(|cell| cell.replace('|', "\\|")).join(" | "));
        out.push_str(" |\n");
    }
    out
}

/// What a value may be, for the reference page.
fn value_range(directive: &Directive) -> String {
    match directive.kind {
        Kind::Integer { min, max } | Kind::FilterInteger { min, max } if min == max => format!("{min}"),
        Kind::Integer { min, max } | Kind::FilterInteger { min, max } => format!("{min} … {max}"),
        Kind::Octal { max } => format!("0 … {max:o}, octal"),
        Kind::Bytes { min, max: MAX } => format!("bytes, from {min}"),
        Kind::Bytes { min, max } => format!("bytes, {min} … {max}"),
        Kind::MemoryShare => "bytes or `N%`".into(),
        Kind::Rate => "0 < rate < 1".into(),
        Kind::FilterRate => "1e-15 ≤ rate < 1".into(),
        Kind::Bool => "`yes`, `no`".into(),
        Kind::Choice(words) => words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", "),
        Kind::Password => "text".into(),
        Kind::File => "path".into(),
        Kind::FileName => "name".into(),
        Kind::SavePoints => format!("`{}`, repeated", directive.value_label()),
        Kind::Folder => "path of a folder".into(),
        Kind::Addresses => "addresses".into(),
        Kind::OutputLimits => format!("`{}`, repeated", directive.value_label()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_stand_at_their_ids_and_names_are_plain_and_unique() {
        for (index, directive) in DIRECTIVES.iter().enumerate() {
            assert_eq!(directive.id as usize, index);
            assert_eq!(directive.id.name(), directive.name);
            assert!(directive.name.bytes().all(|c| c.is_ascii_lowercase() || c == b'-'), "{}", directive.name);
            assert_eq!(find(directive.name.as_bytes()).map(|found| found.id), Some(directive.id));
            assert!(!directive.summary.is_empty() && !directive.summary.ends_with('.'));
        }
    }

    #[test]
    fn names_are_found_in_any_case_and_only_whole() {
        assert_eq!(find(b"MaxClients").map(|d| d.id), Some(Id::MaxClients));
        for other in [&b""[..], b"maxclient", b"maxclientss", b"\xff", b"max clients"] {
            assert!(find(other).is_none());
        }
    }

    #[test]
    fn distance_of_the_textbook_pairs() {
        for (a, b, distance) in [
            ("kitten", "sitting", 3),
            ("flaw", "lawn", 2),
            ("", "abc", 3),
            ("abc", "", 3),
            ("a", "a", 0),
            ("prot", "port", 1),
            ("ca", "abc", 3),
        ] {
            assert_eq!(edit_distance(a.as_bytes(), b.as_bytes()), distance, "{a} {b}");
        }
    }

    #[test]
    fn a_near_name_is_suggested_and_a_far_one_is_not() {
        assert_eq!(nearest(b"max-clients"), Some("maxclients"));
        assert_eq!(nearest(b"Tcp_Keepalive"), Some("tcp-keepalive"));
        assert_eq!(nearest(b"prot"), Some("port"));
        assert_eq!(nearest(b"foo"), None);
        assert_eq!(nearest(b"replicaof"), None);
        assert_eq!(nearest(&[b'x'; 100_000]), None);
    }

    #[test]
    fn the_reference_has_a_line_for_each_directive() {
        let table = markdown_table();
        assert_eq!(table.lines().count(), DIRECTIVES.len() + 2);
        for (line, directive) in table.lines().skip(2).zip(&DIRECTIVES) {
            assert!(line.starts_with(&format!("| `{}` |", directive.name)), "{line}");
            assert_eq!(line.replace("\\|", "").matches('|').count(), 6, "{line}");
        }
    }
}
