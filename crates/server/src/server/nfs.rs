//! NFS: its portals, and which shares its connections see.

mod backend;

use std::sync::Arc;
use std::time::Instant;

use ::nfs::NfsSession;
use net::{Accepted, Acceptor, DrivenStream, drive};

pub(super) use backend::NfsPortalId;

use super::shares::ShareEntry;
use super::{Core, State};
use backend::{COUNTERS_BYTES, NfsBackend};

/// A portal that speaks NFS over TCP.
pub(super) struct NfsPortal {
    pub(super) core: Arc<Core>,
    pub(super) id: NfsPortalId,
}

/// What a connection is charged: its session, and the counters of calls about no share. Those of shares
/// come on top.
const CONNECTION_BYTES: u64 = NfsSession::<NfsBackend>::BYTES_MAX + COUNTERS_BYTES + (4 << 10);

impl Acceptor for NfsPortal {
    fn accept(&self, _: Instant, accepted: &Accepted) -> Option<Box<dyn DrivenStream>> {
        let charge = self.core.charge_connection(CONNECTION_BYTES)?;
        let core = Arc::clone(&self.core);
        let backend = NfsBackend::new(core, *accepted, &self.id, charge);
        Some(drive(NfsSession::new(), backend))
    }
}

impl Core {
    /// Updates the shares that NFS connections see to those that exist now.
    pub(super) fn publish_shares(&self, state: &State) {
        self.exports
            .publish(state.shares.values().map(ShareEntry::share));
    }
}
