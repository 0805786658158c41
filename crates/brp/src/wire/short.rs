//! Messages of 16 bytes: all but LOGIN, LOGIN_REPLY and COMMAND.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Kind, Status, Violation};

/// A message of 16 bytes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Short {
    /// Its kind.
    pub kind: u8,
    /// REPLY: flags; EVENT: the event; FAULT: the violation; else 0.
    pub code: u8,
    /// The command's tag; REPLIES: the number of replies; 0 for messages about no command.
    pub tag: U16,
    /// Length of the data that follow (REPLY, REPLIES, DATA), in bytes; else 0.
    pub data_bytes: U32,
    /// By kind; see the accessors.
    pub rest: [u8; 8],
}

const _: () = assert!(size_of::<Short>() == 16);
const _: () = assert!(std::mem::offset_of!(Short, rest) == 8);

/// What has happened (EVENT).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum EventCode {
    /// The unit's size has changed.
    Resized = 1,
    /// The host may no longer write.
    ReadOnly = 2,
    /// The host may write again.
    Writable = 3,
    /// The unit has been removed.
    Removed = 4,
    /// The target ends its service soon.
    Shutdown = 5,
}

impl EventCode {
    /// The event of a byte. `None` if it is not known.
    pub const fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::Resized,
            2 => Self::ReadOnly,
            3 => Self::Writable,
            4 => Self::Removed,
            5 => Self::Shutdown,
            _ => return None,
        })
    }
}

impl Short {
    /// REPLY: more of the command's data follow (bit 0 of the code).
    pub const MORE: u8 = 1;

    /// A message about no command, without data.
    pub const fn new(kind: Kind) -> Self {
        Self {
            kind: kind as u8,
            code: 0,
            tag: U16::ZERO,
            data_bytes: U32::ZERO,
            rest: [0; 8],
        }
    }

    /// The last REPLY of a command. `detail` is the offset of the first difference if the status is
    /// [`Status::Miscompare`], else 0.
    pub fn reply(tag: u16, data_bytes: u32, status: Status, credits: u16, detail: u32) -> Self {
        let [s0, s1] = (status as u16).to_le_bytes();
        let [c0, c1] = credits.to_le_bytes();
        let [d0, d1, d2, d3] = detail.to_le_bytes();
        Self {
            kind: Kind::Reply as u8,
            code: 0,
            tag: U16::new(tag),
            data_bytes: U32::new(data_bytes),
            rest: [s0, s1, c0, c1, d0, d1, d2, d3],
        }
    }

    /// A REPLY with data that are not the last (BRP-17).
    pub fn part(tag: u16, data_bytes: u32, credits: u16) -> Self {
        Self {
            code: Self::MORE,
            ..Self::reply(tag, data_bytes, Status::Success, credits, 0)
        }
    }

    /// A REPLIES of `count` replies, which take `data_bytes` bytes with their data (BRP-37).
    pub fn replies(count: u16, data_bytes: u32) -> Self {
        let mut replies = Self::new(Kind::Replies);
        replies.tag = U16::new(count);
        replies.data_bytes = U32::new(data_bytes);
        replies
    }

    /// A PULL of `len_bytes` bytes from `offset_bytes` on.
    pub fn pull(tag: u16, offset_bytes: u32, len_bytes: u32) -> Self {
        let mut pull = Self::new(Kind::Pull);
        pull.tag = U16::new(tag);
        pull.rest[..4].copy_from_slice(&offset_bytes.to_le_bytes());
        pull.rest[4..].copy_from_slice(&len_bytes.to_le_bytes());
        pull
    }

    /// A DATA message.
    pub fn data(tag: u16, data_bytes: u32) -> Self {
        let mut data = Self::new(Kind::Data);
        data.tag = U16::new(tag);
        data.data_bytes = U32::new(data_bytes);
        data
    }

    /// An ABORT of the command with this sequence number.
    pub fn abort(tag: u16, sequence: u32) -> Self {
        let mut abort = Self::new(Kind::Abort);
        abort.tag = U16::new(tag);
        abort.rest[..4].copy_from_slice(&sequence.to_le_bytes());
        abort
    }

    /// An EVENT.
    pub fn event(event: EventCode, value: u64) -> Self {
        Self {
            code: event as u8,
            rest: value.to_le_bytes(),
            ..Self::new(Kind::Event)
        }
    }

    /// The PONG to a PING (BRP-26).
    pub fn pong(ping: &Self) -> Self {
        Self {
            rest: ping.rest,
            ..Self::new(Kind::Pong)
        }
    }

    /// A FAULT.
    pub fn fault(violation: Violation) -> Self {
        Self {
            code: violation as u8,
            ..Self::new(Kind::Fault)
        }
    }

    /// REPLY: whether more data follow.
    pub const fn has_more(&self) -> bool {
        self.code & Self::MORE != 0
    }

    /// REPLY: the status as it came.
    pub const fn status(&self) -> u16 {
        u16::from_le_bytes([self.rest[0], self.rest[1]])
    }

    /// REPLY: credits.
    pub const fn credits(&self) -> u16 {
        u16::from_le_bytes([self.rest[2], self.rest[3]])
    }

    /// REPLY: detail. PULL: length in bytes.
    pub const fn second(&self) -> u32 {
        u32::from_le_bytes([self.rest[4], self.rest[5], self.rest[6], self.rest[7]])
    }

    /// PULL: offset in bytes. ABORT: sequence number.
    pub const fn first(&self) -> u32 {
        u32::from_le_bytes([self.rest[0], self.rest[1], self.rest[2], self.rest[3]])
    }

    /// EVENT: its value.
    pub fn value(&self) -> u64 {
        U64::from_bytes(self.rest).get()
    }
}
