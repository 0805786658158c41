//! Why a channel ends, and what it does not take.

use session::RemoteKey;

use crate::wire::Tag;

/// Requests of the target that wait for their answer to be posted.
pub(super) const ANSWERS_MAX: usize = 64;

/// The result of asking for the abort of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Abort {
    /// The command has ended or was not sent yet, or the request limit is used up.
    NotInFlight,
    /// The target was asked to abort it.
    Asked,
    /// The target had been asked before.
    AskedBefore,
}

/// Why a command is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRoom {
    /// The request limit is used up.
    Credits,
    /// The channel has ended.
    Closed,
}

/// Why a channel has to end: the target broke the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InitiatorError {
    /// A message of a type that targets do not send on an open channel.
    #[error("the target sent a message of type {0:#04x}")]
    Opcode(u8),
    /// A message ends before its information unit does.
    #[error("the target sent a message of {0} bytes, which ends before its information unit does")]
    Length(usize),
    /// There is no such request.
    #[error("the target answered tag {0:02x?}, which no request in progress has")]
    Tag(Tag),
    /// More bytes are said to be missing than the command has.
    #[error("the target reports that {residual} of {len_bytes} bytes were not transferred")]
    Residual {
        /// The residual count.
        residual: u32,
        /// The length of the command's data.
        len_bytes: u32,
    },
    /// The target invalidated a key that is not the command's.
    #[error("the target invalidated key {:#x}, which does not belong to the command", .0.0)]
    Key(RemoteKey),
    /// More requests of the target than are answered at once.
    #[error(
        "the target has sent more than {} requests that are unanswered",
        ANSWERS_MAX
    )]
    Flood,
    /// A message came after the end.
    #[error("the channel has ended")]
    Closed,
}
