//! A host's queue pair, and its memory with the keys to it.

use std::collections::{BTreeMap, VecDeque};

use crate::{BufferRange, Buffers, HostWork, Reach, RemoteBuffer, RemoteKey};

/// A host's queue pair that keeps what is posted to it, and memory that is reached by keys only.
pub struct HostMemory {
    /// The buffers of the host's commands.
    pub buffers: Buffers,
    /// Messages that were posted, oldest first.
    pub sent: VecDeque<Vec<u8>>,
    keys: BTreeMap<u32, (BufferRange, Reach)>,
    next_key: u32,
    sent_max: usize,
    message_max_bytes: usize,
}

impl HostMemory {
    /// Addresses of a slot begin here, times one more than its number.
    const SLOT_ADDRESS: u64 = 1 << 32;

    /// A send queue of `sent_max` messages of at most `message_max_bytes` bytes.
    pub fn new(buffers: Buffers, sent_max: usize, message_max_bytes: usize) -> Self {
        Self {
            buffers,
            sent: VecDeque::new(),
            keys: BTreeMap::new(),
            next_key: 0,
            sent_max,
            message_max_bytes,
        }
    }

    /// How many keys are valid.
    pub fn keys(&self) -> usize {
        self.keys.len()
    }

    /// The target invalidates a key by a message. Returns whether the key was valid.
    pub fn invalidate(&mut self, key: RemoteKey) -> bool {
        self.keys.remove(&key.0).is_some()
    }

    /// A key that the target has invalidated is valid again, for no byte: its host has not got the
    /// message that says so.
    pub fn forget_invalidation(&mut self, key: RemoteKey) {
        let nothing = (BufferRange::first(0, 0), Reach::Read);
        self.keys.insert(key.0, nothing);
    }

    /// The bytes that an RDMA request may reach.
    ///
    /// # Panics
    /// If the key is not valid, or for other bytes or the other direction.
    pub fn reach(&self, remote: RemoteBuffer, reach: Reach) -> BufferRange {
        let &(range, allowed) = self.keys.get(&remote.key.0).expect("a valid key");
        assert_eq!(allowed, reach, "the direction that was opened");
        let offset = remote.address.checked_sub(Self::address(range));
        let offset = u32::try_from(offset.expect("inside")).expect("inside");
        assert!(offset + remote.len_bytes <= range.len_bytes, "inside");
        BufferRange {
            slot: range.slot,
            offset: range.offset + offset,
            len_bytes: remote.len_bytes,
        }
    }

    fn address(range: BufferRange) -> u64 {
        Self::SLOT_ADDRESS * (1 + u64::from(range.slot)) + u64::from(range.offset)
    }
}

impl HostWork for HostMemory {
    fn open(&mut self, _: u16, range: BufferRange, reach: Reach) -> Option<RemoteBuffer> {
        self.next_key += 1;
        self.keys.insert(self.next_key, (range, reach));
        Some(RemoteBuffer {
            address: Self::address(range),
            key: RemoteKey(self.next_key),
            len_bytes: range.len_bytes,
        })
    }

    fn close(&mut self, key: RemoteKey) {
        let closed = self.keys.remove(&key.0);
        assert!(closed.is_some(), "a key is invalidated once");
    }

    fn send(&mut self, head: &[u8], data: Option<BufferRange>) -> bool {
        if self.sent.len() >= self.sent_max {
            return false;
        }
        let data = data.map_or(&[][..], |range| self.buffers.range(range));
        let message = [head, data].concat();
        assert!(message.len() <= self.message_max_bytes, "it fits a receive");
        self.sent.push_back(message);
        true
    }
}
