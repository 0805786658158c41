//! Several events as one descriptor, for threads that can wait for one.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};

/// Readable when an event that was added has been raised since the last [`clear`](Self::clear).
pub struct EventSet(OwnedFd);

impl EventSet {
    /// The most events.
    const EVENTS_MAX: usize = 8;

    /// A set of `events`, at most [`EVENTS_MAX`](Self::EVENTS_MAX), which stay open as long as it
    /// does.
    ///
    /// # Errors
    /// If the system has no descriptor left.
    pub fn new(events: &[BorrowedFd<'_>]) -> io::Result<Self> {
        assert!(events.len() <= Self::EVENTS_MAX, "few events");
        let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for event in events {
            let interest = epoll::EventFlags::IN | epoll::EventFlags::ET;
            epoll::add(&set, event, epoll::EventData::new_u64(0), interest)?;
        }
        Ok(Self(set))
    }

    /// What was raised so far has been seen.
    pub fn clear(&self) {
        let mut events = Vec::<epoll::Event>::with_capacity(Self::EVENTS_MAX);
        // A failure leaves it readable, so the thread does not sleep.
        let _ = epoll::wait(
            &self.0,
            spare_capacity(&mut events),
            Some(&Timespec::default()),
        );
    }
}

impl AsFd for EventSet {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

    use super::*;

    fn is_readable(set: &EventSet) -> bool {
        let mut watched = [PollFd::new(set, PollFlags::IN)];
        poll(&mut watched, Some(&Timespec::default())).expect("it can be polled") > 0
    }

    #[test]
    fn each_event_that_is_raised_makes_the_set_readable_until_it_is_cleared() {
        let events = [(); 2].map(|()| eventfd(0, EventfdFlags::NONBLOCK).expect("a descriptor"));
        let set = EventSet::new(&[events[0].as_fd(), events[1].as_fd()]).expect("a descriptor");
        assert!(!is_readable(&set));
        for raised in [0, 1, 0, 0] {
            rustix::io::write(&events[raised], &1_u64.to_ne_bytes()).expect("it is not full");
            assert!(is_readable(&set));
            set.clear();
            assert!(!is_readable(&set), "though nobody has read the event");
        }
    }
}
