//! RDMA READs of calls and arguments that are in the client's memory.
//!
//! Reads are posted in the order of the calls, and their data arrive in the order of posting, so
//! the data of one call follow those of the calls before it.

use std::collections::VecDeque;

use session::WorkList;

use super::slot::Slot;
use super::waiting::Waiting;

/// The calls whose data are read.
#[derive(Debug, Default)]
pub(super) struct Inbound {
    /// The slots of the calls, the oldest first.
    calls: VecDeque<u16>,
    /// How many of them have all their reads posted.
    posted: usize,
}

impl Inbound {
    /// A call has data to be read.
    pub(super) fn begin(&mut self, slot: u16) {
        self.calls.push_back(slot);
    }

    /// Whether there are reads to be posted.
    pub(super) fn wants(&self, slots: &[Slot], waiting: &Waiting) -> bool {
        let next = self.calls.get(self.posted);
        next.is_some_and(|index| waiting.has_room_for(&slots[usize::from(*index)]))
    }

    /// The call to which the next data belong.
    pub(super) fn first(&self) -> Option<u16> {
        self.calls.front().copied()
    }

    /// The first call has all its data.
    pub(super) fn end_first(&mut self) {
        self.calls.pop_front();
        self.posted = self.posted.saturating_sub(1);
    }

    /// Posts as many reads as fit. Their tags are the slots.
    pub(super) fn poll(
        &mut self,
        slots: &mut [Slot],
        waiting: &mut Waiting,
        out: &mut dyn WorkList,
    ) {
        while let Some(&index) = self.calls.get(self.posted) {
            let slot = &mut slots[usize::from(index)];
            if !waiting.take_room(slot) {
                return;
            }
            while let Some((piece, behind)) = slot.next_read(out) {
                if !out.read(u64::from(index), piece) {
                    return;
                }
                slot.note_read(behind);
            }
            self.posted += 1;
        }
    }
}
