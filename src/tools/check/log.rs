//! Logs: a folder with a manifest, or a segment alone.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::{CUT_OFF, Finding, snapshot};
use crate::keyspace::effect::Effect;
use crate::persist::files::{Files, RealFiles};
use crate::persist::log::repair::CutOff;
use crate::persist::log::{Damage, LogError, LogReader, Manifest, manifest};
use crate::persist::record::{Change, Counted, Malformed, Record, Unit, for_each_record, next_unit};
use crate::tools::json::Json;
use crate::tools::meter::{amount, count, watch};
use crate::tools::pinned::pin;

/// How often a log is read again whose end moves, and how long it is waited before.
const TRIES: usize = 5;
const BETWEEN: Duration = Duration::from_millis(200);

/// Kinds of records, in the order in which they are told.
const KINDS: [&str; 29] = [
    "created",
    "added",
    "grown",
    "header",
    "chunk",
    "restored",
    "life",
    "deleted",
    "renamed",
    "copied",
    "moved",
    "flushed",
    "swapped",
    "ring created",
    "ring added",
    "rotated",
    "cleared",
    "links",
    "profile",
    "ring header",
    "counting created",
    "counting header",
    "counting added",
    "counting removed",
    "decayed",
    "d-left created",
    "d-left header",
    "d-left added",
    "d-left removed",
];

/// What a log holds up to where it ends.
#[derive(Clone, Default, PartialEq)]
struct Figures {
    first: Option<u64>,
    /// Behind the last record.
    end: u64,
    batches: u64,
    bytes: u64,
    groups: u64,
    kinds: [u64; KINDS.len()],
    items: u64,
    known_synced: u64,
    damage: Option<Damage>,
    /// A batch that verifies and holds what is no record.
    malformed: Option<(String, u64)>,
}

impl Figures {
    fn read(mut reader: LogReader, done: &AtomicU64) -> Result<Figures, LogError> {
        let mut figures = Figures { end: reader.manifest().cut(), ..Figures::default() };
        figures.damage = loop {
            done.store(reader.progress().0, Ordering::Relaxed);
            match reader.next_batch() {
                Ok(Some(batch)) => {
                    let (file, offset, position) = (batch.file, batch.offset, batch.position);
                    if figures.batch(position, batch.records).is_err() {
                        figures.malformed = Some((file.to_owned(), offset));
                        break None;
                    }
                }
                Ok(None) => break reader.torn_tail().cloned(),
                Err(LogError::Damaged(damage)) => break Some(*damage),
                Err(error) => return Err(error),
            }
        };
        figures.known_synced = reader.known_synced();
        Ok(figures)
    }

    fn batch(&mut self, position: u64, records: &[u8]) -> Result<(), Malformed> {
        self.first.get_or_insert(position);
        let mut rest = records;
        while !rest.is_empty() {
            let (unit, after) = next_unit(rest)?;
            self.groups += u64::from(matches!(unit, Unit::Group(_)));
            rest = after;
        }
        for_each_record(records, |record| -> Result<(), Malformed> {
            self.record(record);
            Ok(())
        })?;
        self.batches += 1;
        self.bytes += records.len() as u64;
        self.end = position + records.len() as u64;
        Ok(())
    }

    fn record(&mut self, record: &Record<'_>) {
        let kind = match &record.change {
            Change::BloomAdded { items, .. } => {
                self.items += items.len() as u64;
                1
            }
            Change::RingAdded { items, .. } => {
                self.items += items.len() as u64;
                14
            }
            Change::Counted { what, items } => {
                self.items += items.len() as u64;
                match what {
                    Counted::Added => 22,
                    Counted::Removed => 23,
                    Counted::DleftAdded => 27,
                    Counted::DleftRemoved => 28,
                }
            }
            Change::Effect(effect) => match effect {
                Effect::BloomCreated { .. } => 0,
                Effect::BloomAdded { .. } => 1,
                Effect::BloomGrown { .. } => 2,
                Effect::BloomHeader { .. } => 3,
                Effect::BloomChunk { .. } => 4,
                Effect::Restored { .. } => 5,
                Effect::Life { .. } => 6,
                Effect::Deleted { .. } => 7,
                Effect::Renamed { .. } => 8,
                Effect::Copied { .. } => 9,
                Effect::Moved { .. } => 10,
                Effect::Flushed { .. } => 11,
                Effect::Swapped { .. } => 12,
                Effect::RingCreated { .. } => 13,
                Effect::RingAdded { .. } => 14,
                Effect::RingRotated => 15,
                Effect::RingCleared => 16,
                Effect::RingLinks { .. } => 17,
                Effect::Profile { .. } => 18,
                Effect::RingHeader { .. } => 19,
                Effect::CountingCreated { .. } => 20,
                Effect::CountingHeader { .. } => 21,
                Effect::CountingAdded { .. } => 22,
                Effect::CountingRemoved { .. } => 23,
                Effect::CountingDecayed => 24,
                Effect::DleftCreated { .. } => 25,
                Effect::DleftHeader { .. } => 26,
                Effect::DleftAdded { .. } => 27,
                Effect::DleftRemoved { .. } => 28,
            },
        };
        self.kinds[kind] += 1;
    }

    fn is_whole(&self) -> bool {
        self.damage.is_none() && self.malformed.is_none()
    }
}

/// Looks at a whole log.
pub fn check_folder(folder: &Path) -> Finding {
    let mut finding = Finding::new(folder, "log");
    match read_settled(folder) {
        Ok((files, manifest, figures)) => {
            tell_manifest(&mut finding, &*files, folder, &manifest);
            tell(&mut finding, &figures, true);
        }
        Err(error) => {
            finding.fail(error.to_string());
            if super::lacks_manifest(&(Arc::new(RealFiles) as Arc<dyn Files>), folder) {
                finding
                    .line("--fix makes the manifest again if segments and base are there and fit together".to_owned());
            }
        }
    }
    finding
}

/// Reads a log. A server that writes it meanwhile makes its end look torn for a moment: then it is read again.
fn read_settled(folder: &Path) -> Result<(Arc<dyn Files>, Manifest, Figures), LogError> {
    let failed = |source| LogError::Io { file: folder.display().to_string(), source };
    let mut before = None;
    let mut tries = 0;
    loop {
        let files = pin(folder).map_err(failed)?;
        let done = AtomicU64::new(0);
        let opened = LogReader::open(files.clone(), folder)?;
        let reader = opened.ok_or_else(|| LogError::Io {
            file: manifest::FILE_NAME.to_owned(),
            source: std::io::Error::new(std::io::ErrorKind::NotFound, "the file is not there"),
        })?;
        let (manifest, all) = (reader.manifest().clone(), reader.progress().1);
        let look = || (done.load(Ordering::Relaxed), all);
        let figures = watch(&folder.display().to_string(), look, || Figures::read(reader, &done))?;
        tries += 1;
        if figures.is_whole() || before.as_ref() == Some(&figures) {
            return Ok((files, manifest, figures));
        }
        if tries == TRIES {
            // It moved each time, so it is no tail that something has left.
            let damage = figures.damage.filter(|damage| !damage.is_torn_tail());
            return Ok((files, manifest, Figures { damage, ..figures }));
        }
        before = Some(figures);
        std::thread::sleep(BETWEEN);
    }
}

/// Looks at a segment without its log.
pub fn check_segment(files: &Arc<dyn Files>, path: &Path) -> Finding {
    let mut finding = Finding::new(path, "segment");
    let done = AtomicU64::new(0);
    let read = LogReader::open_segment_file(files.clone(), path).and_then(|reader| {
        let (manifest, all) = (reader.manifest().clone(), reader.progress().1);
        let look = || (done.load(Ordering::Relaxed), all);
        watch(&path.display().to_string(), look, || Figures::read(reader, &done)).map(|figures| (manifest, figures))
    });
    match read {
        Ok((manifest, figures)) => {
            finding.line(format!("segment {} of log {}", manifest.segments[0].number, manifest.id));
            finding.set("log_id", manifest.id.to_string());
            finding.set("number", manifest.segments[0].number);
            finding.set("first", manifest.segments[0].first);
            tell(&mut finding, &figures, false);
        }
        Err(error) => finding.fail(error.to_string()),
    }
    finding
}

/// Tells of a file that holds what was cut off a segment: nobody reads it again, so it is neither sound nor damaged.
pub fn tell_rest(path: &Path, rest: &CutOff) -> Finding {
    let mut finding = Finding::new(path, "cut off");
    finding.verdict = Some(CUT_OFF);
    let CutOff { segment, offset, batches, records } = rest;
    finding.line(format!("what was cut off {segment} at offset {offset}; nothing reads it again"));
    finding.line(match batches {
        Some(batches) => format!("{} in it whole, with {} of records", count(*batches, "batch"), amount(*records)),
        None => format!("what in it is whole cannot be told: {segment} is not there, or its header is damaged"),
    });
    finding.set("segment", segment.clone());
    finding.set("offset", *offset);
    finding.set("batches", *batches);
    finding
}

fn tell_manifest(finding: &mut Finding, files: &dyn Files, folder: &Path, manifest: &Manifest) {
    finding.line(format!("log {}", manifest.id));
    finding.set("log_id", manifest.id.to_string());
    if let Some(closed) = manifest.closed {
        finding.line(format!("switched off at {closed} (milliseconds since 1970)"));
    }
    finding.set("closed", manifest.closed);
    match &manifest.base {
        Some(base) => {
            let mut found = snapshot::check(files, &folder.join(&base.file));
            let state = if found.sound { "sound" } else { "DAMAGED" };
            finding.line(format!("base {}, up to position {}: {state}", base.file, base.cut));
            finding.lines.extend(found.lines.iter().map(|line| format!("  {line}")));
            finding.sound &= found.sound;
            found.set("cut", base.cut);
            finding.set("base", super::json(found));
        }
        None => {
            finding.line("no base".to_owned());
            finding.set("base", Json::Null);
        }
    }
    let mut segments = Vec::new();
    for segment in &manifest.segments {
        let bytes = files.open(&folder.join(&segment.file)).and_then(|file| file.length()).ok();
        let size = bytes.map_or("not there".to_owned(), amount);
        finding.line(format!("{}, from position {}: {size}", segment.file, segment.first));
        segments.push(Json::map([
            ("file", segment.file.clone().into()),
            ("number", segment.number.into()),
            ("first", segment.first.into()),
            ("bytes", bytes.into()),
        ]));
    }
    finding.set("segments", Json::List(segments));
}

fn tell(finding: &mut Finding, figures: &Figures, whole: bool) {
    let records: u64 = figures.kinds.iter().sum();
    finding.line(match figures.first {
        Some(first) => format!(
            "{} in {}, positions {first} to {}, known to be synced up to {}",
            count(records, "record"),
            count(figures.batches, "batch"),
            figures.end,
            figures.known_synced
        ),
        None => format!("no records behind position {}", figures.end),
    });
    let by_kind = || KINDS.iter().zip(figures.kinds).filter(|(_, number)| *number > 0);
    if records > 0 {
        let mut line = by_kind().map(|(kind, number)| format!("{kind} {number}")).collect::<Vec<_>>().join(", ");
        if figures.items > 0 {
            line += &format!("; {}", count(figures.items, "item"));
        }
        if figures.groups > 0 {
            line += &format!("; {}", count(figures.groups, "group"));
        }
        finding.line(line);
    }
    finding.set("first", figures.first);
    finding.set("position", figures.end);
    finding.set("known_synced", figures.known_synced);
    finding.set("batches", figures.batches);
    finding.set("groups", figures.groups);
    finding.set("items", figures.items);
    finding.set("records", Json::Map(by_kind().map(|(kind, number)| ((*kind).to_owned(), number.into())).collect()));
    tell_damage(finding, figures, whole);
}

fn tell_damage(finding: &mut Finding, figures: &Figures, whole: bool) {
    if let Some((file, offset)) = &figures.malformed {
        finding.fail(format!("{file}: the batch at offset {offset} verifies but holds what is no record"));
    }
    let Some(damage) = &figures.damage else {
        if figures.malformed.is_none() {
            finding.set("damage", Json::Null);
        }
        return;
    };
    let torn = damage.is_torn_tail();
    finding.set(
        "damage",
        Json::map([
            ("file", damage.file.clone().into()),
            ("offset", damage.offset.into()),
            ("position", damage.position.into()),
            ("torn_tail", torn.into()),
            ("known_synced", damage.known_synced.into()),
            ("bytes", damage.bytes.into()),
            ("valid_batches_behind", damage.valid_batches.into()),
            ("valid_bytes_behind", damage.valid_bytes.into()),
        ]),
    );
    let Damage { file, offset, bytes, .. } = damage;
    if torn {
        finding.fail(format!("{file}: torn tail of {} at offset {offset}", amount(*bytes)));
        if whole {
            finding.line("the server cuts it at its start ('aof-load-truncated yes'); --fix cuts it now".to_owned());
        }
        return;
    }
    finding.fail(damage.to_string());
    if whole {
        finding.line(format!(
            "the server does not start with it; --fix keeps what is before (up to position {}) and cuts off {}",
            damage.position,
            amount(*bytes)
        ));
    }
}
