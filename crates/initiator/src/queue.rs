//! A queue: one connection's commands, buffers and completions, for one thread.

use std::{
    os::fd::{AsFd, BorrowedFd},
    time::{Duration, Instant},
};

use block::Geometry;

use crate::{Completion, QueueError, Request, Slot, SubmitError, WaitStrategy};

/// A handle of one I/O queue. Move it to the thread that uses it.
#[derive(Debug)]
pub struct Queue {}

/// Whether a queue has a connection at present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// Commands can go out.
    Up,
    /// The connection is being made again; commands wait.
    Down,
}

impl Queue {
    /// How many slots there are.
    pub fn depth(&self) -> u16 {
        todo!()
    }

    /// Block size and capacity of the namespace as last learned (a resize changes it).
    pub fn geometry(&self) -> Geometry {
        todo!()
    }

    /// The most data bytes of one command: what a slot's buffer holds and the controller takes (MDTS).
    pub fn transfer_bytes_max(&self) -> usize {
        todo!()
    }

    /// Whether there is a connection at present.
    pub fn link(&self) -> Link {
        todo!()
    }

    /// How many commands are in flight or waiting for a connection.
    pub fn in_flight(&self) -> usize {
        todo!()
    }

    /// The buffer of `slot`: what a completed read left there. Panics where `slot` is beyond the depth.
    pub fn buffer(&self, slot: Slot) -> &[u8] {
        let _ = slot;
        todo!()
    }

    /// The buffer of `slot`, to fill before a write. Panics where a command is in flight in `slot`, since it could
    /// send half of each.
    pub fn buffer_mut(&mut self, slot: Slot) -> &mut [u8] {
        let _ = slot;
        todo!()
    }

    /// Takes a request. Nothing is sent before the next [`poll`](Self::poll) or [`wait`](Self::wait), so that many
    /// go out in one send.
    pub fn submit(&mut self, request: Request) -> Result<(), SubmitError> {
        let _ = request;
        todo!()
    }

    /// Sends what was submitted, takes what has arrived, appends what has completed to `done`, and says how many
    /// that were. Never waits.
    pub fn poll(&mut self, now: Instant, done: &mut Vec<Completion>) -> Result<usize, QueueError> {
        let _ = (now, done);
        todo!()
    }

    /// Polls until at least one command has completed or `timeout` is over.
    pub fn wait(
        &mut self,
        strategy: WaitStrategy,
        timeout: Duration,
        done: &mut Vec<Completion>,
    ) -> Result<usize, QueueError> {
        let _ = (strategy, timeout, done);
        todo!()
    }

    /// Whether the operating system had no room for all that is to be sent: a thread that waits for several queues
    /// waits until their descriptors can be written, too.
    pub fn wants_write(&self) -> bool {
        todo!()
    }

    /// The descriptor to wait for (readable; writable where [`wants_write`](Self::wants_write)) before the next
    /// [`poll`](Self::poll), for a thread that has several queues. It changes with each connection.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.as_fd()
    }
}

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        todo!()
    }
}
