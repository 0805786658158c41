//! The headers of RoCEv2, shared by both ends.
//!
//! Read first: InfiniBand Architecture volume 1, the chapters on the transport layer and on
//! communication management, and annex A17 (RoCEv2).
//!
//! A datagram to UDP port 4791 is `BTH [extended headers] [payload] [pad] ICRC`; [`Packet::parse`]
//! splits and checks it. All integers except the ICRC are big-endian.

mod aeth;
mod bth;
pub mod cm;
mod extended;
mod icrc;
mod mad;
mod opcode;
mod packet;
mod units;

pub use aeth::{Aeth, NakCode, RnrTimer, Syndrome};
pub use bth::Bth;
pub use extended::{AtomicAckEth, AtomicEth, Deth, Ieth, ImmDt, Reth};
pub use icrc::{Icrc, IpHeader, Ipv4Identification, verify};
pub use mad::{MAD_LEN_BYTES, MadHeader};
pub use opcode::{AtomicOpcode, Opcode, Position, SendTail, WriteTail};
pub use packet::{Extended, Malformed, Packet};
pub use units::{PathMtu, Psn, Qpn, Rkey, U24};

/// The UDP port that RoCEv2 datagrams are sent to.
pub const UDP_PORT: u16 = 4791;

/// The length of the invariant CRC (ICRC) that ends every datagram.
pub const ICRC_LEN_BYTES: usize = 4;

/// The longest headers of a packet that this crate sends: BTH, RETH, ImmDt.
pub const HEADERS_LEN_MAX_BYTES: usize = size_of::<Bth>() + size_of::<Reth>() + size_of::<ImmDt>();

/// The partition key of the default partition with full membership.
pub const PKEY_DEFAULT: u16 = 0xFFFF;

/// The queue key of the general services interface, queue pair 1.
pub const QKEY_GSI: u32 = 0x8001_0000;

#[cfg(test)]
mod tests;
