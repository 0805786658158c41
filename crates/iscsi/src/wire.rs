//! PDU headers: the 48-byte basic header segment (BHS) in each of its forms.
//!
//! Read first: RFC 7143 §11.

pub mod command;
pub mod data;
pub mod login;
pub mod other;

pub use scsi::parse_lun;
use zerocopy::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a BHS.
pub const BHS_LEN: usize = 48;
/// Bytes of a digest.
pub const DIGEST_LEN: usize = 4;
/// INITIATOR TASK TAG that names no task.
pub const NO_TASK_TAG: u32 = 0xFFFF_FFFF;
/// F (final) in byte 1 of most PDUs.
pub const FINAL: u8 = 0x80;

/// A three-byte big-endian length.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(transparent)]
pub struct U24([u8; 3]);

impl U24 {
    /// The value, in the units of its field.
    pub fn get(self) -> u32 {
        u32::from_be_bytes([0, self.0[0], self.0[1], self.0[2]])
    }

    /// The low 24 bits of `value`.
    pub fn new(value: u32) -> Self {
        let [_, a, b, c] = value.to_be_bytes();
        Self([a, b, c])
    }
}

/// The fields that every BHS has (RFC 7143 §11.2.1).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Bhs {
    /// I (immediate delivery), bit 6; opcode, bits 5-0.
    pub opcode: u8,
    /// F, bit 7; the rest depends on the opcode.
    pub flags: u8,
    /// Depends on the opcode.
    pub specific_2: [u8; 2],
    /// TotalAHSLength, in four-byte words; 0 if there is none.
    pub total_ahs_words: u8,
    /// DataSegmentLength, in bytes without padding.
    pub data_segment_len: U24,
    /// LUN, or depends on the opcode.
    pub lun: [u8; 8],
    /// Initiator Task Tag (ITT).
    pub itt: U32,
    /// Depends on the opcode.
    pub specific_20: [u8; 28],
}

const _: () = assert!(size_of::<Bhs>() == BHS_LEN);

impl Bhs {
    /// The opcode without the immediate bit.
    pub fn opcode(&self) -> u8 {
        self.opcode & 0x3F
    }

    /// Whether the PDU is for immediate delivery.
    pub fn is_immediate(&self) -> bool {
        self.opcode & 0x40 != 0
    }

    /// CmdSN, which every numbered request has at this offset.
    pub fn cmd_sn(&self) -> u32 {
        let [_, _, _, _, a, b, c, d, ..] = self.specific_20;
        u32::from_be_bytes([a, b, c, d])
    }

    /// Whether F is set.
    pub fn is_final(&self) -> bool {
        self.flags & FINAL != 0
    }

    /// Bytes of additional header segments.
    pub fn ahs_len(&self) -> usize {
        usize::from(self.total_ahs_words) * 4
    }

    /// Bytes of the data segment, padding included.
    pub fn padded_data_len(&self) -> usize {
        (self.data_segment_len.get() as usize).next_multiple_of(4)
    }

    /// The same bytes as the header of one opcode.
    pub fn cast<T: FromBytes + KnownLayout + Immutable + Unaligned>(&self) -> &T {
        T::ref_from_bytes(self.as_bytes()).expect("every header has the size of a BHS")
    }
}

/// Opcodes of initiators (RFC 7143 §11.2.1.2).
pub mod request {
    /// NOP-Out.
    pub const NOP_OUT: u8 = 0x00;
    /// SCSI Command.
    pub const SCSI_COMMAND: u8 = 0x01;
    /// SCSI Task Management Function Request.
    pub const TASK_MANAGEMENT: u8 = 0x02;
    /// Login Request.
    pub const LOGIN: u8 = 0x03;
    /// Text Request.
    pub const TEXT: u8 = 0x04;
    /// SCSI Data-Out.
    pub const DATA_OUT: u8 = 0x05;
    /// Logout Request.
    pub const LOGOUT: u8 = 0x06;
    /// SNACK Request.
    pub const SNACK: u8 = 0x10;
}

/// Opcodes of targets.
pub mod response {
    /// NOP-In.
    pub const NOP_IN: u8 = 0x20;
    /// SCSI Response.
    pub const SCSI_RESPONSE: u8 = 0x21;
    /// SCSI Task Management Function Response.
    pub const TASK_MANAGEMENT: u8 = 0x22;
    /// Login Response.
    pub const LOGIN: u8 = 0x23;
    /// Text Response.
    pub const TEXT: u8 = 0x24;
    /// SCSI Data-In.
    pub const DATA_IN: u8 = 0x25;
    /// Logout Response.
    pub const LOGOUT: u8 = 0x26;
    /// Ready To Transfer.
    pub const R2T: u8 = 0x31;
    /// Asynchronous Message.
    pub const ASYNC: u8 = 0x32;
    /// Reject.
    pub const REJECT: u8 = 0x3F;
}

/// `a` is before `b` in 32-bit serial number arithmetic (RFC 7143 §4.2.2.1).
pub fn sn_before(a: u32, b: u32) -> bool {
    a.wrapping_sub(b) >= 1 << 31
}

#[cfg(test)]
mod tests;
