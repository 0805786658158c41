//! SRP: its portals, and who may log in.

mod backend;

use std::sync::Arc;
use std::time::Instant;

use ::iscsi::OpenError;
use ::srp::target::{TargetConfig, TargetSession, accept};
use ::srp::wire::{Login, LoginReject, PortId, RejectReason};
use block::{Access, HostIdentity};
use fabric::runtime::{Admitted, MessageAcceptor, QueueShape, Refusal, Request, drive_messages};
use net::Accepted;
use zerocopy::IntoBytes;

use super::Core;
use super::iscsi::IscsiPortal;
use super::targets::Service;
use crate::PortalGroup;
use crate::access::Grant;
use crate::iscsi::IscsiTarget;
use backend::SrpBackend;

/// A portal that speaks SRP. It offers the targets of iSCSI.
pub(super) struct SrpPortal(pub(super) IscsiPortal);

/// The most requests of a channel that are posted at once: a response and two pieces of data for
/// half the request limit. More would only wait in another queue.
const SENDS: u16 = 192;

/// Why a login is rejected, for the initiator and for the log.
struct Rejection {
    reason: RejectReason,
    why: &'static str,
}

impl Rejection {
    const fn new(reason: RejectReason, why: &'static str) -> Self {
        Self { reason, why }
    }
}

impl SrpPortal {
    fn admit(
        &self,
        login: &Login,
        accepted: &Accepted,
        reads_max: u8,
    ) -> Result<Admitted, Rejection> {
        if reads_max == 0 {
            let why = "it accepts no RDMA READs, by which its writes would be fetched";
            return Err(Rejection::new(RejectReason::Unspecified, why));
        }
        let config = TargetConfig::default();
        let agreed = accept(login, config).map_err(|reason| {
            let why = match reason {
                RejectReason::Formats => "it needs a descriptor format that is not supported",
                _ => "its messages are longer than the longest that is received",
            };
            Rejection::new(reason, why)
        })?;
        let (mut backend, others) = SrpBackend::open(&self.0, accepted, login)?;
        let session = TargetSession::new(&agreed, &mut backend);
        Ok(Admitted {
            driven: drive_messages(session, backend),
            shape: QueueShape {
                receives: config.receives(),
                receive_len_bytes: TargetConfig::RECEIVE_LEN_BYTES,
                sends: SENDS,
                reads: reads_max.min(config.reads_max),
            },
            private_data: agreed.response(others).as_bytes().to_vec(),
        })
    }
}

impl MessageAcceptor for SrpPortal {
    fn accept(
        &self,
        _: Instant,
        accepted: &Accepted,
        request: &Request<'_>,
    ) -> Result<Admitted, Refusal> {
        let login = Login::parse(request.private_data).ok_or_else(|| Refusal::Protocol {
            error: "its private data are no SRP login".into(),
            private_data: Vec::new(),
        })?;
        self.admit(login, accepted, request.reads_max)
            .map_err(|rejection| {
                tracing::warn!(
                    host = %login.initiator,
                    target_port = %login.target,
                    peer = %accepted.peer,
                    reason = rejection.why,
                    "rejected a login"
                );
                Refusal::Protocol {
                    error: rejection.why.into(),
                    private_data: LoginReject::new(login.tag, rejection.reason)
                        .as_bytes()
                        .to_vec(),
                }
            })
    }
}

impl Core {
    /// The target of this port identifier, if it is offered at portals of `group`, and the access
    /// of the host `who`.
    fn open_srp(
        &self,
        port: PortId,
        group: PortalGroup,
        who: HostIdentity<'_>,
    ) -> Result<(Arc<IscsiTarget>, Grant), Rejection> {
        const UNKNOWN: Rejection = Rejection::new(
            RejectReason::Association,
            "no target of this portal has that port identifier",
        );
        let (target, grant) = {
            let state = self.state();
            if state.is_stopping {
                let why = "the server is stopping";
                return Err(Rejection::new(RejectReason::Resources, why));
            }
            let mut entries = state.targets.values();
            let found = entries.find_map(|entry| match &entry.service {
                Service::Iscsi(target) if target.srp_port() == port => Some((entry, target)),
                Service::Iscsi(_) | Service::Nvme(_) => None,
            });
            let (entry, target) = found.ok_or(UNKNOWN)?;
            if !entry.definition.logins.is_reached(group) {
                return Err(UNKNOWN);
            }
            (Arc::clone(target), entry.access.grant(who))
        };
        if grant.access == Access::Denied {
            let why = "the host is not allowed";
            return Err(Rejection::new(RejectReason::Association, why));
        }
        let name = target.name().as_str();
        if self.authentication(who, Some(name)).initiator.is_some() {
            let why = "host or target has a CHAP secret, which SRP cannot check; use iscsi or iser";
            return Err(Rejection::new(RejectReason::Association, why));
        }
        Ok((target, grant))
    }
}

impl From<OpenError> for Rejection {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::TooManyConnections => Self::new(
                RejectReason::Channels,
                "the nexus has as many channels as it may have",
            ),
            OpenError::OutOfResources => Self::new(
                RejectReason::Resources,
                "the target accepts no further session",
            ),
            OpenError::NoSession => Self::new(
                RejectReason::Association,
                "the nexus has other access, or came through another portal group",
            ),
            _ => Self::new(RejectReason::Association, "the target is being removed"),
        }
    }
}
