//! Commands that wait for their volume: until their blocks are in memory ([`Stage::Filling`]), and
//! until their effects are safe ([`Stage::Settling`]).
//!
//! While the volume is not ready, no data are requested from the host, so none are kept. Only data
//! that arrived in the capsule are kept, charged to the memory budget, and written when the volume
//! is ready.

use std::time::Instant;

use block::Settled;
use session::Resumed;

use super::slot::{Slot, Stage};
use super::{Begun, Queue};
use crate::controller::io::Action;
use crate::controller::{Backend, DataPointer, SlotId};
use crate::wire::{Status, StatusCode};

impl Queue {
    /// Handles a volume's completion of a command that waits. The transport treats the result like
    /// that of [`Queue::begin`].
    pub fn handle_completion<B: Backend>(
        &mut self,
        now: Instant,
        completion: block::Completion,
        backend: &mut B,
    ) -> Begun {
        // Completions that arrive together are one turn.
        if now != self.now {
            self.start_turn(now);
        }
        match self.leases.complete(completion) {
            Some((index, Resumed::Filled(result))) => {
                self.filled(SlotId(index as u16), result, backend)
            }
            Some((index, Resumed::Settled(result))) => {
                if let Err(status) = result {
                    self.slots[index].fail(status);
                }
                self.finish(SlotId(index as u16));
                Begun::Done
            }
            None => Begun::Done,
        }
    }

    /// The command begins to wait until its blocks are in memory.
    #[cold]
    pub(super) fn start_filling<B: Backend>(
        &mut self,
        id: SlotId,
        from_host: Option<DataPointer>,
        backend: &mut B,
    ) -> Begun {
        self.slots[id.index()].flags.may_place = false;
        let Some(pointer @ DataPointer::InCapsule { len_bytes }) = from_host else {
            self.slots[id.index()].enter(Stage::Filling);
            return Begun::Done;
        };
        let input_bytes = self.input_bytes + u64::from(len_bytes);
        if !backend.charge_input(input_bytes) {
            return self.reject(id, block::Status::Busy);
        }
        self.input_bytes = input_bytes;
        let slot = &mut self.slots[id.index()];
        slot.flags.keeps_input = true;
        slot.enter(Stage::Keeping);
        slot.buffer = Vec::with_capacity(len_bytes as usize);
        Begun::Receive { slot: id, pointer }
    }

    /// The command's blocks are in memory, or could not be brought there.
    fn filled<B: Backend>(
        &mut self,
        id: SlotId,
        result: Result<(), block::Status>,
        backend: &mut B,
    ) -> Begun {
        let slot = &mut self.slots[id.index()];
        let has_all_data = match slot.stage() {
            Stage::Filling => true,
            Stage::Keeping => {
                slot.enter(Stage::Receiving);
                false
            }
            // It has failed: its data were damaged.
            _ => return Begun::Done,
        };
        if let Err(status) = result {
            slot.fail(status);
        }
        let is_failed = slot.is_failed();
        let action = slot.action;
        let len_bytes = slot.len_bytes;
        let kept_input = slot.flags.keeps_input;
        self.stop_keeping_input(id, backend);
        if kept_input && matches!(action, Action::Write | Action::Compare) {
            let slot = &mut self.slots[id.index()];
            slot.done_bytes = 0;
            let input = std::mem::take(&mut slot.buffer);
            if !is_failed {
                self.stream(id, &input, backend);
            }
        }
        match action {
            _ if !has_all_data => {}
            _ if is_failed || kept_input => self.data_gathered(id, backend),
            Action::Write | Action::Compare | Action::FusedCompare | Action::FusedWrite => {
                self.slots[id.index()].enter(Stage::Receiving);
                return Begun::Receive {
                    slot: id,
                    pointer: DataPointer::Remote { len_bytes },
                };
            }
            Action::Read => self.finish(id),
            _ => self.start_work(id, backend),
        }
        Begun::Done
    }

    /// The command was executed: it is finished as soon as its effects are safe.
    #[inline]
    pub(super) fn settle(&mut self, id: SlotId) {
        if self.leases.is_empty() {
            return self.finish(id);
        }
        self.settle_leased(id);
    }

    #[cold]
    fn settle_leased(&mut self, id: SlotId) {
        let slot = &mut self.slots[id.index()];
        if !slot.is_failed() {
            match self.leases.settle(id.index()) {
                Ok(Settled::Done) => {}
                Ok(Settled::Later) => return slot.enter(Stage::Settling),
                Err(status) => slot.fail(status),
            }
        }
        self.finish(id);
    }

    /// Completes a command that is not yet done with this status, whatever it waits for. A late
    /// answer of its volume is ignored.
    pub(super) fn give_up<B: Backend>(
        &mut self,
        id: SlotId,
        status: impl Into<Status>,
        backend: &mut B,
    ) {
        self.end_lease(id, backend);
        let slot = &mut self.slots[id.index()];
        slot.status = status.into();
        slot.not_before = None;
        if slot.stage() == Stage::Filling {
            // A pair ends as a whole.
            self.data_gathered(id, backend);
        } else {
            self.finish(id);
        }
    }

    /// Fails the commands that wait for volumes which are no longer their namespace's.
    pub(super) fn fail_without_namespace<B: Backend>(&mut self, backend: &mut B) {
        if self.leases.is_empty() {
            return;
        }
        for index in 0..self.slots.len() {
            let slot = &self.slots[index];
            if !slot.waits_for_volume() {
                continue;
            }
            let namespace = backend.namespace(slot.nsid);
            if namespace.is_none_or(|namespace| namespace.source != slot.source) {
                let status = StatusCode::InvalidNamespaceOrFormat;
                self.give_up(SlotId(index as u16), status, backend);
            }
        }
    }

    /// The command needs its volume no longer.
    pub(super) fn end_lease<B: Backend>(&mut self, id: SlotId, backend: &mut B) {
        self.stop_keeping_input(id, backend);
        self.leases.release(id.index());
    }

    /// Data of the capsule are no longer kept apart: what they took is not charged any more.
    fn stop_keeping_input<B: Backend>(&mut self, id: SlotId, backend: &mut B) {
        let slot = &mut self.slots[id.index()];
        if std::mem::take(&mut slot.flags.keeps_input) {
            self.input_bytes -= u64::from(slot.len_bytes);
            backend.charge_input(self.input_bytes);
        }
    }
}

impl Slot {
    pub(super) fn waits_for_volume(&self) -> bool {
        matches!(self.stage(), Stage::Filling | Stage::Settling)
    }
}
