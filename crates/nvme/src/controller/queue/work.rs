//! Commands that have no data, or only lists of ranges, and may take long: they are executed in
//! pieces, so that other connections of the thread do not wait.

use std::time::Instant;

use block::{Blocks, Extent, Geometry, Intent, Lba, Op, Persistence, Unmap};
use session::{Admitted, Leases};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use super::Queue;
use super::slot::{Slot, Stage};
use crate::controller::io::{
    Action, COMMAND_SIZE_LIMIT_EXCEEDED, CopyRange, DATASET_RANGES_MAX, DatasetRange,
};
use crate::controller::{Backend, COPY_RANGE_BLOCKS_MAX, SlotId};
use crate::wire::{Status, StatusCode};

/// What one turn may cost, in bytes of memory written.
const TURN_COST: u64 = 4 << 20;
/// What an operation costs besides its bytes.
const OP_COST: u64 = 8 << 10;
/// How many bytes may be discarded at the cost of writing one, unless they are copied first.
const DISCARD_PER_COST: u64 = 16;

/// Whether a command needs another turn.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    Over,
    More,
}

impl Queue {
    /// Executes the first piece, which most often is the whole command, unless the turn is over.
    pub(super) fn start_work<B: Backend>(&mut self, id: SlotId, backend: &mut B) {
        let slot = &mut self.slots[id.index()];
        slot.enter(Stage::Working);
        slot.range_index = 0;
        slot.range_blocks = 0;
        match slot.admit_ranges(id, self.now, &mut self.leases, backend) {
            Admitted::Now => {}
            Admitted::Leased(until) => slot.not_before = until,
            Admitted::NotBefore(until) => slot.not_before = Some(until),
            Admitted::Fail(status, until) => {
                slot.not_before = until;
                slot.fail(status);
            }
            Admitted::Filling(until) => {
                slot.not_before = until;
                return slot.enter(Stage::Filling);
            }
        }
        self.working.push_back(id);
        self.work(backend);
    }

    /// Executes pieces until the turn is over, beginning with the command that has waited longest.
    pub(super) fn work<B: Backend>(&mut self, backend: &mut B) {
        while self.turn_cost < TURN_COST {
            let Some(id) = self.working.pop_front() else {
                return;
            };
            match self.slots[id.index()].work(&mut self.turn_cost, backend) {
                Turn::More => self.working.push_back(id),
                Turn::Over => self.settle(id),
            }
        }
    }
}

impl Slot {
    /// Checks all ranges before the first is executed, and records where they fail. A command that
    /// brought its ranges is admitted to its volume now; the others were when they began.
    fn admit_ranges<B: Backend>(
        &mut self,
        id: SlotId,
        now: Instant,
        leases: &mut Leases,
        backend: &mut B,
    ) -> Admitted {
        let Some(namespace) = backend.namespace(self.nsid) else {
            self.fail(StatusCode::InvalidNamespaceOrFormat);
            return Admitted::Now;
        };
        let blocks = match self.check_ranges(namespace.volume.geometry()) {
            Ok(blocks) => blocks,
            Err(status) => {
                self.fail(status);
                return Admitted::Now;
            }
        };
        let (Action::Copy | Action::Deallocate, Some(kind)) = (self.action, self.kind) else {
            return Admitted::Now;
        };
        if leases.holds(id.index()) {
            return Admitted::Now;
        }
        let mut extents = [Extent::new(Lba(0), Blocks(0)); DATASET_RANGES_MAX as usize + 1];
        let to =
            (self.action == Action::Copy).then(|| Extent::new(self.extent.lba, Blocks(blocks)));
        let ranges = (0..).map_while(|index| self.range(index));
        let mut len = 0;
        for (entry, extent) in extents.iter_mut().zip(to.into_iter().chain(ranges)) {
            *entry = extent;
            len += 1;
        }
        let intent = Intent {
            kind,
            extents: &extents[..len],
            len_bytes: blocks << self.block_shift,
            data_use: self.action.data_use(),
            // Neither has FUA. A host that knows of no write cache does not flush after a Copy;
            // deallocation is a hint.
            persistence: match self.action {
                Action::Copy => Persistence::Durable,
                _ => Persistence::Volatile,
            },
        };
        leases.admit(id.index(), namespace.volume, now, &intent)
    }

    /// How many blocks the ranges have in all.
    fn check_ranges(&self, geometry: Geometry) -> Result<u64, Status> {
        let mut blocks = 0;
        for extent in (0..).map_while(|index| self.range(index)) {
            geometry.byte_range(extent)?;
            if self.action == Action::Copy && extent.blocks.0 > u64::from(COPY_RANGE_BLOCKS_MAX) {
                return Err(COMMAND_SIZE_LIMIT_EXCEEDED);
            }
            blocks += extent.blocks.0;
        }
        if self.action == Action::Copy {
            geometry.byte_range(Extent::new(self.extent.lba, Blocks(blocks)))?;
        }
        Ok(blocks)
    }

    /// The range of this number.
    fn range(&self, index: usize) -> Option<Extent> {
        match self.action {
            Action::Deallocate => {
                list_item::<DatasetRange>(&self.buffer, index).map(DatasetRange::extent)
            }
            Action::Copy => list_item::<CopyRange>(&self.buffer, index).map(CopyRange::extent),
            _ => (index == 0).then_some(self.extent),
        }
    }

    /// Works until `cost` is that of a whole turn.
    fn work<B: Backend>(&mut self, cost: &mut u64, backend: &mut B) -> Turn {
        let per_cost = self.discard_per_cost(backend);
        while *cost < TURN_COST {
            if self.is_failed() {
                return Turn::Over;
            }
            let Some(range) = self.range(self.range_index) else {
                return Turn::Over;
            };
            let left = range.blocks.0 - self.range_blocks;
            let blocks = left.min(self.piece_blocks(TURN_COST - *cost, per_cost));
            let piece = Extent::new(Lba(range.lba.0 + self.range_blocks), Blocks(blocks));
            *cost += OP_COST + self.cost(blocks, per_cost);
            self.do_piece(piece, backend);
            if blocks == left {
                self.range_index += 1;
                self.range_blocks = 0;
            } else {
                self.range_blocks += blocks;
            }
        }
        if self.range(self.range_index).is_some() {
            Turn::More
        } else {
            Turn::Over
        }
    }

    fn do_piece<B: Backend>(&mut self, extent: Extent, backend: &mut B) {
        let op = match self.action {
            Action::WriteZeroes(unmap) => Op::WriteZeroes { extent, unmap },
            Action::Deallocate => Op::Discard { extent },
            Action::Copy => {
                let to = self.extent.lba;
                self.extent.lba = Lba(to.0 + extent.blocks.0);
                Op::Copy { from: extent, to }
            }
            Action::Verify => Op::Verify { extent },
            _ => Op::Flush,
        };
        self.execute_op(op, backend);
    }

    /// How many bytes are discarded at the cost of writing one.
    fn discard_per_cost<B: Backend>(&self, backend: &mut B) -> u64 {
        let namespace = backend.namespace(self.nsid);
        if namespace.is_some_and(|namespace| namespace.volume.copies_discarded()) {
            1
        } else {
            DISCARD_PER_COST
        }
    }

    /// How many blocks may be done at `cost`. A range of a Copy is done at once, since source and
    /// destination may overlap.
    fn piece_blocks(&self, cost: u64, discard_per_cost: u64) -> u64 {
        let bytes = match self.action {
            Action::WriteZeroes(Unmap::Forbidden) => cost,
            Action::WriteZeroes(Unmap::Allowed) | Action::Deallocate => cost * discard_per_cost,
            _ => return u64::MAX,
        };
        (bytes >> self.block_shift).max(1)
    }

    fn cost(&self, blocks: u64, discard_per_cost: u64) -> u64 {
        let bytes = blocks << self.block_shift;
        match self.action {
            Action::WriteZeroes(Unmap::Forbidden) | Action::Copy => bytes,
            Action::WriteZeroes(Unmap::Allowed) | Action::Deallocate => bytes / discard_per_cost,
            _ => 0,
        }
    }
}

fn list_item<T>(list: &[u8], index: usize) -> Option<&T>
where
    T: FromBytes + KnownLayout + Immutable + Unaligned,
{
    let start = index * size_of::<T>();
    T::ref_from_bytes(list.get(start..start + size_of::<T>())?).ok()
}
