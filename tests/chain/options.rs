//! What the commands that make rings take: each option, its values, its errors, and their order.

use crate::support::Value;
use crate::world::{START, World, yes};

#[test]
fn every_option_is_taken_in_any_case_and_order() {
    let mut client = World::new().client();
    for (n, options) in [
        "",
        "LINKS 2",
        "links 1024",
        "LINKERROR",
        "WINDOW 1",
        "window 315360000",
        "PWINDOW 1",
        "PWINDOW 315360000000",
        "WINDOW 60 BOUNDED",
        "BOUNDED WINDOW 60",
        "CLOCK event WINDOW 60",
        "WINDOW 60 CLOCK SERVER LINKS 31 LINKERROR IDLE 5 KEYED EX 9",
        "DUAL",
        "THRESHOLD 0.5 dual",
        "DUAL THRESHOLD 0.999",
        "IDLE 1",
        "IDLE 315360000",
        "KEYED",
        "SEED 000102030405060708090a0B0C0D0E0F",
        "EX 5",
        "PX 5",
        "EXAT 9999999999",
        "PXAT 9999999999999",
    ]
    .into_iter()
    .enumerate()
    {
        assert!(client.cmd(&format!("CHAIN.RESERVE r{n} 0.01 100 {options}")) == "OK", "{options}");
        let insert = format!("CHAIN.INSERT i{n} {options} CAPACITY 100 ERROR 0.01 ITEMS a");
        let unseen = format!("CHAIN.UNSEENADD u{n} {options} ITEMS a");
        if options.contains("event") {
            assert_eq!(client.refused(&insert), "ERR AT is needed by this filter's clock");
            assert_eq!(client.refused(&unseen), "ERR AT is needed by this filter's clock");
            continue;
        }
        assert_eq!(client.cmd(&insert), Value::Array(vec![Value::Int(1)]), "{options}");
        assert_eq!(client.cmd(&unseen), Value::Array(vec![Value::Bulk(b"a".into())]), "{options}");
        if !options.contains("IDLE") {
            assert_eq!(client.cmd(&format!("TTL r{n}")), client.cmd(&format!("TTL i{n}")), "{options}");
        }
    }
}

/// Errors of options, the same wherever they stand.
const WRONG: &[(&str, &str)] = &[
    ("FOO", "ERR syntax error, unexpected 'FOO'"),
    ("LINKSX 5", "ERR syntax error, unexpected 'LINKSX'"),
    ("L 5", "ERR syntax error, unexpected 'L'"),
    ("LINKS 5 LINKS 5", "ERR syntax error, 'LINKS' given twice"),
    ("LINKERROR LINKERROR", "ERR syntax error, 'LINKERROR' given twice"),
    ("WINDOW 5 window 5", "ERR syntax error, 'WINDOW' given twice"),
    ("PWINDOW 5 PWINDOW 5", "ERR syntax error, 'PWINDOW' given twice"),
    ("WINDOW 5 PWINDOW 5", "ERR syntax error, 'WINDOW' with 'PWINDOW'"),
    ("PWINDOW 5 WINDOW 5", "ERR syntax error, 'PWINDOW' with 'WINDOW'"),
    ("WINDOW 5 BOUNDED BOUNDED", "ERR syntax error, 'BOUNDED' given twice"),
    ("WINDOW 5 CLOCK EVENT CLOCK SERVER", "ERR syntax error, 'CLOCK' given twice"),
    ("DUAL DUAL", "ERR syntax error, 'DUAL' given twice"),
    ("DUAL THRESHOLD 0.6 THRESHOLD 0.6", "ERR syntax error, 'THRESHOLD' given twice"),
    ("IDLE 5 IDLE 6", "ERR syntax error, 'IDLE' given twice"),
    ("KEYED KEYED", "ERR syntax error, 'KEYED' given twice"),
    (
        "SEED 000102030405060708090a0b0c0d0e0f SEED 000102030405060708090a0b0c0d0e0f",
        "ERR syntax error, 'SEED' given twice",
    ),
    ("KEYED SEED 000102030405060708090a0b0c0d0e0f", "ERR syntax error, 'KEYED' with 'SEED'"),
    ("SEED 000102030405060708090a0b0c0d0e0f KEYED", "ERR syntax error, 'SEED' with 'KEYED'"),
    ("DUAL LINKS 5", "ERR syntax error, 'DUAL' with 'LINKS'"),
    ("LINKS 5 DUAL", "ERR syntax error, 'LINKS' with 'DUAL'"),
    ("DUAL WINDOW 5", "ERR syntax error, 'DUAL' with 'WINDOW'"),
    ("PWINDOW 5 DUAL", "ERR syntax error, 'PWINDOW' with 'DUAL'"),
    ("BOUNDED", "ERR BOUNDED needs WINDOW"),
    ("CLOCK EVENT", "ERR CLOCK needs WINDOW"),
    ("THRESHOLD 0.6", "ERR THRESHOLD needs DUAL"),
    ("LINKS x", "ERR bad links"),
    ("LINKS 1", "ERR links must be in the range [2, 1024]"),
    ("WINDOW 0", "ERR window must be in the range [1, 315360000]"),
    ("PWINDOW 315360000001", "ERR pwindow must be in the range [1, 315360000000]"),
    ("IDLE 0", "ERR idle must be in the range [1, 315360000]"),
    ("DUAL THRESHOLD x", "ERR bad threshold"),
    ("DUAL THRESHOLD nan", "ERR bad threshold"),
    ("DUAL THRESHOLD 0.4999", "ERR threshold must be in the range [0.5, 1)"),
    ("DUAL THRESHOLD 1", "ERR threshold must be in the range [0.5, 1)"),
    ("WINDOW 5 CLOCK MINE", "ERR bad clock"),
    ("SEED 00", "ERR bad seed"),
    ("SEED 000102030405060708090a0b0c0d0e0g", "ERR bad seed"),
    ("SEED +00102030405060708090a0b0c0d0e0f", "ERR bad seed"),
    // The first mistake from the left counts.
    ("LINKS 1 FOO", "ERR links must be in the range [2, 1024]"),
    ("FOO LINKS 1", "ERR syntax error, unexpected 'FOO'"),
    ("LINKS 5 LINKS x", "ERR bad links"),
];

/// Those of lives, which profiles do not take.
const WRONG_LIVES: &[(&str, &str)] = &[
    ("EX 5 EX 5", "ERR syntax error, 'EX' given twice"),
    ("EX 5 PXAT 9999999999999", "ERR syntax error, 'EX' with 'PXAT'"),
    ("EX 0", "ERR invalid expire time in '{}' command"),
    ("PX -1", "ERR invalid expire time in '{}' command"),
    ("EXAT 1", "ERR invalid expire time in '{}' command"),
    ("PXAT 1750032000000", "ERR invalid expire time in '{}' command"),
    ("EX x", "ERR value is not an integer or out of range"),
];

/// The sizes as options.
const WRONG_SIZES: &[(&str, &str)] = &[
    ("CAPACITY 5 CAPACITY 5", "ERR syntax error, 'CAPACITY' given twice"),
    ("ERROR 0.1 ERROR 0.1", "ERR syntax error, 'ERROR' given twice"),
    ("CAPACITY 0", "ERR capacity must be in the range [1, 1099511627776]"),
    ("CAPACITY 1e3", "ERR bad capacity"),
    ("ERROR 1", "ERR error rate must be in the range [1e-15, 1)"),
    ("ERROR x", "ERR bad error rate"),
];

#[test]
fn what_is_wrong_is_refused_with_its_text() {
    let mut client = World::new().client();
    // On a live key the options are checked all the same.
    client.cmd("CHAIN.RESERVE live 0.01 100");
    assert_eq!(START, 1_750_032_000_000, "the life above that is just over");
    type Line<'l> = &'l dyn Fn(&str) -> String;
    type Wrong = &'static [(&'static str, &'static str)];
    let takes: [(&str, Line<'_>, &[Wrong]); 6] = [
        ("chain.reserve", &|options| format!("CHAIN.RESERVE k 0.01 100 {options}"), &[WRONG, WRONG_LIVES]),
        ("chain.insert", &|options| format!("CHAIN.INSERT k {options} ITEMS a"), &[WRONG, WRONG_LIVES, WRONG_SIZES]),
        ("chain.insert", &|options| format!("CHAIN.INSERT live {options} ITEMS a"), &[WRONG, WRONG_LIVES, WRONG_SIZES]),
        (
            "chain.unseenadd",
            &|options| format!("CHAIN.UNSEENADD k {options} ITEMS a"),
            &[WRONG, WRONG_LIVES, WRONG_SIZES],
        ),
        ("chain.profile|set", &|options| format!("CHAIN.PROFILE SET p {options}"), &[WRONG, WRONG_SIZES]),
        (
            "chain.profile|set",
            &|options| format!("CHAIN.PROFILE SET p {options} EX 5"),
            &[&[("", "ERR syntax error, unexpected 'EX'")]],
        ),
    ];
    for (command, line, wrong) in takes {
        for (options, text) in wrong.iter().copied().flatten() {
            assert_eq!(client.refused(&line(options)), text.replace("{}", command), "{}", line(options));
        }
    }
    assert_eq!(client.cmd("CHAIN.PROFILE LIST"), Value::Array(vec![]));
}

#[test]
fn an_option_without_its_value_is_named() {
    let mut client = World::new().client();
    for word in ["LINKS", "WINDOW", "PWINDOW", "CLOCK", "THRESHOLD", "IDLE", "SEED", "EX", "PX", "EXAT", "PXAT"] {
        let text = format!("ERR no {}", word.to_lowercase());
        assert_eq!(client.refused(&format!("CHAIN.RESERVE k 0.01 100 {word}")), text);
        assert_eq!(client.refused(&format!("CHAIN.INSERT k NOCREATE {word}")), text);
    }
    for word in ["CAPACITY", "ERROR", "AT"] {
        assert_eq!(
            client.refused(&format!("CHAIN.INSERT k NOCREATE {word}")),
            format!("ERR no {}", word.to_lowercase())
        );
    }
    assert_eq!(client.refused("CHAIN.UNSEENADD k NOCREATE COUNT"), "ERR no count");
    assert_eq!(client.refused("CHAIN.ADD k item AT"), "ERR no at");
    assert_eq!(client.refused("CHAIN.EXPORT k NEWER"), "ERR no newer");
}

/// C025 for this family: every number at and beyond its limits.
#[test]
fn c025_bounds_of_numbers() {
    let world = World::new();
    // Only the form is looked at here.
    world.set("max-filter-memory", "0");
    let mut client = world.client();
    let numbers = [
        ("CHAIN.RESERVE k 0.01 {}", "capacity", 1, 1_099_511_627_776),
        ("CHAIN.INSERT k CAPACITY {} ITEMS a", "capacity", 1, 1_099_511_627_776),
        ("CHAIN.RESERVE k 0.01 100 LINKS {}", "links", 2, 1024),
        ("CHAIN.RESERVE k 0.01 100 WINDOW {}", "window", 1, 315_360_000),
        ("CHAIN.RESERVE k 0.01 100 PWINDOW {}", "pwindow", 1, 315_360_000_000),
        ("CHAIN.RESERVE k 0.01 100 IDLE {}", "idle", 1, 315_360_000),
        ("CHAIN.UNSEENADD k COUNT {} ITEMS a", "count", 1, 1_048_576),
    ];
    for (line, name, least, most) in numbers {
        let line = |value: &str| line.replace("{}", value);
        for value in [least, most] {
            let reply = client.cmd(&line(&value.to_string()));
            assert!(!matches!(reply, Value::Error(_)), "{}: {reply:?}", line(&value.to_string()));
            client.cmd("DEL k");
        }
        for value in [least - 1, most + 1, -1, i64::MAX] {
            let text = format!("ERR {name} must be in the range [{least}, {most}]");
            assert_eq!(client.refused(&line(&value.to_string())), text, "{}", line(&value.to_string()));
        }
        for value in ["1.5", "1e3", "+5", "05", "x", "9223372036854775808"] {
            assert_eq!(client.refused(&line(value)), format!("ERR bad {name}"), "{}", line(value));
        }
    }
    for error in ["1e-15", "0.5", "0.999999"] {
        assert!(client.cmd(&format!("CHAIN.RESERVE k {error} 100")) == "OK");
        client.cmd("DEL k");
    }
    for error in ["0", "1", "-0.1", "9.9e-16", "2", "inf"] {
        let text = "ERR error rate must be in the range [1e-15, 1)";
        assert_eq!(client.refused(&format!("CHAIN.RESERVE k {error} 100")), text);
    }
    for error in ["nan", "x", "0.1x"] {
        assert_eq!(client.refused(&format!("CHAIN.RESERVE k {error} 100")), "ERR bad error rate");
    }
    assert_eq!(client.call(&["CHAIN.RESERVE", "k", "0.01", ""]).error(), "ERR bad capacity");
    // The setting narrows the range.
    world.set("chain-max-capacity", "1000");
    assert_eq!(client.refused("CHAIN.RESERVE k 0.01 1001"), "ERR capacity must be in the range [1, 1000]");
    assert!(client.cmd("CHAIN.RESERVE k 0.01 1000") == "OK");
}

#[test]
fn arguments_come_before_the_key_and_the_key_before_limits() {
    let world = World::new();
    let mut client = world.client();
    client.cmd("BF.ADD bloom a");
    client.cmd("CHAIN.ADD ring a");
    for key in ["bloom", "ring", "missing"] {
        for (line, text) in [
            ("CHAIN.RESERVE {} x y", "ERR bad error rate"),
            ("CHAIN.RESERVE {} 0.01 y FOO", "ERR bad capacity"),
            ("CHAIN.RESERVE {} 0.01 5 FOO", "ERR syntax error, unexpected 'FOO'"),
            ("CHAIN.ADD {} item AT x", "ERR bad at"),
            ("CHAIN.ADD {} item FOO", "ERR syntax error, unexpected 'FOO'"),
            ("CHAIN.ADD {} item AT 5 AT 5", "ERR syntax error, 'AT' given twice"),
            ("CHAIN.EXTEND {} FOO 6", "ERR syntax error, unexpected 'FOO'"),
            ("CHAIN.EXTEND {} LINKS x", "ERR bad links"),
            ("CHAIN.SHRINK {} LINKS 1", "ERR links must be in the range [2, 1024]"),
            ("CHAIN.SCANDUMP {} x", "ERR bad cursor"),
            ("CHAIN.SCANDUMP {} -1", "ERR cursor must be in the range [0, 9223372036854775807]"),
            ("CHAIN.LOADCHUNK {} x data", "ERR bad cursor"),
            ("CHAIN.EXPORT {} FOO", "ERR syntax error, unexpected 'FOO'"),
            ("CHAIN.EXPORT {} FOO 5", "ERR syntax error, unexpected 'FOO'"),
            ("CHAIN.EXPORT {} NEWER x", "ERR bad version"),
            ("CHAIN.EXPORT {} NEWER x 5", "ERR bad version"),
            ("CHAIN.EXPORT {} NEWER 5 FOO", "ERR syntax error, unexpected 'FOO'"),
            ("CHAIN.EXPORT {} NEWER 5 NEWER 5", "ERR syntax error, 'NEWER' given twice"),
            ("CHAIN.EXPORT {} NEWER -1", "ERR version must be in the range [0, 9223372036854775807]"),
            ("CHAIN.UNSEENADD {} COUNT 1 COUNT 1 ITEMS a", "ERR syntax error, 'COUNT' given twice"),
            ("CHAIN.INSERT {} NOCREATE NOCREATE ITEMS a", "ERR syntax error, 'NOCREATE' given twice"),
            ("CHAIN.INSERT {} COUNT 1 ITEMS a", "ERR syntax error, unexpected 'COUNT'"),
            ("CHAIN.INSERT {} AT -1 ITEMS a", "ERR at must be in the range [0, 9223372036854775807]"),
            ("CHAIN.INSERT {} AT 9223372036854775808 ITEMS a", "ERR bad at"),
            ("CHAIN.INSERT {} NOCREATE ITEMS", "ERR wrong number of arguments for 'chain.insert' command"),
            ("CHAIN.INSERT {} ITEMS", "ERR wrong number of arguments for 'chain.insert' command"),
            ("CHAIN.INSERT {} CAPACITY 5", "ERR wrong number of arguments for 'chain.insert' command"),
        ] {
            assert_eq!(client.refused(&line.replace("{}", key)), text, "{line} on {key}");
        }
    }
    world.set("max-filter-memory", "1mb");
    let large = "CHAIN.RESERVE {} 0.01 1000000000";
    assert_eq!(client.refused(&large.replace("{}", "ring")), "ERR item exists");
    assert!(client.refused(&large.replace("{}", "bloom")).starts_with("WRONGTYPE "));
    let text = client.refused(&large.replace("{}", "missing"));
    assert!(
        text.starts_with("ERR filter would take ") && text.ends_with(" bytes, 'max-filter-memory' is 1048576"),
        "{text}"
    );
}

#[test]
fn c041_numbers_of_words() {
    let mut client = World::new().client();
    for (command, words) in [
        ("chain.reserve", "k 0.01"),
        ("chain.add", "k"),
        ("chain.madd", "k"),
        ("chain.insert", "k ITEMS"),
        ("chain.exists", "k"),
        ("chain.exists", "k a b"),
        ("chain.mexists", "k"),
        ("chain.unseen", "k"),
        ("chain.unseenadd", "k ITEMS"),
        ("chain.card", ""),
        ("chain.card", "k k"),
        ("chain.extend", "k LINKS"),
        ("chain.shrink", "k LINKS 5 5"),
        ("chain.rotate", ""),
        ("chain.clear", "k k"),
        ("chain.merge", "k"),
        ("chain.export", ""),
        ("chain.info", "k k"),
        ("chain.stats", "k k"),
        ("chain.scandump", "k"),
        ("chain.loadchunk", "k 5"),
        ("chain.profile|get", "p p"),
        ("chain.profile|del", ""),
        ("chain.profile|list", "p"),
        ("chain.profile|set", ""),
    ] {
        let line = format!("{} {words}", command.replace('|', " "));
        assert_eq!(client.refused(&line), format!("ERR wrong number of arguments for '{command}' command"), "{line}");
    }
    assert_eq!(client.refused("CHAIN.PROFILE FOO"), "ERR unknown subcommand 'FOO'. Try CHAIN.PROFILE HELP.");
}

/// Words behind ITEMS are items, options of creation do nothing to a live key.
#[test]
fn options_end_at_items_and_count_at_creation_only() {
    let mut client = World::new().client();
    let reply = client.cmd("CHAIN.INSERT k CAPACITY 50 ITEMS ITEMS NOCREATE LINKS 7");
    assert_eq!(reply.array().len(), 4);
    client.cmd("CHAIN.INSERT k CAPACITY 5000 ERROR 0.5 LINKS 9 WINDOW 9 IDLE 9 KEYED EX 9 ITEMS a");
    let info = client.cmd("CHAIN.INFO k");
    assert!(*info.field("Capacity") == 50 && *info.field("Number of links") == 5);
    assert_eq!((info.field("Window"), client.cmd("TTL k")), (&Value::Null, Value::Int(-1)));
    assert_eq!(client.refused("CHAIN.INSERT j NOCREATE ITEMS a"), "ERR not found");
    assert_eq!(client.refused("CHAIN.UNSEENADD j NOCREATE ITEMS a"), "ERR not found");
    assert_eq!(client.cmd("CHAIN.INSERT k NOCREATE ITEMS b"), Value::Array(vec![Value::Int(1)]));
}

#[test]
fn settings_give_what_no_option_says() {
    let world = World::new();
    let mut client = world.client();
    client.cmd("CHAIN.ADD k a");
    assert!(*client.cmd("CHAIN.INFO k").field("Capacity") == 400);
    world.set("chain-initial-size", "77");
    world.set("chain-error-rate", "0.25");
    for (key, line) in [("a", "CHAIN.ADD a x"), ("b", "CHAIN.MADD b x"), ("c", "CHAIN.INSERT c ITEMS x")] {
        client.cmd(line);
        let info = client.cmd(&format!("CHAIN.INFO {key}"));
        assert!(*info.field("Capacity") == 77 && *info.field("Error rate") == "0.25", "{info:?}");
    }
    world.set("filter-create-on-add", "no");
    for line in ["CHAIN.ADD j x", "CHAIN.MADD j x"] {
        assert_eq!(client.refused(line), "ERR not found");
    }
    assert!(yes(&client.cmd("CHAIN.INSERT j ITEMS x")) == 1);
    assert_eq!(client.cmd("CHAIN.UNSEENADD i ITEMS x").array().len(), 1);
}
