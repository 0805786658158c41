//! The header of a message, segments of chunks, and the private data of a connection request.
//!
//! Read first: RFC 8166 sections 4.1 to 4.3, RFC 8797 section 4.

use zerocopy::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The version of RPC-over-RDMA.
pub const VERSION: u32 = 1;

/// What a message is (rdma_proc).
pub mod procedure {
    /// RDMA_MSG: an RPC message follows the header.
    pub const MSG: u32 = 0;
    /// RDMA_NOMSG: the RPC message is in a chunk.
    pub const NOMSG: u32 = 1;
    /// RDMA_MSGP: not used.
    pub const MSGP: u32 = 2;
    /// RDMA_DONE: not used.
    pub const DONE: u32 = 3;
    /// RDMA_ERROR: the header of a call cannot be used.
    pub const ERROR: u32 = 4;
}

/// Why the header of a call cannot be used (rdma_errcode).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ErrorCode {
    /// ERR_VERS: its version is not served.
    Version = 1,
    /// ERR_CHUNK: it is malformed, or its chunks do not fit the call or the reply.
    Chunk = 2,
}

/// The part of a header that all versions have.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct FixedHeader {
    /// XID: the transaction identifier of the RPC message.
    pub xid: U32,
    /// Version: 1.
    pub version: U32,
    /// Credits: calls in flight that a requester asks for, or that a responder grants.
    pub credits: U32,
    /// [What the message is](procedure).
    pub procedure: U32,
}

const _: () = assert!(size_of::<FixedHeader>() == FIXED_BYTES);

/// The length of the fixed part in bytes.
pub const FIXED_BYTES: usize = 16;

/// Memory of the requester (xdr_rdma_segment).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Segment {
    /// Handle: the key to it.
    pub handle: U32,
    /// Length in bytes.
    pub len_bytes: U32,
    /// Offset: the address of its first byte.
    pub offset: U64,
}

const _: () = assert!(size_of::<Segment>() == SEGMENT_BYTES);

/// The length of a segment in bytes.
pub const SEGMENT_BYTES: usize = 16;

/// The private data of a connection request, and of the reply that accepts it (RFC 8797 section
/// 4.1).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct PrivateData {
    magic: U32,
    /// The version of this format: 1.
    version: u8,
    /// R, bit 0: the sender supports remote invalidation of its keys.
    flags: u8,
    /// Send size: the longest message that the sender sends, in units of 1024 bytes, 0's based.
    send_size: u8,
    /// Receive size: the longest message that it receives, in the same units.
    receive_size: u8,
}

const _: () = assert!(size_of::<PrivateData>() == 8);

/// Begins private data of this format.
const MAGIC: u32 = 0xF6AB_0E18;
/// The version of this format.
const FORMAT_VERSION: u8 = 1;
/// R.
const INVALIDATES: u8 = 1;
/// The unit of sizes in bytes, and the inline threshold of peers that send no private data (RFC
/// 8166 section 3.3.2).
pub const SIZE_UNIT_BYTES: u32 = 1024;

impl PrivateData {
    /// Private data of a peer that sends and receives messages of up to `message_bytes`, a multiple
    /// of 1024 up to 262,144.
    pub const fn new(message_bytes: u32, invalidates: bool) -> Self {
        let size = (message_bytes / SIZE_UNIT_BYTES - 1) as u8;
        Self {
            magic: U32::new(MAGIC),
            version: FORMAT_VERSION,
            flags: if invalidates { INVALIDATES } else { 0 },
            send_size: size,
            receive_size: size,
        }
    }

    /// The front of private data if it is of this format. What follows is padding.
    pub fn parse(bytes: &[u8]) -> Option<&Self> {
        let (data, _) = Self::ref_from_prefix(bytes).ok()?;
        (data.magic == MAGIC && data.version == FORMAT_VERSION).then_some(data)
    }

    /// Whether the sender supports remote invalidation of its keys.
    pub const fn invalidates(&self) -> bool {
        self.flags & INVALIDATES != 0
    }

    /// The longest message that the sender receives, in bytes.
    pub fn receive_bytes(&self) -> u32 {
        (u32::from(self.receive_size) + 1) * SIZE_UNIT_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_data_are_as_rfc_8797_lays_them_out() {
        let golden = [0xf6, 0xab, 0x0e, 0x18, 1, 1, 3, 3];
        assert_eq!(PrivateData::new(4096, true).as_bytes(), golden);
        let mut padded = golden.to_vec();
        padded.resize(56, 0);
        let parsed = PrivateData::parse(&padded).expect("valid");
        assert!(parsed.invalidates());
        assert_eq!(parsed.receive_bytes(), 4096);
        assert!(!PrivateData::new(1024, false).invalidates());
        let longest = PrivateData::parse(&[0xf6, 0xab, 0x0e, 0x18, 1, 0, 0xff, 0xff]);
        assert_eq!(longest.map(PrivateData::receive_bytes), Some(256 << 10));
    }

    #[test]
    fn other_private_data_are_ignored() {
        assert_eq!(PrivateData::parse(&[]), None);
        assert_eq!(PrivateData::parse(&[0xf6, 0xab, 0x0e, 0x18, 1, 1, 3]), None);
        assert_eq!(
            PrivateData::parse(&[0xf6, 0xab, 0x0e, 0x18, 2, 1, 3, 3]),
            None
        );
        assert_eq!(PrivateData::parse(&[0; 56]), None);
    }
}
