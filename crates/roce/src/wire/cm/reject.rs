//! Rejections, and acknowledgements that a message has arrived while its answer takes time.

use zerocopy::big_endian::{U16, U32};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{CommId, MESSAGE_LEN_BYTES, TimeCode};

/// Rejection (REJ), 232 bytes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Rej {
    /// Local communication ID; 0 if the sender has not assigned one yet.
    pub local_comm_id: U32,
    /// Remote communication ID.
    pub remote_comm_id: U32,
    /// Bits 7:6 which message is rejected.
    pub message: u8,
    /// Bits 7:1 length of the additional information in bytes.
    pub info_len: u8,
    /// Reason; see [`RejReason`].
    pub reason: U16,
    /// Additional reject information (ARI), whose meaning depends on the reason.
    pub info: [u8; 72],
    /// Private data.
    pub private_data: [u8; 148],
}

const _: () = assert!(size_of::<Rej>() == MESSAGE_LEN_BYTES);
const _: () = assert!(std::mem::offset_of!(Rej, reason) == 10);
const _: () = assert!(std::mem::offset_of!(Rej, private_data) == 84);

/// Which message a rejection is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RejectedMessage {
    /// A request.
    Req = 0,
    /// A reply.
    Rep = 1,
    /// No message: a timeout, for example.
    Other = 2,
}

/// Why a connection is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RejReason(pub u16);

impl RejReason {
    /// No more connections, memory or other resources.
    pub const NO_RESOURCES: Self = Self(3);
    /// No answer in time.
    pub const TIMEOUT: Self = Self(4);
    /// The request is not supported.
    pub const UNSUPPORTED: Self = Self(5);
    /// No connection has this communication ID.
    pub const INVALID_COMM_ID: Self = Self(6);
    /// No one listens for this service ID.
    pub const INVALID_SERVICE_ID: Self = Self(8);
    /// The receiver does not have this transport service.
    pub const INVALID_TRANSPORT: Self = Self(9);
    /// The queue pair or communication ID belongs to a connection that still exists at the
    /// receiver.
    pub const STALE_CONNECTION: Self = Self(10);
    /// A GID is not the one that the datagram was sent from or to.
    pub const INVALID_GID: Self = Self(12);
    /// The path MTU is larger than the receiver's.
    pub const INVALID_MTU: Self = Self(26);
    /// The application rejected the request; the private data have its reason.
    pub const CONSUMER: Self = Self(28);
}

impl Rej {
    /// A rejection from `local` to `remote`, with up to 148 bytes of private data.
    ///
    /// # Panics
    /// If there are more.
    pub fn new(
        local: CommId,
        remote: CommId,
        message: RejectedMessage,
        reason: RejReason,
        private_data: &[u8],
    ) -> Self {
        let mut rej = Self {
            local_comm_id: U32::new(local.0),
            remote_comm_id: U32::new(remote.0),
            message: (message as u8) << 6,
            reason: U16::new(reason.0),
            ..Self::new_zeroed()
        };
        rej.private_data[..private_data.len()].copy_from_slice(private_data);
        rej
    }

    /// Local communication ID.
    pub const fn local(&self) -> CommId {
        CommId(self.local_comm_id.get())
    }

    /// Remote communication ID.
    pub const fn remote(&self) -> CommId {
        CommId(self.remote_comm_id.get())
    }

    /// Why.
    pub const fn reason(&self) -> RejReason {
        RejReason(self.reason.get())
    }
}

/// Message receipt acknowledgement (MRA), 232 bytes: the answer to a message takes time.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Mra {
    /// Local communication ID.
    pub local_comm_id: U32,
    /// Remote communication ID.
    pub remote_comm_id: U32,
    /// Bits 7:6 which message is acknowledged.
    pub message: u8,
    /// Bits 7:3 service timeout: how long the answer may take.
    pub service_timeout: u8,
    /// Private data.
    pub private_data: [u8; 222],
}

const _: () = assert!(size_of::<Mra>() == MESSAGE_LEN_BYTES);

/// Which message is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum MraMessage {
    /// A request.
    Req = 0,
    /// A reply.
    Rep = 1,
}

impl Mra {
    /// An acknowledgement from `local` to `remote`.
    pub fn new(local: CommId, remote: CommId, message: MraMessage, timeout: TimeCode) -> Self {
        Self {
            local_comm_id: U32::new(local.0),
            remote_comm_id: U32::new(remote.0),
            message: (message as u8) << 6,
            service_timeout: timeout.exponent() << 3,
            ..Self::new_zeroed()
        }
    }

    /// Local communication ID.
    pub const fn local(&self) -> CommId {
        CommId(self.local_comm_id.get())
    }

    /// Remote communication ID.
    pub const fn remote(&self) -> CommId {
        CommId(self.remote_comm_id.get())
    }

    /// How long the answer may take.
    pub const fn service_timeout(&self) -> TimeCode {
        TimeCode::new(self.service_timeout >> 3)
    }
}
