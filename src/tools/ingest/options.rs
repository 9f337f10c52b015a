//! The words behind `seendb ingest`.

use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};

use crate::tools::address::Address;

const LONG_ABOUT: &str = "\
Feed events into rings: who saw what, and when. Each user has a ring of his own, which is made with his first
event and forgets what is old by itself.

Events come from standard input or FILE, a line of JSON each:

    {\"user\": \"u1\", \"item\": \"n42\", \"time\": 1700000000000}

User and item are text or whole numbers; time is in milliseconds since 1970. Other fields are passed over. Each
event becomes CHAIN.INSERT <prefix><user> AT <time> ITEMS <item>; consecutive events of a user with the same time
go together.";

const AFTER_HELP: &str = "\
Rings that are made:
  get the options of creation given here, else those of the profile of their prefix (CHAIN.PROFILE SET), else
  the settings of the server. Rings that are there already are left as they are. A ring without a window takes no
  times: use --no-time.

Times that lie back:
  need CLOCK EVENT (--clock event), by which a ring's time is the latest that it has seen. By the server's clock,
  events older than the window are refused, and so are those of the future.

Interrupted runs and --resume FILE:
  The byte up to which the server has confirmed all events is kept in FILE. After ^C, a bad line, a lost
  connection or a crash, the same command goes on from there; what was on its way is sent again, which a ring with a
  window takes without a change. If the events have grown since, the new ones are sent. A run of which the server
  took nothing leaves FILE as it was. Single events that were refused are not sent again: they are counted in
  FILE; to send all events anew, delete it.

Exit status: 0 if the server took all events that were sent, 1 otherwise, 2 if the words are not understood. Lines
passed over by --skip-bad do not count.
";

/// `seendb ingest`.
#[derive(Debug, Parser)]
#[command(
    name = "seendb ingest",
    bin_name = "seendb ingest",
    about = "Feed events, a line of JSON each, into filters of a live server"
)]
pub struct Options {
    /// Into what.
    #[command(subcommand)]
    pub family: Family,
}

/// The family of the filters.
#[derive(Debug, Subcommand)]
pub enum Family {
    /// Feed events into rings, one for each user
    #[command(long_about = LONG_ABOUT, after_long_help = AFTER_HELP)]
    Chain(Chain),
}

/// Whose clock a ring goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Clock {
    /// The server's
    Server,
    /// The latest time that the ring has seen
    Event,
}

/// `seendb ingest chain`.
#[derive(Debug, clap::Args)]
pub struct Chain {
    /// The events; standard input if no file is named
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,

    /// What stands before the user in the names of keys
    #[arg(long, value_name = "PREFIX")]
    pub key_prefix: String,

    /// The server: redis://[[user:]password@]host[:port][/db]
    #[arg(long, value_name = "ADDRESS", default_value = "redis://127.0.0.1:6379")]
    pub into: Address,

    /// Keep in FILE how far it is, and go on from there if it exists
    #[arg(long, value_name = "FILE")]
    pub resume: Option<PathBuf>,

    /// Send at most so many events a second
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub rate: Option<u64>,

    /// Pass over lines that are no events, and count them
    #[arg(long)]
    pub skip_bad: bool,

    /// Leave the times out: for rings without a window
    #[arg(long)]
    pub no_time: bool,

    /// Report progress although standard error is no terminal
    #[arg(long)]
    pub progress: bool,

    /// What rings get that are made.
    #[command(flatten)]
    pub creation: Creation,
}

/// What is passed through to `CHAIN.INSERT`. The values are the server's to judge.
#[derive(Debug, Default, clap::Args)]
#[command(next_help_heading = "Options of rings that are made")]
pub struct Creation {
    /// Items that are remembered, or expected in a window
    #[arg(long, value_name = "N")]
    pub capacity: Option<String>,

    /// Error rate of the whole ring
    #[arg(long, value_name = "RATE")]
    pub error: Option<String>,

    /// The error rate is that of one link
    #[arg(long)]
    pub link_error: bool,

    /// Number of links
    #[arg(long, value_name = "N")]
    pub links: Option<String>,

    /// Remember every item for so long
    #[arg(long, value_name = "SECONDS")]
    pub window: Option<String>,

    /// A full slice turns the ring early: memory is bounded, the window is not guaranteed
    #[arg(long)]
    pub bounded: bool,

    /// Whose clock the window goes by
    #[arg(long, value_enum, value_name = "WHOSE")]
    pub clock: Option<Clock>,

    /// Two arrays in turn instead of a ring
    #[arg(long)]
    pub dual: bool,

    /// Share of an array at which the second one is begun
    #[arg(long, value_name = "SHARE")]
    pub threshold: Option<String>,

    /// The key ends when nothing was written to it for so long
    #[arg(long, value_name = "SECONDS")]
    pub idle: Option<String>,

    /// Hash under a random key
    #[arg(long)]
    pub keyed: bool,

    /// Hash under this key of 32 hexadecimal digits
    #[arg(long, value_name = "HEX")]
    pub seed: Option<String>,

    /// Make no rings: events of users who have none are refused
    #[arg(long)]
    pub no_create: bool,
}

impl Creation {
    /// The words of `CHAIN.INSERT`.
    pub fn words(&self) -> Vec<Vec<u8>> {
        let clock = self.clock.map(|clock| match clock {
            Clock::Server => "SERVER",
            Clock::Event => "EVENT",
        });
        let values = [
            ("CAPACITY", self.capacity.as_deref()),
            ("ERROR", self.error.as_deref()),
            ("LINKS", self.links.as_deref()),
            ("WINDOW", self.window.as_deref()),
            ("CLOCK", clock),
            ("THRESHOLD", self.threshold.as_deref()),
            ("IDLE", self.idle.as_deref()),
            ("SEED", self.seed.as_deref()),
        ];
        let flags = [
            ("LINKERROR", self.link_error),
            ("BOUNDED", self.bounded),
            ("DUAL", self.dual),
            ("KEYED", self.keyed),
            ("NOCREATE", self.no_create),
        ];
        let values = values.into_iter().filter_map(|(word, value)| Some([word, value?])).flatten();
        let flags = flags.into_iter().filter(|(_, given)| *given).map(|(word, _)| word);
        values.chain(flags).map(|word| word.as_bytes().to_vec()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    fn words(more: &[&str]) -> String {
        let all = [&["seendb ingest", "chain", "--key-prefix", "p:"], more].concat();
        let Family::Chain(options) = Options::try_parse_from(all).unwrap().family;
        let words = options.creation.words();
        words.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn clap_finds_the_definitions_sound() {
        Options::command().debug_assert();
        for wrong in [&["chain"][..], &["chain", "--key-prefix", "a", "--rate", "0"], &["cbf", "--key-prefix", "a"]] {
            assert!(Options::try_parse_from([&["seendb ingest"], wrong].concat()).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn options_of_creation_are_passed_through() {
        assert_eq!(words(&[]), "");
        let all = ["--window", "2592000", "--links", "31", "--clock", "event", "--bounded", "--no-create"];
        assert_eq!(words(&all), "LINKS 31 WINDOW 2592000 CLOCK EVENT BOUNDED NOCREATE");
        assert_eq!(words(&["--dual", "--threshold", "0.6", "--error", "0.01"]), "ERROR 0.01 THRESHOLD 0.6 DUAL");
    }
}
