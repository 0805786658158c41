//! Data from the host's memory: RDMA READs, in pieces, in the order of the commands.

use std::collections::VecDeque;

use session::WorkList;

use super::sgl::Places;
use crate::controller::SlotId;

/// Commands whose data are being read.
#[derive(Debug, Default)]
pub(super) struct Inbound {
    /// Not yet wholly requested, in the order of the commands.
    asks: VecDeque<Ask>,
    /// Bytes that have not come, by slot; 0 if there are none to come.
    left_bytes: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Ask {
    slot: SlotId,
    /// How many bytes were requested, and how many there are.
    asked_bytes: u32,
    len_bytes: u32,
}

impl Inbound {
    /// The command in `slot` brings `len_bytes` bytes, at least one.
    pub(super) fn begin(&mut self, slot: SlotId, len_bytes: u32) {
        let index = usize::from(slot.0);
        if self.left_bytes.len() <= index {
            self.left_bytes.resize(index + 1, 0);
        }
        self.left_bytes[index] = len_bytes;
        self.asks.push_back(Ask {
            slot,
            asked_bytes: 0,
            len_bytes,
        });
    }

    /// Whether there is something to ask for.
    pub(super) fn wants(&self) -> bool {
        !self.asks.is_empty()
    }

    /// Asks for as much as fits.
    pub(super) fn poll(&mut self, places: &[Places], out: &mut dyn WorkList) {
        while let Some(ask) = self.asks.front_mut() {
            let index = usize::from(ask.slot.0);
            let len_max_bytes = out.piece_bytes(ask.len_bytes - ask.asked_bytes);
            let from = places[index]
                .piece(ask.asked_bytes, len_max_bytes)
                .expect("lengths were checked when the command began");
            if !out.read(u64::from(ask.slot.0), from) {
                return;
            }
            ask.asked_bytes += from.len_bytes;
            if ask.asked_bytes == ask.len_bytes {
                self.asks.pop_front();
            }
        }
    }

    /// Data have come: whose, and whether they are all there. `None` if none were requested.
    pub(super) fn received(&mut self, tag: u64, len: usize) -> Option<(SlotId, bool)> {
        let slot = SlotId(u16::try_from(tag).ok()?);
        let left_bytes = self.left_bytes.get_mut(usize::from(slot.0))?;
        let len_bytes = u32::try_from(len).ok()?;
        *left_bytes = left_bytes.checked_sub(len_bytes)?;
        Some((slot, *left_bytes == 0))
    }
}
