//! The command table: one row a command, the only place where a command's name is written.
//!
//! Dispatch, arity errors, `COMMAND` and its subcommands, ACL categories and the reference page in `docs/` all read these
//! rows. A family's rows stand beside its handlers; [`FAMILIES`] lists them.

use std::sync::LazyLock;

use smallvec::SmallVec;

use super::context::Context;
use super::dispatch::Outcome;
use super::error::CommandError;
use crate::resp::Args;

/// One command, or one subcommand of a container.
pub struct Command {
    /// Lower case; that of a subcommand is its own word alone.
    pub name: &'static str,
    /// Number of words, the command's own name (and its container's) included; negative: at least so many.
    pub arity: i32,
    /// What the command does to the keyspace and what it needs.
    pub flags: Flags,
    /// Where its keys stand.
    pub keys: &'static [KeySpec],
    /// The group of `COMMAND DOCS`, and the ACL category that comes with it.
    pub group: Group,
    /// One sentence.
    pub summary: &'static str,
    /// Cost in the size of the request and of the value.
    pub complexity: &'static str,
    /// The first release that has it, or RedisBloom's or Redis' release where it comes from there.
    pub since: &'static str,
    /// ACL categories besides those that follow from the flags and the group.
    pub more_categories: &'static [&'static str],
    /// The words after the name.
    pub arguments: &'static [Argument],
    /// Does the work; a container's own is never called.
    pub handler: Handler,
    /// Answers several requests in a row for one key, see [`Run`].
    pub run: Option<Run>,
    /// A container's subcommands.
    pub subcommands: &'static [Command],
}

/// Does a command's work: all words of the request, the name first.
pub type Handler = for<'a> fn(&mut Context<'_>, Args<'a>) -> Outcome;

/// The most requests that one call of a [`Run`] answers.
pub const RUN_LENGTH: usize = 64;

/// Answers pipelined requests *name key item* of one command on one key together, under one lock and with the memory
/// accesses of all items under way at once. Gives the answers of the first of them, as many as went the usual way; an empty
/// list if not even the first did. The rest is left to the handler.
pub type Run = fn(&mut Context<'_>, key: &[u8], items: &[&[u8]]) -> RunAnswers;

/// What a [`Run`] gives.
#[derive(Default)]
pub struct RunAnswers {
    /// Of each request; of a refused one `false`.
    pub bools: SmallVec<[bool; RUN_LENGTH]>,
    /// The requests that were refused, in their order.
    pub refused: Vec<(usize, CommandError)>,
}

impl RunAnswers {
    /// That of the next request.
    pub fn push(&mut self, answer: Result<bool, CommandError>) {
        self.bools.push(*answer.as_ref().unwrap_or(&false));
        if let Err(error) = answer {
            self.refused.push((self.bools.len() - 1, error));
        }
    }
}

impl From<SmallVec<[bool; RUN_LENGTH]>> for RunAnswers {
    fn from(bools: SmallVec<[bool; RUN_LENGTH]>) -> Self {
        Self { bools, refused: Vec::new() }
    }
}

/// A set of flags, as `COMMAND` shows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flags(u32);

impl Flags {
    /// No flag.
    pub const NONE: Self = Self(0);
    /// Changes keys.
    pub const WRITE: Self = Self(1);
    /// Only reads keys.
    pub const READONLY: Self = Self(1 << 1);
    /// Refused at the memory limit.
    pub const DENYOOM: Self = Self(1 << 2);
    /// For administrators.
    pub const ADMIN: Self = Self(1 << 3);
    /// Not for scripts.
    pub const NOSCRIPT: Self = Self(1 << 4);
    /// Allowed while data are being loaded.
    pub const LOADING: Self = Self(1 << 5);
    /// Allowed on a replica that has lost its primary.
    pub const STALE: Self = Self(1 << 6);
    /// Costs little whatever the request.
    pub const FAST: Self = Self(1 << 7);
    /// Allowed before AUTH.
    pub const NO_AUTH: Self = Self(1 << 8);
    /// Not allowed between MULTI and EXEC.
    pub const NO_MULTI: Self = Self(1 << 9);
    /// Which words are keys is not told by their places alone.
    pub const MOVABLE_KEYS: Self = Self(1 << 13);
    /// Done at once between MULTI and EXEC; not shown.
    pub const AT_ONCE: Self = Self(1 << 12);
    /// Goes over whole databases; not shown.
    pub const ALL_KEYS: Self = Self(1 << 10);
    /// Copies whole values, which takes long for large ones; not shown.
    pub const COPIES_VALUES: Self = Self(1 << 11);

    const NAMES: [(Self, &'static str); 11] = [
        (Self::WRITE, "write"),
        (Self::READONLY, "readonly"),
        (Self::DENYOOM, "denyoom"),
        (Self::ADMIN, "admin"),
        (Self::NOSCRIPT, "noscript"),
        (Self::LOADING, "loading"),
        (Self::STALE, "stale"),
        (Self::FAST, "fast"),
        (Self::NO_AUTH, "no_auth"),
        (Self::NO_MULTI, "no_multi"),
        (Self::MOVABLE_KEYS, "movablekeys"),
    ];

    /// Both sets together.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all flags of `other` are in this set.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The words, in the table's order.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMES.into_iter().filter(move |(flag, _)| self.has(*flag)).map(|(_, name)| name)
    }
}

/// Where keys stand among the words of a request, and what is done to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeySpec {
    /// Place of the first key.
    pub first: i32,
    /// Place of the last; negative: from the end.
    pub last: i32,
    /// From one key to the next.
    pub step: i32,
    /// Words such as `RO`, `RW`, `access`, `insert`, as Redis names them.
    pub flags: &'static [&'static str],
}

/// Groups of `COMMAND DOCS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// `BF.*`
    Bloom,
    /// `CHAIN.*`
    Chain,
    /// `CBF.*`
    Counting,
    /// `DLCBF.*`
    Dleft,
    /// Commands on keys of any type.
    Generic,
    /// Several commands in one step.
    Transactions,
    /// Commands on the client's own connection.
    Connection,
    /// Commands on the server.
    Server,
}

impl Group {
    /// The name in `COMMAND DOCS`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bloom => "bf",
            Self::Chain => "chain",
            Self::Counting => "cbf",
            Self::Dleft => "dlcbf",
            Self::Generic => "generic",
            Self::Transactions => "transactions",
            Self::Connection => "connection",
            Self::Server => "server",
        }
    }

    /// The heading of its part of the reference page.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Bloom => "Bloom filters",
            Self::Chain => "Rings that forget the oldest",
            Self::Counting => "Counting filters",
            Self::Dleft => "d-left counting filters",
            Self::Generic => "Keys",
            Self::Transactions => "Transactions",
            Self::Connection => "Connection",
            Self::Server => "Server",
        }
    }

    const fn category(self) -> Option<&'static str> {
        match self {
            Self::Bloom => Some("@bloom"),
            Self::Chain => Some("@chain"),
            Self::Counting => Some("@cbf"),
            Self::Dleft => Some("@dlcbf"),
            Self::Generic => Some("@keyspace"),
            Self::Transactions => Some("@transaction"),
            Self::Connection => Some("@connection"),
            Self::Server => None,
        }
    }
}

/// A word, or several, of a command's form.
#[derive(Clone, Copy, Debug)]
pub struct Argument {
    /// The name in the form, lower case.
    pub name: &'static str,
    /// What it is.
    pub kind: ArgumentKind,
    /// The word that stands before the value, or is all there is.
    pub token: Option<&'static str>,
    /// May be left out.
    pub optional: bool,
    /// May be repeated.
    pub multiple: bool,
}

/// What an argument is.
#[derive(Clone, Copy, Debug)]
pub enum ArgumentKind {
    /// A key.
    Key,
    /// Any bytes.
    String,
    /// An integer.
    Integer,
    /// A decimal number.
    Double,
    /// A glob.
    Pattern,
    /// Nothing but the token.
    PureToken,
    /// One of these.
    OneOf(&'static [Argument]),
    /// All of these.
    Block(&'static [Argument]),
}

impl ArgumentKind {
    /// The name in `COMMAND DOCS`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::String => "string",
            Self::Integer => "integer",
            Self::Double => "double",
            Self::Pattern => "pattern",
            Self::PureToken => "pure-token",
            Self::OneOf(_) => "oneof",
            Self::Block(_) => "block",
        }
    }

    /// What it is made of.
    #[must_use]
    pub const fn parts(self) -> &'static [Argument] {
        match self {
            Self::OneOf(parts) | Self::Block(parts) => parts,
            _ => &[],
        }
    }
}

impl Argument {
    /// An argument that must be there.
    #[must_use]
    pub const fn new(name: &'static str, kind: ArgumentKind) -> Self {
        Self { name, kind, token: None, optional: false, multiple: false }
    }

    /// The key.
    pub const KEY: Self = Self::new("key", ArgumentKind::Key);
    /// One item.
    pub const ITEM: Self = Self::new("item", ArgumentKind::String);
    /// Items.
    pub const ITEMS: Self = Self::ITEM.multiple();

    /// A word alone, which may be left out.
    #[must_use]
    pub const fn word(name: &'static str, token: &'static str) -> Self {
        Self::new(name, ArgumentKind::PureToken).token(token).optional()
    }

    /// With a word before it.
    #[must_use]
    pub const fn token(self, token: &'static str) -> Self {
        Self { token: Some(token), ..self }
    }

    /// That may be left out.
    #[must_use]
    pub const fn optional(self) -> Self {
        Self { optional: true, ..self }
    }

    /// That may be repeated.
    #[must_use]
    pub const fn multiple(self) -> Self {
        Self { multiple: true, ..self }
    }

    /// Its flags in `COMMAND DOCS`.
    pub fn flags(self) -> impl Iterator<Item = &'static str> {
        [(self.optional, "optional"), (self.multiple, "multiple")].into_iter().filter(|(set, _)| *set).map(|(_, n)| n)
    }
}

impl Command {
    /// A row with the defaults of most: no keys, no arguments.
    pub(super) const DEFAULT: Self = Self {
        name: "",
        arity: 0,
        flags: Flags::NONE,
        keys: &[],
        group: Group::Server,
        summary: "",
        more_categories: &[],
        complexity: "O(1)",
        since: "0.1.0",
        arguments: &[],
        handler: |_, _| unreachable!("a container's subcommand is called"),
        run: None,
        subcommands: &[],
    };

    /// Whether a request of so many words fits the arity.
    #[must_use]
    pub fn takes(&self, words: usize) -> bool {
        let least = self.arity.unsigned_abs() as usize;
        if self.arity < 0 { words >= least } else { words == least }
    }

    /// The ACL categories: by group, by flags, fast or slow.
    #[must_use]
    pub fn categories(&self) -> Vec<&'static str> {
        let by_flag = |flag, name| self.flags.has(flag).then_some(name);
        let mut categories: Vec<_> = [
            self.group.category(),
            by_flag(Flags::WRITE, "@write"),
            by_flag(Flags::READONLY, "@read"),
            by_flag(Flags::ADMIN, "@admin"),
            by_flag(Flags::ADMIN, "@dangerous"),
        ]
        .into_iter()
        .flatten()
        .collect();
        categories.extend(self.more_categories);
        categories.push(if self.flags.has(Flags::FAST) { "@fast" } else { "@slow" });
        categories
    }

    /// The subcommand of that name, in any letter case.
    #[must_use]
    pub fn subcommand(&self, name: &[u8]) -> Option<&'static Self> {
        self.subcommands.iter().find(|sub| sub.name.as_bytes().eq_ignore_ascii_case(name))
    }
}

/// The rows of all families.
pub static FAMILIES: [&[Command]; 12] = [
    super::persistence::COMMANDS,
    super::bloom::COMMANDS,
    super::chain::COMMANDS,
    super::counting::COMMANDS,
    super::dleft::COMMANDS,
    super::keys::COMMANDS,
    super::lives::COMMANDS,
    super::moving::COMMANDS,
    super::transactions::COMMANDS,
    super::connection::COMMANDS,
    super::server::COMMANDS,
    super::introspection::COMMANDS,
];

/// All commands, in the order of their families.
pub fn all() -> impl Iterator<Item = &'static Command> {
    FAMILIES.iter().flat_map(|family| family.iter())
}

const LONGEST_NAME: usize = 32;

static BY_NAME: LazyLock<std::collections::HashMap<&'static [u8], &'static Command, ahash::RandomState>> =
    LazyLock::new(|| all().map(|command| (command.name.as_bytes(), command)).collect());

/// The command of that name, in any letter case.
#[must_use]
pub fn find(name: &[u8]) -> Option<&'static Command> {
    let mut lower = [0; LONGEST_NAME];
    let lower = lower.get_mut(..name.len())?;
    lower.copy_from_slice(name);
    lower.make_ascii_lowercase();
    BY_NAME.get(&*lower).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn every() -> impl Iterator<Item = &'static Command> {
        all().flat_map(|command| std::iter::once(command).chain(command.subcommands))
    }

    #[test]
    fn every_row_has_every_field() {
        for command in every() {
            let name = command.name;
            assert!(!name.is_empty() && name.len() <= LONGEST_NAME, "{name}");
            assert_eq!(name, name.to_ascii_lowercase());
            assert!(command.arity != 0, "{name}: arity");
            assert!(command.summary.ends_with('.'), "{name}: summary");
            assert!(!command.complexity.is_empty() && !command.since.is_empty(), "{name}");
            assert!(!(command.flags.has(Flags::WRITE) && command.flags.has(Flags::READONLY)), "{name}: flags");
        }
    }

    #[test]
    fn names_are_found_in_any_case_and_are_unique() {
        let mut names: Vec<_> = all().map(|command| command.name).collect();
        for name in &names {
            assert_eq!(find(name.to_ascii_uppercase().as_bytes()).map(|c| c.name), Some(*name));
        }
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all().count());
        assert!(find(b"nosuch").is_none() && find(&[b'x'; 100]).is_none() && find(b"").is_none());
    }

    #[test]
    fn arity_counts_the_arguments_of_the_form() {
        for command in every().filter(|command| command.subcommands.is_empty()) {
            let fixed = command.arguments.iter().filter(|a| !a.optional).map(least_words).sum::<usize>();
            let own = command.name.split(' ').count() + usize::from(is_subcommand(command));
            assert_eq!(command.arity.unsigned_abs() as usize, own + fixed, "{}", command.name);
            let open = command.arguments.iter().any(|a| a.optional || a.multiple);
            assert_eq!(command.arity < 0, open, "{}", command.name);
        }
    }

    fn is_subcommand(command: &Command) -> bool {
        all().any(|container| container.subcommands.iter().any(|sub| std::ptr::eq(sub, command)))
    }

    fn least_words(argument: &Argument) -> usize {
        let value = match argument.kind {
            ArgumentKind::PureToken => 0,
            ArgumentKind::Block(parts) => parts.iter().filter(|a| !a.optional).map(least_words).sum(),
            ArgumentKind::OneOf(parts) => parts.iter().map(least_words).min().unwrap_or(0),
            _ => 1,
        };
        value + usize::from(argument.token.is_some())
    }

    #[test]
    fn commands_with_keys_read_or_write() {
        for command in every().filter(|command| !command.keys.is_empty()) {
            let does = command.flags.has(Flags::WRITE) || command.flags.has(Flags::READONLY);
            // Watching a key neither reads nor writes it.
            assert!(does || command.name == "watch", "{}", command.name);
        }
    }
}
