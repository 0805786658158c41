//! The messages of communication management (CM), and what rdma_cm puts into them.
//!
//! Read first: InfiniBand Architecture volume 1, chapter 12, and annex A11 (RDMA IP CM service).
//!
//! A message fills the 232 bytes of a MAD after its header. "Local" and "remote" in a field's name
//! are from its sender's point of view. A starting PSN is the one that the message's *sender*
//! expects to receive first.

mod disconnect;
mod reject;
mod reply;
mod request;
mod service;

use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{MAD_LEN_BYTES, MadHeader};

pub use disconnect::{Drep, Dreq, Rtu};
pub use reject::{Mra, MraMessage, Rej, RejReason, RejectedMessage};
pub use reply::Rep;
pub use request::{Path, Req};
pub use service::{IpCmHeader, ServiceId};

/// The length of a message, the MAD's header not counted.
pub const MESSAGE_LEN_BYTES: usize = MAD_LEN_BYTES - size_of::<MadHeader>();

/// A message of communication management.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// Request for a connection.
    Req(Req),
    /// Message receipt acknowledgement.
    Mra(Mra),
    /// Rejection.
    Rej(Rej),
    /// Reply to a request.
    Rep(Rep),
    /// Ready to use.
    Rtu(Rtu),
    /// Disconnection request.
    Dreq(Dreq),
    /// Disconnection reply.
    Drep(Drep),
}

/// Why a MAD is not a message of communication management. It is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadMad {
    /// Not 256 bytes.
    #[error("a management datagram has {0} bytes instead of 256")]
    Length(usize),
    /// Another class, version or method.
    #[error("not a message of communication management")]
    Class,
    /// A message that this crate does not support.
    #[error("unknown communication management attribute {0:#06x}")]
    Attribute(u16),
}

impl Message {
    const REQ: u16 = 0x10;
    const MRA: u16 = 0x11;
    const REJ: u16 = 0x12;
    const REP: u16 = 0x13;
    const RTU: u16 = 0x14;
    const DREQ: u16 = 0x15;
    const DREP: u16 = 0x16;

    /// The message of a MAD, and its transaction identifier.
    pub fn parse(mad: &[u8]) -> Result<(u64, Self), BadMad> {
        let mad: &[u8; MAD_LEN_BYTES] = mad.try_into().map_err(|_| BadMad::Length(mad.len()))?;
        let (header, body) =
            MadHeader::read_from_prefix(mad).map_err(|_| BadMad::Length(mad.len()))?;
        if !header.is_communication() {
            return Err(BadMad::Class);
        }
        let message = match header.attribute.get() {
            Self::REQ => Self::Req(whole(body)?),
            Self::MRA => Self::Mra(whole(body)?),
            Self::REJ => Self::Rej(whole(body)?),
            Self::REP => Self::Rep(whole(body)?),
            Self::RTU => Self::Rtu(whole(body)?),
            Self::DREQ => Self::Dreq(whole(body)?),
            Self::DREP => Self::Drep(whole(body)?),
            other => return Err(BadMad::Attribute(other)),
        };
        Ok((header.tid.get(), message))
    }

    /// The MAD.
    pub fn to_mad(&self, tid: u64) -> [u8; MAD_LEN_BYTES] {
        let (attribute, body) = match self {
            Self::Req(body) => (Self::REQ, body.as_bytes()),
            Self::Mra(body) => (Self::MRA, body.as_bytes()),
            Self::Rej(body) => (Self::REJ, body.as_bytes()),
            Self::Rep(body) => (Self::REP, body.as_bytes()),
            Self::Rtu(body) => (Self::RTU, body.as_bytes()),
            Self::Dreq(body) => (Self::DREQ, body.as_bytes()),
            Self::Drep(body) => (Self::DREP, body.as_bytes()),
        };
        let mut mad = [0; MAD_LEN_BYTES];
        let (header, rest) = mad.split_at_mut(size_of::<MadHeader>());
        header.copy_from_slice(MadHeader::communication(attribute, tid).as_bytes());
        rest.copy_from_slice(body);
        mad
    }
}

fn whole<T: FromBytes + Immutable>(body: &[u8]) -> Result<T, BadMad> {
    T::read_from_bytes(body).map_err(|_| BadMad::Length(body.len()))
}

/// A communication identifier: names a connection at one end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommId(pub u32);

/// A global identifier (GID), 128 bits: on RoCEv2 an IPv6 address, or an IPv4 address mapped into
/// one.
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
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// The identifier of an address.
    pub fn from_ip(ip: IpAddr) -> Self {
        Self(match ip {
            IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
            IpAddr::V6(ip) => ip.octets(),
        })
    }

    /// The address.
    pub fn to_ip(self) -> IpAddr {
        Ipv6Addr::from(self.0).to_canonical()
    }
}

/// A time as these messages carry it: 4.096 µs times a power of two, of 5 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TimeCode(u8);

impl TimeCode {
    /// The low 5 bits of `exponent`.
    pub const fn new(exponent: u8) -> Self {
        Self(exponent & 0x1F)
    }

    /// The exponent.
    pub const fn exponent(self) -> u8 {
        self.0
    }

    /// The time; at most 2.5 hours.
    pub const fn duration(self) -> Duration {
        Duration::from_nanos(4096 << self.0)
    }
}
