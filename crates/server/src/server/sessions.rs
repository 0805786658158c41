//! Sessions: hosts connected to targets.

use super::Server;
use crate::iscsi::LOGOUT_WITHIN;
use crate::{ServerError, SessionId, SessionInfo, SessionProtocol};

impl Server {
    /// Every session, oldest first.
    pub fn sessions(&self) -> Vec<SessionInfo> {
        let core = self.core();
        let sessions = core.registry.sessions();
        let sessions = sessions.iter().map(|(id, session)| {
            let mut info = session.info(*id);
            if let SessionProtocol::Nfs { clients, .. } = &mut info.protocol {
                *clients = core.exports.clients_at(info.peer.ip().to_canonical());
            }
            info
        });
        sessions.collect()
    }

    /// Ends a session and closes its connections. An iSCSI initiator is first asked to log out
    /// within three seconds; if it was asked before, it is disconnected at once. The host may
    /// connect again if it is still allowed.
    pub fn end_session(&self, id: SessionId) -> Result<(), ServerError> {
        let session = self
            .core()
            .registry
            .session(id)
            .ok_or(ServerError::UnknownSession(id))?;
        session.member.end(LOGOUT_WITHIN);
        self.finish_turns()
    }
}
