//! What a thread that drives connections does for volumes, between the turns of the connections.
//!
//! ```text
//!  reap ──► completions ──► turns: admit, settle ──► requests ──► submit ──► poll or sleep ─┐
//!   ▲                                                                                       │
//!   └───────────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! A volume over a slow device makes commands wait while the device works. If another thread drives
//! the device, each command costs two wake-ups. A lane is the place where a volume drives its
//! device in the thread of the command itself.

use std::fmt::Debug;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Instant;

/// The devices that volumes drive in one thread. The thread owns it, calls it between two turns of
/// its connections, and sleeps only if neither call has worked.
pub trait Lane {
    /// Becomes readable when [`reap`](Self::reap) or [`submit`](Self::submit) has something to do.
    /// It stays readable after the first time, so the thread waits edge-triggered.
    fn event(&self) -> BorrowedFd<'_>;

    /// Takes what devices have completed and reports it, to [`Completions`](crate::Completions) in
    /// the end. Never waits. Returns whether there was anything.
    fn reap(&mut self) -> bool;

    /// Hands the devices what volumes have requested in this thread since the last call. Never
    /// waits. Returns whether there was anything.
    fn submit(&mut self) -> bool;

    /// When a call of [`reap`](Self::reap) or [`submit`](Self::submit) has something to do although
    /// nothing has become readable: the thread sleeps until then at most.
    fn due(&self) -> Option<Instant> {
        None
    }
}

/// Where threads that drive connections get their lanes.
pub trait LaneOpener: Debug + Send + Sync {
    /// The lane of the calling thread, for as long as it drives connections. A thread has one at
    /// most.
    ///
    /// # Errors
    /// If the system has no descriptor left.
    fn open(self: Arc<Self>) -> io::Result<Box<dyn Lane>>;
}
