//! Where a command's data are in the host's memory.

use session::{RemoteBuffer, RemoteKey};

use crate::wire::{DESCRIPTORS_MAX, Descriptor, Flags};

/// The descriptors of one command. Whether they fit its data is for [`Commands`](crate::target) to
/// judge; nothing is read from or written to other memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Places {
    buffers: [RemoteBuffer; DESCRIPTORS_MAX as usize],
    count: usize,
    /// The key that the reply may invalidate (BRP-19).
    pub(super) invalidate: Option<RemoteKey>,
}

impl Default for Places {
    fn default() -> Self {
        let nowhere = RemoteBuffer {
            address: 0,
            key: RemoteKey(0),
            len_bytes: 0,
        };
        Self {
            buffers: [nowhere; DESCRIPTORS_MAX as usize],
            count: 0,
            invalidate: None,
        }
    }
}

impl Places {
    /// A new command: at most [`DESCRIPTORS_MAX`] descriptors.
    pub(super) fn set(&mut self, flags: Flags, descriptors: &[Descriptor]) {
        self.count = descriptors.len();
        for (buffer, descriptor) in self.buffers.iter_mut().zip(descriptors) {
            *buffer = descriptor.buffer();
        }
        self.invalidate = match self.buffers() {
            [buffer] if flags.contains(Flags::INVALIDATE) => Some(buffer.key),
            _ => None,
        };
    }

    /// The memory, in the order of the data; empty if all data are inside messages.
    pub(super) fn buffers(&self) -> &[RemoteBuffer] {
        &self.buffers[..self.count]
    }

    /// Where the data from `offset_bytes` on are: up to `len_max_bytes` of them, in one stretch.
    /// `None` beyond the end.
    pub(super) fn piece(&self, mut offset_bytes: u32, len_max_bytes: u32) -> Option<RemoteBuffer> {
        for buffer in self.buffers() {
            if offset_bytes < buffer.len_bytes {
                let len_bytes = len_max_bytes.min(buffer.len_bytes - offset_bytes);
                return buffer.piece(offset_bytes, len_bytes);
            }
            offset_bytes -= buffer.len_bytes;
        }
        None
    }
}
