//! The comparison as a picture.

use super::lists::{KINDS, Kind};
use super::resident::Resident;
use super::{ARTICLES_RATE, Figures, LEVELS};

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

pub fn with_commas(number: usize) -> String {
    match number / 1000 {
        0 => number.to_string(),
        thousands => format!("{},{:03}", with_commas(thousands), number % 1000),
    }
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

pub fn picture(measured: &[(Vec<Figures>, f64)], users: usize, resident: Option<&Resident>) -> String {
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
    let height = if resident.is_some() { 876 } else { 610 };
    let titled = |resident: &Resident| {
        let users = with_commas(resident.users.iter().min().copied().unwrap_or_default());
        let title = format!("Resident bytes a user, of {users} and more (logarithmic)");
        let panel = Panel {
            title: &title,
            bottom: 822.0,
            marks: &[(10.0, "10"), (100.0, "100"), (1000.0, "1,000"), (5000.0, "5,000")],
            height: |bytes| (bytes / 10.0).max(1.0).log10() * 70.0,
        };
        panel.axes() + &panel.lines(&resident.bytes)
    };
    [
        format!(
            r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 950 {height}" font-family="Helvetica, Arial, sans-serif" font-size="13" fill="#1f2933">
<rect width="950" height="{height}" fill="white"/>
<text x="84" y="30" font-size="17" font-weight="bold">What lists of seen articles take, and how often they are wrong</text>
"##
        ),
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
        resident.map(titled).unwrap_or_default(),
        format!("<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">articles read (logarithmic)</text>\n</svg>\n", across(122), height - 10),
    ]
    .concat()
}
