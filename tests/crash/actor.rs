//! A client that changes keys of its own and shared ones, and knows after each reply what it was promised.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant, UNIX_EPOCH};

use super::model::{
    Batch, Bits, CHAOS_DB, Counts, Dump, Key, Kind, MOST_ADDED, Name, Op, SHARED_DB, State, large_dump, own_dbs,
    profiles,
};
use super::requests::{Requests, agrees};
use crate::support::{Client, Random, Value};

/// Clients at work.
pub const CLIENTS: usize = 4;
/// Filters that all of them add to; the last ones are large.
pub const SHARED: usize = 8;
/// A life that ends within the test's time, at most so many milliseconds away.
const SHORT_MS: u64 = 40;
const LONG_MS: u64 = 3_600_000;

/// What all clients see of each other.
#[derive(Default)]
pub struct Board {
    /// The last add of each client to a shared filter: the place in its journal, the filter, the batch.
    pub published: [AtomicU64; CLIENTS],
    /// So many changes of each client were confirmed to it, or seen by another.
    pub confirmed: [AtomicUsize; CLIENTS],
    pub seen: [AtomicUsize; CLIENTS],
    pub over: AtomicBool,
    /// The disk fails now and then: changes are refused, or it cannot be said whether they are kept.
    pub failing: bool,
}

impl Board {
    /// What must hold of each client's changes.
    pub fn floors(&self) -> [usize; CLIENTS] {
        std::array::from_fn(|client| {
            let at = |counts: &[AtomicUsize; CLIENTS]| counts[client].load(Ordering::SeqCst);
            at(&self.confirmed).max(at(&self.seen))
        })
    }
}

pub fn now_ms() -> u64 {
    UNIX_EPOCH.elapsed().expect("a clock after 1970").as_millis() as u64
}

pub fn shared_name(number: u64) -> Name {
    (SHARED_DB, format!("shared:{}", number % SHARED as u64))
}

/// A client between two crashes.
pub struct Actor {
    pub id: usize,
    /// What it expects after all that it has sent.
    pub state: State,
    /// What was sent since the last crash.
    pub journal: Vec<Op>,
    /// When each was confirmed.
    pub times: Vec<Instant>,
    next_batch: u64,
    pub counts: Counts,
    selected: usize,
    random: Random,
}

impl Actor {
    pub fn new(id: usize, state: State, next_batch: u64, counts: Counts, random: Random) -> Self {
        Self { id, state, journal: Vec::new(), times: Vec::new(), next_batch, counts, selected: 0, random }
    }

    pub fn next_batch(&self) -> u64 {
        self.next_batch
    }

    /// Works until the server is gone, with pauses.
    pub fn work(&mut self, client: io::Result<Client>, board: &Board, pause: Duration) {
        let Ok(mut client) = client else { return };
        while !board.over.load(Ordering::Relaxed) && self.step(&mut client, board).is_ok() {
            if !pause.is_zero() {
                std::thread::sleep(pause);
            }
        }
    }

    fn step(&mut self, client: &mut Client, board: &Board) -> io::Result<()> {
        match self.random.below(100) {
            0..=64 => {
                let count = if self.random.percent(30) && !board.failing { 1 + self.random.below(8) } else { 1 };
                let before = self.state.clone();
                let ops: Vec<Op> = (0..count).map(|_| self.plan_and_apply()).collect();
                match self.send(client, board, &ops) {
                    Err(error) if is_refusal(&error) => {
                        self.state = before;
                        self.journal.pop();
                        // A transaction that was refused did not select.
                        self.selected = usize::MAX;
                        Ok(())
                    }
                    sent => sent,
                }
            }
            // While the disk fails, reads go on and promise nothing.
            65..=79 if !board.failing => self.look_at_others(client, board),
            80..=84 => self.short_life(client, board),
            85..=88 => self.restore(client, board),
            89..=91 => self.load(client, board),
            _ => self.chaos(client),
        }
    }

    /// Send changes that are in the state already, in one piece, and read the replies.
    fn send(&mut self, client: &mut Client, board: &Board, ops: &[Op]) -> io::Result<()> {
        let (mut requests, mut ends) = (Requests::default(), Vec::new());
        for op in ops {
            requests.op(self.id, op, &mut self.selected);
            ends.push(requests.replies.len());
            self.publish(op, board);
            self.journal.push(op.clone());
        }
        client.try_send(&requests.bytes)?;
        let mut read = 0;
        for (op, end) in ops.iter().zip(ends) {
            let (mut new, mut failed) = (Vec::new(), None);
            for expected in &requests.replies[read..end] {
                let reply = client.try_read()?;
                match failure(&reply).filter(|_| board.failing) {
                    Some(error) => failed = failed.filter(|first| !is_refusal(first)).or(Some(error)),
                    None if failed.is_some() => {}
                    None => assert!(agrees(expected, &reply, &mut new), "client {}: {op:?}: {reply:?}", self.id),
                }
            }
            if let Some(error) = failed {
                return Err(error);
            }
            self.counts.note(op, &new);
            read = end;
            self.confirm(board);
        }
        Ok(())
    }

    /// Tell the others which item of a shared filter comes with this change, the next one.
    fn publish(&self, op: &Op, board: &Board) {
        let add = if let Op::Group(ops) = op { ops.last().unwrap_or(op) } else { op };
        if let Op::Add((SHARED_DB, key), batch, _) = add {
            let number = key.strip_prefix("shared:").and_then(|number| number.parse::<u64>().ok()).expect("a number");
            let place = (self.journal.len() as u64) << 32 | number << 24 | batch.number;
            board.published[self.id].store(place, Ordering::SeqCst);
        }
    }

    fn confirm(&mut self, board: &Board) {
        self.times.push(Instant::now());
        board.confirmed[self.id].store(self.times.len(), Ordering::SeqCst);
    }

    fn plan_and_apply(&mut self) -> Op {
        let op = if self.random.percent(15) { self.plan_group() } else { self.plan() };
        self.state.apply(&op);
        op
    }

    /// Changes of several keys that belong together.
    fn plan_group(&mut self) -> Op {
        if self.random.percent(60) {
            let start = self.random.below(SHARED) as u64;
            let adds = (0..2 + self.random.below(4) as u64).map(|n| {
                let batch = self.batch(1);
                Op::Add(shared_name(start + n), batch, false)
            });
            return Op::Group(adds.collect());
        }
        let (mut scratch, mut ops) = (self.state.clone(), Vec::new());
        for _ in 0..2 + self.random.below(5) {
            std::mem::swap(&mut self.state, &mut scratch);
            let op = self.plan();
            std::mem::swap(&mut self.state, &mut scratch);
            // What changes whole databases within a group stands in tests of transactions.
            if !matches!(op, Op::Swap(_) | Op::Flush(_)) {
                scratch.apply(&op);
                ops.push(op);
            }
        }
        Op::Group(ops)
    }

    fn batch(&mut self, items: u64) -> Batch {
        self.next_batch += 1;
        Batch { number: self.next_batch, items }
    }

    fn batch_size(&mut self) -> u64 {
        match self.random.below(100) {
            0..=59 => 1,
            60..=93 => 2 + self.random.below(40) as u64,
            94..=98 => 200,
            _ => 3000,
        }
    }

    fn own_name(&mut self) -> Name {
        (own_dbs(self.id)[self.random.below(2)], format!("own:{}", self.random.below(12)))
    }

    /// A name that may be written over, or used for a new key: not one whose life is about to end.
    fn free_name(&mut self) -> Option<Name> {
        let name = self.own_name();
        self.state.keys.get(&name).is_none_or(is_usable).then_some(name)
    }

    fn usable_name(&mut self) -> Option<Name> {
        self.name_with(|_| true)
    }

    /// A usable key that has this.
    fn name_with(&mut self, has: impl Fn(&Key) -> bool) -> Option<Name> {
        let keys = self.state.keys.iter().filter(|((db, _), key)| *db != SHARED_DB && is_usable(key) && has(key));
        let names: Vec<Name> = keys.map(|(name, _)| name.clone()).collect();
        (!names.is_empty()).then(|| self.random.pick(&names).clone())
    }

    /// A name of which there is no key.
    fn new_name(&mut self) -> Option<Name> {
        self.free_name().filter(|name| !self.state.keys.contains_key(name))
    }

    /// Whether a key of this name is of this kind, or there is no such key.
    fn is_kind(&self, name: &Name, kind: Kind) -> bool {
        self.state.keys.get(name).is_none_or(|key| key.kind == kind)
    }

    fn plan(&mut self) -> Op {
        for _ in 0..20 {
            if let Some(op) = self.try_plan() {
                return op;
            }
        }
        let number = self.random.bits();
        Op::Add(shared_name(number), self.batch(1), false)
    }

    fn try_plan(&mut self) -> Option<Op> {
        let half_loaded = self.state.keys.iter().find(|(_, key)| key.bits != Bits::Whole && key.load.is_none());
        if let Some((name, _)) = half_loaded {
            return Some(Op::Delete(vec![name.clone()]));
        }
        match self.random.below(100) {
            0..10 => return self.plan_load(),
            10..20 => return self.plan_ring(),
            20..40 => return self.plan_counting(),
            _ => {}
        }
        Some(match self.random.below(100) {
            0..=24 => Op::Add(shared_name(self.next_batch), self.batch(1), false),
            25..=29 => {
                let items = self.batch_size().min(200);
                Op::Add(shared_name(self.next_batch), self.batch(items), true)
            }
            30..=46 => {
                let name = self.free_name().filter(|name| self.is_kind(name, Kind::Bloom))?;
                let (items, insert) = (self.batch_size(), self.random.percent(20));
                Op::Add(name, self.batch(items), insert)
            }
            47..=52 => {
                let (name, items) =
                    (self.free_name().filter(|name| self.is_kind(name, Kind::Ring))?, self.batch_size());
                self.state.keys.get(&name).is_none_or(|key| key.takes(items)).then_some(())?;
                Op::AddToRing(name, self.batch(items))
            }
            53..=54 => {
                let from = self.name_with(|key| key.is_ring() && key.is_window())?;
                let key = &self.state.keys[&from];
                let shape = (key.capacity, key.links);
                let to = self.free_name().filter(|to| to.0 == from.0 && *to != from)?;
                let fits = |to: &Key| to.is_ring() && to.is_window() && (to.capacity, to.links) == shape;
                self.state.keys.get(&to).is_none_or(fits).then_some(())?;
                Op::Merge(Kind::Ring, to, from.1)
            }
            55..=62 => {
                let name = self.new_name()?;
                Op::Reserve(name, self.capacity())
            }
            63..=72 => {
                let first = self.usable_name()?;
                let other = self.usable_name().filter(|other| *other != first && other.0 == first.0);
                Op::Delete([Some(first), other].into_iter().flatten().collect())
            }
            73..=78 => {
                let (from, to) = (self.usable_name()?, self.free_name()?);
                let target = (from.0, to.1);
                let is_free = from != target && self.state.keys.get(&target).is_none_or(is_usable);
                is_free.then_some(Op::Rename(from, target.1))?
            }
            79..=84 => {
                let (from, to) = (self.usable_name()?, self.free_name()?);
                (from != to).then_some(Op::Copy(from, to))?
            }
            85..=88 => {
                let (db, key) = self.usable_name()?;
                let other = own_dbs(self.id).into_iter().find(|other| *other != db)?;
                (!self.state.keys.contains_key(&(other, key.clone()))).then_some(Op::Move((db, key), other))?
            }
            89..=94 => {
                let name = self.usable_name()?;
                let has_life = self.state.keys[&name].life.is_some();
                let life = (!has_life).then(|| now_ms() + LONG_MS + self.random.below(1000) as u64);
                Op::Life(name, life)
            }
            95..=97 => Op::Swap(own_dbs(self.id)),
            _ => Op::Flush(own_dbs(self.id)[self.random.below(2)]),
        })
    }

    /// What there is for rings only.
    fn plan_ring(&mut self) -> Option<Op> {
        Some(match self.random.below(12) {
            0..=2 => {
                let (db, prefixes) = (own_dbs(self.id)[self.random.below(2)], profiles(self.id));
                let name = (db, format!("{}{}", self.random.pick(&prefixes), self.random.below(3)));
                let (is_new, items) = (!self.state.keys.contains_key(&name), self.batch_size());
                let key = self.state.keys.get(&name).cloned().or_else(|| self.state.by_profile(&name.1))?;
                (is_usable(&key) && key.is_ring() && key.takes(items)).then_some(())?;
                let batch = self.batch(items);
                Op::AddByProfile(name, batch, is_new.then(|| Box::new(key)))
            }
            3..=5 => {
                let prefix = self.random.pick(&profiles(self.id)).clone();
                let is_there = self.state.profiles.contains_key(&prefix);
                let capacity = 4 * (10 + self.random.below(90) as u64);
                Op::Profile(prefix, (!is_there || self.random.percent(70)).then_some(capacity))
            }
            6 => Op::ReserveRing(self.new_name()?),
            7..=8 => Op::Rotate(self.name_with(|key| key.is_ring() && key.turns.is_some())?),
            9..=10 => {
                let name = self.name_with(|key| key.is_ring() && key.before == 0)?;
                let (links, present) = (2 + self.random.below(8) as u64, self.state.keys[&name].links);
                (links != present).then_some(Op::Links(name, present, links))?
            }
            _ => Op::Clear(self.name_with(|key| key.is_ring() && key.before == 0)?),
        })
    }

    /// What there is for filters that count only: adds, of the same items too, and deletes of what is in.
    fn plan_counting(&mut self) -> Option<Op> {
        let kind = *self.random.pick(&[Kind::Counting, Kind::Dleft]);
        Some(match self.random.below(22) {
            0..=2 => {
                let (name, capacity) = (self.new_name()?, self.capacity());
                Op::ReserveCounted(name, kind, capacity, self.random.pick::<&str>(kind.options()))
            }
            3..=8 => {
                let items = self.batch_size();
                let present = self.name_with(|key| key.kind == kind && key.takes(items));
                let name = present.filter(|_| self.random.percent(80)).or_else(|| self.new_name())?;
                let made = Key::counted(kind);
                self.state.keys.get(&name).unwrap_or(&made).takes(items).then_some(())?;
                Op::Count(name, kind, self.batch(items), true)
            }
            9..=11 => {
                let (name, batch) = self.batch_in(kind)?;
                let key = &self.state.keys[&name];
                let again = key.takes(batch.items) && key.batches[&batch] < MOST_ADDED;
                again.then_some(Op::Count(name, kind, batch, false))?
            }
            12..=17 => {
                let (name, batch) = self.batch_in(kind)?;
                self.state.keys[&name].may_delete().then_some(Op::TakeOut(name, kind, batch))?
            }
            18 => Op::Decay(self.name_with(|key| key.kind == Kind::Counting)?),
            _ => {
                let from = self.name_with(|key| key.kind == Kind::Counting)?;
                let key = self.state.keys[&from].clone();
                let present = self.name_with(|to| key.fits(to));
                let to = present.or_else(|| self.new_name()).filter(|to| to.0 == from.0 && *to != from)?;
                Op::Merge(Kind::Counting, to, from.1)
            }
        })
    }

    /// A filter of a kind that counts, and a batch that is in it.
    fn batch_in(&mut self, kind: Kind) -> Option<(Name, Batch)> {
        let name = self.name_with(|key| key.kind == kind && !key.batches.is_empty())?;
        let batches: Vec<Batch> = self.state.keys[&name].batches.keys().copied().collect();
        Some((name, *self.random.pick(&batches)))
    }

    fn capacity(&mut self) -> u64 {
        *self.random.weighted(&[(30, 10), (30, 300), (20, 5_000), (15, 20_000), (5, 400_000)])
    }

    /// The next chunk of a filter that is being loaded, or one more time a chunk from before, or what may happen to its key.
    fn plan_load(&mut self) -> Option<Op> {
        let loading = self.state.keys.iter().filter_map(|(name, key)| Some((name.clone(), key.load.clone()?)));
        let loading: Vec<_> = loading.collect();
        if loading.is_empty() {
            let name = self.new_name()?;
            let (key, dump) = large_dump(*self.random.pick(&Kind::IN_CHUNKS));
            // It has megabytes.
            return self.random.percent(5).then(|| Op::LoadHeader(name, Box::new(key), dump));
        }
        let (name, (dump, taken)) = self.random.pick(&loading).clone();
        Some(match self.random.below(20) {
            0..=12 => Op::LoadChunk(name, dump, taken),
            13 => Op::LoadChunk(name, dump, self.random.below(taken)),
            14..=15 => {
                let to = self.free_name().filter(|to| to.0 == name.0)?;
                Op::Rename(name, to.1)
            }
            16..=17 => Op::Copy(name, self.free_name()?),
            18 => Op::Life(name, Some(now_ms() + LONG_MS)),
            _ => Op::Delete(vec![name]),
        })
    }

    /// Give a key a life that ends soon, or take that away again, or see that it has ended.
    fn short_life(&mut self, client: &mut Client, board: &Board) -> io::Result<()> {
        let short = self.state.keys.iter().find(|(_, key)| !is_usable(key) && key.bits == Bits::Whole);
        let Some((name, key)) = short.map(|(name, key)| (name.clone(), key.clone())) else {
            let Some(name) = self.usable_name() else { return Ok(()) };
            let op = Op::Life(name, Some(now_ms() + 1 + self.random.below(SHORT_MS as usize) as u64));
            self.state.apply(&op);
            return self.send(client, board, &[op]);
        };
        if key.life.is_some_and(|life| life < now_ms()) {
            let op = Op::Gone(name);
            self.state.apply(&op);
            return self.send(client, board, &[op]);
        }
        if self.random.percent(70) {
            return Ok(());
        }
        self.journal.push(Op::TryPersist(name.clone()));
        let (db, key) = &name;
        self.call(client, &[b"SELECT", db.to_string().as_bytes()])?;
        self.selected = *db;
        let reply = self.call(client, &[b"PERSIST", key.as_bytes()])?;
        let op = if reply == 1 { Op::Life(name, None) } else { Op::Gone(name) };
        self.state.apply(&op);
        *self.journal.last_mut().expect("it was put there") = op;
        self.confirm(board);
        Ok(())
    }

    fn call(&mut self, client: &mut Client, words: &[&[u8]]) -> io::Result<Value> {
        let reply = client.try_call(words)?;
        if let Value::Error(text) = &reply {
            failure(&reply).map_or(Ok(()), Err)?;
            panic!("client {}: {:?} was answered {text}", self.id, words[0].escape_ascii().to_string());
        }
        Ok(reply)
    }

    fn select(&mut self, client: &mut Client, db: usize) -> io::Result<()> {
        if self.selected != db {
            self.call(client, &[b"SELECT", db.to_string().as_bytes()])?;
            self.selected = db;
        }
        Ok(())
    }

    /// A key by way of its dump.
    fn restore(&mut self, client: &mut Client, board: &Board) -> io::Result<()> {
        let (Some(from), Some(to)) = (self.usable_name(), self.free_name()) else { return Ok(()) };
        let key = self.state.keys[&from].clone();
        if key.capacity > 50_000 && self.random.percent(90) {
            return Ok(());
        }
        self.select(client, from.0)?;
        let payload = self.call(client, &[b"DUMP", from.1.as_bytes()])?.bulk().to_vec();
        let op = Op::Restore(to, Box::new(key), payload);
        self.state.apply(&op);
        self.send(client, board, &[op])
    }

    /// The same in pieces.
    fn load(&mut self, client: &mut Client, board: &Board) -> io::Result<()> {
        let (Some(from), Some(to)) = (self.usable_name(), self.free_name()) else { return Ok(()) };
        let key = self.state.keys[&from].clone();
        if key.capacity > 50_000 {
            return Ok(());
        }
        self.select(client, from.0)?;
        if key.kind != Kind::Bloom {
            return self.load_chunks(client, board, &from.1, to, key);
        }
        let (mut iterator, mut pieces) = (0, Vec::new());
        loop {
            let words: [&[u8]; 3] = [b"BF.SCANDUMP", from.1.as_bytes(), &iterator.to_string().into_bytes()];
            let reply = self.call(client, &words)?;
            iterator = reply.array()[0].int() as u64;
            if iterator == 0 {
                break;
            }
            pieces.push((iterator, reply.array()[1].bulk().to_vec()));
        }
        let mut ops = Vec::new();
        if self.state.keys.contains_key(&to) {
            ops.push(Op::Delete(vec![to.clone()]));
        }
        let last = pieces.len() - 1;
        for (place, (iterator, data)) in pieces.into_iter().enumerate() {
            ops.push(match place {
                0 => Op::Header(to.clone(), Box::new(key.clone()), data),
                _ => Op::Chunk(to.clone(), iterator, data, place == last),
            });
        }
        ops.iter().for_each(|op| self.state.apply(op));
        self.send(client, board, &ops)
    }

    /// The same of other kinds: the chunks come at once, or one by one between other changes.
    fn load_chunks(&mut self, client: &mut Client, board: &Board, from: &str, to: Name, key: Key) -> io::Result<()> {
        let (kind, mut cursor, mut chunks) = (key.kind, 0, Vec::new());
        let command = format!("{}.SCANDUMP", kind.family());
        loop {
            let words = [command.as_bytes(), from.as_bytes(), &cursor.to_string().into_bytes()];
            let reply = self.call(client, &words)?;
            cursor = reply.array()[0].int();
            if cursor == 0 {
                break;
            }
            chunks.push((cursor, reply.array()[1].bulk().to_vec()));
        }
        let (dump, mut ops) = (Arc::new(Dump { kind, chunks }), Vec::new());
        if self.state.keys.contains_key(&to) {
            ops.push(Op::Delete(vec![to.clone()]));
        }
        ops.push(Op::LoadHeader(to.clone(), Box::new(key), dump.clone()));
        if self.random.percent(40) {
            ops.extend((1..dump.chunks.len()).map(|chunk| Op::LoadChunk(to.clone(), dump.clone(), chunk)));
        }
        ops.iter().for_each(|op| self.state.apply(op));
        self.send(client, board, &ops)
    }

    /// What one client is told of the other's changes holds as well.
    fn look_at_others(&mut self, client: &mut Client, board: &Board) -> io::Result<()> {
        let other = self.random.below(CLIENTS);
        let published = board.published[other].load(Ordering::SeqCst);
        if published == 0 || other == self.id {
            return Ok(());
        }
        let (place, batch) = ((published >> 32) as usize, Batch { number: published & 0xff_ffff, items: 1 });
        self.select(client, SHARED_DB)?;
        let (_, key) = shared_name(published >> 24 & 0xff);
        let reply = self.call(client, &[b"BF.EXISTS", key.as_bytes(), batch.item(other, 0).as_bytes()])?;
        if reply == 1 {
            board.seen[other].fetch_max(place + 1, Ordering::SeqCst);
        }
        Ok(())
    }

    /// Keys that all clients change as they like: nothing is expected of them, but the log has to fit all the same.
    fn chaos(&mut self, client: &mut Client) -> io::Result<()> {
        self.select(client, CHAOS_DB)?;
        let key = format!("chaos:{}", self.random.below(5));
        let other = format!("chaos:{}", self.random.below(5));
        let item = self.random.below(100_000);
        let line = match self.random.below(32) {
            0..=3 => format!("BF.ADD {key} {item}"),
            4 => {
                let items: Vec<String> = (item..item + 400).map(|item| item.to_string()).collect();
                format!("BF.MADD {key} {}", items.join(" "))
            }
            5 => format!("BF.INSERT {key} CAPACITY 20000 EX 100 ITEMS {item}"),
            6 => format!("BF.INSERT {key} CAPACITY 10 NONSCALING PX 3 ITEMS {item}"),
            7..=8 => format!("RENAME {key} {other}"),
            9..=10 => format!("COPY {key} {other} REPLACE"),
            11 => format!("DEL {key} {other}"),
            12 => format!("PEXPIRE {key} {}", item % 5),
            13 => format!("PERSIST {key}"),
            14 => format!("BF.MEXISTS {key} {item}"),
            15 => format!("CHAIN.RESERVE {key} 0.01 {} PWINDOW 9", 1 + item % 5000),
            16 => format!("CHAIN.UNSEENADD {key} COUNT 2 DUAL CAPACITY 30 ITEMS {item} a b c"),
            17 => {
                let items: Vec<String> = (item..item + 400).map(|item| item.to_string()).collect();
                format!("CHAIN.INSERT {key} KEYED IDLE 1 ITEMS {}", items.join(" "))
            }
            18 => format!("CHAIN.ROTATE {key}"),
            19 => format!("CHAIN.EXTEND {key} LINKS 9"),
            20 => format!("CHAIN.CLEAR {key}"),
            21 => format!("CHAIN.MERGE {key} {other} FORCE"),
            22 => format!("CHAIN.PROFILE SET {key} LINKS {}", 2 + item % 7),
            23 => format!("CBF.RESERVE {key} 0.01 {} COUNTERBITS 8", 1 + item % 5000),
            24 => {
                let family = if item.is_multiple_of(2) { "CBF" } else { "DLCBF" };
                let items: Vec<String> = (item..item + 400).map(|item| item.to_string()).collect();
                format!("{family}.MADD {key} {}", items.join(" "))
            }
            25 => {
                let family = if item.is_multiple_of(2) { "CBF" } else { "DLCBF" };
                let items: Vec<String> = (item..item + 400).map(|item| item.to_string()).collect();
                format!("{family}.MDEL {key} {}", items.join(" "))
            }
            26 => format!("CBF.DECAY {key}"),
            27 => format!("CBF.MERGE {key} {other} FORCE"),
            28 => format!("DLCBF.RESERVE {key} 0.01 {} EXPANSION 2 OVERFLOW SPILL", 1 + item % 500),
            29 => {
                // A load that never ends, unless somebody ends it.
                let (_, dump) = large_dump(*self.random.pick(&Kind::IN_CHUNKS));
                let (command, (cursor, header)) = (format!("{}.LOADCHUNK", dump.kind.family()), &dump.chunks[0]);
                let words = [command.as_bytes(), key.as_bytes(), &cursor.to_string().into_bytes(), header];
                return client.try_call(&words).map(drop);
            }
            _ => return self.chaos_group(client, &key, &other),
        };
        let words: Vec<&str> = line.split(' ').collect();
        client.try_call(&words).map(drop)
    }

    fn chaos_group(&mut self, client: &mut Client, key: &str, other: &str) -> io::Result<()> {
        let item = self.random.below(100_000);
        for line in [
            "MULTI".to_owned(),
            format!("BF.ADD {key} {item}"),
            format!("RENAME {key} {other}"),
            format!("PEXPIRE {other} {}", item % 4),
            format!("COPY {other} {key} REPLACE"),
            format!("BF.ADD {other} {item}"),
            "EXEC".to_owned(),
        ] {
            let words: Vec<&str> = line.split(' ').collect();
            client.try_call(&words)?;
        }
        Ok(())
    }
}

/// What a reply says if the log fails: that a change was refused, or that it is not known whether it is kept.
fn failure(reply: &Value) -> Option<io::Error> {
    match reply {
        Value::Error(text) if text.contains("may or may not") => Some(io::Error::other("unknown")),
        Value::Error(text) if text.starts_with("MISCONF") || text.starts_with("EXECABORT") => {
            Some(io::ErrorKind::PermissionDenied.into())
        }
        _ => None,
    }
}

fn is_refusal(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied
}

/// Whether the key is whole and stays for as long as the test.
fn is_usable(key: &Key) -> bool {
    key.bits == Bits::Whole && key.life.is_none_or(|life| life > now_ms() + LONG_MS / 2)
}
