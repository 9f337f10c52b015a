//! What a list of seen articles costs a user and how often it is wrong: queue, one filter, two, a chain of five.
//!
//! ```text
//! cargo bench --no-default-features --bench seen-lists [-- --users 1000 --seed 1 --svg docs/pictures/seen-lists.svg]
//! ```
//!
//! The comparison is that of the article on the de-duplication of news, with its sizes, beside what it says; and a chain that
//! has the asked rate as a whole, in the form that the server keeps. Every user reads articles that are all new: each is asked
//! for and written in one step, and a yes is a wrong one. Articles are hashes of 64 bits already: hashing is left out.
//!
//! Every run checks its answers: what a structure promises to remember is asked for all along, and it stops if that is missing.

use std::collections::VecDeque;
use std::io::Write;
use std::time::Instant;

use seendb::filters::item_hash::mix64;
use seendb::filters::ring::bits::SharedBits;
use seendb::filters::ring::packed::{PackedRing, PackedRingMut, pack, packed_len};
use seendb::filters::ring::shape::ArrayShape;
use seendb::filters::ring::{Event, Mode, Part, Ring, Settings, Store};

/// So many articles a user has read when the figures are taken.
const LEVELS: [usize; 9] = [3, 10, 50, 100, 250, 400, 500, 1000, 5000];
/// Errors and history are those of so many newest articles: a whole cycle of two arrays, and three links.
const NEWEST: usize = 300;
/// The rate that the article gives for all of its filters.
const ARTICLES_RATE: f64 = 0.0156;

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Queue,
    Single,
    Dual,
    Chain,
    SizedChain,
}

const KINDS: [(Kind, &str, &str); 5] = [
    (Kind::Queue, "queue of 64-bit ids", "#6b7280"),
    (Kind::Single, "one filter of 500", "#c2410c"),
    (Kind::Dual, "two of 500, second at 300", "#7c3aed"),
    (Kind::Chain, "chain of 5 x 100, 812 bits", "#1f6fb2"),
    (Kind::SizedChain, "CHAIN.RESERVE 0.02 400", "#15803d"),
];

/// What one user has read.
enum Seen {
    Queue(VecDeque<u64>),
    /// Arrays of the article's sizes, allocated when they are begun.
    Arrays(Box<Ring>, ArrayShape),
    /// As the server keeps it.
    Packed(Vec<u8>),
}

fn settings(capacity: u64, links: u16, mode: Mode) -> Settings {
    Settings { capacity, error: 0.02, link_error: false, links, mode, idle: None, key: None }
}

fn packed(ring: &Ring) -> Vec<u8> {
    // What an allocator would waste is room to grow.
    let mut payload = vec![0; packed_len(ring).expect("a small ring").next_multiple_of(16)];
    pack(ring, &mut payload);
    payload
}

impl Seen {
    fn new(kind: Kind) -> Self {
        let arrays = |settings, capacity, bits| {
            Self::Arrays(Box::new(Ring::new(settings, 1)), ArrayShape { capacity, bits, hashes: 6 })
        };
        match kind {
            Kind::Queue => Self::Queue(VecDeque::new()),
            Kind::Single => arrays(settings(500, 2, Mode::Count), u64::MAX, 4064),
            Kind::Dual => arrays(settings(200, 2, Mode::Dual { threshold: 0.6 }), 500, 4064),
            Kind::Chain => arrays(settings(400, 5, Mode::Count), 100, 812),
            Kind::SizedChain => Self::Packed(packed(&Ring::new(settings(400, 5, Mode::Count), 1))),
        }
    }

    /// Writes an article: whether it was taken for one that was read before.
    fn read(&mut self, article: u64) -> bool {
        match self {
            Self::Queue(ids) => {
                let seen = ids.contains(&article);
                if !seen {
                    ids.drain(..ids.len().saturating_sub(499));
                    ids.push_back(article);
                }
                seen
            }
            Self::Arrays(ring, shape) => {
                let seen = !ring.insert(article, Event::default()).expect("memory").unseen;
                for part in ring.parts.iter_mut().filter(|part| part.items <= 1) {
                    give_shape(part, *shape, article);
                }
                seen
            }
            Self::Packed(payload) => match PackedRingMut::new(payload).insert(article, Event::default()) {
                Some(inserted) => !inserted.unseen,
                None => {
                    let mut ring = PackedRing::new(payload).unpack().expect("memory");
                    let inserted = ring.insert(article, Event::default()).expect("memory");
                    *payload = packed(&ring);
                    !inserted.unseen
                }
            },
        }
    }

    fn contains(&self, article: u64) -> bool {
        match self {
            Self::Queue(ids) => ids.contains(&article),
            Self::Arrays(ring, _) => ring.contains(article, 0),
            Self::Packed(payload) => PackedRing::new(payload).contains(article, 0),
        }
    }

    /// The same, but the link that is written is left out, as the article says.
    fn contains_literally(&self, article: u64) -> bool {
        let Self::Arrays(ring, _) = self else { return self.contains(article) };
        ring.alive(0).skip(1).any(|part| part.contains(article))
    }

    /// So many of the newest articles are remembered.
    fn history(&self) -> usize {
        match self {
            Self::Queue(ids) => ids.len(),
            Self::Arrays(ring, _) => ring.items(0) as usize,
            Self::Packed(payload) => PackedRing::new(payload).items(0) as usize,
        }
    }

    /// Bits of ids or arrays; of the packed form all that it takes.
    fn bits(&self) -> usize {
        match self {
            Self::Queue(ids) => ids.len() * 64,
            Self::Arrays(ring, shape) => ring.parts.len() * shape.bits as usize,
            Self::Packed(payload) => payload.len() * 8,
        }
    }
}

/// A new array gets the article's size and is bits from the beginning.
fn give_shape(part: &mut Part, shape: ArrayShape, article: u64) {
    let known = part.items == 1 && part.contains(article);
    if part.items > 0 && !known || part.shape == shape {
        return;
    }
    let bits = SharedBits::zeroed(shape.bits).expect("memory");
    *part = Part { store: Store::Bits(bits), ..Part::new(0, 0, shape) };
    if known {
        part.insert(article).expect("memory");
    }
}

struct Options {
    users: usize,
    seed: u64,
    svg: Option<String>,
}

impl Options {
    fn read() -> Result<Self, String> {
        let mut words = std::env::args().skip(1);
        // `cargo test --benches` runs this too: a few users show that it works.
        let mut options = Self { users: 20, seed: 1, svg: None };
        let mut users = None;
        while let Some(word) = words.next() {
            let mut number = || {
                let value = words.next().and_then(|value| value.parse().ok()).filter(|value| *value > 0);
                value.ok_or(format!("{word} needs a number above 0"))
            };
            match &word[..] {
                "--bench" => options.users = 1000,
                "--users" => users = Some(number()? as usize),
                "--seed" => options.seed = number()?,
                "--svg" => options.svg = Some(words.next().ok_or("--svg needs a file")?),
                _ => return Err(format!("'{word}' is not --users, --seed or --svg")),
            }
        }
        options.users = users.unwrap_or(options.users);
        Ok(options)
    }
}

/// The article with this number of a user's.
fn article(seed: u64, user: usize, number: usize) -> u64 {
    mix64(mix64(seed << 40 ^ user as u64).wrapping_add(number as u64))
}

/// What was found at one level.
#[derive(Clone, Copy)]
struct Figures {
    bits: f64,
    nanoseconds: f64,
    error: f64,
    history: usize,
}

/// Nanoseconds an article from one level to the next: the best of three rounds, since other programs only add to it.
fn times(kind: Kind, options: &Options) -> Vec<f64> {
    let least = |best: Vec<f64>, round: Vec<f64>| best.iter().zip(round).map(|(one, two)| one.min(two)).collect();
    (0..3).map(|_| times_once(kind, options)).reduce(least).unwrap_or_default()
}

/// One round, all users in turn.
fn times_once(kind: Kind, options: &Options) -> Vec<f64> {
    let users = options.users.min(500);
    let mut seen: Vec<_> = (0..users).map(|_| Seen::new(kind)).collect();
    let mut from = 0;
    let mut level = |to: usize| {
        let articles: Vec<Vec<_>> =
            (0..users).map(|user| (from..to).map(|number| article(options.seed, user, number)).collect()).collect();
        let start = Instant::now();
        let wrong = seen.iter_mut().zip(&articles).map(|(seen, new)| new.iter().filter(|id| seen.read(**id)).count());
        std::hint::black_box(wrong.sum::<usize>());
        let ns = start.elapsed().as_nanos() as f64 / (users * (to - from)) as f64;
        from = to;
        ns
    };
    LEVELS.iter().map(|to| level(*to)).collect()
}

/// One user's life: figures at each level, and how many of the articles that were asked for literally were missed.
fn one_user(kind: Kind, options: &Options, user: usize) -> (Vec<Figures>, f64) {
    let mut seen = Seen::new(kind);
    let (mut wrong, mut histories) = (VecDeque::new(), VecDeque::new());
    let (mut figures, mut missed) = (Vec::new(), 0.0);
    let id = |number| article(options.seed, user, number);
    for number in 0..LEVELS[LEVELS.len() - 1] {
        wrong.push_back(seen.read(id(number)));
        histories.push_back(seen.history());
        if wrong.len() > NEWEST {
            wrong.pop_front();
            histories.pop_front();
        }
        // One of those that are remembered, and one of the newest hundred.
        let back = |most: usize| number - mix64(id(number)) as usize % most.min(number + 1);
        assert!(seen.contains(id(back(seen.history().max(1)))), "an article is forgotten too early");
        if number + NEWEST >= LEVELS[LEVELS.len() - 1] && !seen.contains_literally(id(back(100))) {
            missed += 1.0 / NEWEST as f64;
        }
        if LEVELS.contains(&(number + 1)) {
            let forgets = (1..histories.len()).find(|i| histories[*i] < histories[i - 1]);
            let history = match (kind, forgets) {
                (Kind::Queue, _) => seen.history(),
                (_, Some(first)) => histories.range(first..).copied().min().unwrap_or(0),
                // Those that were taken for known ones count too.
                (_, None) => number + 1,
            };
            figures.push(Figures {
                bits: seen.bits() as f64,
                nanoseconds: 0.0,
                error: wrong.iter().filter(|wrong| **wrong).count() as f64 / wrong.len() as f64,
                history,
            });
        }
    }
    (figures, missed)
}

/// The means of all users, of the history the least, and the share that the article's way of asking misses.
fn measure(kind: Kind, name: &str, options: &Options) -> (Vec<Figures>, f64) {
    let none = Figures { bits: 0.0, nanoseconds: 0.0, error: 0.0, history: usize::MAX };
    let (mut all, mut missed, users) = (vec![none; LEVELS.len()], 0.0, options.users as f64);
    for user in 0..options.users {
        if user % 50 == 0 {
            eprint!("\r{name}: {user} of {} users        ", options.users);
        }
        let (figures, missed_here) = one_user(kind, options, user);
        missed += missed_here / users;
        for (sum, own) in all.iter_mut().zip(figures) {
            sum.bits += own.bits / users;
            sum.error += own.error / users;
            sum.history = sum.history.min(own.history);
        }
    }
    all.iter_mut().zip(times(kind, options)).for_each(|(figures, ns)| figures.nanoseconds = ns);
    eprint!("\r{:60}\r", "");
    (all, missed)
}

/// What the article says: bits, rate, history.
fn claimed(kind: Kind, articles: usize) -> Option<(usize, f64, usize)> {
    match kind {
        Kind::Queue => Some((articles.min(500) * 64, 0.0, articles.min(500))),
        Kind::Single => Some((4000, if articles > 500 { 1.0 } else { ARTICLES_RATE }, articles)),
        Kind::Dual => {
            let arrays = if articles < 300 { 1 } else { 2 };
            Some((4000 * arrays, ARTICLES_RATE, if articles > 500 { 200 } else { articles }))
        }
        Kind::Chain => {
            let history = if articles > 500 { 400 } else { articles };
            Some((800 * articles.div_ceil(100).min(5), ARTICLES_RATE, history))
        }
        Kind::SizedChain => None,
    }
}

fn print_table(measured: &[(Vec<Figures>, f64)]) {
    println!("{:>8}  {:<26} {:>7} {:>6} {:>8} {:>9}   the article says", "", "", "bits", "ns an", "wrong", "");
    println!(
        "{:>8}  {:<26} {:>7} {:>6} {:>8} {:>9}   {:>7} {:>8} {:>9}",
        "articles", "seen list", "a user", "article", "%", "remembers", "bits", "wrong %", "remembers"
    );
    for (level, articles) in LEVELS.iter().enumerate() {
        for ((kind, name, _), (figures, _)) in KINDS.iter().zip(measured) {
            let Figures { bits, nanoseconds, error, history } = figures[level];
            let percent = error * 100.0;
            print!("{articles:>8}  {name:<26} {bits:>7.0} {nanoseconds:>7.0} {percent:>7.3} {history:>9}");
            match claimed(*kind, *articles) {
                Some((bits, rate, history)) => println!("   {bits:>7} {:>8.2} {history:>9}", rate * 100.0),
                None => println!(),
            }
        }
        println!();
    }
}

fn print_notes(measured: &[(Vec<Figures>, f64)]) {
    let wrong = |kind: usize, articles: usize| {
        let level = LEVELS.iter().position(|level| *level == articles).unwrap_or(0);
        format!("{:.1} %", measured[kind].0[level].error * 100.0)
    };
    let (early, late, chain, sized) = (wrong(1, 1000), wrong(1, 5000), wrong(3, 5000), wrong(4, 5000));
    let missed = measured[3].1 * 100.0;
    println!(
        "\
wrong      of the newest {NEWEST} articles, or of all if there are fewer, each asked for before it was written
bits       of ids and arrays; of the last list all that the server's value takes, which is hashes while it is short
remembers  at least so many of the newest articles, of all users

Where the article's figures do not hold:
* 1.56 % is 0.5^6, the rate if half of the bits are set. 4,064 bits with 500 items, or 812 with 100, have 52 % set, and a
  rate of 2.02 %: just above the 2 % that they were made for. That takes 4,076 and 816 bits.
* Nor is one filter \"nearly all ones\" with 500 items. It takes {early} of the articles from 701 to 1,000 for known ones,
  and {late} of those from 4,701 to 5,000.
* A chain is wrong when any of its links is: {chain}, five times what is claimed. Links of 1,148 bits, made for 0.4 %
  each, give {sized}.
* The link that is written must be asked as well. Where only the others are, {missed:.0} % of the newest 100 are missed."
    );
}

const LEFT: f64 = 84.0;
const RIGHT: f64 = 690.0;
/// Height of a drawing.
const HEIGHT: f64 = 190.0;

/// Where so many articles stand, on a logarithmic axis.
fn across(articles: usize) -> f64 {
    LEFT + (RIGHT - LEFT) * (articles as f64 / 3.0).ln() / (5000.0_f64 / 3.0).ln()
}

/// One drawing: its title, where its bottom line is, the marks of its scale, and how far above the bottom a value stands.
struct Panel<'a> {
    title: &'a str,
    bottom: f64,
    marks: &'a [(f64, &'a str)],
    height: fn(f64) -> f64,
}

impl Panel<'_> {
    fn axes(&self) -> String {
        let bottom = self.bottom;
        let mut svg =
            format!("<text x=\"{LEFT}\" y=\"{}\" font-weight=\"bold\">{}</text>\n", bottom - 204.0, self.title);
        let mut line = |x1: f64, y1: f64, x2: f64, y2: f64, colour: &str| {
            svg += &format!(r#"<line x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}" stroke="{colour}"/>"#);
            svg.push('\n');
        };
        for (value, _) in self.marks {
            let y = bottom - (self.height)(*value);
            line(LEFT, y, RIGHT, y, "#e4e7eb");
        }
        LEVELS.map(across).iter().for_each(|x| line(*x, bottom, *x, bottom + 4.0, "#1f2933"));
        line(LEFT, bottom, RIGHT, bottom, "#1f2933");
        let mut label = |x: f64, y: f64, anchor: &str, text: &str| {
            svg += &format!(r##"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}" fill="#8a94a0">{text}</text>"##);
            svg.push('\n');
        };
        self.marks.iter().for_each(|(value, text)| label(76.0, bottom - (self.height)(*value) + 4.0, "end", text));
        // There is no room for 400 beside 500.
        for articles in LEVELS.into_iter().filter(|articles| *articles != 400) {
            label(across(articles), bottom + 18.0, "middle", &with_commas(articles));
        }
        svg
    }

    /// The lines of all lists; what is above the drawing is cut off.
    fn lines(&self, lists: &[Vec<f64>]) -> String {
        let (bottom, top, width) = (self.bottom, self.bottom - HEIGHT, RIGHT - LEFT);
        let clip = format!("above{bottom}");
        let mut svg = format!(
            r#"<clipPath id="{clip}"><rect x="{LEFT}" y="{top}" width="{width}" height="{}"/></clipPath>"#,
            HEIGHT + 2.0
        );
        svg.push('\n');
        for ((_, _, colour), values) in KINDS.iter().zip(lists) {
            let point = |(articles, value): (&usize, &f64)| (across(*articles), bottom - (self.height)(*value));
            let points: Vec<_> = LEVELS.iter().zip(values).map(point).collect();
            let path: Vec<_> = points.iter().map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
            let path = path.join("L");
            svg += &format!(
                r#"<path d="M{path}" clip-path="url(#{clip})" fill="none" stroke="{colour}" stroke-width="2"/>"#
            );
            svg.push('\n');
            for (x, y) in points.iter().filter(|(_, y)| *y >= top) {
                svg += &format!(
                    r#"<circle cx="{x:.1}" cy="{y:.1}" r="3" fill="white" stroke="{colour}" stroke-width="1.5"/>"#
                );
                svg.push('\n');
            }
        }
        svg
    }
}

fn with_commas(number: usize) -> String {
    if number < 1000 { number.to_string() } else { format!("{},{:03}", number / 1000, number % 1000) }
}

/// What the colours are, with the figures of the last level.
fn legend(measured: &[(Vec<Figures>, f64)]) -> String {
    let mut svg = format!("<text x=\"712\" y=\"86\" fill=\"#8a94a0\">after {} articles:</text>\n", with_commas(5000));
    for (((kind, name, colour), (figures, _)), y) in KINDS.iter().zip(measured).zip([116.0, 162.0, 208.0, 254.0, 300.0])
    {
        let last = figures[LEVELS.len() - 1];
        let history = if *kind == Kind::Single { "all".to_owned() } else { last.history.to_string() };
        let figures = format!("{:.1} % wrong, remembers {history}", last.error * 100.0);
        svg += &format!(
            r##"<rect x="712" y="{}" width="14" height="4" fill="{colour}"/><text x="734" y="{y}" font-weight="bold">{name}</text>
<text x="734" y="{}" fill="#8a94a0">{figures}</text>
"##,
            y - 6.0,
            y + 17.0
        );
    }
    svg
}

fn picture(measured: &[(Vec<Figures>, f64)], users: usize) -> String {
    let lists = |of: fn(&Figures) -> f64| -> Vec<Vec<f64>> {
        measured.iter().map(|(figures, _)| figures.iter().map(of).collect()).collect()
    };
    let bits = Panel {
        title: "Bits a user (logarithmic)",
        bottom: 290.0,
        marks: &[(100.0, "100"), (1000.0, "1,000"), (10_000.0, "10,000"), (32_000.0, "32,000")],
        height: |bits| (bits / 100.0).max(1.0).log10() * 75.0,
    };
    let wrong = Panel {
        title: "New articles taken for known ones, % of the newest 300",
        bottom: 556.0,
        marks: &[(0.0, "0"), (0.02, "2"), (0.04, "4"), (0.06, "6"), (0.08, "8"), (0.1, "10")],
        height: |error| error * 1800.0,
    };
    let claim = wrong.bottom - (wrong.height)(ARTICLES_RATE);
    [
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 950 610" font-family="Helvetica, Arial, sans-serif" font-size="13" fill="#1f2933">
<rect width="950" height="610" fill="white"/>
<text x="84" y="30" font-size="17" font-weight="bold">What lists of seen articles take, and how often they are wrong</text>
"##
        .to_owned(),
        format!("<text x=\"84\" y=\"50\" fill=\"#8a94a0\">{} users who read new articles only</text>\n", with_commas(users)),
        bits.axes(),
        bits.lines(&lists(|figures| figures.bits)),
        wrong.axes(),
        wrong.lines(&lists(|figures| figures.error)),
        format!(
            r##"<line x1="{LEFT}" y1="{claim:.1}" x2="{RIGHT}" y2="{claim:.1}" stroke="#c2410c" stroke-dasharray="6 4"/>
<text x="92" y="{:.1}" fill="#c2410c">1.56: what the article says of each filter</text>
"##,
            claim - 6.0
        ),
        legend(measured),
        format!("<text x=\"{}\" y=\"600\" text-anchor=\"middle\">articles read (logarithmic)</text>\n</svg>\n", across(122)),
    ]
    .concat()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options = Options::read()?;
    let measured: Vec<_> = KINDS.iter().map(|(kind, name, _)| measure(*kind, name, &options)).collect();
    println!("{} users, seed {}\n", options.users, options.seed);
    print_table(&measured);
    print_notes(&measured);
    if let Some(file) = &options.svg {
        std::fs::File::create(file)?.write_all(picture(&measured, options.users).as_bytes())?;
    }
    Ok(())
}
