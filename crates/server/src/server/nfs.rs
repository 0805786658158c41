//! NFS: its portals, over TCP, UDP and RDMA, and which shares its connections see.

mod backend;
mod datagrams;
mod waiting;

use std::sync::Arc;
use std::time::Instant;

use ::nfs::NfsSession;
use ::nfs::rdma::{self, RdmaSession};
use fabric::runtime::{Admitted, MessageAcceptor, QueueShape, Refusal, Request, drive_messages};
use net::{Accepted, Acceptor, DrivenStream, drive};

pub(super) use backend::NfsPortalId;
pub(super) use datagrams::Datagrams;

use super::shares::client_names;
use super::{Core, State};
use backend::{COUNTERS_BYTES, NfsBackend};

/// A portal that speaks NFS, over TCP, UDP or RDMA.
pub(super) struct NfsPortal {
    pub(super) core: Arc<Core>,
    pub(super) id: NfsPortalId,
}

impl NfsPortal {
    /// `None` if the budget has no room for another connection, whose session takes
    /// `session_bytes`. The counters of calls about no share are charged here. Those of shares come
    /// on top.
    fn backend(&self, accepted: &Accepted, session_bytes: u64) -> Option<NfsBackend> {
        let charge = self
            .core
            .charge_connection(session_bytes + COUNTERS_BYTES + BACKEND_BYTES)?;
        let core = Arc::clone(&self.core);
        Some(NfsBackend::new(core, *accepted, &self.id, charge))
    }
}

/// What a connection is charged besides its session and its counters, in bytes.
const BACKEND_BYTES: u64 = 4 << 10;

impl Acceptor for NfsPortal {
    fn accept(&self, _: Instant, accepted: &Accepted) -> Option<Box<dyn DrivenStream>> {
        let backend = self.backend(accepted, NfsSession::<NfsBackend>::BYTES_MAX)?;
        Some(drive(NfsSession::new(), backend))
    }
}

impl MessageAcceptor for NfsPortal {
    fn accept(
        &self,
        now: Instant,
        accepted: &Accepted,
        request: &Request<'_>,
    ) -> Result<Admitted, Refusal> {
        type Session = RdmaSession<NfsBackend>;
        if request.reads_max == 0 {
            return Err(Refusal::Protocol {
                error: "it accepts no RDMA READs, by which its writes would be fetched".into(),
                private_data: Vec::new(),
            });
        }
        let backend = self.backend(accepted, Session::BYTES_MAX);
        let backend = backend.ok_or(Refusal::NoResources)?;
        let agreed = rdma::accept(now, request.private_data);
        Ok(Admitted {
            driven: drive_messages(agreed.session, backend),
            shape: QueueShape {
                receives: Session::CREDITS,
                receive_len_bytes: Session::RECEIVE_LEN_BYTES,
                sends: Session::SENDS,
                reads: request.reads_max.min(Session::READS_MAX),
            },
            private_data: agreed.private_data.to_vec(),
        })
    }
}

impl Core {
    /// Updates the shares that NFS connections see to those that exist now.
    pub(super) fn publish_shares(&self, state: &State) {
        let names = &self.client_names;
        let wanted = state.share_definitions().flat_map(client_names);
        names.want(&wanted.collect());
        let shares = state.shares.values();
        self.exports
            .publish(shares.filter_map(|entry| entry.share(names)));
    }
}
