//! Data from the host: executed as they arrive, or gathered.

use block::{Op, OpKind};

use super::Tag;
use super::backend::Backend;
use super::commands::Commands;
use super::slot::{Slot, Stage};
use crate::wire::{Command, Operation};

impl Commands {
    /// Receives the next bytes of a command's data, in order. What is executed already of a write
    /// that is replayed is dropped.
    pub(crate) fn data<B: Backend>(&mut self, tag: Tag, bytes: &[u8], backend: &mut B) {
        let slot = &mut self.slots[tag.index()];
        let at_bytes = slot.moved_bytes;
        slot.moved_bytes += bytes.len() as u32;
        if slot.is_failed() {
            return;
        }
        if slot.stage() == Stage::Keeping || slot.operation == Operation::CompareAndWrite {
            return slot.buffer.extend_from_slice(bytes);
        }
        if at_bytes == slot.record.done && slot.has_whole_blocks(bytes) {
            slot.write(bytes, backend);
        } else {
            self.stream(tag, at_bytes, bytes, backend);
        }
    }

    /// Prefetches the blocks that `command` writes: it was received with its data and will begin
    /// soon.
    pub(crate) fn prefetch<B: Backend>(command: &Command, backend: &mut B) {
        if command.operation == Operation::Write as u8
            && let Some(unit) = backend.unit()
        {
            unit.volume.prefetch(OpKind::Write, command.extent());
        }
    }

    /// All data have arrived.
    pub(crate) fn data_done<B: Backend>(&mut self, tag: Tag, backend: &mut B) {
        let slot = &mut self.slots[tag.index()];
        if slot.stage() == Stage::Keeping && !slot.is_failed() {
            slot.enter(Stage::Filling);
        } else {
            self.data_gathered(tag, backend);
        }
    }

    /// All data have arrived, and the volume is ready for them.
    pub(super) fn data_gathered<B: Backend>(&mut self, tag: Tag, backend: &mut B) {
        self.stop_keeping_input(tag, backend);
        let slot = &mut self.slots[tag.index()];
        if slot.is_failed() {
            return self.finish(tag);
        }
        if slot.operation == Operation::CompareAndWrite {
            let data = std::mem::take(&mut slot.buffer);
            let (compare, write) = data.split_at(data.len() / 2);
            let extent = slot.extent();
            let op = Op::CompareAndWrite {
                extent,
                compare,
                write,
            };
            slot.execute_op(op, backend);
        }
        self.settle(tag);
    }

    /// Executes the whole blocks among `bytes`, which begin at `at_bytes` of the data, and keeps
    /// the rest.
    pub(super) fn stream<B: Backend>(
        &mut self,
        tag: Tag,
        at_bytes: u32,
        mut bytes: &[u8],
        backend: &mut B,
    ) {
        let slot = &mut self.slots[tag.index()];
        let wanted_bytes = slot.record.done + slot.buffer.len() as u32;
        let executed = wanted_bytes.saturating_sub(at_bytes) as usize;
        bytes = &bytes[executed.min(bytes.len())..];
        let block_bytes = 1 << slot.block_shift;
        if !slot.buffer.is_empty() {
            let take = bytes.len().min(block_bytes - slot.buffer.len());
            slot.buffer.extend_from_slice(&bytes[..take]);
            bytes = &bytes[take..];
            if slot.buffer.len() < block_bytes {
                return;
            }
            let block = std::mem::take(&mut slot.buffer);
            slot.write(&block, backend);
            self.recycle(block);
        }
        let whole = bytes.len() & !(block_bytes - 1);
        let slot = &mut self.slots[tag.index()];
        if whole > 0 && !slot.is_failed() {
            slot.write(&bytes[..whole], backend);
        }
        if whole < bytes.len() && !slot.is_failed() {
            let mut buffer = self.spare_buffer();
            buffer.extend_from_slice(&bytes[whole..]);
            self.slots[tag.index()].buffer = buffer;
        }
    }
}

impl Slot {
    /// Whether `bytes` are whole blocks, at least one, and no piece of a block arrived before.
    fn has_whole_blocks(&self, bytes: &[u8]) -> bool {
        let rest = bytes.len() & ((1 << self.block_shift) - 1);
        rest == 0 && !bytes.is_empty() && self.buffer.is_empty()
    }

    /// Writes the next whole blocks, and records it.
    fn write<B: Backend>(&mut self, data: &[u8], backend: &mut B) {
        let extent = self.part(self.record.done, data.len() as u32);
        self.execute_op(Op::Write { extent, data }, backend);
        if !self.is_failed() {
            self.record.done += data.len() as u32;
        }
    }
}
