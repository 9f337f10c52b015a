//! The text of `INFO`.

use std::fmt::Write;
use std::sync::atomic::Ordering;
use std::time::{Duration, UNIX_EPOCH};

use super::allocator::allocated_bytes;
use super::durability::Durability;
use super::shared::Shared;
use super::start::seconds_left;
use crate::commands::connection::REDIS_VERSION;
use crate::config::Id;
use crate::filters::bits::mapped_bytes;
use crate::keyspace::DATABASES;

/// A section: its title, the word that asks for it, its lines.
struct Section {
    title: &'static str,
    lines: fn(&Shared, &mut Lines),
}

const SECTIONS: [Section; 13] = [
    Section { title: "Server", lines: server },
    Section { title: "Clients", lines: clients },
    Section { title: "Memory", lines: memory },
    Section { title: "Persistence", lines: persistence },
    Section { title: "Stats", lines: stats },
    Section { title: "Replication", lines: replication },
    Section { title: "CPU", lines: cpu },
    Section { title: "Bloom", lines: bloom },
    Section { title: "Chain", lines: chain },
    Section { title: "Cbf", lines: counting },
    Section { title: "Dlcbf", lines: dleft },
    Section { title: "Cluster", lines: cluster },
    Section { title: "Keyspace", lines: keyspace },
];

/// Words that ask for all sections.
const ALL: [&str; 3] = ["all", "default", "everything"];

#[derive(Default)]
struct Lines(String);

impl Lines {
    fn add(&mut self, name: &str, value: impl std::fmt::Display) {
        let _ = write!(self.0, "{name}:{value}\r\n");
    }
}

/// The sections of these names, in lower case; all if none is given.
pub(super) fn text(shared: &Shared, names: &[String]) -> String {
    let all = names.is_empty() || names.iter().any(|name| ALL.contains(&name.as_str()));
    let mut lines = Lines::default();
    for section in &SECTIONS {
        if all || names.iter().any(|name| section.title.eq_ignore_ascii_case(name)) {
            if !lines.0.is_empty() {
                lines.0 += "\r\n";
            }
            let _ = write!(lines.0, "# {}\r\n", section.title);
            (section.lines)(shared, &mut lines);
        }
    }
    lines.0
}

fn server(shared: &Shared, lines: &mut Lines) {
    let uptime = shared.started.elapsed().as_secs();
    lines.add("redis_version", REDIS_VERSION);
    lines.add("server_name", "seendb");
    lines.add("seendb_version", env!("CARGO_PKG_VERSION"));
    lines.add("redis_mode", "standalone");
    lines.add("os", std::env::consts::OS);
    lines.add("arch_bits", usize::BITS);
    lines.add("process_id", std::process::id());
    lines.add("run_id", &shared.run_id);
    lines.add("tcp_port", shared.settings.port());
    lines.add("server_time_usec", UNIX_EPOCH.elapsed().unwrap_or_default().as_micros());
    lines.add("start_time_unix", shared.started_at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs());
    lines.add("uptime_in_seconds", uptime);
    lines.add("uptime_in_days", uptime / 86_400);
    lines.add("threads", shared.settings.threads());
    lines.add("threads_serving", shared.workers.active());
}

fn clients(shared: &Shared, lines: &mut Lines) {
    lines.add("connected_clients", shared.clients.len());
    lines.add("maxclients", shared.max_clients());
    lines.add("blocked_clients", 0);
}

/// Bytes in use, in detail.
fn memory(shared: &Shared, lines: &mut Lines) {
    let used = allocated_bytes();
    let peak = shared.peak_memory.fetch_max(used, Ordering::Relaxed).max(used);
    let resident = resident_bytes();
    lines.add("used_memory", used);
    lines.add("used_memory_human", human(used));
    lines.add("used_memory_peak", peak);
    lines.add("used_memory_peak_human", human(peak));
    lines.add("used_memory_rss", resident);
    lines.add("used_memory_rss_human", human(resident));
    lines.add("used_memory_mapped", mapped_bytes());
    lines.add("used_memory_keys", shared.keyspace.entry_bytes());
    lines.add("used_memory_tables", shared.keyspace.table_bytes());
    if let Some(total) = total_system_memory() {
        lines.add("total_system_memory", total);
        lines.add("total_system_memory_human", human(total));
    }
    lines.add("maxmemory", shared.settings.maxmemory());
    lines.add("maxmemory_human", human(shared.settings.maxmemory()));
    lines.add("maxmemory_policy", String::from_utf8_lossy(&shared.settings.value_text(Id::MaxMemoryPolicy)));
    lines.add("max_filter_memory", shared.settings.max_filter_memory());
    lines.add("mem_fragmentation_ratio", format_args!("{:.2}", resident as f64 / used.max(1) as f64));
    lines.add("mem_allocator", "jemalloc");
}

fn persistence(shared: &Shared, lines: &mut Lines) {
    let durability = &shared.durability;
    let loading = durability.loading.load(Ordering::Acquire);
    lines.add("loading", u8::from(loading));
    lines.add("async_loading", 0);
    if loading {
        let (done, bytes) = (durability.load.bytes_done(), durability.load.bytes());
        lines.add("loading_start_time", shared.started_at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs());
        lines.add("loading_total_bytes", bytes);
        lines.add("loading_loaded_bytes", done);
        lines.add("loading_loaded_perc", format_args!("{:.2}", done as f64 * 100.0 / bytes.max(1) as f64));
        lines.add("loading_loaded_keys", durability.load.snapshot.keys());
        lines.add("loading_redone_changes", durability.load.records());
        lines.add("loading_eta_seconds", seconds_left(durability));
    }
    snapshots(durability, lines);
    log(durability, lines);
}

fn status(ok: bool) -> &'static str {
    if ok { "ok" } else { "err" }
}

/// Seconds, or -1 for none.
fn seconds(time: Option<Duration>) -> i64 {
    time.map_or(-1, |time| time.as_secs() as i64)
}

fn snapshots(durability: &Durability, lines: &mut Lines) {
    let unsaved = durability.unsaved_changes();
    let state = durability.state.lock();
    let running = state.running.as_ref().filter(|running| !running.kind.is_of_log());
    lines.add("rdb_changes_since_last_save", unsaved);
    lines.add("rdb_bgsave_in_progress", u8::from(running.is_some()));
    lines.add("rdb_last_save_time", state.last_save);
    lines.add("rdb_last_bgsave_status", status(state.snapshots.ok));
    lines.add("rdb_last_bgsave_time_sec", seconds(state.snapshots.time));
    lines.add("rdb_current_bgsave_time_sec", seconds(running.map(|running| running.begun.elapsed())));
    lines.add("rdb_saves", state.snapshots.count);
    lines.add("rdb_last_load_keys_expired", state.loaded.1);
    lines.add("rdb_last_load_keys_loaded", state.loaded.0);
    if let Some(running) = &state.running {
        lines.add("current_save_keys_processed", running.progress.keys_done.load(Ordering::Relaxed));
        lines.add("current_save_keys_total", running.progress.keys.load(Ordering::Relaxed));
        lines.add("current_save_bytes_written", running.progress.bytes.load(Ordering::Relaxed));
    }
}

fn log(durability: &Durability, lines: &mut Lines) {
    let (live, health, state) = (&durability.live, durability.live.health(), durability.state.lock());
    let running = state.running.as_ref().filter(|running| running.kind.is_base());
    lines.add("aof_enabled", u8::from(live.is_on()));
    lines.add("aof_rewrite_in_progress", u8::from(running.is_some()));
    lines.add("aof_rewrite_scheduled", u8::from(state.base_is_scheduled()));
    lines.add("aof_last_rewrite_time_sec", seconds(state.bases.time));
    lines.add("aof_current_rewrite_time_sec", seconds(running.map(|running| running.begun.elapsed())));
    lines.add("aof_last_bgrewrite_status", status(state.bases.ok));
    lines.add("aof_rewrites", state.bases.count);
    lines.add("aof_last_write_status", status(health.error.is_none()));
    if live.is_on() {
        lines.add("aof_current_size", durability.log_bytes(&state));
        lines.add("aof_base_size", state.base_bytes);
        lines.add("aof_buffer_length", live.buffered());
        lines.add("aof_position", live.position());
        lines.add("aof_synced_position", live.synced());
        lines.add("aof_syncs", live.syncs());
        lines.add("aof_unsynced_milliseconds", live.at_risk().as_millis());
        lines.add("aof_last_sync_milliseconds", health.last_sync_time.as_millis());
        lines.add("aof_seconds_since_last_sync", seconds(health.last_sync.map(|sync| sync.elapsed())));
    }
}

fn stats(shared: &Shared, lines: &mut Lines) {
    let rates = shared.rates.lock().last;
    lines.add("total_connections_received", shared.sum(|counters| &counters.connections));
    lines.add("total_commands_processed", shared.sum(|counters| &counters.commands));
    lines.add("instantaneous_ops_per_sec", rates.commands);
    lines.add("total_net_input_bytes", shared.sum(|counters| &counters.bytes_in));
    lines.add("total_net_output_bytes", shared.sum(|counters| &counters.bytes_out));
    lines.add("instantaneous_input_kbps", format_args!("{:.2}", rates.bytes_in as f64 / 1024.0));
    lines.add("instantaneous_output_kbps", format_args!("{:.2}", rates.bytes_out as f64 / 1024.0));
    let (expired, evicted, _) = shared.keyspace.totals();
    lines.add("expired_keys", expired);
    lines.add("evicted_keys", evicted);
    lines.add("rejected_connections", shared.sum(|counters| &counters.rejected));
    lines.add("keyspace_hits", shared.sum(|counters| &counters.hits));
    lines.add("keyspace_misses", shared.sum(|counters| &counters.misses));
    lines.add("total_error_replies", shared.sum(|counters| &counters.errors));
    let cut_off = shared.sum(|counters| &counters.cut_off) + shared.swept.load(Ordering::Relaxed);
    lines.add("client_buffer_limit_disconnections", cut_off);
}

/// There is none: every server is its own primary.
fn replication(_: &Shared, lines: &mut Lines) {
    lines.add("role", "master");
    lines.add("connected_slaves", 0);
}

/// Processor time since the start, in seconds.
fn cpu(_: &Shared, lines: &mut Lines) {
    for (name, who) in [("", libc::RUSAGE_SELF), ("_children", libc::RUSAGE_CHILDREN)] {
        let usage = resource_usage(who);
        for (kind, time) in [("sys", usage.ru_stime), ("user", usage.ru_utime)] {
            lines.add(&format!("used_cpu_{kind}{name}"), format_args!("{}.{:06}", time.tv_sec, time.tv_usec));
        }
    }
}

fn bloom(shared: &Shared, lines: &mut Lines) {
    lines.add("bf_max_filters", shared.settings.bf_max_filters());
    lines.add("bf_max_capacity", shared.settings.bf_max_capacity());
}

fn chain(shared: &Shared, lines: &mut Lines) {
    lines.add("chain_max_capacity", shared.settings.chain_max_capacity());
    lines.add("chain_profiles", shared.keyspace.profiles().all().len());
}

fn counting(shared: &Shared, lines: &mut Lines) {
    lines.add("cbf_max_capacity", shared.settings.cbf_max_capacity());
}

fn dleft(shared: &Shared, lines: &mut Lines) {
    lines.add("dlcbf_max_capacity", shared.settings.dlcbf_max_capacity());
}

/// Clients ask before they choose how to talk.
fn cluster(_: &Shared, lines: &mut Lines) {
    lines.add("cluster_enabled", 0);
}

fn keyspace(shared: &Shared, lines: &mut Lines) {
    for db in 0..DATABASES {
        let keys = shared.keyspace.len(db);
        if keys > 0 {
            let (lives, left) = (shared.keyspace.lives(db), shared.keyspace.mean_life_left(db));
            lines.add(&format!("db{db}"), format_args!("keys={keys},expires={lives},avg_ttl={left}"));
        }
    }
}

fn human(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "K", "M", "G", "T"];
    let (mut value, mut unit) = (bytes as f64, 0);
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        (value, unit) = (value / 1024.0, unit + 1);
    }
    if unit == 0 { format!("{bytes}B") } else { format!("{value:.2}{}", UNITS[unit]) }
}

fn resource_usage(who: libc::c_int) -> libc::rusage {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the call fills in the structure it is given; where it fails, zeros are a valid one.
    unsafe {
        libc::getrusage(who, usage.as_mut_ptr());
        usage.assume_init()
    }
}

fn resident_bytes() -> u64 {
    const PAGE_BYTES: u64 = 4096;
    let pages = std::fs::read_to_string("/proc/self/statm").ok().and_then(|text| text.split(' ').nth(1)?.parse().ok());
    pages.unwrap_or(0_u64) * PAGE_BYTES
}

fn total_system_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let kilobytes: u64 =
        text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?.trim().split(' ').next()?.parse().ok()?;
    Some(kilobytes * 1024)
}
