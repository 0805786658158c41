//! Portals: where protocols listen, and what creates sessions for their connections.

use std::net::SocketAddr;
use std::sync::Arc;

use fabric::runtime::MessageAcceptor;
use net::{Acceptor, ListenerId};
use nvme::controller::PortalNumber;

use super::brp::BrpPortal;
use super::iscsi::{IscsiPortal, IscsiPortalId};
use super::nfs::{NfsPortal, NfsPortalId};
use super::nvme::{NvmePortal, NvmePortalId};
use super::rdma::RdmaBinding;
use super::srp::SrpPortal;
use super::{Server, State};
use crate::counters::Totals;
use crate::nfs::SHARED_BYTES;
use crate::{
    IoStatistics, PortalAuth, PortalDefinition, PortalInfo, RdmaChoice, RdmaInfo, ServerError,
    TlsPolicy, Transport,
};

/// An open portal.
pub(super) struct PortalEntry {
    pub(super) port: PortalNumber,
    listening: Listening,
    /// What was done through it.
    totals: Arc<Totals>,
}

/// What accepts a portal's connections.
#[derive(Debug)]
enum Listening {
    /// The reactors.
    Tcp(ListenerId),
    /// A thread of its own.
    Udp(PortalNumber),
    /// The RDMA threads of its address.
    Rdma(RdmaBinding),
}

impl PortalEntry {
    /// The RDMA provider; `None` for transports without RDMA.
    pub(super) fn rdma(&self) -> Option<&RdmaInfo> {
        self.binding().map(|binding| &binding.info)
    }

    fn binding(&self) -> Option<&RdmaBinding> {
        match &self.listening {
            Listening::Tcp(_) | Listening::Udp(_) => None,
            Listening::Rdma(binding) => Some(binding),
        }
    }
}

/// The most portals.
const PORTALS_MAX: usize = 256;

impl Server {
    /// Opens a portal and returns it with its real port (port 0 lets the system choose). Fails for
    /// an address that other machines can reach while a target has no host list, or a share no
    /// client list.
    pub fn add_portal(&self, portal: PortalDefinition) -> Result<PortalDefinition, ServerError> {
        if portal.rdma != RdmaChoice::default() && !portal.transport.is_rdma() {
            return Err(ServerError::NoRdma(portal));
        }
        if portal.tls != TlsPolicy::Off && portal.transport != Transport::NvmeTcp {
            return Err(ServerError::NoTls(portal));
        }
        if portal.auth == PortalAuth::Required && !portal.transport.authenticates() {
            return Err(ServerError::NoAuthentication(portal));
        }
        self.forget_failed_portals();
        let port = {
            let mut state = self.state();
            state.check_new_portal(&portal)?;
            if portal.transport.is_nfs() && state.nfs_charge.is_none() {
                state.nfs_charge = Some(self.core().reserve(SHARED_BYTES)?);
            }
            state.take_port()
        };
        let totals = Arc::default();
        let (listening, address) = self.listen(&portal, port, &totals)?;
        let portal = PortalDefinition { address, ..portal };
        let mut state = self.state();
        // The state may have changed while the socket was opened. Do not call reactors under the
        // lock, since they may be waiting for it.
        if let Err(error) = state.check_new_portal(&portal) {
            drop(state);
            self.unlisten(&portal, &listening);
            return Err(error);
        }
        let entry = PortalEntry {
            port,
            listening,
            totals,
        };
        state.portals.insert(portal, entry);
        self.core().publish(&state);
        drop(state);
        if portal.admits_strangers() {
            warn_of_strangers(&portal);
        }
        Ok(portal)
    }

    /// Closes a portal and ends its connections.
    pub fn remove_portal(&self, portal: PortalDefinition) -> Result<(), ServerError> {
        let mut state = self.state();
        state.check_running()?;
        let Some(entry) = state.portals.remove(&portal) else {
            return Err(ServerError::UnknownPortal(portal));
        };
        self.core().publish(&state);
        drop(state);
        self.drop_through(entry.port);
        self.unlisten(&portal, &entry.listening);
        Ok(())
    }

    fn listen(
        &self,
        portal: &PortalDefinition,
        port: PortalNumber,
        totals: &Arc<Totals>,
    ) -> Result<(Listening, SocketAddr), ServerError> {
        let core = Arc::clone(self.core());
        let iscsi = |core| IscsiPortal {
            core,
            id: IscsiPortalId {
                port,
                transport: portal.transport,
                group: portal.group,
                auth: portal.auth,
                totals: Arc::clone(totals),
            },
        };
        let nvme = |core| NvmePortal {
            core,
            id: NvmePortalId {
                port,
                transport: portal.transport,
                auth: portal.auth,
                totals: Arc::clone(totals),
            },
            tls: None,
        };
        let nfs_id = NfsPortalId {
            port,
            transport: portal.transport,
            totals: Arc::clone(totals),
        };
        let nfs = |core, id| NfsPortal { core, id };
        let brp = |core| {
            let (transport, totals) = (portal.transport, Arc::clone(totals));
            BrpPortal::new(core, port, transport, totals)
        };
        let acceptor: Arc<dyn Acceptor> = match portal.transport {
            Transport::NvmeTcp => Arc::new(NvmePortal {
                tls: self.core().tls_of(portal)?,
                ..nvme(core)
            }),
            Transport::NvmeRdma => return self.listen_over_rdma(portal, nvme(core)),
            Transport::Iscsi => Arc::new(iscsi(core)),
            Transport::Iser => return self.listen_over_rdma(portal, iscsi(core)),
            Transport::Srp => return self.listen_over_rdma(portal, SrpPortal(iscsi(core))),
            Transport::Nfs => Arc::new(nfs(core, nfs_id)),
            Transport::NfsRdma => return self.listen_over_rdma(portal, nfs(core, nfs_id)),
            Transport::NfsUdp => return self.listen_for_datagrams(portal, nfs(core, nfs_id)),
            Transport::Brp => Arc::new(brp(core)),
            Transport::BrpRdma => return self.listen_over_rdma(portal, brp(core)),
        };
        let listened = self.shared.reactors.listen(portal.address, acceptor);
        let (listener, address) = listened.map_err(|source| ServerError::Listen {
            address: portal.address,
            source,
        })?;
        Ok((Listening::Tcp(listener), address))
    }

    fn listen_for_datagrams(
        &self,
        portal: &PortalDefinition,
        served: NfsPortal,
    ) -> Result<(Listening, SocketAddr), ServerError> {
        let port = served.id.port;
        let datagrams = &self.shared.datagrams;
        let listened = datagrams.listen(portal.address, served);
        let address = listened.map_err(|source| ServerError::Listen {
            address: portal.address,
            source,
        })?;
        Ok((Listening::Udp(port), address))
    }

    fn listen_over_rdma(
        &self,
        portal: &PortalDefinition,
        acceptor: impl MessageAcceptor + 'static,
    ) -> Result<(Listening, SocketAddr), ServerError> {
        let acceptor: Arc<dyn MessageAcceptor> = Arc::new(acceptor);
        let binding = self.shared.rdma.listen(portal, &acceptor, self.core())?;
        Ok((Listening::Rdma(binding), portal.address))
    }

    fn unlisten(&self, portal: &PortalDefinition, listening: &Listening) {
        match listening {
            Listening::Tcp(listener) => self.shared.reactors.unlisten(*listener),
            Listening::Udp(port) => self.shared.datagrams.unlisten(*port),
            Listening::Rdma(binding) => self.shared.rdma.unlisten(portal.address, binding.id),
        }
    }

    /// Removes portals whose RDMA provider has failed, for example because the adapter was removed:
    /// they no longer listen.
    fn forget_failed_portals(&self) {
        let over_rdma: Vec<_> = (self.state().portals.iter())
            .filter_map(|(portal, entry)| Some((*portal, entry.binding()?.id)))
            .collect();
        // Do not call threads under the state's lock, since they may be waiting for it.
        let rdma = &self.shared.rdma;
        let mut failed = over_rdma;
        failed.retain(|(portal, id)| !rdma.is_serving(portal.address.ip(), *id));
        if failed.is_empty() {
            return;
        }
        let mut state = self.state();
        for (portal, failed) in failed {
            let entry = state.portals.get(&portal);
            let binding = entry.and_then(PortalEntry::binding);
            if binding.is_some_and(|binding| binding.id == failed) {
                state.portals.remove(&portal);
            }
        }
        self.core().publish(&state);
    }

    /// Every open portal.
    pub fn portals(&self) -> Vec<PortalInfo> {
        self.forget_failed_portals();
        // Counters are summed without the lock, since connecting hosts wait for it.
        let open: Vec<_> = (self.state().portals.iter())
            .map(|(&definition, entry)| {
                let info = PortalInfo {
                    definition,
                    connections: self.core().registry.connections_of(entry.port),
                    rdma: entry.rdma().cloned(),
                    rdma_statistics: entry.binding().and_then(|binding| binding.meter.read()),
                    statistics: IoStatistics::default(),
                };
                (info, Arc::clone(&entry.totals))
            })
            .collect();
        let open = open.into_iter().map(|(info, totals)| PortalInfo {
            statistics: totals.sum(),
            ..info
        });
        open.collect()
    }
}

/// Logs that other machines reach a portal without proof of who they are.
fn warn_of_strangers(portal: &PortalDefinition) {
    let message = match portal.transport {
        Transport::Nfs | Transport::NfsUdp | Transport::NfsRdma => {
            "other machines reach this portal, whose shares know clients by address alone (sec=sys); keep it on a trusted network"
        }
        Transport::Brp | Transport::BrpRdma | Transport::Srp => {
            "other machines reach this portal, whose hosts are known by the name that they give and by address alone; keep it on a trusted network"
        }
        Transport::NvmeTcp => {
            "other machines reach this portal without authentication or TLS; require one with `ramport portal set URL --require-auth on` or `--tls required`"
        }
        _ => {
            "other machines reach this portal without authentication; require it with `ramport portal set URL --require-auth on`"
        }
    };
    tracing::warn!(%portal, "{message}");
}

impl State {
    fn check_new_portal(&self, portal: &PortalDefinition) -> Result<(), ServerError> {
        self.check_running()?;
        if let Some(open) = self.portals.keys().find(|open| open.is_beside(portal)) {
            return Err(ServerError::PortalExists(*open));
        }
        if self.portals.len() >= PORTALS_MAX {
            return Err(ServerError::TooMany {
                what: "portals",
                max: PORTALS_MAX,
            });
        }
        let targets = self.targets.values().map(|target| &target.definition);
        Self::check_exposure(targets, std::iter::once(portal))?;
        Self::check_share_exposure(self.share_definitions(), std::iter::once(portal))
    }

    /// A number that no portal has, and that no portal had recently.
    fn take_port(&mut self) -> PortalNumber {
        let is_taken = |port| self.portals.values().any(|entry| entry.port == port);
        let after = self.last_port;
        let port = (1..=u16::MAX)
            .map(|step| PortalNumber(after.wrapping_add(step)))
            .find(|&port| port.0 != 0 && !is_taken(port))
            .expect("there are more numbers than portals");
        self.last_port = port.0;
        port
    }
}
