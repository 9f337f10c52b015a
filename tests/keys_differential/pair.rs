//! Both servers side by side: sends each its command, knows how far each connection is, and compares.

use super::frames::Payload;
use super::generate::{Command, Words, is_moment, is_rounded_moment};
use crate::support::{Client, Server, Value, show_args, show_bytes};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How many connections there are; every second one speaks RESP3.
pub const CONNECTIONS: usize = 4;

/// A command and the connection that sends it.
#[derive(Clone)]
pub struct Step {
    pub connection: usize,
    pub command: Command,
}

/// A reply that differs, or keys that do.
pub struct Difference(pub String);

fn differs(command: &Words, expected: &dyn std::fmt::Display, got: &dyn std::fmt::Display) -> Difference {
    Difference(format!("  command:  {}\n  expected: {expected}\n  got:      {got}", show_args(command)))
}

/// What is known of a connection.
#[derive(Default)]
struct Known {
    db: usize,
    /// The commands since `MULTI`.
    queue: Option<Vec<Command>>,
    /// The names of the watched keys; in which database does not matter here.
    watched: Vec<Vec<u8>>,
    /// A command that changed nothing was run on one of them, which the peer takes for a change.
    touched: bool,
}

/// Both servers.
pub struct Pair<'s> {
    servers: [&'s Server; 2],
    ours: Vec<Client>,
    theirs: Vec<Client>,
    known: Vec<Known>,
    admin: [Client; 2],
    /// The most time that one step took: so far apart can lives be that were given from now on.
    longest_step: Duration,
    /// How often each rule was used.
    pub fired: BTreeMap<&'static str, usize>,
}

fn connect(server: &Server, connection: usize) -> Client {
    if connection.is_multiple_of(2) { server.client() } else { server.client3() }
}

impl<'s> Pair<'s> {
    /// Connects, and empties both servers.
    pub fn new(ours: &'s Server, theirs: &'s Server) -> Pair<'s> {
        let mut admin = [ours.client(), theirs.client()];
        admin.iter_mut().for_each(|admin| assert!(admin.cmd("FLUSHALL") == "OK"));
        Pair {
            servers: [ours, theirs],
            ours: (0..CONNECTIONS).map(|connection| connect(ours, connection)).collect(),
            theirs: (0..CONNECTIONS).map(|connection| connect(theirs, connection)).collect(),
            known: (0..CONNECTIONS).map(|_| Known::default()).collect(),
            admin,
            longest_step: Duration::ZERO,
            fired: BTreeMap::new(),
        }
    }

    /// Whether the connection has said `MULTI`.
    pub fn in_transaction(&self, connection: usize) -> bool {
        self.known[connection].queue.is_some()
    }

    /// Whether this would copy a key in a transaction: the peer cannot, and it cannot be made good afterwards.
    pub fn cannot_be_compared(&self, step: &Step) -> bool {
        let words = &step.command.ours;
        let elsewhere = words.iter().skip(3).any(|word| word.eq_ignore_ascii_case(b"DB"));
        self.in_transaction(step.connection)
            && step.command.name() == "COPY"
            && words.get(1).is_some_and(|key| key != b"nosuch")
            && (elsewhere || words.get(1) != words.get(2))
    }

    /// Gives both servers the command and compares the replies. Returns what `DUMP` gave.
    pub fn step(&mut self, step: &Step) -> Result<Option<Payload>, Difference> {
        let Step { connection, command } = step;
        let began = Instant::now();
        let (got, our_value) = self.ours[*connection].call_raw(&command.ours);
        let (expected, their_value) = self.theirs[*connection].call_raw(&command.theirs);
        let took = began.elapsed();
        self.longest_step = self.longest_step.max(took);
        if command.name() == "EXEC" && command.ours.len() == 1 {
            self.exec(*connection, command, our_value, their_value, took)?;
            return Ok(None);
        }
        let queued = our_value == "QUEUED";
        if got != expected && (queued || !self.alike(*connection, command, &our_value, &their_value, took)) {
            return Err(differs(&command.ours, &show_bytes(&expected), &show_bytes(&got)));
        }
        if let Some(queue) = self.known[*connection].queue.as_mut().filter(|_| queued) {
            queue.push(command.clone());
            return Ok(None);
        }
        self.done(*connection, command, &our_value);
        Ok(match (our_value, their_value) {
            (Value::Bulk(ours), Value::Bulk(theirs)) if command.name() == "DUMP" => Some(Payload { ours, theirs }),
            _ => None,
        })
    }

    fn fire(&mut self, rule: &'static str) {
        *self.fired.entry(rule).or_default() += 1;
    }

    /// Whether replies that are not the same bytes are right all the same.
    fn alike(&mut self, connection: usize, command: &Command, ours: &Value, theirs: &Value, took: Duration) -> bool {
        let apart = |limit: Duration, ours: i64, theirs: i64| ours.abs_diff(theirs) <= limit.as_millis() as u64 + 1;
        let sorted = |value: &Value| {
            let mut names: Vec<Vec<u8>> = value.array().iter().map(|name| name.bulk().to_vec()).collect();
            names.sort();
            names
        };
        match (command.name().as_str(), ours, theirs) {
            ("EXPIRETIME", Value::Int(ours), Value::Int(theirs)) if is_rounded_moment(*ours) => ours == theirs,
            ("TTL" | "EXPIRETIME", Value::Int(ours), Value::Int(theirs)) => {
                *ours >= 0 && *theirs >= 0 && ours.abs_diff(*theirs) <= 1 + (self.longest_step + took).as_secs()
            }
            ("PTTL", Value::Int(ours), Value::Int(theirs)) => {
                *ours >= 0 && *theirs >= 0 && apart(self.longest_step + took, *ours, *theirs)
            }
            ("PEXPIRETIME", Value::Int(ours), Value::Int(theirs)) => same_life(*ours, *theirs, self.longest_step),
            ("DUMP", Value::Bulk(_), Value::Bulk(_)) => true,
            ("KEYS", Value::Array(_), Value::Array(_)) => sorted(ours) == sorted(theirs),
            ("SCAN", Value::Array(ours), Value::Array(theirs)) => {
                ours[0] == theirs[0] && sorted(&ours[1]) == sorted(&theirs[1])
            }
            ("RANDOMKEY", Value::Bulk(_), Value::Bulk(_)) => true,
            ("COPY", Value::Int(1), Value::Error(text)) if text == "ERR not supported for this module key" => {
                self.fire("copy");
                self.copy_at_peer(connection, command)
            }
            (_, Value::Error(ours), Value::Error(theirs)) => match &command.text {
                Some((from, to)) => *ours == theirs.replace(from, to),
                None => false,
            },
            _ => ours == theirs,
        }
    }

    /// What `COPY` did here is done on the peer by `DUMP` and `RESTORE`; false if it has nothing to copy.
    fn copy_at_peer(&mut self, connection: usize, command: &Command) -> bool {
        let words = &command.ours;
        let (from, mut to) = (self.known[connection].db.to_string(), self.known[connection].db.to_string());
        for at in 3..words.len() {
            if words[at].eq_ignore_ascii_case(b"DB") {
                to = String::from_utf8_lossy(&words[at + 1]).into_owned();
            }
        }
        let peer = &mut self.admin[1];
        peer.call(&["SELECT", &from]);
        let Value::Bulk(payload) = peer.call(&[b"DUMP", words[1].as_slice()]) else { return false };
        let life = peer.call(&[b"PEXPIRETIME", words[1].as_slice()]).int().max(0).to_string();
        peer.call(&["SELECT", &to]);
        let restore: [&[u8]; 6] = [b"RESTORE", &words[2], life.as_bytes(), &payload, b"ABSTTL", b"REPLACE"];
        assert!(peer.call(&restore) == "OK", "the peer takes its own payload");
        true
    }

    /// A command was run on both: what follows for the connections.
    fn done(&mut self, connection: usize, command: &Command, reply: &Value) {
        if let Some(rule) = command.rule.filter(|_| matches!(reply, Value::Error(_))) {
            self.fire(rule);
        }
        if command.rule == Some("restore-version") && *reply == "OK" {
            self.fire("restore-version");
        }
        if name_changes_nothing(command, reply) {
            let key = &command.ours[1];
            self.known.iter_mut().filter(|known| known.watched.contains(key)).for_each(|known| known.touched = true);
        }
        let known = &mut self.known[connection];
        let fresh = |known: &mut Known| (known.watched.clear(), known.touched = false);
        match (command.name().as_str(), reply) {
            ("SELECT", Value::Simple(_)) => {
                known.db = String::from_utf8_lossy(&command.ours[1]).parse().expect("it was taken");
            }
            ("MULTI", Value::Simple(_)) => known.queue = Some(Vec::new()),
            ("WATCH", Value::Simple(_)) => known.watched.extend_from_slice(&command.ours[1..]),
            ("UNWATCH", Value::Simple(_)) => drop(fresh(known)),
            ("DISCARD", Value::Simple(_)) => {
                known.queue = None;
                fresh(known);
            }
            ("RESET", Value::Simple(_)) => {
                *known = Known::default();
                if connection % 2 == 1 {
                    self.ours[connection].hello(3);
                    self.theirs[connection].hello(3);
                }
            }
            ("QUIT", Value::Simple(_)) => {
                *known = Known::default();
                assert!(
                    self.ours[connection].read_to_close().is_empty()
                        && self.theirs[connection].read_to_close().is_empty()
                );
                self.ours[connection] = connect(self.servers[0], connection);
                self.theirs[connection] = connect(self.servers[1], connection);
            }
            _ => {}
        }
    }

    fn exec(
        &mut self,
        connection: usize,
        command: &Command,
        ours: Value,
        theirs: Value,
        took: Duration,
    ) -> Result<(), Difference> {
        let (queue, touched) = (self.known[connection].queue.take(), self.known[connection].touched);
        let wrong =
            |ours: &Value, theirs: &Value| Err(differs(&command.ours, &format!("{theirs:?}"), &format!("{ours:?}")));
        let Some(queue) = queue else {
            return if ours == theirs { Ok(()) } else { wrong(&ours, &theirs) };
        };
        self.known[connection].watched.clear();
        self.known[connection].touched = false;
        let theirs = match (&ours, &theirs) {
            // The peer gave up because of a command that changed nothing: the same again, without watching.
            (Value::Array(_), Value::Null) if touched => {
                self.fire("watch-real-change");
                let peer = &mut self.theirs[connection];
                peer.cmd("MULTI");
                queue.iter().for_each(|command| drop(peer.call(&command.theirs)));
                peer.cmd("EXEC")
            }
            _ => theirs,
        };
        let (Value::Array(our_replies), Value::Array(their_replies)) = (&ours, &theirs) else {
            return if ours == theirs { Ok(()) } else { wrong(&ours, &theirs) };
        };
        if our_replies.len() != queue.len() || their_replies.len() != queue.len() {
            return wrong(&ours, &theirs);
        }
        for ((command, ours), theirs) in queue.iter().zip(our_replies).zip(their_replies) {
            if ours != theirs && !self.alike(connection, command, ours, theirs, took) {
                return Err(differs(
                    &command.ours,
                    &format!("{theirs:?}, in {their_replies:?}"),
                    &format!("{ours:?}, in {our_replies:?}"),
                ));
            }
            self.done(connection, command, ours);
        }
        Ok(())
    }

    /// Compares all keys of all databases: their bits and lives; and loads each dump into the other server.
    pub fn compare_keys(&mut self) -> Result<(), Difference> {
        for db in 0..16 {
            let select = ["SELECT".to_string(), db.to_string()];
            self.admin.iter_mut().for_each(|admin| assert!(admin.call(&select) == "OK"));
            let [ours, theirs] = self.admin.each_mut().map(|admin| {
                let mut names: Vec<Vec<u8>> =
                    admin.cmd("KEYS *").array().iter().map(|name| name.bulk().to_vec()).collect();
                names.sort();
                assert_eq!(admin.cmd("DBSIZE").int(), names.len() as i64, "keys of database {db}");
                names
            });
            if ours != theirs {
                return Err(Difference(format!("  keys of database {db}: expected {theirs:?}, got {ours:?}")));
            }
            for key in ours {
                self.compare_key(db, &key)?;
            }
        }
        Ok(())
    }

    fn compare_key(&mut self, db: usize, key: &[u8]) -> Result<(), Difference> {
        let wrong = |what: &str, ours: &dyn std::fmt::Debug, theirs: &dyn std::fmt::Debug| {
            Err(Difference(format!(
                "  {what} of {:?} in database {db}: expected {theirs:?}, got {ours:?}",
                show_bytes(key)
            )))
        };
        let [ours, theirs] = self.admin.each_mut().map(|admin| admin.call(&[b"PEXPIRETIME", key]).int());
        if !same_life(ours, theirs, self.longest_step) {
            return wrong("life", &ours, &theirs);
        }
        let [ours, theirs] = self.admin.each_mut().map(|admin| scan_dump(admin, key));
        if ours != theirs {
            return wrong("bits", &ours, &theirs);
        }
        let payloads = self.admin.each_mut().map(|admin| admin.call(&[b"DUMP", key]).bulk().to_vec());
        for side in [0, 1] {
            let restore: [&[u8]; 4] = [b"RESTORE", b"of the other", b"0", &payloads[1 - side]];
            let admin = &mut self.admin[side];
            let (reply, loaded) = (admin.call(&restore), scan_dump(admin, b"of the other"));
            admin.call(&["DEL", "of the other"]);
            if reply != "OK" || loaded != ours {
                return wrong("the other's dump", &(reply, loaded), &ours);
            }
        }
        Ok(())
    }
}

/// Whether a life, or none, is the same on both: exactly, or, if it was given from now on, as near as the commands were.
fn same_life(ours: i64, theirs: i64, apart: Duration) -> bool {
    ours == theirs
        || (ours > 0 && theirs > 0 && !is_moment(ours) && ours.abs_diff(theirs) <= apart.as_millis() as u64 + 1)
}

/// Whether a command that writes has found nothing to change.
fn name_changes_nothing(command: &Command, reply: &Value) -> bool {
    let writes = ["BF.RESERVE", "BF.ADD", "BF.MADD", "BF.INSERT"].contains(&command.name().as_str());
    let new = |reply: &Value| matches!(reply, Value::Int(1) | Value::Bool(true) | Value::Simple(_));
    let changes = match reply {
        Value::Array(replies) => replies.iter().any(new),
        reply => new(reply),
    };
    writes && command.ours.len() > 2 && !changes
}

/// All chunks of a key's dump, each with its cursor.
fn scan_dump(client: &mut Client, key: &[u8]) -> Vec<(i64, Vec<u8>)> {
    let (mut chunks, mut cursor) = (Vec::new(), 0);
    loop {
        let Value::Array(reply) = client.call(&[b"BF.SCANDUMP", key, cursor.to_string().as_bytes()]) else {
            return chunks;
        };
        cursor = reply[0].int();
        if cursor == 0 {
            return chunks;
        }
        chunks.push((cursor, reply[1].bulk().to_vec()));
    }
}
