//! Profiles of rings: what rings get that a command of the target makes later. They belong to a server, not to a database.
//!
//! The words that set a profile are made from what `CHAIN.PROFILE LIST` tells. It does not tell the key that `SEED` gave: such a
//! profile becomes one with `KEYED`, and that is said.

use bytes::Bytes;

use super::copier::{Copier, Verdict, judge};
use super::progress::Outcome;
use super::stop::{End, Stop};
use super::target::Request;
use crate::tools::client::Reply;
use crate::tools::families::Family;

impl Copier {
    /// Copies all profiles, if keys of all names are wanted.
    pub(super) fn copy_profiles(&mut self) -> Result<(), Stop> {
        let profiles = self.source.profiles()?;
        if self.options.pattern.is_some() {
            self.tally.other_profiles = profiles.len() as u64;
            return Ok(());
        }
        for (prefix, settings) in profiles {
            if self.target.takes(Family::Chain) {
                self.copy_profile(&prefix, &settings)?;
            } else {
                self.tally.leave_profile(&prefix);
            }
        }
        Ok(())
    }

    fn copy_profile(&mut self, prefix: &Bytes, settings: &Reply) -> Result<(), Stop> {
        let options = options(settings).ok_or(Stop::Reply(End::Source, "CHAIN.PROFILE LIST"))?;
        let keyed = options.last().is_some_and(|word| **word == *KEYED);
        let name = [b"profile ", &prefix[..]].concat();
        let there = self.target.call(profile("GET", prefix, Vec::new()))?;
        if there == *settings {
            self.tally.same_profiles += 1;
        } else if there.array().is_some() && !self.options.replace {
            self.tally.add(&name, Outcome::Exists);
        } else {
            match judge(self.target.call(profile("SET", prefix, options))?) {
                Verdict::Done => {
                    self.tally.profiles += 1;
                    self.tally.keyed_profiles += u64::from(keyed);
                }
                Verdict::Never(text) => return Err(Stop::Refused { end: End::Target, text }),
                Verdict::No(text) => self.tally.add(&name, Outcome::Refused(text)),
                Verdict::Exists => self.tally.add(&name, Outcome::Exists),
                Verdict::OtherForm => {
                    let reason = "the target does not take it".to_owned();
                    self.tally.add(&name, Outcome::Refused(reason));
                }
            }
        }
        Ok(())
    }
}

/// A subcommand of `CHAIN.PROFILE`.
pub fn profile(word: &'static str, prefix: &Bytes, options: Vec<Bytes>) -> Request {
    let about = ["CHAIN.PROFILE", word].map(|word| Bytes::from_static(word.as_bytes()));
    Request::new(prefix, about.into_iter().chain([prefix.clone()]).chain(options))
}

const KEYED: &[u8] = b"KEYED";

/// The words that set a profile that is shown like this; `KEYED` is the last of them.
fn options(settings: &Reply) -> Option<Vec<Bytes>> {
    let mut words = Vec::new();
    let pairs = [
        ("capacity", "CAPACITY"),
        ("error", "ERROR"),
        ("links", "LINKS"),
        ("pwindow", "PWINDOW"),
        ("clock", "CLOCK"),
        ("threshold", "THRESHOLD"),
        ("idle", "IDLE"),
    ];
    let flags = [("linkerror", "LINKERROR"), ("bounded", "BOUNDED"), ("keyed", "KEYED")];
    for (name, option) in pairs {
        let value = match settings.field(name) {
            None | Some(Reply::Null) => continue,
            Some(Reply::Integer(number)) => Bytes::from(number.to_string()),
            Some(value) => value.bytes()?.clone(),
        };
        if name == "threshold" {
            words.push(Bytes::from_static(b"DUAL"));
        }
        words.extend([Bytes::from_static(option.as_bytes()), value]);
    }
    let set = |name| settings.field(name).and_then(Reply::integer) == Some(1);
    words.extend(flags.iter().filter(|(name, _)| set(name)).map(|(_, word)| Bytes::from_static(word.as_bytes())));
    // Without these it is no profile, or one of which nothing is known.
    (settings.field("capacity").is_some() && settings.field("error").is_some()).then_some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(fields: &[(&'static str, Reply)]) -> Reply {
        let name = |name: &'static str| Reply::Status(Bytes::from_static(name.as_bytes()));
        Reply::Array(fields.iter().flat_map(|(field, value)| [name(field), value.clone()]).collect())
    }

    fn text(word: &'static str) -> Reply {
        Reply::Bulk(Bytes::from_static(word.as_bytes()))
    }

    #[test]
    fn a_profile_is_set_by_the_words_for_what_is_shown() {
        let start = [("capacity", Reply::Integer(400)), ("error", text("0.02")), ("linkerror", Reply::Integer(0))];
        let end = [("idle", Reply::Null), ("keyed", Reply::Integer(0))];
        let words = |fields: &[(&'static str, Reply)]| {
            let words = options(&shown(fields))?;
            Some(words.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect::<Vec<_>>().join(" "))
        };
        let of = |middle: &[(&'static str, Reply)]| words(&[&start, middle, &end].concat()).unwrap();
        assert_eq!(of(&[("links", Reply::Integer(5))]), "CAPACITY 400 ERROR 0.02 LINKS 5");
        assert_eq!(of(&[("threshold", text("0.75"))]), "CAPACITY 400 ERROR 0.02 DUAL THRESHOLD 0.75");
        let window = [
            ("links", Reply::Integer(7)),
            ("pwindow", Reply::Integer(60_000)),
            ("bounded", Reply::Integer(1)),
            ("clock", text("event")),
        ];
        assert_eq!(of(&window), "CAPACITY 400 ERROR 0.02 LINKS 7 PWINDOW 60000 CLOCK event BOUNDED");
        let mut all = start.to_vec();
        all[2].1 = Reply::Integer(1);
        all.extend([("links", Reply::Integer(5)), ("idle", Reply::Integer(90)), ("keyed", Reply::Integer(1))]);
        assert_eq!(words(&all).unwrap(), "CAPACITY 400 ERROR 0.02 LINKS 5 IDLE 90 LINKERROR KEYED");
        assert_eq!(words(&end), None);
    }
}
