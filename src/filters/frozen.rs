//! A chain as it was at one moment, read while it goes on being changed.
//!
//! Whoever saves a filter of a gigabyte may neither stop the adds meanwhile nor copy it first. So it is read in order, a page
//! of 64 KiB at a time, and who changes a word *beyond* the page that is read next first notes the word as it was. The reader
//! copies a page, puts the old words back in its copy, and moves on.
//!
//! **Cost.** Ten bytes for each word changed ahead of the reader. A page with more than 4,096 of them is copied
//! instead, which takes less. Before-images of whole pages were tried first: the bits of an item lie far apart, so 1,000 adds
//! copied 405 MB and took 1.1 s; by word it is 0.7 ms and 125 KB.
//!
//! **Order.** Who changes a word holds a lock while it notes the word and then changes it. The reader copies a page without the
//! lock, then takes it to fetch the page's notes and to say that the page is read: there is a note for every change that the
//! copy may show. A word may be noted more than once; put back are the notes from the last to the first.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};

use super::LinkInfo;
use super::bits::BitArray;

/// Bytes that are read at once.
pub const PAGE_BYTES: usize = 64 << 10;
const WORD_BYTES: usize = size_of::<u64>();
const PAGE_WORDS: usize = PAGE_BYTES / WORD_BYTES;
/// Notes of a page above which it is copied.
const MOST_NOTES: usize = 4096;

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
    /// The bits of each link, shared with the chain.
    bits: Vec<BitArray>,
    over: AtomicBool,
    /// Bytes that the notes take.
    noted: AtomicU64,
    state: Mutex<State>,
}

struct State {
    /// The page of a link that is read next.
    next: (usize, usize),
    /// What each page of each link had that was changed since. A link is given its pages when its first word changes.
    notes: Vec<Vec<Page>>,
}

/// What a page had that was changed since.
#[derive(Default)]
enum Page {
    #[default]
    Unchanged,
    /// These words: where, and as they were.
    Words { at: Vec<u16>, old: Vec<u64> },
    /// The whole of it, as it was.
    Whole(Box<[u64]>),
}

impl Frozen {
    pub(super) fn new(options: u32, growth: u32, items: u64, links: Vec<LinkInfo>, bits: Vec<BitArray>) -> Self {
        let notes = links.iter().map(|_| Vec::new()).collect();
        let state = Mutex::new(State { next: (0, 0), notes });
        Self { options, growth, items, links, bits, over: AtomicBool::new(false), noted: AtomicU64::new(0), state }
    }

    /// Whether nobody reads it any more.
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Bytes that the notes of changes take now.
    pub fn noted_bytes(&self) -> u64 {
        self.noted.load(Ordering::Relaxed)
    }

    /// Make changes, each of which is noted first.
    pub(super) fn changes(&self) -> Changes<'_> {
        Changes { frozen: self, state: self.state.lock() }
    }

    /// Read the next page: `buffer` gets it. Pages are read in order, link after link; an empty buffer means the end.
    pub fn read_page(&self, buffer: &mut Vec<u8>) {
        buffer.clear();
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
            self.noted.fetch_sub(notes.bytes(), Ordering::Relaxed);
            notes.put_back(buffer);
            return;
        }
        self.end();
    }

    /// Nobody reads any further: changes need not be noted any more.
    pub fn end(&self) {
        let mut state = self.state.lock();
        state.notes = Vec::new();
        state.next = (usize::MAX, 0);
        self.noted.store(0, Ordering::Relaxed);
        self.over.store(true, Ordering::Release);
    }
}

/// Reads the bits of a frozen chain in order, in pieces of any size.
pub struct FrozenBits<'a> {
    frozen: &'a Frozen,
    page: Vec<u8>,
    /// How much of the page was given out.
    given: usize,
}

impl<'a> FrozenBits<'a> {
    /// All bits, link after link.
    #[must_use]
    pub fn of(frozen: &'a Frozen) -> Self {
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
    /// A page was read: what it had that was changed since.
    fn pass(&mut self, (link, page): (usize, usize)) -> Page {
        self.next = (link, page + 1);
        self.notes.get_mut(link).and_then(|pages| pages.get_mut(page)).map(std::mem::take).unwrap_or_default()
    }
}

impl Page {
    fn bytes(&self) -> u64 {
        match self {
            Self::Unchanged => 0,
            Self::Words { at, old } => (at.capacity() * size_of::<u16>() + old.capacity() * WORD_BYTES) as u64,
            Self::Whole(words) => (words.len() * WORD_BYTES) as u64,
        }
    }

    /// Undo in a copy of the page what was changed since.
    fn put_back(&self, copy: &mut [u8]) {
        let mut put = |at: usize, old: u64| {
            let to = &mut copy[at * WORD_BYTES..];
            let length = to.len().min(WORD_BYTES);
            to[..length].copy_from_slice(&old.to_ne_bytes()[..length]);
        };
        match self {
            Self::Unchanged => {}
            Self::Words { at, old } => at.iter().zip(old).rev().for_each(|(at, old)| put(usize::from(*at), *old)),
            Self::Whole(words) => words.iter().enumerate().for_each(|(at, old)| put(at, *old)),
        }
    }

    /// Note a word, if there is room for the note; whether there is.
    #[inline]
    fn note(&mut self, word: u16, value: u64) -> bool {
        match self {
            Self::Words { at, old } if at.len() < at.capacity() && old.len() < old.capacity() => {
                at.push(word);
                old.push(value);
                true
            }
            Self::Whole(_) => true,
            Self::Words { .. } | Self::Unchanged => false,
        }
    }

    /// Make room for notes; `whole` gives the page as it was, out of the notes that there are.
    #[cold]
    fn grow(&mut self, whole: impl FnOnce(&[u16], &[u64]) -> Box<[u64]>) {
        match self {
            Self::Unchanged => *self = Self::Words { at: Vec::with_capacity(8), old: Vec::with_capacity(8) },
            Self::Words { at, old } if at.len() < MOST_NOTES => {
                // In small steps: there are many pages, and doubling leaves half of each unused.
                at.reserve_exact(at.len() / 4 + 8);
                old.reserve_exact(at.capacity() - old.len());
            }
            Self::Words { at, old } => *self = Self::Whole(whole(at, old)),
            Self::Whole(_) => {}
        }
    }
}

fn word_of_bytes(bytes: &[u8]) -> u64 {
    let mut word = [0; WORD_BYTES];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_ne_bytes(word)
}

/// Changes of a chain whose former state is still being read; nobody else makes any meanwhile.
pub(super) struct Changes<'a> {
    frozen: &'a Frozen,
    state: MutexGuard<'a, State>,
}

impl Changes<'_> {
    /// A word of a link is about to be changed. `value` is what it has.
    pub(super) fn note(&mut self, link: usize, word: usize, value: u64) {
        let State { next, notes } = &mut *self.state;
        let page = word / PAGE_WORDS;
        // Links that the chain got since, and pages that are read already, concern nobody.
        let Some(array) = self.frozen.bits.get(link).filter(|_| (link, page) >= *next) else { return };
        let Some(pages) = notes.get_mut(link) else { return };
        if pages.is_empty() {
            pages.resize_with(array.len().div_ceil(PAGE_BYTES), Page::default);
        }
        let Some(page_notes) = pages.get_mut(page) else { return };
        let place = (word % PAGE_WORDS) as u16;
        if page_notes.note(place, value) {
            return;
        }
        let before = page_notes.bytes();
        page_notes.grow(|at, old| page_as_it_was(array, page, at, old));
        // A page takes less as a whole than its notes did.
        self.frozen.noted.fetch_add(page_notes.bytes().wrapping_sub(before), Ordering::Relaxed);
        page_notes.note(place, value);
    }
}

/// A page with the noted words put back.
fn page_as_it_was(array: &BitArray, page: usize, at: &[u16], old: &[u64]) -> Box<[u64]> {
    let start = page * PAGE_BYTES;
    let mut bytes = vec![0; PAGE_BYTES.min(array.len() - start)];
    array.copy_bytes(start, &mut bytes);
    let mut words: Box<[u64]> = bytes.chunks(WORD_BYTES).map(word_of_bytes).collect();
    at.iter().zip(old).rev().for_each(|(at, old)| words[usize::from(*at)] = *old);
    words
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
            assert!(frozen.is_over() && frozen.noted_bytes() == 0);
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
