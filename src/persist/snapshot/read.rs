//! Reading a snapshot, written here or by Redis or Valkey.
//!
//! [`load`] puts its keys into a keyspace, [`walk`] shows them one after the other. Bloom filters are read; values of other
//! types are stepped over and counted. No limit applies: what a snapshot holds was let in once.
//!
//! **Damage.** Lengths are believed only as far as the file has bytes; whatever the bytes are, reading ends with a result.
//! A damaged file is refused, with the offset. If damage is to be [accepted](Options::accept_damaged), as much as possible is
//! loaded and all that is not is reported:
//!
//! * In a file with [block marks](super::mark) all of them are looked at first (`survey`). Blocks whose checksum is right
//!   are loaded, no others. Behind damage reading goes on with the next such block, where it begins with a database's number.
//! * Between the last mark and the end of the file there is nothing.
//! * What comes after the last mark of a file that was cut off is loaded up to the cut, and reported as not checked.
//! * A file without marks is loaded up to the first byte that cannot be; nobody can tell where the next key begins.
//!
//! A key that is there twice is damage. Of two in a damaged file the first is kept.
//!
//! | module | holds |
//! | --- | --- |
//! | `report` | what comes of it |
//! | `window` | the part of the file that is in memory, checksums |
//! | `scan` | from key to key |
//! | `load` | keys into a keyspace, by several threads |
//! | `visit` | keys shown |
//! | `survey` | which blocks are sound |

mod load;
mod report;
mod scan;
mod survey;
mod visit;
mod window;

use crate::codec::cells_value::CellsHead;
use crate::codec::foreign::TypeName;
use crate::codec::ring_fields::{PartHead, RingHead};
use crate::filters::LinkInfo;
use crate::filters::bits::BitArray;
use crate::filters::dleft::Spilled;
use crate::filters::ring::Part;
use crate::keyspace::Keyspace;
use crate::persist::files::File;
use load::{Loader, Loading};
pub use report::{Checksum, Damage, LoadError, Loss, Losses, Options, Progress, Report};
use report::{Fault, in_brackets};
use scan::{Ended, Scanner};
use survey::{Section, Survey};
pub use visit::{CellsFigures, Chain, Visited};
use visit::{Names, Visits};
use window::Window;

/// Where a key stands in the file, and what stands before it.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// First byte of what belongs to the key.
    offset: u64,
    end: u64,
    db: Option<u64>,
    life: Option<u64>,
    /// Seconds since it was used.
    idle: Option<u32>,
    uses: Option<u8>,
}

/// A filter that was larger than the window.
#[derive(Default)]
struct Large {
    items: u64,
    options: u32,
    growth: u32,
    links: Vec<LinkInfo>,
    /// Their bits, if they are wanted.
    arrays: Vec<BitArray>,
}

/// A ring that does not fit into the window.
struct LargeRing {
    head: RingHead,
    /// Its parts but for what they hold.
    heads: Vec<PartHead>,
    /// With that, if it is wanted.
    parts: Vec<Part>,
}

/// A counting or d-left filter that does not fit into the window.
struct LargeCells {
    head: CellsHead,
    /// Its cells, and what is beside them, if they are wanted.
    arrays: Vec<BitArray>,
    spilled: Vec<Spilled>,
}

/// Who takes what a scan finds.
trait Sink {
    /// Whether the bits of large filters are wanted.
    const KEEPS_BITS: bool;
    /// Whether what large filters hold is looked at where not all of it can be: hashes of a ring, cells of a d-left filter. They
    /// come along then.
    const LOOKS_INSIDE: bool = Self::KEEPS_BITS;

    /// A buffer for the next window.
    fn spare(&mut self) -> Vec<u8>;

    /// The window with all keys told since the last one is done with; its first byte stands at `start` in the file.
    fn retire(&mut self, buffer: Vec<u8>, start: u64) -> Result<(), Fault>;

    /// A filter's name stands at `at` in the window, its value right behind.
    fn own(&mut self, window: &[u8], at: usize, kind: u8, place: Place) -> Result<(), Fault>;

    /// A filter that does not fit into the window.
    fn large(&mut self, name: &[u8], large: Large, place: Place) -> Result<(), Fault>;

    /// A ring that does not fit into the window.
    fn large_ring(&mut self, name: &[u8], ring: LargeRing, place: Place) -> Result<(), Fault>;

    /// A counting or d-left filter that does not fit into the window.
    fn large_cells(&mut self, name: &[u8], cells: LargeCells, place: Place) -> Result<(), Fault>;

    /// What rings get that a command makes by itself, as a record.
    fn profile(&mut self, _record: &[u8]) {}

    /// So many keys will come for a database.
    fn expect(&mut self, _db: u64, _keys: u64) {}

    /// The name of a key of another type stands at `at` in the window.
    fn foreign(&mut self, _window: &[u8], _at: usize, _type_name: TypeName, _place: Place) {}

    /// A key of another type that does not fit into the window.
    fn large_foreign(&mut self, _name: &[u8], _type_name: TypeName, _place: Place) {}
}

/// Load all keys of a snapshot. Nothing is recorded. There must be nobody else who uses the keyspace.
///
/// # Errors
/// [`LoadError`]; some of the keys are in the keyspace then.
pub fn load(file: &dyn File, keyspace: &Keyspace, options: &Options, progress: &Progress) -> Result<Report, LoadError> {
    let loading = Loading::new(keyspace, progress, options.accept_damaged);
    // Keys of a damaged file come in their order, so that of two the first is kept.
    let threads = if options.accept_damaged || options.threads < 2 { 0 } else { options.threads };
    let read = Loader::run(&loading, threads, |loader| read(file, options, progress, loader));
    let (error, losses) = loading.finish();
    if let Some(error) = error {
        return Err(error);
    }
    let mut report = read?;
    report.keys = progress.keys();
    report.dropped.append(losses);
    Ok(report)
}

/// Show all keys of a snapshot to `visit`, in the order of the file, as they would be loaded.
///
/// # Errors
/// [`LoadError`], as [`load`] would give.
pub fn walk(
    file: &dyn File,
    accept_damaged: bool,
    progress: &Progress,
    visit: &mut dyn FnMut(&Visited<'_>),
) -> Result<Report, LoadError> {
    let mut visits = Visits::new(visit, accept_damaged);
    let options = Options { accept_damaged, threads: 1, now: None };
    let mut report = read(file, &options, progress, &mut visits)?;
    (report.keys, report.profiles) = (visits.filters, visits.profiles);
    report.dropped.append(visits.losses);
    Ok(report)
}

fn read<S: Sink>(file: &dyn File, options: &Options, progress: &Progress, sink: &mut S) -> Result<Report, LoadError> {
    let length = file.length().map_err(|error| LoadError::Io { offset: 0, error })?;
    progress.begin(length);
    if options.accept_damaged {
        read_damaged(file, length, options, progress, sink)
    } else {
        read_sound(file, length, options, progress, sink)
    }
}

/// A file that is to be sound from its first byte to its last.
fn read_sound<S: Sink>(
    file: &dyn File,
    length: u64,
    options: &Options,
    progress: &Progress,
    sink: &mut S,
) -> Result<Report, LoadError> {
    let mut report = Report::default();
    let mut scanner = Scanner::new(Window::new(file, progress, 0, length, true), sink, &mut report);
    scanner.now = options.now;
    let ended = scanner.run();
    let offset = scanner.window.offset();
    let (buffer, start) = scanner.window.into_buffer();
    let retired = sink.retire(buffer, start);
    match ended {
        Ok(Ended::File) => {}
        Ok(Ended::Range) => return Err(Fault::Short.into_error(offset)),
        Err(fault) => return Err(fault.into_error(offset)),
    }
    retired.map_err(|fault| fault.into_error(offset))?;
    if report.checksum == Checksum::Wrong {
        return Err(Damage { offset, end: None, reason: "the checksum of the whole is wrong".into() }.into());
    }
    Ok(report)
}

/// A file of which as much as possible is to be read.
fn read_damaged<S: Sink>(
    file: &dyn File,
    length: u64,
    options: &Options,
    progress: &Progress,
    sink: &mut S,
) -> Result<Report, LoadError> {
    let survey = Survey::of(file, length, progress).map_err(|(offset, error)| LoadError::Io { offset, error })?;
    let reading = Reading { file, progress, options, survey: &survey };
    let all = Section { from: 0, to: length, blocks: 0 };
    let (mut names, mut aside) = (Names::default(), Report::default());
    let first = reading.scan(all, true, &mut names, &mut aside)?;
    let ends_well = matches!(first.ended, Ok(Ended::File));
    let is_whole = ends_well && matches!(aside.checksum, Checksum::Right | Checksum::Absent);
    let mut report = Report::default();
    if is_whole || !reading.has_marks(&first, &aside) {
        let scanned = reading.scan(all, false, sink, &mut report)?;
        reading.lose_rest(all, &scanned, &mut report);
        report.blocks = aside.blocks;
    } else {
        report.blocks = survey.sound_blocks();
        for section in survey.sections() {
            reading.section(section, sink, &mut report)?;
        }
    }
    report.checksum = if is_whole { aside.checksum } else { survey.checksum };
    if !is_whole && report.dropped.count == 0 {
        let reason = match survey.checksum {
            Checksum::Missing => "the file ends early",
            _ => "the checksum of the whole is wrong: there is damage that cannot be located",
        };
        report.dropped.push(Loss { from: 0, to: length, reason: reason.into(), names: Vec::new(), keys: 0 });
    }
    Ok(report)
}

/// Most bytes behind the last block: the opcode that ends a file, and the checksum.
const END_BYTES: u64 = 9;

/// A damaged file being read.
struct Reading<'r> {
    file: &'r dyn File,
    progress: &'r Progress,
    options: &'r Options,
    survey: &'r Survey,
}

/// How a part of the file was scanned.
struct Scanned {
    ended: Result<Ended, Fault>,
    /// Where the scan ended.
    at: u64,
    marks: u64,
}

impl Reading<'_> {
    /// Whether the file is one that has marks, by what a scan from its start has met before the first damage.
    fn has_marks(&self, first: &Scanned, aside: &Report) -> bool {
        let met = |names: &[&[u8]]| aside.aux.iter().any(|(key, _)| names.contains(&&key[..]));
        let marks = first.marks > 0 || matches!(first.ended, Err(Fault::Block { .. }));
        // In a file of another server a value may be a file with marks.
        let others = met(&[b"redis-ver", b"valkey-ver"]) || matches!(first.ended, Ok(Ended::File));
        marks || met(&[scan::OWN_VERSION]) || (!others && self.survey.sound_blocks() > 0)
    }

    fn section<S: Sink>(&self, section: Section, sink: &mut S, report: &mut Report) -> Result<(), LoadError> {
        if section.blocks > 0 {
            let scanned = self.scan(section, false, sink, report)?;
            self.lose_rest(section, &scanned, report);
            return Ok(());
        }
        // What nothing is known of is not to be loaded, but shall be told.
        let Section { from, to, .. } = section;
        let mut names = Names::default();
        let mut aside = Report { magic: report.magic, version: report.version, ..Report::default() };
        let scanned = self.scan(section, false, &mut names, &mut aside)?;
        let is_last = to == self.survey.length;
        if is_last && from > 0 && to - from <= END_BYTES && matches!(scanned.ended, Ok(Ended::File)) {
            return Ok(());
        }
        if is_last && scanned.marks == 0 && matches!(scanned.ended, Err(Fault::Short) | Ok(Ended::Range)) {
            let scanned = self.scan(section, false, sink, report)?;
            // The checksum of what comes before the cut is lost with the rest; each key has its own form, and is taken.
            let unchecked = match names.keys {
                0 => String::new(),
                keys => format!("; what comes before, from byte {from} on, could not be checked{}", in_brackets(keys)),
            };
            let reason = format!("the file ends early{unchecked}");
            report.dropped.push(Loss { from: scanned.at.min(to), to, reason, names: Vec::new(), keys: 0 });
            return Ok(());
        }
        let reason = "the block's checksum is wrong, or its mark is lost".into();
        report.dropped.push(Loss { from, to, reason, names: names.listed, keys: names.keys });
        Ok(())
    }

    fn scan<S: Sink>(
        &self,
        section: Section,
        sums: bool,
        sink: &mut S,
        report: &mut Report,
    ) -> Result<Scanned, LoadError> {
        let window = Window::new(self.file, self.progress, section.from, section.to, sums);
        let mut scanner = Scanner::new(window, sink, report);
        scanner.now = self.options.now;
        scanner.lenient = true;
        let ended = scanner.run();
        let (at, marks) = (scanner.window.offset(), scanner.marks);
        let (buffer, start) = scanner.window.into_buffer();
        let retired = sink.retire(buffer, start);
        let ended = match retired.and(ended) {
            Err(fault) if fault.reason().is_none() => return Err(fault.into_error(at)),
            other => other,
        };
        Ok(Scanned { ended, at, marks })
    }

    /// What comes after the place where the scan of a section ended is lost.
    fn lose_rest(&self, section: Section, scanned: &Scanned, report: &mut Report) {
        let Section { mut from, to, blocks } = section;
        let is_last = to == self.survey.length;
        let reason = match &scanned.ended {
            Ok(Ended::Range) if blocks > 0 && scanned.marks == blocks => return,
            Ok(_) if blocks > 0 => "the keys do not end where the block's mark stands".into(),
            Ok(Ended::File) => return,
            // Another section follows.
            Ok(Ended::Range) if !is_last => return,
            Ok(Ended::Range) => "the file ends early".into(),
            Err(fault) => fault.reason().unwrap_or_default(),
        };
        if scanned.ended.is_err() {
            from = scanned.at;
        }
        report.dropped.push(Loss { from: from.min(to), to, reason, names: Vec::new(), keys: 0 });
    }
}
