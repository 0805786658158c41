//! Admission: a command gets its frames, or waits for frames that need no peer to become free.

use std::sync::Arc;

use block::{Admission, DataUse, Intent, Persistence, Status, Ticket};

use super::{Awaited, LEASES_MAX, State, Waiter, frame};
use crate::lease::{Held, Lease, Role, Stage};
use crate::sectors::SectorSet;

/// Frames without a window block that keep their memory.
const IDLE_FRAMES_MAX: usize = 64;

/// Why a command gets no frames.
enum NoFrames {
    /// Too few are free.
    InUse,
    /// The budget has no room for their memory.
    NoMemory,
}

impl State {
    /// See [`block::Volume::admit`]. All extents are inside the volume.
    pub(crate) fn admit(&mut self, intent: &Intent<'_>, ticket: Ticket) -> Admission {
        if self.is_closed {
            return Admission::Fail(Status::Gone, None);
        }
        if self.needed_blocks(intent) > u64::from(self.shape.frames_max) {
            return Admission::Fail(Status::Invalid, None);
        }
        if self.by_ticket.len() >= LEASES_MAX {
            return Admission::Fail(Status::Busy, None);
        }
        let index = self.new_lease(intent, ticket);
        let needs_frames = !self.leases[index as usize].held.is_empty();
        let taken = if self.queue.is_empty() || !needs_frames {
            self.take_frames(index)
        } else {
            Err(NoFrames::InUse)
        };
        match taken {
            Ok(()) => self.begin(index),
            Err(NoFrames::InUse) if self.may_queue(index) => {
                self.promised += self.leases[index as usize].held.len();
                self.queue.push_back(index);
                Admission::Later(None)
            }
            Err(NoFrames::InUse | NoFrames::NoMemory) => {
                self.end_lease(index);
                Admission::Fail(Status::Busy, None)
            }
        }
    }

    /// The backing has answered: commands that wait for frames may get them.
    pub(crate) fn serve_queue(&mut self) {
        while let Some(&index) = self.queue.front() {
            match self.take_frames(index) {
                Err(NoFrames::InUse) if self.soon_free > 0 => return,
                Ok(()) => {
                    self.leave_queue();
                    if self.begin(index) != Admission::Later(None) {
                        self.report(index);
                    }
                }
                Err(NoFrames::InUse | NoFrames::NoMemory) => {
                    self.leave_queue();
                    self.lease(index).failure = Some(Status::Busy);
                    self.report(index);
                }
            }
        }
    }

    fn leave_queue(&mut self) {
        if let Some(index) = self.queue.pop_front() {
            self.promised -= self.leases[index as usize].held.len();
        }
    }

    /// Takes a queued lease out.
    pub(super) fn abandon_queue(&mut self, index: u32) {
        let before = self.queue.len();
        self.queue.retain(|queued| *queued != index);
        if self.queue.len() < before {
            self.promised -= self.leases[index as usize].held.len();
        }
    }

    /// How many window blocks a command needs in memory.
    fn needed_blocks(&self, intent: &Intent<'_>) -> u64 {
        let extents = intent.extents.iter().enumerate();
        extents
            .filter(|(number, _)| Role::of(intent.data_use, *number).is_some())
            .map(|(_, extent)| self.shape.blocks_of(*extent))
            .sum()
    }

    fn new_lease(&mut self, intent: &Intent<'_>, ticket: Ticket) -> u32 {
        let index = self.free_leases.pop().unwrap_or_else(|| {
            self.leases.push(Lease {
                ticket,
                stage: Stage::Granted,
                data_use: intent.data_use,
                persistence: Persistence::Volatile,
                held: Vec::new(),
                keeps_frames: false,
                changes: Vec::new(),
                awaited: 0,
                then_flush: false,
                failure: None,
            });
            self.leases.len() as u32 - 1
        });
        let shape = self.shape;
        let lease = self.lease(index);
        lease.ticket = ticket;
        lease.stage = Stage::Queued;
        lease.data_use = intent.data_use;
        lease.persistence = intent.persistence;
        for (number, extent) in intent.extents.iter().enumerate() {
            let role = Role::of(intent.data_use, number);
            if let Some(role) = role {
                lease.held.extend(shape.pieces(*extent).map(|piece| Held {
                    block: piece.block,
                    sectors: SectorSet::span(piece.first, piece.count),
                    role,
                    frame: 0,
                }));
            }
            if role.map_or(intent.data_use == DataUse::Erase, Role::changes) {
                lease.changes.push(*extent);
            }
        }
        let before = self.by_ticket.insert(ticket, index);
        assert!(before.is_none(), "{ticket:?} names one command at a time");
        index
    }

    /// Ends a lease that keeps no frames and waits for nothing.
    pub(super) fn end_lease(&mut self, index: u32) {
        let lease = &mut self.leases[index as usize];
        self.by_ticket.remove(&lease.ticket);
        lease.stage = Stage::Granted;
        lease.held.clear();
        lease.changes.clear();
        lease.keeps_frames = false;
        lease.awaited = 0;
        lease.then_flush = false;
        lease.failure = None;
        self.free_leases.push(index);
    }

    /// Whether enough frames become free without anything that a peer does.
    fn may_queue(&self, index: u32) -> bool {
        let needed = self.leases[index as usize].held.len();
        self.promised + needed <= self.free.len() + self.soon_free
    }

    /// Gives a lease a frame for each of its window blocks, or none at all.
    fn take_frames(&mut self, index: u32) -> Result<(), NoFrames> {
        let held = &self.leases[index as usize].held;
        let is_absent = |held: &&Held| !self.map.contains_key(&held.block);
        if held.iter().filter(is_absent).count() > self.free.len() {
            return Err(NoFrames::InUse);
        }
        for number in 0..held.len() {
            let block = self.leases[index as usize].held[number].block;
            let frame = match self.map.get(&block) {
                Some(&frame) => Some(frame),
                None => self.assign(block),
            };
            let Some(frame) = frame else {
                for number in 0..number {
                    let frame = self.leases[index as usize].held[number].frame;
                    self.unlease(frame);
                }
                return Err(NoFrames::NoMemory);
            };
            self.leases[index as usize].held[number].frame = frame;
            let slot = self.slot(frame);
            slot.leases += 1;
            if slot.leases == 1 {
                self.soon_free -= 1;
            }
        }
        self.lease(index).keeps_frames = true;
        Ok(())
    }

    /// Gives a window block a free frame, which no lease keeps yet. Returns `None` if the budget has
    /// no room for its memory.
    fn assign(&mut self, block: u64) -> Option<u32> {
        let &frame = self.free.back()?;
        let len_bytes = self.shape.frame_bytes();
        let mut guard = frame!(self, frame);
        if guard.has_memory() {
            self.idle_frames -= 1;
        } else {
            let budget = Arc::clone(&self.budget);
            let charge = budget.reserve(len_bytes as u64).ok()?;
            guard.give_memory(len_bytes, charge);
        }
        guard.assign(block);
        drop(guard);
        self.free.pop_back();
        self.map.insert(block, frame);
        self.soon_free += 1;
        Some(frame)
    }

    /// A lease keeps a frame no longer.
    pub(super) fn unlease(&mut self, frame: u32) {
        let slot = self.slot(frame);
        slot.leases -= 1;
        if slot.leases == 0 {
            self.soon_free += 1;
        }
        self.kick(frame);
    }

    /// A frame that nobody keeps or waits for, and that is clean, holds its window block no longer.
    pub(super) fn free_frame(&mut self, frame: u32) {
        let mut guard = frame!(self, frame);
        guard.free();
        self.map.remove(&guard.block);
        self.soon_free -= 1;
        if self.idle_frames < IDLE_FRAMES_MAX {
            self.idle_frames += 1;
            self.free.push_back(frame);
        } else {
            guard.take_memory();
            self.free.push_front(frame);
        }
    }

    /// Has a lease wait for something that happens to sectors of a frame.
    pub(super) fn await_frame(
        &mut self,
        index: u32,
        frame: u32,
        sectors: SectorSet,
        event: Awaited,
    ) {
        self.slot(frame).waiters.push(Waiter {
            lease: index,
            sectors,
            event,
        });
        self.lease(index).awaited += 1;
    }

    /// A lease has its frames: it waits for what is missing of their contents.
    fn begin(&mut self, index: u32) -> Admission {
        for number in 0..self.leases[index as usize].held.len() {
            let Held {
                sectors,
                role,
                frame,
                ..
            } = self.leases[index as usize].held[number];
            if !role.needs_contents() || frame!(self, frame).valid.has_all(sectors) {
                continue;
            }
            self.await_frame(index, frame, sectors, Awaited::Fill);
            self.kick(frame);
        }
        let lease = self.lease(index);
        // Forced reads give what is on stable storage.
        lease.then_flush =
            lease.data_use == DataUse::Read && lease.persistence == Persistence::Durable;
        if lease.awaited > 0 {
            lease.stage = Stage::Filling;
            return Admission::Later(None);
        }
        if std::mem::take(&mut lease.then_flush) {
            lease.stage = Stage::Filling;
            self.join_flush(index);
            return Admission::Later(None);
        }
        lease.stage = Stage::Granted;
        Admission::NowThenSettle(None)
    }
}
