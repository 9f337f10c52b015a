//! Writing a log.
//!
//! | what failed | then |
//! | --- | --- |
//! | writing a batch, also in part; making the next segment; a manifest | [`WriteError::Again`]: nothing is lost and nothing promised; the next append goes to the same place |
//! | syncing a segment | [`WriteError::Failed`]: what was written since the last sync may be gone, though a later sync would succeed. That segment is never written or synced again |
//! | anything after that | [`WriteError::Unusable`], until [`LogWriter::restart_after_failure`] |
//!
//! A writer never continues a segment that it has not begun: behind the end of one that was read there may be batches that
//! were cut off, and they must not come back. A segment is begun when all before is synced, and is written to when a
//! manifest that names it is safe. Files are removed when a manifest that does not name them is safe.
//!
//! **Room.** A segment reserves its room at once, and what it does not need is given back when it is left, or by the start
//! after a crash. A log that grows never takes the last of a disk: it leaves the room in which a new base fits, so that the
//! log can always be rewritten, which gives back the segments before. That is as much as the base takes and a quarter more,
//! within bounds ([`LEAST_SPARE_BYTES`], [`MOST_SPARE_BYTES`]).

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::batch::{ALIGNMENT, Header, batch_bytes};
use super::manifest::{self, Base, Manifest, Segment};
use super::reader::{LogEnd, read_manifest};
use super::segment;
use super::{LogId, batch};
use crate::persist::files::{File, Files};

/// A batch up to this size is written with one call, from a buffer that is kept.
const BUFFER_BYTES: usize = 1 << 20;

/// A segment that makes others needless, or with which a start begins, leaves only so much room: a manifest needs some.
const BARE_SPARE_BYTES: u64 = 12 << 10;

/// The least room that a log leaves on the disk as it grows: a small base and a manifest fit.
pub const LEAST_SPARE_BYTES: u64 = 48 << 10;

/// The most room that it leaves: that of a segment.
pub const MOST_SPARE_BYTES: u64 = segment::SEGMENT_BYTES;

/// Something could not be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// It may be tried again: nothing that was appended is lost.
    #[error(transparent)]
    Again(io::Error),
    /// A sync failed: what was appended since the last one may or may not be kept, and the writer is unusable now.
    #[error("sync of the log failed: {0}")]
    Failed(io::Error),
    /// The names of the log do not lead to its files any more: what was appended will not be found.
    #[error(transparent)]
    Lost(io::Error),
    /// A sync failed earlier.
    #[error("an earlier sync of the log failed")]
    Unusable,
}

/// Appends to a log. Dropping it leaves the log as it is after a crash of the process.
pub struct LogWriter {
    files: Arc<dyn Files>,
    folder: PathBuf,
    segment_bytes: u64,
    /// As it was written last; its last segment is the current one.
    manifest: Manifest,
    current: OpenSegment,
    /// The next segment, on disk, while no manifest that names it is known to be safe. One may be in place already, so there
    /// is no way back to the current segment.
    pending: Option<OpenSegment>,
    next_number: u64,
    position: u64,
    synced: u64,
    failed: bool,
    buffer: Vec<u8>,
}

struct OpenSegment {
    file: Box<dyn File>,
    number: u64,
    first: u64,
    /// Where the next batch goes.
    offset: u64,
    length: u64,
}

impl OpenSegment {
    fn entry(&self) -> Segment {
        Segment { number: self.number, first: self.first, file: segment::file_name(self.number) }
    }
}

impl LogWriter {
    /// Begin a new log, on a base or on nothing; one that is in the folder is given up.
    ///
    /// # Errors
    /// Those of the system: the log that was there is still the one that counts, or the new one is.
    pub fn create(
        files: Arc<dyn Files>,
        folder: &Path,
        base: Option<Base>,
        segment_bytes: u64,
    ) -> io::Result<LogWriter> {
        Self::create_as(LogId::random(), files, folder, base, segment_bytes)
    }

    /// The same under this id, which no other log has.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub fn create_as(
        id: LogId,
        files: Arc<dyn Files>,
        folder: &Path,
        base: Option<Base>,
        segment_bytes: u64,
    ) -> io::Result<LogWriter> {
        files.create_folder(folder)?;
        files.sync_folder(folder.parent().unwrap_or(Path::new("/")))?;
        let manifest = Manifest { id, base, segments: Vec::new(), closed: None };
        let (position, number) = (manifest.cut(), next_number(&*files, folder, &manifest)?);
        Self::begin(files, folder, manifest, (position, number), segment_bytes)
    }

    /// Continue a log that was read, in a new segment.
    ///
    /// # Errors
    /// Those of the system.
    pub fn open(files: Arc<dyn Files>, folder: &Path, end: LogEnd, segment_bytes: u64) -> io::Result<LogWriter> {
        let last = end.manifest.segments.last().cloned();
        if let Some(last) = &last {
            settle(&*files, &folder.join(&last.file), end.unsynced)?;
            // Before anything that needs room: it may be all that is left. Nothing depends on it.
            let _ = end.content.map(|content| give_back(&*files, &folder.join(&last.file), content));
        }
        let number = next_number(&*files, folder, &end.manifest)?;
        remove_left_behind(&*files, folder, &end.manifest);
        let mut manifest = Manifest { closed: None, ..end.manifest };
        let (cut, mut ends) = (manifest.cut(), end.segment_ends.into_iter());
        manifest.segments.retain(|segment| ends.next().is_some_and(|end| end > cut && end > segment.first));
        let writer = Self::begin(files, folder, manifest, (end.position, number), segment_bytes)?;
        if let Some(last) = last.filter(|last| writer.manifest.segments.contains(last))
            && !end.keeps_tail
        {
            // Cuts off the torn tail; nothing depends on it.
            let _ = give_back(&*writer.files, &folder.join(&last.file), end.unsynced.1);
        }
        Ok(writer)
    }

    fn begin(
        files: Arc<dyn Files>,
        folder: &Path,
        manifest: Manifest,
        (position, mut next_number): (u64, u64),
        segment_bytes: u64,
    ) -> io::Result<LogWriter> {
        let maker = Maker { files: &*files, folder, base: manifest.base.as_ref(), id: manifest.id, segment_bytes };
        let current = maker.make(&mut next_number, position, 0, Spare::IfThereIs)?;
        let manifest = with_segment(manifest, &current);
        put_first(&*files, folder, &manifest, &current)?;
        let (folder, buffer) = (folder.to_owned(), Vec::new());
        let writer = LogWriter {
            files,
            folder,
            segment_bytes,
            manifest,
            current,
            pending: None,
            next_number,
            position,
            synced: position,
            failed: false,
            buffer,
        };
        writer.remove_strays();
        Ok(writer)
    }

    /// The position of the next record.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Everything below this position is safe.
    pub fn synced(&self) -> u64 {
        self.synced
    }

    /// Which files make up the log.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Whether a sync failed, so that only a [restart](Self::restart_after_failure) helps.
    pub fn has_failed(&self) -> bool {
        self.failed
    }

    /// Do not write to these files any more, as after a failed sync.
    pub fn give_up(&mut self) {
        self.failed = true;
    }

    /// The folder has another name now.
    pub fn relocate(&mut self, folder: &Path) {
        self.folder = folder.to_owned();
    }

    /// Whether the names of the log still lead to its files: somebody may have removed or moved them, and what is written then
    /// would not be found by a start.
    ///
    /// # Errors
    /// What is gone.
    pub fn is_in_place(&self) -> Result<(), WriteError> {
        let base = self.manifest.base.iter().map(|base| &*base.file);
        let segments = self.manifest.segments.iter().map(|segment| &*segment.file);
        for name in [manifest::FILE_NAME].into_iter().chain(base).chain(segments) {
            let path = self.folder.join(name);
            let found = match self.files.identity(&path) {
                Ok(found) => found,
                Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                    return Err(lost(&path));
                }
                // Whether it is there cannot be told now.
                Err(_) => continue,
            };
            let is_current = segment::number_of(name) == Some(self.current.number);
            let own = if is_current { self.current.file.identity().ok().flatten() } else { None };
            if own.is_some() && found.is_some() && own != found {
                return Err(lost(&path));
            }
        }
        Ok(())
    }

    /// Append whole records as one batch; nothing if there are none. They are safe after the next [`sync`](Self::sync).
    ///
    /// # Errors
    /// [`WriteError`]. After [`Again`](WriteError::Again) the position is as before.
    pub fn append(&mut self, records: &[u8]) -> Result<(), WriteError> {
        self.usable()?;
        if records.is_empty() {
            return Ok(());
        }
        let bytes = batch_bytes(records.len() as u64);
        while self.pending.is_some() || self.current.offset + bytes > self.current.length {
            self.rotate(bytes)?;
        }
        self.write_batch(records)
    }

    /// Make safe what was appended.
    ///
    /// # Errors
    /// [`WriteError::Failed`], [`WriteError::Unusable`].
    pub fn sync(&mut self) -> Result<(), WriteError> {
        self.usable()?;
        if self.synced < self.position { self.sync_current() } else { Ok(()) }
    }

    /// Write down what is known to be synced, for whoever reads the log. Batches do that too, but only for what was synced
    /// before them. The mark itself is not synced.
    ///
    /// # Errors
    /// [`WriteError`].
    pub fn mark(&mut self) -> Result<(), WriteError> {
        self.usable()?;
        self.write_batch(&[])
    }

    /// Put a new base under the log, and give up the segments that lie below its cut. The base's file is in the log's folder
    /// and safe there, and so is its name, which [`next_base_name`] gave.
    ///
    /// # Errors
    /// [`WriteError::Again`]: the old base may count or the new one, and both must stay. [`WriteError::Unusable`].
    pub fn retire(&mut self, base: Base) -> Result<(), WriteError> {
        self.usable()?;
        if base.cut < self.manifest.cut() {
            return Err(WriteError::Again(io::ErrorKind::InvalidInput.into()));
        }
        if self.pending.is_some() {
            self.rotate(0)?;
        }
        self.put(without_covered(Manifest { base: Some(base), ..self.manifest.clone() }))?;
        self.remove_strays();
        Ok(())
    }

    /// After a failed sync: go on from the base's cut, in a new segment, without those that were there. Records from the cut
    /// on must be appended again. The base's file is in the log's folder and safe there.
    ///
    /// # Errors
    /// [`WriteError::Again`]: the old base may count or the new one, and both must stay.
    pub fn restart_after_failure(&mut self, base: Base) -> Result<(), WriteError> {
        let cut = base.cut;
        let segment = self.make_segment(Some(&base), cut, 0, Spare::IfThereIs)?;
        let manifest = Manifest { base: Some(base), segments: vec![segment.entry()], ..self.manifest.clone() };
        put_first(&*self.files, &self.folder, &manifest, &segment).map_err(WriteError::Again)?;
        self.manifest = manifest;
        (self.current, self.pending, self.failed) = (segment, None, false);
        (self.position, self.synced) = (cut, cut);
        self.remove_strays();
        Ok(())
    }

    /// Sync everything and write down that it is. The reserved room is given back.
    ///
    /// # Errors
    /// [`WriteError`].
    pub fn close(mut self) -> Result<(), WriteError> {
        self.finish()
    }

    /// Try all that [`switch_off`](Self::switch_off) needs, but for the last step. The log goes on.
    ///
    /// # Errors
    /// [`WriteError`].
    pub fn prepare_switch_off(&mut self, now_ms: u64) -> Result<(), WriteError> {
        self.sync()?;
        let manifest = Manifest { closed: Some(now_ms), ..self.manifest.clone() };
        manifest.prepare(&*self.files, &self.folder).map_err(WriteError::Again)
    }

    /// [Close](Self::close) a log that is switched off: what happens from now on will not be in it.
    ///
    /// # Errors
    /// [`WriteError`]. It may or may not be closed on disk then, and must be [given up](Self::give_up) to go on.
    pub fn switch_off(&mut self, now_ms: u64) -> Result<(), WriteError> {
        self.finish()?;
        let mut manifest = Manifest { closed: Some(now_ms), ..self.manifest.clone() };
        manifest.segments.extend(self.pending.as_ref().map(OpenSegment::entry));
        manifest.write(&*self.files, &self.folder).map_err(WriteError::Again)
    }

    fn finish(&mut self) -> Result<(), WriteError> {
        self.sync()?;
        self.mark()?;
        self.sync_current()?;
        // Nothing depends on it.
        let _ = self.current.file.set_length(self.current.offset);
        Ok(())
    }

    fn usable(&self) -> Result<(), WriteError> {
        if self.failed { Err(WriteError::Unusable) } else { Ok(()) }
    }

    fn write_batch(&mut self, records: &[u8]) -> Result<(), WriteError> {
        let header = Header::new(&self.manifest.id, self.position, self.synced, records);
        let header = header.ok_or_else(|| WriteError::Again(io::ErrorKind::InvalidInput.into()))?;
        let OpenSegment { file, number, offset, .. } = &self.current;
        let encoded = header.encode(&self.manifest.id, *number);
        let padding = &[0; ALIGNMENT][..records.len().next_multiple_of(ALIGNMENT) - records.len()];
        let behind = offset + batch::HEADER_BYTES as u64;
        let written = if records.len() <= BUFFER_BYTES {
            self.buffer.clear();
            [&encoded, records, padding].iter().for_each(|part| self.buffer.extend_from_slice(part));
            file.write_all_at(&self.buffer, *offset)
        } else {
            file.write_all_at(&encoded, *offset)
                .and_then(|()| file.write_all_at(records, behind))
                .and_then(|()| file.write_all_at(padding, behind + records.len() as u64))
        };
        written.map_err(WriteError::Again)?;
        self.current.offset += header.batch_bytes();
        self.position = header.end();
        Ok(())
    }

    fn sync_current(&mut self) -> Result<(), WriteError> {
        let synced = self.current.file.sync().and_then(|()| match self.current.file.has_name()? {
            true => Ok(()),
            // Whoever removed it has removed what is in it.
            false => Err(io::Error::new(io::ErrorKind::NotFound, "the segment's file was removed")),
        });
        if let Err(error) = synced {
            self.failed = true;
            return Err(WriteError::Failed(error));
        }
        self.synced = self.position;
        Ok(())
    }

    /// Go to a new segment, in which a batch of so many bytes has room.
    fn rotate(&mut self, bytes: u64) -> Result<(), WriteError> {
        let next = match self.pending.take() {
            Some(pending) => pending,
            None => {
                self.sync()?;
                self.give_back_rest();
                // If the base has all, the segments that are there go, and there is room again.
                let spare = if self.position <= self.manifest.cut() { Spare::IfThereIs } else { Spare::Always };
                self.make_segment(self.manifest.base.clone().as_ref(), self.position, bytes, spare)?
            }
        };
        let before = self.manifest.segments.clone();
        let manifest = without_covered(with_segment(self.manifest.clone(), &next));
        self.pending = Some(next);
        self.put(manifest)?;
        if let Some(next) = self.pending.take() {
            self.current = next;
        }
        // Nothing else: a base that no manifest names may be about to be put under the log.
        for Segment { file, .. } in before.iter().filter(|segment| !self.manifest.segments.contains(segment)) {
            let _ = self.files.remove(&self.folder.join(file));
        }
        Ok(())
    }

    /// The current segment is left: nothing is written behind what is in it.
    fn give_back_rest(&mut self) {
        let OpenSegment { file, offset, length, .. } = &mut self.current;
        if *offset < *length {
            // Nothing depends on it.
            let _ = file.set_length(*offset);
            *length = *offset;
        }
    }

    fn make_segment(
        &mut self,
        base: Option<&Base>,
        first: u64,
        bytes: u64,
        spare: Spare,
    ) -> Result<OpenSegment, WriteError> {
        let (id, segment_bytes) = (self.manifest.id, self.segment_bytes);
        let maker = Maker { files: &*self.files, folder: &self.folder, base, id, segment_bytes };
        maker.make(&mut self.next_number, first, bytes, spare).map_err(WriteError::Again)
    }

    fn put(&mut self, manifest: Manifest) -> Result<(), WriteError> {
        manifest.write(&*self.files, &self.folder).map_err(WriteError::Again)?;
        self.manifest = manifest;
        Ok(())
    }

    /// Remove segments and bases that the manifest does not name. Those that stay are tried again next time.
    fn remove_strays(&self) {
        remove_unnamed(&*self.files, &self.folder, &self.manifest);
    }
}

fn remove_unnamed(files: &dyn Files, folder: &Path, manifest: &Manifest) {
    let Ok(names) = files.list(folder) else { return };
    for name in names.iter().filter_map(|name| name.to_str()) {
        let is_base = manifest.base.as_ref().is_some_and(|base| base.file == name);
        let is_segment = manifest.segments.iter().any(|segment| segment.file == name);
        let ours = segment::number_of(name).is_some() || base_number_of(name).is_some();
        if (ours || name == manifest::TEMPORARY_NAME) && !is_base && !is_segment {
            let _ = files.remove(&folder.join(name));
        }
    }
}

/// Remove what attempts that failed have left beside the log that was read: they may have taken all the room.
fn remove_left_behind(files: &dyn Files, folder: &Path, manifest: &Manifest) {
    // Before its name is safe, it may not be the one that counts after a power loss.
    if files.sync_folder(folder).is_ok() {
        remove_unnamed(files, folder, manifest);
    }
}

/// Cut a segment's file behind what is in it. Returns how many bytes it was longer.
pub(super) fn give_back(files: &dyn Files, path: &Path, content: u64) -> io::Result<u64> {
    let file = files.open_to_write(path)?;
    let rest = file.length()?.saturating_sub(content);
    if rest > 0 {
        file.set_length(content)?;
    }
    Ok(rest)
}

/// Put a manifest in place with whose last segment a log begins, or goes on. If that fails, the segment does not keep the room that it
/// has reserved: if the disk is full, it must not get fuller with every attempt.
fn put_first(files: &dyn Files, folder: &Path, manifest: &Manifest, segment: &OpenSegment) -> io::Result<()> {
    manifest.prepare(files, folder).inspect_err(|_| {
        // No manifest names it.
        let _ = files.remove(&folder.join(segment::file_name(segment.number)));
    })?;
    Manifest::replace(files, folder).inspect_err(|_| {
        // The one that names it may be in place.
        let _ = segment.file.set_length(segment.offset);
    })
}

/// A number for a segment that no other has. No file that is there is written over: it may belong to the log that still counts.
fn next_number(files: &dyn Files, folder: &Path, manifest: &Manifest) -> io::Result<u64> {
    let number_of = |name: &str| segment::number_of(name.strip_suffix(super::repair::SUFFIX).unwrap_or(name));
    let taken = files.list(folder)?.iter().filter_map(|name| number_of(name.to_str()?)).max();
    Ok(taken.max(manifest.segments.iter().map(|segment| segment.number).max()).unwrap_or(0) + 1)
}

fn lost(path: &Path) -> WriteError {
    let reason = format!("'{}' was removed or moved away", path.display());
    WriteError::Lost(io::Error::new(io::ErrorKind::NotFound, reason))
}

/// The manifest with one more segment, and without those that turned out empty.
fn with_segment(mut manifest: Manifest, next: &OpenSegment) -> Manifest {
    manifest.segments.push(next.entry());
    let firsts: Vec<u64> = manifest.segments.iter().skip(1).map(|segment| segment.first).collect();
    let mut ends = firsts.into_iter().chain([u64::MAX]);
    manifest.segments.retain(|segment| ends.next().is_some_and(|end| end > segment.first));
    manifest
}

/// The manifest without segments that the base has all of, but for the last one.
fn without_covered(mut manifest: Manifest) -> Manifest {
    let ends = manifest.segments.iter().skip(1).map(|next| next.first);
    let covered = ends.take_while(|end| *end <= manifest.cut()).count();
    manifest.segments.drain(..covered);
    manifest
}

/// Whether the room for a new base is left on the disk.
#[derive(Clone, Copy, PartialEq)]
enum Spare {
    /// Or no segment is made.
    Always,
    /// If there is that much; the segment is as small as it can be if there is not.
    IfThereIs,
}

/// Makes segments.
struct Maker<'a> {
    files: &'a dyn Files,
    folder: &'a Path,
    base: Option<&'a Base>,
    id: LogId,
    segment_bytes: u64,
}

impl Maker<'_> {
    /// A segment on disk, safe but for the manifest. What fails is not used again, but a file of another name made.
    fn make(&self, next_number: &mut u64, first: u64, batch: u64, spare: Spare) -> io::Result<OpenSegment> {
        let number = *next_number;
        if number > segment::MAX_NUMBER {
            return Err(io::Error::other("there is no number left for a segment"));
        }
        *next_number += 1;
        let path = self.folder.join(segment::file_name(number));
        let offset = segment::HEADER_BYTES as u64;
        let length = self.segment_bytes.max(offset + batch);
        let make = || {
            let file = self.files.create(&path)?;
            let length = reserve(&*file, (length, offset + batch), (self.spare_bytes(), spare))?;
            file.write_all_at(&segment::Header { id: self.id, number, first }.encode(), 0)?;
            file.sync()?;
            self.files.sync_folder(self.folder)?;
            Ok(OpenSegment { file, number, first, offset, length })
        };
        make().inspect_err(|_| {
            let _ = self.files.remove(&path);
        })
    }

    /// The room that a new base needs, as far as the one that is there tells.
    fn spare_bytes(&self) -> u64 {
        let length = |base: &Base| self.files.open(&self.folder.join(&base.file)).and_then(|file| file.length()).ok();
        let base = self.base.and_then(length).unwrap_or(0);
        base.saturating_add(base / 4).saturating_add(LEAST_SPARE_BYTES).min(MOST_SPARE_BYTES)
    }
}

/// Reserve room for a segment: if there is not as much as wanted, then less, down to what is needed at least. Returns how much.
/// Besides, so much is left on the disk as the log has to spare.
fn reserve(file: &dyn File, (wanted, least): (u64, u64), (spare, when): (u64, Spare)) -> io::Result<u64> {
    let (mut length, mut beside) = (wanted, spare);
    loop {
        let error = match file.allocate(length.saturating_add(beside)) {
            Ok(()) => {
                file.set_length(length)?;
                return Ok(length);
            }
            Err(error) => error,
        };
        // What a refused attempt has reserved is given back.
        file.set_length(0)?;
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {}
            // A limit of files' lengths says nothing of the disk.
            io::ErrorKind::FileTooLarge if beside > 0 => {
                beside = 0;
                continue;
            }
            io::ErrorKind::FileTooLarge => {}
            _ => return Err(error),
        }
        if length > least {
            // At last just what is needed: a quarter may be less than that, and yet there may be room for it.
            length = (length / 4).max(least);
        } else if beside > BARE_SPARE_BYTES {
            if when == Spare::Always {
                return Err(only_for_a_base(file, spare).unwrap_or(error));
            }
            beside = BARE_SPARE_BYTES;
        } else {
            return Err(error);
        }
    }
}

/// What to say if there is room, but hardly more than is left for a new base.
fn only_for_a_base(file: &dyn File, spare: u64) -> Option<io::Error> {
    file.allocate(spare.saturating_sub(BARE_SPARE_BYTES)).ok()?;
    let text = "the disk is full, but for the room that is left to rewrite the log: BGREWRITEAOF may make room";
    Some(io::Error::new(io::ErrorKind::StorageFull, text))
}

/// Make safe what was read from a segment though nothing tells that it was synced. It is written once more: after a sync
/// that failed, the system may take what it has in memory for safe, though it is not on disk.
fn settle(files: &dyn Files, path: &Path, (from, to): (u64, u64)) -> io::Result<()> {
    if from >= to {
        return Ok(());
    }
    let file = files.open_to_write(path)?;
    let (mut at, mut buffer) = (from, vec![0; BUFFER_BYTES]);
    while at < to {
        let piece = &mut buffer[..(to - at).min(BUFFER_BYTES as u64) as usize];
        let read = file.read_full_at(piece, at)?;
        if read == 0 {
            break;
        }
        file.write_all_at(&piece[..read], at)?;
        at += read as u64;
    }
    file.sync()
}

/// A file name for a base that no other in the folder has.
///
/// # Errors
/// Those of the system.
pub fn next_base_name(files: &dyn Files, folder: &Path) -> io::Result<String> {
    let taken = files.list(folder)?.iter().filter_map(|name| base_number_of(name.to_str()?)).max();
    Ok(base_name(taken.unwrap_or(0) + 1))
}

/// Remove bases that no manifest names which may be the one that counts: that on disk, once its name is safe, and `own`, the
/// last one that a writer has put there. They are left behind by attempts that failed.
pub fn remove_unnamed_bases(files: &dyn Files, folder: &Path, own: Option<&Manifest>) {
    let look = || -> Option<(Vec<PathBuf>, Option<Manifest>)> {
        files.sync_folder(folder).ok()?;
        Some((files.list(folder).ok()?, read_manifest(files, folder).ok()?))
    };
    let Some((names, found)) = look() else { return };
    let bases: Vec<&Base> =
        [own, found.as_ref()].into_iter().flatten().filter_map(|other| other.base.as_ref()).collect();
    for name in names.iter().filter_map(|name| name.to_str()) {
        if base_number_of(name).is_some() && bases.iter().all(|base| base.file != name) {
            let _ = files.remove(&folder.join(name));
        }
    }
}

fn base_name(number: u64) -> String {
    format!("base-{number}.rdb")
}

pub(super) fn base_number_of(name: &str) -> Option<u64> {
    let digits = name.strip_prefix("base-")?.strip_suffix(".rdb")?;
    digits.parse().ok().filter(|number| *number < u64::MAX && base_name(*number) == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file on a disk that has room for so many bytes.
    struct Small(u64);

    impl File for Small {
        fn read_at(&self, _: &mut [u8], _: u64) -> io::Result<usize> {
            Ok(0)
        }
        fn write_at(&self, bytes: &[u8], _: u64) -> io::Result<usize> {
            Ok(bytes.len())
        }
        fn sync(&self) -> io::Result<()> {
            Ok(())
        }
        fn allocate(&self, length: u64) -> io::Result<()> {
            if length <= self.0 { Ok(()) } else { Err(io::ErrorKind::StorageFull.into()) }
        }
        fn set_length(&self, _: u64) -> io::Result<()> {
            Ok(())
        }
        fn length(&self) -> io::Result<u64> {
            Ok(0)
        }
    }

    /// On a disk with 2 MB left, a batch of a little more than 1 MiB was refused for ever; and what was there was taken to the
    /// last block, so that nothing else fitted beside it.
    #[test]
    fn whatever_has_room_is_reserved_and_some_is_left() {
        let (wanted, spare) = (64 << 20, 50_000);
        let both = [Spare::Always, Spare::IfThereIs];
        for (room, least, reserved) in [
            (u64::MAX, 100, [Some(wanted); 2]),
            (20 << 20, 100, [Some(16 << 20); 2]),
            (16 << 20, 100, [Some(4 << 20); 2]),
            (2_000_000, 1_060_000, [Some(1_060_000); 2]),
            (1_110_000, 1_060_000, [Some(1_060_000); 2]),
            (1_109_999, 1_060_000, [None, Some(1_060_000)]),
            (1_072_288, 1_060_000, [None, Some(1_060_000)]),
            (1_072_287, 1_060_000, [None; 2]),
            (64 << 10, 12_000, [Some(12_000); 2]),
            (12_388, 100, [None, Some(100)]),
            (12_387, 100, [None; 2]),
            (99, wanted, [None; 2]),
        ] {
            for (when, reserved) in both.into_iter().zip(reserved) {
                let found = reserve(&Small(room), (wanted, least), (spare, when));
                assert_eq!(found.as_ref().ok(), reserved.as_ref(), "{least} of {room}");
                let hint = found.is_err_and(|error| error.to_string().contains("BGREWRITEAOF"));
                assert_eq!(hint, reserved.is_none() && when == Spare::Always && room > spare, "{least} of {room}");
            }
        }
    }
}
