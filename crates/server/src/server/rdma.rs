//! RDMA threads: all portals at one local address share the threads of that address.
//!
//! RoCEv2 has one UDP port. Its sockets belong to an address, not to a portal: connections to
//! portals of several protocols and ports arrive at the same sockets, and the connection manager
//! distinguishes them.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fabric::runtime::{MessageAcceptor, Meter, RuntimeError, RuntimeGroup, RuntimeOptions};
use fabric::{AnyProvider, Opened, Segmentation, Soft, SoftOptions};
use net::ThreadUsage;

use super::Core;
use crate::{PortalDefinition, RdmaChoice, RdmaInfo, RdmaProvider, ServerConfig, ServerError};

/// The UDP port of RoCEv2.
const ROCE_UDP_PORT: u16 = 4791;

/// The most threads per address by default.
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

/// The threads of an address, and their description for its portals.
struct Serving {
    group: RuntimeGroup,
    binding: RdmaBinding,
}

/// The RDMA service of an address: the number of its threads, their provider and their counters.
#[derive(Clone, Debug)]
pub(super) struct RdmaBinding {
    pub(super) id: ServingId,
    pub(super) info: RdmaInfo,
    pub(super) meter: Meter,
}

/// Identifies the threads of an address. It is never used twice, because the threads of a portal
/// may have failed and others may serve its address.
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

    /// Accepts connections to a portal from now on. The first portal at an address starts its
    /// threads with the provider that it requests; later portals use that provider, or are
    /// rejected.
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
        for thread in group.usage() {
            core.threads.start(thread.index);
        }
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

    /// Ends the connections of a portal, and the threads of its address if it was the last portal
    /// there.
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

    /// The threads by address, with the CPU time that they have used.
    pub(super) fn usage(&self) -> Vec<ThreadUsage> {
        let served = self.served();
        let threads = served.by_address.iter().flat_map(|(ip, serving)| {
            let at_address = move |thread: ThreadUsage| ThreadUsage {
                name: format!("{} {ip}", thread.name),
                ..thread
            };
            serving.group.usage().into_iter().map(at_address)
        });
        threads.collect()
    }

    /// Stops all threads, like [`Runtime::stop`].
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

    /// Each change of the map is one call, so a poisoned lock is used.
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

/// Half of the cores. The rest is for the reactors and the system, which spends as much time per
/// packet as these threads.
fn threads_by_cores() -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    (cores / 2).clamp(1, THREADS_DEFAULT_MAX)
}

/// Whether a portal accepts a provider that exists already.
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
