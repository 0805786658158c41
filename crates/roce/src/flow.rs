//! Source and destination of datagrams.

use std::net::{IpAddr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// Addresses and UDP ports of the two ends of a stream of datagrams, of one address family: the
/// ICRC covers them, so they are exactly those in the headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flow {
    /// Over IPv4.
    V4 {
        /// The source.
        local: SocketAddrV4,
        /// The destination.
        remote: SocketAddrV4,
    },
    /// Over IPv6.
    V6 {
        /// The source.
        local: SocketAddrV6,
        /// The destination.
        remote: SocketAddrV6,
    },
}

impl Flow {
    /// The flow from `local` to `remote`. IPv4 addresses mapped into IPv6 are taken as the IPv4
    /// addresses that are on the wire. Returns `None` if the families differ.
    pub fn new(local: SocketAddr, remote: SocketAddr) -> Option<Self> {
        match (canonical(local), canonical(remote)) {
            (SocketAddr::V4(local), SocketAddr::V4(remote)) => Some(Self::V4 { local, remote }),
            (SocketAddr::V6(local), SocketAddr::V6(remote)) => Some(Self::V6 { local, remote }),
            _ => None,
        }
    }

    /// The source.
    pub const fn local(&self) -> SocketAddr {
        match *self {
            Self::V4 { local, .. } => SocketAddr::V4(local),
            Self::V6 { local, .. } => SocketAddr::V6(local),
        }
    }

    /// The destination.
    pub const fn remote(&self) -> SocketAddr {
        match *self {
            Self::V4 { remote, .. } => SocketAddr::V4(remote),
            Self::V6 { remote, .. } => SocketAddr::V6(remote),
        }
    }

    /// The other way round.
    #[must_use]
    pub const fn reversed(&self) -> Self {
        match *self {
            Self::V4 { local, remote } => Self::V4 {
                local: remote,
                remote: local,
            },
            Self::V6 { local, remote } => Self::V6 {
                local: remote,
                remote: local,
            },
        }
    }

    /// The flow by which a datagram of this flow is answered: the other way round, between the
    /// ports that both ends listen at.
    #[must_use]
    pub const fn answering(&self, port: u16) -> Self {
        let mut back = self.reversed();
        match &mut back {
            Self::V4 { local, remote } => {
                *local = SocketAddrV4::new(*local.ip(), port);
                *remote = SocketAddrV4::new(*remote.ip(), port);
            }
            Self::V6 { local, remote } => {
                let (flow, scope) = (local.flowinfo(), local.scope_id());
                *local = SocketAddrV6::new(*local.ip(), port, flow, scope);
                let (flow, scope) = (remote.flowinfo(), remote.scope_id());
                *remote = SocketAddrV6::new(*remote.ip(), port, flow, scope);
            }
        }
        back
    }

    /// Whether both are between the same two addresses in the same direction, whatever the ports.
    pub fn same_addresses(&self, other: &Self) -> bool {
        self.local().ip() == other.local().ip() && self.remote().ip() == other.remote().ip()
    }
}

/// `address`, or the IPv4 address that is mapped into it.
fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        IpAddr::V4(ip) => SocketAddr::new(IpAddr::V4(ip), address.port()),
        IpAddr::V6(_) => address,
    }
}
