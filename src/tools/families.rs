//! The families of filters, as tools deal with them: one row of the table for each.

use clap::ValueEnum;

use crate::keyspace::entry::Kind;

/// A family of filters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Family {
    /// Bloom filters, which Redis with RedisBloom has too.
    Bf,
    /// Counting Bloom filters, which only SeenDB has.
    Cbf,
    /// D-left counting filters, which only SeenDB has.
    Dlcbf,
    /// Rings and their profiles, which only SeenDB has.
    Chain,
}

/// What a family's keys and commands are called.
#[derive(Debug, PartialEq, Eq)]
pub struct Row {
    /// The beginning of its commands.
    pub name: &'static str,
    /// What its keys are, in the plural.
    pub filters: &'static str,
    /// What `TYPE` says of them.
    pub kind: &'static str,
    /// Tells the `Size` of one.
    pub info: &'static str,
    /// Gives one away in pieces.
    pub scan_dump: &'static str,
    /// Takes one in pieces.
    pub load_chunk: &'static str,
}

macro_rules! row {
    ($name:literal, $filters:literal, $kind:literal) => {
        &Row {
            name: $name,
            filters: $filters,
            kind: $kind,
            info: concat!($name, ".INFO"),
            scan_dump: concat!($name, ".SCANDUMP"),
            load_chunk: concat!($name, ".LOADCHUNK"),
        }
    };
}

impl Family {
    /// All of them.
    pub const ALL: [Family; 4] = [Family::Bf, Family::Chain, Family::Cbf, Family::Dlcbf];

    /// Its row.
    pub const fn row(self) -> &'static Row {
        match self {
            Family::Bf => row!("BF", "Bloom filters", "MBbloom--"),
            Family::Chain => row!("CHAIN", "rings", "seenCHAIN"),
            Family::Cbf => row!("CBF", "counting filters", "seenCBF--"),
            Family::Dlcbf => row!("DLCBF", "d-left filters", "seenDLCBF"),
        }
    }

    /// That of a value.
    pub fn of(kind: Kind) -> Option<Family> {
        match kind {
            Kind::Bloom => Some(Family::Bf),
            Kind::Counting => Some(Family::Cbf),
            Kind::Dleft => Some(Family::Dlcbf),
            Kind::Ring => Some(Family::Chain),
            #[cfg(test)]
            Kind::Opaque => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::bloom_value::BLOOM_ID;
    use crate::codec::cells_value::{COUNTING_ID, DLEFT_ID};
    use crate::codec::foreign::module_name;
    use crate::codec::ring_value::RING_ID;

    #[test]
    fn types_are_those_of_the_values() {
        for (family, id) in
            [(Family::Bf, BLOOM_ID), (Family::Chain, RING_ID), (Family::Cbf, COUNTING_ID), (Family::Dlcbf, DLEFT_ID)]
        {
            assert_eq!(family.row().kind, module_name(id).to_string(), "{family:?}");
        }
    }
}
