//! BRP: its portals, over TCP and over RDMA, and who may log in.

mod backend;

use std::sync::Arc;
use std::time::Instant;

use ::brp::target::TargetConfig;
use ::brp::wire::LoginStatus;
use ::brp::{rdma, tcp};
use ::nvme::controller::{OpenError, PortalNumber};
use block::{Access, HostIdentity};
use fabric::runtime::{Admitted, MessageAcceptor, QueueShape, Refusal, Request, drive_messages};
use net::{Accepted, Acceptor, DrivenStream, drive};
use zerocopy::IntoBytes;

use super::Core;
use crate::Transport;
use crate::capacity::CONNECTION_BYTES;
use crate::counters::Totals;
use crate::nvme_target::NvmeTarget;
use backend::BrpBackend;

/// A portal that speaks BRP.
pub(super) struct BrpPortal {
    core: Arc<Core>,
    id: BrpPortalId,
}

/// The portal that a connection came through.
#[derive(Clone)]
pub(super) struct BrpPortalId {
    pub(super) port: PortalNumber,
    pub(super) transport: Transport,
    pub(super) totals: Arc<Totals>,
}

impl BrpPortal {
    pub(super) fn new(
        core: Arc<Core>,
        port: PortalNumber,
        transport: Transport,
        totals: Arc<Totals>,
    ) -> Self {
        let id = BrpPortalId {
            port,
            transport,
            totals,
        };
        Self { core, id }
    }

    /// `None` if the budget has no room for another connection.
    fn backend(&self, accepted: &Accepted) -> Option<BrpBackend> {
        let charge = self.core.charge_connection(CONNECTION_BYTES)?;
        let core = Arc::clone(&self.core);
        Some(BrpBackend::new(core, *accepted, self.id.clone(), charge))
    }
}

impl Acceptor for BrpPortal {
    fn accept(&self, now: Instant, accepted: &Accepted) -> Option<Box<dyn DrivenStream>> {
        let session = tcp::TargetSession::new(now, TargetConfig::default());
        Some(drive(session, self.backend(accepted)?))
    }
}

impl MessageAcceptor for BrpPortal {
    fn accept(
        &self,
        now: Instant,
        accepted: &Accepted,
        request: &Request<'_>,
    ) -> Result<Admitted, Refusal> {
        let (private_data, reads_max) = (request.private_data, request.reads_max);
        let config = TargetConfig::default();
        let agreed = rdma::TargetSession::accept(now, config, private_data, reads_max);
        let agreed = agreed.ok_or_else(|| Refusal::Protocol {
            error: "its private data are not BRP's, or it accepts no RDMA READs".into(),
            private_data: Vec::new(),
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

/// Why a login is rejected, for the host and for the log.
pub(super) struct Rejection {
    pub(super) status: LoginStatus,
    pub(super) why: &'static str,
}

impl Rejection {
    const fn new(status: LoginStatus, why: &'static str) -> Self {
        Self { status, why }
    }
}

impl Core {
    /// The target of this name, and what the host `who` may do with it (BRP-6).
    fn open_brp(
        &self,
        name: &str,
        who: HostIdentity<'_>,
    ) -> Result<(Arc<NvmeTarget>, Access), Rejection> {
        let unknown = Rejection::new(LoginStatus::NoTarget, "the target does not exist");
        let (target, access) = match self.open(name, who) {
            Ok(opened) => opened,
            Err(OpenError::Busy) => {
                let why = "the server is stopping";
                return Err(Rejection::new(LoginStatus::Busy, why));
            }
            Err(_) => return Err(unknown),
        };
        if target.name().is_none() {
            // Discovery is a service of NVMe.
            return Err(unknown);
        }
        if access == Access::Denied {
            let why = "the host is not allowed";
            return Err(Rejection::new(LoginStatus::Denied, why));
        }
        if self.dhchap(who).is_some() {
            let why = "the host has a DH-HMAC-CHAP secret, which BRP cannot check; use nvme+tcp";
            return Err(Rejection::new(LoginStatus::Denied, why));
        }
        Ok((target, access))
    }
}
