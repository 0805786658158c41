//! Admission: a command gets its frames, or waits for frames that need no peer to become free.

use block::{Admission, DataUse, Intent, Persistence, Status, Ticket};

use super::hits::Holder;
use super::{Awaited, LEASES_MAX, Slot, State, Transfer, Waiter, frame};
use crate::cache::Presence;
use crate::index::FrameIndex;
use crate::lease::{Held, Lease, NO_FRAME, Role, Stage};
use crate::s3fifo::S3Fifo;
use crate::sectors::SectorSet;

/// Memory of frames without a window block that is kept for the next ones. To give it back to the
/// host and to get it again takes longer than most commands.
const IDLE_BYTES_MAX: usize = 4 << 20;

/// Slots by which their vector grows, if an eighth of it is less.
const SLOTS_STEP: usize = 64;
/// An entry of the map of ghosts, from window blocks to numbers: key, value and a control byte. A
/// map has a power of two of buckets, and doubles when removed entries have used up what it has to
/// spare.
const MAP_ENTRY_BYTES: usize = 4 * (size_of::<(u64, u32)>() + 1);
/// What a frame that is known takes at most besides its memory and its
/// [`Frame`](crate::frame::Frame): its slot, what is known of its transfer, its entry in the map,
/// among the free frames and among the dirty ones (in nodes that are half full), and what the
/// policy has of it.
const KNOWN_FRAME_BYTES: usize = size_of::<Slot>() * 9 / 8
    + size_of::<Transfer>()
    + FrameIndex::ENTRY_BYTES
    + 2 * size_of::<u32>()
    + 2 * size_of::<(u64, u32)>()
    + S3Fifo::FRAME_BYTES
    + MAP_ENTRY_BYTES;

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
        let is_bypass = self.is_bypass(intent);
        if !is_bypass && let Some(admission) = self.admit_hit(intent, ticket) {
            return admission;
        }
        if self.needed_blocks(intent) > u64::from(self.shape.frames_max) {
            return Admission::Fail(Status::Invalid, None);
        }
        if self.by_ticket.len() >= LEASES_MAX {
            return Admission::Fail(Status::Busy, None);
        }
        let index = self.new_lease(intent, ticket, is_bypass);
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
                self.clean_for_queue();
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
                Err(NoFrames::InUse) if self.soon_free > 0 => {
                    self.clean_for_queue();
                    return;
                }
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

    /// Commands that wait for frames which could not be cleaned fail.
    pub(super) fn fail_queue(&mut self, failure: Status) {
        while let Some(&index) = self.queue.front() {
            self.leave_queue();
            self.lease(index).failure = Some(failure);
            self.report(index);
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

    pub(super) fn new_lease(
        &mut self,
        intent: &Intent<'_>,
        ticket: Ticket,
        is_bypass: bool,
    ) -> u32 {
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
                is_bypass: false,
            });
            self.leases.len() as u32 - 1
        });
        let shape = self.shape;
        let lease = self.lease(index);
        lease.ticket = ticket;
        lease.stage = Stage::Queued;
        lease.data_use = intent.data_use;
        lease.persistence = intent.persistence;
        lease.is_bypass = is_bypass;
        for (number, extent) in intent.extents.iter().enumerate() {
            let role = Role::of(intent.data_use, number);
            if let Some(role) = role {
                lease.held.extend(shape.pieces(*extent).map(|piece| Held {
                    block: piece.block,
                    sectors: SectorSet::span(piece.first, piece.count),
                    role,
                    frame: NO_FRAME,
                }));
            }
            if role.map_or(intent.data_use == DataUse::Erase, Role::changes) {
                lease.changes.push(*extent);
            }
        }
        self.enter(ticket, Holder::Lease(index));
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
        self.promised + needed <= self.available_frames() + self.soon_free
    }

    /// Frames that a command can get now.
    fn available_frames(&self) -> usize {
        let unused = self.shape.frames_max as usize - self.slots.len();
        unused + self.free.len() + self.evictable()
    }

    /// Gives a lease a frame for each of its window blocks, or none at all.
    fn take_frames(&mut self, index: u32) -> Result<(), NoFrames> {
        let mut absent = 0;
        // Those that are there come first, so that none of them is evicted for another.
        for number in 0..self.leases[index as usize].held.len() {
            let Held { block, role, .. } = self.leases[index as usize].held[number];
            match self.find(block) {
                Some(frame) => {
                    self.use_kept(frame, index, role);
                    self.hold(index, number, frame);
                }
                None => absent += 1,
            }
        }
        let taken = if absent > self.available_frames() {
            Err(NoFrames::InUse)
        } else {
            self.take_absent(index)
        };
        if taken.is_err() {
            for number in 0..self.leases[index as usize].held.len() {
                let held = &mut self.leases[index as usize].held[number];
                let frame = std::mem::replace(&mut held.frame, NO_FRAME);
                if frame != NO_FRAME {
                    self.unlease(frame);
                }
            }
            return taken;
        }
        self.lease(index).keeps_frames = true;
        Ok(())
    }

    /// Gives a lease frames for its window blocks that have none.
    fn take_absent(&mut self, index: u32) -> Result<(), NoFrames> {
        for number in 0..self.leases[index as usize].held.len() {
            let Held {
                block, role, frame, ..
            } = self.leases[index as usize].held[number];
            if frame != NO_FRAME {
                continue;
            }
            // The same block may stand twice in a copy.
            let frame = if let Some(frame) = self.find(block) {
                frame
            } else {
                let frame = self.assign(block).ok_or(NoFrames::NoMemory)?;
                self.slot(frame).is_transient = self.is_transient(index, role);
                frame
            };
            self.hold(index, number, frame);
        }
        Ok(())
    }

    fn hold(&mut self, index: u32, number: usize, frame: u32) {
        self.leases[index as usize].held[number].frame = frame;
        let slot = &mut self.slots[frame as usize];
        slot.leases += 1;
        slot.is_quiet = false;
        if slot.leases > 1 {
            return;
        }
        match (std::mem::take(&mut slot.is_idle), &mut self.cache) {
            (true, Some(cache)) => cache.evictable -= 1,
            _ => self.soon_free -= 1,
        }
    }

    /// Gives a window block a free frame, which no lease keeps yet. Returns `None` if the budget
    /// has no room for its memory.
    fn assign(&mut self, block: u64) -> Option<u32> {
        self.make_room();
        let frame = if let Some(&frame) = self.free.back() {
            frame
        } else {
            let frame = self.slots.len() as u32;
            self.charge_frames(self.frames_with_memory, frame + 1)
                .ok()?;
            self.frames.prepare(frame).ok()?;
            if self.slots.len() == self.slots.capacity() {
                // Doubling would leave up to half unused.
                let step = (self.slots.len() / 8).max(SLOTS_STEP);
                self.slots.reserve_exact(step);
            }
            self.slots.push(Slot::default());
            self.free.push_back(frame);
            frame
        };
        let has_memory = frame!(self, frame).has_memory();
        if has_memory {
            self.idle_frames -= 1;
        } else {
            self.charge_frames(self.frames_with_memory + 1, self.slots.len() as u32)
                .ok()?;
            self.frames_with_memory += 1;
            frame!(self, frame).give_memory();
        }
        frame!(self, frame).assign(block);
        self.free.pop_back();
        let slot = self.slot(frame);
        slot.block = block;
        slot.is_whole = false;
        self.map.insert(block, frame);
        self.soon_free += 1;
        if let Some(cache) = &mut self.cache {
            cache.policy.assign(frame, block);
        }
        Some(frame)
    }

    /// Charges the memory of so many frames, and the bookkeeping of `known` ones; both at least of
    /// those that a cache keeps.
    pub(super) fn charge_frames(
        &mut self,
        with_memory: usize,
        known: u32,
    ) -> Result<(), memory::MemoryError> {
        let kept = self.cache.as_ref().map_or(0, |cache| cache.kept_frames);
        let frames_bytes = with_memory.max(kept) * self.shape.frame_bytes();
        let known = known.max(kept as u32);
        let known_bytes = known as usize * KNOWN_FRAME_BYTES;
        let bytes = frames_bytes + known_bytes + self.frames.allocated_bytes(known);
        self.charge.resize(bytes as u64)
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
        self.map.remove(guard.block, frame);
        drop(guard);
        self.free.push_back(frame);
        self.idle_frames += 1;
        if self.idle_frames > IDLE_BYTES_MAX / self.shape.frame_bytes() {
            self.give_back();
        }
    }

    /// Gives the memory of all frames without a window block back to the host.
    pub(crate) fn give_back_all(&mut self) {
        while self.idle_frames > 0 {
            self.give_back();
        }
    }

    /// Gives the memory of one of them back to the host.
    fn give_back(&mut self) {
        let frame = self.free.pop_back().expect("it is among the free ones");
        frame!(self, frame).take_memory();
        self.free.push_front(frame);
        self.idle_frames -= 1;
        self.frames_with_memory -= 1;
        self.charge_frames(self.frames_with_memory, self.slots.len() as u32)
            .expect("a charge can always become smaller");
    }

    /// Has a lease wait for something that happens to sectors of a frame.
    pub(super) fn await_frame(
        &mut self,
        index: u32,
        frame: u32,
        sectors: SectorSet,
        event: Awaited,
    ) {
        self.transfer(frame).waiters.push(Waiter {
            lease: index,
            sectors,
            event,
        });
        self.lease(index).awaited += 1;
    }

    /// A lease has its frames: it waits for what is missing of their contents.
    fn begin(&mut self, index: u32) -> Admission {
        let mut presence = Presence::default();
        for number in 0..self.leases[index as usize].held.len() {
            let Held {
                sectors,
                role,
                frame,
                ..
            } = self.leases[index as usize].held[number];
            let valid = frame!(self, frame).valid;
            if role == Role::Read {
                // It is executed when it is sent, after the other received commands.
                let shift = self.shape.sector_shift;
                self.frames.prefetch(frame, sectors.hull(), shift);
            }
            presence.note(sectors, valid);
            if !role.needs_contents() || valid.has_all(sectors) {
                continue;
            }
            self.await_frame(index, frame, sectors, Awaited::Fill);
            self.kick(frame);
        }
        self.count(index, presence);
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
