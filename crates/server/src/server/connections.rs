//! Connections of any protocol: what counts them, and why they ended.

use std::sync::Arc;

use net::{Accepted, CloseReason, ConnectionId};
use nvme::controller::PortalNumber;

use super::Core;
use crate::counters::Totals;

impl Core {
    /// A connection has opened. Returns the totals that it counts in: those of its portal and of
    /// its thread.
    pub(super) fn connection_opened(
        &self,
        id: ConnectionId,
        port: PortalNumber,
        portal: &Arc<Totals>,
    ) -> Vec<Arc<Totals>> {
        self.registry.connection_opened(id, port);
        vec![Arc::clone(portal), self.threads.of(id.thread())]
    }

    /// Logs why a connection ended, with a level by reason. One that was refused, or made room for
    /// others, counts as rejected.
    pub(super) fn connection_ended(&self, accepted: &Accepted, reason: &CloseReason) {
        if let CloseReason::Evicted | CloseReason::Refused(_) = reason {
            self.note_rejected_connection();
        }
        let Accepted {
            id: connection,
            peer,
            ..
        } = accepted;
        match reason {
            // The thread that refuses a connection has a line about it in the log.
            CloseReason::PeerClosed
            | CloseReason::Refused(_)
            | CloseReason::Stopping
            | CloseReason::SessionEnded => {
                tracing::debug!(%connection, %peer, %reason, "a connection has ended");
            }
            CloseReason::Panicked => {
                tracing::error!(%connection, %peer, %reason, "a connection was ended");
            }
            _ => tracing::warn!(%connection, %peer, %reason, "a connection was ended"),
        }
    }
}
