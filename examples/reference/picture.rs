//! The picture of a growing filter, `docs/pictures/growth.svg`: lines by the formulas, dots counted on a real filter.

use std::fmt::Write;

use seendb::filters::Insert;
use seendb::filters::bloom::{HashPair, Shape, options};
use seendb::filters::scalable_bloom::ScalableBloom;

// What an add makes when the key is missing.
const CAPACITY: u64 = 100;
const RATE: f64 = 0.01;
const GROWTH: u32 = 2;
const LINKS: usize = 6;
/// Items that were never added, asked for at each dot.
const QUESTIONS: u32 = 200_000;
/// Where dots are.
const DOTS: [u64; 11] = [50, 100, 200, 300, 500, 700, 1100, 1500, 3100, 4500, 6300];

const WIDTH: f64 = 950.0;
const HEIGHT: f64 = 640.0;
const LEFT: f64 = 84.0;
const RIGHT: f64 = 900.0;
/// Items at the left edge; the axis is logarithmic.
const FIRST_ITEMS: f64 = 25.0;

/// Of text.
pub const INK: &str = "#1f2933";
/// Of lines.
pub const GREY: &str = "#8a94a0";
/// Fills a sub-filter.
const PALE: &str = "#dbe9f6";
/// One series.
pub const BLUE: &str = "#1f6fb2";
/// Another.
pub const ORANGE: &str = "#c2410c";

/// One panel: its vertical range on the page and in its unit.
struct Panel {
    top: f64,
    bottom: f64,
    max: f64,
}

impl Panel {
    fn y(&self, value: f64) -> f64 {
        self.bottom - (self.bottom - self.top) * value / self.max
    }
}

/// The picture as SVG.
pub fn growth() -> String {
    let shapes = shapes();
    let mut svg = String::new();
    let _ = write!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"Helvetica, Arial, sans-serif\" font-size=\"13\" fill=\"{INK}\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n"
    );
    text(&mut svg, (LEFT, 30.0), "font-size=\"17\" font-weight=\"bold\"", "How a Bloom filter grows");
    let asked =
        format!("made by BF.ADD with the default settings: {CAPACITY} items, error rate 0.01, expansion {GROWTH}");
    text(&mut svg, (LEFT, 50.0), &format!("fill=\"{GREY}\""), &asked);
    boxes(&mut svg, &shapes);
    rates(&mut svg, &shapes);
    sizes(&mut svg, &shapes);
    svg += "</svg>\n";
    svg
}

fn shapes() -> Vec<Shape> {
    let first = Shape::first(CAPACITY, RATE, options::SCALING).expect("a filter of the default settings");
    let next = |shape: &Shape| shape.next(options::SCALING, GROWTH).ok();
    std::iter::successors(Some(first), next).take(LINKS).collect()
}

/// Items that the sub-filters hold together when the last of them is full.
fn full(shapes: &[Shape]) -> u64 {
    shapes.iter().map(|shape| shape.entries).sum()
}

/// The place of a number of items on the common axis.
fn x(items: f64, shapes: &[Shape]) -> f64 {
    LEFT + (RIGHT - LEFT) * (items / FIRST_ITEMS).ln() / (full(shapes) as f64 / FIRST_ITEMS).ln()
}

/// Words at a place.
pub fn text(svg: &mut String, (x, y): (f64, f64), style: &str, text: &str) {
    let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" {style}>{text}</text>");
}

/// Text over lines: they are faded behind it.
fn note(svg: &mut String, place: (f64, f64), style: &str, words: &str) {
    const HALO: &str = "paint-order=\"stroke\" stroke=\"white\" stroke-opacity=\"0.8\" stroke-width=\"4\"";
    text(svg, place, &format!("{HALO} {style}"), words);
}

/// A straight line.
pub fn line(svg: &mut String, from: (f64, f64), to: (f64, f64), style: &str) {
    let _ = writeln!(
        svg,
        "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" {style}/>",
        from.0, from.1, to.0, to.1
    );
}

/// The sub-filters, each over the items that are added to it.
fn boxes(svg: &mut String, shapes: &[Shape]) {
    const TOP: f64 = 74.0;
    const BOTTOM: f64 = 152.0;
    for (i, shape) in shapes.iter().enumerate() {
        let from = x((full(&shapes[..i]) as f64).max(FIRST_ITEMS), shapes);
        let to = x(full(&shapes[..=i]) as f64, shapes);
        let _ = writeln!(
            svg,
            "<rect x=\"{:.1}\" y=\"{TOP}\" width=\"{:.1}\" height=\"{}\" rx=\"4\" fill=\"{PALE}\" stroke=\"{BLUE}\"/>",
            from + 1.5,
            to - from - 3.0,
            BOTTOM - TOP
        );
        let middle = f64::midpoint(from, to);
        let lines = [
            format!("sub-filter {}", i + 1),
            format!("{} items", thousands(shape.entries)),
            format!("rate {} %", three_digits(100.0 * shape.error)),
            format!("{} bytes", thousands(shape.bytes)),
        ];
        for (row, words) in lines.iter().enumerate() {
            let style = if row == 0 { "font-weight=\"bold\"" } else { "" };
            let style = format!("text-anchor=\"middle\" font-size=\"12.5\" {style}");
            text(svg, (middle, TOP + 18.0 + 17.0 * row as f64), &style, words);
        }
    }
}

/// False positives as items are added.
fn rates(svg: &mut String, shapes: &[Shape]) {
    let panel = Panel { top: 206.0, bottom: 366.0, max: 1.2 };
    frame(svg, &panel, shapes, "False positives, % of items that were never added", &[0.0, 0.2, 0.4, 0.6, 0.8, 1.0]);
    let asked = panel.y(RATE * 100.0);
    line(svg, (LEFT, asked), (RIGHT, asked), &format!("stroke=\"{ORANGE}\" stroke-dasharray=\"6 4\""));
    note(svg, (LEFT + 8.0, asked - 6.0), &format!("fill=\"{ORANGE}\""), "asked: at most 1 %");
    curve(svg, &panel, shapes, BLUE, |items| 100.0 * expected_rate(items, shapes));
    for (items, rate) in DOTS.into_iter().zip(measured_rates(shapes)) {
        let (x, y) = (x(items as f64, shapes), panel.y(100.0 * rate));
        let _ = writeln!(
            svg,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\" fill=\"white\" stroke=\"{BLUE}\" stroke-width=\"1.5\"/>"
        );
    }
    let legend = format!("line: formula; dots: counted, {} questions each", thousands(u64::from(QUESTIONS)));
    note(svg, (RIGHT, panel.bottom - 10.0), &format!("text-anchor=\"end\" fill=\"{BLUE}\""), &legend);
}

/// Bits held for each item as items are added.
fn sizes(svg: &mut String, shapes: &[Shape]) {
    let panel = Panel { top: 420.0, bottom: 580.0, max: 48.0 };
    frame(svg, &panel, shapes, "Bits held, per item", &[0.0, 10.0, 20.0, 30.0, 40.0]);
    let at_once = |items: f64| {
        let shape = Shape::first(items as u64, RATE, options::FIXED).expect("a filter of a few thousand items");
        (shape.bytes * 8) as f64 / items
    };
    let total = full(shapes) as f64;
    let exact = panel.y(at_once(total));
    line(svg, (LEFT, exact), (RIGHT, exact), &format!("stroke=\"{ORANGE}\" stroke-dasharray=\"6 4\""));
    let words = format!("{:.1}: a NONSCALING filter made at once for exactly the items that come", at_once(total));
    note(svg, (LEFT + 8.0, exact + 16.0), &format!("fill=\"{ORANGE}\""), &words);
    curve(svg, &panel, shapes, BLUE, |items| bits_held(items, shapes) / items);
    for i in 0..shapes.len() {
        let items = full(&shapes[..=i]) as f64;
        let bits = bits_held(items, shapes) / items;
        text(svg, (x(items, shapes) + 5.0, panel.y(bits) + 4.0), &format!("fill=\"{BLUE}\""), &format!("{bits:.1}"));
    }
    let middle = f64::midpoint(LEFT, RIGHT);
    text(svg, (middle, panel.bottom + 46.0), "text-anchor=\"middle\"", "items added (logarithmic)");
}

/// Title, axes, and a line wherever a sub-filter is full.
fn frame(svg: &mut String, panel: &Panel, shapes: &[Shape], title: &str, ticks: &[f64]) {
    text(svg, (LEFT, panel.top - 12.0), "font-weight=\"bold\"", title);
    for &tick in ticks {
        let y = panel.y(tick);
        line(svg, (LEFT, y), (RIGHT, y), "stroke=\"#e4e7eb\"");
        text(svg, (LEFT - 8.0, y + 4.0), &format!("text-anchor=\"end\" fill=\"{GREY}\""), &format!("{tick}"));
    }
    for i in 0..shapes.len() {
        let items = full(&shapes[..=i]);
        let x = x(items as f64, shapes);
        line(svg, (x, panel.top), (x, panel.bottom), &format!("stroke=\"{GREY}\" stroke-dasharray=\"2 3\""));
        let anchor = if i + 1 == shapes.len() { "end" } else { "middle" };
        let style = format!("text-anchor=\"{anchor}\" fill=\"{GREY}\"");
        text(svg, (x, panel.bottom + 18.0), &style, &thousands(items));
    }
    line(svg, (LEFT, panel.bottom), (RIGHT, panel.bottom), &format!("stroke=\"{INK}\""));
}

/// A function of the items, by short straight pieces that are not joined where a sub-filter begins.
fn curve(svg: &mut String, panel: &Panel, shapes: &[Shape], colour: &str, value: impl Fn(f64) -> f64) {
    const PIECES: u32 = 40;
    let mut path = String::new();
    for i in 0..shapes.len() {
        let (from, to) = ((full(&shapes[..i]) as f64 + 1.0).max(FIRST_ITEMS), full(&shapes[..=i]) as f64);
        for piece in 0..=PIECES {
            let items = (from * (to / from).powf(f64::from(piece) / f64::from(PIECES))).round();
            let command = if piece == 0 { 'M' } else { 'L' };
            let _ = write!(path, "{command}{:.1} {:.1}", x(items, shapes), panel.y(value(items)));
        }
    }
    let _ = writeln!(svg, "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>");
}

/// The chance that an item that was never added is found, with all positions independent.
fn expected_rate(items: f64, shapes: &[Shape]) -> f64 {
    let mut left = items;
    let absent_everywhere = shapes.iter().map(|shape| {
        let here = left.min(shape.entries as f64);
        left -= here;
        let hashes = f64::from(shape.hashes);
        let bit_is_set = 1.0 - (1.0 - 1.0 / shape.bits as f64).powf(hashes * here);
        1.0 - bit_is_set.powf(hashes)
    });
    1.0 - absent_everywhere.product::<f64>()
}

/// Bits of the sub-filters that there are after so many items.
fn bits_held(items: f64, shapes: &[Shape]) -> f64 {
    let there = (0..shapes.len()).take_while(|&i| (full(&shapes[..i]) as f64) < items);
    there.map(|i| shapes[i].bits).sum::<u64>() as f64
}

/// The rate counted at each of the [`DOTS`], on a filter that is filled as a client would fill it.
fn measured_rates(shapes: &[Shape]) -> Vec<f64> {
    let mut chain = ScalableBloom::new(options::SCALING, GROWTH, shapes[0]).expect("memory for a small filter");
    let (mut counted, mut next) = (0, 0_u32);
    let questions: Vec<_> = (0..QUESTIONS).map(|i| HashPair::of(format!("other:{i}").as_bytes())).collect();
    let mut rates = Vec::new();
    for dot in DOTS {
        while counted < dot {
            let item = HashPair::of(format!("item:{next}").as_bytes());
            match chain.insert_shared(item) {
                Insert::Added => (counted, next) = (counted + 1, next + 1),
                Insert::Present => next += 1,
                Insert::Full | Insert::NeedsGrowth => {
                    let shape = chain.next_shape().expect("the next sub-filter");
                    chain.push_link(shape).expect("memory for a small filter");
                }
            }
        }
        let found = questions.iter().filter(|&&item| chain.contains(item)).count();
        rates.push(found as f64 / f64::from(QUESTIONS));
    }
    rates
}

/// At most three significant digits, for numbers below 1.
fn three_digits(number: f64) -> String {
    let decimals = (3.0 - number.log10().ceil()).max(0.0) as usize;
    format!("{number:.decimals$}").trim_end_matches('0').to_owned()
}

/// 12345 as `12,345`.
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let groups = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy);
    groups.collect::<Vec<_>>().join(",")
}
