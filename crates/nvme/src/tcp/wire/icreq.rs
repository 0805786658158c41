//! Initialize connection request.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{CommonHeader, Dgst, Layout, PFV, Pda, PduFlags, PduType};

/// Initialize connection request (ICReq), 128 bytes: the first PDU of a connection, from the host.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct IcReq {
    /// Common header (CH).
    pub ch: CommonHeader,
    /// PDU format version (PFV).
    pub pfv: U16,
    /// Host PDU data alignment (HPDA): the alignment of data in C2HData.
    pub hpda: Pda,
    /// Digests that the host requests (DGST).
    pub dgst: Dgst,
    /// Maximum number of outstanding R2Ts per command (MAXR2T), 0's-based.
    pub maxr2t: U32,
    /// Reserved.
    pub reserved: [u8; 112],
}

const _: () = assert!(size_of::<IcReq>() == PduType::IcReq.hlen_bytes());
const _: () = assert!(std::mem::offset_of!(IcReq, maxr2t) == 12);

impl IcReq {
    /// Byte offsets of fields, for the fatal error information of a termination.
    pub const OFFSET_PFV: u32 = 8;
    /// See [`OFFSET_PFV`](Self::OFFSET_PFV).
    pub const OFFSET_HPDA: u32 = 10;
    /// See [`OFFSET_PFV`](Self::OFFSET_PFV).
    pub const OFFSET_DGST: u32 = 11;

    /// A request for this alignment and these digests. `r2ts_max` is 1's-based and at least 1.
    pub fn new(hpda: Pda, dgst: Dgst, r2ts_max: u32) -> Self {
        Self {
            ch: Layout::default().common_header(PduType::IcReq, PduFlags::NONE, 0),
            pfv: U16::new(PFV),
            hpda,
            dgst,
            maxr2t: U32::new(r2ts_max.saturating_sub(1)),
            reserved: [0; 112],
        }
    }

    /// The most R2Ts that may be outstanding for one command: 1's-based.
    pub fn r2ts_max(&self) -> u64 {
        u64::from(self.maxr2t.get()) + 1
    }
}
