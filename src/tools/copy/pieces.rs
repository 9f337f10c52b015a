//! A large filter, in pieces.
//!
//! The pieces are loaded under another name, with a life of an hour that is renewed with each, so that what a crash leaves
//! behind goes by itself. When the filter is whole it gets its own life and then its name, in place of one that may be
//! replaced. So nobody sees half a filter.
//!
//! **Growth.** `BF.SCANDUMP` gives bytes from where the filter is at that moment. As long as the same sub-filters are there
//! before and after, every item that was in at the beginning is in the copy: bits are never taken back. If they are not, or if
//! there are fewer items than before, the filter grew or is another one, and the copy is begun again.

use bytes::Bytes;

use super::copier::{Copier, Verdict, judge};
use super::progress::Outcome;
use super::source::{Found, Life};
use super::stop::{End, Stop};
use super::target::Request;
use crate::tools::client::Reply;

/// A filter that grows more often during its copy is left.
const TRIES: usize = 5;
/// What is left of a copy that was interrupted ends after so many milliseconds.
const LEFTOVER_MS: &str = "3600000";
/// Piece that the target is given at most; `BF.SCANDUMP` gives no larger ones.
const PIECE_BYTES: u64 = 16 << 20;
/// Before the sub-filters: items, number of sub-filters, options, growth.
const HEAD_BYTES: usize = 20;
/// Of each sub-filter.
const LINK_BYTES: usize = 53;

/// What came of a try.
enum Tried {
    /// The filter is at the target under its temporary name; so many bytes.
    Whole(u64, Life),
    /// It changed its shape.
    Changed,
    /// It ends here.
    Over(Outcome),
}

impl Copier {
    /// Copies a key in pieces.
    pub(super) fn copy_pieces(&mut self, key: &Bytes) -> Result<Outcome, Stop> {
        if !self.may_replace(key) && self.target.has(std::slice::from_ref(key))? == [true] {
            return Ok(Outcome::Exists);
        }
        let temporary = self.target.temporary(key);
        for _ in 0..TRIES {
            match self.try_pieces(key, &temporary) {
                Ok(Tried::Whole(bytes, life)) => return self.put_in_place(key, &temporary, life, bytes),
                Ok(Tried::Changed) => {}
                Ok(Tried::Over(outcome)) => {
                    self.target.call(Request::of("DEL", &temporary, []))?;
                    return Ok(outcome);
                }
                Err(stop) => {
                    // It may be that there is no connection any more.
                    let _ = self.target.call(Request::of("DEL", &temporary, []));
                    return Err(stop);
                }
            }
        }
        self.target.call(Request::of("DEL", &temporary, []))?;
        Ok(Outcome::Refused(format!(
            "it grew or was replaced during each of {TRIES} tries; try again when fewer write"
        )))
    }

    fn try_pieces(&mut self, key: &Bytes, temporary: &Bytes) -> Result<Tried, Stop> {
        let header = match self.header(key)? {
            Ok(header) => header,
            Err(outcome) => return Ok(Tried::Over(outcome)),
        };
        if let Some(outcome) = self.load_header(temporary, header.bytes.clone())? {
            return Ok(Tried::Over(outcome));
        }
        let (mut iter, total) = (1, header.bit_bytes());
        while iter <= total {
            self.check_stop()?;
            let data = match self.source.chunk(key, iter)? {
                Found::Here((next, data)) if next == iter + data.len() as i64 && next <= total + 1 && next > iter => {
                    data
                }
                Found::Here(_) => return Ok(Tried::Changed),
                Found::Gone => return Ok(Tried::Over(Outcome::Gone)),
                Found::Refused(text) => return Ok(Tried::Over(Outcome::Refused(text))),
            };
            if let Some(outcome) = self.load(temporary, iter, &data)? {
                return Ok(Tried::Over(outcome));
            }
            iter += data.len() as i64;
            self.progress.tell(&self.tally, iter as u64);
        }
        let after = match self.header(key)? {
            Ok(after) => after,
            Err(outcome) => return Ok(Tried::Over(outcome)),
        };
        if !after.continues(&header) {
            return Ok(Tried::Changed);
        }
        Ok(match self.source.life(key)? {
            Found::Here(life) => Tried::Whole(total as u64 + header.bytes.len() as u64, life),
            Found::Gone => Tried::Over(Outcome::Gone),
            Found::Refused(text) => Tried::Over(Outcome::Refused(text)),
        })
    }

    /// Makes the temporary key, in place of one that an interrupted run has left.
    fn load_header(&mut self, temporary: &Bytes, header: Bytes) -> Result<Option<Outcome>, Stop> {
        let load = Request::of("BF.LOADCHUNK", temporary, [Bytes::from_static(b"1"), header]);
        self.load_all(temporary, vec![Request::of("DEL", temporary, []), load])
    }

    /// Loads bytes that belong behind iterator `iter`.
    fn load(&mut self, temporary: &Bytes, mut iter: i64, data: &Bytes) -> Result<Option<Outcome>, Stop> {
        let most = usize::try_from(PIECE_BYTES.min(self.target.word_bytes())).unwrap_or(usize::MAX).max(1);
        let mut requests = Vec::new();
        for start in (0..data.len()).step_by(most) {
            let piece = data.slice(start..data.len().min(start + most));
            iter += piece.len() as i64;
            requests.push(Request::of("BF.LOADCHUNK", temporary, [Bytes::from(iter.to_string()), piece]));
        }
        self.load_all(temporary, requests)
    }

    /// Runs requests that make or fill the temporary key, and lets it live on.
    fn load_all(&mut self, temporary: &Bytes, mut requests: Vec<Request>) -> Result<Option<Outcome>, Stop> {
        requests.push(Request::of("PEXPIRE", temporary, [Bytes::from_static(LEFTOVER_MS.as_bytes())]));
        for reply in self.target.run(&requests)? {
            if let Some(outcome) = refusal(reply)? {
                return Ok(Some(outcome));
            }
        }
        Ok(None)
    }

    fn put_in_place(&mut self, key: &Bytes, temporary: &Bytes, life: Life, bytes: u64) -> Result<Outcome, Stop> {
        let rename = if self.may_replace(key) { "RENAME" } else { "RENAMENX" };
        let requests = [Request::live(temporary, life), Request::of(rename, temporary, [key.clone()])];
        let renamed = self.target.run(&requests)?.pop().unwrap_or(Reply::Null);
        if renamed.integer() == Some(0) {
            self.target.call(Request::of("DEL", temporary, []))?;
            return Ok(Outcome::Exists);
        }
        match renamed.error() {
            // A life that is over took it away.
            Some("ERR no such key") => Ok(Outcome::Gone),
            _ => Ok(refusal(renamed)?.unwrap_or(Outcome::Copied(bytes))),
        }
    }

    fn header(&mut self, key: &Bytes) -> Result<Result<Header, Outcome>, Stop> {
        Ok(match self.source.chunk(key, 0)? {
            Found::Here((1, bytes)) => Ok(Header::read(bytes).ok_or(Stop::Reply(End::Source, "BF.SCANDUMP"))?),
            Found::Here(_) => return Err(Stop::Reply(End::Source, "BF.SCANDUMP")),
            Found::Gone => Err(Outcome::Gone),
            Found::Refused(text) => Err(Outcome::Refused(text)),
        })
    }
}

/// What an error of the target means for the key; none is none.
fn refusal(reply: Reply) -> Result<Option<Outcome>, Stop> {
    let text = reply.error().unwrap_or_default().to_owned();
    Ok(match judge(reply) {
        Verdict::Done => None,
        Verdict::Never(text) => return Err(Stop::Refused { end: End::Target, text }),
        Verdict::No(text) => Some(Outcome::Refused(text)),
        Verdict::Exists | Verdict::OtherForm => Some(Outcome::Refused(format!("the target says: {text}"))),
    })
}

/// What a dump begins with; only its length was checked.
struct Header {
    bytes: Bytes,
}

impl Header {
    fn read(bytes: Bytes) -> Option<Header> {
        let header = Header { bytes };
        let count = u32::from_le_bytes(*header.bytes.get(8..)?.first_chunk()?) as usize;
        (header.bytes.len() == count.checked_mul(LINK_BYTES)?.checked_add(HEAD_BYTES)?).then_some(header)
    }

    fn u64_at(&self, at: usize) -> u64 {
        self.bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }

    fn links(&self) -> impl Iterator<Item = usize> {
        (HEAD_BYTES..self.bytes.len()).step_by(LINK_BYTES)
    }

    /// Bytes of all its bits.
    fn bit_bytes(&self) -> i64 {
        let sum = self.links().map(|at| self.u64_at(at)).fold(0, u64::saturating_add);
        i64::try_from(sum).unwrap_or(i64::MAX - 1)
    }

    /// Whether it can be that of the same filter, later: the same sub-filters, and no fewer items.
    fn continues(&self, earlier: &Header) -> bool {
        self.without_counts() == earlier.without_counts() && self.u64_at(0) >= earlier.u64_at(0)
    }

    fn without_counts(&self) -> Vec<u8> {
        let mut bytes = self.bytes.to_vec();
        for at in std::iter::once(0).chain(self.links().map(|at| at + 16)) {
            bytes[at..at + 8].fill(0);
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Items, and bytes and items of each link.
    fn header(items: u64, links: &[(u64, u64)]) -> Header {
        let mut bytes = items.to_le_bytes().to_vec();
        for field in [links.len() as u32, 5, 2] {
            bytes.extend(field.to_le_bytes());
        }
        for (size, items) in links {
            for field in [*size, size * 8, *items, 1, 2] {
                bytes.extend(field.to_le_bytes());
            }
            bytes.extend([7; 13]);
        }
        Header::read(bytes.into()).unwrap()
    }

    #[test]
    fn a_header_continues_another_only_with_the_same_links() {
        let before = header(3, &[(8, 2), (16, 1)]);
        assert_eq!(before.bit_bytes(), 24);
        assert!(before.continues(&before));
        assert!(header(4, &[(8, 2), (16, 2)]).continues(&before));
        assert!(!header(4, &[(8, 2), (16, 1), (32, 1)]).continues(&before));
        assert!(!header(2, &[(8, 1), (16, 1)]).continues(&before));
        assert!(!header(4, &[(8, 2), (32, 2)]).continues(&before));
    }

    #[test]
    fn a_header_of_another_length_is_none() {
        let whole = header(3, &[(8, 2)]).bytes;
        for len in 0..whole.len() {
            assert!(Header::read(whole.slice(..len)).is_none(), "{len}");
        }
    }
}
