//! Sessions: hosts connected to targets.

use super::Server;
use crate::iscsi::LOGOUT_WITHIN;
use crate::{ServerError, SessionId, SessionInfo};

impl Server {
    /// Every session, oldest first.
    pub fn sessions(&self) -> Vec<SessionInfo> {
        let sessions = self.core().registry.sessions();
        sessions
            .iter()
            .map(|(id, session)| session.info(*id))
            .collect()
    }

    /// Ends a session: its connections are closed. An iSCSI initiator is asked to log out before,
    /// for which it has three seconds, and is dropped at once where it was asked already. The host
    /// may come again, unless it is no longer allowed.
    pub fn end_session(&self, id: SessionId) -> Result<(), ServerError> {
        let session = self
            .core()
            .registry
            .session(id)
            .ok_or(ServerError::UnknownSession(id))?;
        session.member.end(LOGOUT_WITHIN);
        Ok(())
    }
}
