//! Sessions: hosts connected to targets.

use super::Server;
use crate::{ServerError, SessionId, SessionInfo};

impl Server {
    /// Every session, oldest first.
    pub fn sessions(&self) -> Vec<SessionInfo> {
        Vec::new()
    }

    /// Ends a session: its connections are closed. Its host may come again, unless it is no longer allowed.
    pub fn end_session(&self, id: SessionId) -> Result<(), ServerError> {
        Err(ServerError::UnknownSession(id))
    }
}
