//! Starting and stopping servers: `seendb` as built for the tests, and the peer (Redis with RedisBloom).

use super::client::{Client, Value};
use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A running server; stopped, and its folder removed, when dropped.
pub struct Server {
    child: Child,
    port: u16,
    dir: tempfile::TempDir,
    name: &'static str,
}

/// True when the suite is to run against RedisBloom, see the module's page.
pub fn target_is_peer() -> bool {
    std::env::var("SEENDB_TEST_TARGET").is_ok_and(|target| target == "peer")
}

impl Server {
    /// Starts `seendb` with its defaults.
    #[track_caller]
    pub fn start() -> Server {
        Server::with(&[])
    }

    /// Starts `seendb` with more words on the command line, such as `["--bf-error-rate", "0.001"]`.
    #[track_caller]
    pub fn with(args: &[&str]) -> Server {
        match target_is_peer() {
            true => Server::peer(),
            false => launch("seendb", Path::new(env!("CARGO_BIN_EXE_seendb")), args),
        }
    }

    /// Starts the peer. That it cannot be had is a failure, not a reason to skip.
    #[track_caller]
    pub fn peer() -> Server {
        Server::peer_with(&[])
    }

    /// Starts the peer with more words on the command line.
    #[track_caller]
    pub fn peer_with(args: &[&str]) -> Server {
        let module = peer_module().to_str().expect("the module's path is UTF-8");
        Server::redis(&[&["--loadmodule", module], args].concat())
    }

    /// Starts `seendb` on these data: files and folders, each copied into its folder under the name given.
    #[track_caller]
    pub fn on(data: &[(&Path, &str)], args: &[&str]) -> Server {
        launch_on("seendb", Path::new(env!("CARGO_BIN_EXE_seendb")), data, args)
    }

    /// Starts the peer on these data.
    #[track_caller]
    pub fn peer_on(data: &[(&Path, &str)]) -> Server {
        let module = peer_module().to_str().expect("the module's path is UTF-8");
        launch_on(
            "peer",
            Path::new("redis-server"),
            data,
            &["--save", "", "--appendonly", "no", "--loadmodule", module],
        )
    }

    /// Starts Valkey 9 with RedisBloom on these data.
    #[track_caller]
    pub fn valkey_on(data: &[(&Path, &str)]) -> Server {
        let module = peer_module().to_str().expect("the module's path is UTF-8");
        let args = ["--save", "", "--appendonly", "no", "--loadmodule", module];
        launch_on("valkey", &asked("--valkey"), data, &args)
    }

    /// Starts a Redis without RedisBloom, with more words on the command line.
    #[track_caller]
    pub fn redis(args: &[&str]) -> Server {
        launch("peer", Path::new("redis-server"), &[&["--save", "", "--appendonly", "no"], args].concat())
    }

    /// Starts Valkey 9. That it cannot be had is a failure too.
    #[track_caller]
    pub fn valkey() -> Server {
        launch("valkey", &asked("--valkey"), &["--save", "", "--appendonly", "no"])
    }

    /// The port that the server listens on, at 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The process id, for looking at what the process holds.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The folder that the server works in.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// A new connection, in RESP2 as every connection begins.
    #[track_caller]
    pub fn client(&self) -> Client {
        match Client::connect(self.port) {
            Ok(client) => client,
            Err(error) => panic!("no connection to {} at port {}: {error}", self.name, self.port),
        }
    }

    /// A new connection, switched to RESP3.
    #[track_caller]
    pub fn client3(&self) -> Client {
        let mut client = self.client();
        client.hello(3);
        client
    }

    /// Bytes of memory that the process holds at the moment (VmRSS).
    pub fn resident_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("Linux has /proc");
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("a process has a VmRSS line");
        line.split_ascii_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).expect("VmRSS is a number") << 10
    }

    /// What the server has written to its output so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    /// Waits for the server to end by itself, at most 30 seconds.
    #[track_caller]
    pub fn wait_for_end(&mut self) -> ExitStatus {
        let end = Instant::now() + Duration::from_secs(30);
        while Instant::now() < end {
            if let Ok(Some(status)) = self.child.try_wait() {
                return status;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("the {} did not end within 30 s", self.name)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let ended_before = self.child.try_wait().ok().flatten();
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let log = self.log();
            let from = log.char_indices().rev().nth(8000).map_or(0, |(at, _)| at);
            eprintln!("--- log of the {} at port {}", self.name, self.port);
            if let Some(status) = ended_before {
                eprintln!("(it had ended by itself: {status})");
            }
            eprintln!("{}\n--- end of the log", log[from..].trim_end());
        }
    }
}

/// Starts the program on a free port and waits until it answers. Another process may take the port between our look
/// and the start, so a server that ends at once is tried again on another port.
#[track_caller]
fn launch(name: &'static str, program: &Path, args: &[&str]) -> Server {
    launch_on(name, program, &[], args)
}

#[track_caller]
fn launch_on(name: &'static str, program: &Path, data: &[(&Path, &str)], args: &[&str]) -> Server {
    let mut last = String::new();
    for _ in 0..5 {
        let dir = tempfile::Builder::new().prefix("seendb-test-").tempdir().expect("a temporary folder");
        data.iter().for_each(|(from, to)| copy(from, &dir.path().join(to)));
        let port = free_port();
        let log = File::create(dir.path().join("log")).expect("a log file");
        let child = Command::new(program)
            .args(["--port", &port.to_string(), "--dir"])
            .arg(dir.path())
            .args(args)
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a second handle of the log"))
            .stderr(log)
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {}: {error}", program.display()));
        let mut server = Server { child, port, dir, name };
        match server.answers() {
            Ok(()) => return server,
            Err(why) => last = format!("{why}\n{}", server.log()),
        }
    }
    panic!("the {name} does not start: {last}")
}

/// Copies a file, or a folder with the files in it.
fn copy(from: &Path, to: &Path) {
    if !from.is_dir() {
        std::fs::copy(from, to).unwrap_or_else(|error| panic!("cannot copy {}: {error}", from.display()));
        return;
    }
    std::fs::create_dir(to).expect("a folder can be made");
    for entry in std::fs::read_dir(from).expect("a folder can be listed") {
        let entry = entry.expect("an entry of a folder");
        copy(&entry.path(), &to.join(entry.file_name()));
    }
}

impl Server {
    fn answers(&mut self) -> Result<(), String> {
        let end = Instant::now() + Duration::from_secs(30);
        while Instant::now() < end {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(format!("it ended with {status}"));
            }
            // Nearly any reply will do: a server with a password answers NOAUTH.
            if let Ok(mut client) = Client::connect(self.port) {
                match client.try_call(&["PING"]) {
                    Ok(Value::Error(text)) if text.starts_with("LOADING") => {}
                    Ok(Value::Simple(_) | Value::Error(_)) => return Ok(()),
                    // Somebody else may have had the port until now.
                    Ok(_) | Err(_) => {}
                }
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Err("no answer within 30 s".into())
    }
}

/// A port below those that the system gives to outgoing connections. Each test process begins at another place.
pub fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    const FIRST: u32 = 17_400;
    const COUNT: u32 = 10_000;
    for _ in 0..COUNT {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = (FIRST + (std::process::id().wrapping_mul(97) + step) % COUNT) as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("no free port from {FIRST} to {}", FIRST + COUNT)
}

/// The RedisBloom module, by `scripts/peer`, which installs it when it is missing.
fn peer_module() -> &'static Path {
    static MODULE: OnceLock<PathBuf> = OnceLock::new();
    MODULE.get_or_init(|| std::env::var_os("SEENDB_PEER_MODULE").map_or_else(|| asked(""), PathBuf::from))
}

/// The path that `scripts/peer` prints for this word.
fn asked(word: &str) -> PathBuf {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/peer");
    let words = Some(word).filter(|word| !word.is_empty());
    let output = Command::new(&script).args(words).stderr(Stdio::inherit()).output().expect("scripts/peer can be run");
    assert!(output.status.success(), "scripts/peer failed: the peer is needed, see its output above");
    PathBuf::from(String::from_utf8_lossy(&output.stdout).trim_end())
}
