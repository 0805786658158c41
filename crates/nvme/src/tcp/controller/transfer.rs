//! Transfers from the host that R2Ts ask for.
//!
//! A command's data are requested in pieces of equal length (the last may be shorter), in order, at
//! most as many at once as the host allows and there are tags for. The host answers the R2Ts of a
//! command in order.

use std::collections::VecDeque;

use crate::controller::SlotId;
use crate::tcp::wire::{DataPdu, Fes, PduFlags, Violation};
use crate::wire::Cid;

/// The most R2Ts of one command that are outstanding, whatever the host allows.
const R2TS_PER_COMMAND_MAX: u32 = 4;

/// Longer than any command's data, so that they are one piece.
const UNCUT_BYTES: u32 = 1 << 31;

/// The book of all transfers.
#[derive(Debug)]
pub(super) struct Transfers {
    by_slot: Vec<Transfer>,
    /// Commands for which R2Ts are to be sent, each once.
    to_ask: VecDeque<SlotId>,
    piece_bytes: u32,
    /// The most R2Ts of one command that the host takes at once.
    r2ts_max: u32,
    /// Tags of one command.
    tags: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Transfer {
    /// Bytes of the command's data.
    len: u32,
    /// Bytes that R2Ts have requested.
    asked: u32,
    /// Bytes that have come.
    received: u32,
}

/// The fields of an R2T.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ask {
    pub(super) slot: SlotId,
    pub(super) ttag: u16,
    pub(super) offset_bytes: u32,
    pub(super) len_bytes: u32,
}

impl Transfers {
    pub(super) fn new(piece_bytes: u32) -> Self {
        Self {
            by_slot: Vec::new(),
            to_ask: VecDeque::new(),
            piece_bytes,
            r2ts_max: 1,
            tags: 1,
        }
    }

    /// The host takes this many R2Ts of one command at once.
    pub(super) fn set_r2ts_max(&mut self, r2ts_max: u64) {
        self.r2ts_max = r2ts_max.min(u64::from(R2TS_PER_COMMAND_MAX)) as u32;
        if self.r2ts_max <= 1 {
            self.piece_bytes = UNCUT_BYTES;
        }
    }

    /// Begins to ask for the data of the command in `slot`, of `slots_len` in all.
    pub(super) fn begin(&mut self, slot: SlotId, len_bytes: u32, slots_len: usize) {
        if self.by_slot.len() < slots_len {
            self.by_slot.resize(slots_len, Transfer::default());
            self.to_ask.reserve(slots_len);
            let tags = (usize::from(u16::MAX) + 1) / slots_len;
            self.tags = self.r2ts_max.min(tags as u32).max(1);
        }
        self.by_slot[usize::from(slot.0)] = Transfer {
            len: len_bytes,
            asked: 0,
            received: 0,
        };
        self.to_ask.push_back(slot);
    }

    pub(super) fn has_asks(&self) -> bool {
        !self.to_ask.is_empty()
    }

    /// The next R2T to be sent.
    pub(super) fn ask(&self) -> Option<Ask> {
        let slot = *self.to_ask.front()?;
        let transfer = &self.by_slot[usize::from(slot.0)];
        Some(Ask {
            slot,
            ttag: self.ttag(slot, transfer.asked),
            offset_bytes: transfer.asked,
            len_bytes: self.piece_len(transfer, transfer.asked),
        })
    }

    /// That R2T was sent.
    pub(super) fn asked(&mut self) {
        let Some(&slot) = self.to_ask.front() else {
            return;
        };
        let transfer = self.by_slot[usize::from(slot.0)];
        let asked_bytes = transfer.asked + self.piece_len(&transfer, transfer.asked);
        self.by_slot[usize::from(slot.0)].asked = asked_bytes;
        if !self.may_ask(slot) {
            self.to_ask.pop_front();
        }
    }

    /// Checks the header of an H2CData that carries `data_len` bytes, and finds its command.
    /// `cid_of` gives the identifier of the command in a slot that awaits data.
    pub(super) fn check(
        &self,
        pdu: &DataPdu,
        data_len: usize,
        cid_of: impl Fn(SlotId) -> Option<Cid>,
    ) -> Result<SlotId, Violation> {
        let invalid = |fei| Violation {
            fes: Fes::InvalidPduHeaderField,
            fei,
        };
        let slots = self.by_slot.len() as u32;
        let ttag = u32::from(pdu.ttag.get());
        let index = ttag
            .checked_rem(slots)
            .ok_or(invalid(DataPdu::OFFSET_TTAG))?;
        let slot = SlotId(index as u16);
        let transfer = &self.by_slot[index as usize];
        let cid = cid_of(slot).ok_or(invalid(DataPdu::OFFSET_TTAG))?;
        if transfer.asked <= transfer.received
            || self.ttag(slot, transfer.received) != pdu.ttag.get()
        {
            return Err(invalid(DataPdu::OFFSET_TTAG));
        }
        if cid.0 != pdu.cccid.get() {
            return Err(invalid(DataPdu::OFFSET_CCCID));
        }
        if pdu.datao.get() != transfer.received {
            return Err(invalid(DataPdu::OFFSET_DATAO));
        }
        let datal = pdu.datal.get();
        if datal as usize != data_len || datal == 0 {
            return Err(invalid(DataPdu::OFFSET_DATAL));
        }
        let left = self.left_of_piece(transfer);
        if datal > left {
            return Err(Violation {
                fes: Fes::DataTransferOutOfRange,
                fei: 0,
            });
        }
        if pdu.ch.flags.contains(PduFlags::LAST) != (datal == left) {
            return Err(invalid(1));
        }
        Ok(slot)
    }

    /// `len_bytes` bytes of the command's data have come, as checked; whether they are the last.
    pub(super) fn received(&mut self, slot: SlotId, len_bytes: u32) -> bool {
        let transfer = &mut self.by_slot[usize::from(slot.0)];
        let was_waiting = transfer.asked < transfer.len;
        transfer.received += len_bytes;
        let is_over = transfer.received == transfer.len;
        if was_waiting
            && transfer.received.is_multiple_of(self.piece_bytes)
            && !self.to_ask.contains(&slot)
        {
            self.to_ask.push_back(slot);
        }
        is_over
    }

    fn may_ask(&self, slot: SlotId) -> bool {
        let transfer = &self.by_slot[usize::from(slot.0)];
        let outstanding =
            transfer.asked.div_ceil(self.piece_bytes) - transfer.received / self.piece_bytes;
        transfer.asked < transfer.len && outstanding < self.tags
    }

    fn piece_len(&self, transfer: &Transfer, offset_bytes: u32) -> u32 {
        self.piece_bytes.min(transfer.len - offset_bytes)
    }

    /// What is left of the piece that is being received.
    fn left_of_piece(&self, transfer: &Transfer) -> u32 {
        let start = transfer.received / self.piece_bytes * self.piece_bytes;
        start + self.piece_len(transfer, start) - transfer.received
    }

    /// The tag of the R2T for the piece at this offset: different for all that are outstanding at
    /// once.
    fn ttag(&self, slot: SlotId, offset_bytes: u32) -> u16 {
        let piece = offset_bytes / self.piece_bytes % self.tags;
        (piece * self.by_slot.len() as u32) as u16 + slot.0
    }
}
