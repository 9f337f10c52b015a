//! What the commands that make filters take: each option, its values, its errors, and their order.

use crate::FAMILIES;
use crate::support::Value;
use crate::world::{START, World};

const COMMON: &[&str] = &[
    "",
    "KEYED",
    "seed 000102030405060708090a0B0C0D0E0F",
    "EX 5",
    "px 5",
    "EXAT 9999999999",
    "PXAT 9999999999999",
    "KEYED EX 5",
];
const COUNTING: &[&str] = &["COUNTERBITS 4", "counterbits 8 STRICT", "Strict KEYED EX 9 COUNTERBITS 8"];
const DLEFT: &[&str] = &[
    "EXPANSION 1",
    "EXPANSION 32768 FINAL 1099511627776",
    "FINAL 100 expansion 2",
    "EXPANSION 0",
    "NONSCALING",
    "SUBTABLES 2 CELLS 4",
    "SUBTABLES 8 CELLS 16 COUNTERBITS 4",
    "COUNTERBITS 2 OVERFLOW refuse",
    "overflow SPILL KEYED PX 9 NONSCALING",
];

#[test]
fn every_option_is_taken_in_any_case_and_order() {
    for (family, own) in FAMILIES.into_iter().zip([COUNTING, DLEFT]) {
        let mut client = World::new().client();
        for (n, options) in COMMON.iter().chain(own).enumerate() {
            assert!(client.cmd(&format!("{family}.RESERVE r{n} 0.01 100 {options}")) == "OK", "{options}");
            let insert = format!("{family}.INSERT i{n} {options} CAPACITY 100 ERROR 0.01 ITEMS a");
            assert_eq!(client.cmd(&insert), Value::Array(vec![Value::Int(1)]), "{options}");
            assert_eq!(client.cmd(&format!("TTL r{n}")), client.cmd(&format!("TTL i{n}")), "{options}");
            assert!(client.cmd(&format!("{family}.DEL i{n} a")) == 1);
            let (one, other) = (client.cmd(&format!("{family}.INFO r{n}")), client.cmd(&format!("{family}.INFO i{n}")));
            assert_eq!(one.field("Capacity"), other.field("Capacity"));
            // On a live key they change nothing.
            let insert = format!("{family}.INSERT r0 {options} CAPACITY 7 ERROR 0.5 ITEMS a");
            assert_eq!(client.cmd(&insert).array().len(), 1);
            assert!(client.cmd("TTL r0") == -1 && *client.cmd(&format!("{family}.INFO r0")).field("Capacity") == 100);
        }
    }
}

#[test]
fn what_an_add_makes_keeps_to_the_greatest_capacity() {
    for family in FAMILIES {
        let mut client = World::new().client();
        assert!(client.cmd(&format!("CONFIG SET {}-max-capacity 100", family.to_lowercase())) == "OK");
        for line in [format!("{family}.ADD add a"), format!("{family}.INSERT insert ITEMS a")] {
            client.cmd(&line);
            let key = if line.contains(".ADD") { "add" } else { "insert" };
            assert!(*client.cmd(&format!("{family}.INFO {key}")).field("Capacity") == 100, "{line}");
        }
    }
}

const WRONG: &[(&str, &str)] = &[
    ("FOO", "ERR syntax error, unexpected 'FOO'"),
    ("KEYEDX", "ERR syntax error, unexpected 'KEYEDX'"),
    ("K", "ERR syntax error, unexpected 'K'"),
    ("LINKS 5", "ERR syntax error, unexpected 'LINKS'"),
    ("KEYED KEYED", "ERR syntax error, 'KEYED' given twice"),
    (
        "SEED 000102030405060708090a0b0c0d0e0f SEED 000102030405060708090a0b0c0d0e0f",
        "ERR syntax error, 'SEED' given twice",
    ),
    ("KEYED SEED 000102030405060708090a0b0c0d0e0f", "ERR syntax error, 'KEYED' with 'SEED'"),
    ("SEED 000102030405060708090a0b0c0d0e0f KEYED", "ERR syntax error, 'SEED' with 'KEYED'"),
    ("SEED 00", "ERR bad seed"),
    ("SEED 000102030405060708090a0b0c0d0e0g", "ERR bad seed"),
    ("EX 5 EX 5", "ERR syntax error, 'EX' given twice"),
    ("EX 5 PXAT 9999999999999", "ERR syntax error, 'EX' with 'PXAT'"),
    ("EX 0", "ERR invalid expire time in '{}' command"),
    ("PX -1", "ERR invalid expire time in '{}' command"),
    ("EXAT 1", "ERR invalid expire time in '{}' command"),
    ("PXAT 1750032000000", "ERR invalid expire time in '{}' command"),
    ("EX x", "ERR value is not an integer or out of range"),
    ("EX 0 FOO", "ERR invalid expire time in '{}' command"),
    ("FOO EX 0", "ERR syntax error, unexpected 'FOO'"),
];
const WRONG_COUNTING: &[(&str, &str)] = &[
    ("EXPANSION 2", "ERR syntax error, unexpected 'EXPANSION'"),
    ("NONSCALING", "ERR syntax error, unexpected 'NONSCALING'"),
    ("STRICT STRICT", "ERR syntax error, 'STRICT' given twice"),
    ("COUNTERBITS 4 COUNTERBITS 4", "ERR syntax error, 'COUNTERBITS' given twice"),
    ("COUNTERBITS x", "ERR bad counterbits"),
    ("COUNTERBITS 2", "ERR counterbits must be 4 or 8"),
    ("COUNTERBITS -4", "ERR counterbits must be 4 or 8"),
    ("COUNTERBITS 4294967300", "ERR counterbits must be 4 or 8"),
];
const WRONG_DLEFT: &[(&str, &str)] = &[
    ("STRICT", "ERR syntax error, unexpected 'STRICT'"),
    ("EXPANSION 2 EXPANSION 2", "ERR syntax error, 'EXPANSION' given twice"),
    ("NONSCALING NONSCALING", "ERR syntax error, 'NONSCALING' given twice"),
    ("EXPANSION 2 NONSCALING", "ERR syntax error, 'EXPANSION' with 'NONSCALING'"),
    ("NONSCALING EXPANSION 2", "ERR syntax error, 'NONSCALING' with 'EXPANSION'"),
    ("EXPANSION 32769", "ERR expansion must be in the range [0, 32768]"),
    ("EXPANSION 1.5", "ERR bad expansion"),
    ("FINAL 1000", "ERR FINAL needs EXPANSION"),
    ("EXPANSION 0 FINAL 1000", "ERR FINAL needs EXPANSION"),
    ("EXPANSION 2 FINAL 0", "ERR final must be in the range [1, 1099511627776]"),
    ("EXPANSION 2 FINAL 9", "ERR final must be in the range [10, 1099511627776]"),
    ("EXPANSION 1 FINAL 10241", "ERR FINAL needs more than 1024 sets, use a greater EXPANSION"),
    ("EXPANSION 2 FINAL x", "ERR bad final"),
    ("EXPANSION 2 FINAL 100 FINAL 100", "ERR syntax error, 'FINAL' given twice"),
    ("SUBTABLES 1", "ERR subtables must be in the range [2, 8]"),
    ("SUBTABLES 9", "ERR subtables must be in the range [2, 8]"),
    ("SUBTABLES 4 SUBTABLES 4", "ERR syntax error, 'SUBTABLES' given twice"),
    ("CELLS 3", "ERR cells must be in the range [4, 16]"),
    ("CELLS 17", "ERR cells must be in the range [4, 16]"),
    ("CELLS 8 CELLS 8", "ERR syntax error, 'CELLS' given twice"),
    ("COUNTERBITS 3", "ERR counterbits must be 2 or 4"),
    ("COUNTERBITS 2 COUNTERBITS 2", "ERR syntax error, 'COUNTERBITS' given twice"),
    ("OVERFLOW AWAY", "ERR bad overflow"),
    ("OVERFLOW SPILL OVERFLOW SPILL", "ERR syntax error, 'OVERFLOW' given twice"),
];
const WRONG_SIZES: &[(&str, &str)] = &[
    ("CAPACITY 5 CAPACITY 5", "ERR syntax error, 'CAPACITY' given twice"),
    ("ERROR 0.1 ERROR 0.1", "ERR syntax error, 'ERROR' given twice"),
    ("CAPACITY 0", "ERR capacity must be in the range [1, 1099511627776]"),
    ("CAPACITY 1e3", "ERR bad capacity"),
    ("ERROR 1", "ERR error rate must be in the range [1e-15, 1)"),
    ("ERROR x", "ERR bad error rate"),
    ("NOCREATE NOCREATE", "ERR syntax error, 'NOCREATE' given twice"),
];

#[test]
fn what_is_wrong_is_refused_with_its_text() {
    assert_eq!(START, 1_750_032_000_000, "the life above that is just over");
    for (family, own) in FAMILIES.into_iter().zip([WRONG_COUNTING, WRONG_DLEFT]) {
        let mut client = World::new().client();
        client.cmd(&format!("{family}.RESERVE live 0.01 10"));
        let name = family.to_lowercase();
        for (options, text) in WRONG.iter().chain(own) {
            let line = format!("{family}.RESERVE k 0.01 10 {options}");
            assert_eq!(client.refused(&line), text.replace("{}", &format!("{name}.reserve")), "{line}");
        }
        for (options, text) in WRONG.iter().chain(own).chain(WRONG_SIZES) {
            // On a live key the options are checked all the same.
            for key in ["k", "live"] {
                let line = format!("{family}.INSERT {key} CAPACITY 10 {options} ITEMS a");
                let line = if options.contains("CAPACITY") { line.replace(" CAPACITY 10", "") } else { line };
                assert_eq!(client.refused(&line), text.replace("{}", &format!("{name}.insert")), "{line}");
            }
        }
    }
}

#[test]
fn an_option_without_its_value_is_named() {
    let of_all = ["SEED", "EX", "PX", "EXAT", "PXAT"];
    let own: [&[&str]; 2] =
        [&["COUNTERBITS"], &["EXPANSION", "FINAL", "SUBTABLES", "CELLS", "COUNTERBITS", "OVERFLOW"]];
    for (family, own) in FAMILIES.into_iter().zip(own) {
        let mut client = World::new().client();
        for word in of_all.iter().chain(own) {
            let text = format!("ERR no {}", word.to_lowercase());
            assert_eq!(client.refused(&format!("{family}.RESERVE k 0.01 100 {word}")), text);
            assert_eq!(
                client.refused(&format!("{family}.INSERT k {word}")),
                "ERR wrong number of arguments for '".to_owned()
                    + &format!("{}.insert' command", family.to_lowercase())
            );
            assert_eq!(client.refused(&format!("{family}.INSERT k ERROR 0.1 {word}")), text);
        }
    }
}

/// C025: every number at its bounds and beside them.
#[test]
fn numbers_at_their_bounds() {
    const MOST: u64 = 1 << 40;
    for family in FAMILIES {
        let mut client = World::new().client();
        let range = format!("ERR capacity must be in the range [1, {MOST}]");
        for word in ["0", "1099511627777", "4611686018427387904", "9223372036854775807", "-1"] {
            assert_eq!(client.refused(&format!("{family}.RESERVE k 0.01 {word}")), range, "{word}");
        }
        for word in ["1.5", "1e3", "+1", "01", "x", "9223372036854775808"] {
            assert_eq!(client.refused(&format!("{family}.RESERVE k 0.01 {word}")), "ERR bad capacity", "{word}");
        }
        assert_eq!(client.call(&[&format!("{family}.RESERVE"), "k", "0.01", ""]).error(), "ERR bad capacity");
        for word in ["0", "1", "-0.1", "2", "1e-16", "inf"] {
            let text = "ERR error rate must be in the range [1e-15, 1)";
            assert_eq!(client.refused(&format!("{family}.RESERVE k {word} 10")), text, "{word}");
        }
        for word in ["nan", "x", "0.1x"] {
            assert_eq!(client.refused(&format!("{family}.RESERVE k {word} 10")), "ERR bad error rate", "{word}");
        }
        for (n, sizes) in ["1e-15 1", "0.999 1", "0.01 1"].iter().enumerate() {
            assert!(client.cmd(&format!("{family}.RESERVE k{n} {sizes}")) == "OK", "{sizes}");
            assert!(client.cmd(&format!("{family}.ADD k{n} a")) == 1);
            assert!(client.cmd(&format!("{family}.EXISTS k{n} a")) == 1);
            assert!(client.cmd(&format!("{family}.DEL k{n} a")) == 1);
            assert!(client.cmd(&format!("{family}.EXISTS k{n} a")) == 0);
        }
        // The error comes before the key is looked at.
        client.cmd("BF.ADD bloom a");
        assert_eq!(client.refused(&format!("{family}.RESERVE bloom 0.01 0")), range);
    }
}
