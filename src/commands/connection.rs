//! Commands on the client's own connection.

use subtle::ConstantTimeEq;

use super::context::Context;
use super::dispatch::Outcome;
use super::error::{CommandError, quoted};
use super::form::help;
use super::table::{Argument, ArgumentKind, Command, Flags, Group};
use super::words::{Words, is, small_integer};
use crate::keyspace::DATABASES;
use crate::resp::{Args, Protocol, Reply, parse_integer};

/// The level of Redis that clients may expect of this server.
pub const REDIS_VERSION: &str = "7.4.0";

/// The one user there is.
const USER: &[u8] = b"default";

const FREE: Flags = Flags::NOSCRIPT.with(Flags::LOADING).with(Flags::STALE).with(Flags::FAST);
const ROW: Command = Command { group: Group::Connection, flags: FREE, since: "1.0.0", ..Command::DEFAULT };
const PASSWORD: Argument = Argument::new("password", ArgumentKind::String);
const NAME: Argument = Argument::new("clientname", ArgumentKind::String);
const USERNAME: Argument = Argument::new("username", ArgumentKind::String);

/// The rows of this family.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "ping",
        arity: -1,
        flags: Flags::FAST,
        summary: "Answers PONG, or the message.",
        arguments: &[Argument::new("message", ArgumentKind::String).optional()],
        handler: ping,
        ..ROW
    },
    Command {
        name: "echo",
        arity: 2,
        flags: Flags::LOADING.with(Flags::STALE).with(Flags::FAST),
        summary: "Answers the message.",
        arguments: &[Argument::new("message", ArgumentKind::String)],
        handler: |_, args| Ok(Reply::bulk(&args[1])),
        ..ROW
    },
    Command {
        name: "select",
        arity: 2,
        flags: Flags::LOADING.with(Flags::STALE).with(Flags::FAST),
        summary: "Chooses the database.",
        arguments: &[Argument::new("index", ArgumentKind::Integer)],
        handler: select,
        ..ROW
    },
    Command {
        name: "quit",
        arity: -1,
        flags: FREE.with(Flags::NO_AUTH).with(Flags::AT_ONCE),
        summary: "Ends the connection.",
        arguments: &[Argument::new("ignored", ArgumentKind::String).optional().multiple()],
        handler: |context, _| {
            context.session.closing = true;
            Ok(Reply::Ok)
        },
        ..ROW
    },
    Command {
        name: "reset",
        arity: 1,
        flags: FREE.with(Flags::NO_AUTH).with(Flags::AT_ONCE),
        summary: "Brings the connection back to the state of a new one.",
        since: "6.2.0",
        handler: |context, _| {
            context.session.reset(context.settings.requirepass().is_empty());
            Ok(Reply::simple("RESET"))
        },
        ..ROW
    },
    Command {
        name: "auth",
        arity: -2,
        flags: FREE.with(Flags::NO_AUTH),
        summary: "Gives the password.",
        arguments: &[USERNAME.optional(), PASSWORD],
        handler: auth,
        ..ROW
    },
    Command {
        name: "hello",
        arity: -1,
        flags: FREE.with(Flags::NO_AUTH),
        summary: "Chooses the protocol, and tells of the server.",
        since: "6.0.0",
        arguments: &[Argument::new(
            "arguments",
            ArgumentKind::Block(&[
                Argument::new("protover", ArgumentKind::Integer),
                Argument::new("auth", ArgumentKind::Block(&[USERNAME, PASSWORD])).token("AUTH").optional(),
                NAME.token("SETNAME").optional(),
            ]),
        )
        .optional()],
        handler: hello,
        ..ROW
    },
    Command {
        name: "client",
        arity: -2,
        flags: Flags::NONE,
        summary: "A container for commands on connections.",
        complexity: "Depends on the subcommand",
        since: "2.4.0",
        arguments: &[Argument::new("subcommand", ArgumentKind::String).multiple()],
        subcommands: &[
            Command {
                name: "id",
                arity: 2,
                summary: "Gives the number of the connection.",
                since: "5.0.0",
                handler: |context, _| Ok(Reply::Integer(context.session.id as i64)),
                ..ROW
            },
            Command {
                name: "getname",
                arity: 2,
                summary: "Gives the name of the connection.",
                since: "2.6.9",
                handler: |context, _| match &context.session.name[..] {
                    [] => Ok(Reply::Null),
                    name => Ok(Reply::bulk(name)),
                },
                ..ROW
            },
            Command {
                name: "setname",
                arity: 3,
                summary: "Gives the connection a name.",
                since: "2.6.9",
                arguments: &[NAME],
                handler: set_name,
                ..ROW
            },
            Command {
                name: "setinfo",
                arity: 4,
                summary: "Tells the server about the client's library.",
                since: "7.2.0",
                arguments: &[Argument::new(
                    "attr",
                    ArgumentKind::OneOf(&[
                        Argument::new("libname", ArgumentKind::String).token("LIB-NAME"),
                        Argument::new("libver", ArgumentKind::String).token("LIB-VER"),
                    ]),
                )],
                handler: set_info,
                ..ROW
            },
            Command {
                name: "help",
                arity: 2,
                summary: "Lists the subcommands.",
                since: "5.0.0",
                handler: |_, _| Ok(help("client")),
                ..ROW
            },
        ],
        ..ROW
    },
];

fn ping(_: &mut Context<'_>, args: Args<'_>) -> Outcome {
    match args.len() {
        1 => Ok(Reply::simple("PONG")),
        2 => Ok(Reply::bulk(&args[1])),
        _ => Err(CommandError::WrongArity("ping".into()).into()),
    }
}

fn select(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let index = small_integer(&args[1])?;
    let index = usize::try_from(index).ok().filter(|index| *index < DATABASES);
    context.session.db = index.ok_or(CommandError::text("ERR DB index is out of range"))?;
    Ok(Reply::Ok)
}

const WRONG_PASSWORD: CommandError =
    CommandError::text("WRONGPASS invalid username-password pair or user is disabled.");

fn auth(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (user, password) = match args.len() {
        2 if context.settings.requirepass().is_empty() => {
            const NO_PASSWORD: &str = "ERR AUTH <password> called without any password configured for the default user. \
                                       Are you sure your configuration is correct?";
            return Err(CommandError::text(NO_PASSWORD).into());
        }
        2 => (USER, &args[1]),
        3 => (&args[1], &args[2]),
        _ => return Err(CommandError::text("ERR syntax error").into()),
    };
    log_in(context, user, password)?;
    Ok(Reply::Ok)
}

/// Without a password set, any is right.
fn log_in(context: &mut Context<'_>, user: &[u8], password: &[u8]) -> Result<(), CommandError> {
    let expected = context.settings.requirepass();
    let right = expected.is_empty() || bool::from(expected.ct_eq(password));
    if user != USER || !right {
        return Err(WRONG_PASSWORD);
    }
    context.session.authenticated = true;
    Ok(())
}

fn hello(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let protocol = match args.get(1).map(parse_integer) {
        None => context.session.protocol,
        Some(None) => {
            return Err(CommandError::text("ERR Protocol version is not an integer or out of range").into());
        }
        Some(Some(2)) => Protocol::Resp2,
        Some(Some(3)) => Protocol::Resp3,
        Some(Some(_)) => return Err(CommandError::text("NOPROTO unsupported protocol version").into()),
    };
    let (mut login, mut name) = (None, None);
    let mut words = Words::from(args, 2);
    while let Some(word) = words.next() {
        let bad = || CommandError::Text(format!("ERR Syntax error in HELLO option '{}'", quoted(word)).into());
        if is(word, "AUTH") {
            login = Some((words.next().ok_or_else(bad)?, words.next().ok_or_else(bad)?));
        } else if is(word, "SETNAME") {
            name = Some(words.next().ok_or_else(bad)?);
        } else {
            return Err(bad().into());
        }
    }
    if let Some(name) = name {
        check_text(name, "Client names")?;
    }
    if let Some((user, password)) = login {
        log_in(context, user, password)?;
    }
    if !context.session.authenticated {
        const FIRST: &str = "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO \
                             <proto> AUTH <user> <pass> option can be used to authenticate the client and select the \
                             RESP protocol version at the same time";
        return Err(CommandError::text(FIRST).into());
    }
    if let Some(name) = name {
        context.session.name = name.into();
    }
    context.session.protocol = protocol;
    Ok(greeting(context))
}

/// Exactly the seven fields that clients know.
fn greeting(context: &Context<'_>) -> Reply {
    let version = match context.session.protocol {
        Protocol::Resp2 => 2,
        Protocol::Resp3 => 3,
    };
    Reply::Map(vec![
        (Reply::text("server"), Reply::text("redis")),
        (Reply::text("version"), Reply::text(REDIS_VERSION)),
        (Reply::text("proto"), Reply::Integer(version)),
        (Reply::text("id"), Reply::Integer(context.session.id as i64)),
        (Reply::text("mode"), Reply::text("standalone")),
        (Reply::text("role"), Reply::text("master")),
        (Reply::text("modules"), Reply::Array(Vec::new())),
    ])
}

/// The longest name of a client, or of its library.
const TEXT_BYTES: usize = 4096;

/// Names that `CLIENT LIST` could not show are refused.
fn check_text(text: &[u8], what: &str) -> Result<(), CommandError> {
    if text.len() > TEXT_BYTES {
        return Err(CommandError::Text(format!("ERR {what} cannot be longer than {TEXT_BYTES} bytes.").into()));
    }
    if text.iter().all(u8::is_ascii_graphic) {
        return Ok(());
    }
    Err(CommandError::Text(format!("ERR {what} cannot contain spaces, newlines or special characters.").into()))
}

fn set_name(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    check_text(&args[2], "Client names")?;
    context.session.name = args[2].into();
    Ok(Reply::Ok)
}

fn set_info(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (option, value) = (&args[2], &args[3]);
    let (field, what) = if is(option, "LIB-NAME") {
        (&mut context.session.library_name, "lib-name")
    } else if is(option, "LIB-VER") {
        (&mut context.session.library_version, "lib-ver")
    } else {
        return Err(CommandError::Text(format!("ERR Unrecognized option '{}'", quoted(option)).into()).into());
    };
    check_text(value, what)?;
    *field = value.into();
    Ok(Reply::Ok)
}
