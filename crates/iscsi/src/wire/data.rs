//! SCSI Data-Out, SCSI Data-In and Ready To Transfer.

use zerocopy::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{BHS_LEN, U24};

/// SCSI Data-Out (RFC 7143 §11.7).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct DataOut {
    /// 05h.
    pub opcode: u8,
    /// F bit 7: the last of a sequence.
    pub flags: u8,
    /// Reserved.
    pub reserved: [u8; 2],
    /// TotalAHSLength; 0.
    pub total_ahs_words: u8,
    /// DataSegmentLength, bytes.
    pub data_segment_len: U24,
    /// LUN, copied from the R2T.
    pub lun: [u8; 8],
    /// Initiator Task Tag.
    pub itt: U32,
    /// Target Transfer Tag of the R2T; all ones for unsolicited data.
    pub ttt: U32,
    /// Reserved.
    pub reserved_24: U32,
    /// ExpStatSN.
    pub exp_stat_sn: U32,
    /// Reserved.
    pub reserved_32: U32,
    /// DataSN: the number of the PDU in its sequence, from 0.
    pub data_sn: U32,
    /// Buffer Offset, bytes.
    pub buffer_offset: U32,
    /// Reserved.
    pub reserved_44: U32,
}

const _: () = assert!(size_of::<DataOut>() == BHS_LEN);

/// SCSI Data-In (RFC 7143 §11.7).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct DataIn {
    /// 25h.
    pub opcode: u8,
    /// F bit 7, A bit 6, O bit 2, U bit 1, S (status) bit 0.
    pub flags: u8,
    /// Reserved.
    pub reserved: u8,
    /// SCSI status, if S is set.
    pub status: u8,
    /// TotalAHSLength; 0.
    pub total_ahs_words: u8,
    /// DataSegmentLength, bytes.
    pub data_segment_len: U24,
    /// LUN; 0 if A is not set.
    pub lun: [u8; 8],
    /// Initiator Task Tag.
    pub itt: U32,
    /// Target Transfer Tag; all ones if A is not set.
    pub ttt: U32,
    /// StatSN, if S is set.
    pub stat_sn: U32,
    /// ExpCmdSN.
    pub exp_cmd_sn: U32,
    /// MaxCmdSN.
    pub max_cmd_sn: U32,
    /// DataSN: the number of the PDU in its command, from 0.
    pub data_sn: U32,
    /// Buffer Offset, bytes.
    pub buffer_offset: U32,
    /// Residual Count, bytes, if S is set.
    pub residual: U32,
}

const _: () = assert!(size_of::<DataIn>() == BHS_LEN);

/// S in the flags of Data-In: it carries the command's status.
pub const STATUS_PRESENT: u8 = 0x01;

/// Ready To Transfer (RFC 7143 §11.8).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct R2t {
    /// 31h.
    pub opcode: u8,
    /// 1 in bit 7.
    pub flags: u8,
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
    /// Target Transfer Tag.
    pub ttt: U32,
    /// The next StatSN; not advanced.
    pub stat_sn: U32,
    /// ExpCmdSN.
    pub exp_cmd_sn: U32,
    /// MaxCmdSN.
    pub max_cmd_sn: U32,
    /// R2TSN: the number of the R2T in its command, from 0.
    pub r2t_sn: U32,
    /// Buffer Offset, bytes.
    pub buffer_offset: U32,
    /// Desired Data Transfer Length, bytes; never 0.
    pub desired_len: U32,
}

const _: () = assert!(size_of::<R2t>() == BHS_LEN);
