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
        // What cannot be seen now is not guessed.
        let (Ok(kept), Ok(place), Ok(new)) =
            (is_there(files, &self.kept), is_there(files, &self.place), is_there(files, &self.folder))
        else {
            return false;
        };
        if kept {
            let away = if place && !new { files.rename(&self.place, &self.folder) } else { Ok(()) };
            let back = away.and_then(|()| files.rename(&self.kept, &self.place));
            if back.and_then(|()| files.sync_folder(self.parent())).is_err() {
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
        if is_there(files, &self.place).is_ok_and(|there| !there)
            && is_whole()
            && files.rename(&self.folder, &self.place).is_ok()
        {
            tracing::warn!("the new log in '{}' takes its place", self.folder.display());
            let _ = files.sync_folder(self.parent());
        }
    }
}

fn is_there(files: &dyn Files, folder: &Path) -> io::Result<bool> {
    match files.list(folder) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}
