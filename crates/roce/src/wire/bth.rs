//! The base transport header.

use zerocopy::big_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{PKEY_DEFAULT, Psn, Qpn, U24};

/// Base transport header (BTH), 12 bytes: it opens every packet.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Bth {
    /// Operation code; see [`Opcode`](super::Opcode).
    pub opcode: u8,
    /// Bit 7 solicited event (SE), bit 6 migration request (MigReq), bits 5:4 pad count, bits 3:0
    /// transport header version.
    pub flags: u8,
    /// Partition key (P_Key): bit 15 full membership, bits 14:0 the partition.
    pub pkey: U16,
    /// Bit 7 forward and bit 6 backward congestion notification (FECN, BECN); the rest reserved.
    /// Not covered by the ICRC.
    pub congestion: u8,
    /// Destination queue pair.
    pub dest_qpn: U24,
    /// Bit 7 acknowledge request (AckReq); the rest reserved.
    pub ack: u8,
    /// Packet sequence number.
    pub psn: U24,
}

const _: () = assert!(size_of::<Bth>() == 12);
const _: () = assert!(std::mem::offset_of!(Bth, dest_qpn) == 5);
const _: () = assert!(std::mem::offset_of!(Bth, psn) == 9);

impl Bth {
    /// Backward explicit congestion notification, in [`Bth::congestion`].
    pub const BECN: u8 = 1 << 6;

    const SOLICITED: u8 = 1 << 7;
    const MIGRATED: u8 = 1 << 6;
    const ACK_REQUEST: u8 = 1 << 7;

    /// A header in the default partition, in the migrated state as adapters send it, without pad.
    pub const fn new(opcode: u8, dest: Qpn, psn: Psn) -> Self {
        Self {
            opcode,
            flags: Self::MIGRATED,
            pkey: U16::new(PKEY_DEFAULT),
            congestion: 0,
            dest_qpn: U24::new(dest.get()),
            ack: 0,
            psn: U24::new(psn.get()),
        }
    }

    /// The same, with pad bytes for a payload of `payload_len_bytes`.
    #[must_use]
    pub const fn with_pad_for(mut self, payload_len_bytes: u32) -> Self {
        self.flags |= (payload_len_bytes.wrapping_neg() as u8 & 3) << 4;
        self
    }

    /// The same, with the solicited event bit.
    #[must_use]
    pub const fn with_solicited_event(mut self) -> Self {
        self.flags |= Self::SOLICITED;
        self
    }

    /// The same, asking for an acknowledgement.
    #[must_use]
    pub const fn with_ack_request(mut self) -> Self {
        self.ack |= Self::ACK_REQUEST;
        self
    }

    /// Pad bytes between payload and ICRC, 0 to 3.
    pub const fn pad_len_bytes(&self) -> u32 {
        (self.flags >> 4 & 3) as u32
    }

    /// Transport header version (TVer): 0 is the only one.
    pub const fn transport_version(&self) -> u8 {
        self.flags & 0xF
    }

    /// Whether the receiver is asked to raise a completion event.
    pub const fn is_solicited(&self) -> bool {
        self.flags & Self::SOLICITED != 0
    }

    /// Whether an acknowledgement is requested.
    pub const fn wants_ack(&self) -> bool {
        self.ack & Self::ACK_REQUEST != 0
    }

    /// Destination queue pair.
    pub const fn dest(&self) -> Qpn {
        Qpn::new(self.dest_qpn.get())
    }

    /// Packet sequence number.
    pub const fn psn(&self) -> Psn {
        Psn::new(self.psn.get())
    }

    /// Whether the packet is of the default partition; the membership bit does not count.
    pub fn is_default_partition(&self) -> bool {
        self.pkey.get() & 0x7FFF == PKEY_DEFAULT & 0x7FFF
    }
}
