//! Takes the steps of a plan on a server, and takes them back.

use server::{Force, PortalDefinition, Server, ServerError};

use crate::plan::Step;

/// Steps taken so far. Unless [kept](Transaction::keep), they are undone when this drops.
pub(super) struct Transaction<'a> {
    server: &'a Server,
    done: Vec<Step>,
}

impl<'a> Transaction<'a> {
    pub(super) fn new(server: &'a Server) -> Self {
        Self {
            server,
            done: Vec::new(),
        }
    }

    /// Takes a step. For a portal that got another address than was requested: both.
    pub(super) fn take(
        &mut self,
        step: Step,
        force: Force,
    ) -> Result<Option<(PortalDefinition, PortalDefinition)>, ServerError> {
        let opened = take(self.server, &step, force)?;
        Ok(match (step, opened) {
            (Step::AddPortal(asked), Some(opened)) => {
                self.done.push(Step::AddPortal(opened));
                (asked != opened).then_some((asked, opened))
            }
            (step, _) => {
                self.done.push(step);
                None
            }
        })
    }

    /// Notes a step that was taken before.
    pub(super) fn note_done(&mut self, step: Step) {
        self.done.push(step);
    }

    /// The steps are permanently.
    pub(super) fn keep(mut self) {
        self.done.clear();
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        while let Some(step) = self.done.pop() {
            let step = step.inverse();
            if let Err(error) = take(self.server, &step, Force::Yes) {
                tracing::error!(?step, %error, "cannot undo a step");
            }
        }
    }
}

/// Takes one step. A portal that was opened is returned as it is.
pub(super) fn take(
    server: &Server,
    step: &Step,
    force: Force,
) -> Result<Option<PortalDefinition>, ServerError> {
    match step {
        Step::SetMachine { to, .. } => server.set_machine(*to)?,
        Step::CreateHost(name, host) => server.create_host(host.to_server(name)?)?,
        Step::ChangeHost { name, to, .. } => server.change_host(to.to_server(name)?)?,
        Step::RemoveHost(name, _) => server.remove_host(name)?,
        Step::CreateVolume(name, volume) => {
            let identity = volume.identity.to_server();
            server.create_volume_as(name.clone(), identity, &volume.spec(), &mut |_| {})?;
        }
        Step::Resize { name, to_bytes, .. } => {
            server.resize_volume(name, *to_bytes, force, &mut |_| {})?;
        }
        Step::AddMembers { name, from, to } => {
            let added = from.kind.0.added_members(&to.kind.0);
            for member in added.into_iter().flatten() {
                // Definitions were checked before they became steps, so it is a name.
                if let Ok(member) = member.parse() {
                    server.add_member(name, &member)?;
                }
            }
        }
        Step::SetLock { name, to, .. } => server.set_volume_lock(name, to.write_lock())?,
        Step::SetFilters { name, to, .. } => {
            // Definitions were checked before they became steps.
            let spec = to.filters.to_spec().unwrap_or_default();
            server.set_volume_filters(name, spec)?;
        }
        Step::RemoveVolume(name, _) => server.remove_volume(name, force)?,
        Step::CreateTarget(name, target) => {
            for warning in server.create_target(target.to_server(name)?)? {
                tracing::warn!(%warning, "target created");
            }
        }
        Step::SetPolicy { name, to, .. } => {
            let logins = to.logins(name)?;
            server.set_target_hosts(name, to.policy())?;
            server.set_target_logins(name, logins)?;
        }
        Step::Attach(target, nsid, volume) => {
            server.attach_volume(target, volume, Some(nsid.0))?;
        }
        Step::Detach(target, nsid, _) => server.detach_volume(target, nsid.0, force)?,
        Step::RemoveTarget(name, _) => server.remove_target(name, force)?,
        Step::AddPortal(portal) => return server.add_portal(*portal).map(Some),
        Step::RemovePortal(portal) => server.remove_portal(*portal)?,
        Step::AddReferral(referral) => server.add_referral(*referral)?,
        Step::RemoveReferral(referral) => server.remove_referral(*referral)?,
    }
    Ok(None)
}
