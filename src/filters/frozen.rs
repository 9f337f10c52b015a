//! Arrays as they were at one moment, read while they go on being changed.
//!
//! Whoever saves a filter of a gigabyte may neither stop the adds meanwhile nor copy it first. So it is read in order, a page
//! of 64 KiB at a time, and who changes a word *beyond* the page that is read next first notes the word as it was. The reader
//! copies a page, puts the old words back in its copy, and moves on.
//!
//! **Cost.** Before-images of whole pages were tried first: the bits of an item lie far apart, so 1,000 adds copied 405 MB and
//! took 1.1 s; by word it is 0.7 ms and 125 KB. A note is written behind the last one, 16 bytes; only the reader sorts them by
//! page, where each takes ten. With a list for each page, and its writers going from list to list, an add took twice as long.
//! A page with more than 4,096 notes keeps the first of each word only, and if the reader is far away, whoever adds a note
//! sorts some: so all notes together never take much more than the filter.
//!
//! **Order.** Who changes a word holds a lock while it notes the word and then changes it. The reader copies a page without the
//! lock, then takes it to fetch all notes and to say that the page is read: there is a note for every change that the copy may
//! show. A word may be noted more than once; put back are the notes from the last to the first.

use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};

use super::LinkInfo;
use super::bits::BitArray;

/// Bytes that are read at once.
pub const PAGE_BYTES: usize = 64 << 10;
const WORD_BYTES: usize = size_of::<u64>();
const PAGE_WORDS: usize = PAGE_BYTES / WORD_BYTES;
/// Notes of a page above which a word that has one gets no other.
const MOST_NOTES: usize = 4096;
/// Notes are kept in pieces, so that none is ever moved: the first for so many, each further one for twice as many.
const FIRST_NOTES: usize = 32;
const MOST_DOUBLINGS: usize = 7;
/// So many pieces may wait to be sorted, of 64 KiB each: two megabytes.
const MOST_PIECES: usize = 32;

/// A chain as it was at one moment.
pub struct Frozen {
    /// Its options then.
    pub options: u32,
    /// Its growth factor then.
    pub growth: u32,
    /// Its count of items then.
    pub items: u64,
    /// Its links then, oldest first.
    pub links: Vec<LinkInfo>,
    arrays: FrozenArrays,
}

impl Deref for Frozen {
    type Target = FrozenArrays;

    fn deref(&self) -> &FrozenArrays {
        &self.arrays
    }
}

/// Arrays of a filter as they were at one moment: the bits of the links of a chain, the counters of a counting filter.
pub struct FrozenArrays {
    /// Shared with the filter.
    bits: Vec<BitArray>,
    over: AtomicBool,
    state: Mutex<State>,
    /// What each page of each link had that was changed since; for the reader.
    pages: Mutex<Vec<Vec<Page>>>,
}

#[derive(Default)]
struct State {
    /// The link and the page of it that are read next.
    next: (usize, usize),
    /// Notes that are not sorted yet, the oldest first.
    notes: VecDeque<Vec<Note>>,
}

/// A word of a link as it was.
#[derive(Clone, Copy)]
struct Note {
    link: u16,
    page: u32,
    word: u16,
    old: u64,
}

/// What a page had that was changed since: where, and as it was.
#[derive(Default)]
struct Page {
    at: Vec<u16>,
    old: Vec<u64>,
    /// The words that have a note, once there are many.
    noted: Option<Box<[u64; PAGE_WORDS / 64]>>,
}

impl Frozen {
    pub(super) fn new(options: u32, growth: u32, items: u64, links: Vec<LinkInfo>, bits: Vec<BitArray>) -> Self {
        Self { options, growth, items, links, arrays: FrozenArrays::new(bits) }
    }
}

impl FrozenArrays {
    pub(super) fn new(bits: Vec<BitArray>) -> Self {
        let pages = Mutex::new(bits.iter().map(|_| Vec::new()).collect());
        Self { bits, over: AtomicBool::new(false), state: Mutex::default(), pages }
    }

    /// Whether nobody reads it any more.
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Make changes, each of which is noted first.
    pub(super) fn changes(&self) -> Changes<'_> {
        Changes { frozen: self, state: self.state.lock() }
    }

    /// Read the next page: `buffer` gets it. Pages are read in order, link after link; an empty buffer means the end.
    pub fn read_page(&self, buffer: &mut Vec<u8>) {
        buffer.clear();
        let mut pages = self.pages.lock();
        // Only whoever reads moves on.
        let (mut link, mut page) = self.state.lock().next;
        while let Some(bits) = self.bits.get(link) {
            let start = page * PAGE_BYTES;
            if start >= bits.len() {
                (link, page) = (link + 1, 0);
                continue;
            }
            buffer.resize(PAGE_BYTES.min(bits.len() - start), 0);
            bits.copy_bytes(start, buffer);
            let notes = self.state.lock().pass((link, page));
            notes.iter().flatten().for_each(|note| self.sort(&mut pages, note));
            if let Some(page) = pages[link].get_mut(page) {
                std::mem::take(page).put_back(buffer);
            }
            return;
        }
        drop(pages);
        self.end();
    }

    /// Put a note to its page.
    fn sort(&self, pages: &mut [Vec<Page>], note: &Note) {
        let link = usize::from(note.link);
        let Some(pages) = pages.get_mut(link) else { return };
        if pages.is_empty() {
            let count = self.bits[link].len().div_ceil(PAGE_BYTES);
            pages.resize_with(count, Page::default);
        }
        pages[note.page as usize].note(note.word, note.old);
    }

    /// Nobody reads any further: changes need not be noted any more.
    pub fn end(&self) {
        *self.state.lock() = State { next: (usize::MAX, 0), notes: VecDeque::new() };
        self.pages.lock().clear();
        self.over.store(true, Ordering::Release);
    }
}

/// Reads frozen arrays in order, in pieces of any size.
pub struct FrozenBits<'a> {
    frozen: &'a FrozenArrays,
    page: Vec<u8>,
    /// How much of the page was given out.
    given: usize,
}

impl<'a> FrozenBits<'a> {
    /// All bits, array after array.
    #[must_use]
    pub fn of(frozen: &'a FrozenArrays) -> Self {
        Self { frozen, page: Vec::new(), given: 0 }
    }

    /// Fill the buffer with what comes next, as far as there is something.
    pub fn read(&mut self, mut buffer: &mut [u8]) {
        while !buffer.is_empty() {
            if self.given == self.page.len() {
                self.frozen.read_page(&mut self.page);
                self.given = 0;
                if self.page.is_empty() {
                    return;
                }
            }
            let count = buffer.len().min(self.page.len() - self.given);
            buffer[..count].copy_from_slice(&self.page[self.given..][..count]);
            self.given += count;
            buffer = &mut buffer[count..];
        }
    }
}

impl State {
    /// A page was read: all notes up to now.
    fn pass(&mut self, (link, page): (usize, usize)) -> VecDeque<Vec<Note>> {
        self.next = (link, page + 1);
        std::mem::take(&mut self.notes)
    }
}

impl Page {
    fn note(&mut self, word: u16, old: u64) {
        if let Some(noted) = &mut self.noted {
            let (place, bit) = (usize::from(word) / 64, 1 << (word % 64));
            if noted[place] & bit != 0 {
                return;
            }
            noted[place] |= bit;
        } else if self.at.len() == MOST_NOTES {
            self.keep_first();
            return self.note(word, old);
        }
        // In small steps: there are many pages, and doubling leaves half of each unused.
        if self.at.len() == self.at.capacity() {
            self.at.reserve_exact(self.at.len() / 4 + 8);
            self.old.reserve_exact(self.at.capacity() - self.old.len());
        }
        self.at.push(word);
        self.old.push(old);
    }

    /// Keep the first note of each word only, now and from now on.
    fn keep_first(&mut self) {
        let (at, old) = (std::mem::take(&mut self.at), std::mem::take(&mut self.old));
        self.noted = Some(Box::new([0; PAGE_WORDS / 64]));
        at.into_iter().zip(old).for_each(|(word, old)| self.note(word, old));
    }

    /// Undo in a copy of the page what was changed since.
    fn put_back(&self, copy: &mut [u8]) {
        for (at, old) in self.at.iter().zip(&self.old).rev() {
            let to = &mut copy[usize::from(*at) * WORD_BYTES..];
            let length = to.len().min(WORD_BYTES);
            to[..length].copy_from_slice(&old.to_ne_bytes()[..length]);
        }
    }
}

/// Changes of a filter whose former state is still being read; nobody else makes any meanwhile.
pub(super) struct Changes<'a> {
    frozen: &'a FrozenArrays,
    state: MutexGuard<'a, State>,
}

impl Changes<'_> {
    /// A word of an array is about to be changed. `old` is what it has.
    #[inline]
    pub(super) fn note(&mut self, link: usize, word: usize, old: u64) {
        let State { next, notes } = &mut *self.state;
        let page = word / PAGE_WORDS;
        // Pages that are read already, and arrays that the filter got since, concern nobody.
        if (link, page) < *next || link >= self.frozen.bits.len() {
            return;
        }
        let note = Note { link: link as u16, page: page as u32, word: (word % PAGE_WORDS) as u16, old };
        match notes.back_mut() {
            Some(piece) if piece.len() < piece.capacity() => piece.push(note),
            _ => {
                // Of many filters few have many notes.
                let mut piece = Vec::with_capacity(FIRST_NOTES << notes.len().min(MOST_DOUBLINGS));
                piece.push(note);
                notes.push_back(piece);
                if notes.len() > MOST_PIECES {
                    self.sort_oldest();
                }
            }
        }
    }

    /// Sort the oldest notes by page, where words that are noted again take nothing; the reader, if he is there, does it himself.
    #[cold]
    fn sort_oldest(&mut self) {
        if let Some(mut pages) = self.frozen.pages.try_lock()
            && let Some(oldest) = self.state.notes.pop_front()
        {
            oldest.iter().for_each(|note| self.frozen.sort(&mut pages, note));
        }
    }
}

/// What is kept of a former state of a filter that one thread at a time changes.
#[derive(Default)]
pub(super) struct Past {
    /// The number of the latest moment at which the state was frozen, or the filter made.
    moment: AtomicU64,
    /// Whether changes have to be noted.
    is_read: AtomicBool,
    frozen: Mutex<Option<Arc<FrozenArrays>>>,
}

impl Past {
    /// The number of the latest moment at which the state was frozen, or since which the filter exists.
    pub(super) fn moment(&self) -> u64 {
        self.moment.load(Ordering::Acquire)
    }

    /// The filter did not exist at this moment, or what it was then is known.
    pub(super) fn set_moment(&self, moment: u64) {
        self.moment.store(moment, Ordering::Release);
    }

    /// Keep these arrays as they are now for a reader, unless that was done for this moment already: the latest of increasing
    /// numbers.
    pub(super) fn freeze(&self, moment: u64, bits: impl FnOnce() -> Vec<BitArray>) -> Option<Arc<FrozenArrays>> {
        let mut frozen = self.frozen.lock();
        if self.moment() >= moment {
            return None;
        }
        let now = Arc::new(FrozenArrays::new(bits()));
        *frozen = Some(now.clone());
        self.is_read.store(true, Ordering::Release);
        self.set_moment(moment);
        Some(now)
    }

    /// The former state that is being read, if there is one.
    #[inline]
    pub(super) fn frozen(&self) -> Option<Arc<FrozenArrays>> {
        if !self.is_read.load(Ordering::Acquire) {
            return None;
        }
        self.still_read()
    }

    #[cold]
    fn still_read(&self) -> Option<Arc<FrozenArrays>> {
        let mut frozen = self.frozen.lock();
        if frozen.as_ref().is_some_and(|frozen| frozen.is_over()) {
            *frozen = None;
            self.is_read.store(false, Ordering::Release);
        }
        frozen.clone()
    }
}

#[cfg(test)]
mod tests {
    use crate::filters::bloom::{HashPair, Shape};
    use crate::filters::scalable_bloom::ScalableBloom;

    fn bits_of(chain: &ScalableBloom) -> Vec<Vec<u8>> {
        let bytes = |link: &crate::filters::scalable_bloom::Link| {
            let mut bytes = vec![0; link.bits().len()];
            link.bits().copy_bytes(0, &mut bytes);
            bytes
        };
        chain.links().iter().map(bytes).collect()
    }

    fn add(chain: &mut ScalableBloom, random: &mut fastrand::Rng, exclusive: bool) {
        let pair = HashPair::of(&random.u64(..).to_le_bytes());
        let added = if exclusive { chain.insert(pair) } else { chain.insert_shared(pair) };
        if added == crate::filters::Insert::NeedsGrowth {
            let shape = chain.next_shape().unwrap();
            chain.push_link(shape).unwrap();
        }
    }

    /// What is read is the state at the freeze, whatever is changed before and between the reads, and in which way.
    #[test]
    fn the_former_state_is_read_while_changes_go_on() {
        for seed in 0..20 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut chain = ScalableBloom::new(5, 2, Shape::new(60_000, 0.01).unwrap()).unwrap();
            (0..random.usize(..100_000)).for_each(|_| add(&mut chain, &mut random, false));
            let (infos, bits, items) = (chain.link_infos().collect::<Vec<_>>(), bits_of(&chain), chain.items());
            let frozen = chain.freeze(1).unwrap();
            assert!(chain.freeze(1).is_none());
            let (mut read, mut page) = (Vec::new(), Vec::new());
            loop {
                let exclusive = random.bool();
                // Some pages get more changes than are noted one by one.
                for _ in 0..random.usize(..60_000) {
                    add(&mut chain, &mut random, exclusive);
                }
                if random.bool() {
                    let data = vec![random.u8(..); random.usize(..3000)];
                    let link = random.usize(..chain.links().len());
                    let offset = random.usize(..chain.links()[link].bits().len() - data.len());
                    chain.or_bytes(link, offset, &data);
                }
                frozen.read_page(&mut page);
                if page.is_empty() {
                    break;
                }
                read.extend_from_slice(&page);
            }
            assert_eq!((&frozen.links, frozen.items), (&infos, items));
            assert!(read == bits.concat(), "seed {seed}");
            assert!(frozen.is_over());
            add(&mut chain, &mut random, false);
            let again = bits_of(&chain);
            let frozen = chain.freeze(2).unwrap();
            let mut read = Vec::new();
            while !page.is_empty() || read.is_empty() {
                frozen.read_page(&mut page);
                read.extend_from_slice(&page);
            }
            assert!(read == again.concat());
        }
    }

    fn add_shared(chain: &ScalableBloom, random: &mut fastrand::Rng) {
        for _ in 0..200_000 {
            chain.insert_shared(HashPair::of(&random.u64(..).to_le_bytes()));
        }
    }

    #[test]
    fn threads_that_add_do_not_disturb_the_reader() {
        let chain = ScalableBloom::new(5, 2, Shape::new(2_000_000, 0.01).unwrap()).unwrap();
        let mut random = fastrand::Rng::with_seed(7);
        add_shared(&chain, &mut random);
        let bits = bits_of(&chain).concat();
        let frozen = chain.freeze(1).unwrap();
        let mut read = Vec::new();
        std::thread::scope(|scope| {
            for seed in 10..13 {
                let chain = &chain;
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(seed);
                    add_shared(chain, &mut random);
                });
            }
            let mut page = vec![0];
            while !page.is_empty() {
                frozen.read_page(&mut page);
                read.extend_from_slice(&page);
            }
        });
        assert!(read == bits);
    }
}
