//! From a request for a connection to a session with its queue pair.

use std::sync::Arc;
use std::time::Instant;

use net::parts::{ConnectionPlace, Handshake};
use net::{Accepted, Refused};

use super::Common;
use super::acceptor::{Admitted, MessageAcceptor, Refusal, Request};
use super::connection::{Admission, Connection, Receives};
use super::pool::PIECE_MAX_BYTES;
use crate::verbs::{Access, CommId, ConnectRequest, PostError, ProtectionDomain, QpConfig, Qpn};
use crate::{FabricError, Provider};

/// Why a connection was refused.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotAdmitted {
    #[error("no portal listens on the requested port")]
    NoSuchPort,
    #[error(transparent)]
    Gate(#[from] Refused),
    #[error("the memory budget has no room for it")]
    NoMemory,
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error(transparent)]
    Fabric(#[from] FabricError),
    #[error(transparent)]
    Post(#[from] PostError),
}

/// The place of a connection, and what bounds it until its peer is admitted.
pub(super) struct Login {
    pub(super) place: ConnectionPlace,
    pub(super) handshake: Handshake,
}

/// Memory of a connection besides its receives, in bytes, rounded up: its session and the queues of
/// its queue pair.
const CONNECTION_BYTES: u64 = 64 << 10;

/// Creates a session and a queue pair for a request, and accepts it.
pub(super) fn admit<P: Provider>(
    now: Instant,
    (accepted, request): (&Accepted, &ConnectRequest),
    mut login: Login,
    acceptor: &Arc<dyn MessageAcceptor>,
    common: &Common,
    provider: &mut P,
) -> Result<Box<Connection>, NotAdmitted> {
    let asked = Request {
        private_data: &request.private_data,
        reads_max: request.responder_resources,
    };
    let mut admitted = acceptor.accept(now, accepted, &asked)?;
    let bytes = Receives::bytes_of(&admitted.shape) + CONNECTION_BYTES;
    let charge = common.budget.reserve(bytes);
    let charge = charge.map_err(|_| NotAdmitted::NoMemory)?;
    let held_bytes =
        bytes + u64::from(PIECE_MAX_BYTES) + admitted.driven.attachment().charged_bytes();
    let held = (common.reactors).hold(&mut login.handshake, accepted.id, held_bytes);
    if let Err(refused) = held {
        admitted.driven.handle_close(now, &refused.into());
        return Err(refused.into());
    }
    let receives = Receives::allocate(&admitted.shape, provider)?;
    let qpn = match open_qp(request.id, &admitted, &receives, provider) {
        Ok(qpn) => qpn,
        Err(error) => {
            receives.release(provider);
            return Err(error);
        }
    };
    let admission = Admission {
        place: login.place,
        handshake: login.handshake,
        charge,
    };
    let session = (admitted.driven, &admitted.shape);
    Ok(Box::new(Connection::new(
        (accepted.id, accepted.listener),
        qpn,
        session,
        receives,
        admission,
    )))
}

/// Creates a queue pair with its receives posted, and accepts the request with it.
fn open_qp<P: Provider>(
    id: CommId,
    admitted: &Admitted,
    receives: &Receives,
    provider: &mut P,
) -> Result<Qpn, NotAdmitted> {
    let shape = &admitted.shape;
    let qpn = provider.create_qp(QpConfig {
        domain: ProtectionDomain(0),
        // Nothing here is exposed to peers.
        access: Access::default(),
        send_depth: shape.sends,
        recv_depth: shape.receives,
        initiator_depth: shape.reads,
        may_stay: true,
        ..QpConfig::default()
    })?;
    let posted = receives
        .requests()
        .try_for_each(|request| provider.post_recv(qpn, request));
    let accepted = match posted {
        Ok(()) => provider
            .accept(id, qpn, &admitted.private_data)
            .map_err(NotAdmitted::from),
        Err(error) => Err(error.into()),
    };
    if accepted.is_err() {
        provider.destroy_qp(qpn);
    }
    accepted.map(|()| qpn)
}
