//! Initialize connection response.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{CommonHeader, Dgst, Layout, PFV, Pda, PduFlags, PduType};

/// Initialize connection response (ICResp), 128 bytes: the controller's answer to ICReq.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct IcResp {
    /// Common header (CH).
    pub ch: CommonHeader,
    /// PDU format version (PFV).
    pub pfv: U16,
    /// Controller PDU data alignment (CPDA): the alignment of data in CapsuleCmd and H2CData.
    pub cpda: Pda,
    /// Digests in use from now on (DGST).
    pub dgst: Dgst,
    /// Maximum host to controller data length (MAXH2CDATA): the most data bytes of one H2CData, a
    /// multiple of 4, at least 4096.
    pub maxh2cdata: U32,
    /// Reserved.
    pub reserved: [u8; 112],
}

const _: () = assert!(size_of::<IcResp>() == PduType::IcResp.hlen_bytes());
const _: () = assert!(std::mem::offset_of!(IcResp, maxh2cdata) == 12);

impl IcResp {
    /// A response with this alignment, these digests and this MAXH2CDATA.
    pub fn new(cpda: Pda, dgst: Dgst, maxh2cdata_bytes: u32) -> Self {
        Self {
            ch: Layout::default().common_header(PduType::IcResp, PduFlags::NONE, 0),
            pfv: U16::new(PFV),
            cpda,
            dgst,
            maxh2cdata: U32::new(maxh2cdata_bytes),
            reserved: [0; 112],
        }
    }
}
