//! Threads for RDMA: some per local address, which all portals at that address share.
//!
//! RoCEv2 has one UDP port. What listens there belongs to an address, not to a portal: connections
//! to portals of several protocols and ports come in together and are told apart by the connection
//! manager.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fabric::runtime::{MessageAcceptor, Meter, RuntimeError, RuntimeGroup, RuntimeOptions};
use fabric::{AnyProvider, Opened, Segmentation, Soft, SoftOptions};

use super::Core;
use crate::{PortalDefinition, RdmaChoice, RdmaInfo, RdmaProvider, ServerConfig, ServerError};

/// The UDP port of RoCEv2.
const ROCE_UDP_PORT: u16 = 4791;

/// The most threads per address, where nobody says how many.
const THREADS_DEFAULT_MAX: usize = 4;

/// The threads, by address.
pub(super) struct Rdma {
    udp_port: u16,
    /// Threads per address, in software.
    threads: usize,
    segmentation: Segmentation,
    served: Mutex<Served>,
}

#[derive(Default)]
struct Served {
    by_address: BTreeMap<IpAddr, Serving>,
    last: ServingId,
}

/// The threads of an address, and what its portals know of them.
struct Serving {
    group: RuntimeGroup,
    binding: RdmaBinding,
}

/// What carries RDMA at an address: the number of its threads, what their provider is, and what
/// they count.
#[derive(Clone, Debug)]
pub(super) struct RdmaBinding {
    pub(super) id: ServingId,
    pub(super) info: RdmaInfo,
    pub(super) meter: Meter,
}

/// The number of an address's threads, never used twice: a portal's may have failed, and others
/// serve its address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ServingId(u64);

impl Rdma {
    /// No threads yet.
    pub(super) fn new(config: &ServerConfig) -> Self {
        let threads = config.rdma_threads;
        Self {
            udp_port: config.rdma_udp_port.unwrap_or(ROCE_UDP_PORT),
            threads: threads.map_or_else(threads_by_cores, usize::from),
            segmentation: if config.rdma_gso_off {
                Segmentation::Off
            } else {
                Segmentation::On
            },
            served: Mutex::default(),
        }
    }

    /// Takes connections to a portal from now on. The first portal at an address starts its
    /// threads, with the provider that it asks for; those that follow take that one, or are
    /// refused.
    pub(super) fn listen(
        &self,
        portal: &PortalDefinition,
        acceptor: &Arc<dyn MessageAcceptor>,
        core: &Core,
    ) -> Result<RdmaBinding, ServerError> {
        let (ip, port) = (portal.address.ip(), portal.address.port());
        if port == 0 {
            return Err(ServerError::RdmaPort(*portal));
        }
        let fault = |source| ServerError::Rdma {
            portal: *portal,
            source: Box::new(source),
        };
        let mut served = self.served();
        served.forget_failed(ip);
        if let Some(Serving { group, binding }) = served.by_address.get(&ip) {
            let there = binding.info.provider;
            if !suits(portal.rdma, there) {
                return Err(ServerError::RdmaProvider {
                    portal: *portal,
                    served: there,
                });
            }
            group.listen(port, acceptor).map_err(fault)?;
            return Ok(binding.clone());
        }
        let (group, info) = self.start(portal, core).map_err(fault)?;
        group.listen(port, acceptor).map_err(fault)?;
        served.last.0 += 1;
        let binding = RdmaBinding {
            id: served.last,
            info,
            meter: group.meter(),
        };
        let told = binding.clone();
        served.by_address.insert(ip, Serving { group, binding });
        Ok(told)
    }

    /// Ends what came through a portal. With the last one at an address end its threads.
    pub(super) fn unlisten(&self, address: SocketAddr, id: ServingId) {
        let mut served = self.served();
        let ip = address.ip();
        served.forget_failed(ip);
        let serving = served.by_address.get(&ip);
        let mine = serving.filter(|serving| serving.binding.id == id);
        if let Some(Serving { group, .. }) = mine {
            group.unlisten(address.port());
            if group.is_unused() {
                served.by_address.remove(&ip);
            }
        }
    }

    /// Whether these threads still serve their address.
    pub(super) fn is_serving(&self, ip: IpAddr, id: ServingId) -> bool {
        let served = self.served();
        let serving = served.by_address.get(&ip);
        serving.is_some_and(|serving| serving.binding.id == id && !serving.group.has_ended())
    }

    /// Stops all threads, as [`Runtime::stop`].
    pub(super) fn stop(&self, patience: Duration) {
        let served = self.served();
        std::thread::scope(|scope| {
            for Serving { group, .. } in served.by_address.values() {
                scope.spawn(move || group.stop(patience));
            }
        });
    }

    fn start(
        &self,
        portal: &PortalDefinition,
        core: &Core,
    ) -> Result<(RuntimeGroup, RdmaInfo), RuntimeError> {
        let soft = SoftOptions {
            segmentation: self.segmentation,
            ..SoftOptions::at(SocketAddr::new(portal.address.ip(), self.udp_port))
        };
        let Opened { provider, reason } = fabric::open_several(portal.rdma, &soft, self.threads)?;
        let info = RdmaInfo {
            provider: provider.kind(),
            link_layer: provider.link_layer(),
            segmentation: match &provider {
                AnyProvider::Hw(_) => None,
                AnyProvider::Soft(threads) => threads.first().map(Soft::segmentation),
            },
            reason,
        };
        let (budget, options) = (&core.budget, RuntimeOptions::default());
        let group = match provider {
            AnyProvider::Hw(hw) => RuntimeGroup::start(vec![*hw], &core.handle, budget, &options)?,
            AnyProvider::Soft(soft) => RuntimeGroup::start(soft, &core.handle, budget, &options)?,
        };
        Ok((group, info))
    }

    /// Each change of the map is one call.
    fn served(&self) -> MutexGuard<'_, Served> {
        self.served.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Served {
    fn forget_failed(&mut self, ip: IpAddr) {
        let serving = self.by_address.get(&ip);
        if serving.is_some_and(|serving| serving.group.has_ended()) {
            self.by_address.remove(&ip);
        }
    }
}

/// Half of the cores: the others' are the reactors' and the system's, which works as much for each
/// packet as we do.
fn threads_by_cores() -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    (cores / 2).clamp(1, THREADS_DEFAULT_MAX)
}

/// Whether a portal takes a provider that is there already.
fn suits(asked: RdmaChoice, there: RdmaProvider) -> bool {
    match asked {
        RdmaChoice::Auto => true,
        RdmaChoice::Hw => there == RdmaProvider::Hw,
        RdmaChoice::Soft => there == RdmaProvider::Soft,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_portal_takes_what_it_asked_for_and_auto_takes_what_is_there() {
        use RdmaChoice::{Auto, Hw, Soft};
        for (asked, takes) in [
            (Auto, [true, true]),
            (Hw, [true, false]),
            (Soft, [false, true]),
        ] {
            let there = [RdmaProvider::Hw, RdmaProvider::Soft];
            assert_eq!(there.map(|there| suits(asked, there)), takes, "{asked}");
        }
    }
}
