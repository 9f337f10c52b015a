//! A log on a simulated disk beside all that was ever given to it.

use std::path::Path;
use std::sync::Arc;

use fastrand::Rng;
use seendb::persist::files::Files;
use seendb::persist::log::{Base, LogReader, LogWriter, WriteError, next_base_name};
use seendb::persist::simulated::SimulatedFiles;

pub const FOLDER: &str = "/log";

/// Small, so that there are many.
pub const SEGMENT_BYTES: u64 = 600;

/// Something failed; what the owner of the log does about it is its own affair.
#[derive(Debug)]
pub enum Failed {
    /// The file system, on a file that is not of the log, or while opening it.
    Files,
    /// The log; the same can be tried again.
    Again,
    /// The log, for good.
    Sync,
}

impl From<std::io::Error> for Failed {
    fn from(_: std::io::Error) -> Self {
        Self::Files
    }
}

impl From<WriteError> for Failed {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Again(_) => Self::Again,
            WriteError::Failed(_) | WriteError::Lost(_) | WriteError::Unusable => Self::Sync,
        }
    }
}

/// The owner of a log.
pub struct Model {
    pub disk: SimulatedFiles,
    pub random: Rng,
    pub writer: Option<LogWriter>,
    /// Every record that there ever was; a byte is enough of a record.
    pub history: Vec<u8>,
    /// So many of them were promised.
    pub promised: usize,
}

impl Model {
    pub fn new(seed: u64) -> Model {
        let (disk, random) = (SimulatedFiles::new(seed), Rng::with_seed(seed));
        Model { disk, random, writer: None, history: Vec::new(), promised: 0 }
    }

    fn files(&self) -> Arc<dyn Files> {
        Arc::new(self.disk.clone())
    }

    /// Read the log that is there and continue it, or make one.
    pub fn open(&mut self) -> Result<(), Failed> {
        let folder = Path::new(FOLDER);
        self.writer = None;
        let reader = LogReader::open(self.files(), folder).map_err(|_| Failed::Files)?;
        self.writer = Some(match reader {
            None => LogWriter::create(self.files(), folder, None, SEGMENT_BYTES)?,
            Some(reader) => {
                let end = reader.finish().map_err(|_| Failed::Files)?;
                let writer = LogWriter::open(self.files(), folder, end, SEGMENT_BYTES)?;
                // What was not read is forgotten: the owner begins with what is there.
                self.history.truncate(writer.position() as usize);
                writer
            }
        });
        self.keep_promises();
        Ok(())
    }

    /// Everything that the writer calls synced is promised.
    fn keep_promises(&mut self) {
        let synced = self.writer.as_ref().map_or(0, |writer| writer.synced() as usize);
        self.promised = self.promised.max(synced);
        assert!(self.promised <= self.history.len());
    }

    fn writer(&mut self) -> &mut LogWriter {
        self.writer.as_mut().expect("the log is open")
    }

    pub fn append(&mut self) -> Result<(), Failed> {
        // Now and then longer than a segment.
        let most = [50, 300, 900][self.random.usize(..3)];
        let count = self.random.usize(..most);
        self.history.extend(std::iter::repeat_with(|| self.random.u8(..)).take(count));
        self.flush()
    }

    /// Append what is not in the log yet, at once or in pieces.
    pub fn flush(&mut self) -> Result<(), Failed> {
        loop {
            let from = self.writer().position() as usize;
            let rest = self.history.len() - from;
            let count = if self.random.bool() { rest } else { self.random.usize(..=rest) };
            let records = self.history[from..from + count].to_vec();
            self.writer().append(&records)?;
            if count == rest {
                return Ok(());
            }
        }
    }

    pub fn sync(&mut self) -> Result<(), Failed> {
        self.writer().sync()?;
        self.keep_promises();
        Ok(())
    }

    /// A new base: the file holds the records themselves.
    pub fn base(&mut self, cut: usize) -> Result<Base, Failed> {
        let file = next_base_name(&self.disk, Path::new(FOLDER))?;
        let out = self.disk.create(&Path::new(FOLDER).join(&file))?;
        out.write_all_at(&self.history[..cut], 0)?;
        out.sync()?;
        self.disk.sync_folder(Path::new(FOLDER))?;
        Ok(Base { file, cut: cut as u64 })
    }

    pub fn retire(&mut self) -> Result<(), Failed> {
        let least = self.writer().manifest().cut() as usize;
        let cut = self.random.usize(least..=self.history.len());
        let base = self.base(cut)?;
        self.writer().retire(base)?;
        self.promised = self.promised.max(cut);
        Ok(())
    }

    /// What is done after a failed sync.
    pub fn restart(&mut self) -> Result<(), Failed> {
        let base = self.base(self.history.len())?;
        self.writer().restart_after_failure(base)?;
        self.keep_promises();
        Ok(())
    }

    pub fn reopen(&mut self) -> Result<(), Failed> {
        if let Some(writer) = self.writer.take_if(|_| self.random.bool()) {
            writer.close()?;
        }
        self.open()
    }

    /// Anything of the above, at random.
    pub fn step(&mut self) -> Result<(), Failed> {
        if self.writer.is_none() {
            return self.open();
        }
        match self.random.u8(..18) {
            0..8 => self.append(),
            8..12 => self.sync(),
            12..15 => Ok(self.writer().mark()?),
            15..17 => self.retire(),
            _ => self.reopen(),
        }
    }

    /// What is in the log on this disk, which may have been through something.
    pub fn check(&self, disk: &SimulatedFiles, context: &str) -> usize {
        let reader = LogReader::open(Arc::new(disk.clone()), Path::new(FOLDER)).unwrap();
        let Some(mut reader) = reader else {
            assert_eq!(self.promised, 0, "{context}: no log");
            assert!(self.writer.is_none(), "{context}: the log was open");
            return 0;
        };
        let mut found = match &reader.manifest().base {
            None => Vec::new(),
            Some(base) => disk.content(&Path::new(FOLDER).join(&base.file)).expect("the base is there"),
        };
        assert_eq!(found.len() as u64, reader.manifest().cut(), "{context}: the base is whole");
        loop {
            match reader.next_batch() {
                Ok(Some(batch)) => {
                    assert_eq!(batch.position, found.len() as u64, "{context}");
                    found.extend(batch.records);
                }
                Ok(None) => break,
                Err(error) => panic!("{context}: {error}"),
            }
        }
        assert_eq!(reader.finish().unwrap().position, found.len() as u64, "{context}");
        assert!(found.len() >= self.promised, "{context}: {} of {} promised are there", found.len(), self.promised);
        assert!(self.history.starts_with(&found), "{context}: what is there was logged, in this order");
        found.len()
    }
}
