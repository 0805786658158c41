//! From which address of this machine a controller is reached, and how long packets may be on the
//! way.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    process,
    sync::atomic::{AtomicU32, Ordering},
};

use fabric::SoftOptions;
use fabric::verbs::PathMtu;
use rustix::net::sockopt::{ip_mtu, ipv6_mtu};

/// The way to a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// From this address.
    Address { local: IpAddr, path_mtu: PathMtu },
    /// Through loopback, from any address of it but the controller's own; the system would take
    /// `local`.
    AnyLoopback { local: IpAddr, path_mtu: PathMtu },
}

impl Route {
    /// The way that the system takes to `peer`.
    pub(super) fn to(peer: SocketAddr) -> io::Result<Self> {
        let any: IpAddr = match peer {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let (local, path_mtu) = probe(any, peer)?;
        // The controller has the port of its own address already.
        let is_inside = local.is_loopback() || local == peer.ip();
        if is_inside && local.is_ipv4() {
            return Ok(Self::AnyLoopback { local, path_mtu });
        }
        Ok(Self::Address { local, path_mtu })
    }

    /// The way from a certain address.
    pub(super) fn from(local: IpAddr, peer: SocketAddr) -> io::Result<Self> {
        let (local, path_mtu) = probe(local, peer)?;
        Ok(Self::Address { local, path_mtu })
    }

    /// The address that the system would come from.
    pub(super) fn local(self) -> IpAddr {
        let (Self::Address { local, .. } | Self::AnyLoopback { local, .. }) = self;
        local
    }

    /// What a provider for it is like, at the address that is given then.
    pub(super) fn options(self) -> impl Fn(IpAddr) -> SoftOptions {
        let (Self::Address { path_mtu, .. } | Self::AnyLoopback { path_mtu, .. }) = self;
        move |local| SoftOptions {
            path_mtu,
            qps_max: QPS_MAX,
            ..SoftOptions::at_ip(local)
        }
    }
}

/// Queues of a device and those that take their places after a loss.
const QPS_MAX: u32 = 1 << 16;

/// Addresses of loopback to try, in an order of this process's own, so that processes rarely meet.
pub(super) fn loopback_addresses() -> impl Iterator<Item = IpAddr> {
    const TRIES: u32 = 1000;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    (0..TRIES).map(|_| {
        let number = process::id()
            .wrapping_mul(251)
            .wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        // 127.64.0.1 and up: those that people give to targets are below.
        Ipv4Addr::new(
            127,
            64 + (number >> 16 & 63) as u8,
            (number >> 8) as u8,
            number as u8,
        )
        .into()
    })
}

/// The address that datagrams to `peer` come from, and the longest payload of RDMA packets that
/// fits on the way.
fn probe(local: IpAddr, peer: SocketAddr) -> io::Result<(IpAddr, PathMtu)> {
    let socket = UdpSocket::bind((local, 0))?;
    socket.connect(peer)?;
    let mtu_bytes = match peer {
        SocketAddr::V4(_) => ip_mtu(&socket),
        SocketAddr::V6(_) => ipv6_mtu(&socket),
    };
    // A system that does not say is taken to have what every Ethernet has.
    let mtu_bytes = mtu_bytes.unwrap_or(ETHERNET_MTU_BYTES);
    let path_mtu = PathMtu::for_network(mtu_bytes).unwrap_or(PathMtu::B256);
    Ok((socket.local_addr()?.ip(), path_mtu))
}

const ETHERNET_MTU_BYTES: u32 = 1500;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_reached_from_any_address_of_it() {
        let peer = "127.0.0.1:4420".parse().expect("an address");
        let route = Route::to(peer).expect("loopback is there");
        let path_mtu = PathMtu::B4096;
        let own = "127.0.0.1".parse().expect("an address");
        assert_eq!(
            route,
            Route::AnyLoopback {
                local: own,
                path_mtu
            }
        );
        let local = "127.0.0.77".parse().expect("an address");
        let route = Route::from(local, peer).expect("loopback is there");
        assert_eq!(route, Route::Address { local, path_mtu });
        let tried: Vec<IpAddr> = loopback_addresses().take(500).collect();
        let mut different = tried.clone();
        different.sort();
        different.dedup();
        assert_eq!(different.len(), tried.len());
        assert!(tried.iter().all(IpAddr::is_loopback));
    }
}
