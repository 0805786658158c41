//! A descriptor by which other threads wake the worker.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

#[derive(Debug)]
pub(crate) struct Waker(OwnedFd);

impl Waker {
    pub(crate) fn new() -> io::Result<Self> {
        let flags = EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC;
        Ok(Self(eventfd(0, flags)?))
    }

    /// Makes the descriptor readable.
    pub(crate) fn wake(&self) {
        // It fails only if the counter is full, and then it is readable.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Makes it unreadable again.
    pub(crate) fn clear(&self) {
        // It fails only if no thread has woken it, and then it is unreadable.
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Sleeps until the descriptor is readable or `timeout` is over.
    pub(crate) fn sleep(&self, timeout: Duration) {
        let timeout = Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        };
        let mut entry = [PollFd::new(&self.0, PollFlags::IN)];
        // An interruption by a signal only makes the caller look again.
        let _ = poll(&mut entry, Some(&timeout));
    }
}
