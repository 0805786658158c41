//! The structures of NVMe and NVMe over Fabrics as they are on the wire: little-endian, without
//! padding.
//!
//! Read first: NVM Express Base 2.0, "Submission Queue Entry", "Completion Queue Entry", "SGL
//! Descriptor".

pub mod auth;
mod cqe;
pub mod discovery;
pub mod fabrics;
pub mod feature;
pub mod identify;
pub mod log;
mod nqn;
pub mod opcode;
pub mod reservation;
mod sqe;
mod status;

pub use cqe::Cqe;
pub use nqn::{NqnError, NqnWarning, check_nqn};
pub use sqe::{Cid, Fuse, Invalidate, Nsid, Psdt, Sgl, SglKind, Sqe};
pub use status::{Status, StatusCode};
