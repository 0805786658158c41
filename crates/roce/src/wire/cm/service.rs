//! What rdma_cm adds: service identifiers for TCP ports, and a header with IP addresses in a
//! request's private data.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use zerocopy::big_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A service identifier, 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ServiceId(pub u64);

impl ServiceId {
    /// The identifiers of rdma_cm's TCP port space, without the port.
    const TCP_PORT_SPACE: u64 = 0x0000_0000_0106_0000;

    /// The service at a port of the TCP port space.
    pub const fn tcp(port: u16) -> Self {
        Self(Self::TCP_PORT_SPACE | port as u64)
    }

    /// The port, if the service is of the TCP port space.
    pub const fn tcp_port(self) -> Option<u16> {
        if self.0 & !0xFFFF == Self::TCP_PORT_SPACE {
            Some(self.0 as u16)
        } else {
            None
        }
    }
}

/// The header that rdma_cm puts before a request's private data, 36 bytes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct IpCmHeader {
    /// Version of this header: 0.
    pub version: u8,
    /// Bits 7:4 IP version, 4 or 6.
    pub ip_version: u8,
    /// The requester's port.
    pub source_port: U16,
    /// The requester's address; an IPv4 address is in the last 4 bytes.
    pub source: [u8; 16],
    /// The requested address.
    pub dest: [u8; 16],
}

const _: () = assert!(size_of::<IpCmHeader>() == 36);

impl IpCmHeader {
    /// The header of a request from `source` to `dest`, of one address family.
    pub fn new(source: SocketAddr, dest: IpAddr) -> Self {
        let ip_version = if source.is_ipv4() { 4 } else { 6 };
        Self {
            version: 0,
            ip_version: ip_version << 4,
            source_port: U16::new(source.port()),
            source: address_bytes(source.ip()),
            dest: address_bytes(dest),
        }
    }

    /// The requester's address and port, and the requested address; `None` if the version or IP
    /// version is unknown.
    pub fn addresses(&self) -> Option<(SocketAddr, IpAddr)> {
        if self.version != 0 {
            return None;
        }
        let address = |bytes: [u8; 16]| match self.ip_version >> 4 {
            4 => {
                let [.., a, b, c, d] = bytes;
                Some(IpAddr::V4(Ipv4Addr::new(a, b, c, d)))
            }
            6 => Some(IpAddr::V6(Ipv6Addr::from(bytes))),
            _ => None,
        };
        let source = address(self.source)?;
        Some((
            SocketAddr::new(source, self.source_port.get()),
            address(self.dest)?,
        ))
    }
}

fn address_bytes(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(ip) => {
            let mut bytes = [0; 16];
            bytes[12..].copy_from_slice(&ip.octets());
            bytes
        }
        IpAddr::V6(ip) => ip.octets(),
    }
}
