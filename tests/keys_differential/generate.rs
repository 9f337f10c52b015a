//! Random commands on keys: their lives, transactions, moves; sensible, at an edge, or wrong.

use super::frames::{self, Payload};
use crate::support::Random;

/// A command's words.
pub type Words = Vec<Vec<u8>>;

/// One command as each server is sent it.
#[derive(Clone)]
pub struct Command {
    /// For SeenDB.
    pub ours: Words,
    /// For the peer: mostly the same.
    pub theirs: Words,
    /// What to change in the peer's error: a part of the text, and what stands there in ours.
    pub text: Option<(String, String)>,
    /// The rule by which the two differ.
    pub rule: Option<&'static str>,
}

impl Command {
    fn same(words: Words) -> Command {
        Command { theirs: words.clone(), ours: words, text: None, rule: None }
    }

    /// The command's name in capitals.
    pub fn name(&self) -> String {
        String::from_utf8_lossy(&self.ours[0]).to_ascii_uppercase()
    }
}

/// The keys: few, so that connections meet; two of them awkward.
pub const KEYS: [&[u8]; 7] = [b"a", b"b", b"c", b"d", b"e", b"", b"bin\x00\r\n\xff"];
/// A key that is never made.
const NO_KEY: &[u8] = b"nosuch";

/// The latest life that can be kept, in milliseconds since 1970.
pub const LATEST_LIFE: i64 = (1 << 48) - 1;
/// Moments far ahead, in milliseconds since 1970. A life that is one of them, or such a number of seconds, was given as a
/// moment, so that both servers must tell it exactly.
pub const MOMENTS: [i64; 7] = [
    4_102_444_800_123,
    5_000_000_000_777,
    7_258_118_400_001,
    9_999_999_999_500,
    LATEST_LIFE,
    1 << 47,
    (1 << 31) * 1000,
];

const EDGES: [i64; 20] = [
    0,
    -1,
    -100,
    1 << 31,
    1 << 32,
    -(1 << 31) - 1,
    LATEST_LIFE,
    LATEST_LIFE + 1,
    LATEST_LIFE / 1000,
    LATEST_LIFE / 1000 + 1,
    i64::MAX,
    i64::MAX - 1,
    i64::MAX / 1000,
    i64::MAX / 1000 + 1,
    i64::MAX / 1000 - 1,
    i64::MIN,
    i64::MIN + 1,
    i64::MIN / 1000,
    i64::MIN / 1000 - 1,
    i64::MIN / 1000 + 1,
];
const NO_INTEGERS: [&str; 14] = [
    "",
    "abc",
    "1.5",
    "+5",
    " 5",
    "5 ",
    "0x10",
    "-0",
    "01",
    "1e3",
    "9223372036854775808",
    "-9223372036854775809",
    "99999999999999999999",
    "5\0",
];

/// Whether a key of this life was given it as a moment.
pub fn is_moment(life: i64) -> bool {
    MOMENTS.iter().any(|moment| life == *moment || life == moment / 1000 * 1000)
        || EDGES.iter().any(|edge| life == *edge || edge.checked_mul(1000) == Some(life))
}

/// As [`is_moment`], for a life in seconds as `EXPIRETIME` rounds it.
pub fn is_rounded_moment(seconds: i64) -> bool {
    let rounded = |life: i64| (life + 500) / 1000;
    is_moment(seconds * 1000)
        || MOMENTS.iter().any(|moment| rounded(*moment) == seconds)
        || rounded(LATEST_LIFE) == seconds
}

/// Makes commands.
pub struct Generator {
    /// For decisions around the commands too.
    pub random: Random,
    payloads: Vec<Payload>,
}

type Maker = fn(&mut Generator) -> Command;

impl Generator {
    /// The same seed gives the same commands, as long as the same payloads are learned.
    pub fn new(seed: u64) -> Generator {
        Generator { random: Random::new(seed), payloads: Vec::new() }
    }

    /// What `DUMP` gave, for `RESTORE`.
    pub fn learn(&mut self, payload: Payload) {
        if self.payloads.len() == 12 {
            let at = self.random.below(12);
            self.payloads.swap_remove(at);
        }
        self.payloads.push(payload);
    }

    /// The next command of a connection, which has said `MULTI` or not.
    pub fn command(&mut self, in_transaction: bool) -> Command {
        const CONTROL: [(usize, Maker); 9] = [
            (6, |g| g.words("MULTI", &[])),
            (3, |g| g.words("EXEC", &[])),
            (1, |g| g.words("DISCARD", &[])),
            (9, |g| g.keys("WATCH")),
            (2, |g| g.words("UNWATCH", &[])),
            (4, Generator::select),
            (1, |g| g.words("RESET", &[])),
            (1, |g| g.words("QUIT", &[])),
            (80, Generator::work),
        ];
        const INSIDE: [(usize, Maker); 9] = [
            (1, |g| g.words("MULTI", &[])),
            (18, |g| g.words("EXEC", &[])),
            (3, |g| g.words("DISCARD", &[])),
            (1, |g| g.keys("WATCH")),
            (1, |g| g.words("UNWATCH", &[])),
            (4, Generator::select),
            (1, |g| g.words("RESET", &[])),
            (1, |g| g.words("QUIT", &[])),
            (80, Generator::work),
        ];
        let make = *self.random.weighted(if in_transaction { &INSIDE } else { &CONTROL });
        let mut command = make(self);
        if self.random.percent(8) {
            let changed = self.change_case(&command.ours[0]);
            if command.ours[0] == command.theirs[0] {
                command.theirs[0].clone_from(&changed);
            }
            command.ours[0] = changed;
        }
        command
    }

    fn work(&mut self) -> Command {
        const MAKERS: [(usize, Maker); 29] = [
            (14, Generator::reserve),
            (22, |g| g.add("BF.ADD", 1)),
            (8, |g| g.add("BF.MADD", 6)),
            (5, |g| g.add("BF.EXISTS", 1)),
            (3, |g| g.add("BF.MEXISTS", 6)),
            (3, |g| g.key_only("BF.CARD")),
            (3, |g| g.key_only("BF.INFO")),
            (2, |g| g.key_only("BF.DEBUG")),
            (40, Generator::expire),
            (8, |g| g.key_only("TTL")),
            (8, |g| g.key_only("PTTL")),
            (8, |g| g.key_only("EXPIRETIME")),
            (8, |g| g.key_only("PEXPIRETIME")),
            (7, |g| g.key_only("PERSIST")),
            (9, |g| g.two_keys("RENAME")),
            (9, |g| g.two_keys("RENAMENX")),
            (10, Generator::copy),
            (8, |g| g.move_key()),
            (4, |g| g.swap()),
            (12, |g| g.key_only("DUMP")),
            (18, Generator::restore),
            (5, |g| g.keys("DEL")),
            (3, |g| g.keys("UNLINK")),
            (4, |g| g.key_only("TYPE")),
            (7, |g| g.existing()),
            (4, |g| g.words("DBSIZE", &[])),
            (5, |g| g.listing()),
            (2, Generator::flush),
            (7, Generator::wrong),
        ];
        let make = *self.random.weighted(&MAKERS);
        make(self)
    }

    fn words(&mut self, name: &str, rest: &[&[u8]]) -> Command {
        let mut words = vec![name.as_bytes().to_vec()];
        words.extend(rest.iter().map(|word| word.to_vec()));
        Command::same(words)
    }

    fn key(&mut self) -> Vec<u8> {
        if self.random.percent(4) { NO_KEY.to_vec() } else { self.random.pick(&KEYS).to_vec() }
    }

    /// A key that a command may make.
    fn new_key(&mut self) -> Vec<u8> {
        self.random.pick(&KEYS).to_vec()
    }

    fn key_only(&mut self, name: &str) -> Command {
        let key = self.key();
        self.words(name, &[&key])
    }

    fn keys(&mut self, name: &str) -> Command {
        let mut command = self.key_only(name);
        while self.random.percent(30) {
            let key = self.key();
            command.ours.push(key.clone());
            command.theirs.push(key);
        }
        command
    }

    fn two_keys(&mut self, name: &str) -> Command {
        let (from, to) = (self.key(), self.new_key());
        self.words(name, &[&from, &to])
    }

    fn existing(&mut self) -> Command {
        let name = if self.random.percent(50) { "EXISTS" } else { "TOUCH" };
        self.keys(name)
    }

    fn change_case(&mut self, word: &[u8]) -> Vec<u8> {
        word.iter().map(|byte| if self.random.percent(50) { byte.to_ascii_lowercase() } else { *byte }).collect()
    }

    fn reserve(&mut self) -> Command {
        let key = self.new_key();
        let (rate, capacity) = (*self.random.pick(&["0.01", "0.1", "0.001"]), *self.random.pick(&["3", "10", "100"]));
        let mut command = self.words("BF.RESERVE", &[&key, rate.as_bytes(), capacity.as_bytes()]);
        if self.random.percent(20) {
            command = self.words("BF.RESERVE", &[&key, rate.as_bytes(), capacity.as_bytes(), b"NONSCALING"]);
        }
        command
    }

    fn add(&mut self, name: &str, most: usize) -> Command {
        let key = self.new_key();
        let mut command = self.words(name, &[&key]);
        for _ in 0..=self.random.below(most) {
            let item = format!("item:{}", self.random.below(40)).into_bytes();
            command.ours.push(item.clone());
            command.theirs.push(item);
        }
        command
    }

    /// Seconds from now that are far from those of every other command, and none soon.
    fn seconds_ahead(&mut self) -> i64 {
        100_000 + 60 * self.random.below(90_000_000) as i64
    }

    fn no_integer(&mut self) -> Vec<u8> {
        self.random.pick(&NO_INTEGERS).as_bytes().to_vec()
    }

    fn expire(&mut self) -> Command {
        let (relative, seconds) = (self.random.percent(50), self.random.percent(50));
        let name = match (relative, seconds) {
            (true, true) => "EXPIRE",
            (true, false) => "PEXPIRE",
            (false, true) => "EXPIREAT",
            (false, false) => "PEXPIREAT",
        };
        let unit = if seconds { 1000 } else { 1 };
        let value = match self.random.below(20) {
            0 => None,
            1..=4 => match *self.random.pick(&EDGES) {
                // Two equal lives a moment apart would make GT and LT a matter of luck.
                edge @ (0x8000_0000 | 0x1_0000_0000) if relative => Some(edge + self.seconds_ahead()),
                edge => Some(edge),
            },
            5 => Some(*self.random.pick(&[1, 1000]) * -i64::from(relative) + i64::from(!relative)),
            _ if relative => Some(self.seconds_ahead() * 1000 / unit + self.random.below(1000) as i64 % unit.max(2)),
            _ => Some(*self.random.pick(&MOMENTS) / unit),
        };
        let mut rest =
            vec![self.key(), value.map_or_else(|| self.no_integer(), |value| value.to_string().into_bytes())];
        let count = *self.random.weighted(&[(40, 0), (50, 1), (12, 2), (3, 3)]);
        for _ in 0..count {
            let word = *self.random.pick(&["NX", "XX", "GT", "LT", "NX", "XX", "GT", "LT", "nx", "Gt", "FOO", ""]);
            rest.push(word.as_bytes().to_vec());
        }
        let rest: Vec<&[u8]> = rest.iter().map(Vec::as_slice).collect();
        let mut command = self.words(name, &rest);
        if value.is_some_and(|value| is_too_late(value, relative, seconds)) {
            // The peer is given a moment that it refuses as well.
            command.theirs[0] = b"EXPIREAT".to_vec();
            command.theirs[2] = i64::MAX.to_string().into_bytes();
            command.text = Some(("'expireat'".into(), format!("'{}'", name.to_lowercase())));
            command.rule = Some("latest-life");
        }
        command
    }

    fn database(&mut self) -> Vec<u8> {
        match self.random.below(20) {
            0 => self.no_integer(),
            1 => self.random.pick(&["16", "-1", "2147483648", "-2147483649", "4294967296", "15"]).as_bytes().to_vec(),
            _ => self.random.below(3).to_string().into_bytes(),
        }
    }

    fn select(&mut self) -> Command {
        let db = self.database();
        self.words("SELECT", &[&db])
    }

    fn move_key(&mut self) -> Command {
        let (key, db) = (self.key(), self.database());
        self.words("MOVE", &[&key, &db])
    }

    fn swap(&mut self) -> Command {
        let (one, other) = (self.database(), self.database());
        self.words("SWAPDB", &[&one, &other])
    }

    fn copy(&mut self) -> Command {
        let (from, to) = (self.key(), self.new_key());
        let mut rest = vec![from, to];
        for _ in 0..*self.random.weighted(&[(30, 0), (50, 1), (20, 2), (4, 3)]) {
            match self.random.below(12) {
                0..=4 => rest.push(b"REPLACE".to_vec()),
                5..=9 => rest.extend([b"DB".to_vec(), self.database()]),
                10 => rest.push(b"DB".to_vec()),
                _ => rest.push(b"FOO".to_vec()),
            }
        }
        let rest: Vec<&[u8]> = rest.iter().map(Vec::as_slice).collect();
        self.words("COPY", &rest)
    }

    fn restore(&mut self) -> Command {
        let sound = if self.random.percent(75) { frames::sound(&mut self.random, &self.payloads) } else { None };
        let (ours, theirs, mut rule) = match sound {
            Some(given) => given,
            None => frames::unsound(&mut self.random, &self.payloads),
        };
        let absolute = self.random.percent(40);
        let mut late = false;
        let life = match self.random.below(16) {
            0..=3 => b"0".to_vec(),
            4 => self.no_integer(),
            5..=6 => {
                let value = *self.random.pick(&EDGES);
                late = value.saturating_add(if absolute { 0 } else { now() }) > LATEST_LIFE;
                value.to_string().into_bytes()
            }
            7 if absolute => b"1".to_vec(),
            _ if absolute => self.random.pick(&MOMENTS).to_string().into_bytes(),
            _ => (self.seconds_ahead() * 1000).to_string().into_bytes(),
        };
        let mut options: Words = Vec::new();
        if absolute {
            options.push(b"ABSTTL".to_vec());
        }
        if self.random.percent(60) {
            options.push(b"REPLACE".to_vec());
        }
        for _ in 0..*self.random.weighted(&[(70, 0), (20, 1), (10, 2)]) {
            match self.random.below(9) {
                0..=3 => options.extend([b"IDLETIME".to_vec(), self.count()]),
                4..=6 => options.extend([b"FREQ".to_vec(), self.count()]),
                7 => options.push(self.random.pick(&["IDLETIME", "FREQ"]).as_bytes().to_vec()),
                _ => options.push(b"FOO".to_vec()),
            }
        }
        if self.random.percent(50) {
            options.reverse();
        }
        let key = self.new_key();
        let with = |life: &[u8], payload: Vec<u8>| {
            let mut words = vec![b"RESTORE".to_vec(), key.clone(), life.to_vec(), payload];
            words.extend(options.iter().cloned());
            words
        };
        let mut text = None;
        let their_life: &[u8] = if late { b"-1" } else { &life };
        if late {
            rule = Some("latest-life");
            text = Some(("Invalid TTL value, must be >= 0".into(), "invalid expire time in 'restore' command".into()));
        }
        Command { ours: with(&life, ours), theirs: with(their_life, theirs), text, rule }
    }

    fn count(&mut self) -> Vec<u8> {
        match self.random.below(6) {
            0 => self.no_integer(),
            1 => self.random.pick(&["-1", "256", "4294967296", "9223372036854775807"]).as_bytes().to_vec(),
            _ => self.random.below(256).to_string().into_bytes(),
        }
    }

    fn listing(&mut self) -> Command {
        match self.random.below(8) {
            0 => self.words("KEYS", &[b"*"]),
            1 => self.words("KEYS", &[b"[ab]"]),
            2 => self.words("RANDOMKEY", &[]),
            3 => self.words("SCAN", &[b"0", b"COUNT", b"1000"]),
            4 => self.words("SCAN", &[b"0", b"MATCH", b"[a-c]", b"count", b"1000", b"TYPE", b"MBbloom--"]),
            5 => self.words("SCAN", &[b"0", b"TYPE", b"string", b"COUNT", b"1000"]),
            6 => {
                let option = *self.random.pick(&["MATCH", "COUNT", "TYPE", "FOO"]);
                self.words("SCAN", &[b"0", option.as_bytes()])
            }
            _ => {
                let count = self.no_integer();
                self.words("SCAN", &[b"0", b"COUNT", &count])
            }
        }
    }

    fn flush(&mut self) -> Command {
        let name = if self.random.percent(75) { "FLUSHDB" } else { "FLUSHALL" };
        match self.random.below(6) {
            0 => self.words(name, &[b"FOO"]),
            1 => self.words(name, &[b"ASYNC", b"SYNC"]),
            2 => self.words(name, &[b"ASYNC"]),
            3 => self.words(name, &[b"sync"]),
            _ => self.words(name, &[]),
        }
    }

    /// Too few words, too many, or no such command.
    fn wrong(&mut self) -> Command {
        const LINES: [&str; 32] = [
            "MULTI x",
            "DISCARD x",
            "WATCH",
            "UNWATCH x",
            "EXPIRE",
            "EXPIRE a",
            "PEXPIRE a",
            "EXPIREAT a",
            "PEXPIREAT a",
            "TTL",
            "TTL a b",
            "PTTL a b",
            "EXPIRETIME",
            "PEXPIRETIME a b",
            "PERSIST",
            "PERSIST a b",
            "RENAME a",
            "RENAME a b c",
            "RENAMENX a",
            "COPY a",
            "MOVE a",
            "MOVE a 1 2",
            "SWAPDB 1",
            "SWAPDB 1 2 3",
            "DUMP",
            "DUMP a b",
            "RESTORE a 0",
            "DBSIZE x",
            "RANDOMKEY x",
            "SELECT",
            "NOSUCH",
            "NOSUCH a b",
        ];
        let line = *self.random.pick(&LINES);
        Command::same(line.split(' ').map(|word| word.as_bytes().to_vec()).collect())
    }
}

/// Whether this is a life that Redis can keep and SeenDB can not.
fn is_too_late(value: i64, relative: bool, seconds: bool) -> bool {
    let at = if seconds { value.checked_mul(1000) } else { Some(value) };
    let at = at.and_then(|at| at.checked_add(if relative { now() } else { 0 }));
    at.is_some_and(|at| at > LATEST_LIFE)
}

/// Milliseconds since 1970.
fn now() -> i64 {
    std::time::UNIX_EPOCH.elapsed().expect("a clock after 1970").as_millis() as i64
}
