//! Hashing and sizes; growth and full filters.

use crate::support::{Server, Value};
use crate::{debug_field, debug_lines, manual_says, many, memory_available, yes};

/// 4.6e9 bits: positions need 64-bit arithmetic, or they crowd into a part of the array.
#[test]
fn c006_even_spread_over_very_large_bit_arrays() {
    const ITEMS: usize = 20_000;
    const BYTES: u64 = 575_103_504;
    if memory_available() < 3 * BYTES {
        eprintln!("c006 needs {} bytes of memory, not run", 3 * BYTES);
        return;
    }
    let server = Server::start();
    let mut client = server.client();
    assert!(client.cmd("BF.RESERVE k 0.001 320000000 NONSCALING") == "OK");
    let bits = debug_field(&debug_lines(&mut client, "k")[1], "bits");
    assert_eq!(bits, BYTES as f64 * 8.0);
    for start in (0..ITEMS).step_by(1000) {
        assert_eq!(yes(&many(&mut client, "BF.MADD", "k", start..start + 1000)), 1000);
    }
    let mut wrong = 0;
    for start in (ITEMS..2 * ITEMS).step_by(1000) {
        wrong += yes(&many(&mut client, "BF.MEXISTS", "k", start..start + 1000));
    }
    assert_eq!(wrong, 0, "false positives among {ITEMS} absent items");

    // Where the set bits are, in 64 parts of the array: 10 a item, so 3125 a part with a deviation of 56.
    let mut parts = [0_u64; 64];
    let mut cursor = 1;
    loop {
        let reply = client.cmd(&format!("BF.SCANDUMP k {cursor}"));
        let [Value::Int(next), Value::Bulk(data)] = reply.array() else { panic!("not a piece of a dump: {reply:?}") };
        if *next == 0 {
            break;
        }
        for (at, word) in data.chunks(8).enumerate() {
            let set: u32 = word.iter().map(|byte| byte.count_ones()).sum();
            if set > 0 {
                let place = cursor as u64 - 1 + 8 * at as u64;
                parts[(place * 64 / BYTES) as usize] += u64::from(set);
            }
        }
        cursor = *next;
    }
    let total: u64 = parts.iter().sum();
    assert!((199_000..=200_000).contains(&total), "{total} bits are set");
    for (part, set) in parts.iter().enumerate() {
        assert!((2850..=3400).contains(set), "part {part} of 64 has {set} set bits: {parts:?}");
    }
}

#[test]
fn c011_first_add_after_the_filter_is_full() {
    let server = Server::start();
    let mut client = server.client();
    assert!(client.cmd("BF.RESERVE k 0.01 10") == "OK");
    let mut counted = 0;
    for n in 0..25 {
        counted += i64::from(client.cmd(&format!("BF.ADD k item:{n}")).truth());
    }
    let info = client.cmd("BF.INFO k");
    assert_eq!(*info.field("Number of filters"), 2);
    assert_eq!(*info.field("Capacity"), 30);
    assert_eq!(*info.field("Number of items inserted"), counted);
    assert!(counted >= 24, "at most one false positive is likely, {counted} of 25 were counted");
    assert_eq!(yes(&many(&mut client, "BF.MEXISTS", "k", 0..25)), 25);
}

#[test]
fn c013_growth_factor() {
    let server = Server::start();
    let mut client = server.client();
    for (key, word, capacities) in [
        ("three", "EXPANSION 3", [10.0, 30.0, 90.0].as_slice()),
        ("one", "EXPANSION 1", &[10.0; 5]),
        ("default", "", &[10.0, 20.0, 40.0]),
    ] {
        assert!(client.cmd(&format!("BF.RESERVE {key} 0.01 10 {word}")) == "OK");
        let mut counted = 0;
        for n in 0.. {
            if counted == 45 {
                break;
            }
            counted += usize::from(client.cmd(&format!("BF.ADD {key} item:{n}")).truth());
        }
        let lines = debug_lines(&mut client, key);
        let made: Vec<f64> = lines[1..].iter().map(|line| debug_field(line, "capacity")).collect();
        assert_eq!(made, capacities, "{key}");
        let info = client.cmd(&format!("BF.INFO {key}"));
        assert_eq!(*info.field("Capacity"), capacities.iter().sum::<f64>() as i64);
    }
    assert_eq!(*client.cmd("BF.INFO default").field("Expansion rate"), 2);
}

#[test]
fn c019_upper_limit_of_growth_steps() {
    for (args, limit) in [(&["--bf-max-filters", "8"][..], 8), (&[], 1024)] {
        let server = Server::with(args);
        let mut client = server.client();
        assert!(client.cmd("BF.RESERVE k 0.001 1 EXPANSION 1") == "OK");
        // Many tiny filters make many false positives: those answer 0.
        let mut items = (0..).map(|n| format!("item:{n}"));
        let refused = items.find(|item| matches!(client.cmd(&format!("BF.ADD k {item}")), Value::Error(_)));
        let refused = refused.expect("the numbers do not end");
        let text = format!("ERR filter has {limit} sub-filters, 'bf-max-filters' is {limit}");
        assert_eq!(client.cmd(&format!("BF.ADD k {refused}")).error(), text);
        let info = client.cmd("BF.INFO k");
        assert_eq!(*info.field("Number of filters"), limit);
        assert_eq!(*info.field("Number of items inserted"), limit);
        let reply = client.cmd(&format!("BF.MADD k {refused} item:0 {refused}"));
        assert_eq!(*reply.array(), [Value::Error(text.clone()), Value::Int(0), Value::Error(text)]);
        assert_eq!(client.cmd("BF.INFO k"), info, "the filter is unchanged");
        assert!(client.cmd("BF.EXISTS k item:0") == 1);
        let shown = client.cmd("INFO everything").text();
        assert!(shown.contains(&format!("bf_max_filters:{limit}\r\n")), "the limit is not in INFO:\n{shown}");
    }
    manual_says("`bf-max-filters`");
}

#[test]
fn c021_growth_step_that_would_take_all_memory() {
    let server = Server::with(&["--max-filter-memory", "64mb"]);
    let mut client = server.client();
    let error = crate::refused(&mut client, "BF.RESERVE k 0.01 2 EXPANSION 32769");
    assert_eq!(error, "ERR expansion must be in the range [0, 32768]");
    assert!(client.cmd("BF.RESERVE k 0.01 2 EXPANSION 32768") == "OK");
    // 2, then 65536, then 2^31 items, which is refused.
    let mut next = 0;
    while client.cmd("BF.CARD k").int() < 2 + 65_536 {
        many(&mut client, "BF.MADD", "k", next..next + 200);
        next += 200;
        assert!(next < 80_000, "the second sub-filter takes more than 65536 items");
    }
    let info = client.cmd("BF.INFO k");
    assert_eq!(*info.field("Number of filters"), 2);
    let before = server.resident_bytes();
    let reply = client.cmd("BF.MADD k surely-new item:0 also-new");
    let [Value::Error(first), Value::Int(0), Value::Error(_)] = reply.array() else { panic!("{reply:?}") };
    assert!(
        first.starts_with("ERR filter would take ") && first.ends_with(", 'max-filter-memory' is 67108864"),
        "{first}"
    );
    assert_eq!(client.cmd("BF.ADD k surely-new").error(), first);
    assert_eq!(client.cmd("BF.INFO k"), info, "the filter is as it was");
    assert!(client.cmd("BF.EXISTS k item:0") == 1);
    assert!(server.resident_bytes() < before + (8 << 20));
}
