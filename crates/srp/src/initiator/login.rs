//! The login, seen from the initiator.

use zerocopy::big_endian::{U16, U32};

use crate::wire::{
    ChannelFlags, Command, Descriptor, Login, LoginResponse, PortId, format_bit, opcode,
};

/// Where immediate data begin in a message: behind an SRP_CMD with the longest additional CDB that
/// Linux's targets provide for, and the length of the data.
pub(super) const IMMEDIATE_OFFSET: u16 = 68;
/// The most immediate data, bytes.
const IMMEDIATE_MAX_BYTES: u32 = 8 << 10;
/// The longest message of an initiator, bytes.
pub const MESSAGE_LEN_MAX_BYTES: u32 = IMMEDIATE_OFFSET as u32 + IMMEDIATE_MAX_BYTES;
/// The shortest length of messages that a target must accept, bytes: a command with one descriptor.
const MESSAGE_LEN_MIN_BYTES: u32 = (size_of::<Command>() + size_of::<Descriptor>()) as u32;

/// The private data of the connection request: a login of a nexus of one channel. What the nexus of
/// the same ports had before, the target ends.
pub fn request(initiator: PortId, target: PortId) -> Login {
    Login {
        tag: [0; 8],
        formats: U16::new(format_bit::DIRECT),
        flags: ChannelFlags::IMMEDIATE,
        opcode: opcode::LOGIN_REQ,
        request_len_bytes: U32::new(MESSAGE_LEN_MAX_BYTES),
        initiator,
        target,
        immediate_offset: U16::new(IMMEDIATE_OFFSET),
        reserved: [0; 6],
    }
}

/// What a login has granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// How many requests may be in progress.
    pub request_limit: u32,
    /// The most immediate data of a command, bytes; 0 if the target takes none.
    pub immediate_max_bytes: u32,
}

/// Why the private data of a connection reply grant no login.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoginError {
    /// They are not an SRP_LOGIN_RSP.
    #[error("the reply has {0} bytes of private data that are not an SRP_LOGIN_RSP")]
    Reply(usize),
    /// The request limit is none.
    #[error("the target grants a request limit of {0}; at least 1 is needed")]
    RequestLimit(i32),
    /// Descriptors of memory are not supported.
    #[error("the target supports buffer formats {0:#06x}; direct descriptors (0x0002) are needed")]
    Formats(u16),
    /// Commands with a descriptor are too long.
    #[error("the target takes messages of {0} bytes; a command has {MESSAGE_LEN_MIN_BYTES}")]
    MessageLength(u32),
}

impl Terms {
    /// The terms in the private data of a connection reply, which may be padded.
    ///
    /// # Errors
    /// If they are no answer, or one that no command can be sent under.
    pub fn of(private_data: &[u8]) -> Result<Self, LoginError> {
        let response = LoginResponse::parse(private_data);
        let response = response.ok_or(LoginError::Reply(private_data.len()))?;
        // The field is signed, since a target may take requests back.
        let granted = response.request_limit.get().cast_signed();
        let request_limit = u32::try_from(granted).unwrap_or(0);
        if request_limit == 0 {
            return Err(LoginError::RequestLimit(granted));
        }
        let formats = response.formats.get();
        if formats & format_bit::DIRECT == 0 {
            return Err(LoginError::Formats(formats));
        }
        let len_max_bytes = response.request_len_max_bytes.get();
        if len_max_bytes < MESSAGE_LEN_MIN_BYTES {
            return Err(LoginError::MessageLength(len_max_bytes));
        }
        let immediate_max_bytes = if response.flags & ChannelFlags::IMMEDIATE == 0 {
            0
        } else {
            let len_max_bytes = len_max_bytes.min(MESSAGE_LEN_MAX_BYTES);
            len_max_bytes.saturating_sub(IMMEDIATE_OFFSET.into())
        };
        Ok(Self {
            request_limit,
            immediate_max_bytes,
        })
    }
}
