//! Restores the definitions of the state file in a fresh server.

use std::collections::BTreeMap;

use server::{Force, PortalDefinition, Server, ServerError, ShareName, VolumeName};
use volume::VolumeKind;

use super::save_states::SaveStates;
use super::{LostContents, steps};
use crate::definitions::Definitions;
use crate::plan::{Phase, PlanError, ShareStep, Step, plan};
use crate::saved_state::SavedState;

/// Why the state file cannot be restored.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The server refused a definition.
    #[error("cannot restore {what}: {error}")]
    Server {
        /// The definition.
        what: String,
        /// What the server said.
        #[source]
        error: Box<ServerError>,
    },
    /// The definitions contradict themselves.
    #[error("the state file is inconsistent: {0}")]
    Plan(#[from] PlanError),
}

/// Takes every step from nothing to what was kept. A portal whose address is not there (yet), or
/// has no provider of RDMA, stays closed: those are returned with the reason. A share whose
/// directory cannot be served is unavailable. Everything else has to work. Reservations are back
/// before hosts can come.
pub(super) fn restore(
    server: &Server,
    saved: &SavedState,
    lost_contents: LostContents,
    saves: &SaveStates,
) -> Result<BTreeMap<PortalDefinition, String>, RestoreError> {
    let steps = plan(&Definitions::default(), &saved.definitions.as_changes())?;
    let opens = |step: &Step| step.phase() == Phase::OpenPortals;
    let (portals, others): (Vec<_>, Vec<_>) = steps.into_iter().partition(opens);
    for step in others {
        take(server, &step)?;
    }
    for (name, volume) in &saved.definitions.volumes {
        if !loses_contents(server, &name.0, &volume.kind.0) {
            if !volume.kind.0.holds_members() {
                warn_of_problem(server, &name.0);
            }
            continue;
        }
        let lost_contents = if saves.is_planned(&name.0) {
            LostContents::Offline
        } else {
            lost_contents
        };
        let offline = lost_contents.apply(server, &name.0);
        offline.map_err(|error| RestoreError::Server {
            what: format!("volume {name}"),
            error: Box::new(error),
        })?;
    }
    // After all others, since a volume that holds others is offline if one of them is.
    for (name, volume) in &saved.definitions.volumes {
        if volume.kind.0.holds_members() {
            warn_of_members(server, &name.0);
        }
    }
    for (target, lun, reservations) in saved.reservations.to_server() {
        server.restore_reservations(target, lun, reservations);
    }
    let mut closed = BTreeMap::new();
    for step in portals {
        match (take(server, &step), step) {
            (Ok(()), _) => {}
            (Err(RestoreError::Server { error, .. }), Step::AddPortal(portal))
                if error.leaves_portal_closed() =>
            {
                tracing::error!(%portal, %error, "a portal stays closed; it is tried again");
                closed.insert(portal, error.to_string());
            }
            (Err(error), _) => return Err(error),
        }
    }
    Ok(closed)
}

/// Whether a restart loses what a volume held. What a mirror holds is copied from members that keep
/// it, and what a replicated volume holds from other nodes.
pub(super) fn loses_contents(server: &Server, name: &VolumeName, kind: &VolumeKind) -> bool {
    !kind.outlives_program() && !server.is_refilled(name)
}

/// Logs why a volume executes nothing, if its file could not be opened.
fn warn_of_problem(server: &Server, name: &VolumeName) {
    let problem = server.volume(name).ok().and_then(|info| info.problem);
    if let Some(problem) = problem {
        tracing::error!(
            volume = %name,
            problem,
            "a volume is offline"
        );
    }
}

/// Logs which member makes a volume that holds it execute nothing.
fn warn_of_members(server: &Server, name: &VolumeName) {
    let problem = server.volume(name).ok().and_then(|info| info.problem);
    if let Some(problem) = problem {
        tracing::warn!(volume = %name, problem, "a volume is offline because of its members");
    }
}

/// Logs why a share is not served, if its directory could not be opened.
fn warn_of_share(server: &Server, name: &ShareName) {
    let problem = server.share(name).ok().and_then(|info| info.problem);
    if let Some(problem) = problem {
        tracing::error!(share = %name, problem, "a share is unavailable; it is tried again");
    }
}

fn take(server: &Server, step: &Step) -> Result<(), RestoreError> {
    let taken = match step {
        Step::CreateVolume(name, volume) => {
            let identity = volume.identity.to_server();
            server.restore_volume(name.clone(), identity, &volume.spec())
        }
        Step::Share(name, ShareStep::Create(share)) => {
            let restored = server.restore_share(share.to_server(name));
            warn_of_share(server, name);
            restored
        }
        _ => steps::take(server, step, Force::No).map(drop),
    };
    match taken {
        Ok(()) => Ok(()),
        Err(error) => {
            let what = step.noun();
            let error = Box::new(error);
            Err(RestoreError::Server { what, error })
        }
    }
}
