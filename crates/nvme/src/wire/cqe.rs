//! The completion queue entry.

use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Cid, Status};

/// A completion queue entry (CQE), 16 bytes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Cqe {
    /// Command specific result (DW0 in the low half, DW1 in the high one).
    pub result: U64,
    /// SQ Head Pointer (SQHD); reserved in Fabrics where flow control is disabled.
    pub sq_head: U16,
    /// SQ Identifier (SQID); reserved in Fabrics.
    pub sq_id: U16,
    /// Command Identifier (CID) of the command that this completes.
    pub cid: U16,
    /// Phase tag in bit 0 (0 in Fabrics), Status Field in bits 15:1.
    status: U16,
}

const _: () = assert!(size_of::<Cqe>() == 16);

impl Cqe {
    /// The completion of `cid`; `sq_head` and `sq_id` are 0.
    pub fn new(cid: Cid, status: Status, result: u64) -> Self {
        Self {
            result: U64::new(result),
            sq_head: U16::ZERO,
            sq_id: U16::ZERO,
            cid: U16::new(cid.0),
            status: U16::new(status.field() << 1),
        }
    }

    /// The command that this completes.
    pub fn cid(&self) -> Cid {
        Cid(self.cid.get())
    }

    /// The status, without the phase tag.
    pub fn status(&self) -> Status {
        Status::from_field(self.status.get() >> 1)
    }

    /// DW0 of the result.
    pub fn dw0(&self) -> u32 {
        self.result.get() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::StatusCode;

    #[rustfmt::skip]
    const GOLDEN: [u8; 16] = [
        0x00, 0x01, 0x01, 0x00, // DW0: attribute 1 (data), offset 256
        0x00, 0x00, 0x00, 0x00, // DW1
        0x07, 0x00,             // SQHD 7
        0x00, 0x00,             // SQID
        0x34, 0x12,             // CID 0x1234
        0x04, 0x83,             // phase 0, SC 0x82, SCT 1, DNR
    ];

    #[test]
    fn golden_completion_both_ways() {
        let status = Status::from(StatusCode::ConnectInvalidParameters);
        let mut cqe = Cqe::new(Cid(0x1234), status, 0x1_0100);
        cqe.sq_head = U16::new(7);
        assert_eq!(cqe.as_bytes(), GOLDEN);
        let parsed = Cqe::read_from_bytes(&GOLDEN).expect("16 bytes");
        assert_eq!(parsed, cqe);
        assert_eq!(parsed.status(), status);
        assert_eq!(parsed.cid(), Cid(0x1234));
        assert_eq!(parsed.dw0(), 0x1_0100);
    }
}
