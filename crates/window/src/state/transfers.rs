//! Reads and writes of frames: at most one read or one write of a frame is in flight at a time.

use block::{Persistence, Status};

use super::{Active, Awaited, Slot, State, frame};
use crate::backing::{BackingError, BackingOp};
use crate::frame::FrameState;
use crate::sectors::SectorSet;

impl State {
    /// Starts what a frame needs next, unless a transfer of it is in flight or an erasure of it is
    /// to come first; the end of either calls this again.
    pub(super) fn kick(&mut self, frame: u32) {
        let slot = &self.slots[frame as usize];
        let guard = frame!(self, frame);
        // An absent one was freed by what called this before.
        if guard.state == FrameState::Absent || self.is_closed {
            return;
        }
        let (block, is_dirty) = (guard.block, !guard.dirty.is_empty());
        let is_in_transfer = guard.state.is_in_transfer();
        let is_whole = guard.valid.has_all(self.shape.all_sectors());
        let missing = slot.wanted().without(guard.valid);
        drop(guard);
        let slot = &mut self.slots[frame as usize];
        slot.is_quiet = false;
        slot.is_whole = is_whole;
        self.list_dirty(frame, block, is_dirty);
        if is_in_transfer {
            return;
        }
        let slot = &mut self.slots[frame as usize];
        slot.is_acknowledged &= is_dirty;
        let is_unused = slot.leases == 0 && slot.waiters().is_empty() && !slot.is_flushed();
        // A cache cleans in the background what it keeps.
        let is_left = self.cache.is_some() && !slot.is_transient;
        let writes = is_dirty && (slot.is_write_wanted || is_unused && !is_left);
        let writes_first = missing.is_empty() || !slot.was_written;
        if !is_dirty && is_unused {
            self.rest(frame);
        } else if (writes || !missing.is_empty()) && self.is_erased(block) {
            // The erasure's end calls this again.
        } else if writes && writes_first {
            self.start_write(frame, block);
        } else if !missing.is_empty() {
            self.start_fill(frame, block, missing.hull());
        } else if is_dirty && is_unused {
            self.leave_dirty();
        }
    }

    fn start_fill(&mut self, frame: u32, block: u64, run: (u32, u32)) {
        frame!(self, frame).start_fill();
        self.slot(frame).was_written = false;
        let range = self.shape.byte_range(block, run.0, run.1);
        self.submit(Active::Fill { frame, run }, BackingOp::Read, range);
    }

    fn start_write(&mut self, frame: u32, block: u64) {
        let sectors = frame!(self, frame).start_write();
        self.list_dirty(frame, block, false);
        let slot = self.slot(frame);
        slot.was_written = true;
        slot.is_write_wanted = false;
        let persistence = if std::mem::take(&mut slot.is_durable_wanted) {
            Persistence::Durable
        } else {
            Persistence::Volatile
        };
        let transfer = self.transfer(frame);
        transfer.writes_started += 1;
        transfer.failed = SectorSet::EMPTY;
        transfer.failure = None;
        transfer.parts = sectors.runs().count() as u32;
        for run in sectors.runs() {
            let range = self.shape.byte_range(block, run.0, run.1);
            let op = BackingOp::Write(persistence);
            self.submit(Active::Write { frame, run }, op, range);
        }
    }

    /// A read has ended, and its bytes are in the frame, if there are any.
    pub(crate) fn end_fill(&mut self, frame: u32, run: (u32, u32), error: Option<BackingError>) {
        let mut guard = frame!(self, frame);
        guard.end_fill();
        let lost = SectorSet::span(run.0, run.1).without(guard.valid);
        drop(guard);
        if let Some(error) = error {
            let failure = Some(error.of_read());
            let is_lost = |awaited, sectors: SectorSet| {
                awaited == Awaited::Fill && !sectors.and(lost).is_empty()
            };
            while let Some((lease, _)) = self.take_waiter(frame, is_lost) {
                self.end_wait(lease, failure);
            }
        }
        self.advance(frame);
    }

    /// A request of a write has ended.
    pub(crate) fn end_write(&mut self, frame: u32, run: (u32, u32), error: Option<BackingError>) {
        if let Some(error) = error {
            let run = SectorSet::span(run.0, run.1);
            if self.keeps_unwritten(frame) {
                self.redo_write(frame, run, error.of_write());
            } else {
                self.fail_write(frame, run, error.of_write());
            }
        }
        let is_kept = self.keeps_unwritten(frame);
        let transfer = self.transfer(frame);
        transfer.parts -= 1;
        if transfer.parts > 0 {
            return;
        }
        let (failed, failure) = (transfer.failed, transfer.failure);
        let ended = transfer.writes_started;
        if transfer.flush_until.is_some_and(|until| until <= ended) {
            transfer.flush_until = None;
            self.flushes.fail(failure.filter(|_| is_kept));
            self.end_flush_wait();
        }
        let mut guard = frame!(self, frame);
        let block = guard.block;
        guard.end_write();
        drop(guard);
        let is_ended = |awaited, _| matches!(awaited, Awaited::Write(number) if number <= ended);
        while let Some((lease, sectors)) = self.take_waiter(frame, is_ended) {
            let is_lost = !sectors.and(failed).is_empty();
            self.end_wait(lease, failure.filter(|_| is_lost));
        }
        self.end_erasure_wait(block);
        self.end_cleaning(frame, failure);
        self.advance(frame);
        self.clean();
    }

    /// The write of a run of sectors has failed.
    fn fail_write(&mut self, frame: u32, run: SectorSet, failure: Status) {
        let lost = frame!(self, frame).fail_write(run, failure);
        let slot = &mut self.slots[frame as usize];
        slot.is_whole = false;
        let transfer = slot.transfer.as_mut().expect("a write is in flight");
        transfer.failed = transfer.failed.or(run);
        transfer.failure = Some(failure);
        // Those that wait for the next write may have lost some of their data, too.
        for waiter in &transfer.waiters {
            if waiter.event != Awaited::Fill && !waiter.sectors.and(lost).is_empty() {
                self.leases[waiter.lease as usize].failure = Some(failure);
            }
        }
    }

    /// Ends the waits for a frame that have nothing to wait for any more, and starts what comes
    /// next. Called for completions of the backing alone.
    pub(super) fn advance(&mut self, frame: u32) {
        let guard = frame!(self, frame);
        let (block, valid) = (guard.block, guard.valid);
        let is_settled = guard.dirty.is_empty() && !guard.state.is_in_transfer();
        drop(guard);
        let is_filled = |awaited, sectors| awaited == Awaited::Fill && valid.has_all(sectors);
        while let Some((lease, _)) = self.take_waiter(frame, is_filled) {
            self.end_wait(lease, None);
        }
        // What they wrote was erased before it was written, so they have waited for the erasure.
        if is_settled && !self.is_erased(block) {
            let is_write = |awaited, _| matches!(awaited, Awaited::Write(_));
            while let Some((lease, _)) = self.take_waiter(frame, is_write) {
                self.end_wait(lease, None);
            }
            let transfer = self.slot(frame).transfer.as_mut();
            if transfer.is_some_and(|it| it.flush_until.take().is_some()) {
                self.end_flush_wait();
            }
        }
        self.kick(frame);
    }

    /// Takes a waiter of a frame out.
    pub(super) fn take_waiter(
        &mut self,
        frame: u32,
        matches: impl Fn(Awaited, SectorSet) -> bool,
    ) -> Option<(u32, SectorSet)> {
        let waiters = &mut self.slot(frame).transfer.as_mut()?.waiters;
        let at = waiters
            .iter()
            .position(|waiter| matches(waiter.event, waiter.sectors))?;
        let waiter = waiters.remove(at);
        Some((waiter.lease, waiter.sectors))
    }
}

impl Slot {
    /// The sectors whose contents leases wait for.
    fn wanted(&self) -> SectorSet {
        let fills = self.waiters().iter();
        let fills = fills.filter(|waiter| waiter.event == Awaited::Fill);
        fills.fold(SectorSet::EMPTY, |all, waiter| all.or(waiter.sectors))
    }
}
