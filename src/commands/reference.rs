//! The command reference as Markdown, made from the table.
//!
//! [`page`] is `docs/commands.md`, [`overview`] the short table of the README, with links into that page. Neither knows a command by name: what a row
//! says is all that is written.

use std::fmt::Write;

use super::form::form;
use super::table::{Command, Flags, Group, KeySpec, all};

const GROUPS: [Group; 8] = [
    Group::Bloom,
    Group::Chain,
    Group::Counting,
    Group::Dleft,
    Group::Generic,
    Group::Transactions,
    Group::Connection,
    Group::Server,
];

const INTRODUCTION: &str = "\
# Command reference

Made from the server's command table by `cargo run --example reference`; a test compares the two. The server itself
tells the same with `COMMAND DOCS` and `COMMAND INFO`, from where `redis-cli` takes its hints.

**Forms.** Words in capitals are typed as they stand, in any letter case. Words in small letters are values. `[ ]` may be
left out, ` | ` separates choices, ` … ` says that what stands before may be repeated.

**Cost** is the growth of the work with the request and the value. **Since** names the first release of the software that
brought the command: RedisBloom, Redis or SeenDB.
";

/// What each flag means. Flags are Redis' own.
const FLAGS: [(Flags, &str); 11] = [
    (Flags::WRITE, "may change keys"),
    (Flags::READONLY, "only reads keys"),
    (Flags::DENYOOM, "may need more memory"),
    (Flags::ADMIN, "for administrators"),
    (Flags::NOSCRIPT, "not for scripts (there are none here; clients and proxies read it)"),
    (Flags::LOADING, "allowed while data are being loaded"),
    (Flags::STALE, "allowed on a replica without its primary (as above)"),
    (Flags::FAST, "costs little whatever the request"),
    (Flags::NO_AUTH, "allowed before `AUTH`"),
    (Flags::MOVABLE_KEYS, "where its keys stand depends on the other words: ask `COMMAND GETKEYS`"),
    (Flags::NO_MULTI, "not allowed between `MULTI` and `EXEC`"),
];

/// The whole reference page.
#[must_use]
pub fn page() -> String {
    let mut page = INTRODUCTION.to_owned();
    page += "\n| flag | meaning |\n| --- | --- |\n";
    for (flag, meaning) in FLAGS {
        let _ = writeln!(page, "| {} | {meaning} |", marked(flag.names()));
    }
    page += "\n## Contents\n\n";
    page += &contents();
    for group in GROUPS {
        let _ = write!(page, "\n## {}\n", group.title());
        for command in of_group(group) {
            page += &section(command, None);
            command.subcommands.iter().for_each(|sub| page += &section(sub, Some(command)));
        }
    }
    page
}

/// All commands by group, each with a link into the reference page, which lies at `path`.
#[must_use]
pub fn overview(path: &str) -> String {
    let mut table = String::from("| about | commands |\n| --- | --- |\n");
    for group in GROUPS {
        let links = callables(group).map(|(command, container)| {
            let title = title(command, container);
            format!("[`{title}`]({path}#{})", anchor(&title))
        });
        let _ = writeln!(table, "| {} | {} |", group.title(), links.collect::<Vec<_>>().join(" "));
    }
    table
}

/// All commands, a line each, with links to their sections below.
fn contents() -> String {
    let mut table = String::from("| command | what it does |\n| --- | --- |\n");
    for (command, container) in GROUPS.into_iter().flat_map(callables) {
        let title = title(command, container);
        let _ = writeln!(table, "| [`{title}`](#{}) | {} |", anchor(&title), command.summary);
    }
    table
}

/// What can be called in a group: commands, and subcommands with their containers.
fn callables(group: Group) -> impl Iterator<Item = (&'static Command, Option<&'static Command>)> {
    of_group(group).flat_map(|command| {
        let own = callable(command).then_some((command, None));
        own.into_iter().chain(command.subcommands.iter().map(move |sub| (sub, Some(command))))
    })
}

fn of_group(group: Group) -> impl Iterator<Item = &'static Command> {
    all().filter(move |command| command.group == group)
}

/// Whether a command can be called by its own name: a container of subcommands that needs one of them cannot.
const fn callable(command: &Command) -> bool {
    command.subcommands.is_empty() || command.arity == -1
}

/// `BF.ADD`, `CONFIG GET`.
fn title(command: &Command, container: Option<&Command>) -> String {
    let own = command.name.to_uppercase();
    container.map_or(own.clone(), |container| format!("{} {own}", container.name.to_uppercase()))
}

/// The name that GitHub gives to a heading of this text.
fn anchor(title: &str) -> String {
    let kept = title.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

fn section(command: &Command, container: Option<&Command>) -> String {
    let title = title(command, container);
    let mut section = format!("\n### {title}\n\n");
    if callable(command) {
        let _ = write!(section, "```text\n{}\n```\n\n", format!("{title} {}", form(command.arguments)).trim_end());
    }
    let _ = writeln!(section, "{}\n", command.summary);
    if !callable(command) {
        return section + &subcommands(command, &title);
    }
    let source = match command.group {
        Group::Bloom => "RedisBloom",
        Group::Chain | Group::Counting | Group::Dleft => "SeenDB",
        _ => "Redis",
    };
    let _ = writeln!(section, "| cost | keys | flags | ACL categories | since |\n| --- | --- | --- | --- | --- |");
    let _ = writeln!(
        section,
        "| {} | {} | {} | {} | {source} {} |",
        command.complexity,
        keys(command.keys),
        marked(command.flags.names()),
        marked(command.categories()),
        command.since,
    );
    section
}

fn subcommands(command: &Command, title: &str) -> String {
    let links = command.subcommands.iter().map(|sub| {
        let name = sub.name.to_uppercase();
        format!("[`{name}`](#{})", anchor(&format!("{title} {name}")))
    });
    format!("Subcommands: {}.\n", links.collect::<Vec<_>>().join(", "))
}

/// Words as code, or a dash where there is none.
fn marked<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    let words: Vec<_> = words.into_iter().map(|word| format!("`{word}`")).collect();
    if words.is_empty() { "–".to_owned() } else { words.join(" ") }
}

fn keys(specs: &[KeySpec]) -> String {
    let one = |spec: &KeySpec| {
        let place = match (spec.first, spec.last) {
            (first, last) if first == last => format!("word {first}"),
            (first, -1) => format!("words {first} to the last"),
            (first, last) => format!("words {first} to {last}"),
        };
        format!("{place}: {}", marked(spec.flags.iter().copied()))
    };
    if specs.is_empty() { "–".to_owned() } else { specs.iter().map(one).collect::<Vec<_>>().join("; ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_section_and_two_links() {
        let (page, overview) = (page(), overview("docs/commands.md"));
        let mut links = 0;
        for command in all() {
            let subcommands = command.subcommands.iter().map(|sub| (sub, Some(command)));
            for (command, container) in std::iter::once((command, None)).chain(subcommands) {
                let title = title(command, container);
                let anchor = anchor(&title);
                assert!(page.contains(&format!("\n### {title}\n")), "{title}: no section");
                let in_contents = page.contains(&format!("| [`{title}`](#{anchor}) | {} |", command.summary));
                let in_overview = overview.contains(&format!("[`{title}`](docs/commands.md#{anchor})"));
                assert_eq!((in_contents, in_overview), (callable(command), callable(command)), "{title}");
                links += usize::from(callable(command));
            }
        }
        assert_eq!(overview.matches("](").count(), links);
    }

    #[test]
    fn every_flag_in_use_is_explained() {
        let explained: Vec<_> = FLAGS.iter().flat_map(|(flag, _)| flag.names()).collect();
        for command in all().flat_map(|command| std::iter::once(command).chain(command.subcommands)) {
            for name in command.flags.names() {
                assert!(explained.contains(&name), "{name}");
            }
        }
    }

    #[test]
    fn anchors_are_those_of_headings() {
        assert_eq!(anchor("BF.ADD"), "bfadd");
        assert_eq!(anchor("CONFIG GET"), "config-get");
    }

    #[test]
    fn no_cell_breaks_its_table() {
        for line in page().lines().filter(|line| line.starts_with('|')) {
            let columns = line.matches('|').count();
            assert!(columns == 3 || columns == 6, "{line}");
        }
    }
}
