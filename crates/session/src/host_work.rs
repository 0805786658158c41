//! What a host's session asks of its queue pair (RDMA) and of the memory behind it.

use crate::{BufferRange, RemoteBuffer, RemoteKey};

/// Which way a target may move data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// It reads the buffer (RDMA READ).
    Read,
    /// It writes the buffer (RDMA WRITE).
    Write,
}

/// A queue pair of a host and the [`Buffers`](crate::Buffers) of its commands.
pub trait HostWork {
    /// Opens the data of command `key`, a range of the buffers, to the target; `None` if that is
    /// not possible now.
    fn open(&mut self, key: u16, range: BufferRange, reach: Reach) -> Option<RemoteBuffer>;

    /// Invalidates a key. When this returns, the range cannot be accessed any more.
    fn close(&mut self, key: RemoteKey);

    /// Posts a message: a copy of `head` and of the bytes of `data`. Returns whether there was
    /// room. A message may have to be retransmitted after its command was answered, so it does not
    /// refer to the buffers.
    fn send(&mut self, head: &[u8], data: Option<BufferRange>) -> bool;
}
