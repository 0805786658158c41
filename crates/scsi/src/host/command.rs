//! What a host passes to its transport, and receives from it.

use std::fmt;

use session::BufferRange;

use super::ReceivedSense;

/// The number by which the owner of a session knows a command in flight: an index from 0 to the
/// number of keys that the transport was made with. The transport makes task tags of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommandKey(pub u16);

/// A command for the transport to carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// The command descriptor block (CDB), padded with zeros.
    pub cdb: [u8; 16],
    /// Its data.
    pub transfer: Transfer,
}

/// The data of a command: where they are, or are to be put, in the session's buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// The command has none.
    None,
    /// Data-in: from the target into the buffer.
    ToHost(BufferRange),
    /// Data-out: from the buffer to the target.
    ToTarget(BufferRange),
}

impl Transfer {
    /// Length in bytes.
    pub const fn len_bytes(self) -> u32 {
        match self {
            Self::None => 0,
            Self::ToHost(range) | Self::ToTarget(range) => range.len_bytes,
        }
    }
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The command.
    pub key: CommandKey,
    /// With GOOD: how many bytes of data were transferred, which may be fewer than the buffer has.
    /// Else why not.
    pub result: Result<u32, CommandFailure>,
}

/// Why a command did not end with GOOD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandFailure {
    /// The command ended with another status.
    Status {
        /// SCSI status; [`ScsiStatus`](crate::ScsiStatus) has names for those that are used.
        status: u8,
        /// The sense data of CHECK CONDITION.
        sense: Option<ReceivedSense>,
    },
    /// The target could not deliver the command or its status (the iSCSI response code).
    Undelivered {
        /// The code.
        response: u8,
    },
    /// The target rejected the PDU that carried the command.
    Rejected {
        /// The reason's code.
        reason: u8,
    },
    /// Data arrived with a wrong digest.
    DataDigest,
    /// Fewer data were transferred than the command requested, although it ended with GOOD.
    Short {
        /// How many bytes were transferred.
        moved_bytes: u32,
    },
    /// It was aborted because it took too long.
    Aborted,
}

impl CommandFailure {
    /// The sense data, if there are any.
    pub fn sense(&self) -> Option<&ReceivedSense> {
        match self {
            Self::Status { sense, .. } => sense.as_ref(),
            _ => None,
        }
    }
}

impl fmt::Display for CommandFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status {
                sense: Some(sense), ..
            } => sense.fmt(f),
            Self::Status { status, .. } => match status_name(*status) {
                Some(name) => f.write_str(name),
                None => write!(f, "SCSI status {status:#04x}"),
            },
            Self::Undelivered { response } => {
                write!(f, "the target failed (response {response:#04x})")
            }
            Self::Rejected { reason } => {
                write!(f, "the target rejected the command (reason {reason:#04x})")
            }
            Self::DataDigest => f.write_str("data came with a wrong digest"),
            Self::Short { moved_bytes } => {
                write!(f, "only {moved_bytes} bytes were transferred")
            }
            Self::Aborted => f.write_str("the command took too long and was aborted"),
        }
    }
}

impl std::error::Error for CommandFailure {}

/// SAM-5, "Status codes".
fn status_name(status: u8) -> Option<&'static str> {
    Some(match status {
        0x00 => "good",
        0x02 => "check condition without sense data",
        0x04 => "condition met",
        0x08 => "the logical unit is busy",
        0x18 => "a reservation of another host conflicts",
        0x28 => "the logical unit's task set is full",
        0x30 => "an auto contingent allegiance is active",
        0x40 => "another host aborted the command",
        _ => return None,
    })
}
