//! Threads for RDMA: one per local address, which all portals at that address share.
//!
//! RoCEv2 has one UDP port. What listens there belongs to an address, not to a portal: connections to portals of several
//! protocols and ports come in together and are told apart by the connection manager.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fabric::runtime::{MessageAcceptor, Runtime, RuntimeError, RuntimeOptions};
use fabric::{Soft, SoftOptions};

use super::Core;
use crate::{PortalDefinition, ServerError};

/// The UDP port of RoCEv2.
const ROCE_UDP_PORT: u16 = 4791;

/// The threads, by address.
pub(super) struct Rdma {
    udp_port: u16,
    runtimes: Mutex<BTreeMap<IpAddr, Runtime>>,
}

impl Rdma {
    /// No threads yet; those that come use this UDP port.
    pub(super) fn new(udp_port: Option<u16>) -> Self {
        Self {
            udp_port: udp_port.unwrap_or(ROCE_UDP_PORT),
            runtimes: Mutex::default(),
        }
    }

    /// Takes connections to a portal from now on. The first portal at an address starts its thread.
    pub(super) fn listen(
        &self,
        portal: &PortalDefinition,
        acceptor: Arc<dyn MessageAcceptor>,
        core: &Core,
    ) -> Result<(), ServerError> {
        let (ip, port) = (portal.address.ip(), portal.address.port());
        if port == 0 {
            return Err(ServerError::RdmaPort(*portal));
        }
        let fault = |source| ServerError::Rdma {
            portal: *portal,
            udp_port: self.udp_port,
            source: Box::new(source),
        };
        let mut runtimes = self.runtimes();
        if runtimes.get(&ip).is_some_and(Runtime::has_ended) {
            runtimes.remove(&ip);
        }
        if let Some(runtime) = runtimes.get(&ip) {
            runtime.listen(port, acceptor).map_err(fault)?;
            return Ok(());
        }
        let runtime = self.start(ip, core).map_err(fault)?;
        runtime.listen(port, acceptor).map_err(fault)?;
        runtimes.insert(ip, runtime);
        Ok(())
    }

    /// Ends what came through a portal. With the last one at an address ends its thread.
    pub(super) fn unlisten(&self, address: SocketAddr) {
        let mut runtimes = self.runtimes();
        if let Some(runtime) = runtimes.get(&address.ip()) {
            runtime.unlisten(address.port());
            if runtime.is_unused() {
                runtimes.remove(&address.ip());
            }
        }
    }

    /// Stops all threads, as [`Runtime::stop`].
    pub(super) fn stop(&self, patience: Duration) {
        let runtimes = self.runtimes();
        std::thread::scope(|scope| {
            for runtime in runtimes.values() {
                scope.spawn(move || runtime.stop(patience));
            }
        });
    }

    fn start(&self, ip: IpAddr, core: &Core) -> Result<Runtime, RuntimeError> {
        let soft = SoftOptions::at(SocketAddr::new(ip, self.udp_port));
        Runtime::start(
            move || Ok(Soft::bind(&soft)?),
            &core.handle,
            Arc::clone(&core.budget),
            RuntimeOptions::default(),
        )
    }

    /// Each change of the map is one call.
    fn runtimes(&self) -> MutexGuard<'_, BTreeMap<IpAddr, Runtime>> {
        self.runtimes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
