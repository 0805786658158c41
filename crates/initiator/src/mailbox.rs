//! Mailboxes, through which the supervisor of a device gives its queues their connections.

use std::{
    io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use crate::QueueError;
use crate::queue_connection::{ConnectionHandle, QueueConnection};
use crate::socket::Waker;

/// One queue's mailbox. The supervisor puts the queue's next connection into it, or the reason why
/// no further connection follows.
#[derive(Debug)]
pub(crate) struct Mailbox {
    /// Counts updates, so that a queue finds out with a plain load whether there is a new one.
    updates: AtomicU64,
    update: Mutex<Option<Update>>,
    is_abandoned: AtomicBool,
    /// The newest generation of connections whose loss was reported.
    lost_generation: AtomicU64,
    /// The peer asked not to be connected to before this instant.
    held_off: Mutex<Option<Instant>>,
    /// The connection that was delivered last, if any.
    last: Mutex<Option<Weak<dyn ConnectionHandle>>>,
    /// Readable while an update is waiting.
    pub(crate) waker: Waker,
}

/// A message from the supervisor to a queue.
#[derive(Debug)]
pub(crate) enum Update {
    /// A new connection.
    Connection {
        connection: Box<dyn QueueConnection>,
        /// Its number among the connections of the queue (NVMe: of its association).
        generation: u64,
    },
    /// No further connection follows.
    End(QueueError),
}

impl Mailbox {
    pub(crate) fn several(count: u16) -> io::Result<Vec<Arc<Self>>> {
        (0..count).map(|_| Self::new().map(Arc::new)).collect()
    }

    fn new() -> io::Result<Self> {
        Ok(Self {
            updates: AtomicU64::new(0),
            update: Mutex::new(None),
            is_abandoned: AtomicBool::new(false),
            lost_generation: AtomicU64::new(0),
            held_off: Mutex::new(None),
            last: Mutex::new(None),
            waker: Waker::new()?,
        })
    }

    /// Stores an update. It replaces an update that was not yet read.
    pub(crate) fn deliver(&self, update: Update) {
        if let Update::Connection { connection, .. } = &update {
            *lock(&self.last) = Some(connection.handle());
        }
        *lock(&self.update) = Some(update);
        self.updates.fetch_add(1, Ordering::Release);
        self.waker.wake();
    }

    /// The number of updates so far. Compare it with the number at the last read.
    pub(crate) fn updates(&self) -> u64 {
        self.updates.load(Ordering::Acquire)
    }

    pub(crate) fn take(&self) -> Option<Update> {
        self.waker.clear();
        lock(&self.update).take()
    }

    /// Records that the peer asked not to be connected to before `until`.
    pub(crate) fn hold_off(&self, until: Instant) {
        *lock(&self.held_off) = Some(until);
    }

    /// Returns how long the next connection has to wait, and resets it.
    pub(crate) fn take_hold_off(&self, now: Instant) -> Duration {
        let until = lock(&self.held_off).take();
        until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now))
    }

    /// Records that the queue's connection of `generation` was lost, and wakes `supervisor`.
    pub(crate) fn report_loss(&self, generation: u64, supervisor: &Waker) {
        self.lost_generation.fetch_max(generation, Ordering::AcqRel);
        supervisor.wake();
    }

    /// Whether the connection of `generation` was lost.
    pub(crate) fn is_lost(&self, generation: u64) -> bool {
        self.lost_generation.load(Ordering::Acquire) >= generation
    }

    /// Closes the connection that was delivered last. Its owner notices at its next poll.
    pub(crate) fn close_connection(&self) {
        if let Some(last) = lock(&self.last).as_ref().and_then(Weak::upgrade) {
            last.close();
        }
    }

    /// Records that the queue was dropped and needs no more connections.
    pub(crate) fn abandon(&self) {
        self.is_abandoned.store(true, Ordering::Release);
        lock(&self.update).take();
    }

    pub(crate) fn is_abandoned(&self) -> bool {
        self.is_abandoned.load(Ordering::Acquire)
    }
}

/// Locks `mutex`. A poisoned mutex is used all the same, since no update of its value can be
/// interrupted by a panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
