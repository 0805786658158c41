//! Takes the steps of a plan on a server, and takes them back.

use server::{ErrorKind, Force, PortalDefinition, Server, ServerError, VolumeName};

use crate::definitions::Volume;
use crate::plan::{ShareStep, Step};

/// Steps taken so far. Unless [kept](Transaction::keep), they are undone when this drops.
pub(super) struct Transaction<'a> {
    server: &'a Server,
    done: Vec<Step>,
    /// That a step was taken, but what it promises does not hold yet.
    unfinished: Option<ServerError>,
}

impl<'a> Transaction<'a> {
    pub(super) fn new(server: &'a Server) -> Self {
        Self {
            server,
            done: Vec::new(),
            unfinished: None,
        }
    }

    /// Takes a step. For a portal that got another address than was requested: both.
    pub(super) fn take(
        &mut self,
        step: Step,
        force: Force,
    ) -> Result<Option<(PortalDefinition, PortalDefinition)>, ServerError> {
        let opened = match take(self.server, &step, force) {
            Err(error) if is_taken(&error) => {
                self.unfinished = Some(error);
                None
            }
            result => result?,
        };
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

    /// The steps taken so far.
    pub(super) fn done(&self) -> &[Step] {
        &self.done
    }

    /// Notes a step that was taken before.
    pub(super) fn note_done(&mut self, step: Step) {
        self.done.push(step);
    }

    /// The steps are taken permanently. Returns the error of one that is not finished, if any.
    pub(super) fn keep(mut self) -> Option<ServerError> {
        for step in self.done.drain(..) {
            if let Step::ReleaseMembers(name, _) = step {
                self.server.forget_volume(&name);
            }
        }
        self.unfinished.take()
    }
}

/// Whether a step that returned this error was taken all the same.
pub(super) fn is_taken(error: &ServerError) -> bool {
    error.kind() == ErrorKind::Unfinished
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        while let Some(step) = self.done.pop() {
            let undone = match &step {
                Step::CreateVolume(name, _) => self.server.undo_create_volume(name),
                _ => take(self.server, &step.clone().inverse(), Force::Yes).map(drop),
            };
            if let Err(error) = undone
                && !is_taken(&error)
            {
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
        Step::CreateVolume(name, volume) => create_volume(server, name, volume)?,
        Step::ReleaseMembers(name, _) => server.release_volume(name)?,
        Step::Resize { name, to_bytes, .. } => {
            server.resize_volume(name, *to_bytes, force, &mut |_| {})?;
        }
        Step::ChangeMembers { name, from, to } | Step::FreeMember(name, from, to) => {
            change_members(server, name, from, to)?;
        }
        Step::SetSettings { name, to, .. } => server.set_settings(name, to)?,
        Step::SetLock { name, to, .. } => server.set_volume_lock(name, to.write_lock())?,
        Step::SetFilters { name, to, .. } => set_filters(server, name, to)?,
        Step::RemoveVolume(name, _) => server.remove_volume(name, force)?,
        Step::CreateTarget(name, target) => {
            for warning in server.create_target(target.to_server(name)?)? {
                tracing::warn!(%warning, "target created");
            }
        }
        Step::SetPolicy { name, to, .. } => {
            let logins = to.logins(name)?;
            let hosts = server.set_target_hosts(name, to.policy());
            if hosts.as_ref().err().is_none_or(is_taken) {
                server.set_target_logins(name, logins)?;
            }
            hosts?;
        }
        Step::Attach(target, nsid, volume) => {
            server.attach_volume(target, volume, Some(nsid.0))?;
        }
        Step::Detach(target, nsid, _) => server.detach_volume(target, nsid.0, force)?,
        Step::RemoveTarget(name, _) => server.remove_target(name, force)?,
        Step::Share(name, ShareStep::Create(share)) => {
            server.create_share(share.to_server(name))?;
        }
        Step::Share(name, ShareStep::Change { to, .. }) => {
            server.change_share(to.to_server(name))?;
        }
        Step::Share(name, ShareStep::Remove(_)) => server.remove_share(name, force)?,
        Step::AddPortal(portal) => return server.add_portal(*portal).map(Some),
        Step::RemovePortal(portal) => server.remove_portal(*portal)?,
        Step::AddReferral(referral) => server.add_referral(*referral)?,
        Step::RemoveReferral(referral) => server.remove_referral(*referral)?,
    }
    Ok(None)
}

/// Creates a volume. One that is created again may have a lock and filters.
fn create_volume(server: &Server, name: &VolumeName, volume: &Volume) -> Result<(), ServerError> {
    let identity = volume.identity.to_server();
    server.create_volume_as(name.clone(), identity, &volume.spec(), &mut |_| {})?;
    if !volume.filters.is_empty() {
        set_filters(server, name, volume)?;
    }
    if volume.read_only {
        server.set_volume_lock(name, volume.write_lock())?;
    }
    Ok(())
}

fn set_filters(server: &Server, name: &VolumeName, to: &Volume) -> Result<(), ServerError> {
    // Definitions were checked before they became steps.
    let spec = to.filters.to_spec().unwrap_or_default();
    server.set_volume_filters(name, spec)
}

fn change_members(
    server: &Server,
    name: &VolumeName,
    from: &Volume,
    to: &Volume,
) -> Result<(), ServerError> {
    if let Some((old, new)) = from.replacement(to) {
        server.replace_member(name, &old, &new)?;
    }
    let added = from.kind.0.added_members(&to.kind.0);
    // Definitions were checked before they became steps, so they are names.
    let mut added = added.into_iter().flatten().filter_map(|of| of.parse().ok());
    added.try_for_each(|member| server.add_member(name, &member))
}
