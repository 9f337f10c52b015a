//! Rings in servers: their dumps in chunks, and what can be seen of all keys, filters and rings alike.

use std::collections::BTreeMap;

use super::{Client, Value};

/// A chunk of a dump and the cursor that came with it.
pub type Chunk = (i64, Vec<u8>);

/// The first word of the commands for keys of which TYPE gives this.
#[track_caller]
pub fn family(kind: &str) -> &'static str {
    match kind {
        "MBbloom--" => "BF",
        "seenCHAIN" => "CHAIN",
        "seenCBF--" => "CBF",
        "seenDLCBF" => "DLCBF",
        _ => panic!("a key of the type {kind}"),
    }
}

/// What a dump in chunks gives.
#[track_caller]
pub fn chunks(client: &mut Client, key: &str) -> Vec<Chunk> {
    let kind = client.cmd(&format!("TYPE {key}")).text();
    let (family, mut cursor, mut chunks) = (family(&kind), 0, Vec::new());
    loop {
        let reply = client.cmd(&format!("{family}.SCANDUMP {key} {cursor}"));
        cursor = reply.array()[0].int();
        if cursor == 0 {
            return chunks;
        }
        chunks.push((cursor, reply.array()[1].bulk().to_vec()));
    }
}

/// Gives a key one of them.
pub fn load(client: &mut Client, key: &str, (cursor, data): &Chunk) -> Value {
    let cursor = cursor.to_string();
    client.call(&[b"CHAIN.LOADCHUNK", key.as_bytes(), cursor.as_bytes(), data])
}

/// Everything of a key that does not depend on when it is looked at.
#[derive(Clone, Debug, PartialEq)]
pub struct Held {
    /// What TYPE gives.
    pub kind: String,
    /// What PEXPIRETIME gives.
    pub ends: i64,
    /// What DUMP gives. Of a ring whose load is not over: how large it will be.
    pub dump: Value,
    /// What CHAIN.SCANDUMP gives of a ring.
    pub chunks: Vec<Chunk>,
    /// What CHAIN.STATS gives but the bytes of memory; BF.INFO of a filter.
    pub figures: Vec<(String, Value)>,
    /// Which of the items that were asked for are in it.
    pub answers: Vec<bool>,
}

impl Held {
    /// Whether it is a ring whose load is not over.
    pub fn is_half_loaded(&self) -> bool {
        matches!(self.dump, Value::Error(_))
    }

    /// A field of its figures, as text.
    pub fn figure(&self, name: &str) -> String {
        let found = self.figures.iter().find(|(field, _)| field == name);
        found.map_or(String::new(), |(_, value)| match value {
            Value::Int(number) => number.to_string(),
            Value::Null => String::new(),
            other => other.text(),
        })
    }
}

/// All keys by database and name.
pub type Contents = BTreeMap<(usize, String), Held>;

/// All keys of the first so many databases, with the answers about these items; the first one is selected afterwards.
#[track_caller]
pub fn contents(client: &mut Client, databases: usize, items: &[String]) -> Contents {
    let mut contents = Contents::new();
    for db in (0..databases).rev() {
        assert!(client.cmd(&format!("SELECT {db}")) == "OK");
        for key in client.cmd("KEYS *").array().iter().map(Value::text) {
            let held = held(client, &key, items);
            contents.insert((db, key), held);
        }
    }
    contents
}

/// One key.
#[track_caller]
pub fn held(client: &mut Client, key: &str, items: &[String]) -> Held {
    let kind = client.cmd(&format!("TYPE {key}")).text();
    let ends = client.cmd(&format!("PEXPIRETIME {key}")).int();
    let dump = client.cmd(&format!("DUMP {key}"));
    let mut held = Held { kind, ends, dump, chunks: Vec::new(), figures: Vec::new(), answers: Vec::new() };
    if let Value::Error(text) = &held.dump {
        // How much of it was taken is forgotten by a restart.
        let total = text.strip_prefix("ERR filter is being loaded: ").and_then(|text| text.split_once(" of "));
        held.dump = Value::Error(total.unwrap_or_else(|| panic!("{key}: {text}")).1.to_owned());
        return held;
    }
    let ring = held.kind == "seenCHAIN";
    if ring {
        held.chunks = chunks(client, key);
        if is_over_soon(client, key) {
            return held;
        }
    }
    let (figures, questions) = if ring { ("CHAIN.STATS", "CHAIN.MEXISTS") } else { ("BF.INFO", "BF.MEXISTS") };
    let reply = client.cmd(&format!("{figures} {key}"));
    let pairs = reply.array().chunks_exact(2).map(|pair| (pair[0].text(), pair[1].clone()));
    held.figures = pairs.filter(|(field, _)| !["bytes", "Size"].contains(&field.as_str())).collect();
    let words: Vec<&str> = [questions, key].into_iter().chain(items.iter().map(String::as_str)).collect();
    held.answers = client.call(&words).array().iter().map(Value::truth).collect();
    held
}

/// Whether what a ring knows ends by the server's clock within the time of a test.
fn is_over_soon(client: &mut Client, key: &str) -> bool {
    let by_clock = *client.cmd(&format!("CHAIN.STATS {key}")).field("clock") == "server";
    by_clock && client.cmd(&format!("CHAIN.INFO {key}")).field("Window").int() < 1_000_000_000
}

/// Fails unless both are the same.
#[track_caller]
pub fn assert_same_contents(one: &Contents, other: &Contents, what: &str) {
    let names = |contents: &Contents| contents.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(one), names(other), "{what}");
    for (key, held) in one {
        let other = &other[key];
        let parts = [
            ("type", held.kind == other.kind),
            ("life", held.ends == other.ends),
            ("payload", held.dump == other.dump),
            ("chunks", held.chunks == other.chunks),
            ("figures", held.figures == other.figures),
            ("answers", held.answers == other.answers),
        ];
        let different: Vec<&str> = parts.iter().filter(|(_, same)| !same).map(|(part, _)| *part).collect();
        assert!(
            different.is_empty(),
            "{what}: {key:?}: {different:?}; {:?} {}, {:?} {}",
            held.figures,
            held.ends,
            other.figures,
            other.ends
        );
    }
}
