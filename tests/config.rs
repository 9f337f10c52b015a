//! The settings from outside: files, `CONFIG GET` and `CONFIG SET`.
//!
//! The texts of refusals were read off a running redis-server 7.0.15; those with back quotes are RedisBloom's.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use proptest::prelude::*;
use seendb::config::file::{self, Statement};
use seendb::config::{
    Change, ClientClass, ConfigError, DIRECTIVES, Environment, Id, Kind, LogFormat, LogLevel, Mistakes, OutputLimit,
    Settings,
};

const MIB: u64 = 1 << 20;

fn environment() -> Environment {
    Environment { cores: 4, memory: Some(1000 * MIB), memory_limit: Some(2000 * MIB), folder: PathBuf::from("/start") }
}

fn defaults() -> Settings {
    Settings::new(environment(), [])
}

/// Settings from the text of a file.
fn from_text(text: &str) -> Settings {
    let statements = file::parse(text, "test.conf").expect("a correct file");
    let values = statements.into_iter().map(|statement| match statement {
        Statement::Set(id, value) => (id, value),
        Statement::Include { .. } => panic!("no include in these tests"),
    });
    Settings::new(environment(), values)
}

fn mistake(text: &str) -> String {
    file::parse(text, "seendb.conf").expect_err(text).to_string()
}

fn set(settings: &Settings, pairs: &[(&str, &str)]) -> Result<Vec<Id>, String> {
    let pairs: Vec<_> = pairs.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())).collect();
    settings.set(&pairs).map_err(|error| error.to_string())
}

fn get(settings: &Settings, name: &str) -> String {
    let found = settings.get(|known| known == name);
    assert_eq!(found.len(), 1, "{name}");
    String::from_utf8(found[0].1.clone()).expect("text")
}

#[test]
fn the_defaults_are_the_documented_ones() {
    let expected = [
        ("port", "6379"),
        ("bind", "127.0.0.1 -::1"),
        ("unixsocket", ""),
        ("unixsocketperm", "0"),
        ("protected-mode", "yes"),
        ("requirepass", ""),
        ("dir", "/start"),
        ("threads", "4"),
        ("maxclients", "10000"),
        ("timeout", "0"),
        ("tcp-keepalive", "300"),
        ("tcp-backlog", "511"),
        ("databases", "16"),
        ("save", "3600 1 300 100 60 10000"),
        ("dbfilename", "dump.rdb"),
        ("rdbcompression", "yes"),
        ("rdbchecksum", "yes"),
        ("stop-writes-on-bgsave-error", "yes"),
        ("appendonly", "no"),
        ("appendfsync", "everysec"),
        ("appenddirname", "appendonlydir"),
        ("auto-aof-rewrite-percentage", "100"),
        ("auto-aof-rewrite-min-size", "67108864"),
        ("aof-load-truncated", "yes"),
        ("load-damaged", "no"),
        ("client-query-buffer-limit", "1073741824"),
        ("client-output-buffer-limit", "normal 268435456 0 0 pubsub 33554432 8388608 60"),
        ("proto-max-bulk-len", "536870912"),
        ("proto-max-arguments", "1048576"),
        ("proto-inline-max-size", "65536"),
        ("loglevel", "notice"),
        ("log-format", "text"),
        ("logfile", ""),
        ("bf-error-rate", "0.01"),
        ("bf-initial-size", "100"),
        ("bf-expansion-factor", "2"),
        ("bf-max-capacity", "1099511627776"),
        ("bf-max-filters", "1024"),
        ("chain-error-rate", "0.01"),
        ("chain-initial-size", "400"),
        ("chain-max-capacity", "1099511627776"),
        ("cbf-error-rate", "0.01"),
        ("cbf-initial-size", "1024"),
        ("cbf-max-capacity", "1099511627776"),
        ("dlcbf-error-rate", "0.01"),
        ("dlcbf-initial-size", "1024"),
        ("dlcbf-max-capacity", "1099511627776"),
        ("maxmemory", "0"),
        ("maxmemory-policy", "noeviction"),
        ("lock-memory", "no"),
        ("filter-create-on-add", "yes"),
        ("filter-missing-key", "zero"),
        ("max-filter-memory", "838860800"),
    ];
    let settings = defaults();
    let all = settings.get(|_| true);
    assert_eq!(all.len(), expected.len());
    for ((name, value), (expected_name, expected_value)) in all.iter().zip(expected) {
        assert_eq!((*name, std::str::from_utf8(value).expect("text")), (expected_name, expected_value));
    }
    assert_eq!(settings.get(|_| false), []);
}

#[test]
fn getters_give_what_was_set() {
    let settings = from_text(
        "port 1\nbind 10.0.0.1 -::1\nunixsocket /run/s\nunixsocketperm 770\nprotected-mode no\nrequirepass 'a b'\n\
         dir data/./x\nthreads 9\nmaxclients 12\ntimeout 13\ntcp-keepalive 14\ntcp-backlog 15\nloglevel WARNING\n\
         log-format json\nlogfile l.log\nclient-query-buffer-limit 2mb\nproto-max-bulk-len 3mb\n\
         proto-max-arguments 17\nproto-inline-max-size 2kb\nbf-error-rate 1e-3\nbf-initial-size 18\n\
         bf-expansion-factor 19\nbf-max-capacity 20\nbf-max-filters 21\nmax-filter-memory 22\n",
    );
    let bind: Vec<_> = settings.bind().into_iter().map(|address| (address.optional, address.host)).collect();
    assert_eq!(bind, [(false, "10.0.0.1".to_string()), (true, "::1".to_string())]);
    assert_eq!((settings.port(), settings.threads(), settings.tcp_backlog()), (1, 9, 15));
    assert_eq!(settings.unixsocket().as_deref(), Some(Path::new("/run/s")));
    assert_eq!((settings.unixsocketperm(), settings.protected_mode()), (Some(0o770), false));
    assert_eq!(&settings.requirepass()[..], b"a b");
    assert_eq!(settings.dir(), Path::new("/start/data/x"));
    assert_eq!((settings.maxclients(), settings.timeout(), settings.tcp_keepalive()), (12, 13, 14));
    assert_eq!((settings.loglevel(), settings.log_format()), (LogLevel::Warning, LogFormat::Json));
    assert_eq!(settings.logfile().as_deref(), Some(Path::new("l.log")));
    assert_eq!((settings.client_query_buffer_limit(), settings.proto_max_bulk_len()), (2 * MIB, 3 * MIB));
    assert_eq!((settings.proto_max_arguments(), settings.proto_inline_max_size()), (17, 2048));
    assert_eq!((settings.bf_error_rate(), settings.bf_initial_size()), (0.001, 18));
    assert_eq!((settings.bf_expansion_factor(), settings.bf_max_capacity(), settings.bf_max_filters()), (19, 20, 21));
    assert_eq!(settings.max_filter_memory(), 22);
}

#[test]
fn nothing_set_reads_as_none() {
    let settings = from_text("bind \"\"\nmax-filter-memory 0\n");
    assert_eq!(settings.bind(), []);
    assert_eq!((settings.unixsocket(), settings.unixsocketperm(), settings.logfile()), (None, None, None));
    assert_eq!(settings.max_filter_memory(), u64::MAX, "0 is no limit");
}

#[test]
fn filter_memory_follows_the_memory_at_start() {
    let with = |memory, text: &str| {
        let value = Id::MaxFilterMemory.directive().parse(&[text]).expect("a size");
        Settings::new(Environment { memory, ..environment() }, [(Id::MaxFilterMemory, value)]).max_filter_memory()
    };
    assert_eq!(with(Some(1000 * MIB), "50%"), 500 * MIB);
    assert_eq!(with(Some(100), "80%"), MIB, "no memory left is not the same as no limit");
    assert_eq!(with(Some(0), "80%"), MIB);
    assert_eq!(with(None, "80%"), u64::MAX);
    let settings = defaults();
    assert_eq!(set(&settings, &[("max-filter-memory", "50%")]), Ok(vec![Id::MaxFilterMemory]));
    assert_eq!(get(&settings, "max-filter-memory"), "524288000");
}

#[test]
fn a_file_is_lines_of_words() {
    let settings = from_text(
        "\u{feff}# a comment\r\n\r\n   # another\n\t PORT   7000 \r\nrequirepass \"p\\x41\\\"\"\n\ntimeout 1\ntimeout 2\n\
         client-output-buffer-limit normal 1mb 0 0\nclient-output-buffer-limit pubsub 2mb 1mb 5\ndatabases 16",
    );
    assert_eq!(settings.port(), 7000);
    assert_eq!(&settings.requirepass()[..], b"pA\"");
    assert_eq!(settings.timeout(), 2, "the last one counts");
    assert_eq!(get(&settings, "client-output-buffer-limit"), "normal 1048576 0 0 pubsub 2097152 1048576 5");
    assert_eq!(file::parse("", "x"), Ok(vec![]));
    assert_eq!(file::parse("\n\n#\n", "x"), Ok(vec![]));
}

#[test]
fn mistakes_in_a_file_are_one_clear_line() {
    for (text, message) in [
        ("\n#\nfoo 1\n", "seendb.conf, line 3: 'foo 1': unknown directive 'foo'"),
        (
            "max-clients 5",
            "seendb.conf, line 1: 'max-clients 5': unknown directive 'max-clients', did you mean 'maxclients'?",
        ),
        ("port", "seendb.conf, line 1: 'port': wrong number of arguments"),
        ("port 1 2", "seendb.conf, line 1: 'port 1 2': wrong number of arguments"),
        (
            "port 1 # one",
            "seendb.conf, line 1: 'port 1 # one': wrong number of arguments (a comment needs a line of its own)",
        ),
        ("port x", "seendb.conf, line 1: 'port x': argument couldn't be parsed into an integer"),
        ("port 65536", "seendb.conf, line 1: 'port 65536': argument must be between 0 and 65535 inclusive"),
        ("databases 17", "seendb.conf, line 1: 'databases 17': argument must be between 16 and 16 inclusive"),
        ("logfile \"a", "seendb.conf, line 1: 'logfile \"a': unbalanced quotes"),
        ("logfile \"a\"b", "seendb.conf, line 1: 'logfile \"a\"b': unbalanced quotes"),
        ("bind", "seendb.conf, line 1: 'bind': wrong number of arguments"),
        ("include", "seendb.conf, line 1: 'include': wrong number of arguments"),
        ("include ''", "seendb.conf, line 1: 'include ''': argument must be a path"),
        (
            "client-output-buffer-limit replica 1 2 3",
            "seendb.conf, line 1: 'client-output-buffer-limit replica 1 2 3': \
             Invalid client class 'replica' specified in buffer limit configuration.",
        ),
        ("save 900", "seendb.conf, line 1: 'save 900': Invalid save parameters"),
    ] {
        assert_eq!(mistake(text), message);
    }
}

#[test]
fn no_message_shows_a_password() {
    for text in ["requirepass a hunter2", "requirepass \"hunter2", "REQUIREPASS hunter2 x", "requirepas hunter2"] {
        let message = mistake(text);
        assert!(!message.contains("hunter2") && message.contains("(hidden)"), "{message}");
    }
    let settings = from_text("requirepass hunter2");
    assert!(!format!("{settings:?}").contains("hunter2"));
}

#[test]
fn bytes_that_are_no_text_are_values_or_named_in_messages() {
    let read = file::parse_bytes(b"requirepass \xff\xfe\n", "x").expect("a password is bytes");
    assert_eq!(read.len(), 1);
    let error = file::parse_bytes(b"\n\xff\x01 1\n", "x").expect_err("no name");
    assert_eq!(error.to_string(), "x, line 2: '\u{fffd}  1': unknown directive '\u{fffd} '");
}

/// A folder with these files, and the path of the first.
fn files(contents: &[(&str, &str)]) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, text) in contents {
        let text = text.replace("DIR", folder.path().to_str().expect("text"));
        std::fs::write(folder.path().join(name), text).expect("written");
    }
    let first = folder.path().join(contents[0].0);
    (folder, first)
}

#[test]
fn an_included_file_counts_where_it_stands() {
    let (_folder, path) = files(&[
        ("a.conf", "port 1\ntimeout 1\ninclude DIR/b.conf\ninclude DIR/b.conf\ntimeout 3\n"),
        ("b.conf", "port 2\ntimeout 2\n"),
    ]);
    let settings = Settings::new(environment(), file::load(&path).expect("correct files"));
    assert_eq!((settings.port(), settings.timeout()), (2, 3));
}

/// The first mistake of those that a reading came to.
#[track_caller]
fn first<T: std::fmt::Debug>(read: Result<T, Mistakes>, what: &str) -> ConfigError {
    read.expect_err(what).listed.remove(0)
}

#[test]
fn all_mistakes_are_found_in_one_go() {
    let (folder, path) = files(&[
        ("a.conf", "replicaof host 6379\nport 7000\ninclude DIR/b.conf\ninclude DIR/missing.conf\ntimeout x\n"),
        ("b.conf", "\nsave 900\nslowlog-max-len 3\n"),
    ]);
    let mistakes = file::load(&path).expect_err("five mistakes");
    let found: Vec<_> = mistakes.listed.iter().map(|mistake| (mistake.file.rsplit('/').next(), mistake.line)).collect();
    let (a, b) = (Some("a.conf"), Some("b.conf"));
    assert_eq!(found, [(a, 1), (b, 2), (b, 3), (a, 4), (a, 5)]);
    assert_eq!(mistakes.to_string().lines().count(), 5);
    let last = format!("{}/a.conf, line 5: 'timeout x': argument couldn't be parsed", folder.path().display());
    assert!(mistakes.to_string().lines().last().expect("a line").starts_with(&last), "{mistakes}");

    let (_folder, path) = files(&[("a.conf", &"nosuch 1\n".repeat(1000))]);
    let mistakes = file::load(&path).expect_err("many mistakes");
    assert_eq!((mistakes.listed.len(), mistakes.left_out), (20, 980));
    assert!(mistakes.to_string().ends_with("\nfurther mistakes: 980"), "{mistakes}");
}

#[test]
fn mistakes_in_included_files_name_the_file_and_the_line() {
    let (folder, path) = files(&[("a.conf", "\ninclude \"DIR/b.conf\"\n"), ("b.conf", "\n\nport x\n")]);
    let error = first(file::load(&path), "a bad port");
    assert_eq!(Path::new(&error.file), folder.path().join("b.conf"));
    assert_eq!((error.line, error.text.as_str()), (3, "port x"));

    let (folder, path) = files(&[("a.conf", "\ninclude DIR/missing.conf\n")]);
    let error = first(file::load(&path), "a missing file").to_string();
    let expected =
        format!("{}, line 2: 'include {}/missing.conf': cannot be read: ", path.display(), folder.path().display());
    assert!(error.starts_with(&expected), "{error}");
}

#[test]
fn files_that_include_each_other_end_with_an_error() {
    let (_folder, path) = files(&[("a.conf", "include DIR/b.conf"), ("b.conf", "\ninclude DIR/./a.conf")]);
    let error = first(file::load(&path), "a circle");
    assert_eq!((error.line, error.reason.as_str()), (2, "the file includes itself"));

    let chain: Vec<_> = (0..20).map(|n| (format!("{n}.conf"), format!("include DIR/{}.conf", n + 1))).collect();
    let chain: Vec<_> = chain.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    let (_folder, path) = files(&chain);
    let error = first(file::load(&path), "too deep");
    assert_eq!(error.reason, "files include each other more than 16 deep");

    let (_folder, path) = files(&[("a.conf", &"include DIR/b.conf\n".repeat(300)), ("b.conf", "")]);
    assert_eq!(first(file::load(&path), "too many").reason, "more than 256 files");
}

#[test]
fn a_file_that_cannot_be_a_config_is_refused() {
    let (folder, path) = files(&[("a.conf", &"#".repeat(1 << 21))]);
    assert_eq!(first(file::load(&path), "too large").reason, "cannot be read: it is larger than 1048576 bytes");
    let error = first(file::load(folder.path()), "a folder");
    assert!(error.to_string().starts_with(&format!("{}: cannot be read: ", folder.path().display())), "{error}");
    assert!(file::load(Path::new("/dev/zero")).is_err());
}

#[test]
fn config_set_refuses_with_the_texts_of_redis() {
    const LEAD: &str = "ERR CONFIG SET failed (possibly related to argument '";
    let settings = defaults();
    for (name, value, reason) in [
        ("maxclients", "0", "argument must be between 1 and 4294967295 inclusive"),
        ("maxclients", "4294967296", "argument must be between 1 and 4294967295 inclusive"),
        ("maxclients", "abc", "argument couldn't be parsed into an integer"),
        ("maxclients", "", "argument couldn't be parsed into an integer"),
        ("maxclients", "010", "argument couldn't be parsed into an integer"),
        ("maxclients", "99999999999999999999999", "argument couldn't be parsed into an integer"),
        ("timeout", "-1", "argument must be between 0 and 2147483647 inclusive"),
        ("timeout", "1kb", "argument couldn't be parsed into an integer"),
        ("tcp-keepalive", "5000000000", "argument must be between 0 and 32767 inclusive"),
        ("protected-mode", "maybe", "argument must be 'yes' or 'no'"),
        ("loglevel", "foo", "argument(s) must be one of the following: debug, verbose, notice, warning, nothing"),
        ("client-query-buffer-limit", "1", "argument must be between 1048576 and 9223372036854775807 inclusive"),
        ("client-query-buffer-limit", "foo", "argument must be a memory value"),
        ("client-query-buffer-limit", "-1", "argument must be a memory value"),
        ("client-query-buffer-limit", "10zb", "argument must be a memory value"),
        (
            "client-query-buffer-limit",
            "10000000000000000000000",
            "argument must be between 1048576 and 9223372036854775807 inclusive",
        ),
        (
            "proto-max-bulk-len",
            "9223372036854775808",
            "argument must be between 1048576 and 9223372036854775807 inclusive",
        ),
        ("client-output-buffer-limit", "foo", "Wrong number of arguments in buffer limit configuration."),
        ("client-output-buffer-limit", "normal 1 2", "Wrong number of arguments in buffer limit configuration."),
        (
            "client-output-buffer-limit",
            "normal 1 2 -3",
            "Error in hard, soft or soft_seconds setting in buffer limit configuration.",
        ),
        (
            "client-output-buffer-limit",
            "normal 1 y 3",
            "Error in hard, soft or soft_seconds setting in buffer limit configuration.",
        ),
        ("databases", "16", "can't set immutable config"),
        ("logfile", "x", "can't set immutable config"),
        ("bf-error-rate", "x", "Invalid value for `bf-error-rate`"),
        ("bf-error-rate", "1", "Value for `bf-error-rate` must be in the range (0.000000, 1.000000)"),
        ("bf-expansion-factor", "32769", "Value for `bf-expansion-factor` must be in the range [0, 32768]"),
        ("bf-initial-size", "0", "Value for `bf-initial-size` must be in the range [1, 1099511627776]"),
        ("bf-initial-size", "1e3", "Invalid value for `bf-initial-size`"),
    ] {
        assert_eq!(set(&settings, &[(name, value)]), Err(format!("{LEAD}{name}') - {reason}")), "{name} {value}");
    }
    assert_eq!(settings.version(), 0);
}

/// Names first, in their order; then values, in their order.
#[test]
fn config_set_finds_the_same_mistake_first_as_redis() {
    let settings = defaults();
    let unknown = "ERR Unknown option or number of arguments for CONFIG SET - 'foo'";
    let failed =
        |name: &str, reason: &str| format!("ERR CONFIG SET failed (possibly related to argument '{name}') - {reason}");
    for (pairs, error) in [
        (&[("foo", "1")][..], unknown.to_string()),
        (&[("maxclients", "10"), ("foo", "20")], unknown.to_string()),
        (&[("timeout", "x"), ("maxclients", "1"), ("foo", "1")], unknown.to_string()),
        (&[("MAXCLIENTS", "10"), ("maxclients", "20")], failed("maxclients", "duplicate parameter")),
        (&[("timeout", "x"), ("timeout", "y")], failed("timeout", "duplicate parameter")),
        (&[("maxclients", "x"), ("tcp-backlog", "20")], failed("tcp-backlog", "can't set immutable config")),
        (&[("maxclients", "x"), ("timeout", "z")], failed("maxclients", "argument couldn't be parsed into an integer")),
        (&[("a\r\nb", "1")], "ERR Unknown option or number of arguments for CONFIG SET - 'a  b'".to_string()),
    ] {
        assert_eq!(set(&settings, pairs), Err(error), "{pairs:?}");
    }
    assert_eq!(settings.get(|_| true), defaults().get(|_| true));
}

#[test]
fn a_change_is_all_or_nothing_and_names_what_changed() {
    let settings = defaults();
    assert!(set(&settings, &[("maxclients", "5"), ("requirepass", "x"), ("timeout", "no")]).is_err());
    assert_eq!((settings.maxclients(), settings.requirepass().len(), settings.version()), (10_000, 0, 0));

    let changed = set(&settings, &[("MaxClients", "5"), ("timeout", "0"), ("requirepass", "x")]);
    assert_eq!(changed, Ok(vec![Id::MaxClients, Id::RequirePass]), "timeout was 0 before");
    assert_eq!(settings.version(), 1);
    assert_eq!(set(&settings, &[("maxclients", "5")]), Ok(vec![]));
    assert_eq!(settings.version(), 1, "nothing changed");
    assert_eq!(set(&settings, &[]), Ok(vec![]));
}

#[test]
fn rates_read_back_as_they_were_set_and_capped_ones_as_the_cap() {
    let settings = defaults();
    for (text, rate, reads) in [("1e-3", 0.001, "1e-3"), ("0.9", 0.25, "0.25"), ("0.0010", 0.001, "0.0010")] {
        set(&settings, &[("bf-error-rate", text)]).expect("a rate");
        assert_eq!((settings.bf_error_rate(), get(&settings, "bf-error-rate").as_str()), (rate, reads));
    }
}

#[test]
fn output_limits_change_class_by_class() {
    let settings = defaults();
    let normal = OutputLimit { hard: 1 << 20, soft: 1024, soft_seconds: 3 };
    set(&settings, &[("client-output-buffer-limit", "NORMAL 1mb 1kb 3")]).expect("limits");
    assert_eq!(settings.output_limit(ClientClass::Normal), normal);
    let pubsub = OutputLimit { hard: 32 << 20, soft: 8 << 20, soft_seconds: 60 };
    assert_eq!(settings.output_limit(ClientClass::PubSub), pubsub);
    set(&settings, &[("client-output-buffer-limit", "normal 1 2 3 normal 4 5 6 pubsub 0 0 0")]).expect("limits");
    assert_eq!(get(&settings, "client-output-buffer-limit"), "normal 4 5 6 pubsub 0 0 0");
}

#[test]
fn a_caller_may_refuse_between_check_and_change() {
    let settings = defaults();
    let prepared = settings.prepare(&[(b"maxclients", b"70000"), (b"bf-error-rate", b"0.5")]).expect("checked");
    assert_eq!((prepared.number(Id::MaxClients), prepared.number(Id::Timeout)), (Some(70_000), None));
    assert_eq!((settings.maxclients(), settings.version()), (10_000, 0), "not in force yet");
    assert_eq!(settings.commit(prepared), [Id::MaxClients, Id::BfErrorRate]);
    assert_eq!((settings.maxclients(), settings.bf_error_rate()), (70_000, 0.25));
}

/// Several values set at once are seen at once by `get`, and a raised version goes with the new values.
#[test]
fn readers_never_see_half_a_change() {
    const CHANGES: u32 = 2000;
    let settings = defaults();
    set(&settings, &[("timeout", "0"), ("tcp-keepalive", "0")]).expect("numbers");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 1..=CHANGES {
                let n = n.to_string();
                set(&settings, &[("timeout", &n), ("tcp-keepalive", &n)]).expect("numbers");
            }
            done.store(true, Ordering::Release);
        });
        let first = settings.version();
        while !done.load(Ordering::Acquire) {
            let pair = settings.get(|name| name == "timeout" || name == "tcp-keepalive");
            assert_eq!(pair[0].1, pair[1].1);
            let version = settings.version();
            assert!(u64::from(settings.timeout()) >= version - first, "the version came before its value");
        }
    });
    assert_eq!(settings.timeout(), CHANGES);
}

/// A value that the directive takes, as a client would write it.
fn valid_value(kind: Kind) -> BoxedStrategy<String> {
    match kind {
        Kind::Integer { min, max } | Kind::FilterInteger { min, max } => {
            (min..=max).prop_map(|n| n.to_string()).boxed()
        }
        Kind::Bytes { min, max } => (min..=max).prop_map(|n| n.to_string()).boxed(),
        Kind::Octal { max } => (0..=max).prop_map(|n| format!("{n:o}")).boxed(),
        Kind::MemoryShare => (0..=i64::MAX as u64).prop_map(|n| n.to_string()).boxed(),
        Kind::Rate => (1e-300..=0.25f64).prop_map(|rate| format!("{rate:e}")).boxed(),
        Kind::FilterRate => (1e-15..1.0f64).prop_map(|rate| format!("{rate:e}")).boxed(),
        Kind::Bool => prop_oneof![Just("yes".to_string()), Just("no".to_string())].boxed(),
        Kind::Choice(words) => prop::sample::select(words).prop_map(str::to_string).boxed(),
        Kind::Password | Kind::File => "[^\\x00]{0,40}".boxed(),
        Kind::FileName => "[a-z]{1,9}\\.[a-z]{1,3}".boxed(),
        Kind::SavePoints => "([1-9][0-9]{0,4} [0-9])( [1-9][0-9]{0,4} [1-9][0-9]{0,4}){0,3}".boxed(),
        Kind::Folder => "/[a-z]{1,9}".boxed(),
        Kind::Addresses => "-?[a-z]{1,9}( [0-9]\\.[0-9]){0,15}".boxed(),
        Kind::OutputLimits => (0..1u64 << 60, 0..1u64 << 60, 0..=i32::MAX, 0..1u64 << 60)
            .prop_map(|(hard, soft, seconds, other)| format!("normal {hard} {soft} {seconds} pubsub {other} 0 0"))
            .boxed(),
    }
}

/// A value that reads back in another form than it was written in, where the directive has such.
fn shorthand(kind: Kind) -> BoxedStrategy<String> {
    match kind {
        Kind::Bytes { max, .. } => (1..=max >> 30, "[gG][bB]").prop_map(|(n, unit)| format!("{n}{unit}")).boxed(),
        Kind::MemoryShare => (1..=100u8).prop_map(|percent| format!("{percent}%")).boxed(),
        Kind::Rate => (0.25..1.0f64).prop_map(|rate| rate.to_string()).boxed(),
        Kind::Bool => "[yY][eE][sS]|[nN][oO]".boxed(),
        Kind::Choice(words) => prop::sample::select(words).prop_map(str::to_uppercase).boxed(),
        Kind::OutputLimits => (0..1u32 << 20).prop_map(|n| format!(" PubSub {n}kb  {n}mb 7")).boxed(),
        _ => valid_value(kind),
    }
}

/// Quoted so that the words of a config line are exactly these.
fn quoted(value: &str) -> String {
    let bytes: String = value.bytes().map(|byte| format!("\\x{byte:02x}")).collect();
    format!("\"{bytes}\"")
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 512,
        rng_seed: proptest::test_runner::RngSeed::Fixed(0x5eed),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn get_gives_back_what_set_was_given(
        (row, value) in (0..DIRECTIVES.len()).prop_flat_map(|row| (Just(row), valid_value(DIRECTIVES[row].kind))),
    ) {
        let directive = &DIRECTIVES[row];
        let (settings, as_text) = (defaults(), |text: Vec<u8>| String::from_utf8(text).expect("text"));
        if directive.change == Change::Live {
            set(&settings, &[(directive.name, &value)]).map_err(TestCaseError::fail)?;
            prop_assert_eq!(as_text(settings.value_text(directive.id)), &value[..]);
        }
        let from_file = from_text(&format!("{} {}", directive.name, quoted(&value)));
        prop_assert_eq!(as_text(from_file.value_text(directive.id)), value);
    }

    #[test]
    fn what_get_prints_can_be_set_again(
        (row, value) in (0..DIRECTIVES.len()).prop_flat_map(|row| (Just(row), shorthand(DIRECTIVES[row].kind))),
    ) {
        let (settings, directive) = (defaults(), &DIRECTIVES[row]);
        if directive.change == Change::Live {
            set(&settings, &[(directive.name, &value)]).map_err(TestCaseError::fail)?;
            let printed = settings.value_text(directive.id);
            prop_assert_eq!(settings.set(&[(directive.name.as_bytes(), &printed)]), Ok(vec![]));
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused_on_a_line_that_exists(bytes in any::<Vec<u8>>()) {
        check(&bytes)?;
    }

    #[test]
    fn lines_that_look_like_a_config_are_read_or_refused(
        lines in prop::collection::vec(
            (prop::sample::select(&DIRECTIVES[..]), "[-a-z0-9 \"'\\\\x#%.:]{0,30}").prop_map(|(d, rest)| format!("{} {rest}", d.name)),
            0..8,
        ),
    ) {
        check(lines.join("\n").as_bytes())?;
    }
}

fn check(bytes: &[u8]) -> Result<(), TestCaseError> {
    match file::parse_bytes(bytes, "fuzz") {
        Ok(statements) => {
            let values = statements.into_iter().filter_map(|statement| match statement {
                Statement::Set(id, value) => Some((id, value)),
                Statement::Include { .. } => None,
            });
            Settings::new(environment(), values).get(|_| true);
        }
        Err(error) => {
            prop_assert!((1..=bytes.split(|byte| *byte == b'\n').count()).contains(&error.line));
            prop_assert!(!error.to_string().contains(char::is_control), "{}", error);
        }
    }
    Ok(())
}
