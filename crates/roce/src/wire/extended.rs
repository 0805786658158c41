//! The extended transport headers that stand between BTH and payload.

use zerocopy::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Qpn, Rkey, U24};

/// RDMA extended transport header (RETH), 16 bytes: which remote memory a READ or WRITE is about.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Reth {
    /// Virtual address (VA) of the first byte.
    pub va: U64,
    /// Remote key (R_Key) of the region.
    pub rkey: U32,
    /// DMA length in bytes, of the whole message.
    pub dma_len: U32,
}

const _: () = assert!(size_of::<Reth>() == 16);

impl Reth {
    /// The header of an operation on `len_bytes` bytes from `va` on.
    pub const fn new(va: u64, rkey: Rkey, len_bytes: u32) -> Self {
        Self {
            va: U64::new(va),
            rkey: U32::new(rkey.0),
            dma_len: U32::new(len_bytes),
        }
    }

    /// Remote key.
    pub const fn rkey(&self) -> Rkey {
        Rkey(self.rkey.get())
    }
}

/// Datagram extended transport header (DETH), 8 bytes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Deth {
    /// Queue key (Q_Key) of the receiver.
    pub qkey: U32,
    /// Reserved.
    pub reserved: u8,
    /// Source queue pair.
    pub source_qpn: U24,
}

const _: () = assert!(size_of::<Deth>() == 8);

impl Deth {
    /// The header of a datagram from `source` to a receiver with `qkey`.
    pub const fn new(qkey: u32, source: Qpn) -> Self {
        Self {
            qkey: U32::new(qkey),
            reserved: 0,
            source_qpn: U24::new(source.get()),
        }
    }
}

/// Immediate data (ImmDt), 4 bytes, opaque to the transport.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct ImmDt {
    /// The data; the application defines their meaning.
    pub data: U32,
}

/// Invalidate extended transport header (IETH), 4 bytes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Ieth {
    /// Remote key (R_Key) to invalidate.
    pub rkey: U32,
}

/// Atomic extended transport header (AtomicETH), 28 bytes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct AtomicEth {
    /// Virtual address (VA) of the 8 bytes; a multiple of 8.
    pub va: U64,
    /// Remote key (R_Key) of the region.
    pub rkey: U32,
    /// The value to swap in or to add.
    pub swap_or_add: U64,
    /// The value to compare with; unused by fetch-and-add.
    pub compare: U64,
}

const _: () = assert!(size_of::<AtomicEth>() == 28);
const _: () = assert!(std::mem::offset_of!(AtomicEth, swap_or_add) == 12);

/// Atomic acknowledge extended transport header (AtomicAckETH), 8 bytes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct AtomicAckEth {
    /// The 8 bytes before the operation.
    pub original: U64,
}

const _: () = assert!(size_of::<AtomicAckEth>() == 8);
