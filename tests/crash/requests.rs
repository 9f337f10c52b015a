//! Changes as requests, and the replies that they must get.

use super::model::{Batch, COUNT_CAPACITY, COUNT_LINKS, Dump, Name, Op, RING_CAPACITY};
use crate::support::{Value, encode};

/// Requests, and their replies if all is well.
#[derive(Default)]
pub struct Requests {
    pub bytes: Vec<u8>,
    pub replies: Vec<Value>,
}

fn ok() -> Value {
    Value::Simple("OK".into())
}

/// The reply about an item that was never added before: that it is new, or, seldom, a false positive.
const NEW: Value = Value::Bool(true);

/// Whether a reply is the expected one. For each item that was added, whether it is new is put behind the others in `new`.
pub fn agrees(expected: &Value, reply: &Value, new: &mut Vec<bool>) -> bool {
    match (expected, reply) {
        (Value::Array(expected), Value::Array(replies)) => {
            expected.len() == replies.len() && expected.iter().zip(replies).all(|(one, other)| agrees(one, other, new))
        }
        (&NEW, Value::Int(number @ 0..=1)) => {
            new.push(*number == 1);
            true
        }
        _ => expected == reply,
    }
}

/// A number: Redis answers many commands so.
fn one() -> Value {
    Value::Int(1)
}

impl Requests {
    fn push(&mut self, words: &[&[u8]], reply: Value) {
        self.bytes.extend(encode(words));
        self.replies.push(reply);
    }

    fn line(&mut self, line: &str, reply: Value) {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        self.push(&words, reply);
    }

    /// The requests of a change by this client on a connection, whose database follows.
    pub fn op(&mut self, client: usize, op: &Op, selected: &mut usize) {
        let Op::Group(ops) = op else { return self.single(client, op, selected) };
        let mut inner = Self::default();
        ops.iter().for_each(|op| inner.single(client, op, selected));
        self.line("MULTI", ok());
        self.bytes.extend(inner.bytes);
        self.replies.extend(inner.replies.iter().map(|_| Value::Simple("QUEUED".into())));
        self.line("EXEC", Value::Array(inner.replies));
    }

    fn select(&mut self, db: usize, selected: &mut usize) {
        if *selected != db {
            self.line(&format!("SELECT {db}"), ok());
            *selected = db;
        }
    }

    fn single(&mut self, client: usize, op: &Op, selected: &mut usize) {
        match op {
            Op::Reserve(name, _)
            | Op::Add(name, ..)
            | Op::AddToRing(name, _)
            | Op::AddByProfile(name, ..)
            | Op::ReserveRing(name)
            | Op::Rotate(name)
            | Op::Links(name, ..)
            | Op::Clear(name)
            | Op::ReserveCounted(name, ..)
            | Op::Count(name, ..)
            | Op::TakeOut(name, ..)
            | Op::Decay(name)
            | Op::LoadHeader(name, ..)
            | Op::LoadChunk(name, ..)
            | Op::Merge(_, name, _)
            | Op::Rename(name, _)
            | Op::Copy(name, _)
            | Op::Move(name, _)
            | Op::Life(name, _)
            | Op::TryPersist(name)
            | Op::Gone(name)
            | Op::Restore(name, ..)
            | Op::Header(name, ..)
            | Op::Chunk(name, ..) => self.select(name.0, selected),
            Op::Delete(names) => self.select(names[0].0, selected),
            Op::Flush(db) => self.select(*db, selected),
            Op::Swap(_) | Op::Group(_) | Op::Profile(..) => {}
        }
        match op {
            Op::Reserve((_, key), capacity) => self.line(&format!("BF.RESERVE {key} 1e-9 {capacity}"), ok()),
            Op::Add(name, batch, insert) => self.add(client, name, batch, *insert),
            Op::AddToRing((_, key), batch) => {
                let items: Vec<String> = batch.names(client).collect();
                let options = format!("CAPACITY {RING_CAPACITY} ERROR 1e-9 WINDOW 300000000");
                let reply = Value::Array(vec![NEW; batch.items as usize]);
                self.line(&format!("CHAIN.INSERT {key} {options} ITEMS {}", items.join(" ")), reply);
            }
            Op::AddByProfile((_, key), batch, _) => {
                let items: Vec<String> = batch.names(client).collect();
                let reply = Value::Array(vec![NEW; batch.items as usize]);
                self.line(&format!("CHAIN.MADD {key} {}", items.join(" ")), reply);
            }
            Op::Profile(prefix, Some(capacity)) => {
                let options = format!("CAPACITY {capacity} ERROR 1e-9 WINDOW 300000000");
                self.line(&format!("CHAIN.PROFILE SET {prefix} {options}"), ok());
            }
            Op::Profile(prefix, None) => self.line(&format!("CHAIN.PROFILE DEL {prefix}"), one()),
            Op::ReserveRing((_, key)) => {
                self.line(&format!("CHAIN.RESERVE {key} 1e-9 {COUNT_CAPACITY} LINKS {COUNT_LINKS}"), ok());
            }
            Op::Rotate((_, key)) => self.line(&format!("CHAIN.ROTATE {key}"), ok()),
            Op::Links((_, key), before, links) => {
                let command = if links > before { "EXTEND" } else { "SHRINK" };
                self.line(&format!("CHAIN.{command} {key} LINKS {links}"), ok());
            }
            Op::Clear((_, key)) => self.line(&format!("CHAIN.CLEAR {key}"), ok()),
            Op::ReserveCounted((_, key), kind, capacity, options) => {
                let line = format!("{}.RESERVE {key} 1e-9 {capacity} {options}", kind.family());
                self.line(line.trim_end(), ok());
            }
            Op::Count((_, key), kind, batch, new) => {
                self.each(client, &format!("{}.{{}}ADD {key}", kind.family()), batch, (*new).into());
            }
            Op::TakeOut((_, key), kind, batch) => {
                self.each(client, &format!("{}.{{}}DEL {key}", kind.family()), batch, 1);
            }
            Op::Decay((_, key)) => self.line(&format!("CBF.DECAY {key}"), ok()),
            Op::LoadHeader((_, key), _, dump) => self.chunk(key, dump, 0),
            Op::LoadChunk((_, key), dump, chunk) => self.chunk(key, dump, *chunk),
            Op::Merge(kind, (_, to), from) => {
                // What a decay has left may be more than is expected.
                let force = if kind.counts() { " FORCE" } else { "" };
                self.line(&format!("{}.MERGE {to} {from}{force}", kind.family()), ok());
            }
            Op::Delete(names) => {
                let keys: Vec<&str> = names.iter().map(|(_, key)| &**key).collect();
                self.line(&format!("DEL {}", keys.join(" ")), Value::Int(names.len() as i64));
            }
            Op::Rename((_, from), to) => self.line(&format!("RENAME {from} {to}"), ok()),
            Op::Copy((_, from), (db, to)) => self.line(&format!("COPY {from} {to} DB {db} REPLACE"), one()),
            Op::Move((_, key), db) => self.line(&format!("MOVE {key} {db}"), one()),
            Op::Swap([a, b]) => self.line(&format!("SWAPDB {a} {b}"), ok()),
            Op::Flush(_) => self.line("FLUSHDB", ok()),
            Op::Life((_, key), Some(life)) => self.line(&format!("PEXPIREAT {key} {life}"), one()),
            Op::Life((_, key), None) | Op::TryPersist((_, key)) => self.line(&format!("PERSIST {key}"), one()),
            Op::Gone((_, key)) => self.line(&format!("EXISTS {key}"), Value::Int(0)),
            Op::Restore((_, key), state, payload) => {
                let life = state.life.unwrap_or(0).to_string();
                let words = [b"RESTORE", key.as_bytes(), life.as_bytes(), payload, b"REPLACE", b"ABSTTL"];
                self.push(&words, ok());
            }
            Op::Header((_, key), _, data) => self.push(&[b"BF.LOADCHUNK", key.as_bytes(), b"1", data], ok()),
            Op::Chunk((_, key), iterator, data, _) => {
                self.push(&[b"BF.LOADCHUNK", key.as_bytes(), iterator.to_string().as_bytes(), data], ok());
            }
            Op::Group(_) => unreachable!("groups stand in no groups"),
        }
    }

    fn chunk(&mut self, key: &str, dump: &Dump, number: usize) {
        let (command, (cursor, data)) = (format!("{}.LOADCHUNK", dump.kind.family()), &dump.chunks[number]);
        self.push(&[command.as_bytes(), key.as_bytes(), cursor.to_string().as_bytes(), data], ok());
    }

    /// A command with one item, or with several by an M before its name; the same answer to each.
    fn each(&mut self, client: usize, head: &str, batch: &Batch, answer: i64) {
        let (items, answer) = (batch.names(client).collect::<Vec<_>>().join(" "), Value::Int(answer));
        let reply = if batch.items == 1 { answer } else { Value::Array(vec![answer; batch.items as usize]) };
        let many = if batch.items == 1 { "" } else { "M" };
        self.line(&format!("{} {items}", head.replace("{}", many)), reply);
    }

    fn add(&mut self, client: usize, (_, key): &Name, batch: &Batch, insert: bool) {
        if batch.items == 1 && !insert {
            return self.line(&format!("BF.ADD {key} {}", batch.item(client, 0)), NEW);
        }
        let items: Vec<String> = batch.names(client).collect();
        let head = if insert { format!("BF.INSERT {key} ITEMS") } else { format!("BF.MADD {key}") };
        self.line(&format!("{head} {}", items.join(" ")), Value::Array(vec![NEW; batch.items as usize]));
    }
}
