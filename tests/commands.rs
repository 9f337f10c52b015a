//! The command table as clients see it over the wire, settings and figures. Shapes of replies are compared with a running
//! Redis; what they say is compared with the table itself.

mod support;
#[path = "support/wire.rs"]
mod wire;

use seendb::commands::table::{Command, Flags, all};
use std::collections::BTreeSet;
use std::io::{Read, Write as _};
use std::process::{Command as Process, Stdio};
use support::{Client, Server, Value, show_bytes, wait_until};
use wire::kinds;

/// Every row with its full name, subcommands too.
fn rows() -> impl Iterator<Item = (String, &'static Command)> {
    all().flat_map(|command| {
        let subs = command.subcommands.iter().map(|sub| (format!("{}|{}", command.name, sub.name), sub));
        std::iter::once((command.name.to_string(), command)).chain(subs)
    })
}

#[track_caller]
fn texts(reply: &Value) -> BTreeSet<String> {
    reply.array().iter().map(Value::text).collect()
}

/// Fails unless a row of `COMMAND INFO` says what the table does.
#[track_caller]
fn says_the_row(reply: &Value, name: &str, command: &'static Command) {
    let fields = reply.array();
    assert_eq!(fields.len(), 10, "{name}");
    assert!(fields[0] == name && fields[1] == i64::from(command.arity), "{name}: {fields:?}");
    assert_eq!(texts(&fields[2]), command.flags.names().map(String::from).collect(), "{name}");
    // One range for all keys, as old clients read it.
    let first = command.keys.first().map_or((0, 0), |keys| (keys.first, keys.step));
    let place = (first.0, command.keys.last().map_or(0, |keys| keys.last), first.1);
    let told = [fields[3].int(), fields[4].int(), fields[5].int()];
    assert_eq!(told, [place.0, place.1, place.2].map(i64::from), "{name}");
    assert_eq!(texts(&fields[6]), command.categories().into_iter().map(String::from).collect(), "{name}");
    assert_eq!(fields[8].array().len(), command.keys.len(), "{name}");
    for (told, keys) in fields[8].array().iter().zip(command.keys) {
        assert_eq!(texts(told.field("flags")), keys.flags.iter().map(ToString::to_string).collect(), "{name}");
        assert!(*told.field("begin_search").field("spec").field("index") == i64::from(keys.first), "{name}");
        assert!(*told.field("find_keys").field("spec").field("keystep") == i64::from(keys.step), "{name}");
    }
    let subs = fields[9].array();
    assert_eq!(subs.len(), command.subcommands.len(), "{name}");
    for (told, sub) in subs.iter().zip(command.subcommands) {
        says_the_row(told, &format!("{name}|{}", sub.name), sub);
    }
}

#[test]
fn command_info_says_what_the_table_says() {
    let server = Server::start();
    for mut client in [server.client(), server.client3()] {
        let every = client.cmd("COMMAND");
        assert_eq!(every.array().len(), all().count());
        assert_eq!(client.cmd("COMMAND INFO"), every);
        assert!(client.cmd("COMMAND COUNT") == all().count() as i64);
        for (told, command) in every.array().iter().zip(all()) {
            says_the_row(told, command.name, command);
        }
        for (name, command) in rows() {
            let told = client.cmd(&format!("COMMAND INFO {} nosuch {name}", name.to_uppercase()));
            let [upper, unknown, lower] = told.array() else { panic!("{name}: {told:?}") };
            says_the_row(lower, &name, command);
            assert_eq!(upper, lower, "{name}");
            assert_eq!(*unknown, Value::Null);
        }
    }
}

/// Redis has tips (a list of strings) for some commands, where we have an empty list.
fn no_tips(kinds: &str) -> String {
    kinds.replace("*[$]", "*[]").replace("*[] *[]", "*[]").replace("*[] *[]", "*[]")
}

#[test]
fn shapes_as_in_redis() {
    let (ours, peer) = (Server::start(), Server::peer());
    for protocol in [2, 3] {
        let (mut ours, mut peer) = (ours.client(), peer.client());
        ours.hello(protocol);
        peer.hello(protocol);
        for line in [
            "COMMAND COUNT",
            "COMMAND INFO nosuch",
            "COMMAND INFO nosuch nosuch",
            "COMMAND INFO ping",
            "COMMAND INFO dbsize",
            "COMMAND INFO del",
            "COMMAND INFO type",
            "COMMAND INFO config|get",
            "COMMAND INFO client|setname",
            "COMMAND INFO memory|usage",
            "COMMAND DOCS nosuch",
            "COMMAND DOCS dbsize",
            "COMMAND DOCS randomkey",
            "COMMAND LIST FILTERBY PATTERN nosuch*",
            "COMMAND LIST FILTERBY MODULE nosuch",
            "COMMAND LIST FILTERBY ACLCAT nosuch",
            "COMMAND LIST FILTERBY ACLCAT connection",
            "COMMAND GETKEYS DEL a b",
            "COMMAND GETKEYSANDFLAGS DEL a b",
            "COMMAND GETKEYSANDFLAGS TYPE a",
            "COMMAND GETKEYSANDFLAGS MEMORY USAGE a",
            "CONFIG GET nosuch",
            "CONFIG GET timeout",
            "CONFIG GET timeout maxclients",
            "CONFIG SET timeout 0",
            "INFO server",
            "INFO nosuch",
            "SCAN 0",
            "KEYS *",
            "TIME",
            "CLIENT ID",
            "CLIENT GETNAME",
            "RANDOMKEY",
            "MEMORY USAGE nosuch",
            "CLIENT HELP",
            "CONFIG HELP",
            "COMMAND HELP",
            "MEMORY HELP",
        ] {
            // Where RESP3 has sets is a test of its own.
            if protocol == 3 && line.starts_with("COMMAND INFO ") && !line.contains("nosuch") {
                continue;
            }
            let words: Vec<&str> = line.split(' ').collect();
            let (mine, theirs) = (ours.call_raw(&words).0, peer.call_raw(&words).0);
            assert_eq!(
                no_tips(&kinds(&mine)),
                no_tips(&kinds(&theirs)),
                "{line} in RESP{protocol}: {}",
                show_bytes(&mine)
            );
        }
    }
}

#[test]
fn documents_have_the_fields_of_redis() {
    let (ours, peer) = (Server::start(), Server::peer());
    let (mut ours, mut peer) = (ours.client3(), peer.client3());
    let docs = ours.cmd("COMMAND DOCS");
    let Value::Map(pairs) = &docs else { panic!("not a map: {docs:?}") };
    assert_eq!(pairs.len(), all().count());
    for (name, command) in rows() {
        let told = ours.cmd(&format!("COMMAND DOCS {name}"));
        let doc = told.field(&name);
        assert!(*doc.field("summary") == command.summary && *doc.field("since") == command.since, "{name}");
        assert!(*doc.field("complexity") == command.complexity && *doc.field("group") == command.group.name());
        let Value::Map(fields) = doc else { panic!("{name}: {doc:?}") };
        let names: Vec<String> = fields.iter().map(|(name, _)| name.text()).collect();
        assert_eq!(names.contains(&"arguments".into()), !command.arguments.is_empty(), "{name}");
        assert_eq!(names.contains(&"subcommands".into()), !command.subcommands.is_empty(), "{name}");
    }
    // Arguments of commands that Redis has too: names aside, the same fields, in the same order.
    for name in ["ping", "echo", "del", "exists", "type", "scan", "select"] {
        let words = ["COMMAND", "DOCS", name];
        let (mine, theirs) = (ours.call(&words), peer.call(&words));
        let fields = |reply: &Value| {
            let arguments = reply.field(name).field("arguments").array().to_vec();
            let of = |argument: &Value| match argument {
                Value::Map(pairs) => pairs.iter().map(|(name, _)| name.text()).collect::<Vec<_>>(),
                other => panic!("{name}: {other:?}"),
            };
            arguments.iter().map(of).collect::<Vec<_>>()
        };
        // `display_text` came with 7.2; `since` stands at words that are younger than their command.
        let common = |list: Vec<Vec<String>>| -> Vec<Vec<String>> {
            let kept = |name: &String| name != "display_text" && name != "since";
            list.into_iter().map(|names| names.into_iter().filter(kept).collect()).collect()
        };
        assert_eq!(common(fields(&mine)), common(fields(&theirs)), "{name}");
    }
}

#[test]
fn lists_of_names() {
    let (ours, peer) = (Server::start(), Server::peer());
    let (mut ours, mut peer) = (ours.client(), peer.client());
    let names: BTreeSet<String> = rows().map(|(name, _)| name).collect();
    let listed = texts(&ours.cmd("COMMAND LIST"));
    assert!(listed.is_subset(&names) && all().all(|command| listed.contains(command.name)));
    let pattern = texts(&ours.cmd("COMMAND LIST FILTERBY PATTERN BF.M*"));
    assert_eq!(pattern, ["bf.madd", "bf.mexists"].map(String::from).into());
    let bloom = texts(&ours.cmd("COMMAND LIST FILTERBY ACLCAT bloom"));
    assert_eq!(bloom, listed.iter().filter(|name| name.starts_with("bf.")).cloned().collect());
    assert_eq!(texts(&ours.cmd("command list filterby aclcat BLOOM")), bloom);
    assert_eq!(texts(&ours.cmd("COMMAND LIST FILTERBY ACLCAT write")), {
        all().filter(|command| command.flags.has(Flags::WRITE)).map(|command| command.name.to_string()).collect()
    });
    for line in [
        "COMMAND LIST FILTERBY",
        "COMMAND LIST FILTERBY PATTERN",
        "COMMAND LIST FILTERBY NOSUCH x",
        "COMMAND LIST NOSUCH PATTERN x",
        "COMMAND LIST FILTERBY PATTERN x y",
        "COMMAND GETKEYS",
        "COMMAND GETKEYS NOSUCH a",
        "COMMAND GETKEYS TYPE a b",
        "COMMAND GETKEYS CONFIG GET x",
        "COMMAND GETKEYS CONFIG NOSUCH x",
        "COMMAND GETKEYS MEMORY USAGE",
        "COMMAND GETKEYSANDFLAGS",
        "COMMAND COUNT x",
        "COMMAND HELP x",
        "COMMAND NOSUCH",
        "COMMAND GETKEYS DEL a b a",
        "COMMAND GETKEYS MEMORY USAGE k SAMPLES 0",
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        assert_eq!(show_bytes(&ours.call_raw(&words).0), show_bytes(&peer.call_raw(&words).0), "{line}");
    }
}

/// Of the two nulls of RESP2, for a command that is not there, it is the string.
#[test]
fn unknown_commands_are_a_null_among_the_rows() {
    let (ours, peer) = (Server::start(), Server::peer());
    for (protocol, expected) in [(2, &b"*2\r\n$-1\r\n$-1\r\n"[..]), (3, b"*2\r\n_\r\n_\r\n")] {
        for server in [&ours, &peer] {
            let mut client = server.client();
            client.hello(protocol);
            let (raw, _) = client.call_raw(&["COMMAND", "INFO", "nosuch", "config|nosuch"]);
            assert_eq!(show_bytes(&raw), show_bytes(expected));
        }
    }
}

#[test]
fn cursors_that_redis_takes_are_taken() {
    let (ours, peer) = (Server::start(), Server::peer());
    let (mut ours, mut peer) = (ours.client(), peer.client());
    for cursor in [
        &b""[..],
        b"0",
        b"00",
        b"010",
        b"+1",
        b"-0",
        b"-1",
        b"-18446744073709551615",
        b"18446744073709551615",
        b"\0",
        b"0\0x",
        b"18446744073709551616",
        b"-18446744073709551616",
        b"+",
        b"-",
        b"--1",
        b" 0",
        b"0 ",
        b"\t0",
        b"0x10",
        b"x",
        b"1x",
        b"\xa00",
    ] {
        let words = [&b"SCAN"[..], cursor];
        let (mine, theirs) = (ours.call_raw(&words).0, peer.call_raw(&words).0);
        assert_eq!(show_bytes(&mine), show_bytes(&theirs), "{}", cursor.escape_ascii());
    }
    // A cursor that was never handed out leads to some keys or to the end.
    for n in 0..3000 {
        ours.cmd(&format!("BF.ADD k:{n} x"));
    }
    for cursor in ["-1", "-1024", "9223372036854775808", "1023"] {
        let reply = ours.cmd(&format!("SCAN {cursor}"));
        assert!(reply.array()[0].text().parse::<u64>().is_ok(), "{reply:?}");
    }
    let all = ours.call(&["SCAN", "", "COUNT", "100000"]);
    assert_eq!(all.array()[1].array().len(), 3000, "no cursor is the beginning");
}

/// A request that fits the form, with `key:N` where keys stand.
fn example(name: &str, command: &'static Command) -> Vec<String> {
    let mut words: Vec<String> = name.split('|').map(String::from).collect();
    while words.len() < command.arity.unsigned_abs() as usize {
        words.push(format!("key:{}", words.len()));
    }
    words
}

#[test]
fn keys_of_every_command() {
    let server = Server::start();
    let mut client = server.client();
    for (name, command) in rows().filter(|(_, command)| command.subcommands.is_empty()) {
        for sub in ["GETKEYS", "GETKEYSANDFLAGS"] {
            let mut args = vec!["COMMAND".to_string(), sub.into()];
            args.extend(example(&name, command));
            let reply = client.call(&args);
            if command.keys.is_empty() {
                assert_eq!(reply.error(), "ERR The command has no key arguments", "{name}");
                continue;
            }
            let mut expected: Vec<(String, &[&str])> = Vec::new();
            for spec in command.keys {
                let last = if spec.last < 0 { command.arity.abs() + spec.last } else { spec.last };
                let places = (spec.first..=last).step_by(spec.step as usize);
                expected.extend(places.map(|place| (format!("key:{place}"), spec.flags)));
            }
            let keys: Vec<String> = match sub {
                "GETKEYS" => reply.array().iter().map(Value::text).collect(),
                _ => reply.array().iter().map(|pair| pair.array()[0].text()).collect(),
            };
            assert_eq!(keys, expected.iter().map(|(key, _)| key.clone()).collect::<Vec<_>>(), "{sub} {name}");
            if sub == "GETKEYSANDFLAGS" {
                for (pair, (key, wanted)) in reply.array().iter().zip(&expected) {
                    let flags = texts(&pair.array()[1]);
                    assert_eq!(flags, wanted.iter().map(ToString::to_string).collect(), "{name}, {key}");
                    assert_eq!(
                        flags.iter().filter(|flag| ["RO", "RW", "OW", "RM"].contains(&flag.as_str())).count(),
                        1
                    );
                }
            }
        }
    }
}

#[test]
fn too_few_and_too_many_words() {
    let server = Server::start();
    let mut client = server.client();
    for (name, command) in rows().filter(|(_, command)| command.subcommands.is_empty()) {
        // As in Redis an EXEC that is refused says that it ends a transaction, whether there is one or not.
        let code = if name == "exec" { "EXECABORT Transaction discarded because of:" } else { "ERR" };
        let expected = format!("{code} wrong number of arguments for '{name}' command");
        let full = example(&name, command);
        for words in name.split('|').count()..full.len() {
            assert_eq!(client.call(&full[..words]).error(), expected, "{:?}", &full[..words]);
        }
        if command.arity > 0 {
            let more = [full, vec!["extra".to_string()]].concat();
            assert_eq!(client.call(&more).error(), expected, "{more:?}");
        }
    }
    for command in all().filter(|command| !command.subcommands.is_empty() && command.arity != -1) {
        let expected = format!("ERR wrong number of arguments for '{}' command", command.name);
        assert_eq!(client.cmd(command.name).error(), expected);
    }
    assert!(client.cmd("DBSIZE") == 0, "nothing was made");
}

// Settings

#[test]
fn settings_are_read_by_names_and_patterns() {
    let server = Server::start();
    let mut client = server.client3();
    let names = |reply: Value| match reply {
        Value::Map(pairs) => pairs.iter().map(|(name, _)| name.text()).collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    let all: Vec<String> = seendb::config::DIRECTIVES.iter().map(|directive| directive.name.to_string()).collect();
    assert_eq!(names(client.cmd("CONFIG GET *")), all);
    assert_eq!(names(client.cmd("CONFIG GET tcp-*")), ["tcp-keepalive", "tcp-backlog"]);
    assert_eq!(names(client.cmd("CONFIG GET timeout tim* Timeout nosuch")), ["timeout"], "each once");
    assert_eq!(names(client.cmd("CONFIG GET port timeout")).len(), 2);
    assert!(names(client.cmd("CONFIG GET nosuch")).is_empty());
    assert!(client.cmd("CONFIG GET databases").field("databases").text() == "16");
}

/// A name that is written out comes back as it was written; the first of several words that name a setting counts.
#[test]
fn settings_answer_to_the_name_that_was_used() {
    let (ours, peer) = (Server::start(), Server::peer());
    let (mut ours, mut peer) = (ours.client(), peer.client());
    for (line, expected) in [
        ("CONFIG GET TIMEOUT", &["TIMEOUT"][..]),
        ("CONFIG GET Timeout timeout", &["Timeout"]),
        ("CONFIG GET timeout TIMEOUT", &["timeout"]),
        ("CONFIG GET TIMEOUT t?meout", &["TIMEOUT"]),
        ("CONFIG GET T?MEOUT TIMEOUT", &["timeout"]),
        ("CONFIG GET [t]IMEOUT", &["timeout"]),
        ("CONFIG GET TIME\\OUT", &[]),
        ("CONFIG GET TIME\\OU?", &["timeout"]),
        ("CONFIG GET TIMEOUT?", &[]),
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        let told = ours.call(&words);
        assert_eq!(told, peer.call(&words), "{line}");
        let names: Vec<String> = told.array().iter().step_by(2).map(Value::text).collect();
        assert_eq!(names, expected, "{line}");
    }
}

#[test]
fn settings_are_changed_together_or_not_at_all() {
    let (ours, peer) = (Server::start(), Server::peer());
    let (mut client, mut peer) = (ours.client(), peer.client());
    let value = |client: &mut Client, name: &str| client.cmd(&format!("CONFIG GET {name}")).field(name).text();
    assert!(client.cmd("CONFIG SET timeout 11 tcp-keepalive 22 MAXCLIENTS 33 bf-error-rate 0.001") == "OK");
    for (name, expected) in
        [("timeout", "11"), ("tcp-keepalive", "22"), ("maxclients", "33"), ("bf-error-rate", "0.001")]
    {
        assert_eq!(value(&mut client, name), expected);
    }
    for line in [
        "CONFIG SET timeout 12 nosuch 1",
        "CONFIG SET timeout 12 port 7000",
        "CONFIG SET timeout 12 timeout 13",
        "CONFIG SET timeout 12 Timeout 12",
        "CONFIG SET timeout 12 tcp-keepalive x",
        "CONFIG SET timeout 12 tcp-keepalive",
        "CONFIG SET timeout 12 maxclients 0",
        "CONFIG SET tcp-keepalive 23 timeout -1",
        "CONFIG SET tcp-keepalive 23 timeout 99999999999999999999",
        "CONFIG SET timeout",
        "CONFIG SET",
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        let (mine, theirs) = (client.call(&words), peer.call(&words));
        mine.error();
        assert_eq!(value(&mut client, "timeout"), "11", "{line}");
        assert_eq!(value(&mut client, "tcp-keepalive"), "22", "{line}");
        // Redis repeats the name as it was given.
        if !["port", "maxclients", "Timeout"].iter().any(|word| line.contains(word)) {
            assert_eq!(mine, theirs, "{line}");
        }
    }
    // Sizes are read with their units and shown in bytes.
    for (given, shown) in
        [("1mb", 1 << 20), ("2MB", 2 << 20), ("3m", 3_000_000), ("1gb", 1 << 30), ("1048577", 1_048_577)]
    {
        assert!(client.cmd(&format!("CONFIG SET proto-max-bulk-len {given}")) == "OK");
        assert_eq!(value(&mut client, "proto-max-bulk-len"), shown.to_string());
    }
}

#[test]
fn new_settings_count_for_new_filters_at_once() {
    let server = Server::start();
    let (mut client, mut setter) = (server.client(), server.client());
    assert!(client.cmd("BF.ADD a x") == 1);
    assert!(setter.cmd("CONFIG SET bf-error-rate 0.0001 bf-initial-size 5000 bf-expansion-factor 4") == "OK");
    assert!(client.cmd("BF.ADD b x") == 1);
    for (key, capacity, expansion) in [("a", 100, 2), ("b", 5000, 4)] {
        let told = client.cmd(&format!("BF.INFO {key}"));
        assert!(*told.field("Capacity") == capacity && *told.field("Expansion rate") == expansion, "{told:?}");
    }
    let debug = client.cmd("BF.DEBUG b").array()[1].text();
    assert!(debug.contains(" ratio:5e-05"), "half of the rate for the first sub-filter: {debug}");
    assert!(setter.cmd("CONFIG SET bf-expansion-factor 0") == "OK");
    client.cmd("BF.ADD c x");
    assert_eq!(*client.cmd("BF.INFO c").field("Expansion rate"), Value::Null, "0 makes filters that do not grow");
}

// Figures

const SECTIONS: [&str; 13] = [
    "Server",
    "Clients",
    "Memory",
    "Persistence",
    "Stats",
    "Replication",
    "CPU",
    "Bloom",
    "Chain",
    "Cbf",
    "Dlcbf",
    "Cluster",
    "Keyspace",
];

#[test]
fn sections_of_info() {
    let server = Server::start();
    let mut client = server.client();
    let titles = |text: &str| -> Vec<String> {
        text.lines().filter_map(|line| line.strip_prefix("# ")).map(String::from).collect()
    };
    for line in ["INFO", "INFO all", "INFO default", "INFO everything", "info ALL"] {
        let text = client.cmd(line).text();
        assert_eq!(titles(&text), SECTIONS, "{line}");
        assert!(text.ends_with("\r\n") && !text.replace("\r\n", "").contains(['\r', '\n']), "{line}");
        for part in text.split("\r\n\r\n") {
            let lines: Vec<&str> = part.trim_end().split("\r\n").collect();
            assert!(lines[0].starts_with("# ") && lines[1..].iter().all(|l| l.split_once(':').is_some()), "{part}");
        }
    }
    for section in SECTIONS {
        for line in [format!("INFO {section}"), format!("INFO {}", section.to_lowercase())] {
            assert_eq!(titles(&client.cmd(&line).text()), [section], "a section alone still has its title");
        }
    }
    assert_eq!(titles(&client.cmd("INFO memory SERVER nosuch memory").text()), ["Server", "Memory"]);
    assert_eq!(client.cmd("INFO nosuch").text(), "");
    let (raw, _) = server.client3().call_raw(&["INFO", "server"]);
    assert!(raw.starts_with(b"=") && raw.windows(6).any(|part| part == b"\ntxt:#"), "{}", show_bytes(&raw));
}

#[track_caller]
fn figure(client: &mut Client, name: &str) -> u64 {
    let text = client.cmd("INFO").text();
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no number {name} in {text}"))
}

#[test]
fn figures_of_info_are_true() {
    let server = Server::start();
    let mut client = server.client();
    wait_until("one client", || figure(&mut client, "connected_clients") == 1);
    let text = client.cmd("INFO").text();
    for line in
        ["redis_version:7.4.0", "server_name:seendb", "redis_mode:standalone", "arch_bits:64", "maxclients:10000"]
    {
        assert!(text.lines().any(|told| told == line), "no {line} in {text}");
    }
    assert!(text.contains(concat!("seendb_version:", env!("CARGO_PKG_VERSION"))));
    assert_eq!(figure(&mut client, "process_id"), u64::from(server.pid()));
    assert_eq!(figure(&mut client, "tcp_port"), u64::from(server.port()));
    let run_id = text.lines().find_map(|line| line.strip_prefix("run_id:")).unwrap();
    assert!(run_id.len() == 40 && run_id.bytes().all(|byte| byte.is_ascii_hexdigit()));

    let (commands, errors) =
        (figure(&mut client, "total_commands_processed"), figure(&mut client, "total_error_replies"));
    let (hits, misses) = (figure(&mut client, "keyspace_hits"), figure(&mut client, "keyspace_misses"));
    client.cmd("BF.ADD k a");
    client.cmd("BF.EXISTS k a");
    client.cmd("BF.EXISTS nosuch a");
    client.cmd("NOSUCH");
    client.cmd("BF.ADD");
    client.cmd("BF.INFO nosuch");
    client.cmd("EXISTS k k nosuch");
    assert_eq!(figure(&mut client, "total_error_replies"), errors + 3);
    assert_eq!(figure(&mut client, "keyspace_hits"), hits + 3);
    assert_eq!(figure(&mut client, "keyspace_misses"), misses + 3);
    // BF.ADD, two BF.EXISTS, BF.INFO, EXISTS, and the INFOs of figure(): 4 before this one counts itself.
    assert!(figure(&mut client, "total_commands_processed") >= commands + 5 + 4);

    assert_eq!(client.cmd("INFO keyspace").text(), "# Keyspace\r\ndb0:keys=1,expires=0,avg_ttl=0\r\n");
    client.cmd("SELECT 3");
    client.cmd("BF.ADD k a");
    assert!(client.cmd("INFO keyspace").text().ends_with("\r\ndb3:keys=1,expires=0,avg_ttl=0\r\n"));
    client.cmd("FLUSHALL");
    assert_eq!(client.cmd("INFO keyspace").text(), "# Keyspace\r\n");

    let memory = figure(&mut client, "used_memory");
    assert!(memory > 0 && figure(&mut client, "used_memory_rss") > 0);
    client.cmd("BF.RESERVE big 0.01 10000000");
    let held = client.cmd("MEMORY USAGE big").int() as u64;
    let more = figure(&mut client, "used_memory") - memory;
    assert!(more.abs_diff(held) < 1 << 20, "{more} more, the key holds {held}");
    client.cmd("DEL big");
    wait_until("the memory to be freed", || figure(&mut client, "used_memory") < memory + (1 << 20));
}

/// The value of a line of these sections, as text.
#[track_caller]
fn told(client: &mut Client, section: &str, name: &str) -> String {
    let text = client.cmd(&format!("INFO {section}")).text();
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    value.unwrap_or_else(|| panic!("no {name} in {text}")).to_owned()
}

#[test]
fn the_peak_of_memory_stays_when_the_memory_is_freed() {
    const HELD: u64 = 10 << 20;
    let server = Server::start();
    let mut client = server.client();
    let before = figure(&mut client, "used_memory");
    assert!(figure(&mut client, "used_memory_peak") >= before);
    assert!(client.cmd("BF.RESERVE big 0.01 10000000 NONSCALING") == "OK");
    // No INFO while the filter is there: the server looks by itself, ten times a second, and nothing shows when it has.
    std::thread::sleep(std::time::Duration::from_millis(500));
    client.cmd("DEL big");
    wait_until("the memory to be freed", || figure(&mut client, "used_memory") < before + (1 << 20));
    let peak = figure(&mut client, "used_memory_peak");
    assert!((before + HELD..before + HELD + (4 << 20)).contains(&peak), "{before} before, {peak} at most");
    assert!(told(&mut client, "memory", "used_memory_peak_human").ends_with('M'));
}

#[test]
fn processor_time_is_told_as_redis_tells_it() {
    let (ours, peer) = (Server::start(), Server::peer());
    let (mut ours, mut peer) = (ours.client(), peer.client());
    let names = ["used_cpu_sys", "used_cpu_user", "used_cpu_sys_children", "used_cpu_user_children"];
    for client in [&mut ours, &mut peer] {
        for name in names {
            let value = told(client, "cpu", name);
            let (seconds, fraction) = value.split_once('.').expect("a decimal point");
            assert!(
                seconds.parse::<u64>().is_ok() && fraction.len() == 6 && fraction.parse::<u32>().is_ok(),
                "{value}"
            );
        }
    }
    let mut used = || told(&mut ours, "cpu", "used_cpu_user").parse::<f64>().expect("seconds");
    let before = used();
    wait_until("work to show", || used() > before);
    assert_eq!(told(&mut ours, "cpu", "used_cpu_user_children"), "0.000000", "it starts no other programs");
    assert_eq!(ours.cmd("INFO cluster"), peer.cmd("INFO cluster"));
}

#[test]
fn connections_are_counted() {
    let server = Server::start();
    let mut client = server.client();
    let before = figure(&mut client, "total_connections_received");
    let mut more: Vec<Client> = (0..5).map(|_| server.client()).collect();
    more.iter_mut().for_each(|client| assert!(client.cmd("PING") == "PONG"));
    assert_eq!(figure(&mut client, "total_connections_received"), before + 5);
    drop(more);
    wait_until("the others to leave", || figure(&mut client, "connected_clients") == 1);
}

// redis-cli

/// Reads until these words come, and takes what was printed up to there; fails if the program ends before.
#[track_caller]
fn expect(output: &mut impl Read, unread: &mut String, words: &str) {
    let mut piece = [0; 4096];
    loop {
        if let Some(at) = unread.find(words) {
            unread.drain(..at + words.len());
            return;
        }
        let read = output.read(&mut piece).expect("a pipe");
        assert!(read > 0, "it ended before it said {words:?}: {unread}");
        unread.push_str(&String::from_utf8_lossy(&piece[..read]));
    }
}

#[test]
fn redis_cli_on_a_terminal_reads_the_documents() {
    let server = Server::start();
    // The editor of lines drops what is typed before its prompt, so the prompt is waited for.
    let mut child = Process::new("timeout")
        .args(["60", "script", "-qec", &format!("stty cols 120; redis-cli -p {}", server.port()), "/dev/null"])
        .env("TERM", "xterm")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .expect("redis-cli (redis-tools) and script (bsdutils) are installed");
    let (mut input, mut output) = (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
    let mut said = String::new();
    expect(&mut output, &mut said, "> ");
    // Help is made of the reply to COMMAND DOCS.
    input.write_all(b"help bf.reserve\r").unwrap();
    expect(&mut output, &mut said, "key error capacity [EXPANSION expansion] [NONSCALING]");
    expect(&mut output, &mut said, "> ");
    input.write_all(b"bf.add k a\r").unwrap();
    expect(&mut output, &mut said, "(integer) 1");
    expect(&mut output, &mut said, "> ");
    input.write_all(b"exit\r").unwrap();
    assert!(child.wait().unwrap().success(), "{said}");
}

/// In RESP3 Redis sends tips, key specifications and an empty list of subcommands as sets.
#[test]
fn command_info_has_sets_where_redis_has_them() {
    let (ours, peer) = (Server::start(), Server::peer());
    let (mut ours, mut peer) = (ours.client3(), peer.client3());
    let no_tips = |kinds: String| kinds.replace("~[$]", "~[]").replace("~[] ~[]", "~[]").replace("~[] ~[]", "~[]");
    for name in ["ping", "dbsize", "del", "type", "config|get", "memory|usage"] {
        let words = ["COMMAND", "INFO", name];
        let (mine, theirs) = (ours.call_raw(&words).0, peer.call_raw(&words).0);
        assert_eq!(no_tips(kinds(&mine)), no_tips(kinds(&theirs)), "{name}: {}", show_bytes(&mine));
    }
}
