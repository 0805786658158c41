//! Where the data of a command are in the initiator's memory.

use session::RemoteBuffer;

use crate::wire::Descriptor;

/// The memory of one command, and how much of it was used. Data move in its order.
#[derive(Debug, Default)]
pub(super) struct Places {
    buffers: Vec<RemoteBuffer>,
    /// The buffer that is used next.
    index: usize,
    /// How much of that was used, in bytes.
    used_bytes: u32,
}

/// How many descriptors a slot keeps room for after its command. A message holds at most 255.
const KEPT_MAX: usize = 255;

impl Places {
    /// Forgets the memory of the command, which has ended.
    pub(super) fn clear(&mut self) {
        self.buffers.clear();
        self.buffers.shrink_to(KEPT_MAX);
        (self.index, self.used_bytes) = (0, 0);
    }

    /// Allocates room for exactly `count` descriptors.
    pub(super) fn reserve(&mut self, count: usize) {
        self.buffers.reserve_exact(count);
    }

    /// Adds memory behind the rest.
    pub(super) fn extend(&mut self, descriptors: &[Descriptor]) {
        self.buffers
            .extend(descriptors.iter().map(Descriptor::buffer));
    }

    /// The length of all.
    pub(super) fn len_bytes(&self) -> u64 {
        let lens = self.buffers.iter();
        lens.map(|buffer| u64::from(buffer.len_bytes)).sum()
    }

    /// What is used next: at most `len_max_bytes`, in one buffer. `None` at the end, or if the
    /// initiator gave an address so high that these bytes have none.
    pub(super) fn next(&mut self, len_max_bytes: u32) -> Option<RemoteBuffer> {
        while self.buffers.get(self.index)?.len_bytes == self.used_bytes {
            self.index += 1;
            self.used_bytes = 0;
        }
        let buffer = self.buffers[self.index];
        let len_bytes = len_max_bytes.min(buffer.len_bytes - self.used_bytes);
        buffer.piece(self.used_bytes, len_bytes)
    }

    /// `len_bytes` bytes of what [`next`](Self::next) gave are used.
    pub(super) fn advance(&mut self, len_bytes: u32) {
        self.used_bytes += len_bytes;
    }
}

#[cfg(test)]
mod tests {
    use session::RemoteKey;

    use super::*;

    fn buffer(address: u64, len_bytes: u32) -> Descriptor {
        Descriptor::of(RemoteBuffer {
            address,
            key: RemoteKey(7),
            len_bytes,
        })
    }

    #[test]
    fn data_move_through_the_buffers_in_order() {
        let mut places = Places::default();
        places.extend(&[buffer(100, 10), buffer(0, 0), buffer(500, 5)]);
        assert_eq!(places.len_bytes(), 15);
        let mut seen = Vec::new();
        while let Some(next) = places.next(4) {
            seen.push((next.address, next.len_bytes));
            places.advance(next.len_bytes);
        }
        assert_eq!(seen, [(100, 4), (104, 4), (108, 2), (500, 4), (504, 1)]);
        places.clear();
        assert_eq!((places.len_bytes(), places.next(4)), (0, None));
    }

    #[test]
    fn an_address_beyond_all_is_none() {
        let mut places = Places::default();
        places.extend(&[buffer(u64::MAX - 1, 10)]);
        assert_eq!(places.next(10), None);
    }
}
