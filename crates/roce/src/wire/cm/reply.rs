//! Replies to requests.

use zerocopy::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{CommId, MESSAGE_LEN_BYTES};
use crate::wire::{Psn, Qpn, U24};

/// Reply to a request for a connection (REP), 232 bytes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Rep {
    /// Local communication ID.
    pub local_comm_id: U32,
    /// Remote communication ID: the request's local one.
    pub remote_comm_id: U32,
    /// Local queue key: 0 for connected queue pairs.
    pub qkey: U32,
    /// Local queue pair.
    pub qpn: U24,
    /// Vendor identifier, high byte; 0 here.
    pub vendor_high: u8,
    /// Local end-to-end context number; 0.
    pub eecn: U24,
    /// Vendor identifier, middle byte; 0 here.
    pub vendor_middle: u8,
    /// Starting PSN: the first that the sender expects to receive.
    pub starting_psn: U24,
    /// Vendor identifier, low byte; 0 here.
    pub vendor_low: u8,
    /// Responder resources: outstanding RDMA READs and atomics that the sender accepts.
    pub responder_resources: u8,
    /// Initiator depth: the most RDMA READs and atomics that the sender has outstanding.
    pub initiator_depth: u8,
    /// Bits 7:3 target acknowledgement delay, bits 2:1 failover, bit 0 end-to-end flow control.
    pub ack_delay: u8,
    /// Bits 7:5 RNR retry count, bit 4 shared receive queue.
    pub rnr_retry: u8,
    /// Local channel adapter GUID.
    pub ca_guid: U64,
    /// Private data.
    pub private_data: [u8; 196],
}

const _: () = assert!(size_of::<Rep>() == MESSAGE_LEN_BYTES);
const _: () = assert!(std::mem::offset_of!(Rep, qpn) == 12);
const _: () = assert!(std::mem::offset_of!(Rep, starting_psn) == 20);
const _: () = assert!(std::mem::offset_of!(Rep, private_data) == 36);

impl Rep {
    /// Local communication ID.
    pub const fn local(&self) -> CommId {
        CommId(self.local_comm_id.get())
    }

    /// Remote communication ID.
    pub const fn remote(&self) -> CommId {
        CommId(self.remote_comm_id.get())
    }

    /// Local queue pair.
    pub const fn qpn(&self) -> Qpn {
        Qpn::new(self.qpn.get())
    }

    /// The first PSN that the sender expects to receive.
    pub const fn starting_psn(&self) -> Psn {
        Psn::new(self.starting_psn.get())
    }

    /// How often a packet is retransmitted to a receiver that is not ready; 7: without end.
    pub const fn rnr_retry_count(&self) -> u8 {
        self.rnr_retry >> 5
    }

    /// Sets the RNR retry count, of 3 bits.
    pub const fn set_rnr_retry_count(&mut self, count: u8) {
        self.rnr_retry = count << 5 | self.rnr_retry & 0x1F;
    }
}
