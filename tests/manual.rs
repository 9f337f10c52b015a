//! The manual says what is true: its examples run and print what stands there, its links lead somewhere, and every
//! `BF.*` command of the server is on the page about Bloom filters.
//!
//! An example is an indented block whose lines begin with `> `, each followed by what `redis-cli` prints. A page's examples
//! run in order on one fresh server.
#![cfg(feature = "server")]

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;
use support::Server;

/// `README.md` and the pages of `docs/`.
fn pages() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut paths: Vec<PathBuf> = std::fs::read_dir(root.join("docs"))
        .expect("the folder docs")
        .map(|entry| entry.expect("an entry of docs").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .collect();
    paths.extend(["README.md", "CHANGELOG.md", "tests/differences.md"].map(|name| root.join(name)));
    paths.retain(|path| path.exists());
    paths.sort();
    let read = |path: PathBuf| (std::fs::read_to_string(&path).map(|text| (path, text))).expect("a page is UTF-8");
    paths.into_iter().map(read).collect()
}

/// The command lines of a page with the lines printed below each.
fn examples(page: &str) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    let mut inside = false;
    for line in page.lines() {
        if let Some(command) = line.strip_prefix("    > ") {
            // Side by side, shortened: an illustration.
            inside = !command.contains("->");
            if inside {
                found.push((command.trim().to_string(), String::new()));
            }
        } else if let (Some(printed), true) = (line.strip_prefix("    "), inside) {
            let (_, output) = found.last_mut().expect("a command stands above");
            output.push_str(printed);
            output.push('\n');
        } else {
            inside = false;
        }
    }
    found
}

#[test]
fn examples_print_what_stands_there() {
    let mut run = 0;
    for (path, page) in pages() {
        let examples = examples(&page);
        if examples.is_empty() {
            continue;
        }
        let server = Server::start();
        for (command, printed) in examples {
            let output = Command::new("redis-cli")
                .args(["-p", &server.port().to_string(), "--no-raw"])
                .args(command.split_ascii_whitespace())
                .output()
                .expect("redis-cli is installed (scripts/peer installs it)");
            let said = String::from_utf8_lossy(&output.stdout).trim_end().to_string();
            assert_eq!(said, printed.trim_end(), "{}: {command}", path.display());
            run += 1;
        }
    }
    assert!(run >= 5, "only {run} examples were found");
}

#[test]
fn links_lead_somewhere() {
    for (path, page) in pages() {
        for (_, rest) in page.match_indices("](").map(|(at, mark)| (at, &page[at + mark.len()..])) {
            let target = rest.split(')').next().unwrap_or_default();
            let file = target.split('#').next().unwrap_or_default();
            if file.is_empty() || target.contains("://") {
                continue;
            }
            let there = path.parent().expect("a page stands in a folder").join(file);
            assert!(there.exists(), "{} links to {target}, which is not there", path.display());
        }
    }
}

#[test]
fn every_bloom_command_is_in_the_manual() {
    let server = Server::start();
    let commands = server.client().cmd("COMMAND LIST");
    let names: Vec<String> = commands.array().iter().map(|name| name.text().to_ascii_uppercase()).collect();
    let family: Vec<&String> = names.iter().filter(|name| name.starts_with("BF.")).collect();
    assert!(family.len() >= 11, "{names:?}");
    for name in family {
        assert!(include_str!("../docs/bloom.md").contains(&format!("`{name} ")), "{name} is not in docs/bloom.md");
    }
}
