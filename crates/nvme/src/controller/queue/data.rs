//! Data from the host: executed as they arrive, or gathered.

use block::{Op, OpKind};

use super::Queue;
use super::slot::{Slot, Stage};
use crate::controller::io::{self, Action};
use crate::controller::{Backend, CommandClass, SlotId};
use crate::wire::{Sqe, StatusCode, opcode};

impl Queue {
    /// Receives the next bytes of a command's data, in order. Bytes behind a list of ranges are
    /// ignored.
    pub fn data<B: Backend>(&mut self, id: SlotId, bytes: &[u8], backend: &mut B) {
        let slot = &mut self.slots[id.index()];
        if slot.is_failed() {
            return;
        }
        if slot.stage() != Stage::Receiving {
            assert_eq!(slot.stage(), Stage::Keeping, "data are expected");
            return slot.gather(bytes);
        }
        match slot.action {
            Action::Write | Action::Compare if slot.has_whole_blocks(bytes) => {
                slot.execute(bytes, backend);
            }
            Action::Write | Action::Compare => self.stream(id, bytes, backend),
            _ => slot.gather(bytes),
        }
    }

    /// Prefetches what a command needs that was received and will begin soon: the blocks that it
    /// writes if `has_data`, and what looking up the blocks needs that it reads, if volumes of this
    /// connection look blocks up.
    pub fn prefetch<B: Backend>(&self, sqe: &Sqe, has_data: bool, backend: &mut B) {
        let is_write = match sqe.opcode {
            opcode::WRITE if has_data => true,
            opcode::READ if self.leases.were_held() => false,
            _ => return,
        };
        if !self.role.is_io() {
            return;
        }
        if let Some(namespace) = backend.namespace(sqe.nsid()) {
            let extent = io::extent(sqe);
            if is_write {
                namespace.volume.prefetch(OpKind::Write, extent);
            } else {
                namespace.volume.announce_read(extent);
            }
        }
    }

    /// Data were damaged (a digest was wrong): the command fails in any case.
    pub fn data_lost(&mut self, id: SlotId) {
        self.slots[id.index()].fail(StatusCode::TransientTransportError);
    }

    /// All data have arrived.
    pub fn data_done<B: Backend>(&mut self, id: SlotId, backend: &mut B) {
        let slot = &mut self.slots[id.index()];
        if slot.stage() == Stage::Keeping && !slot.is_failed() {
            slot.enter(Stage::Filling);
        } else {
            self.data_gathered(id, backend);
        }
    }

    /// All data have arrived, and the volume is ready for them.
    pub(super) fn data_gathered<B: Backend>(&mut self, id: SlotId, backend: &mut B) {
        let slot = &mut self.slots[id.index()];
        match slot.action {
            Action::FusedCompare | Action::FusedWrite => {
                slot.enter(Stage::Gathered);
                self.fused_gathered(id, backend);
            }
            _ if slot.is_failed() => self.finish(id),
            Action::Control => self.execute_control(id, backend),
            Action::Deallocate | Action::Copy => self.start_work(id, backend),
            _ => self.settle(id),
        }
    }

    /// Executes the whole blocks among `bytes` and keeps the rest.
    pub(super) fn stream<B: Backend>(&mut self, id: SlotId, mut bytes: &[u8], backend: &mut B) {
        let slot = &mut self.slots[id.index()];
        let block_bytes = 1 << slot.block_shift;
        if !slot.buffer.is_empty() {
            let take = bytes.len().min(block_bytes - slot.buffer.len());
            slot.buffer.extend_from_slice(&bytes[..take]);
            bytes = &bytes[take..];
            if slot.buffer.len() < block_bytes {
                return;
            }
            let block = std::mem::take(&mut slot.buffer);
            slot.execute(&block, backend);
            self.recycle(block);
        }
        let whole = bytes.len() & !(block_bytes - 1);
        let slot = &mut self.slots[id.index()];
        if whole > 0 && !slot.is_failed() {
            slot.execute(&bytes[..whole], backend);
        }
        if whole < bytes.len() && !slot.is_failed() {
            let mut buffer = self.spare_buffer();
            buffer.extend_from_slice(&bytes[whole..]);
            self.slots[id.index()].buffer = buffer;
        }
    }
}

impl Slot {
    fn gather(&mut self, bytes: &[u8]) {
        let take = bytes.len().min((self.len_bytes - self.done_bytes) as usize);
        self.buffer.extend_from_slice(&bytes[..take]);
        self.done_bytes += take as u32;
    }

    /// Whether `bytes` are whole blocks, at least one, and no piece of a block arrived before.
    fn has_whole_blocks(&self, bytes: &[u8]) -> bool {
        let rest = bytes.len() & ((1 << self.block_shift) - 1);
        rest == 0 && !bytes.is_empty() && self.buffer.is_empty()
    }

    /// Writes or compares the next whole blocks.
    #[inline]
    fn execute<B: Backend>(&mut self, data: &[u8], backend: &mut B) {
        let extent = self.next_extent(data.len() as u32);
        self.done_bytes += data.len() as u32;
        let op = match self.action {
            Action::Compare => Op::Compare { extent, data },
            _ => Op::Write { extent, data },
        };
        self.execute_op(op, backend);
    }

    /// Executes `op` on the command's volume, if it is still the volume for which the command was
    /// checked and the host still has access to it.
    pub(super) fn execute_op<B: Backend>(&mut self, op: Op<'_>, backend: &mut B) {
        match backend.namespace(self.nsid) {
            Some(namespace) if namespace.source == self.source => {
                let class = CommandClass::of(&op);
                if let Err(code) = namespace.permit.check(class) {
                    self.fail(code);
                } else if let Err(status) = namespace.volume.execute(op) {
                    self.fail(status);
                }
            }
            _ => self.fail(StatusCode::InvalidNamespaceOrFormat),
        }
    }
}
