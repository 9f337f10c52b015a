//! Memory: what is counted agrees with what the allocator gives out, the limit holds, the right keys go, and memory that
//! nobody needs goes back to the system.
//!
//! How a policy chooses is tested in this process, where the clock stands; the rest on a started server. No test depends on
//! how long something takes: `scripts/bench maxmemory` measures that.

#[path = "support/process.rs"]
mod process;
mod support;

use process::figure;
use seendb::filters::bloom::{Shape, options};
use seendb::keyspace::bloom::empty_filter;
use seendb::keyspace::{Keyspace, Policy};
use std::collections::HashSet;
use support::{Client, Random, Server, Value, encode, wait_until};

const OOM: &str = "OOM command not allowed when used memory > 'maxmemory'.";
const MB: u64 = 1 << 20;

/// Sends many commands at once and hands each reply to `look`.
fn pipeline(client: &mut Client, commands: impl Iterator<Item = Vec<u8>>, mut look: impl FnMut(Value)) {
    const AT_ONCE: usize = 500;
    let mut commands = commands.peekable();
    while commands.peek().is_some() {
        let (mut bytes, mut count) = (Vec::new(), 0);
        for command in commands.by_ref().take(AT_ONCE) {
            bytes.extend(command);
            count += 1;
        }
        client.send(&bytes);
        (0..count).for_each(|_| look(client.read()));
    }
}

/// The same for commands that must all answer this.
#[track_caller]
fn all_answer(client: &mut Client, commands: impl Iterator<Item = Vec<u8>>, expected: &Value) {
    pipeline(client, commands, |reply| assert_eq!(reply, *expected));
}

const ONE: Value = Value::Int(1);

fn ok() -> Value {
    Value::Simple("OK".into())
}

fn words(line: &str) -> Vec<u8> {
    encode(&line.split_ascii_whitespace().collect::<Vec<_>>())
}

// What is counted

/// The counted bytes of all keys and tables, and the bytes that the allocator has given out since `idle`.
fn counted_and_given(client: &mut Client, idle: u64) -> (u64, u64) {
    let counted = figure(client, "used_memory_keys") + figure(client, "used_memory_tables");
    (counted, figure(client, "used_memory").saturating_sub(idle))
}

/// Fails unless they agree within 3 percent. Large values are freed in the background, so the allocator may come to it late.
#[track_caller]
fn agree(client: &mut Client, idle: u64, what: &str) {
    let mut last = (0, 0);
    wait_until(what, || {
        last = counted_and_given(client, idle);
        let near = last.0.abs_diff(last.1) * 100 <= 3 * last.0.max(last.1);
        if !near {
            eprintln!("{what}: counted {} given {}", last.0, last.1);
        }
        near
    });
    println!("{what}: counted {} given {} ({:+.2} %)", last.0, last.1, (last.1 as f64 / last.0 as f64 - 1.0) * 100.0);
}

fn name_of(n: usize) -> String {
    // Names of 8 to 40 bytes, some of 200 to 700: lengths over 254 are kept in another way.
    match n % 50 {
        0 => format!("key:{n:0>300}"),
        1 => format!("key:{n:0>250}"),
        2 => format!("key:{n:0>700}"),
        length => format!("key:{n:0>length$}", length = 4 + length % 33),
    }
}

#[test]
fn what_is_counted_is_what_the_allocator_gives() {
    const KEYS: usize = 300_000;
    let server = Server::start();
    let mut client = server.client();
    // The buffers of the first large pipeline stay with the threads: they belong to the idle server.
    all_answer(&mut client, (0..2_000).map(|n| words(&format!("BF.RESERVE warm:{n} 0.01 10"))), &ok());
    assert!(client.cmd("FLUSHALL") == "OK");
    let idle = settled(&mut client);
    let capacities = [1, 10, 10, 25, 100, 100, 250, 1_000, 5_000];
    let reserve = |n: usize| {
        let life = ["", " EX 100000"][n % 2];
        words(&format!("BF.RESERVE {} 0.01 {}{life}", name_of(n), capacities[n % capacities.len()]))
    };
    all_answer(&mut client, (0..KEYS).map(reserve), &ok());
    agree(&mut client, idle, "filters of mixed sizes");

    let add = |n: usize| {
        let items: Vec<String> = (0..40).map(|item| format!("i{item}")).collect();
        words(&format!("BF.MADD {} {}", name_of(n), items.join(" ")))
    };
    pipeline(&mut client, (0..KEYS).step_by(4).map(add), |reply| assert_eq!(reply.array().len(), 40));
    agree(&mut client, idle, "a quarter of them grown");

    all_answer(&mut client, (0..KEYS).step_by(3).map(|n| words(&format!("UNLINK {}", name_of(n)))), &ONE);
    agree(&mut client, idle, "a third deleted");

    let rename =
        |n: usize| words(&format!("RENAME {} {}", name_of(n), format_args!("other:{n:0>width$}", width = n % 300)));
    all_answer(&mut client, (1..KEYS).step_by(3).map(rename), &ok());
    agree(&mut client, idle, "a third renamed");

    all_answer(&mut client, (2..KEYS).step_by(6).map(|n| words(&format!("COPY {} copy:{n}", name_of(n)))), &ONE);
    let set = |n: usize| {
        words(&if (n / 6).is_multiple_of(2) { format!("PERSIST copy:{n}") } else { format!("EXPIRE copy:{n} 1000") })
    };
    pipeline(&mut client, (2..KEYS).step_by(6).map(set), |_| {});
    agree(&mut client, idle, "a sixth copied, their lives changed");

    let payload = client.cmd(&format!("DUMP copy:{}", 8)).bulk().to_vec();
    let restore = |n: usize| encode(&[b"RESTORE", format!("restored:{n}").as_bytes(), b"0", &payload]);
    all_answer(&mut client, (0..20_000).map(restore), &ok());
    agree(&mut client, idle, "restored");

    // Large ones, beside the allocator; and in between, from the allocator but apart from the entry.
    for (n, capacity) in [3_000_000, 1_750_000, 500_000, 60_000, 57_000, 56_000].iter().enumerate() {
        assert!(client.cmd(&format!("BF.RESERVE large:{n} 0.01 {capacity}")) == "OK");
    }
    all_answer(
        &mut client,
        (0..500).map(|n| words(&format!("BF.RESERVE middle:{n} 0.01 {}", 50_000 + 300 * n))),
        &ok(),
    );
    agree(&mut client, idle, "large ones");

    let before = client.cmd("DBSIZE").int();
    all_answer(&mut client, (2..KEYS).step_by(6).map(|n| words(&format!("PEXPIRE copy:{n} 1"))), &ONE);
    wait_until("the copies to end", || client.cmd("DBSIZE").int() == before - (KEYS as i64 - 2 + 5) / 6);
    agree(&mut client, idle, "the copies have ended");

    // Back to the start: whatever is left belongs to the server itself.
    assert!(client.cmd("FLUSHALL") == "OK");
    wait_until("all memory to be given back", || figure(&mut client, "used_memory") < idle + MB);
    // What is freed in the background is counted off as it goes; the tables are counted once a second.
    for name in ["used_memory_keys", "used_memory_mapped", "used_memory_tables"] {
        wait_until(name, || figure(&mut client, name) == 0);
    }
}

/// `used_memory` once it no longer changes.
fn settled(client: &mut Client) -> u64 {
    let mut last = 0;
    wait_until("used_memory to stand still", || {
        std::thread::sleep(std::time::Duration::from_millis(300));
        let now = figure(client, "used_memory");
        let still = now.abs_diff(last) < 4096;
        last = now;
        still
    });
    last
}

// Who goes

/// A key in this process: small, so that many are made fast.
fn insert(keyspace: &Keyspace, db: usize, name: &str, life: Option<u64>) {
    let shape = Shape::first(10, 0.01, options::SCALING).expect("a small filter");
    let entry = empty_filter(name.as_bytes(), &shape, options::SCALING, 2, life).expect("memory");
    assert!(keyspace.write(db, name.as_bytes(), |cell| cell.insert(entry)).is_ok());
}

fn is_there(keyspace: &Keyspace, db: usize, name: &str) -> bool {
    keyspace.kind(db, name.as_bytes()).is_some()
}

fn use_key(keyspace: &Keyspace, name: &str) {
    assert!(keyspace.read(0, name.as_bytes(), |entry| entry.is_some()).unwrap_or(false));
}

/// Which share of these keys is there.
fn share_left(keyspace: &Keyspace, names: impl Iterator<Item = usize> + Clone) -> f64 {
    let left = names.clone().filter(|n| is_there(keyspace, 0, &format!("k:{n}"))).count();
    left as f64 / names.count() as f64
}

const KEYS: usize = 20_000;
const FAR: u64 = 4_000_000_000_000;

/// Keys of which every second one has a life.
fn half_with_lives() -> Keyspace {
    let keyspace = Keyspace::new(None);
    for n in 0..KEYS {
        // The later the number, the later the end.
        insert(&keyspace, 0, &format!("k:{n}"), (n % 2 == 1).then_some(FAR + n as u64));
    }
    keyspace
}

fn evict(keyspace: &Keyspace, policy: Policy, count: usize) {
    for n in 0..count {
        assert!(keyspace.evict(policy) > 0, "{policy:?}: the {n}th of {count}");
    }
}

#[test]
fn no_key_goes_under_noeviction() {
    let keyspace = half_with_lives();
    assert_eq!(keyspace.evict(Policy::NoEviction), 0);
    assert_eq!(keyspace.len(0), KEYS);
}

#[test]
fn lru_keeps_what_was_used() {
    for (policy, may_go, count) in
        [(Policy::AllKeysLru, 0..KEYS, KEYS * 2 / 5), (Policy::VolatileLru, 0..KEYS, KEYS / 5)]
    {
        let keyspace = half_with_lives();
        let step = if policy == Policy::VolatileLru { 2 } else { 1 };
        // A second later those in the upper half are used.
        keyspace.set_now(60);
        (KEYS / 2..KEYS).for_each(|n| use_key(&keyspace, &format!("k:{n}")));
        keyspace.set_now(61);
        evict(&keyspace, policy, count);
        let used = may_go.clone().skip(1).step_by(step).filter(|n| *n >= KEYS / 2);
        let left = share_left(&keyspace, used);
        assert!(left >= 0.97, "{policy:?}: {left} of the used half");
    }
}

/// Ages of all degrees: what goes is old, and what is young stays.
#[test]
fn lru_goes_by_age() {
    let keyspace = Keyspace::new(None);
    for n in 0..KEYS {
        keyspace.set_now(1 + n as u32 / 10);
        insert(&keyspace, 0, &format!("k:{n}"), None);
    }
    evict(&keyspace, Policy::AllKeysLru, KEYS / 2);
    let (oldest, youngest) = (share_left(&keyspace, 0..KEYS / 4), share_left(&keyspace, KEYS * 3 / 4..KEYS));
    assert!(oldest < 0.03 && youngest > 0.97, "{oldest} {youngest}");
}

/// Few new keys come and go among many that are used all the time, so most that are looked at are not to go.
#[test]
fn lru_keeps_many_in_use_from_few_that_come_and_go() {
    const IN_USE: usize = 10_000;
    let keyspace = Keyspace::new(None);
    (0..IN_USE).for_each(|n| insert(&keyspace, 0, &format!("k:{n}"), None));
    for second in 1..=60 {
        keyspace.set_now(second);
        // Each is used every third second; a new one gets about ten seconds old.
        for n in (0..IN_USE).skip(second as usize % 3).step_by(3) {
            let _used = keyspace.read(0, format!("k:{n}").as_bytes(), |entry| entry.is_some());
        }
        for n in 0..100 {
            insert(&keyspace, 0, &format!("new:{second}:{n}"), None);
            if second > 10 {
                evict(&keyspace, Policy::AllKeysLru, 1);
            }
        }
    }
    let left = share_left(&keyspace, 0..IN_USE);
    assert!(left >= 0.95, "{left}");
}

#[test]
fn lfu_keeps_what_is_used_often() {
    for policy in [Policy::AllKeysLfu, Policy::VolatileLfu] {
        let keyspace = half_with_lives();
        keyspace.count_uses(true);
        // The lower half is used a hundred times (the count is one of probability: of ten uses it may see one), then the
        // upper half once: lately, but seldom.
        for _ in 0..100 {
            (0..KEYS / 2).for_each(|n| use_key(&keyspace, &format!("k:{n}")));
        }
        keyspace.set_now(30);
        (KEYS / 2..KEYS).for_each(|n| use_key(&keyspace, &format!("k:{n}")));
        evict(&keyspace, policy, KEYS / 5);
        let often = share_left(&keyspace, (1..KEYS / 2).step_by(2));
        assert!(often >= 0.97, "{policy:?}: {often}");
    }
}

#[test]
fn volatile_ttl_takes_the_soonest() {
    let keyspace = half_with_lives();
    evict(&keyspace, Policy::VolatileTtl, KEYS / 4);
    let later = share_left(&keyspace, (KEYS / 2 + 1..KEYS).step_by(2));
    let last = share_left(&keyspace, (KEYS * 3 / 4 + 1..KEYS).step_by(2));
    assert!(later > 0.98 && last == 1.0, "{later} {last}");
    // What is prolonged is not taken for what it was before.
    for n in (KEYS / 2 + 1..KEYS * 3 / 4).step_by(2) {
        let name = format!("k:{n}");
        let prolonged =
            keyspace.write(0, name.as_bytes(), |cell| cell.change(|entry, _| entry.set_life(Some(2 * FAR))));
        assert!(prolonged.is_ok());
    }
    let sooner = keyspace.lives(0) / 3;
    evict(&keyspace, Policy::VolatileTtl, sooner);
    let prolonged = share_left(&keyspace, (KEYS / 2 + 1..KEYS * 3 / 4).step_by(2));
    assert!(prolonged > 0.98, "{prolonged}");
}

#[test]
fn random_takes_from_everywhere() {
    let keyspace = half_with_lives();
    evict(&keyspace, Policy::AllKeysRandom, KEYS / 2);
    for quarter in 0..4 {
        // 2,500 expected of each 5,000, standard deviation 35: a band of ten.
        let left = share_left(&keyspace, quarter * KEYS / 4..(quarter + 1) * KEYS / 4);
        assert!((0.43..0.57).contains(&left), "{quarter}: {left}");
    }
}

#[test]
fn volatile_policies_take_all_with_a_life_and_no_other() {
    for policy in [Policy::VolatileLru, Policy::VolatileLfu, Policy::VolatileRandom, Policy::VolatileTtl] {
        let keyspace = half_with_lives();
        keyspace.count_uses(policy.goes_by_uses());
        evict(&keyspace, policy, KEYS / 2);
        assert!(keyspace.evict(policy) == 0, "{policy:?}: no key is left that may go");
        assert_eq!((keyspace.len(0), keyspace.lives(0)), (KEYS / 2, 0), "{policy:?}");
        assert_eq!(share_left(&keyspace, (0..KEYS).step_by(2)), 1.0, "{policy:?}");
    }
}

/// As long as there is a key that may go, one goes, however few there are of them.
#[test]
fn few_among_many_are_found() {
    let keyspace = Keyspace::new(None);
    (0..KEYS * 10).for_each(|n| insert(&keyspace, 0, &format!("k:{n}"), None));
    for policy in [Policy::VolatileLru, Policy::VolatileLfu, Policy::VolatileRandom, Policy::VolatileTtl] {
        (0..3).for_each(|n| insert(&keyspace, 0, &format!("few:{n}"), Some(FAR)));
        evict(&keyspace, policy, 3);
        assert_eq!(keyspace.evict(policy), 0);
    }
    assert_eq!(keyspace.len(0), KEYS * 10);
}

#[test]
fn the_last_keys_are_found_in_every_database() {
    let keyspace = Keyspace::new(None);
    for policy in Policy::ALL.into_iter().skip(1) {
        (0..3).for_each(|n| insert(&keyspace, 5 * n, &format!("k:{n}"), Some(FAR)));
        evict(&keyspace, policy, 3);
        assert!(keyspace.evict(policy) == 0, "{policy:?}");
        assert_eq!(keyspace.entry_bytes(), 0);
    }
}

/// What a long command has cannot go, and does not keep others from going.
#[test]
fn keys_that_are_away_are_passed_over() {
    let keyspace = std::sync::Arc::new(Keyspace::new(None));
    for policy in Policy::ALL.into_iter().skip(1) {
        // Those that are away were not used for longest, least often, and end soonest.
        (0..50).for_each(|n| insert(&keyspace, 0, &format!("away:{n}"), Some(FAR)));
        keyspace.set_now(keyspace.stamp_now() + 100);
        (0..50).for_each(|n| insert(&keyspace, 0, &format!("free:{n}"), Some(FAR + 1)));
        let away: Vec<_> = (0..50)
            .map(|n| keyspace.latch(0, format!("away:{n}").as_bytes()).ok().flatten().expect("it is there"))
            .collect();
        evict(&keyspace, policy, 50);
        assert!(keyspace.evict(policy) == 0, "{policy:?}");
        assert_eq!(keyspace.len(0), 50);
        drop(away);
        evict(&keyspace, policy, 50);
        assert_eq!((keyspace.len(0), keyspace.entry_bytes()), (0, 0));
    }
}

// The limit

/// Sets the limit to so many bytes above what is in use.
fn limit_above_use(client: &mut Client, bytes: u64, policy: &str) -> u64 {
    let limit = settled(client) + bytes;
    assert!(client.cmd(&format!("CONFIG SET maxmemory {limit} maxmemory-policy {policy}")) == "OK");
    limit
}

/// Four clients make filters of mixed sizes until each has been refused, or has written so many bytes. Returns whether one
/// was refused.
fn write_from_four(server: &Server, limit: u64, option: &str) -> bool {
    const CAPACITIES: [u64; 6] = [10, 100, 100, 1_000, 10_000, 100_000];
    // Three times the limit.
    const KEYS_EACH: u64 = 3_000;
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4)
            .map(|id| {
                scope.spawn(move || {
                    let (mut client, mut random, mut refused) = (server.client(), Random::new(id), 0);
                    for n in 0..KEYS_EACH {
                        let capacity = random.pick(&CAPACITIES);
                        match client.cmd(&format!("BF.RESERVE w{id}:{n} 0.01 {capacity}{option}")) {
                            Value::Simple(_) => assert!(client.cmd(&format!("BF.EXISTS w{id}:{n} x")) == 0),
                            Value::Error(error) => {
                                assert_eq!(error, OOM);
                                refused += 1;
                            }
                            other => panic!("{other:?}"),
                        }
                        if n % 50 == 0 {
                            // One filter and some buffers more than the limit at the most.
                            let used = figure(&mut client, "used_memory");
                            assert!(used < limit + 2 * MB, "{used} of {limit}");
                        }
                        if refused >= 20 {
                            break;
                        }
                    }
                    refused > 0
                })
            })
            .collect();
        writers.into_iter().map(|writer| writer.join().expect("a writer")).fold(false, |any, refused| any | refused)
    })
}

#[test]
fn without_eviction_writes_are_refused_and_the_rest_works() {
    let server = Server::start();
    let mut client = server.client();
    assert!(client.cmd("BF.ADD before x") == 1);
    let limit = limit_above_use(&mut client, 15 * MB, "noeviction");
    let resident = server.resident_bytes();
    assert!(write_from_four(&server, limit, ""));
    assert!(server.resident_bytes() < resident + 15 * MB * 6 / 5 + 4 * MB);
    // So little is left that small filters are refused as well.
    let mut n = 0;
    while client.cmd(&format!("BF.RESERVE fill:{n} 0.01 2000")) == "OK" {
        n += 1;
    }
    // Far above the limit nothing that may need memory is begun.
    assert!(client.cmd(&format!("CONFIG SET maxmemory {}", limit / 2)) == "OK");
    for line in
        ["BF.RESERVE k 0.01 10", "BF.ADD before y", "BF.MADD before y z", "BF.INSERT before ITEMS y", "COPY before b"]
    {
        assert_eq!(client.cmd(line).error(), OOM, "{line}");
    }
    assert!(client.cmd("PEXPIRE before 100000000") == 1 && client.cmd("RENAME before other") == "OK");
    assert!(client.cmd("RENAME other before") == "OK" && client.cmd("PERSIST before") == 1);
    assert!(client.cmd(&format!("CONFIG SET maxmemory {limit}")) == "OK");
    assert!(client.cmd("BF.EXISTS before x") == 1 && client.cmd("EXISTS before") == 1);
    assert_eq!((figure(&mut client, "maxmemory"), figure(&mut client, "evicted_keys")), (limit, 0));
    for n in 0..n {
        assert!(client.cmd(&format!("DEL fill:{n}")) == 1);
    }
    assert!(client.cmd("FLUSHALL") == "OK");
    wait_until("room", || client.cmd("BF.RESERVE again 0.01 1000") == "OK");
}

#[test]
fn what_would_pass_the_limit_is_refused_before_it_is_allocated() {
    let server = Server::start();
    let mut client = server.client();
    assert!(client.cmd("BF.RESERVE grows 0.01 1000 EXPANSION 32768") == "OK");
    let limit = limit_above_use(&mut client, 15 * MB, "noeviction");
    for policy in ["noeviction", "allkeys-lru"] {
        assert!(client.cmd(&format!("CONFIG SET maxmemory-policy {policy}")) == "OK");
        for line in [
            "BF.RESERVE large 0.01 100000000",
            "BF.INSERT large CAPACITY 100000000 ITEMS a",
            "BF.RESERVE large 0.01 100000000 EX 100",
        ] {
            assert_eq!(client.cmd(line).error(), OOM, "{line}");
        }
        assert!(client.cmd("EXISTS large") == 0);
        // Growth: an element of the reply for each item that found no place.
        let items: Vec<String> = (0..1_100).map(|n| format!("i{n}")).collect();
        let reply = client.cmd(&format!("BF.MADD grows {}", items.join(" ")));
        let refused =
            reply.array().iter().filter(|element| matches!(element, Value::Error(text) if text == OOM)).count();
        assert!(
            refused > 0
                && reply.array().iter().all(|element| matches!(element, Value::Int(_)) || element.error() == OOM)
        );
        assert!(client.cmd("BF.INFO grows FILTERS").array()[0] == 1);
        assert!(client.cmd("BF.EXISTS grows i0") == 1);
        assert_eq!((figure(&mut client, "evicted_keys"), figure(&mut client, "used_memory_mapped")), (0, 0));
        assert!(figure(&mut client, "used_memory") < limit);
    }
    assert!(client.cmd("CONFIG SET maxmemory 0") == "OK");
    assert!(client.cmd("BF.RESERVE large 0.01 100000000") == "OK");
}

#[test]
fn under_every_policy_the_limit_holds_and_writing_goes_on() {
    for policy in [
        "allkeys-lru",
        "allkeys-lfu",
        "allkeys-random",
        "volatile-lru",
        "volatile-lfu",
        "volatile-random",
        "volatile-ttl",
    ] {
        let volatile = policy.starts_with("volatile");
        let server = Server::start();
        let mut client = server.client();
        if volatile {
            all_answer(&mut client, (0..500).map(|n| words(&format!("BF.RESERVE stays:{n} 0.01 1000"))), &ok());
        }
        let limit = limit_above_use(&mut client, 15 * MB, policy);
        let resident = server.resident_bytes();
        let refused = write_from_four(&server, limit, if volatile { " EX 10000" } else { "" });
        assert!(!refused, "{policy}: {}", client.cmd("INFO memory").text());
        assert!(server.resident_bytes() < resident + 15 * MB * 6 / 5 + 4 * MB, "{policy}");
        assert!(figure(&mut client, "evicted_keys") > 1_000, "{policy}");
        if volatile {
            let left: HashSet<usize> = (0..500).filter(|n| client.cmd(&format!("EXISTS stays:{n}")) == 1).collect();
            assert_eq!(left.len(), 500, "{policy}");
        }
    }
}

/// A large filter, made or grown, loaded or copied, in a transaction or not, pushes out as many as it needs, and no more.
#[test]
fn large_filters_push_others_out() {
    let server = Server::start();
    let mut client = server.client();
    let limit = limit_above_use(&mut client, 40 * MB, "allkeys-lru");
    // 6 MB each: six fit.
    for n in 0..20 {
        assert!(client.cmd(&format!("BF.RESERVE large:{n} 0.01 5000000")) == "OK", "{n}");
        assert!(figure(&mut client, "used_memory") <= limit + MB);
    }
    let there: Vec<i64> = (0..20).map(|n| client.cmd(&format!("EXISTS large:{n}")).int()).collect();
    assert_eq!((client.cmd("DBSIZE").int(), there[19]), (6, 1), "{there:?} {}", client.cmd("INFO memory").text());
    assert!(client.cmd("COPY large:19 copy") == 1 && client.cmd("DBSIZE") == 6);
    let Value::Bulk(payload) = client.cmd("DUMP copy") else { panic!("a payload") };
    assert!(client.call(&[&b"RESTORE"[..], b"restored", b"0", &payload]) == "OK");
    // The payload on its way counts too: one or two more go for it.
    assert!((4..=6).contains(&client.cmd("DBSIZE").int()) && client.cmd("EXISTS restored") == 1);
    assert!(client.cmd("MULTI") == "OK");
    (0..2).for_each(|n| assert!(client.cmd(&format!("BF.RESERVE both:{n} 0.01 5000000")) == "QUEUED"));
    assert_eq!(client.cmd("EXEC"), Value::Array(vec![ok(), ok()]));
    let size = client.cmd("DBSIZE").int();
    assert!((4..=6).contains(&size) && client.cmd("EXISTS both:0 both:1") == 2);
    // Under the locks of all keys none can go: the large one is refused, and the rest goes on.
    assert!(client.cmd("MULTI") == "OK");
    for line in ["RANDOMKEY", "BF.RESERVE whole:0 0.01 5000000", "BF.RESERVE whole:1 0.01 5000000", "BF.ADD both:0 x"] {
        assert!(client.cmd(line) == "QUEUED");
    }
    let replies = client.cmd("EXEC");
    assert!(replies.array()[2].error() == OOM && replies.array()[3] == 1, "{replies:?}");
    assert!(client.cmd("DEL whole:0").int() <= 1);
    let size = client.cmd("DBSIZE").int();
    // No room can be made for this one, and nobody goes in vain.
    assert_eq!(client.cmd("BF.RESERVE giant 0.01 50000000").error(), OOM);
    assert!(client.cmd("DBSIZE") == size);
    assert!(figure(&mut client, "used_memory") <= limit);
}

#[test]
fn growth_pushes_others_out() {
    let server = Server::start();
    let mut client = server.client();
    // One that grows by the way of few items, and one by that of many.
    for (many, name) in ["few", "many"].into_iter().enumerate() {
        assert!(client.cmd(&format!("BF.RESERVE {name} 0.01 1000 EXPANSION 5000")) == "OK");
        // What grows is not to go itself.
        let limit = limit_above_use(&mut client, 12 * MB, "volatile-lru");
        for n in 0..3 {
            assert!(client.cmd(&format!("BF.RESERVE other:{n} 0.01 3000000 EX 10000")) == "OK");
        }
        let count = [1_100, 100_000][many];
        let items: Vec<String> = (0..count).map(|n| format!("i{n}")).collect();
        let reply = client.cmd(&format!("BF.MADD {name} {}", items.join(" ")));
        let new = reply.array().iter().filter(|answer| **answer == 1).count();
        assert!(reply.array().iter().all(|answer| matches!(answer, Value::Int(_))) && new > count * 98 / 100);
        assert!(client.cmd(&format!("BF.INFO {name} FILTERS")).array()[0] == 2);
        assert!(figure(&mut client, "used_memory") <= limit + MB && figure(&mut client, "evicted_keys") > 0);
        assert!(client.cmd("FLUSHALL") == "OK" && client.cmd("CONFIG SET maxmemory 0") == "OK");
    }
}

/// A transaction that has begun under locks waits for room with its keys taken out: all its answers are given, once, in order.
#[test]
fn a_transaction_waits_for_room_in_the_middle() {
    let server = Server::start();
    let mut client = server.client();
    for growth in ["BF.ADD grows last", "BF.MADD grows last i0 more"] {
        assert!(client.cmd("BF.RESERVE grows 0.01 1000 EXPANSION 5000") == "OK");
        let fill: Vec<String> = (0..2_000).map(|n| format!("i{n}")).collect();
        limit_above_use(&mut client, 9 * MB, "volatile-lru");
        for n in 0..3 {
            assert!(client.cmd(&format!("BF.RESERVE other:{n} 0.01 2200000 EX 10000")) == "OK");
        }
        assert!(client.cmd("MULTI") == "OK");
        let lines = [
            "BF.ADD first x".into(),
            format!("BF.MADD grows {}", fill[..990].join(" ")),
            growth.into(),
            format!("BF.MADD grows {}", fill[990..].join(" ")),
            "BF.INFO grows FILTERS".to_owned(),
            "BF.CARD first".into(),
        ];
        for line in lines {
            assert!(client.cmd(&line) == "QUEUED");
        }
        let replies = client.cmd("EXEC");
        let [first, fill_a, _, fill_b, filters, card] = replies.array() else { panic!("{replies:?}") };
        assert!(*first == 1 && *card == 1 && filters.array()[0] == 2);
        assert!(fill_a.array().len() == 990 && fill_b.array().len() == 1_010);
        let new = |reply: &Value| reply.array().iter().filter(|answer| **answer == 1).count();
        assert!(new(fill_a) + new(fill_b) > 1_950, "{} {}", new(fill_a), new(fill_b));
        for n in 0..2_000 {
            assert!(client.cmd(&format!("BF.EXISTS grows i{n}")) == 1);
        }
        assert!(figure(&mut client, "evicted_keys") > 0);
        assert!(client.cmd("FLUSHALL") == "OK" && client.cmd("CONFIG SET maxmemory 0") == "OK");
    }
}

#[test]
fn a_lower_limit_takes_effect_without_a_write() {
    let server = Server::start();
    let mut client = server.client();
    let reserve = |n: usize| words(&format!("BF.RESERVE k:{n} 0.01 1000"));
    all_answer(&mut client, (0..10_000).map(reserve), &ok());
    let limit = figure(&mut client, "used_memory") - 5 * MB;
    assert!(client.cmd(&format!("CONFIG SET maxmemory {limit} maxmemory-policy allkeys-random")) == "OK");
    wait_until("keys to go", || figure(&mut client, "used_memory") <= limit);
    assert!(figure(&mut client, "evicted_keys") > 1_000);
}

/// What was used and is empty again takes nothing, so that a limit can be kept by letting keys go.
#[test]
fn empty_databases_take_no_memory() {
    let server = Server::start();
    let mut client = server.client();
    let before = settled(&mut client);
    for db in 0..16 {
        assert!(client.cmd(&format!("SELECT {db}")) == "OK");
        all_answer(&mut client, (0..3_000).map(|n| words(&format!("BF.ADD k{n} x"))), &ONE);
        all_answer(&mut client, (0..3_000).map(|n| words(&format!("DEL k{n}"))), &ONE);
    }
    assert_eq!((figure(&mut client, "used_memory_keys"), figure(&mut client, "used_memory_tables")), (0, 0));
    let limit = before + MB;
    assert!(client.cmd(&format!("CONFIG SET maxmemory {limit} maxmemory-policy allkeys-lru")) == "OK");
    all_answer(&mut client, (0..20_000).map(|n| words(&format!("BF.ADD k{n} x"))), &ONE);
    assert!(client.cmd("DBSIZE").int() > 100);
}

/// A filter that would not fit even alone is refused before any other goes for it, also when it is the growth of one.
#[test]
fn nobody_goes_in_vain() {
    let server = Server::start();
    let mut client = server.client();
    assert!(client.cmd("BF.RESERVE grows 0.01 500000 EXPANSION 16") == "OK");
    pipeline(&mut client, (0..500_000).map(|n| words(&format!("BF.ADD grows i{n}"))), |_| {});
    all_answer(&mut client, (0..2_000).map(|n| words(&format!("BF.RESERVE k:{n} 0.01 1000"))), &ok());
    for policy in ["allkeys-lru", "allkeys-random", "volatile-lru", "volatile-ttl"] {
        limit_above_use(&mut client, MB, policy);
        let limit = figure(&mut client, "maxmemory");
        let capacity = (limit - 100_000) * 8 / 11;
        assert_eq!(client.cmd(&format!("BF.RESERVE whole 0.01 {capacity}")).error(), OOM, "{policy}");
        // Few: a request and its reply count as well.
        let items: Vec<String> = (500_000..502_000).map(|n| format!("i{n}")).collect();
        let reply = client.cmd(&format!("BF.MADD grows {}", items.join(" ")));
        assert!(reply.array().iter().any(|answer| matches!(answer, Value::Error(text) if text == OOM)), "{policy}");
        assert_eq!(client.cmd("BF.INFO grows FILTERS").array()[0], 1, "{policy}");
        assert!(client.cmd("BF.EXISTS grows i0") == 1);
        let left = (client.cmd("DBSIZE").int(), figure(&mut client, "evicted_keys"));
        assert_eq!(left, (2_001, 0), "{policy}, {}", client.cmd("INFO memory").text());
    }
}

/// A copy counts with its source, and keys without a life do not go under `volatile-` policies: what cannot fit costs nobody.
#[test]
fn what_cannot_go_is_not_counted_on() {
    let server = Server::start();
    let mut client = server.client();
    assert!(client.cmd("BF.RESERVE source 0.01 20000000") == "OK");
    all_answer(&mut client, (0..2_000).map(|n| words(&format!("BF.RESERVE k:{n} 0.01 1000"))), &ok());
    all_answer(&mut client, (0..2_000).map(|n| words(&format!("BF.RESERVE e:{n} 0.01 1000 EX 10000"))), &ok());
    limit_above_use(&mut client, 10 * MB, "allkeys-lru");
    assert_eq!(client.cmd("COPY source copy").error(), OOM);
    assert!(client.cmd("MULTI") == "OK" && client.cmd("COPY source copy") == "QUEUED");
    assert_eq!(client.cmd("EXEC").array()[0].error(), OOM);
    assert!(client.cmd("CONFIG SET maxmemory-policy volatile-lru") == "OK");
    assert_eq!(client.cmd("BF.RESERVE large 0.01 20000000").error(), OOM);
    assert!(client.cmd("DBSIZE") == 4_001 && figure(&mut client, "evicted_keys") == 0);
    // Lives that come and go are followed.
    all_answer(&mut client, (0..2_000).map(|n| words(&format!("EXPIRE k:{n} 10000"))), &ONE);
    assert!(client.cmd("EXPIRE source 10000") == 1 && client.cmd("BF.RESERVE large 0.01 20000000") == "OK");
    assert!(client.cmd("EXISTS source") == 0 || client.cmd("DBSIZE").int() < 4_001);
}

/// What waits to be freed is waited for, in transactions too, and never makes a refusal.
#[test]
fn what_was_deleted_makes_room() {
    let server = Server::start();
    let mut client = server.client();
    for policy in ["noeviction", "allkeys-lru"] {
        limit_above_use(&mut client, 70 * MB, policy);
        for delete in ["DEL big", "UNLINK big", "FLUSHDB", "FLUSHALL", "FLUSHALL ASYNC"] {
            for _ in 0..5 {
                assert!(client.cmd("BF.RESERVE big 0.01 40000000") == "OK", "{policy} {delete}");
                for line in ["MULTI", delete, "BF.RESERVE big 0.01 40000000", "EXEC", delete] {
                    let reply = client.cmd(line);
                    assert!(!matches!(reply, Value::Error(_)), "{policy} {delete}: {reply:?}");
                    if let Value::Array(replies) = reply {
                        assert!(replies[1] == "OK", "{policy} {delete}: {replies:?}");
                    }
                }
            }
        }
        assert!(client.cmd("CONFIG SET maxmemory 0") == "OK");
    }
}

/// While an add waits for room its key is its own: it is not renamed in the middle, and what was answered as new is in the filter.
#[test]
fn an_add_that_waits_for_room_is_one_step() {
    let server = Server::start();
    for round in 0..4 {
        let (mut client, mut other) = (server.client(), server.client());
        assert!(client.cmd("BF.RESERVE grows 0.01 1000 EXPANSION 5000") == "OK");
        limit_above_use(&mut client, 9 * MB, "volatile-random");
        all_answer(&mut other, (0..40_000).map(|n| words(&format!("BF.RESERVE o:{n} 0.01 10 EX 10000"))), &ok());
        (0..400).for_each(|n| drop(other.cmd(&format!("BF.RESERVE p:{n} 0.01 10000 EX 10000"))));
        let items: Vec<String> = (0..1_100).map(|n| format!("i{n}")).collect();
        let line = format!("BF.MADD grows {}", items.join(" "));
        client.send(&words(&line));
        let renamed = loop {
            let count = other.cmd("BF.CARD grows");
            // None of them, or all but a few that the filter took for known.
            assert!(count == 0 || count.int() > 1_050, "round {round}: {count:?}");
            if count.int() > 0 || other.cmd("EXISTS grows") == 0 {
                break other.cmd("RENAME grows moved") == "OK";
            }
        };
        let reply = client.read();
        let new: Vec<usize> = (0..1_100).filter(|n| reply.array()[*n] == 1).collect();
        assert!(new.len() > 1_050, "round {round}: {}", new.len());
        if renamed {
            new.iter().for_each(|n| assert!(other.cmd(&format!("BF.EXISTS moved i{n}")) == 1, "round {round}: i{n}"));
        }
        assert!(client.cmd("CONFIG SET maxmemory 0") == "OK" && client.cmd("FLUSHALL") == "OK");
    }
}

/// Copies of small values keep to the limit too.
#[test]
fn copies_keep_to_the_limit() {
    let server = Server::start();
    let mut client = server.client();
    assert!(client.cmd("BF.RESERVE source 0.01 200000") == "OK");
    let limit = limit_above_use(&mut client, 20 * MB, "allkeys-lru");
    all_answer(&mut client, (0..60_000).map(|n| words(&format!("BF.RESERVE k:{n} 0.01 10"))), &ok());
    for n in 0..300 {
        if client.cmd(&format!("COPY source copy:{n}")) == 0 {
            // It has gone itself: keys used within the same second are all alike.
            assert!(client.cmd("BF.RESERVE source 0.01 200000") == "OK", "{n}");
        }
        assert!(figure(&mut client, "used_memory") < limit + 2 * MB);
    }
}

#[test]
fn a_percentage_is_of_the_memory_that_there_is() {
    let server = Server::with(&["--maxmemory", "50%"]);
    let mut client = server.client();
    let half = figure(&mut client, "maxmemory");
    assert!(client.cmd("CONFIG SET maxmemory 100%") == "OK");
    let whole = figure(&mut client, "maxmemory");
    assert!(whole.abs_diff(2 * half) <= 2 && whole <= figure(&mut client, "total_system_memory"));
    assert!(client.cmd("CONFIG SET maxmemory 0%").error().contains("percentage"));
    assert!(client.cmd("CONFIG SET maxmemory 101%").error().contains("percentage"));
    assert_eq!(figure(&mut client, "maxmemory"), whole);
}

/// What was flushed goes back to the system, again and again.
#[test]
fn flushed_memory_goes_back_to_the_system() {
    let server = Server::start();
    let mut client = server.client();
    let mut idle = 0;
    for flush in ["FLUSHALL", "FLUSHALL ASYNC", "FLUSHALL SYNC"] {
        let full = server.resident_bytes();
        let reserve = |n: usize| words(&format!("BF.RESERVE k:{n} 0.01 {}", [10, 100, 1_000, 5_000][n % 4]));
        all_answer(&mut client, (0..30_000).map(reserve), &ok());
        assert!(server.resident_bytes() > full + 30 * MB);
        assert!(client.cmd(flush) == "OK");
        // The first round tells what the server holds for itself once it has worked.
        let least = |bytes: u64| if idle == 0 { full + 12 * MB } else { bytes };
        wait_until("the memory to go back", || server.resident_bytes() < least(idle + 4 * MB));
        idle = idle.max(server.resident_bytes());
    }
}

/// A life costs a key at most 16 bytes, as the system sees it.
#[test]
fn what_a_life_costs() {
    const KEYS: u64 = 300_000;
    let bytes_of = |option: &str| {
        let server = Server::start();
        let mut client = server.client();
        let before = (server.resident_bytes(), settled(&mut client));
        let reserve = |n: u64| words(&format!("BF.RESERVE u:{n} 0.01 10{option}"));
        all_answer(&mut client, (0..KEYS).map(reserve), &ok());
        let after = (server.resident_bytes(), settled(&mut client));
        (after.0 - before.0, after.1 - before.1)
    };
    let (without, with) = (bytes_of(""), bytes_of(" EX 100000"));
    // The buffers of either load come and go: a megabyte.
    assert!(with.0 <= without.0 + 16 * KEYS + MB, "resident: {without:?} {with:?}");
    assert!(with.1 <= without.1 + 16 * KEYS, "used_memory: {without:?} {with:?}");
}
