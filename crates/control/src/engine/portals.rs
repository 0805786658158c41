//! Portals: opened, closed, moved from one provider of RDMA to another, and tried again.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use server::{Force, PortalAuth, PortalDefinition, ServerError, TlsPolicy, Transport};
use utoipa::ToSchema;

use super::{Engine, EngineError};
use crate::change::Change;
use crate::definitions::RdmaChoice;
use crate::plan::Step;
use crate::text::{Portal, Text};

/// What is to change of a portal; what is absent stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PortalPatch {
    /// What is to carry RDMA. Hosts of the portal connect again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rdma: Option<RdmaChoice>,
    /// Whether hosts of an NVMe/TCP portal use TLS: `off`, `allowed` or `required`. Hosts connect
    /// again.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "required")]
    pub tls: Option<Text<TlsPolicy>>,
    /// Whether all hosts have to authenticate, for discovery too. Hosts of the portal connect
    /// again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub require_auth: Option<bool>,
}

/// What to do with a portal that cannot be opened on this machine at present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfClosed {
    /// It is refused.
    Refuse,
    /// It is defined all the same, and tried again.
    Keep,
}

impl Engine {
    /// Opens a portal, and returns it as it is: port 0 has become a real one.
    pub fn add_portal(&self, portal: Portal, if_closed: IfClosed) -> Result<Portal, EngineError> {
        let mut store = self.begin();
        let before = self.read().portals.clone();
        if let Some(other) = before.iter().find(|other| other.0.0.is_beside(&portal.0)) {
            return Err(ServerError::PortalExists(other.0.0).into());
        }
        let change = |portal| vec![Change::AddPortal(Text(portal))];
        match self.commit(&mut store, change(portal), Force::No, |_| false) {
            Ok(()) => {
                let opened = self.read().portals.difference(&before).next().copied();
                Ok(opened.map_or(portal, |opened| opened.0))
            }
            Err(EngineError::Server(error))
                if if_closed == IfClosed::Keep && error.leaves_portal_closed() =>
            {
                tracing::error!(%portal, %error, "a portal stays closed; it is tried again");
                self.closed().insert(portal.0, error.to_string());
                let is_opening = |step: &Step| matches!(step, Step::AddPortal(_));
                self.commit(&mut store, change(portal), Force::No, is_opening)?;
                Ok(portal)
            }
            Err(error) => Err(error),
        }
    }

    /// Changes a portal, and returns it as it is. Its hosts connect again.
    pub fn change_portal(&self, portal: Portal, patch: PortalPatch) -> Result<Portal, EngineError> {
        let mut store = self.begin();
        let from = self.defined_portal(portal)?;
        let rdma = patch.rdma.map_or(from.0.rdma, server::RdmaChoice::from);
        let auth = match patch.require_auth {
            None => from.0.auth,
            Some(true) => PortalAuth::Required,
            Some(false) => PortalAuth::ByHost,
        };
        let tls = patch.tls.map_or(from.0.tls, |tls| tls.0);
        let to = Portal(PortalDefinition {
            rdma,
            auth,
            tls,
            ..from.0
        });
        if !from.0.transport.is_rdma() && patch.rdma.is_some() {
            return Err(ServerError::NoRdma(to.0).into());
        }
        if from.0.transport != Transport::NvmeTcp && patch.tls.is_some() {
            return Err(ServerError::NoTls(to.0).into());
        }
        if auth == PortalAuth::Required && !from.0.transport.authenticates() {
            return Err(ServerError::NoAuthentication(to.0).into());
        }
        if from != to {
            let changes = vec![
                Change::RemovePortal(Text(from)),
                Change::AddPortal(Text(to)),
            ];
            self.commit(&mut store, changes, Force::No, |_| false)?;
        }
        Ok(to)
    }

    /// Closes a portal; refused while it has connections, unless forced, which ends them.
    pub fn remove_portal(&self, portal: Portal, force: Force) -> Result<(), EngineError> {
        let mut store = self.begin();
        let portal = self.defined_portal(portal)?;
        self.guard_portal(portal.0, force)?;
        let change = Change::RemovePortal(Text(portal));
        self.commit(&mut store, vec![change], Force::No, |_| false)
    }

    /// The portal with that URL, which may leave options out.
    pub(super) fn defined_portal(&self, portal: Portal) -> Result<Portal, ServerError> {
        let definitions = self.read();
        let mut candidates = definitions.portals.iter().map(|defined| defined.0);
        if definitions.portals.contains(&Text(portal)) {
            return Ok(portal);
        }
        candidates
            .find(|defined| defined.0.is_named(&portal.0))
            .ok_or(ServerError::UnknownPortal(portal.0))
    }

    /// Whether a portal is open.
    pub(super) fn is_open(&self, portal: PortalDefinition) -> bool {
        let open = self.server().portals();
        open.iter().any(|info| info.definition == portal)
    }

    /// The portals that are defined and not open.
    fn closed_portals(&self) -> Vec<PortalDefinition> {
        let open = self.server().portals();
        let open: BTreeSet<_> = open.iter().map(|info| info.definition).collect();
        let definitions = self.read();
        let defined = definitions.portal_definitions();
        defined.filter(|portal| !open.contains(portal)).collect()
    }

    /// Whether a portal is defined that is not open.
    pub fn has_closed_portals(&self) -> bool {
        !self.closed_portals().is_empty()
    }

    /// Tries again to serve the shares that are unavailable.
    pub fn retry_shares(&self) {
        if self
            .server()
            .shares()
            .iter()
            .all(|share| share.problem.is_none())
        {
            return;
        }
        let _store = self.begin();
        for share in self.server().retry_shares() {
            tracing::info!(%share, "a share that was unavailable is served now");
        }
    }

    /// Tries again to open the portals that are not open. Returns how many are still closed.
    pub fn retry_portals(&self) -> usize {
        let _store = self.begin();
        let closed = self.closed_portals().into_iter();
        closed
            .filter(|portal| match self.server().add_portal(*portal) {
                Ok(_) => {
                    self.closed().remove(portal);
                    tracing::info!(%portal, "a portal that was closed is open now");
                    false
                }
                Err(error) => {
                    let before = self.closed().insert(*portal, error.to_string());
                    if before.is_none() {
                        tracing::error!(%portal, %error, "a portal is closed; it is tried again");
                    }
                    true
                }
            })
            .count()
    }
}
