//! Settling: what a command has changed goes to the backing.

use block::{DataUse, Persistence, Settled, Status, Ticket};

use super::hits::Holder;
use super::{Awaited, State, frame};
use crate::lease::{Held, Stage};

impl State {
    /// See [`block::Volume::settle`].
    pub(crate) fn settle(&mut self, ticket: Ticket) -> Result<Settled, Status> {
        let Some(&holder) = self.by_ticket.get(&ticket) else {
            return Err(Status::Invalid);
        };
        if self.is_closed {
            return Err(Status::Gone);
        }
        match holder {
            Holder::Hit(hit) => self.settle_hit(ticket, hit),
            Holder::Lease(index) => self.settle_lease(index),
        }
    }

    pub(super) fn settle_lease(&mut self, index: u32) -> Result<Settled, Status> {
        match self.leases[index as usize].data_use {
            DataUse::Read | DataUse::Verify => return Ok(Settled::Done),
            DataUse::Flush => {
                self.lease(index).stage = Stage::Settling;
                self.join_flush(index);
                return Ok(Settled::Later);
            }
            DataUse::Overwrite | DataUse::Modify | DataUse::Copy | DataUse::Erase => {}
        }
        self.check_written(index)?;
        self.await_writes(index);
        self.await_erasures(index);
        self.drop_frames(index);
        let lease = self.lease(index);
        if lease.awaited == 0 {
            if !std::mem::take(&mut lease.then_flush) {
                return Ok(Settled::Done);
            }
            lease.stage = Stage::Settling;
            self.join_flush(index);
        }
        self.lease(index).stage = Stage::Settling;
        Ok(Settled::Later)
    }

    /// Whether something that the command has changed was lost already: another command may have
    /// had it written.
    fn check_written(&self, index: u32) -> Result<(), Status> {
        let lease = &self.leases[index as usize];
        if let Some(failure) = lease.failure {
            return Err(failure);
        }
        for held in lease.held.iter().filter(|held| held.role.changes()) {
            let guard = frame!(self, held.frame);
            if !guard.failed.and(held.sectors).is_empty() {
                return Err(guard.failure.unwrap_or(Status::WriteError));
            }
        }
        Ok(())
    }

    /// Has what is dirty written, and waits for that.
    fn await_writes(&mut self, index: u32) {
        if self.is_written_back(index) {
            return;
        }
        let is_durable = self.lease(index).persistence == Persistence::Durable;
        for number in 0..self.leases[index as usize].held.len() {
            let Held {
                sectors,
                role,
                frame,
                ..
            } = self.leases[index as usize].held[number];
            if !role.changes() {
                continue;
            }
            let guard = frame!(self, frame);
            let is_dirty = !guard.dirty.and(sectors).is_empty();
            let is_writing = !guard.writing.and(sectors).is_empty();
            let is_all_dirty = guard.dirty.has_all(sectors);
            drop(guard);
            let slot = self.slot(frame);
            if is_dirty {
                slot.is_write_wanted = true;
                slot.is_durable_wanted |= is_durable;
            }
            if is_dirty || is_writing {
                let number = self.transfer(frame).writes_started + u64::from(is_dirty);
                self.await_frame(index, frame, sectors, Awaited::Write(number));
            }
            // Another write has taken some of it, which need not be durable.
            self.lease(index).then_flush |= is_durable && !is_all_dirty;
            self.kick(frame);
        }
    }

    /// The command executes nothing any more, so it needs its frames no longer.
    fn drop_frames(&mut self, index: u32) {
        if !std::mem::take(&mut self.lease(index).keeps_frames) {
            return;
        }
        for number in 0..self.leases[index as usize].held.len() {
            let frame = self.leases[index as usize].held[number].frame;
            self.unlease(frame);
        }
    }

    /// See [`block::Volume::release`].
    pub(crate) fn release(&mut self, ticket: Ticket) {
        let index = match self.by_ticket.get(&ticket) {
            Some(&Holder::Hit(hit)) => return self.release_hit(ticket, hit),
            Some(&Holder::Lease(index)) => index,
            None => return,
        };
        self.abandon_queue(index);
        if self.leases[index as usize].awaited > 0 {
            for number in 0..self.leases[index as usize].held.len() {
                let frame = self.leases[index as usize].held[number].frame;
                if let Some(transfer) = &mut self.slot(frame).transfer {
                    transfer.waiters.retain(|waiter| waiter.lease != index);
                }
                self.kick(frame);
            }
            self.abandon_erasures(index);
        }
        self.flushes.abandon(index);
        self.drop_frames(index);
        self.want_erasures(index);
        self.end_lease(index);
    }
}
