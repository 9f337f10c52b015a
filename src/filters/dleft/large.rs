//! A d-left filter with allocations of its own: sets of sub-tables, and the exact set beside them.
//!
//! One thread at a time writes it; any number read it when nobody writes. A snapshot reads it as it was at one moment while writes go
//! on: [`Dleft::freeze`].

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::geometry::Layout;
use super::permutation::Permutations;
use super::spill::{Spill, Spilled};
use super::table::{Found, Probe, Table};
use super::{DleftRef, GROUP, Inserted, Loads, MOST_SETS, Refused, SetInfo, Settings, SettingsError, fingerprint};
use crate::filters::bits::{AllocError, BitArray};
use crate::filters::frozen::{FrozenArrays, Past};
use crate::filters::words::{NotedWords, WORD_BYTES, Words, WordsMut};

/// Bytes copied at once.
const COPY_BYTES: usize = 32 << 10;
/// The number, among the arrays of a frozen state, of one that was made since.
const MADE_SINCE: usize = usize::MAX;

/// A set of sub-tables.
pub(super) struct Set {
    pub(super) layout: Layout,
    pub(super) permutations: Permutations,
    capacity: u64,
    pub(super) used: u64,
    loads: Loads,
    array: BitArray,
    /// The number of the array in the former state that is being read.
    frozen_as: AtomicUsize,
}

impl Set {
    fn new(geometry: super::Geometry, seed: u64, capacity: u64) -> Result<Self, AllocError> {
        Ok(Self::with_array(geometry, seed, capacity, BitArray::zeroed(geometry.bytes())?))
    }

    /// A set with these bytes, of which nothing is counted.
    fn with_array(geometry: super::Geometry, seed: u64, capacity: u64, array: BitArray) -> Self {
        let mut loads = Loads::default();
        loads[0] = u64::from(geometry.subtables) * geometry.buckets;
        Self {
            layout: Layout::new(geometry),
            permutations: Permutations::draw(seed, geometry.subtables, geometry.buckets, geometry.range()),
            capacity,
            used: 0,
            loads,
            array,
            frozen_as: AtomicUsize::new(MADE_SINCE),
        }
    }

    #[inline(always)]
    pub(super) fn table(&self) -> Table<'_, &[AtomicU64]> {
        Table { layout: &self.layout, permutations: &self.permutations, words: self.array.words() }
    }

    /// Changes the table; a former state that is being read is told of every word.
    #[inline(always)]
    pub(super) fn write<R>(&mut self, past: &Past, work: impl FnOnce(&mut Table<'_, NotedWords<'_>>) -> R) -> R {
        let frozen = past.frozen();
        let changes = frozen.as_deref().map(|frozen| (frozen.changes(), self.frozen_as.load(Ordering::Relaxed)));
        let words = NotedWords::new(&mut self.array, changes);
        work(&mut Table { layout: &self.layout, permutations: &self.permutations, words })
    }

    fn info(&self) -> SetInfo {
        SetInfo { geometry: self.layout.geometry, capacity: self.capacity, used: self.used }
    }

    /// A bucket uses one cell more, or one less.
    #[inline(always)]
    fn count_load(&mut self, before: u32, after: u32) {
        self.loads[before as usize] -= 1;
        self.loads[after as usize] += 1;
        self.used = self.used + u64::from(after) - u64::from(before);
    }

    /// So many buckets use so many cells.
    pub(super) fn set_loads(&mut self, loads: Loads) {
        self.used = (0..).zip(&loads).map(|(cells, buckets)| cells * buckets).sum();
        self.loads = loads;
    }
}

/// A d-left counting filter; see the [module](super).
pub struct Dleft {
    settings: Settings,
    seed: u64,
    /// Fingerprints of items are below it.
    pub(super) range: u64,
    pub(super) items: u64,
    /// Oldest first, never empty.
    pub(super) sets: Vec<Set>,
    pub(super) spill: Spill,
    pub(super) past: Past,
    /// Cells of sets that became empty.
    retired: Vec<BitArray>,
}

/// A filter as it was at one moment.
pub struct Image {
    /// What it was made with.
    pub settings: Settings,
    /// What its multipliers were drawn from.
    pub seed: u64,
    /// Items in it then.
    pub items: u64,
    /// Its sets then, oldest first.
    pub sets: Vec<SetInfo>,
    /// The bytes of its sets then, to be read once, in order.
    pub cells: Arc<FrozenArrays>,
    spill: Spill,
}

impl Image {
    /// The entries of the set beside the cells then.
    #[must_use]
    pub fn spilled(&self) -> &[Spilled] {
        self.spill.entries()
    }
}

impl Drop for Image {
    /// Changes need not be noted any more, whether it was read to the end or not.
    fn drop(&mut self) {
        self.cells.end();
    }
}

/// A filter was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CreateError {
    /// There is none with such settings.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// No memory.
    #[error(transparent)]
    Memory(#[from] AllocError),
}

/// A cell, and the set in which it is.
pub(super) struct Located {
    pub set: usize,
    pub probe: Probe,
    pub found: Found,
}

impl Dleft {
    /// An empty filter, whose multipliers are drawn from this seed.
    ///
    /// # Errors
    /// [`CreateError`].
    pub fn new(settings: Settings, seed: u64) -> Result<Self, CreateError> {
        let geometry = settings.geometry()?;
        let (range, spill, past) = (geometry.range(), Spill::default(), Past::default());
        let sets = vec![Set::new(geometry, seed, settings.capacity)?];
        Ok(Self { settings, seed, range, items: 0, sets, spill, past, retired: Vec::new() })
    }

    /// A filter like another one, but that all of its cells are free as yet: for whoever copies it in pieces with
    /// [`put_bytes`](Self::put_bytes).
    ///
    /// # Errors
    /// [`AllocError`] when there is no memory for it.
    pub fn to_be_copied(from: DleftRef<'_>) -> Result<Self, AllocError> {
        let mut sets = Vec::new();
        for info in from.sets() {
            sets.push(Set { used: info.used, ..Set::new(info.geometry, from.seed(), info.capacity)? });
        }
        let mut spill = Spill::default();
        match from {
            DleftRef::Packed(_) => sets.iter_mut().for_each(|set| set.loads = from.loads()),
            DleftRef::Large(filter) => {
                sets.iter_mut().zip(&filter.sets).for_each(|(set, other)| set.loads = other.loads);
                spill = filter.spill.clone();
            }
        }
        let range = sets.first().map_or(0, |set| set.layout.geometry.range());
        let (settings, seed, items) = (from.settings(), from.seed(), from.items());
        Ok(Self { settings, seed, range, items, sets, spill, past: Past::default(), retired: Vec::new() })
    }

    /// Puts bytes where the cells of a set are free, from `offset` on; nothing is counted.
    ///
    /// # Panics
    /// If there is no such set, or the range does not lie inside it.
    pub fn put_bytes(&mut self, set: usize, offset: usize, bytes: &[u8]) {
        self.sets[set].array.or_bytes(offset, bytes);
    }

    /// The same filter as another one.
    pub(super) fn copy_of(other: DleftRef<'_>) -> Result<Self, AllocError> {
        let mut copy = Self::to_be_copied(other)?;
        let mut buffer = [0; COPY_BYTES];
        for set in 0..copy.sets.len() {
            let bytes = copy.sets[set].array.len();
            for offset in (0..bytes).step_by(COPY_BYTES) {
                let length = COPY_BYTES.min(bytes - offset);
                other.copy_bytes(set, offset, &mut buffer[..length]);
                copy.put_bytes(set, offset, &buffer[..length]);
            }
        }
        Ok(copy)
    }

    /// What it was made with.
    #[inline]
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// What its multipliers were drawn from.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Its sets, oldest first.
    pub fn sets(&self) -> impl Iterator<Item = SetInfo> {
        self.sets.iter().map(Set::info)
    }

    /// Items added and not removed since.
    #[must_use]
    pub fn items(&self) -> u64 {
        self.items
    }

    pub(super) fn range(&self) -> u64 {
        self.range
    }

    pub(super) fn spilled(&self) -> &[Spilled] {
        self.spill.entries()
    }

    /// Different fingerprints in it.
    pub(super) fn different(&self) -> u64 {
        self.sets.iter().map(|set| set.used).sum::<u64>() + self.spill.without_cell()
    }

    pub(super) fn loads(&self) -> Loads {
        std::array::from_fn(|cells| self.sets.iter().map(|set| set.loads[cells]).sum())
    }

    #[inline(always)]
    pub(super) fn locate(&self, f: u64) -> Option<Located> {
        // The newest set is mostly the largest.
        self.sets.iter().enumerate().rev().find_map(|(set, table)| {
            let mut probe = table.table().probe(f);
            let found = table.table().search(&mut probe)?;
            Some(Located { set, probe, found })
        })
    }

    #[inline]
    pub(super) fn contains(&self, hash: u64) -> bool {
        let f = fingerprint(hash, self.range);
        self.locate(f).is_some() || self.spill.get(f).is_some()
    }

    #[inline]
    pub(super) fn count(&self, hash: u64) -> u64 {
        let f = fingerprint(hash, self.range);
        let in_cell = |at: Located| self.sets[at.set].table().copies(&at.probe, at.found);
        self.locate(f).map_or(0, in_cell) + self.spill.get(f).map_or(0, |entry| entry.copies.into())
    }

    #[inline]
    pub(super) fn prefetch(&self, hash: u64) {
        let f = fingerprint(hash, self.range);
        for set in &self.sets {
            set.table().probe(f);
        }
    }

    pub(super) fn contains_many(&self, hashes: &[u64], out: &mut [bool]) {
        let mut probes = [Probe::default(); GROUP];
        for (hashes, out) in hashes.chunks(GROUP).zip(out.chunks_mut(GROUP)) {
            out.fill(false);
            for set in self.sets.iter().rev() {
                let table = set.table();
                for ((hash, probe), _) in hashes.iter().zip(&mut probes).zip(&*out).filter(|(_, found)| !**found) {
                    *probe = table.probe(fingerprint(*hash, self.range));
                }
                for (probe, out) in probes.iter_mut().zip(&mut *out).filter(|(_, found)| !**found) {
                    *out = table.search(probe).is_some();
                }
            }
            if !self.spill.entries().is_empty() {
                for (hash, out) in hashes.iter().zip(out).filter(|(_, found)| !**found) {
                    *out = self.spill.get(fingerprint(*hash, self.range)).is_some();
                }
            }
        }
    }

    /// Counts an item with this hash.
    ///
    /// # Errors
    /// [`Refused`]; nothing has changed then.
    #[inline]
    pub fn insert(&mut self, hash: u64) -> Result<Inserted, Refused> {
        let f = fingerprint(hash, self.range);
        let inserted = if let [set] = &self.sets[..] {
            // The one set is searched once.
            let mut probe = set.table().probe(f);
            match set.table().search(&mut probe) {
                Some(found) => self.count_again(f, &Located { set: 0, probe, found }),
                None => self.count_first(f, Some(&probe)),
            }
        } else {
            match self.locate(f) {
                Some(located) => self.count_again(f, &located),
                None => self.count_first(f, None),
            }
        }?;
        self.items += 1;
        Ok(inserted)
    }

    /// One copy more of a fingerprint that has a cell.
    #[inline(always)]
    fn count_again(&mut self, f: u64, at: &Located) -> Result<Inserted, Refused> {
        let set = &mut self.sets[at.set];
        let (copies, ceiling) = (set.table().copies(&at.probe, at.found), set.layout.geometry.ceiling());
        if copies < ceiling {
            set.write(&self.past, |table| table.set_copies(&at.probe, at.found, copies + 1));
            return Ok(Inserted::Counted(copies + 1));
        }
        let beside = self.spill.get(f).map_or(0, |entry| u64::from(entry.copies));
        if self.spill.add(f, false, self.settings.most_spilled())? {
            return Ok(Inserted::Counted(copies + beside + 1));
        }
        Err(Refused::CounterFull(copies + beside))
    }

    /// A fingerprint without a cell. `probe` is that of the only set, searched.
    #[inline(always)]
    fn count_first(&mut self, f: u64, probe: Option<&Probe>) -> Result<Inserted, Refused> {
        if let Some(entry) = self.spill.get(f) {
            let copies = u64::from(entry.copies);
            return match self.spill.add(f, true, 0)? {
                true => Ok(Inserted::Counted(copies + 1)),
                false => Err(Refused::CounterFull(copies)),
            };
        }
        let grows = self.settings.growth.is_some();
        let mut had_room = false;
        for set in self.sets.iter_mut().filter(|set| !grows || set.used < set.capacity) {
            had_room = true;
            let placed = match probe {
                Some(probe) => set.write(&self.past, |table| table.place(probe)),
                None => {
                    let mut probe = set.table().probe(f);
                    let found = set.table().search(&mut probe);
                    debug_assert!(found.is_none());
                    set.write(&self.past, |table| table.place(&probe))
                }
            };
            if let Some((_, used)) = placed {
                set.count_load(used, used + 1);
                return Ok(Inserted::New);
            }
        }
        self.refuse(f, had_room)
    }

    /// No set has a cell for a new fingerprint.
    #[cold]
    fn refuse(&mut self, f: u64, had_room: bool) -> Result<Inserted, Refused> {
        if !had_room {
            return Err(match self.next_capacity() {
                Some(_) => Refused::NeedsGrowth,
                None => Refused::Full { items: self.different(), capacity: self.settings.final_capacity() },
            });
        }
        match self.spill.add(f, true, self.settings.most_spilled())? {
            true => Ok(Inserted::New),
            false => Err(Refused::NoCell),
        }
    }

    /// Takes one item with this hash out; false if none is there.
    ///
    /// # Errors
    /// [`AllocError`] when what is beside the cells cannot be changed; see [`DleftMut::remove`](super::DleftMut::remove).
    #[inline]
    pub fn remove(&mut self, hash: u64) -> Result<bool, AllocError> {
        let f = fingerprint(hash, self.range);
        if self.spill.take(f)? {
            self.items -= 1;
            return Ok(true);
        }
        let Some(Located { set: index, probe, found }) = self.locate(f) else { return Ok(false) };
        let set = &mut self.sets[index];
        let copies = set.table().copies(&probe, found);
        if copies > 1 {
            set.write(&self.past, |table| table.set_copies(&probe, found, copies - 1));
        } else {
            let used = set.write(&self.past, |table| table.free(&probe, found));
            set.count_load(used, used - 1);
            if set.used == 0 && index > 0 {
                self.retired.push(self.sets.remove(index).array);
            }
        }
        self.items -= 1;
        Ok(true)
    }

    /// The cells of sets that became empty since this was last asked: whoever takes them frees them where nobody waits.
    pub fn take_retired(&mut self) -> Vec<BitArray> {
        std::mem::take(&mut self.retired)
    }

    /// Items of the set that comes next; none if the filter does not grow any further.
    fn next_capacity(&self) -> Option<u64> {
        let growth = self.settings.growth?;
        let capacities = self.sets.iter().map(|set| set.capacity);
        let (held, largest) = capacities.fold((0_u64, 0), |(held, most), own| (held + own, most.max(own)));
        // The newest may have got what was left, and stay when those before it are given back.
        let next = largest.saturating_mul(growth.factor.into()).min(growth.final_capacity.saturating_sub(held));
        (next > 0 && self.sets.len() < MOST_SETS).then_some(next)
    }

    /// The sizes of the set that [`grow`](Self::grow) makes; none if the filter does not grow any further.
    #[must_use]
    pub fn next_geometry(&self) -> Option<super::Geometry> {
        self.sets[0].layout.geometry.further(self.next_capacity()?)
    }

    /// Makes a further set, if the filter may have one; see [`Refused::NeedsGrowth`].
    ///
    /// # Errors
    /// [`AllocError`] when there is no memory for it; the filter is as it was then.
    pub fn grow(&mut self) -> Result<(), AllocError> {
        let Some(capacity) = self.next_capacity() else { return Ok(()) };
        self.push_set(capacity)
    }

    fn push_set(&mut self, capacity: u64) -> Result<(), AllocError> {
        let failed = AllocError { bytes: u64::MAX };
        let geometry = self.sets[0].layout.geometry.further(capacity).ok_or(failed)?;
        let set = Set::new(geometry, self.seed, capacity)?;
        let failed = AllocError { bytes: size_of::<Set>() as u64 };
        self.sets.try_reserve_exact(1).map_err(|_| failed)?;
        self.sets.push(set);
        Ok(())
    }

    /// Gives a filter that is being loaded a further set, for so many items; false if it may not have one.
    ///
    /// # Errors
    /// [`AllocError`] when there is no memory for it.
    pub fn load_set(&mut self, capacity: u64) -> Result<bool, AllocError> {
        let held: u64 = self.sets.iter().map(|set| set.capacity).fold(0, u64::saturating_add);
        let room = self.settings.final_capacity().saturating_sub(held);
        if capacity == 0 || capacity > room || self.sets.len() >= MOST_SETS {
            return Ok(false);
        }
        self.push_set(capacity).map(|()| true)
    }

    /// Puts bytes into a set of a filter that is being loaded, from `offset` on, which is a multiple of 8; [`loaded`](Self::loaded) ends it.
    ///
    /// # Panics
    /// If there is no such set, the offset is another one, or the range does not lie inside the set.
    pub fn load_bytes(&mut self, set: usize, offset: usize, data: &[u8]) {
        assert_eq!(offset % WORD_BYTES, 0);
        assert!(offset + data.len() <= self.sets[set].array.len());
        self.sets[set].write(&self.past, |table| {
            for (word, bytes) in (offset / WORD_BYTES..).zip(data.chunks(WORD_BYTES)) {
                let mut whole = table.words.word(word).to_le_bytes();
                whole[..bytes.len()].copy_from_slice(bytes);
                table.words.set_word(word, u64::from_le_bytes(whole));
            }
        });
    }

    /// Puts an entry beside the cells of a filter that is being loaded; false if there can be none such.
    ///
    /// # Errors
    /// [`AllocError`] when there is no memory for it.
    pub fn load_spilled(&mut self, entry: Spilled) -> Result<bool, AllocError> {
        let fits = entry.copies > 0 && (self.spilled().len() as u64) < self.settings.most_spilled();
        Ok(fits && self.spill.load(entry)?)
    }

    /// All was loaded: false if no filter can have it. Takes as long as a question for each item; [`Check`](super::Check) does the same in
    /// steps.
    #[must_use]
    pub fn loaded(&mut self) -> bool {
        super::Check::strict().step(self, u64::MAX).unwrap_or(false)
    }

    /// A filter with these sets, of so many items each, oldest first, and these entries beside the cells; none if there is no such filter. It
    /// is good for nothing but a [check](Self::loaded).
    #[must_use]
    pub fn from_arrays(
        settings: Settings,
        seed: u64,
        arrays: Vec<(u64, BitArray)>,
        spilled: Vec<Spilled>,
    ) -> Option<Self> {
        let capacities: Vec<_> = arrays.iter().map(|(capacity, _)| *capacity).collect();
        let geometries = Self::geometries(&settings, &capacities)?;
        let mut sets = Vec::with_capacity(arrays.len());
        for (geometry, (capacity, array)) in geometries.iter().zip(arrays) {
            if array.len() as u64 != geometry.bytes() {
                return None;
            }
            sets.push(Set::with_array(*geometry, seed, capacity, array));
        }
        let spill = Spill::of(spilled).filter(|spill| spill.entries().len() as u64 <= settings.most_spilled())?;
        let range = geometries.first()?.range();
        Some(Self { settings, seed, range, items: 0, sets, spill, past: Past::default(), retired: Vec::new() })
    }

    /// The sizes of the sets of a filter with these settings and sets for so many items each, as
    /// [`from_arrays`](Self::from_arrays) takes them; none if it cannot have them.
    #[must_use]
    pub fn geometries(settings: &Settings, capacities: &[u64]) -> Option<Vec<super::Geometry>> {
        let first = settings.geometry().ok()?;
        let held = capacities.iter().try_fold(0_u64, |held, capacity| held.checked_add(*capacity))?;
        let fits = capacities.first() == Some(&settings.capacity)
            && capacities.len() <= if settings.growth.is_some() { MOST_SETS } else { 1 }
            && held <= settings.final_capacity()
            && capacities.iter().all(|capacity| *capacity > 0);
        let further = capacities.iter().skip(1).map(|capacity| first.further(*capacity));
        std::iter::once(Some(first)).chain(further).collect::<Option<Vec<_>>>().filter(|_| fits)
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = (u64, u64)> {
        let in_cells = self.sets.iter().flat_map(|set| set.table().entries()).map(|entry| (entry.f, entry.copies));
        in_cells.chain(self.spill.entries().iter().map(|entry| (entry.f, entry.copies.into())))
    }

    pub(super) fn is_sound(&self) -> bool {
        // One that stands in two cells is found in one of them only.
        let cells = self.sets.iter().enumerate().all(|(index, set)| {
            let is_found = |f, at| self.locate(f).is_some_and(|other| (other.set, other.found) == (index, at));
            let used: u64 = (0..).zip(&set.loads).map(|(cells, buckets)| cells * buckets).sum();
            let mut loads = Loads::default();
            set.table().is_clean() && used == set.used && {
                set.table().loads().for_each(|used| loads[used as usize] += 1);
                loads == set.loads && set.table().entries().all(|cell| cell.f < self.range && is_found(cell.f, cell.at))
            }
        });
        let ceiling = self.sets[0].layout.geometry.ceiling();
        let spilled = self.spill.entries().iter().all(|entry| {
            let copies = self.locate(entry.f).map(|at| self.sets[at.set].table().copies(&at.probe, at.found));
            entry.f < self.range && copies == (!entry.without_cell).then_some(ceiling)
        });
        cells && spilled && self.items == self.entries().map(|(_, copies)| copies).sum::<u64>()
    }

    pub(super) fn copy_bytes(&self, set: usize, offset: usize, out: &mut [u8]) {
        self.sets[set].array.copy_bytes(offset, out);
    }

    /// Bytes of the heap that it holds, without the size of this struct. `given` tells what the allocator gives out for a number of
    /// bytes.
    #[must_use]
    pub fn heap_bytes(&self, given: impl Fn(usize) -> usize) -> usize {
        let of_set = |set: &Set| {
            let array = if set.array.is_mapped() { 0 } else { given(set.array.allocated_bytes()) };
            array + given(BitArray::HANDLE_BYTES)
        };
        let sets: usize = self.sets.iter().map(of_set).sum();
        sets + given(self.sets.capacity() * size_of::<Set>()) + self.spill.heap_bytes(given)
    }

    /// Bytes of memory mappings that it holds.
    #[must_use]
    pub fn mapped_bytes(&self) -> usize {
        self.sets.iter().map(|set| &set.array).filter(|array| array.is_mapped()).map(BitArray::allocated_bytes).sum()
    }

    /// The number of the latest moment for which it was frozen, or since which it exists.
    pub fn moment(&self) -> u64 {
        self.past.moment()
    }

    /// It did not exist at this moment, or what it was then is known.
    pub fn set_moment(&self, moment: u64) {
        self.past.set_moment(moment);
    }

    /// Keep the state as it is now for a reader: it is the state of this moment, the latest of increasing numbers. Whoever calls
    /// it first gets it; who is about to change the filter calls it before, then waits for no reader.
    pub fn freeze(&self, moment: u64) -> Option<Image> {
        let cells = self.past.freeze(moment, || {
            let numbered = self.sets.iter().zip(0..);
            numbered.clone().for_each(|(set, number)| set.frozen_as.store(number, Ordering::Relaxed));
            numbered.map(|(set, _)| set.array.share()).collect()
        })?;
        let (settings, seed, items, spill) = (self.settings, self.seed, self.items, self.spill.clone());
        Some(Image { settings, seed, items, sets: self.sets().collect(), cells, spill })
    }
}

impl std::fmt::Debug for Dleft {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut fields = f.debug_struct("Dleft");
        fields.field("settings", &self.settings).field("items", &self.items);
        fields.field("sets", &self.sets().collect::<Vec<_>>()).finish_non_exhaustive()
    }
}
