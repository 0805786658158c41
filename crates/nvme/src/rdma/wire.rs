//! Private data of the connection manager's messages, record format 0.
//!
//! Read first: NVMe RDMA Transport 1.0, "Fabric Dependent Settings", the tables on RDMA_CM private
//! data.

use zerocopy::little_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Record format (RECFMT) of all three.
pub const RECORD_FORMAT: u16 = 0;

/// The private data of a host's connection request, 32 bytes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct ConnectRequest {
    /// Record format (RECFMT): 0.
    pub record_format: U16,
    /// Queue ID (QID): 0 is the admin queue.
    pub queue: U16,
    /// RDMA QP Host Receive Queue Size (HRQSIZE): receives that the host keeps posted, entries.
    pub host_receives: U16,
    /// RDMA QP Host Send Queue Size (HSQSIZE): commands that the host may have sent, 0's based as
    /// SQSIZE is.
    pub host_sends_minus_1: U16,
    /// Controller ID (CNTLID) of an I/O queue; 0 if it is not stated.
    pub controller: U16,
    reserved: [u8; 22],
}

const _: () = assert!(size_of::<ConnectRequest>() == 32);
const _: () = assert!(std::mem::offset_of!(ConnectRequest, controller) == 8);

impl ConnectRequest {
    /// A request of record format 0.
    pub const fn new(queue: u16, entries: u16) -> Self {
        Self {
            record_format: U16::new(RECORD_FORMAT),
            queue: U16::new(queue),
            host_receives: U16::new(entries),
            host_sends_minus_1: U16::new(entries.saturating_sub(1)),
            controller: U16::ZERO,
            reserved: [0; 22],
        }
    }

    /// Commands that the host may have sent, entries.
    pub fn entries(&self) -> u32 {
        u32::from(self.host_sends_minus_1.get()) + 1
    }
}

/// The private data of a controller's reply that accepts the connection, 32 bytes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct ConnectReply {
    /// Record format (RECFMT): 0.
    pub record_format: U16,
    /// RDMA QP Controller Receive Queue Size (CRQSIZE): receives that the controller keeps posted,
    /// entries.
    pub controller_receives: U16,
    reserved: [u8; 28],
}

const _: () = assert!(size_of::<ConnectReply>() == 32);

impl ConnectReply {
    /// A reply of record format 0.
    pub const fn new(controller_receives: u16) -> Self {
        Self {
            record_format: U16::new(RECORD_FORMAT),
            controller_receives: U16::new(controller_receives),
            reserved: [0; 28],
        }
    }

    /// The reply in private data; `None` if they are too short or of another record format.
    pub fn parse(private_data: &[u8]) -> Option<Self> {
        let (reply, _) = Self::read_from_prefix(private_data).ok()?;
        (reply.record_format.get() == RECORD_FORMAT).then_some(reply)
    }
}

/// The private data of a controller's rejection, 4 bytes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct ConnectReject {
    /// Record format (RECFMT): 0.
    pub record_format: U16,
    /// Status (STS): see [`RejectStatus`].
    pub status: U16,
}

const _: () = assert!(size_of::<ConnectReject>() == 4);

impl ConnectReject {
    /// A rejection of record format 0.
    pub const fn new(status: RejectStatus) -> Self {
        Self {
            record_format: U16::new(RECORD_FORMAT),
            status: U16::new(status as u16),
        }
    }

    /// The rejection in private data; `None` if they are too short. Any record format is accepted.
    pub fn parse(private_data: &[u8]) -> Option<Self> {
        Some(Self::read_from_prefix(private_data).ok()?.0)
    }
}

/// Why a controller rejects a connection (STS).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[repr(u16)]
pub enum RejectStatus {
    /// The private data are too short.
    #[error("its private data are shorter than 32 bytes")]
    InvalidLength = 1,
    /// The record format is not known.
    #[error("its record format (RECFMT) is not 0")]
    InvalidRecordFormat = 2,
    /// The queue ID is invalid.
    #[error("its queue ID (QID) exceeds the controller's queues")]
    InvalidQueueId = 3,
    /// The submission queue is too short or too long.
    #[error("its send queue size (HSQSIZE) is out of range")]
    InvalidHostSends = 4,
    /// The host posts no receives, so it could not receive a completion.
    #[error("its receive queue size (HRQSIZE) is 0")]
    InvalidHostReceives = 5,
    /// No resources are left.
    #[error("no resources are left for another queue")]
    NoResources = 6,
    /// The host accepts no RDMA READ.
    #[error("it accepts no RDMA READ")]
    InvalidInboundReads = 7,
    /// The host requests too many outstanding RDMA READs.
    #[error("it requests too many outstanding RDMA READs")]
    InvalidOutboundReads = 8,
    /// The controller does not exist.
    #[error("its controller ID (CNTLID) does not exist")]
    InvalidControllerId = 9,
}

impl RejectStatus {
    /// The status with this number, if it is known.
    pub fn from_wire(status: u16) -> Option<Self> {
        let known = [
            Self::InvalidLength,
            Self::InvalidRecordFormat,
            Self::InvalidQueueId,
            Self::InvalidHostSends,
            Self::InvalidHostReceives,
            Self::NoResources,
            Self::InvalidInboundReads,
            Self::InvalidOutboundReads,
            Self::InvalidControllerId,
        ];
        known.into_iter().find(|known| *known as u16 == status)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_request_both_ways() {
        #[rustfmt::skip]
        let golden = [
            0x00, 0x00,             // RECFMT
            0x03, 0x00,             // QID 3
            0x80, 0x00,             // HRQSIZE 128
            0x7F, 0x00,             // HSQSIZE 127, 0's based
            0x05, 0x00,             // CNTLID 5
            0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        ];
        let mut request = ConnectRequest::new(3, 128);
        request.controller = U16::new(5);
        assert_eq!(request.as_bytes(), golden);
        let parsed = ConnectRequest::read_from_bytes(&golden).expect("32 bytes");
        assert_eq!((parsed, parsed.entries()), (request, 128));
    }

    /// Captured: Linux 6.12's nvme-rdma requests an I/O queue and an admin queue.
    #[test]
    fn requests_of_linux_are_read_and_written_alike() {
        for (bytes, queue, entries, controller) in [
            (*b"\x00\x00\x01\x00\x80\x00\x7F\x00\x01\x00", 1, 128, 1),
            (*b"\x00\x00\x00\x00\x20\x00\x1F\x00\x00\x00", 0, 32, 0),
        ] {
            let mut captured = [0; 32];
            captured[..bytes.len()].copy_from_slice(&bytes);
            let mut request = ConnectRequest::new(queue, entries);
            request.controller = U16::new(controller);
            assert_eq!(request.as_bytes(), captured);
            let parsed = ConnectRequest::read_from_bytes(&captured).expect("32 bytes");
            assert_eq!((parsed, parsed.entries()), (request, u32::from(entries)));
        }
    }

    #[test]
    fn golden_reply_and_reject_both_ways() {
        let mut golden = [0; 32];
        golden[2] = 0x80;
        assert_eq!(ConnectReply::new(128).as_bytes(), golden);
        let parsed = ConnectReply::parse(&golden).expect("32 bytes");
        assert_eq!(parsed.controller_receives.get(), 128);
        assert_eq!(ConnectReply::parse(&golden[..31]), None);
        golden[1] = 1;
        assert_eq!(ConnectReply::parse(&golden), None, "record format 256");
        let reject = ConnectReject::new(RejectStatus::InvalidHostSends);
        assert_eq!(reject.as_bytes(), [0, 0, 4, 0]);
        assert_eq!(ConnectReject::parse(&[0, 0, 4, 0, 9]), Some(reject));
        assert_eq!(ConnectReject::parse(&[0, 0, 4]), None);
    }
}
