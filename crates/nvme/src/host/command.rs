//! What a host hands to its transport, and gets back.

use super::BufferRange;
use crate::wire::{Cid, Sqe, Status};

/// The number by which the owner of a queue knows a command in flight: an index from 0 to the
/// number of keys that the transport was made with. The transport makes command identifiers (CID)
/// of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommandKey(pub u16);

/// Bits of a command identifier that hold the key; those above hold the generation.
const KEY_BITS: u32 = CommandKey::COUNT_MAX.trailing_zeros();

impl CommandKey {
    /// The most keys of a queue: a command identifier keeps four bits for the generation.
    pub const COUNT_MAX: u16 = 1 << 12;

    /// The identifier of a command under this key.
    pub(crate) const fn cid(self, generation: Generation) -> Cid {
        Cid((generation.0 as u16) << KEY_BITS | self.0)
    }

    /// The key in an identifier.
    pub(crate) const fn of(cid: Cid) -> Self {
        Self(cid.0 & (Self::COUNT_MAX - 1))
    }
}

/// Tells the commands apart that a key carries one after the other, so that an answer to an earlier
/// one is known as such.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Generation(u8);

impl Generation {
    pub(crate) const fn next(self) -> Self {
        Self((self.0 + 1) % (1 << (u16::BITS - KEY_BITS)))
    }
}

/// Why a command was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoRoom {
    /// As many commands are in flight as the controller's queue takes.
    #[error("the controller's queue is full")]
    QueueFull,
    /// The connection has ended.
    #[error("the connection has ended")]
    Closed,
}

/// A command for the transport to carry: everything in the entry but CID and SGL, which the
/// transport sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// The submission queue entry.
    pub sqe: Sqe,
    /// Its data.
    pub transfer: Transfer,
}

/// The data of a command: where they are, or are to be put, in the queue's buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// The command has none.
    None,
    /// From the controller into the buffer.
    ToHost(BufferRange),
    /// From the buffer to the controller.
    ToController(BufferRange),
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The command.
    pub key: CommandKey,
    /// Its status.
    pub status: Status,
    /// The command specific result (DW0 in the low half, DW1 in the high one).
    pub result: u64,
}

impl Outcome {
    /// DW0 of the result.
    pub const fn dw0(&self) -> u32 {
        self.result as u32
    }
}
