//! Rounds in one folder: a server starts, has to have what was promised, works, and is killed.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::actor::{Actor, Board, CLIENTS, SHARED, shared_name};
use super::lasting::{Place, Process};
use super::model::{CHAOS_DB, Counts, Dump, Kind, LARGE_LINKS, Op, SHARED_DB, State, large_size, make_large_dumps};
use super::observe::Sight;
use crate::support::chunks::chunks;
use crate::support::{Client, Random, Value};

/// A folder and what has to be in it.
pub struct World {
    place: Place,
    random: Random,
    strict: bool,
    disk: Disk,
    /// What the last round was.
    last: String,
    clients: [Expected; CLIENTS],
}

/// What is between the server and the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Disk {
    /// The system: what is written is kept when the process is killed.
    Kept,
    /// What is written and not synced is lost.
    Lost,
    /// The same, and syncs fail now and then.
    Failing,
}

/// What a client's keys have to be: the state after the first of these changes, as many of them as were promised or more.
#[derive(Default)]
struct Expected {
    base: State,
    journal: Vec<Op>,
    promised: usize,
    next_batch: u64,
    counts: Counts,
}

/// While a file of this name is there, syncs fail now and then.
const FAILING: &str = "failing";

fn prepare(command: &mut Command, disk: Disk) {
    if disk != Disk::Kept {
        command.env("LD_PRELOAD", power_loss());
    }
    if disk == Disk::Failing {
        let words: Vec<std::ffi::OsString> = command.get_args().map(Into::into).collect();
        let dir = words.iter().position(|word| word == "--dir").map(|at| Path::new(&words[at + 1]).join(FAILING));
        command.env("SEENDB_TEST_FAILING", dir.expect("a folder"));
    }
}

/// The library, built once.
pub fn power_loss() -> &'static Path {
    static BUILT: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    let build = || {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let (source, library) = ("tests/crash/power_loss.c", dir.path().join("power_loss.so"));
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library);
        compiler.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join(source)).args(["-ldl", "-lpthread"]);
        assert!(compiler.status().expect("a C compiler, which the build needs too").success(), "{source} compiles");
        (dir, library)
    };
    &BUILT.get_or_init(build).1
}

/// A filter of several chunks is made, dumped, and deleted.
fn take_large_dump(client: &mut Client, kind: Kind) -> Dump {
    let (family, (capacity, items)) = (kind.family(), large_size(kind));
    let options = if kind == Kind::Ring { format!(" LINKS {LARGE_LINKS}") } else { String::new() };
    assert!(client.cmd(&format!("{family}.RESERVE large 1e-12 {capacity}{options}")) == "OK");
    let words = [format!("{family}.MADD"), "large".to_owned()].into_iter();
    client.call(&words.chain((0..items).map(|n| n.to_string())).collect::<Vec<_>>());
    let chunks = chunks(client, "large");
    assert!(client.cmd("DEL large") == 1 && chunks.len() >= 3, "{kind:?}: {} chunks", chunks.len());
    Dump { kind, chunks }
}

/// What stands beside the clients' work.
#[derive(Clone, Copy, Debug)]
enum Beside {
    Nothing,
    Snapshots,
    Rewrites,
    Both,
    /// The log is switched off and on.
    Switches,
    /// So much is logged that segments end.
    Bulk,
}

/// Under `everysec` all that is older when the process ends must be kept.
const AT_RISK: Duration = Duration::from_secs(2);

impl World {
    /// An empty folder; `strict` is `appendfsync always`.
    pub fn new(seed: u64, strict: bool) -> Self {
        let mut random = Random::new(seed);
        let policy = if strict { "always" } else { "everysec" };
        let least = *random.pick(&["64mb", "1mb", "100kb"]);
        // False positives would look like items that came back.
        let rates = ["--bf-error-rate", "1e-9", "--cbf-error-rate", "1e-9", "--dlcbf-error-rate", "1e-9"];
        let args = ["--appendonly", "yes", "--appendfsync", policy, "--auto-aof-rewrite-min-size", least];
        let place = Place::new(&[args, rates].concat());
        let disks = [(40, Disk::Kept), (35, Disk::Lost), (25, Disk::Failing)];
        let disk = if strict { *random.weighted(&disks) } else { Disk::Lost };
        let server = place.start_command(|command| prepare(command, disk));
        let mut client = server.client();
        for number in 0..SHARED {
            let (_, key) = shared_name(number as u64);
            let capacity = [1_000, 1_000, 5_000, 5_000, 5_000, 20_000, 500_000, 500_000][number];
            assert!(client.cmd(&format!("BF.RESERVE {key} 1e-9 {capacity}")) == "OK");
        }
        make_large_dumps(|kind| take_large_dump(&mut client, kind));
        if strict {
            server.kill()
        } else {
            _ = server.end()
        }
        Self { place, random, strict, disk, last: String::new(), clients: Default::default() }
    }

    /// Starts a server, after some that were killed while they started, and checks all that was promised.
    pub fn start(&mut self) -> Process {
        while self.random.percent(30) {
            let server = self.place.spawn_command(&|command: &mut Command| prepare(command, self.disk));
            let most = *self.random.pick(&[10_000, 40_000, 300_000]);
            std::thread::sleep(Duration::from_micros(self.random.below(most) as u64));
            server.kill();
        }
        let mut server = self.place.start_command(|command| prepare(command, self.disk));
        self.check(&server);
        if self.random.percent(15) {
            let status = server.end();
            assert!(status.success(), "the end: {status}");
            server = self.place.start_command(|command| prepare(command, self.disk));
            self.check(&server);
        }
        server
    }

    fn check(&mut self, server: &Process) {
        let mut client = server.client();
        let mut shared = [(0, 0); SHARED];
        for (id, expected) in self.clients.iter_mut().enumerate() {
            let sight = Sight::take(&mut client, id, &expected.base, &expected.journal);
            let settled = expected.settle(&sight);
            settled.unwrap_or_else(|why| panic!("{}: client {id}: {why}", self.last));
            for (number, (least, most)) in shared.iter_mut().enumerate() {
                let key = expected.base.keys.get(&shared_name(number as u64));
                let range = key.map_or((0, 0), |key| expected.counts.range(&key.batches));
                (*least, *most) = (*least + range.0, *most + range.1);
            }
        }
        assert!(client.cmd(&format!("SELECT {SHARED_DB}")) == "OK");
        for (number, (least, most)) in shared.into_iter().enumerate() {
            let (_, key) = shared_name(number as u64);
            let items = client.cmd(&format!("BF.CARD {key}")).int() as u64;
            assert!((least..=most).contains(&items), "{key} counts {items} items, not {least} to {most}");
        }
    }

    /// Clients work, and the process is killed.
    pub fn work(&mut self, server: Process) {
        let board = Board { failing: self.disk == Disk::Failing, ..Board::default() };
        let (port, failing) = (server.port(), self.place.dir().join(FAILING));
        if board.failing {
            std::fs::write(&failing, "").expect("a file");
        }
        let beside = *self.random.weighted(&[
            (30, Beside::Nothing),
            (20, Beside::Snapshots),
            (20, Beside::Rewrites),
            (10, Beside::Both),
            (if self.strict { 15 } else { 0 }, Beside::Switches),
            (5, Beside::Bulk),
        ]);
        let mut random = Random::new(self.random.bits());
        let mut actors: Vec<Actor> = (0..CLIENTS)
            .map(|id| {
                let expected = &self.clients[id];
                let random = Random::new(self.random.bits());
                Actor::new(id, expected.base.clone(), expected.next_batch, expected.counts.clone(), random)
            })
            .collect();
        let micros = if self.strict { self.random.below(100_000) } else { 2_200_000 + self.random.below(800_000) };
        let pause = Duration::from_millis(u64::from(!self.strict));
        let gentle = self.random.percent(15).then(|| Duration::from_micros(self.random.below(20_000) as u64));
        let (killed, suspended) = std::thread::scope(|scope| {
            for actor in &mut actors {
                let board = &board;
                scope.spawn(move || actor.work(Client::connect(port), board, pause));
            }
            let operator = scope.spawn(|| operate(Client::connect(port), &board, beside, &mut random));
            std::thread::sleep(Duration::from_micros(micros as u64));
            if let Some(wait) = gentle {
                server.ask_to_end();
                std::thread::sleep(wait);
            }
            let killed = Instant::now();
            server.kill();
            board.over.store(true, Ordering::Relaxed);
            (killed, operator.join().unwrap_or_else(|cause| std::panic::resume_unwind(cause)))
        });
        let _ = std::fs::remove_file(&failing);
        self.last =
            format!("{micros} us of work, {beside:?}, disk {:?}, asked to end: {}", self.disk, gentle.is_some());
        self.last += if suspended.is_some() { ", log off" } else { "" };
        let promised = suspended.unwrap_or_else(|| board.floors());
        for (actor, expected) in actors.into_iter().zip(&mut self.clients) {
            (expected.next_batch, expected.counts) = (actor.next_batch(), actor.counts.clone());
            let old = actor.times.partition_point(|time| *time + AT_RISK < killed);
            expected.promised = if self.strict { promised[actor.id] } else { old };
            expected.journal = actor.journal;
        }
    }
}

impl Expected {
    /// Finds the state that this is: the latest that fits.
    fn settle(&mut self, sight: &Sight) -> Result<(), String> {
        let (mut state, mut found) = (self.base.clone(), None);
        for done in 0..=self.journal.len() {
            if done > 0 {
                state.apply(&self.journal[done - 1]);
            }
            if done >= self.promised && sight.check(&state, &self.counts).is_ok() {
                found = Some(state.clone());
            }
        }
        let Some(mut state) = found else { return Err(self.explain(sight)) };
        sight.settle(&mut state);
        (self.base, self.promised) = (state, 0);
        self.journal.clear();
        Ok(())
    }

    /// Why no state fits that was promised: for each run of states the same reason, and what ended it.
    fn explain(&self, sight: &Sight) -> String {
        let (mut state, mut fitting, mut reasons, mut before) = (self.base.clone(), None, String::new(), None);
        for done in 0..=self.journal.len() {
            let op = done.checked_sub(1).map(|last| &self.journal[last]);
            op.into_iter().for_each(|op| state.apply(op));
            let why = sight.check(&state, &self.counts).err();
            if why.is_none() {
                fitting = Some(done);
            }
            if why != before {
                let op: String = format!("{op:?}").chars().take(300).collect();
                reasons += &format!("\n{done} after {op}: {why:?}");
                before = why;
            }
        }
        let (sent, promised) = (self.journal.len(), self.promised);
        format!("{promised} of {sent} changes were promised, the state is that after {fitting:?}{reasons}")
    }
}

/// What an operator does until the server is gone. If nothing was promised for a while then: what had been before.
fn operate(
    client: std::io::Result<Client>,
    board: &Board,
    beside: Beside,
    random: &mut Random,
) -> Option<[usize; CLIENTS]> {
    let Ok(mut client) = client else { return None };
    let mut suspended = None;
    let mut say = |line: &str| client.try_call(&line.split(' ').collect::<Vec<_>>());
    while !board.over.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_micros(random.below(20_000) as u64));
        let done = match beside {
            Beside::Nothing => return None,
            Beside::Snapshots => say("BGSAVE"),
            Beside::Rewrites => say("BGREWRITEAOF"),
            Beside::Both => say(random.pick::<&str>(&["BGSAVE SCHEDULE", "BGREWRITEAOF", "SAVE"])),
            Beside::Bulk => bulk(&mut say, random),
            Beside::Switches => {
                let before = board.floors();
                suspended = suspended.or(Some(before));
                let off = say("CONFIG SET appendonly no");
                std::thread::sleep(Duration::from_micros(random.below(10_000) as u64));
                let saved = if random.percent(30) { say("BGSAVE") } else { off };
                saved.and_then(|_| say("CONFIG SET appendonly yes")).inspect(|reply| match reply {
                    // A server that is about to end does not begin a log, nor does one whose disk fails.
                    Value::Error(text) => assert!(text.contains("given up") || board.failing, "{text}"),
                    _ => suspended = None,
                })
            }
        };
        if done.is_err() {
            break;
        }
    }
    suspended
}

/// Large records, so that a segment ends.
fn bulk(say: &mut impl FnMut(&str) -> std::io::Result<Value>, random: &mut Random) -> std::io::Result<Value> {
    say(&format!("SELECT {CHAOS_DB}"))?;
    say(&format!("BF.RESERVE bulk:{} 1e-9 1000000", random.below(3)))?;
    for piece in 0..6 {
        let items: Vec<String> = (0..40_000).map(|_| format!("{piece}:{:040}", random.bits())).collect();
        say(&format!("BF.MADD bulk:{} {}", random.below(3), items.join(" ")))?;
    }
    say("DEL bulk:0 bulk:1")
}
