//! Commands that are executed piece by piece, so that none holds up the thread: WRITE_ZEROES,
//! DISCARD, and FLUSH.

use block::{Blocks, Extent, Lba, Op, Unmap};

use super::Tag;
use super::backend::Backend;
use super::commands::Commands;
use super::slot::{Slot, Stage};
use crate::wire::{Operation, Status};

/// The cost of a turn: as much as writing this many bytes.
const TURN_COST: u64 = 4 << 20;
/// The cost of an operation, whatever its length.
const OP_COST: u64 = 8 << 10;
/// How many bytes may be discarded at the cost of writing one, unless they are copied first.
const DISCARD_PER_COST: u64 = 16;

impl Commands {
    /// Executes the first piece, which most often is the whole command, unless the turn is over.
    pub(super) fn start_work<B: Backend>(&mut self, tag: Tag, backend: &mut B) {
        self.slots[tag.index()].enter(Stage::Working);
        self.working.push_back(tag);
        self.work(backend);
    }

    /// Executes pieces until the turn is over, beginning with the command that has waited longest.
    pub(super) fn work<B: Backend>(&mut self, backend: &mut B) {
        while self.turn_cost < TURN_COST {
            let Some(tag) = self.working.pop_front() else {
                return;
            };
            let slot = &mut self.slots[tag.index()];
            if slot.work(&mut self.turn_cost, backend) {
                self.settle(tag);
            } else {
                self.working.push_back(tag);
            }
        }
    }
}

impl Slot {
    /// Works until `cost` is that of a whole turn; whether nothing is left to do.
    fn work<B: Backend>(&mut self, cost: &mut u64, backend: &mut B) -> bool {
        if self.operation == Operation::Flush {
            *cost += OP_COST;
            self.execute_op(Op::Flush, backend);
            return true;
        }
        let per_cost = match backend.unit() {
            Some(unit) if unit.volume.copies_discarded() => 1,
            Some(_) => DISCARD_PER_COST,
            None => {
                self.fail(Status::Gone);
                return true;
            }
        };
        let per_cost = match (self.operation, self.unmap()) {
            (Operation::WriteZeroes, Unmap::Forbidden) => 1,
            _ => per_cost,
        };
        while *cost < TURN_COST {
            let left = u64::from(self.record.blocks - self.record.done);
            if left == 0 || self.is_failed() {
                return true;
            }
            let affordable_bytes = (TURN_COST - *cost) * per_cost;
            let affordable = (affordable_bytes >> self.block_shift).max(1);
            let blocks = left.min(affordable);
            *cost += OP_COST + (blocks << self.block_shift) / per_cost;
            let lba = Lba(self.record.lba + u64::from(self.record.done));
            let extent = Extent::new(lba, Blocks(blocks));
            let op = match self.operation {
                Operation::WriteZeroes => Op::WriteZeroes {
                    extent,
                    unmap: self.unmap(),
                },
                _ => Op::Discard { extent },
            };
            self.execute_op(op, backend);
            if !self.is_failed() {
                self.record.done += blocks as u32;
            }
        }
        self.is_failed() || self.record.done == self.record.blocks
    }
}
