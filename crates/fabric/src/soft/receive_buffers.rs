//! Memory that datagrams are received into.

use super::memory::Memory;
use crate::verbs::MemoryId;

/// Regions of the provider's memory, each with one datagram or run. Data may stay in a region until
/// the program above has handled the completions. The next datagram is then received into the next
/// region.
#[derive(Debug)]
pub(super) struct ReceiveBuffers {
    regions: [MemoryId; Self::COUNT],
    /// How many of them hold data that must stay.
    used: usize,
}

impl ReceiveBuffers {
    const COUNT: usize = 8;

    /// Each with room for `len_bytes` bytes.
    pub(super) fn new(memory: &mut Memory, len_bytes: usize) -> Self {
        Self {
            regions: std::array::from_fn(|_| memory.insert(vec![0; len_bytes].into())),
            used: 0,
        }
    }

    /// The program above has handled all completions.
    pub(super) fn clear(&mut self) {
        self.used = 0;
    }

    /// The region that the next datagram is received into; `None` if all hold data that must stay.
    pub(super) fn room(&self) -> Option<MemoryId> {
        self.regions.get(self.used).copied()
    }

    /// The data in the last [`room`](Self::room) must stay there.
    pub(super) fn keep(&mut self) {
        self.used += 1;
    }
}
