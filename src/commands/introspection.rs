//! `COMMAND` and its subcommands: the table, told to clients.

use super::context::Context;
use super::dispatch::{Outcome, resolve};
use super::error::CommandError;
use super::form::help;
use super::keys::check_pattern;
use super::server::check_number;
use super::table::{Argument, ArgumentKind, Command, Flags, Group, KeySpec, all, find};
use super::words::is;
use crate::keyspace::glob;
use crate::resp::{Args, Reply};

const ROW: Command =
    Command { flags: Flags::LOADING.with(Flags::STALE), group: Group::Server, since: "2.8.13", ..Command::DEFAULT };
const NAMES: Argument = Argument::new("command-name", ArgumentKind::String).optional().multiple();
const FULL: &[Argument] =
    &[Argument::new("command", ArgumentKind::String), Argument::new("arg", ArgumentKind::String).optional().multiple()];

/// The rows of this family.
pub const COMMANDS: &[Command] = &[Command {
    name: "command",
    arity: -1,
    summary: "Describes all commands; a container for commands that describe commands.",
    complexity: "O(n), n commands",
    arguments: &[Argument::new("subcommand", ArgumentKind::String).optional().multiple()],
    handler: |_, _| Ok(Reply::Array(all().map(|command| describe(command, None)).collect())),
    subcommands: &[
        Command {
            name: "count",
            arity: 2,
            summary: "Counts the commands.",
            handler: |_, _| Ok(Reply::Integer(all().count() as i64)),
            ..ROW
        },
        Command {
            name: "list",
            arity: -2,
            summary: "Lists the names of all commands, or of some.",
            complexity: "O(n), n commands",
            since: "7.0.0",
            arguments: &[Argument::new(
                "filterby",
                ArgumentKind::OneOf(&[
                    Argument::new("module-name", ArgumentKind::String).token("MODULE"),
                    Argument::new("category", ArgumentKind::String).token("ACLCAT"),
                    Argument::new("pattern", ArgumentKind::Pattern).token("PATTERN"),
                ]),
            )
            .token("FILTERBY")
            .optional()],
            handler: list,
            ..ROW
        },
        Command {
            name: "info",
            arity: -2,
            summary: "Describes some commands, or all.",
            complexity: "O(n), n commands",
            arguments: &[NAMES],
            handler: info,
            ..ROW
        },
        Command {
            name: "docs",
            arity: -2,
            summary: "Documents some commands, or all.",
            complexity: "O(n), n commands",
            since: "7.0.0",
            arguments: &[NAMES],
            handler: docs,
            ..ROW
        },
        Command {
            name: "getkeys",
            arity: -3,
            summary: "Lists the keys of a request.",
            complexity: "O(n), n words",
            arguments: FULL,
            handler: |_, args| Ok(Reply::Array(keys_of(args)?.into_iter().map(|(key, _)| Reply::bulk(key)).collect())),
            ..ROW
        },
        Command {
            name: "getkeysandflags",
            arity: -3,
            summary: "Lists the keys of a request, and what is done to each.",
            complexity: "O(n), n words",
            since: "7.0.0",
            arguments: FULL,
            handler: |_, args| {
                let pair = |(key, spec): (&[u8], &KeySpec)| Reply::Array(vec![Reply::bulk(key), key_flags(spec)]);
                Ok(Reply::Array(keys_of(args)?.into_iter().map(pair).collect()))
            },
            ..ROW
        },
        Command {
            name: "help",
            arity: 2,
            summary: "Lists the subcommands.",
            since: "5.0.0",
            handler: |_, _| Ok(help("command")),
            ..ROW
        },
    ],
    ..ROW
}];

fn full_name(command: &Command, container: Option<&str>) -> String {
    container.map_or(command.name.to_owned(), |container| format!("{container}|{}", command.name))
}

fn words<'a>(words: impl IntoIterator<Item = &'a str>) -> Reply {
    Reply::Set(words.into_iter().map(|word| Reply::simple(word.to_owned())).collect())
}

/// The ten fields of `COMMAND INFO`.
fn describe(command: &'static Command, container: Option<&str>) -> Reply {
    // The old form has one range for all keys.
    let (first, step) = command.keys.first().map_or((0, 0), |keys| (keys.first, keys.step));
    let last = command.keys.last().map_or(0, |keys| keys.last);
    let subcommands = command.subcommands.iter().map(|sub| describe(sub, Some(command.name)));
    Reply::Array(vec![
        Reply::text(full_name(command, container)),
        Reply::Integer(i64::from(command.arity)),
        words(command.flags.names()),
        Reply::Integer(i64::from(first)),
        Reply::Integer(i64::from(last)),
        Reply::Integer(i64::from(step)),
        words(command.categories()),
        Reply::Set(Vec::new()),
        Reply::Set(command.keys.iter().map(describe_keys).collect()),
        if command.subcommands.is_empty() { Reply::Set(Vec::new()) } else { Reply::Array(subcommands.collect()) },
    ])
}

fn key_flags(keys: &KeySpec) -> Reply {
    words(keys.flags.iter().copied())
}

fn describe_keys(keys: &KeySpec) -> Reply {
    let number = |name: &'static str, value: i32| (Reply::text(name), Reply::Integer(i64::from(value)));
    let typed = |kind: &'static str, spec| {
        Reply::Map(vec![(Reply::text("type"), Reply::text(kind)), (Reply::text("spec"), Reply::Map(spec))])
    };
    let last = if keys.last < 0 { keys.last } else { keys.last - keys.first };
    let range = vec![number("lastkey", last), number("keystep", keys.step), number("limit", 0)];
    Reply::Map(vec![
        (Reply::text("flags"), key_flags(keys)),
        (Reply::text("begin_search"), typed("index", vec![number("index", keys.first)])),
        (Reply::text("find_keys"), typed("range", range)),
    ])
}

/// A command by its full name: `get`, `client|setname`.
fn named(name: &[u8]) -> Option<(&'static Command, Option<&'static str>)> {
    match name.iter().position(|byte| *byte == b'|') {
        None => find(name).map(|command| (command, None)),
        Some(bar) => {
            let container = find(&name[..bar])?;
            container.subcommand(&name[bar + 1..]).map(|sub| (sub, Some(container.name)))
        }
    }
}

fn info(_: &mut Context<'_>, args: Args<'_>) -> Outcome {
    if args.len() == 2 {
        return Ok(Reply::Array(all().map(|command| describe(command, None)).collect()));
    }
    check_number(args.len())?;
    let one = |name| named(name).map_or(Reply::Null, |(command, container)| describe(command, container));
    Ok(Reply::Array(args.iter().skip(2).map(one).collect()))
}

fn list(_: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (Some(by), Some(kind), Some(value), 5) = (args.get(2), args.get(3), args.get(4), args.len()) else {
        return match args.len() {
            2 => Ok(name_list(|_| true)),
            _ => Err(CommandError::text("ERR syntax error").into()),
        };
    };
    match () {
        () if !is(by, "FILTERBY") => Err(CommandError::text("ERR syntax error").into()),
        // No command here comes from a module.
        () if is(kind, "MODULE") => Ok(Reply::Array(Vec::new())),
        () if is(kind, "ACLCAT") => Ok(name_list(|command| {
            command
                .categories()
                .iter()
                .any(|category| category.trim_start_matches('@').as_bytes().eq_ignore_ascii_case(value))
        })),
        () if is(kind, "PATTERN") => {
            check_pattern(value)?;
            Ok(name_list(|command| glob::matches_ignoring_case(value, command.name.as_bytes())))
        }
        () => Err(CommandError::text("ERR syntax error").into()),
    }
}

fn name_list(takes: impl Fn(&Command) -> bool) -> Reply {
    Reply::Array(all().filter(|command| takes(command)).map(|command| Reply::text(command.name)).collect())
}

fn docs(_: &mut Context<'_>, args: Args<'_>) -> Outcome {
    check_number(args.len())?;
    let document = |(command, container)| (Reply::text(full_name(command, container)), document(command));
    Ok(Reply::Map(match args.len() {
        2 => all().map(|command| document((command, None))).collect(),
        _ => args.iter().skip(2).filter_map(named).map(document).collect(),
    }))
}

fn document(command: &'static Command) -> Reply {
    let mut fields = vec![
        (Reply::text("summary"), Reply::text(command.summary)),
        (Reply::text("since"), Reply::text(command.since)),
        (Reply::text("group"), Reply::text(command.group.name())),
        (Reply::text("complexity"), Reply::text(command.complexity)),
    ];
    if !command.arguments.is_empty() {
        fields.push((Reply::text("arguments"), document_arguments(command.arguments, &mut 0, command.keys.len())));
    }
    if !command.subcommands.is_empty() {
        let subs = command.subcommands.iter();
        let pairs = subs.map(|sub| (Reply::text(full_name(sub, Some(command.name))), document(sub)));
        fields.push((Reply::text("subcommands"), Reply::Map(pairs.collect())));
    }
    Reply::Map(fields)
}

/// `keys` counts the arguments that are keys: each belongs to a specification of its own, as long as there are any.
fn document_arguments(arguments: &'static [Argument], keys: &mut usize, specs: usize) -> Reply {
    Reply::Array(arguments.iter().map(|argument| document_argument(argument, keys, specs)).collect())
}

fn document_argument(argument: &'static Argument, keys: &mut usize, specs: usize) -> Reply {
    let mut fields = vec![
        (Reply::text("name"), Reply::text(argument.name)),
        (Reply::text("type"), Reply::text(argument.kind.name())),
    ];
    if argument.kind.parts().is_empty() && !matches!(argument.kind, ArgumentKind::PureToken) {
        fields.push((Reply::text("display_text"), Reply::text(argument.name)));
    }
    if matches!(argument.kind, ArgumentKind::Key) {
        let spec = (*keys).min(specs.saturating_sub(1));
        fields.push((Reply::text("key_spec_index"), Reply::Integer(spec as i64)));
        *keys += 1;
    }
    if let Some(token) = argument.token {
        fields.push((Reply::text("token"), Reply::text(token)));
    }
    if argument.optional || argument.multiple {
        fields.push((Reply::text("flags"), words(argument.flags())));
    }
    if !argument.kind.parts().is_empty() {
        fields.push((Reply::text("arguments"), document_arguments(argument.kind.parts(), keys, specs)));
    }
    Reply::Map(fields)
}

/// The keys of the request that stands behind `COMMAND GETKEYS`.
fn keys_of<'a>(args: Args<'a>) -> Result<Vec<(&'a [u8], &'static KeySpec)>, CommandError> {
    let request = args.slice_from(2);
    let command = find(&request[0]).ok_or(CommandError::text("ERR Invalid command specified"))?;
    let (command, _) = resolve(command, request).map_err(|_| CommandError::text("ERR Invalid command specified"))?;
    if !command.takes(request.len()) {
        return Err(CommandError::text("ERR Invalid number of arguments specified for command"));
    }
    if command.keys.is_empty() {
        return Err(CommandError::text("ERR The command has no key arguments"));
    }
    Ok(keys_by_spec(command, request).collect())
}

fn keys_by_spec<'a>(
    command: &'static Command,
    request: Args<'a>,
) -> impl Iterator<Item = (&'a [u8], &'static KeySpec)> {
    // A last word FORCE of such a command is no key, if it has a source besides.
    let forced =
        command.flags.has(Flags::MOVABLE_KEYS) && request.len() > 3 && is(&request[request.len() - 1], "FORCE");
    let request = request.range(0, request.len() - usize::from(forced));
    let of = move |spec: &'static KeySpec| {
        let last = if spec.last < 0 { request.len() as i32 + spec.last } else { spec.last };
        let places = (spec.first..=last).step_by(spec.step as usize);
        places.filter_map(move |place| request.get(place as usize)).map(move |key| (key, spec))
    };
    command.keys.iter().flat_map(of)
}

/// The keys of a request by a client that uses database `db`, each with its own database.
pub(super) fn keys_of_request<'a>(
    command: &'static Command,
    request: Args<'a>,
    db: usize,
) -> impl Iterator<Item = (usize, &'a [u8])> {
    let here = keys_by_spec(command, request).map(move |(key, _)| (db, key));
    here.chain(super::moving::keys_elsewhere(command, request))
}
