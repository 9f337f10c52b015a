//! The words behind `seendb copy`.

use std::path::PathBuf;

use clap::Parser;

use crate::config::parse_size;
use crate::tools::address::Address;
use crate::tools::families::Family;

/// Filters that take more bytes than this are moved in pieces.
const LARGE_BYTES: &str = "64mb";

const LONG_ABOUT: &str = "\
Move filters between live servers, with their lives.

Either end may be SeenDB or a Redis with RedisBloom. What arrives is equal to the bit: settings, sub-filters,
counts, and the moment at which the key ends. The source is only read. Between two SeenDB filters of all
families are moved, and the profiles of rings. A Redis takes Bloom filters alone: the others are named and
make the exit status 1. Keys of other types stay where they are and are counted.";

const AFTER_HELP: &str = "\
How it works:
  Keys are found by SCAN and moved by DUMP and RESTORE, a hundred at a time. Large filters, and those that
  RESTORE refuses, go in pieces (SCANDUMP and LOADCHUNK of their family) under a name that ends in
  '.seendb-copy.N', and get their own name when they are whole. If the filter changes its shape meanwhile (a
  sub-filter more, a turn of a ring, a decay), that key is begun again, up to five times.

Profiles of rings (CHAIN.PROFILE):
  belong to the server, not to a database. All go along, unless --match or --families leaves them out. With
  '--match' they stay where they are and are counted. One that is at the target already, with other settings,
  is left alone and listed as failed; --replace replaces it. The source does not tell a SEED: a profile with
  one becomes one with KEYED, which is said.

Keys that are at the target already:
  are left alone, listed as failed, and make the exit status 1. With --replace they are replaced.

Interrupted runs and --resume FILE:
  The names of finished keys are written to FILE. After ^C, a lost connection or a crash, the same command
  goes on where it was; keys that were on their way are moved again. Keys in FILE are not copied again as long
  as the target has them, even if they have changed at the source since: to bring changed keys up to date, run
  with --replace and without FILE. To lose no add at all, stop the writers before the last run.

Clusters:
  A target that is a cluster is recognised, and each key goes to the node of its slot. A source that is a
  cluster is copied node by node: one run for each master.

valkey-bloom:
  It hashes in another way, so its bits are of no use anywhere else and are not moved. --empty makes empty
  filters with the same rate, capacity, growth and life at the target, to be filled anew.

Exit status: 0 if all filters arrived, 1 otherwise.
";

/// `seendb copy`.
#[derive(Debug, Parser)]
#[command(
    name = "seendb copy",
    about = "Move filters between live servers, with their lives",
    long_about = LONG_ABOUT,
    after_long_help = AFTER_HELP,
    override_usage = "seendb copy [OPTIONS] <FROM> <TO>"
)]
pub struct Options {
    /// Source: redis://[[user:]password@]host[:port][/db]; a % in user or password as %25, an @ as %40
    #[arg(value_name = "FROM")]
    pub from: Address,

    /// Target, in the same form
    #[arg(value_name = "TO")]
    pub to: Address,

    /// Move only keys whose names match this pattern, as SCAN understands it (user:*)
    #[arg(long = "match", value_name = "PATTERN")]
    pub pattern: Option<String>,

    /// Move only these families of filters, with commas between them
    #[arg(long, value_name = "FAMILIES", value_enum, value_delimiter = ',')]
    pub families: Vec<Family>,

    /// Keep the names of finished keys in FILE, and go on from there if it exists
    #[arg(long, value_name = "FILE")]
    pub resume: Option<PathBuf>,

    /// Replace keys that are at the target already
    #[arg(long)]
    pub replace: bool,

    /// The target is a cluster (recognised by itself unless INFO is forbidden)
    #[arg(long)]
    pub cluster: bool,

    /// From valkey-bloom: make empty filters of the same settings
    #[arg(long)]
    pub empty: bool,

    /// Report progress although standard error is no terminal
    #[arg(long)]
    pub progress: bool,

    /// Move filters of more bytes than this in pieces; 0: all of them
    #[arg(long, value_name = "SIZE", default_value = LARGE_BYTES, value_parser = size)]
    pub pieces_from: u64,
}

fn size(text: &str) -> Result<u64, String> {
    parse_size(text.as_bytes()).ok_or_else(|| "must be a size such as 64mb".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn clap_finds_the_definitions_sound() {
        Options::command().debug_assert();
    }

    #[test]
    fn defaults_are_careful() {
        let options = Options::try_parse_from(["seendb copy", "redis://a", "redis://b:7000/2"]).unwrap();
        assert_eq!((options.from.db, options.to.db, options.to.port), (0, 2, 7000));
        assert!(!options.replace && !options.cluster && !options.empty && options.resume.is_none());
        assert_eq!(options.pieces_from, 64 << 20);
        assert!(Options::try_parse_from(["seendb copy", "redis://a"]).is_err());
        assert!(Options::try_parse_from(["seendb copy", "a", "redis://b"]).is_err());
    }
}
