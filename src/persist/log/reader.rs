//! Reading a log: batch by batch, in order, with one batch in memory at a time.
//!
//! What is done where a batch does not verify is told in [`damage`](super::damage). Damage to what is needed no more, since
//! the base holds it, is jumped over if the log goes on behind it in time.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::batch::{self, HEADER_BYTES};
use super::damage::{Damage, Kind};
use super::manifest::{self, Manifest};
use super::window::Window;
use super::{LogError, LogId, segment};
use crate::persist::files::Files;

/// Records that were logged in one go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch<'a> {
    /// The segment's file.
    pub file: &'a str,
    /// Offset of the batch in it.
    pub offset: u64,
    /// Position of the first of these records.
    pub position: u64,
    /// One or more whole records; without those that are in the base.
    pub records: &'a [u8],
}

/// Reads a log from its base's cut to its end.
pub struct LogReader {
    files: Arc<dyn Files>,
    folder: PathBuf,
    manifest: Manifest,
    /// The segment that is read, as its place in the manifest.
    index: usize,
    window: Option<Window>,
    /// Where the next batch is, and its position.
    offset: u64,
    position: u64,
    /// The last segment that was left, and where its batches end.
    previous_end: Option<(usize, u64)>,
    /// The batch that is handed out.
    current: Option<(u64, batch::Header)>,
    unsure: Unsure,
    read_bytes: u64,
    total_bytes: u64,
    torn: Option<Damage>,
    finished: bool,
    known_synced: u64,
}

/// Where those batches of a segment begin that may not be synced. Only two places are kept, so that the memory is bounded;
/// what lies between them is said to be unsure for longer than it needs to be.
#[derive(Clone, Copy, Debug, Default)]
struct Unsure {
    offset: u64,
    next_offset: u64,
    next_position: u64,
}

impl Unsure {
    fn at(offset: u64, position: u64) -> Unsure {
        Unsure { offset, next_offset: offset, next_position: position }
    }

    /// A batch at `offset` says what was synced.
    fn pass(&mut self, offset: u64, header: &batch::Header) {
        // Only records behind the remembered place prove that all before it is synced: up to its position records may be so,
        // and a mark that was written after them not.
        if header.known_synced > self.next_position {
            self.offset = self.next_offset;
            (self.next_offset, self.next_position) = (offset, header.position);
        }
    }
}

/// Where a log ends, for the writer that continues it.
#[derive(Clone, Debug)]
pub struct LogEnd {
    /// The manifest that was read.
    pub manifest: Manifest,
    /// The position of the next record: behind the last one, or that of the base's cut.
    pub position: u64,
    /// The torn tail, which is to be cut off.
    pub torn: Option<Damage>,
    /// The torn tail stays in its file, though it counts for nothing: it has no other place.
    pub keeps_tail: bool,
    /// Where the last record of each segment ends.
    pub(super) segment_ends: Vec<u64>,
    /// Offsets in the last segment between which batches may not be synced.
    pub(super) unsynced: (u64, u64),
    /// Where all that is in the last segment ends, a torn tail too: behind it is room that was reserved. `None` if that segment was
    /// not read.
    pub(super) content: Option<u64>,
}

/// What stands behind a damaged place.
#[derive(Default)]
struct Behind {
    bytes: u64,
    batches: u64,
    records: u64,
    known_synced: u64,
    first: Option<Place>,
}

/// A batch that verifies.
#[derive(Clone, Copy)]
struct Place {
    index: usize,
    offset: u64,
    position: u64,
}

impl LogReader {
    /// Open the log of this folder; `None` if there is no manifest, or not even the folder.
    ///
    /// # Errors
    /// [`LogError`].
    pub fn open(files: Arc<dyn Files>, folder: &Path) -> Result<Option<LogReader>, LogError> {
        let Some(manifest) = read_manifest(&*files, folder)? else { return Ok(None) };
        Ok(Some(LogReader::of(files, folder, manifest)))
    }

    /// Open a single segment, as if it were a whole log.
    ///
    /// # Errors
    /// [`LogError`]; [`LogError::Segment`] if the file is none.
    pub fn open_segment_file(files: Arc<dyn Files>, path: &Path) -> Result<LogReader, LogError> {
        let folder = path.parent().unwrap_or(Path::new(""));
        let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut bytes = [0; segment::HEADER_BYTES];
        let read =
            files.open(path).and_then(|opened| opened.read_full_at(&mut bytes, 0)).map_err(LogError::io(&file))?;
        let header = segment::Header::decode(&bytes[..read])
            .map_err(|what| LogError::Segment { file: file.clone(), what: what.to_owned() })?;
        let only = manifest::Segment { number: header.number, first: header.first, file };
        let manifest = Manifest { id: header.id, base: None, segments: vec![only], closed: None };
        Ok(LogReader::of(files, folder, manifest))
    }

    pub(super) fn of(files: Arc<dyn Files>, folder: &Path, manifest: Manifest) -> LogReader {
        let cut = manifest.cut();
        let start = manifest.segments.iter().rposition(|segment| segment.first <= cut).unwrap_or(0);
        let mut total_bytes = 0;
        for segment in manifest.segments.iter().skip(start) {
            // One that is not there is reported when it is its turn.
            total_bytes += files.open(&folder.join(&segment.file)).and_then(|file| file.length()).unwrap_or(0);
        }
        let position = manifest.segments.get(start).map_or(cut, |segment| segment.first);
        LogReader {
            files,
            folder: folder.to_owned(),
            manifest,
            index: start,
            window: None,
            offset: 0,
            position,
            previous_end: None,
            current: None,
            unsure: Unsure::default(),
            read_bytes: 0,
            total_bytes,
            torn: None,
            finished: false,
            known_synced: 0,
        }
    }

    /// Which files make up the log.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The next batch; `None` at the end of the log.
    ///
    /// # Errors
    /// [`LogError::Damaged`] if records are gone that had been synced; other [`LogError`]s.
    pub fn next_batch(&mut self) -> Result<Option<Batch<'_>>, LogError> {
        let cut = self.manifest.cut();
        loop {
            if !self.advance()? {
                return Ok(None);
            }
            if self.current.is_some_and(|(_, header)| header.length > 0 && header.end() > cut) {
                break;
            }
        }
        let file = &self.manifest.segments[self.index].file;
        let (Some((offset, header)), Some(window)) = (self.current, &mut self.window) else { return Ok(None) };
        let skipped = cut.saturating_sub(header.position);
        let at = offset + HEADER_BYTES as u64 + skipped;
        let records = window.bytes(at, u64::from(header.length) - skipped).map_err(LogError::io(file))?;
        Ok(Some(Batch { file, offset, position: header.position + skipped, records }))
    }

    /// Read to the end without looking at the records.
    ///
    /// # Errors
    /// As [`next_batch`](Self::next_batch).
    pub fn finish(mut self) -> Result<LogEnd, LogError> {
        while self.next_batch()?.is_some() {}
        let position = self.position.max(self.manifest.cut());
        let firsts = self.manifest.segments.iter().skip(1).map(|segment| segment.first);
        let segment_ends = firsts.chain([self.position]).take(self.manifest.segments.len()).collect();
        let unsynced = (self.unsure.offset.min(self.offset), self.offset);
        let is_last = self.window.is_some() && self.index + 1 == self.manifest.segments.len();
        let tail = self.torn.as_ref().map_or(0, |torn| torn.bytes);
        let content = is_last.then_some(self.offset + tail);
        let keeps_tail = false;
        Ok(LogEnd { manifest: self.manifest, position, torn: self.torn, keeps_tail, segment_ends, unsynced, content })
    }

    /// The torn tail, once the end is reached.
    pub fn torn_tail(&self) -> Option<&Damage> {
        self.torn.as_ref()
    }

    /// Below this position everything was synced, as far as the batches say that were read.
    pub fn known_synced(&self) -> u64 {
        self.known_synced
    }

    /// Bytes of files that were read, and how many there are; the second can be too high, as reserved room counts.
    pub fn progress(&self) -> (u64, u64) {
        (self.read_bytes + self.offset, self.total_bytes)
    }

    /// Go to the next batch; `false` at the end.
    fn advance(&mut self) -> Result<bool, LogError> {
        while !self.finished {
            let limit = self.manifest.segments.get(self.index + 1).map_or(u64::MAX, |next| next.first);
            if self.index >= self.manifest.segments.len() {
                self.finished = true;
            } else if self.position >= limit {
                self.leave_segment();
            } else if self.window.is_none() {
                self.enter_segment()?;
            } else if let Some(header) = self.batch_here()?.filter(|header| header.end() <= limit) {
                self.unsure.pass(self.offset, &header);
                self.known_synced = self.known_synced.max(header.known_synced);
                self.current = Some((self.offset, header));
                self.offset += header.batch_bytes();
                self.position = header.end();
                return Ok(true);
            } else {
                self.end_or_damage(Kind::Batch)?;
            }
        }
        Ok(false)
    }

    fn leave_segment(&mut self) {
        // An empty one was not opened.
        if self.window.is_some() {
            self.previous_end = Some((self.index, self.offset));
        }
        self.index += 1;
        self.read_bytes += self.window.take().map_or(0, |window| window.length());
        self.offset = 0;
    }

    fn enter_segment(&mut self) -> Result<(), LogError> {
        match self.open_segment(self.index)? {
            (Some(window), Ok(())) => {
                self.window = Some(window);
                self.offset = segment::HEADER_BYTES as u64;
                self.unsure = Unsure::at(self.offset, self.position);
                Ok(())
            }
            (_, Err(kind)) => self.end_or_damage(kind),
            (None, Ok(())) => self.end_or_damage(Kind::Missing),
        }
    }

    /// A segment's file if it is there, and whether it begins as it should.
    fn open_segment(&self, index: usize) -> Result<(Option<Window>, Result<(), Kind>), LogError> {
        let manifest::Segment { number, first, ref file } = self.manifest.segments[index];
        let mut window = match self.files.open(&self.folder.join(file)).and_then(Window::new) {
            Ok(window) => window,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((None, Err(Kind::Missing))),
            Err(error) => return Err(LogError::io(file)(error)),
        };
        let bytes = window.bytes(0, segment::HEADER_BYTES as u64).map_err(LogError::io(file))?;
        let outcome = segment::Header { id: self.manifest.id, number, first }.check(bytes).map_err(Kind::Header);
        Ok((Some(window), outcome))
    }

    /// The batch at the place that was reached, if there is one that verifies and continues the log.
    fn batch_here(&mut self) -> Result<Option<batch::Header>, LogError> {
        let manifest::Segment { number, ref file, .. } = self.manifest.segments[self.index];
        let Some(window) = &mut self.window else { return Ok(None) };
        let found = verified_batch(window, self.offset, &self.manifest.id, number).map_err(LogError::io(file))?;
        Ok(found.filter(|header| header.position == self.position))
    }

    /// There is no batch where one could be: see what follows from it.
    fn end_or_damage(&mut self, kind: Kind) -> Result<(), LogError> {
        let cut = self.manifest.cut();
        let behind = self.look_behind()?;
        let progress =
            |place: &Place| (place.index, place.offset, place.position) > (self.index, self.offset, self.position);
        if let Some(place) =
            behind.first.filter(|place| self.position < cut && place.position <= cut && progress(place))
        {
            return self.jump(place);
        }
        let damage = Damage {
            segment: self.index,
            file: self.manifest.segments[self.index].file.clone(),
            offset: self.offset,
            previous_end: self.previous_end,
            position: self.position.max(cut),
            kind,
            known_synced: behind.known_synced,
            bytes: behind.bytes,
            valid_batches: behind.batches,
            valid_bytes: behind.records,
        };
        if !damage.is_torn_tail() {
            return Err(LogError::Damaged(Box::new(damage)));
        }
        // Nothing but zeros: room that was reserved.
        self.torn = Some(damage).filter(|damage| damage.bytes > 0);
        self.finished = true;
        Ok(())
    }

    /// Go on at a batch behind records that are not needed.
    fn jump(&mut self, place: Place) -> Result<(), LogError> {
        if place.index != self.index || self.window.is_none() {
            self.window = self.open_segment(place.index)?.0;
            self.previous_end = None;
        }
        (self.index, self.offset, self.position) = (place.index, place.offset, place.position);
        self.unsure = Unsure::at(segment::HEADER_BYTES as u64, 0);
        Ok(())
    }

    /// Look for batches from the place that was reached on, in this and all later segments.
    fn look_behind(&mut self) -> Result<Behind, LogError> {
        let mut behind = Behind { known_synced: self.manifest.segments[self.index].first, ..Behind::default() };
        for index in self.index..self.manifest.segments.len() {
            let entry = &self.manifest.segments[index];
            let mut from = 0;
            if index == self.index {
                from = self.offset;
            } else {
                behind.known_synced = behind.known_synced.max(entry.first);
            }
            let Some(mut window) = self.open_segment(index)?.0 else { continue };
            let (id, header) = (&self.manifest.id, segment::HEADER_BYTES as u64);
            let scan = Scan { id, index, number: entry.number, from, header, position: self.position };
            scan.run(&mut window, &mut behind).map_err(LogError::io(&entry.file))?;
        }
        Ok(behind)
    }
}

/// A search for batches in one segment.
struct Scan<'a> {
    id: &'a LogId,
    index: usize,
    number: u64,
    /// From this offset on.
    from: u64,
    /// Bytes there that are no batches: the segment's header.
    header: u64,
    /// What is below this position is older than the damage.
    position: u64,
}

impl Scan<'_> {
    fn run(&self, window: &mut Window, behind: &mut Behind) -> io::Result<()> {
        let end = window.end_of_content(self.from)?;
        behind.bytes += end - self.from;
        let mut at = self.from.max(self.header);
        // At every offset: if bytes were lost or put in, the batches behind do not stand where they stood.
        while at < end {
            let step = match header_at(window, at, self.id, self.number)? {
                Some(header) if header.position >= self.position => {
                    // Its records may be damaged: what the header says was synced is true all the same.
                    behind.known_synced = behind.known_synced.max(header.known_synced);
                    let verified = records_verify(window, at, &header, self.id)?;
                    if verified {
                        let place = Place { index: self.index, offset: at, position: header.position };
                        behind.first.get_or_insert(place);
                        behind.batches += u64::from(header.length > 0);
                        behind.records += u64::from(header.length);
                    }
                    verified.then(|| header.batch_bytes())
                }
                _ => None,
            };
            at += step.unwrap_or(1);
        }
        Ok(())
    }
}

fn header_at(window: &mut Window, offset: u64, id: &LogId, segment: u64) -> io::Result<Option<batch::Header>> {
    let bytes = window.bytes(offset, HEADER_BYTES as u64)?;
    Ok(bytes.first_chunk().and_then(|bytes| batch::Header::decode(bytes, id, segment)))
}

fn records_verify(window: &mut Window, offset: u64, header: &batch::Header, id: &LogId) -> io::Result<bool> {
    // With the header, so that a window that is filled for them holds the whole batch.
    let bytes = window.bytes(offset, HEADER_BYTES as u64 + u64::from(header.length))?;
    Ok(bytes.get(HEADER_BYTES..).is_some_and(|records| header.verifies(id, records)))
}

fn verified_batch(window: &mut Window, offset: u64, id: &LogId, segment: u64) -> io::Result<Option<batch::Header>> {
    let Some(header) = header_at(window, offset, id, segment)? else { return Ok(None) };
    Ok(records_verify(window, offset, &header, id)?.then_some(header))
}

/// Batches that verify in a file that was cut off a segment, and bytes of records in them.
pub(super) fn batches_in(mut window: Window, segment: &segment::Header) -> io::Result<(u64, u64)> {
    let mut behind = Behind::default();
    let scan = Scan { id: &segment.id, index: 0, number: segment.number, from: 0, header: 0, position: segment.first };
    scan.run(&mut window, &mut behind)?;
    Ok((behind.batches, behind.records))
}

/// Whether a segment's first batch is where it should be, whatever stands before it.
pub(super) fn begins_with_first_batch(mut window: Window, segment: &segment::Header) -> io::Result<bool> {
    let batch = verified_batch(&mut window, segment::HEADER_BYTES as u64, &segment.id, segment.number)?;
    Ok(batch.is_some_and(|batch| batch.position == segment.first))
}

/// The manifest of a folder; `None` if there is none.
///
/// # Errors
/// [`LogError`].
pub fn read_manifest(files: &dyn Files, folder: &Path) -> Result<Option<Manifest>, LogError> {
    let failed = LogError::io(manifest::FILE_NAME);
    let file = match files.open(&folder.join(manifest::FILE_NAME)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let length = file.length().map_err(&failed)?;
    if length > manifest::MAX_BYTES {
        return Err(failed(io::ErrorKind::FileTooLarge.into()));
    }
    let mut bytes = vec![0; length as usize];
    let read = file.read_full_at(&mut bytes, 0).map_err(&failed)?;
    Ok(Some(Manifest::decode(&bytes[..read])?))
}
