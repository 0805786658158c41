//! Information units as bytes.
//!
//! Read first: SRP, "Information units".

mod command;
mod login;
mod response;

pub use command::{
    Command, CreditResponse, Data, Descriptor, Direction, IndirectTable, LogoutRequest,
    ManagementRequest, Request, Tag, attribute, data_format, function, parse_command,
};
pub use login::{
    ChannelFlags, LOGIN_BYTES, Login, LoginReject, LoginResponse, NotAPortId, PortId, RejectReason,
    format_bit,
};
pub use response::{CreditRequest, ManagementResult, ResponseHeader, TargetLogout};

/// Type codes of information units.
pub mod opcode {
    /// SRP_LOGIN_REQ.
    pub const LOGIN_REQ: u8 = 0x00;
    /// SRP_TSK_MGMT.
    pub const TSK_MGMT: u8 = 0x01;
    /// SRP_CMD.
    pub const CMD: u8 = 0x02;
    /// SRP_I_LOGOUT.
    pub const I_LOGOUT: u8 = 0x03;
    /// SRP_CRED_RSP.
    pub const CRED_RSP: u8 = 0x41;
    /// SRP_AER_RSP.
    pub const AER_RSP: u8 = 0x42;
    /// SRP_T_LOGOUT.
    pub const T_LOGOUT: u8 = 0x80;
    /// SRP_CRED_REQ.
    pub const CRED_REQ: u8 = 0x81;
    /// SRP_AER_REQ.
    pub const AER_REQ: u8 = 0x82;
    /// SRP_LOGIN_RSP.
    pub const LOGIN_RSP: u8 = 0xC0;
    /// SRP_RSP.
    pub const RSP: u8 = 0xC1;
    /// SRP_LOGIN_REJ.
    pub const LOGIN_REJ: u8 = 0xC2;
}

/// How an initiator breaks the protocol so that the channel ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// A message of a type that initiators do not send on an open channel.
    #[error(
        "a message of type {0:#04x} arrived; initiators send SRP_CMD, SRP_TSK_MGMT, SRP_I_LOGOUT and, \
         as the answer to SRP_CRED_REQ, SRP_CRED_RSP"
    )]
    Opcode(u8),
    /// A message ends before its information unit does.
    #[error("a message of {0} bytes ends before its information unit does")]
    Length(usize),
    /// The data buffer descriptor formats are not supported, or both directions have one.
    #[error("data buffer descriptor formats {0:#04x} are not supported")]
    Format(u8),
    /// A descriptor table contradicts itself, or is too long.
    #[error("the descriptor table has an invalid length, or more descriptors than {max}", max = DESCRIPTORS_MAX)]
    Table,
    /// A tag that a request in progress has.
    #[error("a request has the tag of one in progress")]
    TagInUse,
    /// More requests than the request limit allows.
    #[error("more requests are in progress than the request limit allows")]
    RequestLimit,
}

/// The most descriptors of a command.
pub const DESCRIPTORS_MAX: u32 = 2048;

#[cfg(test)]
mod tests;
