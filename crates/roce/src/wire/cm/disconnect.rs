//! The end of a connection's set-up, and of the connection.

use zerocopy::big_endian::U32;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{CommId, MESSAGE_LEN_BYTES};
use crate::wire::{Qpn, U24};

/// Ready to use (RTU), 232 bytes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Rtu {
    /// Local communication ID.
    pub local_comm_id: U32,
    /// Remote communication ID.
    pub remote_comm_id: U32,
    /// Private data.
    pub private_data: [u8; 224],
}

/// Disconnection request (DREQ), 232 bytes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Dreq {
    /// Local communication ID.
    pub local_comm_id: U32,
    /// Remote communication ID.
    pub remote_comm_id: U32,
    /// Remote queue pair: the receiver's.
    pub remote_qpn: U24,
    /// Reserved.
    pub reserved: u8,
    /// Private data.
    pub private_data: [u8; 220],
}

/// Disconnection reply (DREP), 232 bytes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Drep {
    /// Local communication ID.
    pub local_comm_id: U32,
    /// Remote communication ID.
    pub remote_comm_id: U32,
    /// Private data.
    pub private_data: [u8; 224],
}

const _: () = assert!(size_of::<Rtu>() == MESSAGE_LEN_BYTES);
const _: () = assert!(size_of::<Dreq>() == MESSAGE_LEN_BYTES);
const _: () = assert!(size_of::<Drep>() == MESSAGE_LEN_BYTES);
const _: () = assert!(std::mem::offset_of!(Dreq, remote_qpn) == 8);

impl Rtu {
    /// The message, without private data.
    pub fn new(local: CommId, remote: CommId) -> Self {
        Self {
            local_comm_id: U32::new(local.0),
            remote_comm_id: U32::new(remote.0),
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
}

impl Dreq {
    /// The message, without private data.
    pub fn new(local: CommId, remote: CommId, remote_qpn: Qpn) -> Self {
        Self {
            local_comm_id: U32::new(local.0),
            remote_comm_id: U32::new(remote.0),
            remote_qpn: U24::new(remote_qpn.get()),
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

    /// The receiver's queue pair.
    pub const fn remote_qpn(&self) -> Qpn {
        Qpn::new(self.remote_qpn.get())
    }
}

impl Drep {
    /// The message, without private data.
    pub fn new(local: CommId, remote: CommId) -> Self {
        Self {
            local_comm_id: U32::new(local.0),
            remote_comm_id: U32::new(remote.0),
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
}
