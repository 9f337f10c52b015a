//! What several tests need, and the traces that another program wrote.

mod load;
mod model;

use super::geometry::{Layout, MOST_SUBTABLES};
use super::permutation::Permutations;
use super::table::Table;
use super::*;
use crate::filters::words::WordsMut;

pub(super) fn settings(capacity: u64, error: f64) -> Settings {
    Settings { capacity, error, growth: None, subtables: 4, cells: 8, counter_bits: 2, spill: false, key: None }
}

/// A filter in one of its forms, which its owner changes from one to the other as they ask for it.
pub(super) enum Form {
    Packed(Vec<u8>),
    Large(Dleft),
}

impl Form {
    pub fn packed(settings: &Settings, seed: u64) -> Option<Self> {
        let geometry = settings.geometry().unwrap();
        // Not 0, as memory that is used again would be.
        let mut payload = vec![0xa5; packed::payload_len(settings, &geometry)?];
        packed::create(&mut payload, settings, &geometry, seed);
        Some(Self::Packed(payload))
    }

    pub fn large(settings: &Settings, seed: u64) -> Self {
        Self::Large(Dleft::new(*settings, seed).unwrap())
    }

    pub fn both(settings: &Settings, seed: u64) -> impl Iterator<Item = Self> {
        Self::packed(settings, seed).into_iter().chain([Self::large(settings, seed)])
    }

    pub fn get(&self) -> DleftRef<'_> {
        match self {
            Self::Packed(payload) => DleftRef::Packed(PackedDleft::new(payload)),
            Self::Large(filter) => DleftRef::Large(filter),
        }
    }

    pub fn get_mut(&mut self) -> DleftMut<'_> {
        match self {
            Self::Packed(payload) => DleftMut::Packed(PackedDleftMut::new(payload)),
            Self::Large(filter) => DleftMut::Large(filter),
        }
    }

    pub fn insert(&mut self, hash: u64) -> Result<Inserted, Refused> {
        match self.get_mut().insert(hash) {
            Err(Refused::NeedsLarge) => {
                *self = Self::Large(self.get().to_large().unwrap());
                self.insert(hash)
            }
            Err(Refused::NeedsGrowth) => {
                let Self::Large(filter) = self else { panic!("only a large one grows") };
                let next = filter.next_geometry().unwrap();
                filter.grow().unwrap();
                assert_eq!(filter.sets().last().unwrap().geometry, next);
                self.insert(hash)
            }
            answer => answer,
        }
    }

    /// The bytes of all sets, and what is beside them.
    pub fn bytes(&self) -> (Vec<Vec<u8>>, Vec<Spilled>) {
        let of_set = |(i, set): (usize, SetInfo)| {
            let mut bytes = vec![0xa5; set.geometry.bytes() as usize];
            self.get().copy_bytes(i, 0, &mut bytes);
            bytes
        };
        (self.get().sets().enumerate().map(of_set).collect(), self.get().spilled().to_vec())
    }
}

fn hex(field: &str) -> u64 {
    u64::from_str_radix(field.strip_prefix("0x").unwrap(), 16).unwrap()
}

fn rows(table: &str) -> impl Iterator<Item = Vec<&str>> {
    table.lines().filter(|line| !line.starts_with('#')).skip(1).map(|line| line.split('\t').collect())
}

#[test]
fn permutations_are_those_of_the_table() {
    const BITS: u32 = 14;
    const RANGE: u64 = 1 << 25;
    let mut count = 0;
    for row in rows(include_str!("../../../tests/vectors/dlcbf_permutation.tsv")) {
        let (f, subtable, a) = (hex(row[0]), row[1].parse::<usize>().unwrap(), hex(row[2]));
        let mut multipliers = [1; MOST_SUBTABLES];
        multipliers[subtable] = a;
        let permutations = Permutations::with_multipliers(RANGE, &multipliers);
        let place = permutations.apply(subtable, f);
        assert_eq!(place, hex(row[4]));
        assert_eq!([place >> BITS, place & ((1 << BITS) - 1)].map(|part| part.to_string()), [row[5], row[6]]);
        assert_eq!(permutations.inverses(8).apply(subtable, 1), hex(row[3]));
        assert_eq!(permutations.inverses(8).apply(subtable, place), f);
        count += 1;
    }
    assert_eq!(count, 36);
}

/// The tables of `docs/hashing.md`, which an independent program computed.
#[test]
fn places_are_those_of_the_page_on_hashing() {
    let page = include_str!("../../../docs/hashing.md");
    let rows = |head: &str| {
        let (_, rest) = page.split_once(head).unwrap();
        let rows = rest.lines().skip(2).take_while(|line| line.starts_with('|'));
        rows.map(|row| row.split('|').map(|field| field.trim().trim_matches('`')).collect::<Vec<_>>())
            .collect::<Vec<_>>()
    };
    let number = |text: &str| text.parse::<u64>().unwrap();
    let of_set = |seed: &str, buckets: &str, bits: &str| {
        let (buckets, bits) = (number(buckets), number(bits));
        (Permutations::draw(u64::from_str_radix(seed, 16).unwrap(), 4, buckets, buckets << bits), buckets << bits, bits)
    };
    let multipliers = rows("| seed | B | r | a0 a1 a2 a3 |");
    for row in &multipliers {
        let (permutations, ..) = of_set(row[1], row[2], row[3]);
        let own: Vec<_> = (0..4).map(|i| permutations.apply(i, 1)).collect();
        assert_eq!(own, row[4].split(' ').map(number).collect::<Vec<_>>());
    }
    let places = rows("| h | seed | B | r | f | bucket/stored in each sub-table |");
    for row in &places {
        let (permutations, range, bits) = of_set(row[2], row[3], row[4]);
        let f = fingerprint(u64::from_str_radix(row[1], 16).unwrap(), range);
        let place = |p: u64| format!("{}/{}", p >> bits, p & ((1 << bits) - 1));
        let own: Vec<_> = (0..4).map(|i| place(permutations.apply(i, f))).collect();
        assert_eq!((f, own.join(" ")), (number(row[5]), row[6].to_owned()));
    }
    assert_eq!((multipliers.len(), places.len()), (3, 6));
}

/// Step by step: candidate places, answers, where a fingerprint stands, loads.
#[test]
fn a_small_table_does_what_the_trace_says() {
    let geometry = Geometry { subtables: 2, buckets: 2, cells: 2, fingerprint_bits: 3, counter_bits: 2 };
    let layout = Layout::new(geometry);
    let permutations = Permutations::with_multipliers(16, &[5, 11, 0, 0, 0, 0, 0, 0]);
    let mut bytes = vec![0; geometry.bytes() as usize];
    let mut table = Table { layout: &layout, permutations: &permutations, words: &mut bytes[..] };
    let mut steps = 0;
    for row in rows(include_str!("../../../tests/vectors/dlcbf_trace.tsv")) {
        let &[_, op, f, places, result, place, loads] = &row[..] else { panic!("{row:?}") };
        let f = f.parse().unwrap();
        let name = |subtable: usize| {
            let permuted = permutations.apply(subtable, f);
            format!("{subtable}:{}/{}", permuted >> 3, permuted & 7)
        };
        assert_eq!(format!("{};{}", name(0), name(1)), places);
        let (answer, subtable) = step(&mut table, op, f);
        assert_eq!(answer, result, "{row:?}");
        // What was not found or not taken has no place.
        assert_eq!(subtable.map_or("-".to_owned(), name), place, "{row:?}");
        let table = Table { layout: &layout, permutations: &permutations, words: &*table.words };
        assert_eq!(table.loads().map(|used| used.to_string()).collect::<Vec<_>>().join(","), loads, "{row:?}");
        assert!(table.is_clean());
        steps += 1;
    }
    assert_eq!(steps, 28);
}

/// One step of the trace: its result, and the sub-table in which the fingerprint stands, or stood.
fn step<W: WordsMut>(table: &mut Table<'_, W>, op: &str, f: u64) -> (String, Option<usize>) {
    let mut probe = table.probe(f);
    let found = table.search(&mut probe);
    let place = found.map(|found| found.subtable);
    let copies = found.map(|found| table.copies(&probe, found));
    let answer = match (op, found.zip(copies)) {
        ("ADD", None) => {
            return match table.place(&probe) {
                Some((subtable, _)) => ("new".to_owned(), Some(subtable)),
                None => ("REFUSED bucket_full".to_owned(), None),
            };
        }
        ("ADD", Some((_, 4))) => "REFUSED counter_full".to_owned(),
        ("ADD", Some((found, copies))) => {
            table.set_copies(&probe, found, copies + 1);
            format!("counted {}", copies + 1)
        }
        ("DEL", None) => "not_found".to_owned(),
        ("DEL", Some((found, 1))) => {
            table.free(&probe, found);
            "cell_freed".to_owned()
        }
        ("DEL", Some((found, copies))) => {
            table.set_copies(&probe, found, copies - 1);
            format!("count {}", copies - 1)
        }
        ("HAS", found) => found.map_or("no", |_| "yes").to_owned(),
        _ => panic!("{op}"),
    };
    (answer, place)
}

/// Sizes of the references, and what they say about bits.
#[test]
fn sizes_are_those_of_the_references() {
    for (capacity, error, buckets, bits) in
        [(1000, 0.01, 42, 12), (1_000_000, 0.001, 41_667, 15), (49_152, 0.0015, 2048, 14)]
    {
        let geometry = settings(capacity, error).geometry().unwrap();
        assert_eq!((geometry.buckets, geometry.fingerprint_bits), (buckets, bits));
    }
    for capacity in [1000, 12_345, 1_000_000, 10_000_000] {
        for exponent in 1..60 {
            let error = 0.5_f64.powf(f64::from(exponent) / 4.0);
            let geometry = settings(capacity, error).geometry().unwrap();
            let rate = capacity as f64 / geometry.range() as f64;
            assert!(rate <= error * 1.000_001, "{capacity} {error}");
            // The formula: cells of r + 2 bits, 24 items a row of 32; with one row more.
            let range = capacity as f64 / error / (capacity as f64 / 24.0);
            let formula = 32.0 * (capacity as f64 / 24.0 + 1.0) * (range.log2().ceil().max(1.0) + 2.0);
            let bits = geometry.bytes() as f64 * 8.0;
            assert!(
                bits <= formula * 1.1,
                "{capacity} {error}: {} {}",
                bits / capacity as f64,
                formula / capacity as f64
            );
        }
    }
}

/// At the same true rate, of what counters of 4 bits in a Bloom filter take.
#[test]
fn it_takes_about_half_of_a_counting_filter() {
    use crate::filters::counting;
    for (error, most) in [(0.01, 0.55), (0.001, 0.45)] {
        for capacity in [1000, 100_000, 10_000_000] {
            let geometry = settings(capacity, error).geometry().unwrap();
            let rate = capacity as f64 / geometry.range() as f64;
            let counter_bits = counting::CounterBits::Four;
            let counting = counting::Settings { capacity, error: rate, counter_bits, strict: false, key: None };
            let ratio = geometry.bytes() as f64 / counting.shape().unwrap().bytes() as f64;
            assert!(ratio <= most, "{capacity} {error}: {ratio}");
        }
    }
}

#[test]
fn settings_out_of_range_make_no_filter() {
    let good = settings(1000, 0.01);
    let growth = |factor, final_capacity| {
        let growth = Some(Growth { factor, final_capacity });
        Settings { growth, ..settings(1000, 0.01) }
    };
    let bad = [
        Settings { capacity: 0, ..good },
        Settings { error: 0.0, ..good },
        Settings { error: 1.0, ..good },
        Settings { error: f64::NAN, ..good },
        Settings { subtables: 1, ..good },
        Settings { subtables: 9, ..good },
        Settings { cells: 3, ..good },
        Settings { cells: 17, ..good },
        Settings { counter_bits: 3, ..good },
        growth(0, 1000),
        growth(2, 999),
    ];
    bad.iter().for_each(|settings| assert_eq!(settings.geometry(), Err(SettingsError::Range)));
    assert_eq!(Settings { capacity: u64::MAX, ..good }.geometry(), Err(SettingsError::TooLarge));
    // As fine as fingerprints get.
    for capacity in [1, 1000, 1 << 40] {
        for factor in [1, 2, 3, 1000] {
            let growth = Some(Growth { factor, final_capacity: capacity * 16 });
            let fine = Settings { capacity, error: 1e-15, growth, subtables: 8, cells: 16, ..good };
            let geometry = fine.geometry().unwrap();
            assert!(geometry.range() < 1 << 62 && geometry.further(capacity * 15).is_some());
        }
    }
}
