//! Erasures: discards and zeroing, of any length. Blocks in memory become zeros at once; the
//! backing follows.
//!
//! ```text
//!  execute ──► Open ──► Wanted: writes of its blocks end ──► in flight ──► gone
//! ```
//!
//! While an erasure exists, no read or write of its blocks is started: the first would bring in old
//! contents, the second could be erased. An open one grows with adjacent ones: SANITIZE is executed
//! in pieces.

use block::{ByteRange, DataUse, Extent, Persistence, Status};

use super::{Active, Awaited, State, frame};
use crate::backing::{BackingError, BackingOp};
use crate::lease::Stage;
use crate::sectors::SectorSet;

/// The most erasures at a time.
const ERASURES_MAX: usize = 1024;

/// See the module.
#[derive(Debug)]
pub(super) struct Erasure {
    number: u64,
    extent: Extent,
    op: BackingOp,
    phase: Phase,
    /// Leases that wait for its end.
    pub(super) waiters: Vec<u32>,
    /// Whether the flush that is prepared waits for it.
    is_flushed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Open,
    Wanted,
    InFlight,
}

impl State {
    /// Erases blocks; see [`block::Op::Discard`] and [`block::Op::WriteZeroes`].
    pub(crate) fn erase(&mut self, extent: Extent, op: BackingOp) -> Result<(), Status> {
        if self.is_closed {
            return Err(Status::Gone);
        }
        if extent.blocks.0 == 0 {
            return Ok(());
        }
        let end = |extent: Extent| extent.lba.0 + extent.blocks.0;
        let grows = self.erasures.iter_mut().find(|erasure| {
            let is_adjacent = end(erasure.extent) == extent.lba.0;
            erasure.phase == Phase::Open && erasure.op == op && is_adjacent
        });
        let number = if let Some(erasure) = grows {
            erasure.extent.blocks.0 += extent.blocks.0;
            erasure.number
        } else {
            if self.erasures.len() >= ERASURES_MAX {
                return Err(Status::Busy);
            }
            let number = self.erasures.last().map_or(0, |last| last.number + 1);
            self.erasures.push(Erasure {
                number,
                extent,
                op,
                phase: Phase::Open,
                waiters: Vec::new(),
                is_flushed: false,
            });
            number
        };
        self.promote_writes();
        let mut is_awaited = false;
        self.find_resident(extent);
        for at in 0..self.scratch.len() {
            let frame = self.scratch[at];
            let mut guard = frame!(self, frame);
            let covered = self.shape.covered(guard.block, extent);
            guard.erase(covered, self.shape.sector_shift);
            drop(guard);
            let slot = &self.slots[frame as usize];
            is_awaited |= !slot.waiters().is_empty() || slot.is_flushed();
            // Commands that wait for frames may get this one, which is not written any more.
            is_awaited |= slot.leases == 0 && !self.queue.is_empty();
            for waiter in slot.waiters() {
                // What it wrote may be erased instead of written, and that is not stable.
                let lease = &mut self.leases[waiter.lease as usize];
                lease.then_flush |= waiter.event != Awaited::Fill
                    && lease.persistence == Persistence::Durable
                    && !waiter.sectors.and(covered).is_empty();
            }
        }
        for at in 0..self.scratch.len() {
            self.kick(self.scratch[at]);
        }
        if is_awaited {
            self.want(number);
        }
        Ok(())
    }

    /// Whether an erasure of a window block is to end before anything else is done with it. It is
    /// wanted from now on.
    pub(super) fn is_erased(&mut self, block: u64) -> bool {
        if self.erasures.is_empty() {
            return false;
        }
        let whole = self.shape.extent_of(block);
        self.want_overlapping(whole, |_| {})
    }

    /// Wants the erasures that overlap `extent`, and calls `each` with them; whether there are any.
    fn want_overlapping(&mut self, extent: Extent, mut each: impl FnMut(&mut Erasure)) -> bool {
        let mut found = false;
        for at in 0..self.erasures.len() {
            let erasure = &mut self.erasures[at];
            if erasure.extent.overlaps(extent) {
                found = true;
                each(erasure);
                let number = erasure.number;
                self.want(number);
            }
        }
        found
    }

    /// A lease settles when the erasures of what it changes have ended.
    pub(super) fn await_erasures(&mut self, index: u32) {
        let lease = self.lease(index);
        // What was erased before is not stable yet.
        lease.then_flush |=
            lease.data_use == DataUse::Erase && lease.persistence == Persistence::Durable;
        if self.erasures.is_empty() {
            return;
        }
        let mut awaited = 0;
        for number in 0..self.leases[index as usize].changes.len() {
            let extent = self.leases[index as usize].changes[number];
            self.want_overlapping(extent, |erasure| {
                if !erasure.waiters.contains(&index) {
                    erasure.waiters.push(index);
                    awaited += 1;
                }
            });
        }
        let lease = self.lease(index);
        lease.awaited += awaited;
        lease.then_flush |= awaited > 0 && lease.persistence == Persistence::Durable;
    }

    /// A lease ends: what it has erased is erased below, too, even if it never settled. Otherwise
    /// erasures of aborted commands could fill the list.
    pub(super) fn want_erasures(&mut self, index: u32) {
        if self.erasures.is_empty() || self.is_closed {
            return;
        }
        for number in 0..self.leases[index as usize].changes.len() {
            let extent = self.leases[index as usize].changes[number];
            self.want_overlapping(extent, |_| {});
        }
    }

    pub(super) fn abandon_erasures(&mut self, index: u32) {
        for erasure in &mut self.erasures {
            erasure.waiters.retain(|waiter| *waiter != index);
        }
    }

    /// The flush that is prepared waits for every erasure; how many there are.
    pub(super) fn flush_erasures(&mut self) -> usize {
        let count = self.erasures.len();
        for at in 0..count {
            self.erasures[at].is_flushed = true;
            let number = self.erasures[at].number;
            self.want(number);
        }
        count
    }

    /// A write of a window block has ended: an erasure may have waited for it.
    pub(super) fn end_erasure_wait(&mut self, block: u64) {
        let whole = self.shape.extent_of(block);
        for at in 0..self.erasures.len() {
            let erasure = &self.erasures[at];
            if erasure.phase == Phase::Wanted && erasure.extent.overlaps(whole) {
                let number = erasure.number;
                self.want(number);
            }
        }
    }

    /// Starts an erasure, as soon as no write of its blocks is in flight.
    fn want(&mut self, number: u64) {
        let found = self.erasures.iter_mut().find(|it| it.number == number);
        let Some(erasure) = found.filter(|it| it.phase != Phase::InFlight) else {
            return;
        };
        erasure.phase = Phase::Wanted;
        let (extent, op) = (erasure.extent, erasure.op);
        if self.is_being_written(extent) {
            return;
        }
        if let Some(erasure) = self.erasures.iter_mut().find(|it| it.number == number) {
            erasure.phase = Phase::InFlight;
        }
        let shift = self.shape.sector_shift;
        let range = ByteRange {
            offset: extent.lba.0 << shift,
            len: extent.blocks.0 << shift,
        };
        self.submit(Active::Erasure(number), op, range);
    }

    /// Whether a write of blocks of `extent` is in flight.
    fn is_being_written(&self, extent: Extent) -> bool {
        self.active.iter().flatten().any(|active| {
            let Active::Write { frame, run } = *active else {
                return false;
            };
            let block = frame!(self, frame).block;
            let run = SectorSet::span(run.0, run.1);
            !self.shape.covered(block, extent).and(run).is_empty()
        })
    }

    /// The backing has erased, or not.
    pub(crate) fn end_erasure(&mut self, number: u64, error: Option<BackingError>) {
        let at = self.erasures.iter().position(|it| it.number == number);
        let at = at.expect("an erasure in flight stays in the list");
        let erasure = self.erasures.remove(at);
        let failure = error.map(BackingError::of_write);
        if let Some(failure) = failure {
            self.fail_erasure(erasure.extent, failure);
        }
        for index in erasure.waiters {
            self.end_wait(index, failure);
        }
        if erasure.is_flushed {
            self.end_flush_wait();
        }
        self.find_resident(erasure.extent);
        let frames = std::mem::take(&mut self.scratch);
        for frame in &frames {
            self.advance(*frame);
        }
        self.scratch = frames;
    }

    /// Blocks in memory are again what the backing holds. Every command that has these blocks to
    /// change, and has not settled, fails: which of them erased is not known.
    fn fail_erasure(&mut self, extent: Extent, failure: Status) {
        self.find_resident(extent);
        let frames = std::mem::take(&mut self.scratch);
        for &frame in &frames {
            let mut guard = frame!(self, frame);
            let covered = self.shape.covered(guard.block, extent);
            guard.fail_erase(covered);
            drop(guard);
            self.slot(frame).is_whole = false;
            let is_lost = |awaited, sectors: SectorSet| {
                matches!(awaited, Awaited::Write(_)) && !sectors.and(covered).is_empty()
            };
            while let Some((lease, _)) = self.take_waiter(frame, is_lost) {
                self.end_wait(lease, Some(failure));
            }
        }
        self.scratch = frames;
        for lease in &mut self.leases {
            let overlaps = lease.changes.iter().any(|of| of.overlaps(extent));
            if lease.stage == Stage::Granted && overlaps {
                lease.failure = lease.failure.or(Some(failure));
            }
        }
    }
}
