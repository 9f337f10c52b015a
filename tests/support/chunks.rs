//! Keys of all families in servers: their dumps in chunks, and all that can be seen of them.

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

/// Gives a ring one of them.
pub fn load(client: &mut Client, key: &str, chunk: &Chunk) -> Value {
    load_of(client, "CHAIN", key, chunk)
}

/// The same for a key of this family.
pub fn load_of(client: &mut Client, family: &str, key: &str, (cursor, data): &Chunk) -> Value {
    let (command, cursor) = (format!("{family}.LOADCHUNK"), cursor.to_string());
    client.call(&[command.as_bytes(), key.as_bytes(), cursor.as_bytes(), data])
}

/// Everything of a key that does not depend on when it is looked at.
#[derive(Clone, Debug, PartialEq)]
pub struct Held {
    /// What TYPE gives.
    pub kind: String,
    /// What PEXPIRETIME gives.
    pub ends: i64,
    /// What DUMP gives. Of what is not loaded to the end: how large it will be.
    pub dump: Value,
    /// What SCANDUMP gives, but of a Bloom filter.
    pub chunks: Vec<Chunk>,
    /// What STATS gives but the bytes of memory; BF.INFO of a Bloom filter.
    pub figures: Vec<(String, Value)>,
    /// How often each of the items that were asked for is in it; at most once in what does not count.
    pub answers: Vec<i64>,
}

impl Held {
    /// Whether its load is not over.
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
    let family = family(&held.kind);
    let bloom = family == "BF";
    if !bloom {
        held.chunks = chunks(client, key);
    }
    if family == "CHAIN" && is_over_soon(client, key) {
        return held;
    }
    let reply = client.cmd(&format!("{family}.{} {key}", if bloom { "INFO" } else { "STATS" }));
    let pairs = reply.array().chunks_exact(2).map(|pair| (pair[0].text(), pair[1].clone()));
    held.figures = pairs.filter(|(field, _)| !["bytes", "Size"].contains(&field.as_str())).collect();
    let question = if family.ends_with("CBF") { "MCOUNT" } else { "MEXISTS" };
    let words = [format!("{family}.{question}"), key.to_owned()].into_iter().chain(items.iter().cloned());
    held.answers = client.call(&words.collect::<Vec<_>>()).array().iter().map(Value::int).collect();
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
