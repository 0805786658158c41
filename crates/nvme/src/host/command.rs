//! What a host hands to its transport, and gets back.

use super::BufferRange;
use crate::wire::{Sqe, Status};

/// The number by which the owner of a queue knows a command in flight: an index from 0 to the number of keys that
/// the transport was made with. The transport makes command identifiers (CID) of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommandKey(pub u16);

/// A command for the transport to carry: everything in the entry but CID and SGL, which the transport sets.
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
