//! The latch on a key: a long command works on the key alone, everybody else waits for it without holding a thread.
//!
//! The keyspace takes the key's entry out of its table and leaves a stand-in that holds the latch; whoever meets the
//! stand-in gets a [`Wait`], a future that ends when the entry is back, and then tries again. Nothing is held while
//! waiting, so there is no order of locks to keep. Works on any executor.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

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

/// Ends when the key that was met busy is free.
pub struct Wait {
    latch: Arc<Latch>,
}

impl Wait {
    /// Wait for this latch.
    #[must_use]
    pub fn new(latch: Arc<Latch>) -> Self {
        Self { latch }
    }
}

impl Future for Wait {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.latch.state.lock();
        if state.released {
            return Poll::Ready(());
        }
        if !state.waiting.iter().any(|waker| waker.will_wake(context.waker())) {
            state.waiting.push(context.waker().clone());
        }
        Poll::Pending
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
