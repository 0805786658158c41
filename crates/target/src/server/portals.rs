//! Portals: where protocols listen, and what makes sessions of the connections that come there.

use std::sync::Arc;

use net::{Acceptor, ListenerId};
use nvme::target::PortId;
use nvme::tcp::TargetConfig;

use super::iscsi::IscsiPortal;
use super::nvme_tcp::NvmeTcpPortal;
use super::{Server, State};
use crate::{PortalDefinition, PortalInfo, ServerError, Transport};

/// An open portal.
pub(super) struct PortalEntry {
    pub(super) port: PortId,
    listener: ListenerId,
}

/// The most portals.
const PORTALS_MAX: usize = 256;

impl Server {
    /// Opens a portal and returns it as it is (port 0 has become a real one). An address that other machines
    /// reach is refused while a target has no host list.
    pub fn add_portal(&self, portal: PortalDefinition) -> Result<PortalDefinition, ServerError> {
        let port = {
            let mut state = self.state();
            state.check_new_portal(&portal)?;
            state.take_port()
        };
        let acceptor: Arc<dyn Acceptor> = match portal.transport {
            Transport::NvmeTcp => Arc::new(NvmeTcpPortal {
                core: Arc::clone(self.core()),
                port,
                config: TargetConfig::default(),
            }),
            Transport::Iscsi => Arc::new(IscsiPortal {
                core: Arc::clone(self.core()),
                port,
                group: portal.group,
            }),
        };
        let (listener, address) = self
            .shared
            .reactors
            .listen(portal.address, acceptor)
            .map_err(|source| ServerError::Listen {
                address: portal.address,
                source,
            })?;
        let portal = PortalDefinition { address, ..portal };
        let mut state = self.state();
        // What was so before the socket was opened may have changed meanwhile. Reactors are never spoken to under the
        // lock, since they may be waiting for it.
        if let Err(error) = state.check_new_portal(&portal) {
            drop(state);
            self.shared.reactors.unlisten(listener);
            return Err(error);
        }
        state.portals.insert(portal, PortalEntry { port, listener });
        self.core().publish(&state);
        Ok(portal)
    }

    /// Closes a portal; the connections that came through it end.
    pub fn remove_portal(&self, portal: PortalDefinition) -> Result<(), ServerError> {
        let mut state = self.state();
        state.check_running()?;
        let Some(entry) = state.portals.remove(&portal) else {
            return Err(ServerError::UnknownPortal(portal));
        };
        self.core().publish(&state);
        drop(state);
        self.shared.reactors.unlisten(entry.listener);
        Ok(())
    }

    /// Every portal.
    pub fn portals(&self) -> Vec<PortalInfo> {
        let state = self.state();
        let registry = &self.core().registry;
        state
            .portals
            .iter()
            .map(|(&definition, entry)| PortalInfo {
                definition,
                connections: registry.connections_of(entry.port),
            })
            .collect()
    }
}

impl State {
    fn check_new_portal(&self, portal: &PortalDefinition) -> Result<(), ServerError> {
        self.check_running()?;
        if let Some(open) = self
            .portals
            .keys()
            .find(|open| open.address == portal.address && open.transport == portal.transport)
        {
            return Err(ServerError::PortalExists(*open));
        }
        if self.portals.len() >= PORTALS_MAX {
            return Err(ServerError::TooMany {
                what: "portals",
                max: PORTALS_MAX,
            });
        }
        let targets = self.targets.values().map(|target| &target.definition);
        Self::check_exposure(targets, std::iter::once(portal))
    }

    /// A number that no portal has, and none had of late.
    fn take_port(&mut self) -> PortId {
        let is_taken = |port| self.portals.values().any(|entry| entry.port == port);
        let after = self.last_port;
        let port = (1..=u16::MAX)
            .map(|step| PortId(after.wrapping_add(step)))
            .find(|&port| port.0 != 0 && !is_taken(port))
            .expect("there are more numbers than portals");
        self.last_port = port.0;
        port
    }
}
