//! What all threads of the server share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::client::Clients;
use super::durability::{Durability, Scale};
use super::memory_limit::MemoryLimit;
use super::worker::Workers;
use super::{allocator, files, info, logging};
use crate::commands::context::{Begun, ChangeGate, Counter, Counters, Host, Job, Room, ShutDown, Task};
use crate::commands::error::CommandError;
use crate::config::{Id, Prepared, SetError, Settings};
use crate::keyspace::Keyspace;
use crate::persist::files::RealFiles;
use crate::persist::live::LiveLog;

/// What all threads of the server share.
pub(super) struct Shared {
    pub(super) settings: Arc<Settings>,
    pub(super) keyspace: Arc<Keyspace>,
    pub(super) clients: Clients,
    pub(super) workers: Workers,
    /// One set of counters a worker.
    pub(super) counters: Box<[Counters]>,
    pub(super) started: Instant,
    pub(super) started_at: SystemTime,
    /// 40 hexadecimal digits, new at each start.
    pub(super) run_id: String,
    /// The most bytes that were seen in use.
    pub(super) peak_memory: AtomicU64,
    pub(super) rates: Mutex<Rates>,
    /// Clients that the limit of open files allows.
    files: AtomicU64,
    last_id: AtomicU64,
    pub(super) memory: MemoryLimit,
    /// Clients cut off from outside, by the sweep.
    pub(super) swept: AtomicU64,
    pub(super) durability: Arc<Durability>,
    /// How the server was asked to end, and who waits for the answer.
    shutdown: Mutex<Option<(ShutDown, Arc<Job>)>>,
    shutdown_asked: Notify,
}

/// The counts a second ago, and what came since: for figures "per second".
#[derive(Default)]
pub(super) struct Rates {
    second: u32,
    before: Totals,
    /// The latest whole second.
    pub(super) last: Totals,
}

/// Sums over all threads that are also shown per second.
#[derive(Clone, Copy, Default)]
pub(super) struct Totals {
    pub(super) commands: u64,
    pub(super) bytes_in: u64,
    pub(super) bytes_out: u64,
}

impl Shared {
    pub(super) fn new(settings: Settings, files: u64, workers: Workers, log: Arc<LiveLog>) -> Self {
        let (keyspace, settings) = (Arc::new(Keyspace::new(Some(log.clone()))), Arc::new(settings));
        Self {
            durability: {
                let (keyspace, settings) = (keyspace.clone(), settings.clone());
                Arc::new(Durability::new(keyspace, settings, log, Arc::new(RealFiles), Scale::default()))
            },
            memory: MemoryLimit::new(keyspace.clone(), settings.clone()),
            keyspace,
            clients: Clients::default(),
            workers,
            counters: (0..settings.threads()).map(|_| Counters::default()).collect(),
            settings,
            started: Instant::now(),
            started_at: SystemTime::now(),
            run_id: random_hex(),
            peak_memory: AtomicU64::new(0),
            rates: Mutex::default(),
            files: AtomicU64::new(files),
            last_id: AtomicU64::new(0),
            swept: AtomicU64::new(0),
            shutdown: Mutex::default(),
            shutdown_asked: Notify::new(),
        }
    }

    /// Seconds since the start, from 1 on, so that 0 can stand for "never".
    pub(super) fn now(&self) -> u32 {
        self.started.elapsed().as_secs() as u32 + 1
    }

    /// The number of a new connection.
    pub(super) fn next_id(&self) -> u64 {
        self.last_id.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The clients allowed at the same time.
    pub(super) fn max_clients(&self) -> u64 {
        u64::from(self.settings.maxclients()).min(self.files.load(Ordering::Relaxed))
    }

    /// One count over all threads.
    pub(super) fn sum(&self, of: impl Fn(&Counters) -> &Counter) -> u64 {
        self.counters.iter().map(|counters| of(counters).get()).sum()
    }

    /// What has to be done now and then.
    pub(super) fn tick(&self) {
        let now = self.now();
        self.keyspace.set_now(now);
        self.memory.measure();
        self.durability.tick();
        self.peak_memory.fetch_max(allocator::allocated_bytes(), Ordering::Relaxed);
        let mut rates = self.rates.lock();
        if rates.second == now {
            return;
        }
        let totals = Totals {
            commands: self.sum(|counters| &counters.commands),
            bytes_in: self.sum(|counters| &counters.bytes_in),
            bytes_out: self.sum(|counters| &counters.bytes_out),
        };
        let seconds = u64::from(now - rates.second).max(1);
        rates.last = Totals {
            commands: (totals.commands - rates.before.commands) / seconds,
            bytes_in: (totals.bytes_in - rates.before.bytes_in) / seconds,
            bytes_out: (totals.bytes_out - rates.before.bytes_out) / seconds,
        };
        (rates.second, rates.before) = (now, totals);
        drop(rates);
        allocator::give_back();
        let cut_off = self.clients.sweep(now, self.settings.timeout());
        self.swept.fetch_add(cut_off, Ordering::Relaxed);
    }

    /// Ends when somebody asks for the end.
    pub(super) async fn shutdown_asked(&self) -> (ShutDown, Arc<Job>) {
        loop {
            self.shutdown_asked.notified().await;
            if let Some(asked) = self.shutdown.lock().take() {
                return asked;
            }
        }
    }
}

impl Host for Shared {
    fn info(&self, sections: &[String]) -> String {
        info::text(self, sections)
    }

    fn approve_settings(&self, changes: &Prepared) -> Result<(), SetError> {
        if changes.number(Id::AppendOnly).is_some() && self.is_loading() {
            return Err(SetError::Refused(Id::AppendOnly.name(), "data are being loaded".to_owned()));
        }
        match changes.number(Id::MaxClients) {
            Some(clients) if !files::allows(clients) => {
                let reason = "the limit of open files allows fewer; raise it with 'ulimit -n' before the start";
                Err(SetError::Refused(Id::MaxClients.name(), reason.to_owned()))
            }
            _ => Ok(()),
        }
    }

    fn settings_changed(&self, changed: &[Id]) {
        for id in changed {
            let value = match id.directive().is_secret() {
                true => "(hidden)".into(),
                false => String::from_utf8_lossy(&self.settings.value_text(*id)).into_owned(),
            };
            tracing::info!("setting '{}' changed to '{value}'", id.name());
            match id {
                Id::Loglevel => logging::set_level(self.settings.loglevel()),
                Id::MaxMemoryPolicy => self.keyspace.count_uses(self.memory.policy().goes_by_uses()),
                Id::MaxClients => self.files.store(u64::from(self.settings.maxclients()), Ordering::Relaxed),
                Id::Save | Id::StopWrites | Id::AppendFsync => self.durability.settings_changed(),
                _ => {}
            }
        }
    }

    fn switch_log(&self) -> Option<Arc<Job>> {
        Some(self.durability.switch_log())
    }

    fn make_room(&self, bytes: u64, most: Duration) -> Room {
        self.memory.make_room(bytes, most)
    }

    fn room_for(&self, bytes: u64, kept: u64) -> Room {
        self.memory.room_for(bytes, kept)
    }

    fn is_loading(&self) -> bool {
        self.durability.loading.load(Ordering::Acquire)
    }

    fn change_gate(&self) -> ChangeGate {
        self.durability.change_gate()
    }

    fn begin(&self, task: Task) -> Result<Begun, CommandError> {
        let Task::ShutDown(how) = task else { return self.durability.begin(task) };
        let mut shutdown = self.shutdown.lock();
        let (_, job) = shutdown.get_or_insert_with(|| (how, Arc::default()));
        let job = job.clone();
        self.shutdown_asked.notify_one();
        Ok(Begun::Now(job))
    }

    fn last_save(&self) -> u64 {
        self.durability.state.lock().last_save
    }

    fn logs(&self) -> bool {
        self.durability.live.is_on()
    }

    fn log_switch(&self) -> Option<Arc<Job>> {
        self.durability.log_switch()
    }

    fn log_is_synced(&self) -> bool {
        let live = &self.durability.live;
        live.is_on() && live.synced() >= live.position()
    }
}

fn random_hex() -> String {
    use std::hash::{BuildHasher, RandomState};
    let words = [0, 1, 2].map(|n| format!("{:016x}", RandomState::new().hash_one(n)));
    words.concat()[..40].to_owned()
}
