//! Lanes: where volumes drive their files, and the volumes below them, in the threads of sessions.
//!
//! ```text
//!            a thread that drives connections
//!  session ──► volume ──► window ── requests ──► LaneQueue: Requests ──► submit ──► file_io::FileIo ─┐
//!          ◄── done(ticket) ────── ◄── done(id) ─────────────────────── reap ◄──── completions ◄────┘
//! ```
//!
//! The queue of a cache or mirror has commands on the volume below instead of requests on a file.
//!
//! A queue has one owner. So each volume has one per thread that uses it, opened by the volume's
//! own thread (it allocates and registers memory) and adopted by the lane. Until then, and in
//! threads without a lane, requests go to the volume's own thread.

pub(crate) mod places;

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread::{self, ThreadId};
use std::time::Instant;

use file_io::Event;

/// The lanes of this process, by thread.
#[derive(Debug, Default)]
pub struct LaneRegistry(RwLock<Vec<Arc<LaneHandle>>>);

/// A lane as other threads see it.
#[derive(Debug)]
pub(crate) struct LaneHandle {
    thread: ThreadId,
    event: Event,
    arrivals: Mutex<Arrivals>,
    has_arrivals: AtomicBool,
}

#[derive(Debug, Default)]
struct Arrivals {
    queues: Vec<Box<dyn LaneQueue>>,
    is_closed: bool,
}

/// One volume's queue in a lane. Dropped in the lane's thread when it is over or the thread ends.
pub(crate) trait LaneQueue: Send + std::fmt::Debug {
    /// See [`block::Lane::reap`].
    fn reap(&mut self) -> Turn;

    /// See [`block::Lane::submit`].
    fn submit(&mut self) -> Turn;

    /// See [`block::Lane::due`].
    fn due(&self) -> Option<Instant> {
        None
    }
}

/// Rounds of turns in one call at most. What one queue has done is often the next one's work: a
/// cache has commands on a file volume, whose completions are the cache's.
const ROUNDS_MAX: usize = 4;

/// What a queue has done in its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Nothing: there was no work.
    Idle,
    /// Something, or it must have its next turn without a sleep.
    Worked,
    /// The last thing: drop it.
    Over,
}

impl LaneRegistry {
    /// The lane of a thread, if it has one.
    pub(crate) fn of(&self, thread: ThreadId) -> Option<Arc<LaneHandle>> {
        let doors = self.0.read().unwrap_or_else(PoisonError::into_inner);
        doors.iter().find(|door| door.thread == thread).cloned()
    }
}

impl block::LaneOpener for LaneRegistry {
    fn open(self: Arc<Self>) -> io::Result<Box<dyn block::Lane>> {
        let door = Arc::new(LaneHandle {
            thread: thread::current().id(),
            event: Event::new()?,
            arrivals: Mutex::default(),
            has_arrivals: AtomicBool::new(false),
        });
        let mut doors = self.0.write().unwrap_or_else(PoisonError::into_inner);
        doors.push(Arc::clone(&door));
        drop(doors);
        Ok(Box::new(Lane {
            lanes: self,
            door,
            queues: Vec::new(),
        }))
    }
}

impl LaneHandle {
    pub(crate) fn thread(&self) -> ThreadId {
        self.thread
    }

    /// What queues of this lane raise when a request completes.
    pub(crate) fn event(&self) -> &Event {
        &self.event
    }

    /// Gives the lane a queue. Returns it if the lane's thread has ended.
    pub(crate) fn adopt(&self, queue: Box<dyn LaneQueue>) -> Result<(), Box<dyn LaneQueue>> {
        let mut arrivals = self.arrivals();
        if arrivals.is_closed {
            return Err(queue);
        }
        arrivals.queues.push(queue);
        self.has_arrivals.store(true, Ordering::Release);
        drop(arrivals);
        self.event.raise();
        Ok(())
    }

    fn arrivals(&self) -> MutexGuard<'_, Arrivals> {
        self.arrivals.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The queues of one thread. Lives on that thread.
struct Lane {
    lanes: Arc<LaneRegistry>,
    door: Arc<LaneHandle>,
    queues: Vec<Box<dyn LaneQueue>>,
}

impl Lane {
    /// Gives queues turns, until none has work or others of the thread are to have theirs. Returns
    /// whether one has worked.
    fn take_rounds(&mut self, turn: impl Fn(&mut dyn LaneQueue) -> Turn) -> bool {
        let mut rounds = 0;
        while rounds < ROUNDS_MAX && self.take_turns(&turn) {
            rounds += 1;
        }
        rounds > 0
    }

    /// Gives each queue a turn. Returns whether one has worked.
    fn take_turns(&mut self, turn: impl Fn(&mut dyn LaneQueue) -> Turn) -> bool {
        if self.door.has_arrivals.swap(false, Ordering::Acquire) {
            self.queues.append(&mut self.door.arrivals().queues);
        }
        let mut has_worked = false;
        let mut at = 0;
        while at < self.queues.len() {
            let queue = &mut *self.queues[at];
            let result = catch_unwind(AssertUnwindSafe(|| turn(queue)));
            has_worked |= !matches!(result, Ok(Turn::Idle));
            if matches!(result, Ok(Turn::Idle | Turn::Worked)) {
                at += 1;
            } else {
                discard(self.queues.swap_remove(at));
            }
        }
        has_worked
    }
}

impl block::Lane for Lane {
    fn event(&self) -> BorrowedFd<'_> {
        self.door.event.as_fd()
    }

    fn reap(&mut self) -> bool {
        self.take_rounds(|queue| queue.reap())
    }

    fn submit(&mut self) -> bool {
        self.take_rounds(|queue| queue.submit())
    }

    fn due(&self) -> Option<Instant> {
        self.queues.iter().filter_map(|queue| queue.due()).min()
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        let mut doors = self.lanes.0.write().unwrap_or_else(PoisonError::into_inner);
        doors.retain(|door| !Arc::ptr_eq(door, &self.door));
        drop(doors);
        let mut arrivals = self.door.arrivals();
        arrivals.is_closed = true;
        self.queues.append(&mut arrivals.queues);
        drop(arrivals);
        self.queues.drain(..).for_each(discard);
    }
}

/// A queue whose volume has panicked may panic once more when it is dropped; the other volumes and
/// the connections of the thread go on.
fn discard(queue: Box<dyn LaneQueue>) {
    // The panic itself was reported by the hook.
    let _ = catch_unwind(AssertUnwindSafe(|| drop(queue)));
}

#[cfg(test)]
mod tests;
