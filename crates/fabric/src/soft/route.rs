//! How long packets to a peer may be.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};

use roce::wire::{PathMtu, UDP_PORT};
use rustix::net::sockopt::{ip_mtu, ipv6_mtu};

/// A socket that sends nothing. Connecting it makes the system look up the route, whose MTU the
/// socket then reports. The socket that sends packets cannot report it, since it is not connected.
#[derive(Debug)]
pub(super) struct Route(UdpSocket);

impl Route {
    /// For peers that are reached from `local`.
    pub(super) fn from(local: IpAddr) -> io::Result<Self> {
        Ok(Self(UdpSocket::bind(SocketAddr::new(local, 0))?))
    }

    /// The largest path MTU of packets to `peer`.
    pub(super) fn path_mtu(&self, peer: IpAddr) -> io::Result<PathMtu> {
        self.0.connect(SocketAddr::new(peer, UDP_PORT))?;
        let ip_mtu_bytes = match peer {
            IpAddr::V4(_) => ip_mtu(&self.0)?,
            IpAddr::V6(_) => ipv6_mtu(&self.0)?,
        };
        Ok(PathMtu::for_network(ip_mtu_bytes).unwrap_or(PathMtu::B256))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_takes_the_longest_packets() {
        for address in ["127.0.0.1", "::1"] {
            let address: IpAddr = address.parse().expect("an address");
            let route = Route::from(address).expect("loopback is here");
            assert_eq!(route.path_mtu(address).expect("a route"), PathMtu::B4096);
        }
    }
}
