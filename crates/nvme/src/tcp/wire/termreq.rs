//! Terminate connection requests.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{CommonHeader, Layout, PduFlags, PduType};

/// The shortest terminate connection request: its header.
pub(super) const TERM_PLEN_MIN_BYTES: usize = size_of::<TermReq>();
/// The longest one: header and 128 bytes of the offending PDU.
pub(super) const TERM_PLEN_MAX_BYTES: usize = TERM_PLEN_MIN_BYTES + TermReq::DATA_MAX_BYTES;

/// Terminate connection request (H2CTermReq, C2HTermReq), 24 bytes, followed by the start of the
/// PDU that was in error: the last PDU of a connection, in either direction.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct TermReq {
    /// Common header (CH). PDO is reserved; the data follow the header at once.
    pub ch: CommonHeader,
    /// Fatal error status (FES); see [`Fes`].
    pub fes: U16,
    /// Fatal error information (FEI): for invalid fields and unsupported parameters the field's
    /// byte offset in the PDU, for a header digest error the received digest; otherwise reserved.
    pub fei: U32,
    /// Reserved.
    pub reserved: [u8; 10],
}

const _: () = assert!(size_of::<TermReq>() == PduType::H2cTermReq.hlen_bytes());
const _: () = assert!(std::mem::offset_of!(TermReq, fei) == 10);

impl TermReq {
    /// The most bytes of the offending PDU that follow.
    pub const DATA_MAX_BYTES: usize = 128;

    /// A request of type `pdu_type` that is followed by `data_len_bytes` bytes of the offending
    /// PDU.
    pub fn new(pdu_type: PduType, violation: Violation, data_len_bytes: usize) -> Self {
        assert!(data_len_bytes <= Self::DATA_MAX_BYTES, "at most 128 bytes");
        let mut ch = Layout::default().common_header(pdu_type, PduFlags::NONE, 0);
        ch.plen = U32::new((size_of::<Self>() + data_len_bytes) as u32);
        Self {
            ch,
            fes: U16::new(violation.fes as u16),
            fei: U32::new(violation.fei),
            reserved: [0; 10],
        }
    }
}

/// Fatal error status (FES), 16 bits: why a connection is terminated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[repr(u16)]
pub enum Fes {
    /// A field of the PDU header is invalid; FEI is its offset.
    #[error("invalid PDU header field")]
    InvalidPduHeaderField = 0x01,
    /// A PDU of this type is not allowed in this state.
    #[error("PDU sequence error")]
    PduSequenceError = 0x02,
    /// The header digest is wrong; FEI is the received digest.
    #[error("header digest error")]
    HeaderDigestError = 0x03,
    /// Data outside of the requested range.
    #[error("data transfer out of range")]
    DataTransferOutOfRange = 0x04,
    /// More data than allowed (to the controller); more R2Ts than allowed (to the host).
    #[error("data transfer or R2T limit exceeded")]
    LimitExceeded = 0x05,
    /// A parameter is not supported; FEI is the field's offset.
    #[error("unsupported parameter")]
    UnsupportedParameter = 0x06,
}

impl Fes {
    /// The status with this number, if any.
    pub const fn from_u16(number: u16) -> Option<Self> {
        Some(match number {
            0x01 => Self::InvalidPduHeaderField,
            0x02 => Self::PduSequenceError,
            0x03 => Self::HeaderDigestError,
            0x04 => Self::DataTransferOutOfRange,
            0x05 => Self::LimitExceeded,
            0x06 => Self::UnsupportedParameter,
            _ => return None,
        })
    }
}

/// How a PDU broke the protocol, as a terminate connection request reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{fes} (information {fei:#x})")]
pub struct Violation {
    /// Fatal error status (FES).
    pub fes: Fes,
    /// Fatal error information (FEI).
    pub fei: u32,
}
