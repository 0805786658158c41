//! Socket addresses as the system has them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// A `sockaddr_in` or `sockaddr_in6`, byte by byte: families and IPv6's scope are in the machine's
/// order, ports and addresses in the network's.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(8))]
pub(super) struct Name {
    bytes: [u8; V6_LEN],
    len: usize,
}

const V4_FAMILY: libc::sa_family_t = 2;
const V6_FAMILY: libc::sa_family_t = 10;
const _: () = assert!(libc::AF_INET == 2 && libc::AF_INET6 == 10);
const V4_LEN: usize = size_of::<libc::sockaddr_in>();
const V6_LEN: usize = size_of::<libc::sockaddr_in6>();
const _: () = assert!(V4_LEN == 16 && V6_LEN == 28);

impl Name {
    /// The name of `address`.
    pub(super) fn of(address: SocketAddr) -> Self {
        let mut name = Self::room();
        name.bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
        let family = match address {
            SocketAddr::V4(v4) => {
                name.bytes[4..8].copy_from_slice(&v4.ip().octets());
                name.len = V4_LEN;
                V4_FAMILY
            }
            SocketAddr::V6(v6) => {
                name.bytes[4..8].copy_from_slice(&v6.flowinfo().to_ne_bytes());
                name.bytes[8..24].copy_from_slice(&v6.ip().octets());
                name.bytes[24..28].copy_from_slice(&v6.scope_id().to_ne_bytes());
                V6_FAMILY
            }
        };
        name.bytes[..2].copy_from_slice(&family.to_ne_bytes());
        name
    }

    /// Room for any name.
    pub(super) const fn room() -> Self {
        Self {
            bytes: [0; V6_LEN],
            len: V6_LEN,
        }
    }

    pub(super) const fn as_mut_ptr(&mut self) -> *mut u8 {
        self.bytes.as_mut_ptr()
    }

    pub(super) const fn len(&self) -> libc::socklen_t {
        self.len as libc::socklen_t
    }

    /// The system wrote `len` bytes.
    pub(super) fn set_len(&mut self, len: libc::socklen_t) {
        self.len = (len as usize).min(V6_LEN);
    }

    /// The address; `None` if it is no IP address.
    pub(super) fn address(&self) -> Option<SocketAddr> {
        let bytes = &self.bytes[..self.len];
        let family = libc::sa_family_t::from_ne_bytes(*bytes.first_chunk()?);
        let port = u16::from_be_bytes(*bytes.get(2..)?.first_chunk()?);
        let four = |at: usize| bytes.get(at..)?.first_chunk::<4>().copied();
        match family {
            V4_FAMILY => {
                let ip = Ipv4Addr::from(four(4)?);
                Some(SocketAddrV4::new(ip, port).into())
            }
            V6_FAMILY => {
                let ip: [u8; 16] = *bytes.get(8..)?.first_chunk()?;
                let flow = u32::from_ne_bytes(four(4)?);
                let scope = u32::from_ne_bytes(four(24)?);
                Some(SocketAddrV6::new(Ipv6Addr::from(ip), port, flow, scope).into())
            }
            _ => None,
        }
    }
}

/// An `in_pktinfo` or `in6_pktinfo` with the source address of a datagram; zeros let the system
/// choose the interface.
pub(super) fn packet_info(source: IpAddr) -> ([u8; 20], usize) {
    let mut bytes = [0; 20];
    match source {
        IpAddr::V4(ip) => {
            bytes[4..8].copy_from_slice(&ip.octets());
            (bytes, 12)
        }
        IpAddr::V6(ip) => {
            bytes[..16].copy_from_slice(&ip.octets());
            (bytes, 20)
        }
    }
}

const _: () = assert!(size_of::<libc::in_pktinfo>() == 12);
const _: () = assert!(size_of::<libc::in6_pktinfo>() == 20);
const _: () = assert!(std::mem::offset_of!(libc::in_pktinfo, ipi_spec_dst) == 4);
const _: () = assert!(std::mem::offset_of!(libc::in_pktinfo, ipi_addr) == 8);
