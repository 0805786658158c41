//! NVMe/TCP: its portals, and what its discovery service tells.

use std::sync::Arc;
use std::time::Instant;

use net::{Accepted, Acceptor, Driven, drive};
use nvme::target::{DiscoveryRecord, Limits, PortId};
use nvme::tcp::{TargetConfig, TargetSession};
use nvme::wire::discovery::{SubsystemType, TransportType};
use nvme::wire::fabrics::NqnField;

use super::targets::Service;
use super::{Core, State};
use crate::Protocol;
use crate::backend::ConnectionBackend;
use crate::capacity::CONNECTION_BYTES;
use crate::names::DISCOVERY_NQN;

/// A portal that speaks NVMe/TCP.
pub(super) struct NvmeTcpPortal {
    pub(super) core: Arc<Core>,
    pub(super) port: PortId,
    pub(super) config: TargetConfig,
}

impl Acceptor for NvmeTcpPortal {
    fn accept(&self, now: Instant, accepted: &Accepted) -> Option<Box<dyn Driven>> {
        let charge = self.core.budget.reserve(CONNECTION_BYTES).ok()?;
        let backend = ConnectionBackend::new(Arc::clone(&self.core), *accepted, self.port, charge);
        Some(drive(TargetSession::new(now, self.config), backend))
    }
}

impl Core {
    /// Makes the discovery log tell of the targets and portals as they are now.
    pub(super) fn publish_to_nvme(&self, state: &State) {
        let mut records = Vec::new();
        let portals = state.portals.iter();
        for (portal, entry) in
            portals.filter(|(portal, _)| portal.transport.protocol() == Protocol::Nvme)
        {
            let record = DiscoveryRecord {
                kind: SubsystemType::Current,
                subsystem_nqn: nqn_field(DISCOVERY_NQN),
                transport: TransportType::Tcp,
                address: portal.address.ip(),
                service_port: portal.address.port(),
                port: entry.port,
                admin_queue_depth_max: Limits::default().admin_queue_depth_max as u16,
                visible_to: None,
            };
            records.push(record.clone());
            let targets = state.targets.iter();
            let targets = targets.filter(|(_, target)| matches!(target.service, Service::Nvme(_)));
            records.extend(targets.map(|(name, target)| DiscoveryRecord {
                kind: SubsystemType::Nvm,
                subsystem_nqn: nqn_field(name.as_str()),
                visible_to: Some(target.access.clone()),
                ..record.clone()
            }));
        }
        records.extend(state.referrals.iter().map(|referral| DiscoveryRecord {
            kind: SubsystemType::Referral,
            subsystem_nqn: nqn_field(DISCOVERY_NQN),
            transport: TransportType::Tcp,
            address: referral.address.ip(),
            service_port: referral.address.port(),
            // Another machine's portals have numbers of their own, which are not known here.
            port: PortId(0),
            admin_queue_depth_max: Limits::default().admin_queue_depth_max as u16,
            visible_to: None,
        }));
        self.discovery
            .with(|subsystem| subsystem.set_discovery_records(records));
    }
}

fn nqn_field(name: &str) -> NqnField {
    NqnField::new(name).expect("target names are not longer than NQNs")
}
