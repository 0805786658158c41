//! Grace periods: how long an end has to be followed until no thread can still work by what it read
//! before.
//!
//! A connection learns by a number without a lock whether its session was ended, and then executes
//! a command. Its thread may be preempted between the two. So the end of a session is complete, and
//! may be answered, when every thread that drives connections has been between two turns since: the
//! turn in which it may have read the old number is over then, and it reads the new one in the
//! next.
//!
//! ```text
//!  thread 1 ── end a session, move its number, start ───────────┬───────────────────── woken: answer ──
//!                                                     checkpoint │                       ▲
//!  thread 2 ── read the old number ── execute a write ── reply ──┴─► mail: wakes, pass ──┘
//! ```
//!
//! A checkpoint is posted behind the wakes of what was ended or aborted, and passed after they were
//! handled. So connections have also taken what their wakes told them when the grace period is
//! over. No thread waits in a turn, and threads pay nothing while no grace period has begun.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::ConnectionId;

/// A grace period. A later one is greater, and ends no earlier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct GracePeriod(pub u64);

/// The grace periods of all threads that drive connections.
#[derive(Default)]
pub(crate) struct GracePeriods {
    inner: Mutex<Inner>,
    passed: Condvar,
}

#[derive(Default)]
struct Inner {
    last: GracePeriod,
    /// The last grace period that each thread has passed, by its reactor number.
    threads: BTreeMap<usize, GracePeriod>,
    /// Connections that are to be woken, with the first grace period that each waits for.
    waiters: BTreeMap<ConnectionId, GracePeriod>,
}

impl GracePeriods {
    /// Begins a grace period. The caller then posts a checkpoint to each thread.
    pub(crate) fn start(&self) -> GracePeriod {
        let mut inner = self.lock();
        inner.last.0 += 1;
        inner.last
    }

    /// Whether a grace period is over. If not, `waiter` is to be woken when it is, or earlier.
    pub(crate) fn is_over(&self, period: GracePeriod, waiter: ConnectionId) -> bool {
        let mut inner = self.lock();
        let is_over = inner.is_over(period);
        if !is_over {
            let first = inner.waiters.entry(waiter).or_insert(period);
            *first = period.min(*first);
        }
        is_over
    }

    /// A connection waits no more.
    pub(crate) fn forget(&self, waiter: ConnectionId) {
        self.lock().waiters.remove(&waiter);
    }

    /// Waits until a grace period is over. Returns false if that takes longer than `timeout`.
    pub(crate) fn wait(&self, period: GracePeriod, timeout: Duration) -> bool {
        let until = Instant::now() + timeout;
        let mut inner = self.lock();
        while !inner.is_over(period) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let waited = self.passed.wait_timeout(inner, left);
            (inner, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
        true
    }

    /// A thread is about to begin its first turn.
    pub(crate) fn join(&self, thread: usize) {
        let mut inner = self.lock();
        let last = inner.last;
        inner.threads.insert(thread, last);
    }

    /// A thread is between two turns, and has handled the mail that was posted before a checkpoint.
    /// Returns the connections to wake.
    pub(crate) fn pass(&self, thread: usize, period: GracePeriod) -> Vec<ConnectionId> {
        let mut inner = self.lock();
        if let Some(passed) = inner.threads.get_mut(&thread) {
            // The checkpoint may have been posted before the thread joined.
            *passed = period.max(*passed);
        }
        self.finish(inner)
    }

    /// A thread has ended. Returns the connections to wake.
    pub(crate) fn leave(&self, thread: usize) -> Vec<ConnectionId> {
        let mut inner = self.lock();
        inner.threads.remove(&thread);
        self.finish(inner)
    }

    fn finish(&self, mut inner: MutexGuard<'_, Inner>) -> Vec<ConnectionId> {
        self.passed.notify_all();
        let over = inner.over();
        let mut woken = Vec::new();
        inner.waiters.retain(|waiter, period| {
            let waits = *period > over;
            if !waits {
                woken.push(*waiter);
            }
            waits
        });
        woken
    }

    /// No code that runs under this lock leaves a change half done.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// The last grace period that is over.
    fn over(&self) -> GracePeriod {
        self.threads.values().copied().min().unwrap_or(self.last)
    }

    fn is_over(&self, period: GracePeriod) -> bool {
        self.over() >= period
    }
}

#[cfg(test)]
mod tests;
