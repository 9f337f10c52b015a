//! Windows: how long items live, by the server's clock and by that of events, and lives that writes move.

use crate::support::Value;
use crate::world::{Client, START, World, with_items, yes};

fn adds(client: &mut Client, line: &str) -> bool {
    client.cmd(&format!("CHAIN.ADD {line}")).truth()
}

fn knows(client: &mut Client, line: &str) -> bool {
    client.cmd(&format!("CHAIN.EXISTS {line}")).truth()
}

/// The window by seconds and by milliseconds; what was written at any moment of a slice is there for the whole window.
#[test]
fn items_live_for_the_window_and_at_most_a_slice_more() {
    for (options, slice) in [
        ("WINDOW 60 LINKS 7", 10_000),
        ("PWINDOW 60000 LINKS 4", 20_000),
        ("PWINDOW 7 LINKS 4", 3),
        ("WINDOW 60 BOUNDED LINKS 2", 60_000),
        ("WINDOW 60 LINKS 7 KEYED LINKERROR", 10_000),
    ] {
        let world = World::new();
        let mut client = world.client();
        client.cmd(&format!("CHAIN.RESERVE k 0.000001 100 {options}"));
        let links = client.cmd("CHAIN.INFO k").field("Number of links").int() as u64;
        let span = client.cmd("CHAIN.INFO k").field("Window").int() as u64;
        assert!(*client.cmd("CHAIN.STATS k").field("slice-ms") == slice as i64, "{options}");
        for late in [0, 1, slice / 2, slice - 1] {
            client.cmd("CHAIN.CLEAR k");
            let begin = world.keyspace.clock().now().next_multiple_of(slice);
            let written = begin + late;
            world.keyspace.clock().set(written);
            assert!(adds(&mut client, "k a") && !adds(&mut client, "k a"), "{options}");
            world.keyspace.clock().set(written + span);
            assert!(knows(&mut client, "k a"), "{options} {late}");
            world.keyspace.clock().set(begin + links * slice - 1);
            assert!(knows(&mut client, "k a") && client.cmd("CHAIN.CARD k") == 1, "{options} {late}");
            world.keyspace.clock().set(begin + links * slice);
            assert!(!knows(&mut client, "k a") && client.cmd("CHAIN.CARD k") == 0, "{options} {late}");
            assert!(adds(&mut client, "k a"), "it is new again");
        }
    }
}

/// A returning item is remembered anew.
#[test]
fn items_that_return_live_on() {
    let world = World::new();
    let mut client = world.client();
    client.cmd("CHAIN.RESERVE k 0.001 100 WINDOW 60 LINKS 7");
    adds(&mut client, "k a");
    for _ in 0..30 {
        world.pass(55_000);
        assert!(!adds(&mut client, "k a"));
    }
    assert!(client.cmd("CHAIN.CARD k") == 2, "it was written to two of the slices that are alive");
}

/// After any pause, and with a clock that steps back.
#[test]
fn pauses_and_steps_of_the_clock() {
    let world = World::new();
    let mut client = world.client();
    client.cmd("CHAIN.RESERVE k 0.001 100 WINDOW 60");
    adds(&mut client, "k a");
    world.pass(1_000_000_000);
    assert!(!knows(&mut client, "k a"));
    assert!(adds(&mut client, "k b"));
    // Time seen stays: the item is neither lost nor remembered for longer.
    world.keyspace.clock().set(START);
    assert!(knows(&mut client, "k b") && !knows(&mut client, "k a"));
    assert!(adds(&mut client, "k c"));
    world.keyspace.clock().set(START + 1_000_060_000);
    assert!(knows(&mut client, "k b") && knows(&mut client, "k c"));
    world.pass(20_000);
    assert!(!knows(&mut client, "k b") && !knows(&mut client, "k c"));
}

/// A slice that gets more than it is made for grows; nothing younger than the window goes.
#[test]
fn slices_grow() {
    let world = World::new();
    let mut client = world.client();
    client.cmd("CHAIN.RESERVE k 0.0001 40 WINDOW 40 LINKS 5");
    for slice in 0..8 {
        let items = if slice % 2 == 0 { 1_000 } else { 3 };
        client.call(&with_items("CHAIN.MADD k", slice * 10_000..slice * 10_000 + items));
        for young in slice.saturating_sub(4)..=slice {
            let items = if young % 2 == 0 { 1_000 } else { 3 };
            let asked = client.call(&with_items("CHAIN.MEXISTS k", young * 10_000..young * 10_000 + items));
            assert_eq!(yes(&asked), items, "slice {young} after {slice}");
        }
        let info = client.cmd("CHAIN.INFO k");
        assert!(*info.field("Guaranteed") == 1 && *info.field("Links in use") == (slice as i64 + 1).min(5));
        world.pass(10_000);
    }
    let new = client.call(&with_items("CHAIN.MEXISTS k", 900_000..910_000));
    assert!(yes(&new) < 10, "{} of 10000", yes(&new));
}

/// A full slice turns a bounded ring early: memory stays as it is, and INFO tells.
#[test]
fn bounded_windows() {
    let world = World::new();
    let mut client = world.client();
    client.cmd("CHAIN.RESERVE k 0.0001 400 WINDOW 40 LINKS 5 BOUNDED");
    client.call(&with_items("CHAIN.MADD k", 0..500));
    assert!(*client.cmd("CHAIN.INFO k").field("Guaranteed") == 1);
    let bytes = client.cmd("CHAIN.INFO k").field("Size").int();
    client.call(&with_items("CHAIN.MADD k", 500..2_000));
    let info = client.cmd("CHAIN.INFO k");
    assert!(*info.field("Guaranteed") == 0 && info.field("Size").int() <= bytes);
    assert!(*info.field("Links in use") == 5 && *info.field("Number of items inserted") == 500);
    assert_eq!(yes(&client.call(&with_items("CHAIN.MEXISTS k", 1_500..2_000))), 500);
    // When what was lost would be over anyway, all is as promised again.
    world.pass(50_000);
    assert!(*client.cmd("CHAIN.INFO k").field("Guaranteed") == 1);
}

#[test]
fn events_by_the_servers_clock() {
    let world = World::new();
    let mut client = world.client();
    client.cmd("CHAIN.RESERVE k 0.001 100 WINDOW 60 LINKS 7");
    adds(&mut client, "k now");
    // Late ones go to the slice of their time.
    assert!(adds(&mut client, &format!("k late AT {}", START - 45_000)));
    assert!(adds(&mut client, &format!("k oldest AT {}", START - 60_000)));
    assert_eq!(client.refused(&format!("CHAIN.ADD k x AT {}", START - 60_001)), "ERR event is older than the window");
    assert_eq!(client.refused("CHAIN.ADD k x AT 0"), "ERR event is older than the window");
    assert!(knows(&mut client, "k oldest") && client.cmd("CHAIN.CARD k") == 3);
    // One second ahead is a clock that goes a little wrong, more is refused.
    assert_eq!(client.refused(&format!("CHAIN.ADD k x AT {}", START + 1001)), "ERR event is in the future");
    assert_eq!(client.refused("CHAIN.ADD k x AT 9223372036854775807"), "ERR event is in the future");
    assert!(adds(&mut client, &format!("k ahead AT {}", START + 1000)));
    assert_eq!(client.refused(&format!("CHAIN.ADD k x AT {}", START + 1500)), "ERR event is in the future");
    assert_eq!(client.refused(&format!("CHAIN.INSERT k AT {} ITEMS x", START + 1500)), "ERR event is in the future");
    let unseen = format!("CHAIN.UNSEENADD k AT {} ITEMS x late ahead", START - 30_000);
    assert_eq!(client.cmd(&unseen), Value::Array(vec![Value::Bulk(b"x".into())]));
    world.pass(10_000);
    assert!(!knows(&mut client, "k oldest") && knows(&mut client, "k late") && knows(&mut client, "k x"));
    world.pass(10_000);
    assert!(!knows(&mut client, "k late") && knows(&mut client, "k now"));
    // A refused event makes no key.
    let options = "WINDOW 60 LINKS 7";
    assert_eq!(client.refused(&format!("CHAIN.INSERT j {options} AT 5 ITEMS a")), "ERR event is older than the window");
    assert_eq!(
        client.refused(&format!("CHAIN.UNSEENADD j {options} AT 5 ITEMS a")),
        "ERR event is older than the window"
    );
}

#[test]
fn events_by_their_own_clock() {
    let world = World::new();
    let mut client = world.client();
    client.cmd("CHAIN.RESERVE k 0.001 100 WINDOW 60 LINKS 7 CLOCK EVENT");
    for line in ["CHAIN.ADD k a", "CHAIN.MADD k a b", "CHAIN.INSERT k ITEMS a", "CHAIN.UNSEENADD k ITEMS a"] {
        assert_eq!(client.refused(line), "ERR AT is needed by this filter's clock", "{line}");
    }
    assert!(adds(&mut client, "k a AT 5000") && adds(&mut client, "k b AT 65000") && knows(&mut client, "k a"));
    // The server's clock has no say, and there is no future.
    world.pass(1_000_000);
    assert!(knows(&mut client, "k a"));
    assert!(!adds(&mut client, "k b AT 70000"), "also a known item moves the time on");
    assert!(!knows(&mut client, "k a") && knows(&mut client, "k b"));
    assert!(adds(&mut client, "k late AT 30000"));
    assert_eq!(client.refused("CHAIN.ADD k x AT 9999"), "ERR event is older than the window");
    assert!(adds(&mut client, "k far AT 9223372036854775807") && knows(&mut client, "k far"));
    assert!(!knows(&mut client, "k b"));
    assert_eq!(client.refused("CHAIN.ADD k x AT 70000"), "ERR event is older than the window");
    assert_eq!(client.chunks("k"), world.replayed().client().chunks("k"));
}

/// A write whose items are all known has seen its time as well.
#[test]
fn unseenadd_moves_the_time_of_events_on() {
    let world = World::new();
    let mut client = world.client();
    client.cmd("CHAIN.RESERVE k 0.001 100 WINDOW 60 LINKS 7 CLOCK EVENT");
    adds(&mut client, "k old AT 5000");
    adds(&mut client, "k young AT 65000");
    assert_eq!(client.cmd("CHAIN.UNSEENADD k AT 70000 ITEMS young"), Value::Array(vec![]));
    assert!(!knows(&mut client, "k old") && knows(&mut client, "k young"));
    assert_eq!(client.chunks("k"), world.replayed().client().chunks("k"));
    let records = world.records();
    client.cmd("CHAIN.UNSEENADD k AT 70000 ITEMS young");
    assert_eq!(world.records(), records, "nothing has changed");
}

#[test]
fn times_without_a_window() {
    let mut client = World::new().client();
    client.cmd("CHAIN.RESERVE count 0.01 100");
    client.cmd("CHAIN.RESERVE dual 0.01 100 DUAL");
    for line in ["ADD {} a AT 5", "INSERT {} AT 5 ITEMS a", "UNSEENADD {} AT 5 ITEMS a"] {
        for key in ["count", "dual", "missing"] {
            assert_eq!(client.refused(&format!("CHAIN.{}", line.replace("{}", key))), "ERR AT needs a window");
        }
    }
}

/// Every write sets the life anew; that is moved and logged at most a hundred times in it.
#[test]
fn idle_lives() {
    let world = World::new();
    let mut client = world.client();
    client.cmd("CHAIN.RESERVE k 0.001 100 IDLE 100");
    assert!(client.cmd("PTTL k") == 100_000);
    // Each of these is a write, also where it changes nothing.
    for line in [
        "CHAIN.ADD k a",
        "CHAIN.ADD k a",
        "CHAIN.MADD k a",
        "CHAIN.INSERT k ITEMS a",
        "CHAIN.UNSEENADD k ITEMS a",
        "CHAIN.EXTEND k LINKS 6",
        "CHAIN.SHRINK k LINKS 5",
        "CHAIN.ROTATE k",
        "CHAIN.CLEAR k",
        "CHAIN.ROTATE k",
        "CHAIN.MERGE k missing",
    ] {
        world.pass(50_000);
        assert!(client.cmd("PTTL k") == 50_000);
        let reply = client.cmd(line);
        assert!(!matches!(reply, Value::Error(_)), "{line}: {reply:?}");
        assert!(client.cmd("PTTL k") == 100_000, "{line}");
    }
    for line in ["CHAIN.EXISTS k a", "CHAIN.UNSEEN k a", "CHAIN.INFO k", "CHAIN.EXPORT k", "CHAIN.SCANDUMP k 0"] {
        world.pass(1_000);
        let left = client.cmd("PTTL k");
        client.cmd(line);
        assert_eq!(client.cmd("PTTL k"), left, "{line}");
    }
    client.cmd("CHAIN.ADD k a");
    let records = world.records();
    for _ in 0..100_000 {
        world.pass(1);
        client.cmd("CHAIN.ADD k a");
    }
    let moved = world.records() - records;
    assert!((90..=100).contains(&moved), "moved {moved} times in its length");
    assert_eq!(world.replayed().client().cmd("PEXPIRETIME k"), client.cmd("PEXPIRETIME k"));
    // The life at creation, and lives that somebody sets, are moved by the next write.
    client.cmd("CHAIN.RESERVE j 0.001 100 IDLE 100 EX 5");
    assert!(client.cmd("PTTL j") == 5_000);
    client.cmd("CHAIN.ADD j a");
    assert!(client.cmd("PTTL j") == 100_000);
    client.cmd("PERSIST j");
    client.cmd("CHAIN.ADD j a");
    assert!(client.cmd("PTTL j") == 100_000);
    world.pass(100_000);
    assert!(client.cmd("EXISTS j") == 0 && adds(&mut client, "j a") && client.cmd("TTL j") == -1, "a new key");
}

/// A life at creation, on a live key and without the option.
#[test]
fn c132_lives() {
    let world = World::new();
    let mut client = world.client();
    client.cmd("CHAIN.RESERVE k 0.01 100 EX 60");
    client.cmd("CHAIN.INSERT j PX 60000 ITEMS a");
    client.cmd("CHAIN.UNSEENADD i EXAT 1750032060 ITEMS a");
    for key in ["k", "j", "i"] {
        assert!(client.cmd(&format!("PTTL {key}")) == 60_000, "{key}");
    }
    client.cmd("CHAIN.INSERT j PX 5 ITEMS b");
    assert!(client.cmd("PTTL j") == 60_000);
    client.cmd("CHAIN.INSERT h ITEMS b");
    assert!(client.cmd("PTTL h") == -1);
    assert_eq!(world.replayed().client().cmd("PEXPIRETIME j"), Value::Int(START as i64 + 60_000));
}
