//! Reading a snapshot, written here or by Redis or Valkey.
//!
//! [`load`] puts its keys into a keyspace, [`walk`] shows them one after the other. Bloom filters are read; values of other
//! types are stepped over and counted. No limit applies: what a snapshot holds was let in once.
//!
//! **Damage.** Lengths are believed only as far as the file has bytes; whatever the bytes are, reading ends with a result.
//! A damaged file is refused, with the offset. If damage is to be [accepted](Options::accept_damaged), as much as possible is
//! loaded and all that is not is reported:
//!
//! * In a file with [block marks](super::mark) all of them are looked at first ([`survey`]). Blocks whose checksum is right
//!   are loaded, no others. Behind damage reading goes on with the next such block, where it begins with a database's number.
//! * What comes after the last mark of a file that was cut off is loaded up to the cut, and reported as not checked.
//! * A file without marks is loaded up to the first byte that cannot be; nobody can tell where the next key begins.
//!
//! A key that is there twice is damage. Of two in a damaged file the first is kept.
//!
//! | module | holds |
//! | --- | --- |
//! | [`report`] | what comes of it |
//! | [`window`] | the part of the file that is in memory, checksums |
//! | [`scan`] | from key to key |
//! | [`load`](mod@load) | keys into a keyspace, by several threads |
//! | [`visit`] | keys shown |
//! | [`survey`] | which blocks are sound |

mod load;
mod report;
mod scan;
mod survey;
mod visit;
mod window;

use crate::codec::foreign::TypeName;
use crate::filters::LinkInfo;
use crate::filters::bits::BitArray;
use crate::keyspace::Keyspace;
use crate::persist::files::File;
use load::{Loader, Loading};
use report::Fault;
pub use report::{Checksum, Damage, LoadError, Loss, Losses, Options, Progress, Report};
use scan::{Ended, Scanner};
use survey::{Section, Survey};
pub use visit::{Chain, Visited};
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

/// Who takes what a scan finds.
trait Sink {
    /// Whether the bits of large filters are wanted.
    const KEEPS_BITS: bool;

    /// A buffer for the next window.
    fn spare(&mut self) -> Vec<u8>;

    /// The window with all keys told since the last one is done with; its first byte stands at `start` in the file.
    fn retire(&mut self, buffer: Vec<u8>, start: u64) -> Result<(), Fault>;

    /// A filter's name stands at `at` in the window, its value right behind.
    fn bloom(&mut self, window: &[u8], at: usize, kind: u8, place: Place) -> Result<(), Fault>;

    /// A filter that does not fit into the window.
    fn large(&mut self, name: &[u8], large: Large, place: Place) -> Result<(), Fault>;

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
    report.keys = visits.filters;
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
    let mut report = Report { checksum: survey.checksum, blocks: survey.sound_blocks(), ..Report::default() };
    for section in survey.sections() {
        let reading = Reading { file, progress, options, survey: &survey };
        reading.section(section, sink, &mut report)?;
    }
    if (1..scan::CHECKSUM_SINCE).contains(&report.version) {
        report.checksum = Checksum::Absent;
    }
    if report.checksum == Checksum::Wrong && report.dropped.count == 0 {
        let reason = "the checksum of the whole is wrong: there is damage that cannot be located".into();
        report.dropped.push(Loss { from: 0, to: length, reason, names: Vec::new(), keys: 0 });
    }
    Ok(report)
}

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
    fn section<S: Sink>(&self, section: Section, sink: &mut S, report: &mut Report) -> Result<(), LoadError> {
        let Section { from, to, sound } = section;
        if sound || !self.survey.has_marks {
            let scanned = self.scan(section, sink, report)?;
            return self.lose_rest(section, &scanned, report);
        }
        // What is in it is not to be loaded, but shall be told.
        let mut names = Names::default();
        let mut aside = Report { magic: report.magic, version: report.version, ..Report::default() };
        let scanned = self.scan(section, &mut names, &mut aside)?;
        let whole = matches!(scanned.ended, Ok(Ended::File)) && names.keys == 0 && aside.aux.is_empty();
        if whole && scanned.at == self.survey.length {
            return Ok(());
        }
        let cut = to == self.survey.length && scanned.marks == 0;
        if cut && matches!(scanned.ended, Err(Fault::Short) | Ok(Ended::Range)) {
            let scanned = self.scan(section, sink, report)?;
            let reason = "the file ends early; what comes before the cut was loaded without a check".into();
            report.dropped.push(Loss { from, to: scanned.at, reason, names: names.listed, keys: names.keys });
            return self.lose_rest(section, &scanned, report);
        }
        let reason = "the block's checksum is wrong, or its mark is lost".into();
        report.dropped.push(Loss { from, to, reason, names: names.listed, keys: names.keys });
        Ok(())
    }

    fn scan<S: Sink>(&self, section: Section, sink: &mut S, report: &mut Report) -> Result<Scanned, LoadError> {
        let window = Window::new(self.file, self.progress, section.from, section.to, false);
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
    fn lose_rest(&self, section: Section, scanned: &Scanned, report: &mut Report) -> Result<(), LoadError> {
        let reason = match &scanned.ended {
            Ok(Ended::File) => return Ok(()),
            // Another section follows.
            Ok(Ended::Range) if section.to < self.survey.length => return Ok(()),
            Ok(Ended::Range) => "the file ends early".into(),
            Err(fault) => fault.reason().unwrap_or_default(),
        };
        report.dropped.push(Loss { from: scanned.at, to: section.to, reason, names: Vec::new(), keys: 0 });
        Ok(())
    }
}
