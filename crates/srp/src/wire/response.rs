//! What a target sends on an open channel: SRP_RSP, SRP_CRED_REQ and SRP_T_LOGOUT.
//!
//! Read first: SRP_RSP, SRP_CRED_REQ, SRP_T_LOGOUT.

use zerocopy::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Tag, opcode};

/// SRP_RSP, without what follows: response data of 4 bytes, or sense data.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct ResponseHeader {
    /// [`opcode::RSP`].
    pub opcode: u8,
    /// Solicited notification; unused.
    pub solicited: u8,
    /// Reserved.
    pub reserved: [u8; 2],
    /// REQUEST LIMIT DELTA: how many more requests the initiator may send.
    pub request_limit_delta: U32,
    /// Of the request.
    pub tag: Tag,
    /// Reserved.
    pub reserved2: [u8; 2],
    /// What follows, and which residual counts are valid: [`ResponseHeader::RESPONSE_VALID`] and
    /// so on.
    pub flags: u8,
    /// STATUS.
    pub status: u8,
    /// DATA-OUT RESIDUAL COUNT, bytes.
    pub data_out_residual: U32,
    /// DATA-IN RESIDUAL COUNT, bytes.
    pub data_in_residual: U32,
    /// SENSE DATA LIST LENGTH, bytes.
    pub sense_len: U32,
    /// RESPONSE DATA LIST LENGTH, bytes.
    pub response_len: U32,
}

const _: () = assert!(size_of::<ResponseHeader>() == 36);

impl ResponseHeader {
    /// RSPVALID: response data follow.
    pub const RESPONSE_VALID: u8 = 0x01;
    /// SNSVALID: sense data follow.
    pub const SENSE_VALID: u8 = 0x02;
    /// DOOVER: the command transfers more data-out than its buffer has.
    pub const DATA_OUT_OVER: u8 = 0x04;
    /// DOUNDER: it transfers less.
    pub const DATA_OUT_UNDER: u8 = 0x08;
    /// DIOVER: the same for data-in.
    pub const DATA_IN_OVER: u8 = 0x10;
    /// DIUNDER: the same for data-in.
    pub const DATA_IN_UNDER: u8 = 0x20;

    /// The response to a request, with status GOOD and without residuals.
    pub fn new(tag: Tag, request_limit_delta: u32) -> Self {
        Self {
            opcode: opcode::RSP,
            solicited: 0,
            reserved: [0; 2],
            request_limit_delta: U32::new(request_limit_delta),
            tag,
            reserved2: [0; 2],
            flags: 0,
            status: 0,
            data_out_residual: U32::new(0),
            data_in_residual: U32::new(0),
            sense_len: U32::new(0),
            response_len: U32::new(0),
        }
    }
}

/// RSP_CODE of response data: the result of task management.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ManagementResult {
    /// TASK MANAGEMENT FUNCTION COMPLETE.
    Complete = 0x00,
    /// REQUEST FIELDS INVALID: the logical unit does not exist.
    FieldsInvalid = 0x02,
    /// TASK MANAGEMENT FUNCTION NOT SUPPORTED.
    NotSupported = 0x04,
    /// TASK MANAGEMENT FUNCTION FAILED.
    Failed = 0x05,
}

/// SRP_CRED_REQ.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct CreditRequest {
    /// [`opcode::CRED_REQ`].
    pub opcode: u8,
    /// Solicited notification; unused.
    pub solicited: u8,
    /// Reserved.
    pub reserved: [u8; 2],
    /// REQUEST LIMIT DELTA: how many more requests the initiator may send.
    pub request_limit_delta: U32,
    /// TAG, which the initiator's SRP_CRED_RSP repeats.
    pub tag: Tag,
}

const _: () = assert!(size_of::<CreditRequest>() == 16);

impl CreditRequest {
    /// The beginning of an SRP_CRED_REQ or SRP_AER_REQ; `None` if the message is shorter.
    pub fn parse(message: &[u8]) -> Option<&Self> {
        let (request, _) = Self::ref_from_prefix(message).ok()?;
        Some(request)
    }

    /// Returns `delta` requests to the initiator.
    pub fn new(delta: u32) -> Self {
        Self {
            opcode: opcode::CRED_REQ,
            solicited: 0,
            reserved: [0; 2],
            request_limit_delta: U32::new(delta),
            tag: [0; 8],
        }
    }
}

/// SRP_T_LOGOUT.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct TargetLogout {
    /// [`opcode::T_LOGOUT`].
    pub opcode: u8,
    /// Solicited notification; unused.
    pub solicited: u8,
    /// Reserved.
    pub reserved: [u8; 2],
    /// REASON.
    pub reason: U32,
    /// TAG; the initiator does not answer.
    pub tag: Tag,
}

const _: () = assert!(size_of::<TargetLogout>() == 16);

impl TargetLogout {
    /// REASON 0: none that the other codes name.
    pub fn new() -> Self {
        Self {
            opcode: opcode::T_LOGOUT,
            solicited: 0,
            reserved: [0; 2],
            reason: U32::new(0),
            tag: [0; 8],
        }
    }
}

impl Default for TargetLogout {
    fn default() -> Self {
        Self::new()
    }
}
