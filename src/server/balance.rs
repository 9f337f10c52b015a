//! How many workers serve, and which connection belongs to which.
//!
//! Spreading connections over threads costs: each thread then wakes for fewer events at a time. Measured on two cores with
//! 50 clients that send one command a write: 6.0 µs of CPU a command on one worker, 9.3 µs on two, and fewer commands a
//! second. So one worker serves all until it is saturated *and* a core is idle; then a second one joins, and so on up to
//! `threads`. When the load would fit on fewer for a while, the last one leaves.
//!
//! The decision is taken from what the runtimes report as busy time, and what the system reports as idle. It only says
//! where each connection should be; a connection moves by itself when it has answered what it had.

use std::time::{Duration, Instant};

/// A worker is saturated above this share of the time.
const SATURATED: f64 = 0.9;
/// A worker whose load is below this could take more, when another one is saturated.
const SLACK: f64 = 0.5;
/// A further worker needs this much of a core.
const IDLE_CORES: f64 = 0.6;
/// How long a need must last before a worker joins, or connections are dealt anew.
const JOIN_AFTER: Duration = Duration::from_millis(300);
/// How long there must be no need before a worker leaves.
const LEAVE_AFTER: Duration = Duration::from_secs(5);

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// Nothing.
    Keep,
    /// Spread the connections over the first so many workers.
    Deal(usize),
}

/// Takes the decisions, from one look at the loads to the next.
pub(super) struct Balance {
    workers: usize,
    active: usize,
    needed_since: Option<Instant>,
    idle_since: Option<Instant>,
}

impl Balance {
    /// Begins with one worker of so many.
    pub(super) fn new(workers: usize) -> Self {
        Self { workers, active: 1, needed_since: None, idle_since: None }
    }

    /// How many workers serve.
    #[cfg(test)]
    fn active(&self) -> usize {
        self.active
    }

    /// `loads`: busy share of each worker since the last call; `idle_cores`: what nobody on the machine used.
    pub(super) fn decide(&mut self, loads: &[f64], idle_cores: f64, now: Instant) -> Decision {
        let active = &loads[..self.active];
        let all_saturated = active.iter().all(|load| *load > SATURATED);
        let uneven = active.iter().any(|load| *load > SATURATED) && active.iter().any(|load| *load < SLACK);
        let joins = all_saturated && self.active < self.workers && idle_cores >= IDLE_CORES;
        let leaves = self.active > 1 && active.iter().sum::<f64>() < SLACK * (self.active - 1) as f64;
        if lasts(&mut self.needed_since, joins || uneven, JOIN_AFTER, now) {
            self.active += usize::from(joins);
            return Decision::Deal(self.active);
        }
        if lasts(&mut self.idle_since, leaves, LEAVE_AFTER, now) {
            self.active -= 1;
            return Decision::Deal(self.active);
        }
        Decision::Keep
    }
}

/// Whether a condition has held for so long; then it has to hold anew.
fn lasts(since: &mut Option<Instant>, holds: bool, long: Duration, now: Instant) -> bool {
    if !holds {
        *since = None;
        return false;
    }
    let began = *since.get_or_insert(now);
    let lasted = now.duration_since(began) >= long;
    if lasted {
        *since = None;
    }
    lasted
}

/// The share of time that the machine's processors were idle, from one call to the next.
#[derive(Default)]
pub(super) struct IdleCores {
    last: Option<(u64, Instant)>,
}

impl IdleCores {
    /// Cores that were idle since the last call; none if the system does not tell.
    pub(super) fn since_last(&mut self, now: Instant) -> f64 {
        let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        let Some(idle) = idle_ticks(&text) else { return 0.0 };
        let before = self.last.replace((idle, now));
        before.map_or(0.0, |(ticks, at)| {
            let seconds = now.duration_since(at).as_secs_f64().max(1e-3);
            idle.saturating_sub(ticks) as f64 / TICKS_PER_SECOND / seconds
        })
    }
}

/// The unit of `/proc/stat`, the same on all of today's systems.
const TICKS_PER_SECOND: f64 = 100.0;

/// The idle time of all processors: the fourth and fifth number of the first line (idle, and waiting for disks).
fn idle_ticks(stat: &str) -> Option<u64> {
    let mut numbers = stat.lines().next()?.strip_prefix("cpu ")?.split_whitespace().skip(3);
    let idle: u64 = numbers.next()?.parse().ok()?;
    let waiting: u64 = numbers.next()?.parse().ok()?;
    Some(idle + waiting)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_millis(100);

    /// The number of active workers after so many looks at the same loads.
    fn after(balance: &mut Balance, steps: u32, loads: &[f64], idle: f64, clock: &mut Instant) -> usize {
        for _ in 0..steps {
            *clock += STEP;
            balance.decide(loads, idle, *clock);
        }
        balance.active()
    }

    #[test]
    fn a_worker_joins_only_for_a_lasting_need_and_an_idle_core() {
        let (mut balance, mut clock) = (Balance::new(3), Instant::now());
        assert_eq!(after(&mut balance, 50, &[0.8, 0.0, 0.0], 1.0, &mut clock), 1);
        assert_eq!(after(&mut balance, 50, &[1.0, 0.0, 0.0], 0.1, &mut clock), 1);
        assert_eq!(after(&mut balance, 2, &[1.0, 0.0, 0.0], 1.0, &mut clock), 1);
        assert_eq!(after(&mut balance, 1, &[0.5, 0.0, 0.0], 1.0, &mut clock), 1);
        assert_eq!(after(&mut balance, 4, &[1.0, 0.0, 0.0], 1.0, &mut clock), 2);
        assert_eq!(after(&mut balance, 4, &[1.0, 1.0, 0.0], 1.0, &mut clock), 3);
        assert_eq!(after(&mut balance, 50, &[1.0, 1.0, 1.0], 1.0, &mut clock), 3);
    }

    #[test]
    fn workers_leave_after_a_while_without_need() {
        let (mut balance, mut clock) = (Balance::new(2), Instant::now());
        after(&mut balance, 4, &[1.0, 0.0], 1.0, &mut clock);
        assert_eq!(after(&mut balance, 40, &[0.2, 0.2], 1.0, &mut clock), 2);
        assert_eq!(after(&mut balance, 1, &[0.6, 0.6], 1.0, &mut clock), 2);
        assert_eq!(after(&mut balance, 52, &[0.2, 0.2], 1.0, &mut clock), 1);
    }

    #[test]
    fn uneven_loads_are_dealt_anew() {
        let (mut balance, mut clock) = (Balance::new(2), Instant::now());
        after(&mut balance, 4, &[1.0, 0.0], 1.0, &mut clock);
        let dealt = (0..4).any(|_| {
            clock += STEP;
            balance.decide(&[1.0, 0.1], 0.9, clock) == Decision::Deal(2)
        });
        assert!(dealt);
    }

    #[test]
    fn idle_time_is_read() {
        assert_eq!(idle_ticks("cpu  10 20 30 400 5 6 7 0 0 0\ncpu0 1 2 3 4 5\n"), Some(405));
        assert_eq!(idle_ticks(""), None);
    }
}
