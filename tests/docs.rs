//! The pages tell the truth: what is generated is current, sessions are run and compared, links lead somewhere, the example
//! of the README is the one that is compiled.
//!
//! **Sessions.** A fenced block marked `redis-cli`, with options or without, holds commands, each on a line after `> `, and
//! below each what `redis-cli` prints. All blocks of a page run one after the other against one fresh server, each in a
//! `redis-cli` of its own; and those of all pages against one. Blanks at the ends of lines do not count. A block that cannot be run again with the same replies
//! must not be marked.
#![cfg(feature = "server")]

#[allow(dead_code, reason = "the example's own main is not called")]
#[path = "../examples/reference/main.rs"]
mod reference;
mod support;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use reference::root;
use support::Server;

#[test]
fn generated_pages_are_current() {
    for page in reference::pages().expect("the pages with generated parts can be read") {
        let now = fs::read_to_string(root().join(page.path)).unwrap_or_default();
        let first = now.lines().zip(page.text.lines()).position(|(now, wanted)| now != wanted);
        let line = first.unwrap_or_else(|| now.lines().count().min(page.text.lines().count())) + 1;
        assert!(
            now == page.text,
            "{} is not what the program says (first difference in line {line}).\n\
             Run `cargo run --example reference`, look at the change, and commit it.",
            page.path
        );
    }
}

#[test]
fn sessions_print_what_the_pages_show() {
    let mut run = 0;
    for path in pages() {
        let sessions = sessions(&read(&path));
        if !sessions.is_empty() {
            run += run_all(&path, sessions, &Server::start());
        }
    }
    assert!(run >= 2, "no sessions were found: are the fences still marked?");
}

/// Whoever reads one page after the other, with one server, sees what they show: names and settings of one do not change what
/// another prints.
#[test]
fn sessions_of_all_pages_go_together() {
    let server = Server::start();
    for path in pages() {
        run_all(&path, sessions(&read(&path)), &server);
    }
}

/// Runs the sessions of a page and compares; returns how many there were.
#[track_caller]
fn run_all(path: &Path, sessions: Vec<Session>, server: &Server) -> usize {
    for session in &sessions {
        let (shown, printed) = (trimmed(&session.replies), trimmed(&redis_cli(server.port(), session)));
        assert!(
            shown == printed,
            "{}, line {}: redis-cli prints something else.\n--- the page shows\n{shown}\n--- redis-cli prints\n{printed}\n---",
            name(path),
            session.line
        );
    }
    sessions.len()
}

#[test]
fn links_lead_to_files_and_headings() {
    let mut lost = Vec::new();
    for path in pages() {
        for link in links(&read(&path)) {
            let (file, heading) = link.split_once('#').unwrap_or((link.as_str(), ""));
            let folder = path.parent().expect("a page lies in a folder");
            let target = if file.is_empty() { path.clone() } else { folder.join(file) };
            let found =
                target.exists() && (heading.is_empty() || headings(&read(&target)).iter().any(|h| h == heading));
            if !found {
                lost.push(format!("{}: {link}", name(&path)));
            }
        }
    }
    assert!(lost.is_empty(), "links that lead nowhere:\n{}", lost.join("\n"));
}

#[test]
fn the_example_of_the_readme_is_the_one_that_is_compiled() {
    let example = read(&root().join("examples/filter.rs"));
    let (_, code) = example.split_once("\n\n").expect("a module comment, an empty line, the code");
    let readme = read(&root().join("README.md"));
    let block = format!("```rust\n{code}```\n");
    assert!(
        readme.contains(&block),
        "the Rust block of README.md has to be examples/filter.rs without its first comment"
    );
}

/// `section.line` of every line that INFO prints, and of every line that the page's table describes.
#[test]
fn the_table_of_figures_lists_what_info_prints() {
    let server = Server::start();
    let mut client = server.client();
    client.cmd("BF.ADD k item");
    let (mut printed, mut section) = (Vec::new(), String::new());
    for line in client.cmd("INFO").text().lines() {
        match (line.strip_prefix("# "), line.split_once(':')) {
            (Some(title), _) => title.clone_into(&mut section),
            (None, Some((name, _))) => printed.push(format!("{section}.{name}")),
            (None, None) => assert_eq!(line, ""),
        }
    }

    let page = read(&root().join("docs/configuration.md"));
    let (_, table) = page.split_once("| section | line | what it tells |\n").expect("the table of INFO's lines");
    let rows = table.lines().skip(1).take_while(|line| line.starts_with('|'));
    let (mut described, mut section) = (Vec::new(), "");
    for row in rows {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let [_, title, names, meaning, _] = cells[..] else { panic!("not three cells: {row}") };
        section = if title.is_empty() { section } else { title };
        assert!(!meaning.is_empty(), "{row}");
        // Of the databases the one that has a key is printed.
        let names = names.split('`').skip(1).step_by(2).filter(|name| *name != "db15");
        described.extend(names.map(|name| format!("{section}.{name}")));
    }
    printed.sort();
    described.sort();
    assert_eq!(described, printed, "docs/configuration.md describes other lines than INFO prints");
}

#[test]
fn what_the_readme_says_is_not_there_is_not() {
    let readme = read(&root().join("README.md"));
    let (_, list) = readme.split_once("* **Not in this release:**").expect("the list of what is not there");
    let (list, _) = list.split_once("\n* ").expect("a point after it");
    let server = Server::start();
    let mut client = server.client();
    let commands: Vec<&str> = list.split('`').skip(1).step_by(2).collect();
    assert!(commands.len() > 10, "{commands:?}");
    for command in commands {
        let reply = client.cmd(command);
        let right = match command.strip_prefix("INFO ") {
            Some(_) => reply == "",
            None => reply.error().starts_with("ERR unknown "),
        };
        assert!(right, "{command}: {reply:?}");
    }
}

/// The pages that people read.
fn pages() -> Vec<PathBuf> {
    let docs = fs::read_dir(root().join("docs")).expect("the folder docs");
    let mut pages: Vec<_> = docs.map(|entry| entry.expect("an entry of docs").path()).collect();
    pages.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    pages.extend(["README.md", "CHANGELOG.md"].map(|name| root().join(name)));
    pages.sort();
    pages
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn name(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

/// One marked block.
struct Session {
    /// The line of its fence, from 1.
    line: usize,
    /// Options of redis-cli.
    options: Vec<String>,
    /// For redis-cli's input.
    commands: String,
    /// All replies together.
    replies: String,
}

fn sessions(text: &str) -> Vec<Session> {
    let mut sessions = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((index, line)) = lines.next() {
        let Some(options) = line.strip_prefix("```redis-cli") else { continue };
        let options = options.split_whitespace().map(str::to_owned).collect();
        let mut session = Session { line: index + 1, options, commands: String::new(), replies: String::new() };
        for (_, line) in lines.by_ref().take_while(|(_, line)| *line != "```") {
            let (to, line) = match line.strip_prefix("> ") {
                Some(command) => (&mut session.commands, command),
                None => (&mut session.replies, line),
            };
            *to += line;
            *to += "\n";
        }
        assert!(!session.commands.is_empty(), "the block in line {} has no command", session.line);
        sessions.push(session);
    }
    sessions
}

/// What redis-cli prints for these commands when it believes that a person looks at it.
fn redis_cli(port: u16, session: &Session) -> String {
    let mut child = Command::new("redis-cli")
        .args(["--no-raw", "-p", &port.to_string()])
        .args(&session.options)
        .env_remove("REDISCLI_AUTH")
        .env("REDISCLI_RCFILE", "/dev/null")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| {
            panic!("redis-cli: {error}. It comes with Debian's redis-tools; scripts/test installs it.")
        });
    // The handle closes at the end of the statement, which ends redis-cli.
    child.stdin.take().expect("a pipe").write_all(session.commands.as_bytes()).expect("redis-cli reads its input");
    let output = child.wait_with_output().expect("redis-cli ends");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn trimmed(text: &str) -> String {
    text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}

/// Targets of links and pictures that lie in the repository.
fn links(text: &str) -> Vec<String> {
    let targets = text.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0.to_owned()));
    targets.filter(|target| !target.contains("://") && !target.contains(char::is_whitespace)).collect()
}

/// The anchors of a page's headings, as GitHub makes them.
fn headings(text: &str) -> Vec<String> {
    let anchor = |heading: &str| {
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect::<String>().to_lowercase()
    };
    let headings = text.lines().filter(|line| line.starts_with('#'));
    headings.map(|line| anchor(line.trim_start_matches('#').trim())).collect()
}
