//! The latch on a key: a long command works on the key alone, everybody else waits for it without holding a thread.
//!
//! The keyspace takes the key's entry out of its table and leaves a stand-in that holds the latch; whoever meets the
//! stand-in gets a [`Wait`], a future that ends when the entry is back, and then tries again. Nothing is held while
//! waiting, so there is no order of locks to keep. Works on any executor.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Set when the long command is over.
#[derive(Default)]
pub struct Latch {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    released: bool,
    waiting: Vec<Waker>,
}

impl Latch {
    /// The command is over: wake everybody.
    pub fn release(&self) {
        let waiting = {
            let mut state = self.state.lock();
            state.released = true;
            std::mem::take(&mut state.waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }
}

/// Ends when it is worth trying again.
pub struct Wait {
    until: Until,
    /// Keeps the gate closed.
    _ticket: Option<Ticket>,
}

enum Until {
    /// The key that was met busy is free.
    Released(Arc<Latch>),
    /// Others have run; not yet polled.
    Yielded,
    /// Others have run.
    Done,
}

impl Wait {
    /// Wait for this latch.
    #[must_use]
    pub fn new(latch: Arc<Latch>) -> Self {
        Self { until: Until::Released(latch), _ticket: None }
    }

    /// Wait for this latch, and keep the gate closed meanwhile.
    #[must_use]
    pub fn with_gate_closed(latch: Arc<Latch>, gate: &Arc<Gate>) -> Self {
        Self { until: Until::Released(latch), _ticket: Some(gate.close()) }
    }

    /// Let others run once.
    #[must_use]
    pub fn yielding() -> Self {
        Self { until: Until::Yielded, _ticket: None }
    }
}

impl Future for Wait {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        match &self.until {
            Until::Released(latch) => {
                let mut state = latch.state.lock();
                if state.released {
                    return Poll::Ready(());
                }
                if !state.waiting.iter().any(|waker| waker.will_wake(context.waker())) {
                    state.waiting.push(context.waker().clone());
                }
                Poll::Pending
            }
            Until::Yielded => {
                self.until = Until::Done;
                context.waker().wake_by_ref();
                Poll::Pending
            }
            Until::Done => Poll::Ready(()),
        }
    }
}

/// Lets commands on whole databases get their turn: these need a moment at which no key is away, and there may be none as long
/// as long commands follow each other. While somebody waits for that moment, and for a little after that, until he has tried
/// again, no further key is taken.
#[derive(Default)]
pub struct Gate {
    waiting: AtomicUsize,
    closed_until: Mutex<Option<Instant>>,
    closed: AtomicBool,
}

/// Somebody waits for whole databases, as long as he keeps this.
struct Ticket(Arc<Gate>);

impl Drop for Ticket {
    fn drop(&mut self) {
        *self.0.closed_until.lock() = Some(Instant::now() + PATIENCE);
        self.0.waiting.fetch_sub(1, Ordering::AcqRel);
    }
}

/// How long the gate stays closed for somebody who is about to try again, or is gone.
const PATIENCE: Duration = Duration::from_millis(500);

impl Gate {
    /// A command on whole databases has to wait.
    fn close(self: &Arc<Self>) -> Ticket {
        self.waiting.fetch_add(1, Ordering::AcqRel);
        self.closed.store(true, Ordering::Release);
        Ticket(self.clone())
    }

    /// One has had its turn.
    pub fn open(&self) {
        if self.closed.load(Ordering::Acquire) && self.waiting.load(Ordering::Acquire) == 0 {
            *self.closed_until.lock() = None;
            self.closed.store(false, Ordering::Release);
        }
    }

    /// Whether a key may be taken now.
    ///
    /// # Errors
    /// [`Wait`]: try again.
    pub fn pass(&self) -> Result<(), Wait> {
        if !self.closed.load(Ordering::Acquire) {
            return Ok(());
        }
        let waited_for = self.waiting.load(Ordering::Acquire) > 0;
        if waited_for || self.closed_until.lock().is_some_and(|until| Instant::now() < until) {
            return Err(Wait::yielding());
        }
        self.open();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wakes_all_who_wait_and_nobody_waits_after() {
        let latch = Arc::new(Latch::default());
        let mut first = Box::pin(Wait::new(latch.clone()));
        let mut context = Context::from_waker(Waker::noop());
        assert_eq!(first.as_mut().poll(&mut context), Poll::Pending);
        latch.release();
        assert_eq!(first.as_mut().poll(&mut context), Poll::Ready(()));
        let mut late = Box::pin(Wait::new(latch));
        assert_eq!(late.as_mut().poll(&mut context), Poll::Ready(()));
    }
}
