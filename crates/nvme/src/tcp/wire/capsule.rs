//! Command and response capsules.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{CommonHeader, PduType};

/// Command capsule (CapsuleCmd), 72 bytes; in-capsule data may follow.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct CapsuleCmd {
    /// Common header (CH).
    pub ch: CommonHeader,
    /// The submission queue entry (SQE).
    pub sqe: [u8; 64],
}

const _: () = assert!(size_of::<CapsuleCmd>() == PduType::CapsuleCmd.hlen_bytes());

/// Response capsule (CapsuleResp), 24 bytes; it never has data.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct CapsuleResp {
    /// Common header (CH).
    pub ch: CommonHeader,
    /// The completion queue entry (CQE).
    pub cqe: [u8; 16],
}

const _: () = assert!(size_of::<CapsuleResp>() == PduType::CapsuleResp.hlen_bytes());
