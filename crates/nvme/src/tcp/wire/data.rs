//! Data PDUs of both directions.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{CommonHeader, PduType};

/// The least that a controller may advertise as MAXH2CDATA.
pub const MAXH2CDATA_MIN_BYTES: u32 = 4096;

/// Host to controller data (H2CData) and controller to host data (C2HData), 24 bytes, followed by
/// the data.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct DataPdu {
    /// Common header (CH).
    pub ch: CommonHeader,
    /// Command capsule CID (CCCID): the identifier of the command that the data belong to.
    pub cccid: U16,
    /// Transfer tag (TTAG) of the R2T that requested the data, opaque to the host; reserved in
    /// C2HData.
    pub ttag: U16,
    /// Data offset (DATAO): bytes from the start of the command's data to this PDU's.
    pub datao: U32,
    /// Data length (DATAL) in bytes of this PDU's data, digest and padding not counted.
    pub datal: U32,
    /// Reserved.
    pub reserved: [u8; 4],
}

const _: () = assert!(size_of::<DataPdu>() == PduType::H2cData.hlen_bytes());
const _: () = assert!(std::mem::offset_of!(DataPdu, datao) == 12);

impl DataPdu {
    /// Byte offsets of fields, for the fatal error information of a termination.
    pub const OFFSET_CCCID: u32 = 8;
    /// See [`OFFSET_CCCID`](Self::OFFSET_CCCID).
    pub const OFFSET_TTAG: u32 = 10;
    /// See [`OFFSET_CCCID`](Self::OFFSET_CCCID).
    pub const OFFSET_DATAO: u32 = 12;
    /// See [`OFFSET_CCCID`](Self::OFFSET_CCCID).
    pub const OFFSET_DATAL: u32 = 16;
}
