//! Snapshots.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use super::{Finding, UNKNOWN};
use crate::keyspace::effect::Profile;
use crate::persist::files::{File, Files};
use crate::persist::snapshot::read::{Checksum, LoadError, Loss, Progress, Report, Visited, walk};
use crate::tools::copy::journal::Names;
use crate::tools::json::Json;
use crate::tools::log::profile_options;
use crate::tools::meter::{amount, count, watch};
use crate::tools::names::shown;

/// So many names of lost keys are told of each place.
const NAMED: usize = 3;

/// Keys of a type in a database.
#[derive(Clone, Copy, Default)]
struct Kind {
    keys: u64,
    bytes: u64,
    lives: u64,
    expired: u64,
    items: u64,
}

/// What is counted on the way.
struct Figures {
    now: u64,
    /// By database, if that is known, and name of the type.
    kinds: BTreeMap<(Option<u64>, String), Kind>,
    seen: Names,
    /// Keys that are there twice.
    twice: Vec<(u64, String)>,
}

impl Figures {
    fn new() -> Figures {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
        Figures { now, kinds: BTreeMap::new(), seen: Names::new(), twice: Vec::new() }
    }

    fn visit(&mut self, key: &Visited<'_>) {
        let kind = self.kinds.entry((key.db, key.type_name.to_string())).or_default();
        kind.keys += 1;
        kind.bytes += key.bytes;
        kind.lives += u64::from(key.life.is_some());
        kind.expired += u64::from(key.life.is_some_and(|life| life <= self.now));
        let items = key.chain.map(|chain| chain.items);
        let items = items.or(key.ring.map(|ring| ring.items)).or(key.cells.map(|cells| cells.items));
        let Some(items) = items else { return };
        kind.items = kind.items.saturating_add(items);
        // Only filters are loaded, so only they can be in each other's way.
        let full = [&key.db.unwrap_or(u64::MAX).to_le_bytes()[..], key.name].concat();
        if !self.seen.insert(&full) {
            self.twice.push((key.offset, shown(key.name)));
        }
    }
}

/// Looks at a snapshot.
pub fn check(files: &dyn Files, path: &Path) -> Finding {
    let mut finding = Finding::new(path, "snapshot");
    let opened = files.open(path).and_then(|file| Ok((file.length()?, file)));
    let (length, file) = match opened {
        Ok(opened) => opened,
        Err(error) => {
            finding.fail(error.to_string());
            return finding;
        }
    };
    finding.set("bytes", length);
    if !begins_as_snapshot(&*file) && !has_filters(&*file, path) {
        finding.dismiss(
            UNKNOWN,
            "no snapshot and no log: neither REDIS nor VALKEY stands at its start, and nothing in it is a filter"
                .to_owned(),
        );
        return finding;
    }
    let (figures, outcome) = read(&*file, false, path);
    match outcome {
        Ok(report) => tell(&mut finding, &report, &figures, length),
        Err(LoadError::Damage(damage)) => {
            finding.set("offset", damage.offset);
            finding.fail(format!("damaged: {damage}"));
            salvage(&mut finding, &*file, path, length);
        }
        Err(error) => finding.fail(error.to_string()),
    }
    finding
}

fn read(file: &dyn File, accept_damaged: bool, path: &Path) -> (Figures, Result<Report, LoadError>) {
    let (mut figures, progress) = (Figures::new(), Progress::default());
    let look = || (progress.bytes_done(), progress.bytes());
    let report = watch(&path.display().to_string(), look, || {
        walk(file, accept_damaged, &progress, &mut |key| figures.visit(key))
    });
    (figures, report)
}

/// Whether a file begins as a snapshot does.
pub fn begins_as_snapshot(file: &dyn File) -> bool {
    let mut bytes = [0; 6];
    let read = file.read_full_at(&mut bytes, 0).unwrap_or(0);
    bytes[..read].starts_with(b"REDIS") || bytes[..read].starts_with(b"VALKEY")
}

/// Whether a file that begins as no snapshot holds keys all the same: its beginning may be lost.
fn has_filters(file: &dyn File, path: &Path) -> bool {
    let (figures, outcome) = read(file, true, path);
    outcome.is_ok() && !figures.kinds.is_empty()
}

/// What could be loaded of a damaged file.
fn salvage(finding: &mut Finding, file: &dyn File, path: &Path, length: u64) {
    let (figures, outcome) = read(file, true, path);
    let report = match outcome {
        Ok(report) => report,
        Err(error) => return finding.line(error.to_string()),
    };
    for loss in report.dropped.listed.iter() {
        finding.line(format!("lost: {loss}{}", names_of(loss)));
    }
    let more = report.dropped.count - report.dropped.listed.len() as u64;
    if more > 0 {
        finding.line(format!("and {}", count(more, "further damaged place")));
    }
    finding.set("losses", Json::List(report.dropped.listed.iter().map(loss_json).collect()));
    if figures.kinds.is_empty() {
        return;
    }
    finding.line("what is sound ('load-damaged yes' loads it; a backup is the better way):".to_owned());
    tell(finding, &report, &figures, length);
}

fn names_of(loss: &Loss) -> String {
    let mut text = String::new();
    for (db, name) in loss.names.iter().take(NAMED) {
        let db = db.map_or(String::new(), |db| format!(" of database {db}"));
        text += &format!("{} {}{db}", if text.is_empty() { ":" } else { "," }, shown(name));
    }
    if loss.keys > NAMED as u64 { text + ", …" } else { text }
}

fn loss_json(loss: &Loss) -> Json {
    let name = |(db, name): &(Option<u64>, Vec<u8>)| Json::map([("db", (*db).into()), ("name", Json::bytes(name))]);
    Json::map([
        ("from", loss.from.into()),
        ("to", loss.to.into()),
        ("reason", loss.reason.clone().into()),
        ("keys", loss.keys.into()),
        ("names", Json::List(loss.names.iter().map(name).collect())),
    ])
}

/// What a file holds.
fn tell(finding: &mut Finding, report: &Report, figures: &Figures, length: u64) {
    let checksum = match report.checksum {
        Checksum::Right => "right",
        Checksum::Wrong => "wrong",
        Checksum::Absent => "absent",
        Checksum::Missing => "missing",
    };
    let magic = match report.magic {
        "" => "its beginning lost".to_owned(),
        magic => format!("{magic} version {}", report.version),
    };
    let blocks = if report.blocks == 0 { "no block marks".to_owned() } else { count(report.blocks, "block mark") };
    finding.line(format!("snapshot, {magic}, {}, checksum {checksum}, {blocks}", amount(length)));
    for (name, value) in &report.aux {
        finding.line(format!("{} = {}", text(name), text(value)));
    }
    for ((db, type_name), kind) in &figures.kinds {
        finding.line(kind_line(*db, type_name, kind));
    }
    for (prefix, profile) in &report.profiles {
        finding.line(format!("profile of rings {}: {}", shown(prefix), profile_text(profile)));
    }
    if figures.kinds.is_empty() {
        finding.line("no keys".to_owned());
    }
    for (offset, name) in &figures.twice {
        finding.fail(format!("offset {offset}: the key {name} was there before"));
    }
    finding.set("magic", report.magic);
    finding.set("version", u64::from(report.version));
    finding.set("checksum", checksum);
    finding.set("block_marks", report.blocks);
    let aux = report.aux.iter().map(|(name, value)| (text(name), Json::bytes(value))).collect();
    finding.set("aux", Json::Map(aux));
    finding.set("keys", Json::List(figures.kinds.iter().map(kind_json).collect()));
    let profile = |(prefix, profile): &(Vec<u8>, Profile)| {
        Json::map([("prefix", Json::bytes(prefix)), ("options", profile_text(profile).into())])
    };
    finding.set("profiles", Json::List(report.profiles.iter().map(profile).collect()));
}

fn text(bytes: &[u8]) -> String {
    let quoted = shown(bytes);
    quoted.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(&quoted).to_owned()
}

/// The words that set a profile; a key of its own is not told, as CHAIN.PROFILE LIST does not.
fn profile_text(profile: &Profile) -> String {
    let (mut settings, keyed) = (profile.settings, profile.keyed || profile.settings.key.is_some());
    settings.key = None;
    profile_options(&Profile { settings, keyed })
}

fn kind_line(db: Option<u64>, type_name: &str, kind: &Kind) -> String {
    let db = db.map_or("of an unknown database".to_owned(), |db| format!("database {db}"));
    let mut line = format!("{db}: {} of type {type_name}, {}", count(kind.keys, "key"), amount(kind.bytes));
    if kind.items > 0 {
        line += &format!(", {}", count(kind.items, "item"));
    }
    if kind.lives > 0 {
        line += &format!(", {} with a life", kind.lives);
    }
    if kind.expired > 0 {
        line += &format!(" (over: {})", kind.expired);
    }
    line
}

fn kind_json(((db, type_name), kind): (&(Option<u64>, String), &Kind)) -> Json {
    Json::map([
        ("db", (*db).into()),
        ("type", type_name.clone().into()),
        ("keys", kind.keys.into()),
        ("bytes", kind.bytes.into()),
        ("items", kind.items.into()),
        ("lives", kind.lives.into()),
        ("expired", kind.expired.into()),
    ])
}
