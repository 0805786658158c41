//! Flushes: everything that was executed before goes to the backing, then the backing flushes.
//!
//! ```text
//!  a command's flush ──► next ──► preparing: its writes and erasures end ──► the backing flushes
//! ```
//!
//! Commands that want a flush while one is prepared or in flight share the next one.

use block::{ByteRange, Status};

use super::{Active, State, frame};
use crate::backing::{BackingError, BackingOp};

#[derive(Debug, Default)]
pub(super) struct Flushes {
    /// Whether a flush is prepared or in flight.
    is_under_way: bool,
    /// Frames and erasures that it waits for.
    awaited: usize,
    /// What it waited for and could not be written.
    failure: Option<Status>,
    /// Leases that it serves.
    members: Vec<u32>,
    /// Leases that the next one serves.
    next: Vec<u32>,
}

impl Flushes {
    /// Something that the flush has waited for was not written, and is still to be.
    pub(super) fn fail(&mut self, failure: Option<Status>) {
        self.failure = self.failure.or(failure);
    }

    /// A lease has ended.
    pub(super) fn abandon(&mut self, index: u32) {
        self.members.retain(|member| *member != index);
        self.next.retain(|member| *member != index);
    }
}

impl State {
    /// A lease waits for a flush of what was executed until now.
    pub(super) fn join_flush(&mut self, index: u32) {
        self.flushes.next.push(index);
        if !self.flushes.is_under_way {
            self.prepare_flush();
        }
    }

    fn prepare_flush(&mut self) {
        let flushes = &mut self.flushes;
        std::mem::swap(&mut flushes.members, &mut flushes.next);
        flushes.is_under_way = true;
        flushes.failure = None;
        // Counts this function, so that the flush does not start before it ends.
        flushes.awaited = 1;
        self.find_changed();
        for at in 0..self.scratch.len() {
            let frame = self.scratch[at];
            let guard = frame!(self, frame);
            let (is_dirty, is_writing) = (!guard.dirty.is_empty(), !guard.writing.is_empty());
            drop(guard);
            if !is_dirty && !is_writing {
                continue;
            }
            self.flushes.awaited += 1;
            self.slot(frame).is_write_wanted |= is_dirty;
            let transfer = self.transfer(frame);
            transfer.flush_until = Some(transfer.writes_started + u64::from(is_dirty));
            self.kick(frame);
        }
        self.flushes.awaited += self.flush_erasures();
        self.end_flush_wait();
    }

    /// One of the writes or erasures that a flush waits for has ended.
    pub(super) fn end_flush_wait(&mut self) {
        // After a close there is nothing left to flush for.
        self.flushes.awaited = self.flushes.awaited.saturating_sub(1);
        if self.flushes.awaited == 0 && self.flushes.is_under_way {
            let range = ByteRange { offset: 0, len: 0 };
            self.submit(Active::Flush, BackingOp::Flush, range);
        }
    }

    /// The backing has flushed.
    pub(crate) fn end_flush(&mut self, error: Option<BackingError>) {
        let failure = self.flushes.failure.or(error.map(BackingError::of_write));
        while let Some(index) = self.flushes.members.pop() {
            let lease = self.lease(index);
            lease.failure = lease.failure.or(failure);
            self.report(index);
        }
        self.flushes.is_under_way = false;
        if !self.flushes.next.is_empty() {
            self.prepare_flush();
        }
    }
}
