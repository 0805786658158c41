//! Makes a fresh server what the state file says.

use target::{Force, Server, ServerError};

use super::steps;
use crate::definitions::Definitions;
use crate::plan::{Phase, PlanError, Step, plan};
use crate::reservations::Kept;

/// Why the server can't be what the state file says.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The server refused a definition.
    #[error("can't restore {what}: {error}")]
    Server {
        /// The definition.
        what: String,
        /// What the server said.
        #[source]
        error: Box<ServerError>,
    },
    /// The definitions contradict themselves.
    #[error("the state file contradicts itself: {0}")]
    Plan(#[from] PlanError),
}

/// Takes every step from nothing to what was kept. A portal whose address is not there (yet) stays closed and is told;
/// everything else has to work. Reservations are back before hosts can come.
pub(super) fn restore(server: &Server, kept: &Kept) -> Result<(), RestoreError> {
    let steps = plan(&Definitions::default(), &kept.definitions.as_changes())?;
    let opens = |step: &Step| step.phase() == Phase::OpenPortals;
    let (portals, others): (Vec<_>, Vec<_>) = steps.into_iter().partition(opens);
    for step in others {
        take(server, &step)?;
    }
    for (target, lun, reservations) in kept.reservations.to_server() {
        server.restore_reservations(target, lun, reservations);
    }
    for step in portals {
        take(server, &step)?;
    }
    Ok(())
}

fn take(server: &Server, step: &Step) -> Result<(), RestoreError> {
    match steps::take(server, step, Force::No) {
        Ok(_) => Ok(()),
        Err(error @ ServerError::Listen { .. }) => {
            tracing::error!(%error, "a portal stays closed; it is tried again");
            Ok(())
        }
        Err(error) => {
            let what = step.noun();
            let error = Box::new(error);
            Err(RestoreError::Server { what, error })
        }
    }
}
