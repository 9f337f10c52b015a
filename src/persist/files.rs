//! The file system, as far as the persistence needs it: behind a trait, so that tests can let any call fail, and can lose
//! what was not synced.
//!
//! What counts as safe: bytes of a file after its [`File::sync`]; names (of files that were made, renamed, removed) after the
//! [`Files::sync_folder`] of their folder.

use std::fs;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Which file it is: two names, or a name and an open file, with the same one are one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The device it is on.
    pub device: u64,
    /// Its number there.
    pub inode: u64,
}

/// An open file, read and written at offsets.
pub trait File: Send + Sync {
    /// Read some bytes from `offset` on; 0 at the end of the file.
    ///
    /// # Errors
    /// Those of the system.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Write some of the bytes at `offset`; how many were taken may be fewer than given.
    ///
    /// # Errors
    /// Those of the system.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize>;

    /// Make what was written safe, and with it the file's length.
    ///
    /// # Errors
    /// Those of the system. What was written since the last sync may be lost then, even if a later sync succeeds.
    fn sync(&self) -> io::Result<()>;

    /// Reserve room up to this length; what was not written reads as zeros. The file is as long afterwards.
    ///
    /// # Errors
    /// Those of the system.
    fn allocate(&self, length: u64) -> io::Result<()>;

    /// Cut the file off, or lengthen it by zeros.
    ///
    /// # Errors
    /// Those of the system.
    fn set_length(&self, length: u64) -> io::Result<()>;

    /// Whether the file still has a name in some folder, so that it can be opened again.
    ///
    /// # Errors
    /// Those of the system.
    fn has_name(&self) -> io::Result<bool> {
        Ok(true)
    }

    /// Which file it is; `None` where that cannot be said.
    ///
    /// # Errors
    /// Those of the system.
    fn identity(&self) -> io::Result<Option<Identity>> {
        Ok(None)
    }

    /// The file's length in bytes.
    ///
    /// # Errors
    /// Those of the system.
    fn length(&self) -> io::Result<u64>;

    /// Write all bytes at `offset`.
    ///
    /// # Errors
    /// Those of the system; [`io::ErrorKind::WriteZero`] when the file takes no more.
    fn write_all_at(&self, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.write_at(bytes, offset) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    bytes = &bytes[written..];
                    offset += written as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Read until the buffer is full or the file ends; how many bytes were read.
    ///
    /// # Errors
    /// Those of the system.
    fn read_full_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < buffer.len() {
            match self.read_at(&mut buffer[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(read) => done += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }
}

/// A file system.
pub trait Files: Send + Sync {
    /// Make a new file, for reading and writing; one that has the name is emptied.
    ///
    /// # Errors
    /// Those of the system.
    fn create(&self, path: &Path) -> io::Result<Box<dyn File>>;

    /// Open a file that is there, for reading.
    ///
    /// # Errors
    /// Those of the system.
    fn open(&self, path: &Path) -> io::Result<Box<dyn File>>;

    /// Open a file that is there, for reading and writing.
    ///
    /// # Errors
    /// Those of the system.
    fn open_to_write(&self, path: &Path) -> io::Result<Box<dyn File>>;

    /// Give a file another name, in place of a file that has it, in one step.
    ///
    /// # Errors
    /// Those of the system.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Give a file a second name, which there must not be.
    ///
    /// # Errors
    /// Those of the system.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Remove a file.
    ///
    /// # Errors
    /// Those of the system.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Make a folder, unless it is there.
    ///
    /// # Errors
    /// Those of the system.
    fn create_folder(&self, path: &Path) -> io::Result<()>;

    /// The names in a folder, in no order.
    ///
    /// # Errors
    /// Those of the system.
    fn list(&self, folder: &Path) -> io::Result<Vec<PathBuf>>;

    /// Make the names in a folder safe.
    ///
    /// # Errors
    /// Those of the system.
    fn sync_folder(&self, folder: &Path) -> io::Result<()>;

    /// Which file or folder a name leads to; `None` where that cannot be said.
    ///
    /// # Errors
    /// Those of the system; [`io::ErrorKind::NotFound`] if it leads to none.
    fn identity(&self, _path: &Path) -> io::Result<Option<Identity>> {
        Ok(None)
    }

    /// When a file was changed last, in milliseconds since 1970; `None` where that cannot be said.
    ///
    /// # Errors
    /// Those of the system.
    fn modified(&self, _path: &Path) -> io::Result<Option<u64>> {
        Ok(None)
    }

    /// Remove a folder that is empty.
    ///
    /// # Errors
    /// Those of the system.
    fn remove_folder(&self, _path: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Keep other processes from writing in a folder, as long as the lock is kept. Where there are no locks there is none.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if another process has it; those of the system.
    fn lock_folder(&self, _folder: &Path) -> io::Result<FolderLock> {
        Ok(FolderLock(None))
    }
}

/// A folder that no other process locks.
#[derive(Debug)]
pub struct FolderLock(#[allow(dead_code, reason = "closing it gives the lock back")] Option<fs::File>);

/// The file system of the machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealFiles;

impl Files for RealFiles {
    fn create(&self, path: &Path) -> io::Result<Box<dyn File>> {
        let options = &mut fs::OpenOptions::new();
        Ok(Box::new(options.read(true).write(true).create(true).truncate(true).open(path)?))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn File>> {
        // A pipe would be waited for, and a name that leads nowhere is not the same as no name.
        match fs::metadata(path) {
            Ok(file) if !file.is_file() => return Err(io::Error::other("it is not a file")),
            Err(error) if error.kind() == io::ErrorKind::NotFound && fs::symlink_metadata(path).is_ok() => {
                return Err(io::Error::other("it is a symbolic link that leads nowhere"));
            }
            _ => {}
        }
        Ok(Box::new(fs::File::open(path)?))
    }

    fn open_to_write(&self, path: &Path) -> io::Result<Box<dyn File>> {
        Ok(Box::new(fs::OpenOptions::new().read(true).write(true).open(path)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        match fs::hard_link(from, to) {
            // Not every file system has second names.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EPERM | libc::EOPNOTSUPP | libc::ENOSYS)) => {
                fs::copy(from, to).map(drop)
            }
            linked => linked,
        }
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn create_folder(&self, path: &Path) -> io::Result<()> {
        match fs::create_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
            other => other,
        }
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<PathBuf>> {
        fs::read_dir(folder)?.map(|entry| Ok(PathBuf::from(entry?.file_name()))).collect()
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        fs::File::open(folder)?.sync_all()
    }

    fn identity(&self, path: &Path) -> io::Result<Option<Identity>> {
        fs::metadata(path).map(|found| Some(identity_of(&found)))
    }

    fn modified(&self, path: &Path) -> io::Result<Option<u64>> {
        let since = fs::metadata(path)?.modified()?.duration_since(std::time::UNIX_EPOCH);
        Ok(since.ok().and_then(|since| u64::try_from(since.as_millis()).ok()))
    }

    fn remove_folder(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }

    fn lock_folder(&self, folder: &Path) -> io::Result<FolderLock> {
        let file = fs::File::open(folder)?;
        match file.try_lock() {
            Ok(()) => Ok(FolderLock(Some(file))),
            Err(fs::TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
            // Not every file system has locks.
            Err(fs::TryLockError::Error(_)) => Ok(FolderLock(None)),
        }
    }
}

fn identity_of(found: &fs::Metadata) -> Identity {
    Identity { device: found.dev(), inode: found.ino() }
}

impl File for fs::File {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(self, buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        FileExt::write_at(self, bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn allocate(&self, length: u64) -> io::Result<()> {
        let refused = || io::Error::from(io::ErrorKind::FileTooLarge);
        let bytes = libc::off_t::try_from(length).map_err(|_| refused())?;
        // SAFETY: the call takes numbers only, and the descriptor is open as long as `self` is.
        let result = unsafe { libc::posix_fallocate(std::os::fd::AsRawFd::as_raw_fd(self), 0, bytes) };
        match result {
            0 => Ok(()),
            // Not every file system can reserve room: there it is only not known early that the disk is full.
            libc::EOPNOTSUPP | libc::EINVAL => self.set_length(length.max(self.length()?)),
            code => Err(io::Error::from_raw_os_error(code)),
        }
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.set_len(length)
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn identity(&self) -> io::Result<Option<Identity>> {
        self.metadata().map(|found| Some(identity_of(&found)))
    }

    fn has_name(&self) -> io::Result<bool> {
        Ok(self.metadata()?.nlink() > 0)
    }
}
