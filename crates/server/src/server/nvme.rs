//! NVMe: its portals, and what its discovery service reports.

mod backend;
mod generated;
mod tls;

use std::sync::Arc;
use std::time::Instant;

use ::tls::Entry;
use fabric::LinkLayer;
use fabric::runtime::{Admitted, MessageAcceptor, QueueShape, Refusal, Request, drive_messages};
use net::{Accepted, Acceptor, DrivenStream, drive};
use nvme::auth::Concatenation;
use nvme::controller::{DiscoveryRecord, Limits, PortalNumber, SecureChannel};
use nvme::rdma::wire::ConnectReject;
use nvme::wire::discovery::{RdmaProvider, SubsystemType};
use nvme::wire::fabrics::NqnField;
use nvme::{rdma, tcp};
use zerocopy::IntoBytes;

pub(super) use backend::NvmePortalId;
pub(super) use generated::GeneratedKeys;

use super::targets::Service;
use super::{Core, State};
use crate::capacity::CONNECTION_BYTES;
use crate::names::DISCOVERY_NQN;
use crate::{RdmaInfo, TlsPolicy};
use backend::{ConnectionBackend, transport_type};

/// A portal that speaks NVMe, over TCP or over RDMA.
pub(super) struct NvmePortal {
    pub(super) core: Arc<Core>,
    pub(super) id: NvmePortalId,
    /// What connections need that may use TLS.
    pub(super) tls: Option<(TlsPolicy, ::tls::Server)>,
}

impl NvmePortal {
    /// `None` if the budget has no room for another connection.
    fn backend(&self, accepted: &Accepted) -> Option<ConnectionBackend> {
        let charge = self.core.charge_connection(CONNECTION_BYTES)?;
        let core = Arc::clone(&self.core);
        let concatenation = match self.tls {
            Some(_) => Concatenation::Offered,
            None => Concatenation::Refused,
        };
        Some(ConnectionBackend::new(
            core,
            *accepted,
            self.id.clone(),
            concatenation,
            charge,
        ))
    }
}

impl Acceptor for NvmePortal {
    fn accept(&self, now: Instant, accepted: &Accepted) -> Option<Box<dyn DrivenStream>> {
        let session = tcp::ControllerSession::new(now, tcp::ControllerConfig::default());
        Some(drive(session, self.backend(accepted)?))
    }

    fn entry(&self) -> Option<Entry> {
        Some(match &self.tls {
            None => Entry::off(),
            Some((policy, server)) => Entry::new(*policy, server.clone()),
        })
    }
}

impl MessageAcceptor for NvmePortal {
    fn accept(
        &self,
        now: Instant,
        accepted: &Accepted,
        request: &Request<'_>,
    ) -> Result<Admitted, Refusal> {
        let config = rdma::ControllerConfig::default();
        let (private_data, reads_max) = (request.private_data, request.reads_max);
        let agreed = rdma::ControllerSession::accept(now, &config, private_data, reads_max)
            .map_err(|status| Refusal::Protocol {
                error: Box::new(status),
                private_data: ConnectReject::new(status).as_bytes().to_vec(),
            })?;
        let backend = self.backend(accepted).ok_or(Refusal::NoResources)?;
        Ok(Admitted {
            driven: drive_messages(agreed.session, backend),
            shape: QueueShape {
                receives: agreed.receives,
                receive_len_bytes: agreed.receive_len_bytes,
                sends: agreed.sends,
                reads: agreed.reads,
            },
            private_data: agreed.reply.as_bytes().to_vec(),
        })
    }
}

impl Core {
    /// Updates the discovery log to the targets and portals as they are now.
    pub(super) fn publish_to_nvme(&self, state: &State) {
        let mut records = Vec::new();
        let portals = state.portals.iter();
        for (portal, entry) in portals.filter(|(portal, _)| portal.transport.is_nvme()) {
            let record = DiscoveryRecord {
                kind: SubsystemType::Current,
                subsystem_nqn: nqn_field(DISCOVERY_NQN),
                transport: transport_type(portal.transport),
                rdma_provider: provider_type(entry.rdma()),
                address: portal.address.ip(),
                service_port: portal.address.port(),
                portal: entry.port,
                secure_channel: secure_channel(portal.tls),
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
            transport: transport_type(referral.transport),
            rdma_provider: provider_type(None),
            address: referral.address.ip(),
            service_port: referral.address.port(),
            // The port numbers of another machine are not known here.
            portal: PortalNumber(0),
            secure_channel: SecureChannel::NotSpecified,
            admin_queue_depth_max: Limits::default().admin_queue_depth_max as u16,
            visible_to: None,
        }));
        self.discovery
            .with(|subsystem| subsystem.set_discovery_records(records));
    }
}

/// The RDMA provider type of the discovery log. The kernel's connection manager chooses RoCEv2 if
/// an adapter supports several kinds.
fn provider_type(rdma: Option<&RdmaInfo>) -> RdmaProvider {
    match rdma.and_then(|rdma| rdma.link_layer.as_ref()) {
        Some(LinkLayer::InfiniBand) => RdmaProvider::InfiniBand,
        Some(LinkLayer::Ethernet) => RdmaProvider::RoceV2,
        Some(LinkLayer::Other(_)) | None => RdmaProvider::NotSpecified,
    }
}

/// What the discovery log says of TLS.
const fn secure_channel(policy: TlsPolicy) -> SecureChannel {
    match policy {
        TlsPolicy::Off => SecureChannel::NotSpecified,
        TlsPolicy::Allowed => SecureChannel::Allowed,
        TlsPolicy::Required => SecureChannel::Required,
    }
}

fn nqn_field(name: &str) -> NqnField {
    NqnField::new(name).expect("target names are not longer than NQNs")
}
