//! The server that filters come from. It is only read.

use bytes::Bytes;

use super::stop::{End, Stop, concerns_all, is_unknown_command};
use crate::tools::address::Address;
use crate::tools::client::{Client, Reply};
use crate::tools::families::Family;

/// `TYPE` of valkey-bloom's.
const VALKEY_TYPE: &str = "bloomfltr";
/// Keys that the source looks at for one reply of SCAN: some milliseconds of its time.
const SCAN_COUNT: &[u8] = b"1000";
/// A name that nobody uses, to see which commands there are.
pub const PROBE: &[u8] = b"seendb-copy-probe";

/// Whose filters the source has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// RedisBloom's or SeenDB's.
    RedisBloom,
    /// valkey-bloom's, whose bits mean nothing elsewhere.
    Valkey,
}

/// When a key ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// Not by itself.
    Endless,
    /// At this moment, in milliseconds since 1970.
    Until(i64),
}

/// What a key that was listed turned out to be.
#[derive(Clone, Debug, PartialEq)]
pub enum Found<T> {
    /// A filter.
    Here(T),
    /// It is gone, or of another type now.
    Gone,
    /// The source does not give it out.
    Refused(String),
}

impl<T> Found<T> {
    /// The same with another value.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Found<U> {
        match self {
            Found::Here(value) => Found::Here(change(value)),
            Found::Gone => Found::Gone,
            Found::Refused(text) => Found::Refused(text),
        }
    }
}

/// The settings of a filter of valkey-bloom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Items that it has room for, as text.
    pub capacity: String,
    /// Error rate, as it is printed.
    pub error: String,
    /// Factor of growth; `None` if it does not grow.
    pub expansion: Option<String>,
    /// How much stricter each further sub-filter is, if it is said.
    pub tightening: Option<String>,
    /// When it ends.
    pub life: Life,
}

/// The source.
pub struct Source {
    client: Client,
    kind: Kind,
    families: Vec<Family>,
    /// Redis before 7.0 knows what is left of a life, and not when it ends.
    tells_ends: bool,
}

impl Source {
    /// Connects, and sees what filters it has.
    ///
    /// # Errors
    ///
    /// [`Stop`].
    pub fn connect(address: &Address) -> Result<Source, Stop> {
        let client = Client::connect(address).map_err(|error| Stop::Client(End::Source, error))?;
        let mut source = Source { client, kind: Kind::RedisBloom, families: Vec::new(), tells_ends: true };
        for family in Family::ALL {
            if source.knows(&[family.row().scan_dump.as_bytes(), PROBE, b"0"])? {
                source.families.push(family);
            }
        }
        if source.families.is_empty() {
            if !source.knows(&[b"BF.EXISTS", PROBE, b"item"])? {
                return Err(Stop::NoFilters(End::Source));
            }
            source.kind = Kind::Valkey;
            source.families.push(Family::Bf);
        }
        source.tells_ends = source.knows(&[b"PEXPIRETIME", PROBE])?;
        Ok(source)
    }

    /// Whose filters they are.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Families of filters that it can have.
    pub fn families(&self) -> &[Family] {
        &self.families
    }

    fn knows(&mut self, words: &[&[u8]]) -> Result<bool, Stop> {
        match self.client.call(words).map_err(lost)? {
            Reply::Error(text) if concerns_all(&text) => Err(refused(text)),
            Reply::Error(text) => Ok(!is_unknown_command(&text)),
            _ => Ok(true),
        }
    }

    /// Number of keys in the database, of all types.
    ///
    /// # Errors
    ///
    /// [`Stop`].
    pub fn keys(&mut self) -> Result<u64, Stop> {
        let reply = self.client.call(&[b"DBSIZE"]).map_err(lost)?;
        Ok(reply.integer().and_then(|keys| u64::try_from(keys).ok()).unwrap_or(0))
    }

    /// The names of some filters of a family, and the cursor of the next ones: 0 at the end. A name may come twice.
    ///
    /// # Errors
    ///
    /// [`Stop`].
    pub fn scan(&mut self, family: Family, cursor: &Bytes, pattern: Option<&str>) -> Result<(Bytes, Vec<Bytes>), Stop> {
        let kind = match self.kind {
            Kind::RedisBloom => family.row().kind,
            Kind::Valkey => VALKEY_TYPE,
        };
        let mut words: Vec<&[u8]> = vec![b"SCAN", cursor, b"COUNT", SCAN_COUNT, b"TYPE", kind.as_bytes()];
        if let Some(pattern) = pattern {
            words.extend([&b"MATCH"[..], pattern.as_bytes()]);
        }
        match self.client.call(&words).map_err(lost)? {
            Reply::Error(text) => Err(refused(text)),
            reply => parse_scan(&reply).ok_or(Stop::Reply(End::Source, "SCAN")),
        }
    }

    /// About how many bytes each of the filters of a family takes.
    ///
    /// # Errors
    ///
    /// [`Stop`].
    pub fn sizes(&mut self, family: Family, keys: &[Bytes]) -> Result<Vec<Found<u64>>, Stop> {
        let info = family.row().info;
        for key in keys {
            self.client.push(&[info.as_bytes(), key]).map_err(lost)?;
        }
        self.client.flush().map_err(lost)?;
        keys.iter()
            .map(|_| self.read_found(|reply| u64::try_from(reply.field("Size")?.integer()?).ok(), info))
            .collect()
    }

    /// The payload of `DUMP` and the life of each key.
    ///
    /// # Errors
    ///
    /// [`Stop`].
    pub fn dumps(&mut self, keys: &[Bytes]) -> Result<Vec<Found<(Bytes, Life)>>, Stop> {
        for key in keys {
            self.client.push(&[b"DUMP", key]).map_err(lost)?;
            self.push_life(key)?;
        }
        self.client.flush().map_err(lost)?;
        let mut found = Vec::with_capacity(keys.len());
        for _ in keys {
            let dump = self.read_found(|reply| reply.bytes().cloned(), "DUMP")?;
            let life = self.read_life()?;
            found.push(match life {
                Found::Here(life) => dump.map(|payload| (payload, life)),
                _ => Found::Gone,
            });
        }
        Ok(found)
    }

    /// The life of a key.
    ///
    /// # Errors
    ///
    /// [`Stop`].
    pub fn life(&mut self, key: &[u8]) -> Result<Found<Life>, Stop> {
        self.push_life(key)?;
        self.client.flush().map_err(lost)?;
        self.read_life()
    }

    /// What `SCANDUMP` of a family answers: a cursor, for the next call and for the load of what comes with it, and the bytes.
    ///
    /// # Errors
    ///
    /// [`Stop`].
    pub fn piece(&mut self, family: Family, key: &[u8], cursor: i64) -> Result<Found<(i64, Bytes)>, Stop> {
        let scan_dump = family.row().scan_dump;
        self.client.push(&[scan_dump.as_bytes(), key, cursor.to_string().as_bytes()]).map_err(lost)?;
        self.client.flush().map_err(lost)?;
        let pair = |reply: &Reply| match reply.array()? {
            [next, data] => Some((next.integer()?, data.bytes().cloned().unwrap_or_default())),
            _ => None,
        };
        self.read_found(pair, scan_dump)
    }

    /// The profiles of rings: of each its prefix and its settings.
    ///
    /// # Errors
    ///
    /// [`Stop`].
    pub fn profiles(&mut self) -> Result<Vec<(Bytes, Reply)>, Stop> {
        const LIST: &str = "CHAIN.PROFILE LIST";
        let reply = match self.client.call(&[b"CHAIN.PROFILE", b"LIST"]).map_err(lost)? {
            Reply::Error(text) => return Err(refused(text)),
            reply => reply,
        };
        let pairs = reply.array().ok_or(Stop::Reply(End::Source, LIST))?.chunks_exact(2);
        let profiles = pairs.map(|pair| Some((pair[0].bytes()?.clone(), pair[1].clone())));
        profiles.collect::<Option<_>>().ok_or(Stop::Reply(End::Source, LIST))
    }

    /// The settings of filters of valkey-bloom.
    ///
    /// # Errors
    ///
    /// [`Stop`].
    pub fn settings(&mut self, keys: &[Bytes]) -> Result<Vec<Found<Settings>>, Stop> {
        for key in keys {
            self.client.push(&[b"BF.INFO", key]).map_err(lost)?;
            self.push_life(key)?;
        }
        self.client.flush().map_err(lost)?;
        let mut found = Vec::with_capacity(keys.len());
        for _ in keys {
            let settings = self.read_found(parse_settings, "BF.INFO")?;
            found.push(match self.read_life()? {
                Found::Here(life) => settings.map(|settings| Settings { life, ..settings }),
                _ => Found::Gone,
            });
        }
        Ok(found)
    }

    fn read_found<T>(&mut self, parse: impl Fn(&Reply) -> Option<T>, command: &'static str) -> Result<Found<T>, Stop> {
        match self.client.read().map_err(lost)? {
            Reply::Null => Ok(Found::Gone),
            Reply::Error(text) if is_gone(&text) => Ok(Found::Gone),
            Reply::Error(text) if concerns_all(&text) => Err(refused(text)),
            Reply::Error(text) => Ok(Found::Refused(format!("{command} at the source: {text}{}", key_advice(&text)))),
            reply => parse(&reply).map(Found::Here).ok_or(Stop::Reply(End::Source, command)),
        }
    }

    fn push_life(&mut self, key: &[u8]) -> Result<(), Stop> {
        if self.tells_ends {
            return self.client.push(&[b"PEXPIRETIME", key]).map_err(lost);
        }
        self.client.push(&[b"PTTL", key]).map_err(lost)?;
        self.client.push(&[b"TIME"]).map_err(lost)
    }

    fn read_life(&mut self) -> Result<Found<Life>, Stop> {
        let left = self.read_found(Reply::integer, if self.tells_ends { "PEXPIRETIME" } else { "PTTL" })?;
        let now = if self.tells_ends { 0 } else { self.read_now()? };
        Ok(match left {
            Found::Here(-1) => Found::Here(Life::Endless),
            Found::Here(..0) => Found::Gone,
            left => left.map(|left| Life::Until(now.saturating_add(left))),
        })
    }

    /// The source's own clock, in milliseconds.
    fn read_now(&mut self) -> Result<i64, Stop> {
        let reply = self.client.read().map_err(lost)?;
        let part = |at: usize| std::str::from_utf8(reply.array()?.get(at)?.bytes()?).ok()?.parse::<i64>().ok();
        match (part(0), part(1)) {
            (Some(seconds), Some(micros)) => Ok(seconds.saturating_mul(1000).saturating_add(micros / 1000)),
            _ => Err(Stop::Reply(End::Source, "TIME")),
        }
    }
}

fn lost(error: crate::tools::client::ClientError) -> Stop {
    Stop::Client(End::Source, error)
}

fn refused(text: String) -> Stop {
    Stop::Refused { end: End::Source, text }
}

/// What is said about keys that ended, were deleted, or hold something else since they were listed.
fn is_gone(text: &str) -> bool {
    text == "ERR not found" || text.starts_with("WRONGTYPE")
}

/// What to do about an error that concerns one key.
fn key_advice(text: &str) -> &'static str {
    match text.starts_with("ERR filter is being loaded") {
        true => "; load the rest of its dump there, or delete it",
        false => "",
    }
}

fn parse_scan(reply: &Reply) -> Option<(Bytes, Vec<Bytes>)> {
    let [cursor, names] = reply.array()? else { return None };
    let names = names.array()?.iter().map(|name| name.bytes().cloned()).collect::<Option<Vec<_>>>()?;
    Some((cursor.bytes()?.clone(), names))
}

fn parse_settings(reply: &Reply) -> Option<Settings> {
    let text = |name: &str| match reply.field(name)? {
        Reply::Integer(number) => Some(number.to_string()),
        other => std::str::from_utf8(other.bytes()?).ok().map(str::to_owned),
    };
    Some(Settings {
        capacity: text("Capacity")?,
        error: text("Error rate")?,
        expansion: text("Expansion rate").filter(|rate| rate != "0"),
        tightening: text("Tightening ratio"),
        life: Life::Endless,
    })
}
