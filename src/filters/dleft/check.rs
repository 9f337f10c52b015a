//! The check of a filter whose bytes came from somewhere, in steps.
//!
//! Bytes of a file are those of one moment: either a filter can have them, or they are refused. Bytes that were read in pieces while
//! the filter was changed are of several moments. What was in the filter all the time is in them, in the one cell that stands for it.
//! But a fingerprint that was removed and added again meanwhile can stand in two cells, or in a cell and beside the cells; such a
//! filter is *mended*: what was read last counts.

use super::Loads;
use super::geometry::MOST_CELLS;
use super::large::Dleft;
use super::permutation::Inverses;
use super::spill::{Spill, Spilled};
use super::table::{Entry, Found, Probe};

/// How far a check is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Check {
    mends: bool,
    /// All counts of used cells fit: no bucket is searched before that is known.
    is_clean: bool,
    set: usize,
    bucket: u64,
    loads: Loads,
    items: u64,
    /// Those of the set.
    inverses: Option<Inverses>,
}

impl Check {
    /// Of bytes that are of one moment.
    #[must_use]
    pub fn strict() -> Self {
        Self::default()
    }

    /// Of bytes that were read while the filter was changed.
    #[must_use]
    pub fn mending() -> Self {
        Self { mends: true, ..Self::default() }
    }

    /// Looks at so many more buckets. None: there are more. Otherwise whether the filter is sound, and can be used now.
    pub fn step(&mut self, filter: &mut Dleft, buckets: u64) -> Option<bool> {
        for _ in 0..buckets {
            let Some(set) = filter.sets.get(self.set) else {
                if self.is_clean {
                    return Some(self.end(filter));
                }
                (self.is_clean, self.set) = (true, 0);
                continue;
            };
            let ends = self.bucket == set.table().buckets();
            let sound = match (self.is_clean, ends) {
                (false, true) => set.table().ends_clean(),
                (false, false) => set.table().is_clean_bucket(self.bucket),
                (true, true) => {
                    self.end_set(filter);
                    continue;
                }
                (true, false) => self.look(filter),
            };
            if !sound {
                return Some(false);
            }
            (self.set, self.bucket) = if ends { (self.set + 1, 0) } else { (self.set, self.bucket + 1) };
        }
        None
    }

    /// Looks at what one bucket holds.
    fn look(&mut self, filter: &mut Dleft) -> bool {
        let set = &filter.sets[self.set];
        let table = set.table();
        let draw = || set.permutations.inverses(set.layout.geometry.subtables);
        let inverses = *self.inverses.get_or_insert_with(draw);
        let (mut probes, mut used) = ([Probe::default(); MOST_CELLS], 0);
        // All lines are asked for before any is looked at.
        for (entry, probe) in table.entries_of(self.bucket, inverses).zip(&mut probes) {
            if entry.f >= filter.range {
                return false;
            }
            *probe = table.probe(entry.f);
            used += 1;
        }
        let doubled = |(entry, probe): (Entry, &mut Probe)| self.is_doubled(filter, &entry, probe).then_some(entry.at);
        let doubled: Vec<Found> =
            table.entries_of(self.bucket, inverses).zip(&mut probes).filter_map(doubled).collect();
        if !doubled.is_empty() && !self.mends {
            return false;
        }
        // From the last on: what moves to the place of one is none of them.
        for found in doubled.iter().rev() {
            filter.sets[self.set].write(&filter.past, |table| {
                let probe = &mut probes[found.slot as usize];
                // The bucket's count has changed since.
                table.search_from(found.subtable, probe).next();
                table.free(probe, *found);
            });
        }
        let table = filter.sets[self.set].table();
        self.items += table.entries_of(self.bucket, inverses).map(|entry| entry.copies).sum::<u64>();
        self.loads[used - doubled.len()] += 1;
        true
    }

    /// Whether another cell stands for the same fingerprint: one before it in its bucket, or any that comes later.
    fn is_doubled(&self, filter: &Dleft, entry: &Entry, probe: &mut Probe) -> bool {
        let Found { subtable, slot } = entry.at;
        let own =
            filter.sets[self.set].table().search_from(subtable, probe).any(|found| found != Found { subtable, slot });
        own || filter.sets[self.set + 1..]
            .iter()
            .any(|set| set.table().search(&mut set.table().probe(entry.f)).is_some())
    }

    fn end_set(&mut self, filter: &mut Dleft) {
        let set = &mut filter.sets[self.set];
        set.set_loads(std::mem::take(&mut self.loads));
        self.bucket = 0;
        self.inverses = None;
        if self.mends && set.used == 0 && self.set > 0 {
            filter.sets.remove(self.set);
        } else {
            self.set += 1;
        }
    }

    fn end(&mut self, filter: &mut Dleft) -> bool {
        let entries = filter.spill.entries().to_vec();
        filter.items = self.items;
        if self.mends {
            let entries = entries.into_iter().filter_map(|entry| mended(filter, entry)).collect();
            let Some(spill) = Spill::of(entries) else { return false };
            filter.spill = spill;
        }
        filter.items += filter.spill.entries().iter().map(|entry| u64::from(entry.copies)).sum::<u64>();
        filter.spill.entries().iter().all(|entry| is_sound(filter, entry))
    }
}

/// Whether an entry beside the cells fits to them.
fn is_sound(filter: &Dleft, entry: &Spilled) -> bool {
    let ceiling = filter.sets[0].layout.geometry.ceiling();
    let copies = filter.locate(entry.f).map(|at| filter.sets[at.set].table().copies(&at.probe, at.found));
    entry.f < filter.range && copies == (!entry.without_cell).then_some(ceiling)
}

/// An entry that was read after the cells, and the cells so that they fit to it. None if a cell counts all of it.
fn mended(filter: &mut Dleft, entry: Spilled) -> Option<Spilled> {
    let ceiling = filter.sets[0].layout.geometry.ceiling() as u32;
    let all = if entry.without_cell { entry.copies } else { entry.copies.saturating_add(ceiling) };
    let Some(at) = filter.locate(entry.f) else { return Some(Spilled { copies: all, without_cell: true, ..entry }) };
    let in_cell = all.min(ceiling);
    let before = filter.sets[at.set].table().copies(&at.probe, at.found);
    filter.sets[at.set].write(&filter.past, |table| table.set_copies(&at.probe, at.found, in_cell.into()));
    filter.items = filter.items + u64::from(in_cell) - before;
    let copies = all - in_cell;
    (copies > 0).then_some(Spilled { copies, without_cell: false, ..entry })
}
