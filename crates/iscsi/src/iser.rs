//! iSER: iSCSI over RDMA (RFC 7145), the target's end.
//!
//! Read first: RFC 7145 §7 (which PDU becomes what), §9 (the iSER header).
//!
//! A control-type PDU travels as a message: an iSER header, the PDU's basic header segment, its
//! data. Data-In PDUs become RDMA WRITEs into the buffer that the command named, R2Ts become RDMA
//! READs out of it; neither is ever sent. Everything else (login, tasks, task management, text) is
//! that of the core (`target`), which does not know the difference.
//!
//! Not supported: sessions of several connections, and digests, which RFC 7145 leaves to the RDMA
//! transport.

mod session;
#[cfg(test)]
mod tests;
mod transmit;
pub mod wire;

pub use crate::params::rdma::{RdmaKeys, SEGMENT_LEN_MAX_BYTES};
pub use session::{Accepted, PeerError, TargetConfig, TargetSession, accept};
