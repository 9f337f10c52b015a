//! The command line: `seendb [FILE] [--directive value …]`.
//!
//! Every directive of the table is an option of the same name, with the words that it takes in a file; what is given
//! here counts over the file. `--name value` and `--name=value` are the same. A directive of several words takes all
//! that follow up to the next `--option`, so FILE comes first: `seendb my.conf --bind 127.0.0.1 -::1 --port 7000`.
//! Several words may also be given as one: `--bind "127.0.0.1 ::1"`.
//!
//! `clap` writes the help and finds mistyped options. It cannot by itself tell the address `-::1` from an option, so
//! `attached` first ties each word to its option as `--name=word`.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use clap::error::{ContextKind, ErrorKind};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

use super::directive::{DIRECTIVES, Directive, Id, Kind, find};
use super::environment::Environment;
use super::file::{self, ConfigError, Mistakes};
use super::settings::Settings;
use super::value::{Value, printable};

/// Name of the positional argument.
const FILE: &str = "FILE";

/// What the command line and the files that it names come to.
#[derive(Debug)]
pub struct Launch {
    /// Defaults, file and command line together.
    pub settings: Settings,
    /// The config file's absolute path; `None` if there is none or it came from standard input.
    pub file: Option<PathBuf>,
}

/// The program ends here: print the text, end with the status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    /// For standard output if the status is 0, for standard error otherwise; ends with a line feed.
    pub text: String,
    /// 0 after `--help` and `--version`, 1 after a mistake.
    pub status: u8,
}

/// What every line begins with that says why the server does not start.
const LEAD: &str = concat!(env!("CARGO_PKG_NAME"), ": ");

impl From<Mistakes> for Exit {
    fn from(mistakes: Mistakes) -> Self {
        Self { text: mistakes.lines().map(|line| format!("{LEAD}{line}\n")).collect(), status: 1 }
    }
}

impl From<clap::Error> for Exit {
    fn from(mut error: clap::Error) -> Self {
        if error.kind() == ErrorKind::UnknownArgument {
            // It would advise to take the option for a file.
            error.remove(ContextKind::Suggested);
        }
        let text = error.render().to_string();
        let (lead, text) = text.strip_prefix("error: ").map_or(("", text.as_str()), |rest| (LEAD, rest));
        Self { text: format!("{lead}{}\n", text.trim_end()), status: u8::from(error.use_stderr()) }
    }
}

/// Reads the command line (`args` begins with the program's name) and the file that it names.
///
/// # Errors
/// [`Exit`] for `--help`, `--version` and any mistake, in a file too.
pub fn launch(args: impl IntoIterator<Item = OsString>, environment: Environment) -> Result<Launch, Exit> {
    let given = command().try_get_matches_from(attached(args))?;
    let mut mistakes = Mistakes::default();
    let options = options(&given, &mut mistakes);
    let file = given.get_one::<OsString>(FILE).map(PathBuf::from);
    let mut values = file.as_deref().map_or(Ok(Vec::new()), file::load).unwrap_or_else(|found| {
        mistakes.append(found);
        Vec::new()
    });
    values.extend(options);
    let values = mistakes.unless_any(values)?;
    let file = file.filter(|path| path.as_os_str() != "-").map(|path| environment.folder.join(path));
    Ok(Launch { settings: Settings::new(environment, values), file })
}

/// Whether a directive takes any number of words.
const fn takes_many(directive: &Directive) -> bool {
    matches!(directive.kind, Kind::Addresses | Kind::OutputLimits | Kind::SavePoints)
}

fn command() -> Command {
    let file = Arg::new(FILE)
        .value_parser(value_parser!(OsString))
        .help("Config file in the syntax of redis.conf; - for standard input");
    Command::new(env!("CARGO_PKG_NAME"))
        .version(env!("CARGO_PKG_VERSION"))
        .about("An in-memory server of probabilistic filters that speaks the Redis protocol")
        .override_usage(concat!(env!("CARGO_PKG_NAME"), " [FILE] [--DIRECTIVE VALUE]..."))
        .after_help(
            "Options count over the file. A directive of several words takes all words up to\n\
             the next --option; FILE comes before the options.\n\
             A first word that names a tool runs that instead; 'seendb help' lists them.",
        )
        .next_line_help(true)
        .arg(file)
        .args(DIRECTIVES.iter().map(option))
}

/// The help fits a terminal of so many columns.
const HELP_COLUMNS: usize = 80;
/// What an option means stands on the lines below it, after so many blanks; `clap` sees to that.
const HELP_INDENT: usize = 10;
/// What stands around an option's name and the form of its value.
const OPTION_FRAME: usize = "      -- <>".len();

fn option(directive: &Directive) -> Arg {
    let (value, words) = match directive.kind {
        Kind::Choice([""]) => ("\"\"".to_string(), None),
        Kind::Choice(words) => {
            let value = words.join("|");
            match OPTION_FRAME + directive.name.len() + value.len() {
                ..=HELP_COLUMNS => (value, None),
                _ => (directive.value_label().to_string(), Some(words.join(", "))),
            }
        }
        _ if takes_many(directive) => (format!("{}...", directive.value_label()), None),
        _ => (directive.value_label().to_string(), None),
    };
    let mut help = directive.summary.to_string();
    if let Some(words) = words {
        help = format!("{help}: {words}");
    }
    let default = match directive.default_label() {
        "" => None,
        label => Some(format!("[default: {label}]")),
    };
    Arg::new(directive.name)
        .long(directive.name)
        .value_name(value)
        .value_parser(value_parser!(OsString))
        .action(ArgAction::Append)
        .help_heading("Settings")
        .help(wrapped(help.split(' ').chain(default.as_deref()), HELP_COLUMNS - HELP_INDENT))
}

/// The words in lines of at most so many characters.
fn wrapped<'a>(words: impl Iterator<Item = &'a str>, columns: usize) -> String {
    let mut lines: Vec<String> = Vec::new();
    for word in words {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= columns => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_string()),
        }
    }
    lines.join("\n")
}

/// Ties words to the options that take them: `--port 7000` becomes `--port=7000`, `--bind A -B` becomes `--bind=A
/// --bind=-B`. A word that begins with `--` is an option, never a value; what follows a lone `--` is left alone.
fn attached(args: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut args = args.into_iter().peekable();
    let mut out = Vec::new();
    while let Some(arg) = args.next() {
        if arg == "--" {
            out.push(arg);
            out.extend(args);
            break;
        }
        let Some(directive) = arg.as_bytes().strip_prefix(b"--").and_then(find) else {
            out.push(arg);
            continue;
        };
        let before = out.len();
        while takes_many(directive) || out.len() == before {
            let Some(word) = args.next_if(|word| !word.as_bytes().starts_with(b"--")) else { break };
            out.push(OsString::from_vec([b"--", directive.name.as_bytes(), b"=", word.as_bytes()].concat()));
        }
        if out.len() == before {
            // As in Redis, '--save' alone means none.
            let mut arg = arg;
            if directive.kind == Kind::SavePoints {
                arg.push("=");
            }
            out.push(arg);
        }
    }
    out
}

/// The values of the options, checked. Of a single value given twice the later counts, as in a file; the words of an
/// option of many are put together.
fn options(given: &ArgMatches, mistakes: &mut Mistakes) -> Vec<(Id, Value)> {
    let mut values = Vec::new();
    for directive in &DIRECTIVES {
        let Some(words) = given.get_many::<OsString>(directive.name) else { continue };
        let words: Vec<&[u8]> = words.map(|word| word.as_bytes()).collect();
        let at_once = if takes_many(directive) { words.len() } else { 1 };
        for words in words.chunks(at_once) {
            match directive.parse(words) {
                Ok(value) => values.push((directive.id, value)),
                Err(error) => mistakes.add(ConfigError {
                    file: "command line".to_string(),
                    line: 0,
                    text: shown(directive, words),
                    reason: error.to_string(),
                }),
            }
        }
    }
    values
}

/// An option as it was given, a password hidden.
fn shown(directive: &Directive, words: &[&[u8]]) -> String {
    match words {
        _ if directive.is_secret() => format!("--{} (hidden)", directive.name),
        words => format!("--{} {}", directive.name, printable(&words.join(&b' '))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment() -> Environment {
        Environment {
            cores: 3,
            memory: Some(1000 << 20),
            memory_limit: Some(2000 << 20),
            folder: PathBuf::from("/start"),
        }
    }

    fn run(args: &[&str]) -> Result<Launch, Exit> {
        launch(["seendb"].iter().chain(args).map(OsString::from), environment())
    }

    fn settings(args: &[&str]) -> Settings {
        run(args).unwrap_or_else(|exit| panic!("{args:?}: {}", exit.text)).settings
    }

    fn refused(args: &[&str]) -> String {
        let exit = run(args).expect_err("a mistake");
        assert_eq!(exit.status, 1, "{args:?}");
        assert!(exit.text.starts_with("seendb: ") && exit.text.ends_with('\n'), "{}", exit.text);
        exit.text
    }

    #[test]
    fn nothing_given_means_the_defaults() {
        let launch = run(&[]).unwrap();
        assert_eq!((launch.settings.port(), launch.settings.threads()), (6379, 3));
        assert_eq!(launch.file, None);
    }

    #[test]
    fn a_value_may_follow_or_be_attached() {
        assert_eq!(settings(&["--port", "7000"]).port(), 7000);
        assert_eq!(settings(&["--port=7000"]).port(), 7000);
        assert_eq!(settings(&["--port", "7000", "--port", "7001"]).port(), 7001);
        assert_eq!(&settings(&["--requirepass", "-secret"]).requirepass()[..], b"-secret");
        assert_eq!(&settings(&["--requirepass=--secret"]).requirepass()[..], b"--secret");
        assert_eq!(&settings(&["--requirepass", ""]).requirepass()[..], b"");
    }

    #[test]
    fn several_words_go_to_the_option_before_them() {
        for args in [
            &["--bind", "10.0.0.1", "-::1", "--port", "7000"][..],
            &["--bind", "10.0.0.1", "--bind", "-::1", "--port=7000"],
            &["--port", "7000", "--bind", "10.0.0.1 -::1"],
            &["--port", "7000", "--bind=10.0.0.1 -::1"],
        ] {
            let settings = settings(args);
            assert_eq!(settings.value_text(Id::Bind), b"10.0.0.1 -::1", "{args:?}");
            assert_eq!(settings.port(), 7000, "{args:?}");
        }
        let limits = settings(&["--client-output-buffer-limit", "normal", "1mb", "0", "0", "--timeout", "5"]);
        assert_eq!(limits.value_text(Id::ClientOutputBufferLimit), b"normal 1048576 0 0 pubsub 33554432 8388608 60");
        assert_eq!(limits.timeout(), 5);
    }

    #[test]
    fn save_points_in_all_forms() {
        for (args, points) in [
            (&["--save"][..], ""),
            (&["--save", "--timeout", "5"], ""),
            (&["--save", "", "--timeout", "5"], ""),
            (&["--save", "900", "1"], "900 1"),
            (&["--save", "900", "1", "300", "10"], "900 1 300 10"),
            (&["--save", "900 1", "--save", "300 10"], "900 1 300 10"),
            (&["--save=60 5"], "60 5"),
            (&["--timeout", "5"], "3600 1 300 100 60 10000"),
        ] {
            assert_eq!(settings(args).value_text(Id::Save), points.as_bytes(), "{args:?}");
        }
        refused(&["--save", "900"]);
        refused(&["--save", "0 1"]);
    }

    #[test]
    fn options_count_over_the_file_and_the_file_over_the_default() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("seen.conf");
        std::fs::write(&path, "port 7001\ntimeout 9\nbind 10.0.0.1\n").unwrap();
        let path = path.to_str().unwrap();
        let launch = run(&[path, "--port", "7002"]).unwrap();
        assert_eq!(
            (launch.settings.port(), launch.settings.timeout(), launch.settings.maxclients()),
            (7002, 9, 10_000)
        );
        assert_eq!(launch.file, Some(PathBuf::from(path)));
    }

    #[test]
    fn mistakes_end_with_status_1_and_say_what_is_wrong() {
        assert_eq!(
            refused(&["--port", "seven"]),
            "seendb: command line: '--port seven': argument couldn't be parsed into an integer\n"
        );
        assert_eq!(
            refused(&["--timeout", "-1"]),
            "seendb: command line: '--timeout -1': argument must be between 0 and 2147483647 inclusive\n"
        );
        assert!(refused(&["--portt", "7000"]).contains("'--portt'"));
        assert!(refused(&["--port"]).contains("--port"));
        assert!(refused(&["--port", "--timeout", "3"]).contains("--port"));
        assert!(refused(&["a.conf", "b.conf"]).contains("b.conf"));
        assert!(refused(&["/nonexistent/a.conf"]).starts_with("seendb: /nonexistent/a.conf: cannot be read: "));
        let long = format!("--requirepass={}", "x".repeat(20_000));
        let text = refused(&[&long]);
        assert_eq!(text, "seendb: command line: '--requirepass (hidden)': argument must be at most 16384 bytes long\n");
    }

    #[test]
    fn all_mistakes_are_told_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.conf");
        std::fs::write(&path, "replicaof host 6379\nport 7000\nmaxclient 5\n").unwrap();
        let path = path.to_str().unwrap();
        assert_eq!(
            refused(&[path, "--timeout", "x"]),
            format!(
                "seendb: command line: '--timeout x': argument couldn't be parsed into an integer\n\
                 seendb: {path}, line 1: 'replicaof host 6379': unknown directive 'replicaof'\n\
                 seendb: {path}, line 3: 'maxclient 5': unknown directive 'maxclient', did you mean 'maxclients'?\n"
            )
        );
    }

    #[test]
    fn version_and_help_are_answers() {
        let version = run(&["--version"]).expect_err("an answer");
        assert_eq!(version, Exit { text: format!("seendb {}\n", env!("CARGO_PKG_VERSION")), status: 0 });
        let help = run(&["--help"]).expect_err("an answer");
        assert!(help.status == 0 && help.text.ends_with("lists them.\n"));
        let text = help.text.split_whitespace().collect::<Vec<_>>().join(" ");
        for directive in &DIRECTIVES {
            assert!(text.contains(&format!("--{} <", directive.name)), "{}", directive.name);
            assert!(text.contains(directive.summary), "{}", directive.name);
            if let Kind::Choice(words) = directive.kind {
                assert!(text.contains(&words.join("|")) || text.contains(&words.join(", ")), "{}", directive.name);
            }
        }
        for line in help.text.lines() {
            assert!(line.chars().count() <= HELP_COLUMNS, "{line}");
        }
        assert!(text.contains("[default: 10000]") && text.contains("[default: number of cores]"));
    }

    #[test]
    fn clap_finds_the_definitions_sound() {
        command().debug_assert();
    }
}
