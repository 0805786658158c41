//! The parts of a received PDU, from its common header.

use super::termreq::{TERM_PLEN_MAX_BYTES, TERM_PLEN_MIN_BYTES};
use super::{CommonHeader, DIGEST_LEN_BYTES, Fes, Layout, PduFlags, PduType, Receiver, Violation};

/// Where the parts of a received PDU are, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PduShape {
    /// The PDU's type.
    pub pdu_type: PduType,
    /// Header and header digest in bytes: they have to be received before the PDU is handled.
    pub header_bytes: usize,
    /// Where the data start, in bytes from the start of the PDU; if there is no data, its end.
    pub data_offset_bytes: usize,
    /// Length of the data in bytes, padding and digest not counted.
    pub data_len_bytes: usize,
    /// Data digest in bytes: 4 or 0.
    pub data_digest_bytes: usize,
}

impl PduShape {
    /// The length of the whole PDU (PLEN) in bytes.
    pub const fn plen_bytes(self) -> usize {
        self.data_offset_bytes + self.data_len_bytes + self.data_digest_bytes
    }
}

impl CommonHeader {
    const OFFSET_FLAGS: u32 = 1;
    const OFFSET_HLEN: u32 = 2;
    const OFFSET_PDO: u32 = 3;
    const OFFSET_PLEN: u32 = 4;

    /// Checks a received common header in the order of its fields: type known and meant for
    /// `receiver`, digest flags as negotiated, HLEN as the type fixes it, PDO behind the header and
    /// aligned, PLEN long enough for header, padding and digests. Limits of the data's length are
    /// not checked.
    pub fn shape(self, receiver: Receiver, layout: Layout) -> Result<PduShape, Violation> {
        let invalid = |offset| Violation {
            fes: Fes::InvalidPduHeaderField,
            fei: offset,
        };
        let pdu_type = PduType::from_u8(self.pdu_type).ok_or(invalid(0))?;
        if pdu_type.receiver() != receiver {
            return Err(invalid(0));
        }
        let hdgst = layout.dgst.header() && pdu_type.takes_header_digest();
        if self.flags.contains(PduFlags::HDGST) != hdgst {
            return Err(invalid(Self::OFFSET_FLAGS));
        }
        if usize::from(self.hlen) != pdu_type.hlen_bytes() {
            return Err(invalid(Self::OFFSET_HLEN));
        }
        let header_bytes = layout.header_bytes(pdu_type);
        let plen = self.plen.get() as usize;
        let mut shape = PduShape {
            pdu_type,
            header_bytes,
            data_offset_bytes: plen,
            data_len_bytes: 0,
            data_digest_bytes: 0,
        };
        match pdu_type {
            PduType::H2cTermReq | PduType::C2hTermReq => {
                if !(TERM_PLEN_MIN_BYTES..=TERM_PLEN_MAX_BYTES).contains(&plen) {
                    return Err(invalid(Self::OFFSET_PLEN));
                }
                shape.data_offset_bytes = header_bytes;
                shape.data_len_bytes = plen - header_bytes;
            }
            _ if plen > header_bytes && pdu_type.takes_data() => {
                self.shape_data(layout, plen, &mut shape)?;
            }
            _ if plen != header_bytes => return Err(invalid(Self::OFFSET_PLEN)),
            _ => {}
        }
        Ok(shape)
    }

    fn shape_data(
        self,
        layout: Layout,
        plen: usize,
        shape: &mut PduShape,
    ) -> Result<(), Violation> {
        let invalid = |offset| Violation {
            fes: Fes::InvalidPduHeaderField,
            fei: offset,
        };
        if self.flags.contains(PduFlags::DDGST) != layout.dgst.data() {
            return Err(invalid(Self::OFFSET_FLAGS));
        }
        let pdo = usize::from(self.pdo);
        if pdo < shape.header_bytes || pdo % layout.pda.bytes() != 0 {
            return Err(invalid(Self::OFFSET_PDO));
        }
        shape.data_digest_bytes = if layout.dgst.data() {
            DIGEST_LEN_BYTES
        } else {
            0
        };
        shape.data_offset_bytes = pdo;
        shape.data_len_bytes = plen
            .checked_sub(pdo + shape.data_digest_bytes)
            .filter(|&len| len > 0)
            .ok_or(invalid(Self::OFFSET_PLEN))?;
        Ok(())
    }
}
