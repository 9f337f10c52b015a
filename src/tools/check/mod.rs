//! `seendb check FILE…`: what files of the persistence hold, what is damaged in them, and cutting a damaged log.
//!
//! | module | holds |
//! | --- | --- |
//! | `snapshot` | snapshots, also those of Redis and Valkey |
//! | `log` | logs and segments |
//! | `repair` | cutting a damaged log |
//!
//! Files are only read, but for `--fix`. One that a server is just writing is read as it is at that moment: a snapshot gets its
//! name when it is whole, and the end of a log that moves is looked at again.

mod log;
mod repair;
mod snapshot;

pub(super) use self::snapshot::begins_as_snapshot;

use std::ffi::OsString;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;

use super::json::Json;
use crate::persist::files::{Files, RealFiles};
use crate::persist::log::reader::read_manifest;
use crate::persist::log::repair as repair_log;
use crate::persist::log::{LogError, manifest, segment};
use crate::persist::recovery;

const LONG_ABOUT: &str = "\
Say what snapshots and append-only logs hold, and what is damaged in them.

FILE is a snapshot (of SeenDB, Redis or Valkey), a log's folder (appendonlydir), its manifest or one of its
segments, or a server's data folder, of which snapshot and log are looked at. Files are only read; those of a
server that is running may be checked too.";

const AFTER_HELP: &str = "\
Damaged snapshots:
  are never changed. 'load-damaged yes' starts the server with what is sound of one; this tool lists what
  would be missing. The better way is a backup.

Damaged logs:
  --fix cuts the log at the first damage: what comes before is kept, what is cut off is put beside it in
  files that end in '.damaged'. No server may be using the log meanwhile. A torn tail, as a power loss leaves
  it, needs no --fix: the server cuts it at its start. A manifest that is lost or damaged is made again if
  the segments and the base are there and fit together. Of a sound log that no server uses, the room is
  given back that its last segment has reserved and not used.

The log of a Redis:
  (appendonly.aof, or *.aof in appendonlydir) is not read, neither by this tool nor by the server, which does
  not start beside one; it is named, and the exit status is 1.

Exit status: 0 if all files are sound, or were repaired; 1 if something is damaged or cannot be read; 2 if
the words are not understood.
";

/// `seendb check`.
#[derive(Debug, Parser)]
#[command(
    name = "seendb check",
    about = "Say what snapshots and logs hold and what is damaged; repair logs",
    long_about = LONG_ABOUT,
    after_long_help = AFTER_HELP,
    override_usage = "seendb check [OPTIONS] <FILE>..."
)]
struct Options {
    /// Snapshots, folders of logs, manifests, segments, data folders
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,

    /// Cut a damaged log at the damage; what is cut off is kept beside it. A sound log gives back room that it has reserved
    #[arg(long)]
    fix: bool,

    /// Do not ask before --fix changes something
    #[arg(long, requires = "fix")]
    yes: bool,

    /// Print one JSON document with all that is found
    #[arg(long)]
    json: bool,
}

/// What was found out about a file.
struct Finding {
    path: PathBuf,
    /// Sound, or sound by now.
    sound: bool,
    /// What to call it if it is not just sound or damaged.
    verdict: Option<&'static str>,
    /// One line for people, each.
    lines: Vec<String>,
    json: Vec<(String, Json)>,
}

impl Finding {
    fn new(path: &Path, kind: &str) -> Finding {
        let json =
            vec![("path".to_owned(), Json::from(path.display().to_string())), ("kind".to_owned(), Json::from(kind))];
        Finding { path: path.to_owned(), sound: true, verdict: None, lines: Vec::new(), json }
    }

    fn line(&mut self, line: String) {
        self.lines.push(line);
    }

    fn set(&mut self, name: &str, value: impl Into<Json>) {
        self.json.push((name.to_owned(), value.into()));
    }

    /// It cannot be looked at, or is none of ours: nothing is said of whether it is whole.
    fn dismiss(&mut self, verdict: &'static str, reason: String) {
        self.fail(reason);
        self.verdict = Some(verdict);
    }

    fn verdict(&self) -> &'static str {
        self.verdict.unwrap_or(if self.sound { "sound" } else { "DAMAGED" })
    }

    /// Something is wrong.
    fn fail(&mut self, reason: String) {
        self.set("error", reason.clone());
        self.line(reason);
        self.sound = false;
    }
}

/// Checks as the words say. The first is the program's name.
pub fn run(args: Vec<OsString>) -> ExitCode {
    let options: Options = match super::options(args) {
        Ok(options) => options,
        Err(status) => return status,
    };
    let files: Arc<dyn Files> = Arc::new(RealFiles);
    let (mut sound, mut all) = (true, Vec::new());
    for path in &options.files {
        for found in look(&files, path) {
            let found = match (options.fix, found) {
                (true, found) => match repair::repair(&files, found, options.yes) {
                    Ok(found) => found,
                    Err(status) => return status,
                },
                (false, found) => found.finding,
            };
            sound &= found.sound;
            if options.json {
                all.push(json(found));
            } else {
                print(&found);
            }
        }
    }
    if options.json {
        let _ = writeln!(std::io::stdout(), "{}", Json::List(all));
    }
    super::end("check", Ok(sound))
}

fn print(found: &Finding) {
    // Who does not read it gets the exit status.
    let _ = std::io::stdout().write_all(text(found).as_bytes());
}

fn text(found: &Finding) -> String {
    let mut text = format!("{}: {}\n", found.path.display(), found.verdict());
    found.lines.iter().for_each(|line| text += &format!("  {line}\n"));
    text
}

fn json(mut found: Finding) -> Json {
    found.json.insert(2, ("sound".to_owned(), Json::from(found.sound)));
    Json::Map(found.json)
}

const CUT_OFF: &str = "the rest of a segment";
const UNREADABLE: &str = "cannot be read";
const UNKNOWN: &str = "not one of ours";
const NOT_READ: &str = "not read";

/// A file that was looked at.
struct Looked {
    finding: Finding,
    /// The folder, if it is a whole log.
    log: Option<PathBuf>,
}

/// Whether a log's folder has no manifest that can be read.
fn lacks_manifest(files: &Arc<dyn Files>, folder: &Path) -> bool {
    match read_manifest(&**files, folder) {
        Ok(found) => found.is_none(),
        Err(error) => matches!(error, LogError::Manifest(_)),
    }
}

/// Whether there is a log in a folder, though maybe without its manifest.
fn is_log(folder: &Path) -> bool {
    let is_segment = |entry: std::fs::DirEntry| entry.file_name().to_str().and_then(segment::number_of).is_some();
    folder.join(manifest::FILE_NAME).exists()
        || std::fs::read_dir(folder).is_ok_and(|entries| entries.flatten().any(is_segment))
}

/// Looks at what a path leads to.
fn look(files: &Arc<dyn Files>, path: &Path) -> Vec<Looked> {
    let alone = |finding| vec![Looked { finding, log: None }];
    let whole = |folder: &Path| Looked { finding: log::check_folder(folder), log: Some(folder.to_owned()) };
    let of_redis = |path: &Path| {
        let mut finding = Finding::new(path, "log of a Redis");
        finding.dismiss(NOT_READ, recovery::of_redis(path));
        Looked { finding, log: None }
    };
    if path.is_dir() {
        if is_log(path) {
            return vec![whole(path)];
        }
        let (snapshot, folder) = (path.join(super::SNAPSHOT_NAME), path.join(super::LOG_FOLDER));
        let mut found = Vec::new();
        if snapshot.exists() {
            found.extend(look(files, &snapshot));
        }
        if is_log(&folder) {
            found.push(whole(&folder));
        } else if let Some(log) = recovery::log_of_redis(&**files, &snapshot, &folder) {
            found.push(of_redis(&log));
        } else if found.is_empty() && recovery::log_of_redis(&**files, &snapshot, path).is_some() {
            found.push(of_redis(path));
        }
        if found.is_empty() {
            let mut finding = Finding::new(path, "folder");
            finding.dismiss(UNKNOWN, format!("holds no log ('{}') and no data of a server", manifest::FILE_NAME));
            return alone(finding);
        }
        return found;
    }
    if path.file_name().is_some_and(|name| name == manifest::FILE_NAME) {
        return vec![whole(path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new(".")))];
    }
    // What keeps one from being read is told below.
    if let Ok(Some(rest)) = repair_log::look_at_rest(&**files, path) {
        return alone(log::tell_rest(path, &rest));
    }
    match begins_as_segment(path) {
        Ok(true) => alone(log::check_segment(files, path)),
        Ok(false) => alone(snapshot::check(&**files, path)),
        Err(error) => {
            let mut finding = Finding::new(path, "file");
            finding.dismiss(UNREADABLE, error.to_string());
            alone(finding)
        }
    }
}

fn begins_as_segment(path: &Path) -> std::io::Result<bool> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(8).read_to_end(&mut bytes)?;
    let named = path.file_name().and_then(|name| segment::number_of(name.to_str()?)).is_some();
    Ok(named || segment::Header::announces(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn clap_finds_the_definitions_sound() {
        Options::command().debug_assert();
        assert!(Options::try_parse_from(["seendb check"]).is_err());
        assert!(Options::try_parse_from(["seendb check", "f", "--yes"]).is_err());
    }
}
