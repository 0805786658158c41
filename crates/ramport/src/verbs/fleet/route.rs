//! How clients of a fleet reach its targets.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use control::{Portal, PortalState, PortalView, RdmaProvider};
use server::Transport;

use crate::cli::Switch;
use crate::failure::Failure;
use crate::mistake::Mistake;
use crate::verbs::Daemon;

/// The clients of software RDMA have these addresses of this machine, since each process needs the
/// UDP port of RoCEv2 for itself.
const LOCAL_NETWORK: [u8; 2] = [127, 77];
/// Addresses in the last byte.
const HOSTS_PER_NETWORK: u16 = 250;

/// A portal of NVMe, by TCP or by RDMA.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    pub(crate) portal: PortalView,
    scheme: &'static str,
    address: SocketAddr,
}

/// The first open portal of NVMe over TCP, or over RDMA.
pub(crate) fn route(daemon: &Daemon, rdma: Switch) -> Result<Route, Failure> {
    let portals: Vec<PortalView> = daemon.client.get("/v1/portals")?;
    let transport = match rdma {
        Switch::Off => Transport::NvmeTcp,
        Switch::On => Transport::NvmeRdma,
    };
    let scheme = transport.scheme();
    let found = portals.into_iter().find_map(|portal| {
        let url: Portal = portal.url.parse().ok()?;
        let is_it = portal.state == PortalState::Open && url.0.transport == transport;
        is_it.then(|| Route {
            portal,
            scheme,
            address: reachable(url.0.address),
        })
    });
    found.ok_or_else(|| Mistake::NoRoute { scheme }.into())
}

/// An address of this machine that a portal at `address` has.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

impl Route {
    /// The URL of a target, for the client of this number, from 1.
    pub(super) fn url(&self, target: &str, client: u16) -> String {
        let Self {
            scheme, address, ..
        } = self;
        let url = format!("{scheme}://{address}/{target}?ns=1");
        if self.portal.provider == Some(RdmaProvider::Soft) && address.is_ipv4() {
            let [a, b] = LOCAL_NETWORK;
            let (c, d) = (client / HOSTS_PER_NETWORK, client % HOSTS_PER_NETWORK + 1);
            format!("{url}&rdma=soft&local={a}.{b}.{c}.{d}")
        } else {
            url
        }
    }
}
