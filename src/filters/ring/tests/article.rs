//! The recorded rates and sizes of the article's structures, with its own array sizes.

use super::*;
use crate::filters::ring::part::most_listed;

const USERS: u64 = 40;
const ARTICLES: u64 = 5000;
/// Rates count from this article on, of ten links later.
const WARM: [u64; 2] = [1000, 1500];
/// Users of the recorded run.
const RECORDED_USERS: f64 = 2000.0;

/// One row of `chain_dual_single.tsv`.
struct Structure<'a> {
    name: &'a str,
    settings: Settings,
    shape: ArrayShape,
    inserts_always: bool,
    recorded: &'a [&'a str],
}

impl<'a> Structure<'a> {
    fn new(row: &'a [&'a str]) -> Self {
        let number = |column: usize| row[column].parse().unwrap_or(0_u64);
        let (links, threshold) = (row[1].parse::<u16>().unwrap(), number(3));
        let (capacity, mode) = match threshold {
            0 if links == 1 => (500, Mode::Count),
            0 => (number(2) * (u64::from(links) - 1), Mode::Count),
            _ => (500 - threshold, Mode::Dual { threshold: threshold as f64 / 500.0 }),
        };
        let items = if links == 1 { u64::MAX } else { number(2) };
        Self {
            name: row[0],
            settings: settings(capacity, 0.02, links.max(2), mode),
            shape: ArrayShape { capacity: items, bits: number(4), hashes: number(5) as u32 },
            inserts_always: row[7] == "always",
            recorded: &row[8..],
        }
    }

    fn recorded(&self, column: usize) -> f64 {
        self.recorded[column].parse().unwrap()
    }
}

/// An insert to a ring whose arrays have this shape; a new array is a list and can still be given another one.
fn insert_shaped(ring: &mut Ring, shape: ArrayShape, hash: u64) {
    ring.insert(hash, Event::default()).unwrap();
    let fresh = ring.parts.iter_mut().filter(|part| part.items <= 1);
    fresh.for_each(|part| part.shape = shape);
}

/// What one user sees: wrong answers before and after the warm-up, and of the time after it what was remembered, and bytes.
#[derive(Default)]
struct Seen {
    cold: u64,
    warm: u64,
    remembered: Vec<u64>,
    bytes: u64,
}

fn one_user(structure: &Structure, user: u64, random: &mut fastrand::Rng) -> Seen {
    let mut ring = Ring::new(structure.settings, 1);
    let (mut seen, mut written) = (Seen::default(), Vec::new());
    let warm = if structure.settings.links == 10 { WARM[1] } else { WARM[0] };
    for article in 0..ARTICLES {
        let hash = hash(user << 32 | article);
        let literal = structure.name.contains("literal");
        let newest_counts = if literal { ring.parts.len().saturating_sub(1) } else { ring.parts.len() };
        let wrong = match structure.settings.mode {
            Mode::Dual { .. } => ring.contains(hash, 0),
            _ => ring.parts.range(..newest_counts).any(|part| part.contains(hash)),
        };
        *(if article < warm { &mut seen.cold } else { &mut seen.warm }) += u64::from(wrong);
        let remembered = ring.items(0);
        if article >= warm {
            seen.remembered.push(remembered);
            seen.bytes += ring.parts.iter().map(|part| part.shape.bytes()).sum::<u64>();
        }
        if remembered > 0 && !literal {
            let again: u64 = written[written.len() - 1 - random.usize(..written.len().min(remembered as usize))];
            assert!(ring.contains(again, 0), "{}: an article is forgotten too early", structure.name);
        }
        if !wrong || structure.inserts_always {
            let version = ring.version;
            insert_shaped(&mut ring, structure.shape, hash);
            written.extend((ring.version > version).then_some(hash));
        }
    }
    seen
}

/// Within four standard errors of both runs, or 2 %.
fn assert_near(name: &str, found: f64, recorded: f64, deviation: f64) {
    let error = deviation * (1.0 / USERS as f64 + 1.0 / RECORDED_USERS).sqrt();
    let most = (4.0 * error).max(0.02 * recorded);
    assert!((found - recorded).abs() <= most, "{name}: {found:.5}, recorded {recorded:.5}, at most {most:.5} away");
}

#[test]
fn rates_history_and_bytes_of_the_article_are_the_recorded_ones() {
    let table = include_str!("../../../../tests/vectors/chain_dual_single.tsv");
    let mut random = fastrand::Rng::with_seed(3);
    let rows: Vec<_> = rows(table).filter(|row| row[6] == "independent").collect();
    assert_eq!(rows.len(), 10 + 1);
    for (row, number) in rows.iter().zip(0..) {
        let structure = Structure::new(row);
        let users: Vec<_> = (0..USERS).map(|user| one_user(&structure, number << 8 | user, &mut random)).collect();
        let mean = |of: &dyn Fn(&Seen) -> f64| users.iter().map(of).sum::<f64>() / USERS as f64;
        let warm = users[0].remembered.len() as f64;
        let all_rate = mean(&|seen| (seen.cold + seen.warm) as f64 / ARTICLES as f64);
        assert_near(structure.name, all_rate, structure.recorded(0), structure.recorded(1));
        let warm_rate = mean(&|seen| seen.warm as f64 / warm);
        assert_near(structure.name, warm_rate, structure.recorded(4), structure.recorded(5));
        if row[1] != "1" {
            let remembered = || users.iter().flat_map(|seen| seen.remembered.iter().copied());
            let range = (remembered().min().unwrap() as f64, remembered().max().unwrap() as f64);
            assert_eq!(range, (structure.recorded(8), structure.recorded(10)), "{}", structure.name);
            let average = mean(&|seen| seen.remembered.iter().sum::<u64>() as f64 / warm);
            assert!((average / structure.recorded(9) - 1.0).abs() < 0.005, "{}: {average}", structure.name);
        }
        let bytes = mean(&|seen| seen.bytes as f64 / warm);
        assert!((bytes / structure.recorded(11) - 1.0).abs() < 0.005, "{}: {bytes}", structure.name);
    }
}

#[test]
fn arrays_are_allocated_as_recorded() {
    let shape = ArrayShape { capacity: 100, bits: 812, hashes: 6 };
    assert_eq!((shape.bytes(), most_listed(&shape)), (102, 12));
    for row in rows(include_str!("../../../../tests/vectors/memory_per_user.tsv")) {
        let mut ring = Ring::new(settings(400, 1e-9, 5, Mode::Count), 1);
        let articles: u64 = row[0].parse().unwrap();
        // Counted as the table does, where no article is taken for a known one.
        let mut article = 0;
        while ring.version <= articles {
            insert_shaped(&mut ring, shape, hash(article));
            article += 1;
        }
        let bytes = ring.parts.iter().map(|part| part.shape.bytes()).sum::<u64>();
        let found = [bytes.to_string(), ring.links_in_use(0).to_string()];
        assert_eq!(found[..], row[4..], "{articles}");
    }
}
