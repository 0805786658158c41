//! SCSI Command and Response, Task Management Function Request and Response.

use zerocopy::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{BHS_LEN, U24};

/// SCSI Command (RFC 7143 §11.3).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct ScsiCommand {
    /// 01h, with I in bit 6.
    pub opcode: u8,
    /// F bit 7, R (read) bit 6, W (write) bit 5, ATTR bits 2-0.
    pub flags: u8,
    /// Reserved.
    pub reserved: [u8; 2],
    /// TotalAHSLength, in four-byte words.
    pub total_ahs_words: u8,
    /// DataSegmentLength, bytes of immediate data.
    pub data_segment_len: U24,
    /// LUN.
    pub lun: [u8; 8],
    /// Initiator Task Tag.
    pub itt: U32,
    /// Expected Data Transfer Length, bytes; of the write if it is bidirectional.
    pub expected_len: U32,
    /// CmdSN.
    pub cmd_sn: U32,
    /// ExpStatSN.
    pub exp_stat_sn: U32,
    /// The CDB, padded with zeros.
    pub cdb: [u8; 16],
}

const _: () = assert!(size_of::<ScsiCommand>() == BHS_LEN);

impl ScsiCommand {
    /// Whether data-in are expected.
    pub fn reads(&self) -> bool {
        self.flags & 0x40 != 0
    }

    /// Whether data-out are sent.
    pub fn writes(&self) -> bool {
        self.flags & 0x20 != 0
    }
}

/// SCSI Response (RFC 7143 §11.4).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct ScsiResponse {
    /// 21h.
    pub opcode: u8,
    /// 1 in bit 7; residuals: o bit 4, u bit 3, O (overflow) bit 2, U (underflow) bit 1.
    pub flags: u8,
    /// Response: 00h completed at target, 01h target failure.
    pub response: u8,
    /// SCSI status.
    pub status: u8,
    /// TotalAHSLength; 0.
    pub total_ahs_words: u8,
    /// DataSegmentLength: SenseLength (2 bytes) and sense data.
    pub data_segment_len: U24,
    /// Reserved.
    pub reserved: [u8; 8],
    /// Initiator Task Tag.
    pub itt: U32,
    /// SNACK Tag; 0.
    pub snack_tag: U32,
    /// StatSN.
    pub stat_sn: U32,
    /// ExpCmdSN.
    pub exp_cmd_sn: U32,
    /// MaxCmdSN.
    pub max_cmd_sn: U32,
    /// ExpDataSN: how many Data-In and R2T PDUs the command had; 0 if it failed at the iSCSI level.
    pub exp_data_sn: U32,
    /// Bidirectional Read Residual Count.
    pub bidi_residual: U32,
    /// Residual Count, bytes.
    pub residual: U32,
}

const _: () = assert!(size_of::<ScsiResponse>() == BHS_LEN);

/// O: more data were to be transferred than expected.
pub const RESIDUAL_OVERFLOW: u8 = 0x04;
/// U: fewer data were transferred than expected.
pub const RESIDUAL_UNDERFLOW: u8 = 0x02;

/// Task Management Function Request (RFC 7143 §11.5).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct TaskManagementRequest {
    /// 02h, with I in bit 6.
    pub opcode: u8,
    /// 1 in bit 7; function, bits 6-0.
    pub function: u8,
    /// Reserved.
    pub reserved: [u8; 2],
    /// TotalAHSLength; 0.
    pub total_ahs_words: u8,
    /// DataSegmentLength; 0.
    pub data_segment_len: U24,
    /// LUN.
    pub lun: [u8; 8],
    /// Initiator Task Tag of this request.
    pub itt: U32,
    /// Referenced Task Tag.
    pub referenced_task_tag: U32,
    /// CmdSN.
    pub cmd_sn: U32,
    /// ExpStatSN.
    pub exp_stat_sn: U32,
    /// RefCmdSN: CmdSN of the referenced task.
    pub ref_cmd_sn: U32,
    /// ExpDataSN, for task reassign.
    pub exp_data_sn: U32,
    /// Reserved.
    pub reserved_40: [u8; 8],
}

const _: () = assert!(size_of::<TaskManagementRequest>() == BHS_LEN);

/// Task Management Function Response (RFC 7143 §11.6).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct TaskManagementResponse {
    /// 22h.
    pub opcode: u8,
    /// 1 in bit 7.
    pub flags: u8,
    /// Response code.
    pub response: u8,
    /// Reserved.
    pub reserved: u8,
    /// TotalAHSLength; 0.
    pub total_ahs_words: u8,
    /// DataSegmentLength; 0.
    pub data_segment_len: U24,
    /// Reserved.
    pub reserved_8: [u8; 8],
    /// Initiator Task Tag.
    pub itt: U32,
    /// Reserved.
    pub reserved_20: U32,
    /// StatSN.
    pub stat_sn: U32,
    /// ExpCmdSN.
    pub exp_cmd_sn: U32,
    /// MaxCmdSN.
    pub max_cmd_sn: U32,
    /// Reserved.
    pub reserved_36: [U16; 6],
}

const _: () = assert!(size_of::<TaskManagementResponse>() == BHS_LEN);

/// Task management functions (RFC 7143 §11.5.1).
pub mod function {
    /// ABORT TASK.
    pub const ABORT_TASK: u8 = 1;
    /// ABORT TASK SET.
    pub const ABORT_TASK_SET: u8 = 2;
    /// CLEAR ACA.
    pub const CLEAR_ACA: u8 = 3;
    /// CLEAR TASK SET.
    pub const CLEAR_TASK_SET: u8 = 4;
    /// LOGICAL UNIT RESET.
    pub const LOGICAL_UNIT_RESET: u8 = 5;
    /// TARGET WARM RESET.
    pub const TARGET_WARM_RESET: u8 = 6;
    /// TARGET COLD RESET.
    pub const TARGET_COLD_RESET: u8 = 7;
    /// TASK REASSIGN.
    pub const TASK_REASSIGN: u8 = 8;
}

/// Task management responses (RFC 7143 §11.6.1).
pub mod function_response {
    /// Function complete.
    pub const COMPLETE: u8 = 0;
    /// Task does not exist.
    pub const NO_TASK: u8 = 1;
    /// LUN does not exist.
    pub const NO_LUN: u8 = 2;
    /// Task allegiance reassignment not supported.
    pub const NO_REASSIGN: u8 = 4;
    /// Function not supported.
    pub const NOT_SUPPORTED: u8 = 5;
    /// Function rejected.
    pub const REJECTED: u8 = 255;
}
