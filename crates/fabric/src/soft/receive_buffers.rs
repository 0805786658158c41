//! Memory that datagrams come into.

use session::RegionId;

use super::memory::Memory;

/// Regions of the provider's memory, one datagram or run in each. What is in one may stay there until the program above has taken in
/// what has completed; the next datagram then comes into the next one.
#[derive(Debug)]
pub(super) struct ReceiveBuffers {
    regions: [RegionId; Self::COUNT],
    /// So many of them hold what is to stay.
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

    /// The program above has taken everything in.
    pub(super) fn clear(&mut self) {
        self.used = 0;
    }

    /// Where the next datagram is to come to; `None` where everything is to stay.
    pub(super) fn room(&self) -> Option<RegionId> {
        self.regions.get(self.used).copied()
    }

    /// What has come to the last [`room`](Self::room) is to stay there.
    pub(super) fn keep(&mut self) {
        self.used += 1;
    }
}
