//! The ways to the volume that are compared.

use std::fmt;
use std::net::IpAddr;

use bench::Source;
use control::Portal;

use crate::failure::Failure;

/// The target's name over NVMe and BRP.
pub(super) const NQN: &str = "nqn.2025-01.io.ramport:study-brp";
/// The target's name over iSCSI and SRP.
pub(super) const IQN: &str = "iqn.2025-01.io.ramport:study-brp";

/// What carries the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Network {
    /// RDMA by an adapter.
    Adapter,
    /// RDMA by software.
    Software,
    /// TCP.
    Tcp,
}

/// A protocol, and how it is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Way {
    /// What the report calls it.
    pub(super) name: &'static str,
    scheme: &'static str,
    /// The target, and the number of its volume where that belongs to the path.
    path: Path,
    query: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Path {
    Nqn,
    Lun,
}

const fn way(name: &'static str, scheme: &'static str, path: Path, query: &'static str) -> Way {
    Way {
        name,
        scheme,
        path,
        query,
    }
}

/// The names of ways that goals and comparisons refer to.
pub(super) const SRP: &str = "SRP";
pub(super) const BRP_3: &str = "BRP-3";
pub(super) const NVME_RDMA: &str = "NVMe/RDMA";

/// By RDMA.
const RDMA: &[Way] = &[
    way(SRP, "srp", Path::Lun, ""),
    way("BRP-1", "brp+rdma", Path::Nqn, "step=1"),
    way("BRP-2", "brp+rdma", Path::Nqn, "step=2"),
    way(BRP_3, "brp+rdma", Path::Nqn, "step=3"),
    way(NVME_RDMA, "nvme+rdma", Path::Nqn, ""),
];
/// By TCP.
const TCP: &[Way] = &[
    way("BRP-1", "brp", Path::Nqn, "step=1"),
    way("BRP-2", "brp", Path::Nqn, "step=2"),
    way(BRP_3, "brp", Path::Nqn, "step=3"),
    way("NVMe/TCP", "nvme+tcp", Path::Nqn, ""),
    way("iSCSI", "iscsi", Path::Lun, ""),
];
/// Joined replies, by RDMA.
const MERGE_RDMA: &[Way] = &[
    way("BRP-2", "brp+rdma", Path::Nqn, "step=2"),
    way(BRP_3, "brp+rdma", Path::Nqn, "step=3"),
    way("always merge", "brp+rdma", Path::Nqn, "step=3&merge=always"),
];
/// Joined replies, by TCP.
const MERGE_TCP: &[Way] = &[
    way("BRP-2", "brp", Path::Nqn, "step=2"),
    way(BRP_3, "brp", Path::Nqn, "step=3"),
    way("always merge", "brp", Path::Nqn, "step=3&merge=always"),
];

impl Network {
    pub(super) const ALL: [Self; 3] = [Self::Adapter, Self::Software, Self::Tcp];

    /// The ways that it carries.
    pub(super) const fn ways(self) -> &'static [Way] {
        match self {
            Self::Adapter | Self::Software => RDMA,
            Self::Tcp => TCP,
        }
    }

    /// The ways that show what joined replies gain and cost.
    pub(super) const fn merging_ways(self) -> &'static [Way] {
        match self {
            Self::Adapter | Self::Software => MERGE_RDMA,
            Self::Tcp => MERGE_TCP,
        }
    }

    /// The value of `rdma=`, if it is RDMA.
    const fn choice(self) -> Option<&'static str> {
        match self {
            Self::Adapter => Some("hw"),
            Self::Software => Some("soft"),
            Self::Tcp => None,
        }
    }

    /// The portals of its ways at `address`, each once.
    pub(super) fn portals(self, address: IpAddr) -> Result<Vec<Portal>, Failure> {
        let mut schemes: Vec<_> = self.ways().iter().map(|way| way.scheme).collect();
        schemes.dedup();
        let urls = schemes.into_iter().map(|scheme| {
            let host = host(address);
            match self.choice() {
                Some(choice) => format!("{scheme}://{host}?rdma={choice}"),
                None => format!("{scheme}://{host}"),
            }
        });
        urls.map(|url| url.parse().map_err(Failure::mistake))
            .collect()
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Adapter => "RDMA adapter",
            Self::Software => "software RDMA",
            Self::Tcp => "TCP",
        })
    }
}

impl Way {
    /// The volume, reached over `network` at `address`.
    pub(super) fn source(&self, network: Network, address: IpAddr) -> Result<Source, Failure> {
        let path = match self.path {
            Path::Nqn => NQN.to_owned(),
            Path::Lun => format!("{IQN}/0"),
        };
        let choice = network.choice().map(|choice| format!("rdma={choice}"));
        let own = (!self.query.is_empty()).then(|| self.query.to_owned());
        let query: Vec<_> = choice.into_iter().chain(own).collect();
        let url = format!(
            "{}://{}/{path}?{}",
            self.scheme,
            host(address),
            query.join("&")
        );
        url.parse().map_err(Failure::mistake)
    }
}

/// An address as URLs have it.
fn host(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_of_a_network_has_a_portal_and_a_source() {
        for address in ["192.0.2.1", "2001:db8::1"] {
            let address: IpAddr = address.parse().expect("an address");
            for network in Network::ALL {
                let portals = network.portals(address).expect("portals");
                let ways = network.ways().iter().chain(network.merging_ways());
                for way in ways {
                    let source = way.source(network, address).expect("a source");
                    let scheme = format!("{}://", way.scheme);
                    assert!(source.to_string().starts_with(&scheme), "{source}");
                    let of_way = portals
                        .iter()
                        .filter(|portal| portal.to_string().starts_with(&scheme));
                    assert_eq!(of_way.count(), 1, "{}", way.name);
                }
            }
        }
    }
}
