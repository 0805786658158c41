//! The protocol data units (PDUs) of NVMe/TCP 1.1, shared by both ends.
//!
//! Every PDU is `header [header digest] [padding] [data] [data digest]`. The header starts with a
//! [`CommonHeader`], whose [`shape`](CommonHeader::shape) says, checked, where the other parts are.
//! All integers are little-endian.

mod capsule;
mod common;
mod data;
mod digest;
mod icreq;
mod icresp;
mod r2t;
mod shape;
mod termreq;

pub use capsule::{CapsuleCmd, CapsuleResp};
pub use common::{CommonHeader, Dgst, Layout, Pda, PduFlags, PduType, Receiver};
pub use data::{DataPdu, MAXH2CDATA_MIN_BYTES};
pub use digest::{DIGEST_LEN_BYTES, Digest};
pub use icreq::IcReq;
pub use icresp::IcResp;
pub use r2t::R2t;
pub use shape::PduShape;
pub use termreq::{Fes, TermReq, Violation};

/// The PDU format version that this crate speaks (PFV): NVMe/TCP 1.0 and 1.1 share format 0.
pub const PFV: u16 = 0;

/// The largest header of any PDU, digest not counted: that of ICReq and ICResp.
pub const HLEN_MAX_BYTES: usize = size_of::<IcReq>();

/// The most in-capsule data bytes of a command that every controller accepts on the admin queue
/// without negotiation.
pub const ADMIN_IN_CAPSULE_DATA_BYTES: u32 = 8192;

#[cfg(test)]
mod tests;
