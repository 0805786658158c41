//! Ready to transfer.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{CommonHeader, PduType};

/// Ready to transfer (R2T), 24 bytes: the controller requests a part of a command's data.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct R2t {
    /// Common header (CH).
    pub ch: CommonHeader,
    /// Command capsule CID (CCCID): the identifier of the command whose data are requested.
    pub cccid: U16,
    /// Transfer tag (TTAG): the host returns it in each H2CData that answers.
    pub ttag: U16,
    /// Requested data offset (R2TO): bytes from the start of the command's data.
    pub r2to: U32,
    /// Requested data length (R2TL) in bytes.
    pub r2tl: U32,
    /// Reserved.
    pub reserved: [u8; 4],
}

const _: () = assert!(size_of::<R2t>() == PduType::R2t.hlen_bytes());
const _: () = assert!(std::mem::offset_of!(R2t, r2to) == 12);

impl R2t {
    /// Byte offsets of fields, for the fatal error information of a termination.
    pub const OFFSET_CCCID: u32 = 8;
    /// See [`OFFSET_CCCID`](Self::OFFSET_CCCID).
    pub const OFFSET_R2TO: u32 = 12;
    /// See [`OFFSET_CCCID`](Self::OFFSET_CCCID).
    pub const OFFSET_R2TL: u32 = 16;
}
