//! A large filter, in pieces.
//!
//! The pieces are loaded under another name, with a life of an hour that is renewed with each, so that what a crash leaves
//! behind goes by itself. When the filter is whole it gets its own life and then its name, in place of one that may be
//! replaced. So nobody sees half a filter. The cursor that comes with a piece goes with it to the target.
//!
//! **Changes meanwhile.** `SCANDUMP` gives bytes from where the filter is at that moment. As long as its shape stays, every item that
//! was in from the beginning to the end is in the copy; if it does not, the copy is begun again. With Bloom filters that is seen here: the
//! same sub-filters must be there before and after, and no fewer items. In the other families each piece tells its shape, and the source
//! gives none of another.

use bytes::Bytes;

use super::copier::{Copier, Verdict, judge};
use super::progress::Outcome;
use super::source::{Found, Life};
use super::stop::{End, Stop};
use super::target::Request;
use crate::tools::client::Reply;
use crate::tools::families::Family;

/// A filter that changes its shape more often during its copy is left.
const TRIES: usize = 5;
/// What is left of a copy that was interrupted ends after so many milliseconds.
const LEFTOVER_MS: &str = "3600000";
/// Bits of a Bloom filter that the target is given at most at once; `BF.SCANDUMP` gives no more.
const PIECE_BYTES: u64 = 16 << 20;
/// What the source says if it sees that the shape is another.
const CHANGED: &str = "changed shape during the dump";
/// Before the sub-filters: items, number of sub-filters, options, growth.
const HEAD_BYTES: usize = 20;
/// Of each sub-filter.
const LINK_BYTES: usize = 53;

/// A try did not give the whole filter.
enum Broken {
    /// It changed its shape.
    Changed,
    /// The key ends here.
    Over(Outcome),
    /// The copy does.
    Stop(Stop),
}

impl From<Stop> for Broken {
    fn from(stop: Stop) -> Broken {
        Broken::Stop(stop)
    }
}

impl Copier {
    /// Copies a key in pieces.
    pub(super) fn copy_pieces(&mut self, family: Family, key: &Bytes) -> Result<Outcome, Stop> {
        if !self.may_replace(key) && self.target.has(std::slice::from_ref(key))? == [true] {
            return Ok(Outcome::Exists);
        }
        let temporary = self.target.temporary(key);
        for _ in 0..TRIES {
            match self.try_pieces(family, key, &temporary) {
                Ok((bytes, life)) => return self.put_in_place(key, &temporary, life, bytes),
                Err(Broken::Changed) => {}
                Err(Broken::Over(outcome)) => {
                    self.target.call(Request::of("DEL", &temporary, []))?;
                    return Ok(outcome);
                }
                Err(Broken::Stop(stop)) => {
                    // It may be that there is no connection any more.
                    let _ = self.target.call(Request::of("DEL", &temporary, []));
                    return Err(stop);
                }
            }
        }
        self.target.call(Request::of("DEL", &temporary, []))?;
        Ok(Outcome::Refused(format!(
            "it grew, turned or was replaced during each of {TRIES} tries; try again when fewer write, or \
             have it moved at once with a larger --pieces-from"
        )))
    }

    /// Loads all of a filter under its temporary name, in place of what an interrupted run has left there; its bytes and its life.
    fn try_pieces(&mut self, family: Family, key: &Bytes, temporary: &Bytes) -> Result<(u64, Life), Broken> {
        let (mut cursor, header) = self.piece(family, key, 0)?;
        let course = Course::begin(family, cursor, &header)?;
        let mut bytes = header.len() as u64;
        let first = Request::of("DEL", temporary, []);
        self.load_all(temporary, vec![first, load(family, temporary, cursor, header)])?;
        while !course.is_over(cursor) {
            self.check_stop()?;
            let (next, data) = self.piece(family, key, cursor)?;
            if !course.goes_on(cursor, next, data.len()) {
                return Err(Broken::Changed);
            }
            if !data.is_empty() {
                self.load(family, temporary, next, &data)?;
            }
            (cursor, bytes) = (next, bytes + data.len() as u64);
            self.progress.tell(&self.tally, bytes);
        }
        if let Course::Bits(before) = &course {
            let (cursor, header) = self.piece(family, key, 0)?;
            if !Header::expect(cursor, header)?.continues(before) {
                return Err(Broken::Changed);
            }
        }
        match self.source.life(key)? {
            Found::Here(life) => Ok((bytes, life)),
            Found::Gone => Err(Broken::Over(Outcome::Gone)),
            Found::Refused(text) => Err(Broken::Over(Outcome::Refused(text))),
        }
    }

    /// A piece of the source's filter, and the cursor that comes with it.
    fn piece(&mut self, family: Family, key: &Bytes, cursor: i64) -> Result<(i64, Bytes), Broken> {
        match self.source.piece(family, key, cursor)? {
            Found::Here(piece) => Ok(piece),
            Found::Gone => Err(Broken::Over(Outcome::Gone)),
            Found::Refused(text) if text.contains(CHANGED) => Err(Broken::Changed),
            Found::Refused(text) => Err(Broken::Over(Outcome::Refused(text))),
        }
    }

    /// Loads a piece with its cursor. Bits of a Bloom filter may be cut where the target takes no longer words.
    fn load(&mut self, family: Family, temporary: &Bytes, cursor: i64, data: &Bytes) -> Result<(), Broken> {
        let most = match family {
            Family::Bf => PIECE_BYTES.min(self.target.word_bytes()),
            _ => u64::MAX,
        };
        let most = usize::try_from(most).unwrap_or(usize::MAX).max(1);
        let pieces = (0..data.len()).step_by(most).map(|start| {
            let end = data.len().min(start.saturating_add(most));
            load(family, temporary, cursor - (data.len() - end) as i64, data.slice(start..end))
        });
        self.load_all(temporary, pieces.collect())
    }

    /// Runs requests that make or fill the temporary key, and lets it live on.
    fn load_all(&mut self, temporary: &Bytes, mut requests: Vec<Request>) -> Result<(), Broken> {
        requests.push(live_on(temporary));
        for reply in self.target.run(&requests)? {
            if let Some(outcome) = refusal(reply)? {
                return Err(Broken::Over(outcome));
            }
        }
        Ok(())
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
}

/// The request that lets a temporary key live on.
pub fn live_on(temporary: &Bytes) -> Request {
    Request::of("PEXPIRE", temporary, [Bytes::from_static(LEFTOVER_MS.as_bytes())])
}

/// The request that loads a piece.
pub fn load(family: Family, temporary: &Bytes, cursor: i64, data: Bytes) -> Request {
    Request::of(family.row().load_chunk, temporary, [Bytes::from(cursor.to_string()), data])
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

/// How the pieces follow each other that come behind a header.
enum Course {
    /// Bits of a Bloom filter: the cursors count them, and the header tells how many there are.
    Bits(Header),
    /// Chunks of the other families, whose cursors only the servers understand; the last comes with 0.
    Chunks,
}

impl Course {
    /// The one that begins with this header.
    fn begin(family: Family, cursor: i64, header: &Bytes) -> Result<Course, Stop> {
        match family {
            Family::Bf => Header::expect(cursor, header.clone()).map(Course::Bits),
            _ if cursor == 0 => Err(Stop::Reply(End::Source, family.row().scan_dump)),
            _ => Ok(Course::Chunks),
        }
    }

    /// Whether nothing comes behind this cursor.
    fn is_over(&self, cursor: i64) -> bool {
        match self {
            Course::Bits(header) => cursor > header.bit_bytes(),
            Course::Chunks => cursor == 0,
        }
    }

    /// Whether so many bytes and the cursor that came with them are what can come at `cursor`.
    fn goes_on(&self, cursor: i64, next: i64, len: usize) -> bool {
        match self {
            Course::Bits(header) => len > 0 && next - cursor == len as i64 && next <= header.bit_bytes() + 1,
            Course::Chunks => (next == 0) == (len == 0) && next != cursor,
        }
    }
}

/// What the dump of a Bloom filter begins with; only its length was checked.
struct Header {
    bytes: Bytes,
}

impl Header {
    fn read(bytes: Bytes) -> Option<Header> {
        let header = Header { bytes };
        let count = u32::from_le_bytes(*header.bytes.get(8..)?.first_chunk()?) as usize;
        (header.bytes.len() == count.checked_mul(LINK_BYTES)?.checked_add(HEAD_BYTES)?).then_some(header)
    }

    /// That of a dump that has just begun, and came with this cursor.
    fn expect(cursor: i64, bytes: Bytes) -> Result<Header, Stop> {
        let header = Header::read(bytes).filter(|_| cursor == 1);
        header.ok_or(Stop::Reply(End::Source, Family::Bf.row().scan_dump))
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
