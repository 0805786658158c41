//! Work requests and their completions.
//!
//! Read first: InfiniBand Architecture volume 1, chapter 10, "work requests".

use crate::memory::MemoryRange;
use block::ByteRange;

use crate::wire::{Qpn, Rkey};

/// The caller's name of a request, returned with its completion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct WorkId(pub u64);

/// Up to [`Gather::PARTS_MAX`] placements that together are one message, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gather {
    parts: [MemoryRange; Self::PARTS_MAX],
    count: u8,
    len_bytes: u32,
}

/// More parts, or bytes, than a message may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageTooLong {
    /// Too many parts.
    #[error("a message gathers from at most {0} places")]
    Parts(usize),
    /// Too many bytes.
    #[error("a message has at most {0} bytes")]
    Bytes(u32),
}

/// The longest message that is sent, in bytes. The architecture allows 2^31; at the smallest path
/// MTU this much is a quarter of all packet sequence numbers, so that old and new stay apart.
pub const MESSAGE_LEN_MAX_BYTES: u32 = 1 << 30;

impl Gather {
    /// The most parts.
    pub const PARTS_MAX: usize = 2;

    /// No bytes at all.
    pub const EMPTY: Self = Self {
        parts: [MemoryRange::EMPTY; Self::PARTS_MAX],
        count: 0,
        len_bytes: 0,
    };

    /// The bytes of `parts`, one after the other.
    #[inline]
    pub fn new(parts: &[MemoryRange]) -> Result<Self, MessageTooLong> {
        let mut gather = Self::EMPTY;
        for part in parts {
            gather.push(*part)?;
        }
        Ok(gather)
    }

    /// Appends the bytes of `part`.
    #[inline]
    pub fn push(&mut self, part: MemoryRange) -> Result<(), MessageTooLong> {
        let too_long = MessageTooLong::Bytes(MESSAGE_LEN_MAX_BYTES);
        let len = u32::try_from(part.range.len).map_err(|_| too_long)?;
        let sum = self.len_bytes.checked_add(len).ok_or(too_long)?;
        if sum > MESSAGE_LEN_MAX_BYTES {
            return Err(too_long);
        }
        let slot = self
            .parts
            .get_mut(usize::from(self.count))
            .ok_or(MessageTooLong::Parts(Self::PARTS_MAX))?;
        *slot = part;
        self.count += 1;
        self.len_bytes = sum;
        Ok(())
    }

    /// Bytes in all.
    pub const fn len_bytes(&self) -> u32 {
        self.len_bytes
    }

    /// The parts, in order.
    #[inline]
    pub fn parts(&self) -> &[MemoryRange] {
        &self.parts[..usize::from(self.count)]
    }

    /// The placements of `len` bytes from `offset` on, which must lie inside.
    pub(crate) fn slice(&self, offset: u32, len: u32) -> impl Iterator<Item = MemoryRange> {
        let (mut skip, mut left) = (u64::from(offset), u64::from(len));
        self.parts().iter().filter_map(move |part| {
            let from = skip.min(part.range.len);
            skip -= from;
            let take = left.min(part.range.len - from);
            left -= take;
            (take > 0).then_some(MemoryRange {
                memory: part.memory,
                range: ByteRange {
                    offset: part.range.offset + from,
                    len: take,
                },
            })
        })
    }
}

/// A few bytes that travel inside the request, so that their owner need not keep them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inline {
    bytes: [u8; Self::LEN_MAX_BYTES],
    len: u8,
}

impl Inline {
    /// The most bytes: those of iSER's header and of a basic header segment behind it.
    pub const LEN_MAX_BYTES: usize = 76;

    /// A copy of `bytes`; `None` if there are too many.
    #[inline]
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let mut inline = Self::zeroed(bytes.len())?;
        inline.bytes_mut().copy_from_slice(bytes);
        Some(inline)
    }

    /// `len_bytes` bytes that are 0, to be filled in; `None` if they are too many.
    #[inline]
    pub fn zeroed(len_bytes: usize) -> Option<Self> {
        (len_bytes <= Self::LEN_MAX_BYTES).then_some(Self {
            bytes: [0; Self::LEN_MAX_BYTES],
            len: len_bytes as u8,
        })
    }

    /// The bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// The same, for writing.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..usize::from(self.len)]
    }
}

/// The bytes of a message that is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data {
    /// Here.
    Inline(Inline),
    /// There; they stay as they are until the request's completion.
    Gather(Gather),
}

impl Data {
    /// Bytes in all.
    pub const fn len_bytes(&self) -> u32 {
        match self {
            Self::Inline(inline) => inline.len as u32,
            Self::Gather(gather) => gather.len_bytes,
        }
    }
}

/// Remote memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// The address of its first byte.
    pub va: u64,
    /// The key.
    pub rkey: Rkey,
}

/// What a send request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendOp {
    /// Sends a message to a posted receive.
    Send(Data),
    /// The same, with immediate data.
    SendImmediate(Data, u32),
    /// The same, and invalidates a key of the peer's.
    SendInvalidate(Data, Rkey),
    /// Writes to remote memory.
    Write(Data, Remote),
    /// The same, and completes a posted receive with immediate data.
    WriteImmediate(Data, Remote, u32),
    /// Reads remote memory.
    Read(Gather, Remote),
}

impl SendOp {
    /// The message's length in bytes.
    pub const fn len_bytes(&self) -> u32 {
        match self {
            Self::Send(data)
            | Self::SendImmediate(data, _)
            | Self::SendInvalidate(data, _)
            | Self::Write(data, _)
            | Self::WriteImmediate(data, _, _) => data.len_bytes(),
            Self::Read(into, _) => into.len_bytes,
        }
    }

    pub(crate) const fn is_read(&self) -> bool {
        matches!(self, Self::Read(..))
    }

    /// What its completion calls it.
    pub const fn kind(&self) -> WorkKind {
        match self {
            Self::Send(_) | Self::SendImmediate(..) | Self::SendInvalidate(..) => WorkKind::Send,
            Self::Write(..) | Self::WriteImmediate(..) => WorkKind::Write,
            Self::Read(..) => WorkKind::Read,
        }
    }
}

/// Whether a request that succeeds says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Always, at once.
    Always,
    /// Always, but possibly late: the acknowledgement may be requested with a later request or,
    /// without one, some milliseconds later. Adapters report the completion at once.
    Eventually,
    /// Only when it fails.
    OnError,
}

/// A request to the send queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendRequest {
    /// Its name.
    pub id: WorkId,
    /// What it does.
    pub op: SendOp,
    /// Whether it says that it succeeded.
    pub signal: Signal,
}

impl SendRequest {
    pub(crate) const fn completion(&self, qpn: Qpn, status: WorkStatus) -> Completion {
        Completion {
            qpn,
            id: self.id,
            kind: self.op.kind(),
            status,
            len_bytes: self.op.len_bytes(),
            at: None,
            immediate: None,
            invalidated: None,
        }
    }
}

/// A receive: the place for the next message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecvRequest {
    /// Its name.
    pub id: WorkId,
    /// The place for the message.
    pub into: MemoryRange,
}

/// What completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkKind {
    /// A posted SEND.
    Send,
    /// A posted RDMA WRITE.
    Write,
    /// A posted RDMA READ.
    Read,
    /// A posted receive: by a SEND of the peer's, or a WRITE with immediate data.
    Recv,
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WorkStatus {
    /// Done.
    Success,
    /// The queue pair failed or was closed before it was done.
    Flushed,
    /// The message was longer than the receive.
    LocalLength,
    /// The local memory failed.
    LocalMemory,
    /// The response does not fit the request.
    BadResponse,
    /// The peer calls the request invalid.
    RemoteInvalidRequest,
    /// The peer's memory does not allow it.
    RemoteAccess,
    /// The peer failed.
    RemoteOperation,
    /// No answer, however often it was sent.
    RetryExceeded,
    /// The peer never posted a receive.
    RnrRetryExceeded,
}

/// A request has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The queue pair that it was posted to.
    pub qpn: Qpn,
    /// Its name.
    pub id: WorkId,
    /// What it was.
    pub kind: WorkKind,
    /// How it ended; with anything but success the queue pair is in the error state.
    pub status: WorkStatus,
    /// The message's length in bytes.
    pub len_bytes: u32,
    /// The place of the message, or of the data that were read; `None` if it is the one that the
    /// request named. Valid only until the next round.
    pub at: Option<MemoryRange>,
    /// The peer's immediate data.
    pub immediate: Option<u32>,
    /// The local key that the peer invalidated.
    pub invalidated: Option<Rkey>,
}

#[cfg(test)]
mod tests {
    use crate::memory::MemoryId;

    use super::*;

    fn place(offset: u64, len: u64) -> MemoryRange {
        MemoryRange {
            memory: MemoryId(0),
            range: ByteRange { offset, len },
        }
    }

    fn slice(gather: &Gather, offset: u32, len: u32) -> Vec<(u64, u64)> {
        gather
            .slice(offset, len)
            .map(|p| (p.range.offset, p.range.len))
            .collect()
    }

    #[test]
    fn slices_cross_parts_in_order() {
        let gather = Gather::new(&[place(10, 5), place(200, 7)]).unwrap();
        assert_eq!(gather.len_bytes(), 12);
        assert_eq!(slice(&gather, 0, 12), [(10, 5), (200, 7)]);
        assert_eq!(slice(&gather, 3, 4), [(13, 2), (200, 2)]);
        assert_eq!(slice(&gather, 5, 2), [(200, 2)]);
        assert_eq!(slice(&gather, 12, 0), []);
    }

    #[test]
    fn messages_are_bounded() {
        let parts = [place(0, 1); 3];
        assert_eq!(Gather::new(&parts), Err(MessageTooLong::Parts(2)));
        let one = [place(0, (1 << 30) + 1)];
        assert!(matches!(Gather::new(&one), Err(MessageTooLong::Bytes(_))));
        let long = [place(0, 1 << 30), place(0, 1)];
        assert!(matches!(Gather::new(&long), Err(MessageTooLong::Bytes(_))));
        assert!(Inline::new(&[0; 77]).is_none());
        assert_eq!(Inline::new(b"abc").unwrap().bytes(), b"abc");
    }
}
