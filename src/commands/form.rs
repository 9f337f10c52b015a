//! A command's form as a person reads it, made from its arguments.

use super::table::{Argument, ArgumentKind, Command, all};
use crate::resp::Reply;

/// The words after the name, such as `key error capacity [EXPANSION expansion] [NONSCALING]`.
#[must_use]
pub fn form(arguments: &[Argument]) -> String {
    arguments.iter().map(one).collect::<Vec<_>>().join(" ")
}

fn one(argument: &Argument) -> String {
    let value = match argument.kind {
        ArgumentKind::PureToken => String::new(),
        ArgumentKind::Block(parts) => form(parts),
        ArgumentKind::OneOf(parts) => parts.iter().map(one).collect::<Vec<_>>().join(" | "),
        _ => argument.name.to_owned(),
    };
    let mut text = match (argument.token, value.is_empty()) {
        (Some(token), true) => token.to_owned(),
        (Some(token), false) => format!("{token} {value}"),
        (None, _) => value,
    };
    if argument.multiple {
        text += " …";
    }
    if argument.optional { format!("[{text}]") } else { text }
}

/// What `CONTAINER HELP` answers.
#[must_use]
pub fn help(container: &str) -> Reply {
    let subcommands = all().find(|command| command.name == container).map_or(&[][..], |command| command.subcommands);
    let container = container.to_uppercase();
    let head = format!("{container} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:");
    let lines = subcommands.iter().flat_map(|sub| [title(sub), format!("    {}", sub.summary)]);
    Reply::Array(std::iter::once(head).chain(lines).map(Reply::simple).collect())
}

fn title(command: &Command) -> String {
    format!("{} {}", command.name.to_uppercase(), form(command.arguments)).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::table::find;

    #[test]
    fn forms() {
        for (name, text) in [
            (
                "bf.reserve",
                "key error capacity [EXPANSION expansion] [NONSCALING] [EX seconds | PX milliseconds | EXAT unix-seconds | \
                 PXAT unix-milliseconds]",
            ),
            ("bf.mexists", "key item …"),
            ("bf.info", "key [CAPACITY | SIZE | FILTERS | ITEMS | EXPANSION]"),
            (
                "bf.insert",
                "key [CAPACITY capacity] [ERROR error] [EXPANSION expansion] [NOCREATE] [NONSCALING] [EX seconds | PX \
                 milliseconds | EXAT unix-seconds | PXAT unix-milliseconds] ITEMS item …",
            ),
            ("hello", "[protover [AUTH username password] [SETNAME clientname]]"),
        ] {
            assert_eq!(form(find(name.as_bytes()).unwrap().arguments), text);
        }
    }

    #[test]
    fn help_lists_every_subcommand() {
        let Reply::Array(lines) = help("client") else { panic!("an array") };
        assert_eq!(lines.len(), 1 + 2 * find(b"client").unwrap().subcommands.len());
    }
}
