//! Commands that wait for their volume: until their blocks are in memory ([`Stage::Filling`]), and
//! until their effects are safe ([`Stage::Settling`]). Aborts.
//!
//! While the volume is not ready, no data are requested from the host, so none are kept. Only data
//! inside the command are kept, charged to the memory budget, and written when the volume is ready.

use std::time::Instant;

use block::{Completion, Settled, Status as VolumeStatus};
use session::Resumed;

use super::Tag;
use super::backend::Backend;
use super::commands::{Begun, Commands};
use super::slot::{Slot, Stage};
use crate::wire::{Operation, Status};

impl Commands {
    /// Handles a volume's completion of a command that waits. The transport treats the result like
    /// that of [`Commands::begin`].
    pub(crate) fn handle_completion<B: Backend>(
        &mut self,
        now: Instant,
        completion: Completion,
        backend: &mut B,
    ) -> Begun {
        self.start_turn(now);
        match self.leases.complete(completion) {
            Some((index, Resumed::Filled(result))) => {
                self.filled(Tag(index as u16), result, backend)
            }
            Some((index, Resumed::Settled(result))) => {
                if let Err(status) = result {
                    self.slots[index].fail_by_volume(status);
                }
                self.finish(Tag(index as u16));
                Begun::Done
            }
            None => Begun::Done,
        }
    }

    /// The command begins to wait until its blocks are in memory.
    #[cold]
    pub(super) fn start_filling<B: Backend>(
        &mut self,
        tag: Tag,
        inside_bytes: u32,
        backend: &mut B,
    ) -> Begun {
        let slot = &mut self.slots[tag.index()];
        if inside_bytes == 0 {
            slot.enter(Stage::Filling);
            return Begun::Done;
        }
        if !self.keep_input(tag, backend) {
            return self.reject(tag, Status::Busy);
        }
        let slot = &mut self.slots[tag.index()];
        slot.enter(Stage::Keeping);
        slot.buffer = Vec::with_capacity(inside_bytes as usize);
        Begun::Inside(tag)
    }

    /// All data of the command are kept until it is executed: charges the memory budget with them.
    /// Returns `false`, and lowers the credits, if it is exceeded.
    pub(super) fn keep_input<B: Backend>(&mut self, tag: Tag, backend: &mut B) -> bool {
        let slot = &mut self.slots[tag.index()];
        let input_bytes = self.input_bytes + u64::from(slot.len_bytes);
        let is_charged = backend.charge_input(input_bytes);
        if is_charged {
            self.input_bytes = input_bytes;
            slot.keeps_input = true;
        } else {
            self.lower_credits();
        }
        is_charged
    }

    /// The command's blocks are in memory, or could not be brought there.
    fn filled<B: Backend>(
        &mut self,
        tag: Tag,
        result: Result<(), VolumeStatus>,
        backend: &mut B,
    ) -> Begun {
        let slot = &mut self.slots[tag.index()];
        let has_all_data = match slot.stage() {
            Stage::Filling => true,
            Stage::Keeping => {
                slot.enter(Stage::Receiving);
                false
            }
            // It has ended.
            _ => return Begun::Done,
        };
        if let Err(status) = result {
            slot.fail_by_volume(status);
        }
        let (is_failed, kept_input) = (slot.is_failed(), slot.keeps_input);
        self.stop_keeping_input(tag, backend);
        if kept_input && !is_failed {
            let slot = &mut self.slots[tag.index()];
            if slot.operation == Operation::Write {
                let input = std::mem::take(&mut slot.buffer);
                self.stream(tag, 0, &input, backend);
            }
        }
        if !has_all_data {
            return Begun::Done;
        }
        if is_failed || kept_input {
            self.data_gathered(tag, backend);
            return Begun::Done;
        }
        self.go_on(tag, backend)
    }

    /// The command was executed: it is finished as soon as its effects are safe.
    #[inline]
    pub(super) fn settle(&mut self, tag: Tag) {
        if self.leases.is_empty() {
            return self.finish(tag);
        }
        self.settle_leased(tag);
    }

    #[cold]
    fn settle_leased(&mut self, tag: Tag) {
        let slot = &mut self.slots[tag.index()];
        if !slot.is_failed() {
            match self.leases.settle(tag.index()) {
                Ok(Settled::Done) => {}
                Ok(Settled::Later) => return slot.enter(Stage::Settling),
                Err(status) => slot.fail_by_volume(status),
            }
        }
        self.finish(tag);
    }

    /// The host gives a command up (BRP-22, BRP-23).
    pub(crate) fn abort<B: Backend>(&mut self, tag: Tag, sequence: u32, backend: &mut B) {
        let Some(slot) = self.slots.get_mut(tag.index()) else {
            return;
        };
        if slot.record.sequence != sequence {
            return;
        }
        match slot.stage() {
            Stage::Filling | Stage::Settling => self.give_up(tag, Status::Aborted, backend),
            // It is answered when all its data have arrived, which are dropped.
            Stage::Keeping | Stage::Receiving => slot.fail(Status::Aborted),
            Stage::Free | Stage::Working | Stage::Held | Stage::Done | Stage::Ready => {}
        }
    }

    /// Answers a command that waits for its volume with this status. A late answer of its volume is
    /// ignored.
    fn give_up<B: Backend>(&mut self, tag: Tag, status: Status, backend: &mut B) {
        self.end_lease(tag, backend);
        let slot = &mut self.slots[tag.index()];
        slot.fail(status);
        slot.not_before = None;
        self.finish(tag);
    }

    /// Fails the commands that wait for a volume which is no longer the unit's.
    pub(crate) fn fail_without_unit<B: Backend>(&mut self, backend: &mut B) {
        if self.leases.is_empty() {
            return;
        }
        for index in 0..self.slots.len() {
            let slot = &self.slots[index];
            if !slot.waits_for_volume() {
                continue;
            }
            let source = backend.unit().map(|unit| unit.source);
            if source != Some(slot.source) {
                self.give_up(Tag(index as u16), Status::Gone, backend);
            }
        }
    }

    /// The command needs its volume no longer.
    pub(super) fn end_lease<B: Backend>(&mut self, tag: Tag, backend: &mut B) {
        self.stop_keeping_input(tag, backend);
        self.leases.release(tag.index());
    }

    /// Data of the command are no longer kept apart: what they took is not charged any more.
    pub(super) fn stop_keeping_input<B: Backend>(&mut self, tag: Tag, backend: &mut B) {
        let slot = &mut self.slots[tag.index()];
        if std::mem::take(&mut slot.keeps_input) {
            self.input_bytes -= u64::from(slot.len_bytes);
            backend.charge_input(self.input_bytes);
        }
    }
}

impl Slot {
    fn waits_for_volume(&self) -> bool {
        matches!(self.stage(), Stage::Filling | Stage::Settling)
    }
}
