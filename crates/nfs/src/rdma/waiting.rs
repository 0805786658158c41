//! Calls of a queue pair that are gathered or wait for storage, and the room that they take.

use std::collections::VecDeque;

use super::slot::{Body, COMPOUND_BYTES_MAX, Slot};
use crate::Backend;
use crate::calls::{BYTES_MAX, CALL_BYTES};
use crate::clients::MESSAGE_BYTES_MAX;
use crate::xdr::UNIT_BYTES;

/// The calls of a connection that take room.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// What calls take that are gathered, were passed on or whose data are being read, with their
    /// replies.
    bytes: usize,
    /// Whether memory was charged for calls that wait.
    is_charged: bool,
    /// Slots whose calls have arrived as a whole, and wait for room.
    pending: VecDeque<u16>,
}

/// The most memory of gathered calls in bytes, as long as none waits: two of the longest compounds.
pub(super) const GATHERED_BYTES_MAX: usize = 2 * (COMPOUND_BYTES_MAX + UNIT_BYTES);

impl Waiting {
    /// Whether there is room for another call that waits.
    fn has_room(&self) -> bool {
        self.bytes < BYTES_MAX
    }

    /// Whether data of a slot's call may be read. Those that are not written as they arrive take
    /// room.
    pub(super) fn has_room_for(&self, slot: &Slot) -> bool {
        let needed = slot.needed_bytes();
        if slot.room_bytes > 0 || needed == 0 {
            return true;
        }
        if matches!(slot.body, Body::Whole(_)) {
            return self.has_room();
        }
        let is_small = self.bytes + needed <= GATHERED_BYTES_MAX;
        is_small || self.is_charged && self.has_room()
    }

    /// Takes room for the data of a slot's call, if it has none. Returns whether it has.
    pub(super) fn take_room(&mut self, slot: &mut Slot) -> bool {
        let has_room = self.has_room_for(slot);
        if has_room && slot.room_bytes == 0 {
            let mut bytes = slot.needed_bytes();
            if self.bytes + bytes > GATHERED_BYTES_MAX && matches!(slot.body, Body::Gather) {
                // Until it is known whether it waits, and for what, its reply may be of any length.
                bytes += MESSAGE_BYTES_MAX as usize + CALL_BYTES;
            }
            self.set_room(slot, bytes);
        }
        has_room
    }

    /// Changes the room that a call takes.
    fn set_room(&mut self, slot: &mut Slot, bytes: usize) {
        self.bytes = self.bytes - slot.room_bytes + bytes;
        slot.room_bytes = bytes;
    }

    /// The call of a slot has ended.
    pub(super) fn end(&mut self, slot: &mut Slot) {
        self.bytes -= std::mem::take(&mut slot.room_bytes);
    }

    /// The call of a slot has arrived as a whole.
    pub(super) fn begin(&mut self, slot: u16) {
        self.pending.push_back(slot);
    }

    /// Passes calls on while there is room. Returns a slot whose call the program cannot take now:
    /// it has been answered.
    pub(super) fn submit<B: Backend>(
        &mut self,
        slots: &mut [Slot],
        backend: &mut B,
    ) -> Option<u16> {
        while let Some(&index) = self.pending.front() {
            let slot = &mut slots[usize::from(index)];
            if slot.room_bytes == 0 && !self.has_room() {
                return None;
            }
            self.pending.pop_front();
            let Some(call) = slot.take_waiting(index) else {
                continue;
            };
            self.set_room(slot, call.cost.bytes);
            match call.submit(backend) {
                Ok(()) => self.is_charged = true,
                Err(answer) => {
                    slot.answer(*answer);
                    return Some(index);
                }
            }
        }
        None
    }
}
