//! Filters from memory into a live server.
//!
//! Many small filters go with one batch of RESTORE. A large one is loaded in pieces under another name, with a life that lets
//! what a crash leaves behind end by itself, and gets its own name when it is whole.

use bytes::Bytes;

use crate::codec::value::{HalfLoaded, Load};
use crate::keyspace::entry::{EntryRef, ValueRef};
use crate::keyspace::{DATABASES, Keyspace};
use crate::tools::address::Address;
use crate::tools::client::Reply;
use crate::tools::copy::copier::{Verdict, judge};
use crate::tools::copy::pieces::{live_on, load};
use crate::tools::copy::profiles::profile;
use crate::tools::copy::source::Life;
use crate::tools::copy::stop::{End, Stop};
use crate::tools::copy::target::{Request, Target};
use crate::tools::families::Family;
use crate::tools::keys::{Form, Large, WHOLE_BYTES, filter, for_each_key, form_of, pieces};
use crate::tools::log::profile_options;
use crate::tools::meter::{amount, watch};
use crate::tools::names::shown;

use std::sync::atomic::{AtomicU64, Ordering};

/// Requests of a batch, and bytes.
const BATCH_KEYS: usize = 100;
const BATCH_BYTES: usize = 8 << 20;
/// So many keys that did not arrive are named.
const NAMED: usize = 10;

/// Where the filters go.
#[derive(Clone, Debug)]
pub struct Into {
    address: Address,
    /// All go into the database of the address.
    one_db: bool,
}

impl Into {
    /// An address; one with a database means that database for all.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Into, String> {
        let address = text.parse::<Address>().map_err(|error| error.to_string())?;
        let path = text.rsplit('@').next().unwrap_or_default().trim_start_matches("redis://");
        let one_db = path.split_once('/').is_some_and(|(_, db)| !db.is_empty());
        Ok(Into { address, one_db })
    }
}

/// What came of it.
#[derive(Default)]
struct Tally {
    sent: u64,
    lives: u64,
    bytes: u64,
    profiles: u64,
    failed: u64,
    examples: Vec<(String, String)>,
}

impl Tally {
    fn fail(&mut self, key: &[u8], reason: String) {
        self.failed += 1;
        if self.examples.len() < NAMED {
            self.examples.push((shown(key), reason));
        }
    }

    fn text(&self) -> String {
        let mut text = format!("filters sent: {} ({} with a life), {}\n", self.sent, self.lives, amount(self.bytes));
        if self.profiles > 0 {
            text += &format!("profiles of rings sent: {}\n", self.profiles);
        }
        if self.failed > 0 {
            text += &format!("failed: {}\n", self.failed);
            self.examples.iter().for_each(|(name, reason)| text += &format!("  {name}: {reason}\n"));
        }
        let more = self.failed - self.examples.len() as u64;
        if more > 0 { text + &format!("  and {more} more\n") } else { text }
    }
}

/// Sends all filters; the lines about it, and whether all arrived.
///
/// # Errors
/// Why it could not go on, with what had been done.
pub fn send(keyspace: &Keyspace, into: &Into, replace: bool) -> Result<(String, bool), String> {
    let all = (0..DATABASES).map(|db| keyspace.len(db) as u64).sum();
    let done = AtomicU64::new(0);
    let mut sender = Sender { into, replace, target: None, batch: Vec::new(), batch_bytes: 0, tally: Tally::default() };
    // Connected first, so that a wrong address is told even if there is nothing to send.
    let sent = sender.connect(if into.one_db { into.address.db } else { 0 }).and_then(|()| {
        sender.profiles(keyspace)?;
        watch(
            "sending keys",
            || (done.load(Ordering::Relaxed), all),
            || {
                for_each_key(keyspace, |db, entry| {
                    done.fetch_add(1, Ordering::Relaxed);
                    sender.key(db, entry)
                })?;
                sender.flush()
            },
        )
    });
    let text = sender.tally.text();
    match sent {
        Ok(()) => Ok((text, sender.tally.failed == 0)),
        Err(stop) => Err(format!("{stop}\n{}", text.trim_end())),
    }
}

struct Sender<'i> {
    into: &'i Into,
    replace: bool,
    /// With the number of its database.
    target: Option<(u32, Target)>,
    batch: Vec<(Bytes, bool, Request)>,
    batch_bytes: usize,
    tally: Tally,
}

impl Sender<'_> {
    fn connect(&mut self, db: u32) -> Result<(), Stop> {
        if self.target.as_ref().is_some_and(|(connected, _)| *connected == db) {
            return Ok(());
        }
        self.flush()?;
        let address = Address { db, ..self.into.address.clone() };
        self.target = Some((db, Target::connect(&address, false)?));
        Ok(())
    }

    fn target(&mut self) -> Result<&mut Target, Stop> {
        let target = self.target.as_mut().map(|(_, target)| target);
        target.ok_or(Stop::Reply(End::Target, "nothing"))
    }

    /// What rings get that are made later.
    fn profiles(&mut self, keyspace: &Keyspace) -> Result<(), Stop> {
        for (prefix, settings) in keyspace.profiles().all() {
            let prefix = Bytes::copy_from_slice(&prefix);
            let name = [b"profile ", &prefix[..]].concat();
            if let Some(reason) = self.target()?.lacks(Family::Chain) {
                self.tally.fail(&name, reason);
                continue;
            }
            let get = profile("GET", &prefix, Vec::new());
            if !self.replace && self.target()?.call(get)?.array().is_some() {
                self.tally.fail(&name, "exists there; --replace would replace it".to_owned());
                continue;
            }
            let options = profile_options(&settings);
            let options = options.split_whitespace().map(|word| Bytes::copy_from_slice(word.as_bytes()));
            match judge(self.target()?.call(profile("SET", &prefix, options.collect()))?) {
                Verdict::No(reason) => self.tally.fail(&name, reason),
                Verdict::Never(text) => return Err(Stop::Refused { end: End::Target, text }),
                _ => self.tally.profiles += 1,
            }
        }
        Ok(())
    }

    fn key(&mut self, db: usize, entry: EntryRef<'_>) -> Result<(), Stop> {
        match entry.value() {
            ValueRef::Bloom(_) | ValueRef::Ring(_) | ValueRef::Counting(_) | ValueRef::Dleft(_) => {}
            ValueRef::HalfRing(half) => return self.half_loaded(entry.name(), half),
            ValueRef::HalfCounting(half) => return self.half_loaded(entry.name(), half),
            ValueRef::HalfDleft(half) => return self.half_loaded(entry.name(), half),
            _ => return Ok(()),
        }
        self.connect(if self.into.one_db { self.into.address.db } else { db as u32 })?;
        let key = Bytes::copy_from_slice(entry.name());
        let life = entry.life().map_or(Life::Endless, |life| Life::Until(i64::try_from(life).unwrap_or(i64::MAX)));
        let Some(family) = entry.kind().and_then(Family::of) else { return Ok(()) };
        if let Some(reason) = self.target()?.lacks(family) {
            self.tally.fail(&key, reason);
            return Ok(());
        }
        let most = WHOLE_BYTES.min(self.target()?.word_bytes() / 2);
        match Large::of(entry, most) {
            Err(error) => {
                self.tally.fail(&key, error.to_string());
                return Ok(());
            }
            Ok(Some(large)) => return self.in_chunks(family, &key, life, &large),
            Ok(None) => {}
        }
        match form_of(entry, most).transpose() {
            Err(error) => self.tally.fail(&key, error.to_string()),
            Ok(None) => {}
            Ok(Some(Form::Payload(payload))) => {
                self.batch_bytes += payload.len();
                let request = Request::restore(&key, payload, life, self.replace);
                self.batch.push((key, life != Life::Endless, request));
                if self.batch.len() >= BATCH_KEYS || self.batch_bytes >= BATCH_BYTES {
                    self.flush()?;
                }
            }
            Ok(Some(Form::Pieces(header))) => {
                let Some(bloom) = filter(entry) else { return Ok(()) };
                let bytes = bloom.bit_bytes();
                self.flush()?;
                let temporary = self.target()?.temporary(&key);
                self.load(&temporary, vec![Request::of("DEL", &temporary, []), load(family, &temporary, 1, header)])?;
                pieces(bloom, most, |iterator, data| {
                    self.load(&temporary, vec![load(family, &temporary, iterator, data.into())])
                })?;
                self.put_in_place(&key, &temporary, life, bytes)?;
            }
        }
        Ok(())
    }

    /// A large filter of another family than Bloom's.
    fn in_chunks(&mut self, family: Family, key: &Bytes, life: Life, large: &Large<'_>) -> Result<(), Stop> {
        self.flush()?;
        let temporary = self.target()?.temporary(key);
        let (mut cursor, mut requests) = (0, vec![Request::of("DEL", &temporary, [])]);
        loop {
            let chunk = match large.chunk(cursor) {
                Ok(chunk) => chunk,
                Err(error) => {
                    self.target()?.call(Request::of("DEL", &temporary, []))?;
                    self.tally.fail(key, error.to_string());
                    return Ok(());
                }
            };
            if chunk.cursor == 0 {
                return self.put_in_place(key, &temporary, life, large.bytes());
            }
            cursor = chunk.cursor;
            requests.push(load(family, &temporary, cursor as i64, chunk.data.into()));
            self.load(&temporary, std::mem::take(&mut requests))?;
        }
    }

    fn half_loaded<L: Load>(&mut self, name: &[u8], _half: &HalfLoaded<L>) -> Result<(), Stop> {
        self.tally.fail(name, format!("its {} is not complete; load its dump there", L::COMMAND));
        Ok(())
    }

    /// Sends what was gathered.
    fn flush(&mut self) -> Result<(), Stop> {
        let (keys, requests): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.batch).into_iter().map(|(key, lives, request)| ((key, lives), request)).unzip();
        let bytes = std::mem::take(&mut self.batch_bytes) as u64;
        if requests.is_empty() {
            return Ok(());
        }
        let replies = self.target()?.run(&requests)?;
        self.tally.bytes += bytes;
        let mut stop = None;
        for ((key, lives), reply) in keys.into_iter().zip(replies) {
            stop = self.arrived(&key, lives, reply).err().or(stop);
        }
        stop.map_or(Ok(()), Err)
    }

    /// Counts a key by what the server said to it.
    fn arrived(&mut self, key: &[u8], lives: bool, reply: Reply) -> Result<(), Stop> {
        let text = reply.error().unwrap_or_default().to_owned();
        match judge(reply) {
            Verdict::Done => {
                self.tally.sent += 1;
                self.tally.lives += u64::from(lives);
            }
            Verdict::Exists => self.tally.fail(key, "exists there; --replace would replace it".to_owned()),
            Verdict::OtherForm => self.tally.fail(key, format!("the target says: {text}")),
            Verdict::No(reason) => self.tally.fail(key, reason),
            Verdict::Never(text) => return Err(Stop::Refused { end: End::Target, text }),
        }
        Ok(())
    }

    /// Makes or fills the temporary key, and lets it live on.
    fn load(&mut self, temporary: &Bytes, mut requests: Vec<Request>) -> Result<(), Stop> {
        requests.push(live_on(temporary));
        let replies = self.target()?.run(&requests)?;
        match replies.iter().find_map(Reply::error) {
            Some(text) => Err(Stop::Refused { end: End::Target, text: text.to_owned() }),
            None => Ok(()),
        }
    }

    fn put_in_place(&mut self, key: &Bytes, temporary: &Bytes, life: Life, bytes: u64) -> Result<(), Stop> {
        let rename = if self.replace { "RENAME" } else { "RENAMENX" };
        let requests = [Request::live(temporary, life), Request::of(rename, temporary, [key.clone()])];
        let reply = self.target()?.run(&requests)?.pop().unwrap_or(Reply::Null);
        if reply.integer() == Some(0) {
            self.target()?.call(Request::of("DEL", temporary, []))?;
            self.tally.fail(key, "exists there; --replace would replace it".to_owned());
            return Ok(());
        }
        self.tally.bytes += bytes;
        self.arrived(key, life != Life::Endless, reply)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_database_that_is_named_takes_all() {
        for (text, db, one_db) in [
            ("redis://a", 0, false),
            ("redis://a:1/", 0, false),
            ("redis://a:1/0", 0, true),
            ("redis://u:p%2f@a/3", 3, true),
        ] {
            let into = Into::parse(text).unwrap();
            assert_eq!((into.address.db, into.one_db), (db, one_db), "{text}");
        }
        assert!(Into::parse("a").is_err());
    }
}
