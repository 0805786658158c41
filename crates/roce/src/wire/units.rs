//! Numbers of the transport, kept apart by type.

use std::fmt;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A 24-bit integer, big-endian.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
)]
#[repr(C)]
pub struct U24([u8; 3]);

impl U24 {
    /// The low 24 bits of `value`.
    pub const fn new(value: u32) -> Self {
        let [_, a, b, c] = value.to_be_bytes();
        Self([a, b, c])
    }

    /// The value.
    pub const fn get(self) -> u32 {
        let [a, b, c] = self.0;
        u32::from_be_bytes([0, a, b, c])
    }
}

/// A packet sequence number (PSN), 24 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Psn(u32);

impl Psn {
    /// The low 24 bits of `value`.
    pub const fn new(value: u32) -> Self {
        Self(value & 0x00FF_FFFF)
    }

    /// The number.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The PSN of the packet with the unbounded sequence number `sequence`.
    pub const fn from_sequence(sequence: u64) -> Self {
        Self::new(sequence as u32)
    }

    /// The unbounded sequence number nearest to `near` whose PSN this is; `None` if it would be
    /// below 0.
    pub const fn to_sequence(self, near: u64) -> Option<u64> {
        // Half of the 24-bit space counts as ahead, the other half as behind.
        let ahead = self.0.wrapping_sub(near as u32) & 0x00FF_FFFF;
        if ahead < 1 << 23 {
            Some(near + ahead as u64)
        } else {
            near.checked_sub((1 << 24) - ahead as u64)
        }
    }
}

/// A queue pair number (QPN), 24 bits.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Qpn(u32);

impl Qpn {
    /// The general services interface.
    pub const GSI: Self = Self(1);

    /// The low 24 bits of `value`.
    pub const fn new(value: u32) -> Self {
        Self(value & 0x00FF_FFFF)
    }

    /// The number.
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Debug for Qpn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Qpn({:#x})", self.0)
    }
}

/// A remote key (R_Key), by which a peer accesses a region.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rkey(pub u32);

impl fmt::Debug for Rkey {
    /// Keys are secrets between two ends, so logs do not show them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Rkey(..)")
    }
}

/// The payload of a full packet on a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum PathMtu {
    /// 256 bytes.
    B256 = 1,
    /// 512 bytes.
    B512 = 2,
    /// 1024 bytes.
    B1024 = 3,
    /// 2048 bytes.
    B2048 = 4,
    /// 4096 bytes.
    B4096 = 5,
}

impl PathMtu {
    /// All of them, ascending.
    pub const ALL: [Self; 5] = [
        Self::B256,
        Self::B512,
        Self::B1024,
        Self::B2048,
        Self::B4096,
    ];

    /// The meaning of the connection manager's 4-bit field; `None` if it is reserved.
    pub fn from_wire(value: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|mtu| *mtu as u8 == value)
    }

    /// Payload bytes of a full packet.
    pub const fn bytes(self) -> u32 {
        // This is needed for every packet, so a table replaces the computation.
        const BYTES: [u32; 6] = [0, 256, 512, 1024, 2048, 4096];
        BYTES[self as usize]
    }

    /// The largest path MTU whose packets fit a network with IP packets of up to `ip_mtu_bytes`,
    /// with the room that Linux leaves for headers; `None` below 352 bytes.
    pub fn for_network(ip_mtu_bytes: u32) -> Option<Self> {
        Self::ALL
            .into_iter()
            .rev()
            .find(|mtu| mtu.bytes() + HEADROOM_BYTES <= ip_mtu_bytes)
    }

    /// How many packets a message of `len_bytes` needs: at least one.
    pub const fn packets(self, len_bytes: u32) -> u32 {
        // Most messages fit into one packet, which needs no division.
        if len_bytes <= self.bytes() {
            1
        } else {
            len_bytes.div_ceil(self.bytes())
        }
    }
}

/// What Linux subtracts from a network's MTU to find the path MTU.
const HEADROOM_BYTES: u32 = 96;
