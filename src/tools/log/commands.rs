//! Records as commands that make the same filters, to the bit, on a server that was empty.
//!
//! What a command does to a filter follows from the filter; so the log is replayed beside, and before a record is printed as a
//! command it is asked whether the command would do the same. Where it would not, the key *lags*: what the server has under
//! its name is older than the log. It is printed as a whole when something else needs it, or at the end.
//!
//! | record | printed |
//! | --- | --- |
//! | filter made | `BF.RESERVE`, if there is one that makes just this filter, else the filter |
//! | items counted | `BF.MADD`, if it would count each of them, in this sub-filter |
//! | sub-filter | nothing, if the next item makes it by itself; until then the key lags |
//! | header, chunk | `BF.LOADCHUNK` |
//! | header of a ring | `CHAIN.LOADCHUNK`, also for one in the base; the ring when it is whole |
//! | anything else of a ring | the ring, when something else needs it or at the end: its commands depend on the clock |
//! | restored | `RESTORE`, large ones as the filter |
//! | life | at the end |
//! | copied | `COPY`; the filter for RedisBloom, which has no `COPY` of filters |
//! | others | the command that they came from |
//!
//! **For Redis** all but Bloom filters is left out, profiles of rings too, and told at the end: what takes a filter's place
//! deletes it.
//!
//! **A chunk** is printed as the bytes that are there afterwards: RedisBloom puts them in place of its own, SeenDB ors them.

use std::collections::HashMap;
use std::io::Write;
use std::path::Path;

use super::model::{Model, reserve_words};
use super::resp::Resp;
use super::text::profile_options;
use super::{CatError, Printer, iterator};
use crate::codec::cells_dump::{CountingLoad, DleftLoad};
use crate::codec::payload::{self, RDB_VERSION};
use crate::codec::ring_dump::RingLoad;
use crate::codec::value::{HalfLoaded, Load};
use crate::keyspace::effect::{Effect, Profile};
use crate::keyspace::entry::{EntryRef, ValueRef};
use crate::persist::files::Files;
use crate::persist::record::{Change, Record, Unit, for_each_record};
use crate::persist::replay::ReplayError;
use crate::persist::snapshot::read::Progress;
use crate::tools::keys::{Form, WHOLE_BYTES, filter, for_each_key, form_of, pieces};
use crate::tools::meter::count;
use crate::tools::names::shown;

/// In what a key lags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lag {
    /// The last sub-filter, which the next item makes.
    Growth,
    /// Anything.
    Filter,
}

/// Prints commands.
pub struct Commands<W> {
    out: Resp<W>,
    model: Model,
    lagging: HashMap<(usize, Vec<u8>), Lag>,
    /// Whether the server is Redis, which has Bloom filters only and cannot copy them.
    redis: bool,
}

/// So many filters that were left out are named.
const NAMED: usize = 3;

impl<W: Write> Commands<W> {
    /// Prints to `out`, for Redis or for SeenDB.
    pub fn new(out: Resp<W>, redis: bool) -> Commands<W> {
        Commands { out, model: Model::new(), lagging: HashMap::new(), redis }
    }

    /// Whether a key is a filter that the server cannot have.
    fn is_left_out(&self, db: usize, name: &[u8]) -> Result<bool, CatError> {
        Ok(self.redis && self.model.look(db, name, |entry| entry.is_some_and(is_ours_alone))?)
    }

    fn lag(&self, db: usize, name: &[u8]) -> Option<Lag> {
        // Mostly nothing lags, and no name is copied.
        if self.lagging.is_empty() { None } else { self.lagging.get(&(db, name.to_vec())).copied() }
    }

    fn set_lag(&mut self, db: usize, name: &[u8], lag: Lag) {
        self.lagging.insert((db, name.to_vec()), lag);
    }

    /// The server has the key as it is here, or is about to lose it.
    fn forget_lag(&mut self, db: usize, name: &[u8]) {
        if !self.lagging.is_empty() {
            self.lagging.remove(&(db, name.to_vec()));
        }
    }

    /// Prints a key that lags.
    fn catch_up(&mut self, db: usize, name: &[u8]) -> Result<(), CatError> {
        if self.lag(db, name).is_some() {
            self.whole(db, name)?;
        }
        Ok(())
    }

    /// Prints all keys of these databases that lag.
    fn catch_up_all(&mut self, concerned: impl Fn(usize) -> bool) -> Result<(), CatError> {
        let names: Vec<_> = self.lagging.keys().filter(|(db, _)| concerned(*db)).cloned().collect();
        names.iter().try_for_each(|(db, name)| self.whole(*db, name))
    }

    /// Prints a key as it is.
    fn whole(&mut self, db: usize, name: &[u8]) -> Result<(), CatError> {
        self.forget_lag(db, name);
        if self.is_left_out(db, name)? {
            return Ok(self.out.request(db, &[b"DEL", name])?);
        }
        let out = &mut self.out;
        let printed = self.model.look(db, name, |entry| entry.map(|entry| print_key(out, db, name, entry)))?;
        printed.unwrap_or(Err(CatError::Replay(ReplayError::Unfitting)))
    }

    fn delete_if_there(&mut self, db: usize, name: &[u8]) -> Result<(), CatError> {
        self.forget_lag(db, name);
        if self.model.has(db, name)? {
            self.out.request(db, &[b"DEL", name])?;
        }
        Ok(())
    }

    fn record(&mut self, record: &Record<'_>) -> Result<(), CatError> {
        let Record { db, name, change } = record;
        match change {
            Change::BloomAdded { link, items } => self.added(*db, name, *link, items),
            Change::RingAdded { event, items } => {
                self.others_lag(*db, name);
                Ok(self.model.apply(*db, name, &Effect::RingAdded { event: *event, items })?)
            }
            Change::Counted { what, items } => {
                self.others_lag(*db, name);
                Ok(self.model.apply(*db, name, &what.effect(items))?)
            }
            Change::Effect(effect) => {
                if !self.concerns_left_out(*db, name, effect)? {
                    self.before(*db, name, effect)?;
                }
                self.model.apply(*db, name, effect)?;
                self.after(*db, name, effect)
            }
        }
    }

    /// Items are done one after the other: each may be found because of the one before it.
    fn added(&mut self, db: usize, name: &[u8], link: u32, items: &[&[u8]]) -> Result<(), CatError> {
        let mut same = self.lag(db, name) != Some(Lag::Filter);
        for item in items {
            same = same && self.model.counts_next(db, name, link, item)?;
            self.model.apply(db, name, &Effect::BloomAdded { link, items: &[item] })?;
        }
        if !same {
            self.set_lag(db, name, Lag::Filter);
        } else if !items.is_empty() {
            self.forget_lag(db, name);
            let words: Vec<&[u8]> = [b"BF.MADD", name].into_iter().chain(items.iter().copied()).collect();
            self.out.request(db, &words)?;
        }
        Ok(())
    }

    /// A filter that is not of Redis lags, unless it is left out.
    fn others_lag(&mut self, db: usize, name: &[u8]) {
        if !self.redis {
            self.set_lag(db, name, Lag::Filter);
        }
    }

    /// Whether an effect is about something that the server cannot have. Filters in whose place it comes go.
    fn concerns_left_out(&mut self, db: usize, name: &[u8], effect: &Effect<'_>) -> Result<bool, CatError> {
        match *effect {
            Effect::Profile { .. } => return Ok(self.redis),
            Effect::Deleted { .. } | Effect::Life { .. } | Effect::Renamed { .. } | Effect::Moved { .. } => {}
            _ => return Ok(false),
        }
        let left_out = self.is_left_out(db, name)?;
        match *effect {
            Effect::Renamed { to } if left_out => self.delete_if_there(db, to)?,
            Effect::Moved { db: other } if left_out => self.delete_if_there(other, name)?,
            _ => {}
        }
        Ok(left_out)
    }

    /// What is printed while the key is as the record found it.
    fn before(&mut self, db: usize, name: &[u8], effect: &Effect<'_>) -> Result<(), CatError> {
        match *effect {
            Effect::BloomCreated { .. } | Effect::BloomHeader { .. } => self.delete_if_there(db, name)?,
            Effect::BloomGrown { shape } => {
                let same = self.lag(db, name).is_none() && self.model.grows_next(db, name, &shape)?;
                self.set_lag(db, name, if same { Lag::Growth } else { Lag::Filter });
            }
            Effect::BloomChunk { .. } if self.lag(db, name).is_some() => self.set_lag(db, name, Lag::Filter),
            Effect::Deleted { .. } => {
                self.forget_lag(db, name);
                self.out.request(db, &[b"DEL", name])?;
            }
            Effect::Profile { settings } => print_profile(&mut self.out, name, settings.as_ref())?,
            Effect::Life { life: None } => self.out.request(db, &[b"PERSIST", name])?,
            Effect::Renamed { to } => {
                self.catch_up(db, name)?;
                self.forget_lag(db, to);
                self.out.request(db, &[b"RENAME", name, to])?;
            }
            Effect::Copied { db: other, to } if !self.redis => {
                self.catch_up(db, name)?;
                self.forget_lag(other, to);
                let number = other.to_string();
                self.out.request(db, &[b"COPY", name, to, b"DB", number.as_bytes(), b"REPLACE"])?;
            }
            Effect::Moved { db: other } => {
                self.catch_up(db, name)?;
                self.delete_if_there(other, name)?;
                self.out.request(db, &[b"MOVE", name, other.to_string().as_bytes()])?;
            }
            Effect::Flushed { all } => {
                self.lagging.retain(|(lagging, _), _| !all && *lagging != db);
                self.out.request(db, &[if all { b"FLUSHALL" } else { b"FLUSHDB" }])?;
            }
            Effect::Swapped { with } => {
                self.catch_up_all(|lagging| lagging == db || lagging == with)?;
                let (one, other) = (db.to_string(), with.to_string());
                self.out.request(db, &[b"SWAPDB", one.as_bytes(), other.as_bytes()])?;
            }
            _ => {}
        }
        Ok(())
    }

    /// What is printed when the key is as the record left it.
    fn after(&mut self, db: usize, name: &[u8], effect: &Effect<'_>) -> Result<(), CatError> {
        match *effect {
            Effect::RingHeader { .. } if self.redis => Ok(()),
            Effect::Restored { .. } if self.is_left_out(db, name)? => self.whole(db, name),
            Effect::BloomCreated { shape, options, growth, .. } => match reserve_words(&shape, options, growth) {
                Some(more) => {
                    let more = more.iter().map(String::as_bytes);
                    let words: Vec<_> = [b"BF.RESERVE", name].into_iter().chain(more).collect();
                    Ok(self.out.request(db, &words)?)
                }
                None => self.whole(db, name),
            },
            Effect::BloomHeader { header } => Ok(self.out.request(db, &[b"BF.LOADCHUNK", name, b"1", header])?),
            Effect::RingHeader { cursor, header } => self.load_begins::<RingLoad>(db, name, cursor, header),
            Effect::CountingHeader { cursor, header } => self.load_begins::<CountingLoad>(db, name, cursor, header),
            Effect::DleftHeader { cursor, header } => self.load_begins::<DleftLoad>(db, name, cursor, header),
            Effect::BloomChunk { link, offset, data } if self.lag(db, name).is_none() && !data.is_empty() => {
                self.chunk(db, name, link as usize, offset, data.len())
            }
            Effect::Copied { db: other, to } if self.redis => self.whole(other, to),
            Effect::RingCreated { .. }
            | Effect::RingRotated
            | Effect::RingCleared
            | Effect::RingLinks { .. }
            | Effect::CountingCreated { .. }
            | Effect::CountingDecayed
            | Effect::DleftCreated { .. } => {
                self.others_lag(db, name);
                Ok(())
            }
            Effect::Restored { payload, .. } => {
                self.forget_lag(db, name);
                let lowered = payload::with_version(payload, RDB_VERSION).ok();
                match lowered.filter(|payload| payload.len() as u64 <= WHOLE_BYTES) {
                    Some(payload) => Ok(self.out.request(db, &[b"RESTORE", name, b"0", &payload, b"REPLACE"])?),
                    None => self.whole(db, name),
                }
            }
            _ => Ok(()),
        }
    }

    fn load_begins<L: Load>(&mut self, db: usize, name: &[u8], cursor: u64, header: &[u8]) -> Result<(), CatError> {
        Ok(self.out.request(db, &[L::COMMAND.as_bytes(), name, cursor.to_string().as_bytes(), header])?)
    }

    fn chunk(&mut self, db: usize, name: &[u8], link: usize, offset: u64, len: usize) -> Result<(), CatError> {
        let (position, data) = self.model.look_at_filter(db, name, |bloom| {
            let mut data = vec![0; len];
            // The replay has let it in, so it lies inside.
            bloom.copy_bytes(link, offset as usize, &mut data);
            (bloom.links().take(link).map(|info| info.shape.bytes).sum::<u64>() + offset, data)
        })?;
        let iterator = iterator(position, len).to_string();
        Ok(self.out.request(db, &[b"BF.LOADCHUNK", name, iterator.as_bytes(), &data])?)
    }

    fn lives(&mut self) -> Result<(), CatError> {
        let (out, redis) = (&mut self.out, self.redis);
        for_each_key(self.model.keyspace(), |db, entry| {
            let Some(life) = entry.life().filter(|_| !(redis && is_ours_alone(entry))) else { return Ok(()) };
            Ok(out.request(db, &[b"PEXPIREAT", entry.name(), life.to_string().as_bytes()])?)
        })
    }
}

/// What its client has to know: a load of this filter is to begin anew.
fn print_half<W: Write, L: Load>(
    out: &mut Resp<W>,
    db: usize,
    name: &[u8],
    half: &HalfLoaded<L>,
) -> Result<(), CatError> {
    out.request(db, &[b"DEL", name])?;
    Ok(out.request(db, &[L::COMMAND.as_bytes(), name, half.cursor.to_string().as_bytes(), &half.header])?)
}

/// Whether Redis has no such filter, with whatever module.
fn is_ours_alone(entry: EntryRef<'_>) -> bool {
    !matches!(entry.value(), ValueRef::Bloom(_))
}

/// Prints a key in place of one that may be there.
fn print_key<W: Write>(out: &mut Resp<W>, db: usize, name: &[u8], entry: EntryRef<'_>) -> Result<(), CatError> {
    match entry.value() {
        ValueRef::HalfRing(half) => return print_half(out, db, name, half),
        ValueRef::HalfCounting(half) => return print_half(out, db, name, half),
        ValueRef::HalfDleft(half) => return print_half(out, db, name, half),
        _ => {}
    }
    match form_of(entry, WHOLE_BYTES).transpose()? {
        None => {}
        Some(Form::Payload(payload)) => out.request(db, &[b"RESTORE", name, b"0", &payload, b"REPLACE"])?,
        Some(Form::Pieces(header)) => {
            let Some(bloom) = filter(entry) else { return Ok(()) };
            out.request(db, &[b"DEL", name])?;
            out.request(db, &[b"BF.LOADCHUNK", name, b"1", &header])?;
            pieces(bloom, WHOLE_BYTES, |iterator, data| {
                out.request(db, &[b"BF.LOADCHUNK", name, iterator.to_string().as_bytes(), &data])
            })?;
        }
    }
    Ok(())
}

/// Prints what rings get whose names begin like this.
fn print_profile<W: Write>(out: &mut Resp<W>, prefix: &[u8], profile: Option<&Profile>) -> Result<(), CatError> {
    let Some(profile) = profile else {
        return Ok(out.request(0, &[b"CHAIN.PROFILE", b"DEL", prefix])?);
    };
    let options = profile_options(profile);
    let start: [&[u8]; 3] = [b"CHAIN.PROFILE", b"SET", prefix];
    let words: Vec<&[u8]> = start.into_iter().chain(options.split_whitespace().map(str::as_bytes)).collect();
    Ok(out.request(0, &words)?)
}

impl<W: Write> Printer for Commands<W> {
    fn base(&mut self, files: &dyn Files, path: &Path, shown: bool, progress: &Progress) -> Result<(), String> {
        self.model.load(files, path, progress)?;
        if !shown {
            return Ok(());
        }
        let (out, redis) = (&mut self.out, self.redis);
        let profiles = self.model.keyspace().profiles().all();
        let mut profiles = profiles.iter().filter(|_| !redis);
        let printed = profiles.try_for_each(|(prefix, profile)| print_profile(out, prefix, Some(profile)));
        let printed = printed.and_then(|()| {
            for_each_key(self.model.keyspace(), |db, entry| match redis && is_ours_alone(entry) {
                true => Ok(()),
                false => print_key(out, db, entry.name(), entry),
            })
        });
        printed.map_err(|error| error.to_string())
    }

    fn unit(&mut self, unit: &Unit<'_>, _: u64, shown: bool) -> Result<(), CatError> {
        if !shown {
            return silently(&self.model, unit);
        }
        match unit {
            Unit::Record(record) => self.record(record),
            Unit::Group(records) => {
                self.out.begin();
                for_each_record(records, |record| self.record(record))?;
                Ok(self.out.end()?)
            }
        }
    }

    fn end(&mut self) -> Result<(), CatError> {
        self.catch_up_all(|_| true)?;
        self.lives()?;
        Ok(self.out.flush()?)
    }

    fn left_out(&self) -> Option<String> {
        let (mut filters, mut names) = (0, String::new());
        let _ = for_each_key(self.model.keyspace(), |db, entry| {
            if is_ours_alone(entry) {
                filters += 1;
                if filters <= NAMED as u64 {
                    let lead = if filters == 1 { ": " } else { ", " };
                    names += &format!("{lead}{} of database {db}", shown(entry.name()));
                }
            }
            Ok::<_, ()>(())
        });
        let more = if filters > NAMED as u64 { ", …" } else { "" };
        let profiles = self.model.keyspace().profiles().all().len() as u64;
        (self.redis && filters + profiles > 0).then(|| {
            format!(
                "left out, as Redis has Bloom filters only: {} of rings, {}{names}{more}",
                count(profiles, "profile"),
                count(filters, "other filter")
            )
        })
    }
}

/// What is not to be printed happens all the same.
fn silently(model: &Model, unit: &Unit<'_>) -> Result<(), CatError> {
    let apply = |record: &Record<'_>| -> Result<(), CatError> {
        Ok(record.change.with(|effect| model.apply(record.db, record.name, effect))?)
    };
    match unit {
        Unit::Record(record) => apply(record),
        Unit::Group(records) => for_each_record(records, apply),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filters::bloom::{Shape, options};
    use crate::persist::record::{encode, next_unit};

    /// The names of all requests.
    fn names(printed: &[u8]) -> Vec<String> {
        let text = String::from_utf8_lossy(printed);
        let lines: Vec<_> = text.split("\r\n").collect();
        (2..lines.len()).filter(|at| lines[at - 2].starts_with('*')).map(|at| lines[at].to_owned()).collect()
    }

    fn run(effects: &[(&[u8], Effect<'_>)]) -> (Vec<u8>, Vec<u8>) {
        let mut out = Vec::new();
        let mut commands = Commands::new(Resp::new(&mut out), false);
        for (name, effect) in effects {
            let mut bytes = Vec::new();
            encode(0, name, effect, &mut bytes);
            let (unit, rest) = next_unit(&bytes).unwrap();
            assert!(rest.is_empty());
            commands.unit(&unit, 0, true).unwrap();
        }
        commands.end().unwrap();
        let payload = commands.model.look_at_filter(0, b"k", |bloom| payload::dump(bloom).unwrap()).unwrap();
        (out, payload)
    }

    fn created(entries: u64, error: f64) -> Effect<'static> {
        let shape = Shape::first(entries, error, options::SCALING).unwrap();
        Effect::BloomCreated { shape, options: options::SCALING, growth: 2, life: None }
    }

    /// An item that looks as if it were there because of the others.
    fn false_positive(among: &[&[u8]], entries: u64) -> Vec<u8> {
        let model = Model::new();
        model.apply(0, b"k", &created(entries, 0.25)).unwrap();
        model.apply(0, b"k", &Effect::BloomAdded { link: 0, items: among }).unwrap();
        let seen = |item: &Vec<u8>| model.look_at_filter(0, b"k", |bloom| bloom.contains(bloom.hash(item))).unwrap();
        (0..u32::MAX).map(|i| format!("x{i}").into_bytes()).find(seen).unwrap()
    }

    #[test]
    fn adds_in_another_order_than_counted_are_not_printed_as_adds() {
        let items: Vec<Vec<u8>> = (0..8).map(|i| format!("item{i}").into_bytes()).collect();
        let items: Vec<&[u8]> = items.iter().map(Vec::as_slice).collect();
        let late = false_positive(&items, 10);
        let added = |items| Effect::BloomAdded { link: 0, items };
        let late = [late.as_slice()];
        let (printed, payload) = run(&[(b"k", created(10, 0.25)), (b"k", added(&items)), (b"k", added(&late))]);
        assert_eq!(names(&printed), ["BF.RESERVE", "BF.MADD", "RESTORE"]);
        assert!(printed.windows(payload.len()).any(|part| part == payload));
        // In the order in which they were counted.
        let (printed, _) = run(&[(b"k", created(10, 0.25)), (b"k", added(&late)), (b"k", added(&items[..1]))]);
        assert_eq!(names(&printed), ["BF.RESERVE", "BF.MADD", "BF.MADD"]);
    }

    #[test]
    fn a_sub_filter_is_made_by_the_next_item_or_printed_when_it_is_needed() {
        let first = Shape::first(1, 0.01, options::SCALING).unwrap();
        let grown = first.next(options::SCALING, 2).unwrap();
        let added = |link, items| Effect::BloomAdded { link, items };
        let (one, two): ([&[u8]; 1], [&[u8]; 1]) = ([b"1"], [b"2"]);
        let start =
            [(&b"k"[..], created(1, 0.01)), (b"k", added(0, &one)), (b"k", Effect::BloomGrown { shape: grown })];
        let with = |more: &[(&'static [u8], Effect<'static>)]| {
            let all: Vec<_> = start.iter().copied().chain(more.iter().copied()).collect();
            names(&run(&all).0)
        };
        assert_eq!(names(&run(&[start[0], start[1], start[2], (b"k", added(1, &two))]).0)[1..], ["BF.MADD", "BF.MADD"]);
        assert_eq!(with(&[])[2..], ["RESTORE"]);
        let copied = (&b"k"[..], Effect::Copied { db: 1, to: b"c" });
        assert_eq!(with(&[copied])[2..], ["RESTORE", "COPY"]);
        assert_eq!(
            with(&[(b"k", Effect::Swapped { with: 1 }), (b"", Effect::Swapped { with: 1 })])[2..4],
            ["RESTORE", "SWAPDB"]
        );
        // Another shape than the next item would make.
        let other = Shape { entries: 3, ..Shape::new(3, grown.error).unwrap() };
        let all = [start[0], start[1], (b"k", Effect::BloomGrown { shape: other }), (b"k", added(1, &two))];
        assert_eq!(names(&run(&all).0), ["BF.RESERVE", "BF.MADD", "RESTORE"]);
    }
}
