//! Readiness of sockets: the one place that knows epoll. Edge-triggered, so a socket is registered
//! once and its owner records its readiness.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};

/// What has become possible on a registered descriptor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Readiness {
    /// The number that it was registered with.
    pub(crate) token: u64,
    /// Bytes, connections or the end of the stream can be received.
    pub(crate) readable: bool,
    /// The end of the stream can be received, perhaps after bytes.
    pub(crate) ended: bool,
    /// Bytes can be sent.
    pub(crate) writable: bool,
}

/// A set of descriptors that are watched.
pub(crate) struct Poller {
    epoll: OwnedFd,
    events: Vec<epoll::Event>,
}

/// How long to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Not at all.
    Poll,
    /// Until something happens, at most so long.
    AtMost(Duration),
    /// Until something happens.
    Forever,
}

impl Poller {
    /// The most events of one call; those beyond it come with the next.
    const EVENTS_MAX: usize = 256;

    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            events: Vec::with_capacity(Self::EVENTS_MAX),
        })
    }

    /// Watches `fd`, edge-triggered, until it is closed.
    pub(crate) fn add(&self, fd: impl AsFd, token: u64) -> io::Result<()> {
        let interest = epoll::EventFlags::IN
            | epoll::EventFlags::OUT
            | epoll::EventFlags::RDHUP
            | epoll::EventFlags::ET;
        epoll::add(&self.epoll, fd, epoll::EventData::new_u64(token), interest)?;
        Ok(())
    }

    /// Waits, and returns the events.
    pub(crate) fn wait(&mut self, wait: Wait) -> io::Result<impl Iterator<Item = Readiness> + '_> {
        let timeout = match wait {
            Wait::Poll => Some(Timespec::default()),
            Wait::AtMost(duration) => Some(Timespec {
                tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: duration.subsec_nanos().into(),
            }),
            Wait::Forever => None,
        };
        self.events.clear();
        match epoll::wait(
            &self.epoll,
            spare_capacity(&mut self.events),
            timeout.as_ref(),
        ) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ended = epoll::EventFlags::HUP | epoll::EventFlags::ERR | epoll::EventFlags::RDHUP;
        Ok(self.events.iter().map(move |event| {
            let flags = event.flags;
            Readiness {
                token: event.data.u64(),
                readable: flags.intersects(epoll::EventFlags::IN | ended),
                ended: flags.intersects(ended),
                writable: flags.intersects(epoll::EventFlags::OUT | ended),
            }
        }))
    }
}
