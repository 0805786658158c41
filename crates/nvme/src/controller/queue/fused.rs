//! Compare-and-write: a Compare and a Write, one directly after the other in the submission queue,
//! executed as one.
//!
//! Read first: NVM Express Base 2.0, "Fused Operations".

use block::Op;

use super::slot::Stage;
use super::{Begun, Queue};
use crate::controller::io::{self, Action, Command, Context};
use crate::controller::{Backend, COMPARE_AND_WRITE_BLOCKS_MAX, DataPointer, SlotId};
use crate::wire::{Sqe, Status, StatusCode, opcode};

/// Whether the last command was the first of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FusedFirst {
    /// It was not.
    None,
    /// It was, and is in this slot.
    Waiting(SlotId),
    /// It was, and has failed already.
    Failed,
}

impl Queue {
    /// The command after the first of a pair is not the second.
    pub(super) fn break_pair<B: Backend>(&mut self, backend: &mut B) {
        if let FusedFirst::Waiting(first) = std::mem::replace(&mut self.fused, FusedFirst::None) {
            self.abort_first(first, StatusCode::AbortedMissingFused, backend);
        }
    }

    pub(super) fn begin_first<B: Backend>(
        &mut self,
        id: SlotId,
        pointer: Result<DataPointer, StatusCode>,
        sqe: &Sqe,
        backend: &mut B,
    ) -> Begun {
        let begun = match Half::FIRST.parse(&mut self.context(id, pointer), sqe, backend) {
            Ok(command) => self.start(id, &command, backend),
            Err(code) => self.reject(id, code),
        };
        self.fused = if self.slots[id.index()].is_failed() {
            FusedFirst::Failed
        } else {
            FusedFirst::Waiting(id)
        };
        begun
    }

    pub(super) fn begin_second<B: Backend>(
        &mut self,
        id: SlotId,
        pointer: Result<DataPointer, StatusCode>,
        sqe: &Sqe,
        backend: &mut B,
    ) -> Begun {
        let first = match std::mem::replace(&mut self.fused, FusedFirst::None) {
            FusedFirst::None => return self.reject(id, StatusCode::AbortedMissingFused),
            FusedFirst::Failed => return self.reject(id, StatusCode::AbortedFailedFused),
            FusedFirst::Waiting(first) => first,
        };
        let compare = &self.slots[first.index()];
        if compare.nsid != sqe.nsid() || compare.extent != io::extent(sqe) {
            self.abort_first(first, StatusCode::InvalidField, backend);
            return self.reject(id, StatusCode::InvalidField);
        }
        let begun = match Half::SECOND.parse(&mut self.context(id, pointer), sqe, backend) {
            Ok(command) => self.start(id, &command, backend),
            Err(code) => self.reject(id, code),
        };
        if self.slots[id.index()].is_failed() {
            self.abort_first(first, StatusCode::AbortedFailedFused, backend);
            return begun;
        }
        self.slots[first.index()].partner = Some(id);
        self.slots[id.index()].partner = Some(first);
        begun
    }

    /// The first command of a pair fails. If its data have not arrived, they are still received.
    fn abort_first<B: Backend>(&mut self, id: SlotId, code: StatusCode, backend: &mut B) {
        let slot = &mut self.slots[id.index()];
        slot.fail(code);
        if slot.stage() == Stage::Gathered {
            self.fused_gathered(id, backend);
        }
    }

    /// All data of half a compare-and-write have arrived.
    pub(super) fn fused_gathered<B: Backend>(&mut self, id: SlotId, backend: &mut B) {
        let slot = &mut self.slots[id.index()];
        let Some(partner) = slot.partner else {
            if slot.is_failed() {
                if self.fused == FusedFirst::Waiting(id) {
                    self.fused = FusedFirst::Failed;
                }
                self.finish(id);
            }
            return;
        };
        if self.slots[partner.index()].stage() != Stage::Gathered {
            return;
        }
        let (first, second) = match self.slots[id.index()].action {
            Action::FusedCompare => (id, partner),
            _ => (partner, id),
        };
        self.execute_pair(first, second, backend);
        self.finish(first);
        self.settle(second);
    }

    fn execute_pair<B: Backend>(&mut self, first: SlotId, second: SlotId, backend: &mut B) {
        let compare = std::mem::take(&mut self.slots[first.index()].buffer);
        let write = std::mem::take(&mut self.slots[second.index()].buffer);
        if self.slots[first.index()].is_failed() {
            return self.slots[second.index()].fail(StatusCode::AbortedFailedFused);
        }
        let slot = &mut self.slots[second.index()];
        if !slot.is_failed() {
            let op = Op::CompareAndWrite {
                extent: slot.extent,
                compare: &compare,
                write: &write,
            };
            slot.execute_op(op, backend);
        }
        if slot.status.code() == Some(StatusCode::CompareFailure) {
            slot.status = StatusCode::AbortedFailedFused.into();
            self.slots[first.index()].fail(StatusCode::CompareFailure);
        } else if slot.is_failed() {
            self.slots[first.index()].fail(StatusCode::AbortedFailedFused);
        }
    }
}

/// Which command each half has to be, and what it becomes.
struct Half {
    opcode: u8,
    action: Action,
}

impl Half {
    const FIRST: Self = Self {
        opcode: opcode::COMPARE,
        action: Action::FusedCompare,
    };
    const SECOND: Self = Self {
        opcode: opcode::WRITE,
        action: Action::FusedWrite,
    };

    fn parse<B: Backend>(
        self,
        context: &mut Context<'_>,
        sqe: &Sqe,
        backend: &mut B,
    ) -> Result<Command, Status> {
        if sqe.opcode != self.opcode {
            return Err(StatusCode::InvalidField.into());
        }
        if io::extent(sqe).blocks.0 > COMPARE_AND_WRITE_BLOCKS_MAX {
            return Err(StatusCode::AtomicWriteUnitExceeded.into());
        }
        let mut command = io::parse(context, sqe, backend)?;
        command.action = self.action;
        Ok(command)
    }
}
