//! What can be saved of a log that is damaged, and cutting it there.
//!
//! Nothing is thrown away: what is cut off is kept beside the log in files that end in `.damaged`. A crash in between leaves
//! the log as it was, or cut, or damaged at the same place, so that the cutting can be done again.

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::damage::{Damage, Kind};
use super::manifest::{Base, Manifest, Segment};
use super::reader::{LogReader, batches_in, begins_with_first_batch, read_manifest};
use super::window::Window;
use super::{LogError, LogId, manifest, segment, writer};
use crate::persist::files::{File, Files};
use crate::persist::origin::SnapshotHead;

/// What the names of files end in that hold what was cut off.
pub const SUFFIX: &str = ".damaged";

/// Bytes that are copied at once.
const COPY_BYTES: usize = 1 << 20;

/// The state of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Which files make it up.
    pub manifest: Manifest,
    /// Batches that can be read, of those that are not in the base as a whole.
    pub batches: u64,
    /// Bytes of records in them.
    pub bytes: u64,
    /// The position up to which all is well.
    pub position: u64,
    /// Where and why it ends there, unless it is a clean end.
    pub damage: Option<Damage>,
}

/// Read a log to the first place that is not in order; `None` if there is no log.
///
/// # Errors
/// [`LogError`], but for damage.
pub fn check(files: Arc<dyn Files>, folder: &Path) -> Result<Option<Report>, LogError> {
    let Some(mut reader) = LogReader::open(files, folder)? else { return Ok(None) };
    let manifest = reader.manifest().clone();
    let mut report = Report { position: manifest.cut(), manifest, batches: 0, bytes: 0, damage: None };
    report.damage = loop {
        match reader.next_batch() {
            Ok(Some(batch)) => {
                report.batches += 1;
                report.bytes += batch.records.len() as u64;
                report.position = batch.position + batch.records.len() as u64;
            }
            Ok(None) => break reader.torn_tail().cloned(),
            Err(LogError::Damaged(damage)) => break Some(*damage),
            Err(error) => return Err(error),
        }
    };
    Ok(Some(report))
}

/// Put a log in order, so that it is read without complaint: a segment's header that is damaged alone is made again from the
/// manifest; otherwise the log is cut at the damage. What was found at first, and the names of the files that hold what was
/// cut off.
///
/// # Errors
/// [`LogError`].
pub fn fix(files: &Arc<dyn Files>, folder: &Path) -> Result<Option<(Report, Vec<String>)>, LogError> {
    let Some(found) = check(files.clone(), folder)? else { return Ok(None) };
    let mut kept = Vec::new();
    let mut damage = found.damage.clone();
    if let Some(place) = &damage {
        give_back_behind(&**files, folder, &found.manifest, place);
    }
    while let Some(place) = &damage {
        if !mend_header(&**files, folder, &found.manifest, place)? {
            kept = cut(&**files, folder, place)?;
            break;
        }
        damage = check(files.clone(), folder)?.and_then(|report| report.damage);
    }
    Ok(Some((found, kept)))
}

/// Give back the room that the last segment has reserved and not used, though nothing is cut off; how many bytes. No server may be
/// using the log. If the log is damaged it is [`fix`] that does so.
///
/// # Errors
/// [`LogError`].
pub fn give_back(files: &Arc<dyn Files>, folder: &Path) -> Result<u64, LogError> {
    let Some(reader) = LogReader::open(files.clone(), folder)? else { return Ok(0) };
    let end = reader.finish()?;
    let (Some(last), Some(content)) = (end.manifest.segments.last(), end.content) else { return Ok(0) };
    writer::give_back(&**files, &folder.join(&last.file), content).map_err(LogError::io(&last.file))
}

/// The same of a log that is damaged in its last segment, so that there is room to keep what is cut off. It is only tried.
fn give_back_behind(files: &dyn Files, folder: &Path, manifest: &Manifest, damage: &Damage) {
    let is_last = damage.segment + 1 == manifest.segments.len();
    // Behind a header that can be mended are batches, whose ends may be zeros.
    if is_last && damage.kind == Kind::Batch {
        let _ = writer::give_back(files, &folder.join(&damage.file), damage.offset + damage.bytes);
    }
}

/// Write a segment's header again if the batches begin behind it as they should; whether it was done.
fn mend_header(files: &dyn Files, folder: &Path, manifest: &Manifest, damage: &Damage) -> Result<bool, LogError> {
    let Segment { number, first, ref file } = manifest.segments[damage.segment];
    let failed = LogError::io(file);
    let path = folder.join(file);
    if !matches!(damage.kind, Kind::Header(_)) {
        return Ok(false);
    }
    let window = files.open(&path).and_then(Window::new).map_err(&failed)?;
    let header = segment::Header { id: manifest.id, number, first };
    if !begins_with_first_batch(window, &header).map_err(&failed)? {
        return Ok(false);
    }
    let written = files.open_to_write(&path).and_then(|file| {
        file.write_all_at(&header.encode(), 0)?;
        file.sync()
    });
    written.map_err(failed)?;
    Ok(true)
}

/// What was cut off a segment, by the name of the file that holds it.
pub struct CutOff {
    /// The segment's file.
    pub segment: String,
    /// Where it was cut.
    pub offset: u64,
    /// Batches in it that verify; `None` if the segment is not there to tell of which log they are.
    pub batches: Option<u64>,
    /// Bytes of records in them.
    pub records: u64,
}

/// Look at a file that holds what was cut off a segment beside it; `None` if the name is not that of one.
///
/// # Errors
/// Those of the system.
pub fn look_at_rest(files: &dyn Files, path: &Path) -> io::Result<Option<CutOff>> {
    let name = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_suffix(SUFFIX));
    let parts = name.and_then(|name| name.rsplit_once('.')).filter(|(file, _)| segment::number_of(file).is_some());
    let Some((file, offset)) = parts.and_then(|(file, offset)| Some((file, offset.parse::<u64>().ok()?))) else {
        return Ok(None);
    };
    let mut bytes = [0; segment::HEADER_BYTES];
    let header = files.open(&path.with_file_name(file)).and_then(|file| file.read_full_at(&mut bytes, 0));
    let header = header.ok().and_then(|read| segment::Header::decode(&bytes[..read]).ok());
    let found = match &header {
        Some(header) => Some(batches_in(Window::new(files.open(path)?)?, header)?),
        None => None,
    };
    let (batches, records) = (found.map(|(batches, _)| batches), found.map_or(0, |(_, records)| records));
    Ok(Some(CutOff { segment: file.to_owned(), offset, batches, records }))
}

/// Keep a torn tail beside the log before it is cut off; the file's name.
///
/// # Errors
/// Those of the system.
pub fn keep_torn(files: &dyn Files, folder: &Path, torn: &Damage) -> io::Result<Option<String>> {
    keep_rest(files, folder, &torn.file, torn.offset)
}

/// Make a manifest again that is lost or damaged, from what the segments and bases say of themselves. One that is there is
/// kept under another name, which is returned. That there were more segments behind the last one no file tells.
///
/// # Errors
/// Why that cannot be done: the files do not tell all, or not the same.
pub fn rebuild_manifest(files: &Arc<dyn Files>, folder: &Path) -> Result<Option<String>, String> {
    let manifest = manifest_of_files(&**files, folder)?;
    let mut reader = LogReader::of(files.clone(), folder, manifest.clone());
    loop {
        match reader.next_batch() {
            Ok(Some(_)) => {}
            Ok(None) => break,
            Err(error) => return Err(format!("what the segments hold does not fit together: {error}")),
        }
    }
    let (place, name) = (folder.join(manifest::FILE_NAME), format!("{}{SUFFIX}", manifest::FILE_NAME));
    let kept = match files.rename(&place, &folder.join(&name)) {
        Ok(()) => Some(name),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(format!("the manifest cannot be kept as '{name}': {error}")),
    };
    manifest.write(&**files, folder).map_err(|error| format!("the manifest cannot be written: {error}"))?;
    Ok(kept)
}

/// The manifest that names all segments in the folder, and the latest base that fits them.
fn manifest_of_files(files: &dyn Files, folder: &Path) -> Result<Manifest, String> {
    let names = files.list(folder).map_err(|error| error.to_string())?;
    let names: Vec<&str> = names.iter().filter_map(|name| name.to_str()).collect();
    let (mut segments, mut ids) = (Vec::new(), Vec::new());
    for name in names.iter().filter(|name| segment::number_of(name).is_some()) {
        let mut bytes = [0; segment::HEADER_BYTES];
        let read = files.open(&folder.join(name)).and_then(|file| file.read_full_at(&mut bytes, 0));
        let read = read.map_err(|error| format!("{name}: {error}"))?;
        let header = segment::Header::decode(&bytes[..read]).map_err(|what| format!("{name} {what}"))?;
        if segment::number_of(name) != Some(header.number) {
            return Err(format!("{name} is segment {} by what it holds", header.number));
        }
        segments.push(Segment { number: header.number, first: header.first, file: (*name).to_owned() });
        ids.push(header.id);
    }
    segments.sort_by_key(|segment| segment.number);
    let (Some(id), Some(first)) = (ids.first().copied(), segments.first().map(|segment| segment.first)) else {
        return Err("there is no segment".to_owned());
    };
    if ids.iter().any(|other| *other != id) {
        return Err("there are segments of several logs".to_owned());
    }
    if segments.is_sorted_by_key(|segment| segment.first) {
        let base = latest_base(files, folder, &names, &id);
        return match base {
            Some(base) if base.cut >= first => Ok(Manifest { id, base: Some(base), segments, closed: None }),
            None if first == 0 => Ok(Manifest { id, base: None, segments, closed: None }),
            _ => Err(format!("no base is there that says it has what comes before position {first}")),
        };
    }
    Err("the positions of the segments are not in the order of their numbers".to_owned())
}

/// The base that says that it has most of this log.
fn latest_base(files: &dyn Files, folder: &Path, names: &[&str], id: &LogId) -> Option<Base> {
    let bases = names.iter().filter(|name| writer::base_number_of(name).is_some()).filter_map(|name| {
        let head = SnapshotHead::read(&*files.open(&folder.join(name)).ok()?).ok()?;
        Some(Base { file: (*name).to_owned(), cut: head.origin.position_in(id)? })
    });
    bases.max_by_key(|base| base.cut)
}

fn cut(files: &dyn Files, folder: &Path, damage: &Damage) -> Result<Vec<String>, LogError> {
    let Some(mut manifest) = read_manifest(files, folder)? else { return Ok(Vec::new()) };
    // A segment goes as a whole if not even its beginning is in order. Then the one before is the last, and what stands behind
    // its batches counts for something again: it goes too.
    let (last, offset) = match (damage.kind, damage.previous_end) {
        (Kind::Batch, _) => (damage.segment + 1, damage.offset),
        (_, Some((segment, end))) => (segment + 1, end),
        (_, None) => (0, 0),
    };
    let dropped = manifest.segments.split_off(last);
    let shortened = manifest.segments.last().map(|segment| segment.file.clone());
    let mut kept = Vec::new();
    if let Some(file) = &shortened {
        kept.extend(keep_rest(files, folder, file, offset).map_err(LogError::io(file))?);
    }
    for Segment { file, .. } in &dropped {
        let name = format!("{file}{SUFFIX}");
        match files.rename(&folder.join(file), &folder.join(&name)) {
            Ok(()) => kept.push(name),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(LogError::io(file)(error)),
        }
    }
    files.sync_folder(folder).map_err(LogError::io(manifest::FILE_NAME))?;
    if let Some(file) = &shortened {
        let cut = files.open_to_write(&folder.join(file)).and_then(|file| {
            file.set_length(offset)?;
            file.sync()
        });
        cut.map_err(LogError::io(file))?;
    }
    manifest.write(files, folder).map_err(LogError::io(manifest::FILE_NAME))?;
    Ok(kept)
}

/// Copy what stands behind an offset, if there is anything.
fn keep_rest(files: &dyn Files, folder: &Path, file: &str, offset: u64) -> io::Result<Option<String>> {
    let from = files.open(&folder.join(file))?;
    let end = Window::new(files.open(&folder.join(file))?)?.end_of_content(offset)?;
    if end <= offset {
        return Ok(None);
    }
    let name = format!("{file}.{offset}{SUFFIX}");
    let path = folder.join(&name);
    let copied = files.create(&path).and_then(|to| copy(&*from, offset, end, &*to));
    copied.inspect_err(|_| {
        let _ = files.remove(&path);
    })?;
    Ok(Some(name))
}

fn copy(from: &dyn File, start: u64, end: u64, to: &dyn File) -> io::Result<()> {
    let (mut at, mut buffer) = (start, vec![0; COPY_BYTES]);
    while at < end {
        let piece = &mut buffer[..(end - at).min(COPY_BYTES as u64) as usize];
        let read = from.read_full_at(piece, at)?;
        if read == 0 {
            break;
        }
        to.write_all_at(&piece[..read], at - start)?;
        at += read as u64;
    }
    to.sync()
}
