//! From key to key.
//!
//! One family goes after the other. SCAN gives names; of each group of them the sizes are asked, and those that are not large go on together: `DUMP` and the
//! moment of their end from the source in one pipeline, `RESTORE` to the target in another. What the target does not take in
//! this way is tried by `pieces`.

use std::mem::take;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;

use super::journal::{Journal, Names, Past};
use super::options::Options;
use super::progress::{Outcome, Progress, Tally};
use super::source::{Found, Kind, Life, Source};
use super::stop::{End, Stop, concerns_all};
use super::target::{Request, Target};
use crate::codec::payload;
use crate::tools::client::Reply;
use crate::tools::families::Family;

/// Keys on their way at once.
const GROUP_KEYS: usize = 100;
/// Bytes on their way at once, unless a single filter has more.
const GROUP_BYTES: u64 = 32 << 20;
/// A payload is longer by less than this than the size that `INFO` of its family says.
const FIELDS_BYTES: u64 = 4096;
/// RDB version that every server takes which has modules at all (Redis 4.0); the value is the same in all.
const OLD_VERSION: u16 = 8;

/// A copy under way.
pub struct Copier {
    pub(super) options: Options,
    pub(super) source: Source,
    pub(super) target: Target,
    journal: Option<Journal>,
    /// Keys that the source has listed.
    seen: Names,
    /// Keys that earlier runs finished.
    done: Names,
    /// Keys that an interrupted run may have written.
    begun: Names,
    /// The target refused the version of the source's payloads.
    lower_version: bool,
    stop: Arc<AtomicBool>,
    /// What came of the keys so far.
    pub tally: Tally,
    /// How far it is.
    pub progress: Progress,
}

/// A filter between the two.
struct Parcel {
    key: Bytes,
    payload: Bytes,
    life: Life,
}

impl Copier {
    /// Connects to both ends and reads the file of progress.
    pub fn new(options: Options, stop: Arc<AtomicBool>) -> Result<Copier, Stop> {
        let (from, to) = (&options.from, &options.to);
        if (from.host.as_str(), from.port, from.db) == (to.host.as_str(), to.port, to.db) {
            return Err(Stop::Same);
        }
        let mut source = Source::connect(from)?;
        if options.empty && source.kind() == Kind::RedisBloom {
            return Err(Stop::Whole);
        }
        let target = Target::connect(to, options.cluster)?;
        let (journal, past) = match &options.resume {
            Some(path) => Journal::open(path, from, to).map(|(journal, past)| (Some(journal), past))?,
            None => Default::default(),
        };
        let progress = Progress::new(options.progress, source.keys()?);
        let tally = Tally { empty: options.empty, chosen: !options.families.is_empty(), ..Tally::default() };
        let (seen, Past { done, begun }) = (Names::new(), past);
        Ok(Copier { options, source, target, journal, seen, done, begun, lower_version: false, stop, tally, progress })
    }

    /// Copies everything.
    pub fn run(&mut self) -> Result<(), Stop> {
        let wanted = |family: &Family| self.options.families.is_empty() || self.options.families.contains(family);
        let families: Vec<_> = self.source.families().iter().copied().filter(wanted).collect();
        if families.contains(&Family::Chain) {
            self.copy_profiles()?;
        }
        for family in families {
            self.copy_family(family)?;
        }
        if self.options.pattern.is_none() {
            self.tally.others = Some(self.source.keys()?.saturating_sub(self.seen.count() as u64));
        }
        Ok(())
    }

    /// Copies all filters of a family; names them if the target cannot have them.
    fn copy_family(&mut self, family: Family) -> Result<(), Stop> {
        let mut cursor = Bytes::from_static(b"0");
        loop {
            let (next, mut names) = self.source.scan(family, &cursor, self.options.pattern.as_deref())?;
            names.retain(|name| self.seen.insert(name));
            for group in names.chunks(GROUP_KEYS) {
                self.check_stop()?;
                if self.target.takes(family) {
                    let group = self.without_finished(group)?;
                    self.copy_group(family, &group)?;
                } else {
                    group.iter().for_each(|key| self.tally.leave(family, key));
                }
                self.progress.tell(&self.tally, 0);
            }
            if *next == *b"0" {
                return Ok(());
            }
            cursor = next;
        }
    }

    /// An error once somebody wants the copy to end.
    pub(super) fn check_stop(&self) -> Result<(), Stop> {
        if self.stop.load(Ordering::Relaxed) { Err(Stop::Interrupted) } else { Ok(()) }
    }

    /// Whether a key at the target may be replaced: it is asked for, or an earlier run of ours wrote it.
    pub(super) fn may_replace(&self, key: &[u8]) -> bool {
        self.options.replace || self.begun.contains(key)
    }

    /// Leaves out what earlier runs finished, if the target still has it: one that was started anew may have lost it.
    fn without_finished(&mut self, keys: &[Bytes]) -> Result<Vec<Bytes>, Stop> {
        let (done, mut left): (Vec<_>, Vec<_>) = keys.iter().cloned().partition(|key| self.done.contains(key));
        for (key, there) in done.iter().zip(self.target.has(&done)?) {
            if there {
                self.tally.before += 1;
            } else {
                self.tally.lost += 1;
                left.push(key.clone());
            }
        }
        Ok(left)
    }

    fn copy_group(&mut self, family: Family, keys: &[Bytes]) -> Result<(), Stop> {
        if self.source.kind() == Kind::Valkey {
            return self.make_empty(keys);
        }
        let (mut group, mut bytes) = (Vec::new(), 0);
        let large = self.options.pieces_from.min(self.target.word_bytes().saturating_sub(FIELDS_BYTES));
        for (key, size) in keys.iter().zip(self.source.sizes(family, keys)?) {
            match size {
                Found::Gone => self.tally.add(key, Outcome::Gone),
                Found::Refused(text) => self.tally.add(key, Outcome::Refused(text)),
                Found::Here(size) if size > large => self.copy_alone(family, key)?,
                Found::Here(size) => {
                    if bytes + size > GROUP_BYTES {
                        self.copy_small(family, &take(&mut group))?;
                        bytes = 0;
                    }
                    bytes += size;
                    group.push(key.clone());
                }
            }
        }
        self.copy_small(family, &group)
    }

    /// A key that goes in pieces.
    fn copy_alone(&mut self, family: Family, key: &Bytes) -> Result<(), Stop> {
        for key in self.begin(std::slice::from_ref(key))? {
            let outcome = self.copy_pieces(family, &key)?;
            self.finish(vec![(key, outcome)])?;
        }
        Ok(())
    }

    fn copy_small(&mut self, family: Family, keys: &[Bytes]) -> Result<(), Stop> {
        let keys = self.begin(keys)?;
        let mut finished = Vec::with_capacity(keys.len());
        let mut parcels = Vec::with_capacity(keys.len());
        for (key, dump) in keys.iter().zip(self.source.dumps(&keys)?) {
            match dump {
                Found::Here((payload, life)) => parcels.push(Parcel { key: key.clone(), payload, life }),
                Found::Gone => finished.push((key.clone(), Outcome::Gone)),
                Found::Refused(text) => finished.push((key.clone(), Outcome::Refused(text))),
            }
        }
        let mut left = self.restore(parcels, &mut finished)?;
        if !left.is_empty() && !self.lower_version {
            self.lower_version = true;
            left = self.restore(left, &mut finished)?;
        }
        self.finish(finished)?;
        for parcel in left {
            let outcome = self.copy_pieces(family, &parcel.key)?;
            self.finish(vec![(parcel.key, outcome)])?;
        }
        Ok(())
    }

    /// Hands parcels to the target; returns those whose payload it does not take.
    fn restore(&mut self, mut parcels: Vec<Parcel>, finished: &mut Vec<(Bytes, Outcome)>) -> Result<Vec<Parcel>, Stop> {
        if self.lower_version {
            for parcel in &mut parcels {
                // What is damaged, or no filter as we know it, is left as it is, to be refused.
                let lowered = payload::with_version(&parcel.payload, OLD_VERSION).ok();
                if let Some(lowered) = lowered.filter(|lowered| payload::read(lowered).is_ok()) {
                    parcel.payload = lowered.into();
                }
            }
        }
        let requests: Vec<_> = parcels
            .iter()
            .map(|p| Request::restore(&p.key, p.payload.clone(), p.life, self.may_replace(&p.key)))
            .collect();
        let replies = self.target.run(&requests)?;
        let (mut left, mut stop) = (Vec::new(), None);
        for (parcel, reply) in parcels.into_iter().zip(replies) {
            let bytes = parcel.payload.len() as u64;
            match judge(reply) {
                Verdict::Done => finished.push((parcel.key, Outcome::Copied(bytes))),
                Verdict::Exists => finished.push((parcel.key, Outcome::Exists)),
                Verdict::OtherForm => left.push(parcel),
                Verdict::No(text) => finished.push((parcel.key, Outcome::Refused(text))),
                Verdict::Never(text) => stop = stop.or(Some(text)),
            }
        }
        match stop {
            Some(text) => {
                self.finish(take(finished))?;
                Err(Stop::Refused { end: End::Target, text })
            }
            None => Ok(left),
        }
    }

    /// Writes down which keys are about to be written to the target; those that it has already are left out.
    pub(super) fn begin(&mut self, keys: &[Bytes]) -> Result<Vec<Bytes>, Stop> {
        let Some(journal) = self.journal.as_mut().filter(|_| !self.options.replace) else { return Ok(keys.to_vec()) };
        let there = self.target.has(keys)?;
        let (mut new, mut all) = (Vec::new(), Vec::new());
        for (key, there) in keys.iter().zip(there) {
            if self.begun.contains(key) {
                all.push(key.clone());
            } else if there {
                self.tally.add(key, Outcome::Exists);
            } else {
                new.push(key.clone());
            }
        }
        journal.begin(new.iter().map(|key| &**key))?;
        all.append(&mut new);
        Ok(all)
    }

    /// Counts keys, and writes down those that have arrived.
    pub(super) fn finish(&mut self, keys: Vec<(Bytes, Outcome)>) -> Result<(), Stop> {
        if let Some(journal) = &mut self.journal {
            let arrived = keys.iter().filter(|(_, outcome)| matches!(outcome, Outcome::Copied(_)));
            journal.finish(arrived.map(|(key, _)| &**key))?;
        }
        keys.into_iter().for_each(|(key, outcome)| self.tally.add(&key, outcome));
        Ok(())
    }
}

/// What the target says to a key.
#[derive(Debug, PartialEq)]
pub enum Verdict {
    /// It has it.
    Done,
    /// It had one before.
    Exists,
    /// It does not take it as this payload.
    OtherForm,
    /// It does not take it.
    No(String),
    /// It would not take any other either.
    Never(String),
}

/// Reads the target's reply to a key.
pub fn judge(reply: Reply) -> Verdict {
    match reply {
        Reply::Error(text) if text.starts_with("BUSYKEY") || text == "ERR item exists" => Verdict::Exists,
        Reply::Error(text) if concerns_all(&text) => Verdict::Never(text),
        Reply::Error(text) if text.contains("Bad data format") || text.contains("payload version") => {
            Verdict::OtherForm
        }
        Reply::Error(text) => Verdict::No(format!("the target says: {text}")),
        _ => Verdict::Done,
    }
}
