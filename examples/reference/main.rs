//! Writes the generated pages: the command reference, the tables in the README and in the configuration page, the pictures.
//!
//! `cargo run --example reference` writes those that changed; `cargo run --example reference -- --check` writes nothing and
//! ends with 1 if it would have to.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{fs, io};

use seendb::commands::reference;
use seendb::config::markdown_table;

mod loads;
mod picture;

/// A page, or the marked part of one, that is made from the program.
pub struct Generated {
    /// Its place in the repository.
    pub path: &'static str,
    /// What it has to be.
    pub text: String,
}

/// All generated pages as they have to be. Of pages that are written by hand in part, the rest is left as it is.
///
/// # Errors
/// A page that is only made in part cannot be read, or has no marks.
pub fn pages() -> io::Result<Vec<Generated>> {
    let generated = |path, text| Ok(Generated { path, text });
    [
        generated("docs/commands.md", reference::page()),
        generated("docs/pictures/growth.svg", picture::growth()),
        generated("docs/pictures/dleft.svg", loads::dleft()),
        part("docs/configuration.md", &markdown_table()),
        part("README.md", &reference::overview("docs/commands.md")),
    ]
    .into_iter()
    .collect()
}

const BEGIN: &str = "<!-- begin: made by `cargo run --example reference` -->\n";
const END: &str = "<!-- end -->";

/// The page with what stands between the marks replaced.
fn part(path: &'static str, text: &str) -> io::Result<Generated> {
    let page = fs::read_to_string(root().join(path))?;
    let parts = page.split_once(BEGIN).and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    let (before, after) = parts.ok_or_else(|| io::Error::other(format!("{path}: the marks are gone: {BEGIN}{END}")))?;
    Ok(Generated { path, text: format!("{before}{BEGIN}\n{text}\n{END}{after}") })
}

/// The folder of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

fn run(check: bool) -> io::Result<ExitCode> {
    let mut outcome = ExitCode::SUCCESS;
    for page in pages()? {
        let path = root().join(page.path);
        if fs::read_to_string(&path).is_ok_and(|now| now == page.text) {
            println!("{} is current", page.path);
        } else if check {
            println!("{} is not current", page.path);
            outcome = ExitCode::FAILURE;
        } else {
            fs::write(path, page.text)?;
            println!("{} written", page.path);
        }
    }
    Ok(outcome)
}

fn main() -> ExitCode {
    let check = std::env::args().nth(1).is_some_and(|word| word == "--check");
    run(check).unwrap_or_else(|error| {
        eprintln!("reference: {error}");
        ExitCode::FAILURE
    })
}
