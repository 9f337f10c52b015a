//! The picture of how full the buckets of a d-left filter are, `docs/pictures/dleft.svg`: the published experiment on a real filter, counted.

use std::fmt::Write;

use seendb::filters::dleft::{Dleft, DleftRef, Loads, Settings};
use seendb::filters::item_hash::mix64;

use super::picture::{BLUE, GREY, INK, ORANGE, line, text, thousands};

// 4 sub-tables of 2048 buckets of 8 cells, 6 items a bucket.
const ITEMS: u64 = 49_152;
const ERROR: f64 = 0.0015;
const SUBTABLES: u32 = 4;
const CELLS: usize = 8;
const BUCKETS: u64 = 8192;
const REPLACEMENTS: u64 = 1 << 20;
const SEED: u64 = 1;

const WIDTH: f64 = 950.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 84.0;
const RIGHT: f64 = 900.0;
const TOP: f64 = 90.0;
const BOTTOM: f64 = 330.0;
/// The top of the axis, in percent.
const MOST: f64 = 80.0;
/// Items in a bucket that are shown; the last is "so many and more".
const SHOWN: usize = 14;

/// The picture as SVG.
pub fn dleft() -> String {
    let mut svg = String::new();
    let _ = write!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"Helvetica, Arial, sans-serif\" font-size=\"13\" fill=\"{INK}\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n"
    );
    text(&mut svg, (LEFT, 30.0), "font-size=\"17\" font-weight=\"bold\"", "Why 8 cells do where 6 are used");
    let asked = format!(
        "share of the buckets that hold so many items; {} items in {} buckets of {CELLS} cells",
        thousands(ITEMS),
        thousands(BUCKETS)
    );
    text(&mut svg, (LEFT, 50.0), &format!("fill=\"{GREY}\""), &asked);
    for tick in [0.0, 20.0, 40.0, 60.0, 80.0] {
        line(&mut svg, (LEFT, y(tick)), (RIGHT, y(tick)), "stroke=\"#e4e7eb\"");
        let style = format!("text-anchor=\"end\" fill=\"{GREY}\"");
        text(&mut svg, (LEFT - 8.0, y(tick) + 4.0), &style, &format!("{tick} %"));
    }
    let full = column(CELLS as f64 + 1.0) - 4.0;
    line(&mut svg, (full, TOP), (full, BOTTOM), &format!("stroke=\"{INK}\" stroke-dasharray=\"4 3\""));
    text(&mut svg, (full + 6.0, TOP + 12.0), "", "would need a ninth cell");
    let (added, replaced) = measured();
    let share = |loads: &Loads, cells: usize| loads.get(cells).map_or(0.0, |n| *n as f64 / BUCKETS as f64);
    series(&mut svg, 0, "#c9ced6", "one bucket for each item (Poisson)", poisson);
    series(&mut svg, 1, BLUE, "d-left, after the adds", |cells| share(&added, cells));
    let name = format!("d-left, after {} deletions and adds", thousands(REPLACEMENTS));
    series(&mut svg, 2, ORANGE, &name, |cells| share(&replaced, cells));
    for cells in 0..SHOWN {
        let more = if cells + 1 == SHOWN { " +" } else { "" };
        let middle = (column(cells as f64) + 22.0, BOTTOM + 18.0);
        text(&mut svg, middle, "text-anchor=\"middle\"", &format!("{cells}{more}"));
    }
    line(&mut svg, (LEFT, BOTTOM), (RIGHT, BOTTOM), &format!("stroke=\"{INK}\""));
    let middle = f64::midpoint(LEFT, RIGHT);
    text(&mut svg, (middle, BOTTOM + 44.0), "text-anchor=\"middle\"", "items in a bucket");
    svg += "</svg>\n";
    svg
}

fn y(percent: f64) -> f64 {
    BOTTOM - (BOTTOM - TOP) * percent / MOST
}

/// Where the bars of so many items begin.
fn column(cells: f64) -> f64 {
    LEFT + 8.0 + (RIGHT - LEFT) / SHOWN as f64 * cells
}

/// The bars of a series, and its name.
fn series(svg: &mut String, number: usize, colour: &str, name: &str, share: impl Fn(usize) -> f64) {
    const BAR: f64 = 14.0;
    for cells in 0..SHOWN {
        let percent = 100.0 * share(cells);
        if percent > 0.0 {
            let (x, top) = (column(cells as f64) + BAR * number as f64, y(percent));
            let _ = writeln!(
                svg,
                "<rect x=\"{x:.1}\" y=\"{top:.1}\" width=\"{BAR}\" height=\"{:.1}\" fill=\"{colour}\"/>",
                BOTTOM - top
            );
        }
    }
    let place = (634.0, 132.0 + 22.0 * number as f64);
    let _ = writeln!(
        svg,
        "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"12\" height=\"12\" fill=\"{colour}\"/>",
        place.0,
        place.1 - 10.0
    );
    text(svg, (place.0 + 20.0, place.1), "", name);
}

/// The share of the buckets that hold so many items when each goes to one at random.
fn poisson(items: usize) -> f64 {
    let mean = ITEMS as f64 / BUCKETS as f64;
    let exactly = |items: usize| (1..=items).fold((-mean).exp(), |share, i| share * mean / i as f64);
    if items + 1 == SHOWN { 1.0 - (0..items).map(exactly).sum::<f64>() } else { exactly(items) }
}

/// How full the buckets are after the adds, and after so many more steps.
fn measured() -> (Loads, Loads) {
    let settings = Settings {
        capacity: ITEMS,
        error: ERROR,
        growth: None,
        subtables: SUBTABLES,
        cells: CELLS as u32,
        counter_bits: 2,
        spill: false,
        key: None,
    };
    let mut filter = Dleft::new(settings, SEED).expect("memory for a small filter");
    let mut hashes = (0_u64..).map(|number| mix64(mix64(number)));
    let mut next = || hashes.next().expect("there are enough numbers");
    let mut live: Vec<u64> = (0..ITEMS).map(|_| next()).collect();
    for hash in &live {
        filter.insert(*hash).expect("the capacity fits");
    }
    let added = DleftRef::Large(&filter).loads();
    for _ in 0..REPLACEMENTS {
        let index = (next() % ITEMS) as usize;
        filter.remove(live[index]).expect("nothing is spilled");
        live[index] = next();
        filter.insert(live[index]).expect("the capacity fits");
    }
    (added, DleftRef::Large(&filter).loads())
}
