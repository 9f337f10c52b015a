//! The files of a log, held open: whatever a server does to the log meanwhile, they are read as they were named together.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::persist::files::{File, Files, FolderLock, RealFiles};
use crate::persist::log::manifest::FILE_NAME;
use crate::persist::log::reader::read_manifest;

/// A log that is given up for another one as often as this while its files are being opened is not waited for any longer.
const TRIES: usize = 100;

/// A file system in which some files cannot go.
struct Pinned {
    held: HashMap<PathBuf, std::fs::File>,
}

/// The file system, with the files of the log in `folder` as its manifest names them. What is not there is found out by
/// whoever opens it.
///
/// # Errors
/// Those of the system.
pub fn pin(folder: &Path) -> io::Result<Arc<dyn Files>> {
    let mut tries = 0;
    loop {
        let mut held = HashMap::new();
        hold(&mut held, folder.join(FILE_NAME))?;
        let mut pinned = Pinned { held };
        // What is wrong with a manifest is told by who reads the log.
        let Ok(Some(manifest)) = read_manifest(&pinned, folder) else { return Ok(Arc::new(pinned)) };
        let base = manifest.base.iter().map(|base| &base.file);
        let mut whole = true;
        for file in base.chain(manifest.segments.iter().map(|segment| &segment.file)) {
            whole &= hold(&mut pinned.held, folder.join(file))?;
        }
        tries += 1;
        let settled = || read_manifest(&RealFiles, folder).is_ok_and(|now| now.as_ref() == Some(&manifest));
        if whole || tries == TRIES || settled() {
            return Ok(Arc::new(pinned));
        }
    }
}

/// Opens a file to keep it; whether it is there.
fn hold(held: &mut HashMap<PathBuf, std::fs::File>, path: PathBuf) -> io::Result<bool> {
    match std::fs::File::open(&path) {
        Ok(file) => {
            held.insert(path, file);
            Ok(true)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

impl Files for Pinned {
    fn open(&self, path: &Path) -> io::Result<Box<dyn File>> {
        match self.held.get(path) {
            Some(file) => Ok(Box::new(file.try_clone()?)),
            None => RealFiles.open(path),
        }
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn File>> {
        RealFiles.create(path)
    }

    fn open_to_write(&self, path: &Path) -> io::Result<Box<dyn File>> {
        RealFiles.open_to_write(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealFiles.rename(from, to)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealFiles.link(from, to)
    }

    fn modified(&self, path: &Path) -> io::Result<Option<u64>> {
        RealFiles.modified(path)
    }

    fn lock_folder(&self, folder: &Path) -> io::Result<FolderLock> {
        RealFiles.lock_folder(folder)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        RealFiles.remove(path)
    }

    fn create_folder(&self, path: &Path) -> io::Result<()> {
        RealFiles.create_folder(path)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<PathBuf>> {
        RealFiles.list(folder)
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        RealFiles.sync_folder(folder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::persist::log::{LogId, Manifest, manifest};

    #[test]
    fn what_is_pinned_stays() {
        let folder = tempfile::tempdir().unwrap();
        let segments = vec![manifest::Segment { number: 1, first: 0, file: "segment-1.log".into() }];
        let log = Manifest { id: LogId([1; 16]), base: None, segments, closed: None };
        let (manifest, segment) = (folder.path().join(FILE_NAME), folder.path().join("segment-1.log"));
        std::fs::write(&manifest, log.encode()).unwrap();
        std::fs::write(&segment, "bytes").unwrap();
        let pinned = pin(folder.path()).unwrap();
        std::fs::write(folder.path().join("new"), "no manifest").unwrap();
        std::fs::rename(folder.path().join("new"), &manifest).unwrap();
        std::fs::remove_file(&segment).unwrap();
        assert_eq!(read_manifest(&*pinned, folder.path()).unwrap(), Some(log));
        assert_eq!(pinned.open(&segment).unwrap().length().unwrap(), 5);
        assert!(pinned.open(&folder.path().join("other")).is_err());
    }
}
