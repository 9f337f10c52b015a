//! Measured error rates and sizes against the asked ones.

use super::*;

const LINKS: u16 = 5;

/// What the ruling allows a ring whose links take so many items.
fn allowed(link_capacity: u64, error: f64) -> f64 {
    error * if link_capacity < 1000 { 1.2 } else { 1.05 }
}

/// The mean rate of rings in steady state, where each made by `ring` from a number of its own.
fn mean_rate(rings: u64, queries: u64, ring: impl Fn(u64) -> (Ring, u64)) -> f64 {
    let rate = |number| {
        let (ring, now) = ring(number);
        wrong_answers(&ring, queries / rings, number, now)
    };
    (0..rings).map(rate).sum::<f64>() / rings as f64
}

/// Four standard errors of a measured rate: of the questions, and of the rings, whose own rates differ from their mean by about
/// a third of it if a link takes ten items, and by less if it takes more.
fn noise(error: f64, rings: u64, queries: u64, link_capacity: u64) -> f64 {
    let of_rings = error * 1.2 / (link_capacity as f64).sqrt();
    4.0 * (error / queries as f64 + of_rings * of_rings / rings as f64).sqrt()
}

/// A ring by count that has turned more than once, its active link being anywhere between begun and full.
fn in_steady_state(settings: Settings, number: u64) -> (Ring, u64) {
    let capacity = settings.link_capacity();
    let items = capacity * (2 * u64::from(settings.links) - 1) + 1 + hash(number) % capacity;
    (ring_of(settings, (0..items).map(|item| number << 32 | item), 0), 0)
}

#[test]
fn rings_by_count_keep_the_asked_rate_at_every_capacity() {
    for error in [0.1, 0.01, 0.001] {
        let (mut sum, mut count) = (0.0, 0.0);
        for capacity in (1..=50).chain([100, 1000, 5000]) {
            let settings = settings(capacity * 4, error, LINKS, Mode::Count);
            let queries = if capacity < 1000 { 50_000 } else { 400_000 };
            let rings = (2000 / capacity).clamp(8, 100);
            let rate = mean_rate(rings, queries, |number| in_steady_state(settings, number));
            let most = allowed(capacity, error) + noise(error, rings, queries, capacity);
            assert!(rate <= most, "{capacity} {error}: {rate}, at most {most}");
            (sum, count) = (sum + rate, count + 1.0);
        }
        // Noise goes to all sides; so all together are below the asked rate.
        assert!(sum / count <= error * 1.02, "{error}: {}", sum / count);
    }
}

#[test]
fn rings_of_other_kinds_keep_the_asked_rate() {
    let bounded = Mode::Window(Window { bounded: true, ..window(400) });
    for (capacity, error) in [(3, 0.1), (40, 0.01), (400, 0.001), (4000, 0.01)] {
        let kinds = [(Mode::Count, 2), (Mode::Count, 31), (Mode::Dual { threshold: 0.6 }, 2), (bounded, 5)];
        for (mode, links) in kinds {
            let settings = settings(capacity, error, links, mode);
            let rate = mean_rate(20, 60_000, |number| in_steady_state(settings, number));
            let most = allowed(settings.link_capacity(), error) + noise(error, 20, 60_000, settings.link_capacity());
            assert!(rate <= most, "{mode:?} {links} {capacity} {error}: {rate}, at most {most}");
        }
        let linked = Settings { link_error: true, ..settings(capacity, error, LINKS, Mode::Count) };
        let (whole, per_link) = (linked.ring_error_rate(), linked.link_capacity());
        let rate = mean_rate(20, 60_000, |number| in_steady_state(linked, number));
        assert!(rate <= allowed(per_link, whole) + noise(whole, 20, 60_000, per_link), "LINKERROR {capacity}: {rate}");
    }
}

/// All slices of a window with so many times the items that were expected.
fn overfull(settings: Settings, times: f64, number: u64) -> (Ring, u64) {
    let mut ring = Ring::new(settings, 1);
    let items = (settings.link_capacity() as f64 * times).ceil() as u64;
    for slice in 0..u64::from(settings.links) {
        let from = number << 32 | slice << 24;
        fill(&mut ring, from..from + items, slice * settings.slice_ms());
    }
    let now = ring.latest;
    (ring, now)
}

#[test]
fn slices_that_get_more_than_was_expected_keep_the_asked_rate() {
    for (capacity, error) in [(4, 0.1), (20, 0.01), (200, 0.01), (400, 0.001), (4000, 0.1), (4000, 0.01)] {
        let settings = settings(capacity, error, LINKS, Mode::Window(window(400)));
        for times in [1.0, 1.5, 3.0, 7.0, 20.0] {
            let rate = mean_rate(10, 50_000, |number| overfull(settings, times, number));
            let most = allowed(capacity / 4, error) + noise(error, 10, 50_000, capacity / 4);
            assert!(rate <= most, "{capacity} {error} {times}: {rate}, at most {most}");
        }
    }
}

#[test]
fn arrays_take_little_more_bits_than_the_formula() {
    const LN2_SQUARED: f64 = std::f64::consts::LN_2 * std::f64::consts::LN_2;
    let kinds = [Mode::Count, Mode::Window(window(400)), Mode::Dual { threshold: 0.5 }];
    for (mode, error) in kinds.into_iter().flat_map(|mode| [0.1, 0.01, 0.001, 1e-6].map(|error| (mode, error))) {
        for capacity in (1..=50).chain([100, 255, 256, 999, 1000, 5000, 1_000_000]) {
            let settings = settings(capacity * 4, error, LINKS, mode);
            let (shape, capacity) = (settings.array(0).unwrap(), settings.link_capacity() as f64);
            let formula = -capacity * settings.link_error_rate().ln() / LN2_SQUARED;
            let extra = if capacity < 1000.0 { 64.0 } else { 0.0 };
            assert!(shape.bits as f64 <= 1.1 * formula + extra, "{mode:?} {capacity} {error}: {}", shape.bits);
        }
    }
}

/// Positions that depended on each other would show in small arrays: `exact` is what independent ones give.
#[test]
fn positions_give_the_recorded_rates() {
    let table = include_str!("../../../../tests/vectors/small_filter_hashing.tsv");
    for row in rows(table).filter(|row| row[3] == "wrap64_high_i_odd") {
        let number = |column: usize| row[column].parse::<f64>().unwrap();
        let shape = ArrayShape { capacity: number(2) as u64, bits: number(0) as u64, hashes: number(1) as u32 };
        let filters = 400_000 / shape.capacity / u64::from(shape.hashes);
        let queries = 2_000_000 / filters;
        let found = (0..filters).map(|filter| {
            let mut part = Part::new(0, 0, shape);
            (0..shape.capacity).for_each(|item| part.insert(hash(filter << 32 | item)).unwrap());
            (0..queries).filter(|i| part.contains(hash(1 << 63 | filter << 32 | i))).count() as u64
        });
        let rate = found.sum::<u64>() as f64 / (filters * queries) as f64;
        let (exact, spread) = (number(5), number(8));
        let most = 4.0 * (exact / (filters * queries) as f64 + spread * spread / filters as f64).sqrt();
        assert!((rate - exact).abs() <= most + 0.01 * exact, "{row:?}: {rate}");
    }
}
