//! Makes a fresh server what the state file says.

use target::{Force, Server, ServerError};

use super::steps;
use crate::definitions::Definitions;
use crate::plan::{PlanError, plan};

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
        error: ServerError,
    },
    /// The definitions contradict themselves.
    #[error("the state file contradicts itself: {0}")]
    Plan(#[from] PlanError),
}

/// Takes every step from nothing to `definitions`. A portal whose address is not there (yet) stays closed and is told;
/// everything else has to work.
pub(super) fn restore(server: &Server, definitions: &Definitions) -> Result<(), RestoreError> {
    for step in plan(&Definitions::default(), &definitions.as_changes())? {
        match steps::take(server, &step, Force::No) {
            Ok(_) => {}
            Err(error @ ServerError::Listen { .. }) => {
                tracing::error!(%error, "a portal stays closed; it is tried again");
            }
            Err(error) => {
                let what = step.noun();
                return Err(RestoreError::Server { what, error });
            }
        }
    }
    Ok(())
}
