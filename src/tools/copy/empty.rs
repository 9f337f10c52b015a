//! Filters of valkey-bloom. They hash items in another way, so their bits say nothing elsewhere; what can be had is an empty
//! filter of the same settings.

use bytes::Bytes;

use super::copier::{Copier, Verdict, judge};
use super::progress::Outcome;
use super::source::{Found, Settings};
use super::stop::{End, Stop};
use super::target::Request;
use crate::tools::client::Reply;

const REASON: &str = "valkey-bloom hashes in another way, so its bits cannot be moved; --empty makes an empty filter of the same settings";
/// The ratio of RedisBloom, which cannot be set.
const TIGHTENING: f64 = 0.5;

impl Copier {
    /// Makes empty filters, if that is wanted.
    pub(super) fn make_empty(&mut self, keys: &[Bytes]) -> Result<(), Stop> {
        if !self.options.empty {
            keys.iter().for_each(|key| self.tally.add(key, Outcome::Refused(REASON.to_owned())));
            return Ok(());
        }
        let keys = self.begin(keys)?;
        let mut finished = Vec::with_capacity(keys.len());
        for (key, found) in keys.iter().zip(self.source.settings(&keys)?) {
            let outcome = match found {
                Found::Gone => Outcome::Gone,
                Found::Refused(text) => Outcome::Refused(text),
                Found::Here(settings) => self.reserve(key, &settings)?,
            };
            finished.push((key.clone(), outcome));
        }
        self.finish(finished)
    }

    fn reserve(&mut self, key: &Bytes, settings: &Settings) -> Result<Outcome, Stop> {
        let mut words = vec![settings.error.clone(), settings.capacity.clone()];
        match &settings.expansion {
            Some(factor) => words.extend(["EXPANSION".to_owned(), factor.clone()]),
            None => words.push("NONSCALING".to_owned()),
        }
        let mut requests = Vec::new();
        if self.may_replace(key) {
            requests.push(Request::of("DEL", key, []));
        }
        requests.push(Request::of("BF.RESERVE", key, words.into_iter().map(Bytes::from)));
        let reply = self.target.run(&requests)?.pop().unwrap_or(Reply::Null);
        match judge(reply) {
            Verdict::Done => {}
            Verdict::Exists => return Ok(Outcome::Exists),
            Verdict::Never(text) => return Err(Stop::Refused { end: End::Target, text }),
            Verdict::No(text) => return Ok(Outcome::Refused(text)),
            Verdict::OtherForm => return Ok(Outcome::Refused("the target does not take it".to_owned())),
        }
        self.target.call(Request::live(key, settings.life))?;
        let tightening = settings.tightening.as_ref().and_then(|ratio| ratio.parse().ok());
        if tightening.is_some_and(|ratio: f64| ratio != TIGHTENING) {
            self.tally.other_tightening += 1;
        }
        Ok(Outcome::Copied(0))
    }
}
