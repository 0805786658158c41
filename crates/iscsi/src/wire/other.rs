//! NOP-Out, NOP-In, Asynchronous Message, Reject and SNACK.

use zerocopy::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{BHS_LEN, U24};

/// NOP-Out (RFC 7143 §11.18).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct NopOut {
    /// 00h, with I in bit 6.
    pub opcode: u8,
    /// 1 in bit 7.
    pub flags: u8,
    /// Reserved.
    pub reserved: [u8; 2],
    /// TotalAHSLength; 0.
    pub total_ahs_words: u8,
    /// DataSegmentLength, bytes of ping data.
    pub data_segment_len: U24,
    /// LUN, copied from the NOP-In that is answered.
    pub lun: [u8; 8],
    /// Initiator Task Tag; all ones if no answer is requested.
    pub itt: U32,
    /// Target Transfer Tag of the NOP-In that is answered, otherwise all ones.
    pub ttt: U32,
    /// CmdSN.
    pub cmd_sn: U32,
    /// ExpStatSN.
    pub exp_stat_sn: U32,
    /// Reserved.
    pub reserved_32: [u8; 16],
}

const _: () = assert!(size_of::<NopOut>() == BHS_LEN);

/// NOP-In (RFC 7143 §11.19).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct NopIn {
    /// 20h.
    pub opcode: u8,
    /// 1 in bit 7.
    pub flags: u8,
    /// Reserved.
    pub reserved: [u8; 2],
    /// TotalAHSLength; 0.
    pub total_ahs_words: u8,
    /// DataSegmentLength, bytes of returned ping data.
    pub data_segment_len: U24,
    /// LUN, if an answer is requested.
    pub lun: [u8; 8],
    /// Initiator Task Tag of the NOP-Out that is answered, otherwise all ones.
    pub itt: U32,
    /// Target Transfer Tag; all ones if no answer is requested.
    pub ttt: U32,
    /// StatSN.
    pub stat_sn: U32,
    /// ExpCmdSN.
    pub exp_cmd_sn: U32,
    /// MaxCmdSN.
    pub max_cmd_sn: U32,
    /// Reserved.
    pub reserved_36: [u8; 12],
}

const _: () = assert!(size_of::<NopIn>() == BHS_LEN);

/// Asynchronous Message (RFC 7143 §11.9).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct AsyncMessage {
    /// 32h.
    pub opcode: u8,
    /// 1 in bit 7.
    pub flags: u8,
    /// Reserved.
    pub reserved: [u8; 2],
    /// TotalAHSLength; 0.
    pub total_ahs_words: u8,
    /// DataSegmentLength: SenseLength and sense data, for a SCSI event.
    pub data_segment_len: U24,
    /// LUN, for a SCSI event.
    pub lun: [u8; 8],
    /// All ones.
    pub itt: U32,
    /// Reserved.
    pub reserved_20: U32,
    /// StatSN.
    pub stat_sn: U32,
    /// ExpCmdSN.
    pub exp_cmd_sn: U32,
    /// MaxCmdSN.
    pub max_cmd_sn: U32,
    /// AsyncEvent: 0 SCSI event, 1 logout requested, 2 connection will be dropped, 3 all
    /// connections will be.
    pub event: u8,
    /// AsyncVCode.
    pub vendor_code: u8,
    /// Parameter1: the CID, for event 2.
    pub parameter_1: U16,
    /// Parameter2: Time2Wait in seconds; for event 1 reserved.
    pub parameter_2: U16,
    /// Parameter3: for event 1, seconds within which to log out; for 2 and 3, Time2Retain in
    /// seconds.
    pub parameter_3: U16,
    /// Reserved.
    pub reserved_44: U32,
}

const _: () = assert!(size_of::<AsyncMessage>() == BHS_LEN);

/// AsyncEvent of an Asynchronous Message (RFC 7143 §11.9.1).
pub mod event {
    /// SCSI asynchronous event, with sense data.
    pub const SCSI: u8 = 0;
    /// The target requests a logout.
    pub const LOGOUT_REQUEST: u8 = 1;
    /// The target will drop, or has dropped, the connection of Parameter1.
    pub const CONNECTION_DROP: u8 = 2;
    /// The target will drop all connections of the session.
    pub const SESSION_DROP: u8 = 3;
}

/// Reject (RFC 7143 §11.17). The data segment holds the header of the rejected PDU.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Reject {
    /// 3Fh.
    pub opcode: u8,
    /// 1 in bit 7.
    pub flags: u8,
    /// Reason.
    pub reason: u8,
    /// Reserved.
    pub reserved: u8,
    /// TotalAHSLength; 0.
    pub total_ahs_words: u8,
    /// DataSegmentLength: 48.
    pub data_segment_len: U24,
    /// Reserved.
    pub reserved_8: [u8; 8],
    /// All ones.
    pub itt: U32,
    /// Reserved.
    pub reserved_20: U32,
    /// StatSN.
    pub stat_sn: U32,
    /// ExpCmdSN.
    pub exp_cmd_sn: U32,
    /// MaxCmdSN.
    pub max_cmd_sn: U32,
    /// DataSN or R2TSN that is next valid, for some reasons.
    pub data_sn: U32,
    /// Reserved.
    pub reserved_40: [u8; 8],
}

const _: () = assert!(size_of::<Reject>() == BHS_LEN);

/// Reasons of a Reject (RFC 7143 §11.17.1).
pub mod reason {
    /// Data (payload) digest error.
    pub const DATA_DIGEST: u8 = 0x02;
    /// SNACK reject.
    pub const SNACK: u8 = 0x03;
    /// Protocol error.
    pub const PROTOCOL_ERROR: u8 = 0x04;
    /// Command not supported.
    pub const NOT_SUPPORTED: u8 = 0x05;
    /// Immediate command reject: too many of them.
    pub const TOO_MANY_IMMEDIATE: u8 = 0x06;
    /// Task in progress.
    pub const TASK_IN_PROGRESS: u8 = 0x07;
    /// Invalid data acknowledgement.
    pub const INVALID_DATA_ACK: u8 = 0x08;
    /// Invalid PDU field.
    pub const INVALID_FIELD: u8 = 0x09;
    /// Long op reject: no Target Transfer Tag left.
    pub const LONG_OPERATION: u8 = 0x0A;
    /// Waiting for logout.
    pub const WAITING_FOR_LOGOUT: u8 = 0x0C;
}

/// SNACK Request (RFC 7143 §11.16); answered only by a reject, since recovery level 0 has no SNACK.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct SnackRequest {
    /// 10h.
    pub opcode: u8,
    /// 1 in bit 7; type, bits 3-0.
    pub kind: u8,
    /// Reserved.
    pub reserved: [u8; 2],
    /// TotalAHSLength; 0.
    pub total_ahs_words: u8,
    /// DataSegmentLength; 0.
    pub data_segment_len: U24,
    /// LUN.
    pub lun: [u8; 8],
    /// Initiator Task Tag.
    pub itt: U32,
    /// Target Transfer Tag or SNACK Tag.
    pub ttt: U32,
    /// Reserved.
    pub reserved_24: U32,
    /// ExpStatSN.
    pub exp_stat_sn: U32,
    /// Reserved.
    pub reserved_32: [u8; 8],
    /// BegRun.
    pub begin_run: U32,
    /// RunLength.
    pub run_length: U32,
}

const _: () = assert!(size_of::<SnackRequest>() == BHS_LEN);
