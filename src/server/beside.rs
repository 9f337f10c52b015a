//! A log that is begun where another one lies that was not loaded.
//!
//! It is made in a folder beside that one, and takes its place when it is whole: if that fails, the other log is where it was.

use std::io;
use std::path::{Path, PathBuf};

use super::durability::unix_ms;
use crate::persist::files::{Files, FolderLock};
use crate::persist::log::manifest;

/// The three places.
#[derive(Clone, Debug)]
pub(super) struct Beside {
    /// Where the other log lies, and the new one will.
    pub(super) place: PathBuf,
    /// Where the new one is made.
    pub(super) folder: PathBuf,
    /// Where the other one is kept.
    pub(super) kept: PathBuf,
}

impl Beside {
    pub(super) fn new(place: &Path) -> Self {
        let other = |rest: &str| {
            let name = place.file_name().unwrap_or_default().to_string_lossy();
            place.with_file_name(format!("{name}.{rest}"))
        };
        Self { place: place.to_owned(), folder: other("new"), kept: other(&format!("replaced-{}", unix_ms())) }
    }

    fn parent(&self) -> &Path {
        self.place.parent().unwrap_or(Path::new("/"))
    }

    /// An empty folder for the new log, which no other process uses.
    pub(super) fn prepare(&self, files: &dyn Files) -> io::Result<FolderLock> {
        files.create_folder(&self.folder)?;
        for name in files.list(&self.folder)? {
            files.remove(&self.folder.join(name))?;
        }
        files.lock_folder(&self.folder)
    }

    /// The new log is whole: each step is safe before the next.
    pub(super) fn put_in_place(&self, files: &dyn Files) -> io::Result<()> {
        files.rename(&self.place, &self.kept)?;
        files.sync_folder(self.parent())?;
        files.rename(&self.folder, &self.place)?;
        files.sync_folder(self.parent())
    }

    /// The new log is not to be: put the other one back, wherever the steps have come to, and remove what was made. Whether the
    /// other one is where it was; nothing of it is ever touched but its folder's name.
    pub(super) fn undo(&self, files: &dyn Files) -> bool {
        if !is_gone(files, &self.kept) {
            if is_gone(files, &self.folder) && !is_gone(files, &self.place) {
                let _ = files.rename(&self.place, &self.folder);
            }
            let back = if is_gone(files, &self.place) { files.rename(&self.kept, &self.place) } else { Ok(()) };
            let back = back.and_then(|()| files.sync_folder(self.parent()));
            if back.is_err() || !is_gone(files, &self.kept) {
                return false;
            }
        }
        for name in files.list(&self.folder).unwrap_or_default() {
            let _ = files.remove(&self.folder.join(name));
        }
        let _ = files.remove_folder(&self.folder);
        true
    }

    /// At a start: a process that ended between two steps has left no log in its place, but a whole one beside it.
    pub(super) fn finish(&self, files: &dyn Files) {
        let is_whole = || files.open(&self.folder.join(manifest::FILE_NAME)).is_ok();
        if is_gone(files, &self.place) && is_whole() && files.rename(&self.folder, &self.place).is_ok() {
            tracing::warn!("the new log in '{}' takes its place", self.folder.display());
            let _ = files.sync_folder(self.parent());
        }
    }
}

fn is_gone(files: &dyn Files, folder: &Path) -> bool {
    files.list(folder).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}
