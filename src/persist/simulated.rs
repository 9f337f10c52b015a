//! For tests: a disk that fails.
//!
//! [`SimulatedFiles`] is a file system in memory that keeps apart what a running system sees and what is safe. It does what a
//! real one may do at worst:
//!
//! * **At a power loss** ([`after_power_loss`](SimulatedFiles::after_power_loss)) of each write that was not synced nothing is
//!   kept, or all, or some sectors of 512 bytes, or the bytes before any of them, each write by itself. Names that were made,
//!   changed or removed and are not safe may be so or as before, each by itself; a rename is one step.
//! * **At a failed sync** some of the writes are kept and the others are lost, though they can still be read, and a later
//!   sync succeeds without them.
//! * **Calls fail** ([`fail`](SimulatedFiles::fail)) from any one on, once or for ever, with a full disk, an error of the
//!   device, or a short write first. A call that fails for an error of the device may have been carried out in part.
//! * **The room ends** ([`limit`](SimulatedFiles::limit)): files that have names take whole blocks of 4096 bytes, reserved room too.
//!
//! The generator of chances has a seed: the same calls give the same outcome.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fastrand::Rng;
use parking_lot::Mutex;

use super::files::{File, Files, Identity};

/// What a power loss keeps or drops as one.
const SECTOR_BYTES: usize = 512;
/// What a file takes at least, if there is anything in it.
const BLOCK_BYTES: usize = 4096;

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The disk is full: what needs room fails, syncs too.
    NoSpace,
    /// The device has an error.
    Device,
    /// The machine stops: no call has an effect any more.
    Stop,
}

/// When it goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What.
    pub fault: Fault,
    /// With how many calls before it.
    pub after: u64,
    /// The call after that works again.
    pub once: bool,
    /// If the call is a write, it takes half of its bytes, and the next call fails in its place.
    pub short: bool,
}

/// A file system in memory. Clones are the same one.
#[derive(Clone)]
pub struct SimulatedFiles(Arc<Mutex<Disk>>);

#[derive(Clone)]
struct Disk {
    random: Rng,
    calls: u64,
    failure: Option<Failure>,
    /// Bytes that files with names may take.
    limit: Option<usize>,
    inodes: Vec<Inode>,
    names: Names,
    safe_names: Names,
    /// Changes of names that are not safe, in their order.
    name_changes: Vec<NameChange>,
}

/// A folder has no inode.
type Names = BTreeMap<PathBuf, Option<usize>>;

#[derive(Clone)]
enum NameChange {
    Put(PathBuf, Option<usize>),
    Rename(PathBuf, PathBuf, usize),
    RenameFolder(PathBuf, PathBuf),
    Remove(PathBuf),
}

#[derive(Clone, Default)]
struct Inode {
    seen: Vec<u8>,
    safe: Vec<u8>,
    /// What is not safe, in its order.
    changes: Vec<Change>,
    /// When it was changed last, in milliseconds since 1970.
    modified: u64,
}

#[derive(Clone)]
enum Change {
    Write(usize, Vec<u8>),
    Length(usize),
}

impl SimulatedFiles {
    /// An empty disk with nothing but the folder `/`.
    pub fn new(seed: u64) -> SimulatedFiles {
        let names = Names::from([(PathBuf::from("/"), None)]);
        SimulatedFiles(Arc::new(Mutex::new(Disk {
            random: Rng::with_seed(seed),
            calls: 0,
            failure: None,
            limit: None,
            inodes: Vec::new(),
            safe_names: names.clone(),
            names,
            name_changes: Vec::new(),
        })))
    }

    /// Let calls fail from now on; `None` lets them work.
    pub fn fail(&self, failure: Option<Failure>) {
        let mut disk = self.0.lock();
        disk.failure = failure;
    }

    /// So many bytes are there for files from now on; `None` for any number.
    pub fn limit(&self, bytes: Option<usize>) {
        self.0.lock().limit = bytes;
    }

    /// Bytes that files with names take.
    pub fn used(&self) -> usize {
        self.0.lock().used()
    }

    /// Calls so far.
    pub fn calls(&self) -> u64 {
        self.0.lock().calls
    }

    /// What a machine may find that loses its power now. This disk stays as it is.
    pub fn after_power_loss(&self, seed: u64) -> SimulatedFiles {
        let mut disk = self.0.lock().clone();
        disk.random = Rng::with_seed(seed);
        disk.failure = None;
        // One in four machines is lucky or unlucky with everything.
        let chance = [0.0, 0.5, 0.5, 0.5, 0.9, 1.0][disk.random.usize(..6)];
        for change in std::mem::take(&mut disk.name_changes) {
            if disk.random.f64() < chance {
                change.apply(&mut disk.safe_names);
            }
        }
        let safe = disk.safe_names.clone();
        disk.safe_names.retain(|path, _| path.ancestors().all(|path| safe.contains_key(path)));
        disk.names = disk.safe_names.clone();
        for (number, inode) in disk.inodes.iter_mut().enumerate() {
            inode.lose_some(&mut disk.random, chance);
            inode.seen.clone_from(&inode.safe);
            if !disk.names.values().any(|other| *other == Some(number)) {
                *inode = Inode::default();
            }
        }
        SimulatedFiles(Arc::new(Mutex::new(disk)))
    }

    /// A disk with the same files that goes its own way.
    pub fn copy(&self) -> SimulatedFiles {
        SimulatedFiles(Arc::new(Mutex::new(self.0.lock().clone())))
    }

    /// Names of all files.
    pub fn paths(&self) -> Vec<PathBuf> {
        let disk = self.0.lock();
        disk.names.iter().filter(|(_, inode)| inode.is_some()).map(|(path, _)| path.clone()).collect()
    }

    /// What a file holds.
    pub fn content(&self, path: &Path) -> Option<Vec<u8>> {
        let disk = self.0.lock();
        disk.inode_of(path).ok().map(|inode| disk.inodes[inode].seen.clone())
    }

    /// Put a file there that is safe, with its name and the folders it is in; or take it away.
    pub fn set_content(&self, path: &Path, content: Option<&[u8]>) {
        let mut disk = self.0.lock();
        let Some(content) = content else {
            disk.names.remove(path);
            disk.safe_names.remove(path);
            return;
        };
        let (seen, safe) = (content.to_vec(), content.to_vec());
        disk.inodes.push(Inode { seen, safe, changes: Vec::new(), modified: unix_ms() });
        let inode = Some(disk.inodes.len() - 1);
        for (ancestor, inode) in path.ancestors().zip([inode].into_iter().chain(std::iter::repeat(None))) {
            disk.names.insert(ancestor.to_owned(), inode);
            disk.safe_names.insert(ancestor.to_owned(), inode);
        }
    }
}

/// What a call does that fails.
enum Outcome {
    Work,
    /// Take only half of a write.
    Half,
    Fail(io::Error),
    /// Maybe do some of it.
    FailAfterPart(io::Error),
}

/// Whether a call needs room.
#[derive(Clone, Copy, PartialEq)]
enum Needs {
    Nothing,
    Room,
    /// And can be done in part.
    RoomForBytes,
}

impl Disk {
    fn next_call(&mut self, needs: Needs) -> Outcome {
        self.calls += 1;
        let Some(failure) = &mut self.failure else { return Outcome::Work };
        if failure.after > 0 {
            failure.after -= 1;
            return Outcome::Work;
        }
        if failure.fault == Fault::NoSpace && needs == Needs::Nothing {
            return Outcome::Work;
        }
        if failure.short {
            failure.short = false;
            return if needs == Needs::RoomForBytes { Outcome::Half } else { Outcome::Work };
        }
        let fault = failure.fault;
        if failure.once {
            self.failure = None;
        }
        match fault {
            Fault::NoSpace => Outcome::Fail(io::Error::from_raw_os_error(libc::ENOSPC)),
            Fault::Stop => Outcome::Fail(io::Error::from_raw_os_error(libc::EIO)),
            Fault::Device => Outcome::FailAfterPart(io::Error::from_raw_os_error(libc::EIO)),
        }
    }

    /// Do a step, or do it and report an error, or only report it.
    fn step<T>(&mut self, needs: Needs, work: impl FnOnce(&mut Disk) -> io::Result<T>) -> io::Result<T> {
        match self.next_call(needs) {
            Outcome::Work | Outcome::Half => work(self),
            Outcome::Fail(error) => Err(error),
            Outcome::FailAfterPart(error) => {
                if self.random.bool() {
                    work(self)?;
                }
                Err(error)
            }
        }
    }

    fn used(&self) -> usize {
        let named: BTreeSet<usize> = self.names.values().flatten().copied().collect();
        named.into_iter().map(|inode| self.inodes[inode].blocks()).sum()
    }

    /// How long a file can be, at most so long as is wanted.
    fn room_for(&self, inode: usize, wanted: usize) -> usize {
        let Some(limit) = self.limit else { return wanted };
        let own = self.inodes[inode].blocks();
        let free = limit.saturating_sub(self.used()) / BLOCK_BYTES * BLOCK_BYTES;
        wanted.min(own + free)
    }

    fn inode_of(&self, path: &Path) -> io::Result<usize> {
        match self.names.get(path) {
            Some(Some(inode)) => Ok(*inode),
            Some(None) => Err(io::ErrorKind::IsADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn folder_of(&self, path: &Path) -> io::Result<()> {
        match path.parent().and_then(|folder| self.names.get(folder)) {
            Some(None) => Ok(()),
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn change_name(&mut self, change: NameChange) {
        change.apply(&mut self.names);
        self.name_changes.push(change);
    }
}

impl NameChange {
    fn apply(&self, names: &mut Names) {
        match self {
            Self::Put(path, inode) => {
                names.insert(path.clone(), *inode);
            }
            Self::Rename(from, to, inode) => {
                names.insert(to.clone(), Some(*inode));
                if names.get(from) == Some(&Some(*inode)) {
                    names.remove(from);
                }
            }
            Self::RenameFolder(from, to) => {
                let inside: Vec<PathBuf> = names.keys().filter(|path| path.starts_with(from)).cloned().collect();
                for path in inside {
                    let Some(inode) = names.remove(&path) else { continue };
                    let place = path.strip_prefix(from).map_or(to.clone(), |rest| match rest.as_os_str().is_empty() {
                        true => to.clone(),
                        false => to.join(rest),
                    });
                    names.insert(place, inode);
                }
            }
            Self::Remove(path) => {
                names.remove(path);
            }
        }
    }

    fn is_in(&self, folder: &Path) -> bool {
        match self {
            Self::Put(path, _) | Self::Remove(path) => path.parent() == Some(folder),
            Self::RenameFolder(from, to) | Self::Rename(from, to, _) => {
                from.parent() == Some(folder) || to.parent() == Some(folder)
            }
        }
    }
}

impl Inode {
    fn blocks(&self) -> usize {
        self.seen.len().next_multiple_of(BLOCK_BYTES)
    }

    fn change(&mut self, change: Change) {
        change.apply(&mut self.seen);
        self.changes.push(change);
        self.modified = unix_ms();
    }

    fn sync(&mut self) {
        self.changes.drain(..).for_each(|change| change.apply(&mut self.safe));
    }

    /// Let some of the changes become safe, and forget the others.
    fn lose_some(&mut self, random: &mut Rng, chance: f64) {
        for change in self.changes.drain(..) {
            let whole = random.f64() < chance;
            match change {
                Change::Write(offset, bytes) if !whole => write_in_part(&mut self.safe, offset, &bytes, random, chance),
                change if whole => change.apply(&mut self.safe),
                Change::Length(_) | Change::Write(..) => {}
            }
        }
    }
}

impl Change {
    fn apply(&self, content: &mut Vec<u8>) {
        match self {
            Self::Write(offset, bytes) => write(content, *offset, bytes),
            Self::Length(length) => {
                content.resize(*length, 0);
                // Of a disk that lives long there are many files that were longer once.
                if content.capacity() > length + BLOCK_BYTES {
                    content.shrink_to_fit();
                }
            }
        }
    }
}

fn write(content: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    if bytes.is_empty() {
        return;
    }
    let end = offset + bytes.len();
    if content.len() < end {
        content.resize(end, 0);
    }
    content[offset..end].copy_from_slice(bytes);
}

/// Nothing, some sectors, or the bytes before any of them.
fn write_in_part(content: &mut Vec<u8>, offset: usize, bytes: &[u8], random: &mut Rng, chance: f64) {
    match random.u8(..3) {
        0 => {}
        1 => write(content, offset, &bytes[..random.usize(..=bytes.len())]),
        _ => {
            let mut at = 0;
            while at < bytes.len() {
                let end = ((offset + at + 1).next_multiple_of(SECTOR_BYTES) - offset).min(bytes.len());
                if random.f64() < chance {
                    write(content, offset + at, &bytes[at..end]);
                }
                at = end;
            }
        }
    }
}

fn unix_ms() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}

/// An open file of the disk.
struct SimulatedFile {
    disk: Arc<Mutex<Disk>>,
    inode: usize,
    writable: bool,
}

impl SimulatedFile {
    fn step<T>(&self, needs: Needs, work: impl FnOnce(&mut Inode) -> io::Result<T>) -> io::Result<T> {
        if !self.writable && needs != Needs::Nothing {
            return Err(io::Error::from_raw_os_error(libc::EBADF));
        }
        self.disk.lock().step(needs, |disk| work(&mut disk.inodes[self.inode]))
    }
}

impl File for SimulatedFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.step(Needs::Nothing, |inode| {
            let from = usize::try_from(offset).unwrap_or(usize::MAX).min(inode.seen.len());
            let read = buffer.len().min(inode.seen.len() - from);
            buffer[..read].copy_from_slice(&inode.seen[from..from + read]);
            Ok(read)
        })
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        if !self.writable {
            return Err(io::Error::from_raw_os_error(libc::EBADF));
        }
        let offset = usize::try_from(offset).map_err(|_| io::ErrorKind::FileTooLarge)?;
        let disk = &mut *self.disk.lock();
        let outcome = disk.next_call(Needs::RoomForBytes);
        let room = disk.room_for(self.inode, offset + bytes.len()).saturating_sub(offset);
        if room == 0 && !bytes.is_empty() {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        let bytes = &bytes[..room.min(bytes.len())];
        let inode = &mut disk.inodes[self.inode];
        let mut take = |count: usize| {
            inode.change(Change::Write(offset, bytes[..count].to_vec()));
            count
        };
        match outcome {
            Outcome::Work => Ok(take(bytes.len())),
            Outcome::Half => Ok(take(bytes.len().div_ceil(2))),
            Outcome::Fail(error) => Err(error),
            Outcome::FailAfterPart(error) => {
                take(disk.random.usize(..=bytes.len()));
                Err(error)
            }
        }
    }

    fn sync(&self) -> io::Result<()> {
        let disk = &mut *self.disk.lock();
        let outcome = disk.next_call(Needs::Room);
        let inode = &mut disk.inodes[self.inode];
        match outcome {
            Outcome::Work | Outcome::Half => {
                inode.sync();
                Ok(())
            }
            Outcome::Fail(error) | Outcome::FailAfterPart(error) => {
                let stopped = disk.failure.is_some_and(|failure| failure.fault == Fault::Stop);
                if !stopped {
                    inode.lose_some(&mut disk.random, 0.5);
                }
                Err(error)
            }
        }
    }

    fn allocate(&self, length: u64) -> io::Result<()> {
        if !self.writable {
            return Err(io::Error::from_raw_os_error(libc::EBADF));
        }
        self.disk.lock().step(Needs::Room, |disk| {
            let length = usize::try_from(length).map_err(|_| io::ErrorKind::FileTooLarge)?;
            if disk.room_for(self.inode, length) < length {
                return Err(io::Error::from_raw_os_error(libc::ENOSPC));
            }
            let inode = &mut disk.inodes[self.inode];
            if length > inode.seen.len() {
                inode.change(Change::Length(length));
            }
            Ok(())
        })
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.step(Needs::Room, |inode| {
            inode.change(Change::Length(usize::try_from(length).map_err(|_| io::ErrorKind::FileTooLarge)?));
            Ok(())
        })
    }

    fn identity(&self) -> io::Result<Option<Identity>> {
        Ok(Some(Identity { device: 0, inode: self.inode as u64 }))
    }

    fn length(&self) -> io::Result<u64> {
        self.step(Needs::Nothing, |inode| Ok(inode.seen.len() as u64))
    }
}

impl SimulatedFiles {
    fn opened(&self, path: &Path, writable: bool) -> io::Result<Box<dyn File>> {
        let inode = self.0.lock().step(Needs::Nothing, |disk| disk.inode_of(path))?;
        Ok(Box::new(SimulatedFile { disk: self.0.clone(), inode, writable }))
    }
}

impl Files for SimulatedFiles {
    fn create(&self, path: &Path) -> io::Result<Box<dyn File>> {
        let inode = self.0.lock().step(Needs::Room, |disk| {
            disk.folder_of(path)?;
            match disk.inode_of(path) {
                Ok(inode) => {
                    disk.inodes[inode].change(Change::Length(0));
                    Ok(inode)
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    disk.inodes.push(Inode::default());
                    let inode = disk.inodes.len() - 1;
                    disk.change_name(NameChange::Put(path.to_owned(), Some(inode)));
                    Ok(inode)
                }
                Err(error) => Err(error),
            }
        })?;
        Ok(Box::new(SimulatedFile { disk: self.0.clone(), inode, writable: true }))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn File>> {
        self.opened(path, false)
    }

    fn open_to_write(&self, path: &Path) -> io::Result<Box<dyn File>> {
        self.opened(path, true)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.lock().step(Needs::Room, |disk| {
            disk.folder_of(to)?;
            if disk.names.get(from) == Some(&None) {
                disk.change_name(NameChange::RenameFolder(from.to_owned(), to.to_owned()));
                return Ok(());
            }
            let inode = disk.inode_of(from)?;
            disk.change_name(NameChange::Rename(from.to_owned(), to.to_owned(), inode));
            Ok(())
        })
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.lock().step(Needs::Room, |disk| {
            disk.folder_of(to)?;
            let inode = disk.inode_of(from)?;
            disk.change_name(NameChange::Put(to.to_owned(), Some(inode)));
            Ok(())
        })
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.0.lock().step(Needs::Nothing, |disk| {
            disk.inode_of(path)?;
            disk.change_name(NameChange::Remove(path.to_owned()));
            Ok(())
        })
    }

    fn create_folder(&self, path: &Path) -> io::Result<()> {
        self.0.lock().step(Needs::Room, |disk| {
            disk.folder_of(path)?;
            match disk.names.get(path) {
                None => disk.change_name(NameChange::Put(path.to_owned(), None)),
                Some(None) => {}
                Some(Some(_)) => return Err(io::ErrorKind::AlreadyExists.into()),
            }
            Ok(())
        })
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<PathBuf>> {
        self.0.lock().step(Needs::Nothing, |disk| {
            if disk.names.get(folder) != Some(&None) {
                return Err(io::ErrorKind::NotFound.into());
            }
            let inside = disk.names.keys().filter(|path| path.parent() == Some(folder));
            Ok(inside.filter_map(|path| path.file_name()).map(PathBuf::from).collect())
        })
    }

    // These look at what is known anyway, and never fail of themselves: they are called by the clock, and a failure is to come
    // after a number of other calls.

    fn identity(&self, path: &Path) -> io::Result<Option<Identity>> {
        match self.0.lock().names.get(path) {
            Some(inode) => Ok(inode.map(|inode| Identity { device: 0, inode: inode as u64 })),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn modified(&self, path: &Path) -> io::Result<Option<u64>> {
        let disk = self.0.lock();
        disk.inode_of(path).map(|inode| Some(disk.inodes[inode].modified))
    }

    fn remove_folder(&self, path: &Path) -> io::Result<()> {
        self.0.lock().step(Needs::Nothing, |disk| {
            let is_empty = disk.names.keys().all(|name| name.parent() != Some(path));
            match disk.names.get(path) {
                Some(None) if is_empty => disk.change_name(NameChange::Remove(path.to_owned())),
                Some(None) => return Err(io::ErrorKind::DirectoryNotEmpty.into()),
                _ => return Err(io::ErrorKind::NotFound.into()),
            }
            Ok(())
        })
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        self.0.lock().step(Needs::Room, |disk| {
            let all = std::mem::take(&mut disk.name_changes);
            for change in all {
                if change.is_in(folder) {
                    change.apply(&mut disk.safe_names);
                } else {
                    disk.name_changes.push(change);
                }
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: &str = "/file";

    fn disk_with_synced_file() -> (SimulatedFiles, Box<dyn File>) {
        let disk = SimulatedFiles::new(1);
        let file = disk.create(Path::new(PATH)).unwrap();
        file.write_all_at(&[1; 2000], 0).unwrap();
        file.sync().unwrap();
        disk.sync_folder(Path::new("/")).unwrap();
        (disk, file)
    }

    fn after(disk: &SimulatedFiles, seed: u64) -> Option<Vec<u8>> {
        disk.after_power_loss(seed).content(Path::new(PATH))
    }

    #[test]
    fn what_is_synced_outlives_every_power_loss_and_other_writes_any_part_of_it() {
        let (disk, file) = disk_with_synced_file();
        assert!((0..100).all(|seed| after(&disk, seed) == Some(vec![1; 2000])));
        file.write_all_at(&[2; 1500], 0).unwrap();
        let mut kinds = [0; 4];
        for seed in 0..300 {
            let content = after(&disk, seed).unwrap();
            assert_eq!(content.len(), 2000);
            let changes = (1..1500).filter(|at| content[*at] != content[at - 1]).count();
            kinds[match (content[0], content[1499], changes) {
                (1, 1, 0) => 0,
                (2, 2, 0) => 1,
                (2, 1, 1) => 2,
                _ => 3,
            }] += 1;
        }
        assert!(kinds.iter().all(|kind| *kind > 5), "{kinds:?}");
    }

    #[test]
    fn names_are_safe_when_their_folder_is_synced() {
        let (disk, _) = disk_with_synced_file();
        let (from, to, other) = (Path::new("/new"), Path::new(PATH), Path::new("/other"));
        let file = disk.create(from).unwrap();
        file.write_all_at(b"new", 0).unwrap();
        file.sync().unwrap();
        disk.rename(from, to).unwrap();
        disk.create(other).unwrap();
        let outcomes = |disk: &SimulatedFiles| {
            let outcome = |seed| {
                let lost = disk.after_power_loss(seed);
                (lost.content(to) == Some(b"new".to_vec()), lost.content(other).is_some())
            };
            (0..100).map(outcome).collect::<std::collections::BTreeSet<_>>()
        };
        assert_eq!(outcomes(&disk).len(), 4);
        disk.sync_folder(Path::new("/")).unwrap();
        assert_eq!(outcomes(&disk).into_iter().collect::<Vec<_>>(), [(true, true)]);
    }

    #[test]
    fn a_failed_sync_loses_what_a_later_one_does_not_bring_back() {
        let lost = (0..50).filter(|seed| {
            let (disk, file) = disk_with_synced_file();
            disk.0.lock().random = Rng::with_seed(*seed);
            file.write_all_at(&[2; 2000], 0).unwrap();
            disk.fail(Some(Failure { fault: Fault::Device, after: 0, once: true, short: false }));
            assert!(file.sync().is_err());
            assert_eq!(disk.content(Path::new(PATH)), Some(vec![2; 2000]), "it is still seen");
            file.sync().unwrap();
            after(&disk, 1) != Some(vec![2; 2000])
        });
        assert!((10..45).contains(&lost.count()));
    }

    #[test]
    fn a_disk_with_a_limit_takes_whole_blocks_up_to_it() {
        let (disk, file) = disk_with_synced_file();
        disk.limit(Some(3 * BLOCK_BYTES));
        assert_eq!(disk.used(), BLOCK_BYTES);
        file.allocate(4096).unwrap();
        let other = disk.create(Path::new("/other")).unwrap();
        assert_eq!(other.allocate(8193).unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(other.write_at(&[1; 9000], 0).unwrap(), 8192);
        assert_eq!(other.write_at(&[1], 8192).unwrap_err().kind(), io::ErrorKind::StorageFull);
        other.write_all_at(&[2; 8192], 0).unwrap();
        assert_eq!(file.write_at(&[1; 10], 4090).unwrap(), 6);
        disk.remove(Path::new("/other")).unwrap();
        file.write_all_at(&[1; 4], 4096).unwrap();
        assert_eq!(disk.used(), 2 * BLOCK_BYTES);
    }

    #[test]
    fn a_full_disk_takes_half_of_a_write_and_then_nothing() {
        let (disk, file) = disk_with_synced_file();
        disk.fail(Some(Failure { fault: Fault::NoSpace, after: 1, once: false, short: true }));
        file.write_all_at(&[3; 10], 0).unwrap();
        assert_eq!(file.write_at(&[4; 10], 0).unwrap(), 5);
        for _ in 0..3 {
            assert_eq!(file.write_at(&[5; 10], 5).unwrap_err().kind(), io::ErrorKind::StorageFull);
        }
        disk.fail(None);
        file.write_all_at(&[6; 1], 5).unwrap();
        assert_eq!(disk.content(Path::new(PATH)).unwrap()[..12], [4, 4, 4, 4, 4, 6, 3, 3, 3, 3, 1, 1]);
    }
}
