//! The messages of BRP as bytes.
//!
//! Read first: docs/brp.md, "Connection and login", "Messages".

mod command;
mod login;
mod short;
mod status;

pub use command::{Command, Descriptor, Flags, Operation};
pub use login::{
    ConnectionReply, ConnectionRequest, Features, HOST_FIELDS_BYTES, Login, LoginReply,
    NAME_BYTES_MAX, NameField, ReplyFlags, SessionId, Step,
};
pub use short::{EventCode, Short};
pub use status::{LoginStatus, Status, Violation};

/// The version of the protocol.
pub const VERSION: u16 = 1;
/// The first bytes of LOGIN after its kind, and of connection requests and replies.
pub const MAGIC: [u8; 4] = *b"BRP1";
/// The most tags of a session.
pub const TAGS_MAX: u16 = 1024;
/// The most descriptors of a command (RDMA).
pub const DESCRIPTORS_MAX: u16 = 4;
/// Receives that each end keeps posted beside one for each tag (BRP-9).
pub const RECEIVES_EXTRA: u16 = 4;
/// The longest data of REPLIES over TCP in bytes (BRP-37).
pub const STREAM_REPLIES_MAX_BYTES: u32 = 32 << 10;

/// The kind of a message: its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A host begins a connection.
    Login = 0x01,
    /// The answer to it.
    LoginReply = 0x02,
    /// A command.
    Command = 0x10,
    /// The reply to a command, or a part of its data.
    Reply = 0x11,
    /// The target asks for data of a command (TCP).
    Pull = 0x12,
    /// Data that were asked for (TCP).
    Data = 0x13,
    /// The host gives a command up.
    Abort = 0x14,
    /// Several replies with their data (step 3).
    Replies = 0x15,
    /// Is the other end there?
    Ping = 0x30,
    /// It is.
    Pong = 0x31,
    /// Something has happened to the unit or the target.
    Event = 0x32,
    /// The host ends its session.
    Logout = 0x33,
    /// The other end has broken the protocol; the last message.
    Fault = 0x3F,
}

impl Kind {
    /// The kind of a message's first byte. `None` if it is not known.
    pub const fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            0x01 => Self::Login,
            0x02 => Self::LoginReply,
            0x10 => Self::Command,
            0x11 => Self::Reply,
            0x12 => Self::Pull,
            0x13 => Self::Data,
            0x14 => Self::Abort,
            0x15 => Self::Replies,
            0x30 => Self::Ping,
            0x31 => Self::Pong,
            0x32 => Self::Event,
            0x33 => Self::Logout,
            0x3F => Self::Fault,
            _ => return None,
        })
    }

    /// The length of the message without descriptors and data, in bytes.
    pub const fn header_bytes(self) -> usize {
        match self {
            Self::Login => size_of::<Login>(),
            Self::LoginReply => size_of::<LoginReply>(),
            Self::Command => size_of::<Command>(),
            _ => size_of::<Short>(),
        }
    }

    /// The longest of them.
    pub const HEADER_BYTES_MAX: usize = size_of::<Login>();

    /// Whether a host may send it.
    pub const fn is_of_host(self) -> bool {
        !matches!(
            self,
            Self::LoginReply | Self::Reply | Self::Replies | Self::Pull | Self::Event
        )
    }

    /// Whether a target may send it.
    pub const fn is_of_target(self) -> bool {
        matches!(
            self,
            Self::LoginReply
                | Self::Reply
                | Self::Replies
                | Self::Pull
                | Self::Event
                | Self::Ping
                | Self::Pong
                | Self::Fault
        )
    }
}

#[cfg(test)]
mod tests;
