//! A descriptor that becomes readable when queues have completions.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};

/// What queues raise when a request completes
/// ([`FileIo::announce_to`](crate::FileIo::announce_to)), and other threads when they have
/// something for the thread that waits. It stays readable after the first time, so wait
/// edge-triggered.
#[derive(Debug)]
pub struct Event(OwnedFd);

impl Event {
    /// An event that was not raised yet.
    pub fn new() -> io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Self(eventfd(0, flags)?))
    }

    /// Wakes the thread that waits.
    pub fn raise(&self) {
        // It fails only if the counter is full: after 2^64 events that nobody has read.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
