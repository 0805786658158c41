//! Requests for a connection.

use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{CommId, Gid, MESSAGE_LEN_BYTES, ServiceId, TimeCode};
use crate::wire::{PKEY_DEFAULT, PathMtu, Psn, Qpn, U24};

/// Request for a connection (REQ), 232 bytes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Req {
    /// Local communication ID.
    pub local_comm_id: U32,
    /// Reserved, and the vendor identifier of enhanced connection establishment; 0 here.
    pub vendor: U32,
    /// Service ID.
    pub service_id: U64,
    /// Local channel adapter GUID (CA GUID): names the sender's process here.
    pub ca_guid: U64,
    /// Reserved.
    pub reserved_24: U32,
    /// Local queue key: 0 for connected queue pairs.
    pub qkey: U32,
    /// Local queue pair.
    pub qpn: U24,
    /// Responder resources: outstanding RDMA READs and atomics that the sender accepts.
    pub responder_resources: u8,
    /// Local end-to-end context number; 0.
    pub eecn: U24,
    /// Initiator depth: the most RDMA READs and atomics that the sender has outstanding.
    pub initiator_depth: u8,
    /// Remote end-to-end context number; 0.
    pub remote_eecn: U24,
    /// Bits 7:3 remote CM response timeout, bits 2:1 transport service (0 reliable connected), bit
    /// 0 end-to-end flow control.
    pub remote_timeout: u8,
    /// Starting PSN: the first that the sender expects to receive.
    pub starting_psn: U24,
    /// Bits 7:3 local CM response timeout, bits 2:0 retry count.
    pub local_timeout: u8,
    /// Partition key.
    pub pkey: U16,
    /// Bits 7:4 path MTU, bit 3 reliable datagram channel, bits 2:0 RNR retry count.
    pub mtu: u8,
    /// Bits 7:4 most retries of CM messages, bit 3 shared receive queue, bits 2:0 extended
    /// transport type.
    pub retries: u8,
    /// The path to use.
    pub primary: Path,
    /// The path to fail over to; zeros: none.
    pub alternate: Path,
    /// Private data: rdma_cm's header first.
    pub private_data: [u8; 92],
}

const _: () = assert!(size_of::<Req>() == MESSAGE_LEN_BYTES);
const _: () = assert!(std::mem::offset_of!(Req, qpn) == 32);
const _: () = assert!(std::mem::offset_of!(Req, starting_psn) == 44);
const _: () = assert!(std::mem::offset_of!(Req, primary) == 52);
const _: () = assert!(std::mem::offset_of!(Req, private_data) == 140);

/// A path of a request, 44 bytes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Path {
    /// Local port's local identifier (LID): 0xFFFF on RoCE.
    pub local_lid: U16,
    /// Remote port's local identifier: 0xFFFF on RoCE.
    pub remote_lid: U16,
    /// Local port's GID.
    pub local_gid: Gid,
    /// Remote port's GID.
    pub remote_gid: Gid,
    /// Bits 31:12 flow label, bits 5:0 packet rate.
    pub flow_label_rate: U32,
    /// Traffic class.
    pub traffic_class: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Bits 7:4 service level, bit 3 whether both ends are in one subnet.
    pub service_level: u8,
    /// Bits 7:3 local acknowledgement timeout.
    pub ack_timeout: u8,
}

const _: () = assert!(size_of::<Path>() == 44);
const _: () = assert!(std::mem::offset_of!(Path, flow_label_rate) == 36);

impl Path {
    /// The value of both LIDs on RoCE, which has no LIDs.
    const LID_PERMISSIVE: u16 = 0xFFFF;
    const HOP_LIMIT: u8 = 64;

    /// A path over RoCE.
    pub fn roce(local: Gid, remote: Gid, ack_timeout: TimeCode) -> Self {
        Self {
            local_lid: U16::new(Self::LID_PERMISSIVE),
            remote_lid: U16::new(Self::LID_PERMISSIVE),
            local_gid: local,
            remote_gid: remote,
            flow_label_rate: U32::ZERO,
            traffic_class: 0,
            hop_limit: Self::HOP_LIMIT,
            service_level: 0,
            ack_timeout: ack_timeout.exponent() << 3,
        }
    }
}

impl Req {
    /// A request for a reliable connection whose numbers are not filled in yet.
    pub fn reliable(service: ServiceId, primary: Path) -> Self {
        Self {
            service_id: U64::new(service.0),
            pkey: U16::new(PKEY_DEFAULT),
            primary,
            ..Self::new_zeroed()
        }
    }

    /// Local communication ID.
    pub const fn local(&self) -> CommId {
        CommId(self.local_comm_id.get())
    }

    /// The service.
    pub const fn service(&self) -> ServiceId {
        ServiceId(self.service_id.get())
    }

    /// Local queue pair.
    pub const fn qpn(&self) -> Qpn {
        Qpn::new(self.qpn.get())
    }

    /// The first PSN that the sender expects to receive.
    pub const fn starting_psn(&self) -> Psn {
        Psn::new(self.starting_psn.get())
    }

    /// Whether a reliable connection is requested: transport service 0, no extended type.
    pub const fn is_reliable_connected(&self) -> bool {
        matches!((self.remote_timeout >> 1 & 3, self.retries & 7), (0, 0))
    }

    /// The time within which the sender answers messages.
    pub const fn local_cm_timeout(&self) -> TimeCode {
        TimeCode::new(self.local_timeout >> 3)
    }

    /// The time within which the sender expects answers.
    pub const fn remote_cm_timeout(&self) -> TimeCode {
        TimeCode::new(self.remote_timeout >> 3)
    }

    /// Sets the CM response timeouts of both ends.
    pub const fn set_cm_timeouts(&mut self, timeout: TimeCode) {
        self.local_timeout = timeout.exponent() << 3 | self.local_timeout & 7;
        self.remote_timeout = timeout.exponent() << 3 | self.remote_timeout & 7;
    }

    /// How often a packet is retransmitted without progress, 0 to 7.
    pub const fn retry_count(&self) -> u8 {
        self.local_timeout & 7
    }

    /// How often a packet is retransmitted to a receiver that is not ready; 7: without end.
    pub const fn rnr_retry_count(&self) -> u8 {
        self.mtu & 7
    }

    /// Sets both retry counts, of 3 bits each.
    pub const fn set_retry_counts(&mut self, retry: u8, rnr_retry: u8) {
        self.local_timeout = self.local_timeout & !7 | retry & 7;
        self.mtu = self.mtu & !7 | rnr_retry & 7;
    }

    /// The path MTU; `None` if the code is reserved.
    pub fn path_mtu(&self) -> Option<PathMtu> {
        PathMtu::from_wire(self.mtu >> 4)
    }

    /// Sets the path MTU.
    pub const fn set_path_mtu(&mut self, mtu: PathMtu) {
        self.mtu = (mtu as u8) << 4 | self.mtu & 0xF;
    }

    /// How often CM messages are retransmitted, 0 to 15.
    pub const fn cm_retries_max(&self) -> u8 {
        self.retries >> 4
    }

    /// Sets how often CM messages are retransmitted.
    pub const fn set_cm_retries_max(&mut self, retries: u8) {
        self.retries = retries << 4 | self.retries & 0xF;
    }
}
