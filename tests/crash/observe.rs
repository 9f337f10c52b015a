//! What a server has after a start, and which of the states that a client expects it is.

use std::collections::{BTreeMap, BTreeSet};

use super::actor::now_ms;
use super::model::{Batch, Bits, Counts, Key, Kind, MAYBE, Name, Op, SHARED_DB, State, own_dbs, profiles};
use crate::support::{Client, Value};

/// A key as it was found.
pub struct Found {
    kind: Kind,
    card: u64,
    capacity: u64,
    life: Option<u64>,
    /// Links of a ring.
    links: u64,
    /// Its load is not over.
    loading: bool,
    /// How often each item of these batches is there; at most once in what does not count.
    batches: BTreeMap<Batch, Vec<u64>>,
}

/// So many batches may seem to be in a filter although they are not: false positives, more of them in small filters than were
/// asked for. What is really there and should not be is seen by the count. Those that count are never so full.
const MOST_STRANGE: usize = 3;

impl Found {
    /// Batches of which something is there.
    fn strange(&self, is_strange: impl Fn(&Batch) -> bool) -> Vec<&Batch> {
        let found = |times: &Vec<u64>| times.iter().filter(|times| **times > 0).count() as u64;
        let there = self.batches.iter().filter(|(batch, times)| found(times) > batch.items / 10 && is_strange(batch));
        there.map(|(batch, _)| batch).collect()
    }
}

/// The keys of a client as they were found.
pub struct Sight {
    keys: BTreeMap<Name, Found>,
    profiles: BTreeMap<String, u64>,
    from: u64,
    to: u64,
}

/// Batches that may be in each key, from any of the states.
fn possible(base: &State, journal: &[Op]) -> BTreeMap<Name, BTreeSet<Batch>> {
    let (mut state, mut all) = (base.clone(), BTreeMap::<Name, BTreeSet<Batch>>::new());
    let mut note = |state: &State| {
        for (name, key) in &state.keys {
            let batches = all.entry(name.clone()).or_default();
            if !key.batches.keys().all(|batch| batches.contains(batch)) {
                batches.extend(key.batches.keys());
            }
        }
    };
    note(&state);
    for op in journal {
        state.apply(op);
        note(&state);
    }
    all
}

impl Sight {
    pub fn take(client: &mut Client, id: usize, base: &State, journal: &[Op]) -> Self {
        let (from, mut keys) = (now_ms(), BTreeMap::new());
        let asked = possible(base, journal);
        let mut names: Vec<Name> = asked.keys().filter(|(db, _)| *db == SHARED_DB).cloned().collect();
        for db in own_dbs(id) {
            assert!(client.cmd(&format!("SELECT {db}")) == "OK");
            names.extend(client.cmd("KEYS *").array().iter().map(|key| (db, key.text())));
        }
        for name in names {
            assert!(client.cmd(&format!("SELECT {}", name.0)) == "OK");
            let batches = asked.get(&name).into_iter().flatten();
            if let Some(found) = find(client, id, &name.1, batches) {
                keys.insert(name, found);
            }
        }
        let own = profiles(id).map(|prefix| (client.cmd(&format!("CHAIN.PROFILE GET {prefix}")), prefix));
        let own = own.into_iter().filter(|(profile, _)| *profile != Value::Null);
        let profiles = own.map(|(profile, prefix)| (prefix, profile.field("capacity").int() as u64)).collect();
        Self { keys, profiles, from, to: now_ms() }
    }

    /// Why this is not that state, if it is not.
    pub fn check(&self, state: &State, counts: &Counts) -> Result<(), String> {
        for (name, key) in &state.keys {
            match self.keys.get(name) {
                Some(found) => self.check_key(name, key, found, counts).map_err(|why| format!("{name:?}: {why}"))?,
                None if key.life.is_some_and(|life| life <= self.to || life == MAYBE) => {}
                None => return Err(format!("{name:?} is missing")),
            }
        }
        let unexpected = |(name, found): &(&Name, &Found)| {
            // A shared filter is there before its client adds to it.
            let empty = name.0 == SHARED_DB && found.strange(|_| true).len() <= MOST_STRANGE;
            !state.keys.contains_key(*name) && !empty
        };
        match self.keys.iter().find(unexpected) {
            Some((name, _)) => Err(format!("{name:?} is there")),
            None if self.profiles != state.profiles => Err(format!("its profiles are {:?}", self.profiles)),
            None => Ok(()),
        }
    }

    fn check_key(&self, name: &Name, key: &Key, found: &Found, counts: &Counts) -> Result<(), String> {
        let own = name.0 != SHARED_DB;
        let life = key.life.filter(|life| *life != MAYBE);
        if own && (found.life != life || life.is_some_and(|life| life <= self.from)) {
            return Err(format!("its life is {:?}, not {life:?}, now is {}", found.life, self.from));
        }
        if found.kind != key.kind {
            return Err(format!("it is a {:?}, not a {:?}", found.kind, key.kind));
        }
        if found.loading != key.load.is_some() {
            return Err(format!("that it is being loaded is {}", found.loading));
        }
        if found.loading {
            return Ok(());
        }
        if own && found.links != key.links {
            return Err(format!("it has {} links, not {}", found.links, key.links));
        }
        let (least, most) = match key.kind.counts() {
            true => (key.items(), key.items()),
            false => {
                let (least, most) = counts.range(&key.batches);
                (least + key.before, most + key.before)
            }
        };
        if own && !key.estimated && (found.card < least || found.card > most) {
            return Err(format!("it counts {} items, not {least} to {most}", found.card));
        }
        if own && found.card <= key.capacity && !key.grows() && found.capacity != key.capacity {
            return Err(format!("its capacity is {}, not {}", found.capacity, key.capacity));
        }
        let differs = |(batch, found): &(&Batch, &Vec<u64>)| {
            let times = key.batches.get(batch);
            times.is_some_and(|times| found.iter().any(|found| found != times))
        };
        if let Some((batch, times)) = found.batches.iter().find(differs).filter(|_| key.bits == Bits::Whole) {
            return Err(format!("the items of {batch:?} are there {times:?} times, not {:?}", key.batches[batch]));
        }
        let strange = found.strange(|batch| !key.batches.contains_key(batch));
        let most = if key.kind.counts() { 0 } else { MOST_STRANGE };
        if strange.len() > most {
            return Err(format!("it has items of {strange:?}"));
        }
        Ok(())
    }

    /// What a state turned out to be that could be more than one.
    pub fn settle(&self, state: &mut State) {
        state.keys.retain(|name, key| key.life != Some(MAYBE) || self.keys.contains_key(name));
        for key in state.keys.values_mut() {
            key.life = key.life.filter(|life| *life != MAYBE);
            // Chunks that were taken are forgotten, but for the header.
            key.load.iter_mut().for_each(|(_, taken)| *taken = 1);
        }
    }
}

fn find<'b>(client: &mut Client, id: usize, key: &str, batches: impl Iterator<Item = &'b Batch>) -> Option<Found> {
    let kind = Kind::of(&client.cmd(&format!("TYPE {key}")).text())?;
    let info = client.cmd(&format!("{}.INFO {key}", kind.family()));
    let loading = matches!(&info, Value::Error(text) if text.starts_with("ERR filter is being loaded: 0 of "));
    if matches!(info, Value::Error(_)) && !loading {
        // Its life has just ended.
        return None;
    }
    let number = |field: &str| if loading { 0 } else { info.field(field).int() as u64 };
    let (card, capacity) = (number("Number of items inserted"), number("Capacity"));
    let links = if kind == Kind::Ring { number("Number of links") } else { 0 };
    let life = client.cmd(&format!("PEXPIRETIME {key}")).int();
    let life = u64::try_from(life).ok();
    let mut found = BTreeMap::new();
    let batches = batches.filter(|_| !loading);
    let batches: Vec<Batch> = batches.copied().collect();
    for some in batches.chunks(200) {
        let question = if kind.counts() { "MCOUNT" } else { "MEXISTS" };
        let mut words = vec![format!("{}.{question}", kind.family()), key.to_owned()];
        some.iter().for_each(|batch| words.extend(batch.names(id)));
        let reply = client.call(&words);
        // The life of the key may end meanwhile.
        let answers: &[Value] = if let Value::Array(answers) = &reply { answers } else { &[] };
        let mut answers = answers.iter().map(|answer| answer.int() as u64);
        for batch in some {
            found.insert(*batch, answers.by_ref().take(batch.items as usize).collect());
        }
    }
    // A key whose life ended in the middle of this has no word in it.
    let still = client.cmd(&format!("EXISTS {key}")) == 1;
    still.then_some(Found { kind, card, capacity, life, links, loading, batches: found })
}
