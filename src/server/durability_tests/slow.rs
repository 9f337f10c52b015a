//! A disk whose sync takes as long as a test lets it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::world::Machine;
use crate::commands::context::ChangeGate;
use crate::persist::files::{File, Files};
use crate::persist::live::Pace;
use crate::persist::simulated::SimulatedFiles;

/// Syncs of files wait while it is closed.
#[derive(Default)]
struct Brake {
    closed: Mutex<bool>,
    changed: Condvar,
}

impl Brake {
    fn set(&self, closed: bool) {
        *self.closed.lock() = closed;
        self.changed.notify_all();
    }

    fn pass(&self) {
        let mut closed = self.closed.lock();
        while *closed {
            self.changed.wait(&mut closed);
        }
    }
}

struct SlowFiles(SimulatedFiles, Arc<Brake>);

struct SlowFile(Box<dyn File>, Arc<Brake>);

impl File for SlowFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buffer, offset)
    }
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.0.write_at(bytes, offset)
    }
    fn sync(&self) -> io::Result<()> {
        self.1.pass();
        self.0.sync()
    }
    fn allocate(&self, length: u64) -> io::Result<()> {
        self.0.allocate(length)
    }
    fn set_length(&self, length: u64) -> io::Result<()> {
        self.0.set_length(length)
    }
    fn length(&self) -> io::Result<u64> {
        self.0.length()
    }
}

impl Files for SlowFiles {
    fn create(&self, path: &Path) -> io::Result<Box<dyn File>> {
        Ok(Box::new(SlowFile(self.0.create(path)?, self.1.clone())))
    }
    fn open(&self, path: &Path) -> io::Result<Box<dyn File>> {
        self.0.open(path)
    }
    fn open_to_write(&self, path: &Path) -> io::Result<Box<dyn File>> {
        Ok(Box::new(SlowFile(self.0.open_to_write(path)?, self.1.clone())))
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.rename(from, to)
    }
    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.link(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.0.remove(path)
    }
    fn create_folder(&self, path: &Path) -> io::Result<()> {
        self.0.create_folder(path)
    }
    fn list(&self, folder: &Path) -> io::Result<Vec<PathBuf>> {
        self.0.list(folder)
    }
    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        self.0.sync_folder(folder)
    }
}

/// While a sync hangs, under `everysec`: reads are answered, changes are until the oldest is at risk for too long, and go on
/// when the sync is done.
#[test]
fn c108_a_slow_sync_holds_up_changes_only_and_those_only_in_time() {
    let (disk, brake) = (SimulatedFiles::new(1), Arc::new(Brake::default()));
    let settings = [("appendonly", "yes"), ("appendfsync", "everysec"), ("save", "")];
    let pace = Pace {
        write: Duration::from_millis(1),
        sync: Duration::from_millis(1),
        most_at_risk: Duration::from_millis(30),
        ..Pace::default()
    };
    let mut machine = Machine::start(Arc::new(SlowFiles(disk, brake.clone())), &settings, pace).expect("it starts");
    for round in 0..5 {
        let context = format!("round {round}");
        brake.set(true);
        assert!(
            machine.ask(&format!("BF.ADD k first{round}"), &context).expect("nothing is waited for").starts_with(':')
        );
        machine.await_that(&context, |machine| matches!(machine.durability.change_gate(), ChangeGate::Wait(_)));
        let live = machine.durability.live.clone();
        assert!(live.at_risk() >= pace.most_at_risk, "changes wait when it is time, not before");
        assert!(live.synced() < live.position() && live.health().error.is_none());
        // None of these waits: the test's thread would never let the sync go on.
        assert_eq!(machine.ask("PING", &context).expect("an answer"), "+PONG\r\n");
        assert_eq!(machine.ask(&format!("BF.EXISTS k first{round}"), &context).expect("an answer"), ":1\r\n");
        brake.set(false);
        assert!(machine.ask(&format!("BF.ADD k second{round}"), &context).expect("it goes on").starts_with(':'));
        machine.await_that(&context, |machine| machine.durability.live.at_risk().is_zero());
        assert_eq!(live.synced(), live.position());
        assert!(live.health().last_sync_time >= pace.most_at_risk || live.syncs() > 0);
    }
}
