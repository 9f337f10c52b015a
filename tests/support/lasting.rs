//! A folder in which servers run one after the other, and are killed.

#![allow(dead_code, reason = "every test program uses another part of this module")]

use super::support::{Client, Value, free_port};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A folder with data.
pub struct Place {
    dir: tempfile::TempDir,
    args: Vec<String>,
    starts: AtomicU32,
}

/// How a start that was refused ended.
pub struct Refused {
    pub status: ExitStatus,
    /// All that it said.
    pub said: String,
}

impl Place {
    /// An empty folder; every server in it gets these words.
    pub fn new(args: &[&str]) -> Self {
        let dir = tempfile::Builder::new().prefix("seendb-test-").tempdir().expect("a temporary folder");
        Self { dir, args: args.iter().map(ToString::to_string).collect(), starts: AtomicU32::new(0) }
    }

    /// The folder with the data.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Starts a server and waits until the data are loaded.
    #[track_caller]
    pub fn start(&self) -> Process {
        self.start_with(&[])
    }

    /// The same, with more words.
    #[track_caller]
    pub fn start_with(&self, args: &[&str]) -> Process {
        self.start_command(|command| _ = command.args(args))
    }

    /// The same, with a command that was made ready in some way.
    #[track_caller]
    pub fn start_command(&self, prepare: impl Fn(&mut Command)) -> Process {
        let mut last = String::new();
        for _ in 0..5 {
            let mut process = self.spawn_command(&prepare);
            match process.await_ready() {
                Ok(()) => return process,
                // Another program may have taken the port in between.
                Err(why) if why.contains("in use") => last = why,
                Err(why) => panic!("the server does not start: {why}"),
            }
        }
        panic!("the server finds no port: {last}")
    }

    /// Starts a server and waits for nothing.
    pub fn spawn(&self) -> Process {
        self.spawn_command(&|_: &mut Command| {})
    }

    /// The same, with a command that was made ready in some way.
    pub fn spawn_command(&self, prepare: &impl Fn(&mut Command)) -> Process {
        let port = free_port();
        let log = self.dir().join(format!("start-{}.txt", self.starts.fetch_add(1, Ordering::Relaxed)));
        let file = File::create(&log).expect("a log file");
        let mut command = Command::new(program());
        command.args(["--port", &port.to_string(), "--dir"]).arg(self.dir()).args(&self.args);
        prepare(&mut command);
        let child = command
            .stdin(Stdio::null())
            .stdout(file.try_clone().expect("a second handle of the log"))
            .stderr(file)
            .spawn()
            .expect("the program starts");
        Process { child, port, log }
    }

    /// Another folder, with a copy of the log of this one.
    pub fn with_its_log(&self) -> Self {
        let copy = Self::new(&["--appendonly", "yes", "--appendfsync", "no", "--save", ""]);
        let (from, to) = (self.dir().join("appendonlydir"), copy.dir().join("appendonlydir"));
        std::fs::create_dir(&to).expect("a folder");
        for entry in std::fs::read_dir(from).expect("the log") {
            let entry = entry.expect("an entry");
            std::fs::copy(entry.path(), to.join(entry.file_name())).expect("a copy");
        }
        copy
    }

    /// Another folder, with a copy of the snapshot of this one.
    pub fn with_its_snapshot(&self) -> Self {
        let copy = Self::new(&["--save", ""]);
        std::fs::copy(self.dir().join("dump.rdb"), copy.dir().join("dump.rdb")).expect("a copy");
        copy
    }

    /// What `seendb log cat` makes of the log: commands, as they are sent.
    #[track_caller]
    pub fn log_as_commands(&self) -> Vec<u8> {
        let mut command = Command::new(program());
        command.args(["log", "cat", "--resp"]).arg(self.dir().join("appendonlydir"));
        let output = command.output().expect("the program");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    }

    /// Starts a server that must end by itself.
    #[track_caller]
    pub fn refused(&self, args: &[&str]) -> Refused {
        let mut process = self.spawn_command(&|command: &mut Command| _ = command.args(args));
        let status = process.wait_for_end();
        Refused { status, said: process.said() }
    }
}

/// The program of this build; `SEENDB_TEST_PROGRAM` names another one, as the one that is shipped.
fn program() -> PathBuf {
    std::env::var_os("SEENDB_TEST_PROGRAM").map_or_else(|| env!("CARGO_BIN_EXE_seendb").into(), PathBuf::from)
}

/// A server; killed when dropped.
pub struct Process {
    child: Child,
    port: u16,
    log: PathBuf,
}

impl Process {
    /// The port at 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// A new connection.
    #[track_caller]
    pub fn client(&self) -> Client {
        Client::connect(self.port).expect("a connection")
    }

    /// All that the server has said so far.
    pub fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Waits until the data are loaded; why they are not, otherwise.
    pub fn await_ready(&mut self) -> Result<(), String> {
        let end = Instant::now() + Duration::from_secs(60);
        while Instant::now() < end {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(format!("it ended with {status}\n{}", self.said()));
            }
            if let Ok(mut client) = Client::connect(self.port)
                && let Ok(Value::Int(_)) = client.try_call(&["DBSIZE"])
            {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Err(format!("it is not ready within 60 s\n{}", self.said()))
    }

    /// Ends it as a crash does.
    pub fn kill(mut self) {
        self.kill_now();
    }

    fn kill_now(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Asks it to end, and waits until it has.
    #[track_caller]
    pub fn end(mut self) -> ExitStatus {
        self.ask_to_end();
        self.wait_for_end()
    }

    /// Asks it to end.
    pub fn ask_to_end(&self) {
        // SAFETY: the process is a child of ours that was not waited for yet, so the number is its own.
        let sent = unsafe { libc::kill(self.pid() as libc::pid_t, libc::SIGTERM) };
        assert_eq!(sent, 0, "the server is there");
    }

    /// Waits until it ends by itself.
    #[track_caller]
    pub fn wait_for_end(&mut self) -> ExitStatus {
        let end = Instant::now() + Duration::from_secs(60);
        while Instant::now() < end {
            if let Ok(Some(status)) = self.child.try_wait() {
                return status;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        panic!("the server did not end within 60 s: {}", self.said())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let running = matches!(self.child.try_wait(), Ok(None));
        self.kill_now();
        if std::thread::panicking() {
            let said = self.said();
            let from = said.char_indices().rev().nth(4000).map_or(0, |(at, _)| at);
            eprintln!(
                "--- server at port {} ({})\n{}",
                self.port,
                if running { "killed" } else { "ended" },
                &said[from..]
            );
        }
    }
}
