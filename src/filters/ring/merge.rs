//! Rings that become one, in steps.
//!
//! Newest link goes with newest link, slices of the same time together. A step takes in a few pieces of one array, so that it is as
//! short for large arrays as for small ones; whoever takes them does not matter to the result.

use super::part::Join;
use super::{MOST_PARTS, Mode, Part, Ring, Settings, Window, raised};
use crate::filters::bits::AllocError;

/// Two rings cannot become one.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum MergeError {
    /// They were made with different settings: which, and the values of both.
    #[error("filters differ: {0} {1} and {2}")]
    Differ(&'static str, String, String),
    /// A link would hold more than it is made for.
    #[error("merged filter would hold about {items} items of {capacity}, use FORCE")]
    TooMany {
        /// So many.
        items: u64,
        /// It is made for so many.
        capacity: u64,
    },
    /// A window would have more arrays than [`MOST_PARTS`].
    #[error("merged filter would have more than {MOST_PARTS} arrays")]
    TooManyParts,
    /// No memory.
    #[error(transparent)]
    Memory(#[from] AllocError),
}

/// Rings on the way to become one. With `force` a link may come to hold more than it is made for. Of a window
/// the arrays that are too full to become one stay beside each other: the error rate of a slice can be that of both together.
#[derive(Debug)]
pub struct Merge {
    merged: Ring,
    /// Items that its active link had.
    active_items: u64,
    others: std::vec::IntoIter<Ring>,
    /// The one that is being taken in.
    other: Option<Ring>,
    /// So many of its parts were, or are about to be.
    taken: usize,
    joining: Option<Joining>,
    now: u64,
    force: bool,
}

/// Parts that become one just now.
#[derive(Debug)]
struct Joining {
    /// Those that are to be joined, with the place of each among the parts of the ring; the last one comes first.
    joins: Vec<(usize, Join)>,
    /// Those that were.
    joined: Vec<Joined>,
    becomes: Becomes,
}

#[derive(Debug)]
struct Joined {
    /// Its place.
    index: usize,
    part: Part,
    /// So many items had the two: the ring's own, and the other's.
    before: [u64; 2],
}

impl Joined {
    fn fits(&self) -> bool {
        let [own, other] = self.before;
        self.part.items <= self.part.shape.capacity.max(own).max(other)
    }

    /// So many items came to its place.
    fn more(&self) -> u64 {
        self.part.items.saturating_sub(self.before[0])
    }
}

/// What becomes of parts that were joined.
#[derive(Debug)]
enum Becomes {
    /// They stand at their places, where nothing is left meanwhile.
    Parts,
    /// One of them takes its place; or this part does, if it is too much for each of them.
    OneOrThis(Part),
}

impl Joining {
    /// Join some more; whether that was all.
    fn step(&mut self) -> Result<bool, AllocError> {
        if let Some((_, join)) = self.joins.last_mut()
            && join.step()?
        {
            let joined = self.joins.pop().map(|(index, join)| {
                let before = join.items_before();
                Joined { index, part: join.into_part(), before }
            });
            match self.becomes {
                Becomes::Parts => self.joined.extend(joined),
                // The one to which it gives least: should that be nothing, it was merged before. The others are not kept.
                Becomes::OneOrThis(_) => {
                    let best = self.joined.last().map(Joined::more);
                    if let Some(joined) = joined.filter(Joined::fits)
                        && best.is_none_or(|best| joined.more() <= best)
                    {
                        self.joined = vec![joined];
                    }
                }
            }
        }
        Ok(self.joins.is_empty())
    }
}

impl Merge {
    /// A ring that is to take in what others hold at this time. The greatest time that any has seen counts, if it is later.
    ///
    /// # Errors
    /// [`MergeError::Differ`].
    pub fn new(merged: Ring, others: Vec<Ring>, now: u64, force: bool) -> Result<Self, MergeError> {
        others.iter().try_for_each(|other| check_alike(&merged.settings, &other.settings))?;
        let now = others.iter().map(|other| other.latest).fold(now, u64::max);
        let (active_items, others) = (merged.active_items(), others.into_iter());
        Ok(Self { active_items, merged, others, other: None, taken: 0, joining: None, now, force })
    }

    /// Take in what comes next, in about a tenth of a millisecond. Tells whether that was all.
    ///
    /// # Errors
    /// [`MergeError`].
    pub fn step(&mut self) -> Result<bool, MergeError> {
        if let Some(joining) = &mut self.joining {
            if joining.step()?
                && let Some(joining) = self.joining.take()
            {
                self.merged.take_joined(joining, self.now, self.force)?;
            }
            return Ok(false);
        }
        let Some(other) = self.other.take().or_else(|| self.others.next()) else {
            // One more than items of the active link: from the difference dumps see that links were changed otherwise.
            let more = self.merged.active_items().saturating_sub(self.active_items);
            self.merged.version = raised(self.merged.version, more.saturating_add(1));
            return Ok(true);
        };
        let (merged, now, taken) = (&mut self.merged, self.now, self.taken);
        let part = match merged.settings.mode {
            Mode::Window(_) => other.parts.get(other.count_over(now) + taken),
            _ => other.parts.iter().rev().nth(taken),
        };
        self.joining = match (merged.settings.mode, part) {
            (Mode::Window(_), Some(part)) => Some(merged.join_slice(part)),
            (Mode::Count, Some(part)) => merged.join_link(part, taken, self.force)?,
            (Mode::Dual { .. }, Some(_)) if taken == 0 => merged.join_two(&other, self.force)?,
            _ => {
                (merged.latest, merged.lost) = (merged.latest.max(other.latest), merged.lost.max(other.lost));
                self.taken = 0;
                return Ok(false);
            }
        };
        self.taken += 1;
        self.other = Some(other);
        Ok(false)
    }

    /// The ring that they become.
    #[must_use]
    pub fn ring(&self) -> &Ring {
        &self.merged
    }

    /// The ring that they became.
    #[must_use]
    pub fn into_ring(self) -> Ring {
        self.merged
    }
}

impl Ring {
    /// Take in what these rings hold at this time, as a [`Merge`] does.
    ///
    /// # Errors
    /// [`MergeError`]; the ring is as it was.
    pub fn merge(&mut self, others: &[&Self], now: u64, force: bool) -> Result<(), MergeError> {
        let mut merge = Merge::new(self.clone(), others.iter().map(|other| (*other).clone()).collect(), now, force)?;
        while !merge.step()? {}
        *self = merge.merged;
        Ok(())
    }

    /// A slice is joined with each array that is like it: which of them gets it is known only then.
    fn join_slice(&self, part: &Part) -> Joining {
        let alike = |own: &Part| (own.slice, own.growth, own.shape) == (part.slice, part.growth, part.shape);
        let first = self.parts.partition_point(|own| own.slice < part.slice);
        let same = self.parts.range(first..).take_while(|own| own.slice == part.slice);
        let alike = (first..).zip(same).filter(|(_, own)| alike(own));
        let joins = alike.map(|(index, own)| (index, Join::new(own.clone(), part.clone()))).collect();
        Joining { joins, joined: Vec::new(), becomes: Becomes::OneOrThis(part.clone()) }
    }

    /// `age` is the number of links behind the newest.
    fn join_link(&mut self, part: &Part, age: usize, force: bool) -> Result<Option<Joining>, MergeError> {
        let Some(index) = self.parts.len().checked_sub(age + 1) else {
            check_room(part, 0, force)?;
            self.parts.push_front(part.clone());
            return Ok(None);
        };
        check_shapes(&self.parts[index], part)?;
        let join = Join::new(self.take_part(index), part.clone());
        Ok(Some(Joining { joins: vec![(index, join)], joined: Vec::new(), becomes: Becomes::Parts }))
    }

    fn join_two(&mut self, other: &Self, force: bool) -> Result<Option<Joining>, MergeError> {
        let (Some(own), Some(first)) = (self.parts.front(), other.parts.front()) else {
            if self.parts.is_empty() {
                other.parts.iter().try_for_each(|part| check_room(part, 0, force))?;
                self.parts = other.parts.clone();
            }
            return Ok(None);
        };
        let (mine, theirs) = (self.parts.get(1), other.parts.get(1));
        // Where there is no second array yet, the first holds what the second would.
        let (second, their_second) = (mine.unwrap_or(own), theirs.unwrap_or(first));
        check_shapes(own, first)?;
        check_shapes(second, their_second)?;
        let mut joins = Vec::new();
        if mine.is_some() || theirs.is_some() {
            joins.push((1, Join::new(second.clone(), their_second.clone())));
        }
        joins.push((0, Join::new(own.clone(), first.clone())));
        // Only the joins hold them from now on: what nobody else shares need not be copied.
        (0..self.parts.len()).for_each(|index| drop(self.take_part(index)));
        Ok(Some(Joining { joins, joined: Vec::new(), becomes: Becomes::Parts }))
    }

    /// Take a part out and leave one without content.
    fn take_part(&mut self, index: usize) -> Part {
        let Part { slice, growth, shape, .. } = self.parts[index];
        std::mem::replace(&mut self.parts[index], Part::new(slice, growth, shape))
    }

    fn take_joined(&mut self, joining: Joining, now: u64, force: bool) -> Result<(), MergeError> {
        match joining.becomes {
            Becomes::Parts => joining.joined.into_iter().try_for_each(|joined| self.put_joined(joined, force)),
            Becomes::OneOrThis(part) => self.put_slice(joining.joined.into_iter().next(), part, now),
        }
    }

    fn put_joined(&mut self, joined: Joined, force: bool) -> Result<(), MergeError> {
        let Joined { index, part, before: [own, _] } = joined;
        check_room(&part, own, force)?;
        match self.parts.get_mut(index) {
            Some(place) => *place = part,
            None => self.parts.push_back(part),
        }
        Ok(())
    }

    fn put_slice(&mut self, best: Option<Joined>, part: Part, now: u64) -> Result<(), MergeError> {
        match best {
            Some(best) => {
                let own = std::mem::replace(&mut self.parts[best.index], best.part);
                self.retire(own);
            }
            // What would be too much for one array stays in two.
            None if self.settings.slices_grow() && self.parts.len() >= MOST_PARTS => {
                return Err(MergeError::TooManyParts);
            }
            None => self.turn(part, now),
        }
        Ok(())
    }
}

/// Whether a link holds what it is made for, or no more than the `own` items that stood at its place before: what an earlier
/// `force` has put there stays, but is no reason to put more elsewhere.
fn check_room(part: &Part, own: u64, force: bool) -> Result<(), MergeError> {
    let (items, capacity) = (part.items, part.shape.capacity);
    match items > capacity.max(own) && !force {
        true => Err(MergeError::TooMany { items, capacity }),
        false => Ok(()),
    }
}

/// Whether two arrays can become one. Links of rings that are alike now can be of the time before more links came.
fn check_shapes(own: &Part, other: &Part) -> Result<(), MergeError> {
    let (one, two) = (own.shape, other.shape);
    for (what, own, theirs) in [("hashes", one.hashes.into(), two.hashes.into()), ("bits", one.bits, two.bits)] {
        if own != theirs {
            return Err(MergeError::Differ(what, u64::to_string(&own), u64::to_string(&theirs)));
        }
    }
    Ok(())
}

/// Whether two rings can become one.
fn check_alike(one: &Settings, other: &Settings) -> Result<(), MergeError> {
    let kind = |settings: &Settings| match settings.mode {
        Mode::Count => "count",
        Mode::Window(_) => "window",
        Mode::Dual { .. } => "dual",
    };
    let clock = |settings: &Settings| match settings.mode {
        Mode::Window(Window { by_events: true, .. }) => "EVENT",
        _ => "SERVER",
    };
    let threshold = |settings: &Settings| match settings.mode {
        Mode::Dual { threshold } => threshold.to_string(),
        _ => String::new(),
    };
    let shape = |settings: &Settings| settings.array(0).map_or((0, 0), |array| (array.bits, array.hashes));
    let key = |settings: &Settings| if settings.key.is_some() { "its own" } else { "none" };
    let ((bits, hashes), (other_bits, other_hashes)) = (shape(one), shape(other));
    let figures = [
        ("mode", kind(one).to_owned(), kind(other).to_owned()),
        ("clock", clock(one).to_owned(), clock(other).to_owned()),
        ("slice", one.slice_ms().to_string(), other.slice_ms().to_string()),
        ("threshold", threshold(one), threshold(other)),
        ("links", one.links.to_string(), other.links.to_string()),
        ("capacity", one.link_capacity().to_string(), other.link_capacity().to_string()),
        ("hashes", hashes.to_string(), other_hashes.to_string()),
        ("bits", bits.to_string(), other_bits.to_string()),
    ];
    for (what, own, theirs) in figures {
        if own != theirs {
            return Err(MergeError::Differ(what, own, theirs));
        }
    }
    if one.key != other.key {
        let theirs = if one.key.is_some() && other.key.is_some() { "another" } else { key(other) };
        return Err(MergeError::Differ("key", key(one).to_owned(), theirs.to_owned()));
    }
    Ok(())
}
